/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics that the NICs execute. */
#include "mem/staging.h"
#include "transport/net/channel.h"
#include "transport/rdma/qp_run.h"
#include "transport/rdma/rail.h"

/* bytes of one part of a long put or get, which is posted in parts if there are several rails */
#define NIC_OP_PART 262144u
#define LOAD_CANNOT UINT64_MAX

/* ---- one operation ---- */

/* Called when the context has no free transfer descriptor or bounce buffer (mem/staging.h). Returns
 * AGAIN if this endpoint holds descriptors, because its completions will free them and their
 * buffers. Otherwise returns EUNREACH, because this endpoint cannot await completions of other
 * endpoints. */
static enum weft_status no_desc(const struct qp_link *l)
{
    return l->rail->ep->descs ? WEFT_AGAIN : WEFT_EUNREACH;
}

/* Returns how many of the next [len] bytes of an operation, at [remote] of the peer, one request
 * moves. The first of several requests moves less than [most] bytes, so that all others begin at a
 * page boundary. */
static size_t part_len(size_t len, uint64_t remote, size_t most)
{
    return len <= most ? len : most - remote % 4096;
}

/* Sets wr->sge to memory of this side that the NIC can read or write for [m]. Lent memory is
 * registered with device 0. The bytes of a short put are inline in the request. Other memory is
 * registered, or copied to registered memory. */
static enum weft_status nic_op_place(struct qp_link *l, const struct wf_nic_op *m,
                                     struct qp_request *q, struct wf_hca_wr *wr)
{
    struct rdma_ep *ep = l->rail->ep;
    struct wf_staging *local = ep->ctx->local;
    const struct rdma_mrs *mrs;
    const struct wf_hca_mr *mr;
    enum weft_status status;
    bool is_get = m->kind == WF_NIC_OP_GET;
    if (m->is_lent) {
        /* As for any request that holds memory, but if a READ reports its end (is_signaled). */
        wr->flags = q->follow ? 0 : WF_HCA_SIGNALED;
        wr->sge[0] = (struct wf_hca_sge){m->local, (uint32_t)part_len(m->len, m->remote, QP_OP_MAX),
                                         m->lkey};
        return l->rail->device->number ? WEFT_EUNREACH : WEFT_OK;
    }
    if (!is_get && m->len <= l->inline_max) {
        wr->flags = WF_HCA_INLINE;
        wr->sge[0] = (struct wf_hca_sge){m->local, (uint32_t)m->len, 0};
        return WEFT_OK;
    }
    q->desc = wf_desc_take(local);
    if (!q->desc)
        return no_desc(l);
    status = is_get ? wf_staging_to(local, ep->user, q->desc, m->local, m->len, NULL)
                    : wf_staging_from(local, ep->user, q->desc, m->local, m->len, NULL);
    if (status != WEFT_OK) {
        wf_desc_done(local, ep->user, q->desc, false);
        return status == WEFT_AGAIN ? no_desc(l) : WEFT_EUNREACH;
    }
    mrs = q->desc->handle;
    mr = mrs->of[l->rail->device->number];
    if (!mr) { /* the device had failed when the memory was registered */
        wf_desc_done(local, ep->user, q->desc, false);
        return WEFT_EUNREACH;
    }
    wr->sge[0] = (struct wf_hca_sge){
        q->desc->addr, (uint32_t)part_len(q->desc->len, m->remote, QP_OP_MAX), mr->lkey};
    return WEFT_OK;
}

/* Posts an atomic. The caller has checked that the queues have room. The request always needs a
 * result slot, because the NIC always returns the old value. */
