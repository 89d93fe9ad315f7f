/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages: functions for the rest of the core. */
#ifndef WF_CORE_AM_H
#define WF_CORE_AM_H

#include "core/core.h"

/* The function [deliver] of struct wf_tep_events: run the handler that [am] names. */
void wf_am_deliver(void *owner, struct weft_am *am);

/* Returns the token of [am], in which the transport keeps the state of the message. Returns NULL if
 * the handler has returned, that is, if [am] is a copy that outlived the message. (Messages that
 * came together from one sender and may not be replied to share a serial. So a copy of one of these
 * messages has a valid token until the last of their handlers returns.) */
static inline struct wf_token *wf_am_token(const struct weft_am *am)
{
    struct wf_token *token = am ? am->token : NULL;
    return token && token->serial == am->serial && wf_ep_is_busy(am->ep) ? token : NULL;
}

/* Check the handler id, arguments and payload of a message that the application wants to send.
 * Returns OK | EINVAL */
enum weft_status wf_am_out_check(unsigned handler, const uint32_t *args, unsigned nargs,
                                 const void *data, size_t len);

#endif
