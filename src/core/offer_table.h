/* SPDX-License-Identifier: BSD-3-Clause */
/* An index of one sender's kept offers (msg_push.c), by the id of the sender's request and the
 * member of its group: slots for pointers, of which at most half are in use. A pointer is in the
 * slot to which its key hashes, or in the next free one behind it. The index is made when a message
 * is cancelled that is far from both ends of the list of kept offers. It is freed when the list is
 * empty, or cannot grow for lack of memory; then the list is searched. */
#ifndef WF_CORE_OFFER_TABLE_H
#define WF_CORE_OFFER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct weft_msg;

struct wf_offer_table {
    struct weft_msg **slots; /* NULL: there is no index */
    uint32_t mask;           /* number of slots - 1 */
    uint32_t count;          /* offers in the index */
};

/* Make the index of all offers in [list], the sender's kept offers. Returns false if there is no
 * memory. */
bool wf_offer_table_make(struct wf_offer_table *t, const struct wf_list *list);
void wf_offer_table_free(struct wf_offer_table *t);
/* Add [m] to the index, which exists. Without memory to grow, there is no index afterwards. */
void wf_offer_table_add(struct wf_offer_table *t, struct weft_msg *m);
/* Remove [m], which is in the index. Without offers, there is no index afterwards. */
void wf_offer_table_remove(struct wf_offer_table *t, const struct weft_msg *m);
/* Returns the offer [id] of [member], or NULL. The index exists. */
struct weft_msg *wf_offer_table_find(const struct wf_offer_table *t, uint64_t id, unsigned member);

#endif
