/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets that the service's NIC executes. docs/design/node.md "The wire of a move". The
 * engine remembers them: a service that has died has done a move or not, and the core repeats by
 * messages what is not known to be done. */
#include "base/clock.h"
#include "base/hook.h"
#include "transport/node/engine.h"
#include "transport/ring/sleep.h"

/* Returns the session of the flow's destination, or 0 if there is none now. There is no queue pair
 * between clients of one service. */
static uint32_t session_of(const struct node_client *c, const struct node_flow *flow)
{
    uint32_t index = wf_node_word_index(flow->to.word);
    uint64_t word;
    if (flow->to.word == WF_NODE_NO_WORD || index == WF_NODE_OWN)
        return 0;
    word = wf_load_acquire(&c->page->words[index]); /* "page" */
    return wf_node_session_state(word, flow->to.word) == WF_NODE_UP ? (uint32_t)word : 0;
}

/* A flow has no more moves than there are free places, for the same reason for which a session has
 * no more parts than are free (src/node/parts.c). */
static bool has_place(const struct node_client *c, const struct node_flow *flow)
{
    return flow->moves < __builtin_popcountll(c->moves_free);
}

/* A flow whose moves are LOST pauses: the NIC cannot do them now, and each costs its client an
 * entry and a turn before it goes by messages. The first pauses are short, since a queue pair that
 * is being connected needs some milliseconds. */
#define PAUSE_NS UINT64_C(1000000)
#define PAUSE_MAX_NS (UINT64_C(64) * 1000000000)
#define LOSSES_MAX 16 /* PAUSE_NS, doubled as often, is more than PAUSE_MAX_NS */

static bool is_paused(const struct node_client *c, const struct node_flow *flow)
{
    return __builtin_expect(flow->losses != 0, 0) && wf_now_ns() < flow->direct_ns &&
           session_of(c, flow) == flow->lost_session;
}

/* [use] has ended. What the service reports of moves by a session that is over does not begin a
 * pause, nor does a move that was posted before the last pause began, even if that is over. */
static void pause_set(const struct node_client *c, const struct node_move_use *use,
                      enum weft_status status)
{
    struct node_flow *flow = use->flow;
    if (status != WEFT_EUNREACH)
        flow->losses = 0;
    if (status != WEFT_EUNREACH || use->session != session_of(c, flow))
        return;
    if (flow->lost_session != use->session)
        flow->losses = 0;
    if (flow->losses && (int32_t)(use->use - flow->lost_use) <= 0)
        return;
    flow->lost_session = use->session;
    flow->lost_use = c->move_uses;
    flow->direct_ns = wf_now_ns() + WF_MIN(PAUSE_NS << flow->losses, PAUSE_MAX_NS);
    flow->losses += flow->losses < LOSSES_MAX;
}

/* A flow by which nothing was sent may have no word yet. Messages from its destination had one. The
 * word of a service that is lost stays a question: its flows have ended before (engine.c), and no
 * later event would end this one. */
static void word_find(struct node_client *c, struct node_flow *flow)
{
    const struct node_sender *from = wf_node_sender_find(c, flow->to.tag);
    uint64_t word;
    if (!from || from->word == WF_NODE_NO_WORD)
        return;
    word = wf_load_acquire(&c->page->words[wf_node_word_index(from->word)]); /* "page" */
    if (wf_node_session_state(word, from->word) != WF_NODE_LOST)
        wf_node_flow_resolve(c, flow, from->word);
}

enum weft_status wf_node_client_can_move(struct node_client *c, struct node_flow *flow)
{
    if (flow->ended || c->failed)
        return flow->ended ? flow->ended : c->failed;
    if (flow->to.word == WF_NODE_NO_WORD)
        word_find(c, flow);
    if (flow->ending || !session_of(c, flow) || is_paused(c, flow))
        return WEFT_EUNREACH;
    return has_place(c, flow) && wf_node_ring_has_room(c) ? WEFT_OK : wf_node_again(c);
}

