/* SPDX-License-Identifier: BSD-3-Clause */
/* pthread's locks, with checks for misuse. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

/* Does this thread hold the lock? Only this thread writes its own id to *owner, so equal ids prove
 * that it does. */
static bool mine(const uintptr_t *owner)
{
    return __atomic_load_n(owner, __ATOMIC_RELAXED) == self();
}

static void own(uintptr_t *owner, uintptr_t origin)
{
    __atomic_store_n(owner, origin, __ATOMIC_RELAXED);
}

static void check(const char *what, int err)
{
    if (err)
        gasnett_fatalerror_nopos("%s: %s", what, strerror(err));
}

static void refuse(bool wrong, const char *what, const char *why)
{
    if (wrong)
        gasnett_fatalerror_nopos("%s: %s", what, why);
}

static const char recursive[] = "this thread holds it already; these locks are not recursive";
static const char not_held[] = "this thread does not hold it";

/* ---- mutex ---- */

void gasnett_mutex_init(gasnett_mutex_t *m)
{
    own(&m->owner_, 0);
    check("gasnett_mutex_init", pthread_mutex_init(&m->lock_, NULL));
}

void gasnett_mutex_destroy(gasnett_mutex_t *m)
{
    refuse(__atomic_load_n(&m->owner_, __ATOMIC_RELAXED) != 0, "gasnett_mutex_destroy",
           "it is locked");
    check("gasnett_mutex_destroy", pthread_mutex_destroy(&m->lock_));
}

int gasnett_mutex_destroy_ignoreerr(gasnett_mutex_t *m)
{
    return pthread_mutex_destroy(&m->lock_);
}

void gasnett_mutex_lock(gasnett_mutex_t *m)
{
    refuse(mine(&m->owner_), "gasnett_mutex_lock", recursive);
    check("gasnett_mutex_lock", pthread_mutex_lock(&m->lock_));
    own(&m->owner_, self());
}

int gasnett_mutex_trylock(gasnett_mutex_t *m)
{
    int err;
    refuse(mine(&m->owner_), "gasnett_mutex_trylock", recursive);
    err = pthread_mutex_trylock(&m->lock_);
    if (err == EBUSY)
        return EBUSY;
    check("gasnett_mutex_trylock", err);
    own(&m->owner_, self());
    return 0;
}

void gasnett_mutex_unlock(gasnett_mutex_t *m)
{
    refuse(!mine(&m->owner_), "gasnett_mutex_unlock", not_held);
    own(&m->owner_, 0);
    check("gasnett_mutex_unlock", pthread_mutex_unlock(&m->lock_));
}

void gasnett_mutex_assertlocked(const gasnett_mutex_t *m)
{
    refuse(!mine(&m->owner_), "gasnett_mutex_assertlocked", not_held);
}

void gasnett_mutex_assertunlocked(const gasnett_mutex_t *m)
{
    refuse(mine(&m->owner_), "gasnett_mutex_assertunlocked", "this thread holds it");
}

/* ---- condition ---- */

void gasnett_cond_init(gasnett_cond_t *c)
{
    check("gasnett_cond_init", pthread_cond_init(&c->cond_, NULL));
}

void gasnett_cond_destroy(gasnett_cond_t *c)
{
    check("gasnett_cond_destroy", pthread_cond_destroy(&c->cond_));
}

void gasnett_cond_signal(gasnett_cond_t *c)
{
    check("gasnett_cond_signal", pthread_cond_signal(&c->cond_));
}

void gasnett_cond_broadcast(gasnett_cond_t *c)
{
    check("gasnett_cond_broadcast", pthread_cond_broadcast(&c->cond_));
}

void gasnett_cond_wait(gasnett_cond_t *c, gasnett_mutex_t *m)
{
    refuse(!mine(&m->owner_), "gasnett_cond_wait", "this thread does not hold the mutex");
    own(&m->owner_, 0);
    check("gasnett_cond_wait", pthread_cond_wait(&c->cond_, &m->lock_));
    own(&m->owner_, self());
}

