/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_BASE_ARRAY_H
#define WF_BASE_ARRAY_H

#include <stdint.h>
#include <stdlib.h>

/* Make room for one more item in [items], an array with room for *room items of [size] bytes, of
 * which [count] are in use. Returns the array, which may have moved. Null: no memory; [items] is
 * unchanged. */
static inline void *wf_array_grow(void *items, uint32_t count, uint32_t *room, size_t size)
{
    uint32_t more = *room ? 2 * *room : 16;
    if (count < *room)
        return items;
    items = more > count ? realloc(items, more * size) : NULL;
    if (items)
        *room = more;
    return items;
}

#endif
