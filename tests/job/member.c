/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank for the tests of job and launcher: performs its arguments in turn, and ends with code 0.
 * Its output goes to stdout in whole lines.
 *
 *   WORD          by every rank
 *   RANK:WORD     by that rank alone
 *
 *   open close barrier        the call; prints its status if it is not OK
 *   close-busy                close while a region is open: EBUSY, then works
 *   close-in-flight           close while a message is under way: EBUSY, then works
 *   post-receive post-send    of one long message, rank 0 to rank 1
 *   sent received             it was
 *   cancelled                 the close has ended the receive
 *   share                     memory of two ranks, for the next three
 *   unflushed                 rank 0 puts to rank 1, which need not poll
 *   close-unflushed           close while that put is under way: EBUSY
 *   flushed                   it has arrived
 *   beside                    20 barriers: a rank enters only after a message that
 *                             another rank, which waits inside, sends by a thread
 *   close-owned               closing what the job owns is refused
 *   inside                    the calls of a job inside a deferred call: ECONTEXT
 *   close-deferring           close while the progress thread runs a deferred call: EBUSY
 *   gather                    allgathers of many sizes, contents checked
 *   gather-of=N               an allgather of N bytes; prints its status
 *   meet-memory               weft_job_mem_alloc; prints its status
 *   alive                     after a collective failed: all others fail, too, a
 *                             message to the next rank arrives, the job closes
 *   memory                    weft_job_mem_alloc; every rank puts to every other
 *   storm=N                   N barriers with a check that no rank is ahead
 *   notify=N wait-all=N try=N steps of a barrier named N; try until it is not AGAIN;
 *                             the last two print what is not OK
 *   names=SEED                2000 barriers of both kinds with random names (500
 *                             of more than 4 ranks), verdicts checked
 *   split-misuse              the steps in the wrong order, with wrong arguments
 *   deliver                   barriers that deliver requests
 *   split-until-broken        split-phase barriers until one fails
 *   until-broken              barriers until one fails; prints its status
 *   say=TEXT                  prints RANK/SIZE TEXT
 *   where                     prints "at RANK of SIZE, LOCAL_RANK of LOCAL_SIZE",
 *                             then the transport to each rank
 *   ready=FD                  writes one byte to descriptor FD
 *   wait=FD                   reads one byte from descriptor FD
 *   exit=N                    exits with code N at once
 *   kill=N                    kills itself with signal N
 *   abort=N                   weft_job_abort
 *   orphan                    leaves a child that never ends
 *   daemon                    leaves a grandchild that never ends: of another
 *                             session, with an empty environment, deaf
 *   deaf                      ignores SIGTERM
 *   hang                      waits for ever
 *   fork-check                what a forked child may do
 *   handler-check             what a handler may do
 *   down                      from here on prints each peer_down
 *   until-down                waits for one
 *   cpus                      prints the affinity mask's size */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/job.h>
#include <weft/msg.h>

static struct weft_job *job;
static bool tell_down;
static unsigned downs;

/* Without what runs at exit: there the leak sanitizer attaches to the threads,
 * and never lets go of them if SIGTERM arrives meanwhile, as it does for the
 * ranks of a job that failed. */
__attribute__((noreturn)) static void leave(int code)
{
    if (code)
        _exit(code);
    exit(0);
}

/* What libpmix 4.2.2 does not free when it is initialised a second time: the
 * leak sanitizer asks for it by this name. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__vasprintf_internal\nleak:libpmix.so\n";
}

static unsigned rank_before_open(void)
{
    const char *text = getenv("PMIX_RANK");
    if (!text)
        text = getenv("OMPI_COMM_WORLD_RANK");
    return text ? (unsigned)atoi(text) : 0;
}

__attribute__((format(printf, 1, 2))) static void print(const char *fmt, ...)
{
    char line[256];
    va_list args;
    int n = snprintf(line, sizeof line, "%u: ", rank_before_open());
    va_start(args, fmt);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    va_end(args);
    line[n++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(99);
}

__attribute__((noreturn)) static void wrong(const char *what)
{
    print("WRONG: %s", what);
    leave(98);
}

static void check(bool ok, const char *what)
{
    if (!ok)
        wrong(what);
}

static void report(const char *what, enum weft_status s)
{
    if (s != WEFT_OK)
        print("%s %s", what, weft_status_name(s));
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    check(arg == &tell_down, "peer_down's argument");
    downs++;
    if (tell_down)
        print("down %d %s", weft_job_peer_rank(job, peer), weft_status_name(why));
}

/* ---- words ---- */

static atomic_uint alive_received;

static void on_alive(const struct weft_am *am)
{
    (void)am;
    atomic_fetch_add(&alive_received, 1);
}

