/* SPDX-License-Identifier: BSD-3-Clause */
/* A system that forbids process_vm_readv(2) and process_vm_writev(2). The linker makes all callers
 * call these functions (meson.build). */
#ifndef TEST_FORBID_H
#define TEST_FORBID_H

#include <errno.h>
#include <stdbool.h>
#include <sys/uio.h>

static bool forbidden; /* set by the test */

ssize_t __real_process_vm_readv(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                                unsigned long, unsigned long);
ssize_t __wrap_process_vm_readv(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                                unsigned long, unsigned long);
ssize_t __real_process_vm_writev(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                                 unsigned long, unsigned long);
ssize_t __wrap_process_vm_writev(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                                 unsigned long, unsigned long);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n,
                                const struct iovec *from, unsigned long m, unsigned long flags)
{
    errno = EPERM;
    return forbidden ? -1 : __real_process_vm_readv(pid, to, n, from, m, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n,
                                 const struct iovec *to, unsigned long m, unsigned long flags)
{
    errno = EPERM;
    return forbidden ? -1 : __real_process_vm_writev(pid, from, n, to, m, flags);
}

#endif
