/* SPDX-License-Identifier: BSD-3-Clause */
/* frag_order [PAIRS] [MILLISECONDS] [TRANSPORT]: what order that is asked for in one pair of
 * fragments of a hundred costs the other ninety-nine.
 *
 * One process sends pairs of fragments to another one, by shared memory and then by TCP over the
 * loopback interface with WEFT_TCP_LANES (else 4): two messages of 8 bytes, and a put with a
 * message. In turn, PAIRS times (else 15), each for MILLISECONDS (else 60), and in another order
 * each time:
 *
 *     none   no second one follows its first one
 *     one    of every hundred one does
 *     all    every one does
 *     again  as none: how much two measurements of the same differ
 *
 * All else is the same: the same calls, the same memory. Prints pairs of fragments per second,
 * medians, and the medians and quartiles of the ratios to the "none" of the same turn; then
 * how busy other programs kept the machine. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/frag.h>
#include <weft/weft.h>

#include "common.h"

enum { FIRST = 1, SECOND, ROUND, DONE };
enum arm { NONE, ONE, ALL, AGAIN, ARMS };
static const char *const arm_names[ARMS] = {"none", "one", "all", "again"};
static const unsigned every[ARMS] = {0, 100, 1, 0}; /* which pairs are ordered */

#define KINDS 2
static const char *const kind_names[KINDS] = {"8 B, 8 B", "put 8 KiB, 0 B"};
#define PUT_LEN 8192u
#define WINDOW 256u /* pairs whose put may be under way */
#define TURNS_MAX 1000
#define LIMIT_S 300
/* Of the cores' time, spent by others: more makes figures doubtful. */
#define BUSY 0.10

struct name {
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len, key_len;
};

struct end {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct weft_peer *peer;
    struct weft_remote *remote;
    int in, out; /* pipes to the other process */
};

/* Receiver: blocks of this round, and their number. Sender: rounds that are over. */
static uint64_t received, expected, done;

/* ---- both ends ---- */

static void on_part(const struct weft_am *am)
{
    (void)am;
    received++;
}

static void on_round(const struct weft_am *am)
{
    memcpy(&expected, am->data, sizeof expected);
}

static void on_done(const struct weft_am *am)
{
    (void)am;
    done++;
}

static void end_open(struct end *e)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "a measurement's";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct name mine = {.addr_len = WEFT_ADDR_MAX, .key_len = WEFT_KEY_MAX}, theirs;
    params.flags = WEFT_CTX_NETWORK;
    CHECK(!weft_ctx_open(&params, &e->ctx) && !weft_ctx_set_key(e->ctx, key, sizeof key));
    weft_ctx_set_local_ranks(e->ctx, 2);
    CHECK(!weft_ep_open(e->ctx, NULL, &e->ep));
    CHECK(!weft_am_register(e->ep, FIRST, on_part, NULL) &&
          !weft_am_register(e->ep, SECOND, on_part, NULL) &&
          !weft_am_register(e->ep, ROUND, on_round, NULL) &&
          !weft_am_register(e->ep, DONE, on_done, NULL));
    CHECK(!weft_mem_alloc(e->ctx, (size_t)WINDOW * PUT_LEN, WEFT_REMOTE_WRITE, &e->mr));
    CHECK(!weft_ep_address(e->ep, mine.addr, &mine.addr_len));
    CHECK(!weft_mr_key(e->mr, mine.key, &mine.key_len));
    CHECK(write(e->out, &mine, sizeof mine) == sizeof mine);
    CHECK(read(e->in, &theirs, sizeof theirs) == sizeof theirs);
    CHECK(!weft_peer_open(e->ep, theirs.addr, theirs.addr_len, &e->peer));
    CHECK(!weft_remote_open(e->peer, theirs.key, theirs.key_len, &e->remote));
}

static void tell(struct end *e, unsigned handler, uint64_t word)
{
    enum weft_status status;
    while ((status = weft_am_request(e->peer, handler, NULL, 0, &word, sizeof word, 0)) ==
           WEFT_AGAIN)
        CHECK(weft_ep_poll(e->ep) >= 0);
    CHECK(status == WEFT_OK);
}

