/* SPDX-License-Identifier: BSD-3-Clause */
/* Gathering: frames of the ring and payloads of bulk frames, for one write. */
#include "transport/net/batch.h"

#include <string.h>

#include "base/clock.h"

#define BULK_WRITE ((size_t)1 << 20) /* the most bytes of one payload in one write */

static const uint8_t zeros[WF_NET_ALIGN];

/* Returns the bulk frame whose payload is to be written next, or NULL. */
static struct net_bulk *bulk_next(const struct net_chan *chan)
{
    return chan->bulk_at != chan->bulk_end ? wf_net_bulk_of(chan, chan->bulk_at) : NULL;
}

static void control_ack(struct net_chan *chan)
{
    struct wf_net_frame f = {.ack = chan->taken, .room = chan->unreplied, .kind = WF_NET_ACK};
    memcpy(chan->control, &f, sizeof f);
    chan->control_len = sizeof f;
    chan->control_sent = 0;
}

static void batch_add(struct wf_net_batch *b, const void *bytes, size_t len)
{
    if (len)
        b->v[b->n++] = (struct iovec){(void *)(uintptr_t)bytes, len};
}

/* Add the bytes of the ring from position [from] to [end]. */
static void batch_ring(struct wf_net_batch *b, const struct net_chan *chan, uint32_t from,
                       uint32_t end)
{
    size_t offset = from & chan->mask, whole = (size_t)chan->mask + 1 - offset;
    size_t len = wf_net_past(from, end);
    b->segments[b->nsegments].ring = len;
    batch_add(b, chan->ring + offset, WF_MIN(len, whole));
    if (len > whole)
        batch_add(b, chan->ring, len - whole);
}

static uint32_t bulk_head_end(const struct net_bulk *bulk)
{
    return bulk->at + wf_net_head_size(bulk->bulk.nargs);
}

/* Called when the payload of a bulk frame is gone. Turns a request into VOID. Turns a reply into a
 * reply without payload, which the requester takes as a failure. Returns false if the frame cannot
 * be changed, since a part of it was written to this link already. */
static bool bulk_void(struct net_chan *chan, struct net_bulk *bulk)
{
    const struct net_ep *ep = chan->session->ep;
    struct wf_net_frame *f = wf_net_frame_at(chan, bulk->at);
    if (chan->at == bulk->at && chan->sent != chan->at)
        return false;
    if (wf_net_is_reply(f->kind)) {
        f->kind = WF_NET_REPLY;
    } else {
        chan->reserved -= f->room ? wf_net_reply_size(f->room) : 0;
        f->kind = WF_NET_VOID;
        f->room = 0;
        if (ep->base.events->bulk_gone)
            ep->base.events->bulk_gone(ep->base.owner, &bulk->bulk);
    }
    f->len = 0;
    bulk->bulk.len = 0; /* later links send no payload either */
    chan->bulk_at++;
    chan->bulk_sent = 0;
    return true;
}

/* Add the segment that ends with payload of [bulk], from byte [done] of its payload and padding on.
 * The ring's part begins at position [from]. Returns false if the payload is gone; nothing is then
 * added. */
static bool batch_payload(struct wf_net_batch *b, struct net_chan *chan, struct net_bulk *bulk,
                          uint32_t from, uint32_t done)
{
    struct net_ep *ep = chan->session->ep;
    struct wf_net_segment *segment = &b->segments[b->nsegments];
    uint32_t len = bulk->bulk.len, left = done < len ? len - done : 0;
    size_t n = WF_MIN(left, BULK_WRITE);
    const void *payload = NULL;
    *segment = (struct wf_net_segment){.held = left ? bulk : NULL};
    if (left && bulk->lost)
        return false;
    if (left && !(payload = ep->base.events->bulk_hold(ep->base.owner, &bulk->bulk, done, &n)))
        return false;
    batch_ring(b, chan, from, bulk_head_end(bulk));
    segment->payload = n;
    segment->padding = n == left ? wf_net_padded(len) - WF_MAX(done, len) : 0;
    b->lent |= n ? UINT64_C(1) << b->n : 0;
    b->payload += n;
    batch_add(b, payload, n);
    batch_add(b, zeros, segment->padding);
    b->nsegments++;
    return true;
}

/* Add the first segment. Bulk frames whose payload is gone become void. Returns false if the link
 * must be given up, because a payload that was sent in part is gone. */
