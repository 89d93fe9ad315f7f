/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_BASE_UTIL_H
#define WF_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>

#define wf_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define WF_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define WF_MIN(a, b) ((a) < (b) ? (a) : (b))
#define WF_MAX(a, b) ((a) > (b) ? (a) : (b))

/* [align] is a power of two. */
static inline size_t wf_align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/* Returns the least power of two that is at least [n]. [n] is at most 2^63. */
static inline uint64_t wf_power_of_two(uint64_t n)
{
    uint64_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* A doubly linked list. The head and the items have the same type. */
struct wf_list {
    struct wf_list *next, *prev;
};

static inline void wf_list_init(struct wf_list *l)
{
    l->next = l->prev = l;
}

static inline int wf_list_empty(const struct wf_list *l)
{
    return l->next == l;
}

static inline void wf_list_append(struct wf_list *head, struct wf_list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void wf_list_prepend(struct wf_list *head, struct wf_list *item)
{
    wf_list_append(head->next, item);
}

static inline void wf_list_remove(struct wf_list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    wf_list_init(item);
}

/* Remove and return the first item. Returns NULL if the list is empty. */
static inline struct wf_list *wf_list_pop(struct wf_list *head)
{
    struct wf_list *item = head->next;
    if (item == head)
        return NULL;
    wf_list_remove(item);
    return item;
}

/* Move all items of [from] to [to] in their order. [to] need not be initialized. Used before a
 * walk that may append to [from]: the walk visits the moved items only, and the next walk visits
 * the appended items. */
static inline void wf_list_take(struct wf_list *to, struct wf_list *from)
{
    wf_list_init(to);
    if (wf_list_empty(from))
        return;
    *to = *from;
    to->next->prev = to->prev->next = to;
    wf_list_init(from);
}

#define wf_list_each(it, head) for (struct wf_list *it = (head)->next; it != (head); it = it->next)
#define wf_list_each_safe(it, nx, head)                                                            \
    for (struct wf_list *it = (head)->next, *nx = it->next; it != (head); it = nx, nx = it->next)

/* Copy [n] bytes, of which there are few. The copies have fixed sizes, because a call of memcpy(3)
 * with a variable length takes longer. */
static inline void wf_copy_small(void *dst, const void *src, size_t n)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    if (n == 8) {
        __builtin_memcpy(d, s, 8);
    } else if (n >= 16) {
        size_t i = 0;
        for (; i + 16 <= n; i += 16)
            __builtin_memcpy(d + i, s + i, 16);
        __builtin_memcpy(d + n - 16, s + n - 16, 16);
    } else if (n >= 8) {
        __builtin_memcpy(d, s, 8);
        __builtin_memcpy(d + n - 8, s + n - 8, 8);
    } else if (n >= 4) {
        __builtin_memcpy(d, s, 4);
        __builtin_memcpy(d + n - 4, s + n - 4, 4);
    } else if (n) {
        d[0] = s[0];
        d[n / 2] = s[n / 2];
        d[n - 1] = s[n - 1];
    }
}

#endif
