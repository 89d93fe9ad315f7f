/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending by a queue pair, and granting credits to the peer. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "config/config.h"
#include "transport/rdma/qp_run.h"
#include "transport/rdma/rail.h"

/* ---- requests ---- */

/* Returns how many more SENDs the peer's grants allow. */
static uint32_t room(struct qp_link *l)
{
    uint32_t credit =
        atomic_load_explicit(wf_rdma_credit_at(l->rail, l->credit), memory_order_acquire);
    int32_t left;
    if ((int32_t)(credit - l->allowed) > 0)
        l->allowed = credit;
    left = (int32_t)(l->allowed - l->sends);
    return left > 0 ? (uint32_t)left : 0;
}

/* Returns whether the request [q], which is posted next, must ask for a completion. A WRITE that a
 * READ follows does not ask; the READ always asks. Any other request asks in each of these cases:
 * - the last signal_each - 1 requests did not ask;
 * - the request holds memory;
 * - the link closes;
 * - half of the rail's limit of requests is used;
 * - the request is a NIC operation, and no other completion is due. */
static bool is_signaled(struct qp_link *l, const struct qp_request *q)
{
    if (q->follow)
        return q->follow == FOLLOW_BOTH;
    return wf_qp_unsignaled(l) + 1 >= l->signal_each || q->piece != NO_PIECE || q->desc ||
           l->closing || l->rail->under_way >= QP_UNDER_WAY / 2 ||
           (q->is_nic_op && !wf_qp_is_told(l));
}

static uint32_t packets_of(const struct qp_link *l, const struct wf_hca_wr *wr)
{
    uint32_t len = 0;
    for (unsigned i = 0; i < wr->nsge; i++)
        len += wr->sge[i].len;
    return len ? (len - 1) / l->qp->mtu + 1 : 1;
}

static void request_name(struct qp_link *l, struct wf_hca_wr *wr, const struct qp_request *q)
{
    wr->id = l->id_base | l->posted;
    wr->flags |= is_signaled(l, q) ? WF_HCA_SIGNALED : 0;
}

static void request_keep(struct qp_link *l, const struct wf_hca_wr *wr, const struct qp_request *q,
                         uint32_t packets)
{
    struct qp_request *at;
    wf_qp_run_close(l);
    at = wf_qp_request_at(l, l->posted++);
    l->rail->under_way++;
    *at = *q;
    at->packets = (uint16_t)packets;
    if (q->is_nic_op)
        l->moving += packets;
    if (wr->flags & WF_HCA_SIGNALED)
        l->signaled = l->posted;
}

/* Returns false if the NIC did not accept all requests; the link has then failed. */
static bool doorbell_ring(struct qp_link *l, const struct wf_hca_wr *list, unsigned n)
{
    if (l->post(l->qp, list, n) == n)
        return true;
    wf_qp_fail(l, WF_HCA_LOCAL_FAULT);
    return false;
}

bool wf_qp_post(struct qp_link *l, struct wf_hca_wr *wr, const struct qp_request *q)
{
    request_name(l, wr, q);
    if (!doorbell_ring(l, wr, 1))
        return false;
    request_keep(l, wr, q, packets_of(l, wr));
    return true;
}

/* ---- credits ---- */

/* Returns whether there is room for a WRITE to the peer's credit word. */
static bool may_write(const struct qp_link *l)
{
    return l->state == QP_UP && wf_qp_in_flight(l) < l->depth && l->rail->under_way < QP_UNDER_WAY;
}

/* Writes [now], the total of granted SENDs, to the peer's credit word, by a WRITE or a WRITE_IMM. A
 * WRITE_IMM uses one of the peer's receive buffers. The completion of the WRITE_IMM wakes a peer
 * that sleeps for lack of credit. */
