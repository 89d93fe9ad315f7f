/* SPDX-License-Identifier: BSD-3-Clause */
/* Which port a link takes, and when RDMA or a better port is tried again. */
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "transport/rdma/qp_link.h"

#define RETRY_NS ((uint64_t)10000000000) /* until another link is tried; doubles each time */
#define RETRIES 5
#define NEXT_RAIL_NS 500000000u

/* May a queue pair on the rail work, as far as this side knows? */
static bool is_usable(const struct rdma_rail *r)
{
    return !r->broken && !wf_rdma_is_gone(r) && (r->cm || !wf_config()->rdma_cm) &&
           wf_rdma_rail_port(r).active;
}

struct rdma_rail *wf_rdma_rail_of(const struct rdma_ep *ep, const struct net_chan *chan)
{
    const struct net_view view = wf_net_chan_view(chan);
    unsigned turn = view.index + view.gen - 1, n = ep->ctx->nports;
    struct rdma_rail *some = NULL; /* an endpoint has at least one rail */
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

/* Enough attempts for each rail, and for one of them twice. */
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

/* ---- when ---- */

void wf_rdma_retry_plain(struct net_path *path)
{
    path->retry_ns =
        wf_now_ns() + (path->next_rail ? NEXT_RAIL_NS : RETRY_NS << WF_MIN(path->retries, RETRIES));
}

/* The side that dials acts first, since it chooses the rail; the other side waits twice as long. */
void wf_rdma_retry_up(struct net_path *path, bool is_greater)
{
    unsigned patience = path->returns + !is_greater;
    path->next_rail = false;
    path->retry_ns = wf_now_ns() + (RETRY_NS << WF_MIN(patience, RETRIES));
}

/* ---- a better rail ---- */

/* May the peer have atomics under way? A break does not repeat these, as it does WRITEs and READs.
 */
static bool has_atomics_of_others(const struct rdma_rail *r)
{
    return atomic_load_explicit(&r->device->atomic_regions, memory_order_relaxed);
}

/* Links of a session, on each rail. */
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

/* Is any of a session's channels between two links? */
static bool is_changing(const struct rdma_ep *ep, const struct net_session *session)
{
    for (unsigned i = 0; i < wf_net_session_width(session); i++) {
        const struct net_chan *chan = wf_net_session_at(session, i);
        if (chan && !wf_net_chan_link(chan) && !wf_net_chan_view(chan).is_lost)
            return true;
    }
    return ep->nshaking;
}

/* For lane 0 the first rail, since short puts go to the peer's first device. For other lanes the
 * rail with the fewest links, if that has at least two fewer. */
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

/* ---- again ---- */

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

/* Is another link wanted for [path] now? */
static bool is_wanted(const struct net_path *path, const struct qp_link *l, uint64_t now)
{
    if (now < path->retry_ns || !wf_net_chan_link(path->chan))
        return false;
    return l ? wf_qp_up(path->chan) && wf_rdma_better_rail(l) >= 0 : true;
}

/* The link must be idle. The peer's WRITEs and READs that are under way are done again, its atomics
 * are not. One link at a time: meanwhile the session's other channels go on. */
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
        wf_net_chan_avoid(path->chan, wanted && l && view.index); /* lane 0 has to go on */
        if (!wanted || !view.is_settled || !link->ops->is_idle(link))
            continue;
        wf_list_remove(&path->item); /* the other paths come first next time */
        wf_list_append(&ep->paths, &path->item);
        retry_count(path, l);
        wf_net_chan_break(path->chan, "RDMA is tried again");
        return;
    }
}
