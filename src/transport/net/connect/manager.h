/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection manager accepts connections for the endpoints of this process, and dials those of
 * others. One thread per context, asleep in epoll_wait, listens, dials, and runs the handshake in
 * both roles. It hands over connected sockets whose other end has proved that it has the job's key,
 * and which endpoint it acts for. Of frames it sends one only, BYE (wf_conn_mgr_turn_away).
 *
 *   manager.c    the thread, events, opening and closing
 *   mgr_fork.c   what a fork does to the manager
 *   linger.c     sockets that are about to be closed
 *   accept.c     pending connections: accepting, limits, the accepting side of the handshake
 *   dial.c       dials: attempts, the dialling side of the handshake
 *   dial_end.c   how attempts end; when the next one comes, and when the dial is given up
 *   hello.c      makes and parses the handshake's messages
 *   auth.c       the job's key, MACs, the keys of a connection, AEAD records
 *   ifaddr.c     which interfaces and addresses this process listens on
 *   socket.c     listening, accepting, connecting; socket options
 *   ipaddr.c     internet addresses as 16 bytes
 *
 * A pending connection was accepted and is not yet authenticated. Each has WEFT_CONNECT_TIMEOUT to
 * prove itself; then it is refused as BUSY. After CHALLENGE a refusal is the end of the stream
 * alone: the peer may have authenticated this side by then, and would read REFUSAL as a frame.
 *
 *   state         waits for   event                                  next
 *   AWAIT_HELLO   HELLO       no such endpoint, other flags, full    REFUSAL is sent; closed
 *                             another version of the protocol        REFUSAL is sent; closed
 *                             no message of Weft's protocol          closed
 *                             the key is not set                     AWAIT_KEY
 *                             the key is set                         CHALLENGE is sent; AWAIT_PROOF
 *   AWAIT_KEY     the key     the key is set                         CHALLENGE is sent; AWAIT_PROOF
 *   AWAIT_PROOF   PROOF       valid, and a connect-back              closed; the peer is dialled
 *                             valid                                  handed over
 *                             invalid                                closed
 *
 * A dial makes attempts until one succeeds or the dial is given up (wf_conn_mgr_dial).
 *
 *   state     waits for                  event                       next
 *   PAUSE     the next attempt's time    the key is not set          KEYLESS
 *                                        the key is set              connect(2); CONNECT
 *   KEYLESS   the key                    the key is set              PAUSE, until now
 *   CONNECT   the TCP connection,        connected                   HELLO is sent; ANSWER
 *             2 s at most                failed                      PAUSE
 *   ANSWER    CHALLENGE or REFUSAL,      valid, and a connect-back   PROOF is sent; closed; PAUSE
 *             WEFT_PEER_TIMEOUT at most  valid CHALLENGE             PROOF is sent; handed over
 *                                        anything else               closed; PAUSE
 *
 * Bounds. There are at most WF_NET_PENDING_MAX pending connections. One more evicts the oldest of
 * those whose hello did not name an endpoint of this process; naming one takes knowing the
 * process's token. If all have named one, the oldest is evicted, after half a second at the
 * earliest. At most 16 * WF_NET_PENDING_MAX connections per second are accepted that fail to
 * authenticate; further ones wait in the kernel's queue. A pending connection allocates its struct
 * only. An endpoint that is not polled keeps a bounded number of connections (net.h); further ones
 * are refused as BUSY.
 *
 * Fork. A child's copies of the manager's sockets are closed in the child: they would keep peers
 * from noticing that the parent died. fork_begin runs with the manager's lock held. So a thread
 * that holds a lock which fork_begin takes must not call the manager; wf_conn_mgr_passed and
 * wf_conn_mgr_contact take no lock. */
#ifndef WF_TRANSPORT_NET_CONNECT_MANAGER_H
#define WF_TRANSPORT_NET_CONNECT_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "transport/net/proto.h"

#define WF_NET_PENDING_MAX 64

