/* SPDX-License-Identifier: BSD-3-Clause */
/* A monitor reports changes of this process's memory: mappings that are unmapped or moved, and
 * pages that are dropped (madvise).
 *
 * A cache (cache.h) asks the monitor to watch memory. The monitor's reader, a thread, reads changes
 * of watched memory from the kernel and logs them. Caches read this log before they trust an entry.
 * The kernel stops a thread that unmaps memory until the reader has read the change. The stopped
 * thread may hold any lock of the program (it may be inside free). So the reader must never wait
 * for a lock, and the monitor takes no lock, allocates nothing and does not call caches.
 *
 * The seqcount becomes odd before the reader reads a change, and becomes even when the change is in
 * the log. A thread that unmaps memory continues only after the read. So code that runs after the
 * unmapping sees an odd seqcount, or an even seqcount and the change in the log.
 *
 * The seqcount does not show a change that the reader has not read yet. munmap frees the addresses
 * before the reader can read the change, and another thread may map and use these addresses at
 * once. The probe asks the kernel whether any such change is under way.
 *
 * Acquire/release pairs: "seqcount" is the reader's store of an even value, and the loads of
 * threads that then read the log. "slot" is the stores of a change's words into the log, and the
 * loads in wf_monitor_read. */
#ifndef WF_MEM_CACHE_MONITOR_H
#define WF_MEM_CACHE_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

enum wf_change {
    WF_CHANGE_GONE, /* the memory was unmapped, moved, or replaced by another mapping */
    /* The program drops the pages (madvise). The kernel removes the pages at an unknown time
     * after it has reported this change. */
    WF_CHANGE_DROPPED,
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
    /* No change is under way: each change that began before the probe is in the log, or the
     * seqcount is odd. */
    WF_PROBE_CLEAN,
    WF_PROBE_BUSY, /* changes are under way */
    WF_PROBE_LOST, /* the monitor has failed and reports no more changes */
};

struct wf_monitor;

struct wf_monitor_ops {
    const char *name;
    /* Watch the mappings that contain [start, end), from now on until they are unmapped. Sets *span
     * to the range of these mappings, or to {0, 0} if the monitor does not know this range.
     *
     * Returns OK | EMEMTYPE (some of the memory cannot be watched, because it belongs to a file or
     * is shared) | ESYSTEM */
    enum weft_status (*watch)(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                              struct wf_span *span);
    enum wf_probe (*probe)(struct wf_monitor *m);
    bool keeps_idle; /* a cache may keep registrations that no transfer uses */
};

#define WF_MONITOR_LOG 8192 /* how many changes the log holds */

struct wf_monitor_slot {
    _Atomic uintptr_t start; /* bit 0 is 1 for WF_CHANGE_DROPPED */
    _Atomic uintptr_t end;
};

struct wf_monitor {
    const struct wf_monitor_ops *ops; /* constant */
    /* constant; WF_MONITOR_LOG slots; NULL if the monitor has no reader */
    struct wf_monitor_slot *log;
    _Alignas(64) _Atomic uint64_t seqcount;
    _Atomic uint64_t logged;  /* how many changes were ever logged */
    _Atomic uint64_t drops;   /* how many of the logged changes are WF_CHANGE_DROPPED */
    _Atomic uint32_t wakeups; /* futex(2) word: counts wake-ups */
};

/* ---- for the one thread that reads changes ---- */

void wf_monitor_begin(struct wf_monitor *m);
void wf_monitor_log(struct wf_monitor *m, enum wf_change change, uintptr_t start, uintptr_t end);
void wf_monitor_end(struct wf_monitor *m);

/* ---- for caches ---- */

/* Copy changes from the log, beginning with number [from], at most [max] of them. Returns how many
 * were copied. Returns -1 if the log has overwritten some of these changes; then any memory may
 * have changed. */
int wf_monitor_read(struct wf_monitor *m, uint64_t from, struct wf_changed *out, unsigned max);

/* Sleep for at most [ms] milliseconds, or until wf_monitor_wake is called. Does not sleep if
 * wf_monitor_wake was called after the caller had loaded [wakeups] from the monitor. */
void wf_monitor_sleep(struct wf_monitor *m, uint32_t wakeups, unsigned ms);

/* Wake the threads in wf_monitor_sleep. */
void wf_monitor_wake(struct wf_monitor *m);

/* The monitor for programs that report changes themselves by wf_cache_invalidate. This monitor
 * itself sees no changes. */
extern struct wf_monitor wf_monitor_import;
/* The monitor for programs whose changes of memory nobody sees or reports. Transfers that overlap
 * in time share a registration, and the cache deregisters it after the last of these transfers. */
extern struct wf_monitor wf_monitor_none;

/* Returns the monitor of this process, a userfaultfd. The first call opens it and starts its reader
 * thread. The userfaultfd and the thread stay until the process ends: a thread that unmaps watched
 * memory sleeps until the reader has read the change. A second userfaultfd could not watch the same
 * mappings.
 *
 * Returns NULL if there can be no userfaultfd. Then *why states the reason and the remedy. */
struct wf_monitor *wf_monitor_userfaultfd(const char **why);

#endif
