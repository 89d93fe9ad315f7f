/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoints that a completion queue or a counter polls. */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>

#include "binding.h"

#define SPINS 100

/* What a thread that changes the list adds to wfi_eps.state. There are fewer threads than that. */
#define CHANGE (INT_MIN / 2)

void wfi_brief_wait(struct wfi_brief *l)
{
    for (unsigned i = 0; !wfi_brief_try(l) && !wfi_is_parents(l->forks); i++)
        if (i > SPINS)
            sched_yield();
}

void wfi_eps_init(struct wfi_eps *eps, bool on)
{
    pthread_mutex_init(&eps->changing, NULL);
    eps->on = on;
    eps->forks = wfi_forks();
}

void wfi_eps_fini(struct wfi_eps *eps)
{
    pthread_mutex_destroy(&eps->changing);
    free(eps->all);
}

/* A thread changes the list: wait for its end. Threads that poll all the time do not keep it out.
 */
__attribute__((noinline, cold)) static void share_slow(struct wfi_eps *eps)
{
    do {
        atomic_fetch_sub_explicit(&eps->state, 1, memory_order_relaxed);
        pthread_mutex_lock(&eps->changing);
        pthread_mutex_unlock(&eps->changing);
    } while (atomic_fetch_add_explicit(&eps->state, 1, memory_order_acquire) < 0);
}

static inline void share(struct wfi_eps *eps)
{
    if (eps->on &&
        WEFT_UNLIKELY(atomic_fetch_add_explicit(&eps->state, 1, memory_order_acquire) < 0))
        share_slow(eps); /* "eps changed" */
}

static inline void unshare(struct wfi_eps *eps)
{
    if (eps->on)
        atomic_fetch_sub_explicit(&eps->state, 1, memory_order_release); /* "eps polled" */
}

static bool has_others(const struct wfi_eps *eps)
{
    return eps->on && !wfi_is_parents(eps->forks);
}

/* A poll is short, and a wait is made in slices: cntr.c. */
static void own(struct wfi_eps *eps)
{
    if (!has_others(eps))
        return;
    pthread_mutex_lock(&eps->changing);
    atomic_fetch_add(&eps->state, CHANGE);
    while (atomic_load_explicit(&eps->state, memory_order_acquire) != CHANGE) /* "eps polled" */
        sched_yield();
}

static void disown(struct wfi_eps *eps)
{
    if (!has_others(eps))
        return;
    atomic_fetch_sub_explicit(&eps->state, CHANGE, memory_order_release); /* "eps changed" */
    pthread_mutex_unlock(&eps->changing);
}

static size_t find(const struct wfi_eps *eps, const struct wfi_ep *ep)
{
    size_t i = 0;
    while (i < eps->n && eps->all[i] != ep)
        i++;
    return i;
}

int wfi_eps_add(struct wfi_eps *eps, struct wfi_ep *ep)
{
    struct wfi_ep **all = NULL;
    bool there;
    own(eps);
    there = find(eps, ep) < eps->n;
    if (!there && (all = realloc(eps->all, (eps->n + 1) * sizeof(void *)))) {
        eps->all = all;
        eps->all[eps->n++] = ep;
    }
    disown(eps);
    return there || all ? 0 : -FI_ENOMEM;
}

void wfi_eps_remove(struct wfi_eps *eps, struct wfi_ep *ep)
{
    size_t i;
    own(eps);
    i = find(eps, ep);
    if (i < eps->n)
        eps->all[i] = eps->all[--eps->n];
    disown(eps);
}

/* Under share. */
static enum weft_status poll_all(struct wfi_eps *eps)
{
    enum weft_status all = WEFT_OK;
    for (size_t i = 0; i < eps->n; i++) {
        enum weft_status s = wfi_ep_progress(eps->all[i]);
        if (WEFT_UNLIKELY(s != WEFT_OK))
            all = s;
    }
    return all;
}

enum weft_status wfi_eps_poll(struct wfi_eps *eps)
{
    enum weft_status s;
    if (WEFT_UNLIKELY(wfi_is_parents(eps->forks)))
        return WEFT_EFORKED;
    share(eps);
    s = poll_all(eps);
    unshare(eps);
    return s;
}

enum weft_status wfi_eps_wait(struct wfi_eps *eps, struct weft_counter *counter, uint64_t at_least,
                              int64_t ns)
{
    enum weft_status s = WEFT_ETIMEDOUT, polled = WEFT_OK;
    bool several;
    if (wfi_is_parents(eps->forks))
        return WEFT_EFORKED;
    share(eps);
    several = eps->n > 1;
    if (!several)
        s = weft_counter_wait(counter, eps->n ? eps->all[0]->wep : NULL, at_least, ns);
    /* Also after a wait at one: this arms the endpoint again for threads that sleep at a queue. */
    if (several || eps->on || (eps->n && wfi_ep_is_awaited(eps->all[0])))
        polled = poll_all(eps);
    unshare(eps);
    if (several)
        sched_yield();
    return several && polled != WEFT_OK ? polled : s;
}

enum weft_status wfi_eps_arm(struct wfi_eps *eps)
{
    enum weft_status s = wfi_is_parents(eps->forks) ? WEFT_EFORKED : WEFT_OK;
    if (s != WEFT_OK)
        return s;
    share(eps);
    for (size_t i = 0; i < eps->n && s == WEFT_OK; i++)
        s = weft_ep_arm(eps->all[i]->wep);
    unshare(eps);
    return s;
}
