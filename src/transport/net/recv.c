/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: from a link to the core. Bytes are read into the endpoint's receive buffer. But the
 * payload of a bulk frame is read into the memory that the core chooses, and only the bytes behind
 * the payload go to the buffer. If a read ends within a frame, the channel keeps the beginning of
 * this frame in its stash until the next read. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/log.h"
#include "transport/net/channel.h"

#define READ_MAX ((size_t)131072)   /* the most bytes of small frames in one read */
#define BULK_READ ((size_t)1 << 20) /* the most bytes of payload in one read */
/* The most reads from the link's own buffers in one call of wf_net_chan_readable. */
#define PEEKS 20
/* How many bytes behind a payload are read together with the payload. The number is small, because
 * these bytes may include payload of the next frame, which then has to be copied once more. */
#define BEHIND_READ ((size_t)4096)
/* See "the gap between payloads". A payload shorter than GAP_PAYLOAD_MIN may be copied twice: of 16
 * KiB, in streams of four, two reads took 1.2 times as long as a copy; of 32 KiB, 0.9 times (AMD
 * EPYC, 3 runs, with other load). A gap has at most GAP_MAX bytes. GAP_READ is the length of a read
 * in a gap that has become longer than expected. */
#define GAP_PAYLOAD_MIN 32768u
#define GAP_MAX 4096u
#define GAP_READ 1024u

_Static_assert(NET_RX_SIZE >= READ_MAX + 2 * (WF_NET_REQUEST_MAX + 128), "a stash fits in front");

/* ---- delivery ---- */

static void token_fill(struct net_token *token, struct net_chan *chan, const struct wf_net_frame *f,
                       bool is_reply)
{
    struct net_session *session = chan->session;
    *token = (struct net_token){
        .base = {.tep = &session->ep->base, .conn = &session->conn}, .chan = chan, .room = f->room};
    if (is_reply) {
        token->base.tpeer = wf_net_session_peer(session);
    } else if (f->room) {
        token->base.can_reply = 1;
        token->base.reply_room = f->room - 1;
    }
}

/* A reply has arrived: end the reservation of its room. Returns false if there was no reservation,
 * which breaks the protocol. */
static bool reservation_end(struct net_chan *chan, uint32_t room)
{
    if (wf_net_reply_size(room) > chan->reserved)
        return false;
    chan->reserved -= wf_net_reply_size(room);
    chan->asked -= room == 1 && chan->asked;
    wf_net_chan_fed(chan);
    return true;
}

/* Does the reply to request [f] fit into this side's ring? If it does not, the peer has reserved
 * more room than there is. */
static bool request_fits(const struct net_chan *chan, const struct wf_net_frame *f)
{
    return !f->room || wf_net_has_room(chan, wf_net_reply_size(f->room), true);
}

void wf_net_deliver(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                    const void *data, uint64_t long_len)
{
    struct net_ep *ep = chan->session->ep;
    bool is_reply = f->kind == WF_NET_REPLY || f->kind == WF_NET_BULK_REPLY;
    uint64_t serial = ep->token.base.serial + 1;
    struct weft_am am = {.data = data,
                         .len = data ? f->len : 0,
                         .args = args,
                         .nargs = f->nargs,
                         .handler = f->handler,
                         .is_reply = is_reply,
                         .reply_max = is_reply ? 0 : f->room,
                         .long_len = long_len,
                         .token = &ep->token,
                         .serial = serial};
    token_fill(&ep->token, chan, f, is_reply);
    ep->token.base.serial = serial;
    am.can_reply = ep->token.base.can_reply;
    if (!ep->closing.begun) { /* a closing endpoint has no handlers */
        wf_net_count(ep, is_reply ? WF_STAT_REPLIES_RECEIVED : WF_STAT_REQUESTS_RECEIVED, 1);
        ep->base.events->deliver(ep->base.owner, &am);
        if (__builtin_expect(ep->token.base.refuse | ep->token.base.later, 0) && chan->session) {
            chan->session->refused |= ep->token.base.refuse; /* for good: it is never reset */
            if (ep->token.base.later)
                wf_net_session_later(chan->session);
        }
    }
    ep->token.base.serial++;
    if (ep->token.base.can_reply)
        chan->unreplied += wf_net_reply_size(f->room);
    ep->events++;
}

