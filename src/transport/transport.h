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
 *  1. request never blocks. OK: the message will be delivered, and its payload is the
 *     caller's again. AGAIN: nothing was started. A failure is the peer's state.
 *  2. reply never fails for lack of room: the request reserved it.
 *  3. The transport does not change a payload that it hands to [events->deliver] until
 *     deliver returns, even if deliver sends a reply.
 *  4. poll delivers each message exactly once, does bounded work per call, and is never
 *     called from inside deliver. After a long idle time it may look for messages at every
 *     16th call only.
 *  5. After [events->peer_down] for a peer no message of it is delivered; messages that it
 *     had sent are delivered before. After EPEER its memory is not touched again (closing
 *     one endpoint does not affect its process's regions).
 *  6. arm returns OK only if each later event makes the endpoint's event descriptor
 *     readable. If an event came before, it returns AGAIN.
 *  7. A transport's own threads never touch the data path.
 *  8. Messages that request_ordered sends to one tpeer are delivered in the order in which
 *     they were sent, with WEFT_DEBUG=shuffle, too. */
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
    WF_CAP_NIC = 8,   /* region_open, region_close and nic_op work */
    WF_CAP_PULL = 16, /* pull works, and a peer's pull from here */
};

/* Memory that a NIC is to reach: a mapping, or the dma-buf behind it. */
struct wf_nic_memory {
    void *addr;
    size_t len;
    const struct wf_dmabuf *dmabuf; /* null: none */
};

#define WF_AM_WHAT(handler, nargs) ((unsigned)(handler) | (unsigned)(nargs) << 8)
#define WF_AM_HANDLER(what) ((what)&0xff)
#define WF_AM_NARGS(what) ((what) >> 8)

/* An outgoing message, for transports' own use beyond their fast path. Everything is lent for
 * the call and was checked: nargs <= 16, len <= am_max, reply_max <= am_max + 1. */
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

/* A control message whose payload the transport moves between the memory of the two processes,
 * without a copy of its own. Each time it is about to touch payload it asks the core where
 * that is now (bulk_hold): the memory may be gone. */
struct wf_bulk {
    const uint32_t *args;
    uint32_t len; /* 1 .. WF_BULK_MAX */
    uint16_t nargs;
    uint8_t handler; /* of a control message */
    uint8_t is_reply;
    uint32_t ref[8];        /* outgoing: names the payload to the core; not sent */
    struct wf_token *token; /* incoming: as in deliver; null: outgoing */
};

#define WF_BULK_MAX ((uint32_t)1 << 20)

/* An RMA request for the NICs: they move bytes between this process's memory and a region of the
 * peer's, or the peer's NIC changes a word there, without a call in the peer's process. */
#define WF_NIC_OP_COPIED 4096u /* up to so many bytes go through a copy on this side */

enum wf_nic_op_kind {
    WF_NIC_OP_PUT,
    WF_NIC_OP_GET,
    WF_NIC_OP_ADD, /* the two atomics that NICs have, of 8 bytes; not in parts */
    WF_NIC_OP_CAS,
};

struct wf_nic_op {
    void *local;               /* not used by an atomic */
    size_t len;                /* not 0; 8 for an atomic */
    uint64_t remote;           /* address as the peer's NIC knows it; for an atomic, 8-aligned */
    uint64_t operand, compare; /* of an atomic, as weft_atomic's */
    const uint32_t *keys;      /* the region's nic_key */
    uint32_t id;               /* the core's, given back by events->nic_op_done */
    uint8_t kind;              /* enum wf_nic_op_kind */
    bool fetches;              /* an atomic whose old value is wanted */
    bool waits;                /* until there is a connection, nic_op returns AGAIN */
};

static inline bool wf_nic_op_is_atomic(const struct wf_nic_op *op)
{
    return op->kind >= WF_NIC_OP_ADD;
}

/* A message in the order of one of a transport's ways to a peer: first the one that a message is to
 * follow, then that message. lane 0: none. */
struct wf_order {
    uint32_t lane; /* one more than its index */
    uint32_t number;
};

