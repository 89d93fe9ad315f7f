/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for completions. With manual progress the waiting thread polls the endpoints of the
 * queue, and sleeps on an epoll descriptor that has the descriptors of these endpoints and on an
 * eventfd. The eventfd is written by fi_cq_signal, and by another thread that completes an
 * operation. Weft never reports an endpoint's events twice, so each endpoint is armed before each
 * sleep. A poll by another thread disarms the endpoint: that thread arms it again.
 *
 * The program's descriptor (FI_WAIT_FD) has the same epoll descriptor, but an eventfd of its own:
 * fi_cq_sread clears the one, fi_trywait the other, so neither takes an event of the other's. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "binding.h"

/* How often a wait reads before it sleeps: some 20 us of polls of one endpoint. */
#define SPINS 2000
/* A pause while an endpoint that cannot be armed has nothing to report. */
#define PAUSE_NS 100000
/* A pause of a thread for which too few entries are there, and which shares the queue. */
#define SHARED_MS 1

static bool sleeps(const struct wfi_cq *cq)
{
    return cq->wait_obj == FI_WAIT_UNSPEC || cq->wait_obj == FI_WAIT_FD;
}

int wfi_cq_wait_open(struct wfi_cq *cq)
{
    struct epoll_event e = {.events = EPOLLIN};
    cq->epoll_fd = cq->event_fd = cq->wait_fd = cq->wait_event = -1;
    if (!sleeps(cq))
        return 0;
    cq->epoll_fd = wfi_fd_high(epoll_create1(EPOLL_CLOEXEC));
    cq->event_fd = wfi_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (cq->wait_obj == FI_WAIT_FD) {
        cq->wait_fd = wfi_fd_high(epoll_create1(EPOLL_CLOEXEC));
        cq->wait_event = wfi_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    if (cq->epoll_fd < 0 || cq->event_fd < 0 ||
        (cq->wait_obj == FI_WAIT_FD &&
         (cq->wait_fd < 0 || cq->wait_event < 0 ||
          epoll_ctl(cq->wait_fd, EPOLL_CTL_ADD, cq->epoll_fd, &e) ||
          epoll_ctl(cq->wait_fd, EPOLL_CTL_ADD, cq->wait_event, &e)))) {
        int rc = errno == ENOMEM ? -FI_ENOMEM : -FI_EMFILE;
        wfi_cq_wait_close(cq);
        return rc;
    }
    cq->wakes = cq->lock.on || cq->wait_obj == FI_WAIT_FD;
    return 0;
}

void wfi_cq_wait_close(struct wfi_cq *cq)
{
    const int fds[] = {cq->wait_fd, cq->wait_event, cq->epoll_fd, cq->event_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (atomic_exchange(&cq->fd_waits, false))
        atomic_fetch_sub(&cq->domain->waiters, 1);
}

int wfi_cq_wait_add(struct wfi_cq *cq, struct wfi_ep *ep)
{
    struct epoll_event e = {.events = EPOLLIN};
    int fd = cq->epoll_fd < 0 ? -1 : weft_ep_fd(ep->wep);
    if (cq->epoll_fd < 0)
        return 0;
    if (fd < 0)
        return -wfi_errno((enum weft_status)fd);
    if (epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST)
        return -FI_ENOMEM;
    if (cq->wakes)
        wfi_cq_wake(cq); /* threads that sleep arm [ep], too */
    return 0;
}

void wfi_cq_wait_remove(struct wfi_cq *cq, struct wfi_ep *ep)
{
    if (cq->epoll_fd >= 0)
        (void)epoll_ctl(cq->epoll_fd, EPOLL_CTL_DEL, weft_ep_fd(ep->wep), NULL);
}

static void raise_event(int fd)
{
    const uint64_t one = 1;
    ssize_t done = write(fd, &one, sizeof one);
    (void)done; /* full: it is readable */
}

static void clear_event(int fd)
{
    uint64_t n;
    ssize_t done = read(fd, &n, sizeof n);
    (void)done; /* nothing: another thread has read it */
}

void wfi_cq_wake(struct wfi_cq *cq)
{
    /* "cq sleepers": a thread that is about to sleep counts itself, then looks at the queue.
     * Without a lock there is no other thread. */
    if (cq->lock.on)
        atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&cq->sleepers, memory_order_relaxed))
        raise_event(cq->event_fd);
    /* The program's descriptor stays readable until the next fi_trywait. */
    if (atomic_load_explicit(&cq->fd_waits, memory_order_relaxed) &&
        atomic_exchange(&cq->fd_waits, false)) {
        atomic_fetch_sub(&cq->domain->waiters, 1);
        raise_event(cq->wait_event);
    }
}

