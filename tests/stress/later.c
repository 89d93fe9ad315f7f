/* SPDX-License-Identifier: BSD-3-Clause */
/* A server keeps its clients' requests and replies to them later, in any order, in handlers and
 * outside, while clients are killed at random moments, leave with replies due, and others come.
 *
 *     later_test COUNT SEED [shm|tcp]...
 *
 * COUNT late replies to all clients together, by each transport in turn. Seed 0: another one each
 * time; printed.
 *
 * Fails when: a client that lives is not answered, is answered twice, with other contents, by
 * another peer, or refused; a reply to one that is gone is anything but taken, EPEER or ECLOSED;
 * the server stops, hangs, or has other descriptors in the end than before the first client; a
 * reply is due after all were given; nothing was killed (then it tested nothing). */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { ASK = 1, ANSWER = 2 };
enum {
    CLIENTS = 6,       /* at a time */
    MOST = 1 << 20,    /* clients in all */
    WINDOW = 256,      /* requests of a client without an answer, at most */
    KEPT = 1 << 15,    /* more than all clients' windows, also those of the last ones killed */
    SLACK = 32,        /* mappings: what the allocator keeps */
    PEERS = 4,         /* that the server opens, of its clients */
    KILL_EVERY = 1000, /* requests between two kills, at most */
};

/* What the processes of a run share. A client that is killed leaves its counts there. */
struct board {
    _Atomic uint64_t answered, refused; /* at clients */
    _Atomic uint64_t taken, in_handler; /* at the server */
    _Atomic uint64_t lost;              /* there, too: the client was gone */
    _Atomic uint32_t stop;              /* clients: no more requests; leave when all are answered */
    _Atomic uint32_t kills;             /* done, of those that the server asked for */
    _Atomic uint32_t finish;            /* the server: no client is left */
    _Atomic uint8_t gone[MOST];         /* by number; set before it is killed or leaves */
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
};

static struct board *board;
static uint64_t rng, seed;
static const char *role = "parent";

#define CHECK(cond) ((cond) ? (void)0 : die(#cond, __LINE__))
static _Noreturn void die(const char *what, int line)
{
    fprintf(stderr, "later.c:%d: %s, seed %llu: not true: %s\n", line, role,
            (unsigned long long)seed, what);
    _Exit(1);
}
#define MUST(call) must((call), #call, __LINE__)
static void must(enum weft_status status, const char *what, int line)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "later.c:%d: %s, seed %llu: %s: %s\n", line, role, (unsigned long long)seed,
            what, weft_status_name(status));
    _Exit(1);
}

static uint64_t draw(uint64_t below)
{
    return test_rand(&rng) % below;
}

/* In the line, and beside it. */
static size_t draw_length(size_t most)
{
    return draw(2) ? draw(most + 1) : draw(most < 64 ? most + 1 : 65);
}

/* ---- the requests of client [number] by [id], and their replies ---- */

static uint64_t contents(uint32_t number, uint32_t id, bool reply)
{
    return test_mix((uint64_t)number << 32 | id) + reply;
}

static void args_fill(uint32_t *args, unsigned nargs, uint32_t number, uint32_t id, bool reply)
{
    args[0] = id;
    args[1] = number;
    for (unsigned i = 2; i < nargs; i++)
        args[i] = (uint32_t)(contents(number, id, reply) >> i) + i;
}

static bool args_same(const uint32_t *args, unsigned nargs, uint32_t number, uint32_t id,
                      bool reply)
{
    uint32_t want[WEFT_AM_MAX_ARGS];
    if (nargs < 2 || nargs > WEFT_AM_MAX_ARGS)
        return false;
    args_fill(want, nargs, number, id, reply);
    return !memcmp(args, want, 4 * nargs);
}

static struct weft_ctx *context(void)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "known to all clients";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    params.flags = WEFT_CTX_NETWORK;
    MUST(weft_ctx_open(&params, &ctx));
    MUST(weft_ctx_set_key(ctx, key, sizeof key));
    return ctx;
}

/* ---- a client ---- */

struct client {
    struct weft_ep *ep;
    struct weft_peer *server;
    uint32_t number;
    unsigned window, due, next; /* next: of the slots */
    struct asked {
        uint64_t since_ns; /* 0: none */
        uint32_t id;       /* % WINDOW is the slot */
        uint32_t reply_max;
        unsigned nargs;
    } asked[WINDOW];
    unsigned char data[1 << 15];
};

