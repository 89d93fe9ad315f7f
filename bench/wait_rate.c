/* SPDX-License-Identifier: BSD-3-Clause */
/* wait_rate [MESSAGES] [ROUNDS]: messages that a rank handles per second while it waits, by the
 * call that waits.
 *
 *     weft run -n 2 -- build/bench/wait_rate
 *     WEFT_TRANSPORTS=loop,tcp weft run -n 2 -- build/bench/wait_rate
 *
 * Rank 0 sends empty active messages as fast as it can, and then what the wait of rank 1 is for. In
 * each round every wait has its turn, so that they share the machine's moods. Prints the median of
 * the rounds, in millions a second, and its ratio to that of weft_ep_wait. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/event.h>
#include <weft/job.h>
#include <weft/msg.h>

#include "common.h"

enum { NOTE = 1, WORD_LEN = 64 };
#define LIMIT_NS 20000000000ll
#define ROUNDS_MAX 99

static struct weft_job *job;
static struct weft_ep *ep;
static struct weft_peer *peer;
static struct weft_mr *mr;
static struct weft_remote *remotes[2];
static struct weft_counter *counter;
static uint64_t seen, target, turn;

static void on_note(const struct weft_am *am)
{
    (void)am;
    if (++seen == target && counter)
        CHECK(!weft_counter_add(counter, 1));
}

/* ---- the waits of rank 1, and what rank 0 does to end them ---- */

static void by_ep_wait(void)
{
    while (seen < target)
        CHECK(weft_ep_wait(ep, LIMIT_NS) > 0);
}

static void by_word_wait(void)
{
    CHECK(!weft_word_wait(ep, weft_mr_base(mr), turn, peer, LIMIT_NS));
}

static void by_op_wait(void)
{
    struct weft_op op = {0};
    uint64_t buf;
    enum weft_status status = weft_msg_recv(ep, peer, turn, UINT64_MAX, &buf, sizeof buf, &op);
    if (status == WEFT_PENDING)
        status = weft_op_wait(ep, &op, LIMIT_NS);
    CHECK(status == WEFT_OK);
}

static void by_counter_wait(void)
{
    CHECK(!weft_counter_wait(counter, ep, turn, LIMIT_NS));
}

static void by_barrier(void)
{
    CHECK(!weft_job_barrier(job));
}

static void by_split_barrier(void)
{
    CHECK(!weft_job_barrier_notify(job, 7, 0));
    CHECK(!weft_job_barrier_wait(job, 7, 0));
}

static void by_allgather(void)
{
    uint64_t mine = turn, all[2];
    CHECK(!weft_job_allgather(job, &mine, sizeof mine, all));
}

static void send_nothing(void)
{
}

static void send_signal(void)
{
    struct weft_op op = {0};
    enum weft_status status =
        weft_put_signal(remotes[1], 0, NULL, 0, remotes[1], 0, turn, WEFT_SIGNAL_SET, &op);
    if (status == WEFT_PENDING)
        status = weft_op_wait(ep, &op, LIMIT_NS);
    CHECK(status == WEFT_OK);
}

static void send_message(void)
{
    struct weft_op op = {0};
    enum weft_status status;
    while ((status = weft_msg_send(peer, turn, &turn, sizeof turn, &op)) == WEFT_AGAIN)
        CHECK(weft_ep_poll(ep) >= 0);
    if (status == WEFT_PENDING)
        status = weft_op_wait(ep, &op, LIMIT_NS);
    CHECK(status == WEFT_OK);
}

static const struct wait {
    const char *name;
    void (*await)(void), (*end)(void);
} waits[] = {
    {"weft_ep_wait", by_ep_wait, send_nothing},
    {"weft_word_wait", by_word_wait, send_signal},
    {"weft_op_wait", by_op_wait, send_message},
    {"weft_counter_wait", by_counter_wait, send_nothing},
    {"weft_job_barrier", by_barrier, by_barrier},
    {"weft_job_barrier_wait", by_split_barrier, by_split_barrier},
    {"weft_job_allgather", by_allgather, by_allgather},
};
#define WAITS (sizeof waits / sizeof *waits)

static void send_all(uint64_t messages)
{
    for (uint64_t i = 0; i < messages; i++) {
        enum weft_status status;
        while ((status = weft_am_request(peer, NOTE, NULL, 0, NULL, 0, 0)) == WEFT_AGAIN)
            CHECK(weft_ep_poll(ep) >= 0);
        CHECK(status == WEFT_OK);
    }
}

/* Millions of messages a second, as rank 1 sees them. */
static double one_round(const struct wait *w, uint64_t messages)
{
    uint64_t begun, before = seen;
    turn++;
    target = seen + messages;
    CHECK(!weft_job_barrier(job));
    begun = now_ns();
    if (weft_job_rank(job) == 0) {
        send_all(messages);
        w->end();
    } else {
        w->await();
    }
    begun = now_ns() - begun;
    CHECK(!weft_job_barrier(job));
    while (weft_job_rank(job) == 1 && seen < target) /* TCP: what the end was ahead of */
        CHECK(weft_ep_wait(ep, LIMIT_NS) > 0);
    /* A counter that counts all of them has one more by now, whichever wait it was. */
    if (counter)
        CHECK(!weft_counter_set(counter, turn));
    return (double)(seen - before) * 1e3 / (double)begun;
}

int main(int argc, char **argv)
{
    uint64_t messages = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 9;
    static double rates[WAITS][ROUNDS_MAX];
    CHECK(messages > 0 && rounds > 0 && rounds <= ROUNDS_MAX);
    CHECK(!weft_job_open(NULL, &job));
    CHECK(weft_job_size(job) == 2);
    ep = weft_job_ep(job);
    peer = weft_job_peer(job, !weft_job_rank(job));
    if (weft_job_rank(job) == 1)
        CHECK(!weft_counter_open(&counter));
    CHECK(!weft_am_register(ep, NOTE, on_note, NULL));
    CHECK(!weft_job_mem_alloc(job, WORD_LEN, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr, remotes));
    for (unsigned r = 0; r < rounds; r++)
        for (size_t i = 0; i < WAITS; i++)
            rates[i][r] = one_round(&waits[i], messages);
    for (size_t i = 0; i < WAITS && weft_job_rank(job) == 1; i++) {
        qsort(rates[i], rounds, sizeof rates[i][0], ascending);
        printf("%-22s %8.3f million/s  %5.2f\n", waits[i].name, rates[i][rounds / 2],
               rates[i][rounds / 2] / rates[0][rounds / 2]);
    }
    if (counter)
        CHECK(!weft_counter_close(counter));
    for (int i = 0; i < 2; i++)
        CHECK(!weft_remote_close(remotes[i]));
    CHECK(!weft_mr_close(mr));
    CHECK(!weft_job_close(job));
    return 0;
}
