/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of weft/cache.h. The calls check the program's parameters. A variable of the
 * environment takes precedence over the program's parameter. */
#include <stddef.h>
#include <stdlib.h>
#include <weft/cache.h>

#include "base/log.h"
#include "base/params.h"
#include "base/handle.h"
#include "base/fork.h"
#include "config/config.h"
#include "base/util.h"
#include "mem/budget.h"
#include "mem/cache/cache.h"
#include "mem/cache/monitor.h"

#define OWN_BYTES 0 /* no limit on bytes; WEFT_PINNED limits pinned memory */
#define OWN_COUNT 1024
#define FLAGS (WEFT_CACHE_SINGLE | WEFT_CACHE_MERGE | WEFT_CACHE_VERIFY)

struct weft_cache {
    struct wf_cache *cache;
    uint64_t fork_gen;
    void *object;
    void (*closed)(void *object); /* called with [object] when the cache is closed; or NULL */
};

/* The public struct weft_cache_use and the internal struct wf_cached have the same layout. So a
 * public call only jumps to the internal function. */
_Static_assert(sizeof(struct weft_cache_use) == sizeof(struct wf_cached), "alike");
_Static_assert(offsetof(struct weft_cache_use, entry_) == offsetof(struct wf_cached, entry),
               "alike");
_Static_assert(offsetof(struct weft_cache_use, slot_) == offsetof(struct wf_cached, slot), "alike");

static struct wf_cache_user *user_of(struct weft_cache_user *user)
{
    return (struct wf_cache_user *)(void *)user;
}

static enum weft_status params_check(const struct weft_cache_params *p)
{
    if (!p || !p->registrar.reg || !p->registrar.dereg || p->monitor > WEFT_MONITOR_NONE)
        return WEFT_EINVAL;
    return wf_params_check("WEFT_CACHE_PARAMS", p->version, p->flags, FLAGS, p->reserved,
                           WF_ARRAY_LEN(p->reserved));
}

/* Returns NULL if the wanted monitor cannot be opened; the reason is logged. */
static struct wf_monitor *monitor_of(enum weft_monitor wanted)
{
    const char *why = NULL;
    struct wf_monitor *m;
    if (wanted == WEFT_MONITOR_IMPORT)
        return &wf_monitor_import;
    if (wanted == WEFT_MONITOR_NONE)
        return &wf_monitor_none;
    m = wf_monitor_userfaultfd(&why);
    if (m)
        return m;
    if (wanted == WEFT_MONITOR_AUTO) {
        wf_info("registrations are not kept: %s", why);
        return &wf_monitor_none;
    }
    wf_error("memory cannot be watched by userfaultfd: %s", why);
    return NULL;
}

enum weft_status wf_cache_params_own(struct wf_cache_params *out)
{
    const struct wf_config *config = wf_config();
    *out = (struct wf_cache_params){
        .monitor = monitor_of((enum weft_monitor)config->mr_cache_monitor),
        .budget = wf_budget_own(),
        .max_bytes = config->mr_cache_size == WF_ASKED ? OWN_BYTES : config->mr_cache_size,
        .max_entries =
            config->mr_cache_count == WF_ASKED ? OWN_COUNT : (uint32_t)config->mr_cache_count,
        .merge = config->mr_cache_merge,
        .verify = config->mr_cache_verify};
    return out->monitor ? WEFT_OK : WEFT_ESYSTEM;
}

/* Open a cache. [closed] is that of struct weft_cache; if there is one, the registrar charges the
 * budget itself, and the registered pages cannot be compared with the mapped ones. */
