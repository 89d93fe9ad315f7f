/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric_model [SEED [OPERATIONS [auto|manual]]]: four processes send, receive, receive many, peek,
 * claim, discard and cancel messages at random, tagged and untagged, to each other and to
 * themselves, and read, write and add to each other's memory, by the provider. Each process has
 * another threading model, format of entries, and set of counters. SEED 0: another one each time,
 * printed. OPERATIONS are those of all processes. auto: with FI_PROGRESS_AUTO.
 *
 * What a receive may match is known from its process's own calls, whatever the timing. The calls
 * are numbered; a message's taker is the receive, claim or discard that got it.
 *  - A call that takes, or finds, a message of a source, and would have matched an earlier one of
 *    that source, comes after the taker of that one was called, or is that taker (receives of
 * many).
 *  - So does a peek that finds nothing, for all messages that an earlier peek has found.
 *  - When a call takes or finds a message, receives posted before that would match it have a
 *    message already: a cancel does not end them.
 * The bytes depend on sender, receiver and number. A buffer's other bytes are looked at, and all
 * bytes of a send that is over are overwritten.
 *
 * Fails when: one of these does not hold, a message is lost or comes twice, an operation completes
 * twice or never; length, tag, data, flags, place, source or bytes are wrong; an error has another
 * cause than a short buffer, a cancel or a peek that finds nothing; a counter is below the
 * completions that were read, or at the end not equal to them; a read does not return what was
 * written last, or a sum is not that of what was added. */
#define _GNU_SOURCE
#include "model.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct board *board;
struct proc me;

void broken(int line, const char *condition, const char *what, int64_t a, int64_t b)
{
    fprintf(stderr,
            "seed %llu, process %d, call %llu, model.c or ops.c:%d: %s (%lld, %lld): not %s\n",
            (unsigned long long)board->seed, me.rank, (unsigned long long)me.calls, line, what,
            (long long)a, (long long)b, condition);
    _exit(1);
}

/* ---- matching ---- */

static struct known *known(int from, uint32_t number)
{
    return &me.known[from][number % RING];
}

static bool matches(const struct op *f, int from, uint32_t number)
{
    return f->space == space_of(from, me.rank, number) && (f->source < 0 || f->source == from) &&
           (f->space == UNTAGGED || !((f->key ^ key_of(from, me.rank, number)) & f->mask));
}

/* [call], with the filter [f], takes or finds a message. */
void named(const struct op *f, uint64_t call, int from, uint32_t number, bool takes)
{
    struct known *k = known(from, number);
    CHECK(number - me.first[from] < WINDOW, "its number", from, number);
    CHECK(k->taker == NEVER || k->taker > call, "found after it was taken", from, number);
    CHECK(matches(f, from, number), "it does not match", from, number);
    for (uint32_t n = number > WINDOW ? number - WINDOW : 0; n < number; n++) {
        struct known *earlier = known(from, n);
        if (!matches(f, from, n))
            continue;
        if (earlier->taker == NEVER)
            earlier->before = call < earlier->before ? call : earlier->before;
        else
            CHECK(earlier->taker <= call, "an earlier message was passed over", from, n);
    }
    for (int i = 0; i < RECVS; i++) {
        struct op *r = &me.recvs[i];
        if (r->kind == RECEIVE && !r->cancels && r->call < call && matches(r, from, number))
            r->met = true;
    }
    if (!takes) {
        k->after = call > k->after ? call : k->after;
        return;
    }
    CHECK(k->taker == NEVER, "it comes twice", from, number);
    CHECK(call <= k->before, "a later message was taken before", from, number);
    CHECK(call >= k->after, "it was found after its taker was called", from, number);
    k->taker = call;
    while (known(from, me.first[from])->taker != NEVER) {
        *known(from, me.first[from] + WINDOW) = (struct known){NEVER, NEVER, 0};
        me.first[from]++;
    }
    atomic_store(&board->taken[me.rank][from], me.first[from]);
}

