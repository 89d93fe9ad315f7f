/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

/* A structure of the kernel (include/uapi/linux/fs.h of Linux 6.11), which older headers do not
 * have. */
struct procmap_query {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset;
    uint64_t inode;
    uint32_t dev_major, dev_minor;
    uint32_t vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
_Static_assert(sizeof(struct procmap_query) == 104, "the kernel's structure");
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#define PROCMAP_QUERY_VMA_READABLE 0x01
#define PROCMAP_QUERY_VMA_WRITABLE 0x02
#define PROCMAP_QUERY_VMA_SHARED 0x08
#define QUERY_BOTH (PROCMAP_QUERY_VMA_READABLE | PROCMAP_QUERY_VMA_WRITABLE)

int wf_maps_open(const char *path)
{
    return wf_fd_high(open(path, O_RDONLY | O_CLOEXEC));
}

/* Returns 0, or -1 if no mapping contains [at], or 1 if the kernel does not know PROCMAP_QUERY. */
static int find_by_query(int fd, uintptr_t at, struct wf_mapping *out)
{
    struct procmap_query q = {.size = sizeof q, .query_addr = at};
    if (ioctl(fd, PROCMAP_QUERY, &q))
        return errno == ENOTTY || errno == EINVAL ? 1 : -1;
    *out = (struct wf_mapping){.start = q.vma_start,
                               .end = q.vma_end,
                               .is_private = !(q.vma_flags & PROCMAP_QUERY_VMA_SHARED),
                               .is_anonymous = !q.inode,
                               .is_writable = (q.vma_flags & QUERY_BOTH) == QUERY_BOTH};
    return 0;
}

/* Parse a line of a maps file (proc(5)): start-end perms offset dev inode path. Returns 0 if [at]
 * is in this line's mapping, 1 if not, or -1 if the line has another form. */
static int line_parse(const char *line, uintptr_t at, struct wf_mapping *out)
{
    uintptr_t start, end;
    char perms[5];
    uint64_t inode;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %" SCNu64, &start, &end, perms,
               &inode) != 4)
        return -1;
    if (at < start || at >= end)
        return 1;
    *out = (struct wf_mapping){.start = start,
                               .end = end,
                               .is_private = perms[3] == 'p',
                               .is_anonymous = !inode,
                               .is_writable = perms[0] == 'r' && perms[1] == 'w'};
    return 0;
}

static int find_by_reading(int fd, uintptr_t at, struct wf_mapping *out)
{
    char buf[8192];
    size_t have = 0;
    off_t from = 0;
    for (;;) {
        ssize_t n = pread(fd, buf + have, sizeof buf - 1 - have, from);
        char *line = buf, *eol;
        if (n <= 0)
            return -1;
        from += n;
        have += (size_t)n;
        buf[have] = 0;
        while ((eol = strchr(line, '\n'))) {
            int there;
            *eol = 0;
            there = line_parse(line, at, out);
            if (there <= 0)
                return there;
            line = eol + 1;
        }
        have = (size_t)(buf + have - line);
        if (have >= sizeof buf - 1)
            return -1; /* no line of a maps file is much longer than PATH_MAX (4096) */
        memmove(buf, line, have);
    }
}

int wf_maps_find(int fd, uintptr_t at, struct wf_mapping *out)
{
    static _Atomic int cannot_query;
    if (!atomic_load_explicit(&cannot_query, memory_order_relaxed)) {
        int found = find_by_query(fd, at, out);
        if (found <= 0)
            return found;
        atomic_store_explicit(&cannot_query, 1, memory_order_relaxed);
    }
    return find_by_reading(fd, at, out);
}

bool wf_maps_can_write(uintptr_t start, uintptr_t end)
{
    struct wf_mapping m = {.end = start, .is_writable = true};
    int fd = wf_maps_open("/proc/thread-self/maps");
    while (fd >= 0 && m.end < end && m.is_writable)
        if (wf_maps_find(fd, m.end, &m))
            m.is_writable = false;
    if (fd >= 0)
        close(fd);
    return fd >= 0 && m.is_writable;
}
