/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/stream.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* The default of net.core.somaxconn since Linux 5.4. The kernel lowers a greater backlog to
 * somaxconn. */
#define BACKLOG 4096

static int stream_socket(int family, enum wf_stream_reuse reuse)
{
    int fd = wf_fd_high(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), one = 1;
    if (fd >= 0 && reuse == WF_STREAM_REUSE)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return fd;
}

/* Close [fd], and keep errno. Returns -1. */
static int failed(int fd)
{
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

int wf_stream_listen(const uint8_t ip[WF_NET_IP], uint16_t port, enum wf_stream_reuse reuse)
{
    union wf_sockaddr sa;
    socklen_t len = wf_ipaddr_to_sockaddr(ip, port, &sa);
    int fd = stream_socket(sa.sa.sa_family, reuse), one = 1;
    if (fd < 0)
        return -1;
    if ((sa.sa.sa_family != AF_INET6 ||
         !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one)) &&
        !bind(fd, &sa.sa, len) && !listen(fd, BACKLOG))
        return fd;
    return failed(fd);
}

uint16_t wf_stream_port(int fd)
{
    union wf_sockaddr sa;
    socklen_t len = sizeof sa;
    uint8_t ip[WF_NET_IP];
    uint16_t port = 0;
    if (!getsockname(fd, &sa.sa, &len))
        (void)wf_ipaddr_from_sockaddr(&sa.sa, ip, &port);
    return port;
}

int wf_stream_accept(int listener, uint8_t ip[WF_NET_IP], uint16_t *port)
{
    union wf_sockaddr sa;
    socklen_t len = sizeof sa;
    int fd = wf_fd_high(accept4(listener, &sa.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd >= 0 && !wf_ipaddr_from_sockaddr(&sa.sa, ip, port)) {
        memset(ip, 0, WF_NET_IP);
        *port = 0;
    }
    return fd;
}

int wf_stream_connect(const uint8_t ip[WF_NET_IP], uint16_t port, enum wf_stream_reuse reuse)
{
    union wf_sockaddr sa;
    socklen_t len = wf_ipaddr_to_sockaddr(ip, port, &sa);
    int fd = stream_socket(sa.sa.sa_family, reuse);
    if (fd < 0)
        return -1;
    if (!connect(fd, &sa.sa, len) || errno == EINPROGRESS)
        return fd;
    return failed(fd);
}

int wf_stream_connect_error(int fd)
{
    int err = 0;
    socklen_t len = sizeof err;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) ? errno : err;
}
