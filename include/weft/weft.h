/* SPDX-License-Identifier: BSD-3-Clause */
/* Weft: active messages and one-sided put and get between processes.
 *
 * Objects, and which threads may use them:
 *   weft_ctx     a library instance; any thread
 *   weft_ep      an endpoint: the object by which one thread sends and receives; its owner only
 *   weft_peer    a remote endpoint as one local endpoint sees it; the local endpoint's owner
 *   weft_mr      a memory region that other processes may access; any thread
 *   weft_remote  a peer's region, ready for access; the owner of the peer's local endpoint
 *   weft_op      an operation in flight; the caller provides the memory
 *   weft_deferred  a call to be made outside of handlers; the caller provides the memory
 *
 * An endpoint takes no lock. Any thread may own it, but only one thread at a time. Threads hand an
 * endpoint over by the usual means (a mutex, a join).
 *
 * Handlers and callbacks (weft_am_fn, weft_peer_down_fn, the done of an op) run inside the calls
 * that poll an endpoint, on the thread that polls. With WEFT_PROGRESS=thread they also run on a
 * thread of the context ("progress" below).
 *
 * No thread may be cancelled (pthread_cancel) inside a call of Weft: the call would leave locks
 * held and messages half received. Disable cancellation around the calls (pthread_setcancelstate).
 * To end a thread that waits in weft_ep_wait, cause an event on its endpoint, such as a message to
 * itself.
 *
 * Every call returns enum weft_status unless its comment says otherwise. 0 is success, a value
 * above 0 is a state, a value below 0 is a failure that changed nothing. Outputs are set on success
 * only. Handles are opaque, and are not NULL if the call succeeded. A program may not use a handle
 * after it has closed the handle. With WEFT_DEBUG=handles such a call returns WEFT_EINVAL and is
 * logged, if the handle is among the last 65,536 closed handles. Otherwise the behaviour is
 * undefined.
 *
 * A forked child owns nothing of its parent's context. In the child every call on that context or
 * its objects returns WEFT_EFORKED.
 *
 * The headers are C11 and C++11, for gcc and clang. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION_STRING "0.1.0"

#if defined(__GNUC__) || defined(__clang__)
#define WEFT_API __attribute__((visibility("default")))
#define WEFT_MUST_USE __attribute__((warn_unused_result))
#define WEFT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WEFT_INLINE static inline __attribute__((always_inline))
#else
#error "Weft's headers need gcc or clang (__atomic builtins)"
#endif

#ifdef __cplusplus
#define WEFT_CAST_(T, x) static_cast<T>(x)
#else
#define WEFT_CAST_(T, x) ((T)(x))
#endif

enum weft_status {
#define WEFT_STATUS(name, value, text) WEFT_##name = (value),
#include <weft/status.def>
#undef WEFT_STATUS
    WEFT_STATUS_MAX_ = 0x7fff /* not a status: fixes the enum's size */
};

/* Returns a short English sentence for [status]; static storage, never NULL. */
WEFT_API const char *weft_status_text(enum weft_status status);
/* Returns the name of [status], such as "WEFT_EPEER"; static storage, never NULL. */
WEFT_API const char *weft_status_name(enum weft_status status);
/* Returns the version of the library that is running, such as "0.1.0". It may differ from the
 * version of this header. */
WEFT_API const char *weft_version(void);

struct weft_ctx;
struct weft_ep;
struct weft_peer;
struct weft_mr;
struct weft_mr_domain; /* weft/mr.h */
struct weft_sender;    /* weft/msg.h */
struct sockaddr;       /* sys/socket.h */

/* ---- context ---- */

enum weft_ctx_flags {
    /* Use networks, although the key by which processes authenticate each other is set later
     * (weft_ctx_set_key). The context listens for peers on other nodes at once. Without this flag a
     * context uses networks only if WEFT_KEY_FILE is set. */
    WEFT_CTX_NETWORK = 1,
};

/* What the endpoints of a context share of a NIC. A program opens an endpoint for each thread; the
 * category decides what the threads share, which decides what they cost each other and the NIC.
 * weft-plan(1) computes both. On mlx5 NICs a doorbell page (UAR) has two registers (uUARs). Other
 * transports and NICs share nothing. */
enum weft_sharing {
    WEFT_SHARING_DEFAULT = 0, /* as the variable WEFT_SHARING says; without it AUTO */
    /* The cheapest category by which no endpoint loses speed, within WEFT_UARS. [endpoints] helps:
     * without it, this is TWO_X_DYNAMIC. */
    WEFT_SHARING_AUTO,
    /* Nothing: the context has one endpoint, so a program opens a context for each thread. */
    WEFT_SHARING_EVERYWHERE,
    /* The context. Each endpoint has a page, and an unused page beside it. */
    WEFT_SHARING_TWO_X_DYNAMIC,
    WEFT_SHARING_DYNAMIC, /* the context; each endpoint has a page */
    WEFT_SHARING_SHARED,  /* the context, and pages: two endpoints have one page */
    WEFT_SHARING_STATIC,  /* the context, pages and registers, with locks */
    WEFT_SHARING_THREADS, /* all: the context has one endpoint, with a lock, for all threads */
    /* As DYNAMIC, with a further context of the NIC for every 8 endpoints. A context of Weft can
     * have at most 4 contexts of NICs, and registers each region with all of them. */
    WEFT_SHARING_SPLIT,
};

/* What serves the peers of a context's endpoints while the program does not poll. */
enum weft_progress {
    WEFT_PROGRESS_DEFAULT = 0, /* as the variable WEFT_PROGRESS says */
    WEFT_PROGRESS_POLL,        /* nothing: the program polls */
    /* A thread of the context, which also runs handlers. Every endpoint is a locked one. */
    WEFT_PROGRESS_THREAD,
};

/* Several libraries of one process may open contexts, and each wants its own settings: progress,
 * am_max and msg_eager decide for one context, where the variables decide for all that leave them
 * 0. WEFT_AM_MAX_LEAST <= am_max <= WEFT_AM_MAX_MOST; peers may have other settings. */
#define WEFT_AM_MAX_LEAST 512
#define WEFT_AM_MAX_MOST 32704
#define WEFT_MSG_EAGER_MOST 524288

/* Reserved space must be zero. WEFT_CTX_PARAMS_INIT sets [version]. A version of 0 gives EINVAL:
 * the program omitted the initialiser. A version later than the library's gives EVERSION. All
 * parameter structures follow these rules. */
struct weft_ctx_params {
    uint32_t version;
    uint32_t flags;                  /* enum weft_ctx_flags */
    const struct weft_mr_domain *mr; /* mode of the context's regions (weft/mr.h); NULL: no mode
                                      * bits */
    uint32_t sharing;                /* enum weft_sharing */
    uint32_t endpoints;              /* how many endpoints the program will open; 0: not known */
    uint32_t progress;               /* enum weft_progress */
    uint32_t am_max;    /* longest payload of an active message that the endpoints send, in bytes;
                         * rounded up to a multiple of 64; 0: WEFT_AM_MAX */
    uint32_t msg_eager; /* tagged messages up to this length in bytes are copied on their way, as
                         * the variable WEFT_MSG_EAGER says; 0: as the variable says */
    uint32_t reserved0; /* 0 */
    uint64_t reserved[10];
};
#define WEFT_CTX_PARAMS_INIT                                                                       \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL, 0, 0, 0, 0, 0, 0,                \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Open a library instance. The call reads the WEFT_ variables, opens the transports and starts
 * threads. The service thread always starts. It sleeps unless a peer connects, asks for memory or
 * dies, and it never handles messages or data. RDMA and TCP have one thread each if they are used.
 * Names have one, which starts when the first endpoint with a name opens, or with the first look-up
 * ("names"). With WEFT_PROGRESS=thread there is one more, which polls endpoints.
 *   params  NULL for defaults; read during the call
 *   out     set on success; close it with weft_ctx_close
 * Returns  OK | EINVAL (bad params, variable or key file) | EVERSION | ESYSTEM | ENOMEM
 *          | EFORKED (params name an event queue that the parent process opened)
 * Blocks   no, but with WEFT_NODE=1 and a WEFT_KEY_FILE until the node's service answers, at most
 *          WEFT_CONNECT_TIMEOUT. Several contexts per process are allowed. */
WEFT_API WEFT_MUST_USE enum weft_status weft_ctx_open(const struct weft_ctx_params *params,
                                                      struct weft_ctx **out);

#define WEFT_KEY_SIZE 32
#define WEFT_SECRET_MIN 16

/* Set the secret of [ctx], with which processes on different nodes authenticate each other. The
 * secret is random bytes, equal in all processes that may communicate and known to nobody else.
 * Connections over a network wait until the secret is set, and the time limit WEFT_PEER_TIMEOUT
 * does not run meanwhile. The secret can be set once; a job sets the secret of its own context. Any
 * thread. With WEFT_NODE=1, set it before endpoints and regions are opened: an endpoint that was
 * opened before does not use the node's service, and the service's NIC does not access a region
 * that was, to which puts and gets go by messages.
 *   key  [len] bytes, WEFT_SECRET_MIN or more; not kept. WEFT_KEY_SIZE bytes are the key itself, as
 *        those of a WEFT_KEY_FILE. From a secret of any other length the key is derived (BLAKE2b).
 *        That makes no secret stronger: its bytes have to be random
 * Returns  OK (also if the context uses no network) | EBUSY (already set) | EINVAL (also: shorter
 *          than WEFT_SECRET_MIN) | EFORKED
 * Blocks   no, but with WEFT_NODE=1 as weft_ctx_open does with a key file. */
WEFT_API WEFT_MUST_USE enum weft_status weft_ctx_set_key(struct weft_ctx *ctx, const void *key,
                                                         size_t len);

/* Close [ctx] and stop its threads. In other processes the peers for its endpoints get the status
 * WEFT_ECLOSED.
 * Blocks   over a network until the kernels of other hosts have the last bytes that endpoints of
 *          [ctx] sent, at most WEFT_PEER_TIMEOUT (10 s). Otherwise the call does not block.
 * Returns  OK | EBUSY (an endpoint or region is still open, or a key is still mapped; nothing
 *          changed) | EINVAL (NULL, or a job owns [ctx]) | EFORKED */
WEFT_API enum weft_status weft_ctx_close(struct weft_ctx *ctx);

/* ---- endpoint ---- */

