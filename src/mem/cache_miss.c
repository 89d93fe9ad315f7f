/* SPDX-License-Identifier: BSD-3-Clause */
/* Registering what is not in the cache, and how it enters. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/budget.h"
#include "mem/cache_own.h"
#include "mem/pages.h"

#define EVICT_BATCH 16 /* at least, when the registrar has no more */
#define TRIES 12       /* of registering, with twice as many given up each time */

enum miss {
    EXACT, /* to be cached */
    WIDE,  /* to be cached, more than is needed */
    ALONE  /* not cached */
};

/* ---- verifying ---- */

#define LOOK 64 /* pages at a time */

/* While they are registered, before anybody finds the entry. */
static void pages_note(struct wf_cache *c, struct wf_cache_entry *e)
{
    size_t count = (e->range.end - e->range.start) / c->page;
    e->pages = malloc(count * sizeof *e->pages);
    if (e->pages && wf_pages_look(c->pages_fd, e->range.start, count, e->pages)) {
        free(e->pages);
        e->pages = NULL;
    }
}

static void stale(const struct wf_cache_entry *e, uintptr_t at, uint64_t was, uint64_t is)
{
    wf_error(
        "WEFT_DEBUG=verify: the cached registration of [%#lx, %#lx) is stale: the page at %#lx "
        "was %#lx and is %#lx (weft_cache(3), CHANGES THAT NOBODY SEES)",
        (unsigned long)e->range.start, (unsigned long)e->range.end, (unsigned long)at,
        (unsigned long)was, (unsigned long)is);
    abort();
}

/* [start, end) is held, and the caller is about to transfer it: it does not change. */
void wf_cache_verify(struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                     uintptr_t end)
{
    uint64_t now[LOOK];
    if (!e->pages)
        return;
    for (uintptr_t at = start; at < end; at += LOOK * c->page) {
        size_t count = WF_MIN((end - at) / c->page, LOOK);
        const uint64_t *was = e->pages + (at - e->range.start) / c->page;
        if (wf_pages_look(c->pages_fd, at, count, now))
            return;
        for (size_t i = 0; i < count; i++)
            if (now[i] != was[i])
                stale(e, at + i * c->page, was[i], now[i]);
    }
}

/* ---- pending entries ---- */

/* Another entry, and what inserting it may take, got while no lock is held. */
static bool supply(struct wf_cache *c)
{
    struct wf_cache_entry *e = aligned_alloc(64, wf_align_up(sizeof *e, 64));
    struct wf_ranges_chunk *chunk = malloc(sizeof *chunk);
    bool enough;
    pthread_mutex_lock(&c->lock);
    if (e) {
        *e = (struct wf_cache_entry){.handle = NULL};
        wf_list_append(&c->free, &e->item);
    }
    if (chunk && wf_ranges_needs_chunk(&c->ranges)) {
        wf_ranges_give_chunk(&c->ranges, chunk);
        chunk = NULL;
    }
    enough = !wf_list_empty(&c->free) && !wf_ranges_needs_chunk(&c->ranges);
    pthread_mutex_unlock(&c->lock);
    free(chunk);
    return enough;
}

/* What the entries that touch or adjoin the range span together with it. Under cache->lock. */
static void widen(const struct wf_cache *c, struct wf_range *range)
{
    uintptr_t from = range->start ? range->start - 1 : 0;
    struct wf_range *r;
    while ((r = wf_ranges_touching(&c->ranges, from,
                                   range->end < UINTPTR_MAX ? range->end + 1 : range->end))) {
        range->start = WF_MIN(range->start, r->start);
        range->end = WF_MAX(range->end, r->end);
        from = r->end;
    }
}

/* A pending entry: what is changed from here on touches it. Null: no memory. */
static struct wf_cache_entry *pending_add(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                          enum miss miss)
{
    struct wf_cache_entry *e = NULL;
    do {
        pthread_mutex_lock(&c->lock);
        (void)wf_cache_log_apply(c); /* so that what happened before does not touch it */
        if (!wf_list_empty(&c->free) && !wf_ranges_needs_chunk(&c->ranges)) {
            e = entry_of(c->free.next);
            e->range = (struct wf_range){start, end};
            e->touched = false;
            if (miss == WIDE)
                widen(c, &e->range);
            wf_list_remove(&e->item);
            wf_list_append(&c->pending, &e->item);
        }
        pthread_mutex_unlock(&c->lock);
    } while (!e && supply(c));
    return e;
}

/* ---- registering ---- */

