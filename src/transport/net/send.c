/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: from the core into a channel's ring, and from there to its link. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "transport/net/batch.h"

/* A message after a pause this long is sent at once. A write of 64 bytes to a loopback socket takes
 * 1.3 us, even if it wakes nobody (measured on a Sapphire Rapids). So if messages follow each other
 * after shorter pauses, the sender saves time by sending several messages with one write. */
#define QUIET_NS 4000
/* The first PROMPT messages after a poll are each sent at once, even if they follow each other
 * closely. So a few messages leave even if the program makes no further call. */
#define PROMPT 8
/* If there were more of them, the messages after the next poll belong to the same stream, if they
 * follow within this time: only the first of them is sent at once. It is longer than a window of 64
 * puts and its answers take between two hosts. A link that sends by itself what is short (send_one)
 * gains nothing by that. */
#define STREAM_NS 500000
/* A channel with this many unsent bytes sends without waiting for a poll. By then some 500 small
 * messages share one write. This write takes hardly longer than a write of one message: 16 KiB take
 * 1.5 us, and 32 KiB take 2.2 us (measured on the same machine as QUIET_NS). */
#define BATCH 16384u
/* The most writes in one flush of a channel. The limit leaves time for other channels and for
 * receiving. */
#define WRITES 2
/* ---- the ring ---- */

uint32_t wf_net_ring_size_of(const struct wf_net_frame *f)
{
    return wf_net_head_size(f->nargs) + (wf_net_is_bulk(f->kind) ? 0 : wf_net_padded(f->len));
}

bool wf_net_has_room(const struct net_chan *chan, uint32_t bytes, bool is_reply)
{
    return is_reply ? bytes <= NET_REPLY_ROOM - chan->reply_bytes
                    : bytes <= chan->request_room - chan->request_bytes;
}

static void ring_put(struct net_chan *chan, uint32_t at, const void *bytes, size_t len)
{
    size_t offset = at & chan->mask, whole = (size_t)chan->mask + 1 - offset;
    if (len == 8 && whole >= 8) {
        memcpy(chan->ring + offset, bytes, 8);
    } else if (len <= whole) {
        memcpy(chan->ring + offset, bytes, len);
    } else {
        memcpy(chan->ring + offset, bytes, whole);
        memcpy(chan->ring, (const uint8_t *)bytes + whole, len - whole);
    }
}

void wf_net_frame_drop(struct net_chan *chan)
{
    const struct wf_net_frame *f = wf_net_frame_at(chan, chan->tail);
    uint32_t size = wf_net_ring_size_of(f);
    if (wf_net_is_reply(f->kind))
        chan->reply_bytes -= size;
    else
        chan->request_bytes -= size;
    if (chan->bulk_first != chan->bulk_end &&
        chan->bulks[chan->bulk_first & (chan->bulks_room - 1)].at == chan->tail) {
        if (chan->bulk_at == chan->bulk_first)
            chan->bulk_at++;
        chan->bulk_first++;
    }
    chan->tail += size;
    chan->first++;
}

/* Clear the padding before offset [end]: it may hold bytes of another peer's messages.
 */
static void clear_padding(struct net_chan *chan, uint32_t end)
{
    memset(chan->ring + ((end - WF_NET_ALIGN) & chan->mask), 0, WF_NET_ALIGN);
}

/* Called before a frame is appended behind requests that gather. They alone made the channel dirty,
 * and a dirty channel would keep the frame back. The caller flushes the channel, or makes it dirty
 * anew. */
static void gather_end(struct net_chan *chan)
{
    chan->gathered = 0;
    wf_list_remove(&chan->dirty);
}

/* Write the header and arguments of a frame at the end of the ring. Returns the frame's size in the
 * ring. */
static uint32_t put_head(struct net_chan *chan, enum wf_net_kind kind, const struct wf_am_out *out,
                         uint32_t room)
{
    struct wf_net_frame f = {.len = out->len,
                             .ack = chan->taken,
                             .room = room,
                             .kind = (uint8_t)kind,
                             .nargs = (uint8_t)out->nargs,
                             .handler = out->handler};
    uint32_t size = wf_net_ring_size_of(&f);
    *wf_net_frame_at(chan, chan->head) = f; /* 16 bytes at a multiple of 16 never wrap */
    if (out->nargs) {
        clear_padding(chan, chan->head + wf_net_head_size(out->nargs));
        ring_put(chan, chan->head + (uint32_t)sizeof f, out->args, 4u * out->nargs);
    }
    if (wf_net_is_reply(kind))
        chan->reply_bytes += size;
    else
        chan->request_bytes += size;
    if (__builtin_expect(chan->gathered != 0, 0))
        gather_end(chan);
    chan->next++;
    return size;
}

