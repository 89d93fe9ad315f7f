/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <string.h>

#include "hca_model.h"
#include "set_connect.h"

void wf_bench_model(struct wf_bench *out, const struct wf_params *params, uint64_t seed)
{
    *out = (struct wf_bench){.ops = &wf_hca_model,
                             .device = "model0",
                             .params = *params,
                             .uars = wf_uar_config_of(WF_UAR_CLASSIC),
                             .seed = seed,
                             .is_model = true};
}

bool wf_bench_moves(const struct wf_bench *b)
{
    return wf_hca_moves(b->ops);
}

bool wf_bench_open(const struct wf_bench *b, const struct wf_set_params *params, struct wf_set *set,
                   struct wf_sync *sync, struct wf_result *out)
{
    memset(out, 0, sizeof *out);
    if (b->is_model) {
        wf_model_start(&b->params, &b->uars, WF_UAR_NIC_PAGES);
        wf_sync_virtual(sync, &b->params, b->seed);
    } else {
        wf_sync_real(sync, params->ranks * params->threads, b->processor);
    }
    if (wf_set_open(set, b->ops, b->device, params, out->why, sizeof out->why) != WEFT_OK)
        return false;
    out->ledger = set->ledger;
    return true;
}

void wf_bench_close(const struct wf_bench *b, struct wf_set *set, struct wf_result *out)
{
    struct wf_model_counts counts = {.messages = 0};
    if (b->is_model)
        wf_model_counts(&counts);
    out->pcie_reads = counts.pcie_reads;
    wf_set_close(set);
}
