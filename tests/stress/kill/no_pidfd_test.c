/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes to which the system call pidfd_open is denied, as valgrind and some containers do it:
 * the death of a peer in shared memory is noticed. Each case's comment names what makes it fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/weft.h>

#include "proc.h"

enum { AM_HERE = 1 };

/* Returns false if this kernel has no filters. */
static bool deny(unsigned err)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* ---- the process that is killed ---- */

struct hello {
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
    pid_t keeper;
};

static void on_here(const struct weft_am *am)
{
    proc_say(*(int *)am->arg, "", 1);
}

/* A copy of this process that keeps its descriptors: no handler of a fork runs. */
static pid_t keeper_start(void)
{
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(pid >= 0);
    if (pid)
        return (pid_t)pid;
    for (;;)
        pause();
}

static void victim_main(int sock, void *arg)
{
    struct hello h = {.len = sizeof h.address};
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    (void)arg;
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(ep, AM_HERE, on_here, &sock), WEFT_OK);
    CHECK_STATUS(weft_ep_address(ep, h.address, &h.len), WEFT_OK);
    proc_say(sock, &h, offsetof(struct hello, keeper));
    CHECK(weft_ep_wait(ep, -1) >= 0); /* the message: both sides are connected */
    h.keeper = keeper_start();
    proc_say(sock, &h.keeper, sizeof h.keeper);
    for (;;)
        CHECK(weft_ep_wait(ep, -1) >= 0);
}

/* ---- the other one ---- */

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    *(enum weft_status *)arg = why;
}

static struct weft_peer *peer_open(struct weft_ep *ep, const struct hello *h)
{
    struct weft_peer *peer;
    CHECK_STATUS(weft_peer_open(ep, h->address, h->len, &peer), WEFT_OK);
    CHECK_STATUS(weft_am_request(peer, AM_HERE, NULL, 0, NULL, 0, 0), WEFT_OK);
    return peer;
}

static void killed(unsigned err)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    uint64_t until = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    enum weft_status down = WEFT_OK;
    struct proc victim;
    struct hello h;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    char byte;
    if (!deny(err))
        return;
    params.peer_down = on_down;
    params.arg = &down;
    victim = proc_start(victim_main, NULL);
    CHECK(proc_hear(victim.sock, &h, sizeof h) == offsetof(struct hello, keeper));
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, &params, &ep), WEFT_OK);
    peer = peer_open(ep, &h);
    CHECK(proc_hear(victim.sock, &byte, 1) == 1);
    CHECK(proc_hear(victim.sock, &h.keeper, sizeof h.keeper) == sizeof h.keeper);
    CHECK(proc_kill(&victim, SIGKILL) == SIGKILL);
    while (down == WEFT_OK) {
        CHECK(proc_now_ns() < until);
        CHECK(weft_ep_wait(ep, 100000000) >= 0);
    }
    CHECK_STATUS(down, WEFT_EPEER);
    CHECK(!kill(h.keeper, SIGKILL));
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
}

/* Fails when: without pidfd_open(2), a peer of the node cannot be opened, or its death is noticed
 * by the end of its socket only, which other processes may keep open. */
static void lacking(void)
{
    killed(ENOSYS);
}

static void denied(void)
{
    killed(EPERM);
}

int main(void)
{
    return proc_case("lacking", lacking) | proc_case("denied", denied);
}
