/* SPDX-License-Identifier: BSD-3-Clause */
/* Who comes. A stranger costs its struct, its socket and, only if it names an endpoint of
 * this process, a MAC. */
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

#define BATCH 16       /* connections accepted per event */
#define STARVED_MS 100 /* no accepting for so long after running out of descriptors */
#define FULL_MS 5      /* nor while all places are taken by those who may stay */
#define GRACE_MS 500   /* so long those may stay who named an endpoint: two round trips */

/* So far apart, on average, may those be who come and do not prove themselves. */
#define STRANGER_NS (WF_DOOR_SECOND / (WF_TCP_STRANGERS * 16))

enum stranger_state { AWAIT_HELLO, AWAIT_KEY, AWAIT_PROOF };

/* A connection that came in and did not prove yet who it is. */
struct stranger {
    struct wf_door_watch watch;
    enum stranger_state state;
    uint64_t since_ns;
    bool named; /* its hello names an endpoint of this process */
    uint16_t port;
    uint8_t ip[WF_TCP_IP];
    size_t have; /* bytes of the message that is awaited */
    union {
        struct wf_tcp_hello hello;
        struct wf_tcp_proof proof;
    } in;
    struct wf_tcp_hello hello;
    struct wf_tcp_challenge challenge;
};

static struct stranger *stranger_of(struct wf_door_watch *w)
{
    return wf_container_of(w, struct stranger, watch);
}

/* Who was challenged may be in by its own account: what comes now it would take for a frame. It
 * sees the end of the stream and calls again. */
static void stranger_refuse(struct wf_tcp_door *door, struct stranger *s,
                            enum wf_tcp_refusal_reason reason)
{
    struct wf_tcp_refusal refusal;
    wf_tcp_refusal_make(door->flags, reason, &refusal);
    if (s->state != AWAIT_PROOF)
        (void)wf_door_say(s->watch.fd, &refusal, sizeof refusal);
    wf_door_watch_end(door, &s->watch);
}

/* Why a stranger was not let in: one line, [text] behind its address. */
static void stranger_log(struct wf_tcp_door *door, const struct stranger *s,
                         enum wf_door_topic topic, const char *text)
{
    char name[WF_TCP_NAME];
    char more[WF_DOOR_MORE];
    if (wf_door_is_loud(door, topic, more))
        wf_log(topic == WF_DOOR_ON_NOISE ? WF_LOG_INFO : WF_LOG_WARN,
               "a connection from %s was refused: %s%s", wf_tcp_net_name(s->ip, s->port, name),
               text, more);
}

static void stranger_noise(struct wf_tcp_door *door, struct stranger *s)
{
    stranger_log(door, s, WF_DOOR_ON_NOISE, "it does not speak Weft's protocol");
    wf_door_watch_end(door, &s->watch);
}

static void stranger_challenge(struct wf_tcp_door *door, struct stranger *s)
{
    wf_tcp_challenge_make(door->flags, &s->challenge);
    wf_tcp_challenge_sign(door->key, &s->hello, &s->challenge);
    s->state = AWAIT_PROOF;
    s->have = 0;
    if (!wf_door_say(s->watch.fd, &s->challenge, sizeof s->challenge))
        wf_door_watch_end(door, &s->watch);
}

/* Is there such an endpoint? Without the lock meanwhile: [s] may be dead afterwards. */
static enum wf_tcp_host stranger_host(struct wf_tcp_door *door, const struct stranger *s)
{
    const struct wf_tcp_hello *h = &s->hello;
    enum wf_tcp_host has;
    if (h->to_token[0] != door->self.token[0] || h->to_token[1] != door->self.token[1])
        return WF_TCP_HOST_NONE;
    wf_door_event_begin(door, h->to_ep, h->to_gen);
    has = door->params.events->has(door->params.owner, h->to_ep, h->to_gen);
    wf_door_event_end(door);
    return has;
}

/* Its hello is here. Whom it wants comes first: only who knows that costs a MAC. */
static void stranger_named(struct wf_tcp_door *door, struct stranger *s)
{
    enum wf_tcp_host host = stranger_host(door, s);
    if (s->watch.dead)
        return;
    if (host == WF_TCP_HOST_NONE) {
        stranger_refuse(door, s, WF_TCP_REFUSED_GONE);
    } else if (s->hello.greeting.flags != door->flags) {
        stranger_log(door, s, WF_DOOR_ON_FLAGS,
                     "one side encrypts, the other does not: set WEFT_TCP_ENCRYPT alike for all");
        stranger_refuse(door, s, WF_TCP_REFUSED_FLAGS);
    } else if (host == WF_TCP_HOST_FULL ||
               wf_door_call_lacks(door, s->hello.to_ep, s->hello.to_gen, &s->hello)) {
        stranger_refuse(door, s, WF_TCP_REFUSED_BUSY); /* so that it takes this side for slow */
    } else if (door->has_key) {
        s->named = true;
        stranger_challenge(door, s);
    } else {
        s->named = true;
        s->state = AWAIT_KEY;
        wf_door_watch_events(door, &s->watch, EPOLLRDHUP); /* it has nothing to say until then */
    }
}

