/* SPDX-License-Identifier: BSD-3-Clause */
/* 16 real threads on one completion queue, and on one queue pair, of a NIC that moves nothing. An
 * argument: messages of each thread; a second one: seeds; a third one: a device of libibverbs
 * instead of that NIC. */
#include "unit.h"

#include <string.h>

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_queue_pair),
        cmocka_unit_test(test_one_completion_queue),
    };
    if (argc > 1)
        messages = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seeds = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        device = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
