/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that lies about late replies, by Weft's own calls: docs/protocol.md "Late replies".
 *
 * Fails when: what is no late message is believed (a refusal whose status is none, one for a
 * handler of Weft's, another kind, too few arguments), is not counted in BAD_MESSAGES, or ends the
 * connection; or what is one, though nobody asked, is anything but a reply or a failure. */
#define _GNU_SOURCE

#include "core/ctl.h"
#include "bad.h"

enum { ANSWER = 2, REPLY = 0, REFUSED = 1 << 8 };

static unsigned answers, failures;

static void on_answer(const struct weft_am *am)
{
    CHECK(am->is_reply && !am->can_reply);
    answers++;
}

static void on_failed(const struct weft_am_failure *failure)
{
    CHECK(failure->why < 0);
    failures++;
}

struct pair {
    struct weft_ctx *ctx;
    struct weft_ep *good, *liar;
    struct weft_peer *to_good, *to_liar;
};

static void pair_open(struct pair *p)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.am_failed = on_failed;
    CHECK_STATUS(weft_ctx_open(NULL, &p->ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(p->ctx, &params, &p->good), WEFT_OK);
    CHECK_STATUS(weft_ep_open(p->ctx, NULL, &p->liar), WEFT_OK);
    CHECK_STATUS(weft_am_register(p->good, ANSWER, on_answer, NULL), WEFT_OK);
    p->to_good = peer_to(p->liar, p->good);
    p->to_liar = peer_to(p->good, p->liar);
}

/* Send it, and poll until it was handled in one of the three ways. */
static void lie(struct pair *p, const uint32_t *args, unsigned nargs)
{
    uint64_t before = bad_messages(p->ctx) + answers + failures;
    uint64_t end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    CHECK_STATUS(wf_ctl_request(p->to_good, WF_CTL_LATE, args, nargs, NULL, 0, 0), WEFT_OK);
    while (bad_messages(p->ctx) + answers + failures == before) {
        CHECK(weft_ep_poll(p->good) >= 0 && weft_ep_poll(p->liar) >= 0);
        CHECK(proc_now_ns() < end);
    }
}

static void unasked(void)
{
    static const struct {
        unsigned nargs;
        uint32_t args[3];
    } bad[] = {
        {0, {0}},
        {1, {2 << 8 | ANSWER}},
        {1, {REPLY | WEFT_AM_USER_HANDLERS}},
        {1, {REFUSED | ANSWER}},
        {2, {REFUSED | ANSWER, WEFT_OK}},
        {3, {REFUSED | ANSWER, WEFT_PENDING, 7}},
        {2, {REFUSED | ANSWER, INT32_MAX}},
        {2, {REFUSED | WEFT_AM_USER_HANDLERS, (uint32_t)WEFT_EHANDLER}},
    };
    struct pair p;
    unsigned n = sizeof bad / sizeof bad[0];
    pair_open(&p);
    for (unsigned i = 0; i < n; i++) {
        lie(&p, bad[i].args, bad[i].nargs);
        if (answers || failures || bad_messages(p.ctx) != i + 1)
            proc_fail(__FILE__, __LINE__, "message %u was believed", i);
    }
    lie(&p, (uint32_t[]){REPLY | ANSWER}, 1);
    lie(&p, (uint32_t[]){REFUSED | ANSWER, (uint32_t)WEFT_EHANDLER}, 2);
    CHECK(answers == 1 && failures == 1 && bad_messages(p.ctx) == n);
    CHECK_STATUS(weft_peer_status(p.to_liar), WEFT_OK);
    CHECK_STATUS(weft_peer_status(p.to_good), WEFT_OK);
}

int main(void)
{
    return proc_case("unasked", unasked);
}
