/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection manager: who comes in and who is called. One thread per context, asleep in
 * epoll_wait, listens, dials, and authenticates both ways; what it hands over is a
 * connected socket whose other end has proved that it knows the job's key and
 * which endpoint it is. It never touches frames.
 *
 *   auth.c      the key, MACs, the keys of a stream, sealing and opening of records
 *   ifaddr.c       which interfaces and addresses: listening sockets, the contact
 *   hello.c     parsing and making of the handshake's messages
 *   manager.c      the thread, lingering, opening and closing
 *   accept.c  who comes: accepting, limits, deadlines
 *   dial.c      who is called: attempts, when it is given up
 *
 * Bounds. Of connections that have not proved who they are there are at most
 * WF_NET_PENDING_MAX; one more evicts the oldest, and of those whose hello named an endpoint
 * of this process (that takes knowing its token) only if there are no others, and after half a
 * second. Each has WEFT_CONNECT_TIMEOUT for its handshake. Of those who do not prove themselves
 * 16 * WF_NET_PENDING_MAX are accepted per second; the others wait in the kernel's queue.
 * Nothing is allocated for one but its struct. An endpoint whose owner does not poll keeps a
 * bounded number of connections (tcp.h); who comes then is told BUSY. While no key is set, a hello
 * waits for it within the same limits, and calls are not begun.
 *
 * Fork. A child's copies of the connection manager's sockets are closed in it, for they would keep
 * the other ends from learning of the parent's death. A fork holds the connection manager's lock
 * while it runs fork_begin: a lock that this takes must not be held by who calls a door. */
#ifndef WF_TRANSPORT_NET_CONNECT_MANAGER_H
#define WF_TRANSPORT_NET_CONNECT_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "transport/net/proto.h"

#define WF_NET_PENDING_MAX 64

struct wf_conn_mgr;

/* An authenticated connection. Freed by whoever has it (wf_net_conn_free); its fd is
 * closed by them, too. */
struct wf_net_conn {
    struct wf_list item;
    int fd;       /* nonblocking, close-on-exec, TCP_NODELAY, keepalive and
                   * TCP_USER_TIMEOUT at two fifths of WEFT_PEER_TIMEOUT */
    bool dialled; /* by this side */
    bool encrypted;
    uint16_t lane;
    uint32_t gen;                                    /* as in the hello */
    uint64_t dial;                                   /* dialled: the call's number */
    struct wf_address peer;                          /* the other end */
    struct wf_contact contact;                       /* how to call it */
    uint8_t key_out[WF_NET_KEY], key_in[WF_NET_KEY]; /* encrypted: of this connection */
};

/* A channel's other end to be called until it answers or is given up. */
struct wf_dial {
    struct wf_address from, to;
    struct wf_contact from_contact, to_contact;
    uint16_t lane;
    uint32_t gen;
    uint32_t delay_ms;    /* before the first attempt */
    uint32_t patience_ms; /* as given up below; 0: half of WEFT_PEER_TIMEOUT */
};

/* How a call that was given up ended. */
struct wf_dial_result {
    struct wf_list item; /* for who has it */
    uint64_t dial;
    struct wf_address to;
    enum weft_status status;
    const char *why; /* a literal for the log */
};

enum wf_net_host {
    WF_NET_HOST_NONE, /* there is no such endpoint */
    WF_NET_HOST_OPEN,
    WF_NET_HOST_FULL, /* it has not taken those that came before: the next one is to come again */
};

/* All run on the connection manager's thread, which holds no lock meanwhile. */
struct wf_conn_mgr_events {
    /* Is [ep] of [ep_gen] open, and does it take one more? */
    enum wf_net_host (*has)(void *owner, uint16_t ep, uint32_t ep_gen);
    /* [conn] is for that endpoint. Takes [conn] over and returns true, or returns
     * false: there is no such endpoint, and the connection manager hangs up. */
    bool (*connected)(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_net_conn *conn);
    /* A call of that endpoint was given up, as v->status says. Takes [v] over, to be freed. */
    void (*given_up)(void *owner, uint16_t ep, uint32_t ep_gen, struct wf_dial_result *v);
    /* Around a fork of this process, on the thread that forks: keep the list of sockets still;
     * [child]: close them all (plain close: shutdown and epoll_ctl would reach the parent). */
    void (*fork_begin)(void *owner);
    void (*fork_end)(void *owner, bool child);
};

