/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_op.flags: WEFT_OP_FENCED. A long message that no receive has matched keeps operations from
 * completing until the test receives it. */
#include <poll.h>
#include <stdbool.h>
#include <weft/atomic.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL

enum { LONG = 2000000, REGION = 300000, FAR = 100000, HANDLER = 31, BLOCK_TAG = 1, TAG = 2 };
enum kind { SEND, SEND_LONG, PUT, PUT_LONG, GET, ADD, AM, KINDS };

static const size_t lens[KINDS] = {100, 500000, 100, 90000, 100, 8, 100};

/* An operation, and where its bytes are. */
struct work {
    struct weft_op op;
    enum kind kind;
    enum weft_status status;
    unsigned char *mem;
    uint64_t id, old;
    struct work *before; /* the operation that was started before */
    bool fenced, over;
};

static unsigned ran;

static void on_long(const struct weft_am *am)
{
    (void)am;
    ran++;
}

static void start(struct pair *p, struct work *w, const struct region *g, enum kind kind,
                  unsigned flags, uint64_t id)
{
    const struct weft_msg_head head = {TAG, id, 1, WEFT_MSG_DATA};
    struct iovec one = {w->mem, lens[kind]};
    const uint32_t arg = 0;
    w->kind = kind;
    w->id = id;
    w->op.flags = flags;
    w->fenced = flags & WEFT_OP_FENCED;
    test_fill(w->mem, lens[kind], id);
    switch (kind) {
    case SEND:
    case SEND_LONG: w->status = weft_msg_post_send(p->peer[0], &head, &one, 1, &w->op); break;
    case PUT:
    case PUT_LONG: w->status = weft_putv(g->r, FAR, &one, 1, &w->op); break;
    case GET: w->status = weft_getv(g->r, 8, &one, 1, &w->op); break;
    case ADD:
        w->status = weft_atomic_array(g->r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, w->mem, NULL,
                                      &w->old, &w->op);
        break;
    default: w->status = weft_am_long(g->r, FAR, w->mem, lens[AM], HANDLER, &arg, 1, 0, &w->op);
    }
}

static bool has_message(struct pair *p, struct weft_msg_info *info)
{
    const struct weft_msg_filter filter = {NULL, TAG, FULL, 1, 0};
    return weft_msg_find(p->ep[1], &filter, info, NULL) == WEFT_OK;
}

static void receive(struct pair *p, uint64_t tag, unsigned space, void *in, size_t len)
{
    const struct weft_msg_filter filter = {NULL, tag, FULL, space, 0};
    const struct iovec one = {in, len};
    struct weft_op r = {0};
    GIVES(WEFT_OK, op_end(p, &r, weft_msg_post_recv(p->ep[1], &filter, &one, 1, &r)));
}

/* Has the effect of [w] come? Of a get: has it taken place? */
static bool has_come(struct pair *p, const struct work *w, const struct region *g)
{
    struct weft_msg_info info;
    uint64_t word;
    switch (w->kind) {
    case SEND:
    case SEND_LONG: return has_message(p, &info);
    case PUT:
    case PUT_LONG: return test_same(g->base + FAR, lens[w->kind], w->id);
    case GET: return !test_same(w->mem, lens[GET], w->id);
    case ADD: memcpy(&word, g->base, 8); return word != 0;
    default: return ran > 0;
    }
}

static void finish(struct pair *p, struct work *w)
{
    if (w->kind == SEND || w->kind == SEND_LONG) {
        unsigned char *in = malloc(lens[w->kind]);
        receive(p, TAG, 1, in, lens[w->kind]);
        assert_true(test_same(in, lens[w->kind], w->id));
        free(in);
    }
    GIVES(WEFT_OK, op_end(p, &w->op, w->status));
}

/* Fails when: a fenced operation of any kind begins before a send that is under way is complete,
 * does not begin afterwards, or a send behind it overtakes it. */
