/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PF_EXITING 4u /* include/linux/sched.h; proc(5) field 9 */

static const uint64_t no_life;
const uint64_t *wf_life_word = &no_life;

static uint64_t *life_page; /* private, wiped in children */
static uint64_t life_count; /* inherited, so a child never repeats a value */
static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;

static void life_fork(void)
{
    pthread_mutex_lock(&life_lock);
}

static void life_parent(void)
{
    pthread_mutex_unlock(&life_lock);
}

static void life_child(void)
{
    if (life_page)
        *life_page = 0;
    pthread_mutex_unlock(&life_lock);
}

/* From the start, so that no fork can find the lock held by a thread it lacks. */
__attribute__((constructor)) static void life_init(void)
{
    (void)pthread_atfork(life_fork, life_parent, life_child);
}

uint64_t wf_life_begin(void)
{
    uint64_t life = 0;
    pthread_mutex_lock(&life_lock);
    if (!life_page) {
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            goto out;
        (void)madvise(p, 4096, MADV_WIPEONFORK);
        life_page = p;
        wf_life_word = life_page;
    }
    if (!*life_page)
        *life_page = ++life_count;
    life = *life_page;
out:
    pthread_mutex_unlock(&life_lock);
    return life;
}

static ssize_t read_file(const char *path, char *buf, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    if (fd < 0)
        return -1;
    n = read(fd, buf, room - 1);
    close(fd);
    if (n >= 0)
        buf[n] = 0;
    return n;
}

/* Field [n] >= 3 of /proc/PID/stat in *out; 0 with errno, ESRCH or ENOENT if there
 * is no such process. */
static int stat_field(int pid, int n, char out[32])
{
    char path[64], buf[1024], *p;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    errno = ESRCH;
    if (read_file(path, buf, sizeof buf) <= 0 || !(p = strrchr(buf, ')')))
        return 0;
    /* proc(5): after the command in parentheses comes field 3. */
    for (int field = 2; field < n; field++)
        if (!(p = strchr(p + 1, ' ')))
            return 0;
    snprintf(out, 32, "%.*s", (int)strcspn(p + 1, " \n"), p + 1);
    return 1;
}

uint64_t wf_process_start(int pid)
{
    char text[32];
    return stat_field(pid, 22, text) ? strtoull(text, NULL, 10) : 0;
}

int wf_process_exiting(int pid)
{
    char state[32], flags[32];
    if (!stat_field(pid, 3, state) || !stat_field(pid, 9, flags))
        return errno == ESRCH || errno == ENOENT;
    return state[0] == 'Z' || state[0] == 'X' || (strtoul(flags, NULL, 10) & PF_EXITING);
}

uint64_t wf_namespace_id(const char *name)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

uint64_t wf_boot_id(void)
{
    char buf[64];
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    if (read_file("/proc/sys/kernel/random/boot_id", buf, sizeof buf) <= 0)
        return 0;
    for (char *p = buf; *p && *p != '\n'; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return h;
}

int wf_pidfd_open(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* always close-on-exec */
}

int wf_pidfd_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}
