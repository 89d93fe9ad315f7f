/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares the physical pages at each hit with the pages that were registered
 * (WEFT_DEBUG=verify). */
#include <stdlib.h>

#include "base/log.h"
#include "mem/cache/impl.h"
#include "mem/cache/pages.h"

#define LOOK 64 /* pages read at a time */

void wf_cache_pages_note(struct wf_cache *c, struct wf_cache_entry *e)
{
    size_t count = (e->range.end - e->range.start) / c->page;
    e->pages = malloc(count * sizeof *e->pages);
    if (e->pages && wf_pages_look(c->pages_fd, e->range.start, count, e->pages)) {
        free(e->pages);
        e->pages = NULL;
    }
}

static void stale(const struct wf_cache_entry *e, uintptr_t at, uint64_t was, uint64_t is)
{
    wf_error(
        "WEFT_DEBUG=verify: the cached registration of [%#lx, %#lx) is stale: the page at %#lx "
        "was %#lx and is %#lx (weft_cache(3), CHANGES THAT NOBODY SEES)",
        (unsigned long)e->range.start, (unsigned long)e->range.end, (unsigned long)at,
        (unsigned long)was, (unsigned long)is);
    abort();
}

/* The caller holds a slot for [e] and is about to transfer [start, end). The program does not
 * change memory in transfer, so a difference means that the cache missed an earlier change. */
void wf_cache_verify(struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                     uintptr_t end)
{
    uint64_t now[LOOK];
    if (!e->pages)
        return;
    for (uintptr_t at = start; at < end; at += LOOK * c->page) {
        size_t count = WF_MIN((end - at) / c->page, LOOK);
        const uint64_t *was = e->pages + (at - e->range.start) / c->page;
        if (wf_pages_look(c->pages_fd, at, count, now))
            return;
        for (size_t i = 0; i < count; i++)
            if (now[i] != was[i])
                stale(e, at + i * c->page, was[i], now[i]);
    }
}
