/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: the operations of an endpoint that are in flight. An operation that is not complete
 * when its call returns has a request. The request's messages leave when the transport has room
 * (flow.h). The peer's answers carry the request's id. When the operation ends, the core stores its
 * status in the caller's weft_op.
 *
 * Ids. An id consists of the request's index in the table (24 bits) and the number of earlier
 * operations that used the index (40 bits). An id never comes again at an endpoint: when all ids of
 * an index have been used, the index is not used again. References that can outlive an operation
 * hold all 64 bits, and a lookup after the end of the operation finds no request. These references
 * are:
 *  - An OFFER, which announces a long tagged message, and the receiver's messages about it (OFFER
 *    ANSWER, DONE, FETCH). The receiver may not know that the sender's operation has failed.
 *  - The order of a put or get (struct weft_order of weft/frag.h).
 *  - The payload of a bulk message (bulk.h) that the transport has not sent yet.
 *
 * All other replies, and NIC operations, hold only the low 32 bits of an id, because they cannot
 * outlive the operation:
 *  - Each reply answers one message, and each NIC operation is reported once (transport.h: rule 4,
 *    nic_op_done). [unanswered] counts both, and a request ends only when [unanswered] is 0. If a
 *    request fails earlier, wf_req_start and flow_push keep the request, and the last answer ends
 *    it (answer_count, wf_msg_on_piece).
 *  - A cancelled OFFER ends earlier. The answers to it hold all 64 bits.
 *  - The loss of the peer handle ends a request earlier (wf_flow_down). After the loss the
 *    transport delivers no reply to the messages of that handle and reports none of its NIC
 *    operations (rule 5, nic_op_done). A handle that is opened later has its own connections.
 *
 * A malicious peer can answer one request with the id of another request. It can do this only with
 * requests to that same peer, because wf_ctl_is_reply_to checks the peer.
 *
 * Only the endpoint's owner touches requests. */
#ifndef WF_CORE_REQ_H
#define WF_CORE_REQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "base/util.h"
#include "core/iov.h"
#include "core/match.h"
#include "core/msg_wire.h"
#include "transport/transport.h"

struct wf_sender;
struct wf_remote;

enum wf_req_kind {
    WF_REQ_FREE,
    WF_REQ_SEND,  /* a tagged message, whole or in parts, that waits for room or an answer */
    WF_REQ_OFFER, /* a long tagged message, which its receiver copies */
    /* reports to the sender of a long tagged message that the receiver has copied it */
    WF_REQ_DONE,
    /* reports to the receiver of a message that its source was taken away (msg_send.c) */
    WF_REQ_STOP,
    WF_REQ_COPY,  /* a receive that copies a long message from its sender */
    WF_REQ_PARTS, /* a message whose parts are arriving (msg_parts.c); has no peer */
    WF_REQ_PUT,
    WF_REQ_GET,
    WF_REQ_ATOMIC,
    WF_REQ_LONG,
    WF_REQ_SIGNAL, /* a put, then an atomic on a signal word, whose region u.rma.args names */
    WF_REQ_FLUSH,
    WF_REQ_OPEN, /* opens a region of a peer (remote.c) */
    WF_REQ_LATE, /* a peer's request whose reply is sent after its handler has returned (later.c) */
};

/* The counting of a write. A region may have a counter, which must count each write once. If a
 * write has several pieces, the initiator sends a message without bytes after all pieces are
 * written. The region's owner adds 1 when it handles that message.
 *
 *   NONE    the initiator does not know of a counter
 *   WANTED  the region has a counter, and some pieces are not written yet
 *   DUE     all pieces are written, and the message has to be sent
 *   SENT    the message was sent */
enum wf_count { WF_COUNT_NONE, WF_COUNT_WANTED, WF_COUNT_DUE, WF_COUNT_SENT };

/* A posted receive that no message has matched yet. It is not a struct wf_req: a receive has
 * nothing to send before a long message matches it. */
struct wf_recv {
    struct wf_match_recv match; /* its source is a struct wf_sender */
    struct weft_op *op;
    struct weft_ep *ep;
    uint64_t room;     /* bytes of mem */
    struct wf_iov mem; /* its note is the space */
};
_Static_assert(sizeof(struct wf_recv) == 128, "two cache lines");

/* weft_op.entry_ of a posted receive is the address of its struct wf_recv plus WF_RECV_MARK. */
#define WF_RECV_MARK 1u