/* Called while the endpoint is polled, at most once per peer, when [peer] can no longer be reached.
 * For a peer that was opened by a name: once for each endpoint that it has led to, and each time a
 * look-up has failed ("names").
 * [why] is the reason:
 *   EPEER     the peer died. Over a network also: the peer could not be reached for
 *             WEFT_PEER_TIMEOUT, or has another key
 *   ECLOSED   the peer closed its endpoint or context
 *   EPROTO    the peer broke the protocol, so this process dropped the connection
 *   ELIMIT, ENOMEM  one of the two processes lacks descriptors or memory for the connection. Or too
 *                   many connections wait for an endpoint that does not poll. The log names the
 *                   limit
 *   EUNREACH  over a network: only one of the two sides encrypts. Or for 12 times WEFT_PEER_TIMEOUT
 *             this side had no local port, descriptor, memory or permission to connect. The log
 *             says what to change
 *   EVERSION  over a network: the peer has another version of Weft's protocol
 * WEFT_LOG=info logs the details. The callback may not send. It may record the loss and call
 * weft_peer_arg. A request to [peer] that has no reply by then never gets a reply. */
typedef void (*weft_peer_down_fn)(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                                  void *arg);

enum weft_ep_flags {
    /* Several threads may use the endpoint at a time. A mutex admits one thread at a time into the
     * calls; weft_ep_wait releases the mutex while it waits. Inlined put, get and atomics take no
     * mutex. Without this flag an endpoint belongs to one thread and takes no lock.
     * WEFT_PROGRESS=thread sets the flag for all endpoints. */
    WEFT_EP_LOCKED = 1,
    /* Counters (weft_mr_bind_counter, weft_ep_bind_counter) may count the accesses that peers make
     * through this endpoint. */
    WEFT_EP_RMA_EVENT = 2,
    /* As WEFT_EP_LOCKED, but no call waits for the mutex: see "no waiting" below. */
    WEFT_EP_NOWAIT = 4,
};

/* No waiting. A thread that holds a lock of the program's, and calls Weft on an endpoint of
 * WEFT_EP_LOCKED, waits for the thread that is inside a poll. If a handler in that poll wants the
 * lock, both threads wait for ever. If another thread is inside a call on an endpoint of
 * WEFT_EP_NOWAIT, calls return instead:
 *   weft_ep_poll                        0: the other thread polls, or is inside for a short time
 *   weft_ep_wait, weft_op_wait,         they go on, and return when [timeout_ns] has passed.
 *   weft_word_wait, weft_words_wait,    weft_op_wait may return PENDING for an op whose done may
 *   weft_op_finish, weft_counter_wait   still run in the other thread
 *   weft_ep_close, weft_peer_close,     AGAIN, nothing changed: call again
 *   weft_remote_close, weft_frag_free
 *   all other calls that return a       AGAIN, nothing was begun: call again. Also those that never
 *   status and use the endpoint         return AGAIN at other endpoints, such as weft_peer_open,
 *                                       weft_am_register, and weft_am_reply_later outside of
 *                                       handlers. From weft_msg_probe, weft_msg_claim,
 *                                       weft_peer_sent and weft_ep_arm AGAIN may mean this, too
 *   weft_sender_peer,                   NULL, as without such a peer
 *   weft_sender_peer_arg
 *   weft_ep_defer, weft_ep_address, weft_ep_name, weft_ep_fd, weft_peer_status, weft_am_max,
 *   weft_sender_arg, weft_sender_set_arg, and calls of a handler: they need no mutex, or their
 *   thread has it
 * No event follows such an AGAIN. A thread that holds a lock of the program's releases the lock
 * before it calls again: the other thread may wait for it. With WEFT_PROGRESS=thread the thread of
 * the context pauses for 50 us after a poll during which a call was refused.
 * The endpoint of a job cannot have the flag. */

#define WEFT_AM_FAILED_ARGS 8 /* the most arguments of a failed request that are reported */

/* The report of a request that this endpoint sent and that gets no reply. Valid until the callback
 * returns. */
struct weft_am_failure {
    struct weft_ep *ep;
    /* The receiver of the request. If the program opened several peers for the receiving endpoint,
     * this may be any of them. */
    struct weft_peer *peer;
    enum weft_status why; /* EHANDLER (the peer has no such handler) | ECANCELED (the peer called
                           * weft_am_drop) | for a long message: why the peer could not use its
                           * bytes, such as EKEY (their region was closed meanwhile) */
    uint8_t handler;      /* the handler to which the request was sent */
    uint8_t nargs;        /* number of [args], at most WEFT_AM_FAILED_ARGS */
    uint16_t reserved0;
    const uint32_t *args;
    void *arg; /* given at weft_ep_open */
};

/* Called while the endpoint is polled, once for each request with a reply_max > 0 that gets no
 * reply. weft_am_failure.why lists the reasons. (A peer that breaks the protocol may cause more
 * calls.) The callback may do what a handler may. Without this callback the first failure is
 * logged. If the peer is lost, only peer_down is called. */
typedef void (*weft_am_failed_fn)(const struct weft_am_failure *failure);

struct weft_am;

/* A row of weft_ep_params.handlers: what weft_am_register takes. */
struct weft_am_handler {
    uint32_t id; /* 0..239 */
    uint32_t reserved0;
    void (*fn)(const struct weft_am *am); /* weft_am_fn */
    void *arg;
};

