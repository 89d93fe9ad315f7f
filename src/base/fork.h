/* SPDX-License-Identifier: BSD-3-Clause */
/* fork(2): how Weft recognizes a forked child, and the handlers that run around a fork.
 *
 * A child may not use its parent's Weft objects. The fork generation is a number that differs
 * between parent and child. Each object stores the fork generation of the process that opened the
 * object. Each public call compares the stored number with that of the calling process.
 *
 * An object has handlers if it owns descriptors or mappings, or has a lock that the child needs.
 * The handler prepare runs before the fork. After the fork, the handler parent runs in the parent,
 * and the handler child in the child. All three run on the thread that forks.
 *
 * The prepare handlers run from the highest level down and, within a level, from the item that
 * joined last. The other handlers run in the opposite order. So prepare handlers take the locks of
 * a higher layer before those of a lower layer, which is their lock order. Two handlers of one
 * level must not take the same lock.
 *
 * Lock order: first the lock of fork.c, held from the first prepare to the last parent or child;
 * then the locks that handlers take; last gen_lock of fork.c. */
#ifndef WF_BASE_FORK_H
#define WF_BASE_FORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* ---- the fork generation ---- */

/* The current fork generation. Its value is 0 until the process calls wf_fork_gen_begin. In a
 * forked child the value is 0 again until the child calls wf_fork_gen_begin, which sets a new
 * value. Both a fork handler and MADV_WIPEONFORK (Linux 4.14) clear the word; the latter also
 * works for clone(2), which runs no handlers. Reading the word takes one load and no system
 * call. */
extern const uint64_t *wf_fork_gen_word __attribute__((visibility("hidden")));

/* If the word is 0 in this process, set it to a new value. Returns the fork generation, or 0 if no
 * memory is available. Any thread may call. */
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
    /* True for the item of a module: the item stays joined in a child, so its handlers run when the
     * child forks. False for the item of an object: the child removes the item. */
    bool stays;
    void (*prepare)(struct wf_fork_item *item); /* null: nothing to do */
    void (*parent)(struct wf_fork_item *item);
    void (*child)(struct wf_fork_item *item);
};

/* Embedded in the object that has handlers. All zero before wf_fork_join. */
struct wf_fork_item {
    struct wf_list item;
    const struct wf_fork_ops *ops;
};

/* Run the handlers of [ops] around each fork from now on. If [item] has joined already, nothing
 * changes. The caller must hold no lock that handlers take.
 * A constructor must not call this function. An allocator registers its own fork handlers, and
 * these must be registered first: handlers registered first run closest to the fork. Weft
 * allocates memory under its locks, so Weft's locks must be taken before the allocator's. */
void wf_fork_join(struct wf_fork_item *item, const struct wf_fork_ops *ops);
/* Stop running the handlers of [item]. If a fork is in progress, wait until it has ended. */
void wf_fork_leave(struct wf_fork_item *item);

#endif
