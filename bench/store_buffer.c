/* SPDX-License-Identifier: BSD-3-Clause */
/* What does another store cost a sender, between those to its ring? One thread reads all lines of a
 * ring; then the other writes all of them, with some stores to a place of its own between lines,
 * and with or without fetching for writing what comes soon.
 *
 *   cc -O2 -pthread -o store_buffer bench/store_buffer.c && ./store_buffer
 *
 * Two cores that do nothing else; medians. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "common.h"

enum { LINES = 2048, ROUNDS = 301, OWN = 64 };

struct line {
    _Atomic uint64_t word[8];
};
static _Alignas(4096) struct line ring[LINES];
static _Atomic int reader_turn, over;
static _Atomic uint64_t sum, own[OWN];

static void *reader(void *unused)
{
    (void)unused;
    CHECK(bind_to(1));
    while (!atomic_load(&over)) {
        uint64_t s = 0;
        if (!atomic_load(&reader_turn))
            continue;
        for (int i = 0; i < LINES; i++)
            s += atomic_load_explicit(&ring[i].word[0], memory_order_relaxed);
        atomic_store(&sum, s);
        atomic_store(&reader_turn, 0);
    }
    return NULL;
}

static void put(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Nanoseconds for each line. */
static double write_all(int stores, int ahead)
{
    uint64_t start = now_ns();
    for (int i = 0; i < LINES; i++) {
#if defined(__x86_64__)
        if (ahead)
            __asm__ volatile("prefetchw %0" : : "m"(ring[(i + ahead) % LINES]));
#else
        if (ahead)
            __builtin_prefetch(&ring[(i + ahead) % LINES], 1, 3);
#endif
        for (int k = 0; k < stores; k++)
            put(&own[k], (uint64_t)i);
        put(&ring[i].word[1], (uint64_t)i);
        put(&ring[i].word[7], (uint64_t)i);
        atomic_store_explicit(&ring[i].word[0], (uint64_t)i, memory_order_release);
    }
    return (double)(now_ns() - start) / LINES;
}

int main(void)
{
    static const int stores[] = {0, 4, 8, 12, 16, 20}, aheads[] = {0, 24};
    static double ns[ROUNDS];
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
    CHECK(bind_to(0));
    printf("| stores between lines | ns for each line | fetched 24 ahead |\n|---|---|---|\n");
    for (size_t s = 0; s < sizeof stores / sizeof *stores; s++) {
        printf("| %d |", stores[s]);
        for (size_t a = 0; a < sizeof aheads / sizeof *aheads; a++) {
            for (int r = 0; r < ROUNDS; r++) {
                atomic_store(&reader_turn, 1);
                while (atomic_load(&reader_turn))
                    ;
                ns[r] = write_all(stores[s], aheads[a]);
            }
            qsort(ns, ROUNDS, sizeof *ns, ascending);
            printf(" %.1f |", ns[ROUNDS / 2]);
        }
        printf("\n");
    }
    atomic_store(&over, 1);
    return pthread_join(thread, NULL) ? 1 : 0;
}
