/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics: everything about them that is not inlined in the application. Where a
 * region is not mapped, NICs reach it, or its owner acts on messages.
 *
 *   rma.c         what the application calls
 *   rma_signal.c  signals and long messages, as it calls them
 *   rma_copy.c    regions that are copied to and from here, mapped or of this process
 *   rma_send.c    pushes: NIC operations and messages
 *   rma_target.c  the region's owner: handlers of requests
 *   rma_answer.c  the initiator again: answers, ends of NIC operations */
#ifndef WF_CORE_RMA_H
#define WF_CORE_RMA_H

#include "core/path.h"

/* The push (flow.h) of PUT to SIGNAL. */
enum weft_status wf_rma_push(struct wf_req *req);
/* Has it bytes left to send, or the message that has them counted? */
static inline bool wf_rma_has_bytes(const struct wf_req *req)
{
    return req->sent < req->len || req->u.rma.count == WF_COUNT_DUE;
}

/* May an operation begin that needs a message? Checks what the inlined calls check, and that no
 * handler is running. Entered on OK. */
enum weft_status wf_rma_begin_message(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                      unsigned access);
/* The same for an operation that is inlined where the region is mapped: there its check has failed,
 * and this finds out why. */
enum weft_status wf_rma_begin(const struct weft_remote *r, uint64_t offset, uint64_t len,
                              unsigned access);
/* Why an access to [r] was refused; never OK. */
enum weft_status wf_rma_refused(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                unsigned access);
/* A request of the application's on [r]; null: *why. */
struct wf_req *wf_rma_req_new(struct wf_remote *r, enum wf_req_kind kind, uint64_t offset,
                              uint64_t len, struct weft_op *op, enum weft_status *why);

/* A put whose connection was lost: have messages do it, before what was started later. OK | ENOMEM
 * | ELIMIT */
enum weft_status wf_rma_put_again(struct wf_remote *r, uint64_t offset, const void *src, size_t len,
                                  struct weft_op *op);
/* Put by messages whatever the path, after *order. Then *order is that of the last piece, or, if
 * PENDING, the order is that of the request *req_id. As weft_put. */
enum weft_status wf_rma_put_ordered(struct wf_remote *r, uint64_t offset, const void *src,
                                    size_t len, struct weft_op *op, struct wf_order *order,
                                    uint64_t *req_id);

/* The GET to which the GOT with these arguments belongs, a reply to [token]; or null. */
struct wf_req *wf_rma_got_by(struct weft_ep *ep, const struct wf_token *token, const uint32_t *args,
                             unsigned nargs);
/* struct wf_tep_events */
void wf_rma_nic_op_done(void *owner, uint32_t id, enum weft_status status, uint64_t old);

#endif
