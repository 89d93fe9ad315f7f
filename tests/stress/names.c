/* SPDX-License-Identifier: BSD-3-Clause */
/* A client that knows a server by IP address and port alone, and servers there that are killed and
 * started again under load.
 *
 *     names_test RESTARTS SEED [shm|tcp|rdma]
 *
 * Seed 0: another one each time; printed. The client begins before the first server is there. Each
 * server is a process that executes this program anew. Messages and puts carry the number of the
 * server that the client believes to be there: it changes that number when a loss is reported.
 *
 * Fails when: an operation does not end; one that ended well was not done at the server that was
 * there; a server gets a message or a put of before it was found (a number below its own); the
 * client gets no report of a killed server, or does not find the next one; a second server can take
 * the name while the first one lives; the client has more descriptors in the end than before. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/mr.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { NOTE = 1, KEY = 99, WINDOW = 32, LONGEST = 100000, MORE = 8 };

/* What the processes share: descriptor 3 of a server. */
struct board {
    _Atomic uint32_t serving;  /* number of the server that has its name */
    _Atomic uint32_t ip, port; /* of the name */
    _Atomic uint64_t got;      /* messages at all servers */
    _Atomic uint32_t wrong;    /* of a number that is not the server's: see must_be_mine */
};

static struct board *board;
static uint64_t rng, seed;
static const char *role = "client";

#define CHECK(cond) ((cond) ? (void)0 : die(#cond, __LINE__))
static _Noreturn void die(const char *what, int line)
{
    fprintf(stderr, "names.c:%d: %s, seed %llu: not true: %s\n", line, role,
            (unsigned long long)seed, what);
    _Exit(1);
}
#define MUST(call) must((call), #call, __LINE__)
static void must(enum weft_status status, const char *what, int line)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "names.c:%d: %s, seed %llu: %s: %s\n", line, role, (unsigned long long)seed,
            what, weft_status_name(status));
    _Exit(1);
}

static struct weft_ctx *context(void)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of client and servers";
    struct weft_mr_domain domain = WEFT_MR_DOMAIN_INIT;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    domain.mode = WEFT_MR_ALLOCATED;
    params.flags = WEFT_CTX_NETWORK;
    params.mr = &domain;
    MUST(weft_ctx_open(&params, &ctx));
    MUST(weft_ctx_set_key(ctx, key, sizeof key));
    return ctx;
}

static struct sockaddr_in name_at(uint32_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(board->ip)}};
}

/* ---- a server ---- */

static enum weft_status named_open(struct weft_ctx *ctx, uint32_t port, struct weft_ep **ep)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct sockaddr_in name = name_at(port);
    params.name = (struct sockaddr *)(void *)&name;
    params.name_size = sizeof name;
    return weft_ep_open(ctx, &params, ep);
}

/* The client changes its number only after a loss was reported to it, so it may be behind the
 * server: its first operations to a new server must carry the server's number, or none may come at
 * all. */
static void must_be_mine(uint32_t number, uint64_t carried)
{
    if (carried != number)
        atomic_fetch_add(&board->wrong, 1);
}

static uint32_t my_number;

static void on_note(const struct weft_am *am)
{
    must_be_mine(my_number, am->args[0]);
    atomic_fetch_add(&board->got, 1);
}

static _Noreturn void server(uint32_t number)
{
    static unsigned char in[LONGEST];
    static uint64_t words[WINDOW];
    struct weft_ctx *ctx = context();
    struct weft_op op = {0};
    struct weft_ep *ep;
    struct weft_mr *mr;
    role = "server";
    my_number = number;
    CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
    MUST(weft_mr_reg(ctx, words, sizeof words, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, 0, KEY, 0, &mr,
                     NULL));
    MUST(named_open(ctx, board->port, &ep));
    MUST(weft_am_register(ep, NOTE, on_note, NULL));
    board->serving = number;
    for (;;) {
        enum weft_status status = weft_msg_recv(ep, NULL, 0, 0, in, sizeof in, &op);
        while (status == WEFT_PENDING && op.status == WEFT_PENDING) {
            (void)weft_ep_wait(ep, 1000000);
            for (int i = 0; i < WINDOW; i++)
                if (words[i])
                    must_be_mine(number, words[i]);
        }
        if (op.status == WEFT_OK) {
            must_be_mine(number, op.tag);
            if (!test_same(in, op.len, op.tag))
                atomic_fetch_add(&board->wrong, 1);
            atomic_fetch_add(&board->got, 1);
        }
    }
}

static pid_t server_start(uint32_t number)
{
    char text[16];
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    snprintf(text, sizeof text, "%u", number);
    execl("/proc/self/exe", "names_test", "serve", text, NULL);
    _exit(127);
}

/* ---- the client ---- */

struct client {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *remote;
    uint32_t believed; /* number of the server that operations are meant for */
    unsigned downs;
    struct weft_op ops[2 * WINDOW];
    bool busy[2 * WINDOW];
    uint64_t words[WINDOW];
    uint64_t good, bad;
};

static unsigned char bytes[WINDOW][LONGEST];

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct client *c = arg;
    (void)ep;
    (void)peer;
    CHECK(why == WEFT_EPEER || why == WEFT_ECLOSED || why == WEFT_EUNREACH);
    c->downs++;
    c->believed += why != WEFT_EUNREACH;
}

static bool is_loss(int status)
{
    return status == WEFT_EPEER || status == WEFT_ECLOSED || status == WEFT_EUNREACH;
}

static void ended(struct client *c, int i, int status)
{
    c->busy[i] = false;
    CHECK(status == WEFT_OK || is_loss(status) || status == WEFT_EKEY);
    if (status == WEFT_OK)
        c->good++;
    else
        c->bad++;
}

