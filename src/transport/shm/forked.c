/* SPDX-License-Identifier: BSD-3-Clause */
/* What a forked child must not touch: the rings and the doorbell that its parent shares with peers.
 *
 * A handler may fork. When the handler returns in the child, the child goes on in the middle of the
 * parent's poll. If it used the parent's connections, it would take the parent's messages, clear
 * its doorbell, and write into rings at positions that the parent uses, too. So the child gets
 * connections that refer to memory of its own, in which no message ever comes. The poll of the
 * connections finds nothing more and returns, without a check for each message. Only the loops over
 * lost peers and the shuffled poll check whether this is the child (is_forked in poll.c).
 *
 * The message whose handler runs stays where it is: the child may read it.
 *
 * Another thread of the parent may have been inside an endpoint during the fork. So the arrays of
 * connections are valid then: those for receiving grow under ctx->lock, which the fork takes, and a
 * connection is stored before it is counted, and not counted any more before it is freed. */
#define _GNU_SOURCE
#include "transport/shm/shm.h"

/* Room for one line, one reply, no payload, and counters that nothing reads. All connections of the
 * child share it. */
static struct {
    struct wf_shm_line line;
    struct wf_shm_bell bell;
    uint64_t counters[WF_STATS]; /* the parent's are in shared memory */
    union {
        struct wf_shm_back back;
        uint8_t room[sizeof(struct wf_shm_back) + sizeof(struct wf_shm_reply)];
    } b;
} own __attribute__((aligned(WF_CACHE_LINE)));

static void rx_forked(struct shm_rx *rx)
{
    rx->lines = &own.line;
    rx->back = &own.b.back;
    rx->mask = 0;
    wf_store_relaxed(&rx->down, 0);
}

/* Without credit each send takes the way that reads [down]. A reply's handler may have forked: the
 * poll that has called it looks for the next reply. */
static void tx_forked(struct shm_tx *tx)
{
    tx->back = &own.b.back;
    tx->mask = 0;
    tx->credit_end = tx->tail;
    wf_store_relaxed(&tx->down, (int)WEFT_EFORKED);
}

void wf_shm_tep_forked(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->nrx; i++)
        rx_forked(t->rx[i]);
    for (uint32_t i = 0; i < t->ntx; i++)
        tx_forked(t->tx[i]);
    t->nrx = t->nrx_hot = t->ntx = t->ntx_hot = 0;
    t->base.counters = own.counters;
    t->bell = &own.bell;
    t->flags = 0;
    wf_store_relaxed(&t->inbox, 0);
}
