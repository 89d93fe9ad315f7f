/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests for payload that gather.
 *
 * A program may keep many gets under way. Each poll that completes one of them begins another, and
 * the request of each would take a write here and a read at the peer. But the peer replies in
 * order. So while many replies are due, a request may wait for more of them, and they share one
 * write. They leave while at least as many replies are still due as requests wait, so the peer
 * always has something to reply to.
 *
 *   event                                          the requests that wait
 *   a request for payload, fewer than DUE_LEAST    leave with it
 *     replies are due, with those that wait
 *   the same, now MOST wait, or half of all due    leave
 *   any other request for payload                  it waits, too
 *   any other frame                                leave when it leaves
 *   a poll, half of all due wait                   leave
 *   a poll, nothing has arrived for QUIET_NS       leave
 *   a poll, more than ACKS_MOST frames that have   leave
 *     arrived are not acknowledged
 *   arming, closing, or a question whether         leave
 *     everything was sent
 */
#include "base/clock.h"
#include "transport/net/channel.h"

#define DUE_LEAST 8u
#define MOST 8u
/* If each reply makes the program send a request, fewer frames arrive while MOST requests gather.
 * More of them may be messages that the peer cannot go on sending without acknowledgements. */
#define ACKS_MOST 32u
/* Longer than the kernel takes to move a reply of 64 KiB within a host. Where replies take longer,
 * a write for each request is no burden. */
#define QUIET_NS 20000u

/* Replies of other requests may have ended the reservations of some (recv.c). */
static uint32_t replies_due(const struct net_chan *chan)
{
    uint32_t most = chan->reserved / wf_net_reply_size(1);
    return WF_MIN(chan->asked, most);
}

static bool is_half(const struct net_chan *chan, uint32_t waiting)
{
    return 2 * waiting >= replies_due(chan);
}

static void note_arrivals(struct net_chan *chan)
{
    chan->gather_bytes = chan->taken_bytes;
    chan->gather_ns = wf_now_ns();
}

bool wf_net_gathers(struct net_chan *chan, uint32_t waiting)
{
    if (!chan->open || chan->blocked || chan->link->ops->send_one || waiting >= MOST ||
        replies_due(chan) < DUE_LEAST || is_half(chan, waiting))
        return false;
    if (waiting == 1)
        note_arrivals(chan);
    chan->gathered = waiting;
    return true;
}

bool wf_net_gather_stays(struct net_chan *chan)
{
    if (is_half(chan, chan->gathered) || wf_net_past(chan->acked, chan->taken) > ACKS_MOST)
        return false;
    if (chan->gather_bytes != chan->taken_bytes) {
        note_arrivals(chan);
        return true;
    }
    return wf_now_ns() - chan->gather_ns < QUIET_NS;
}
