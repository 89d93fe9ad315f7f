/* SPDX-License-Identifier: BSD-3-Clause */
/* The matcher decides which receive gets a tagged message. It holds the posted receives of an
 * endpoint and the messages that no receive has matched, each in order. It compares source, tag and
 * mask. It knows nothing of endpoints, peers or payloads: the caller embeds struct wf_match_recv
 * and struct wf_match_msg in its own objects, and a source is any pointer but NULL. One thread at a
 * time uses a matcher.
 *
 * Two receives are in the same class if they have the same mask, and both accept any source or both
 * accept only a given source. The time of an operation grows with the number of classes in use, and
 * does not depend on the number of receives and messages. match.c explains why. */
#ifndef WF_CORE_MATCH_H
#define WF_CORE_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct wf_match;

/* An entry's place in the queue of the entries with the same key. Only the matcher uses it. */
struct wf_match_node {
    struct wf_list item;
    struct wf_match_queue *queue; /* null if the entry is in no queue */
};

/* A posted receive. The caller sets [source] (NULL: any source), [tag] and [mask]. [node] must be
 * all zero before the first use. The matcher sets the rest. */
struct wf_match_recv {
    const void *source;
    uint64_t tag, mask;
    struct wf_list all; /* in the order of posting */
    uint64_t order;     /* set while the receive is in a table */
    struct wf_match_node node;
};

/* A message that no receive has matched. The caller sets [source] and [tag]; the matcher sets the
 * rest. */
struct wf_match_msg {
    const void *source; /* never null */
    uint64_t tag;
    struct wf_list all;          /* in the order of arrival */
    struct wf_match_link *links; /* entries of this message, one in each table that holds it */
};

/* All receives, or all messages, of a matcher. */
struct wf_match_entries {
    struct wf_list all;
    size_t count;
    size_t index_at; /* tables are made when there are this many entries */
    /* No entry before [mark] in the list has the source [marked], for which wf_match_recv_any or
     * wf_match_msg_any searched last. If [mark] is null, nothing is known. Additions keep this
     * true, because they are made at the end of the list. */
    struct wf_list *mark;
    const void *marked;
};

/* How a matcher begins. The inline functions below read it. */
struct wf_match_front {
    struct wf_match_entries recvs, msgs;
    unsigned flags; /* enum wf_match_flag */
};

/* What keeps a matcher from its short ways. */
enum wf_match_flag {
    WF_MATCH_KEPT = 1,    /* there are messages */
    WF_MATCH_INDEXED = 2, /* all receives are in tables; otherwise none is */
    WF_MATCH_MARKED = 4,  /* recvs.mark may be set */
    /* There was no memory to put the receives into tables. So this is not tried again before there
     * are more receives, or none. */
    WF_MATCH_PUT_OFF = 8,
};

static inline struct wf_match_front *wf_match_front(struct wf_match *m)
{
    return (struct wf_match_front *)(void *)m;
}

/* Returns NULL if there is no memory. */
struct wf_match *wf_match_new(void);
/* Free the matcher. The caller frees the entries that are still in it. */
void wf_match_free(struct wf_match *m);

/* Add and remove entries. None of these calls fails: without memory for tables, later searches take
 * linear time. Only an entry that is in the matcher may be removed. */
void wf_match_recv_add(struct wf_match *m, struct wf_match_recv *r);
void wf_match_recv_remove(struct wf_match *m, struct wf_match_recv *r);
void wf_match_msg_add(struct wf_match *m, struct wf_match_msg *msg);
void wf_match_msg_remove(struct wf_match *m, struct wf_match_msg *msg);

/* Returns the receive posted first that matches a message from [source] with [tag], or NULL. Does
 * not remove the receive. */
struct wf_match_recv *wf_match_recv_find(struct wf_match *m, const void *source, uint64_t tag);
/* Returns the message added first that matches a receive with [source] (NULL: any), [tag] and
 * [mask], or NULL. Does not remove the message. */
struct wf_match_msg *wf_match_msg_find(struct wf_match *m, const void *source, uint64_t tag,
                                       uint64_t mask);

/* ---- short ways, which are inlined ---- */

/* Returns true if there are no messages, and wf_match_recv_push may be called. */
static inline bool wf_match_is_plain(struct wf_match *m)
{
    return !wf_match_front(m)->flags;
}

/* Add [r], as wf_match_recv_add does. */
static inline void wf_match_recv_push(struct wf_match *m, struct wf_match_recv *r)
{
    struct wf_match_entries *e = &wf_match_front(m)->recvs;
    wf_list_append(&e->all, &r->all);
    e->count++;
}

static inline bool wf_match_is_for(const struct wf_match_recv *r, const void *source, uint64_t tag)
{
    return !((tag ^ r->tag) & r->mask) && (!r->source || r->source == source);
}

/* Returns the oldest receive if a message from [source] with [tag] matches it, and
 * wf_match_recv_pop may remove it. Otherwise returns NULL, and wf_match_recv_find has to look. */
static inline struct wf_match_recv *wf_match_recv_first(struct wf_match *m, const void *source,
                                                        uint64_t tag)
{
    struct wf_match_front *f = wf_match_front(m);
    struct wf_match_recv *r = wf_container_of(f->recvs.all.next, struct wf_match_recv, all);
    bool may = f->recvs.count && !(f->flags & ~(unsigned)WF_MATCH_KEPT);
    return may && wf_match_is_for(r, source, tag) ? r : NULL;
}

/* Remove [r], the result of wf_match_recv_first. */
static inline void wf_match_recv_pop(struct wf_match *m, struct wf_match_recv *r)
{
    struct wf_match_entries *e = &wf_match_front(m)->recvs;
    e->all.next = r->all.next;
    r->all.next->prev = &e->all;
    e->count--;
}

/* ---- ends ---- */

/* Returns the first receive or message of [source] (NULL: of any source), or NULL if there is none.
 * Used when a peer is lost or an endpoint closes. Removing all entries of one source one by one
 * takes time linear in the number of all entries. */
struct wf_match_recv *wf_match_recv_any(struct wf_match *m, const void *source);
struct wf_match_msg *wf_match_msg_any(struct wf_match *m, const void *source);

/* Returns how many entries and keys all calls have looked at so far, as a measure of their time. */
uint64_t wf_match_steps(const struct wf_match *m);

#endif
