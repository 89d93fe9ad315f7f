/* SPDX-License-Identifier: BSD-3-Clause */
/* From a socket to the core. Every read goes to the endpoint's one buffer, or, while a bulk
 * frame's payload is due, to where the core says that it belongs and only what is
 * behind it to the buffer. What is left of an incomplete frame is kept in the
 * lane's stash until the next read. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/log.h"
#include "mem/lent.h"
#include "transport/tcp/tcp.h"

#define READ_MAX ((size_t)131072)   /* of small frames in one read */
#define BULK_READ ((size_t)1 << 20) /* of payload in one read */
#define WIRE_READS 20               /* short ones at a time */
#define BEHIND_READ                                                                                \
    ((size_t)4096) /* of what follows it: not the next payload, which would be                     \
                    * copied twice */

_Static_assert(TCP_RX_SIZE >= READ_MAX + 2 * (WF_TCP_AM_MAX + 128), "a stash fits in front");

/* ---- delivery ---- */

static void token_fill(struct tcp_token *token, struct tcp_lane *lane, const struct wf_tcp_frame *f,
                       bool is_reply)
{
    struct tcp_pair *pair = lane->pair;
    *token = (struct tcp_token){
        .base = {.tep = &pair->tep->base, .conn = &pair->conn}, .lane = lane, .room = f->room};
    if (is_reply) {
        token->base.tpeer = wf_tcp_pair_peer(pair);
    } else if (f->room) {
        token->base.can_reply = 1;
        token->base.reply_room = f->room - 1;
    }
}

/* A reply, or word that there is none, gives back its place. */
static bool reservation_end(struct tcp_lane *lane, uint32_t room)
{
    if (wf_tcp_reply_size(room) > lane->reserved)
        return false;
    lane->reserved -= wf_tcp_reply_size(room);
    wf_tcp_lane_fed(lane);
    return true;
}

/* May this request be taken: does its reply fit? Its sender counts, too. */
static bool request_fits(const struct tcp_lane *lane, const struct wf_tcp_frame *f)
{
    return !f->room || wf_tcp_has_room(lane, wf_tcp_reply_size(f->room), true);
}

static void deliver(struct tcp_lane *lane, const struct wf_tcp_frame *f, const uint32_t *args,
                    const void *data, uint64_t long_len)
{
    struct tcp_tep *t = lane->pair->tep;
    bool is_reply = f->kind == WF_TCP_REPLY || f->kind == WF_TCP_BULK_REPLY;
    uint64_t serial = t->token.base.serial + 1;
    struct weft_am am = {.data = data,
                         .len = data ? f->len : 0,
                         .args = args,
                         .nargs = f->nargs,
                         .handler = f->handler,
                         .is_reply = is_reply,
                         .reply_max = is_reply ? 0 : f->room,
                         .long_len = long_len,
                         .token = &t->token,
                         .serial = serial};
    token_fill(&t->token, lane, f, is_reply);
    t->token.base.serial = serial;
    am.can_reply = t->token.base.can_reply;
    if (!t->closing) { /* else nobody is there to take it */
        wf_tcp_count(t, is_reply ? WF_STAT_REPLIES_RECEIVED : WF_STAT_REQUESTS_RECEIVED, 1);
        t->base.events->deliver(t->base.owner, &am);
    }
    t->token.base.serial++;
    if (t->token.base.can_reply)
        lane->unreplied += wf_tcp_reply_size(f->room);
    t->events++;
}

/* ---- bulk ---- */

static struct wf_bulk bulk_in(const struct tcp_lane *lane, struct tcp_token *token)
{
    const struct wf_tcp_frame *f = &lane->bulk.frame;
    return (struct wf_bulk){.args = lane->bulk.args,
                            .len = f->len,
                            .nargs = f->nargs,
                            .handler = f->handler,
                            .is_reply = f->kind == WF_TCP_BULK_REPLY,
                            .token = &token->base};
}