struct weft_ep_params {
    uint32_t version;
    uint32_t flags;              /* enum weft_ep_flags */
    weft_peer_down_fn peer_down; /* may be NULL */
    void *arg;                   /* handed to peer_down */
    const void
        *auth_key; /* authorization key for regions (weft/mr.h); [auth_key_size] bytes, copied */
    size_t auth_key_size;        /* 0: use the authorization key of the context */
    weft_am_failed_fn am_failed; /* may be NULL; gets [arg] too */
    /* What the endpoint shares of an mlx5 NIC: 0 as the context's category says, 1 a doorbell page
     * of its own, 2 a page that it may share with one other endpoint. Without effect where the
     * category gives each endpoint a context, or all endpoints one. */
    uint32_t level;
    uint32_t reserved0;
    /* The endpoint's name: an IP address of this host, 0.0.0.0 (all IPv4 addresses) or :: (all IPv6
     * addresses), and a TCP port, 0: any ("names" below). [name_size] bytes, copied. NULL: the
     * endpoint has no name. */
    const struct sockaddr *name;
    size_t name_size;
    /* [handlers_count] handlers, each with an id of its own, copied. They are registered before a
     * message can arrive: a peer that knows the name may send before weft_ep_open has returned, and
     * the progress thread may run a handler before *out is set. Handlers use am->ep. NULL: none */
    const struct weft_am_handler *handlers;
    uint32_t handlers_count;
    uint32_t reserved1;
    uint64_t reserved[4];
};
#define WEFT_EP_PARAMS_INIT                                                                        \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL, NULL, NULL, 0, NULL, 0, 0, NULL, \
            0, NULL, 0, 0,                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Open an endpoint. The calling thread owns the endpoint until it hands the endpoint over. If the
 * NIC has no doorbell page left, or WEFT_UARS allows none, the endpoint shares more than its
 * category says, which is logged once.
 *   params  NULL for defaults; read during the call
 *   out     set on success; close it with weft_ep_close
 * Returns  OK | EINVAL | EVERSION | ENOMEM | ESYSTEM | EBUSY (another endpoint or program has
 *          params.name) | EUNREACH (params.name is no address of this host) | ELIMIT (65,535
 *          endpoints are open; or one is
 *          open, and the category of the context allows no other; or RDMA may lock no more
 *          memory; or the node's service takes no more of them) | EFORKED. ESYSTEM also if the
 *          node's service has ended, or does not answer for WEFT_CONNECT_TIMEOUT */
WEFT_API WEFT_MUST_USE enum weft_status
weft_ep_open(struct weft_ctx *ctx, const struct weft_ep_params *params, struct weft_ep **out);

#define WEFT_GROUP_MAX 256 /* the most endpoints of a group */

/* Open [count] endpoints as a group. They have one address, of which a peer opens one member
 * (weft_peer_open_member), and what any of them sends comes from the group: weft_ep_address,
 * weft_am_source and weft_sender_address give the address of the group, the messages of all members
 * have one sender, and a receive that names a peer of any member takes those of all. (No order is
 * promised between messages of different members.) They share what a receiver lets one sender send
 * before receives match it. In everything else the members are endpoints like others: each has its
 * owner, and is closed by weft_ep_close, in any order. A member that is closed leaves the others as
 * they are.
 *   params  as for weft_ep_open; a name is the group's, and is given up with the first member
 *   count   1..WEFT_GROUP_MAX
 *   out     [count] pointers, in the order of the members; set on success
 * Returns  as weft_ep_open | EINVAL (also [count]). On failure none is open. */
WEFT_API WEFT_MUST_USE enum weft_status weft_group_open(struct weft_ctx *ctx,
                                                        const struct weft_ep_params *params,
                                                        unsigned count, struct weft_ep **out);

/* Close [ep] and its connections. The caller has closed the weft_peer and weft_remote handles of
 * [ep], and received or dropped the messages that it has claimed. Receives end with WEFT_ECANCELED
 * before the call returns, also those to which a message is arriving; nobody uses their buffers any
 * more. The message's send then ends at its sender with WEFT_ECANCELED, or as if [ep] were lost.
 * Nothing more is delivered. A handler may not call this. Messages that [ep] has sent still arrive.
 * Through shared memory they stay readable for their receivers. Over a network this call waits
 * until the receivers have taken them. Deferred calls that are still queued end with ECANCELED
 * (weft_ep_defer).
 * Blocks   over a network until all peers have taken what was sent, at most WEFT_PEER_TIMEOUT (10
 *          s; the log says if something was lost). For peers that do not poll, until 200 ms after
 *          their kernels have received what was sent. Otherwise the call does not block.
 * Returns  OK | EINVAL (NULL, or a job owns [ep]) | EBUSY (peers or remotes are open, messages are
 *          claimed, detached requests have no reply yet, another thread runs a deferred call, or is
 *          inside weft_ep_defer; nothing changed) | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_ep_close(struct weft_ep *ep);

/* Locks that a message takes on its way to the NIC, and that its completion takes. */
enum weft_lock_flags {
    WEFT_LOCK_QP = 1,       /* of the queue pair */
    WEFT_LOCK_UUAR = 2,     /* of the doorbell register */
    WEFT_LOCK_CQ = 4,       /* of the completion queue */
    WEFT_LOCK_ENDPOINT = 8, /* Weft's own: the endpoint is WEFT_EP_LOCKED */
};

struct weft_ep_sharing_info {
    uint32_t category; /* enum weft_sharing; AUTO only if the context uses no NIC */
    /* What the endpoint shares with other threads: 1 nothing, 2 a doorbell page, 3 a doorbell
     * register, 4 its queue pairs. The most over its queue pairs; before it has any, what its
     * thread domain shares. Over shared memory and TCP 1, or 4 if it is WEFT_EP_LOCKED. */
    uint32_t level;
    uint32_t locks;       /* enum weft_lock_flags */
    uint32_t queue_pairs; /* how many the endpoint has */
    uint64_t reserved[6];
};

/* Find out what [ep] shares with other threads, and which locks its messages take. The answer
 * changes when endpoints connect. Only the owner of [ep].
 *   out  set on success
 * Returns  OK | EINVAL | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_sharing(struct weft_ep *ep,
                                                        struct weft_ep_sharing_info *out);

/* ---- names ----
 *
 * An endpoint may have a name: an IP address of its host and a TCP port, at which the context
 * listens (weft_ep_params.name). Other processes need know nothing else: they make address bytes of
 * the name by weft_name_address, and open a peer of these. The peer may be opened before an
 * endpoint has the name, and opening does not block.
 *
 * The first operation asks, over TCP, which endpoint is behind the name. An operation with an op
 * waits (PENDING) until the answer is there; others return AGAIN, as do receives and probes that
 * name the peer, and weft_remote_open of a raw key. The answer counts as an event. From then on the
 * peer is like one that was opened by the endpoint's address: within a node it uses shared memory,
 * and the right to connect depends on keys and users as ever. While no answer comes, the question
 * is repeated. After WEFT_CONNECT_TIMEOUT the operations that wait end with EUNREACH; if none
 * waits, the next operation returns EUNREACH. The one after that asks anew. The same happens if no
 * transport reaches the endpoint (EUNREACH, the log has the reason), or if its process has another
 * version (EVERSION).
 *
 * When the endpoint behind the name is lost, peer_down is called and all operations to it end, as
 * at any peer. The next operation asks anew, and finds an endpoint that has the name by then. It
 * gets nothing that was meant for the lost one. An operation may itself find the loss, and return
 * it. So peer_down may be called several times for such a peer, also with EUNREACH when no endpoint
 * was found, and weft_peer_status returns the reason until an operation asks anew. weft_peer_sent
 * waits for the answer, too. An endpoint that was lost once stays lost to this endpoint, also if it
 * was only stopped or cut off, and answers again: operations then end with the loss.
 *
 * Remotes that were opened by a key of 64 bits (weft_remote_open_key) stay open, and lead to the
 * region that has the key at the next endpoint. Raw keys are of one process: close their remotes
 * when it is lost; operations return the loss until then. Orders (weft_order) end with the loss.
 *
 * The answer is an address, and no secret of the job's. Any program that reaches the port gets it.
 * An answer is not authenticated: a program that takes the port of a name, or relays what comes
 * there, can lead a peer to another endpoint of the same job, never to one without the key. A name
 * belongs to one endpoint; the port is free again when weft_ep_close returns. A forked child
 * does not keep it. */

/* Make the bytes of a name, with which weft_peer_open opens a peer.
 *   name       struct sockaddr_in or sockaddr_in6 of [name_size] bytes: the IP address of one host,
 *              and a port
 *   buf, len   as for weft_ep_address; set to WEFT_ADDR_MAX
 * Returns  OK | EMSGSIZE (too small) | EINVAL (logged: another family; an address of zeroes, of
 *          several hosts or link-local; port 0). Any thread. */
WEFT_API WEFT_MUST_USE enum weft_status weft_name_address(const struct sockaddr *name,
                                                          size_t name_size, void *buf, size_t *len);

/* Copy the name of [ep], with the port that was chosen if it was opened with port 0.
 *   buf  gets a struct sockaddr_in or sockaddr_in6
 *   len  in: room in bytes; out: bytes used, also set when the room was too small
 * Returns  OK | EMSGSIZE (too small) | ENOTAVAIL ([ep] has no name) | EINVAL | EFORKED. Any thread.
 */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_name(struct weft_ep *ep, struct sockaddr *buf,
                                                     size_t *len);

#define WEFT_ADDR_MAX 64

/* Copy the address of [ep]. The program passes the address to other processes by any means.
 *   buf  at least *len bytes
 *   len  in: room in bytes; out: bytes used (WEFT_ADDR_MAX), also set when the room was too small
 * Returns  OK | EMSGSIZE (too small) | EINVAL | EFORKED. Any thread. */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_address(struct weft_ep *ep, void *buf, size_t *len);

/* ---- progress ----
 *
 * An endpoint makes progress while a thread polls it: in the calls below, in weft_op_wait, and in
 * the collective calls of a job. With WEFT_PROGRESS=thread a thread of the context also polls the
 * context's endpoints, from weft_ep_open on, whenever the program is in no call on the endpoint.
 * Then
 *  - every endpoint has the flag WEFT_EP_LOCKED;
 *  - handlers, peer_down and done also run on that thread, which takes no signals. The thread holds
 *    the endpoint's mutex, so one callback runs at a time for each endpoint. Data that callbacks
 *    share with the rest of the program need atomics or a lock of the program. No thread may hold
 *    such a lock while it calls Weft on that endpoint (deadlock), except with WEFT_EP_NOWAIT, or if
 *    only deferred functions take the lock (weft_ep_defer);
 *  - weft_ep_poll, weft_ep_wait and weft_ep_fd do not report an event that the thread handled. So
 *    wait with a limit, then look at the condition. weft_op_wait, weft_word_wait and the calls of a
 *    job do so themselves. If two threads of the program poll a locked endpoint, each of them also
 *    misses the events that the other thread handled;
 *  - register handlers before other processes get the endpoint's address. They know that of an
 *    endpoint with a name before weft_ep_open: give its handlers in weft_ep_params.handlers. */

/* Deliver what has arrived: run handlers, complete operations, report lost peers. If a call
 * returned AGAIN for lack of room, new room is an event, too. Then run deferred calls. Does a
 * bounded amount of work, and never blocks.
 * Returns  the number of events handled, 0 if there were none; or a negative weft_status: EINVAL |
 *          ECONTEXT (inside a handler or a deferred call) | EFORKED */
WEFT_API int weft_ep_poll(struct weft_ep *ep);

/* Poll until an event was handled or [timeout_ns] has passed. A negative [timeout_ns] means no
 * limit; then the call also returns when a peer is lost. An event that another thread handled does
 * not end the wait ("progress"). The call spins while cores are idle, yields when ranks outnumber
 * cores, and then sleeps.
 * Returns  as weft_ep_poll; 0 means that the time is over. */
WEFT_API int weft_ep_wait(struct weft_ep *ep, int64_t timeout_ns);

/* Poll [ep] until the 64-bit word at [word] is >= [at_least], unsigned. The word is 8-byte aligned,
 * in memory that a peer puts to. If [peer] is not NULL, the wait also ends when [peer] is
 * lost, as weft_peer_status reports it.
 * A put does not wake a sleeping thread. So after a bounded spin this call sleeps for at most 50 us
 * at a time. If ranks outnumber cores, that limit is multiplied by the number of ranks per core.
 * (weft_words_wait can sleep until a signal wakes it.)
 * Returns  OK | ETIMEDOUT | what weft_peer_status returns for [peer] | EINVAL | ECONTEXT | EFORKED
 * Order    acquire: after OK the caller sees what the peer put before it changed the word. */
WEFT_API WEFT_MUST_USE enum weft_status weft_word_wait(struct weft_ep *ep, const uint64_t *word,
                                                       uint64_t at_least, struct weft_peer *peer,
                                                       int64_t timeout_ns);

enum weft_word_test {
    WEFT_WORD_GE = 0, /* unsigned */
    WEFT_WORD_EQ = 1,
    WEFT_WORD_NE = 2,
};

/* A condition on a 64-bit word. [test] compares the word with [value], in the bits of [mask] only.
 */
struct weft_word {
    const uint64_t *word; /* 8-byte aligned, in memory that a peer puts to */
    uint64_t value;
    uint64_t mask;  /* 0: all bits */
    uint32_t test;  /* enum weft_word_test */
    uint32_t holds; /* output: 1 if the condition holds, else 0 */
};

/* Test [count] words once; any thread. A program that sleeps on weft_ep_fd calls weft_ep_arm, then
 * this function, and sleeps only if the condition does not hold. Peers must then signal with
 * WEFT_SIGNAL_WAKE.
 * Returns  the number of words whose condition holds | EINVAL (a word's address is bad, or a test
 *          unknown; no [holds] is set)
 * Order    acquire: for each word that holds, the caller sees what the peer put before it
 *          signalled. */
WEFT_API int weft_words_test(struct weft_word *words, unsigned count);

enum weft_words_flags {
    /* Wait until all conditions hold at the same time. Otherwise wait until one holds. */
    WEFT_WORDS_ALL = 1,
    /* All signals to these words are made with WEFT_SIGNAL_WAKE, so the call may sleep on the
     * endpoint's descriptor. The call sees a signal without WEFT_SIGNAL_WAKE up to 10 ms late. */
    WEFT_WORDS_WOKEN = 2,
};

/* Wait as weft_word_wait, for several words at once.
 *   words  [count] words, at least one. Their [holds] is also set on ETIMEDOUT and when a peer is
 *          lost
 *   flags  enum weft_words_flags
 * Returns  as weft_word_wait. EINVAL also for unknown flags, a count of 0, and what weft_words_test
 *          refuses */
WEFT_API WEFT_MUST_USE enum weft_status weft_words_wait(struct weft_ep *ep, struct weft_word *words,
                                                        unsigned count, unsigned flags,
                                                        struct weft_peer *peer, int64_t timeout_ns);

/* Returns a descriptor. After a successful weft_ep_arm, it becomes readable when [ep] may have
 * events. The descriptor belongs to [ep]: never read, write or close it.
 * Returns  a descriptor; a negative weft_status: EINVAL | EFORKED */
WEFT_API int weft_ep_fd(struct weft_ep *ep);

/* Prepare to sleep on the descriptor of weft_ep_fd: any later event makes the descriptor readable,
 * until the next weft_ep_poll. So does a later call that leaves an operation to polls, such as the
 * receive of a long message that was kept.
 * Returns  OK | AGAIN (events are there: poll instead of sleeping) | EINVAL | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_arm(struct weft_ep *ep);

/* ---- deferred calls ----
 *
 * In a handler most calls return ECONTEXT. A handler, a peer_down or a done that needs such a call
 * defers it: the function of a weft_deferred runs when the handlers of the poll have returned. */

/* A deferred call. The caller provides the memory, zeroes it before its first use, and sets fn.
 * Weft uses the memory from weft_ep_defer until it calls fn. */
struct weft_deferred {
    /* Called once for each weft_ep_defer that returned OK. It may free [item], or defer it again.
     * From just before the call on, other threads may defer the item again, too. If they do so at
     * another endpoint, whose functions run at the same time, fn must not use the item any more. */
    void (*fn)(struct weft_deferred *item);
    void *arg; /* for the caller; Weft never uses it */
    /* Both set before fn is called. */
    struct weft_ep *ep; /* the endpoint at which the item was deferred */
    int32_t status;     /* OK, or ECANCELED: the endpoint closes */
    uint32_t state_;    /* used by Weft; 0 while the item is not queued */
    struct weft_deferred *next_;
    uint64_t reserved[3];
};

/* Call item->fn at [ep] as soon as no handler runs: when the handlers of a poll have returned, and
 * before that poll returns. Which thread polls does not matter. Each function that ran counts as an
 * event, unless it deferred its own item again: a wait then backs off.
 *   item  must stay valid until item->fn is called
 * Returns  OK (item->fn will be called) | EBUSY ([item] is queued, here or at another endpoint) |
 *          EINVAL (also: fn is NULL, or [item] was not zeroed) | ECLOSED (from a function that was
 *          called with ECANCELED) | EFORKED. After a failure fn is not called for this call.
 * Callers  a handler, peer_down, am_failed, a done, a deferred function, and the program. At an
 *          endpoint of WEFT_EP_LOCKED or WEFT_EP_NOWAIT any thread, which need not wait for the
 *          mutex; otherwise the owner. A thread that sleeps at the endpoint (weft_ep_wait, or after
 *          weft_ep_arm) is woken.
 * May call a function may make every call but those that poll or wait at [ep]: weft_ep_poll,
 *          weft_ep_wait, weft_op_wait, weft_word_wait, weft_words_wait, weft_counter_wait, the
 *          collective calls of the endpoint's job, and weft_ep_close. These return ECONTEXT.
 *          (weft_op_finish too, if it would wait.) A call that returns AGAIN has to be made later:
 *          defer the item again.
 * Order    in the order of the calls of weft_ep_defer, one at a time at an endpoint. The functions
 *          run without the endpoint's mutex. So a function may take a lock that another thread
 *          holds while it calls Weft on this endpoint, and another thread may poll and run handlers
 *          meanwhile. If two threads poll, the functions run in one of the two polls,
 *          or in a later one.
 * Rounds   a poll runs what was queued when its handlers had returned. What these functions defer
 *          runs in the next poll, or, if another thread polled meanwhile, in up to three more
 *          rounds of this one. So a poll ends although a function defers itself again each time.
 *          weft_ep_arm returns AGAIN while something is queued.
 * Close    weft_ep_close calls the functions of the items that are still queued, with the status
 *          ECANCELED, in their order, when nothing can arrive any more. They may free memory, and
 *          ask for senders, as a handler may (weft/msg.h); calls on [ep] return ECONTEXT. These
 *          functions run with the endpoint's mutex.
 * Fork     a child never runs what its parent has deferred. It may reuse such an item after it has
 *          zeroed it.
 * Blocks   never. Allocates nothing. */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_defer(struct weft_ep *ep,
                                                      struct weft_deferred *item);

/* ---- peer ---- */

/* Make a peer from address bytes. Nothing is sent; the first use of the peer connects. Shared
 * memory reaches the endpoints of the same node, user, network namespace and PID namespace. TCP or
 * RDMA reach all other endpoints if both processes have a key (WEFT_KEY_FILE, weft_ctx_set_key).
 * The first use shows whether the keys are equal.
 *   addr  [len] bytes from weft_ep_address, or from weft_name_address ("names"); copied
 * Returns  OK | EINVAL (not an address) | EVERSION | EUNREACH (no transport reaches it; the log
 *          gives each transport's reason, and what to change) | ENOMEM | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_peer_open(struct weft_ep *ep, const void *addr,
                                                       size_t len, struct weft_peer **out);
/* The same for [member] of a group (weft_group_open), counted from 0. weft_peer_open opens the
 * first.
 * Returns  as weft_peer_open | EINVAL (also: the address has room for fewer members; of a name:
 *          [member] is not below WEFT_GROUP_MAX). If there is no such member, the peer is lost
 *          (ECLOSED) when it is used; by a name, its operations end with EUNREACH (or ECLOSED). */
WEFT_API WEFT_MUST_USE enum weft_status weft_peer_open_member(struct weft_ep *ep, const void *addr,
                                                              size_t len, unsigned member,
                                                              struct weft_peer **out);

/* Close [peer] and its connection. Over a network the connection stays until one of the two
 * endpoints closes, so that sent messages still arrive.
 * Operations by [peer] that are under way end with WEFT_ECANCELED before the call returns: sends,
 * puts, gets, atomics, long messages, flushes, openings of regions, and receives that copy an
 * offered message by [peer]. So does a receive that names [peer] and whose message is arriving, in
 * parts or from another member of its group, except if another handle of the same remote endpoint
 * or of its group is open; what still comes of the message is dropped. Afterwards nobody uses their
 * memory. A receive of a message in parts that names no peer goes on until the sender has sent
 * them. A put or atomic that ended so may have been done wholly, in part, or not at all, and its
 * range of the region may contain anything meanwhile. A message is received wholly, or its receive
 * ends with WEFT_ECANCELED, or the receiver never knows of it. To let operations complete, wait for
 * them, or for a flush, first.
 * If NICs move bytes of such an operation, the connection breaks and is made anew; then atomics
 * that other handles of the same endpoint have under way by NICs may end with WEFT_ELOST. Receives
 * that name [peer], and that no message has matched, complete with WEFT_ECLOSED, except if another
 * handle of the same remote endpoint is open.
 * Returns  OK | EBUSY (a remote of [peer] is open) | EINVAL (also: a job owns [peer]) | ECONTEXT |
 *          EFORKED
 * Waits    as weft_msg_cancel; if NICs are stopped, some milliseconds */
WEFT_API enum weft_status weft_peer_close(struct weft_peer *peer);

/* Returns OK, or the reason why [peer] is lost. This call returns the reason as soon as peer_down
 * was called with it, or, unless [peer] was opened by a name, another call has returned it. Before
 * the first message or access in either direction, Weft does not notice the loss of a peer across a
 * network. Returns EINVAL for NULL, and EFORKED in a forked child. */
WEFT_API enum weft_status weft_peer_status(const struct weft_peer *peer);

/* Find out whether the messages that were sent to [peer] have left this process, so that they
 * arrive although this process may not poll again. The call first passes as many messages to the
 * kernel or the NIC as they accept. Within a node messages leave at once (weft_am_request,
 * "Leaves"), and the call returns OK once the peer's process has accepted the connection. (A
 * thread of Weft's accepts connections, while its program need not poll.) If a connection breaks
 * later, messages that the peer has not acknowledged need polls again. The peer may take the
 * messages and close: the call returns OK if all of them had left before.
 * Returns  OK | AGAIN (poll, then call again: the connection is being made, or there is no room) |
 *          what weft_peer_status returns, also shortly before peer_down | EINVAL | ECONTEXT |
 *          EFORKED
 * Blocks   never. Runs no handlers. */
WEFT_API WEFT_MUST_USE enum weft_status weft_peer_sent(struct weft_peer *peer);

/* A pointer for the program's own use; NULL at first. Any thread. */
WEFT_API void weft_peer_set_arg(struct weft_peer *peer, void *arg);
WEFT_API void *weft_peer_arg(const struct weft_peer *peer);

/* ---- active messages ---- */

#define WEFT_AM_MAX_ARGS 16
#define WEFT_AM_READ_ONLY 48      /* bytes; see data in struct weft_am */
#define WEFT_AM_HANDLERS 256      /* ids 0..255 */
#define WEFT_AM_USER_HANDLERS 240 /* the application uses ids 0..239, Weft the rest */

/* A message, as its handler gets it. Valid until the handler returns. */
struct weft_am {
    struct weft_ep *ep;
    /* The payload, in place, 16-byte aligned. The sender can still change it: copy before checking.
     * The handler may write to a payload that is longer than WEFT_AM_READ_ONLY bytes. Any
     * other payload may be mapped read-only. */
    const void *data;
    /* Payload bytes; in a reply at most the request's reply_max - 1. A peer that breaks the
     * protocol may send longer replies, and more than one reply to a request. */
    uint32_t len;
    uint32_t reply_max;   /* longest reply payload + 1; 0 in a reply or a one-way request */
    const uint32_t *args; /* [nargs] words, a copy that no other process can write */
    uint16_t nargs;
    uint8_t handler; /* the id to which the message was sent */
    uint8_t is_reply;
    uint8_t can_reply; /* 1: this request may be replied to, once */
    uint8_t reserved0[3];
    void *arg;   /* given at weft_am_register */
    void *token; /* opaque, like serial; the calls that take a weft_am use them */
    /* With weft_am_long: the number of bytes at data. Then len has the same number, or UINT32_MAX
     * if the number is larger. */
    uint64_t long_len;
    uint64_t serial;
};

/* A handler. It runs inside the call that polls the endpoint, on the thread that polls. With
 * WEFT_PROGRESS=thread that may be a thread of the context ("progress"). A handler may call
 * weft_am_reply (once, if can_reply), or instead weft_am_detach. It may also call
 * weft_am_reply_later, weft_am_drop, weft_am_peer and weft_am_source, and put, get and atomics on
 * mapped memory, and weft_ep_defer, for calls that have to wait until the handler has returned.
 * Every other call on an endpoint returns WEFT_ECONTEXT. */
typedef void (*weft_am_fn)(const struct weft_am *am);

/* Register [fn] for messages that arrive at [ep] with id [handler]; NULL removes the handler. A
 * message without a handler is dropped, counted, and logged once. If that message is a request with
 * a reply_max, the am_failed callback of its sender is called with EHANDLER.
 * Returns  OK | EINVAL (id above 239) | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_register(struct weft_ep *ep, unsigned handler,
                                                         weft_am_fn fn, void *arg);

/* Returns the longest payload of a request or reply in bytes: at least 512, and 4096 by default
 * (WEFT_AM_MAX). */
WEFT_API size_t weft_am_max(const struct weft_ep *ep);

/* Send an active message to [peer].
 *   handler    id registered at the receiving endpoint, 0..239
 *   args       [nargs] words, 0..16; may be NULL when nargs is 0; copied
 *   data       [len] bytes, 0..weft_am_max; copied before the call returns
 *   reply_max  0: a one-way request. Otherwise room is reserved for a reply of up to reply_max - 1
 *              payload bytes and 16 args, so that the reply never waits. 1: a reply without
 *              payload.
 * Returns  OK (sent, source reusable) | AGAIN (no room, nothing was begun: weft_ep_wait, then call
 *          again) | EINVAL (also: id above 239) | EMSGSIZE | EPEER | ECLOSED | EPROTO | ELIMIT |
 *          ECONTEXT | EFORKED | EUNREACH | EVERSION | ENOMEM | ESYSTEM (connecting failed; the log
 *          gives the reason)
 * Order    none is promised, not even between two messages to one peer.
 * Blocks   never. The first message to a peer connects, which takes a few system calls. Over a
 *          network another thread connects. If it fails, all messages sent until then are lost, and
 *          peer_down is called.
 * Leaves   the message leaves at once through shared memory. To another host it leaves once the
 *          connection is made, which takes polls. If more than eight messages are sent between two
 *          polls, the last of them may wait for the next call of weft_ep_poll, weft_ep_wait or
 *          weft_ep_arm; so may all but the first of those that are sent after that poll, within
 *          50 us. A program that will not poll for a long time calls weft_peer_sent first. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_request(struct weft_peer *peer, unsigned handler,
                                                        const uint32_t *args, unsigned nargs,
                                                        const void *data, size_t len,
                                                        size_t reply_max);

#define WEFT_IOV_MAX 64 /* pieces of one operation */

/* Send as weft_am_request, with a payload of several pieces, such as a header and a buffer. They go
 * to where weft_am_request would write the payload: no byte is copied more often.
 *   iov  [count] pieces, at most WEFT_IOV_MAX, of weft_am_max bytes together; a piece may be empty
 * Returns  as weft_am_request | EINVAL (also: more than WEFT_IOV_MAX pieces) */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_requestv(struct weft_peer *peer, unsigned handler,
                                                         const uint32_t *args, unsigned nargs,
                                                         const struct iovec *iov, unsigned count,
                                                         size_t reply_max);

/* Reply to the request being handled; only from its handler, at most once.
 *   len  at most am->reply_max - 1
 * Returns  OK | EINVAL (the request is one-way, was replied to or was detached; [am] is a reply; or
 *          the handler has returned, also for a copy of *am) | EMSGSIZE | EPEER | EFORKED. Never
 *          AGAIN. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_reply(const struct weft_am *am, unsigned handler,
                                                      const uint32_t *args, unsigned nargs,
                                                      const void *data, size_t len);

/* A detached request, to which a reply is still due. The caller provides the memory of this struct,
 * and may copy it. The program replies to or drops one of the copies. After that the other copies
 * give EINVAL, while the endpoint is open. */
struct weft_am_later {
    struct weft_ep *ep; /* the endpoint that received the request */
    uint64_t id;        /* opaque */
    /* Longest reply + 1: reply_max of the request, but at most weft_am_max + 1. */
    uint32_t reply_max;
    uint32_t reserved;
};

#define WEFT_AM_LATER_MAX_ARGS 15

/* Detach the request being handled, so that the reply can follow after the handler has returned.
 * Call this only from the handler, instead of weft_am_reply. The sender may send as many other
 * requests as before. To bound the detached requests of one sender, the program counts them, by
 * weft_am_peer or by the sender's address.
 *   out  for one call of weft_am_reply_later or weft_am_drop. That call must come before
 *        weft_ep_close (otherwise EBUSY), even if the sender is gone by then
 * Returns  OK | EINVAL (as weft_am_reply) | ELIMIT (WEFT_LATE_REPLIES replies of this endpoint are
 *          due or wait for room: reply at once) | ENOMEM | EFORKED. After a failure weft_am_reply
 *          may be called. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_detach(const struct weft_am *am,
                                                       struct weft_am_later *out);

/* Reply to a detached request. The endpoint's owner calls this, inside or outside a handler. The
 * sender gets the reply as any other reply, except if it has closed all its peers for this
 * endpoint.
 *   nargs  0..15, one less than with weft_am_reply
 *   len    at most later->reply_max - 1; copied
 * Returns  OK (the reply leaves now, or when there is room: poll)
 *          | EPEER, ECLOSED or another status of the sender (no reply can reach it any more) |
 *          EINVAL (replied to or dropped already, and as weft_am_reply) | EMSGSIZE | ENOMEM |
 *          ELIMIT | ESYSTEM | EFORKED. Never AGAIN.
 *          After the status of a lost sender the request is over. After another failure the reply
 *          is still due, except after EINVAL for a request that was replied to or dropped already.
 * Waits    the reply may wait for room after this call. Meanwhile weft_ep_close returns EBUSY. If
 *          the sender does not poll for
 *          WEFT_PEER_TIMEOUT (10 s), weft_ep_close gives the reply up.
 * Order    none is promised, as for all active messages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_reply_later(const struct weft_am_later *later,
                                                            unsigned handler, const uint32_t *args,
                                                            unsigned nargs, const void *data,
                                                            size_t len);

/* Give up a detached request: the am_failed callback of its sender is called with ECANCELED.
 * Returns  as weft_am_reply_later */
WEFT_API enum weft_status weft_am_drop(const struct weft_am_later *later);

/* Copy the address of the endpoint that sent the message being handled; buf and len as in
 * weft_ep_address. If the message came through shared memory, or is a reply, the address lacks what
 * other hosts need to connect.
 * Returns  OK | EMSGSIZE | EINVAL (also: the handler has returned) | ECLOSED (the message is a
 *          reply, and its peer was closed) | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_source(const struct weft_am *am, void *buf,
                                                       size_t *len);

/* Returns the sender of the message being handled, as a peer that the program opened; if the
 * program opened several peers for the sender, one of them. weft_peer_arg gives the program's own
 * pointer. A process cannot send in the name of another process. The kernel guarantees that for
 * local processes. The key guarantees it across a network, if all processes with the key are
 * trusted.
 * Returns  NULL if this endpoint has no open peer for the sender, in a forked child, without memory
 *          (logged), and after the handler has returned */
WEFT_API struct weft_peer *weft_am_peer(const struct weft_am *am);

/* ---- memory ---- */

enum weft_access {
    WEFT_REMOTE_READ = 1,  /* peers may get, and fetch by atomics */
    WEFT_REMOTE_WRITE = 2, /* peers may put, and change by atomics */
    /* The following are for the owner's own operations, if its context has WEFT_MR_LOCAL
     * (weft/mr.h). */
    WEFT_SEND = 4,   /* send a message from the region */
    WEFT_RECV = 8,   /* receive a message into the region */
    WEFT_READ = 16,  /* store the result of a get or of an atomic in the region */
    WEFT_WRITE = 32, /* put from the region */
};

/* Allocate [len] zeroed bytes that peers on this node can map. They are page aligned if len is a
 * page or more, otherwise 64-byte aligned.
 * Across a network: if the context uses RDMA and has no authorization key (weft/mr.h), the memory
 * is registered with the NIC, as far as the limit on locked memory and WEFT_PINNED allow. Then all
 * its pages are pinned until the region is closed, and peers put and get without this process.
 * Otherwise this process performs each access when it polls the endpoint that the peer uses, but
 * for puts and gets of 16 KiB or more by the services of nodes without a NIC (WEFT_NODE). This
 * process always performs atomics and signals itself.
 *   access  enum weft_access: the rights that peers get
 * Returns  OK | EINVAL (len 0, unknown access) | ENOMEM (also: [len] is more than memory and swap
 *          of this machine. After OK memory may still be missing when it is written) | ELIMIT |
 *          ESYSTEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mem_alloc(struct weft_ctx *ctx, size_t len,
                                                       unsigned access, struct weft_mr **out);

enum weft_mem_type {
    WEFT_MEM_HOST = 0,
    WEFT_MEM_CUDA = 1,
    WEFT_MEM_ROCM = 2,
    WEFT_MEM_DMABUF = 3, /* named by a descriptor: weft_mr_regattr with WEFT_MR_DMABUF */
};

