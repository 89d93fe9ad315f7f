/* SPDX-License-Identifier: BSD-3-Clause */
/* What `weft plan` prints and draws. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/sharing_names.h"
#include "plan.h"
#include "plot.h"
#include "tool.h"

#define BAR_PAGES_LOG 13u /* 8192 pages: PF_LOG_BAR_SIZE=5, 32 MiB of 4 KiB */
#define BAR_LOG 5u

static const char *bytes_text(double bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    unsigned u = 0;
    for (; bytes >= 1024 && u < 5; u++)
        bytes /= 1024;
    snprintf(text, 32, "%.2f %s", bytes, units[u]);
    return text;
}

/* The locks that posting takes. */
static const char *locks_text(unsigned locks)
{
    if (locks & WEFT_LOCK_ENDPOINT)
        return "endpoint, qp";
    if (locks & WEFT_LOCK_UUAR)
        return "qp, uuar";
    return locks & WEFT_LOCK_QP ? "qp" : "none";
}

/* The firmware's setting that gives so many pages. */
static unsigned bar_log(uint64_t pages)
{
    unsigned log = BAR_LOG;
    while (UINT64_C(1) << (BAR_PAGES_LOG + log - BAR_LOG) < pages)
        log++;
    return log;
}

/* ---- the choice ---- */

static void print_variables(const struct wf_plan *p, const struct wf_plan_row *row)
{
    struct wf_uar_config c = wf_uar_config_env(p->o->mode);
    printf("    WEFT_SHARING=%s\n", wf_sharing_text(row->category));
    if (p->o->mode == WF_UAR_CLASSIC && c.total > 2 && !row->locks)
        printf("    MLX5_TOTAL_UUARS=2 MLX5_NUM_LOW_LAT_UUARS=1   %" PRIu64 " pages less\n",
               row->contexts * (c.total / 2u - 1));
    if (row->uars > WF_UAR_NIC_PAGES)
        printf(
            "    PF_LOG_BAR_SIZE=%u   in the NIC's firmware (mlxconfig, then a reboot), for more "
            "than %u pages\n",
            bar_log(row->uars), WF_UAR_NIC_PAGES);
}

static void print_choice(const struct wf_plan *p)
{
    const struct wf_plan_row *row = &p->rows[p->best < 0 ? p->nearest : p->best];
    const char *name = wf_sharing_text(row->category);
    char text[128];
    if (p->best >= 0) {
        printf("\n%s: the fewest pages of all that lose at most %g%%%s.\nVariables:\n", name,
               p->o->loss, p->o->locks ? "" : " and in which threads contend for no lock");
        print_variables(p, row);
        return;
    }
    printf("\nNo category fits.");
    if (!row->impossible)
        printf(" The nearest is %s: it %s.", name, wf_plan_unfit(p, row, text, sizeof text));
    putchar('\n');
}

/* ---- tables ---- */

static void print_row(const struct wf_plan *p, const struct wf_plan_row *row)
{
    char text[32];
    if (row->impossible) {
        printf("%-10s  %s\n", wf_sharing_text(row->category), row->impossible);
        return;
    }
    printf("%-10s %8" PRIu64 " %11" PRIu64 " %8" PRIu64 " %7" PRIu64 " %6.1f%% %7" PRIu64
           " %7" PRIu64 " %11s %5u  %-12s %6.1f%%\n",
           wf_sharing_text(row->category), row->contexts, row->qps, row->cqs, row->uars,
           100.0 * (double)row->uars / (double)p->o->uars, row->used, row->wasted,
           bytes_text(row->bytes, text), row->level, locks_text(row->locks), row->rate);
}

static void print_links(const struct wf_plan *p)
{
    char text[32];
    puts("\nConnections of a node, by kind:");
    for (unsigned i = 0; i < WF_PLAN_CONNECTIONS; i++)
        printf("%-10s %15.0f queue pairs %12s   %s\n", p->links[i].name, p->links[i].qps,
               bytes_text(p->links[i].bytes, text), p->links[i].formula);
}

