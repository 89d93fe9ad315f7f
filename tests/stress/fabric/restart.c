/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric_restart [SEED [COUNT]]: a client knows a server by IP address and port alone, and begins
 * before the first server is there. COUNT times the server is killed at a random moment under load,
 * and another one takes its name. SEED 0: another one each time, printed. WEFT_TRANSPORTS sets how
 * they reach each other.
 *
 * Fails when: a send does not end in time, or with another error than those of a lost peer; a
 * server gets a message twice, or one that another server got; the client does not reach the next
 * server in time; a message does not come that was complete at FI_MATCH_COMPLETE, while its server
 * lives. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contract/support.h"
#include "end.h"

#define HERE "127.0.0.1"
#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define LIMIT (20 * SECOND) /* of what WEFT_PEER_TIMEOUT, 2 s, decides, on a busy machine */
enum { WINDOW = 16, RECVS = 32, MESSAGES = 1 << 22, LONGEST = 20000 };

static struct board {
    _Atomic uint32_t life; /* of the server; from 1 */
    _Atomic uint64_t got;  /* by the server of this life */
    _Atomic uint64_t sent; /* messages that the client has begun */
    _Atomic uint64_t lost, matched;
    atomic_bool stop, over; /* of the client, of the server */
    char port[16];
    _Atomic uint8_t seen[MESSAGES], complete[MESSAGES];
} * board;

static _Noreturn void fail(const char *what, int64_t a, int64_t b)
{
    fprintf(stderr, "process %d: %s (%lld, %lld)\n", (int)getpid(), what, (long long)a,
            (long long)b);
    _exit(1);
}

static struct end_how how_of(const char *port)
{
    return (struct end_how){.caps = FI_TAGGED,
                            .threading = FI_THREAD_DOMAIN,
                            .format = FI_CQ_FORMAT_TAGGED,
                            .wait_obj = FI_WAIT_UNSPEC,
                            .node = HERE,
                            .service = port};
}

/* ---- the server ---- */

static int serve(uint32_t life)
{
    static unsigned char room[RECVS][LONGEST];
    const struct end_how how = how_of(board->port);
    struct end e;
    end_open(&e, &how);
    for (int i = 0; i < RECVS; i++)
        MUST(fi_trecv(e.ep, room[i], LONGEST, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, room[i]));
    atomic_store(&board->got, 0);
    atomic_store(&board->life, life);
    while (!atomic_load(&board->over)) {
        struct fi_cq_tagged_entry x;
        ssize_t n = fi_cq_sread(e.cq, &x, 1, NULL, 10);
        if (n == -FI_EAGAIN)
            continue;
        if (n != 1 || x.tag >= MESSAGES)
            fail("what the server receives", n, (int64_t)x.tag);
        if (atomic_fetch_add(&board->seen[x.tag], 1))
            fail("a message comes twice", (int64_t)x.tag, life);
        atomic_fetch_add(&board->got, 1);
        MUST(fi_trecv(e.ep, x.op_context, LONGEST, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX,
                      x.op_context));
    }
    end_close(&e);
    return 0;
}

/* ---- the client ---- */

static struct send {
    bool busy;
    uint64_t number, until_ns;
} sends[WINDOW];

static bool is_loss(int err)
{
    return err == FI_ECONNRESET || err == FI_ESHUTDOWN || err == FI_EHOSTUNREACH ||
           err == FI_ECONNREFUSED;
}

static void send_next(struct end *e, fi_addr_t to, struct send *s, uint64_t *rand)
{
    static unsigned char data[LONGEST];
    uint64_t r = test_rand(rand), number = atomic_load(&board->sent);
    struct iovec iov = {data, r % 8 ? 8 + r % 200 : r % LONGEST};
    struct fi_msg_tagged m = {
        .msg_iov = &iov, .iov_count = 1, .addr = to, .tag = number, .context = s};
    ssize_t rc = fi_tsendmsg(e->ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION);
    if (rc == -FI_EAGAIN)
        return;
    if (rc && !is_loss((int)-rc))
        fail("what a send returns", rc, (int64_t)number);
    if (rc) { /* the loss, found by this call */
        atomic_fetch_add(&board->lost, 1);
        return;
    }
    *s = (struct send){true, number, test_now_ns() + LIMIT};
    if (atomic_fetch_add(&board->sent, 1) + 1 == MESSAGES)
        fail("more messages than the test has room for", MESSAGES, 0);
}

static void send_end(struct send *s, int err)
{
    if (err && !is_loss(err))
        fail("what a send ends with", err, (int64_t)s->number);
    if (err)
        atomic_fetch_add(&board->lost, 1);
    else
        atomic_store(&board->complete[s->number], 1);
    atomic_fetch_add(&board->matched, !err);
    s->busy = false;
}

