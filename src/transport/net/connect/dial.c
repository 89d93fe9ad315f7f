/* SPDX-License-Identifier: BSD-3-Clause */
/* Dials: attempts to connect, and the dialling side of the handshake (states: manager.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/dial_int.h"
#include "transport/net/connect/hello.h"
#include "transport/net/connect/ifaddr.h"
#include "transport/stream.h"

#define PAUSE_MIN_MS 5 /* pause between the first two rounds of attempts */
/* How long an attempt may take to connect. The kernel sends a lost SYN again after 1 s (RFC
 * 6298). */
#define CONNECT_MAX_MS 2000

static struct wf_mgr_dial *dial_of(struct wf_mgr_watch *w)
{
    return wf_container_of(w, struct wf_mgr_dial, watch);
}

void wf_mgr_dial_free(struct wf_mgr_watch *w)
{
    free(dial_of(w)->result);
}

/* ---- attempts ---- */

static UNDER_LOCK void dial_attempt(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    uint64_t now = wf_now_ns(), given_up = dial->unconnected_ns + dial->patience_ns;
    uint64_t until = now + WF_MIN(mgr->peer_ns / 8, CONNECT_MAX_MS * WF_MGR_MS);
    if (!mgr->has_key) {
        dial->state = WF_DIAL_KEYLESS;
        dial->watch.deadline_ns = WF_MGR_NEVER;
        return;
    }
    dial->state = WF_DIAL_CONNECT;
    dial->now_gen = 0;
    dial->watch.fd =
        wf_stream_connect(dial->ip[dial->at], dial->want.to_contact.port, WF_STREAM_PLAIN);
    if (dial->watch.fd < 0) {
        wf_mgr_attempt_errno(mgr, dial, errno);
        return;
    }
    if (given_up > now + mgr->peer_ns / 64)
        until = WF_MIN(until, given_up);
    wf_mgr_deadline_set(mgr, &dial->watch, until);
    if (wf_mgr_watch_add(mgr, &dial->watch, EPOLLOUT))
        wf_mgr_attempt_errno(mgr, dial, errno);
}

static UNDER_LOCK void dial_connected(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    int err = wf_stream_connect_error(dial->watch.fd);
    if (err) {
        wf_mgr_attempt_errno(mgr, dial, err);
        return;
    }
    dial->state = WF_DIAL_ANSWER;
    dial->have = 0;
    wf_net_hello_make(&dial->want, mgr->flags, &dial->hello);
    if (!wf_mgr_send(dial->watch.fd, &dial->hello, sizeof dial->hello)) {
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_CLOSED, NULL);
        return;
    }
    wf_mgr_watch_events(mgr, &dial->watch, EPOLLIN);
    wf_mgr_deadline_set(mgr, &dial->watch, wf_now_ns() + mgr->peer_ns);
}

/* ---- the answer ---- */

static void dial_log(struct wf_conn_mgr *mgr, const struct wf_mgr_dial *dial,
                     enum wf_mgr_topic topic, const char *text)
{
    char name[WF_NET_NAME];
    char suffix[WF_MGR_SUFFIX];
    if (wf_mgr_may_log(mgr, topic, suffix))
        wf_warn("connecting to %s: %s%s",
                wf_ipaddr_print_port(dial->ip[dial->at], dial->want.to_contact.port, name), text,
                suffix);
}

/* Did the channel have a connection before? If it did, the peer has authenticated before, and the
 * peer's version and flags do not change. So an answer with another version or other flags comes
 * from another process, or was forged on the way. */
static bool was_connected(const struct wf_mgr_dial *dial)
{
    return dial->want.gen > 1;
}

static UNDER_LOCK void dial_other_program(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_REFUSED,
                       "another program listens at its address: it has ended");
}

static UNDER_LOCK void dial_other_version(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    if (was_connected(dial))
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_REFUSED,
                           "the process at its address uses another version of Weft's protocol");
    else
        wf_mgr_dial_give_up(mgr, dial, WEFT_EVERSION, "it uses another version of Weft's protocol");
}