static void do_open(void)
{
    struct weft_job_params params = WEFT_JOB_PARAMS_INIT;
    struct weft_job *again;
    enum weft_status s;
    params.peer_down = on_down;
    params.arg = &tell_down;
    s = weft_job_open(&params, &job);
    report("open", s);
    if (s)
        leave(1);
    check(weft_job_rank(job) < weft_job_size(job), "rank");
    check(weft_job_open(NULL, &again) == WEFT_EBUSY, "a second open is refused");
    check(weft_job_peer(job, weft_job_size(job)) == NULL, "there is no such peer");
    for (unsigned r = 0; r < weft_job_size(job); r++)
        check(weft_job_peer_rank(job, weft_job_peer(job, r)) == (int)r, "peer_rank");
    check(weft_job_peer_rank(job, NULL) == -1, "peer_rank of nobody");
    check(weft_am_register(weft_job_ep(job), 3, on_alive, NULL) == WEFT_OK, "register");
}

static void do_close(void)
{
    enum weft_status s = weft_job_close(job);
    report("close", s);
    if (!s)
        job = NULL;
}

static void do_close_busy(void)
{
    struct weft_mr *mr;
    check(weft_mem_alloc(weft_job_ctx(job), 100, WEFT_REMOTE_READ, &mr) == WEFT_OK, "alloc");
    check(weft_job_close(job) == WEFT_EBUSY, "close is refused while a region is open");
    check(weft_job_barrier(job) == WEFT_OK, "nothing changed");
    check(weft_mr_close(mr) == WEFT_OK, "region close");
}

static void do_close_owned(void)
{
    for (unsigned r = 0; r < weft_job_size(job); r++)
        check(weft_peer_close(weft_job_peer(job, r)) == WEFT_EINVAL, "the job's peer is refused");
    check(weft_ep_close(weft_job_ep(job)) == WEFT_EINVAL, "the job's endpoint is refused");
    check(weft_ctx_close(weft_job_ctx(job)) == WEFT_EINVAL, "the job's context is refused");
    check(weft_job_barrier(job) == WEFT_OK, "nothing changed");
}

#define IN_FLIGHT (1u << 20)

static void do_close_in_flight(void)
{
    unsigned n = weft_job_size(job), to = (weft_job_rank(job) + 1) % n;
    char *out = calloc(1, IN_FLIGHT), *in = malloc(IN_FLIGHT);
    struct weft_op sent = {0}, received = {0};
    enum weft_status s;
    check(out && in, "malloc");
    while ((s = weft_msg_send(weft_job_peer(job, to), 7, out, IN_FLIGHT, &sent)) == WEFT_AGAIN)
        (void)weft_ep_wait(weft_job_ep(job), 1000000);
    check(s == WEFT_PENDING, "nobody receives it yet");
    check(weft_job_close(job) == WEFT_EBUSY, "close is refused while a message is under way");
    check(weft_job_barrier(job) == WEFT_OK, "nothing changed");
    s = weft_msg_recv(weft_job_ep(job), NULL, 7, UINT64_MAX, in, IN_FLIGHT, &received);
    if (s == WEFT_PENDING)
        s = weft_op_wait(weft_job_ep(job), &received, -1);
    check(s == WEFT_OK, "receive");
    check(weft_op_wait(weft_job_ep(job), &sent, -1) == WEFT_OK, "send");
    free(out);
    free(in);
}

static char long_message[IN_FLIGHT];
static struct weft_op long_op;

static void do_post_receive(void)
{
    check(weft_msg_recv(weft_job_ep(job), NULL, 7, UINT64_MAX, long_message, IN_FLIGHT, &long_op) ==
              WEFT_PENDING,
          "nothing has come yet");
}

static void do_post_send(void)
{
    memset(long_message, 'x', IN_FLIGHT);
    check(weft_msg_send(weft_job_peer(job, 1), 7, long_message, IN_FLIGHT, &long_op) ==
              WEFT_PENDING,
          "it is offered");
}

static void do_sent(void)
{
    check(weft_op_wait(weft_job_ep(job), &long_op, -1) == WEFT_OK, "send");
}

static void do_received(void)
{
    check(long_op.status == WEFT_OK && long_message[IN_FLIGHT - 1] == 'x', "receive");
}

static void do_cancelled(void)
{
    check(long_op.status == WEFT_ECANCELED, "the receive has ended");
}

static struct weft_mr *put_mr;

static struct weft_remote *put_remotes[2];

static void do_share(void)
{
    check(weft_job_mem_alloc(job, 64, WEFT_REMOTE_WRITE, &put_mr, put_remotes) == WEFT_OK,
          "mem_alloc");
}