void wf_net_append(struct net_chan *chan, enum wf_net_kind kind, const struct wf_am_out *out,
                   uint32_t room)
{
    uint32_t size = put_head(chan, kind, out, room);
    if (out->len) {
        clear_padding(chan, chan->head + size);
        ring_put(chan, chan->head + wf_net_head_size(out->nargs), out->data, out->len);
    }
    chan->head += size;
}

/* Write a payload in pieces where it wraps in the ring. */
__attribute__((noinline)) static void ring_put_pieces(struct net_chan *chan, uint32_t at,
                                                      const struct wf_am_out *out)
{
    for (unsigned i = 0; i < out->pieces; at += (uint32_t)out->iov[i++].iov_len)
        if (out->iov[i].iov_len)
            ring_put(chan, at, out->iov[i].iov_base, out->iov[i].iov_len);
}

void wf_net_append_pieces(struct net_chan *chan, const struct wf_am_out *out)
{
    uint32_t size = put_head(chan, WF_NET_REQUEST, out, out->reply_max);
    uint32_t at = chan->head + wf_net_head_size(out->nargs), offset = at & chan->mask;
    chan->head += size;
    if (out->len)
        clear_padding(chan, chan->head);
    if (out->len <= chan->mask + 1 - offset)
        wf_am_pieces_copy(chan->ring + offset, out);
    else
        ring_put_pieces(chan, at, out);
}

void wf_net_append_bye(struct net_chan *chan, uint32_t lanes)
{
    struct wf_am_out out = {.args = &lanes, .nargs = 1};
    wf_net_append(chan, WF_NET_BYE, &out, 0);
}

static bool bulks_grow(struct net_chan *chan)
{
    uint32_t room = chan->bulks_room ? 2 * chan->bulks_room : 16, n = 0;
    struct net_bulk *more;
    if (wf_net_past(chan->bulk_first, chan->bulk_end) < chan->bulks_room)
        return true;
    more = malloc(room * sizeof *more);
    if (!more)
        return false;
    for (uint32_t i = chan->bulk_first; i != chan->bulk_end; i++)
        more[n++] = chan->bulks[i & (chan->bulks_room - 1)];
    free(chan->bulks);
    chan->bulk_at -= chan->bulk_first;
    chan->bulk_end = n;
    chan->bulk_first = 0;
    chan->bulks = more;
    chan->bulks_room = room;
    return true;
}

enum weft_status wf_net_append_bulk(struct net_chan *chan, enum wf_net_kind kind,
                                    const struct wf_bulk *bulk, uint32_t room)
{
    struct wf_am_out out = {
        .args = bulk->args, .len = bulk->len, .nargs = bulk->nargs, .handler = bulk->handler};
    struct net_bulk *b;
    if (!bulks_grow(chan))
        return WEFT_ENOMEM;
    b = wf_net_bulk_of(chan, chan->bulk_end++);
    b->bulk = *bulk;
    b->bulk.token = NULL;
    b->at = chan->head;
    b->lost = false;
    memcpy(b->args, bulk->args, 4u * bulk->nargs);
    chan->head += put_head(chan, kind, &out, room);
    return WEFT_OK;
}

/* ---- to the link ---- */

bool wf_net_ack_is_due(const struct net_chan *chan)
{
    return chan->taken != chan->acked || chan->unreplied != chan->unreplied_acked;
}

bool wf_net_ack_is_urgent(const struct net_chan *chan)
{
    return wf_net_past(chan->acked, chan->taken) >= 256 ||
           (chan->taken_bytes >= 16384 && chan->taken != chan->acked) ||
           wf_net_returns_are_urgent(chan);
}

bool wf_net_has_unsent(const struct net_chan *chan)
{
    return chan->sent != chan->head || (chan->link && chan->link->has_unsent) ||
           chan->bulk_at != chan->bulk_end || chan->control_sent != chan->control_len;
}

/* Called when nothing more can be sent by the link. Half-closes the link. The peer then sees the
 * end of the stream. This side still receives what the peer has sent. */
static void send_end(struct net_chan *chan)
{
    chan->half_closed = true;
    chan->blocked = false; /* otherwise epoll would be asked for room, and report it forever */
    chan->link->ops->half_close(chan->link);
}