void test_fenced_waits(void **state)
{
    struct pair *p = *state;
    unsigned char *block = malloc(LONG), *in = malloc(LONG);
    pair_register(p, HANDLER, on_long);
    for (unsigned own = 0; own < 2; own++)
        for (enum kind kind = 0; kind < KINDS; kind++) {
            struct region g = region_open(p, 1, REGION, RW, (int)own);
            struct work w = {.mem = malloc(LONG)};
            struct weft_op b = {0}, behind = {0};
            uint64_t word = 7, got = 0;
            enum weft_status sent, next;
            struct weft_msg_info info;
            ran = 0;
            test_fill(block, LONG, kind);
            sent = weft_msg_send(p->peer[0], BLOCK_TAG, block, LONG, &b);
            GIVES(WEFT_PENDING, sent);
            start(p, &w, &g, kind, WEFT_OP_FENCED, 10 + kind);
            GIVES(WEFT_PENDING, w.status);
            next = weft_msg_send(p->peer[0], 3, &word, 8, &behind);
            GIVES(WEFT_PENDING, next);
            pair_quiet(p);
            assert_int_equal(w.op.status, WEFT_PENDING);
            assert_int_equal(behind.status, WEFT_PENDING);
            assert_false(has_come(p, &w, &g));
            GIVES(WEFT_AGAIN, weft_msg_probe(p->ep[1], NULL, 3, FULL, &info));
            receive(p, BLOCK_TAG, 0, in, LONG);
            assert_true(test_same(in, LONG, kind));
            GIVES(WEFT_OK, op_end(p, &b, sent));
            finish(p, &w);
            if (kind != SEND && kind != SEND_LONG)
                UNTIL(p, has_come(p, &w, &g));
            receive(p, 3, 0, &got, 8);
            assert_int_equal(got, 7);
            GIVES(WEFT_OK, op_end(p, &behind, next));
            free(w.mem);
            region_close(&g);
        }
    free(block);
    free(in);
}

/* Fails when: an operation that a fence holds uses the mapping of a remote that the program has
 * closed meanwhile; or one of 0 bytes completes ahead of the fence, or never. */
void test_fenced_closed(void **state)
{
    static const enum kind kinds[] = {PUT, PUT_LONG, GET, AM};
    struct pair *p = *state;
    unsigned char *block = malloc(LONG), *in = malloc(LONG);
    pair_register(p, HANDLER, on_long);
    for (unsigned i = 0; i < 8; i++) {
        struct region g = region_open(p, 1, REGION, RW, (int)(i & 1)), closed = g;
        struct work w = {.mem = malloc(LONG)};
        struct weft_op b = {0}, none[2] = {{.flags = WEFT_OP_FENCED}, {.flags = WEFT_OP_FENCED}};
        struct iovec empty = {w.mem, 0};
        enum weft_status sent, nothing[2];
        ran = 0;
        test_fill(block, LONG, i);
        OK(weft_remote_open(p->peer[0], g.key, g.key_len, &closed.r));
        sent = weft_msg_send(p->peer[0], BLOCK_TAG, block, LONG, &b);
        GIVES(WEFT_PENDING, sent);
        nothing[0] = weft_putv(g.r, 0, &empty, 1, &none[0]);
        nothing[1] = weft_getv(g.r, 0, &empty, 1, &none[1]);
        start(p, &w, &closed, kinds[i / 2], WEFT_OP_FENCED, 10 + i);
        GIVES(WEFT_PENDING, w.status);
        OK(weft_remote_close(closed.r));
        pair_quiet(p);
        for (unsigned k = 0; k < 2; k++)
            GIVES(WEFT_PENDING,
                  (enum weft_status)(nothing[k] == WEFT_PENDING ? none[k].status : nothing[k]));
        receive(p, BLOCK_TAG, 0, in, LONG);
        GIVES(WEFT_OK, op_end(p, &b, sent));
        for (unsigned k = 0; k < 2; k++)
            GIVES(WEFT_OK, op_end(p, &none[k], nothing[k]));
        finish(p, &w);
        UNTIL(p, has_come(p, &w, &g));
        region_close(&g);
        free(w.mem);
    }
    free(block);
    free(in);
}

