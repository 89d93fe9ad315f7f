/* SPDX-License-Identifier: BSD-3-Clause */
/* Two endpoints that talk, from their first message to the end of one of them. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/tcp/auth.h"
#include "transport/tcp/tcp.h"

/* Addresses of dead and closed endpoints that are remembered: their late connections are told so.
 * One that was forgotten is refused all the same if it knows this side's number of the
 * pair, which would be another one now (SYNC). */
#define DEAD_MAX 4096
#define RETRY_MS 500         /* for a lane that cannot be had while another one works */
#define CLOSING_MS 1         /* between looks at what an endpoint that closes waits for */
#define SMALL_BACKLOG 32768u /* bytes in a lane's ring; beyond it messages take another lane */
/* How long it waits for peers to say that they took its last words, once their kernels have
 * them: a peer that polls says so at once, and of one that does not poll the kernel keeps them,
 * also when the connection breaks. What this time is for is something between that
 * acknowledges what it has yet to pass on, or then drops it: a proxy, a tunnel. That may have to
 * wait for a core: on two, beside two fuzzers of idle priority and for most of the time two busy
 * loops, 4 of 14 runs of net_test.test_last_words lost something with 20 ms, none of 14 with 200.
 */
#define LAST_ACK_NS 200000000u
#define CLOSE_SETTLE_NS 50000000u /* for what NICs hold of those that leave, and of others then */

static struct tcp_pair *pair_at(struct wf_addr_entry *entry)
{
    return wf_container_of(entry, struct tcp_pair, known);
}

struct tcp_pair *wf_tcp_pair_find(struct tcp_tep *t, const struct wf_address *to)
{
    struct wf_addr_entry *entry = wf_addr_table_find(&t->pairs, to);
    return entry ? pair_at(entry) : NULL;
}

struct tcp_pair *wf_tcp_pair_make(struct tcp_tep *t, const struct wf_address *to,
                                  const struct wf_contact *contact)
{
    struct tcp_pair *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->tep = t;
    p->known.address = *to;
    p->contact = *contact;
    p->is_greater = memcmp(&t->address, to, sizeof *to) > 0;
    p->number = ++t->next_pair;
    wf_list_init(&p->item);
    if (wf_addr_table_add(&t->pairs, &p->known))
        return p;
    free(p);
    return NULL;
}

static void pair_free(struct tcp_pair *pair)
{
    struct tcp_tep *t = pair->tep;
    wf_addr_table_remove(&t->pairs, &pair->known);
    if (!wf_list_empty(&pair->item)) {
        t->ndead--;
        wf_list_remove(&pair->item);
        pthread_mutex_lock(&t->lock);
        wf_addr_table_remove(&t->gone, &pair->gone);
        pthread_mutex_unlock(&t->lock);
    }
    free(pair);
}

/* ---- its handles ---- */

void wf_tcp_pair_hold(struct tcp_pair *pair, struct tcp_peer *peer)
{
    peer->pair = pair;
    if (!pair->handle)
        pair->handle = peer;
}

static struct tcp_peer *handle_of(const struct tcp_pair *pair)
{
    const struct tcp_tep *t = pair->tep;
    for (uint32_t i = 0; i < t->npeers; i++)
        if (t->peers[i]->pair == pair)
            return t->peers[i];
    return NULL;
}

void wf_tcp_pair_let_go(struct tcp_peer *peer)
{
    struct tcp_pair *pair = peer->pair;
    peer->pair = NULL;
    if (pair && pair->handle == peer)
        pair->handle = handle_of(pair);
}

/* ---- its lanes ---- */

static bool is_open(const struct tcp_lane *lane)
{
    return lane && lane->fd >= 0 && lane->open;
}

static bool is_usable(const struct tcp_lane *lane)
{
    return is_open(lane) && !lane->leaves;
}

bool wf_tcp_pair_may_spread(const struct tcp_pair *pair)
{
    const struct tcp_lane *first = pair->lanes[0];
    return pair->tep->rails < 2 || !first || !first->up || !first->wire || first->plain ||
           pair->tep->wires->may_leave(first->wire);
}

