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
#include "transport/tcp/auth.h"
#include "transport/tcp/door_int.h"
#include "transport/tcp/hello.h"

#define PAUSE_MIN_MS 5 /* between attempts */
#define PAUSE_MAX_MS 500
#define REFUSED_MS 500 /* nothing but refusals for so long: ended */
#define KNOCK_MS 300   /* until a knock is repeated: some handshakes take a turn of a busy core */
#define CONNECT_MAX_MS 2000 /* a lost SYN is sent again after 1 s: RFC 6298 */
/* So many times WEFT_PEER_TIMEOUT a call waits for what this side lacks. By default that is 120 s:
 * local ports come back when their TIME_WAIT ends, 60 s after the last use (tcp(7)). */
#define LOCAL_TIMES 12

enum call_state { CALL_PAUSE, CALL_KEYLESS, CALL_CONNECT, CALL_ANSWER };

struct call {
    struct wf_door_watch watch;
    enum call_state state;
    struct wf_tcp_call c;
    uint64_t number;
    uint8_t ip[WF_CONTACT_IPS][WF_TCP_IP]; /* those of the contact that can be called */
    unsigned ips, at;                      /* the next attempt's */
    unsigned pause_ms;
    uint64_t cut_ns;     /* since when no attempt came as far as a connection */
    uint64_t refused_ns; /* since when all were refused; 0: the last one was not */
    uint64_t hung_ns;    /* since when all that connected were hung up on; 0 likewise */
    uint64_t patience_ns;
    uint64_t knocked_ns; /* since when knocks were let in; 0: none was */
    uint64_t local_ns;   /* since when this side lacked what an attempt takes; 0: it did not */
    int local_err;       /* the errno that was logged of that */
    size_t have;
    union {
        struct wf_tcp_greeting greeting;
        struct wf_tcp_challenge challenge;
        struct wf_tcp_refusal refusal;
    } in;
    struct wf_tcp_hello hello;
    struct wf_tcp_verdict *verdict; /* made with the call: giving up must not fail */
};

static struct call *call_of(struct wf_door_watch *w)
{
    return wf_container_of(w, struct call, watch);
}