/* Called when the last counted frame was delivered.
 * Returns  OK
 *          EPEER  the owner has refused the session, or had no room for its messages for too long,
 *                 or has ended it: chan->session is then NULL
 *          AGAIN  the owner has not taken the message, which does not count */
static inline enum weft_status delivery_end(struct net_chan *chan)
{
    struct net_session *session = chan->session;
    if (__builtin_expect(session && !session->refused && !session->later, 1))
        return WEFT_OK;
    if (!session || session->refused)
        return WEFT_EPEER;
    session->later = false;
    chan->taken--;
    return session->expired ? WEFT_EPEER : WEFT_AGAIN;
}

/* ---- bulk ---- */

static struct wf_bulk bulk_in(const struct net_chan *chan, struct net_token *token)
{
    const struct wf_net_frame *f = &chan->bulk.frame;
    return (struct wf_bulk){.args = chan->bulk.args,
                            .len = f->len,
                            .nargs = f->nargs,
                            .handler = f->handler,
                            .is_reply = f->kind == WF_NET_BULK_REPLY,
                            .token = &token->base};
}

/* Ask the core for the memory of the next payload bytes, at most *n. [by_kernel]: the kernel stores
 * the bytes. Returns NULL if there is no memory. The payload is then dropped. */
static void *bulk_hold(struct net_chan *chan, struct net_token *token, struct wf_bulk *bulk,
                       bool by_kernel, size_t *n)
{
    struct net_ep *ep = chan->session->ep;
    void *to = NULL;
    token_fill(token, chan, &chan->bulk.frame, chan->bulk.frame.kind == WF_NET_BULK_REPLY);
    *bulk = bulk_in(chan, token);
    bulk->by_kernel = by_kernel;
    chan->bulk.lost |= ep->closing.begun;
    if (!chan->bulk.lost)
        to = ep->base.events->bulk_hold(ep->base.owner, bulk, chan->bulk.got, n);
    chan->bulk.lost |= !to;
    return to;
}

static void bulk_unhold(struct net_chan *chan, const struct wf_bulk *bulk)
{
    struct net_ep *ep = chan->session->ep;
    ep->base.events->bulk_unhold(ep->base.owner, bulk);
}

/* Copy [n] bytes of payload from the receive buffer to the memory that the core chooses. */
static void bulk_copy(struct net_chan *chan, const uint8_t *bytes, size_t n)
{
    bool by_kernel = chan->link->buffered || chan->session->ep->base.events->bulk_is_foreign;
    while (n) {
        struct net_token token;
        struct wf_bulk bulk;
        size_t part = n;
        void *to = bulk_hold(chan, &token, &bulk, by_kernel, &part);
        if (to) {
            if (by_kernel)
                chan->bulk.lost |= !wf_net_chan_lent_write(chan, to, bytes, part);
            else
                memcpy(to, bytes, part);
            bulk_unhold(chan, &bulk);
        } else {
            part = n;
        }
        chan->bulk.got += (uint32_t)part;
        bytes += part;
        n -= part;
    }
}

static enum weft_status bulk_end(struct net_chan *chan)
{
    struct wf_net_frame f = chan->bulk.frame;
    if (f.kind == WF_NET_BULK_REPLY && !reservation_end(chan, f.room))
        return WEFT_EPROTO;
    chan->taken++;
    chan->bulk.frame.kind = 0;
    wf_net_deliver(chan, &f, chan->bulk.args, NULL, chan->bulk.lost ? 0 : f.len);
    return delivery_end(chan);
}

