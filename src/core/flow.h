/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows: the requests to one peer handle, in order.
 *
 * A flush waits for all earlier puts, gets, atomics, signals and long messages to its peer handle.
 * The requests of these operations are on the flow's list [issued], in the order of the calls. A
 * flush is a request on that list, too, and ends when it is the first of the list. A request with
 * unsent messages is also on its flow's list [queue]. The queue is sent in order, so the requests
 * of one peer handle are sent in the order in which they were started.
 *
 * Fences. An operation with WEFT_OP_FENCED begins when the operations that the program has started
 * before by this peer handle are complete. If some are under way, it becomes a request that is held
 * in the queue, as [fence]. Requests behind it are held, too. A held request has sent nothing.
 *
 *     queue: messages of operations that have begun, [fence], other held requests
 *
 *   event                                       is inserted   held  [fence]
 *   a fenced operation starts, none under way   (it begins)   no
 *   a fenced operation starts, some under way   last          yes   this one, if there was none
 *   another operation starts, there is a fence  last          yes
 *   an operation that has begun, or an answer   before the    no
 *     to the peer, has something to send          fence
 *   a push reaches the fence, none under way    (it begins)   no    the next held fenced request;
 *                                                                     those before it are not held
 *                                                                     any more
 *   a push reaches the fence, some under way    (the push
 *                                                 ends)
 *   the fence is cancelled                      (it ends)           as if it had begun
 *
 * Answers to the peer (DONE, STOP, LATE, and the FETCHes of a COPY) overtake the fence. If they
 * waited, two sides could wait for each other: the fence for a send, its receiver for the answer.
 *
 * Under way are the requests of the kinds that the program starts, except held ones, and the puts
 * of the put ring. A lost put of the ring becomes a request that is not held. Only operations with
 * the flag look for what is under way, so the others take no instruction more.
 *
 * A push is a function that sends the messages of a request as long as there is room. It returns OK
 * (the operation is complete), PENDING (all is sent, answers are still to come), AGAIN (no room),
 * or a failure. */
#ifndef WF_CORE_FLOW_H
#define WF_CORE_FLOW_H

#include "core/msg_cost.h"
#include "core/req.h"

struct wf_put_ring;    /* put_ring.h */
struct wf_named_cache; /* named.c */

/* A handle's credit for tagged messages: msg_credit.h. */
struct wf_msg_credit {
    int32_t left;
    uint32_t end, quiet, asked;
};

struct wf_flow {
    /* The first cache line holds what each tagged message reads. */
    struct wf_list queue; /* requests with unsent messages */
    struct wf_msg_credit credit;
    struct wf_req *fence;   /* the first held request of [queue]; null: there is none */
    struct wf_list stalled; /* item of ep->stalled */
    struct wf_list ended;   /* item of ep->ended */
    struct wf_list issued;
    /* requests that end when the peer is lost: all but flushes, which end when these have ended */
    struct wf_list on_loss;
    struct weft_peer *peer;
    /* No other flow of this process has or had it; not 0. The flow of a peer with a name gets a new
     * one with each endpoint that the peer leads to; otherwise constant. */
    uint64_t serial;
    /* the ring of short puts by NICs; null until the first such put */
    struct wf_put_ring *put_ring;
    /* raw keys of regions that have 64-bit keys (named.h); null until the first is learnt */
    struct wf_named_cache *named;
    unsigned nreqs;
    /* no push before this time, because the last push lacked descriptors or memory; 0: any time */
    uint64_t retry_ns;
    /* a message without weft_op was refused for lack of credit: no question before this time, and
     * how long the pause after the next one is (msg_credit.h) */
    uint64_t credit_ns, credit_pause_ns;
    /* the next poll after credit_ns counts an event, with which the program tries again */
    bool refused;
    /* first failure of an operation without weft_op; the next flush reports it */
    enum weft_status failure;
    /* Offers whose payload follows (msg_push.c): how many bytes of payload are under way; how many
     * messages are offered without payload from now on, and were after the last payload that came
     * in vain; and how often that happened, modulo 256. */
    uint32_t pushed;
    uint8_t push_pause, push_pauses, push_tries;
    struct wf_choice choice;
    /* true if the kernel refused to copy between the two processes: messages carry the bytes */
    bool no_pull;
};

