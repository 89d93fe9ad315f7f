/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/seqpacket.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

int wf_seqpacket_send(int sock, const void *bytes, size_t len, const int *fds, int nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(WF_SEQPACKET_FDS * sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds) {
        struct cmsghdr *c = &control.align;
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
    }
    return sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* Store the first [most] received descriptors in [fds], and close the others. wf_fd_high moves a
 * descriptor below 3 to a higher number. If it cannot, because no number is free, the entry becomes
 * -1, and *lost is set. Returns how many descriptors were received. */
static int take_fds(struct msghdr *msg, int *fds, int most, bool *lost)
{
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t count;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (n < most)
                *lost |= (fds[n] = wf_fd_high(fd)) < 0;
            else
                close(fd);
            n++;
        }
    }
    return n;
}

void wf_seqpacket_drop(const int *fds, int most, int nfds)
{
    for (int i = 0; i < nfds && i < most; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

ssize_t wf_seqpacket_recv(int sock, void *bytes, size_t room, int *fds, int most, int *nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(2 * WF_SEQPACKET_FDS * sizeof(int))];
    } control;
    struct iovec iov = {bytes, room};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    bool lost = false;
    int got;
    if (n < 0)
        return -1;
    got = take_fds(&msg, fds, most, &lost);
    if (!n && !got)
        return 0; /* end of the connection: no packet is empty */
    if (!n || (msg.msg_flags & MSG_TRUNC)) {
        wf_seqpacket_drop(fds, most, got);
        errno = EPROTO;
        return -1;
    }
    /* The kernel sets MSG_CTRUNC if it could not pass all descriptors (recvmsg(2)). Either this
     * process has none left, or the message has more descriptors than any packet. */
    lost |= (msg.msg_flags & MSG_CTRUNC) && got < most;
    if (lost)
        wf_seqpacket_drop(fds, most, got);
    *nfds = lost ? WF_SEQPACKET_LOST : got;
    return n;
}
