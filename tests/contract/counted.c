/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses that are counted at an endpoint: weft_ep_bind_counter. */
#include <stdbool.h>
#include <weft/atomic.h>
#include <weft/event.h>
#include <weft/frag.h>

#include "contract.h"

enum { ROOM = 3200000, HANDLER = 34 };

struct counted {
    struct weft_mr *mr;
    struct weft_remote *r;
    struct weft_counter *reads, *writes, *region;
    unsigned char *buf, *local;
    uint64_t nreads, nwrites, nregion; /* expected */
};

static struct weft_remote *open_at(struct pair *p, const struct weft_mr *mr, bool raw)
{
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    uint64_t base, key64;
    struct weft_remote *r = NULL;
    if (raw) {
        OK(weft_mr_raw(mr, &base, key, &len, 0));
        OK(weft_remote_open(p->peer[0], key, len, &r));
    } else {
        OK(weft_mr_key64(mr, &key64));
        OK(weft_remote_open_key(p->peer[0], key64, &r));
    }
    return r;
}

static void setup(struct pair *p, struct counted *c, uint64_t flags, bool raw)
{
    *c = (struct counted){.buf = calloc(1, ROOM), .local = calloc(1, ROOM)};
    OK(weft_counter_open(&c->reads));
    OK(weft_counter_open(&c->writes));
    OK(weft_counter_open(&c->region));
    OK(weft_ep_bind_counter(p->ep[1], c->reads, WEFT_REMOTE_READ));
    OK(weft_ep_bind_counter(p->ep[1], c->writes, WEFT_REMOTE_WRITE));
    OK(weft_mr_reg(p->ctx[1], c->buf, ROOM, RW, 0, 7, flags, &c->mr, NULL));
    if (flags & WEFT_MR_EVENT)
        OK(weft_mr_bind_counter(c->mr, c->region, WEFT_REMOTE_WRITE));
    c->r = open_at(p, c->mr, raw);
}

static void teardown(struct counted *c)
{
    OK(weft_remote_close(c->r));
    OK(weft_counter_close(c->region));
    OK(weft_mr_close(c->mr));
    OK(weft_counter_close(c->reads));
    OK(weft_counter_close(c->writes));
    free(c->buf);
    free(c->local);
}

static bool agree(const struct counted *c)
{
    return weft_counter_read(c->reads) == c->nreads && weft_counter_read(c->writes) == c->nwrites &&
           weft_counter_read(c->region) == c->nregion;
}

static void on_long(const struct weft_am *am)
{
    (void)am;
}

/* Both ends anew, with that mode of the contexts' regions. */
static void reopen(struct pair *p, uint32_t mode)
{
    struct weft_mr_domain domain = WEFT_MR_DOMAIN_INIT;
    domain.mode = mode;
    pair_reopen(p, &domain, WEFT_EP_RMA_EVENT);
}

/* Do an operation of any kind, and note what it has to be counted as. */
static void access_once(struct pair *p, struct counted *c, uint64_t i)
{
    static const size_t lens[] = {1, 8, 512, 4096, 5000, 70000, 1100000, 3000000};
    size_t len = lens[test_mix(i) % 8];
    const struct iovec two[2] = {{c->local, len / 2}, {c->local + len / 2, len - len / 2}};
    uint64_t v = 1, old;
    struct weft_op op = {0};
    enum weft_status status;
    switch (test_mix(i + 99) % 8) {
    case 0: status = weft_put(c->r, 8, c->local, len, &op); break;
    case 1: status = weft_putv(c->r, 8, two, 2, &op); break;
    case 2: status = weft_get(c->r, 8, c->local, len, &op); goto read;
    case 3: status = weft_getv(c->r, 8, two, 2, &op); goto read;
    case 4: status = weft_atomic(c->r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op); break;
    case 5:
        status = weft_atomic(c->r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, &op);
        c->nregion++;
        goto read;
    case 6:
        status = weft_atomic_array(c->r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, &v, NULL, NULL, &op);
        break;
    default: status = weft_am_long(c->r, 8, c->local, len, HANDLER, NULL, 0, 0, &op);
    }
    c->nwrites++;
    c->nregion++;
    GIVES(WEFT_OK, op_end(p, &op, status));
    return;
read:
    c->nreads++;
    GIVES(WEFT_OK, op_end(p, &op, status));
}

