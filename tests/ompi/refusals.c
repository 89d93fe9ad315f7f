/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts how often a list of Open MPI's is exhausted, and reports the number to stderr at the end.
 * A program with this file is exported to the libraries that it loads, so this
 * opal_free_list_grow_st is in place of Open MPI's. Of the lists that are used here, only the
 * component's have an end. */
#define _GNU_SOURCE
#include <opal_config.h>

#include <opal/class/opal_free_list.h>
#include <opal/constants.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_uint refusals;

int opal_free_list_grow_st(opal_free_list_t *list, size_t count, opal_free_list_item_t **item)
{
    static __typeof__(&opal_free_list_grow_st) real;
    int rc;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "opal_free_list_grow_st");
    rc = real ? real(list, count, item) : OPAL_ERROR;
    refusals += rc != OPAL_SUCCESS;
    return rc;
}

__attribute__((destructor)) static void report(void)
{
    if (refusals)
        fprintf(stderr, "%u descriptors were refused\n", refusals);
}
