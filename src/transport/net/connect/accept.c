/* SPDX-License-Identifier: BSD-3-Clause */
/* Who comes. A pending connection costs its struct, its socket and, only if it names an endpoint of
 * this process, a MAC. */
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

#define BATCH 16       /* connections accepted per event */
#define STARVED_MS 100 /* no accepting for so long after running out of descriptors */
#define FULL_MS 5      /* nor while all places are taken by those who may stay */
#define GRACE_MS 500   /* so long those may stay who named an endpoint: two round trips */

/* So far apart, on average, may those be who come and do not prove themselves. */
#define PENDING_NS (WF_MGR_SECOND / (WF_NET_PENDING_MAX * 16))

enum pending_state { AWAIT_HELLO, AWAIT_KEY, AWAIT_PROOF };

/* A connection that came in and did not prove yet who it is. */
struct pending {
    struct wf_mgr_watch watch;
    enum pending_state state;
    uint64_t since_ns;
    bool named; /* its hello names an endpoint of this process */
    uint16_t port;
    uint8_t ip[WF_NET_IP];
    size_t have; /* bytes of the message that is awaited */
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

/* Who was challenged may be in by its own account: what comes now it would take for a frame. It
 * sees the end of the stream and calls again. */
static void pending_refuse(struct wf_conn_mgr *mgr, struct pending *s,
                           enum wf_net_refusal_reason reason)
{
    struct wf_net_refusal refusal;
    wf_net_refusal_make(mgr->flags, reason, &refusal);
    if (s->state != AWAIT_PROOF)
        (void)wf_mgr_send(s->watch.fd, &refusal, sizeof refusal);
    wf_mgr_watch_end(mgr, &s->watch);
}

/* Why a pending connection was not let in: one line, [text] behind its address. */
static void pending_log(struct wf_conn_mgr *mgr, const struct pending *s, enum wf_mgr_topic topic,
                        const char *text)
{
    char name[WF_NET_NAME];
    char more[WF_MGR_MORE];
    if (wf_mgr_may_log(mgr, topic, more))
        wf_log(topic == WF_MGR_ON_NOISE ? WF_LOG_INFO : WF_LOG_WARN,
               "a connection from %s was refused: %s%s", wf_ipaddr_print_port(s->ip, s->port, name),
               text, more);
}

static void pending_noise(struct wf_conn_mgr *mgr, struct pending *s)
{
    pending_log(mgr, s, WF_MGR_ON_NOISE, "it does not speak Weft's protocol");
    wf_mgr_watch_end(mgr, &s->watch);
}

static void pending_challenge(struct wf_conn_mgr *mgr, struct pending *s)
{
    wf_net_challenge_make(mgr->flags, &s->challenge);
    wf_net_challenge_sign(mgr->key, &s->hello, &s->challenge);
    s->state = AWAIT_PROOF;
    s->have = 0;
    if (!wf_mgr_send(s->watch.fd, &s->challenge, sizeof s->challenge))
        wf_mgr_watch_end(mgr, &s->watch);
}

/* Is there such an endpoint? Without the lock meanwhile: [s] may be dead afterwards. */
static enum wf_net_host pending_host(struct wf_conn_mgr *mgr, const struct pending *s)
{
    const struct wf_net_hello *h = &s->hello;
    enum wf_net_host has;
    if (h->to_token[0] != mgr->self.token[0] || h->to_token[1] != mgr->self.token[1])
        return WF_NET_HOST_NONE;
    wf_mgr_event_begin(mgr, h->to_ep, h->to_gen);
    has = mgr->params.events->has(mgr->params.owner, h->to_ep, h->to_gen);
    wf_mgr_event_end(mgr);
    return has;
}

/* Its hello is here. Whom it wants comes first: only who knows that costs a MAC. */
static void pending_named(struct wf_conn_mgr *mgr, struct pending *s)
{
    enum wf_net_host host = pending_host(mgr, s);
    if (s->watch.dead)
        return;
    if (host == WF_NET_HOST_NONE) {
        pending_refuse(mgr, s, WF_NET_REFUSED_GONE);
    } else if (s->hello.greeting.flags != mgr->flags) {
        pending_log(mgr, s, WF_MGR_ON_FLAGS,
                    "one side encrypts, the other does not: set WEFT_TCP_ENCRYPT alike for all");
        pending_refuse(mgr, s, WF_NET_REFUSED_FLAGS);
    } else if (host == WF_NET_HOST_FULL ||
               wf_mgr_dial_lacks(mgr, s->hello.to_ep, s->hello.to_gen, &s->hello)) {
        pending_refuse(mgr, s, WF_NET_REFUSED_BUSY); /* so that it takes this side for slow */
    } else if (mgr->has_key) {
        s->named = true;
        pending_challenge(mgr, s);
    } else {
        s->named = true;
        s->state = AWAIT_KEY;
        wf_mgr_watch_events(mgr, &s->watch, EPOLLRDHUP); /* it has nothing to say until then */
    }
}

static void pending_hello(struct wf_conn_mgr *mgr, struct pending *s)
{
    struct wf_net_greeting g;
    int whole = wf_mgr_recv(s->watch.fd, &s->in, &s->have, sizeof s->in.hello);
    enum weft_status status = WEFT_OK;
    if (s->have >= sizeof g)
        status = wf_net_greeting_parse(&s->in, WF_NET_HELLO, 0, &g);
    if (status == WEFT_EVERSION) {
        pending_log(mgr, s, WF_MGR_ON_VERSION, "it has another version of Weft's protocol");
        pending_refuse(mgr, s, WF_NET_REFUSED_VERSION);
    } else if (status != WEFT_OK ||
               (whole > 0 && wf_net_hello_parse(&s->in, &s->hello) != WEFT_OK)) {
        pending_noise(mgr, s);
    } else if (whole < 0) {
        wf_mgr_watch_end(mgr, &s->watch);
    } else if (whole) {
        pending_named(mgr, s);
    }
}

/* It proved itself. If connections are made from this side (manager.h), it is called back. */
static bool pending_knocks(struct wf_conn_mgr *mgr, struct pending *s)
{
    struct wf_dial call = {.from = {.version = WF_ADDRESS_VERSION,
                                    .size = sizeof call.from,
                                    .ep = s->hello.to_ep,
                                    .ep_gen = s->hello.to_gen,
                                    .process = mgr->self},
                           .to = s->hello.from,
                           .from_contact = mgr->contact,
                           .to_contact = s->hello.contact,
                           .lane = s->hello.lane,
                           .gen = s->hello.gen};
    if (memcmp(&call.from, &call.to, sizeof call.from) <= 0)
        return false;
    wf_mgr_watch_end(mgr, &s->watch);
    mgr->rate_ns -= WF_MIN(mgr->rate_ns, PENDING_NS); /* no pending connection, after all */
    wf_mgr_dial_back(mgr, &call);
    return true;
}

static void pending_proof(struct wf_conn_mgr *mgr, struct pending *s)
{
    struct wf_net_proof proof;
    struct wf_net_conn *conn;
    int whole = wf_mgr_recv(s->watch.fd, &s->in, &s->have, sizeof s->in.proof);
    if (!whole)
        return;
    if (whole < 0 || wf_net_proof_parse(&s->in, &proof) != WEFT_OK ||
        proof.greeting.flags != mgr->flags) {
        pending_log(mgr, s, WF_MGR_ON_NOISE, "it did not answer the challenge");
        wf_mgr_watch_end(mgr, &s->watch);
        return;
    }
    if (!wf_net_proof_verify(mgr->key, &s->hello, &s->challenge, &proof)) {
        pending_log(mgr, s, WF_MGR_ON_KEY,
                    "it does not know this job's key (another job's process, another "
                    "WEFT_KEY_FILE, or an attack; the network itself is well)");
        wf_mgr_watch_end(mgr, &s->watch);
        return;
    }
    if (pending_knocks(mgr, s))
        return;
    wf_mgr_connect_back_end(mgr, s->hello.to_ep, s->hello.to_gen, &s->hello);
    conn = wf_mgr_conn_new(mgr, &s->hello, &s->challenge, false);
    if (conn) {
        conn->peer = s->hello.from;
        conn->contact = s->hello.contact;
        conn->fd = wf_mgr_watch_release(mgr, &s->watch);
    }
    wf_mgr_watch_end(mgr, &s->watch);
    mgr->rate_ns -= WF_MIN(mgr->rate_ns, PENDING_NS); /* no pending connection, after all */
    if (conn)
        wf_mgr_conn_deliver(mgr, s->hello.to_ep, s->hello.to_gen, conn);
}

void wf_mgr_pending_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    struct pending *s = pending_of(w);
    switch (s->state) {
    case AWAIT_HELLO: pending_hello(mgr, s); break;
    case AWAIT_KEY: wf_mgr_watch_end(mgr, &s->watch); break; /* it hung up */
    case AWAIT_PROOF: pending_proof(mgr, s); break;
    }
}

