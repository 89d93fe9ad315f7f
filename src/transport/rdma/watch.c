/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks made about once a second: events of NICs, connection managers, links without
 * completions. */
#include "base/clock.h"
#include "config/config.h"
#include "transport/rdma/cm.h"
#include "transport/rdma/rail.h"

/* Limit for the calls of wf_qp_completions_take in one check. This number of calls empties a
 * completion queue of default size. */
#define LOOK_LISTS 256
#define NIC_TRIES_MS 2000u /* longer than the NIC retries before it fails a queue pair */

/* Returns how long a queue pair may go without a completion before it counts as failed:
 * WEFT_PEER_TIMEOUT. An endpoint that closes waits only for half of its time limit, since it may
 * need the other half to send its last messages by TCP. But it waits at least NIC_TRIES_MS, because
 * the NIC itself may report the failure within this time. */
static uint64_t silence_ns(const struct qp_link *l)
{
    uint64_t ms = wf_config()->peer_timeout_ms;
    uint32_t close_ms = wf_net_chan_view(l->base.chan).close_ms;
    if (close_ms)
        ms = WF_MIN(ms, WF_MAX(close_ms / 2, NIC_TRIES_MS));
    return ms * 1000000;
}

/* Fails the link if a completion is overdue. Otherwise makes sure that the requests under way
 * report a completion. */
static void link_watch(struct qp_link *l, uint64_t now)
{
    bool same = l->watched_ns && l->done == l->watched && wf_qp_in_flight(l);
    if (wf_rdma_cm_watch(l, now))
        wf_qp_fail(l, WF_HCA_UNREACHABLE);
    if (l->state != QP_UP)
        return;
    wf_qp_grant(l);
    if (same && now - l->watched_ns > silence_ns(l)) {
        wf_qp_fail(l, WF_HCA_UNREACHABLE);
        return;
    }
    if (same)
        return;
    if (wf_qp_in_flight(l) && wf_qp_unsignaled(l))
        wf_qp_ask(l);
    l->watched = l->done;
    /* The silence counts from the time when a completion became due. */
    l->watched_ns = wf_qp_in_flight(l) && !wf_qp_unsignaled(l) ? now : 0;
}

void wf_rdma_rail_check(struct rdma_rail *r)
{
    if (wf_rdma_has_failed(r) && !r->broken)
        wf_qp_rail_break(r);
    wf_rdma_rail_renew(r);
}

static void rail_look(struct rdma_rail *r)
{
    /* taken before polling, so that the time spent polling does not count as silence */
    uint64_t now = wf_now_ns();
    wf_rdma_cm_poll(r);
    wf_rdma_rail_check(r);
    for (int i = 0; i < LOOK_LISTS && wf_qp_completions_take(r) > 0; i++)
        ;
    wf_qp_wear_check(r);
    wf_rdma_receives_post(r);
    wf_list_each(it, &r->links) link_watch(wf_container_of(it, struct qp_link, item), now);
}

void wf_rdma_look(struct rdma_ep *ep)
{
    struct rdma_rail *r;
    wf_rdma_ctx_read_events(ep->ctx);
    wf_rdma_each_rail(ep, i, r) rail_look(r);
}
