/* SPDX-License-Identifier: BSD-3-Clause */
/* Open MPI's lists of free items, with their order for ThreadSanitizer. */
#ifndef WBTL_FREE_LIST_H
#define WBTL_FREE_LIST_H

#include <opal/class/opal_free_list.h>
#include <opal/prefetch.h>

/* Open MPI's lists pass items from thread to thread by fences, which ThreadSanitizer does not know.
 * These name what the fences order: what was written to an item before it went into its list is
 * seen by the thread that takes it. */
#if defined(__SANITIZE_THREAD__) /* gcc */
#define WBTL_TSAN
#elif defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define WBTL_TSAN
#endif
#endif
#ifdef WBTL_TSAN
#include <sanitizer/tsan_interface.h>
#define WBTL_LISTED(item) __tsan_release(item)
#define WBTL_TAKEN(item) __tsan_acquire(item)
#else
#define WBTL_LISTED(item) ((void)(item))
#define WBTL_TAKEN(item) ((void)(item))
#endif

/* Returns an item of [list], or NULL. */
static inline opal_free_list_item_t *wbtl_list_get(opal_free_list_t *list)
{
    opal_free_list_item_t *item = opal_free_list_get(list);
    if (OPAL_LIKELY(item != NULL))
        WBTL_TAKEN(item);
    return item;
}

static inline void wbtl_list_return(opal_free_list_t *list, opal_free_list_item_t *item)
{
    WBTL_LISTED(item);
    opal_free_list_return(list, item);
}

#endif
