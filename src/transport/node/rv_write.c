/* SPDX-License-Identifier: BSD-3-Clause */
/* weft/node.h: peers, writes, and events. docs/design/node.md "Calls for runtimes with a protocol
 * of their own" has the way of a write.
 *
 * | peer       | event                                      | next       |
 * | ---------- | ------------------------------------------ | ---------- |
 * | NEW        | weft_node_connect: REACH is posted         | CONNECTING |
 * | CONNECTING | REACH is done                              | CONNECTED  |
 * | CONNECTING | REACH is lost: it is posted again          | CONNECTING |
 * | CONNECTING | REACH is refused: a successor has answered | FAILED     |
 * | CONNECTING | WEFT_CONNECT_TIMEOUT is over               | FAILED     |
 * | CONNECTED  | its service has another session: the one   | FAILED     |
 * |            | by which the peer had its keys has ended   |            |
 * | any        | its word is lost, or the own service ended | FAILED     |
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "config/config.h"
#include "transport/node/nic.h"
#include "transport/node/rv.h"
#include "transport/node/rv_cache.h"
#include "transport/ring/sleep.h"

#define MS UINT64_C(1000000)
#define LOOK_MS 50 /* between looks at a service that may have ended */

/* ---- peers ---- */

static void peer_fail(struct weft_node_peer *peer, enum weft_status why)
{
    peer->state = RV_FAILED;
    peer->status = why;
}

static WF_REQUIRES(rv_lock_class) int post(struct weft_node_peer *peer,
                                           const struct rv_write *write,
                                           const struct wf_node_move *at)
{
    struct weft_node *node = peer->node;
    const struct wf_rv_post p = {.kind = write->kind,
                                 .word = peer->word,
                                 .session = peer->session,
                                 .len = write->len,
                                 .lane = write->connection,
                                 .at = *at};
    int place = wf_rv_ring_post(&node->ring, &p);
    if (place < 0)
        return place;
    node->writes[place] = *write;
    peer->under_way += write->kind == WF_NODE_WRITE;
    return place;
}

static WF_REQUIRES(rv_lock_class) void reach(struct weft_node_peer *peer, uint32_t session)
{
    const struct rv_write write = {.peer = peer, .kind = WF_NODE_REACH};
    peer->session = session;
    peer->is_reaching =
        post(peer, &write, &(struct wf_node_move){.incarnation = peer->incarnation}) >= 0;
}

/* Look at the page: has the peer's service ended? Is there a new session, by which to reach it? */
static WF_REQUIRES(rv_lock_class) void peer_look(struct weft_node_peer *peer)
{
    struct weft_node *node = peer->node;
    uint64_t word;
    unsigned state;
    if (peer->state == RV_NEW || peer->state == RV_FAILED)
        return;
    if (rv_status(node) != WEFT_OK) {
        peer_fail(peer, rv_status(node));
        return;
    }
    word = wf_load_acquire(&node->ring.page->words[wf_node_word_index(peer->word)]); /* "page" */
    state = wf_node_session_state(word, peer->word);
    if (state == WF_NODE_LOST || (peer->state == RV_CONNECTED && (uint32_t)word != peer->session))
        peer_fail(peer, WEFT_EPEER);
    else if (peer->state == RV_CONNECTING && wf_now_ns() >= peer->until_ns)
        peer_fail(peer, WEFT_ETIMEDOUT);
    else if (peer->state == RV_CONNECTING && !peer->is_reaching && state == WF_NODE_UP)
        reach(peer, (uint32_t)word);
}

static WF_REQUIRES(rv_lock_class) void reached(struct weft_node_peer *peer, unsigned end)
{
    peer->is_reaching = false;
    if (peer->state == RV_CONNECTING && end == WF_NODE_MOVE_REFUSED)
        peer_fail(peer, WEFT_EPEER);
    if (peer->state != RV_CONNECTING || end != WF_NODE_DONE)
        return;
    peer->state = RV_CONNECTED;
    peer->counts.connects = 1;
}