static enum weft_status open_with(const struct weft_cache_params *p, void *object,
                                  void (*closed)(void *object), struct weft_cache **out)
{
    enum weft_status status = out ? params_check(p) : WEFT_EINVAL;
    const struct wf_config *config;
    struct wf_cache_params params;
    struct weft_cache *c;
    if (status != WEFT_OK || (status = wf_config_init()) != WEFT_OK)
        return status;
    config = wf_config();
    params = (struct wf_cache_params){
        .reg_ops = {p->registrar.owner, p->registrar.reg, p->registrar.dereg},
        .monitor = monitor_of(config->mr_cache_monitor ? (enum weft_monitor)config->mr_cache_monitor
                                                       : (enum weft_monitor)p->monitor),
        .budget = closed ? NULL : wf_budget_own(),
        .max_bytes = config->mr_cache_size == WF_ASKED ? p->max_bytes : config->mr_cache_size,
        .max_entries =
            config->mr_cache_count == WF_ASKED ? p->max_count : (uint32_t)config->mr_cache_count,
        .merge = p->flags & WEFT_CACHE_MERGE || config->mr_cache_merge,
        .verify = !closed && (p->flags & WEFT_CACHE_VERIFY || config->mr_cache_verify),
        .single = p->flags & WEFT_CACHE_SINGLE};
    if (!params.monitor)
        return WEFT_ESYSTEM;
    c = malloc(sizeof *c);
    if (!c)
        return WEFT_ENOMEM;
    c->fork_gen = wf_fork_gen_begin();
    c->object = object;
    c->closed = closed;
    status = wf_cache_open(&params, &c->cache);
    if (status == WEFT_OK)
        *out = c;
    else
        free(c);
    return status;
}

enum weft_status weft_cache_open(const struct weft_cache_params *p, struct weft_cache **out)
{
    return open_with(p, NULL, NULL, out);
}

enum weft_status wf_cache_open_object(const struct weft_cache_params *p, void *object,
                                      void (*closed)(void *object), struct weft_cache **out)
{
    return open_with(p, object, closed, out);
}

enum weft_status weft_cache_close(struct weft_cache *c)
{
    if (!c)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(c->fork_gen))
        return wf_fork_gen_error(c->fork_gen);
    if (wf_cache_has_users(c->cache))
        return WEFT_EBUSY;
    wf_cache_close(c->cache);
    if (c->closed)
        c->closed(c->object);
    if (wf_handle_free(c))
        c->fork_gen = WF_FORK_GEN_CLOSED;
    return WEFT_OK;
}

enum weft_status weft_cache_user_open(struct weft_cache *c, struct weft_cache_user **out)
{
    struct wf_cache_user *user;
    enum weft_status status;
    if (!c || !out)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(c->fork_gen))
        return wf_fork_gen_error(c->fork_gen);
    status = wf_cache_user_open(c->cache, &user);
    if (status == WEFT_OK)
        *out = (struct weft_cache_user *)(void *)user;
    return status;
}

enum weft_status weft_cache_user_close(struct weft_cache_user *user)
{
    if (!user)
        return WEFT_EINVAL;
    if (!wf_cache_user_is_ours(user_of(user)))
        return WEFT_EFORKED;
    if (wf_cache_user_holds(user_of(user)))
        return WEFT_EBUSY;
    wf_cache_user_close(user_of(user));
    return WEFT_OK;
}

enum weft_status weft_cache_get(struct weft_cache_user *user, const void *addr, size_t len,
                                struct weft_cache_use *out)
{
    return wf_cache_get(user_of(user), addr, len, (struct wf_cached *)(void *)out);
}

void weft_cache_put(struct weft_cache_user *user, const struct weft_cache_use *use)
{
    wf_cache_put(user_of(user), (const struct wf_cached *)(const void *)use);
}

uint64_t weft_cache_shrink(struct weft_cache *c, uint64_t bytes)
{
    return c ? wf_cache_shrink(c->cache, bytes) : 0;
}

void weft_mem_invalidate(const void *addr, size_t len)
{
    wf_caches_invalidate(addr, len);
}

void weft_cache_count(struct weft_cache *c, struct weft_cache_counts *out)
{
    struct wf_cache_counts n = {0};
    if (c && wf_fork_gen_is(c->fork_gen))
        wf_cache_count(c->cache, &n);
    *out = (struct weft_cache_counts){.hits = n.hits,
                                      .misses = n.misses,
                                      .alone = n.uncached,
                                      .evictions = n.evictions,
                                      .invalidations = n.invalidations,
                                      .bytes = n.bytes,
                                      .count = n.entries,
                                      .leaving = n.limbo};
}

const char *weft_monitor_name(const char **why)
{
    const char *reason = NULL;
    struct wf_monitor *m = wf_monitor_userfaultfd(&reason);
    if (why)
        *why = reason;
    return m ? m->ops->name : wf_monitor_none.ops->name;
}
