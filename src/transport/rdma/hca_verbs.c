/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h over libibverbs: reliable connections, as every provider has them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "transport/rdma/hca_verbs.h"

#define POST_BATCH 32
#define POLL_BATCH 32

struct verbs_pd {
    struct wf_hca_pd base;
    struct ibv_pd *pd;
};
struct verbs_td {
    struct wf_hca_td base;
    struct ibv_td *td;
    struct ibv_pd *domain; /* a parent domain: a protection domain's, in [td] */
};
struct verbs_cq {
    struct wf_hca_cq base;
    struct ibv_cq *cq;
    struct ibv_comp_channel *channel;
    uint64_t bytes;
};
struct verbs_srq {
    struct wf_hca_srq base;
    struct ibv_srq *srq;
    uint64_t bytes;
};
struct verbs_mr {
    struct wf_hca_mr base;
    struct ibv_mr *mr;
};

/* What libibverbs and the kernel say with errno. */
static enum weft_status status_of(int err)
{
    switch (err) {
    case 0: return WEFT_OK;
    case ENOMEM: /* what may be locked, or the NIC's own: ulimit -l, mostly */
    case EAGAIN:
    case ENOSPC:
    case EMFILE: return WEFT_ELIMIT;
    case EINVAL: return WEFT_EINVAL;
    case EFAULT: return WEFT_EFAULT;
    case ENODEV:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return WEFT_EUNREACH;
    default: return WEFT_ESYSTEM;
    }
}

/* Of what was not made. Providers may refuse without errno. */
static enum weft_status refusal(void)
{
    enum weft_status status = status_of(errno);
    return status == WEFT_OK ? WEFT_ESYSTEM : status;
}

/* ---- NICs ---- */

/* A forked child must not take from the NIC what it reads; kernels since 5.12 see to it. */
static void fork_prepare(void)
{
    if (ibv_is_fork_initialized() == IBV_FORK_DISABLED && ibv_fork_init())
        wf_debug("ibv_fork_init: %m");
}

static unsigned verbs_list(struct wf_hca_found *out, unsigned room)
{
    int n = 0;
    unsigned found = 0;
    struct ibv_device **all;
    fork_prepare();
    all = ibv_get_device_list(&n);
    for (int i = 0; all && i < n && found < room; i++) {
        const char *name = ibv_get_device_name(all[i]);
        if (name && strlen(name) < WF_HCA_NAME)
            strcpy(out[found++].name, name);
    }
    if (all)
        ibv_free_device_list(all);
    return found;
}

static enum wf_hca_gid_type gid_type(uint32_t type)
{
    switch (type) {
    case IBV_GID_TYPE_ROCE_V1: return WF_HCA_GID_ROCE_V1;
    case IBV_GID_TYPE_ROCE_V2: return WF_HCA_GID_ROCE_V2;
    default: return WF_HCA_GID_INFINIBAND;
    }
}

static int verbs_gids(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room)
{
    struct ibv_gid_entry table[1024];
    ssize_t n = ibv_query_gid_table(VERBS(hca, hca)->context, table, WF_ARRAY_LEN(table), 0);
    unsigned found = 0;
    for (ssize_t i = 0; i < n && found < room; i++) {
        if (table[i].port_num != number || table[i].gid_index > UINT8_MAX)
            continue;
        out[found].index = (uint8_t)table[i].gid_index;
        out[found].type = (uint8_t)gid_type(table[i].gid_type);
        memcpy(out[found++].raw, table[i].gid.raw, sizeof out->raw);
    }
    return n < 0 ? -1 : (int)found;
}

/* Channels times the speed of one, as verbs codes them. */
static uint32_t port_mbps(const struct ibv_port_attr *attr)
{
    static const struct {
        uint8_t code;
        uint32_t mbps;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14063}, {32, 25781}, {64, 53125}, {128, 106250}};
    unsigned lanes = attr->active_width == 1   ? 1
                     : attr->active_width == 2 ? 4
                     : attr->active_width == 4 ? 8
                     : attr->active_width == 8 ? 12
                                               : 2;
    for (size_t i = 0; i < WF_ARRAY_LEN(speeds); i++)
        if (speeds[i].code == attr->active_speed)
            return speeds[i].mbps * lanes;
    return 0;
}

static void port_look(struct verbs_hca *h, struct wf_hca_port *port)
{
    struct ibv_port_attr attr;
    struct wf_hca_gid gids[WF_HCA_GIDS];
    int n = verbs_gids(&h->base, port->number, gids, WF_HCA_GIDS);
    port->active = false;
    if (ibv_query_port(h->context, port->number, &attr))
        return;
    port->link = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? WF_HCA_ETHERNET : WF_HCA_INFINIBAND;
    port->lid = attr.lid;
    port->needs_gid = attr.flags & IBV_QPF_GRH_REQUIRED;
    port->mbps = port_mbps(&attr);
    port->active = attr.state == IBV_PORT_ACTIVE;
    wf_hca_port_set(&h->base, port, gids, n, verbs_mtu_bytes(attr.active_mtu));
}

