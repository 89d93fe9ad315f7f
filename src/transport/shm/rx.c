/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving side of a connection: delivers requests and sends the replies. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/shm.h"
#include "transport/ring/sleep.h"

/* How many lines ahead of the current line are prefetched for reading. Lines are prefetched only
 * while the receiver lags behind the sender. Otherwise the sender is still writing those lines, and
 * needs them in its own core's cache. */
#define READ_AHEAD 24

/* Open the receiving side. On success, the new object owns [wake_fd] and the caller's reference to
 * [segs]. The caller holds ctx->lock. */
struct shm_rx *wf_shm_rx_open(struct shm_tep *tep, struct shm_segs *segs,
                              const struct wf_address *from, int wake_fd, bool fence)
{
    struct shm_rx *rx = wf_lines_new(sizeof *rx);
    if (!rx)
        return NULL;
    rx->lines = segs->fwd->lines;
    rx->back = segs->back;
    rx->mask = segs->geometry.slots - 1;
    rx->publish_at = segs->geometry.slots / 16;
    rx->publish_bytes = segs->geometry.payload / 8;
    rx->payload = (uint8_t *)segs->back + wf_shm_payload_at(&segs->geometry);
    rx->places = (uint8_t *)segs->back + wf_shm_places_at(&segs->geometry);
    rx->fence = fence;
    rx->segs = segs;
    rx->tep = tep;
    rx->wake_fd = wake_fd;
    rx->from = *from;
    rx->bit = (uint16_t)(tep->next_bit++ % WF_SHM_BELL_BITS);
    wf_list_init(&rx->item);
    wf_list_init(&rx->client_item);
    return rx;
}

/* Free the receiving side. The caller has removed it from all lists. */
void wf_shm_rx_free(struct shm_rx *rx)
{
    /* The new serial invalidates copies of the tokens of this connection's messages. */
    rx->tep->request.token.base.serial++;
    if (rx->conn) /* only the owner sets conn, so the caller is the owner here */
        rx->tep->base.events->conn_down(rx->tep->base.owner, &rx->conn);
    close(rx->wake_fd);
    wf_shm_segs_unref(rx->segs);
    free(rx);
}

