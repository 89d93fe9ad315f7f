/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoints that a completion queue or a counter polls. */
#include <stdlib.h>

#include "binding.h"

void wfi_eps_init(struct wfi_eps *eps, bool on)
{
    pthread_rwlock_init(&eps->lock, NULL);
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

bool wfi_eps_arm(struct wfi_eps *eps)
{
    bool armed = true;
    share(eps);
    for (size_t i = 0; i < eps->n && armed; i++)
        armed = weft_ep_arm(eps->all[i]->wep) != WEFT_AGAIN;
    release(eps);
    return armed;
}
