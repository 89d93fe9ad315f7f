/* SPDX-License-Identifier: BSD-3-Clause */
/* Hash tables of the matcher: a key (source, masked tag) leads to a queue of the nodes that have
 * it, in order. Queues and links are blocks of one cache line. A table that cannot grow gets longer
 * chains. Blocks and tables are allocated only as their numbers grow. */
#ifndef WF_CORE_MATCH_TABLE_H
#define WF_CORE_MATCH_TABLE_H

#include <assert.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "base/rand.h"
#include "core/match.h"

#define WF_MATCH_FIRST_BUCKETS 16 /* in the table itself */

struct wf_match_table {
    struct wf_match_queue **buckets;
    size_t mask;   /* number of buckets - 1 */
    size_t queues; /* none of them is empty */
    size_t grow_at;
    struct wf_match_queue *first[WF_MATCH_FIRST_BUCKETS];
};

/* The nodes of one key, in order. One cache line. */
struct wf_match_queue {
    struct wf_match_queue *next, **back; /* in the bucket; the pointer to this */
    const void *source;
    uint64_t tag; /* masked */
    uint64_t hash;
    struct wf_match_table *table;
    struct wf_list nodes;
};

static_assert(sizeof(struct wf_match_queue) <= WF_CACHE_LINE, "a queue is one line");

/* A message's node in one class. */
struct wf_match_link {
    struct wf_match_node node;
    struct wf_match_msg *msg;
    struct wf_match_link *next; /* of the same message */
};

union wf_match_block {
    struct wf_match_queue queue;
    struct wf_match_link link;
    union wf_match_block *next; /* free */
};

/* The blocks of a matcher, and the state that its tables share. */
struct wf_match_pool {
    union wf_match_block *free;
    size_t used; /* blocks */
    struct wf_match_chunk *chunks;
    uint64_t steps;        /* wf_match_steps */
    uint64_t seed, factor; /* of hashes; factor is odd */
};

/* [size] rounded up to cache lines, aligned and zeroed; null: no memory. */
void *wf_match_lines(size_t size);

/* Null: no memory. */
union wf_match_block *wf_match_block_new(struct wf_match_pool *p);
void wf_match_block_free(struct wf_match_pool *p, union wf_match_block *b);
void wf_match_pool_fini(struct wf_match_pool *p);

/* With the seed nobody can choose tags that share a bucket. */
static inline uint64_t wf_match_hash(const struct wf_match_pool *p, const void *source,
                                     uint64_t tag)
{
    uint64_t state = (tag ^ p->seed) + (uintptr_t)source * p->factor;
    return wf_rand(&state);
}

void wf_match_table_init(struct wf_match_table *t);
void wf_match_table_fini(struct wf_match_table *t);

static inline struct wf_match_queue *wf_match_table_find(struct wf_match_pool *p,
                                                         const struct wf_match_table *t,
                                                         uint64_t hash, const void *source,
                                                         uint64_t tag)
{
    struct wf_match_queue *q = t->buckets[hash & t->mask];
    uint64_t steps = 1;
    for (; q && (q->tag != tag || q->source != source); q = q->next)
        steps++;
    p->steps += steps;
    return q;
}

/* Append [node] to the queue of its key. False: no memory, nothing changed. */
bool wf_match_table_put(struct wf_match_pool *p, struct wf_match_table *t, const void *source,
                        uint64_t tag, struct wf_match_node *node);
/* The queue is empty. */
void wf_match_queue_free(struct wf_match_pool *p, struct wf_match_queue *q);

/* Take [node] out of its queue. */
static inline void wf_match_table_take(struct wf_match_pool *p, struct wf_match_node *node)
{
    struct wf_match_queue *q = node->queue;
    wf_list_remove(&node->item);
    node->queue = NULL;
    if (wf_list_empty(&q->nodes))
        wf_match_queue_free(p, q);
}

#endif
