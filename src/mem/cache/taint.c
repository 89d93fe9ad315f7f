/* SPDX-License-Identifier: BSD-3-Clause */
/* The array of tainted ranges is sorted. No range overlaps or adjoins another range. */
#include "mem/cache/taint.h"

#include <string.h>

#include "base/util.h"

static void taint_join_nearest(struct wf_taints *t)
{
    unsigned at = 0;
    for (unsigned i = 1; i + 1 < t->n; i++)
        if (t->taint[i + 1].start - t->taint[i].end < t->taint[at + 1].start - t->taint[at].end)
            at = i;
    t->taint[at].end = t->taint[at + 1].end;
    t->taint[at].last = WF_MAX(t->taint[at].last, t->taint[at + 1].last);
    t->n--;
    memmove(t->taint + at + 1, t->taint + at + 2, (t->n - at - 1) * sizeof t->taint[0]);
}

void wf_taint_add(struct wf_taints *t, uintptr_t start, uintptr_t end, uint64_t number)
{
    unsigned at = 0, last;
    if (t->n == WF_TAINTS)
        taint_join_nearest(t);
    while (at < t->n && t->taint[at].end < start)
        at++;
    for (last = at; last < t->n && t->taint[last].start <= end; last++) {
        start = WF_MIN(start, t->taint[last].start);
        end = WF_MAX(end, t->taint[last].end);
        number = WF_MAX(number, t->taint[last].last);
    }
    memmove(t->taint + at + 1, t->taint + last, (t->n - last) * sizeof t->taint[0]);
    t->n += 1 - (last - at);
    t->taint[at] = (struct wf_taint){start, end, number};
}

/* An unmapped range is not tainted any more, because memory that is mapped there later has other
 * pages. But the range stays tainted if its pages may have been dropped after the unmapping. The
 * order of the log does not show which of the two was first: munmap queues its event after it has
 * freed the addresses. So the range is cut only if the drop was in the log before a clean probe
 * (probe_begin) and the unmapping began after that probe (probe_end). */
void wf_taint_cut(struct wf_taints *t, uintptr_t start, uintptr_t end, uint64_t number)
{
    for (unsigned i = 0; i < t->n && t->taint[i].start < end; i++) {
        struct wf_taint *at = &t->taint[i];
        if (at->end <= start || at->last >= t->probe_begin || number < t->probe_end)
            continue;
        if (at->start < start && at->end > end) {
            if (t->n == WF_TAINTS)
                continue;
            memmove(at + 1, at, (t->n++ - i) * sizeof *at);
            at[0].end = start;
            at[1].start = end;
            i++;
        } else if (at->start < start) {
            at->end = start;
        } else if (at->end > end) {
            at->start = end;
        } else {
            memmove(at, at + 1, (--t->n - i) * sizeof *at);
            i--;
        }
    }
}

void wf_taint_probed(struct wf_taints *t, uint64_t before, uint64_t next)
{
    if (before < t->probe_begin)
        return;
    t->probe_begin = before;
    t->probe_end = next;
}

bool wf_is_tainted(const struct wf_taints *t, uintptr_t start, uintptr_t end)
{
    for (unsigned i = 0; i < t->n && t->taint[i].start < end; i++)
        if (t->taint[i].end > start)
            return true;
    return false;
}
