/* SPDX-License-Identifier: BSD-3-Clause */
/* Pending connections: accepted, not yet authenticated (states: manager.h). Each pending connection
 * costs one struct and one socket. This side computes MACs for a connection only if the
 * connection's hello names an endpoint of this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/manager_int.h"
#include "transport/net/connect/hello.h"
#include "transport/stream.h"

#define BATCH 16 /* connections accepted per event */
/* How long accepting pauses after this process has run out of descriptors or memory. */
#define SHORTAGE_MS 100
/* How long accepting pauses if WF_NET_PENDING_MAX connections are pending and none may be
 * evicted. */
#define FULL_MS 5
/* A connection that has named an endpoint is not evicted before this age. Within this time the two
 * round trips of its handshake can end. */
#define GRACE_MS 500

/* Rate limit. Of the connections that fail to authenticate, at most one per INTERVAL_NS is accepted
 * on average. Each accepted connection moves mgr->rate_ns forward by INTERVAL_NS. If the connection
 * authenticates, rate_ns moves back. Accepting pauses while rate_ns is more than WF_NET_PENDING_MAX
 * intervals ahead of the clock. */
#define INTERVAL_NS (WF_MGR_SECOND / (WF_NET_PENDING_MAX * 16))

enum pending_state { AWAIT_HELLO, AWAIT_KEY, AWAIT_PROOF };

struct pending {
    struct wf_mgr_watch watch;
    enum pending_state state;
    uint64_t since_ns; /* when it was accepted */
    bool names_ep;     /* the hello names an endpoint of this process */
    uint32_t now_gen;  /* if it names none: of the endpoint that has the number; or 0 */
    uint16_t port;     /* the peer's port, for the log */
    uint8_t ip[WF_NET_IP];
    size_t have; /* bytes of [in] that have arrived */
    union {
        struct wf_net_hello hello;
        struct wf_net_proof proof;
    } in;
    struct wf_net_hello hello;
    struct wf_net_challenge challenge;
};

static struct pending *pending_of(struct wf_mgr_watch *w)
{
    return wf_container_of(w, struct pending, watch);
}

/* Refuse a pending connection. After CHALLENGE no REFUSAL is sent, since the peer may already
 * expect frames. The peer then sees the end of the stream, and dials again. */
static UNDER_LOCK void pending_refuse(struct wf_conn_mgr *mgr, struct pending *p,
                                      enum wf_net_refusal_reason reason)
{
    struct wf_net_refusal refusal;
    wf_net_refusal_make(mgr->flags, reason, reason == WF_NET_REFUSED_GONE ? p->now_gen : 0,
                        &refusal);
    if (p->state != AWAIT_PROOF)
        (void)wf_mgr_send(p->watch.fd, &refusal, sizeof refusal);
    wf_mgr_watch_end(mgr, &p->watch);
}

/* Log why a connection is refused. The line shows the peer's address, and then the reason,
 * [text]. */
static void pending_log(struct wf_conn_mgr *mgr, const struct pending *p, enum wf_mgr_topic topic,
                        const char *text)
{
    char name[WF_NET_NAME];
    char suffix[WF_MGR_SUFFIX];
    if (wf_mgr_may_log(mgr, topic, suffix))
        wf_log(topic == WF_MGR_LOG_PROTOCOL ? WF_LOG_INFO : WF_LOG_WARN,
               "refused a connection from %s: %s%s", wf_ipaddr_print_port(p->ip, p->port, name),
               text, suffix);
}

static UNDER_LOCK void pending_challenge(struct wf_conn_mgr *mgr, struct pending *p)
{
    wf_net_challenge_make(mgr->flags, &p->challenge);
    wf_net_challenge_sign(mgr->key, &p->hello, &p->challenge);
    p->state = AWAIT_PROOF;
    p->have = 0;
    if (!wf_mgr_send(p->watch.fd, &p->challenge, sizeof p->challenge))
        wf_mgr_watch_end(mgr, &p->watch);
}

/* Ask the owner about the endpoint that the hello names. The lock is released during the call to
 * the owner, so another thread may end [p] meanwhile. */
static UNDER_LOCK enum wf_net_host pending_target(struct wf_conn_mgr *mgr, struct pending *p)
{
    const struct wf_net_hello *h = &p->hello;
    enum wf_net_host has;
    if (h->to_token[0] != mgr->self.token[0] || h->to_token[1] != mgr->self.token[1])
        return WF_NET_HOST_NONE;
    wf_mgr_event_begin(mgr, h->to_ep, h->to_gen);
    has = mgr->params.events->has(mgr->params.owner, h->to_ep, h->to_gen, &p->now_gen);
    wf_mgr_event_end(mgr);
    return has;
}

