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
#include "transport/net/connect/auth.h"
#include "transport/net/net.h"

/* Addresses of dead and closed endpoints that are remembered: their late connections are told so.
 * One that was forgotten is refused all the same if it knows this side's number of the
 * session, which would be another one now (SYNC). */
#define DEAD_MAX 4096
#define RETRY_MS 500 /* for a channel that cannot be had while another one works */
#define CLOSING_MS 1 /* between looks at what an endpoint that closes waits for */
#define SMALL_BACKLOG                                                                              \
    32768u /* bytes in a channel's ring; beyond it messages take another channel */
/* How long it waits for peers to say that they took its last words, once their kernels have
 * them: a peer that polls says so at once, and of one that does not poll the kernel keeps them,
 * also when the connection breaks. What this time is for is something between that
 * acknowledges what it has yet to pass on, or then drops it: a proxy, a tunnel. That may have to
 * wait for a core: on two, beside two fuzzers of idle priority and for most of the time two busy
 * loops, 4 of 14 runs of net_test.test_last_words lost something with 20 ms, none of 14 with 200.
 */
#define LAST_ACK_NS 200000000u
#define CLOSE_SETTLE_NS 50000000u /* for what NICs hold of those that leave, and of others then */

static struct net_session *session_at(struct wf_book_entry *entry)
{
    return wf_container_of(entry, struct net_session, known);
}

struct net_session *wf_net_session_find(struct net_ep *t, const struct wf_address *to)
{
    struct wf_book_entry *entry = wf_book_find(&t->sessions, to);
    return entry ? session_at(entry) : NULL;
}

struct net_session *wf_net_session_make(struct net_ep *t, const struct wf_address *to,
                                        const struct wf_contact *contact)
{
    struct net_session *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->tep = t;
    p->known.address = *to;
    p->contact = *contact;
    p->is_greater = memcmp(&t->address, to, sizeof *to) > 0;
    p->number = ++t->next_session;
    wf_list_init(&p->item);
    if (wf_book_add(&t->sessions, &p->known))
        return p;
    free(p);
    return NULL;
}

static void session_free(struct net_session *session)
{
    struct net_ep *t = session->tep;
    wf_book_remove(&t->sessions, &session->known);
    if (!wf_list_empty(&session->item)) {
        t->ndead--;
        wf_list_remove(&session->item);
        pthread_mutex_lock(&t->lock);
        wf_book_remove(&t->gone, &session->gone);
        pthread_mutex_unlock(&t->lock);
    }
    free(session);
}

/* ---- its handles ---- */

void wf_net_session_hold(struct net_session *session, struct net_peer *peer)
{
    peer->session = session;
    if (!session->handle)
        session->handle = peer;
}

static struct net_peer *handle_of(const struct net_session *session)
{
    const struct net_ep *t = session->tep;
    for (uint32_t i = 0; i < t->npeers; i++)
        if (t->peers[i]->session == session)
            return t->peers[i];
    return NULL;
}

void wf_net_session_let_go(struct net_peer *peer)
{
    struct net_session *session = peer->session;
    peer->session = NULL;
    if (session && session->handle == peer)
        session->handle = handle_of(session);
}

/* ---- its channels ---- */

static bool is_open(const struct net_chan *chan)
{
    return chan && chan->fd >= 0 && chan->open;
}

static bool is_usable(const struct net_chan *chan)
{
    return is_open(chan) && !chan->leaves;
}

bool wf_net_session_may_spread(const struct net_session *session)
{
    const struct net_chan *first = session->chans[0];
    return session->tep->rails < 2 || !first || !first->up || !first->link || first->plain ||
           session->tep->wires->may_leave(first->link);
}

