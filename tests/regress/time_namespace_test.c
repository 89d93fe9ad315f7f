/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: the kernel shifts the start times that a process reads by the offset of the
 * reader's time namespace. A process of another one was taken for one that had ended and whose pid
 * was another's now. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/msg.h>

#include "../stress/kill/proc.h"
#include "base/process.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define SECOND INT64_C(1000000000)
#define LONG ((size_t)1 << 20)

struct note {
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
};

static const char *offset;

static void talk(int sock)
{
    unsigned char *out = calloc(1, LONG), *in = calloc(1, LONG);
    struct weft_op o = {0}, i = {0};
    struct weft_peer *peer;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct note self = {.len = sizeof self.address}, to;
    enum weft_status got, sent;
    CHECK(out && in);
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    CHECK_STATUS(weft_ep_address(ep, self.address, &self.len), WEFT_OK);
    proc_say(sock, &self, sizeof self);
    CHECK(proc_hear(sock, &to, sizeof to) == sizeof to);
    CHECK_STATUS(weft_peer_open(ep, to.address, to.len, &peer), WEFT_OK);
    memset(out, 9, LONG);
    got = weft_msg_recv(ep, peer, 1, WEFT_TAG_FULL, in, LONG, &i);
    sent = weft_msg_send(peer, 1, out, LONG, &o);
    CHECK_STATUS(got == WEFT_PENDING ? weft_op_wait(ep, &i, 10 * SECOND) : got, WEFT_OK);
    CHECK_STATUS(sent == WEFT_PENDING ? weft_op_wait(ep, &o, 10 * SECOND) : sent, WEFT_OK);
    CHECK(in[0] == 9 && in[LONG - 1] == 9);
    /* Not gone before the other side is done. */
    proc_say(sock, "", 1);
    CHECK(proc_hear(sock, in, 1) == 1);
}

/* unshare(2): the namespace is that of children only. */
static void elsewhere_main(int sock, void *arg)
{
    int status, fd;
    uint64_t start;
    pid_t pid;
    (void)arg;
    CHECK(!unshare(CLONE_NEWTIME));
    CHECK((fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)) >= 0);
    CHECK(write(fd, offset, strlen(offset)) == (ssize_t)strlen(offset));
    close(fd);
    start = wf_process_start(getpid());
    pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        alarm(PROC_ALARM_S);
        CHECK(wf_process_is_start(wf_process_start(getppid()), start));
        CHECK(!wf_process_is_start(wf_process_start(getppid()), start + 3));
        talk(sock);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void other_time(void)
{
    struct proc p = proc_start(elsewhere_main, NULL);
    talk(p.sock);
    proc_join(&p);
}

static void whole(void)
{
    offset = "boottime 100000 0\n";
    other_time();
}

static void fraction(void)
{
    offset = "boottime 100000 123456789\n";
    other_time();
}

/* Back in time as far as the uptime allows. */
static void back(void)
{
    struct timespec up;
    static char text[64];
    CHECK(!clock_gettime(CLOCK_BOOTTIME, &up));
    snprintf(text, sizeof text, "boottime -%lld 987654321\n", (long long)up.tv_sec / 2 + 1);
    offset = text;
    other_time();
}

int main(void)
{
    int failed = 0;
    pid_t pid = fork();
    int status;
    if (!pid)
        _exit(unshare(CLONE_NEWTIME) ? 77 : 0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 2;
    if (status) {
        printf("a time namespace needs root and Linux 5.6\n");
        return 77;
    }
    if (setenv("WEFT_TRANSPORTS", "loop,shm", 1))
        return 2;
    failed += proc_case("whole", whole);
    failed += proc_case("fraction", fraction);
    failed += proc_case("back", back);
    return failed ? 1 : 0;
}
