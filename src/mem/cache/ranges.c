/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/cache/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Returns how many of the [n] sorted numbers are at most [at]. */
static unsigned count_upto(const uintptr_t *sorted, unsigned n, uintptr_t at)
{
    unsigned low = 0;
    while (n) {
        unsigned half = n / 2;
        bool right = sorted[low + half] <= at;
        low = right ? low + half + 1 : low;
        n = right ? n - half - 1 : half;
    }
    return low;
}

/* Returns the index of the chunk to which a range that starts at [at] belongs. The set must have at
 * least one chunk. */
static unsigned chunk_of(const struct wf_ranges *r, uintptr_t at)
{
    unsigned n = count_upto(r->first, r->nchunks, at);
    return n ? n - 1 : 0;
}

struct wf_range *wf_ranges_containing(const struct wf_ranges *r, uintptr_t start, uintptr_t end)
{
    unsigned c = count_upto(r->first, r->nchunks, start);
    const struct wf_ranges_chunk *chunk;
    struct wf_range *found;
    if (!c)
        return NULL;
    chunk = r->chunk[c - 1];
    found = chunk->range[count_upto(chunk->start, chunk->n, start) - 1];
    return found->end >= end ? found : NULL;
}

struct wf_range *wf_ranges_touching(const struct wf_ranges *r, uintptr_t start, uintptr_t end)
{
    unsigned c, i;
    struct wf_range *found;
    if (!r->nchunks)
        return NULL;
    /* Several ranges may overlap [start, end), and the first is wanted. So begin at the last range
     * that starts at or before [start], and step back over all ranges that end after [start]. */
    c = chunk_of(r, start);
    i = count_upto(r->chunk[c]->start, r->chunk[c]->n, start);
    while (i || c) {
        if (!i)
            i = r->chunk[--c]->n;
        if (r->chunk[c]->range[i - 1]->end <= start)
            break;
        i--;
    }
    if (i == r->chunk[c]->n) {
        if (++c == r->nchunks)
            return NULL;
        i = 0;
    }
    found = r->chunk[c]->range[i];
    return found->start < end ? found : NULL;
}

bool wf_ranges_needs_chunk(const struct wf_ranges *r)
{
    return !r->spare;
}

void wf_ranges_give_chunk(struct wf_ranges *r, struct wf_ranges_chunk *chunk)
{
    chunk->next = r->spare;
    r->spare = chunk;
}

static bool chunk_add(struct wf_ranges *r, unsigned at)
{
    struct wf_ranges_chunk *chunk = r->spare;
    if (r->nchunks == WF_RANGES_CHUNKS || !chunk)
        return false;
    r->spare = chunk->next;
    chunk->n = 0;
    memmove(r->chunk + at + 1, r->chunk + at, (r->nchunks - at) * sizeof r->chunk[0]);
    memmove(r->first + at + 1, r->first + at, (r->nchunks - at) * sizeof r->first[0]);
    r->chunk[at] = chunk;
    r->nchunks++;
    return true;
}

static void chunk_drop(struct wf_ranges *r, unsigned at)
{
    wf_ranges_give_chunk(r, r->chunk[at]);
    r->nchunks--;
    memmove(r->chunk + at, r->chunk + at + 1, (r->nchunks - at) * sizeof r->chunk[0]);
    memmove(r->first + at, r->first + at + 1, (r->nchunks - at) * sizeof r->first[0]);
}

/* Move the last [n] ranges of [from] to the beginning of [to]. */
static void move_back(struct wf_ranges_chunk *from, struct wf_ranges_chunk *to, unsigned n)
{
    unsigned at = from->n - n;
    memmove(to->start + n, to->start, to->n * sizeof to->start[0]);
    memmove(to->range + n, to->range, to->n * sizeof to->range[0]);
    memcpy(to->start, from->start + at, n * sizeof to->start[0]);
    memcpy(to->range, from->range + at, n * sizeof to->range[0]);
    from->n -= n;
    to->n += n;
}

static bool split(struct wf_ranges *r, unsigned c)
{
    if (!chunk_add(r, c + 1))
        return false;
    move_back(r->chunk[c], r->chunk[c + 1], WF_RANGES_CHUNK / 2);
    r->first[c + 1] = r->chunk[c + 1]->start[0];
    return true;
}

bool wf_ranges_insert(struct wf_ranges *r, struct wf_range *range)
{
    struct wf_ranges_chunk *chunk;
    unsigned c, i;
    if (!r->nchunks && !chunk_add(r, 0))
        return false;
    c = chunk_of(r, range->start);
    if (r->chunk[c]->n == WF_RANGES_CHUNK) {
        if (!split(r, c))
            return false;
        c += range->start >= r->first[c + 1];
    }
    chunk = r->chunk[c];
    i = count_upto(chunk->start, chunk->n, range->start);
    memmove(chunk->start + i + 1, chunk->start + i, (chunk->n - i) * sizeof chunk->start[0]);
    memmove(chunk->range + i + 1, chunk->range + i, (chunk->n - i) * sizeof chunk->range[0]);
    chunk->start[i] = range->start;
    chunk->range[i] = range;
    chunk->n++;
    r->first[c] = chunk->start[0];
    return true;
}

/* Move the ranges of chunk [c] to the next chunk, if together they fill at most half of a chunk. */
static void join(struct wf_ranges *r, unsigned c)
{
    if (c + 1 >= r->nchunks || r->chunk[c]->n + r->chunk[c + 1]->n > WF_RANGES_CHUNK / 2)
        return;
    move_back(r->chunk[c], r->chunk[c + 1], r->chunk[c]->n);
    r->first[c + 1] = r->chunk[c + 1]->start[0];
    chunk_drop(r, c);
}

void wf_ranges_remove(struct wf_ranges *r, const struct wf_range *range)
{
    unsigned c = chunk_of(r, range->start);
    struct wf_ranges_chunk *chunk = r->chunk[c];
    unsigned i = count_upto(chunk->start, chunk->n, range->start) - 1;
    chunk->n--;
    memmove(chunk->start + i, chunk->start + i + 1, (chunk->n - i) * sizeof chunk->start[0]);
    memmove(chunk->range + i, chunk->range + i + 1, (chunk->n - i) * sizeof chunk->range[0]);
    if (!chunk->n) {
        chunk_drop(r, c);
        return;
    }
    r->first[c] = chunk->start[0];
    join(r, c);
    if (c)
        join(r, c - 1);
}

void wf_ranges_fini(struct wf_ranges *r)
{
    while (r->nchunks)
        chunk_drop(r, r->nchunks - 1);
    while (r->spare) {
        struct wf_ranges_chunk *chunk = r->spare;
        r->spare = chunk->next;
        free(chunk);
    }
}
