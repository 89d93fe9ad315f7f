/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane's life: its sockets come and go, its frames stay until they are taken. */
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
#include "transport/tcp/tcp.h"

/* Frames that a lane can hold unacknowledged: no ring is as large as 16 times this. */
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

struct tcp_lane *wf_tcp_lane(struct tcp_pair *pair, unsigned index)
{
    uint32_t size = power_of_two(wf_config()->tcp_send + TCP_REPLY_ROOM);
    struct tcp_lane *lane = pair->lanes[index];
    if (lane)
        return lane;
    lane = calloc(1, sizeof *lane);
    if (!lane || !(lane->ring = aligned_alloc(64, size))) {
        free(lane);
        return NULL;
    }
    lane->pair = pair;
    lane->fd = -1;
    lane->index = (uint16_t)index;
    lane->mask = size - 1;
    lane->request_room = size - TCP_REPLY_ROOM - 64; /* BYE always fits */
    wf_list_init(&lane->live);
    wf_list_init(&lane->dirty);
    pair->lanes[index] = lane;
    pair->nlanes = WF_MAX(pair->nlanes, index + 1);
    return lane;
}

bool wf_tcp_fd_note(struct tcp_ctx *ctx, int fd)
{
    int *more = wf_array_grow(ctx->fds, ctx->nfds, &ctx->fds_room, sizeof *more);
    if (!more)
        return false;
    ctx->fds = more;
    ctx->fds[ctx->nfds++] = fd;
    return true;
}

