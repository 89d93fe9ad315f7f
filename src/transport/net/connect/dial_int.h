/* SPDX-License-Identifier: BSD-3-Clause */
/* A dial, and the ways in which its attempts end. For dial.c and dial_end.c. Only the manager's
 * thread calls these functions, with the manager's lock held. */
#ifndef WF_TRANSPORT_NET_CONNECT_DIAL_INT_H
#define WF_TRANSPORT_NET_CONNECT_DIAL_INT_H

#include "transport/net/connect/manager_int.h"

enum wf_dial_state { WF_DIAL_PAUSE, WF_DIAL_KEYLESS, WF_DIAL_CONNECT, WF_DIAL_ANSWER };

/* A dial is given up when one of five conditions has lasted for some time (wf_conn_mgr_dial). For
 * each condition a clock (the fields unconnected_ns to shortage_ns) stores the time since which the
 * condition has lasted. A clock that is 0 does not run. */
struct wf_mgr_dial {
    struct wf_mgr_watch watch;
    enum wf_dial_state state;
    struct wf_dial want;
    uint64_t number;
    /* The contact's addresses that this process can dial. */
    uint8_t ip[WF_CONTACT_IPS][WF_NET_IP];
    unsigned ips;
    unsigned at; /* index in [ip] for the current or next attempt */
    unsigned pause_ms;
    uint64_t patience_ns;
    /* Since when no attempt got a TCP connection. This clock always runs. */
    uint64_t unconnected_ns;
    uint64_t refused_ns;
    /* Since when each connection was closed without an answer. */
    uint64_t closed_ns;
    /* Since when connect-backs (requests to be dialled) succeed, but no connection from the peer
     * comes. */
    uint64_t connect_back_ns;
    uint64_t shortage_ns; /* since when this host lacks resources */
    int shortage_errno;   /* errno of the latest shortage */
    uint32_t now_gen;     /* of the refusal that ends the attempt, or 0 */
    size_t have;          /* bytes of [in] that have arrived */
    union {
        struct wf_net_greeting greeting;
        struct wf_net_challenge challenge;
        struct wf_net_refusal refusal;
    } in;
    struct wf_net_hello hello;
    /* Allocated together with the dial, since giving the dial up must not fail. */
    struct wf_dial_result *result;
};

/* The ways in which an attempt can end without a connection to use. */
enum wf_attempt_end {
    WF_ATTEMPT_UNREACHED, /* no TCP connection */
    /* No TCP connection, because this host has no route. That says nothing about the peer. */
    WF_ATTEMPT_NO_ROUTE,
    /* The peer's kernel refused, the answer was GONE, or the answer had no valid proof. */
    WF_ATTEMPT_REFUSED,
    WF_ATTEMPT_CLOSED,       /* connected, but closed without an answer */
    WF_ATTEMPT_SLOW,         /* connected, but the answer was BUSY or late */
    WF_ATTEMPT_CONNECT_BACK, /* authenticated: the peer has to dial this side */
    /* Not made: this host lacks a local port, a descriptor, memory or permission. */
    WF_ATTEMPT_SHORTAGE
};

/* Called when the current attempt has ended as [end] says. If a clock has run for long enough,
 * gives the dial up with EPEER or EUNREACH. Otherwise pauses until the next attempt.
 *   why    the reason for WF_ATTEMPT_REFUSED: a literal for the log */
UNDER_LOCK void wf_mgr_attempt_end(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial,
                                   enum wf_attempt_end end, const char *why);
/* Called when the current attempt has ended as WF_ATTEMPT_SHORTAGE; errno [err] tells what this
 * host lacks. Logs the shortage once, and again when [err] changes. */
UNDER_LOCK void wf_mgr_attempt_shortage(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, int err);
/* Called when the current attempt has ended because socket(2), connect(2) or epoll_ctl(2) failed
 * with errno [err]. [err] selects the value of enum wf_attempt_end with which the attempt ends. */
UNDER_LOCK void wf_mgr_attempt_errno(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, int err);

/* End the dial, and deliver the event [given_up]. The lock is released during the event. [why] is a
 * literal for the log. */
UNDER_LOCK void wf_mgr_dial_give_up(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial,
                                    enum weft_status status, const char *why);

#endif
