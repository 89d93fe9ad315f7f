/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels. A channel outlives its links: it keeps each frame until the peer acknowledges the
 * frame. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "mem/lent.h"
#include "transport/net/channel.h"

/* A peer whose SYNC states more than FRAMES_MAX unacknowledged frames breaks the protocol: a frame
 * takes at least 16 bytes of the ring, and no ring has 16 * FRAMES_MAX bytes. */
#define FRAMES_MAX ((uint32_t)1 << 24)
/* If the peer follows the protocol, a channel's next connection has a generation at most this much
 * greater than the last connection's generation. */
#define GEN_STEP 65536u
/* From so many links in a row on that came to nothing, the pause is the longest. */
#define PAUSES 8u
/* How long a poll waits for a link to send everything. */
#define SETTLE_NS 2000000u
/* While the endpoint closes, each link may wait at least this long to send everything. */
#define SETTLE_CLOSING_NS 100000u

static void ring_set(struct net_chan *chan, uint8_t *ring, uint32_t size)
{
    free(chan->ring);
    chan->ring = ring;
    chan->mask = size - 1;
    chan->request_room = size - NET_REPLY_ROOM - 64; /* the other 64 bytes are for BYE */
}

/* Offsets stay, so each byte moves to the place that its offset has in the larger ring. What lies
 * together in the smaller ring lies together there, too. */
bool wf_net_ring_grow(struct net_chan *chan)
{
    uint32_t old = chan->mask + 1, size = 2 * old, n;
    uint8_t *ring = NULL;
    if (size <= chan->session->ep->ring_max)
        ring = aligned_alloc(64, size);
    if (!ring)
        return false;
    for (uint32_t at = chan->tail; at != chan->head; at += n) {
        n = WF_MIN(wf_net_past(at, chan->head), old - (at & (old - 1)));
        memcpy(ring + (at & (size - 1)), chan->ring + (at & (old - 1)), n);
    }
    ring_set(chan, ring, size);
    return true;
}

uint32_t wf_net_ring_max(void)
{
    const struct wf_config *c = wf_config();
    return (uint32_t)wf_power_of_two(WF_MAX(c->tcp_send, c->tcp_send_max) + NET_REPLY_ROOM);
}

struct net_chan *wf_net_session_chan(struct net_session *session, unsigned index)
{
    uint32_t size = (uint32_t)wf_power_of_two(wf_config()->tcp_send + NET_REPLY_ROOM);
    uint8_t *ring;
    struct net_chan *chan = session->chans[index];
    if (chan)
        return chan;
    chan = calloc(1, sizeof *chan);
    if (!chan || !(ring = aligned_alloc(64, size))) {
        free(chan);
        return NULL;
    }
    ring_set(chan, ring, size);
    chan->session = session;
    chan->index = (uint16_t)index;
    wf_list_init(&chan->live);
    wf_list_init(&chan->dirty);
    chan->needed = NET_RIDES;
    chan->gap.expected = NET_GAP_FIRST;
    session->chans[index] = chan;
    session->nchans = WF_MAX(session->nchans, index + 1);
    return chan;
}

/* ---- a link's end ---- */

/* Detach the channel's link, and return it. */
static struct net_link *link_leave(struct net_chan *chan)
{
    struct net_link *link = chan->link;
    wf_list_remove(&chan->live);
    chan->session->ep->nlive--;
    wf_list_remove(&chan->dirty);
    chan->link = NULL;
    chan->up = chan->avoid = false;
    chan->synced = chan->open = chan->half_closed = false;
    chan->blocked = false;
    free(chan->stash); /* the peer sends the whole frame again */
    chan->stash = NULL;
    chan->stash_len = 0;
    chan->bulk.frame.kind = 0;
    chan->gap.active = false;
    return link;
}

/* Wait, for a short time, until the link has sent everything. While the endpoint closes, the time
 * of each failed wait is deducted from closing.settle_ns, which all links share. A wait takes at
 * most half of the remaining time, or SETTLE_CLOSING_NS if that is longer. So later links can still
 * wait after many waits have failed. */
