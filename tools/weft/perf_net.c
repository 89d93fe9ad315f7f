/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf_machine.h"

#define CONNECT_MS 10000
#define HUGE_PAGE ((size_t)2 << 20)
/* Attempts without success, about 0.5 ms, before the clock is read and the core is yielded. */
#define TURNS 2000u

/* ---- connecting ---- */

/* Close [fd], keep errno, return -1. */
static int failed(int fd)
{
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return -1;
}

const uint8_t wf_net_loopback[WF_NET_IP] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};

/* IPv4 gets IPv4 sockets: a machine may have no IPv6. */
static socklen_t address_of(const uint8_t ip[WF_NET_IP], uint16_t port, struct sockaddr_storage *to)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&six.sin6_addr, ip, WF_NET_IP);
    memcpy(&four.sin_addr, ip + sizeof mapped, 4);
    memset(to, 0, sizeof *to);
    if (memcmp(ip, mapped, sizeof mapped) == 0) {
        memcpy(to, &four, sizeof four);
        return sizeof four;
    }
    memcpy(to, &six, sizeof six);
    return sizeof six;
}

static uint16_t port_of(const struct sockaddr_storage *at)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    memcpy(&four, at, sizeof four);
    memcpy(&six, at, sizeof six);
    return ntohs(at->ss_family == AF_INET ? four.sin_port : six.sin6_port);
}

static int open_socket(const struct sockaddr_storage *at)
{
    return socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int wf_net_listen(const uint8_t ip[WF_NET_IP], uint16_t *port)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(ip, 0, &at);
    int fd = open_socket(&at);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) || listen(fd, 1) ||
        getsockname(fd, (struct sockaddr *)&at, &len))
        return failed(fd);
    *port = port_of(&at);
    return fd;
}

static int nodelay(int fd)
{
    int one = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) ? failed(fd) : fd;
}

int wf_net_accept(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    int n = poll(&p, 1, CONNECT_MS), fd = -1;
    if (n > 0)
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    else if (n == 0)
        errno = ETIMEDOUT;
    if (fd < 0)
        return failed(listener);
    close(listener);
    return nodelay(fd);
}

/* The outcome of a connection that was begun. */
static int connected(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof(int);
    int error = ETIMEDOUT;
    if (poll(&p, 1, CONNECT_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    errno = error;
    return error ? failed(fd) : nodelay(fd);
}

int wf_net_connect(const uint8_t ip[WF_NET_IP], uint16_t port)
{
    struct sockaddr_storage to;
    socklen_t len = address_of(ip, port, &to);
    int fd = open_socket(&to);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&to, len) && errno != EINPROGRESS))
        return failed(fd);
    return connected(fd);
}

int wf_net_pair(int fds[2])
{
    uint16_t port = 0;
    int listener = wf_net_listen(wf_net_loopback, &port);
    if (listener < 0)
        return -1;
    fds[0] = wf_net_connect(wf_net_loopback, port);
    if (fds[0] < 0)
        return failed(listener);
    fds[1] = wf_net_accept(listener);
    return fds[1] < 0 ? failed(fds[0]) : 0;
}

/* ---- moving bytes, bounded ---- */

/* The slow path of a wait. -1: the wait is to end. */
static __attribute__((noinline, cold)) int look(struct wf_net *n, uint64_t *since_ns)
{
    uint64_t now = wf_perf_now_ns();
    if (*since_ns == 0)
        *since_ns = now;
    if (now - *since_ns > WF_MACHINE_PATIENCE_NS) {
        n->broken = true;
        return -1;
    }
    sched_yield(); /* the other side may need this core */
    return 0;
}

/* Send from or receive into [p] exactly [len] bytes, never sleeping. */
static int move(struct wf_net *n, bool sending, unsigned char *p, size_t len)
{
    uint64_t since_ns = 0;
    unsigned turns = 0;
    while (len) {
        ssize_t k = sending ? send(n->fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : recv(n->fd, p, len, MSG_DONTWAIT);
        if (k > 0) {
            p += k;
            len -= (size_t)k;
            turns = 0;
            since_ns = 0;
        } else if (k == 0 || (errno != EAGAIN && errno != EINTR)) {
            n->broken = true; /* the other side closed, or died */
            return -1;
        } else if (++turns % TURNS == 0 && look(n, &since_ns)) {
            return -1;
        }
    }
    return 0;
}

/* Wait for the other side. */
static int sync_both(struct wf_net *n)
{
    unsigned char byte = 1;
    return n->broken || move(n, true, &byte, 1) || move(n, false, &byte, 1) ? -1 : 0;
}

int wf_net_init(struct wf_net *n, int side, int fd, size_t len_max)
{
    size_t room = (len_max + HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE; /* a word at least */
    *n = (struct wf_net){.side = side, .fd = fd, .len_max = room};
    n->samples = malloc(sizeof *n->samples);
    n->buf = aligned_alloc(HUGE_PAGE, room);
    if (!n->samples || !n->buf)
        return -1;
    (void)madvise(n->buf, room, MADV_HUGEPAGE); /* a hint; the tests' memory has it too */
    memset(n->buf, 0x5a, room);
    return 0;
}

void wf_net_fini(struct wf_net *n)
{
    if (n->fd >= 0)
        close(n->fd);
    free(n->buf);
    free(n->samples);
    *n = (struct wf_net){.fd = -1, .broken = true};
}

int wf_net_round(struct wf_net *n, size_t there, size_t back, uint64_t iters, double *median_ns)
{
    double p99;
    if (there > n->len_max || back > n->len_max || sync_both(n))
        return -1;
    wf_perf_samples_start(n->samples);
    for (uint64_t i = 0; i < iters; i++) {
        if (n->side && move(n, false, n->buf, there))
            return -1;
        if (move(n, true, n->buf, n->side ? back : there))
            return -1;
        wf_perf_samples_add(n->samples);
        if (!n->side && move(n, false, n->buf, back))
            return -1;
    }
    wf_perf_samples_end(n->samples, 1, median_ns, &p99);
    return sync_both(n);
}

int wf_net_stream(struct wf_net *n, size_t len, uint64_t iters, double *gbs)
{
    uint64_t start;
    if (len > n->len_max || sync_both(n))
        return -1;
    start = wf_perf_now_ns();
    for (uint64_t i = 0; i < iters; i++)
        if (move(n, n->side == 0, n->buf, len))
            return -1;
    if (sync_both(n)) /* the last byte was received */
        return -1;
    *gbs = (double)len * (double)iters / (double)(wf_perf_now_ns() - start);
    return 0;
}
