/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks are children of `weft run` and die with it by the kernel's hand
 * (run_spawn.c). What they started themselves, a shell's child for one, is
 * found here: by the job's name in its environment. */
#define _GNU_SOURCE
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Does the environment of [pid] hold the entry [want]? Only this user's (and
 * root's) files can be read, so nobody else's process is ever hit. */
static bool has_entry(int pid, const char *want)
{
    char path[64], *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && getdelim(&line, &room, 0, f) > 0)
        found = !strcmp(line, want);
    free(line);
    fclose(f);
    return found;
}

/* The descriptor is taken before the look, so that the signal cannot go to a
 * later process with the same pid. */
static bool signal_member(int pid, const char *want, int signal)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool member = fd >= 0 && has_entry(pid, want);
    if (member)
        member = !syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
    if (fd >= 0)
        close(fd);
    return member;
}

unsigned wf_sweep(const char *job, int signal)
{
    char want[512];
    DIR *proc = opendir("/proc");
    struct dirent *d;
    unsigned count = 0;
    if (!proc)
        return 0;
    snprintf(want, sizeof want, "PMIX_NAMESPACE=%s", job);
    while ((d = readdir(proc))) {
        int pid = atoi(d->d_name);
        if (pid > 0 && pid != getpid())
            count += signal_member(pid, want, signal);
    }
    closedir(proc);
    return count;
}

/* Members may be starting others: look until a look finds none. */
void wf_sweep_all(const char *job)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int tries = 0; tries < 500 && wf_sweep(job, SIGKILL); tries++)
        nanosleep(&pause, NULL);
}

/* In the guard: hold nothing but the pipe, whose other end only `weft run` has
 * open. A terminal's signals and SIGTERM are not for this process. */
__attribute__((noreturn)) static void guard(const char *job, int lifeline)
{
    sigset_t all;
    char byte;
    ssize_t n;
    setsid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "weft-guard");
    if (lifeline != STDIN_FILENO)
        dup2(lifeline, STDIN_FILENO);
    syscall(SYS_close_range, STDIN_FILENO + 1, INT_MAX, 0);
    do
        n = read(STDIN_FILENO, &byte, 1);
    while (n < 0 && errno == EINTR);
    wf_sweep_all(job);
    _exit(0);
}

static pid_t guard_pid;

int wf_sweep_guard(const char *job)
{
    int lifeline[2];
    if (pipe2(lifeline, O_CLOEXEC))
        return -1;
    guard_pid = fork();
    if (!guard_pid) {
        close(lifeline[1]);
        guard(job, lifeline[0]);
    }
    close(lifeline[0]);
    if (guard_pid < 0)
        close(lifeline[1]);
    return guard_pid < 0 ? -1 : 0;
}

void wf_sweep_dismiss(void)
{
    /* Nobody else reaps it while it lives, so the pid is still its own. */
    if (guard_pid > 0 && !kill(guard_pid, SIGKILL))
        waitpid(guard_pid, NULL, 0);
}
