/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "core/event.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/handle.h"
#include "base/fork.h"
#include "mem/counter.h"

/* ---- counters ---- */

static enum weft_status counter_check(const struct weft_counter *c)
{
    if (!c)
        return WEFT_EINVAL;
    return wf_fork_gen_is(c->fork_gen) ? WEFT_OK : wf_fork_gen_error(c->fork_gen);
}

enum weft_status weft_counter_open(struct weft_counter **out)
{
    uint64_t fork_gen = wf_fork_gen_begin();
    struct weft_counter *c;
    pthread_condattr_t attr;
    if (!out)
        return WEFT_EINVAL;
    c = fork_gen ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return WEFT_ENOMEM;
    c->fork_gen = fork_gen;
    c->refs = 1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    *out = c;
    return WEFT_OK;
}

enum weft_status weft_counter_close(struct weft_counter *counter)
{
    enum weft_status status = counter_check(counter);
    if (status != WEFT_OK)
        return status;
    if (atomic_exchange(&counter->closed,
                        1)) /* the counter was closed before, but a region still refers to it */
        return wf_fork_gen_error(WF_FORK_GEN_CLOSED);
    wf_counter_put(counter);
    return WEFT_OK;
}

uint64_t weft_counter_read(const struct weft_counter *counter)
{
    return counter ? atomic_load_explicit(&counter->value, memory_order_acquire) : 0;
}

uint64_t weft_counter_read_errors(const struct weft_counter *counter)
{
    return counter ? atomic_load_explicit(&counter->errors, memory_order_acquire) : 0;
}

enum weft_status weft_counter_add(struct weft_counter *counter, uint64_t n)
{
    enum weft_status status = counter_check(counter);
    if (status == WEFT_OK)
        wf_counter_add(counter, n);
    return status;
}

enum weft_status weft_counter_add_errors(struct weft_counter *counter, uint64_t n)
{
    enum weft_status status = counter_check(counter);
    if (status != WEFT_OK)
        return status;
    atomic_fetch_add(&counter->errors, n);
    wf_counter_changed(counter);
    return WEFT_OK;
}

static enum weft_status counter_store(struct weft_counter *c, _Atomic uint64_t *word,
                                      uint64_t value)
{
    atomic_store(word, value);
    wf_counter_changed(c);
    return WEFT_OK;
}

enum weft_status weft_counter_set(struct weft_counter *counter, uint64_t value)
{
    enum weft_status status = counter_check(counter);
    return status == WEFT_OK ? counter_store(counter, &counter->value, value) : status;
}

enum weft_status weft_counter_set_errors(struct weft_counter *counter, uint64_t value)
{
    enum weft_status status = counter_check(counter);
    return status == WEFT_OK ? counter_store(counter, &counter->errors, value) : status;
}

/* Returns the status with which a wait for the counter ends, or PENDING if the wait goes on. */
static enum weft_status counter_state(const struct weft_counter *c, uint64_t at_least,
                                      uint64_t errors)
{
    if (atomic_load(&c->value) >= at_least)
        return WEFT_OK;
    return atomic_load(&c->errors) != errors ? WEFT_EAVAIL : WEFT_PENDING;
}

/* Returns the time at which a timeout ends, as CLOCK_MONOTONIC in ns, or UINT64_MAX if it never
 * ends. */
static uint64_t deadline_of(int64_t timeout_ns)
{
    uint64_t now = wf_now_ns(), ns = (uint64_t)timeout_ns;
    return timeout_ns < 0 || ns > UINT64_MAX / 2 - now ? UINT64_MAX : now + ns;
}

static enum weft_status counter_sleep(struct weft_counter *c, uint64_t at_least, uint64_t errors,
                                      uint64_t end)
{
    struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    enum weft_status status;
    int error = 0;
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add(&c->sleepers, 1); /* "counter sleepers" */
    while ((status = counter_state(c, at_least, errors)) == WEFT_PENDING && !error)
        error = end == UINT64_MAX ? pthread_cond_wait(&c->changed, &c->lock)
                                  : pthread_cond_timedwait(&c->changed, &c->lock, &until);
    atomic_fetch_sub(&c->sleepers, 1);
    pthread_mutex_unlock(&c->lock);
    return status == WEFT_PENDING ? WEFT_ETIMEDOUT : status;
}

static enum weft_status counter_poll(struct weft_counter *c, struct weft_ep *ep, uint64_t at_least,
                                     uint64_t errors, uint64_t end)
{
    for (;;) {
        uint64_t changes = atomic_load(&c->changes), now = wf_now_ns();
        enum weft_status status = counter_state(c, at_least, errors);
        int64_t left = end == UINT64_MAX ? -1 : now >= end ? 0 : (int64_t)(end - now);
        if (status != WEFT_PENDING)
            return status;
        status = weft_word_wait(ep, (const uint64_t *)(const void *)&c->changes, changes + 1, NULL,
                                left);
        if (status == WEFT_ETIMEDOUT) {
            status = counter_state(c, at_least, errors);
            return status == WEFT_PENDING ? WEFT_ETIMEDOUT : status;
        }
        if (status != WEFT_OK)
            return status;
    }
}

enum weft_status weft_counter_wait(struct weft_counter *counter, struct weft_ep *ep,
                                   uint64_t at_least, int64_t timeout_ns)
{
    enum weft_status status = counter_check(counter);
    uint64_t errors, end;
    if (status != WEFT_OK)
        return status;
    errors = atomic_load(&counter->errors);
    end = deadline_of(timeout_ns);
    return ep ? counter_poll(counter, ep, at_least, errors, end)
              : counter_sleep(counter, at_least, errors, end);
}

/* ---- event queues ---- */

WF_LOCK_CLASS(wf_eq_lock_class); /* struct weft_eq.lock */

