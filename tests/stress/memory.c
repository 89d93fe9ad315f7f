/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_test [PROCESSES] [ENDPOINTS] [MESSAGES]: what rings take when every endpoint
 * has sent to every endpoint of the other processes, short and long, with replies.
 * Prints the bound for 128 processes of 64 endpoints, too, and what a peer takes to which nothing
 * was sent.
 *
 * Fails when: the processes' rings together take more than the bound, such a peer takes more than
 * its bound, peers that have gone take more than a chunk, a peer that comes and goes allocates each
 * time, a message is lost, or a process waits for ever (the alarm). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract/support.h"
#include "config/config.h"
#include "transport/shm/shm.h"

enum { ASK = 1, ANSWER = 2, MAX = 64 };
/* Peers to which nothing is sent, as many as fill their chunks; and what each may take, with its
 * share of its chunk's head and of the allocator's word: 72 and 1, and the first chunks' heads. */
enum { UNTOUCHED = 16384, UNTOUCHED_BYTES = 74 };
/* What an endpoint may take for peers that have gone: a chunk of 64, and the first, small chunks,
 * which the allocator keeps for its thread. */
enum { CHUNK_BYTES = 64 * UNTOUCHED_BYTES + 4096 };

static unsigned processes = 3, endpoints = 6, messages = 600;

struct child {
    int to, from;
    pid_t pid;
};

struct name {
    unsigned char bytes[WEFT_ADDR_MAX];
};

static struct weft_ctx *ctx;
static struct weft_ep *ep[MAX];
static struct weft_peer *peer[MAX][MAX];
static unsigned sent[MAX][MAX];
static uint64_t received, answered, due;

static void check(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "memory_test: %s failed\n", what);
    exit(1);
}
#define CHECK(expression) check((expression), #expression)

static void on_ask(const struct weft_am *am)
{
    static const unsigned char data[1000];
    received++;
    if (am->can_reply)
        CHECK(!weft_am_reply(am, ANSWER, NULL, 0, data, sizeof data));
}

static void on_answer(const struct weft_am *am)
{
    (void)am;
    answered++;
}

static void poll_all(void)
{
    for (unsigned e = 0; e < endpoints; e++)
        CHECK(weft_ep_poll(ep[e]) >= 0);
}

/* One more message on each pair that takes one; what is still to be sent. */
static unsigned send_round(unsigned others)
{
    static const unsigned char data[1000];
    unsigned left = 0;
    for (unsigned e = 0; e < endpoints; e++)
        for (unsigned o = 0; o < others; o++) {
            unsigned n = sent[e][o];
            int reply = n % 5 == 0;
            enum weft_status status;
            left += messages - n;
            if (n == messages)
                continue;
            status = weft_am_request(peer[e][o], ASK, NULL, 0, data, n % 3 ? 8 : sizeof data,
                                     reply ? 1001 : 0);
            CHECK(status == WEFT_OK || status == WEFT_AGAIN);
            sent[e][o] += status == WEFT_OK;
            due += reply && status == WEFT_OK;
        }
    return left;
}

/* This process's share of what is mapped of all rings, bytes. */
static uint64_t rings_pss(void)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    uint64_t sum = 0, kib;
    int ring = 0;
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f)) {
        if (line[0] >= '0' && line[0] <= 'f' && (line[0] <= '9' || line[0] >= 'a')) /* a mapping */
            ring = strstr(line, "weft-ring") || strstr(line, "weft-back");
        if (ring && sscanf(line, "Pss: %lu kB", &kib) == 1)
            sum += kib * 1024;
    }
    fclose(f);
    return sum;
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Open peer number [i] of [fresh]. [other] is the address of an endpoint of another process. The
 * peers' addresses differ from it in the endpoint's number and generation (docs/protocol.md
 * "Addresses"). */
static struct weft_peer *untouched_open(struct weft_ep *fresh, const struct name *other, uint32_t i)
{
    struct weft_peer *untouched;
    struct name name = *other;
    uint16_t id = (uint16_t)(1 + i);
    uint32_t generation = 1000 + i;
    memcpy(name.bytes + 2, &id, sizeof id);
    memcpy(name.bytes + 4, &generation, sizeof generation);
    CHECK(!weft_peer_open(fresh, name.bytes, WF_ADDRESS_BYTES, &untouched));
    return untouched;
}

/* All chunks of the peers of [fresh] are full. A peer more takes a chunk of its own, which stays
 * when the peer goes, so that the next one allocates nothing. */
static void come_and_go(struct weft_ep *fresh, const struct name *other)
{
    size_t kept, before = allocated();
    CHECK(!weft_peer_close(untouched_open(fresh, other, UNTOUCHED)));
    kept = allocated();
    CHECK(kept <= before + CHUNK_BYTES);
    for (int i = 0; i < 3; i++) {
        struct weft_peer *next = untouched_open(fresh, other, UNTOUCHED);
        CHECK(allocated() == kept);
        CHECK(!weft_peer_close(next));
    }
}

/* Returns what an endpoint takes for a peer to which nothing was sent, bytes. */
static double untouched_cost(const struct name *other)
{
    static struct weft_peer *untouched[UNTOUCHED];
    struct weft_ep *fresh;
    size_t before, after;
    CHECK(!weft_ep_open(ctx, NULL, &fresh));
    before = allocated();
    for (uint32_t i = 0; i < UNTOUCHED; i++)
        untouched[i] = untouched_open(fresh, other, i);
    after = allocated();
    come_and_go(fresh, other);
    for (uint32_t i = 0; i < UNTOUCHED; i++)
        CHECK(!weft_peer_close(untouched[i]));
    CHECK(allocated() <= before + CHUNK_BYTES);
    CHECK(!weft_ep_close(fresh));
    return (double)(after - before) / UNTOUCHED;
}

