/* SPDX-License-Identifier: BSD-3-Clause */
/* The event ring and the reply places: messages that arrive. All that the service has written is
 * copied, then checked. */
#include "transport/node/engine.h"

#include <stdlib.h>

#include "base/hook.h"
#include "transport/ring/sleep.h"

/* ---- senders ---- */

static struct node_sender **bucket_of(const struct node_client *c, uint64_t tag)
{
    return &c->senders[(tag ^ tag >> 32) & c->sender_mask];
}

struct node_sender *wf_node_sender_find(const struct node_client *c, uint64_t tag)
{
    struct node_sender *s = *bucket_of(c, tag);
    while (s && s->tag != tag)
        s = s->next_sender;
    return s;
}

/* Double the table. Without memory its chains get longer. */
static void table_grow(struct node_client *c)
{
    uint32_t mask = c->sender_mask;
    struct node_sender **old = c->senders, **more = calloc(2 * ((size_t)mask + 1), sizeof *more);
    if (!more)
        return;
    c->senders = more;
    c->sender_mask = 2 * mask + 1;
    for (uint32_t i = 0; i <= mask; i++)
        for (struct node_sender *s = old[i], *next; s; s = next) {
            struct node_sender **to = bucket_of(c, s->tag);
            next = s->next_sender;
            s->next_sender = *to;
            *to = s;
        }
    free(old);
}

/* Returns NULL without memory, or if the bytes are no address: *bad is then set. */
static struct node_sender *sender_new(struct node_client *c, uint64_t tag, const uint8_t *bytes,
                                      bool *bad)
{
    struct node_sender *s = calloc(1, sizeof *s), **at = bucket_of(c, tag);
    if (!s)
        return NULL;
    if (wf_address_parse(bytes, WF_ADDRESS_BYTES, &s->address, &s->contact) != WEFT_OK) {
        free(s);
        *bad = true;
        return NULL;
    }
    s->tag = tag;
    s->next_sender = *at;
    *at = s;
    if (++c->nsenders > c->sender_mask)
        table_grow(c);
    return s;
}

void wf_node_senders_free(struct node_client *c)
{
    for (uint32_t i = 0; c->senders && i <= c->sender_mask; i++)
        for (struct node_sender *s = c->senders[i], *next; s; s = next) {
            next = s->next_sender;
            c->ops->gone(c->owner, s);
            free(s);
        }
    free(c->senders);
}

/* ---- the event ring ---- */

enum arrival {
    DELIVERED,
    DROPPED, /* it came twice */
    STRANGE, /* its sender has left a number out */
    ENDED,   /* the end of a sender */
    WAITS,
    BAD, /* the service errs */
};

static bool entry_ok(const struct node_client *c, const struct wf_node_entry *e,
                     const struct node_am *am)
{
    uint32_t before = e->flags & WF_NODE_BEGIN ? WF_NODE_SENDER : 0;
    return am->len <= c->am_max && am->nargs <= WF_NODE_ARGS && am->reply_max <= c->am_max + 1 &&
           !(e->flags & ~(WF_NODE_BESIDE | WF_NODE_BEGIN | WF_NODE_HEED | WF_NODE_END)) &&
           (!am->reply_max || e->place < WF_NODE_PLACES) && e->slot < WF_NODE_INDEXES &&
           wf_node_body_ok(wf_node_body(am->len, am->nargs), e->flags, e->where,
                           c->size / 2 / WF_NODE_BLOCK, WF_NODE_EVENT_DATA, before);
}

/* Set the data and arguments of [am] from its [body]. */
static void body_take(struct node_client *c, struct node_am *am, const uint8_t *body)
{
    am->data = body;
    if (am->nargs)
        wf_copy_small(c->args, body + wf_align_up(am->len, 4), 4u * am->nargs);
}

/* The sender of an entry, or NULL: [*why] then says what to do. */
static struct node_sender *sender_of(struct node_client *c, const struct wf_node_entry *e,
                                     const uint8_t *block, enum arrival *why)
{
    struct node_sender *s = wf_node_sender_find(c, e->event.tag);
    bool bad = false;
    if (s)
        return s;
    *why = STRANGE;
    if (!(e->flags & WF_NODE_BEGIN) || e->number)
        return NULL;
    s = sender_new(c, e->event.tag, block, &bad);
    if (!s)
        *why = bad ? BAD : WAITS;
    return s;
}

static void deliver(struct node_client *c, struct node_am *am)
{
    c->replying = am->reply_max ? am : NULL;
    c->ops->deliver(c->owner, am);
    if (c->replying == am)
        wf_node_client_no_reply(c, am);
    c->replying = NULL;
}