static void caps_look(struct verbs_hca *h, const struct ibv_device_attr_ex *attr)
{
    const struct ibv_device_attr *a = &attr->orig_attr;
    struct wf_hca_caps *c = &h->base.caps;
    uint32_t rc = attr->odp_caps.per_transport_caps.rc_odp_caps;
    *c = (struct wf_hca_caps){
        .max_sq = (uint32_t)a->max_qp_wr,
        .max_rq = (uint32_t)(a->max_srq ? a->max_srq_wr : a->max_qp_wr),
        .max_cq = (uint32_t)a->max_cqe,
        .max_reads = (uint8_t)WF_MIN(WF_MIN(a->max_qp_rd_atom, a->max_qp_init_rd_atom), 16),
        .srq = a->max_srq > 0,
        .atomics = a->atomic_cap != IBV_ATOMIC_NONE,
        .global_atomics = a->atomic_cap == IBV_ATOMIC_GLOB,
        .on_demand = attr->odp_caps.general_caps & IBV_ODP_SUPPORT && rc & IBV_ODP_SUPPORT_SEND &&
                     rc & IBV_ODP_SUPPORT_WRITE && rc & IBV_ODP_SUPPORT_READ,
        .vendor = a->vendor_id,
        .part = a->vendor_part_id,
    };
    h->base.nports = (unsigned)WF_MIN(a->phys_port_cnt, WF_HCA_PORTS);
}

/* By a descriptor that is none: who can register dma-bufs looks at it (EBADF), others and their
 * kernel's part do not come so far (EOPNOTSUPP, EPROTONOSUPPORT, ENOSYS). */
static bool can_dmabuf(struct ibv_pd *pd)
{
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
    if (mr)
        (void)ibv_dereg_mr(mr);
    return !mr && errno == EBADF;
}

/* Inline bytes, thread domains and dma-bufs are not told: they are tried. */
static void caps_try(struct verbs_hca *h)
{
    struct ibv_td_init_attr td_attr = {0};
    struct ibv_td *td = ibv_alloc_td(h->context, &td_attr);
    struct ibv_pd *pd = ibv_alloc_pd(h->context);
    struct ibv_cq *cq = ibv_create_cq(h->context, 1, NULL, NULL, 0);
    h->base.caps.td = td;
    h->base.caps.dmabuf = pd && can_dmabuf(pd);
    if (td)
        ibv_dealloc_td(td);
    for (uint32_t bytes = 512; pd && cq && bytes && !h->base.caps.inline_max; bytes /= 2) {
        struct ibv_qp_init_attr attr = {
            .send_cq = cq,
            .recv_cq = cq,
            .cap = {.max_send_wr = 1,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = bytes},
            .qp_type = IBV_QPT_RC,
        };
        struct ibv_qp *qp = ibv_create_qp(pd, &attr);
        if (!qp)
            continue;
        h->base.caps.inline_max = attr.cap.max_inline_data;
        ibv_destroy_qp(qp);
    }
    if (cq)
        ibv_destroy_cq(cq);
    if (pd)
        ibv_dealloc_pd(pd);
}

static struct ibv_context *context_open(const char *name)
{
    struct wf_fd_floor floor;
    int n = 0;
    struct ibv_context *context = NULL;
    struct ibv_device **all;
    wf_fd_floor_hold(&floor);
    all = ibv_get_device_list(&n);
    errno = ENODEV;
    for (int i = 0; all && i < n; i++)
        if (!strcmp(ibv_get_device_name(all[i]), name))
            context = ibv_open_device(all[i]);
    if (all)
        ibv_free_device_list(all);
    wf_fd_floor_drop(&floor);
    return context;
}

static void verbs_close(struct wf_hca *hca)
{
    struct verbs_hca *h = VERBS(hca, hca);
    if (ibv_close_device(h->context))
        wf_warn("%s cannot be closed: %m", hca->name);
    free(h);
}

static enum weft_status verbs_open(const char *name, const struct wf_hca_port_config *config,
                                   struct wf_hca **out)
{
    struct ibv_device_attr_ex attr;
    struct verbs_hca *h = calloc(1, sizeof *h);
    if (!h)
        return WEFT_ENOMEM;
    h->base.ops = &wf_hca_verbs;
    h->base.config = *config;
    strncpy(h->base.name, name, sizeof h->base.name - 1);
    h->context = context_open(name);
    if (!h->context) {
        enum weft_status status = refusal();
        free(h);
        return status;
    }
    if (ibv_query_device_ex(h->context, NULL, &attr) ||
        fcntl(h->context->async_fd, F_SETFL, O_NONBLOCK)) {
        verbs_close(&h->base);
        return WEFT_ESYSTEM;
    }
    h->base.async_fd = h->context->async_fd;
    caps_look(h, &attr);
    caps_try(h);
    for (unsigned i = 0; i < h->base.nports; i++) {
        h->base.ports[i].number = (uint8_t)(i + 1);
        port_look(h, &h->base.ports[i]);
    }
    *out = &h->base;
    return WEFT_OK;
}

