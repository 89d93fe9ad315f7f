/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's split-phase barrier, made of the job's barrier in two steps (weft/job.h).
 *
 * Since GASNet 1.20 the flags of notify and wait may differ. A wait succeeds if notify or wait gave
 * no name, or if both gave the same name. (The specification, 1.8, demands MISMATCH if the flags
 * differ. GASNet's own conduits have not returned it since 1.20.) */
#include <sched.h>
#include <time.h>

#include "binding.h"
#include "trace.h"

#define NAP_NS 50000
#define FLAGS (GASNET_BARRIERFLAG_UNNAMED | GASNET_BARRIERFLAG_MISMATCH | GASNET_BARRIERFLAG_IMAGES)

/* The barrier under way. One thread may notify and another thread wait, but not at the same time.
 */
static struct {
    _Atomic bool notified;
    uint32_t name;
    unsigned flags;
    bool named; /* the last barrier that ended had the name [agreed] */
    uint32_t agreed;
    _Atomic bool trying;  /* a thread is in weft_job_barrier_try */
    _Atomic bool awaited; /* a thread in gasnet_barrier_wait tries repeatedly */
    _Atomic int status;   /* WEFT_AGAIN until it has ended */
} barrier;

static void check(const char *what, int flags, bool notified)
{
    if (WEFT_UNLIKELY(!gasnetw_binding.attached || gasnetw_in_handler()))
        gasnetw_check(gasnetw_job.mynode, what);
    if (WEFT_UNLIKELY(flags & ~FLAGS))
        gasnetw_fatal("%s: flags 0x%x are none of GASNET_BARRIERFLAG_*", what, (unsigned)flags);
    if (WEFT_UNLIKELY(atomic_load_explicit(&barrier.notified, memory_order_acquire) != notified))
        gasnetw_fatal(notified ? "%s without gasnet_barrier_notify before it"
                               : "%s after gasnet_barrier_notify: wait for that barrier first",
                      what);
}

/* DELIVER, since programs rely on it, as they can with GASNet. */
static unsigned weft_flags(int flags)
{
    if (flags & GASNET_BARRIERFLAG_MISMATCH)
        return WEFT_BARRIER_DELIVER | WEFT_BARRIER_MISMATCH;
    if (flags & GASNET_BARRIERFLAG_ANONYMOUS)
        return WEFT_BARRIER_DELIVER | WEFT_BARRIER_ANONYMOUS;
    return WEFT_BARRIER_DELIVER;
}

static void notify(int id, int flags)
{
    enum weft_status s;
    barrier.name = (uint32_t)id;
    barrier.flags = weft_flags(flags);
    gasnetw_trace_barrier("notify", id, flags);
    atomic_store_explicit(&barrier.status, WEFT_AGAIN, memory_order_relaxed);
    while ((s = weft_job_barrier_notify(gasnetw_binding.job, barrier.name, barrier.flags)) ==
           WEFT_AGAIN)
        if (!gasnetw_turn()) /* a thread of another process accepts, and needs a core */
            sched_yield();
    if (WEFT_UNLIKELY(s != WEFT_OK))
        gasnetw_fatal("gasnet_barrier_notify: %s", weft_status_text(s));
    atomic_store_explicit(&barrier.notified, true, memory_order_release);
}

#define LAST_POLLS 16 /* most polls at a barrier's end across a network */

/* Run handlers that gasnet_attach has kept. Across a network, handle the messages that have
 * arrived; nothing is promised. */
static void finish_handlers(void)
{
    gasnetw_after_poll();
    for (unsigned i = 0; gasnetw_binding.across && i < LAST_POLLS && gasnetw_turn() > 0; i++)
        ;
}

/* End the barrier, whose status is [s]. Returns the result of the caller's wait or try. */
static int conclude(enum weft_status s, int id, int flags)
{
    if (s == WEFT_OK && !(barrier.flags & WEFT_BARRIER_ANONYMOUS)) { /* then all agreed on it */
        barrier.named = true;
        barrier.agreed = barrier.name;
    } else {
        barrier.named = weft_job_barrier_name(gasnetw_binding.job, &barrier.agreed) == WEFT_OK;
    }
    if (s != WEFT_OK && s != WEFT_EMISMATCH)
        gasnetw_fatal("gasnet_barrier_wait: %s", weft_status_text(s));
    finish_handlers();
    atomic_store_explicit(&barrier.notified, false, memory_order_release);
    gasnetw_trace_barrier("end", id, flags);
    if (s || (flags & GASNET_BARRIERFLAG_MISMATCH) ||
        (!(flags & GASNET_BARRIERFLAG_ANONYMOUS) && barrier.named &&
         barrier.agreed != (uint32_t)id))
        return GASNET_ERR_BARRIER_MISMATCH;
    return GASNET_OK;
}

/* Try once to end the barrier. Only one thread at a time calls weft_job_barrier_try, as the job's
 * collective calls demand. Another thread returns the last status. */
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

/* Try to end a notified barrier while this thread waits for something else. In a job on several
 * machines the two lowest ranks of each machine forward the votes of their machine only in their
 * own tries (weft/job.h). Without these tries other ranks might wait for this rank. */
void gasnetw_barrier_pass_on(void)
{
    if (atomic_load_explicit(&barrier.notified, memory_order_acquire) &&
        !atomic_load_explicit(&barrier.awaited, memory_order_relaxed))
        (void)try_once();
}

/* A wait cannot sleep until a message comes, since ranks of one machine arrive without messages. So
 * it tries repeatedly: it spins for SPIN_NS, then yields YIELDS times, then sleeps for short times
 * between tries. */
#define SPIN_NS 20000
#define TRIES_PER_CLOCK 16
#define YIELDS 500

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Have [tries] tries without success lasted so long that the thread should yield? */
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
    unsigned yields = 0, tries = 0;
    atomic_store_explicit(&barrier.awaited, true, memory_order_relaxed);
    for (; (s = try_once()) == WEFT_AGAIN; tries++) {
        gasnetw_after_poll();
        if (!yields && !spun_enough(tries, &until_ns))
            continue;
        /* The try above polled, too, but it does not report whether there were events. */
        if (gasnetw_turn() > 0 ||
            (yields >= YIELDS && weft_ep_wait(gasnetw_binding.ep, NAP_NS) > 0))
            yields = 0;
        else if (yields++ < YIELDS)
            sched_yield();
    }
    atomic_store_explicit(&barrier.awaited, false, memory_order_relaxed);
    if (!tries) /* this rank came last, and has not polled: it does 1 time in 16 */
        gasnetw_spend(GASNETW_BUDGET / 16);
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
    gasnetw_ask();
    s = try_once();
    return s == WEFT_AGAIN ? GASNET_ERR_NOT_READY : conclude(s, id, flags);
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