/* ---- rwlock ---- */

void gasnett_rwlock_init(gasnett_rwlock_t *rw)
{
    own(&rw->writer_, 0);
    check("gasnett_rwlock_init", pthread_rwlock_init(&rw->lock_, NULL));
}

void gasnett_rwlock_destroy(gasnett_rwlock_t *rw)
{
    refuse(__atomic_load_n(&rw->writer_, __ATOMIC_RELAXED) != 0, "gasnett_rwlock_destroy",
           "it is locked");
    check("gasnett_rwlock_destroy", pthread_rwlock_destroy(&rw->lock_));
}

void gasnett_rwlock_rdlock(gasnett_rwlock_t *rw)
{
    int err;
    refuse(mine(&rw->writer_), "gasnett_rwlock_rdlock", recursive);
    while ((err = pthread_rwlock_rdlock(&rw->lock_)) == EAGAIN) /* too many readers */
        sched_yield();
    check("gasnett_rwlock_rdlock", err);
}

void gasnett_rwlock_wrlock(gasnett_rwlock_t *rw)
{
    refuse(mine(&rw->writer_), "gasnett_rwlock_wrlock", recursive);
    check("gasnett_rwlock_wrlock", pthread_rwlock_wrlock(&rw->lock_));
    own(&rw->writer_, self());
}

int gasnett_rwlock_tryrdlock(gasnett_rwlock_t *rw)
{
    int err;
    refuse(mine(&rw->writer_), "gasnett_rwlock_tryrdlock", recursive);
    err = pthread_rwlock_tryrdlock(&rw->lock_);
    if (err != EBUSY && err != EAGAIN)
        check("gasnett_rwlock_tryrdlock", err);
    return err;
}

int gasnett_rwlock_trywrlock(gasnett_rwlock_t *rw)
{
    int err;
    refuse(mine(&rw->writer_), "gasnett_rwlock_trywrlock", recursive);
    err = pthread_rwlock_trywrlock(&rw->lock_);
    if (err == EBUSY)
        return EBUSY;
    check("gasnett_rwlock_trywrlock", err);
    own(&rw->writer_, self());
    return 0;
}

void gasnett_rwlock_unlock(gasnett_rwlock_t *rw)
{
    uintptr_t writer = __atomic_load_n(&rw->writer_, __ATOMIC_RELAXED);
    refuse(writer != 0 && writer != self(), "gasnett_rwlock_unlock", not_held);
    own(&rw->writer_, 0);
    check("gasnett_rwlock_unlock", pthread_rwlock_unlock(&rw->lock_));
}

/* Is [rw] locked for reading? It is if this thread cannot lock it for writing, and no other thread
 * has. */
static bool is_read(gasnett_rwlock_t *rw)
{
    if (__atomic_load_n(&rw->writer_, __ATOMIC_RELAXED) != 0)
        return false;
    if (pthread_rwlock_trywrlock(&rw->lock_))
        return true;
    pthread_rwlock_unlock(&rw->lock_);
    return false;
}

void gasnett_rwlock_assertrdlocked(gasnett_rwlock_t *rw)
{
    refuse(!is_read(rw), "gasnett_rwlock_assertrdlocked", "nobody holds it for reading");
}

void gasnett_rwlock_assertwrlocked(gasnett_rwlock_t *rw)
{
    refuse(!mine(&rw->writer_), "gasnett_rwlock_assertwrlocked", not_held);
}

void gasnett_rwlock_assertlocked(gasnett_rwlock_t *rw)
{
    refuse(!mine(&rw->writer_) && !is_read(rw), "gasnett_rwlock_assertlocked", not_held);
}

void gasnett_rwlock_assertunlocked(gasnett_rwlock_t *rw)
{
    refuse(mine(&rw->writer_), "gasnett_rwlock_assertunlocked", "this thread holds it");
}
