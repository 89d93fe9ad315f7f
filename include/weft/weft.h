/* SPDX-License-Identifier: BSD-3-Clause */
/* Weft: active messages and one-sided put and get between processes.
 *
 * Objects, and which threads may use them:
 *   weft_ctx     one library instance; any thread
 *   weft_ep      an endpoint: what one thread sends and receives by; its owner only
 *   weft_peer    a remote endpoint as one local endpoint sees it; that endpoint's owner
 *   weft_mr      a memory region that others may access; any thread
 *   weft_remote  a peer's region, resolved once; its endpoint's owner
 *   weft_op      one operation in flight; memory is the caller's
 *
 * An endpoint takes no lock. Any thread may own it, but one at a time, and threads hand it over by
 * the usual means (a mutex, a join).
 *
 * Handlers and callbacks (weft_am_fn, weft_peer_down_fn, an op's done) run inside the calls that
 * poll an endpoint, on the thread that polls. With WEFT_PROGRESS=thread they also run on a thread
 * of the context ("progress" below).
 *
 * No thread may be cancelled (pthread_cancel) inside a call of Weft: it would leave locks held and
 * messages half received. Disable cancellation around the calls (pthread_setcancelstate). To end a
 * thread that waits in weft_ep_wait, cause an event on its endpoint, such as a message to itself.
 *
 * Every call returns enum weft_status unless it says otherwise: 0 is success, above 0 a state,
 * below 0 a failure that changed nothing. Outputs are set on success only. Handles are opaque and
 * not null if the call succeeded. A closed handle may not be used: with WEFT_DEBUG=handles such a
 * call returns WEFT_EINVAL and is logged, if the handle is among the last 65,536 that were closed;
 * otherwise the behaviour is undefined.
 *
 * A forked child owns nothing of its parent's context: every call on it there returns
 * WEFT_EFORKED.
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

/* A short English sentence for [status]; static storage, never null. */
WEFT_API const char *weft_status_text(enum weft_status status);
/* The name, e.g. "WEFT_EPEER"; static storage, never null. */
WEFT_API const char *weft_status_name(enum weft_status status);
/* "0.1.0" of the library that is running, not of the header. */
WEFT_API const char *weft_version(void);

struct weft_ctx;
struct weft_ep;
struct weft_peer;
struct weft_mr;
struct weft_mr_domain; /* weft/mr.h */

/* ---- context ---- */

enum weft_ctx_flags {
    /* Listen for peers on other nodes before the key is known: weft_ctx_set_key gives it later.
     * Without this flag and without WEFT_KEY_FILE there is no network. */
    WEFT_CTX_NETWORK = 1,
};

/* Reserved space must be zero. [version] is set by WEFT_CTX_PARAMS_INIT; 0 gives EINVAL (the
 * program omitted the initialiser), a version later than the library's EVERSION. The same holds
 * for all parameter structures. */