/* The end of a write becomes an event, that of a REACH does not. Returns false for the latter. */
static WF_REQUIRES(rv_lock_class) bool write_end(struct weft_node *node, int place, unsigned end,
                                                 struct weft_node_event_entry *out)
{
    static const enum weft_status statuses[WF_NODE_MOVE_ENDS] = {
        [0] = WEFT_EPEER,
        [WF_NODE_DONE] = WEFT_OK,
        [WF_NODE_MOVE_LOST] = WEFT_EUNREACH,
        [WF_NODE_MOVE_REFUSED] = WEFT_EKEY};
    const struct rv_write w = node->writes[place];
    struct weft_node_peer_counts *n;
    node->writes[place] = (struct rv_write){0};
    if (w.kind == WF_NODE_REACH) {
        if (w.peer)
            reached(w.peer, end);
        return false;
    }
    if (w.mr)
        (void)wf_rv_put(node->cache, w.mr, w.addr, w.len, w.access);
    *out = (struct weft_node_event_entry){.kind = WEFT_NODE_SENT,
                                          .status = statuses[end],
                                          .id = w.id,
                                          .peer = w.peer,
                                          .bytes = w.len,
                                          .connection = w.connection,
                                          .count = w.count};
    n = &w.peer->counts;
    w.peer->under_way--;
    n->done += end == WF_NODE_DONE;
    n->failed += end != WF_NODE_DONE;
    n->bytes += end == WF_NODE_DONE ? w.len : 0;
    n->connects += end != WF_NODE_DONE && n->connects == w.count;
    node->counts.sent++;
    node->counts.failed += end != WF_NODE_DONE;
    node->counts.sent_bytes += end == WF_NODE_DONE ? w.len : 0;
    return true;
}

/* Take the REACHes that have ended, but no write. */
static WF_REQUIRES(rv_lock_class) void reaches_take(struct weft_node *node)
{
    for (unsigned place = 0; place < WF_NODE_MOVES; place++) {
        struct weft_node_event_entry none;
        unsigned end;
        if (node->writes[place].kind == WF_NODE_REACH &&
            wf_rv_ring_ended(&node->ring, UINT64_C(1) << place, &end) >= 0)
            (void)write_end(node, (int)place, end, &none);
    }
}

/* Ask the service for the word of the peer's, and wait for the answer. */
static WF_REQUIRES(rv_lock_class) enum weft_status peer_ask(struct weft_node_peer *peer)
{
    struct weft_node *node = peer->node;
    uint64_t until_ns = wf_now_ns() + wf_config()->connect_timeout_ms * MS;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_NODE);
    p.u.node = peer->service;
    p.cookie = peer->cookie = ++node->cookie;
    peer->status = WEFT_PENDING;
    if (wf_node_packet_send(node->link.sock, &p, NULL, 0))
        return errno == EAGAIN ? WEFT_ELIMIT : WEFT_EPEER;
    while (peer->status == WEFT_PENDING) {
        if (rv_status(node) != WEFT_OK)
            return rv_status(node);
        if (pthread_cond_timedwait(&node->answered, &node->lock, &until) == ETIMEDOUT &&
            peer->status == WEFT_PENDING) /* else an event may name the peer already */
            return WEFT_ETIMEDOUT;
    }
    if (peer->status == WEFT_OK && wf_node_word_index(peer->word) == WF_NODE_OWN)
        return WEFT_EINVAL;
    return peer->status;
}

enum weft_status weft_node_peer_open(struct weft_node *node, const void *addr, size_t len,
                                     struct weft_node_peer **out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    struct weft_node_peer *peer;
    struct wf_address address;
    struct wf_contact contact;
    if (status == WEFT_OK)
        status = wf_address_parse(addr, len, &address, &contact);
    if (status != WEFT_OK || !node->ring.page || contact.node != WF_NODE_RDMA)
        return status != WEFT_OK ? status : WEFT_EINVAL;
    if (rv_status(node) != WEFT_OK)
        return rv_status(node);
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return WEFT_ENOMEM;
    *peer = (struct weft_node_peer){
        .node = node,
        .service = {.contact = contact, .host = address.process.host, .user = address.process.user},
        .incarnation = address.ep_gen,
        .word = WF_NODE_NO_WORD};
    peer->service.contact.index = peer->service.contact.node = 0;
    rv_lock(node);
    wf_list_append(&node->peers, &peer->item);
    status = peer_ask(peer);
    if (status != WEFT_OK)
        wf_list_remove(&peer->item);
    rv_unlock(node);
    if (status == WEFT_OK)
        *out = peer;
    else
        free(peer);
    return status;
}

