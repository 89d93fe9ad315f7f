/* SPDX-License-Identifier: BSD-3-Clause */
/* What the endpoints of a context share of a NIC (enum weft_sharing): how many doorbell pages each
 * category takes, and which category AUTO is. The device's part is in contexts.h. */
#ifndef WF_TRANSPORT_RDMA_SHARING_H
#define WF_TRANSPORT_RDMA_SHARING_H

#include <stdint.h>
#include <weft/weft.h>

#include "transport/rdma/uar.h"

/* On one NIC context, more than this number of active pages side by side delay each other
 * ("Scalable Communication Endpoints for MPI+Threads Applications", figure 7: from 8 to 16
 * threads). */
#define WF_SHARING_SIDE_BY_SIDE 8u

/* The endpoints of a process on one NIC. */
struct wf_sharing_case {
    struct wf_uar_config uars;
    uint32_t endpoints;
    uint32_t queue_pairs; /* of each endpoint */
    uint32_t contexts;    /* limit for the contexts that SPLIT opens, at least 1 */
};

/* Returns how many contexts of the NIC the category opens. */
uint32_t wf_sharing_contexts(enum weft_sharing category, const struct wf_sharing_case *c);
/* Returns how many doorbell pages the category takes. [category] is not AUTO. */
uint64_t wf_sharing_pages(enum weft_sharing category, const struct wf_sharing_case *c);
/* Returns the category that AUTO is: one that takes at most [limit] pages (0: no limit) and loses
 * no speed, the cheapest of these; if there is none, the one that loses least; else STATIC. With 0
 * endpoints, which means that their number is not known, TWO_X_DYNAMIC. */
enum weft_sharing wf_sharing_auto(const struct wf_sharing_case *c, uint32_t limit);

#endif