static void stranger_hello(struct wf_tcp_door *door, struct stranger *s)
{
    struct wf_tcp_greeting g;
    int whole = wf_door_take(s->watch.fd, &s->in, &s->have, sizeof s->in.hello);
    enum weft_status status = WEFT_OK;
    if (s->have >= sizeof g)
        status = wf_tcp_greeting_parse(&s->in, WF_TCP_HELLO, 0, &g);
    if (status == WEFT_EVERSION) {
        stranger_log(door, s, WF_DOOR_ON_VERSION, "it has another version of Weft's protocol");
        stranger_refuse(door, s, WF_TCP_REFUSED_VERSION);
    } else if (status != WEFT_OK ||
               (whole > 0 && wf_tcp_hello_parse(&s->in, &s->hello) != WEFT_OK)) {
        stranger_noise(door, s);
    } else if (whole < 0) {
        wf_door_watch_end(door, &s->watch);
    } else if (whole) {
        stranger_named(door, s);
    }
}

/* It proved itself. If connections are made from this side (door.h), it is called back. */
static bool stranger_knocks(struct wf_tcp_door *door, struct stranger *s)
{
    struct wf_tcp_call call = {.from = {.version = WF_ADDRESS_VERSION,
                                        .size = sizeof call.from,
                                        .ep = s->hello.to_ep,
                                        .ep_gen = s->hello.to_gen,
                                        .process = door->self},
                               .to = s->hello.from,
                               .from_contact = door->contact,
                               .to_contact = s->hello.contact,
                               .lane = s->hello.lane,
                               .gen = s->hello.gen};
    if (memcmp(&call.from, &call.to, sizeof call.from) <= 0)
        return false;
    wf_door_watch_end(door, &s->watch);
    door->rate_ns -= WF_MIN(door->rate_ns, STRANGER_NS); /* no stranger, after all */
    wf_door_call_back(door, &call);
    return true;
}

static void stranger_proof(struct wf_tcp_door *door, struct stranger *s)
{
    struct wf_tcp_proof proof;
    struct wf_tcp_conn *conn;
    int whole = wf_door_take(s->watch.fd, &s->in, &s->have, sizeof s->in.proof);
    if (!whole)
        return;
    if (whole < 0 || wf_tcp_proof_parse(&s->in, &proof) != WEFT_OK ||
        proof.greeting.flags != door->flags) {
        stranger_log(door, s, WF_DOOR_ON_NOISE, "it did not answer the challenge");
        wf_door_watch_end(door, &s->watch);
        return;
    }
    if (!wf_tcp_proof_verify(door->key, &s->hello, &s->challenge, &proof)) {
        stranger_log(door, s, WF_DOOR_ON_KEY,
                     "it does not know this job's key (another job's process, another "
                     "WEFT_KEY_FILE, or an attack; the network itself is well)");
        wf_door_watch_end(door, &s->watch);
        return;
    }
    if (stranger_knocks(door, s))
        return;
    wf_door_knock_end(door, s->hello.to_ep, s->hello.to_gen, &s->hello);
    conn = wf_door_conn_new(door, &s->hello, &s->challenge, false);
    if (conn) {
        conn->peer = s->hello.from;
        conn->contact = s->hello.contact;
        conn->fd = wf_door_watch_release(door, &s->watch);
    }
    wf_door_watch_end(door, &s->watch);
    door->rate_ns -= WF_MIN(door->rate_ns, STRANGER_NS); /* no stranger, after all */
    if (conn)
        wf_door_conn_deliver(door, s->hello.to_ep, s->hello.to_gen, conn);
}

void wf_door_stranger_event(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    struct stranger *s = stranger_of(w);
    switch (s->state) {
    case AWAIT_HELLO: stranger_hello(door, s); break;
    case AWAIT_KEY: wf_door_watch_end(door, &s->watch); break; /* it hung up */
    case AWAIT_PROOF: stranger_proof(door, s); break;
    }
}

/* Who goes when one more comes: the oldest, and of those who named an endpoint only if there
 * are no others, for that takes knowing its token. A flood of strangers does not push them
 * out, nor do they each other when many processes begin at once. Null: none may go yet. */
static struct stranger *stranger_victim(struct wf_tcp_door *door)
{
    struct stranger *oldest = NULL;
    wf_list_each(it, &door->strangers)
    {
        struct stranger *s = wf_container_of(it, struct stranger, watch.item);
        if (s->watch.dead)
            continue;
        if (!s->named)
            return s;
        oldest = oldest ? oldest : s;
    }
    if (oldest && wf_now_ns() - oldest->since_ns < GRACE_MS * WF_DOOR_MS)
        return NULL;
    return oldest;
}

/* Is there a place for one more, or one who makes it? */
static bool stranger_fits(struct wf_tcp_door *door)
{
    return door->nstrangers < WF_TCP_STRANGERS || stranger_victim(door);
}

