/* SPDX-License-Identifier: BSD-3-Clause */
/* The self-test of the tools, gasnett_run_diagnostics. Each section runs in all threads at once.
 * Then one thread checks the results of the section. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 100, SAID = 20 };

/* Memory for atomic operations, static or in the segment. */
struct check_words {
    gasnett_atomic32_t sum32, down, locked, payload_ready;
    gasnett_atomic64_t sum64, swapped_in, swapped_out, cas;
    uint32_t guarded, payload; /* plain words; [locked] and [payload_ready] guard them */
};

struct run {
    unsigned iters, threads;
    struct check_words *words;
    gasnett_atomic_t failures;
    pthread_barrier_t gate;
    gasnett_mutex_t mutex;
    gasnett_cond_t cond;
    unsigned turn, counted; /* guarded by mutex */
    gasnett_rwlock_t rwlock;
    unsigned pair[2]; /* guarded by rwlock: equal */
};

struct worker {
    struct run *run;
    void (*part)(struct run *run, unsigned id);
    unsigned id;
    pthread_t thread;
};

static void expect(struct run *run, bool ok, const char *what)
{
    if (ok)
        return;
    if (gasnett_atomic_add(&run->failures, 1, 0) <= SAID)
        fprintf(stderr, "*** gasnett_run_diagnostics: %s\n", what);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state ^ (*state >> 29);
}

/* ---- A: atomics ---- */

static void atomics_part(struct run *run, unsigned id)
{
    struct check_words *w = run->words;
    uint64_t mine = id + 1;
    for (unsigned i = 0; i < run->iters * TURNS; i++) {
        uint64_t was;
        gasnett_atomic32_increment(&w->sum32, 0);
        (void)gasnett_atomic64_add(&w->sum64, UINT64_C(0x100000001), 0);
        (void)gasnett_atomic64_subtract(&w->sum64, UINT64_C(0x100000000), 0);
        do
            was = gasnett_atomic64_read(&w->cas, 0);
        while (!gasnett_atomic64_compare_and_swap(&w->cas, was, was + 3, 0));
        /* Each value that is swapped in is swapped out once, or is the last value. */
        (void)gasnett_atomic64_add(&w->swapped_in, mine, 0);
        mine = gasnett_atomic64_swap(&w->swapped_out, mine, 0);
        (void)gasnett_atomic64_subtract(&w->swapped_in, mine, 0);
        while (!gasnett_atomic32_compare_and_swap(&w->locked, 0, 1, GASNETT_ATOMIC_ACQ_IF_TRUE))
            gasnett_sched_yield();
        w->guarded++;
        gasnett_atomic32_set(&w->locked, 0, GASNETT_ATOMIC_REL);
        mine = mine ? mine : id + 1;
    }
    if (gasnett_atomic32_decrement_and_test(&w->down, GASNETT_ATOMIC_REL | GASNETT_ATOMIC_ACQ)) {
        w->payload = 42;
        gasnett_atomic32_set(&w->payload_ready, 1, GASNETT_ATOMIC_REL);
    }
    while (!gasnett_atomic32_read(&w->payload_ready, GASNETT_ATOMIC_ACQ))
        gasnett_sched_yield();
    expect(run, w->payload == 42, "atomics: data were not seen behind their flag");
}

static void atomics_end(struct run *run)
{
    const struct check_words *w = run->words;
    uint32_t n = run->iters * TURNS * run->threads;
    expect(run, gasnett_atomic32_read(&w->sum32, 0) == n, "atomics: a 32-bit increment was lost");
    expect(run, gasnett_atomic64_read(&w->sum64, 0) == n, "atomics: a 64-bit add was lost");
    expect(run, gasnett_atomic64_read(&w->cas, 0) == 3 * (uint64_t)n,
           "atomics: a compare and swap was lost");
    expect(run,
           gasnett_atomic64_read(&w->swapped_in, 0) == gasnett_atomic64_read(&w->swapped_out, 0),
           "atomics: a swapped value was lost");
    expect(run, w->guarded == n, "atomics: two threads held the same lock");
}

