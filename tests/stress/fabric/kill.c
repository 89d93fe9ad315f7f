/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric_kill [SEED [COUNT]]: four processes send, receive, read and add by the provider, each with
 * all others. COUNT times one of them is killed at a random moment, and another one takes its place
 * once the others have noticed. SEED 0: another one each time, printed. WEFT_TRANSPORTS sets how
 * they reach each other: over TCP the time that they may take is WEFT_PEER_TIMEOUT, else a second.
 *
 * Each survivor always has under way with each other process: a receive that names it and that no
 * message meets, a long send that no receive meets, and a read or an add.
 *
 * Fails when: an operation with the killed process does not end in time, or ends with another error
 * than those of a lost peer; a send to it returns -FI_EAGAIN for ever; fi_cq_sread does not return,
 * or late; an operation with another process ends with an error, or messages of others do not come
 * any more; a survivor has more descriptors in the end than when it began, or does not end well;
 * there is a file in /dev/shm in the end (the test has one of its own, where it may). */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contract/support.h"
#include "end.h"

enum { ENDS = 4, RECVS = 8, LONG = 200000, REGION = 4096 };
/* After so many turns a worker counts its descriptors, and may later have so many more: those of
 * connections that open or close. */
enum { TURNS = 2000, FDS = 8 };
enum { ANY_TAG = 1, NAMED_TAG = 2, LONG_TAG = 3 };
#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
/* Beside the time that the provider may take: the machine runs other tests. */
#define SLACK (4 * SECOND)

struct place {
    _Atomic uint32_t life;  /* of the process that has opened its endpoint here; from 1 */
    _Atomic uint64_t alive; /* messages that it has received: it works */
    _Atomic uint32_t dead;  /* the life that was killed last, and when */
    _Atomic uint64_t killed_ns;
    uint8_t name[END_NAME];
};

static struct board {
    struct place places[ENDS];
    _Atomic uint32_t noticed[ENDS][ENDS]; /* [by][whose]: the life whose end is dealt with */
    atomic_bool stop;
} * board;

static uint64_t limit_ns = SECOND;

/* ---- a worker ---- */

enum kind { RECEIVE, NAMED, SENT_LONG, ACCESS };

struct op {
    enum kind kind;
    bool busy;
    int with; /* -1: any */
    uint64_t buf[2];
};

struct with {
    uint32_t life; /* 0: none */
    fi_addr_t addr;
    bool lost; /* an operation has ended with an error */
    struct op named, sent, access;
};

static struct worker {
    int rank;
    struct end e;
    uint64_t rand;
    struct with with[ENDS];
    struct op recvs[RECVS];
} me;

static void fail(const char *what, int64_t a, int64_t b)
{
    fprintf(stderr, "process %d in place %d: %s (%lld, %lld)\n", (int)getpid(), me.rank, what,
            (long long)a, (long long)b);
    _exit(1);
}

static unsigned descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static uint64_t below(uint64_t n)
{
    return test_rand(&me.rand) % n;
}

static bool is_loss(int err)
{
    return err == FI_ECONNRESET || err == FI_ESHUTDOWN || err == FI_ECONNREFUSED ||
           err == FI_EHOSTUNREACH || err == FI_ENOTCONN || err == FI_ECONNABORTED;
}

/* [rc] is that of a call for place [o]. Returns whether it has begun something. */
static bool begun(int o, long rc)
{
    if (!rc || rc == -FI_EAGAIN)
        return !rc;
    if (!is_loss((int)-rc))
        fail("what a call returns", rc, o);
    me.with[o].lost = true;
    return false;
}

static void post_any(struct op *r)
{
    r->kind = RECEIVE;
    r->with = -1;
    r->busy = true;
    MUST(fi_trecv(me.e.ep, r->buf, sizeof r->buf, NULL, FI_ADDR_UNSPEC, ANY_TAG, 0, r));
}

static void operation(int o, struct op *op, enum kind kind)
{
    static unsigned char data[LONG];
    struct with *w = &me.with[o];
    long rc;
    if (op->busy)
        return;
    op->kind = kind;
    op->with = o;
    if (kind == NAMED)
        rc = fi_trecv(me.e.ep, op->buf, 8, NULL, w->addr, NAMED_TAG, 0, op);
    else if (kind == SENT_LONG)
        rc = fi_tsend(me.e.ep, data, sizeof data, NULL, w->addr, LONG_TAG, op);
    else if (below(2))
        rc = fi_read(me.e.ep, op->buf, 8, NULL, w->addr, 0, END_MR_KEY, op);
    else
        rc = fi_fetch_atomic(me.e.ep, op->buf, 1, NULL, op->buf + 1, NULL, w->addr, 8, END_MR_KEY,
                             FI_UINT64, FI_SUM, op);
    op->busy = begun(o, rc);
}

