/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs Weft's and other libraries' own benchmarks, and reads their output. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_peers.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "perf_launch.h"

#define MIB 1048576.0
#define SMALL 4096u   /* bytes below which a rate has more digits than a bandwidth */
#define TCP_WINDOW 4u /* large messages in flight */

const char *const wf_over_names[] = {"shm", "tcp", "rdma"};
const char *const wf_figure_keys[] = {"lat_ns", "rate_mps", "gbs", "mean_ns"};

enum wf_over wf_over_of(const char *transport)
{
    return !transport                   ? WF_OVER_SHM
           : !strcmp(transport, "tcp")  ? WF_OVER_TCP
           : !strcmp(transport, "rdma") ? WF_OVER_RDMA
                                        : WF_OVER_SHM;
}

/* The figure in the JSON object of a size, one of the lines of [text]. */
static int json_figure(const char *text, size_t size, enum wf_figure figure, double *v)
{
    char key[32];
    const char *at, *end;
    snprintf(key, sizeof key, "\"size\":%zu,", size);
    text = strstr(text, key);
    snprintf(key, sizeof key, "\"%s\":", wf_figure_keys[figure]);
    at = text ? strstr(text, key) : NULL;
    end = text ? strchr(text, '\n') : NULL;
    if (!at || (end && end < at))
        return -1;
    return sscanf(at + strlen(key), "%lf", v) == 1 && *v > 0 ? 0 : -1;
}

/* The same of all sizes. */
static int json_figures(const char *text, const struct wf_contest *t, const struct wf_load *load,
                        unsigned n, double *v)
{
    for (unsigned i = 0; i < n; i++)
        if (json_figure(text, load[i].size, t->figure, &v[i]))
            return -1;
    return 0;
}

/* A word SIZE:ITERATIONS,... for the programs that are built with Weft. */
static void add_loads(struct wf_words *w, const struct wf_load *load, unsigned n)
{
    char text[WF_LOADS * 44];
    size_t used = 0;
    for (unsigned i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu:%" PRIu64, i ? "," : "",
                                 load[i].size, load[i].iters);
    wf_words_add(w, text);
}

/* A program whose clock is too coarse for its run prints a time of 0, or a rate that is infinite.
 */
static bool is_figure(double v)
{
    return isfinite(v) && v > 0;
}

static int unread(const char *program, char *why, size_t room)
{
    snprintf(why, room, "%s printed no figure that this version of weft understands", program);
    return -1;
}

/* ---- Weft ---- */

/* Keep the line in which weft perf gives its reason: weft run prints another one behind it. */
static void weft_reason(const struct wf_child *c, char *why, size_t room)
{
    const char *at = strstr(c->text, "weft perf");
    if (at)
        snprintf(why, room, "%.*s", (int)strcspn(at, "\n"), at);
}

static int weft_figures(const char *text, const struct wf_contest *t, size_t size,
                        double v[WF_FIGURES])
{
    for (int i = 0; i < WF_FIGURES; i++)
        if (json_figure(text, size, (enum wf_figure)i, &v[i]))
            v[i] = 0;
    /* of few operations Weft prints no median */
    if (v[t->figure] <= 0 && t->figure == WF_FIGURE_LAT)
        v[t->figure] = v[WF_FIGURE_MEAN];
    return v[t->figure] > 0 ? 0 : -1;
}

/* --size, --iters or --time */
static void weft_loads(struct wf_words *w, const struct wf_load *load, unsigned n, unsigned time_ms)
{
    char sizes[64];
    snprintf(sizes, sizeof sizes, "%zu:%zu", load[0].size, load[n - 1].size);
    if (load[0].size)
        wf_words_list(w, (const char *const[]){"--size", sizes, NULL});
    if (load[0].iters || time_ms) {
        wf_words_add(w, load[0].iters ? "--iters" : "--time");
        wf_words_number(w, load[0].iters ? load[0].iters : time_ms);
    }
}