/* ---- the gap between payloads ----
 *
 * Payload that a read brings into the receive buffer has to be copied once more. So while bulk
 * frames follow each other, no read goes beyond the place where the next payload is expected. The
 * channel expects it as far behind the last bulk frame as the payload before: the bytes in this gap
 * are the header of the bulk frame, and perhaps small frames. In a steady stream each read of
 * payload brings the next gap along, so there are no more system calls than without.
 *
 *   the next payload begins         expected gap       reads in the gap
 *   where expected                  same               one
 *   earlier                         shrinks slowly     one, with some payload that is copied twice
 *   later, within GAP_MAX bytes     grows to this gap  some short ones
 *   later, or is short              none (0)           as long as without payload
 */

/* Compare places in the receive buffer by wf_net_past. */
static uint32_t byte_at(const uint8_t *byte)
{
    return (uint32_t)(uintptr_t)byte;
}

/* A payload of [len] bytes begins at [payload] in the receive buffer. */
static void gap_end(struct net_chan *chan, uint32_t len, const uint8_t *payload)
{
    uint32_t gap = wf_net_past(chan->gap.from, byte_at(payload)), expected = chan->gap.expected;
    if (chan->gap.active)
        expected = gap > expected
                       ? gap
                       : expected - (uint32_t)wf_align_up((expected - gap) / 4, WF_NET_ALIGN);
    chan->gap.expected = len < GAP_PAYLOAD_MIN || expected > GAP_MAX ? 0 : expected;
    chan->gap.active = true;
}

/* Called after a read whose bytes end before [end] in the receive buffer. */
static void gap_count(struct net_chan *chan, const uint8_t *end)
{
    chan->gap.since = wf_net_past(chan->gap.from, byte_at(end));
    if (chan->bulk.frame.kind || (chan->gap.since <= GAP_MAX && !chan->link->buffered))
        return;
    chan->gap.active = false;
    chan->gap.expected = 0;
}

/* Returns how many bytes the next read should take, if no payload is being received. */
static size_t gap_left(const struct net_chan *chan)
{
    if (!chan->gap.expected)
        return READ_MAX;
    return chan->gap.since < chan->gap.expected ? chan->gap.expected - chan->gap.since : GAP_READ;
}

/* Of the [len] bytes, take the bytes that belong to the payload and padding of the current bulk
 * frame. If the frame is then complete, deliver it. Returns the number of bytes taken. */
static size_t bulk_take(struct net_chan *chan, const uint8_t *bytes, size_t len,
                        enum weft_status *status)
{
    uint32_t left = chan->bulk.frame.len - chan->bulk.got;
    size_t n = WF_MIN(len, left), pad;
    bulk_copy(chan, bytes, n);
    pad = WF_MIN(len - n, chan->bulk.skip);
    if (n == left) {
        chan->bulk.skip -= (uint32_t)pad;
        chan->gap.from = byte_at(bytes + n + pad);
        if (!chan->bulk.skip)
            *status = bulk_end(chan);
    } else {
        pad = 0;
    }
    return n + pad;
}

static void bulk_begin(struct net_chan *chan, const struct wf_net_frame *f, const uint8_t *bytes)
{
    gap_end(chan, f->len, bytes + wf_net_head_size(f->nargs));
    chan->bulk.frame = *f;
    memcpy(chan->bulk.args, bytes + sizeof *f, 4u * f->nargs);
    chan->bulk.got = 0;
    chan->bulk.skip = wf_net_padded(f->len) - f->len;
    chan->bulk.lost = false;
}

/* ---- frames ---- */

/* Process a frame that is neither a bulk frame nor SYNC. For BYE, sets *bye_lanes to a bit mask of
 * the lanes by which the peer sends BYE. Returns OK | EPROTO | as delivery_end */