static void event(struct op *op, int err)
{
    op->busy = false;
    if (err && op->with < 0)
        fail("a receive of any message ends with an error", err, 0);
    if (err && !is_loss(err))
        fail("an operation ends with another error", err, op->kind);
    if (err)
        me.with[op->with].lost = true;
    else if (op->kind == NAMED || op->kind == SENT_LONG)
        fail("an operation ends well that cannot", op->kind, op->with);
    if (op->kind == RECEIVE) {
        atomic_fetch_add(&board->places[me.rank].alive, 1);
        post_any(op);
    }
}

/* Take an entry or an error; [wait]: sleep for it. */
static void take(bool wait)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    const uint64_t begin = test_now_ns();
    ssize_t n = wait ? fi_cq_sread(me.e.cq, &e, 1, NULL, 100) : fi_cq_read(me.e.cq, &e, 1);
    if (wait && test_now_ns() - begin > 100 * MS + SLACK)
        fail("fi_cq_sread returns late", (int64_t)((test_now_ns() - begin) / MS), 0);
    if (n == 1)
        event(e.op_context, 0);
    else if (n == -FI_EAVAIL && fi_cq_readerr(me.e.cq, &err, 0) == 1)
        event(err.op_context, err.err);
    else if (n != -FI_EAGAIN)
        fail("a read of the queue", n, 0);
}

/* ---- the others ---- */

static bool is_busy(const struct with *w)
{
    return w->named.busy || w->sent.busy || w->access.busy;
}

/* Is the process in place [o], with which this one works, the one that was killed? */
static bool is_dead(int o)
{
    return atomic_load(&board->places[o].dead) == me.with[o].life;
}

/* A send to the killed process has to return an error soon. */
static void send_refused(int o, uint64_t until)
{
    long rc;
    while ((rc = fi_tinject(me.e.ep, "12345678", 8, me.with[o].addr, ANY_TAG)) == -FI_EAGAIN ||
           !rc) {
        take(false);
        if (test_now_ns() > until)
            fail("a send to a killed process", rc, o);
    }
    if (!is_loss((int)-rc))
        fail("what a send to a killed process returns", rc, o);
}

/* The process in place [o] was killed: all that is under way with it has to end in time. */
static void bury(int o)
{
    struct with *w = &me.with[o];
    uint64_t until = atomic_load(&board->places[o].killed_ns) + limit_ns + SLACK;
    while (is_busy(w)) {
        take(below(2));
        if (test_now_ns() > until)
            fail("an operation with a killed process does not end: receive, send, access",
                 w->named.busy * 2 + w->sent.busy, w->access.busy);
    }
    send_refused(o, until + limit_ns);
    MUST(fi_av_remove(me.e.av, &w->addr, 1, 0));
    atomic_store(&board->noticed[me.rank][o], w->life);
    w->life = 0;
}

/* Deal with the others, and work with those that live. */
static void work(int o)
{
    struct with *w = &me.with[o];
    uint32_t life = atomic_load(&board->places[o].life);
    if (w->life && is_dead(o)) {
        bury(o);
        return;
    }
    if (!w->life && life && atomic_load(&board->places[o].dead) == life) {
        atomic_store(&board->noticed[me.rank][o], life); /* killed before they met */
    } else if (!w->life && life) {
        *w = (struct with){.life = life, .addr = end_insert(&me.e, board->places[o].name)};
    } else if (w->lost) {
        uint64_t until = test_now_ns() + SLACK; /* the killer writes what it has done soon */
        while (!is_dead(o))
            if (test_now_ns() > until)
                fail("a process is lost that lives", o, w->life);
        return;
    }
    if (!w->life)
        return;
    operation(o, &w->named, NAMED);
    operation(o, &w->sent, SENT_LONG);
    operation(o, &w->access, ACCESS);
    (void)begun(o, fi_tinject(me.e.ep, "12345678", 8, w->addr, ANY_TAG));
}

static int worker(int rank, uint64_t seed, uint32_t life)
{
    static uint64_t region[REGION / 8];
    const struct end_how how = {.caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV,
                                .threading = seed & 1 ? FI_THREAD_SAFE : FI_THREAD_DOMAIN,
                                .format = FI_CQ_FORMAT_TAGGED,
                                .wait_obj = FI_WAIT_UNSPEC,
                                .region = region,
                                .region_len = sizeof region};
    unsigned fds = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    me.rank = rank;
    me.rand = seed;
    end_open(&me.e, &how);
    end_name(&me.e, board->places[rank].name);
    for (int i = 0; i < RECVS; i++)
        post_any(&me.recvs[i]);
    atomic_store(&board->places[rank].life, life);
    for (uint64_t turns = 0; !atomic_load(&board->stop); turns++) {
        if (turns == TURNS)
            fds = descriptors();
        for (int o = 0; o < ENDS; o++)
            if (o != rank)
                work(o);
        for (uint64_t n = 1 + below(20); n; n--)
            take(n == 1 && below(8) == 0);
        if (below(4) == 0)
            sched_yield();
    }
    if (fds && descriptors() > fds + FDS)
        fail("descriptors, now and before", descriptors(), fds);
    end_close(&me.e);
    return 0;
}