int wf_weft_run(const struct wf_contest *t, const char *transport, unsigned time_ms,
                const struct wf_load *load, unsigned n, double v[][WF_FIGURES], char *why,
                size_t room)
{
    static struct wf_child c;
    struct wf_words w = {.used = 0};
    if (t->hosts) {
        wf_words_mpirun(&w, wf_rival_mpirun(), (const char *const[]){NULL}, t->hosts);
    } else {
        wf_words_list(&w, (const char *const[]){wf_launch_self(), "run", "-n", NULL});
        wf_words_number(&w, t->ranks);
        wf_words_add(&w, "--");
    }
    wf_words_list(&w, (const char *const[]){wf_launch_self(), "perf", t->test, "--json", NULL});
    weft_loads(&w, load, n, time_ms);
    if (transport)
        wf_words_list(&w, (const char *const[]){"--transport", transport, NULL});
    if (t->cached)
        wf_words_add(&w, "--cached");
    if (wf_launch(&w, &c, why, room)) {
        weft_reason(&c, why, room);
        return -1;
    }
    for (unsigned i = 0; i < n; i++)
        if (weft_figures(c.text, t, load[i].size, v[i]))
            return unread("weft", why, room);
    return 0;
}

/* ---- other libraries ---- */

static int program_there(const struct wf_rival *r, char *why, size_t room)
{
    if (wf_child_exists(r->launcher[0]))
        return 0;
    snprintf(why, room, "not installed");
    return -1;
}

/* The sizes by a run each, for programs that measure one. */
static int run_each(int (*run)(const struct wf_rival *r, const struct wf_contest *t,
                               const struct wf_load *load, double *v, char *why, size_t room),
                    const struct wf_rival *r, const struct wf_contest *t,
                    const struct wf_load *load, unsigned n, double *v, char *why, size_t room)
{
    for (unsigned i = 0; i < n; i++)
        if (run(r, t, &load[i], &v[i], why, room))
            return -1;
    return 0;
}

/* ---- UCX ---- */

#define UCX_FIRST "iterations,"

