/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_DEBUG=shuffle delivers messages in random order, as far as the contract leaves the order
 * open. This finds programs that rely on an order. About half of an endpoint's messages are kept
 * until the end of the poll that received them. They are then delivered in random order. Control
 * requests, which are Weft's own active messages, stay in order (rule 8 of transport.h). Bulk
 * frames stay in order, too, since only control messages have bulk payload. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "config/config.h"
#include "transport/net/channel.h"

#define KEPT_MAX 256

struct net_kept {
    struct net_chan *chan;
    struct wf_net_frame frame;
    uint32_t args[WEFT_AM_MAX_ARGS];
    _Alignas(WF_NET_ALIGN) uint8_t data[];
};

struct net_shuffle {
    uint64_t rand;
    unsigned n;
    struct net_kept *kept[KEPT_MAX]; /* the first [n] are set */
};

bool wf_net_shuffle_open(struct net_ep *ep)
{
    const struct wf_config *c = wf_config();
    if (!c->shuffle)
        return true;
    ep->shuffle = calloc(1, sizeof *ep->shuffle);
    if (!ep->shuffle)
        return false;
    ep->shuffle->rand = c->shuffle_seed ? c->shuffle_seed + ep->address.ep : wf_now_ns();
    wf_info("WEFT_DEBUG=shuffle: endpoint %u uses seed %llu over the network", ep->address.ep,
            (unsigned long long)ep->shuffle->rand);
    return true;
}

static uint32_t below(struct net_shuffle *s, uint32_t n)
{
    return (uint32_t)(wf_rand(&s->rand) % n);
}

bool wf_net_shuffle_is_empty(const struct net_ep *ep)
{
    return !ep->shuffle || !ep->shuffle->n;
}

/* Returns how much of the ring the reply to a kept request takes. This room is counted as if the
 * reply were in the ring already. So if a peer reserves more room than there is, its request is
 * rejected on arrival. */
static uint32_t reply_room(const struct wf_net_frame *f)
{
    return f->kind == WF_NET_REQUEST && f->room ? wf_net_reply_size(f->room) : 0;
}

bool wf_net_shuffle_keep(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                         const void *data)
{
    struct net_shuffle *s = chan->session->ep->shuffle;
    bool is_control = f->kind == WF_NET_REQUEST && f->handler >= WEFT_AM_USER_HANDLERS;
    struct net_kept *k;
    if (is_control || chan->session->ep->closing.begun || s->n == KEPT_MAX || below(s, 2))
        return false;
    k = malloc(sizeof *k + f->len);
    if (!k)
        return false;
    k->chan = chan;
    k->frame = *f;
    memcpy(k->args, args, 4u * f->nargs);
    memcpy(k->data, data, f->len);
    s->kept[s->n++] = k;
    chan->reply_bytes += reply_room(f);
    return true;
}

/* Deliver kept message number [i]. */
static void deliver_at(struct net_shuffle *s, unsigned i)
{
    struct net_kept *k = s->kept[i];
    s->kept[i] = s->kept[--s->n];
    k->chan->reply_bytes -= reply_room(&k->frame);
    wf_net_deliver(k->chan, &k->frame, k->args, k->data, 0);
    if (k->chan->link && wf_net_ack_is_urgent(k->chan))
        wf_net_dirty(k->chan);
    free(k);
}

void wf_net_shuffle_deliver(struct net_ep *ep)
{
    struct net_shuffle *s = ep->shuffle;
    while (s->n)
        deliver_at(s, below(s, s->n));
}

void wf_net_shuffle_end(struct net_session *session)
{
    struct net_shuffle *s = session->ep->shuffle;
    for (unsigned i = s->n; i-- > 0;)
        if (s->kept[i]->chan->session == session)
            deliver_at(s, i);
}

void wf_net_shuffle_close(struct net_ep *ep)
{
    for (unsigned i = 0; ep->shuffle && i < ep->shuffle->n; i++)
        free(ep->shuffle->kept[i]);
    free(ep->shuffle);
    ep->shuffle = NULL;
}
