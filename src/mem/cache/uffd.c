/* SPDX-License-Identifier: BSD-3-Clause */
/* The monitor that needs no help from the program: a userfaultfd(2) in write-protect mode, with no
 * page ever protected. So the kernel reports memory that is unmapped, moved or dropped, but no page
 * faults.
 *
 * What the kernel does (fs/userfaultfd.c, Linux 5.15 to 6.18): munmap increments a count of changes
 * under way, removes the mapping, and releases the address space's lock. Then munmap queues its
 * event, sleeps until the event is read, and decrements the count. madvise queues its event first,
 * and drops the pages after the event was read. UFFDIO_ZEROPAGE of length 0 fails with EAGAIN while
 * the count is not 0, otherwise with EINVAL: that is the probe. Before Linux 5.15 the count was a
 * flag, which the first of two changes cleared at its end.
 *
 * The reader is a thread that lives as long as the process: a watched mapping stays watched, and a
 * thread that unmaps this mapping sleeps until the reader has read the event. The reader must not
 * map, unmap or allocate memory, because the reader would then wait for itself. A signal handler
 * might do so; therefore the reader takes no signals. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/util.h"
#include "mem/maps.h"
#include "mem/cache/uffd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define BURST 16 /* changes read at a time */

static struct wf_uffd *uffd_of(struct wf_monitor *m)
{
    return wf_container_of(m, struct wf_uffd, base);
}

/* ---- reading ---- */

static void note(struct wf_monitor *m, const struct uffd_msg *msg)
{
    switch (msg->event) {
    case UFFD_EVENT_UNMAP:
        wf_monitor_log(m, WF_CHANGE_GONE, (uintptr_t)msg->arg.remove.start,
                       (uintptr_t)msg->arg.remove.end);
        break;
    case UFFD_EVENT_REMOVE:
        wf_monitor_log(m, WF_CHANGE_DROPPED, (uintptr_t)msg->arg.remove.start,
                       (uintptr_t)msg->arg.remove.end);
        break;
    case UFFD_EVENT_REMAP: /* the kernel watches the new address; the cache has no entry there */
        wf_monitor_log(m, WF_CHANGE_GONE, (uintptr_t)msg->arg.remap.from,
                       (uintptr_t)(msg->arg.remap.from + msg->arg.remap.len));
        break;
    default: break;
    }
}

bool wf_uffd_read(struct wf_uffd *u)
{
    struct uffd_msg msgs[BURST];
    ssize_t n;
    int error;
    wf_monitor_begin(&u->base);
    n = read(u->fd, msgs, sizeof msgs);
    error = errno;
    for (ssize_t i = 0; i < n / (ssize_t)sizeof msgs[0]; i++)
        note(&u->base, &msgs[i]);
    if (n <= 0 && (!n || (error != EAGAIN && error != EINTR)))
        atomic_store(&u->lost, true);
    wf_monitor_end(&u->base);
    return !atomic_load(&u->lost);
}

/* ---- the monitor's operations ---- */

static enum wf_probe uffd_probe(struct wf_monitor *m)
{
    struct wf_uffd *u = uffd_of(m);
    struct uffdio_zeropage nothing = {.mode = 0};
    if (!ioctl(u->fd, UFFDIO_ZEROPAGE, &nothing))
        errno = 0;
    if (errno == EINVAL)
        return atomic_load_explicit(&u->lost, memory_order_relaxed) ? WF_PROBE_LOST
                                                                    : WF_PROBE_CLEAN;
    if (errno == EAGAIN)
        return WF_PROBE_BUSY;
    atomic_store(&u->lost, true); /* Another errno: the program has closed the descriptor. */
    return WF_PROBE_LOST;
}

/* Watch whole mappings. To watch a part of a mapping, the kernel would split the mapping, and many
 * small transfers would leave very many mappings. */
static enum weft_status uffd_watch(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                                   struct wf_span *span)
{
    struct wf_uffd *u = uffd_of(m);
    struct wf_mapping at = {.start = 0};
    struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_WP};
    for (uintptr_t a = start; a < end; a = at.end) {
        if (wf_maps_find(u->maps_fd, a, &at) || !at.is_private || !at.is_anonymous)
            return WEFT_EMEMTYPE;
        if (a == start)
            reg.range.start = at.start;
    }
    reg.range.len = at.end - reg.range.start;
    /* Set *span only if one mapping contains all of [start, end). A single mapping is watched as a
     * whole or not at all; of several mappings, only some might be watched. */
    *span = at.start <= start ? (struct wf_span){at.start, at.end} : (struct wf_span){0, 0};
    if (!ioctl(u->fd, UFFDIO_REGISTER, &reg))
        return WEFT_OK;
    return errno == ENOMEM ? WEFT_ESYSTEM : WEFT_EMEMTYPE;
}

static const struct wf_monitor_ops uffd_ops = {
    .name = "userfaultfd", .watch = uffd_watch, .probe = uffd_probe, .keeps_idle = true};

/* ---- opening ---- */

static bool kernel_counts_changes(void)
{
    struct utsname name;
    unsigned major, minor;
    return !uname(&name) && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 15));
}

/* Move the descriptor [fd] to a number of at least 200. Some programs close all low descriptors, or
 * expect certain low numbers to be free. */
static int fd_higher(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 200); /* [fd] is above 2: wf_fd_high returned it */
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static int userfaultfd(void)
{
    const int flags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
    return wf_fd_high((int)syscall(SYS_userfaultfd, flags));
}

