/* SPDX-License-Identifier: BSD-3-Clause */
#include "category.h"

#include <string.h>

#include "base/util.h"

/* In the paper's order. */
static const struct {
    const char *name, *title;
    int td;
} rows[WF_CATEGORIES] = {
    [WF_CAT_EVERYWHERE] = {"everywhere", "MPI everywhere", WF_TD_NONE},
    [WF_CAT_NAIVE] = {"naive", "naive", WF_HCA_TD_PAGE},
    [WF_CAT_2XDYNAMIC] = {"2xdynamic", "2xDynamic", WF_HCA_TD_SPACED},
    [WF_CAT_SPLIT] = {"split", "Split", WF_HCA_TD_PAGE},
    [WF_CAT_DYNAMIC] = {"dynamic", "Dynamic", WF_HCA_TD_PAGE},
    [WF_CAT_SHARED] = {"shared", "Shared Dynamic", WF_HCA_TD_HALF},
    [WF_CAT_STATIC] = {"static", "Static", WF_TD_NONE},
    [WF_CAT_THREADS] = {"threads", "MPI+threads", WF_TD_NONE},
};

static const char *const ways[WF_WAYS] = {"buf", "ctx", "pd", "mr", "cq", "qp"};

const char *wf_category_name(enum wf_category c)
{
    return rows[c].name;
}

const char *wf_category_title(enum wf_category c)
{
    return rows[c].title;
}

enum wf_category wf_category_find(const char *name)
{
    unsigned i = 0;
    while (i < WF_CATEGORIES && strcmp(rows[i].name, name) != 0)
        i++;
    return (enum wf_category)i;
}

const char *wf_way_name(enum wf_way w)
{
    return ways[w];
}

static unsigned context_ways(enum wf_category c, unsigned threads)
{
    if (c == WF_CAT_EVERYWHERE || c == WF_CAT_NAIVE)
        return 1;
    return c == WF_CAT_SPLIT ? WF_MIN(WF_SPLIT_WAYS, threads) : threads;
}

void wf_set_params_of(struct wf_set_params *out, enum wf_category c, unsigned ranks,
                      unsigned threads, unsigned sides)
{
    unsigned ctx = context_ways(c, threads), all = c == WF_CAT_THREADS ? threads : 1;
    *out = (struct wf_set_params){.ranks = ranks,
                                  .threads = threads,
                                  .sides = sides,
                                  .td = rows[c].td,
                                  .ways = {1, ctx, ctx, 1, all, all},
                                  .depth = 128,
                                  .cq_depth = 128 * sides * all,
                                  .inline_max = 60,
                                  .regions = 1,
                                  .region_len = 64,
                                  .aligned = true,
                                  .blueflame = true,
                                  .shares_qps = c == WF_CAT_THREADS};
}

/* The last context of a rank may have fewer threads in the category "split". */
static bool way_fits(const struct wf_set_params *p, unsigned way)
{
    bool may_end_early = way == WF_WAY_CTX || way == WF_WAY_PD;
    unsigned x = p->ways[way];
    return x && x <= p->threads && (may_end_early || p->threads % x == 0);
}

const char *wf_set_wrong(const struct wf_set_params *p)
{
    if (!p->ranks || !p->threads || !p->sides || p->sides > 2)
        return "there must be at least one rank and one thread";
    if ((uint64_t)p->ranks * p->threads > 4096)
        return "there are more than 4096 threads";
    for (unsigned i = 0; i < WF_WAYS; i++)
        if (!way_fits(p, i))
            return "the ways of sharing must divide the number of threads";
    if (p->ways[WF_WAY_PD] > p->ways[WF_WAY_CTX])
        return "a protection domain can be shared only within a shared context";
    if (p->ways[WF_WAY_CQ] > p->ways[WF_WAY_CTX])
        return "a completion queue can be shared only within a shared context";
    if (p->ways[WF_WAY_QP] > p->ways[WF_WAY_CQ])
        return "a shared queue pair needs a completion queue that is shared as widely";
    if (p->ways[WF_WAY_QP] > 1 && p->td != WF_TD_NONE)
        return "a shared queue pair has no thread domain";
    return p->depth ? NULL : "the depth must not be 0";
}

void wf_ledger_print(const struct wf_ledger *l, FILE *to)
{
    fprintf(
        to,
        "contexts %llu  PDs %llu  TDs %llu  MRs %llu  QPs %llu  CQs %llu  UARs %llu  uUARs %llu "
        "(used %llu, wasted %llu)  bytes %llu  level %u  locks per post %u, per poll %u\n",
        (unsigned long long)l->contexts, (unsigned long long)l->pds, (unsigned long long)l->tds,
        (unsigned long long)l->mrs, (unsigned long long)l->qps, (unsigned long long)l->cqs,
        (unsigned long long)l->uars, (unsigned long long)l->uuars, (unsigned long long)l->used,
        (unsigned long long)l->wasted, (unsigned long long)l->bytes, l->level, l->locks,
        l->poll_locks);
}