/* ---- the parent ---- */

static pid_t pids[ENDS];
static uint32_t lives[ENDS];

static void start(int place, uint64_t seed)
{
    lives[place]++;
    pids[place] = fork();
    if (!pids[place])
        _exit(worker(place, seed, lives[place]));
}

/* Poll [condition] until it holds; a worker that has ended is a failure. */
#define AWAIT(condition, what)                                                                     \
    for (uint64_t until_ = test_now_ns() + 30 * SECOND; !(condition); pause_short()) {             \
        int status_;                                                                               \
        pid_t ended_ = waitpid(-1, &status_, WNOHANG);                                             \
        if (ended_ > 0 || test_now_ns() > until_) {                                                \
            fprintf(stderr, "%s: %s\n", what, ended_ > 0 ? "a process has ended" : "not in time"); \
            return 1;                                                                              \
        }                                                                                          \
    }

static void pause_short(void)
{
    (void)nanosleep(&(struct timespec){0, 200000}, NULL);
}

static bool all_noticed(int victim)
{
    for (int i = 0; i < ENDS; i++)
        if (i != victim && atomic_load(&board->noticed[i][victim]) != lives[victim])
            return false;
    return true;
}

/* Does each process receive messages? */
static bool all_work(const uint64_t before[ENDS])
{
    for (int i = 0; i < ENDS; i++)
        if (atomic_load(&board->places[i].life) != lives[i] ||
            atomic_load(&board->places[i].alive) <= before[i])
            return false;
    return true;
}

/* Kill one process, and start another one in its place. */
static int turn(uint64_t *rand, uint64_t *slowest)
{
    int victim = (int)(test_rand(rand) % ENDS);
    struct timespec moment = {0, (long)(test_rand(rand) % 20 * MS)};
    struct place *place = &board->places[victim];
    uint64_t before[ENDS], took;
    if (test_rand(rand) % 4) /* else in the beginning of its work */
        (void)nanosleep(&moment, NULL);
    if (kill(pids[victim], SIGKILL) || waitpid(pids[victim], NULL, 0) != pids[victim])
        return 1;
    atomic_store(&place->killed_ns, test_now_ns());
    atomic_store(&place->dead, lives[victim]);
    AWAIT(all_noticed(victim), "the others have not noticed");
    took = test_now_ns() - atomic_load(&place->killed_ns);
    *slowest = took > *slowest ? took : *slowest;
    start(victim, test_rand(rand));
    for (int i = 0; i < ENDS; i++)
        before[i] = atomic_load(&board->places[i].alive);
    AWAIT(all_work(before), "messages do not come any more");
    return 0;
}

static int stop_all(void)
{
    int bad = 0, status;
    atomic_store(&board->stop, true);
    for (int i = 0; i < ENDS; i++)
        bad |= waitpid(pids[i], &status, 0) != pids[i] || status;
    if (bad)
        fprintf(stderr, "a process did not end well\n");
    return bad;
}

/* Get a /dev/shm of our own, if the system allows that. */
static bool own_shm(void)
{
    return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("fabric_kill", "/dev/shm", "tmpfs", 0, "mode=1777");
}

static int files_left(void)
{
    DIR *dir = opendir("/dev/shm");
    struct dirent *d;
    int n = 0;
    while (dir && (d = readdir(dir)))
        if (strcmp(d->d_name, ".") && strcmp(d->d_name, "..")) {
            fprintf(stderr, "left behind: /dev/shm/%s\n", d->d_name);
            n++;
        }
    if (dir)
        closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0, slowest = 0, rand, zero[ENDS] = {0};
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 10;
    const char *transports = getenv("WEFT_TRANSPORTS");
    bool tcp = transports && !strstr(transports, "shm"), own = own_shm();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 2;
    rand = seed = seed ? seed : test_seed();
    limit_ns = tcp ? 10 * SECOND : SECOND; /* the default of WEFT_PEER_TIMEOUT */
    alarm(60 + count * (tcp ? 15 : 5));
    for (int i = 0; i < ENDS; i++)
        start(i, test_rand(&rand));
    AWAIT(all_work(zero), "no messages come");
    for (unsigned i = 0; i < count; i++)
        if (turn(&rand, &slowest)) {
            fprintf(stderr, "kill %u of seed %llu\n", i, (unsigned long long)seed);
            return 1;
        }
    if (stop_all() || (own && files_left()))
        return 1;
    printf("# seed %llu\nkills over %s: %u of %u held; slowest %.1f ms\n", (unsigned long long)seed,
           tcp ? "tcp" : "shm", count, count, (double)slowest / 1e6);
    return 0;
}