/* Where the next payload bytes go; null: nowhere. */
static void *bulk_hold(struct tcp_lane *lane, struct tcp_token *token, struct wf_bulk *bulk,
                       size_t *n)
{
    struct tcp_tep *t = lane->pair->tep;
    void *to = NULL;
    token_fill(token, lane, &lane->bulk.frame, lane->bulk.frame.kind == WF_TCP_BULK_REPLY);
    *bulk = bulk_in(lane, token);
    lane->bulk.lost |= t->closing;
    if (!lane->bulk.lost)
        to = t->base.events->bulk_hold(t->base.owner, bulk, lane->bulk.got, n);
    lane->bulk.lost |= !to;
    return to;
}

static void bulk_unhold(struct tcp_lane *lane, const struct wf_bulk *bulk)
{
    struct tcp_tep *t = lane->pair->tep;
    t->base.events->bulk_unhold(t->base.owner, bulk);
}

/* Does payload, too? */
static bool goes_through_buffer(const struct tcp_lane *lane)
{
    return lane->seal || wf_tcp_is_wired(lane);
}

/* [n] bytes of payload that were in the buffer already. */
static void bulk_copy(struct tcp_lane *lane, const uint8_t *bytes, size_t n)
{
    while (n) {
        struct tcp_token token;
        struct wf_bulk bulk;
        size_t part = n;
        void *to = bulk_hold(lane, &token, &bulk, &part);
        if (to) {
            if (goes_through_buffer(lane))
                lane->bulk.lost |= !wf_lent_write(to, bytes, part);
            else
                memcpy(to, bytes, part);
            bulk_unhold(lane, &bulk);
        } else {
            part = n;
        }
        lane->bulk.got += (uint32_t)part;
        bytes += part;
        n -= part;
    }
}

static enum weft_status bulk_end(struct tcp_lane *lane)
{
    struct wf_tcp_frame f = lane->bulk.frame;
    if (f.kind == WF_TCP_BULK_REPLY && !reservation_end(lane, f.room))
        return WEFT_EPROTO;
    lane->taken++;
    lane->bulk.frame.kind = 0;
    deliver(lane, &f, lane->bulk.args, NULL, lane->bulk.lost ? 0 : f.len);
    return WEFT_OK;
}

/* As many of [len] bytes as are this payload's and its padding's; ends it with the last.
 * Returns bytes used. */
static size_t bulk_take(struct tcp_lane *lane, const uint8_t *bytes, size_t len,
                        enum weft_status *status)
{
    uint32_t left = lane->bulk.frame.len - lane->bulk.got;
    size_t n = WF_MIN(len, left), pad;
    bulk_copy(lane, bytes, n);
    pad = WF_MIN(len - n, lane->bulk.skip);
    if (n == left) {
        lane->bulk.skip -= (uint32_t)pad;
        if (!lane->bulk.skip)
            *status = bulk_end(lane);
    } else {
        pad = 0;
    }
    return n + pad;
}

static void bulk_begin(struct tcp_lane *lane, const struct wf_tcp_frame *f, const uint8_t *bytes)
{
    lane->bulk.frame = *f;
    memcpy(lane->bulk.args, bytes + sizeof *f, 4u * f->nargs);
    lane->bulk.got = 0;
    lane->bulk.skip = wf_tcp_padded(f->len) - f->len;
    lane->bulk.lost = false;
}

/* ---- frames ---- */

/* *bye_lanes is set by BYE. OK | EPROTO */
static enum weft_status frame_take(struct tcp_lane *lane, const struct wf_tcp_frame *f,
                                   const uint8_t *bytes, uint32_t *bye_lanes)
{
    uint32_t args[WEFT_AM_MAX_ARGS];
    switch (f->kind) {
    case WF_TCP_REPLY:
        if (!reservation_end(lane, f->room))
            return WEFT_EPROTO;
        break;
    case WF_TCP_REQUEST:
        if (!request_fits(lane, f))
            return WEFT_EPROTO;
        break;
    case WF_TCP_VOID: lane->taken++; return WEFT_OK;
    case WF_TCP_BYE:
        if (!f->nargs)
            return WEFT_EPROTO;
        memcpy(bye_lanes, bytes + sizeof *f, sizeof *bye_lanes);
        if (*bye_lanes >> WF_TCP_LANES_MAX || !(*bye_lanes >> lane->index & 1))
            return WEFT_EPROTO;
        lane->taken++;
        lane->bye = true;
        return WEFT_OK;
    default: return wf_tcp_lane_returned(lane, f->room); /* ACK */
    }
    lane->taken++;
    memcpy(args, bytes + sizeof *f, 4u * f->nargs);
    deliver(lane, f, args, bytes + wf_tcp_head_size(f->nargs), 0);
    return WEFT_OK;
}

