/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for completions. With manual progress the waiting thread polls the endpoints of the
 * queue, and sleeps on an epoll descriptor that has the descriptors of these endpoints and an
 * eventfd. The eventfd is written by fi_cq_signal, and by another thread that completes an
 * operation. Weft never reports an endpoint's events twice, so each endpoint is armed before each
 * sleep. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "binding.h"

/* How often a wait reads before it sleeps: some 20 us of polls of one endpoint. */
#define SPINS 2000

static bool sleeps(const struct wfi_cq *cq)
{
    return cq->wait_obj == FI_WAIT_UNSPEC || cq->wait_obj == FI_WAIT_FD;
}

int wfi_cq_wait_open(struct wfi_cq *cq)
{
    struct epoll_event e = {.events = EPOLLIN};
    cq->epoll_fd = cq->event_fd = -1;
    if (!sleeps(cq))
        return 0;
    cq->epoll_fd = wfi_fd_high(epoll_create1(EPOLL_CLOEXEC));
    cq->event_fd = wfi_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (cq->epoll_fd < 0 || cq->event_fd < 0 ||
        epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, cq->event_fd, &e)) {
        int rc = errno == ENOMEM ? -FI_ENOMEM : -FI_EMFILE;
        wfi_cq_wait_close(cq);
        return rc;
    }
    cq->wakes = cq->lock.on;
    return 0;
}

void wfi_cq_wait_close(struct wfi_cq *cq)
{
    if (cq->epoll_fd >= 0)
        close(cq->epoll_fd);
    if (cq->event_fd >= 0)
        close(cq->event_fd);
}

int wfi_cq_wait_add(struct wfi_cq *cq, struct wfi_ep *ep)
{
    struct epoll_event e = {.events = EPOLLIN};
    int fd = cq->epoll_fd < 0 ? -1 : weft_ep_fd(ep->wep);
    if (cq->epoll_fd < 0)
        return 0;
    if (fd < 0)
        return -wfi_errno((enum weft_status)fd);
    return epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST ? -FI_ENOMEM : 0;
}

void wfi_cq_wait_remove(struct wfi_cq *cq, struct wfi_ep *ep)
{
    if (cq->epoll_fd >= 0)
        (void)epoll_ctl(cq->epoll_fd, EPOLL_CTL_DEL, weft_ep_fd(ep->wep), NULL);
}

void wfi_cq_wake(struct wfi_cq *cq)
{
    const uint64_t one = 1;
    ssize_t done;
    /* "cq sleepers": a thread that is about to sleep counts itself, then looks at the ring. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&cq->sleepers, memory_order_relaxed))
        return;
    done = write(cq->event_fd, &one, sizeof one);
    (void)done; /* full: it is readable */
}

static void drain(struct wfi_cq *cq)
{
    uint64_t n;
    ssize_t done = read(cq->event_fd, &n, sizeof n);
    (void)done; /* nothing: another thread has read it */
}

static size_t ready(struct wfi_cq *cq)
{
    size_t n;
    wfi_lock(&cq->lock);
    n = cq->tail - cq->head + (cq->errors ? SIZE_MAX / 2 : 0);
    wfi_unlock(&cq->lock);
    return n;
}

int wfi_cq_trywait(struct wfi_cq *cq)
{
    if (!sleeps(cq))
        return -FI_EINVAL;
    if (ready(cq))
        return -FI_EAGAIN;
    drain(cq);
    wfi_cq_progress(cq);
    /* From the first use of the descriptor on, every completion makes it readable. */
    if (!atomic_load(&cq->sleepers))
        atomic_fetch_add(&cq->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    return ready(cq) || atomic_load(&cq->signals) || !wfi_eps_arm(&cq->eps) || ready(cq)
               ? -FI_EAGAIN
               : 0;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Take one call of fi_cq_signal. */
static bool signal_take(struct wfi_cq *cq)
{
    unsigned n = atomic_load_explicit(&cq->signals, memory_order_relaxed);
    while (n && !atomic_compare_exchange_weak(&cq->signals, &n, n - 1))
        ;
    return n > 0;
}

/* Sleep until an event, or until [end] (negative: no limit). */
static void cq_sleep(struct wfi_cq *cq, int64_t end, size_t least)
{
    struct pollfd p = {.fd = cq->epoll_fd, .events = POLLIN};
    int64_t left_ms = -1;
    atomic_fetch_add(&cq->sleepers, 1);
    if (ready(cq) < least && !atomic_load(&cq->signals) && wfi_eps_arm(&cq->eps)) {
        if (end >= 0)
            left_ms = (end - now_ns() + 999999) / 1000000;
        if (ready(cq) < least && (end < 0 || left_ms > 0))
            (void)poll(&p, 1, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    }
    atomic_fetch_sub(&cq->sleepers, 1);
    drain(cq);
}

ssize_t wfi_cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source,
                         const void *cond, int timeout)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    int64_t end = timeout < 0 ? -1 : now_ns() + timeout * INT64_C(1000000);
    size_t least = 1;
    if (cq->wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    if (cq->wait_cond == FI_CQ_COND_THRESHOLD && cond)
        least = *(const size_t *)cond;
    for (unsigned spins = 0;; spins++) {
        if (ready(cq) >= least && ready(cq))
            return wfi_cq_readfrom(fid, buf, count, source);
        if (signal_take(cq))
            return -FI_EAGAIN;
        wfi_cq_progress(cq);
        if (ready(cq) >= least)
            continue;
        if (end >= 0 && now_ns() >= end)
            return wfi_cq_readfrom(fid, buf, count, source);
        if (spins < SPINS)
            continue;
        if (sleeps(cq))
            cq_sleep(cq, end, least);
        else
            sched_yield();
    }
}

ssize_t wfi_cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
    return wfi_cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

int wfi_cq_signal(struct fid_cq *fid)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    if (cq->wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    atomic_fetch_add(&cq->signals, 1);
    if (cq->event_fd >= 0)
        wfi_cq_wake(cq);
    return 0;
}