/* The request [id], which ends. */
static struct asked *answered(struct client *c, uint32_t id)
{
    struct asked *a = &c->asked[id % WINDOW];
    CHECK(a->since_ns && a->id == id); /* once */
    a->since_ns = 0;
    a->id += WINDOW;
    c->due--;
    return a;
}

static void on_answer(const struct weft_am *am)
{
    struct client *c = am->arg;
    uint32_t id = am->args[0];
    struct asked *a = answered(c, id);
    CHECK(am->is_reply && !am->can_reply && am->len < a->reply_max);
    CHECK(args_same(am->args, am->nargs, c->number, id, true));
    CHECK(test_same(am->data, am->len, contents(c->number, id, true)));
    CHECK(weft_am_peer(am) == c->server && weft_peer_arg(weft_am_peer(am)) == c);
    board->answered++;
}

static void on_failed(const struct weft_am_failure *f)
{
    struct client *c = f->arg;
    struct asked *a;
    CHECK(f->why == WEFT_ECANCELED && f->handler == ASK && f->peer == c->server && f->nargs);
    a = answered(c, f->args[0]);
    CHECK(f->nargs == (a->nargs < WEFT_AM_FAILED_ARGS ? a->nargs : WEFT_AM_FAILED_ARGS));
    CHECK(args_same(f->args, f->nargs, c->number, f->args[0], false));
    board->refused++;
}

static void on_server_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                           void *arg)
{
    (void)ep;
    (void)peer;
    (void)arg;
    MUST(why);
}

/* False: no room now. */
static bool ask(struct client *c)
{
    size_t most = weft_am_max(c->ep), len = draw_length(most), reply_max = 1 + draw_length(most);
    unsigned nargs = (unsigned)(2 + draw(WEFT_AM_MAX_ARGS - 1));
    uint32_t args[WEFT_AM_MAX_ARGS];
    enum weft_status status;
    struct asked *a;
    while (c->asked[c->next % WINDOW].since_ns)
        c->next++;
    a = &c->asked[c->next % WINDOW];
    args_fill(args, nargs, c->number, a->id, false);
    test_fill(c->data, len, contents(c->number, a->id, false));
    status = weft_am_request(c->server, ASK, args, nargs, c->data, len, reply_max);
    if (status == WEFT_AGAIN)
        return false;
    MUST(status);
    a->since_ns = test_now_ns();
    a->reply_max = (uint32_t)reply_max;
    a->nargs = nargs;
    c->due++;
    return true;
}

/* One slot after the other: is its answer overdue? */
static void look(const struct client *c, unsigned turn)
{
    uint64_t since = c->asked[turn % WINDOW].since_ns;
    CHECK(!since || test_now_ns() < since + TEST_LIMIT_NS);
}

static void client_open(struct client *c, struct weft_ctx *ctx, uint32_t number)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_server_down;
    params.am_failed = on_failed;
    params.arg = c;
    c->number = number;
    c->window = (unsigned)(1 + draw(WINDOW));
    for (uint32_t i = 0; i < WINDOW; i++)
        c->asked[i].id = i;
    MUST(weft_ep_open(ctx, &params, &c->ep));
    CHECK(weft_am_max(c->ep) <= sizeof c->data);
    MUST(weft_am_register(c->ep, ANSWER, on_answer, c));
    MUST(weft_peer_open(c->ep, board->address, board->len, &c->server));
    weft_peer_set_arg(c->server, c);
}

/* Sends requests until it has to stop, or has sent [most]. */
static void client_run(struct client *c, uint64_t most)
{
    unsigned turn = 0;
    while (!board->stop && most) {
        bool room = true;
        for (uint64_t n = 1 + draw(32); n && most && room && c->due < c->window; n--, most -= room)
            room = ask(c);
        CHECK(weft_ep_wait(c->ep, room && c->due < c->window ? 0 : 10000000) >= 0);
        look(c, turn++);
    }
}

/* One in four leaves unasked, half of these with replies due. */
static int client_main(uint32_t number)
{
    static struct client c;
    struct weft_ctx *ctx = context();
    bool leaves = !draw(4), waits = draw(2);
    client_open(&c, ctx, number);
    client_run(&c, leaves ? draw(1500) : UINT64_MAX);
    for (unsigned turn = 0; c.due && (waits || board->stop); turn++) {
        CHECK(weft_ep_wait(c.ep, 10000000) >= 0);
        look(&c, turn);
    }
    board->gone[number] = 1;
    MUST(weft_peer_close(c.server));
    MUST(weft_ep_close(c.ep));
    MUST(weft_ctx_close(ctx));
    return 0;
}