enum weft_status wf_node_client_move(struct node_client *c, struct node_flow *flow,
                                     const struct node_move_out *out)
{
    enum weft_status status = wf_node_client_can_move(c, flow);
    uint32_t move = c->moves_free ? (uint32_t)__builtin_ctzll(c->moves_free) : 0;
    struct wf_node_entry *e = &c->submit->entries[c->tail & (c->lines - 1)];
    if (status != WEFT_OK)
        return status;
    c->moves_free &= c->moves_free - 1;
    c->move_uses += 1 + (c->move_uses == UINT32_MAX); /* never 0 */
    c->moves[move] = (struct node_move_use){.flow = flow,
                                            .use = c->move_uses,
                                            .id = out->id,
                                            .session = session_of(c, flow),
                                            .kind = (uint8_t)out->kind,
                                            .user = out->user,
                                            .peer = out->peer};
    flow->moves++;
    e->handler = (uint8_t)out->kind;
    e->nargs = 0;
    e->place = (uint8_t)move;
    e->flags = WF_NODE_MOVE;
    e->where = flow->to.word;
    e->number = out->len;
    e->slot = out->index;
    e->attempt = 0;
    e->session = c->moves[move].session; /* 0, if it has just ended: the service drops the move */
    e->use = c->move_uses;
    e->move = out->at;
    wf_node_entry_publish(c, e, 0, 0);
    return WEFT_OK;
}

/* The place is free before [moved], which may begin another move. */
static void move_end(struct node_client *c, uint32_t move, enum weft_status status)
{
    const struct node_move_use use = c->moves[move];
    c->moves[move] = (struct node_move_use){0};
    c->moves_free |= UINT64_C(1) << move;
    use.flow->moves--;
    c->ops->moved(c->owner, use.flow, &use, status);
}

static bool is_over(const struct node_client *c, uint32_t move, uint64_t moved)
{
    return c->moves[move].use && (uint32_t)moved == c->moves[move].use;
}

bool wf_node_move_is_over(const struct node_client *c, uint32_t move)
{
    return is_over(c, move, wf_load_acquire(&c->event->slots[move].moved)); /* "moved" */
}

int wf_node_move_look(struct node_client *c, uint32_t move)
{
    static const enum weft_status statuses[WF_NODE_MOVE_ENDS] = {
        [WF_NODE_DONE] = WEFT_OK,
        [WF_NODE_MOVE_LOST] = WEFT_EUNREACH,
        [WF_NODE_MOVE_REFUSED] = WEFT_EKEY};
    uint64_t word = wf_load_acquire(&c->event->slots[move].moved); /* "moved" */
    uint32_t end = (uint32_t)(word >> 32);
    if (!is_over(c, move, word))
        return 0;
    if (!end || end >= WF_NODE_MOVE_ENDS) {
        wf_node_client_fail(c, "it ended a put or get in a way that there is not");
        return 0;
    }
    pause_set(c, &c->moves[move], statuses[end]);
    move_end(c, move, statuses[end]);
    WF_HOOK("node.moved");
    return 1;
}

void wf_node_moves_abandon(struct node_client *c)
{
    for (uint32_t move = 0; wf_node_has_moves(c) && move < WF_NODE_MOVES; move++)
        if (c->moves[move].use)
            move_end(c, move, WEFT_EUNREACH);
}

void wf_node_gets_abandon(struct node_client *c)
{
    for (uint32_t move = 0; wf_node_has_moves(c) && move < WF_NODE_MOVES; move++)
        if (c->moves[move].use && wf_node_kind_gets(c->moves[move].kind))
            move_end(c, move, WEFT_EUNREACH);
}

void wf_node_moves_stop(struct node_client *c)
{
    for (uint32_t move = 0; wf_node_has_moves(c) && move < WF_NODE_MOVES; move++)
        if (!wf_node_move_look(c, move) && c->moves[move].use)
            c->ops->stop(c->owner, &c->moves[move]);
    wf_node_moves_abandon(c);
}