/* Does RLIMIT_MEMLOCK bind this process? Not if it has CAP_IPC_LOCK. */
static bool is_bound(uint64_t *limit)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct cap[2] = {{0}};
    struct rlimit l = {.rlim_cur = RLIM_INFINITY};
    (void)syscall(SYS_capget, &head, cap);
    (void)getrlimit(RLIMIT_MEMLOCK, &l);
    *limit = l.rlim_cur;
    return l.rlim_cur != RLIM_INFINITY && !(cap[0].effective & 1u << CAP_IPC_LOCK);
}

/* Once: which limit it is, and what to do about it. */
static void limit_tell(bool is_budget)
{
    static const char until[] = "unused registrations are given up, and transfers are copied when "
                                "there are none";
    static _Atomic bool told[2];
    uint64_t limit;
    if (atomic_exchange(&told[is_budget], true))
        return;
    if (is_budget)
        wf_warn(
            "no more memory may be pinned: this process has its share of WEFT_PINNED (weft info "
            "--config); raise that; until then %s",
            until);
    else if (is_bound(&limit))
        wf_warn("no more memory can be registered: the limit of locked memory (RLIMIT_MEMLOCK) is "
                "%" PRIu64 " KiB; raise it with ulimit -l, memlock in /etc/security/limits.conf or "
                "LimitMEMLOCK= of the service; until then %s",
                limit / 1024, until);
    else
        wf_warn(
            "the device registers no more memory, and it is not for the limit of locked memory: "
            "%s",
            until);
}

static enum weft_status register_pinned(struct wf_cache *c, struct wf_cache_entry *e,
                                        bool *is_budget)
{
    const struct wf_registrar *r = &c->params.registrar;
    size_t len = e->range.end - e->range.start;
    enum weft_status status;
    *is_budget = c->params.budget && !wf_budget_take(c->params.budget, len);
    if (*is_budget)
        return WEFT_ELIMIT;
    status = r->reg(r->owner, (void *)e->range.start, len, &e->handle); // NOLINT
    if (c->params.budget && status != WEFT_OK)
        wf_budget_give(c->params.budget, len);
    return status;
}

static bool register_on_demand(struct wf_cache *c, struct wf_cache_entry *e)
{
    const struct wf_registrar *r = &c->params.registrar;
    e->on_demand =
        r->reg_on_demand && r->reg_on_demand(r->owner, (void *)e->range.start, // NOLINT
                                             e->range.end - e->range.start, &e->handle) == WEFT_OK;
    return e->on_demand;
}

static enum weft_status register_once(struct wf_cache *c, struct wf_cache_entry *e, bool wide)
{
    bool first = c->params.registrar.on_demand_first, is_budget;
    enum weft_status status;
    e->on_demand = false;
    if (first && register_on_demand(c, e))
        return WEFT_OK;
    status = register_pinned(c, e, &is_budget);
    if (status != WEFT_ELIMIT)
        return status;
    if (!first && register_on_demand(c, e))
        return WEFT_OK;
    if (!wide)
        limit_tell(is_budget);
    return status;
}

/* [wide]: more than is needed; nothing is given up for it. */
static enum weft_status register_range(struct wf_cache *c, struct wf_cache_entry *e, bool wide)
{
    size_t len = e->range.end - e->range.start;
    uint64_t batch = EVICT_BATCH;
    for (unsigned tries = 1;; tries++, batch *= 2) {
        uint64_t dropped = wf_cache_dropped(c);
        enum weft_status status = register_once(c, e, wide);
        if (status != WEFT_ELIMIT || wide || tries == TRIES)
            return status;
        if (!wf_cache_make_way(c, len, batch, dropped))
            return status;
    }
}

/* ---- entering: under cache->lock and the users' ---- */

/* Let [len] bytes more fit, [inside] of what is there being replaced. What is in use stays. */
static bool room_make(struct wf_cache *c, uint64_t len, uint64_t inside, uint64_t inside_bytes)
{
    uint64_t entries = c->entries - inside, bytes = c->bytes - inside_bytes;
    uint64_t over = 0, over_bytes = 0;
    if (entries >= c->params.max_entries)
        over = entries - c->params.max_entries + 1;
    if (c->params.max_bytes && bytes + len > c->params.max_bytes)
        over_bytes = bytes + len - c->params.max_bytes;
    if (over || over_bytes)
        wf_cache_evict(c, over_bytes, over);
    return c->entries < c->params.max_entries + inside &&
           (!c->params.max_bytes || c->bytes + len <= c->params.max_bytes + inside_bytes);
}

/* The first entry from [from] on that the range contains, or null. */
static struct wf_cache_entry *inside(const struct wf_cache *c, const struct wf_range *range,
                                     uintptr_t from)
{
    struct wf_range *r;
    while ((r = wf_ranges_touching(&c->ranges, from, range->end)) && r->start < range->start)
        from = r->end;
    return r && r->end <= range->end ? (struct wf_cache_entry *)r : NULL;
}

