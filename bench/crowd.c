/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd [SECONDS] [ROUNDS] [BUSY] [CLIENTS...]: how long put and acknowledgement take between one
 * server and its clients, started without a launcher, beside BUSY processes that compute on the
 * cores that all of them share.
 *
 *     taskset -c 0,1 build/bench/crowd 2 5 2 1 3 8
 *
 * Each client sleeps for a millisecond, puts 64 bytes to the server's memory, sends a request, and
 * waits for its reply by weft_ep_wait, as the server does for requests. (Without the pause nearly
 * all operations are those of the slices in which client and server have a core each.) "told": each
 * process calls weft_ctx_set_local_ranks with more ranks than there are cores; "untold": none does.
 * The rounds of both alternate. Prints p50, p99 and mean over all clients' operations, in
 * microseconds: the median of the rounds. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "common.h"

enum { ASK = 1, ANSWER = 2, CLIENTS_MAX = 64, ROUNDS_MAX = 31, SAMPLES = 1 << 19, LEN = 64 };
enum { P50, P99, MEAN, FIGURES };
#define MANY 1000
#define PAUSE_US 1000
#define LIMIT_NS 20000000000ll

/* Shared by all processes of a round. */
struct board {
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len, key_len;
    int is_open, go, stop, close;
    uint32_t samples[CLIENTS_MAX];
    float us[CLIENTS_MAX][SAMPLES];
};

static struct board *board;
static uint64_t answers;

static int look(const int *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(int *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

static void on_ask(const struct weft_am *am)
{
    CHECK(!weft_am_reply(am, ANSWER, NULL, 0, NULL, 0));
}

static void on_answer(const struct weft_am *am)
{
    (void)am;
    answers++;
}

static void join_in(int told, struct weft_ctx **ctx, struct weft_ep **ep)
{
    CHECK(!weft_ctx_open(NULL, ctx) && !weft_ep_open(*ctx, NULL, ep));
    if (told)
        weft_ctx_set_local_ranks(*ctx, MANY);
    CHECK(!weft_am_register(*ep, ASK, on_ask, NULL));
    CHECK(!weft_am_register(*ep, ANSWER, on_answer, NULL));
}

static void serve(int told)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    join_in(told, &ctx, &ep);
    CHECK(!weft_mem_alloc(ctx, (size_t)CLIENTS_MAX * LEN, WEFT_REMOTE_WRITE, &mr));
    board->addr_len = sizeof board->addr;
    board->key_len = sizeof board->key;
    CHECK(!weft_ep_address(ep, board->addr, &board->addr_len));
    CHECK(!weft_mr_key(mr, board->key, &board->key_len));
    set(&board->is_open);
    while (!look(&board->close))
        CHECK(weft_ep_wait(ep, 100000000) >= 0);
    _exit(0);
}

static void ask(struct weft_ep *ep, struct weft_peer *peer)
{
    uint64_t before = answers;
    enum weft_status status;
    while ((status = weft_am_request(peer, ASK, NULL, 0, NULL, 0, 1)) == WEFT_AGAIN)
        CHECK(weft_ep_wait(ep, LIMIT_NS) >= 0);
    CHECK(status == WEFT_OK);
    while (answers == before)
        CHECK(weft_ep_wait(ep, LIMIT_NS) > 0);
}

static void be_client(int told, unsigned n)
{
    unsigned char data[LEN] = {0};
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *r;
    join_in(told, &ctx, &ep);
    CHECK(!weft_peer_open(ep, board->addr, board->addr_len, &peer));
    CHECK(!weft_remote_open(peer, board->key, board->key_len, &r));
    ask(ep, peer);
    while (!look(&board->go))
        usleep(1000);
    for (uint32_t i = 0; !look(&board->stop) && i < SAMPLES; i++) {
        uint64_t begun;
        usleep(PAUSE_US);
        begun = now_ns();
        CHECK(!weft_put(r, (uint64_t)n * LEN, data, LEN, NULL));
        ask(ep, peer);
        board->us[n][i] = (float)(now_ns() - begun) * 1e-3f;
        board->samples[n] = i + 1;
    }
    _exit(0);
}

static pid_t start(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static int floats_ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void evaluate(unsigned clients, double out[FIGURES])
{
    static float all[CLIENTS_MAX * (size_t)SAMPLES];
    size_t n = 0;
    double sum = 0;
    for (unsigned c = 0; c < clients; c++)
        for (uint32_t i = 0; i < board->samples[c]; i++)
            all[n++] = board->us[c][i];
    CHECK(n > 0);
    qsort(all, n, sizeof *all, floats_ascending);
    for (size_t i = 0; i < n; i++)
        sum += all[i];
    out[P50] = all[n / 2];
    out[P99] = all[n - 1 - n / 100];
    out[MEAN] = sum / (double)n;
}

static void one_round(unsigned clients, unsigned busy, unsigned seconds, int told,
                      double out[FIGURES])
{
    pid_t computing[CLIENTS_MAX], ours[CLIENTS_MAX + 1];
    memset(board, 0, sizeof *board);
    if (!(ours[0] = start()))
        serve(told);
    while (!look(&board->is_open))
        usleep(1000);
    for (unsigned i = 0; i < clients; i++)
        if (!(ours[i + 1] = start()))
            be_client(told, i);
    for (unsigned i = 0; i < busy; i++)
        if (!(computing[i] = start()))
            for (;;)
                __asm__ volatile("");
    usleep(200000);
    set(&board->go);
    sleep(seconds);
    set(&board->stop);
    for (unsigned i = 0; i < busy; i++) {
        kill(computing[i], SIGKILL);
        waitpid(computing[i], NULL, 0);
    }
    for (unsigned i = clients + 1; i-- > 0;) {
        int code;
        if (i == 0) /* the server, when all clients have ended */
            set(&board->close);
        CHECK(waitpid(ours[i], &code, 0) == ours[i]);
        CHECK(code == 0);
    }
    evaluate(clients, out);
}

static double median(double *of, unsigned n)
{
    qsort(of, n, sizeof *of, ascending);
    return of[n / 2];
}

static void measure(unsigned clients, unsigned busy, unsigned seconds, unsigned rounds)
{
    static double figures[2][FIGURES][ROUNDS_MAX];
    for (unsigned r = 0; r < rounds; r++)
        for (int told = 1; told >= 0; told--) {
            double out[FIGURES];
            one_round(clients, busy, seconds, told, out);
            for (int f = 0; f < FIGURES; f++)
                figures[told][f][r] = out[f];
        }
    for (int told = 1; told >= 0; told--)
        printf("%2u clients, %u busy, %-6s  p50 %9.1f us  p99 %9.1f us  mean %9.1f us\n", clients,
               busy, told ? "told" : "untold", median(figures[told][P50], rounds),
               median(figures[told][P99], rounds), median(figures[told][MEAN], rounds));
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 2;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 5;
    unsigned busy = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 2;
    CHECK(seconds > 0 && rounds > 0 && rounds <= ROUNDS_MAX && busy < CLIENTS_MAX);
    setvbuf(stdout, NULL, _IOLBF, 0);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    for (int i = 4; i < argc; i++) {
        unsigned clients = (unsigned)strtoul(argv[i], NULL, 0);
        CHECK(clients > 0 && clients < CLIENTS_MAX);
        measure(clients, busy, seconds, rounds);
    }
    if (argc < 5)
        measure(3, busy, seconds, rounds);
    return 0;
}
