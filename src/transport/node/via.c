/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts, and the transport's table of functions. */
#define _GNU_SOURCE
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "config/config.h"
#include "transport/node/exposed.h"
#include "transport/node/nic.h"

#define OFF "WEFT_NODE of this process is off"
#define NO_KEY                                                                                     \
    "this process has no key: set WEFT_KEY_FILE to a file of 32 random bytes that only its user "  \
    "can read, the same for all processes, or see weft_ctx_set_key(3)"

static _Atomic unsigned contexts; /* of this process so far */

static int via_probe(char *note, size_t room)
{
    snprintf(note, room, "%s",
             wf_config()->node ? "weft node --list shows the node's service"
                               : "WEFT_NODE is off: no service carries this process's messages");
    return wf_config()->node;
}

/* ---- attaching ---- */

/* How this process is called by way of the service. */
static void contact_set(struct via_ctx *ctx, const struct wf_node_link *link)
{
    ctx->contact = link->contact;
    ctx->contact.port = 0;
    ctx->contact.rdma = wf_node_port(&link->contact);
    ctx->contact.node = (uint8_t)wf_node_lanes_of(&link->contact);
    ctx->contact.index = (uint16_t)link->index;
}

static void nic_close(struct via_ctx *ctx)
{
    if (ctx->nic)
        wf_via_nic_close(ctx->nic);
    if (ctx->exposed)
        wf_via_exposed_close(ctx->exposed);
    ctx->nic = NULL;
    ctx->exposed = NULL;
}

/* Without a service the context goes on by other transports: wf_node_attach has said why. */
static WF_UNCHECKED void attach(struct via_ctx *ctx)
{
    char name[WF_NODE_NAME_ROOM];
    struct wf_node_attach_params params;
    if (wf_node_name_expand(wf_config()->node_name, ctx->number, name)) {
        wf_warn("this process has no node service: WEFT_NODE_NAME has more than %d characters with "
                "the number of this context",
                WF_NODE_NAME_ROOM - 1);
        return;
    }
    /* Another thread starts a successor, when the program may be changing its environment. */
    ctx->environment = wf_config_service_environment(name);
    params = wf_via_attach_params(ctx, name, wf_config()->connect_timeout_ms);
    ctx->link = &ctx->links[0];
    if (wf_node_attach(&params, ctx->link) != WEFT_OK)
        return;
    ctx->page = wf_via_page_new(ctx->link);
    if (!ctx->page) {
        wf_warn(
            "this process has no node service: the service's page cannot be mapped (ulimit -v)");
        wf_node_detach(ctx->link);
        return;
    }
    contact_set(ctx, ctx->link);
    if (ctx->link->window)
        ctx->nic = wf_via_nic_open(ctx->link, true);
    else if (wf_node_lanes_of(&ctx->link->contact) == WF_NODE_TCP)
        ctx->exposed = wf_via_exposed_open(ctx->mem);
    wf_node_command_close(ctx->link); /* unless the NIC's registrar has it */
    ctx->base.pins = ctx->nic != NULL;
    ctx->base.caps_off = ctx->nic       ? WF_CAP_NIC_LONG
                         : ctx->exposed ? 0
                                        : WF_CAP_NIC | WF_CAP_NIC_LONG;
    if (wf_via_reader_start(ctx) != WEFT_OK) {
        nic_close(ctx);
        wf_via_page_drop(ctx->page);
        wf_node_detach(ctx->link);
        return;
    }
    ctx->attached = true;
}

/* ---- contexts ---- */

static WF_UNCHECKED void ctx_init(struct via_ctx *ctx, const struct wf_tctx_params *params)
{
    ctx->base.transport = &wf_node_transport;
    ctx->base.caps_off = WF_CAP_NIC | WF_CAP_NIC_LONG; /* until it is attached */
    ctx->mem = params->mem;
    ctx->self = *params->self;
    ctx->number = atomic_fetch_add(&contexts, 1);
    ctx->stop_fd = ctx->wake_fd = -1;
    wf_via_lock_init(ctx);
    wf_list_init(&ctx->eps);
}

static WF_UNCHECKED enum weft_status via_ctx_open(const struct wf_tctx_params *params,
                                                  struct wf_tctx **out)
{
    const char *path = wf_config()->key_file;
    enum weft_status status = WEFT_OK;
    struct via_ctx *ctx;
    if (!wf_config()->node)
        return wf_tctx_useless(params, OFF);
    if (!params->network && !*path)
        return wf_tctx_useless(params, NO_KEY);
    ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    ctx_init(ctx, params);
    if (*path) {
        status = wf_node_key_read(path, ctx->key);
        ctx->has_key = true; /* no other thread has the context yet */
        if (status == WEFT_OK)
            attach(ctx);
    }
    if (status != WEFT_OK) {
        wf_via_lock_fini(ctx);
        free(ctx);
        return status;
    }
    *out = &ctx->base;
    return WEFT_OK;
}

