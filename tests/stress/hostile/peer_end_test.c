/* SPDX-License-Identifier: BSD-3-Clause */
/* The ends of a process that are not quite an end: it becomes another program while its pid lives
 * on; a child of it holds its sockets open; another process has its pid. Each is reported as its
 * death within a second.
 *
 * What makes it fail: looking at the socket alone (held_*: tried by watching no
 * pidfd), at the pidfd alone (exec_*), or at the pid alone (pid_*: tried by not
 * comparing start times). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "../kill/proc.h"
#include "transport/address.h"

#define SECOND UINT64_C(1000000000)
#define AM_HELLO 1

/* Which sides sent messages before the end. */
enum talk { TALK_OUT = 1, TALK_IN = 2 };

struct end {
    int talk;
    bool exec; /* else: a child holds on, and the process is killed */
};

struct note {
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
};

struct self {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct note note;
    unsigned heard;
    enum weft_status down;
};

static void on_hello(const struct weft_am *am)
{
    ((struct self *)am->arg)->heard++;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep, (void)peer;
    ((struct self *)arg)->down = why;
}

static void self_open(struct self *s)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    *s = (struct self){.note.len = sizeof s->note.address};
    params.peer_down = on_down;
    params.arg = s;
    CHECK_STATUS(weft_ctx_open(NULL, &s->ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s->ctx, &params, &s->ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(s->ep, AM_HELLO, on_hello, s), WEFT_OK);
    CHECK_STATUS(weft_ep_address(s->ep, s->note.address, &s->note.len), WEFT_OK);
}

static void await_hello(struct self *s)
{
    while (!s->heard)
        CHECK(weft_ep_wait(s->ep, (int64_t)(10 * SECOND)) > 0);
}

static void say_hello(struct weft_peer *peer)
{
    CHECK_STATUS(weft_am_request(peer, AM_HELLO, NULL, 0, NULL, 0, 0), WEFT_OK);
}

/* Inherits every descriptor, and lives until the test kills its group. */
static void hold_on(int sock)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        alarm(PROC_ALARM_S);
        for (;;)
            pause();
    }
    proc_say(sock, &pid, sizeof pid);
}

static void ending_main(int sock, void *arg)
{
    const struct end *e = arg;
    struct weft_peer *peer;
    struct self s;
    struct note to;
    self_open(&s);
    proc_say(sock, &s.note, sizeof s.note);
    CHECK(proc_hear(sock, &to, sizeof to) == sizeof to);
    CHECK_STATUS(weft_peer_open(s.ep, to.address, to.len, &peer), WEFT_OK);
    if (e->talk & TALK_OUT)
        await_hello(&s);
    if (e->talk & TALK_IN)
        say_hello(peer);
    if (!e->exec)
        hold_on(sock);
    proc_say(sock, "", 1);
    CHECK(proc_hear(sock, &to, sizeof to) == 1);
    if (e->exec)
        execl("/bin/sh", "sh", "-c", "kill -STOP $$; exec sleep 30", (char *)NULL);
    for (;;)
        pause();
}

/* The callback and the call's status, soon: other reports take WEFT_PEER_TIMEOUT. */
static void expect_death(struct self *s, struct weft_peer *peer)
{
    uint64_t start = proc_now_ns();
    while (!s->down) {
        CHECK(weft_ep_wait(s->ep, (int64_t)SECOND) >= 0);
        CHECK(proc_now_ns() - start < 5 * SECOND);
    }
    CHECK_STATUS(s->down, WEFT_EPEER);
    CHECK_STATUS(weft_peer_status(peer), WEFT_EPEER);
    CHECK_STATUS(weft_am_request(peer, AM_HELLO, NULL, 0, NULL, 0, 0), WEFT_EPEER);
}

static void end_case(int talk, bool exec)
{
    struct end e = {talk, exec};
    struct proc p = proc_start(ending_main, &e);
    struct weft_peer *peer;
    struct self s;
    struct note to;
    pid_t child = 0;
    char byte;
    self_open(&s);
    CHECK(proc_hear(p.sock, &to, sizeof to) == sizeof to);
    proc_say(p.sock, &s.note, sizeof s.note);
    CHECK_STATUS(weft_peer_open(s.ep, to.address, to.len, &peer), WEFT_OK);
    if (talk & TALK_OUT)
        say_hello(peer);
    if (talk & TALK_IN)
        await_hello(&s);
    if (!exec)
        CHECK(proc_hear(p.sock, &child, sizeof child) == sizeof child);
    CHECK(proc_hear(p.sock, &byte, 1) == 1);
    CHECK_STATUS(weft_peer_status(peer), WEFT_OK);
    proc_say(p.sock, "", 1);
    if (exec)
        proc_await_stop(&p); /* the other program runs, under the same pid */
    else
        (void)proc_kill(&p, SIGKILL);
    expect_death(&s, peer);
    if (exec)
        (void)proc_kill(&p, SIGKILL);
    else
        CHECK(!kill(child, SIGKILL)); /* it did live on until now */
}