void wf_net_chan_settle(struct net_chan *chan)
{
    struct net_closing *c = &chan->session->ep->closing;
    uint64_t begin = wf_now_ns();
    uint64_t within = c->begun ? WF_MAX(c->settle_ns / 2, SETTLE_CLOSING_NS) : SETTLE_NS;
    if (!chan->link->ops->settle(chan->link, within) && c->begun)
        c->settle_ns -= WF_MIN(c->settle_ns, wf_now_ns() - begin);
}

void wf_net_chan_linger(struct net_chan *chan)
{
    struct net_link *link = chan->link;
    if (!link)
        return;
    if (chan->up && link->ops->settle)
        wf_net_chan_settle(chan);
    (void)link_leave(chan);
    link->ops->linger(link);
}

void wf_net_chan_turn_away(struct net_chan *chan)
{
    struct net_link *link = chan->link;
    if (!link)
        return;
    (void)link_leave(chan);
    link->ops->turn_away(link);
}

static void link_drop(struct net_chan *chan)
{
    struct net_link *link = chan->link;
    if (!link)
        return;
    (void)link_leave(chan);
    link->ops->close(link);
}

void wf_net_chan_free(struct net_chan *chan)
{
    struct net_ep *ep = chan->session->ep;
    link_drop(chan); /* link_drop may run the program's handlers, and a handler may dial */
    if (chan->dial)
        wf_conn_mgr_cancel(ep->ctx->mgr, chan->dial);
    if (ep->driver->chan_free)
        ep->driver->chan_free(chan);
    free(chan->ring);
    free(chan->bulks);
    chan->ring = NULL;
    chan->bulks = NULL;
    chan->session->chans[chan->index] = NULL;
    chan->session = NULL;
    wf_list_append(&ep->grave, &chan->live);
}

void wf_net_grave_empty(struct net_ep *ep)
{
    struct wf_list *it;
    while ((it = wf_list_pop(&ep->grave)))
        free(wf_container_of(it, struct net_chan, live));
}

/* ---- dialling ---- */

static uint32_t gen_step(const struct net_chan *chan)
{
    const struct net_driver *driver = chan->session->ep->driver;
    return chan->gen && driver->gen_step ? driver->gen_step(chan) : 1;
}

void wf_net_chan_dial(struct net_chan *chan, uint32_t delay_ms)
{
    struct net_session *session = chan->session;
    struct net_ep *ep = session->ep;
    struct wf_dial dial = {.from = ep->address,
                           .to = session->known.address,
                           .from_contact = *wf_conn_mgr_contact(ep->ctx->mgr),
                           .to_contact = session->contact,
                           .lane = chan->index,
                           .gen = chan->gen + gen_step(chan),
                           .delay_ms = delay_ms,
                           .patience_ms =
                               (uint32_t)wf_config()->peer_timeout_ms / (chan->was_silent ? 2 : 1),
                           .follows = ep->base.events->moved && wf_net_session_is_guess(session)};
    if (chan->dial || chan->link || chan->bye || session->status != WEFT_OK)
        return;
    chan->dial = wf_conn_mgr_dial(ep->ctx->mgr, &dial);
    if (chan->dial)
        return;
    if (!ep->undialled)
        wf_error("no memory to connect to process %u: tried again",
                 session->known.address.process.pid);
    ep->undialled = true;
}

/* Prepare to write all frames to the next link, from the oldest frame that is kept. */
static void rewind_out(struct net_chan *chan)
{
    chan->at = chan->sent = chan->tail;
    chan->written = chan->first;
    chan->bulk_at = chan->bulk_first;
    chan->bulk_sent = 0;
    chan->control_len = chan->control_sent = 0;
}

bool wf_net_chan_is_stuck(struct net_chan *chan)
{
    bool again = chan->was_stuck && chan->stuck_at == chan->first;
    chan->was_stuck =
        chan->synced && chan->first != chan->next && chan->link->ops->is_stuck(chan->link);
    chan->stuck_at = chan->first;
    return again && chan->was_stuck;
}

