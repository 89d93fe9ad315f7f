/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_PROGRESS=thread: a thread per context polls its endpoints while the application
 * computes, so that what peers ask of it is done: puts, gets and atomics by message,
 * answers, acknowledgements. Every endpoint is then a locked one.
 *
 * Locks. The thread holds [lock] for a round over the endpoints, and takes each endpoint's own lock
 * only if it is free: who has it polls anyway. An endpoint leaves by taking [lock], so a
 * round never sees one that is gone. Lock order: an endpoint's, then [lock]. */
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
    pthread_mutex_t lock; /* recursive: a handler may open or close another endpoint */
    struct wf_list eps WF_GUARDED_BY(lock);
    bool stop WF_GUARDED_BY(lock);
};

/* Start it, if WEFT_PROGRESS says so. OK | ESYSTEM */
enum weft_status wf_progress_open(struct weft_ctx *ctx);
void wf_progress_close(struct weft_ctx *ctx);
/* OK | ESYSTEM */
enum weft_status wf_progress_join(struct weft_ep *ep);
void wf_progress_leave(struct weft_ep *ep);

#endif
