/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets between the processes of one node and those of another, both on this machine. Each
 * process of the first node puts to, or gets from, all of the second one in turn.
 *
 *     node_traffic TEST PROCESSES COUNT own|shared [private]
 *
 * connect   COUNT puts of 8 bytes to each target at once: the slowest process's time for the first
 *           of them to all targets, and for all
 * latency   COUNT puts of 8 bytes of each process, one by one: their p50, p99, p99.9
 * rate      COUNT puts of 1 MiB of each process, 4 at a time
 * gets      as rate, with gets
 * messages  as rate, with tagged messages, whose receives are posted
 * fair      as rate, but the last process puts 8 bytes, one by one, until the others have ended
 * fairgets  as fair, but the others get
 *
 * own: each process has its own connections; shared: its node's service has them. private: the
 * targets' memory is their own (weft_mr_register), not of weft_mem_alloc. Prints an object of JSON.
 * bench/node-traffic compares. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "common.h"

#define PROCESSES_MAX 64
#define SIZE ((size_t)1 << 20)
#define WINDOW 4
#define RECEIVES 8 /* of "messages", that are posted */
#define TIMES_MAX 100000
#define PATIENCE_NS 120000000000u
enum { SOURCES, TARGETS, NODES };

struct card {
    uint8_t address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
};

/* What all processes share. */
struct board {
    struct card cards[PROCESSES_MAX];
    char transport[32], protocol[32], message[32];
    _Atomic unsigned arrived, ended;
    double first_s[PROCESSES_MAX], all_s[PROCESSES_MAX];
    uint32_t ntimes[PROCESSES_MAX];
    uint32_t times[PROCESSES_MAX][TIMES_MAX]; /* ns of a put */
};

struct place {
    struct board *board;
    unsigned processes, number;
    long count;
    bool crowded; /* more processes than processors */
    bool is_private;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct weft_peer *peers[PROCESSES_MAX]; /* the targets */
    struct weft_remote *to[PROCESSES_MAX];
    uint8_t *from;
};

static void turn(struct place *p)
{
    CHECK(weft_ep_poll(p->ep) >= 0);
    if (p->crowded)
        sched_yield();
}

/* Wait until [counter] is [value], and handle what comes meanwhile. */
static void await(struct place *p, _Atomic unsigned *counter, unsigned value)
{
    const uint64_t end = now_ns() + PATIENCE_NS;
    while (atomic_load(counter) < value) {
        CHECK(now_ns() < end);
        turn(p);
    }
}

static void put(struct place *p, unsigned to, size_t len, struct weft_op *op)
{
    enum weft_status s;
    while ((s = weft_put(p->to[to], 0, p->from, len, op)) == WEFT_AGAIN)
        turn(p);
    CHECK(s == WEFT_OK || s == WEFT_PENDING);
}

static void complete(struct place *p, struct weft_op *op)
{
    const uint64_t end = now_ns() + PATIENCE_NS;
    while (op->status == WEFT_PENDING) {
        CHECK(now_ns() < end);
        turn(p);
    }
    CHECK(op->status == WEFT_OK);
}

/* ---- the tests, in each process of the first node ---- */

static void connect_all(struct place *p)
{
    static struct weft_op ops[PROCESSES_MAX];
    const uint64_t begin = now_ns();
    for (long n = 0; n < p->count; n++) {
        for (unsigned to = 0; to < p->processes; to++)
            put(p, to, 8, &ops[to]);
        for (unsigned to = 0; to < p->processes; to++)
            complete(p, &ops[to]);
        if (!n)
            p->board->first_s[p->number] = (double)(now_ns() - begin) / 1e9;
    }
    p->board->all_s[p->number] = (double)(now_ns() - begin) / 1e9;
}

/* Returns the nanoseconds of a put of 8 bytes. */
static uint64_t put_once(struct place *p, unsigned to)
{
    struct weft_op op = {0};
    const uint64_t begin = now_ns();
    put(p, to, 8, &op);
    complete(p, &op);
    return now_ns() - begin;
}