struct net_chan *wf_net_session_pick(struct net_session *session, bool ordered)
{
    struct net_chan *best = session->chans[0];
    if (__builtin_expect(!best, 0)) {
        best = wf_net_session_chan(session, 0);
        if (best)
            wf_net_chan_dial(best, 0);
        return best;
    }
    if (ordered || wf_net_past(best->tail, best->head) < SMALL_BACKLOG ||
        !wf_net_session_may_spread(session))
        return best;
    for (unsigned i = 1; i < session->nchans; i++) {
        struct net_chan *l = session->chans[i];
        if (is_usable(l) && wf_net_past(l->tail, l->head) < wf_net_past(best->tail, best->head))
            best = l;
    }
    return best;
}

void wf_net_session_spread(struct net_session *session)
{
    for (unsigned i = 1; i < session->tep->lanes; i++) {
        struct net_chan *l = wf_net_session_chan(session, i);
        if (l && l->fd < 0 && !l->lost)
            wf_net_chan_dial(l, 0);
    }
}

/* Payload takes the channel with the fewest that were not acknowledged; the first
 * makes the other channels come to be. */
struct net_chan *wf_net_session_pick_bulk(struct net_session *session)
{
    struct net_chan *best = wf_net_session_pick(session, true);
    wf_net_session_spread(session);
    if (!wf_net_session_may_spread(session))
        return best;
    for (unsigned i = 1; i < session->nchans && best; i++) {
        struct net_chan *l = session->chans[i];
        if (is_usable(l) && (!is_usable(best) || wf_net_past(l->bulk_first, l->bulk_end) <
                                                     wf_net_past(best->bulk_first, best->bulk_end)))
            best = l;
    }
    return best;
}

/* That of what [order] names, if the other side did not take it yet; else null. */
static struct net_chan *chan_before(const struct net_session *session, const struct wf_order *order)
{
    struct net_chan *chan = order->lane ? session->chans[order->lane - 1] : NULL;
    return chan && (int32_t)wf_net_past(chan->first, order->number) >= 0 ? chan : NULL;
}

/* Small ones share a write: the next channel's turn is when this one's is full or out. */
static bool is_filling(const struct net_chan *chan)
{
    return is_usable(chan) && chan->sent != chan->head &&
           wf_net_past(chan->tail, chan->head) < SMALL_BACKLOG;
}

struct net_chan *wf_net_session_pick_ordered(struct net_session *session,
                                             const struct wf_order *order, bool bulk)
{
    struct net_chan *chan = chan_before(session, order);
    if (chan)
        return chan;
    if (bulk)
        return wf_net_session_pick_bulk(session);
    if (!wf_net_session_may_spread(session))
        return wf_net_session_pick(session, true);
    if (session->nchans && is_filling(session->chans[session->turn % session->nchans]))
        return session->chans[session->turn % session->nchans];
    if (session->nchans < session->tep->lanes || session->turn % 64 == 0)
        wf_net_session_spread(session);
    for (unsigned i = 0; i < session->nchans; i++) {
        chan = session->chans[++session->turn % session->nchans];
        if (is_usable(chan))
            return chan;
    }
    return wf_net_session_pick(session, true);
}

void wf_net_grave_empty(struct net_ep *t)
{
    while (!wf_list_empty(&t->grave)) {
        struct wf_list *it = t->grave.next;
        wf_list_remove(it);
        free(wf_container_of(it, struct net_chan, live));
    }
}

/* Leave the sockets that took everything to the connection manager. */
static void chans_linger(struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && !wf_net_has_unsent(session->chans[i]))
            wf_net_chan_linger(session->chans[i]);
}

static void chans_free(struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i])
            wf_net_chan_free(session->chans[i]);
    session->nchans = 0;
}

/* ---- its end ---- */

static void dead_remember(struct net_session *session)
{
    struct net_ep *t = session->tep;
    bool ok;
    session->gone.address = session->known.address;
    pthread_mutex_lock(&t->lock);
    ok = wf_book_add(&t->gone, &session->gone);
    pthread_mutex_unlock(&t->lock);
    if (!ok) { /* no memory: forgotten at once */
        session_free(session);
        return;
    }
    wf_list_append(&t->dead, &session->item);
    if (++t->ndead > DEAD_MAX)
        session_free(wf_container_of(t->dead.next, struct net_session, item));
}