enum weft_status weft_node_peer_close(struct weft_node_peer *peer)
{
    struct weft_node *node = peer ? peer->node : NULL;
    enum weft_status status = wf_rv_check(node);
    if (status != WEFT_OK)
        return status;
    rv_lock(node);
    if (peer->under_way)
        status = WEFT_EBUSY;
    else
        wf_list_remove(&peer->item);
    for (unsigned i = 0; status == WEFT_OK && i < WF_NODE_MOVES; i++)
        if (node->writes[i].peer == peer)
            node->writes[i].peer = NULL;
    rv_unlock(node);
    if (status == WEFT_OK)
        free(peer);
    return status;
}

enum weft_status weft_node_connect(struct weft_node_peer *peer)
{
    enum weft_status status = peer ? wf_rv_check(peer->node) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    rv_lock(peer->node);
    if (peer->state == RV_NEW) {
        peer->state = RV_CONNECTING;
        peer->until_ns = wf_now_ns() + wf_config()->connect_timeout_ms * MS;
        peer_look(peer);
    }
    rv_unlock(peer->node);
    return WEFT_OK;
}

static WF_REQUIRES(rv_lock_class) enum weft_status connected(struct weft_node_peer *peer)
{
    reaches_take(peer->node);
    peer_look(peer);
    return peer->state == RV_CONNECTED ? WEFT_OK
           : peer->state == RV_FAILED  ? peer->status
                                       : WEFT_PENDING;
}

enum weft_status weft_node_connected(struct weft_node_peer *peer)
{
    enum weft_status status = peer ? wf_rv_check(peer->node) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    rv_lock(peer->node);
    status = connected(peer);
    rv_unlock(peer->node);
    return status;
}

enum weft_status weft_node_connects(struct weft_node_peer *peer, uint32_t connection,
                                    uint32_t *count)
{
    enum weft_status status = peer && count ? wf_rv_check(peer->node) : WEFT_EINVAL;
    if (status == WEFT_OK && connection >= peer->node->parameters.connections)
        status = WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    rv_lock(peer->node);
    status = connected(peer);
    if (status == WEFT_OK || status == WEFT_PENDING) {
        *count = (uint32_t)peer->counts.connects;
        status = WEFT_OK;
    }
    rv_unlock(peer->node);
    return status;
}

enum weft_status weft_node_peer_stats(struct weft_node *node, struct weft_node_peer *peer,
                                      struct weft_node_peer_counts *out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    struct weft_node_peer_counts sum = {0};
    if (status != WEFT_OK || (peer && peer->node != node))
        return status != WEFT_OK ? status : WEFT_EINVAL;
    rv_lock(node);
    wf_list_each(it, &node->peers)
    {
        const struct weft_node_peer *p = wf_container_of(it, struct weft_node_peer, item);
        if (peer && p != peer)
            continue;
        sum.connects += p->counts.connects;
        sum.posted += p->counts.posted;
        sum.posted_bytes += p->counts.posted_bytes;
        sum.received += p->counts.received;
        sum.received_bytes += p->counts.received_bytes;
        sum.done += p->counts.done;
        sum.failed += p->counts.failed;
        sum.bytes += p->counts.bytes;
        sum.under_way += p->under_way;
    }
    rv_unlock(node);
    *out = sum;
    return WEFT_OK;
}

/* ---- writes ---- */

