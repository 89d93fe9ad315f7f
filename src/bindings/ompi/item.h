/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of messages and accesses that have begun. */
#ifndef WBTL_ITEM_H
#define WBTL_ITEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Something that has begun and will have a callback. It is in the queue of its peer until Weft has
 * it, then in the list of what has ended. */
struct wbtl_item {
    struct wbtl_item *next;
    struct mca_btl_base_endpoint_t *peer;
    int status; /* OPAL_SUCCESS or OPAL_ERR_, for the callback */
    enum wbtl_kind { WBTL_MESSAGE, WBTL_ACCESS } kind;
};

struct wbtl_list {
    struct wbtl_item *_Atomic first; /* read without the lock as a hint; else under it */
    struct wbtl_item *last;
};

/* Append to [list]. The caller holds the lock. */
static inline void wbtl_append(struct wbtl_list *list, struct wbtl_item *item)
{
    item->next = NULL;
    if (atomic_load_explicit(&list->first, memory_order_relaxed))
        list->last->next = item;
    else
        atomic_store_explicit(&list->first, item, memory_order_relaxed);
    list->last = item;
}

/* Remove the first item, or return NULL. The caller holds the lock. */
static inline struct wbtl_item *wbtl_remove(struct wbtl_list *list)
{
    struct wbtl_item *item = atomic_load_explicit(&list->first, memory_order_relaxed);
    if (item)
        atomic_store_explicit(&list->first, item->next, memory_order_relaxed);
    return item;
}

static inline bool wbtl_is_empty(const struct wbtl_list *list)
{
    return !atomic_load_explicit(&list->first, memory_order_relaxed);
}

/* Take all items: [list] is empty afterwards. Returns the first, or NULL; *last is the last one.
 * The caller holds the lock. */
static inline struct wbtl_item *wbtl_take_all(struct wbtl_list *list, struct wbtl_item **last)
{
    struct wbtl_item *first = atomic_load_explicit(&list->first, memory_order_relaxed);
    *last = list->last;
    atomic_store_explicit(&list->first, NULL, memory_order_relaxed);
    return first;
}

#endif