void wf_net_session_end(struct net_session *session, enum weft_status why)
{
    struct net_ep *t = session->tep;
    void *conn = session->conn;
    if (session->status != WEFT_OK)
        return;
    if (why == WEFT_ECLOSED) /* its last words' acknowledgement is on the way */
        chans_linger(session);
    chans_free(session); /* before anybody is told */
    session->status = why;
    session->conn = NULL;
    wf_net_count(t, WF_STAT_PEERS_DOWN, session->handle != NULL);
    for (uint32_t i = 0; i < t->npeers; i++) {
        struct net_peer *peer = t->peers[i];
        if (peer->session != session)
            continue;
        peer->session = NULL;
        peer->status = (int16_t)why;
        t->base.events->peer_down(t->base.owner, &peer->base, why);
    }
    session->handle = NULL;
    if (conn)
        t->base.events->conn_down(t->base.owner, conn);
    t->events++;
    dead_remember(session);
}

/* A channel by which BYE is still to come is waited for; if it has no socket, called. */
void wf_net_session_bye(struct net_session *session, uint32_t lanes)
{
    bool all = true;
    session->bye = (uint16_t)lanes;
    for (unsigned i = 0; i < WF_NET_LANES_MAX; i++) {
        struct net_chan *l = lanes >> i & 1 ? wf_net_session_chan(session, i) : NULL;
        if (l && !l->bye) {
            all = false;
            wf_net_chan_dial(l, NET_LATER_MS);
        }
    }
    if (all)
        wf_net_session_end(session, WEFT_ECLOSED);
}

/* ---- what the connection manager says ---- */

void wf_net_turn_away(struct net_ctx *ctx, int fd, struct wf_aead *sealer)
{
    struct wf_net_frame f = {.kind = WF_NET_BYE};
    uint8_t record[WF_AEAD_RECORD_MAX];
    size_t n = sizeof f;
    if (sealer)
        n = wf_aead_seal(sealer, &f, sizeof f, record);
    (void)send(fd, sealer ? record : (const void *)&f, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    wf_conn_mgr_linger(ctx->mgr, fd);
}

static void conn_turn_away(struct net_ctx *ctx, struct wf_net_conn *conn)
{
    struct wf_aead sealer = {.number = 0};
    memcpy(sealer.key, conn->key_out, sizeof sealer.key);
    wf_net_fd_forget(ctx, conn->fd);
    wf_net_turn_away(ctx, conn->fd, conn->encrypted ? &sealer : NULL);
    sodium_memzero(&sealer, sizeof sealer);
    wf_net_conn_free(conn);
}

/* A forked child may hold a copy of the socket. */
void wf_net_conn_close(struct net_ep *t, struct wf_net_conn *conn)
{
    wf_net_fd_forget(t->ctx, conn->fd);
    (void)shutdown(conn->fd, SHUT_RDWR);
    close(conn->fd);
    wf_net_conn_free(conn);
}

/* Handles that were opened before either side said anything. */
static void handles_find(struct net_session *session)
{
    const struct net_ep *t = session->tep;
    for (uint32_t i = 0; i < t->npeers; i++) {
        struct net_peer *peer = t->peers[i];
        if (!peer->session && peer->status == WEFT_OK &&
            wf_net_peer_is(peer, &session->known.address))
            wf_net_session_hold(session, peer);
    }
}

/* What came by the old socket: who sent it may have gone, and says it to no new one. That is as
 * many bytes as the kernel has now (tcp(7), SIOCINQ), however many reads that takes, and no more: a
 * peer that goes on sending does not keep this side reading, and sends them again. */
static void chan_drain(struct net_chan *chan)
{
    uint32_t begin = chan->socket_bytes;
    int there = 0;
    if (chan->link && chan->fd >= 0) {
        wf_net_socket_look(chan);
        return;
    }
    if (chan->fd >= 0 && ioctl(chan->fd, SIOCINQ, &there))
        there = INT_MAX;
    while (chan->fd >= 0 && chan->socket_bytes - begin < (uint32_t)there) {
        uint8_t byte;
        if (recv(chan->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
            return;
        wf_net_read(chan);
    }
}

static void arrived(struct net_ep *t, struct wf_net_conn *conn)
{
    struct net_session *session = wf_net_session_find(t, &conn->peer);
    struct net_chan *chan = NULL;
    if (!session && !t->closing && (session = wf_net_session_make(t, &conn->peer, &conn->contact)))
        handles_find(session);
    if (session && session->status == WEFT_OK)
        chan = wf_net_session_chan(session, conn->lane);
    if (chan)
        chan_drain(chan);
    if (chan && chan->session) /* that may have been its end */
        wf_net_chan_adopt(chan, conn);
    else if (chan || t->closing || (session && session->status != WEFT_OK))
        conn_turn_away(t->ctx, conn);
    else /* no memory: it comes again */
        wf_net_conn_close(t, conn);
}

static struct net_chan *chan_calling(const struct net_session *session, uint64_t call)
{
    for (unsigned i = 0; session && i < session->nchans; i++)
        if (session->chans[i] && session->chans[i]->dial == call)
            return session->chans[i];
    return NULL;
}

static bool other_usable(const struct net_session *session, const struct net_chan *chan)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] != chan && is_open(session->chans[i]))
            return true;
    return false;
}

