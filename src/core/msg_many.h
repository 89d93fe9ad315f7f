/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of many messages: msg_many.c. */
#ifndef WF_CORE_MSG_MANY_H
#define WF_CORE_MSG_MANY_H

#include "core/msg_recv.h"

/* weft_op.entry_ of a receive of many messages that takes no more of them, while some are still
 * arriving, is the address of its endpoint plus WF_MANY_LEFT. The addresses of structs are
 * multiples of 4, so [entry_] modulo 4 differs from that of all others. */
#define WF_MANY_LEFT 3u

/* Returns the endpoint of [op], the op of such a receive. Returns NULL for any other op. */
static inline struct weft_ep *wf_many_left_at(const struct weft_op *op)
{
    uintptr_t at = (uintptr_t)op->entry_;
    return (at & 3) == WF_MANY_LEFT ? (struct weft_ep *)(at - WF_MANY_LEFT) : NULL;
}

/* Is [r] a receive of many messages? It has no buffer of its own in r->mem. */
static inline bool wf_recv_is_many(const struct wf_recv *r)
{
    return !r->mem.n;
}

/* Receive a message that came whole. [r] is a receive of many messages. */
void wf_msg_many_whole(struct wf_recv *r, struct wf_sender *sender, const struct wf_msg_head *head,
                       const void *data, uint64_t len);
/* Take the next place of [r], a receive of many messages, for a message of [len] bytes. Returns the
 * op of this message, which completes as that of a receive, and stores the place in [mem] and
 * *room. If there is no memory, ends [r] with ENOMEM and returns NULL. */
struct weft_op *wf_msg_many_begin(struct wf_recv *r, uint64_t len, struct wf_iov *mem,
                                  uint64_t *room);
/* [r], a receive of many messages, gets no more of them because of [why]. It is in the matcher.
 * Returns OK if it has ended | EBUSY (messages are still arriving). */
enum weft_status wf_msg_many_stop(struct wf_recv *r, enum weft_status why);

#endif
