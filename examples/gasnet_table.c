/* SPDX-License-Identifier: BSD-3-Clause */
/* A distributed hash table, written against GASNet: counts how often each of many keys occurs over
 * all nodes, as genome assemblers count short strings.
 *
 *     cc $(pkg-config --cflags weft-gasnet-seq) gasnet_table.c -o gasnet_table \
 *        $(pkg-config --libs weft-gasnet-seq)
 *     weft run -n 4 -- ./gasnet_table 200000
 *
 * Each node's segment is its part of the table, open addressing. A node sends its keys to their
 * owners in Medium active messages, many keys at once. The handler counts them and replies, so a
 * node knows when all of its keys have been counted. Lookups are one-sided: gasnet_get of the slot,
 * and of the next one where the key collided. Every node looks up its share of all keys and checks
 * that the counts are right. */
#include <gasnet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH 256 /* keys in a message; 2 KiB */
#define TIMES 3   /* each node counts each key this many times */

struct slot {
    uint64_t key; /* 0: empty */
    uint64_t count;
};

enum { COUNT = 200, COUNTED = 201, VERDICT = 202 };

static struct slot *table; /* the own part */
static gasnet_seginfo_t *parts;
static uint64_t slots; /* of each part; a power of two */
static uint64_t batches_sent, batches_counted;
static unsigned verdicts, failures;

/* The field's usual mixer of 64 bits (splitmix64's last step). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t key_of(uint64_t i)
{
    return mix(i + 1) | 1; /* never 0 */
}

static gasnet_node_t owner_of(uint64_t key)
{
    return (gasnet_node_t)((mix(key) >> 32) % gasnet_nodes());
}

static uint64_t first_slot(uint64_t key)
{
    return mix(key) & (slots - 1);
}

/* ---- counting, at the owner ---- */

static void count_key(uint64_t key)
{
    uint64_t at = first_slot(key);
    while (table[at].key && table[at].key != key)
        at = (at + 1) & (slots - 1);
    table[at].key = key;
    table[at].count++;
}

static void on_count(gasnet_token_t token, void *buf, size_t nbytes)
{
    const uint64_t *keys = buf;
    for (size_t i = 0; i < nbytes / sizeof *keys; i++)
        count_key(keys[i]);
    gasnet_AMReplyShort0(token, COUNTED);
}

static void on_counted(gasnet_token_t token)
{
    (void)token;
    batches_counted++;
}

/* ---- sending ---- */

struct batch {
    unsigned n;
    uint64_t keys[BATCH];
};

static void batch_send(struct batch *b, gasnet_node_t owner)
{
    if (!b->n)
        return;
    gasnet_AMRequestMedium0(owner, COUNT, b->keys, b->n * sizeof *b->keys);
    batches_sent++;
    b->n = 0;
}

static void count_all(uint64_t keys)
{
    struct batch *batches = calloc(gasnet_nodes(), sizeof *batches);
    if (!batches)
        gasnet_exit(2);
    for (uint64_t i = 0; i < keys * TIMES; i++) {
        uint64_t key =
            key_of((i + gasnet_mynode() * 7919u) % keys); /* each node in its own order */
        gasnet_node_t owner = owner_of(key);
        struct batch *b = &batches[owner];
        b->keys[b->n++] = key;
        if (b->n == BATCH)
            batch_send(b, owner);
    }
    for (gasnet_node_t r = 0; r < gasnet_nodes(); r++)
        batch_send(&batches[r], r);
    free(batches);
    GASNET_BLOCKUNTIL(batches_counted == batches_sent);
}

/* ---- looking up, by one-sided gets ---- */

static uint64_t look_up(uint64_t key)
{
    gasnet_node_t owner = owner_of(key);
    struct slot *part = parts[owner].addr, s;
    for (uint64_t at = first_slot(key), seen = 0; seen < slots;
         at = (at + 1) & (slots - 1), seen++) {
        gasnet_get_bulk(&s, owner, part + at, sizeof s);
        if (s.key == key)
            return s.count;
        if (!s.key)
            break;
    }
    return 0;
}

static unsigned check_share(uint64_t keys)
{
    unsigned wrong = 0;
    for (uint64_t i = gasnet_mynode(); i < keys; i += gasnet_nodes()) {
        uint64_t count = look_up(key_of(i)), want = (uint64_t)TIMES * gasnet_nodes();
        if (count == want)
            continue;
        if (!wrong++)
            fprintf(stderr,
                    "node %u: key %" PRIu64 " was counted %" PRIu64 " times, not %" PRIu64 "\n",
                    gasnet_mynode(), i, count, want);
    }
    return wrong;
}

static void on_verdict(gasnet_token_t token, gasnet_handlerarg_t wrong)
{
    (void)token;
    failures += wrong != 0;
    verdicts++;
}

/* ---- the program ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void barrier(void)
{
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) != GASNET_OK)
        gasnet_exit(2);
}

/* Room for twice the average keys of a node, and 1024 more. */
static uint64_t slots_for(uint64_t keys)
{
    uint64_t n = 4096;
    while (n < 2 * keys / gasnet_nodes() + 1024)
        n *= 2;
    return n;
}

static void attach(uint64_t keys)
{
    gasnet_handlerentry_t handlers[] = {{COUNT, (void (*)(void))on_count},
                                        {COUNTED, (void (*)(void))on_counted},
                                        {VERDICT, (void (*)(void))on_verdict}};
    size_t size;
    slots = slots_for(keys);
    size = (slots * sizeof *table + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    if (size > gasnet_getMaxLocalSegmentSize()) {
        fprintf(stderr, "%" PRIu64 " keys are too many for this machine's memory\n", keys);
        gasnet_exit(2);
    }
    if (gasnet_attach(handlers, 3, size, 0) != GASNET_OK)
        gasnet_exit(2);
    parts = calloc(gasnet_nodes(), sizeof *parts);
    if (!parts || gasnet_getSegmentInfo(parts, (int)gasnet_nodes()) != GASNET_OK)
        gasnet_exit(2);
    table = parts[gasnet_mynode()].addr;
    for (uint64_t i = 0; i < slots; i++)
        table[i] = (struct slot){0, 0};
    barrier(); /* no node counts before every part is empty */
}

int main(int argc, char **argv)
{
    uint64_t keys;
    double start, counted, looked;
    gasnet_init(&argc, &argv);
    keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    if (!keys || keys > UINT64_C(1) << 32) {
        if (!gasnet_mynode())
            fprintf(stderr, "usage: gasnet_table [KEYS]   1 to 2^32 different keys\n");
        gasnet_exit(2);
    }
    attach(keys);
    start = now_s();
    count_all(keys);
    barrier();
    counted = now_s();
    gasnet_AMRequestShort1(0, VERDICT, (gasnet_handlerarg_t)check_share(keys));
    if (!gasnet_mynode())
        GASNET_BLOCKUNTIL(verdicts == gasnet_nodes());
    barrier();
    looked = now_s();
    if (!gasnet_mynode())
        printf("%u nodes counted %" PRIu64
               " keys %u times each: %.2f million inserts/s, %.2f million "
               "lookups/s: %s\n",
               gasnet_nodes(), keys, TIMES * gasnet_nodes(),
               (double)keys * TIMES * gasnet_nodes() / (counted - start) / 1e6,
               (double)keys / (looked - counted) / 1e6, failures ? "WRONG" : "all right");
    fflush(stdout);
    barrier();
    gasnet_exit(failures != 0);
}
