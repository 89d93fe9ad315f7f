/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel's life: its sockets come and go, its frames stay until they are taken. */
#define _GNU_SOURCE
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/net/net.h"

/* Frames that a channel can hold unacknowledged: no ring is as large as 16 times this. */
#define FRAMES_MAX ((uint32_t)1 << 24)
/* Handshake and SYNC of a connection, sealed or not, are less: 184 + 48 + 48 + 2 * 20 bytes. */
#define SHORT_SENT 512u
#define REWIRE_NS ((uint64_t)10000000000) /* until a wire is tried again, doubled each time */
#define REWIRES 5
#define NEXT_RAIL_NS 500000000u
#define GEN_STEP 65536u /* further ahead is no honest generation */

static uint32_t power_of_two(uint64_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

struct net_chan *wf_net_session_chan(struct net_session *session, unsigned index)
{
    uint32_t size = power_of_two(wf_config()->tcp_send + NET_REPLY_ROOM);
    struct net_chan *chan = session->chans[index];
    if (chan)
        return chan;
    chan = calloc(1, sizeof *chan);
    if (!chan || !(chan->ring = aligned_alloc(64, size))) {
        free(chan);
        return NULL;
    }
    chan->session = session;
    chan->fd = -1;
    chan->index = (uint16_t)index;
    chan->mask = size - 1;
    chan->request_room = size - NET_REPLY_ROOM - 64; /* BYE always fits */
    wf_list_init(&chan->live);
    wf_list_init(&chan->dirty);
    session->chans[index] = chan;
    session->nchans = WF_MAX(session->nchans, index + 1);
    return chan;
}

bool wf_net_fd_note(struct net_ctx *ctx, int fd)
{
    int *more = wf_array_grow(ctx->fds, ctx->nfds, &ctx->fds_room, sizeof *more);
    if (!more)
        return false;
    ctx->fds = more;
    ctx->fds[ctx->nfds++] = fd;
    return true;
}

void wf_net_fd_forget(struct net_ctx *ctx, int fd)
{
    pthread_mutex_lock(&ctx->lock);
    for (unsigned i = 0; i < ctx->nfds; i++)
        if (ctx->fds[i] == fd) {
            ctx->fds[i] = ctx->fds[--ctx->nfds];
            break;
        }
    pthread_mutex_unlock(&ctx->lock);
}

/* Stop using the socket; returns it. A forked child may hold a copy, so that close alone
 * would neither unwatch nor end it. */
static int socket_leave(struct net_chan *chan)
{
    int fd = chan->fd;
    struct net_ep *t = chan->session->tep;
    wf_list_remove(&chan->live);
    t->nlive--;
    wf_net_fd_forget(t->ctx, fd);
    (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    t->nshaking -= wf_net_is_shaking(chan);
    t->nplain -= chan->plain;
    if (chan->link)
        t->wires->close(chan->link);
    wf_list_remove(&chan->dirty);
    chan->link = NULL;
    chan->up = chan->plain = chan->leaves = false;
    chan->fd = -1;
    chan->synced = chan->open = chan->deaf = false;
    chan->blocked = chan->watches_out = false;
    free(chan->stash); /* what was not whole comes again */
    chan->stash = NULL;
    chan->stash_len = 0;
    chan->bulk.frame.kind = 0;
    return fd;
}

void wf_net_chan_linger(struct net_chan *chan)
{
    if (wf_net_is_wired(chan) && chan->up)
        chan->session->tep->wires->settle(chan->link);
    if (chan->fd >= 0)
        wf_conn_mgr_linger(chan->session->tep->ctx->mgr, socket_leave(chan));
    wf_crypt_close(chan);
}

void wf_net_chan_turn_away(struct net_chan *chan)
{
    if (chan->fd >= 0)
        wf_net_turn_away(chan->session->tep->ctx, socket_leave(chan), wf_crypt_out(chan));
    wf_crypt_close(chan);
}

static void socket_drop(struct net_chan *chan)
{
    int fd = chan->fd;
    if (fd < 0)
        return;
    (void)socket_leave(chan);
    wf_crypt_close(chan);
    (void)shutdown(fd, SHUT_RDWR);
    close(fd);
}

void wf_net_chan_free(struct net_chan *chan)
{
    struct net_ep *t = chan->session->tep;
    if (chan->dial)
        wf_conn_mgr_cancel(t->ctx->mgr, chan->dial);
    socket_drop(chan);
    if (t->wires)
        t->wires->broken(chan, false);
    free(chan->ring);
    free(chan->bulks);
    chan->ring = NULL;
    chan->bulks = NULL;
    chan->session->chans[chan->index] = NULL;
    chan->session = NULL;
    wf_list_append(&t->grave, &chan->live);
}

static uint32_t gen_step(const struct net_chan *chan)
{
    uint32_t rails = chan->session->tep->rails, past;
    if (!chan->gen || rails < 2 || chan->rail_wish == WF_RAIL_NEXT)
        return 1;
    if (chan->rail_wish < WF_RAIL_TO)
        return rails;
    past = (chan->index + chan->gen - 1 + rails + WF_RAIL_TO - chan->rail_wish) % rails;
    return rails - past;
}

void wf_net_chan_dial(struct net_chan *chan, uint32_t delay_ms)
{
    struct net_session *session = chan->session;
    struct net_ep *t = session->tep;
    struct wf_dial call = {.from = t->address,
                           .to = session->known.address,
                           .from_contact = *wf_conn_mgr_contact(t->ctx->mgr),
                           .to_contact = session->contact,
                           .lane = chan->index,
                           .gen = chan->gen + gen_step(chan),
                           .delay_ms = delay_ms,
                           .patience_ms =
                               (uint32_t)wf_config()->peer_timeout_ms / (chan->was_silent ? 2 : 1)};
    if (chan->dial || chan->fd >= 0 || chan->bye || session->status != WEFT_OK)
        return;
    chan->dial = wf_conn_mgr_dial(t->ctx->mgr, &call);
    if (chan->dial)
        return;
    if (!t->undialled)
        wf_error("no memory to connect to process %u: tried again",
                 session->known.address.process.pid);
    t->undialled = true;
}

/* Everything from the tail on is written again. */
static void rewind_out(struct net_chan *chan)
{
    chan->at = chan->sent = chan->tail;
    chan->written = chan->first;
    chan->bulk_at = chan->bulk_first;
    chan->bulk_sent = 0;
    chan->control_len = chan->control_sent = 0;
}

/* Did the other end's kernel take no more of this socket than the handshake and SYNC? */
static bool took_nothing_long(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
           info.tcpi_bytes_acked <= SHORT_SENT;
}

bool wf_net_chan_is_stuck(struct net_chan *chan)
{
    bool again = chan->was_stuck && chan->stuck_at == chan->first;
    chan->was_stuck = chan->synced && !wf_net_is_wired(chan) && chan->first != chan->next &&
                      took_nothing_long(chan->fd);
    chan->stuck_at = chan->first;
    return again && chan->was_stuck;
}

void wf_net_chan_break(struct net_chan *chan, const char *why)
{
    struct net_session *session = chan->session;
    if (chan->fd < 0)
        return;
    wf_debug("connection %u of lane %u to endpoint %u of process %u broke: %s", chan->gen,
             chan->index, session->known.address.ep, session->known.address.process.pid, why);
    wf_net_count(session->tep, WF_STAT_TCP_BREAKS, 1);
    socket_drop(chan);
    rewind_out(chan);
    if (!session->tep->closing || wf_net_has_unsent(chan))
        wf_net_chan_dial(chan, session->is_greater ? 0 : NET_LATER_MS);
}

/* ---- a new socket ---- */

/* Is [conn]'s socket a later one than the one there is or was? */
static bool is_higher(const struct net_chan *chan, const struct wf_net_conn *conn)
{
    return conn->gen != chan->gen && conn->gen - chan->gen <= GEN_STEP;
}

bool wf_net_epoll_make(struct net_ep *t)
{
    struct epoll_event ev = {.events = EPOLLIN};
    if (t->epoll_fd >= 0)
        return true;
    t->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    if (t->epoll_fd < 0)
        return false;
    if (!epoll_ctl(t->outer_fd, EPOLL_CTL_ADD, t->epoll_fd, &ev))
        return true;
    close(t->epoll_fd);
    t->epoll_fd = -1;
    return false;
}

static bool rx_make(struct net_ep *t)
{
    if (!t->rx)
        t->rx = aligned_alloc(64, NET_RX_SIZE);
    return t->rx;
}

static bool socket_watch(struct net_chan *chan, int fd)
{
    struct net_ep *t = chan->session->tep;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = chan};
    return rx_make(t) && wf_net_epoll_make(t) && !epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

static void sync_say(struct net_chan *chan)
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

static void begin(struct net_chan *chan)
{
    chan->up = true;
    wf_net_chan_fed(chan);
    chan->open = !chan->reached;
    sync_say(chan);
    wf_net_flush(chan);
}

static void plain_begin(struct net_chan *chan)
{
    struct net_ep *t = chan->session->tep;
    chan->plain = true;
    t->nplain++;
    chan->rewire_ns = wf_now_ns() + (chan->next_rail ? NEXT_RAIL_NS
                                                     : REWIRE_NS << WF_MIN(chan->rewires, REWIRES));
    begin(chan);
}

void wf_net_chan_shaken(struct net_chan *chan, bool plain)
{
    struct net_ep *t = chan->session->tep;
    /* Who calls chooses the rail; the other does something about it if that one does not. */
    unsigned patience = chan->returns + !chan->session->is_greater;
    t->nshaking--;
    t->wires->broken(chan, true);
    if (!plain) {
        chan->next_rail = false;
        chan->rewire_ns = wf_now_ns() + (REWIRE_NS << WF_MIN(patience, REWIRES));
        begin(chan);
        return;
    }
    t->wires->close(chan->link);
    chan->link = NULL;
    if (!chan->plain)
        plain_begin(chan);
}

static void link_begin(struct net_chan *chan)
{
    struct net_ep *t = chan->session->tep;
    chan->link = t->wires->open(chan);
    if (!chan->link) {
        wf_net_chan_break(chan, strerror(errno));
        return;
    }
    t->nshaking++;
    if (t->wires->says_plain(chan->link))
        plain_begin(chan);
}

void wf_net_chan_adopt(struct net_chan *chan, struct wf_net_conn *conn)
{
    struct net_session *session = chan->session;
    if (conn->dialled && conn->dial == chan->dial)
        chan->dial = 0;
    if (!is_higher(chan, conn)) {
        if (!conn->dialled)
            chan->dial = 0; /* the connection manager has ended that connect-back */
        wf_net_conn_close(session->tep, conn);
        if (chan->fd < 0)
            wf_net_chan_dial(chan, NET_LATER_MS);
        return;
    }
    socket_drop(chan);
    rewind_out(chan);
    chan->gen = conn->gen;
    chan->rail_wish = WF_RAIL_SAME;
    chan->was_silent = false;
    if (chan->dial) {
        wf_conn_mgr_cancel(session->tep->ctx->mgr, chan->dial);
        chan->dial = 0;
    }
    if ((conn->encrypted && !wf_crypt_open(chan, conn)) || !socket_watch(chan, conn->fd)) {
        wf_crypt_close(chan);
        wf_error("cannot use a connection: %m");
        wf_net_conn_close(session->tep, conn);
        wf_net_chan_dial(chan, NET_LATER_MS);
        return;
    }
    chan->fd = conn->fd;
    wf_net_conn_free(conn);
    wf_list_append(&session->tep->live, &chan->live);
    session->tep->nlive++;
    wf_net_count(session->tep, WF_STAT_CONNECTIONS, 1);
    WF_HOOK("tcp.adopt");
    if (session->tep->wires)
        link_begin(chan);
    else
        begin(chan);
}

/* ---- what the other side says of this direction ---- */

void wf_net_chan_fed(struct net_chan *chan)
{
    if (!chan->starved)
        return;
    chan->starved = false;
    chan->session->tep->events++;
}

enum weft_status wf_net_chan_acked(struct net_chan *chan, uint32_t ack)
{
    uint32_t n = wf_net_past(chan->first, ack);
    if ((int32_t)n <= 0)
        return WEFT_OK; /* old news */
    if (n > wf_net_past(chan->first, chan->reached))
        return WEFT_EPROTO;
    while (n--) {
        bool unwritten = chan->at == chan->tail;
        if (unwritten && chan->synced) /* only SYNC may say that it came by an earlier socket */
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
    wf_net_chan_fed(chan);
    return WEFT_OK;
}

enum weft_status wf_net_chan_sync(struct net_chan *chan, const struct wf_net_frame *f,
                                  const struct wf_net_sync *sync)
{
    struct net_session *session = chan->session;
    enum weft_status status;
    if ((sync->yours && sync->yours != session->number) ||
        (session->theirs && sync->session != session->theirs))
        return WEFT_EPEER; /* one of the two gave the other up and forgot it */
    if (chan->synced || !sync->session || sync->zero ||
        wf_net_past(sync->first, sync->next) > FRAMES_MAX ||
        wf_net_past(sync->first, chan->taken) > wf_net_past(sync->first, sync->next) ||
        (int32_t)wf_net_past(chan->first, f->ack) < 0)
        return WEFT_EPROTO;
    session->theirs = sync->session;
    status = wf_net_chan_acked(chan, f->ack);
    if (status == WEFT_OK)
        status = wf_net_chan_returned(chan, f->room);
    if (status != WEFT_OK)
        return status;
    chan->synced = true;
    if (!chan->open)
        wf_net_count(session->tep, WF_STAT_TCP_REPLAYED, wf_net_past(chan->first, chan->reached));
    chan->open = true;
    wf_net_dirty(chan);
    return WEFT_OK;
}
