/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/packet.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

static const int8_t fds_of[WF_PACKET_TYPES] = {[WF_PACKET_WELCOME] = 2,
                                               [WF_PACKET_RING] = 3,
                                               [WF_PACKET_RING_OK] = 1,
                                               [WF_PACKET_SLAB_OK] = 1};

static int ring_ok(const struct wf_packet *p)
{
    struct wf_address a;
    struct wf_contact none;
    return wf_address_parse(&p->u.ring.from, sizeof p->u.ring.from, &a, &none) == WEFT_OK &&
           wf_shm_geometry_ok(&p->u.ring.geometry);
}

static int greeting_ok(const struct wf_packet_greeting *g)
{
    return g->tid <= INT32_MAX && !g->tid == !g->mark && !g->zero;
}

int wf_packet_parse(const void *buf, size_t len, int nfds, struct wf_packet *out)
{
    struct wf_packet p;
    if (len != sizeof p)
        return -1;
    memcpy(&p, buf, sizeof p);
    if (p.magic != WF_PACKET_MAGIC || p.version != WF_PACKET_VERSION || p.size != sizeof p ||
        p.type == 0 || p.type >= WF_PACKET_TYPES)
        return -1;
    if (nfds != fds_of[p.type] && (nfds != WF_PACKET_LOST || !fds_of[p.type]))
        return -1;
    if (p.type == WF_PACKET_RING && !ring_ok(&p))
        return -1;
    if ((p.type == WF_PACKET_RING_NO && p.u.ring_no.status >= 0) ||
        (p.type == WF_PACKET_SLAB_NO && p.u.slab.status >= 0))
        return -1;
    if (p.type == WF_PACKET_RING_OK &&
        (p.u.ring_ok.bell >= WF_SHM_BELLS || p.u.ring_ok.bit >= WF_SHM_BELL_BITS))
        return -1;
    if (p.type == WF_PACKET_HELLO && (!p.u.hello.pid || p.u.hello.pid > INT32_MAX))
        return -1;
    if ((p.type == WF_PACKET_HELLO || p.type == WF_PACKET_WELCOME) && !greeting_ok(&p.u.greeting))
        return -1;
    if (p.type == WF_PACKET_SLAB_OK && (!p.u.slab.size || p.u.slab.size > SIZE_MAX / 2))
        return -1;
    *out = p;
    return 0;
}

int wf_packet_send(int sock, struct wf_packet *packet, enum wf_packet_type type, const int *fds,
                   int nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(WF_PACKET_FDS * sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {packet, sizeof *packet};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    packet->magic = WF_PACKET_MAGIC;
    packet->version = WF_PACKET_VERSION;
    packet->type = (uint8_t)type;
    packet->size = sizeof *packet;
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

/* Store the first WF_PACKET_FDS received descriptors in [fds], and close the others. wf_fd_high
 * moves a descriptor below 3 to a higher number. If it cannot, because no number is free, the entry
 * becomes -1, and *lost is set. Returns how many descriptors were received. */
static int take_fds(struct msghdr *msg, int fds[WF_PACKET_FDS], bool *lost)
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
            if (n < WF_PACKET_FDS)
                *lost |= (fds[n] = wf_fd_high(fd)) < 0;
            else
                close(fd);
            n++;
        }
    }
    return n;
}

int wf_packet_recv(int sock, struct wf_packet *packet, int fds[WF_PACKET_FDS], int *nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(2 * WF_PACKET_FDS * sizeof(int))];
    } control;
    struct wf_packet raw;
    struct iovec iov = {&raw, sizeof raw};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    bool lost = false;
    int got;
    if (n < 0)
        return -1;
    got = take_fds(&msg, fds, &lost);
    if (!n && !got)
        return 0; /* end of the connection: no packet is empty */
    /* The kernel sets MSG_CTRUNC if it could not pass all descriptors (recvmsg(2)). Either this
     * process has none left, or the message has more descriptors than any packet. */
    lost |= (msg.msg_flags & MSG_CTRUNC) && got < WF_PACKET_FDS;
    *nfds = lost ? WF_PACKET_LOST : got;
    if (!(msg.msg_flags & MSG_TRUNC) && !wf_packet_parse(&raw, (size_t)n, *nfds, packet)) {
        for (int i = 0; lost && i < got && i < WF_PACKET_FDS; i++)
            close(fds[i]);
        return 1;
    }
    for (int i = 0; i < got && i < WF_PACKET_FDS; i++)
        close(fds[i]);
    errno = EPROTO;
    return -1;
}
