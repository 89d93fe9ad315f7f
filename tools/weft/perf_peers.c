/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs Weft's and other libraries' own benchmarks, and reads their output. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_peers.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "perf.h"

#define SECONDS 120u     /* one run; far more than any needs */
#define LISTEN_MS 10000u /* until a server listens */
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

/* ---- children ---- */

/* A command line under construction. */
struct words {
    char text[1024];
    size_t used;
    char *argv[24];
    unsigned count;
};

static void word(struct words *w, const char *text)
{
    size_t n = strlen(text) + 1;
    if (w->used + n > sizeof w->text || w->count + 1 >= sizeof w->argv / sizeof *w->argv)
        return; /* large enough for every command below */
    memcpy(w->text + w->used, text, n);
    w->argv[w->count++] = w->text + w->used;
    w->argv[w->count] = NULL;
    w->used += n;
}

static void number(struct words *w, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    word(w, text);
}

static void words(struct words *w, const char *const *list)
{
    for (; *list; list++)
        word(w, *list);
}

static int ended(struct wf_child *c, const char *program, char *why, size_t room)
{
    int code = wf_child_finish(c, SECONDS);
    if (code == 0)
        return 0;
    if (code < 0)
        snprintf(why, room, "%s did not end within %u s", program, SECONDS);
    else
        snprintf(why, room, "%s ended with %d: %s", program, code, wf_child_last_line(c));
    return -1;
}

static int run_one(struct words *w, struct wf_child *c, char *why, size_t room)
{
    if (wf_child_start(c, w->argv, -1, NULL)) {
        snprintf(why, room, "cannot start %s", w->argv[0]);
        return -1;
    }
    return ended(c, w->argv[0], why, room);
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

static const char *own_path(void)
{
    static char path[PATH_MAX];
    ssize_t n = path[0] ? 1 : readlink("/proc/self/exe", path, sizeof path - 1);
    return n > 0 ? path : "weft";
}

int wf_weft_run(const struct wf_contest *t, const char *transport, uint64_t iters, double *v,
                char *why, size_t room)
{
    static struct wf_child c;
    struct words w = {.used = 0};
    word(&w, own_path());
    words(&w, (const char *const[]){"run", "-n", NULL});
    number(&w, t->ranks);
    words(&w, (const char *const[]){"--", own_path(), "perf", t->test, "--json", NULL});
    if (t->size) {
        word(&w, "--size");
        number(&w, t->size);
    }
    if (transport)
        words(&w, (const char *const[]){"--transport", transport, NULL});
    if (iters) {
        word(&w, "--iters");
        number(&w, iters);
    }
    if (run_one(&w, &c, why, room))
        return -1;
    return json_figure(c.text, t->figure, v) ? unread("weft", why, room) : 0;
}

/* ---- pairs of a server and a client ---- */

/* A port that was free a moment ago; 0: none. */
static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_ANY); /* as the listener: a connection that has just ended may
                                             * hold the port at another address */
    if (fd < 0)
        return 0;
    if (bind(fd, (struct sockaddr *)&at, len) || getsockname(fd, (struct sockaddr *)&at, &len))
        at.sin_port = 0;
    close(fd);
    return ntohs(at.sin_port);
}

/* Is there a listening socket on [port]? State 0A of proc_net_tcp. */
static bool listens(const char *table, unsigned port)
{
    char line[512];
    unsigned local, state;
    bool found = false;
    FILE *f = fopen(table, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) == 2 &&
                local == port && state == 0x0a;
    if (f)
        fclose(f);
    return found;
}