static UNDER_LOCK void dial_other_flags(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    if (was_connected(dial)) {
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_REFUSED,
                           "the process at its address has another WEFT_TCP_ENCRYPT");
        return;
    }
    dial_log(mgr, dial, WF_MGR_LOG_FLAGS,
             "one side encrypts, the other does not: set WEFT_TCP_ENCRYPT to the same value in all "
             "processes");
    wf_mgr_dial_give_up(mgr, dial, WEFT_EUNREACH, "one side encrypts, the other does not");
}

static UNDER_LOCK void dial_refused(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    struct wf_net_refusal r;
    if (wf_net_refusal_parse(&dial->in, &r) != WEFT_OK) {
        dial_other_program(mgr, dial);
        return;
    }
    switch (r.reason) {
    case WF_NET_REFUSED_GONE:
        dial->now_gen = r.now_gen != dial->want.to.ep_gen ? r.now_gen : 0;
        if (dial->want.follows && dial->now_gen) {
            wf_mgr_dial_give_up(mgr, dial, WEFT_EPEER, "another one has its number");
            break;
        }
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_REFUSED,
                           "its endpoint closed, or its process ended");
        break;
    case WF_NET_REFUSED_VERSION:
        if (!was_connected(dial))
            dial_log(mgr, dial, WF_MGR_LOG_VERSION,
                     "the peer uses another version of Weft's protocol: use the same version of "
                     "Weft on all hosts");
        dial_other_version(mgr, dial);
        break;
    case WF_NET_REFUSED_FLAGS: dial_other_flags(mgr, dial); break;
    default: wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_SLOW, NULL); break;
    }
}

/* Called when the process that answered has not proved that it has the job's key. So this process
 * cannot be the peer. */
static UNDER_LOCK void dial_unproven(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    dial_log(mgr, dial, WF_MGR_LOG_KEY,
             "the process that answered does not know this job's key (it is another job's process, "
             "it has another WEFT_KEY_FILE, or this is an attack; the network works)");
    wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_REFUSED,
                       "the process at its address does not know this job's key");
}

static bool dial_is_connect_back(const struct wf_mgr_dial *dial)
{
    return memcmp(&dial->want.from, &dial->want.to, sizeof dial->want.from) < 0;
}

static UNDER_LOCK void dial_deliver(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial,
                                    const struct wf_net_challenge *challenge)
{
    const struct wf_address *from = &dial->want.from;
    struct wf_net_conn *conn = wf_mgr_conn_new(mgr, &dial->hello, challenge, true);
    if (!conn) {
        wf_mgr_attempt_shortage(mgr, dial, ENOMEM);
        return;
    }
    conn->peer = dial->want.to;
    conn->contact = dial->want.to_contact;
    conn->dial = dial->number;
    conn->fd = wf_mgr_watch_release(mgr, &dial->watch);
    wf_mgr_watch_end(mgr, &dial->watch);
    wf_mgr_conn_deliver(mgr, from->ep, from->ep_gen, conn);
}

static UNDER_LOCK void dial_challenged(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    struct wf_net_challenge challenge;
    struct wf_net_proof proof;
    if (wf_net_challenge_parse(&dial->in, &challenge) != WEFT_OK ||
        challenge.greeting.flags != mgr->flags ||
        !wf_net_challenge_verify(mgr->key, &dial->hello, &challenge)) {
        dial_unproven(mgr, dial);
        return;
    }
    wf_net_proof_make(mgr->flags, &proof);
    wf_net_proof_sign(mgr->key, &dial->hello, &challenge, &proof);
    if (!wf_mgr_send(dial->watch.fd, &proof, sizeof proof))
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_CLOSED, NULL);
    else if (dial_is_connect_back(dial))
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_CONNECT_BACK, NULL);
    else
        dial_deliver(mgr, dial, &challenge);
}

