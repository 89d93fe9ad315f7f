/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving tagged messages: functions that the application's calls (msg.c), the handlers of
 * arriving messages (msg_recv.c) and kept messages (msg_kept.c) use. */
#ifndef WF_CORE_MSG_RECV_H
#define WF_CORE_MSG_RECV_H

#include <stdlib.h>

#include "base/probe.h"
#include "core/msg.h"
#include "core/msg_credit.h"

#define WF_MSG_SMALL 64 /* bytes that wf_copy_small copies faster than memcpy(3) */

/* A message that no receive has matched. weft_msg_claim hands such a message to the application. */
struct weft_msg {
    struct wf_match_msg match;
    struct wf_sender *sender;
    uint64_t len;
    uint64_t data;            /* its data, as in struct wf_msg_head */
    uint64_t id;              /* for an offer: the id of the sender's request */
    struct wf_pull_word word; /* for an offer: the sender has the bytes as long as it holds */
    /* for an offer: item of sender->kept_offers; else in no list */
    struct wf_list offers;
    void *const *conn; /* for an offer: the connection on which it came */
    union {
        struct wf_req *parts; /* not null as long as parts of the message are still to come */
        struct weft_msg *next_spare; /* in ep->kept_spares */
    };
    uint8_t nfrom;
    uint8_t member; /* for an offer: of the sender's group (sender.h) */
    uint16_t what;  /* as in struct wf_msg_head */
    bool offer, claimed : 1;
    bool due : 1;    /* for an offer: its payload is on its way */
    bool named : 1;  /* the receive or claim that has it names its sender */
    bool brief : 1;  /* the record is of the size that may become a spare */
    bool by_nic : 1; /* for an offer: NICs may read its bytes */
    int16_t lost;    /* claimed, and its last parts will never come: why not; else OK */
    /* the message's bytes; for an offer, struct wf_offer_range[nfrom], or struct wf_nic_lent if
     * by_nic was true when it came */
    _Alignas(16) uint8_t bytes[];
};

/* Each record has room for so many bytes, and more only if the message is longer. */
#define WF_KEPT_BRIEF 32u

_Static_assert(sizeof(struct weft_msg) <= WF_MSG_CHARGE, "a kept message is charged");

static inline struct wf_msg_head wf_msg_head_of(const struct weft_msg *m)
{
    return (struct wf_msg_head){m->match.tag, m->data, m->what};
}

/* The contents of an OFFER, which announces a long tagged message. They have been checked. */
struct wf_msg_offer {
    struct wf_sender *sender;
    struct wf_msg_head head;
    uint64_t len, id;
    struct wf_pull_word word;
    unsigned nfrom;
    const struct wf_offer_range *from;
    bool pushed;       /* its payload follows */
    void *const *conn; /* the connection on which it came */
    unsigned member;   /* of the sender's group (sender.h) */
    bool named;        /* the receive names the sender */
    bool by_nic;       /* NICs may read its bytes, at [nic] */
    struct wf_nic_lent nic;
};
_Static_assert(WF_GROUP_BITS <= 8 && WEFT_IOV_MAX <= 255, "one byte of struct weft_msg");

/* Returns where the pointer to the matcher of [space] is. */
static inline struct wf_match **wf_msg_match_at(struct weft_ep *ep, unsigned space)
{
    return space ? &ep->spaces[space - 1] : &ep->match;
}

/* Returns the matcher of [space], after making it if there is none. Returns NULL if there is no
 * memory. */
static inline struct wf_match *wf_msg_match(struct weft_ep *ep, unsigned space)
{
    struct wf_match **at = wf_msg_match_at(ep, space);
    if (!*at)
        *at = wf_match_new();
    return *at;
}

static inline void wf_msg_op_fill(struct weft_op *op, struct wf_sender *sender,
                                  const struct wf_msg_head *head, uint64_t len)
{
    op->len = len;
    op->tag = head->tag;
    op->sender = wf_sender_name(sender);
    op->data = head->data;
    op->has_data = !!(head->what & WF_WHAT_DATA);
}

/* Copy a message that arrived whole to the buffers of a receive. Returns OK, or ETRUNC if the
 * buffers hold fewer than [len] bytes. */
static inline enum weft_status wf_msg_whole_take(struct weft_ep *ep, const struct wf_iov *mem,
                                                 uint64_t room, const void *data, uint64_t len)
{
    size_t n = (size_t)WF_MIN(len, room);
    if (mem->n == 1 && n == 8)
        memcpy(mem->v->iov_base, data, 8);
    else if (mem->n == 1 && n)
        memcpy(mem->v->iov_base, data, n);
    else if (n)
        wf_iov_scatter(mem, 0, data, n);
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, n);
    wf_ep_count(ep, WF_STAT_MSG_RECEIVED, 1);
    return len > room ? WEFT_ETRUNC : WEFT_OK;
}

/* Fill in a receive whose memory is set already, and its op. */
static inline void wf_recv_fill(struct wf_recv *r, struct wf_sender *sender,
                                const struct weft_msg_filter *filter, size_t room,
                                struct weft_op *op)
{
    r->op = op;
    r->room = room;
    r->match.source = sender;
    r->match.tag = filter->tag;
    r->match.mask = filter->mask;
    r->mem.note = filter->space;
    if (sender)
        wf_sender_ref(sender);
    op->entry_ = (char *)r + WF_RECV_MARK;
    op->status = WEFT_PENDING;
    WF_PROBE3(op_start, op, 0, room);
}

/* Remove a posted receive from the matcher. */
static inline void wf_msg_unpost(struct wf_recv *r)
{
    struct weft_ep *ep = r->ep;
    wf_match_recv_remove(*wf_msg_match_at(ep, r->mem.note), &r->match);
    if (r->match.source)
        wf_sender_unref((struct wf_sender *)(uintptr_t)r->match.source);
}

