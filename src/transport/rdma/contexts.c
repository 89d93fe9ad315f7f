/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/contexts.h"

#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "config/sharing_names.h"
#include "transport/rdma/sharing.h"
#include "transport/rdma/td_pool.h"

/* ---- the category ---- */

static struct wf_sharing_case case_of(const struct rdma_ctx *ctx)
{
    bool classic = ctx->nnics && ctx->devices[0].hca->caps.classic_uars;
    return (struct wf_sharing_case){.uars =
                                        wf_uar_config_of(classic ? WF_UAR_CLASSIC : WF_UAR_CURRENT),
                                    .endpoints = ctx->endpoints,
                                    .queue_pairs = 1,
                                    .contexts = WF_RDMA_RAILS / WF_MAX(ctx->nnics, 1u)};
}

/* Do all NICs have thread domains; and do these have doorbell pages? */
static void nics_look(const struct rdma_ctx *ctx, bool *domains, bool *pages)
{
    *domains = *pages = true;
    for (unsigned i = 0; i < ctx->nnics; i++) {
        *domains &= ctx->devices[i].hca->caps.td;
        *pages &= ctx->devices[i].hca->caps.uars;
    }
}

static bool is_by_domains(enum weft_sharing category)
{
    return category == WEFT_SHARING_TWO_X_DYNAMIC || category == WEFT_SHARING_DYNAMIC ||
           category == WEFT_SHARING_SHARED;
}

/* Returns the category that takes the place of the one that was asked for. */
static enum weft_sharing replaced(const struct rdma_ctx *ctx, enum weft_sharing by, const char *why)
{
    wf_info("WEFT_SHARING=%s is %s here: %s", wf_sharing_text(ctx->category), wf_sharing_text(by),
            why);
    return by;
}

static enum weft_sharing category_resolve(const struct rdma_ctx *ctx)
{
    const struct wf_sharing_case c = case_of(ctx);
    uint64_t uars = wf_config()->uars, each = uars / WF_MAX(ctx->nnics, 1u);
    bool domains, pages;
    nics_look(ctx, &domains, &pages);
    if (ctx->category == WEFT_SHARING_AUTO && domains && pages)
        return wf_sharing_auto(&c, (uint32_t)(uars ? WF_MAX(each, 1u) : 0));
    if (ctx->category == WEFT_SHARING_AUTO)
        return domains ? WEFT_SHARING_DYNAMIC : WEFT_SHARING_STATIC;
    if (is_by_domains(ctx->category) && !domains)
        return replaced(ctx, WEFT_SHARING_STATIC, "the NIC has no thread domains");
    if (ctx->category == WEFT_SHARING_SPLIT && c.contexts < 2)
        return replaced(ctx, WEFT_SHARING_TWO_X_DYNAMIC,
                        "with three NICs or more, a region has no key for a further context");
    return ctx->category;
}

/* ---- contexts ---- */

/* Opens one context more of each NIC. Returns false if a NIC refuses. */
static bool context_add(struct rdma_ctx *ctx)
{
    const struct wf_hca_config config = wf_rdma_config();
    unsigned first = ctx->ndevices;
    for (unsigned i = 0; i < ctx->nnics; i++) {
        struct rdma_device *d = &ctx->devices[ctx->ndevices];
        const struct wf_hca_ops *ops = ctx->devices[i].hca->ops;
        if (ops->open(ctx->devices[i].hca->name, &config, &d->hca) != WEFT_OK)
            break;
        if (ops->pd_open(d->hca, &d->pd) != WEFT_OK) {
            ops->close(d->hca);
            break;
        }
        d->ctx = ctx;
        d->number = ctx->ndevices++;
    }
    if (ctx->ndevices == first + ctx->nnics)
        return true;
    wf_rdma_devices_close_from(ctx, first);
    return false;
}

void wf_rdma_contexts_open(struct rdma_ctx *ctx)
{
    unsigned wanted;
    ctx->nnics = ctx->ndevices;
    ctx->ncontexts = 1;
    ctx->category = category_resolve(ctx);
    if (ctx->category == WEFT_SHARING_SPLIT) {
        const struct wf_sharing_case c = case_of(ctx);
        wanted = wf_sharing_contexts(ctx->category, &c);
        while (ctx->ncontexts < wanted && context_add(ctx))
            ctx->ncontexts++;
        if (ctx->ncontexts < wanted)
            wf_warn("WEFT_SHARING=split: %u of %u contexts of %s could be opened", ctx->ncontexts,
                    wanted, ctx->devices[0].hca->name);
    }
    wf_debug("WEFT_SHARING: %s, %u contexts a NIC", wf_sharing_text(ctx->category), ctx->ncontexts);
}