struct weft_ctx_params {
    uint32_t version;
    uint32_t flags;                  /* enum weft_ctx_flags */
    const struct weft_mr_domain *mr; /* mode of its regions (weft/mr.h); null: no mode bits */
    uint64_t reserved[13];
};
#define WEFT_CTX_PARAMS_INIT                                                                       \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL,                                  \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Open a library instance: reads the WEFT_ variables, opens the transports, and starts threads: a
 * service thread (it sleeps unless peers connect, ask for memory, or die, and never touches the
 * data path), one each for RDMA and TCP if these are used, and with WEFT_PROGRESS=thread one that
 * polls.
 *   params  null for defaults; read during the call
 *   out     set on success; close with weft_ctx_close
 * Returns  OK | EINVAL (bad params, variable or key file) | EVERSION | ESYSTEM | ENOMEM
 *          | EFORKED (an event queue of the parent's)
 * Blocks   no. Several contexts per process are allowed. */
WEFT_API WEFT_MUST_USE enum weft_status weft_ctx_open(const struct weft_ctx_params *params,
                                                      struct weft_ctx **out);

#define WEFT_KEY_SIZE 32

/* Set the secret of [ctx], by which processes on different nodes authenticate each other: random
 * bytes, the same in all processes that may talk, and known to nobody else. Until then connections
 * wait, and WEFT_PEER_TIMEOUT does not run. Set once; a job sets it. Any thread.
 *   key  WEFT_KEY_SIZE bytes; copied
 * Returns  OK (also if there is no network transport) | EBUSY (already set) | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_ctx_set_key(struct weft_ctx *ctx, const void *key,
                                                         size_t len);

/* Close [ctx] and stop its threads. Peers in other processes are told that this one left
 * (WEFT_ECLOSED).
 * Blocks   over a network until the kernels of other hosts have the last bytes of its endpoints,
 *          at most WEFT_PEER_TIMEOUT (10 s); otherwise no.
 * Returns  OK | EBUSY (an endpoint or region is still open, or a key mapped; nothing changed)
 *          | EINVAL (null, or a job owns it) | EFORKED */
WEFT_API enum weft_status weft_ctx_close(struct weft_ctx *ctx);

/* ---- endpoint ---- */

/* Called while the endpoint is polled, at most once per peer, when [peer] can no longer be
 * reached. [why]:
 *   EPEER     it died; over a network also: it was cut off for WEFT_PEER_TIMEOUT, or it has
 *             another key
 *   ECLOSED   it closed its endpoint or context
 *   EPROTO    it broke the protocol, and the connection was dropped
 *   ELIMIT, ENOMEM  one of the two processes lacks descriptors or memory for the connection, or too
 *             many connections wait for an endpoint that does not poll; the log names the limit
 *   EUNREACH  over a network: only one side encrypts; or for 12 times WEFT_PEER_TIMEOUT this side
 *             had no local port, descriptor, memory or permission to connect; the log says what to
 *             change
 *   EVERSION  over a network: it has another version of Weft's protocol
 * WEFT_LOG=info logs the details. May not send; may record it and read weft_peer_arg. Requests that
 * were not answered by then never will be. */
typedef void (*weft_peer_down_fn)(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                                  void *arg);

enum weft_ep_flags {
    /* Several threads may use the endpoint at a time: a mutex admits one (weft_ep_wait releases it
     * while it waits). Inlined put, get and atomics take no mutex. Without this flag an endpoint is
     * one thread's and takes no lock, unless WEFT_PROGRESS=thread sets the flag for all. */
    WEFT_EP_LOCKED = 1,
    /* Writes that arrive by it may be counted (weft_mr_bind_counter). */
    WEFT_EP_RMA_EVENT = 2,
};

#define WEFT_AM_FAILED_ARGS 8 /* of a failed request, reported */

/* A request of this endpoint that gets no reply. Valid until the callback returns. */
struct weft_am_failure {
    struct weft_ep *ep;
    struct weft_peer *peer; /* to which it was sent, or another handle of the same endpoint */
    enum weft_status why;   /* EHANDLER (the peer has no such handler) | ECANCELED (the peer
                             * dropped a detached request: weft_am_drop) | of a long message
                             * why its bytes could not be used, such as EKEY: their region was
                             * closed meanwhile */
    uint8_t handler;        /* to which it was sent */
    uint8_t nargs;          /* the request's, at most WEFT_AM_FAILED_ARGS */
    uint16_t reserved0;
    const uint32_t *args;
    void *arg; /* given at weft_ep_open */
};

/* Called while the endpoint is polled, once for each request with a reply_max to which the peer
 * sends such an answer; a peer that breaks the protocol may cause more calls. May do what a handler
 * may. Without this callback the first failure is logged. Requests to a lost peer are reported by
 * peer_down alone. */
typedef void (*weft_am_failed_fn)(const struct weft_am_failure *failure);

struct weft_ep_params {
    uint32_t version;
    uint32_t flags;              /* enum weft_ep_flags */
    weft_peer_down_fn peer_down; /* may be null */
    void *arg;                   /* handed to peer_down */
    const void
        *auth_key; /* authorization key for regions (weft/mr.h); [auth_key_size] bytes, copied */
    size_t auth_key_size;        /* 0: the context's */
    weft_am_failed_fn am_failed; /* may be null; gets [arg] too */
    uint64_t reserved[9];
};
#define WEFT_EP_PARAMS_INIT                                                                        \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL, NULL, NULL, 0, NULL,             \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Open an endpoint. The calling thread owns it until it hands it over.
 * Returns  OK | EINVAL | EVERSION | ENOMEM | ESYSTEM | ELIMIT (65,535 endpoints; or RDMA may lock
 *          no more memory) | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status
weft_ep_open(struct weft_ctx *ctx, const struct weft_ep_params *params, struct weft_ep **out);

/* Close [ep] and its connections. Its weft_peer and weft_remote handles must have been closed.
 * Receives that no message has matched are cancelled, and nothing more is delivered. Not from a
 * handler. Messages already sent arrive: through shared memory they stay readable by their
 * receivers; over a network this call waits until the receivers have taken them.
 * Blocks   over a network until all peers have taken what was sent, at most WEFT_PEER_TIMEOUT
 *          (10 s; the log says if something was lost); for peers that do not poll, until 200 ms
 *          after their kernels have it. Otherwise no.
 * Returns  OK | EINVAL (null, or a job owns it) | EBUSY (open peers or remotes, or operations in
 *          flight; nothing changed) | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_ep_close(struct weft_ep *ep);

#define WEFT_ADDR_MAX 128

/* Copy [ep]'s address, which other processes may get by any means.
 *   buf  at least *len bytes
 *   len  in: room; out: bytes used (at most WEFT_ADDR_MAX), also set when the room was too small
 * Returns  OK | EMSGSIZE (too small) | EINVAL | EFORKED. Any thread. */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_address(struct weft_ep *ep, void *buf, size_t *len);

/* ---- progress ----
 *
 * An endpoint makes progress while it is polled: by the calls below, by weft_op_wait, and by the
 * collective calls of a job. With WEFT_PROGRESS=thread a thread of the context also polls its
 * endpoints, from weft_ep_open on, whenever no call of the program is inside. Then
 *  - every endpoint is a WEFT_EP_LOCKED one;
 *  - handlers, peer_down and done also run on that thread (it takes no signals), with the
 *    endpoint's mutex held, so one at a time for each endpoint. What they share with the rest of
 *    the program needs atomics or a lock of the program, which no thread may hold while it calls on
 *    that endpoint (deadlock);
 *  - weft_ep_poll, weft_ep_wait and weft_ep_fd do not report an event that the thread handled: wait
 *    with a limit, then look at the condition. weft_op_wait, weft_word_wait and a job's calls do so
 *    themselves. The same holds for any two threads that poll a locked endpoint;
 *  - register handlers before other processes get the endpoint's address. */

/* Deliver what has arrived: run handlers, complete operations, report lost peers. Room for a
 * message that was refused with AGAIN is an event, too. Bounded work; never blocks.
 * Returns  the number of events handled, 0 if none; a negative weft_status:
 *          EINVAL | ECONTEXT (inside a handler) | EFORKED */
WEFT_API int weft_ep_poll(struct weft_ep *ep);

/* Poll until an event was handled or [timeout_ns] has passed. A negative limit is none, and then
 * the call also returns when a peer is lost. An event that another thread handled does not end it
 * ("progress"). Adapts: spins while cores are idle, yields when ranks outnumber cores, then sleeps.
 * Returns  as weft_ep_poll; 0 means that the time is over. */
WEFT_API int weft_ep_wait(struct weft_ep *ep, int64_t timeout_ns);

/* Poll [ep] until the 64-bit word at [word] (8-byte aligned, in memory that a peer puts to) is
 * >= [at_least], unsigned. [peer] may be null; otherwise its loss, as weft_peer_status reports it,
 * ends the wait.
 * A put does not wake a sleeping thread. After a bounded spin this call sleeps for at most 50 us at
 * a time (weft_words_wait need not), times at most the number of ranks per core where ranks
 * outnumber cores.
 * Returns  OK | ETIMEDOUT | what weft_peer_status returns for [peer] | EINVAL | ECONTEXT | EFORKED
 * Order    acquire: what was put before the signal is visible on OK. */
WEFT_API WEFT_MUST_USE enum weft_status weft_word_wait(struct weft_ep *ep, const uint64_t *word,
                                                       uint64_t at_least, struct weft_peer *peer,
                                                       int64_t timeout_ns);

enum weft_word_test {
    WEFT_WORD_GE = 0, /* unsigned */
    WEFT_WORD_EQ = 1,
    WEFT_WORD_NE = 2,
};

/* A condition on a 64-bit word: [test] compares its bits in [mask] with [value]. */
struct weft_word {
    const uint64_t *word; /* 8-byte aligned, in memory a peer puts to */
    uint64_t value;
    uint64_t mask;  /* 0: all bits */
    uint32_t test;  /* enum weft_word_test */
    uint32_t holds; /* set by the calls below: 1 if the condition holds, else 0 */
};

/* Test [count] words once; any thread. To sleep on weft_ep_fd: weft_ep_arm, test, and sleep only if
 * the condition does not hold; signals must be made with WEFT_SIGNAL_WAKE.
 * Returns  how many hold | EINVAL (a word's address, an unknown test; nothing is set)
 * Order    acquire: what was put before the signal of each word that holds is visible. */
WEFT_API int weft_words_test(struct weft_word *words, unsigned count);

enum weft_words_flags {
    /* Wait until all hold at the same time; otherwise until one does. */
    WEFT_WORDS_ALL = 1,
    /* All signals to these words are made with WEFT_SIGNAL_WAKE, so the call may sleep on the
     * endpoint's descriptor. A signal made without it is seen up to 10 ms late. */
    WEFT_WORDS_WOKEN = 2,
};

/* As weft_word_wait, for several words at once.
 *   words  [count] of them, at least one; [holds] is also set on ETIMEDOUT and on a peer's loss
 *   flags  enum weft_words_flags
 * Returns  as weft_word_wait; EINVAL also for unknown flags, a count of 0, and what
 *          weft_words_test refuses */
WEFT_API WEFT_MUST_USE enum weft_status weft_words_wait(struct weft_ep *ep, struct weft_word *words,
                                                        unsigned count, unsigned flags,
                                                        struct weft_peer *peer, int64_t timeout_ns);

/* A descriptor that polls readable when [ep] may have events after a
 * successful weft_ep_arm. Belongs to [ep]: never read, write or close it.
 * Returns  a descriptor; a negative weft_status: EINVAL | EFORKED */
WEFT_API int weft_ep_fd(struct weft_ep *ep);

/* Prepare to sleep on weft_ep_fd. The next weft_ep_poll disarms.
 * Returns  OK (armed: an event from now on makes the descriptor readable)
 *          | AGAIN (events are there: poll instead) | EINVAL | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_ep_arm(struct weft_ep *ep);

/* ---- peer ---- */

/* Make a peer from address bytes. Nothing is sent; the first use connects. Shared memory reaches
 * the endpoints of this node, user, network and PID namespace. TCP or RDMA reach all others, if
 * both processes have a key (WEFT_KEY_FILE, weft_ctx_set_key); the first use shows whether the keys
 * are equal.
 *   addr  [len] bytes from weft_ep_address; copied
 * Returns  OK | EINVAL (not an address) | EVERSION | EUNREACH (no transport reaches it; the log
 *          gives the reason of each, and what to change) | ENOMEM | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_peer_open(struct weft_ep *ep, const void *addr,
                                                       size_t len, struct weft_peer **out);

/* Close [peer] and drop its connection; over a network the connection stays until one of the two
 * endpoints is closed, for what was sent. Its remotes must have been closed and its operations have
 * completed, and the acknowledgement of messages received from it must have left (EBUSY: poll).
 * Receives that name it complete with WEFT_ECLOSED, unless another handle of the same endpoint is
 * open.
 * Returns  OK | EBUSY | EINVAL (also: a job owns it) | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_peer_close(struct weft_peer *peer);

/* OK while the peer is not known to be lost; otherwise the cause that peer_down reports. The cause
 * is returned from peer_down on, or from the first call on that returned it. Of a peer across a
 * network nothing is known before the first message or access in either direction.
 * EINVAL for null. EFORKED in a forked child. */
WEFT_API enum weft_status weft_peer_status(const struct weft_peer *peer);

/* A pointer of the caller, null at first. */
WEFT_API void weft_peer_set_arg(struct weft_peer *peer, void *arg);
WEFT_API void *weft_peer_arg(const struct weft_peer *peer);

/* ---- active messages ---- */

#define WEFT_AM_MAX_ARGS 16
#define WEFT_AM_HANDLERS 256      /* ids 0..255 */
#define WEFT_AM_USER_HANDLERS 240 /* ids 0..239 are the application's, others Weft's */

/* The argument of a handler. Valid until the handler returns. */
struct weft_am {
    struct weft_ep *ep;
    const void *data;     /* payload, in place, 16-byte aligned; its sender can
                           * still change it: copy before checking */
    uint32_t len;         /* payload bytes; of a reply at most reply_max - 1 of its request,
                           * unless the peer breaks the protocol: length and number of replies
                           * are what the peer sends */
    uint32_t reply_max;   /* longest reply payload; 0 in a reply or one-way request */
    const uint32_t *args; /* [nargs] words, a copy: no other process writes them */
    uint16_t nargs;
    uint8_t handler; /* the id it was sent to */
    uint8_t is_reply;
    uint8_t can_reply; /* 1: this request may be replied to, once */
    uint8_t reserved0[3];
    void *arg;         /* given at weft_am_register */
    void *token;       /* opaque, like serial; for the calls that take a weft_am */
    uint64_t long_len; /* weft_am_long: bytes at data; len is the same, or UINT32_MAX if more */
    uint64_t serial;
};

/* Runs inside the call that polls the endpoint, on the thread that polls; with WEFT_PROGRESS=thread
 * that may be a thread of the context ("progress"). May call weft_am_reply (once, if can_reply) or
 * weft_am_detach, weft_am_reply_later, weft_am_drop, weft_am_peer, weft_am_source, and put, get and
 * atomics on mapped memory. Every other call on an endpoint returns WEFT_ECONTEXT. */
typedef void (*weft_am_fn)(const struct weft_am *am);

/* Register [fn] for messages that arrive at [ep] with id [handler]; null removes it. A message
 * without a handler is dropped, counted, and logged once; if it is a request with a reply_max, its
 * sender's am_failed is called with EHANDLER.
 * Returns  OK | EINVAL (id above 239) | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_register(struct weft_ep *ep, unsigned handler,
                                                         weft_am_fn fn, void *arg);

/* Longest payload of a request or reply; at least 512, 4032 by default (WEFT_AM_MAX). */
WEFT_API size_t weft_am_max(const struct weft_ep *ep);

/* Send an active message to [peer].
 *   handler    id registered at the receiving endpoint, 0..239
 *   args       [nargs] words, 0..16; may be null when nargs is 0; copied
 *   data       [len] bytes, 0..weft_am_max; copied before the call returns
 *   reply_max  0: one-way, nothing is reserved. Otherwise room is reserved so that a reply of up to
 *              reply_max - 1 payload bytes (and 16 args) never waits: 1 = a reply without payload.
 * Returns  OK (sent, source reusable) | AGAIN (no room, nothing was begun: weft_ep_wait, then call
 *          again) | EINVAL (also: id above 239) | EMSGSIZE | EPEER | ECLOSED | EPROTO | ELIMIT
 *          | ECONTEXT | EFORKED
 *          | EUNREACH | EVERSION | ENOMEM | ESYSTEM (connecting failed; the log says how)
 * Order    none promised, also between two messages to one peer.
 * Blocks   never; the first message to a peer connects (a few system calls). Over a network another
 *          thread connects; if it fails, what was sent until then is lost: peer_down.
 * Leaves   at once through shared memory. To another host: once connected, which takes polls. Of
 *          more than eight messages between two polls the last ones may wait for the next call of
 *          weft_ep_poll, weft_ep_wait or weft_ep_arm. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_request(struct weft_peer *peer, unsigned handler,
                                                        const uint32_t *args, unsigned nargs,
                                                        const void *data, size_t len,
                                                        size_t reply_max);

#define WEFT_IOV_MAX 64 /* pieces of one operation */

/* As weft_am_request, with the payload gathered from [count] pieces. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_requestv(struct weft_peer *peer, unsigned handler,
                                                         const uint32_t *args, unsigned nargs,
                                                         const struct iovec *iov, unsigned count,
                                                         size_t reply_max);

/* Reply to the request being handled; from its handler only, at most once.
 *   len  at most am->reply_max - 1
 * Returns  OK | EINVAL (one-way; replied already; a reply; detached; or its handler has returned,
 *          also for a copy of *am) | EMSGSIZE | EPEER | EFORKED. Never AGAIN. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_reply(const struct weft_am *am, unsigned handler,
                                                      const uint32_t *args, unsigned nargs,
                                                      const void *data, size_t len);

/* A detached request: its reply is still due. The caller's memory, which may be copied. One copy
 * replies or drops; after that the others give EINVAL, while the endpoint is open. */
struct weft_am_later {
    struct weft_ep *ep; /* that received the request */
    uint64_t id;        /* opaque */
    uint32_t reply_max; /* longest reply + 1: the request's, but at most weft_am_max + 1 */
    uint32_t reserved;
};

#define WEFT_AM_LATER_MAX_ARGS 15

/* Detach the request being handled: its reply comes after its handler has returned. From its
 * handler only, instead of weft_am_reply. The sender may send as many other requests as before; a
 * program that bounds the detached requests of one sender counts by weft_am_peer or by the sender's
 * address.
 *   out  for one call of weft_am_reply_later or weft_am_drop, which must come before weft_ep_close
 *        (EBUSY), also if the sender is gone by then
 * Returns  OK | EINVAL (as weft_am_reply) | ELIMIT (WEFT_LATE_REPLIES of this endpoint are due or
 *          wait for room: reply at once) | ENOMEM | EFORKED. After a failure weft_am_reply may be
 *          called. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_detach(const struct weft_am *am,
                                                       struct weft_am_later *out);

/* Reply to a detached request. By the endpoint's owner, in a handler or outside of one. The sender
 * gets it as any other reply, unless it has closed all its peers for this endpoint.
 *   nargs  0..15, one less than weft_am_reply
 *   len    at most later->reply_max - 1; copied
 * Returns  OK (it leaves now, or when there is room: poll. While it waits, weft_ep_close, and
 *          weft_peer_close of the sender, return EBUSY. weft_ep_close gives up replies that have
 *          waited for WEFT_PEER_TIMEOUT, 10 s, for a sender that does not poll)
 *          | EPEER, ECLOSED or another state of the sender (no reply reaches it any more)
 *          | EINVAL (replied or dropped already, and as weft_am_reply) | EMSGSIZE | ENOMEM | ELIMIT
 *          | ESYSTEM | EFORKED: the reply is still due, unless EINVAL says that it is not.
 *          Never AGAIN.
 * Order    none promised, as for all active messages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_reply_later(const struct weft_am_later *later,
                                                            unsigned handler, const uint32_t *args,
                                                            unsigned nargs, const void *data,
                                                            size_t len);

/* Drop a detached request: its sender's am_failed is called with ECANCELED.
 * Returns  as weft_am_reply_later */
WEFT_API enum weft_status weft_am_drop(const struct weft_am_later *later);

/* Copy the address of the endpoint that sent the message being handled; as weft_ep_address. If the
 * message came through shared memory, or is a reply, the address lacks what other hosts need to
 * connect.
 * Returns  OK | EMSGSIZE | EINVAL (also: the handler has returned) | ECLOSED (a reply whose peer
 *          was closed) | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_source(const struct weft_am *am, void *buf,
                                                       size_t *len);

/* The sender of the message being handled, as a peer that the program opened; if it opened several
 * for the sender, one of them. weft_peer_arg gives the program's own pointer. A process cannot send
 * in the name of another one: the kernel vouches for local processes, the key for those across a
 * network, as far as all holders of the key are trusted.
 * Returns  null if this endpoint has no peer open for the sender, in a forked child, without memory
 *          (logged), and after the handler has returned */
WEFT_API struct weft_peer *weft_am_peer(const struct weft_am *am);

/* ---- memory ---- */

enum weft_access {
    WEFT_REMOTE_READ = 1,  /* peers get, and fetch by atomics */
    WEFT_REMOTE_WRITE = 2, /* peers put, and change by atomics */
    /* For the owner's own operations, if its context has WEFT_MR_LOCAL (weft/mr.h): */
    WEFT_SEND = 4,   /* send a message from there */
    WEFT_RECV = 8,   /* receive one there */
    WEFT_READ = 16,  /* be the target of a get or of a fetched value */
    WEFT_WRITE = 32, /* put from there */
};

/* Allocate [len] bytes, zeroed, page aligned when len >= a page and 64-byte aligned otherwise, that
 * peers on this node can map.
 * Across a network: if the context uses a NIC (RDMA) and has no authorization key (weft/mr.h), the
 * memory is registered with the NIC, as far as the limit on locked memory and WEFT_PINNED allow.
 * Then all its pages are pinned until it is closed, and peers put and get without this process.
 * Otherwise, and for atomics and signals, this process performs each access when it polls the
 * endpoint that the peer uses.
 *   access  enum weft_access: what is granted
 * Returns  OK | EINVAL (len 0, unknown access) | ENOMEM (also: more than memory and swap of this
 *          machine. Less may still be missing when it is written) | ELIMIT | ESYSTEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mem_alloc(struct weft_ctx *ctx, size_t len,
                                                       unsigned access, struct weft_mr **out);

enum weft_mem_type {
    WEFT_MEM_HOST = 0,
    WEFT_MEM_CUDA = 1,
    WEFT_MEM_ROCM = 2,
    WEFT_MEM_DMABUF = 3, /* named by a descriptor: weft_mr_regattr with WEFT_MR_DMABUF */
};

