/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf limits`: the machine's own limits, measured by this process and one child on two
 * cores. Needs no launcher and uses nothing of Weft. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf.h"
#include "perf_machine.h"
#include "perf_net.h"
#include "tool.h"

#define ROUNDS 7 /* each limit is its best in so many rounds over all limits */
#define BIG ((size_t)1 << 20)

static const size_t copy_sizes[] = {8, 64, 512, 4096, 65536, BIG};
#define COPY_SIZES (sizeof copy_sizes / sizeof *copy_sizes)

struct limits {
    double line_lat_ns, bounce_lat_ns, line_rate_mps, ring_rate_mps;
    uint32_t ring_lines; /* of a ring of the shared-memory transport */
    double store_ns, copy_ns[COPY_SIZES];
    double kernel_copy_gbs, kernel_copy_huge_gbs, tcp_lat_ns, tcp_gbs;
};

static void keep_low(double *best, double v)
{
    if (v > 0 && (*best == 0 || v < *best))
        *best = v;
}

static void keep_high(double *best, double v)
{
    if (v > *best)
        *best = v;
}

static uint64_t copies_of(size_t len)
{
    return len <= 4096 ? 400000 : ((uint64_t)100 << 20) / len; /* 2 to 40 ms */
}

static void on_config(void *arg, const char *name, const char *value, const char *dflt,
                      const char *text)
{
    (void)dflt, (void)text;
    if (!strcmp(name, "WEFT_SHM_SLOTS"))
        *(uint32_t *)arg = (uint32_t)strtoul(value, NULL, 10);
}

static int measure_lines(struct wf_machine *m, struct limits *l)
{
    double v = 0, p99;
    if (wf_machine_line_lat(m, 20000, &v, &p99))
        return -1;
    keep_low(&l->line_lat_ns, v);
    if (wf_machine_bounce_lat(m, 20000, &v))
        return -1;
    keep_low(&l->bounce_lat_ns, v);
    if (wf_machine_line_rate(m, WF_MACHINE_LINES, 2000000, &v))
        return -1;
    keep_high(&l->line_rate_mps, v);
    if (wf_machine_line_rate(m, l->ring_lines, 2000000, &v))
        return -1;
    keep_high(&l->ring_rate_mps, v);
    return 0;
}

static int measure_copies(struct wf_machine *m, struct limits *l, pid_t peer)
{
    double v = 0;
    if (wf_machine_store(m, 1000000, &v))
        return -1;
    keep_low(&l->store_ns, v);
    for (size_t i = 0; i < COPY_SIZES; i++) {
        if (wf_machine_copy(m, copy_sizes[i], copies_of(copy_sizes[i]), &v))
            return -1;
        keep_low(&l->copy_ns[i], v);
    }
    if (wf_machine_kernel_copy(m, BIG, 200, false, peer, &v))
        return -1;
    keep_high(&l->kernel_copy_gbs, v);
    if (wf_machine_kernel_copy(m, BIG, 200, true, peer, &v))
        return -1;
    keep_high(&l->kernel_copy_huge_gbs, v);
    return 0;
}

static int measure_tcp(struct wf_net *n, struct limits *l)
{
    double v = 0;
    if (wf_net_round(n, 8, 8, 4000, &v))
        return -1;
    keep_low(&l->tcp_lat_ns, v / 2);
    if (wf_net_stream(n, BIG, 200, &v))
        return -1;
    keep_high(&l->tcp_gbs, v);
    return 0;
}

/* Both sides run this; only side 0's figures count. */
static int measure_all(struct wf_machine *m, struct limits *l, pid_t peer, struct wf_net *tcp)
{
    memset(l, 0, sizeof *l);
    weft_config_rows(on_config, &l->ring_lines);
    for (int round = 0; round < ROUNDS; round++) {
        if (measure_lines(m, l) || measure_copies(m, l, peer) || measure_tcp(tcp, l))
            return -1;
    }
    return 0;
}

/* Two cores that this process may use; two of the machine's if it is bound to one, as ranks are.
 * -1: there is only one. */
int wf_perf_two_cores(int cpu[2])
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < 2) {
        CPU_ZERO(&set);
        for (long c = 0; c < sysconf(_SC_NPROCESSORS_ONLN) && c < CPU_SETSIZE; c++)
            CPU_SET((int)c, &set);
    }
    for (int c = 0; c < CPU_SETSIZE && n < 2; c++)
        if (CPU_ISSET(c, &set))
            cpu[n++] = c;
    return n == 2 ? 0 : -1;
}

/* Only one such process runs on a machine, since two would disturb each other. It holds the name
 * until it ends. */
static int alone(void)
{
    static const char name[] = "weft-perf-limits";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(at.sun_path + 1, name, sizeof name - 1);
    return fd >= 0 && bind(fd, (struct sockaddr *)&at,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof name)) == 0;
}

/* Closes [tcp]. After a failure this process ends. */
static int measure_as(struct limits *l, int side, int cpu, int fd, pid_t peer, int tcp)
{
    struct wf_machine m;
    struct wf_net n;
    int bad = wf_machine_bind(cpu) || wf_machine_init(&m, side, fd, BIG, peer) ||
              wf_net_init(&n, side, tcp, BIG) || measure_all(&m, l, peer, &n);
    if (!bad) {
        wf_net_fini(&n);
        wf_machine_fini(&m);
    }
    return bad ? -1 : 0;
}

static void child(const int cpu[2], int fd, pid_t parent, int tcp)
{
    struct limits l;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    _exit(measure_as(&l, 1, cpu[1], fd, parent, tcp) ? 1 : 0);
}

/* 0, or -1 with the cause printed. */
static int measure(struct limits *l, const int cpu[2])
{
    int tcp[2], fd = wf_machine_memfd(BIG), status = 0;
    pid_t self = getpid(), pid;
    if (fd < 0 || wf_net_pair(tcp)) {
        fprintf(stderr, "weft perf limits: cannot make a memfd and a loopback connection: %s\n",
                strerror(errno));
        return -1;
    }
    pid = fork();
    if (pid == 0)
        child(cpu, fd, self, tcp[1]);
    close(tcp[1]);
    if (pid < 0 || measure_as(l, 0, cpu[0], fd, pid, tcp[0])) {
        fprintf(stderr, "weft perf limits: one of its two processes failed or was killed\n");
        if (pid > 0)
            kill(pid, SIGKILL);
        status = -1;
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
    close(fd);
    return status;
}

static void print_json(const struct limits *l)
{
    printf("{\"test\":\"limits\",\"line_lat_ns\":%.1f,\"bounce_lat_ns\":%.1f,"
           "\"line_rate_mps\":%.1f,\"ring_lines\":%u,\"ring_rate_mps\":%.1f,\"store_ns\":%.2f,"
           "\"copy_ns\":{",
           l->line_lat_ns, l->bounce_lat_ns, l->line_rate_mps, l->ring_lines, l->ring_rate_mps,
           l->store_ns);
    for (size_t i = 0; i < COPY_SIZES; i++)
        printf("%s\"%zu\":%.2f", i ? "," : "", copy_sizes[i], l->copy_ns[i]);
    printf("},\"copy_gbs\":%.2f", (double)BIG / l->copy_ns[COPY_SIZES - 1]);
    if (l->kernel_copy_gbs > 0)
        printf(",\"kernel_copy_gbs\":%.2f,\"kernel_copy_huge_gbs\":%.2f", l->kernel_copy_gbs,
               l->kernel_copy_huge_gbs);
    else
        printf(",\"kernel_copy_gbs\":null,\"kernel_copy_huge_gbs\":null");
    printf(",\"tcp_lat_ns\":%.0f,\"tcp_gbs\":%.2f}\n", l->tcp_lat_ns, l->tcp_gbs);
}

static void print_table(const struct limits *l)
{
    printf("%-16s %10.1f ns      cache line one way, one line for each direction\n", "line_lat",
           l->line_lat_ns);
    printf("%-16s %10.1f ns      the same with a single line that both sides write\n", "bounce_lat",
           l->bounce_lat_ns);
    printf("%-16s %10.1f million 64-byte lines per second through a ring\n", "line_rate",
           l->line_rate_mps);
    printf("%-16s %10.1f million, the same with %u lines, as the rings of shm have\n", "ring_rate",
           l->ring_rate_mps, l->ring_lines);
    printf("%-16s %10.2f ns      a word into shared memory, its length fixed\n", "store 8",
           l->store_ns);
    for (size_t i = 0; i < COPY_SIZES; i++)
        printf("copy %-11zu %10.2f ns      memcpy into shared memory, its length not fixed\n",
               copy_sizes[i], l->copy_ns[i]);
    printf("%-16s %10.2f GB/s    the same, 1 MiB at a time\n", "copy",
           (double)BIG / l->copy_ns[COPY_SIZES - 1]);
    if (l->kernel_copy_gbs > 0)
        printf("%-16s %10.2f GB/s    process_vm_writev, 1 MiB at a time; huge pages: %.2f\n",
               "kernel_copy", l->kernel_copy_gbs, l->kernel_copy_huge_gbs);
    else
        printf("%-16s %10s         the kernel refuses process_vm_writev here\n", "kernel_copy",
               "-");
    printf("%-16s %10.0f ns      8 bytes one way, loopback, both ends busy\n", "tcp_lat",
           l->tcp_lat_ns);
    printf("%-16s %10.2f GB/s    one loopback stream, both ends busy\n", "tcp", l->tcp_gbs);
}

int wf_perf_limits(bool json)
{
    struct limits l;
    int cpu[2];
    if (wf_perf_two_cores(cpu)) {
        fprintf(stderr, "weft perf limits: needs two cores, this process may use one\n");
        return 1;
    }
    if (!alone()) {
        fprintf(stderr, "weft perf limits: another one runs on this machine; it is one command "
                        "that starts its second process itself: run it without weft run\n");
        return WF_TOOL_USAGE;
    }
    fflush(stdout);
    if (measure(&l, cpu))
        return 1;
    (json ? print_json : print_table)(&l);
    return 0;
}