struct tcp_lane *wf_tcp_pair_lane(struct tcp_pair *pair, bool ordered)
{
    struct tcp_lane *best = pair->lanes[0];
    if (__builtin_expect(!best, 0)) {
        best = wf_tcp_lane(pair, 0);
        if (best)
            wf_tcp_lane_dial(best, 0);
        return best;
    }
    if (ordered || wf_tcp_past(best->tail, best->head) < SMALL_BACKLOG ||
        !wf_tcp_pair_may_spread(pair))
        return best;
    for (unsigned i = 1; i < pair->nlanes; i++) {
        struct tcp_lane *l = pair->lanes[i];
        if (is_usable(l) && wf_tcp_past(l->tail, l->head) < wf_tcp_past(best->tail, best->head))
            best = l;
    }
    return best;
}

void wf_tcp_pair_lanes_open(struct tcp_pair *pair)
{
    for (unsigned i = 1; i < pair->tep->lanes; i++) {
        struct tcp_lane *l = wf_tcp_lane(pair, i);
        if (l && l->fd < 0 && !l->lost)
            wf_tcp_lane_dial(l, 0);
    }
}

/* Payload takes the lane with the fewest that were not acknowledged; the first
 * makes the other lanes come to be. */
struct tcp_lane *wf_tcp_pair_bulk_lane(struct tcp_pair *pair)
{
    struct tcp_lane *best = wf_tcp_pair_lane(pair, true);
    wf_tcp_pair_lanes_open(pair);
    if (!wf_tcp_pair_may_spread(pair))
        return best;
    for (unsigned i = 1; i < pair->nlanes && best; i++) {
        struct tcp_lane *l = pair->lanes[i];
        if (is_usable(l) && (!is_usable(best) || wf_tcp_past(l->bulk_first, l->bulk_end) <
                                                     wf_tcp_past(best->bulk_first, best->bulk_end)))
            best = l;
    }
    return best;
}

/* That of what [order] names, if the other side did not take it yet; else null. */
static struct tcp_lane *lane_before(const struct tcp_pair *pair, const struct wf_order *order)
{
    struct tcp_lane *lane = order->lane ? pair->lanes[order->lane - 1] : NULL;
    return lane && (int32_t)wf_tcp_past(lane->first, order->number) >= 0 ? lane : NULL;
}

/* Small ones share a write: the next lane's turn is when this one's is full or out. */
static bool is_filling(const struct tcp_lane *lane)
{
    return is_usable(lane) && lane->sent != lane->head &&
           wf_tcp_past(lane->tail, lane->head) < SMALL_BACKLOG;
}

struct tcp_lane *wf_tcp_pair_ordered_lane(struct tcp_pair *pair, const struct wf_order *order,
                                          bool bulk)
{
    struct tcp_lane *lane = lane_before(pair, order);
    if (lane)
        return lane;
    if (bulk)
        return wf_tcp_pair_bulk_lane(pair);
    if (!wf_tcp_pair_may_spread(pair))
        return wf_tcp_pair_lane(pair, true);
    if (pair->nlanes && is_filling(pair->lanes[pair->turn % pair->nlanes]))
        return pair->lanes[pair->turn % pair->nlanes];
    if (pair->nlanes < pair->tep->lanes || pair->turn % 64 == 0)
        wf_tcp_pair_lanes_open(pair);
    for (unsigned i = 0; i < pair->nlanes; i++) {
        lane = pair->lanes[++pair->turn % pair->nlanes];
        if (is_usable(lane))
            return lane;
    }
    return wf_tcp_pair_lane(pair, true);
}

void wf_tcp_grave_empty(struct tcp_tep *t)
{
    while (!wf_list_empty(&t->grave)) {
        struct wf_list *it = t->grave.next;
        wf_list_remove(it);
        free(wf_container_of(it, struct tcp_lane, live));
    }
}