struct wf_conn_mgr;
struct wf_aead;

/* An authenticated connection. Its owner closes the fd and frees it (wf_net_conn_free). */
struct wf_net_conn {
    struct wf_list item;
    int fd;       /* nonblocking, close-on-exec, TCP_NODELAY, keepalive and
                   * TCP_USER_TIMEOUT at two fifths of WEFT_PEER_TIMEOUT */
    bool dialled; /* by this side */
    bool encrypted;
    uint16_t lane;
    uint32_t gen;                                    /* as in the hello */
    uint64_t dial;                                   /* the dial's number; 0: accepted */
    struct wf_address peer;                          /* the other end */
    struct wf_contact contact;                       /* where to dial it */
    uint8_t key_out[WF_NET_KEY], key_in[WF_NET_KEY]; /* if encrypted: of this connection alone */
};

/* A channel to connect. */
struct wf_dial {
    struct wf_address from, to;
    struct wf_contact from_contact, to_contact;
    uint16_t lane;
    uint32_t gen;
    uint32_t delay_ms;    /* before the first attempt */
    uint32_t patience_ms; /* see wf_conn_mgr_dial; 0: half of WEFT_PEER_TIMEOUT */
};

/* How a dial that was given up ended. */
struct wf_dial_result {
    struct wf_list item; /* for its owner */
    uint64_t dial;
    struct wf_address to;
    enum weft_status status;
    const char *why; /* a literal for the log */
};

enum wf_net_host {
    WF_NET_HOST_NONE, /* there is no such endpoint */
    WF_NET_HOST_OPEN,
    WF_NET_HOST_FULL, /* it has connections that it did not take yet; the peer has to try again */
};

/* The manager's thread calls these without its lock, but for the last two. */
struct wf_conn_mgr_events {
    /* Is [ep] of [ep_gen] open, and does it take one more connection? */
    enum wf_net_host (*has)(void *owner, uint16_t ep, uint32_t ep_gen);
    /* [conn] is for that endpoint. True: the owner has taken [conn] over. False: there is no such
     * endpoint, and the manager closes and frees [conn]. */
    bool (*connected)(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_net_conn *conn);
    /* A dial of that endpoint was given up. The owner takes [result] over, and frees it. */
    void (*given_up)(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_dial_result *result);
    /* Around a fork of this process, on the forking thread, under the manager's lock: keep the list
     * of sockets unchanged. [child]: close them all, with close(2) only, since shutdown and
     * epoll_ctl would affect the parent. */
    void (*fork_begin)(void *owner);
    void (*fork_end)(void *owner, bool child);
};

struct wf_conn_mgr_params {
    const struct wf_conn_mgr_events *events;
    void *owner;
    const struct wf_process_id *self;
};

/* Listen on the interfaces that WEFT_TCP_INTERFACES names, else on those by which other hosts can
 * reach this one, and start the thread.
 * Returns OK | EUNREACH (no usable interface; logged) | EINVAL (WEFT_TCP_INTERFACES names
 * none that exists; logged) | ESYSTEM | ENOMEM */
enum weft_status wf_conn_mgr_open(const struct wf_conn_mgr_params *params,
                                  struct wf_conn_mgr **out);

/* Stop the thread. Dials end without an event. Lingering sockets are closed once the peer's kernel
 * has acknowledged their data, at the latest after WEFT_PEER_TIMEOUT, or after [within_ms] if that
 * is not 0. */
void wf_conn_mgr_close(struct wf_conn_mgr *mgr, uint32_t within_ms);

/* For [connected] to call, with the lock held that fork_begin takes: the socket is in the list that
 * fork_end closes. Until this call the manager closes the socket in a forked child. */
void wf_conn_mgr_passed(struct wf_conn_mgr *mgr);

/* Wipes the keys, too. The fd stays open. */
void wf_net_conn_free(struct wf_net_conn *conn);

