/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport: it runs the channels of net/ over sockets. */
#include <poll.h>

#include "transport/net/channel.h"
#include "transport/net/connect/ifaddr.h"
#include "transport/tcp/sock_link.h"

/* With at most this many links, each poll looks at every link. With more links, epoll reports which
 * links to read. */
#define DIRECT 4
/* After IDLE_AFTER polls in a row that received nothing, only every IDLE_EVERYth poll looks at the
 * links, which takes 0.2 us (measured on a Sapphire Rapids). An endpoint that polls TCP also polls
 * shared memory. Messages by shared memory must not wait for the kernel in each poll. */
#define IDLE_AFTER 512
#define IDLE_EVERY 16

/* While a socket is in the epoll set, what arrives enters it in a list there, and in that of the
 * program's epoll descriptor. That takes 0.15 to 0.3 us, for 16 KiB 0.5 us (measured on an AMD
 * EPYC). Polls of few links do not need it. So after this many reads, whose gain pays for the
 * removal, the sockets leave the set until the owner is about to sleep. */
#define IGNORED_AFTER 64

static void sockets_ignore(struct net_ep *ep)
{
    wf_list_each(it, &ep->live)
        wf_sock_link_ignore(wf_container_of(it, struct net_chan, live)->link);
    ep->ignores = true;
    ep->reads = 0;
}

/* Returns false if the kernel has no memory for it. */
static bool sockets_watch(struct net_ep *ep)
{
    if (!ep->ignores)
        return true;
    wf_list_each(it, &ep->live)
    {
        struct net_link *link = wf_container_of(it, struct net_chan, live)->link;
        if (!link->ops->watch(link, false))
            return false;
    }
    ep->ignores = false;
    return true;
}

/* Ask the kernel which of the links of [chans] have something to read. Clears the elements of the
 * others. */
static void quiet_drop(struct net_chan **chans, struct pollfd *fds, unsigned n)
{
    bool any = n && poll(fds, n, 0) > 0;
    for (unsigned i = 0; i < n; i++)
        if (!any || !fds[i].revents)
            chans[i] = NULL;
}

/* Read the links that have something to read. A link that had something last time is simply read.
 * The others are looked at by one poll(2): unlike an empty recv(2) of each, it does not lock the
 * sockets. While a socket is locked, the segments that arrive wait for its owner. */
static void read_direct(struct net_ep *ep)
{
    struct net_chan *quiet[DIRECT], *busy[DIRECT];
    struct pollfd fds[DIRECT];
    unsigned nquiet = 0, nbusy = 0;
    wf_list_each(it, &ep->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        if (chan->empty) {
            fds[nquiet] = (struct pollfd){.fd = wf_sock_link_fd(chan->link), .events = POLLIN};
            quiet[nquiet++] = chan;
        } else {
            busy[nbusy++] = chan;
        }
    }
    quiet_drop(quiet, fds, nquiet);
    for (unsigned i = 0; i < nquiet + nbusy; i++) {
        struct net_chan *chan = i < nbusy ? busy[i] : quiet[i - nbusy];
        if (!chan || !chan->link) /* reading another link may have ended this one */
            continue;
        chan->empty = true;
        wf_net_chan_readable(chan); /* may end the channel, but does not free it */
        ep->reads += !chan->empty;
    }
    if (ep->reads >= IGNORED_AFTER)
        sockets_ignore(ep);
}

static void tcp_progress(struct net_ep *ep)
{
    if (ep->nlive <= DIRECT && !ep->closing.begun)
        read_direct(ep);
    else if (!ep->closing.begun && sockets_watch(ep))
        wf_net_ready_each(ep, wf_net_chan_readable);
    else
        wf_net_live_each(ep, wf_net_chan_readable);
    ep->look = false;
}

static uint16_t *tcp_port(struct wf_contact *contact)
{
    return &contact->port;
}

static struct net_link *tcp_open(struct net_chan *chan, const struct wf_net_conn *conn)
{
    return wf_sock_link_open(chan, conn->fd, conn->encrypted ? conn : NULL);
}

static const struct net_driver driver = {
    .open = tcp_open, .progress = tcp_progress, .port = tcp_port};

static int tcp_probe(char *note, size_t room)
{
    return wf_ifaddr_describe(note, room);
}

static enum weft_status tcp_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct net_ctx *ctx;
    enum weft_status status;
    if (!wf_net_has_key(params))
        return WEFT_EUNREACH;
    status = wf_net_ctx_open(&wf_tcp_transport, &driver, params, sizeof *ctx, &ctx);
    if (status == WEFT_OK)
        *out = &ctx->base;
    return status;
}

static enum weft_status tcp_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                    struct wf_tep **out)
{
    struct net_ep *ep;
    enum weft_status status = wf_net_ep_open(tctx, params, sizeof *ep, &ep);
    if (status != WEFT_OK)
        return status;
    ep->ring_max = wf_net_ring_max();
    *out = &ep->base;
    return WEFT_OK;
}

static void tcp_ep_close(struct wf_tep *tep)
{
    struct net_ep *ep = NET_OF(tep, net_ep);
    wf_net_ep_shut(ep);
    wf_net_ep_free(ep);
}

static enum weft_status tcp_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                  const struct wf_address *to, const struct wf_contact *contact,
                                  const char **why)
{
    *why = "its address names no place on the network: its process has no key (WEFT_KEY_FILE), or "
           "WEFT_TRANSPORTS leaves tcp out there";
    return contact->port ? wf_net_reach(tctx, from, to, contact, why) : WEFT_EUNREACH;
}

static int tcp_poll(struct wf_tep *tep)
{
    struct net_ep *ep = NET_OF(tep, net_ep);
    int events;
    wf_net_poll_begin(ep);
    if (ep->nlive && (ep->idle <= IDLE_AFTER || ep->polls % IDLE_EVERY == 0 || ep->look)) {
        tcp_progress(ep);
        wf_net_poll_end(ep);
    } else if (!ep->nlive) {
        wf_net_poll_without_links(ep);
    }
    events = wf_net_poll_events(ep);
    ep->idle = events ? 0 : ep->idle + (ep->nlive != 0);
    return events;
}

const struct wf_transport wf_tcp_transport = {
    WF_NET_OPS,
    .name = "tcp",
    .caps = WF_CAP_SLEEP | WF_CAP_BULK,
    .probe = tcp_probe,
    .ctx_open = tcp_ctx_open,
    .ctx_close = wf_net_ctx_close,
    .ep_open = tcp_ep_open,
    .ep_close = tcp_ep_close,
    .reach = tcp_reach,
    .poll = tcp_poll,
};
