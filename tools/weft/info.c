/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft info`: the library's version, the transports that it can use here, and the limits of the
 * machine that will matter, each with what to change. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef WF_TOOL_PMIX
#include <pmix.h>
#endif
#include <weft/cache.h>

#include "info.h"
#include "tool.h"

#define TEXT 256

/* ---- reading ---- */

/* The first line of [path], without the newline. */
static bool read_line(const char *path, char *text, size_t room)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(text, (int)room, f);
    if (ok)
        text[strcspn(text, "\n")] = 0;
    if (f)
        fclose(f);
    return ok;
}

/* The word in brackets of "always [never] advise". */
static bool read_choice(const char *path, char *text, size_t room)
{
    char line[TEXT], *open, *close;
    if (!read_line(path, line, sizeof line) || !(open = strchr(line, '[')) ||
        !(close = strchr(open, ']')))
        return false;
    *close = 0;
    snprintf(text, room, "%s", open + 1);
    return true;
}

static void size_text(char *text, size_t room, uint64_t bytes)
{
    static const char units[] = "BKMGT";
    unsigned u = 0;
    while (bytes >= 10240 && units[u + 1]) {
        bytes /= 1024;
        u++;
    }
    snprintf(text, room, u ? "%" PRIu64 " %ciB" : "%" PRIu64 " %c", bytes, units[u]);
}

/* ---- rows ---- */

static void row(const char *name, bool hurts, const char *value, const char *advice)
{
    printf("  %c %-22s %-18s %s\n", hurts ? '!' : ' ', name, value, advice);
}

static void show_files(void)
{
    struct rlimit l;
    char value[TEXT];
    if (getrlimit(RLIMIT_NOFILE, &l))
        return;
    snprintf(value, sizeof value, "%" PRIu64 " of %" PRIu64, (uint64_t)l.rlim_cur,
             (uint64_t)l.rlim_max);
    if (l.rlim_cur == RLIM_INFINITY)
        snprintf(value, sizeof value, "unlimited");
    row("open files", l.rlim_cur < 1024, value,
        l.rlim_cur < 1024 ? "every connected process takes a few: ulimit -n 65536" : "");
}

static void show_memlock(void)
{
    struct rlimit l;
    char value[TEXT] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &l))
        return;
    if (l.rlim_cur != RLIM_INFINITY)
        size_text(value, sizeof value, l.rlim_cur);
    row("locked memory", false, value, "what devices that pin may have; none is needed without");
}

static void show_maps(void)
{
    char value[TEXT];
    bool few;
    if (!read_line("/proc/sys/vm/max_map_count", value, sizeof value))
        return;
    few = atol(value) < 65530; /* the kernel's default */
    row("mappings", few, value,
        few ? "every mate's memory takes some: sysctl vm.max_map_count" : "");
}

static void show_ptrace(void)
{
    char value[TEXT];
    bool strict;
    if (!read_line("/proc/sys/kernel/yama/ptrace_scope", value, sizeof value))
        snprintf(value, sizeof value, "no yama");
    strict = atoi(value) > 0;
    row("yama ptrace_scope", strict, value,
        strict ? "copying from another process is denied; memory that Weft allocated is mapped "
                 "instead"
               : "");
}

static void show_huge_pages(void)
{
    char value[TEXT];
    bool off;
    if (!read_choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled", value, sizeof value))
        snprintf(value, sizeof value, "not built in");
    off = strcmp(value, "advise") && strcmp(value, "always") && strcmp(value, "within_size") &&
          strcmp(value, "force");
    row("huge shared pages", off, value,
        off ? "large regions use 4 KiB pages: echo advise > "
              "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
            : "");
}

static void show_membarrier(void)
{
    long cmds = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    bool there = cmds > 0 && (cmds & MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    row("membarrier", !there,
        there      ? "global expedited"
        : cmds < 0 ? "denied"
                   : "too old",
        there ? ""
              : "each message pays a fence: Linux 4.16, or allow it in the container's seccomp");
}

static void show_pidfd(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    row("pidfd_open", fd < 0, fd < 0 ? strerror(errno) : "works",
        fd < 0 ? "a thread looks for ends of processes: Linux 5.3, or allow it in seccomp" : "");
    if (fd >= 0)
        close(fd);
}

static void show_seals(void)
{
    int fd = memfd_create("weft-info", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool works = fd >= 0 && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
    row("memfd seals", !works, works ? "work" : strerror(errno),
        works ? "" : "shared memory cannot be protected: Linux 5.1 is needed");
    if (fd >= 0)
        close(fd);
}

static void show_monitor(void)
{
    const char *why = NULL, *name = weft_monitor_name(&why);
    row("memory monitor", why, name,
        why ? why : "sees what happens to memory that is registered for a device");
}

/* ---- the cgroup ---- */

/* This process's directory in the unified hierarchy (cgroups(7)), as seen from
 * its cgroup namespace. */
static bool cgroup_path(char *path, size_t room)
{
    char line[TEXT];
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        if (!strncmp(line, "0::", 3)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(path, room, "/sys/fs/cgroup%s", line + 3);
            found = true;
        }
    if (f)
        fclose(f);
    return found;
}

/* Call [take] with the file [name] of this process's cgroup and of all its ancestors. */
static void walk_cgroup(const char *name, void (*take)(const char *text, void *arg), void *arg)
{
    char path[TEXT + 64], file[TEXT + 128], text[TEXT], *slash;
    if (!cgroup_path(path, sizeof path))
        return;
    while (strlen(path) >= strlen("/sys/fs/cgroup")) {
        snprintf(file, sizeof file, "%s/%s", path, name);
        if (read_line(file, text, sizeof text))
            take(text, arg);
        slash = strrchr(path, '/');
        *slash = 0;
    }
}

static void take_memory(const char *text, void *arg)
{
    uint64_t *least = arg, v;
    if (text[0] >= '0' && text[0] <= '9' && (v = strtoull(text, NULL, 10)) < *least)
        *least = v;
}

/* "max 100000" or "150000 100000": microseconds in each period of so many. */
static void take_cpu(const char *text, void *arg)
{
    double *least = arg, quota, period;
    if (sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0 && quota / period < *least)
        *least = quota / period;
}

static void show_memory(void)
{
    uint64_t least = UINT64_MAX;
    char value[TEXT] = "none", v1[TEXT];
    walk_cgroup("memory.max", take_memory, &least);
    if (read_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", v1, sizeof v1))
        take_memory(v1, &least);
    if (least < UINT64_MAX / 4) /* in version 1 a number near that means no limit */
        size_text(value, sizeof value, least);
    row("cgroup memory limit", false, value,
        least < UINT64_MAX / 4 ? "shared memory counts, too, for who touches it first" : "");
}

static void show_cores(void)
{
    enum { CPUS = 8192 };
    cpu_set_t *set = CPU_ALLOC(CPUS);
    size_t size = CPU_ALLOC_SIZE(CPUS);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int mine = 0;
    double quota = 1e9;
    char value[TEXT];
    bool less;
    if (set && !sched_getaffinity(0, size, set))
        mine = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    walk_cgroup("cpu.max", take_cpu, &quota);
    less = mine < online || quota < mine;
    if (quota < mine)
        snprintf(value, sizeof value, "%d of %ld, %.1f busy", mine, online, quota);
    else
        snprintf(value, sizeof value, "%d of %ld", mine, online);
    row("cpus for this process", less, value,
        quota < mine ? "cgroup cpu.max: ranks that spin use it up"
        : less       ? "affinity mask: more ranks than these share cores and yield"
                     : "more ranks than these share cores and yield");
}

/* ---- the page ---- */

static void on_transport(void *arg, const char *name, int usable, const char *note)
{
    (void)arg;
    printf("  %c %-22s %-18s %s\n", usable ? ' ' : '!', name, usable ? "usable" : "not usable",
           note ? note : "");
}

static void on_device(void *arg, const char *name, const char *why_not, const char *note)
{
    bool *began = arg;
    if (!*began)
        printf("\nRDMA devices (* would be used)\n");
    *began = true;
    printf("  %c %-22s %-18s %s\n", why_not ? ' ' : '*', name, why_not ? why_not : "used", note);
}

static int show_info(void)
{
    bool began = false;
    printf("weft %s\n\nbuilt in\n", weft_version());
#if defined(__clang__)
    printf("    %-22s clang %d.%d\n", "compiler", __clang_major__, __clang_minor__);
#else
    printf("    %-22s gcc %d.%d\n", "compiler", __GNUC__, __GNUC_MINOR__);
#endif
#ifdef WF_TOOL_PMIX
    printf("    %-22s %.*s\n", "job start-up", (int)strcspn(PMIx_Get_version(), "("),
           PMIx_Get_version());
#else
    printf("  ! %-22s none: one rank only (-Dpmix=enabled)\n", "job start-up");
#endif
#ifdef WF_HOOKS
    printf("  ! %-22s on: this is a build for tests, slower than it should be\n", "test hooks");
#endif
    wf_info_fabric();
    wf_info_ompi();
    printf("\ntransports\n");
    weft_transport_rows(on_transport, NULL);
    weft_device_rows(on_device, &began);
    printf("\nlimits (! will be felt)\n");
    show_cores();
    show_memory();
    show_files();
    show_maps();
    show_memlock();
    show_monitor();
    show_huge_pages();
    show_membarrier();
    show_pidfd();
    show_seals();
    show_ptrace();
    return 0;
}

/* ---- --config ---- */

static void on_config(void *arg, const char *name, const char *value, const char *dflt,
                      const char *doc)
{
    bool differs = strcmp(value, dflt) != 0;
    (void)arg;
    printf("%c %-24s %-12s %-12s %s\n", differs ? '*' : ' ', name, value, dflt, doc);
}

static int show_config(void)
{
    printf("  %-24s %-12s %-12s %s\n", "variable", "value", "default", "what it is");
    weft_config_rows(on_config, NULL);
    return 0;
}

static void usage(FILE *to)
{
    fputs("usage: weft info [--config]\n"
          "       weft info --stats [PID ... | --job PID] [--json]\n"
          "       weft info --resources [PEERS ...] [--json]\n"
          "\n"
          "Prints the version, what was built in, the transports that can be used here,\n"
          "and the machine's limits; a limit that will be felt is marked ! and says what\n"
          "to change.\n"
          "\n"
          "options:\n"
          "  --config   print every variable that Weft reads: its value now (* where it is\n"
          "             not the default), its default, and what it is\n"
          "  --stats    print what running processes have counted: those named, or all of\n"
          "             this user's; they are not disturbed\n"
          "  --job PID  all ranks of the job of that rank, or of that weft run\n"
          "  --resources\n"
          "             what RDMA takes of memory and queues for so many connected peers\n"
          "             (default 2, 100 and 1000), counted on a device that moves nothing\n"
          "  --json     one object for each process, with the counters that are 0 too\n"
          "  --help     print this\n"
          "\n"
          "example:\n"
          "  weft info --stats --json\n",
          to);
}

static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], word))
            return true;
    return false;
}

int wf_tool_info(int argc, char **argv)
{
    static const char *const names[] = {"--config", "--stats", "--resources", "--help", NULL};
    const char *near, *wrong;
    if (argc == 1)
        return show_info();
    if (has_word(argc, argv, "--help") || has_word(argc, argv, "-h")) {
        usage(stdout);
        return 0;
    }
    if (has_word(argc, argv, "--stats"))
        return wf_info_stats(argc, argv);
    if (has_word(argc, argv, "--resources"))
        return wf_info_resources(argc, argv);
    if (!strcmp(argv[1], "--config") && argc == 2)
        return show_config();
    wrong = argv[strcmp(argv[1], "--config") ? 1 : 2];
    near = wf_tool_nearest(wrong, names);
    fprintf(stderr, "weft info: unknown argument %s%s%s%s\n", wrong,
            near ? "; did you mean " : "; weft info --help", near ? near : "", near ? "?" : "");
    return WF_TOOL_USAGE;
}