/* Grant peers access to [len] bytes of the caller's own memory at [addr]. No other process maps it:
 * peers on this node get from it by one copy through the kernel, without this process; this process
 * performs puts and atomics when it polls the endpoint that the peer uses. Across a network it is
 * as memory of weft_mem_alloc, which is faster within a node.
 *   addr    any mapped memory; stays the caller's, must stay mapped until close. After its pages
 *           were replaced (munmap and mmap, MADV_DONTNEED, truncation of a file) call
 *           weft_mr_refresh (weft/mr.h): NICs still use the old ones
 *   type    enum weft_mem_type; only host memory is supported
 *   access  enum weft_access
 * Returns  OK | EINVAL | EMEMTYPE | ENOMEM | ELIMIT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_register(struct weft_ctx *ctx, void *addr,
                                                         size_t len, unsigned type, unsigned access,
                                                         struct weft_mr **out);

WEFT_API void *weft_mr_base(const struct weft_mr *mr);
WEFT_API size_t weft_mr_length(const struct weft_mr *mr);

#define WEFT_KEY_MAX 128

/* Copy the key with which peers open [mr]; as weft_ep_address (WEFT_KEY_MAX).
 * Returns  also ENOTAVAIL (the region is still being registered: weft/mr.h) */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_key(const struct weft_mr *mr, void *buf,
                                                    size_t *len);

