/* SPDX-License-Identifier: BSD-3-Clause */
/* A kernel for more processors than cpu_set_t has bits for: the test replaces sched_getaffinity. */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <sched.h>

#include "base/process.h"

static size_t kernel_bytes; /* of its mask */
static unsigned allowed;

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    if (size < kernel_bytes) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(size, set);
    for (unsigned i = 0; i < allowed; i++) /* the last ones */
        CPU_SET_S(8 * kernel_bytes - 1 - i, size, set);
    return 0;
}

/* Fails when: a process on a large machine counts only one core. */
static void test_processors(void **state)
{
    static const size_t bits[] = {64, 1024, 2048, 4096, 8192, 65536};
    (void)state;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        kernel_bytes = bits[i] / 8;
        for (allowed = 1; allowed < bits[i]; allowed = 3 * allowed + 1)
            assert_int_equal(wf_processors_allowed(), allowed);
    }
}

/* Fails when: the process asks for ever if the kernel never reports the size of its mask. */
static void test_never(void **state)
{
    (void)state;
    kernel_bytes = (size_t)1 << 40;
    assert_int_equal(wf_processors_allowed(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors),
        cmocka_unit_test(test_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
