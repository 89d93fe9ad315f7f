/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that lies about messages in parts and about credit, by Weft's own calls: docs/protocol.md
 * "Tagged messages".
 *
 * Fails when: what is no part of a message is believed (an offset that is not the next, a number
 * that names no message, no bytes or too many, a message that is no longer than its first part or
 * longer than any may be, a second first part), is not counted in BAD_MESSAGES, changes the message
 * to which it does not belong, or ends the connection; or when a question is not answered. */
#define _GNU_SOURCE
#include <string.h>
#include <weft/msg.h>

#include "core/ctl.h"
#include "core/msg_parts.h"
#include "../kill/proc.h"
#include "bad.h"

enum { ID = 9, LEN = 3000, PART = 1000, TAG = 5 };

struct pair {
    struct weft_ctx *ctx;
    struct weft_ep *good, *liar;
    struct weft_peer *to_good;
};

static void pair_open(struct pair *p)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    CHECK_STATUS(weft_ctx_open(NULL, &p->ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(p->ctx, NULL, &p->good), WEFT_OK);
    CHECK_STATUS(weft_ep_open(p->ctx, NULL, &p->liar), WEFT_OK);
    CHECK_STATUS(weft_ep_address(p->good, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(p->liar, address, len, &p->to_good), WEFT_OK);
}

static void poll_both(struct pair *p)
{
    for (int i = 0; i < 200; i++)
        CHECK(weft_ep_poll(p->good) >= 0 && weft_ep_poll(p->liar) >= 0);
}

static unsigned char data[LEN];

static void say(struct pair *p, const uint32_t *args, unsigned nargs, size_t len)
{
    CHECK_STATUS(wf_ctl_request(p->to_good, WF_CTL_MSG, args, nargs, data, len, 0), WEFT_OK);
    poll_both(p);
}

struct lie {
    unsigned nargs;
    uint32_t args[10];
    size_t len;
};

/* While the parts of a message come: [arrived] bytes of it have. */
static const struct lie lies[] = {
    {0, {0}, 0},                         /* neither a message nor a question */
    {0, {0}, 8},                         /* the same, with bytes */
    {1, {TAG}, 8},                       /* half a tag */
    {5, {TAG, 0, 1, 0, 0}, PART},        /* data without their flag */
    {5, {TAG, 0, 0, 0, 4}, PART},        /* no such space */
    {5, {TAG, 0, 0, 0, 1u << 31}, PART}, /* an unknown flag */
    {5, {TAG, 0, 0, 0, WF_WHAT_FOLLOWS}, PART},
    {5, {TAG, 0, 0, 0, WF_WHAT_PART}, PART},   /* the flag of a first part, of no length */
    {7, {TAG, 0, 0, 0, 1, LEN, ID + 1}, PART}, /* a first part without its flag */
    {7, {TAG, 0, 0, 0, WF_WHAT_PART | 1, LEN, ID}, PART}, /* it has begun already */
    {7, {TAG, 0, 0, 0, WF_WHAT_PART | 1, PART, ID + 1}, PART},
    {6, {TAG, 0, LEN, ID + 1, 0, 0}, PART}, /* more arguments than a part has */
    {8, {TAG, 0, 0, 0, WF_WHAT_PART | 1, LEN, ID + 1, 0}, PART},
    {10, {TAG, 0, 0, 0, WF_WHAT_PART | 1, LEN, ID + 1, 0, 0, 0}, PART},
    {3, {ID, PART, 1}, PART},                /* the last argument must be 0 */
    {4, {TAG, 0, LEN, ID}, PART},            /* it has begun already */
    {4, {TAG, 0, PART, ID + 1}, PART},       /* no longer than its first part */
    {4, {TAG, 0, 0, ID + 1}, PART},          /* shorter */
    {4, {TAG, 0, LEN, ID + 1}, 0},           /* no bytes */
    {4, {TAG, 0, UINT32_MAX, ID + 1}, PART}, /* longer than any may be */
    {4, {TAG, 0, WF_MSG_EAGER_MAX + 1, ID + 1}, PART},
    {3, {ID, 0, 0}, PART},        /* again */
    {3, {ID, PART + 1, 0}, PART}, /* not the next */
    {3, {ID, 2 * PART, 0}, PART},
    {3, {ID, UINT32_MAX, 0}, PART},
    {3, {ID, PART, 0}, LEN - PART + 1}, /* more than is to come */
    {3, {ID, PART, 0}, 0},              /* no bytes */
    {3, {ID + 1, PART, 0}, PART},       /* a message that has not begun */
    {3, {ID | 1u << 24, PART, 0}, PART},
};

static void lied(struct pair *p)
{
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint64_t before = bad_messages(p->ctx);
        memset(data, 0xee, sizeof data);
        say(p, lies[i].args, lies[i].nargs, lies[i].len);
        if (bad_messages(p->ctx) != before + 1)
            proc_fail(__FILE__, __LINE__, "message %zu was believed", i);
    }
}

