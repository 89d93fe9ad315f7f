/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows: the requests to one peer handle, in order.
 *
 * A request that the application started is on its flow's [issued] list, in the order of the calls.
 * A flush is a request, too, and ends when it is the first of that list. While a request has
 * something left to send it is also in its flow's [queue]: what one peer handle sends leaves in the
 * order in which it was started.
 *
 * A push sends what there is room for. It returns OK (the operation is complete), PENDING (all is
 * sent, answers are due), AGAIN (no room), or a failure. */
#ifndef WF_CORE_FLOW_H
#define WF_CORE_FLOW_H

#include "core/req.h"

struct wf_put_ring; /* put_ring.h */

struct wf_flow {
    struct wf_list stalled; /* ep->stalled */
    struct wf_list queue;   /* requests with something left to send */
    struct wf_list issued;
    struct wf_list on_loss; /* requests to end when the peer is lost: all but flushes, which end
                             * when these have */
    struct weft_peer *peer;
    struct wf_put_ring *put_ring; /* null until the first short put by NICs */
    unsigned nreqs;
    uint64_t retry_ns; /* no push before, since one lacked descriptors or memory; 0: at any time */
    enum weft_status failure; /* first failure of an operation without op, for the next flush */
    bool no_pull;             /* a pull was refused, here or in the peer's process */
};

/* The peer's flow, made if there is none; null: no memory. */
struct wf_flow *wf_flow_of(struct weft_peer *peer);
bool wf_flow_busy(const struct weft_peer *peer);
void wf_flow_close(struct weft_peer *peer);
/* End all operations of [peer] with [why]. */
void wf_flow_down(struct weft_peer *peer, enum weft_status why);
/* End the flushes that are the first. */
void wf_flushes_end(struct weft_ep *ep, struct wf_flow *flow);

/* Push what there is room for, the rest later. Returns PENDING, or what [push] returned if the
 * operation is over: then the request is freed, and op was not touched. Without op and with nothing
 * sent: AGAIN, and the request is freed. */
enum weft_status wf_req_start(struct wf_req *req, enum weft_status (*push)(struct wf_req *));
/* The same for an operation whose first part is done: never AGAIN, for its messages wait for room
 * also without an op. */
enum weft_status wf_req_continue(struct wf_req *req, enum weft_status (*push)(struct wf_req *));
/* It has something to send again. */
void wf_req_queue(struct wf_req *req);
/* Push [req] again after a while: no event announces that it would work. Returns AGAIN. */
enum weft_status wf_req_retry(struct wf_req *req);

/* Does a push's failure mean that the peer is lost? Else the push may be tried again. */
static inline bool wf_is_loss(enum weft_status s)
{
    return s == WEFT_EPEER || s == WEFT_ECLOSED || s == WEFT_EPROTO || s == WEFT_EUNREACH;
}

/* Once per poll: receives that copy, then queues. Returns events. */
int wf_flows_progress(struct weft_ep *ep);
/* Before sleep: push what can be pushed. False: something is left that no event will announce, or
 * something happened. */
bool wf_flows_settle(struct weft_ep *ep);
/* Push the queue of [peer] at once; outside of poll. */
void wf_flow_push(struct weft_peer *peer);

#endif