static void given_up(struct net_ep *t, const struct wf_dial_result *v)
{
    struct net_session *session = wf_net_session_find(t, &v->to);
    struct net_chan *chan = chan_calling(session, v->dial);
    if (!chan)
        return;
    chan->dial = 0;
    if (session->bye) {
        wf_net_session_end(session, WEFT_ECLOSED);
    } else if (chan->gen && other_usable(session, chan)) { /* its process is there, as that shows */
        wf_net_chan_dial(chan, RETRY_MS);
    } else if (!chan->gen && chan->index) { /* the others go on without it */
        wf_info("lane %u to endpoint %u of process %u cannot be opened: %s", chan->index,
                session->known.address.ep, session->known.address.process.pid, v->why);
        chan->lost = true;
    } else {
        if (chan->gen)
            wf_info("endpoint %u of process %u is lost: %s", session->known.address.ep,
                    session->known.address.process.pid, v->why);
        else
            wf_warn("endpoint %u of process %u cannot be reached: %s", session->known.address.ep,
                    session->known.address.process.pid, v->why);
        wf_net_session_end(session, v->status);
    }
}

/* arg: is there still one that cannot be called? */
static void session_dial(struct wf_book_entry *entry, void *arg)
{
    struct net_session *session = session_at(entry);
    bool *still = arg;
    for (unsigned i = 0; i < session->nchans; i++) {
        struct net_chan *l = session->chans[i];
        if (!l || l->fd >= 0 || l->lost || l->bye || session->status != WEFT_OK ||
            (session->tep->closing && !wf_net_has_unsent(l)))
            continue;
        wf_net_chan_dial(l, 0);
        *still |= !l->dial;
    }
}

void wf_net_sessions_dial(struct net_ep *t)
{
    bool still = false;
    wf_book_each(&t->sessions, session_dial, &still);
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

void wf_net_inbox(struct net_ep *t)
{
    struct wf_list arrivals, results;
    atomic_store_explicit(&t->inbox, 0, memory_order_relaxed);
    pthread_mutex_lock(&t->lock);
    list_take(&arrivals, &t->arrivals);
    t->narrivals = 0;
    list_take(&results, &t->results);
    pthread_mutex_unlock(&t->lock);
    while (!wf_list_empty(&arrivals)) {
        struct wf_net_conn *conn = wf_container_of(arrivals.next, struct wf_net_conn, item);
        wf_list_remove(&conn->item);
        arrived(t, conn);
        t->events++;
    }
    while (!wf_list_empty(&results)) {
        struct wf_dial_result *v = wf_container_of(results.next, struct wf_dial_result, item);
        wf_list_remove(&v->item);
        given_up(t, v);
        free(v);
        t->events++;
    }
}

/* On the connection manager's thread. The endpoint is found and stays under the context's lock. */
static struct net_ep *tep_of(struct net_ctx *ctx, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &ctx->teps)
    {
        struct net_ep *t = wf_container_of(it, struct net_ep, item);
        if (t->address.ep == ep && t->address.ep_gen == ep_gen)
            return t;
    }
    return NULL;
}