/* Called when the hello has arrived. First checks the endpoint that the hello names. So this side
 * computes no MAC for a peer that does not know this process's token. */
static UNDER_LOCK void pending_hello_done(struct wf_conn_mgr *mgr, struct pending *p)
{
    enum wf_net_host target = pending_target(mgr, p);
    if (p->watch.dead)
        return;
    if (target == WF_NET_HOST_NONE) {
        pending_refuse(mgr, p, WF_NET_REFUSED_GONE);
    } else if (p->hello.greeting.flags != mgr->flags) {
        pending_log(mgr, p, WF_MGR_LOG_FLAGS,
                    "one side encrypts, the other does not: set WEFT_TCP_ENCRYPT to the same value "
                    "in all processes");
        pending_refuse(mgr, p, WF_NET_REFUSED_FLAGS);
    } else if (target == WF_NET_HOST_FULL ||
               wf_mgr_dial_lacks_resources(mgr, p->hello.to_ep, p->hello.to_gen, &p->hello)) {
        pending_refuse(mgr, p, WF_NET_REFUSED_BUSY); /* BUSY: this side is slow, not dead */
    } else if (mgr->has_key) {
        p->names_ep = true;
        pending_challenge(mgr, p);
    } else {
        p->names_ep = true;
        p->state = AWAIT_KEY;
        /* The peer sends nothing before it has received CHALLENGE. So only watch for the end of the
         * connection. */
        wf_mgr_watch_events(mgr, &p->watch, EPOLLRDHUP);
    }
}

static UNDER_LOCK void pending_hello(struct wf_conn_mgr *mgr, struct pending *p)
{
    struct wf_net_greeting g;
    int whole = wf_mgr_recv(p->watch.fd, &p->in, &p->have, sizeof p->in.hello);
    enum weft_status status = WEFT_OK;
    if (p->have >= sizeof g)
        status = wf_net_greeting_parse(&p->in, WF_NET_HELLO, 0, &g);
    if (status == WEFT_EVERSION) {
        pending_log(mgr, p, WF_MGR_LOG_VERSION,
                    "the peer uses another version of Weft's protocol: use the same version of "
                    "Weft on all hosts");
        pending_refuse(mgr, p, WF_NET_REFUSED_VERSION);
    } else if (status != WEFT_OK ||
               (whole > 0 && wf_net_hello_parse(&p->in, &p->hello) != WEFT_OK)) {
        pending_log(mgr, p, WF_MGR_LOG_PROTOCOL, "the peer does not use Weft's protocol");
        wf_mgr_watch_end(mgr, &p->watch);
    } else if (whole < 0) {
        wf_mgr_watch_end(mgr, &p->watch);
    } else if (whole) {
        pending_hello_done(mgr, p);
    }
}

/* A connection that has authenticated does not count for the rate limit. */
static UNDER_LOCK void rate_refund(struct wf_conn_mgr *mgr)
{
    mgr->rate_ns -= WF_MIN(mgr->rate_ns, INTERVAL_NS);
}

/* Called when the peer has authenticated. If this side has the greater address, the peer's
 * connection is only a connect-back, by which the peer asks to be dialled. In that case closes the
 * connection, dials the peer, and returns true. If the peer has the greater address, returns false:
 * the connection is to be used. */
static UNDER_LOCK bool pending_connect_back(struct wf_conn_mgr *mgr, struct pending *p)
{
    struct wf_dial back = {.from = {.version = WF_ADDRESS_VERSION,
                                    .size = sizeof back.from,
                                    .ep = p->hello.to_ep,
                                    .ep_gen = p->hello.to_gen,
                                    .process = mgr->self},
                           .to = p->hello.from,
                           .from_contact = mgr->contact,
                           .to_contact = p->hello.contact,
                           .lane = p->hello.lane,
                           .gen = p->hello.gen};
    if (memcmp(&back.from, &back.to, sizeof back.from) <= 0)
        return false;
    wf_mgr_watch_end(mgr, &p->watch);
    rate_refund(mgr);
    wf_mgr_dial_back(mgr, &back);
    return true;
}

