/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables, JSON lines and help of `weft perf`. */
#include <stdio.h>
#include <unistd.h>

#include "perf.h"

#define PROGRESS_NS 100000000u /* least time between two updates of a terminal's line */

void wf_perf_usage(void)
{
    fputs("usage: weft run -n 2 -- weft perf TEST... [OPTIONS]\n"
          "       weft perf limits | mem | reg | compare | curve [OPTIONS]\n\n"
          "am_lat am_rate            active message: half a ping-pong; one way\n"
          "am_echo                   request and reply, the whole round trip\n"
          "put_lat get_lat           one operation after the other\n"
          "put_rate get_rate         many; put_bw get_bw with 1 MiB each\n"
          "msg_lat msg_rate msg_bw   tagged messages between malloc'd buffers\n"
          "msg_sendrecv              both ways at once, time of an exchange\n"
          "atomic_lat                fetching add on a word of the peer's\n"
          "barrier                   mean of many, any number of ranks\n"
          "limits                    what the machine itself can do\n"
          "mem                       memory of a start and of peers never talked to\n"
          "reg                       what cached registrations cost: hits and misses\n"
          "compare                   Weft in turn with UCX, libfabric, Open MPI, MPICH\n"
          "curve, threads            at all sizes; by threads: weft perf curve --help\n\n"
          "  --size N|N:M   bytes, k and M allowed; N:M doubles from N up to M\n"
          "  --iters N      operations in each run, or --time MS: its length, 50 ms\n"
          "  --pairs N      limit (compare: the other) and test in turn, N times: ratios\n"
          "  --transport T  shm, tcp or rdma and no other; limits and peers are those of T\n"
          "  --cached       reuse one place instead of 1 MiB; --fresh: write it first\n"
          "  --plot F.svg   draw a sweep, or the comparison (needs gnuplot)\n"
          "  --json         objects instead of a table\n",
          stdout);
}

static void json_figure(const char *name, double v)
{
    if (v > 0)
        printf(v < 1 ? ",\"%s\":%.*g" : ",\"%s\":%.*f", name, v < 1 ? 4 : v < 100 ? 3 : 1, v);
}

void wf_perf_json_list(FILE *to, const char *name, const double *v, unsigned n)
{
    fprintf(to, ",\"%s\":[", name);
    for (unsigned i = 0; i < n; i++)
        fprintf(to, "%s%.4f", i ? "," : "", v[i]);
    putc(']', to);
}

static void json_row(const struct wf_perf_row *row)
{
    printf("{\"test\":\"%s\",\"transport\":\"%s\",\"size\":%zu,\"iters\":%llu", row->test,
           row->transport, row->size, (unsigned long long)row->iters);
    json_figure("lat_ns", row->median.lat_ns);
    json_figure("p99_ns", row->median.p99_ns);
    json_figure("mean_ns", row->median.mean_ns);
    json_figure("rate_mps", row->median.rate_mps);
    json_figure("gbs", row->median.gbs);
    if (row->pairs) {
        printf(",\"pairs\":%u,\"limit\":\"%s\"", row->pairs, row->limit_name);
        json_figure("limit_value", row->limit);
        printf(",\"ratio\":%.4f", row->ratio);
        wf_perf_json_list(stdout, "ratios", row->ratios, row->pairs);
        wf_perf_json_list(stdout, "limit_values", row->limits, row->pairs);
    }
    fputs("}\n", stdout);
}

static void cell(double v)
{
    if (v > 0)
        printf(" %12.*f", v < 100 ? 2 : 1, v);
    else
        printf(" %12s", "-");
}

void wf_perf_print_head(const struct wf_perf *p)
{
    if (p->o->json)
        return;
    printf("transport: %s\n", p->transport);
    printf("%-12s %9s %11s %12s %12s %12s %12s\n", "test", "bytes", "iterations", "latency ns",
           "p99 ns", "million/s", "GB/s");
    fflush(stdout);
}

static void table_pairs(const struct wf_perf_row *row)
{
    printf("\n%6s %14s %14s %9s\n%6s %14s %14s\n", "pair", row->limit_name, row->test, "ratio", "",
           row->limit_unit, row->limit_unit);
    for (unsigned i = 0; i < row->pairs; i++)
        printf("%6u %14.2f %14.2f %9.3f\n", i + 1, row->limits[i], row->figures[i], row->ratios[i]);
    printf("median %14.2f %14s %9.3f  (%s / %s)\n\n", row->limit, "", row->ratio, row->test,
           row->limit_name);
}

static void table_row(const struct wf_perf_row *row)
{
    printf("%-12s ", row->test);
    if (row->size)
        printf("%9zu", row->size);
    else
        printf("%9s", "-");
    printf(" %11llu", (unsigned long long)row->iters);
    cell(row->median.lat_ns);
    cell(row->median.p99_ns);
    cell(row->median.rate_mps);
    cell(row->median.gbs);
    putchar('\n');
    if (row->pairs)
        table_pairs(row);
}

void wf_perf_print_row(const struct wf_perf_options *o, const struct wf_perf_row *row)
{
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    (o->json ? json_row : table_row)(row);
    fflush(stdout);
}

void wf_perf_print_progress(const struct wf_perf_options *o, size_t size, unsigned run,
                            unsigned runs)
{
    static uint64_t shown_ns;
    uint64_t now = wf_perf_now_ns();
    unsigned at = 1, sizes = 1;
    if (!isatty(STDERR_FILENO) || (o->size_last <= o->size_first && o->pairs < 2) ||
        now - shown_ns < PROGRESS_NS)
        return;
    shown_ns = now;
    for (size_t s = o->size_first; s && s * 2 <= o->size_last; s *= 2) {
        sizes++;
        at += s < size;
    }
    fprintf(stderr, "\r\033[K%s: %zu bytes (%u of %u), run %u of %u", o->test->name, size, at,
            sizes, run, runs);
    fflush(stderr);
}