unsigned wf_rdma_context_take(struct rdma_ctx *ctx, unsigned *position)
{
    unsigned best = 0;
    pthread_mutex_lock(&ctx->lock);
    for (unsigned i = 1; i < ctx->ncontexts; i++)
        if (ctx->context_eps[i] < ctx->context_eps[best])
            best = i;
    *position = ctx->context_eps[best]++;
    pthread_mutex_unlock(&ctx->lock);
    return best;
}

void wf_rdma_context_give(struct rdma_ctx *ctx, unsigned context)
{
    pthread_mutex_lock(&ctx->lock);
    ctx->context_eps[context]--;
    pthread_mutex_unlock(&ctx->lock);
}

struct rdma_device *wf_rdma_context_device(struct rdma_ctx *ctx, const struct rdma_port *port,
                                           unsigned context)
{
    return &ctx->devices[context * ctx->nnics + port->device->number];
}

/* ---- domains ---- */

enum { NO_DOMAIN = WF_HCA_TD_HALF + 1 };

/* Returns the level of an endpoint's domain, an enum wf_hca_td_level or NO_DOMAIN. */
static unsigned level_of(const struct rdma_ctx *ctx, uint32_t asked)
{
    switch (ctx->category) {
    case WEFT_SHARING_EVERYWHERE:
    case WEFT_SHARING_THREADS: return NO_DOMAIN;
    default: break;
    }
    if (asked == 2)
        return WF_HCA_TD_HALF;
    switch (ctx->category) {
    case WEFT_SHARING_TWO_X_DYNAMIC: return WF_HCA_TD_SPACED;
    case WEFT_SHARING_DYNAMIC:
    case WEFT_SHARING_SPLIT: return WF_HCA_TD_PAGE;
    case WEFT_SHARING_SHARED: return asked == 1 ? WF_HCA_TD_PAGE : WF_HCA_TD_HALF;
    default: return asked == 1 ? WF_HCA_TD_PAGE : NO_DOMAIN;
    }
}

static bool budget_is_used(const struct rdma_device *d)
{
    struct wf_uar_budget *b = d->hca->config.budget;
    uint32_t limit = atomic_load_explicit(&b->limit, memory_order_relaxed);
    return limit && atomic_load_explicit(&b->taken, memory_order_relaxed) >= limit;
}

/* [level] is what an endpoint got, [why] why it did not get more. */
static void fewer_explain(struct rdma_device *d, unsigned level, enum weft_status why)
{
    static _Atomic bool logged;
    static const char *const got[] = {[WF_HCA_TD_PAGE] = "no unused page beside their own",
                                      [WF_HCA_TD_HALF] = "half of a page",
                                      [NO_DOMAIN] = "no thread domain, so they take locks"};
    atomic_store_explicit(&d->ctx->degraded, true, memory_order_relaxed);
    if (atomic_exchange_explicit(&logged, true, memory_order_relaxed))
        return;
    if (why != WEFT_ELIMIT)
        wf_warn("%s: endpoints get %s: %s", d->hca->name, got[level], weft_status_text(why));
    else if (budget_is_used(d))
        wf_warn("%s: endpoints get %s: WEFT_UARS=%llu allows no more doorbell pages; raise it, or "
                "choose a category that takes fewer (WEFT_SHARING, weft plan)",
                d->hca->name, got[level], (unsigned long long)wf_config()->uars);
    else
        wf_warn("%s: endpoints get %s: the NIC has no doorbell pages left, or its context has as "
                "many domains as it can; other "
                "processes may share more (WEFT_SHARING), or the firmware may give more "
                "(PF_LOG_BAR_SIZE, set with mlxconfig)",
                d->hca->name, got[level]);
}

/* Returns the level that the category gives to the endpoint at [position]. Where domains have no
 * pages, they are all alike, and none is left unused. */
static unsigned level_wanted(const struct rdma_device *d, uint32_t asked, unsigned position)
{
    unsigned level = d->hca->caps.td ? level_of(d->ctx, asked) : NO_DOMAIN;
    if (level != NO_DOMAIN && !d->hca->caps.uars)
        return WF_HCA_TD_HALF;
    if (d->ctx->category == WEFT_SHARING_SPLIT && position >= WF_SHARING_SIDE_BY_SIDE &&
        level == WF_HCA_TD_PAGE)
        return WF_HCA_TD_SPACED;
    return level;
}

void wf_rdma_domain_open(struct rdma_device *d, uint32_t asked, unsigned position,
                         const void *owner, struct wf_hca_td **out)
{
    const struct wf_hca_ops *ops = d->hca->ops;
    unsigned wanted = level_wanted(d, asked, position), level = wanted;
    enum weft_status status = WEFT_OK, why = WEFT_OK;
    *out = NULL;
    for (; level != NO_DOMAIN; level++) {
        status = ops->td_open(d->pd, (enum wf_hca_td_level)level, owner, out);
        if (status == WEFT_OK)
            break;
        *out = NULL;
        why = why == WEFT_OK ? status : why;
    }
    if (level != wanted)
        fewer_explain(d, level, why);
}