/* Who goes when one more comes: the oldest, and of those who named an endpoint only if there
 * are no others, for that takes knowing its token. A flood of pending connections does not push
 * them out, nor do they each other when many processes begin at once. Null: none may go yet. */
static struct pending *pending_victim(struct wf_conn_mgr *mgr)
{
    struct pending *oldest = NULL;
    wf_list_each(it, &mgr->pendings)
    {
        struct pending *s = wf_container_of(it, struct pending, watch.item);
        if (s->watch.dead)
            continue;
        if (!s->named)
            return s;
        oldest = oldest ? oldest : s;
    }
    if (oldest && wf_now_ns() - oldest->since_ns < GRACE_MS * WF_MGR_MS)
        return NULL;
    return oldest;
}

/* Is there a place for one more, or one who makes it? */
static bool pending_fits(struct wf_conn_mgr *mgr)
{
    return mgr->npending < WF_NET_PENDING_MAX || pending_victim(mgr);
}

static void pending_evict(struct wf_conn_mgr *mgr)
{
    struct pending *s = pending_victim(mgr);
    if (!s)
        return;
    pending_log(mgr, s, WF_MGR_ON_NOISE, "too many wait at the door, and it was the oldest");
    pending_refuse(mgr, s, WF_NET_REFUSED_BUSY);
}

