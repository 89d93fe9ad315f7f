/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "core/mr_async.h"

#include <string.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/event.h"
#include "core/region.h"

static WF_ACQUIRES(wf_mr_async_lock_class) void async_lock(struct wf_mr_async *r)
{
    pthread_mutex_lock(&r->lock);
}

static WF_RELEASES(wf_mr_async_lock_class) void async_unlock(struct wf_mr_async *r)
{
    pthread_mutex_unlock(&r->lock);
}

static void complete(struct weft_mr *mr)
{
    struct wf_event *event = mr->event;
    struct weft_eq *eq = mr->ctx->domain.eq;
    enum weft_status status;
    WF_HOOK("mr_async.begin");
    status = wf_mr_complete(mr);
    mr->event = NULL;
    event->event.status = status;
    atomic_store_explicit(&mr->state, status, memory_order_release); /* "mr state" */
    /* after this call the program may close the region, so [mr] is not used any more */
    wf_eq_post(eq, event);
}

static void *mr_async_main(void *arg)
{
    struct wf_mr_async *r = arg;
    async_lock(r);
    while (!r->stop) {
        struct wf_list *it = wf_list_pop(&r->queue);
        if (!it) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        async_unlock(r);
        complete(wf_container_of(it, struct weft_mr, item));
        async_lock(r);
    }
    async_unlock(r);
    return NULL;
}

void wf_mr_async_init(struct wf_mr_async *r)
{
    wf_list_init(&r->queue);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
}

void wf_mr_async_close(struct wf_mr_async *r)
{
    bool running;
    async_lock(r);
    running = r->running;
    r->stop = true;
    pthread_cond_signal(&r->work);
    async_unlock(r);
    if (running)
        pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
}

enum weft_status wf_mr_async_add(struct wf_mr_async *r, struct weft_mr *mr)
{
    enum weft_status status = WEFT_OK;
    async_lock(r);
    if (!r->running) {
        int error = wf_thread_start(&r->thread, "weft-registrar", 0, mr_async_main, r);
        if (error) {
            wf_error("cannot start the thread that registers memory: %s", strerror(error));
            status = WEFT_ESYSTEM;
        }
        r->running = !error;
    }
    if (status == WEFT_OK) {
        wf_list_append(&r->queue, &mr->item);
        pthread_cond_signal(&r->work);
    }
    async_unlock(r);
    return status;
}
