/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk messages: control messages whose payload the transport moves without a copy (transport.h,
 * struct wf_bulk). What their payload is. */
#ifndef WF_CORE_BULK_H
#define WF_CORE_BULK_H

#include "core/ctl.h"

/* Bytes of one bulk message. The longer a write, the less time the system takes
 * (loopback, sender: 119 ns per KiB in writes of 256 KiB, 98 in those of 1 MiB). */
#define WF_BULK_PIECE WF_BULK_MAX

/* wf_bulk.ref[0] of an outgoing message; the rest names the request or the region. */
enum wf_bulk_ref { WF_BULK_REQ = 1, WF_BULK_REGION };

static inline bool wf_peer_can_bulk(const struct weft_peer *peer)
{
    return peer->caps & WF_CAP_BULK;
}

/* Payload: [len] bytes from [at] on of the memory of the request [id]. */
static inline void wf_bulk_of_req(struct wf_bulk *b, uint64_t id, uint64_t at, uint32_t len)
{
    b->len = len;
    b->ref[0] = WF_BULK_REQ;
    b->ref[1] = WF_LO(id);
    b->ref[2] = WF_HI(id);
    b->ref[3] = WF_LO(at);
    b->ref[4] = WF_HI(at);
}

/* Payload: [len] bytes of a region of this process; [region]: as in a request about it. */
static inline void wf_bulk_of_region(struct wf_bulk *b, const uint32_t region[WF_REGION_ARGS],
                                     uint32_t len)
{
    b->len = len;
    b->ref[0] = WF_BULK_REGION;
    memcpy(b->ref + 1, region, WF_REGION_ARGS * sizeof *region);
}

/* Reply to [am] with the payload that [b] names; sets its handler and arguments. */
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

/* struct wf_tep_events: where the payload is, asked each time a transport is about to touch some of
 * it, for the operation may have ended, and the region may have been closed. */
void *wf_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
void wf_bulk_unhold(void *owner, const struct wf_bulk *bulk);

#endif