/* Grant peers access to [len] bytes of the caller's own memory at [addr]. No other process maps
 * this memory. A get by a peer on this node is one copy through the kernel, without this process.
 * This process performs puts and atomics of these peers when it polls the endpoint that the peer
 * uses. Memory of weft_mem_alloc is faster within a node, and for puts and gets by services without
 * a NIC.
 *   addr    any mapped memory. The caller still owns it, and keeps it mapped until the region is
 *           closed. After its pages were replaced (munmap and mmap, MADV_DONTNEED, truncation of a
 *           file) call weft_mr_refresh (weft/mr.h), since NICs still use the old pages
 *   type    enum weft_mem_type; only host memory is supported
 *   access  enum weft_access
 * Returns  OK | EINVAL | EMEMTYPE | ENOMEM | ELIMIT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_register(struct weft_ctx *ctx, void *addr,
                                                         size_t len, unsigned type, unsigned access,
                                                         struct weft_mr **out);

WEFT_API void *weft_mr_base(const struct weft_mr *mr);
WEFT_API size_t weft_mr_length(const struct weft_mr *mr);

#define WEFT_KEY_MAX 128

/* Copy the key with which peers open [mr]; buf and len as in weft_ep_address, at most WEFT_KEY_MAX
 * bytes.
 * Returns  as weft_ep_address | ENOTAVAIL (the region is still being registered: weft/mr.h) */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_key(const struct weft_mr *mr, void *buf,
                                                    size_t *len);

