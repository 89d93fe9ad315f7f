/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving by a queue pair, and returning the receive buffers. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "transport/rdma/rail.h"

#define WORN 4u /* a rail is worn if one of so many receive buffers is missing */
/* or if for so long nothing arrived while all of them may be missing */
#define WORN_NS UINT64_C(1000000000)

void wf_qp_receive_post(struct qp_link *l, uint32_t b)
{
    struct rdma_rail *r = l->rail;
    struct wf_hca_recv recv = {QP_RECEIVED | b, {wf_rdma_buffer_at(r, b), QP_BUFFER, r->mr->lkey}};
    if (r->device->hca->ops->post_recv(l->qp, &recv, 1) == 1)
        r->holders[b] = (uint16_t)(l->credit + 1);
    else
        r->free_receives[r->nfree_receives++] = b;
}

void wf_qp_receives_reset(struct rdma_rail *r)
{
    for (uint32_t i = 0; i < r->receives; i++)
        r->free_receives[i] = i;
    r->nfree_receives = r->receives;
    memset(r->holders, 0, r->receives * sizeof *r->holders);
    r->doubtful = 0;
    r->quiet_ns = 0;
    r->counts = r->worn = false;
}

/* Begins to count: notes the buffers that are posted, which are neither free nor unread. */
static void count_begin(struct rdma_rail *r)
{
    for (uint32_t b = 0; b < r->receives; b++)
        r->holders[b] = 1;
    for (uint32_t i = 0; i < r->nfree_receives; i++)
        r->holders[r->free_receives[i]] = 0;
    wf_list_each(it, &r->links)
    {
        const struct qp_link *l = wf_container_of(it, struct qp_link, item);
        for (uint32_t i = l->line_head; i != l->line_tail; i++)
            r->holders[l->line[i & l->line_mask].buffer] = 0;
    }
    r->later = 0;
    r->doubted = r->doubtful;
    r->counts = true;
}

static uint32_t missing_count(const struct rdma_rail *r)
{
    uint32_t missing = 0;
    for (uint32_t b = 0; b < r->receives; b++)
        missing += r->holders[b];
    return missing;
}

/* Ends a count: the queue pairs that were closed before it began left as many buffers as are
 * missing. */
static void count_end(struct rdma_rail *r)
{
    uint32_t missing = missing_count(r);
    r->counts = false;
    r->quiet_ns = 0;
    r->doubtful = r->doubtful - r->doubted + missing;
    r->worn = missing >= r->receives / WORN;
}

/* Nothing may ever arrive: [worn] is set after WORN_NS in which nothing did. */
static void quiet_check(struct rdma_rail *r)
{
    const uint64_t now_ns = wf_now_ns();
    /* It grows by 1 with each arrival since the count began. */
    uint32_t arrivals = r->later - missing_count(r);
    if (!r->quiet_ns || arrivals != r->arrivals) {
        r->arrivals = arrivals;
        r->quiet_ns = now_ns;
    } else if (now_ns - r->quiet_ns >= WORN_NS) {
        r->worn = true;
    }
}

/* The NIC uses the buffers in the order in which they were posted: when as many messages have
 * arrived as there are buffers twice, in buffers that had arrived before, those that were posted
 * all the time are missing, and the count ends. (A buffer that a message fills for so long is taken
 * for one of them.)
 *
 * | state | event                                                    | action         | next  |
 * | ----- | -------------------------------------------------------- | -------------- | ----- |
 * | sound | a quarter as many queue pairs are in doubt as there are  | begin a count  | doubt |
 * |       | buffers                                                  |                |       |
 * | doubt | the count ends, less than a quarter is missing           | -              | sound |
 * | doubt | the count ends, a quarter or more is missing             | -              | worn  |
 * | doubt | as many queue pairs are in doubt as there are buffers,   | -              | worn  |
 * |       | so that the NIC may have kept all, and for WORN_NS       |                |       |
 * |       | nothing arrived                                          |                |       |
 * | any   | the rail's last queue pair is closed                     | make the queue | sound |
 * |       |                                                          | anew           |       |
 */
void wf_qp_wear_check(struct rdma_rail *r)
{
    if (!r->srq || r->worn)
        return;
    if (r->counts && r->later >= 2 * r->receives)
        count_end(r);
    if (!r->counts && r->doubtful >= r->receives / WORN)
        count_begin(r);
    if (r->counts && r->doubtful >= r->receives)
        quiet_check(r);
    else
        r->quiet_ns = 0;
}

void wf_qp_receives_end(struct rdma_rail *r, uint32_t credit)
{
    for (uint32_t b = 0; b < r->receives; b++)
        if (r->holders[b] == credit + 1) {
            r->holders[b] = 0;
            r->free_receives[r->nfree_receives++] = b;
        }
}

void wf_qp_buffer_back(struct qp_link *l, uint32_t b)
{
    struct rdma_rail *r = l->rail;
    if (r->srq || l->state > QP_UP || !l->qp)
        r->free_receives[r->nfree_receives++] = b;
    else
        wf_qp_receive_post(l, b);
}

void wf_qp_receives_soon(struct rdma_rail *r, bool idle)
{
    if (r->nfree_receives && r->srq && (idle || r->nfree_receives >= r->batch))
        wf_rdma_receives_post(r);
}

/* Frees the buffer of the first received SEND in [line], which the channel has read. */
static void buffer_done(struct qp_link *l)
{
    uint32_t b = l->line[l->line_head++ & l->line_mask].buffer;
    l->offset = 0;
    wf_qp_buffer_back(l, b);
    l->taken++;
}

/* Returns the bytes of the oldest received SEND in place, without a copy, if no byte of the SEND
 * was read and the SEND is shorter than QP_BUFFER. Such a SEND carries the last bytes of one call
 * of the peer's wf_qp_sendv. Otherwise returns NULL, because the last frame of a SEND of QP_BUFFER
 * bytes may continue in the next SEND. */
uint8_t *wf_qp_peek(const struct net_link *link, size_t *n)
{
    const struct qp_link *l = wf_qp_of(link);
    const struct qp_arrival *c = &l->line[l->line_head & l->line_mask];
    *n = c->len;
    return l->line_head != l->line_tail && !l->offset && c->len < QP_BUFFER
               ? wf_rdma_buffer_at(l->rail, c->buffer)
               : NULL;
}

void wf_qp_consume(struct net_link *link)
{
    struct qp_link *l = wf_qp_of(link);
    buffer_done(l);
    wf_qp_receives_soon(l->rail, false);
    wf_qp_grant(l);
}

ssize_t wf_qp_recvv(struct net_link *link, const struct iovec *v, unsigned n)
{
    struct qp_link *l = wf_qp_of(link);
    uint8_t *to = v[0].iov_base;
    size_t max = v[0].iov_len;
    size_t got = 0;
    (void)n; /* always 1: the link is buffered */
    while (got < max && l->line_head != l->line_tail) {
        struct qp_arrival *c = &l->line[l->line_head & l->line_mask];
        size_t part = WF_MIN(max - got, c->len - l->offset);
        memcpy(to + got, wf_rdma_buffer_at(l->rail, c->buffer) + l->offset, part);
        got += part;
        l->offset += (uint32_t)part;
        if (l->offset == c->len)
            buffer_done(l);
    }
    wf_qp_receives_soon(l->rail, false);
    wf_qp_grant(l);
    if (got)
        return (ssize_t)got;
    errno = EAGAIN;
    if (l->state == QP_FAILED)
        errno = l->why == WF_HCA_UNREACHABLE ? ETIMEDOUT : ECONNRESET;
    return -1;
}
