/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of clients that a service without a NIC accesses itself: regions of their tables, in slabs
 * that they have given. docs/design/node.md "Puts and gets by services without a NIC".
 *
 * A client exposes its own slabs only, whatever it writes into its table: the table is copied
 * before it is checked, and a region is looked for in the slabs of that client. */
#include "node/mover.h"

void wf_node_slab_add(struct node_mover *m, struct node_slab *slab)
{
    if (!slab->id) {
        m->tables[slab->index] = slab;
        return;
    }
    slab->next = m->slabs[slab->index];
    m->slabs[slab->index] = slab;
}

void wf_node_slab_remove(struct node_mover *m, struct node_slab *slab)
{
    struct node_slab **at = &m->slabs[slab->index];
    if (!slab->id) {
        m->tables[slab->index] = NULL;
        return;
    }
    while (*at != slab)
        at = &(*at)->next;
    *at = slab->next;
}

static const struct node_slab *slab_find(const struct node_mover *m, uint32_t index, uint64_t id)
{
    const struct node_slab *slab = m->slabs[index];
    while (slab && slab->id != id)
        slab = slab->next;
    return slab;
}

struct copy {
    uint64_t slab, offset, length;
    uint32_t access;
};

/* Copy the region, if its key is [key] before and after that. */
static bool region_copy(struct wf_node_region *r, uint64_t key, struct copy *out)
{
    if (!key || wf_load_acquire(&r->key) != key) /* "region" */
        return false;
    *out = (struct copy){wf_load_relaxed(&r->slab), wf_load_relaxed(&r->offset),
                         wf_load_relaxed(&r->length), wf_load_relaxed(&r->access)};
    atomic_thread_fence(memory_order_acquire);
    return wf_load_relaxed(&r->key) == key;
}

void *wf_node_region_find(const struct node_mover *m, uint32_t index, uint64_t key, uint64_t at,
                          uint32_t len, unsigned access, enum wf_node_move_end *end)
{
    const struct node_slab *table = m->tables[index], *slab;
    uint64_t slot = (at >> WF_NODE_REGION_BITS) - 1, from = at & (WF_NODE_REGION_MOST - 1);
    struct copy r;
    *end = WF_NODE_MOVE_LOST;
    if (!table)
        return NULL;
    *end = WF_NODE_MOVE_REFUSED;
    if (slot >= WF_NODE_REGIONS ||
        !region_copy(&((struct wf_node_regions *)table->base)->of[slot], key, &r) ||
        (r.access & access) != access || len > r.length || from > r.length - len)
        return NULL;
    slab = r.slab ? slab_find(m, index, r.slab) : NULL;
    if (slab && (r.offset > slab->size || r.length > slab->size - r.offset ||
                 (slab->read_only && access & WEFT_REMOTE_WRITE)))
        return NULL;
    *end = slab ? WF_NODE_DONE : WF_NODE_MOVE_LOST;
    return slab ? (uint8_t *)slab->base + r.offset + from : NULL;
}
