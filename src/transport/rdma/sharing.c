/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/sharing.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* ---- pages ---- */

static uint64_t context_pages(const struct wf_uar_config *c)
{
    return c->mode == WF_UAR_CLASSIC ? c->total / 2u : 1;
}

/* The pages that queue pairs without a domain take. */
static uint64_t queue_pages(const struct wf_uar_config *c, uint64_t queue_pairs)
{
    uint64_t rest = queue_pairs > 4 ? queue_pairs - 4 : 0;
    if (c->mode == WF_UAR_CLASSIC || !c->blueflame)
        return 0;
    return (WF_MIN(queue_pairs, 4u) + 1) / 2 + WF_MIN(rest, 6u);
}

uint32_t wf_sharing_contexts(enum weft_sharing category, const struct wf_sharing_case *c)
{
    uint32_t wanted = (c->endpoints + WF_SHARING_SIDE_BY_SIDE - 1) / WF_SHARING_SIDE_BY_SIDE;
    if (category == WEFT_SHARING_EVERYWHERE)
        return c->endpoints;
    if (category != WEFT_SHARING_SPLIT)
        return 1;
    return c->endpoints ? WF_MIN(wanted, c->contexts) : c->contexts;
}

/* Beyond 8 endpoints a context, each has an unused page beside its own. */
static uint64_t split_pages(const struct wf_sharing_case *c, uint32_t contexts)
{
    uint64_t near = WF_MIN(c->endpoints, (uint64_t)contexts * WF_SHARING_SIDE_BY_SIDE);
    return contexts * context_pages(&c->uars) + near + 2 * (c->endpoints - near);
}

uint64_t wf_sharing_pages(enum weft_sharing category, const struct wf_sharing_case *c)
{
    uint64_t own = context_pages(&c->uars), n = c->endpoints;
    switch (category) {
    case WEFT_SHARING_EVERYWHERE: return n * (own + queue_pages(&c->uars, c->queue_pairs));
    case WEFT_SHARING_TWO_X_DYNAMIC: return own + 2 * n;
    case WEFT_SHARING_DYNAMIC: return own + n;
    case WEFT_SHARING_SHARED: return own + (n + 1) / 2;
    case WEFT_SHARING_STATIC: return own + queue_pages(&c->uars, n * c->queue_pairs);
    case WEFT_SHARING_THREADS: return own + queue_pages(&c->uars, c->queue_pairs);
    default: return split_pages(c, wf_sharing_contexts(WEFT_SHARING_SPLIT, c));
    }
}

/* ---- AUTO ---- */

/* SPLIT loses no speed as long as no context has more than WF_SHARING_SIDE_BY_SIDE endpoints. */
static bool split_is_whole(const struct wf_sharing_case *c)
{
    return (uint64_t)c->contexts * WF_SHARING_SIDE_BY_SIDE >= c->endpoints;
}

/* The categories in the order in which AUTO prefers them. Up to WF_SHARING_SIDE_BY_SIDE endpoints
 * DYNAMIC loses nothing, so the first two are left out. Beyond, SPLIT takes fewer pages than
 * TWO_X_DYNAMIC. */
enum weft_sharing wf_sharing_auto(const struct wf_sharing_case *c, uint32_t limit)
{
    static const enum weft_sharing order[] = {WEFT_SHARING_SPLIT, WEFT_SHARING_TWO_X_DYNAMIC,
                                              WEFT_SHARING_DYNAMIC, WEFT_SHARING_SHARED};
    if (!c->endpoints)
        return WEFT_SHARING_TWO_X_DYNAMIC;
    for (size_t i = c->endpoints <= WF_SHARING_SIDE_BY_SIDE ? 2 : 0; i < WF_ARRAY_LEN(order); i++) {
        if (order[i] == WEFT_SHARING_SPLIT && !split_is_whole(c))
            continue;
        if (!limit || wf_sharing_pages(order[i], c) <= limit)
            return order[i];
    }
    return WEFT_SHARING_STATIC;
}