static void do_unflushed(void)
{
    static const uint64_t word = 42;
    if (!weft_job_rank(job)) {
        enum weft_status s = weft_put(put_remotes[1], 0, &word, sizeof word, NULL);
        check(s == WEFT_PENDING, "put");
    }
    for (unsigned r = 0; r < 2; r++)
        check(weft_remote_close(put_remotes[r]) == WEFT_OK, "remote close");
    if (!weft_job_rank(job)) {
        check(weft_mr_close(put_mr) == WEFT_OK, "mr close");
        put_mr = NULL;
    }
}

static void do_close_unflushed(void)
{
    check(weft_job_close(job) == WEFT_EBUSY, "close is refused while a put is under way");
    check(weft_peer_status(weft_job_peer(job, 1)) == WEFT_OK, "nothing changed");
}

static void do_flushed(void)
{
    struct weft_op op = {0};
    enum weft_status s = weft_flush(weft_job_peer(job, 1), &op);
    check((s == WEFT_PENDING ? weft_op_wait(weft_job_ep(job), &op, -1) : s) == WEFT_OK, "flush");
    check(weft_job_barrier(job) == WEFT_OK, "barrier");
    if (put_mr) {
        check(*(uint64_t *)weft_mr_base(put_mr) == 42, "what was put");
        check(weft_mr_close(put_mr) == WEFT_OK, "mr close");
    }
}

/* ---- two threads: the endpoint is a locked one (WEFT_PROGRESS=thread) ---- */

#define BESIDE_TURNS 20

static atomic_uint beside_turn, beside_told;

static void on_beside(const struct weft_am *am)
{
    (void)am;
    atomic_fetch_add(&beside_told, 1);
}

/* ---- deferred calls ---- */

static unsigned ran_inside;

static void call_inside(struct weft_deferred *call)
{
    unsigned char byte = 0, *all = malloc(weft_job_size(job));
    struct weft_remote **remotes = calloc(weft_job_size(job), sizeof(struct weft_remote *));
    struct weft_mr *mr;
    uint32_t name;
    (void)call;
    check(weft_job_close(job) == WEFT_ECONTEXT, "close in a deferred call");
    check(weft_job_leave(job) == WEFT_ECONTEXT, "leave in a deferred call");
    check(weft_job_barrier(job) == WEFT_ECONTEXT, "barrier in a deferred call");
    check(weft_job_allgather(job, &byte, 1, all) == WEFT_ECONTEXT, "gather in a deferred call");
    check(weft_job_mem_alloc(job, 64, WEFT_REMOTE_WRITE, &mr, remotes) == WEFT_ECONTEXT,
          "meet-memory in a deferred call");
    check(weft_job_barrier_notify(job, 5, 0) == WEFT_ECONTEXT, "notify in a deferred call");
    check(weft_job_barrier_try(job, 5, 0) == WEFT_ECONTEXT, "try in a deferred call");
    check(weft_job_barrier_wait(job, 5, 0) == WEFT_ECONTEXT, "wait in a deferred call");
    check(weft_job_barrier_name(job, &name) == WEFT_ECONTEXT, "name in a deferred call");
    free(all);
    free(remotes);
    ran_inside++;
}

static void run_inside(void)
{
    struct weft_deferred call = {.fn = call_inside};
    unsigned before = ran_inside;
    check(weft_ep_defer(weft_job_ep(job), &call) == WEFT_OK, "defer");
    check(weft_ep_poll(weft_job_ep(job)) >= 0, "poll, which runs it");
    check(ran_inside == before + 1, "a deferred call ran");
}

static void do_inside(void)
{
    run_inside();
    check(weft_job_barrier(job) == WEFT_OK, "nothing changed");
    check(weft_job_barrier_notify(job, 5, 0) == WEFT_OK, "notify");
    run_inside();
    check(weft_job_barrier_wait(job, 5, 0) == WEFT_OK, "nothing changed between two steps");
}

static atomic_bool call_runs, call_ends;

static void run_until_told(struct weft_deferred *call)
{
    (void)call;
    atomic_store(&call_runs, true);
    while (!atomic_load(&call_ends))
        sched_yield();
}

/* The progress thread runs the call, as this one does not poll. */
static void do_close_deferring(void)
{
    static struct weft_deferred call = {.fn = run_until_told};
    time_t end = time(NULL) + 10;
    check(weft_ep_defer(weft_job_ep(job), &call) == WEFT_OK, "defer");
    while (!atomic_load(&call_runs) && time(NULL) < end)
        sched_yield();
    check(atomic_load(&call_runs), "the call runs");
    check(weft_job_close(job) == WEFT_EBUSY, "close is refused while a deferred call runs");
    atomic_store(&call_ends, true);
    check(weft_job_barrier(job) == WEFT_OK, "nothing changed");
}

