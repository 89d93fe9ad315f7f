/* SPDX-License-Identifier: BSD-3-Clause */
/* An allocator of contiguous blocks of an area of shared memory, freed in any order: first fit over
 * a bitmap in private memory. Only its owner calls it. */
#ifndef WF_NODE_BLOCKS_H
#define WF_NODE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define WF_NODE_NO_BLOCK UINT32_MAX

struct wf_node_blocks {
    uint64_t *used; /* a bit for each block; those behind the last block are set */
    uint32_t count, nfree;
    uint32_t first; /* all blocks before the word of this one are in use */
};

/* Returns false if there is no memory. [count] is above 0. */
bool wf_node_blocks_init(struct wf_node_blocks *b, uint32_t count);
void wf_node_blocks_fini(struct wf_node_blocks *b);
/* Returns the first of [n] blocks, n > 0, or WF_NODE_NO_BLOCK. */
uint32_t wf_node_blocks_take(struct wf_node_blocks *b, uint32_t n);
void wf_node_blocks_give(struct wf_node_blocks *b, uint32_t at, uint32_t n);

#endif
