/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/ctl.h"

enum ctl_kind { REQUEST, REPLY, BOTH };

static const struct ctl_row {
    weft_am_fn function;
    uint8_t kind; /* enum ctl_kind */
    uint8_t bulk; /* enum wf_ctl_bulk */
} rows[] = {
#define WF_CTL(name, kind, bulk, function) {function, kind, WF_CTL_BULK_##bulk},
#include "core/ctl.def"
#undef WF_CTL
};
_Static_assert(WF_ARRAY_LEN(rows) == WF_CTL_END - WF_CTL_FIRST, "a row for each id");

void wf_ctl_register(struct weft_ep *ep)
{
    for (unsigned i = 0; i < WF_ARRAY_LEN(rows); i++)
        ep->handlers[WF_CTL_FIRST + i].fn = rows[i].function;
}

enum wf_ctl_bulk wf_ctl_bulk_of(unsigned handler, bool is_reply)
{
    const struct ctl_row *row = handler >= WF_CTL_FIRST ? &rows[handler - WF_CTL_FIRST] : NULL;
    bool is_right = row && (row->kind == BOTH || (row->kind == REPLY) == is_reply);
    return is_right ? (enum wf_ctl_bulk)row->bulk : WF_CTL_BULK_NONE;
}
