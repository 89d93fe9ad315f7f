/* SPDX-License-Identifier: BSD-3-Clause */
/* Two contexts of this process talk over TCP while their sockets are broken again and
 * again: shut down at random, at either end, in the middle of anything. Everything is
 * to happen exactly once.
 *
 *     breaks_test [OPERATIONS [BREAKS]]
 *
 * Fails when: a request, reply, message, put, get or add is lost, done twice, or has other
 * contents; an operation never ends; nothing was ever sent again (then it tested nothing).
 * Prints the seed; WEFT_TEST_SEED repeats a run, as far as sockets do. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "contract/connections.h"
#include "contract/support.h"

#define IN_FLIGHT 64
#define LONGEST 600000u
#define REGION ((size_t)1 << 20)

#define CHECK(cond) ((cond) ? (void)0 : die(#cond, __LINE__))
static _Noreturn void die(const char *what, int line)
{
    fprintf(stderr, "breaks.c:%d: not true: %s\n", line, what);
    _Exit(1);
}
#define MUST(call) must((call), #call, __LINE__)
static void must(enum weft_status status, const char *what, int line)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "breaks.c:%d: %s: %s\n", line, what, weft_status_name(status));
    _Exit(1);
}

enum { AM_ONE = 1, AM_ASK, AM_ANSWER, AM_MUTE };

struct end {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_mr *mr;
    struct weft_remote *remote;
    unsigned char *memory;
    uint64_t sent[4], seen[4]; /* AM_*: how many */
    uint8_t *marks;            /* one-way messages that came, by number */
    uint64_t added, fetched;   /* to the other's word: sum; sum of the differences that came back */
};

static struct end ends[2];
static uint64_t operations = 20000, rng;

static uint64_t draw(uint64_t below)
{
    return test_rand(&rng) % below;
}

/* ---- active messages ---- */

static void check_am(const struct weft_am *am, int kind)
{
    struct end *e = am->arg;
    uint64_t id = am->args[0];
    CHECK(am->nargs == 2 && am->args[1] == am->len);
    CHECK(test_same(am->data, am->len, id));
    CHECK(id < operations && !(e->marks[id] >> kind & 1)); /* once */
    e->marks[id] |= (uint8_t)(1u << kind);
    e->seen[kind]++;
}

static void on_one(const struct weft_am *am)
{
    check_am(am, 0);
}

static void on_ask(const struct weft_am *am)
{
    unsigned char data[512];
    uint32_t len = am->args[0] % sizeof data, args[2] = {am->args[0], len};
    check_am(am, 1);
    test_fill(data, len, args[0]);
    MUST(weft_am_reply(am, AM_ANSWER, args, 2, data, len));
}

static void on_answer(const struct weft_am *am)
{
    check_am(am, 2);
}

static void on_mute(const struct weft_am *am)
{
    check_am(am, 3);
}

static void poll_both(void)
{
    for (int i = 0; i < 2; i++)
        CHECK(weft_ep_poll(ends[i].ep) >= 0);
}

static void send_am(struct end *e, uint32_t id, unsigned handler, int kind, size_t reply_max)
{
    unsigned char data[2000];
    uint32_t args[2] = {id, (uint32_t)draw(draw(4) ? 64 : sizeof data)};
    enum weft_status s;
    test_fill(data, args[1], id);
    while ((s = weft_am_request(e->peer, handler, args, 2, data, args[1], reply_max)) == WEFT_AGAIN)
        poll_both();
    MUST(s);
    e->sent[kind]++;
}

/* ---- operations ---- */

enum kind { FREE, MSG, PUT, GET, ADD };

struct slot {
    struct weft_op send, recv; /* of others but MSG: send */
    enum kind kind;
    struct end *e;
    uint64_t id, at, old;
    size_t len;
    unsigned char *out, *in;
};

static struct slot slots[IN_FLIGHT];

static struct end *other(const struct end *e)
{
    return e == &ends[0] ? &ends[1] : &ends[0];
}

static void pending(enum weft_status s, struct weft_op *op)
{
    if (s != WEFT_PENDING) {
        MUST(s);
        op->status = WEFT_OK;
    }
}

