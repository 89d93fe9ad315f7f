/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is called. Four clocks tell when a call is over: since when no attempt came as far
 * as a connection (cut off), since when all were refused (ended), since when all that
 * connected were hung up on (someone else is there), and since when this side could not try. */
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
#include "transport/net/connect/ifaddr.h"

#define PAUSE_MIN_MS 5 /* between attempts */
#define PAUSE_MAX_MS 500
#define REFUSED_MS 500 /* nothing but refusals for so long: ended */
#define CONNECT_BACK_MS                                                                            \
    300 /* until a connect-back is repeated: some handshakes take a turn of a busy core */
#define CONNECT_MAX_MS 2000 /* a lost SYN is sent again after 1 s: RFC 6298 */
/* So many times WEFT_PEER_TIMEOUT a call waits for what this side lacks. By default that is 120 s:
 * local ports come back when their TIME_WAIT ends, 60 s after the last use (tcp(7)). */
#define LOCAL_TIMES 12

enum dial_state { DIAL_PAUSE, DIAL_KEYLESS, DIAL_CONNECT, DIAL_ANSWER };

struct dial {
    struct wf_mgr_watch watch;
    enum dial_state state;
    struct wf_dial c;
    uint64_t number;
    uint8_t ip[WF_CONTACT_IPS][WF_NET_IP]; /* those of the contact that can be called */
    unsigned ips, at;                      /* the next attempt's */
    unsigned pause_ms;
    uint64_t cut_ns;     /* since when no attempt came as far as a connection */
    uint64_t refused_ns; /* since when all were refused; 0: the last one was not */
    uint64_t closed_ns;  /* since when all that connected were hung up on; 0 likewise */
    uint64_t patience_ns;
    uint64_t asked_back_ns; /* since when connect-backs were let in; 0: none was */
    uint64_t local_ns;      /* since when this side lacked what an attempt takes; 0: it did not */
    int local_err;          /* the errno that was logged of that */
    size_t have;
    union {
        struct wf_net_greeting greeting;
        struct wf_net_challenge challenge;
        struct wf_net_refusal refusal;
    } in;
    struct wf_net_hello hello;
    struct wf_dial_result *result; /* made with the call: giving up must not fail */
};

static struct dial *dial_of(struct wf_mgr_watch *w)
{
    return wf_container_of(w, struct dial, watch);
}

/* How an attempt ended. */
enum outcome {
    CUT,          /* no connection */
    NO_WAY,       /* the same, for want of a route here: this says nothing of the other end */
    REFUSED,      /* by the kernel, as GONE, or by one who is not who was called */
    CLOSED_EARLY, /* connected, and closed without a word */
    SLOW,         /* connected, and no answer, or BUSY */
    ASKED_BACK,   /* let in: it will call back */
    LOCAL         /* nothing was tried: this side lacks ports, descriptors, memory or leave */
};

/* Does this error of socket(2), connect(2) or epoll_ctl(2) tell of this side alone? Then it says
 * nothing of the peer. */
static bool is_of_this_side(int err)
{
    switch (err) {
    case EADDRNOTAVAIL: /* connect(2): no local port is free */
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case ENOSPC: /* epoll_ctl(2): fs.epoll.max_user_watches */
    case EACCES: /* a local firewall, a route that prohibits, a security module */
    case EPERM: return true;
    default: return false;
    }
}

/* What the user can change about it, for the end of a log line. */
static const char *remedy(int err)
{
    switch (err) {
    case EADDRNOTAVAIL:
        return "; no local port is free: widen net.ipv4.ip_local_port_range (sysctl), or open "
               "fewer connections";
    case EMFILE: return "; raise the limit on open files (ulimit -n)";
    case ENFILE: return "; raise the system's limit on open files (sysctl fs.file-max)";
    case ENOSPC: return "; raise fs.epoll.max_user_watches (sysctl)";
    case EACCES:
    case EPERM: return "; a firewall, a route or a security policy of this host forbids it";
    default: return "; this host has too little memory";
    }
}

