/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_CORE_EVENT_H
#define WF_CORE_EVENT_H

#include <weft/event.h>

#include "base/util.h"

struct wf_event {
    struct wf_list item;
    struct weft_event event;
};

/* Count one more user of [eq], which cannot be closed while it has any. */
enum weft_status wf_eq_use(struct weft_eq *eq);
void wf_eq_unuse(struct weft_eq *eq);
/* Post [event], which was malloc'd and is the queue's from now on. */
void wf_eq_post(struct weft_eq *eq, struct wf_event *event);

#endif