static UNDER_LOCK void pending_deliver(struct wf_conn_mgr *mgr, struct pending *p)
{
    struct wf_net_conn *conn;
    wf_mgr_connect_back_end(mgr, p->hello.to_ep, p->hello.to_gen, &p->hello);
    conn = wf_mgr_conn_new(mgr, &p->hello, &p->challenge, false);
    if (conn) {
        conn->peer = p->hello.from;
        conn->contact = p->hello.contact;
        conn->fd = wf_mgr_watch_release(mgr, &p->watch);
    }
    wf_mgr_watch_end(mgr, &p->watch);
    rate_refund(mgr);
    if (conn)
        wf_mgr_conn_deliver(mgr, p->hello.to_ep, p->hello.to_gen, conn);
}

static UNDER_LOCK void pending_proof(struct wf_conn_mgr *mgr, struct pending *p)
{
    struct wf_net_proof proof;
    int whole = wf_mgr_recv(p->watch.fd, &p->in, &p->have, sizeof p->in.proof);
    if (!whole)
        return;
    if (whole < 0 || wf_net_proof_parse(&p->in, &proof) != WEFT_OK ||
        proof.greeting.flags != mgr->flags) {
        pending_log(mgr, p, WF_MGR_LOG_PROTOCOL, "the peer did not answer the challenge");
        wf_mgr_watch_end(mgr, &p->watch);
    } else if (!wf_net_proof_verify(mgr->key, &p->hello, &p->challenge, &proof)) {
        pending_log(mgr, p, WF_MGR_LOG_KEY,
                    "the peer does not know this job's key (it is another job's process, it has "
                    "another WEFT_KEY_FILE, or this is an attack; the network works)");
        wf_mgr_watch_end(mgr, &p->watch);
    } else if (!pending_connect_back(mgr, p)) {
        pending_deliver(mgr, p);
    }
}

void wf_mgr_pending_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    struct pending *p = pending_of(w);
    switch (p->state) {
    case AWAIT_HELLO: pending_hello(mgr, p); break;
    case AWAIT_KEY: wf_mgr_watch_end(mgr, &p->watch); break; /* the peer closed */
    case AWAIT_PROOF: pending_proof(mgr, p); break;
    }
}

/* Choose the pending connection to evict for a new connection: the oldest that has not named an
 * endpoint, or the oldest of all if each has named an endpoint. Only a peer that knows the
 * process's token can name an endpoint. So peers without the token, however often they connect,
 * cannot evict a connection that has named an endpoint. When many processes start at once, GRACE_MS
 * keeps connections that have named an endpoint from evicting each other. Returns NULL if none may
 * be evicted now. */
static struct pending *pending_victim(struct wf_conn_mgr *mgr)
{
    struct pending *oldest = NULL;
    wf_list_each(it, &mgr->pendings)
    {
        struct pending *p = wf_container_of(it, struct pending, watch.item);
        if (p->watch.dead)
            continue;
        if (!p->names_ep)
            return p;
        oldest = oldest ? oldest : p;
    }
    if (oldest && wf_now_ns() - oldest->since_ns < GRACE_MS * WF_MGR_MS)
        return NULL;
    return oldest;
}

static UNDER_LOCK bool pending_has_place(struct wf_conn_mgr *mgr)
{
    return mgr->npending < WF_NET_PENDING_MAX || pending_victim(mgr);
}

static UNDER_LOCK void pending_evict(struct wf_conn_mgr *mgr)
{
    struct pending *p = pending_victim(mgr);
    if (!p)
        return;
    pending_log(mgr, p, WF_MGR_LOG_PROTOCOL,
                "too many connections have not authenticated yet, and it was the oldest");
    pending_refuse(mgr, p, WF_NET_REFUSED_BUSY);
}

static UNDER_LOCK void pending_open(struct wf_conn_mgr *mgr, int fd, const uint8_t ip[WF_NET_IP],
                                    uint16_t port)
{
    struct pending *p = calloc(1, sizeof *p);
    if (!p) {
        wf_conn_close_fd(fd);
        return;
    }
    p->watch.kind = WF_MGR_PENDING;
    p->watch.fd = fd;
    p->port = port;
    memcpy(p->ip, ip, WF_NET_IP);
    p->since_ns = wf_now_ns();
    if (mgr->npending >= WF_NET_PENDING_MAX)
        pending_evict(mgr);
    wf_list_append(&mgr->pendings, &p->watch.item);
    mgr->npending++;
    wf_mgr_deadline_set(mgr, &p->watch, p->since_ns + mgr->handshake_ns);
    if (wf_mgr_watch_add(mgr, &p->watch, EPOLLIN))
        wf_mgr_watch_end(mgr, &p->watch);
}

