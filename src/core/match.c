/* SPDX-License-Identifier: BSD-3-Clause */
/* One list holds all receives in the order of posting, another all messages in the order of
 * arrival. A search looks at the oldest entry first. If that entry does not match, a list of at
 * most FEW entries is searched linearly. For a longer list the search makes hash tables, which are
 * used until the list is empty, or its oldest receive matches again and again.
 *
 * A class is a mask together with one bit: do its receives give a source, or accept any source? A
 * table of a class maps a key (the source if it is given, tag & mask) to a queue of the entries
 * with that key, in order. A receive is only in the table of its own class. A message can match
 * receives of any class. So the search for a message's receive looks into each class that has
 * receives, and takes the oldest of the receives found. The search for a receive's message needs
 * all messages in the table of the receive's class. So the first search in a class puts all
 * messages into that table (it indexes them). Messages that arrive later are added. At most INDEXES
 * classes index messages. In any other class the search for a message is linear.
 *
 * When the oldest receive was the right one for twice as many messages in a row as there are
 * receives, all receives are taken out of their tables: then the short ways are open again.
 *
 * If there is no memory to put a receive into its table, all receives are taken out of their
 * tables, too. If there is no memory to put a message into the table of a class, that class stops
 * indexing messages. The tables are made again when the list has twice as many entries. */
#include "core/match.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "core/match_table.h"

#define FEW 8 /* up to this length a list is searched as fast as a table (measured) */
/* limit of the classes that index messages; each needs 64 or 128 bytes per message */
#define INDEXES 16
#define IDLE_CLASSES 32 /* empty classes are freed only if there are more classes than this */

/* Marks functions that work on tables. If they were inlined, searches that need no table would have
 * to save more registers. */
#define OFF_PATH __attribute__((noinline))

struct wf_match_class {
    struct wf_list item; /* m->classes */
    struct wf_list busy; /* item of m->busy while the class has receives */
    uint64_t mask;
    bool any;     /* true: for receives that accept any source */
    bool indexed; /* all messages are in msgs */
    struct wf_match_table recvs, msgs;
};

struct wf_match {
    struct wf_match_front front;
    unsigned nindexes;
    uint64_t orders;
    /* How many searches in a row the oldest receive matched, while the receives are in tables. */
    uint64_t in_order;
    struct wf_list busy;
    struct wf_list classes; /* the last used one first */
    unsigned nclasses;
    struct wf_match_pool pool;
    struct wf_match_class *indexes[INDEXES];
};

/* ---- classes ---- */

static inline struct wf_match_class *class_at(struct wf_list *item)
{
    return wf_container_of(item, struct wf_match_class, item);
}

static inline bool class_is(const struct wf_match_class *c, uint64_t mask, bool any)
{
    return c->mask == mask && c->any == any;
}

static struct wf_match_class *class_new(struct wf_match *m, uint64_t mask, bool any)
{
    struct wf_match_class *c = wf_lines_new(sizeof *c);
    if (!c)
        return NULL;
    c->mask = mask;
    c->any = any;
    wf_list_init(&c->busy);
    wf_match_table_init(&c->recvs);
    wf_match_table_init(&c->msgs);
    wf_list_append(m->classes.next, &c->item); /* becomes the first of the list */
    m->nclasses++;
    return c;
}

static void class_free(struct wf_match *m, struct wf_match_class *c)
{
    wf_list_remove(&c->item);
    m->nclasses--;
    wf_match_table_fini(&c->recvs);
    wf_match_table_fini(&c->msgs);
    free(c);
}

/* Returns the class, a pair of tables, for [mask] and [any]. If there is none, makes it if [make]
 * is true, else returns NULL. Returns NULL also if there is no memory. */
static struct wf_match_class *class_of(struct wf_match *m, uint64_t mask, bool any, bool make)
{
    struct wf_list *it = m->classes.next;
    if (it != &m->classes && class_is(class_at(it), mask, any))
        return class_at(it);
    for (; it != &m->classes; it = it->next) {
        m->pool.steps++;
        if (class_is(class_at(it), mask, any)) {
            wf_list_remove(it);
            wf_list_append(m->classes.next, it);
            return class_at(it);
        }
    }
    return make ? class_new(m, mask, any) : NULL;
}

static void class_rest(struct wf_match *m, struct wf_match_class *c)
{
    if (m->nclasses > IDLE_CLASSES && !c->indexed && wf_list_empty(&c->busy))
        class_free(m, c);
}

/* ---- lists ---- */

static void entries_init(struct wf_match_entries *e)
{
    wf_list_init(&e->all);
    e->index_at = FEW + 1;
}

