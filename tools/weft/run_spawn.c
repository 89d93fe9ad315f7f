/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting one rank. Between fork and exec only async-signal-safe calls are
 * made: the PMIx library's threads may have held any lock at the fork. */
#define _GNU_SOURCE
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2) /* linux/close_range.h, Linux 5.11 */
#endif

#define CPUS_MAX 8192 /* the kernel's own limit, CONFIG_NR_CPUS on x86 */
#define SET_SIZE CPU_ALLOC_SIZE(CPUS_MAX)

static int *inherited; /* sorted descriptors that were open at the start */
static size_t inherited_count;
static sigset_t start_mask;
static struct sigaction start_sigpipe;
static struct rlimit start_files;
static cpu_set_t *allowed;   /* CPUS_MAX wide */
static int leader[CPUS_MAX]; /* by cpu: the lowest allowed one of its core; -1 not allowed */
static unsigned cores;

/* ---- descriptors ---- */

static int compare_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void list_inherited(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *d;
    if (!dir)
        return;
    while ((d = readdir(dir))) {
        int fd = atoi(d->d_name);
        int *more = realloc(inherited, (inherited_count + 1) * sizeof *inherited);
        if (!more)
            break;
        inherited = more;
        if (d->d_name[0] != '.' && fd != dirfd(dir) && fd > STDERR_FILENO)
            inherited[inherited_count++] = fd;
    }
    closedir(dir);
    if (inherited_count)
        qsort(inherited, inherited_count, sizeof *inherited, compare_int);
}

static void cloexec_range(unsigned from, unsigned to)
{
    struct rlimit files;
    if (from > to || !syscall(SYS_close_range, from, to, CLOSE_RANGE_CLOEXEC))
        return;
    if (!getrlimit(RLIMIT_NOFILE, &files) && to >= files.rlim_cur)
        to = (unsigned)files.rlim_cur;
    for (unsigned fd = from; fd <= to; fd++)
        (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
}

/* Descriptors opened since the start are the server's: its listening socket, other ranks'
 * connections. A rank that kept one open would hide another's death. */
static void keep_only_inherited(void)
{
    unsigned from = STDERR_FILENO + 1;
    for (size_t i = 0; i < inherited_count; i++) {
        if ((unsigned)inherited[i] > from)
            cloexec_range(from, (unsigned)inherited[i] - 1);
        from = (unsigned)inherited[i] + 1;
    }
    cloexec_range(from, INT_MAX);
}

/* ---- cores ---- */

/* The lowest allowed cpu that shares a core with [cpu]: itself without SMT. */
static int core_leader(int cpu)
{
    char path[96], text[512];
    FILE *f;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    f = fopen(path, "re");
    if (!f)
        return cpu;
    if (!fgets(text, sizeof text, f))
        text[0] = 0;
    fclose(f);
    for (char *at = text, *end; *at; at = end + (*end == ',')) { /* "0-1,8-9\n" */
        long lo = strtol(at, &end, 10), hi = lo;
        if (end == at)
            break;
        if (*end == '-')
            hi = strtol(end + 1, &end, 10);
        for (long c = lo; c <= hi && c < CPUS_MAX; c++)
            if (c >= 0 && CPU_ISSET_S((size_t)c, SET_SIZE, allowed))
                return (int)c;
    }
    return cpu;
}

static void list_cores(void)
{
    allowed = CPU_ALLOC(CPUS_MAX);
    if (allowed)
        CPU_ZERO_S(SET_SIZE, allowed);
    if (!allowed || sched_getaffinity(0, SET_SIZE, allowed))
        return;
    for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
        leader[cpu] = CPU_ISSET_S((size_t)cpu, SET_SIZE, allowed) ? core_leader(cpu) : -1;
        cores += leader[cpu] == cpu;
    }
}

/* All allowed hardware threads of core number [core]. */
static cpu_set_t *core_mask(unsigned core)
{
    cpu_set_t *mask = CPU_ALLOC(CPUS_MAX);
    int first = 0;
    if (!mask)
        return NULL;
    CPU_ZERO_S(SET_SIZE, mask);
    for (unsigned seen = 0; first < CPUS_MAX; first++)
        if (leader[first] == first && seen++ == core)
            break;
    for (int cpu = first; cpu < CPUS_MAX; cpu++)
        if (leader[cpu] == first)
            CPU_SET_S((size_t)cpu, SET_SIZE, mask);
    return mask;
}

/* If 0, 1 or 2 were closed, a socket of the server would get that number. */
static void fill_standard(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Each rank costs this process two descriptors; ranks start with the old limit. */
static void raise_limit(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &start_files))
        return;
    most = (struct rlimit){start_files.rlim_max, start_files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

void wf_spawn_init(void)
{
    fill_standard();
    raise_limit();
    sigprocmask(SIG_BLOCK, NULL, &start_mask);
    sigaction(SIGPIPE, NULL, &start_sigpipe);
    list_inherited();
    list_cores();
}

unsigned wf_spawn_cores(void)
{
    return cores;
}

/* ---- the child ---- */

/* The kernel kills this process when its parent's thread ends; but not if the parent ended before
 * this request, so check that. */
static void die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        raise(SIGKILL);
}

static void restore_signals(void)
{
    sigaction(SIGPIPE, &start_sigpipe, NULL);
    sigprocmask(SIG_SETMASK, &start_mask, NULL);
}

static void take_null_stdin(void)
{
    int fd = open("/dev/null", O_RDONLY);
    if (fd > STDIN_FILENO) {
        dup2(fd, STDIN_FILENO);
        close(fd);
    }
}

__attribute__((noreturn)) static void child(unsigned rank, char **argv, char **environment,
                                            const cpu_set_t *mask, pid_t parent, int report)
{
    int error;
    ssize_t n;
    die_with(parent);
    if (mask)
        (void)sched_setaffinity(0, SET_SIZE, mask);
    if (rank)
        take_null_stdin();
    keep_only_inherited();
    if (start_files.rlim_max)
        (void)setrlimit(RLIMIT_NOFILE, &start_files);
    restore_signals();
    execvpe(argv[0], argv, environment);
    error = errno;
    n = write(report, &error, sizeof error);
    (void)n;
    _exit(127);
}

/* Read the child's report: there is none if exec has closed its end. */
static int read_report(int fd)
{
    int error = 0;
    ssize_t n;
    do
        n = read(fd, &error, sizeof error);
    while (n < 0 && errno == EINTR);
    return n == sizeof error ? error : 0;
}

pid_t wf_spawn(unsigned rank, char **argv, char **environment, bool bound, int *error)
{
    cpu_set_t *mask = bound ? core_mask(rank) : NULL;
    pid_t parent = getpid(), pid = -1;
    int report[2];
    if (pipe2(report, O_CLOEXEC)) {
        *error = errno;
        goto free_mask;
    }
    pid = fork();
    if (!pid)
        child(rank, argv, environment, mask, parent, report[1]);
    *error = errno;
    close(report[1]);
    if (pid > 0 && (*error = read_report(report[0]))) {
        waitpid(pid, NULL, 0); /* it is exiting */
        pid = -1;
    }
    close(report[0]);
free_mask:
    if (mask)
        CPU_FREE(mask);
    return pid;
}
