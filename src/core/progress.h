/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_PROGRESS=thread: one thread per context polls its endpoints while the application computes,
 * so that peers are served: puts, gets and atomics by message, answers, acknowledgements. All
 * endpoints are LOCKED ones then.
 *
 * Locks. The thread holds [lock] only while it chooses the next endpoint ([now]), never while it
 * polls one, so that handlers may open and close other endpoints. It takes an endpoint's own lock
 * only if that is free; else the thread that holds it polls. An endpoint leaves with its own lock
 * held, and waits until it is not [now]: since the progress thread cannot be in its handlers, that
 * takes at most one failed trylock. Lock order: an endpoint's lock, then [lock]. */
#ifndef WF_CORE_PROGRESS_H
#define WF_CORE_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/lock.h"
#include "base/util.h"

struct weft_ctx;
struct weft_ep;

WF_LOCK_CLASS(wf_progress_lock_class); /* struct wf_progress.lock */

struct wf_progress {
    bool on;
    pthread_t thread;
    int epoll_fd, kick_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals that [now] has changed */
    struct wf_list eps WF_UNDER(wf_progress_lock_class);
    struct wf_list
        cursor WF_UNDER(wf_progress_lock_class); /* in [eps]: the rest of this round is behind it */
    const struct weft_ep *now WF_UNDER(wf_progress_lock_class); /* null: none is being polled */
    bool stop WF_UNDER(wf_progress_lock_class);
};

/* Start it, if WEFT_PROGRESS says so. OK | ESYSTEM */
enum weft_status wf_progress_open(struct weft_ctx *ctx);
void wf_progress_close(struct weft_ctx *ctx);
/* OK | ESYSTEM */
enum weft_status wf_progress_join(struct weft_ep *ep);
void wf_progress_leave(struct weft_ep *ep);

#endif