static void note(struct place *p, uint64_t ns)
{
    uint32_t *n = &p->board->ntimes[p->number];
    if (*n < TIMES_MAX)
        p->board->times[p->number][(*n)++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static void latency(struct place *p)
{
    for (long n = 0; n < p->count; n++)
        note(p, put_once(p, (unsigned)((p->number + n) % p->processes)));
}

static void get(struct place *p, unsigned to, size_t len, struct weft_op *op)
{
    enum weft_status s;
    while ((s = weft_get(p->to[to], 0, p->from, len, op)) == WEFT_AGAIN)
        turn(p);
    CHECK(s == WEFT_OK || s == WEFT_PENDING);
}

static void stream(struct place *p,
                   void (*begins)(struct place *p, unsigned to, size_t len, struct weft_op *op))
{
    static struct weft_op ops[WINDOW];
    const uint64_t begin = now_ns();
    for (long n = 0; n < p->count + WINDOW; n++) {
        struct weft_op *op = &ops[n % WINDOW];
        if (n >= WINDOW)
            complete(p, op);
        if (n < p->count)
            begins(p, (unsigned)((p->number + n) % p->processes), SIZE, op);
    }
    p->board->all_s[p->number] = (double)(now_ns() - begin) / 1e9;
}

static void rate(struct place *p)
{
    stream(p, put);
}

static void gets(struct place *p)
{
    stream(p, get);
}

static void message(struct place *p, unsigned to, size_t len, struct weft_op *op)
{
    enum weft_status s;
    while ((s = weft_msg_send(p->peers[to], 1, p->from, len, op)) == WEFT_AGAIN)
        turn(p);
    CHECK(s == WEFT_OK || s == WEFT_PENDING);
}

static void messages(struct place *p)
{
    stream(p, message);
}

/* In each process of the second node: have receives posted until all messages have come. */
static void receive(struct place *p)
{
    const uint64_t end = now_ns() + PATIENCE_NS;
    static struct weft_op ops[RECEIVES];
    for (unsigned n = 0; atomic_load(&p->board->ended) < p->processes; n = (n + 1) % RECEIVES) {
        struct weft_op *op = &ops[n];
        CHECK(now_ns() < end);
        turn(p);
        if (op->status == WEFT_PENDING)
            continue;
        CHECK(op->status == WEFT_OK);
        CHECK(weft_msg_recv(p->ep, NULL, 1, UINT64_MAX, p->from, SIZE, op) == WEFT_PENDING);
    }
}

static void fair_beside(struct place *p, void (*others)(struct place *p))
{
    if (p->number + 1 < p->processes) {
        others(p);
        return;
    }
    for (unsigned n = 0; atomic_load(&p->board->ended) + 1 < p->processes; n++)
        note(p, put_once(p, n % p->processes));
}

static void fair(struct place *p)
{
    fair_beside(p, rate);
}

static void fairgets(struct place *p)
{
    fair_beside(p, gets);
}

static const struct {
    const char *name;
    void (*run)(struct place *p);
} tests[] = {{"connect", connect_all}, {"latency", latency}, {"rate", rate},
             {"gets", gets},           {"fair", fair},       {"fairgets", fairgets},
             {"messages", messages}};
enum { NTESTS = sizeof tests / sizeof *tests };

/* ---- the processes ---- */

static void region_open(struct place *p, struct weft_ctx *ctx)
{
    const unsigned access = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE;
    if (p->is_private) {
        p->from = calloc(1, SIZE);
        CHECK(p->from != NULL);
        CHECK(weft_mr_register(ctx, p->from, SIZE, WEFT_MEM_HOST, access, &p->mr) == WEFT_OK);
    } else {
        CHECK(weft_mem_alloc(ctx, SIZE, access, &p->mr) == WEFT_OK);
        p->from = weft_mr_base(p->mr);
    }
}

static void place_open(struct place *p)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of two nodes of this machine";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    params.flags = WEFT_CTX_NETWORK;
    CHECK(weft_ctx_open(&params, &ctx) == WEFT_OK);
    CHECK(weft_ctx_set_key(ctx, key, sizeof key) == WEFT_OK);
    CHECK(weft_ep_open(ctx, NULL, &p->ep) == WEFT_OK);
    region_open(p, ctx);
}

static void target(struct place *p, unsigned test)
{
    struct card *c = &p->board->cards[p->number];
    c->address_len = sizeof c->address;
    c->key_len = sizeof c->key;
    CHECK(weft_ep_address(p->ep, c->address, &c->address_len) == WEFT_OK);
    CHECK(weft_mr_key(p->mr, c->key, &c->key_len) == WEFT_OK);
    atomic_fetch_add(&p->board->arrived, 1);
    if (tests[test].run == messages)
        receive(p);
    else
        await(p, &p->board->ended, p->processes);
}

static void peers_open(struct place *p)
{
    for (unsigned i = 0; i < p->processes; i++) {
        const struct card *c = &p->board->cards[i];
        CHECK(weft_peer_open(p->ep, c->address, c->address_len, &p->peers[i]) == WEFT_OK);
        CHECK(weft_remote_open(p->peers[i], c->key, c->key_len, &p->to[i]) == WEFT_OK);
    }
}

/* Puts are by the NIC once connections and keys are known. */
static void warm(struct place *p)
{
    for (unsigned n = 0; n < 4; n++)
        for (unsigned to = 0; to < p->processes; to++)
            (void)put_once(p, to);
}

static void source(struct place *p, unsigned test)
{
    struct weft_path path;
    await(p, &p->board->arrived, p->processes);
    peers_open(p);
    if (test)
        warm(p);
    CHECK(weft_path_of(p->peers[0], WEFT_OP_PUT, p->to[0], 8, &path) == WEFT_OK);
    if (!p->number) {
        snprintf(p->board->transport, sizeof p->board->transport, "%s", path.transport);
        snprintf(p->board->protocol, sizeof p->board->protocol, "%s", path.protocol);
    }
    CHECK(weft_path_of(p->peers[0], WEFT_OP_MSG, NULL, SIZE, &path) == WEFT_OK);
    if (!p->number)
        snprintf(p->board->message, sizeof p->board->message, "%s", path.protocol);
    atomic_fetch_add(&p->board->arrived, 1);
    await(p, &p->board->arrived, 2 * p->processes);
    tests[test].run(p);
    atomic_fetch_add(&p->board->ended, 1);
    await(p, &p->board->ended, p->processes);
}

static pid_t start(struct place *p, unsigned node, unsigned test)
{
    char name[32];
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(name, sizeof name, "traffic%d-%u", getppid(), node);
    setenv("WEFT_NODE_NAME", name, 1);
    place_open(p);
    if (node == TARGETS)
        target(p, test);
    else
        source(p, test);
    exit(0);
}

/* ---- the result ---- */

static int times_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double us(const uint32_t *times, size_t n, double part)
{
    return n ? (double)times[(size_t)((double)(n - 1) * part)] / 1000 : 0;
}

static void print(const struct board *b, const char *test, unsigned processes, long count)
{
    static uint32_t all[(size_t)PROCESSES_MAX * TIMES_MAX];
    double first = 0, last = 0, least = 1e30;
    size_t n = 0;
    for (unsigned i = 0; i < processes; i++) {
        first = b->first_s[i] > first ? b->first_s[i] : first;
        last = b->all_s[i] > last ? b->all_s[i] : last;
        least = b->all_s[i] > 0 && b->all_s[i] < least ? b->all_s[i] : least;
        memcpy(all + n, b->times[i], b->ntimes[i] * sizeof *all);
        n += b->ntimes[i];
    }
    qsort(all, n, sizeof *all, times_compare);
    printf(
        "{\"test\":\"%s\",\"processes\":%u,\"count\":%ld,\"transport\":\"%s\",\"protocol\":\"%s\","
        "\"message\":\"%s\","
        "\"first_s\":%.6f,\"last_s\":%.6f,\"least_s\":%.6f,\"puts\":%zu,\"p50_us\":%.2f,"
        "\"p99_us\":%.2f,\"p999_us\":%.2f}\n",
        test, processes, count, b->transport, b->protocol, b->message, first, last,
        last > 0 ? least : 0, n, us(all, n, 0.5), us(all, n, 0.99), us(all, n, 0.999));
}

static int usage(void)
{
    fputs("usage: node_traffic connect|latency|rate|gets|fair|fairgets|messages PROCESSES COUNT "
          "own|shared [private]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct place p = {0};
    unsigned test = 0;
    int failed = 0, code;
    p.is_private = argc == 6 && !strcmp(argv[5], "private");
    while ((argc == 5 || p.is_private) && test < NTESTS && strcmp(argv[1], tests[test].name) != 0)
        test++;
    if ((argc != 5 && !p.is_private) || test == NTESTS)
        return usage();
    p.processes = (unsigned)strtoul(argv[2], NULL, 10);
    p.count = strtol(argv[3], NULL, 10);
    if (!p.processes || p.processes > PROCESSES_MAX || p.count < 1 ||
        (strcmp(argv[4], "own") != 0 && strcmp(argv[4], "shared") != 0))
        return usage();
    p.crowded = 2 * (long)p.processes > sysconf(_SC_NPROCESSORS_ONLN) - 1;
    p.board =
        mmap(NULL, sizeof *p.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p.board != MAP_FAILED);
    setenv("WEFT_NODE", strcmp(argv[4], "own") ? "on" : "off", 1);
    for (unsigned i = 0; i < NODES * p.processes; i++) {
        p.number = i % p.processes;
        CHECK(start(&p, i / p.processes ? SOURCES : TARGETS, test) > 0);
    }
    while (wait(&code) > 0)
        failed |= code;
    if (!failed)
        print(p.board, tests[test].name, p.processes, p.count);
    return failed != 0;
}
