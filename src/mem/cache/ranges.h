/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of addresses of which none contains another, in order. So they are in the order of their
 * ends, too, and the one range that can contain a given one is the last that begins at or before
 * it.
 *
 * Two levels of sorted arrays: at most WF_RANGES_CHUNKS of WF_RANGES_CHUNK, each but one at
 * least a quarter full with its neighbour. No lock, and nothing is allocated or freed. */
#ifndef WF_MEM_CACHE_RANGES_H
#define WF_MEM_CACHE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#define WF_RANGES_CHUNK 64
#define WF_RANGES_CHUNKS 8192

/* The first member of what is kept. Bytes [start, end). */
struct wf_range {
    uintptr_t start, end;
};

struct wf_ranges_chunk {
    struct wf_ranges_chunk *next; /* a spare one's */
    unsigned n;
    uintptr_t start[WF_RANGES_CHUNK];
    struct wf_range *range[WF_RANGES_CHUNK];
};

/* Zeroed: empty. */
struct wf_ranges {
    unsigned nchunks;
    struct wf_ranges_chunk *spare;
    uintptr_t first[WF_RANGES_CHUNKS]; /* chunk[i]->start[0] */
    struct wf_ranges_chunk *chunk[WF_RANGES_CHUNKS];
};

/* The range that contains [start, end), or null. */
struct wf_range *wf_ranges_containing(const struct wf_ranges *r, uintptr_t start, uintptr_t end);

/* The first range that has bytes of [start, end), or null. */
struct wf_range *wf_ranges_touching(const struct wf_ranges *r, uintptr_t start, uintptr_t end);

/* An insertion may need a chunk that is not there: one from malloc, which is taken over. */
bool wf_ranges_needs_chunk(const struct wf_ranges *r);
void wf_ranges_give_chunk(struct wf_ranges *r, struct wf_ranges_chunk *chunk);

/* [range] contains none and is contained in none. False: full. */
bool wf_ranges_insert(struct wf_ranges *r, struct wf_range *range);
void wf_ranges_remove(struct wf_ranges *r, const struct wf_range *range);

/* Frees the chunks, not the ranges. */
void wf_ranges_fini(struct wf_ranges *r);

#endif
