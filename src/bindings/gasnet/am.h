/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the two sides of active messages: am.c sends, dispatch.c receives. */
#ifndef GASNETW_AM_PRIVATE_H
#define GASNETW_AM_PRIVATE_H

#include "binding.h"

/* A gasnet_token_t points to this while its handler runs. */
struct token {
    const struct weft_am *am; /* null: a deferred reply */
    uint32_t origin;          /* of the message: see struct am_head */
    bool is_reply, replied;
};

typedef gasnet_handlerarg_t A;

/* [am_max] for a reply's header and data. One is enough: handlers run one at a time. */
extern unsigned char *gasnetw_am_scratch;

#endif
