/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection manager accepts connections for the endpoints of this process, and dials the
 * endpoints of other processes. Each context has one manager, with one thread. The thread sleeps in
 * epoll_wait; it listens, dials, and runs both sides of the handshake. The manager hands a
 * connected socket over to an endpoint once the other side has proved that it has the job's key and
 * acts for the endpoint that it names. The only frame that the manager sends is BYE, which reports
 * to the peer that this side gives the connection up (wf_conn_mgr_turn_away).
 *
 *   manager.c    the thread, events, opening and closing
 *   mgr_fork.c   what a fork does to the manager
 *   linger.c     sockets that are about to be closed
 *   accept.c     pending connections: accepting, limits, the accepting side of the handshake
 *   dial.c       dials: attempts, the dialling side of the handshake
 *   dial_end.c   how attempts end; when the next attempt is made, and when the dial is given up
 *   hello.c      makes and parses the handshake's messages
 *   auth.c       the job's key, MACs, the keys of a connection, AEAD records
 *   ifaddr.c     which interfaces and addresses this process listens on
 *   socket.c     listening, accepting, connecting; socket options
 *   ipaddr.c     internet addresses as 16 bytes
 *
 * A pending connection is one that was accepted and is not yet authenticated. Each pending
 * connection has WEFT_CONNECT_TIMEOUT to authenticate; after that the manager refuses the
 * connection as BUSY. Once the manager has sent CHALLENGE, the manager refuses by closing the
 * socket, without REFUSAL. By then the peer may have authenticated this side, and would parse
 * REFUSAL as a frame.
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
 * A dial is a series of attempts to connect to one endpoint. A dial ends when an attempt succeeds,
 * or when the manager gives it up (wf_conn_mgr_dial).
 *
 *   state     waits for                  event                       next
 *   PAUSE     the next attempt's time    the key is not set          KEYLESS
 *                                        the key is set              connect(2); CONNECT
 *   KEYLESS   the key                    the key is set              PAUSE, which ends at once
 *   CONNECT   the TCP connection,        connected                   HELLO is sent; ANSWER
 *             2 s at most                failed                      PAUSE
 *   ANSWER    CHALLENGE or REFUSAL,      valid, and a connect-back   PROOF is sent; closed; PAUSE
 *             WEFT_PEER_TIMEOUT at most  valid CHALLENGE             PROOF is sent; handed over
 *                                        anything else               closed; PAUSE
 *
 * Bounds. There are at most WF_NET_PENDING_MAX pending connections. If another connection comes,
 * the manager evicts the oldest pending connection whose hello has not named an endpoint of this
 * process. (A sender can name an endpoint only if it knows the process's token.) If all have named
 * an endpoint, the manager evicts the oldest pending connection, once it is half a second old. At
 * most 16 * WF_NET_PENDING_MAX connections that fail to authenticate are accepted per second;
 * further connections wait in the kernel's queue. A pending connection allocates nothing but its
 * struct. An endpoint that is not polled keeps a bounded number of connections (net.h); the manager
 * refuses further ones as BUSY.
 *
 * Fork. A forked child closes its copies of the manager's sockets. If the child kept the copies,
 * the peers would not notice the parent's death. fork_begin runs while the manager's lock is held.
 * So a thread that holds a lock which fork_begin takes must not call the manager: the thread could
 * deadlock with a fork. The exceptions are wf_conn_mgr_passed and wf_conn_mgr_contact, which take
 * no lock. */
#ifndef WF_TRANSPORT_NET_CONNECT_MANAGER_H
#define WF_TRANSPORT_NET_CONNECT_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "transport/net/proto.h"

#define WF_NET_PENDING_MAX 64

struct wf_conn_mgr;
struct wf_aead;

/* An authenticated connection. The owner closes [fd], and frees the struct by wf_net_conn_free. */
struct wf_net_conn {
    struct wf_list item;
    /* Nonblocking and close-on-exec. wf_socket_tune has set TCP_NODELAY, keepalive, and a
     * TCP_USER_TIMEOUT of two fifths of WEFT_PEER_TIMEOUT. */
    int fd;
    bool dialled; /* this side dialled */
    bool encrypted;
    uint16_t lane;
    uint32_t gen;              /* as in the hello */
    uint64_t dial;             /* the number of the dial; 0 if accepted */
    struct wf_address peer;    /* the other end */
    struct wf_contact contact; /* where to dial the other end */
    /* Valid if [encrypted] is set. No other connection has these keys. */
    uint8_t key_out[WF_NET_KEY], key_in[WF_NET_KEY];
};

/* A channel to connect. */
struct wf_dial {
    struct wf_address from, to;
    struct wf_contact from_contact, to_contact;
    uint16_t lane;
    uint32_t gen;
    uint32_t delay_ms; /* before the first attempt */
    /* For how long all attempts may fail to get a TCP connection (wf_conn_mgr_dial). 0 stands for
     * half of WEFT_PEER_TIMEOUT. */
    uint32_t patience_ms;
    /* GONE with the generation that has the number now ends the dial at once. */
    bool follows;
};

/* How a dial that was given up ended. */
struct wf_dial_result {
    struct wf_list item; /* for use by the owner */
    uint64_t dial;
    struct wf_address to;
    enum weft_status status;
    /* Of struct wf_net_refusal, if the last attempt ended by one; not authenticated. */
    uint32_t now_gen;
    bool at_once;    /* it ended the dial, which follows */
    const char *why; /* a literal for the log */
};

enum wf_net_host {
    WF_NET_HOST_NONE, /* there is no such endpoint */
    WF_NET_HOST_OPEN,
    /* Too many connections wait for the endpoint's owner to poll. The peer has to try again. */
    WF_NET_HOST_FULL,
};

/* Functions of the manager's owner that the manager calls. The manager's thread calls the first
 * three without holding the manager's lock. */
struct wf_conn_mgr_events {
    /* Is endpoint [ep] of generation [ep_gen] open, and does it accept one more connection? If
     * there is none, *now_gen becomes the generation of the endpoint that has the number, if one
     * has. */
    enum wf_net_host (*has)(void *owner, uint16_t ep, uint32_t ep_gen, uint32_t *now_gen);
    /* [conn] is a new connection of endpoint [ep] of generation [ep_gen]. Returns true if the owner
     * has taken over [conn]. Returns false if there is no such endpoint; then the manager closes
     * and frees [conn]. */
    bool (*connected)(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_net_conn *conn);
    /* A dial by endpoint [ep] of generation [ep_gen] was given up. The owner takes over [result],
     * and frees it. */
    void (*given_up)(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_dial_result *result);
    /* The forking thread calls fork_begin before a fork of this process and fork_end after it, with
     * the manager's lock held. Between the two calls the owner's list of sockets must not change.
     * If [child] is true, fork_end runs in the child and closes all sockets of the list. It uses
     * close(2) only, since shutdown and epoll_ctl would affect the parent. */
    void (*fork_begin)(void *owner);
    void (*fork_end)(void *owner, bool child);
};

struct wf_conn_mgr_params {
    const struct wf_conn_mgr_events *events;
    void *owner;
    const struct wf_process_id *self;
    /* As in struct wf_tctx_params. */
    void (*identify)(void *arg, const struct wf_contact *contact, const int *fds,
                     struct wf_process_id *self);
    void *identify_arg;
    const int *inherited;
    unsigned ninherited;
};

/* Listen, and start the thread. The manager listens on the interfaces that WEFT_TCP_INTERFACES
 * names. If that variable is not set, it listens on interfaces by which other hosts can reach this
 * host.
 * Returns OK | EUNREACH (no usable interface; logged) | EINVAL (WEFT_TCP_INTERFACES names no
 * interface that exists; logged) | ESYSTEM | ENOMEM */
enum weft_status wf_conn_mgr_open(const struct wf_conn_mgr_params *params,
                                  struct wf_conn_mgr **out);

/* Stop the thread. Dials in progress end without an event. The thread closes a lingering socket
 * (wf_conn_mgr_linger) as soon as the peer's kernel has acknowledged the socket's data. If the
 * peer's kernel does not acknowledge, the thread closes the socket when WEFT_PEER_TIMEOUT has
 * passed since wf_conn_mgr_linger, or [within_ms] since this call, whichever comes first. A value
 * of 0 for [within_ms] sets no limit. */
void wf_conn_mgr_close(struct wf_conn_mgr *mgr, uint32_t within_ms);

/* The owner's [connected] calls this when the new socket is in the list that fork_end closes. The
 * caller holds the lock that fork_begin takes. Before this call the manager closes the socket in a
 * forked child; afterwards fork_end does. */
void wf_conn_mgr_passed(struct wf_conn_mgr *mgr);

/* Wipe the keys in [conn], and free it. The descriptor stays open. */
void wf_net_conn_free(struct wf_net_conn *conn);

/* Returns where other processes dial this process. Constant. */
const struct wf_contact *wf_conn_mgr_contact(const struct wf_conn_mgr *mgr);

/* Set the job's key, once. Any thread may call this. Returns OK | EBUSY (a key was set before) */
enum weft_status wf_conn_mgr_set_key(struct wf_conn_mgr *mgr, const uint8_t key[WF_NET_KEY]);

/* Start to dial for a channel, or find the dial for the same channel that is in progress. The dial
 * ends with the event [connected], whose connection has this dial's number, or with [given_up]. Any
 * thread may call this.
 *
 * The side with the greater address (64 bytes, compared as bytes) makes the connections. A dial by
 * the other side is a connect-back, a request to be dialled. A connect-back authenticates itself
 * and is closed. Then the peer's manager dials this process, as if the peer's endpoint had asked
 * for a connection. The connect-back is repeated until this connection comes, and then it ends.
 *
 * Attempts try the contact's addresses in turn. The pause between two rounds is 5, 10, 20, ... ms,
 * at most 500 ms. When a dial is given up:
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
 *   the peer refused the channel's first connection     at once                  EVERSION, EUNREACH
 *     with VERSION or FLAGS (a later one: as GONE)
 *   the dial follows, and GONE has a generation         at once                  EPEER
 *   the contact has no address that can be dialled      at once                  EUNREACH
 *
 * A lack of local resources says nothing about the peer. The lack is logged once, and the times of
 * the table's first four rows start afresh after it. While the lack lasts, the manager refuses the
 * peer's connect-backs as BUSY, so that the peer does not take this process for dead. If a peer's
 * kernel accepts a connection but the peer's process does not answer, the process is slow, not
 * dead. The attempt waits for WEFT_PEER_TIMEOUT, and then the dial makes another attempt.
 *
 * Returns the dial's number (1 or more), or 0 if there is no memory. */
uint64_t wf_conn_mgr_dial(struct wf_conn_mgr *mgr, const struct wf_dial *want);

/* End a dial. If an event of this dial is being delivered now, the event still comes. Any thread
 * may call this. */
void wf_conn_mgr_cancel(struct wf_conn_mgr *mgr, uint64_t number);

/* End all dials and pending connections of an endpoint that closes. Before this call, [has] must
 * already return NONE for the endpoint. When this function returns, no event for the endpoint is
 * being delivered, and none will come. Any thread except the manager's may call this. */
void wf_conn_mgr_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* Take over a socket to which all bytes were written. The manager shuts down the sending direction,
 * and discards what it receives until the peer closes, for at most WEFT_PEER_TIMEOUT. Then it
 * closes the socket. Any thread may call this. */
void wf_conn_mgr_linger(struct wf_conn_mgr *mgr, int fd);

/* Take over the socket of an authenticated connection that this side gives up. The manager sends
 * BYE to the peer, and then acts like wf_conn_mgr_linger. Never blocks: BYE is lost if the send
 * buffer is full. Any thread may call this.
 *   fd      the socket; the last frame on it was sent whole, and so was the last AEAD record of an
 *           encrypted connection
 *   aead    the state that encrypts this side's next record, used only during this call; NULL if
 *           the connection is not encrypted */
void wf_conn_mgr_turn_away(struct wf_conn_mgr *mgr, int fd, struct wf_aead *aead);

/* Like wf_conn_mgr_turn_away, for a connection that the manager handed over and on which nothing
 * was sent yet. Takes over [conn], and frees it. */
void wf_conn_mgr_turn_away_conn(struct wf_conn_mgr *mgr, struct wf_net_conn *conn);

/* Shut a socket down, and close it. Does nothing if [fd] is -1. If a forked child holds a copy of
 * the socket, close(2) alone would not end the connection; shutdown(2) does. */
void wf_conn_close_fd(int fd);

#endif
