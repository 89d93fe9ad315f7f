/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives. */
#include <string.h>

#include "op.h"

#define RECV_FLAGS (FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE)

/* Report that the source of a message is not in the address vector. */
static void report_unknown(struct wfi_ep *ep, struct fi_cq_err_entry *e,
                           const struct weft_op *message)
{
    uint8_t bytes[WFI_ADDR_SIZE];
    size_t len = sizeof bytes;
    if (!ep->rx_cq)
        return;
    e->err = FI_EADDRNOTAVAIL;
    e->prov_errno = WEFT_OK;
    if (weft_sender_address(message->sender, bytes, &len) != WEFT_OK)
        len = 0;
    wfi_cq_fail(ep->rx_cq, e, bytes, len);
}

__attribute__((noinline)) static void recv_fail(struct wfi_ep *ep, struct fi_cq_err_entry *e,
                                                size_t room, const struct weft_op *message,
                                                struct wfi_cntr *cntr)
{
    if (message->sender)
        wfi_sender_note(ep, message->sender);
    e->err = wfi_errno((enum weft_status)message->status);
    e->prov_errno = message->status;
    if (message->status == WEFT_ETRUNC) {
        e->olen = message->len - room;
        e->len = room;
    } else {
        /* Without a message these fields have no meaning. */
        e->data = 0;
        e->tag = 0;
        e->len = 0;
        e->flags &= ~(uint64_t)FI_REMOTE_CQ_DATA;
    }
    if (ep->closing)
        return;
    if (cntr)
        (void)weft_counter_add_errors(cntr->counter, 1);
    if (ep->rx_cq)
        wfi_cq_fail(ep->rx_cq, e, NULL, 0);
}

void wfi_recv_report(struct wfi_ep *ep, void *context, uint64_t flags, void *buf, size_t room,
                     const struct weft_op *message, struct wfi_cntr *cntr, bool report)
{
    fi_addr_t source;
    flags |= message->has_data ? FI_REMOTE_CQ_DATA : 0;
    if (WEFT_UNLIKELY(message->status != WEFT_OK)) {
        struct fi_cq_err_entry e = {.op_context = context,
                                    .flags = flags,
                                    .len = message->len,
                                    .buf = buf,
                                    .data = message->data,
                                    .tag = message->tag};
        recv_fail(ep, &e, room, message, cntr);
        return;
    }
    source = wfi_source_of(ep, message->sender);
    wfi_op_count(cntr);
    if (WEFT_UNLIKELY(ep->source_err && source == FI_ADDR_NOTAVAIL)) {
        struct fi_cq_err_entry e = {.op_context = context,
                                    .flags = flags,
                                    .len = message->len,
                                    .buf = buf,
                                    .data = message->data,
                                    .tag = message->tag};
        report_unknown(ep, &e, message);
    } else if (report && ep->rx_cq) {
        wfi_cq_push(ep->rx_cq, context, flags, message->len, buf, message->data, message->tag,
                    source);
    }
}

/* Copy the message from the provider's memory to the program's buffers. */
static void scatter(const struct wfi_op *o)
{
    const char *from = o->extra->bounce;
    size_t left = o->op.len < o->len ? o->op.len : o->len;
    for (unsigned i = 0; i < o->extra->count && left; i++) {
        size_t n = o->extra->iov[i].iov_len < left ? o->extra->iov[i].iov_len : left;
        memcpy(o->extra->iov[i].iov_base, from, n);
        from += n;
        left -= n;
    }
}

void wfi_recv_done(struct weft_op *op)
{
    struct wfi_op *o = container_of(op, struct wfi_op, op);
    if (WEFT_UNLIKELY(o->extra != NULL)) {
        if (op->status == WEFT_OK || op->status == WEFT_ETRUNC)
            scatter(o);
        wfi_op_extra_free(o);
    }
    wfi_recv_report(o->ep, o->op.user, o->flags, o->buf, o->len, op, o->cntr, o->report);
    op->status = WEFT_OK;
    wfi_op_free(o);
}

void wfi_recv_unplain(struct wfi_op *o)
{
    o->op.done = wfi_recv_done;
    o->cq = o->ep->rx_cq;
    o->cntr = NULL;
    o->report = true;
}

/* Report a failure, a message of another sender than that of the last one, or one for which the
 * queue has no room. */
