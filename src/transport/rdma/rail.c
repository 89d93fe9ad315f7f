/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the port that a link takes, and the time when RDMA or a better port is tried again. */
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "transport/rdma/rail.h"

/* 10 s, the time until another link is tried; doubled after each attempt, at most RETRIES times */
#define RETRY_NS ((uint64_t)10000000000)
#define RETRIES 5
/* The time until another rail is tried, or until a channel asks again for the rail that is about to
 * open its queues again: then it is doubled each time, up to RETRY_NS */
#define NEXT_RAIL_NS UINT64_C(500000000)
#define NEXT_DOUBLINGS 5

/* Returns whether peers may perform atomics by the rail's device. After a break WRITEs and READs
 * are repeated, but atomics are not. So a link with atomics must not be broken on purpose. */
static bool has_atomics_of_others(const struct rdma_rail *r)
{
    return atomic_load_explicit(&r->device->atomic_regions, memory_order_relaxed);
}

bool wf_rdma_rail_gives_up(const struct rdma_rail *r)
{
    return r->worn && !has_atomics_of_others(r);
}

/* Returns whether a queue pair on the rail may work, as far as this side knows. */
static bool is_usable(const struct rdma_rail *r)
{
    return !r->broken && !wf_rdma_rail_gives_up(r) && !wf_rdma_has_failed(r) &&
           (r->cm || !wf_config()->rdma_cm) && wf_rdma_rail_port(r).active;
}

struct rdma_rail *wf_rdma_rail_of(const struct rdma_ep *ep, const struct net_chan *chan)
{
    const struct net_view view = wf_net_chan_view(chan);
    unsigned turn = view.index + view.gen - 1, n = ep->ctx->nports;
    /* NULL until a rail is found; an endpoint has at least one rail */
    struct rdma_rail *some = NULL;
    if (n > 1)
        wf_rdma_ctx_read_events(ep->ctx);
    for (unsigned i = 0; i < n; i++) {
        struct rdma_rail *r = ep->rails[(turn + i) % n];
        if (r && is_usable(r))
            return r;
        some = some ? some : r;
    }
    return some;
}

uint32_t wf_rdma_gen_step(const struct net_chan *chan)
{
    const struct net_path *path = *wf_net_chan_path(chan);
    const struct net_view view = wf_net_chan_view(chan);
    uint32_t n = wf_rdma_ep_of(wf_net_chan_ep(chan))->ctx->nports, past;
    if (n < 2 || (path && path->rail_wish == RAIL_NEXT))
        return 1;
    if (!path || path->rail_wish < RAIL_TO)
        return n;
    past = (view.index + view.gen - 1 + n + RAIL_TO - path->rail_wish) % n;
    return n - past;
}

/* Returns how many queue pairs may fail before the socket is used: one for each rail, and one more,
 * but at least QP_TRIES. */
unsigned wf_rdma_tries(const struct rdma_ep *ep)
{
    return WF_MAX(QP_TRIES, ep->ctx->nports + 1);
}

void wf_rdma_rail_failed(struct qp_link *l)
{
    struct net_path *path = l->path;
    if (l->rail->ep->ctx->nports < 2)
        return;
    path->failures += path->failures < UINT8_MAX;
    path->next_rail = path->failures < wf_rdma_tries(l->rail->ep);
}

/* ---- the time of the next attempt ---- */

/* Returns how long a channel waits for another rail, or for its own rail's queues. */
static uint64_t next_rail_ns(const struct net_path *path)
{
    unsigned doublings = WF_MIN(path->waits - (path->waits > 0), NEXT_DOUBLINGS);
    return WF_MIN(NEXT_RAIL_NS << doublings, RETRY_NS);
}

void wf_rdma_retry_plain(struct net_path *path)
{
    path->retry_ns = wf_now_ns() + (path->next_rail ? next_rail_ns(path)
                                                    : RETRY_NS << WF_MIN(path->retries, RETRIES));
}

/* Sets the time for trying a better rail. The side that dials ([is_greater]) acts first, since that
 * side chooses the rail. The other side usually waits twice as long. */
void wf_rdma_retry_up(struct net_path *path, bool is_greater)
{
    unsigned patience = path->returns + !is_greater;
    path->next_rail = false;
    path->retry_ns = wf_now_ns() + (RETRY_NS << WF_MIN(patience, RETRIES));
}

/* ---- a better rail ---- */

