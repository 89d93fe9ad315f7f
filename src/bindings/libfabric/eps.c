/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoints that a completion queue or a counter polls. */
#include <sched.h>
#include <stdlib.h>

#include "binding.h"

/* Threads that poll all the time would keep out a writer. No poll takes the lock twice. */
void wfi_eps_init(struct wfi_eps *eps, bool on)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&eps->lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    eps->on = on;
}

void wfi_eps_fini(struct wfi_eps *eps)
{
    pthread_rwlock_destroy(&eps->lock);
    free(eps->all);
}

static void share(struct wfi_eps *eps)
{
    if (eps->on)
        pthread_rwlock_rdlock(&eps->lock);
}

static void own(struct wfi_eps *eps)
{
    if (eps->on)
        pthread_rwlock_wrlock(&eps->lock);
}

static void release(struct wfi_eps *eps)
{
    if (eps->on)
        pthread_rwlock_unlock(&eps->lock);
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
    release(eps);
    return there || all ? 0 : -FI_ENOMEM;
}

void wfi_eps_remove(struct wfi_eps *eps, struct wfi_ep *ep)
{
    size_t i;
    own(eps);
    i = find(eps, ep);
    if (i < eps->n)
        eps->all[i] = eps->all[--eps->n];
    release(eps);
}

void wfi_eps_poll(struct wfi_eps *eps)
{
    share(eps);
    for (size_t i = 0; i < eps->n; i++)
        wfi_ep_progress(eps->all[i]);
    release(eps);
}

enum weft_status wfi_eps_wait(struct wfi_eps *eps, struct weft_counter *counter, uint64_t at_least,
                              int64_t ns)
{
    enum weft_status s = WEFT_ETIMEDOUT;
    bool several;
    share(eps);
    several = eps->n > 1;
    if (!several)
        s = weft_counter_wait(counter, eps->n ? eps->all[0]->wep : NULL, at_least, ns);
    /* Also after a wait at one: this arms the endpoint again for threads that sleep at a queue. */
    for (size_t i = 0; i < eps->n && (several || eps->on); i++)
        wfi_ep_progress(eps->all[i]);
    release(eps);
    if (several)
        sched_yield();
    return s;
}

bool wfi_eps_arm(struct wfi_eps *eps)
{
    bool armed = true;
    share(eps);
    for (size_t i = 0; i < eps->n && armed; i++)
        armed = weft_ep_arm(eps->all[i]->wep) != WEFT_AGAIN;
    release(eps);
    return armed;
}