static enum weft_status frame_take(struct net_chan *chan, const struct wf_net_frame *f,
                                   const uint8_t *bytes, uint32_t *bye_lanes)
{
    uint32_t args[WEFT_AM_MAX_ARGS];
    switch (f->kind) {
    case WF_NET_REPLY:
        if (!reservation_end(chan, f->room))
            return WEFT_EPROTO;
        break;
    case WF_NET_REQUEST:
        if (!request_fits(chan, f))
            return WEFT_EPROTO;
        break;
    case WF_NET_VOID: chan->taken++; return WEFT_OK;
    case WF_NET_BYE:
        if (!f->nargs)
            return WEFT_EPROTO;
        memcpy(bye_lanes, bytes + sizeof *f, sizeof *bye_lanes);
        if (*bye_lanes >> WF_NET_LANES_MAX || !(*bye_lanes >> chan->index & 1))
            return WEFT_EPROTO;
        chan->taken++;
        chan->bye = true;
        return WEFT_OK;
    default: return wf_net_chan_returned(chan, f->room); /* ACK */
    }
    chan->taken++;
    memcpy(args, bytes + sizeof *f, 4u * f->nargs);
    if (__builtin_expect(chan->session->ep->shuffle != NULL, 0) &&
        wf_net_shuffle_keep(chan, f, args, bytes + wf_net_head_size(f->nargs)))
        return WEFT_OK;
    wf_net_deliver(chan, f, args, bytes + wf_net_head_size(f->nargs), 0);
    return delivery_end(chan);
}

static enum weft_status sync_take(struct net_chan *chan, const struct wf_net_frame *f,
                                  const uint8_t *bytes)
{
    struct wf_net_sync sync;
    if (f->kind == WF_NET_BYE) /* the peer has given this session up */
        return WEFT_EPEER;
    if (f->kind != WF_NET_SYNC)
        return WEFT_EPROTO;
    memcpy(&sync, bytes + sizeof *f, sizeof sync);
    return wf_net_chan_sync(chan, f, &sync);
}

/* Process the whole frames among the [have] bytes, and set *used to the length of these frames. If
 * this returns OK, the remaining bytes are less than a whole frame. */
static enum weft_status frames_take(struct net_chan *chan, const uint8_t *bytes, size_t have,
                                    size_t *used, uint32_t *bye_lanes)
{
    enum weft_status status = WEFT_OK;
    size_t at = 0;
    while (have - at >= sizeof(struct wf_net_frame) && status == WEFT_OK) {
        struct wf_net_frame f;
        uint32_t head;
        if (chan->bulk.frame.kind) {
            at += bulk_take(chan, bytes + at, have - at, &status);
            continue;
        }
        status = wf_net_frame_parse(bytes + at, &f);
        if (status != WEFT_OK)
            break;
        head = wf_net_head_size(f.nargs);
        if (have - at < head ||
            (!wf_net_is_bulk(f.kind) && have - at - head < wf_net_padded(f.len)))
            break;
        if (!chan->synced) {
            status = sync_take(chan, &f, bytes + at);
        } else if (f.kind == WF_NET_SYNC || (chan->bye && wf_net_is_counted(f.kind))) {
            status = WEFT_EPROTO;
        } else {
            status = wf_net_chan_acked(chan, f.ack);
            if (status == WEFT_OK && wf_net_is_bulk(f.kind)) {
                if (f.kind == WF_NET_BULK_REQUEST && !request_fits(chan, &f))
                    status = WEFT_EPROTO;
                bulk_begin(chan, &f, bytes + at);
            } else if (status == WEFT_OK) {
                status = frame_take(chan, &f, bytes + at, bye_lanes);
            }
        }
        at += head + (wf_net_is_bulk(f.kind) ? 0 : wf_net_padded(f.len));
    }
    *used = at;
    return status;
}

static bool stash_keep(struct net_chan *chan, const uint8_t *bytes, size_t n)
{
    uint8_t *stash = NULL;
    if (!n && !chan->stash_len)
        return true;
    if (n && !(stash = malloc(n)))
        return false;
    if (n)
        memcpy(stash, bytes, n);
    free(chan->stash);
    chan->stash = stash;
    chan->stash_len = (uint32_t)n;
    return true;
}

/* ---- reading ---- */

/* Read into the receive buffer. If [left] bytes of payload are to be dropped, read no further than
 * the payload's end, so that the frames behind the payload begin at multiples of 16 bytes of the
 * buffer. */
static ssize_t read_to_buffer(struct net_chan *chan, uint8_t *at, uint32_t left)
{
    struct iovec v = {at, left ? WF_MIN(left + chan->bulk.skip, READ_MAX) : gap_left(chan)};
    if (chan->link->buffered)
        v.iov_len = READ_MAX;
    return chan->link->ops->recvv(chan->link, &v, 1);
}