static void *send_beside(void *arg)
{
    (void)arg;
    for (unsigned turn = 1; turn <= BESIDE_TURNS; turn++) {
        while (atomic_load(&beside_turn) < turn)
            sched_yield();
        while (weft_am_request(weft_job_peer(job, 1), 2, NULL, 0, NULL, 0, 0) == WEFT_AGAIN)
            sched_yield();
    }
    return NULL;
}

static void do_beside(void)
{
    unsigned me = weft_job_rank(job);
    pthread_t thread;
    check(weft_am_register(weft_job_ep(job), 2, on_beside, NULL) == WEFT_OK, "register");
    check(weft_job_barrier(job) == WEFT_OK, "barrier");
    check(me || !pthread_create(&thread, NULL, send_beside, NULL), "pthread_create");
    for (unsigned turn = 1; turn <= BESIDE_TURNS; turn++) {
        atomic_store(&beside_turn, turn);
        while (me == 1 && atomic_load(&beside_told) < turn)
            (void)weft_ep_wait(weft_job_ep(job), 1000000);
        check(weft_job_barrier(job) == WEFT_OK, "barrier");
    }
    check(me || !pthread_join(thread, NULL), "pthread_join");
}

static unsigned char byte_of(unsigned rank, size_t i, unsigned turn)
{
    return (unsigned char)(rank * 37 + i * 11 + turn * 101 + 1);
}

static void gather_once(size_t len, unsigned turn)
{
    unsigned n = weft_job_size(job), me = weft_job_rank(job);
    unsigned char *all = malloc(n * len + 1), *mine = malloc(len + 1);
    check(all && mine, "malloc");
    for (size_t i = 0; i < len; i++)
        mine[i] = byte_of(me, i, turn);
    check(weft_job_allgather(job, mine, len, all) == WEFT_OK, "allgather");
    for (unsigned r = 0; r < n; r++)
        for (size_t i = 0; i < len; i++)
            check(all[r * len + i] == byte_of(r, i, turn), "what allgather brought");
    free(all);
    free(mine);
}

static void do_gather(void)
{
    static const size_t lens[] = {1, 8, 63, 64, 1000, WEFT_JOB_ALLGATHER_MAX, 0, 3};
    unsigned char mine = 0, all[64];
    for (unsigned turn = 0; turn < 400; turn++)
        gather_once(lens[turn % 8], turn);
    check(weft_job_allgather(job, &mine, WEFT_JOB_ALLGATHER_MAX + 1, all) == WEFT_EMSGSIZE,
          "too long a gather");
    check(weft_job_allgather(job, NULL, 1, all) == WEFT_EINVAL, "gather of nothing");
}

/* ---- ranks that are in different calls ---- */

static void do_gather_of(int len)
{
    size_t room = (size_t)len * weft_job_size(job);
    unsigned char *mine = calloc(1, (size_t)len + 1), *all = malloc(room + 1);
    enum weft_status s;
    check(mine && all, "malloc");
    memset(all, 0xee, room);
    s = weft_job_allgather(job, mine, (size_t)len, all);
    for (size_t i = 0; s && i < room; i++)
        check(all[i] == 0xee, "a gather that failed leaves its place alone");
    print("gather %s", weft_status_name(s));
    free(mine);
    free(all);
}

static void do_meet_memory(void)
{
    struct weft_remote **remotes = calloc(weft_job_size(job), sizeof(struct weft_remote *));
    struct weft_mr *mr = NULL;
    check(remotes != NULL, "calloc");
    print("memory %s",
          weft_status_name(weft_job_mem_alloc(job, 64, WEFT_REMOTE_READ, &mr, remotes)));
    check(mr == NULL, "nothing stays open");
    free(remotes);
}

/* Rank 0 collects a message of each rank and replies to each: so no rank closes before all have
 * seen that messages go on. */
static void do_alive(void)
{
    struct weft_ep *ep = weft_job_ep(job);
    unsigned me = weft_job_rank(job), n = weft_job_size(job);
    unsigned char byte = 0, all[64];
    uint32_t name;
    check(weft_job_barrier(job) == WEFT_EPROTO, "a barrier afterwards");
    check(weft_job_allgather(job, &byte, 1, all) == WEFT_EPROTO, "a gather afterwards");
    check(weft_job_barrier_notify(job, 1, 0) == WEFT_EPROTO, "a notify afterwards");
    check(weft_job_barrier_name(job, &name) == WEFT_ENOTAVAIL, "no name was agreed on");
    for (unsigned to = me ? 0 : 1; to < (me ? 1 : n); to++) {
        if (!me)
            while (atomic_load(&alive_received) < n - 1)
                (void)weft_ep_wait(ep, 1000000);
        while (weft_am_request(weft_job_peer(job, to), 3, NULL, 0, NULL, 0, 0) == WEFT_AGAIN)
            (void)weft_ep_wait(ep, 1000000);
    }
    while (me && !atomic_load(&alive_received))
        (void)weft_ep_wait(ep, 1000000);
}

