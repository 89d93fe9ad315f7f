/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "core/progress.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "core/core.h"
#include "core/deferred.h"

/* A poll by the program disarms the endpoint, and then messages in shared memory do not wake the
 * thread. So the thread polls again after this time. If all endpoints are armed, it sleeps until an
 * event comes, or until a poll disarms one of them. */
#define LOOK_MS 10
#define BUSY_NS 50000 /* sleep while another thread holds an endpoint's lock */
#define EVENTS 16

/* The result of one turn of the progress thread at an endpoint. The result of a round over all
 * endpoints is the highest value of its turns. */
enum turn {
    TURN_IDLE,   /* no events; the endpoint is armed */
    TURN_BUSY,   /* another thread polls or runs deferred calls; or these have to wait; or the
                  * endpoint cannot be armed */
    TURN_MORE,   /* events keep coming */
    TURN_WANTED, /* events keep coming, and another thread waits for the lock */
    TURN_FORKED, /* a function of the program has forked, and this is the child */
};

static WF_ACQUIRES(wf_progress_lock_class) void progress_lock(struct wf_progress *p)
{
    pthread_mutex_lock(&p->lock);
}

static WF_RELEASES(wf_progress_lock_class) void progress_unlock(struct wf_progress *p)
{
    pthread_mutex_unlock(&p->lock);
}

/* The caller holds the endpoint's lock. Ends early if deferred calls are due. */
static enum turn poll_and_arm(struct weft_ep *ep)
{
    for (int i = 0; i < EVENTS; i++) {
        enum weft_status armed = WEFT_AGAIN;
        int events = wf_ep_poll_held(ep);
        if (!wf_fork_gen_is(ep->fork_gen))
            return TURN_FORKED; /* another poll would take messages from the parent's memory */
        if (events <= 0)
            armed = weft_ep_arm(ep);
        if (armed != WEFT_AGAIN)
            return armed == WEFT_OK ? TURN_IDLE : TURN_BUSY;
        if (wf_deferred_is_due(ep))
            return TURN_MORE;
        if (wf_ep_is_wanted(ep))
            return TURN_WANTED;
    }
    return TURN_MORE;
}

static enum turn ep_turn(struct weft_ep *ep)
{
    struct wf_progress *p = &ep->ctx->progress;
    const uint64_t fork_gen = ep->fork_gen;
    enum turn turn;
    if (!wf_ep_trylock(ep))
        return TURN_BUSY;
    p->turn = ep;
    turn = poll_and_arm(ep);
    p->turn = NULL;
    wf_ep_unlock(ep);
    if (wf_deferred_is_due(ep) && !wf_deferred_run(ep))
        turn = TURN_BUSY; /* another thread runs the deferred calls, or they wait for room */
    return wf_fork_gen_is(fork_gen) ? turn : TURN_FORKED;
}

/* Returns the next endpoint of this round, or NULL if the round is over. */
static struct weft_ep *ep_next(struct wf_progress *p)
{
    struct wf_list *at;
    struct weft_ep *now;
    progress_lock(p);
    at = p->cursor.next;
    wf_list_remove(&p->cursor);
    now = at == &p->eps ? NULL : wf_container_of(at, struct weft_ep, progress);
    p->now = now;
    if (now)
        wf_list_prepend(at, &p->cursor);
    pthread_cond_broadcast(&p->changed);
    progress_unlock(p);
    return now;
}

/* Begin a round over all endpoints. Returns false if the thread has to end. */
static bool round_begin(struct wf_progress *p)
{
    bool stop;
    progress_lock(p);
    stop = p->stop;
    wf_list_prepend(&p->eps, &p->cursor);
    progress_unlock(p);
    return !stop;
}

/* Poll each endpoint once. Returns the highest result of a turn. In a forked child another thread
 * may have held p->lock, for ever. */
static enum turn round_do(struct wf_progress *p)
{
    enum turn most = TURN_IDLE;
    struct weft_ep *ep;
    while (most != TURN_FORKED && (ep = ep_next(p))) {
        enum turn turn = ep_turn(ep);
        most = WF_MAX(most, turn);
    }
    return most;
}