/* Leave the sockets that took everything to the door. */
static void lanes_linger(struct tcp_pair *pair)
{
    for (unsigned i = 0; i < pair->nlanes; i++)
        if (pair->lanes[i] && !wf_tcp_has_unsent(pair->lanes[i]))
            wf_tcp_lane_linger(pair->lanes[i]);
}

static void lanes_free(struct tcp_pair *pair)
{
    for (unsigned i = 0; i < pair->nlanes; i++)
        if (pair->lanes[i])
            wf_tcp_lane_free(pair->lanes[i]);
    pair->nlanes = 0;
}

/* ---- its end ---- */

static void dead_remember(struct tcp_pair *pair)
{
    struct tcp_tep *t = pair->tep;
    bool ok;
    pair->gone.address = pair->known.address;
    pthread_mutex_lock(&t->lock);
    ok = wf_addr_table_add(&t->gone, &pair->gone);
    pthread_mutex_unlock(&t->lock);
    if (!ok) { /* no memory: forgotten at once */
        pair_free(pair);
        return;
    }
    wf_list_append(&t->dead, &pair->item);
    if (++t->ndead > DEAD_MAX)
        pair_free(wf_container_of(t->dead.next, struct tcp_pair, item));
}

void wf_tcp_pair_end(struct tcp_pair *pair, enum weft_status why)
{
    struct tcp_tep *t = pair->tep;
    void *conn = pair->conn;
    if (pair->status != WEFT_OK)
        return;
    if (why == WEFT_ECLOSED) /* its last words' acknowledgement is on the way */
        lanes_linger(pair);
    lanes_free(pair); /* before anybody is told */
    pair->status = why;
    pair->conn = NULL;
    wf_tcp_count(t, WF_STAT_PEERS_DOWN, pair->handle != NULL);
    for (uint32_t i = 0; i < t->npeers; i++) {
        struct tcp_peer *peer = t->peers[i];
        if (peer->pair != pair)
            continue;
        peer->pair = NULL;
        peer->status = (int16_t)why;
        t->base.events->peer_down(t->base.owner, &peer->base, why);
    }
    pair->handle = NULL;
    if (conn)
        t->base.events->conn_down(t->base.owner, conn);
    t->events++;
    dead_remember(pair);
}

/* A lane by which BYE is still to come is waited for; if it has no socket, called. */
void wf_tcp_pair_bye(struct tcp_pair *pair, uint32_t lanes)
{
    bool all = true;
    pair->bye = (uint16_t)lanes;
    for (unsigned i = 0; i < WF_TCP_LANES_MAX; i++) {
        struct tcp_lane *l = lanes >> i & 1 ? wf_tcp_lane(pair, i) : NULL;
        if (l && !l->bye) {
            all = false;
            wf_tcp_lane_dial(l, TCP_LATER_MS);
        }
    }
    if (all)
        wf_tcp_pair_end(pair, WEFT_ECLOSED);
}

/* ---- what the door says ---- */

