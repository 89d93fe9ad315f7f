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

#endif
