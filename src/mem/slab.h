/* SPDX-License-Identifier: BSD-3-Clause */
/* Slabs (mem.h): the memory of Weft's own regions. */
#ifndef WF_MEM_SLAB_H
#define WF_MEM_SLAB_H

#include "mem/mem.h"

/* Reserve [len] bytes in a slab, at *offset. Null: no slab can be created (logged; errno). */
WF_MEM_UNDER_LOCK struct wf_slab *wf_slab_space(struct wf_mem *mem, size_t len, bool read_only,
                                                size_t *offset);
/* Release the space of [r], which is being closed. */
WF_MEM_UNDER_LOCK void wf_slab_release(struct wf_mem *mem, const struct wf_region *r);
WF_MEM_UNDER_LOCK void wf_slabs_close(struct wf_mem *mem);
/* Is [len] at most this machine's memory and swap? Logs if it is not. */
bool wf_slab_can_exist(size_t len);

#endif
