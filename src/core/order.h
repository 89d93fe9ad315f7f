/* SPDX-License-Identifier: BSD-3-Clause */
/* Order by value (struct weft_order of weft/frag.h). The first word of an order has the serial
 * number of its peer handle, and below it a kind. The second word depends on the kind:
 *
 * | kind    | second word                                                             |
 * | NONE    | 0, and the first word is 0: no order                                    |
 * | MESSAGE | the transport's name of the message (struct wf_order)                   |
 * | REQUEST | the id of the request of a put or get (req.h), which never comes again: |
 * |         | if there is no such request any more, the operation is complete         |
 * | DONE    | 0: the operation was complete when its call returned                    |
 */
#ifndef WF_CORE_ORDER_H
#define WF_CORE_ORDER_H

#include <weft/frag.h>

#include "core/core.h"

/* Returns true if [order] names an operation to [peer]. */
bool wf_order_is_of(const struct weft_order *order, const struct weft_peer *peer);
/* Returns true if [order] names a put or get to [peer] that is under way. */
bool wf_order_is_pending(const struct weft_order *order, const struct weft_peer *peer);

#endif