/* ---- B: bytes and numbers ---- */

static void bytes_part(struct run *run, unsigned id)
{
    unsigned char from[67], to[67];
    uint64_t state = id + 1;
    char text[64];
    for (unsigned i = 0; i < run->iters; i++) {
        size_t len = (size_t)(next_random(&state) % sizeof from), zeros = 0;
        uint64_t sum;
        int64_t number = (int64_t)next_random(&state) >> (i % 60);
        for (size_t k = 0; k < len; k++) {
            from[k] = (unsigned char)(next_random(&state) & next_random(&state) & 3);
            zeros += from[k] == 0;
        }
        expect(run, gasnett_count0s(from, len) == zeros, "bytes: wrong count of zeros");
        expect(run, gasnett_count0s_copy(to, from, len) == zeros && !memcmp(from, to, len),
               "bytes: wrong count or copy");
        sum = gasnett_checksum(from, len);
        expect(run, gasnett_checksum(to, len) == sum, "bytes: checksums of equal data differ");
        if (len > 0) {
            to[i % len] ^= (unsigned char)(1u << (i % 8));
            expect(run, gasnett_checksum(to, len) != sum, "bytes: a changed bit does not show");
        }
        expect(run,
               gasnett_parse_int(gasnett_format_number(number, text, sizeof text, 0), 0) == number,
               "numbers: one does not come back");
    }
}

/* ---- C: clocks ---- */

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void clocks_part(struct run *run, unsigned id)
{
    gasnett_tick_t last = gasnett_ticks_now(), began;
    uint64_t outer = monotonic_ns(), inner, ns;
    (void)id;
    began = gasnett_ticks_now();
    inner = monotonic_ns();
    for (unsigned i = 0; i < run->iters * TURNS; i++) {
        gasnett_tick_t now = gasnett_ticks_now();
        expect(run, now >= last, "clocks: time went back");
        last = now;
    }
    (void)gasnett_nsleep(2000000);
    inner = monotonic_ns() - inner;
    ns = gasnett_ticks_to_ns(gasnett_ticks_now() - began);
    outer = monotonic_ns() - outer;
    expect(run, ns >= inner - inner / 100 && ns <= outer + outer / 100,
           "clocks: ticks and CLOCK_MONOTONIC differ by more than 1%");
}

/* ---- D: thread keys ---- */

static GASNETT_THREADKEY_DEFINE(key);

static void keys_part(struct run *run, unsigned id)
{
    char here;
    (void)id;
    expect(run, gasnett_threadkey_get(key) == NULL, "thread keys: not null at first");
    for (unsigned i = 0; i < run->iters; i++) {
        gasnett_threadkey_set(key, &here + (i & 1));
        gasnett_sched_yield();
        expect(run, gasnett_threadkey_get(key) == &here + (i & 1), "thread keys: another's value");
    }
    gasnett_threadkey_set(key, NULL);
}

/* ---- E: locks ---- */

static void locks_part(struct run *run, unsigned id)
{
    for (unsigned i = 0; i < run->iters; i++) {
        gasnett_mutex_lock(&run->mutex);
        while (run->turn != id)
            gasnett_cond_wait(&run->cond, &run->mutex);
        run->counted++;
        run->turn = (id + 1) % run->threads;
        gasnett_cond_broadcast(&run->cond);
        gasnett_mutex_unlock(&run->mutex);

        if ((i + id) % 4 == 0) {
            gasnett_rwlock_wrlock(&run->rwlock);
            run->pair[0]++;
            gasnett_sched_yield();
            run->pair[1]++;
        } else {
            gasnett_rwlock_rdlock(&run->rwlock);
            expect(run, run->pair[0] == run->pair[1], "locks: a reader saw a writer at work");
        }
        gasnett_rwlock_unlock(&run->rwlock);
    }
}