static enum weft_status atomic_post(struct qp_link *l, const struct wf_nic_op *m)
{
    struct rdma_rail *r = l->rail;
    uint16_t at = (uint16_t)r->free_results[r->nfree_results - 1];
    struct qp_request q = {.piece = NO_PIECE,
                           .op = m->id,
                           .is_nic_op = true,
                           .is_atomic = true,
                           .is_read = m->fetches,
                           .result = at};
    struct wf_hca_wr wr = {.op = m->kind == WF_NIC_OP_ADD ? WF_HCA_ADD : WF_HCA_CAS,
                           .nsge = 1,
                           .rkey = m->keys[l->their_device],
                           .remote = m->remote,
                           .operand = m->operand,
                           .compare = m->compare,
                           .sge = {{wf_rdma_result_at(r, at), sizeof(uint64_t), r->mr->lkey}}};
    if (!l->has_atomics)
        return WEFT_ENOSYS;
    if (!wr.rkey) /* The region's atomics are executed by another NIC of the peer. */
        return WEFT_EUNREACH;
    if (!wf_qp_post(l, &wr, &q)) /* the link has failed, and the request was not posted */
        return WEFT_AGAIN;
    r->nfree_results--;
    l->last_nic_op = l->posted;
    return WEFT_OK;
}

/* Returns whether a READ must follow the WRITE for [m], to prove that the written bytes are visible
 * to all of the peer's NICs. Every WRITE on a lane above 0 needs the READ. A long WRITE on lane 0
 * needs the READ if there are several rails, and gets it if both NICs execute READs. */
static bool is_followed(const struct qp_link *l, const struct wf_nic_op *m)
{
    bool dealt = m->len > QP_OP_SHORT && l->rail->ep->ctx->nports > 1 && l->has_reads;
    return m->kind == WF_NIC_OP_PUT && (l->lane || dealt);
}

/* Posts the READ that follows a WRITE. The caller has checked that the queues have room. If the NIC
 * does not take the READ, the link fails. */
static void follow_post(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    uint16_t at = (uint16_t)r->free_results[r->nfree_results - 1];
    struct qp_request q = {.piece = NO_PIECE, .follow = FOLLOW_BOTH, .result = at};
    struct wf_hca_wr wr = {.op = WF_HCA_READ,
                           .nsge = 1,
                           .rkey = l->their_credit_key,
                           .remote = l->their_credit,
                           .sge = {{wf_rdma_result_at(r, at), sizeof(uint32_t), r->mr->lkey}}};
    if (wf_qp_post(l, &wr, &q))
        r->nfree_results--;
}

/* Returns the counter for the way in which the bytes of a put or get reach the NIC. */
static enum wf_stat stat_of(const struct qp_request *q, const struct wf_nic_op *m)
{
    if (m->is_lent)
        return WF_STAT_NIC_DIRECT;
    if (!q->desc)
        return WF_STAT_NIC_INLINE;
    return wf_staging_is_copied(q->desc) ? WF_STAT_NIC_COPIED : WF_STAT_NIC_DIRECT;
}

enum weft_status wf_qp_nic_op(struct qp_link *l, const struct wf_nic_op *m, size_t *taken)
{
    struct rdma_rail *r = l->rail;
    struct qp_request q = {.piece = NO_PIECE,
                           .op = m->id,
                           .is_nic_op = true,
                           .is_lent = m->is_lent,
                           .is_read = m->kind == WF_NIC_OP_GET,
                           .follow = is_followed(l, m) ? FOLLOW_NEXT : FOLLOW_NONE,
                           .result = NO_RESULT};
    struct wf_hca_wr wr = {.op = m->kind == WF_NIC_OP_GET ? WF_HCA_READ : WF_HCA_WRITE,
                           .nsge = 1,
                           .rkey = m->keys[l->their_device],
                           .remote = m->remote};
    enum weft_status status;
    if (l->state != QP_UP || wf_qp_in_flight(l) + (q.follow != FOLLOW_NONE) >= l->most ||
        !wf_qp_rail_has_room(l))
        return WEFT_AGAIN;
    if (wf_nic_op_is_atomic(m)) {
        *taken = m->len;
        return atomic_post(l, m);
    }
    if (!wr.rkey || ((q.is_read || q.follow) && !l->has_reads))
        return WEFT_EUNREACH;
    status = nic_op_place(l, m, &q, &wr);
    if (status != WEFT_OK)
        return status;
    *taken = wr.sge[0].len;
    if (!wf_qp_post(l, &wr, &q)) {
        /* the link has failed, and the request was not posted */
        if (q.desc)
            wf_desc_done(r->ep->ctx->local, r->ep->user, q.desc, false);
        return WEFT_AGAIN;
    }
    r->ep->descs += q.desc != NULL;
    wf_net_count(l->base.chan->session->ep, stat_of(&q, m), 1);
    if (q.follow)
        follow_post(l);
    l->last_nic_op = l->posted;
    return WEFT_OK;
}

