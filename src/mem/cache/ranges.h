/* SPDX-License-Identifier: BSD-3-Clause */
/* A sorted set of address ranges, none of which contains another. Sorted by their starts, they are
 * sorted by their ends, too: only the last range that starts at or before a given one can contain
 * it.
 *
 * Two levels of sorted arrays: at most WF_RANGES_CHUNKS chunks of WF_RANGES_CHUNK ranges; two
 * neighbouring chunks together are at least half full. No lock. Only wf_ranges_fini frees
 * memory, and no call allocates any. */
#ifndef WF_MEM_CACHE_RANGES_H
#define WF_MEM_CACHE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#define WF_RANGES_CHUNK 64
#define WF_RANGES_CHUNKS 8192

/* Bytes [start, end). The first member of each item in the set. */
struct wf_range {
    uintptr_t start, end;
};

struct wf_ranges_chunk {
    struct wf_ranges_chunk *next; /* the next spare chunk */
    unsigned n;
    uintptr_t start[WF_RANGES_CHUNK];
    struct wf_range *range[WF_RANGES_CHUNK];
};

/* All zero: empty. */
struct wf_ranges {
    unsigned nchunks;
    struct wf_ranges_chunk *spare;
    uintptr_t first[WF_RANGES_CHUNKS]; /* chunk[i]->start[0] */
    struct wf_ranges_chunk *chunk[WF_RANGES_CHUNKS];
};

/* The range that contains [start, end), or null. */
struct wf_range *wf_ranges_containing(const struct wf_ranges *r, uintptr_t start, uintptr_t end);

/* The first range that overlaps [start, end), or null. */
struct wf_range *wf_ranges_touching(const struct wf_ranges *r, uintptr_t start, uintptr_t end);

/* May an insertion need a chunk that the set does not have? Then give it one from malloc, which
 * the set owns from then on. */
bool wf_ranges_needs_chunk(const struct wf_ranges *r);
void wf_ranges_give_chunk(struct wf_ranges *r, struct wf_ranges_chunk *chunk);

/* [range] contains no other range, and no other contains it. False: full. */
bool wf_ranges_insert(struct wf_ranges *r, struct wf_range *range);
void wf_ranges_remove(struct wf_ranges *r, const struct wf_range *range);

/* Frees the chunks, not the ranges. */
void wf_ranges_fini(struct wf_ranges *r);

#endif
