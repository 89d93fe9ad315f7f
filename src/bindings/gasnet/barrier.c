/* SPDX-License-Identifier: BSD-3-Clause */
/* The split-phase barrier, on top of the job's (weft/job.h).
 *
 * Since GASNet 1.20 the flags of notify and wait may differ: a wait succeeds if one of the two gave
 * no name, or both gave the same. (The specification, 1.8, demands MISMATCH there; GASNet's own
 * conduits have not done that since.) */
#include <sched.h>
#include <time.h>

#include "binding.h"
#include "trace.h"

#define NAP_NS 50000
#define FLAGS (GASNET_BARRIERFLAG_UNNAMED | GASNET_BARRIERFLAG_MISMATCH | GASNET_BARRIERFLAG_IMAGES)

/* One thread may notify and another one wait, one after the other. */
static struct {
    _Atomic bool notified;
    uint32_t name;
    unsigned flags;
    bool named; /* the last barrier that ended had a name: agreed */
    uint32_t agreed;
    _Atomic bool trying;  /* a thread is in weft_job_barrier_try */
    _Atomic bool awaited; /* a thread waits, and tries all the time */
    _Atomic int status;   /* WEFT_AGAIN until it has ended */
} barrier;

static void check(const char *what, int flags, bool notified)
{
    if (WEFT_UNLIKELY(!gasnetw_binding.attached || gasnetw_thread_.in_handler))
        gasnetw_check(gasnetw_job.mynode, what);
    if (WEFT_UNLIKELY(flags & ~FLAGS))
        gasnetw_fatal("%s: flags 0x%x are none of GASNET_BARRIERFLAG_*", what, (unsigned)flags);
    if (WEFT_UNLIKELY(atomic_load_explicit(&barrier.notified, memory_order_acquire) != notified))
        gasnetw_fatal(notified ? "%s without gasnet_barrier_notify before it"
                               : "%s after gasnet_barrier_notify: wait for that barrier first",
                      what);
}

static unsigned weft_flags(int flags)
{
    return (flags & GASNET_BARRIERFLAG_MISMATCH)    ? WEFT_BARRIER_MISMATCH
           : (flags & GASNET_BARRIERFLAG_ANONYMOUS) ? WEFT_BARRIER_ANONYMOUS
                                                    : 0;
}

static void notify(int id, int flags)
{
    enum weft_status s;
    barrier.name = (uint32_t)id;
    barrier.flags = weft_flags(flags);
    gasnetw_trace_barrier("notify", id, flags);
    atomic_store_explicit(&barrier.status, WEFT_AGAIN, memory_order_relaxed);
    s = weft_job_barrier_notify(gasnetw_binding.job, barrier.name, barrier.flags);
    if (WEFT_UNLIKELY(s != WEFT_OK))
        gasnetw_fatal("gasnet_barrier_notify: %s", weft_status_text(s));
    atomic_store_explicit(&barrier.notified, true, memory_order_release);
}

/* The barrier has ended with [s]. Returns the caller's result. */
static int conclude(enum weft_status s, int id, int flags)
{
    barrier.named = weft_job_barrier_name(gasnetw_binding.job, &barrier.agreed) == WEFT_OK;
    if (s != WEFT_OK && s != WEFT_EMISMATCH)
        gasnetw_fatal("gasnet_barrier_wait: %s", weft_status_text(s));
    atomic_store_explicit(&barrier.notified, false, memory_order_release);
    gasnetw_trace_barrier("end", id, flags);
    if (s || (flags & GASNET_BARRIERFLAG_MISMATCH) ||
        (!(flags & GASNET_BARRIERFLAG_ANONYMOUS) && barrier.named &&
         barrier.agreed != (uint32_t)id))
        return GASNET_ERR_BARRIER_MISMATCH;
    return GASNET_OK;
}

/* One thread at a time, as the job's collective calls demand. */
static enum weft_status try_once(void)
{
    int status = atomic_load_explicit(&barrier.status, memory_order_acquire);
    if (status != WEFT_AGAIN ||
        atomic_exchange_explicit(&barrier.trying, true, memory_order_acquire))
        return (enum weft_status)status;
    status = atomic_load_explicit(&barrier.status, memory_order_relaxed);
    if (status == WEFT_AGAIN) {
        status = weft_job_barrier_try(gasnetw_binding.job, barrier.name, barrier.flags);
        atomic_store_explicit(&barrier.status, status, memory_order_release);
    }
    atomic_store_explicit(&barrier.trying, false, memory_order_release);
    return (enum weft_status)status;
}

/* In a job on several machines the lowest rank of each forwards the votes of its machine, in its
 * own tries (job.h). So a rank that has notified tries while it waits for something else. */
void gasnetw_barrier_pass_on(void)
{
    if (atomic_load_explicit(&barrier.notified, memory_order_acquire) &&
        !atomic_load_explicit(&barrier.awaited, memory_order_relaxed))
        (void)try_once();
}

/* Arrivals are not always messages. So a wait tries again and again: spinning for a while, then
 * yielding, at last between naps. */
#define SPIN_NS 20000
#define TRIES_PER_CLOCK 16
#define YIELDS 500

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Is it time to yield, after [tries] in vain? */
static bool spun_enough(unsigned tries, uint64_t *until_ns)
{
    if (gasnetw_binding.crowded)
        return true;
    if (tries % TRIES_PER_CLOCK || !tries)
        return false;
    if (!*until_ns)
        *until_ns = now_ns() + SPIN_NS;
    return now_ns() > *until_ns;
}

static int wait(int id, int flags)
{
    enum weft_status s;
    uint64_t until_ns = 0;
    unsigned yields = 0;
    atomic_store_explicit(&barrier.awaited, true, memory_order_relaxed);
    for (unsigned tries = 0; (s = try_once()) == WEFT_AGAIN; tries++) {
        if (gasnetw_after_poll() || (!yields && !spun_enough(tries, &until_ns)))
            continue;
        /* A try polls, too, but does not report events. */
        if (gasnetw_turn() > 0 ||
            (yields >= YIELDS && weft_ep_wait(gasnetw_binding.ep, NAP_NS) > 0))
            yields = 0;
        else if (yields++ < YIELDS)
            sched_yield();
    }
    atomic_store_explicit(&barrier.awaited, false, memory_order_relaxed);
    return conclude(s, id, flags);
}

void gasnet_barrier_notify(int id, int flags)
{
    check("gasnet_barrier_notify", flags, false);
    notify(id, flags);
}

int gasnet_barrier_wait(int id, int flags)
{
    check("gasnet_barrier_wait", flags, true);
    return wait(id, flags);
}

int gasnet_barrier_try(int id, int flags)
{
    enum weft_status s;
    check("gasnet_barrier_try", flags, true);
    s = try_once();
    if (s != WEFT_AGAIN)
        return conclude(s, id, flags);
    (void)gasnetw_turn();
    return GASNET_ERR_NOT_READY;
}

int gasnet_barrier(int id, int flags)
{
    check("gasnet_barrier", flags, false);
    notify(id, flags);
    return wait(id, flags);
}

int gasnet_barrier_result(int *id)
{
    check("gasnet_barrier_result", 0, false);
    if (barrier.named && id)
        *id = (int)barrier.agreed;
    return !barrier.named;
}
