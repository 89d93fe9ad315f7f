/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and tagged messages of all lengths at odd places, whole and in pieces, many in
 * flight, both ways at once. */
#include "contract.h"

enum { KINDS = 3, PIECES = 7, GAP = 13, EDGE = 16 };
enum kind { PUT, GET, MSG };

/* As much room as the longest of its operations needs; one at a time. */
struct slot {
    size_t cap;
    struct region *region; /* of the other end */
    size_t place;          /* of its part of the region */
    unsigned char *local;
    int from;
    uint64_t tag;

    int rounds; /* left */
    int busy;
    uint64_t id;
    enum kind kind;
    size_t len, at; /* at: in the region */
    struct iovec piece[PIECES];
    unsigned pieces;
    struct weft_op op, recv;
    enum weft_status started, posted;
    int recv_late; /* polls until the receive is posted; -1: it was */
};

static const struct {
    size_t cap;
    int slots;
} classes[] = {{5 << 20, 2}, {1200001, 3}, {70001, 6}, {4100, 8}, {33, 8}};

#define SLOTS (2 + 3 + 6 + 8 + 8)
#define ARENA (2 * (5 << 20) + 3 * 1200001 + 6 * 70001 + 8 * 4100 + 8 * 33 + SLOTS * 4 * EDGE)

static size_t length_of(uint64_t r, size_t cap)
{
    switch (r & 7) {
    case 0: return cap;
    case 1: return 1 + (r >> 3) % 64 % cap;
    default: return 1 + (r >> 3) % cap;
    }
}

/* Local pieces, apart from each other, of [len] bytes in all. */
static void pieces_cut(struct slot *s, uint64_t *rand)
{
    unsigned n = test_rand(rand) & 1 ? 1 : 1 + (unsigned)(test_rand(rand) % PIECES);
    unsigned char *at = s->local + test_rand(rand) % GAP;
    size_t left = s->len;
    s->pieces = n;
    for (unsigned i = 0; i < n; i++) {
        size_t k = i == n - 1 ? left : test_rand(rand) % (left + 1);
        s->piece[i] = (struct iovec){at, k};
        at += k + GAP;
        left -= k;
    }
}

static unsigned char *place_of(const struct slot *s)
{
    return s->region->base + s->at;
}

/* The same bytes as its pieces have, one after the other. */
static int is_same(const struct slot *s)
{
    const unsigned char *b = place_of(s);
    for (unsigned i = 0; i < s->pieces; b += s->piece[i++].iov_len)
        if (!test_same(b, s->piece[i].iov_len, s->id + i) ||
            !test_same(s->piece[i].iov_base, s->piece[i].iov_len, s->id + i))
            return 0;
    return 1;
}

static void fill_local(struct slot *s)
{
    for (unsigned i = 0; i < s->pieces; i++)
        test_fill(s->piece[i].iov_base, s->piece[i].iov_len, s->id + i);
}

static void fill_place(struct slot *s)
{
    unsigned char *b = place_of(s);
    for (unsigned i = 0; i < s->pieces; b += s->piece[i++].iov_len)
        test_fill(b, s->piece[i].iov_len, s->id + i);
}

static void edges_set(struct slot *s)
{
    memset(place_of(s) - EDGE, 0xa5, EDGE);
    memset(place_of(s) + s->len, 0xa5, EDGE);
    for (unsigned i = 0; i < s->pieces; i++)
        memset((unsigned char *)s->piece[i].iov_base + s->piece[i].iov_len, 0x5a, GAP);
}

static int edges_hold(const struct slot *s)
{
    for (size_t k = 0; k < EDGE; k++)
        if ((place_of(s) - EDGE)[k] != 0xa5 || place_of(s)[s->len + k] != 0xa5)
            return 0;
    for (unsigned i = 0; i < s->pieces; i++)
        for (size_t k = 0; k < GAP; k++)
            if (((unsigned char *)s->piece[i].iov_base)[s->piece[i].iov_len + k] != 0x5a)
                return 0;
    return 1;
}