void wf_tcp_turn_away(struct tcp_ctx *ctx, int fd, struct wf_tcp_sealer *sealer)
{
    struct wf_tcp_frame f = {.kind = WF_TCP_BYE};
    uint8_t record[WF_TCP_SEALED_MAX];
    size_t n = sizeof f;
    if (sealer)
        n = wf_tcp_seal(sealer, &f, sizeof f, record);
    (void)send(fd, sealer ? record : (const void *)&f, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    wf_tcp_door_linger(ctx->door, fd);
}

static void conn_turn_away(struct tcp_ctx *ctx, struct wf_tcp_conn *conn)
{
    struct wf_tcp_sealer sealer = {.number = 0};
    memcpy(sealer.key, conn->key_out, sizeof sealer.key);
    wf_tcp_fd_forget(ctx, conn->fd);
    wf_tcp_turn_away(ctx, conn->fd, conn->encrypted ? &sealer : NULL);
    sodium_memzero(&sealer, sizeof sealer);
    wf_tcp_conn_free(conn);
}

/* A forked child may hold a copy of the socket. */
void wf_tcp_conn_close(struct tcp_tep *t, struct wf_tcp_conn *conn)
{
    wf_tcp_fd_forget(t->ctx, conn->fd);
    (void)shutdown(conn->fd, SHUT_RDWR);
    close(conn->fd);
    wf_tcp_conn_free(conn);
}

/* Handles that were opened before either side said anything. */
static void handles_find(struct tcp_pair *pair)
{
    const struct tcp_tep *t = pair->tep;
    for (uint32_t i = 0; i < t->npeers; i++) {
        struct tcp_peer *peer = t->peers[i];
        if (!peer->pair && peer->status == WEFT_OK && wf_tcp_peer_is(peer, &pair->known.address))
            wf_tcp_pair_hold(pair, peer);
    }
}

/* What came by the old socket: who sent it may have gone, and says it to no new one. That is as
 * many bytes as the kernel has now (tcp(7), SIOCINQ), however many reads that takes, and no more: a
 * peer that goes on sending does not keep this side reading, and sends them again. */
static void lane_drain(struct tcp_lane *lane)
{
    uint32_t begin = lane->socket_bytes;
    int there = 0;
    if (lane->wire && lane->fd >= 0) {
        wf_tcp_socket_look(lane);
        return;
    }
    if (lane->fd >= 0 && ioctl(lane->fd, SIOCINQ, &there))
        there = INT_MAX;
    while (lane->fd >= 0 && lane->socket_bytes - begin < (uint32_t)there) {
        uint8_t byte;
        if (recv(lane->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
            return;
        wf_tcp_read(lane);
    }
}

static void arrived(struct tcp_tep *t, struct wf_tcp_conn *conn)
{
    struct tcp_pair *pair = wf_tcp_pair_find(t, &conn->peer);
    struct tcp_lane *lane = NULL;
    if (!pair && !t->closing && (pair = wf_tcp_pair_make(t, &conn->peer, &conn->contact)))
        handles_find(pair);
    if (pair && pair->status == WEFT_OK)
        lane = wf_tcp_lane(pair, conn->lane);
    if (lane)
        lane_drain(lane);
    if (lane && lane->pair) /* that may have been its end */
        wf_tcp_lane_adopt(lane, conn);
    else if (lane || t->closing || (pair && pair->status != WEFT_OK))
        conn_turn_away(t->ctx, conn);
    else /* no memory: it comes again */
        wf_tcp_conn_close(t, conn);
}

static struct tcp_lane *lane_calling(const struct tcp_pair *pair, uint64_t call)
{
    for (unsigned i = 0; pair && i < pair->nlanes; i++)
        if (pair->lanes[i] && pair->lanes[i]->call == call)
            return pair->lanes[i];
    return NULL;
}

static bool other_usable(const struct tcp_pair *pair, const struct tcp_lane *lane)
{
    for (unsigned i = 0; i < pair->nlanes; i++)
        if (pair->lanes[i] != lane && is_open(pair->lanes[i]))
            return true;
    return false;
}

static void given_up(struct tcp_tep *t, const struct wf_tcp_verdict *v)
{
    struct tcp_pair *pair = wf_tcp_pair_find(t, &v->to);
    struct tcp_lane *lane = lane_calling(pair, v->call);
    if (!lane)
        return;
    lane->call = 0;
    if (pair->bye) {
        wf_tcp_pair_end(pair, WEFT_ECLOSED);
    } else if (lane->gen && other_usable(pair, lane)) { /* its process is there, as that shows */
        wf_tcp_lane_dial(lane, RETRY_MS);
    } else if (!lane->gen && lane->index) { /* the others go on without it */
        wf_info("lane %u to endpoint %u of process %u cannot be opened: %s", lane->index,
                pair->known.address.ep, pair->known.address.process.pid, v->why);
        lane->lost = true;
    } else {
        if (lane->gen)
            wf_info("endpoint %u of process %u is lost: %s", pair->known.address.ep,
                    pair->known.address.process.pid, v->why);
        else
            wf_warn("endpoint %u of process %u cannot be reached: %s", pair->known.address.ep,
                    pair->known.address.process.pid, v->why);
        wf_tcp_pair_end(pair, v->status);
    }
}

/* arg: is there still one that cannot be called? */
static void pair_dial(struct wf_addr_entry *entry, void *arg)
{
    struct tcp_pair *pair = pair_at(entry);
    bool *still = arg;
    for (unsigned i = 0; i < pair->nlanes; i++) {
        struct tcp_lane *l = pair->lanes[i];
        if (!l || l->fd >= 0 || l->lost || l->bye || pair->status != WEFT_OK ||
            (pair->tep->closing && !wf_tcp_has_unsent(l)))
            continue;
        wf_tcp_lane_dial(l, 0);
        *still |= !l->call;
    }
}

void wf_tcp_pairs_dial(struct tcp_tep *t)
{
    bool still = false;
    wf_addr_table_each(&t->pairs, pair_dial, &still);
    t->undialled = still;
}

static void list_take(struct wf_list *to, struct wf_list *from)
{
    wf_list_init(to);
    while (!wf_list_empty(from)) {
        struct wf_list *it = from->next;
        wf_list_remove(it);
        wf_list_append(to, it);
    }
}

void wf_tcp_inbox(struct tcp_tep *t)
{
    struct wf_list arrivals, verdicts;
    atomic_store_explicit(&t->inbox, 0, memory_order_relaxed);
    pthread_mutex_lock(&t->lock);
    list_take(&arrivals, &t->arrivals);
    t->narrivals = 0;
    list_take(&verdicts, &t->verdicts);
    pthread_mutex_unlock(&t->lock);
    while (!wf_list_empty(&arrivals)) {
        struct wf_tcp_conn *conn = wf_container_of(arrivals.next, struct wf_tcp_conn, item);
        wf_list_remove(&conn->item);
        arrived(t, conn);
        t->events++;
    }
    while (!wf_list_empty(&verdicts)) {
        struct wf_tcp_verdict *v = wf_container_of(verdicts.next, struct wf_tcp_verdict, item);
        wf_list_remove(&v->item);
        given_up(t, v);
        free(v);
        t->events++;
    }
}

/* On the door's thread. The endpoint is found and stays under the context's lock. */
static struct tcp_tep *tep_of(struct tcp_ctx *ctx, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &ctx->teps)
    {
        struct tcp_tep *t = wf_container_of(it, struct tcp_tep, item);
        if (t->address.ep == ep && t->address.ep_gen == ep_gen)
            return t;
    }
    return NULL;
}

static void tell(struct tcp_tep *t, struct wf_list *list, struct wf_list *item)
{
    uint64_t one = 1;
    pthread_mutex_lock(&t->lock);
    wf_list_append(list, item);
    pthread_mutex_unlock(&t->lock);
    atomic_store_explicit(&t->inbox, 1, memory_order_release);
    if (write(t->base.event_fd, &one, sizeof one) < 0)
        wf_debug("an endpoint was woken already: %m");
}

bool wf_tcp_has_pair(struct tcp_ctx *ctx, const struct wf_address *from,
                     const struct wf_address *to)
{
    struct tcp_tep *t;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, from->ep, from->ep_gen);
    pthread_mutex_unlock(&ctx->lock);
    return t && wf_tcp_pair_find(t, to);
}

static bool is_full(const struct tcp_ctx *ctx, struct tcp_tep *t)
{
    bool full;
    pthread_mutex_lock(&t->lock);
    full = t->narrivals >= ctx->arrivals_max;
    pthread_mutex_unlock(&t->lock);
    return full;
}

static enum wf_tcp_host door_has(void *owner, uint16_t ep, uint32_t ep_gen)
{
    struct tcp_ctx *ctx = owner;
    enum wf_tcp_host has = WF_TCP_HOST_NONE;
    struct tcp_tep *t;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, ep, ep_gen);
    if (t)
        has = is_full(ctx, t) ? WF_TCP_HOST_FULL : WF_TCP_HOST_OPEN;
    pthread_mutex_unlock(&ctx->lock);
    return has;
}

