/* SPDX-License-Identifier: BSD-3-Clause */
/* From the core into a lane's ring, and from there to its socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "transport/tcp/tcp.h"

/* A message after a pause this long is written at once. A write of 64 bytes to a loopback socket
 * takes 1.3 us without waking anybody (measured on a Sapphire Rapids), so who sends
 * more often gains by waiting. */
#define QUIET_NS 4000
/* So many messages between two polls are each written at once even then: a few that are not
 * followed by a call do not wait for one. */
#define PROMPT 8
/* As many unwritten bytes are written without waiting for poll: some 500 small messages
 * share a system call then, which takes hardly longer than one's own (16 KiB 1.5 us, 32 KiB
 * 2.2, measured as above). */
#define BATCH 16384u
#define WRITES 2 /* per flush: other lanes and the other direction want their turn */
#define BULK_WRITE ((size_t)1 << 20) /* of bulk payload in one system call */

static const uint8_t zeros[WF_TCP_ALIGN];

/* ---- the ring ---- */

uint32_t wf_tcp_ring_size_of(const struct wf_tcp_frame *f)
{
    return wf_tcp_head_size(f->nargs) + (wf_tcp_is_bulk(f->kind) ? 0 : wf_tcp_padded(f->len));
}

bool wf_tcp_has_room(const struct tcp_lane *lane, uint32_t bytes, bool is_reply)
{
    return is_reply ? bytes <= TCP_REPLY_ROOM - lane->reply_bytes
                    : bytes <= lane->request_room - lane->request_bytes;
}

static void ring_put(struct tcp_lane *lane, uint32_t at, const void *bytes, size_t len)
{
    size_t offset = at & lane->mask, whole = (size_t)lane->mask + 1 - offset;
    if (len == 8 && whole >= 8) {
        memcpy(lane->ring + offset, bytes, 8);
    } else if (len <= whole) {
        memcpy(lane->ring + offset, bytes, len);
    } else {
        memcpy(lane->ring + offset, bytes, whole);
        memcpy(lane->ring, (const uint8_t *)bytes + whole, len - whole);
    }
}

static bool is_reply(unsigned kind)
{
    return kind == WF_TCP_REPLY || kind == WF_TCP_BULK_REPLY;
}

void wf_tcp_frame_drop(struct tcp_lane *lane)
{
    const struct wf_tcp_frame *f = wf_tcp_frame_at(lane, lane->tail);
    uint32_t size = wf_tcp_ring_size_of(f);
    if (is_reply(f->kind))
        lane->reply_bytes -= size;
    else
        lane->request_bytes -= size;
    if (lane->bulk_first != lane->bulk_end &&
        lane->bulks[lane->bulk_first & (lane->bulks_room - 1)].at == lane->tail) {
        if (lane->bulk_at == lane->bulk_first)
            lane->bulk_at++;
        lane->bulk_first++;
    }
    lane->tail += size;
    lane->first++;
}

/* Head and arguments; padding is whatever was there: the ring holds nothing but
 * messages to the same peer. */
static uint32_t put_head(struct tcp_lane *lane, enum wf_tcp_kind kind, const struct wf_am_out *out,
                         uint32_t room)
{
    struct wf_tcp_frame f = {.len = out->len,
                             .ack = lane->taken,
                             .room = room,
                             .kind = (uint8_t)kind,
                             .nargs = (uint8_t)out->nargs,
                             .handler = out->handler};
    uint32_t size = wf_tcp_ring_size_of(&f);
    *wf_tcp_frame_at(lane, lane->head) = f; /* 16 bytes at a multiple of 16: never divided */
    if (out->nargs)
        ring_put(lane, lane->head + (uint32_t)sizeof f, out->args, 4u * out->nargs);
    if (is_reply(kind))
        lane->reply_bytes += size;
    else
        lane->request_bytes += size;
    lane->next++;
    return size;
}

