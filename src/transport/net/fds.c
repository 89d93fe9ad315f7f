/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the sockets of links in the endpoint's epoll set, and in the list of the sockets that a
 * forked child closes. */
#include <sys/epoll.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "transport/net/connect/auth.h"
#include "transport/net/net.h"

bool wf_net_fd_note(struct net_ctx *ctx, int fd)
{
    int *more = wf_array_grow(ctx->fds, ctx->nfds, &ctx->fds_room, sizeof *more);
    if (!more)
        return false;
    ctx->fds = more;
    ctx->fds[ctx->nfds++] = fd;
    return true;
}

void wf_net_fd_forget(struct net_ctx *ctx, int fd)
{
    net_ctx_lock(ctx);
    for (unsigned i = 0; i < ctx->nfds; i++)
        if (ctx->fds[i] == fd) {
            ctx->fds[i] = ctx->fds[--ctx->nfds];
            break;
        }
    net_ctx_unlock(ctx);
}

bool wf_net_epoll_make(struct net_ep *ep)
{
    struct epoll_event ev = {.events = EPOLLIN};
    if (ep->epoll_fd >= 0)
        return true;
    ep->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    if (ep->epoll_fd < 0)
        return false;
    if (!epoll_ctl(ep->outer_fd, EPOLL_CTL_ADD, ep->epoll_fd, &ev))
        return true;
    close(ep->epoll_fd);
    ep->epoll_fd = -1;
    return false;
}

bool wf_net_fd_watch(struct net_chan *chan, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = chan};
    return !epoll_ctl(chan->session->ep->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

bool wf_net_fd_events(struct net_chan *chan, int fd, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? (uint32_t)EPOLLOUT : 0u), .data.ptr = chan};
    return !epoll_ctl(chan->session->ep->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

void wf_net_fd_ignore(struct net_chan *chan, int fd)
{
    (void)epoll_ctl(chan->session->ep->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Remove the socket from the list for forked children and from the epoll set. While a forked child
 * holds a copy of the socket, close(2) alone does not remove the socket from an epoll set. */
static void fd_unwatch(struct net_chan *chan, int fd)
{
    struct net_ep *ep = chan->session->ep;
    wf_net_fd_forget(ep->ctx, fd);
    wf_net_fd_ignore(chan, fd);
}

void wf_net_fd_close(struct net_chan *chan, int fd)
{
    fd_unwatch(chan, fd);
    wf_conn_close_fd(fd);
}

void wf_net_fd_linger(struct net_chan *chan, int fd)
{
    fd_unwatch(chan, fd);
    wf_conn_mgr_linger(chan->session->ep->ctx->mgr, fd);
}

void wf_net_fd_turn_away(struct net_chan *chan, int fd, struct wf_aead *aead)
{
    fd_unwatch(chan, fd);
    wf_conn_mgr_turn_away(chan->session->ep->ctx->mgr, fd, aead);
}
