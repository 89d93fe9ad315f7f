/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of names/ share. The caller of a function with UNDER_LOCK holds the
 * lock; only the thread calls those that are named for events and times. */
#ifndef WF_TRANSPORT_NAMES_NAMES_INT_H
#define WF_TRANSPORT_NAMES_NAMES_INT_H

#include "transport/names/names.h"
#include "transport/stream.h"

#define NAMES_MS ((uint64_t)1000000) /* nanoseconds */
#define UNDER_LOCK WF_REQUIRES(wf_names_lock_class)

static inline WF_ACQUIRES(wf_names_lock_class) void names_lock(struct wf_names *names)
{
    pthread_mutex_lock(&names->lock);
}

static inline WF_RELEASES(wf_names_lock_class) void names_unlock(struct wf_names *names)
{
    pthread_mutex_unlock(&names->lock);
}

/* ---- names.c ---- */

/* Start the thread, unless it runs. Returns OK | ESYSTEM (logged) */
UNDER_LOCK enum weft_status wf_names_start(struct wf_names *names);
void wf_names_kick(struct wf_names *names);
/* Let the thread watch w->fd for [events], and call w->event. Returns false with errno on failure;
 * the caller closes the watch in either case. */
UNDER_LOCK bool wf_names_watch(struct wf_names *names, struct wf_names_watch *w, uint32_t events);
UNDER_LOCK void wf_names_watch_events(struct wf_names *names, struct wf_names_watch *w,
                                      uint32_t events);
/* Close w->fd, if there is one. */
UNDER_LOCK void wf_names_watch_close(struct wf_names *names, struct wf_names_watch *w);
/* Receive the bytes that have arrived, up to [want] bytes in all. *have counts the bytes so far.
 * Returns false if the connection has ended or failed. */
bool wf_names_recv(int fd, void *buf, size_t *have, size_t want);

/* Call [act], which takes its watch out of the list, for each watch of [list] that is due at [now].
 * The watches are in the order of their times. Returns when the next one is due, or UINT64_MAX. */
UNDER_LOCK uint64_t wf_names_list_due(struct wf_names *names, struct wf_list *list, uint64_t now,
                                      void (*act)(struct wf_names *, struct wf_names_watch *));

/* ---- answering.c, asking.c ---- */

UNDER_LOCK void wf_names_listener_due(struct wf_names *names, struct wf_names_watch *w);
UNDER_LOCK void wf_names_caller_end(struct wf_names *names, struct wf_names_watch *w);
/* Begin and end attempts whose time has come at [now]. Returns the latest time of the next call. */
UNDER_LOCK uint64_t wf_names_lookups_due(struct wf_names *names, uint64_t now);

#endif