static bool door_connected(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_tcp_conn *conn)
{
    struct tcp_ctx *ctx = owner;
    struct tcp_tep *t;
    bool gone = false;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, ep, ep_gen);
    if (t && !wf_tcp_fd_note(ctx, conn->fd))
        t = NULL;
    if (t) {
        wf_tcp_door_passed(ctx->door);
        pthread_mutex_lock(&t->lock);
        gone = wf_addr_table_find(&t->gone, &conn->peer);
        t->narrivals += !gone;
        pthread_mutex_unlock(&t->lock);
    }
    if (t && !gone)
        tell(t, &t->arrivals, &conn->item);
    pthread_mutex_unlock(&ctx->lock);
    if (gone) /* its owner need not poll for that */
        conn_turn_away(ctx, conn);
    return t;
}

static void door_given_up(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_tcp_verdict *v)
{
    struct tcp_ctx *ctx = owner;
    struct tcp_tep *t;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, ep, ep_gen);
    if (t)
        tell(t, &t->verdicts, &v->item);
    pthread_mutex_unlock(&ctx->lock);
    if (!t)
        free(v);
}

static void door_fork_begin(void *owner)
{
    pthread_mutex_lock(&((struct tcp_ctx *)owner)->lock);
}

static void door_fork_end(void *owner, bool child)
{
    struct tcp_ctx *ctx = owner;
    for (unsigned i = 0; child && i < ctx->nfds; i++)
        close(ctx->fds[i]);
    ctx->nfds = child ? 0 : ctx->nfds;
    pthread_mutex_unlock(&ctx->lock);
}