void wf_plan_print(const struct wf_plan *p)
{
    printf("%" PRIu64 " nodes of %" PRIu64 " processes of %" PRIu64 " threads; %" PRIu64
           " peers of each endpoint; policy of mlx5: %s.\n"
           "On each node:\n\n"
           "%-10s %8s %11s %8s %7s %7s %7s %7s %11s %5s  %-12s %7s\n",
           p->o->nodes, p->o->ranks, p->o->threads, p->peers,
           p->o->mode == WF_UAR_CLASSIC ? "classic" : "current", "category", "contexts",
           "queue pairs", "CQs", "UARs", "of NIC", "uUARs", "wasted", "memory", "level", "locks",
           "rate");
    for (unsigned i = 0; i < p->nrows; i++)
        print_row(p, &p->rows[i]);
    puts("\nrate: beside everywhere, the worst of three benchmarks in a model of the NIC.\n"
         "level: what a thread shares: 1 nothing, 2 a page, 3 a register, 4 a queue pair.");
    print_choice(p);
    print_links(p);
}

void wf_plan_print_json(const struct wf_plan *p)
{
    char text[128];
    for (unsigned i = 0; i < p->nrows; i++) {
        const struct wf_plan_row *row = &p->rows[i];
        const char *unfit = wf_plan_unfit(p, row, text, sizeof text);
        printf("{\"category\":\"%s\",\"contexts\":%" PRIu64 ",\"queue_pairs\":%" PRIu64
               ",\"cqs\":%" PRIu64 ",\"uars\":%" PRIu64 ",\"uuars_used\":%" PRIu64
               ",\"uuars_wasted\":%" PRIu64 ",\"bytes\":%.0f,\"level\":%u,\"locks\":%u,"
               "\"rate\":%.2f,\"possible\":%s,\"chosen\":%s,\"unfit\":",
               wf_sharing_text(row->category), row->contexts, row->qps, row->cqs, row->uars,
               row->used, row->wasted, row->bytes, row->level, row->locks, row->rate,
               row->impossible ? "false" : "true", (int)i == p->best ? "true" : "false");
        if (unfit)
            wf_json_string(stdout, unfit);
        else
            fputs("null", stdout);
        puts("}");
    }
    for (unsigned i = 0; i < WF_PLAN_CONNECTIONS; i++)
        printf("{\"connection\":\"%s\",\"queue_pairs\":%.0f,\"bytes\":%.0f}\n", p->links[i].name,
               p->links[i].qps, p->links[i].bytes);
}

/* ---- the picture ---- */

int wf_plan_draw(const struct wf_plan *p)
{
    static struct wf_plot_series bars[2];
    static char labels[WF_PLAN_ROWS][64];
    const char *at[WF_PLAN_ROWS];
    struct wf_plot plot = {.title = "What threads share of a NIC",
                           .y_label = "percent of MPI everywhere",
                           .labels = at,
                           .series = bars,
                           .count = 2};
    double everywhere = (double)p->rows[0].uars;
    unsigned n = 0;
    strcpy(bars[0].name, "rate (model)");
    strcpy(bars[1].name, "doorbell pages");
    for (unsigned i = 0; i < p->nrows; i++) {
        const struct wf_plan_row *row = &p->rows[i];
        if (row->impossible)
            continue;
        snprintf(labels[n], sizeof labels[n], "%s, %" PRIu64 " pages",
                 wf_sharing_text(row->category), row->uars);
        at[n] = labels[n];
        bars[0].x[n] = bars[1].x[n] = (double)n;
        bars[0].y[n] = row->rate;
        bars[1].y[n] = everywhere > 0 ? 100 * (double)row->uars / everywhere : 0;
        n++;
    }
    bars[0].n = bars[1].n = n;
    return wf_plot_draw(WF_PLAN ": --plot", p->o->plot, &plot, 1);
}
