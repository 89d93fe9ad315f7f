/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of NAMED regions (mem.h), by key. */
#ifndef WF_MEM_REGION_KEY_H
#define WF_MEM_REGION_KEY_H

#include "mem/mem.h"

/* Returns OK | ENOMEM | ENOKEY (in use) */
WF_MEM_UNDER_LOCK enum weft_status wf_region_key_add(struct wf_mem *mem, struct wf_region *r,
                                                     unsigned bits);
WF_MEM_UNDER_LOCK void wf_region_key_remove(struct wf_mem *mem, struct wf_region *r);
/* The region for which peers send [sent], its key XORed with its authorization. Null: none. */
WF_MEM_UNDER_LOCK struct wf_region *wf_region_key_find(struct wf_mem *mem, uint64_t sent);

#endif