static void credit_write(struct qp_link *l, uint32_t now, enum wf_hca_op op)
{
    struct wf_hca_wr wr = {.op = (uint8_t)op,
                           .nsge = 1,
                           .imm = wf_qp_imm(l->their_imm, l->sends),
                           .rkey = l->their_credit_key,
                           .remote = l->their_credit,
                           .sge = {{&now, sizeof now, 0}}};
    if (!may_write(l))
        return; /* the next completion calls wf_qp_grant again */
    if (l->inline_max >= sizeof now) {
        wr.flags = WF_HCA_INLINE;
    } else {
        /* Send from the link's source word. If an earlier WRITE from this word is still under way,
         * that WRITE may already send the newer total, which does no harm. */
        uint32_t *at = (uint32_t *)(void *)wf_rdma_credit_at(l->rail, l->rail->credits + l->credit);
        *at = now;
        wr.sge[0] = (struct wf_hca_sge){at, sizeof now, l->rail->credits_mr->lkey};
    }
    if (wf_qp_post(l, &wr, &wf_qp_none))
        l->granted = now;
}

/* Returns the window, the number of SENDs granted to a peer at a time. With a shared receive queue,
 * the links of the rail share a quarter of the receive buffers equally, but each window is between
 * QP_WINDOW and QP_MSG_WINDOW. */
static uint32_t window_of(const struct rdma_rail *r)
{
    uint32_t part = r->receives / 4 / WF_MAX(r->nlinks, 1);
    return r->srq ? WF_MIN(WF_MAX(part, QP_WINDOW), QP_MSG_WINDOW) : QP_WINDOW;
}

void wf_qp_grant(struct qp_link *l)
{
    uint32_t left = l->granted - l->taken, window;
    if (left > QP_MSG_WINDOW / 2 || l->state != QP_UP)
        return;
    window = window_of(l->rail);
    if (left <= window / 2)
        credit_write(l, l->taken + window, WF_HCA_WRITE_IMM);
}

void wf_qp_ask(struct qp_link *l)
{
    bool closing = l->closing;
    if (l->inline_max >= sizeof l->granted) {
        if (may_write(l))
            wf_qp_ask_inline(l);
        return;
    }
    l->closing = true;
    credit_write(l, l->granted, WF_HCA_WRITE);
    l->closing = closing;
}

/* ---- frames ---- */

/* Copies [len] bytes of [v], starting at offset [from]. Bit i of [lent] is set if v[i]
 * is memory that the core lent for a transfer. Returns false with errno if some of it is not
 * there. */
static bool gather(const struct net_chan *chan, uint8_t *to, const struct iovec *v, unsigned n,
                   size_t from, size_t len, uint64_t lent)
{
    for (unsigned i = 0; i < n && len; i++) {
        const uint8_t *base = v[i].iov_base;
        size_t part;
        if (from >= v[i].iov_len) {
            from -= v[i].iov_len;
            continue;
        }
        part = WF_MIN(len, v[i].iov_len - from);
        if (!(lent >> i & 1))
            memcpy(to, base + from, part);
        else if (!wf_net_chan_lent_read(chan, to, base + from, part))
            return false;
        to += part;
        len -= part;
        from = 0;
    }
    return true;
}

/* Returns whether the link may use one more piece, a registered send buffer. Each link has a share,
 * so that links to peers that do not poll cannot use up the pieces. */
static bool piece_is_to_be_had(const struct qp_link *l)
{
    const struct rdma_rail *r = l->rail;
    return r->nfree_pieces && (l->npieces < 4 || l->npieces < r->pieces / (r->nlinks + 1));
}

/* Returns whether a SEND of [len] bytes has room in this side's queues and in the peer's receive
 * buffers. */
static bool may_send(struct qp_link *l, uint32_t len)
{
    uint32_t keeps = len < QP_BUFFER && !l->base.is_last ? l->reserve : 0;
    /* the credit word is read only if the grants read last do not suffice */
    return ((int32_t)(l->allowed - l->sends - keeps) > 0 || room(l) > keeps) &&
           wf_qp_in_flight(l) < l->most && wf_qp_rail_has_room(l);
}