void wf_tcp_fd_forget(struct tcp_ctx *ctx, int fd)
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
static int socket_leave(struct tcp_lane *lane)
{
    int fd = lane->fd;
    struct tcp_tep *t = lane->pair->tep;
    wf_list_remove(&lane->live);
    t->nlive--;
    wf_tcp_fd_forget(t->ctx, fd);
    (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    t->nshaking -= wf_tcp_is_shaking(lane);
    t->nplain -= lane->plain;
    if (lane->wire)
        t->wires->close(lane->wire);
    wf_list_remove(&lane->dirty);
    lane->wire = NULL;
    lane->up = lane->plain = lane->leaves = false;
    lane->fd = -1;
    lane->synced = lane->open = lane->deaf = false;
    lane->blocked = lane->watches_out = false;
    free(lane->stash); /* what was not whole comes again */
    lane->stash = NULL;
    lane->stash_len = 0;
    lane->bulk.frame.kind = 0;
    return fd;
}

void wf_tcp_lane_linger(struct tcp_lane *lane)
{
    if (wf_tcp_is_wired(lane) && lane->up)
        lane->pair->tep->wires->settle(lane->wire);
    if (lane->fd >= 0)
        wf_tcp_door_linger(lane->pair->tep->ctx->door, socket_leave(lane));
    wf_tcp_seal_close(lane);
}

void wf_tcp_lane_turn_away(struct tcp_lane *lane)
{
    if (lane->fd >= 0)
        wf_tcp_turn_away(lane->pair->tep->ctx, socket_leave(lane), wf_tcp_seal_out(lane));
    wf_tcp_seal_close(lane);
}

static void socket_drop(struct tcp_lane *lane)
{
    int fd = lane->fd;
    if (fd < 0)
        return;
    (void)socket_leave(lane);
    wf_tcp_seal_close(lane);
    (void)shutdown(fd, SHUT_RDWR);
    close(fd);
}

void wf_tcp_lane_free(struct tcp_lane *lane)
{
    struct tcp_tep *t = lane->pair->tep;
    if (lane->call)
        wf_tcp_door_cancel(t->ctx->door, lane->call);
    socket_drop(lane);
    if (t->wires)
        t->wires->torn(lane, false);
    free(lane->ring);
    free(lane->bulks);
    lane->ring = NULL;
    lane->bulks = NULL;
    lane->pair->lanes[lane->index] = NULL;
    lane->pair = NULL;
    wf_list_append(&t->grave, &lane->live);
}

static uint32_t gen_step(const struct tcp_lane *lane)
{
    uint32_t rails = lane->pair->tep->rails, past;
    if (!lane->gen || rails < 2 || lane->rail_wish == WF_RAIL_NEXT)
        return 1;
    if (lane->rail_wish < WF_RAIL_TO)
        return rails;
    past = (lane->index + lane->gen - 1 + rails + WF_RAIL_TO - lane->rail_wish) % rails;
    return rails - past;
}

void wf_tcp_lane_dial(struct tcp_lane *lane, uint32_t delay_ms)
{
    struct tcp_pair *pair = lane->pair;
    struct tcp_tep *t = pair->tep;
    struct wf_tcp_call call = {.from = t->address,
                               .to = pair->known.address,
                               .from_contact = *wf_tcp_door_contact(t->ctx->door),
                               .to_contact = pair->contact,
                               .lane = lane->index,
                               .gen = lane->gen + gen_step(lane),
                               .delay_ms = delay_ms,
                               .patience_ms = (uint32_t)wf_config()->peer_timeout_ms /
                                              (lane->was_silent ? 2 : 1)};
    if (lane->call || lane->fd >= 0 || lane->bye || pair->status != WEFT_OK)
        return;
    lane->call = wf_tcp_door_call(t->ctx->door, &call);
    if (lane->call)
        return;
    if (!t->undialled)
        wf_error("no memory to connect to process %u: tried again",
                 pair->known.address.process.pid);
    t->undialled = true;
}

/* Everything from the tail on is written again. */
static void rewind_out(struct tcp_lane *lane)
{
    lane->at = lane->sent = lane->tail;
    lane->written = lane->first;
    lane->bulk_at = lane->bulk_first;
    lane->bulk_sent = 0;
    lane->control_len = lane->control_sent = 0;
}

/* Did the other end's kernel take no more of this socket than the handshake and SYNC? */
static bool took_nothing_long(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
           info.tcpi_bytes_acked <= SHORT_SENT;
}

bool wf_tcp_lane_is_stuck(struct tcp_lane *lane)
{
    bool again = lane->was_stuck && lane->stuck_at == lane->first;
    lane->was_stuck = lane->synced && !wf_tcp_is_wired(lane) && lane->first != lane->next &&
                      took_nothing_long(lane->fd);
    lane->stuck_at = lane->first;
    return again && lane->was_stuck;
}

void wf_tcp_lane_break(struct tcp_lane *lane, const char *why)
{
    struct tcp_pair *pair = lane->pair;
    if (lane->fd < 0)
        return;
    wf_debug("connection %u of lane %u to endpoint %u of process %u broke: %s", lane->gen,
             lane->index, pair->known.address.ep, pair->known.address.process.pid, why);
    wf_tcp_count(pair->tep, WF_STAT_TCP_BREAKS, 1);
    socket_drop(lane);
    rewind_out(lane);
    if (!pair->tep->closing || wf_tcp_has_unsent(lane))
        wf_tcp_lane_dial(lane, pair->is_greater ? 0 : TCP_LATER_MS);
}

/* ---- a new socket ---- */

/* Is [conn]'s socket a later one than the one there is or was? */
static bool is_higher(const struct tcp_lane *lane, const struct wf_tcp_conn *conn)
{
    return conn->gen != lane->gen && conn->gen - lane->gen <= GEN_STEP;
}

bool wf_tcp_epoll_make(struct tcp_tep *t)
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

static bool rx_make(struct tcp_tep *t)
{
    if (!t->rx)
        t->rx = aligned_alloc(64, TCP_RX_SIZE);
    return t->rx;
}

static bool socket_watch(struct tcp_lane *lane, int fd)
{
    struct tcp_tep *t = lane->pair->tep;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = lane};
    return rx_make(t) && wf_tcp_epoll_make(t) && !epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

static void sync_say(struct tcp_lane *lane)
{
    struct {
        struct wf_tcp_frame frame;
        struct wf_tcp_sync sync;
    } s = {{.len = sizeof s.sync, .ack = lane->taken, .room = lane->unreplied, .kind = WF_TCP_SYNC},
           {.pair = lane->pair->number,
            .yours = lane->pair->theirs,
            .first = lane->first,
            .next = lane->next}};
    _Static_assert(sizeof s == sizeof lane->control, "SYNC fits");
    memcpy(lane->control, &s, sizeof s);
    lane->control_len = sizeof s;
    lane->control_sent = 0;
}

static void begin(struct tcp_lane *lane)
{
    lane->up = true;
    wf_tcp_lane_fed(lane);
    lane->open = !lane->reached;
    sync_say(lane);
    wf_tcp_flush(lane);
}

static void plain_begin(struct tcp_lane *lane)
{
    struct tcp_tep *t = lane->pair->tep;
    lane->plain = true;
    t->nplain++;
    lane->rewire_ns = wf_now_ns() + (lane->next_rail ? NEXT_RAIL_NS
                                                     : REWIRE_NS << WF_MIN(lane->rewires, REWIRES));
    begin(lane);
}

void wf_tcp_lane_shaken(struct tcp_lane *lane, bool plain)
{
    struct tcp_tep *t = lane->pair->tep;
    /* Who calls chooses the rail; the other does something about it if that one does not. */
    unsigned patience = lane->returns + !lane->pair->is_greater;
    t->nshaking--;
    t->wires->torn(lane, true);
    if (!plain) {
        lane->next_rail = false;
        lane->rewire_ns = wf_now_ns() + (REWIRE_NS << WF_MIN(patience, REWIRES));
        begin(lane);
        return;
    }
    t->wires->close(lane->wire);
    lane->wire = NULL;
    if (!lane->plain)
        plain_begin(lane);
}

static void wire_begin(struct tcp_lane *lane)
{
    struct tcp_tep *t = lane->pair->tep;
    lane->wire = t->wires->open(lane);
    if (!lane->wire) {
        wf_tcp_lane_break(lane, strerror(errno));
        return;
    }
    t->nshaking++;
    if (t->wires->says_plain(lane->wire))
        plain_begin(lane);
}

void wf_tcp_lane_adopt(struct tcp_lane *lane, struct wf_tcp_conn *conn)
{
    struct tcp_pair *pair = lane->pair;
    if (conn->dialled && conn->call == lane->call)
        lane->call = 0;
    if (!is_higher(lane, conn)) {
        if (!conn->dialled)
            lane->call = 0; /* the door has ended that knock */
        wf_tcp_conn_close(pair->tep, conn);
        if (lane->fd < 0)
            wf_tcp_lane_dial(lane, TCP_LATER_MS);
        return;
    }
    socket_drop(lane);
    rewind_out(lane);
    lane->gen = conn->gen;
    lane->rail_wish = WF_RAIL_SAME;
    lane->was_silent = false;
    if (lane->call) {
        wf_tcp_door_cancel(pair->tep->ctx->door, lane->call);
        lane->call = 0;
    }
    if ((conn->encrypted && !wf_tcp_seal_open(lane, conn)) || !socket_watch(lane, conn->fd)) {
        wf_tcp_seal_close(lane);
        wf_error("cannot use a connection: %m");
        wf_tcp_conn_close(pair->tep, conn);
        wf_tcp_lane_dial(lane, TCP_LATER_MS);
        return;
    }
    lane->fd = conn->fd;
    wf_tcp_conn_free(conn);
    wf_list_append(&pair->tep->live, &lane->live);
    pair->tep->nlive++;
    wf_tcp_count(pair->tep, WF_STAT_CONNECTIONS, 1);
    WF_HOOK("tcp.adopt");
    if (pair->tep->wires)
        wire_begin(lane);
    else
        begin(lane);
}

/* ---- what the other side says of this direction ---- */

void wf_tcp_lane_fed(struct tcp_lane *lane)
{
    if (!lane->starved)
        return;
    lane->starved = false;
    lane->pair->tep->events++;
}

enum weft_status wf_tcp_lane_acked(struct tcp_lane *lane, uint32_t ack)
{
    uint32_t n = wf_tcp_past(lane->first, ack);
    if ((int32_t)n <= 0)
        return WEFT_OK; /* old news */
    if (n > wf_tcp_past(lane->first, lane->reached))
        return WEFT_EPROTO;
    while (n--) {
        bool unwritten = lane->at == lane->tail;
        if (unwritten && lane->synced) /* only SYNC may say that it came by an earlier socket */
            return WEFT_EPROTO;
        wf_tcp_frame_drop(lane);
        if (unwritten) {
            lane->at = lane->sent = lane->tail;
            lane->written++;
        }
    }
    wf_tcp_lane_fed(lane);
    return WEFT_OK;
}

enum weft_status wf_tcp_lane_returned(struct tcp_lane *lane, uint32_t returned)
{
    uint32_t n = wf_tcp_past(lane->returned, returned);
    if ((int32_t)n <= 0)
        return WEFT_OK;
    if (n > lane->reserved)
        return WEFT_EPROTO;
    lane->returned = returned;
    lane->reserved -= n;
    wf_tcp_lane_fed(lane);
    return WEFT_OK;
}

enum weft_status wf_tcp_lane_sync(struct tcp_lane *lane, const struct wf_tcp_frame *f,
                                  const struct wf_tcp_sync *sync)
{
    struct tcp_pair *pair = lane->pair;
    enum weft_status status;
    if ((sync->yours && sync->yours != pair->number) ||
        (pair->theirs && sync->pair != pair->theirs))
        return WEFT_EPEER; /* one of the two gave the other up and forgot it */
    if (lane->synced || !sync->pair || sync->zero ||
        wf_tcp_past(sync->first, sync->next) > FRAMES_MAX ||
        wf_tcp_past(sync->first, lane->taken) > wf_tcp_past(sync->first, sync->next) ||
        (int32_t)wf_tcp_past(lane->first, f->ack) < 0)
        return WEFT_EPROTO;
    pair->theirs = sync->pair;
    status = wf_tcp_lane_acked(lane, f->ack);
    if (status == WEFT_OK)
        status = wf_tcp_lane_returned(lane, f->room);
    if (status != WEFT_OK)
        return status;
    lane->synced = true;
    if (!lane->open)
        wf_tcp_count(pair->tep, WF_STAT_TCP_REPLAYED, wf_tcp_past(lane->first, lane->reached));
    lane->open = true;
    wf_tcp_dirty(lane);
    return WEFT_OK;
}
