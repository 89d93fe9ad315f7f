/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/msg_credit.h"

#include "config/config.h"

uint32_t wf_msg_credit_of(const struct wf_sender *s)
{
    bool full = s->ep->kept_bytes >= wf_config()->msg_keep || s->kept_bytes >= WF_MSG_WINDOW;
    if (full && s->kept_bytes)
        return 0;
    return WF_MSG_WINDOW - (uint32_t)s->kept_bytes;
}