static void begin(struct client *c, int i)
{
    enum weft_status status;
    c->ops[i] = (struct weft_op){0};
    if (i < WINDOW) {
        size_t len = test_rand(&rng) % 4 ? test_rand(&rng) % 64 : test_rand(&rng) % LONGEST;
        test_fill(bytes[i], len, c->believed);
        status = weft_msg_send(c->peer, c->believed, bytes[i], len, &c->ops[i]);
    } else {
        c->words[i - WINDOW] = c->believed;
        status =
            weft_put(c->remote, 8 * (uint64_t)(i - WINDOW), &c->words[i - WINDOW], 8, &c->ops[i]);
    }
    c->busy[i] = status == WEFT_PENDING;
    if (status != WEFT_PENDING && status != WEFT_AGAIN)
        ended(c, i, status);
}

static void turn(struct client *c)
{
    uint32_t note = c->believed;
    int i = (int)(test_rand(&rng) % (2 * WINDOW));
    if (!c->busy[i])
        begin(c, i);
    if (test_rand(&rng) % 2) {
        enum weft_status status = weft_am_request(c->peer, NOTE, &note, 1, NULL, 0, 0);
        CHECK(status == WEFT_OK || status == WEFT_AGAIN || is_loss(status));
    }
    CHECK(weft_ep_poll(c->ep) >= 0);
    for (i = 0; i < 2 * WINDOW; i++)
        if (c->busy[i] && c->ops[i].status != WEFT_PENDING)
            ended(c, i, c->ops[i].status);
}

/* Load until [messages] more have come to a server. */
static void load(struct client *c, uint64_t messages)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS, until = board->got + messages;
    while (board->got < until) {
        turn(c);
        CHECK(test_now_ns() < end);
    }
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    CHECK(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void client_open(struct client *c)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char address[WEFT_ADDR_MAX];
    struct sockaddr_in name;
    size_t len = sizeof address;
    params.peer_down = on_down;
    params.arg = c;
    c->ctx = context();
    MUST(weft_ep_open(c->ctx, &params, &c->ep));
    c->believed = 1;
    name = name_at(board->port);
    MUST(weft_name_address((struct sockaddr *)(void *)&name, sizeof name, address, &len));
    MUST(weft_peer_open(c->ep, address, len, &c->peer));
    MUST(weft_remote_open_key(c->peer, KEY, &c->remote));
}

static void port_choose(void)
{
    struct weft_ctx *ctx = context();
    struct sockaddr_in name;
    size_t len = sizeof name;
    struct weft_ep *ep;
    board->ip = test_own_ip();
    MUST(named_open(ctx, 0, &ep));
    MUST(weft_ep_name(ep, (struct sockaddr *)(void *)&name, &len));
    board->port = ntohs(name.sin_port);
    MUST(weft_ep_close(ep));
    MUST(weft_ctx_close(ctx));
}

static void second_refused(const struct client *c)
{
    struct weft_ep *ep;
    CHECK(named_open(c->ctx, board->port, &ep) == WEFT_EBUSY);
}

static void restarts(unsigned count)
{
    static struct client c;
    uint64_t slowest = 0;
    int before = 0;
    port_choose();
    client_open(&c);
    for (int i = 0; i < 1000; i++)
        turn(&c); /* no server is there */
    for (uint32_t number = 1; number <= count + 1; number++) {
        uint64_t begun, end = test_now_ns() + TEST_LIMIT_NS;
        unsigned downs = c.downs;
        pid_t pid = server_start(number);
        int status;
        load(&c, 1);
        CHECK(board->serving == number && c.believed == number);
        load(&c, test_rand(&rng) % 300);
        if (number == 1) {
            second_refused(&c);
            before = open_files();
        }
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        begun = test_now_ns();
        while (c.downs == downs) {
            turn(&c);
            CHECK(test_now_ns() < end);
        }
        if (test_now_ns() - begun > slowest)
            slowest = test_now_ns() - begun;
        CHECK(!board->wrong);
    }
    CHECK(open_files() <= before + MORE);
    CHECK(c.good && c.bad);
    printf("measured %u restarts: %llu messages came, %llu operations ended well, %llu were lost "
           "and reported; a "
           "loss took at most %llu ms\n",
           count, (unsigned long long)board->got, (unsigned long long)c.good,
           (unsigned long long)c.bad, (unsigned long long)(slowest / 1000000));
    MUST(weft_remote_close(c.remote));
    MUST(weft_peer_close(c.peer));
    MUST(weft_ep_close(c.ep));
    MUST(weft_ctx_close(c.ctx));
}

static void board_map(int fd)
{
    void *at = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    board = at;
}

int main(int argc, char **argv)
{
    int fd;
    if (argc == 3 && !strcmp(argv[1], "serve")) {
        board_map(3);
        server((uint32_t)strtoul(argv[2], NULL, 0));
    }
    if (argc < 3) {
        fprintf(stderr, "names_test RESTARTS SEED [shm|tcp|rdma]\n");
        return 2;
    }
    if (argc > 3) {
        char text[32];
        snprintf(text, sizeof text, "loop,%s", argv[3]);
        CHECK(!setenv("WEFT_TRANSPORTS", text, 1));
    }
    CHECK(!setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 0));
    seed = strtoull(argv[2], NULL, 0);
    seed = seed ? seed : test_seed();
    rng = seed;
    fd = memfd_create("board", 0);
    CHECK(fd >= 0 && !ftruncate(fd, sizeof *board) && (fd == 3 || dup2(fd, 3) == 3));
    board_map(3);
    restarts((unsigned)strtoul(argv[1], NULL, 0));
    return 0;
}
