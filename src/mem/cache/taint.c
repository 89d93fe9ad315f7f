/* SPDX-License-Identifier: BSD-3-Clause */
/* The tainted ranges: their pages were dropped (madvise) at an unknown time, so these ranges are
 * not cached. The array is sorted. No range overlaps or adjoins another range. */
#include <string.h>

#include "mem/cache/impl.h"

static UNDER_LOCK void taint_join_nearest(struct wf_cache *c)
{
    unsigned at = 0;
    for (unsigned i = 1; i + 1 < c->ntaints; i++)
        if (c->taint[i + 1].start - c->taint[i].end < c->taint[at + 1].start - c->taint[at].end)
            at = i;
    c->taint[at].end = c->taint[at + 1].end;
    c->taint[at].last = WF_MAX(c->taint[at].last, c->taint[at + 1].last);
    c->ntaints--;
    memmove(c->taint + at + 1, c->taint + at + 2, (c->ntaints - at - 1) * sizeof c->taint[0]);
}

void wf_cache_taint_add(struct wf_cache *c, uintptr_t start, uintptr_t end, uint64_t number)
{
    unsigned at = 0, last;
    if (c->ntaints == TAINTS)
        taint_join_nearest(c);
    while (at < c->ntaints && c->taint[at].end < start)
        at++;
    for (last = at; last < c->ntaints && c->taint[last].start <= end; last++) {
        start = WF_MIN(start, c->taint[last].start);
        end = WF_MAX(end, c->taint[last].end);
        number = WF_MAX(number, c->taint[last].last);
    }
    memmove(c->taint + at + 1, c->taint + last, (c->ntaints - last) * sizeof c->taint[0]);
    c->ntaints += 1 - (last - at);
    c->taint[at] = (struct taint){start, end, number};
}

/* An unmapped range is not tainted any more, because memory that is mapped there later has other
 * pages. But the range stays tainted if its pages may have been dropped after the unmapping. The
 * order of the log does not show which of the two was first: munmap queues its event after it has
 * freed the addresses. So the range is cut only if the drop was in the log before a clean probe
 * (probe_begin) and the unmapping began after that probe (probe_end). */
void wf_cache_taint_cut(struct wf_cache *c, uintptr_t start, uintptr_t end, uint64_t number)
{
    for (unsigned i = 0; i < c->ntaints && c->taint[i].start < end; i++) {
        struct taint *t = &c->taint[i];
        if (t->end <= start || t->last >= c->probe_begin || number < c->probe_end)
            continue;
        if (t->start < start && t->end > end) {
            if (c->ntaints == TAINTS)
                continue;
            memmove(t + 1, t, (c->ntaints++ - i) * sizeof *t);
            t[0].end = start;
            t[1].start = end;
            i++;
        } else if (t->start < start) {
            t->end = start;
        } else if (t->end > end) {
            t->start = end;
        } else {
            memmove(t, t + 1, (--c->ntaints - i) * sizeof *t);
            i--;
        }
    }
}

bool wf_cache_is_tainted(const struct wf_cache *c, const struct wf_range *r)
{
    for (unsigned i = 0; i < c->ntaints && c->taint[i].start < r->end; i++)
        if (c->taint[i].end > r->start)
            return true;
    return false;
}
