/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's endpoint: opening, polling, and a service's successor. */
#include "transport/node/engine.h"

#include <stdlib.h>

#include "base/log.h"

void wf_node_client_fail(struct node_client *c, const char *what)
{
    if (c->failed)
        return;
    c->failed = WEFT_EPROTO;
    wf_error("the node's service breaks the protocol: %s; giving up this endpoint's messages by it",
             what);
}

static bool tables_open(struct node_client *c)
{
    c->flow_mask = c->sender_mask = 15;
    c->flows = calloc(c->flow_mask + 1, sizeof(void *));
    c->senders = calloc(c->sender_mask + 1, sizeof(void *));
    return c->flows && c->senders &&
           wf_node_blocks_init(&c->blocks, wf_node_submit_blocks(c->size)) &&
           wf_node_blocks_init(&c->reply_blocks, wf_node_reply_blocks(c->size));
}

enum weft_status wf_node_client_open(const struct node_client_params *params,
                                     struct node_client **out)
{
    struct node_client *c = wf_lines_new(sizeof *c);
    if (!c)
        return WEFT_ENOMEM;
    c->submit = params->submit;
    c->event = params->event;
    c->page = params->page;
    c->size = params->size;
    c->lines = params->lines ? params->lines : wf_node_lines(params->size);
    c->am_max = params->am_max;
    c->fence = params->fence;
    c->ops = params->ops;
    c->owner = params->owner;
    c->places_free = c->moves_free = UINT64_MAX;
    memset(c->slots_free, 0xff, sizeof c->slots_free);
    wf_list_init(&c->idle);
    wf_list_init(&c->refused);
    wf_list_init(&c->due);
    wf_list_init(&c->ending);
    if (!tables_open(c)) {
        wf_node_client_close(c);
        return WEFT_ENOMEM;
    }
    *out = c;
    return WEFT_OK;
}

static void flow_free(struct node_client *c, struct node_flow *flow)
{
    wf_node_journal_ack(c, flow, flow->next);
    free(flow->journal);
    free(flow->user);
    free(flow);
}

void wf_node_client_close(struct node_client *c)
{
    for (uint32_t i = 0; c->flows && i <= c->flow_mask; i++)
        for (struct node_flow *f = c->flows[i], *next; f; f = next) {
            next = f->next_flow;
            flow_free(c, f);
        }
    while (c->spare_journals) {
        void *journal = c->spare_journals;
        memcpy(&c->spare_journals, journal, sizeof(void *));
        free(journal);
    }
    wf_node_senders_free(c);
    wf_node_blocks_fini(&c->blocks);
    wf_node_blocks_fini(&c->reply_blocks);
    free(c->flows);
    free(c->spare);
    free(c);
}

/* A flow that is ending waits for what its destination had sent before. */
static void flow_reattach(struct node_client *c, struct node_flow *flow)
{
    flow->to.word = WF_NODE_NO_WORD;
    flow->asked = false;
    flow->losses = 0;
    if (flow->ended || flow->ending)
        return;
    wf_node_flow_anew(c, flow);
    if (!wf_node_is_due(flow))
        return;
    flow->asked = true;
    c->ops->resolve(c->owner, flow);
}

/* A dead service may have died in the entry behind them. */
uint32_t wf_node_event_tail(const struct node_client *c)
{
    uint32_t at = c->head;
    while (at - c->head < c->lines &&
           wf_shm_is_ready(wf_load_acquire(&c->event->entries[at & (c->lines - 1)].ready), at))
        at++;
    return at;
}

/* The service may have died before it rang the bell. */
static void words_take(struct node_client *c)
{
    for (uint32_t slot = 0; slot < WF_NODE_SLOTS && !c->failed; slot++)
        (void)wf_node_slot_look(c, slot);
    for (uint32_t place = 0; place < WF_NODE_PLACES && !c->failed; place++)
        (void)wf_node_place_look(c, place);
    for (uint32_t move = 0; move < WF_NODE_MOVES && !c->failed; move++)
        (void)wf_node_move_look(c, move);
}

void wf_node_client_reattach(struct node_client *c, const struct wf_node_page *page, bool fence)
{
    words_take(c);
    wf_node_moves_abandon(c);
    wf_node_senders_forget(c);
    c->page = page;
    c->fence = fence;
    c->changes = wf_load_acquire(&page->changes) - 1;
    c->service_seen = 0;
    c->attached_at = wf_node_event_tail(c);
    /* What the dead service has not read would be dropped: its attempts are over. */
    c->taken = c->tail;
    wf_store_release(&c->event->taken, c->tail);
    for (uint32_t i = 0; i <= c->flow_mask; i++)
        for (struct node_flow *f = c->flows[i]; f; f = f->next_flow)
            flow_reattach(c, f);
}

