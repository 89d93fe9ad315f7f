/* SPDX-License-Identifier: BSD-3-Clause */
#include "set_connect.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* The peers of all queue pairs of a set: one context, and memory as large as the set's regions. */
struct wf_peers {
    const struct wf_hca_ops *ops;
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    struct wf_hca_cq *cq;
    struct wf_hca_mr *mr;
    struct wf_hca_qp **qps;
    unsigned nqps;
    char *memory;
    size_t len;
};

/* As Weft's own rails: 4.096 us * 2^14, 7 times. */
static const struct wf_hca_patience patience = {
    .timeout = 14, .retries = 7, .rnr_timer = 12, .rnr_retries = 7};

bool wf_hca_moves(const struct wf_hca_ops *ops)
{
    return strcmp(ops->name, "null") != 0 && strcmp(ops->name, "model") != 0;
}

/* ---- peers ---- */

static enum weft_status peers_memory(struct wf_set *s, struct wf_peers *p)
{
    size_t each = wf_align_up(s->params.region_len, 64) * s->params.regions;
    size_t wanted = s->params.peer_len ? s->params.peer_len : each * s->n;
    p->len = wf_align_up(wanted, 4096);
    p->memory = aligned_alloc(4096, p->len);
    if (!p->memory)
        return WEFT_ENOMEM;
    memset(p->memory, 0, p->len);
    s->peer_memory = p->memory;
    for (unsigned i = 0; i < s->n; i++)
        for (unsigned r = 0; r < s->params.regions; r++)
            s->users[i].remote[r] =
                (uint64_t)(uintptr_t)p->memory +
                (s->params.peer_len ? 0 : each * i + each / s->params.regions * r);
    return WEFT_OK;
}

static enum weft_status peers_open(struct wf_set *s, struct wf_peers *p)
{
    const struct wf_hca *like = s->users[0].hca;
    const struct wf_hca_config config = {.gid_index = -1, .blueflame = true};
    enum weft_status status = peers_memory(s, p);
    p->ops = like->ops;
    p->qps = calloc(2 * (size_t)s->n, sizeof *p->qps);
    if (!p->qps)
        return WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = p->ops->open(like->name, &config, &p->hca);
    if (status == WEFT_OK)
        status = p->ops->pd_open(p->hca, &p->pd);
    if (status == WEFT_OK)
        status = p->ops->cq_open(p->hca, NULL, 16, false, &p->cq);
    if (status == WEFT_OK)
        status =
            p->ops->mr_open(p->pd, p->memory, p->len, (uint64_t)(uintptr_t)p->memory,
                            WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_READ | WF_HCA_REMOTE_WRITE, &p->mr);
    for (unsigned i = 0; i < s->n && status == WEFT_OK; i++)
        for (unsigned r = 0; r < s->params.regions; r++)
            s->users[i].rkey[r] = p->mr->rkey;
    return status;
}

static const struct wf_hca_port *port_of(const struct wf_hca *hca)
{
    for (unsigned i = 0; i < hca->nports; i++)
        if (hca->ports[i].active)
            return &hca->ports[i];
    return &hca->ports[0];
}

static struct wf_hca_end end_of(const struct wf_hca_qp *qp)
{
    const struct wf_hca_port *port = port_of(qp->hca);
    struct wf_hca_end end = {.qp = qp->number,
                             .psn = 1,
                             .lid = port->lid,
                             .mtu = port->mtu,
                             .reads = qp->hca->caps.max_reads,
                             .link = port->link};
    memcpy(end.gid, port->gid.raw, sizeof end.gid);
    return end;
}

static enum weft_status one_connect(struct wf_hca_qp *qp, const struct wf_hca_qp *to)
{
    const struct wf_hca_end end = end_of(to);
    return qp->hca->ops->qp_connect(qp, port_of(qp->hca), 1, &end, &patience);
}

static enum weft_status peer_connect(struct wf_set *s, struct wf_hca_qp *qp)
{
    struct wf_peers *p = s->peers;
    const struct wf_hca_qp_params params = {
        .pd = p->pd, .send_cq = p->cq, .recv_cq = p->cq, .sq_depth = 1, .rq_depth = 1};
    struct wf_hca_qp **peer = &p->qps[p->nqps];
    enum weft_status status = p->ops->qp_open(&params, peer);
    if (status != WEFT_OK)
        return status;
    p->nqps++;
    status = one_connect(*peer, qp);
    return status == WEFT_OK ? one_connect(qp, *peer) : status;
}

/* ---- a set ---- */

static enum weft_status qp_connect(struct wf_set *s, struct wf_hca_qp *qp)
{
    return s->peers ? peer_connect(s, qp) : one_connect(qp, qp);
}

enum weft_status wf_set_connect(struct wf_set *s)
{
    enum weft_status status = WEFT_OK;
    if (wf_hca_moves(s->users[0].hca->ops)) {
        s->peers = calloc(1, sizeof *s->peers);
        status = s->peers ? peers_open(s, s->peers) : WEFT_ENOMEM;
    }
    for (unsigned i = 0; i < s->n; i++)
        for (unsigned side = 0; side < s->params.sides && status == WEFT_OK; side++)
            if (s->users[i].qp_index[side] == 2 * i + side)
                status = qp_connect(s, s->users[i].qp[side]);
    return status;
}

void wf_set_disconnect(struct wf_set *s)
{
    struct wf_peers *p = s->peers;
    if (!p)
        return;
    for (unsigned i = 0; i < p->nqps; i++)
        p->ops->qp_close(p->qps[i]);
    if (p->mr)
        p->ops->mr_close(p->mr);
    if (p->cq)
        p->ops->cq_close(p->cq);
    if (p->pd)
        p->ops->pd_close(p->pd);
    if (p->hca)
        p->ops->close(p->hca);
    free(p->qps);
    free(p->memory);
    free(p);
    s->peers = NULL;
}
