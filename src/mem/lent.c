/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/lent.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static bool populate(const void *at, size_t n, int how)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)at & ~(page - 1);
    return !madvise((void *)start, (uintptr_t)at + n - start, how);
}

/* If the call fails for the stack, too, the kernel does not know it. */
enum wf_pages wf_pages_populate(const void *at, size_t n, bool writes)
{
    int how = writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (populate(at, n, how))
        return WF_PAGES_THERE;
    return populate(&how, 1, how) ? WF_PAGES_MISSING : WF_PAGES_UNKNOWN;
}

/* Finish a copy of [n] bytes that the kernel was asked to make, to lent memory if [writes] is true;
 * [got] is the result of the system call. If the system forbids this call, copies the bytes by
 * memcpy. Returns true if all bytes were copied, by the kernel or by memcpy; otherwise false, with
 * errno EFAULT. */
static bool ends(ssize_t got, void *to, const void *from, size_t n, bool writes)
{
    if (got < 0 && errno != EFAULT &&
        wf_pages_populate(writes ? to : from, n, writes) != WF_PAGES_MISSING) {
        memcpy(to, from, n);
        return true;
    }
    errno = EFAULT;
    return got == (ssize_t)n;
}

/* gettid() names the calling thread. getpid() would name the first thread, which may have ended. */
static ssize_t kernel_read(void *to, const void *lent, size_t n)
{
    struct iovec here = {to, n}, there = {(void *)(uintptr_t)lent, n};
    return process_vm_readv(gettid(), &here, 1, &there, 1, 0);
}

static ssize_t kernel_write(void *lent, const void *from, size_t n)
{
    struct iovec here = {(void *)(uintptr_t)from, n}, there = {lent, n};
    return process_vm_writev(gettid(), &here, 1, &there, 1, 0);
}

bool wf_lent_read(void *to, const void *lent, size_t n)
{
    return ends(kernel_read(to, lent, n), to, lent, n, false);
}

bool wf_lent_write(void *lent, const void *from, size_t n)
{
    return ends(kernel_write(lent, from, n), lent, from, n, true);
}

bool wf_foreign_read(void *to, const void *foreign, size_t n)
{
    ssize_t got = kernel_read(to, foreign, n);
    errno = EFAULT;
    return got == (ssize_t)n;
}

bool wf_foreign_write(void *foreign, const void *from, size_t n)
{
    ssize_t got = kernel_write(foreign, from, n);
    errno = EFAULT;
    return got == (ssize_t)n;
}

bool wf_foreign_is_allowed(void)
{
    char from = 0, to;
    return kernel_read(&to, &from, 1) == 1 && kernel_write(&to, &from, 1) == 1;
}
