/* SPDX-License-Identifier: BSD-3-Clause */
/* The rates of the categories, by the model of a NIC (tools/scale). */
#include <stdio.h>

#include "plan.h"
#include "predict.h"

static enum wf_category modelled(enum weft_sharing category)
{
    switch (category) {
    case WEFT_SHARING_EVERYWHERE: return WF_CAT_EVERYWHERE;
    case WEFT_SHARING_TWO_X_DYNAMIC: return WF_CAT_2XDYNAMIC;
    case WEFT_SHARING_DYNAMIC: return WF_CAT_DYNAMIC;
    case WEFT_SHARING_SHARED: return WF_CAT_SHARED;
    case WEFT_SHARING_STATIC: return WF_CAT_STATIC;
    case WEFT_SHARING_THREADS: return WF_CAT_THREADS;
    default: return WF_CAT_SPLIT;
    }
}

/* Weft's completion queues of a thread domain have no lock; the paper's have. */
int wf_plan_rates(struct wf_plan *p)
{
    const struct wf_uar_config uars = wf_uar_config_env(p->o->mode);
    struct wf_prediction found;
    char why[256] = "";
    if (!wf_predict((unsigned)p->o->ranks, (unsigned)p->o->threads, &uars, !p->o->paper, &found,
                    why, sizeof why)) {
        fprintf(stderr, WF_PLAN ": the model of a NIC: %s\n", why);
        return -1;
    }
    for (unsigned i = 0; i < p->nrows; i++)
        p->rows[i].rate = found.worst[modelled(p->rows[i].category)];
    return 0;
}