/* The index of [name] in the line of names, counted from the first one of a figure; or -1. */
static int ucx_column(const char *text, const char *name)
{
    int column = 0;
    for (const char *at = strstr(text, UCX_FIRST); at; column++) {
        size_t n = strcspn(at, ",\n");
        if (n == strlen(name) && !strncmp(at, name, n))
            return column;
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return -1;
}

/* The value under [name] in the line that begins with [row], the newline before it included. */
static int ucx_field(const char *text, const char *row, const char *name, double *v)
{
    int column = ucx_column(text, name);
    const char *head = strstr(text, UCX_FIRST), *at = head ? strstr(head, row) : NULL;
    at = at ? at + strlen(row) : NULL;
    for (; at && column > 0; column--) {
        at += strcspn(at, ",\n");
        at = *at == ',' ? at + 1 : NULL;
    }
    return at && column == 0 && sscanf(at, "%lf", v) == 1 && *v > 0 ? 0 : -1;
}

#define UCX_QUIET "UCX_WARN_UNUSED_ENV_VARS=n"

/* The names of figures, and the factors to ours: us, messages/s, MiB/s. */
static int ucx_figure(const char *text, const char *row, const struct wf_contest *t, size_t size,
                      double *v)
{
    static const char *const fields[] = {"50.0_percentile_lat", "overall_mr", "overall_bw"};
    static const double units[] = {1e3, 1e-6, MIB / 1e9};
    bool mean = t->figure == WF_FIGURE_MEAN, small = size < SMALL;
    enum wf_figure f = !mean ? t->figure : small ? WF_FIGURE_RATE : WF_FIGURE_GBS;
    if (ucx_field(text, row, fields[f], v))
        return -1;
    *v *= units[f];
    if (mean)
        *v = small ? 1e3 / *v : (double)size / *v;
    return 0;
}

/* Run the server with more words, a null-terminated list, and the client with [what]. */
static int ucx_duel(const struct wf_rival *r, const struct wf_contest *t, const char *const *more,
                    const struct wf_words *what, struct wf_duel *d, char *why, size_t room)
{
    static const char *const sm[] = {"UCX_TLS=sm,self", UCX_QUIET, NULL};
    static const char *const tcp[] = {"UCX_TLS=tcp", UCX_QUIET, NULL};
    static const char *const rdma[] = {"UCX_TLS=rc,self", UCX_QUIET, NULL};
    static const char *const *const env[] = {sm, tcp, rdma};
    char port[16];
    *d = (struct wf_duel){.env = env[t->over], .hosts = t->hosts, .port = wf_launch_port()};
    snprintf(port, sizeof port, "%u", d->port);
    wf_words_list(&d->server, (const char *const[]){r->launcher[0], "-p", port, NULL});
    wf_words_list(&d->server, more);
    wf_words_list(&d->client, (const char *const[]){r->launcher[0], "-p", port,
                                                    wf_launch_address(t->hosts), "-f", "-v", NULL});
    for (unsigned i = 0; i < what->count; i++)
        wf_words_add(&d->client, what->argv[i]);
    return wf_launch_duel(d, why, room);
}

static int ucx_run_one(const struct wf_rival *r, const struct wf_contest *t,
                       const struct wf_load *load, double *v, char *why, size_t room)
{
    static struct wf_duel d;
    struct wf_words what = {.used = 0};
    wf_words_add(&what, "-s");
    wf_words_number(&what, load->size);
    wf_words_add(&what, "-n");
    wf_words_number(&what, load->iters);
    wf_words_add(&what, "-t");
    wf_words_split(&what, t->theirs);
    if (ucx_duel(r, t, (const char *const[]){NULL}, &what, &d, why, room))
        return -1;
    return ucx_figure(d.c.text, "\n", t, load->size, v) ? unread(r->launcher[0], why, room) : 0;
}

/* A file for -b: a test for each size, with the size as its name. It has no place in the file
 * system and ends with its descriptor. Returns that, or -1 with errno. */
static int ucx_batch(const struct wf_contest *t, const struct wf_load *load, unsigned n)
{
    int fd = memfd_create("weft-perf", MFD_CLOEXEC), bad = fd < 0;
    for (unsigned i = 0; i < n && !bad; i++)
        bad = dprintf(fd, "%zu -t %s -s %zu -n %" PRIu64 "\n", load[i].size, t->theirs,
                      load[i].size, load[i].iters) < 0;
    if (bad && fd >= 0)
        close(fd);
    return bad ? -1 : fd;
}

static int ucx_run_batch(const struct wf_rival *r, const struct wf_contest *t,
                         const struct wf_load *load, unsigned n, double *v, char *why, size_t room)
{
    static struct wf_duel d;
    struct wf_words what = {.used = 0};
    char path[64], row[32];
    int fd = ucx_batch(t, load, n), bad;
    if (fd < 0) {
        snprintf(why, room, "cannot write a list of tests for %s: %s", r->launcher[0],
                 strerror(errno));
        return -1;
    }
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), fd);
    wf_words_list(&what, (const char *const[]){"-b", path, NULL});
    bad = ucx_duel(r, t, (const char *const[]){"-b", path, NULL}, &what, &d, why, room);
    close(fd);
    for (unsigned i = 0; i < n && !bad; i++) {
        snprintf(row, sizeof row, "\n%zu,", load[i].size);
        bad =
            ucx_figure(d.c.text, row, t, load[i].size, &v[i]) && unread(r->launcher[0], why, room);
    }
    return bad;
}

/* All sizes by one run, but between hosts, where a list of tests would have to be copied. */
static int ucx_run(const struct wf_rival *r, const struct wf_contest *t, const struct wf_load *load,
                   unsigned n, double *v, char *why, size_t room)
{
    return n == 1 || t->hosts ? run_each(ucx_run_one, r, t, load, n, v, why, room)
                              : ucx_run_batch(r, t, load, n, v, why, room);
}

