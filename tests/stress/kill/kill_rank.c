/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of the job that kill_soak starts: mixed traffic until a mate dies, then it checks that
 * every call reports it, and sends to the ranks that are left.
 *
 * usage: kill_rank BOARD_FD READY_FD Exit code 0: all that this rank checked held; else
 * kill_board.fail names what did not. A watchdog ends a rank that hangs. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int point(const char *label); /* points/weft/meson.build */
#include <weft/job.h>
#include <weft/msg.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/rand.h"
#include "kill_board.h"
#include "transport/address.h"

#define WATCHDOG_S 20
#define TALK_NS (5 * KILL_SECOND)
#define TALK_ROUNDS 10
#define STEPS_PER_BARRIER 200
#define REST_NS 1000000

#define PART 16384 /* of each region, for each source */
#define PART_DATA 64
#define DATA_MAX 8192

enum { AM_SHORT = 1, AM_MEDIUM, AM_ASK, AM_ANSWER };

static struct kill_board *board;
static struct kill_rank *mine;
static struct weft_job *job;
static struct weft_ep *ep;
static struct weft_mr *mr;
static struct weft_remote *remotes[KILL_RANKS];
static struct weft_mr *private_mr; /* registered memory, each rank's part its own to write */
static unsigned char private_memory[KILL_RANKS * PART];
static struct weft_remote *privates[KILL_RANKS];
static unsigned char addresses[KILL_RANKS][WEFT_ADDR_MAX];
static int me;
static int dead = -1; /* the rank whose death a call or callback reported */
static uint64_t rand_state;
static uint64_t signals[KILL_RANKS]; /* put to each */
static int unanswered[KILL_RANKS];

/* Labels are also passed while joining and leaving; only traffic counts. */
static int point(const char *label)
{
    if (!board || me != board->victim || strcmp(label, board->label) ||
        atomic_load(&mine->phase) != KILL_TRAFFIC || atomic_load(&board->started) < KILL_RANKS)
        return 0;
    if (atomic_fetch_add(&mine->hits, 1) + 1 == board->hit) {
        atomic_store(&board->killed_ns, wf_now_ns());
        kill(getpid(), SIGKILL);
    }
    return 0;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(mine->fail, sizeof mine->fail, fmt, args);
    va_end(args);
    fprintf(stderr, "kill_rank %d: %s\n", me, mine->fail); /* all ranks': one failure brings more */
    _exit(1);
}

/* ---- statuses ---- */

static void saw(int rank, enum kill_seen how)
{
    if (rank != board->victim)
        fail("rank %d was reported dead, but %d was killed", rank, board->victim);
    dead = rank;
    if (!atomic_load(&mine->seen_ns[how]))
        atomic_store(&mine->seen_ns[how], wf_now_ns());
}

/* True: go on with [rank]. The only bad news there may be is the victim's death. */
static bool heed(int rank, enum weft_status status, enum kill_seen how)
{
    static const char *const names[] = {KILL_SEEN_NAMES};
    if (status == WEFT_EPEER)
        saw(rank, how);
    else if (status != WEFT_OK && status != WEFT_AGAIN && status != WEFT_PENDING)
        fail("%s for rank %d: %s", names[how], rank, weft_status_name(status));
    return status == WEFT_OK;
}

static void on_down(struct weft_ep *at, struct weft_peer *peer, enum weft_status why, void *arg)
{
    int rank = weft_job_peer_rank(job, peer);
    (void)at, (void)arg;
    if (atomic_load(&mine->phase) >= KILL_TALKED)
        return; /* others leave */
    if (rank < 0 || why != WEFT_EPEER)
        fail("peer_down for rank %d: %s", rank, weft_status_name(why));
    unanswered[rank] = 0;
    saw(rank, KILL_SEEN_DOWN);
}

static void rest(int64_t ns)
{
    int n = weft_ep_wait(ep, ns);
    if (n < 0)
        fail("weft_ep_wait: %s", weft_status_name((enum weft_status)n));
}

/* ---- contents ---- */

static unsigned char pattern(uint32_t seed, size_t i)
{
    return (unsigned char)((seed + (uint32_t)i) * 0x9e3779b1u >> 24);
}

static void fill(unsigned char *at, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++)
        at[i] = pattern(seed, i);
}

static void verify(const unsigned char *at, size_t len, uint32_t seed, const char *what, int from)
{
    for (size_t i = 0; i < len; i++)
        if (at[i] != pattern(seed, i))
            fail("%s of %zu bytes from rank %d: byte %zu is wrong", what, len, from, i);
}