struct wf_req {
    /* item of flow->issued if a flush has to wait for the request; otherwise in no list */
    struct wf_list issued;
    /* item of flow->queue, ep->copying (COPY), sender->pushed_to (COPY), sender->parts (PARTS),
     * ep->opening (OPEN), the free list, or no list */
    struct wf_list queued;
    struct wf_list on_loss; /* item of flow->on_loss; a FLUSH is in no list */
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_op *op; /* may be null */
    /* a counted reference, if the kind is OPEN or one from PUT through SIGNAL; otherwise NULL */
    struct wf_remote *remote;
    /* index in the table | number of earlier uses of that index << WF_REQ_INDEX_BITS */
    uint64_t id;
    uint8_t kind;
    uint8_t path;   /* enum wf_path: how its bytes go */
    bool word_sent; /* SIGNAL: its atomic was sent; LONG: its LONG was, and an answer is due */
    bool bounded;   /* counted in wf_req_table.bounded */
    int16_t status; /* first failure */
    uint8_t flags;  /* enum weft_op_flags */
    bool held;      /* has not begun: a fence is before it in flow->queue, or it is one (flow.h) */
    uint32_t unanswered;
    uint32_t copy;     /* bytes of the caller's memory of which [mem] has a copy */
    struct wf_iov mem; /* the caller's memory, or a copy of it (wf_req_mem) */
    uint64_t len;      /* bytes of the operation */
    /* bytes sent or asked for so far, or that have arrived (PARTS); bytes that were stored in [mem]
     * so far (COPY, PARTS) */
    uint64_t sent, copied;
    /* The word by which a peer may read [mem] by itself (wf_req_lend); its value is 0 if none may.
     * NULL at first. It stays with the request's place in the table. */
    uint64_t *lent;
    union {
        struct {
            struct wf_msg_head head;
            uint32_t asked; /* OFFER: the handle's credit.sent when it was sent */
            bool pushes;    /* OFFER: its payload follows it */
            bool under_way; /* OFFER: counted in the flow's [pushed] */
            bool offered;   /* OFFER: it was sent */
            uint8_t tries;  /* the flow's push_tries when the payload was sent */
            bool sent;      /* SEND: all bytes were; the question whether they arrived is not, or is
                             * unanswered */
            /* OFFER: what NICs may read of it (msg_nic.h); NULL: nothing */
            const struct wf_nic_lent *lent;
        } send;
        struct {
            struct wf_msg_head head;
            uint64_t full; /* length that was sent */
            struct wf_sender *sender;
            struct wf_iov from;       /* buffers at addresses of the sender's process */
            void *const *conn;        /* the connection on which the offer came */
            uint64_t id;              /* of the sender's request */
            struct wf_pull_word word; /* the sender's process has the bytes as long as this holds */
            struct wf_nic_lent nic;   /* with WF_PATH_NIC: where NICs read the bytes */
            bool awaits;              /* item of sender->pushed_to: nothing was asked for yet */
            bool named;               /* the receive names the sender */
        } copy;
        struct {
            struct wf_msg_head head;
            uint64_t full;            /* length that was sent */
            struct wf_sender *sender; /* a counted reference */
            void *const *conn;        /* the connection on which the parts come */
            struct weft_msg *msg; /* the kept message, if [op] is null; null if it was dropped */
            uint32_t id;          /* low half of the id of the sender's request */
            uint32_t first;       /* length of the first part */
            uint64_t began;       /* when it came, if the message is measured; else 0 */
            bool named;           /* the receive names the sender */
        } parts;
        struct {
            uint64_t id; /* of the sender's request */
            int32_t status;
            uint32_t report; /* measured costs (msg_cost.h), or 0 */
        } done;
        struct {
            uint32_t at; /* bytes that were sent in parts; 0: the message was offered */
        } stop;
        struct {
            uint64_t puts_begun; /* the value of wf_put_ring.begun when the flush began */
        } flush;
        struct {
            struct weft_remote **out;
        } open;
        struct {
            struct wf_sender *sender; /* of the detached request; a counted reference */
            uint32_t reply_max;       /* bytes */
            uint8_t request_handler, request_nargs;
            uint8_t message_nargs; /* 0: no reply yet */
            uint8_t member;        /* of the sender's group (sender.h) */
            uint32_t request_args[WEFT_AM_FAILED_ARGS];
            uint32_t message_args[1 + WEFT_AM_LATER_MAX_ARGS];
            /* the reply's payload; a copy made by Weft, if the message waits for room */
            const void *data;
            uint64_t queued_ns; /* time at which the message began to wait for room */
        } late;
        struct {
            uint64_t offset, gen;
            uint32_t slot;
            uint8_t handler, nargs;
            uint32_t reply_max;
            uint32_t args[WEFT_AM_MAX_ARGS];
            uint8_t operation, type;
            uint8_t count; /* enum wf_count */
            /* true for a put or get with an order (weft/frag.h): the receiver writes or reads the
             * bytes after it has delivered the message that [order] names. Otherwise [order] is
             * not set; nor are those of [args] of which a LONG or SIGNAL has none. */
            bool ordered;
            struct wf_order order;
            /* of an atomic on an array: the number of elements, else 0. Then [operand] and
             * [compare] are addresses of arrays, and [mem] is where the old values go, if it is
             * wanted. */
            uint32_t elements;
            uint64_t operand, compare, *fetched;
        } rma;
    } u;
};

