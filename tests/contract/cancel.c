/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends that end in the middle: cancelled ones. The source of a cancelled send is unmapped as soon
 * as the call returns, so that any later access to it is a fault. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL
#define MOST 4 /* sends at a time */

static const size_t sizes[] = {0,      1,      100,    4096,   8192,   8193,    20000,   65536,
                               100000, 200001, 262144, 262145, 500000, 1048577, 3000000, 3000001};
#define SIZES (sizeof sizes / sizeof sizes[0])

struct sent {
    struct weft_op s, r;
    unsigned char *out, *in;
    size_t len;
    uint64_t id;
    enum weft_status started, posted;
    int dones;
    bool cancelled;
};

static void count_done(struct weft_op *op)
{
    ++*(int *)op->user;
}

static unsigned char *source_new(size_t len)
{
    void *p = mmap(NULL, len + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void source_free(struct sent *m)
{
    if (m->out)
        munmap(m->out, m->len + 1);
    m->out = NULL;
}

static void receive(struct pair *p, struct sent *m)
{
    m->posted = weft_msg_recv(p->ep[1], NULL, m->id, FULL, m->in, m->len, &m->r);
}

static void begin(struct pair *p, struct sent *m, size_t len, uint64_t id)
{
    *m = (struct sent){.len = len, .id = id};
    m->s = (struct weft_op){.user = &m->dones, .done = count_done};
    m->out = source_new(m->len);
    m->in = malloc(m->len + 1);
    test_fill(m->out, m->len, id);
    m->posted = WEFT_AGAIN; /* not posted yet */
    if (test_mix(id + 1) & 1)
        receive(p, m);
    m->started = weft_msg_send(p->peer[0], id, m->out, m->len, &m->s);
}

static void cancel(struct pair *p, struct sent *m)
{
    OK(weft_msg_cancel(p->ep[0], &m->s));
    m->cancelled = m->s.status == WEFT_ECANCELED;
    assert_int_equal(m->dones, 1);
    if (m->cancelled)
        source_free(m);
    else
        GIVES(WEFT_OK, (enum weft_status)m->s.status);
}

static void has_contents(const struct sent *m)
{
    assert_int_equal(m->r.len, m->len);
    assert_true(test_same(m->in, m->len, m->id));
}

static void end(struct pair *p, struct sent *m)
{
    if (m->posted == WEFT_AGAIN)
        receive(p, m);
    if (!m->cancelled) {
        GIVES(WEFT_OK, op_end(p, &m->r, m->posted));
        GIVES(WEFT_OK, op_end(p, &m->s, m->started));
        has_contents(m);
    } else {
        /* the message may not have left, or its receiver may have it */
        pair_quiet(p);
        if (m->posted == WEFT_PENDING && m->r.status == WEFT_PENDING)
            OK(weft_msg_cancel(p->ep[1], &m->r));
        if (m->r.status == WEFT_OK)
            has_contents(m);
        else
            GIVES(WEFT_ECANCELED, (enum weft_status)m->r.status);
    }
    assert_int_equal(m->dones, m->started == WEFT_PENDING);
    source_free(m);
    free(m->in);
}

/* Fails when: a cancelled send does not end at once, ends twice, is still read, is received with
 * other bytes, leaves its receive waiting, or disturbs the sends beside it. */
void test_cancel_send(void **state)
{
    struct pair *p = *state;
    struct sent m[MOST];
    unsigned cancelled = 0, ended = 0;
    for (uint64_t id = 0; id < 160; id += MOST) {
        uint64_t polls = test_mix(id + 7) % 8;
        for (unsigned i = 0; i < MOST; i++)
            begin(p, &m[i], sizes[test_mix(id + i) % SIZES], id + i);
        while (polls--)
            pair_poll(p);
        for (unsigned i = MOST; i-- > 0;)
            if (m[i].started == WEFT_PENDING && test_mix(id + i + 3) % 3) {
                cancel(p, &m[i]);
                cancelled += m[i].cancelled;
            }
        for (unsigned i = 0; i < MOST; i++) {
            end(p, &m[i]);
            ended += m[i].cancelled && m[i].r.status == WEFT_ECANCELED;
        }
    }
    assert_true(cancelled > 10 && ended > 0);
}

/* Fails when: a message of which the receiver knows does not end there with ECANCELED after it was
 * cancelled, for a receive, a probed message, or a claimed one. */
void test_cancel_known(void **state)
{
    static const size_t lens[] = {200000, 2000000}; /* the first may be pushed across a network */
    struct pair *p = *state;
    for (unsigned i = 0; i < 4; i++) {
        struct sent m = {.len = lens[i % 2], .id = i};
        struct weft_msg_info info;
        struct weft_msg *msg = NULL;
        m.out = source_new(m.len);
        m.in = malloc(m.len);
        m.s = (struct weft_op){.user = &m.dones, .done = count_done};
        GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], i, m.out, m.len, &m.s));
        UNTIL(p, weft_msg_probe(p->ep[1], NULL, i, FULL, &info) == WEFT_OK);
        assert_int_equal(info.len, m.len);
        if (i < 2)
            OK(weft_msg_claim(p->ep[1], NULL, i, FULL, &info, &msg));
        cancel(p, &m);
        assert_true(m.cancelled);
        m.posted = msg ? weft_msg_take(p->ep[1], msg, m.in, m.len, &m.r)
                       : weft_msg_recv(p->ep[1], NULL, i, FULL, m.in, m.len, &m.r);
        GIVES(WEFT_ECANCELED, op_end(p, &m.r, m.posted));
        free(m.in);
    }
    pair_quiet(p);
}

/* Fails when: a message that was cancelled before there was a connection is received in part, or
 * leaves its receive waiting. */
void test_cancel_first(void **state)
{
    struct pair *p = *state;
    struct sent m[MOST];
    for (unsigned i = 0; i < MOST; i++)
        begin(p, &m[i], 100000 + 40000 * i, 3 * i);
    for (unsigned i = 0; i < MOST; i++)
        if (m[i].started == WEFT_PENDING)
            cancel(p, &m[i]);
    for (unsigned i = 0; i < MOST; i++)
        end(p, &m[i]);
}
