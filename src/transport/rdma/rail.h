/* SPDX-License-Identifier: BSD-3-Clause */
/* An endpoint's rails: their queues and buffers (ep.c), the checks of them (watch.c), and the
 * choice of a rail for a link (rail.c). qp_link.h has the objects. */
#ifndef WF_TRANSPORT_RDMA_RAIL_H
#define WF_TRANSPORT_RDMA_RAIL_H

#include "transport/rdma/qp_link.h"

/* ---- ep.c ---- */

/* [level] is that of struct weft_ep_params. Returns OK | ENOMEM | ELIMIT (usually the limit on
 * locked memory) | ESYSTEM */
enum weft_status wf_rdma_ep_open(struct rdma_ctx *ctx, uint32_t level, struct rdma_ep **out);
/* Makes a new endpoint and opens its rails. In contrast, the first call of wf_rdma_ep_open makes no
 * endpoint: it returns ctx->kept, the endpoint that was opened with the context. */
enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, uint32_t level, struct rdma_ep **out);
void wf_rdma_ep_close(struct rdma_ep *ep);
/* Sets *out to what the endpoint's queue pairs share, and the locks that they take. */
void wf_rdma_ep_sharing(const struct rdma_ep *ep, struct weft_ep_sharing_info *out);
/* Returns true if WEFT_RDMA_CM is 0, or if at least one rail has a connection manager. */
bool wf_rdma_ep_connects(const struct rdma_ep *ep);
/* Returns true if the queues of at least one rail work. */
bool wf_rdma_works(const struct rdma_ep *ep);
/* Adds the descriptors of the endpoint's completion queues, timer and connection managers to
 * [epoll_fd], on which the endpoint's thread sleeps. From then on the timer and the managers wake
 * the thread. A completion queue wakes the thread only after wf_rdma_arm. The caller closes
 * [epoll_fd] after [ep]. Returns false with errno if a descriptor cannot be added. */
bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);
/* Makes new completions wake the endpoint's thread when it sleeps. Returns false if the thread must
 * not sleep, because there is something to process. */
bool wf_rdma_arm(struct rdma_ep *ep);
void wf_rdma_disarm(struct rdma_ep *ep);
/* Returns whether the timer has expired since the last call. */
bool wf_rdma_rang(const struct rdma_ep *ep);

/* Returns a copy of the current state of the rail's port. Events of the NIC change the state. */
struct wf_hca_port wf_rdma_rail_port(const struct rdma_rail *r);
/* If the rail is broken but its device works, and no queue pair is left, opens the rail's queues
 * again. The first attempt is made at once. Each later attempt waits longer: 1 s after the first,
 * up to 64 s. */
void wf_rdma_rail_renew(struct rdma_rail *r);
/* Returns whether wf_rdma_rail_renew will open the rail's queues once no queue pair is left. */
bool wf_rdma_rail_is_due(const struct rdma_rail *r);
/* Posts all free receive buffers to the shared receive queue. Does nothing without such a queue. */
void wf_rdma_receives_post(struct rdma_rail *r);

static inline size_t wf_rdma_credits_size(const struct rdma_rail *r)
{
    return wf_rdma_credits_bytes(r->credits);
}
static inline _Atomic uint32_t *wf_rdma_credit_at(const struct rdma_rail *r, uint32_t i)
{
    return (_Atomic uint32_t *)(void *)(r->memory + 4 * (size_t)i);
}
static inline uint8_t *wf_rdma_buffer_at(const struct rdma_rail *r, uint32_t i)
{
    return r->memory + wf_rdma_credits_size(r) + (size_t)i * QP_BUFFER;
}
static inline uint8_t *wf_rdma_piece_at(const struct rdma_rail *r, uint32_t i)
{
    return wf_rdma_buffer_at(r, r->receives + i);
}
static inline uint64_t *wf_rdma_result_at(const struct rdma_rail *r, uint32_t i)
{
    return (uint64_t *)(void *)(wf_rdma_piece_at(r, r->pieces) + 8 * (size_t)i);
}

/* ---- watch.c ---- */

/* Breaks the rail if the NIC reported a failure, and opens its queues again if it is time for
 * that. */
void wf_rdma_rail_check(struct rdma_rail *r);
/* Reads the NICs' events, polls the connection managers, and fails links that were silent for too
 * long. */
void wf_rdma_look(struct rdma_ep *ep);

/* ---- rail.c ---- */

/* Returns the rail that the channel's generation selects. If this rail does not work, returns the
 * next rail that works. If no rail works, returns any rail. */
struct rdma_rail *wf_rdma_rail_of(const struct rdma_ep *ep, const struct net_chan *chan);
/* Implements net_driver.gen_step: returns by how much the generation of the channel's next
 * connection exceeds the last generation. */
uint32_t wf_rdma_gen_step(const struct net_chan *chan);
unsigned wf_rdma_tries(const struct rdma_ep *ep);
/* Returns the number of a rail that the link should move to, or -1 if there is none. */
int wf_rdma_better_rail(const struct qp_link *l);
/* Called when the link could not be connected on its rail. Makes the channel's next connection try
 * another rail. */
void wf_rdma_rail_failed(struct qp_link *l);
/* wf_rdma_retry_plain and wf_rdma_retry_up set path->retry_ns, the time of the next attempt to get
 * a better link. The first is for a channel that uses its socket, the second for a channel that
 * uses a queue pair. [is_greater] is true if this side dials the channel's connections. */
void wf_rdma_retry_plain(struct net_path *path);
void wf_rdma_retry_up(struct net_path *path, bool is_greater);
/* Returns whether the rail is worn, and no peer may perform atomics by its device. Its links are
 * then broken when they are idle, one by one, and new ones use their sockets, until no queue pair
 * is left and the rail's queues can be made anew. */
bool wf_rdma_rail_gives_up(const struct rdma_rail *r);
/* Returns whether this is so of a rail of the endpoint. */
bool wf_rdma_is_worn(const struct rdma_ep *ep);
/* Breaks at most one link: an idle link whose channel may get a queue pair, or a better rail, by
 * its next connection. */
void wf_rdma_retry(struct rdma_ep *ep);
/* Returns whether the NIC reported that it failed, or that one of the rail's queues failed. */
static inline bool wf_rdma_has_failed(const struct rdma_rail *r)
{
    return !wf_rdma_device_works(r->device) ||
           atomic_load_explicit(&r->cq->failed, memory_order_relaxed) ||
           (r->srq && atomic_load_explicit(&r->srq->failed, memory_order_relaxed));
}

#endif
