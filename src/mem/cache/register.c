/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers an entry's range with the device, within the limits of the budget and the device. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/budget.h"
#include "mem/cache/impl.h"

#define EVICT_BATCH 16 /* how many entries are evicted after the device's first refusal */
/* how often a registration is tried; the number of entries to evict doubles after each try */
#define TRIES 12

/* Returns whether the limit of locked memory (RLIMIT_MEMLOCK) applies to this process. The limit
 * does not apply if the process has CAP_IPC_LOCK. Sets *limit, in bytes. */
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

/* Log which limit was reached and how to raise it: once for the budget, and once for the device's
 * limit. */
static void limit_log(bool is_budget)
{
    static const char until[] = "unused registrations are given up, and transfers are copied when "
                                "there are none";
    static _Atomic bool logged[2];
    uint64_t limit;
    if (atomic_exchange(&logged[is_budget], true))
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
    const struct wf_reg_ops *r = &c->params.reg_ops;
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
    const struct wf_reg_ops *r = &c->params.reg_ops;
    e->on_demand =
        r->reg_on_demand && r->reg_on_demand(r->owner, (void *)e->range.start, // NOLINT
                                             e->range.end - e->range.start, &e->handle) == WEFT_OK;
    return e->on_demand;
}

static enum weft_status register_any(struct wf_cache *c, struct wf_cache_entry *e, bool wide)
{
    bool first = c->params.reg_ops.on_demand_first, is_budget;
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
        limit_log(is_budget);
    return status;
}

enum weft_status wf_cache_attempt(struct wf_cache *c, uint64_t bytes, uint64_t entries,
                                  unsigned tries, enum weft_status (*attempt)(void *arg), void *arg)
{
    for (;; entries *= 2) {
        uint64_t deregs = wf_cache_deregs(c);
        enum weft_status status = attempt(arg);
        if (status != WEFT_ELIMIT || !--tries || !wf_cache_reclaim(c, bytes, entries, deregs))
            return status;
    }
}

struct attempt {
    struct wf_cache *cache;
    struct wf_cache_entry *entry;
    bool wide;
};

static enum weft_status attempt_any(void *arg)
{
    const struct attempt *a = arg;
    return register_any(a->cache, a->entry, a->wide);
}

enum weft_status wf_cache_register(struct wf_cache *c, struct wf_cache_entry *e, bool wide)
{
    struct attempt a = {c, e, wide};
    return wf_cache_attempt(c, e->range.end - e->range.start, EVICT_BATCH, wide ? 1 : TRIES,
                            attempt_any, &a);
}