static enum weft_status slot_begin(struct slot *s)
{
    enum weft_status status;
    switch (s->kind) {
    case MSG:
        memset(s->in, 0, s->len);
        pending(weft_msg_recv(other(s->e)->ep, NULL, s->id, UINT64_MAX, s->in, s->len, &s->recv),
                &s->recv);
        return weft_msg_send(s->e->peer, s->id, s->out, s->len, &s->send);
    case PUT: return weft_put(s->e->remote, s->at, s->out, s->len, &s->send);
    case GET: return weft_get(s->e->remote, s->at, s->in, s->len, &s->send);
    default:
        status = weft_atomic(s->e->remote, 0, WEFT_ATOMIC_ADD, WEFT_U64, s->id + 1, 0, &s->old,
                             &s->send);
        s->e->added += s->id + 1;
        return status;
    }
}

/* Slot i's part of the region: behind the word, half of it for either end's puts. */
static void slot_start(struct slot *s, struct end *e, uint64_t id)
{
    unsigned i = (unsigned)(s - slots);
    size_t part = (REGION - 64) / IN_FLIGHT;
    s->e = e;
    s->id = id;
    s->kind = (enum kind)(MSG + draw(4));
    s->len = 1 + draw(s->kind == MSG ? (draw(4) ? 5000 : LONGEST) : part);
    s->at = 64 + i * part;
    test_fill(s->out, s->len, id);
    if (s->kind == GET) /* the target's own memory: no put uses this part now */
        memcpy(other(e)->memory + s->at, s->out, s->len);
    memset(&s->send, 0, sizeof s->send);
    memset(&s->recv, 0, sizeof s->recv);
    pending(slot_begin(s), &s->send);
}

static bool slot_done(struct slot *s)
{
    if (s->send.status == WEFT_PENDING || (s->kind == MSG && s->recv.status == WEFT_PENDING))
        return false;
    MUST((enum weft_status)s->send.status);
    if (s->kind == MSG) {
        MUST((enum weft_status)s->recv.status);
        CHECK(s->recv.len == s->len && s->recv.tag == s->id);
    }
    if (s->kind == MSG || s->kind == GET)
        CHECK(test_same(s->in, s->len, s->id));
    if (s->kind == PUT)
        CHECK(test_same(other(s->e)->memory + s->at, s->len, s->id));
    if (s->kind == ADD)
        s->e->fetched++;
    s->kind = FREE;
    return true;
}

static struct slot *slot_find(void)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (;;) {
        for (int i = 0; i < IN_FLIGHT; i++)
            if (slots[i].kind == FREE || slot_done(&slots[i]))
                return &slots[i];
        poll_both();
        CHECK(test_now_ns() < end);
    }
}

static void slots_end(void)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (int i = 0; i < IN_FLIGHT; i++)
        while (slots[i].kind != FREE && !slot_done(&slots[i])) {
            poll_both();
            CHECK(test_now_ns() < end);
        }
}

/* ---- breaking ---- */

/* Shut one of the process's TCP connections down, one way or both, or with a reset. The last by
 * the system call: to ThreadSanitizer, connect makes a descriptor, and the library's thread that
 * reads from it races with that. */
static bool break_one(void)
{
    int fds[64], n = test_connections(fds, 64), fd;
    if (!n)
        return false;
    fd = fds[draw((uint64_t)n)];
    switch (draw(4)) {
    case 0: return !shutdown(fd, SHUT_WR);
    case 1: return !shutdown(fd, SHUT_RD);
    case 2:
        return !syscall(SYS_connect, fd, &(struct sockaddr){.sa_family = AF_UNSPEC},
                        sizeof(struct sockaddr));
    default: return !shutdown(fd, SHUT_RDWR);
    }
}

/* ---- the run ---- */

static void end_open(struct end *e)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "known to both ends";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    MUST(weft_ctx_open(&params, &e->ctx));
    MUST(weft_ctx_set_key(e->ctx, key, sizeof key));
    MUST(weft_ep_open(e->ctx, NULL, &e->ep));
    MUST(weft_am_register(e->ep, AM_ONE, on_one, e));
    MUST(weft_am_register(e->ep, AM_ASK, on_ask, e));
    MUST(weft_am_register(e->ep, AM_ANSWER, on_answer, e));
    MUST(weft_am_register(e->ep, AM_MUTE, on_mute, e));
    MUST(weft_mem_alloc(e->ctx, REGION, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &e->mr));
    e->memory = weft_mr_base(e->mr);
    e->marks = calloc(operations, 1);
    CHECK(e->marks);
}

