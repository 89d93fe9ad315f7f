/* SPDX-License-Identifier: BSD-3-Clause */
/* An mlx5 NIC in virtual time. It implements hca.h, and moves no bytes. The processor's costs of
 * posting and polling are charged to the thread that calls (sim.h); outside of a run, calls cost
 * nothing. One NIC exists at a time, and one thread of the process uses it. */
#ifndef WEFT_SCALE_HCA_MODEL_H
#define WEFT_SCALE_HCA_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "params.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/uar.h"

extern const struct wf_hca_ops wf_hca_model;

/* Makes the NIC, or makes it anew; no context of the former one is open. Contexts that are opened
 * later have the settings [uars]. [pages]: UAR pages of the NIC. */
void wf_model_start(const struct wf_params *params, const struct wf_uar_config *uars,
                    uint32_t pages);

/* What the NIC did since it was made. */
struct wf_model_counts {
    uint64_t messages;
    uint64_t pcie_reads; /* of memory, by the NIC: requests and payloads */
    uint64_t blueflames, doorbells;
    uint64_t completions;
    uint64_t shared_writes; /* to pages that another core wrote just before */
    uint64_t locks;         /* taken by posting and polling */
};
void wf_model_counts(struct wf_model_counts *out);

#endif
