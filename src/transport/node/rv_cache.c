/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/node/rv_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/util.h"
#include "mem/budget.h"
#include "mem/cache/monitor.h"
#include "mem/cache/taint.h"

#define SETTLE_NS 1000000u /* the longest wait for changes under way (cache/change.c) */
#define NAP_NS 20000

WF_LOCK_CLASS(rv_cache_lock); /* struct wf_rv_cache.lock */

struct entry {
    struct wf_list idle; /* in cache->idle if uses == 0 */
    uint64_t id;
    uintptr_t start, end;
    unsigned access;
    bool is_stale;
    bool is_new; /* miss is not over: it serves none but its caller yet */
    uint64_t uses;
    void *handle;
};

struct wf_rv_cache {
    struct wf_rv_params params;
    uintptr_t page;
    pthread_mutex_t lock;
    /* Sorted by start; of equal ones, the newer is behind. */
    struct entry **entries WF_UNDER(rv_cache_lock);
    size_t count, room WF_UNDER(rv_cache_lock);
    uint64_t longest WF_UNDER(rv_cache_lock); /* bytes: no entry was ever longer */
    struct wf_list idle WF_UNDER(rv_cache_lock);
    uint64_t ids WF_UNDER(rv_cache_lock);
    uint64_t next_change WF_UNDER(rv_cache_lock);    /* in the monitor's log */
    uint64_t drops WF_UNDER(rv_cache_lock);          /* of the monitor, when the log was applied */
    bool is_lost WF_UNDER(rv_cache_lock);            /* the monitor reports nothing any more */
    struct wf_taints taints WF_UNDER(rv_cache_lock); /* an entry here is stale when it is made */
    struct weft_node_cache_counts counts WF_UNDER(rv_cache_lock);
};

#define LOCKED WF_REQUIRES(rv_cache_lock)

static WF_ACQUIRES(rv_cache_lock) void cache_lock(struct wf_rv_cache *c)
{
    pthread_mutex_lock(&c->lock);
}

static WF_RELEASES(rv_cache_lock) void cache_unlock(struct wf_rv_cache *c)
{
    pthread_mutex_unlock(&c->lock);
}

static uint64_t bytes_of(const struct entry *e)
{
    return e->end - e->start;
}

/* ---- the list of entries ---- */

/* Returns the place of the first entry that starts at [start] or behind. */
static LOCKED size_t place_of(const struct wf_rv_cache *c, uintptr_t start)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (c->entries[mid]->start < start)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns the place of the first entry that can reach over [start]. */
static LOCKED size_t place_reaching(const struct wf_rv_cache *c, uintptr_t start)
{
    return place_of(c, start > c->longest ? start - c->longest : 0);
}

static LOCKED bool has_room(struct wf_rv_cache *c)
{
    size_t room = c->room ? 2 * c->room : 64;
    struct entry **more;
    if (c->count < c->room)
        return true;
    more = realloc(c->entries, room * sizeof *more);
    if (!more)
        return false;
    c->entries = more;
    c->room = room;
    return true;
}

static LOCKED void insert(struct wf_rv_cache *c, struct entry *e)
{
    struct weft_node_cache_counts *n = &c->counts;
    size_t at = place_of(c, e->start + 1);
    memmove(c->entries + at + 1, c->entries + at, (c->count - at) * sizeof *c->entries);
    c->entries[at] = e;
    n->count = ++c->count;
    n->bytes += bytes_of(e);
    n->most_count = WF_MAX(n->most_count, n->count);
    n->most_bytes = WF_MAX(n->most_bytes, n->bytes);
    c->longest = WF_MAX(c->longest, bytes_of(e));
}

static LOCKED void drop(struct wf_rv_cache *c, struct entry *e)
{
    size_t at = place_of(c, e->start);
    while (c->entries[at] != e)
        at++;
    memmove(c->entries + at, c->entries + at + 1, (c->count - at - 1) * sizeof *c->entries);
    c->counts.count = --c->count;
    c->counts.bytes -= bytes_of(e);
    c->params.ops.dereg(c->params.ops.owner, e->handle);
    if (c->params.budget)
        wf_budget_give(c->params.budget, bytes_of(e));
    free(e);
}

static LOCKED void drop_idle(struct wf_rv_cache *c, struct entry *e, uint64_t *counter)
{
    wf_list_remove(&e->idle);
    drop(c, e);
    ++*counter;
}

/* ---- changes of memory ---- */

static LOCKED void changed(struct wf_rv_cache *c, uintptr_t start, uintptr_t end)
{
    size_t at = place_reaching(c, start);
    while (at < c->count && c->entries[at]->start < end) {
        struct entry *e = c->entries[at];
        if (e->end > start && !e->uses) {
            drop_idle(c, e, &c->counts.removed);
            continue; /* the next one is at this place now */
        }
        e->is_stale |= e->end > start;
        at++;
    }
}

