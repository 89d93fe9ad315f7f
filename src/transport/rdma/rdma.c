/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA transport. Its channels (net/) use queue pairs (qp_link.h), or sockets where no queue
 * pair is available. */
#include "transport/net/net.h"
#include "transport/rdma/rail.h"
#include "transport/rdma/report.h"

#define LOOK_EVERY 512 /* number of polls between two checks for rare events */

static struct rdma_net_ep *ep_of(struct net_ep *net)
{
    return wf_container_of(net, struct rdma_net_ep, net);
}

/* ---- the driver ---- */

static void closing_progress(struct net_ep *net, struct rdma_ep *ep)
{
    /* The descriptors that woke the endpoint's thread must not wake it again. */
    wf_rdma_disarm(ep);
    wf_rdma_look(ep);
    (void)wf_qp_turn(ep);
    wf_net_live_each(net, wf_qp_look);
    net->look = false;
}

/* Receives from all links. The socket of a link that is up can deliver only BYE, which ends the
 * session, or the end of the stream. So while all links are up, sockets are read only every
 * LOOK_EVERY polls, or if net->look is set. */
static void rdma_progress(struct net_ep *net)
{
    struct rdma_ep *ep = ep_of(net)->rdma;
    bool slow = net->polls % LOOK_EVERY == 0 || net->look;
    if (__builtin_expect(net->closing.begun, 0)) {
        closing_progress(net, ep);
        return;
    }
    (void)wf_qp_turn(ep);
    net->look = false;
    if (slow || ep->nup != net->nlive)
        wf_net_ready_each(net, wf_qp_look);
    if (!slow)
        return;
    wf_rdma_look(ep);
    if ((ep->nup != net->nlive || ep->ctx->nports > 1 || wf_rdma_is_worn(ep)) && wf_rdma_works(ep))
        wf_rdma_retry(ep);
}

static bool driver_arm(struct net_ep *net)
{
    struct rdma_ep *ep = ep_of(net)->rdma;
    net->look |= wf_rdma_rang(ep);
    return wf_rdma_arm(ep);
}

static uint16_t *rdma_port(struct wf_contact *contact)
{
    return &contact->rdma;
}

static const struct net_driver driver = {
    .open = wf_qp_open,
    .progress = rdma_progress,
    .arm = driver_arm,
    .gen_step = wf_rdma_gen_step,
    .may_spread = wf_rdma_may_spread,
    .chan_free = wf_qp_chan_free,
    .port = rdma_port,
};

/* ---- context and endpoint ---- */

struct rdma_tctx {
    struct net_ctx net;
    struct rdma_ctx *rdma;
};

static struct rdma_ctx *ctx_of(struct wf_tctx *tctx)
{
    return NET_OF(tctx, rdma_tctx)->rdma;
}

static enum weft_status rdma_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct rdma_ctx *rdma;
    struct net_ctx *ctx;
    enum weft_status status;
    if (!wf_net_has_key(params))
        return WEFT_EUNREACH;
    status = wf_rdma_ctx_open(params->sharing, params->endpoints, params->am_max, params->receives,
                              &rdma);
    if (status == WEFT_EUNREACH)
        return wf_tctx_useless(params, "this host has no RDMA device that can be used: weft info");
    if (status != WEFT_OK)
        return status;
    status = wf_net_ctx_open(&wf_rdma_transport, &driver, params, sizeof(struct rdma_tctx), &ctx);
    if (status != WEFT_OK) {
        wf_rdma_ctx_close(rdma);
        return status;
    }
    NET_OF(ctx, rdma_tctx)->rdma = rdma;
    ctx->base.nic_atomics = wf_rdma_atomics(rdma);
    ctx->base.pins = wf_rdma_pins(rdma);
    ctx->contact.rdma = ctx->contact.port;
    ctx->contact.port = 0;
    *out = &ctx->base;
    return WEFT_OK;
}

static void rdma_ctx_close(struct wf_tctx *tctx)
{
    struct rdma_ctx *rdma = ctx_of(tctx);
    wf_net_ctx_close(tctx);
    wf_rdma_ctx_close(rdma);
}

