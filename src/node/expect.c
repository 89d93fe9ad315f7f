/* SPDX-License-Identifier: BSD-3-Clause */
/* What each flow is expected to send next: a cache of WF_NODE_WAYS rows for each hash value. A row
 * may be evicted once all that it took is acknowledged; the flow then begins again. */
#include "node/mover.h"

#include <stdlib.h>

enum weft_status wf_node_expect_open(struct node_mover *m, uint32_t rows)
{
    m->rows = wf_lines_new(rows * sizeof *m->rows);
    m->row_mask = rows / WF_NODE_WAYS - 1;
    m->dirty = m->dirty_last = WF_NODE_NIL;
    return m->rows ? WEFT_OK : WEFT_ENOMEM;
}

static struct node_row *set_of(struct node_mover *m, uint64_t tag, uint32_t port)
{
    uint32_t hash = (uint32_t)((tag ^ (uint64_t)port << 40) * 0x9e3779b97f4a7c15u >> 32);
    return &m->rows[(size_t)(hash & m->row_mask) * WF_NODE_WAYS];
}

struct node_row *wf_node_row_find(struct node_mover *m, uint64_t tag, uint32_t port, bool is_reply)
{
    struct node_row *set = set_of(m, tag, port);
    for (unsigned i = 0; i < WF_NODE_WAYS; i++)
        if (set[i].tag == tag && set[i].port == port && set[i].is_reply == is_reply) {
            set[i].used = ++m->clock;
            return &set[i];
        }
    return NULL;
}

static bool is_evictable(const struct node_row *row)
{
    return !row->tag || (!row->dirty && !row->ended && row->acked == row->expect);
}

struct node_row *wf_node_row_new(struct node_mover *m, uint64_t tag, uint32_t port, bool is_reply)
{
    struct node_row *set = set_of(m, tag, port), *best = NULL;
    for (unsigned i = 0; i < WF_NODE_WAYS; i++)
        if (is_evictable(&set[i]) &&
            (!best || !set[i].tag || (best->tag && m->clock - set[i].used > m->clock - best->used)))
            best = &set[i];
    if (best)
        *best = (struct node_row){
            .tag = tag, .port = (uint16_t)port, .is_reply = is_reply, .used = ++m->clock};
    return best;
}

void wf_node_row_dirty(struct node_mover *m, struct node_row *row)
{
    uint32_t i = (uint32_t)(row - m->rows);
    if (row->dirty)
        return;
    row->dirty = true;
    row->next_dirty = WF_NODE_NIL;
    if (m->dirty == WF_NODE_NIL)
        m->dirty = i;
    else
        m->rows[m->dirty_last].next_dirty = i;
    m->dirty_last = i;
    m->ndirty++;
}

/* Take the rows off the list of dirty ones for which [goes] is true. */
static void dirty_remove(struct node_mover *m, bool (*goes)(const struct node_row *, uint32_t),
                         uint32_t arg)
{
    uint32_t i = m->dirty;
    m->dirty = m->dirty_last = WF_NODE_NIL;
    m->ndirty = 0;
    while (i != WF_NODE_NIL) {
        struct node_row *row = &m->rows[i];
        i = row->next_dirty;
        row->dirty = false;
        if (goes(row, arg))
            row->acked = row->expect; /* its sender begins again, and is answered then */
        else
            wf_node_row_dirty(m, row);
    }
}

static bool is_of_port(const struct node_row *row, uint32_t port)
{
    return row->port == port;
}

static bool is_of_word(const struct node_row *row, uint32_t word)
{
    return row->word == word;
}

void wf_node_rows_forget(struct node_mover *m, uint32_t port)
{
    dirty_remove(m, is_of_port, port);
    for (size_t i = 0; i < (m->row_mask + (size_t)1) * WF_NODE_WAYS; i++)
        if (m->rows[i].tag && m->rows[i].port == port)
            m->rows[i] = (struct node_row){0};
}

void wf_node_rows_cut(struct node_mover *m, uint16_t word)
{
    dirty_remove(m, is_of_word, word);
}
