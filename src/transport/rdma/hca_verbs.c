/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h over libibverbs: NICs and their ports, events, and the table of operations. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "transport/rdma/hca_share.h"
#include "transport/rdma/hca_verbs.h"

enum weft_status wf_verbs_status(int err)
{
    switch (err) {
    case 0: return WEFT_OK;
    case ENOMEM: /* usually the limit on locked memory, else the NIC's own resources */
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

enum weft_status wf_verbs_refusal(void)
{
    enum weft_status status = wf_verbs_status(errno);
    return status == WEFT_OK ? WEFT_ESYSTEM : status;
}

/* ---- NICs ---- */

/* libmlx5 reads this variable when it opens a context. Other threads may read the environment at
 * any time, so it is set before the first device is opened, and never again. */
static void blueflame_off(void)
{
    (void)setenv("MLX5_SHUT_UP_BF", "1", 0);
}

static void blueflame_set(const struct wf_hca_config *config)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!config->blueflame)
        pthread_once(&once, blueflame_off);
}

/* A NIC writes to physical pages. After a fork the parent must keep these pages. Since Linux 5.12
 * the kernel copies such pages for the child at the fork. Older kernels need ibv_fork_init(3). */
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

/* Returns the port's speed in Mbit/s: the number of lanes times the speed of one lane.
 * ibv_query_port(3) reports both as codes. Returns 0 if the code of the speed is unknown. */
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

static void port_query(struct verbs_hca *h, struct wf_hca_port *port)
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

static void caps_query(struct verbs_hca *h, const struct ibv_device_attr_ex *attr)
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

/* Returns whether the driver can register dma-bufs. To find out, it tries to register an invalid
 * descriptor. A driver with that ability looks up the descriptor, and fails with EBADF. Any other
 * driver fails earlier, with EOPNOTSUPP, EPROTONOSUPPORT or ENOSYS. */
static bool can_dmabuf(struct ibv_pd *pd)
{
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
    if (mr)
        (void)ibv_dereg_mr(mr);
    return !mr && errno == EBADF;
}

/* Finds out by trying what no query reports: the limit for inline bytes, whether the device has
 * thread domains, and whether it can register dma-bufs. The queue pair is in a thread domain,
 * because on mlx5 one without a domain takes a doorbell page that no domain can use afterwards. */
static void caps_probe(struct verbs_hca *h)
{
    struct ibv_td_init_attr td_attr = {0};
    struct ibv_td *td = ibv_alloc_td(h->context, &td_attr);
    struct ibv_pd *pd = ibv_alloc_pd(h->context);
    struct ibv_parent_domain_init_attr in_td = {.pd = pd, .td = td};
    struct ibv_pd *domain = pd && td ? ibv_alloc_parent_domain(h->context, &in_td) : NULL;
    struct ibv_cq *cq = ibv_create_cq(h->context, 1, NULL, NULL, 0);
    h->base.caps.td = td;
    h->base.caps.dmabuf = pd && can_dmabuf(pd);
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
        struct ibv_qp *qp = ibv_create_qp(domain ? domain : pd, &attr);
        if (!qp)
            continue;
        h->base.caps.inline_max = attr.cap.max_inline_data;
        ibv_destroy_qp(qp);
    }
    if (cq)
        ibv_destroy_cq(cq);
    if (domain)
        ibv_dealloc_pd(domain);
    if (td)
        ibv_dealloc_td(td);
    if (pd)
        ibv_dealloc_pd(pd);
    wf_verbs_probed(h);
}

/* The variables of mlx5 that would explain why its context cannot be opened. */
static void refusal_explain(const char *name)
{
    const struct wf_uar_config env = wf_uar_config_env(WF_UAR_CLASSIC);
    const char *wrong = wf_uar_config_wrong(&env);
    int err = errno;
    if (!strncmp(name, "mlx5", 4) && wrong)
        wf_error("%s cannot be opened: %s", name, wrong);
    else if (!strncmp(name, "mlx5", 4) && err == ENOMEM)
        wf_error("%s cannot be opened: %m; if the kernel's log says ALLOC_UAR and \"limits "
                 "exceeded\", the NIC's UAR pages are taken: let processes open fewer endpoints or "
                 "share more (WEFT_SHARING), or raise PF_LOG_BAR_SIZE (mlxconfig)",
                 name);
    errno = err;
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
    wf_verbs_domains_close(h);
    if (ibv_close_device(h->context))
        wf_warn("%s cannot be closed: %m", hca->name);
    free(h);
}