/* args: sender, seed of the payload, and for AM_ASK the length of the reply */
static int sender(const struct weft_am *am, const char *what)
{
    if (am->nargs < 2 || am->args[0] >= KILL_RANKS)
        fail("%s with %u arguments, the first %u", what, am->nargs, am->args[0]);
    verify(am->data, am->len, am->args[1], what, (int)am->args[0]);
    return (int)am->args[0];
}

static void on_one_way(const struct weft_am *am)
{
    (void)sender(am, "a message");
}

static void on_ask(const struct weft_am *am)
{
    static unsigned char buf[DATA_MAX];
    int from = sender(am, "a question");
    uint32_t args[2] = {(uint32_t)me, am->args[1] ^ 0x5555u};
    enum weft_status s;
    fill(buf, am->args[2], args[1]);
    s = weft_am_reply(am, AM_ANSWER, args, 2, buf, am->args[2]);
    if (s != WEFT_OK && s != WEFT_EPEER)
        fail("weft_am_reply to rank %d: %s", from, weft_status_name(s));
}

static void on_answer(const struct weft_am *am)
{
    unanswered[sender(am, "an answer")]--;
}

/* ---- traffic ---- */

static uint32_t below(uint32_t n)
{
    return (uint32_t)(wf_rand(&rand_state) % n);
}

static bool request(int to, int handler, size_t len, uint32_t reply)
{
    static unsigned char buf[DATA_MAX];
    uint32_t args[3] = {(uint32_t)me, (uint32_t)wf_rand(&rand_state), reply};
    enum weft_status s;
    fill(buf, len, args[1]);
    s = weft_am_request(weft_job_peer(job, (unsigned)to), (unsigned)handler, args, 3, buf, len,
                        handler == AM_ASK ? reply + 1 : 0);
    if (s == WEFT_OK && handler == AM_ASK)
        unanswered[to]++;
    if (s == WEFT_AGAIN)
        rest(REST_NS);
    return heed(to, s, KILL_SEEN_REQUEST);
}

static uint64_t part(size_t offset)
{
    return (uint64_t)me * PART + offset;
}

/* Nobody else writes this rank's part: what was put is what a get brings. */
static bool put_and_get(int to)
{
    static unsigned char out[DATA_MAX], in[DATA_MAX];
    uint32_t seed = (uint32_t)wf_rand(&rand_state);
    size_t len = 1 + below(below(2) ? 64 : DATA_MAX - 64), at = PART_DATA + below(64);
    fill(out, len, seed);
    if (!heed(to, weft_put(remotes[to], part(at), out, len, NULL), KILL_SEEN_PUT) ||
        !heed(to, weft_get(remotes[to], part(at), in, len, NULL), KILL_SEEN_GET))
        return false;
    verify(in, len, seed, "a get", to);
    return true;
}

static bool put_signal(int to)
{
    unsigned char out[64];
    uint64_t count = 0;
    fill(out, sizeof out, (uint32_t)me);
    if (!heed(to,
              weft_put_signal(remotes[to], part(PART_DATA), out, sizeof out, remotes[to], part(0),
                              1, WEFT_SIGNAL_ADD, NULL),
              KILL_SEEN_SIGNAL))
        return false;
    signals[to]++;
    if (!heed(to, weft_get(remotes[to], part(0), &count, sizeof count, NULL), KILL_SEEN_GET))
        return false;
    if (count != signals[to])
        fail("rank %d counted %llu signals of %llu", to, (unsigned long long)count,
             (unsigned long long)signals[to]);
    return true;
}

/* ---- operations in flight ---- */

#define OUTS 8
#define INS 4
#define LONGEST 100000

enum out_kind { OUT_MSG, OUT_PUT, OUT_GET };

static struct out {
    struct weft_op op;
    int to;
    enum out_kind kind;
    bool busy;
    uint32_t seed;
    size_t len, at;
    unsigned char buf[LONGEST];
} outs[OUTS];

static bool filled[KILL_RANKS]; /* this rank's part of its private memory */

static struct in {
    struct weft_op op;
    bool posted;
    unsigned char buf[LONGEST];
} ins[INS];

/* The tag of a message: its sender, the seed of its contents. */
static uint64_t tag_of(uint32_t seed)
{
    return (uint64_t)me << 32 | seed;
}

static void in_check(struct in *in)
{
    int from = (int)(in->op.tag >> 32);
    in->posted = false;
    if (in->op.status == WEFT_ECANCELED)
        return;
    /* Its sender died while it was copied: nothing is promised of the contents. */
    if (in->op.status == WEFT_EPEER) {
        saw(from, KILL_SEEN_MSG);
        return;
    }
    if (in->op.status != WEFT_OK || from < 0 || from >= KILL_RANKS)
        fail("a tagged message from rank %d: %s", from,
             weft_status_name((enum weft_status)in->op.status));
    verify(in->buf, in->op.len, (uint32_t)in->op.tag, "a tagged message", from);
}

