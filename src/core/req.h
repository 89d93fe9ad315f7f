/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: the operations in flight of an endpoint. An operation that is not complete when its
 * call returns has a request. Its messages leave when there is room (flow.h), its answers name the
 * request by its id, and its end fills in the caller's weft_op.
 *
 * Ids. A request's id is its index in the table and the number of operations that used this index
 * before it: 24 and 40 bits, which never come again at this endpoint, since an index is retired
 * with its last id. All 64 bits are kept by whatever can outlive an operation, which then finds no
 * request: an OFFER and what its receiver sends for it (OFFER ANSWER, DONE, FETCH), for the
 * receiver need not know that the sender's operation failed; a fragment's order; the payload that a
 * transport has still to send.
 *
 * Replies and NIC operations carry the low 32 bits, for they cannot outlive the operation:
 *  - Each reply belongs to one message, and each NIC operation is reported once (transport.h: rule
 *    4, nic_op_done). Both are counted in [unanswered], and a request ends only when that is 0,
 *    whatever failed before: wf_req_start and flow_push keep a request that fails while some are
 *    outstanding; answer_count and wf_msg_on_piece wait for the last.
 *  - Only the loss of its peer handle ends a request earlier (wf_flow_down). After that the
 *    transport delivers no reply to that handle's messages and reports none of its NIC operations
 *    (rule 5, nic_op_done); a handle opened later has connections of its own.
 * A lying peer may answer one request by the id of another, but only by that of a request to
 * itself (wf_ctl_is_reply_to).
 *
 * One owner, the endpoint's. */
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
#include "transport/transport.h"

struct wf_sender;
struct wf_remote;

enum wf_req_kind {
    WF_REQ_FREE,
    WF_REQ_SEND,  /* a whole tagged message that waits for room */
    WF_REQ_OFFER, /* a tagged message that its receiver copies */
    WF_REQ_DONE,  /* reports to the sender of an offer that it was copied */
    WF_REQ_COPY,  /* a receive that copies an offered message */
    WF_REQ_PUT,
    WF_REQ_GET,
    WF_REQ_ATOMIC,
    WF_REQ_LONG,
    WF_REQ_SIGNAL, /* a put, then an atomic on the signal's word, whose region args name */
    WF_REQ_FLUSH,
    WF_REQ_OPEN, /* of a region: remote.c */
    WF_REQ_LATE, /* a detached request: later.c */
};

/* A write in several pieces to a region with a counter counts once, when all pieces are written:
 * then a message without bytes has its owner count. */
enum wf_count { WF_COUNT_NONE, WF_COUNT_WANTED, WF_COUNT_DUE, WF_COUNT_SENT };

/* A posted receive that no message has matched. Not a request, since it has nothing to send, and
 * most receives never need one. */
struct wf_recv {
    struct wf_match_recv match; /* its source is a struct wf_sender */
    struct weft_op *op;
    struct weft_ep *ep;
    uint64_t room; /* bytes of mem */
    struct wf_iov mem;
    struct wf_recv *next; /* in the list of free ones */
};

/* weft_op.entry_ of a posted receive: its address + 1. */
#define WF_RECV_MARK 1u

