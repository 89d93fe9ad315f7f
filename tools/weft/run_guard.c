/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft run` is three processes, so that nothing of the job remains if one of them is killed:
 *
 *   front     The process that was started. It receives signals, forwards them to the launcher, and
 *             waits for the exit code.
 *   guard     A child of the front, in a session of its own. So a signal that a terminal or kill(2)
 *             sends to the front's process group does not reach the guard.
 *   launcher  A child of the guard, in the front's process group and session. The launcher runs
 *             run.c, and the ranks are its children.
 *
 * All three processes are subreapers. If the parents of a rank's descendant have ended, the
 * descendant becomes a child of the launcher, however it detached itself. If the launcher has
 * ended, it becomes a child of the guard; if the guard has ended, too, of the front. That process
 * finds and ends the descendant (run_sweep.c). If one of the three processes ends:
 *
 *   front     Launcher and guard see the end of the pipe. The launcher ends, and its ranks with it.
 *             The guard ends the other processes of the job.
 *   launcher  The ranks end with the launcher (run_spawn.c). The guard ends the other processes.
 *   guard     The launcher ends with the guard, and the ranks with the launcher. The front ends the
 *             other processes.
 *
 * Signals reach the job only through the front's pipe. Otherwise a signal that the terminal sends
 * to the whole process group would count twice. */
#define _GNU_SOURCE
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

static bool is_ignored(int signal)
{
    struct sigaction now;
    return !sigaction(signal, NULL, &now) && now.sa_handler == SIG_IGN;
}

/* The signals that end the job, except those that nohup ignores. */
static void fill_signals(sigset_t *set)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (!is_ignored(ends[i]))
            sigaddset(set, ends[i]);
}

/* Of all three processes, and of threads started later. */
static int open_signals(void)
{
    sigset_t set;
    signal(SIGCHLD, SIG_DFL); /* if it were ignored, children would be reaped automatically */
    signal(SIGPIPE, SIG_IGN); /* a closed stderr must not end the job halfway */
    fill_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* ---- front ---- */

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The next signal other than SIGCHLD; 0 when [child] has ended. */
static int next_signal(int fd, pid_t child, int *status)
{
    struct signalfd_siginfo info;
    for (;;) {
        if (waitpid(child, status, WNOHANG) == child)
            return 0;
        if (read(fd, &info, sizeof info) == sizeof info && info.ssi_signo != SIGCHLD)
            return (int)info.ssi_signo;
    }
}

__attribute__((noreturn)) static void front(const char *job, pid_t guard, int signals, int lifeline)
{
    int status = 0, signal;
    while ((signal = next_signal(signals, guard, &status))) {
        unsigned char byte = (unsigned char)signal;
        while (write(lifeline, &byte, 1) < 0 && errno == EINTR)
            ;
    }
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        fprintf(stderr, "weft run: a process of its own was killed by SIG%s; the job is ended\n",
                name ? name : "?");
        wf_sweep_all(job);
    }
    _exit(code_of(status));
}

/* ---- guard ---- */

/* The launcher's status when it has ended; -1 when the front is gone. Ends of adopted children are
 * ignored. */
static int wait_for_end(pid_t launcher, int lifeline, int signals)
{
    struct pollfd fds[] = {{.fd = lifeline}, {.fd = signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    int status;
    while (waitpid(launcher, &status, WNOHANG) != launcher) {
        (void)poll(fds, 2, -1);
        if (fds[0].revents)
            return -1;
        if (read(signals, &info, sizeof info) < 0 && errno != EAGAIN)
            return -1;
    }
    return status;
}

/* End by the signal that killed the launcher, so that the front reports it. */
__attribute__((noreturn)) static void end_as(int status)
{
    sigset_t none;
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    prctl(PR_SET_DUMPABLE, 0); /* the launcher has dumped core already */
    sigemptyset(&none);
    signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    raise(WTERMSIG(status));
    _exit(code_of(status));
}

/* Closes all other descriptors: a pipe that the job's user reads must end with the job. */
__attribute__((noreturn)) static void guard(const char *job, pid_t launcher, int lifeline)
{
    sigset_t all, child;
    int signals, status;
    setsid();
    prctl(PR_SET_NAME, "weft-guard");
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (lifeline != STDIN_FILENO)
        dup2(lifeline, STDIN_FILENO);
    syscall(SYS_close_range, STDIN_FILENO + 1, INT_MAX, 0);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signals = signalfd(-1, &child, SFD_NONBLOCK);
    status = wait_for_end(launcher, STDIN_FILENO, signals);
    wf_sweep_all(job);
    if (status != -1)
        end_as(status);
    _exit(0);
}

/* ---- launcher ---- */

/* In the child: end when [parent] ends, also if it has ended already. */
static void follow(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        raise(SIGKILL);
}

int wf_guard_divide(const char *job)
{
    int lifeline[2], signals = open_signals();
    pid_t parent, child;
    if (signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) || pipe2(lifeline, O_CLOEXEC))
        return -1;
    child = fork();
    if (child < 0)
        return -1;
    if (child) {
        close(lifeline[0]);
        front(job, child, signals, lifeline[1]);
    }
    close(lifeline[1]);
    close(signals);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* is not inherited by fork */
    parent = getpid();
    child = fork();
    if (child > 0)
        guard(job, child, lifeline[0]);
    if (child < 0) {
        fprintf(stderr, "weft run: cannot start: %s\n", strerror(errno));
        _exit(126);
    }
    follow(parent);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)fcntl(lifeline[0], F_SETFL, O_NONBLOCK);
    return lifeline[0];
}