/* Close [mr] and free its memory. From then on every put or get of a peer to the region fails with
 * WEFT_EKEY. A put or get that is under way then accesses memory that nobody uses any more, and
 * fails too.
 * Blocks   never for another process. It waits for another thread of this process that copies a
 *          piece (up to 1 MiB) to or from the region. Such a thread performs puts to memory of
 *          weft_mr_register, and all accesses across a network without NICs. It also waits until no
 *          NIC accesses the region any more.
 * Returns  OK | EINVAL | EFORKED
 *          | EBUSY (bound to an open counter or endpoint, being registered, or being refreshed;
 *          nothing changed) */
WEFT_API enum weft_status weft_mr_close(struct weft_mr *mr);

/* A peer's region, ready for access. The inlined calls below use the fields. A program reads only
 * the fields whose comment allows it. */
struct weft_remote {
    unsigned char *base; /* may be read: address of the region in this process; NULL: not mapped */
    uint64_t length;     /* may be read: length in bytes */
    const uint64_t *gen_word;
    uint64_t gen;
    uint32_t access; /* may be read: WEFT_REMOTE_* granted */
    uint32_t flags;
    struct weft_peer *peer; /* may be read */
    uint64_t reserved[6];
};

/* Open the region that [key] of [peer]'s process names. Within a node the call requests the memory
 * from the service thread of that process and maps it. The call waits for the answer at most
 * WEFT_CONNECT_TIMEOUT (10 s): a stopped process is slow, not dead.
 * Across a network the call sends nothing and does not wait. So the key of a closed region gives
 * OK, and the first operation ends with WEFT_EKEY. A put or get of 0 bytes sends nothing, and
 * returns OK.
 * Returns  OK | EKEY (closed or unknown) | AGAIN ([peer] was opened by a name that is not known
 * yet: "names") | EINVAL (also: the bytes are not a key; a key has a checksum) | EPEER | ECLOSED |
 * ETIMEDOUT (nothing changed) | EPROTO | EUNREACH | ENOMEM | ESYSTEM | ELIMIT | ECONTEXT | EVERSION
 * | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_remote_open(struct weft_peer *peer, const void *key,
                                                         size_t key_len, struct weft_remote **out);

/* One operation in flight. The caller provides the memory, and zeroes it before its first use.
 * After a call that returned PENDING, Weft uses the memory until status is no longer PENDING, so
 * the memory must stay valid. A call that returns OK sets status to OK, does not call done, and
 * does not use the op any more. A call that returns anything else (AGAIN or a failure) has begun
 * nothing and leaves the op unchanged, unless its comment says otherwise. */