static void end_meet(struct end *e)
{
    unsigned char bytes[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    MUST(weft_ep_address(other(e)->ep, bytes, &len));
    MUST(weft_peer_open(e->ep, bytes, len, &e->peer));
    len = sizeof key;
    MUST(weft_mr_key(other(e)->mr, key, &len));
    MUST(weft_remote_open(e->peer, key, len, &e->remote));
}

static void end_close(struct end *e)
{
    MUST(weft_remote_close(e->remote));
    MUST(weft_peer_close(e->peer));
    MUST(weft_mr_close(e->mr));
    MUST(weft_ep_close(e->ep));
    MUST(weft_ctx_close(e->ctx));
    free(e->marks);
}

static void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    uint64_t *out = arg;
    (void)doc;
    out[0] += strcmp(name, "TCP_BREAKS") ? 0 : value;
    out[1] += strcmp(name, "TCP_REPLAYED") ? 0 : value;
    out[2] += strcmp(name, "CONNECTIONS") ? 0 : value;
}

static void step(uint64_t id)
{
    struct end *e = &ends[draw(2)];
    switch (draw(8)) {
    case 0: send_am(e, (uint32_t)id, AM_ONE, 0, 0); break;
    case 1: send_am(e, (uint32_t)id, AM_ASK, 1, 513); break;
    case 2: send_am(e, (uint32_t)id, AM_MUTE, 3, draw(2) ? 1 : 4000); break;
    default: slot_start(slot_find(), e, id);
    }
    if (draw(3))
        poll_both();
}

static bool all_seen(void)
{
    bool all = true;
    for (int i = 0; i < 2; i++) {
        const struct end *e = &ends[i], *o = &ends[!i];
        all &= o->seen[0] == e->sent[0] && o->seen[1] == e->sent[1] && o->seen[3] == e->sent[3] &&
               e->seen[2] == e->sent[1];
    }
    return all;
}

static void check_end(void)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS, word;
    slots_end();
    while (!all_seen()) {
        poll_both();
        CHECK(test_now_ns() < end);
    }
    for (int i = 0; i < 2; i++) {
        memcpy(&word, ends[!i].memory, sizeof word);
        CHECK(word == ends[i].added);
    }
}

int main(int argc, char **argv)
{
    uint64_t breaks = 100, done = 0, totals[3] = {0};
    operations = argc > 1 ? strtoull(argv[1], NULL, 0) : operations;
    breaks = argc > 2 ? strtoull(argv[2], NULL, 0) : breaks;
    setenv("WEFT_TRANSPORTS", "loop,tcp", 1);
    rng = test_seed();
    for (int i = 0; i < IN_FLIGHT; i++) {
        slots[i].out = malloc(LONGEST + 1);
        slots[i].in = malloc(LONGEST + 1);
        CHECK(slots[i].out && slots[i].in);
    }
    end_open(&ends[0]);
    end_open(&ends[1]);
    end_meet(&ends[0]);
    end_meet(&ends[1]);
    for (uint64_t id = 0; id < operations; id++) {
        step(id);
        if (breaks && draw(operations) < breaks)
            done += break_one();
    }
    check_end();
    weft_stat_rows(ends[0].ctx, stat_row, totals);
    weft_stat_rows(ends[1].ctx, stat_row, totals);
    printf("%llu operations, %llu sockets broken, %llu breaks seen, %llu connections, "
           "%llu messages sent again\n",
           (unsigned long long)operations, (unsigned long long)done, (unsigned long long)totals[0],
           (unsigned long long)totals[2], (unsigned long long)totals[1]);
    CHECK(!breaks || totals[1]);
    end_close(&ends[0]);
    end_close(&ends[1]);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(slots[i].out);
        free(slots[i].in);
    }
    return 0;
}