static inline void entries_add(struct wf_match_entries *e, struct wf_list *item)
{
    if (e->mark == &e->all)
        e->mark = item;
    wf_list_append(&e->all, item);
    e->count++;
}

static inline void entries_remove(struct wf_match_entries *e, struct wf_list *item)
{
    if (e->mark == item)
        e->mark = item->next;
    wf_list_remove(item);
    e->count--;
}

/* Set e->mark to the entry at which to begin a search for an entry of [source]. */
static void entries_mark(struct wf_match_entries *e, const void *source)
{
    if (!e->mark || e->marked != source)
        e->mark = e->all.next;
    e->marked = source;
}

static inline bool recvs_indexed(const struct wf_match *m)
{
    return m->front.flags & WF_MATCH_INDEXED;
}

static inline struct wf_match_recv *recv_at(struct wf_list *item)
{
    return wf_container_of(item, struct wf_match_recv, all);
}

static inline struct wf_match_msg *msg_at(struct wf_list *item)
{
    return wf_container_of(item, struct wf_match_msg, all);
}

/* ---- receives ---- */

OFF_PATH static void recv_unindex(struct wf_match *m, struct wf_match_recv *r)
{
    struct wf_match_table *t = r->node.queue->table;
    wf_match_table_take(&m->pool, &r->node);
    if (!t->queues) {
        struct wf_match_class *c = wf_container_of(t, struct wf_match_class, recvs);
        wf_list_remove(&c->busy);
        class_rest(m, c);
    }
}

OFF_PATH static bool recv_index(struct wf_match *m, struct wf_match_recv *r)
{
    struct wf_match_class *c = class_of(m, r->mask, !r->source, true);
    if (!c)
        return false;
    r->order = m->orders++;
    if (!wf_match_table_put(&m->pool, &c->recvs, r->source, r->tag & r->mask, &r->node)) {
        class_rest(m, c);
        return false;
    }
    if (wf_list_empty(&c->busy))
        wf_list_append(&m->busy, &c->busy);
    return true;
}

OFF_PATH static void recvs_unindex(struct wf_match *m)
{
    wf_list_each(it, &m->front.recvs.all)
    {
        m->pool.steps++;
        if (recv_at(it)->node.queue)
            recv_unindex(m, recv_at(it));
    }
    m->front.flags &= ~(unsigned)WF_MATCH_INDEXED;
}

/* There is no memory to put a receive into its table. */
static void recvs_put_off(struct wf_match *m)
{
    recvs_unindex(m);
    m->front.flags |= WF_MATCH_PUT_OFF;
    m->front.recvs.index_at = 2 * m->front.recvs.count;
}

/* Put all receives into tables. */
OFF_PATH static void recvs_index(struct wf_match *m)
{
    m->front.flags |= WF_MATCH_INDEXED;
    m->in_order = 0;
    wf_list_each(it, &m->front.recvs.all)
    {
        m->pool.steps++;
        if (!recv_index(m, recv_at(it))) {
            recvs_put_off(m);
            return;
        }
    }
    m->front.flags &= ~(unsigned)WF_MATCH_PUT_OFF;
    m->front.recvs.index_at = FEW + 1;
}

void wf_match_recv_add(struct wf_match *m, struct wf_match_recv *r)
{
    r->node.queue = NULL;
    entries_add(&m->front.recvs, &r->all);
    if (recvs_indexed(m) && !recv_index(m, r))
        recvs_put_off(m);
}

void wf_match_recv_remove(struct wf_match *m, struct wf_match_recv *r)
{
    entries_remove(&m->front.recvs, &r->all);
    if (r->node.queue)
        recv_unindex(m, r);
    if (!m->front.recvs.count) {
        m->front.flags &= ~(unsigned)(WF_MATCH_INDEXED | WF_MATCH_PUT_OFF);
        m->front.recvs.index_at = FEW + 1;
    }
}

static struct wf_match_recv *recv_search(struct wf_match *m, const void *source, uint64_t tag)
{
    wf_list_each(it, &m->front.recvs.all)
    {
        struct wf_match_recv *r = recv_at(it);
        m->pool.steps++;
        if (wf_match_is_for(r, source, tag))
            return r;
    }
    return NULL;
}

/* Returns the oldest receive in the table of [c] that matches [source] and [tag], if it is older
 * than [best]. Returns [best] otherwise. */