/* Called when the kernel found the memory of a payload unmapped, or without a page. For a reply,
 * the peer named the region with this memory: the peer receives an error, and sending goes on. The
 * same holds for a request whose memory is another process's: bulk_gone reports that it is not
 * sent. (Where a part of it has left, the next wf_net_batch_make gives up the link.) For any other
 * request, a call of this program lent the memory: that call's operation can end only together with
 * the session, so sending ends. Returns true if sending goes on. */
static bool payload_gone(struct net_chan *chan, struct net_bulk *bulk)
{
    if (wf_net_is_reply(wf_net_frame_at(chan, bulk->at)->kind) ||
        chan->session->ep->base.events->bulk_is_foreign) {
        bulk->lost = true;
        return true;
    }
    wf_error("memory that was lent to a message or put of %u bytes was unmapped meanwhile: its "
             "peer is given up",
             bulk->bulk.len);
    chan->faulted = true;
    send_end(chan);
    return false;
}

/* Hand [b], which has [len] bytes, to the link. Returns the number of bytes taken, or -1 with
 * errno. */
static ssize_t batch_send(struct net_chan *chan, const struct wf_net_batch *b, size_t len)
{
    struct net_link *link = chan->link;
    chan->blocked = false;
    if (!len && !link->has_unsent) {
        link->is_full = false;
        return 0;
    }
    WF_HOOK("tcp.write");
    return link->ops->sendv(link, b->v, b->n, len, b->lent);
}

/* Do one write of at most [most] payloads. Returns true if there may be more to send, and the link
 * may accept more. */
static bool flush_once(struct net_chan *chan, unsigned most)
{
    struct net_ep *ep = chan->session->ep;
    struct wf_net_batch b;
    size_t want = 0;
    bool ok = wf_net_batch_make(&b, chan, most);
    ssize_t n = 0;
    int error;
    for (unsigned i = 0; i < b.n; i++)
        want += b.v[i].iov_len;
    if (ok)
        n = batch_send(chan, &b, want);
    error = errno;
    wf_net_batch_unhold(&b, ep);
    if (!ok) { /* a payload that was sent in part is gone: a new connection is needed */
        send_end(chan);
        return false;
    }
    if (n < 0 && error == EFAULT && b.lent)
        /* With several payloads, the next write, of one, finds out which is gone. */
        return most > 1 ? flush_once(chan, 1) : payload_gone(chan, b.segments[0].held);
    if (n < 0 && error != EAGAIN && error != EINTR) {
        /* A socket reports such an error only once, so the next read will not report it. */
        chan->was_silent |= wf_net_is_silence(error);
        send_end(chan);
        return false;
    }
    if (n > 0) {
        wf_net_count(ep, WF_STAT_TCP_BYTES_SENT, (uint64_t)n);
        wf_net_batch_done(&b, chan, (size_t)n);
    }
    chan->blocked = chan->link->is_full;
    return want && !chan->blocked && chan->open && wf_net_has_unsent(chan);
}

void wf_net_flush(struct net_chan *chan)
{
    unsigned most = chan->link && !chan->link->buffered ? WF_NET_SHARED_MAX : 1;
    if (chan->holds)
        wf_net_ride_missed(chan);
    chan->gathered = 0;
    wf_list_remove(&chan->dirty);
    if (!chan->up || chan->half_closed)
        return;
    for (int i = 0; i < WRITES && flush_once(chan, most); i++)
        ;
    if (!chan->up || chan->half_closed)
        return;
    chan->session->sent_ns = wf_now_ns();
    if (wf_net_has_unsent(chan) && (chan->open || chan->control_sent != chan->control_len))
        wf_net_dirty(chan); /* the next poll sends the rest; the link wakes an owner that sleeps */
}

void wf_net_dirty(struct net_chan *chan)
{
    if (wf_list_empty(&chan->dirty))
        wf_list_append(&chan->session->ep->dirty, &chan->dirty);
}

/* A faster way than wf_net_flush for one case: nothing but one short frame is to be sent, and this
 * frame does not wrap in the ring. Returns false if nothing was sent. */
static bool frame_send(struct net_chan *chan)
{
    struct wf_net_frame *f = wf_net_frame_at(chan, chan->sent);
    uint32_t n = wf_net_past(chan->sent, chan->head), offset = chan->sent & chan->mask;
    if (!chan->link->ops->send_one || chan->at != chan->sent || chan->bulk_at != chan->bulk_end ||
        chan->control_sent != chan->control_len || chan->half_closed ||
        wf_net_ring_size_of(f) != n || n > chan->mask + 1 - offset ||
        wf_net_returns_are_urgent(chan))
        return false;
    f->ack = chan->taken;
    WF_HOOK("tcp.write");
    if (!chan->link->ops->send_one(chan->link, f, n))
        return false;
    wf_net_count(chan->session->ep, WF_STAT_TCP_BYTES_SENT, n);
    wf_net_ack_sent(chan);
    chan->sent += n;
    wf_net_frame_written(chan, n);
    return true;
}

