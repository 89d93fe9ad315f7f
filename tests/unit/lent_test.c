/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from and to memory that may be missing (mem/lent.h), where the system makes them and where
 * it forbids process_vm_readv(2) and process_vm_writev(2). */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem/lent.h"
#include "unit/forbid.h"

enum { PAGE = 4096, PAGES = 3 };

/* PAGES pages that are mapped as [protection] says, but for the last one. */
static uint8_t *map(int protection)
{
    uint8_t *p = mmap(NULL, PAGES * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(munmap(p + (PAGES - 1) * PAGE, PAGE), 0);
    return p;
}

static void unmap(uint8_t *p)
{
    assert_int_equal(munmap(p, (PAGES - 1) * PAGE), 0);
}

/* Fails when: lent bytes are not copied, or an access to a page that is missing, or that may not be
 * written, ends the process or is not reported. */
static void test_lent(void **state)
{
    static uint8_t mine[PAGES * PAGE];
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *both = map(PROT_READ | PROT_WRITE), *readable = map(PROT_READ);
        forbidden = i;
        memset(mine, 7, sizeof mine);
        assert_true(wf_lent_write(both + 5, mine, PAGE + 100));
        memset(mine, 0, sizeof mine);
        assert_true(wf_lent_read(mine, both + 4, PAGE + 102));
        assert_true(!mine[0] && mine[1] == 7 && mine[PAGE + 100] == 7 && !mine[PAGE + 101]);
        errno = 0;
        assert_false(wf_lent_read(mine, both + PAGE, 2 * PAGE));
        assert_int_equal(errno, EFAULT);
        errno = 0;
        assert_false(wf_lent_write(both + PAGE, mine, PAGE + 1));
        assert_int_equal(errno, EFAULT);
        assert_true(wf_lent_read(mine, readable, 2 * PAGE));
        errno = 0;
        assert_false(wf_lent_write(readable, mine, 1));
        assert_int_equal(errno, EFAULT);
        assert_int_equal(wf_foreign_is_allowed(), !forbidden);
        assert_int_equal(wf_foreign_read(mine, both, PAGE), !forbidden);
        unmap(both);
        unmap(readable);
    }
    forbidden = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lent)};
    return cmocka_run_group_tests_name("lent", tests, NULL, NULL);
}