static void sender_end(struct node_client *c, struct node_sender *s)
{
    struct node_sender **at = bucket_of(c, s->tag);
    while (*at != s)
        at = &(*at)->next_sender;
    *at = s->next_sender;
    c->nsenders--;
    if (s->replies) /* nobody replies any more: it is freed once it has ended */
        wf_node_flow_release(c, s->replies);
    c->ops->gone(c->owner, s);
    free(s);
}

static bool is_lost(const struct node_client *c, const struct node_sender *s)
{
    uint64_t word = wf_load_acquire(&c->page->words[wf_node_word_index(s->word)]); /* "page" */
    return s->word != WF_NODE_NO_WORD && wf_node_session_state(word, s->word) == WF_NODE_LOST;
}

void wf_node_sender_end(struct node_client *c, uint64_t tag)
{
    struct node_sender *s = wf_node_sender_find(c, tag);
    if (s)
        sender_end(c, s);
}

static uint32_t session_of(const struct node_client *c, uint32_t word)
{
    return (uint32_t)wf_load_acquire(&c->page->words[wf_node_word_index(word)]); /* "page" */
}

/* Services that have died meanwhile report the sender's end only to endpoints with a flow to it. */
static void sender_heed(struct node_client *c, const struct node_sender *s)
{
    const struct node_target to = {
        .tag = s->tag, .index = s->contact.index, .ep = s->address.ep, .word = s->word};
    struct node_flow *flow = wf_node_flow_find(c, &to, false);
    if (!flow || flow->ended || flow->ending || flow->low != flow->next ||
        (flow->live && flow->next))
        return;
    flow->heeds = true;
    if (!wf_node_is_due(flow))
        wf_list_append(&c->due, &flow->due_item);
}

static void sender_look(struct node_client *c, struct node_sender *s)
{
    uint32_t session;
    if (s->word == WF_NODE_NO_WORD || (session = session_of(c, s->word)) == s->session)
        return;
    s->session = session;
    sender_heed(c, s);
}

void wf_node_senders_lost(struct node_client *c, bool all)
{
    c->lost = false;
    for (uint32_t i = 0; i <= c->sender_mask; i++)
        for (struct node_sender *s = c->senders[i], *next; s; s = next) {
            next = s->next_sender;
            if (all || is_lost(c, s))
                sender_end(c, s);
            else
                sender_look(c, s);
        }
}

void wf_node_senders_forget(struct node_client *c)
{
    for (uint32_t i = 0; i <= c->sender_mask; i++)
        for (struct node_sender *s = c->senders[i]; s; s = s->next_sender) {
            s->word = WF_NODE_NO_WORD;
            sender_heed(c, s);
        }
}

/* [word] is that of a message of [s], which may have come in an earlier session than the present
 * one if the page has changed since this endpoint looked: then wf_node_senders_lost looks at [s].
 */
static void sender_moves(struct node_client *c, struct node_sender *s, uint32_t word)
{
    uint32_t session = word == WF_NODE_NO_WORD ? 0 : session_of(c, word);
    bool changed = c->lost || wf_load_acquire(&c->page->changes) != c->changes; /* "page" */
    s->word = word;
    s->session = changed ? 0 : session;
    if (word == WF_NODE_NO_WORD)
        sender_heed(c, s);
}

/* Its replies came before its end, but by other memory: look there first. */
static enum arrival end_take(struct node_client *c, const struct wf_node_entry *e)
{
    enum weft_status why = e->handler == WF_NODE_CLOSED ? WEFT_ECLOSED : WEFT_EPEER;
    struct node_sender *s = wf_node_sender_find(c, e->event.tag);
    (void)wf_node_bell_read(c);
    wf_node_flows_end(c, e->event.tag, why);
    if (s)
        sender_end(c, s);
    return ENDED;
}

