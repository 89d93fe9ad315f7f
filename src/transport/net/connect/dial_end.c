/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles the end of each attempt to connect. A dial has a clock for each kind of failure: the time
 * since when attempts have failed in this way. If a clock passes its limit (table:
 * wf_conn_mgr_dial), the dial is given up. Otherwise this file chooses when the next attempt is
 * made. */
#define _GNU_SOURCE
#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/net/connect/dial_int.h"

#define PAUSE_MAX_MS 500 /* the longest pause between two rounds of attempts */
/* If every attempt during this time was refused, the manager concludes that the peer's process has
 * ended, and gives the dial up. */
#define REFUSED_MS 500
/* A connect-back, a request to be dialled, is repeated after this time. The time allows for a
 * handshake that waits for a busy core. */
#define CONNECT_BACK_MS 300
/* How long a dial waits for resources of this host, as a multiple of WEFT_PEER_TIMEOUT. By default
 * that is 120 s. A local port becomes free when its TIME_WAIT ends, 60 s after its last use
 * (tcp(7)). */
#define SHORTAGE_TIMES 12

/* ---- errors of this host ---- */

/* Is errno [err] of socket(2), connect(2) or epoll_ctl(2) caused by this host alone? Such an error
 * says nothing about the peer. */
static bool is_local_shortage(int err)
{
    switch (err) {
    case EADDRNOTAVAIL: /* connect(2): no local port is free */
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case ENOSPC: /* epoll_ctl(2): fs.epoll.max_user_watches */
    case EACCES: /* forbidden by a firewall, a route or a security module */
    case EPERM: return true;
    default: return false;
    }
}

/* Returns what the user can do about errno [err], as the end of a log line. */
static const char *shortage_remedy(int err)
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

static const char *shortage_why(int err)
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

/* ---- clocks ---- */

void wf_mgr_dial_give_up(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, enum weft_status status,
                         const char *why)
{
    struct wf_dial_result *result = dial->result;
    const struct wf_address *from = &dial->want.from;
    dial->result = NULL;
    *result = (struct wf_dial_result){.dial = dial->number,
                                      .to = dial->want.to,
                                      .status = status,
                                      .now_gen = dial->now_gen,
                                      .at_once = dial->want.follows && dial->now_gen,
                                      .why = why};
    wf_list_init(&result->item);
    wf_mgr_watch_end(mgr, &dial->watch);
    wf_mgr_event_begin(mgr, from->ep, from->ep_gen);
    mgr->params.events->given_up(mgr->params.owner, from->ep, from->ep_gen, result);
    wf_mgr_event_end(mgr);
}

static void clock_start(uint64_t *clock, uint64_t now)
{
    if (!*clock)
        *clock = now;
}

/* Start and stop the dial's clocks for an attempt that ended as [end]. If the dial's state is
 * ANSWER, the attempt had a TCP connection. A shortage stops the clocks of the other conditions,
 * and restarts unconnected_ns: no attempt was made, so the peer is not to blame. */
static void clocks_update(struct wf_mgr_dial *dial, enum wf_attempt_end end, uint64_t now)
{
    bool connected = dial->state == WF_DIAL_ANSWER;
    if (connected || end == WF_ATTEMPT_SHORTAGE)
        dial->unconnected_ns = now;
    if (end == WF_ATTEMPT_SHORTAGE)
        clock_start(&dial->shortage_ns, now);
    else if (connected || end == WF_ATTEMPT_REFUSED)
        dial->shortage_ns = 0;
    if (end == WF_ATTEMPT_REFUSED)
        clock_start(&dial->refused_ns, now);
    else if (end != WF_ATTEMPT_NO_ROUTE)
        dial->refused_ns = 0;
    if (end == WF_ATTEMPT_CLOSED)
        clock_start(&dial->closed_ns, now);
    else if (end == WF_ATTEMPT_SLOW || end == WF_ATTEMPT_CONNECT_BACK || end == WF_ATTEMPT_SHORTAGE)
        dial->closed_ns = 0;
    if (end == WF_ATTEMPT_CONNECT_BACK)
        clock_start(&dial->connect_back_ns, now);
    else if (end == WF_ATTEMPT_SLOW || end == WF_ATTEMPT_SHORTAGE)
        dial->connect_back_ns = 0;
}

static bool is_unconnected(enum wf_attempt_end end)
{
    return end == WF_ATTEMPT_UNREACHED || end == WF_ATTEMPT_NO_ROUTE;
}

