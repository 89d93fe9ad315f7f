/* SPDX-License-Identifier: BSD-3-Clause */
/* The submit ring: messages into the journal, and from there into entries. */
#include "transport/node/engine.h"

#include <stdlib.h>

#include "base/hook.h"
#include "transport/ring/sleep.h"

/* Load what the service has consumed. Returns false if there is no room. */
static bool taken_load(struct node_client *c)
{
    c->taken = wf_load_acquire(&c->event->taken); /* "taken" */
    if (c->tail - c->taken > c->lines) {
        wf_node_client_fail(c, "it consumed entries that were not written");
        return false;
    }
    return c->tail - c->taken < c->lines;
}

bool wf_node_ring_has_room(struct node_client *c)
{
    return c->tail - c->taken < c->lines || taken_load(c);
}

static uint8_t *block_at(struct node_client *c, uint32_t where)
{
    return (uint8_t *)c->submit + wf_node_submit_blocks_at(c->size) + (size_t)where * WF_NODE_BLOCK;
}

static uint32_t blocks_of(uint32_t bytes)
{
    return (bytes + WF_NODE_BLOCK - 1) / WF_NODE_BLOCK;
}

static void body_write(uint8_t *to, const struct wf_am_out *out)
{
    if (out->pieces)
        wf_am_pieces_copy(to, out);
    else if (out->len <= WF_NODE_SUBMIT_DATA)
        wf_copy_small(to, out->data, out->len);
    else
        memcpy(to, out->data, out->len);
    if (!out->nargs)
        return;
    if (out->len & 3)
        memset(to + out->len, 0, -out->len & 3);
    wf_shm_copy_args(to + wf_align_up(out->len, 4), out->args, out->nargs);
}

/* Publish the entry of message [r] with number [flow->posted]. There is room, and a long body is in
 * its block. */
static inline void entry_post(struct node_client *c, struct node_flow *flow,
                              const struct node_record *r)
{
    struct wf_node_entry *e = &c->submit->entries[c->tail & (c->lines - 1)];
    bool beside = r->where != WF_NODE_NO_BLOCK;
    e->handler = r->handler;
    e->nargs = r->nargs;
    e->place = r->place;
    e->flags =
        (uint8_t)(r->flags | (beside ? WF_NODE_BESIDE : 0) | (flow->begins ? WF_NODE_BEGIN : 0));
    e->where = beside ? r->where : 0;
    e->number = flow->posted++;
    e->slot = (uint16_t)flow->slot;
    e->attempt = flow->attempt;
    e->session = flow->session;
    e->use = r->use;
    memcpy(e->data, r->data, sizeof e->data);
    flow->begins = false;
    wf_node_entry_publish(c, e, r->len, r->reply_max);
}

/* Move a body from own memory to a block, so that it can be posted. */
static bool body_place(struct node_client *c, struct node_record *r)
{
    uint32_t body = wf_node_body(r->len, r->nargs);
    if (!r->own)
        return true;
    r->where = wf_node_blocks_take(&c->blocks, blocks_of(body));
    if (r->where == WF_NODE_NO_BLOCK)
        return false;
    memcpy(block_at(c, r->where), r->own, body);
    free(r->own);
    r->own = NULL;
    c->own_bytes -= body;
    return true;
}

/* Add a message to the journal. Its long body is in [where] or in [own], or is to be written there
 * by the caller. */
static struct node_record *record_add(struct node_client *c, struct node_flow *flow,
                                      const struct wf_am_out *out, uint32_t body)
{
    struct node_record *r = wf_node_record_at(flow, flow->next);
    if (flow->low == flow->next)
        wf_list_remove(&flow->slot_item); /* no longer idle */
    flow->next++;
    r->own = NULL;
    r->where = WF_NODE_NO_BLOCK;
    r->use = 0;
    r->len = (uint16_t)out->len;
    r->reply_max = (uint16_t)out->reply_max;
    r->handler = out->handler;
    r->nargs = (uint8_t)out->nargs;
    r->place = WF_NODE_NO_PLACE;
    r->flags = 0;
    flow->bytes += body;
    c->sent_bytes += body;
    return r;
}

/* Add the message that makes the services know the flow, unless there is another one. Without
 * memory the flow still heeds, and stays due. */
