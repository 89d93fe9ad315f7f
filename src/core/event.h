/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_CORE_EVENT_H
#define WF_CORE_EVENT_H

#include <weft/event.h>

#include "base/util.h"

struct wf_event {
    struct wf_list item;
    struct weft_event event;
};

/* Count one more user of [eq]. The application cannot close an event queue that has users. Returns
 * OK, or why [eq] is not valid. */
enum weft_status wf_eq_use(struct weft_eq *eq);
void wf_eq_unuse(struct weft_eq *eq);
/* Append [event] to the queue. The caller has allocated [event] with malloc, and the queue frees
 * it. */
void wf_eq_post(struct weft_eq *eq, struct wf_event *event);

#endif
