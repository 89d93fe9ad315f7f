/* SPDX-License-Identifier: BSD-3-Clause */
/* many_senders [SENDERS] [PAIRS] [MESSAGES]: the cost of one active sender at a receiver to which
 * SENDERS are connected, over its cost alone.
 *
 * The receiver has two endpoints: the active sender is connected to both, the
 * others (endpoints of a second, sleeping process) to one of them. One-way
 * messages of 8 bytes, then ping-pong, to either in turn; medians, and the median
 * of the pairs' ratios. Prints one JSON object per test. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "bind.h"
#include "common.h"

enum { NOTE = 1, ASK = 2, ANSWER = 3, ALONE = 0, CROWDED = 1, LAT = 0, RATE = 1 };

#define LIMIT_S 300

struct order {
    int test, which;
    uint64_t messages;
};

struct names {
    unsigned char addr[2][WEFT_ADDR_MAX];
    size_t len[2];
};

static uint64_t received, answered, wrong;

static void on_note(const struct weft_am *am)
{
    uint64_t word;
    memcpy(&word, am->data, sizeof word);
    wrong += am->len != sizeof word || word != received;
    received++;
}

static void on_ask(const struct weft_am *am)
{
    received++;
    if (am->can_reply)
        wrong += weft_am_reply(am, ANSWER, NULL, 0, am->data, am->len) != WEFT_OK;
}

static void on_answer(const struct weft_am *am)
{
    (void)am;
    answered++;
}

static void say(int fd, const void *p, size_t n)
{
    CHECK(write(fd, p, n) == (ssize_t)n);
}

static int hear(int fd, void *p, size_t n)
{
    return read(fd, p, n) == (ssize_t)n;
}

static struct weft_peer *peer_open(struct weft_ep *ep, const struct names *n, int which)
{
    struct weft_peer *peer;
    CHECK(!weft_peer_open(ep, n->addr[which], n->len[which], &peer));
    return peer;
}

static void send_one(struct weft_ep *ep, struct weft_peer *peer, unsigned handler, uint64_t word,
                     size_t reply_max)
{
    enum weft_status status;
    while ((status = weft_am_request(peer, handler, NULL, 0, &word, sizeof word, reply_max)) ==
           WEFT_AGAIN)
        CHECK(weft_ep_poll(ep) >= 0);
    CHECK(status == WEFT_OK);
}

/* Endpoints that send one message each and are then silent. */
static void idle_main(const struct names *n, int senders, int from_parent, int to_parent)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    char byte = 0;
    CHECK(!weft_ctx_open(NULL, &ctx));
    for (int i = 0; i < senders; i++) {
        CHECK(!weft_ep_open(ctx, NULL, &ep));
        send_one(ep, peer_open(ep, n, CROWDED), ASK, 0, 0);
    }
    say(to_parent, &byte, 1);
    (void)hear(from_parent, &byte, 1); /* until the parent is done */
    _exit(0);
}

static void active_main(const struct names *n, int from_parent, int to_parent)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer[2];
    struct order o;
    char byte = 0;
    (void)bind_to(1);
    CHECK(!weft_ctx_open(NULL, &ctx));
    CHECK(!weft_ep_open(ctx, NULL, &ep));
    CHECK(!weft_am_register(ep, ANSWER, on_answer, NULL));
    for (int i = 0; i < 2; i++) {
        peer[i] = peer_open(ep, n, i);
        send_one(ep, peer[i], ASK, 0, 0);
    }
    say(to_parent, &byte, 1);
    while (hear(from_parent, &o, sizeof o))
        for (uint64_t i = 0; i < o.messages; i++) {
            uint64_t before = answered;
            send_one(ep, peer[o.which], o.test == RATE ? NOTE : ASK, i, o.test == RATE ? 0 : 9);
            while (o.test == LAT && answered == before)
                CHECK(weft_ep_poll(ep) >= 0);
        }
    _exit(0);
}

struct bench {
    struct weft_ep *ep[2];
    struct names names;
    int to_active;
};

static void await(struct weft_ep *ep, uint64_t count)
{
    while (received < count)
        CHECK(weft_ep_poll(ep) >= 0);
}

