/* SPDX-License-Identifier: BSD-3-Clause */
/* two_endpoints [ROUNDS] [BURSTS] [BURST] [TEST]: do two endpoints of one process disturb each
 * other?
 *
 * Two processes have two threads each. Thread i of one and thread i of the other run on core i, and
 * take turns: one sends a burst, the other receives it. So each core is as busy with one pair of
 * threads as with its own two, and two cores suffice. First one pair runs alone, then both run.
 * The scaling is the sum over the pairs of what each does beside the other, over what it does
 * alone: 2 if they share nothing. The pairs also share the processor's caches and the kernel. The
 * test "none" shows how much that costs: its bursts only store to memory of the pair's own.
 *
 * Prints one JSON object per test; medians and quartiles of the rounds, in each of which each test
 * runs, or the one that is named. The tests with "_apart" have a context for each endpoint; the
 * tests with "_locked" have one endpoint, with WEFT_EP_LOCKED, in each process, which both threads
 * use. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "bind.h"
#include "common.h"

#define LIMIT_S 900
#define BURST_MAX 1024
#define LINES 4096 /* of 64 bytes: a pair's memory for puts, and of "none" */

enum { SHARED, APART, LOCKED, SETS };
enum what { NONE, AM, MSG, PUT };
static const struct {
    const char *name;
    enum what what;
    int set;
} tests[] = {{"none", NONE, SHARED},    {"am", AM, SHARED},        {"msg", MSG, SHARED},
             {"put", PUT, SHARED},      {"am_apart", AM, APART},   {"msg_apart", MSG, APART},
             {"put_apart", PUT, APART}, {"am_locked", AM, LOCKED}, {"msg_locked", MSG, LOCKED}};
#define TESTS (sizeof tests / sizeof tests[0])

/* One pair of threads, in memory that both processes share. Each process's word has lines of its
 * own. */
struct turn {
    _Alignas(128) _Atomic uint32_t whose; /* 0: the sender's, 1: the receiver's */
    unsigned char pad[124];
};

struct name {
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len, key_len;
};

/* The objects of one thread. */
struct side {
    _Alignas(128) struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_mr *mr;
    struct weft_remote *remote;
    _Atomic uint64_t got; /* messages for this thread */
    unsigned char *own;   /* of "none" */
    uint64_t words[BURST_MAX];
    struct weft_op ops[BURST_MAX];
};

static struct shared {
    struct turn turns[2];
    _Alignas(
        128) _Atomic uint32_t order; /* number of the run that the receivers are to take part in */
    _Atomic uint32_t test, pairs_mask;
    struct name names[2][SETS][2]; /* of the sending and of the receiving process */
    _Atomic uint64_t wrong;
} * board;

static int role; /* 0: sends, 1: receives */
static struct side sides[SETS][2];
static uint64_t bursts;
static unsigned burst;

static void futex_wait(_Atomic uint32_t *word, uint32_t is)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT, is, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void turn_await(int pair)
{
    _Atomic uint32_t *whose = &board->turns[pair].whose;
    while (atomic_load_explicit(whose, memory_order_acquire) != (uint32_t)role)
        futex_wait(whose, !role);
}

static void turn_give(int pair)
{
    atomic_store_explicit(&board->turns[pair].whose, !role, memory_order_release);
    futex_wake(&board->turns[pair].whose);
}

/* The handler's argument is the set, the message's word the pair. With a locked endpoint, either
 * thread may deliver the other's message. */