/* Fails when: the cancellation of a send leaves an endpoint asleep, though a fence has waited for
 * that send. */
void test_fenced_wakes(void **state)
{
    struct pair *p = *state;
    unsigned char *block = malloc(LONG);
    struct region g = region_open(p, 1, REGION, RW, 1);
    for (unsigned i = 0; i < 20; i++) {
        struct work w = {.mem = malloc(LONG)};
        struct weft_op b = {0};
        struct pollfd fd = {.fd = weft_ep_fd(p->ep[0]), .events = POLLIN};
        test_fill(block, LONG, i);
        GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], BLOCK_TAG, block, LONG, &b));
        start(p, &w, &g, PUT, WEFT_OP_FENCED, i);
        GIVES(WEFT_PENDING, w.status);
        do
            pair_quiet(p);
        while (weft_ep_arm(p->ep[0]) != WEFT_OK || poll(&fd, 1, 0));
        OK(weft_msg_cancel(p->ep[0], &b));
        assert_int_equal(poll(&fd, 1, 20000), 1);
        GIVES(WEFT_OK, op_end(p, &w.op, w.status));
        pair_quiet(p);
        free(w.mem);
    }
    region_close(&g);
    free(block);
}

/* Fails when: a fenced operation waits although nothing is under way. */
void test_fenced_idle(void **state)
{
    struct pair *p = *state;
    struct region g = region_open(p, 1, REGION, RW, 0);
    struct work w = {.mem = malloc(LONG)};
    pair_register(p, HANDLER, on_long);
    for (unsigned i = 0; i < 3 * KINDS; i++) {
        w.op = (struct weft_op){0};
        start(p, &w, &g, i % KINDS, WEFT_OP_FENCED, i);
        if (w.kind == SEND || (g.r->base && w.kind != SEND_LONG))
            GIVES(WEFT_OK, w.status);
        finish(p, &w);
    }
    pair_quiet(p);
    free(w.mem);
    region_close(&g);
}

/* Fails when: an answer to the peer waits behind a fence, which waits for the peer. */
void test_fenced_answers(void **state)
{
    struct pair *p = *state;
    static const size_t theirs[] = {LONG, 200000, 0};
    unsigned char *block = malloc(LONG), *mem = malloc(LONG), *in = malloc(LONG);
    for (unsigned i = 0; i < 3; i++) {
        struct weft_op b = {0}, f = {.flags = WEFT_OP_FENCED}, s = {0}, r = {0};
        const struct iovec one = {block, 50};
        enum weft_status sent, fenced, back, got;
        size_t len = theirs[i] ? theirs[i] : 70000;
        test_fill(mem, len, i);
        sent = weft_msg_send(p->peer[0], BLOCK_TAG, block, LONG, &b);
        fenced = weft_msg_sendv(p->peer[0], 2, &one, 1, &f);
        GIVES(WEFT_PENDING, fenced);
        back = weft_msg_send(p->peer[1], 5, mem, len, &s);
        if (i == 1)
            pair_quiet(p); /* it is kept first */
        got = weft_msg_recv(p->ep[0], NULL, 5, FULL, in, len, &r);
        /* of one endpoint the message is behind the fence */
        if (p->setup->eps == 2) {
            GIVES(WEFT_OK, op_end(p, &r, got));
            GIVES(WEFT_OK, op_end(p, &s, back));
            assert_true(test_same(in, len, i));
            assert_int_equal(f.status, WEFT_PENDING);
        }
        receive(p, BLOCK_TAG, 0, block, LONG);
        receive(p, 2, 0, block, 50);
        GIVES(WEFT_OK, op_end(p, &r, got));
        GIVES(WEFT_OK, op_end(p, &s, back));
        GIVES(WEFT_OK, op_end(p, &b, sent));
        GIVES(WEFT_OK, op_end(p, &f, fenced));
    }
    free(block);
    free(mem);
    free(in);
}

/* Fails when: a fence that is cancelled, or whose earlier operation is, keeps others from
 * beginning; or closing or losing the peer leaves held operations under way. */
