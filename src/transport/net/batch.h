/* SPDX-License-Identifier: BSD-3-Clause */
/* What one write of a channel consists of. */
#ifndef WF_TRANSPORT_NET_BATCH_H
#define WF_TRANSPORT_NET_BATCH_H

#include <sys/uio.h>

#include "transport/net/channel.h"

/* A write takes several payloads as long as they have at most this many bytes together. */
#define WF_NET_SHARED 65536u
#define WF_NET_SHARED_MAX 8u /* payloads */

/* A segment of a write: frames of the ring, then the payload of the last of these frames, if that
 * is a bulk frame, then the payload's padding. */
struct wf_net_segment {
    size_t ring, payload, padding; /* bytes */
    struct net_bulk *held;         /* its payload is lent for this write; or NULL */
};

/* What one write consists of: a control frame (ACK or SYNC), and segments. */
struct wf_net_batch {
    unsigned n, nsegments;
    uint64_t lent;           /* bit i: v[i] is memory that the program lent */
    size_t control, payload; /* bytes */
    struct wf_net_segment segments[WF_NET_SHARED_MAX + 1];
    struct iovec v[1 + 4 * (WF_NET_SHARED_MAX + 1)]; /* the first [n] are set */
};

/* Gather the bytes of one write in [b], with at most [most] payloads. The core lends the payloads
 * until wf_net_batch_unhold. Returns false if the link must be given up, because a payload that was
 * sent in part is gone; wf_net_batch_unhold is called all the same. */
bool wf_net_batch_make(struct wf_net_batch *b, struct net_chan *chan, unsigned most);
/* Called when the link has taken the first [n] bytes of [b]. Counts these bytes as sent. */
void wf_net_batch_done(const struct wf_net_batch *b, struct net_chan *chan, size_t n);
void wf_net_batch_unhold(const struct wf_net_batch *b, struct net_ep *ep);

/* ---- what sending one short frame shares with it ---- */

static inline bool wf_net_is_reply(unsigned kind)
{
    return kind == WF_NET_REPLY || kind == WF_NET_BULK_REPLY;
}

/* Must an ACK frame soon report reply room that the peer reserved and that no reply used? Only ACK
 * and SYNC frames report such room. */
static inline bool wf_net_returns_are_urgent(const struct net_chan *chan)
{
    return wf_net_past(chan->unreplied_acked, chan->unreplied) >= NET_REPLY_ROOM / 4;
}

static inline void wf_net_ack_sent(struct net_chan *chan)
{
    chan->acked = chan->taken;
    chan->taken_bytes = 0;
}

/* Called when the link has taken all bytes of the frame at [chan->at]. The frame has [size] bytes
 * in the ring. */
static inline void wf_net_frame_written(struct net_chan *chan, uint32_t size)
{
    chan->at += size;
    chan->written++;
    if ((int32_t)wf_net_past(chan->reached, chan->written) > 0)
        chan->reached = chan->written;
}

static inline struct net_bulk *wf_net_bulk_of(const struct net_chan *chan, uint32_t i)
{
    struct net_bulk *b = &chan->bulks[i & (chan->bulks_room - 1)];
    b->bulk.args = b->args;
    return b;
}

#endif