/* A get has one operation in flight by default, other streams have 32. */
static const struct wf_counterpart ucx_counterparts[] = {
    {"am_lat", "ucp_am_lat", WF_FIGURE_LAT},       {"am_rate", "ucp_am_bw", WF_FIGURE_MEAN},
    {"put_lat", "ucp_put_lat", WF_FIGURE_LAT},     {"put_rate", "ucp_put_bw", WF_FIGURE_MEAN},
    {"put_bw", "ucp_put_bw", WF_FIGURE_MEAN},      {"get_lat", "ucp_get", WF_FIGURE_LAT},
    {"get_rate", "ucp_get -O 32", WF_FIGURE_MEAN}, {"get_bw", "ucp_get -O 32", WF_FIGURE_MEAN},
    {"msg_lat", "tag_lat", WF_FIGURE_LAT},         {"msg_rate", "tag_bw", WF_FIGURE_MEAN},
    {"msg_bw", "tag_bw", WF_FIGURE_MEAN},          {"atomic_lat", "ucp_fadd", WF_FIGURE_LAT},
};

static const struct wf_contest ucx_contests[] = {
    {"am_lat", 8, 2, WF_FIGURE_LAT, 200000},
    {"am_rate", 8, 2, WF_FIGURE_RATE, 1000000},
    {"put_lat", 8, 2, WF_FIGURE_LAT, 200000},
    {"put_rate", 8, 2, WF_FIGURE_RATE, 1000000},
    {"put_bw", 1 << 20, 2, WF_FIGURE_GBS, 4000},
    {"get_lat", 8, 2, WF_FIGURE_LAT, 200000},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, 200000},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, 1000000},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, 4000},
    {"atomic_lat", 8, 2, WF_FIGURE_LAT, 200000},
    {"am_lat", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP},
    {"am_rate", 8, 2, WF_FIGURE_RATE, 200000, WF_OVER_TCP},
    {"put_lat", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP},
    {"put_bw", 1 << 20, 2, WF_FIGURE_GBS, 500, WF_OVER_TCP},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, 200000, WF_OVER_TCP},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, 1000, WF_OVER_TCP},
    {"atomic_lat", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP},
    {"put_lat", 8, 2, WF_FIGURE_LAT, 1000, WF_OVER_RDMA},
    {"am_lat", 8, 2, WF_FIGURE_LAT, 1000, WF_OVER_RDMA},
    {"put_bw", 65536, 2, WF_FIGURE_GBS, 200, WF_OVER_RDMA},
};

/* ---- perftest ---- */

/* The line after the one that begins with #bytes; its [n]th number. */
static int perftest_field(const char *text, unsigned n, double *v)
{
    const char *at = strstr(text, "#bytes");
    at = at ? strchr(at, '\n') : NULL;
    for (unsigned i = 0; at && i <= n; i++) {
        char *end;
        *v = strtod(at, &end);
        at = end != at ? end : NULL;
    }
    return at && *v > 0 ? 0 : -1;
}

/* bytes, iterations, least, most, typical [us], ...; or bytes, iterations, peak, average [MB/s, of
 * 2^20 bytes], million messages/s. */
static int perftest_figure(const char *text, const struct wf_contest *t, size_t size, double *v)
{
    bool lat = t->figure == WF_FIGURE_LAT, mean = t->figure == WF_FIGURE_MEAN;
    bool rate = t->figure == WF_FIGURE_RATE || (mean && size < SMALL);
    if (perftest_field(text, lat || rate ? 4 : 3, v))
        return -1;
    *v *= lat ? 1e3 : rate ? 1 : MIB / 1e9;
    if (mean)
        *v = rate ? 1e3 / *v : (double)size / *v;
    return 0;
}

