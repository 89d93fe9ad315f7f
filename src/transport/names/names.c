/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread of names. In each round it waits for events, handles them, and handles deadlines that
 * have passed. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/names/names_int.h"

#define ROUND 32
#define STACK ((size_t)64 * 1024) /* a round and a log line each need a few KiB */
#define KICK_ID 0

/* ---- watches ---- */

static struct wf_list *bucket(struct wf_names *names, uint64_t id)
{
    return &names->by_id[id % WF_NAMES_BUCKETS];
}

bool wf_names_watch(struct wf_names *names, struct wf_names_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events};
    ev.data.u64 = w->id = ++names->last_id;
    wf_list_append(bucket(names, w->id), &w->by_id);
    return !epoll_ctl(names->epoll_fd, EPOLL_CTL_ADD, w->fd, &ev);
}

void wf_names_watch_events(struct wf_names *names, struct wf_names_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events};
    ev.data.u64 = w->id;
    if (epoll_ctl(names->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev))
        wf_error("names: epoll_ctl: %m");
}

void wf_names_watch_close(struct wf_names *names, struct wf_names_watch *w)
{
    if (w->fd < 0)
        return;
    /* A forked child may have a copy for a moment, which would keep the connection or the name. */
    (void)shutdown(w->fd, SHUT_RDWR);
    (void)epoll_ctl(names->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    close(w->fd);
    wf_list_remove(&w->by_id);
    w->fd = -1;
}

bool wf_names_recv(int fd, void *buf, size_t *have, size_t want)
{
    while (*have < want) {
        ssize_t n = recv(fd, (uint8_t *)buf + *have, want - *have, 0);
        if (n > 0)
            *have += (size_t)n;
        else if (!n || (errno != EINTR && errno != EAGAIN))
            return false;
        else if (errno == EAGAIN)
            return true;
    }
    return true;
}

/* ---- the thread ---- */

void wf_names_kick(struct wf_names *names)
{
    uint64_t one = 1;
    if (write(names->kick_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the thread of names: %m");
}

static void kick_read(const struct wf_names *names)
{
    uint64_t n;
    if (read(names->kick_fd, &n, sizeof n) < 0 && errno != EAGAIN)
        wf_error("the thread of names: %m");
}

static UNDER_LOCK struct wf_names_watch *find(struct wf_names *names, uint64_t id)
{
    wf_list_each(it, bucket(names, id))
    {
        struct wf_names_watch *w = wf_container_of(it, struct wf_names_watch, by_id);
        names->steps++;
        if (w->id == id)
            return w;
    }
    return NULL;
}

static UNDER_LOCK void event_handle(struct wf_names *names, uint64_t id)
{
    struct wf_names_watch *w = id == KICK_ID ? NULL : find(names, id);
    if (id == KICK_ID)
        kick_read(names);
    else if (w)
        w->event(names, w);
}

uint64_t wf_names_list_due(struct wf_names *names, struct wf_list *list, uint64_t now,
                           void (*act)(struct wf_names *, struct wf_names_watch *))
{
    while (!wf_list_empty(list)) {
        struct wf_names_watch *w = wf_container_of(list->next, struct wf_names_watch, item);
        names->steps++;
        if (w->due_ns > now)
            return w->due_ns;
        act(names, w);
    }
    return UINT64_MAX;
}

/* Handle the deadlines that have passed. Returns how long to wait for events, in milliseconds, or
 * -1. */
static UNDER_LOCK int due(struct wf_names *names)
{
    uint64_t now = wf_now_ns(), next, at;
    next = wf_names_list_due(names, &names->callers, now, wf_names_caller_end);
    at = wf_names_list_due(names, &names->batches, now, wf_names_listener_due);
    next = WF_MIN(next, at);
    at = wf_names_list_due(names, &names->shortages, now, wf_names_listener_due);
    next = WF_MIN(next, at);
    at = wf_names_lookups_due(names, now);
    next = WF_MIN(next, at);
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)WF_MIN((next - now) / NAMES_MS + 1, (uint64_t)INT_MAX);
}

static void *names_main(void *arg)
{
    struct wf_names *names = arg;
    struct epoll_event events[ROUND];
    names_lock(names);
    while (!names->stop) {
        int n, ms = due(names);
        names_unlock(names);
        n = epoll_wait(names->epoll_fd, events, ROUND, ms);
        names_lock(names);
        for (int i = 0; i < n; i++)
            event_handle(names, events[i].data.u64);
    }
    names_unlock(names);
    return NULL;
}

/* ---- opening and closing ---- */

static void fds_close(struct wf_names *names)
{
    if (names->epoll_fd >= 0)
        close(names->epoll_fd);
    if (names->kick_fd >= 0)
        close(names->kick_fd);
    names->epoll_fd = names->kick_fd = -1;
}

enum weft_status wf_names_start(struct wf_names *names)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int err = 0;
    if (names->started)
        return WEFT_OK;
    ev.data.u64 = KICK_ID;
    names->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    names->kick_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (names->epoll_fd < 0 || names->kick_fd < 0 ||
        epoll_ctl(names->epoll_fd, EPOLL_CTL_ADD, names->kick_fd, &ev))
        err = errno;
    else
        err = wf_thread_start(&names->thread, "weft-names", STACK, names_main, names);
    if (err) {
        errno = err;
        wf_error("cannot start the thread of names: %m%s",
                 err == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
        fds_close(names);
        return WEFT_ESYSTEM;
    }
    names->started = true;
    return WEFT_OK;
}

static WF_UNCHECKED void names_fork_prepare(struct wf_fork_item *item)
{
    names_lock(wf_container_of(item, struct wf_names, fork_item));
}

static WF_UNCHECKED void names_fork_parent(struct wf_fork_item *item)
{
    names_unlock(wf_container_of(item, struct wf_names, fork_item));
}

/* Close the child's copies with close(2) only: shutdown and epoll_ctl would affect the parent. */
static void list_fds_close(struct wf_list *bucket)
{
    wf_list_each(it, bucket)
    {
        struct wf_names_watch *w = wf_container_of(it, struct wf_names_watch, by_id);
        close(w->fd);
        w->fd = -1;
    }
}

static WF_UNCHECKED void names_fork_child(struct wf_fork_item *item)
{
    struct wf_names *names = wf_container_of(item, struct wf_names, fork_item);
    for (unsigned i = 0; i < WF_NAMES_BUCKETS; i++)
        list_fds_close(&names->by_id[i]);
    fds_close(names);
    names_unlock(names);
}

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT,
                                            .prepare = names_fork_prepare,
                                            .parent = names_fork_parent,
                                            .child = names_fork_child};

WF_UNCHECKED void wf_names_init(struct wf_names *names)
{
    *names = (struct wf_names){.epoll_fd = -1, .kick_fd = -1};
    pthread_mutex_init(&names->lock, NULL);
    for (unsigned i = 0; i < WF_NAMES_BUCKETS; i++)
        wf_list_init(&names->by_id[i]);
    for (unsigned i = 0; i < WF_NAMES_PAUSES; i++)
        wf_list_init(&names->waits[i]);
    wf_list_init(&names->listeners);
    wf_list_init(&names->batches);
    wf_list_init(&names->shortages);
    wf_list_init(&names->callers);
    wf_list_init(&names->lookups);
    wf_list_init(&names->connecting);
    wf_list_init(&names->answering);
    wf_list_init(&names->ready);
    wf_fork_join(&names->fork_item, &fork_ops);
}

WF_UNCHECKED void wf_names_fini(struct wf_names *names)
{
    names_lock(names);
    names->stop = true;
    names_unlock(names);
    if (names->started) {
        wf_names_kick(names);
        pthread_join(names->thread, NULL);
    }
    wf_fork_leave(&names->fork_item);
    wf_list_each_safe(it, nx, &names->callers)
    {
        wf_names_caller_end(names, wf_container_of(it, struct wf_names_watch, item));
    }
    fds_close(names);
    pthread_mutex_destroy(&names->lock);
}
