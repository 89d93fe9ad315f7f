/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the NAMED regions (mem.h), which finds a region by its key. */
#ifndef WF_MEM_REGION_KEY_H
#define WF_MEM_REGION_KEY_H

#include "mem/mem.h"

/* Add [r] to the table. If the key of [r] is WF_MEM_NO_KEY, [r] first gets a free key of at most
 * [bits] bits. Returns OK | ENOMEM | ENOKEY (the key is in use, or no key is free) */
WF_MEM_UNDER_LOCK enum weft_status wf_region_key_add(struct wf_mem *mem, struct wf_region *r,
                                                     unsigned bits);
WF_MEM_UNDER_LOCK void wf_region_key_remove(struct wf_mem *mem, struct wf_region *r);
/* Returns the region for which peers send the key [sent], or NULL if there is none. Peers send the
 * region's key XORed with the region's auth. */
WF_MEM_UNDER_LOCK struct wf_region *wf_region_key_find(struct wf_mem *mem, uint64_t sent);

#endif