static int perftest_run_one(const struct wf_rival *r, const struct wf_contest *t,
                            const struct wf_load *load, double *v, char *why, size_t room)
{
    static struct wf_duel d;
    char port[16];
    struct wf_words *const both[] = {&d.server, &d.client};
    d = (struct wf_duel){.hosts = t->hosts, .port = wf_launch_port()};
    (void)r;
    snprintf(port, sizeof port, "%u", d.port);
    for (int i = 0; i < 2; i++) {
        wf_words_list(both[i], (const char *const[]){t->theirs, "-F", "-p", port, "-s", NULL});
        wf_words_number(both[i], load->size);
        wf_words_add(both[i], "-n");
        wf_words_number(both[i], load->iters);
    }
    wf_words_add(&d.client, wf_launch_address(t->hosts));
    if (wf_launch_duel(&d, why, room))
        return -1;
    return perftest_figure(d.c.text, t, load->size, v) ? unread(t->theirs, why, room) : 0;
}

static int perftest_run(const struct wf_rival *r, const struct wf_contest *t,
                        const struct wf_load *load, unsigned n, double *v, char *why, size_t room)
{
    return run_each(perftest_run_one, r, t, load, n, v, why, room);
}

static const struct wf_counterpart perftest_counterparts[] = {
    {"am_lat", "ib_send_lat", WF_FIGURE_LAT},   {"am_rate", "ib_send_bw", WF_FIGURE_MEAN},
    {"put_lat", "ib_write_lat", WF_FIGURE_LAT}, {"put_rate", "ib_write_bw", WF_FIGURE_MEAN},
    {"put_bw", "ib_write_bw", WF_FIGURE_MEAN},  {"get_lat", "ib_read_lat", WF_FIGURE_LAT},
    {"get_rate", "ib_read_bw", WF_FIGURE_MEAN}, {"get_bw", "ib_read_bw", WF_FIGURE_MEAN},
};

static const struct wf_contest perftest_contests[] = {
    {"put_lat", 8, 2, WF_FIGURE_LAT, 1000, WF_OVER_RDMA},
    {"am_lat", 8, 2, WF_FIGURE_LAT, 1000, WF_OVER_RDMA},
    {"put_bw", 65536, 2, WF_FIGURE_GBS, 200, WF_OVER_RDMA},
};

/* ---- libfabric ---- */

/* The test program is beside this one before installation, then in libexec. */
static int helper_path(const struct wf_rival *r, char *path, size_t room)
{
    const char *own = wf_launch_self(), *slash = strrchr(own, '/');
    snprintf(path, room, "%.*s/%s", slash ? (int)(slash - own) : 1, slash ? own : ".", r->helper);
    if (access(path, X_OK) == 0)
        return 0;
    snprintf(path, room, "%s/%s", WF_TOOL_LIBEXEC, r->helper);
    return access(path, X_OK);
}

/* The last line is: bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec. */
static int fabric_pingpong(const struct wf_rival *r, const struct wf_contest *t,
                           const struct wf_load *load, double *v, char *why, size_t room)
{
    static struct wf_duel d;
    char port[16], size[24], count[24];
    const char *const common[] = {"-p", wf_over_names[t->over], "-e", "rdm", "-m", "tagged", NULL};
    d = (struct wf_duel){.hosts = t->hosts, .port = wf_launch_port()};
    snprintf(port, sizeof port, "%u", d.port);
    snprintf(size, sizeof size, "%zu", load->size);
    snprintf(count, sizeof count, "%" PRIu64, load->iters);
    wf_words_list(&d.server,
                  (const char *const[]){r->launcher[0], "-B", port, "-S", size, "-I", count, NULL});
    wf_words_list(&d.server, common);
    wf_words_list(&d.client,
                  (const char *const[]){r->launcher[0], "-P", port, "-S", size, "-I", count, NULL});
    wf_words_list(&d.client, common);
    wf_words_add(&d.client, "127.0.0.1");
    if (wf_launch_duel(&d, why, room))
        return -1;
    if (sscanf(wf_child_last_line(&d.c), "%*s %*s %*s %*s %*s %*s %lf", v) != 1 || *v <= 0)
        return unread(r->launcher[0], why, room);
    *v *= 1e3;
    return 0;
}