static uint64_t verbs_now_ns(struct wf_hca *hca)
{
    (void)hca;
    return wf_now_ns();
}

/* ---- domains ---- */

static enum weft_status verbs_pd_open(struct wf_hca *hca, struct wf_hca_pd **out)
{
    struct verbs_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return WEFT_ENOMEM;
    pd->base.hca = hca;
    pd->pd = ibv_alloc_pd(VERBS(hca, hca)->context);
    if (!pd->pd) {
        enum weft_status status = refusal();
        free(pd);
        return status;
    }
    wf_hca_made(hca, WF_HCA_PD, 0);
    *out = &pd->base;
    return WEFT_OK;
}

static void verbs_pd_close(struct wf_hca_pd *pd)
{
    if (ibv_dealloc_pd(VERBS(pd, pd)->pd))
        wf_warn("%s: a protection domain cannot be freed: %m", pd->hca->name);
    wf_hca_freed(pd->hca, WF_HCA_PD, 0);
    free(pd);
}

static void verbs_td_close(struct wf_hca_td *base)
{
    struct verbs_td *td = VERBS(base, td);
    if (td->domain && ibv_dealloc_pd(td->domain))
        wf_warn("%s: a thread's protection domain cannot be freed: %m", base->hca->name);
    if (td->td && ibv_dealloc_td(td->td))
        wf_warn("%s: a thread domain cannot be freed: %m", base->hca->name);
    if (td->domain)
        wf_hca_freed(base->hca, WF_HCA_TD, 0);
    free(td);
}

static enum weft_status verbs_td_open(struct wf_hca_pd *pd, struct wf_hca_td **out)
{
    struct ibv_context *context = VERBS(pd->hca, hca)->context;
    struct ibv_td_init_attr td_attr = {0};
    struct ibv_parent_domain_init_attr attr = {.pd = VERBS(pd, pd)->pd};
    struct verbs_td *td;
    if (!pd->hca->caps.td)
        return WEFT_EUNREACH;
    td = calloc(1, sizeof *td);
    if (!td)
        return WEFT_ENOMEM;
    td->base.hca = pd->hca;
    td->td = attr.td = ibv_alloc_td(context, &td_attr);
    if (td->td)
        td->domain = ibv_alloc_parent_domain(context, &attr);
    if (!td->domain) {
        enum weft_status status = refusal();
        verbs_td_close(&td->base);
        return status;
    }
    wf_hca_made(pd->hca, WF_HCA_TD, 0);
    *out = &td->base;
    return WEFT_OK;
}

/* Where to make what belongs to [pd], and to [td]'s thread alone. */
static struct ibv_pd *domain_of(const struct wf_hca_pd *pd, const struct wf_hca_td *td)
{
    return td ? VERBS(td, td)->domain : VERBS(pd, pd)->pd;
}

/* ---- completion queues ---- */

#define CQE_BYTES 64 /* of a common NIC's entry: no provider tells */
#define WQE_BYTES 64

static void verbs_cq_close(struct wf_hca_cq *base)
{
    struct verbs_cq *cq = VERBS(base, cq);
    if (cq->cq && ibv_destroy_cq(cq->cq))
        wf_warn("%s: a completion queue cannot be freed: %m", base->hca->name);
    if (cq->channel)
        (void)ibv_destroy_comp_channel(cq->channel);
    if (cq->cq)
        wf_hca_freed(base->hca, WF_HCA_CQ, cq->bytes);
    free(cq);
}

/* Without a lock for a thread domain's, where the provider has such. Null: errno */
static struct ibv_cq *cq_create(struct wf_hca *hca, const struct wf_hca_td *td, uint32_t depth,
                                struct ibv_comp_channel *channel)
{
    struct ibv_context *context = VERBS(hca, hca)->context;
    struct ibv_cq_init_attr_ex attr = {.cqe = depth,
                                       .channel = channel,
                                       .wc_flags = IBV_WC_STANDARD_FLAGS,
                                       .comp_mask =
                                           IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
                                       .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
                                       .parent_domain = td ? VERBS(td, td)->domain : NULL};
    struct ibv_cq_ex *cq = td ? ibv_create_cq_ex(context, &attr) : NULL;
    return cq ? ibv_cq_ex_to_cq(cq) : ibv_create_cq(context, (int)depth, NULL, channel, 0);
}

