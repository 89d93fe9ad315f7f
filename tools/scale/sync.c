/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sync.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rand.h"

void wf_sync_virtual(struct wf_sync *out, const struct wf_params *p, uint64_t seed)
{
    *out = (struct wf_sync){.is_virtual = true,
                            .costs = {.lock = p->v[WF_P_LOCK],
                                      .add = p->v[WF_P_ADD],
                                      .line = p->v[WF_P_LINE],
                                      .handover = p->v[WF_P_HANDOVER],
                                      .crowd = p->v[WF_P_CROWD],
                                      .fifo = p->v[WF_P_FIFO] != 0,
                                      .retakes = p->v[WF_P_RETAKES] != 0},
                            .fork_join = p->v[WF_P_FORK_JOIN],
                            .seed = seed};
}

void wf_sync_real(struct wf_sync *out, unsigned threads, unsigned first)
{
    cpu_set_t all;
    bool known = !sched_getaffinity(0, sizeof all, &all);
    *out =
        (struct wf_sync){.yields = !known || threads > (unsigned)CPU_COUNT(&all), .first = first};
}

/* ---- threads ---- */

struct start {
    void (*fn)(void *arg, unsigned self);
    void *arg;
    unsigned self, processor;
    pthread_barrier_t *barrier;
};

/* Binds the calling thread to the processor number [i] of those that the process may use, if there
 * are as many. */
static void bind(unsigned i)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || (unsigned)CPU_COUNT(&all) <= i)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && !i--) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
}

static void *thread_main(void *arg)
{
    const struct start *s = arg;
    bind(s->processor);
    pthread_barrier_wait(s->barrier);
    s->fn(s->arg, s->self);
    return NULL;
}

/* Threads that were made cannot leave the barrier unless all could be made. */
static void threads_start(pthread_t *threads, struct start *starts, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, thread_main, &starts[i]))
            abort();
}

static bool real_run(unsigned first, unsigned n, void (*fn)(void *arg, unsigned self), void *arg)
{
    pthread_t *threads = calloc(n, sizeof *threads);
    struct start *starts = calloc(n, sizeof *starts);
    pthread_barrier_t barrier;
    bool ready = threads && starts && !pthread_barrier_init(&barrier, NULL, n);
    for (unsigned i = 0; ready && i < n; i++)
        starts[i] = (struct start){fn, arg, i, first + i, &barrier};
    if (ready)
        threads_start(threads, starts, n);
    for (unsigned i = 0; ready && i < n; i++)
        pthread_join(threads[i], NULL);
    if (ready)
        pthread_barrier_destroy(&barrier);
    free(threads);
    free(starts);
    return ready;
}

bool wf_sync_run(const struct wf_sync *s, unsigned n, void (*fn)(void *arg, unsigned self),
                 void *arg)
{
    if (s->is_virtual)
        return wf_vt_run(&s->costs, s->seed, n, fn, arg) >= 0;
    return real_run(s->first, n, fn, arg);
}

/* ---- time ---- */

double wf_sync_now_ns(const struct wf_sync *s)
{
    return s->is_virtual ? wf_vt_now() : (double)wf_now_ns();
}

void wf_sync_work(const struct wf_sync *s, double ns)
{
    if (s->is_virtual)
        wf_vt_spend(ns);
}

void wf_sync_delay(const struct wf_sync *s, uint64_t *rand, double ns)
{
    double part = ns * (double)(wf_rand(rand) >> 11) * 0x1p-53;
    if (s->is_virtual) {
        wf_vt_spend(part);
        return;
    }
    for (uint64_t until = wf_now_ns() + (uint64_t)part; wf_now_ns() < until;)
        ;
}

void wf_sync_idle(const struct wf_sync *s)
{
    if (s->yields)
        sched_yield();
}

/* ---- words ---- */

int64_t wf_word_add(const struct wf_sync *s, struct wf_word *word, int64_t n)
{
    if (s->is_virtual)
        wf_vt_line_use(&word->line, true);
    /* acq_rel: a reader of the sum may use the adder's stores */
    return atomic_fetch_add_explicit(&word->value, n, memory_order_acq_rel);
}

int64_t wf_word_get(const struct wf_sync *s, struct wf_word *word)
{
    if (s->is_virtual)
        wf_vt_line_use(&word->line, false);
    return atomic_load_explicit(&word->value, memory_order_acquire);
}

/* ---- teams ---- */

static void real_join(struct wf_team *team)
{
    unsigned round = atomic_load_explicit(&team->round, memory_order_acquire);
    /* acq_rel: the last thread sees what the others wrote before, and they see what it wrote */
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->n) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->round, round + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&team->round, memory_order_acquire) == round)
        sched_yield();
}

/* A team of one neither forks nor joins. The cost grows with the depth of a tree of threads. */
void wf_team_join(const struct wf_sync *s, struct wf_team *team)
{
    if (team->n == 1)
        return;
    if (s->is_virtual)
        wf_vt_barrier_wait(&team->barrier, s->fork_join * log2(team->n) / 4);
    else
        real_join(team);
}
