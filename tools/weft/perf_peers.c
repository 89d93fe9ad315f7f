/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs Weft's and other libraries' own benchmarks, and reads their output. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_peers.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf_launch.h"

#define MIB 1048576.0
#define TCP_WINDOW 4u /* large messages in flight */

const char *const wf_over_names[] = {"shm", "tcp", "rdma"};

enum wf_over wf_over_of(const char *transport)
{
    return !transport                   ? WF_OVER_SHM
           : !strcmp(transport, "tcp")  ? WF_OVER_TCP
           : !strcmp(transport, "rdma") ? WF_OVER_RDMA
                                        : WF_OVER_SHM;
}

/* The number after "name": in the JSON object that [text] holds. */
static int json_number(const char *text, const char *name, double *v)
{
    char key[32];
    const char *at;
    snprintf(key, sizeof key, "\"%s\":", name);
    at = strstr(text, key);
    return at && sscanf(at + strlen(key), "%lf", v) == 1 && *v > 0 ? 0 : -1;
}

static int json_figure(const char *text, enum wf_figure figure, double *v)
{
    static const char *const names[] = {"lat_ns", "rate_mps", "gbs"};
    return json_number(text, names[figure], v);
}

static int unread(const char *program, char *why, size_t room)
{
    snprintf(why, room, "%s printed no figure that this version of weft understands", program);
    return -1;
}

/* ---- Weft ---- */

int wf_weft_run(const struct wf_contest *t, const char *transport, uint64_t iters, double *v,
                char *why, size_t room)
{
    static struct wf_child c;
    struct wf_words w = {.used = 0};
    wf_words_add(&w, wf_launch_self());
    wf_words_list(&w, (const char *const[]){"run", "-n", NULL});
    wf_words_number(&w, t->ranks);
    wf_words_list(&w,
                  (const char *const[]){"--", wf_launch_self(), "perf", t->test, "--json", NULL});
    if (t->size) {
        wf_words_add(&w, "--size");
        wf_words_number(&w, t->size);
    }
    if (transport)
        wf_words_list(&w, (const char *const[]){"--transport", transport, NULL});
    if (iters) {
        wf_words_add(&w, "--iters");
        wf_words_number(&w, iters);
    }
    if (wf_launch(&w, &c, why, room))
        return -1;
    return json_figure(c.text, t->figure, v) ? unread("weft", why, room) : 0;
}

static int program_there(const struct wf_rival *r, char *why, size_t room)
{
    if (wf_child_exists(r->launcher[0]))
        return 0;
    snprintf(why, room, "not installed");
    return -1;
}

/* ---- UCX ---- */

/* The value under [name] in two lines of comma-separated values: names, numbers. */
static int csv_field(char *text, const char *name, double *v)
{
    char *head = strstr(text, "iterations,"), *line = head ? strchr(head, '\n') : NULL;
    char *field, *value, *more_f, *more_v;
    if (!line)
        return -1;
    *line++ = 0;
    line[strcspn(line, "\n")] = 0;
    field = strtok_r(head, ",", &more_f);
    value = strtok_r(line, ",", &more_v);
    while (field && value && strcmp(field, name)) {
        field = strtok_r(NULL, ",", &more_f);
        value = strtok_r(NULL, ",", &more_v);
    }
    return field && value && sscanf(value, "%lf", v) == 1 && *v > 0 ? 0 : -1;
}

#define UCX_QUIET "UCX_WARN_UNUSED_ENV_VARS=n"