/* Until the sender leaves. */
static void receiver_main(struct end *e)
{
    end_open(e);
    while (weft_peer_status(e->peer) == WEFT_OK) {
        CHECK(weft_ep_wait(e->ep, 1000000000) >= 0);
        if (expected && received == expected) {
            received = expected = 0;
            tell(e, DONE, 0);
        }
    }
    _exit(0);
}

/* ---- sender ---- */

static void message_send(struct end *e, unsigned handler, size_t len, const void *order,
                         struct weft_frag **out)
{
    enum weft_status status;
    CHECK(!weft_frag_alloc(e->peer, len, order, out));
    memset(weft_frag_data(*out), 7, len);
    while ((status = weft_frag_send(*out, handler, NULL, 0)) == WEFT_AGAIN)
        CHECK(weft_ep_poll(e->ep) >= 0);
    CHECK(status == WEFT_OK);
}

static void put_free(struct end *e, struct weft_frag **put)
{
    enum weft_status status = WEFT_OK;
    while (*put && (status = weft_frag_free(*put)) == WEFT_EBUSY)
        CHECK(weft_ep_poll(e->ep) >= 0);
    CHECK(status == WEFT_OK);
    *put = NULL;
}

static void put_start(struct end *e, uint64_t i, struct weft_frag **out)
{
    static const unsigned char bytes[PUT_LEN];
    enum weft_status status;
    put_free(e, out); /* that of WINDOW pairs ago */
    CHECK(!weft_frag_prepare(e->remote, i % WINDOW * PUT_LEN, bytes, PUT_LEN, NULL, out));
    while ((status = weft_frag_put(*out, NULL)) == WEFT_AGAIN)
        CHECK(weft_ep_poll(e->ep) >= 0);
    CHECK(status == WEFT_OK || status == WEFT_PENDING);
}

/* A third one now and then, that nobody follows: else pairs and lanes fall into step, and which
 * lanes have the puts decides. splitmix64's finalizer. */
static int has_third(uint64_t i)
{
    i = (i ^ i >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    i = (i ^ i >> 27) * UINT64_C(0x94d049bb133111eb);
    return (i ^ i >> 31) % 4 == 0;
}

/* Returns how many messages it was. */
static uint64_t pair_send(struct end *e, int kind, uint64_t i, int ordered)
{
    static struct weft_frag *puts[WINDOW];
    struct weft_frag *first, *second, *third;
    uint64_t n = kind ? 1 : 2;
    if (kind)
        put_start(e, i, &puts[i % WINDOW]);
    else
        message_send(e, FIRST, 8, NULL, &first);
    if (kind)
        first = puts[i % WINDOW];
    message_send(e, SECOND, kind ? 0 : 8, ordered ? weft_frag_order(first) : NULL, &second);
    CHECK(!weft_frag_free(second));
    if (!kind)
        CHECK(!weft_frag_free(first));
    if (has_third(i)) {
        message_send(e, FIRST, 8, NULL, &third);
        CHECK(!weft_frag_free(third));
        n++;
    }
    return n;
}

/* Pairs per second: until the receiver has all of them, and all puts are complete. */
static double run(struct end *e, int kind, enum arm arm, uint64_t pairs)
{
    uint64_t start = now_ns(), before = done, messages = 0;
    enum weft_status status;
    for (uint64_t i = 0; i < pairs; i++) {
        messages += pair_send(e, kind, i, every[arm] && i % every[arm] == 0);
        if (i % 32 == 0)
            CHECK(weft_ep_poll(e->ep) >= 0);
    }
    tell(e, ROUND, messages);
    while ((status = weft_flush(e->peer, NULL)) == WEFT_PENDING)
        CHECK(weft_ep_poll(e->ep) >= 0);
    CHECK(status == WEFT_OK);
    while (done == before)
        CHECK(weft_ep_wait(e->ep, 1000000000) >= 0 && weft_peer_status(e->peer) == WEFT_OK);
    return (double)pairs * 1e9 / (double)(now_ns() - start);
}

/* Sorts [v]. */
static double quantile(double *v, int n, double q)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[(int)(q * (n - 1) + 0.5)];
}