/* A peek with the filter [f] finds nothing. */
void named_none(const struct op *f, uint64_t call)
{
    for (int from = 0; from < ENDS; from++)
        for (uint32_t n = me.first[from]; n < me.first[from] + WINDOW; n++) {
            struct known *k = known(from, n);
            if (k->taker == NEVER && k->after && matches(f, from, n))
                k->before = call < k->before ? call : k->before;
        }
}

/* ---- counters ---- */

static void counter_check(int i, uint64_t completed, bool at_end)
{
    uint64_t n = me.e.cntr[i] ? fi_cntr_read(me.e.cntr[i]) : completed;
    CHECK(at_end ? n == completed : n >= completed, "a counter", i, (int64_t)(n - completed));
}

static void counters_check(bool at_end)
{
    counter_check(END_SENDS, me.done[END_SENDS], at_end);
    counter_check(END_RECVS, me.done[END_RECVS], at_end);
    counter_check(END_READS, me.done[END_READS], at_end);
    counter_check(END_WRITES, me.done[END_WRITES], at_end);
    if (me.e.cntr[END_RECVS] && at_end)
        CHECK(fi_cntr_readerr(me.e.cntr[END_RECVS]) == me.errors, "errors of receives",
              (int64_t)me.errors, 0);
}

/* ---- a process ---- */

static void operate(void)
{
    uint64_t r = below(100);
    bool done = true;
    if (r < 36)
        done = send_one();
    else if (r < 66)
        done = recv_one();
    else if (r < 69)
        done = many_start();
    else if (r < 76)
        done = peek_one();
    else if (r < 84)
        done = cancel_or_claim(&me.recvs[below(RECVS)]);
    else if (r < 85)
        done = cancel_or_claim(&me.manys[below(MANYS)]);
    else if (r < 93)
        done = access_one();
    else if (r < 94)
        counters_check(false);
    else
        poll_one(below(20) == 0);
    me.operations += done;
}

/* The last numbers are known now. */
static void operations_end(void)
{
    for (int to = 0; to < ENDS; to++)
        atomic_store(&board->total[to][me.rank], me.sent[to]);
    atomic_store(&board->over[me.rank], true);
}

static bool all_received(void)
{
    for (int from = 0; from < ENDS; from++)
        if (!atomic_load(&board->over[from]) ||
            me.first[from] != atomic_load(&board->total[me.rank][from]))
            return false;
    return true;
}

static bool idle(void)
{
    for (int i = 0; i < OPS; i++)
        if (me.ops[i].kind != FREE)
            return false;
    return true;
}

/* Receive all that is left, then take back the receives that meet nothing. */
static void drain(void)
{
    while (!all_received() || !idle()) {
        bool all = all_received();
        for (int i = 0; i < RECVS; i++)
            if (all || below(50) == 0)
                (void)cancel_or_claim(&me.recvs[i]);
        for (int i = 0; i < MANYS; i++)
            if (all || below(50) == 0)
                (void)cancel_or_claim(&me.manys[i]);
        if (!all)
            recv_any();
        poll_one(false);
    }
}

/* Poll until all processes have come here. */
static void barrier(atomic_int *arrived)
{
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < ENDS)
        poll_one(false);
}

static void run(uint64_t quota)
{
    while (me.operations < quota) {
        operate();
        if (me.busy)
            me.busy--;
        else if (below(3) == 0)
            poll_one(false);
        else if (below(300) == 0)
            me.busy = below(300);
    }
    operations_end();
    drain();
    for (int i = 0; i < ENDS; i++)
        atomic_fetch_add(&board->added[i], me.added[i]);
    barrier(&board->finished);
    counters_check(true);
    CHECK(atomic_load(&me.region[ENDS]) == atomic_load(&board->added[me.rank]), "a sum",
          (int64_t)atomic_load(&me.region[ENDS]), 0);
    barrier(&board->checked);
}

/* ---- start and end ---- */