static int ucx_run(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters, double *v,
                   char *why, size_t room)
{
    static const char *const fields[] = {"50.0_percentile_lat", "overall_mr", "overall_bw"};
    static const double units[] = {1e3, 1e-6, MIB / 1e9}; /* us, messages/s, MiB/s */
    static const char *const sm[] = {"UCX_TLS=sm,self", UCX_QUIET, NULL};
    static const char *const tcp[] = {"UCX_TLS=tcp", UCX_QUIET, NULL};
    static const char *const rdma[] = {"UCX_TLS=rc,self", UCX_QUIET, NULL};
    static const char *const *const env[] = {sm, tcp, rdma};
    static struct wf_duel d;
    char port[16];
    d = (struct wf_duel){.env = env[t->over], .port = wf_launch_port()};
    snprintf(port, sizeof port, "%u", d.port);
    wf_words_list(&d.server, (const char *const[]){r->launcher[0], "-p", port, NULL});
    wf_words_list(&d.client, (const char *const[]){r->launcher[0], "-p", port, "127.0.0.1", "-t",
                                                   t->theirs, "-f", "-v", "-s", NULL});
    wf_words_number(&d.client, t->size);
    wf_words_add(&d.client, "-n");
    wf_words_number(&d.client, iters);
    if (wf_launch_duel(&d, why, room))
        return -1;
    if (csv_field(d.c.text, fields[t->figure], v))
        return unread(r->launcher[0], why, room);
    *v *= units[t->figure];
    return 0;
}

static const struct wf_contest ucx_contests[] = {
    {"am_lat", 8, 2, WF_FIGURE_LAT, "ucp_am_lat", 200000},
    {"am_rate", 8, 2, WF_FIGURE_RATE, "ucp_am_bw", 1000000},
    {"put_lat", 8, 2, WF_FIGURE_LAT, "ucp_put_lat", 200000},
    {"put_rate", 8, 2, WF_FIGURE_RATE, "ucp_put_bw", 1000000},
    {"put_bw", 1 << 20, 2, WF_FIGURE_GBS, "ucp_put_bw", 4000},
    {"get_lat", 8, 2, WF_FIGURE_LAT, "ucp_get", 200000},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "tag_lat", 200000},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, "tag_bw", 1000000},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, "tag_bw", 4000},
    {"atomic_lat", 8, 2, WF_FIGURE_LAT, "ucp_fadd", 200000},
    {"am_lat", 8, 2, WF_FIGURE_LAT, "ucp_am_lat", 20000, WF_OVER_TCP},
    {"am_rate", 8, 2, WF_FIGURE_RATE, "ucp_am_bw", 200000, WF_OVER_TCP},
    {"put_lat", 8, 2, WF_FIGURE_LAT, "ucp_put_lat", 20000, WF_OVER_TCP},
    {"put_bw", 1 << 20, 2, WF_FIGURE_GBS, "ucp_put_bw", 500, WF_OVER_TCP},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "tag_lat", 20000, WF_OVER_TCP},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, "tag_bw", 200000, WF_OVER_TCP},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, "tag_bw", 1000, WF_OVER_TCP},
    {"atomic_lat", 8, 2, WF_FIGURE_LAT, "ucp_fadd", 20000, WF_OVER_TCP},
    {"put_lat", 8, 2, WF_FIGURE_LAT, "ucp_put_lat", 1000, WF_OVER_RDMA},
    {"am_lat", 8, 2, WF_FIGURE_LAT, "ucp_am_lat", 1000, WF_OVER_RDMA},
    {"put_bw", 65536, 2, WF_FIGURE_GBS, "ucp_put_bw", 200, WF_OVER_RDMA},
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

static int perftest_run(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                        double *v, char *why, size_t room)
{
    static struct wf_duel d;
    char port[16];
    struct wf_words *const both[] = {&d.server, &d.client};
    bool lat = t->figure == WF_FIGURE_LAT;
    d = (struct wf_duel){.port = wf_launch_port()};
    (void)r;
    snprintf(port, sizeof port, "%u", d.port);
    for (int i = 0; i < 2; i++) {
        wf_words_list(both[i], (const char *const[]){t->theirs, "-F", "-p", port, "-s", NULL});
        wf_words_number(both[i], t->size);
        wf_words_add(both[i], "-n");
        wf_words_number(both[i], iters);
    }
    wf_words_add(&d.client, "127.0.0.1");
    if (wf_launch_duel(&d, why, room))
        return -1;
    /* bytes, iterations, least, most, typical [us], ...; or bytes, iterations, peak, average [MB/s,
     * of 2^20 bytes] */
    if (perftest_field(d.c.text, lat ? 4 : 3, v))
        return unread(t->theirs, why, room);
    *v *= lat ? 1e3 : MIB / 1e9;
    return 0;
}

