/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/book.h"

#include <stdlib.h>

#define FEWEST 16u

/* Generations count up, tokens are random: either makes a difference in every bit. */
static uint32_t hash_of(const struct wf_address *a)
{
    uint64_t h = (a->process.token[0] ^ a->ep_gen) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

static struct wf_book_entry **bucket_of(const struct wf_book *book, const struct wf_address *a)
{
    return &book->buckets[hash_of(a) & book->mask];
}

struct wf_book_entry *wf_book_find(const struct wf_book *book, const struct wf_address *address)
{
    struct wf_book_entry *e = book->buckets ? *bucket_of(book, address) : NULL;
    while (e && memcmp(&e->address, address, sizeof *address))
        e = e->next;
    return e;
}

static void push(struct wf_book *book, struct wf_book_entry *entry)
{
    struct wf_book_entry **b = bucket_of(book, &entry->address);
    entry->next = *b;
    *b = entry;
}

/* Longer chains if there is no memory. */
static void grow(struct wf_book *book)
{
    uint32_t n = book->buckets ? 2 * (book->mask + 1) : FEWEST;
    struct wf_book more = {calloc(n, sizeof *more.buckets), n - 1, book->count};
    if (!more.buckets)
        return;
    for (uint32_t i = 0; book->buckets && i <= book->mask; i++)
        for (struct wf_book_entry *e = book->buckets[i], *next; e; e = next) {
            next = e->next;
            push(&more, e);
        }
    free(book->buckets);
    *book = more;
}

bool wf_book_add(struct wf_book *book, struct wf_book_entry *entry)
{
    if (!book->buckets || book->count > book->mask)
        grow(book);
    if (!book->buckets)
        return false;
    push(book, entry);
    book->count++;
    return true;
}

void wf_book_remove(struct wf_book *book, struct wf_book_entry *entry)
{
    struct wf_book_entry **at = bucket_of(book, &entry->address);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    book->count--;
}

void wf_book_each(const struct wf_book *book, void (*act)(struct wf_book_entry *entry, void *arg),
                  void *arg)
{
    for (uint32_t i = 0; book->buckets && i <= book->mask; i++)
        for (struct wf_book_entry *e = book->buckets[i], *next; e; e = next) {
            next = e->next;
            act(e, arg);
        }
}

void wf_book_free(struct wf_book *book)
{
    free(book->buckets);
    *book = (struct wf_book){0};
}