static UNDER_LOCK void dial_answer(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    struct wf_net_greeting g;
    int whole = wf_mgr_recv(dial->watch.fd, &dial->in, &dial->have, sizeof g);
    enum weft_status status;
    if (whole > 0) {
        status = wf_net_greeting_parse(&dial->in, WF_NET_CHALLENGE, WF_NET_REFUSAL, &g);
        if (status == WEFT_EVERSION) {
            dial_other_version(mgr, dial);
            return;
        }
        if (status != WEFT_OK) {
            dial_other_program(mgr, dial);
            return;
        }
        whole = wf_mgr_recv(dial->watch.fd, &dial->in, &dial->have, g.size);
    }
    if (whole < 0)
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_CLOSED, NULL);
    else if (whole && g.role == WF_NET_REFUSAL)
        dial_refused(mgr, dial);
    else if (whole)
        dial_challenged(mgr, dial);
}

void wf_mgr_dial_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    struct wf_mgr_dial *dial = dial_of(w);
    if (dial->state == WF_DIAL_CONNECT)
        dial_connected(mgr, dial);
    else if (dial->state == WF_DIAL_ANSWER)
        dial_answer(mgr, dial);
}

void wf_mgr_dial_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    struct wf_mgr_dial *dial = dial_of(w);
    switch (dial->state) {
    case WF_DIAL_PAUSE:
        if (dial->ips)
            dial_attempt(mgr, dial);
        else
            wf_mgr_dial_give_up(
                mgr, dial, WEFT_EUNREACH,
                dial->want.to_contact.port
                    ? "its only address is another host's loopback: see weft info there"
                    : "its address bytes contain no network address");
        break;
    case WF_DIAL_KEYLESS: break;
    case WF_DIAL_CONNECT: wf_mgr_attempt_errno(mgr, dial, ETIMEDOUT); break;
    case WF_DIAL_ANSWER: wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_SLOW, NULL); break;
    }
}

void wf_mgr_dials_resume(struct wf_conn_mgr *mgr)
{
    wf_list_each(it, &mgr->dials)
    {
        struct wf_mgr_dial *dial = wf_container_of(it, struct wf_mgr_dial, watch.item);
        if (!dial->watch.dead && dial->state == WF_DIAL_KEYLESS) {
            dial->state = WF_DIAL_PAUSE;
            dial->unconnected_ns = wf_now_ns();
            wf_mgr_deadline_set(mgr, &dial->watch, dial->unconnected_ns);
        }
    }
}

void wf_mgr_dials_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    wf_list_each(it, &mgr->dials)
    {
        struct wf_mgr_dial *dial = wf_container_of(it, struct wf_mgr_dial, watch.item);
        if (dial->want.from.ep == ep && dial->want.from.ep_gen == ep_gen)
            wf_mgr_watch_end(mgr, &dial->watch);
    }
}

/* ---- beginning and ending ---- */

/* Choose the contact's addresses that this process can dial. A loopback address can be dialled if
 * both processes are in the same network namespace of the same boot of one host. */
static void dial_addresses(const struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial)
{
    const struct wf_process_id *to = &dial->want.to.process;
    const struct wf_contact *contact = &dial->want.to_contact;
    bool same = to->host == mgr->self.host;
    for (unsigned i = 0; contact->port && i < contact->count && i < WF_CONTACT_IPS; i++)
        if (wf_ifaddr_can_dial(contact->ip[i], same))
            memcpy(dial->ip[dial->ips++], contact->ip[i], WF_NET_IP);
}

/* Find the dial in progress for the channel of [want]. Returns NULL if there is none. */
static struct wf_mgr_dial *dial_find(struct wf_conn_mgr *mgr, const struct wf_dial *want)
{
    wf_list_each(it, &mgr->dials)
    {
        struct wf_mgr_dial *dial = wf_container_of(it, struct wf_mgr_dial, watch.item);
        const struct wf_dial *have = &dial->want;
        if (!dial->watch.dead && have->lane == want->lane && have->from.ep == want->from.ep &&
            have->from.ep_gen == want->from.ep_gen &&
            !memcmp(&have->to, &want->to, sizeof have->to))
            return dial;
    }
    return NULL;
}

