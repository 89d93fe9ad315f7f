/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations in flight. An operation that cannot be complete when its call
 * returns gets an entry; its messages are sent when there is room, its answers
 * find it by its number, and its end fills in the caller's weft_op.
 *
 * An entry is on its flow's [issued] list, in the order in which the application
 * started its operations: a flush is an entry too, and ends when it is the first.
 * While it has something left to send it is also in its flow's [queue]: what
 * one peer handle sends leaves in the order in which it was started.
 *
 * Numbers. An entry is named by its index and by how many operations had that index before:
 * 64 bits that never come again at this endpoint (an index of which all are used up is retired).
 * Whatever can outlive an operation keeps all of it and finds nobody afterwards: OFFER, and what
 * its receiver sends for it (OFFER ANSWER, DONE, FETCH), which need not have been told that the
 * sender's operation failed; a fragment's order; the payload that a transport has still to send.
 *
 * Replies and moves carry its low 32 bits, for they cannot outlive it:
 *  - Each reply belongs to one request and each move is reported once (transport.h: rule 4, moved).
 *    Both are counted in [unanswered], and an entry ends only when that is 0, whatever failed
 *    before: wf_entry_start and flow_push keep one that fails with some outstanding, answer_count
 *    and on_piece wait for the last.
 *  - Only the loss of its peer handle ends it earlier (wf_flow_down). No reply to that handle's
 *    requests is delivered and no move of its is reported after that (rule 5, moved), and a
 *    handle opened later has connections of its own.
 * A peer that lies may answer one request with the number of another: only operations of its own
 * are found by that (wf_own_is_to).
 *
 * One owner, the endpoint's. */
#ifndef WF_CORE_OP_H
#define WF_CORE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "base/util.h"
#include "core/match.h"
#include "transport/transport.h"

struct wf_source;
struct wf_remote;

enum wf_kind {
    WF_KIND_FREE,
    WF_KIND_SEND,  /* a whole tagged message that waits for room */
    WF_KIND_OFFER, /* a tagged message that its receiver copies */
    WF_KIND_DONE,  /* tells the sender so */
    WF_KIND_COPY,  /* a receive that copies an offered message */
    WF_KIND_PUT,
    WF_KIND_GET,
    WF_KIND_ATOMIC,
    WF_KIND_LONG,
    WF_KIND_SIGNAL, /* a put, then the word; args hold the word's region */
    WF_KIND_FLUSH,
    WF_KIND_OPEN, /* of a region: remote.c */
    WF_KIND_LATE, /* a detached request: later.c */
};

/* A write in several pieces that counts as one at its owner, who is told when all are there. */
enum wf_whole { WF_WHOLE_UNASKED, WF_WHOLE_ASKED, WF_WHOLE_DUE, WF_WHOLE_TOLD };

/* Pieces of local memory. */
struct wf_iov {
    const struct iovec *v; /* [n]; &one, or allocated */
    unsigned n;
    struct iovec one;
};

/* A posted receive that no message has matched: not an entry, since it has
 * nothing to send, and most receives never need more. */
struct wf_recv {
    struct wf_match_recv match; /* its source is a struct wf_source */
    struct weft_op *op;
    struct weft_ep *ep;
    uint64_t room; /* bytes of mem */
    struct wf_iov mem;
    struct wf_recv *next; /* free ones */
};

/* weft_op.entry_ of a posted receive: its address + 1. */
#define WF_RECV_MARK 1u