void wf_tcp_append(struct tcp_lane *lane, enum wf_tcp_kind kind, const struct wf_am_out *out,
                   uint32_t room)
{
    uint32_t size = put_head(lane, kind, out, room);
    if (out->len)
        ring_put(lane, lane->head + wf_tcp_head_size(out->nargs), out->data, out->len);
    lane->head += size;
}

void wf_tcp_append_bye(struct tcp_lane *lane, uint32_t lanes)
{
    struct wf_am_out out = {.args = &lanes, .nargs = 1};
    wf_tcp_append(lane, WF_TCP_BYE, &out, 0);
}

static bool bulks_grow(struct tcp_lane *lane)
{
    uint32_t room = lane->bulks_room ? 2 * lane->bulks_room : 16, n = 0;
    struct tcp_bulk *more;
    if (wf_tcp_past(lane->bulk_first, lane->bulk_end) < lane->bulks_room)
        return true;
    more = malloc(room * sizeof *more);
    if (!more)
        return false;
    for (uint32_t i = lane->bulk_first; i != lane->bulk_end; i++)
        more[n++] = lane->bulks[i & (lane->bulks_room - 1)];
    free(lane->bulks);
    lane->bulk_at -= lane->bulk_first;
    lane->bulk_end = n;
    lane->bulk_first = 0;
    lane->bulks = more;
    lane->bulks_room = room;
    return true;
}

static struct tcp_bulk *bulk_of(const struct tcp_lane *lane, uint32_t i)
{
    struct tcp_bulk *b = &lane->bulks[i & (lane->bulks_room - 1)];
    b->bulk.args = b->args;
    return b;
}

enum weft_status wf_tcp_append_bulk(struct tcp_lane *lane, enum wf_tcp_kind kind,
                                    const struct wf_bulk *bulk, uint32_t room)
{
    struct wf_am_out out = {
        .args = bulk->args, .len = bulk->len, .nargs = bulk->nargs, .handler = bulk->handler};
    struct tcp_bulk *b;
    if (!bulks_grow(lane))
        return WEFT_ENOMEM;
    b = bulk_of(lane, lane->bulk_end++);
    b->bulk = *bulk;
    b->bulk.token = NULL;
    b->at = lane->head;
    b->lost = false;
    memcpy(b->args, bulk->args, 4u * bulk->nargs);
    lane->head += put_head(lane, kind, &out, room);
    return WEFT_OK;
}

/* ---- to the socket ---- */

/* The bulk frame whose payload is next to be written, or null. */
static struct tcp_bulk *bulk_next(const struct tcp_lane *lane)
{
    return lane->bulk_at != lane->bulk_end ? bulk_of(lane, lane->bulk_at) : NULL;
}

bool wf_tcp_ack_is_due(const struct tcp_lane *lane)
{
    return lane->taken != lane->told || lane->unreplied != lane->unreplied_told;
}

/* No frame carries these but ACK. */
static bool returns_are_urgent(const struct tcp_lane *lane)
{
    return wf_tcp_past(lane->unreplied_told, lane->unreplied) >= TCP_REPLY_ROOM / 4;
}

bool wf_tcp_ack_is_urgent(const struct tcp_lane *lane)
{
    return wf_tcp_past(lane->told, lane->taken) >= 256 ||
           (lane->taken_bytes >= 16384 && lane->taken != lane->told) || returns_are_urgent(lane);
}

bool wf_tcp_has_unsent(const struct tcp_lane *lane)
{
    return lane->sent != lane->head || wf_tcp_seal_has_unsent(lane) ||
           lane->bulk_at != lane->bulk_end || lane->control_sent != lane->control_len;
}

static void control_ack(struct tcp_lane *lane)
{
    struct wf_tcp_frame f = {.ack = lane->taken, .room = lane->unreplied, .kind = WF_TCP_ACK};
    memcpy(lane->control, &f, sizeof f);
    lane->control_len = sizeof f;
    lane->control_sent = 0;
}

static void told(struct tcp_lane *lane)
{
    lane->told = lane->taken;
    lane->taken_bytes = 0;
}

