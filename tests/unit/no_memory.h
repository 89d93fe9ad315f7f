/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations of a whole object that fail while the test wants it (-Wl,--wrap=calloc). */
#ifndef TEST_NO_MEMORY_H
#define TEST_NO_MEMORY_H

#include <stdbool.h>
#include <stdlib.h>

static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory ? NULL : __real_calloc(n, size);
}

#endif
