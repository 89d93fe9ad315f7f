/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous registration of memory. A context that uses it has one thread, which completes the
 * registrations one after the other. */
#ifndef WF_CORE_MR_ASYNC_H
#define WF_CORE_MR_ASYNC_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/weft.h>

#include "base/lock.h"
#include "base/util.h"

struct weft_mr;

WF_LOCK_CLASS(wf_mr_async_lock_class); /* struct wf_mr_async.lock */

struct wf_mr_async {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct wf_list queue WF_UNDER(wf_mr_async_lock_class); /* struct weft_mr, item */
    bool running WF_UNDER(wf_mr_async_lock_class), stop WF_UNDER(wf_mr_async_lock_class);
};

void wf_mr_async_init(struct wf_mr_async *r);
/* Stop the thread, if it runs. The queue must be empty. */
void wf_mr_async_close(struct wf_mr_async *r);
/* Give [mr] to the thread, which completes the registration and posts the event. The first call
 * starts the thread. Returns OK | ESYSTEM (the thread cannot be started) */
enum weft_status wf_mr_async_add(struct wf_mr_async *r, struct weft_mr *mr);

#endif
