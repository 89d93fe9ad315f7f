/* SPDX-License-Identifier: BSD-3-Clause */
/* Of tests whose peers lie: statistics of a context, among them how many messages it has dropped
 * that break the protocol, and peers within a process. */
#ifndef WF_TESTS_HOSTILE_BAD_H
#define WF_TESTS_HOSTILE_BAD_H

#include <string.h>
#include <weft/weft.h>

#include "../kill/proc.h"

struct stat_wish {
    const char *name;
    uint64_t value;
};

static inline void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct stat_wish *wish = arg;
    (void)doc;
    if (!strcmp(name, wish->name))
        wish->value = value;
}

static inline uint64_t stat_of(struct weft_ctx *ctx, const char *name)
{
    struct stat_wish wish = {.name = name};
    weft_stat_rows(ctx, stat_row, &wish);
    return wish.value;
}

static inline uint64_t bad_messages(struct weft_ctx *ctx)
{
    return stat_of(ctx, "BAD_MESSAGES");
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