static enum weft_status rdma_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                     struct wf_tep **out)
{
    struct rdma_ctx *ctx = ctx_of(tctx);
    struct net_ep *net;
    struct rdma_ep *ep;
    enum weft_status status = wf_net_ep_open(tctx, params, sizeof(struct rdma_net_ep), &net);
    if (status != WEFT_OK)
        return status;
    status = wf_rdma_ep_open(ctx, params->level, &ep);
    if (status != WEFT_OK) {
        wf_net_ep_shut(net);
        wf_net_ep_free(net);
        return status;
    }
    ep_of(net)->rdma = ep;
    net->lanes = WF_MAX(net->lanes, ctx->nports);
    if (!wf_net_epoll_make(net) || !wf_rdma_sleep_on(ep, net->epoll_fd)) {
        wf_net_ep_shut(net);
        wf_rdma_ep_close(ep);
        wf_net_ep_free(net);
        return WEFT_ESYSTEM;
    }
    *out = &net->base;
    return WEFT_OK;
}

static void rdma_ep_close(struct wf_tep *tep)
{
    struct net_ep *net = NET_OF(tep, net_ep);
    struct rdma_ep *ep = ep_of(net)->rdma;
    wf_net_ep_shut(net);
    wf_rdma_ep_close(ep);
    wf_net_ep_free(net);
}

static enum weft_status rdma_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                   const struct wf_address *to, const struct wf_contact *contact,
                                   const char **why)
{
    *why = "its address names no RDMA device";
    return wf_contact_rdma(contact) ? wf_net_reach(tctx, from, to, contact, why) : WEFT_EUNREACH;
}

/* ---- progress ---- */

static int rdma_poll(struct wf_tep *tep)
{
    struct net_ep *net = NET_OF(tep, net_ep);
    wf_net_poll_begin(net);
    if (net->nlive) {
        rdma_progress(net);
        wf_net_poll_end(net);
    } else {
        wf_net_poll_without_links(net);
    }
    return wf_net_poll_events(net);
}

/* ---- memory, reports ---- */

static enum weft_status rdma_region_open(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                         unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                         void **handle)
{
    return wf_rdma_region_open(ctx_of(tctx), memory, access, at, keys, handle);
}

static void rdma_region_close(struct wf_tctx *tctx, void *handle)
{
    wf_rdma_region_close(ctx_of(tctx), handle);
}

static enum weft_status rdma_share(struct wf_tctx *tctx, struct wf_hca_share *out, int *fd)
{
    return wf_rdma_share(ctx_of(tctx), out, fd);
}

static void rdma_resources(struct wf_tctx *tctx, weft_resource_row_fn row, void *arg)
{
    wf_rdma_resources(ctx_of(tctx), row, arg);
}

static void rdma_sharing(struct wf_tep *tep, struct weft_ep_sharing_info *out)
{
    wf_rdma_ep_sharing(ep_of(NET_OF(tep, net_ep))->rdma, out);
}

static int rdma_probe(char *note, size_t room)
{
    return wf_rdma_describe(note, room);
}

const struct wf_transport wf_rdma_transport = {
    WF_NET_OPS,
    .name = "rdma",
    .caps = WF_CAP_SLEEP | WF_CAP_BULK | WF_CAP_NIC,
    .probe = rdma_probe,
    .devices = wf_rdma_devices,
    .resources = rdma_resources,
    .ctx_open = rdma_ctx_open,
    .ctx_close = rdma_ctx_close,
    .ep_open = rdma_ep_open,
    .ep_close = rdma_ep_close,
    .sharing = rdma_sharing,
    .reach = rdma_reach,
    .region_open = rdma_region_open,
    .region_close = rdma_region_close,
    .nic_op = wf_rdma_nic_op,
    .nic_stop = wf_rdma_nic_stop,
    .share = rdma_share,
    .put_open = wf_rdma_put_open,
    .poll = rdma_poll,
};