/* The bytes of a part. */
static void fill(size_t at)
{
    for (size_t i = 0; i < PART; i++)
        data[i] = (unsigned char)((at + i) * 7);
}

/* A message in three parts with lies after each; [early]: a receive is posted. */
static void between_parts(bool early)
{
    static unsigned char in[LEN];
    struct pair p;
    struct weft_op r = {0};
    enum weft_status got = WEFT_PENDING;
    pair_open(&p);
    if (early)
        CHECK_STATUS(weft_msg_recv(p.good, NULL, TAG, WEFT_TAG_FULL, in, LEN, &r), WEFT_PENDING);
    fill(0);
    say(&p, (uint32_t[]){TAG, 0, LEN, ID}, 4, PART);
    lied(&p);
    fill(PART);
    say(&p, (uint32_t[]){ID, PART, 0}, 3, PART);
    if (early)
        CHECK(r.status == WEFT_PENDING);
    else
        got = weft_msg_recv(p.good, NULL, TAG, WEFT_TAG_FULL, in, LEN, &r);
    CHECK(got == WEFT_PENDING);
    fill(2 * PART);
    say(&p, (uint32_t[]){ID, 2 * PART, 0}, 3, PART);
    CHECK_STATUS(r.status, WEFT_OK);
    CHECK(r.len == LEN && r.tag == TAG);
    for (size_t i = 0; i < LEN; i++)
        CHECK(in[i] == (unsigned char)(i * 7));
    say(&p, (uint32_t[]){ID, 2 * PART, 0}, 3, PART); /* it is over */
    CHECK(bad_messages(p.ctx) == 1 + sizeof lies / sizeof lies[0]);
    CHECK_STATUS(weft_peer_status(p.to_good), WEFT_OK);
    CHECK_STATUS(weft_peer_close(p.to_good), WEFT_OK);
    CHECK_STATUS(weft_ep_close(p.liar), WEFT_OK);
    CHECK_STATUS(weft_ep_close(p.good), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(p.ctx), WEFT_OK);
}

static void received(void)
{
    between_parts(true);
}

static void kept(void)
{
    between_parts(false);
}

/* The receiver's endpoint closes although only some parts of a message have come. */
static void left(void)
{
    struct pair p;
    struct weft_op r = {0};
    unsigned char in[LEN];
    pair_open(&p);
    say(&p, (uint32_t[]){TAG, 0, LEN, ID}, 4, PART);
    say(&p, (uint32_t[]){TAG, 0, LEN, ID + 1}, 4, PART);
    CHECK_STATUS(weft_msg_recv(p.good, NULL, TAG, WEFT_TAG_FULL, in, LEN, &r), WEFT_PENDING);
    CHECK_STATUS(weft_ep_close(p.good), WEFT_OK);
    CHECK_STATUS(r.status, WEFT_ECANCELED);
    CHECK_STATUS(weft_peer_close(p.to_good), WEFT_OK);
    CHECK_STATUS(weft_ep_close(p.liar), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(p.ctx), WEFT_OK);
}

