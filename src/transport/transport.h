/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between the core (src/core) and a transport.
 *
 * A transport moves active messages between endpoints. It also maps a peer's memory, or moves bytes
 * to and from that memory. It knows addresses, never ranks. It calls the core only through struct
 * wf_tep_events (upcalls.h). tests/contract runs one suite over every transport.
 *
 *   wf_tctx   The transport's part of a context. Any thread may use it.
 *   wf_tep    The transport's part of an endpoint. Only the endpoint's owner uses it.
 *   wf_tpeer  The transport's part of a peer. The core embeds it in its peer object. Only the
 *             endpoint's owner uses it.
 *
 * The structs of a transport begin with these base structs.
 *
 * Every transport obeys these rules:
 *  1. request never blocks. If it returns OK, the message will be delivered, and the caller may
 *     reuse the payload's memory. If it returns AGAIN, nothing was started. Any other status is a
 *     failure: the message is not sent.
 *  2. reply never fails for lack of room, because the request has reserved the room.
 *  3. Until [events->deliver] returns, the transport does not change the payload that it passed to
 *     deliver, even if deliver sends a reply.
 *  4. After the transport has called wf_tep_activate, the core calls poll again and again. poll
 *     delivers each message exactly once, and does a bounded amount of work per call. deliver never
 *     calls poll. After a long idle time, only every 16th call of poll has to look for messages.
 *  5. Messages that a peer sent before its loss are delivered before [events->peer_down] reports
 *     the loss. No message of the peer is delivered after that report. After a report of EPEER the
 *     transport does not touch the peer's memory. If only the peer's endpoint was closed, the
 *     regions of its process remain usable.
 *  6. If arm returns OK, every later event makes the endpoint's event descriptor readable. If there
 *     is an event already, arm returns AGAIN.
 *  7. A transport's own threads never send or deliver messages.
 *  8. Messages that request_ordered sends to one tpeer are delivered in the order in which they
 *     were sent. This is true even with WEFT_DEBUG=shuffle, which shuffles all other messages. */
#ifndef WF_TRANSPORT_TRANSPORT_H
#define WF_TRANSPORT_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <weft/weft.h>

#include "base/util.h"
#include "transport/address.h"
#include "transport/lend.h"
#include "transport/nic_op.h"
#include "transport/tagged.h"
#include "transport/upcalls.h"

struct wf_transport;
struct wf_tctx;
struct wf_tep;
struct wf_tpeer;
struct wf_token;
struct wf_mem;
struct wf_hca_share;

/* What a transport can do. The core reads the capabilities when a peer is opened. */
enum wf_transport_caps {
    WF_CAP_MAPS = 1,      /* remote_map maps a peer's memory; put and get copy bytes */
    WF_CAP_SLEEP = 2,     /* arm works */
    WF_CAP_BULK = 4,      /* request_bulk and reply_bulk work */
    WF_CAP_NIC = 8,       /* region_open, region_close and nic_op work */
    WF_CAP_PULL = 16,     /* pull works, and peers can pull from this process */
    WF_CAP_NIC_LONG = 32, /* nic_op does only puts and gets of WF_NIC_LONG bytes or more */
};

/* The parameter [what] of request, request_ordered and requestv. */
#define WF_AM_WHAT(handler, nargs) ((unsigned)(handler) | (unsigned)(nargs) << 8)
#define WF_AM_HANDLER(what) ((what)&0xff)
#define WF_AM_NARGS(what) ((what) >> 8 & 0xff)
/* Added to [what]: the caller sends another message to the same peer at once, or as soon as there
 * is room. So the transport may delay this message in order to send both together. */
#define WF_AM_MORE (1u << 16)
/* Added to [what] of requestv: the number of pieces. */
#define WF_AM_WITH_PIECES(pieces) ((unsigned)(pieces) << 24)
#define WF_AM_PIECES(what) ((what) >> 24)

/* An outgoing message, as transports pass it between their own functions. Fast paths do not use
 * this struct. args and data point to memory of the caller and are valid during the call. The
 * caller has checked nargs <= 16, len <= am_max, reply_max <= am_max + 1. */