/* Close [mr] and free its memory. From then on every put or get of a peer on it fails with
 * WEFT_EKEY; one that is under way ends in memory that nobody uses any more, and fails too.
 * Blocks   never for another process. For another thread of this one that copies a piece (up to
 *          1 MiB) to or from it, which is how memory of weft_mr_register is put to, and how any is
 *          accessed across a network without NICs; and until no NIC accesses it any more.
 * Returns  OK | EINVAL | EFORKED
 *          | EBUSY (bound to an open counter or endpoint, being registered, or being refreshed;
 *          nothing changed) */
WEFT_API enum weft_status weft_mr_close(struct weft_mr *mr);

/* A peer's region, resolved once. The fields are for the inlined calls below; a program reads only
 * those whose comment says so. */
struct weft_remote {
    unsigned char *base; /* may be read: where the region is mapped here; null: it is not */
    uint64_t length;     /* may be read: bytes; one more than the highest offset */
    const uint64_t *gen_word;
    uint64_t gen;
    uint32_t access; /* may be read: WEFT_REMOTE_* granted */
    uint32_t flags;
    struct weft_peer *peer; /* may be read */
    uint64_t reserved[6];
};

/* Resolve [key] of [peer]'s process: asks its service thread and maps the region. Waits for that
 * thread at most WEFT_CONNECT_TIMEOUT (10 s): a stopped process is slow, not dead.
 * Across a network the call asks nothing and does not wait: the key of a closed region gives OK,
 * and the first operation ends with WEFT_EKEY. A put or get of 0 bytes asks nothing, and is OK.
 * Returns  OK | EKEY (closed or unknown) | EINVAL (also: bytes that are not, or no longer, those of
 *          a key, which has a checksum) | EPEER | ECLOSED | ETIMEDOUT (nothing changed) | EPROTO
 *          | EUNREACH | ENOMEM | ESYSTEM | ELIMIT | ECONTEXT | EVERSION | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_remote_open(struct weft_peer *peer, const void *key,
                                                         size_t key_len, struct weft_remote **out);

/* One operation in flight. Memory is the caller's, zeroed before its first use. It is lent to Weft
 * from a call that returned PENDING until status is no longer PENDING. A call that returns OK sets
 * status to OK and is finished with it: done is not called. A call that returns anything else
 * leaves it alone, unless a comment says otherwise: AGAIN and failures begin nothing. */
