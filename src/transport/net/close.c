/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing an endpoint: its last messages, BYE, and how long the endpoint waits for its peers. */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/net/channel.h"

#define LOOK_MS 1 /* each call of turn() waits this long for events */
/* How long a closing endpoint waits for the peers' acknowledgements after the peers' kernels have
 * received everything. A peer that polls acknowledges at once. If a peer does not poll, its kernel
 * keeps the messages, even when the connection breaks. But a proxy or tunnel may acknowledge TCP
 * segments before it forwards them, and may then drop them. The wait gives the proxy time to
 * forward them, even if the proxy has to wait for a processor core. A measurement on two cores ran
 * two fuzzers of idle priority and, most of the time, two busy loops beside
 * net_test.test_last_words. With 20 ms, 4 of 14 runs lost messages. With 200 ms, none of 14 did. */
#define LAST_ACK_NS 200000000u
/* How long all links together may take to send everything. */
#define SETTLE_NS 50000000u

static struct net_session *session_of(struct wf_addr_entry *entry)
{
    return wf_container_of(entry, struct net_session, known);
}

/* Returns a bit mask of the lanes that the peer knows or will know. These lanes had a connection,
 * or have had frames to send. */
static uint32_t lanes_used(const struct net_session *session)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && (session->chans[i]->gen || session->chans[i]->next))
            mask |= 1u << i;
    return mask;
}

static void bye_append(struct wf_addr_entry *entry, void *arg)
{
    struct net_session *session = session_of(entry);
    uint32_t mask = lanes_used(session);
    (void)arg;
    for (unsigned i = 0; i < session->nchans; i++)
        if (mask >> i & 1) {
            wf_net_append_bye(session->chans[i], mask);
            wf_net_dirty(session->chans[i]);
        }
}

/* What a closing endpoint still waits for: an acknowledgement (OUT_ACK), or that bytes reach a
 * peer's kernel (OUT_BYTES). The endpoint waits for nothing from a peer that has sent BYE, its last
 * frame, since such a peer receives nothing more. */
enum outstanding { OUT_NOTHING, OUT_ACK, OUT_BYTES };

static enum outstanding chan_outstanding(const struct net_chan *chan)
{
    if (!chan || chan->bye || chan->first == chan->next)
        return OUT_NOTHING;
    if (!chan->link || wf_net_has_unsent(chan))
        return OUT_BYTES;
    return chan->link->ops->flushed(chan->link) ? OUT_ACK : OUT_BYTES;
}

static void session_outstanding(struct wf_addr_entry *entry, void *arg)
{
    const struct net_session *session = session_of(entry);
    enum outstanding *most = arg;
    for (unsigned i = 0; i < session->nchans; i++)
        *most = WF_MAX(*most, chan_outstanding(session->chans[i]));
}

static enum outstanding most_outstanding(const struct net_ep *ep)
{
    enum outstanding most = OUT_NOTHING;
    wf_addr_table_each(&ep->sessions, session_outstanding, &most);
    return most;
}

/* One turn of closing: receive, then send. Received messages are not delivered, since the endpoint
 * has no handlers any more. */
static void turn(struct net_ep *ep)
{
    struct pollfd p[2] = {{.fd = ep->base.event_fd, .events = POLLIN},
                          {.fd = ep->epoll_fd, .events = POLLIN}};
    uint64_t n;
    (void)poll(p, ep->epoll_fd >= 0 ? 2 : 1, LOOK_MS);
    if (read(ep->base.event_fd, &n, sizeof n) > 0 || atomic_load(&ep->inbox))
        wf_net_inbox(ep);
    ep->look = true;
    ep->driver->progress(ep);
    wf_net_flush_all(ep);
}

/* A link that is not up has not finished its handshake, which needs a peer that polls. So break
 * such a link. The next link is a plain socket. On a socket, the peer's kernel accepts the last
 * messages even if the peer does not poll. */
static void break_if_not_up(struct net_chan *chan)
{
    if (!chan->up)
        wf_net_chan_break(chan, "the endpoint closes before its link is up");
}

/* Send and receive until the peers have acknowledged everything, or the time is over. */
static void last_messages(struct net_ep *ep)
{
    uint64_t now = wf_now_ns(), sent = now;
    enum outstanding left;
    while ((left = most_outstanding(ep)) != OUT_NOTHING) {
        if (left == OUT_BYTES)
            sent = now;
        if (now - sent > LAST_ACK_NS)
            return;
        if (now >= ep->closing.until_ns) {
            wf_warn("an endpoint closes with messages that a peer did not take for %u ms: they "
                    "are lost",
                    ep->closing.limit_ms);
            return;
        }
        turn(ep);
        now = wf_now_ns();
    }
}

/* Prepare a link for the endpoint's closing. Epoll need not report room to send, since each turn
 * tries to send. */
static void link_closing(struct net_chan *chan)
{
    chan->link->is_last = true;
    (void)chan->link->ops->watch(chan->link, false);
}

void wf_net_close(struct net_ep *ep)
{
    uint32_t ms =
        ep->ctx->base.close_ms ? ep->ctx->base.close_ms : (uint32_t)wf_config()->peer_timeout_ms;
    ep->closing = (struct net_closing){.begun = true,
                                       .limit_ms = ms,
                                       .until_ns = wf_now_ns() + ms * UINT64_C(1000000),
                                       .settle_ns = SETTLE_NS};
    wf_net_live_each(ep, link_closing);
    wf_addr_table_each(&ep->sessions, bye_append, NULL);
    wf_net_live_each(ep, break_if_not_up);
    wf_net_flush_all(ep);
    last_messages(ep);
}
