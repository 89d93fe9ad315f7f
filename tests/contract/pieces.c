/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages whose payload is in several pieces: weft_am_requestv. */
#include "contract.h"

enum { ASK = 1, ANSWER = 2, NOTE = 3 };

/* A payload in up to 64 pieces, each a buffer of exactly its length. */
struct cut {
    uint64_t id;
    size_t len[WEFT_IOV_MAX];
    unsigned count, nargs;
    struct iovec iov[WEFT_IOV_MAX];
    uint32_t args[WEFT_AM_MAX_ARGS];
    int came, answered;
};

static size_t cut_sum(const struct cut *c)
{
    size_t sum = 0;
    for (unsigned i = 0; i < c->count; i++)
        sum += c->len[i];
    return sum;
}

static void cut_make(struct cut *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        c->iov[i] = (struct iovec){c->len[i] ? malloc(c->len[i]) : NULL, c->len[i]};
        test_fill(c->iov[i].iov_base, c->len[i], c->id + i);
    }
    for (unsigned i = 0; i < c->nargs; i++)
        c->args[i] = (uint32_t)test_mix(c->id + i);
}

/* The pieces are the caller's again: they are overwritten. */
static void cut_free(struct cut *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        if (c->len[i])
            memset(c->iov[i].iov_base, 0xee, c->len[i]);
        free(c->iov[i].iov_base);
        c->iov[i] = (struct iovec){NULL, SIZE_MAX};
    }
}

static int cut_same(const struct cut *c, const struct weft_am *am)
{
    const unsigned char *at = am->data;
    int same = am->len == cut_sum(c) && am->nargs == c->nargs;
    for (unsigned i = 0; same && i < c->count; at += c->len[i++])
        same = test_same(at, c->len[i], c->id + i);
    for (unsigned i = 0; same && i < c->nargs; i++)
        same = am->args[i] == (uint32_t)test_mix(c->id + i);
    return same;
}

static void on_ask(const struct weft_am *am)
{
    struct cut *c = ((struct pair *)am->arg)->test;
    unsigned char reply[64];
    EXPECT(((uintptr_t)am->data & 15) == 0);
    EXPECT(cut_same(c, am));
    c->came++;
    if (!am->can_reply)
        return;
    EXPECT(am->reply_max == sizeof reply + 1);
    test_fill(reply, sizeof reply, c->id);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, reply, sizeof reply) == WEFT_OK);
}

static void on_answer(const struct weft_am *am)
{
    struct cut *c = ((struct pair *)am->arg)->test;
    EXPECT(am->len == 64 && test_same(am->data, am->len, c->id));
    c->answered++;
}

/* Send [c] from end 0, and wait for it and for its reply, if one is due. */
static void cut_send(struct pair *p, struct cut *c, size_t reply_max)
{
    enum weft_status status;
    c->came = c->answered = 0;
    c->id += WEFT_IOV_MAX;
    cut_make(c);
    UNTIL(p, (status = weft_am_requestv(p->peer[0], ASK, c->args, c->nargs, c->iov, c->count,
                                        reply_max)) != WEFT_AGAIN);
    GIVES(WEFT_OK, status);
    cut_free(c);
    UNTIL(p, c->came && c->answered == (reply_max != 0));
    assert_int_equal(c->came, 1);
}

/* Fails when: one of two pieces is copied wrongly, whatever the two lengths and the number of
 * arguments; when the call reads a piece after it has returned. */
void test_pieces_two(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    const size_t sizes[] = {0,  1,  2,  3,  4,  7,  8,  9,  14, 15, 16,  17, 24,
                            31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 256, 480};
    struct cut c = {.count = 2};
    unsigned turn = 0;
    p->test = &c;
    pair_register(p, ASK, on_ask);
    pair_register(p, ANSWER, on_answer);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++, turn++) {
            c.len[0] = sizes[i];
            c.len[1] = sizes[j] + sizes[i] <= max ? sizes[j] : max - sizes[i];
            c.nargs = turn % 3 ? 0 : turn % (WEFT_AM_MAX_ARGS + 1);
            cut_send(p, &c, turn % 4 == 1 ? 65 : 0);
        }
    for (size_t i = 0; i < 40; i++) {
        c.len[0] = i;
        c.len[1] = max - i;
        cut_send(p, &c, 0);
    }
}

/* Fails when: a piece is lost or doubled, for any number of pieces, empty ones among them, or where
 * a payload reaches the end of a buffer of the transport. */
