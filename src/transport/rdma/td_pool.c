/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/td_pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "transport/rdma/uar.h"

/* A pair of domains, or two pairs of which the second stays unused. Units stay in the list until
 * the pool closes. */
struct wf_td_unit {
    struct wf_td_unit *next;
    void *td[4]; /* [2] and [3]: the unused pair; else NULL */
    bool used[2];
    bool whole; /* one user has the whole page */
};

/* ---- the budget ---- */

/* Counts pages that are taken whatever the limit. */
static void budget_add(struct wf_uar_budget *b, int pages)
{
    if (b)
        atomic_fetch_add_explicit(&b->taken, (uint32_t)pages, memory_order_relaxed);
}

static bool budget_take(struct wf_uar_budget *b, uint32_t pages)
{
    uint32_t taken = b ? atomic_load_explicit(&b->taken, memory_order_relaxed) : 0;
    uint32_t limit = b ? atomic_load_explicit(&b->limit, memory_order_relaxed) : 0;
    while (b) {
        if (limit && (taken >= limit || limit - taken < pages))
            return false;
        if (atomic_compare_exchange_weak_explicit(&b->taken, &taken, taken + pages,
                                                  memory_order_relaxed, memory_order_relaxed))
            break;
    }
    return true;
}

/* ---- units ---- */

static bool is_spaced(const struct wf_td_unit *u)
{
    return u->td[2];
}

static int pages_of(bool spaced)
{
    return spaced ? 2 : 1;
}

static bool pages_take(struct wf_td_pool *pool, int pages)
{
    if (!budget_take(pool->budget, (uint32_t)pages))
        return false;
    atomic_fetch_add_explicit(&pool->pages, (uint32_t)pages, memory_order_relaxed);
    return true;
}

static void pages_give(struct wf_td_pool *pool, int pages)
{
    budget_add(pool->budget, -pages);
    atomic_fetch_sub_explicit(&pool->pages, (uint32_t)pages, memory_order_relaxed);
}

static void unit_close(struct wf_td_pool *pool, struct wf_td_unit *u)
{
    for (int i = 0; i < 4; i++)
        if (u->td[i])
            pool->source.close(pool->source.arg, u->td[i]);
    free(u);
}

/* Takes the domains of a new unit. They are taken without a pause, so that each two share a page.
 */
static enum weft_status unit_open(struct wf_td_pool *pool, bool spaced, struct wf_td_unit **out)
{
    struct wf_td_unit *u = calloc(1, sizeof *u), **end = &pool->units;
    enum weft_status status = WEFT_OK;
    if (!u)
        return WEFT_ENOMEM;
    if (!pages_take(pool, pages_of(spaced))) {
        free(u);
        return WEFT_ELIMIT;
    }
    for (int i = 0; i < (spaced ? 4 : 2) && status == WEFT_OK; i++)
        status = pool->source.open(pool->source.arg, &u->td[i]);
    if (status != WEFT_OK) {
        unit_close(pool, u);
        pages_give(pool, pages_of(spaced));
        return status;
    }
    while (*end)
        end = &(*end)->next;
    *end = u;
    *out = u;
    return WEFT_OK;
}

/* Returns a unit that has what [level] needs, or NULL. A spaced unit also serves as a page. */
static struct wf_td_unit *unit_find(const struct wf_td_pool *pool, enum wf_hca_td_level level)
{
    struct wf_td_unit *found = NULL;
    for (struct wf_td_unit *u = pool->units; u; u = u->next) {
        bool is_free = !u->used[0] && !u->used[1];
        if (level == WF_HCA_TD_HALF && !u->whole && u->used[0] != u->used[1])
            return u;
        if (!is_free || (level == WF_HCA_TD_SPACED && !is_spaced(u)))
            continue;
        if (!found || (is_spaced(found) && !is_spaced(u) && level != WF_HCA_TD_SPACED))
            found = u;
    }
    return found;
}

/* ---- the pool ---- */

void wf_td_pool_open(struct wf_td_pool *pool, const struct wf_td_source *source,
                     struct wf_uar_budget *budget, unsigned independent_most)
{
    *pool = (struct wf_td_pool){
        .source = *source, .budget = budget, .independent_most = independent_most};
    pthread_mutex_init(&pool->lock, NULL);
}

void wf_td_pool_close(struct wf_td_pool *pool)
{
    while (pool->units) {
        struct wf_td_unit *u = pool->units;
        pool->units = u->next;
        pages_give(pool, pages_of(is_spaced(u)));
        unit_close(pool, u);
    }
    pthread_mutex_destroy(&pool->lock);
}

void wf_td_pool_count(struct wf_td_pool *pool)
{
    const struct wf_uar_count now = wf_uars_count(pool->source.uars);
    uint32_t taken = atomic_load_explicit(&pool->pages, memory_order_relaxed);
    uint32_t own = now.pages > taken ? now.pages - taken : 0;
    wf_hca_uars_count(pool->source.hca, &now);
    budget_add(pool->budget, (int)(own - pool->own));
    pool->own = own;
}

static enum weft_status take(struct wf_td_pool *pool, enum wf_hca_td_level level,
                             struct wf_td_lease *out)
{
    bool whole = level != WF_HCA_TD_HALF;
    struct wf_td_unit *u = unit_find(pool, level);
    enum weft_status status = WEFT_OK;
    if (whole && pool->independent_most && pool->independent == pool->independent_most)
        return WEFT_ELIMIT;
    if (!u)
        status = unit_open(pool, level == WF_HCA_TD_SPACED, &u);
    if (status != WEFT_OK)
        return status;
    *out = (struct wf_td_lease){.unit = u, .half = u->used[0]};
    out->td = u->td[out->half];
    u->used[out->half] = true;
    u->whole = whole;
    pool->independent += whole;
    return WEFT_OK;
}

enum weft_status wf_td_take(struct wf_td_pool *pool, enum wf_hca_td_level level,
                            struct wf_td_lease *out)
{
    enum weft_status status;
    pthread_mutex_lock(&pool->lock);
    status = take(pool, level, out);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void wf_td_give(struct wf_td_pool *pool, const struct wf_td_lease *lease)
{
    pthread_mutex_lock(&pool->lock);
    pool->independent -= lease->unit->whole;
    lease->unit->used[lease->half] = false;
    lease->unit->whole = false;
    pthread_mutex_unlock(&pool->lock);
}