struct wf_am_out {
    const uint32_t *args;
    union {
        const void *data;
        const struct iovec *iov; /* if [pieces] is not 0 */
    };
    uint32_t len;
    uint32_t reply_max; /* 0: one-way message; else longest reply in bytes, plus 1 */
    uint16_t nargs;
    uint8_t handler;
    /* True only for a reply that reports the end of a put. The transport may send it together with
     * the next message, at the latest in the next poll, or when the endpoint is armed. */
    bool may_wait;
    uint8_t pieces; /* number of buffers that hold the payload; 0: it is at [data] */
};

static inline struct wf_am_out wf_am_out(unsigned handler, const uint32_t *args, unsigned nargs,
                                         const void *data, size_t len, size_t reply_max)
{
    return (struct wf_am_out){.args = args,
                              .data = data,
                              .len = (uint32_t)len,
                              .reply_max = (uint32_t)reply_max,
                              .nargs = (uint16_t)nargs,
                              .handler = (uint8_t)handler};
}

/* Write [count] buffers, one after the other, to [dst] (pieces.c). */
void wf_am_pieces_copy_any(uint8_t *dst, const struct iovec *iov, unsigned count);

/* [what] is that of requestv. */
static inline struct wf_am_out wf_am_outv(unsigned what, const uint32_t *args,
                                          const struct iovec *iov, size_t len, size_t reply_max)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), NULL, len, reply_max);
    out.iov = iov;
    out.pieces = (uint8_t)WF_AM_PIECES(what);
    return out;
}

#define WF_AM_SHORT_PIECE 32 /* up to so many bytes wf_copy_small takes fewer instructions */

/* Write the payload of [out], which is in two pieces or more, to [dst]. Made for a short header and
 * one buffer: inlined at the end of a function, it needs no registers to be saved. */
static inline void wf_am_pieces_copy(uint8_t *dst, const struct wf_am_out *out)
{
    const struct iovec *v = out->iov;
    if (out->pieces != 2 || v->iov_len > WF_AM_SHORT_PIECE) {
        wf_am_pieces_copy_any(dst, v, out->pieces);
        return;
    }
    wf_copy_small(dst, v->iov_base, v->iov_len);
    dst += v->iov_len;
    if (v[1].iov_len <= WF_AM_SHORT_PIECE)
        wf_copy_small(dst, v[1].iov_base, v[1].iov_len);
    else
        memcpy(dst, v[1].iov_base, v[1].iov_len);
}

/* A control message with a long payload, which the transport moves between the memory of two
 * processes without an intermediate copy. The memory can be unmapped meanwhile. So before each
 * access to the payload, the transport asks the core for the payload's address (bulk_hold). */
struct wf_bulk {
    const uint32_t *args;
    uint32_t len; /* 1 .. WF_BULK_MAX */
    uint16_t nargs;
    uint8_t handler; /* of a control message */
    uint8_t is_reply;
    /* Incoming: only the kernel stores bytes in the memory that bulk_hold returns, and reports a
     * missing page. (Of outgoing payload that always holds.) */
    bool by_kernel;
    uint32_t ref[8]; /* outgoing: how the core finds the payload; not sent */
    /* Incoming: the token that deliver gets. NULL if the message is outgoing. */
    struct wf_token *token;
};

#define WF_BULK_MAX ((uint32_t)1 << 20)

/* Names a message to a peer by its lane, which is one of the transport's connections to the peer,
 * and by its number in that lane. A function that takes an order reads which message the new
 * message must follow, and stores the name of the new message. If lane is 0, it names none. */
struct wf_order {
    uint32_t lane; /* one more than its index, or one of those below */
    uint32_t number;
};
#define WF_LANES_MAX 16
/* The lane of an order that names all messages that request_ordered has sent to the peer. A message
 * that request_bulk sends behind them leaves at once, if the transport has room. */
#define WF_LANE_ORDERED UINT32_MAX
/* Names no message, but the lane on which the fewest bytes of replies are due. Requests that wait
 * for each other's replies stay on one lane, and others spread over all. */
#define WF_LANE_LEAST (WF_LANE_ORDERED - 1)
/* Names no message, but the lane [k] < WF_LANES_MAX, which delivers its messages in their order. */
#define WF_LANE_FIXED(k) (WF_LANE_LEAST - WF_LANES_MAX + (k))

/* Memory that NICs of another node may read: the address of its first byte for them, and their keys
 * as nic_key of struct wf_key. */
struct wf_nic_lent {
    uint64_t at;
    uint32_t keys[WF_KEY_NICS];
};

