/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated NICs that move no bytes. A request completes when it is posted, and nothing is ever
 * received. With these NICs tests count the instructions and the memory that Weft itself uses, and
 * check what Weft chooses.
 *
 *   null0   InfiniBand, has a LID but no GID
 *   null1   RoCE; has four GIDs, and a second port that is down; registers memory on demand and
 *           dma-bufs */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "transport/rdma/hca.h"

#define WQE_BYTES 64 /* bytes of a queue's entry, as on common NICs */
#define CQE_BYTES 64

struct null_cq {
    struct wf_hca_cq base;
    uint32_t head, tail;
    struct wf_hca_wc *ring; /* base.depth entries, a power of two */
};

struct null_srq {
    struct wf_hca_srq base;
    uint32_t posted;
};

struct null_qp {
    struct wf_hca_qp base;
    struct null_cq *cq;
    uint32_t unsignaled; /* requests posted since the last completion */
    uint32_t receives;
    uint32_t rq_depth;
    bool connected, broken;
    uint64_t bytes;
};

static _Atomic uint32_t next_number;

static const struct wf_hca_caps caps = {.inline_max = 220,
                                        .max_sq = 32768,
                                        .max_rq = 32768,
                                        .max_cq = 1u << 22,
                                        .max_reads = 16,
                                        .srq = true,
                                        .td = true,
                                        .atomics = true};
static const char *const names[] = {"null0", "null1"};

static unsigned null_list(struct wf_hca_found *out, unsigned room)
{
    unsigned n = (unsigned)WF_MIN(room, WF_ARRAY_LEN(names));
    for (unsigned i = 0; i < n; i++)
        strcpy(out[i].name, names[i]);
    return n;
}

/* The GIDs of an Ethernet port: fe80::1 and 192.0.2.1, each as RoCE v1 and as RoCE v2. */
static int null_gids(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room)
{
    static const uint8_t addresses[2][16] = {{0xfe, 0x80, [15] = 1},
                                             {[10] = 0xff, [11] = 0xff, [12] = 192, 0, 2, 1}};
    uint8_t n = (uint8_t)WF_MIN(room, hca->ports[0].link == WF_HCA_ETHERNET ? 4u : 0u);
    (void)number;
    for (uint8_t i = 0; i < n; i++) {
        out[i].index = i;
        out[i].type = i % 2 ? WF_HCA_GID_ROCE_V2 : WF_HCA_GID_ROCE_V1;
        memcpy(out[i].raw, addresses[i / 2], sizeof out->raw);
    }
    return n;
}

static void ports_set(struct wf_hca *hca, bool is_roce)
{
    hca->nports = is_roce ? 2 : 1;
    for (unsigned i = 0; i < hca->nports; i++) {
        struct wf_hca_port *port = &hca->ports[i];
        struct wf_hca_gid gids[4];
        *port = (struct wf_hca_port){.number = (uint8_t)(i + 1),
                                     .active = !i,
                                     .link = is_roce ? WF_HCA_ETHERNET : WF_HCA_INFINIBAND,
                                     .lid = !is_roce,
                                     .mbps = 100000};
        wf_hca_port_set(hca, port, gids, null_gids(hca, port->number, gids, 4), 4096);
    }
}

static enum weft_status null_open(const char *name, const struct wf_hca_port_config *config,
                                  struct wf_hca **out)
{
    size_t which = 0;
    struct wf_hca *hca;
    while (which < WF_ARRAY_LEN(names) && strcmp(name, names[which]) != 0)
        which++;
    if (which == WF_ARRAY_LEN(names))
        return WEFT_EUNREACH;
    hca = calloc(1, sizeof *hca);
    if (!hca)
        return WEFT_ENOMEM;
    hca->ops = &wf_hca_null;
    hca->config = *config;
    strcpy(hca->name, name);
    hca->caps = caps;
    hca->caps.on_demand = hca->caps.dmabuf = which == 1;
    hca->async_fd = -1;
    ports_set(hca, which == 1);
    *out = hca;
    return WEFT_OK;
}

static void null_close(struct wf_hca *hca)
{
    free(hca);
}

static uint64_t null_now_ns(struct wf_hca *hca)
{
    (void)hca;
    return wf_now_ns();
}

static enum weft_status null_pd_open(struct wf_hca *hca, struct wf_hca_pd **out)
{
    struct wf_hca_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return WEFT_ENOMEM;
    pd->hca = hca;
    wf_hca_made(hca, WF_HCA_PD, 0);
    *out = pd;
    return WEFT_OK;
}

static void null_pd_close(struct wf_hca_pd *pd)
{
    wf_hca_freed(pd->hca, WF_HCA_PD, 0);
    free(pd);
}