/* How an attempt ended. */
enum outcome {
    CUT,     /* no connection */
    NO_WAY,  /* the same, for want of a route here: this says nothing of the other end */
    REFUSED, /* by the kernel, as GONE, or by one who is not who was called */
    HUNG_UP, /* connected, and closed without a word */
    SLOW,    /* connected, and no answer, or BUSY */
    KNOCKED, /* let in: it will call back */
    LOCAL    /* nothing was tried: this side lacks ports, descriptors, memory or leave */
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

void wf_door_call_free(struct wf_door_watch *w)
{
    free(call_of(w)->verdict);
}

static void call_give_up(struct wf_tcp_door *door, struct call *c, enum weft_status status,
                         const char *why)
{
    struct wf_tcp_verdict *v = c->verdict;
    c->verdict = NULL;
    *v = (struct wf_tcp_verdict){.call = c->number, .to = c->c.to, .status = status, .why = why};
    wf_list_init(&v->item);
    wf_door_watch_end(door, &c->watch);
    wf_door_event_begin(door, c->c.from.ep, c->c.from.ep_gen);
    door->params.events->given_up(door->params.owner, c->c.from.ep, c->c.from.ep_gen, v);
    wf_door_event_end(door);
}

/* Keep the clocks of "ended" and "cut off". */
static void call_note(struct call *c, enum outcome outcome, uint64_t now)
{
    if (c->state == CALL_ANSWER || outcome == LOCAL)
        c->cut_ns = now;
    if (outcome == LOCAL)
        c->local_ns = c->local_ns ? c->local_ns : now;
    else if (c->state == CALL_ANSWER || outcome == REFUSED)
        c->local_ns = 0;
    if (outcome == REFUSED)
        c->refused_ns = c->refused_ns ? c->refused_ns : now;
    else if (outcome != NO_WAY)
        c->refused_ns = 0;
    if (outcome == SLOW || outcome == KNOCKED)
        c->hung_ns = 0;
    if (outcome == SLOW)
        c->knocked_ns = 0;
    if (outcome == KNOCKED && !c->knocked_ns)
        c->knocked_ns = now;
    else if (outcome == HUNG_UP && !c->hung_ns)
        c->hung_ns = now;
}

/* The next attempt: at once if there is an address that was not tried in this round. Nearly
 * at the end of the time that a call has there is one more. */
static uint64_t call_next(const struct wf_tcp_door *door, struct call *c, enum outcome outcome,
                          uint64_t now)
{
    uint64_t next = now;
    if (outcome == KNOCKED)
        return now + KNOCK_MS * WF_DOOR_MS;
    c->at = (c->at + 1) % c->ips;
    if (!c->at || outcome == LOCAL) {
        uint64_t longest = WF_MIN(PAUSE_MAX_MS * WF_DOOR_MS, door->peer_ns / 10);
        next += WF_MIN(c->pause_ms * WF_DOOR_MS, longest);
        c->pause_ms = WF_MIN(2 * c->pause_ms, PAUSE_MAX_MS);
    }
    if (outcome == REFUSED)
        next = WF_MIN(next, c->refused_ns + REFUSED_MS * WF_DOOR_MS);
    if (outcome == CUT || outcome == NO_WAY)
        next = WF_MIN(next, now + (c->cut_ns + c->patience_ns - now) / 2);
    return next;
}

static void call_failed(struct wf_tcp_door *door, struct call *c, enum outcome outcome,
                        const char *why)
{
    uint64_t now = wf_now_ns();
    call_note(c, outcome, now);
    if (outcome == REFUSED && now - c->refused_ns >= REFUSED_MS * WF_DOOR_MS) {
        call_give_up(door, c, WEFT_EPEER, why);
    } else if ((outcome == CUT || outcome == NO_WAY) &&
               now - c->cut_ns >= c->patience_ns - door->peer_ns / 64) {
        call_give_up(door, c, WEFT_EPEER, "cut off: no attempt to connect got through");
    } else if (outcome == KNOCKED && now - c->knocked_ns >= door->peer_ns) {
        call_give_up(door, c, WEFT_EPEER,
                     "it does not manage to connect to this host (a firewall? see weft info and "
                     "WEFT_TCP_INTERFACES)");
    } else if (outcome == HUNG_UP && now - c->hung_ns >= door->peer_ns / 2) {
        call_give_up(door, c, WEFT_EPEER, "who is at its address hangs up");
    } else if (outcome == LOCAL && now - c->local_ns >= LOCAL_TIMES * door->peer_ns) {
        call_give_up(door, c, WEFT_EUNREACH, lack(c->local_err));
    } else {
        wf_door_hang_up(wf_door_watch_release(door, &c->watch));
        c->state = CALL_PAUSE;
        wf_door_deadline_set(door, &c->watch, call_next(door, c, outcome, now));
    }
}

/* This side lacks something. A call logs that once, and once more if it lacks something else. */
static void call_local(struct wf_tcp_door *door, struct call *c, int err)
{
    char name[WF_TCP_NAME], more[WF_DOOR_MORE];
    if (err != c->local_err && wf_door_is_loud(door, WF_DOOR_ON_FILES, more)) {
        const char *to = wf_tcp_net_name(c->ip[c->at], c->c.to_contact.port, name);
        errno = err;
        wf_error("cannot connect to %s for the moment: %m%s%s", to, remedy(err), more);
    }
    c->local_err = err;
    call_failed(door, c, LOCAL, NULL);
}

/* connect(2) failed with errno [err]. */
static void call_unconnected(struct wf_tcp_door *door, struct call *c, int err)
{
    char name[WF_TCP_NAME];
    errno = err;
    wf_debug("calling %s: %m", wf_tcp_net_name(c->ip[c->at], c->c.to_contact.port, name));
    if (err == ECONNREFUSED)
        call_failed(door, c, REFUSED, "no process listens at its address: it ended");
    else if (is_of_this_side(err))
        call_local(door, c, err);
    else
        call_failed(door, c, err == ENETUNREACH || err == EAFNOSUPPORT ? NO_WAY : CUT, NULL);
}

static void call_attempt(struct wf_tcp_door *door, struct call *c)
{
    uint64_t now = wf_now_ns(), cut = c->cut_ns + c->patience_ns;
    uint64_t until = now + WF_MIN(door->peer_ns / 8, CONNECT_MAX_MS * WF_DOOR_MS);
    if (!door->has_key) {
        c->state = CALL_KEYLESS;
        c->watch.deadline_ns = WF_DOOR_NEVER;
        return;
    }
    c->state = CALL_CONNECT;
    c->watch.fd = wf_tcp_net_dial(c->ip[c->at], c->c.to_contact.port);
    if (c->watch.fd < 0) {
        call_unconnected(door, c, errno);
        return;
    }
    wf_door_deadline_set(door, &c->watch,
                         cut > now + door->peer_ns / 64 ? WF_MIN(until, cut) : until);
    if (wf_door_watch_add(door, &c->watch, EPOLLOUT))
        call_unconnected(door, c, errno);
}

static void call_connected(struct wf_tcp_door *door, struct call *c)
{
    int err = wf_tcp_net_dialled(c->watch.fd);
    if (err) {
        call_unconnected(door, c, err);
        return;
    }
    c->state = CALL_ANSWER;
    c->have = 0;
    wf_tcp_hello_make(&c->c, door->flags, &c->hello);
    if (!wf_door_say(c->watch.fd, &c->hello, sizeof c->hello)) {
        call_failed(door, c, HUNG_UP, NULL);
        return;
    }
    wf_door_watch_events(door, &c->watch, EPOLLIN);
    wf_door_deadline_set(door, &c->watch, wf_now_ns() + door->peer_ns);
}

static void call_log(struct wf_tcp_door *door, const struct call *c, enum wf_door_topic topic,
                     const char *text)
{
    char name[WF_TCP_NAME];
    char more[WF_DOOR_MORE];
    if (wf_door_is_loud(door, topic, more))
        wf_warn("calling %s: %s%s", wf_tcp_net_name(c->ip[c->at], c->c.to_contact.port, name), text,
                more);
}

/* A peer that has proved itself changes neither version nor flags: who says so now is another
 * process, or somebody on the way. */
static bool had_before(const struct call *c)
{
    return c->c.gen > 1;
}

static void call_refused(struct wf_tcp_door *door, struct call *c)
{
    struct wf_tcp_refusal r;
    if (wf_tcp_refusal_parse(&c->in, &r) != WEFT_OK) {
        call_failed(door, c, REFUSED, "a stranger is at its address: it ended");
        return;
    }
    switch (r.reason) {
    case WF_TCP_REFUSED_GONE:
        call_failed(door, c, REFUSED, "its endpoint closed, or its process ended");
        break;
    case WF_TCP_REFUSED_VERSION:
        if (had_before(c)) {
            call_failed(door, c, REFUSED, "who is at its address has another version of Weft's");
            break;
        }
        call_log(door, c, WF_DOOR_ON_VERSION, "it has another version of Weft's protocol");
        call_give_up(door, c, WEFT_EVERSION, "it has another version of Weft's protocol");
        break;
    case WF_TCP_REFUSED_FLAGS:
        if (had_before(c)) {
            call_failed(door, c, REFUSED, "who is at its address encrypts otherwise");
            break;
        }
        call_log(door, c, WF_DOOR_ON_FLAGS,
                 "one side encrypts, the other does not: set WEFT_TCP_ENCRYPT alike for all");
        call_give_up(door, c, WEFT_EUNREACH, "one side encrypts, the other does not");
        break;
    default: call_failed(door, c, SLOW, NULL); break;
    }
}

/* Whoever answers like this is not whom this process called. */
static void call_unproven(struct wf_tcp_door *door, struct call *c)
{
    call_log(door, c, WF_DOOR_ON_KEY,
             "who answered does not know this job's key (another job's process, another "
             "WEFT_KEY_FILE, or an attack; the network itself is well)");
    call_failed(door, c, REFUSED, "who is at its address does not know this job's key");
}

static bool call_is_knock(const struct call *c)
{
    return memcmp(&c->c.from, &c->c.to, sizeof c->c.from) < 0;
}

static void call_challenged(struct wf_tcp_door *door, struct call *c)
{
    struct wf_tcp_challenge challenge;
    struct wf_tcp_proof proof;
    struct wf_tcp_conn *conn;
    if (wf_tcp_challenge_parse(&c->in, &challenge) != WEFT_OK ||
        challenge.greeting.flags != door->flags ||
        !wf_tcp_challenge_verify(door->key, &c->hello, &challenge)) {
        call_unproven(door, c);
        return;
    }
    wf_tcp_proof_make(door->flags, &proof);
    wf_tcp_proof_sign(door->key, &c->hello, &challenge, &proof);
    if (!wf_door_say(c->watch.fd, &proof, sizeof proof)) {
        call_failed(door, c, HUNG_UP, NULL);
        return;
    }
    if (call_is_knock(c)) {
        call_failed(door, c, KNOCKED, NULL);
        return;
    }
    conn = wf_door_conn_new(door, &c->hello, &challenge, true);
    if (!conn) {
        call_local(door, c, ENOMEM);
        return;
    }
    conn->peer = c->c.to;
    conn->contact = c->c.to_contact;
    conn->call = c->number;
    conn->fd = wf_door_watch_release(door, &c->watch);
    wf_door_watch_end(door, &c->watch);
    wf_door_conn_deliver(door, c->c.from.ep, c->c.from.ep_gen, conn);
}

static void call_answer(struct wf_tcp_door *door, struct call *c)
{
    struct wf_tcp_greeting g;
    int there = wf_door_take(c->watch.fd, &c->in, &c->have, sizeof g);
    enum weft_status status;
    if (there > 0) {
        status = wf_tcp_greeting_parse(&c->in, WF_TCP_CHALLENGE, WF_TCP_REFUSAL, &g);
        if (status == WEFT_EVERSION && had_before(c)) {
            call_failed(door, c, REFUSED, "who is at its address has another version of Weft's");
            return;
        }
        if (status == WEFT_EVERSION) {
            call_give_up(door, c, WEFT_EVERSION, "it has another version of Weft's protocol");
            return;
        }
        if (status != WEFT_OK) {
            call_failed(door, c, REFUSED, "a stranger is at its address: it ended");
            return;
        }
        there = wf_door_take(c->watch.fd, &c->in, &c->have, g.size);
    }
    if (there < 0)
        call_failed(door, c, HUNG_UP, NULL);
    else if (there && g.role == WF_TCP_REFUSAL)
        call_refused(door, c);
    else if (there)
        call_challenged(door, c);
}

void wf_door_call_event(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    struct call *c = call_of(w);
    if (c->state == CALL_CONNECT)
        call_connected(door, c);
    else if (c->state == CALL_ANSWER)
        call_answer(door, c);
}

void wf_door_call_expired(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    struct call *c = call_of(w);
    switch (c->state) {
    case CALL_PAUSE:
        if (!c->ips)
            call_give_up(door, c, WEFT_EUNREACH,
                         c->c.to_contact.port
                             ? "its only address is loopback on another host: see weft info there"
                             : "its address names no place on a network");
        else
            call_attempt(door, c);
        break;
    case CALL_KEYLESS: break;
    case CALL_CONNECT: call_unconnected(door, c, ETIMEDOUT); break;
    case CALL_ANSWER: call_failed(door, c, SLOW, NULL); break;
    }
}

void wf_door_calls_go_on(struct wf_tcp_door *door)
{
    wf_list_each(it, &door->calls)
    {
        struct call *c = wf_container_of(it, struct call, watch.item);
        if (!c->watch.dead && c->state == CALL_KEYLESS) {
            c->state = CALL_PAUSE;
            c->cut_ns = wf_now_ns();
            wf_door_deadline_set(door, &c->watch, c->cut_ns);
        }
    }
}

void wf_door_calls_forget(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &door->calls)
    {
        struct call *c = wf_container_of(it, struct call, watch.item);
        if (c->c.from.ep == ep && c->c.from.ep_gen == ep_gen)
            wf_door_watch_end(door, &c->watch);
    }
}

