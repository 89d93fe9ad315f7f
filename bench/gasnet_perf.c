/* SPDX-License-Identifier: BSD-3-Clause */
/* The cost of the GASNet binding, between the first two nodes of a job (SEQ):
 *
 *     weft run -n 2 -- gasnet_perf [--quick]
 *
 * prints one JSON object: the round trip of a Short request and its Short reply, floods of requests
 * without replies (Short; Medium and Long of 8 bytes; Long of 64 KiB), put and get of 8 bytes
 * walking through 1 MiB, a bulk put of 1 MiB, a named barrier. Each is the median of batches.
 * Further nodes, as in `weft run -n 16`, take part in the barriers only. bench/gasnet-table sets
 * the figures beside the machine's limits. */
#include <gasnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define BATCHES 15
#define AREA (1u << 20)

#define LONG (64u << 10)

enum { PING = 200, PONG, ONE, BYTES, TOTAL };

static unsigned pongs;
static uint64_t ones, total;
static uint64_t expected;          /* ones at node 1: they may come before it leaves a barrier */
static gasnet_seginfo_t *segments; /* of all nodes */
static uint64_t scale = 1;

static void on_ping(gasnet_token_t token, gasnet_handlerarg_t a)
{
    gasnet_AMReplyShort1(token, PONG, a);
}

static void on_pong(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token;
    (void)a;
    pongs++;
}

static void on_one(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token;
    (void)a;
    ones++;
}

static void on_bytes(gasnet_token_t token, void *data, size_t len)
{
    (void)token;
    (void)data;
    (void)len;
    ones++;
}

static void on_total(gasnet_token_t token, gasnet_handlerarg_t n)
{
    (void)token;
    total += (uint64_t)n;
}

static void barrier(int name)
{
    gasnet_barrier_notify(name, 0);
    if (gasnet_barrier_wait(name, 0) != GASNET_OK)
        gasnet_exit(1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds of each: the median of batches of [n], begun together. */
static double median_ns(void (*batch)(uint64_t n), uint64_t n)
{
    double took[BATCHES];
    n = n / scale + 1;
    batch(n);
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t start;
        barrier((int)i);
        start = now_ns();
        batch(n);
        took[i] = (double)(now_ns() - start) / (double)n;
    }
    barrier(BATCHES);
    qsort(took, BATCHES, sizeof *took, compare);
    return took[BATCHES / 2];
}

static void round_trips(uint64_t n)
{
    if (gasnet_mynode() > 1)
        return;
    expected++;
    if (gasnet_mynode()) {
        GASNET_BLOCKUNTIL(ones == expected);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        unsigned before = pongs;
        gasnet_AMRequestShort1(1, PING, (gasnet_handlerarg_t)i);
        GASNET_BLOCKUNTIL(pongs != before);
    }
    gasnet_AMRequestShort1(1, ONE, 0);
}

static char *source;

static void send_short(uint64_t i)
{
    (void)i;
    gasnet_AMRequestShort1(1, ONE, 0);
}

static void send_medium(uint64_t i)
{
    (void)i;
    gasnet_AMRequestMedium0(1, BYTES, source, 8);
}

static void send_long(uint64_t i)
{
    gasnet_AMRequestLong0(1, BYTES, source, 8, (char *)segments[1].addr + 8 * i % AREA);
}

static void send_long_64k(uint64_t i)
{
    gasnet_AMRequestLong0(1, BYTES, source, LONG, (char *)segments[1].addr + LONG * i % AREA);
}

/* Until the last has been handled, as the other side reports. */
static inline void flood(uint64_t n, void (*send)(uint64_t i))
{
    if (gasnet_mynode() > 1)
        return;
    expected += n;
    if (gasnet_mynode()) {
        GASNET_BLOCKUNTIL(ones == expected);
        gasnet_AMRequestShort1(0, TOTAL, (gasnet_handlerarg_t)n);
    } else {
        uint64_t until = total + n;
        for (uint64_t i = 0; i < n; i++)
            send(i);
        GASNET_BLOCKUNTIL(total >= until);
    }
}

static void shorts(uint64_t n)
{
    flood(n, send_short);
}

static void mediums(uint64_t n)
{
    flood(n, send_medium);
}

static void longs(uint64_t n)
{
    flood(n, send_long);
}

static void longs_64k(uint64_t n)
{
    flood(n, send_long_64k);
}

static void puts_8(uint64_t n)
{
    uint64_t value = 1;
    for (uint64_t i = 0; !gasnet_mynode() && i < n; i++)
        gasnet_put(1, (char *)segments[1].addr + 8 * i % AREA, &value, 8);
}

static void gets_8(uint64_t n)
{
    uint64_t value;
    for (uint64_t i = 0; !gasnet_mynode() && i < n; i++) {
        gasnet_get(&value, 1, (char *)segments[1].addr + 8 * i % AREA, 8);
        __asm__ volatile("" : : "r"(value));
    }
}

static void puts_1m(uint64_t n)
{
    for (uint64_t i = 0; !gasnet_mynode() && i < n; i++)
        gasnet_put_bulk(1, segments[1].addr, source, AREA);
}

static void barriers(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        barrier((int)i);
}

int main(int argc, char **argv)
{
    gasnet_handlerentry_t handlers[] = {{PING, (void (*)(void))on_ping},
                                        {PONG, (void (*)(void))on_pong},
                                        {ONE, (void (*)(void))on_one},
                                        {BYTES, (void (*)(void))on_bytes},
                                        {TOTAL, (void (*)(void))on_total}};
    double rtt, one, medium, small, big, put, get, bulk, meet;
    gasnet_init(&argc, &argv);
    if (argc > 1 && !strcmp(argv[1], "--quick"))
        scale = 100;
    if (gasnet_nodes() < 2) {
        fprintf(stderr, "gasnet_perf: two nodes are needed: weft run -n 2 -- gasnet_perf\n");
        gasnet_exit(2);
    }
    segments = calloc(gasnet_nodes(), sizeof *segments);
    source = malloc(AREA);
    if (!segments || !source || gasnet_attach(handlers, 5, 2 * AREA, 0) != GASNET_OK ||
        gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) != GASNET_OK)
        gasnet_exit(1);
    memset(source, 1, AREA);
    memset(segments[gasnet_mynode()].addr, 0, AREA);
    rtt = median_ns(round_trips, 20000);
    one = median_ns(shorts, 200000);
    medium = median_ns(mediums, 200000);
    small = median_ns(longs, 200000);
    big = median_ns(longs_64k, 2000);
    put = median_ns(puts_8, 2000000);
    get = median_ns(gets_8, 2000000);
    bulk = median_ns(puts_1m, 200);
    meet = median_ns(barriers, 20000);
    if (!gasnet_mynode())
        printf("{\"short_rtt_ns\":%.1f,\"flood_mps\":%.2f,\"medium_mps\":%.2f,\"long_mps\":%.2f,"
               "\"long_64k_gbs\":%.2f,\"put_ns\":%.2f,\"get_ns\":%.2f,\"put_gbs\":%.2f,"
               "\"barrier_ns\":%.1f}\n",
               rtt, 1e3 / one, 1e3 / medium, 1e3 / small, LONG / big, put, get, AREA / bulk, meet);
    gasnet_exit(0);
}