static const char *lack(int err)
{
    switch (err) {
    case EADDRNOTAVAIL:
        return "this host has no local port free (sysctl net.ipv4.ip_local_port_range)";
    case EMFILE: return "this process has no descriptor free (ulimit -n)";
    case ENFILE: return "this host has no open file left (sysctl fs.file-max)";
    case ENOSPC: return "this user may watch no more sockets (sysctl fs.epoll.max_user_watches)";
    case EACCES:
    case EPERM: return "this host forbids the connection (its firewall, routes or policy)";
    default: return "this host has too little memory for a connection";
    }
}

void wf_mgr_dial_free(struct wf_mgr_watch *w)
{
    free(dial_of(w)->result);
}

static void dial_give_up(struct wf_conn_mgr *mgr, struct dial *c, enum weft_status status,
                         const char *why)
{
    struct wf_dial_result *v = c->result;
    c->result = NULL;
    *v = (struct wf_dial_result){.dial = c->number, .to = c->c.to, .status = status, .why = why};
    wf_list_init(&v->item);
    wf_mgr_watch_end(mgr, &c->watch);
    wf_mgr_event_begin(mgr, c->c.from.ep, c->c.from.ep_gen);
    mgr->params.events->given_up(mgr->params.owner, c->c.from.ep, c->c.from.ep_gen, v);
    wf_mgr_event_end(mgr);
}

/* Keep the clocks of "ended" and "cut off". */
static void dial_note(struct dial *c, enum outcome outcome, uint64_t now)
{
    if (c->state == DIAL_ANSWER || outcome == LOCAL)
        c->cut_ns = now;
    if (outcome == LOCAL)
        c->local_ns = c->local_ns ? c->local_ns : now;
    else if (c->state == DIAL_ANSWER || outcome == REFUSED)
        c->local_ns = 0;
    if (outcome == REFUSED)
        c->refused_ns = c->refused_ns ? c->refused_ns : now;
    else if (outcome != NO_WAY)
        c->refused_ns = 0;
    if (outcome == SLOW || outcome == ASKED_BACK)
        c->closed_ns = 0;
    if (outcome == SLOW)
        c->asked_back_ns = 0;
    if (outcome == ASKED_BACK && !c->asked_back_ns)
        c->asked_back_ns = now;
    else if (outcome == CLOSED_EARLY && !c->closed_ns)
        c->closed_ns = now;
}

/* The next attempt: at once if there is an address that was not tried in this round. Nearly
 * at the end of the time that a call has there is one more. */
static uint64_t dial_next(const struct wf_conn_mgr *mgr, struct dial *c, enum outcome outcome,
                          uint64_t now)
{
    uint64_t next = now;
    if (outcome == ASKED_BACK)
        return now + CONNECT_BACK_MS * WF_MGR_MS;
    c->at = (c->at + 1) % c->ips;
    if (!c->at || outcome == LOCAL) {
        uint64_t longest = WF_MIN(PAUSE_MAX_MS * WF_MGR_MS, mgr->peer_ns / 10);
        next += WF_MIN(c->pause_ms * WF_MGR_MS, longest);
        c->pause_ms = WF_MIN(2 * c->pause_ms, PAUSE_MAX_MS);
    }
    if (outcome == REFUSED)
        next = WF_MIN(next, c->refused_ns + REFUSED_MS * WF_MGR_MS);
    if (outcome == CUT || outcome == NO_WAY)
        next = WF_MIN(next, now + (c->cut_ns + c->patience_ns - now) / 2);
    return next;
}