static struct ibv_comp_channel *channel_open(struct ibv_context *context)
{
    struct wf_fd_floor floor;
    struct ibv_comp_channel *channel;
    wf_fd_floor_hold(&floor);
    channel = ibv_create_comp_channel(context);
    wf_fd_floor_drop(&floor);
    return channel;
}

static enum weft_status verbs_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                      bool events, struct wf_hca_cq **out)
{
    struct verbs_cq *cq = calloc(1, sizeof *cq);
    struct ibv_context *context = VERBS(hca, hca)->context;
    enum weft_status status;
    if (!cq)
        return WEFT_ENOMEM;
    cq->base.hca = hca;
    cq->base.event_fd = -1;
    errno = 0;
    if (events) {
        cq->channel = channel_open(context);
        if (!cq->channel || fcntl(cq->channel->fd, F_SETFL, O_NONBLOCK))
            goto failed;
        cq->base.event_fd = cq->channel->fd;
    }
    cq->cq = cq_create(hca, td, depth, cq->channel);
    if (!cq->cq)
        goto failed;
    cq->base.depth = (uint32_t)cq->cq->cqe;
    cq->bytes = (uint64_t)cq->base.depth * CQE_BYTES;
    wf_hca_made(hca, WF_HCA_CQ, cq->bytes);
    *out = &cq->base;
    return WEFT_OK;
failed:
    status = refusal();
    verbs_cq_close(&cq->base);
    return status;
}

static enum wf_hca_status wc_status(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS: return WF_HCA_OK;
    case IBV_WC_WR_FLUSH_ERR: return WF_HCA_FLUSHED;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return WF_HCA_UNREACHABLE;
    case IBV_WC_RNR_RETRY_EXC_ERR: return WF_HCA_NOT_READY;
    case IBV_WC_REM_ACCESS_ERR: return WF_HCA_REMOTE_ACCESS;
    case IBV_WC_REM_INV_REQ_ERR: return WF_HCA_REMOTE_FAULT; /* others may have done some of it */
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR: return WF_HCA_LOCAL_FAULT;
    default: return WF_HCA_FAULT;
    }
}

static void wc_take(const struct ibv_wc *from, struct wf_hca_wc *to)
{
    bool ok = from->status == IBV_WC_SUCCESS, received = ok && from->opcode & IBV_WC_RECV;
    *to = (struct wf_hca_wc){
        .id = from->wr_id,
        .qp = from->qp_num,
        .len = received ? from->byte_len : 0,
        .kind = received ? WF_HCA_WC_RECEIVED : WF_HCA_WC_SENT,
        .status = (uint8_t)wc_status(from->status),
        .has_imm = received && from->wc_flags & IBV_WC_WITH_IMM,
        .is_write = received && from->opcode == IBV_WC_RECV_RDMA_WITH_IMM,
    };
    if (to->has_imm)
        to->imm = be32toh(from->imm_data);
}

static int verbs_poll(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    struct ibv_wc wc[POLL_BATCH];
    int n = ibv_poll_cq(VERBS(cq, cq)->cq, (int)WF_MIN(room, POLL_BATCH), wc);
    for (int i = 0; i < n; i++)
        wc_take(&wc[i], &out[i]);
    return n;
}

static enum weft_status verbs_arm(struct wf_hca_cq *cq)
{
    int err = ibv_req_notify_cq(VERBS(cq, cq)->cq, 0);
    return err ? status_of(err) : WEFT_OK;
}

static void verbs_disarm(struct wf_hca_cq *base)
{
    struct verbs_cq *cq = VERBS(base, cq);
    struct ibv_cq *of;
    void *context;
    unsigned n = 0;
    while (cq->channel && !ibv_get_cq_event(cq->channel, &of, &context))
        n++;
    if (n)
        ibv_ack_cq_events(cq->cq, n);
}

/* ---- receive queues ---- */

static void verbs_srq_close(struct wf_hca_srq *base)
{
    struct verbs_srq *srq = VERBS(base, srq);
    if (ibv_destroy_srq(srq->srq))
        wf_warn("%s: a shared receive queue cannot be freed: %m", base->hca->name);
    wf_hca_freed(base->hca, WF_HCA_SRQ, srq->bytes);
    free(srq);
}

static enum weft_status verbs_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                       struct wf_hca_srq **out)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = depth, .max_sge = 1}};
    struct verbs_srq *srq = calloc(1, sizeof *srq);
    if (!srq)
        return WEFT_ENOMEM;
    srq->base.hca = pd->hca;
    srq->srq = ibv_create_srq(domain_of(pd, td), &attr);
    if (!srq->srq) {
        enum weft_status status = refusal();
        free(srq);
        return status;
    }
    srq->base.depth = WF_MIN(depth, attr.attr.max_wr);
    srq->bytes = (uint64_t)attr.attr.max_wr * WQE_BYTES;
    wf_hca_made(pd->hca, WF_HCA_SRQ, srq->bytes);
    *out = &srq->base;
    return WEFT_OK;
}

