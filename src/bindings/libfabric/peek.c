/* SPDX-License-Identifier: BSD-3-Clause */
/* FI_PEEK, FI_CLAIM and FI_DISCARD of fi_trecvmsg. A claimed message is found again by the context
 * of the peek. */
#include <stdlib.h>

#include "op.h"

struct wfi_claim {
    struct wfi_claim *next;
    struct weft_msg *msg;
    void *context;
    struct weft_msg_info info;
};

#define PEEK_FLAGS                                                                                 \
    (FI_PEEK | FI_CLAIM | FI_DISCARD | FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE)

/* Report a message that was found, or dropped. */
static void report_found(struct wfi_ep *ep, const struct wfi_message *m,
                         const struct weft_msg_info *info, uint64_t flags)
{
    struct weft_op found = {.status = WEFT_OK,
                            .len = info->len,
                            .tag = info->tag,
                            .sender = info->sender,
                            .data = info->data,
                            .has_data = info->has_data};
    wfi_recv_report(ep, m->context, FI_RECV | FI_TAGGED, NULL, 0, &found, NULL,
                    wfi_reports(ep->rx_selective, flags));
}

/* Returns what the call returns: without a queue for it, the error. */
static ssize_t report_none(struct wfi_ep *ep, const struct wfi_message *m)
{
    const struct fi_cq_err_entry e = {.op_context = m->context,
                                      .flags = FI_RECV | FI_TAGGED,
                                      .tag = m->tag,
                                      .err = FI_ENOMSG,
                                      .prov_errno = WEFT_AGAIN};
    if (!ep->rx_cq)
        return -FI_ENOMSG;
    wfi_cq_fail(ep->rx_cq, &e, NULL, 0);
    return 0;
}

static void claim_put(struct wfi_ep *ep, struct wfi_claim *claim)
{
    wfi_lock(&ep->free_lock);
    claim->next = ep->claims;
    ep->claims = claim;
    wfi_unlock(&ep->free_lock);
}

/* Drop the message of [claim], and report it. After a failure the message stays claimed: the
 * program can drop it by its context, and the endpoint drops it when it closes. */
static ssize_t discard(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags,
                       struct wfi_claim *claim)
{
    const struct weft_msg_info info = claim->info;
    enum weft_status s = weft_msg_drop(ep->wep, claim->msg);
    if (s != WEFT_OK) {
        claim_put(ep, claim);
        return wfi_result(s);
    }
    free(claim);
    report_found(ep, m, &info, flags);
    return 0;
}

static ssize_t peek(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    struct weft_msg_filter filter;
    struct weft_msg_info info;
    struct weft_msg *msg = NULL;
    struct wfi_claim *claim = NULL;
    bool take = flags & (FI_CLAIM | FI_DISCARD);
    enum weft_status s;
    int rc = wfi_filter(ep, m, &filter);
    if (rc)
        return rc;
    if (take && !(claim = malloc(sizeof *claim)))
        return -FI_ENOMEM;
    s = weft_msg_find(ep->wep, &filter, &info, take ? &msg : NULL);
    if (s != WEFT_OK) {
        free(claim);
        return s == WEFT_AGAIN ? report_none(ep, m) : wfi_result(s);
    }
    if (take)
        *claim = (struct wfi_claim){NULL, msg, m->context, info};
    if (flags & FI_DISCARD) /* also with FI_CLAIM: nothing is left to claim */
        return discard(ep, m, flags, claim);
    if (take)
        claim_put(ep, claim);
    report_found(ep, m, &info, flags);
    return 0;
}

/* Take the claim of [context] from the list. */
static struct wfi_claim *claim_take(struct wfi_ep *ep, const void *context)
{
    struct wfi_claim **at = &ep->claims, *claim;
    wfi_lock(&ep->free_lock);
    while (*at && (*at)->context != context)
        at = &(*at)->next;
    claim = *at;
    if (claim)
        *at = claim->next;
    wfi_unlock(&ep->free_lock);
    return claim;
}