static void dial_failed(struct wf_conn_mgr *mgr, struct dial *c, enum outcome outcome,
                        const char *why)
{
    uint64_t now = wf_now_ns();
    dial_note(c, outcome, now);
    if (outcome == REFUSED && now - c->refused_ns >= REFUSED_MS * WF_MGR_MS) {
        dial_give_up(mgr, c, WEFT_EPEER, why);
    } else if ((outcome == CUT || outcome == NO_WAY) &&
               now - c->cut_ns >= c->patience_ns - mgr->peer_ns / 64) {
        dial_give_up(mgr, c, WEFT_EPEER, "cut off: no attempt to connect got through");
    } else if (outcome == ASKED_BACK && now - c->asked_back_ns >= mgr->peer_ns) {
        dial_give_up(mgr, c, WEFT_EPEER,
                     "it does not manage to connect to this host (a firewall? see weft info and "
                     "WEFT_TCP_INTERFACES)");
    } else if (outcome == CLOSED_EARLY && now - c->closed_ns >= mgr->peer_ns / 2) {
        dial_give_up(mgr, c, WEFT_EPEER, "who is at its address hangs up");
    } else if (outcome == LOCAL && now - c->local_ns >= LOCAL_TIMES * mgr->peer_ns) {
        dial_give_up(mgr, c, WEFT_EUNREACH, lack(c->local_err));
    } else {
        wf_mgr_close(wf_mgr_watch_release(mgr, &c->watch));
        c->state = DIAL_PAUSE;
        wf_mgr_deadline_set(mgr, &c->watch, dial_next(mgr, c, outcome, now));
    }
}

/* This side lacks something. A call logs that once, and once more if it lacks something else. */
static void dial_local(struct wf_conn_mgr *mgr, struct dial *c, int err)
{
    char name[WF_NET_NAME], more[WF_MGR_MORE];
    if (err != c->local_err && wf_mgr_may_log(mgr, WF_MGR_ON_FILES, more)) {
        const char *to = wf_ipaddr_print_port(c->ip[c->at], c->c.to_contact.port, name);
        errno = err;
        wf_error("cannot connect to %s for the moment: %m%s%s", to, remedy(err), more);
    }
    c->local_err = err;
    dial_failed(mgr, c, LOCAL, NULL);
}

/* connect(2) failed with errno [err]. */
static void dial_unconnected(struct wf_conn_mgr *mgr, struct dial *c, int err)
{
    char name[WF_NET_NAME];
    errno = err;
    wf_debug("calling %s: %m", wf_ipaddr_print_port(c->ip[c->at], c->c.to_contact.port, name));
    if (err == ECONNREFUSED)
        dial_failed(mgr, c, REFUSED, "no process listens at its address: it ended");
    else if (is_of_this_side(err))
        dial_local(mgr, c, err);
    else
        dial_failed(mgr, c, err == ENETUNREACH || err == EAFNOSUPPORT ? NO_WAY : CUT, NULL);
}

static void dial_attempt(struct wf_conn_mgr *mgr, struct dial *c)
{
    uint64_t now = wf_now_ns(), cut = c->cut_ns + c->patience_ns;
    uint64_t until = now + WF_MIN(mgr->peer_ns / 8, CONNECT_MAX_MS * WF_MGR_MS);
    if (!mgr->has_key) {
        c->state = DIAL_KEYLESS;
        c->watch.deadline_ns = WF_MGR_NEVER;
        return;
    }
    c->state = DIAL_CONNECT;
    c->watch.fd = wf_socket_connect(c->ip[c->at], c->c.to_contact.port);
    if (c->watch.fd < 0) {
        dial_unconnected(mgr, c, errno);
        return;
    }
    wf_mgr_deadline_set(mgr, &c->watch, cut > now + mgr->peer_ns / 64 ? WF_MIN(until, cut) : until);
    if (wf_mgr_watch_add(mgr, &c->watch, EPOLLOUT))
        dial_unconnected(mgr, c, errno);
}