const struct wf_tcp_door_events wf_tcp_door_calls = {door_has, door_connected, door_given_up,
                                                     door_fork_begin, door_fork_end};

/* ---- the endpoint's end ---- */

static uint32_t lanes_used(const struct tcp_pair *pair)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < pair->nlanes; i++)
        if (pair->lanes[i] && (pair->lanes[i]->gen || pair->lanes[i]->next))
            mask |= 1u << i;
    return mask;
}

static void pair_bye_say(struct wf_addr_entry *entry, void *arg)
{
    struct tcp_pair *pair = pair_at(entry);
    uint32_t mask = lanes_used(pair);
    (void)arg;
    for (unsigned i = 0; i < pair->nlanes; i++)
        if (mask >> i & 1) {
            wf_tcp_append_bye(pair->lanes[i], mask);
            wf_tcp_dirty(pair->lanes[i]);
        }
}

/* Has the other end's kernel everything? tcp(7), SIOCOUTQ. */
static bool kernel_has_all(int fd)
{
    int unacknowledged = 0;
    return !ioctl(fd, SIOCOUTQ, &unacknowledged) && !unacknowledged;
}

/* What an endpoint that closes still waits for. A peer that closes, too, takes nothing more. */
enum outstanding { NOTHING, WORD, BYTES };

static enum outstanding lane_outstanding(const struct tcp_lane *lane)
{
    if (!lane || lane->bye || lane->first == lane->next)
        return NOTHING;
    if (lane->fd < 0 || wf_tcp_has_unsent(lane))
        return BYTES;
    return (wf_tcp_is_wired(lane) ? lane->pair->tep->wires->is_taken(lane->wire)
                                  : kernel_has_all(lane->fd))
               ? WORD
               : BYTES;
}

static void pair_outstanding(struct wf_addr_entry *entry, void *arg)
{
    const struct tcp_pair *pair = pair_at(entry);
    enum outstanding *most = arg;
    for (unsigned i = 0; i < pair->nlanes; i++)
        *most = WF_MAX(*most, lane_outstanding(pair->lanes[i]));
}

