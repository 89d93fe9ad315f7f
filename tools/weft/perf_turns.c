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
static int side_run(const struct wf_side *s, unsigned loads, double all[][WF_FIGURES], char *why,
                    size_t room)
{
    double v[WF_LOADS];
    if (!s->rival)
        return wf_weft_run(s->contest, s->transport, s->time_ms, s->load, loads, all, why, room);
    if (wf_rival_run(s->rival, s->contest, s->load, loads, v, why, room))
        return -1;
    for (unsigned i = 0; i < loads; i++)
        all[i][s->contest->figure] = v[i];
    return 0;
}

static void beside(struct wf_beside *b, unsigned r, double first, double other)
{
    b->first[r] = first;
    b->other[r] = other;
    b->ratio[r] = first / other;
}

/* One round, the [r]-th. 0, or 1 + the index of the side that failed. */
static int round_run(const struct wf_side *sides, unsigned nsides, unsigned loads, unsigned r,
                     struct wf_turns *t, char *why, size_t room)
{
    unsigned others = nsides - 1;
    double first[WF_LOADS][WF_FIGURES] = {{0}}, other[WF_LOADS][WF_FIGURES] = {{0}};
    if (side_run(&sides[0], loads, first, why, room))
        return 1;
    for (unsigned l = 0; l < loads; l++)
        t[l].time[r] =
            first[l][WF_FIGURE_LAT] > 0 ? first[l][WF_FIGURE_LAT] : first[l][WF_FIGURE_MEAN];
    for (unsigned k = 0; k < others; k++) {
        unsigned i = (r + k) % others;
        enum wf_figure figure = sides[i + 1].contest->figure;
        if (side_run(&sides[i + 1], loads, other, why, room))
            return 2 + (int)i;
        for (unsigned l = 0; l < loads; l++)
            beside(&t[l].beside[i], r, first[l][figure], other[l][figure]);
    }
    return 0;
}

int wf_turns_run(const struct wf_side *sides, unsigned nsides, unsigned loads, unsigned rounds,
                 const char *what, struct wf_turns *t, char *why, size_t room)
{
    unsigned r;
    int failed = 0;
    for (r = 0; r < rounds && !failed; r += !failed) {
        progress(what, r + 1, rounds);
        failed = round_run(sides, nsides, loads, r, t, why, room);
    }
    for (unsigned l = 0; l < loads; l++)
        t[l].n = r;
    progress_end();
    return failed;
}
