/* SPDX-License-Identifier: BSD-3-Clause */
/* Slabs (mem.h): where regions of Weft's own memory have their bytes. */
#ifndef WF_MEM_SLAB_H
#define WF_MEM_SLAB_H

#include "mem/mem.h"

/* Space for [len] bytes in a slab, at *offset. Null: there is none (logged; errno). */
WF_MEM_UNDER_LOCK struct wf_slab *wf_slab_space(struct wf_mem *mem, size_t len, bool read_only,
                                                size_t *offset);
/* The space of [r], which closes. */
WF_MEM_UNDER_LOCK void wf_slab_release(struct wf_mem *mem, const struct wf_region *r);
WF_MEM_UNDER_LOCK void wf_slabs_close(struct wf_mem *mem);
/* Are [len] bytes no more than memory and swap of this machine? Else it is logged. */
bool wf_slab_can_exist(size_t len);

#endif
