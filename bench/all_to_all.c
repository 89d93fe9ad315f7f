/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-all: every rank has a block of SIZE bytes for every rank. Time of one, all
 * of them in turn; bench/all-to-all runs it in turn with Open MPI's MPI_Alltoall
 * (all_to_all_mpi.c), over several hosts.
 *
 * usage: all_to_all SIZE ROUNDS [bruck|am|put|msg]
 *
 *   bruck in log2(ranks) steps, each of which passes half of all blocks on in one
 *         active message (Bruck et al. 1997): the fewest messages, for small blocks
 *   am    a block is an active message's payload; its handler stores it (small blocks)
 *   put   a block is put where it belongs, then 1 is added to the place's word,
 *         for which its receiver waits (large blocks)
 *   msg   a tagged message for each, as MPI does it
 *
 * Received blocks have two places: a rank that is a round ahead writes to the other one. No rank
 * can be two ahead, as it cannot end a round without this rank's block. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/job.h>
#include <weft/msg.h>

#include "common.h"

#define RUNS 5
#define HANDLER 1
#define STEP 2
#define STEPS_MAX 16u
#define WINDOW 4u /* large blocks on their way from a rank at a time */
#define PAGE 4096u
#define PATIENCE_NS INT64_C(60000000000)

struct world {
    struct weft_job *job;
    struct weft_ep *ep;
    unsigned rank, size;
    size_t len, blocks; /* of a block; of a rank's blocks */
    uint64_t round;     /* those that have begun */
    unsigned char *out, *in[2];
    struct weft_mr *mr; /* in[], behind it the words that count */
    struct weft_remote **remotes;
    uint64_t *words;                   /* put: blocks that came to each place so far */
    uint64_t came[2];                  /* am: blocks of that place */
    unsigned char *pass, *sent;        /* bruck: blocks on their way; those of a message */
    unsigned char *step[2][STEPS_MAX]; /* bruck: received blocks, by round and step */
    bool stepped[2][STEPS_MAX];
    struct weft_op *sends, *recvs;
};

static struct world w;

#define NEED(what, call)                                                                           \
    do {                                                                                           \
        enum weft_status need_ = (call);                                                           \
        if (need_ != WEFT_OK)                                                                      \
            fail(what, need_);                                                                     \
    } while (0)

__attribute__((noreturn)) static void fail(const char *what, enum weft_status s)
{
    fprintf(stderr, "all_to_all: rank %u: %s: %s\n", w.rank, what, weft_status_text(s));
    exit(1);
}

/* ---- contents ---- */

/* Word [at] of the block from [from] to [to] in round [round]. The first word of
 * each page is of its round, the others of all. */
static uint64_t word_of(unsigned from, unsigned to, uint64_t round, size_t at)
{
    uint64_t z = ((uint64_t)from << 48 | (uint64_t)to << 32) + at + 1;
    return (z ^ z << 13) * 0x9e3779b97f4a7c15u + (at % (PAGE / 8) ? 0 : round);
}

static void fill(unsigned to, uint64_t round, size_t step)
{
    unsigned char *block = w.out + to * w.len;
    for (size_t at = 0; at < w.len / 8; at += step) {
        uint64_t v = word_of(w.rank, to, round, at);
        memcpy(block + 8 * at, &v, 8);
    }
}

static void check(unsigned from, uint64_t round, size_t step)
{
    const unsigned char *block = w.in[round % 2] + from * w.len;
    for (size_t at = 0; at < w.len / 8; at += step) {
        uint64_t v;
        memcpy(&v, block + 8 * at, 8);
        if (v == word_of(from, w.rank, round, at))
            continue;
        fprintf(stderr, "all_to_all: rank %u: WRONG DATA from rank %u in round %llu, word %zu\n",
                w.rank, from, (unsigned long long)round, at);
        exit(1);
    }
}

/* ---- a round, three ways ---- */

static unsigned peer_at(unsigned step)
{
    return (w.rank + step) % w.size; /* all ranks send to different ones at a time */
}

static void poll_once(void)
{
    int n = weft_ep_poll(w.ep);
    if (n < 0)
        fail("polling", (enum weft_status)n);
    if (n == 0 && weft_job_local_size(w.job) > 1)
        sched_yield();
}

static void send_now(unsigned to, unsigned handler, const uint32_t args[2], const void *data,
                     size_t len)
{
    enum weft_status s;
    while ((s = weft_am_request(weft_job_peer(w.job, to), handler, args, 2, data, len, 0)) ==
           WEFT_AGAIN)
        poll_once();
    NEED("sending", s);
}

static void wait_some(void)
{
    int n = weft_ep_wait(w.ep, PATIENCE_NS);
    if (n <= 0)
        fail("waiting", n ? (enum weft_status)n : WEFT_ETIMEDOUT);
}