/* [e] is a copy of the entry at c->head. */
static enum arrival entry_take(struct node_client *c, const struct wf_node_entry *e, uint64_t ready)
{
    const uint8_t *block =
        (uint8_t *)c->event + wf_node_payload_at(c->size) + (size_t)e->where * WF_NODE_BLOCK;
    bool known = (int32_t)(c->head - c->attached_at) >= 0;
    enum arrival why = BAD;
    struct node_am am = {.args = c->args,
                         .len = (uint16_t)(ready >> 32),
                         .reply_max = (uint16_t)(ready >> 48),
                         .handler = e->handler,
                         .nargs = e->nargs,
                         .place = e->place,
                         .use = e->use,
                         .word = known ? e->session : WF_NODE_NO_WORD,
                         .index = e->slot,
                         .ep = e->attempt};
    if (!entry_ok(c, e, &am))
        return BAD;
    if (e->flags & WF_NODE_END)
        return end_take(c, e);
    am.from = sender_of(c, e, block, &why);
    if (!am.from)
        return why;
    if ((int32_t)(e->number - am.from->expect) < 0)
        return DROPPED; /* a successor of a service sent it again */
    if (e->number != am.from->expect)
        return STRANGE;
    if (am.reply_max && !wf_node_reply_room(c, &am))
        return WAITS;
    if (e->flags & WF_NODE_BESIDE) {
        body_take(c, &am, block + (e->flags & WF_NODE_BEGIN ? WF_NODE_SENDER : 0));
    } else {
        memcpy(c->data, e->event.data, WF_NODE_EVENT_DATA);
        body_take(c, &am, c->data);
    }
    am.from->expect++;
    if (am.from->word != am.word || !e->number) /* a new one has no word */
        sender_moves(c, am.from, am.word);
    if (!(e->flags & WF_NODE_HEED))
        deliver(c, &am);
    return DELIVERED;
}

static void taken_publish(struct node_client *c)
{
    wf_store_release(&c->submit->taken, c->head); /* "taken" */
    WF_HOOK("node.taken");
    if (wf_sleep_must_wake(&c->page->sleep_epoch, &c->service_seen, c->fence))
        c->ops->wake(c->owner);
}

int wf_node_events_poll(struct node_client *c, int budget)
{
    uint32_t from = c->head;
    int events = 0;
    while (events < budget && !c->failed) {
        const struct wf_node_entry *line = &c->event->entries[c->head & (c->lines - 1)];
        uint64_t ready = wf_load_acquire(&line->ready); /* "entry" */
        struct wf_node_entry e;
        enum arrival a;
        if (!wf_shm_is_ready(ready, c->head))
            break;
        memcpy((uint8_t *)&e + 8, (const uint8_t *)line + 8, sizeof e - 8);
        a = entry_take(c, &e, ready);
        if (a == WAITS)
            break;
        if (a == BAD) {
            wf_node_client_fail(c, "it delivered a message that breaks the protocol");
            break;
        }
        c->dropped += a == DROPPED;
        c->strange += a == STRANGE;
        WF_HOOK("node.delivered");
        c->head++;
        events++;
    }
    if (c->head != from)
        taken_publish(c);
    return events;
}

/* ---- replies ---- */

void wf_node_place_free(struct node_client *c, uint32_t place)
{
    struct node_place_use *use = &c->places[place];
    wf_store_relaxed(&c->event->places[place].waits, 0);
    if (use->blocks)
        wf_node_blocks_give(&c->reply_blocks, use->where, use->blocks);
    *use = (struct node_place_use){0};
    c->places_free |= UINT64_C(1) << place;
}

int wf_node_place_look(struct node_client *c, uint32_t place)
{
    const struct wf_node_place *p = &c->event->places[place];
    const struct node_place_use use = c->places[place];
    uint64_t ready = wf_load_acquire(&p->ready); /* "reply" */
    uint64_t rest = __atomic_load_n((const uint64_t *)(const void *)&p->handler, __ATOMIC_RELAXED);
    struct node_am am = {.args = c->args,
                         .len = (uint16_t)(ready >> 32),
                         .handler = (uint8_t)rest,
                         .nargs = (uint8_t)(rest >> 8),
                         .flow = use.flow};
    uint8_t flags = (uint8_t)(rest >> 24);
    uint32_t body = wf_node_body(am.len, am.nargs);
    if (!use.flow || !wf_shm_is_ready(ready, use.use))
        return 0;
    if (am.len > use.room || am.nargs > WF_NODE_ARGS ||
        body > (flags & WF_NODE_BESIDE ? use.blocks * WF_NODE_BLOCK : WF_NODE_REPLY_DATA)) {
        wf_node_client_fail(c, "it delivered a reply that does not fit its request");
        return 0;
    }
    if (flags & WF_NODE_BESIDE) {
        body_take(c, &am,
                  (uint8_t *)c->event + wf_node_reply_blocks_at(c->size) +
                      (size_t)use.where * WF_NODE_BLOCK);
    } else {
        memcpy(c->data, p->data, body);
        body_take(c, &am, c->data);
    }
    if (!(flags & WF_NODE_NO_REPLY))
        c->ops->replied(c->owner, &am);
    WF_HOOK("node.replied");
    if (c->places[place].use == use.use)
        wf_node_place_free(c, place);
    return 1;
}