/* Loopback is this host's only in the same network namespace of the same boot. */
static void call_addresses(const struct wf_tcp_door *door, struct call *c)
{
    const struct wf_process_id *to = &c->c.to.process;
    const struct wf_contact *contact = &c->c.to_contact;
    bool same = to->node == door->self.node && to->netns == door->self.netns;
    for (unsigned i = 0; contact->port && i < contact->count && i < WF_CONTACT_IPS; i++)
        if (wf_tcp_net_can_dial(contact->ip[i], same))
            memcpy(c->ip[c->ips++], contact->ip[i], WF_TCP_IP);
}

/* A call of the same channel that is under way. */
static struct call *call_find(struct wf_tcp_door *door, const struct wf_tcp_call *call)
{
    wf_list_each(it, &door->calls)
    {
        struct call *c = wf_container_of(it, struct call, watch.item);
        if (!c->watch.dead && c->c.lane == call->lane && c->c.from.ep == call->from.ep &&
            c->c.from.ep_gen == call->from.ep_gen && !memcmp(&c->c.to, &call->to, sizeof c->c.to))
            return c;
    }
    return NULL;
}

static struct call *call_new(const struct wf_tcp_door *door, const struct wf_tcp_call *call)
{
    struct call *c = calloc(1, sizeof *c);
    struct wf_tcp_verdict *v = malloc(sizeof *v);
    if (!c || !v) {
        free(c);
        free(v);
        return NULL;
    }
    c->verdict = v;
    c->watch.kind = WF_DOOR_CALL;
    c->watch.fd = -1;
    c->c = *call;
    c->pause_ms = PAUSE_MIN_MS;
    c->patience_ns = call->patience_ms ? call->patience_ms * WF_DOOR_MS : door->peer_ns / 2;
    call_addresses(door, c);
    c->cut_ns = wf_now_ns() + call->delay_ms * WF_DOOR_MS;
    return c;
}