static void out_check(struct out *out)
{
    out->busy = false;
    (void)heed(out->to, (enum weft_status)out->op.status, KILL_SEEN_MSG);
    filled[out->to] |= out->kind == OUT_PUT && out->op.status == WEFT_OK;
    if (out->kind == OUT_GET && out->op.status == WEFT_OK)
        verify(out->buf, out->len, out->seed, "a get from private memory", out->to);
}

/* What completed is looked at, receives are posted again. */
static void ops_look(bool post)
{
    for (int i = 0; i < OUTS; i++)
        if (outs[i].busy && outs[i].op.status != WEFT_PENDING)
            out_check(&outs[i]);
    for (int i = 0; i < INS; i++) {
        struct in *in = &ins[i];
        if (in->posted && in->op.status != WEFT_PENDING)
            in_check(in);
        while (post && !in->posted) {
            enum weft_status s;
            memset(&in->op, 0, sizeof in->op);
            s = weft_msg_recv(ep, NULL, 0, 0, in->buf, LONGEST, &in->op);
            in->posted = true;
            if (s == WEFT_PENDING)
                break;
            if (s != WEFT_OK && s != WEFT_EPEER)
                fail("weft_msg_recv: %s", weft_status_name(s));
            in_check(in);
        }
    }
}

static bool any_out(int to)
{
    for (int i = 0; i < OUTS; i++)
        if (outs[i].busy && (to < 0 || outs[i].to == to))
            return true;
    return false;
}

static void out_start(struct out *out, int to, enum out_kind kind, size_t len)
{
    enum weft_status s = WEFT_OK;
    memset(&out->op, 0, sizeof out->op);
    out->to = to;
    out->kind = kind;
    out->len = len;
    out->busy = true;
    if (kind == OUT_MSG) {
        out->seed = (uint32_t)wf_rand(&rand_state);
        fill(out->buf, len, out->seed);
        s = weft_msg_send(weft_job_peer(job, (unsigned)to), tag_of(out->seed), out->buf, len,
                          &out->op);
    } else if (kind == OUT_PUT) {
        out->seed = (uint32_t)me;
        fill(out->buf, len, out->seed);
        s = weft_put(privates[to], part(0), out->buf, len, &out->op);
    } else {
        out->seed = (uint32_t)me; /* it always holds the same */
        s = weft_get(privates[to], part(0), out->buf, len, &out->op);
    }
    if (s == WEFT_PENDING)
        return;
    out->op.status = s; /* for out_check: a call that ended at once leaves it alone */
    out_check(out);
}

static void op_turn(int to)
{
    for (int i = 0; i < OUTS; i++)
        if (!outs[i].busy) {
            uint32_t kind = below(4);
            if (kind == 0)
                out_start(&outs[i], to, OUT_PUT, PART);
            else if (kind == 1 && filled[to])
                out_start(&outs[i], to, OUT_GET, 1 + below(PART - 1));
            else
                out_start(&outs[i], to, OUT_MSG, below(below(2) ? 64 : LONGEST));
            return;
        }
}

static void say_long(int to)
{
    for (int i = 0; i < OUTS; i++)
        if (!outs[i].busy) {
            out_start(&outs[i], to, OUT_MSG, LONGEST);
            return;
        }
}

/* Every operation to the dead has ended; those to the living will. */
static void ops_end(void)
{
    uint64_t until = wf_now_ns() + TALK_NS;
    while (any_out(-1)) {
        ops_look(true);
        if (wf_now_ns() > until)
            fail("operations in flight do not end");
        rest(REST_NS);
    }
}

static void ins_cancel(void)
{
    for (int i = 0; i < INS; i++)
        if (ins[i].posted && weft_msg_cancel(ep, &ins[i].op) != WEFT_OK)
            fail("a receive cannot be cancelled when all is quiet");
    ops_look(false);
}

/* A region that comes and goes, smaller than a page, or larger, or a slab. */
static void region_turn(void)
{
    static const size_t sizes[] = {100, 10000, 2 << 20};
    struct weft_mr *more;
    enum weft_status s =
        weft_mem_alloc(weft_job_ctx(job), sizes[below(3)], WEFT_REMOTE_WRITE, &more);
    if (s == WEFT_OK)
        s = weft_mr_close(more);
    if (s != WEFT_OK)
        fail("a region that comes and goes: %s", weft_status_name(s));
}

