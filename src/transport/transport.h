/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between the core and a transport.
 *
 * A transport moves active messages between endpoints and maps or moves remote
 * memory. It knows addresses, never ranks, and calls the core only through
 * struct wf_tep_events. tests/contract runs one suite over every transport.
 *
 *   wf_tctx   the transport's part of a context; any thread
 *   wf_tep    the transport's part of an endpoint; the endpoint's owner
 *   wf_tpeer  the transport's part of a peer, embedded by the core in its peer
 *             object; the endpoint's owner
 *
 * Each transport embeds the base structs at the start of its own.
 *
 * Rules that every transport keeps:
 *  1. request never blocks. OK means the message is on its way and the source
 *     is the caller's again; AGAIN means nothing was started; a failure status
 *     is the peer's state.
 *  2. reply never fails for want of room: the request reserved it.
 *  3. A payload handed to [events->deliver] stays unchanged by the transport
 *     until deliver returns, also if deliver sends a reply.
 *  4. poll delivers each message exactly once, does bounded work per call, and
 *     is never called from inside deliver. After a long idle time it may look for
 *     messages only at every 16th call.
 *  5. After [events->peer_down] for a peer nothing of it is delivered; what it
 *     had sent is delivered before. After EPEER its memory is not touched again
 *     (closing one endpoint leaves its process's regions as they are).
 *  6. arm returns OK only if an event that comes after it makes the endpoint's
 *     event descriptor readable; what came before makes it return AGAIN.
 *  7. A transport's own threads never touch the data path.
 *  8. Requests of one tpeer to Weft's own handlers (WEFT_AM_USER_HANDLERS and up)
 *     are delivered in the order in which they were sent, WEFT_DEBUG=shuffle or not. */
#ifndef WF_TRANSPORT_TRANSPORT_H
#define WF_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/address.h"

struct wf_transport;
struct wf_tctx;
struct wf_tep;
struct wf_tpeer;
struct wf_token;
struct wf_mem;
struct wf_dmabuf;

/* Capabilities are data; the core looks at them when a peer is opened. */
enum wf_transport_caps {
    WF_CAP_MAPS = 1,  /* remote_map gives a base address: put and get are copies */
    WF_CAP_SLEEP = 2, /* arm works */
    WF_CAP_BULK = 4,  /* request_bulk and reply_bulk work */
    WF_CAP_NIC = 8,   /* region_open, region_close and move work */
};

/* What a NIC is to reach: a mapping, or the dma-buf behind it. */
struct wf_nic_memory {
    void *addr;
    size_t len;
    const struct wf_dmabuf *dmabuf; /* null: none */
};

#define WF_AM_WHAT(handler, nargs) ((unsigned)(handler) | (unsigned)(nargs) << 8)
#define WF_AM_HANDLER(what) ((what)&0xff)
#define WF_AM_NARGS(what) ((what) >> 8)

/* A message on its way out, for transports' own use beyond their fast path.
 * Everything is lent for the call and was checked: nargs <= 16, len <= am_max,
 * reply_max <= am_max + 1. */
struct wf_am_out {
    const uint32_t *args;
    const void *data;
    uint32_t len;
    uint32_t reply_max; /* as weft_am_request: 0 one-way, else longest reply + 1 */
    uint16_t nargs;
    uint8_t handler;
};

static inline struct wf_am_out wf_am_out(unsigned handler, const uint32_t *args, unsigned nargs,
                                         const void *data, size_t len, size_t reply_max)
{
    return (struct wf_am_out){
        args, data, (uint32_t)len, (uint32_t)reply_max, (uint16_t)nargs, (uint8_t)handler};
}

/* A message whose payload the transport moves between the memory of the two processes,
 * without a copy of its own. Each time it is about to touch payload it asks the core where
 * that is now (bulk_hold): the answer can be "nowhere any more". */
struct wf_bulk {
    const uint32_t *args;
    uint32_t len; /* 1 .. WF_BULK_MAX */
    uint16_t nargs;
    uint8_t handler; /* one of Weft's own */
    uint8_t is_reply;
    uint32_t ref[8];        /* outgoing: the core's words, which do not travel */
    struct wf_token *token; /* incoming: as in deliver; null: outgoing */
};

#define WF_BULK_MAX ((uint32_t)1 << 20)

/* Bytes that the NICs of the two processes move between this one's memory and a region of the
 * other's, without a call there; or a word there that the other's NIC changes. */
#define WF_MOVE_COPIED 4096u /* up to so many bytes are copied on this side */

enum wf_move_kind {
    WF_MOVE_PUT,
    WF_MOVE_GET,
    WF_MOVE_ADD, /* the two atomics that NICs have, of 8 bytes; not in parts */
    WF_MOVE_CAS,
};

struct wf_move {
    void *local;               /* of an atomic nothing */
    size_t len;                /* not 0; of an atomic 8 */
    uint64_t remote;           /* as the other side's NIC calls it; of an atomic a multiple of 8 */
    uint64_t operand, compare; /* of an atomic, as weft_atomic's */
    const uint32_t *keys;      /* the region's nic_key */
    uint32_t id;               /* to be told with the end (events->moved) */
    uint8_t kind;              /* enum wf_move_kind */
    bool fetches;              /* an atomic: the old value is wanted */
    bool waits;                /* for a connection: AGAIN until there is one */
};

static inline bool wf_move_is_atomic(const struct wf_move *m)
{
    return m->kind >= WF_MOVE_ADD;
}

/* What a message is to follow, and then what names this one: a place in one of a transport's
 * ways to a peer. lane 0: nothing. */
struct wf_order {
    uint32_t lane; /* one more than its index */
    uint32_t number;
};

/* What the core implements. All run on the endpoint's owner, inside poll. */
struct wf_tep_events {
    /* A message is here. [am]'s ep and arg are the core's to fill; [am] and its
     * payload are lent for the call. */
    void (*deliver)(void *owner, struct weft_am *am);
    /* [tpeer] cannot be reached any more; at most once per peer. */
    void (*peer_down)(void *owner, struct wf_tpeer *tpeer, enum weft_status why);
    /* A connection whose word (struct wf_token, conn) the core had set is gone:
     * everything of it was delivered. */
    void (*conn_down)(void *owner, void *conn);
    /* Where payload bytes [at, at + *n) of [bulk] are; may lower *n, not to 0. Null: nowhere.
     * Else bulk_unhold follows, before anything else is asked. Also outside of poll. */
    void *(*bulk_hold)(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
    void (*bulk_unhold)(void *owner, const struct wf_bulk *bulk);
    /* A move with that id is over. OK | EKEY (the other NIC refused key or range: nothing was
     * moved) | EUNREACH (its connection is lost: some of it may have been moved, nothing of it
     * moves any more). Not told of moves to a peer of which peer_down is told.
     * An atomic is never done in part or twice: OK ([old]: what it found, if it fetches) | EKEY
     * (not done) | EUNREACH (lost with its connection: not done, and will not be) | ELOST (lost
     * alike, but it may have been done). */
    void (*moved)(void *owner, uint32_t id, enum weft_status status, uint64_t old);
    /* The first [n] of those to [tpeer] that [put] took, of which it was not told yet, are done; or
     * their connection is lost, as with moved ([refused]: the first of them is EKEY). As there, not
     * told after peer_down. */
    void (*put_done)(void *owner, struct wf_tpeer *tpeer, uint32_t n);
    void (*put_lost)(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);
    /* Regions for which remote_map said PENDING may be mapped now. */
    void (*mapped)(void *owner);
};

struct wf_tctx_params {
    struct wf_mem *mem; /* outlives the tctx */
    const struct wf_process_id *self;
    uint64_t life;    /* wf_life_is(life) is false in a forked child */
    bool network;     /* a key will be set */
    const char **why; /* ctx_open that returns EUNREACH sets it: a literal for the log. Null: nobody
                       * asks */
};

static inline enum weft_status wf_tctx_useless(const struct wf_tctx_params *params, const char *why)
{
    if (params->why)
        *params->why = why;
    return WEFT_EUNREACH;
}

struct wf_tep_params {
    const struct wf_tep_events *events;
    void *owner; /* handed to events */
    struct wf_address address;
    int event_fd; /* eventfd(2), nonblocking: readable wakes the owner; outlives the tep */
    int epoll_fd; /* the owner sleeps on it; a transport may add descriptors, whose data.ptr it
                   * does not look at; -1: on event_fd alone */
    uint32_t am_max;
    uint64_t *counters; /* wf_stat indices, written by the owner only */
};

struct wf_tctx {
    const struct wf_transport *transport;
    bool nic_atomics;  /* its NIC does atomics on regions for others; constant */
    uint32_t close_ms; /* the core's: how long ep_close and ctx_close may wait for peers that are
                        * far or slow; 0: WEFT_PEER_TIMEOUT */
};

struct wf_tep {
    const struct wf_transport *transport;
    const struct wf_tep_events *events;
    void *owner;
    uint64_t *counters;
    int event_fd;
    uint32_t am_max;
};

struct wf_tpeer {
    struct wf_tep *tep;
};

/* The message being delivered. In the transport's part of the endpoint, so that the core may look
 * at it when a program's copy of struct weft_am outlives its handler: the serial has moved on. */
struct wf_token {
    uint64_t serial; /* as the message's; the transport counts it up for each message that may be
                      * replied to, and when what else is in here changes or goes */
    struct wf_tep *tep;
    void **conn;            /* of a request: the core's word for the connection it came on,
                             * null at first */
    struct wf_tpeer *tpeer; /* of a reply: whom the request went to */
    uint32_t reply_room;    /* longest reply payload */
    uint8_t can_reply; /* enum wf_reply_state; not NONE when deliver returns: the transport gives
                        * the place back */
};

enum wf_reply_state {
    WF_REPLY_NONE,     /* none is due: one-way, a reply, or the core has replied */
    WF_REPLY_DUE,      /* set by the transport */
    WF_REPLY_DETACHED, /* the core will reply by a message of its own */
};

struct wf_transport {
    const char *name;
    unsigned caps;
    size_t tpeer_size; /* bytes the core sets aside in a peer */

    /* One line for `weft info`: usable here? Writes why not, or what limits it. */
    int (*probe)(char *note, size_t room);
    /* The devices there are, as weft_device_rows. Null: it uses none. */
    void (*devices)(weft_device_row_fn row, void *arg);

    /* EUNREACH: it is of no use here (params->why), and the context goes without it. */
    enum weft_status (*ctx_open)(const struct wf_tctx_params *params, struct wf_tctx **out);
    void (*ctx_close)(struct wf_tctx *tctx); /* all teps are closed */
    /* Null: it needs none. Once; any thread. OK | EBUSY (it has one) */
    enum weft_status (*set_key)(struct wf_tctx *tctx, const uint8_t *key);
    /* How other nodes call this process; null: they cannot. */
    const struct wf_contact *(*contact)(struct wf_tctx *tctx);

    /* What a device holds for it, a row each. Null: nothing. Any thread. */
    void (*resources)(struct wf_tctx *tctx, weft_resource_row_fn row, void *arg);

    enum weft_status (*ep_open)(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                struct wf_tep **out);
    void (*ep_close)(struct wf_tep *tep); /* all tpeers are closed */

    /* OK if this transport can take messages to [addr], else EUNREACH with the
     * reason, a literal, in *why. */
    enum weft_status (*reach)(struct wf_tctx *tctx, const struct wf_address *from,
                              const struct wf_address *to, const struct wf_contact *contact,
                              const char **why);

    /* [tpeer] is tpeer_size zeroed bytes. Sends nothing. */
    enum weft_status (*peer_open)(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                  const struct wf_address *to, const struct wf_contact *contact);
    void (*peer_close)(struct wf_tpeer *tpeer); /* all its remotes are unmapped */

    /* Rule 1. Connects on first use. The parameters of weft_am_request, checked; [what] is
     * WF_AM_WHAT(handler, nargs): so all of them are in registers (wf_shm_request). */
    enum weft_status (*request)(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
    /* Rule 2. Inside deliver only, once per token. OK | a state of the peer */
    enum weft_status (*reply)(struct wf_token *token, const struct wf_am_out *out);
    /* The sender of the message being delivered; *contact as it was zeroed: none. */
    void (*source)(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);

    /* As request and reply, with the payload where the core says. At the other side deliver gets
     * no data and len 0; long_len is the payload's length if all of it found a place, else 0.
     * Null without WF_CAP_BULK. */
    enum weft_status (*request_bulk)(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                     size_t reply_max, struct wf_order *order);
    enum weft_status (*reply_bulk)(struct wf_token *token, const struct wf_bulk *bulk);
    /* As request, to one of Weft's own handlers, but not bound by rule 8: it is delivered
     * after what *order names, if that is anything; then *order names this. (So does
     * request_bulk, if [order] is not null.) Null: rule 8 is all there is. */
    enum weft_status (*request_ordered)(struct wf_tpeer *tpeer, struct wf_order *order,
                                        unsigned handler, const uint32_t *args, unsigned nargs,
                                        const void *data, size_t len, size_t reply_max);

    /* Has a request that rule 8 orders left this process, so that it arrives though this endpoint
     * is not polled again? Sends what can be sent. True: it has, or never will. (If its connection
     * breaks later it needs that poll after all; encrypted, what follows it must have left, too, or
     * it must have been acknowledged.) order->lane 0: this asks of [tpeer]'s last one, and *order
     * names it afterwards, if there was one. Null: true, as soon as request returned OK. */
    bool (*is_away)(struct wf_tpeer *tpeer, struct wf_order *order);

    /* Events handled. Rule 4. */
    int (*poll)(struct wf_tep *tep);
    enum weft_status (*arm)(struct wf_tep *tep); /* rule 6: OK | AGAIN */
    void (*disarm)(struct wf_tep *tep);

    /* The caller waits for what only [tpeer] can begin: its loss must be told (peer_down), also
     * where nothing was exchanged yet. Once it returned OK it is. Null: it is. OK | ENOMEM | a
     * state of the peer */
    enum weft_status (*heed)(struct wf_tpeer *tpeer);

    /* The next open tpeer of [address] from place *at on, 0 at first; null: no more. Linear; not a
     * hot path. */
    struct wf_tpeer *(*find)(struct wf_tep *tep, const struct wf_address *address, uint32_t *at);
    /* [tpeer]'s address, as given to peer_open. */
    void (*address)(const struct wf_tpeer *tpeer, struct wf_address *out);

    /* Are the two of the same address? Null: only if they are the same. [a] may be null. */
    bool (*is_same)(const struct wf_tpeer *a, const struct wf_tpeer *b);

    /* Copy [len] bytes from address [src] of [tpeer]'s process, which lent them
     * to this call, to [dst]; done when it returns. len <= WF_PULL_MAX.
     * OK | EUNREACH (not allowed here: use messages) | EPEER, ECLOSED (its process is
     * gone) | EPROTO (there is no such memory) */
    enum weft_status (*pull)(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len);

    /* Resolve [key]: sets length, gen_word, gen and access of [remote], and base,
     * unless the region is not to be mapped (WF_KEY_PRIVATE). Never waits.
     *   *cookie  null at first; for remote_unmap. A failure leaves it null
     * PENDING: the peer's process is asked. Call again with the same arguments after
     * [events->mapped], or give up by remote_unmap. */
    enum weft_status (*remote_map)(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie);
    /* Wait until remote_map would say something else than PENDING, without polling. OK | ETIMEDOUT
     * at [until_ns]. Null where it never says that. */
    enum weft_status (*remote_wait)(struct wf_tpeer *tpeer, void *cookie, uint64_t until_ns);
    void (*remote_unmap)(struct wf_tpeer *tpeer, void *cookie);

    /* Let the NICs of others read or write (enum weft_access) [memory] of this process, and change
     * it by atomics (WF_ACCESS_ATOMIC, where nic_atomics says so), which stays until region_close;
     * any thread. Null without WF_CAP_NIC. *at: what they call its first byte, as nothing else of
     * this context was called or will be; [keys]: as a key's nic_key, one for each NIC, not all 0.
     * OK | ELIMIT (logged: what may be locked is spent) | another reason why not */
    enum weft_status (*region_open)(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                    unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                    void **handle);
    /* Nobody reaches it any more when this returns. */
    void (*region_close)(struct wf_tctx *tctx, void *handle);
    /* Move the first bytes of [m]: *taken of them, of which moved tells once, in poll. Until then
     * they are the NIC's. Connects on first use: EUNREACH until that is done, unless [m] waits.
     * OK | AGAIN (nothing was taken) | ENOMEM | EFAULT | EUNREACH (not like this) | ENOSYS (an
     * atomic: one of the NICs does none) | a state of the peer */
    enum weft_status (*move)(struct wf_tpeer *tpeer, const struct wf_move *m, size_t *taken);

    /* Short bytes to [remote], as move's, by the first of keys; [src] is free when it returns.
     * False: nothing was done, and move may do it. Null without WF_CAP_NIC. */
    bool (*put)(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key);

    /* All puts to [tpeer] are visible at its process. */
    enum weft_status (*flush)(struct wf_tpeer *tpeer);

    /* Can [tpeer] be reached? OK or why not; not a hot path. */
    enum weft_status (*status)(struct wf_tpeer *tpeer);
    /* The failure that calls on [tpeer] return, from the first that did: the peer_down that
     * follows may be still to come. Else OK. By its owner, cheap. Null: peer_down comes first. */
    enum weft_status (*failed)(const struct wf_tpeer *tpeer);
};

#define WF_PULL_MAX ((size_t)1 << 20)
#define WF_ACCESS_ATOMIC 0x100u /* of region_open, beside enum weft_access */

extern const struct wf_transport wf_loop_transport;
extern const struct wf_transport wf_shm_transport;
#ifdef WF_HAVE_TCP
extern const struct wf_transport wf_tcp_transport;
#endif
#ifdef WF_HAVE_VERBS
extern const struct wf_transport wf_rdma_transport;
#endif

#endif