static enum weft_status verbs_open(const char *name, const struct wf_hca_config *config,
                                   struct wf_hca **out)
{
    struct ibv_device_attr_ex attr;
    struct verbs_hca *h = calloc(1, sizeof *h);
    if (!h)
        return WEFT_ENOMEM;
    h->base.ops = &wf_hca_verbs;
    h->base.config = *config;
    strncpy(h->base.name, name, sizeof h->base.name - 1);
    blueflame_set(config);
    h->context = context_open(name);
    if (!h->context) {
        enum weft_status status = wf_verbs_refusal();
        refusal_explain(name);
        free(h);
        return status;
    }
    wf_verbs_domains_open(h);
    if (ibv_query_device_ex(h->context, NULL, &attr) ||
        fcntl(h->context->async_fd, F_SETFL, O_NONBLOCK)) {
        verbs_close(&h->base);
        return WEFT_ESYSTEM;
    }
    h->base.async_fd = h->context->async_fd;
    caps_query(h, &attr);
    h->base.caps.uars = h->is_mlx5;
    caps_probe(h);
    for (unsigned i = 0; i < h->base.nports; i++) {
        h->base.ports[i].number = (uint8_t)(i + 1);
        port_query(h, &h->base.ports[i]);
    }
    wf_hca_made(&h->base, WF_HCA_CONTEXT, 0);
    *out = &h->base;
    return WEFT_OK;
}

static uint64_t verbs_now_ns(struct wf_hca *hca)
{
    (void)hca;
    return wf_now_ns();
}

/* ---- events ---- */

static void port_refresh(struct wf_hca *hca, int number)
{
    for (unsigned i = 0; i < hca->nports; i++)
        if (hca->ports[i].number == number)
            port_query(VERBS(hca, hca), &hca->ports[i]);
}

static void queue_fail(_Atomic bool *failed)
{
    atomic_store_explicit(failed, true, memory_order_relaxed);
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
        /* The queue exists: it cannot be closed before the event is acknowledged below. */
        case IBV_EVENT_CQ_ERR:
            out->kind = WF_HCA_EVENT_QUEUE_FATAL;
            queue_fail(&VERBS(e.element.cq->cq_context, cq)->base.failed);
            break;
        case IBV_EVENT_SRQ_ERR:
            out->kind = WF_HCA_EVENT_QUEUE_FATAL;
            queue_fail(&VERBS(e.element.srq->srq_context, srq)->base.failed);
            break;
        case IBV_EVENT_DEVICE_FATAL: out->kind = WF_HCA_EVENT_GONE; break;
        default: break; /* needs no reaction */
        }
        if (out->kind >= WF_HCA_EVENT_PORT_UP && out->kind <= WF_HCA_EVENT_GID_CHANGED) {
            out->port = (uint8_t)e.element.port_num;
            port_refresh(hca, e.element.port_num);
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
    .pd_open = wf_verbs_pd_open,
    .pd_close = wf_verbs_pd_close,
    .td_open = wf_verbs_td_open,
    .td_close = wf_verbs_td_close,
    .cq_open = wf_verbs_cq_open,
    .cq_close = wf_verbs_cq_close,
    .srq_open = wf_verbs_srq_open,
    .srq_close = wf_verbs_srq_close,
    .qp_open = wf_verbs_qp_open,
    .qp_connect = wf_verbs_qp_connect,
    .qp_break = wf_verbs_qp_break,
    .qp_expects = wf_verbs_qp_expects,
    .qp_reset = wf_verbs_qp_reset,
    .qp_place = wf_verbs_qp_place,
    .qp_close = wf_verbs_qp_close,
    .mr_open = wf_verbs_mr_open,
    .mr_open_dmabuf = wf_verbs_mr_open_dmabuf,
    .mr_close = wf_verbs_mr_close,
    .post = wf_verbs_post,
    .post_recv = wf_verbs_post_recv,
    .post_srq = wf_verbs_post_srq,
    .poll = wf_verbs_poll,
    .arm = wf_verbs_arm,
    .disarm = wf_verbs_disarm,
    .async = verbs_async,
    .share = &wf_hca_share_uverbs,
#ifdef WF_HAVE_RDMACM
    .cm = &wf_hca_rdmacm,
#endif
};
