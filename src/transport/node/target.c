/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows: their slots, their attempts, and the words by which the services answer. */
#include "transport/node/engine.h"

#include <stdlib.h>

#include "base/hook.h"

static uint32_t bucket_of(const struct node_client *c, uint64_t tag, bool is_reply)
{
    return ((uint32_t)(tag ^ tag >> 32) * 2 + is_reply) & c->flow_mask;
}

/* Double the table. Without memory its chains get longer. */
static void table_grow(struct node_client *c)
{
    uint32_t mask = c->flow_mask;
    struct node_flow **old = c->flows, **flows = calloc(2 * ((size_t)mask + 1), sizeof *flows);
    if (!flows)
        return;
    c->flows = flows;
    c->flow_mask = 2 * mask + 1;
    for (uint32_t i = 0; i <= mask; i++)
        for (struct node_flow *f = old[i], *next; f; f = next) {
            struct node_flow **to = &flows[bucket_of(c, f->to.tag, f->is_reply)];
            next = f->next_flow;
            f->next_flow = *to;
            *to = f;
        }
    free(old);
}

static void ask(struct node_client *c, struct node_flow *flow)
{
    if (flow->asked)
        return;
    flow->asked = true;
    c->ops->resolve(c->owner, flow);
}

static struct node_flow *lookup(const struct node_client *c, uint64_t tag, bool is_reply)
{
    struct node_flow *flow = c->flows[bucket_of(c, tag, is_reply)];
    while (flow && (flow->to.tag != tag || flow->is_reply != is_reply))
        flow = flow->next_flow;
    return flow;
}

struct node_flow *wf_node_flow_lookup(const struct node_client *c, uint64_t tag)
{
    return lookup(c, tag, false);
}

struct node_flow *wf_node_flow_find(struct node_client *c, const struct node_target *to,
                                    bool is_reply)
{
    struct node_flow **at = &c->flows[bucket_of(c, to->tag, is_reply)];
    struct node_flow *flow = lookup(c, to->tag, is_reply);
    if (flow)
        return flow;
    flow = calloc(1, sizeof *flow);
    if (!flow)
        return NULL;
    flow->to = *to;
    flow->is_reply = is_reply;
    flow->slot = -1;
    wf_list_init(&flow->slot_item);
    wf_list_init(&flow->due_item);
    flow->next_flow = *at;
    *at = flow;
    if (++c->nflows > c->flow_mask)
        table_grow(c);
    return flow;
}

void wf_node_flow_resolve(struct node_client *c, struct node_flow *flow, uint32_t word)
{
    flow->to.word = word;
    flow->asked = false;
    c->has_room = true;
}

/* ---- slots ---- */

static void slot_leave(struct node_client *c, struct node_flow *flow)
{
    if (flow->slot >= 0) {
        c->by_slot[flow->slot] = NULL;
        c->slots_free[flow->slot / 64] |= UINT64_C(1) << flow->slot % 64;
    }
    flow->slot = -1;
    flow->live = false;
    wf_list_remove(&flow->slot_item);
}

/* The flow was refused, and leaves its slot to another one: it tries again after a while. */
static void slot_yield(struct node_client *c, struct node_flow *flow)
{
    slot_leave(c, flow);
    flow->refused = false;
    flow->posted = flow->low;
    flow->backoff_ns = WF_MIN(WF_MAX(2 * flow->backoff_ns, WF_NODE_PROBE_NS), WF_NODE_PROBE_MAX_NS);
    flow->retry_ns = c->now_ns + flow->backoff_ns;
    wf_list_append(&c->due, &flow->due_item);
}