/* Is [kind] one whose member of the union is u.rma? wf_rma_req_new makes such requests. */
static inline bool wf_req_is_rma(enum wf_req_kind kind)
{
    return kind >= WF_REQ_PUT && kind <= WF_REQ_SIGNAL;
}

#define WF_REQ_INDEX_BITS 24

/* wf_config()->ops limits how many requests the application's operations have at a time: sends,
 * puts, gets, atomics, signals, long messages, flushes, and openings of regions. Four kinds of
 * requests do not count, and are made as long as there is memory:
 *  - A receive that a long message has matched (COPY, then DONE). Its DONE ends the sender's
 *    operation. If it counted, two endpoints whose tables are full of sends to each other could
 *    never end any of them.
 *  - A message whose parts are arriving (PARTS). Its sender does not wait for it.
 *  - A detached request, one whose reply is sent after its handler has returned. It has its own
 *    limit (WEFT_LATE_REPLIES).
 *  - A put that is repeated by messages, because its NIC operation was lost. If it counted, a table
 *    full of flushes that wait for the put could never become empty.
 *
 * An answer to a peer's message needs no request. */
struct wf_req_table {
    struct wf_req **by_index;
    uint32_t room;    /* of by_index */
    uint32_t created; /* requests allocated so far, used or free */
    uint32_t used;
    uint32_t bounded;     /* used requests that count */
    uint32_t bounded_max; /* wf_config()->ops */
    /* true while wf_rma_put_again makes a request; such a request does not count */
    bool redo;
    struct wf_list free;
    struct wf_list *recvs; /* free receives, linked by match.all.next; null: there is none */
    struct wf_list chunks; /* of receives */
};

void wf_reqs_init(struct weft_ep *ep);
void wf_reqs_fini(struct weft_ep *ep);

/* Make a request to [peer], which may be NULL (see wf_req_bind). [issued] is true for a flush, and
 * for each operation for which a flush has to wait. Returns NULL and sets *why to ELIMIT if too
 * many operations are in flight, or to ENOMEM. */
struct wf_req *wf_req_new(struct weft_ep *ep, struct weft_peer *peer, enum wf_req_kind kind,
                          struct weft_op *op, bool issued, enum weft_status *why);
/* The two halves of wf_req_new. Between them the caller may send the operation's message, which
 * needs the id of the request: then the second half runs while the message is under way. The caller
 * may also set u.rma between them, which wf_req_fill does not clear. wf_req_take returns as
 * wf_req_new does. */
struct wf_req *wf_req_take(struct weft_ep *ep, enum wf_req_kind kind, enum weft_status *why);
/* Returns OK | ENOMEM (not if [peer] has a flow) */
enum weft_status wf_req_fill(struct wf_req *req, struct weft_peer *peer, struct weft_op *op,
                             bool issued);
/* Make [peer] the peer of a request that has no peer yet. Returns OK | ENOMEM */
enum weft_status wf_req_bind(struct wf_req *req, struct weft_peer *peer);
/* Let the peer of [req] read the memory of [req] by itself, until the peer has reported that it is
 * done, or wf_req_take_back is called. Returns the word of that memory, all 0 if the peer cannot
 * read it. */
static inline struct wf_pull_word wf_req_lend(struct wf_req *req, bool can_pull)
{
    if (!can_pull)
        return (struct wf_pull_word){0, 0};
    if (!req->lent && !(req->lent = wf_pull_word_new()))
        return (struct wf_pull_word){0, 0};
    if (!*req->lent)
        wf_pull_lend(req->lent);
    return (struct wf_pull_word){(uint64_t)(uintptr_t)req->lent, *req->lent};
}
/* The peer may have more to read. After the call it does not take other bytes for those of [req],
 * and no thread of this process reads them. */