/* Where other processes dial this one. Constant. */
const struct wf_contact *wf_conn_mgr_contact(const struct wf_conn_mgr *mgr);

/* Set the job's key, once. Any thread. OK | EINVAL (another key was set before) */
enum weft_status wf_conn_mgr_set_key(struct wf_conn_mgr *mgr, const uint8_t key[WF_NET_KEY]);
bool wf_conn_mgr_has_key(const struct wf_conn_mgr *mgr);

/* Dial a channel, or find the dial of the same channel that is in progress. It ends with the event
 * [connected] (a connection with this number) or [given_up]. Any thread.
 *
 * The side with the greater address (64 bytes, compared as bytes) makes the connections. A dial by
 * the other side is a connect-back: it authenticates, is closed, and has the peer's manager dial
 * this process as if the peer's endpoint had asked for it. The connect-back ends when that
 * connection comes; until then it is repeated.
 *
 * Attempts try the contact's addresses in turn; the pause between two rounds is 5, 10, 20, ... at
 * most 500 ms. When a dial is given up:
 *
 *   condition                                           for how long             status
 *   no attempt got a TCP connection                     patience_ms              EPEER
 *   every attempt was refused: ECONNREFUSED, GONE,      500 ms                   EPEER
 *     or an answer without a valid proof
 *   every attempt that connected was closed without     WEFT_PEER_TIMEOUT / 2    EPEER
 *     an answer: another program has this address
 *   connect-backs were accepted, no connection came     WEFT_PEER_TIMEOUT        EPEER
 *   this host lacks local ports, descriptors, memory    12 * WEFT_PEER_TIMEOUT   EUNREACH
 *     or permission to connect
 *   VERSION or FLAGS refused the channel's first        at once                  EVERSION, EUNREACH
 *     connection (later ones: as GONE)
 *   the contact has no address that can be dialled      at once                  EUNREACH
 *
 * Lack of local resources shows nothing about the peer: it is logged once, and the other clocks do
 * not run. Meanwhile the manager refuses the peer's connect-backs as BUSY, so that the peer does
 * not take this process for dead. A host whose kernel accepts while its process does not answer is
 * slow, not dead: the attempt waits for WEFT_PEER_TIMEOUT, and is repeated.
 *
 * Returns the dial's number, never 0; 0: no memory. */
uint64_t wf_conn_mgr_dial(struct wf_conn_mgr *mgr, const struct wf_dial *want);

/* End a dial. Its event still comes if it is being delivered. Any thread. */
void wf_conn_mgr_cancel(struct wf_conn_mgr *mgr, uint64_t number);

/* End all dials and pending connections of an endpoint that closes. When this returns, no event for
 * that endpoint is being delivered or will come: [has] must say NONE before the call. Any thread
 * but the manager's. */
void wf_conn_mgr_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* Take over a socket to which everything was written. The manager half-closes it, reads and
 * discards until the peer closes, at most for WEFT_PEER_TIMEOUT, and closes it. Any thread. */
void wf_conn_mgr_linger(struct wf_conn_mgr *mgr, int fd);

/* Take over the socket of an authenticated connection that this side gives up: send the peer BYE,
 * and linger. Never blocks; BYE is lost if the send buffer is full.
 *   fd      its stream ends with a whole frame, and a whole record
 *   aead    of the outgoing direction, lent for this call; NULL: the connection is not encrypted
 * Any thread. */
void wf_conn_mgr_turn_away(struct wf_conn_mgr *mgr, int fd, struct wf_aead *aead);

/* The same for a connection that was handed over and by which nothing was sent yet. Takes [conn]
 * over, and frees it. */
void wf_conn_mgr_turn_away_conn(struct wf_conn_mgr *mgr, struct wf_net_conn *conn);

/* Shut a socket down and close it; -1: does nothing. A forked child may hold a copy of the socket,
 * so that close(2) alone would neither end the connection nor remove it from an epoll set. */
void wf_conn_close_fd(int fd);

#endif
