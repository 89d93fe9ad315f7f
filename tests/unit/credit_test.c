/* SPDX-License-Identifier: BSD-3-Clause */
/* Credit for tagged messages: the sender's counters (core/msg_credit.h), and a receiver modelled as
 * a list of messages. */
#include "unit/unit.h"
#include "core/msg_credit.h"

enum { QUEUE = 65536, STEPS = 400000 };

enum what { MESSAGE, QUESTION, OFFER };

struct sent {
    enum what what;
    bool asks;
    uint32_t charge, asked;
};

struct model {
    struct wf_msg_credit c;
    uint64_t rand;
    /* messages in flight, in order; those kept; answers in flight, in order */
    struct sent out[QUEUE], back[QUEUE];
    uint32_t credit[QUEUE];
    unsigned out_first, out_n, back_first, back_n;
    uint64_t under_way, kept;
    bool lies;
    bool unanswered; /* a question by a MSG */
    unsigned did[5]; /* by enum wf_credit; answers */
};

static void post(struct model *m, struct sent s)
{
    assert_true(m->out_n < QUEUE);
    m->out[(m->out_first + m->out_n++) % QUEUE] = s;
    m->under_way += s.charge;
}

static void send_one(struct model *m)
{
    uint32_t len = (uint32_t)(test_rand(&m->rand) % 4 ? test_rand(&m->rand) % 64
                                                      : test_rand(&m->rand) % 100000);
    enum wf_credit credit = wf_msg_credit_for(&m->c, len);
    assert_true(wf_msg_credit_left(&m->c, len) < 0 || credit == WF_CREDIT_QUIET);
    m->did[credit]++;
    if (credit == WF_CREDIT_QUIET || credit == WF_CREDIT_ASK) {
        bool asks = credit == WF_CREDIT_ASK;
        assert_true(!asks || !m->unanswered);
        wf_msg_credit_charge(&m->c, len, asks);
        post(m, (struct sent){MESSAGE, asks, len + WF_MSG_CHARGE, wf_msg_credit_sent(&m->c)});
        m->unanswered |= asks;
        /* the receiver may keep no more than the window */
        assert_true(m->lies || m->under_way + m->kept <= WF_MSG_WINDOW);
    } else if (credit == WF_CREDIT_WAIT) {
        assert_true(m->unanswered);
    } else if (test_rand(&m->rand) % 2) {
        assert_true(!m->unanswered);
        post(m, (struct sent){OFFER, true, 0, wf_msg_credit_sent(&m->c)});
    } else {
        assert_true(!m->unanswered);
        wf_msg_credit_asked(&m->c);
        post(m, (struct sent){QUESTION, true, 0, wf_msg_credit_sent(&m->c)});
        m->unanswered = true;
    }
}

static void arrive(struct model *m)
{
    struct sent s = m->out[m->out_first];
    if (!m->out_n)
        return;
    m->out_first = (m->out_first + 1) % QUEUE;
    m->out_n--;
    m->under_way -= s.charge;
    if (test_rand(&m->rand) % 3) /* else a receive was posted */
        m->kept += s.charge;
    if (!s.asks)
        return;
    assert_true(m->back_n < QUEUE);
    m->back[(m->back_first + m->back_n) % QUEUE] = s;
    /* a false answer: the sender uses no more than the window */
    m->credit[(m->back_first + m->back_n++) % QUEUE] =
        m->lies ? UINT32_MAX : (uint32_t)(WF_MSG_WINDOW - m->kept);
}

static void answered(struct model *m)
{
    struct sent s = m->back[m->back_first];
    uint32_t credit = m->credit[m->back_first];
    if (!m->back_n)
        return;
    m->back_first = (m->back_first + 1) % QUEUE;
    m->back_n--;
    if (s.what != OFFER && s.asked == m->c.asked)
        m->unanswered = false;
    wf_msg_credit_answered(&m->c, s.asked, credit, s.what != OFFER);
    m->did[4]++;
}

/* Fails when: the sender charges more than the receiver grants, has two questions in flight,
 * forgets one, or waits without one; also where the counters wrap. */
static void test_model(void **state)
{
    static struct model m;
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        memset(&m, 0, sizeof m);
        m.rand = test_seed() + round;
        m.lies = round >= 6;
        wf_msg_credit_init(&m.c, round % 2 ? -1000000u : 0);
        for (unsigned i = 0; i < STEPS; i++) {
            unsigned r = (unsigned)(test_rand(&m.rand) % 16);
            bool full = m.out_n + m.back_n > QUEUE / 2;
            if (r < 7 && !full)
                send_one(&m);
            else if (r < 11)
                arrive(&m);
            else if (r < 14)
                answered(&m);
            else if (r == 15 && test_rand(&m.rand) % 64 == 0)
                m.kept = 0; /* all are received */
            if (full)
                answered(&m);
            assert_int_equal(m.unanswered, wf_msg_credit_is_asking(&m.c));
            assert_true(m.c.end - wf_msg_credit_sent(&m.c) <= WF_MSG_WINDOW);
        }
        for (unsigned k = 0; k < 5; k++)
            assert_true(m.did[k] > 100 || (m.lies && k));
    }
}

/* Fails when: a sender cannot continue once all its messages are received. */
static void test_recovers(void **state)
{
    struct wf_msg_credit c = {0};
    (void)state;
    wf_msg_credit_init(&c, 0);
    for (enum wf_credit credit; (credit = wf_msg_credit_for(&c, 1000)) <= WF_CREDIT_ASK;)
        wf_msg_credit_charge(&c, 1000, credit == WF_CREDIT_ASK);
    assert_int_equal(wf_msg_credit_for(&c, 1000), WF_CREDIT_WAIT);
    wf_msg_credit_answered(&c, c.asked + 1, WF_MSG_WINDOW,
                           true); /* the answer to another question */
    assert_int_equal(wf_msg_credit_for(&c, 1000), WF_CREDIT_WAIT);
    wf_msg_credit_answered(&c, c.asked, WF_MSG_WINDOW - c.asked, true); /* all are kept */
    assert_int_equal(wf_msg_credit_for(&c, 1000), WF_CREDIT_NONE);
    wf_msg_credit_answered(&c, wf_msg_credit_sent(&c), WF_MSG_WINDOW,
                           false); /* an offer's: all are received */
    assert_int_equal(wf_msg_credit_for(&c, 1000), WF_CREDIT_QUIET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model),
                                       cmocka_unit_test(test_recovers)};
    return cmocka_run_group_tests_name("credit", tests, NULL, NULL);
}
