/* SPDX-License-Identifier: BSD-3-Clause */
/* fork(2): how Weft recognizes a forked child, and the handlers that run around a fork.
 *
 * A child may use no object of its parent's. Each object of Weft's keeps the fork generation of the
 * process that opened it, and each public call compares it.
 *
 * Objects that own descriptors or mappings, and locks that a child needs, have handlers: prepare
 * runs before the fork, parent and child after it, in that process, all on the thread that forks.
 * prepare runs from the highest level down, within a level the last item first; parent and child
 * run in the opposite order. So prepare takes locks in their order: a higher layer's before a lower
 * one's. Handlers of one level take no common lock.
 *
 * Lock order: fork.c's own, which is held from the first prepare to the last parent or child;
 * the locks that handlers take; the lock of the fork generation. */
#ifndef WF_BASE_FORK_H
#define WF_BASE_FORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* ---- the fork generation ---- */

/* The fork generation. Nonzero once the process has called wf_fork_gen_begin. 0 in a forked
 * child, by a handler and by MADV_WIPEONFORK (Linux 4.14), which also covers clone(2), where no
 * handler runs. A new value once the child calls wf_fork_gen_begin itself. One load, no system
 * call. */
extern const uint64_t *wf_fork_gen_word;

/* Make the word valid in this process. Returns its value; 0: no memory. Any thread. */
uint64_t wf_fork_gen_begin(void);

static inline int wf_fork_gen_is(uint64_t fork_gen)
{
    return *(const uint64_t *)wf_fork_gen_word == fork_gen;
}

/* ---- handlers ---- */

enum wf_fork_level { WF_FORK_MEM, WF_FORK_TRANSPORT };

struct wf_fork_item;

struct wf_fork_ops {
    enum wf_fork_level level;
    bool stays; /* a module's item, which stays joined in a child; else a child removes it */
    void (*prepare)(struct wf_fork_item *item); /* null: nothing to do */
    void (*parent)(struct wf_fork_item *item);
    void (*child)(struct wf_fork_item *item);
};

/* Within the object; zeroed before it joins. */
struct wf_fork_item {
    struct wf_list item;
    const struct wf_fork_ops *ops;
};

/* Run the handlers of [ops] around each fork from now on; an item that has joined stays as it
 * is. The caller holds no lock that handlers take. Not from a constructor: an allocator must
 * register its handlers first, so that they run inside Weft's. Weft allocates memory under its
 * locks. */
void wf_fork_join(struct wf_fork_item *item, const struct wf_fork_ops *ops);
/* Stop running the item's handlers. Waits for a fork that is under way. */
void wf_fork_leave(struct wf_fork_item *item);

#endif
