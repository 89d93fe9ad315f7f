/* SPDX-License-Identifier: BSD-3-Clause */
/* Mixed traffic both ways against a reference: from its id everything about a
 * message follows, so each end can say whether what it got is right, and the
 * tables say that it came once. */
#include "contract.h"

enum { TOTAL = 200000, HANDLERS = 16, REPLY = 100 };

struct traffic {
    struct pair *p;
    uint64_t seed;
    uint32_t sent, asked, answered, answers_due;
    uint8_t asked_times[TOTAL], answered_times[TOTAL];
    unsigned char buf[65536];
};

struct shape {
    unsigned nargs, reply_nargs, handler;
    size_t len, reply_max, reply_len;
    int replies;
};

/* Short ones mostly, as programs send, and some of all lengths. */
static size_t size_of(uint64_t r, size_t max)
{
    switch (r & 7) {
    case 0: return (r >> 3) % (max + 1);
    case 1: return (r >> 3) % 512;
    default: return (r >> 3) % 65;
    }
}

static struct shape shape_of(const struct traffic *t, uint32_t id)
{
    uint64_t r = test_mix(t->seed + id), q = test_mix(r);
    size_t max = weft_am_max(t->p->ep[0]);
    struct shape s = {.nargs = 1 + (unsigned)(r % WEFT_AM_MAX_ARGS),
                      .handler = (unsigned)(r >> 8) % HANDLERS,
                      .len = size_of(r >> 16, max)};
    if (q & 1)
        s.reply_max = 1 + size_of(q >> 16, max);
    s.replies = s.reply_max && (q & 6);
    if (s.replies) {
        s.reply_len = (q >> 40) % s.reply_max;
        s.reply_nargs = 1 + (unsigned)(q >> 3) % WEFT_AM_MAX_ARGS;
    }
    return s;
}

static void args_fill(uint32_t args[WEFT_AM_MAX_ARGS], uint32_t id, uint32_t salt)
{
    args[0] = id;
    for (uint32_t k = 1; k < WEFT_AM_MAX_ARGS; k++)
        args[k] = (uint32_t)test_mix(((uint64_t)id << 8) + k + salt);
}

static int is_right(const struct weft_am *am, uint32_t id, unsigned nargs, size_t len,
                    uint32_t salt)
{
    uint32_t args[WEFT_AM_MAX_ARGS];
    args_fill(args, id, salt);
    return am->nargs == nargs && !memcmp(am->args, args, 4 * nargs) && am->len == len &&
           !((uintptr_t)am->data & 15) && test_same(am->data, len, id + salt);
}

static void on_request(const struct weft_am *am)
{
    struct traffic *t = ((struct pair *)am->arg)->test;
    uint32_t id = am->nargs ? am->args[0] : TOTAL, args[WEFT_AM_MAX_ARGS];
    struct shape s;
    EXPECT(id < t->sent);
    if (id >= t->sent)
        return;
    s = shape_of(t, id);
    EXPECT(is_right(am, id, s.nargs, s.len, 0));
    EXPECT(am->handler == s.handler && am->reply_max == s.reply_max);
    EXPECT(++t->asked_times[id] == 1);
    t->asked++;
    if (!s.replies)
        return;
    args_fill(args, id, 1u << 30);
    test_fill(t->buf, s.reply_len, (uint64_t)id + (1u << 30));
    EXPECT(weft_am_reply(am, REPLY, args, s.reply_nargs, t->buf, s.reply_len) == WEFT_OK);
    EXPECT(test_same(am->data, s.len, id)); /* still there */
}

static void on_reply(const struct weft_am *am)
{
    struct traffic *t = ((struct pair *)am->arg)->test;
    uint32_t id = am->nargs ? am->args[0] : TOTAL;
    struct shape s;
    EXPECT(id < t->sent);
    if (id >= t->sent)
        return;
    s = shape_of(t, id);
    EXPECT(s.replies && am->is_reply);
    EXPECT(is_right(am, id, s.reply_nargs, s.reply_len, 1u << 30));
    EXPECT(++t->answered_times[id] == 1);
    t->answered++;
}

/* One more message; false: there was no room. */
static int send_one(struct traffic *t, int from)
{
    uint32_t id = t->sent, args[WEFT_AM_MAX_ARGS];
    struct shape s = shape_of(t, id);
    enum weft_status status;
    args_fill(args, id, 0);
    test_fill(t->buf, s.len, id);
    status =
        weft_am_request(t->p->peer[from], s.handler, args, s.nargs, t->buf, s.len, s.reply_max);
    if (status == WEFT_AGAIN)
        return 0;
    OK(status);
    t->sent++;
    t->answers_due += (uint32_t)s.replies;
    return 1;
}

/* Fails when: anything is lost, doubled, torn, or taken for another, in any mix
 * of sizes, with either end ahead of the other by any amount. */
void test_traffic_random(void **state)
{
    struct pair *p = *state;
    struct traffic *t = calloc(1, sizeof *t);
    uint64_t rand;
    t->p = p;
    t->seed = rand = test_seed();
    p->test = t;
    for (unsigned h = 0; h < HANDLERS; h++)
        pair_register(p, h, on_request);
    pair_register(p, REPLY, on_reply);
    while (t->sent < TOTAL) {
        uint64_t r = test_rand(&rand);
        int from = (int)(r & 1), burst = (int)(r >> 8) % 100;
        for (int i = 0; i < burst && t->sent < TOTAL; i++)
            if (!send_one(t, from))
                break;
        if (r & 2)
            assert_true(weft_ep_poll(p->ep[0]) >= 0);
        if (r & 4)
            assert_true(weft_ep_poll(p->ep[1]) >= 0);
        assert_int_equal(contract_bad, 0);
    }
    UNTIL(p, t->asked == TOTAL && t->answered == t->answers_due);
    pair_quiet(p);
    assert_int_equal(t->asked, TOTAL);
    assert_int_equal(t->answered, t->answers_due);
    assert_int_equal(pair_stat(p, "BAD_MESSAGES"), 0);
    free(t);
}
