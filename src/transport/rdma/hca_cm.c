/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection manager of hca.h, over librdmacm.
 *
 * The manager connects the queue pairs of hca_verbs_qp.c. librdmacm opens the device itself, with
 * its own ibv_context, and can create queue pairs only in this ibv_context. So librdmacm gets only
 * the numbers of the queue pairs (rdma_conn_param). This file changes the states of the queue
 * pairs, with the attributes that rdma_init_qp_attr(3) returns. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "transport/rdma/hca_verbs.h"

#define BACKLOG 0     /* 0 selects the kernel's own limit, net.rdma_ucm.max_backlog */
#define CANDIDATES 64 /* limit for the addresses of this host that are tried */
/* The attributes that libibverbs knows. Some kernels return further bits from rdma_init_qp_attr(3),
 * but refuse these bits in ibv_modify_qp(3). */
#define ATTRIBUTES ((int)((unsigned)IBV_QP_DEST_QPN << 1) - 1)

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct rdmacm {
    struct wf_hca_cm base;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    /* The address where the manager listens, but with port 0. New connections start from this
     * address. */
    union address own;
    uint8_t port; /* number of the NIC's port */
};

struct rdmacm_conn {
    struct wf_hca_conn base;
    struct rdma_cm_id *id;
    struct wf_hca_cm_params params;
    uint32_t limit_ms;
    /* true for a peer's connect request that was not accepted yet */
    bool is_request;
    /* how many READs and atomics this side answers, and how many it issues, at a time */
    uint8_t answers, issues;
};

static struct rdmacm *cm_of(struct wf_hca_cm *cm)
{
    return (struct rdmacm *)(void *)cm;
}

static struct rdmacm_conn *conn_of(struct wf_hca_conn *conn)
{
    return (struct rdmacm_conn *)(void *)conn;
}

/* ---- addresses ---- */

/* Writes the address as 16 bytes, as in a GID: an IPv6 address, or an IPv4 address mapped to
 * IPv6. */
static void bytes_of(const union address *a, uint8_t out[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (a->any.sa_family == AF_INET6) {
        memcpy(out, &a->v6.sin6_addr, 16);
        return;
    }
    memcpy(out, mapped, sizeof mapped);
    memcpy(out + sizeof mapped, &a->v4.sin_addr, 4);
}

/* Converts the peer's address [bytes] to a socket address to which a connection from [own] can be
 * made. Returns false if the two addresses are of different families, or if the peer's address is
 * link-local and [own] is not. */
static bool address_of(const uint8_t bytes[16], uint16_t port, const union address *own,
                       union address *out)
{
    struct in6_addr in;
    memset(out, 0, sizeof *out);
    memcpy(&in, bytes, sizeof in);
    out->any.sa_family = own->any.sa_family;
    if (IN6_IS_ADDR_V4MAPPED(&in)) {
        out->v4.sin_port = htons(port);
        memcpy(&out->v4.sin_addr, bytes + 12, 4);
        return own->any.sa_family == AF_INET;
    }
    out->v6.sin6_port = htons(port);
    out->v6.sin6_addr = in;
    if (IN6_IS_ADDR_LINKLOCAL(&in))
        out->v6.sin6_scope_id = own->v6.sin6_scope_id;
    return own->any.sa_family == AF_INET6 &&
           (!IN6_IS_ADDR_LINKLOCAL(&in) || IN6_IS_ADDR_LINKLOCAL(&own->v6.sin6_addr));
}

/* Ranks an address of this host. The address in the port's GID has the highest rank. Among the
 * other addresses, an address that more peers can reach ranks higher. */
static int rank_of(const union address *a, const struct wf_hca_port *port)
{
    uint8_t bytes[16];
    bytes_of(a, bytes);
    if (!memcmp(bytes, port->gid.raw, sizeof bytes))
        return 3;
    if (a->any.sa_family == AF_INET)
        return 2;
    return IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr) ? 0 : 1;
}