/* What the log has lost may be anything; pages that were dropped may be any. */
static LOCKED void log_lost(struct wf_rv_cache *c)
{
    struct wf_monitor *m = c->params.monitor;
    changed(c, 0, UINTPTR_MAX);
    c->next_change = wf_load_acquire(&m->logged);
    if (wf_load_acquire(&m->drops) != c->drops)
        wf_taint_add(&c->taints, 0, UINTPTR_MAX, c->next_change - 1);
}

static LOCKED void change_apply(struct wf_rv_cache *c, const struct wf_changed *change,
                                uint64_t number)
{
    changed(c, change->start, change->end);
    if (change->change == WF_CHANGE_GONE)
        wf_taint_cut(&c->taints, change->start, change->end, number);
    else
        wf_taint_add(&c->taints, change->start, change->end, number);
}

/* Apply what the monitor has logged. Returns false if its reader is adding to the log. */
static LOCKED bool log_apply(struct wf_rv_cache *c)
{
    struct wf_monitor *m = c->params.monitor;
    uint64_t seqcount = wf_load_acquire(&m->seqcount); /* "seqcount" */
    struct wf_changed change;
    uint64_t drops;
    int n;
    if (seqcount & 1)
        return false;
    while (m->log && (n = wf_monitor_read(m, c->next_change, &change, 1)))
        if (n > 0)
            change_apply(c, &change, c->next_change++);
        else
            log_lost(c);
    drops = wf_load_acquire(&m->drops);
    if (wf_load_acquire(&m->seqcount) != seqcount) /* "seqcount" */
        return false;
    c->drops = drops;
    return true;
}

static LOCKED void monitor_lost(struct wf_rv_cache *c)
{
    if (c->is_lost)
        return;
    wf_warn("registrations are not kept any more: the descriptor of %s was closed, by the program "
            "perhaps",
            c->params.monitor->ops->name);
    c->is_lost = true;
    changed(c, 0, UINTPTR_MAX);
}

/* Apply the changes that began before the call. Returns BUSY if some are still under way, and LOST
 * if none will be reported. */
static LOCKED enum wf_probe look(struct wf_rv_cache *c)
{
    struct wf_monitor *m = c->params.monitor;
    uint64_t before = wf_load_acquire(&m->logged);
    enum wf_probe probe = c->is_lost ? WF_PROBE_LOST : m->ops->probe(m);
    if (probe == WF_PROBE_LOST) {
        monitor_lost(c);
    } else if (probe == WF_PROBE_CLEAN) {
        if (!log_apply(c))
            return WF_PROBE_BUSY;
        wf_taint_probed(&c->taints, before, c->next_change);
    }
    return probe;
}

/* Apply all changes that began before the call. The lock is free while some are under way. Returns
 * false if some are after SETTLE_NS: then no entry can be trusted. */
static LOCKED bool settle(struct wf_rv_cache *c)
{
    uint64_t until = wf_now_ns() + SETTLE_NS;
    enum wf_probe probe;
    while ((probe = look(c)) == WF_PROBE_BUSY && wf_now_ns() < until) {
        cache_unlock(c);
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        cache_lock(c);
    }
    return probe == WF_PROBE_CLEAN;
}

/* ---- limits ---- */

static LOCKED bool budget_take(struct wf_rv_cache *c, uint64_t bytes)
{
    return !c->params.budget || wf_budget_take(c->params.budget, bytes);
}

/* Drop idle entries, the least recently used first, until [bytes] and [count] have gone. */
static LOCKED struct weft_node_evicted give_up(struct wf_rv_cache *c, uint64_t bytes,
                                               uint64_t count)
{
    struct weft_node_evicted gone = {0};
    while (!wf_list_empty(&c->idle) && (gone.bytes < bytes || gone.count < count)) {
        struct entry *e = wf_container_of(c->idle.next, struct entry, idle);
        gone.bytes += bytes_of(e);
        gone.count++;
        drop_idle(c, e, &c->counts.evicted);
    }
    return gone;
}

/* Make room for [bytes]. Gives nothing up if that would not be enough. */
static LOCKED bool make_room(struct wf_rv_cache *c, uint64_t bytes)
{
    const struct weft_node_cache_counts *n = &c->counts;
    uint64_t idle = n->bytes - n->used_bytes, max = c->params.max_bytes;
    if (bytes > max || n->bytes - idle > max - bytes)
        return false;
    if (n->bytes > max - bytes)
        (void)give_up(c, n->bytes - (max - bytes), 0);
    return true;
}

/* ---- getting and putting ---- */