static void pending_admit(struct wf_conn_mgr *mgr, int fd, const uint8_t ip[WF_NET_IP],
                          uint16_t port)
{
    struct pending *s = calloc(1, sizeof *s);
    if (!s) {
        wf_mgr_close(fd);
        return;
    }
    s->watch.kind = WF_MGR_PENDING;
    s->watch.fd = fd;
    s->port = port;
    memcpy(s->ip, ip, WF_NET_IP);
    s->since_ns = wf_now_ns();
    if (mgr->npending >= WF_NET_PENDING_MAX)
        pending_evict(mgr);
    wf_list_append(&mgr->pendings, &s->watch.item);
    mgr->npending++;
    wf_mgr_deadline_set(mgr, &s->watch, s->since_ns + mgr->handshake_ns);
    if (wf_mgr_watch_add(mgr, &s->watch, EPOLLIN))
        wf_mgr_watch_end(mgr, &s->watch);
}

void wf_mgr_pending_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    pending_refuse(mgr, pending_of(w), WF_NET_REFUSED_BUSY);
}

void wf_mgr_pendings_go_on(struct wf_conn_mgr *mgr)
{
    wf_list_each(it, &mgr->pendings)
    {
        struct pending *s = wf_container_of(it, struct pending, watch.item);
        if (!s->watch.dead && s->state == AWAIT_KEY) {
            wf_mgr_watch_events(mgr, &s->watch, EPOLLIN);
            pending_challenge(mgr, s);
        }
    }
}

void wf_mgr_pendings_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &mgr->pendings)
    {
        struct pending *s = wf_container_of(it, struct pending, watch.item);
        if (s->named && s->hello.to_ep == ep && s->hello.to_gen == ep_gen)
            wf_mgr_watch_end(mgr, &s->watch);
    }
}

/* ---- accepting ---- */

static void listen_events(struct wf_conn_mgr *mgr, uint32_t events)
{
    for (size_t i = 0; i < mgr->net.contact.count; i++)
        wf_mgr_watch_events(mgr, &mgr->listen[i], events);
}

/* Who comes meanwhile waits in the kernel's queue. */
static void listen_pause(struct wf_conn_mgr *mgr, uint64_t until_ns)
{
    if (!mgr->deaf_ns)
        listen_events(mgr, 0);
    mgr->deaf_ns = until_ns;
    mgr->next_ns = WF_MIN(mgr->next_ns, until_ns);
}

/* False: too many came of late, or are here. */
static bool listen_may(struct wf_conn_mgr *mgr)
{
    const uint64_t burst = WF_NET_PENDING_MAX * (uint64_t)PENDING_NS;
    uint64_t now = wf_now_ns();
    if (!pending_fits(mgr)) {
        listen_pause(mgr, now + FULL_MS * WF_MGR_MS);
        return false;
    }
    mgr->rate_ns = WF_MAX(mgr->rate_ns, now);
    if (mgr->rate_ns > now + burst) {
        listen_pause(mgr, mgr->rate_ns - burst + BATCH / 2 * (uint64_t)PENDING_NS);
        return false;
    }
    mgr->rate_ns += PENDING_NS;
    return true;
}

static void listen_failed(struct wf_conn_mgr *mgr)
{
    char more[WF_MGR_MORE];
    int err = errno;
    if (wf_mgr_may_log(mgr, WF_MGR_ON_FILES, more)) {
        errno = err;
        wf_error("cannot accept connections for the moment: %m%s%s",
                 err == EMFILE ? "; raise the limit on open files (ulimit -n)" : "", more);
    }
    listen_pause(mgr, wf_now_ns() + STARVED_MS * WF_MGR_MS);
}

void wf_mgr_listen_event(struct wf_conn_mgr *mgr, const struct wf_mgr_watch *w)
{
    for (int i = 0; i < BATCH && !mgr->deaf_ns && listen_may(mgr); i++) {
        uint8_t ip[WF_NET_IP];
        uint16_t port;
        int fd = wf_socket_accept(w->fd, ip, &port);
        if (fd >= 0) {
            pending_admit(mgr, fd, ip, port);
            continue;
        }
        mgr->rate_ns -= PENDING_NS;
        if (errno == EAGAIN)
            return;
        /* accept(2): what went wrong on that connection is told here, too. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS ||
            errno == EINVAL || errno == EBADF)
            listen_failed(mgr);
    }
}

void wf_mgr_listen_timer(struct wf_conn_mgr *mgr, uint64_t now)
{
    if (mgr->deaf_ns && now >= mgr->deaf_ns) {
        mgr->deaf_ns = 0;
        listen_events(mgr, EPOLLIN);
    }
    if (mgr->deaf_ns)
        mgr->next_ns = WF_MIN(mgr->next_ns, mgr->deaf_ns);
}
