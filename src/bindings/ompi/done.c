/* SPDX-License-Identifier: BSD-3-Clause */
/* Callbacks of ended items. They run one after the other, outside of handlers and of the calls
 * that began the operations. A callback may call everything, progress too. */
#include "rma.h"

/* The callback may free the descriptor, or send it again. */
static void message_done(struct wbtl_frag *frag)
{
    const bool is_ours = frag->base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
    if (frag->base.des_cbfunc)
        frag->base.des_cbfunc(&wbtl.super, frag->item.peer, &frag->base, frag->item.status);
    if (is_ours)
        (void)wbtl_free(&wbtl.super, &frag->base);
}

int wbtl_callbacks(int most)
{
    struct wbtl_item *item;
    int n = 0;
    for (; n < most; n++) {
        wbtl_lock();
        item = wbtl_remove(&wbtl.done);
        wbtl_unlock();
        if (!item)
            break;
        switch (item->kind) {
        case WBTL_MESSAGE: message_done(wbtl_frag_of_item(item)); break;
        case WBTL_ACCESS: wbtl_access_done(item); break;
        }
    }
    return n;
}