static LOCKED void use(struct wf_rv_cache *c, struct entry *e)
{
    struct weft_node_cache_counts *n = &c->counts;
    if (!e->uses) {
        n->used++;
        n->used_bytes += bytes_of(e);
        n->most_used = WF_MAX(n->most_used, n->used);
        n->most_used_bytes = WF_MAX(n->most_used_bytes, n->used_bytes);
    }
    e->uses++;
    n->most_uses = WF_MAX(n->most_uses, e->uses);
}

/* Without reports of changes, only a use of the whole entry keeps all of its memory as it is. */
static LOCKED bool serves(const struct wf_rv_cache *c, const struct entry *e, uintptr_t start,
                          uintptr_t end, unsigned access)
{
    if (e->is_stale || e->is_new || e->access != access || e->start > start || e->end < end)
        return false;
    return c->params.monitor->ops->keeps_idle || (e->start == start && e->end == end);
}

static LOCKED struct entry *find(struct wf_rv_cache *c, uintptr_t start, uintptr_t end,
                                 unsigned access)
{
    for (size_t at = place_reaching(c, start); at < c->count && c->entries[at]->start <= start;
         at++)
        if (serves(c, c->entries[at], start, end, access))
            return c->entries[at];
    return NULL;
}

static LOCKED enum weft_status register_pages(struct wf_rv_cache *c, struct entry *e)
{
    const struct wf_rv_ops *ops = &c->params.ops;
    uint64_t len = bytes_of(e);
    enum weft_status status;
    do {
        status = budget_take(c, len) ? WEFT_OK : WEFT_ELIMIT;
        if (status != WEFT_OK)
            continue;
        status = ops->reg(ops->owner, (void *)e->start, len, e->access, &e->handle);
        if (status != WEFT_OK && c->params.budget)
            wf_budget_give(c->params.budget, len);
    } while (status == WEFT_ELIMIT && give_up(c, len, 1).count);
    return status;
}

/* No log is applied between [watch] and settle, so a change of the memory meanwhile finds the entry
 * in the list, and makes it stale. */
static LOCKED enum weft_status miss(struct wf_rv_cache *c, struct entry *e)
{
    struct wf_monitor *m = c->params.monitor;
    struct wf_span span;
    enum weft_status status;
    bool is_watched = !c->is_lost && m->ops->watch(m, e->start, e->end, &span) == WEFT_OK;
    status = register_pages(c, e);
    if (status != WEFT_OK)
        return status;
    e->id = ++c->ids;
    e->is_new = true;
    insert(c, e);
    use(c, e);
    c->counts.misses++;
    if (!is_watched || !settle(c) || wf_is_tainted(&c->taints, e->start, e->end))
        e->is_stale = true;
    e->is_new = false;
    return WEFT_OK;
}

static LOCKED enum weft_status get_new(struct wf_rv_cache *c, uintptr_t start, uintptr_t end,
                                       unsigned access, struct entry **out)
{
    struct entry *e;
    enum weft_status status;
    if (!make_room(c, end - start)) {
        c->counts.full++;
        return WEFT_ELIMIT;
    }
    e = has_room(c) ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return WEFT_ENOMEM;
    *e = (struct entry){.start = start, .end = end, .access = access};
    status = miss(c, e);
    if (status == WEFT_OK) {
        *out = e;
        return status;
    }
    free(e);
    if (status == WEFT_ELIMIT)
        c->counts.full++;
    else
        c->counts.failed++;
    return status;
}

/* Round [addr, addr + len) to whole pages. Returns false if it is empty, or wraps. */
static bool pages_of(const struct wf_rv_cache *c, const void *addr, size_t len, uintptr_t *start,
                     uintptr_t *end)
{
    uintptr_t from = (uintptr_t)addr;
    *start = from & ~(c->page - 1);
    *end = (from + len + c->page - 1) & ~(c->page - 1);
    return len && from + len > from && *end > from;
}

enum weft_status wf_rv_get(struct wf_rv_cache *c, const void *addr, size_t len, unsigned access,
                           struct wf_rv_use *out)
{
    enum weft_status status = WEFT_OK;
    struct entry *e = NULL;
    uintptr_t start, end;
    if (!pages_of(c, addr, len, &start, &end))
        return WEFT_EINVAL;
    cache_lock(c);
    if (settle(c))
        e = find(c, start, end, access);
    if (e) {
        if (!e->uses)
            wf_list_remove(&e->idle);
        use(c, e);
        c->counts.hits++;
        out->is_hit = true;
    } else {
        status = get_new(c, start, end, access, &e);
        out->is_hit = false;
    }
    if (status == WEFT_OK) {
        out->id = e->id;
        out->handle = e->handle;
        out->offset = (uintptr_t)addr - e->start;
    }
    cache_unlock(c);
    return status;
}