static int fabric_own(const struct wf_rival *r, const struct wf_contest *t,
                      const struct wf_load *load, unsigned n, double *v, char *why, size_t room)
{
    static struct wf_duel d;
    char path[PATH_MAX];
    struct wf_words *const both[] = {&d.server, &d.client};
    d = (struct wf_duel){.hosts = t->hosts, .port = wf_launch_port()};
    if (helper_path(r, path, sizeof path)) {
        snprintf(why, room, "this weft was built without %s: build Weft anew with libfabric-dev",
                 r->helper);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        wf_words_list(both[i],
                      (const char *const[]){path, wf_over_names[t->over], t->theirs, NULL});
        add_loads(both[i], load, n);
        wf_words_number(both[i], d.port);
    }
    wf_words_list(&d.server,
                  (const char *const[]){"listen", t->hosts ? "0.0.0.0" : "127.0.0.1", NULL});
    wf_words_list(&d.client, (const char *const[]){"call", wf_launch_address(t->hosts), NULL});
    if (wf_launch_duel(&d, why, room))
        return -1;
    return json_figures(d.c.text, t, load, n, v) ? unread(r->helper, why, room) : 0;
}

#define PINGPONG "pingpong, tagged"

static int fabric_run(const struct wf_rival *r, const struct wf_contest *t,
                      const struct wf_load *load, unsigned n, double *v, char *why, size_t room)
{
    return strcmp(t->theirs, PINGPONG) ? fabric_own(r, t, load, n, v, why, room)
                                       : run_each(fabric_pingpong, r, t, load, n, v, why, room);
}

static const struct wf_counterpart fabric_counterparts[] = {
    {"am_lat", "lat", WF_FIGURE_MEAN},         {"am_rate", "rate", WF_FIGURE_MEAN},
    {"msg_lat", "tagged_lat", WF_FIGURE_MEAN}, {"msg_rate", "tagged_rate", WF_FIGURE_MEAN},
    {"msg_bw", "tagged_rate", WF_FIGURE_MEAN}, {"put_lat", "put_lat", WF_FIGURE_MEAN},
    {"put_rate", "put", WF_FIGURE_MEAN},       {"put_bw", "put", WF_FIGURE_MEAN},
    {"get_lat", "get_lat", WF_FIGURE_MEAN},    {"get_rate", "get", WF_FIGURE_MEAN},
    {"get_bw", "get", WF_FIGURE_MEAN},
};

static const struct wf_contest fabric_contests[] = {
    {"msg_lat", 8, 2, WF_FIGURE_LAT, 100000, .theirs = PINGPONG},
    {"msg_lat", 1 << 20, 2, WF_FIGURE_LAT, 2000, .theirs = PINGPONG},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP, PINGPONG},
    {"msg_lat", 1 << 20, 2, WF_FIGURE_LAT, 500, WF_OVER_TCP, PINGPONG},
    {"am_rate", 8, 2, WF_FIGURE_RATE, 50000, WF_OVER_TCP},
};

/* ---- MPI ---- */

static const char *mpi_launcher(const struct wf_rival *r)
{
    for (int i = 0; i < 2 && r->launcher[i]; i++)
        if (wf_child_exists(r->launcher[i]))
            return r->launcher[i];
    return NULL;
}

static int mpi_there(const struct wf_rival *r, char *why, size_t room)
{
    char path[PATH_MAX];
    if (!mpi_launcher(r))
        snprintf(why, room, "not installed");
    else if (helper_path(r, path, sizeof path))
        snprintf(why, room,
                 "installed, but this weft was built without it: build Weft anew with "
                 "its development package");
    else
        return 0;
    return -1;
}

