/* SPDX-License-Identifier: BSD-3-Clause */
/* The checking heap. A block comes from malloc(3), has a guard word before and after the caller's
 * bytes, and is in a list.
 *
 *   head (its last word is the first guard) | the caller's bytes | the second guard */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <stdlib.h>
#include <string.h>

#define LIVE UINT64_C(0x57656674206c6976)
#define FREED UINT64_C(0x5765667420667265)
#define BEHIND UINT64_C(0x5765667420656e64)

struct head {
    struct head *next, *prev;
    const char *where; /* of the allocation */
    size_t size;
    uint64_t also_size; /* ~size: checked before the size is used */
    uint64_t guard;     /* next to the caller's bytes */
};
_Static_assert(sizeof(struct head) % _Alignof(max_align_t) == 0, "the caller's bytes are aligned");

#define OVERHEAD (sizeof(struct head) + sizeof(uint64_t))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head list = {.next = &list, .prev = &list}; /* under lock, as all blocks */
static struct head *one = &list; /* the last one that memcheck_one checked */
static gasnett_heapstats_t stats;

static void fail(struct head *h, const char *where, const char *what)
{
    pthread_mutex_unlock(&lock); /* unlock: the message may go to the trace, which allocates */
    gasnett_fatalerror_nopos("heap: %s: %zu bytes at %p, allocated at %s; found at %s", what,
                             h->size, (void *)(h + 1), h->where, where);
}

/* Holds lock. */
static void check(struct head *h, const char *where)
{
    uint64_t behind;
    if (h->guard == FREED) {
        pthread_mutex_unlock(&lock);
        gasnett_fatalerror_nopos("heap: %p is no live block: it was freed; found at %s",
                                 (void *)(h + 1), where);
    }
    if (h->guard != LIVE || h->also_size != ~(uint64_t)h->size) {
        pthread_mutex_unlock(&lock);
        gasnett_fatalerror_nopos(
            "heap: %p is no block of gasnett_debug_malloc, or what is in front "
            "of it was overwritten; found at %s",
            (void *)(h + 1), where);
    }
    if (h->next->prev != h || h->prev->next != h)
        fail(h, where, "what is in front of a block was overwritten");
    memcpy(&behind, (char *)(h + 1) + h->size, sizeof behind);
    if (behind != BEHIND)
        fail(h, where, "written behind the end of a block");
}

static struct head *checked(void *ptr, const char *where)
{
    struct head *h = (struct head *)ptr - 1;
    if ((uintptr_t)ptr % _Alignof(max_align_t)) {
        pthread_mutex_unlock(&lock);
        gasnett_fatalerror_nopos("heap: %p is no block of gasnett_debug_malloc; found at %s", ptr,
                                 where);
    }
    check(h, where);
    return h;
}

void *gasnetw_debug_malloc(size_t sz, const char *where)
{
    const uint64_t behind = BEHIND;
    struct head *h = sz > SIZE_MAX - OVERHEAD ? NULL : malloc(sz + OVERHEAD);
    if (!h)
        gasnett_fatalerror_nopos("heap: no memory for %zu bytes at %s", sz, where);
    *h = (struct head){.where = where, .size = sz, .also_size = ~(uint64_t)sz, .guard = LIVE};
    memcpy((char *)(h + 1) + sz, &behind, sizeof behind);
    pthread_mutex_lock(&lock);
    h->next = &list;
    h->prev = list.prev;
    h->prev->next = h;
    list.prev = h;
    stats.allocated_bytes += sz;
    stats.allocated_objects++;
    stats.live_bytes += sz;
    stats.live_objects++;
    if (stats.live_bytes > stats.live_bytes_max)
        stats.live_bytes_max = stats.live_bytes;
    if (stats.live_objects > stats.live_objects_max)
        stats.live_objects_max = stats.live_objects;
    stats.overhead_bytes += OVERHEAD;
    pthread_mutex_unlock(&lock);
    return h + 1;
}

void gasnetw_debug_free(void *ptr, const char *where)
{
    struct head *h;
    if (!ptr)
        return;
    pthread_mutex_lock(&lock);
    h = checked(ptr, where);
    if (one == h)
        one = h->prev;
    h->prev->next = h->next;
    h->next->prev = h->prev;
    h->guard = FREED;
    stats.freed_bytes += h->size;
    stats.freed_objects++;
    stats.live_bytes -= h->size;
    stats.live_objects--;
    stats.overhead_bytes -= OVERHEAD;
    pthread_mutex_unlock(&lock);
    /* Keeps the compiler from removing the store of FREED, which nothing reads. */
    __asm__ __volatile__("" ::"r"(h) : "memory");
    free(h);
}

void *gasnetw_debug_calloc(size_t n, size_t sz, const char *where)
{
    size_t all;
    void *ptr;
    if (__builtin_mul_overflow(n, sz, &all))
        gasnett_fatalerror_nopos("heap: no memory for %zu times %zu bytes at %s", n, sz, where);
    ptr = gasnetw_debug_malloc(all, where);
    return memset(ptr, 0, all);
}

void *gasnetw_debug_realloc(void *ptr, size_t sz, const char *where)
{
    void *moved;
    size_t had;
    if (!ptr)
        return gasnetw_debug_malloc(sz, where);
    pthread_mutex_lock(&lock);
    had = checked(ptr, where)->size;
    pthread_mutex_unlock(&lock);
    moved = gasnetw_debug_malloc(sz, where);
    memcpy(moved, ptr, had < sz ? had : sz);
    gasnetw_debug_free(ptr, where);
    return moved;
}

char *gasnetw_debug_strndup(const char *s, size_t n, const char *where)
{
    size_t len = strnlen(s, n);
    char *copy = gasnetw_debug_malloc(len + 1, where);
    memcpy(copy, s, len);
    copy[len] = 0;
    return copy;
}

void gasnetw_debug_memcheck(void *ptr, const char *where)
{
    pthread_mutex_lock(&lock);
    (void)checked(ptr, where);
    pthread_mutex_unlock(&lock);
}

void gasnetw_debug_memcheck_one(const char *where)
{
    pthread_mutex_lock(&lock);
    one = one->next == &list ? list.next : one->next;
    if (one != &list)
        check(one, where);
    pthread_mutex_unlock(&lock);
}

void gasnetw_debug_memcheck_all(const char *where)
{
    pthread_mutex_lock(&lock);
    for (struct head *h = list.next; h != &list; h = h->next)
        check(h, where);
    pthread_mutex_unlock(&lock);
}

int gasnett_getheapstats(gasnett_heapstats_t *pstat)
{
    pthread_mutex_lock(&lock);
    *pstat = stats;
    pthread_mutex_unlock(&lock);
    return 0;
}
