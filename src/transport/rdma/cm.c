/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/cm.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#define EVENTS_MAX 256 /* limit for the events that one call handles */
/* Limit for the time from the first handshake message (ENDS) to the second (READY). Meanwhile the
 * channel sends no frames. */
#define CONNECT_MAX_MS 10000u
/* limit for each of two steps: resolving the peer's address, and resolving the route */
#define RESOLVE_MAX_MS 2000u
/* How long a link waits, after the manager's event "disconnected", for the socket to report the
 * peer's end. */
#define GRACE_NS 1000000000u

static const struct wf_hca_cm_ops *ops_of(const struct rdma_rail *r)
{
    return r->device->hca->ops->cm;
}

/* Returns whether this side is the active side, which sends the connect request. The active side is
 * the endpoint that also dials the sockets. */
static bool is_active(const struct qp_link *w)
{
    return wf_net_chan_view(w->base.chan).is_greater;
}

static bool is_connecting(const struct qp_link *w)
{
    return w->state == QP_CONNECTING;
}

/* ---- a rail's connection manager ---- */

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

/* ---- a link's connection ---- */

/* Sets the link's deadline, or removes the deadline if [at_ns] is 0. While a link of the rail has a
 * deadline, the timer wakes the endpoint's sleeping thread every second, so that the thread checks
 * the deadline. */
static void deadline_set(struct qp_link *w, uint64_t at_ns)
{
    w->rail->deadlines += (at_ns != 0) - (w->deadline_ns != 0);
    w->deadline_ns = at_ns;
}

static void cm_fail(struct qp_link *w, const char *reason)
{
    w->cm = CM_FAILED;
    w->cm_why = reason;
    wf_qp_link_wake(w);
}

bool wf_rdma_cm_init(struct qp_link *w)
{
    return !w->rail->cm || getrandom(&w->ticket, sizeof w->ticket, 0) == sizeof w->ticket;
}

void wf_rdma_cm_fill_ends(struct qp_link *w, struct qp_msg *ends)
{
    const struct wf_hca_cm *cm = w->rail->cm;
    if (!cm)
        return;
    ends->cm_port = cm->port;
    memcpy(ends->cm_address, cm->address, sizeof ends->cm_address);
    ends->ticket = w->ticket;
    w->mtu = ends->end.mtu;
}

static struct wf_hca_cm_params params_of(struct qp_link *w)
{
    struct wf_hca_cm_params p = {.qp = w->qp,
                                 .patience = w->patience,
                                 .mtu = w->mtu,
                                 .reads = w->their_reads,
                                 .len = CM_DATA_SIZE,
                                 .owner = w};
    _Static_assert(CM_DATA_SIZE <= WF_HCA_CM_DATA, "requests and responses have room for it");
    wf_cm_data_write(&(struct cm_data){w->their_name, w->their_ticket}, p.data);
    return p;
}

static void psns_take(struct qp_link *w, const struct wf_hca_cm_psns *psns)
{
    w->psn = w->psn_done = psns->mine;
    w->their_psn = psns->theirs;
}

/* Accepts the peer's connect request. Returns NULL, or the reason why the request cannot be
 * accepted. */
static const char *request_accept(struct qp_link *w)
{
    struct wf_hca_cm_params p = params_of(w);
    struct wf_hca_cm_psns psns;
    if (w->conn_qp != w->their_qp ||
        memcmp(w->conn_address, w->their_address, sizeof w->conn_address) != 0)
        return "a connect request came from another queue pair than the peer's";
    if (ops_of(w->rail)->accept(w->conn, &p, &psns) != WEFT_OK)
        return "the connection manager cannot accept the peer's connect request";
    psns_take(w, &psns);
    w->cm = CM_ACCEPTED;
    return NULL;
}

static const char *request_send(struct qp_link *w, const struct qp_msg *ends)
{
    struct wf_hca_cm_params p = params_of(w);
    uint32_t limit_ms = (uint32_t)WF_MIN(wf_config()->peer_timeout_ms, RESOLVE_MAX_MS);
    if (ops_of(w->rail)->connect(w->rail->cm, ends->cm_address, ends->cm_port, limit_ms, &p,
                                 &w->conn) != WEFT_OK)
        return "the connection manager cannot connect to the peer's";
    w->cm = CM_CONNECTING;
    return NULL;
}