struct weft_op {
    int32_t status; /* enum weft_status; written by Weft, read after polling */
    uint32_t flags; /* 0 */
    void *user;     /* the caller's, never touched */
    /* May be null. Called once for each call that returned PENDING, when the operation has
     * completed and [op] is the caller's again: while polling ("progress" says on which thread), or
     * from the call that ends it. The rules of a handler apply. */
    void (*done)(struct weft_op *op);
    uint64_t len;             /* received messages: see weft/msg.h */
    uint64_t tag;             /* alike */
    struct weft_peer *source; /* alike */
    void *entry_;             /* Weft's, while PENDING */
    /* If the context has WEFT_MR_LOCAL (weft/mr.h), else ignored; read by the call: */
    struct weft_mr *local;         /* the region of the local buffers */
    struct weft_mr *const *locals; /* or one for each of the pieces; null: [local] for all */
    uint64_t reserved[3];
};

/* Resolve [key] as weft_remote_open, without waiting: for event loops, and for owners that may be
 * stopped.
 *   out  set when this returns OK, or when [op] completes with OK; lent until then
 *   op   lent while PENDING
 * Returns  OK (*out is set; op->status is OK, too) | PENDING | EINVAL (also: op is null)
 *          | otherwise as weft_remote_open, but never ETIMEDOUT
 * Later    op->status: OK | EKEY | EPEER | ECLOSED (the owner's process died or left) | ECANCELED
 *          | ENOMEM | ELIMIT | EPROTO. There is no time limit: a stopped owner answers when it
 *          continues. Until then weft_peer_close returns EBUSY.
 * Blocks   never. The answer is an event of the endpoint. Across a network OK at once. */