/* ---- poll ---- */

/* Exchanges the words of the bell. */
int wf_node_bell_read(struct node_client *c)
{
    struct wf_shm_bell *bell = &c->event->bell;
    uint64_t rung = atomic_exchange_explicit(&bell->rung, 0, memory_order_acquire); /* "slot" */
    int events = 0;
    for (; rung; rung &= rung - 1) {
        uint32_t w = (uint32_t)__builtin_ctzll(rung);
        uint64_t bits;
        if (w >= WF_SHM_BELL_WORDS)
            break;
        bits = atomic_exchange_explicit(&bell->bits[w], 0, memory_order_acquire); /* "slot" */
        for (; bits && !c->failed; bits &= bits - 1) {
            uint32_t bit = 64 * w + (uint32_t)__builtin_ctzll(bits);
            if (bit < WF_NODE_SLOTS)
                events += wf_node_slot_look(c, bit);
            else if (bit < WF_NODE_SLOTS + WF_NODE_PLACES)
                events += wf_node_place_look(c, bit - WF_NODE_SLOTS);
            else if (bit < WF_NODE_SLOTS + WF_NODE_PLACES + WF_NODE_MOVES)
                events += wf_node_move_look(c, bit - WF_NODE_SLOTS - WF_NODE_PLACES);
        }
    }
    return events;
}

static void status_look(struct node_client *c)
{
    if (__builtin_expect(wf_load_relaxed(&c->event->status) != 0, 0))
        wf_node_client_fail(c, "it has ended the endpoint");
}

/* The service is of no use any more: end all flows. */
static int flows_fail(struct node_client *c)
{
    int events = 0;
    wf_node_moves_stop(c);
    for (uint32_t i = 0; i <= c->flow_mask; i++)
        for (struct node_flow *f = c->flows[i]; f; f = f->next_flow)
            if (!f->ended) {
                wf_node_flow_end(c, f, c->failed);
                events++;
            }
    wf_node_senders_lost(c, true);
    c->over = true;
    return events;
}

int wf_node_client_poll(struct node_client *c, uint64_t now_ns, int budget)
{
    int events = 0;
    if (__builtin_expect(c->over, false))
        return 0;
    c->now_ns = now_ns;
    status_look(c);
    if (wf_load_relaxed(&c->event->bell.rung))
        events += wf_node_bell_read(c);
    events += wf_node_sessions_look(c);
    events += wf_node_client_post(c);
    if (c->wants_room && (events || c->has_room || wf_load_relaxed(&c->event->taken) != c->taken)) {
        c->wants_room = c->has_room = false;
        events++;
    }
    events += wf_node_events_poll(c, budget);
    if (!wf_list_empty(&c->ending))
        events += wf_node_flows_ending(c);
    if (c->lost && !(c->changes & 1) && (int32_t)(c->head - c->lost_at) >= 0)
        wf_node_senders_lost(c, false);
    if (__builtin_expect(c->failed, WEFT_OK))
        events += flows_fail(c);
    if (__builtin_expect(c->any_released, false))
        wf_node_flows_free(c);
    return events;
}

bool wf_node_client_drain(struct node_client *c, uint64_t now_ns)
{
    bool left;
    c->now_ns = now_ns;
    status_look(c);
    (void)wf_node_bell_read(c);
    (void)wf_node_sessions_look(c);
    (void)wf_node_client_post(c);
    left = wf_node_has_moves(c) && !c->failed;
    for (uint32_t i = 0; !c->failed && i <= c->flow_mask; i++)
        for (const struct node_flow *f = c->flows[i]; f; f = f->next_flow)
            left |= f->low != f->next && !wf_node_flow_only_heeds(f) && !f->ended && !f->ending;
    return left;
}

/* Does a flow wait for memory, so that no event reports when it can go on? */
static bool is_short(const struct node_client *c)
{
    wf_list_each(it, &c->due)
    {
        const struct node_flow *flow = wf_container_of(it, struct node_flow, due_item);
        if (flow->heeds && flow->live && !flow->journal)
            return true;
    }
    return false;
}

bool wf_node_client_pending(const struct node_client *c)
{
    uint64_t ready = wf_load_acquire(&c->event->entries[c->head & (c->lines - 1)].ready);
    if (c->failed)
        return !c->over;
    return wf_load_acquire(&c->event->bell.rung) ||
           wf_load_acquire(&c->page->changes) != c->changes || wf_shm_is_ready(ready, c->head) ||
           wf_load_acquire(&c->event->status) || wf_node_any_ends(c) ||
           (c->wants_room && c->has_room) || is_short(c) ||
           ((c->wants_room || !wf_list_empty(&c->due)) &&
            wf_load_acquire(&c->event->taken) != c->taken);
}
