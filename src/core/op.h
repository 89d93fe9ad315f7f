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
    struct wf_list issued; /* flow->issued; alone if the application did not start it */
    struct wf_list queued; /* flow->queue; COPY: ep->copying; else alone */
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_op *op;       /* may be null */
    struct wf_remote *remote; /* of PUT to SIGNAL: a reference */
    uint32_t id;              /* index | generation << WF_ENTRY_BITS */
    uint8_t kind;
    uint8_t path;   /* enum wf_path: how its bytes go */
    bool started;   /* SIGNAL: the word has been asked for */
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
            uint32_t id;        /* the sender's */
        } copy;
        struct {
            uint32_t id;
            int32_t status;
        } done;
        struct {
            uint64_t puts; /* as wf_puts.begun */
        } flush;
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

#define WF_ENTRY_BITS 20

struct wf_entries {
    struct wf_entry **by_index;
    uint32_t room;    /* of by_index */
    uint32_t created; /* entries there are, used or free */
    uint32_t used;
    bool beyond; /* WEFT_OPS may be passed by what is to be done again */
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
    struct weft_peer *peer;
    struct wf_puts *puts; /* null until the first put by NICs */
    unsigned entries;
    uint64_t
        retry_ns; /* a push failed for want of descriptors or memory: not before; 0: it did not */
    enum weft_status lost; /* first failure of an operation without op */
    bool no_pull;          /* its process may not be copied from, or cannot copy from here */
};

/* A new entry of [peer]; null: none left (ELIMIT) or no memory, see *why.
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
/* The entry [id] of kind [kind], or null. */
struct wf_entry *wf_entry_find(struct weft_ep *ep, uint32_t id, enum wf_kind kind);
/* The entry [id], whatever its kind, or null. */
struct wf_entry *wf_entry_get(struct weft_ep *ep, uint32_t id);
/* It has completed. Runs the op's done. */
void wf_entry_end(struct wf_entry *e, enum weft_status status);
/* Flushes whose turn has come. */
void wf_flushes_end(struct weft_ep *ep, struct wf_flow *flow);
/* The op's last step; for entries that live on. */
void wf_op_end(struct weft_ep *ep, struct weft_op *op, enum weft_status status);
/* Send what there is room for with [push], the rest later. PENDING, or what
 * [push] returned if it is over: then the entry is gone, op was not touched. With
 * op null and nothing sent: AGAIN, and the entry is gone.
 * A push returns OK (complete), PENDING (all is sent, answers are due), AGAIN (no
 * room), or a failure. */
enum weft_status wf_entry_start(struct wf_entry *e, enum weft_status (*push)(struct wf_entry *));
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
