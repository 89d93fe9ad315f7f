/* SPDX-License-Identifier: BSD-3-Clause */
/* What each category of sharing does to the rate of messages, by the model, run then and there. */
#ifndef WEFT_SCALE_PREDICT_H
#define WEFT_SCALE_PREDICT_H

#include "category.h"

enum wf_predict_bench {
    WF_PREDICT_RATE,    /* 2-byte writes without lists, one completion for 64 */
    WF_PREDICT_GA,      /* writes of a global array, a completion for each */
    WF_PREDICT_STENCIL, /* halo exchange */
    WF_PREDICT_BENCHES
};

/* Rates in percent of WF_CAT_EVERYWHERE. */
struct wf_prediction {
    double percent[WF_PREDICT_BENCHES][WF_CATEGORIES];
    double worst[WF_CATEGORIES]; /* of the benchmarks */
    unsigned simulated;          /* threads that were run */
};

/* Predicts for a node with [ranks] of [threads]. With more than 32 threads only some of them are
 * run (64 of one rank at most), and the NIC is slower for them in proportion. [cq_domains]: the
 * completion queues of domains have no locks, as Weft makes them; the paper's have locks. Takes at
 * most two seconds. Returns false, and writes why, if the model cannot be run. Not thread-safe:
 * there is one model in a process. */
bool wf_predict(unsigned ranks, unsigned threads, const struct wf_uar_config *uars, bool cq_domains,
                struct wf_prediction *out, char *why, size_t room);

#endif
