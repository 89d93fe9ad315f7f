/* SPDX-License-Identifier: BSD-3-Clause */
/* For the log: for which step on their way the messages to a peer wait.
 *
 *   step                                         the messages wait for
 *   the word of the peer's service               the answer to NODE
 *   an attempt                                   room, after a refusal; or for the next poll
 *   an entry in the submit ring                  room in the ring
 *   the node's service has read the entries      its mover
 *   the peer's service has acknowledged them     the lane, or the service at its other end */
#include <stdio.h>

#include "transport/ipaddr.h"
#include "transport/node/via.h"

/* Has anything come from the service that has the word [name]? */
static bool has_answered(const struct node_client *c, uint32_t name)
{
    bool came = false;
    for (uint32_t i = 0; i <= c->sender_mask; i++)
        for (const struct node_sender *s = c->senders[i]; s; s = s->next_sender)
            came |= s->word == name;
    for (uint32_t i = 0; i <= c->flow_mask; i++)
        for (const struct node_flow *f = c->flows[i]; f; f = f->next_flow)
            came |= f->to.word == name && f->low;
    return came;
}

static bool is_refused(const struct node_client *c, const struct node_flow *flow)
{
    const struct wf_node_slot *words;
    if (flow->slot < 0)
        return flow->retry_ns != 0;
    words = &c->event->slots[flow->slot];
    return flow->refused || wf_node_word_state(wf_load_acquire(&words->far), flow->attempt) ||
           wf_node_word_state((uint32_t)wf_load_acquire(&words->near), flow->attempt);
}

static void posted_write(const struct via_ep *ep, const struct node_flow *flow, const char *service,
                         char *out, size_t room)
{
    const struct node_client *c = ep->client;
    uint32_t unread = c->tail - wf_load_acquire(&c->event->taken);
    if (unread)
        snprintf(out, room, "the node's service, process %d, has not read %u entries%s",
                 wf_via_service_pid(ep->ctx), unread,
                 wf_load_acquire(&c->page->sleep_epoch) & 1 ? ", and sleeps" : "");
    else
        snprintf(out, room,
                 "the service at %s has not acknowledged them (session %u, attempt %u)%s", service,
                 flow->session, flow->attempt,
                 has_answered(c, flow->to.word) ? "" : ", and nothing has come from it");
}

static void step_write(const struct via_ep *ep, const struct via_peer *peer, char *out, size_t room)
{
    const struct node_client *c = ep->client;
    const struct node_flow *flow = peer->flow;
    uint32_t name = flow->to.word;
    char service[WF_NET_NAME];
    wf_ipaddr_print_port(peer->contact.ip[0], peer->contact.rdma, service);
    if (name == WF_NODE_NO_WORD)
        snprintf(out, room, "the node's service, process %d, %s the service at %s",
                 wf_via_service_pid(ep->ctx), flow->asked ? "has not named" : "was not asked for",
                 service);
    else if (wf_node_session_state(wf_load_acquire(&c->page->words[wf_node_word_index(name)]),
                                   name) != WF_NODE_UP)
        snprintf(out, room, "the node's service has no session with the service at %s", service);
    else if (is_refused(c, flow))
        snprintf(out, room, "they were refused for want of room on the way to the service at %s",
                 service);
    else if (!flow->live)
        snprintf(out, room, "they are to be sent again to the service at %s", service);
    else if (flow->posted == flow->low)
        snprintf(out, room, "the ring to the node's service, process %d, is full",
                 wf_via_service_pid(ep->ctx));
    else
        posted_write(ep, flow, service, out, room);
}

void wf_via_explain(struct wf_tpeer *tpeer, char *out, size_t room)
{
    const struct via_peer *peer = VIA_OF(tpeer, via_peer);
    const struct node_flow *flow = peer->flow;
    int n;
    if (peer->status != WEFT_OK || !flow || flow->low == flow->next) {
        snprintf(out, room, "%s",
                 peer->status != WEFT_OK ? weft_status_text(peer->status)
                 : flow && flow->next    ? "its ring has all messages to it"
                                         : "nothing was sent to it");
        return;
    }
    n = snprintf(out, room, "%u of %u messages to it are not in its ring: ", flow->next - flow->low,
                 flow->next);
    if (n > 0 && (size_t)n < room)
        step_write(VIA_OF(tpeer->tep, via_ep), peer, out + n, room - (size_t)n);
}
