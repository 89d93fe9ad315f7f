/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk messages: control messages (Weft's own active messages) whose payload the transport moves
 * directly between the memories of sender and receiver (transport.h, struct wf_bulk). The functions
 * here name that payload. */
#ifndef WF_CORE_BULK_H
#define WF_CORE_BULK_H

#include "core/ctl.h"

/* Bytes of one bulk message: as many as possible, because a longer write(2) to a socket takes less
 * kernel time per byte. Measured at the sender over loopback: 119 ns per KiB with writes of 256
 * KiB, 98 ns per KiB with writes of 1 MiB. */
#define WF_BULK_PIECE WF_BULK_MAX

/* Values of wf_bulk.ref[0] of an outgoing message: the payload is in the memory of a request, or in
 * a region. The other elements of [ref] name the request or the region. */
enum wf_bulk_ref { WF_BULK_REQ = 1, WF_BULK_REGION };

static inline bool wf_peer_can_bulk(const struct weft_peer *peer)
{
    return peer->caps & WF_CAP_BULK;
}

/* Name the payload of [b]: [len] bytes of the local memory of the request [id], from byte [at]
 * on. */
static inline void wf_bulk_of_req(struct wf_bulk *b, uint64_t id, uint64_t at, uint32_t len)
{
    b->len = len;
    b->ref[0] = WF_BULK_REQ;
    b->ref[1] = WF_LO(id);
    b->ref[2] = WF_HI(id);
    b->ref[3] = WF_LO(at);
    b->ref[4] = WF_HI(at);
}

/* Name the payload of [b]: [len] bytes of a region of this process. [region] holds slot, generation
 * and offset, as in a peer's request about a region. */
static inline void wf_bulk_of_region(struct wf_bulk *b, const uint32_t region[WF_REGION_ARGS],
                                     uint32_t len)
{
    b->len = len;
    b->ref[0] = WF_BULK_REGION;
    memcpy(b->ref + 1, region, WF_REGION_ARGS * sizeof *region);
}

/* Reply to [am] with a bulk message whose payload [b] names. Stores the reply's handler and
 * arguments in [b]. */
static inline enum weft_status wf_ctl_reply_bulk(const struct weft_am *am, enum wf_ctl handler,
                                                 const uint32_t *args, unsigned nargs,
                                                 struct wf_bulk *b)
{
    struct wf_token *token = am->token;
    enum weft_status status;
    b->args = args;
    b->nargs = (uint16_t)nargs;
    b->handler = (uint8_t)handler;
    b->is_reply = 1;
    if (token->can_reply != WF_REPLY_DUE || !token->tep->transport->reply_bulk)
        return WEFT_EPROTO;
    status = token->tep->transport->reply_bulk(token, b);
    if (status == WEFT_OK)
        token->can_reply = WF_REPLY_NONE;
    return status;
}

/* The functions bulk_hold and bulk_unhold of struct wf_tep_events. A transport calls wf_bulk_hold
 * each time before it reads or writes a part of the payload. Between two such calls the operation
 * may end or the region may be closed. wf_bulk_hold returns the address of payload byte [at] and
 * lowers *n to the bytes that are contiguous there. It returns NULL if the payload is gone. */
void *wf_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
void wf_bulk_unhold(void *owner, const struct wf_bulk *bulk);
/* The function bulk_gone of struct wf_tep_events (ending.c). */
void wf_bulk_gone(void *owner, const struct wf_bulk *bulk);

#endif