/* Frames that were taken or acknowledged. */
static uint32_t progress(const struct net_chan *chan)
{
    return chan->first + chan->taken;
}

/* Returns how long to wait before the next dial, after the link has ended. A peer that closes each
 * connection at once, because it has no room for the first message, is not called without a pause.
 */
static uint32_t redial_ms(struct net_chan *chan)
{
    uint32_t most = (uint32_t)WF_MIN(NET_PAUSE_MAX_MS, wf_config()->peer_timeout_ms / 10);
    uint32_t pause = 0;
    bool came_to_nothing = progress(chan) == chan->begun_at &&
                           wf_now_ns() - chan->begun_ns < NET_PAUSE_MAX_MS * UINT64_C(1000000);
    chan->barren = came_to_nothing ? WF_MIN(chan->barren + 1, PAUSES) : 0;
    if (chan->barren > 1)
        pause = WF_MIN(NET_PAUSE_MIN_MS << (chan->barren - 2), most);
    return chan->session->is_greater ? pause : WF_MAX(pause, NET_LATER_MS);
}

void wf_net_chan_break(struct net_chan *chan, const char *why)
{
    struct net_session *session = chan->session;
    uint32_t pause_ms;
    if (!chan->link)
        return;
    wf_debug("connection %u of lane %u to endpoint %u of process %u broke: %s", chan->gen,
             chan->index, session->known.address.ep, session->known.address.process.pid, why);
    wf_net_count(session->ep, WF_STAT_TCP_BREAKS, 1);
    pause_ms = redial_ms(chan);
    link_drop(chan);
    rewind_out(chan);
    if (!session->ep->closing.begun || wf_net_has_unsent(chan))
        wf_net_chan_dial(chan, pause_ms);
}

/* ---- a new link ---- */

/* Does [conn] have a greater generation than the channel's present or last connection? */
static bool is_later(const struct net_chan *chan, const struct wf_net_conn *conn)
{
    return conn->gen != chan->gen && conn->gen - chan->gen <= GEN_STEP;
}

static void sync_send(struct net_chan *chan)
{
    struct {
        struct wf_net_frame frame;
        struct wf_net_sync sync;
    } s = {{.len = sizeof s.sync, .ack = chan->taken, .room = chan->unreplied, .kind = WF_NET_SYNC},
           {.session = chan->session->number,
            .yours = chan->session->theirs,
            .first = chan->first,
            .next = chan->next}};
    _Static_assert(sizeof s == sizeof chan->control, "SYNC fits");
    memcpy(chan->control, &s, sizeof s);
    chan->control_len = sizeof s;
    chan->control_sent = 0;
}

void wf_net_chan_up(struct net_chan *chan)
{
    chan->up = true;
    wf_net_chan_fed(chan);
    chan->open = !chan->reached;
    sync_send(chan);
    wf_net_flush(chan);
}

static bool rx_make(struct net_ep *ep)
{
    if (!ep->rx)
        ep->rx = aligned_alloc(64, NET_RX_SIZE);
    return ep->rx;
}

/* Returns NULL with errno on failure. */
static struct net_link *link_open(struct net_chan *chan, const struct wf_net_conn *conn)
{
    struct net_ep *ep = chan->session->ep;
    if (!rx_make(ep) || !wf_net_epoll_make(ep) || !wf_net_fd_watch(chan, conn->fd))
        return NULL;
    return ep->driver->open(chan, conn);
}

/* Called when the channel has got the connection [conn]. Cancels the dial in progress, unless this
 * dial made [conn]. */
static void dial_end(struct net_chan *chan, const struct wf_net_conn *conn)
{
    if (chan->dial && !(conn->dialled && conn->dial == chan->dial))
        wf_conn_mgr_cancel(chan->session->ep->ctx->mgr, chan->dial);
    chan->dial = 0;
}

static void conn_close(struct net_chan *chan, struct wf_net_conn *conn)
{
    wf_net_fd_close(chan, conn->fd);
    wf_net_conn_free(conn);
    if (!chan->link)
        wf_net_chan_dial(chan, NET_LATER_MS);
}