const char *wf_rdma_cm_connect(struct qp_link *w, const struct qp_msg *ends,
                               const struct wf_hca_patience *patience)
{
    const uint64_t limit_ms = WF_MIN(wf_config()->peer_timeout_ms, CONNECT_MAX_MS);
    const char *reason = NULL;
    w->patience = patience;
    w->their_qp = ends->end.qp;
    w->their_reads = ends->end.reads;
    w->mtu = WF_MIN(w->mtu, ends->end.mtu);
    memcpy(w->their_address, ends->cm_address, sizeof w->their_address);
    w->their_ticket = ends->ticket;
    if (is_active(w))
        reason = request_send(w, ends);
    else if (w->cm == CM_REQUESTED) /* later requests are accepted in connect_request */
        reason = request_accept(w);
    if (!reason)
        deadline_set(w, wf_now_ns() + limit_ms * UINT64_C(1000000));
    return reason;
}

bool wf_rdma_cm_peer_ready(struct qp_link *w)
{
    if (w->cm != CM_ACCEPTED)
        return w->cm == CM_ESTABLISHED;
    ops_of(w->rail)->notify_established(w->conn);
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
    cm_fail(w, "the connection manager did not connect in time");
    return false;
}

void wf_rdma_cm_disconnect(struct qp_link *w)
{
    if (w->conn)
        ops_of(w->rail)->disconnect(w->conn);
    w->conn = NULL;
    deadline_set(w, 0);
}

/* ---- events ---- */

/* Returns the link that the connect request is for, or NULL if no link waits for this request. */
static struct qp_link *link_requested(const struct rdma_rail *r, const struct wf_hca_cm_event *e)
{
    struct cm_data data;
    struct qp_link *w;
    if (!wf_cm_data_read(e->data, e->len, &data))
        return NULL;
    w = wf_qp_link_named(r, data.name);
    return w && w->ticket == data.ticket && w->cm == CM_IDLE && !is_active(w) && !w->said_plain &&
                   (w->state == QP_ASKING || is_connecting(w))
               ? w
               : NULL;
}

static void connect_request(struct rdma_rail *r, const struct wf_hca_cm_event *e)
{
    struct qp_link *w = link_requested(r, e);
    const char *reason;
    if (!w) {
        wf_debug("%s: a connect request that no queue pair waits for is rejected",
                 r->device->hca->name);
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
    reason = request_accept(w);
    if (reason)
        cm_fail(w, reason);
}

static void connect_response(struct qp_link *w, const struct wf_hca_cm_event *e)
{
    struct wf_hca_cm_psns psns;
    struct cm_data data;
    if (!is_connecting(w) || w->cm != CM_CONNECTING)
        return;
    if (!wf_cm_data_read(e->data, e->len, &data) || data.name != wf_qp_link_name(w) ||
        data.ticket != w->ticket || e->qp != w->their_qp) {
        cm_fail(w, "a connect response came from another queue pair than the peer's");
        return;
    }
    if (ops_of(w->rail)->establish(w->conn, &psns) != WEFT_OK) {
        cm_fail(w, "the connection manager cannot connect the queue pair");
        return;
    }
    psns_take(w, &psns);
    w->cm = CM_ESTABLISHED;
    wf_qp_link_wake(w);
}

static void established(struct qp_link *w)
{
    if (!is_connecting(w) || w->cm != CM_ACCEPTED)
        return;
    w->cm = CM_ESTABLISHED;
    wf_qp_link_wake(w);
}

static void disconnected(struct qp_link *w, const char *reason)
{
    wf_debug("%s: queue pair %u: %s", w->rail->device->hca->name, w->qp->number, reason);
    if (is_connecting(w))
        cm_fail(w, reason);
    else if (!w->deadline_ns)
        deadline_set(w, wf_now_ns() + GRACE_NS);
}

void wf_rdma_cm_poll(struct rdma_rail *r)
{
    struct wf_hca_cm_event e;
    if (!r->cm)
        return;
    for (int i = 0; i < EVENTS_MAX; i++) {
        ops_of(r)->next(r->cm, &e);
        switch (e.kind) {
        case WF_HCA_CM_NONE: return;
        case WF_HCA_CM_CONNECT_REQUEST: connect_request(r, &e); break;
        case WF_HCA_CM_CONNECT_RESPONSE: connect_response(e.conn->owner, &e); break;
        case WF_HCA_CM_ESTABLISHED: established(e.conn->owner); break;
        case WF_HCA_CM_DISCONNECTED: disconnected(e.conn->owner, e.reason); break;
        default: wf_rdma_device_fail(r->device); /* WF_HCA_CM_DEVICE_REMOVED */
        }
    }
}