/* The NIC's view of the local bytes, which are registered until the write has ended. */
static enum weft_status source(struct weft_node *node, const struct weft_node_post *p,
                               struct rv_write *write, struct wf_node_move *at)
{
    uint64_t offset = 0;
    uint32_t rkey;
    void *handle;
    enum weft_status status;
    if (!p->len)
        return WEFT_OK;
    status =
        wf_rv_hold(node->cache, p->mr->handle, p->addr, p->len, p->mr->access, &handle, &offset);
    if (status != WEFT_OK)
        return status;
    write->mr = p->mr->handle;
    write->addr = p->addr;
    write->access = p->mr->access;
    if (!wf_via_nic_keys(handle, &at->local, &at->lkey, &rkey))
        status = WEFT_EPEER;
    at->local += offset;
    return status;
}

static WF_REQUIRES(rv_lock_class) enum weft_status
    write_post(struct weft_node_peer *peer, const struct weft_node_post *p,
               struct weft_node_sent *out)
{
    struct weft_node *node = peer->node;
    struct rv_write write = {.peer = peer,
                             .id = p->id,
                             .len = (uint32_t)p->len,
                             .count = (uint32_t)peer->counts.connects,
                             .connection = peer->turn++ % node->parameters.connections,
                             .kind = WF_NODE_WRITE};
    struct wf_node_move at = {.remote = p->len ? p->remote : 0,
                              .rkey = p->len ? p->remote_key : 0,
                              .incarnation = peer->incarnation,
                              .immediate = p->immediate};
    enum weft_status status = source(node, p, &write, &at);
    if (status == WEFT_OK && post(peer, &write, &at) < 0)
        status = WEFT_AGAIN;
    if (status != WEFT_OK && write.mr)
        (void)wf_rv_put(node->cache, write.mr, write.addr, write.len, write.access);
    if (status != WEFT_OK)
        return status;
    peer->counts.posted++;
    peer->counts.posted_bytes += p->len;
    if (out)
        *out = (struct weft_node_sent){write.connection, write.count};
    return status;
}

static bool post_ok(const struct weft_node_post *p)
{
    uint64_t reserved = 0;
    for (unsigned i = 0; p && i < WF_ARRAY_LEN(p->reserved); i++)
        reserved |= p->reserved[i];
    return p && !reserved && p->len <= WF_NODE_MOVE_MAX &&
           (!p->len || (p->mr && p->addr && p->remote <= UINT64_MAX - p->len));
}

enum weft_status weft_node_write(struct weft_node_peer *peer, const struct weft_node_post *p,
                                 struct weft_node_sent *out)
{
    enum weft_status status = peer && post_ok(p) ? wf_rv_check(peer->node) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    rv_lock(peer->node);
    status = peer->state == RV_NEW ? WEFT_EINVAL : connected(peer);
    if (status == WEFT_PENDING)
        status = WEFT_AGAIN;
    if (status == WEFT_OK)
        status = write_post(peer, p, out);
    rv_unlock(peer->node);
    return status;
}

/* ---- events ---- */

static WF_REQUIRES(rv_lock_class) bool sent_take(struct weft_node *node,
                                                 struct weft_node_event_entry *out)
{
    unsigned end;
    int place;
    while ((place = wf_rv_ring_ended(&node->ring, UINT64_MAX, &end)) >= 0)
        if (write_end(node, place, end, out))
            return true;
    return false;
}

/* The service has ended: what it did not complete has failed. */
static WF_REQUIRES(rv_lock_class) bool abandoned_take(struct weft_node *node,
                                                      struct weft_node_event_entry *out)
{
    int place;
    while ((place = wf_rv_ring_abandon(&node->ring)) >= 0)
        if (write_end(node, place, 0, out))
            return true;
    return false;
}

/* Events that the service has written wait behind a line that is none, and are not taken: the
 * status tells the program that some are missing. */