static bool insert(struct wf_cache *c, struct wf_cache_entry *e)
{
    uint64_t clock = wf_load_relaxed(&c->clock), len = e->range.end - e->range.start;
    uint64_t n = 0, bytes = 0;
    struct wf_cache_entry *in;
    if (wf_ranges_containing(&c->ranges, e->range.start, e->range.end))
        return false; /* another thread was faster */
    for (uintptr_t from = e->range.start; (in = inside(c, &e->range, from)); from = in->range.end) {
        n++;
        bytes += in->range.end - in->range.start;
    }
    if (!room_make(c, len, n, bytes))
        return false;
    while ((in = inside(c, &e->range, e->range.start)))
        wf_cache_retire(c, in);
    if (!wf_ranges_insert(&c->ranges, &e->range))
        return false;
    e->serial = ++c->serials;
    e->queued = clock;
    wf_store_relaxed(&e->used, clock);
    wf_store_relaxed(&e->state, LIVE);
    wf_store_relaxed(&c->clock, clock + 1);
    wf_list_append(&c->queue, &e->item);
    c->bytes += len;
    c->entries++;
    return true;
}

/* [e] is in the ranges, if nothing speaks against it, else a once. */
static void pending_end(struct wf_cache *c, struct wf_cache_entry *e, bool cacheable)
{
    wf_store_relaxed(&e->state, ONCE);
    if (!cacheable || e->touched || wf_cache_is_tainted(c, &e->range) || !insert(c, e))
        c->counts.onces++;
}

/* ---- a miss ---- */

/* [start, end) is watched, and private memory; *by: since when, as far as that is known. */
static bool watch(struct wf_cache_user *u, uintptr_t start, uintptr_t end, struct watched *by)
{
    struct wf_monitor *m = u->cache->params.monitor;
    struct watched *w = &u->watched;
    struct wf_span span;
    uint64_t told = wf_load_acquire(&u->cache->told), logged = wf_load_acquire(&m->logged);
    bool same = w->logged == logged && w->told == told;
    if (same && w->times == 2 && w->span.start <= start && end <= w->span.end) {
        *by = *w;
        by->is_known = true;
        return true;
    }
    if (m->ops->watch(m, start, end, &span) != WEFT_OK)
        return false;
    same = same && w->times && span.start == w->span.start && span.end == w->span.end;
    *by = (struct watched){span, logged, told, same ? 2 : 1, false};
    return true;
}

/* Under cache->lock, everything is settled: is the entry good for more than this use? */
static bool is_watched(struct wf_cache_user *u, const struct watched *by)
{
    struct wf_cache *c = u->cache;
    if (wf_load_relaxed(&c->lost) || !wf_cache_log_apply(c))
        return false;
    wf_cache_settled(c, by->logged);
    if (c->read == by->logged) {
        u->watched = *by;
        return true;
    }
    u->watched.times = 0;
    return !by->is_known; /* else what had been watched may have gone */
}

/* Register [start, end), watched if it can be, and hold it. */
static enum weft_status get_anew(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                                 enum miss miss, struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    struct wf_cache_entry *e = pending_add(c, start, end, miss);
    struct watched by = {.times = 0};
    enum weft_status status;
    bool cacheable, leaves;
    if (!e)
        return WEFT_ENOMEM;
    cacheable = miss != ALONE && watch(u, e->range.start, e->range.end, &by);
    status = register_range(c, e, miss == WIDE);
    if (status == WEFT_OK && c->pages_fd >= 0 && !e->on_demand) /* its pages may change */
        pages_note(c, e);
    cacheable = cacheable && status == WEFT_OK && settle(c);
    pthread_mutex_lock(&c->lock);
    /* What came since is applied here, or touches the entry when it is in the ranges. */
    cacheable = cacheable && is_watched(u, &by);
    users_lock(c);
    wf_list_remove(&e->item);
    if (status == WEFT_OK) {
        pending_end(c, e, cacheable);
        hold(u, e, out);
    }
    users_unlock(c);
    if (status != WEFT_OK)
        wf_list_append(&c->free, &e->item);
    c->counts.misses += status == WEFT_OK;
    leaves = c->nlimbo;
    pthread_mutex_unlock(&c->lock);
    if (leaves)
        (void)wf_cache_reap(c);
    return status;
}

enum weft_status wf_cache_miss(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                               bool cacheable, struct wf_cached *out)
{
    const struct wf_cache_params *p = &u->cache->params;
    if (cacheable && p->max_bytes && end - start > p->max_bytes)
        cacheable = false;
    if (cacheable && p->merge && get_anew(u, start, end, WIDE, out) == WEFT_OK)
        return WEFT_OK;
    return get_anew(u, start, end, cacheable ? EXACT : ALONE, out);
}
