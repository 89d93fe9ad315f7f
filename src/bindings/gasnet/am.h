/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for active messages, shared by am.c, which sends, and dispatch.c, which receives. */
#ifndef GASNETW_AM_PRIVATE_H
#define GASNETW_AM_PRIVATE_H

#include "binding.h"

/* The object behind a gasnet_token_t, while the message's handler runs. */
struct token {
    const struct weft_am *am; /* null: a deferred reply */
    uint32_t origin;          /* of the message: see struct am_head */
    bool is_reply, replied;
};

typedef gasnet_handlerarg_t A;

/* A buffer of am_max bytes for a reply's header and data. One buffer is enough, since handlers run
 * one at a time. */
extern unsigned char *gasnetw_am_scratch;

#endif
