/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies that ride with the next request.
 *
 * A poll sends its replies at its end. If the program then answers the puts of that poll by puts of
 * its own, each time two writes follow each other where one would do, and the first delays the
 * second. So a channel counts the polls in a row whose replies a request followed before the next
 * poll. After [needed] of them, a poll whose replies may all wait (wf_am_out.may_wait) leaves them
 * in the ring, for the next request, poll or arming, whichever comes first. If it is a poll, and
 * LATE_NS have passed, the replies were late by the time that the program took for other work. Then
 * the channel compares this time with the writes that rides have saved since the last late replies.
 * If the rides saved less, [needed] doubles: a program that computes between short phases of
 * communication pays a few times for all its phases. If they saved as much, [needed] halves, down
 * to NET_RIDES. A program that goes on polling pays nothing.
 *
 *   event                                   watching  holds      followed        needed
 *   a poll with replies ends, and           true        false      same            same
 *     followed < needed: they are sent
 *   the same, followed == needed:           true        true       same            same
 *     they stay
 *   a request before the next poll          false       false      + 1             same
 *   the next poll or arming comes first:    same        false      0               if late, doubles
 *     they are sent                                                                 or halves
 *   the next poll with replies ends,        as above    as above   0               same
 *     watching is still true
 */
#include "base/clock.h"
#include "transport/net/channel.h"

#define LATE_NS 20000u
/* What a ride saves: a write of 64 bytes to a loopback socket (measured on a Sapphire Rapids). */
#define RIDE_NS 1300u

void wf_net_ride_missed(struct net_chan *chan)
{
    uint64_t late = wf_now_ns() - chan->held_ns;
    if (late > LATE_NS) {
        bool paid = (uint64_t)chan->rides * RIDE_NS >= late;
        chan->needed = (uint16_t)(paid ? WF_MAX(chan->needed / 2u, NET_RIDES)
                                       : WF_MIN(chan->needed * 2u, NET_RIDES_MAX));
        chan->rides = 0;
    }
    chan->holds = false;
    chan->followed = 0;
}

bool wf_net_replies_stay(struct net_chan *chan)
{
    const struct net_ep *ep = chan->session->ep;
    if (chan->replied != ep->polls || chan->urgent == ep->polls)
        return false;
    if (chan->watching)
        chan->followed = 0;
    chan->watched = ep->polls;
    chan->watching = true;
    chan->holds = chan->followed == chan->needed && chan->open && !chan->blocked &&
                  chan->at == chan->sent && chan->bulk_at == chan->bulk_end &&
                  wf_net_past(chan->sent, chan->head) <= NET_RIDE_BYTES;
    if (chan->holds)
        chan->held_ns = wf_now_ns();
    return chan->holds;
}