/* Into the contiguous memory, cut at other places than it was sent. */
static void recv_post(struct pair *p, struct slot *s)
{
    int to = other(p, s->from);
    size_t half = s->len / 2, third = s->len / 3;
    unsigned char *b = place_of(s);
    struct iovec cut[] = {
        {b, third}, {b + third, 0}, {b + third, half - third}, {b + half, s->len - half}};
    s->posted =
        s->id & 8 ? weft_msg_recvv(p->ep[to], p->peer[to], s->tag, WEFT_TAG_FULL, cut, 4, &s->recv)
                  : weft_msg_recv(p->ep[to], NULL, s->tag, WEFT_TAG_FULL, b, s->len, &s->recv);
    assert_true(s->posted >= 0);
    s->recv_late = -1;
}

static void slot_post(struct pair *p, struct slot *s)
{
    struct weft_remote *r = s->region->r;
    void *one = s->piece[0].iov_base;
    int is_one = s->pieces == 1;
    if (s->kind == PUT)
        s->started = is_one ? weft_put(r, s->at, one, s->len, &s->op)
                            : weft_putv(r, s->at, s->piece, s->pieces, &s->op);
    else if (s->kind == GET)
        s->started = is_one ? weft_get(r, s->at, one, s->len, &s->op)
                            : weft_getv(r, s->at, s->piece, s->pieces, &s->op);
    else
        s->started = is_one ? weft_msg_send(p->peer[s->from], s->tag, one, s->len, &s->op)
                            : weft_msg_sendv(p->peer[s->from], s->tag, s->piece, s->pieces, &s->op);
    if (s->started != WEFT_OK)
        GIVES(WEFT_PENDING, s->started);
}

static void slot_begin(struct pair *p, struct slot *s, uint64_t *rand)
{
    s->busy = 1;
    s->rounds--;
    s->id = test_rand(rand) >> 8;
    s->kind = (enum kind)(test_rand(rand) % KINDS);
    s->len = length_of(test_rand(rand), s->cap);
    s->at = s->place + EDGE + test_rand(rand) % EDGE;
    s->posted = WEFT_OK;
    s->recv_late = -1;
    memset(&s->op, 0, sizeof s->op);
    memset(&s->recv, 0, sizeof s->recv);
    pieces_cut(s, rand);
    edges_set(s);
    if (s->kind == GET)
        fill_place(s);
    else
        fill_local(s);
    if (s->kind == MSG && !(s->recv_late = (int)(test_rand(rand) % 4)))
        recv_post(p, s);
    slot_post(p, s);
}

/* One step; true: it is idle now. */
static int slot_step(struct pair *p, struct slot *s)
{
    if (s->recv_late > 0 && !--s->recv_late)
        recv_post(p, s);
    if (s->recv_late >= 0 || (s->started == WEFT_PENDING && s->op.status == WEFT_PENDING) ||
        (s->posted == WEFT_PENDING && s->recv.status == WEFT_PENDING))
        return 0;
    GIVES(WEFT_OK, (enum weft_status)s->op.status);
    if (s->kind == MSG) {
        GIVES(WEFT_OK, (enum weft_status)s->recv.status);
        assert_int_equal(s->recv.len, s->len);
        assert_ptr_equal(weft_sender_peer(s->recv.sender), p->peer[other(p, s->from)]);
    }
    if (!is_same(s) || !edges_hold(s))
        fail_msg("kind %d, %zu bytes in %u pieces at %zu: other contents", (int)s->kind, s->len,
                 s->pieces, s->at);
    s->busy = 0;
    return 1;
}

static void slots_make(struct slot slots[SLOTS], struct region *region, int from, int rounds)
{
    size_t place = 0;
    int n = 0;
    for (size_t c = 0; c < sizeof classes / sizeof classes[0]; c++)
        for (int i = 0; i < classes[c].slots; i++, n++) {
            slots[n] = (struct slot){.cap = classes[c].cap,
                                     .region = region,
                                     .place = place,
                                     .from = from,
                                     .tag = (uint64_t)(from * SLOTS + n),
                                     .rounds = rounds * (classes[c].cap < 100000 ? 8 : 1)};
            slots[n].local = malloc(classes[c].cap + (PIECES + 1) * GAP);
            assert_non_null(slots[n].local);
            place += classes[c].cap + 4 * EDGE;
        }
}

/* Fails when: a byte lands beside its place, is not moved or comes twice, among operations
 * of all lengths that are in flight together, or one of them never ends. */