static void tell(struct net_ep *t, struct wf_list *list, struct wf_list *item)
{
    uint64_t one = 1;
    pthread_mutex_lock(&t->lock);
    wf_list_append(list, item);
    pthread_mutex_unlock(&t->lock);
    atomic_store_explicit(&t->inbox, 1, memory_order_release);
    if (write(t->base.event_fd, &one, sizeof one) < 0)
        wf_debug("an endpoint was woken already: %m");
}

bool wf_net_has_session(struct net_ctx *ctx, const struct wf_address *from,
                        const struct wf_address *to)
{
    struct net_ep *t;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, from->ep, from->ep_gen);
    pthread_mutex_unlock(&ctx->lock);
    return t && wf_net_session_find(t, to);
}

static bool is_full(const struct net_ctx *ctx, struct net_ep *t)
{
    bool full;
    pthread_mutex_lock(&t->lock);
    full = t->narrivals >= ctx->arrivals_max;
    pthread_mutex_unlock(&t->lock);
    return full;
}

static enum wf_net_host mgr_has(void *owner, uint16_t ep, uint32_t ep_gen)
{
    struct net_ctx *ctx = owner;
    enum wf_net_host has = WF_NET_HOST_NONE;
    struct net_ep *t;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, ep, ep_gen);
    if (t)
        has = is_full(ctx, t) ? WF_NET_HOST_FULL : WF_NET_HOST_OPEN;
    pthread_mutex_unlock(&ctx->lock);
    return has;
}

static bool mgr_connected(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_net_conn *conn)
{
    struct net_ctx *ctx = owner;
    struct net_ep *t;
    bool gone = false;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, ep, ep_gen);
    if (t && !wf_net_fd_note(ctx, conn->fd))
        t = NULL;
    if (t) {
        wf_conn_mgr_passed(ctx->mgr);
        pthread_mutex_lock(&t->lock);
        gone = wf_book_find(&t->gone, &conn->peer);
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

static void mgr_given_up(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_dial_result *v)
{
    struct net_ctx *ctx = owner;
    struct net_ep *t;
    pthread_mutex_lock(&ctx->lock);
    t = tep_of(ctx, ep, ep_gen);
    if (t)
        tell(t, &t->results, &v->item);
    pthread_mutex_unlock(&ctx->lock);
    if (!t)
        free(v);
}

static void mgr_fork_begin(void *owner)
{
    pthread_mutex_lock(&((struct net_ctx *)owner)->lock);
}

static void mgr_fork_end(void *owner, bool child)
{
    struct net_ctx *ctx = owner;
    for (unsigned i = 0; child && i < ctx->nfds; i++)
        close(ctx->fds[i]);
    ctx->nfds = child ? 0 : ctx->nfds;
    pthread_mutex_unlock(&ctx->lock);
}

const struct wf_conn_mgr_events wf_net_mgr_events = {mgr_has, mgr_connected, mgr_given_up,
                                                     mgr_fork_begin, mgr_fork_end};

/* ---- the endpoint's end ---- */

static uint32_t chans_used(const struct net_session *session)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && (session->chans[i]->gen || session->chans[i]->next))
            mask |= 1u << i;
    return mask;
}