/* ---- choosing a link ---- */

bool wf_qp_may_leave(struct qp_link *l)
{
    if (l->state != QP_UP || !l->has_written)
        return true;
    if (!l->is_reading && l->has_reads && wf_qp_in_flight(l) < l->most && wf_qp_rail_has_room(l)) {
        l->is_reading = true;
        follow_post(l);
    }
    return false;
}

bool wf_rdma_may_spread(struct net_session *session)
{
    const struct net_chan *first = wf_net_session_at(session, 0);
    struct qp_link *l = first ? wf_qp_up(first) : NULL;
    return !l || l->rail->ep->ctx->nports < 2 || wf_qp_may_leave(l);
}

static uint64_t load_of(const struct net_chan *chan, const struct wf_nic_op *m)
{
    const struct qp_link *l = chan ? wf_qp_up(chan) : NULL;
    bool can = l && l->state == QP_UP && !wf_net_chan_is_avoided(chan) &&
               m->keys[l->their_device] &&
               /* a lane above 0 can be used once the peer's SYNC has arrived, the first frame on a
                * link */
               (!l->lane || l->base.synced);
    if (!can)
        return LOAD_CANNOT;
    if (wf_nic_op_is_atomic(m))
        can &= l->has_atomics;
    else if (m->kind == WF_NIC_OP_GET || is_followed(l, m))
        can &= l->has_reads;
    return can ? l->moving * l->qp->mtu : LOAD_CANNOT;
}

/* Returns whether parts of [m] are to be posted on several rails. */
static bool is_spread(const struct rdma_ep *ep, const struct wf_nic_op *m)
{
    return ep->ctx->nports > 1 && !wf_nic_op_is_atomic(m) && m->len > QP_OP_SHORT;
}

/* Chooses the channel that carries [m]. An operation that is not to be spread takes lane 0, if lane
 * 0 can carry it. Otherwise chooses, among the channels that can carry [m], the channel with the
 * fewest bytes of unfinished NIC operations. After a break each channel recovers its own
 * operations.
 * Returns NULL if there is no memory. */
static struct net_chan *chan_of(const struct rdma_ep *ep, struct net_session *session,
                                const struct wf_nic_op *m)
{
    struct net_chan *best = wf_net_session_first(session);
    bool spread = is_spread(ep, m);
    uint64_t least = load_of(best, m);
    if (!best || (least != LOAD_CANNOT && !spread))
        return best;
    if (spread || (wf_nic_op_is_atomic(m) && ep->ctx->nports > 1))
        /* An atomic may need a lane above 0, whose queue pair leads to the NIC for the region's
         * atomics. */
        wf_net_session_spread(session);
    if (least != LOAD_CANNOT && !wf_rdma_may_spread(session))
        return best;
    for (unsigned i = 1; i < wf_net_session_width(session); i++) {
        struct net_chan *chan = wf_net_session_at(session, i);
        uint64_t load = load_of(chan, m);
        if (load < least) {
            best = chan;
            least = load;
        }
    }
    return best;
}