void test_mixed_contents(void **state)
{
    struct pair *p = *state;
    struct slot *slots = calloc(2 * SLOTS, sizeof *slots);
    uint64_t rand = test_seed(), end = test_now_ns() + TEST_LIMIT_NS;
    struct region region[2];
    int busy = 1;
    for (int from = 0; from < 2; from++) { /* one of either kind of memory */
        region[from] = region_open(p, !from, ARENA, RW, from);
        slots_make(slots + from * SLOTS, &region[from], from, TEST_SANITIZED ? 2 : 5);
    }
    while (busy) {
        busy = 0;
        for (int i = 0; i < 2 * SLOTS; i++) {
            if (slots[i].busy)
                slot_step(p, &slots[i]);
            if (!slots[i].busy && slots[i].rounds)
                slot_begin(p, &slots[i], &rand);
            busy |= slots[i].busy;
        }
        pair_poll(p);
        assert_true(test_now_ns() < end);
    }
    for (int i = 0; i < 2 * SLOTS; i++)
        free(slots[i].local);
    for (int from = 0; from < 2; from++)
        region_close(&region[from]);
    free(slots);
}

/* ---- a region that is closed under what is in flight ---- */

enum { FLIGHTS = 8, FLIGHT = 3 << 20 };

struct flight {
    struct weft_op op;
    enum weft_status started;
    unsigned char *local;
    int get;
};

static size_t flight_len(int i)
{
    return FLIGHT - 5 - 300000 * (size_t)i;
}

static void flight_begin(struct flight *f, struct region *g, int i)
{
    size_t at = (size_t)i * FLIGHT, n = flight_len(i);
    memset(f, 0, sizeof *f);
    f->get = i & 1;
    f->local = malloc(FLIGHT);
    assert_non_null(f->local);
    memset(f->local, f->get ? 0x44 : 0x33, FLIGHT);
    f->started = f->get ? weft_get(g->r, at + 5, f->local, n, &f->op)
                        : weft_put(g->r, at + 5, f->local, n, &f->op);
    assert_true(f->started == WEFT_OK || f->started == WEFT_PENDING);
}

static int all_are(const unsigned char *b, size_t len, unsigned char want)
{
    return b[0] == want && !memcmp(b, b + 1, len - 1);
}

/* What was in the region, or what the put of all of it has put there meanwhile: operations that are
 * in flight together are not ordered. */
static int was_there(const unsigned char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (b[i] != 0x77 && b[i] != 0x33)
            return 0;
    return 1;
}

/* What it ends with; its memory is its owner's again then, and is freed. */
static enum weft_status flight_end(struct pair *p, struct flight *f, int i)
{
    enum weft_status status = op_end(p, &f->op, f->started);
    if (status != WEFT_OK)
        GIVES(WEFT_EKEY, status);
    if (status == WEFT_OK && f->get)
        assert_true(was_there(f->local, flight_len(i)));
    free(f->local);
    return status;
}

/* One put of all of it: the answer to its beginning comes before its end has left. */
static void whole_begin(struct flight *f, struct region *g)
{
    memset(f, 0, sizeof *f);
    f->local = malloc((size_t)FLIGHTS * FLIGHT);
    assert_non_null(f->local);
    memset(f->local, 0x33, (size_t)FLIGHTS * FLIGHT);
    f->started = weft_put(g->r, 0, f->local, (size_t)FLIGHTS * FLIGHT, &f->op);
}

/* Close it after [polls], use the memory for something else, and let all end. Returns how
 * many failed. */
static int closed_round(struct pair *p, unsigned polls)
{
    struct region g = region_open(p, 1, (size_t)FLIGHTS * FLIGHT, RW, 1);
    struct flight f[FLIGHTS + 1];
    int failed = 0;
    memset(g.base, 0x77, (size_t)FLIGHTS * FLIGHT);
    for (int i = 0; i < FLIGHTS; i++)
        flight_begin(&f[i], &g, i);
    whole_begin(&f[FLIGHTS], &g);
    while (polls--)
        pair_poll(p);
    region_revoke(&g);
    memset(g.base, 0x11, (size_t)FLIGHTS * FLIGHT);
    for (int i = 0; i <= FLIGHTS; i++)
        failed += flight_end(p, &f[i], i) != WEFT_OK;
    pair_quiet(p);
    assert_true(all_are(g.base, (size_t)FLIGHTS * FLIGHT, 0x11));
    region_close(&g);
    return failed;
}

