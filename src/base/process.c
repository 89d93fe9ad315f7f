/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/process.h"

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

static const uint64_t no_life;
const uint64_t *wf_life_word = &no_life;

static uint64_t *life_page; /* private, wiped in children */
static uint64_t life_count; /* inherited, so a child never repeats a value */
static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;

static void life_wipe(void)
{
    *life_page = 0;
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
        pthread_atfork(NULL, NULL, life_wipe);
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

uint64_t wf_process_start(int pid)
{
    char path[64], buf[1024], *p;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_file(path, buf, sizeof buf) <= 0 || !(p = strrchr(buf, ')')))
        return 0;
    /* proc(5): after the command in parentheses comes field 3. */
    for (int field = 2; field < 22; field++)
        if (!(p = strchr(p + 1, ' ')))
            return 0;
    return strtoull(p + 1, NULL, 10);
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
