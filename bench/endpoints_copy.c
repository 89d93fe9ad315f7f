/* SPDX-License-Identifier: BSD-3-Clause */
/* null0, with writes and reads that the posting thread executes by memcpy, so that what benchmarks
 * check of the bytes is checked without a NIC. Remote addresses are those of this process. */
#include <string.h>

#include "endpoints.h"

static void execute(const struct wf_hca_wr *wr)
{
    void *remote = (void *)(uintptr_t)wr->remote;
    if (wr->op == WF_HCA_WRITE)
        memcpy(remote, wr->sge[0].addr, wr->sge[0].len);
    else if (wr->op == WF_HCA_READ)
        memcpy(wr->sge[0].addr, remote, wr->sge[0].len);
}

/* The bytes are there before the completion is. */
static unsigned copy_post(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        execute(&list[i]);
    return wf_hca_null.post(qp, list, n);
}

static struct wf_hca_ops ops;

static enum weft_status copy_open(const char *name, const struct wf_hca_config *config,
                                  struct wf_hca **out)
{
    enum weft_status status = wf_hca_null.open(name, config, out);
    if (status == WEFT_OK)
        (*out)->ops = &ops;
    return status;
}

const struct wf_hca_ops *copy_hca(void)
{
    ops = wf_hca_null;
    ops.name = "copy";
    ops.open = copy_open;
    ops.post = copy_post;
    return &ops;
}
