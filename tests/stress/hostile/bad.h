/* SPDX-License-Identifier: BSD-3-Clause */
/* How many messages that break the protocol a context has dropped. */
#ifndef WF_TESTS_HOSTILE_BAD_H
#define WF_TESTS_HOSTILE_BAD_H

#include <string.h>
#include <weft/weft.h>

static inline void bad_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    (void)doc;
    if (!strcmp(name, "BAD_MESSAGES"))
        *(uint64_t *)arg = value;
}

static inline uint64_t bad_messages(struct weft_ctx *ctx)
{
    uint64_t value = 0;
    weft_stat_rows(ctx, bad_row, &value);
    return value;
}

#endif
