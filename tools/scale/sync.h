/* SPDX-License-Identifier: BSD-3-Clause */
/* What the benchmarks' loops use for threads, locks, atomics, shared words and clocks. Two
 * backends: virtual time (sim.h), for the model of a NIC, and pthreads with C11 atomics, for all
 * other NICs. So one source of a benchmark runs on both. */
#ifndef WEFT_SCALE_SYNC_H
#define WEFT_SCALE_SYNC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "params.h"
#include "sim.h"

struct wf_sync {
    bool is_virtual;
    bool yields;              /* real: there are more threads than processors */
    unsigned first;           /* real: the first thread's processor, of those that may be used */
    struct wf_vt_costs costs; /* virtual time: of what follows */
    double fork_join;         /* virtual time: ns for a fork and a join of 16 threads */
    uint64_t seed;
};

/* A word that threads share, alone on its cache line. All zero: 0. */
struct wf_word {
    _Alignas(64) _Atomic int64_t value;
    struct wf_vt_line line;
};

/* A team of threads that fork and join. */
struct wf_team {
    unsigned n;
    struct wf_vt_barrier barrier;
    _Alignas(64) _Atomic unsigned arrived;
    _Alignas(64) _Atomic unsigned round;
};

void wf_sync_virtual(struct wf_sync *out, const struct wf_params *params, uint64_t seed);
void wf_sync_real(struct wf_sync *out, unsigned threads, unsigned first);

/* Runs fn(arg, 0 .. n - 1) in a thread each. Returns false if the threads cannot be made. */
bool wf_sync_run(const struct wf_sync *s, unsigned n, void (*fn)(void *arg, unsigned self),
                 void *arg);

/* The clock of the calling thread. */
double wf_sync_now_ns(const struct wf_sync *s);
/* The calling thread works for so long. Real threads do their work themselves. */
void wf_sync_work(const struct wf_sync *s, double ns);
/* The calling thread does nothing for a random time of at most [ns], to shuffle what threads do. */
void wf_sync_delay(const struct wf_sync *s, uint64_t *rand, double ns);
/* The calling thread polled in vain, and tries again. */
void wf_sync_idle(const struct wf_sync *s);

/* Adds, and returns the value before. */
int64_t wf_word_add(const struct wf_sync *s, struct wf_word *word, int64_t n);
int64_t wf_word_get(const struct wf_sync *s, struct wf_word *word);

void wf_team_join(const struct wf_sync *s, struct wf_team *team);

#endif