/* Returns the flow of [peer], after making it if there is none. Returns NULL if there is no
 * memory. */
struct wf_flow *wf_flow_of(struct weft_peer *peer);
/* Let each poll push [flow], until nothing is left to send. */
void wf_flow_stall(struct wf_flow *flow);
bool wf_flow_busy(const struct weft_peer *peer);
void wf_flow_close(struct weft_peer *peer);
/* Forget the endpoint to which the peer of [flow] led: its costs, keys and pauses, but not the
 * failure that the next flush reports. No request of [flow] is under way. */
void wf_flow_renew(struct wf_flow *flow);
/* End all operations of [peer] with the status [why]. */
void wf_flow_down(struct weft_peer *peer, enum weft_status why);
/* End the flushes at the head of flow->issued, up to the first flush that still waits for short
 * puts. */
void wf_flushes_end(struct weft_ep *ep, struct wf_flow *flow);

/* Start the operation of [req]: [push] sends as much as there is room for, and later polls send the
 * rest. Returns PENDING while the operation is under way. If [push] ends the operation at once,
 * wf_req_start frees the request, leaves its weft_op unchanged, and returns what [push] returned.
 * If there is no weft_op and nothing could be sent, it frees the request and returns AGAIN. */
enum weft_status wf_req_start(struct wf_req *req, enum weft_status (*push)(struct wf_req *));
/* Like wf_req_start, for a request without flags that was pushed already, with the result [status],
 * or AGAIN because others are queued. */
enum weft_status wf_req_started(struct wf_req *req, enum weft_status status);
/* Like wf_req_start, for an operation that is already partly done. Never returns AGAIN: if there is
 * no room, the request waits even if it has no weft_op. */
enum weft_status wf_req_continue(struct wf_req *req, enum weft_status (*push)(struct wf_req *));
/* Add [req] to its flow's queue, because it has something to send. It has begun, or is an answer to
 * the peer: a fence does not hold it. */
void wf_req_queue(struct wf_req *req);
/* Let the next polls copy more of the long message of [req], a receive that copies it through the
 * kernel. */
void wf_req_copy_on(struct wf_req *req);
/* Must an operation with the flags [flags] (enum weft_op_flags) wait for earlier ones? */
bool wf_flow_fences(const struct wf_flow *flow, unsigned flags);
/* flow->fence begins, or has ended. */
void wf_flow_fence_over(struct wf_flow *flow);
/* A send without weft_op was refused for lack of credit. The first poll after flow->credit_ns
 * counts an event. */
void wf_flow_refuse(struct wf_flow *flow);
/* Delay the next push of the flow of [req] for a while, because no event will announce that a push
 * can succeed. Returns AGAIN. */
enum weft_status wf_req_retry(struct wf_req *req);

/* Returns true if the failure [s] of a push means that the peer is lost. After any other failure
 * the push may be tried again. */
static inline bool wf_is_loss(enum weft_status s)
{
    return s == WEFT_EPEER || s == WEFT_ECLOSED || s == WEFT_EPROTO || s == WEFT_EUNREACH;
}

/* Called by each poll. Continues receives that copy a long message, then sends what is queued.
 * Returns how many requests made progress. */
int wf_flows_progress(struct weft_ep *ep);
/* Called before the owner sleeps. Sends what can be sent. Returns false if the owner must not
 * sleep, because a request made progress, or because no event will announce when to go on. */
bool wf_flows_settle(struct weft_ep *ep);
/* Send what is queued for [peer] now. Must not be called from inside a transport's poll. */
void wf_flow_push(struct weft_peer *peer);

#endif