/* Weft receives a claimed message into one buffer: several get it from memory of the provider's. */
static void *bounce(struct wfi_op *o, const struct wfi_message *m)
{
    struct wfi_extra *x;
    if (m->count <= 1)
        return m->count ? m->iov[0].iov_base : NULL;
    x = calloc(1, sizeof *x + m->count * sizeof *x->iov);
    if (!x || !(x->bounce = malloc(o->len + 1))) {
        free(x);
        return NULL;
    }
    for (x->count = 0; x->count < m->count; x->count++)
        x->iov[x->count] = m->iov[x->count];
    o->extra = x;
    return x->bounce;
}

/* May the program use the claim again after weft_msg_take has returned [s]? */
static bool is_claimed_still(enum weft_status s)
{
    switch (s) {
    case WEFT_EINVAL:
    case WEFT_ENOMEM:
    case WEFT_ELIMIT:
    case WEFT_ESYSTEM:
    case WEFT_AGAIN:
    case WEFT_ECONTEXT:
    case WEFT_EFORKED: return true;
    default: return false;
    }
}

static ssize_t claim_receive(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags,
                             struct weft_msg *msg)
{
    struct wfi_op *o = wfi_op_take(ep);
    enum weft_status s;
    void *buf;
    if (!o)
        return -FI_ENOMEM;
    wfi_op_begin(o, m->context, FI_RECV | FI_TAGGED, ep->rx_cq, ep->recv_cntr,
                 wfi_reports(ep->rx_selective, flags));
    o->op.done = wfi_recv_done;
    o->buf = m->count ? m->iov[0].iov_base : NULL;
    o->len = wfi_iov_length(m->iov, m->count);
    buf = bounce(o, m);
    s = m->count > 1 && !buf ? WEFT_ENOMEM : weft_msg_take(ep->wep, msg, buf, o->len, &o->op);
    if (s == WEFT_PENDING)
        return 0;
    if (is_claimed_still(s))
        return wfi_recv_started(o, NULL, s);
    o->op.status = s;
    o->op.done(&o->op);
    return 0;
}

/* In a window. */
static ssize_t peek_or_claim(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    struct wfi_claim *claim;
    ssize_t rc;
    if (flags & FI_PEEK)
        return peek(ep, m, flags);
    claim = claim_take(ep, m->context);
    if (!claim) {
        WFI_WARN(EP_DATA, "FI_CLAIM with a context by which no peek has claimed a message\n");
        return -FI_EINVAL;
    }
    if (flags & FI_DISCARD)
        return discard(ep, m, flags, claim);
    rc = claim_receive(ep, m, flags, claim->msg);
    if (rc)
        claim_put(ep, claim); /* the program can call again */
    else
        free(claim);
    return rc;
}

ssize_t wfi_recv_peek(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    ssize_t rc;
    if (flags & ~(uint64_t)PEEK_FLAGS || !(flags & (FI_PEEK | FI_CLAIM)))
        return -FI_EBADFLAGS;
    if (m->count > WFI_IOV && !(flags & (FI_PEEK | FI_DISCARD))) /* these ignore the buffers */
        return -FI_EINVAL;
    if (flags & FI_PEEK)
        (void)wfi_ep_progress(ep);
    wfi_window_open(ep);
    rc = peek_or_claim(ep, m, flags);
    wfi_window_close(ep);
    return rc;
}

enum weft_status wfi_claims_close(struct wfi_ep *ep)
{
    while (ep->claims) {
        struct wfi_claim *claim = ep->claims;
        enum weft_status s = weft_msg_drop(ep->wep, claim->msg);
        if (s != WEFT_OK) {
            WFI_WARN(EP_CTRL, "fi_close: a claimed message could not be dropped: %s\n",
                     weft_status_text(s));
            return s;
        }
        ep->claims = claim->next;
        free(claim);
    }
    return WEFT_OK;
}