/* End a posted receive that never became a request: free it, then complete its weft_op. */
static inline void wf_msg_recv_end(struct wf_recv *r, enum weft_status status)
{
    struct weft_ep *ep = r->ep;
    struct weft_op *op = r->op;
    WF_PROBE3(op_end, op, 0, status);
    wf_recv_free(&ep->reqs, r);
    wf_op_end(ep, op, status);
}

/* Add [by] to the charges of kept messages, to which [m] belongs. An offer is not charged. */
static inline void wf_msg_kept_charge(const struct weft_msg *m, int64_t by)
{
    m->sender->kept_bytes += (uint64_t)by;
    m->sender->ep->kept_bytes += (uint64_t)by;
}

/* Free a message that no receive had matched. The caller has removed it from the matcher. */
void wf_msg_kept_free(struct weft_msg *m);
/* Free what [ep] keeps for further messages. All messages have been freed. */
void wf_msg_kept_end(struct weft_ep *ep);

/* Returns a message that is to be kept, with room for [bytes] bytes, or NULL. */
struct weft_msg *wf_msg_kept_new(struct wf_sender *sender, const struct wf_msg_head *head,
                                 size_t bytes);
/* Returns the offer [o], which is to be kept, or NULL. */
struct weft_msg *wf_msg_kept_offer(const struct wf_msg_offer *o);
/* Keep [m] until a receive matches it. If there is no memory, or [m] is NULL, frees it, refuses
 * what [sender] sends from here on, and returns false. */
bool wf_msg_keep(struct weft_ep *ep, struct wf_sender *sender, struct weft_msg *m);
/* Free the kept message [m], which is in the matcher: its sender has cancelled it. */
void wf_msg_kept_withdraw(struct weft_msg *m);
/* Free a message of which parts may still be to come. The caller has removed it from the matcher.
 */
void wf_msg_kept_drop(struct weft_msg *m);
/* Receive the kept message *m into the buffers [iov]. [matching] is true if *m is still in the
 * matcher. If the receive cannot begin although the sender is there, returns why not (ENOMEM |
 * ELIMIT | ESYSTEM), and nothing has changed. With any other result *m is freed, and set to NULL.
 * With PENDING, a later poll fills in [op]; otherwise [op] is filled in already. */
enum weft_status wf_msg_take(struct weft_ep *ep, struct weft_msg **m, bool matching,
                             const struct iovec *iov, unsigned count, size_t room,
                             struct weft_op *op);
static inline bool wf_msg_filter_ok(const struct weft_msg_filter *filter)
{
    return filter && filter->space < WEFT_MSG_SPACES && !filter->flags;
}
/* The first step of a receive, a probe or a claim. Enters the endpoint, and stores in *sender the
 * sender that has the address of [peer], or NULL if [peer] is NULL. If this returns OK, the matcher
 * of [space] exists, and the caller has to call wf_ep_leave. */
enum weft_status wf_msg_find_begin(struct weft_ep *ep, struct weft_peer *peer, unsigned space,
                                   struct wf_sender **sender);
/* Returns the posted receive that a message matches, or NULL. */
static inline struct wf_recv *wf_msg_posted_for(struct weft_ep *ep, const struct wf_sender *sender,
                                                const struct wf_msg_head *head)
{
    struct wf_match *match = *wf_msg_match_at(ep, wf_msg_space(head));
    struct wf_match_recv *r = match ? wf_match_recv_find(match, sender, head->tag) : NULL;
    return r ? wf_container_of(r, struct wf_recv, match) : NULL;
}

/* A posted receive that was taken out of the matcher for a message. */
struct wf_taken {
    struct wf_iov mem; /* its buffers, of [room] bytes */
    uint64_t room;
    bool named; /* it names the sender */
};

/* Take the posted receive that a message of [len] bytes matches. Returns the op that completes with
 * the message, and moves the buffers to [out], whose buffers are none at first. Returns NULL if
 * there is no receive. */
struct weft_op *wf_msg_posted_take(struct weft_ep *ep, const struct wf_sender *sender,
                                   const struct wf_msg_head *head, uint64_t len,
                                   struct wf_taken *out);

/* Begin to copy the long message [o] into [mem], which holds [room] bytes. Stores the new request
 * in *out and moves [mem] into the request. If no request could be made, *out is NULL and [mem] is
 * unchanged. Returns OK (all is copied) | PENDING | a failure */
enum weft_status wf_msg_copy_begin(struct weft_ep *ep, const struct wf_msg_offer *o,
                                   struct wf_iov *mem, uint64_t room, struct weft_op *op,
                                   struct wf_req **out);
/* End the request of a receive. If [report] is true and the sender is not lost, the request becomes
 * the DONE message to the sender. Otherwise the request is freed. */
void wf_msg_copy_close(struct wf_req *copy, bool report, enum weft_status status);
/* End the receive of [copy] with ECANCELED. Its buffers are not used any more. The request stays
 * until its sender knows. */
void wf_msg_copy_cancel(struct wf_req *copy);
/* The program has closed its last peer for [sender]: end the receives that name it, and that copy
 * an offered message by a reply peer (a member of the group without a peer, or a lost peer), with
 * ECANCELED. */
void wf_msg_copies_close(struct wf_sender *sender);
/* End [copy], which has all its bytes. [report]: the sender does not know yet. */
void wf_msg_push_end(struct wf_req *copy, bool report);
static inline enum weft_status wf_msg_copy_status(const struct wf_req *copy,
                                                  enum weft_status status)
{
    return status == WEFT_OK && copy->u.copy.full > copy->len ? WEFT_ETRUNC : status;
}

#endif