static void dial_connected(struct wf_conn_mgr *mgr, struct dial *c)
{
    int err = wf_socket_connect_error(c->watch.fd);
    if (err) {
        dial_unconnected(mgr, c, err);
        return;
    }
    c->state = DIAL_ANSWER;
    c->have = 0;
    wf_net_hello_make(&c->c, mgr->flags, &c->hello);
    if (!wf_mgr_send(c->watch.fd, &c->hello, sizeof c->hello)) {
        dial_failed(mgr, c, CLOSED_EARLY, NULL);
        return;
    }
    wf_mgr_watch_events(mgr, &c->watch, EPOLLIN);
    wf_mgr_deadline_set(mgr, &c->watch, wf_now_ns() + mgr->peer_ns);
}

static void dial_log(struct wf_conn_mgr *mgr, const struct dial *c, enum wf_mgr_topic topic,
                     const char *text)
{
    char name[WF_NET_NAME];
    char more[WF_MGR_MORE];
    if (wf_mgr_may_log(mgr, topic, more))
        wf_warn("calling %s: %s%s", wf_ipaddr_print_port(c->ip[c->at], c->c.to_contact.port, name),
                text, more);
}

/* A peer that has proved itself changes neither version nor flags: who says so now is another
 * process, or somebody on the way. */
static bool had_before(const struct dial *c)
{
    return c->c.gen > 1;
}

static void dial_refused(struct wf_conn_mgr *mgr, struct dial *c)
{
    struct wf_net_refusal r;
    if (wf_net_refusal_parse(&c->in, &r) != WEFT_OK) {
        dial_failed(mgr, c, REFUSED, "a stranger is at its address: it ended");
        return;
    }
    switch (r.reason) {
    case WF_NET_REFUSED_GONE:
        dial_failed(mgr, c, REFUSED, "its endpoint closed, or its process ended");
        break;
    case WF_NET_REFUSED_VERSION:
        if (had_before(c)) {
            dial_failed(mgr, c, REFUSED, "who is at its address has another version of Weft's");
            break;
        }
        dial_log(mgr, c, WF_MGR_ON_VERSION, "it has another version of Weft's protocol");
        dial_give_up(mgr, c, WEFT_EVERSION, "it has another version of Weft's protocol");
        break;
    case WF_NET_REFUSED_FLAGS:
        if (had_before(c)) {
            dial_failed(mgr, c, REFUSED, "who is at its address encrypts otherwise");
            break;
        }
        dial_log(mgr, c, WF_MGR_ON_FLAGS,
                 "one side encrypts, the other does not: set WEFT_TCP_ENCRYPT alike for all");
        dial_give_up(mgr, c, WEFT_EUNREACH, "one side encrypts, the other does not");
        break;
    default: dial_failed(mgr, c, SLOW, NULL); break;
    }
}

/* Whoever answers like this is not whom this process called. */
static void dial_unproven(struct wf_conn_mgr *mgr, struct dial *c)
{
    dial_log(mgr, c, WF_MGR_ON_KEY,
             "who answered does not know this job's key (another job's process, another "
             "WEFT_KEY_FILE, or an attack; the network itself is well)");
    dial_failed(mgr, c, REFUSED, "who is at its address does not know this job's key");
}

static bool dial_is_connect_back(const struct dial *c)
{
    return memcmp(&c->c.from, &c->c.to, sizeof c->c.from) < 0;
}

static void dial_challenged(struct wf_conn_mgr *mgr, struct dial *c)
{
    struct wf_net_challenge challenge;
    struct wf_net_proof proof;
    struct wf_net_conn *conn;
    if (wf_net_challenge_parse(&c->in, &challenge) != WEFT_OK ||
        challenge.greeting.flags != mgr->flags ||
        !wf_net_challenge_verify(mgr->key, &c->hello, &challenge)) {
        dial_unproven(mgr, c);
        return;
    }
    wf_net_proof_make(mgr->flags, &proof);
    wf_net_proof_sign(mgr->key, &c->hello, &challenge, &proof);
    if (!wf_mgr_send(c->watch.fd, &proof, sizeof proof)) {
        dial_failed(mgr, c, CLOSED_EARLY, NULL);
        return;
    }
    if (dial_is_connect_back(c)) {
        dial_failed(mgr, c, ASKED_BACK, NULL);
        return;
    }
    conn = wf_mgr_conn_new(mgr, &c->hello, &challenge, true);
    if (!conn) {
        dial_local(mgr, c, ENOMEM);
        return;
    }
    conn->peer = c->c.to;
    conn->contact = c->c.to_contact;
    conn->dial = c->number;
    conn->fd = wf_mgr_watch_release(mgr, &c->watch);
    wf_mgr_watch_end(mgr, &c->watch);
    wf_mgr_conn_deliver(mgr, c->c.from.ep, c->c.from.ep_gen, conn);
}

