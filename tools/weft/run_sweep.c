/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks are children of the launcher and die with it by the kernel's hand
 * (run_spawn.c). What they started themselves is found here. It descends from
 * the process that looks, however it detached itself, because that one is a
 * subreaper: who loses its parent becomes its child. Besides, whoever carries
 * the job's name in its environment belongs to it: the ranks of a nested
 * launcher that asked a server of its own to start them. */
#define _GNU_SOURCE
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The parent of [pid]; 0 if there is none, or [pid] has ended. */
static int parent_of(int pid)
{
    char path[64], text[1024], state;
    const char *at;
    size_t n;
    int parent;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    at = strrchr(text, ')'); /* the command's name may hold anything */
    if (!at || sscanf(at, ") %c %d", &state, &parent) != 2 || state == 'Z' || state == 'X')
        return 0;
    return parent;
}

/* A parent that ends on the way up changes the pid's own: then this is no news
 * of it, and the next sweep looks again. */
static bool is_descendant(int pid)
{
    int self = (int)getpid(), parent = parent_of(pid), up = parent;
    for (int depth = 0; up > 1 && up != self && depth < 1000; depth++)
        up = parent_of(up);
    return up == self && parent_of(pid) == parent;
}

/* The descriptor is taken before the look, so that the signal cannot go to a
 * later process with the same pid. */
static bool signal_member(int pid, const char *want, int signal)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool member = fd >= 0 && (is_descendant(pid) || has_entry(pid, want));
    if (member)
        member = !syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
    if (fd >= 0)
        close(fd);
    return member;
}

static unsigned sweep(const char *job, int signal, bool ranks)
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
        if (pid > 0 && pid != getpid() && (ranks || !wf_exit_is_rank(pid)))
            count += signal_member(pid, want, signal);
    }
    closedir(proc);
    return count;
}

unsigned wf_sweep(const char *job, int signal)
{
    return sweep(job, signal, true);
}

unsigned wf_sweep_others(const char *job, int signal)
{
    return sweep(job, signal, false);
}

/* Reap all that can be. Is there no child left? Whoever descends from this
 * process has an ancestor among its children, dead or alive, until it is one
 * itself: so the kernel's "no child" is the one answer that no race blurs. */
static bool is_alone(void)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    return pid < 0 && errno == ECHILD;
}

/* Members may be starting others, and a look misses who changes its parent
 * meanwhile: look until there is nobody. */
void wf_sweep_all(const char *job)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int tries = 0; tries < 500; tries++) {
        unsigned found = wf_sweep(job, SIGKILL);
        if (is_alone() && !found)
            return;
        nanosleep(&pause, NULL);
    }
}

/* A rank is reaped by who judges it (run_exit.c). One that has ended hides
 * those behind it until then. */
void wf_sweep_reap(void)
{
    siginfo_t info = {0};
    while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid &&
           !wf_exit_is_rank(info.si_pid)) {
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}