static void recv_make(const struct wf_hca_recv *from, struct ibv_recv_wr *wr, struct ibv_sge *sge,
                      bool last)
{
    *sge = (struct ibv_sge){(uintptr_t)from->sge.addr, from->sge.len, from->sge.lkey};
    *wr = (struct ibv_recv_wr){
        .wr_id = from->id, .next = last ? NULL : wr + 1, .sg_list = sge, .num_sge = 1};
}

/* Posts by [post] of [queue]; how many. */
static unsigned recv_post(void *queue, const struct wf_hca_recv *list, unsigned n,
                          int (*post)(void *queue, struct ibv_recv_wr *wr,
                                      struct ibv_recv_wr **bad))
{
    unsigned done = 0;
    while (done < n) {
        struct ibv_recv_wr wr[POST_BATCH], *bad = NULL;
        struct ibv_sge sge[POST_BATCH];
        unsigned part = WF_MIN(n - done, POST_BATCH);
        for (unsigned i = 0; i < part; i++)
            recv_make(&list[done + i], &wr[i], &sge[i], i + 1 == part);
        if (post(queue, wr, &bad))
            return done + (bad ? (unsigned)(bad - wr) : 0);
        done += part;
    }
    return done;
}

static int srq_post_one(void *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return ibv_post_srq_recv(queue, wr, bad);
}

static int qp_post_one(void *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return ibv_post_recv(queue, wr, bad);
}

static unsigned verbs_post_srq(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n)
{
    return recv_post(VERBS(srq, srq)->srq, list, n, srq_post_one);
}

static unsigned verbs_post_recv(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n)
{
    return recv_post(VERBS(qp, qp)->qp, list, n, qp_post_one);
}

/* ---- queue pairs ---- */

static void verbs_qp_close(struct wf_hca_qp *base)
{
    struct verbs_qp *qp = VERBS(base, qp);
    if (qp->qp && ibv_destroy_qp(qp->qp))
        wf_warn("%s: a queue pair cannot be freed: %m", base->hca->name);
    if (qp->qp)
        wf_hca_freed(base->hca, WF_HCA_QP, qp->bytes);
    free(qp);
}

/* With requests that are made in place (*in_place), where the provider has that (ibv_wr_post(3)).
 * [attr]'s sizes are those it has then. Null: errno */
static struct ibv_qp *qp_create(const struct wf_hca *hca, struct ibv_pd *pd,
                                struct ibv_qp_init_attr *attr, struct ibv_qp_ex **in_place)
{
    struct ibv_qp_init_attr_ex ex = {
        .send_cq = attr->send_cq,
        .recv_cq = attr->recv_cq,
        .srq = attr->srq,
        .cap = attr->cap,
        .qp_type = attr->qp_type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ};
    struct ibv_qp *qp;
    if (hca->caps.atomics)
        ex.send_ops_flags |=
            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    qp = ibv_create_qp_ex(pd->context, &ex);
    *in_place = NULL; /* which must not be asked of one that was made otherwise */
    if (!qp)
        return ibv_create_qp(pd, attr);
    attr->cap = ex.cap;
    *in_place = ibv_qp_to_qp_ex(qp);
    return qp;
}

static enum weft_status verbs_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = VERBS(p->send_cq, cq)->cq,
        .recv_cq = VERBS(p->recv_cq, cq)->cq,
        .srq = p->srq ? VERBS(p->srq, srq)->srq : NULL,
        .cap = {.max_send_wr = p->sq_depth,
                .max_recv_wr = p->srq ? 0 : p->rq_depth,
                .max_send_sge = WF_HCA_SGES,
                .max_recv_sge = 1,
                .max_inline_data = WF_MIN(p->inline_max, p->pd->hca->caps.inline_max)},
        .qp_type = IBV_QPT_RC,
    };
    struct verbs_qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return WEFT_ENOMEM;
    qp->base.hca = p->pd->hca;
    qp->qp = qp_create(p->pd->hca, domain_of(p->pd, p->td), &attr, &qp->ex);
    if (!qp->qp) {
        enum weft_status status = refusal();
        verbs_qp_close(&qp->base);
        return status;
    }
    qp->base.number = qp->qp->qp_num;
    qp->base.inline_max = attr.cap.max_inline_data;
    qp->base.sq_depth = attr.cap.max_send_wr;
    qp->bytes = ((uint64_t)attr.cap.max_send_wr + attr.cap.max_recv_wr) * WQE_BYTES;
    wf_hca_made(qp->base.hca, WF_HCA_QP, qp->bytes);
    *out = &qp->base;
    return WEFT_OK;
}