static bool is_usable(const struct ifaddrs *i, union address *out)
{
    int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    memset(out, 0, sizeof *out);
    if (family == AF_INET)
        memcpy(&out->v4, i->ifa_addr, sizeof out->v4);
    else if (family == AF_INET6)
        memcpy(&out->v6, i->ifa_addr, sizeof out->v6);
    return out->any.sa_family != AF_UNSPEC && i->ifa_flags & IFF_UP &&
           !(i->ifa_flags & IFF_LOOPBACK);
}

/* Lists at most [room] addresses of this host's interfaces that are up, the highest ranks first.
 * Returns how many it listed. */
static unsigned addresses_list(const struct wf_hca_port *port, union address *out, unsigned room)
{
    struct ifaddrs *all;
    unsigned n = 0;
    if (getifaddrs(&all))
        return 0;
    for (int rank = 3; rank >= 0; rank--)
        for (const struct ifaddrs *i = all; i && n < room; i = i->ifa_next)
            if (is_usable(i, &out[n]) && rank_of(&out[n], port) == rank)
                n++;
    freeifaddrs(all);
    return n;
}

/* ---- listening ---- */

/* Returns whether librdmacm has bound [id] to the NIC and the port of this manager. */
static bool is_ours(const struct rdmacm *cm, const struct rdma_cm_id *id)
{
    return id->verbs && id->port_num == cm->port &&
           !strcmp(ibv_get_device_name(id->verbs->device), cm->base.hca->name);
}

static bool listen_at(struct rdmacm *cm, const union address *a)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(cm->channel, &id, NULL, RDMA_PS_TCP))
        return false;
    cm->own = *a;
    if (rdma_bind_addr(id, &cm->own.any) || !is_ours(cm, id) || rdma_listen(id, BACKLOG)) {
        (void)rdma_destroy_id(id);
        return false;
    }
    cm->listener = id;
    bytes_of(a, cm->base.address);
    cm->base.port = ntohs(rdma_get_src_port(id));
    return true;
}

static void rdmacm_close(struct wf_hca_cm *base)
{
    struct rdmacm *cm = cm_of(base);
    if (cm->listener && rdma_destroy_id(cm->listener))
        wf_warn("%s: a connection manager's listener cannot be freed: %m", base->hca->name);
    if (cm->channel)
        rdma_destroy_event_channel(cm->channel);
    free(cm);
}

static enum weft_status rdmacm_open(struct wf_hca *hca, const struct wf_hca_port *port,
                                    struct wf_hca_cm **out)
{
    union address list[CANDIDATES];
    unsigned n = addresses_list(port, list, CANDIDATES);
    struct rdmacm *cm = calloc(1, sizeof *cm);
    struct wf_fd_floor floor;
    if (!cm)
        return WEFT_ENOMEM;
    cm->base.hca = hca;
    cm->port = port->number;
    wf_fd_floor_hold(&floor);
    cm->channel = rdma_create_event_channel();
    if (!cm->channel || fcntl(cm->channel->fd, F_SETFL, O_NONBLOCK)) {
        wf_warn("WEFT_RDMA_CM: the connection manager cannot be had: %m (is the kernel's module "
                "rdma_ucm loaded, and /dev/infiniband/rdma_cm there?)");
        wf_fd_floor_drop(&floor);
        rdmacm_close(&cm->base);
        return WEFT_EUNREACH;
    }
    cm->base.event_fd = cm->channel->fd;
    for (unsigned i = 0; i < n && !cm->listener; i++)
        /* The first call makes librdmacm open devices, which must not get the descriptors 0 to 2.
         * [floor] occupies these descriptors. */
        (void)listen_at(cm, &list[i]);
    wf_fd_floor_drop(&floor);
    if (!cm->listener) {
        wf_warn(
            "WEFT_RDMA_CM: no IP address of this host belongs to %s port %u, and the connection "
            "manager needs one (on InfiniBand that of an IPoIB interface)",
            hca->name, port->number);
        rdmacm_close(&cm->base);
        return WEFT_EUNREACH;
    }
    *out = &cm->base;
    return WEFT_OK;
}