void wfi_ep_rearm(struct wfi_ep *ep)
{
    struct wfi_cq *tx = __atomic_load_n(&ep->tx_cq, __ATOMIC_RELAXED);
    struct wfi_cq *rx = __atomic_load_n(&ep->rx_cq, __ATOMIC_RELAXED);
    if (weft_ep_arm(ep->wep) == WEFT_OK)
        return;
    if (tx && tx->wakes)
        wfi_cq_wake(tx);
    if (rx && rx != tx && rx->wakes)
        wfi_cq_wake(rx);
}

static size_t ready(struct wfi_cq *cq)
{
    size_t n;
    wfi_lock(&cq->lock);
    n = (size_t)(cq->tail - cq->head) + (cq->errors ? SIZE_MAX / 2 : 0);
    wfi_unlock(&cq->lock);
    return n;
}

/* Take one call of fi_cq_signal. */
static bool signal_take(struct wfi_cq *cq)
{
    unsigned n = atomic_load_explicit(&cq->signals, memory_order_relaxed);
    while (n && !atomic_compare_exchange_weak(&cq->signals, &n, n - 1))
        ;
    return n > 0;
}

int wfi_cq_trywait(struct wfi_cq *cq)
{
    enum weft_status s = WEFT_AGAIN;
    if (cq->wait_obj != FI_WAIT_FD)
        return -FI_EINVAL;
    if (wfi_is_parents(cq->lock.forks)) /* and would take the parent's event */
        return -FI_EOPBADSTATE;
    if (ready(cq) || signal_take(cq))
        return -FI_EAGAIN;
    (void)wfi_cq_progress(cq);
    clear_event(cq->wait_event);
    if (!atomic_exchange(&cq->fd_waits, true))
        atomic_fetch_add(&cq->domain->waiters, 1);
    atomic_thread_fence(memory_order_seq_cst); /* "cq sleepers" */
    if (!ready(cq) && !signal_take(cq) && (s = wfi_eps_arm(&cq->eps)) == WEFT_OK && !ready(cq))
        return 0;
    wfi_cq_wake(cq); /* another thread may sleep on the descriptor */
    return s < 0 ? -wfi_errno(s) : -FI_EAGAIN;
}

/* Sleep until an event, for at most [ns] nanoseconds (negative: no limit). Returns false if a
 * signal ended the sleep. */
static bool sleep_ns(struct wfi_cq *cq, int64_t ns)
{
    struct pollfd p[] = {{.fd = cq->event_fd, .events = POLLIN},
                         {.fd = cq->epoll_fd, .events = POLLIN}};
    const struct timespec t = {ns / 1000000000, ns % 1000000000};
    return ppoll(p, 2, ns < 0 ? NULL : &t, NULL) >= 0 || errno != EINTR;
}

/* A thread that waits clears the event that is meant for all that wait. So it raises the event
 * again for the others if it leaves something to them. */
static void pass_on(struct wfi_cq *cq)
{
    if (sleeps(cq) && atomic_load(&cq->sleepers) && (ready(cq) || atomic_load(&cq->signals)))
        raise_event(cq->event_fd);
}

