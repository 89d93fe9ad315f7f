/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf`: options, and the order in which limits and tests run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "perf_threads.h"
#include "tool.h"

#define RUN_NS 50e6        /* a run of a test aims at this long */
#define PAIRED_RUN_NS 20e6 /* shorter, so that limit and test run under equal conditions */
#define FIRST_BYTES ((uint64_t)32 << 20) /* the most that the first run, a warm-up, moves */
#define FIRST_LEAST 4u
#define SLOW_NS 500e6
#define SPINS_ALONE 5000u /* about 0.1 ms of polling */
#define SPINS_CROWDED 20u /* ranks outnumber cores: the other rank needs this rank's core */

/* ---- for the tests ---- */

int wf_perf_fail(struct wf_perf *p, const char *what, enum weft_status status)
{
    fflush(stdout);
    fprintf(stderr, "weft perf %s: rank %u: %s: %s (%s)\n", p->test->name, p->rank, what,
            weft_status_text(status), weft_status_name(status));
    return -1;
}

int wf_perf_sync(struct wf_perf *p)
{
    enum weft_status s = weft_job_barrier(p->job);
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "waiting for the other ranks", s);
}

/* ---- one size ---- */

/* Broadcast rank 0's number of iterations. */
int wf_perf_agree(struct wf_perf *p, uint64_t *iters)
{
    uint64_t *all = malloc(p->size * sizeof *all);
    enum weft_status s = all ? weft_job_allgather(p->job, iters, sizeof *iters, all) : WEFT_ENOMEM;
    if (s == WEFT_OK)
        *iters = all[0];
    free(all);
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "agreeing on a number of iterations", s);
}

static int run_once(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    memset(r, 0, sizeof *r);
    p->run++;
    if (wf_perf_sync(p) || p->test->run(p, iters, r))
        return -1;
    if (r->mean_ns == 0)
        r->mean_ns = r->elapsed_ns / (double)iters;
    return wf_perf_sync(p); /* all ranks have verified */
}

static double run_ns(const struct wf_perf *p)
{
    return p->o->time_ms ? p->o->time_ms * 1e6 : p->o->pairs ? PAIRED_RUN_NS : RUN_NS;
}

/* Of the first run, a warm-up: fewer than the test's number if runs are short. */
static uint64_t first_iters(const struct wf_perf *p)
{
    double part = run_ns(p) < RUN_NS ? run_ns(p) / RUN_NS : 1;
    uint64_t n = (uint64_t)((double)p->test->first_iters * part);
    uint64_t fit = FIRST_BYTES / (p->len + 1) + FIRST_LEAST;
    n = n < FIRST_LEAST ? FIRST_LEAST : n < fit ? n : fit;
    return p->o->iters && p->o->iters < n ? p->o->iters : n;
}

/* After a run of [n] iterations that took [elapsed_ns]: how many fill the time. Never fewer than
 * [n]: a run that took too long may have been disturbed. */
static uint64_t next_iters(const struct wf_perf *p, uint64_t n, double elapsed_ns)
{
    double want = run_ns(p) / elapsed_ns * (double)n;
    if (want <= (double)n && elapsed_ns < SLOW_NS)
        return n;
    return want < 1e9 ? (uint64_t)want + 1 : 1000000000u;
}

/* Warm up, and estimate how many iterations fill the time: from a cold run, then from a warm one.
 */
static int choose_iters(struct wf_perf *p, uint64_t *iters)
{
    uint64_t n = first_iters(p);
    for (int warm = 0; warm < 2; warm++) {
        struct wf_perf_result r;
        if (run_once(p, n, &r))
            return -1;
        if (p->o->iters) {
            *iters = p->o->iters;
            return 0;
        }
        if (p->rank == 0 && r.elapsed_ns > 0)
            n = next_iters(p, n, r.elapsed_ns);
        if (wf_perf_agree(p, &n))
            return -1;
    }
    *iters = n;
    return 0;
}

struct runs {
    double lat[WF_PERF_PAIRS_MAX], p99[WF_PERF_PAIRS_MAX], mean[WF_PERF_PAIRS_MAX],
        rate[WF_PERF_PAIRS_MAX], gbs[WF_PERF_PAIRS_MAX];
};

static void summarize(struct wf_perf *p, struct wf_perf_row *row, const struct runs *runs,
                      unsigned n)
{
    row->median = (struct wf_perf_result){.lat_ns = wf_perf_median_of(runs->lat, n),
                                          .p99_ns = wf_perf_median_of(runs->p99, n),
                                          .mean_ns = wf_perf_median_of(runs->mean, n),
                                          .rate_mps = wf_perf_median_of(runs->rate, n),
                                          .gbs = wf_perf_median_of(runs->gbs, n)};
    row->pairs = p->o->pairs;
    if (!row->pairs)
        return;
    row->limit_name = wf_perf_limit_kinds[p->limit].name;
    row->limit_unit = wf_perf_limit_kinds[p->limit].unit;
    row->limit = wf_perf_median_of(row->limits, n);
    row->ratio = wf_perf_median_of(row->ratios, n);
}

static int run_all(struct wf_perf *p, struct wf_perf_row *row, struct runs *runs)
{
    unsigned n = p->o->pairs ? p->o->pairs : WF_PERF_REPEATS;
    for (unsigned i = 0; i < n; i++) {
        struct wf_perf_result r;
        if (p->rank == 0)
            wf_perf_print_progress(p->o, p->len, i + 1, n);
        if (p->o->pairs && wf_perf_limit_run(p, row->iters, &row->limits[i]))
            return -1;
        if (run_once(p, row->iters, &r))
            return -1;
        runs->lat[i] = r.lat_ns;
        runs->p99[i] = r.p99_ns;
        runs->mean[i] = r.mean_ns;
        runs->rate[i] = r.rate_mps;
        runs->gbs[i] = r.gbs;
        row->figures[i] = wf_perf_figure_of(p->limit, &r);
        row->ratios[i] = row->limits[i] > 0 ? row->figures[i] / row->limits[i] : 0;
    }
    summarize(p, row, runs, n);
    return 0;
}

/* ---- --plot ---- */

static void point_add(struct wf_plot_series *c, double x, double y)
{
    if (y > 0 && c->n < WF_PLOT_POINTS) {
        c->x[c->n] = x;
        c->y[c->n++] = y;
    }
}

static void curve_add(struct wf_perf *p, const struct wf_perf_row *row)
{
    point_add(&p->curve[0], (double)row->size, wf_perf_figure_of(p->limit, &row->median));
    point_add(&p->curve[1], (double)row->size, row->limit);
}

static int curve_draw(struct wf_perf *p)
{
    static const char *const units[] = {"ns", "million/s", "GB/s"};
    struct wf_perf_result one = {.lat_ns = 0, .rate_mps = 1, .gbs = 2};
    char title[128], y[64];
    struct wf_plot plot = {.title = title,
                           .x_label = "bytes",
                           .y_label = y,
                           .series = p->curve,
                           .count = p->o->pairs ? 2 : 1};
    snprintf(title, sizeof title, "weft perf %s", p->test->name);
    snprintf(y, sizeof y, "%s", units[(int)wf_perf_figure_of(p->limit, &one)]);
    snprintf(p->curve[0].name, sizeof p->curve[0].name, "%s", p->test->name);
    snprintf(p->curve[1].name, sizeof p->curve[1].name, "limit: %s",
             wf_perf_limit_kinds[p->limit].name);
    return wf_plot_draw("weft perf: --plot", p->o->plot, &plot, 1);
}

static int run_size(struct wf_perf *p, size_t size)
{
    struct wf_perf_row *row = calloc(1, sizeof *row);
    struct runs *runs = calloc(1, sizeof *runs);
    int bad = !row || !runs;
    if (bad)
        wf_perf_fail(p, "keeping results", WEFT_ENOMEM);
    p->len = size;
    if (!bad && p->test->open(p) == 0) {
        row->test = p->test->name;
        row->transport = p->transport;
        row->size = size;
        bad = choose_iters(p, &row->iters) || run_all(p, row, runs);
        if (!bad) /* after a failure the process ends: closing would need the other ranks */
            p->test->close(p);
        if (!bad && p->rank == 0) {
            wf_perf_print_row(p->o, row);
            curve_add(p, row);
        }
    } else
        bad = 1;
    free(row);
    free(runs);
    return bad ? -1 : 0;
}

static int run_sizes(struct wf_perf *p)
{
    const struct wf_perf_options *o = p->o;
    if (o->size_last == 0)
        return run_size(p, 0);
    for (size_t size = o->size_first; size <= o->size_last; size *= 2)
        if (run_size(p, size))
            return -1;
    return 0;
}

/* ---- the job ---- */

static void on_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                         void *arg)
{
    struct wf_perf *p = arg;
    (void)ep;
    (void)peer;
    (void)why;
    p->down = true;
}

/* Switch off all other transports, before the library reads its variables. */
static int only_transport(const char *name)
{
    char value[64];
    snprintf(value, sizeof value, "loop,%s", name);
    return setenv("WEFT_TRANSPORTS", value, 1);
}

static int join(struct wf_perf *p)
{
    struct weft_job_params params = WEFT_JOB_PARAMS_INIT;
    enum weft_status s;
    params.peer_down = on_peer_down;
    params.arg = p;
    s = weft_job_open(&params, &p->job);
    if (s != WEFT_OK) {
        fprintf(stderr, "weft perf: joining the job: %s (%s)\n", weft_status_text(s),
                weft_status_name(s));
        return -1;
    }
    p->rank = weft_job_rank(p->job);
    p->size = weft_job_size(p->job);
    p->ep = weft_job_ep(p->job);
    return 0;
}

/* ---- machines and cores ---- */

/* Equal for all processes until the machine reboots; 0: not known. */
static uint64_t machine_id(void)
{
    char text[64] = "";
    uint64_t id = 0xcbf29ce484222325u; /* FNV-1a */
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f)
        return 0;
    if (!fgets(text, sizeof text, f))
        text[0] = 0;
    fclose(f);
    for (const char *at = text; *at; at++)
        id = (id ^ (unsigned char)*at) * 0x100000001b3u;
    return text[0] ? id : 0;
}

/* Without shared memory each rank is a node of its own to the library. Ranks on one machine still
 * share its cores, and the context has to know. */
static void share_cores(struct wf_perf *p, unsigned here)
{
    unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN), mine = cores;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        mine = (unsigned)CPU_COUNT(&set);
    p->spins = here <= cores ? SPINS_ALONE : SPINS_CROWDED;
    if (here > weft_job_local_size(p->job)) /* so many compete for this rank's cores */
        weft_ctx_set_local_ranks(weft_job_ctx(p->job), (here * mine + cores - 1) / cores);
}

static int find_machine(struct wf_perf *p)
{
    uint64_t *ids = malloc(p->size * sizeof *ids);
    enum weft_status s = WEFT_ENOMEM;
    unsigned here = 0;
    p->machine_id = machine_id();
    if (ids)
        s = weft_job_allgather(p->job, &p->machine_id, sizeof *ids, ids);
    for (unsigned i = 0; s == WEFT_OK && i < p->size; i++)
        here += ids[i] == p->machine_id;
    free(ids);
    if (s != WEFT_OK)
        return wf_perf_fail(p, "finding out who shares this machine", s);
    share_cores(p, here);
    return 0;
}

/* The transport to all other ranks, or that to itself for a rank alone. */
static int find_transport(struct wf_perf *p)
{
    const char *wanted = p->o->transport;
    for (unsigned i = 0; i < p->size; i++) {
        struct weft_path path = {.transport = "", .why = ""};
        enum weft_status s;
        if (i == p->rank && p->size > 1)
            continue;
        s = weft_path_of(weft_job_peer(p->job, i), WEFT_OP_AM, NULL, 1, &path);
        if (s != WEFT_OK)
            return wf_perf_fail(p, "asking how another rank is reached", s);
        if (wanted && i != p->rank && strcmp(wanted, path.transport)) {
            fprintf(stderr, "weft perf: --transport %s: rank %u reaches rank %u by %s\n", wanted,
                    p->rank, i, path.transport);
            return -1;
        }
        p->transport =
            p->transport && strcmp(p->transport, path.transport) ? "several" : path.transport;
    }
    p->is_net = !strcmp(p->transport, "tcp") || !strcmp(p->transport, "rdma");
    return find_machine(p);
}

/* Close the job and return [code]; rank 0 has printed the reason. */
static int leave(struct wf_perf *p, int code)
{
    enum weft_status s = weft_job_barrier(p->job);
    if (s == WEFT_OK)
        s = weft_job_close(p->job);
    if (s != WEFT_OK && code == 0) {
        wf_perf_fail(p, "leaving the job", s);
        return 1;
    }
    return code;
}

/* The command line is wrong: only rank 0 prints that. */
static int refuse(const struct wf_perf_complaint *c)
{
    struct wf_perf p = {0};
    if (join(&p)) {
        fprintf(stderr, "weft perf: %s\n", c->text);
        return WF_TOOL_USAGE;
    }
    if (p.rank == 0)
        fprintf(stderr, "weft perf: %s\n", c->text);
    return leave(&p, WF_TOOL_USAGE);
}

/* Has the job the test's number of ranks? If not, prints what to run instead. */
static bool ranks_fit(const struct wf_perf *p)
{
    const struct wf_perf_test *t = p->test;
    bool fit = p->size == t->ranks || (t->ranks == 0 && (p->size == 2 || !p->o->pairs));
    if (!fit && p->rank == 0)
        fprintf(
            stderr,
            "weft perf: %s%s runs between two ranks, this job has %u.\n"
            "Run instead: weft run -n 2 -- weft perf %s%s, with the other options as they are\n",
            t->name, t->ranks ? "" : " --pairs", p->size, t->name,
            p->o->pairs ? " --pairs 15" : "");
    return fit;
}

/* Is there a limit to compare with (--pairs)? If not, prints what to run instead. */
static bool pairs_fit(const struct wf_perf *p)
{
    if (!p->o->pairs || (p->limit != WF_PERF_NO_RATE && strcmp(p->transport, "rdma") != 0))
        return true;
    if (p->rank == 0)
        fprintf(stderr,
                "weft perf: --pairs: there is no limit of the machine for %s over %s.\n"
                "Run instead: weft perf compare --transport %s\n",
                p->test->name, p->transport, p->transport);
    return false;
}

static bool size_fits(const struct wf_perf *p)
{
    bool am = !strncmp(p->test->name, "am_", 3);
    size_t max = am ? weft_am_max(p->ep) : WF_PERF_SIZE_MAX;
    if (p->o->size_last <= max)
        return true;
    if (p->rank == 0)
        fprintf(stderr,
                "weft perf: --size: an active message carries at most %zu bytes; "
                "WEFT_AM_MAX raises that\n",
                max);
    return false;
}

/* Can the picture be drawn? All ranks know before the long measurement. */
static bool plot_fits(struct wf_perf *p)
{
    uint64_t bad = p->o->plot && p->rank == 0 && wf_plot_check("weft perf: --plot", p->o->plot);
    return !p->o->plot || (wf_perf_agree(p, &bad) == 0 && !bad);
}

static void choose(struct wf_perf *p, unsigned i)
{
    p->own = wf_perf_choose(p->all, i);
    p->o = &p->own;
    p->test = p->own.test;
    p->limit = !p->is_net ? p->test->limit : p->test->tcp_limit;
}

static int run_test(struct wf_perf *p)
{
    if ((p->o->pairs && wf_perf_limit_open(p)) || run_sizes(p))
        return -1;
    wf_perf_limit_close(p);
    return 0;
}

static int run_job(struct wf_perf *p)
{
    int code = 0;
    if (find_transport(p))
        return 1;
    for (unsigned i = 0; i < p->all->ntests; i++) {
        choose(p, i);
        if (!ranks_fit(p) || !size_fits(p) || !pairs_fit(p))
            return leave(p, WF_TOOL_USAGE);
    }
    if (!plot_fits(p))
        return leave(p, 1);
    if (p->size == 2)
        p->peer = weft_job_peer(p->job, 1 - p->rank);
    p->samples = malloc(sizeof *p->samples);
    if (!p->samples) {
        wf_perf_fail(p, "keeping samples", WEFT_ENOMEM);
        return 1;
    }
    for (unsigned i = 0; i < p->all->ntests; i++) {
        choose(p, i);
        if (p->rank == 0 && i == 0)
            wf_perf_print_head(p);
        if (run_test(p))
            return 1;
    }
    if (p->rank == 0 && p->o->plot && curve_draw(p))
        code = 1;
    free(p->samples);
    return leave(p, code);
}

int wf_tool_perf(int argc, char **argv)
{
    struct wf_perf_options o = {0};
    struct wf_perf_complaint c = {{0}};
    struct wf_perf p = {0};
    if (argc > 1 && !strcmp(argv[1], "threads"))
        return wf_perf_threads(argc - 1, argv + 1);
    if (wf_perf_parse(argc, argv, &o, &c))
        return refuse(&c);
    if (o.help) {
        (o.alone == WF_PERF_CURVE ? wf_perf_curve_usage : wf_perf_usage)();
        return 0;
    }
    if (o.alone == WF_PERF_LIMITS)
        return wf_perf_limits(o.json);
    if (o.alone == WF_PERF_MEM)
        return wf_perf_mem(o.json);
    if (o.alone == WF_PERF_REG)
        return wf_perf_reg(o.json);
    if (o.alone == WF_PERF_COMPARE)
        return wf_perf_compare(&o);
    if (o.alone == WF_PERF_CURVE)
        return wf_perf_curve(&o);
    p.all = &o;
    p.o = &o;
    p.test = o.tests[0];
    p.net.fd = -1;
    if (o.transport && only_transport(o.transport)) {
        fprintf(stderr, "weft perf: --transport %s: %s\n", o.transport, strerror(errno));
        return 1;
    }
    return join(&p) ? 1 : run_job(&p);
}