static enum weft_status sync_take(struct tcp_lane *lane, const struct wf_tcp_frame *f,
                                  const uint8_t *bytes)
{
    struct wf_tcp_sync sync;
    if (f->kind == WF_TCP_BYE) /* it has given this endpoint up */
        return WEFT_EPEER;
    if (f->kind != WF_TCP_SYNC)
        return WEFT_EPROTO;
    memcpy(&sync, bytes + sizeof *f, sizeof sync);
    return wf_tcp_lane_sync(lane, f, &sync);
}

/* The frames among [have] bytes; *used of them. OK: what is left is not a whole frame. */
static enum weft_status frames_take(struct tcp_lane *lane, const uint8_t *bytes, size_t have,
                                    size_t *used, uint32_t *bye_lanes)
{
    enum weft_status status = WEFT_OK;
    size_t at = 0;
    while (have - at >= sizeof(struct wf_tcp_frame) && status == WEFT_OK) {
        struct wf_tcp_frame f;
        uint32_t head;
        if (lane->bulk.frame.kind) {
            at += bulk_take(lane, bytes + at, have - at, &status);
            continue;
        }
        status = wf_tcp_frame_parse(bytes + at, &f);
        if (status != WEFT_OK)
            break;
        head = wf_tcp_head_size(f.nargs);
        if (have - at < head ||
            (!wf_tcp_is_bulk(f.kind) && have - at - head < wf_tcp_padded(f.len)))
            break;
        if (!lane->synced) {
            status = sync_take(lane, &f, bytes + at);
        } else if (f.kind == WF_TCP_SYNC || (lane->bye && wf_tcp_is_counted(f.kind))) {
            status = WEFT_EPROTO;
        } else {
            status = wf_tcp_lane_acked(lane, f.ack);
            if (status == WEFT_OK && wf_tcp_is_bulk(f.kind)) {
                if (f.kind == WF_TCP_BULK_REQUEST && !request_fits(lane, &f))
                    status = WEFT_EPROTO;
                bulk_begin(lane, &f, bytes + at);
            } else if (status == WEFT_OK) {
                status = frame_take(lane, &f, bytes + at, bye_lanes);
            }
        }
        at += head + (wf_tcp_is_bulk(f.kind) ? 0 : wf_tcp_padded(f.len));
    }
    *used = at;
    return status;
}

static bool stash_keep(struct tcp_lane *lane, const uint8_t *bytes, size_t n)
{
    uint8_t *stash = NULL;
    if (!n && !lane->stash_len)
        return true;
    if (n && !(stash = malloc(n)))
        return false;
    if (n)
        memcpy(stash, bytes, n);
    free(lane->stash);
    lane->stash = stash;
    lane->stash_len = (uint32_t)n;
    return true;
}

/* ---- reading ---- */

/* One read: payload that is due to its place, the rest into the buffer at [at]. Returns what
 * read returns; *direct of that is payload. */
static ssize_t read_once(struct tcp_lane *lane, uint8_t *at, size_t *direct)
{
    struct tcp_token token;
    struct wf_bulk bulk;
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v};
    uint32_t left = lane->bulk.frame.kind ? lane->bulk.frame.len - lane->bulk.got : 0;
    size_t n = WF_MIN(left, BULK_READ);
    void *to = n && !goes_through_buffer(lane) ? bulk_hold(lane, &token, &bulk, &n) : NULL;
    ssize_t got;
    int error;
    *direct = 0;
    if (wf_tcp_is_wired(lane))
        return lane->pair->tep->wires->read(lane->wire, at, READ_MAX);
    if (lane->seal)
        return wf_tcp_seal_read(lane, at, READ_MAX);
    if (!to) { /* of a payload without a place no more than that: frames behind it would lie askew
                */
        got = recv(lane->fd, at, left ? WF_MIN(left + lane->bulk.skip, READ_MAX) : READ_MAX,
                   MSG_DONTWAIT);
        lane->socket_bytes += got > 0 ? (uint32_t)got : 0;
        return got;
    }
    v[m.msg_iovlen++] = (struct iovec){to, n};
    if (n == left)
        v[m.msg_iovlen++] = (struct iovec){at, BEHIND_READ};
    got = recvmsg(lane->fd, &m, MSG_DONTWAIT);
    error = errno;
    bulk_unhold(lane, &bulk);
    errno = error;
    if (got < 0 && error == EFAULT) { /* not mapped, or not writable: it found no place */
        lane->bulk.lost = true;
        errno = EINTR;
    }
    lane->socket_bytes += got > 0 ? (uint32_t)got : 0;
    *direct = got > 0 ? WF_MIN((size_t)got, n) : 0;
    return got;
}