static LOCKED struct entry *used_entry(struct wf_rv_cache *c, uint64_t id, uintptr_t start,
                                       uintptr_t end, unsigned access)
{
    for (size_t at = place_reaching(c, start); at < c->count && c->entries[at]->start <= start;
         at++) {
        struct entry *e = c->entries[at];
        if (e->id == id)
            return e->uses && e->end >= end && e->access == access ? e : NULL;
    }
    return NULL;
}

enum weft_status wf_rv_hold(struct wf_rv_cache *c, uint64_t id, const void *addr, size_t len,
                            unsigned access, void **handle, uint64_t *at)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    struct entry *e;
    cache_lock(c);
    e = end > start ? used_entry(c, id, start, end, access) : NULL;
    if (e) {
        use(c, e);
        *handle = e->handle;
        *at = start - e->start;
    }
    cache_unlock(c);
    return e ? WEFT_OK : WEFT_EINVAL;
}

static LOCKED void put(struct wf_rv_cache *c, struct entry *e)
{
    if (--e->uses)
        return;
    c->counts.used--;
    c->counts.used_bytes -= bytes_of(e);
    if (e->is_stale || !c->params.monitor->ops->keeps_idle) {
        drop(c, e);
        c->counts.evicted++;
        return;
    }
    wf_list_append(&c->idle, &e->idle);
}

enum weft_status wf_rv_put(struct wf_rv_cache *c, uint64_t id, const void *addr, size_t len,
                           unsigned access)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    struct entry *e;
    cache_lock(c);
    (void)look(c);
    e = end > start ? used_entry(c, id, start, end, access) : NULL;
    if (e)
        put(c, e);
    cache_unlock(c);
    return e ? WEFT_OK : WEFT_EINVAL;
}

/* ---- evicting, counting ---- */

enum weft_status wf_rv_evict(struct wf_rv_cache *c, const void *addr, size_t len, unsigned access,
                             struct weft_node_evicted *out)
{
    struct weft_node_evicted gone = {0};
    uintptr_t start, end;
    if (!pages_of(c, addr, len, &start, &end))
        return WEFT_EINVAL;
    cache_lock(c);
    (void)look(c);
    for (size_t at = place_of(c, start); at < c->count && c->entries[at]->start == start; at++) {
        struct entry *e = c->entries[at];
        if (e->uses || e->end != end || e->access != access)
            continue;
        gone = (struct weft_node_evicted){bytes_of(e), 1};
        drop_idle(c, e, &c->counts.evicted);
        break;
    }
    cache_unlock(c);
    if (!gone.count)
        return WEFT_EKEY;
    *out = gone;
    return WEFT_OK;
}

void wf_rv_evict_range(struct wf_rv_cache *c, const void *addr, size_t len,
                       struct weft_node_evicted *out)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    size_t at;
    *out = (struct weft_node_evicted){0};
    cache_lock(c);
    (void)look(c);
    at = place_reaching(c, start);
    while (at < c->count && c->entries[at]->start < end) {
        struct entry *e = c->entries[at];
        if (e->end <= start || e->uses) {
            at++;
            continue;
        }
        out->bytes += bytes_of(e);
        out->count++;
        drop_idle(c, e, &c->counts.evicted);
    }
    cache_unlock(c);
}

enum weft_status wf_rv_evict_amount(struct wf_rv_cache *c, uint64_t bytes, uint64_t count,
                                    struct weft_node_evicted *out)
{
    struct weft_node_evicted gone;
    cache_lock(c);
    (void)look(c);
    gone = give_up(c, bytes, bytes || count ? count : 1);
    cache_unlock(c);
    if (!gone.count)
        return WEFT_EKEY;
    *out = gone;
    return WEFT_OK;
}

void wf_rv_count(struct wf_rv_cache *c, struct weft_node_cache_counts *out)
{
    cache_lock(c);
    (void)look(c);
    *out = c->counts;
    cache_unlock(c);
}

/* ---- opening and closing ---- */

WF_UNCHECKED enum weft_status wf_rv_open(const struct wf_rv_params *params,
                                         struct wf_rv_cache **out)
{
    struct wf_rv_cache *c = calloc(1, sizeof *c);
    if (!c)
        return WEFT_ENOMEM;
    c->params = *params;
    c->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    c->counts.max_bytes = params->max_bytes;
    c->next_change = wf_load_acquire(&params->monitor->logged);
    c->drops = wf_load_acquire(&params->monitor->drops);
    wf_list_init(&c->idle);
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return WEFT_OK;
}

WF_UNCHECKED void wf_rv_close(struct wf_rv_cache *c)
{
    while (c->count)
        drop(c, c->entries[c->count - 1]);
    free(c->entries);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