static const char *fds_open(struct wf_uffd *u)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |
                                         UFFD_FEATURE_EVENT_REMOVE |
                                         UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    if (!kernel_counts_changes())
        return "Linux is older than 5.15";
    /* userfaultfd() sets UFFD_USER_MODE_ONLY. Therefore the process needs no privilege, but the
     * descriptor cannot handle page faults in the kernel. No page is protected, so there are no
     * such faults. */
    u->fd = userfaultfd();
    if (u->fd < 0)
        return errno == ENOSYS ? "this kernel has no userfaultfd"
               : errno == EPERM || errno == EACCES
                   ? "userfaultfd is denied (a container's seccomp profile: allow the call "
                     "userfaultfd)"
                   : "userfaultfd failed (descriptors: ulimit -n)";
    u->fd = fd_higher(u->fd);
    if (ioctl(u->fd, UFFDIO_API, &api))
        return "this kernel's userfaultfd has no write-protect mode or no events";
    u->maps_fd = wf_maps_open("/proc/thread-self/maps");
    if (u->maps_fd < 0)
        return "/proc/thread-self/maps cannot be read";
    u->maps_fd = fd_higher(u->maps_fd);
    return NULL;
}

const char *wf_uffd_open(struct wf_uffd *u)
{
    const char *why;
    memset(u, 0, sizeof *u);
    u->base.ops = &uffd_ops;
    u->base.log = u->log;
    u->fd = u->maps_fd = -1;
    why = fds_open(u);
    if (why)
        wf_uffd_close(u);
    return why;
}

void wf_uffd_close(struct wf_uffd *u)
{
    if (u->fd >= 0)
        close(u->fd);
    if (u->maps_fd >= 0)
        close(u->maps_fd);
    u->fd = u->maps_fd = -1;
}

/* ---- the process's own monitor ---- */

static struct {
    struct wf_uffd uffd;
    uint64_t fork_gen; /* 0: not opened in this process */
    const char *why;
    sem_t reads; /* posted when the reader runs */
} own;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a forked child, close the descriptors, which refer to the parent's memory. No handler takes
 * own_lock: the holder of own_lock starts a thread, and so may wait for an allocator's lock. If the
 * fork held the allocator's lock and waited for own_lock, both threads would wait for ever. */
static void own_child(struct wf_fork_item *item)
{
    (void)item;
    own_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (own.fork_gen && !own.why)
        wf_uffd_close(&own.uffd);
    own.fork_gen = 0;
}

static struct wf_fork_item own_fork;
static const struct wf_fork_ops own_fork_ops = {
    .level = WF_FORK_MEM, .stays = true, .child = own_child};

/* The reader thread. Its loop makes only raw system calls: a function that unmaps memory might wait
 * for this thread to read the event. */
static void *reader_main(void *arg)
{
    struct wf_uffd *u = arg;
    /* Use the maps file of this thread, because this thread never ends. The maps file of another
     * thread cannot be read after that thread has ended. */
    int fd = wf_maps_open("/proc/thread-self/maps");
    if (fd >= 0) {
        close(u->maps_fd);
        u->maps_fd = fd_higher(fd);
    }
    sem_post(&own.reads);
    do {
        struct pollfd p = {.fd = u->fd, .events = POLLIN};
        (void)poll(&p, 1, -1);
    } while (wf_uffd_read(u));
    /* When a thread ends, it unmaps its stack. If the reader's stack is watched, the reader would
     * then wait for itself. */
    for (;;)
        (void)pause();
    return NULL;
}

/* [stack] is in bytes; 0 is the default size. A stack also holds thread-local data, so a small
 * stack may have no room for this data. */
static int thread_start(struct wf_uffd *u, size_t stack)
{
    pthread_t thread;
    pthread_attr_t attr;
    int error;
    pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (stack)
        (void)pthread_attr_setstacksize(&attr, stack);
    error = pthread_create(&thread, &attr, reader_main, u);
    pthread_attr_destroy(&attr);
    return error;
}

static const char *reader_start(struct wf_uffd *u)
{
    size_t small = WF_MAX((size_t)64 * 1024, (size_t)PTHREAD_STACK_MIN);
    sigset_t all, old;
    int error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    sem_init(&own.reads, 0, 0);
    error = thread_start(u, small);
    if (error)
        error = thread_start(u, 0);
    while (!error && sem_wait(&own.reads) && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        return NULL;
    wf_uffd_close(u);
    return "no thread could be started (ulimit -u)";
}

struct wf_monitor *wf_monitor_userfaultfd(const char **why)
{
    uint64_t fork_gen = wf_fork_gen_begin();
    if (!fork_gen) {
        *why = "out of memory";
        return NULL;
    }
    wf_fork_join(&own_fork, &own_fork_ops);
    pthread_mutex_lock(&own_lock);
    if (own.fork_gen != fork_gen) {
        if (own.fork_gen && !own.why) /* this is a child of clone(2), which runs no fork handlers */
            wf_uffd_close(&own.uffd);
        own.why = wf_uffd_open(&own.uffd);
        if (!own.why)
            own.why = reader_start(&own.uffd);
        own.fork_gen = fork_gen;
    }
    pthread_mutex_unlock(&own_lock);
    *why = own.why;
    return own.why ? NULL : &own.uffd.base;
}
