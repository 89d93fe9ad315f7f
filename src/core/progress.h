/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread (WEFT_PROGRESS=thread). One thread per context polls the context's endpoints
 * while the application computes. So the context serves the puts, gets and atomics that peers
 * request by message, and handles answers and acknowledgements, although the application does not
 * poll. All endpoints of such a context have a lock, as with WEFT_EP_LOCKED.
 *
 * Locks. The thread holds wf_progress.lock only while it chooses the next endpoint, [now]. It does
 * not hold that lock while it polls, so handlers may open and close other endpoints. It takes the
 * lock of an endpoint only if that lock is free. If another thread holds the lock, that thread
 * polls. A thread that closes an endpoint holds the endpoint's lock, and waits while [now] is that
 * endpoint. This wait is short: the progress thread needs the endpoint's lock to poll the endpoint,
 * fails to take it, and chooses the next endpoint. Lock order: an endpoint's lock, then
 * wf_progress.lock. */
#ifndef WF_CORE_PROGRESS_H
#define WF_CORE_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/util.h"

struct weft_ctx;
struct weft_ep;

WF_LOCK_CLASS(wf_progress_lock_class); /* struct wf_progress.lock */

struct wf_progress {
    bool on;
    pthread_t thread;
    _Atomic uint64_t self;      /* wf_thread_self of the thread; 0: it has not begun */
    const struct weft_ep *turn; /* of the thread alone: the endpoint that it polls and arms */
    /* An endpoint was disarmed, or a call at an armed endpoint may have left work for a poll, so
     * that nothing wakes the progress thread for it. The progress thread, which was woken for that,
     * looks after LOOK_MS. */
    _Atomic bool disarmed;
    int epoll_fd, kick_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals that [now] has changed */
    struct wf_list eps WF_UNDER(wf_progress_lock_class);
    /* a marker in [eps]: the current round still has to visit the endpoints after the marker */
    struct wf_list cursor WF_UNDER(wf_progress_lock_class);
    const struct weft_ep *now WF_UNDER(wf_progress_lock_class); /* null: none is being polled */
    bool stop WF_UNDER(wf_progress_lock_class);
};

/* Start the thread. Returns OK | ESYSTEM */
enum weft_status wf_progress_open(struct weft_ctx *ctx);
void wf_progress_close(struct weft_ctx *ctx);
/* Let the progress thread, if there is one, poll [ep] from now on. Returns OK | ESYSTEM */
enum weft_status wf_progress_join(struct weft_ep *ep);
void wf_progress_leave(struct weft_ep *ep);
/* Called after a thread has disarmed [ep], an endpoint of the context, or at the end of a call at
 * the armed [ep], which may have left work for a poll. */
void wf_progress_notify(struct wf_progress *p, const struct weft_ep *ep);
static inline void wf_progress_disarmed(struct wf_progress *p, const struct weft_ep *ep)
{
    if (p->on)
        wf_progress_notify(p, ep);
}

#endif
