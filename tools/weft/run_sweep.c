/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds processes that ranks started. (Ranks themselves are children of the launcher, and the
 * kernel kills them with it: run_spawn.c.) Such a process descends from the searching process,
 * however it detached itself, because that one is a subreaper: orphans become its children.
 * Besides, processes with the job's name in their environment belong to the job: a nested launcher
 * may have its ranks started by a server of its own. */
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

/* Has the environment of [pid] the entry [want]? Only this user's processes can be read (all, by
 * root), so no other user's process is signalled. */
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

/* If a parent ends during this walk, the answer may be wrong; the next sweep asks again. */
static bool is_descendant(int pid)
{
    int self = (int)getpid(), parent = parent_of(pid), up = parent;
    for (int depth = 0; up > 1 && up != self && depth < 1000; depth++)
        up = parent_of(up);
    return up == self && parent_of(pid) == parent;
}

/* Opens the descriptor before it checks, so that the signal cannot reach a later process with the
 * same pid. */
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

/* Reap all ended children. True: no child is left. A descendant of this process is its child or has
 * an ancestor, dead or alive, among its children: so "no child" from the kernel means no
 * descendants, without a race. */
static bool is_alone(void)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    return pid < 0 && errno == ECHILD;
}

/* Processes may start others, and a sweep misses one whose parent changes meanwhile: repeat until
 * there are none. */
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

/* Ranks are reaped by run_exit.c. Until then a rank that has ended hides later children. */
void wf_sweep_reap(void)
{
    siginfo_t info = {0};
    while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid &&
           !wf_exit_is_rank(info.si_pid)) {
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}