static int qp_to_init(struct verbs_qp *qp, const struct wf_hca_port *port)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = port->number,
                               .qp_access_flags = verbs_qp_access(qp->base.hca)};
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int qp_to_receive(struct verbs_qp *qp, const struct wf_hca_port *port,
                         const struct wf_hca_end *to, const struct wf_hca_patience *patience)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = verbs_mtu_code(WF_MIN(port->mtu, to->mtu)),
                               .dest_qp_num = to->qp,
                               .rq_psn = to->psn & 0xffffff,
                               .max_dest_rd_atomic = qp->base.hca->caps.max_reads,
                               .min_rnr_timer = patience->rnr_timer,
                               .ah_attr = {.dlid = to->lid, .port_num = port->number}};
    /* On Ethernet always, on InfiniBand beyond the own subnet, or where the port says so. */
    if (port->link == WF_HCA_ETHERNET || port->needs_gid ||
        memcmp(port->gid.raw, to->gid, 8) != 0) {
        attr.ah_attr.is_global = 1;
        memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof to->gid);
        attr.ah_attr.grh.sgid_index = port->gid.index;
        attr.ah_attr.grh.hop_limit = 64;
    }
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int qp_to_send(struct verbs_qp *qp, uint32_t psn, const struct wf_hca_end *to,
                      const struct wf_hca_patience *patience)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = patience->timeout,
                               .retry_cnt = patience->retries,
                               .rnr_retry = patience->rnr_retries,
                               .sq_psn = psn & 0xffffff,
                               .max_rd_atomic =
                                   (uint8_t)WF_MIN(qp->base.hca->caps.max_reads, to->reads)};
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static enum weft_status verbs_qp_connect(struct wf_hca_qp *base, const struct wf_hca_port *port,
                                         uint32_t psn, const struct wf_hca_end *to,
                                         const struct wf_hca_patience *patience)
{
    struct verbs_qp *qp = VERBS(base, qp);
    int err = qp_to_init(qp, port);
    base->mtu = verbs_mtu_bytes(verbs_mtu_code(WF_MIN(port->mtu, to->mtu)));
    if (!err)
        err = qp_to_receive(qp, port, to, patience);
    if (!err)
        err = qp_to_send(qp, psn, to, patience);
    return err ? status_of(err) : WEFT_OK;
}

static enum weft_status qp_state(struct wf_hca_qp *base, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int err = ibv_modify_qp(VERBS(base, qp)->qp, &attr, IBV_QP_STATE);
    return err ? status_of(err) : WEFT_OK;
}

static enum weft_status verbs_qp_break(struct wf_hca_qp *qp)
{
    return qp_state(qp, IBV_QPS_ERR);
}

/* Some providers say 0 of a queue pair in error, some the number that it began with. */
static enum weft_status verbs_qp_expects(struct wf_hca_qp *base, uint32_t *psn)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int err = ibv_query_qp(VERBS(base, qp)->qp, &attr, IBV_QP_RQ_PSN, &init);
    *psn = err ? 0 : attr.rq_psn & 0xffffff;
    return err || !*psn ? WEFT_EUNREACH : WEFT_OK;
}

static enum weft_status verbs_qp_reset(struct wf_hca_qp *qp)
{
    return qp_state(qp, IBV_QPS_RESET);
}

static enum ibv_wr_opcode opcode(enum wf_hca_op op)
{
    switch (op) {
    case WF_HCA_SEND: return IBV_WR_SEND;
    case WF_HCA_SEND_IMM: return IBV_WR_SEND_WITH_IMM;
    case WF_HCA_WRITE: return IBV_WR_RDMA_WRITE;
    case WF_HCA_WRITE_IMM: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case WF_HCA_READ: return IBV_WR_RDMA_READ;
    case WF_HCA_ADD: return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default: return IBV_WR_ATOMIC_CMP_AND_SWP;
    }
}

static unsigned send_flags(unsigned flags)
{
    return (flags & WF_HCA_SIGNALED ? IBV_SEND_SIGNALED : 0) |
           (flags & WF_HCA_INLINE ? IBV_SEND_INLINE : 0) |
           (flags & WF_HCA_FENCE ? IBV_SEND_FENCE : 0) |
           (flags & WF_HCA_SOLICITED ? IBV_SEND_SOLICITED : 0);
}