static bool batch_first(struct wf_net_batch *b, struct net_chan *chan)
{
    struct net_bulk *bulk;
    while ((bulk = bulk_next(chan))) {
        if (!bulk->bulk.len) /* the payload was gone already on an earlier link */
            chan->bulk_at++;
        else if (batch_payload(b, chan, bulk, chan->sent, chan->bulk_sent))
            return true;
        else if (!bulk_void(chan, bulk))
            return false;
    }
    return true;
}

/* After a whole payload, add those that follow, as long as all together are short, and the frames
 * behind the last bulk frame. */
static void batch_more(struct wf_net_batch *b, struct net_chan *chan, unsigned most)
{
    uint32_t i = chan->bulk_at, from = chan->sent;
    for (; i != chan->bulk_end; i++) {
        struct net_bulk *bulk = wf_net_bulk_of(chan, i);
        bool first = i == chan->bulk_at;
        if (!first &&
            (b->nsegments == most || !bulk->bulk.len ||
             b->payload + bulk->bulk.len > WF_NET_SHARED || !batch_payload(b, chan, bulk, from, 0)))
            return;
        if ((first ? chan->bulk_sent : 0) + b->segments[b->nsegments - 1].payload +
                b->segments[b->nsegments - 1].padding <
            wf_net_padded(bulk->bulk.len))
            return; /* more of this payload is to be sent first */
        from = bulk_head_end(bulk);
    }
    b->segments[b->nsegments] = (struct wf_net_segment){.held = NULL};
    batch_ring(b, chan, from, chan->head);
    b->nsegments++;
}

bool wf_net_batch_make(struct wf_net_batch *b, struct net_chan *chan, unsigned most)
{
    b->n = b->nsegments = 0;
    b->lent = 0;
    b->payload = 0;
    if (chan->control_sent == chan->control_len && chan->at == chan->sent &&
        ((chan->sent == chan->head && wf_net_ack_is_due(chan)) || wf_net_returns_are_urgent(chan)))
        control_ack(chan);
    b->control = chan->control_len - chan->control_sent;
    batch_add(b, chan->control + chan->control_sent, b->control);
    if (!chan->open)
        return true;
    if (chan->at == chan->sent && chan->sent != chan->head)
        wf_net_frame_at(chan, chan->at)->ack = chan->taken;
    if (!batch_first(b, chan))
        return false;
    batch_more(b, chan, most);
    return true;
}

/* Move [chan->at] past the frames that were wholly written to the link. Stop at a bulk frame whose
 * payload was not wholly written. */
static void frames_pass(struct net_chan *chan)
{
    const struct net_bulk *bulk = bulk_next(chan);
    while (chan->at != chan->sent) {
        uint32_t size = wf_net_ring_size_of(wf_net_frame_at(chan, chan->at));
        if (size > wf_net_past(chan->at, chan->sent) || (bulk && bulk->at == chan->at))
            return;
        wf_net_frame_written(chan, size);
    }
}

/* Called when the link has taken [n] bytes of [segment]. */
static void segment_done(const struct wf_net_segment *segment, struct net_chan *chan, size_t n)
{
    size_t part = WF_MIN(n, segment->ring);
    struct net_bulk *bulk = bulk_next(chan);
    chan->sent += (uint32_t)part;
    n -= part;
    if (!bulk || !n)
        return;
    chan->bulk_sent += (uint32_t)n;
    if (chan->bulk_sent == wf_net_padded(bulk->bulk.len)) {
        chan->bulk_at++;
        chan->bulk_sent = 0;
    }
}

void wf_net_batch_done(const struct wf_net_batch *b, struct net_chan *chan, size_t n)
{
    size_t part = WF_MIN(n, b->control);
    chan->control_sent += (uint32_t)part;
    if (part && part == b->control) {
        struct wf_net_frame f;
        memcpy(&f, chan->control, sizeof f); /* ACK or SYNC */
        chan->unreplied_acked = f.room;
        if (f.ack == chan->taken)
            wf_net_ack_sent(chan);
    }
    n -= part;
    if (n && b->segments[0].ring && chan->at == chan->sent)
        wf_net_ack_sent(chan); /* batch_make set the frame's ack */
    for (unsigned i = 0; i < b->nsegments && n; i++) {
        const struct wf_net_segment *p = &b->segments[i];
        part = WF_MIN(n, p->ring + p->payload + p->padding);
        segment_done(p, chan, part);
        n -= part;
    }
    frames_pass(chan);
}

void wf_net_batch_unhold(const struct wf_net_batch *b, struct net_ep *ep)
{
    for (unsigned i = 0; i < b->nsegments; i++)
        if (b->segments[i].held)
            ep->base.events->bulk_unhold(ep->base.owner, &b->segments[i].held->bulk);
}