static void locks_end(struct run *run)
{
    expect(run, run->counted == run->iters * run->threads, "locks: a count was lost");
}

/* ---- F: the heap ---- */

static void heap_part(struct run *run, unsigned id)
{
    uint64_t state = id + 99;
    for (unsigned i = 0; i < run->iters; i++) {
        size_t len = 1 + (size_t)(next_random(&state) % 500), more = len + i % 100;
        unsigned char *p = gasnett_debug_malloc(len);
        memset(p, (int)(id & 0xff), len);
        p = gasnett_debug_realloc(p, more);
        expect(run, p[0] == (id & 0xff) && p[len - 1] == (id & 0xff),
               "heap: a block changed when it grew");
        gasnett_debug_memcheck(p);
        if (i % 16 == 0)
            gasnett_debug_memcheck_all();
        gasnett_debug_free(p);
    }
}

/* ---- running them ---- */

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pthread_barrier_wait(&w->run->gate);
    w->part(w->run, w->id);
    return NULL;
}

static void run_part(struct run *run, void (*part)(struct run *run, unsigned id))
{
    struct worker *workers = calloc(run->threads, sizeof *workers);
    if (!workers)
        gasnett_fatalerror_nopos("gasnett_run_diagnostics: no memory for %u threads", run->threads);
    pthread_barrier_init(&run->gate, NULL, run->threads);
    for (unsigned i = 0; i < run->threads; i++) {
        int err;
        workers[i] = (struct worker){.run = run, .part = part, .id = i};
        err = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (err) /* the running ones wait for this one */
            gasnett_fatalerror_nopos("gasnett_run_diagnostics: thread %u of %u: %s", i,
                                     run->threads, strerror(err));
    }
    for (unsigned i = 0; i < run->threads; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&run->gate);
    free(workers);
}

static void run_atomics(struct run *run, void *at)
{
    char saved[sizeof(struct check_words)];
    run->words = at;
    memcpy(saved, at, sizeof saved);
    memset(at, 0, sizeof saved);
    gasnett_atomic32_set(&run->words->down, run->threads, 0);
    run_part(run, atomics_part);
    atomics_end(run);
    memcpy(at, saved, sizeof saved);
}

struct seginfo { /* gasnet_seginfo_t */
    void *addr;
    uintptr_t size;
};

int gasnett_run_diagnostics(int iters, int threadcnt, const char *sections, const void *seginfo)
{
    const struct seginfo *own = seginfo;
    struct check_words here = {0};
    struct run run = {
        .iters = iters > 0 ? (unsigned)iters : 1,
        .threads = threadcnt > 0 ? (unsigned)threadcnt : 1,
        .failures = gasnett_atomic_init(0),
        .mutex = GASNETT_MUTEX_INITIALIZER,
        .cond = GASNETT_COND_INITIALIZER,
        .rwlock = GASNETT_RWLOCK_INITIALIZER,
    };
    if (own)
        own = gasnetw_tools_rank() >= 0 ? own + gasnetw_tools_rank() : NULL;
    if (!sections || !*sections)
        sections = "ABCDEF";
    for (; *sections; sections++) {
        switch (*sections) {
        case 'A':
            run_atomics(&run, &here);
            if (own && own->size >= sizeof here)
                run_atomics(&run, own->addr);
            break;
        case 'B': run_part(&run, bytes_part); break;
        case 'C': run_part(&run, clocks_part); break;
        case 'D': run_part(&run, keys_part); break;
        case 'E':
            run_part(&run, locks_part);
            locks_end(&run);
            break;
        case 'F': run_part(&run, heap_part); break;
        default: break; /* a section that this implementation does not have */
        }
    }
    gasnett_mutex_destroy(&run.mutex);
    gasnett_cond_destroy(&run.cond);
    gasnett_rwlock_destroy(&run.rwlock);
    return (int)gasnett_atomic_read(&run.failures, 0);
}

void *gasnetw_no_handlers(void)
{
    static max_align_t nothing[8];
    return nothing;
}
