/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of many messages. A struct weft_msg_many gives each message the next place in one
 * buffer. It has one struct wf_recv, which stays in the matcher. Only its r->mem shows that it is
 * not a receive of one message: it has no buffers, so the short way of wf_msg_on_tagged, which
 * needs one buffer, leaves such receives alone without a test of its own.
 *
 *   state     in the matcher  op->entry_    arriving_   next
 *   takes     yes             its wf_recv   any number  left: less than [least] is left, it is
 *                                                       cancelled, or its source or endpoint ends
 *   left      no              + MANY_LEFT   not 0       complete: the last message is complete
 *   complete  no              NULL          0           -
 *
 * A message that does not arrive whole has an op of its own, struct part. Its completion is that of
 * the message. Messages may complete in another order than that of their places. */
#include "core/msg_many.h"

#include <stdlib.h>
#include <string.h>

#include "core/ctl.h"
#include "core/mr_local.h"

/* A message on its way to its place. */
struct part {
    struct weft_op op;
    struct weft_msg_many *many;
    struct weft_ep *ep;
    unsigned char *place;
};

static struct weft_msg_many *many_of(struct weft_op *op)
{
    return wf_container_of(op, struct weft_msg_many, op);
}

/* Call the program's function for a message that is complete. */
static inline void received(struct weft_ep *ep, struct weft_msg_many *many,
                            const struct weft_op *message, void *place)
{
    bool busy = wf_ep_is_busy(ep);
    wf_ep_set_busy(ep, true);
    many->received(many, message, place);
    wf_ep_set_busy(ep, busy);
}

/* The next place, of at most [len] bytes. Stores its length in *n. */
static unsigned char *place_take(struct weft_msg_many *many, uint64_t len, size_t *n)
{
    unsigned char *place = (unsigned char *)many->buf + many->used_;
    *n = (size_t)WF_MIN(len, many->len - many->used_);
    many->used_ += *n;
    many->arriving_++;
    return place;
}

static bool is_full(const struct weft_msg_many *many)
{
    return many->len - many->used_ < many->least;
}

/* A message has ended, or the call that posts the receive. Returns true if the receive has ended
 * with it; then its op has to be completed with many->end_. */
static bool one_less(struct weft_msg_many *many)
{
    return !--many->arriving_ && wf_many_left_at(&many->op);
}

static void left(struct weft_ep *ep, struct weft_msg_many *many, enum weft_status why)
{
    many->end_ = (int32_t)why;
    many->op.entry_ = (char *)ep + WF_MANY_LEFT;
}

static void unpost(struct wf_recv *r, enum weft_status why)
{
    struct weft_msg_many *many = many_of(r->op);
    struct weft_ep *ep = r->ep;
    wf_msg_unpost(r);
    wf_recv_free(&ep->reqs, r);
    left(ep, many, why);
}

static void message_ended(struct weft_ep *ep, struct weft_msg_many *many)
{
    if (one_less(many))
        wf_op_end(ep, &many->op, (enum weft_status)many->end_);
}

enum weft_status wf_msg_many_stop(struct wf_recv *r, enum weft_status why)
{
    struct weft_msg_many *many = many_of(r->op);
    struct weft_ep *ep = r->ep;
    unpost(r, why);
    if (many->arriving_)
        return WEFT_EBUSY;
    wf_op_end(ep, &many->op, why);
    return WEFT_OK;
}

/* Set the fields that wf_msg_op_fill and its caller do not set. One by one: the compiler would
 * clear the whole by `rep stos`, which takes longer to begin than all else does for a short
 * message. */
static inline void clear(struct weft_op *message)
{
    message->flags = 0;
    message->user = NULL;
    message->done = NULL;
    message->entry_ = NULL;
    message->local = NULL;
    message->locals = NULL;
    message->reserved[0] = 0;
}

void wf_msg_many_whole(struct wf_recv *r, struct wf_sender *sender, const struct wf_msg_head *head,
                       const void *data, uint64_t len)
{
    struct weft_msg_many *many = many_of(r->op);
    struct weft_ep *ep = r->ep;
    struct weft_op message;
    size_t n;
    unsigned char *place = place_take(many, len, &n);
    clear(&message);
    message.status = len > n ? WEFT_ETRUNC : WEFT_OK;
    wf_msg_op_fill(&message, sender, head, len);
    if (__builtin_expect(is_full(many), 0))
        unpost(r, WEFT_OK);
    if (n <= WF_MSG_SMALL)
        wf_copy_small(place, data, n);
    else
        memcpy(place, data, n);
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, n);
    wf_ep_count(ep, WF_STAT_MSG_RECEIVED, 1);
    received(ep, many, &message, place);
    message_ended(ep, many);
}

static void part_done(struct weft_op *op)
{
    struct part *part = wf_container_of(op, struct part, op);
    struct weft_msg_many *many = part->many;
    received(part->ep, many, op, part->place);
    message_ended(part->ep, many);
    free(part);
}

