/* SPDX-License-Identifier: BSD-3-Clause */
/* A program whose last node gets a signal.
 *
 * usage: signals fault|raise NAME|own
 *   fault       a store to address 0
 *   raise NAME  raise(3) of SIGNAME
 *   own         a store to address 0; the program has a handler, which ends it with code 7 */
#include <gasnet.h>
#include <gasnet_tools.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void end(int sig)
{
    (void)sig;
    _exit(7);
}

/* Not static: backtraces name it. */
void the_fault(void);
__attribute__((noinline)) void the_fault(void)
{
    *(volatile int *)(uintptr_t)gasnett_cpu_count() = 1; /* no such address, not for the compiler */
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int sig;
    } names[] = {
        {"FPE", SIGFPE}, {"BUS", SIGBUS}, {"ILL", SIGILL}, {"USR1", SIGUSR1}, {"TERM", SIGTERM}};
    bool own = argc == 2 && !strcmp(argv[1], "own");
    if (own)
        signal(SIGSEGV, end);
    if (gasnet_init(&argc, &argv) || gasnet_attach(NULL, 0, 0, 0))
        return 3;
    if (gasnet_mynode() == gasnet_nodes() - 1) {
        if (own || (argc == 2 && !strcmp(argv[1], "fault")))
            the_fault();
        for (size_t i = 0; argc == 3 && i < sizeof names / sizeof names[0]; i++)
            if (!strcmp(argv[2], names[i].name))
                (void)raise(names[i].sig);
    }
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS))
        return 4;
    gasnet_exit(0);
    return 5;
}
