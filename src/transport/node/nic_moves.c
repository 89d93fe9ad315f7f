/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets by the NIC of the node's service, and memory that peers read by theirs. */
#include <stdlib.h>

#include "base/clock.h"
#include "mem/budget.h"
#include "mem/staging.h"
#include "transport/node/nic.h"

void wf_via_nic_ep_open(struct via_ep *ep)
{
    if (ep->ctx->nic && wf_cache_user_open(wf_staging_cache(wf_via_nic_staging(ep->ctx->nic)),
                                           &ep->user) != WEFT_OK)
        ep->user = NULL; /* no memory: this endpoint's go by messages */
}

void wf_via_nic_ep_close(struct via_ep *ep)
{
    if (ep->user)
        wf_cache_user_close(ep->user);
}

static enum wf_node_move_kind kind_of(const struct wf_nic_op *op)
{
    return op->kind != WF_NIC_OP_GET ? WF_NODE_PUT : op->is_of_message ? WF_NODE_READ : WF_NODE_GET;
}

/* Find the bytes of [op] at addresses of the NIC. Returns OK | AGAIN | EUNREACH */
static enum weft_status place(struct via_ep *ep, const struct wf_nic_op *op, struct wf_desc *desc,
                              struct node_move_out *out)
{
    struct wf_staging *s = wf_via_nic_staging(ep->ctx->nic);
    size_t len = WF_MIN(op->len, (size_t)WF_NODE_MOVE_MAX);
    enum weft_status status = op->kind == WF_NIC_OP_GET
                                  ? wf_staging_to(s, ep->user, desc, op->local, len, NULL)
                                  : wf_staging_from(s, ep->user, desc, op->local, len, NULL);
    if (status == WEFT_AGAIN)
        return ep->descs ? status : WEFT_EUNREACH; /* other endpoints have all of them */
    if (status != WEFT_OK)
        return WEFT_EUNREACH;
    out->len = (uint32_t)desc->len;
    out->at.lkey = wf_via_mr_use(desc->handle, desc->addr, &out->at.local);
    return out->at.lkey ? WEFT_OK : WEFT_EUNREACH;
}

static enum weft_status move_begin(const struct wf_tpeer *tpeer, struct node_flow *flow,
                                   const struct wf_nic_op *op, size_t *taken)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    struct wf_staging *s = wf_via_nic_staging(ep->ctx->nic);
    struct wf_desc *desc = wf_desc_take(s);
    struct node_move_out out = {.kind = kind_of(op),
                                .at = {.remote = op->remote,
                                       .rkey = op->keys[VIA_KEY_RKEY],
                                       .incarnation = op->keys[VIA_KEY_INCARNATION]},
                                .id = op->id,
                                .user = desc,
                                .peer = tpeer};
    enum weft_status status;
    if (!desc)
        return ep->descs ? WEFT_AGAIN : WEFT_EUNREACH;
    status = place(ep, op, desc, &out);
    if (status == WEFT_OK)
        status = wf_node_client_move(ep->client, flow, &out);
    if (status != WEFT_OK) {
        wf_desc_done(s, ep->user, desc, false);
        return status;
    }
    ep->descs++;
    *taken = out.len;
    wf_via_count(ep, wf_staging_is_copied(desc) ? WF_STAT_NIC_COPIED : WF_STAT_NIC_DIRECT);
    return WEFT_OK;
}

enum weft_status wf_via_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    enum weft_status status = WEFT_OK;
    struct node_flow *flow;
    if (!ep->user || !op->keys[VIA_KEY_RKEY])
        return WEFT_EUNREACH;
    flow = wf_via_flow(tpeer, &status);
    if (!flow)
        return status;
    status = wf_node_client_can_move(ep->client, flow);
    return status == WEFT_OK ? move_begin(tpeer, flow, op, taken) : status;
}

/* wf_via_nic_stop has stopped all gets of a peer, of which one had come to the staging area, and is
 * not copied from there. */
static bool is_dropped(const struct wf_desc *desc)
{
    return wf_staging_is_copied(desc) && !desc->copy_out;
}