static bool slot_take(struct node_client *c, struct node_flow *flow)
{
    if (!wf_list_empty(&c->idle)) {
        uint32_t w = 0;
        while (w < WF_ARRAY_LEN(c->slots_free) && !c->slots_free[w])
            w++;
        if (w == WF_ARRAY_LEN(c->slots_free)) {
            struct node_flow *idle = wf_container_of(c->idle.next, struct node_flow, slot_item);
            slot_leave(c, idle);
            wf_node_journal_keep(c, idle);
        }
    }
    for (uint32_t w = 0; w < WF_ARRAY_LEN(c->slots_free); w++)
        if (c->slots_free[w]) {
            uint32_t slot = 64 * w + (uint32_t)__builtin_ctzll(c->slots_free[w]);
            c->slots_free[w] &= c->slots_free[w] - 1;
            flow->slot = (int16_t)slot;
            c->by_slot[slot] = flow;
            return true;
        }
    if (wf_list_empty(&c->refused))
        return false;
    slot_yield(c, wf_container_of(c->refused.next, struct node_flow, slot_item));
    return slot_take(c, flow);
}

/* Write the flow's record. A service that reads it meanwhile sees an attempt of 0, or two different
 * ones, and drops its entry, which is of an earlier attempt. */
static void record_write(struct node_client *c, const struct node_flow *flow)
{
    struct wf_node_record *r = &c->submit->records[flow->slot];
    struct wf_node_slot *slot = &c->event->slots[flow->slot];
    wf_store_relaxed(&r->attempt, 0);
    atomic_thread_fence(memory_order_release);
    r->word = (uint16_t)wf_node_word_index(flow->to.word);
    r->index = flow->to.index;
    r->ep = flow->to.ep;
    r->flags = 0;
    r->tag = flow->to.tag;
    WF_HOOK("node.record");
    wf_store_relaxed(&slot->near, 0);
    wf_store_relaxed(&slot->far, 0);
    wf_store_relaxed(&slot->acked, 0);
    wf_store_release(&r->attempt, flow->attempt); /* "record" */
}

bool wf_node_flow_begin(struct node_client *c, struct node_flow *flow)
{
    uint64_t word;
    if (flow->to.word == WF_NODE_NO_WORD) {
        ask(c, flow);
        if (flow->to.word == WF_NODE_NO_WORD)
            return false;
    }
    word = wf_load_acquire(&c->page->words[wf_node_word_index(flow->to.word)]); /* "page" */
    if (wf_node_session_state(word, flow->to.word) != WF_NODE_UP ||
        (flow->slot < 0 && !slot_take(c, flow)))
        return false;
    c->attempts[flow->slot] += 1 + (c->attempts[flow->slot] == UINT16_MAX); /* never 0 */
    flow->attempt = c->attempts[flow->slot];
    flow->session = (uint32_t)word;
    record_write(c, flow);
    flow->live = flow->begins = true;
    flow->refused = false;
    flow->posted = flow->low;
    wf_list_remove(&flow->slot_item);
    if (flow->low == flow->next)
        wf_list_append(&c->idle, &flow->slot_item);
    return true;
}

/* All is acknowledged. */
static void flow_idle(struct node_client *c, struct node_flow *flow)
{
    if (flow->refused)
        flow->refused = flow->live = false;
    wf_list_remove(&flow->due_item);
    wf_list_remove(&flow->slot_item);
    if (flow->slot >= 0)
        wf_list_append(&c->idle, &flow->slot_item);
    else
        wf_node_journal_keep(c, flow);
}

void wf_node_flow_again(struct node_client *c, struct node_flow *flow)
{
    flow->live = flow->refused = false;
    flow->posted = flow->low;
    wf_list_remove(&flow->slot_item);
    if (flow->low == flow->next)
        flow_idle(c, flow);
    if ((flow->low != flow->next || flow->heeds) && !wf_node_is_due(flow))
        wf_list_append(&c->due, &flow->due_item);
}

void wf_node_flow_anew(struct node_client *c, struct node_flow *flow)
{
    bool known = flow->live && !flow->is_reply;
    wf_node_journal_park(c, flow);
    wf_node_flow_again(c, flow);
    if (!known || flow->low != flow->next || flow->heeds)
        return;
    flow->heeds = true;
    if (!wf_node_is_due(flow))
        wf_list_append(&c->due, &flow->due_item);
}