static void heed_add(struct node_client *c, struct node_flow *flow)
{
    const struct wf_am_out none = {0};
    if (flow->posted == flow->next) {
        if (!wf_node_journal_open(c, flow))
            return;
        record_add(c, flow, &none, 0)->flags = WF_NODE_HEED;
    }
    flow->heeds = false;
}

int wf_node_flow_post(struct node_client *c, struct node_flow *flow)
{
    int n = 0;
    if (!flow->live &&
        ((flow->slot < 0 && flow->retry_ns > c->now_ns) || !wf_node_flow_begin(c, flow)))
        return 0;
    if (flow->heeds)
        heed_add(c, flow);
    while (flow->posted != flow->next && wf_node_ring_has_room(c)) {
        struct node_record *r = wf_node_record_at(flow, flow->posted);
        if (!body_place(c, r))
            break;
        entry_post(c, flow, r);
        n++;
    }
    if (flow->posted == flow->next && !flow->heeds)
        wf_list_remove(&flow->due_item);
    return n;
}

int wf_node_client_post(struct node_client *c)
{
    struct wf_list due;
    int n = 0;
    if (wf_list_empty(&c->due))
        return 0;
    wf_list_take(&due, &c->due);
    while (!wf_list_empty(&due)) {
        struct node_flow *flow = wf_container_of(wf_list_pop(&due), struct node_flow, due_item);
        wf_list_append(&c->due, &flow->due_item);
        n += wf_node_flow_post(c, flow);
    }
    if (!wf_list_empty(&c->due))
        (void)taken_load(c); /* so that more room than now is noticed (wf_node_client_pending) */
    return n;
}

enum weft_status wf_node_again(struct node_client *c)
{
    if (c->failed)
        return c->failed;
    c->wants_room = true;
    /* What the service has consumed before is no news: the ring was not what had no room. */
    if (c->tail - c->taken < c->lines)
        (void)taken_load(c);
    return WEFT_AGAIN;
}

static uint32_t reply_blocks_of(const struct wf_am_out *out)
{
    uint32_t body = out->reply_max ? wf_node_body(out->reply_max - 1, WF_NODE_ARGS) : 0;
    return body > WF_NODE_REPLY_DATA ? blocks_of(body) : 0;
}

/* Claim a place whose block of [blocks] blocks is [where]. */
static void place_claim(struct node_client *c, struct node_flow *flow, struct node_record *r,
                        uint32_t where, uint32_t blocks)
{
    uint8_t i = (uint8_t)__builtin_ctzll(c->places_free);
    struct wf_node_place *p = &c->event->places[i];
    c->places_free &= c->places_free - 1;
    c->uses += 1 + (c->uses == UINT32_MAX); /* never 0 */
    c->places[i] = (struct node_place_use){flow, c->uses, where, blocks, r->reply_max - 1u};
    r->place = i;
    r->use = c->uses;
    p->where = blocks ? where : 0;
    p->room = blocks * WF_NODE_BLOCK;
    wf_store_relaxed(&p->ready, 0);
    WF_HOOK("node.place");
    wf_store_relaxed(&p->waits, c->uses);
}

/* May a message be added to the journal? If the flow has no attempt under way, because its service
 * is not known yet or away, the message waits there. */
static inline bool may_send(struct node_client *c, struct node_flow *flow, uint32_t body)
{
    uint32_t sent = flow->next - flow->low;
    if (flow->refused || flow->ending || sent >= WF_NODE_WINDOW ||
        flow->bytes + body > c->size / 4 || (c->sent_bytes > 4u * c->size && sent))
        return false;
    if (!wf_node_journal_open(c, flow)) {
        c->has_room = true; /* no event reports memory: the next poll lets it try again */
        return false;
    }
    if (!flow->live && (flow->posted != flow->next || !wf_node_flow_begin(c, flow)))
        return true;
    return flow->posted == flow->next && wf_node_ring_has_room(c);
}

