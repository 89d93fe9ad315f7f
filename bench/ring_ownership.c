/* SPDX-License-Identifier: BSD-3-Clause */
/* Should a shared-memory ring belong to its sender, with the receiver mapping it read-only, or its
 * receiver? Measures latency and rate of the same ring of cache lines under both owners, in turn,
 * in one process pair.
 *
 *   cc -O2 -o ring_ownership bench/ring_ownership.c && ./ring_ownership 15
 *
 * The owner makes the memfd and touches its pages first; the other maps it
 * (read-only when the sender owns, since the receiver only reads lines). The
 * head, which the receiver writes, is a line of its own in either case. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "common.h"

enum { SLOTS = 256, LAT = 100000, RATE = 4000000, AHEAD = 8 };

struct line {
    _Atomic uint32_t seq;
    uint32_t hdr[3];
    uint64_t data[6];
};
struct ring {
    struct line line[SLOTS];
};
struct shared { /* the harness's own, not measured */
    _Atomic uint32_t step;
    char pad[60];
    _Atomic uint32_t head[2][16];
    double ns[2];
};

static void prefetchw(const void *p)
{
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

static void send_one(struct ring *r, uint32_t tail, uint64_t v)
{
    struct line *l = &r->line[tail % SLOTS];
    prefetchw(&r->line[(tail + AHEAD) % SLOTS]);
    l->hdr[0] = 8;
    l->data[0] = v;
    atomic_store_explicit(&l->seq, tail + 1, memory_order_release);
}

static uint64_t recv_one(const struct ring *r, uint32_t head)
{
    const struct line *l = &r->line[head % SLOTS];
    while (atomic_load_explicit(&l->seq, memory_order_acquire) != head + 1)
        __builtin_ia32_pause();
    return l->data[0];
}

static void meet(struct shared *s, int me, uint32_t *step)
{
    (void)me;
    *step += 2;
    atomic_fetch_add(&s->step, 1);
    while (atomic_load(&s->step) < *step)
        ;
}

static double latency(struct ring *out, const struct ring *in, int me, uint32_t *t)
{
    uint64_t t0 = now_ns();
    for (uint32_t i = 0; i < LAT; i++, (*t)++) {
        if (me == 0)
            send_one(out, *t, i);
        if (recv_one(in, *t) != i)
            abort();
        if (me == 1)
            send_one(out, *t, i);
    }
    return (double)(now_ns() - t0) / LAT / 2;
}

static double rate(struct ring *out, const struct ring *in, struct shared *s, int me, uint32_t *t)
{
    uint64_t t0 = now_ns();
    if (me == 0) {
        uint32_t head = *t;
        for (uint32_t i = 0; i < RATE; i++, (*t)++) {
            while (*t - head >= SLOTS)
                head = atomic_load_explicit(&s->head[0][0], memory_order_acquire);
            send_one(out, *t, i);
        }
    } else {
        for (uint32_t i = 0; i < RATE; i++, (*t)++) {
            if (recv_one(in, *t) != i)
                abort();
            if ((i & 31) == 31)
                atomic_store_explicit(&s->head[0][0], *t + 1, memory_order_release);
        }
        atomic_store_explicit(&s->head[0][0], *t, memory_order_release);
    }
    while (atomic_load(&s->head[0][0]) != *t)
        ;
    return (double)(now_ns() - t0) / RATE;
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 ? atoi(argv[1]) : 15, me, fd[2][2];
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ring *out[2];
    const struct ring *in[2];
    double res[4][1000];
    uint32_t step = 0, seq[2] = {0, 0};
    pid_t kid;
    if (pairs < 1 || pairs > 1000)
        return 2;
    for (int i = 0; i < 4; i++) /* [owner: 0 sender, 1 receiver][sending process] */
        fd[i / 2][i % 2] = memfd_create("ring", 0),
                      ftruncate(fd[i / 2][i % 2], sizeof(struct ring));
    kid = fork();
    me = kid == 0;
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t c;
    CPU_ZERO(&c);
    CPU_SET(me, &c);
    sched_setaffinity(0, sizeof c, &c);
    for (int o = 0; o < 2; o++) { /* the owner touches first */
        struct ring *mine =
            mmap(NULL, sizeof *mine, PROT_READ | PROT_WRITE, MAP_SHARED, fd[o][me], 0);
        struct ring *his =
            mmap(NULL, sizeof *his, PROT_READ | (o ? PROT_WRITE : 0), MAP_SHARED, fd[o][!me], 0);
        memset(o ? his : mine, 0, o ? 0 : sizeof *mine);
        if (o)
            memset(his, 0, sizeof *his);
        out[o] = mine;
        in[o] = his;
    }
    meet(s, me, &step);
    for (int p = 0; p < pairs + 1; p++)
        for (int o = 0; o < 2; o++) {
            meet(s, me, &step);
            double l = latency(out[o], in[o], me, &seq[o]);
            atomic_store(&s->head[0][0], seq[o]);
            meet(s, me, &step);
            double r = rate(out[o], in[o], s, me, &seq[o]);
            meet(s, me, &step);
            if (p > 0) /* the first round warms up */
                res[o][p - 1] = l, res[2 + o][p - 1] = r;
        }
    /* rate() only moves 0 -> 1; both sides' counters advance alike */
    if (me)
        return 0;
    waitpid(kid, NULL, 0);
    double ratio[2][1000];
    for (int p = 0; p < pairs; p++)
        ratio[0][p] = res[0][p] / res[1][p], ratio[1][p] = res[2][p] / res[3][p];
    for (int i = 0; i < 4; i++)
        qsort(res[i], (size_t)pairs, sizeof(double), ascending);
    for (int i = 0; i < 2; i++)
        qsort(ratio[i], (size_t)pairs, sizeof(double), ascending);
    printf(
        "| owner | one way, ns (median of %d) | per message, ns | million/s |\n|---|---|---|---|\n",
        pairs);
    for (int o = 0; o < 2; o++)
        printf("| %s | %.1f | %.2f | %.1f |\n", o ? "receiver" : "sender", res[o][pairs / 2],
               res[2 + o][pairs / 2], 1e3 / res[2 + o][pairs / 2]);
    printf("sender/receiver, median of paired ratios: latency %.3f, time per message %.3f\n",
           ratio[0][pairs / 2], ratio[1][pairs / 2]);
    return 0;
}
