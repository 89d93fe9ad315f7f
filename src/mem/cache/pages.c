/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/cache/pages.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"

/* Bits of a word in pagemap: Documentation/admin-guide/mm/pagemap.rst of the kernel. */
#define PRESENT (UINT64_C(1) << 63)
#define SHARED (UINT64_C(1) << 61) /* the page is a file's, or shared */
#define FRAME ((UINT64_C(1) << 55) - 1)

int wf_pages_open(void)
{
    return wf_fd_high(open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
}

int wf_pages_look(int fd, uintptr_t start, size_t count, uint64_t *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), want = count * sizeof *out;
    ssize_t n = pread(fd, out, want, (off_t)(start / page * sizeof *out));
    if (n != (ssize_t)want)
        return -1;
    for (size_t i = 0; i < count; i++)
        out[i] = out[i] & PRESENT ? out[i] & (PRESENT | SHARED | FRAME) : 0;
    return 0;
}