struct wf_req {
    struct wf_list issued;  /* flow->issued; alone if the application did not start it */
    struct wf_list queued;  /* flow->queue; COPY: ep->copying; OPEN: ep->opening; else alone */
    struct wf_list on_loss; /* flow->on_loss; a FLUSH: alone */
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_op *op;       /* may be null */
    struct wf_remote *remote; /* of PUT to SIGNAL and OPEN: a reference */
    uint64_t id;              /* index | earlier uses of the index << WF_REQ_INDEX_BITS */
    uint8_t kind;
    uint8_t path;   /* enum wf_path: how its bytes go */
    bool word_sent; /* SIGNAL: its atomic was sent */
    bool bounded;   /* counted in wf_req_table.bounded */
    int16_t status; /* first failure */
    uint32_t unanswered;
    struct wf_iov mem;     /* the caller's memory */
    uint64_t len;          /* bytes of the operation */
    uint64_t sent, copied; /* of these: requested; done */
    union {
        struct {
            uint64_t tag;
        } send;
        struct {
            uint64_t tag, full; /* full: length that was sent */
            struct wf_sender *sender;
            struct wf_iov from; /* addresses in the sender's process */
            uint64_t id;        /* of the sender's request */
        } copy;
        struct {
            uint64_t id; /* of the sender's request */
            int32_t status;
        } done;
        struct {
            uint64_t puts_begun; /* as wf_put_ring.begun */
        } flush;
        struct {
            struct weft_remote **out;
        } open;
        struct {
            struct wf_sender *sender; /* of the detached request; a reference */
            uint32_t reply_max;       /* bytes */
            uint8_t request_handler, request_nargs;
            uint8_t message_nargs; /* 0: no reply yet */
            uint32_t request_args[WEFT_AM_FAILED_ARGS];
            uint32_t message_args[1 + WEFT_AM_LATER_MAX_ARGS];
            const void *data;   /* the reply's payload; allocated once the message waits for room */
            uint64_t queued_ns; /* since then it waits */
        } late;
        struct {
            uint64_t offset, gen;
            uint32_t slot;
            uint8_t handler, nargs;
            uint32_t reply_max;
            uint32_t args[WEFT_AM_MAX_ARGS];
            uint8_t operation, type;
            uint8_t count; /* enum wf_count */
            bool ordered;  /* a fragment's put, which follows [order] */
            struct wf_order order;
            uint64_t operand, compare, *fetched;
        } rma;
    } u;
};

#define WF_REQ_INDEX_BITS 24

/* wf_config()->ops bounds the operations that the application starts: sends, puts, gets, atomics,
 * signals, long messages and flushes. Three others have a request whenever there is memory:
 *  - a receive that a long message has matched (COPY, then DONE), which ends the sender's
 * operation: two sides whose tables are full of sends to each other could otherwise never end any;
 *  - a detached request, which has a limit of its own (WEFT_LATE_REPLIES);
 *  - a put by NICs that messages do again, for all requests may be flushes that wait for it.
 * Answers need no request. */
struct wf_req_table {
    struct wf_req **by_index;
    uint32_t room;    /* of by_index */
    uint32_t created; /* requests there are, used or free */
    uint32_t used;
    uint32_t bounded; /* of the used ones: wf_config()->ops at most */
    bool redo;        /* new requests do again what had begun: they are not bounded */
    struct wf_list free;
    struct wf_recv *recvs; /* free receives */
    struct wf_list chunks; /* of receives */
};

void wf_reqs_init(struct weft_ep *ep);
void wf_reqs_fini(struct weft_ep *ep);

/* A new request to [peer]; null: too many are in flight (ELIMIT) or no memory, see *why.
 * [issued]: the application started it, so that a flush waits for it. */
struct wf_req *wf_req_new(struct weft_ep *ep, struct weft_peer *peer, enum wf_req_kind kind,
                          struct weft_op *op, bool issued, enum weft_status *why);
/* Make a request that has no peer one to [peer]. OK | ENOMEM */
enum weft_status wf_req_bind(struct wf_req *req, struct weft_peer *peer);
/* Free a request that was never started, or that is over. */
void wf_req_free(struct wf_req *req);
/* It is over: free it, then run the op's done. */
void wf_req_end(struct wf_req *req, enum weft_status status);

/* The request [id], whatever its kind; null: its operation is over. */
struct wf_req *wf_req_get(struct weft_ep *ep, uint64_t id);
/* The request [id] of kind [kind], or null. */
struct wf_req *wf_req_find(struct weft_ep *ep, uint64_t id, enum wf_req_kind kind);
/* The request whose id has the low bits [word], which a reply or a NIC operation brought; or null.
 */
struct wf_req *wf_req_by_word(struct weft_ep *ep, uint32_t word);

/* Complete [op]: the last step of an operation. */
void wf_op_end(struct weft_ep *ep, struct weft_op *op, enum weft_status status);

/* What a public call that was given [op] returns: after OK, op->status is OK, too. */
static inline enum weft_status wf_op_result(struct weft_op *op, enum weft_status status)
{
    return status == WEFT_OK ? weft_op_ok_(op) : status;
}

/* A receive; null: no memory. */
struct wf_recv *wf_recv_new(struct weft_ep *ep);
static inline void wf_recv_free(struct wf_req_table *t, struct wf_recv *r)
{
    if (r->mem.v != &r->mem.one)
        wf_iov_clear(&r->mem);
    r->op = NULL; /* weft_msg_cancel compares it */
    r->next = t->recvs;
    t->recvs = r;
}

#endif