struct wf_entry {
    struct wf_list issued;  /* flow->issued; alone if the application did not start it */
    struct wf_list queued;  /* flow->queue; COPY: ep->copying; OPEN: ep->opening; else alone */
    struct wf_list losable; /* flow->losable; a FLUSH: alone */
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_op *op;       /* may be null */
    struct wf_remote *remote; /* of PUT to SIGNAL and OPEN: a reference */
    uint64_t id;              /* index | generation << WF_ENTRY_BITS */
    uint8_t kind;
    uint8_t path;   /* enum wf_path: how its bytes go */
    bool started;   /* SIGNAL: the word has been asked for */
    bool bounded;   /* by wf_config()->ops; wf_entries.bounded */
    int16_t status; /* first failure */
    uint32_t unanswered;
    struct wf_iov mem;    /* the caller's memory */
    uint64_t len;         /* to move */
    uint64_t sent, moved; /* of it: asked for, done */
    union {
        struct {
            uint64_t tag;
        } send;
        struct {
            uint64_t tag, full; /* full: length that was sent */
            struct wf_source *source;
            struct wf_iov from; /* addresses in the sender's process */
            uint64_t id;        /* the sender's */
        } copy;
        struct {
            uint64_t id;
            int32_t status;
        } done;
        struct {
            uint64_t puts; /* as wf_puts.begun */
        } flush;
        struct {
            struct weft_remote **out;
        } open;
        struct {
            struct wf_source *source; /* a reference */
            uint32_t room;
            uint8_t handler, nargs;                    /* the request's */
            uint8_t told;                              /* args of the message; 0: no reply yet */
            uint32_t asked[WEFT_AM_FAILED_ARGS];       /* the request's */
            uint32_t args[1 + WEFT_AM_LATER_MAX_ARGS]; /* the message's */
            const void *data;                          /* of the reply; allocated once it waits */
            uint64_t since_ns;                         /* it waits */
        } late;
        struct {
            uint64_t offset, gen;
            uint32_t slot;
            uint8_t handler, nargs;
            uint32_t reply_max;
            uint32_t args[WEFT_AM_MAX_ARGS];
            uint8_t operation, type;
            uint8_t whole; /* enum wf_whole */
            bool ordered;  /* a fragment's: */
            struct wf_order order;
            uint64_t operand, compare, *fetched;
        } rma;
    } u;
};

#define WF_ENTRY_BITS 24

/* [ops] bounds what the application begins: sends, puts, gets, atomics, signals, long messages
 * and flushes. What ends the operations of others, a receive that a long message has matched
 * (COPY, then DONE), always gets an entry, memory permitting: two sides whose entries are full of
 * sends to each other would else never end any. Detached requests have a limit of their own
 * (WEFT_LATE_REPLIES). So does a put by NICs that is done again by
 * messages, for which all entries may be flushes that wait. Answers need none. */
struct wf_entries {
    struct wf_entry **by_index;
    uint32_t room;    /* of by_index */
    uint32_t created; /* entries there are, used or free */
    uint32_t used;
    uint32_t bounded; /* of them: wf_config()->ops at most */
    bool again;       /* what is begun now was begun before */
    struct wf_list free;
    struct wf_recv *recvs; /* free ones */
    struct wf_list chunks; /* of receives */
};

struct wf_puts; /* puts.h */

/* A peer's operations. */
struct wf_flow {
    struct wf_list stalled; /* ep->stalled */
    struct wf_list queue;   /* entries with something left to send */
    struct wf_list issued;
    struct wf_list losable; /* all entries that end with its loss: not flushes, which these end */
    struct weft_peer *peer;
    struct wf_puts *puts; /* null until the first put by NICs */
    unsigned entries;
    uint64_t
        retry_ns; /* a push failed for want of descriptors or memory: not before; 0: it did not */
    enum weft_status lost; /* first failure of an operation without op */
    bool no_pull;          /* its process may not be copied from, or cannot copy from here */
};

/* A new entry of [peer]; null: too many are under way (ELIMIT) or no memory, see *why.
 * [issued]: started by the application, so that a flush waits for it. */
struct wf_entry *wf_entry_new(struct weft_ep *ep, struct weft_peer *peer, enum wf_kind kind,
                              struct weft_op *op, bool issued, enum weft_status *why);
/* A receive; null: no memory. */
struct wf_recv *wf_recv_new(struct weft_ep *ep);

/* The peer's, made if there is none; null: no memory. */
struct wf_flow *wf_flow_of(struct weft_peer *peer);
/* Make it [peer]'s. OK | ENOMEM */
enum weft_status wf_entry_bind(struct wf_entry *e, struct weft_peer *peer);
/* Forget an entry: one that was never started, or that is over. */
void wf_entry_free(struct wf_entry *e);
/* The entry [id], whatever its kind; null: its operation is over. */
struct wf_entry *wf_entry_get(struct weft_ep *ep, uint64_t id);
/* The entry [id] of kind [kind], or null. */
struct wf_entry *wf_entry_find(struct weft_ep *ep, uint64_t id, enum wf_kind kind);
/* The entry whose number's low bits [word] a reply or a move brought, or null. */
struct wf_entry *wf_entry_asked(struct weft_ep *ep, uint32_t word);
/* It has completed. Runs the op's done. */
void wf_entry_end(struct wf_entry *e, enum weft_status status);
/* Flushes whose turn has come. */
void wf_flushes_end(struct weft_ep *ep, struct wf_flow *flow);
/* The op's last step; for entries that live on. */
void wf_op_end(struct weft_ep *ep, struct weft_op *op, enum weft_status status);