static void report(const char *transport, int kind, double v[ARMS][TURNS_MAX], int turns)
{
    printf("%-4s %-15s", transport, kind_names[kind]);
    for (int arm = NONE + 1; arm < ARMS; arm++) {
        double ratio[TURNS_MAX];
        for (int i = 0; i < turns; i++)
            ratio[i] = v[arm][i] / v[NONE][i];
        printf("  %s %.3f [%.3f, %.3f]", arm_names[arm], quantile(ratio, turns, 0.5),
               quantile(ratio, turns, 0.25), quantile(ratio, turns, 0.75));
    }
    printf("  pairs/s: none %.0f, one %.0f\n", quantile(v[NONE], turns, 0.5),
           quantile(v[ONE], turns, 0.5));
}

static void measure(struct end *e, const char *transport, int kind, int turns, int ms)
{
    static double v[ARMS][TURNS_MAX];
    uint64_t pairs = 1000;
    for (int i = 0; i < 3; i++) /* it warms up, too */
        pairs = (uint64_t)(run(e, kind, NONE, pairs) * ms / 1000) / 100 * 100 + 100;
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < ARMS; i++) {
            int arm = (i * (turn / ARMS % 2 ? ARMS - 1 : 1) + turn) % ARMS;
            v[arm][turn] = run(e, kind, (enum arm)arm, pairs);
        }
    report(transport, kind, v, turns);
}

static void sender_main(struct end *e, const char *transport, int turns, int ms)
{
    end_open(e);
    for (int kind = 0; kind < KINDS; kind++)
        measure(e, transport, kind, turns, ms);
    fflush(stdout);
    _exit(0);
}

/* ---- the two processes, and the others ---- */

static pid_t child_start(struct end *e, const char *transport, int turns, int ms)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIMIT_S);
    CHECK(!setenv("WEFT_TRANSPORTS", transport, 1) && !setenv("WEFT_TCP_LANES", "4", 0));
    if (turns)
        sender_main(e, transport, turns, ms);
    receiver_main(e);
    return 0;
}

static int measured(const char *transport, int turns, int ms)
{
    int there[2], back[2], status[2];
    struct end sender = {0}, receiver = {0};
    pid_t pids[2];
    CHECK(!pipe(there) && !pipe(back));
    sender.out = there[1];
    receiver.in = there[0];
    receiver.out = back[1];
    sender.in = back[0];
    pids[0] = child_start(&receiver, transport, 0, 0);
    pids[1] = child_start(&sender, transport, turns, ms);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
    CHECK(waitpid(pids[1], &status[1], 0) == pids[1]);
    CHECK(waitpid(pids[0], &status[0], 0) == pids[0]); /* it sees that the sender left */
    return !status[1];
}

/* Seconds that all cores have spent on anything, and on nothing. */
static void cores(double *busy, double *idle)
{
    double t[8] = {0}, hz = (double)sysconf(_SC_CLK_TCK);
    FILE *f =
        fopen("/proc/stat", "re"); /* proc(5): user nice system idle iowait irq softirq steal */
    CHECK(f && fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", t, t + 1, t + 2, t + 3, t + 4,
                      t + 5, t + 6, t + 7) == 8);
    fclose(f);
    *busy = (t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / hz;
    *idle = (t[3] + t[4]) / hz;
}

static double own_cpu(void)
{
    struct rusage u;
    CHECK(!getrusage(RUSAGE_CHILDREN, &u));
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    static const char *const transports[] = {"shm", "tcp"};
    int turns = argc > 1 ? atoi(argv[1]) : 15, ms = argc > 2 ? atoi(argv[2]) : 60;
    double busy[2], idle[2], others;
    int ok = 1;
    if (turns < 9 || turns > TURNS_MAX || ms < 1 || ms > 10000) {
        fprintf(stderr, "usage: %s [PAIRS, 9 to %d] [MILLISECONDS] [shm | tcp]\n", argv[0],
                TURNS_MAX);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    cores(&busy[0], &idle[0]);
    for (int i = 0; i < 2; i++)
        if (argc <= 3 || !strcmp(argv[3], transports[i]))
            ok &= measured(transports[i], turns, ms);
    cores(&busy[1], &idle[1]);
    others = (busy[1] - busy[0] - own_cpu()) / (busy[1] - busy[0] + idle[1] - idle[0]);
    printf("other programs had %.0f%% of the cores' time%s\n", others > 0 ? others * 100 : 0.0,
           others > BUSY ? ": busy, the figures are doubtful" : "");
    return !ok;
}
