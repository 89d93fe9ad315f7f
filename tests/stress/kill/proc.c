/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "proc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void proc_fail(const char *file, int line, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dprintf(STDERR_FILENO, "%s:%d: process %d: %s\n", file, line, (int)getpid(), text);
    _exit(1);
}

uint64_t proc_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A child: ends with its parent, and at a time limit. */
static void child_begin(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent && getppid() != 0) /* 0: it is in another PID namespace */
        _exit(1);
    alarm(PROC_ALARM_S);
}

struct proc proc_start(void (*fn)(int sock, void *arg), void *arg)
{
    struct proc p;
    pid_t parent = getpid();
    int socks[2];
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks));
    fflush(NULL);
    p.pid = fork();
    p.sock = socks[0];
    CHECK(p.pid >= 0);
    if (!p.pid) {
        child_begin(parent);
        close(socks[0]);
        fn(socks[1], arg);
        _exit(0);
    }
    close(socks[1]);
    return p;
}

static int wait_end(struct proc *p)
{
    int status;
    CHECK(waitpid(p->pid, &status, 0) == p->pid);
    close(p->sock);
    p->pid = -1;
    return status;
}

void proc_join(struct proc *p)
{
    int status = wait_end(p);
    if (status)
        proc_fail(__FILE__, __LINE__, "a child ended with status 0x%x", (unsigned)status);
}

int proc_kill(struct proc *p, int signal)
{
    CHECK(!kill(p->pid, signal));
    return wait_end(p);
}

void proc_await_stop(struct proc *p)
{
    siginfo_t info;
    CHECK(!waitid(P_PID, (id_t)p->pid, &info, WSTOPPED | WEXITED));
    CHECK(info.si_code == CLD_STOPPED);
}

void proc_stop(struct proc *p)
{
    CHECK(!kill(p->pid, SIGSTOP));
    proc_await_stop(p);
}

void proc_continue(struct proc *p)
{
    CHECK(!kill(p->pid, SIGCONT));
}

void proc_say(int sock, const void *data, size_t len)
{
    CHECK(send(sock, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

size_t proc_hear(int sock, void *data, size_t room)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    ssize_t n;
    CHECK(poll(&p, 1, PROC_WAIT_MS) == 1);
    n = recv(sock, data, room, 0);
    CHECK(n >= 0);
    return (size_t)n;
}

int proc_case(const char *name, void (*fn)(void))
{
    pid_t parent = getpid(), pid;
    uint64_t start = proc_now_ns();
    int status = -1;
    fflush(NULL);
    pid = fork();
    if (!pid) {
        child_begin(parent);
        fn();
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = -1;
    printf("%s %s (%.0f ms)\n", status ? "FAILED" : "held", name,
           (double)(proc_now_ns() - start) / 1e6);
    fflush(stdout);
    return status != 0;
}