/* What the core implements. All run on the endpoint's owner, inside poll. */
struct wf_tep_events {
    /* A message has arrived. The core fills in [am]'s ep and arg; [am] and its payload are lent for
     * the call. */
    void (*deliver)(void *owner, struct weft_am *am);
    /* [tpeer] cannot be reached any more; at most once per peer. */
    void (*peer_down)(void *owner, struct wf_tpeer *tpeer, enum weft_status why);
    /* A connection is gone for which the core had set *conn (struct wf_token): all its messages
     * were delivered. */
    void (*conn_down)(void *owner, void *conn);
    /* The address of payload bytes [at, at + *n) of [bulk]; may lower *n, not to 0. Null: they are
     * gone. Else bulk_unhold follows before any other call. Also outside of poll. */
    void *(*bulk_hold)(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
    void (*bulk_unhold)(void *owner, const struct wf_bulk *bulk);
    /* The NIC operation [id] is over, and its memory is the core's again. OK | EKEY (the peer's NIC
     * refused key or range: no byte was moved) | EUNREACH (its connection is lost: some bytes may
     * have been moved). Not called for operations to a peer that peer_down reports.
     * An atomic is done at most once and never in part: OK ([old]: the value before, if it fetches)
     * | EKEY (not done) | EUNREACH (connection lost; not done) | ELOST (connection lost; it may
     * have been done). */
    void (*nic_op_done)(void *owner, uint32_t id, enum weft_status status, uint64_t old);
    /* Of the puts to [tpeer] that [put] took and neither call has reported, the first [n] are done;
     * or their connection is lost, as in nic_op_done ([refused]: the first of them is EKEY). Not
     * called after peer_down. */
    void (*put_done)(void *owner, struct wf_tpeer *tpeer, uint32_t n);
    void (*put_lost)(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);
    /* Regions for which remote_map returned PENDING may be mapped now. */
    void (*mapped)(void *owner);
};

struct wf_tctx_params {
    struct wf_mem *mem; /* outlives the tctx */
    const struct wf_process_id *self;
    uint64_t fork_gen; /* wf_fork_gen_is(life) is false in a forked child */
    bool network;      /* a key will be set */
    const char *
        *why; /* set by a ctx_open that returns EUNREACH: a literal for the log. May be null */
};

/* EUNREACH from ctx_open. */
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
    int epoll_fd; /* the owner sleeps on it, and does not read data.ptr; a transport may add
                   * descriptors. -1: the owner sleeps on event_fd */
    uint32_t am_max;
    uint64_t *counters; /* wf_stat indices, written by the owner only */
};

struct wf_tctx {
    const struct wf_transport *transport;
    unsigned caps_off; /* of transport->caps, those that the configuration turns off; constant */
    bool nic_atomics;  /* its NIC does atomics on regions for others; constant */
    uint32_t close_ms; /* set by the core: how long ep_close and ctx_close may wait for peers that
                        * are far or slow; 0: WEFT_PEER_TIMEOUT */
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

/* The message being delivered. It is in the transport's part of the endpoint, so that the core may
 * read it when a program's copy of struct weft_am outlives its handler: the serial is another then.
 */
struct wf_token {
    uint64_t serial; /* as the message's; the transport increments it for each message that may be
                      * replied to, and when another field changes or becomes invalid */
    struct wf_tep *tep;
    void **conn;            /* of a request: the core's pointer for the connection that it came on,
                             * null at first */
    struct wf_tpeer *tpeer; /* of a reply: the peer that the request went to */
    uint32_t reply_room;    /* longest reply payload */
    uint8_t can_reply;      /* enum wf_reply_state; if it is not NONE when deliver returns, the
                             * transport releases the reply's place */
};

enum wf_reply_state {
    WF_REPLY_NONE,     /* none is due: one-way, a reply, or the core has replied */
    WF_REPLY_DUE,      /* set by the transport */
    WF_REPLY_DETACHED, /* the core will reply by a control message */
};

struct wf_transport {
    const char *name;
    unsigned caps;
    size_t tpeer_size; /* bytes the core sets aside in a peer */

    /* Is it usable here? Writes why not, or what limits it: one line for `weft info`. */
    int (*probe)(char *note, size_t room);
    /* A row for each device, as weft_device_rows. Null: it uses none. */
    void (*devices)(weft_device_row_fn row, void *arg);

    /* EUNREACH: it is of no use here (params->why), and the context does without it. */
    enum weft_status (*ctx_open)(const struct wf_tctx_params *params, struct wf_tctx **out);
    void (*ctx_close)(struct wf_tctx *tctx); /* all teps are closed */
    /* Null: it needs no key. Once; any thread. OK | EBUSY (it has a key) */
    enum weft_status (*set_key)(struct wf_tctx *tctx, const uint8_t *key);
    /* How other nodes connect to this process; null: they cannot. */
    const struct wf_contact *(*contact)(struct wf_tctx *tctx);