/* ---- memory: these wait where the other side is not mapped ---- */

static void settle(enum weft_status s, struct weft_op *op, const char *what)
{
    if (s == WEFT_PENDING)
        s = weft_op_wait(weft_job_ep(job), op, -1);
    check(s == WEFT_OK, what);
}

static void put_word(struct weft_remote *to, uint64_t offset, uint64_t word)
{
    struct weft_op op = {0};
    enum weft_status s;
    while ((s = weft_put(to, offset, &word, sizeof word, &op)) == WEFT_AGAIN)
        (void)weft_ep_wait(weft_job_ep(job), 1000000);
    settle(s, &op, "put");
}

static uint64_t get_word(struct weft_remote *from, uint64_t offset)
{
    struct weft_op op = {0};
    enum weft_status s;
    uint64_t word = 0;
    while ((s = weft_get(from, offset, &word, sizeof word, &op)) == WEFT_AGAIN)
        (void)weft_ep_wait(weft_job_ep(job), 1000000);
    settle(s, &op, "get");
    return word;
}

/* Every rank writes its number into its place at every rank. */
static void do_memory(void)
{
    unsigned n = weft_job_size(job), me = weft_job_rank(job);
    struct weft_remote **remotes = calloc(n, sizeof(struct weft_remote *));
    size_t len = 64 * (n + 1) + me; /* another length at each rank */
    struct weft_mr *mr = NULL;
    check(remotes != NULL, "calloc");
    check(weft_job_mem_alloc(job, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr, remotes) ==
              WEFT_OK,
          "mem_alloc");
    for (unsigned r = 0; r < n; r++) {
        check(remotes[r]->length == 64 * (n + 1) + r, "length of a rank's region");
        put_word(remotes[r], 64 * me, 1000 + me);
    }
    check(weft_job_barrier(job) == WEFT_OK, "barrier");
    for (unsigned r = 0; r < n; r++)
        check(*(uint64_t *)(void *)((char *)weft_mr_base(mr) + 64 * r) == 1000 + r, "what was put");
    for (unsigned r = 0; r < n; r++)
        check(weft_remote_close(remotes[r]) == WEFT_OK, "remote close");
    check(weft_mr_close(mr) == WEFT_OK, "mr close");
    /* One rank's failure is everybody's. */
    check(weft_job_mem_alloc(job, me == n - 1 ? 0 : 100, WEFT_REMOTE_READ, &mr, remotes) ==
              WEFT_EINVAL,
          "mem_alloc that fails at the last rank");
    free(remotes);
}

/* Each rank counts in its own word; after a barrier all words are at least at
 * its number, and none is more than one past it. */
static void do_storm(long turns)
{
    unsigned n = weft_job_size(job), me = weft_job_rank(job);
    struct weft_remote **remotes = calloc(n, sizeof(struct weft_remote *));
    struct weft_mr *mr = NULL;
    check(remotes != NULL, "calloc");
    check(weft_job_mem_alloc(job, 8, WEFT_REMOTE_READ, &mr, remotes) == WEFT_OK, "mem_alloc");
    for (uint64_t t = 1; t <= (uint64_t)turns; t++) {
        __atomic_store_n((uint64_t *)weft_mr_base(mr), t, __ATOMIC_RELAXED);
        check(weft_job_barrier(job) == WEFT_OK, "barrier");
        for (unsigned r = 0; r < n; r++) {
            uint64_t seen = get_word(remotes[(me + r) % n], 0);
            check(seen == t || seen == t + 1, "somebody is not where the barrier says");
        }
    }
    check(weft_job_barrier(job) == WEFT_OK, "barrier");
    for (unsigned r = 0; r < n; r++)
        check(weft_remote_close(remotes[r]) == WEFT_OK, "remote close");
    check(weft_mr_close(mr) == WEFT_OK, "mr close");
    free(remotes);
}

static void do_until_broken(void)
{
    enum weft_status s;
    do
        s = weft_job_barrier(job);
    while (s == WEFT_OK);
    print("barrier %s", weft_status_name(s));
    check(weft_job_barrier(job) == s, "a broken job stays broken");
}

/* The launcher's word of a death may have ended the barriers, and the transport's be still to come.
 * The job's limit of time is this one's. */
static void do_until_down(void)
{
    while (!downs)
        check(weft_ep_wait(weft_job_ep(job), 10000000) >= 0, "wait");
}

/* ---- split-phase barriers ---- */

/* The same numbers at every rank: xorshift64*, Vigna 2016. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

struct turn {
    uint32_t name;
    unsigned flags;
    enum weft_status verdict;
    enum weft_status has_name; /* what weft_job_barrier_name returns, and sets */
    uint32_t agreed;
};