static bool await_server(const struct wf_child *server, unsigned port)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (unsigned ms = 0; ms < LISTEN_MS; ms += 2) {
        if (listens("/proc/net/tcp", port) || listens("/proc/net/tcp6", port))
            return true;
        if (wf_child_ended(server))
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

struct duel {
    struct words server, client;
    const char *const *env;
    unsigned port;
    struct wf_child s, c;
};

/* Run server and client, each on a core; the client's output is in d->c. */
static int duel_run(struct duel *d, char *why, size_t room)
{
    int cpu[2], bad;
    if (wf_perf_two_cores(cpu)) {
        snprintf(why, room, "two cores are needed");
        return -1;
    }
    if (wf_child_start(&d->s, d->server.argv, cpu[0], d->env)) {
        snprintf(why, room, "cannot start %s", d->server.argv[0]);
        return -1;
    }
    if (!await_server(&d->s, d->port) || wf_child_start(&d->c, d->client.argv, cpu[1], d->env)) {
        wf_child_finish(&d->s, 0);
        snprintf(why, room, "%s does not listen: %s", d->server.argv[0], wf_child_last_line(&d->s));
        return -1;
    }
    bad = ended(&d->c, d->client.argv[0], why, room);
    wf_child_finish(&d->s, bad ? 0 : 5);
    return bad;
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
    static struct duel d;
    char port[16];
    d = (struct duel){.env = env[t->over], .port = free_port()};
    snprintf(port, sizeof port, "%u", d.port);
    words(&d.server, (const char *const[]){r->launcher[0], "-p", port, NULL});
    words(&d.client, (const char *const[]){r->launcher[0], "-p", port, "127.0.0.1", "-t", t->theirs,
                                           "-f", "-v", "-s", NULL});
    number(&d.client, t->size);
    word(&d.client, "-n");
    number(&d.client, iters);
    if (duel_run(&d, why, room))
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
    static struct duel d;
    char port[16];
    struct words *const both[] = {&d.server, &d.client};
    bool lat = t->figure == WF_FIGURE_LAT;
    d = (struct duel){.port = free_port()};
    (void)r;
    snprintf(port, sizeof port, "%u", d.port);
    for (int i = 0; i < 2; i++) {
        words(both[i], (const char *const[]){t->theirs, "-F", "-p", port, "-s", NULL});
        number(both[i], t->size);
        word(both[i], "-n");
        number(both[i], iters);
    }
    word(&d.client, "127.0.0.1");
    if (duel_run(&d, why, room))
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
    const char *own = own_path(), *slash = strrchr(own, '/');
    snprintf(path, room, "%.*s/%s", slash ? (int)(slash - own) : 1, slash ? own : ".", r->helper);
    if (access(path, X_OK) == 0)
        return 0;
    snprintf(path, room, "%s/%s", WF_TOOL_LIBEXEC, r->helper);
    return access(path, X_OK);
}

/* The last line is: bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec. */
static int fabric_pingpong(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                           struct duel *d, double *v, char *why, size_t room)
{
    char port[16], size[24], count[24];
    const char *const common[] = {"-p", wf_over_names[t->over], "-e", "rdm", "-m", "tagged", NULL};
    snprintf(port, sizeof port, "%u", d->port);
    snprintf(size, sizeof size, "%zu", t->size);
    snprintf(count, sizeof count, "%" PRIu64, iters);
    words(&d->server,
          (const char *const[]){r->launcher[0], "-B", port, "-S", size, "-I", count, NULL});
    words(&d->server, common);
    words(&d->client,
          (const char *const[]){r->launcher[0], "-P", port, "-S", size, "-I", count, NULL});
    words(&d->client, common);
    word(&d->client, "127.0.0.1");
    if (duel_run(d, why, room))
        return -1;
    if (sscanf(wf_child_last_line(&d->c), "%*s %*s %*s %*s %*s %*s %lf", v) != 1 || *v <= 0)
        return unread(r->launcher[0], why, room);
    *v *= 1e3;
    return 0;
}

static int fabric_rate(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                       struct duel *d, double *v, char *why, size_t room)
{
    char path[PATH_MAX];
    struct words *const both[] = {&d->server, &d->client};
    if (helper_path(r, path, sizeof path)) {
        snprintf(why, room, "this weft was built without %s: build Weft anew with libfabric-dev",
                 r->helper);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        words(both[i], (const char *const[]){path, wf_over_names[t->over], NULL});
        number(both[i], t->size);
        number(both[i], iters);
        number(both[i], d->port);
    }
    word(&d->client, "127.0.0.1");
    if (duel_run(d, why, room))
        return -1;
    return json_figure(d->c.text, t->figure, v) ? unread(r->helper, why, room) : 0;
}

static int fabric_run(const struct wf_rival *r, const struct wf_contest *t, uint64_t iters,
                      double *v, char *why, size_t room)
{
    static struct duel d;
    d = (struct duel){.port = free_port()};
    return (t->figure == WF_FIGURE_RATE ? fabric_rate : fabric_pingpong)(r, t, iters, &d, v, why,
                                                                         room);
}

static const struct wf_contest fabric_contests[] = {
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "pingpong, tagged", 100000},
    {"msg_lat", 1 << 20, 2, WF_FIGURE_LAT, "pingpong, tagged", 2000},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "pingpong, tagged", 20000, WF_OVER_TCP},
    {"msg_lat", 1 << 20, 2, WF_FIGURE_LAT, "pingpong, tagged", 500, WF_OVER_TCP},
    {"am_rate", 8, 2, WF_FIGURE_RATE, "fi_inject, receives posted ahead", 50000, WF_OVER_TCP},
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
    struct words w = {.used = 0};
    char path[PATH_MAX];
    if (helper_path(r, path, sizeof path))
        return -1;
    word(&w, mpi_launcher(r));
    if (open_mpi && geteuid() == 0)
        word(&w, "--allow-run-as-root");
    if (open_mpi && t->over == WF_OVER_TCP)
        words(&w, (const char *const[]){"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca",
                                        "btl_tcp_if_include", "lo", NULL});
    if (open_mpi)
        words(&w, crowd ? (const char *const[]){"--oversubscribe", "--bind-to", "none", NULL}
                        : (const char *const[]){"--bind-to", "core", NULL});
    else if (!crowd)
        words(&w, (const char *const[]){"-bind-to", "core", NULL});
    word(&w, "-n");
    number(&w, t->ranks);
    words(&w, (const char *const[]){path, t->theirs, NULL});
    number(&w, t->size);
    number(&w, iters);
    if (t->over == WF_OVER_TCP)
        number(&w, TCP_WINDOW);
    if (run_one(&w, &c, why, room))
        return -1;
    return json_figure(c.text, t->figure, v) ? unread(r->helper, why, room) : 0;
}

/* Only Open MPI's transport can be chosen: its contests are first. */
#define MPI_TCP 5
static const struct wf_contest mpi_contests[] = {
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "lat", 20000, WF_OVER_TCP},
    {"msg_rate", 8, 2, WF_FIGURE_RATE, "rate", 100000, WF_OVER_TCP},
    {"msg_bw", 1 << 20, 2, WF_FIGURE_GBS, "bw", 300, WF_OVER_TCP},
    {"barrier", 0, 2, WF_FIGURE_LAT, "barrier", 10000, WF_OVER_TCP},
    {"barrier", 0, 16, WF_FIGURE_LAT, "barrier", 500, WF_OVER_TCP},
    {"msg_lat", 8, 2, WF_FIGURE_LAT, "lat", 100000},
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
