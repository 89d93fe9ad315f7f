/* SPDX-License-Identifier: BSD-3-Clause */
/* fork(2): how a forked child is told from its parent, and what is done around a fork.
 *
 * A child may use nothing of its parent's. Each object of Weft's keeps the fork generation of the
 * process that opened it, and each public call compares.
 *
 * Objects that own descriptors or mappings, and locks that a child needs, have handlers: prepare
 * runs before the fork, parent and child after it, in that process, all on the thread that forks.
 * prepare runs from the highest level down, within a level the last item first; parent and child
 * run in the opposite order. So prepare takes locks in their order: a higher layer's before a
 * lower one's. Items of one level take no lock of each other's.
 *
 * Order of locks: fork.c's own, which is held from the first prepare to the last parent or child;
 * those that handlers take; that of the fork generation. */
#ifndef WF_BASE_FORK_H
#define WF_BASE_FORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* ---- the fork generation ---- */

/* Nonzero in a process that called wf_fork_gen_begin, 0 in a forked child (MADV_WIPEONFORK, Linux
 * 4.14, which also sees clone(2) without handlers; and a handler), another value once that child
 * calls wf_fork_gen_begin itself. One load, no system call. */
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
    bool stays; /* a module's item, joined in children, too; else a child forgets it */
    void (*prepare)(struct wf_fork_item *item); /* null: nothing to do */
    void (*parent)(struct wf_fork_item *item);
    void (*child)(struct wf_fork_item *item);
};

/* Within the object; zeroed before it joins. */
struct wf_fork_item {
    struct wf_list item;
    const struct wf_fork_ops *ops;
};

/* Run the handlers of [ops] around each fork from now on; an item that has joined stays as it is.
 * The caller holds no lock that handlers take. Not from a constructor: an allocator registers its
 * own handlers first, so that they run inside Weft's, whose locks are held while memory is
 * allocated. */
void wf_fork_join(struct wf_fork_item *item, const struct wf_fork_ops *ops);
/* No more. Waits for a fork that is under way. */
void wf_fork_leave(struct wf_fork_item *item);

#endif