    /* A row for each resource that it holds on a device. Null: it holds none. Any thread. */
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
     * WF_AM_WHAT(handler, nargs), so that all of them are in registers (wf_shm_request). */
    enum weft_status (*request)(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
    /* As request, and rule 8. The same function where all requests keep their order: so an active
     * message is not tested for it. */
    enum weft_status (*request_ordered)(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                        const void *data, size_t len, size_t reply_max);
    /* Rule 2. Inside deliver only, once per token. OK | a state of the peer */
    enum weft_status (*reply)(struct wf_token *token, const struct wf_am_out *out);
    /* The sender of the message being delivered. *contact is zeroed before, and stays so if there
     * is none. */
    void (*source)(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);

    /* As request_ordered and reply, with a payload that the core holds (bulk_hold). At the
     * receiver, deliver gets no data and len 0; long_len is the payload's length if all of it was
     * stored, else 0. Null without WF_CAP_BULK. */
    enum weft_status (*request_bulk)(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                     size_t reply_max, struct wf_order *order);
    enum weft_status (*reply_bulk)(struct wf_token *token, const struct wf_bulk *bulk);
    /* As request, delivered after the message that *order names, if it names one; then *order names
     * this message. (request_bulk does the same if [order] is not null.) Null: the transport has
     * one way to a peer, and request_ordered does. */
    enum weft_status (*request_after)(struct wf_tpeer *tpeer, struct wf_order *order,
                                      unsigned handler, const uint32_t *args, unsigned nargs,
                                      const void *data, size_t len, size_t reply_max);

    /* Has an ordered request left this process, so that it arrives even if this endpoint is not
     * polled again? Sends what can be sent. True: it has, or never will. (If its connection breaks
     * later, it needs a poll again. If the connection is encrypted, the messages after it must have
     * left, too, or it must have been acknowledged.) *order names the request; lane 0: the last one
     * to [tpeer], which *order names afterwards, if there was one. Null: true as soon as
     * request_ordered has returned OK. */
    bool (*is_away)(struct wf_tpeer *tpeer, struct wf_order *order);

    /* Rule 4. Returns the number of events handled. */
    int (*poll)(struct wf_tep *tep);
    enum weft_status (*arm)(struct wf_tep *tep); /* rule 6: OK | AGAIN */
    void (*disarm)(struct wf_tep *tep);

    /* The caller waits for something that only [tpeer] can begin: from OK on its loss is reported
     * (peer_down), even if no message was exchanged yet. Null: it always is. OK | ENOMEM | a state
     * of the peer */
    enum weft_status (*heed)(struct wf_tpeer *tpeer);

    /* The next open tpeer of [address]; *at is the iterator, 0 at first. Null: no more. Linear; not
     * a hot path. */
    struct wf_tpeer *(*find)(struct wf_tep *tep, const struct wf_address *address, uint32_t *at);
    /* [tpeer]'s address, as given to peer_open. */
    void (*address)(const struct wf_tpeer *tpeer, struct wf_address *out);

    /* Have the two tpeers the same address? [a] may be null. Null: only a tpeer and itself. */
    bool (*is_same)(const struct wf_tpeer *a, const struct wf_tpeer *b);

    /* Copy [len] bytes from address [src] of [tpeer]'s process, which has lent them for this
     * call, to [dst]; complete when it returns. len <= WF_PULL_MAX.
     * OK | EUNREACH (not allowed here: use messages) | EPEER, ECLOSED (its process is
     * gone) | EPROTO (there is no such memory) */
    enum weft_status (*pull)(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len);

    /* Resolve [key]: sets length, gen_word, gen and access of [remote], and base,
     * unless the region is not to be mapped (WF_KEY_PRIVATE). Never waits.
     *   *cookie  null at first; for remote_unmap. A failure leaves it null
     * PENDING: the peer's process was asked. Call again with the same arguments after
     * [events->mapped], or give up by remote_unmap. */
    enum weft_status (*remote_map)(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie);
    /* Wait until remote_map would not return PENDING, without polling. OK | ETIMEDOUT at
     * [until_ns]. Null where it never returns PENDING. */
    enum weft_status (*remote_wait)(struct wf_tpeer *tpeer, void *cookie, uint64_t until_ns);
    void (*remote_unmap)(struct wf_tpeer *tpeer, void *cookie);

    /* Let the NICs of other processes read or write (enum weft_access) [memory] of this process,
     * and change it by atomics (WF_ACCESS_ATOMIC, if nic_atomics), until region_close. [memory]
     * stays mapped until then. Any thread. Null without WF_CAP_NIC. *at: the address of its first
     * byte for those NICs, which no other memory of this context had or will have; [keys]: as a
     * key's nic_key, one for each NIC, not all 0. OK | ELIMIT (logged: the limit on locked memory
     * is reached) | another reason why not */
    enum weft_status (*region_open)(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                    unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                    void **handle);
    /* No NIC reaches the memory when this returns. */
    void (*region_close)(struct wf_tctx *tctx, void *handle);
    /* Start [op] for its first bytes, *taken of them; events->nic_op_done reports their end once,
     * in poll, and until then they are the NIC's. Connects on first use: EUNREACH until there is a
     * connection, unless [op] waits.
     * OK | AGAIN (nothing was taken) | ENOMEM | EFAULT | EUNREACH (the NICs cannot do it) | ENOSYS
     * (an atomic, and one of the NICs does none) | a state of the peer */
    enum weft_status (*nic_op)(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken);

    /* Put a few bytes to [remote], an address as nic_op's, by the first of the region's keys; [src]
     * is the caller's again when it returns. False: nothing was started, and nic_op may do it. Null
     * without WF_CAP_NIC. */
    bool (*put)(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key);

    /* When it returns OK, all earlier puts to [tpeer] that were copies are visible in its process.
     */
    enum weft_status (*flush)(struct wf_tpeer *tpeer);

    /* Can [tpeer] be reached? OK or why not; not a hot path. */
    enum weft_status (*status)(struct wf_tpeer *tpeer);
    /* The failure that calls on [tpeer] return, from the first that did; peer_down may be still to
     * come. OK: none has failed. The owner calls it; it is cheap. Null: peer_down comes before a
     * call fails. */
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
