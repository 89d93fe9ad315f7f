/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/addr_table.h"

#include <stdlib.h>

#define FEWEST 16u

/* Two addresses of one process differ in the generation, which counts up, and addresses of two
 * processes in the token, which is random. The multiplication spreads either difference over the
 * hash. */
static uint32_t hash_of(const struct wf_address *a)
{
    uint64_t h = (a->process.token[0] ^ a->ep_gen) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

static struct wf_addr_entry **bucket_of(const struct wf_addr_table *table,
                                        const struct wf_address *a)
{
    return &table->buckets[hash_of(a) & table->mask];
}

struct wf_addr_entry *wf_addr_table_find(const struct wf_addr_table *table,
                                         const struct wf_address *address)
{
    struct wf_addr_entry *e = table->buckets ? *bucket_of(table, address) : NULL;
    while (e && memcmp(&e->address, address, sizeof *address))
        e = e->next;
    return e;
}

static void push(struct wf_addr_table *table, struct wf_addr_entry *entry)
{
    struct wf_addr_entry **b = bucket_of(table, &entry->address);
    entry->next = *b;
    *b = entry;
}

/* Double the number of buckets. If no memory is available, the table keeps its buckets, and the
 * chains get longer. */
static void grow(struct wf_addr_table *table)
{
    uint32_t n = table->buckets ? 2 * (table->mask + 1) : FEWEST;
    struct wf_addr_table more = {calloc(n, sizeof *more.buckets), n - 1, table->count};
    if (!more.buckets)
        return;
    for (uint32_t i = 0; table->buckets && i <= table->mask; i++)
        for (struct wf_addr_entry *e = table->buckets[i], *next; e; e = next) {
            next = e->next;
            push(&more, e);
        }
    free(table->buckets);
    *table = more;
}

bool wf_addr_table_add(struct wf_addr_table *table, struct wf_addr_entry *entry)
{
    if (!table->buckets || table->count > table->mask)
        grow(table);
    if (!table->buckets)
        return false;
    push(table, entry);
    table->count++;
    return true;
}

void wf_addr_table_remove(struct wf_addr_table *table, struct wf_addr_entry *entry)
{
    struct wf_addr_entry **at = bucket_of(table, &entry->address);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    table->count--;
}

void wf_addr_table_each(const struct wf_addr_table *table,
                        void (*act)(struct wf_addr_entry *entry, void *arg), void *arg)
{
    for (uint32_t i = 0; table->buckets && i <= table->mask; i++)
        for (struct wf_addr_entry *e = table->buckets[i], *next; e; e = next) {
            next = e->next;
            act(e, arg);
        }
}

void wf_addr_table_free(struct wf_addr_table *table)
{
    free(table->buckets);
    *table = (struct wf_addr_table){0};
}