static inline struct wf_match_recv *class_recv(struct wf_match *m, const struct wf_match_class *c,
                                               const void *source, uint64_t tag,
                                               struct wf_match_recv *best)
{
    struct wf_match_queue *q;
    struct wf_match_recv *r;
    source = c->any ? NULL : source;
    tag &= c->mask;
    q = wf_match_table_find(&m->pool, &c->recvs, wf_match_hash(&m->pool, source, tag), source, tag);
    if (!q)
        return best;
    r = wf_container_of(q->nodes.next, struct wf_match_recv, node.item);
    return !best || r->order < best->order ? r : best;
}

struct wf_match_recv *wf_match_recv_find(struct wf_match *m, const void *source, uint64_t tag)
{
    struct wf_match_recv *best = NULL;
    if (!m->front.recvs.count)
        return NULL;
    /* The receive posted first wins, so the oldest receive is the result if it matches. As long as
     * messages arrive in the order of their receives, no table is needed. */
    if (wf_match_is_for(recv_at(m->front.recvs.all.next), source, tag)) {
        m->pool.steps++;
        if (recvs_indexed(m) && ++m->in_order > 2 * m->front.recvs.count)
            recvs_unindex(m);
        return recv_at(m->front.recvs.all.next);
    }
    m->in_order = 0;
    if (!recvs_indexed(m) && m->front.recvs.count >= m->front.recvs.index_at)
        recvs_index(m);
    if (!recvs_indexed(m))
        return recv_search(m, source, tag);
    wf_list_each(it, &m->busy)
    {
        best = class_recv(m, wf_container_of(it, struct wf_match_class, busy), source, tag, best);
    }
    return best;
}

struct wf_match_recv *wf_match_recv_any(struct wf_match *m, const void *source)
{
    struct wf_match_entries *e = &m->front.recvs;
    m->front.flags |= WF_MATCH_MARKED;
    for (entries_mark(e, source); e->mark != &e->all; e->mark = e->mark->next) {
        m->pool.steps++;
        if (!source || recv_at(e->mark)->source == source)
            return recv_at(e->mark);
    }
    /* The search has ended, so the next one may begin at the first entry. */
    e->mark = NULL;
    m->front.flags &= ~(unsigned)WF_MATCH_MARKED;
    return NULL;
}

/* ---- messages ---- */

OFF_PATH static bool link_add(struct wf_match *m, struct wf_match_class *c,
                              struct wf_match_msg *msg)
{
    union wf_match_block *b = wf_match_block_new(&m->pool);
    if (!b)
        return false;
    b->link.msg = msg;
    if (!wf_match_table_put(&m->pool, &c->msgs, c->any ? NULL : msg->source, msg->tag & c->mask,
                            &b->link.node)) {
        wf_match_block_free(&m->pool, b);
        return false;
    }
    b->link.next = msg->links;
    msg->links = &b->link;
    return true;
}

/* Remove *at, a message's entry in one table, from its queue and from the list of the message's
 * entries, into which [at] points. Free the entry. */
OFF_PATH static void link_remove(struct wf_match *m, struct wf_match_link **at)
{
    struct wf_match_link *link = *at;
    *at = link->next;
    wf_match_table_take(&m->pool, &link->node);
    wf_match_block_free(&m->pool, (union wf_match_block *)link);
}

static void link_remove_of(struct wf_match *m, const struct wf_match_class *c,
                           struct wf_match_msg *msg)
{
    for (struct wf_match_link **at = &msg->links; *at; at = &(*at)->next) {
        m->pool.steps++;
        if ((*at)->node.queue->table == &c->msgs) {
            link_remove(m, at);
            return;
        }
    }
}

/* Stop entering messages into the table of the class m->indexes[i]. The table is empty. */
OFF_PATH static void index_forget(struct wf_match *m, unsigned i)
{
    struct wf_match_class *c = m->indexes[i];
    m->indexes[i] = m->indexes[--m->nindexes];
    c->indexed = false;
    class_rest(m, c);
}

/* Called if there is no memory to enter a message into the table of the class m->indexes[i].
 * Empties that table, and stops entering messages into it. */
OFF_PATH static void index_give_up(struct wf_match *m, unsigned i)
{
    wf_list_each(it, &m->front.msgs.all)
    {
        link_remove_of(m, m->indexes[i], msg_at(it));
    }
    m->front.msgs.index_at = 2 * m->front.msgs.count;
    index_forget(m, i);
}

static bool index_make(struct wf_match *m, struct wf_match_class *c)
{
    m->indexes[m->nindexes++] = c;
    c->indexed = true;
    wf_list_each(it, &m->front.msgs.all)
    {
        m->pool.steps++;
        if (!link_add(m, c, msg_at(it))) {
            index_give_up(m, m->nindexes - 1);
            return false;
        }
    }
    return true;
}

/* Returns the class for [mask] and [any] if its table holds all messages, or can be filled with
 * them now. Returns NULL otherwise. */
