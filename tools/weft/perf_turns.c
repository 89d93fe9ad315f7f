/* SPDX-License-Identifier: BSD-3-Clause */
#include "perf_turns.h"

#include <stdio.h>
#include <unistd.h>

static void progress(const char *what, unsigned round, unsigned rounds)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K%s, round %u of %u", what, round, rounds);
    fflush(stderr);
}

static void progress_end(void)
{
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

/* The figures of a run; of another library only the one that is compared. */
static int side_run(const struct wf_side *s, double all[WF_FIGURES], char *why, size_t room)
{
    if (s->rival)
        return s->rival->run(s->rival, s->contest, s->iters, &all[s->contest->figure], why, room);
    return wf_weft_run(s->contest, s->transport, s->iters, all, why, room);
}

/* One round, the [r]-th. 0, or 1 + the index of the side that failed. */
static int round_run(const struct wf_side *sides, unsigned nsides, unsigned r, struct wf_turns *t,
                     char *why, size_t room)
{
    unsigned others = nsides - 1;
    double first[WF_FIGURES] = {0}, other[WF_FIGURES] = {0};
    if (side_run(&sides[0], first, why, room))
        return 1;
    t->time[r] = first[WF_FIGURE_LAT] > 0 ? first[WF_FIGURE_LAT] : first[WF_FIGURE_MEAN];
    for (unsigned k = 0; k < others; k++) {
        unsigned i = (r + k) % others;
        enum wf_figure figure = sides[i + 1].contest->figure;
        struct wf_beside *b = &t->beside[i];
        if (side_run(&sides[i + 1], other, why, room))
            return 2 + (int)i;
        b->first[r] = first[figure];
        b->other[r] = other[figure];
        b->ratio[r] = first[figure] / other[figure];
    }
    return 0;
}

int wf_turns_run(const struct wf_side *sides, unsigned nsides, unsigned rounds, const char *what,
                 struct wf_turns *t, char *why, size_t room)
{
    int failed = 0;
    for (t->n = 0; t->n < rounds && !failed; t->n += !failed) {
        progress(what, t->n + 1, rounds);
        failed = round_run(sides, nsides, t->n, t, why, room);
    }
    progress_end();
    return failed;
}
