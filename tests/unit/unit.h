/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEST_UNIT_H
#define TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <weft/weft.h>

#include "contract/support.h"

#include <dirent.h>

#define OK(call) assert_int_equal((call), WEFT_OK)

static inline int test_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

#endif
