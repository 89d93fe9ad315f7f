/* SPDX-License-Identifier: BSD-3-Clause */
/* The registrations of a weft_node (weft/node.h), by the rules of the kernel module rv: entries may
 * overlap and contain each other, an entry serves every range within it that asks for the same
 * access, and each change is counted. That is why it is not a cache of mem/cache, whose entries
 * contain none of each other, and which counts less.
 *
 *   entry   a registered range of whole pages
 *   use     from wf_rv_get to wf_rv_put
 *   idle    of no use; kept for the next one, the least recently used first to go
 *   stale   its memory changed while it was used: it serves no further use, and goes after the last
 *
 * A registration is never stale when wf_rv_get returns it. Changes of memory come from the monitor
 * (mem/cache/monitor.h); cache.h there lists the four cases to look at. One lock covers an entry's
 * registration and its place here: no log is applied while an entry is registered. Memory that
 * changed is deregistered at the next call, not before.
 *
 * A change that is under way concerns only wf_rv_get, which waits for its end, at most 1 ms, with
 * the lock free. The other functions apply what is in the log: an entry that a later change makes
 * stale is found by the next wf_rv_get.
 *
 * The lock is held while the device registers. No function is called by an allocator, or by the
 * thread that reads changes. */
#ifndef WF_TRANSPORT_NODE_RV_CACHE_H
#define WF_TRANSPORT_NODE_RV_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/node.h>

struct wf_rv_cache;
struct wf_monitor;
struct wf_budget;

struct wf_rv_ops {
    void *owner;
    /* Register whole pages. [access]: enum weft_node_access.
     * Returns  OK | ELIMIT (no more can be registered) | another failure */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, unsigned access, void **handle);
    void (*dereg)(void *owner, void *handle);
};

struct wf_rv_params {
    struct wf_rv_ops ops;
    struct wf_monitor *monitor;
    struct wf_budget *budget; /* NULL: nothing is charged */
    uint64_t max_bytes;       /* of all entries */
};

/* A use. */
struct wf_rv_use {
    uint64_t id;     /* of its entry, never 0 */
    void *handle;    /* from reg */
    uint64_t offset; /* of the first byte within the entry */
    bool is_hit;
};

enum weft_status wf_rv_open(const struct wf_rv_params *params, struct wf_rv_cache **out);
/* Deregister all entries, used ones too, and free the cache. */
void wf_rv_close(struct wf_rv_cache *c);

/* Statuses: weft_node_mr_open. */
enum weft_status wf_rv_get(struct wf_rv_cache *c, const void *addr, size_t len, unsigned access,
                           struct wf_rv_use *out);
/* One more use of entry [id], which is used and contains the range; *at is the range's offset in
 * it. It counts as no hit. Returns OK | EINVAL */
enum weft_status wf_rv_hold(struct wf_rv_cache *c, uint64_t id, const void *addr, size_t len,
                            unsigned access, void **handle, uint64_t *at);
/* End a use of entry [id], by a range within it. Returns OK | EINVAL */
enum weft_status wf_rv_put(struct wf_rv_cache *c, uint64_t id, const void *addr, size_t len,
                           unsigned access);

/* weft_node_evict and its kin. */
enum weft_status wf_rv_evict(struct wf_rv_cache *c, const void *addr, size_t len, unsigned access,
                             struct weft_node_evicted *out);
void wf_rv_evict_range(struct wf_rv_cache *c, const void *addr, size_t len,
                       struct weft_node_evicted *out);
enum weft_status wf_rv_evict_amount(struct wf_rv_cache *c, uint64_t bytes, uint64_t count,
                                    struct weft_node_evicted *out);
void wf_rv_count(struct wf_rv_cache *c, struct weft_node_cache_counts *out);

#endif