/* The first message after a poll. */
static void burst_begin(struct net_session *session, const struct net_link *link, uint32_t polls)
{
    bool streams = session->burst > PROMPT && !link->ops->send_one &&
                   wf_now_ns() - session->burst_ns < STREAM_NS;
    session->prompt = streams ? 1 : PROMPT;
    session->burst_poll = polls;
    session->burst = 0;
}

void wf_net_flush_soon(struct net_chan *chan)
{
    struct net_session *session = chan->session;
    uint32_t unsent = wf_net_past(chan->sent, chan->head), polls = session->ep->polls;
    if (!chan->open)
        return;
    if (session->burst_poll != polls)
        burst_begin(session, chan->link, polls);
    /* frame_send does not set sent_ns. The last of the first PROMPT messages is sent by
     * wf_net_flush, which sets sent_ns. */
    if (session->burst + 1 < session->prompt && !chan->blocked && frame_send(chan)) {
        session->burst++;
        return;
    }
    if (session->burst == PROMPT)
        session->burst_ns = wf_now_ns();
    if ((session->burst++ < session->prompt && !chan->blocked) ||
        (unsent >= BATCH && !chan->blocked) ||
        (wf_list_empty(&chan->dirty) && wf_now_ns() - session->sent_ns > QUIET_NS))
        wf_net_flush(chan);
    else
        wf_net_dirty(chan);
}

/* Is a payload of [len] bytes, the newest, to be sent now? A flush that stopped before all was sent
 * left the channel dirty: the rest is a poll's. Short payloads of a stream wait until there are
 * enough for a write, or until a poll. */
static bool payload_leaves(const struct net_chan *chan, uint32_t len)
{
    const struct net_session *session = chan->session;
    uint32_t n = wf_net_past(chan->bulk_at, chan->bulk_end);
    bool idle = wf_list_empty(&chan->dirty);
    if (session->burst <= session->prompt || chan->link->buffered || len > WF_NET_SHARED / 4)
        return idle;
    return n >= WF_NET_SHARED_MAX || n * len >= WF_NET_SHARED ||
           (idle && wf_now_ns() - session->sent_ns > QUIET_NS);
}

void wf_net_flush_bulk(struct net_chan *chan, uint32_t len, bool ordered)
{
    struct net_session *session = chan->session;
    if (!chan->open)
        return;
    if (session->burst_poll != session->ep->polls)
        burst_begin(session, chan->link, session->ep->polls);
    if (session->burst++ == PROMPT)
        session->burst_ns = wf_now_ns();
    if (!chan->blocked && (ordered || payload_leaves(chan, len)))
        wf_net_flush(chan);
    else
        wf_net_dirty(chan);
}

static void stay_dirty(struct net_chan *chan)
{
    wf_list_remove(&chan->dirty);
    wf_net_dirty(chan);
}

void wf_net_flush_data(struct net_ep *ep)
{
    struct wf_list round;
    wf_list_take(&round, &ep->dirty);
    while (!wf_list_empty(&round)) {
        struct net_chan *chan = wf_container_of(round.next, struct net_chan, dirty);
        if (!chan->gathered && wf_net_has_unsent(chan) && !wf_net_replies_stay(chan))
            wf_net_flush(chan);
        else
            stay_dirty(chan);
    }
}

/* Flush each dirty channel once. A channel that becomes dirty again meanwhile waits for the next
 * call. */
void wf_net_flush_all(struct net_ep *ep)
{
    struct wf_list round;
    wf_list_take(&round, &ep->dirty);
    while (!wf_list_empty(&round))
        wf_net_flush(wf_container_of(round.next, struct net_chan, dirty));
}

void wf_net_flush_due(struct net_ep *ep)
{
    struct wf_list round;
    wf_list_take(&round, &ep->dirty);
    while (!wf_list_empty(&round)) {
        struct net_chan *chan = wf_container_of(round.next, struct net_chan, dirty);
        if (chan->gathered && wf_net_gather_stays(chan))
            stay_dirty(chan);
        else
            wf_net_flush(chan);
    }
}