/* Over TCP one-sided communication goes by messages: its other ways use shared memory here. */
static void openmpi_words(const struct wf_rival *r, const struct wf_contest *t, struct wf_words *w)
{
    static const char *const none[] = {NULL};
    static const char *const tcp[] = {"--mca",    "pml",   "ob1", "--mca", "btl",
                                      "tcp,self", "--mca", "osc", "pt2pt", NULL};
    static const char *const loopback[] = {"--mca", "btl_tcp_if_include", "lo", NULL};
    static const char *const crowd[] = {"--oversubscribe", "--bind-to", "none", NULL};
    static const char *const core[] = {"--bind-to", "core", NULL};
    bool is_tcp = t->over == WF_OVER_TCP;
    wf_words_mpirun(w, mpi_launcher(r), is_tcp ? tcp : none, t->hosts);
    if (t->hosts)
        return;
    wf_words_list(w, is_tcp ? loopback : none);
    wf_words_list(w, t->ranks > 2 ? crowd : core);
    wf_words_add(w, "-n");
    wf_words_number(w, t->ranks);
}

static void mpich_words(const struct wf_rival *r, const struct wf_contest *t, struct wf_words *w)
{
    wf_words_add(w, mpi_launcher(r));
    if (t->ranks == 2)
        wf_words_list(w, (const char *const[]){"-bind-to", "core", NULL});
    wf_words_add(w, "-n");
    wf_words_number(w, t->ranks);
}

static int mpi_run(const struct wf_rival *r, const struct wf_contest *t, const struct wf_load *load,
                   unsigned n, double *v, char *why, size_t room)
{
    static struct wf_child c;
    struct wf_words w = {.used = 0};
    char path[PATH_MAX];
    if (helper_path(r, path, sizeof path))
        return -1;
    (strcmp(r->name, "openmpi") ? mpich_words : openmpi_words)(r, t, &w);
    wf_words_list(&w, (const char *const[]){path, t->theirs, NULL});
    add_loads(&w, load, n);
    wf_words_number(&w, t->over == WF_OVER_TCP ? TCP_WINDOW : 0);
    if (t->cached)
        wf_words_add(&w, "cached");
    if (wf_launch(&w, &c, why, room))
        return -1;
    return json_figures(c.text, t, load, n, v) ? unread(r->helper, why, room) : 0;
}

static const struct wf_counterpart mpi_counterparts[] = {
    {"msg_lat", "lat", WF_FIGURE_MEAN},     {"msg_sendrecv", "sendrecv", WF_FIGURE_MEAN},
    {"msg_rate", "rate", WF_FIGURE_MEAN},   {"msg_bw", "bw", WF_FIGURE_MEAN},
    {"put_lat", "put_lat", WF_FIGURE_MEAN}, {"put_rate", "put", WF_FIGURE_MEAN},
    {"put_bw", "put", WF_FIGURE_MEAN},      {"get_lat", "get_lat", WF_FIGURE_MEAN},
    {"get_rate", "get", WF_FIGURE_MEAN},    {"get_bw", "get", WF_FIGURE_MEAN},
    {"barrier", "barrier", WF_FIGURE_MEAN},
};

static const struct wf_contest mpi_contests[] = {
    {"msg_lat", 8, 2, WF_FIGURE_LAT, 100000},
    {"msg_sendrecv", 8, 2, WF_FIGURE_LAT, 100000},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, 200000},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, 500},
    {"barrier", 0, 2, WF_FIGURE_LAT, 50000},
    {"barrier", 0, 16, WF_FIGURE_LAT, 2000},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP},
    {"msg_sendrecv", 8, 2, WF_FIGURE_LAT, 20000, WF_OVER_TCP},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, 100000, WF_OVER_TCP},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, 300, WF_OVER_TCP},
    {"barrier", 0, 2, WF_FIGURE_LAT, 10000, WF_OVER_TCP},
    {"barrier", 0, 16, WF_FIGURE_LAT, 500, WF_OVER_TCP},
};

