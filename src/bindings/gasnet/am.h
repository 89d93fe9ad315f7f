/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two sides of active messages share: am.c sends, dispatch.c receives. */
#ifndef GASNETW_AM_PRIVATE_H
#define GASNETW_AM_PRIVATE_H

#include "binding.h"

/* What a gasnet_token_t points to, while its handler runs. */
struct token {
    const struct weft_am *am; /* null: a deferred reply */
    uint32_t who;             /* the request's handler's index | rank << 8 */
    bool is_reply, replied;
};

typedef gasnet_handlerarg_t A;

/* [am_max]: a reply's header and data. Handlers run one at a time. */
extern unsigned char *gasnetw_am_scratch;

#endif
