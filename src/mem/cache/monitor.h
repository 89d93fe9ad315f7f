/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens to this process's memory behind the back of who registered it: mappings that go or
 * move, pages that are dropped.
 *
 * A monitor is told which memory to watch, and logs what happens to it. Registration caches
 * (cache.h) read the log before they trust an entry. A monitor knows no cache, takes no lock and
 * allocates nothing: the thread that unmaps stands still until its change is read, and may
 * hold any lock of the program (it may be inside free); who reads must never wait for one.
 *
 * The seqcount is odd from before a change is read until it is in the log. Who unmaps goes on
 * only after the reading; so whoever goes on from there sees an odd seqcount, or an even one and
 * the change in the log.
 *
 * What a seqcount cannot show is a change under way: munmap gives the addresses free before its
 * change can be read, and another thread may map and use them in between. The probe asks for that.
 *
 * Acquire/release pairs: "seqcount", the monitor's even value with who reads the log after it;
 * "slot", each word of the log with wf_monitor_read. */
#ifndef WF_MEM_CACHE_MONITOR_H
#define WF_MEM_CACHE_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

enum wf_change {
    WF_CHANGE_GONE,    /* unmapped, moved elsewhere, or something else mapped over it */
    WF_CHANGE_DROPPED, /* its pages are dropped (madvise): when, nothing tells */
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
    WF_PROBE_CLEAN, /* no change is under way: all that began before are in the log, or the seqcount
                       is odd */
    WF_PROBE_BUSY,
    WF_PROBE_LOST, /* the monitor sees nothing any more */
};

struct wf_monitor;

struct wf_monitor_ops {
    const char *name;
    /* Watch the mappings that hold [start, end), from now on and until they go; *span: all of
     * them, or nothing.
     * Returns OK | EMEMTYPE (not all of it can be watched: a file's, or shared) | ESYSTEM */
    enum weft_status (*watch)(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                              struct wf_span *span);
    enum wf_probe (*probe)(struct wf_monitor *m);
    bool keeps_idle; /* registrations may be kept when nobody uses them */
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
    _Atomic uint32_t wakeups; /* futex(2): moves with each seqcount */
};

/* ---- for the one thread that reads changes ---- */

void wf_monitor_begin(struct wf_monitor *m);
void wf_monitor_log(struct wf_monitor *m, enum wf_change change, uintptr_t start, uintptr_t end);
void wf_monitor_end(struct wf_monitor *m);

/* ---- for caches ---- */

/* Copy at most [max] changes from number [from] on. Returns how many; -1: some of them were
 * overwritten, so that anything may have changed. */
int wf_monitor_read(struct wf_monitor *m, uint64_t from, struct wf_changed *out, unsigned max);

/* Sleep until the seqcount has moved since [wakeups] was read, at most [ms]. */
void wf_monitor_sleep(struct wf_monitor *m, uint32_t wakeups, unsigned ms);

/* Wake who sleeps. */
void wf_monitor_wake(struct wf_monitor *m);

/* Sees nothing: the program tells of changes itself (wf_cache_invalidate). */
extern struct wf_monitor wf_monitor_import;
/* Nobody sees anything: a registration is shared while it is in use, and not kept. */
extern struct wf_monitor wf_monitor_none;

/* The process's userfaultfd, opened at the first call and kept until the process ends: a mapping
 * can be watched by one only, and a thread that unmaps stands still for ever if nobody reads. Null:
 * there is none, and *why says what to do about it. */
struct wf_monitor *wf_monitor_userfaultfd(const char **why);

#endif