/* Returns when to make the next attempt. That is now if an address has not been tried in this
 * round; otherwise a pause comes first. While attempts are refused or get no connection, the pause
 * is shortened near the end of the dial's time, so that a last attempt is made before the dial is
 * given up. */
static uint64_t next_attempt_ns(const struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial,
                                enum wf_attempt_end end, uint64_t now)
{
    uint64_t next = now;
    if (end == WF_ATTEMPT_CONNECT_BACK)
        return now + CONNECT_BACK_MS * WF_MGR_MS;
    dial->at = (dial->at + 1) % dial->ips;
    if (!dial->at || end == WF_ATTEMPT_SHORTAGE) {
        uint64_t longest = WF_MIN(PAUSE_MAX_MS * WF_MGR_MS, mgr->peer_ns / 10);
        next += WF_MIN(dial->pause_ms * WF_MGR_MS, longest);
        dial->pause_ms = WF_MIN(2 * dial->pause_ms, PAUSE_MAX_MS);
    }
    if (end == WF_ATTEMPT_REFUSED)
        next = WF_MIN(next, dial->refused_ns + REFUSED_MS * WF_MGR_MS);
    if (is_unconnected(end))
        next = WF_MIN(next, now + (dial->unconnected_ns + dial->patience_ns - now) / 2);
    return next;
}

void wf_mgr_attempt_end(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, enum wf_attempt_end end,
                        const char *why)
{
    uint64_t now = wf_now_ns();
    clocks_update(dial, end, now);
    if (end == WF_ATTEMPT_REFUSED && now - dial->refused_ns >= REFUSED_MS * WF_MGR_MS) {
        wf_mgr_dial_give_up(mgr, dial, WEFT_EPEER, why);
    } else if (is_unconnected(end) &&
               now - dial->unconnected_ns >= dial->patience_ns - mgr->peer_ns / 64) {
        wf_mgr_dial_give_up(mgr, dial, WEFT_EPEER,
                            "its host did not answer any attempt to connect");
    } else if (end == WF_ATTEMPT_CONNECT_BACK && now - dial->connect_back_ns >= mgr->peer_ns) {
        wf_mgr_dial_give_up(mgr, dial, WEFT_EPEER,
                            "it cannot connect to this host: check firewalls, and the addresses "
                            "that weft info shows (WEFT_TCP_INTERFACES)");
    } else if (end == WF_ATTEMPT_CLOSED && now - dial->closed_ns >= mgr->peer_ns / 2) {
        wf_mgr_dial_give_up(mgr, dial, WEFT_EPEER,
                            "the program at its address closes connections without an answer");
    } else if (end == WF_ATTEMPT_SHORTAGE &&
               now - dial->shortage_ns >= SHORTAGE_TIMES * mgr->peer_ns) {
        wf_mgr_dial_give_up(mgr, dial, WEFT_EUNREACH, shortage_why(dial->shortage_errno));
    } else {
        wf_conn_close_fd(wf_mgr_watch_release(mgr, &dial->watch));
        dial->state = WF_DIAL_PAUSE;
        wf_mgr_deadline_set(mgr, &dial->watch, next_attempt_ns(mgr, dial, end, now));
    }
}

void wf_mgr_attempt_shortage(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, int err)
{
    char name[WF_NET_NAME], suffix[WF_MGR_SUFFIX];
    if (err != dial->shortage_errno && wf_mgr_may_log(mgr, WF_MGR_LOG_RESOURCES, suffix)) {
        const char *to = wf_ipaddr_print_port(dial->ip[dial->at], dial->want.to_contact.port, name);
        errno = err;
        wf_error("cannot connect to %s now, will try again: %m%s%s", to, shortage_remedy(err),
                 suffix);
    }
    dial->shortage_errno = err;
    wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_SHORTAGE, NULL);
}

void wf_mgr_attempt_errno(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, int err)
{
    char name[WF_NET_NAME];
    errno = err;
    wf_debug("dialling %s: %m",
             wf_ipaddr_print_port(dial->ip[dial->at], dial->want.to_contact.port, name));
    if (err == ECONNREFUSED)
        wf_mgr_attempt_end(mgr, dial, WF_ATTEMPT_REFUSED,
                           "no process listens at its address: it has ended");
    else if (is_local_shortage(err))
        wf_mgr_attempt_shortage(mgr, dial, err);
    else
        wf_mgr_attempt_end(mgr, dial,
                           err == ENETUNREACH || err == EAFNOSUPPORT ? WF_ATTEMPT_NO_ROUTE
                                                                     : WF_ATTEMPT_UNREACHED,
                           NULL);
}
