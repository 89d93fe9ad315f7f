/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/cm.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#define EVENTS 256 /* that are taken at a time */
#define LEFT_NS 1000000000u
#define LIMIT_MS 10000u /* to connect: meanwhile nothing is said */
#define STEP_MS 2000u   /* to find the other side's address, and the way to it */

static const struct wf_hca_cm_ops *ops_of(const struct rdma_rail *r)
{
    return r->device->hca->ops->cm;
}

/* One of the two has to ask: the one that dials, too. */
static bool is_asker(const struct qp_link *w)
{
    return w->chan->session->is_greater;
}

static bool is_connecting(const struct qp_link *w)
{
    return w->state == QP_CONNECTING;
}

/* ---- an endpoint's ---- */

enum weft_status wf_rdma_cm_open(struct rdma_rail *r, const struct wf_hca_port *port)
{
    return wf_config()->rdma_cm ? ops_of(r)->open(r->device->hca, port, &r->cm) : WEFT_OK;
}

void wf_rdma_cm_close(struct rdma_rail *r)
{
    if (r->cm)
        ops_of(r)->close(r->cm);
    r->cm = NULL;
}

/* ---- a queue pair's ---- */

/* 0: none. While there are any, who sleeps wakes each second. */
static void deadline_set(struct qp_link *w, uint64_t at_ns)
{
    w->rdma->deadlines += (at_ns != 0) - (w->deadline_ns != 0);
    w->deadline_ns = at_ns;
}

static void failed(struct qp_link *w, const char *why)
{
    w->cm = CM_FAILED;
    w->cm_why = why;
    wf_qp_link_wake(w);
}

bool wf_rdma_cm_init(struct qp_link *w)
{
    return !w->rdma->cm || getrandom(&w->ticket, sizeof w->ticket, 0) == sizeof w->ticket;
}

void wf_rdma_cm_fill_ends(struct qp_link *w, struct qp_msg *ends)
{
    const struct wf_hca_cm *cm = w->rdma->cm;
    if (!cm)
        return;
    ends->cm_port = cm->port;
    memcpy(ends->cm_address, cm->address, sizeof ends->cm_address);
    ends->ticket = w->ticket;
    w->mtu = ends->end.mtu;
}

/* What shows the other side that it is its queue pair that this is for. */
static struct wf_hca_cm_params params_of(struct qp_link *w)
{
    struct wf_hca_cm_params p = {.qp = w->qp,
                                 .patience = w->patience,
                                 .mtu = w->mtu,
                                 .reads = w->their_reads,
                                 .len = CM_DATA_SIZE,
                                 .owner = w};
    _Static_assert(CM_DATA_SIZE <= WF_HCA_CM_DATA, "it fits");
    wf_cm_data_write(&(struct cm_data){w->their_name, w->their_ticket}, p.data);
    return p;
}

static void psns_take(struct qp_link *w, const struct wf_hca_cm_psns *psns)
{
    w->psn = w->psn_done = psns->mine;
    w->their_psn = psns->theirs;
}

/* Null, or why not. */
static const char *accept_it(struct qp_link *w)
{
    struct wf_hca_cm_params p = params_of(w);
    struct wf_hca_cm_psns psns;
    if (w->conn_qp != w->their_qp ||
        memcmp(w->conn_address, w->their_address, sizeof w->conn_address) != 0)
        return "the connection manager was asked by another than the other side";
    if (ops_of(w->rdma)->accept(w->conn, &p, &psns) != WEFT_OK)
        return "the connection manager cannot accept a connection";
    psns_take(w, &psns);
    w->cm = CM_ACCEPTED;
    return NULL;
}

static const char *ask_it(struct qp_link *w, const struct qp_msg *ends)
{
    struct wf_hca_cm_params p = params_of(w);
    uint32_t limit_ms = (uint32_t)WF_MIN(wf_config()->peer_timeout_ms, STEP_MS);
    if (ops_of(w->rdma)->connect(w->rdma->cm, ends->cm_address, ends->cm_port, limit_ms, &p,
                                 &w->conn) != WEFT_OK)
        return "the connection manager cannot ask the other side's";
    w->cm = CM_CONNECTING;
    return NULL;
}

const char *wf_rdma_cm_connect(struct qp_link *w, const struct qp_msg *ends,
                               const struct wf_hca_patience *patience)
{
    const uint64_t limit_ms = WF_MIN(wf_config()->peer_timeout_ms, LIMIT_MS);
    const char *why = NULL;
    w->patience = patience;
    w->their_qp = ends->end.qp;
    w->their_reads = ends->end.reads;
    w->mtu = WF_MIN(w->mtu, ends->end.mtu);
    memcpy(w->their_address, ends->cm_address, sizeof w->their_address);
    w->their_ticket = ends->ticket;
    if (is_asker(w))
        why = ask_it(w, ends);
    else if (w->cm == CM_REQUESTED) /* else it will be */
        why = accept_it(w);
    if (!why)
        deadline_set(w, wf_now_ns() + limit_ms * UINT64_C(1000000));
    return why;
}