static void send_make(const struct wf_hca_wr *from, struct ibv_send_wr *wr, struct ibv_sge *sge,
                      bool last)
{
    for (unsigned i = 0; i < from->nsge; i++)
        sge[i] =
            (struct ibv_sge){(uintptr_t)from->sge[i].addr, from->sge[i].len, from->sge[i].lkey};
    *wr = (struct ibv_send_wr){.wr_id = from->id,
                               .next = last ? NULL : wr + 1,
                               .sg_list = sge,
                               .num_sge = from->nsge,
                               .opcode = opcode(from->op),
                               .send_flags = send_flags(from->flags),
                               .imm_data = htobe32(from->imm)};
    if (from->op >= WF_HCA_ADD) {
        wr->wr.atomic.remote_addr = from->remote;
        wr->wr.atomic.rkey = from->rkey;
        wr->wr.atomic.compare_add = from->op == WF_HCA_ADD ? from->operand : from->compare;
        wr->wr.atomic.swap = from->operand;
    } else {
        wr->wr.rdma.remote_addr = from->remote;
        wr->wr.rdma.rkey = from->rkey;
    }
}

/* As ibv_post_send has it. */
static unsigned post_send(struct ibv_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    unsigned done = 0;
    while (done < n) {
        struct ibv_send_wr wr[POST_BATCH], *bad = NULL;
        struct ibv_sge sge[POST_BATCH][WF_HCA_SGES];
        unsigned part = WF_MIN(n - done, POST_BATCH);
        for (unsigned i = 0; i < part; i++)
            send_make(&list[done + i], &wr[i], sge[i], i + 1 == part);
        if (ibv_post_send(qp, wr, &bad))
            return done + (bad ? (unsigned)(bad - wr) : 0);
        done += part;
    }
    return done;
}

static void begin_in_place(struct ibv_qp_ex *qp, const struct wf_hca_wr *wr)
{
    qp->wr_id = wr->id;
    qp->wr_flags = send_flags(wr->flags); /* "inline", too: rdma_rxe wants it */
    switch (wr->op) {
    case WF_HCA_SEND: ibv_wr_send(qp); break;
    case WF_HCA_SEND_IMM: ibv_wr_send_imm(qp, htobe32(wr->imm)); break;
    case WF_HCA_WRITE: ibv_wr_rdma_write(qp, wr->rkey, wr->remote); break;
    case WF_HCA_WRITE_IMM: ibv_wr_rdma_write_imm(qp, wr->rkey, wr->remote, htobe32(wr->imm)); break;
    case WF_HCA_READ: ibv_wr_rdma_read(qp, wr->rkey, wr->remote); break;
    case WF_HCA_ADD: ibv_wr_atomic_fetch_add(qp, wr->rkey, wr->remote, wr->operand); break;
    default: ibv_wr_atomic_cmp_swp(qp, wr->rkey, wr->remote, wr->compare, wr->operand);
    }
}

/* What it sends, or where to the answer goes. */
static void bytes_in_place(struct ibv_qp_ex *qp, const struct wf_hca_wr *wr)
{
    const struct wf_hca_sge *s = wr->sge;
    struct ibv_data_buf bufs[WF_HCA_SGES];
    struct ibv_sge sge[WF_HCA_SGES];
    bool in_request = wr->flags & WF_HCA_INLINE;
    if (wr->nsge == 1) {
        if (in_request)
            ibv_wr_set_inline_data(qp, s->addr, s->len);
        else
            ibv_wr_set_sge(qp, s->lkey, (uintptr_t)s->addr, s->len);
        return;
    }
    for (unsigned i = 0; i < wr->nsge; i++) {
        bufs[i] = (struct ibv_data_buf){s[i].addr, s[i].len};
        sge[i] = (struct ibv_sge){(uintptr_t)s[i].addr, s[i].len, s[i].lkey};
    }
    if (in_request)
        ibv_wr_set_inline_data_list(qp, wr->nsge, bufs);
    else
        ibv_wr_set_sge_list(qp, wr->nsge, sge);
}

/* All or none. */
static unsigned post_in_place(struct ibv_qp_ex *qp, const struct wf_hca_wr *list, unsigned n)
{
    ibv_wr_start(qp);
    for (unsigned i = 0; i < n; i++) {
        begin_in_place(qp, &list[i]);
        bytes_in_place(qp, &list[i]);
    }
    return ibv_wr_complete(qp) ? 0 : n;
}

static unsigned verbs_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n)
{
    const struct verbs_qp *qp = VERBS(base, qp);
    return qp->ex ? post_in_place(qp->ex, list, n) : post_send(qp->qp, list, n);
}

/* ---- memory ---- */