void wf_node_flow_end(struct node_client *c, struct node_flow *flow, enum weft_status why)
{
    if (flow->ended)
        return;
    if (flow->moves) { /* the poll ends it after them */
        wf_node_flow_ending(c, flow, why);
        return;
    }
    flow->ended = why;
    flow->ending = WEFT_OK;
    flow->unacked = flow->low != flow->next && !wf_node_flow_only_heeds(flow);
    wf_node_journal_ack(c, flow, flow->next);
    wf_list_remove(&flow->due_item);
    slot_leave(c, flow);
    wf_node_journal_keep(c, flow);
    c->any_released |= flow->released;
    for (uint32_t i = 0; i < WF_NODE_PLACES; i++)
        if (c->places[i].flow == flow)
            wf_node_place_free(c, i);
    c->ops->ended(c->owner, flow, why);
}

void wf_node_flow_release(struct node_client *c, struct node_flow *flow)
{
    flow->released = c->any_released = true;
}

void wf_node_flows_free(struct node_client *c)
{
    c->any_released = false;
    for (uint32_t i = 0; i <= c->flow_mask; i++)
        for (struct node_flow **at = &c->flows[i], *flow; (flow = *at);) {
            if (!flow->released || !flow->ended) {
                at = &flow->next_flow;
                continue;
            }
            *at = flow->next_flow;
            c->nflows--;
            free(flow->user);
            free(flow);
        }
}

void wf_node_flows_end(struct node_client *c, uint64_t tag, enum weft_status why)
{
    for (int is_reply = 0; is_reply < 2; is_reply++) {
        struct node_flow *flow = lookup(c, tag, is_reply);
        if (flow)
            wf_node_flow_end(c, flow, why);
    }
}

void wf_node_flow_ending(struct node_client *c, struct node_flow *flow, enum weft_status why)
{
    if (flow->ended || flow->ending)
        return;
    if (flow->is_reply) { /* else its replies take the room for which the requests before wait */
        wf_node_flow_end(c, flow, why);
        return;
    }
    flow->ending = why;
    flow->ends_at = wf_node_event_tail(c);
    wf_list_remove(&flow->slot_item);
    wf_list_remove(&flow->due_item);
    wf_list_append(&c->ending, &flow->due_item);
}

static bool can_end(const struct node_client *c, const struct node_flow *flow)
{
    return (int32_t)(c->head - flow->ends_at) >= 0 && !flow->moves;
}

bool wf_node_any_ends(const struct node_client *c)
{
    wf_list_each(it, &c->ending) if (can_end(c, wf_container_of(it, struct node_flow,
                                                                due_item))) return true;
    return false;
}

/* The endpoint of [tag] has ended, or the service of [word] was lost, by which the flow to it went.
 * An endpoint from which messages have come by another word since then still sends. */
static void sender_over(struct node_client *c, uint64_t tag, uint32_t word, enum weft_status why)
{
    const struct node_sender *s = wf_node_sender_find(c, tag);
    if (s && s->word != word && s->word != WF_NODE_NO_WORD && word != WF_NODE_NO_WORD)
        return;
    wf_node_flows_end(c, tag, why);
    wf_node_sender_end(c, tag);
}

int wf_node_flows_ending(struct node_client *c)
{
    struct wf_list ending;
    int n = 0;
    wf_list_take(&ending, &c->ending);
    while (!wf_list_empty(&ending)) {
        struct node_flow *flow = wf_container_of(wf_list_pop(&ending), struct node_flow, due_item);
        if (can_end(c, flow)) {
            const uint64_t tag = flow->to.tag;
            const uint32_t word = flow->to.word;
            const enum weft_status why = flow->ending;
            const bool is_over = flow->is_over;
            wf_node_flow_end(c, flow, why);
            if (is_over)
                sender_over(c, tag, word, why);
            n++;
        } else {
            wf_list_append(&c->ending, &flow->due_item);
        }
    }
    return n;
}

/* ---- words ---- */

static int acked_look(struct node_client *c, struct node_flow *flow)
{
    uint64_t word = wf_load_acquire(&c->event->slots[flow->slot].acked); /* "slot" */
    uint32_t n = (uint32_t)word - flow->low;
    if (word >> 32 != flow->attempt || !n)
        return 0;
    if (n > flow->next - flow->low) {
        wf_node_client_fail(c, "it acknowledged messages that were not sent");
        return 0;
    }
    wf_node_journal_ack(c, flow, (uint32_t)word);
    flow->backoff_ns = 0;
    if (flow->low == flow->next)
        flow_idle(c, flow);
    return 1;
}

