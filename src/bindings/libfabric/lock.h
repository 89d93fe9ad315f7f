/* SPDX-License-Identifier: BSD-3-Clause */
/* The provider's locks; binding.h has their order. Both kinds do nothing where the program
 * serialises its calls.
 *
 * In a forked child, a thread of its parent's may hold a lock for ever. So a child takes no mutex
 * of its parent's, and does not wait for a brief lock: the other thread does not run there, and
 * Weft refuses the call that follows. Calls that would read more than single words of what the lock
 * guards return an error before (wfi_is_parents). */
#ifndef WFI_LOCK_H
#define WFI_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/weft.h>

#include "fork.h"

struct wfi_lock {
    pthread_mutex_t mutex;
    bool on;
    unsigned forks; /* wfi_forks when it was made */
};

/* For sections of a few instructions: costs less than a mutex. A thread that waits spins, then
 * yields. */
struct wfi_brief {
    bool taken;
    bool on;
    unsigned forks;
};

static inline void wfi_lock_init(struct wfi_lock *l, bool on)
{
    pthread_mutex_init(&l->mutex, NULL);
    l->on = on;
    l->forks = wfi_forks();
}

static inline void wfi_brief_init(struct wfi_brief *l, bool on)
{
    *l = (struct wfi_brief){.on = on, .forks = wfi_forks()};
}

static inline void wfi_lock_fini(struct wfi_lock *l)
{
    pthread_mutex_destroy(&l->mutex);
}

static inline void wfi_mutex_lock(struct wfi_lock *l)
{
    if (l->on && !wfi_is_parents(l->forks))
        pthread_mutex_lock(&l->mutex);
}

static inline void wfi_mutex_unlock(struct wfi_lock *l)
{
    if (l->on && !wfi_is_parents(l->forks))
        pthread_mutex_unlock(&l->mutex);
}

static inline bool wfi_brief_try(struct wfi_brief *l)
{
    return !__atomic_exchange_n(&l->taken, true, __ATOMIC_ACQUIRE); /* "brief" */
}

/* Wait until [l] is taken, but not for a thread of the parent's. */
void wfi_brief_wait(struct wfi_brief *l);

static inline void wfi_brief_lock(struct wfi_brief *l)
{
    if (l->on && WEFT_UNLIKELY(!wfi_brief_try(l)))
        wfi_brief_wait(l);
}

static inline void wfi_brief_unlock(struct wfi_brief *l)
{
    if (l->on)
        __atomic_store_n(&l->taken, false, __ATOMIC_RELEASE); /* "brief" */
}

#define wfi_lock(l)                                                                                \
    _Generic((l), struct wfi_lock * : wfi_mutex_lock, struct wfi_brief * : wfi_brief_lock)(l)
#define wfi_unlock(l)                                                                              \
    _Generic((l), struct wfi_lock * : wfi_mutex_unlock, struct wfi_brief * : wfi_brief_unlock)(l)

#endif