/* Read the completions. Returns true if a send is under way. */
static bool take(struct end *e)
{
    struct fi_cq_tagged_entry x;
    struct fi_cq_err_entry err = {0};
    bool busy = false;
    ssize_t n;
    while ((n = fi_cq_read(e->cq, &x, 1)) == 1)
        send_end(x.op_context, 0);
    if (n == -FI_EAVAIL && fi_cq_readerr(e->cq, &err, 0) == 1)
        send_end(err.op_context, err.err);
    for (int i = 0; i < WINDOW; i++) {
        if (sends[i].busy && test_now_ns() > sends[i].until_ns)
            fail("a send does not end", (int64_t)sends[i].number, 0);
        busy |= sends[i].busy;
    }
    return busy;
}

static int client(uint64_t seed)
{
    const struct end_how how = how_of("0");
    uint64_t rand = seed;
    struct end e;
    fi_addr_t to;
    end_open(&e, &how);
    MUST(fi_av_insertsvc(e.av, HERE, board->port, &to, 0, NULL) == 1 ? 0 : -FI_EINVAL);
    while (!atomic_load(&board->stop)) {
        for (int i = 0; i < WINDOW; i++)
            if (!sends[i].busy)
                send_next(&e, to, &sends[i], &rand);
        (void)take(&e);
        sched_yield();
    }
    while (take(&e))
        sched_yield();
    end_close(&e);
    return 0;
}

/* ---- the parent ---- */

static pid_t start(int (*run)(uint64_t), uint64_t arg)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork", 0, 0);
    if (!pid) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run(arg));
    }
    return pid;
}

static int run_server(uint64_t life)
{
    return serve((uint32_t)life);
}

/* Returns a free port. */
static void port_choose(char text[16])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) ||
        getsockname(fd, (struct sockaddr *)&at, &len))
        fail("no port", 0, 0);
    close(fd);
    (void)snprintf(text, 16, "%u", ntohs(at.sin_port));
}

static void pause_ms(uint64_t ms)
{
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * MS)};
    (void)nanosleep(&t, NULL);
}

/* Wait until the server of [life] has got [n] messages. */
static void await_served(uint32_t life, uint64_t n)
{
    uint64_t until = test_now_ns() + LIMIT;
    while (atomic_load(&board->life) != life || atomic_load(&board->got) < n) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0 || test_now_ns() > until)
            fail(ended > 0 ? "a process has ended" : "the client does not reach the server", life,
                 (int64_t)atomic_load(&board->got));
        pause_ms(1);
    }
}

/* The messages from [first] on that are complete have come to the server, which lives. */
static void all_seen(uint64_t first)
{
    uint64_t until = test_now_ns() + LIMIT;
    for (uint64_t i = first; i < atomic_load(&board->sent); i++)
        while (atomic_load(&board->complete[i]) && !atomic_load(&board->seen[i]))
            if (test_now_ns() > until)
                fail("a message that was complete has not come", (int64_t)i, 0);
}

static void must_end(pid_t pid, const char *what)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || status)
        fail(what, status, 0);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0, rand, first = 0;
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 5;
    const char *transports = getenv("WEFT_TRANSPORTS");
    pid_t server, sender;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 2;
    rand = seed = seed ? seed : test_seed();
    alarm(60 + count * 10);
    setenv("WEFT_CONNECT_TIMEOUT", "3s", 1);
    setenv("WEFT_PEER_TIMEOUT", "2s", 1);
    port_choose(board->port);
    sender = start(client, test_rand(&rand));
    pause_ms(200);
    server = start(run_server, 1);
    for (unsigned i = 1; i <= count; i++) {
        await_served(i, 20);
        pause_ms(test_rand(&rand) % 10);
        if (kill(server, SIGKILL) || waitpid(server, NULL, 0) != server)
            fail("killing the server", i, 0);
        first = atomic_load(&board->sent) + 1; /* one may be on its way into the count */
        server = start(run_server, i + 1);
    }
    await_served(count + 1, 200);
    atomic_store(&board->stop, true);
    must_end(sender, "the client");
    all_seen(first);
    atomic_store(&board->over, true);
    must_end(server, "the server");
    printf("# seed %llu\nmeasured %u restarts over %s: %llu sent, %llu complete, %llu lost\n",
           (unsigned long long)seed, count, transports ? transports : "all",
           (unsigned long long)atomic_load(&board->sent),
           (unsigned long long)atomic_load(&board->matched),
           (unsigned long long)atomic_load(&board->lost));
    return atomic_load(&board->lost) ? 0 : !!count;
}
