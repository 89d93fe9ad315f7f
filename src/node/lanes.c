/* SPDX-License-Identifier: BSD-3-Clause */
/* The network of the lanes between services: TCP, or queue pairs. */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "node/work.h"

static const struct wf_transport *transport_of(enum wf_node_lanes lanes)
{
#ifdef WF_HAVE_VERBS
    if (lanes == WF_NODE_RDMA)
        return &wf_rdma_transport;
#endif
    (void)lanes;
    return &wf_tcp_transport;
}

/* The service's address depends on its port. */
static void identify(void *arg, const struct wf_contact *contact, const int *fds,
                     struct wf_process_id *self)
{
    struct node_work *work = arg;
    memcpy(work->estate + WF_NODE_ESTATE_SOCKETS, fds, contact->count * sizeof *fds);
    work->nestate = WF_NODE_ESTATE_SOCKETS + contact->count;
    wf_node_service_address(work->key, work->scope, contact->port, work->incarnation,
                            &work->address);
    *self = work->address.process;
}

/* The longest payload of a frame: DATA that begins a flow, with all arguments. */
static uint32_t frame_max(const struct node_work *work)
{
    return WF_NODE_SENDER + work->parameters.am_max + 4 * WF_NODE_ARGS;
}

static enum weft_status tep_open(struct node_work *work, const struct wf_tep_events *events)
{
    struct wf_tep_params params = {.events = events,
                                   .owner = work,
                                   .address = work->address,
                                   .event_fd = work->event_fd,
                                   .epoll_fd = work->epoll_fd,
                                   .am_max = frame_max(work),
                                   .lanes = work->parameters.connections,
                                   .counters = work->counters,
                                   .active = &work->active,
                                   .active_bit = 1};
    return work->tctx->transport->ep_open(work->tctx, &params, &work->tep);
}

/* Opens the context and the endpoint of the lanes. On failure neither is open. */
static enum weft_status transport_open(struct node_work *work, const struct wf_transport *t,
                                       const struct wf_tep_events *events, const int *inherited,
                                       unsigned ninherited)
{
    const struct wf_process_id self = {.pid = 1};
    const struct wf_tctx_params params = {.self = &self,
                                          .network = true,
                                          .key_follows = true,
                                          .sharing = WEFT_SHARING_AUTO,
                                          .endpoints = 1,
                                          .am_max = frame_max(work),
                                          .receives = work->parameters.receives,
                                          .inherited = inherited,
                                          .ninherited = ninherited,
                                          .identify = identify,
                                          .identify_arg = work};
    enum weft_status status = t->ctx_open(&params, &work->tctx);
    if (status != WEFT_OK)
        return status;
    work->contact = *t->contact(work->tctx);
    status = tep_open(work, events);
    if (status != WEFT_OK)
        t->ctx_close(work->tctx);
    return status;
}

enum weft_status wf_node_lanes_open(struct node_work *work, const struct wf_tep_events *events)
{
    const struct wf_transport *t = transport_of((enum wf_node_lanes)work->parameters.lanes);
    int inherited[WF_NODE_ESTATE] = {0};
    unsigned count = work->nestate - WF_MIN(work->nestate, WF_NODE_ESTATE_SOCKETS);
    enum weft_status status;
    memcpy(inherited, work->estate + WF_NODE_ESTATE_SOCKETS, count * sizeof *inherited);
    status = transport_open(work, t, events, inherited, count);
    if (status != WEFT_OK && t != &wf_tcp_transport) {
        wf_info("the service's connections are TCP: RDMA cannot be used: %s",
                weft_status_text(status));
        status = transport_open(work, &wf_tcp_transport, events, inherited, count);
    }
    for (unsigned i = 0; i < count && status == WEFT_OK; i++) /* the network has copies */
        close(inherited[i]);
    return status;
}