void test_fenced_ends(void **state)
{
    struct pair *p = *state;
    unsigned char *block = malloc(LONG);
    for (unsigned i = 0; i < 5; i++) {
        struct weft_peer *kept = p->peer[0];
        struct weft_op b = {0}, f[4] = {{0}};
        uint64_t word[4] = {1, 2, 3, 4}, got = 0;
        bool closes = i == 3;
        if (i == 4 && (p->setup->eps == 1 || p->setup->contexts == 1))
            break;
        if (closes)
            p->peer[0] = peer_to(p->ep[0], p->ep[1]);
        GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], 100 + i, block, LONG, &b));
        for (unsigned k = 0; k < 4; k++) {
            const struct iovec one = {&word[k], 8};
            f[k].flags = k % 2 ? 0 : WEFT_OP_FENCED;
            GIVES(WEFT_PENDING, weft_msg_sendv(p->peer[0], 10 + k, &one, 1, &f[k]));
        }
        pair_quiet(p);
        if (i == 0) { /* the first fence: the second takes its place */
            OK(weft_msg_cancel(p->ep[0], &f[0]));
            receive(p, 11, 0, &got, 8);
            assert_int_equal(got, 2);
            pair_quiet(p);
            assert_int_equal(f[2].status, WEFT_PENDING);
            OK(weft_msg_cancel(p->ep[0], &f[2]));
            receive(p, 13, 0, &got, 8);
            receive(p, 100 + i, 0, block, LONG);
        } else if (i == 1) { /* what they wait for */
            OK(weft_msg_cancel(p->ep[0], &b));
            for (unsigned k = 0; k < 4; k++)
                receive(p, 10 + k, 0, &got, 8);
        } else if (i == 2) { /* in the middle of the queue */
            OK(weft_msg_cancel(p->ep[0], &f[2]));
            OK(weft_msg_cancel(p->ep[0], &f[1]));
            receive(p, 100 + i, 0, block, LONG);
            receive(p, 10, 0, &got, 8);
            receive(p, 13, 0, &got, 8);
        } else if (closes) {
            OK(weft_peer_close(p->peer[0]));
            p->peer[0] = kept;
            for (unsigned k = 0; k < 4; k++)
                GIVES(WEFT_ECANCELED, (enum weft_status)f[k].status);
        } else {
            pair_close_end(p, 1);
            UNTIL(p, b.status != WEFT_PENDING);
            for (unsigned k = 0; k < 4; k++)
                UNTIL(p, f[k].status != WEFT_PENDING);
            assert_true(f[0].status < 0 && f[3].status < 0);
        }
        for (unsigned k = 0; k < 4; k++)
            UNTIL(p, f[k].status != WEFT_PENDING);
        UNTIL(p, b.status != WEFT_PENDING);
        pair_quiet(p);
    }
    free(block);
}

static void on_done(struct weft_op *op)
{
    struct work *w = op->user;
    w->over = true;
    for (const struct work *b = w->before; w->fenced && b; b = b->before)
        EXPECT(b->over);
}

/* Fails when: in random orders of operations with and without fences one is lost, or a fenced one
 * completes before an earlier one. */
void test_fenced_random(void **state)
{
    enum { MOST = 24 };
    struct pair *p = *state;
    pair_register(p, HANDLER, on_long);
    for (unsigned round = 0; round < 12; round++) {
        struct region g = region_open(p, 1, REGION, RW, round % 2);
        struct work *w = calloc(MOST, sizeof *w);
        unsigned messages = 0;
        for (unsigned i = 0; i < MOST; i++) {
            uint64_t r = test_mix(round * MOST + i), polls = r >> 40 & 3;
            w[i].mem = malloc(lens[SEND_LONG]);
            w[i].before = i ? &w[i - 1] : NULL;
            w[i].op.user = &w[i];
            w[i].op.done = on_done;
            start(p, &w[i], &g, r % KINDS, r >> 20 & 1 ? WEFT_OP_FENCED : 0, i);
            if (w[i].status != WEFT_PENDING)
                on_done(&w[i].op);
            messages += w[i].kind == SEND || w[i].kind == SEND_LONG;
            while (polls--)
                pair_poll(p);
        }
        for (unsigned i = 0; i < MOST; i++)
            if (w[i].kind == SEND || w[i].kind == SEND_LONG)
                finish(p, &w[i]);
        for (unsigned i = 0; i < MOST; i++) {
            GIVES(WEFT_OK, op_end(p, &w[i].op, w[i].status));
            free(w[i].mem);
        }
        assert_true(messages > 0);
        pair_quiet(p);
        free(w);
        region_close(&g);
    }
}