/* Returns NULL if there is no memory. */
static struct part *part_new(struct weft_ep *ep, struct weft_msg_many *many, uint64_t len,
                             size_t *n)
{
    struct part *part = calloc(1, sizeof *part);
    if (!part)
        return NULL;
    part->ep = ep;
    part->many = many;
    part->place = place_take(many, len, n);
    part->op.done = part_done;
    part->op.status = WEFT_PENDING;
    return part;
}

struct weft_op *wf_msg_many_begin(struct wf_recv *r, uint64_t len, struct wf_iov *mem,
                                  uint64_t *room)
{
    struct weft_msg_many *many = many_of(r->op);
    size_t n;
    struct part *part = part_new(r->ep, many, len, &n);
    if (!part) {
        (void)wf_msg_many_stop(r, WEFT_ENOMEM);
        return NULL;
    }
    if (is_full(many))
        unpost(r, WEFT_OK);
    wf_iov_one(mem, part->place, n);
    *room = n;
    return &part->op;
}

/* ---- posting ---- */

/* Receive the kept message [m], which is in the matcher. [named]: [many] names its sender. Returns
 * OK, or ENOMEM, ELIMIT or ESYSTEM, after which nothing has changed. */
static enum weft_status kept_take(struct weft_ep *ep, struct weft_msg_many *many,
                                  struct weft_msg *m, bool named)
{
    size_t n;
    struct part *part = part_new(ep, many, m->len, &n);
    struct iovec place;
    enum weft_status status;
    if (!part)
        return WEFT_ENOMEM;
    place = (struct iovec){part->place, n};
    m->named = named;
    status = wf_msg_take(ep, &m, true, &place, 1, n, &part->op);
    if (m) {
        many->used_ -= n;
        many->arriving_--;
        free(part);
        return status;
    }
    if (status != WEFT_PENDING)
        part_done(&part->op);
    return WEFT_OK;
}

/* Receive the kept messages that match, as long as there is room. */
static enum weft_status kept_take_all(struct weft_ep *ep, struct weft_msg_many *many,
                                      const struct weft_msg_filter *filter,
                                      const struct wf_sender *sender)
{
    struct wf_match *match = *wf_msg_match_at(ep, filter->space);
    enum weft_status status = WEFT_OK;
    struct wf_match_msg *found;
    while (status == WEFT_OK && !is_full(many) &&
           (found = wf_match_msg_find(match, sender, filter->tag, filter->mask)))
        status = kept_take(ep, many, wf_container_of(found, struct weft_msg, match), sender);
    return status;
}

/* The steps of the call after its arguments are checked. [r] is a free receive. Returns PENDING if
 * the receive is in the matcher, else how it ends; then [r] was freed. */
static enum weft_status begin(struct weft_ep *ep, struct weft_msg_many *many,
                              const struct weft_msg_filter *filter, struct wf_sender *sender,
                              struct wf_recv *r)
{
    enum weft_status status = kept_take_all(ep, many, filter, sender);
    if (status == WEFT_OK && !is_full(many)) {
        if (sender && (sender->down || filter->source->status != WEFT_OK))
            status = sender->down ? sender->down : filter->source->status;
        else if (!filter->source || (status = wf_peer_heed(filter->source)) == WEFT_OK)
            status = WEFT_PENDING;
    }
    if (status != WEFT_PENDING) {
        r->mem.n = 1;
        wf_recv_free(&ep->reqs, r);
        return status;
    }
    wf_iov_clear(&r->mem);
    wf_recv_fill(r, sender, filter, many->len, &many->op);
    wf_match_recv_add(*wf_msg_match_at(ep, filter->space), &r->match);
    return WEFT_PENDING;
}

static bool is_valid(const struct weft_msg_many *many)
{
    return many && many->received && many->buf && many->least && many->len >= many->least &&
           many->len <= SIZE_MAX / 2;
}

enum weft_status weft_msg_recv_many(struct weft_ep *ep, const struct weft_msg_filter *filter,
                                    struct weft_msg_many *many)
{
    struct wf_sender *sender = NULL;
    enum weft_status status = WEFT_EINVAL;
    struct wf_recv *r;
    if (!is_valid(many) || !wf_msg_filter_ok(filter))
        return status;
    status = wf_msg_find_begin(ep, filter->source, filter->space, &sender);
    if (status != WEFT_OK)
        return status;
    status = wf_local_one(ep, &many->op, many->buf, many->len, WEFT_RECV);
    r = status == WEFT_OK ? wf_recv_new(ep) : NULL;
    if (!r)
        return wf_ep_left(ep, status == WEFT_OK ? WEFT_ENOMEM : status);
    many->used_ = 0;
    many->arriving_ = 1; /* this call */
    many->op.entry_ = NULL;
    many->op.status = WEFT_PENDING;
    status = begin(ep, many, filter, sender, r);
    if (status != WEFT_PENDING)
        left(ep, many, status);
    if (one_less(many))
        wf_op_complete(&many->op, status);
    else
        status = WEFT_PENDING;
    return wf_ep_left(ep, status);
}
