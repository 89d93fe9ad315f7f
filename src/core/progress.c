/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "core/progress.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "core/core.h"

/* The application's own polls disarm an endpoint behind the thread's back; shared memory does
 * not wake it then, so it looks again after this. */
#define LOOK_MS 10
#define BUSY_NS 50000 /* the application is inside: let it */
#define EVENTS 16

/* Poll and arm one endpoint. True: it was free. */
static bool ep_turn(struct weft_ep *ep)
{
    if (pthread_mutex_trylock(&ep->lock))
        return false;
    if (!ep->busy)
        for (int i = 0; i < EVENTS; i++)
            if (weft_ep_poll(ep) <= 0 && weft_ep_arm(ep) != WEFT_AGAIN)
                break;
    pthread_mutex_unlock(&ep->lock);
    return true;
}

/* One round. Returns false to stop. */
static bool round_do(struct wf_progress *p, bool *all_free)
{
    bool stop;
    pthread_mutex_lock(&p->lock);
    stop = p->stop;
    *all_free = true;
    if (!stop)
        wf_list_each(it, &p->eps) *all_free &=
            ep_turn(wf_container_of(it, struct weft_ep, progress));
    pthread_mutex_unlock(&p->lock);
    return !stop;
}

static void *progress_main(void *arg)
{
    struct wf_progress *p = arg;
    const struct timespec pause = {0, BUSY_NS};
    struct epoll_event ev[EVENTS];
    bool all_free;
    while (round_do(p, &all_free)) {
        uint64_t n;
        if (!all_free)
            nanosleep(&pause, NULL);
        if (epoll_wait(p->epoll_fd, ev, EVENTS, LOOK_MS) < 0 && errno != EINTR)
            wf_error("the progress thread cannot wait: %m");
        if (read(p->kick_fd, &n, sizeof n) < 0 && errno != EAGAIN)
            wf_error("the progress thread: %m");
    }
    return NULL;
}

static int thread_start(struct wf_progress *p)
{
    return wf_thread_start(&p->thread, "weft-progress", 0, progress_main, p);
}

static void lock_init(struct wf_progress *p)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&p->lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

enum weft_status wf_progress_open(struct weft_ctx *ctx)
{
    struct wf_progress *p = &ctx->progress;
    struct epoll_event ev = {.events = EPOLLIN};
    wf_list_init(&p->eps);
    if (!wf_config()->progress)
        return WEFT_OK;
    lock_init(p);
    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    p->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->epoll_fd >= 0 && p->kick_fd >= 0 &&
        !epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->kick_fd, &ev) && !(errno = thread_start(p))) {
        p->on = true;
        return WEFT_OK;
    }
    wf_error("cannot start the progress thread (WEFT_PROGRESS=thread): %m");
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    if (p->kick_fd >= 0)
        close(p->kick_fd);
    pthread_mutex_destroy(&p->lock);
    return WEFT_ESYSTEM;
}

static void kick(const struct wf_progress *p)
{
    uint64_t one = 1;
    if (write(p->kick_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the progress thread: %m");
}

void wf_progress_close(struct weft_ctx *ctx)
{
    struct wf_progress *p = &ctx->progress;
    if (!p->on)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    kick(p);
    pthread_join(p->thread, NULL);
    close(p->epoll_fd);
    close(p->kick_fd);
    pthread_mutex_destroy(&p->lock);
    p->on = false;
}

enum weft_status wf_progress_join(struct weft_ep *ep)
{
    struct wf_progress *p = &ep->ctx->progress;
    struct epoll_event ev = {.events = EPOLLIN};
    wf_list_init(&ep->progress);
    if (!p->on)
        return WEFT_OK;
    if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, ep->wait_fd, &ev)) {
        wf_error("the progress thread cannot watch an endpoint: %m");
        return WEFT_ESYSTEM;
    }
    pthread_mutex_lock(&p->lock);
    wf_list_append(&p->eps, &ep->progress);
    pthread_mutex_unlock(&p->lock);
    kick(p);
    return WEFT_OK;
}

void wf_progress_leave(struct weft_ep *ep)
{
    struct wf_progress *p = &ep->ctx->progress;
    if (!p->on || wf_list_empty(&ep->progress))
        return;
    pthread_mutex_lock(&p->lock);
    wf_list_remove(&ep->progress);
    pthread_mutex_unlock(&p->lock);
    (void)epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, ep->wait_fd, NULL);
}