/* This rank's name in the next turn, and the result that all names lead to. */
static struct turn draw_turn(uint64_t *state)
{
    unsigned n = weft_job_size(job), me = weft_job_rank(job);
    bool mismatch = false, named = false;
    uint32_t names = (uint32_t)next_random(state) % 3; /* 0: all the same */
    uint32_t common = (uint32_t)next_random(state), seen = 0;
    struct turn mine = {0};
    for (unsigned r = 0; r < n; r++) {
        uint64_t x = next_random(state);
        struct turn t = {.name = common};
        if (names == 2 && (x >> 8) % n == 0)
            t.name = (uint32_t)(x >> 32);
        t.flags = (x & 3) == 0 ? WEFT_BARRIER_ANONYMOUS : 0;
        if (names == 1 && (x >> 8) % (4 * n) == 0)
            t.flags |= WEFT_BARRIER_MISMATCH;
        mismatch |= (t.flags & WEFT_BARRIER_MISMATCH) != 0;
        if (!t.flags) {
            mismatch |= named && seen != t.name;
            named = true;
            seen = t.name;
        }
        if (r == me)
            mine = t;
    }
    mine.verdict = mismatch ? WEFT_EMISMATCH : WEFT_OK;
    mine.has_name = named && !mismatch ? WEFT_OK : WEFT_ENOTAVAIL;
    mine.agreed = seen;
    return mine;
}

static enum weft_status try_until_done(uint32_t name, unsigned flags)
{
    enum weft_status s;
    while ((s = weft_job_barrier_try(job, name, flags)) == WEFT_AGAIN)
        sched_yield();
    return s;
}

static void do_names(uint64_t seed)
{
    uint64_t state = seed * 2 + 1, mine = (seed + weft_job_rank(job)) * 2 + 1;
    unsigned mismatches = 0, turns = weft_job_size(job) > 4 ? 500 : 2000;
    for (unsigned turn = 0; turn < turns; turn++) {
        struct turn t = draw_turn(&state);
        uint32_t agreed = 0;
        enum weft_status s;
        check(weft_job_barrier_notify(job, t.name, t.flags) == WEFT_OK, "notify");
        s = next_random(&mine) & 1 ? weft_job_barrier_wait(job, t.name, t.flags)
                                   : try_until_done(t.name, t.flags);
        check(s == t.verdict, "the verdict");
        check(weft_job_barrier_name(job, &agreed) == t.has_name &&
                  (t.has_name || agreed == t.agreed),
              "the name agreed on");
        mismatches += s == WEFT_EMISMATCH;
        if (turn % 7 == 0)
            check(weft_job_barrier(job) == WEFT_OK, "a plain barrier in between");
    }
    print("mismatches %u", mismatches);
}

/* ---- WEFT_BARRIER_DELIVER ---- */

#define DELIVER_TURNS 50
#define DELIVER_EACH 37 /* requests to each rank; more than a poll delivers */

static unsigned delivered[DELIVER_TURNS]; /* by the turn in which they were sent */

static void on_deliver(const struct weft_am *am)
{
    check(am->nargs == 1 && am->args[0] < DELIVER_TURNS, "what a request says of its turn");
    delivered[am->args[0]]++;
}

/* Returns how many other ranks share memory with this rank. */
static unsigned mates(void)
{
    unsigned n = 0;
    for (unsigned r = 0; r < weft_job_size(job); r++) {
        struct weft_path path;
        check(weft_path_of(weft_job_peer(job, r), WEFT_OP_AM, NULL, 8, &path) == WEFT_OK, "path");
        n += !strcmp(path.transport, "shm");
    }
    return n;
}

/* Fails when: a barrier with DELIVER ends before all handlers of its node's requests have run. */
static void do_deliver(void)
{
    const unsigned flags = WEFT_BARRIER_DELIVER, least = DELIVER_EACH * mates();
    check(weft_am_register(weft_job_ep(job), 4, on_deliver, NULL) == WEFT_OK, "register");
    check(weft_job_barrier(job) == WEFT_OK, "barrier");
    for (uint32_t turn = 0; turn < DELIVER_TURNS; turn++) {
        enum weft_status s;
        for (unsigned i = 0; i < DELIVER_EACH; i++)
            for (unsigned r = 0; r < weft_job_size(job); r++)
                while (weft_am_request(weft_job_peer(job, r), 4, &turn, 1, NULL, 0, 0) ==
                       WEFT_AGAIN)
                    (void)weft_ep_poll(weft_job_ep(job));
        while ((s = weft_job_barrier_notify(job, turn, flags)) == WEFT_AGAIN)
            (void)weft_ep_wait(weft_job_ep(job), 100000);
        check(s == WEFT_OK, "notify");
        s = turn & 1 ? weft_job_barrier_wait(job, turn, flags) : try_until_done(turn, flags);
        check(s == WEFT_OK, "the end of the barrier");
        check(delivered[turn] >= least, "requests before the barrier");
    }
}

