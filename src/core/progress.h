/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_PROGRESS=thread: a thread per context polls its endpoints while the application
 * computes, so that what peers ask of it is done: puts, gets and atomics by message,
 * answers, acknowledgements. Every endpoint is then a locked one.
 *
 * Locks. The thread holds [lock] only while it chooses the next endpoint ([now]), never while it
 * polls one, so handlers may open and close other endpoints. It takes an endpoint's own lock only
 * if that is free: the thread that holds it polls anyway. An endpoint leaves with its own lock
 * held, and waits until it is not [now]; the progress thread cannot be in its handlers then, so
 * that takes one failed trylock at most. Lock order: an endpoint's, then [lock]. */
#ifndef WF_CORE_PROGRESS_H
#define WF_CORE_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/util.h"

struct weft_ctx;
struct weft_ep;

struct wf_progress {
    bool on;
    pthread_t thread;
    int epoll_fd, kick_fd;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* [now] has changed */
    struct wf_list eps WF_GUARDED_BY(lock);
    struct wf_list cursor WF_GUARDED_BY(lock); /* in [eps]: behind it those of this round's rest */
    const struct weft_ep *now WF_GUARDED_BY(lock); /* null: none is being polled */
    bool stop WF_GUARDED_BY(lock);
};

/* Start it, if WEFT_PROGRESS says so. OK | ESYSTEM */
enum weft_status wf_progress_open(struct weft_ctx *ctx);
void wf_progress_close(struct weft_ctx *ctx);
/* OK | ESYSTEM */
enum weft_status wf_progress_join(struct weft_ep *ep);
void wf_progress_leave(struct weft_ep *ep);

#endif
