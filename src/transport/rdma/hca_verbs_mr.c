/* SPDX-License-Identifier: BSD-3-Clause */
/* hca_verbs.h: memory regions. */
#include <stdlib.h>

#include "base/log.h"
#include "transport/rdma/hca_verbs.h"

int wf_verbs_access(unsigned access)
{
    return (access & WF_HCA_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0) |
           (access & WF_HCA_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
           (access & WF_HCA_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
           (access & WF_HCA_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0) |
           (access & WF_HCA_ON_DEMAND ? IBV_ACCESS_ON_DEMAND : 0) |
           (access & WF_HCA_RELAXED ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

/* Makes a memory region of [made], a registration by libibverbs. [base] holds the fields that the
 * caller knows. If [made] is NULL, the registration failed, and the status comes from errno. */
static enum weft_status mr_wrap(struct wf_hca_pd *pd, struct ibv_mr *made, struct wf_hca_mr base,
                                struct wf_hca_mr **out)
{
    struct verbs_mr *mr;
    if (!made)
        return wf_verbs_refusal();
    mr = calloc(1, sizeof *mr);
    if (!mr) {
        (void)ibv_dereg_mr(made);
        return WEFT_ENOMEM;
    }
    base.hca = pd->hca;
    base.lkey = made->lkey;
    base.rkey = made->rkey;
    mr->base = base;
    mr->mr = made;
    wf_hca_made(pd->hca, WF_HCA_MR, base.len);
    *out = &mr->base;
    return WEFT_OK;
}

enum weft_status wf_verbs_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                  unsigned access, struct wf_hca_mr **out)
{
    const struct wf_hca_mr base = {
        .addr = addr, .len = len, .access = access, .unpinned = access & WF_HCA_ON_DEMAND};
    return mr_wrap(pd, ibv_reg_mr_iova(VERBS(pd, pd)->pd, addr, len, at, wf_verbs_access(access)),
                   base, out);
}

enum weft_status wf_verbs_mr_open_dmabuf(struct wf_hca_pd *pd, int fd, uint64_t offset, size_t len,
                                         uint64_t at, unsigned access, struct wf_hca_mr **out)
{
    const struct wf_hca_mr base = {.len = len, .access = access, .unpinned = true};
    if (!pd->hca->caps.dmabuf)
        return WEFT_EUNREACH;
    return mr_wrap(
        pd, ibv_reg_dmabuf_mr(VERBS(pd, pd)->pd, offset, len, at, fd, wf_verbs_access(access)),
        base, out);
}

void wf_verbs_mr_close(struct wf_hca_mr *mr)
{
    if (ibv_dereg_mr(VERBS(mr, mr)->mr))
        wf_warn("%s: a memory region cannot be freed: %m", mr->hca->name);
    wf_hca_freed(mr->hca, WF_HCA_MR, mr->len);
    free(mr);
}