/* An endpoint that connects, sends one message and leaves. */
static void endpoint_turn(int to)
{
    uint32_t args[2] = {(uint32_t)me, 0};
    struct weft_peer *peer;
    struct weft_ep *more;
    enum weft_status s = weft_ep_open(weft_job_ctx(job), NULL, &more);
    if (s != WEFT_OK)
        fail("weft_ep_open: %s", weft_status_name(s));
    s = weft_peer_open(more, addresses[to], WEFT_ADDR_MAX, &peer);
    if (s == WEFT_OK) {
        (void)heed(to, weft_am_request(peer, AM_SHORT, args, 2, NULL, 0, 0), KILL_SEEN_REQUEST);
        s = weft_peer_close(peer);
    }
    if (s == WEFT_OK)
        s = weft_ep_close(more);
    if (s != WEFT_OK)
        fail("an endpoint that comes and goes: %s", weft_status_name(s));
}

static void step(void)
{
    int to = (me + 1 + (int)below(KILL_RANKS - 1)) % KILL_RANKS;
    ops_look(true);
    switch (below(20)) {
    case 0:
    case 1:
    case 2: (void)request(to, AM_SHORT, below(40), 0); break;
    case 3:
    case 4: (void)request(to, AM_MEDIUM, below((uint32_t)weft_am_max(ep) + 1), 0); break;
    case 5:
    case 6: (void)request(to, AM_ASK, below(32), below(40)); break;
    case 7:
    case 8: (void)request(to, AM_ASK, below(4000), below((uint32_t)weft_am_max(ep) + 1)); break;
    case 9:
    case 10: (void)put_and_get(to); break;
    case 11: (void)put_signal(to); break;
    case 12:
    case 13: rest(REST_NS); break;
    case 16:
    case 17:
    case 18:
    case 19: op_turn(to); break;
    case 14: region_turn(); break;
    case 15:
        if (!below(4))
            endpoint_turn(to);
        break;
    }
}

static void traffic(void)
{
    for (uint64_t n = 1; dead < 0; n++) {
        int events = weft_ep_poll(ep);
        if (events < 0)
            fail("weft_ep_poll: %s", weft_status_name((enum weft_status)events));
        if (dead < 0)
            step();
        if (dead < 0 && n % STEPS_PER_BARRIER == 0)
            (void)heed(board->victim, weft_job_barrier(job), KILL_SEEN_BARRIER);
        atomic_fetch_add_explicit(&mine->ops, 1, memory_order_relaxed);
    }
}

/* ---- after the death ---- */

static bool all_seen(void)
{
    for (int i = 0; i < KILL_SEEN; i++)
        if (!atomic_load(&mine->seen_ns[i]))
            return false;
    return true;
}

static void late(void)
{
    static const char *const names[] = {KILL_SEEN_NAMES};
    for (int i = 0; i < KILL_SEEN; i++)
        if (!atomic_load(&mine->seen_ns[i]))
            fail("%s did not tell of the death within %llu s", names[i],
                 (unsigned long long)(board->notice_ns / KILL_SECOND));
}

static void check_all_say_so(void)
{
    uint64_t until = atomic_load(&board->killed_ns) + board->notice_ns;
    while (!all_seen()) {
        struct weft_peer *peer = weft_job_peer(job, (unsigned)dead);
        (void)request(dead, AM_SHORT, 8, 0);
        (void)put_and_get(dead);
        (void)put_signal(dead);
        if (!any_out(dead))
            say_long(dead);
        ops_look(true);
        (void)heed(dead, weft_get(remotes[dead], part(0), (uint64_t[1]){0}, 8, NULL),
                   KILL_SEEN_GET);
        (void)heed(dead, weft_flush(peer, NULL), KILL_SEEN_FLUSH);
        (void)heed(dead, weft_job_barrier(job), KILL_SEEN_BARRIER);
        if (all_seen())
            return;
        if (wf_now_ns() > until)
            late();
        rest(REST_NS);
    }
}

static void talk_to(int to)
{
    uint64_t until = wf_now_ns() + TALK_NS;
    for (int round = 0; round < TALK_ROUNDS;) {
        round += request(to, AM_ASK, below(4000), below((uint32_t)weft_am_max(ep) + 1));
        if (!put_and_get(to) || !put_signal(to))
            fail("a put to the living rank %d failed", to);
        while (unanswered[to] && wf_now_ns() < until) {
            rest(REST_NS);
            ops_look(true);
        }
        if (unanswered[to])
            fail("the living rank %d does not answer", to);
    }
}