WEFT_API WEFT_MUST_USE enum weft_status weft_remote_open_start(struct weft_peer *peer,
                                                               const void *key, size_t key_len,
                                                               struct weft_remote **out,
                                                               struct weft_op *op);
/* Cancel the weft_remote_open_start of [op]: it completes with ECANCELED, its done is called from
 * here, and its out is not set.
 * Returns  OK (also if it has completed: see op->status) | EINVAL (not such an operation of [ep])
 *          | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_remote_open_cancel(struct weft_ep *ep, struct weft_op *op);

/* Close [remote]: none of its inlined calls may be under way. Its memory is freed, so closing it
 * twice is undefined.
 * Returns  OK | EINVAL (null) | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_remote_close(struct weft_remote *remote);

/* Poll [ep] until [op] has completed or [timeout_ns] has passed (negative: no limit). An op that
 * was never started is complete.
 * Returns  the operation's status (its done has returned) | PENDING (the time is over) | EINVAL
 *          | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_op_wait(struct weft_ep *ep, struct weft_op *op,
                                                     int64_t timeout_ns);

/* Handle every result of a call that takes an op:
 *
 *     do
 *         s = weft_op_finish(ep, weft_put(r, 0, data, len, &op), &op, -1);
 *     while (s == WEFT_AGAIN);
 *
 *   status  what the call on [ep] that got [op] returned. PENDING: waits as weft_op_wait. AGAIN:
 *           waits for an event as weft_ep_wait, which may be room; the operation was not begun, so
 *           make the call again. Anything else is returned as it is
 *   op      may be null unless [status] is PENDING
 * Returns  OK | the operation's failure | PENDING (begun; the time is over) | AGAIN (not begun:
 *          call again; also when the time is over) | [status] | EINVAL | ECONTEXT | EFORKED |
 * ESYSTEM Blocks   at most [timeout_ns]; negative: no limit. Runs handlers. */
WEFT_API WEFT_MUST_USE enum weft_status weft_op_finish(struct weft_ep *ep, enum weft_status status,
                                                       struct weft_op *op, int64_t timeout_ns);

/* The out-of-line part of the inlined calls; not for programs. */
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