static void dial_answer(struct wf_conn_mgr *mgr, struct dial *c)
{
    struct wf_net_greeting g;
    int there = wf_mgr_recv(c->watch.fd, &c->in, &c->have, sizeof g);
    enum weft_status status;
    if (there > 0) {
        status = wf_net_greeting_parse(&c->in, WF_NET_CHALLENGE, WF_NET_REFUSAL, &g);
        if (status == WEFT_EVERSION && had_before(c)) {
            dial_failed(mgr, c, REFUSED, "who is at its address has another version of Weft's");
            return;
        }
        if (status == WEFT_EVERSION) {
            dial_give_up(mgr, c, WEFT_EVERSION, "it has another version of Weft's protocol");
            return;
        }
        if (status != WEFT_OK) {
            dial_failed(mgr, c, REFUSED, "a stranger is at its address: it ended");
            return;
        }
        there = wf_mgr_recv(c->watch.fd, &c->in, &c->have, g.size);
    }
    if (there < 0)
        dial_failed(mgr, c, CLOSED_EARLY, NULL);
    else if (there && g.role == WF_NET_REFUSAL)
        dial_refused(mgr, c);
    else if (there)
        dial_challenged(mgr, c);
}

void wf_mgr_dial_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    struct dial *c = dial_of(w);
    if (c->state == DIAL_CONNECT)
        dial_connected(mgr, c);
    else if (c->state == DIAL_ANSWER)
        dial_answer(mgr, c);
}

void wf_mgr_dial_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    struct dial *c = dial_of(w);
    switch (c->state) {
    case DIAL_PAUSE:
        if (!c->ips)
            dial_give_up(mgr, c, WEFT_EUNREACH,
                         c->c.to_contact.port
                             ? "its only address is loopback on another host: see weft info there"
                             : "its address names no place on a network");
        else
            dial_attempt(mgr, c);
        break;
    case DIAL_KEYLESS: break;
    case DIAL_CONNECT: dial_unconnected(mgr, c, ETIMEDOUT); break;
    case DIAL_ANSWER: dial_failed(mgr, c, SLOW, NULL); break;
    }
}

void wf_mgr_dials_go_on(struct wf_conn_mgr *mgr)
{
    wf_list_each(it, &mgr->dials)
    {
        struct dial *c = wf_container_of(it, struct dial, watch.item);
        if (!c->watch.dead && c->state == DIAL_KEYLESS) {
            c->state = DIAL_PAUSE;
            c->cut_ns = wf_now_ns();
            wf_mgr_deadline_set(mgr, &c->watch, c->cut_ns);
        }
    }
}

void wf_mgr_dials_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &mgr->dials)
    {
        struct dial *c = wf_container_of(it, struct dial, watch.item);
        if (c->c.from.ep == ep && c->c.from.ep_gen == ep_gen)
            wf_mgr_watch_end(mgr, &c->watch);
    }
}

/* Loopback is this host's only in the same network namespace of the same boot. */
static void call_addresses(const struct wf_conn_mgr *mgr, struct dial *c)
{
    const struct wf_process_id *to = &c->c.to.process;
    const struct wf_contact *contact = &c->c.to_contact;
    bool same = to->node == mgr->self.node && to->netns == mgr->self.netns;
    for (unsigned i = 0; contact->port && i < contact->count && i < WF_CONTACT_IPS; i++)
        if (wf_ifaddr_can_dial(contact->ip[i], same))
            memcpy(c->ip[c->ips++], contact->ip[i], WF_NET_IP);
}

