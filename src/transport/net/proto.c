/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/net/proto.h"

#include <string.h>

/* Are the fields valid for the frame's kind? */
static int shape_ok(const struct wf_net_frame *f)
{
    switch (f->kind) {
    case WF_NET_REQUEST: return f->len <= WF_NET_REQUEST_MAX && f->room <= WF_NET_AM_MAX + 1;
    case WF_NET_REPLY: return f->len <= WF_NET_AM_MAX && f->room <= WF_NET_AM_MAX + 1;
    case WF_NET_BULK_REQUEST:
    case WF_NET_BULK_REPLY:
        return f->len && f->len <= WF_BULK_MAX && f->room <= WF_NET_AM_MAX + 1 &&
               f->handler >= WEFT_AM_USER_HANDLERS;
    case WF_NET_VOID: return !f->len && !f->room;
    case WF_NET_BYE: return !f->len && f->nargs <= 1 && !f->handler && !f->room;
    case WF_NET_ACK: return !f->len && !f->nargs && !f->handler;
    case WF_NET_SYNC: return f->len == sizeof(struct wf_net_sync) && !f->nargs && !f->handler;
    default: return 0;
    }
}

enum weft_status wf_net_frame_parse(const void *bytes, struct wf_net_frame *out)
{
    struct wf_net_frame f;
    memcpy(&f, bytes, sizeof f);
    if (f.nargs > WEFT_AM_MAX_ARGS || f.zero || !shape_ok(&f))
        return WEFT_EPROTO;
    if ((f.kind == WF_NET_REPLY || f.kind == WF_NET_BULK_REPLY) && !f.room)
        return WEFT_EPROTO;
    *out = f;
    return WEFT_OK;
}
