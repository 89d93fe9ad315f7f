/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages, as the rest of the core uses them. */
#ifndef WF_CORE_AM_H
#define WF_CORE_AM_H

#include "core/core.h"

/* struct wf_tep_events: run the handler of [am]. */
void wf_am_deliver(void *owner, struct weft_am *am);

/* The token of [am]; null: its handler has returned. (Messages that came together from one sender
 * and may not be replied to share a serial: a copy of any of them will do.) */
static inline struct wf_token *wf_am_token(const struct weft_am *am)
{
    struct wf_token *token = am ? am->token : NULL;
    return token && token->serial == am->serial && am->ep->busy ? token : NULL;
}

/* Check what a handler passed as a message's arguments and payload. OK | EINVAL */
enum weft_status wf_am_out_check(unsigned handler, const uint32_t *args, unsigned nargs,
                                 const void *data, size_t len);

#endif
