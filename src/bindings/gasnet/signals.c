/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals that the binding catches, as GASNet does: those of faults, to report the node before it
 * dies of them; and those that the variables GASNET_FREEZE_SIGNAL and GASNET_BACKTRACE_SIGNAL name.
 * The binding leaves a signal alone that the program, a launcher or a sanitizer handles or ignores.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binding.h"
#include "tools.h"

#define SIGNALS 32 /* the standard ones are below it */

static const int faults[] = {SIGILL, SIGFPE, SIGBUS, SIGSEGV};

/* What the handlers write, made before a fault can happen. */
static char reports[SIGNALS][80];

static void write_text(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* SA_RESETHAND has restored the default action: a second fault in here ends the process, and so
 * does this signal once the handler has returned. */
static void on_fault(int sig)
{
    write_text(reports[sig]);
    (void)gasnett_print_backtrace_ifenabled(STDERR_FILENO);
    gasnett_freezeForDebuggerErr();
    (void)raise(sig);
}

static void on_freeze(int sig)
{
    int before = errno;
    (void)sig;
    gasnett_freezeForDebuggerNow(&gasnetw_tools_frozen, "gasnetw_tools_frozen");
    errno = before;
}

static void on_backtrace(int sig)
{
    int before = errno;
    write_text(reports[sig]);
    (void)gasnett_print_backtrace(STDERR_FILENO);
    errno = before;
}

static void catch (int sig, void (*handler)(int), int flags)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, now;
    sigemptyset(&act.sa_mask);
    if (!sigaction(sig, NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        (void)sigaction(sig, &act, NULL);
}

/* Returns the signal that [len] characters of [text] name: "SIGSEGV", "SEGV" or "11"; 0 if none. */
static int signal_named(const char *text, size_t len)
{
    bool prefix = len > 3 && !strncasecmp(text, "SIG", 3);
    for (int sig = 1; sig < SIGNALS; sig++) {
        const char *name = sigabbrev_np(sig);
        char number[4];
        snprintf(number, sizeof number, "%d", sig);
        if ((name && strlen(name) == len - 3 * prefix &&
             !strncasecmp(text + 3 * prefix, name, len - 3 * prefix)) ||
            (strlen(number) == len && !strncmp(text, number, len)))
            return sig;
    }
    return 0;
}

/* Clear in [caught] the signals that GASNET_NO_CATCH_SIGNAL lists. */
static void exclude(bool caught[SIGNALS])
{
    const char *list = gasnet_getenv("GASNET_NO_CATCH_SIGNAL");
    if (!list)
        return;
    if (!strcmp(list, "*") || !strcasecmp(list, "all")) {
        memset(caught, false, SIGNALS * sizeof *caught);
        return;
    }
    for (list += strspn(list, ", "); *list; list += strspn(list, ", ")) {
        size_t len = strcspn(list, ", ");
        int sig = signal_named(list, len);
        if (!sig)
            gasnetw_env_complain("GASNET_NO_CATCH_SIGNAL", list,
                                 "a list such as SIGSEGV,SIGBUS or *");
        caught[sig] = false;
        list += len;
    }
}

static void catch_named(const char *variable, void (*handler)(int))
{
    const char *text = gasnet_getenv(variable);
    int sig = text && *text ? signal_named(text, strlen(text)) : 0;
    if (sig)
        catch (sig, handler, SA_RESTART);
    else if (text && *text)
        gasnetw_env_complain(variable, text, "a signal such as SIGUSR1");
}

void gasnetw_signals_open(void)
{
    bool caught[SIGNALS] = {false};
    for (int sig = 1; sig < SIGNALS; sig++) {
        const char *name = sigabbrev_np(sig);
        snprintf(reports[sig], sizeof reports[sig],
                 "*** Caught a signal: SIG%s(%d) on node %u/%u\n", name ? name : "?", sig,
                 (unsigned)gasnetw_job.mynode, (unsigned)gasnetw_job.nodes);
    }
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        int sig = faults[i];
        caught[sig] = true;
        snprintf(reports[sig], sizeof reports[sig],
                 "*** Caught a fatal signal: SIG%s(%d) on node %u/%u\n", sigabbrev_np(sig), sig,
                 (unsigned)gasnetw_job.mynode, (unsigned)gasnetw_job.nodes);
    }
    exclude(caught);
    catch_named("GASNET_FREEZE_SIGNAL", on_freeze);
    catch_named("GASNET_BACKTRACE_SIGNAL", on_backtrace);
    for (int sig = 1; sig < SIGNALS; sig++)
        if (caught[sig])
            catch (sig, on_fault, (int)SA_RESETHAND);
    /* A handler cannot load the library that backtraces need. */
    if (gasnetw_env_yes("GASNET_BACKTRACE", false) || gasnet_getenv("GASNET_BACKTRACE_SIGNAL"))
        gasnett_backtrace_init(NULL);
}
