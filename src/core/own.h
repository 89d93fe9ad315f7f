/* SPDX-License-Identifier: BSD-3-Clause */
/* Weft's own messages: how msg.c and rma.c send, answer and read them. */
#ifndef WF_CORE_OWN_H
#define WF_CORE_OWN_H

#include "base/log.h"
#include "core/core.h"

/* A 64-bit value is two arguments, the low half first. */
#define WF_LO(x) ((uint32_t)(x))
#define WF_HI(x) ((uint32_t)((uint64_t)(x) >> 32))

static inline uint64_t wf_word64(const uint32_t *args)
{
    return args[0] | (uint64_t)args[1] << 32;
}

static inline enum weft_status wf_own_request(struct weft_peer *peer, enum wf_own handler,
                                              const uint32_t *args, unsigned nargs,
                                              const void *data, size_t len, size_t reply_max)
{
    return peer->transport->request(wf_peer_tpeer(peer), handler, args, nargs, data, len,
                                    reply_max);
}

/* Reply to [am], if its sender left room for it. */
static inline void wf_own_answer(const struct weft_am *am, enum wf_own handler,
                                 const uint32_t *args, unsigned nargs, const void *data, size_t len)
{
    struct wf_token *token = am->token;
    struct wf_am_out out = wf_am_out(handler, args, nargs, data, len, 0);
    if (!token->can_reply || len > token->reply_room)
        return;
    token->can_reply = 0;
    (void)token->tep->transport->reply(token, &out);
}

/* [am] is not what its handler takes: it is dropped. */
static inline void wf_own_bad(const struct weft_am *am)
{
    wf_error("a message that breaks the protocol was dropped: a %s to handler %u with %u arguments "
             "and %u bytes",
             am->is_reply ? "reply" : "request", am->handler, am->nargs, am->len);
    wf_ep_count(am->ep, WF_STAT_BAD_MESSAGES, 1);
}

#endif
