/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "bench.h"

#define SIMULATED_MOST 32u /* threads, unless a rank has more */
#define THREADS_MOST 64u   /* simulated threads of a rank */
#define MESSAGES 384u      /* of each thread */
#define TILE_ROWS 128u
#define HALO_ROWS 64u /* of each thread, on each side */
#define SEED 1

/* If so many times more threads than are run share the NIC, runs are a quarter as long: the NIC
 * alone limits most of them. */
#define SLOW 8.0

struct job {
    struct wf_bench bench;
    unsigned ranks, threads;
    unsigned shorter; /* divides the messages */
    bool cq_domains;
};

static void set_adapt(const struct job *job, struct wf_set_params *set)
{
    set->ranks = job->ranks;
    set->cq_domains = job->cq_domains && set->td != WF_TD_NONE;
}

static bool rate_run(const struct job *job, enum wf_category c, struct wf_result *out)
{
    struct wf_rate_params p;
    const char *wrong;
    wf_rate_params_of(&p, job->threads);
    wf_set_params_of(&p.set, c, job->ranks, job->threads, 1);
    set_adapt(job, &p.set);
    p.p = 1;
    p.messages = MESSAGES / job->shorter;
    wrong = wf_rate_finish(&p);
    if (wrong)
        snprintf(out->why, sizeof out->why, "%s", wrong);
    if (wrong || !wf_rate_run(&job->bench, &p, out))
        return false;
    /* Short runs: the threads of one queue pair end far apart. */
    out->per_s = (double)p.messages * job->ranks * job->threads / out->ns * 1e9;
    return true;
}

static bool ga_run(const struct job *job, enum wf_category c, struct wf_result *out)
{
    struct wf_ga_params p;
    wf_ga_params_of(&p, c, job->threads);
    set_adapt(job, &p.set);
    p.rows = TILE_ROWS / job->shorter;
    p.tiles = 1;
    return wf_ga_run(&job->bench, &p, out);
}

static bool stencil_run(const struct job *job, enum wf_category c, struct wf_result *out)
{
    struct wf_stencil_params p;
    wf_stencil_params_of(&p, c, job->ranks, job->threads);
    set_adapt(job, &p.set);
    p.rows = HALO_ROWS * job->threads / job->shorter;
    p.iterations = 1;
    return wf_stencil_run(&job->bench, &p, out);
}

static bool bench_run(const struct job *job, enum wf_predict_bench b, enum wf_category c,
                      struct wf_result *out)
{
    switch (b) {
    case WF_PREDICT_RATE: return rate_run(job, c, out);
    case WF_PREDICT_GA: return ga_run(job, c, out);
    default: return stencil_run(job, c, out);
    }
}

static bool all_run(const struct job *job, struct wf_prediction *out, char *why, size_t room)
{
    struct wf_result r;
    for (unsigned b = 0; b < WF_PREDICT_BENCHES; b++) {
        double everywhere = NAN;
        for (unsigned c = 0; c < WF_CATEGORIES; c++) {
            r.why[0] = 0;
            if (!bench_run(job, (enum wf_predict_bench)b, (enum wf_category)c, &r)) {
                snprintf(why, room, "%s", r.why[0] ? r.why : "no memory for the model");
                return false;
            }
            everywhere = c == WF_CAT_EVERYWHERE ? r.per_s : everywhere;
            out->percent[b][c] = 100 * r.per_s / everywhere;
        }
    }
    return true;
}

/* What all messages of the NIC share takes longer, by the threads that are not run. */
static void nic_slow(struct wf_params *p, double factor)
{
    p->v[WF_P_MESSAGE] *= factor;
    p->v[WF_P_COMPLETION_WRITE] *= factor;
    p->v[WF_P_PAGE] *= factor;
    p->v[WF_P_RAIL] *= factor;
}

/* How many contexts the model's NIC has pages for, with those of their domains. */
static unsigned contexts_most(const struct wf_uar_config *uars)
{
    return WF_UAR_NIC_PAGES / (uars->total / 2u + 8);
}

bool wf_predict(unsigned ranks, unsigned threads, const struct wf_uar_config *uars, bool cq_domains,
                struct wf_prediction *out, char *why, size_t room)
{
    struct wf_params params;
    unsigned most = contexts_most(uars);
    struct job job = {.threads = WF_MIN(WF_MIN(threads, THREADS_MOST), most),
                      .cq_domains = cq_domains};
    double factor;
    if (!ranks || !threads) {
        snprintf(why, room, "there must be at least one rank and one thread");
        return false;
    }
    job.ranks = WF_MIN(ranks, WF_MAX(1, WF_MIN(SIMULATED_MOST, most) / job.threads));
    factor = (double)ranks * threads / (job.ranks * job.threads);
    (void)wf_params_set(&params, "paper");
    job.shorter = factor > SLOW ? 4 : 1;
    nic_slow(&params, factor);
    wf_bench_model(&job.bench, &params, SEED);
    job.bench.uars = *uars;
    out->simulated = job.ranks * job.threads;
    if (!all_run(&job, out, why, room))
        return false;
    for (unsigned c = 0; c < WF_CATEGORIES; c++) {
        out->worst[c] = out->percent[0][c];
        for (unsigned b = 1; b < WF_PREDICT_BENCHES; b++)
            out->worst[c] = fmin(out->worst[c], out->percent[b][c]);
    }
    return true;
}