struct wf_tctx_params {
    struct wf_mem *mem; /* outlives the tctx */
    const struct wf_process_id *self;
    uint64_t fork_gen;         /* wf_fork_gen_is(fork_gen) is false in a forked child */
    bool network;              /* a key for authentication will be set by set_key */
    bool key_follows;          /* WEFT_KEY_FILE is not read, since set_key sets the key */
    enum weft_sharing sharing; /* not WEFT_SHARING_DEFAULT */
    uint32_t endpoints;        /* how many will be opened; 0: not known */
    uint32_t am_max;           /* longest payload of an active message that they send */
    /* Buffers in which an endpoint receives from each port of a device; 0: WEFT_RDMA_RECEIVES. */
    uint32_t receives;
    /* NULL, or where ctx_open stores a string literal for the log if it returns EUNREACH. */
    const char **why;
    /* NULL, or sets in *self what depends on the ports of [contact]. Called by a network
     * transport's ctx_open, before any peer can connect. [fds] listen, and stay the context's. */
    void (*identify)(void *arg, const struct wf_contact *contact, const int *fds,
                     struct wf_process_id *self);
    void *identify_arg;
    const int *inherited; /* sockets of one port, of which a network transport takes copies to */
    unsigned ninherited;  /* listen by, and which it does not shut down; 0: it opens new ones */
};

/* Called by the ctx_open of a transport that is of no use here. Stores [why], the reason for the
 * log, in *params->why. Returns EUNREACH, which ctx_open returns, too. */
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
    /* An eventfd(2), nonblocking. Readable, it wakes the owner. Closed after ep_close. */
    int event_fd;
    /* The epoll descriptor on which the owner sleeps, or -1 if the owner sleeps on event_fd. A
     * transport may add descriptors of its own. The owner ignores data.ptr of the events. */
    int epoll_fd;
    uint32_t am_max;
    uint32_t lanes;     /* connections to each peer, at most WF_LANES_MAX; 0: WEFT_TCP_LANES */
    uint32_t level;     /* of struct weft_ep_params */
    uint64_t *counters; /* indexed by enum wf_stat; only the owner writes them */
    /* The bits of the transports that the core polls, and this transport's: wf_tep_activate. */
    _Atomic uint32_t *active;
    uint32_t active_bit;
};

struct wf_tctx {
    const struct wf_transport *transport;
    /* Those of transport->caps that the configuration turns off. Constant once an endpoint is
     * open. */
    unsigned caps_off;
    /* The NIC can perform atomics on this process's regions for other processes. Constant. */
    bool nic_atomics;
    _Atomic uint32_t pins; /* NICs that pin a region that is opened now; set_key may change it */
    /* Set by the core: for how many milliseconds ep_close and ctx_close may wait for slow or
     * distant peers. If 0, WEFT_PEER_TIMEOUT applies. */
    uint32_t close_ms;
};

struct wf_tep {
    const struct wf_transport *transport;
    const struct wf_tep_events *events;
    void *owner;
    uint64_t *counters;
    int event_fd;
    uint32_t am_max;
    _Atomic uint32_t *active;
    uint32_t active_bit;
};

static inline struct wf_tep wf_tep_of(const struct wf_transport *transport,
                                      const struct wf_tep_params *params)
{
    return (struct wf_tep){.transport = transport,
                           .events = params->events,
                           .owner = params->owner,
                           .counters = params->counters,
                           .event_fd = params->event_fd,
                           .am_max = params->am_max,
                           .active = params->active,
                           .active_bit = params->active_bit};
}

/* Make the core poll [tep], from its next poll on and until [tep] is closed. A transport calls this
 * before its first event, or in ep_open. Any thread may call. */
static inline void wf_tep_activate(struct wf_tep *tep)
{
    if (!(atomic_load_explicit(tep->active, memory_order_relaxed) & tep->active_bit))
        atomic_fetch_or_explicit(tep->active, tep->active_bit, memory_order_release);
}

/* How a transport's part of a peer begins, but that of shm. */
struct wf_tpeer {
    struct wf_tep *tep;
};
/* Returns the tep to which [tpeer] belongs, also of shm. The core implements this. */
struct wf_tep *wf_tpeer_tep(const struct wf_tpeer *tpeer);

/* Describes the message that is being delivered. A program may keep a copy of struct weft_am beyond
 * the handler, and pass that copy to a reply function. So the token must not be freed with the
 * message: it is part of the transport's endpoint. The core compares the serials of token and copy,
 * and refuses the copy if they differ. */