/* Find the dial in progress from endpoint [ep] to the sender of [hello], for the same lane. */
static struct wf_mgr_dial *dial_to_sender(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                          const struct wf_net_hello *hello)
{
    struct wf_dial want = {
        .from = {.ep = ep, .ep_gen = ep_gen}, .to = hello->from, .lane = hello->lane};
    return dial_find(mgr, &want);
}

static struct wf_mgr_dial *dial_new(const struct wf_conn_mgr *mgr, const struct wf_dial *want)
{
    struct wf_mgr_dial *dial = calloc(1, sizeof *dial);
    struct wf_dial_result *result = malloc(sizeof *result);
    if (!dial || !result) {
        free(dial);
        free(result);
        return NULL;
    }
    dial->result = result;
    dial->watch.kind = WF_MGR_DIAL;
    dial->watch.fd = -1;
    dial->want = *want;
    dial->pause_ms = PAUSE_MIN_MS;
    dial->patience_ns = want->patience_ms ? want->patience_ms * WF_MGR_MS : mgr->peer_ns / 2;
    dial_addresses(mgr, dial);
    dial->unconnected_ns = wf_now_ns() + want->delay_ms * WF_MGR_MS;
    return dial;
}

/* Start a dial for this channel, unless one is in progress. Returns the dial's number, or 0 if
 * there is no memory. */
static UNDER_LOCK uint64_t dial_start(struct wf_conn_mgr *mgr, const struct wf_dial *want)
{
    struct wf_mgr_dial *dial = dial_find(mgr, want);
    if (dial)
        return dial->number;
    dial = dial_new(mgr, want);
    if (!dial)
        return 0;
    dial->number = ++mgr->last_dial;
    wf_list_append(&mgr->dials, &dial->watch.item);
    wf_mgr_deadline_set(mgr, &dial->watch, dial->unconnected_ns);
    return dial->number;
}

void wf_mgr_dial_back(struct wf_conn_mgr *mgr, const struct wf_dial *want)
{
    char suffix[WF_MGR_SUFFIX];
    if (!dial_start(mgr, want) && wf_mgr_may_log(mgr, WF_MGR_LOG_RESOURCES, suffix))
        wf_error("no memory to connect back to a peer, which will ask again%s", suffix);
}

void wf_mgr_connect_back_end(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                             const struct wf_net_hello *hello)
{
    struct wf_mgr_dial *dial = dial_to_sender(mgr, ep, ep_gen, hello);
    if (dial)
        wf_mgr_watch_end(mgr, &dial->watch);
}

bool wf_mgr_dial_lacks_resources(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                 const struct wf_net_hello *hello)
{
    const struct wf_mgr_dial *dial = dial_to_sender(mgr, ep, ep_gen, hello);
    return dial && dial->shortage_ns;
}

uint64_t wf_conn_mgr_dial(struct wf_conn_mgr *mgr, const struct wf_dial *want)
{
    uint64_t number;
    mgr_lock(mgr);
    number = dial_start(mgr, want);
    mgr_unlock(mgr);
    wf_mgr_wake(mgr);
    return number;
}

void wf_conn_mgr_cancel(struct wf_conn_mgr *mgr, uint64_t number)
{
    mgr_lock(mgr);
    wf_list_each(it, &mgr->dials)
    {
        struct wf_mgr_dial *dial = wf_container_of(it, struct wf_mgr_dial, watch.item);
        if (dial->number == number) {
            wf_mgr_watch_end(mgr, &dial->watch);
            break;
        }
    }
    mgr_unlock(mgr);
    wf_mgr_wake(mgr); /* the manager's thread frees the dial */
}
