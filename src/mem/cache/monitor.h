/* SPDX-License-Identifier: BSD-3-Clause */
/* A monitor sees this process's memory change: mappings that are unmapped or moved, pages that are
 * dropped.
 *
 * A cache (cache.h) asks the monitor to watch memory. The monitor logs each change of watched
 * memory, and caches read the log before they trust an entry. The monitor knows no cache, takes no
 * lock and allocates nothing: the kernel stops the thread that unmaps until the monitor's reader
 * has read the change, and that thread may hold any lock of the program (it may be inside free), so
 * the reader must never wait for one.
 *
 * The seqcount is odd from before the reader reads a change until the change is in the log. A
 * thread that unmaps runs on only after the read. So whatever happens after its unmapping sees an
 * odd seqcount, or an even one and the change in the log.
 *
 * The seqcount does not show changes under way: munmap frees the addresses before its change can be
 * read, and in between another thread may map and use them. The probe asks for such changes.
 *
 * Acquire/release pairs: "seqcount", the reader's even value and those who read the log after it;
 * "slot", each word of the log and wf_monitor_read. */
#ifndef WF_MEM_CACHE_MONITOR_H
#define WF_MEM_CACHE_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

enum wf_change {
    WF_CHANGE_GONE,    /* unmapped, moved elsewhere, or something else mapped over it */
    WF_CHANGE_DROPPED, /* its pages are dropped (madvise) at an unknown time after the event */
};

/* Bytes [start, end), of whole pages. */
struct wf_changed {
    uintptr_t start, end;
    enum wf_change change;
};

struct wf_span {
    uintptr_t start, end;
};

enum wf_probe {
    WF_PROBE_CLEAN, /* no change is under way: each that began before the probe is in the log, or
                     * the seqcount is odd */
    WF_PROBE_BUSY,  /* changes are under way */
    WF_PROBE_LOST,  /* the monitor sees no changes any more */
};

struct wf_monitor;

struct wf_monitor_ops {
    const char *name;
    /* Watch the mappings that hold [start, end) from now on until they are unmapped. *span: the
     * range of these mappings, or {0, 0}.
     * Returns OK | EMEMTYPE (not all of it can be watched: a file's, or shared) | ESYSTEM */
    enum weft_status (*watch)(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                              struct wf_span *span);
    enum wf_probe (*probe)(struct wf_monitor *m);
    bool keeps_idle; /* registrations may be kept while no transfer uses them */
};

#define WF_MONITOR_LOG 8192 /* changes */

struct wf_monitor_slot {
    _Atomic uintptr_t start; /* bit 0: dropped */
    _Atomic uintptr_t end;
};

struct wf_monitor {
    const struct wf_monitor_ops *ops; /* constant */
    struct wf_monitor_slot *log;      /* constant; [WF_MONITOR_LOG]; null: there is no reader */
    _Alignas(64) _Atomic uint64_t seqcount;
    _Atomic uint64_t logged;  /* changes, ever */
    _Atomic uint64_t drops;   /* those of them that are WF_CHANGE_DROPPED */
    _Atomic uint32_t wakeups; /* futex(2) word: counts wake-ups */
};

/* ---- for the one thread that reads changes ---- */

void wf_monitor_begin(struct wf_monitor *m);
void wf_monitor_log(struct wf_monitor *m, enum wf_change change, uintptr_t start, uintptr_t end);
void wf_monitor_end(struct wf_monitor *m);

/* ---- for caches ---- */

/* Copy at most [max] changes from number [from] on. Returns how many; -1: some were overwritten
 * before they were read, so anything may have changed. */
int wf_monitor_read(struct wf_monitor *m, uint64_t from, struct wf_changed *out, unsigned max);

/* Sleep until the next wake-up after [wakeups] was read, at most [ms]. */
void wf_monitor_sleep(struct wf_monitor *m, uint32_t wakeups, unsigned ms);

/* Wake the threads in wf_monitor_sleep. */
void wf_monitor_wake(struct wf_monitor *m);

/* Sees nothing: the program reports changes itself (wf_cache_invalidate). */
extern struct wf_monitor wf_monitor_import;
/* Nothing sees or reports changes: a registration is shared while it is in use, and not kept. */
extern struct wf_monitor wf_monitor_none;

/* The process's userfaultfd, opened by the first call and kept until the process ends: only one
 * userfaultfd can watch a mapping, and a thread that unmaps it would sleep for ever if no reader
 * read. Null: there is none; *why says what to do about it. */
struct wf_monitor *wf_monitor_userfaultfd(const char **why);

#endif