/* Its number; 0: no memory. */
static uint64_t call_start(struct wf_tcp_door *door, const struct wf_tcp_call *call)
{
    struct call *c = call_find(door, call);
    if (c)
        return c->number;
    c = call_new(door, call);
    if (!c)
        return 0;
    c->number = ++door->last_call;
    wf_list_append(&door->calls, &c->watch.item);
    wf_door_deadline_set(door, &c->watch, c->cut_ns);
    return c->number;
}

void wf_door_call_back(struct wf_tcp_door *door, const struct wf_tcp_call *call)
{
    char more[WF_DOOR_MORE];
    if (!call_start(door, call) && wf_door_is_loud(door, WF_DOOR_ON_FILES, more))
        wf_error("no memory to call back who knocked%s", more);
}

void wf_door_knock_end(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen,
                       const struct wf_tcp_hello *hello)
{
    struct wf_tcp_call same = {
        .from = {.ep = ep, .ep_gen = ep_gen}, .to = hello->from, .lane = hello->lane};
    struct call *c = call_find(door, &same);
    if (c)
        wf_door_watch_end(door, &c->watch);
}

bool wf_door_call_lacks(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen,
                        const struct wf_tcp_hello *hello)
{
    struct wf_tcp_call same = {
        .from = {.ep = ep, .ep_gen = ep_gen}, .to = hello->from, .lane = hello->lane};
    const struct call *c = call_find(door, &same);
    return c && c->local_ns;
}

uint64_t wf_tcp_door_call(struct wf_tcp_door *door, const struct wf_tcp_call *call)
{
    uint64_t number;
    pthread_mutex_lock(&door->lock);
    number = call_start(door, call);
    pthread_mutex_unlock(&door->lock);
    wf_door_kick(door);
    return number;
}

void wf_tcp_door_cancel(struct wf_tcp_door *door, uint64_t number)
{
    pthread_mutex_lock(&door->lock);
    wf_list_each(it, &door->calls)
    {
        struct call *c = wf_container_of(it, struct call, watch.item);
        if (c->number == number) {
            wf_door_watch_end(door, &c->watch);
            break;
        }
    }
    pthread_mutex_unlock(&door->lock);
    wf_door_kick(door); /* it frees the call */
}