void wf_net_chan_adopt(struct net_chan *chan, struct wf_net_conn *conn)
{
    struct net_ep *ep = chan->session->ep;
    struct net_link *link;
    if (!is_later(chan, conn)) {
        if (!conn->dialled || conn->dial == chan->dial)
            chan->dial = 0; /* the connection manager ended this dial when [conn] came */
        conn_close(chan, conn);
        return;
    }
    link_drop(chan);
    rewind_out(chan);
    chan->gen = conn->gen;
    chan->was_silent = false;
    dial_end(chan, conn);
    link = link_open(chan, conn);
    if (!link) {
        wf_error("cannot use a connection: %m");
        conn_close(chan, conn);
        return;
    }
    wf_net_conn_free(conn);
    chan->link = link;
    chan->begun_ns = wf_now_ns();
    chan->begun_at = progress(chan);
    chan->empty = false;
    wf_list_append(&ep->live, &chan->live);
    ep->nlive++;
    wf_net_count(ep, WF_STAT_CONNECTIONS, 1);
    WF_HOOK("tcp.adopt");
    link->is_last = ep->closing.begun || chan->session->bye;
    link->ops->start(link);
}

void wf_net_chan_relink(struct net_chan *chan, struct net_link *link)
{
    link->is_last = chan->link->is_last;
    link->synced = chan->link->synced;
    chan->link = link;
}

/* ---- the peer's reports on this side's frames ---- */

void wf_net_chan_fed(struct net_chan *chan)
{
    if (!chan->starved)
        return;
    chan->starved = false;
    chan->session->ep->events++;
}

enum weft_status wf_net_chan_acked(struct net_chan *chan, uint32_t ack)
{
    uint32_t n = wf_net_past(chan->first, ack);
    if ((int32_t)n <= 0)
        return WEFT_OK; /* no newer than the last report */
    if (n > wf_net_past(chan->first, chan->reached))
        return WEFT_EPROTO;
    while (n--) {
        bool unwritten = chan->at == chan->tail;
        /* The link has not taken this frame, so the peer received it by an earlier link. Only SYNC,
         * the first frame on each link, may acknowledge such a frame. */
        if (unwritten && chan->synced)
            return WEFT_EPROTO;
        wf_net_frame_drop(chan);
        if (unwritten) {
            chan->at = chan->sent = chan->tail;
            chan->written++;
        }
    }
    wf_net_chan_fed(chan);
    return WEFT_OK;
}

enum weft_status wf_net_chan_returned(struct net_chan *chan, uint32_t returned)
{
    uint32_t n = wf_net_past(chan->returned, returned);
    if ((int32_t)n <= 0)
        return WEFT_OK;
    if (n > chan->reserved)
        return WEFT_EPROTO;
    chan->returned = returned;
    chan->reserved -= n;
    if (!chan->reserved)
        chan->asked = 0; /* no reply came to some (gather.c) */
    wf_net_chan_fed(chan);
    return WEFT_OK;
}

static bool sync_is_possible(const struct net_chan *chan, const struct wf_net_frame *f,
                             const struct wf_net_sync *sync)
{
    uint32_t kept = wf_net_past(sync->first, sync->next);
    return !chan->synced && sync->session && !sync->zero && kept <= FRAMES_MAX &&
           wf_net_past(sync->first, chan->taken) <= kept &&
           (int32_t)wf_net_past(chan->first, f->ack) >= 0;
}

enum weft_status wf_net_chan_sync(struct net_chan *chan, const struct wf_net_frame *f,
                                  const struct wf_net_sync *sync)
{
    struct net_session *session = chan->session;
    enum weft_status status;
    if ((sync->yours && sync->yours != session->number) ||
        (session->theirs && sync->session != session->theirs)) {
        /* SYNC is of another session: one of the two endpoints has forgotten this session. */
        session->passing = true;
        return WEFT_EPEER;
    }
    if (!sync_is_possible(chan, f, sync))
        return WEFT_EPROTO;
    session->theirs = sync->session;
    status = wf_net_chan_acked(chan, f->ack);
    if (status == WEFT_OK)
        status = wf_net_chan_returned(chan, f->room);
    if (status != WEFT_OK)
        return status;
    chan->synced = chan->link->synced = true;
    if (!chan->open)
        wf_net_count(session->ep, WF_STAT_TCP_REPLAYED, wf_net_past(chan->first, chan->reached));
    chan->open = true;
    wf_net_dirty(chan);
    return WEFT_OK;
}

