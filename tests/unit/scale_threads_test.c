/* SPDX-License-Identifier: BSD-3-Clause */
/* 16 real threads on one completion queue, and on one queue pair, of a NIC that moves nothing. An
 * argument: messages of each thread; a second one: seeds; a third one: a device of libibverbs
 * instead of that NIC. */
#include "unit.h"

#include <string.h>

#include "numbers.h"
#include "owners.h"

#define MESSAGES 6250u

static uint32_t messages = MESSAGES;
static uint64_t seeds = 1;
static const char *device = "null0";

static void expect_owned(bool qp_shared)
{
    bool is_null = !strcmp(device, "null0");
    struct wf_bench b = {.ops = is_null ? &wf_hca_null : &wf_hca_verbs, .device = device};
    for (b.seed = 1; b.seed <= seeds; b.seed++) {
        const char *wrong = owners_check(&b, qp_shared, messages);
        if (wrong)
            fail_msg("seed %llu: %s", (unsigned long long)b.seed, wrong);
    }
}

/* Fails when: a completion of a shared queue is lost, comes twice, or a queue pair with locks has
 * more than its depth under way. */
static void test_one_queue_pair(void **state)
{
    (void)state;
    expect_owned(true);
}

static void test_one_completion_queue(void **state)
{
    (void)state;
    expect_owned(false);
}

static _Atomic unsigned polled;

static int failing_poll(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    int n = wf_hca_null.poll(cq, out, room);
    for (int i = 0; i < n; i++)
        if (++polled == 5000)
            out[i].status = WF_HCA_FLUSHED;
    return n;
}

static struct wf_hca_ops failing;

static enum weft_status failing_open(const char *name, const struct wf_hca_config *config,
                                     struct wf_hca **out)
{
    enum weft_status status = wf_hca_null.open(name, config, out);
    if (status == WEFT_OK)
        (*out)->ops = &failing;
    return status;
}

/* Fails when: a thread takes another one's failed completion, for which that thread then waits for
 * ever. */
static void test_failure_ends_all(void **state)
{
    const struct wf_rate_case c = {.p = 1, .q = 1, .way = WF_WAY_CQ, .x = 16};
    struct wf_bench b = {.ops = &failing, .device = "null0"};
    struct wf_rate_params p;
    struct wf_ga_params ga;
    struct wf_result r;
    (void)state;
    failing = wf_hca_null;
    failing.open = failing_open;
    failing.poll = failing_poll;
    assert_null(wf_rate_case_params(&c, 16, messages, &p));
    assert_false(wf_rate_run(&b, &p, &r));
    assert_non_null(strstr(r.why, "could not post or poll"));
    polled = 0;
    wf_ga_params_of(&ga, WF_CAT_THREADS, 16);
    assert_false(wf_ga_run(&b, &ga, &r));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_queue_pair),
        cmocka_unit_test(test_one_completion_queue),
        cmocka_unit_test(test_failure_ends_all),
    };
    if (argc > 1)
        messages = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seeds = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        device = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