void wf_mgr_pending_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    pending_refuse(mgr, pending_of(w), WF_NET_REFUSED_BUSY);
}

void wf_mgr_pendings_resume(struct wf_conn_mgr *mgr)
{
    wf_list_each(it, &mgr->pendings)
    {
        struct pending *p = wf_container_of(it, struct pending, watch.item);
        if (!p->watch.dead && p->state == AWAIT_KEY) {
            wf_mgr_watch_events(mgr, &p->watch, EPOLLIN);
            pending_challenge(mgr, p);
        }
    }
}

void wf_mgr_pendings_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &mgr->pendings)
    {
        struct pending *p = wf_container_of(it, struct pending, watch.item);
        if (p->names_ep && p->hello.to_ep == ep && p->hello.to_gen == ep_gen)
            wf_mgr_watch_end(mgr, &p->watch);
    }
}

/* ---- accepting ---- */

static void listen_events(struct wf_conn_mgr *mgr, uint32_t events)
{
    for (size_t i = 0; i < mgr->listeners.contact.count; i++)
        wf_mgr_watch_events(mgr, &mgr->listen[i], events);
}

/* Stop accepting until [until_ns]. New connections wait in the kernel's queue meanwhile. */
static UNDER_LOCK void listen_pause(struct wf_conn_mgr *mgr, uint64_t until_ns)
{
    if (!mgr->accept_ns)
        listen_events(mgr, 0);
    mgr->accept_ns = until_ns;
    mgr->next_ns = WF_MIN(mgr->next_ns, until_ns);
}

/* May one more connection be accepted? If it may, count it for the rate limit. Otherwise pause
 * accepting and return false: too many connections are pending, or the rate is too high. */
static UNDER_LOCK bool listen_may(struct wf_conn_mgr *mgr)
{
    const uint64_t burst = WF_NET_PENDING_MAX * (uint64_t)INTERVAL_NS;
    uint64_t now = wf_now_ns();
    if (!pending_has_place(mgr)) {
        listen_pause(mgr, now + FULL_MS * WF_MGR_MS);
        return false;
    }
    mgr->rate_ns = WF_MAX(mgr->rate_ns, now);
    if (mgr->rate_ns > now + burst) {
        listen_pause(mgr, mgr->rate_ns - burst + BATCH / 2 * (uint64_t)INTERVAL_NS);
        return false;
    }
    mgr->rate_ns += INTERVAL_NS;
    return true;
}

static UNDER_LOCK void listen_failed(struct wf_conn_mgr *mgr)
{
    char suffix[WF_MGR_SUFFIX];
    int err = errno;
    if (wf_mgr_may_log(mgr, WF_MGR_LOG_RESOURCES, suffix)) {
        errno = err;
        wf_error("cannot accept connections now, will try again: %m%s%s",
                 err == EMFILE ? "; raise the limit on open files (ulimit -n)" : "", suffix);
    }
    listen_pause(mgr, wf_now_ns() + SHORTAGE_MS * WF_MGR_MS);
}

void wf_mgr_listen_event(struct wf_conn_mgr *mgr, const struct wf_mgr_watch *w)
{
    for (int i = 0; i < BATCH && !mgr->accept_ns && listen_may(mgr); i++) {
        uint8_t ip[WF_NET_IP];
        uint16_t port;
        int fd = wf_stream_accept(w->fd, ip, &port);
        if (fd >= 0) {
            pending_open(mgr, fd, ip, port);
            continue;
        }
        mgr->rate_ns -= INTERVAL_NS;
        if (errno == EAGAIN)
            return;
        /* accept(2) also returns errors that concern only the new connection. Such an error is
         * ignored. Accepting pauses only for the errors below, which concern this process. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS ||
            errno == EINVAL || errno == EBADF)
            listen_failed(mgr);
    }
}

void wf_mgr_listen_timer(struct wf_conn_mgr *mgr, uint64_t now)
{
    if (mgr->accept_ns && now >= mgr->accept_ns) {
        mgr->accept_ns = 0;
        listen_events(mgr, EPOLLIN);
    }
    if (mgr->accept_ns)
        mgr->next_ns = WF_MIN(mgr->next_ns, mgr->accept_ns);
}
