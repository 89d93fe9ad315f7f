/* SPDX-License-Identifier: BSD-3-Clause */
/* A hash table whose keys are endpoint addresses. An object in the table embeds a struct
 * wf_addr_entry. */
#ifndef WF_TRANSPORT_ADDR_TABLE_H
#define WF_TRANSPORT_ADDR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/address.h"

struct wf_addr_entry {
    struct wf_addr_entry *next; /* in the bucket */
    struct wf_address address;
};

struct wf_addr_table {
    struct wf_addr_entry **buckets;
    uint32_t mask, count;
};

/* Returns NULL if no entry has the address. */
struct wf_addr_entry *wf_addr_table_find(const struct wf_addr_table *table,
                                         const struct wf_address *address);
/* Add [entry], whose address the caller has set. Returns false if there is no memory for the
 * first buckets. Later additions always succeed: without memory the chains get longer. */
bool wf_addr_table_add(struct wf_addr_table *table, struct wf_addr_entry *entry);
void wf_addr_table_remove(struct wf_addr_table *table, struct wf_addr_entry *entry);
/* Call [act] for each entry, in no particular order. [act] may remove the entry that it is called
 * for. [act] must not remove another entry or add one. */
void wf_addr_table_each(const struct wf_addr_table *table,
                        void (*act)(struct wf_addr_entry *entry, void *arg), void *arg);
/* Free the table, not the entries. */
void wf_addr_table_free(struct wf_addr_table *table);

#endif
