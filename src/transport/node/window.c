/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/node/window.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

#define NONE WF_VIA_CHUNK /* no place in a chunk */

void wf_via_window_begin(struct via_window *w, uint32_t number)
{
    free(w->holes);
    memset(w, 0, sizeof *w);
    w->number = number;
    w->page = (uint32_t)sysconf(_SC_PAGESIZE);
    for (int kind = 0; kind < VIA_KINDS; kind++)
        w->cursors[kind].chunk = WF_VIA_CHUNKS;
}

void wf_via_window_end(struct via_window *w)
{
    free(w->holes);
    w->holes = NULL;
}

/* ---- holes ---- */

/* The first one that ends behind [at]. */
static uint32_t hole_after(const struct via_window *w, uint64_t at)
{
    uint32_t first = 0, last = w->nholes;
    while (first < last) {
        uint32_t middle = (first + last) / 2;
        if (w->holes[middle].to <= at)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

static bool hole_add(struct via_window *w, uint64_t from, uint64_t to)
{
    uint32_t i = hole_after(w, from);
    struct via_hole *holes;
    if (i && w->holes[i - 1].to == from) {
        w->holes[i - 1].to = to;
        return true;
    }
    if (w->nholes == WF_VIA_HOLES)
        return false;
    holes = wf_array_grow(w->holes, w->nholes, &w->hole_room, sizeof *holes);
    if (!holes)
        return false;
    w->holes = holes;
    memmove(&holes[i + 1], &holes[i], (w->nholes++ - i) * sizeof *holes);
    holes[i] = (struct via_hole){from, to};
    return true;
}

/* ---- chunks ---- */

/* Find [size] bytes of [chunk] without a hole, at a multiple of [unit], from [from] on. Returns
 * where, or NONE. */
static uint64_t place(const struct via_window *w, uint32_t chunk, uint64_t from, uint64_t size,
                      uint64_t unit)
{
    const uint64_t base = (uint64_t)chunk << WF_VIA_CHUNK_BITS;
    from = wf_align_up(from, unit);
    for (uint32_t i = hole_after(w, base + from);
         i < w->nholes && w->holes[i].from < base + from + size; i++)
        from = WF_MAX(from, wf_align_up(w->holes[i].to - base, unit));
    return from + size <= WF_VIA_CHUNK ? from : NONE;
}

/* Move the cursor to a chunk that nothing uses, and that has a place. Returns the place, or NONE.
 */
static uint64_t chunk_next(struct via_window *w, enum via_kind kind, uint64_t size, uint64_t unit)
{
    uint32_t chunk = 0, last = w->cursors[kind].chunk;
    uint64_t from = NONE;
    if (last < WF_VIA_CHUNKS && kind == VIA_CACHED)
        w->live[last]--; /* the cursor's */
    for (; chunk < WF_VIA_CHUNKS; chunk++)
        if (!w->live[chunk] && (from = place(w, chunk, 0, size, unit)) != NONE)
            break;
    w->cursors[kind].chunk = chunk;
    if (chunk < WF_VIA_CHUNKS)
        w->live[chunk]++;
    return from;
}

/* The addresses of a range begin, and end, at multiples of this. */
static uint64_t unit_of(const struct via_window *w, uint64_t len)
{
    return len < WF_VIA_LEAF ? w->page : WF_VIA_LEAF;
}

uint64_t wf_via_window_take(struct via_window *w, enum via_kind kind, uint64_t addr, uint64_t len)
{
    const uint32_t chunk = w->cursors[kind].chunk;
    uint64_t unit = unit_of(w, len), in = addr % unit, from = NONE, size;
    if (len > WF_VIA_CHUNK - WF_VIA_LEAF)
        return 0;
    size = wf_align_up(in + len, unit);
    if (chunk < WF_VIA_CHUNKS)
        from = place(w, chunk, w->cursors[kind].next, size, unit);
    if (from == NONE)
        from = chunk_next(w, kind, size, unit);
    if (from == NONE)
        return 0;
    w->cursors[kind].next = from + size;
    w->live[w->cursors[kind].chunk]++;
    return ((uint64_t)w->number << WF_NODE_WINDOW_BITS) + w->cursors[kind].chunk * WF_VIA_CHUNK +
           from + in;
}

void wf_via_window_give(struct via_window *w, enum via_kind kind, uint64_t at)
{
    if (kind == VIA_CACHED)
        w->live[(at >> WF_VIA_CHUNK_BITS) % WF_VIA_CHUNKS]--;
}

void wf_via_window_keep(struct via_window *w, enum via_kind kind, uint64_t at, uint64_t len)
{
    const uint64_t in = at % (UINT64_C(1) << WF_NODE_WINDOW_BITS), unit = unit_of(w, len),
                   from = in - in % unit;
    if (kind == VIA_CACHED && hole_add(w, from, wf_align_up(in + len, unit)))
        wf_via_window_give(w, kind, at);
}