/* [waits] is the operation in front of a fence. */
struct behind {
    struct weft_op waits, fenced, add;
    enum weft_status status; /* of starting [waits] */
};

static void on_added(struct weft_op *op)
{
    const struct behind *b = op->user;
    EXPECT(b->status != WEFT_PENDING || b->waits.status != WEFT_PENDING);
}

/* Active messages until there is no more room, a put, a fenced put, and an add after [polls] polls
 * of the other end, which make room again. */
static void add_behind(struct pair *p, const struct region *g, unsigned polls)
{
    struct behind b = {.fenced.flags = WEFT_OP_FENCED, .add = {.done = on_added, .user = &b}};
    uint64_t word = 1, old;
    const struct iovec one = {&word, 8};
    enum weft_status fenced, added;
    for (unsigned i = 0; i < 3000; i++)
        if (weft_am_request(p->peer[0], HANDLER, NULL, 0, NULL, 0, 0) != WEFT_OK)
            break;
    b.status = weft_put(g->r, FAR, &word, 8, &b.waits);
    fenced = weft_putv(g->r, 0, &one, 1, &b.fenced);
    while (polls--)
        (void)weft_ep_poll(p->ep[1]);
    added = weft_atomic(g->r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, &b.add);
    GIVES(WEFT_OK, op_end(p, &b.add, added));
    GIVES(WEFT_OK, op_end(p, &b.fenced, fenced));
    GIVES(WEFT_OK, op_end(p, &b.waits, b.status));
}

/* Fails when: an atomic on a word, by messages, overtakes a fence that waits, or what waits for
 * room in front of the fence. */
void test_fenced_atomics(void **state)
{
    struct pair *p = *state;
    unsigned char *block = malloc(LONG);
    struct region g = region_open(p, 1, REGION, RW, 1);
    struct weft_op b = {0}, fenced = {.flags = WEFT_OP_FENCED}, add = {0};
    uint64_t word = 7, old;
    const struct iovec one = {&word, 8};
    enum weft_status sent, held, added;
    struct weft_msg_info info;
    struct weft_path path;
    pair_register(p, HANDLER, on_long);
    OK(weft_path_of(g.r->peer, WEFT_OP_ATOMIC, g.r, 8, &path));
    if (strcmp(path.protocol, "message")) { /* done within the call */
        region_close(&g);
        free(block);
        return;
    }
    sent = weft_msg_send(p->peer[0], BLOCK_TAG, block, LONG, &b);
    GIVES(WEFT_PENDING, sent);
    UNTIL(p, weft_msg_probe(p->ep[1], NULL, BLOCK_TAG, FULL, &info) == WEFT_OK);
    held = weft_putv(g.r, FAR, &one, 1, &fenced);
    GIVES(WEFT_PENDING, held);
    added = weft_atomic(g.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 5, 0, &old, &add);
    GIVES(WEFT_PENDING, added);
    pair_quiet(p);
    assert_int_equal(add.status, WEFT_PENDING);
    assert_false(g.base[0]);
    receive(p, BLOCK_TAG, 0, block, LONG);
    GIVES(WEFT_OK, op_end(p, &b, sent));
    GIVES(WEFT_OK, op_end(p, &fenced, held));
    GIVES(WEFT_OK, op_end(p, &add, added));
    assert_true(!old && g.base[0] == 5);
    for (unsigned i = 0; i < 16; i++)
        add_behind(p, &g, 8 * (i % 4));
    region_close(&g);
    free(block);
}