/* ---- the server ---- */

struct server {
    struct weft_ep *ep;
    struct kept {
        struct weft_am_later later;
        uint32_t number, id;
    } kept[KEPT];
    unsigned nkept, npeers;
    struct weft_peer *peers[PEERS]; /* of clients; their arg: the client's place in gone */
    uint64_t asked, next_kill;
    uint32_t kills; /* asked for */
    uint32_t wants; /* a peer is to be opened for this client, at [address] */
    unsigned char address[WEFT_ADDR_MAX];
    size_t len; /* 0: none */
};

static enum weft_status answer_one(const struct kept *k)
{
    unsigned char data[1 << 15];
    uint32_t args[WEFT_AM_MAX_ARGS];
    unsigned nargs = (unsigned)(2 + draw(WEFT_AM_LATER_MAX_ARGS - 1));
    size_t len = draw_length(k->later.reply_max - 1);
    if (!draw(16))
        return weft_am_drop(&k->later);
    args_fill(args, nargs, k->number, k->id, true);
    test_fill(data, len, contents(k->number, k->id, true));
    return weft_am_reply_later(&k->later, ANSWER, args, nargs, data, len);
}

/* [n] of those that are kept, in random order. */
static void answer(struct server *s, uint64_t n)
{
    for (; n && s->nkept; n--) {
        uint64_t i = draw(s->nkept);
        struct kept k = s->kept[i];
        enum weft_status status = answer_one(&k);
        s->kept[i] = s->kept[--s->nkept];
        if (status == WEFT_OK) {
            board->taken++;
            continue;
        }
        if ((status != WEFT_EPEER && status != WEFT_ECLOSED) || !board->gone[k.number])
            MUST(status);
        board->lost++;
        CHECK(weft_am_drop(&k.later) == WEFT_EINVAL); /* it is not due any more */
    }
}

static bool is_of(const struct weft_peer *peer, uint32_t number)
{
    return weft_peer_arg(peer) == &board->gone[number];
}

/* The sender is the peer that is open for it. */
static void check_sender(const struct server *s, const struct weft_am *am)
{
    const struct weft_peer *peer = weft_am_peer(am);
    CHECK(!peer || is_of(peer, am->args[1]));
    for (unsigned i = 0; i < s->npeers; i++)
        CHECK(!is_of(s->peers[i], am->args[1]) || s->peers[i] == peer);
    CHECK(!peer || s->npeers);
}

static void on_ask(const struct weft_am *am)
{
    struct server *s = am->arg;
    struct kept *k = &s->kept[s->nkept];
    uint32_t id = am->args[0], number = am->args[1];
    CHECK(args_same(am->args, am->nargs, number, id, false) && number < MOST);
    CHECK(test_same(am->data, am->len, contents(number, id, false)));
    check_sender(s, am);
    CHECK(s->nkept < KEPT);
    *k = (struct kept){.number = number, .id = id};
    MUST(weft_am_detach(am, &k->later));
    s->nkept++;
    s->asked++;
    if (!s->len && !draw(500) && !weft_am_peer(am)) {
        s->len = sizeof s->address;
        s->wants = number;
        MUST(weft_am_source(am, s->address, &s->len));
    }
    if (!draw(8)) {
        unsigned before = s->nkept;
        answer(s, 1 + draw(8));
        board->in_handler += before - s->nkept;
    }
}

static void on_client_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                           void *arg)
{
    _Atomic uint8_t *gone = weft_peer_arg(peer);
    (void)ep;
    (void)arg;
    CHECK(*gone && (why == WEFT_EPEER || why == WEFT_ECLOSED));
}

/* It stays open while a reply waits to leave by it. */
static void close_one(struct server *s)
{
    uint64_t i = draw(s->npeers);
    enum weft_status status = weft_peer_close(s->peers[i]);
    if (status == WEFT_EBUSY)
        return;
    MUST(status);
    s->peers[i] = s->peers[--s->npeers];
}

static void open_one(struct server *s)
{
    struct weft_peer **peer = &s->peers[s->npeers];
    if (s->npeers == PEERS) {
        close_one(s);
        return;
    }
    MUST(weft_peer_open(s->ep, s->address, s->len, peer));
    weft_peer_set_arg(*peer, &board->gone[s->wants]);
    s->npeers++;
    s->len = 0;
}