/* Nanoseconds per message (RATE) or per round trip (LAT). */
static double run(struct bench *b, int test, int which, uint64_t messages)
{
    struct order o = {test, which, messages};
    uint64_t start, first = messages / 16;
    received = 0;
    say(b->to_active, &o, sizeof o);
    await(b->ep[which], first);
    start = now_ns();
    await(b->ep[which], messages);
    return (double)(now_ns() - start) / (double)(messages - first);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n & 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void measure(struct bench *b, const char *name, int test, int senders, int pairs,
                    uint64_t messages)
{
    double *v[3];
    for (int i = 0; i < 3; i++)
        CHECK((v[i] = calloc((size_t)pairs, sizeof *v[i])) != NULL);
    (void)run(b, test, ALONE, messages);
    (void)run(b, test, CROWDED, messages); /* the silent ones go cold here */
    for (int i = 0; i < pairs; i++) {
        v[0][i] = run(b, test, i & 1 ? CROWDED : ALONE, messages);
        v[1][i] = run(b, test, i & 1 ? ALONE : CROWDED, messages);
        if (i & 1) {
            double swap = v[0][i];
            v[0][i] = v[1][i];
            v[1][i] = swap;
        }
        v[2][i] = v[1][i] / v[0][i];
    }
    printf("{\"test\": \"%s\", \"senders\": %d, \"pairs\": %d, \"alone_ns\": %.2f, \"crowded_ns\": "
           "%.2f, \"ratio\": %.3f, \"wrong\": %llu}\n",
           name, senders, pairs, median(v[0], pairs), median(v[1], pairs), median(v[2], pairs),
           (unsigned long long)wrong);
    for (int i = 0; i < 3; i++)
        free(v[i]);
}

static int child_start(struct bench *b, int senders, int *to, pid_t *pid)
{
    int down[2], up[2];
    CHECK(!pipe(down) && !pipe(up));
    *pid = fork();
    CHECK(*pid >= 0);
    if (!*pid) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(LIMIT_S);
        close(down[1]);
        close(up[0]);
        CHECK(hear(down[0], &b->names, sizeof b->names));
        if (senders)
            idle_main(&b->names, senders, down[0], up[1]);
        else
            active_main(&b->names, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    *to = down[1];
    return up[0];
}

static void endpoints_open(struct bench *b)
{
    struct weft_ctx *ctx;
    CHECK(!weft_ctx_open(NULL, &ctx));
    for (int i = 0; i < 2; i++) {
        b->names.len[i] = WEFT_ADDR_MAX;
        CHECK(!weft_ep_open(ctx, NULL, &b->ep[i]) &&
              !weft_am_register(b->ep[i], NOTE, on_note, NULL) &&
              !weft_am_register(b->ep[i], ASK, on_ask, NULL) &&
              !weft_ep_address(b->ep[i], b->names.addr[i], &b->names.len[i]));
    }
}

int main(int argc, char **argv)
{
    int senders = argc > 1 ? atoi(argv[1]) : 1000, pairs = argc > 2 ? atoi(argv[2]) : 15;
    uint64_t messages = argc > 3 ? strtoull(argv[3], NULL, 0) : 2000000;
    struct bench b = {.to_active = -1};
    struct rlimit files;
    int to_idle, up[2];
    pid_t pids[2];
    if (senders < 2 || pairs < 1 || messages < 1000) {
        fprintf(stderr, "usage: %s [SENDERS >= 2] [PAIRS] [MESSAGES >= 1000]\n", argv[0]);
        return 2;
    }
    if (!getrlimit(RLIMIT_NOFILE, &files)) { /* one or two descriptors per connection */
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    alarm(LIMIT_S);
    up[0] = child_start(&b, senders - 1, &to_idle, &pids[0]); /* before there are threads */
    up[1] = child_start(&b, 0, &b.to_active, &pids[1]);
    endpoints_open(&b);
    (void)bind_to(0);
    say(to_idle, &b.names, sizeof b.names);
    say(b.to_active, &b.names, sizeof b.names);
    while (received < (uint64_t)senders + 1)
        for (int i = 0; i < 2; i++)
            CHECK(weft_ep_poll(b.ep[i]) >= 0);
    for (int i = 0; i < 2; i++) {
        char byte;
        CHECK(hear(up[i], &byte, 1));
    }
    measure(&b, "rate", RATE, senders, pairs, messages);
    measure(&b, "round_trip", LAT, senders, pairs, messages / 20);
    close(to_idle);
    close(b.to_active);
    for (int i = 0; i < 2; i++)
        (void)waitpid(pids[i], NULL, 0);
    return wrong != 0;
}
