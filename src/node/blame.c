/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients whose moves break queue pairs, which all clients use (docs/design/node.md "A queue pair
 * that breaks"), and reads of messages that their senders take back (docs/design/rendezvous.md). */
#include "node/mover.h"

#include "base/clock.h"
#include "base/log.h"

/* The first pause of a client whose part broke a queue pair, and how often it doubles. After the
 * longest one without another break, the first is the next again. */
#define PAUSE_NS UINT64_C(1000000000)
#define DOUBLINGS 6
/* So many refused reads of messages are no fault of their client's, and a further one after each of
 * these times. */
#define SPARED 16
#define SPARED_NS UINT64_C(8000000000)
#define REFUSED_NS UINT64_C(1000000000) /* how long a key that was refused is not tried again */

bool wf_node_is_paused(const struct node_mover *m, uint16_t index, uint32_t window)
{
    const struct node_blame *b = &m->blames[index];
    return __builtin_expect(b->until_ns != 0, 0) && b->window == window &&
           wf_now_ns() < b->until_ns;
}

/* Count a refused read. Returns false if there were too many. */
static bool spare(struct node_blame *b, uint64_t now)
{
    uint64_t until = WF_MAX(b->spared_ns, now) + SPARED_NS;
    if (until > now + SPARED * SPARED_NS)
        return false;
    b->spared_ns = until;
    return true;
}

/* A part that ends in the pause was posted before it, and may have broken another queue pair: the
 * pause stays as long as it is. The windows of an index grow: a part of one that had it before does
 * not end the pause of the present client. */
void wf_node_blame(struct node_mover *m, uint16_t index, uint32_t window, enum weft_status status,
                   bool reads)
{
    struct node_blame *b = &m->blames[index];
    uint64_t now = wf_now_ns();
    if (window < b->window || wf_node_is_paused(m, index, window))
        return;
    if (b->window != window)
        *b = (struct node_blame){.window = window};
    if (reads && status == WEFT_EKEY && spare(b, now))
        return;
    if (now > b->until_ns + (PAUSE_NS << DOUBLINGS))
        b->times = 0;
    b->until_ns = now + (PAUSE_NS << b->times);
    wf_info("client %u: a put or get broke a connection that all clients use, since %s; the "
            "client's next ones go by messages for %u s",
            index,
            status == WEFT_EKEY ? "the peer's NIC refused its key"
                                : "its own memory is not registered any more",
            1u << b->times);
    b->times += b->times < DOUBLINGS;
}

/* ---- keys of messages ---- */

void wf_node_key_refused(struct node_session *s, const struct wf_node_move *at)
{
    struct node_refused *r = &s->refused[s->refusals++ % WF_ARRAY_LEN(s->refused)];
    *r = (struct node_refused){.until_ns = wf_now_ns() + REFUSED_NS,
                               .window = (uint32_t)(at->remote >> WF_NODE_WINDOW_BITS),
                               .rkey = at->rkey};
}

bool wf_node_is_refused(const struct node_session *s, const struct wf_node_move *at)
{
    uint64_t now = s->refusals ? wf_now_ns() : 0;
    for (unsigned i = 0; i < WF_MIN(s->refusals, (uint32_t)WF_ARRAY_LEN(s->refused)); i++) {
        const struct node_refused *r = &s->refused[i];
        if (r->rkey == at->rkey && r->window == at->remote >> WF_NODE_WINDOW_BITS &&
            now < r->until_ns)
            return true;
    }
    return false;
}
