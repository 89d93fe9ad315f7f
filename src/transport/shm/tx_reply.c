/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side of a connection: delivers the replies to its requests. */
#include "base/log.h"
#include "transport/shm/shm.h"

static uint64_t reply_ready_word(const struct shm_tx *tx, const struct shm_due *due)
{
    return wf_load_acquire(&tx->back->replies[due->pos & tx->mask].line.ready); /* "reply" */
}

bool wf_shm_tx_reply_ready(const struct shm_tx *tx, uint32_t i)
{
    const struct shm_due *due = &tx->due[i & tx->mask];
    return i != tx->due_tail && wf_shm_is_ready(reply_ready_word(tx, due), due->pos);
}

/* Returns the payload of a reply. [h] is a copy of its header, and is checked here. Returns NULL if
 * the header is invalid. */
static const void *reply_payload(const struct shm_tx *tx, const struct shm_due *due,
                                 const struct wf_shm_reply *r, const struct wf_shm_header *h)
{
    bool next = h->flags & WF_SHM_ARGS_NEXT, in_place = h->flags & WF_SHM_IN_PLACE;
    if (h->nargs > 16 || h->len > due->reply_max - 1)
        return NULL;
    if (!next && 4u * h->nargs + (in_place ? 0 : h->len) > WF_SHM_DATA)
        return NULL;
    if (in_place)
        return due->place == WF_SHM_NO_PLACE
                   ? NULL
                   : tx->places + (size_t)due->place * tx->segs->geometry.am_max;
    return h->len <= WF_SHM_DATA ? r->line.data : NULL;
}

static int reply_bad(struct shm_tx *tx, const struct wf_shm_header *h)
{
    wf_error("peer process %u: reply of %u bytes, %u arguments does not fit its request; "
             "dropping the connection",
             tx->peer->proc->id.pid, h->len, h->nargs);
    wf_shm_count(tx->tep, WF_STAT_BAD_MESSAGES);
    wf_shm_peer_fail(tx->peer, WEFT_EPROTO);
    return -1;
}

/* Deliver the reply to the request tx->due[i]. The reply is ready. Returns the number of events: 1,
 * or 0 if the handler of the request did not reply. Returns -1 if the peer broke the protocol. The
 * caller must call wf_shm_tx_retire. */
int wf_shm_tx_deliver(struct shm_tx *tx, uint32_t i)
{
    const struct shm_due *due = &tx->due[i & tx->mask];
    const struct wf_shm_reply *r = &tx->back->replies[due->pos & tx->mask];
    struct wf_token *token = &tx->tep->reply_token;
    struct wf_shm_header h;
    uint32_t args[16];
    struct weft_am am = {.args = args, .is_reply = 1, .token = token, .serial = token->serial + 1};
    h = wf_shm_header(reply_ready_word(tx, due), wf_shm_header_rest(&r->line));
    if (h.flags & WF_SHM_NO_REPLY)
        return 0;
    am.data = reply_payload(tx, due, r, &h);
    if (!am.data)
        return reply_bad(tx, &h);
    am.len = h.len;
    am.nargs = h.nargs;
    am.handler = h.handler;
    wf_shm_args_take(args,
                     h.flags & WF_SHM_ARGS_NEXT ? (const uint8_t *)r->args
                                                : r->line.data + WF_SHM_DATA - 4u * h.nargs,
                     h.nargs);
    token->serial = am.serial;
    token->tpeer = SHM_OF(tx->peer, wf_tpeer);
    tx->tep->base.events->deliver(tx->tep->base.owner, &am);
    token->serial++;
    wf_shm_count(tx->tep, WF_STAT_REPLIES_RECEIVED);
    return 1;
}

/* Free the lines and places of the [count] oldest requests in tx->due. Their replies were
 * delivered. */
void wf_shm_tx_retire(struct shm_tx *tx, uint32_t count)
{
    for (; count; count--) {
        const struct shm_due *due = &tx->due[tx->due_head++ & tx->mask];
        if (due->place != WF_SHM_NO_PLACE)
            tx->places_free |= UINT64_C(1) << due->place;
    }
}

/* Was a message refused for lack of room, and has head moved since? */
bool wf_shm_tx_room(const struct shm_tx *tx)
{
    return tx->wants_room && wf_load_acquire(&tx->back->head) != tx->head_seen;
}

int wf_shm_tx_poll(struct shm_tx *tx, int budget)
{
    int events = 0;
    if (tx->tail != tx->tail_counted)
        wf_shm_tx_count(tx);
    if (__builtin_expect(tx->wants_room, 0) && wf_shm_tx_room(tx)) {
        tx->wants_room = false;
        events++;
    }
    while (budget-- && wf_shm_tx_reply_ready(tx, tx->due_head)) {
        if (wf_shm_tx_deliver(tx, tx->due_head) < 0)
            break;
        wf_shm_tx_retire(tx, 1);
        events++;
    }
    return events;
}
