/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/tcp/wire.h"

#include <string.h>

/* What each kind may have. */
static int shape_ok(const struct wf_tcp_frame *f)
{
    switch (f->kind) {
    case WF_TCP_REQUEST:
    case WF_TCP_REPLY: return f->len <= WF_TCP_AM_MAX && f->room <= WF_TCP_AM_MAX + 1;
    case WF_TCP_BULK_REQUEST:
    case WF_TCP_BULK_REPLY:
        return f->len && f->len <= WF_BULK_MAX && f->room <= WF_TCP_AM_MAX + 1 &&
               f->handler >= WEFT_AM_USER_HANDLERS;
    case WF_TCP_VOID: return !f->len && !f->room;
    case WF_TCP_BYE: return !f->len && f->nargs <= 1 && !f->handler && !f->room;
    case WF_TCP_ACK: return !f->len && !f->nargs && !f->handler;
    case WF_TCP_SYNC: return f->len == sizeof(struct wf_tcp_sync) && !f->nargs && !f->handler;
    default: return 0;
    }
}

enum weft_status wf_tcp_frame_parse(const void *bytes, struct wf_tcp_frame *out)
{
    struct wf_tcp_frame f;
    memcpy(&f, bytes, sizeof f);
    if (f.nargs > WEFT_AM_MAX_ARGS || f.zero || !shape_ok(&f))
        return WEFT_EPROTO;
    if ((f.kind == WF_TCP_REPLY || f.kind == WF_TCP_BULK_REPLY) && !f.room)
        return WEFT_EPROTO;
    *out = f;
    return WEFT_OK;
}
