/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/msg_cost.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/util.h"
#include "config/config.h"
#include "core/core.h"
#include "core/flow.h"
#include "core/path.h"
#include "core/sender.h"

#define SOON 16u /* the first messages of a class are all measured, then one of EACH */
#define EACH 4u
#define MARGIN 10u /* a way is cheaper if it saves one part in so many */

/* Messages that go the other way do so in a row, BURST of TURN: the receiver's cores hold the
 * sender's bytes, or do not, as they would if all messages went that way. The first SETTLE messages
 * have a burst in each FIRST. */
enum { BURST = 8, FIRST = 128, SETTLE = 1024, TURN = 1024 };

/* ---- receiving ---- */

static bool is_measured(const struct wf_sender *s)
{
    return wf_config()->msg_measure && s->transport && s->transport->caps & WF_CAP_PULL;
}

/* Returns the costs of [s], after making them, or NULL if there is no memory: then nothing is
 * measured. */
static struct wf_costs *costs_of(struct wf_sender *s)
{
    if (!s->costs)
        s->costs = calloc(1, sizeof *s->costs);
    return s->costs;
}

static bool is_due(uint8_t *count)
{
    uint8_t n = *count;
    *count = n == UINT8_MAX ? SOON : (uint8_t)(n + 1);
    return n < SOON || n % EACH == 0;
}

/* Add a message whose bytes took [ns] to the cost [c]. A process that lost its core makes a message
 * cost many times as much. So a dear message raises the cost by at most a sixteenth, and a cheap
 * one lowers it by a quarter of the difference: [c] comes to lie where a fifth of the messages are
 * cheaper. */
static void cost_add(uint16_t *c, uint64_t len, uint64_t ns)
{
    uint64_t ps = WF_MIN(ns, UINT32_MAX) * 1000 / len;
    uint32_t old = *c, is = (uint32_t)WF_MIN(WF_MAX(ps, 16), WF_COST_DENIED - 1);
    if (old && old != WF_COST_DENIED)
        is = is < old ? old - (old - is + 3) / 4 : WF_MIN(is, old + old / 16);
    *c = (uint16_t)is;
}

static struct wf_costs *costs_for(struct wf_sender *s, uint64_t len)
{
    return wf_cost_class(len) < WF_COST_CLASSES && is_measured(s) ? costs_of(s) : NULL;
}

uint64_t wf_cost_parts_begin(struct wf_sender *s, uint64_t len)
{
    struct wf_costs *costs = costs_for(s, len);
    return costs && is_due(&costs->parts[wf_cost_class(len)]) ? wf_now_ns() : 0;
}

void wf_cost_parts_end(struct wf_sender *s, uint64_t len, uint64_t first, uint64_t began)
{
    uint64_t ns = wf_now_ns() - began;
    /* the sender has copied the first part before the time began, as fast as the others went */
    ns += ns * first / len;
    cost_add(&s->costs->of[wf_cost_class(len)].parts, len, ns);
}

uint64_t wf_cost_pull_begin(struct wf_sender *s, uint64_t len)
{
    struct wf_costs *costs = costs_for(s, len);
    return costs && is_due(&costs->pulls[wf_cost_class(len)]) ? wf_now_ns() : 0;
}

void wf_cost_pull_end(struct wf_sender *s, uint64_t len, uint64_t began)
{
    cost_add(&s->costs->of[wf_cost_class(len)].pull, len, wf_now_ns() - began);
}

void wf_cost_pull_denied(struct wf_sender *s)
{
    if (!is_measured(s) || !costs_of(s))
        return;
    for (unsigned i = 0; i < WF_COST_CLASSES; i++)
        s->costs->of[i].pull = WF_COST_DENIED;
}

uint32_t wf_cost_report(const struct wf_sender *s, uint64_t len)
{
    unsigned class = wf_cost_class(len);
    if (class == WF_COST_CLASSES || !s || !s->costs)
        return 0;
    return s->costs->of[class].parts | (uint32_t)s->costs->of[class].pull << 16;
}

/* ---- sending ---- */

bool wf_choice_is_parts(const struct weft_peer *peer, uint64_t len)
{
    unsigned class = wf_cost_class(len), bit = 1u << class;
    const struct wf_choice *c = peer->flow ? &peer->flow->choice : NULL;
    if (c && class < WF_COST_CLASSES && c->known & bit)
        return c->parts & bit;
    return len <= peer->ep->parts_max;
}

bool wf_choice_is_turned(struct weft_peer *peer, uint64_t len, bool parts)
{
    unsigned class = wf_cost_class(len), n;
    struct wf_choice *c;
    if (class == WF_COST_CLASSES || !peer->ep->measures || !peer->flow)
        return false;
    c = &peer->flow->choice;
    n = c->sent[class];
    c->sent[class] = n == UINT16_MAX ? SETTLE : (uint16_t)(n + 1);
    n %= n < SETTLE ? FIRST : TURN;
    if (parts && c->of[class].pull == WF_COST_DENIED)
        return false;
    return n >= BURST && n < 2 * BURST;
}

void wf_choice_learn(struct weft_peer *peer, uint64_t len, uint32_t report)
{
    unsigned class = wf_cost_class(len), bit = 1u << class;
    struct wf_cost cost = {(uint16_t)report, (uint16_t)(report >> 16)};
    struct wf_choice *c;
    if (class == WF_COST_CLASSES || !peer->ep->measures || !peer->flow)
        return;
    c = &peer->flow->choice;
    c->of[class] = cost;
    if (!cost.pull || (!cost.parts && cost.pull != WF_COST_DENIED))
        return;
    if (!(c->known & bit) && len <= peer->ep->parts_max)
        c->parts |= (uint8_t)bit;
    c->known |= (uint8_t)bit;
    if (cost.parts < cost.pull - cost.pull / MARGIN)
        c->parts |= (uint8_t)bit;
    else if (cost.pull < cost.parts - cost.parts / MARGIN)
        c->parts &= (uint8_t)~bit;
}

struct wf_cost wf_choice_cost(const struct weft_peer *peer, uint64_t len)
{
    unsigned class = wf_cost_class(len);
    struct wf_cost none = {0, 0};
    return class < WF_COST_CLASSES && peer->flow ? peer->flow->choice.of[class] : none;
}