void wf_via_nic_moved(struct via_ep *ep, const struct node_move_use *move, enum weft_status status)
{
    if (status == WEFT_OK && wf_node_kind_gets(move->kind) && is_dropped(move->user))
        status = WEFT_EUNREACH;
    wf_desc_done(wf_via_nic_staging(ep->ctx->nic), ep->user, move->user, status == WEFT_OK);
    ep->descs--;
    if (!ep->closing)
        ep->base.events->nic_op_done(ep->base.owner, move->id, status, 0);
}

void wf_via_nic_move_stop(const struct node_move_use *move)
{
    struct wf_desc *desc = move->user;
    wf_via_mr_stop(desc->handle);
}

/* The bytes of a get that are staged are dropped when its end is reported: the memory for them is
 * not the operation's any more. Other handles of the endpoint have moves of the same flow, and all
 * its endpoints use the same registrations. Their moves go on, but for those that the NIC does with
 * a registration that has to be dropped: these are lost. */
void wf_via_nic_stop(struct wf_tpeer *tpeer)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    for (unsigned i = 0; wf_node_has_moves(ep->client) && i < WF_NODE_MOVES; i++) {
        const struct node_move_use *move = &ep->client->moves[i];
        struct wf_desc *desc = move->user;
        if (!move->use || move->peer != tpeer)
            continue;
        desc->copy_out = false;
        if (!wf_node_move_is_over(ep->client, i))
            wf_via_nic_move_stop(move);
    }
}

/* ---- memory that peers may read ---- */

/* Memory that is lent, and its use of the cache. */
struct via_lent {
    struct wf_nic_lent base;
    struct wf_cached use;
    size_t len;
};

/* A message may wait for its receive for any time. So the bytes of messages take at most this part
 * of what may be pinned; their registrations may be longer. */
#define LENT_PART 2
#define LEND_PAUSE_NS UINT64_C(1000000000) /* after the device has registered no more */

static bool lent_take(struct via_nic *nic, size_t len)
{
    _Atomic uint64_t *lent = wf_via_nic_lent(nic);
    uint64_t limit = atomic_load_explicit(&wf_budget_own()->limit, memory_order_relaxed);
    if (atomic_fetch_add_explicit(lent, len, memory_order_relaxed) + len <= limit / LENT_PART)
        return true;
    atomic_fetch_sub_explicit(lent, len, memory_order_relaxed);
    return false;
}

static void lent_give(struct via_nic *nic, size_t len)
{
    atomic_fetch_sub_explicit(wf_via_nic_lent(nic), len, memory_order_relaxed);
}

static enum weft_status lent_new(struct via_ep *ep, const void *addr, size_t len,
                                 struct via_lent **out)
{
    struct via_lent *lent = malloc(sizeof *lent);
    enum weft_status status = lent ? wf_cache_get(ep->user, addr, len, &lent->use) : WEFT_ENOMEM;
    if (status == WEFT_ELIMIT)
        ep->lend_ns = wf_now_ns() + LEND_PAUSE_NS;
    if (status == WEFT_OK &&
        !wf_via_mr_lend(lent->use.handle, addr, &lent->base.at, lent->base.keys)) {
        wf_cache_put(ep->user, &lent->use);
        status = WEFT_EUNREACH;
    }
    if (status == WEFT_OK) {
        lent->len = len;
        *out = lent;
    } else {
        free(lent);
    }
    return status;
}

enum weft_status wf_via_nic_lend(struct wf_tpeer *tpeer, const void *addr, size_t len,
                                 const struct wf_nic_lent **out)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    struct via_lent *lent;
    enum weft_status status;
    if (!ep->user || (ep->lend_ns && wf_now_ns() < ep->lend_ns) || !lent_take(ep->ctx->nic, len))
        return WEFT_EUNREACH;
    status = lent_new(ep, addr, len, &lent);
    if (status == WEFT_OK)
        *out = &lent->base;
    else
        lent_give(ep->ctx->nic, len);
    return status;
}

void wf_via_nic_take_back(struct wf_tpeer *tpeer, const struct wf_nic_lent *base, bool is_read)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    struct via_lent *lent = VIA_OF((uintptr_t)base, via_lent);
    if (!is_read)
        wf_via_mr_revoke(lent->use.handle, base->at);
    wf_via_mr_lend_end(lent->use.handle);
    wf_cache_put(ep->user, &lent->use);
    lent_give(ep->ctx->nic, lent->len);
    free(lent);
}