struct wf_conn_mgr_params {
    const struct wf_conn_mgr_events *events;
    void *owner;
    const struct wf_process_id *self;
};

/* Listen on the interfaces that WEFT_TCP_INTERFACES names, else on those by which
 * others can come, and start the thread.
 * Returns OK | EUNREACH (no usable interface; logged) | EINVAL (WEFT_TCP_INTERFACES names
 * none there is; logged) | ESYSTEM | ENOMEM */
enum weft_status wf_conn_mgr_open(const struct wf_conn_mgr_params *params,
                                  struct wf_conn_mgr **out);

/* Stop the thread; calls end without a word, lingering sockets are closed once their
 * data are acknowledged, at most WEFT_PEER_TIMEOUT or [within_ms] later, if that is not 0. */
void wf_conn_mgr_close(struct wf_conn_mgr *mgr, uint32_t within_ms);

/* For [connected], which [owner]'s lock of fork_begin protects: the socket is in the list that
 * fork_end closes. Until then the connection manager closes it in a forked child. */
void wf_conn_mgr_passed(struct wf_conn_mgr *mgr);

/* Leaves nothing of its keys; the fd is the caller's. */
void wf_net_conn_free(struct wf_net_conn *conn);

/* How others call this process. Constant. */
const struct wf_contact *wf_conn_mgr_contact(const struct wf_conn_mgr *mgr);

/* The job's key; once. Any thread. OK | EINVAL (it has another one) */
enum weft_status wf_conn_mgr_set_key(struct wf_conn_mgr *mgr, const uint8_t key[WF_NET_KEY]);
bool wf_conn_mgr_has_key(const struct wf_conn_mgr *mgr);

/* Start a call, or find one to the same channel that is under way; its end is connected (with this
 * number) or given_up. Any thread.
 *
 * Connections are made by the side with the greater address (64 bytes, compared as bytes). A call
 * by the other side is a connect-back: once it has proved itself it is hung up, and the connection
 * manager at the other end calls back, as if its endpoint had; the connect-back ends when that
 * connection comes, and is repeated if it does not.
 *
 * Attempts go to the contact's addresses in turn, 5, 10, 20, ... at most 500 ms apart.
 * Given up, with EPEER, when
 *   - for its patience no attempt got as far as a TCP connection: cut off; or
 *   - for 500 ms every attempt was refused, by the kernel (ECONNREFUSED) or as GONE, or by one
 *     who could not prove itself: ended; or
 *   - for WEFT_PEER_TIMEOUT / 2 all that got as far as a connection were hung up on without
 *     a word: something else is there; or
 *   - for WEFT_PEER_TIMEOUT connect-backs were let in, but nobody called back.
 * What this side lacks (local ports, descriptors, memory, leave to connect) says nothing of the
 * other end: it is logged once, attempts go on, and none of the clocks above runs. After 12 times
 * WEFT_PEER_TIMEOUT of nothing else the call is given up with EUNREACH. Meanwhile who connect-backs
 * is told BUSY, so that it does not take this process for gone. A host whose kernel accepts but
 * whose process does not answer is slow, not dead: the attempt is given WEFT_PEER_TIMEOUT, then
 * made again. Refusals for version and flags are given up at once, with EVERSION and EUNREACH.
 * Returns the call's number, never 0; 0: no memory. */
uint64_t wf_conn_mgr_dial(struct wf_conn_mgr *mgr, const struct wf_dial *call);

/* End a call. Its event may come all the same, if it is under way. Any thread. */
void wf_conn_mgr_cancel(struct wf_conn_mgr *mgr, uint64_t call);

/* All the calls of an endpoint that closes. When this returns no event of that
 * endpoint is under way or will come: [has] must say no by then. Any thread but the connection
 * manager's. */
void wf_conn_mgr_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* Take over a socket on which everything was written: half-close it, read and
 * discard until the other end closes, at most WEFT_PEER_TIMEOUT; then close it. Any thread. */
void wf_conn_mgr_linger(struct wf_conn_mgr *mgr, int fd);

#endif
