/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf threads`: do threads with an endpoint each disturb each other, and what does it cost
 * if they share one? Threads of one process put 8 bytes to another process's memory, each to its
 * own place, first one thread alone, then all with an endpoint each, then all by one endpoint with
 * WEFT_EP_LOCKED. The other process only polls. Public calls alone. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weft/weft.h>

#include "perf_stat.h"
#include "perf_threads.h"
#include "tool.h"

#define NAME "weft perf threads"
#define THREADS_MAX 64u
#define PAIRS 5u
#define BURST 64u
#define LOOKS 4096u
#define IDLE_POLLS 1000u
#define IDLE_NS 2000000
#define RUN_NS 300000000u /* of a pair: all threads alone, and all together, each */
#define ROUNDS 10u
#define PATIENCE_NS 30000000000u
#define PLACE 128u /* bytes of a thread's own memory at the target */

enum set { OWN, SHARED, SETS };

struct options {
    unsigned threads, pairs;
    const char *transport; /* shm, tcp or null0 */
    bool which[SETS];
    bool json, help;
};

/* How the target's endpoints and regions are reached. */
struct card {
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len, key_len;
};

struct worker {
    _Alignas(128) struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *remote;
    uint64_t offset;
    unsigned number;
    pthread_t thread;
    struct weft_op ops[BURST];
    double rate; /* puts a second, of the last run */
    int failed;  /* a status */
};

static struct threads {
    struct options o;
    struct weft_ctx *ctx;
    struct worker workers[SETS][THREADS_MAX];
    uint64_t run_ns;
    pthread_barrier_t start;
} t;

static uint64_t now_ns(void)
{
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (uint64_t)s.tv_sec * 1000000000u + (uint64_t)s.tv_nsec;
}

static int failed(const char *what, int status)
{
    fprintf(stderr, NAME ": %s: %s (%s)\n", what, weft_status_text((enum weft_status)status),
            weft_status_name((enum weft_status)status));
    return -1;
}

static enum weft_status ctx_open(unsigned endpoints, struct weft_ctx **ctx)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of two processes of this test!!";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    enum weft_status s;
    params.flags = WEFT_CTX_NETWORK;
    params.endpoints = endpoints;
    s = weft_ctx_open(&params, ctx);
    return s == WEFT_OK ? weft_ctx_set_key(*ctx, key, sizeof key) : s;
}

/* ---- the target, a process of its own ---- */

static enum weft_status card_make(struct weft_ctx *ctx, struct weft_ep **ep, struct card *card)
{
    struct weft_mr *mr;
    enum weft_status s = weft_ep_open(ctx, NULL, ep);
    card->addr_len = sizeof card->addr;
    card->key_len = sizeof card->key;
    if (s == WEFT_OK)
        s = weft_ep_address(*ep, card->addr, &card->addr_len);
    if (s == WEFT_OK)
        s = weft_mem_alloc(ctx, THREADS_MAX * PLACE, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr);
    return s == WEFT_OK ? weft_mr_key(mr, card->key, &card->key_len) : s;
}

/* Polls until the measuring process ends; rarely, while nothing arrives: a wait would spin on a
 * processor that the threads need. */
static void target(int out)
{
    static struct weft_ep *eps[THREADS_MAX];
    struct weft_ctx *ctx;
    enum weft_status s = ctx_open(t.o.threads, &ctx);
    for (unsigned i = 0; i < t.o.threads && s == WEFT_OK; i++) {
        struct card card = {.addr_len = 0};
        s = card_make(ctx, &eps[i], &card);
        if (s == WEFT_OK && write(out, &card, sizeof card) != sizeof card)
            s = WEFT_ESYSTEM;
    }
    if (s != WEFT_OK) {
        failed("the target", s);
        _exit(1);
    }
    for (unsigned idle = 0;; idle++) {
        for (unsigned i = 0; i < t.o.threads; i++)
            if (weft_ep_poll(eps[i]) > 0)
                idle = 0;
        if (idle > IDLE_POLLS)
            (void)nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
    }
}

static pid_t target_start(int *in)
{
    int ends[2];
    pid_t parent = getpid(), pid = pipe(ends) ? -1 : fork();
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            target(ends[1]);
        _exit(1);
    }
    if (pid < 0) {
        fprintf(stderr, NAME ": a second process: %s\n", strerror(errno));
        return -1;
    }
    close(ends[1]);
    *in = ends[0];
    return pid;
}

/* ---- endpoints ---- */

static enum weft_status worker_connect(struct worker *w, const struct card *card, unsigned flags)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    enum weft_status s;
    params.flags = flags;
    s = weft_ep_open(t.ctx, &params, &w->ep);
    if (s == WEFT_OK)
        s = weft_peer_open(w->ep, card->addr, card->addr_len, &w->peer);
    return s == WEFT_OK ? weft_remote_open(w->peer, card->key, card->key_len, &w->remote) : s;
}

static bool read_all(int in, void *to, size_t n)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = read(in, (char *)to + have, n - have);
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

/* Each thread has its endpoint, and all have the one of the set SHARED. */
static int workers_connect(int in)
{
    for (unsigned i = 0; i < t.o.threads; i++) {
        struct card card;
        enum weft_status s = WEFT_OK;
        if (!read_all(in, &card, sizeof card)) {
            fputs(NAME ": the target has ended\n", stderr);
            return -1;
        }
        if (t.o.which[OWN])
            s = worker_connect(&t.workers[OWN][i], &card, 0);
        if (s == WEFT_OK && t.o.which[SHARED] && !i)
            s = worker_connect(&t.workers[SHARED][0], &card, WEFT_EP_LOCKED);
        if (s != WEFT_OK)
            return failed("connecting", s);
        t.workers[SHARED][i].ep = t.workers[SHARED][0].ep;
        t.workers[SHARED][i].peer = t.workers[SHARED][0].peer;
        t.workers[SHARED][i].remote = t.workers[SHARED][0].remote;
        for (unsigned set = 0; set < SETS; set++) {
            t.workers[set][i].number = i;
            t.workers[set][i].offset = i * PLACE;
        }
    }
    return 0;
}

/* The clock is read once in LOOKS polls: reading it takes as long as a put. */
static int op_wait(struct worker *w, struct weft_op *op)
{
    uint64_t until = 0;
    int s;
    for (unsigned i = 1; (s = __atomic_load_n(&op->status, __ATOMIC_ACQUIRE)) == WEFT_PENDING;
         i++) {
        (void)weft_ep_poll(w->ep);
        if (i % LOOKS)
            continue;
        until = until ? until : now_ns() + PATIENCE_NS;
        if (now_ns() > until)
            return WEFT_ETIMEDOUT;
    }
    return s;
}

static int put_one(struct worker *w, struct weft_op *op)
{
    static const uint64_t v = 5;
    int s;
    while ((s = weft_put(w->remote, w->offset, &v, sizeof v, op)) == WEFT_AGAIN)
        (void)weft_ep_poll(w->ep);
    return s;
}

/* Put until the connection is what it will be: over RDMA, messages carry puts at first, and the
 * null device answers none of them. */
static int worker_settle(struct worker *w)
{
    static struct weft_op tries[THREADS_MAX * SETS * 120];
    static unsigned used;
    bool null = !strcmp(t.o.transport, "null0");
    for (unsigned i = 0; i < 120; i++) {
        struct weft_op *op = &tries[used++];
        uint64_t until = now_ns() + (null ? 250000000u : PATIENCE_NS);
        int s = put_one(w, op);
        if (s != WEFT_OK && s != WEFT_PENDING)
            return s;
        while (op->status == WEFT_PENDING && now_ns() < until) {
            (void)weft_ep_poll(w->ep);
            sched_yield();
        }
        if (op->status != WEFT_PENDING)
            return op->status;
    }
    return WEFT_ETIMEDOUT;
}

static int workers_settle(void)
{
    for (unsigned set = 0; set < SETS; set++)
        for (unsigned i = 0; t.o.which[set] && i < (set == OWN ? t.o.threads : 1); i++) {
            int s = worker_settle(&t.workers[set][i]);
            if (s != WEFT_OK)
                return failed("the first put", s);
        }
    return 0;
}

/* ---- runs ---- */

static void bind_to(unsigned number)
{
    cpu_set_t all, one;
    unsigned n = 0;
    if (sched_getaffinity(0, sizeof all, &all) || !CPU_COUNT(&all))
        return;
    number %= (unsigned)CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && n++ == number)
            CPU_SET(c, &one);
    (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/* A burst, and its end. */
static int burst(struct worker *w)
{
    int s = WEFT_OK;
    for (unsigned i = 0; i < BURST && s >= 0; i++)
        s = put_one(w, &w->ops[i]);
    for (unsigned i = BURST; i-- && s >= 0;)
        s = op_wait(w, &w->ops[i]);
    return s < 0 ? s : WEFT_OK;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t start, spent, puts = 0;
    bind_to(w->number);
    w->failed = burst(w);
    pthread_barrier_wait(&t.start);
    start = now_ns();
    do {
        for (int i = 0; i < 16 && !w->failed; i++, puts += BURST)
            w->failed = burst(w);
        spent = now_ns() - start;
    } while (spent < t.run_ns && !w->failed);
    w->rate = (double)puts * 1e9 / (double)spent;
    return NULL;
}

/* Puts a second by the threads [first] to [first + n - 1] together; below 0: failed. */
static double run(enum set set, unsigned first, unsigned n, uint64_t ns)
{
    struct worker *w = &t.workers[set][first];
    double sum = 0;
    t.run_ns = ns;
    pthread_barrier_init(&t.start, NULL, n);
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&w[i].thread, NULL, work, &w[i])) {
            fputs(NAME ": no more threads can be started\n", stderr);
            _exit(1); /* the others wait at the barrier */
        }
    for (unsigned i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
    pthread_barrier_destroy(&t.start);
    for (unsigned i = 0; i < n; i++) {
        sum += w[i].rate;
        if (w[i].failed)
            return failed("a put", w[i].failed);
    }
    return sum;
}

/* Puts a second by a thread alone: the mean of all threads, one after the other, because two
 * processors need not be equally fast. */
static double run_alone(enum set set)
{
    double sum = 0;
    for (unsigned i = 0; i < t.o.threads; i++) {
        double rate = run(set, i, 1, RUN_NS / ROUNDS / t.o.threads);
        if (rate < 0)
            return rate;
        sum += rate;
    }
    return sum / t.o.threads;
}

/* A pair: alone and together in turn, so that both meet the same speed of the machine. */
static bool pair_run(enum set set, double *alone, double *together)
{
    enum set first = t.o.which[OWN] ? OWN : SHARED;
    *alone = *together = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        double one = run_alone(first), all;
        if (one < 0)
            return false;
        all = run(set, 0, t.o.threads, RUN_NS / ROUNDS);
        if (all < 0)
            return false;
        *alone += one / ROUNDS;
        *together += all / ROUNDS;
    }
    return true;
}

static void print(enum set set, const double *alone, const double *together, const double *ratio)
{
    struct weft_path path = {.transport = "?"};
    static const char *const names[SETS] = {"own", "shared"};
    const struct worker *w = &t.workers[set][0];
    struct wf_spread r = wf_perf_spread(ratio, t.o.pairs);
    struct wf_spread a = wf_perf_spread(alone, t.o.pairs), b = wf_perf_spread(together, t.o.pairs);
    if (weft_path_of(w->peer, WEFT_OP_PUT, w->remote, 8, &path) != WEFT_OK)
        path.protocol = "?";
    if (t.o.json)
        printf(
            "{\"test\":\"threads\",\"transport\":\"%s\",\"protocol\":\"%s\",\"endpoints\":\"%s\","
            "\"threads\":%u,\"pairs\":%u,\"one_mps\":%.4f,\"all_mps\":%.4f,\"ratio\":%.4f,"
            "\"ratio_low\":%.4f,\"ratio_high\":%.4f}\n",
            path.transport, path.protocol, names[set], t.o.threads, t.o.pairs, a.median / 1e6,
            b.median / 1e6, r.median, r.low, r.high);
    else
        printf("%-8s %-12s %8s %7u %10.3f %10.3f   %5.2f  %.2f to %.2f\n", path.transport,
               path.protocol, names[set], t.o.threads, a.median / 1e6, b.median / 1e6, r.median,
               r.low, r.high);
    fflush(stdout);
}

static int measure(enum set set)
{
    double alone[WF_PERF_PAIRS_MAX], together[WF_PERF_PAIRS_MAX], ratio[WF_PERF_PAIRS_MAX];
    for (unsigned i = 0; i < t.o.pairs; i++) {
        if (!pair_run(set, &alone[i], &together[i]))
            return -1;
        ratio[i] = together[i] / alone[i];
    }
    print(set, alone, together, ratio);
    return 0;
}

/* ---- command line ---- */

static void usage(void)
{
    fputs("usage: weft perf threads [OPTIONS]\n\n"
          "Threads of one process put 8 bytes each to another process: by an endpoint for\n"
          "each thread (own), and by one endpoint with a lock (shared). Prints millions of\n"
          "puts a second by one thread and by all together, and the ratio of the two.\n\n"
          "  --threads N       threads; default: 2\n"
          "  --own, --shared   only one of the two; shared alone compares with itself\n"
          "  --transport T     shm (default), tcp, or null0, a NIC that moves nothing\n"
          "  --pairs N         runs of one and of all; default: 5\n"
          "  --json            objects instead of a table\n\n"
          "What endpoints share of a NIC: WEFT_SHARING (weft(3)), weft plan.\n",
          stdout);
}

static int refuse(const char *option, const char *value, const char *what)
{
    fprintf(stderr, NAME ": %s %s: %s\n", option, value ? value : "", what);
    return WF_TOOL_USAGE;
}

static int number(const char *option, const char *text, unsigned most, unsigned *out)
{
    char *end, what[64];
    unsigned long v = text ? strtoul(text, &end, 10) : 0;
    snprintf(what, sizeof what, "give a number from 1 to %u", most);
    if (!text || *end || *text == '-' || !v || v > most)
        return refuse(option, text, what);
    *out = (unsigned)v;
    return 0;
}

static int transport(const char *text)
{
    static const char *const names[] = {"shm", "tcp", "null0"};
    for (unsigned i = 0; text && i < 3; i++)
        if (!strcmp(text, names[i])) {
            t.o.transport = names[i];
            return 0;
        }
    return refuse("--transport", text, "give shm, tcp or null0");
}

static int parse(int argc, char **argv)
{
    static const char *const names[] = {"--threads", "--own",  "--shared", "--transport",
                                        "--pairs",   "--json", "--help",   NULL};
    int bad = 0;
    for (int i = 1; i < argc && !bad; i++) {
        if (!strcmp(argv[i], "--threads"))
            bad = number("--threads", argv[++i], THREADS_MAX, &t.o.threads);
        else if (!strcmp(argv[i], "--pairs"))
            bad = number("--pairs", argv[++i], WF_PERF_PAIRS_MAX, &t.o.pairs);
        else if (!strcmp(argv[i], "--transport"))
            bad = transport(argv[++i]);
        else if (!strcmp(argv[i], "--own"))
            t.o.which[OWN] = true;
        else if (!strcmp(argv[i], "--shared"))
            t.o.which[SHARED] = true;
        else if (!strcmp(argv[i], "--json"))
            t.o.json = true;
        else if (!strcmp(argv[i], "--help"))
            t.o.help = true;
        else {
            const char *near = wf_tool_nearest(argv[i], names);
            fprintf(stderr, NAME ": there is no option %s%s%s%s\n", argv[i],
                    near ? "; did you mean " : "; weft perf threads --help lists them",
                    near ? near : "", near ? "?" : "");
            bad = WF_TOOL_USAGE;
        }
    }
    return bad;
}

/* The variables of both processes. */
static void transport_set(void)
{
    const char *debug = getenv("WEFT_DEBUG");
    char text[1024];
    bool null = !strcmp(t.o.transport, "null0");
    snprintf(text, sizeof text, "loop,%s", null ? "rdma" : t.o.transport);
    setenv("WEFT_TRANSPORTS", text, 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    if (!null)
        return;
    snprintf(text, sizeof text, "nullnic,%s", debug ? debug : "");
    setenv("WEFT_DEBUG", text, 1);
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
    setenv("WEFT_TCP_ENCRYPT", "0", 1);
    setenv("WEFT_PINNED", "1000g", 1); /* nothing is pinned */
}

static int all(int in)
{
    enum weft_status s = ctx_open(t.o.threads + 1, &t.ctx);
    if (s != WEFT_OK)
        return failed("opening", s);
    if (workers_connect(in) || workers_settle())
        return -1;
    if (!t.o.json)
        printf("%-8s %-12s %8s %7s %10s %10s   %5s\n", "by", "protocol", "endpoint", "threads",
               "one, M/s", "all, M/s", "ratio");
    for (unsigned set = 0; set < SETS; set++)
        if (t.o.which[set] && measure((enum set)set))
            return -1;
    return 0;
}

/* Both processes end without closing: over the null device that would wait for answers. */
int wf_perf_threads(int argc, char **argv)
{
    pid_t pid;
    int in, bad;
    t.o = (struct options){.threads = 2, .pairs = PAIRS, .transport = "shm"};
    bad = parse(argc, argv);
    if (bad)
        return bad;
    if (t.o.help) {
        usage();
        return 0;
    }
    if (!t.o.which[OWN] && !t.o.which[SHARED])
        t.o.which[OWN] = t.o.which[SHARED] = true;
    transport_set();
    pid = target_start(&in);
    if (pid < 0)
        return 1;
    bad = all(in) ? 1 : 0;
    fflush(stdout);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    _Exit(bad);
}