/* Sleep until there is an event. [most] is the result of a round. */
static void events_wait(struct wf_progress *p, enum turn most)
{
    bool disarmed = atomic_load_explicit(&p->disarmed, memory_order_acquire);
    int ms = most == TURN_BUSY || disarmed ? LOOK_MS : -1;
    struct epoll_event ev[EVENTS];
    uint64_t n;
    if (epoll_wait(p->epoll_fd, ev, EVENTS, ms) < 0 && errno != EINTR)
        wf_error("the progress thread cannot wait: %m");
    if (read(p->kick_fd, &n, sizeof n) < 0 && errno != EAGAIN)
        wf_error("the progress thread: %m");
    /* The next round arms all endpoints again. A poll that disarms one after that sets the flag. */
    if (disarmed)
        atomic_store_explicit(&p->disarmed, false, memory_order_relaxed);
}

static void *progress_main(void *arg)
{
    struct wf_progress *p = arg;
    const struct timespec pause = {0, BUSY_NS};
    atomic_store_explicit(&p->self, wf_thread_self(), memory_order_relaxed);
    while (round_begin(p)) {
        enum turn most = round_do(p);
        if (most == TURN_FORKED)
            break; /* the child has no other thread, so it ends */
        if (most == TURN_BUSY || most == TURN_WANTED)
            nanosleep(&pause, NULL);
        /* else do not sleep: events that have come already would not wake the thread */
        if (most < TURN_MORE)
            events_wait(p, most);
    }
    return NULL;
}

static int thread_start(struct wf_progress *p)
{
    return wf_thread_start(&p->thread, "weft-progress", 0, progress_main, p);
}

enum weft_status wf_progress_open(struct weft_ctx *ctx)
{
    struct wf_progress *p = &ctx->progress;
    struct epoll_event ev = {.events = EPOLLIN};
    wf_list_init(&p->eps);
    wf_list_init(&p->cursor);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    p->kick_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (p->epoll_fd >= 0 && p->kick_fd >= 0 &&
        !epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->kick_fd, &ev) && !(errno = thread_start(p))) {
        p->on = true;
        return WEFT_OK;
    }
    wf_error("cannot start the progress thread of a context: %m");
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    if (p->kick_fd >= 0)
        close(p->kick_fd);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    return WEFT_ESYSTEM;
}

static void kick(const struct wf_progress *p)
{
    uint64_t one = 1;
    if (write(p->kick_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the progress thread: %m");
}

void wf_progress_notify(struct wf_progress *p, const struct weft_ep *ep)
{
    bool own = atomic_load_explicit(&p->self, memory_order_relaxed) == wf_thread_self();
    if (own && p->turn == ep)
        return; /* the thread arms it again at the end of its turn */
    if (!atomic_load_explicit(&p->disarmed, memory_order_relaxed) &&
        !atomic_exchange_explicit(&p->disarmed, true, memory_order_acq_rel))
        kick(p);
}

void wf_progress_close(struct weft_ctx *ctx)
{
    struct wf_progress *p = &ctx->progress;
    if (!p->on)
        return;
    progress_lock(p);
    p->stop = true;
    progress_unlock(p);
    kick(p);
    pthread_join(p->thread, NULL);
    close(p->epoll_fd);
    close(p->kick_fd);
    pthread_cond_destroy(&p->changed);
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
    progress_lock(p);
    wf_list_append(&p->eps, &ep->progress);
    progress_unlock(p);
    kick(p);
    return WEFT_OK;
}

void wf_progress_leave(struct weft_ep *ep)
{
    struct wf_progress *p = &ep->ctx->progress;
    bool joined;
    if (!p->on)
        return;
    progress_lock(p);
    joined = !wf_list_empty(&ep->progress);
    wf_list_remove(&ep->progress);
    while (p->now == ep)
        pthread_cond_wait(&p->changed, &p->lock);
    progress_unlock(p);
    if (joined)
        (void)epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, ep->wait_fd, NULL);
}
