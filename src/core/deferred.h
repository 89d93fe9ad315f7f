/* SPDX-License-Identifier: BSD-3-Clause */
/* Deferred calls (weft_ep_defer): functions of the program that a poll runs after the handlers, and
 * without the endpoint's lock. deferred.c describes them. */
#ifndef WF_CORE_DEFERRED_H
#define WF_CORE_DEFERRED_H

#include "core/core.h"

/* Is a deferred call queued at [ep]? Any thread; only the answer of a thread that queued one itself
 * is certain. */
static inline bool wf_deferred_is_due(const struct weft_ep *ep)
{
    return wf_load_relaxed(&ep->due) & WF_EP_DUE_DEFERRED;
}

/* As wf_deferred_is_due, for weft_ep_arm, which has set WF_EP_ARMED: either this returns true, or
 * every later weft_ep_defer sees that flag, and writes to the endpoint's descriptor. */
static inline bool wf_deferred_is_due_armed(struct weft_ep *ep)
{
    return atomic_fetch_or_explicit(&ep->due, 0, memory_order_acq_rel) & /* "deferred sleep" */
           WF_EP_DUE_DEFERRED;
}

/* Let the next sleep at [ep]'s descriptor end at once: there is something for a poll to do. */
void wf_ep_wake(struct weft_ep *ep);

/* Run the deferred calls that are queued at [ep]. The caller has polled, and does not hold the
 * endpoint's lock. Returns how many ran and did not defer themselves again; 0 if another thread is
 * running deferred calls of [ep], which then runs these, too. */
int wf_deferred_run(struct weft_ep *ep);

/* Is another thread running deferred calls of [ep], or inside weft_ep_defer? Such a thread keeps
 * [ep] from closing. */
bool wf_deferred_is_elsewhere(struct weft_ep *ep);

/* Called when [ep] closes; the caller holds its lock. From wf_deferred_stop on, no deferred call
 * runs, until wf_deferred_close has ended all of them with ECANCELED. Returns OK, or EBUSY if
 * another thread is running deferred calls, or is inside weft_ep_defer. */
enum weft_status wf_deferred_stop(struct weft_ep *ep);
void wf_deferred_close(struct weft_ep *ep);

#endif
