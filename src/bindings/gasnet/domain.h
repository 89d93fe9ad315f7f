/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GASNETW_DOMAIN_H
#define GASNETW_DOMAIN_H

#include "binding.h"

struct ep_address {
    uint32_t len;
    unsigned char bytes[WEFT_ADDR_MAX];
};

/* Opens the segment of [node] through [peer]. *out stays NULL if the node has no segment. */
typedef enum weft_status (*gasnetw_open_fn)(struct weft_peer *peer, gasnet_node_t node,
                                            const void *cards, struct weft_remote **out);

/* Reads the variables. */
void gasnetw_domains_configure(void);
/* The number of domains, including domain 0, the job's endpoint. */
extern unsigned gasnetw_domains; /* constant after gasnet_init */
/* Open the endpoints of all domains except domain 0. [addresses] has the address of every node's
 * job endpoint. */
enum weft_status gasnetw_domains_open(const struct ep_address *addresses, gasnetw_open_fn open,
                                      const void *cards);

/* Returns the remote by which this thread's domain accesses the segment of [node]. [remote] is the
 * remote of domain 0. */
struct weft_remote *gasnetw_domain_remote(struct weft_remote *remote, gasnet_node_t node);
/* Returns the endpoint of this thread's domain, or NULL for domain 0. Sets *is_first if the thread
 * should also poll the job's endpoint this time. */
struct weft_ep *gasnetw_domain_ep(bool *is_first);

#endif