/* Fills in *wr as a SEND of [len] bytes of [v] at offset [from]; the caller posts it. [little] is a
 * buffer for the bytes of an inline SEND. Only the last SEND of a list is short enough to be
 * inline. Returns false with errno, which is EAGAIN if there is no room. */
static bool send_make(struct qp_link *l, const struct iovec *v, unsigned n, size_t from,
                      uint32_t len, uint64_t lent, uint8_t *little, struct wf_hca_wr *wr)
{
    struct rdma_rail *r = l->rail;
    struct qp_request q = wf_qp_none;
    uint8_t *bytes = little;
    *wr = (struct wf_hca_wr){
        .op = WF_HCA_SEND_IMM, .nsge = 1, .imm = wf_qp_imm(l->their_imm, l->sends)};
    errno = EAGAIN;
    if (!may_send(l, len))
        return false;
    if (len <= l->inline_max) {
        wr->flags = WF_HCA_INLINE;
    } else {
        if (!piece_is_to_be_had(l))
            return false;
        q.piece = r->free_pieces[r->nfree_pieces - 1];
        bytes = wf_rdma_piece_at(r, q.piece);
    }
    if (!gather(l->base.chan, bytes, v, n, from, len, lent))
        return false;
    wr->sge[0] = (struct wf_hca_sge){bytes, len, r->mr->lkey};
    if (q.piece != NO_PIECE) {
        r->nfree_pieces--;
        l->npieces++;
    }
    request_name(l, wr, &q);
    request_keep(l, wr, &q, packets_of(l, wr));
    l->sends++;
    return true;
}

/* Sends as much of [v] as there is room for. If the queue pair fails meanwhile, bytes that the NIC
 * did not accept count as sent, too. The channel sends all unacknowledged bytes again by its next
 * link. */
ssize_t wf_qp_sendv(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                    uint64_t lent)
{
    struct qp_link *l = wf_qp_of(link);
    struct wf_hca_wr list[QP_POST_LIST];
    uint8_t little[QP_INLINE_MAX];
    const unsigned most = (unsigned)wf_config()->rdma_post_list;
    unsigned listed = 0;
    size_t done = 0;
    errno = ECONNRESET;
    while (done < len && l->state == QP_UP) {
        uint32_t part = (uint32_t)WF_MIN(len - done, QP_BUFFER);
        if (!send_make(l, v, n, done, part, lent, little, &list[listed]))
            break;
        done += part;
        if (++listed == most && doorbell_ring(l, list, listed))
            listed = 0;
    }
    if (listed && l->state == QP_UP)
        (void)doorbell_ring(l, list, listed);
    link->is_full = done < len;
    return done ? (ssize_t)done : -1;
}

bool wf_qp_send_one(struct net_link *link, const void *bytes, uint32_t len)
{
    struct qp_link *l = wf_qp_of(link);
    struct wf_hca_wr *wr = &l->send;
    if (l->state != QP_UP || len > l->inline_max || !may_send(l, len))
        return false;
    wr->flags = WF_HCA_INLINE;
    wr->imm = wf_qp_imm(l->their_imm, l->sends);
    wr->sge[0].addr = (void *)(uintptr_t)bytes;
    wr->sge[0].len = len;
    request_name(l, wr, &wf_qp_none);
    if (!doorbell_ring(l, wr, 1))
        return false;
    request_keep(l, wr, &wf_qp_none, 1);
    l->sends++;
    return true;
}

/* Returns whether all requests have completed. If the newest requests are unsignaled, first posts a
 * request that asks for a completion. */
bool wf_qp_flushed(struct net_link *link)
{
    struct qp_link *l = wf_qp_of(link);
    if (l->state != QP_UP)
        return l->state == QP_FAILED;
    l->closing = true;
    if (wf_qp_in_flight(l) && wf_qp_unsignaled(l))
        wf_qp_ask(l);
    return !wf_qp_in_flight(l);
}
