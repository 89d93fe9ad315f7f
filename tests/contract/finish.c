/* SPDX-License-Identifier: BSD-3-Clause */
/* What an op tells after each call that takes one, and weft_op_finish. */
#include <weft/frag.h>

#include "contract.h"

enum { HANDLER = 3, STEP_NS = 1000000 };

struct finish {
    struct pair *p;
    struct region g;
    struct weft_op op;
    char data[64], back[64];
    int ran;
};

static void on_message(const struct weft_am *am)
{
    struct pair *p = am->arg;
    ++*(int *)p->test;
}

/* To its end by weft_op_finish alone, the other end polled in between. */
static void finished(struct finish *f, const char *what, enum weft_status status)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    enum weft_status first = status;
    if (first != WEFT_OK && first != WEFT_PENDING)
        fail_msg("%s: %s", what, weft_status_name(first));
    if (f->op.status != (int32_t)first)
        fail_msg("%s: returned %s, op->status is %s", what, weft_status_name(first),
                 weft_status_name((enum weft_status)f->op.status));
    while ((status = weft_op_finish(f->p->ep[0], status, &f->op, STEP_NS)) == WEFT_PENDING) {
        pair_poll(f->p);
        assert_true(test_now_ns() < end);
    }
    if (status != WEFT_OK || f->op.status != WEFT_OK)
        fail_msg("%s: %s, op->status %s", what, weft_status_name(status),
                 weft_status_name((enum weft_status)f->op.status));
}

/* An op whose status is neither OK nor PENDING, for the next call. */
static struct weft_op *op_new(struct finish *f)
{
    memset(&f->op, 0, sizeof f->op);
    f->op.status = WEFT_ECANCELED;
    return &f->op;
}

#define FINISHED(call) finished(f, #call, call)

static void rma_calls(struct finish *f)
{
    struct weft_remote *r = f->g.r;
    struct iovec iov[2] = {{f->data, 8}, {f->data + 8, 56}};
    uint64_t old;
    FINISHED(weft_put(r, 0, f->data, 8, op_new(f)));
    FINISHED(weft_put(r, 0, f->data, 64, op_new(f)));
    FINISHED(weft_get(r, 0, f->back, 64, op_new(f)));
    FINISHED(weft_putv(r, 0, iov, 2, op_new(f)));
    FINISHED(weft_getv(r, 0, iov, 2, op_new(f)));
    FINISHED(weft_put_signal(r, 0, f->data, 64, r, 128, 1, WEFT_SIGNAL_ADD, op_new(f)));
    FINISHED(weft_put_signal(r, 0, NULL, 0, r, 128, 1, WEFT_SIGNAL_SET, op_new(f)));
    FINISHED(weft_atomic(r, 128, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, op_new(f)));
    FINISHED(weft_am_long(r, 0, f->data, 64, HANDLER, NULL, 0, 0, op_new(f)));
    FINISHED(weft_flush(f->p->peer[0], op_new(f)));
}

static void frag_put(struct finish *f)
{
    struct weft_frag *frag = NULL;
    OK(weft_frag_prepare(f->g.r, 0, f->data, 64, NULL, &frag));
    FINISHED(weft_frag_put(frag, op_new(f)));
    OK(weft_frag_free(frag));
}

static void msg_calls(struct finish *f)
{
    static char large[200000], room[200000];
    struct pair *p = f->p;
    struct weft_op recv[3] = {{0}};
    int at = other(p, 0);
    struct iovec one = {f->data, 64};
    for (int i = 0; i < 3; i++)
        GIVES(WEFT_PENDING,
              weft_msg_recv(p->ep[at], NULL, 7, WEFT_TAG_FULL, room, sizeof room, &recv[i]));
    FINISHED(weft_msg_send(p->peer[0], 7, f->data, 8, op_new(f)));
    FINISHED(weft_msg_sendv(p->peer[0], 7, &one, 1, op_new(f)));
    FINISHED(weft_msg_send(p->peer[0], 7, large, sizeof large, op_new(f)));
    UNTIL(p, recv[2].status != WEFT_PENDING);
    assert_int_equal(recv[2].status, WEFT_OK);
    OK(weft_msg_send(p->peer[0], 8, f->data, 8, NULL)); /* arrives before its receive */
    pair_quiet(p);
    if (p->setup->eps == 1) /* received here: finished polls this end */
        FINISHED(weft_msg_recv(p->ep[0], NULL, 8, WEFT_TAG_FULL, f->back, 64, op_new(f)));
}

/* Fails when: a call returns OK and leaves another status in its op, or weft_op_finish ends with
 * anything but the operation's end. */
void test_finish_calls(void **state)
{
    struct pair *p = *state;
    struct finish f = {.p = p, .data = "data"};
    p->test = &f.ran;
    pair_register(p, HANDLER, on_message);
    f.g = region_open(p, other(p, 0), 4096, RW, 0);
    rma_calls(&f);
    frag_put(&f);
    msg_calls(&f);
    UNTIL(p, f.ran == 1);
    region_close(&f.g);
    f.g = region_open(p, other(p, 0), 4096, RW, 1); /* not mapped */
    rma_calls(&f);
    UNTIL(p, f.ran == 2);
    region_close(&f.g);
}

/* Fails when: AGAIN is waited for as if something were under way, or a failure is. */
void test_finish_again(void **state)
{
    struct pair *p = *state;
    struct weft_op op = {.status = WEFT_ECANCELED};
    int ran = 0, sent = 0;
    enum weft_status s;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    p->test = &ran;
    pair_register(p, HANDLER, on_message);
    GIVES(WEFT_EKEY, weft_op_finish(p->ep[0], WEFT_EKEY, NULL, -1));
    GIVES(WEFT_OK, weft_op_finish(p->ep[0], WEFT_OK, NULL, -1));
    GIVES(WEFT_EINVAL, weft_op_finish(p->ep[0], WEFT_PENDING, NULL, -1));
    GIVES(WEFT_EINVAL, weft_op_finish(NULL, WEFT_AGAIN, &op, -1));
    GIVES(WEFT_AGAIN, weft_op_finish(p->ep[0], WEFT_AGAIN, &op, 0));
    assert_int_equal(op.status, WEFT_ECANCELED);
    while ((s = weft_am_request(p->peer[0], HANDLER, NULL, 0, NULL, 0, 0)) == WEFT_OK)
        sent++;
    GIVES(WEFT_AGAIN, s);
    while (s == WEFT_AGAIN) { /* room is made by the other end alone, or by polling here */
        GIVES(WEFT_AGAIN, weft_op_finish(p->ep[0], s, &op, STEP_NS));
        if (p->setup->eps == 2)
            assert_true(weft_ep_poll(p->ep[1]) >= 0);
        assert_true(test_now_ns() < end);
        s = weft_am_request(p->peer[0], HANDLER, NULL, 0, NULL, 0, 0);
    }
    GIVES(WEFT_OK, s);
    UNTIL(p, ran == sent + 1);
    assert_int_equal(op.status, WEFT_ECANCELED);
}