/* Do one read within a bulk frame or in a gap. Payload goes to the memory that the core chooses.
 * The bytes behind the payload go to the buffer at [at]. Returns like readv(2), and sets *direct to
 * how many of the bytes are payload. */
static ssize_t bulk_read(struct net_chan *chan, uint8_t *at, size_t *direct)
{
    struct net_token token;
    struct wf_bulk bulk;
    struct iovec v[2];
    unsigned pieces = 0;
    uint32_t left = chan->bulk.frame.kind ? chan->bulk.frame.len - chan->bulk.got : 0;
    size_t n = WF_MIN(left, BULK_READ);
    void *to = n && !chan->link->buffered ? bulk_hold(chan, &token, &bulk, true, &n) : NULL;
    ssize_t got;
    int error;
    *direct = 0;
    chan->gap.from = byte_at(at) - chan->gap.since;
    if (!to)
        return read_to_buffer(chan, at, left);
    v[pieces++] = (struct iovec){to, n};
    if (n == left)
        v[pieces++] = (struct iovec){at, chan->gap.expected ? chan->bulk.skip + chan->gap.expected
                                                            : BEHIND_READ};
    got = chan->link->ops->recvv(chan->link, v, pieces);
    error = errno;
    bulk_unhold(chan, &bulk);
    errno = error;
    if (got < 0 && error == EFAULT) { /* the payload's memory is not mapped, or not writable */
        chan->bulk.lost = true;
        errno = EINTR;
    }
    *direct = got > 0 ? WF_MIN((size_t)got, n) : 0;
    return got;
}

/* Called when a read returned no bytes: [got] is 0 at the end of the stream, or -1 with errno. May
 * end the session, and with it the channel. */
static inline void read_failed(struct net_chan *chan, ssize_t got)
{
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        wf_net_chan_failed(chan, got ? errno : 0);
}

/* Returns where in the receive buffer the next read stores its bytes. The place is chosen so that
 * frames and payloads begin at multiples of 16 bytes of the buffer. */
static uint8_t *buffer_start(const struct net_chan *chan)
{
    uint32_t skip = chan->bulk.frame.kind ? chan->bulk.skip : 0;
    if (chan->link->buffered && chan->bulk.frame.kind)
        skip += chan->bulk.frame.len - chan->bulk.got;
    skip %= WF_NET_ALIGN;
    return chan->session->ep->rx + (WF_NET_ALIGN - skip) % WF_NET_ALIGN;
}

static enum weft_status bytes_take(struct net_chan *chan, uint8_t *start, size_t have,
                                   uint32_t *bye_lanes)
{
    size_t used = 0;
    enum weft_status status = WEFT_OK;
    /* frames_take does nothing with fewer bytes than a frame header has. So payload is taken
     * here. */
    if (chan->bulk.frame.kind)
        used = bulk_take(chan, start, have, &status);
    if (status == WEFT_OK) {
        size_t more = 0;
        status = frames_take(chan, start + used, have - used, &more, bye_lanes);
        used += more;
    }
    if (status != WEFT_OK)
        return status;
    /* frames_take has left fewer bytes than a frame header has. These bytes are payload. */
    if (chan->bulk.frame.kind && have != used)
        used += bulk_take(chan, start + used, have - used, &status);
    if (status == WEFT_OK && !stash_keep(chan, start + used, have - used))
        wf_net_chan_break(chan, "no memory for part of a message");
    return status;
}

static void read_done(struct net_chan *chan, enum weft_status status, uint32_t bye_lanes)
{
    struct net_session *session = chan->session;
    if (!session)
        return; /* a handler has ended it */
    if (status == WEFT_EPEER && !session->refused && !session->expired)
        wf_net_chan_turn_away(chan); /* else when it connects again */
    if (status == WEFT_AGAIN) {
        wf_net_chan_break(chan, "no room for its message, which comes again");
    } else if (status == WEFT_OK && bye_lanes) {
        wf_net_flush(chan); /* the peer waits for the acknowledgement of its last messages */
        wf_net_session_bye(session, bye_lanes);
    } else if (status != WEFT_OK) {
        wf_net_chan_end(chan, status);
    } else if (chan->link && wf_net_ack_is_urgent(chan)) {
        wf_net_dirty(chan);
    }
}

