/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TERM_SECONDS 5 /* from SIGTERM to SIGKILL */
#define LOOK_MS 200    /* between looks at [stopped]: a signal may arrive just before poll(2) */

static atomic_bool stopped;

void wf_child_stop(void)
{
    atomic_store(&stopped, true);
}

bool wf_child_stopped(void)
{
    return atomic_load(&stopped);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* In the child: ends with exec or _exit. */
__attribute__((noreturn)) static void become(char *const argv[], int cpu, const char *const env[],
                                             int out, pid_t parent)
{
    cpu_set_t set;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    CPU_ZERO(&set);
    if (cpu >= 0) {
        CPU_SET((size_t)cpu, &set);
        (void)sched_setaffinity(0, sizeof set, &set);
    }
    for (; env && *env; env++)
        putenv((char *)(uintptr_t)*env);
    if (dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0)
        execvp(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int wf_child_start(struct wf_child *c, char *const argv[], int cpu, const char *const env[])
{
    int ends[2];
    pid_t self = getpid();
    c->len = 0;
    c->text[0] = 0;
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0)
        become(argv, cpu, env, ends[1], self);
    close(ends[1]);
    c->fd = ends[0];
    if (c->pid < 0)
        close(ends[0]);
    return c->pid < 0 ? -1 : 0;
}

/* Append to the output kept, which is its end. */
static void keep(struct wf_child *c, const char *data, size_t n)
{
    if (n >= sizeof c->text) {
        data += n - (sizeof c->text - 1);
        n = sizeof c->text - 1;
    }
    if (c->len + n >= sizeof c->text) {
        size_t drop = c->len + n - (sizeof c->text - 1);
        memmove(c->text, c->text + drop, c->len - drop);
        c->len -= drop;
    }
    memcpy(c->text + c->len, data, n);
    c->len += n;
    c->text[c->len] = 0;
}

/* Read until the child closes its output: 0, or -1 if it did not in time. [stoppable]: or if
 * wf_child_stop was called. */
static int drain(struct wf_child *c, uint64_t until_ms, bool stoppable)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    char data[4096];
    for (;;) {
        uint64_t now = now_ms();
        ssize_t n;
        if (now >= until_ms || (stoppable && wf_child_stopped()))
            return -1;
        n = poll(&p, 1, until_ms - now < LOOK_MS ? (int)(until_ms - now) : LOOK_MS);
        if (n <= 0)
            continue;
        n = read(c->fd, data, sizeof data);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        keep(c, data, n > 0 ? (size_t)n : 0);
    }
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int wf_child_finish(struct wf_child *c, unsigned seconds)
{
    int status = 0, late = drain(c, now_ms() + seconds * 1000u, true);
    if (late) {
        kill(c->pid, SIGTERM);
        if (drain(c, now_ms() + TERM_SECONDS * 1000u, false))
            kill(c->pid, SIGKILL);
    }
    close(c->fd);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return late ? -1 : code_of(status);
}

bool wf_child_ended(const struct wf_child *c)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid;
}

const char *wf_child_last_line(struct wf_child *c)
{
    char *line;
    while (c->len && (c->text[c->len - 1] == '\n' || c->text[c->len - 1] == ' '))
        c->text[--c->len] = 0;
    line = strrchr(c->text, '\n');
    return line ? line + 1 : c->text;
}

bool wf_child_exists(const char *name)
{
    char script[128], *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, script, NULL};
    static struct wf_child c;
    snprintf(script, sizeof script, "command -v %s", name);
    return !wf_child_start(&c, argv, -1, NULL) && wf_child_finish(&c, 10) == 0;
}
