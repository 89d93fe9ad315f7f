/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GASNETW_DOMAIN_H
#define GASNETW_DOMAIN_H

#include "binding.h"

struct ep_address {
    uint32_t len;
    unsigned char bytes[WEFT_ADDR_MAX];
};

/* Opens the segment of [node] through [peer]; *out stays null if it has none. */
typedef enum weft_status (*gasnetw_open_fn)(struct weft_peer *peer, gasnet_node_t node,
                                            const void *cards, struct weft_remote **out);

/* Reads the variables. */
void gasnetw_domains_configure(void);
/* How many, including the job's endpoint. */
extern unsigned gasnetw_domains; /* constant after gasnet_init */
/* Open all but the job's. [addresses]: of every node's job endpoint. */
enum weft_status gasnetw_domains_open(const struct ep_address *addresses, gasnetw_open_fn open,
                                      const void *cards);

/* This thread's remote of [node]'s segment; [remote]: that of domain 0. */
struct weft_remote *gasnetw_domain_remote(struct weft_remote *remote, gasnet_node_t node);
/* This thread's endpoint, null if it is the job's. *is_first: the job's is to be polled now. */
struct weft_ep *gasnetw_domain_ep(bool *is_first);

#endif