struct weft_op {
    int32_t status; /* enum weft_status; written by Weft, read after polling */
    uint32_t flags; /* enum weft_op_flags; 0: none */
    void *user;     /* for the caller; Weft never uses it */
    /* May be NULL. Called once for each call that returned PENDING, when the operation has
     * completed and the caller may use [op] again. It runs while a thread polls ("progress" says
     * which thread), or inside the call that ends the operation. It may do what a handler may do.
     */
    void (*done)(struct weft_op *op);
    uint64_t len; /* length of a received message (weft/msg.h) */
    uint64_t tag; /* tag of a received message */
    /* of a received message; NULL if a receive has ended without a message (weft/msg.h) */
    struct weft_sender *sender;
    void *entry_; /* used by Weft while PENDING */
    /* The next two fields are used only if the context has WEFT_MR_LOCAL (weft/mr.h). The call that
     * gets the op reads them. */
    struct weft_mr *local;         /* the region of the local buffers */
    struct weft_mr *const *locals; /* one region for each piece; NULL: [local] for all pieces */
    uint64_t data;                 /* data of a received message; 0 if it has none */
    uint64_t has_data;             /* 1 if a received message has data, else 0 */
    uint64_t reserved[1];
};

/* How an operation begins and ends (weft_op.flags). Flags may be combined. These calls read them:
 * weft_msg_sendv, weft_msg_post_send, weft_putv, weft_getv, weft_atomic_array and weft_am_long.
 * They return EINVAL for a flag that their operation does not have. All other calls, the inlined
 * ones among them, ignore weft_op.flags. */
enum weft_op_flags {
    /* Sends, puts, atomics on arrays, long messages: the sources (in an atomic, operands and
     * compares) are the caller's again when the call returns, also if it returns PENDING. If the
     * operation has to wait, the call copies the sources. They may have up to weft_copied_max bytes
     * together; otherwise EMSGSIZE. AGAIN: the copies of this endpoint's operations have 16 MiB.
     * Nothing was begun: weft_ep_wait, then call again. */
    WEFT_OP_COPIED = 1,
    /* All operations that have flags: the operation begins when all operations are complete that
     * the program has started before through this peer handle: sends, puts, gets, atomics, signals
     * and long messages. Until then it is PENDING, and then polls begin it, also if it could have
     * been done within the call. Later operations of the handle begin after it, if they are not
     * done within their calls: active messages and fragments do not wait, nor, without this flag,
     * accesses to a region that is mapped here or this process's own. A send that waits for its
     * receive keeps the operation from beginning, and so do the operations behind it. */
    WEFT_OP_FENCED = 2,
    /* Sends: the operation completes when the message is in the buffers of its receive, or, if no
     * receive has matched it, is kept for one at the peer's endpoint. Up to the context's
     * msg_eager bytes are kept there, within a node up to 256 KiB; a longer message, or one for
     * which there is no room, completes when its receive has it. ENOMEM: the peer has refused this
     * or an earlier message for lack of memory.
     *
     * Long messages: the operation completes when the handler has returned, or, if it did not run,
     * with the reason: EHANDLER (the peer has no such handler), or why the peer could not use the
     * bytes, such as EKEY (the region was closed meanwhile). reply_max must be 0; for the handler
     * the message is one-way.
     *
     * Puts and atomics on arrays complete so anyway: the bytes are in the region. */
    WEFT_OP_DELIVERED = 4,
    /* Sends: the operation completes when a receive has matched the message and has it, or when the
     * claimed message was dropped. Until then the message stays in the sender's memory (or its
     * copy: WEFT_OP_COPIED), however short it is. */
    WEFT_OP_MATCHED = 8,
};

/* Returns how many bytes the sources of an operation with WEFT_OP_COPIED may have: the context's
 * msg_eager (0: WEFT_MSG_EAGER) or weft_am_max, whichever is more. Constant for an endpoint.
 * Returns 0 for NULL. Any thread, also in handlers. */
WEFT_API size_t weft_copied_max(const struct weft_ep *ep);

/* Open the region of [key] as weft_remote_open, but without waiting: for event loops, and for
 * owners that may be stopped.
 *   out  set when this returns OK, or when [op] completes with OK; must stay valid until then
 *   op   must stay valid while its status is PENDING
 * Returns  OK (*out is set; op->status is OK, too) | PENDING | EINVAL (also: op is NULL) |
 *          otherwise as weft_remote_open, but never ETIMEDOUT
 * Later    op->status: OK | EKEY | EPEER | ECLOSED (the owner's process died or left) | ECANCELED |
 *          ENOMEM | ELIMIT | EPROTO. There is no time limit: a stopped owner answers when it
 *          continues.
 * Blocks   never. The answer is an event of the endpoint. Across a network the call returns OK at
 *          once. */
WEFT_API WEFT_MUST_USE enum weft_status weft_remote_open_start(struct weft_peer *peer,
                                                               const void *key, size_t key_len,
                                                               struct weft_remote **out,
                                                               struct weft_op *op);
/* Cancel the weft_remote_open_start of [op]. [op] completes with ECANCELED, and this call runs its
 * done. The out of weft_remote_open_start is not set.
 * Returns  OK (also if it had completed before: see op->status) | EINVAL ([op] is not such an
 *          operation of [ep]) | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_remote_open_cancel(struct weft_ep *ep, struct weft_op *op);

/* Close [remote]. No inlined call on [remote] may be under way in any thread. The call frees the
 * memory of [remote], so closing [remote] twice is undefined.
 * Returns  OK | EINVAL (NULL) | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_remote_close(struct weft_remote *remote);

/* Poll [ep] until [op] has completed or [timeout_ns] has passed (negative: no limit). An op that
 * was never started counts as complete.
 * Returns  the operation's status (its done has returned) | PENDING (the time is over) | EINVAL |
 *          ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_op_wait(struct weft_ep *ep, struct weft_op *op,
                                                     int64_t timeout_ns);

/* Handle every result of a call that takes an op:
 *
 *     do
 *         s = weft_op_finish(ep, weft_put(r, 0, data, len, &op), &op, -1);
 *     while (s == WEFT_AGAIN);
 *
 *   status  what the call on [ep] that got [op] returned. If it is PENDING, this call waits as
 *           weft_op_wait. If it is AGAIN, the operation was not begun: this call waits for an
 *           event, which may mean room; then make the call again. Any other status is returned as
 *           it is
 *   op      may be NULL if [status] is not PENDING
 * Returns  OK | the operation's failure | PENDING (begun; the time is over) | AGAIN (not begun:
 *          call again; also when the time is over) | [status] | EINVAL | ECONTEXT | EFORKED |
 *          ESYSTEM
 * Blocks   at most [timeout_ns]; negative: no limit. Runs handlers. */
WEFT_API WEFT_MUST_USE enum weft_status weft_op_finish(struct weft_ep *ep, enum weft_status status,
                                                       struct weft_op *op, int64_t timeout_ns);

/* The out-of-line parts of the inlined calls below; not for programs. */
WEFT_API enum weft_status weft_put_slow_(struct weft_remote *r, uint64_t offset, const void *src,
                                         size_t len, struct weft_op *op);
WEFT_API enum weft_status weft_get_slow_(struct weft_remote *r, uint64_t offset, void *dst,
                                         size_t len, struct weft_op *op);
WEFT_API enum weft_status weft_signal_slow_(struct weft_remote *r, uint64_t offset, uint64_t value,
                                            unsigned how, struct weft_op *op);
WEFT_API enum weft_status weft_put_signal_slow_(struct weft_remote *r, uint64_t offset,
                                                const void *src, size_t len,
                                                struct weft_remote *sig, uint64_t sig_offset,
                                                uint64_t value, unsigned how, struct weft_op *op);
WEFT_API enum weft_status weft_remote_why_(const struct weft_remote *r, uint64_t offset,
                                           uint64_t len, unsigned access);

/* Inlined accesses do not enter the library. A program compiled with WEFT_COUNT_INLINE counts its
 * own inlined accesses here. weft_stat_rows reports the counts as rows INLINE_*, for all contexts
 * together. */
WEFT_API extern uint64_t weft_inline_counts_[3]; /* put, get, atomic */
#ifdef WEFT_COUNT_INLINE
#define WEFT_COUNT_(i) ((void)__atomic_fetch_add(&weft_inline_counts_[i], 1, __ATOMIC_RELAXED))
#else
#define WEFT_COUNT_(i) ((void)0)
#endif

/* Is [r] mapped, is its region open, is [offset, offset + len) inside the region, and does the
 * region grant [access]? */
WEFT_INLINE int weft_remote_ok_(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                unsigned access)
{
    return r && r->base && len <= r->length && offset <= r->length - len &&
           (r->access & access) == access &&
           __atomic_load_n(r->gen_word, __ATOMIC_ACQUIRE) == r->gen;
}

/* Was the region still open when the copy before this call ended? */
WEFT_INLINE int weft_remote_still_(const struct weft_remote *r)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(r->gen_word, __ATOMIC_RELAXED) == r->gen;
}

/* Mark [op] as complete, for an operation that ends within its call. Compiles to nothing where [op]
 * is a NULL constant. */
WEFT_INLINE enum weft_status weft_op_ok_(struct weft_op *op)
{
    if (op)
        op->status = WEFT_OK;
    return WEFT_OK;
}

/* Copy [len] bytes. For 1 to 8 bytes of these lengths the compiler emits one store or load, so an
 * aligned word never tears. 8 bytes, the most frequent length, are tested first. */
WEFT_INLINE void weft_copy_(void *dst, const void *src, size_t len)
{
    if (!WEFT_UNLIKELY(len != 8)) {
        memcpy(dst, src, 8);
        return;
    }
    switch (len) {
    case 0: break;
    case 1: memcpy(dst, src, 1); break;
    case 2: memcpy(dst, src, 2); break;
    case 4: memcpy(dst, src, 4); break;
    case 16: memcpy(dst, src, 16); break;
    default: memcpy(dst, src, len);
    }
}

