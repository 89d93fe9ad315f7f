/* SPDX-License-Identifier: BSD-3-Clause */
/* Slabs (mem.h): memfds that hold the regions in Weft's own memory. */
#ifndef WF_MEM_SLAB_H
#define WF_MEM_SLAB_H

#include "mem/mem.h"

/* Reserve [len] bytes in a slab. Returns the slab and sets *offset. Returns NULL if no slab can be
 * created (logged; errno is set). */
WF_MEM_UNDER_LOCK struct wf_slab *wf_slab_space(struct wf_mem *mem, size_t len, bool read_only,
                                                size_t *offset);
/* Release the space that [r], a region that is being closed, has in its slab. */
WF_MEM_UNDER_LOCK void wf_slab_release(struct wf_mem *mem, const struct wf_region *r);
WF_MEM_UNDER_LOCK void wf_slabs_close(struct wf_mem *mem);
/* Returns whether [len] is at most the memory and swap of this machine. Logs an error if it is
 * not. */
bool wf_slab_can_exist(size_t len);

#endif