static void process_open(int rank, bool automatic)
{
    static const enum fi_threading threads[ENDS] = {FI_THREAD_DOMAIN, FI_THREAD_COMPLETION,
                                                    FI_THREAD_SAFE, FI_THREAD_DOMAIN};
    static const enum fi_cq_format formats[ENDS] = {FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_TAGGED,
                                                    FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_CONTEXT};
    struct end_how how = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV |
                                  FI_MULTI_RECV | (rank % 2 ? FI_SOURCE : 0),
                          .threading = threads[rank],
                          .progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL,
                          .format = formats[rank],
                          .wait_obj = rank % 2 ? FI_WAIT_UNSPEC : FI_WAIT_NONE,
                          .counters = rank == 1 || rank == 2,
                          .region = me.region,
                          .region_len = sizeof me.region};
    me.rank = rank;
    me.rand = test_mix(board->seed + (uint64_t)rank);
    me.format = how.format;
    me.sources = rank % 2;
    me.waits = rank % 2;
    end_open(&me.e, &how);
    ops_open();
    for (int from = 0; from < ENDS; from++)
        for (int k = 0; k < RING; k++)
            me.known[from][k] = (struct known){NEVER, NEVER, 0};
    end_name(&me.e, board->names[rank]);
    atomic_fetch_add(&board->opened, 1);
    while (atomic_load(&board->opened) < ENDS)
        sched_yield();
    for (int i = 0; i < ENDS; i++) { /* another order in each process */
        int other = (rank + i) % ENDS;
        me.addr[other] = end_insert(&me.e, board->names[other]);
    }
}

static int process(int rank, uint64_t quota, bool automatic)
{
    process_open(rank, automatic);
    run(quota);
    end_close(&me.e);
    ops_close();
    for (int i = 0; i < DIDS; i++)
        atomic_fetch_add(&board->did[i], me.did[i]);
    return 0;
}

static int report(uint64_t operations, uint64_t begin)
{
    static const char *const names[DIDS] = {"sent",      "received", "cut off", "by many",
                                            "found",     "claimed",  "dropped", "no match",
                                            "cancelled", "accesses"};
    int poor = 0;
    printf("seed %llu: %llu operations, all as in the model; %.1f s\n",
           (unsigned long long)board->seed, (unsigned long long)operations,
           (double)(test_now_ns() - begin) / 1e9);
    printf("counted operations: %llu\n", (unsigned long long)operations); /* by scripts/soak */
    for (int i = 0; i < DIDS; i++) {
        printf("# %-10s %llu\n", names[i], (unsigned long long)atomic_load(&board->did[i]));
        poor |= !atomic_load(&board->did[i]);
    }
    if (atomic_load(&board->did[DID_SEND]) !=
        atomic_load(&board->did[DID_RECEIVE]) + atomic_load(&board->did[DID_DROP]))
        poor = 1;
    if (poor)
        fprintf(stderr, "too little was done, or not all was received\n");
    return poor;
}

/* Wait for all; the first that fails ends the others. */
static int await(pid_t *children)
{
    int failed = 0, status;
    for (int left = ENDS; left; left--) {
        pid_t ended = wait(&status);
        for (int i = 0; i < ENDS; i++)
            children[i] = children[i] == ended ? 0 : children[i];
        if (ended < 0 || !status || failed)
            continue;
        failed = 1;
        if (WIFSIGNALED(status))
            fprintf(stderr, "a process was ended by signal %d\n", WTERMSIG(status));
        for (int i = 0; i < ENDS; i++)
            if (children[i])
                (void)kill(children[i], SIGKILL);
    }
    return failed;
}

int main(int argc, char **argv)
{
    uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000, begin = test_now_ns();
    pid_t children[ENDS];
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 2;
    board->seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    board->seed = board->seed ? board->seed : test_seed();
    for (int i = 0; i < ENDS; i++) {
        children[i] = fork();
        if (children[i] < 0)
            return 2;
        if (!children[i]) {
            alarm((unsigned)(60 + operations / 2000));
            _exit(process(i, operations / ENDS, argc > 3 && !strcmp(argv[3], "auto")));
        }
    }
    return await(children) || report(operations, begin);
}