/* Fails when: what is in flight to a region hangs when that is closed, memory is written that
 * its owner has for itself again, or a get ends well with what was not in the region. */
void test_mixed_region_closed(void **state)
{
    static const unsigned polls[] = {0, 1, 3, 10, 20, 40, 80, 200};
    struct pair *p = *state;
    struct region stays = region_open(p, 1, 4096, RW, 1);
    uint64_t v = 5, back = 0;
    int failed = 0;
    for (size_t i = 0; i < sizeof polls / sizeof polls[0]; i++) {
        failed += closed_round(p, polls[i]);
        GIVES(WEFT_OK, put_end(p, stays.r, 8, &v, 8));
        GIVES(WEFT_OK, get_end(p, stays.r, 8, &back, 8));
        assert_int_equal(back, v++);
    }
    /* Something was caught in flight, where there is such a thing. */
    assert_true(failed || !p->setup->network || p->setup->contexts == 1);
    region_close(&stays);
}

/* ---- two handles of one address ---- */

enum { ASK = 1, ANSWER = 2, LONG = 100000 };

static void on_ask(const struct weft_am *am)
{
    EXPECT(weft_am_reply(am, ANSWER, am->args, 1, NULL, 0) == WEFT_OK);
}

static void on_answer(const struct weft_am *am)
{
    ++((int *)((struct pair *)am->arg)->test)[am->args[0]];
}

struct handle {
    struct weft_peer *peer;
    struct weft_remote *r;
    struct weft_op put, get, send, recv;
    enum weft_status started[3];
    unsigned char out[LONG], in[LONG], got[LONG];
};

static void handle_open(struct pair *p, struct handle *h, const struct region *g)
{
    memset(h, 0, sizeof *h);
    h->peer = peer_to(p->ep[0], p->ep[other(p, 0)]);
    OK(weft_remote_open(h->peer, g->key, g->key_len, &h->r));
}

/* One of everything, to part [i] of the region. */
static void handle_begin(struct pair *p, struct handle *h, uint32_t i, uint64_t id)
{
    enum weft_status status;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    memset(&h->put, 0, sizeof h->put);
    memset(&h->get, 0, sizeof h->get);
    memset(&h->send, 0, sizeof h->send);
    memset(&h->recv, 0, sizeof h->recv);
    test_fill(h->out, LONG, id);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, i, WEFT_TAG_FULL, h->got, LONG, &h->recv));
    h->started[0] = weft_put(h->r, i * LONG, h->out, LONG, &h->put);
    h->started[1] = weft_get(h->r, (2 + i) * LONG, h->in, LONG, &h->get);
    h->started[2] = weft_msg_send(h->peer, i, h->out, LONG, &h->send);
    while ((status = weft_am_request(h->peer, ASK, &i, 1, NULL, 0, 1)) == WEFT_AGAIN) {
        pair_poll(p);
        assert_true(test_now_ns() < end);
    }
    OK(status);
}

static void handle_end(struct pair *p, struct handle *h, const struct region *g, uint32_t i,
                       uint64_t id)
{
    GIVES(WEFT_OK, rma_end(p, h->r, &h->put, h->started[0]));
    GIVES(WEFT_OK, rma_end(p, h->r, &h->get, h->started[1]));
    GIVES(WEFT_OK, op_end(p, &h->send, h->started[2]));
    GIVES(WEFT_OK, op_end(p, &h->recv, WEFT_PENDING));
    assert_true(test_same(g->base + i * LONG, LONG, id));
    assert_true(test_same(h->got, LONG, id));
    assert_true(test_same(h->in, LONG, 1000 + i));
}

/* Fails when: what one of two handles began does not end, or ends with the other's bytes, or
 * with the other's closing; whichever was the first. */