/* ---- queue pairs ---- */

/* Gets the attributes with which the queue pair enters [state]. Returns the mask of the attributes,
 * or 0 with errno. */
static int attributes(struct rdmacm_conn *c, enum ibv_qp_state state, struct ibv_qp_attr *attr)
{
    int mask;
    memset(attr, 0, sizeof *attr);
    attr->qp_state = state;
    if (rdma_init_qp_attr(c->id, attr, &mask))
        return 0;
    /* iWARP drivers change the states themselves, so rdma_init_qp_attr sets no IBV_QP_STATE. */
    errno = EOPNOTSUPP;
    return mask & IBV_QP_STATE ? mask & ATTRIBUTES : 0;
}

static bool modify(struct rdmacm_conn *c, struct ibv_qp_attr *attr, int mask)
{
    errno = ibv_modify_qp(VERBS(c->params.qp, qp)->qp, attr, mask);
    return !errno;
}

static bool to_init(struct rdmacm_conn *c)
{
    struct ibv_qp_attr attr;
    int mask = attributes(c, IBV_QPS_INIT, &attr);
    attr.qp_access_flags = verbs_qp_access(c->params.qp->hca);
    return mask && modify(c, &attr, mask | IBV_QP_ACCESS_FLAGS);
}

static bool to_receive(struct rdmacm_conn *c, struct wf_hca_cm_psns *psns)
{
    struct ibv_qp_attr attr;
    int mask = attributes(c, IBV_QPS_RTR, &attr);
    attr.min_rnr_timer = c->params.patience->rnr_timer;
    attr.max_dest_rd_atomic = WF_MIN(attr.max_dest_rd_atomic, c->answers);
    /* On Ethernet, librdmacm knows only the MTU of the active side's interface. params.mtu is the
     * smaller MTU of both sides. */
    attr.path_mtu = WF_MIN(attr.path_mtu, verbs_mtu_code(c->params.mtu));
    c->params.qp->mtu = verbs_mtu_bytes(attr.path_mtu);
    psns->theirs = attr.rq_psn;
    return mask && modify(c, &attr, mask);
}

/* Makes the queue pair ready to send. Uses the caller's timeouts instead of those of librdmacm, so
 * that a broken connection is noticed as early as without a connection manager. */
static bool to_send(struct rdmacm_conn *c, struct wf_hca_cm_psns *psns)
{
    struct ibv_qp_attr attr;
    int mask = attributes(c, IBV_QPS_RTS, &attr);
    attr.timeout = c->params.patience->timeout;
    attr.retry_cnt = c->params.patience->retries;
    attr.rnr_retry = c->params.patience->rnr_retries;
    attr.max_rd_atomic = WF_MIN(attr.max_rd_atomic, c->issues);
    psns->mine = attr.sq_psn;
    return mask && modify(c, &attr, mask);
}

static bool bring_up(struct rdmacm_conn *c, struct wf_hca_cm_psns *psns)
{
    return to_init(c) && to_receive(c, psns) && to_send(c, psns);
}

static void params_take(struct rdmacm_conn *c, const struct wf_hca_cm_params *params)
{
    uint8_t max = params->qp->hca->caps.max_reads;
    c->params = *params;
    c->base.owner = params->owner;
    c->answers = max;
    c->issues = WF_MIN(max, params->reads);
}

static struct rdma_conn_param conn_param(const struct rdmacm_conn *c)
{
    const struct ibv_qp *qp = VERBS(c->params.qp, qp)->qp;
    return (struct rdma_conn_param){.private_data = c->params.data,
                                    .private_data_len = c->params.len,
                                    .responder_resources = c->answers,
                                    .initiator_depth = c->issues,
                                    .flow_control = 1,
                                    .retry_count = c->params.patience->retries,
                                    .rnr_retry_count = c->params.patience->rnr_retries,
                                    .srq = qp->srq != NULL,
                                    .qp_num = qp->qp_num};
}

/* ---- a connection ---- */