static enum weft_status null_td_open(struct wf_hca_pd *pd, struct wf_hca_td **out)
{
    struct wf_hca_td *td = calloc(1, sizeof *td);
    if (!td)
        return WEFT_ENOMEM;
    td->hca = pd->hca;
    wf_hca_made(pd->hca, WF_HCA_TD, 0);
    *out = td;
    return WEFT_OK;
}

static void null_td_close(struct wf_hca_td *td)
{
    wf_hca_freed(td->hca, WF_HCA_TD, 0);
    free(td);
}

static uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static enum weft_status null_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                     bool events, struct wf_hca_cq **out)
{
    struct null_cq *cq = calloc(1, sizeof *cq);
    (void)td;
    (void)events;
    if (!cq)
        return WEFT_ENOMEM;
    cq->base = (struct wf_hca_cq){.hca = hca, .event_fd = -1, .depth = power_of_two(depth)};
    cq->ring = calloc(cq->base.depth, sizeof *cq->ring);
    if (!cq->ring) {
        free(cq);
        return WEFT_ENOMEM;
    }
    wf_hca_made(hca, WF_HCA_CQ, (uint64_t)cq->base.depth * CQE_BYTES);
    *out = &cq->base;
    return WEFT_OK;
}

static void null_cq_close(struct wf_hca_cq *base)
{
    struct null_cq *cq = (struct null_cq *)(void *)base;
    wf_hca_freed(base->hca, WF_HCA_CQ, (uint64_t)base->depth * CQE_BYTES);
    free(cq->ring);
    free(cq);
}

static enum weft_status null_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                      struct wf_hca_srq **out)
{
    struct null_srq *srq = calloc(1, sizeof *srq);
    (void)td;
    if (!srq)
        return WEFT_ENOMEM;
    srq->base = (struct wf_hca_srq){.hca = pd->hca, .depth = depth};
    wf_hca_made(pd->hca, WF_HCA_SRQ, (uint64_t)depth * WQE_BYTES);
    *out = &srq->base;
    return WEFT_OK;
}

static void null_srq_close(struct wf_hca_srq *srq)
{
    wf_hca_freed(srq->hca, WF_HCA_SRQ, (uint64_t)srq->depth * WQE_BYTES);
    free(srq);
}

static enum weft_status null_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out)
{
    struct null_qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return WEFT_ENOMEM;
    qp->base = (struct wf_hca_qp){.hca = p->pd->hca,
                                  .number = ++next_number & 0xffffff,
                                  .inline_max = WF_MIN(p->inline_max, p->pd->hca->caps.inline_max),
                                  .sq_depth = power_of_two(p->sq_depth)};
    qp->cq = (struct null_cq *)(void *)p->send_cq;
    qp->rq_depth = p->srq ? 0 : p->rq_depth;
    qp->bytes = ((uint64_t)qp->base.sq_depth + qp->rq_depth) * WQE_BYTES;
    wf_hca_made(p->pd->hca, WF_HCA_QP, qp->bytes);
    *out = &qp->base;
    return WEFT_OK;
}

static struct null_qp *null_of(struct wf_hca_qp *qp)
{
    return (struct null_qp *)(void *)qp;
}

static enum weft_status null_qp_connect(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                        uint32_t psn, const struct wf_hca_end *to,
                                        const struct wf_hca_patience *patience)
{
    (void)psn;
    (void)patience;
    qp->mtu = WF_MIN(port->mtu, to->mtu);
    null_of(qp)->connected = true;
    return WEFT_OK;
}

static enum weft_status null_qp_break(struct wf_hca_qp *qp)
{
    null_of(qp)->broken = true;
    return WEFT_OK;
}

static enum weft_status null_qp_expects(struct wf_hca_qp *qp, uint32_t *psn)
{
    (void)qp;
    (void)psn;
    return WEFT_EUNREACH;
}

static enum weft_status null_qp_reset(struct wf_hca_qp *qp)
{
    struct null_qp *n = null_of(qp);
    n->connected = n->broken = false;
    n->unsignaled = n->receives = 0;
    return WEFT_OK;
}

static void null_qp_close(struct wf_hca_qp *qp)
{
    wf_hca_freed(qp->hca, WF_HCA_QP, null_of(qp)->bytes);
    free(qp);
}

static enum weft_status mr_make(struct wf_hca_pd *pd, struct wf_hca_mr fields,
                                struct wf_hca_mr **out)
{
    struct wf_hca_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return WEFT_ENOMEM;
    *mr = fields;
    mr->hca = pd->hca;
    mr->lkey = mr->rkey = ++next_number;
    wf_hca_made(pd->hca, WF_HCA_MR, fields.len);
    *out = mr;
    return WEFT_OK;
}