static void flow_refused(struct node_client *c, struct node_flow *flow)
{
    if (flow->refused || flow->low == flow->next)
        return;
    wf_node_journal_park(c, flow);
    flow->refused = true;
    wf_list_remove(&flow->due_item);
    wf_list_append(&c->refused, &flow->slot_item);
}

/* The room of this service counts once all that was sent before the refused message is
 * acknowledged: until then the other service may refuse that. */
static bool near_has_room(const struct node_flow *flow, uint64_t near, unsigned far)
{
    return wf_node_word_state((uint32_t)near, flow->attempt) == WF_NODE_ROOM &&
           far != WF_NODE_REFUSED && (int32_t)(flow->low - (uint32_t)(near >> 32)) >= 0;
}

int wf_node_slot_look(struct node_client *c, uint32_t slot)
{
    const struct wf_node_slot *words = &c->event->slots[slot];
    struct node_flow *flow = c->by_slot[slot];
    int events;
    unsigned far;
    uint64_t near;
    bool had_ended, is_over;
    if (!flow || !flow->live || flow->ending)
        return 0;
    had_ended = flow->ended != WEFT_OK;
    events = acked_look(c, flow);
    if (!flow->live || c->failed)
        return events;
    far = wf_node_word_state(wf_load_acquire(&words->far), flow->attempt); /* "slot" */
    near = wf_load_acquire(&words->near);                                  /* "slot" */
    if (far == WF_NODE_CLOSED || far == WF_NODE_DEAD)
        events += acked_look(c, flow); /* acknowledgements from before [far] was written */
    if (!flow->live || c->failed)
        return events;
    if (far == WF_NODE_CLOSED || far == WF_NODE_DEAD) {
        flow->is_over = true;
        wf_node_flow_ending(c, flow, far == WF_NODE_CLOSED ? WEFT_ECLOSED : WEFT_EPEER);
    } else if (far == WF_NODE_ROOM || near_has_room(flow, near, far)) {
        if (flow->low != flow->next) /* else the attempt stays, in which its end is reported */
            wf_node_flow_again(c, flow);
    } else if (far == WF_NODE_REFUSED ||
               wf_node_word_state((uint32_t)near, flow->attempt) == WF_NODE_REFUSED)
        flow_refused(c, flow);
    /* A flow of replies ends at once, which gives other flows its room. */
    is_over = flow->ending || (flow->ended && !had_ended);
    return events + is_over;
}

bool wf_node_flow_is_past(struct node_client *c, struct node_flow *flow, uint32_t number)
{
    if (flow->live && !flow->ending && !c->failed)
        (void)acked_look(c, flow);
    return flow->ended || (int32_t)(flow->low - number) > 0;
}

static void session_look(struct node_client *c, struct node_flow *flow)
{
    uint64_t word;
    unsigned state;
    if (flow->ended || flow->ending || flow->to.word == WF_NODE_NO_WORD)
        return;
    word = wf_load_acquire(&c->page->words[wf_node_word_index(flow->to.word)]); /* "page" */
    state = wf_node_session_state(word, flow->to.word);
    if (flow->live && (state != WF_NODE_UP || (uint32_t)word != flow->session)) {
        (void)acked_look(c, flow);
        wf_node_flow_anew(c, flow);
    }
    if (state == WF_NODE_LOST) {
        flow->is_over = true;
        wf_node_flow_ending(c, flow, WEFT_EPEER);
    }
}

int wf_node_sessions_look(struct node_client *c)
{
    uint32_t changes = wf_load_acquire(&c->page->changes); /* "page" */
    if (changes == c->changes)
        return 0;
    c->changes = changes;
    c->lost = true;
    c->lost_at = wf_node_event_tail(c);
    for (uint32_t i = 0; i <= c->flow_mask; i++)
        for (struct node_flow *f = c->flows[i]; f && !c->failed; f = f->next_flow)
            session_look(c, f);
    return 1;
}