static struct wf_match_class *index_of(struct wf_match *m, uint64_t mask, bool any)
{
    bool may = m->nindexes < INDEXES && m->front.msgs.count >= m->front.msgs.index_at;
    struct wf_match_class *c = class_of(m, mask, any, may);
    if (!c || c->indexed)
        return c;
    return may && index_make(m, c) ? c : NULL;
}

void wf_match_msg_add(struct wf_match *m, struct wf_match_msg *msg)
{
    msg->links = NULL;
    m->front.flags |= WF_MATCH_KEPT;
    entries_add(&m->front.msgs, &msg->all);
    for (unsigned i = m->nindexes; i--;) {
        m->pool.steps++;
        if (!link_add(m, m->indexes[i], msg))
            index_give_up(m, i);
    }
}

void wf_match_msg_remove(struct wf_match *m, struct wf_match_msg *msg)
{
    entries_remove(&m->front.msgs, &msg->all);
    while (msg->links)
        link_remove(m, &msg->links);
    if (m->front.msgs.count)
        return;
    m->front.flags &= ~(unsigned)WF_MATCH_KEPT;
    m->front.msgs.index_at = FEW + 1;
    while (m->nindexes)
        index_forget(m, m->nindexes - 1);
}

static inline bool msg_matches(const struct wf_match_msg *msg, const void *source, uint64_t tag,
                               uint64_t mask)
{
    return !((tag ^ msg->tag) & mask) && (!source || source == msg->source);
}

static struct wf_match_msg *msg_search(struct wf_match *m, const void *source, uint64_t tag,
                                       uint64_t mask)
{
    wf_list_each(it, &m->front.msgs.all)
    {
        m->pool.steps++;
        if (msg_matches(msg_at(it), source, tag, mask))
            return msg_at(it);
    }
    return NULL;
}

/* Returns the first message that matches, or NULL. The caller has already tested the oldest
 * message. */
OFF_PATH static struct wf_match_msg *msg_find_later(struct wf_match *m, const void *source,
                                                    uint64_t tag, uint64_t mask)
{
    struct wf_match_class *c = m->front.msgs.count > FEW ? index_of(m, mask, !source) : NULL;
    struct wf_match_queue *q;
    if (!c)
        return msg_search(m, source, tag, mask);
    tag &= mask;
    q = wf_match_table_find(&m->pool, &c->msgs, wf_match_hash(&m->pool, source, tag), source, tag);
    return q ? wf_container_of(q->nodes.next, struct wf_match_link, node.item)->msg : NULL;
}

struct wf_match_msg *wf_match_msg_find(struct wf_match *m, const void *source, uint64_t tag,
                                       uint64_t mask)
{
    if (!m->front.msgs.count)
        return NULL;
    m->pool.steps++;
    if (msg_matches(msg_at(m->front.msgs.all.next), source, tag, mask)) /* the oldest of all */
        return msg_at(m->front.msgs.all.next);
    return msg_find_later(m, source, tag, mask);
}

struct wf_match_msg *wf_match_msg_any(struct wf_match *m, const void *source)
{
    struct wf_match_entries *e = &m->front.msgs;
    for (entries_mark(e, source); e->mark != &e->all; e->mark = e->mark->next) {
        m->pool.steps++;
        if (!source || msg_at(e->mark)->source == source)
            return msg_at(e->mark);
    }
    return NULL;
}

/* ---- the matcher ---- */

/* Returns a random seed for the hash. The seed has to be unknown to the peers that choose tags; it
 * protects no secret. Never waits for the kernel to collect randomness. */
static uint64_t seed_new(const struct wf_match *m)
{
    struct timespec t;
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == sizeof seed)
        return seed;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_nsec ^ ((uint64_t)t.tv_sec << 30) ^ (uintptr_t)m;
}

struct wf_match *wf_match_new(void)
{
    struct wf_match *m = wf_lines_new(sizeof *m);
    uint64_t state;
    if (!m)
        return NULL;
    state = seed_new(m);
    m->pool.seed = wf_rand(&state);
    m->pool.factor = wf_rand(&state) | 1;
    entries_init(&m->front.recvs);
    entries_init(&m->front.msgs);
    wf_list_init(&m->busy);
    wf_list_init(&m->classes);
    return m;
}

void wf_match_free(struct wf_match *m)
{
    if (!m)
        return;
    wf_list_each_safe(it, next, &m->classes)
    {
        class_free(m, class_at(it));
    }
    wf_match_pool_fini(&m->pool);
    free(m);
}

uint64_t wf_match_steps(const struct wf_match *m)
{
    return m->pool.steps;
}