static enum outstanding most_outstanding(const struct tcp_tep *t)
{
    enum outstanding most = NOTHING;
    wf_addr_table_each(&t->pairs, pair_outstanding, &most);
    return most;
}

/* One turn: what came, what can leave. Nothing is delivered any more. */
static void closing_turn(struct tcp_tep *t)
{
    struct pollfd p[2] = {{.fd = t->base.event_fd, .events = POLLIN},
                          {.fd = t->epoll_fd, .events = POLLIN}};
    uint64_t n;
    (void)poll(p, t->epoll_fd >= 0 ? 2 : 1, CLOSING_MS);
    if (read(t->base.event_fd, &n, sizeof n) > 0 || atomic_load(&t->inbox))
        wf_tcp_inbox(t);
    if (t->wires) {
        t->wires->look(t);
        (void)t->wires->turn(t);
        wf_tcp_sockets_look(t);
    } else {
        wf_tcp_read_each(t);
    }
    wf_tcp_flush_all(t);
}

/* Who does not poll answers no wire's questions: last words go by a socket, which its kernel
 * takes. */
static void lanes_unwire(struct tcp_tep *t)
{
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        struct tcp_lane *lane = wf_container_of(it, struct tcp_lane, live);
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        if (lane->wire && !lane->up)
            wf_tcp_lane_break(lane, "it closes before its wire is up");
    }
}

/* Until all was taken, or for as long as may be. */
static void last_words(struct tcp_tep *t)
{
    uint64_t now = wf_now_ns(), until = now + t->close_ms * UINT64_C(1000000), written = now;
    enum outstanding left;
    while ((left = most_outstanding(t)) != NOTHING) {
        if (left == BYTES)
            written = now;
        if (now - written > LAST_ACK_NS)
            return;
        if (now >= until) {
            wf_warn("an endpoint closes with messages that a peer did not take for %u ms: they "
                    "are lost",
                    t->close_ms);
            return;
        }
        closing_turn(t);
        now = wf_now_ns();
    }
}

void wf_tcp_pairs_bye(struct tcp_tep *t)
{
    t->closing = true;
    t->close_ms =
        t->ctx->base.close_ms ? t->ctx->base.close_ms : (uint32_t)wf_config()->peer_timeout_ms;
    t->settle_ns = CLOSE_SETTLE_NS;
    wf_list_each(it, &t->live)(void) wf_tcp_lane_watch(wf_container_of(it, struct tcp_lane, live),
                                                       false); /* each turn tries to write */
    wf_addr_table_each(&t->pairs, pair_bye_say, NULL);
    if (t->wires)
        lanes_unwire(t);
    wf_tcp_flush_all(t);
    last_words(t);
    t->settle_ns = CLOSE_SETTLE_NS;
}

static void pair_drop(struct wf_addr_entry *entry, void *arg)
{
    struct tcp_pair *pair = pair_at(entry);
    struct tcp_tep *t = pair->tep;
    (void)arg;
    lanes_linger(pair);
    lanes_free(pair);
    if (pair->conn)
        t->base.events->conn_down(t->base.owner, pair->conn);
    pair_free(pair);
}

static void inbox_drop(struct tcp_tep *t)
{
    while (!wf_list_empty(&t->arrivals)) {
        struct wf_tcp_conn *conn = wf_container_of(t->arrivals.next, struct wf_tcp_conn, item);
        wf_list_remove(&conn->item);
        conn_turn_away(t->ctx, conn);
    }
    while (!wf_list_empty(&t->verdicts)) {
        struct wf_list *it = t->verdicts.next;
        wf_list_remove(it);
        free(wf_container_of(it, struct wf_tcp_verdict, item));
    }
}

/* The door knows the endpoint no more. */
void wf_tcp_pairs_free(struct tcp_tep *t)
{
    wf_addr_table_each(&t->pairs, pair_drop, NULL);
    wf_addr_table_free(&t->pairs);
    wf_addr_table_free(&t->gone);
    inbox_drop(t);
}