/* The same of the sender's. */
static void never_ends(void)
{
    struct pair p;
    struct weft_op r = {0};
    unsigned char in[LEN];
    pair_open(&p);
    say(&p, (uint32_t[]){TAG, 0, LEN, ID}, 4, PART);
    say(&p, (uint32_t[]){TAG, 0, LEN, ID + 1}, 4, PART);
    CHECK_STATUS(weft_msg_recv(p.good, NULL, TAG, WEFT_TAG_FULL, in, LEN, &r), WEFT_PENDING);
    CHECK_STATUS(weft_msg_cancel(p.good, &r), WEFT_EBUSY);
    CHECK_STATUS(weft_peer_close(p.to_good), WEFT_OK);
    CHECK_STATUS(weft_ep_close(p.liar), WEFT_OK);
    for (uint64_t end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
         r.status == WEFT_PENDING;) {
        CHECK(weft_ep_poll(p.good) >= 0);
        CHECK(proc_now_ns() < end);
    }
    CHECK_STATUS(r.status, WEFT_EPEER);
    CHECK_STATUS(weft_ep_close(p.good), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(p.ctx), WEFT_OK);
}

/* A question without a message that has bytes, or a wrong first argument, is refused; a message
 * that reserves room for a reply, but is no question, is received; a question about a message that
 * never was is answered, and the answer ends nothing. */
static void broken_questions(struct pair *p)
{
    static const uint32_t args[3] = {2, 0, 0}, arrived[3] = {1, ID, 0};
    unsigned char in[LEN];
    struct weft_op r = {0};
    for (unsigned i = 0; i < 3; i++) {
        CHECK_STATUS(wf_ctl_request(p->to_good, WF_CTL_MSG, i == 1 ? args + 1 : args,
                                    i == 2 ? 1 : 3 - i, data, i == 1 ? 8 : 0, 1),
                     WEFT_OK);
        poll_both(p);
    }
    CHECK(weft_msg_recv(p->good, NULL, 0, WEFT_TAG_FULL, in, LEN, &r) >= WEFT_OK);
    CHECK_STATUS(r.status, WEFT_OK);
    CHECK(r.len == 8 && bad_messages(p->ctx) == 2);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_STATUS(wf_ctl_request(p->to_good, WF_CTL_MSG, arrived, 3, data, i ? 8 : 0, 1),
                     WEFT_OK);
        poll_both(p);
    }
    CHECK(bad_messages(p->ctx) == 3);
}

/* Questions are answered, and what they grant is bounded. An answer to another question, or for
 * another handle, changes nothing. */
static void questions(void)
{
    static const uint32_t off[][2] = {{0, 0}, {0, 1}, {1, 0}};
    struct pair p;
    struct weft_op r;
    unsigned char in[LEN];
    struct wf_msg_credit *c;
    pair_open(&p);
    CHECK(wf_flow_of(p.to_good) != NULL);
    c = &p.to_good->flow->credit;
    for (uint32_t i = 0; i < 60; i++) {
        const uint32_t *wrong = off[i % 3];
        uint32_t end = c->end;
        r = (struct weft_op){0};
        CHECK(weft_msg_recv(p.good, NULL, TAG, WEFT_TAG_FULL, in, LEN, &r) >= WEFT_OK);
        wf_msg_credit_charge(c, 8, true);
        CHECK_STATUS(wf_ctl_request(p.to_good, WF_CTL_MSG,
                                    (uint32_t[]){TAG, 0, wf_msg_credit_name(p.to_good) + wrong[0],
                                                 c->asked + wrong[1]},
                                    4, data, 8, 1),
                     WEFT_OK);
        CHECK(wf_msg_credit_is_asking(c));
        poll_both(&p);
        CHECK(wf_msg_credit_is_asking(c) == (i % 3 != 0));
        CHECK(i % 3 == 0 || c->end == end);
        CHECK(c->end - wf_msg_credit_sent(c) <= WF_MSG_WINDOW);
        wf_msg_credit_answered(c, c->asked, 0, true);
    }
    CHECK(bad_messages(p.ctx) == 0);
    broken_questions(&p);
}

int main(void)
{
    return proc_case("received", received) | proc_case("kept", kept) | proc_case("left", left) |
           proc_case("never_ends", never_ends) | proc_case("questions", questions);
}