/* Weft does not see inlined accesses: a program compiled with WEFT_COUNT_INLINE counts its own,
 * into the rows INLINE_* of weft_stat_rows (for all contexts together). */
WEFT_API extern uint64_t weft_inline_counts_[3]; /* put, get, atomic */
#ifdef WEFT_COUNT_INLINE
#define WEFT_COUNT_(i) ((void)__atomic_fetch_add(&weft_inline_counts_[i], 1, __ATOMIC_RELAXED))
#else
#define WEFT_COUNT_(i) ((void)0)
#endif

/* Is [r] mapped, alive, and [offset, offset + len) inside it, with [access]? */
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

/* Complete within the call. Compiles to nothing where [op] is a null constant. */
WEFT_INLINE enum weft_status weft_op_ok_(struct weft_op *op)
{
    if (op)
        op->status = WEFT_OK;
    return WEFT_OK;
}

/* One store or load for the sizes that have one: an aligned word never tears. */
WEFT_INLINE void weft_copy_(void *dst, const void *src, size_t len)
{
    switch (len) {
    case 0: break;
    case 8: memcpy(dst, src, 8); break;
    case 4: memcpy(dst, src, 4); break;
    case 16: memcpy(dst, src, 16); break;
    default: memcpy(dst, src, len);
    }
}

/* Copy [len] bytes from local memory into a peer's region.
 *   r       open remote whose endpoint the calling thread owns
 *   offset  bytes from the region's start; offset + len <= r->length
 *   src     [len] bytes, any memory; lent until completion
 *   op      the caller's, lent while PENDING; null: only a flush reports it
 * Returns   OK (visible at the target to everything ordered after; op->status is OK, too)
 *           | PENDING (begun; op completes) | AGAIN (no room; nothing was begun: weft_ep_wait, then
 *           call again) | EINVAL (also: r is null) | ERANGE | EACCESS | EKEY | EFORKED
 *           | what weft_peer_status returns for r->peer
 *           If the region is not mapped here, also ENOMEM | ELIMIT (1,048,575 operations are
 *           under way) | ECONTEXT (in a handler).
 *           A failure other than ERANGE, EACCESS and EINVAL may have written part of the bytes to
 *           memory that no longer belongs to the region.
 * Order     none among puts; weft_put_signal and weft_flush order.
 * Blocks    never. Within a node: two checks and a copy, inlined. Across a network PENDING: done by
 *           the NICs, without the target, if the region is registered with one (a long source is
 *           first registered here, by system calls, and stays registered); otherwise by the target
 *           when it polls its endpoint.
 * Replay    If the connection breaks, an incomplete put by NICs is done again, all of it, unless
 *           the target's NIC reports that it was done; a NIC that has failed reports nothing, nor
 *           do some drivers. The same for a long put whose rest cannot be registered. So nobody,
 *           the target and its atomics included, may write to these bytes before the put is
 *           reported complete (by weft_put_signal or weft_am_long, or by a message sent after
 *           completion): the replay could overwrite it. */
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

/* Copy [len] bytes from a peer's region into local memory; as weft_put, with WEFT_REMOTE_READ. A
 * replay does no harm. After a failure dst is undefined. */
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
    WEFT_SIGNAL_ADD = 1, /* add it; atomic among all signals to the word */
    /* Either of them, and wake the target: the signal is an event at the peer's endpoint, so it
     * ends weft_ep_wait there and makes weft_ep_fd readable, on every transport. Without it a word
     * that is mapped here changes without notice to its owner. */
    WEFT_SIGNAL_WAKE = 2,
};

/* Put, then update an 8-byte word of the same peer. Whoever sees the new value of the word
 * (weft_word_wait, or an acquire load) sees the data.
 *   len         0: only the signal
 *   sig         remote that holds the word, may be r; WEFT_REMOTE_WRITE
 *   sig_offset  multiple of 8
 *   how         enum weft_signal
 * Returns   as weft_put; if either check before the copy fails, nothing is written. Across a
 *           network the data are put before a closed region of the word is noticed.
 * Wakes     with WEFT_SIGNAL_WAKE: costs a message and its answer, an event at the target, also
 *           within a node, and a system call if the target sleeps. It is PENDING as a put across a
 *           network is; ELIMIT, ENOMEM and ECONTEXT (in a handler) change nothing. If both regions
 *           are mapped here, data and word are in place when it returns PENDING, and it never
 *           returns AGAIN: without an op the message waits for room.
 * Blocks    as weft_put. Across a network the target updates the word, once, when the data are
 *           complete and it polls its endpoint. */
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

/* Put or get [count] pieces of local memory, one after the other, to or from
 * the peer's region from [offset] on; as weft_put and weft_get. */
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

/* [old] is the word's old value. No cast to the type it already has. */
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

/* Returns the word's old value. [word] is aligned; [operation] and [type] are valid. */
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

