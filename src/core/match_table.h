/* SPDX-License-Identifier: BSD-3-Clause */
/* Hash tables of the matcher (match.h). A table maps a key (source, masked tag) to a queue of the
 * entries with that key, in order. A queue is a block of one cache line, and so is the link that
 * puts a message into a queue. If a table cannot grow for lack of memory, its chains get longer.
 * Memory is allocated only when the number of blocks or buckets in use grows. */
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
    size_t queues; /* number of queues, none of which is empty */
    size_t grow_at;
    struct wf_match_queue *first[WF_MATCH_FIRST_BUCKETS];
};

/* The queue of the entries with one key, in order. Its size is one cache line. */
struct wf_match_queue {
    /* [next] is the next queue in the bucket, [back] points to the pointer to this queue */
    struct wf_match_queue *next, **back;
    const void *source;
    uint64_t tag; /* masked */
    uint64_t hash;
    struct wf_match_table *table;
    struct wf_list nodes;
};

static_assert(sizeof(struct wf_match_queue) <= WF_CACHE_LINE, "a queue is one line");

/* A message's entry in the table of one class. A class stands for the receives that have the same
 * mask and that either all name a source or all accept any source. */
struct wf_match_link {
    struct wf_match_node node;
    struct wf_match_msg *msg;
    struct wf_match_link *next; /* next entry of the same message */
};

union wf_match_block {
    struct wf_match_queue queue;
    struct wf_match_link link;
    union wf_match_block *next; /* next free block */
};

/* The blocks of one matcher, and the state that all its tables share. */
struct wf_match_pool {
    union wf_match_block *free;
    size_t used; /* number of blocks in use */
    struct wf_match_chunk *chunks;
    uint64_t steps;        /* wf_match_steps */
    uint64_t seed, factor; /* of hashes; factor is odd */
};

/* Returns NULL if there is no memory. */
union wf_match_block *wf_match_block_new(struct wf_match_pool *p);
void wf_match_block_free(struct wf_match_pool *p, union wf_match_block *b);
void wf_match_pool_fini(struct wf_match_pool *p);

/* Hash a key. The random seed prevents a peer from choosing tags that all fall into one bucket. */
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

/* Append [node] to the queue of the key ([source], [tag]). Returns false if there is no memory;
 * then nothing has changed. */
bool wf_match_table_put(struct wf_match_pool *p, struct wf_match_table *t, const void *source,
                        uint64_t tag, struct wf_match_node *node);
/* Free a queue that is empty. */
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
