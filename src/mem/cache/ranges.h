/* SPDX-License-Identifier: BSD-3-Clause */
/* A sorted set of address ranges. No range of the set contains another range. Therefore ranges that
 * are sorted by their starts are also sorted by their ends. To find a range that contains [start,
 * end), only one candidate must be looked at: the last range that starts at or before [start].
 *
 * The set has two levels of sorted arrays: at most WF_RANGES_CHUNKS chunks with at most
 * WF_RANGES_CHUNK ranges each. Two neighbouring chunks together have more than WF_RANGES_CHUNK / 2
 * ranges. The functions take no lock and allocate no memory. Only wf_ranges_fini frees memory. */
#ifndef WF_MEM_CACHE_RANGES_H
#define WF_MEM_CACHE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#define WF_RANGES_CHUNK 64
#define WF_RANGES_CHUNKS 8192

/* The bytes [start, end). Each item of the set has this structure as its first member, so a pointer
 * to the range is also a pointer to the item. */
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

/* Returns the range that contains all of [start, end), or NULL. */
struct wf_range *wf_ranges_containing(const struct wf_ranges *r, uintptr_t start, uintptr_t end);

/* Returns the first range that overlaps [start, end), or NULL. */
struct wf_range *wf_ranges_touching(const struct wf_ranges *r, uintptr_t start, uintptr_t end);

/* Returns true if the set lacks the chunk that the next insertion may need. In this case the caller
 * allocates a chunk by malloc and gives it to the set, which owns the chunk from then on. */
bool wf_ranges_needs_chunk(const struct wf_ranges *r);
void wf_ranges_give_chunk(struct wf_ranges *r, struct wf_ranges_chunk *chunk);

/* Insert [range]. The caller makes sure that [range] contains no range of the set and that no range
 * of the set contains [range]. Returns false if the set has no chunk for the range. */
bool wf_ranges_insert(struct wf_ranges *r, struct wf_range *range);
void wf_ranges_remove(struct wf_ranges *r, const struct wf_range *range);

/* Free the chunks. The ranges belong to the caller. */
void wf_ranges_fini(struct wf_ranges *r);

#endif