struct weft_eq {
    uint64_t fork_gen; /* constant */
    int fd;            /* constant; an eventfd, which is readable while [events] is not empty */
    pthread_mutex_t lock;
    struct wf_list events WF_UNDER(wf_eq_lock_class);
    unsigned users WF_UNDER(wf_eq_lock_class); /* number of contexts that use the queue */
};

static inline WF_ACQUIRES(wf_eq_lock_class) void eq_lock(struct weft_eq *eq)
{
    pthread_mutex_lock(&eq->lock);
}

static inline WF_RELEASES(wf_eq_lock_class) void eq_unlock(struct weft_eq *eq)
{
    pthread_mutex_unlock(&eq->lock);
}

static enum weft_status eq_check(const struct weft_eq *eq)
{
    if (!eq)
        return WEFT_EINVAL;
    return wf_fork_gen_is(eq->fork_gen) ? WEFT_OK : wf_fork_gen_error(eq->fork_gen);
}

enum weft_status weft_eq_open(struct weft_eq **out)
{
    uint64_t fork_gen = wf_fork_gen_begin();
    struct weft_eq *eq;
    if (!out)
        return WEFT_EINVAL;
    eq = fork_gen ? calloc(1, sizeof *eq) : NULL;
    if (!eq)
        return WEFT_ENOMEM;
    eq->fork_gen = fork_gen;
    eq->fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (eq->fd < 0) {
        wf_error("cannot open an event queue: %m (raise the limit on open files, ulimit -n)");
        free(eq);
        return WEFT_ESYSTEM;
    }
    wf_list_init(&eq->events);
    pthread_mutex_init(&eq->lock, NULL);
    *out = eq;
    return WEFT_OK;
}

enum weft_status weft_eq_close(struct weft_eq *eq)
{
    enum weft_status status = eq_check(eq);
    bool busy;
    if (status != WEFT_OK)
        return status;
    eq_lock(eq);
    busy = eq->users;
    eq_unlock(eq);
    if (busy)
        return WEFT_EBUSY;
    wf_list_each_safe(it, nx, &eq->events) free(wf_container_of(it, struct wf_event, item));
    close(eq->fd);
    pthread_mutex_destroy(&eq->lock);
    if (wf_handle_free(eq))
        eq->fork_gen = WF_FORK_GEN_CLOSED;
    return WEFT_OK;
}

enum weft_status wf_eq_use(struct weft_eq *eq)
{
    enum weft_status status = eq_check(eq);
    if (status != WEFT_OK)
        return status;
    eq_lock(eq);
    eq->users++;
    eq_unlock(eq);
    return WEFT_OK;
}

void wf_eq_unuse(struct weft_eq *eq)
{
    eq_lock(eq);
    eq->users--;
    eq_unlock(eq);
}

void wf_eq_post(struct weft_eq *eq, struct wf_event *event)
{
    uint64_t one = 1;
    eq_lock(eq);
    if (wf_list_empty(&eq->events) && write(eq->fd, &one, sizeof one) < 0)
        wf_error("cannot announce an event: %m");
    wf_list_append(&eq->events, &event->item);
    eq_unlock(eq);
}

static enum weft_status eq_take(struct weft_eq *eq, struct weft_event *out)
{
    struct wf_event *e = NULL;
    struct wf_list *it;
    uint64_t n;
    eq_lock(eq);
    if ((it = wf_list_pop(&eq->events))) {
        e = wf_container_of(it, struct wf_event, item);
        if (wf_list_empty(&eq->events) && read(eq->fd, &n, sizeof n) < 0)
            wf_error("an event queue's descriptor: %m");
    }
    eq_unlock(eq);
    if (!e)
        return WEFT_AGAIN;
    *out = e->event;
    free(e);
    return WEFT_OK;
}

enum weft_status weft_eq_read(struct weft_eq *eq, struct weft_event *event)
{
    enum weft_status status = event ? eq_check(eq) : WEFT_EINVAL;
    return status == WEFT_OK ? eq_take(eq, event) : status;
}

enum weft_status weft_eq_wait(struct weft_eq *eq, struct weft_event *event, int64_t timeout_ns)
{
    enum weft_status status = event ? eq_check(eq) : WEFT_EINVAL;
    uint64_t end;
    if (status != WEFT_OK)
        return status;
    end = deadline_of(timeout_ns);
    while ((status = eq_take(eq, event)) == WEFT_AGAIN) {
        struct pollfd p = {.fd = eq->fd, .events = POLLIN};
        uint64_t now = wf_now_ns(), left = end > now ? end - now : 0;
        struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        if (!left)
            return WEFT_ETIMEDOUT;
        if (ppoll(&p, 1, end == UINT64_MAX ? NULL : &t, NULL) < 0 && errno != EINTR) {
            wf_error("cannot wait for an event: %m");
            return WEFT_ESYSTEM;
        }
    }
    return status;
}

enum weft_status weft_eq_write(struct weft_eq *eq, const struct weft_event *event)
{
    enum weft_status status = event ? eq_check(eq) : WEFT_EINVAL;
    struct wf_event *e;
    if (status != WEFT_OK)
        return status;
    if (event->type < WEFT_EVENT_USER)
        return WEFT_EINVAL;
    for (size_t i = 0; i < WF_ARRAY_LEN(event->reserved); i++)
        if (event->reserved[i])
            return WEFT_EINVAL;
    e = malloc(sizeof *e);
    if (!e)
        return WEFT_ENOMEM;
    e->event = *event;
    wf_eq_post(eq, e);
    return WEFT_OK;
}

int weft_eq_fd(const struct weft_eq *eq)
{
    enum weft_status status = eq_check(eq);
    return status == WEFT_OK ? eq->fd : status;
}
