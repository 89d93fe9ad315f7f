/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics, except what is inlined in the application. If a region is not mapped
 * here, NICs access it, or the region's owner accesses it when a message asks for that.
 *
 *   rma.c         the application's calls
 *   rma_signal.c  the application's calls for signals and long active messages
 *   rma_copy.c    copies to and from mapped regions and regions of this process
 *   rma_send.c    sending: NIC operations and messages
 *   atomic_array.c  atomics on arrays, by the initiator and by the owner
 *   rma_target.c  the region's owner: handlers of requests
 *   rma_answer.c  the initiator: handlers of answers, ends of NIC operations */
#ifndef WF_CORE_RMA_H
#define WF_CORE_RMA_H

#include "core/path.h"

/* The push function (flow.h) of requests whose kind is one from PUT through SIGNAL. Sends the
 * unsent messages of [req]. */
enum weft_status wf_rma_push(struct wf_req *req);
/* Returns true if some bytes of [req] are unsent, or the message that makes the owner count the
 * write is due. */
static inline bool wf_rma_has_bytes(const struct wf_req *req)
{
    return req->sent < req->len || req->u.rma.count == WF_COUNT_DUE;
}

/* Check that an operation by messages may begin: its range, its access and the region's generation
 * are valid, the peer is not lost, and no handler is running. If the result is OK, the endpoint is
 * entered, and the caller has to call wf_ep_leave. */
enum weft_status wf_rma_begin_message(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                      unsigned access);
/* Like wf_rma_begin_message, for an operation that the inlined code has not done. If the region is
 * mapped, a check in the inlined code has failed; then wf_rma_begin returns the reason. */
enum weft_status wf_rma_begin(const struct weft_remote *r, uint64_t offset, uint64_t len,
                              unsigned access);
/* Returns why an access to [r] was refused. Never returns OK. */
enum weft_status wf_rma_refused(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                unsigned access);
/* As wf_op_flags, for an operation on [r]. Returns OK | EINVAL | EMSGSIZE | EFORKED */
enum weft_status wf_rma_flags(const struct weft_remote *r, const struct weft_op *op, unsigned known,
                              size_t len, unsigned *flags);
/* Make a request for an operation of the application on [r]. Returns NULL and sets *why if that
 * fails. */
struct wf_req *wf_rma_req_new(struct wf_remote *r, enum wf_req_kind kind, uint64_t offset,
                              uint64_t len, struct weft_op *op, enum weft_status *why);

/* Do an atomic on a word. The caller has checked the access and entered the endpoint. Returns what
 * weft_atomic returns. [flags]: enum weft_op_flags; with WEFT_OP_FENCED the region is not one on
 * which this process may do the atomic itself. */
enum weft_status wf_rma_atomic(struct wf_remote *r, uint64_t offset, unsigned operation,
                               unsigned type, uint64_t operand, uint64_t compare, uint64_t *fetched,
                               struct weft_op *op, unsigned flags);
/* Send a short put again, now as messages, because the connection that carried it was lost. Makes a
 * request for the put, and inserts it as the first of flow->issued, so that flushes wait for the
 * put. Returns OK | ENOMEM | ELIMIT */
enum weft_status wf_rma_put_again(struct wf_remote *r, uint64_t offset, const void *src, size_t len,
                                  struct weft_op *op);
/* Put by messages, even if the region is mapped or NICs can reach it. The caller has checked the
 * access (wf_rma_begin_message). The peer handles these messages after the message that *order
 * names. Stores in *req_id the id of the put's request. In that request, u.rma.order names the last
 * piece that was sent. Returns what weft_put returns. */
enum weft_status wf_rma_put_ordered(struct wf_remote *r, uint64_t offset, const void *src,
                                    size_t len, struct weft_op *op, struct wf_order *order,
                                    uint64_t *req_id);
/* Get. If [order] is not NULL, messages do the get, and the peer handles them after the message
 * that *order names. Stores the id of the get's request in *id, if the result is PENDING. */
enum weft_status wf_rma_get_ordered(struct wf_remote *r, uint64_t offset, void *dst, size_t len,
                                    struct weft_op *op, const struct wf_order *order, uint64_t *id);

/* Send the message of an atomic on a word to [peer]. Of [req], its id and u.rma are set. Returns
 * PENDING | AGAIN | a failure */
enum weft_status wf_rma_atomic_send(const struct wf_req *req, struct weft_peer *peer);
/* The push function of a request for an atomic on an array. */
enum weft_status wf_atomic_array_push(struct wf_req *req);
/* The region's owner: do the atomic on an array that [am] asks for. Stores in *old_len the number
 * of bytes in ep->scratch for the answer's payload. Returns the status for the answer. */
enum weft_status wf_atomic_array_serve(const struct weft_am *am, size_t *old_len);

/* Find the request that asked for a GOT, the answer to a GET. [args] are the arguments of the GOT,
 * [token] is the transport's record of it. Returns NULL if no request waits for the GOT. */
struct wf_req *wf_rma_got_by(struct weft_ep *ep, const struct wf_token *token, const uint32_t *args,
                             unsigned nargs);
/* An answer to a message of [req], which was ended (ending.c), will not come. */
void wf_rma_answer_gone(struct wf_req *req);
/* The function [nic_op_done] of struct wf_tep_events. */
void wf_rma_nic_op_done(void *owner, uint32_t id, enum weft_status status, uint64_t old);

#endif
