/* SPDX-License-Identifier: BSD-3-Clause */
/* Of tests whose peers lie: how many messages that break the protocol a context has dropped, and
 * peers within a process. */
#ifndef WF_TESTS_HOSTILE_BAD_H
#define WF_TESTS_HOSTILE_BAD_H

#include <string.h>
#include <weft/weft.h>

#include "../kill/proc.h"

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

static inline struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_peer *peer;
    CHECK_STATUS(weft_ep_address(to, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(from, address, len, &peer), WEFT_OK);
    return peer;
}

#endif
