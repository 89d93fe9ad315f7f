/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the thread that looks for ends of processes out of the counts of valgrind. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Valgrind 3.19 (Debian 12) knows no pidfd_open(2), by which an endpoint notices the end of a
 * peer's process; Weft starts a thread then, whose instructions would be counted. The peer is this
 * process, so a descriptor that is never readable serves. */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6], result;
    va_list list;
    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (result < 0 && errno == ENOSYS && number == SYS_pidfd_open)
        return eventfd(0, EFD_CLOEXEC);
    return result;
}
