/* SPDX-License-Identifier: BSD-3-Clause */
#include "perf_turns.h"

#include <stdio.h>
#include <unistd.h>

static void progress(const char *what, unsigned pair, unsigned pairs)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K%s, pair %u of %u", what, pair, pairs);
    fflush(stderr);
}

static void progress_end(void)
{
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

/* *time: Weft's latency or mean. */
static int side_run(const struct wf_side *s, double *v, double *time, char *why, size_t room)
{
    double all[WF_FIGURES];
    if (s->rival)
        return s->rival->run(s->rival, s->contest, s->iters, v, why, room);
    if (wf_weft_run(s->contest, s->transport, s->iters, all, why, room))
        return -1;
    *v = all[s->contest->figure];
    *time = all[WF_FIGURE_LAT] > 0 ? all[WF_FIGURE_LAT] : all[WF_FIGURE_MEAN];
    return 0;
}

int wf_turns_run(const struct wf_side sides[2], unsigned pairs, const char *what,
                 struct wf_turns *t, char *why, size_t room)
{
    int failed = 0;
    for (t->n = 0; t->n < pairs; t->n++) {
        double unused;
        progress(what, t->n + 1, pairs);
        if (side_run(&sides[0], &t->a[t->n], &t->time[t->n], why, room))
            failed = 1;
        else if (sides[1].contest && side_run(&sides[1], &t->b[t->n], &unused, why, room))
            failed = 2;
        if (failed)
            break;
        t->ratio[t->n] = sides[1].contest ? t->a[t->n] / t->b[t->n] : 0;
    }
    progress_end();
    return failed;
}