static void on_block(const struct weft_am *am)
{
    unsigned place = am->args[1] & 1;
    memcpy(w.in[place] + am->args[0] * w.len, am->data, am->len);
    w.came[place]++;
}

static void round_am(uint64_t round)
{
    const uint32_t args[2] = {w.rank, round & 1};
    for (unsigned step = 1; step < w.size; step++)
        send_now(peer_at(step), HANDLER, args, w.out + peer_at(step) * w.len, w.len);
    while (w.came[round & 1] < w.size - 1)
        wait_some();
    w.came[round & 1] = 0;
}

static void on_step(const struct weft_am *am)
{
    unsigned place = am->args[0] & 1, k = am->args[1] % STEPS_MAX;
    if (!w.step[place][k] || am->len > w.blocks)
        return;
    memcpy(w.step[place][k], am->data, am->len);
    w.stepped[place][k] = true;
}

/* Blocks whose index has bit [k] between what is passed on and a message; bytes. */
static size_t gather_step(unsigned k)
{
    size_t n = 0;
    for (unsigned i = 0; i < w.size; i++)
        if (i >> k & 1) {
            memcpy(w.sent + n, w.pass + i * w.len, w.len);
            n += w.len;
        }
    return n;
}

static void scatter_step(unsigned k, const unsigned char *from)
{
    for (unsigned i = 0; i < w.size; i++)
        if (i >> k & 1) {
            memcpy(w.pass + i * w.len, from, w.len);
            from += w.len;
        }
}

/* Block i of those passed on is for the rank i further: those that have a bit set go
 * as many ranks on. At the end it is what the rank i before this one had for it. */
static void round_bruck(uint64_t round)
{
    unsigned place = round & 1;
    for (unsigned i = 0; i < w.size; i++)
        memcpy(w.pass + i * w.len, w.out + peer_at(i) * w.len, w.len);
    for (unsigned k = 0; 1u << k < w.size; k++) {
        const uint32_t args[2] = {place, k};
        size_t n = gather_step(k);
        send_now(peer_at(1u << k), STEP, args, w.sent, n);
        while (!w.stepped[place][k])
            wait_some();
        w.stepped[place][k] = false;
        scatter_step(k, w.step[place][k]);
    }
    for (unsigned i = 1; i < w.size; i++)
        memcpy(w.in[place] + peer_at(w.size - i) * w.len, w.pass + i * w.len, w.len);
}

static void see(struct weft_op *op)
{
    NEED("an operation", weft_op_wait(w.ep, op, PATIENCE_NS));
}

static void round_put(uint64_t round)
{
    size_t place = (round & 1) * w.blocks + w.rank * w.len;
    for (unsigned step = 1; step < w.size; step++) {
        unsigned to = peer_at(step);
        struct weft_op *op = &w.sends[step % WINDOW];
        enum weft_status s;
        see(op);
        s = weft_put_signal(w.remotes[to], place, w.out + to * w.len, w.len, w.remotes[to],
                            2 * w.blocks + (round & 1) * 8, 1, WEFT_SIGNAL_ADD, op);
        if (s != WEFT_PENDING)
            NEED("putting a block", s);
    }
    NEED("waiting for blocks", weft_word_wait(w.ep, &w.words[round & 1],
                                              (round / 2 + 1) * (w.size - 1), NULL, PATIENCE_NS));
    for (unsigned i = 0; i < WINDOW; i++)
        see(&w.sends[i]);
}

static void round_msg(uint64_t round)
{
    for (unsigned from = 0; from < w.size; from++)
        if (from != w.rank) {
            enum weft_status s =
                weft_msg_recv(w.ep, weft_job_peer(w.job, from), round, WEFT_TAG_FULL,
                              w.in[round & 1] + from * w.len, w.len, &w.recvs[from]);
            if (s != WEFT_PENDING)
                NEED("posting a receive", s);
        }
    for (unsigned step = 1; step < w.size; step++) {
        unsigned to = peer_at(step);
        enum weft_status s =
            weft_msg_send(weft_job_peer(w.job, to), round, w.out + to * w.len, w.len, &w.sends[to]);
        if (s != WEFT_PENDING)
            NEED("sending", s);
    }
    for (unsigned i = 0; i < w.size; i++) {
        see(&w.recvs[i]);
        see(&w.sends[i]);
    }
}

/* ---- all of them ---- */

typedef void (*round_fn)(uint64_t round);

