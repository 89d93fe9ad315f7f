/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of endpoints: endpoints whose numbers follow each other (transport/address.h). Nothing
 * holds them together but their addresses: sender.c and weft_peer_open_member compute the group and
 * the member of an address. */
#include "base/log.h"
#include "core/core.h"

/* Another thread may be inside an endpoint of WEFT_EP_NOWAIT: that of the progress thread. */
static void member_close(struct weft_ep *ep)
{
    while (weft_ep_close(ep) == WEFT_AGAIN)
        wf_relax();
}

/* The first member is opened last: a process that finds the group by its name finds all members. */
static enum weft_status group_open(struct weft_ctx *ctx, const struct weft_ep_params *params,
                                   unsigned count, struct wf_ep_place first, struct weft_ep **eps)
{
    struct weft_ep_params other = WEFT_EP_PARAMS_INIT;
    enum weft_status status = WEFT_OK;
    unsigned i = count;
    if (params)
        other = *params;
    other.name = NULL;
    while (i && status == WEFT_OK) {
        struct wf_ep_place at = {(uint16_t)(first.id + --i), first.gen};
        status = wf_ep_open(ctx, i ? &other : params, at, &eps[i]);
    }
    if (status != WEFT_OK)
        while (++i < count)
            member_close(eps[i]);
    return status;
}

enum weft_status weft_group_open(struct weft_ctx *ctx, const struct weft_ep_params *params,
                                 unsigned count, struct weft_ep **out)
{
    struct weft_ep *eps[WEFT_GROUP_MAX];
    enum weft_status status = wf_ctx_check(ctx);
    struct wf_ep_place first;
    if (status == WEFT_OK)
        status = out ? wf_ep_params_check(params) : WEFT_EINVAL;
    if (status == WEFT_OK && (!count || count > WEFT_GROUP_MAX)) {
        wf_error("weft_group_open: a group has 1 to %u endpoints, not %u", WEFT_GROUP_MAX, count);
        status = WEFT_EINVAL;
    }
    if (status != WEFT_OK)
        return status;
    wf_ctx_lock(ctx);
    status = wf_ep_place_find(ctx, (unsigned)wf_power_of_two(count), &first);
    wf_ctx_unlock(ctx);
    if (status == WEFT_OK)
        status = group_open(ctx, params, count, first, eps);
    if (status == WEFT_OK)
        memcpy(out, eps, count * sizeof *eps);
    return status;
}
_Static_assert(WEFT_GROUP_MAX == 1u << WF_GROUP_BITS, "what addresses can name");
