/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_BASE_ARRAY_H
#define WF_BASE_ARRAY_H

#include <stdint.h>
#include <stdlib.h>

/* Make room for one more item in the array [items]. *room is how many items of [size] bytes the
 * array can hold; [count] of them are in use. Returns the array, which may have moved. Returns
 * NULL if no memory is available; [items] and *room are then unchanged. */
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