/* Everybody's notice reaches this rank, and nobody's verdict comes early. */
static void do_split_misuse(void)
{
    unsigned char byte = 0, all[64];
    uint32_t name;
    check(weft_job_barrier_name(job, &name) == WEFT_ENOTAVAIL, "a name before any barrier");
    check(weft_job_barrier_name(NULL, &name) == WEFT_EINVAL, "a name without a job");
    check(weft_job_barrier_name(job, NULL) == WEFT_EINVAL, "a name without a place for it");
    check(weft_job_barrier_wait(job, 1, 0) == WEFT_EINVAL, "wait without notify");
    check(weft_job_barrier_try(job, 1, 0) == WEFT_EINVAL, "try without notify");
    check(weft_job_barrier_notify(job, 1, 8) == WEFT_EINVAL, "notify with an unknown flag");
    check(weft_job_barrier_notify(NULL, 1, 0) == WEFT_EINVAL, "notify without a job");
    check(weft_job_barrier_notify(job, 1, 0) == WEFT_OK, "notify");
    check(weft_job_barrier_notify(job, 1, 0) == WEFT_EBUSY, "notify twice");
    check(weft_job_barrier_name(job, &name) == WEFT_ENOTAVAIL, "a name between the steps");
    check(weft_job_barrier_wait(job, 2, 0) == WEFT_EINVAL, "wait with another name");
    check(weft_job_barrier_try(job, 1, WEFT_BARRIER_ANONYMOUS) == WEFT_EINVAL,
          "try with other flags");
    check(weft_job_barrier_wait(job, 1, 8) == WEFT_EINVAL, "wait with an unknown flag");
    check(weft_job_barrier(job) == WEFT_EINVAL, "a barrier in between");
    check(weft_job_allgather(job, &byte, 1, all) == WEFT_EINVAL, "a gather in between");
    check(weft_job_barrier_wait(job, 1, 0) == WEFT_OK, "wait");
    check(weft_job_barrier_wait(job, 1, 0) == WEFT_EINVAL, "wait twice");
    if (weft_job_size(job) <= sizeof all)
        check(weft_job_allgather(job, &byte, 1, all) == WEFT_OK, "a gather after it");
}

static void do_split_until_broken(void)
{
    enum weft_status s;
    for (uint32_t name = 0;; name++) {
        s = weft_job_barrier_notify(job, name, 0);
        if (s == WEFT_OK)
            s = name & 1 ? weft_job_barrier_wait(job, name, 0) : try_until_done(name, 0);
        if (s != WEFT_OK)
            break;
    }
    print("barrier %s", weft_status_name(s));
    check(weft_job_barrier_notify(job, 0, 0) == s, "a broken job stays broken: notify");
    check(weft_job_barrier_wait(job, 0, 0) == s, "a broken job stays broken: wait");
    check(weft_job_barrier(job) == s, "a broken job stays broken: barrier");
}

static void do_fork_check(void)
{
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        struct weft_job *again;
        if (weft_job_barrier(job) != WEFT_EFORKED)
            _exit(1);
        if (weft_job_close(job) != WEFT_EFORKED)
            _exit(2);
        if (weft_job_barrier_notify(job, 0, 0) != WEFT_EFORKED)
            _exit(4);
        _exit(weft_job_open(NULL, &again) == WEFT_EFORKED ? 0 : 3);
    }
    check(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
    check(status == 0, "what a forked child may do");
}

static unsigned handled;

static void on_message(const struct weft_am *am)
{
    unsigned char byte = 0, all[1];
    (void)am;
    check(weft_job_barrier(job) == WEFT_ECONTEXT, "barrier in a handler");
    check(weft_job_allgather(job, &byte, 1, all) == WEFT_ECONTEXT, "gather in a handler");
    check(weft_job_close(job) == WEFT_ECONTEXT, "close in a handler");
    check(weft_job_barrier_notify(job, 0, 0) == WEFT_ECONTEXT, "notify in a handler");
    handled++;
}

static void do_handler_check(void)
{
    check(weft_am_register(weft_job_ep(job), 1, on_message, NULL) == WEFT_OK, "register");
    check(weft_am_request(weft_job_peer(job, weft_job_rank(job)), 1, NULL, 0, NULL, 0, 0) ==
              WEFT_OK,
          "message to oneself");
    while (!handled)
        (void)weft_ep_wait(weft_job_ep(job), 1000000);
}

static void do_cpus(void)
{
    cpu_set_t set;
    check(!sched_getaffinity(0, sizeof set, &set), "sched_getaffinity");
    print("cpus %d", CPU_COUNT(&set));
}