/* Change a word of a peer's region atomically with respect to all other atomics on it, of any
 * process. Processors of the owner's node perform all atomics on a region (one domain), so the
 * owner may use its own atomic instructions too. If the owner chose WEFT_MR_NIC_ATOMICS
 * (weft/mr.h), its NIC performs them, and the owner may not.
 *   offset     multiple of the word's size
 *   operation  enum weft_atomic
 *   type       enum weft_atomic_type: how wide, and how MIN and MAX compare
 *   operand    its low 32 bits for the 32-bit types
 *   compare    for CAS, else ignored
 *   fetched    null, or where the word's old value goes (of a 32-bit word:
 *              sign- or zero-extended by its type); lent until completion
 *   op         as in weft_put
 * Needs      WEFT_REMOTE_WRITE, and WEFT_REMOTE_READ if [fetched] is given.
 * Returns    as weft_put. A failure after the check may have changed memory that no longer belongs
 *            to the region. With WEFT_MR_NIC_ATOMICS also ENOSYS (the NIC does not perform it, or
 *            the peer is not reached by RDMA) | EUNREACH (weft_peer_status is OK, but the
 *            connection goes by TCP at present: nothing was done, try again)
 * Once       It is never done twice. If the connection breaks before the end of one by a NIC is
 *            known here, it ends with ELOST: it was done or it was not, and it will not be done any
 *            more; the word may tell. (A put is replayed instead.) Atomics by processors never end
 *            like this; if the peer died it is not known either. */
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
 * data are those bytes in place; of a region of several buffers, or whose pages may be missing, a
 * copy. len has no limit of its own.
 *   handler, args, nargs, reply_max  as weft_am_request
 *   offset, src, len                 as weft_put
 *   op                               as weft_put: completes when src may be reused
 * Returns  as weft_put | ELIMIT | EMSGSIZE (reply_max) as weft_am_request
 *          With op null also AGAIN: no message was sent and nothing is under way, but part may have
 *          been written: call again with the same arguments.
 *          OK, or an op's OK, does not mean that the handler ran. If the owner closed the region
 *          meanwhile (across a network with len 0 also: before), it drops the message and logs it.
 * Order    the handler runs after the bytes are there; nothing else. */
WEFT_API WEFT_MUST_USE enum weft_status weft_am_long(struct weft_remote *r, uint64_t offset,
                                                     const void *src, size_t len, unsigned handler,
                                                     const uint32_t *args, unsigned nargs,
                                                     size_t reply_max, struct weft_op *op);

/* When this returns OK or [op] completes, every put, get and atomic to [peer] that was started
 * before is complete, those without an op included. They are then also visible to a thread that
 * synchronises by plain loads and stores both ways (a full fence within a node).
 *   op  may be null: then PENDING means to poll (weft_ep_wait) and call again
 * Returns  OK (op->status is OK, too) | PENDING (only if something was) | the first failure of an
 *          operation without op | what weft_peer_status returns | EINVAL | EFORKED | ENOMEM |
 *          ELIMIT | ECONTEXT */
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

/* The way an operation takes. Strings are static. */
struct weft_path {
    const char *transport; /* "shm", "rdma", "tcp", "loop" */
    const char *protocol;  /* "inline", "eager", "pull", "pieces", "bulk", "rdma write", ... */
    const char *why;       /* a sentence */
    uint32_t copies;       /* of each payload byte, from the source to where it is used;
                            * "bulk" has no copies but those of sockets */
    uint32_t inlined;      /* 1: done in the caller's code, and counted only
                            * with WEFT_COUNT_INLINE */
    uint64_t reserved[4];
};

/* The way that an operation of [len] bytes to [peer] takes, by the same function that chooses it.
 *   operation  enum weft_operation
 *   r          the region, for PUT, GET, ATOMIC and AM_LONG; else null
 * Returns  OK | EINVAL | EMSGSIZE (too long for it) | what weft_peer_status returns | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_path_of(struct weft_peer *peer, unsigned operation,
                                                     const struct weft_remote *r, size_t len,
                                                     struct weft_path *out);

/* Set how many ranks share this node's cores; a job does so itself. If ranks outnumber cores, waits
 * yield early. */
WEFT_API void weft_ctx_set_local_ranks(struct weft_ctx *ctx, unsigned ranks);

/* Call [row] for every variable: name, value in force, default, and what it does. Strings are valid
 * during the call. */
typedef void (*weft_config_row_fn)(void *arg, const char *name, const char *value, const char *dflt,
                                   const char *doc);
WEFT_API void weft_config_rows(weft_config_row_fn row, void *arg);

/* Call [row] for every counter of [ctx] (sums over open and closed endpoints). Any thread; each
 * value is that of its endpoint's last poll. */
typedef void (*weft_stat_row_fn)(void *arg, const char *name, uint64_t value, const char *doc);
WEFT_API void weft_stat_rows(const struct weft_ctx *ctx, weft_stat_row_fn row, void *arg);

/* Call [row] for every transport that is built in: its name, whether it can be used here, and why
 * not or what limits it. */
typedef void (*weft_transport_row_fn)(void *arg, const char *name, int usable, const char *note);
WEFT_API void weft_transport_rows(weft_transport_row_fn row, void *arg);

/* Call [row] for every port of every RDMA device here: its name, such as "mlx5_0:1"; why a context
 * would not use it, in a word or two, or null; and a description. The variables apply. No row
 * without such a device. Strings are valid during the call. */
typedef void (*weft_device_row_fn)(void *arg, const char *name, const char *why_not,
                                   const char *note);
WEFT_API void weft_device_rows(weft_device_row_fn row, void *arg);

/* What an RDMA device holds for a context: [row] is called once for each kind of object, with their
 * number and bytes: for queues the sizes that the device reports, at 64 bytes an entry; for memory
 * regions what is registered. No row without such a device. Any thread. */
typedef void (*weft_resource_row_fn)(void *arg, const char *name, uint64_t count, uint64_t bytes);
WEFT_API void weft_resource_rows(const struct weft_ctx *ctx, weft_resource_row_fn row, void *arg);

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
WEFT_LAYOUT_(sizeof(struct weft_am) == 72);
WEFT_LAYOUT_(offsetof(struct weft_am, args) == 24);
WEFT_LAYOUT_(offsetof(struct weft_am, arg) == 40);
WEFT_LAYOUT_(sizeof(struct weft_ctx_params) == 120);
WEFT_LAYOUT_(sizeof(struct weft_ep_params) == 120);

#ifdef __cplusplus
}
#endif

#endif