struct wf_token {
    /* Equal to the serial of the message's weft_am. The transport increments the serial for each
     * message that may be replied to, and whenever another field changes or becomes invalid. */
    uint64_t serial;
    struct wf_tep *tep;
    /* For a request: the pointer that the core attaches to the connection on which the request
     * came. *conn is NULL at first. */
    void **conn;
    struct wf_tpeer *tpeer; /* for a reply: the peer to which its request was sent */
    uint32_t reply_room;    /* longest reply payload in bytes */
    /* enum wf_reply_state. If the state is not WF_REPLY_NONE when deliver returns, the transport
     * releases the room that was reserved for the reply. */
    uint8_t can_reply;
    /* Set by deliver, for a transport with give_up: end the session by which the message came, as
     * give_up does, and deliver nothing more of it. */
    bool refuse;
    /* Set by deliver instead, for a one-way message of a handler from WEFT_AM_USER_HANDLERS on:
     * there is no room for the message now. The connection is made anew, after a pause that grows
     * to 500 ms, and the message is delivered again. When nothing else was taken for
     * WEFT_PEER_TIMEOUT, the session ends. If nothing was taken before either, that endpoint is not
     * turned away when it calls anew. */
    bool later;
};

enum wf_reply_state {
    /* No reply may be sent: the message is one-way or a reply, or the core has replied. */
    WF_REPLY_NONE,
    /* The transport sets this state for a request that expects a reply. */
    WF_REPLY_DUE,
    WF_REPLY_DETACHED, /* the core will send the reply as a control message */
};

struct wf_transport {
    const char *name;
    unsigned caps;
    size_t tpeer_size; /* bytes of the transport's struct, which the core embeds in a peer */

    /* Does the transport work on this machine? Writes to [note] one line for `weft info`: why it
     * does not work, or with what limits. */
    int (*probe)(char *note, size_t room);
    /* Call [row] for each device that the transport can use, as weft_device_rows does. The function
     * pointer is NULL if the transport uses no devices. */
    void (*devices)(weft_device_row_fn row, void *arg);

    /* If the transport is of no use here, returns EUNREACH and stores the reason in params->why.
     * The context is then opened without the transport. */
    enum weft_status (*ctx_open)(const struct wf_tctx_params *params, struct wf_tctx **out);
    void (*ctx_close)(struct wf_tctx *tctx); /* all its endpoints are closed */
    /* Set the secret for authentication, [len] bytes, at least WEFT_SECRET_MIN. The pointer is NULL
     * if the transport authenticates nobody. Any thread may call. Returns OK, or EBUSY if a secret
     * is set already. */
    enum weft_status (*set_key)(struct wf_tctx *tctx, const void *secret, size_t len);
    /* Returns how processes of other nodes connect to this process, or NULL if they cannot connect.
     * The function pointer is NULL if the transport has no contacts. */
    const struct wf_contact *(*contact)(struct wf_tctx *tctx);

    /* Call [row] for each resource that the transport occupies on a device. The pointer is NULL if
     * the transport occupies none. Any thread may call. */
    void (*resources)(struct wf_tctx *tctx, weft_resource_row_fn row, void *arg);

    enum weft_status (*ep_open)(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                struct wf_tep **out);
    void (*ep_close)(struct wf_tep *tep); /* all its peers are closed */
    /* Sets the fields of *out, except WEFT_LOCK_ENDPOINT. Only the owner calls it. The pointer is
     * NULL if the transport's endpoints share no device. */
    void (*sharing)(struct wf_tep *tep, struct weft_ep_sharing_info *out);

    /* Returns OK if the transport can send messages to endpoint [to]. Otherwise returns EUNREACH
     * and stores the reason, a string literal, in *why. */
    enum weft_status (*reach)(struct wf_tctx *tctx, const struct wf_address *from,
                              const struct wf_address *to, const struct wf_contact *contact,
                              const char **why);

    /* Returns those of [caps] that there are not towards endpoint [to], which can be reached. NULL:
     * there are all. */
    unsigned (*peer_caps_off)(const struct wf_tctx *tctx, const struct wf_address *to,
                              const struct wf_contact *contact);