enum weft_status wf_node_client_send(struct node_client *c, struct node_flow *flow,
                                     const struct wf_am_out *out)
{
    uint32_t body = wf_node_body(out->len, out->nargs), reply = reply_blocks_of(out);
    uint32_t where = WF_NODE_NO_BLOCK, reply_at = 0;
    struct node_record *r;
    if (flow->ended || c->failed)
        return flow->ended ? flow->ended : c->failed;
    if (!may_send(c, flow, body) || (out->reply_max && !c->places_free))
        return wf_node_again(c);
    if (body > WF_NODE_SUBMIT_DATA &&
        (where = wf_node_blocks_take(&c->blocks, blocks_of(body))) == WF_NODE_NO_BLOCK)
        return wf_node_again(c);
    if (reply && (reply_at = wf_node_blocks_take(&c->reply_blocks, reply)) == WF_NODE_NO_BLOCK) {
        if (where != WF_NODE_NO_BLOCK)
            wf_node_blocks_give(&c->blocks, where, blocks_of(body));
        return wf_node_again(c);
    }
    /* From here on, no step can fail. */
    flow->heeds = false;
    r = record_add(c, flow, out, body);
    r->where = where;
    body_write(where == WF_NODE_NO_BLOCK ? r->data : block_at(c, where), out);
    if (out->reply_max)
        place_claim(c, flow, r, reply_at, reply);
    if (flow->live)
        entry_post(c, flow, r);
    else if (!wf_node_is_due(flow))
        wf_list_append(&c->due, &flow->due_item);
    return WEFT_OK;
}

enum weft_status wf_node_client_heed(struct node_client *c, struct node_flow *flow)
{
    if (c->failed)
        return flow->ended ? flow->ended : c->failed;
    if (flow->ended || flow->ending || flow->low != flow->next || (flow->live && flow->next))
        return flow->ended; /* the services know the flow, or will */
    flow->heeds = true;
    if (!wf_node_is_due(flow))
        wf_list_append(&c->due, &flow->due_item);
    (void)wf_node_flow_post(c, flow);
    return WEFT_OK;
}

/* ---- replies ---- */

bool wf_node_reply_room(struct node_client *c, const struct node_am *am)
{
    const struct node_target to = {
        .tag = am->from->tag, .index = am->index, .ep = am->ep, .word = am->word};
    uint32_t body = wf_node_body(am->reply_max - 1, WF_NODE_ARGS);
    struct node_flow *flow = am->from->replies;
    if (!flow)
        flow = am->from->replies = wf_node_flow_find(c, &to, true);
    if (flow && flow->ended)
        return true; /* its replies are dropped */
    if (flow && flow->to.word == WF_NODE_NO_WORD && am->word != WF_NODE_NO_WORD)
        wf_node_flow_resolve(c, flow, am->word); /* a successor's */
    if (!flow || !wf_node_journal_open(c, flow))
        return false;
    if (!c->spare)
        c->spare = malloc(wf_node_body(c->am_max, WF_NODE_ARGS));
    return c->spare && c->replies < WF_NODE_WINDOW && c->reply_bytes + body <= c->size / 4;
}

/* Where a long body of a reply goes. */
static uint8_t *reply_body(struct node_client *c, struct node_record *r, uint32_t body)
{
    r->where = wf_node_blocks_take(&c->blocks, blocks_of(body));
    if (r->where != WF_NODE_NO_BLOCK)
        return block_at(c, r->where);
    c->own_bytes += body;
    r->own = malloc(body);
    if (!r->own) {
        r->own = c->spare;
        c->spare = NULL;
    }
    return r->own;
}

static void reply_send(struct node_client *c, const struct node_am *am, const struct wf_am_out *out,
                       uint8_t flags)
{
    struct node_flow *flow = am->from->replies;
    uint32_t body = wf_node_body(out->len, out->nargs);
    struct node_record *r;
    c->replying = NULL;
    if (flow->ended || c->failed)
        return; /* nobody waits */
    WF_HOOK("node.reply");
    r = record_add(c, flow, out, body);
    c->replies++;
    c->reply_bytes += body;
    r->reply_max = 0;
    r->flags = (uint8_t)(WF_NODE_REPLY | flags);
    r->place = am->place;
    r->use = am->use;
    body_write(body <= WF_NODE_SUBMIT_DATA ? r->data : reply_body(c, r, body), out);
    if (flow->refused || wf_node_is_due(flow)) /* or it is ending */
        return;
    wf_list_append(&c->due, &flow->due_item);
    (void)wf_node_flow_post(c, flow);
}

void wf_node_client_reply(struct node_client *c, const struct node_am *am,
                          const struct wf_am_out *out)
{
    if (c->replying == am)
        reply_send(c, am, out, 0);
}

void wf_node_client_no_reply(struct node_client *c, const struct node_am *am)
{
    const struct wf_am_out none = {0};
    reply_send(c, am, &none, WF_NODE_NO_REPLY);
}
