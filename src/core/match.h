/* SPDX-License-Identifier: BSD-3-Clause */
/* The matcher: which receive gets a message. Posted receives and kept messages of one endpoint, in
 * order, by source, tag and mask. It knows nothing of endpoints, peers or payloads: both kinds of
 * entries are embedded in their owners' objects, and a source is any pointer but null. One thread.
 *
 * The cost of an operation does not depend on the number of entries; it grows with the number of
 * different (mask, source given or any) pairs in use. How: match.c. */
#ifndef WF_CORE_MATCH_H
#define WF_CORE_MATCH_H

#include <stdint.h>

#include "base/util.h"

struct wf_match;

/* The matcher's: an entry in the queue of its key. */
struct wf_match_node {
    struct wf_list item;
    struct wf_match_queue *queue; /* null: in none */
};

/* A posted receive. [source] null: any. The rest is the matcher's. */
struct wf_match_recv {
    const void *source;
    uint64_t tag, mask;
    uint64_t order;
    struct wf_list all; /* in the order of posting */
    struct wf_match_node node;
};

/* A message that no receive has matched. The rest is the matcher's. */
struct wf_match_msg {
    const void *source; /* never null */
    uint64_t tag;
    struct wf_list all;          /* in the order of arrival */
    struct wf_match_link *links; /* one per index it is in */
};

/* Null: out of memory. */
struct wf_match *wf_match_new(void);
/* Entries that are still in it are their owners' to free. */
void wf_match_free(struct wf_match *m);

/* None of these fails: without memory, searches become linear. Only an entry of the matcher may be
 * removed. */
void wf_match_recv_add(struct wf_match *m, struct wf_match_recv *r);
void wf_match_recv_remove(struct wf_match *m, struct wf_match_recv *r);
void wf_match_msg_add(struct wf_match *m, struct wf_match_msg *msg);
void wf_match_msg_remove(struct wf_match *m, struct wf_match_msg *msg);

/* The receive posted first that matches a message; null if none. Removes nothing. */
struct wf_match_recv *wf_match_recv_find(struct wf_match *m, const void *source, uint64_t tag);
/* The message added first that matches a receive; null if none. Removes nothing. */
struct wf_match_msg *wf_match_msg_find(struct wf_match *m, const void *source, uint64_t tag,
                                       uint64_t mask);

/* The first entry of [source] (null: of any); null if none. For peers that are lost and endpoints
 * that close: removing all entries of one source, one by one, takes time linear in the number of
 * all entries. */
struct wf_match_recv *wf_match_recv_any(struct wf_match *m, const void *source);
struct wf_match_msg *wf_match_msg_any(struct wf_match *m, const void *source);

/* Entries and keys that all operations have looked at so far: a measure of their time. */
uint64_t wf_match_steps(const struct wf_match *m);

#endif
