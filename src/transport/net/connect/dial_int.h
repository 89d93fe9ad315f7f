/* SPDX-License-Identifier: BSD-3-Clause */
/* A dial, and how its attempts end. For dial.c and dial_end.c. All functions: under the manager's
 * lock, on its thread. */
#ifndef WF_TRANSPORT_NET_CONNECT_DIAL_INT_H
#define WF_TRANSPORT_NET_CONNECT_DIAL_INT_H

#include "transport/net/connect/manager_int.h"

enum wf_dial_state { WF_DIAL_PAUSE, WF_DIAL_KEYLESS, WF_DIAL_CONNECT, WF_DIAL_ANSWER };

/* The five times are the clocks that decide when the dial is given up (wf_conn_mgr_dial): since
 * when all attempts have ended so. 0: the clock does not run. */
struct wf_mgr_dial {
    struct wf_mgr_watch watch;
    enum wf_dial_state state;
    struct wf_dial want;
    uint64_t number;
    uint8_t ip[WF_CONTACT_IPS][WF_NET_IP]; /* those of the contact that this process can dial */
    unsigned ips;
    unsigned at; /* index of the current or next attempt's address */
    unsigned pause_ms;
    uint64_t patience_ns;
    uint64_t unconnected_ns; /* no TCP connection; always runs */
    uint64_t refused_ns;
    uint64_t closed_ns;       /* closed without an answer */
    uint64_t connect_back_ns; /* connect-backs were accepted */
    uint64_t shortage_ns;     /* this host lacked resources */
    int shortage_errno;       /* of the shortage that was logged last */
    size_t have;              /* bytes of [in] that have arrived */
    union {
        struct wf_net_greeting greeting;
        struct wf_net_challenge challenge;
        struct wf_net_refusal refusal;
    } in;
    struct wf_net_hello hello;
    struct wf_dial_result *result; /* allocated with the dial, since giving up must not fail */
};

/* How an attempt that did not make a connection ended. */
enum wf_attempt_end {
    WF_ATTEMPT_UNREACHED,    /* no TCP connection */
    WF_ATTEMPT_NO_ROUTE,     /* the same, as this host has no route: shows nothing about the peer */
    WF_ATTEMPT_REFUSED,      /* by the kernel, as GONE, or by a program without a valid proof */
    WF_ATTEMPT_CLOSED,       /* connected, and closed without an answer */
    WF_ATTEMPT_SLOW,         /* connected, and BUSY or no answer in time */
    WF_ATTEMPT_CONNECT_BACK, /* authenticated: the peer will dial back */
    WF_ATTEMPT_SHORTAGE      /* not made: this host lacks ports, descriptors, memory, permission */
};

/* The attempt has ended so. Give the dial up, with EPEER or EUNREACH, if a clock has run out; else
 * pause until the next attempt.
 *   why    for WF_ATTEMPT_REFUSED: a literal for the log */
UNDER_LOCK void wf_mgr_attempt_end(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial,
                                   enum wf_attempt_end end, const char *why);
/* The same as WF_ATTEMPT_SHORTAGE, because of errno [err]. Logged once, and again if another
 * resource is lacking. */
UNDER_LOCK void wf_mgr_attempt_shortage(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, int err);
/* The same after socket(2), connect(2) or epoll_ctl(2) failed with errno [err]. */
UNDER_LOCK void wf_mgr_attempt_errno(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial, int err);

/* Delivers the event; releases the lock meanwhile. [why]: a literal for the log. */
UNDER_LOCK void wf_mgr_dial_give_up(struct wf_conn_mgr *mgr, struct wf_mgr_dial *dial,
                                    enum weft_status status, const char *why);

#endif
