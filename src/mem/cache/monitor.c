/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/cache/monitor.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void wf_monitor_begin(struct wf_monitor *m)
{
    /* This is a full fence: the seqcount must be odd before the reader reads the change, because
     * the thread that made the change continues after the read. */
    atomic_fetch_add_explicit(&m->seqcount, 1, memory_order_seq_cst);
}

void wf_monitor_log(struct wf_monitor *m, enum wf_change change, uintptr_t start, uintptr_t end)
{
    uint64_t n = atomic_load_explicit(&m->logged, memory_order_relaxed);
    struct wf_monitor_slot *s = &m->log[n % WF_MONITOR_LOG];
    /* Release, the pair "slot": a thread that loads a word of this change also sees that [logged]
     * has reached the change's number, and so detects that the older change was overwritten. */
    atomic_store_explicit(&s->start, start | (change == WF_CHANGE_DROPPED), memory_order_release);
    atomic_store_explicit(&s->end, end, memory_order_release);
    if (change == WF_CHANGE_DROPPED)
        atomic_fetch_add_explicit(&m->drops, 1, memory_order_relaxed);
    atomic_store_explicit(&m->logged, n + 1, memory_order_release);
}

void wf_monitor_end(struct wf_monitor *m)
{
    atomic_fetch_add_explicit(&m->seqcount, 1, memory_order_release); /* "seqcount" */
    wf_monitor_wake(m);
}

void wf_monitor_wake(struct wf_monitor *m)
{
    atomic_fetch_add_explicit(&m->wakeups, 1, memory_order_release);
    (void)syscall(SYS_futex, &m->wakeups, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int wf_monitor_read(struct wf_monitor *m, uint64_t from, struct wf_changed *out, unsigned max)
{
    uint64_t n = atomic_load_explicit(&m->logged, memory_order_acquire) - from;
    unsigned count = n < max ? (unsigned)n : max;
    for (unsigned i = 0; i < count; i++) {
        struct wf_monitor_slot *s = &m->log[(from + i) % WF_MONITOR_LOG];
        uintptr_t start = atomic_load_explicit(&s->start, memory_order_acquire); /* "slot" */
        out[i].end = atomic_load_explicit(&s->end, memory_order_acquire);
        out[i].start = start & ~(uintptr_t)1;
        out[i].change = start & 1 ? WF_CHANGE_DROPPED : WF_CHANGE_GONE;
    }
    /* The slot of change [from] is written again when [logged] is [from] + WF_MONITOR_LOG. From
     * then on the copies may be wrong. */
    n = atomic_load_explicit(&m->logged, memory_order_acquire) - from;
    return n < WF_MONITOR_LOG ? (int)count : -1;
}

void wf_monitor_sleep(struct wf_monitor *m, uint32_t wakeups, unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)syscall(SYS_futex, &m->wakeups, FUTEX_WAIT_PRIVATE, wakeups, &t, NULL, 0);
}

/* ---- monitors that read nothing ---- */

static enum weft_status watch_any(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                                  struct wf_span *span)
{
    (void)m;
    (void)start;
    (void)end;
    *span = (struct wf_span){0, 0};
    return WEFT_OK;
}

static enum wf_probe probe_clean(struct wf_monitor *m)
{
    (void)m;
    return WF_PROBE_CLEAN;
}

static const struct wf_monitor_ops import_ops = {
    .name = "import", .watch = watch_any, .probe = probe_clean, .keeps_idle = true};
struct wf_monitor wf_monitor_import = {.ops = &import_ops};

static const struct wf_monitor_ops none_ops = {
    .name = "none", .watch = watch_any, .probe = probe_clean};
struct wf_monitor wf_monitor_none = {.ops = &none_ops};
