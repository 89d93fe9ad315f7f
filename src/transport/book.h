/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of what is known by an endpoint's address. The items have their entry within. */
#ifndef WF_TRANSPORT_BOOK_H
#define WF_TRANSPORT_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/address.h"

struct wf_book_entry {
    struct wf_book_entry *next; /* in the bucket */
    struct wf_address address;
};

struct wf_book {
    struct wf_book_entry **buckets;
    uint32_t mask, count;
};

/* Null: it is not there. */
struct wf_book_entry *wf_book_find(const struct wf_book *book, const struct wf_address *address);
/* [entry], with its address set. False: no memory (for the first one; else chains get longer). */
bool wf_book_add(struct wf_book *book, struct wf_book_entry *entry);
void wf_book_remove(struct wf_book *book, struct wf_book_entry *entry);
/* [act] on each, in no order; it may remove that one, but no other and add none. */
void wf_book_each(const struct wf_book *book, void (*act)(struct wf_book_entry *entry, void *arg),
                  void *arg);
/* The table itself. */
void wf_book_free(struct wf_book *book);

#endif
