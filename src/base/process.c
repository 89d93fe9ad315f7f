/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process_watch.h"
#include "base/rand.h"

#define PROCESSORS_MAX ((size_t)1 << 20) /* no kernel supports so many */
#define PF_EXITING 4u                    /* include/linux/sched.h; proc(5) field 9 */

static ssize_t read_file(const char *path, char *buf, size_t room)
{
    int fd = wf_fd_high(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n;
    if (fd < 0)
        return -1;
    n = read(fd, buf, room - 1);
    close(fd);
    if (n >= 0)
        buf[n] = 0;
    return n;
}

/* Copy field [n] (3 or more) of the stat file [path] (proc(5)) to [out]. Returns 0 with errno if
 * the file cannot be read: ESRCH or ENOENT if there is no such process or thread. */
static int stat_field(const char *path, int n, char out[32])
{
    char buf[1024], *p;
    errno = ESRCH;
    if (read_file(path, buf, sizeof buf) <= 0 || !(p = strrchr(buf, ')')))
        return 0;
    /* The last ')' ends field 2, the command name: proc(5). Field 3 follows. */
    for (int field = 2; field < n; field++)
        if (!(p = strchr(p + 1, ' ')))
            return 0;
    snprintf(out, 32, "%.*s", (int)strcspn(p + 1, " \n"), p + 1);
    return 1;
}

#define TIME_INITIAL 0xEFFFFFFAu /* PROC_TIME_INIT_INO of include/linux/proc_ns.h */
/* Set in a start time that may be 1 tick too late. */
#define START_ROUNDED (UINT64_C(1) << 39)

/* Store the offset that this process's time namespace (time_namespaces(7), Linux 5.6) adds to
 * CLOCK_BOOTTIME, and so to the start times in /proc. Returns 0, or -1 if the offset is unknown. */
static int boot_offset(int64_t *ns)
{
    uint64_t mine = wf_namespace_id("time");
    long long seconds, nanoseconds;
    char buf[256], *line;
    *ns = 0;
    if (!mine || mine == TIME_INITIAL)
        return 0;
    /* timens_offsets describes the time namespace of future children. The time namespace of this
     * process differs from that of its children only if the process has called unshare(2). The
     * offset is then unknown, because no file describes the namespace of the process itself. */
    if (mine != wf_namespace_id("time_for_children") ||
        read_file("/proc/self/timens_offsets", buf, sizeof buf) <= 0 ||
        !(line = strstr(buf, "boottime")) ||
        sscanf(line, "boottime %lld %lld", &seconds, &nanoseconds) != 2)
        return -1;
    *ns = seconds * 1000000000 + nanoseconds;
    return 0;
}

uint64_t wf_process_start(int pid)
{
    char path[64], text[32];
    int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK), shift, ticks;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!stat_field(path, 22, text))
        return 0;
    if (boot_offset(&shift)) {
        errno = EXDEV;
        return 0;
    }
    ticks = (int64_t)strtoull(text, NULL, 10) - shift / tick_ns + (shift % tick_ns < 0);
    return (ticks > 0 ? (uint64_t)ticks : 1) | (shift % tick_ns ? START_ROUNDED : 0);
}

int wf_process_is_start(uint64_t start, uint64_t known)
{
    uint64_t a = start & ~START_ROUNDED, b = known & ~START_ROUNDED;
    uint64_t apart = a > b ? a - b : b - a;
    return a && apart <= ((start | known) & START_ROUNDED ? 1 : 0);
}

/* ---- ends ---- */

struct ends {
    char state;
    unsigned threads; /* those that have not ended, and the first one */
    uint64_t ticks;   /* 1 or more */
};

/* Fields 3, 20 and 22 of /proc/PID/stat. Returns 0 with errno if it cannot be read. */
static int ends_read(int pid, struct ends *out)
{
    char path[64], buf[1024];
    const char *at;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    errno = ESRCH;
    if (read_file(path, buf, sizeof buf) <= 0 || !(at = strrchr(buf, ')')) ||
        sscanf(
            at + 1,
            " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u %*d %" SCNu64,
            &out->state, &out->threads, &out->ticks) != 3)
        return 0;
    out->ticks += !out->ticks;
    return 1;
}

uint64_t wf_process_ticks(int pid)
{
    struct ends e;
    return ends_read(pid, &e) ? e.ticks : 0;
}

int wf_process_ended(int pid, uint64_t ticks)
{
    struct ends e;
    if (!ends_read(pid, &e))
        return errno == ESRCH || errno == ENOENT;
    return e.ticks != ticks || e.state == 'X' || (e.state == 'Z' && e.threads <= 1);
}

static int thread_exiting(int pid, const char *tid)
{
    char path[64], state[32], flags[32];
    snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", pid, tid);
    if (!stat_field(path, 3, state) || !stat_field(path, 9, flags))
        return errno == ESRCH || errno == ENOENT;
    return state[0] == 'Z' || state[0] == 'X' || (strtoul(flags, NULL, 10) & PF_EXITING);
}

int wf_process_exiting(int pid)
{
    struct dirent *d;
    char path[64];
    int exiting = 1, fd;
    DIR *dir;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    fd = wf_fd_high(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return errno == ESRCH || errno == ENOENT;
    dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return 0;
    }
    while (exiting && (d = readdir(dir)))
        if (d->d_name[0] != '.')
            exiting = thread_exiting(pid, d->d_name);
    closedir(dir);
    return exiting;
}

unsigned wf_processors_allowed(void)
{
    /* sched_getaffinity(2) fails with EINVAL if the mask is shorter than the kernel's own mask. */
    for (size_t most = CPU_SETSIZE; most <= PROCESSORS_MAX; most *= 2) {
        size_t size = CPU_ALLOC_SIZE(most);
        cpu_set_t *set = CPU_ALLOC(most);
        int count = -1;
        if (set && !sched_getaffinity(0, size, set))
            count = CPU_COUNT_S(size, set);
        else if (set && errno == EINVAL)
            count = 0;
        CPU_FREE(set);
        if (count)
            return count > 0 ? (unsigned)count : 1;
    }
    return 1;
}

uint64_t wf_namespace_id(const char *name)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/thread-self/ns/%s", name);
    return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

#define HASH_FIRST 0xcbf29ce484222325u /* FNV-1a */

static uint64_t hash_add(uint64_t h, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return h;
}

uint64_t wf_boot_id(void)
{
    char buf[64];
    if (read_file("/proc/sys/kernel/random/boot_id", buf, sizeof buf) <= 0)
        return 0;
    return hash_add(HASH_FIRST, buf, strcspn(buf, "\n"));
}

uint64_t wf_host_id(void)
{
    uint64_t boot = wf_boot_id(), netns = wf_namespace_id("net"), h;
    if (!boot || !netns)
        return 0;
    h = hash_add(boot, &netns, sizeof netns);
    h = wf_rand(&h) >> 8;
    return h ? h : 1;
}

uint32_t wf_user_id(void)
{
    uint64_t pidns = wf_namespace_id("pid"), h;
    uint32_t uid = geteuid();
    if (!pidns)
        return 0;
    h = hash_add(hash_add(HASH_FIRST, &pidns, sizeof pidns), &uid, sizeof uid);
    h = wf_rand(&h) >> 32;
    return h ? (uint32_t)h : 1;
}

int wf_pidfd_open(int pid)
{
    int fd = wf_fd_high((int)syscall(SYS_pidfd_open, pid, 0)); /* always close-on-exec */
    /* The call has no EPERM of its own: seccomp denies it. */
    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? wf_process_watch(pid) : fd;
}

int wf_pidfd_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}