void test_pieces_many(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    struct cut c = {.id = 1};
    uint64_t rand = 9;
    p->test = &c;
    pair_register(p, ASK, on_ask);
    pair_register(p, ANSWER, on_answer);
    for (int i = 0; i < 3000; i++) {
        size_t left = i % 3 ? test_rand(&rand) % (max + 1) : test_rand(&rand) % 64;
        c.count = (unsigned)(test_rand(&rand) % (WEFT_IOV_MAX + 1));
        c.nargs = (unsigned)(test_rand(&rand) % (WEFT_AM_MAX_ARGS + 1));
        for (unsigned k = 0; k < c.count; k++) {
            c.len[k] = test_rand(&rand) % 3 ? test_rand(&rand) % (left + 1) : 0;
            c.len[k] = k + 1 == c.count && i % 2 ? left : c.len[k];
            left -= c.len[k];
        }
        cut_send(p, &c, i % 5 ? 0 : 65);
    }
}

static void on_note(const struct weft_am *am)
{
    uint32_t *seen = ((struct pair *)am->arg)->test;
    EXPECT(am->len == 8 && test_same(am->data, 8, am->args[0]));
    ++*seen;
}

/* Fails when: a refused message is sent all the same, or in part. */
void test_pieces_full(void **state)
{
    struct pair *p = *state;
    uint32_t seen = 0, sent = 0;
    enum weft_status status = WEFT_OK;
    unsigned char data[8];
    p->test = &seen;
    pair_register(p, NOTE, on_note);
    for (; status == WEFT_OK; sent += status == WEFT_OK) {
        struct iovec iov[2] = {{data, 3}, {data + 3, 5}};
        test_fill(data, sizeof data, sent);
        status = weft_am_requestv(p->peer[0], NOTE, &sent, 1, iov, 2, 0);
    }
    GIVES(WEFT_AGAIN, status);
    UNTIL(p, seen == sent);
    pair_quiet(p);
    assert_int_equal(seen, sent);
}

static int in_handler;

static void on_context(const struct weft_am *am)
{
    const struct pair *p = am->arg;
    char byte = 0;
    struct iovec iov[2] = {{&byte, 1}, {&byte, 1}};
    EXPECT(weft_am_requestv(p->peer[1], NOTE, NULL, 0, iov, 2, 0) == WEFT_ECONTEXT);
    in_handler++;
}

/* Fails when: a call with an argument that is wrong sends something. */
void test_pieces_misuse(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    unsigned char *data = calloc(1, max + 1);
    uint32_t args[WEFT_AM_MAX_ARGS + 1] = {0};
    struct iovec two[2] = {{data, 1}, {data, 1}}, bad[2], many[WEFT_IOV_MAX + 1];
    const size_t sums[][2] = {{1, max},
                              {max, 1},
                              {max + 1, 0},
                              {0, max + 1},
                              {1, SIZE_MAX},
                              {SIZE_MAX, 1},
                              {8, SIZE_MAX - 7},
                              {SIZE_MAX - 7, 8},
                              {SIZE_MAX / 2, SIZE_MAX / 2},
                              {SIZE_MAX / 2 + 2, SIZE_MAX / 2 + 2}};
    for (int i = 0; i <= WEFT_IOV_MAX; i++)
        many[i] = (struct iovec){data, 1};
    in_handler = 0;
    GIVES(WEFT_EINVAL, weft_am_requestv(NULL, NOTE, NULL, 0, two, 2, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, NULL, 0, NULL, 2, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, NULL, 0, NULL, 1, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, NULL, 0, many, WEFT_IOV_MAX + 1, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, NULL, 0, many, UINT32_MAX, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, NULL, 1, two, 2, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, args, WEFT_AM_MAX_ARGS + 1, two, 2, 0));
    GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], WEFT_AM_USER_HANDLERS, NULL, 0, two, 2, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_requestv(p->peer[0], NOTE, NULL, 0, two, 2, max + 2));
    for (int k = 0; k < 2; k++) {
        memcpy(bad, two, sizeof bad);
        bad[k] = (struct iovec){NULL, 8};
        GIVES(WEFT_EINVAL, weft_am_requestv(p->peer[0], NOTE, NULL, 0, bad, 2, 0));
    }
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        bad[0] = (struct iovec){data, sums[i][0]};
        bad[1] = (struct iovec){data, sums[i][1]};
        GIVES(sums[i][0] > max + 1 || sums[i][1] > max + 1 ? WEFT_EINVAL : WEFT_EMSGSIZE,
              weft_am_requestv(p->peer[0], NOTE, NULL, 0, bad, 2, 0));
    }
    pair_quiet(p);
    assert_int_equal(pair_stat(p, "REQUESTS_RECEIVED"), 0);
    pair_register(p, ASK, on_context);
    OK(weft_am_requestv(p->peer[0], ASK, NULL, 0, two, 2, 0));
    UNTIL(p, in_handler == 1);
    free(data);
}
