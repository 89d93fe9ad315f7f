/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for active messages, shared by am.c, which sends, and dispatch.c, which receives. */
#ifndef GASNETW_AM_PRIVATE_H
#define GASNETW_AM_PRIVATE_H

#include "binding.h"

/* The object behind a gasnet_token_t, while the message's handler runs. */
struct token {
    const struct weft_am *am; /* null: a deferred reply, or a message of this node to itself */
    uint32_t origin;          /* of the message: see struct am_head */
    bool is_reply, replied;
};

typedef gasnet_handlerarg_t A;

/* A buffer of am_max bytes for a reply's header and data. One buffer is enough: replies to other
 * nodes are made under the lock of the first endpoint, and replies to the own node use no buffer.
 */
extern unsigned char *gasnetw_am_scratch;

/* Run the handler of a message from this node to itself, in the calling thread. A Medium's handler
 * gets a copy of [data], a Long's handler [data] itself.
 *   kind  AM_SHORT, AM_MEDIUM or AM_LONG */
void gasnetw_am_self(unsigned kind, gasnet_handler_t handler, bool is_reply, const A *args,
                     unsigned nargs, void *data, size_t nbytes);

/* ---- room for replies (reply.c) ---- */

/* In binding.reply_room: nothing is known of this handler's replies. */
#define AM_TRIAL_ROOM UINT16_MAX
/* What a request reserves then. No other request reserves as much, so that the replying node can
 * tell. */
static inline size_t gasnetw_trial_room(void)
{
    return 1 + AM_LATE_HEAD + AM_HEAD + gasnetw_binding.max_medium;
}
/* Called for a request to a handler of which nothing is known. Returns what it reserves. */
size_t gasnetw_reply_try(gasnet_handler_t handler);
/* Reply to a request that reserved gasnetw_trial_room(). The reply names the request's handler.
 * The parameters are those of gasnetw_reply_later. Returns as weft_am_reply. */
enum weft_status gasnetw_reply_trial(const struct weft_am *am, uint32_t to, unsigned kind,
                                     uint32_t origin, int nargs, const A *args,
                                     const struct am_head *head, const void *data, size_t len);

/* ---- limits for requests under way (credit.c) ---- */

/* This node has a limit: each request to another node calls gasnetw_credit_take first, which polls
 * until the request may be sent. */
extern bool gasnetw_credit_counts;
/* Some node has a limit: handlers that do not reply send credits. */
extern bool gasnetw_credit_wanted;
void gasnetw_credit_take(gasnet_node_t dest);
/* A request to [node] has ended: its reply or its credit has arrived. */
void gasnetw_credit_return(gasnet_node_t node);
/* The handler of the request of [t] has returned and did not reply. Send a credit, if the requester
 * counts. */
void gasnetw_credit_send(const struct token *t);
void gasnetw_on_credit(const struct weft_am *am);

#endif