/* Pieces of one write, in this order. */
struct batch {
    struct iovec v[6]; /* [n] */
    unsigned n;
    size_t control, ring; /* bytes */
    const void *payload;
    size_t payload_len, padding;
    struct tcp_bulk *held; /* whose payload it is */
};

static void batch_add(struct batch *b, const void *bytes, size_t len)
{
    if (len)
        b->v[b->n++] = (struct iovec){(void *)(uintptr_t)bytes, len};
}

static void batch_ring(struct batch *b, const struct tcp_lane *lane, uint32_t end)
{
    size_t offset = lane->sent & lane->mask, whole = (size_t)lane->mask + 1 - offset;
    b->ring = wf_tcp_past(lane->sent, end);
    batch_add(b, lane->ring + offset, WF_MIN(b->ring, whole));
    if (b->ring > whole)
        batch_add(b, lane->ring, b->ring - whole);
}

static uint32_t bulk_head_end(const struct tcp_bulk *bulk)
{
    return bulk->at + wf_tcp_head_size(bulk->bulk.nargs);
}

/* The payload is nowhere any more. If nothing of the frame is on this socket: a request becomes
 * VOID, a reply one without payload, which tells who waits for it; true. */
static bool bulk_void(struct tcp_lane *lane, struct tcp_bulk *bulk)
{
    struct wf_tcp_frame *f = wf_tcp_frame_at(lane, bulk->at);
    if (lane->at == bulk->at && lane->sent != lane->at)
        return false;
    if (is_reply(f->kind)) {
        f->kind = WF_TCP_REPLY;
    } else {
        lane->reserved -= f->room ? wf_tcp_reply_size(f->room) : 0;
        f->kind = WF_TCP_VOID;
        f->room = 0;
    }
    f->len = 0;
    bulk->bulk.len = 0; /* nor is it on the next socket */
    lane->bulk_at++;
    lane->bulk_sent = 0;
    return true;
}

/* Hold payload of the next bulk frame. False: it is nowhere any more. */
static bool batch_payload(struct batch *b, struct tcp_lane *lane, struct tcp_bulk *bulk)
{
    struct tcp_tep *t = lane->pair->tep;
    uint32_t len = bulk->bulk.len, done = lane->bulk_sent, left = done < len ? len - done : 0;
    size_t n = WF_MIN(left, BULK_WRITE);
    if (left && bulk->lost)
        return false;
    if (left) {
        b->payload = t->base.events->bulk_hold(t->base.owner, &bulk->bulk, done, &n);
        if (!b->payload)
            return false;
        b->held = bulk;
    }
    b->payload_len = n;
    b->padding = n == left ? wf_tcp_padded(len) - WF_MAX(done, len) : 0;
    return true;
}

/* What one write is to take. False: the socket must be given up. */
static bool batch_make(struct batch *b, struct tcp_lane *lane)
{
    struct tcp_bulk *bulk;
    if (lane->control_sent == lane->control_len && lane->at == lane->sent &&
        ((lane->sent == lane->head && wf_tcp_ack_is_due(lane)) || returns_are_urgent(lane)))
        control_ack(lane);
    b->control = lane->control_len - lane->control_sent;
    batch_add(b, lane->control + lane->control_sent, b->control);
    if (!lane->open)
        return true;
    if (lane->at == lane->sent && lane->sent != lane->head)
        wf_tcp_frame_at(lane, lane->at)->ack = lane->taken;
    while ((bulk = bulk_next(lane))) {
        if (!bulk->bulk.len) { /* it became VOID on an earlier socket */
            lane->bulk_at++;
            continue;
        }
        if (batch_payload(b, lane, bulk))
            break;
        if (!bulk_void(lane, bulk))
            return false;
    }
    batch_ring(b, lane, bulk ? bulk_head_end(bulk) : lane->head);
    batch_add(b, b->payload, b->payload_len);
    batch_add(b, zeros, b->padding);
    return true;
}

/* The frame at [lane->at] is wholly on the socket. */
static void frame_written(struct tcp_lane *lane, uint32_t size)
{
    lane->at += size;
    lane->written++;
    if ((int32_t)wf_tcp_past(lane->reached, lane->written) > 0)
        lane->reached = lane->written;
}

