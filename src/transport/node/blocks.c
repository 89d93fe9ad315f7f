/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/node/blocks.h"

#include <stdlib.h>

#include "base/util.h"

bool wf_node_blocks_init(struct wf_node_blocks *b, uint32_t count)
{
    uint32_t words = (count + 63) / 64;
    *b = (struct wf_node_blocks){.used = calloc(words, 8), .count = count, .nfree = count};
    if (b->used && count % 64)
        b->used[words - 1] = UINT64_MAX << count % 64;
    return b->used;
}

void wf_node_blocks_fini(struct wf_node_blocks *b)
{
    free(b->used);
    b->used = NULL;
}

/* The bits of [n] blocks from [at] on that are in one word of the map; *n is reduced to them. */
static uint64_t mask_of(uint32_t at, uint32_t *n)
{
    uint32_t bits = WF_MIN(*n, 64 - at % 64);
    *n = bits;
    return (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1) << at % 64;
}

static void mark(struct wf_node_blocks *b, uint32_t at, uint32_t n, bool used)
{
    for (uint32_t step; n; at += step, n -= step) {
        uint64_t mask;
        step = n;
        mask = mask_of(at, &step);
        if (used)
            b->used[at / 64] |= mask;
        else
            b->used[at / 64] &= ~mask;
    }
}

/* Returns the first block from [at] on that is free, or that is in use, or [end] if there is none
 * before [end]. */
static uint32_t next_of(const struct wf_node_blocks *b, uint32_t at, uint32_t end, bool used)
{
    while (at < end) {
        uint64_t word = (used ? b->used[at / 64] : ~b->used[at / 64]) >> at % 64;
        if (word)
            return WF_MIN(at + (uint32_t)__builtin_ctzll(word), end);
        at = (at | 63) + 1;
    }
    return end;
}

uint32_t wf_node_blocks_take(struct wf_node_blocks *b, uint32_t n)
{
    uint32_t at = b->first;
    if (n > b->nfree)
        return WF_NODE_NO_BLOCK;
    b->first = at = next_of(b, at, b->count, false);
    while (at + n <= b->count) {
        uint32_t end = next_of(b, at, at + n, true); /* free blocks behind these do not matter */
        if (end == at + n) {
            mark(b, at, n, true);
            b->nfree -= n;
            return at;
        }
        at = next_of(b, end, b->count, false);
    }
    return WF_NODE_NO_BLOCK;
}

void wf_node_blocks_give(struct wf_node_blocks *b, uint32_t at, uint32_t n)
{
    mark(b, at, n, false);
    b->nfree += n;
    b->first = WF_MIN(b->first, at);
}
