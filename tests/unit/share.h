/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that share a protection domain: their sockets, and what they send to each other. Every
 * wait ends after TEST_LIMIT_NS. */
#ifndef TEST_UNIT_SHARE_H
#define TEST_UNIT_SHARE_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "contract/support.h"
#include "transport/rdma/hca_share.h"

/* Addresses of client [n]. */
#define SHARE_WINDOW (UINT64_C(1) << 36)
static inline uint64_t share_window(unsigned n)
{
    return (n + 1) * SHARE_WINDOW;
}

/* Sends [len] bytes, and the descriptor [fd] unless it is -1. */
static inline bool share_send(int sock, const void *bytes, size_t len, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof fd)];
    } control = {.room = {0}};
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof control;
        control.align = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
    }
    return sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Receives [len] bytes, and a descriptor if *fd is to be set. Returns false at the end of the
 * connection, and if nothing comes. */
static inline bool share_recv(int sock, void *bytes, size_t len, int *fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof *fd)];
    } control;
    struct iovec iov = {bytes, len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    if (poll(&p, 1, (int)(TEST_LIMIT_NS / 1000000)) != 1 ||
        recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)len)
        return false;
    if (fd && !CMSG_FIRSTHDR(&msg))
        return false;
    if (fd)
        memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof *fd);
    return true;
}

/* A child process, and the socket to it. */
struct share_process {
    pid_t pid;
    int sock;
};

/* Runs [run] in a child, which exits with what it returns. */
static inline bool share_start(struct share_process *p, int (*run)(int sock, unsigned n),
                               unsigned n)
{
    int ends[2];
    *p = (struct share_process){-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return false;
    p->pid = fork();
    if (!p->pid) {
        close(ends[0]);
        _exit(run(ends[1], n));
    }
    close(ends[1]);
    p->sock = ends[0];
    return p->pid > 0;
}

/* Returns how the child ended: its exit code, or 256 and more for a signal. A child whose parent
 * is gone ends at the end of its socket. */
static inline int share_wait(struct share_process *p)
{
    int status = 0;
    close(p->sock);
    if (waitpid(p->pid, &status, 0) != p->pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}
#define SHARE_KILLED (256 + SIGKILL)

/* In the child: makes a registrar of what the parent sends. */
static inline struct wf_hca_registrar *share_adopt(int sock)
{
    struct wf_hca_registrar *r;
    struct wf_hca_share share;
    int fd;
    if (!share_recv(sock, &share, sizeof share, &fd))
        return NULL;
    return wf_hca_adopt(&share, fd, &r) == WEFT_OK ? r : NULL;
}

#endif