static void read_count(struct net_chan *chan, size_t n)
{
    wf_net_count(chan->session->ep, WF_STAT_TCP_BYTES_RECEIVED, n);
    /* Payload counts as an event even before its message is complete, so that a waiting owner stays
     * awake. */
    chan->session->ep->events++;
    chan->taken_bytes += (uint32_t)n;
    chan->empty = false;
    WF_HOOK("tcp.read");
}

/* Process frames in the link's own buffers, as long as these buffers hold whole frames. Returns
 * true if nothing is left to read. */
static bool read_in_place(struct net_chan *chan)
{
    struct net_link *link = chan->link;
    const struct net_link_ops *ops = link->ops;
    int i;
    for (i = 0; i < PEEKS && chan->link == link && !chan->stash_len && !chan->bulk.frame.kind;
         i++) {
        size_t n;
        uint8_t *start = ops->peek(link, &n);
        uint32_t bye_lanes = 0;
        enum weft_status status;
        if (!start)
            break;
        read_count(chan, n);
        status = bytes_take(chan, start, n, &bye_lanes);
        if (chan->link == link)
            ops->consume(link);
        read_done(chan, status, bye_lanes);
    }
    return i && (chan->link != link || !ops->has_bytes(link));
}

static __attribute__((noinline)) void bulk_readable(struct net_chan *chan);

/* Called after bytes_take, which returned [status]. [end]: see gap_count. [again]: if a payload has
 * begun, read more of it at once. */
static void bulk_read_done(struct net_chan *chan, const uint8_t *end, enum weft_status status,
                           uint32_t bye_lanes, bool again)
{
    again &= chan->gap.active && chan->bulk.frame.kind && status == WEFT_OK && !bye_lanes;
    if (chan->gap.active)
        gap_count(chan, end);
    read_done(chan, status, bye_lanes);
    if (again && chan->link)
        bulk_readable(chan);
}

/* wf_net_chan_readable while a bulk frame is being received, or in a gap. */
static void bulk_readable(struct net_chan *chan)
{
    uint8_t *start = buffer_start(chan);
    size_t have = chan->stash_len, direct;
    uint32_t bye_lanes = 0;
    bool had = chan->bulk.frame.kind;
    enum weft_status status;
    ssize_t got;
    if (have)
        memcpy(start, chan->stash, have);
    got = bulk_read(chan, start + have, &direct);
    if (got <= 0) {
        read_failed(chan, got);
        return;
    }
    chan->bulk.got += (uint32_t)direct;
    read_count(chan, (size_t)got);
    have += (size_t)got - direct;
    status = bytes_take(chan, start, have, &bye_lanes);
    bulk_read_done(chan, start + have, status, bye_lanes, !had);
}

void wf_net_chan_readable(struct net_chan *chan)
{
    uint32_t bye_lanes = 0; /* not 0 if this read has BYE */
    uint8_t *start;
    struct iovec v;
    enum weft_status status;
    size_t have;
    ssize_t got;
    if (chan->link->ops->peek && read_in_place(chan))
        return;
    if (__builtin_expect(chan->gap.active, 0)) {
        bulk_readable(chan);
        return;
    }
    start = chan->session->ep->rx;
    have = chan->stash_len;
    if (have)
        memcpy(start, chan->stash, have);
    v = (struct iovec){start + have, READ_MAX};
    got = chan->link->ops->recvv(chan->link, &v, 1);
    if (got <= 0) {
        read_failed(chan, got);
        return;
    }
    read_count(chan, (size_t)got);
    have += (size_t)got;
    status = bytes_take(chan, start, have, &bye_lanes);
    if (__builtin_expect(chan->gap.active, 0))
        bulk_read_done(chan, start + have, status, bye_lanes, true);
    else
        read_done(chan, status, bye_lanes);
}