/* What a public call that was given [op] returns. Whoever looks at op->status alone after OK finds
 * it there, too. */
static inline enum weft_status wf_op_result(struct weft_op *op, enum weft_status status)
{
    return status == WEFT_OK ? weft_op_ok_(op) : status;
}
/* Send what there is room for with [push], the rest later. PENDING, or what
 * [push] returned if it is over: then the entry is gone, op was not touched. With
 * op null and nothing sent: AGAIN, and the entry is gone.
 * A push returns OK (complete), PENDING (all is sent, answers are due), AGAIN (no
 * room), or a failure. */
enum weft_status wf_entry_start(struct wf_entry *e, enum weft_status (*push)(struct wf_entry *));
/* The same for an operation whose first part is done: never AGAIN, its messages wait for room also
 * without an op. */
enum weft_status wf_entry_go_on(struct wf_entry *entry,
                                enum weft_status (*first)(struct wf_entry *));
/* It has something to send again. */
void wf_entry_queue(struct wf_entry *e);

bool wf_flow_busy(const struct weft_peer *peer);
void wf_flow_close(struct weft_peer *peer);
/* All operations of [peer] end with [why]. */
void wf_flow_down(struct weft_peer *peer, enum weft_status why);

/* Once per poll: receives under way, then queues. Returns events. */
int wf_op_progress(struct weft_ep *ep);
/* Before sleep: push what can be pushed. False: something is left that no event
 * will announce, or something happened. */
bool wf_op_settle(struct weft_ep *ep);
/* Outside of poll: what [peer] has to send, at once. */
void wf_flow_push(struct weft_peer *peer);
/* Try [e] again, but not at once: nothing announces that it would work. AGAIN */
enum weft_status wf_entry_retry(struct wf_entry *e);
/* Of a push that failed: gone with the peer, or to be tried again? */
static inline bool wf_is_loss(enum weft_status s)
{
    return s == WEFT_EPEER || s == WEFT_ECLOSED || s == WEFT_EPROTO || s == WEFT_EUNREACH;
}

void wf_entries_init(struct weft_ep *ep);
void wf_entries_fini(struct weft_ep *ep);

/* The longest payload that any process may send (WEFT_AM_MAX). */
#define WF_SCRATCH 32704
/* Have ep->scratch. OK | ENOMEM */
enum weft_status wf_scratch_need(struct weft_ep *ep);

/* ---- pieces of local memory ---- */

/* Check an array from a caller; its bytes in *len. OK | EINVAL */
enum weft_status wf_iov_check(const struct iovec *iov, unsigned count, size_t *len);
/* OK | ENOMEM */
enum weft_status wf_iov_set(struct wf_iov *to, const struct iovec *iov, unsigned count);
static inline void wf_iov_one(struct wf_iov *to, const void *buf, size_t len)
{
    to->one = (struct iovec){(void *)(uintptr_t)buf, len};
    to->v = &to->one;
    to->n = 1;
}
void wf_iov_clear(struct wf_iov *iov);
/* [from] is empty afterwards. */
void wf_iov_move(struct wf_iov *to, struct wf_iov *from);
/* The contiguous bytes from [at] on: their address, at most *len of them. */
void *wf_iov_span(const struct wf_iov *iov, uint64_t at, size_t *len);
void wf_iov_gather(void *dst, const struct wf_iov *iov, uint64_t at, size_t len);
void wf_iov_scatter(const struct wf_iov *iov, uint64_t at, const void *src, size_t len);

static inline void wf_recv_give(struct wf_entries *t, struct wf_recv *r)
{
    if (r->mem.v != &r->mem.one)
        wf_iov_clear(&r->mem);
    r->op = NULL; /* weft_msg_cancel looks */
    r->next = t->recvs;
    t->recvs = r;
}

#endif
