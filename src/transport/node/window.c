/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/node/window.h"

#include <string.h>
#include <unistd.h>

void wf_via_window_begin(struct via_window *w, uint32_t number)
{
    memset(w, 0, sizeof *w);
    w->number = number;
    w->page = (uint32_t)sysconf(_SC_PAGESIZE);
    for (int kind = 0; kind < VIA_KINDS; kind++)
        w->cursors[kind].chunk = WF_VIA_CHUNKS;
}

/* Move the cursor to a chunk that nothing uses. Returns false if there is none. */
static bool chunk_next(struct via_window *w, enum via_kind kind)
{
    uint32_t chunk = 0, last = w->cursors[kind].chunk;
    if (last < WF_VIA_CHUNKS && kind == VIA_CACHED)
        w->live[last]--; /* the cursor's */
    while (chunk < WF_VIA_CHUNKS && w->live[chunk])
        chunk++;
    w->cursors[kind].chunk = chunk;
    w->cursors[kind].next = 0;
    if (chunk < WF_VIA_CHUNKS)
        w->live[chunk]++;
    return chunk < WF_VIA_CHUNKS;
}

uint64_t wf_via_window_take(struct via_window *w, enum via_kind kind, uint64_t addr, uint64_t len)
{
    uint64_t unit = len < WF_VIA_LEAF ? w->page : WF_VIA_LEAF, in = addr % unit, from, size;
    if (len > WF_VIA_CHUNK - WF_VIA_LEAF)
        return 0;
    size = wf_align_up(in + len, unit);
    from = wf_align_up(w->cursors[kind].next, unit);
    if (w->cursors[kind].chunk == WF_VIA_CHUNKS || from + size > WF_VIA_CHUNK) {
        if (!chunk_next(w, kind))
            return 0;
        from = 0;
    }
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