static const struct wf_contest perftest_contests[] = {
    {"put_lat", 8, 2, WF_FIGURE_LAT, "ib_write_lat", 1000, WF_OVER_RDMA},
    {"am_lat", 8, 2, WF_FIGURE_LAT, "ib_send_lat", 1000, WF_OVER_RDMA},
    {"put_bw", 65536, 2, WF_FIGURE_GBS, "ib_write_bw", 200, WF_OVER_RDMA},
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
static int fabric_pingpong(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                           struct wf_duel *d, double *v, char *why, size_t room)
{
    char port[16], size[24], count[24];
    const char *const common[] = {"-p", wf_over_names[t->over], "-e", "rdm", "-m", "tagged", NULL};
    snprintf(port, sizeof port, "%u", d->port);
    snprintf(size, sizeof size, "%zu", t->size);
    snprintf(count, sizeof count, "%" PRIu64, iters);
    wf_words_list(&d->server,
                  (const char *const[]){r->launcher[0], "-B", port, "-S", size, "-I", count, NULL});
    wf_words_list(&d->server, common);
    wf_words_list(&d->client,
                  (const char *const[]){r->launcher[0], "-P", port, "-S", size, "-I", count, NULL});
    wf_words_list(&d->client, common);
    wf_words_add(&d->client, "127.0.0.1");
    if (wf_launch_duel(d, why, room))
        return -1;
    if (sscanf(wf_child_last_line(&d->c), "%*s %*s %*s %*s %*s %*s %lf", v) != 1 || *v <= 0)
        return unread(r->launcher[0], why, room);
    *v *= 1e3;
    return 0;
}

static int fabric_rate(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                       struct wf_duel *d, double *v, char *why, size_t room)
{
    char path[PATH_MAX];
    struct wf_words *const both[] = {&d->server, &d->client};
    if (helper_path(r, path, sizeof path)) {
        snprintf(why, room, "this weft was built without %s: build Weft anew with libfabric-dev",
                 r->helper);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        wf_words_list(both[i],
                      (const char *const[]){path, wf_over_names[t->over], t->theirs, NULL});
        wf_words_number(both[i], t->size);
        wf_words_number(both[i], iters);
        wf_words_number(both[i], d->port);
    }
    wf_words_add(&d->client, "127.0.0.1");
    if (wf_launch_duel(d, why, room))
        return -1;
    return json_figure(d->c.text, t->figure, v) ? unread(r->helper, why, room) : 0;
}

static int fabric_run(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                      double *v, char *why, size_t room)
{
    static struct wf_duel d;
    d = (struct wf_duel){.port = wf_launch_port()};
    return (t->figure == WF_FIGURE_RATE ? fabric_rate : fabric_pingpong)(r, t, iters, &d, v, why,
                                                                         room);
}

static const struct wf_contest fabric_contests[] = {
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "pingpong, tagged", 100000},
    {"msg_lat", 1 << 20, 2, WF_FIGURE_LAT, "pingpong, tagged", 2000},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "pingpong, tagged", 20000, WF_OVER_TCP},
    {"msg_lat", 1 << 20, 2, WF_FIGURE_LAT, "pingpong, tagged", 500, WF_OVER_TCP},
    {"am_rate", 8, 2, WF_FIGURE_RATE, "rate", 50000, WF_OVER_TCP},
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

