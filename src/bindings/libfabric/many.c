/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of many messages into one buffer (FI_MULTI_RECV). Each message is reported by an entry
 * with its place in buf. A last entry, with FI_MULTI_RECV and without FI_RECV, returns the buffer
 * to the program. */
#include <stdlib.h>

#include "op.h"

struct wfi_many {
    struct weft_msg_many many;
    struct wfi_ep *ep;
    struct wfi_many *next;
    void *context;
    bool report;
    bool received;   /* a message was reported; [many.op] has to be reported, too */
    bool cancelling; /* fi_cancel uses it: it is not freed yet; under free_lock */
    bool ended;      /* freed when fi_cancel has used it; under free_lock */
};

__attribute__((noinline)) static void report(struct wfi_many *m, const struct weft_op *message,
                                             void *at)
{
    size_t room = m->many.len - (size_t)((char *)at - (char *)m->many.buf);
    wfi_recv_report(m->ep, m->context, FI_RECV | FI_MSG, at, room, message, m->ep->recv_cntr,
                    m->report);
}

/* The short way is that of plain receives (wfi_ep.plain_recv), which has no lock. */
static void received(struct weft_msg_many *many, const struct weft_op *message, void *at)
{
    struct wfi_many *m = container_of(many, struct wfi_many, many);
    struct wfi_ep *ep = m->ep;
    m->received = true;
    if (WEFT_UNLIKELY(!m->report || !ep->plain_recv ||
                      !wfi_source_is_known(ep, message, ep->source) || wfi_cq_is_full(ep->rx_cq)))
        report(m, message, at);
    else
        wfi_cq_put_there(ep->rx_cq, m->context,
                         FI_RECV | FI_MSG | (message->has_data ? FI_REMOTE_CQ_DATA : 0),
                         message->len, at, message->data, message->tag,
                         ep->source ? ep->last_source : FI_ADDR_NOTAVAIL);
}

/* Take [m] from the list. It is freed by this call, or by the fi_cancel that uses it. */
static void many_end(struct wfi_many *m)
{
    struct wfi_ep *ep = m->ep;
    struct wfi_many **at = &ep->many;
    bool used;
    wfi_lock(&ep->free_lock);
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->ended = true;
    used = m->cancelling;
    wfi_unlock(&ep->free_lock);
    if (!used)
        free(m);
}

static void many_done(struct weft_op *op)
{
    struct wfi_many *m = container_of(op, struct wfi_many, many.op);
    struct wfi_ep *ep = m->ep;
    if (op->status == WEFT_OK) {
        /* Always reported, also with selective completion: fi_msg(3). */
        if (ep->rx_cq)
            wfi_cq_push(ep->rx_cq, m->context, FI_MULTI_RECV, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
    } else {
        struct fi_cq_err_entry e = {.op_context = m->context,
                                    .flags = FI_RECV | FI_MSG | FI_MULTI_RECV,
                                    .buf = m->many.buf,
                                    .err = wfi_errno((enum weft_status)op->status),
                                    .prov_errno = op->status};
        if (ep->recv_cntr && !ep->closing)
            (void)weft_counter_add_errors(ep->recv_cntr->counter, 1);
        if (ep->rx_cq && !ep->closing)
            wfi_cq_fail(ep->rx_cq, &e, NULL, 0);
    }
    many_end(m);
}

ssize_t wfi_recv_many(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    struct weft_msg_filter filter;
    struct wfi_many *many;
    enum weft_status s;
    int rc;
    if (flags & ~(uint64_t)(FI_MULTI_RECV | FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE))
        return -FI_EBADFLAGS;
    if (m->count != 1 || !m->iov[0].iov_len)
        return -FI_EINVAL;
    rc = wfi_filter(ep, m, &filter);
    if (rc)
        return rc;
    many = calloc(1, sizeof *many);
    if (!many)
        return -FI_ENOMEM;
    many->ep = ep;
    many->context = m->context;
    many->report = wfi_reports(ep->rx_selective, flags);
    many->many.op.done = many_done;
    many->many.received = received;
    many->many.buf = m->iov[0].iov_base;
    many->many.len = m->iov[0].iov_len;
    many->many.least = ep->multi_least < many->many.len ? ep->multi_least : many->many.len;
    if (!many->many.least)
        many->many.least = 1;
    wfi_lock(&ep->free_lock);
    many->next = ep->many;
    ep->many = many;
    wfi_unlock(&ep->free_lock);
    s = weft_msg_recv_many(ep->wep, &filter, &many->many);
    if (s == WEFT_PENDING)
        return 0;
    /* After messages that were reported the call cannot fail: an error returns the buffer. */
    if (s == WEFT_OK || many->received) {
        many->many.op.status = s;
        many_done(&many->many.op);
        return 0;
    }
    many_end(many);
    return wfi_recv_result(filter.source, s);
}

ssize_t wfi_many_cancel(struct wfi_ep *ep, void *context)
{
    struct wfi_many *m;
    enum weft_status s;
    bool ended;
    wfi_lock(&ep->free_lock);
    for (m = ep->many; m && (m->context != context || m->cancelling); m = m->next)
        ;
    if (m)
        m->cancelling = true;
    wfi_unlock(&ep->free_lock);
    if (!m)
        return -FI_ENOENT;
    s = weft_msg_cancel(ep->wep, &m->many.op);
    wfi_lock(&ep->free_lock);
    m->cancelling = false;
    ended = m->ended;
    wfi_unlock(&ep->free_lock);
    if (ended)
        free(m);
    return s == WEFT_EBUSY ? 0 : wfi_result(s); /* EBUSY: it ends after the messages that arrive */
}

size_t wfi_many_posted(const struct wfi_ep *ep)
{
    size_t n = 0;
    for (const struct wfi_many *m = ep->many; m; m = m->next)
        n++;
    return n;
}

void wfi_many_close(struct wfi_ep *ep)
{
    while (ep->many) {
        struct wfi_many *m = ep->many;
        ep->many = m->next;
        free(m);
    }
}