/* A wait of fi_cq_sread. */
struct wait {
    int64_t end; /* negative: no limit */
    size_t least;
    unsigned failed;  /* sleeps in a row that found an endpoint which cannot be armed */
    bool interrupted; /* by a signal's handler */
};

/* Sleep until an event, or until the end. Returns OK, AGAIN, or a failure of an endpoint. */
static enum weft_status cq_sleep(struct wfi_cq *cq, struct wait *w)
{
    int64_t left = w->end < 0 ? -1 : w->end - wfi_now_ns();
    bool shared = atomic_fetch_add(&cq->sleepers, 1) > 0;
    enum weft_status s = WEFT_OK;
    size_t n;
    atomic_fetch_add(&cq->domain->waiters, 1);
    clear_event(cq->event_fd);
    n = ready(cq);
    if (n < w->least && !atomic_load(&cq->signals) && (w->end < 0 || left > 0)) {
        if (n && shared) {
            /* Others may wait for less: the event is theirs. */
            raise_event(cq->event_fd);
            (void)poll(NULL, 0, SHARED_MS);
        } else if ((s = wfi_eps_arm(&cq->eps)) == WEFT_OK) {
            w->failed = 0;
            if (ready(cq) < w->least)
                w->interrupted = !sleep_ns(cq, left);
        } else if (s == WEFT_AGAIN && ++w->failed > SPINS) {
            /* A deferred call waits for a peer: nothing announces its end. */
            w->interrupted = !sleep_ns(cq, left < 0 || left > PAUSE_NS ? PAUSE_NS : left);
        }
    }
    atomic_fetch_sub(&cq->domain->waiters, 1);
    atomic_fetch_sub(&cq->sleepers, 1);
    return s;
}

/* Returns the number of entries for which a wait with [cond] waits. */
static size_t least_of(const struct wfi_cq *cq, const void *cond)
{
    size_t least = cq->wait_cond == FI_CQ_COND_THRESHOLD ? (uintptr_t)cond : 1;
    return least < 1 ? 1 : least > SIZE_MAX / 4 ? SIZE_MAX / 4 : least;
}

ssize_t wfi_cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source,
                         const void *cond, int timeout)
{
    struct wfi_cq *cq = wfi_cq_of(&fid->fid);
    struct wait w = {.end = timeout < 0 ? -1 : wfi_now_ns() + timeout * INT64_C(1000000),
                     .least = least_of(cq, cond)};
    enum weft_status s = WEFT_OK;
    ssize_t n = -FI_EAGAIN;
    if (cq->wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    if (wfi_is_parents(cq->lock.forks))
        return -FI_EOPBADSTATE;
    for (unsigned spins = 0;; spins += spins < SPINS) {
        bool over = false;
        if (ready(cq) < w.least) {
            if (signal_take(cq))
                break;
            s = wfi_cq_progress(cq);
            over = w.end >= 0 && wfi_now_ns() >= w.end;
        }
        if (over || ready(cq) >= w.least) {
            n = wfi_cq_readfrom(fid, buf, count, source);
            /* Nothing: another thread was faster. */
            if (n != -FI_EAGAIN || over || !count)
                break;
        }
        if (s == WEFT_OK && spins < SPINS)
            continue;
        if (s == WEFT_OK && sleeps(cq))
            s = cq_sleep(cq, &w);
        else
            sched_yield();
        if (WEFT_UNLIKELY(w.interrupted) && ready(cq) < w.least) {
            n = -FI_EINTR;
            break;
        }
        if (WEFT_UNLIKELY(s < 0)) { /* as after fork */
            n = -wfi_errno(s);
            break;
        }
    }
    pass_on(cq);
    return n;
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
    if (wfi_is_parents(cq->lock.forks))
        return -FI_EOPBADSTATE;
    atomic_fetch_add(&cq->signals, 1);
    if (cq->event_fd >= 0)
        wfi_cq_wake(cq);
    return 0;
}