static bool is_everyone_done(void)
{
    for (int r = 0; r < KILL_RANKS; r++)
        if (r != dead && atomic_load(&board->rank[r].phase) < KILL_TALKED)
            return false;
    return true;
}

static void talk(void)
{
    uint64_t until = wf_now_ns() + TALK_NS;
    for (int r = 0; r < KILL_RANKS; r++)
        if (r != dead && r != me)
            talk_to(r);
    ops_end();
    atomic_store(&mine->phase, KILL_TALKED);
    while (!is_everyone_done()) {
        if (wf_now_ns() > until)
            fail("the other survivors are not done talking");
        rest(REST_NS);
        ops_look(true);
    }
    ins_cancel();
}

/* ---- joining, leaving ---- */

static void must(enum weft_status s, const char *what)
{
    if (s != WEFT_OK)
        fail("%s: %s", what, weft_status_name(s));
}

static void privates_open(void)
{
    unsigned char key[WEFT_KEY_MAX] = {0}, keys[KILL_RANKS][WEFT_KEY_MAX];
    size_t len = sizeof key;
    must(weft_mr_register(weft_job_ctx(job), private_memory, sizeof private_memory, WEFT_MEM_HOST,
                          WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &private_mr),
         "weft_mr_register");
    must(weft_mr_key(private_mr, key, &len), "weft_mr_key");
    must(weft_job_allgather(job, key, sizeof key, keys), "weft_job_allgather");
    for (unsigned r = 0; r < KILL_RANKS; r++)
        must(weft_remote_open(weft_job_peer(job, r), keys[r], len, &privates[r]),
             "weft_remote_open");
}

static void join(void)
{
    struct weft_job_params params = WEFT_JOB_PARAMS_INIT;
    unsigned char own[WEFT_ADDR_MAX] = {0};
    size_t len = sizeof own;
    struct wf_address a = {0};
    struct wf_contact contact;
    params.peer_down = on_down;
    must(weft_job_open(&params, &job), "weft_job_open");
    ep = weft_job_ep(job);
    must(weft_am_register(ep, AM_SHORT, on_one_way, NULL), "weft_am_register");
    must(weft_am_register(ep, AM_MEDIUM, on_one_way, NULL), "weft_am_register");
    must(weft_am_register(ep, AM_ASK, on_ask, NULL), "weft_am_register");
    must(weft_am_register(ep, AM_ANSWER, on_answer, NULL), "weft_am_register");
    must(weft_ep_address(ep, own, &len), "weft_ep_address");
    must(wf_address_parse(own, len, &a, &contact), "the own address");
    memcpy(mine->token, a.process.token, sizeof mine->token);
    must(weft_job_allgather(job, own, sizeof own, addresses), "weft_job_allgather");
    must(weft_job_mem_alloc(job, (size_t)KILL_RANKS * PART, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE,
                            &mr, remotes),
         "weft_job_mem_alloc");
    privates_open();
}

static void leave(void)
{
    for (int r = 0; r < KILL_RANKS; r++)
        must(weft_remote_close(remotes[r]), "weft_remote_close");
    for (int r = 0; r < KILL_RANKS; r++)
        must(weft_remote_close(privates[r]), "weft_remote_close");
    must(weft_mr_close(private_mr), "weft_mr_close");
    must(weft_mr_close(mr), "weft_mr_close");
    must(weft_job_close(job), "weft_job_close");
    atomic_store(&mine->phase, KILL_LEFT);
}

int main(int argc, char **argv)
{
    const char *rank = getenv("PMIX_RANK");
    void *p = argc == 3
                  ? mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0)
                  : MAP_FAILED;
    if (p == MAP_FAILED || !rank || (me = atoi(rank)) < 0 || me >= KILL_RANKS) {
        fprintf(stderr, "kill_rank: started by kill_soak only\n");
        return 2;
    }
    alarm(WATCHDOG_S);
    board = p;
    mine = &board->rank[me];
    if (board->stubborn)
        signal(SIGTERM, SIG_IGN);
    rand_state = board->seed * 1000003u + (uint64_t)me;
    atomic_store(&mine->pid, (int)getpid());
    atomic_store(&mine->phase, KILL_JOINING);
    weft_test_hook = point;
    join();
    atomic_store(&mine->phase, KILL_TRAFFIC);
    atomic_fetch_add(&board->started, 1);
    if (write(atoi(argv[2]), "", 1) != 1)
        fail("the driver has gone");
    traffic();
    while (board->stubborn)
        pause();
    atomic_store(&mine->phase, KILL_CHECKING);
    check_all_say_so();
    atomic_store(&mine->phase, KILL_TALKING);
    talk();
    leave();
    return 0;
}
