/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/offer_table.h"

#include <stdlib.h>

#include "base/rand.h"
#include "core/msg_recv.h"

#define FIRST_SLOTS 64u
#define MOST_SLOTS (UINT32_C(1) << 30)

/* The sender chooses its ids, but does not know the address of the slots. */
static uint32_t home(const struct wf_offer_table *t, uint64_t id, unsigned member)
{
    uint64_t state = id ^ (uint64_t)member << 56 ^ (uintptr_t)t->slots;
    return (uint32_t)wf_rand(&state) & t->mask;
}

static uint32_t home_of(const struct wf_offer_table *t, const struct weft_msg *m)
{
    return home(t, m->id, m->member);
}

static void put(struct wf_offer_table *t, struct weft_msg *m)
{
    uint32_t i = home_of(t, m);
    while (t->slots[i])
        i = (i + 1) & t->mask;
    t->slots[i] = m;
    t->count++;
}

/* Give [t], which is empty, [n] slots, a power of two. */
static bool slots_new(struct wf_offer_table *t, uint32_t n)
{
    *t = (struct wf_offer_table){.slots = n ? calloc(n, sizeof *t->slots) : NULL, .mask = n - 1};
    return t->slots;
}

void wf_offer_table_free(struct wf_offer_table *t)
{
    free(t->slots);
    *t = (struct wf_offer_table){0};
}

bool wf_offer_table_make(struct wf_offer_table *t, const struct wf_list *list)
{
    uint32_t offers = 0, n = FIRST_SLOTS;
    wf_list_each(it, list)
    {
        offers++;
    }
    while (n < MOST_SLOTS && n / 2 < offers)
        n *= 2;
    if (n / 2 < offers || !slots_new(t, n)) {
        *t = (struct wf_offer_table){0};
        return false;
    }
    wf_list_each(it, list)
    {
        put(t, wf_container_of(it, struct weft_msg, offers));
    }
    return true;
}

static bool grow(struct wf_offer_table *t)
{
    const struct wf_offer_table old = *t;
    if (!slots_new(t, old.mask + 1 < MOST_SLOTS ? 2 * (old.mask + 1) : 0)) {
        *t = old;
        return false;
    }
    for (uint32_t i = 0; i <= old.mask; i++)
        if (old.slots[i])
            put(t, old.slots[i]);
    free(old.slots);
    return true;
}

void wf_offer_table_add(struct wf_offer_table *t, struct weft_msg *m)
{
    if (t->count < (t->mask + 1) / 2 || grow(t))
        put(t, m);
    else
        wf_offer_table_free(t);
}

/* Move a pointer behind the free slot [i] into it, if searches would no longer find the pointer,
 * and so on, until a slot that was free before. */
static void close_up(struct wf_offer_table *t, uint32_t i)
{
    for (uint32_t k = (i + 1) & t->mask; t->slots[k]; k = (k + 1) & t->mask) {
        uint32_t from = home_of(t, t->slots[k]);
        if (((k - from) & t->mask) < ((k - i) & t->mask))
            continue; /* its search begins behind [i] */
        t->slots[i] = t->slots[k];
        t->slots[k] = NULL;
        i = k;
    }
}

void wf_offer_table_remove(struct wf_offer_table *t, const struct weft_msg *m)
{
    uint32_t i = home_of(t, m);
    while (t->slots[i] != m)
        i = (i + 1) & t->mask;
    t->slots[i] = NULL;
    if (--t->count)
        close_up(t, i);
    else
        wf_offer_table_free(t);
}

struct weft_msg *wf_offer_table_find(const struct wf_offer_table *t, uint64_t id, unsigned member)
{
    struct weft_msg *m;
    for (uint32_t i = home(t, id, member); (m = t->slots[i]); i = (i + 1) & t->mask)
        if (m->id == id && m->member == member)
            return m;
    return NULL;
}