static struct rdmacm_conn *conn_make(struct rdmacm *cm)
{
    struct rdmacm_conn *c = calloc(1, sizeof *c);
    if (c)
        c->base.cm = &cm->base;
    return c;
}

static void rdmacm_disconnect(struct wf_hca_conn *base)
{
    struct rdmacm_conn *c = conn_of(base);
    if (c->is_request)
        (void)rdma_reject(c->id, NULL, 0);
    else
        /* rdma_disconnect fails in most states. The failure does not matter, since the connection
         * is freed below. */
        (void)rdma_disconnect(c->id);
    c->id->context = NULL;
    if (rdma_destroy_id(c->id))
        wf_warn("%s: a connection of the connection manager cannot be freed: %m",
                base->cm->hca->name);
    free(c);
}

static enum weft_status rdmacm_connect(struct wf_hca_cm *base, const uint8_t *address,
                                       uint16_t port, uint32_t limit_ms,
                                       const struct wf_hca_cm_params *params,
                                       struct wf_hca_conn **out)
{
    struct rdmacm *cm = cm_of(base);
    union address from = cm->own, to;
    struct rdmacm_conn *c;
    if (!address_of(address, port, &from, &to))
        return WEFT_EUNREACH;
    c = conn_make(cm);
    if (!c)
        return WEFT_ENOMEM;
    params_take(c, params);
    c->limit_ms = limit_ms;
    if (rdma_create_id(cm->channel, &c->id, c, RDMA_PS_TCP)) {
        free(c);
        return WEFT_ESYSTEM;
    }
    if (rdma_resolve_addr(c->id, &from.any, &to.any, (int)limit_ms)) {
        wf_debug("%s: rdma_resolve_addr: %m", base->hca->name);
        rdmacm_disconnect(&c->base);
        return WEFT_EUNREACH;
    }
    *out = &c->base;
    return WEFT_OK;
}

static enum weft_status rdmacm_accept(struct wf_hca_conn *base,
                                      const struct wf_hca_cm_params *params,
                                      struct wf_hca_cm_psns *out)
{
    struct rdmacm_conn *c = conn_of(base);
    struct rdma_conn_param param;
    params_take(c, params);
    param = conn_param(c);
    if (bring_up(c, out) && !rdma_accept(c->id, &param)) {
        c->is_request = false;
        return WEFT_OK;
    }
    wf_debug("%s: accepting queue pair %u: %m", base->cm->hca->name, params->qp->number);
    return WEFT_EUNREACH;
}

static enum weft_status rdmacm_establish(struct wf_hca_conn *base, struct wf_hca_cm_psns *out)
{
    struct rdmacm_conn *c = conn_of(base);
    if (bring_up(c, out) && !rdma_establish(c->id))
        return WEFT_OK;
    wf_debug("%s: connecting queue pair %u: %m", base->cm->hca->name, c->params.qp->number);
    return WEFT_EUNREACH;
}

static void rdmacm_notify_established(struct wf_hca_conn *base)
{
    (void)rdma_notify(conn_of(base)->id, IBV_EVENT_COMM_EST);
}

/* ---- events ---- */

static void set_disconnected(struct wf_hca_cm_event *out, const char *reason)
{
    out->kind = WF_HCA_CM_DISCONNECTED;
    out->reason = reason;
}

static void private_data_copy(const struct rdma_conn_param *param, struct wf_hca_cm_event *out)
{
    out->qp = param->qp_num;
    out->len = (uint8_t)WF_MIN(param->private_data_len, WF_HCA_CM_DATA);
    if (out->len)
        memcpy(out->data, param->private_data, out->len);
}

static void request_received(struct rdmacm *cm, struct rdma_cm_id *id, struct wf_hca_cm_event *out)
{
    struct rdmacm_conn *c = is_ours(cm, id) ? conn_make(cm) : NULL;
    if (!c) {
        (void)rdma_reject(id, NULL, 0);
        (void)rdma_destroy_id(id);
        return;
    }
    bytes_of((const union address *)(void *)rdma_get_peer_addr(id), out->address);
    c->id = id;
    c->is_request = true;
    id->context = c;
    out->kind = WF_HCA_CM_CONNECT_REQUEST;
    out->conn = &c->base;
}

