/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft plan`: the choice of a category, and the command. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "config/sharing_names.h"
#include "plot.h"
#include "tool.h"

/* The model repeats to about this: a category counts as losing nothing. Percent. */
#define RATE_NOISE 0.5

/* ---- the choice ---- */

static bool is_slow(const struct wf_plan *p, const struct wf_plan_row *row)
{
    return row->rate + RATE_NOISE < 100 - p->o->loss;
}

const char *wf_plan_unfit(const struct wf_plan *p, const struct wf_plan_row *row, char *text,
                          size_t room)
{
    if (row->impossible)
        return row->impossible;
    if (row->uars > p->o->uars)
        snprintf(text, room, "takes %llu pages of %llu", (unsigned long long)row->uars,
                 (unsigned long long)p->o->uars);
    else if (p->o->memory > 0 && row->bytes > p->o->memory)
        snprintf(text, room, "takes %.4g MiB of %.4g", row->bytes / 1048576,
                 p->o->memory / 1048576);
    else if (row->level > 2 && !p->o->locks)
        snprintf(text, room, "threads contend for locks (--locks)");
    else if (is_slow(p, row))
        snprintf(text, room, "loses %.3g%%", 100 - row->rate);
    else
        return NULL;
    return text;
}

/* Fewer pages, then fewer bytes, then faster. */
static bool is_better(const struct wf_plan_row *a, const struct wf_plan_row *b)
{
    if (a->uars != b->uars)
        return a->uars < b->uars;
    if (a->bytes < b->bytes || b->bytes < a->bytes)
        return a->bytes < b->bytes;
    return a->rate > b->rate;
}

/* How far a row is from fitting: what it lacks counts first, then what it loses. */
static double distance(const struct wf_plan *p, const struct wf_plan_row *row)
{
    double d = 0;
    if (row->impossible)
        return 1e18;
    if (row->uars > p->o->uars)
        d += 1000 * (double)row->uars / (double)p->o->uars;
    if (p->o->memory > 0 && row->bytes > p->o->memory)
        d += 1000 * row->bytes / p->o->memory;
    if (row->level > 2 && !p->o->locks)
        d += 200;
    return d + (is_slow(p, row) ? 100 - row->rate : 0);
}

void wf_plan_choose(struct wf_plan *p)
{
    char text[128];
    p->best = -1;
    p->nearest = 0;
    for (unsigned i = 0; i < p->nrows; i++) {
        const struct wf_plan_row *row = &p->rows[i];
        if (distance(p, row) < distance(p, &p->rows[p->nearest]))
            p->nearest = (int)i;
        if (wf_plan_unfit(p, row, text, sizeof text))
            continue;
        if (p->best < 0 || is_better(row, &p->rows[p->best]))
            p->best = (int)i;
    }
}

/* ---- the command ---- */

int wf_tool_plan(int argc, char **argv)
{
    static struct wf_plan p;
    struct wf_plan_options o;
    int bad = wf_plan_options_parse(argc, argv, &o);
    if (bad)
        return bad;
    if (o.help) {
        wf_plan_usage();
        return 0;
    }
    if (o.plot && wf_plot_check(WF_PLAN ": --plot", o.plot))
        return 1;
    p.o = &o;
    wf_plan_count(&p);
    if (wf_plan_rates(&p))
        return 1;
    wf_plan_choose(&p);
    (o.json ? wf_plan_print_json : wf_plan_print)(&p);
    if (o.plot && wf_plan_draw(&p))
        return 1;
    return p.best < 0;
}