__attribute__((noinline)) static void plain_done_slow(struct wfi_op *o)
{
    struct wfi_ep *ep = o->ep;
    if (o->op.status == WEFT_OK) {
        fi_addr_t source = wfi_source_of(ep, o->op.sender);
        if (!ep->source_err || source != FI_ADDR_NOTAVAIL) {
            wfi_cq_put(ep->rx_cq, o->op.user, o->flags | (o->op.has_data ? FI_REMOTE_CQ_DATA : 0),
                       o->op.len, o->buf, o->op.data, o->op.tag, source);
            wfi_op_free(o);
            return;
        }
    }
    wfi_recv_unplain(o);
    wfi_recv_done(&o->op);
}

/* [source] and [context] are constants: is the source reported; has the queue entries of contexts
 * alone? All calls are in tail position, so no register has to be saved. */
static inline void plain_done(struct wfi_op *o, bool source, bool context)
{
    struct wfi_ep *ep = o->ep;
    struct wfi_cq *cq = ep->rx_cq;
    if (WEFT_UNLIKELY(!wfi_source_is_known(ep, &o->op, source) || wfi_cq_is_full(cq))) {
        plain_done_slow(o);
        return;
    }
    if (context)
        wfi_cq_put_context(cq, o->op.user, source ? ep->last_source : FI_ADDR_NOTAVAIL);
    else
        wfi_cq_put_there(cq, o->op.user, o->flags | (o->op.has_data ? FI_REMOTE_CQ_DATA : 0),
                         o->op.len, o->buf, o->op.data, o->op.tag,
                         source ? ep->last_source : FI_ADDR_NOTAVAIL);
    o->flags = 0;
    o->next = ep->free;
    ep->free = o;
}

#define PLAIN_DONE(name, source, context)                                                          \
    static void name(struct weft_op *op)                                                           \
    {                                                                                              \
        plain_done(container_of(op, struct wfi_op, op), source, context);                          \
    }

PLAIN_DONE(done_entry, false, false)
PLAIN_DONE(done_context, false, true)
PLAIN_DONE(done_source_entry, true, false)
PLAIN_DONE(done_source_context, true, true)

wfi_done wfi_recv_plain_done(bool source, bool context)
{
    static const wfi_done done[2][2] = {{done_entry, done_context},
                                        {done_source_entry, done_source_context}};
    return done[source][context];
}

ssize_t wfi_recv_started(struct wfi_op *o, const struct weft_peer *source, enum weft_status s)
{
    /* Weft sets the status of a receive that is complete, and leaves it as it was, OK, otherwise.
     */
    if (o->op.status == (int32_t)s) {
        o->op.done(&o->op);
        return 0;
    }
    if (o->extra)
        wfi_op_extra_free(o);
    wfi_op_free(o);
    return wfi_recv_result(source, s);
}

int wfi_filter(struct wfi_ep *ep, const struct wfi_message *m, struct weft_msg_filter *filter)
{
    *filter = (struct weft_msg_filter){NULL, m->tag, ~m->ignore, m->space, 0};
    if (!ep->directed || m->addr == FI_ADDR_UNSPEC)
        return 0;
    return wfi_peer(ep, m->addr, &filter->source);
}

ssize_t wfi_recv(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    struct weft_msg_filter filter;
    struct wfi_op *o;
    enum weft_status s;
    ssize_t rc;
    if (flags & FI_MULTI_RECV && m->space == WFI_SPACE_MSG)
        return wfi_recv_many(ep, m, flags);
    if (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) && m->space == WFI_SPACE_TAGGED)
        return wfi_recv_peek(ep, m, flags);
    if (flags & ~(uint64_t)RECV_FLAGS)
        return -FI_EBADFLAGS;
    if (m->count > WFI_IOV)
        return -FI_EINVAL;
    rc = wfi_filter(ep, m, &filter);
    if (rc)
        return rc;
    o = wfi_op_take_receive(ep);
    if (!o)
        return -FI_ENOMEM;
    wfi_op_begin(o, m->context, FI_RECV | (m->space == WFI_SPACE_TAGGED ? FI_TAGGED : FI_MSG),
                 ep->rx_cq, ep->recv_cntr, wfi_reports(ep->rx_selective, flags));
    o->op.done = wfi_recv_done;
    o->buf = m->count ? m->iov[0].iov_base : NULL;
    o->len = wfi_iov_length(m->iov, m->count);
    s = weft_msg_post_recv(ep->wep, &filter, m->iov, (unsigned)m->count, &o->op);
    rc = s == WEFT_PENDING ? 0 : wfi_recv_started(o, filter.source, s);
    wfi_window_close(ep);
    return rc;
}