void test_mixed_two_handles(void **state)
{
    struct pair *p = *state;
    struct region g = region_open(p, 1, 4 * LONG, RW, 1);
    struct handle *h = calloc(2, sizeof *h);
    int answers[2] = {0};
    p->test = answers;
    pair_register(p, ASK, on_ask);
    pair_register(p, ANSWER, on_answer);
    for (uint32_t i = 0; i < 2; i++) {
        test_fill(g.base + (2 + i) * LONG, LONG, 1000 + i);
        handle_open(p, &h[i], &g);
    }
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t gone = round & 1;
        uint64_t id = 10 + 2 * round;
        for (uint32_t i = 0; i < 2; i++)
            handle_begin(p, &h[i], i, id + i);
        handle_end(p, &h[gone], &g, gone, id + gone);
        UNTIL(p, answers[gone] == (int)round + 1);
        OK(weft_remote_close(h[gone].r));
        OK(weft_peer_close(h[gone].peer));
        handle_end(p, &h[!gone], &g, !gone, id + !gone);
        UNTIL(p, answers[!gone] == (int)round + 1);
        handle_open(p, &h[gone], &g);
    }
    for (uint32_t i = 0; i < 2; i++) {
        OK(weft_remote_close(h[i].r));
        OK(weft_peer_close(h[i].peer));
    }
    assert_int_equal(p->downs[0] + p->downs[1], 0);
    region_close(&g);
    free(h);
}

/* ---- adds from everywhere ---- */

enum { ADDS = 4000 };

struct adds {
    struct weft_remote *r;
    struct weft_op op[ADDS];
    uint64_t fetched[ADDS];
};

static void add_begin(struct pair *p, struct adds *a, int i)
{
    enum weft_status status;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while ((status = weft_atomic(a->r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &a->fetched[i],
                                 &a->op[i])) == WEFT_AGAIN) {
        pair_poll(p);
        assert_true(test_now_ns() < end);
    }
    assert_true(status == WEFT_OK || (status == WEFT_PENDING && !a->r->base));
}

static void fetched_note(unsigned char *seen, const struct adds *a)
{
    for (int i = 0; i < ADDS; i++) {
        GIVES(WEFT_OK, (enum weft_status)a->op[i].status);
        assert_in_range(a->fetched[i], 0, 2 * ADDS - 1);
        assert_int_equal(seen[a->fetched[i]]++, 0);
    }
}

/* Fails when: two adds fetch the same value or one is lost, among those of the other end and
 * of the word's own process, in both directions at once. */
void test_mixed_adds(void **state)
{
    struct pair *p = *state;
    struct region g[2] = {region_open(p, 0, 64, RW, 0), region_open(p, 1, 64, RW, 1)};
    struct weft_peer *self[2];
    struct adds *a = calloc(4, sizeof *a); /* of g[0], then of g[1]: from afar, from at home */
    for (int e = 0; e < 2; e++) {
        self[e] = peer_to(p->ep[e], p->ep[e]);
        a[2 * e].r = g[e].r;
        OK(weft_remote_open(self[e], g[e].key, g[e].key_len, &a[2 * e + 1].r));
    }
    for (int i = 0; i < ADDS; i++) {
        for (int k = 0; k < 4; k++)
            add_begin(p, &a[k], i);
        if (test_mix((uint64_t)i) % 8 == 0)
            pair_poll(p);
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < ADDS; i++)
            UNTIL(p, a[k].op[i].status != WEFT_PENDING);
    for (int e = 0; e < 2; e++) {
        unsigned char *seen = calloc(1, 2 * ADDS);
        fetched_note(seen, &a[2 * e]);
        fetched_note(seen, &a[2 * e + 1]);
        assert_int_equal(*(uint64_t *)(void *)g[e].base, 2 * ADDS);
        free(seen);
        OK(weft_remote_close(a[2 * e + 1].r));
        OK(weft_peer_close(self[e]));
    }
    for (int e = 0; e < 2; e++)
        region_close(&g[e]);
    free(a);
}

/* ---- keys that say more than was granted ---- */

enum { REAL = 8192, FAR = 70000 };

struct forged {
    struct region before, real, after;
    int longer, freer; /* keys that said so */
};