/* Called when librdmacm has resolved the peer's address, and has thereby chosen this side's device
 * and port. */
static void address_resolved(struct rdmacm *cm, struct rdmacm_conn *c, struct wf_hca_cm_event *out)
{
    if (!is_ours(cm, c->id))
        set_disconnected(out, "the route to the peer's address uses another device");
    else if (rdma_resolve_route(c->id, (int)c->limit_ms))
        set_disconnected(out, "the route to the peer cannot be queried");
}

static void route_resolved(struct rdmacm_conn *c, struct wf_hca_cm_event *out)
{
    struct rdma_conn_param param = conn_param(c);
    if (rdma_connect(c->id, &param))
        set_disconnected(out, "no connect request can be sent");
}

/* Handles an event of the connection [c]. Leaves out->kind at NONE if the event is of no interest
 * to the caller. */
static void conn_event(struct rdmacm *cm, enum rdma_cm_event_type event, struct rdmacm_conn *c,
                       struct wf_hca_cm_event *out)
{
    switch (event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: address_resolved(cm, c, out); break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: route_resolved(c, out); break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE: out->kind = WF_HCA_CM_CONNECT_RESPONSE; break;
    case RDMA_CM_EVENT_ESTABLISHED: out->kind = WF_HCA_CM_ESTABLISHED; break;
    case RDMA_CM_EVENT_ADDR_ERROR:
        set_disconnected(out, "the peer's address cannot be resolved");
        break;
    case RDMA_CM_EVENT_ROUTE_ERROR: set_disconnected(out, "there is no route to the peer"); break;
    case RDMA_CM_EVENT_UNREACHABLE: set_disconnected(out, "the peer does not answer"); break;
    case RDMA_CM_EVENT_REJECTED: set_disconnected(out, "the peer rejected the connection"); break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
        set_disconnected(out, "the connection cannot be established");
        break;
    case RDMA_CM_EVENT_DISCONNECTED: set_disconnected(out, "the peer disconnected"); break;
    default: break;
    }
}

static bool event_read(struct rdmacm *cm, struct wf_hca_cm_event *out)
{
    struct rdma_cm_event *e;
    enum rdma_cm_event_type event;
    struct rdma_cm_id *id;
    if (rdma_get_cm_event(cm->channel, &e))
        return false;
    event = e->event;
    id = e->id;
    if (event == RDMA_CM_EVENT_CONNECT_REQUEST || event == RDMA_CM_EVENT_CONNECT_RESPONSE)
        private_data_copy(&e->param.conn, out);
    if (e->status)
        wf_debug("%s: %s, status %d", cm->base.hca->name, rdma_event_str(event), e->status);
    /* Acknowledge the event before it is handled: if a handler calls rdma_destroy_id, that call
     * waits until the event is acknowledged. */
    (void)rdma_ack_cm_event(e);
    if (event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        out->kind = WF_HCA_CM_DEVICE_REMOVED;
    } else if (event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        request_received(cm, id, out);
    } else if (id->context) { /* an event of a connection, not of the listener */
        out->conn = &((struct rdmacm_conn *)id->context)->base;
        conn_event(cm, event, id->context, out);
    }
    return true;
}

static void rdmacm_next(struct wf_hca_cm *base, struct wf_hca_cm_event *out)
{
    do
        *out = (struct wf_hca_cm_event){.kind = WF_HCA_CM_NONE};
    while (event_read(cm_of(base), out) && out->kind == WF_HCA_CM_NONE);
}

const struct wf_hca_cm_ops wf_hca_rdmacm = {
    .open = rdmacm_open,
    .close = rdmacm_close,
    .next = rdmacm_next,
    .connect = rdmacm_connect,
    .accept = rdmacm_accept,
    .establish = rdmacm_establish,
    .notify_established = rdmacm_notify_established,
    .disconnect = rdmacm_disconnect,
};