static void exec_out(void)
{
    end_case(TALK_OUT, true);
}

static void exec_in(void)
{
    end_case(TALK_IN, true);
}

static void exec_both(void)
{
    end_case(TALK_OUT | TALK_IN, true);
}

static void held_out(void)
{
    end_case(TALK_OUT, false);
}

static void held_in(void)
{
    end_case(TALK_IN, false);
}

static void held_both(void)
{
    end_case(TALK_OUT | TALK_IN, false);
}

/* Known by its address alone. */
static void held_silent(void)
{
    end_case(0, false);
}

/* ---- pids ---- */

static void sitting_main(int sock, void *arg)
{
    struct self s;
    char byte;
    (void)arg;
    self_open(&s);
    proc_say(sock, &s.note, sizeof s.note);
    (void)proc_hear(sock, &byte, 1);
    for (;;)
        CHECK(weft_ep_wait(s.ep, -1) >= 0);
}

static void expect_dead_address(const struct note *n)
{
    struct weft_peer *peer;
    struct self s;
    self_open(&s);
    CHECK_STATUS(weft_peer_open(s.ep, n->address, n->len, &peer), WEFT_OK);
    expect_death(&s, peer);
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(s.ctx), WEFT_OK);
}

/* As if the process had another start time, or were not there. */
static void pid_of_another(void)
{
    struct proc p = proc_start(sitting_main, NULL);
    struct wf_address a;
    struct wf_contact contact;
    struct note n;
    CHECK(proc_hear(p.sock, &n, sizeof n) == sizeof n);
    CHECK_STATUS(wf_address_parse(n.address, n.len, &a, &contact), WEFT_OK);
    a.process.start--;
    (void)wf_address_pack(&a, &contact, n.address);
    expect_dead_address(&n);
    a.process.start++;
    (void)wf_address_pack(&a, &contact, n.address);
    (void)proc_kill(&p, SIGKILL);
    expect_dead_address(&n);
}

/* In a PID namespace of its own the next pid can be chosen: proc(5),
 * /proc/sys/kernel/ns_last_pid. Both processes are of Weft. */
static void reuse_main(int sock, void *arg)
{
    struct note old, new;
    struct proc p, q;
    char text[16];
    int fd;
    pid_t pid;
    (void)sock, (void)arg;
    CHECK(getpid() == 1);
    /* /proc alone: in a chroot / is no mount. */
    CHECK(!mount(NULL, "/proc", NULL, MS_REC | MS_PRIVATE, NULL) &&
          !mount("proc", "/proc", "proc", 0, NULL));
    p = proc_start(sitting_main, NULL);
    CHECK(proc_hear(p.sock, &old, sizeof old) == sizeof old);
    pid = p.pid;
    (void)proc_kill(&p, SIGKILL);
    /* Start times count hundredths of a second: the two must differ. */
    for (uint64_t start = proc_now_ns(); proc_now_ns() - start < SECOND / 20;)
        sched_yield();
    CHECK((fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC)) >= 0);
    snprintf(text, sizeof text, "%d", (int)pid - 1);
    CHECK(write(fd, text, strlen(text)) > 0);
    q = proc_start(sitting_main, NULL);
    CHECK(q.pid == pid);
    CHECK(proc_hear(q.sock, &new, sizeof new) == sizeof new);
    expect_dead_address(&old);
    (void)proc_kill(&q, SIGKILL);
}

static void pid_reused(void)
{
    struct proc p;
    if (unshare(CLONE_NEWPID | CLONE_NEWNS)) {
        printf("pid_reused: skipped: a PID namespace needs root (%s)\n", strerror(errno));
        fflush(stdout);
        return;
    }
    p = proc_start(reuse_main, NULL);
    proc_join(&p);
}

int main(void)
{
    int failed = 0;
    failed += proc_case("exec_out", exec_out);
    failed += proc_case("exec_in", exec_in);
    failed += proc_case("exec_both", exec_both);
    failed += proc_case("held_out", held_out);
    failed += proc_case("held_in", held_in);
    failed += proc_case("held_both", held_both);
    failed += proc_case("held_silent", held_silent);
    failed += proc_case("pid_of_another", pid_of_another);
    failed += proc_case("pid_reused", pid_reused);
    return failed ? 1 : 0;
}