static WF_REQUIRES(rv_lock_class) enum weft_status
    received_take(struct weft_node *node, struct weft_node_event_entry *out)
{
    struct wf_rv_event e;
    enum weft_status status =
        wf_load_relaxed(&node->broken) ? WEFT_AGAIN : wf_rv_ring_take(&node->ring, &e);
    if (status == WEFT_EPROTO) {
        wf_rv_broken(node);
        return WEFT_AGAIN;
    }
    if (status != WEFT_OK)
        return status;
    *out = (struct weft_node_event_entry){
        .kind = WEFT_NODE_RECEIVED, .bytes = e.bytes, .immediate = e.immediate, .index = e.index};
    wf_list_each(it, &node->peers)
    {
        struct weft_node_peer *peer = wf_container_of(it, struct weft_node_peer, item);
        if (peer->word == e.word && !out->peer)
            out->peer = peer;
    }
    if (out->peer) {
        out->peer->counts.received++;
        out->peer->counts.received_bytes += e.bytes;
    }
    node->counts.received++;
    node->counts.received_bytes += e.bytes;
    return status;
}

static WF_REQUIRES(rv_lock_class) enum weft_status
    event_take(struct weft_node *node, struct weft_node_event_entry *out)
{
    enum weft_status ended = rv_status(node);   /* before the look at what it has completed */
    bool received_first = node->received_first; /* in turn, so that neither keeps the other out */
    enum weft_status status = received_first ? received_take(node, out) : WEFT_AGAIN;
    node->received_first = !received_first;
    if (status == WEFT_OK || sent_take(node, out))
        return WEFT_OK;
    if (!received_first)
        status = received_take(node, out);
    if (status != WEFT_AGAIN || ended == WEFT_OK)
        return status;
    return abandoned_take(node, out) ? WEFT_OK : ended;
}

static enum weft_status rings_check(const struct weft_node *node)
{
    enum weft_status status = wf_rv_check(node);
    return status == WEFT_OK && !node->ring.page ? WEFT_EINVAL : status;
}

enum weft_status weft_node_event(struct weft_node *node, struct weft_node_event_entry *out)
{
    enum weft_status status = out ? rings_check(node) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    rv_lock(node);
    status = event_take(node, out);
    rv_unlock(node);
    return status;
}

enum weft_status weft_node_event_stats(struct weft_node *node, struct weft_node_event_counts *out)
{
    enum weft_status status = out ? rings_check(node) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    rv_lock(node);
    *out = node->counts;
    out->room = node->ring.events;
    out->head = node->ring.taken;
    out->tail = wf_rv_ring_tail(&node->ring);
    out->overflow = wf_load_relaxed(&node->ring.event->overflow);
    rv_unlock(node);
    return WEFT_OK;
}

/* ---- closing ---- */

static WF_REQUIRES(rv_lock_class) bool are_writes_over(struct weft_node *node)
{
    struct weft_node_event_entry none;
    while (sent_take(node, &none))
        ;
    for (unsigned i = 0; i < WF_NODE_MOVES; i++)
        if (node->writes[i].kind == WF_NODE_WRITE)
            return false;
    return true;
}

/* The service rings the bell for a write that ends after the last look. */
WF_UNCHECKED bool wf_rv_writes_await(struct weft_node *node)
{
    uint64_t until = wf_now_ns() + wf_config()->peer_timeout_ms * MS, epoch = 0;
    bool over = false;
    char bytes[64];
    if (!node->ring.page)
        return true;
    wf_sleep_set(&node->ring.submit->sleep_epoch, &epoch, true);
    while (wf_sleep_barrier(false) && !(over = are_writes_over(node)) &&
           rv_status(node) == WEFT_OK && wf_now_ns() < until) {
        struct pollfd p = {.fd = node->ring.bell, .events = POLLIN};
        if (poll(&p, 1, LOOK_MS) == 1)
            (void)recv(node->ring.bell, bytes, sizeof bytes, MSG_DONTWAIT);
        wf_sleep_set(&node->ring.submit->sleep_epoch, &epoch, false);
        wf_sleep_set(&node->ring.submit->sleep_epoch, &epoch, true);
    }
    wf_sleep_set(&node->ring.submit->sleep_epoch, &epoch, false);
    return over;
}