/* A client is to be killed, now and then. */
static void ask_for_kill(struct server *s, int parent)
{
    if (s->asked < s->next_kill || s->kills > board->kills + 1)
        return;
    s->next_kill = s->asked + 1 + draw(KILL_EVERY);
    s->kills++;
    CHECK(write(parent, "k", 1) == 1);
}

/* Keeps some hundreds and then answers many of them, or when nothing has come for a while. Of the
 * kills that it asks for it runs ahead by one, then its clients wait for the next one. */
static void serve(struct server *s, int parent)
{
    uint64_t hold = draw(600), empty = 0, idle = draw(20000);
    while (!board->finish) {
        bool ahead = s->kills > board->kills + 1 && !board->stop;
        int n = weft_ep_wait(s->ep, ahead || !s->nkept ? 1000000 : 0);
        CHECK(n >= 0);
        empty = n ? 0 : empty + 1;
        if (!n)
            sched_yield();
        if (!ahead && (s->nkept > hold || empty > idle)) {
            answer(s, 1 + draw(s->nkept + 1));
            hold = draw(600);
            idle = draw(draw(2) ? 20000 : 200);
            empty = 0;
        }
        if (s->len)
            open_one(s);
        ask_for_kill(s, parent);
    }
}

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; /* . and .. and dir's own */
}

static unsigned mappings(void)
{
    unsigned n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    CHECK(f);
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

/* No client is left: nothing stays of them. While a reply waits for one, sockets come and go, which
 * call where it was. */
static void server_end(struct server *s, unsigned fds)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    answer(s, UINT64_MAX);
    while (s->npeers) {
        close_one(s);
        CHECK(weft_ep_poll(s->ep) >= 0 && test_now_ns() < end);
    }
    while (descriptors() != fds) {
        CHECK(weft_ep_wait(s->ep, 10000000) >= 0);
        CHECK(test_now_ns() < end);
    }
}

/* EBUSY while a reply waits for a client of which it is not known yet that it is gone. */
static void server_close(struct server *s)
{
    uint64_t begin = test_now_ns();
    enum weft_status status;
    while ((status = weft_ep_close(s->ep)) == WEFT_EBUSY) {
        CHECK(weft_ep_wait(s->ep, 10000000) >= 0);
        CHECK(test_now_ns() < begin + TEST_LIMIT_NS);
    }
    MUST(status);
    printf("its endpoint closed within %.0f ms\n", (double)(test_now_ns() - begin) * 1e-6);
}

static void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    (void)doc;
    if (!strcmp(name, "LATE_SENT"))
        *(uint64_t *)arg = value;
}

static void server_open(struct server *s, struct weft_ctx *ctx)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_client_down;
    MUST(weft_ep_open(ctx, &params, &s->ep));
    MUST(weft_am_register(s->ep, ASK, on_ask, s));
    board->len = sizeof board->address;
    MUST(weft_ep_address(s->ep, board->address, &board->len));
}

static int server_main(int parent, const char *transport)
{
    static struct server s;
    unsigned first = !strcmp(transport, "tcp"); /* comes with its first connection, and stays */
    unsigned none = descriptors(), fds, maps, after;
    struct weft_ctx *ctx = context();
    uint64_t sent = 0;
    server_open(&s, ctx);
    fds = descriptors();
    maps = mappings();
    CHECK(write(parent, "s", 1) == 1);
    serve(&s, parent);
    server_end(&s, fds + first);
    after = mappings();
    printf("%s: the server had %u descriptors and %u mappings, and has %u and %u\n", transport, fds,
           maps, fds + first, after);
    CHECK(TEST_SANITIZED || after <= maps + SLACK);
    weft_stat_rows(ctx, stat_row, &sent);
    CHECK(board->answered + board->refused <= sent && sent <= board->taken);
    server_close(&s);
    MUST(weft_ctx_close(ctx));
    CHECK(descriptors() == none);
    return 0;
}

/* ---- the parent, which has no context and no threads ---- */

struct run {
    pid_t server, client[CLIENTS];
    uint32_t number[CLIENTS], started, killed, left;
    int ticks; /* the server writes there, now and then */
};

/* 0 in the child. */
static pid_t start(const char *what, uint64_t number)
{
    pid_t parent = getpid(), pid;
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    role = what;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(getppid() == parent);
    rng = test_mix(seed + number + 1);
    return 0;
}