static void links_count(const struct net_session *session, unsigned count[WF_RDMA_RAILS])
{
    memset(count, 0, WF_RDMA_RAILS * sizeof *count);
    for (unsigned i = 0; i < wf_net_session_width(session); i++) {
        const struct net_chan *chan = wf_net_session_at(session, i);
        const struct qp_link *l = chan ? wf_qp_up(chan) : NULL;
        if (l)
            count[l->rail->number]++;
    }
}

static bool rail_works(const struct rdma_ep *ep, unsigned i)
{
    return ep->rails[i] && is_usable(ep->rails[i]);
}

/* Returns whether links are being replaced: a channel of the session has no link, or a handshake of
 * the endpoint is under way. */
static bool is_changing(const struct rdma_ep *ep, const struct net_session *session)
{
    for (unsigned i = 0; i < wf_net_session_width(session); i++) {
        const struct net_chan *chan = wf_net_session_at(session, i);
        if (chan && !wf_net_chan_link(chan) && !wf_net_chan_view(chan).is_lost)
            return true;
    }
    return ep->nshaking;
}

/* Lane 0 should use the first rail, since short puts go only to the peer's first device. Any other
 * lane should use the rail with the fewest links of the session, if that rail has at least two
 * links fewer than the lane's present rail. */
int wf_rdma_better_rail(const struct qp_link *l)
{
    const struct rdma_ep *ep = l->rail->ep;
    const struct net_session *session = wf_net_chan_session(l->base.chan);
    unsigned count[WF_RDMA_RAILS], least = l->rail->number;
    if (ep->ctx->nports < 2 || l->state != QP_UP || is_changing(ep, session) ||
        has_atomics_of_others(l->rail))
        return -1;
    if (!l->lane)
        return l->rail->number && rail_works(ep, 0) ? 0 : -1;
    links_count(session, count);
    for (unsigned i = 0; i < ep->ctx->nports; i++)
        if (count[i] < count[least] && rail_works(ep, i))
            least = i;
    return count[least] + 2 <= count[l->rail->number] ? (int)least : -1;
}

/* ---- trying another link ---- */

bool wf_rdma_is_worn(const struct rdma_ep *ep)
{
    const struct rdma_rail *r;
    wf_rdma_each_rail(ep, i, r)
    {
        if (wf_rdma_rail_gives_up(r))
            return true;
    }
    return false;
}

static void retry_count(struct net_path *path, const struct qp_link *l)
{
    path->rail_wish = RAIL_NEXT;
    if (l) {
        path->rail_wish = (uint8_t)(RAIL_TO + wf_rdma_better_rail(l));
        path->returns += path->returns < UINT8_MAX;
    } else if (!path->next_rail) {
        path->retries += path->retries < UINT8_MAX;
        path->failures = WF_MIN(path->failures, 1);
    }
    path->next_rail = false;
}

/* Returns whether the channel of [path] should try another link now. */
static bool is_wanted(const struct net_path *path, const struct qp_link *l, uint64_t now)
{
    if (now < path->retry_ns || !wf_net_chan_link(path->chan))
        return false;
    if (!l)
        return true;
    return wf_qp_up(path->chan) && (wf_rdma_rail_gives_up(l->rail) || wf_rdma_better_rail(l) >= 0);
}

/* Breaks one idle link whose channel should try another link. Since the link is idle, no frame or
 * NIC operation of this side is interrupted. Unfinished WRITEs and READs of the peer are repeated
 * after the break. Only one link is broken at a time, so that the session's other channels go
 * on. */
void wf_rdma_retry(struct rdma_ep *ep)
{
    uint64_t now = wf_now_ns();
    wf_list_each(it, &ep->paths)
    {
        struct net_path *path = wf_container_of(it, struct net_path, item);
        const struct qp_link *l = wf_qp_link_of(path->chan);
        bool wanted = is_wanted(path, l, now);
        const struct net_link *link = wf_net_chan_link(path->chan);
        const struct net_view view = wf_net_chan_view(path->chan);
        wf_net_chan_avoid(path->chan, wanted && l && view.index); /* lane 0 must stay in use */
        if (!wanted || !view.is_settled || !link->ops->is_idle(link))
            continue;
        wf_list_remove(&path->item); /* next time the other paths come first */
        wf_list_append(&ep->paths, &path->item);
        retry_count(path, l);
        wf_net_chan_break(path->chan, "RDMA is tried again");
        return;
    }
}