/* [r] says that it is longer than it is: long and short accesses past its end. */
static void beyond(struct pair *p, struct weft_remote *r, unsigned char *local)
{
    struct weft_op op = {0};
    uint64_t v = 0;
    int reads = r->access & WEFT_REMOTE_READ && r->length >= REAL + FAR;
    if (reads) {
        GIVES(WEFT_ERANGE, get_end(p, r, REAL, &v, 8));
        GIVES(WEFT_ERANGE, get_end(p, r, REAL - 4, &v, 8));
        GIVES(WEFT_ERANGE, get_end(p, r, 0, local, FAR));
    }
    if (reads && r->access & WEFT_REMOTE_WRITE) {
        GIVES(WEFT_ERANGE, put_end(p, r, REAL, &v, 8));
        GIVES(WEFT_ERANGE, put_end(p, r, REAL - 4, &v, 8));
        GIVES(WEFT_ERANGE, put_end(p, r, 0, local, FAR)); /* whole or in part */
        GIVES(WEFT_ERANGE, add_end(p, r, REAL, 1, &v));
        GIVES(WEFT_ERANGE, signal_end(p, r, REAL, local, 8, r, 0, 1, WEFT_SIGNAL_ADD));
        GIVES(WEFT_ERANGE, op_end(p, &op, weft_am_long(r, 0, local, FAR, 1, NULL, 0, 0, &op)));
    }
}

/* [r] says that it may be written, and it may not. */
static void forbidden(struct pair *p, struct weft_remote *r, unsigned char *local)
{
    struct weft_op op = {0};
    GIVES(WEFT_EACCESS, put_end(p, r, 0, local, 8));
    GIVES(WEFT_EACCESS, put_end(p, r, 0, local, REAL));
    GIVES(WEFT_EACCESS, add_end(p, r, 0, 1, NULL));
    GIVES(WEFT_EACCESS, signal_end(p, r, 0, local, 8, r, 8, 1, WEFT_SIGNAL_SET));
    GIVES(WEFT_EACCESS, op_end(p, &op, weft_am_long(r, 0, local, 8, 1, NULL, 0, 0, &op)));
}

static void forged_key(struct pair *p, struct forged *f, unsigned bit, unsigned char *local)
{
    unsigned char key[WEFT_KEY_MAX];
    struct weft_remote *r = NULL;
    memcpy(key, f->real.key, sizeof key);
    key[bit / 8] ^= (unsigned char)(1 << (bit % 8));
    if (weft_remote_open(p->peer[0], key, f->real.key_len, &r) == WEFT_OK)
        fail_msg("a key whose bit %u is another opens", bit);
    key_seal(key, f->real.key_len); /* a forger can do that */
    if (weft_remote_open(p->peer[0], key, f->real.key_len, &r) != WEFT_OK)
        return;
    if (!r->base && r->length > REAL) {
        f->longer++;
        beyond(p, r, local);
    } else if (!r->base && r->access & ~f->real.r->access & WEFT_REMOTE_WRITE) {
        f->freer++;
        forbidden(p, r, local);
    } else if (!r->base && p->setup->network && r->length >= 8 && r->access & WEFT_REMOTE_READ) {
        enum weft_status status = get_end(p, r, 0, local, 8);
        assert_true(status == WEFT_OK || status < 0);
    }
    OK(weft_remote_close(r));
}

static void forged_keys(struct pair *p, unsigned access)
{
    unsigned char *local = calloc(1, FAR), back[8];
    struct forged f = {.before = region_open(p, 1, REAL, RW, 0)};
    f.real = region_open(p, 1, REAL, access, 0);
    f.after = region_open(p, 1, REAL, RW, 0);
    memset(f.before.base, 0x44, REAL);
    memset(f.real.base, 0x55, REAL);
    memset(f.after.base, 0x66, REAL);
    for (unsigned bit = 0; bit < 8 * f.real.key_len; bit++) {
        memset(local, 0x99, FAR);
        forged_key(p, &f, bit, local);
        GIVES(WEFT_OK, get_end(p, f.real.r, 0, back, 8)); /* it goes on */
        assert_true(all_are(back, 8, 0x55));
    }
    pair_quiet(p);
    assert_true(all_are(f.before.base, REAL, 0x44));
    assert_true(all_are(f.after.base, REAL, 0x66));
    assert_true(access & WEFT_REMOTE_WRITE || all_are(f.real.base, REAL, 0x55));
    assert_true(f.longer || !p->setup->network);
    assert_true(f.freer || !p->setup->network || access & WEFT_REMOTE_WRITE);
    region_close(&f.before);
    region_close(&f.real);
    region_close(&f.after);
    free(local);
}

/* Fails when: a key that is not as it was made is believed by the region's owner: what is
 * beyond the region is read or written, a right is taken, or the owner does not go on. */
void test_mixed_forged_keys(void **state)
{
    struct pair *p = *state;
    forged_keys(p, WEFT_REMOTE_READ);
}