static WF_UNCHECKED void via_ctx_close(struct wf_tctx *tctx)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    if (ctx->attached) {
        wf_via_reader_stop(ctx);
        nic_close(ctx);
        wf_via_page_drop(ctx->page);
        wf_node_detach(ctx->link);
    }
    sodium_memzero(ctx->key, sizeof ctx->key);
    free(ctx->environment);
    wf_via_lock_fini(ctx);
    free(ctx);
}

static WF_UNCHECKED enum weft_status via_set_key(struct wf_tctx *tctx, const void *secret,
                                                 size_t len)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    bool is_late;
    via_lock(ctx);
    if (ctx->has_key) {
        via_unlock(ctx);
        return WEFT_EBUSY;
    }
    ctx->has_key = true;
    is_late = !wf_list_empty(&ctx->eps);
    ctx->attaching = !is_late;
    via_unlock(ctx);
    if (is_late) {
        wf_warn("this context has no node service: it got its key after it had opened an endpoint");
        return WEFT_OK;
    }
    wf_node_key_derive(secret, len, ctx->key);
    attach(ctx);
    via_lock(ctx);
    ctx->attaching = false;
    pthread_cond_broadcast(&ctx->answered); /* endpoints that are being opened */
    via_unlock(ctx);
    return WEFT_OK;
}

static const struct wf_contact *via_contact(struct wf_tctx *tctx)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    return ctx->attached ? &ctx->contact : NULL;
}

/* ---- whether a peer can be reached ---- */

static WF_UNCHECKED bool is_open(struct via_ctx *ctx, const struct wf_address *from)
{
    bool found = false;
    via_lock(ctx);
    wf_list_each(it, &ctx->eps)
    {
        const struct via_ep *ep = wf_container_of(it, struct via_ep, item);
        found |= ep->is_open && !memcmp(&ep->address, from, sizeof *from);
    }
    via_unlock(ctx);
    return found;
}

static enum weft_status via_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                  const struct wf_address *to, const struct wf_contact *contact,
                                  const char **why)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    bool same = to->process.host == from->process.host;
    *why = NULL;
    if (atomic_load_explicit(&ctx->ended, memory_order_acquire))
        *why = "this process's node service has ended";
    else if (!ctx->attached || !is_open(ctx, from))
        *why = "this process has no node service: the log says why";
    else if (!contact->node)
        *why = "its process has no node service: WEFT_NODE there, or the log";
    else if (contact->node != ctx->contact.node)
        *why = "one of the two nodes' services has an RDMA device, and the other has none";
    else if (!wf_node_can_dial(contact, same))
        *why = "its node's service has only loopback as network address (WEFT_TCP_INTERFACES)";
    return *why ? WEFT_EUNREACH : WEFT_OK;
}

/* A service has no connection to itself, by which it could move bytes of its own clients. */
static unsigned via_peer_caps_off(const struct wf_tctx *tctx, const struct wf_address *to,
                                  const struct wf_contact *contact)
{
    const struct via_ctx *ctx = (const struct via_ctx *)(const void *)tctx;
    bool own = contact->rdma == ctx->contact.rdma && to->process.host == ctx->self.host;
    return own ? WF_CAP_NIC | WF_CAP_NIC_LONG : 0;
}

const struct wf_transport wf_node_transport = {
    .name = "node",
    .caps = WF_CAP_SLEEP | WF_CAP_NIC | WF_CAP_NIC_LONG,
    .tpeer_size = sizeof(struct via_peer),
    .probe = via_probe,
    .ctx_open = via_ctx_open,
    .ctx_close = via_ctx_close,
    .set_key = via_set_key,
    .contact = via_contact,
    .ep_open = wf_via_ep_open,
    .ep_close = wf_via_ep_close,
    .reach = via_reach,
    .peer_caps_off = via_peer_caps_off,
    .peer_open = wf_via_peer_open,
    .peer_close = wf_via_peer_close,
    .request = wf_via_request,
    .requestv = wf_via_requestv,
    .request_ordered = wf_via_request,
    .piece_longest = WF_NODE_AM_MAX,
    .tagged = wf_via_tagged,
    .reply = wf_via_reply,
    .source = wf_via_source,
    .is_away = wf_via_is_away,
    .is_sent = wf_via_is_sent,
    .explain = wf_via_explain,
    .poll = wf_via_poll,
    .arm = wf_via_arm,
    .disarm = wf_via_disarm,
    .heed = wf_via_heed,
    .find = wf_via_find,
    .address = wf_via_address,
    .is_same = wf_via_is_same,
    .remote_map = wf_via_remote_map,
    .remote_unmap = wf_via_remote_unmap,
    .region_open = wf_via_region_open,
    .region_keys = wf_via_region_keys,
    .region_close = wf_via_region_close,
    .nic_op = wf_via_op,
    .nic_stop = wf_via_op_stop,
    .nic_lend = wf_via_nic_lend,
    .nic_take_back = wf_via_nic_take_back,
    .put_open = wf_via_put_open,
    .flush = wf_via_status,
    .status = wf_via_status,
    .failed = wf_via_failed,
};