/* What read said, other than bytes. The lane may be gone afterwards. */
static void read_failed(struct tcp_lane *lane, ssize_t got)
{
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    lane->was_silent |= got < 0 && wf_tcp_is_silence(errno);
    if (lane->faulted) { /* tx.c has said why */
        wf_tcp_pair_end(lane->pair, WEFT_EPEER);
        return;
    }
    if (lane->was_silent && wf_tcp_lane_is_stuck(lane)) {
        wf_info("endpoint %u of process %u is lost: connections are made, but nothing long comes "
                "through (an MTU on the way that nobody tells of?)",
                lane->pair->known.address.ep, lane->pair->known.address.process.pid);
        wf_tcp_pair_end(lane->pair, WEFT_EPEER);
        return;
    }
    if (lane->pair->tep->closing && lane->first == lane->next)
        wf_tcp_lane_linger(lane); /* it has all that was said to it, and leaves */
    else
        wf_tcp_lane_break(lane, got ? strerror(errno) : "end of stream");
}

/* Frames begin at multiples of 16 in the buffer, and so payloads do. */
static uint8_t *buffer_start(const struct tcp_lane *lane)
{
    uint32_t skip = lane->bulk.frame.kind ? lane->bulk.skip : 0;
    if (goes_through_buffer(lane) && lane->bulk.frame.kind)
        skip += lane->bulk.frame.len - lane->bulk.got;
    skip %= WF_TCP_ALIGN;
    return lane->pair->tep->rx + (WF_TCP_ALIGN - skip) % WF_TCP_ALIGN;
}

static enum weft_status bytes_take(struct tcp_lane *lane, uint8_t *start, size_t have,
                                   uint32_t *bye_lanes)
{
    size_t used = 0;
    enum weft_status status = WEFT_OK;
    if (lane->bulk.frame.kind) /* also when less is here than a frame's head */
        used = bulk_take(lane, start, have, &status);
    if (status == WEFT_OK) {
        size_t more = 0;
        status = frames_take(lane, start + used, have - used, &more, bye_lanes);
        used += more;
    }
    if (status != WEFT_OK)
        return status;
    if (lane->bulk.frame.kind && have != used) /* fewer than 16 bytes of payload */
        used += bulk_take(lane, start + used, have - used, &status);
    if (status == WEFT_OK && !stash_keep(lane, start + used, have - used))
        wf_tcp_lane_break(lane, "no memory for part of a message");
    return status;
}

static void shake(struct tcp_lane *lane)
{
    struct tcp_pair *pair = lane->pair;
    enum wf_wires_shake how = pair->tep->wires->shake(lane->wire);
    switch (how) {
    case WIRES_MORE: return;
    case WIRES_UP:
    case WIRES_PLAIN: wf_tcp_lane_shaken(lane, how == WIRES_PLAIN); return;
    case WIRES_TURNED_AWAY: wf_tcp_pair_end(pair, WEFT_EPEER); return;
    case WIRES_BROKE: read_failed(lane, errno ? -1 : 0); return;
    default:
        wf_error("endpoint %u of process %u broke the protocol: its connection is closed",
                 pair->known.address.ep, pair->known.address.process.pid);
        wf_tcp_pair_end(pair, WEFT_EPROTO);
    }
}

/* Beside a wire a socket has only its end to tell, or that this side was given up. What came by
 * the wire before is read first. */