static void stranger_evict(struct wf_tcp_door *door)
{
    struct stranger *s = stranger_victim(door);
    if (!s)
        return;
    stranger_log(door, s, WF_DOOR_ON_NOISE, "too many wait at the door, and it was the oldest");
    stranger_refuse(door, s, WF_TCP_REFUSED_BUSY);
}

static void stranger_admit(struct wf_tcp_door *door, int fd, const uint8_t ip[WF_TCP_IP],
                           uint16_t port)
{
    struct stranger *s = calloc(1, sizeof *s);
    if (!s) {
        wf_door_hang_up(fd);
        return;
    }
    s->watch.kind = WF_DOOR_STRANGER;
    s->watch.fd = fd;
    s->port = port;
    memcpy(s->ip, ip, WF_TCP_IP);
    s->since_ns = wf_now_ns();
    if (door->nstrangers >= WF_TCP_STRANGERS)
        stranger_evict(door);
    wf_list_append(&door->strangers, &s->watch.item);
    door->nstrangers++;
    wf_door_deadline_set(door, &s->watch, s->since_ns + door->handshake_ns);
    if (wf_door_watch_add(door, &s->watch, EPOLLIN))
        wf_door_watch_end(door, &s->watch);
}

void wf_door_stranger_expired(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    stranger_refuse(door, stranger_of(w), WF_TCP_REFUSED_BUSY);
}

void wf_door_strangers_go_on(struct wf_tcp_door *door)
{
    wf_list_each(it, &door->strangers)
    {
        struct stranger *s = wf_container_of(it, struct stranger, watch.item);
        if (!s->watch.dead && s->state == AWAIT_KEY) {
            wf_door_watch_events(door, &s->watch, EPOLLIN);
            stranger_challenge(door, s);
        }
    }
}

void wf_door_strangers_forget(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &door->strangers)
    {
        struct stranger *s = wf_container_of(it, struct stranger, watch.item);
        if (s->named && s->hello.to_ep == ep && s->hello.to_gen == ep_gen)
            wf_door_watch_end(door, &s->watch);
    }
}

/* ---- accepting ---- */

static void listen_events(struct wf_tcp_door *door, uint32_t events)
{
    for (size_t i = 0; i < door->net.contact.count; i++)
        wf_door_watch_events(door, &door->listen[i], events);
}

/* Who comes meanwhile waits in the kernel's queue. */
static void listen_pause(struct wf_tcp_door *door, uint64_t until_ns)
{
    if (!door->deaf_ns)
        listen_events(door, 0);
    door->deaf_ns = until_ns;
    door->next_ns = WF_MIN(door->next_ns, until_ns);
}

/* False: too many came of late, or are here. */
static bool listen_may(struct wf_tcp_door *door)
{
    const uint64_t burst = WF_TCP_STRANGERS * (uint64_t)STRANGER_NS;
    uint64_t now = wf_now_ns();
    if (!stranger_fits(door)) {
        listen_pause(door, now + FULL_MS * WF_DOOR_MS);
        return false;
    }
    door->rate_ns = WF_MAX(door->rate_ns, now);
    if (door->rate_ns > now + burst) {
        listen_pause(door, door->rate_ns - burst + BATCH / 2 * (uint64_t)STRANGER_NS);
        return false;
    }
    door->rate_ns += STRANGER_NS;
    return true;
}

static void listen_failed(struct wf_tcp_door *door)
{
    char more[WF_DOOR_MORE];
    int err = errno;
    if (wf_door_is_loud(door, WF_DOOR_ON_FILES, more)) {
        errno = err;
        wf_error("cannot accept connections for the moment: %m%s%s",
                 err == EMFILE ? "; raise the limit on open files (ulimit -n)" : "", more);
    }
    listen_pause(door, wf_now_ns() + STARVED_MS * WF_DOOR_MS);
}

void wf_door_listen_event(struct wf_tcp_door *door, const struct wf_door_watch *w)
{
    for (int i = 0; i < BATCH && !door->deaf_ns && listen_may(door); i++) {
        uint8_t ip[WF_TCP_IP];
        uint16_t port;
        int fd = wf_tcp_net_accept(w->fd, ip, &port);
        if (fd >= 0) {
            stranger_admit(door, fd, ip, port);
            continue;
        }
        door->rate_ns -= STRANGER_NS;
        if (errno == EAGAIN)
            return;
        /* accept(2): what went wrong on that connection is told here, too. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS ||
            errno == EINVAL || errno == EBADF)
            listen_failed(door);
    }
}

void wf_door_listen_timer(struct wf_tcp_door *door, uint64_t now)
{
    if (door->deaf_ns && now >= door->deaf_ns) {
        door->deaf_ns = 0;
        listen_events(door, EPOLLIN);
    }
    if (door->deaf_ns)
        door->next_ns = WF_MIN(door->next_ns, door->deaf_ns);
}