static enum weft_status null_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                     unsigned access, struct wf_hca_mr **out)
{
    bool on_demand = access & WF_HCA_ON_DEMAND;
    (void)at;
    if (on_demand && !pd->hca->caps.on_demand)
        return WEFT_EUNREACH;
    return mr_make(
        pd, (struct wf_hca_mr){.addr = addr, .len = len, .access = access, .unpinned = on_demand},
        out);
}

/* Accepts any descriptor as a dma-buf. */
static enum weft_status null_mr_open_dmabuf(struct wf_hca_pd *pd, int fd, uint64_t offset,
                                            size_t len, uint64_t at, unsigned access,
                                            struct wf_hca_mr **out)
{
    if (!pd->hca->caps.dmabuf)
        return WEFT_EUNREACH;
    if (fd < 0 || (offset ^ at) & 4095)
        return WEFT_EINVAL;
    return mr_make(pd, (struct wf_hca_mr){.len = len, .access = access, .unpinned = true}, out);
}

static void null_mr_close(struct wf_hca_mr *mr)
{
    wf_hca_freed(mr->hca, WF_HCA_MR, mr->len);
    free(mr);
}

static unsigned null_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n)
{
    struct null_qp *qp = null_of(base);
    struct null_cq *cq = qp->cq;
    for (unsigned i = 0; i < n; i++) {
        bool failed = qp->broken || !qp->connected;
        if (qp->unsignaled == base->sq_depth || cq->tail - cq->head == cq->base.depth)
            return i;
        qp->unsignaled++;
        if (!(list[i].flags & WF_HCA_SIGNALED) && !failed)
            continue;
        qp->unsignaled = 0;
        cq->ring[cq->tail++ & (cq->base.depth - 1)] =
            (struct wf_hca_wc){.id = list[i].id,
                               .qp = base->number,
                               .kind = WF_HCA_WC_SENT,
                               .status = failed ? WF_HCA_FLUSHED : WF_HCA_OK};
    }
    return n;
}

static unsigned null_post_recv(struct wf_hca_qp *base, const struct wf_hca_recv *list, unsigned n)
{
    struct null_qp *qp = null_of(base);
    unsigned taken = WF_MIN(n, qp->rq_depth - qp->receives);
    (void)list;
    qp->receives += taken;
    return taken;
}

static unsigned null_post_srq(struct wf_hca_srq *base, const struct wf_hca_recv *list, unsigned n)
{
    struct null_srq *srq = (struct null_srq *)(void *)base;
    unsigned taken = WF_MIN(n, base->depth - srq->posted);
    (void)list;
    srq->posted += taken;
    return taken;
}

static int null_poll(struct wf_hca_cq *base, struct wf_hca_wc *out, unsigned room)
{
    struct null_cq *cq = (struct null_cq *)(void *)base;
    unsigned n = 0;
    while (n < room && cq->head != cq->tail)
        out[n++] = cq->ring[cq->head++ & (cq->base.depth - 1)];
    return (int)n;
}

static enum weft_status null_arm(struct wf_hca_cq *cq)
{
    (void)cq;
    return WEFT_OK;
}

static void null_disarm(struct wf_hca_cq *cq)
{
    (void)cq;
}

static void null_async(struct wf_hca *hca, struct wf_hca_event *out)
{
    (void)hca;
    *out = (struct wf_hca_event){.kind = WF_HCA_EVENT_NONE};
}

const struct wf_hca_ops wf_hca_null = {
    .name = "null",
    .list = null_list,
    .open = null_open,
    .close = null_close,
    .now_ns = null_now_ns,
    .gids = null_gids,
    .pd_open = null_pd_open,
    .pd_close = null_pd_close,
    .td_open = null_td_open,
    .td_close = null_td_close,
    .cq_open = null_cq_open,
    .cq_close = null_cq_close,
    .srq_open = null_srq_open,
    .srq_close = null_srq_close,
    .qp_open = null_qp_open,
    .qp_connect = null_qp_connect,
    .qp_break = null_qp_break,
    .qp_expects = null_qp_expects,
    .qp_reset = null_qp_reset,
    .qp_close = null_qp_close,
    .mr_open = null_mr_open,
    .mr_open_dmabuf = null_mr_open_dmabuf,
    .mr_close = null_mr_close,
    .post = null_post,
    .post_recv = null_post_recv,
    .post_srq = null_post_srq,
    .poll = null_poll,
    .arm = null_arm,
    .disarm = null_disarm,
    .async = null_async,
};