static void wired_look(struct tcp_lane *lane)
{
    struct tcp_tep *t = lane->pair->tep;
    struct wf_tcp_frame f;
    ssize_t got = recv(lane->fd, &f, sizeof f, MSG_DONTWAIT);
    int error = errno;
    unsigned turns;
    if (got < 0 && (error == EAGAIN || error == EINTR))
        return;
    turns = t->wires->most_turns(t); /* who took them from the other end promised it this */
    while (turns-- && lane->fd >= 0) {
        if (t->wires->turn(t) <= 0 && (lane->fd < 0 || !t->wires->has_bytes(lane->wire)))
            break;
    }
    if (lane->fd < 0)
        return;
    if (got == sizeof f && f.kind == WF_TCP_BYE && !f.nargs) {
        wf_tcp_pair_end(lane->pair, WEFT_EPEER);
        return;
    }
    errno = got > 0 ? EPROTO : error;
    read_failed(lane, got > 0 ? -1 : got);
}

void wf_tcp_socket_look(struct tcp_lane *lane)
{
    if (wf_tcp_is_shaking(lane))
        shake(lane);
    else if (lane->wire)
        wired_look(lane);
    else
        wf_tcp_read(lane);
}

void wf_tcp_sockets_look(struct tcp_tep *t)
{
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        wf_tcp_socket_look(wf_container_of(it, struct tcp_lane, live));
    }
}

static void read_done(struct tcp_lane *lane, enum weft_status status, uint32_t bye_lanes)
{
    struct tcp_pair *pair = lane->pair;
    if (status == WEFT_EPROTO)
        wf_error("endpoint %u of process %u broke the protocol: its connection is closed",
                 pair->known.address.ep, pair->known.address.process.pid);
    if (status == WEFT_EPEER)
        wf_tcp_lane_turn_away(lane);
    if (status == WEFT_OK && bye_lanes) {
        wf_tcp_flush(lane); /* it waits to hear that its last words came */
        wf_tcp_pair_bye(pair, bye_lanes);
    } else if (status != WEFT_OK)
        wf_tcp_pair_end(pair, status);
    else if (lane->fd >= 0 && wf_tcp_ack_is_urgent(lane))
        wf_tcp_dirty(lane);
}

static void read_count(struct tcp_lane *lane, size_t n)
{
    wf_tcp_count(lane->pair->tep, WF_STAT_TCP_BYTES_RECEIVED, n);
    lane->pair->tep->events++; /* also of payload alone: who waits should not doze off */
    lane->taken_bytes += (uint32_t)n;
    WF_HOOK("tcp.read");
}

/* What came by a wire, as much as can be taken from where it came. True: that was all. */
static bool wire_read(struct tcp_lane *lane)
{
    const struct wf_wires *wires = lane->pair->tep->wires;
    struct wf_wire *w = lane->wire;
    int i;
    for (i = 0; i < WIRE_READS && lane->wire == w && !lane->stash_len && !lane->bulk.frame.kind;
         i++) {
        size_t n;
        uint8_t *start = wires->peek(w, &n);
        uint32_t bye_lanes = 0;
        enum weft_status status;
        if (!start)
            break;
        read_count(lane, n);
        status = bytes_take(lane, start, n, &bye_lanes);
        if (lane->wire == w)
            wires->peeked(w);
        read_done(lane, status, bye_lanes);
    }
    return i && (lane->wire != w || !wires->has_bytes(w));
}

void wf_tcp_read(struct tcp_lane *lane)
{
    uint8_t *start;
    size_t have = lane->stash_len, direct;
    uint32_t bye_lanes = 0; /* not 0: BYE is in what was read now */
    enum weft_status status;
    ssize_t got;
    if (wf_tcp_is_wired(lane) && wire_read(lane))
        return;
    start = buffer_start(lane);
    if (have)
        memcpy(start, lane->stash, have);
    got = read_once(lane, start + have, &direct);
    if (got <= 0) {
        read_failed(lane, got);
        return;
    }
    lane->bulk.got += (uint32_t)direct;
    read_count(lane, (size_t)got);
    status = bytes_take(lane, start, have + (size_t)got - direct, &bye_lanes);
    read_done(lane, status, bye_lanes);
}