/* Ring bytes up to [lane->sent] are out; [bulk]: whose payload is not. */
static void frames_pass(struct tcp_lane *lane)
{
    const struct tcp_bulk *bulk = bulk_next(lane);
    while (lane->at != lane->sent) {
        uint32_t size = wf_tcp_ring_size_of(wf_tcp_frame_at(lane, lane->at));
        if (size > wf_tcp_past(lane->at, lane->sent) || (bulk && bulk->at == lane->at))
            return;
        frame_written(lane, size);
    }
}

/* [n] bytes of [b] are out. */
static void batch_done(struct batch *b, struct tcp_lane *lane, size_t n)
{
    size_t part = WF_MIN(n, b->control);
    struct tcp_bulk *bulk = bulk_next(lane);
    lane->control_sent += (uint32_t)part;
    if (part && part == b->control) {
        struct wf_tcp_frame f;
        memcpy(&f, lane->control, sizeof f); /* ACK or SYNC */
        lane->unreplied_told = f.room;
        if (f.ack == lane->taken)
            told(lane);
    }
    n -= part;
    part = WF_MIN(n, b->ring);
    if (part && lane->at == lane->sent)
        told(lane); /* its ack says so */
    lane->sent += (uint32_t)part;
    n -= part;
    if (bulk && n) {
        lane->bulk_sent += (uint32_t)n;
        if (lane->bulk_sent == wf_tcp_padded(bulk->bulk.len)) {
            lane->bulk_at++;
            lane->bulk_sent = 0;
        }
    }
    frames_pass(lane);
}