static inline void wf_req_take_back(struct wf_req *req)
{
    if (req->lent && *req->lent)
        wf_pull_take_back(req->lent);
}
/* Free the copy of the caller's memory that [req] has, after taking back what [req] has lent of it.
 * Without a copy, forget the caller's memory. */
void wf_req_uncopy(struct wf_req *req);
/* Set the local memory of [req]: the [count] buffers of [iov], of [len] bytes together. With
 * WEFT_OP_COPIED in req->flags the request gets a copy of them. The copy is in the allocation of
 * the array of buffers (iov.h), so all code that gives the caller's memory back frees it:
 *
 *   the operation         the copy is read by       it is freed
 *   ends within its call  (there is none)           -
 *   is queued, or held    nobody                    when it ends, or is cancelled (wf_iov_clear)
 *   is under way          messages, the peer, NICs  when it ends: it is not read any more, as for
 *                                                   the caller's memory
 *   is repeated           the same, again           as before: the request did not end
 *
 * Returns OK | ENOMEM | AGAIN (the requests of the endpoint have as many bytes in copies as they
 * may) */
enum weft_status wf_req_mem(struct wf_req *req, const struct iovec *iov, unsigned count,
                            size_t len);
/* Returns [len] bytes that belong to [req], for copies, or NULL and why. The local memory of [req]
 * is at most one buffer. */
void *wf_req_room(struct wf_req *req, size_t len, enum weft_status *why);
/* Free a request that was never started, or that is over. */
void wf_req_free(struct wf_req *req);
/* End the operation of [req]: free the request, then complete its weft_op with [status]. */
void wf_req_end(struct wf_req *req, enum weft_status status);

/* Check the flags of [op] for an operation that has the flags [known], and whose sources have [len]
 * bytes. Stores the flags in *flags, 0 if [op] is NULL. Returns OK | EINVAL | EMSGSIZE */
enum weft_status wf_op_flags(const struct weft_ep *ep, const struct weft_op *op, unsigned known,
                             size_t len, unsigned *flags);

/* Returns the request with the id [id], of any kind, or NULL if that operation is over. */
struct wf_req *wf_req_get(struct weft_ep *ep, uint64_t id);
/* Returns the request with the id [id] if its kind is [kind], else NULL. */
struct wf_req *wf_req_find(struct weft_ep *ep, uint64_t id, enum wf_req_kind kind);
/* Returns the request whose id has the low 32 bits [word], or NULL. [word] came with a reply or
 * with the end of a NIC operation. */
struct wf_req *wf_req_by_word(struct weft_ep *ep, uint32_t word);

/* Call [done], the function of [op]. */
void wf_op_call(struct weft_ep *ep, struct weft_op *op, void (*done)(struct weft_op *op));
/* Store the [status] with which [op] ends. Release: a waiter sees the results with the status. */
static inline void wf_op_complete(struct weft_op *op, enum weft_status status)
{
    op->entry_ = NULL;
    __atomic_store_n(&op->status, (int32_t)status, __ATOMIC_RELEASE);
}
/* Complete [op], the last step of an operation: store [status] in it and call its function
 * [done]. */
static inline void wf_op_end(struct weft_ep *ep, struct weft_op *op, enum weft_status status)
{
    void (*done)(struct weft_op *) = op->done;
    wf_op_complete(op, status);
    if (done)
        wf_op_call(ep, op, done);
}

/* Returns what a public call that was given [op] returns. If [status] is OK, stores OK in [op],
 * too. */
static inline enum weft_status wf_op_result(struct weft_op *op, enum weft_status status)
{
    return status == WEFT_OK ? weft_op_ok_(op) : status;
}

/* Returns a free receive, or NULL if there is none. */
static inline struct wf_recv *wf_recv_pop(struct wf_req_table *t)
{
    struct wf_list *item = t->recvs;
    if (!item)
        return NULL;
    t->recvs = item->next;
    return wf_container_of(item, struct wf_recv, match.all);
}
/* Returns a receive, or NULL if there is no memory. */
struct wf_recv *wf_recv_new(struct weft_ep *ep);
/* Free a receive that has one buffer. */
static inline void wf_recv_push(struct wf_req_table *t, struct wf_recv *r)
{
    r->op = NULL; /* weft_msg_cancel must not find the old weft_op here */
    r->match.all.next = t->recvs;
    t->recvs = &r->match.all;
}
static inline void wf_recv_free(struct wf_req_table *t, struct wf_recv *r)
{
    if (r->mem.v != &r->mem.one)
        wf_iov_clear(&r->mem);
    wf_recv_push(t, r);
}

#endif
