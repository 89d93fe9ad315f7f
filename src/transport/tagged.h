/* SPDX-License-Identifier: BSD-3-Clause */
/* The control message of a tagged message that is sent whole. */
#ifndef WF_TRANSPORT_TAGGED_H
#define WF_TRANSPORT_TAGGED_H

#include <stdint.h>
#include <weft/weft.h>

/* Its two arguments are the low and the high half of the tag. If the message has a space or data,
 * three more follow: the halves of its data, and a word that says what it has (core/msg_wire.h). */
#define WF_AM_TAGGED WEFT_AM_USER_HANDLERS
enum { WF_TAGGED_MORE_ARGS = 5 };

/* Its arguments without a space and data. */
struct wf_tagged_args {
    uint32_t v[2];
};

static inline struct wf_tagged_args wf_tagged_args(uint64_t tag)
{
    return (struct wf_tagged_args){{(uint32_t)tag, (uint32_t)(tag >> 32)}};
}

#endif