/* Fails when: an access is not counted, or twice, or as one of the other kind, by a raw key, or by
 * one of 64 bits before and after it is learnt; or the counter of the region counts otherwise. */
void test_counted_accesses(void **state)
{
    struct pair *p = *state;
    for (unsigned way = 0; way < 4; way++) {
        unsigned raw = way % 2, times = way / 2 ? 2 : 5;
        struct counted c;
        reopen(p, way / 2 ? WEFT_MR_ALLOCATED : 0); /* NICs and bulk messages are for ALLOCATED */
        pair_register(p, HANDLER, on_long);
        setup(p, &c, WEFT_MR_EVENT | WEFT_MR_READ_EVENT, raw);
        for (unsigned i = 0; i < 30 * times; i++) {
            access_once(p, &c, raw * 1000 + i);
            UNTIL(p, agree(&c));
        }
        for (unsigned i = 0; i < 20 * times; i++)
            access_once(p, &c, raw * 1000 + 500 + i);
        UNTIL(p, agree(&c));
        pair_quiet(p);
        assert_true(agree(&c) && c.nreads && c.nwrites);
        teardown(&c);
    }
}

/* Fails when: regions that do not ask are counted, or the two flags mean the same. */
void test_counted_flags(void **state)
{
    static const uint64_t flags[] = {0, WEFT_MR_EVENT, WEFT_MR_READ_EVENT};
    struct pair *p = *state;
    for (unsigned i = 0; i < 3; i++) {
        struct counted c;
        uint64_t word = 3;
        pair_reopen(p, NULL, WEFT_EP_RMA_EVENT);
        setup(p, &c, flags[i], i % 2);
        for (unsigned k = 0; k < 5; k++) {
            OK(put_end(p, c.r, 0, &word, 8));
            OK(get_end(p, c.r, 0, &word, 8));
        }
        c.nreads = flags[i] & WEFT_MR_READ_EVENT ? 5 : 0;
        c.nregion = c.nwrites = flags[i] & WEFT_MR_EVENT ? 5 : 0;
        UNTIL(p, agree(&c)); /* a get may end before its owner has counted it */
        pair_quiet(p);
        assert_true(agree(&c));
        teardown(&c);
    }
}

/* Fails when: a read is counted before its bytes were read, so that the reader gets what the owner
 * writes afterwards. */
void test_counted_read(void **state)
{
    enum { READS = 8, LEN = ROOM / READS };
    struct pair *p = *state;
    struct weft_op ops[READS] = {{0}};
    enum weft_status status[READS];
    uint64_t before, counted, old = 0;
    struct counted c;
    p->progress = WEFT_PROGRESS_POLL;
    reopen(p, WEFT_MR_ALLOCATED); /* in bulk, where the peer is across a network */
    setup(p, &c, WEFT_MR_READ_EVENT, true);
    memset(c.buf, 1, LEN);
    OK(get_end(p, c.r, 0, c.local, 8)); /* connects */
    UNTIL(p, weft_counter_read(c.reads) == 1);
    pair_quiet(p);
    before = weft_counter_read(c.reads);
    for (unsigned i = 0; i < READS; i++)
        status[i] = weft_get(c.r, 0, c.local + i * LEN, LEN, &ops[i]);
    assert_true(weft_ep_poll(p->ep[0]) >= 0); /* the reader has sent what it can */
    for (unsigned i = 0; i < 1000 && weft_counter_read(c.reads) == before; i++)
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
    counted = weft_counter_read(c.reads) - before;
    memset(c.buf, 2, LEN);
    for (unsigned i = 0; i < READS; i++) {
        const unsigned char *got = c.local + i * LEN;
        GIVES(WEFT_OK, op_end(p, &ops[i], status[i]));
        old += got[0] == 1 && !memcmp(got, got + 1, LEN - 1);
    }
    assert_true(old >= counted);
    UNTIL(p, weft_counter_read(c.reads) - before == READS);
    teardown(&c);
}

