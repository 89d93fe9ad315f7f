/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/bulk.h"

#include "core/msg_push.h"
#include "core/rma.h"

/* Hold bytes of a region for payload that arrives, or that is to be sent: the words that name the
 * region, and the access, differ. */
static void *region_hold(struct weft_ep *ep, const uint32_t *words, const struct wf_bulk *b,
                         unsigned access, uint32_t at, size_t *n)
{
    struct wf_region *region;
    struct wf_want want;
    void *bytes;
    bool is_there;
    wf_ctl_want(ep, words, b->len, access, &want);
    if (wf_mem_use(&ep->ctx->mem, &want, &region) != WEFT_OK)
        return NULL;
    bytes = wf_region_at(region, want.offset + at, n);
    if (region->flags & WF_REGION_UNBACKED)
        is_there = false;
    else if (access & WEFT_REMOTE_WRITE)
        is_there = b->by_kernel || wf_region_is_there(region, bytes, *n);
    else
        /* Only the kernel reads the bytes. Where it finds a page missing after a part was sent, the
         * connection breaks, which costs less than a look at each page of each payload. */
        is_there = at || wf_region_is_readable(region, bytes, 1);
    if (is_there)
        return bytes;
    wf_mem_unuse(&ep->ctx->mem, region);
    return NULL;
}

static void region_unhold(struct weft_ep *ep, const uint32_t *words)
{
    wf_mem_unuse_named(&ep->ctx->mem, words[0], wf_word64(words + 1));
}

static void *req_hold(const struct wf_req *req, uint64_t first, uint64_t len, uint32_t at,
                      size_t *n)
{
    if (!req || len > req->len ||
        first > req->len - len) /* the operation's memory is valid while its request exists */
        return NULL;
    return wf_iov_span(&req->mem, first + at, n);
}

static void *out_hold(struct weft_ep *ep, const struct wf_bulk *b, uint32_t at, size_t *n)
{
    if (b->ref[0] == WF_BULK_REGION)
        return region_hold(ep, b->ref + 1, b, WEFT_REMOTE_READ, at, n);
    return req_hold(wf_req_get(ep, wf_word64(b->ref + 1)), wf_word64(b->ref + 3), b->len, at, n);
}

static void *in_hold(struct weft_ep *ep, const struct wf_bulk *b, uint32_t at, size_t *n)
{
    const uint32_t *a = b->args;
    switch (wf_ctl_bulk_of(b->handler, b->is_reply)) {
    case WF_CTL_BULK_REGION:
        return b->nargs < WF_REGION_ARGS ? NULL : region_hold(ep, a, b, WEFT_REMOTE_WRITE, at, n);
    case WF_CTL_BULK_GET:
        return req_hold(wf_rma_got_by(ep, b->token, a, b->nargs), wf_word64(a + 2), b->len, at, n);
    case WF_CTL_BULK_COPY:
        return b->is_reply ? req_hold(wf_msg_piece_of(ep, b->token, a, b->nargs), wf_word64(a + 2),
                                      b->len, at, n)
                           : wf_msg_push_hold(ep, b, at, n);
    case WF_CTL_BULK_NONE: break;
    }
    return NULL;
}

void *wf_bulk_hold(void *owner, const struct wf_bulk *b, uint32_t at, size_t *n)
{
    *n = WF_MIN(*n, b->len - at);
    return b->token ? in_hold(owner, b, at, n) : out_hold(owner, b, at, n);
}

void wf_bulk_unhold(void *owner, const struct wf_bulk *b)
{
    struct weft_ep *ep = owner;
    if (!b->token && b->ref[0] == WF_BULK_REGION)
        region_unhold(ep, b->ref + 1);
    else if (b->token && wf_ctl_bulk_of(b->handler, b->is_reply) == WF_CTL_BULK_REGION)
        region_unhold(ep, b->args);
}
