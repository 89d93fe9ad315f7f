/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* linux/fcntl.h, Linux 5.1 */
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Returns true and sets errno if [size] exceeds RLIMIT_FSIZE. This limit applies to memfds, too,
 * and the kernel sends SIGXFSZ to a process that exceeds the limit (setrlimit(2)). So this check
 * comes before the size is set. */
static bool is_too_big(size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        size <= limit.rlim_cur)
        return false;
    wf_error("%zu bytes of shared memory are more than the limit on file sizes, %llu bytes, which "
             "holds for them, too: raise it (ulimit -f unlimited)",
             size, (unsigned long long)limit.rlim_cur);
    errno = EFBIG;
    return true;
}

int wf_shared_create(const char *name, size_t size, int read_only, void **base)
{
    int fd = wf_fd_high(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void *p;
    int err;
    if (fd < 0) {
        wf_error("memfd_create: %m");
        return -1;
    }
    if (is_too_big(size))
        goto close_fd;
    if (ftruncate(fd, (off_t)size)) {
        wf_error("cannot allocate %zu bytes of shared memory: %m", size);
        goto close_fd;
    }
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        wf_error("cannot map %zu bytes of shared memory: %m", size);
        goto close_fd;
    }
    /* F_SEAL_FUTURE_WRITE denies new writable mappings, and hole punching. The owner's writable
     * mapping was made before, and stays writable. */
    if (fcntl(fd, F_ADD_SEALS, SEALS | (read_only ? F_SEAL_FUTURE_WRITE : 0))) {
        wf_error("cannot seal shared memory: %m (Linux 5.1 or later is needed)");
        goto unmap;
    }
    *base = p;
    return fd;
unmap:
    munmap(p, size);
close_fd:
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* A memfd of huge pages (MFD_HUGETLB) is of another file system. Its owner can free its pages, and
 * an access then raises SIGBUS if the system has no other huge page. */
static bool is_of_tmpfs(int fd)
{
    struct statfs fs;
    return !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC;
}

enum weft_status wf_shared_map(int fd, size_t size, int writable, void **base)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    void *p;
    /* The seals must prevent shrinking: an access beyond the end of a file that shrank would raise
     * SIGBUS and end this process. */
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_SEAL)) != (F_SEAL_SHRINK | F_SEAL_SEAL) ||
        fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < size || !size ||
        !is_of_tmpfs(fd))
        return WEFT_EPROTO;
    p = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno == ENOMEM ? WEFT_ENOMEM : WEFT_EPROTO;
    *base = p;
    return WEFT_OK;
}