/* A call of the same channel that is under way. */
static struct dial *dial_find(struct wf_conn_mgr *mgr, const struct wf_dial *call)
{
    wf_list_each(it, &mgr->dials)
    {
        struct dial *c = wf_container_of(it, struct dial, watch.item);
        if (!c->watch.dead && c->c.lane == call->lane && c->c.from.ep == call->from.ep &&
            c->c.from.ep_gen == call->from.ep_gen && !memcmp(&c->c.to, &call->to, sizeof c->c.to))
            return c;
    }
    return NULL;
}

static struct dial *dial_new(const struct wf_conn_mgr *mgr, const struct wf_dial *call)
{
    struct dial *c = calloc(1, sizeof *c);
    struct wf_dial_result *v = malloc(sizeof *v);
    if (!c || !v) {
        free(c);
        free(v);
        return NULL;
    }
    c->result = v;
    c->watch.kind = WF_MGR_DIAL;
    c->watch.fd = -1;
    c->c = *call;
    c->pause_ms = PAUSE_MIN_MS;
    c->patience_ns = call->patience_ms ? call->patience_ms * WF_MGR_MS : mgr->peer_ns / 2;
    call_addresses(mgr, c);
    c->cut_ns = wf_now_ns() + call->delay_ms * WF_MGR_MS;
    return c;
}

/* Its number; 0: no memory. */
static uint64_t dial_start(struct wf_conn_mgr *mgr, const struct wf_dial *call)
{
    struct dial *c = dial_find(mgr, call);
    if (c)
        return c->number;
    c = dial_new(mgr, call);
    if (!c)
        return 0;
    c->number = ++mgr->last_dial;
    wf_list_append(&mgr->dials, &c->watch.item);
    wf_mgr_deadline_set(mgr, &c->watch, c->cut_ns);
    return c->number;
}

void wf_mgr_dial_back(struct wf_conn_mgr *mgr, const struct wf_dial *call)
{
    char more[WF_MGR_MORE];
    if (!dial_start(mgr, call) && wf_mgr_may_log(mgr, WF_MGR_ON_FILES, more))
        wf_error("no memory to call back who knocked%s", more);
}

void wf_mgr_connect_back_end(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                             const struct wf_net_hello *hello)
{
    struct wf_dial same = {
        .from = {.ep = ep, .ep_gen = ep_gen}, .to = hello->from, .lane = hello->lane};
    struct dial *c = dial_find(mgr, &same);
    if (c)
        wf_mgr_watch_end(mgr, &c->watch);
}

bool wf_mgr_dial_lacks(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                       const struct wf_net_hello *hello)
{
    struct wf_dial same = {
        .from = {.ep = ep, .ep_gen = ep_gen}, .to = hello->from, .lane = hello->lane};
    const struct dial *c = dial_find(mgr, &same);
    return c && c->local_ns;
}

uint64_t wf_conn_mgr_dial(struct wf_conn_mgr *mgr, const struct wf_dial *call)
{
    uint64_t number;
    pthread_mutex_lock(&mgr->lock);
    number = dial_start(mgr, call);
    pthread_mutex_unlock(&mgr->lock);
    wf_mgr_kick(mgr);
    return number;
}

void wf_conn_mgr_cancel(struct wf_conn_mgr *mgr, uint64_t number)
{
    pthread_mutex_lock(&mgr->lock);
    wf_list_each(it, &mgr->dials)
    {
        struct dial *c = wf_container_of(it, struct dial, watch.item);
        if (c->number == number) {
            wf_mgr_watch_end(mgr, &c->watch);
            break;
        }
    }
    pthread_mutex_unlock(&mgr->lock);
    wf_mgr_kick(mgr); /* it frees the call */
}