enum weft_status wf_rdma_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *m, size_t *taken)
{
    struct rdma_ep *ep = wf_rdma_ep_of(NET_OF(tpeer->tep, net_ep));
    enum weft_status status = WEFT_OK;
    struct net_session *session = wf_net_peer_session(tpeer, &status);
    struct net_chan *chan = session ? chan_of(ep, session, m) : NULL;
    struct wf_nic_op part = *m;
    struct qp_link *l;
    if (!session)
        return status;
    if (!chan)
        return WEFT_ENOMEM;
    l = wf_qp_up(chan);
    /* Without a queue pair, [m] can wait only while the channel has no connection at all. */
    if (!l && (!m->waits || wf_net_chan_view(chan).up))
        return WEFT_EUNREACH;
    /* a short remainder is not split off */
    if (is_spread(ep, m) && m->len > NIC_OP_PART + QP_OP_SHORT)
        part.len = part_len(m->len, m->remote, NIC_OP_PART);
    status = l ? wf_qp_nic_op(l, &part, taken) : WEFT_AGAIN;
    if (status == WEFT_AGAIN)
        wf_net_chan_starved(chan);
    return status;
}

/* A queue pair cannot give up some of its requests. So break each link that has NIC operations
 * under way. Closing a queue pair ends all access to memory; the report of the peer's side, which
 * comes with the next link, decides how the operations end. Short puts are inline, so no NIC reads
 * their memory. */
void wf_rdma_nic_stop(struct wf_tpeer *tpeer)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = wf_net_peer_session(tpeer, &status);
    for (unsigned i = 0; session && i < wf_net_session_width(session); i++) {
        struct net_chan *chan = wf_net_session_at(session, i);
        const struct qp_link *l = chan ? wf_qp_link_of(chan) : NULL;
        if (l && l->moving)
            wf_net_chan_break(chan, "the program closes a peer amid NIC operations");
    }
}

/* ---- short puts ---- */

/* Closes the link's open run of short puts. */
void wf_qp_run_end(struct qp_link *l)
{
    wf_qp_request_at(l, l->run)->nputs = l->posted - l->run;
    l->last_nic_op = l->posted;
    wf_qp_window_close(l);
}

__attribute__((noinline, cold)) bool wf_qp_room_make(struct qp_link *l)
{
    wf_qp_run_close(l);
    return l->rail->under_way + QP_SPARE < QP_UNDER_WAY;
}

void wf_qp_runs_spell_out(struct qp_link *l)
{
    wf_qp_run_close(l);
    for (uint32_t i = l->done; i != l->posted; i++) {
        const struct qp_request *q = wf_qp_request_at(l, i);
        struct wf_tpeer *tpeer = q->put;
        uint32_t end = i + (tpeer ? q->nputs : 1);
        for (; tpeer && i != end; i++) {
            struct qp_request *one = wf_qp_request_at(l, i);
            *one = wf_qp_none;
            one->put = tpeer;
            one->nputs = 1;
        }
        i = end - 1;
    }
}

/* If the NIC refuses the request, the link fails, and the put counts as posted: the peer's report
 * will say that its NIC has not executed the put. */
static inline enum weft_status put_post(struct qp_link *l, uint64_t remote, const void *src,
                                        size_t len, uint32_t key)
{
    struct wf_hca_wr *wr = &l->put;
    wr->id = l->id_base | l->posted++;
    wr->remote = remote;
    wr->rkey = key;
    wr->sge[0].addr = (void *)(uintptr_t)src;
    wr->sge[0].len = (uint32_t)len;
    if (__builtin_expect(l->post(l->qp, wr, 1) != 1, 0))
        wf_qp_fail(l, WF_HCA_LOCAL_FAULT);
    return WEFT_PENDING;
}

static enum weft_status put_unsignaled(struct wf_put_window *w, uint64_t remote, const void *src,
                                       size_t len, uint32_t key)
{
    return put_post(w->link, remote, src, len, key);
}

static enum weft_status post_signaled(struct qp_link *l, uint64_t remote, const void *src,
                                      size_t len, uint32_t key)
{
    enum weft_status status;
    l->signaled = l->posted + 1;
    l->put.flags = WF_HCA_INLINE | WF_HCA_SIGNALED;
    status = put_post(l, remote, src, len, key);
    l->put.flags = WF_HCA_INLINE;
    return status;
}

