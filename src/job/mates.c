/* SPDX-License-Identifier: BSD-3-Clause */
#include "job/nodes.h"

bool wf_mates(const struct wf_member *a, const struct wf_member *b)
{
    const unsigned both = WF_CARD_SHARES | WF_CARD_MAPS;
    return (a->flags & b->flags & both) == both && wf_same_node(&a->process, &b->process);
}
