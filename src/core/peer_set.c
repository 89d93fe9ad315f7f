/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/peer_set.h"

#include <stdlib.h>

#define FEWEST 16u
#define MOST (UINT32_C(1) << 31)

/* Peers lie at even distances (peer_slab.h). After one multiplication their homes would, too, and
 * for some distances many would share a few homes. */
static uint32_t home_of(const struct wf_peer_set *set, const struct weft_peer *peer)
{
    uint64_t h = (uint64_t)(uintptr_t)peer * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(h >> 32) & set->mask;
}

static void put(struct wf_peer_set *set, struct weft_peer *peer)
{
    uint32_t i = home_of(set, peer);
    while (set->slots[i])
        i = (i + 1) & set->mask;
    set->slots[i] = peer;
}

/* Give the set [n] slots, a power of two. Returns false if there is no memory: then it keeps those
 * that it has. */
static bool resize(struct wf_peer_set *set, uint32_t n)
{
    struct wf_peer_set more = {calloc(n, sizeof *more.slots), n - 1, set->count};
    struct weft_peer *peer;
    uint32_t at = 0;
    if (!more.slots)
        return false;
    while ((peer = wf_peer_set_next(set, &at)))
        put(&more, peer);
    free(set->slots);
    *set = more;
    return true;
}

bool wf_peer_set_add(struct wf_peer_set *set, struct weft_peer *peer)
{
    uint32_t n = set->slots ? set->mask + 1 : 0;
    if (set->count >= n / 4 * 3 && (n >= MOST || !resize(set, n ? 2 * n : FEWEST)))
        return false;
    put(set, peer);
    set->count++;
    return true;
}

/* Move a pointer behind the free slot [i] into it, if searches would no longer find the pointer,
 * and so on, until a slot that was free before. */
static void close_up(struct wf_peer_set *set, uint32_t i)
{
    for (uint32_t k = (i + 1) & set->mask; set->slots[k]; k = (k + 1) & set->mask) {
        uint32_t from = home_of(set, set->slots[k]);
        if (((k - from) & set->mask) < ((k - i) & set->mask))
            continue; /* its search begins behind [i] */
        set->slots[i] = set->slots[k];
        set->slots[k] = NULL;
        i = k;
    }
}

/* Empty slot [i]. A set that has become small gets fewer slots: with few of them used, walks and
 * wf_peer_set_pop would take long. */
static void slot_remove(struct wf_peer_set *set, uint32_t i)
{
    uint32_t n = set->mask + 1;
    set->slots[i] = NULL;
    close_up(set, i);
    if (!--set->count)
        wf_peer_set_free(set);
    else if (n > FEWEST && set->count < n / 8)
        (void)resize(set, n / 2);
}

void wf_peer_set_remove(struct wf_peer_set *set, const struct weft_peer *peer)
{
    uint32_t i = home_of(set, peer);
    while (set->slots[i] != peer)
        i = (i + 1) & set->mask;
    slot_remove(set, i);
}

struct weft_peer *wf_peer_set_pop(struct wf_peer_set *set, const struct weft_peer *near)
{
    struct weft_peer *peer;
    uint32_t i;
    if (!set->count)
        return NULL;
    i = home_of(set, near);
    while (!set->slots[i])
        i = (i + 1) & set->mask;
    peer = set->slots[i];
    slot_remove(set, i);
    return peer;
}

struct weft_peer *wf_peer_set_next(const struct wf_peer_set *set, uint32_t *at)
{
    while (set->slots && *at <= set->mask) {
        struct weft_peer *peer = set->slots[(*at)++];
        if (peer)
            return peer;
    }
    return NULL;
}

void wf_peer_set_free(struct wf_peer_set *set)
{
    free(set->slots);
    *set = (struct wf_peer_set){0};
}