/* ---- the end of a link or a session ---- */

void wf_net_chan_failed(struct net_chan *chan, int error)
{
    struct net_session *session = chan->session;
    if (error == EAGAIN || error == EINTR)
        return;
    chan->was_silent |= error && wf_net_is_silence(error);
    if (chan->faulted) { /* send.c has logged why */
        wf_net_session_end(session, WEFT_EPEER);
        return;
    }
    if (chan->was_silent && wf_net_chan_is_stuck(chan)) {
        wf_info("endpoint %u of process %u is lost: connections are made, but nothing long comes "
                "through (a link on the way with a smaller MTU that sends no ICMP?)",
                session->known.address.ep, session->known.address.process.pid);
        wf_net_session_end(session, WEFT_EPEER);
        return;
    }
    if (session->ep->closing.begun && chan->first == chan->next)
        wf_net_chan_linger(chan); /* the peer has acknowledged everything, and closes the link */
    else
        wf_net_chan_break(chan, error ? strerror(error) : "end of stream");
}

void wf_net_chan_end(struct net_chan *chan, enum weft_status why)
{
    struct net_session *session = chan->session;
    if (why == WEFT_EPROTO)
        wf_error("endpoint %u of process %u broke the protocol: its connection is closed",
                 session->known.address.ep, session->known.address.process.pid);
    wf_net_session_end(session, why);
}

/* ---- for drivers ---- */

struct net_view wf_net_chan_view(const struct net_chan *chan)
{
    const struct net_session *session = chan->session;
    const struct net_closing *closing = &session->ep->closing;
    return (struct net_view){.peer = &session->known.address,
                             .gen = chan->gen,
                             .ring_bytes = chan->mask,
                             .close_ms = closing->begun ? closing->limit_ms : 0,
                             .index = chan->index,
                             .is_greater = session->is_greater,
                             .up = chan->up,
                             .peer_closes = chan->bye,
                             .is_settled = chan->synced && !chan->half_closed && !chan->bye &&
                                           !chan->faulted && chan->first == chan->next,
                             .is_lost = chan->lost};
}

struct net_link *wf_net_chan_link(const struct net_chan *chan)
{
    return chan->link;
}

void wf_net_chan_writable(struct net_chan *chan)
{
    wf_net_chan_fed(chan);
    if (chan->blocked)
        wf_net_dirty(chan);
}

bool wf_net_chan_lent_read(const struct net_chan *chan, void *to, const void *lent, size_t n)
{
    return chan->session->ep->base.events->bulk_is_foreign ? wf_foreign_read(to, lent, n)
                                                           : wf_lent_read(to, lent, n);
}

bool wf_net_chan_lent_write(const struct net_chan *chan, void *lent, const void *from, size_t n)
{
    return chan->session->ep->base.events->bulk_is_foreign ? wf_foreign_write(lent, from, n)
                                                           : wf_lent_write(lent, from, n);
}

void wf_net_chan_starved(struct net_chan *chan)
{
    chan->starved = true;
    wf_net_count(chan->session->ep, WF_STAT_AGAIN, 1);
}

void wf_net_chan_avoid(struct net_chan *chan, bool avoid)
{
    chan->avoid = avoid;
}

bool wf_net_chan_is_avoided(const struct net_chan *chan)
{
    return chan->avoid;
}

struct net_path **wf_net_chan_path(const struct net_chan *chan)
{
    return &((struct net_chan *)(uintptr_t)chan)->path;
}

struct net_ep *wf_net_chan_ep(const struct net_chan *chan)
{
    return chan->session->ep;
}