static int access_flags(unsigned access)
{
    return (access & WF_HCA_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0) |
           (access & WF_HCA_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
           (access & WF_HCA_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
           (access & WF_HCA_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0) |
           (access & WF_HCA_ON_DEMAND ? IBV_ACCESS_ON_DEMAND : 0);
}

/* [made]: by libibverbs, null with errno. */
static enum weft_status mr_wrap(struct wf_hca_pd *pd, struct ibv_mr *made, struct wf_hca_mr is,
                                struct wf_hca_mr **out)
{
    struct verbs_mr *mr;
    if (!made)
        return refusal();
    mr = calloc(1, sizeof *mr);
    if (!mr) {
        (void)ibv_dereg_mr(made);
        return WEFT_ENOMEM;
    }
    is.hca = pd->hca;
    is.lkey = made->lkey;
    is.rkey = made->rkey;
    mr->base = is;
    mr->mr = made;
    wf_hca_made(pd->hca, WF_HCA_MR, is.len);
    *out = &mr->base;
    return WEFT_OK;
}

static enum weft_status verbs_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                      unsigned access, struct wf_hca_mr **out)
{
    const struct wf_hca_mr is = {.addr = addr, .len = len, .unpinned = access & WF_HCA_ON_DEMAND};
    return mr_wrap(pd, ibv_reg_mr_iova(VERBS(pd, pd)->pd, addr, len, at, access_flags(access)), is,
                   out);
}

static enum weft_status verbs_mr_open_dmabuf(struct wf_hca_pd *pd, int fd, uint64_t offset,
                                             size_t len, uint64_t at, unsigned access,
                                             struct wf_hca_mr **out)
{
    const struct wf_hca_mr is = {.len = len, .unpinned = true};
    if (!pd->hca->caps.dmabuf)
        return WEFT_EUNREACH;
    return mr_wrap(pd,
                   ibv_reg_dmabuf_mr(VERBS(pd, pd)->pd, offset, len, at, fd, access_flags(access)),
                   is, out);
}

static void verbs_mr_close(struct wf_hca_mr *mr)
{
    if (ibv_dereg_mr(VERBS(mr, mr)->mr))
        wf_warn("%s: a memory region cannot be freed: %m", mr->hca->name);
    wf_hca_freed(mr->hca, WF_HCA_MR, mr->len);
    free(mr);
}

/* ---- what happens on its own ---- */

static void port_note(struct wf_hca *hca, int number)
{
    for (unsigned i = 0; i < hca->nports; i++)
        if (hca->ports[i].number == number)
            port_look(VERBS(hca, hca), &hca->ports[i]);
}

static void verbs_async(struct wf_hca *hca, struct wf_hca_event *out)
{
    struct ibv_async_event e;
    *out = (struct wf_hca_event){.kind = WF_HCA_EVENT_NONE};
    while (out->kind == WF_HCA_EVENT_NONE && !ibv_get_async_event(VERBS(hca, hca)->context, &e)) {
        switch (e.event_type) {
        case IBV_EVENT_PORT_ACTIVE: out->kind = WF_HCA_EVENT_PORT_UP; break;
        case IBV_EVENT_PORT_ERR: out->kind = WF_HCA_EVENT_PORT_DOWN; break;
        case IBV_EVENT_LID_CHANGE:
        case IBV_EVENT_GID_CHANGE: out->kind = WF_HCA_EVENT_GID_CHANGED; break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            out->kind = WF_HCA_EVENT_QP_FATAL;
            out->qp = e.element.qp->qp_num;
            break;
        case IBV_EVENT_CQ_ERR: out->kind = WF_HCA_EVENT_CQ_FATAL; break;
        case IBV_EVENT_SRQ_ERR: out->kind = WF_HCA_EVENT_SRQ_FATAL; break;
        case IBV_EVENT_DEVICE_FATAL: out->kind = WF_HCA_EVENT_GONE; break;
        default: break; /* of no consequence here */
        }
        if (out->kind >= WF_HCA_EVENT_PORT_UP && out->kind <= WF_HCA_EVENT_GID_CHANGED) {
            out->port = (uint8_t)e.element.port_num;
            port_note(hca, e.element.port_num);
        }
        ibv_ack_async_event(&e);
    }
}

const struct wf_hca_ops wf_hca_verbs = {
    .name = "verbs",
    .list = verbs_list,
    .open = verbs_open,
    .close = verbs_close,
    .now_ns = verbs_now_ns,
    .gids = verbs_gids,
    .pd_open = verbs_pd_open,
    .pd_close = verbs_pd_close,
    .td_open = verbs_td_open,
    .td_close = verbs_td_close,
    .cq_open = verbs_cq_open,
    .cq_close = verbs_cq_close,
    .srq_open = verbs_srq_open,
    .srq_close = verbs_srq_close,
    .qp_open = verbs_qp_open,
    .qp_connect = verbs_qp_connect,
    .qp_break = verbs_qp_break,
    .qp_expects = verbs_qp_expects,
    .qp_reset = verbs_qp_reset,
    .qp_close = verbs_qp_close,
    .mr_open = verbs_mr_open,
    .mr_open_dmabuf = verbs_mr_open_dmabuf,
    .mr_close = verbs_mr_close,
    .post = verbs_post,
    .post_recv = verbs_post_recv,
    .post_srq = verbs_post_srq,
    .poll = verbs_poll,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .async = verbs_async,
#ifdef WF_HAVE_RDMACM
    .cm = &wf_hca_rdmacm,
#endif
};