/* Copy [len] bytes from local memory into a peer's region.
 *   r       open remote whose endpoint the calling thread owns
 *   offset  bytes from the region's start; offset + len <= r->length
 *   src     [len] bytes, any memory; must stay valid and unchanged until completion
 *   op      must stay valid while PENDING. If it is NULL, only a flush reports completion
 * Returns   OK (visible at the target to everything ordered after the put; op->status is OK, too) |
 *           PENDING (begun; op completes) | AGAIN (no room; nothing was begun: weft_ep_wait, then
 *           call again) | EINVAL (also: r is NULL) | ERANGE | EACCESS | EKEY | EFORKED | what
 *           weft_peer_status returns for r->peer
 *           If the region is not mapped here, also ENOMEM | ELIMIT (1,048,575 operations are under
 *           way) | ECONTEXT (in a handler).
 *           A failure other than ERANGE, EACCESS and EINVAL may have written part of the bytes to
 *           memory that no longer belongs to the region.
 * Order     none among puts; weft_put_signal and weft_flush give order.
 * Blocks    never. Within a node a put is two checks and a copy, inlined. Across a network it
 *           returns PENDING. If the region is registered with NICs, they perform the put without
 *           the target. (This call first registers a long source, by system calls, and keeps it
 *           registered.) The services of nodes without a NIC perform puts of 16 KiB or more into
 *           memory of weft_mem_alloc without the target, too. Otherwise the target performs the
 *           put when it polls its endpoint. It reports the end of the put then, or together with
 *           its next message to this endpoint if it has got used to send one soon; at the latest
 *           when it polls or arms its endpoint the next time.
 * Replay    If the connection breaks, Weft repeats all of a put that NICs or services had not
 *           completed, except if the target's NIC reports that the put was done. A NIC that has
 *           failed does not report that, and some drivers never report it. A long put whose rest
 *           cannot be registered is repeated, too. A repeated put could overwrite later writes. So
 *           nobody, including the target and its atomics, may write to these bytes before the put
 *           is reported complete (by weft_put_signal or weft_am_long, or by a message sent after
 *           completion). */
WEFT_INLINE WEFT_MUST_USE enum weft_status weft_put(struct weft_remote *r, uint64_t offset,
                                                    const void *src, size_t len, struct weft_op *op)
{
    if (WEFT_UNLIKELY(!weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE)))
        return weft_put_slow_(r, offset, src, len, op);
    weft_copy_(r->base + offset, src, len);
    WEFT_COUNT_(0);
    if (WEFT_UNLIKELY(!weft_remote_still_(r)))
        return weft_remote_why_(r, offset, len, WEFT_REMOTE_WRITE);
    return weft_op_ok_(op);
}

/* Copy [len] bytes from a peer's region into local memory. As weft_put, but the region must grant
 * WEFT_REMOTE_READ. A repeated get (weft_put, "Replay") does no harm. After a failure the contents
 * of dst are undefined. */
WEFT_INLINE WEFT_MUST_USE enum weft_status weft_get(struct weft_remote *r, uint64_t offset,
                                                    void *dst, size_t len, struct weft_op *op)
{
    if (WEFT_UNLIKELY(!weft_remote_ok_(r, offset, len, WEFT_REMOTE_READ)))
        return weft_get_slow_(r, offset, dst, len, op);
    weft_copy_(dst, r->base + offset, len);
    WEFT_COUNT_(1);
    if (WEFT_UNLIKELY(!weft_remote_still_(r)))
        return weft_remote_why_(r, offset, len, WEFT_REMOTE_READ);
    return weft_op_ok_(op);
}

enum weft_signal {
    WEFT_SIGNAL_SET = 0, /* store the value */
    WEFT_SIGNAL_ADD = 1, /* add the value; atomic among all signals to the word */
    /* Combined with SET or ADD: also wake the target. The signal is then an event at the peer's
     * endpoint: it ends weft_ep_wait there and makes weft_ep_fd readable, on every transport.
     * Without WAKE the owner of a word that is mapped here gets no notice of the change. */
    WEFT_SIGNAL_WAKE = 2,
};

/* Put, then update an 8-byte word in a region of the same peer. A thread that sees the new value of
 * the word (weft_word_wait, or an acquire load) also sees the data.
 *   len         0: only the signal
 *   sig         remote that holds the word, may be r; grants WEFT_REMOTE_WRITE
 *   sig_offset  multiple of 8
 *   how         enum weft_signal
 * Returns   as weft_put. If the check of either region before the copy fails, nothing is written.
 *           Across a network the data are put before this process learns that the region of the
 *           word is closed.
 * Wakes     WEFT_SIGNAL_WAKE costs a message and its answer, and an event at the target, also
 *           within a node. If the target sleeps, it costs a system call, too. The call returns
 *           PENDING, as a put across a network does. ELIMIT, ENOMEM and ECONTEXT (in a handler)
 *           change nothing. If both regions are mapped here, data and word are in place when the
 *           call returns PENDING. In that case the call never returns AGAIN: without an op the
 *           message waits for room.
 * Blocks    as weft_put. Across a network the target updates the word, once, when the data are
 *           complete and the target polls its endpoint. */
WEFT_INLINE WEFT_MUST_USE enum weft_status weft_put_signal(struct weft_remote *r, uint64_t offset,
                                                           const void *src, size_t len,
                                                           struct weft_remote *sig,
                                                           uint64_t sig_offset, uint64_t value,
                                                           unsigned how, struct weft_op *op)
{
    enum weft_status s;
    uint64_t *word;
    if (WEFT_UNLIKELY(!r || !sig || (sig_offset & 7) ||
                      how > (WEFT_SIGNAL_ADD | WEFT_SIGNAL_WAKE) || sig->peer != r->peer))
        return WEFT_EINVAL;
    if (WEFT_UNLIKELY(!weft_remote_ok_(sig, sig_offset, 8, WEFT_REMOTE_WRITE) || !r->base ||
                      how > WEFT_SIGNAL_ADD))
        return weft_put_signal_slow_(r, offset, src, len, sig, sig_offset, value, how, op);
    s = weft_put(r, offset, src, len, NULL); /* mapped: never PENDING */
    if (WEFT_UNLIKELY(s != WEFT_OK))
        return s;
    word = WEFT_CAST_(uint64_t *, WEFT_CAST_(void *, sig->base + sig_offset));
    if (how == WEFT_SIGNAL_ADD)
        (void)__atomic_fetch_add(word, value, __ATOMIC_RELEASE);
    else
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
    if (WEFT_UNLIKELY(!weft_remote_still_(sig)))
        return weft_remote_why_(sig, sig_offset, 8, WEFT_REMOTE_WRITE);
    return weft_op_ok_(op);
}

/* Put or get [count] pieces of local memory, one after the other, to or from the peer's region from
 * [offset] on; otherwise as weft_put and weft_get.
 *   op  its flags are read (enum weft_op_flags) */
WEFT_API WEFT_MUST_USE enum weft_status weft_putv(struct weft_remote *r, uint64_t offset,
                                                  const struct iovec *iov, unsigned count,
                                                  struct weft_op *op);
WEFT_API WEFT_MUST_USE enum weft_status weft_getv(struct weft_remote *r, uint64_t offset,
                                                  const struct iovec *iov, unsigned count,
                                                  struct weft_op *op);

enum weft_atomic {
    WEFT_ATOMIC_ADD,
    WEFT_ATOMIC_AND,
    WEFT_ATOMIC_OR,
    WEFT_ATOMIC_XOR,
    WEFT_ATOMIC_MIN,
    WEFT_ATOMIC_MAX,
    WEFT_ATOMIC_SWAP,
    WEFT_ATOMIC_CAS, /* store the operand if the word equals [compare] */
};

enum weft_atomic_type { WEFT_U64, WEFT_I64, WEFT_U32, WEFT_I32 };

WEFT_API enum weft_status weft_atomic_slow_(struct weft_remote *r, uint64_t offset,
                                            unsigned operation, unsigned type, uint64_t operand,
                                            uint64_t compare, uint64_t *fetched,
                                            struct weft_op *op);

/* Sets [old] to the word's old value. [value] and [expected] have type T already. To cast them
 * again would make g++ warn (-Wuseless-cast). */
#define WEFT_ATOMIC_BODY_(T, value, expected)                                                      \
    T *w = WEFT_CAST_(T *, word), v = (value), old = 0;                                            \
    switch (operation) {                                                                           \
    case WEFT_ATOMIC_ADD: old = __atomic_fetch_add(w, v, __ATOMIC_ACQ_REL); break;                 \
    case WEFT_ATOMIC_AND: old = __atomic_fetch_and(w, v, __ATOMIC_ACQ_REL); break;                 \
    case WEFT_ATOMIC_OR: old = __atomic_fetch_or(w, v, __ATOMIC_ACQ_REL); break;                   \
    case WEFT_ATOMIC_XOR: old = __atomic_fetch_xor(w, v, __ATOMIC_ACQ_REL); break;                 \
    case WEFT_ATOMIC_SWAP: old = __atomic_exchange_n(w, v, __ATOMIC_ACQ_REL); break;               \
    case WEFT_ATOMIC_CAS:                                                                          \
        old = (expected);                                                                          \
        (void)__atomic_compare_exchange_n(w, &old, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);      \
        break;                                                                                     \
    default:                                                                                       \
        old = __atomic_load_n(w, __ATOMIC_ACQUIRE);                                                \
        while ((operation == WEFT_ATOMIC_MIN ? v < old : v > old) &&                               \
               !__atomic_compare_exchange_n(w, &old, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))    \
            ;                                                                                      \
    }
#define WEFT_ATOMIC_CAST_(T)                                                                       \
    WEFT_ATOMIC_BODY_(T, WEFT_CAST_(T, operand), WEFT_CAST_(T, compare))                           \
    return WEFT_CAST_(uint64_t, old)

/* Returns the word's old value. The caller has checked that [word] is aligned and that [operation]
 * and [type] are valid. */
WEFT_INLINE uint64_t weft_atomic_do_(void *word, unsigned operation, unsigned type,
                                     uint64_t operand, uint64_t compare)
{
    if (type == WEFT_U64) {
        WEFT_ATOMIC_BODY_(uint64_t, operand, compare)
        return old;
    } else if (type == WEFT_I64) {
        WEFT_ATOMIC_CAST_(int64_t);
    } else if (type == WEFT_U32) {
        WEFT_ATOMIC_CAST_(uint32_t);
    } else {
        WEFT_ATOMIC_CAST_(int32_t);
    }
}