static void session_bye_say(struct wf_book_entry *entry, void *arg)
{
    struct net_session *session = session_at(entry);
    uint32_t mask = chans_used(session);
    (void)arg;
    for (unsigned i = 0; i < session->nchans; i++)
        if (mask >> i & 1) {
            wf_net_append_bye(session->chans[i], mask);
            wf_net_dirty(session->chans[i]);
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

static enum outstanding chan_outstanding(const struct net_chan *chan)
{
    if (!chan || chan->bye || chan->first == chan->next)
        return NOTHING;
    if (chan->fd < 0 || wf_net_has_unsent(chan))
        return BYTES;
    return (wf_net_is_wired(chan) ? chan->session->tep->wires->flushed(chan->link)
                                  : kernel_has_all(chan->fd))
               ? WORD
               : BYTES;
}

static void session_outstanding(struct wf_book_entry *entry, void *arg)
{
    const struct net_session *session = session_at(entry);
    enum outstanding *most = arg;
    for (unsigned i = 0; i < session->nchans; i++)
        *most = WF_MAX(*most, chan_outstanding(session->chans[i]));
}

static enum outstanding most_outstanding(const struct net_ep *t)
{
    enum outstanding most = NOTHING;
    wf_book_each(&t->sessions, session_outstanding, &most);
    return most;
}

/* One turn: what came, what can leave. Nothing is delivered any more. */
static void closing_turn(struct net_ep *t)
{
    struct pollfd p[2] = {{.fd = t->base.event_fd, .events = POLLIN},
                          {.fd = t->epoll_fd, .events = POLLIN}};
    uint64_t n;
    (void)poll(p, t->epoll_fd >= 0 ? 2 : 1, CLOSING_MS);
    if (read(t->base.event_fd, &n, sizeof n) > 0 || atomic_load(&t->inbox))
        wf_net_inbox(t);
    if (t->wires) {
        t->wires->look(t);
        (void)t->wires->turn(t);
        wf_net_sockets_look(t);
    } else {
        wf_net_read_each(t);
    }
    wf_net_flush_all(t);
}

/* Who does not poll answers no wire's questions: last words go by a socket, which its kernel
 * takes. */
static void chans_unwire(struct net_ep *t)
{
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        if (chan->link && !chan->up)
            wf_net_chan_break(chan, "it closes before its wire is up");
    }
}

/* Until all was taken, or for as long as may be. */
static void last_words(struct net_ep *t)
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

void wf_net_sessions_bye(struct net_ep *t)
{
    t->closing = true;
    t->close_ms =
        t->ctx->base.close_ms ? t->ctx->base.close_ms : (uint32_t)wf_config()->peer_timeout_ms;
    t->settle_ns = CLOSE_SETTLE_NS;
    wf_list_each(it, &t->live)(void) wf_net_chan_watch(wf_container_of(it, struct net_chan, live),
                                                       false); /* each turn tries to write */
    wf_book_each(&t->sessions, session_bye_say, NULL);
    if (t->wires)
        chans_unwire(t);
    wf_net_flush_all(t);
    last_words(t);
    t->settle_ns = CLOSE_SETTLE_NS;
}

static void session_drop(struct wf_book_entry *entry, void *arg)
{
    struct net_session *session = session_at(entry);
    struct net_ep *t = session->tep;
    (void)arg;
    chans_linger(session);
    chans_free(session);
    if (session->conn)
        t->base.events->conn_down(t->base.owner, session->conn);
    session_free(session);
}

static void inbox_drop(struct net_ep *t)
{
    while (!wf_list_empty(&t->arrivals)) {
        struct wf_net_conn *conn = wf_container_of(t->arrivals.next, struct wf_net_conn, item);
        wf_list_remove(&conn->item);
        conn_turn_away(t->ctx, conn);
    }
    while (!wf_list_empty(&t->results)) {
        struct wf_list *it = t->results.next;
        wf_list_remove(it);
        free(wf_container_of(it, struct wf_dial_result, item));
    }
}

/* The connection manager knows the endpoint no more. */
void wf_net_sessions_free(struct net_ep *t)
{
    wf_book_each(&t->sessions, session_drop, NULL);
    wf_book_free(&t->sessions);
    wf_book_free(&t->gone);
    inbox_drop(t);
}