bool wf_rdma_cm_peer_ready(struct qp_link *w)
{
    if (w->cm != CM_ACCEPTED)
        return w->cm == CM_ESTABLISHED;
    ops_of(w->rdma)->notify_established(w->conn);
    w->cm = CM_ESTABLISHED;
    return true;
}

enum wf_cm_state wf_rdma_cm_state(struct qp_link *w)
{
    if (w->cm == CM_ESTABLISHED || w->cm == CM_FAILED)
        deadline_set(w, 0);
    return w->cm;
}

bool wf_rdma_cm_watch(struct qp_link *w, uint64_t now)
{
    if (!w->deadline_ns || now < w->deadline_ns)
        return false;
    if (!is_connecting(w))
        return true;
    failed(w, "the connection manager takes too long");
    return false;
}

void wf_rdma_cm_disconnect(struct qp_link *w)
{
    if (w->conn)
        ops_of(w->rdma)->disconnect(w->conn);
    w->conn = NULL;
    deadline_set(w, 0);
}

/* ---- events ---- */

/* The queue pair that waits for it; null: none does. */
static struct qp_link *qp_link_asked(const struct rdma_rail *r, const struct wf_hca_cm_event *e)
{
    struct cm_data call;
    struct qp_link *w;
    if (!wf_cm_data_read(e->data, e->len, &call))
        return NULL;
    w = wf_qp_link_named(r, call.name);
    return w && w->ticket == call.ticket && w->cm == CM_IDLE && !is_asker(w) && !w->said_plain &&
                   (w->state == QP_ASKING || is_connecting(w))
               ? w
               : NULL;
}

static void asked(struct rdma_rail *r, const struct wf_hca_cm_event *e)
{
    struct qp_link *w = qp_link_asked(r, e);
    const char *why;
    if (!w) {
        wf_debug("%s: a connection that no wire waits for is refused", r->device->hca->name);
        ops_of(r)->disconnect(e->conn);
        return;
    }
    w->conn = e->conn;
    w->conn->owner = w;
    w->conn_qp = e->qp;
    memcpy(w->conn_address, e->address, sizeof w->conn_address);
    w->cm = CM_REQUESTED;
    if (!is_connecting(w))
        return;
    why = accept_it(w);
    if (why)
        failed(w, why);
}

static void answered(struct qp_link *w, const struct wf_hca_cm_event *e)
{
    struct wf_hca_cm_psns psns;
    struct cm_data call;
    if (!is_connecting(w) || w->cm != CM_CONNECTING)
        return;
    if (!wf_cm_data_read(e->data, e->len, &call) || call.name != wf_qp_link_name(w) ||
        call.ticket != w->ticket || e->qp != w->their_qp) {
        failed(w, "who answered the connection manager is not the other side");
        return;
    }
    if (ops_of(w->rdma)->establish(w->conn, &psns) != WEFT_OK) {
        failed(w, "the connection manager cannot connect the queue pair");
        return;
    }
    psns_take(w, &psns);
    w->cm = CM_ESTABLISHED;
    wf_qp_link_wake(w);
}

static void came_up(struct qp_link *w)
{
    if (!is_connecting(w) || w->cm != CM_ACCEPTED)
        return;
    w->cm = CM_ESTABLISHED;
    wf_qp_link_wake(w);
}

static void went_down(struct qp_link *w, const char *why)
{
    wf_debug("%s: queue pair %u: %s", w->rdma->device->hca->name, w->qp->number, why);
    if (is_connecting(w))
        failed(w, why);
    else if (!w->deadline_ns)
        deadline_set(w, wf_now_ns() + LEFT_NS);
}

void wf_rdma_cm_poll(struct rdma_rail *r)
{
    struct wf_hca_cm_event e;
    if (!r->cm)
        return;
    for (int i = 0; i < EVENTS; i++) {
        ops_of(r)->next(r->cm, &e);
        switch (e.kind) {
        case WF_HCA_CM_NONE: return;
        case WF_HCA_CM_CONNECT_REQUEST: asked(r, &e); break;
        case WF_HCA_CM_CONNECT_RESPONSE: answered(e.conn->owner, &e); break;
        case WF_HCA_CM_ESTABLISHED: came_up(e.conn->owner); break;
        case WF_HCA_CM_DISCONNECTED: went_down(e.conn->owner, e.why); break;
        default: atomic_store_explicit(&r->device->gone, true, memory_order_relaxed);
        }
    }
}
