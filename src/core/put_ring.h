/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring of short puts that NICs perform. Most short puts need no request: one NIC operation does
 * the whole put, and the core only has to handle the completion. The ring keeps what the completion
 * needs. Puts complete in the order in which they begin. Three counters, which start at 0 when the
 * ring is made, divide the puts:
 *
 *     done ... lost     lost puts: their connection broke, and requests repeat them by messages
 *     lost ... begun    puts under way
 *
 * [window] lets puts begin: window.room is the one number that says how many, and stands for every
 * reason why a put may not begin. The core sets it to 0 when there are lost puts, when requests
 * wait for room, and when the peer is lost. The transport sets it to 0 for its own reasons
 * (transport.h). The next put then finds no room, and wf_put_ring_open checks all reasons, and that
 * the ring has room, and asks the transport to open the window again.
 *
 * A flush stores [begun] and waits until [done] has reached that value. A lost put counts as done
 * as soon as it has a request, because that request precedes all flushes.
 *
 * A put holds no reference to its remote. Instead weft_remote_close, if puts are under way, appends
 * the remote to [closing], where it keeps its last reference until the puts that had begun are
 * done.
 *
 * Only the endpoint's owner touches the ring. */
#ifndef WF_CORE_PUT_RING_H
#define WF_CORE_PUT_RING_H

#include "core/core.h"
#include "core/path.h"

#define WF_PUT_RING_SIZE 64u /* a power of two */

struct wf_put {
    struct weft_op *op;  /* may be null */
    struct wf_put *next; /* constant: the next place in the ring */
    struct wf_remote *remote;
    const void *src;
    uint64_t offset, len;
};

struct wf_put_ring {
    struct wf_put_window window;
    const struct weft_ep *ep; /* constant, like [flow] */
    struct wf_put *next;      /* the place of the put that begins next */
    struct wf_put *oldest;    /* the put that was begun first of those that are not done */
    uint64_t begun, lost, done;
    struct wf_flow *flow;
    struct wf_list closing; /* closed remotes, in the order of wf_remote.puts_begun */
    struct wf_put ring[WF_PUT_RING_SIZE];
};

static inline bool wf_put_ring_is_done(const struct wf_put_ring *p, uint64_t upto)
{
    return !p || p->done >= upto;
}

static inline bool wf_put_ring_is_idle(const struct wf_put_ring *p)
{
    return !p || p->done == p->begun;
}

/* The put ring of remotes that use none. No put begins there. */
extern struct wf_put_ring wf_put_ring_none;

/* Let puts to [r] use the put ring of its peer, after making that ring if there is none. Returns
 * false if there is no memory. */
bool wf_put_ring_make(struct wf_remote *r);
/* Open the window for a put of [len] bytes, and take one from window.room for it. Returns false if
 * no such put may begin now. Otherwise the caller calls wf_put_ring_begin at once. */
static inline bool wf_put_ring_open(struct wf_put_ring *p, size_t len)
{
    struct weft_peer *peer = p->flow->peer;
    uint32_t used = (uint32_t)(p->begun - p->done);
    p->window.room = 0;
    if (used == WF_PUT_RING_SIZE || p->lost != p->done || !wf_list_empty(&p->flow->queue) ||
        peer->status != WEFT_OK ||
        !peer->transport->put_open(wf_peer_tpeer(peer), &p->window, WF_PUT_RING_SIZE - used, len))
        return false;
    p->window.room--;
    return true;
}

/* Begin a put. The caller has taken one from window.room, which was not 0. It has checked that
 * window.len_max allows the put, and that [len] bytes at [offset] are in the region, and has
 * entered the endpoint. Returns PENDING. */
static inline enum weft_status wf_put_ring_begin(struct wf_put_ring *p, struct wf_remote *r,
                                                 uint64_t offset, const void *src, size_t len,
                                                 struct weft_op *op)
{
    struct wf_put *put = p->next;
    p->next = put->next;
    p->begun++;
    put->op = op;
    put->remote = r;
    put->src = src;
    put->offset = offset;
    put->len = len;
    if (op) {
        op->entry_ = NULL;
        op->status = WEFT_PENDING;
    }
    return p->window.put(&p->window, r->nic_base + offset, src, len, r->key.nic_key[p->window.nic]);
}

/* The program has closed [r]. Keep a reference to it until the puts under way have ended. */
void wf_put_ring_keep(struct wf_put_ring *p, struct wf_remote *r);

/* The functions [put_done] and [put_lost] of struct wf_tep_events. */
void wf_put_ring_done(void *owner, struct wf_tpeer *tpeer, uint32_t n);
void wf_put_ring_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);

/* Make a request for each lost put, until no further request can be made. Returns the number of
 * requests made. */
int wf_put_ring_redo(struct wf_put_ring *p);
/* End all puts of a peer that the program closes with ECANCELED. The NICs may still execute them;
 * their places stay in the ring until then. None is repeated. */
void wf_put_ring_cancel(struct wf_put_ring *p);
/* End all puts with [why]. */
void wf_put_ring_down(struct wf_put_ring *p, enum weft_status why);

#endif