static void do_where(void)
{
    char names[200] = "";
    size_t used = 0;
    for (unsigned r = 0; r < weft_job_size(job) && used < sizeof names - 8; r++) {
        struct weft_path path;
        check(weft_path_of(weft_job_peer(job, r), WEFT_OP_AM, NULL, 8, &path) == WEFT_OK, "path");
        used += (size_t)snprintf(names + used, sizeof names - used, " %s", path.transport);
    }
    print("at %u of %u, %u of %u%s", weft_job_rank(job), weft_job_size(job),
          weft_job_local_rank(job), weft_job_local_size(job), names);
}

static void do_orphan(void)
{
    int fds[2];
    char byte;
    check(!pipe(fds), "pipe");
    if (!fork()) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        (void)!write(fds[1], "", 1);
        for (;;)
            pause();
    }
    check(read(fds[0], &byte, 1) == 1, "orphan");
    close(fds[0]);
    close(fds[1]);
}

/* Goes on when the daemon is a program of its own: exec has closed the pipe. */
static void do_daemon(void)
{
    char *const argv[] = {(char[]){"member"}, (char[]){"hang"}, NULL}, *const none[] = {NULL};
    int fds[2], status;
    char byte;
    pid_t pid;
    check(!pipe2(fds, O_CLOEXEC), "pipe");
    pid = fork();
    if (!pid) {
        setsid();
        if (fork())
            _exit(0);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        execve("/proc/self/exe", argv, none);
        (void)!write(fds[1], "", 1);
        _exit(1);
    }
    close(fds[1]);
    check(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
    check(read(fds[0], &byte, 1) == 0, "the daemon's start");
    close(fds[0]);
}

/* ---- words that take a number ---- */

static bool do_numbered(const char *word)
{
    const char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word) : 0;
    int n = equals ? atoi(equals + 1) : 0;
    char byte = 0;
#define IS(name) (len == strlen(name) && !strncmp(word, name, len))
    if (IS("say"))
        print("%s", equals + 1);
    else if (IS("storm"))
        do_storm(n);
    else if (IS("notify"))
        report("notify", weft_job_barrier_notify(job, (uint32_t)n, 0));
    else if (IS("wait-all"))
        report("wait", weft_job_barrier_wait(job, (uint32_t)n, 0));
    else if (IS("try"))
        report("try", try_until_done((uint32_t)n, 0));
    else if (IS("gather-of"))
        do_gather_of(n);
    else if (IS("names"))
        do_names((uint64_t)n);
    else if (IS("ready"))
        check(write(n, "r", 1) == 1, "ready");
    else if (IS("wait"))
        check(read(n, &byte, 1) == 1, "wait");
    else if (IS("exit"))
        leave(n);
    else if (IS("kill"))
        raise(n);
    else if (IS("abort"))
        weft_job_abort(job, n, "asked to");
    else
        return false;
    return true;
}

static void do_word(const char *word)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } words[] = {
        {"open", do_open},
        {"close", do_close},
        {"close-in-flight", do_close_in_flight},
        {"post-receive", do_post_receive},
        {"post-send", do_post_send},
        {"sent", do_sent},
        {"received", do_received},
        {"share", do_share},
        {"unflushed", do_unflushed},
        {"close-unflushed", do_close_unflushed},
        {"flushed", do_flushed},
        {"beside", do_beside},
        {"close-busy", do_close_busy},
        {"close-owned", do_close_owned},
        {"inside", do_inside},
        {"close-deferring", do_close_deferring},
        {"cancelled", do_cancelled},
        {"gather", do_gather},
        {"memory", do_memory},
        {"meet-memory", do_meet_memory},
        {"alive", do_alive},
        {"until-broken", do_until_broken},
        {"until-down", do_until_down},
        {"orphan", do_orphan},
        {"where", do_where},
        {"fork-check", do_fork_check},
        {"handler-check", do_handler_check},
        {"cpus", do_cpus},
        {"split-misuse", do_split_misuse},
        {"deliver", do_deliver},
        {"split-until-broken", do_split_until_broken},
        {"daemon", do_daemon},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(word, words[i].name)) {
            words[i].fn();
            return;
        }
    if (!strcmp(word, "barrier"))
        report("barrier", weft_job_barrier(job));
    else if (!strcmp(word, "down"))
        tell_down = true;
    else if (!strcmp(word, "deaf"))
        signal(SIGTERM, SIG_IGN);
    else if (!strcmp(word, "hang"))
        for (;;)
            pause();
    else if (!do_numbered(word))
        wrong(word);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (!colon)
            do_word(argv[i]);
        else if ((unsigned)atoi(argv[i]) == rank_before_open())
            do_word(colon + 1);
    }
    return 0;
}
