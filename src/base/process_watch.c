/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/process_watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/process.h"
#include "base/thread.h"

#define LOOK_MS 20
#define WATCHES_PER_MS 10 /* more watches make the thread look less often */
#define STACK 65536

struct watch {
    struct wf_list item;
    int pid, fd; /* its peer is the caller's */
    uint64_t ticks;
};

WF_LOCK_CLASS(watch_lock_class);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wf_list watches WF_UNDER(watch_lock_class) = {&watches, &watches};
static bool runs WF_UNDER(watch_lock_class);

static WF_ACQUIRES(watch_lock_class) void watches_lock(void)
{
    pthread_mutex_lock(&lock);
}

static WF_RELEASES(watch_lock_class) void watches_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- forks ---- */

static WF_REQUIRES(watch_lock_class) void watch_drop(struct watch *w)
{
    wf_list_remove(&w->item);
    close(w->fd);
    free(w);
}

static WF_UNCHECKED void before_fork(struct wf_fork_item *item)
{
    (void)item;
    watches_lock();
}

static WF_UNCHECKED void in_parent(struct wf_fork_item *item)
{
    (void)item;
    watches_unlock();
}

static WF_UNCHECKED void in_child(struct wf_fork_item *item)
{
    (void)item;
    wf_list_each_safe(it, nx, &watches) watch_drop(wf_container_of(it, struct watch, item));
    runs = false;
    watches_unlock();
}

/* Callers hold locks of transports: this one is taken after those. */
static const struct wf_fork_ops fork_ops = {.level = WF_FORK_MEM,
                                            .stays = true,
                                            .prepare = before_fork,
                                            .parent = in_parent,
                                            .child = in_child};

void wf_process_watch_begin(void)
{
    static struct wf_fork_item fork_item;
    wf_fork_join(&fork_item, &fork_ops);
}

/* ---- the thread ---- */

static bool is_closed(const struct watch *w)
{
    char byte;
    return recv(w->fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* Returns how many watches are left. The byte of a process that has ended stays in the caller's
 * end. */
static WF_REQUIRES(watch_lock_class) unsigned look(void)
{
    unsigned count = 0;
    wf_list_each_safe(it, nx, &watches)
    {
        struct watch *w = wf_container_of(it, struct watch, item);
        bool ended = wf_process_ended(w->pid, w->ticks);
        if (ended)
            (void)send(w->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (ended || is_closed(w))
            watch_drop(w);
        else
            count++;
    }
    return count;
}

static void *body(void *arg)
{
    unsigned count;
    for (;;) {
        watches_lock();
        count = look();
        if (!count)
            runs = false;
        watches_unlock();
        if (!count)
            return arg;
        (void)poll(NULL, 0, LOOK_MS + (int)(count / WATCHES_PER_MS));
    }
}

static WF_REQUIRES(watch_lock_class) bool thread_begin(void)
{
    pthread_t thread;
    if (!runs) {
        errno = wf_thread_start(&thread, "weft-processes", STACK, body, NULL);
        if (errno)
            return false;
        runs = true;
        pthread_detach(thread);
    }
    return true;
}

/* ---- watches ---- */

static struct watch *watch_new(int pid, int *theirs)
{
    struct watch *w = malloc(sizeof *w);
    int ends[2];
    if (!w)
        return NULL;
    *w = (struct watch){.pid = pid, .ticks = wf_process_ticks(pid)};
    if (!w->ticks || !wf_fd_pair(ends)) {
        errno = !w->ticks && errno == ENOENT ? ESRCH : errno;
        free(w);
        return NULL;
    }
    w->fd = ends[0];
    *theirs = ends[1];
    return w;
}

int wf_process_watch(int pid)
{
    int theirs = -1, err = 0;
    struct watch *w;
    watches_lock();
    w = watch_new(pid, &theirs);
    if (w)
        wf_list_append(&watches, &w->item);
    if (w && !thread_begin()) {
        err = errno;
        watch_drop(w);
        close(theirs);
        theirs = -1;
        errno = err;
    }
    watches_unlock();
    return theirs;
}