/* Change a word of a peer's region. The change is atomic with respect to all other atomics on the
 * word, of any process. By default only processors of the owner's node perform atomics on a region,
 * so the owner may also use its own atomic instructions. If the owner chose WEFT_MR_NIC_ATOMICS
 * (weft/mr.h), its NIC performs all atomics, and the owner may not use atomic instructions.
 *   offset     multiple of the word's size
 *   operation  enum weft_atomic
 *   type       enum weft_atomic_type: the word's size, and how MIN and MAX compare
 *   operand    the 32-bit types use its low 32 bits
 *   compare    for CAS, otherwise ignored
 *   fetched    NULL, or where the word's old value goes. The old value of a 32-bit word is sign- or
 *              zero-extended as its type requires. Must stay valid until completion
 *   op         as in weft_put
 * Needs      WEFT_REMOTE_WRITE, and WEFT_REMOTE_READ if [fetched] is given.
 * Returns    as weft_put. A failure after the check may have changed memory that no longer belongs
 *            to the region. With WEFT_MR_NIC_ATOMICS also ENOSYS (the NIC does not perform this
 *            atomic, or the peer is not reached by RDMA) | EUNREACH (weft_peer_status is OK, but
 *            the connection uses TCP at present: nothing was done, try again)
 * Once       An atomic is never done twice. If the connection breaks before this process knows that
 *            a NIC's atomic has ended, the atomic ends with ELOST: it was done once or not at all,
 *            and will not be done later. The word may tell which. (A put is repeated instead.)
 *            Atomics by processors never end with ELOST. If the peer died, it is also unknown
 *            whether the atomic was done. */
WEFT_INLINE WEFT_MUST_USE enum weft_status weft_atomic(struct weft_remote *r, uint64_t offset,
                                                       unsigned operation, unsigned type,
                                                       uint64_t operand, uint64_t compare,
                                                       uint64_t *fetched, struct weft_op *op)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access =
        WEFT_REMOTE_WRITE | (fetched ? WEFT_CAST_(unsigned, WEFT_REMOTE_READ) : 0u);
    uint64_t old;
    if (WEFT_UNLIKELY(operation > WEFT_ATOMIC_CAS || type > WEFT_I32 || (offset & (size - 1))))
        return WEFT_EINVAL;
    if (WEFT_UNLIKELY(!weft_remote_ok_(r, offset, size, access)))
        return weft_atomic_slow_(r, offset, operation, type, operand, compare, fetched, op);
    old = weft_atomic_do_(r->base + offset, operation, type, operand, compare);
    WEFT_COUNT_(2);
    if (WEFT_UNLIKELY(!weft_remote_still_(r)))
        return weft_remote_why_(r, offset, size, access);
    if (fetched)
        *fetched = old;
    return weft_op_ok_(op);
}

/* Put [len] bytes to a peer's region, then run a handler at the endpoint of r->peer. The handler's
 * data are those bytes in place. For a region of several buffers, or of pages that may be missing,
 * they are a copy. Weft sets no limit for len.
 *   handler, args, nargs, reply_max  as weft_am_request
 *   offset, src, len                 as weft_put
 *   op                               as weft_put; completes when src may be reused, or as its
 *                                    flags determine (enum weft_op_flags)
 * Returns  as weft_put | ELIMIT | EMSGSIZE (reply_max) as weft_am_request
 *          With op NULL also AGAIN: no message was sent and nothing is under way, but part of the
 *          bytes may have been written. Call again with the same arguments.
 *          OK, also as the status of op, does not mean that the handler ran, except with
 *          WEFT_OP_DELIVERED. If the owner closed the region meanwhile, it drops the message and
 *          logs that. Across a network with len 0 the owner may also have closed the region before
 *          this call.
 * Order    the handler runs after the bytes are in place; no other order is promised. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_long(struct weft_remote *r, uint64_t offset,
                                                     const void *src, size_t len, unsigned handler,
                                                     const uint32_t *args, unsigned nargs,
                                                     size_t reply_max, struct weft_op *op);

/* Find out when earlier operations are complete; does not block. When this returns OK or [op]
 * completes, every put, get and atomic to [peer] that was started before is complete, also those
 * without an op. Their effects are then visible to a thread that synchronises with this one by
 * plain loads and stores in both directions (within a node this call is a full fence).
 *   op  may be NULL. Then PENDING means: poll (weft_ep_wait) and call again
 * Returns  OK (op->status is OK, too) | PENDING (only if an operation was pending) | the first
 *          failure of an operation without op | what weft_peer_status returns | EINVAL | EFORKED |
 *          ENOMEM | ELIMIT | ECONTEXT */
WEFT_API WEFT_MUST_USE enum weft_status weft_flush(struct weft_peer *peer, struct weft_op *op);

/* ---- what this library can do ---- */

enum weft_operation {
    WEFT_OP_AM,
    WEFT_OP_PUT,
    WEFT_OP_GET,
    WEFT_OP_ATOMIC,
    WEFT_OP_MSG,
    WEFT_OP_AM_LONG,
};

/* How Weft performs an operation. Strings are static. */
struct weft_path {
    const char *transport; /* "shm", "node", "rdma", "tcp", "loop"; "name": not known yet */
    const char *protocol;  /* "inline", "eager", "pull", "pieces", "bulk", "rdma write", ... */
    const char *why;       /* a sentence */
    /* How often each payload byte is copied, from the source to where it is used. With "bulk" these
     * are the copies that the sockets make. */
    uint32_t copies;
    /* 1: performed by inlined code in the program, and counted only with WEFT_COUNT_INLINE. */
    uint32_t inlined;
    /* MSG of 8 to 256 KiB within a node: the costs that the receiver has measured, in picoseconds a
     * byte, of messages of about this length that came in parts, and that it copied once. 0: not
     * measured. 65535: the kernel denies the copy. */
    uint32_t parts_ps, pull_ps;
    uint64_t reserved[3];
};

/* Report how Weft would perform an operation of [len] bytes to [peer]. The report comes from the
 * function that chooses the path when an operation starts. Of 1,024 tagged messages of a length
 * that is measured, 8 go the other way; of the first 1,024, 64.
 *   operation  enum weft_operation
 *   r          the region, for PUT, GET, ATOMIC and AM_LONG; otherwise NULL
 * Returns  OK | EINVAL | EMSGSIZE (AM: [len] is above weft_am_max) | ERANGE ([len] is above
 *          r->length) | ENOSYS (ATOMIC: the region has WEFT_MR_NIC_ATOMICS, and its NIC cannot
 *          perform the atomic) | what weft_peer_status returns | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_path_of(struct weft_peer *peer, unsigned operation,
                                                     const struct weft_remote *r, size_t len,
                                                     struct weft_path *out);

/* Set how many ranks share this node's cores. A job sets the number for its own context. If ranks
 * outnumber cores, waiting threads yield early. */
WEFT_API void weft_ctx_set_local_ranks(struct weft_ctx *ctx, unsigned ranks);

/* Call [row] for every configuration variable, with its name, its value in force, its default, and
 * what it does. The strings are valid during the call of [row]. */
typedef void (*weft_config_row_fn)(void *arg, const char *name, const char *value, const char *dflt,
                                   const char *doc);
WEFT_API void weft_config_rows(weft_config_row_fn row, void *arg);

/* Call [row] for every statistics counter of [ctx], with its sum over open and closed endpoints.
 * Any thread. The values are those that each endpoint stored at its last poll. */
typedef void (*weft_stat_row_fn)(void *arg, const char *name, uint64_t value, const char *doc);
WEFT_API void weft_stat_rows(const struct weft_ctx *ctx, weft_stat_row_fn row, void *arg);

/* Call [row] for every transport that is built in, with its name, whether it can be used here, and
 * why it cannot be used or what limits it. */
typedef void (*weft_transport_row_fn)(void *arg, const char *name, int usable, const char *note);
WEFT_API void weft_transport_rows(weft_transport_row_fn row, void *arg);

/* Call [row] for every port of every RDMA device of this machine. name is such as "mlx5_0:1".
 * why_not is NULL, or says in a word or two why a context would not use the port, given the WEFT_
 * variables. note describes the port. If there is no such device, [row] is not called. The strings
 * are valid during the call of [row]. */
typedef void (*weft_device_row_fn)(void *arg, const char *name, const char *why_not,
                                   const char *note);
WEFT_API void weft_device_rows(weft_device_row_fn row, void *arg);

/* Report what an RDMA device holds for [ctx]. Calls [row] once for each kind of object, with the
 * number of objects and their bytes. For queues the bytes are the sizes that the device reports, at
 * 64 bytes an entry. For memory regions they are the registered bytes. If there is no such device,
 * [row] is not called. Any thread. */
typedef void (*weft_resource_row_fn)(void *arg, const char *name, uint64_t count, uint64_t bytes);
WEFT_API void weft_resource_rows(const struct weft_ctx *ctx, weft_resource_row_fn row, void *arg);

/* Returns the length in bytes of the longest region that all RDMA devices of [ctx] can still pin
 * within this process's share of WEFT_PINNED. Returns UINT64_MAX if [ctx] uses no device that must
 * pin regions, or is NULL. The limit on locked memory (ulimit -l) may be lower.
 *   reserve  bytes of the share to leave for other uses
 *   pinned   if not NULL, gets the bytes that this process has pinned for devices, Weft's own
 *            buffers included
 * Any thread. Never blocks. */
WEFT_API uint64_t weft_pinnable(const struct weft_ctx *ctx, uint64_t reserve, uint64_t *pinned);

#if defined(__cplusplus)
#define WEFT_LAYOUT_(c) static_assert(c, #c)
#else
#define WEFT_LAYOUT_(c) _Static_assert(c, #c)
#endif
WEFT_LAYOUT_(sizeof(struct weft_remote) == 96);
WEFT_LAYOUT_(offsetof(struct weft_remote, gen_word) == 16);
WEFT_LAYOUT_(offsetof(struct weft_remote, gen) == 24);
WEFT_LAYOUT_(offsetof(struct weft_remote, access) == 32);
WEFT_LAYOUT_(offsetof(struct weft_remote, peer) == 40);
WEFT_LAYOUT_(sizeof(struct weft_op) == 96);
WEFT_LAYOUT_(offsetof(struct weft_op, done) == 16);
WEFT_LAYOUT_(offsetof(struct weft_op, local) == 56);
WEFT_LAYOUT_(sizeof(struct weft_deferred) == 64);
WEFT_LAYOUT_(offsetof(struct weft_deferred, status) == 24);
WEFT_LAYOUT_(sizeof(struct weft_am) == 72);
WEFT_LAYOUT_(offsetof(struct weft_am, args) == 24);
WEFT_LAYOUT_(offsetof(struct weft_am, arg) == 40);
WEFT_LAYOUT_(sizeof(struct weft_ctx_params) == 120);
WEFT_LAYOUT_(sizeof(struct weft_ep_params) == 120);

#ifdef __cplusplus
}
#endif

#endif