/* The function [put] of a window whose next put asks for a completion. */
static enum weft_status put_signaled(struct wf_put_window *w, uint64_t remote, const void *src,
                                     size_t len, uint32_t key)
{
    w->put = put_unsignaled;
    return post_signaled(w->link, remote, src, len, key);
}

/* Posts a WRITE that changes nothing. */
void wf_qp_ask_inline(struct qp_link *l)
{
    struct qp_request *q;
    wf_qp_run_close(l);
    q = wf_qp_request_at(l, l->posted);
    *q = wf_qp_none;
    q->packets = 1;
    l->rail->under_way++;
    post_signaled(l, l->their_credit, &l->granted, sizeof l->granted, l->their_credit_key);
}

/* Gives the window room for [room] puts, the first of which is the next request. */
static inline void room_give(struct qp_link *l, struct wf_put_window *w, uint32_t room, bool signal)
{
    w->room = (int32_t)room;
    w->put = signal ? put_signaled : put_unsignaled;
    l->run_end = l->posted + room;
    l->rail->under_way += room;
}

/* Begins a run of short puts, whose head is the next request. */
static inline void run_begin(struct qp_link *l, struct wf_tpeer *tpeer, struct wf_put_window *w)
{
    l->window = w;
    l->rail->putting = l;
    l->run = l->posted;
    wf_qp_request_at(l, l->posted)->put = tpeer;
    w->link = l;
    w->nic = l->their_device;
    w->len_max = l->inline_max;
}

/* Room that a window holds is taken from all other links of the rail. So once that many requests of
 * the rail are under way, an idle link gets room for one put, and at twice the number any link. */
#define SCARCE (QP_UNDER_WAY / 4)

/* Opens the window of a link that has requests under way, or whose rail has many. The window has
 * room up to the next put that has to ask for a completion. If this is the put that begins now, the
 * window has room up to the one after it. A put asks for a completion if the last signal_each - 1
 * requests did not, or if no completion is due. */
static __attribute__((noinline)) bool open_busy(struct qp_link *l, struct wf_tpeer *tpeer,
                                                struct wf_put_window *w, uint32_t most)
{
    uint32_t unsignaled = wf_qp_unsignaled(l);
    bool signal = unsignaled + 1 >= l->signal_each || !wf_qp_is_told(l);
    int32_t room;
    if (l->window == w)
        l->rail->under_way -= l->run_end - l->posted; /* room that the core has not used */
    else
        wf_qp_run_close(l);
    most = WF_MIN(most, signal ? l->signal_each : l->signal_each - 1 - unsignaled);
    if (l->rail->under_way > (wf_qp_in_flight(l) ? 2 * SCARCE : SCARCE))
        most = WF_MIN(most, 1);
    room = WF_MIN((int32_t)(QP_UNDER_WAY - QP_SPARE - l->rail->under_way),
                  (int32_t)(l->most - wf_qp_in_flight(l)));
    room = WF_MIN(room, (int32_t)most);
    if (l->window == w)
        l->run_end = l->posted;
    if (room <= 0) {
        wf_qp_run_close(l);
        return false;
    }
    if (l->window != w)
        run_begin(l, tpeer, w);
    room_give(l, w, (uint32_t)room, signal);
    return true;
}

bool wf_rdma_put_open(struct wf_tpeer *tpeer, struct wf_put_window *w, uint32_t most, size_t len)
{
    struct net_link *link = wf_net_peer_link(tpeer);
    struct qp_link *l = wf_qp_of(link);
    if (!link || !link->has_nic || l->puts != QP_UP || len - 1 >= l->inline_max)
        return false;
    if (wf_qp_in_flight(l) || l->rail->under_way > SCARCE)
        return open_busy(l, tpeer, w, most);
    run_begin(l, tpeer, w);
    room_give(l, w, WF_MIN(most, l->signal_each), true);
    return true;
}