/* ns for each of [rounds]; the last one's blocks are compared as a whole. */
static double run(round_fn fn, uint64_t rounds)
{
    uint64_t start;
    NEED("barrier", weft_job_barrier(w.job));
    start = now_ns();
    for (uint64_t i = 0; i < rounds; i++, w.round++) {
        for (unsigned to = 0; to < w.size; to++)
            fill(to, w.round, PAGE / 8);
        memcpy(w.in[w.round & 1] + w.rank * w.len, w.out + w.rank * w.len, w.len);
        fn(w.round);
        for (unsigned from = 0; from < w.size; from++)
            check(from, w.round, PAGE / 8);
    }
    NEED("barrier", weft_job_barrier(w.job));
    start = now_ns() - start;
    for (unsigned from = 0; from < w.size; from++)
        check(from, w.round - 1, 1);
    return (double)start / (double)rounds;
}

/* A message of half of the blocks, and not more steps than there are places for. */
static bool fits_bruck(void)
{
    return (w.size + 1) / 2 * w.len <= weft_am_max(w.ep) && w.size <= 1u << STEPS_MAX;
}

static void open_memory(void)
{
    size_t len;
    w.blocks = w.len * w.size;
    len = 2 * w.blocks + 64;
    w.remotes = calloc(w.size, sizeof(struct weft_remote *));
    w.out = aligned_alloc(PAGE, (w.blocks + PAGE - 1) / PAGE * PAGE);
    w.sends = calloc(w.size > WINDOW ? w.size : WINDOW, sizeof *w.sends);
    w.recvs = calloc(w.size, sizeof *w.recvs);
    w.pass = malloc(w.blocks);
    w.sent = malloc(w.blocks);
    if (!w.remotes || !w.out || !w.sends || !w.recvs || !w.pass || !w.sent)
        fail("memory", WEFT_ENOMEM);
    for (unsigned k = 0; fits_bruck() && k < 2 * STEPS_MAX; k++)
        if (!(w.step[k & 1][k / 2] = malloc(w.blocks)))
            fail("memory", WEFT_ENOMEM);
    NEED("allocating regions",
         weft_job_mem_alloc(w.job, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &w.mr, w.remotes));
    w.in[0] = weft_mr_base(w.mr);
    w.in[1] = w.in[0] + w.blocks;
    w.words = (uint64_t *)(void *)(w.in[0] + 2 * w.blocks);
    memset(w.in[0], 0, len);
    for (unsigned to = 0; to < w.size; to++)
        fill(to, 0, 1);
    NEED("registering a handler", weft_am_register(w.ep, HANDLER, on_block, NULL));
    NEED("registering a handler", weft_am_register(w.ep, STEP, on_step, NULL));
    NEED("barrier", weft_job_barrier(w.job));
}

static void close_memory(void)
{
    for (unsigned i = 0; i < w.size; i++)
        NEED("closing a region", weft_remote_close(w.remotes[i]));
    NEED("closing memory", weft_mr_close(w.mr));
    free(w.remotes);
    free(w.out);
    free(w.sends);
    free(w.recvs);
    free(w.pass);
    free(w.sent);
    for (unsigned k = 0; k < 2 * STEPS_MAX; k++)
        free(w.step[k & 1][k / 2]);
}

static round_fn choose(const char *name)
{
    if (!name)
        return fits_bruck() ? round_bruck : w.len <= weft_am_max(w.ep) ? round_am : round_put;
    return !strcmp(name, "bruck") ? round_bruck
           : !strcmp(name, "put") ? round_put
           : !strcmp(name, "msg") ? round_msg
           : !strcmp(name, "am")  ? round_am
                                  : NULL;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc >= 3 ? strtoull(argv[2], NULL, 10) : 0;
    double ns[RUNS];
    round_fn fn;
    NEED("joining the job", weft_job_open(NULL, &w.job));
    w.rank = weft_job_rank(w.job);
    w.size = weft_job_size(w.job);
    w.ep = weft_job_ep(w.job);
    w.len = argc >= 2 ? strtoull(argv[1], NULL, 10) : 0;
    fn = choose(argc >= 4 ? argv[3] : NULL);
    if (!rounds || !w.len || w.len % 8 || !fn || (fn == round_am && w.len > weft_am_max(w.ep)) ||
        (fn == round_bruck && !fits_bruck())) {
        fprintf(stderr,
                "usage: all_to_all SIZE ROUNDS [bruck|am|put|msg]; SIZE: a multiple of 8\n");
        return 2;
    }
    open_memory();
    run(fn, rounds / 10 + 1);
    for (int i = 0; i < RUNS; i++)
        ns[i] = run(fn, rounds);
    qsort(ns, RUNS, sizeof ns[0], ascending);
    if (w.rank == 0)
        printf("{\"test\":\"all_to_all\",\"size\":%zu,\"ranks\":%u,\"us\":%.2f}\n", w.len, w.size,
               ns[RUNS / 2] / 1e3);
    close_memory();
    NEED("leaving the job", weft_job_close(w.job));
    return 0;
}