static void say(int fd, const void *p, size_t n)
{
    CHECK(write(fd, p, n) == (ssize_t)n);
}

static void hear(int fd, void *p, size_t n)
{
    CHECK(read(fd, p, n) == (ssize_t)n);
}

/* Poll until the parent's start signal. */
static void poll_until_told(int from)
{
    char byte;
    CHECK(!fcntl(from, F_SETFL, O_NONBLOCK));
    while (read(from, &byte, 1) != 1)
        poll_all();
    CHECK(!fcntl(from, F_SETFL, 0));
}

static void endpoints_open(int to)
{
    struct name name[MAX] = {0};
    CHECK(!weft_ctx_open(NULL, &ctx));
    for (unsigned e = 0; e < endpoints; e++) {
        size_t len = sizeof name[e];
        CHECK(!weft_ep_open(ctx, NULL, &ep[e]) && !weft_am_register(ep[e], ASK, on_ask, NULL) &&
              !weft_am_register(ep[e], ANSWER, on_answer, NULL) &&
              !weft_ep_address(ep[e], name[e].bytes, &len));
    }
    say(to, name, endpoints * sizeof name[0]);
}

static void child_main(unsigned self, int from, int to)
{
    unsigned others = 0;
    uint64_t bytes;
    struct name last = {0};
    double cost;
    char byte = 0;
    endpoints_open(to);
    for (unsigned p = 0; p < processes; p++)
        for (unsigned o = 0; o < endpoints; o++) {
            struct name name;
            hear(from, &name, sizeof name);
            for (unsigned e = 0; e < endpoints && p != self; e++)
                CHECK(!weft_peer_open(ep[e], name.bytes, WF_ADDRESS_BYTES, &peer[e][others]));
            others += p != self;
            last = p == self ? last : name;
        }
    while (send_round(others) || answered < due)
        poll_all();
    say(to, &byte, 1);
    poll_until_told(from);
    CHECK(received == (uint64_t)endpoints * others * messages);
    bytes = rings_pss();
    say(to, &bytes, sizeof bytes);
    hear(from, &byte, 1); /* all have measured */
    cost = untouched_cost(&last);
    say(to, &cost, sizeof cost);
    _exit(0);
}

static void child_start(struct child *c, unsigned self)
{
    int down[2], up[2];
    CHECK(!pipe(down) && !pipe(up));
    c->pid = fork();
    CHECK(c->pid >= 0);
    if (!c->pid) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(100);
        child_main(self, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    c->to = down[1];
    c->from = up[0];
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

int main(int argc, char **argv)
{
    static struct child c[MAX];
    static struct name names[MAX * MAX];
    uint64_t sum = 0, bytes, bound, am_max = 4096;
    double cost, most = 0;
    char byte = 0;
    int status, failed = 0;
    processes = argc > 1 ? (unsigned)atoi(argv[1]) : processes;
    endpoints = argc > 2 ? (unsigned)atoi(argv[2]) : endpoints;
    messages = argc > 3 ? (unsigned)atoi(argv[3]) : messages;
    CHECK(processes >= 2 && endpoints && processes * endpoints <= MAX);
    for (unsigned p = 0; p < processes; p++)
        child_start(&c[p], p);
    for (unsigned p = 0; p < processes; p++)
        hear(c[p].from, &names[p * endpoints], endpoints * sizeof names[0]);
    for (unsigned p = 0; p < processes; p++)
        say(c[p].to, names, processes * endpoints * sizeof names[0]);
    for (unsigned p = 0; p < processes; p++)
        hear(c[p].from, &byte, 1);
    for (unsigned p = 0; p < processes; p++)
        say(c[p].to, &byte, 1);
    for (unsigned p = 0; p < processes; p++) {
        hear(c[p].from, &bytes, sizeof bytes);
        sum += bytes;
    }
    for (unsigned p = 0; p < processes; p++)
        say(c[p].to, &byte, 1);
    for (unsigned p = 0; p < processes; p++) {
        hear(c[p].from, &cost, sizeof cost);
        most = WF_MAX(most, cost);
    }
    for (unsigned p = 0; p < processes; p++)
        failed |= waitpid(c[p].pid, &status, 0) != c[p].pid || status;
    CHECK(wf_config_init() == WEFT_OK);
    bound = processes * wf_shm_memory_bound(endpoints, (uint32_t)am_max);
    printf("%u processes x %u endpoints: rings take %.1f MiB, at most %.1f MiB\n", processes,
           endpoints, mib(sum), mib(bound));
    printf("128 processes x 64 endpoints: at most %.1f MiB, %.1f a process\n",
           mib(128 * wf_shm_memory_bound(64, (uint32_t)am_max)),
           mib(wf_shm_memory_bound(64, (uint32_t)am_max)));
    printf("a peer to which nothing was sent: %.1f bytes, at most %d\n", most, UNTOUCHED_BYTES);
    CHECK(!failed && sum <= bound && sum > 0 && most <= UNTOUCHED_BYTES);
    return 0;
}
