/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that opens a real device, with a queue pair that writes, and registrars of its domain.
 * A check that fails ends the process. */
#ifndef TEST_VM_SHARE_NODE_H
#define TEST_VM_SHARE_NODE_H

#include <sys/mman.h>

#include "transport/rdma/hca_verbs.h"
#include "unit/share.h"

#define PAGE 4096u
#define LEN (16 * PAGE)
#define ACCESS (WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE | WF_HCA_REMOTE_READ)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, #condition);                            \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == WEFT_OK)

static inline void *pages(size_t len, uint64_t id)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    test_fill(p, len, id);
    return p;
}

/* ---- a process with the device open, and a queue pair ---- */

struct node {
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    struct wf_hca_cq *cq;
    struct wf_hca_qp *qp;
    struct wf_hca_mr *mr;
    char *memory; /* LEN bytes, registered as [mr] at their own address */
    struct wf_hca_share share;
    int fd;
};

static inline void node_open(struct node *n, const char *name)
{
    const struct wf_hca_config config = {.gid_index = -1, .blueflame = true};
    struct wf_hca_qp_params params = {.sq_depth = 16, .rq_depth = 16};
    n->memory = pages(LEN, 0);
    OK(wf_hca_verbs.open(name, &config, &n->hca));
    OK(n->hca->ops->pd_open(n->hca, &n->pd));
    OK(n->hca->ops->cq_open(n->hca, NULL, 64, false, &n->cq));
    params.pd = n->pd;
    params.send_cq = params.recv_cq = n->cq;
    OK(n->hca->ops->qp_open(&params, &n->qp));
    OK(n->hca->ops->mr_open(n->pd, n->memory, LEN, (uintptr_t)n->memory, ACCESS, &n->mr));
    OK(n->hca->ops->share->describe(n->pd, &n->share, &n->fd));
}

static inline void node_close(struct node *n)
{
    n->hca->ops->mr_close(n->mr);
    n->hca->ops->qp_close(n->qp);
    n->hca->ops->cq_close(n->cq);
    n->hca->ops->pd_close(n->pd);
    n->hca->ops->close(n->hca);
}

static inline struct wf_hca_end node_end(const struct node *n)
{
    const struct wf_hca_port *port = &n->hca->ports[0];
    struct wf_hca_end end = {.qp = n->qp->number,
                             .psn = 1,
                             .lid = port->lid,
                             .mtu = port->mtu,
                             .reads = n->hca->caps.max_reads,
                             .link = port->link};
    memcpy(end.gid, port->gid.raw, sizeof end.gid);
    return end;
}

static inline void node_connect(struct node *n, const struct wf_hca_end *to)
{
    static const struct wf_hca_patience patience = {
        .timeout = 14, .retries = 7, .rnr_timer = 12, .rnr_retries = 7};
    OK(n->hca->ops->qp_connect(n->qp, &n->hca->ports[0], 1, to, &patience));
}

/* Writes [len] bytes and waits. Returns the status of the completion. */
static inline enum wf_hca_status node_write(struct node *n, uint64_t from, uint32_t lkey,
                                            uint64_t to, uint32_t rkey, uint32_t len)
{
    const struct wf_hca_wr wr = {.op = WF_HCA_WRITE,
                                 .flags = WF_HCA_SIGNALED,
                                 .nsge = 1,
                                 .rkey = rkey,
                                 .remote = to,
                                 .sge = {{(void *)(uintptr_t)from, len, lkey}}};
    const uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    struct wf_hca_wc wc;
    int got = 0;
    CHECK(n->hca->ops->post(n->qp, &wr, 1) == 1);
    while (!got) {
        got = n->hca->ops->poll(n->cq, &wc, 1);
        CHECK(got >= 0 && test_now_ns() < end);
    }
    return (enum wf_hca_status)wc.status;
}

static inline enum wf_hca_status write_into(struct node *n, const struct wf_hca_registration *to)
{
    return node_write(n, (uintptr_t)n->memory, n->mr->lkey, to->at, to->rkey, LEN);
}

/* A registrar of the node's own domain. */
static inline struct wf_hca_registrar *own_registrar(struct node *n)
{
    struct wf_hca_registrar *r;
    OK(wf_hca_adopt(&n->share, wf_fd_dup(n->fd), &r));
    return r;
}

static inline void share_with(struct node *n, const struct share_process *p)
{
    CHECK(share_send(p->sock, &n->share, sizeof n->share, n->fd));
}

#endif