/* ---- all ---- */

int wf_rival_run(const struct wf_rival *r, const struct wf_contest *t, const struct wf_load *load,
                 unsigned n, double *v, char *why, size_t room)
{
    if (r->run(r, t, load, n, v, why, room))
        return -1;
    for (unsigned i = 0; i < n; i++)
        if (!is_figure(v[i]))
            return unread(r->title, why, room);
    return 0;
}

/* ---- the table ---- */

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TESTS(who)                                                                                 \
    .counterparts = who##_counterparts, .counterparts_count = COUNT(who##_counterparts),           \
    .contests = who##_contests, .contests_count = COUNT(who##_contests)
#define ON(over) (1u << (over))

const struct wf_rival wf_rivals[] = {
    {.name = "perftest",
     .title = "perftest",
     .package = "perftest",
     TESTS(perftest),
     .overs = ON(WF_OVER_RDMA),
     .there = program_there,
     .run = perftest_run,
     .launcher = {"ib_write_lat"},
     .runs = 1,
     .start_s = 0.3},
    {.name = "ucx",
     .title = "UCX",
     .package = "ucx-utils",
     TESTS(ucx),
     .overs = ON(WF_OVER_SHM) | ON(WF_OVER_TCP) | ON(WF_OVER_RDMA),
     .there = program_there,
     .run = ucx_run,
     .launcher = {"ucx_perftest"},
     .runs = 1,
     .start_s = 0.3},
    {.name = "libfabric",
     .title = "libfabric",
     .package = "libfabric-bin libfabric-dev",
     TESTS(fabric),
     .overs = ON(WF_OVER_SHM) | ON(WF_OVER_TCP),
     .there = program_there,
     .run = fabric_run,
     .launcher = {"fi_pingpong"},
     .helper = "weft-perf-libfabric",
     .runs = 6,
     .start_s = 0.2},
    {.name = "openmpi",
     .title = "Open MPI",
     .package = "openmpi-bin libopenmpi-dev",
     TESTS(mpi),
     .overs = ON(WF_OVER_SHM) | ON(WF_OVER_TCP),
     .there = mpi_there,
     .run = mpi_run,
     .launcher = {"mpirun.openmpi", "mpirun"},
     .helper = "weft-perf-openmpi",
     .runs = 6,
     .start_s = 0.8},
    {.name = "mpich",
     .title = "MPICH",
     .package = "mpich libmpich-dev",
     TESTS(mpi),
     .overs = ON(WF_OVER_SHM), /* its transport cannot be chosen */
     .there = mpi_there,
     .run = mpi_run,
     .launcher = {"mpirun.mpich", "mpiexec.hydra"},
     .helper = "weft-perf-mpich",
     .spins = true,
     .runs = 6,
     .start_s = 0.8},
};
const size_t wf_rivals_count = COUNT(wf_rivals);

const struct wf_counterpart *wf_rival_counterpart(const struct wf_rival *r, const char *test,
                                                  enum wf_over over)
{
    for (size_t i = 0; r->overs & ON(over) && i < r->counterparts_count; i++)
        if (!strcmp(r->counterparts[i].test, test))
            return &r->counterparts[i];
    return NULL;
}

const char *wf_rival_mpirun(void)
{
    for (size_t i = 0; i < wf_rivals_count; i++)
        if (!strcmp(wf_rivals[i].name, "openmpi"))
            return mpi_launcher(&wf_rivals[i]);
    return NULL;
}

int wf_rival_at_all_sizes(const struct wf_rival *r, char *why, size_t room)
{
    char path[PATH_MAX];
    if (r->there(r, why, room))
        return -1;
    if (!r->helper || helper_path(r, path, sizeof path) == 0)
        return 0;
    snprintf(why, room,
             "this weft was built without %s: build Weft anew with its development package",
             r->helper);
    return -1;
}