static void wake_sender(struct shm_rx *rx)
{
    uint64_t one = 1;
    WF_HOOK("reply.wake");
    if (write(rx->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_warn("cannot wake peer process %u: %m", rx->from.process.pid);
    wf_shm_count(rx->tep, WF_STAT_WAKES_SENT);
}

/* Stop receiving on this connection: store [why] for the sender, and wake the sender. */
void wf_shm_rx_refuse(struct shm_rx *rx, enum weft_status why)
{
    wf_store_release(&rx->back->closed, (int32_t)why);
    wake_sender(rx);
}

static void reply_publish(struct shm_rx *rx, struct wf_shm_reply *r, uint32_t pos, uint32_t len)
{
    WF_HOOK("reply.data");
    wf_store_release(&r->line.ready, wf_shm_ready(pos, len, 0)); /* "reply" */
    WF_HOOK("reply.published");
    if (wf_sleep_must_wake(&rx->segs->fwd->sleep_epoch, &rx->epoch_seen, rx->fence))
        wake_sender(rx);
}

/* The handler did not reply. Publish in the reply slot that no reply will come. */
static void reply_none(struct shm_token *t)
{
    struct wf_shm_reply *r = &t->rx->back->replies[t->pos & t->rx->mask];
    t->base.can_reply = WF_REPLY_NONE;
    wf_shm_header_write(&r->line, 0, 0, 0, WF_SHM_NO_REPLY, 0);
    reply_publish(t->rx, r, t->pos, 0);
}

/* Send a reply that does not fit in the line of the reply slot. */
__attribute__((noinline)) static void reply_large(struct shm_token *t, struct wf_shm_reply *r,
                                                  const struct wf_am_out *out)
{
    struct shm_rx *rx = t->rx;
    bool in_place = out->len > WF_SHM_DATA;
    bool next = 4u * out->nargs + (in_place ? 0 : out->len) > WF_SHM_DATA;
    uint8_t flags = (uint8_t)((in_place ? WF_SHM_IN_PLACE : 0) | (next ? WF_SHM_ARGS_NEXT : 0));
    wf_shm_header_write(&r->line, out->handler, out->nargs, 0, flags, 0);
    WF_HOOK("reply.header");
    if (in_place)
        memcpy(rx->places + (size_t)t->place * rx->segs->geometry.am_max, out->data, out->len);
    else
        wf_copy_small(r->line.data, out->data, out->len);
    if (out->nargs)
        wf_shm_copy_args(next ? (uint8_t *)r->args : r->line.data + WF_SHM_DATA - 4u * out->nargs,
                         out->args, out->nargs);
    reply_publish(rx, r, t->pos, out->len);
}

enum weft_status wf_shm_reply(struct wf_token *token, const struct wf_am_out *out)
{
    struct shm_token *t = SHM_OF(token, shm_token);
    struct shm_rx *rx = t->rx;
    struct wf_shm_reply *r = &rx->back->replies[t->pos & rx->mask];
    if (out->len + 4u * out->nargs > WF_SHM_DATA) {
        reply_large(t, r, out);
    } else {
        wf_shm_header_write(&r->line, out->handler, out->nargs, 0, 0, 0);
        WF_HOOK("reply.header");
        wf_copy_small(r->line.data, out->data, out->len);
        wf_shm_copy_many_args(r->line.data + WF_SHM_DATA - 4u * out->nargs, out->args, out->nargs);
        reply_publish(rx, r, t->pos, out->len);
    }
    wf_shm_count(rx->tep, WF_STAT_REPLIES_SENT);
    return WEFT_OK;
}

void wf_shm_source(const struct wf_token *token, struct wf_address *out, struct wf_contact *contact)
{
    (void)contact;
    *out = SHM_OF(token, shm_token)->rx->from;
}

bool wf_shm_rx_ready(const struct shm_rx *rx, uint32_t pos)
{
    return wf_shm_is_ready(wf_shm_rx_ready_word(rx, pos), pos);
}

bool wf_shm_rx_is_control(const struct shm_rx *rx, uint32_t pos)
{
    return __atomic_load_n(&rx->lines[pos & rx->mask].handler, __ATOMIC_RELAXED) >=
           WEFT_AM_USER_HANDLERS;
}

/* Count payload bytes in blocks. The sender may wait for these blocks while a burst still finds
 * messages. */
static void blocks_used(struct shm_rx *rx, uint32_t bytes)
{
    rx->bytes += bytes;
    if (rx->bytes >= rx->publish_bytes)
        rx->flags |= SHM_RX_BLOCKS;
}

/* Check a request's header, and find its payload. Returns NULL if the header is invalid. */
static inline const uint8_t *request_payload(struct shm_rx *rx, const struct wf_shm_line *line,
                                             const struct wf_shm_header *h)
{
    const struct wf_shm_geometry *g = &rx->segs->geometry;
    uint64_t at = (uint64_t)h->where * WF_SHM_BLOCK;
    bool args_beside = h->flags & WF_SHM_ARGS_NEXT;
    if (h->nargs > 16 || h->reply_max > g->am_max + 1)
        return NULL;
    if (h->len > g->am_max && h->len > wf_shm_request_max(g))
        return NULL;
    if (h->reply_max > WF_SHM_DATA + 1 && h->place >= g->places)
        return NULL;
    if (!(h->flags & WF_SHM_BESIDE))
        return h->len + 4u * h->nargs <= WF_SHM_DATA && !args_beside ? line->data : NULL;
    if (!args_beside && 4u * h->nargs > WF_SHM_DATA)
        return NULL;
    at += args_beside ? WF_SHM_ARGS_BLOCK : 0;
    blocks_used(rx, h->len);
    return at + h->len <= g->payload ? rx->payload + at : NULL;
}

__attribute__((noinline, cold)) static bool request_bad(struct shm_rx *rx,
                                                        const struct wf_shm_header *h)
{
    wf_error("peer process %u: message with %u bytes, %u arguments, block %u, place %u breaks the "
             "protocol; dropping the connection",
             rx->from.process.pid, h->len, h->nargs, h->where, h->place);
    wf_shm_count(rx->tep, WF_STAT_BAD_MESSAGES);
    wf_shm_rx_refuse(rx, WEFT_EPROTO);
    wf_store_release(&rx->down, (int)WEFT_EPROTO);
    wf_store_release(&rx->tep->inbox, 1);
    return false;
}

/* Called once per endpoint. */
void wf_shm_delivery_init(struct shm_tep *t)
{
    struct shm_delivery *d = &t->request;
    d->token.base.tep = &t->base;
    d->am.args = d->args;
    d->am.token = &d->token;
}

/* Prepare to deliver messages of [rx]. The new serial invalidates copies of the tokens of earlier
 * messages. */
static inline struct shm_delivery *delivery_of(struct shm_rx *rx)
{
    struct shm_delivery *d = &rx->tep->request;
    d->token.base.conn = &rx->conn;
    d->token.rx = rx;
    d->am.serial = ++d->token.base.serial;
    return d;
}

/* Offer a tagged message to the core's short way. Returns false if the core has not taken it. */
static inline bool tagged_deliver(const struct shm_rx *rx, const struct wf_shm_line *line,
                                  const void *data, uint32_t len)
{
    const struct wf_tep *tep = &rx->tep->base;
    uint64_t tag;
    memcpy(&tag, line->data + WF_SHM_TAGGED_MAX, sizeof tag);
    return tep->events->tagged(tep->owner, rx->conn, tag, data, len);
}

/* The same, for a message of one line with a space or data. Not inlined: its loads would take
 * registers from the messages without. */
__attribute__((noinline)) static bool more_deliver(const struct shm_rx *rx,
                                                   const struct wf_shm_line *line, uint32_t len)
{
    const uint8_t *args = line->data + WF_SHM_TAGGED_MORE_MAX;
    uint64_t tag, word;
    uint32_t what;
    memcpy(&tag, args, sizeof tag);
    memcpy(&word, args + 8, sizeof word);
    memcpy(&what, args + 16, sizeof what);
    return rx->tep->base.events->tagged_more(rx->conn, tag, word, what, line->data, len);
}

/* Let the reply to the request that [d] has go to the reply slot at [pos]. */
static inline void reply_expect(struct shm_rx *rx, struct shm_delivery *d, uint32_t pos,
                                uint16_t reply_max, uint8_t place)
{
    d->am.reply_max = reply_max;
    d->am.can_reply = true;
    d->token.base.can_reply = WF_REPLY_DUE;
    d->token.base.reply_room = reply_max - 1u;
    d->token.pos = pos;
    d->token.place = place;
    d->am.serial = ++d->token.base.serial;
    rx->wants_reply = true;
}

/* The handler of a request that expects a reply has returned. */
static inline void reply_expected(struct shm_delivery *d)
{
    if (__builtin_expect(d->token.base.can_reply, 0))
        reply_none(&d->token);
    d->am.reply_max = 0;
    d->am.can_reply = false;
}

/* Deliver a request of one line, with [nargs] arguments, whose reply fits in the line of the reply
 * slot. [ready] and [rest] are the two words of its header, which request_deliver has checked. */
__attribute__((noinline)) static void ask_deliver(struct shm_rx *rx, struct shm_delivery *d,
                                                  uint32_t pos, uint64_t ready, uint64_t rest)
{
    const struct wf_shm_line *line = &rx->lines[pos & rx->mask];
    unsigned nargs = rest >> 8 & 0xff;
    wf_shm_args_take(d->args, line->data + WF_SHM_DATA - 4u * nargs, nargs);
    d->am.data = line->data;
    d->am.len = (uint16_t)(ready >> 32);
    d->am.nargs = (uint8_t)nargs;
    d->am.handler = (uint8_t)rest;
    reply_expect(rx, d, pos, (uint16_t)(ready >> 48), WF_SHM_NO_PLACE);
    rx->tep->base.events->deliver(rx->tep->base.owner, &d->am);
    reply_expected(d);
}

/* Do the two words of a header describe a request for ask_deliver? */
static inline bool is_ask(uint64_t ready, uint64_t rest)
{
    return wf_shm_is_short(rest) && ready >> 48 && ready >> 48 <= WF_SHM_DATA + 1 &&
           (uint16_t)(ready >> 32) + 4 * (rest >> 8 & 0xff) <= WF_SHM_DATA;
}

/* Deliver a message for which request_deliver has no short way: one that needs payload blocks or a
 * place for its reply, that the core wants by deliver, or that breaks the protocol.
 * [ready] and [rest] are the two words of its header. Returns false if it breaks the protocol; the
 * connection is then refused. */
__attribute__((noinline)) static bool deliver_slow(struct shm_rx *rx, struct shm_delivery *d,
                                                   uint32_t pos, uint64_t ready, uint64_t rest)
{
    const struct wf_shm_line *line = &rx->lines[pos & rx->mask];
    struct wf_shm_header h = wf_shm_header(ready, rest);
    d->am.data = request_payload(rx, line, &h);
    if (__builtin_expect(!d->am.data, 0))
        return request_bad(rx, &h);
    if ((uint32_t)rest == WF_SHM_TAGGED_BESIDE && !h.reply_max &&
        tagged_deliver(rx, line, d->am.data, h.len))
        return true;
    wf_shm_args_take(d->args,
                     h.flags & WF_SHM_ARGS_NEXT ? (const uint8_t *)d->am.data - WF_SHM_ARGS_BLOCK
                                                : line->data + WF_SHM_DATA - 4u * h.nargs,
                     h.nargs);
    d->am.len = h.len;
    d->am.nargs = h.nargs;
    d->am.handler = h.handler;
    if (h.reply_max)
        reply_expect(rx, d, pos, h.reply_max, h.place);
    rx->tep->base.events->deliver(rx->tep->base.owner, &d->am);
    reply_expected(d);
    return true;
}

/* Deliver the message at [pos], whose ready word was loaded as [ready]. Returns false if the
 * message breaks the protocol; the connection is then refused. The caller must store head.
 * Between messages, reply_max and can_reply of [d] are 0: the short ways need not store them. */
static inline bool request_deliver(struct shm_rx *rx, struct shm_delivery *d, uint32_t pos,
                                   uint64_t ready)
{
    const struct wf_shm_line *line = &rx->lines[pos & rx->mask];
    const struct wf_tep *tep = &rx->tep->base;
    uint64_t rest = wf_shm_header_rest(line);
    uint64_t len = ready >> 32; /* and reply_max, which makes it too long for a short way */
    unsigned nargs = rest >> 8 & 0xff;
    if (rest == WF_SHM_TAGGED && len <= WF_SHM_TAGGED_MAX) {
        if (tagged_deliver(rx, line, line->data, (uint32_t)len))
            return true;
    } else if (rest == WF_SHM_TAGGED_MORE && len <= WF_SHM_TAGGED_MORE_MAX) {
        if (more_deliver(rx, line, (uint32_t)len))
            return true;
    } else if (wf_shm_is_short(rest) && len + 4 * nargs <= WF_SHM_DATA) {
        if (nargs)
            wf_shm_args_take(d->args, line->data + WF_SHM_DATA - 4u * nargs, nargs);
        d->am.data = line->data;
        d->am.len = (uint32_t)len;
        d->am.nargs = (uint8_t)nargs;
        d->am.handler = (uint8_t)rest;
        tep->events->deliver(tep->owner, &d->am);
        return true;
    }
    if (!is_ask(ready, rest))
        return deliver_slow(rx, d, pos, ready, rest);
    ask_deliver(rx, d, pos, ready, rest);
    return true;
}

static void count_received(struct shm_rx *rx, int n)
{
    uint64_t *c = &rx->tep->base.counters[WF_STAT_REQUESTS_RECEIVED];
    __atomic_store_n(c, *c + (uint64_t)n, __ATOMIC_RELAXED);
}

int wf_shm_rx_deliver(struct shm_rx *rx, uint32_t pos)
{
    bool delivered = request_deliver(rx, delivery_of(rx), pos, wf_shm_rx_ready_word(rx, pos));
    count_received(rx, delivered);
    return delivered ? 1 : -1;
}

void wf_shm_rx_publish(struct shm_rx *rx, uint32_t head)
{
    rx->head = rx->published = head;
    WF_HOOK("head.store");
    wf_store_release(&rx->back->head, head); /* "head" */
    /* The sender may be asleep until there is room. */
    if (wf_sleep_must_wake(&rx->segs->fwd->sleep_epoch, &rx->epoch_seen, rx->fence))
        wake_sender(rx);
}

__attribute__((noinline)) static void blocks_publish(struct shm_rx *rx, uint32_t pos)
{
    rx->flags &= (uint8_t)~SHM_RX_BLOCKS;
    rx->bytes = 0;
    wf_shm_rx_publish(rx, pos);
}

/* Deliver at most [budget] messages; [budget] is above 0. The first one is ready: its ready word is
 * [ready]. */
int wf_shm_rx_burst(struct shm_rx *rx, uint64_t ready, int budget)
{
    struct shm_delivery *d = delivery_of(rx);
    uint32_t pos = rx->head;
    int events = 0;
    rx->wants_reply = false;
    while (request_deliver(rx, d, pos, ready)) {
        if (rx->flags)
            __builtin_prefetch(&rx->lines[(pos + READ_AHEAD) & rx->mask]);
        pos++;
        if (++events == budget)
            break;
        if (__builtin_expect(rx->flags & SHM_RX_BLOCKS, 0))
            blocks_publish(rx, pos);
        ready = wf_shm_rx_ready_word(rx, pos);
        if (!wf_shm_is_ready(ready, pos))
            break;
    }
    count_received(rx, events);
    rx->flags = events == budget && budget > 1 ? SHM_RX_BACKLOG : 0;
    rx->head = pos;
    if (budget == 1 || pos - rx->published >= rx->publish_at || !wf_shm_rx_ready(rx, pos))
        wf_shm_rx_publish(rx, pos);
    return events;
}

/* Deliver all messages that the sender has published. The sender sends no more. */
int wf_shm_rx_drain(struct shm_rx *rx)
{
    uint64_t ready = wf_shm_rx_ready_word(rx, rx->head);
    return wf_shm_is_ready(ready, rx->head) ? wf_shm_rx_burst(rx, ready, (int)rx->mask + 1) : 0;
}