/* Fails when: a put that follows a get begins while the owner does not know of the get: its bytes
 * came by one copy, and the report to the owner waits for room. */
void test_counted_followed(void **state)
{
    struct pair *p = *state;
    struct weft_order own = weft_order_none();
    struct weft_op get = {0}, put = {0};
    enum weft_status status;
    struct counted c;
    p->progress = WEFT_PROGRESS_POLL;
    reopen(p, 0);
    setup(p, &c, WEFT_MR_READ_EVENT, true);
    pair_register(p, HANDLER, on_long);
    OK(get_end(p, c.r, 0, c.local, 8)); /* connects */
    UNTIL(p, weft_counter_read(c.reads) == 1);
    pair_quiet(p);
    for (unsigned i = 0; i < 1000000; i++)
        if (weft_am_request(p->peer[0], HANDLER, NULL, 0, NULL, 0, 0) != WEFT_OK)
            break;
    status = weft_order_get(c.r, 0, c.local, 5000, own, &own, &get);
    if (status == WEFT_PENDING)
        GIVES(WEFT_AGAIN, weft_order_put(c.r, 0, c.local, 8, own, NULL, &put));
    GIVES(WEFT_OK, op_end(p, &get, status));
    put.status = WEFT_OK;
    GIVES(WEFT_OK, op_end(p, &put, weft_order_put(c.r, 0, c.local, 8, own, NULL, &put)));
    UNTIL(p, weft_counter_read(c.reads) == 2);
    pair_quiet(p);
    teardown(&c);
}

/* Fails when: a wrong binding is taken; a closed counter keeps accesses from being done; or an
 * endpoint keeps its counters when it closes. */
void test_counted_binding(void **state)
{
    struct pair *p = *state;
    struct weft_counter *c;
    struct counted d;
    uint64_t word = 5;
    OK(weft_counter_open(&c));
    GIVES(WEFT_EINVAL, weft_ep_bind_counter(p->ep[1], c, WEFT_REMOTE_READ)); /* no RMA_EVENT */
    pair_reopen(p, NULL, WEFT_EP_RMA_EVENT);
    GIVES(WEFT_EBADFLAGS, weft_ep_bind_counter(p->ep[1], c, 0));
    GIVES(WEFT_EBADFLAGS, weft_ep_bind_counter(p->ep[1], c, WEFT_SEND));
    GIVES(WEFT_EINVAL, weft_ep_bind_counter(p->ep[1], NULL, WEFT_REMOTE_READ));
    GIVES(WEFT_EINVAL, weft_ep_bind_counter(NULL, c, WEFT_REMOTE_READ));
    setup(p, &d, WEFT_MR_EVENT | WEFT_MR_READ_EVENT, true);
    GIVES(WEFT_EINVAL, weft_ep_bind_counter(p->ep[1], c, WEFT_REMOTE_READ));
    GIVES(WEFT_EINVAL, weft_ep_bind_counter(p->ep[1], c, RW));
    OK(weft_counter_close(d.reads));
    OK(put_end(p, d.r, 0, &word, 8));
    OK(get_end(p, d.r, 0, &word, 8));
    UNTIL(p, weft_counter_read(d.writes) == 1);
    OK(weft_counter_open(&d.reads));
    teardown(&d);
    OK(weft_counter_close(c));
    OK(weft_counter_open(&c));
    pair_reopen(p, NULL, WEFT_EP_RMA_EVENT);
    OK(weft_ep_bind_counter(p->ep[1], c, RW));
    pair_reopen(p, NULL, 0);
    assert_int_equal(weft_counter_read(c), 0);
    OK(weft_counter_close(c));
}