static ssize_t batch_write(struct tcp_lane *lane, struct batch *b)
{
    struct msghdr m = {.msg_iov = b->v, .msg_iovlen = b->n};
    ssize_t n;
    WF_HOOK("tcp.write");
    if (wf_tcp_is_wired(lane))
        n = lane->pair->tep->wires->write(lane->wire, b->v, b->n, b->held ? b->payload : NULL);
    else if (lane->seal)
        n = wf_tcp_seal_write(lane, b->v, b->n);
    else if (b->n == 1)
        n = send(lane->fd, b->v[0].iov_base, b->v[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        n = sendmsg(lane->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n;
}

/* The socket takes no more, and its other end hears so; what that had sent is read first. */
static void fall_deaf(struct tcp_lane *lane)
{
    lane->deaf = true;
    lane->blocked = false; /* EPOLLOUT would be always */
    (void)shutdown(lane->fd, SHUT_WR);
}

/* The kernel found nothing mapped there. A reply's memory is a region that others name: they get an
 * error. A request's was lent by a call of this program, whose operation has no other
 * end. True: go on writing. */
static bool payload_gone(struct tcp_lane *lane, struct tcp_bulk *bulk)
{
    if (is_reply(wf_tcp_frame_at(lane, bulk->at)->kind)) {
        bulk->lost = true;
        return true;
    }
    wf_error("memory that was lent to a message or put of %u bytes was unmapped meanwhile: its "
             "peer is given up",
             bulk->bulk.len);
    lane->faulted = true;
    fall_deaf(lane);
    return false;
}

/* One write. True: there may be more to write and the socket may take it. */
static bool flush_once(struct tcp_lane *lane)
{
    struct tcp_tep *t = lane->pair->tep;
    struct batch b = {.n = 0};
    size_t want = 0;
    bool ok = batch_make(&b, lane);
    ssize_t n = 0;
    int error;
    for (unsigned i = 0; i < b.n; i++)
        want += b.v[i].iov_len;
    if (ok && (want || wf_tcp_seal_has_unsent(lane)))
        n = batch_write(lane, &b);
    error = errno;
    if (b.held)
        t->base.events->bulk_unhold(t->base.owner, &b.held->bulk);
    if (!ok) { /* the payload went away half sent: another socket is needed */
        fall_deaf(lane);
        return false;
    }
    if (n < 0 && error == EFAULT && b.held)
        return payload_gone(lane, b.held);
    if (n < 0 && error != EAGAIN && error != EINTR) {
        lane->was_silent |= wf_tcp_is_silence(error); /* reading will not say so again */
        fall_deaf(lane);
        return false;
    }
    if (n > 0) {
        wf_tcp_count(t, WF_STAT_TCP_BYTES_SENT, (uint64_t)n);
        batch_done(&b, lane, (size_t)n);
    }
    if (lane->seal)
        lane->blocked = wf_tcp_seal_has_unsent(lane);
    else
        lane->blocked = want && (size_t)WF_MAX(n, 0) < want;
    return want && !lane->blocked && lane->open && wf_tcp_has_unsent(lane);
}

void wf_tcp_flush(struct tcp_lane *lane)
{
    wf_list_remove(&lane->dirty);
    if (lane->fd < 0 || lane->deaf || !lane->up)
        return;
    for (int i = 0; i < WRITES && flush_once(lane); i++)
        ;
    if (lane->fd < 0 || lane->deaf)
        return;
    lane->pair->sent_ns = wf_now_ns();
    if (wf_tcp_has_unsent(lane) && (lane->open || lane->control_sent != lane->control_len))
        wf_tcp_dirty(lane); /* tried again at the next poll; asleep, EPOLLOUT tells */
}

void wf_tcp_dirty(struct tcp_lane *lane)
{
    if (wf_list_empty(&lane->dirty))
        wf_list_append(&lane->pair->tep->dirty, &lane->dirty);
}

/* The usual case of a wire: one short frame, whole in the ring, and nothing else. False: nothing
 * was done. */
static bool frame_send(struct tcp_lane *lane)
{
    struct tcp_tep *t = lane->pair->tep;
    struct wf_tcp_frame *f = wf_tcp_frame_at(lane, lane->sent);
    uint32_t n = wf_tcp_past(lane->sent, lane->head), offset = lane->sent & lane->mask;
    if (!wf_tcp_is_wired(lane) || lane->at != lane->sent || lane->bulk_at != lane->bulk_end ||
        lane->control_sent != lane->control_len || lane->deaf || wf_tcp_ring_size_of(f) != n ||
        n > lane->mask + 1 - offset || returns_are_urgent(lane))
        return false;
    f->ack = lane->taken;
    WF_HOOK("tcp.write");
    if (!t->wires->send(lane->wire, f, n))
        return false;
    wf_tcp_count(t, WF_STAT_TCP_BYTES_SENT, n);
    told(lane);
    lane->sent += n;
    frame_written(lane, n);
    return true;
}

void wf_tcp_flush_soon(struct tcp_lane *lane)
{
    struct tcp_pair *pair = lane->pair;
    uint32_t unsent = wf_tcp_past(lane->sent, lane->head), polls = pair->tep->polls;
    if (lane->fd < 0 || !lane->open)
        return;
    if (pair->burst_poll != polls) {
        pair->burst_poll = polls;
        pair->burst = 0;
    }
    /* What is timed is when the last one of a burst left. */
    if (pair->burst < PROMPT - 1 && !lane->blocked && frame_send(lane)) {
        pair->burst++;
        return;
    }
    if ((pair->burst++ < PROMPT && !lane->blocked) || (unsent >= BATCH && !lane->blocked) ||
        (wf_list_empty(&lane->dirty) && wf_now_ns() - pair->sent_ns > QUIET_NS))
        wf_tcp_flush(lane);
    else
        wf_tcp_dirty(lane);
}

/* One round: a lane that stays dirty is not tried twice. */
void wf_tcp_flush_all(struct tcp_tep *t)
{
    struct wf_list round;
    wf_list_init(&round);
    while (!wf_list_empty(&t->dirty)) {
        struct wf_list *it = t->dirty.next;
        wf_list_remove(it);
        wf_list_append(&round, it);
    }
    while (!wf_list_empty(&round))
        wf_tcp_flush(wf_container_of(round.next, struct tcp_lane, dirty));
}