static void client_start(struct run *r, int i)
{
    uint32_t number = r->started++;
    CHECK(number < MOST);
    r->number[i] = number;
    r->client[i] = start("client", number);
    if (r->client[i])
        return;
    close(r->ticks);
    exit(client_main(number));
}

static void client_kill(struct run *r, int i)
{
    int status;
    board->gone[r->number[i]] = 1;
    CHECK(!kill(r->client[i], SIGKILL));
    CHECK(waitpid(r->client[i], &status, 0) == r->client[i]);
    CHECK(status == SIGKILL || status == 0); /* 0: it had left just now */
    r->killed += status == SIGKILL;
    r->left += status == 0;
}

/* Waits for the server's word. */
static void tick(struct run *r)
{
    struct pollfd fd = {.fd = r->ticks, .events = POLLIN};
    char word;
    CHECK(poll(&fd, 1, TEST_LIMIT_NS / 1000000 * 3 / 2) == 1); /* after clients complain */
    CHECK(read(r->ticks, &word, 1) == 1);                      /* 0: the server has ended */
}

/* Others for those that have left. */
static void replace(struct run *r)
{
    for (int i = 0; i < CLIENTS; i++) {
        int status = 0;
        pid_t left = waitpid(r->client[i], &status, WNOHANG);
        CHECK(left >= 0 && status == 0);
        if (left) {
            r->left++;
            client_start(r, i);
        }
    }
}

/* One is killed and another one started; of four of these one dies within milliseconds, too. */
static void kill_one(struct run *r)
{
    int i = (int)draw(CLIENTS);
    client_kill(r, i);
    client_start(r, i);
    if (draw(4))
        return;
    for (uint64_t end = test_now_ns() + draw(3000000); test_now_ns() < end;)
        ;
    client_kill(r, i);
    client_start(r, i);
}

/* The last clients: one is killed with replies due, the others leave. */
static void run_end(struct run *r)
{
    int status;
    client_kill(r, 0);
    board->stop = 1;
    for (int i = 1; i < CLIENTS; i++) {
        CHECK(waitpid(r->client[i], &status, 0) == r->client[i] && status == 0);
        r->left++;
    }
    board->finish = 1;
    CHECK(waitpid(r->server, &status, 0) == r->server && status == 0);
}

static void server_start(struct run *r, const char *transport)
{
    int ends[2];
    CHECK(!pipe2(ends, O_CLOEXEC));
    r->ticks = ends[0];
    r->server = start("server", MOST);
    if (!r->server) {
        close(ends[0]);
        exit(server_main(ends[1], transport));
    }
    close(ends[1]);
    tick(r);
}

static void report(const struct run *r, const char *transport, uint64_t begin_ns)
{
    const struct {
        const char *what;
        uint64_t n;
    } rows[] = {
        {"late replies that clients got", board->answered},
        {"requests given up, as clients were told", board->refused},
        {"answers and refusals that the server gave", board->taken},
        {"answers in another's handler", board->in_handler},
        {"answers refused, their clients being gone", board->lost},
        {"clients killed", r->killed},
        {"clients that left", r->left},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("counted %s: %s: %llu\n", transport, rows[i].what, (unsigned long long)rows[i].n);
    printf("%s: %.1f s\n", transport, (double)(test_now_ns() - begin_ns) * 1e-9);
}

static void run(uint64_t count, const char *transport)
{
    uint64_t begin = test_now_ns();
    char transports[32];
    struct run r = {.killed = 0};
    snprintf(transports, sizeof transports, "loop,%s", transport);
    setenv("WEFT_TRANSPORTS", transports, 1);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    server_start(&r, transport);
    for (int i = 0; i < CLIENTS; i++)
        client_start(&r, i);
    while (board->answered < count) {
        tick(&r);
        replace(&r);
        kill_one(&r);
        board->kills++;
    }
    run_end(&r);
    report(&r, transport, begin);
    CHECK(r.killed);
    close(r.ticks);
    munmap(board, sizeof *board);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    seed = seed ? seed : test_now_ns();
    rng = test_mix(seed);
    printf("seed %llu\n", (unsigned long long)seed);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    setenv("WEFT_PEER_TIMEOUT", "1000", 1); /* ms; so long it keeps what was killed */
    alarm((unsigned)(240 + count / 500));
    if (argc < 4)
        run(count, "shm");
    for (int i = 3; i < argc; i++)
        run(count, argv[i]);
    return 0;
}