    /* Open a peer in [tpeer], which is tpeer_size bytes, all zero. Sends nothing. */
    enum weft_status (*peer_open)(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                  const struct wf_address *to, const struct wf_contact *contact);
    void (*peer_close)(struct wf_tpeer *tpeer); /* all its remotes are unmapped */
    /* End the session with the endpoint of [to], if there is one: its tpeers get peer_down with
     * EPEER. That endpoint loses this one, and is turned away when it connects again. But a session
     * by which neither side has taken anything is forgotten, also one that ended before: a tpeer
     * that is opened afterwards calls anew. Inside poll only in deliver, and not for the session by
     * which the message came (struct wf_token.refuse). NULL if the transport has no sessions. */
    void (*give_up)(struct wf_tep *tep, const struct wf_address *to);

    /* Send an active message (rule 1). The first message to a peer opens the connection. The
     * parameters are those of weft_am_request, and were checked; [what] is WF_AM_WHAT(handler,
     * nargs), possibly with WF_AM_MORE; it combines parameters so that all six are passed in
     * registers. */
    enum weft_status (*request)(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
    /* Like request, with the payload in several buffers: [iov] has WF_AM_PIECES(what) entries, 2 to
     * WEFT_IOV_MAX, of [len] bytes together. The transport copies each byte as often as request
     * does. A control message keeps its order, as by request_ordered, if request_after is NULL. */
    enum weft_status (*requestv)(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max);
    /* Like request, but the messages keep their order (rule 8). If a transport keeps the order of
     * all requests, the two pointers are equal. */
    enum weft_status (*request_ordered)(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                        const void *data, size_t len, size_t reply_max);
    /* Send a message to WF_AM_TAGGED as request_ordered does, without a reply. */
    enum weft_status (*tagged)(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len);
    /* The same with WF_TAGGED_MORE_ARGS arguments: the halves of [tag] and of [word], and [what].
     * NULL if request_ordered is as short. */
    enum weft_status (*tagged_more)(struct wf_tpeer *tpeer, uint64_t tag, uint64_t word,
                                    uint32_t what, const void *data, size_t len);
    /* Send a reply (rule 2). Called only inside deliver, once per token. Returns OK, or a status
     * that says why the peer has failed. */
    enum weft_status (*reply)(struct wf_token *token, const struct wf_am_out *out);
    /* Store the address of the sender of the message that is being delivered. *contact is all zero
     * before the call, and remains so if the sender has no contact. */
    void (*source)(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);

    /* Like request_ordered and reply, but the payload is in memory that the core names on demand
     * (bulk_hold). At the receiver, the payload is stored at its destination before deliver is
     * called. So deliver gets no payload, and long_len is the length, or 0 if not all bytes could
     * be stored. The pointers are NULL without WF_CAP_BULK. */
    enum weft_status (*request_bulk)(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                     size_t reply_max, struct wf_order *order);
    enum weft_status (*reply_bulk)(struct wf_token *token, const struct wf_bulk *bulk);
    /* Like request, but the message is delivered after the message that *order names. On return
     * *order names the new message. (request_bulk does the same if [order] is not NULL.) The
     * pointer is NULL if the transport has only one connection to a peer; then the core calls
     * request_ordered. If [what] has pieces, [data] is an array of buffers, as in requestv. */
    enum weft_status (*request_after)(struct wf_tpeer *tpeer, struct wf_order *order, unsigned what,
                                      const uint32_t *args, const void *data, size_t len,
                                      size_t reply_max);

    /* Will an ordered request arrive even if this endpoint is never polled again? *order names the
     * request. If order->lane is 0, the last request to [tpeer] is meant, and the call stores that
     * request's name. The call first sends what can be sent.
     * Returns true if the request has left this process, or if there is no request. On an encrypted
     * connection the result is true only if all later messages have left, too, or the peer has
     * acknowledged the request. If the connection breaks after the call, the endpoint must be
     * polled again. is_away is NULL if a request has left as soon as request_ordered returns OK. */
    bool (*is_away)(struct wf_tpeer *tpeer, struct wf_order *order);
    /* Returns the length of the longest payload that request_ordered takes for [tpeer] at this
     * moment, in bytes: am_max, or more. NULL if it is am_max. */
    uint32_t (*request_max)(const struct wf_tpeer *tpeer);
    /* The longest payload of a request or reply that carries a piece of a put or get: it may be
     * more than am_max, which limits a context's own messages. 0: am_max. */
    uint32_t piece_longest;
    /* Has everything that was sent to [tpeer] left this process? Within a node: has the peer's
     * process accepted the connection? The call first sends as much as there is room for. If
     * [tpeer] is lost: was that so before its loss? (Also asked within peer_down.) NULL if messages
     * leave at once. */
    bool (*is_sent)(struct wf_tpeer *tpeer);
    /* Write for the log, in [room] bytes, for which step messages to [tpeer] wait. Or NULL. */
    void (*explain)(struct wf_tpeer *tpeer, char *out, size_t room);

    /* Deliver messages (rule 4). Returns the number of events handled. */
    int (*poll)(struct wf_tep *tep);
    /* Is there a request that poll would deliver? Costs a few loads. Returns 0, or how many polls
     * deliver all requests that are here now. A request for which is_settled of its sender returned
     * true, which is known to this process, was delivered or is counted. NULL if the transport
     * cannot tell; at most one can. is_settled is not NULL then. */
    unsigned (*has_arrived)(struct wf_tep *tep);
    /* Have the peers' processes accepted all connections of this endpoint? Their owners need not
     * poll for that. */
    bool (*is_settled)(struct wf_tep *tep);
    enum weft_status (*arm)(struct wf_tep *tep); /* rule 6: OK | AGAIN */
    void (*disarm)(struct wf_tep *tep);

    /* The caller will wait for something that only [tpeer] can send. After OK, a loss of [tpeer] is
     * reported by peer_down, even if no message was ever exchanged. The pointer is NULL if the
     * transport reports every loss anyway. Returns OK, ENOMEM, or a status that says why the peer
     * has failed. */
    enum weft_status (*heed)(struct wf_tpeer *tpeer);

    /* Returns the first open tpeer whose address is [address] (after [after], if it is not NULL),
     * or NULL if there is none. Takes linear time, so it is not for frequent calls. */
    struct wf_tpeer *(*find)(struct wf_tep *tep, const struct wf_address *address,
                             struct wf_tpeer *after);
    /* Store the address that peer_open was given for [tpeer]. */
    void (*address)(const struct wf_tpeer *tpeer, struct wf_address *out);

    /* Do the two tpeers have the same address? [a] may be NULL. If the pointer is_same is NULL, a
     * tpeer is the same only as itself. */
    bool (*is_same)(const struct wf_tpeer *a, const struct wf_tpeer *b);

    /* Copy [len] bytes, at most WF_PULL_MAX, from [from] in [tpeer]'s process to [dst]. The copy is
     * complete when the call returns. The word of [from] is read after the bytes. If [from] has no
     * word, the owner of the memory does not take it back during the call.
     * Returns OK, EUNREACH (the kernel does not allow it: use messages), EPEER or ECLOSED (the
     * process is gone), ECANCELED (the word has another value: what is at [dst] may be anything),
     * or EPROTO (there is no such memory). */
    enum weft_status (*pull)(struct wf_tpeer *tpeer, void *dst, const struct wf_pull_from *from,
                             size_t len);

    /* Resolve [key]: set length, gen_word, gen and access of [remote]. Also set its base, except
     * for memory that is not mapped, such as that of WF_KEY_PRIVATE. Never waits. The word at
     * gen_word differs from gen once the region is closed or refreshed, if this process maps the
     * owner's words (WF_CAP_PULL). Across a network it never changes.
     *   *cookie  NULL at first. The transport stores what remote_unmap needs. NULL after a failure.
     * PENDING means that the peer's process was asked. The caller then waits for [events->mapped]
     * and calls again with the same arguments, or gives up by remote_unmap. */
    enum weft_status (*remote_map)(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie);
    /* Wait, without polling, until remote_map would return something other than PENDING. Returns
     * OK, or ETIMEDOUT at [until_ns]. The pointer is NULL if remote_map never returns PENDING. */
    enum weft_status (*remote_wait)(struct wf_tpeer *tpeer, void *cookie, uint64_t until_ns);
    void (*remote_unmap)(struct wf_tpeer *tpeer, void *cookie);

    /* Register [memory] with the NIC, so that the NICs of other processes can access it until
     * region_close. [access] says which accesses: enum weft_access, and WF_ACCESS_ATOMIC if
     * nic_atomics is set. [memory] must stay mapped until region_close.
     *   *at   The address of the first byte as those NICs use it. No other memory of this context
     *         ever gets that address.
     *   keys  As nic_key of struct wf_key: a remote key for each NIC, not all 0.
     * Any thread may call. The pointer is NULL without WF_CAP_NIC. Returns OK, ELIMIT (logged: the
     * limit on locked memory is reached), or another failure. */
    enum weft_status (*region_open)(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                    unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                    void **handle);
    /* Set *at and keys to what they are now. NULL: region_open has set them for good. */
    void (*region_keys)(struct wf_tctx *, void *handle, uint64_t *at, uint32_t keys[WF_KEY_NICS]);
    /* When the call returns, no NIC can access the memory, but bytes of a put that a service
     * without a NIC stores may still come (node/exposed.h). */
    void (*region_close)(struct wf_tctx *tctx, void *handle);
    /* Start [op], or only its first part: *taken is the number of bytes that were started.
     * nic_op_done reports the end of that part once, inside poll. Until then the local memory
     * belongs to the NIC. The first call opens the connection; until there is a connection, the
     * call returns AGAIN if op->waits, and EUNREACH if not.
     * Returns OK, AGAIN (nothing was started), ENOMEM, EFAULT, EUNREACH (the NICs cannot do it),
     * ENOSYS (an atomic, and one of the two NICs has none), or why the peer has failed. */
    enum weft_status (*nic_op)(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken);

    /* Let no NIC access local memory for [tpeer] any more. All operations by its connections end
     * later, as if these were lost. Also called outside of poll. NULL without WF_CAP_NIC. */
    void (*nic_stop)(struct wf_tpeer *tpeer);
    /* Let NICs read the [len] bytes at [addr] for the process of [tpeer], until nic_take_back. *out
     * is the transport's. Returns OK, or a failure: the bytes go by messages. NULL: no NIC reads
     * memory that is no region. */
    enum weft_status (*nic_lend)(struct wf_tpeer *tpeer, const void *addr, size_t len,
                                 const struct wf_nic_lent **out);
    /* Take back what nic_lend has lent to [tpeer]. [is_read]: no NIC reads it any more, as the peer
     * has reported. If not, this call stops all reads, of other messages in the same registration,
     * too: what a NIC reads later is refused. If the driver refuses to drop the registration for
     * 1 s, that is logged, and the memory stays readable. */
    void (*nic_take_back)(struct wf_tpeer *tpeer, const struct wf_nic_lent *lent, bool is_read);
    /* Describe the protection domain in which other processes of this host may register memory for
     * nic_op (is_lent), and set *fd to the descriptor that they need (rdma/hca_share.h). It stays
     * the context's. Returns OK, or a failure, which is logged. NULL: there is none. */
    enum weft_status (*share)(struct wf_tctx *tctx, struct wf_hca_share *out, int *fd);
    /* Let up to [most] short puts to [tpeer] begin by [window]. If the call returns true, the
     * caller begins one of [len] bytes at once. Otherwise none may begin, and the caller may try
     * nic_op. The pointer is NULL without WF_CAP_NIC. */
    bool (*put_open)(struct wf_tpeer *tpeer, struct wf_put_window *window, uint32_t most,
                     size_t len);

    /* If the call returns OK, the peer's process sees all earlier puts to [tpeer] that were copies
     * to mapped memory. */
    enum weft_status (*flush)(struct wf_tpeer *tpeer);

    /* Is [tpeer] reachable? Returns OK, or why not. Not for frequent calls. */
    enum weft_status (*status)(struct wf_tpeer *tpeer);
    /* Returns the status with which calls on [tpeer] fail, or OK if no call has failed. peer_down
     * may not have reported the failure yet. Fast. Any thread calls it while [tpeer] is open. The
     * pointer is NULL if the transport always reports peer_down before a call fails. */
    enum weft_status (*failed)(const struct wf_tpeer *tpeer);
};

#define WF_PULL_MAX ((size_t)1 << 20)
#define WF_ACCESS_ATOMIC 0x100u /* region_open: NICs may perform atomics */

extern const struct wf_transport wf_loop_transport;
extern const struct wf_transport wf_shm_transport;
#ifdef WF_HAVE_TCP
extern const struct wf_transport wf_node_transport;
extern const struct wf_transport wf_tcp_transport;
#endif
#ifdef WF_HAVE_VERBS
extern const struct wf_transport wf_rdma_transport;
#endif

#endif