static void on_note(const struct weft_am *am)
{
    struct side *set = am->arg;
    uint64_t word;
    memcpy(&word, am->data, sizeof word);
    if (am->len != sizeof word || word > 1) {
        atomic_fetch_add(&board->wrong, 1);
        return;
    }
    atomic_store_explicit(&set[word].got,
                          atomic_load_explicit(&set[word].got, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* ---- bursts; not inlined, so that a profiler can count them ---- */

static __attribute__((noinline)) void send_am(struct side *s, uint64_t pair)
{
    for (unsigned i = 0; i < burst; i++) {
        enum weft_status status;
        while ((status = weft_am_request(s->peer, 1, NULL, 0, &pair, 8, 0)) == WEFT_AGAIN)
            CHECK(weft_ep_poll(s->ep) >= 0);
        CHECK(status == WEFT_OK);
    }
}

static __attribute__((noinline)) void recv_am(struct side *s, uint64_t target)
{
    while (atomic_load_explicit(&s->got, memory_order_relaxed) < target)
        CHECK(weft_ep_poll(s->ep) >= 0);
}

static __attribute__((noinline)) void send_msg(struct side *s, uint64_t pair)
{
    for (unsigned i = 0; i < burst; i++) {
        enum weft_status status;
        while ((status = weft_msg_send(s->peer, pair, &pair, 8, NULL)) == WEFT_AGAIN)
            CHECK(weft_ep_poll(s->ep) >= 0);
        CHECK(status == WEFT_OK);
    }
}

static __attribute__((noinline)) void post_msg(struct side *s, uint64_t pair)
{
    for (unsigned i = 0; i < burst; i++) {
        enum weft_status status;
        memset(&s->ops[i], 0, sizeof s->ops[i]);
        status = weft_msg_recv(s->ep, NULL, pair, UINT64_MAX, &s->words[i], 8, &s->ops[i]);
        CHECK(status == WEFT_PENDING || status == WEFT_OK);
    }
}

static __attribute__((noinline)) void recv_msg(struct side *s, uint64_t pair)
{
    for (unsigned i = 0; i < burst; i++) {
        while (__atomic_load_n(&s->ops[i].status, __ATOMIC_ACQUIRE) == WEFT_PENDING)
            CHECK(weft_ep_poll(s->ep) >= 0);
        if (s->ops[i].status != WEFT_OK || s->words[i] != pair)
            atomic_fetch_add(&board->wrong, 1);
    }
}

static __attribute__((noinline)) void send_put(struct side *s, uint64_t n)
{
    for (unsigned i = 0; i < burst; i++)
        CHECK(weft_put(s->remote, (n + i) % LINES * 64, &n, 8, NULL) == WEFT_OK);
}

static __attribute__((noinline)) void send_none(const struct side *s, uint64_t n)
{
    for (unsigned i = 0; i < burst; i++) {
        memcpy(s->own + (n + i) % LINES * 64, &n, 8);
        __asm__ volatile("" : : : "memory");
    }
}

static void do_burst(struct side *s, enum what what, int pair, uint64_t n)
{
    switch (what) {
    case NONE: send_none(s, n * burst); break;
    case PUT:
        if (!role)
            send_put(s, n * burst);
        break;
    case AM: role ? recv_am(s, (n + 1) * burst) : send_am(s, (uint64_t)pair); break;
    case MSG: role ? recv_msg(s, (uint64_t)pair) : send_msg(s, (uint64_t)pair); break;
    }
    if (role && what == MSG && n + 1 < bursts) /* for the next burst */
        post_msg(s, (uint64_t)pair);
}

/* One thread's part of a run. Returns its nanoseconds per message. */
static double part(int test, int pair)
{
    struct side *s = &sides[tests[test].set][pair];
    uint64_t start = 0;
    atomic_store(&s->got, 0);
    if (role && tests[test].what == MSG)
        post_msg(s, (uint64_t)pair);
    if (role)
        turn_give(pair); /* ready */
    for (uint64_t n = 0; n < bursts; n++) {
        turn_await(pair);
        if (!n)
            start = now_ns();
        do_burst(s, tests[test].what, pair, n);
        turn_give(pair);
    }
    if (!role)
        turn_await(pair); /* the last burst was received */
    return (double)(now_ns() - start) / (double)(bursts * burst);
}

struct thread {
    pthread_t id;
    int pair;
    _Atomic uint32_t done;
    double ns;
};
static struct thread threads[2];

/* Take part in each run, until run 0 is ordered. */
static void *thread_main(void *arg)
{
    struct thread *t = arg;
    uint32_t seen = 0;
    CHECK(bind_to(t->pair));
    for (;;) {
        uint32_t now;
        while ((now = atomic_load_explicit(&board->order, memory_order_acquire)) == seen)
            futex_wait(&board->order, seen);
        if (now == UINT32_MAX)
            return NULL;
        seen = now;
        if (board->pairs_mask >> t->pair & 1)
            t->ns = part((int)board->test, t->pair);
        atomic_store_explicit(&t->done, now, memory_order_release);
        futex_wake(&t->done);
    }
}

static void threads_open(void)
{
    for (int i = 0; i < 2; i++) {
        threads[i].pair = i;
        CHECK(!pthread_create(&threads[i].id, NULL, thread_main, &threads[i]));
    }
}

static void threads_await(uint32_t run)
{
    for (int i = 0; i < 2; i++)
        for (uint32_t now;
             (now = atomic_load_explicit(&threads[i].done, memory_order_acquire)) != run;)
            futex_wait(&threads[i].done, now);
}

/* ---- setup ---- */

static void side_open(int set, int i)
{
    struct side *s = &sides[set][i];
    struct name *n = &board->names[role][set][i];
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    if (set == LOCKED)
        params.flags = WEFT_EP_LOCKED;
    s->own = aligned_alloc(4096, (size_t)LINES * 64);
    CHECK(s->own != NULL);
    memset(s->own, 0, (size_t)LINES * 64);
    if (i && set != APART)
        s->ctx = sides[set][0].ctx;
    else
        CHECK(!weft_ctx_open(NULL, &s->ctx));
    if (i && set == LOCKED) {
        s->ep = sides[set][0].ep;
    } else {
        CHECK(!weft_ep_open(s->ctx, &params, &s->ep));
        CHECK(!weft_am_register(s->ep, 1, on_note, sides[set]));
    }
    CHECK(
        !weft_mem_alloc(s->ctx, (size_t)LINES * 64, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &s->mr));
    memset(weft_mr_base(s->mr), 0, (size_t)LINES * 64);
    n->addr_len = sizeof n->addr;
    n->key_len = sizeof n->key;
    CHECK(!weft_ep_address(s->ep, n->addr, &n->addr_len));
    CHECK(!weft_mr_key(s->mr, n->key, &n->key_len));
}

static void side_connect(int set, int i)
{
    struct side *s = &sides[set][i];
    const struct name *n = &board->names[!role][set][i];
    if (i && set == LOCKED)
        s->peer = sides[set][0].peer;
    else
        CHECK(!weft_peer_open(s->ep, n->addr, n->addr_len, &s->peer));
    CHECK(!weft_remote_open(s->peer, n->key, n->key_len, &s->remote));
}

static void each_side(void (*fn)(int set, int i))
{
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < 2; i++)
            fn(set, i);
}

static void byte_send(int fd)
{
    CHECK(write(fd, "", 1) == 1);
}

static void byte_await(int fd)
{
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

static void receiver_main(int from, int to)
{
    uint32_t run = 0, now;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIMIT_S);
    role = 1;
    each_side(side_open);
    byte_send(to);
    byte_await(from);
    each_side(side_connect);
    threads_open();
    byte_send(to);
    while ((now = atomic_load_explicit(&board->order, memory_order_acquire)) != UINT32_MAX) {
        if (now == run) {
            futex_wait(&board->order, run);
            continue;
        }
        run = now;
        threads_await(run);
        byte_send(to); /* both threads have finished this run */
    }
    _exit(0);
}

/* ---- runs ---- */

static int from_receiver;
static uint32_t run_now;

/* One run of [test] with the pairs in [mask]. Sets ns[i] of these pairs. */
static void run(int test, unsigned mask, double ns[2])
{
    for (int i = 0; i < 2; i++)
        atomic_store(&board->turns[i].whose, 1); /* the receiver begins: it gets ready */
    board->test = (uint32_t)test;
    board->pairs_mask = mask;
    atomic_store_explicit(&board->order, ++run_now, memory_order_release);
    futex_wake(&board->order);
    threads_await(run_now);
    byte_await(from_receiver);
    for (int i = 0; i < 2; i++)
        if (mask >> i & 1)
            ns[i] = threads[i].ns;
}

struct figures {
    double *scaling, *alone, *both;
};

static void round_of(int test, int i, const struct figures *f)
{
    double alone[2], both[2];
    if (i & 1)
        run(test, 3, both);
    run(test, 1, alone);
    run(test, 2, alone);
    if (!(i & 1))
        run(test, 3, both);
    f->scaling[i] = alone[0] / both[0] + alone[1] / both[1];
    f->alone[i] = (alone[0] + alone[1]) / 2;
    f->both[i] = (both[0] + both[1]) / 2;
}

static double quantile(double *v, int n, int quarter)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[(n - 1) * quarter / 4];
}

static void print(int test, const struct figures *f, int rounds)
{
    printf(
        "{\"test\": \"%s\", \"rounds\": %d, \"burst\": %u, \"alone_ns\": %.2f, \"both_ns\": %.2f, "
        "\"scaling\": %.3f, \"quartiles\": [%.3f, %.3f]}\n",
        tests[test].name, rounds, burst, quantile(f->alone, rounds, 2),
        quantile(f->both, rounds, 2), quantile(f->scaling, rounds, 2),
        quantile(f->scaling, rounds, 1), quantile(f->scaling, rounds, 3));
}

static void figures_open(struct figures *f, int rounds)
{
    double **all[] = {&f->scaling, &f->alone, &f->both};
    for (unsigned i = 0; i < 3; i++)
        CHECK((*all[i] = calloc((size_t)rounds, sizeof(double))) != NULL);
}

/* Returns whether a test has run. */
static bool measure(int rounds, const char *only)
{
    struct figures f[TESTS];
    bool runs[TESTS], any = false;
    double ns[2];
    for (unsigned t = 0; t < TESTS; t++) {
        runs[t] = !only || !strcmp(only, tests[t].name);
        if (!runs[t])
            continue;
        any = true;
        figures_open(&f[t], rounds);
        run((int)t, 3, ns); /* connects */
    }
    for (int i = 0; i < rounds; i++)
        for (unsigned t = 0; t < TESTS; t++)
            if (runs[t])
                round_of((int)t, i, &f[t]);
    for (unsigned t = 0; t < TESTS; t++)
        if (runs[t])
            print((int)t, &f[t], rounds);
    return any;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 15, down[2], up[2];
    bool any;
    pid_t pid;
    bursts = argc > 2 ? strtoull(argv[2], NULL, 0) : 500;
    burst = argc > 3 ? (unsigned)atoi(argv[3]) : 512;
    if (rounds < 1 || bursts < 1 || burst < 1 || burst > BURST_MAX) {
        fprintf(stderr, "usage: %s [ROUNDS] [BURSTS] [BURST, at most %d] [TEST]\n", argv[0],
                BURST_MAX);
        return 2;
    }
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED && !pipe(down) && !pipe(up));
    alarm(LIMIT_S);
    pid = fork(); /* before there are threads */
    CHECK(pid >= 0);
    if (!pid)
        receiver_main(down[0], up[1]);
    from_receiver = up[0];
    each_side(side_open);
    byte_await(from_receiver);
    byte_send(down[1]);
    each_side(side_connect);
    threads_open();
    byte_await(from_receiver);
    any = measure(rounds, argc > 4 ? argv[4] : NULL);
    atomic_store_explicit(&board->order, UINT32_MAX, memory_order_release);
    futex_wake(&board->order);
    (void)waitpid(pid, NULL, 0);
    return board->wrong != 0 || !any;
}
