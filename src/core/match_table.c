/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/match_table.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BLOCKS 63  /* a chunk and its head are 4 KiB */
#define KEEP_BUCKETS 256 /* an array of more buckets is freed when its table becomes empty */

struct wf_match_chunk {
    struct wf_match_chunk *next;
    _Alignas(WF_CACHE_LINE) union wf_match_block blocks[CHUNK_BLOCKS];
};

/* ---- blocks ---- */

static void blocks_free_all(struct wf_match_pool *p, struct wf_match_chunk *c)
{
    for (size_t i = CHUNK_BLOCKS; i--;) {
        c->blocks[i].next = p->free;
        p->free = &c->blocks[i];
    }
}

static bool blocks_add(struct wf_match_pool *p)
{
    struct wf_match_chunk *c = wf_lines_new(sizeof *c);
    if (!c)
        return false;
    c->next = p->chunks;
    p->chunks = c;
    blocks_free_all(p, c);
    return true;
}

union wf_match_block *wf_match_block_new(struct wf_match_pool *p)
{
    union wf_match_block *b;
    if (!p->free && !blocks_add(p))
        return NULL;
    b = p->free;
    p->free = b->next;
    p->used++;
    return b;
}

static void chunks_free(struct wf_match_chunk *c)
{
    for (struct wf_match_chunk *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

/* Called when no block is in use. Frees all chunks of blocks but one. */
static void blocks_trim(struct wf_match_pool *p)
{
    chunks_free(p->chunks->next);
    p->chunks->next = NULL;
    p->free = NULL;
    blocks_free_all(p, p->chunks);
}

void wf_match_block_free(struct wf_match_pool *p, union wf_match_block *b)
{
    b->next = p->free;
    p->free = b;
    if (!--p->used && p->chunks->next)
        blocks_trim(p);
}

void wf_match_pool_fini(struct wf_match_pool *p)
{
    chunks_free(p->chunks);
}

/* ---- tables ---- */

void wf_match_table_init(struct wf_match_table *t)
{
    memset(t, 0, sizeof *t);
    t->buckets = t->first;
    t->mask = WF_MATCH_FIRST_BUCKETS - 1;
    t->grow_at = WF_MATCH_FIRST_BUCKETS;
}

void wf_match_table_fini(struct wf_match_table *t)
{
    if (t->buckets != t->first)
        free(t->buckets);
}

static inline void bucket_push(struct wf_match_table *t, struct wf_match_queue *q)
{
    struct wf_match_queue **at = &t->buckets[q->hash & t->mask];
    q->next = *at;
    q->back = at;
    if (q->next)
        q->next->back = &q->next;
    *at = q;
}

static void table_grow(struct wf_match_pool *p, struct wf_match_table *t)
{
    size_t was = t->mask + 1, n = was;
    struct wf_match_queue **old = t->buckets, **buckets;
    while (n < t->queues)
        n *= 2;
    buckets = wf_lines_new(n * sizeof *buckets);
    t->grow_at = buckets ? n : 2 * t->queues; /* until then chains get longer */
    if (!buckets)
        return;
    t->buckets = buckets;
    t->mask = n - 1;
    for (size_t i = 0; i < was; i++)
        for (struct wf_match_queue *q = old[i], *next; q; q = next) {
            next = q->next;
            bucket_push(t, q);
        }
    p->steps += t->queues;
    if (old != t->first)
        free(old);
}

bool wf_match_table_put(struct wf_match_pool *p, struct wf_match_table *t, const void *source,
                        uint64_t tag, struct wf_match_node *node)
{
    uint64_t hash = wf_match_hash(p, source, tag);
    struct wf_match_queue *q = wf_match_table_find(p, t, hash, source, tag);
    if (!q) {
        union wf_match_block *b = wf_match_block_new(p);
        if (!b)
            return false;
        q = &b->queue;
        q->source = source;
        q->tag = tag;
        q->hash = hash;
        q->table = t;
        wf_list_init(&q->nodes);
        bucket_push(t, q);
        if (++t->queues > t->grow_at)
            table_grow(p, t);
    }
    node->queue = q;
    wf_list_append(&q->nodes, &node->item);
    return true;
}

void wf_match_queue_free(struct wf_match_pool *p, struct wf_match_queue *q)
{
    struct wf_match_table *t = q->table;
    *q->back = q->next;
    if (q->next)
        q->next->back = q->back;
    wf_match_block_free(p, (union wf_match_block *)q);
    if (--t->queues)
        return;
    t->grow_at = t->mask + 1;
    if (t->mask >= KEEP_BUCKETS) {
        wf_match_table_fini(t);
        wf_match_table_init(t);
    }
}