static int mpi_run(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters, double *v,
                   char *why, size_t room)
{
    static struct wf_child c;
    bool open_mpi = !strcmp(r->name, "openmpi"), crowd = t->ranks > 2;
    struct wf_words w = {.used = 0};
    char path[PATH_MAX];
    if (helper_path(r, path, sizeof path))
        return -1;
    wf_words_add(&w, mpi_launcher(r));
    if (open_mpi && geteuid() == 0)
        wf_words_add(&w, "--allow-run-as-root");
    if (open_mpi && t->over == WF_OVER_TCP)
        wf_words_list(&w, (const char *const[]){"--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                                                "--mca", "btl_tcp_if_include", "lo", NULL});
    if (open_mpi)
        wf_words_list(&w, crowd
                              ? (const char *const[]){"--oversubscribe", "--bind-to", "none", NULL}
                              : (const char *const[]){"--bind-to", "core", NULL});
    else if (!crowd)
        wf_words_list(&w, (const char *const[]){"-bind-to", "core", NULL});
    wf_words_add(&w, "-n");
    wf_words_number(&w, t->ranks);
    wf_words_list(&w, (const char *const[]){path, t->theirs, NULL});
    wf_words_number(&w, t->size);
    wf_words_number(&w, iters);
    if (t->over == WF_OVER_TCP)
        wf_words_number(&w, TCP_WINDOW);
    if (wf_launch(&w, &c, why, room))
        return -1;
    return json_figure(c.text, t->figure, v) ? unread(r->helper, why, room) : 0;
}

/* Only Open MPI's transport can be chosen: its contests are first. */
#define MPI_TCP 6
static const struct wf_contest mpi_contests[] = {
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "lat", 20000, WF_OVER_TCP},
    {"msg_sendrecv", 8, 2, WF_FIGURE_LAT, "sendrecv", 20000, WF_OVER_TCP},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, "rate", 100000, WF_OVER_TCP},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, "bw", 300, WF_OVER_TCP},
    {"barrier", 0, 2, WF_FIGURE_LAT, "barrier", 10000, WF_OVER_TCP},
    {"barrier", 0, 16, WF_FIGURE_LAT, "barrier", 500, WF_OVER_TCP},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "lat", 100000},
    {"msg_sendrecv", 8, 2, WF_FIGURE_LAT, "sendrecv", 100000},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, "rate", 200000},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, "bw", 500},
    {"barrier", 0, 2, WF_FIGURE_LAT, "barrier", 50000},
    {"barrier", 0, 16, WF_FIGURE_LAT, "barrier", 2000},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

const struct wf_rival wf_rivals[] = {
    {"perftest",
     "perftest",
     "perftest",
     perftest_contests,
     COUNT(perftest_contests),
     program_there,
     perftest_run,
     {"ib_write_lat", NULL},
     NULL},
    {"ucx",
     "UCX",
     "ucx-utils",
     ucx_contests,
     COUNT(ucx_contests),
     program_there,
     ucx_run,
     {"ucx_perftest", NULL},
     NULL},
    {"libfabric",
     "libfabric",
     "libfabric-bin libfabric-dev",
     fabric_contests,
     COUNT(fabric_contests),
     program_there,
     fabric_run,
     {"fi_pingpong", NULL},
     "weft-perf-libfabric"},
    {"openmpi",
     "Open MPI",
     "openmpi-bin libopenmpi-dev",
     mpi_contests,
     COUNT(mpi_contests),
     mpi_there,
     mpi_run,
     {"mpirun.openmpi", "mpirun"},
     "weft-perf-openmpi"},
    {"mpich",
     "MPICH",
     "mpich libmpich-dev",
     mpi_contests + MPI_TCP,
     COUNT(mpi_contests) - MPI_TCP,
     mpi_there,
     mpi_run,
     {"mpirun.mpich", "mpiexec.hydra"},
     "weft-perf-mpich"},
};
const size_t wf_rivals_count = COUNT(wf_rivals);
