/* SPDX-License-Identifier: BSD-3-Clause */
/* The C twin of tests/model/node.pml: random schedules of clients, services and lanes. Services die
 * between any two steps; receivers stop; slots, rows of expect, waiters, rings and lanes are few.
 * Each message arrives once, in its flow's order, with its own bytes; each reply that was asked for
 * arrives once; and at the end nothing is missing.
 *
 *     node_schedule_test [SCHEDULES [STEPS [SEED]]] */
#include "unit/node_bed.h"

struct stamp {
    uint32_t from, seq, reply; /* reply: payload bytes of the reply, plus 1; 0: none wanted */
};

static uint64_t steps_done, dups, deaths, replies;

static void body_fill(uint8_t *bytes, uint32_t len, uint64_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(wf_rand(&seed) >> 40);
}

static void body_check(const uint8_t *bytes, uint32_t len, uint64_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        CHECK(bytes[i] == (uint8_t)(wf_rand(&seed) >> 40));
}

static uint64_t seed_of(uint32_t from, uint32_t to, uint32_t seq, bool reply)
{
    return ((uint64_t)from << 8 | to) << 40 | (uint64_t)reply << 39 | seq;
}

static unsigned number_of(const struct bed_client *b)
{
    return b->service->side * BED_SIDE + b->index - 5u;
}

/* The stamp is in the arguments, or at the beginning of the payload if there are none. */
static void on_request(struct bed_client *b, const struct node_am *am)
{
    struct stamp s;
    unsigned from;
    const uint8_t *data = am->data;
    uint32_t skip = am->nargs ? 0 : sizeof s;
    CHECK(!((uintptr_t)am->data & 15));
    memcpy(&s, am->nargs ? (const void *)am->args : am->data, sizeof s);
    from = s.from % BED_SIDE;
    CHECK(s.from / BED_SIDE == !b->service->side && s.seq == b->got[from]);
    CHECK(am->from->address.process.token[0] == 100 * !b->service->side + from + 1);
    CHECK((am->reply_max != 0) == (s.reply != 0) && am->handler == s.seq % 200);
    body_check(data + skip, am->len - skip, seed_of(s.from, number_of(b), s.seq, false));
    for (unsigned i = 3; i < am->nargs; i++)
        CHECK(am->args[i] == s.seq + i);
    b->got[from]++;
    if (s.reply && s.seq % 7) { /* else the handler does not reply */
        uint8_t bytes[BED_AM_MAX];
        uint32_t args[16] = {s.from, s.seq, number_of(b)};
        const struct wf_am_out out = wf_am_out(1, args, 3 + s.seq % 14, bytes, s.reply - 1, 0);
        body_fill(bytes, s.reply - 1, seed_of(s.from, number_of(b), s.seq, true));
        wf_node_client_reply(b->c, am, &out);
    }
}

static void on_reply(struct bed_client *b, const struct node_am *am)
{
    unsigned to = am->args[2];
    CHECK(am->nargs >= 3 && am->args[0] == number_of(b) && to / BED_SIDE == !b->service->side);
    CHECK(am->flow == b->to[to % BED_SIDE]);
    body_check(am->data, am->len, seed_of(am->args[0], to, am->args[1], true));
    b->answered[to % BED_SIDE]++;
    replies++;
}

static void send_one(struct bed *bed, struct bed_client *b)
{
    static const uint32_t lens[] = {0, 8, 20, 32, 33, 100, 1000, BED_AM_MAX};
    uint8_t bytes[BED_AM_MAX];
    unsigned k = bed_draw(bed, bed->limits.clients), nargs = bed_draw(bed, 3) ? 0 : 3;
    uint32_t seq = b->sent[k], len = lens[bed_draw(bed, 8)], args[16];
    struct stamp s = {number_of(b), seq, 0};
    struct wf_am_out out;
    unsigned to = !b->service->side * BED_SIDE + k;
    if (!bed_draw(bed, 4))
        s.reply = 1 + lens[bed_draw(bed, 8)];
    nargs += nargs ? bed_draw(bed, 14) : 0;
    if (!nargs && len < sizeof s)
        len = sizeof s;
    body_fill(bytes + (nargs ? 0 : sizeof s), len - (nargs ? 0 : (uint32_t)sizeof s),
              seed_of(s.from, to, seq, false));
    memcpy(nargs ? (void *)args : bytes, &s, sizeof s);
    for (unsigned i = 3; i < nargs; i++)
        args[i] = seq + i;
    out = wf_am_out(seq % 200, args, nargs, bytes, len, s.reply);
    if (wf_node_client_send(b->c, b->to[k], &out) != WEFT_OK)
        return;
    b->sent[k]++;
    b->wanted[k] += s.reply && seq % 7;
}

static void client_step(struct bed *bed, struct bed_client *b)
{
    if (b->stopped)
        return;
    if (!b->attached && b->service->mover && !bed_draw(bed, 4))
        bed_reattach(b);
    if (b->attached && b->nasked && !bed_draw(bed, 2))
        bed_resolve_all(b);
    for (unsigned n = bed_draw(bed, 4); n; n--)
        send_one(bed, b);
    (void)wf_node_client_poll(b->c, bed->now, (int)bed_draw(bed, 6));
    CHECK(!b->c->failed && !b->c->strange && !b->ended);
    CHECK(b->c->own_bytes <= b->c->sent_bytes);
    CHECK(b->c->sent_bytes <= 5u * bed->limits.size + 2 * BED_SIDE * wf_node_longest(BED_AM_MAX));
    CHECK(b->c->replies <= WF_NODE_WINDOW && b->c->reply_bytes <= bed->limits.size / 4);
}

static void service_step(struct bed *bed, unsigned side)
{
    struct bed_service *s = &bed->services[side];
    bool all = true;
    if (!s->mover) { /* the other side sees its end, or a successor starts */
        struct bed_service *other = &bed->services[!side];
        if (other->mover && !bed_draw(bed, 3))
            CHECK(wf_node_session_set(other->mover, BED_WORD, WF_NODE_AWAY) == WEFT_OK);
        if (!bed_draw(bed, 4))
            bed_service_start(s, true);
        return;
    }
    for (unsigned i = 0; i < bed->limits.clients; i++)
        all = all && bed->clients[side][i].attached;
    if (all)
        wf_node_mover_settle(s->mover);
    if (!bed->up && bed->services[!side].mover && !bed_draw(bed, 4))
        bed_connect(bed);
    (void)wf_node_mover_turn(s->mover);
    CHECK(!s->failed);
}

static void lane_step(struct bed *bed)
{
    unsigned side = bed_draw(bed, 2), lane = bed_draw(bed, BED_LANES);
    for (unsigned n = bed_draw(bed, 6); n && bed_frame(&bed->services[side], lane); n--)
        ;
}

static void step(struct bed *bed, bool faults)
{
    unsigned side = bed_draw(bed, 2), what = bed_draw(bed, 1000);
    struct bed_client *b = &bed->clients[side][bed_draw(bed, bed->limits.clients)];
    bed->now += 100000;
    steps_done++;
    if (faults && what < 2 && bed->services[side].mover) {
        bed_kill(bed, side);
        deaths++;
    } else if (faults && what < 10) {
        b->stopped = !b->stopped;
    } else if (what < 400) {
        client_step(bed, b);
    } else if (what < 700) {
        service_step(bed, side);
    } else {
        lane_step(bed);
    }
}

static bool all_delivered(const struct bed *bed)
{
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < bed->limits.clients; i++)
            for (unsigned k = 0; k < bed->limits.clients; k++) {
                const struct bed_client *from = &bed->clients[side][i];
                const struct bed_client *to = &bed->clients[!side][k];
                CHECK(to->got[i] <= from->sent[k] && from->answered[k] <= from->wanted[k]);
                if (to->got[i] != from->sent[k] || from->answered[k] != from->wanted[k] ||
                    from->to[k]->low != from->to[k]->next || from->c->sent_bytes ||
                    from->c->places_free != UINT64_MAX)
                    return false;
            }
    return true;
}

static void report(const struct bed *bed)
{
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < bed->limits.clients; i++)
            for (unsigned f = 0; f <= bed->clients[side][i].c->flow_mask; f++)
                for (const struct node_flow *w = bed->clients[side][i].c->flows[f]; w;
                     w = w->next_flow)
                    fprintf(stderr,
                            "client %u.%u, %s to %u: low %u posted %u next %u slot %d attempt %u "
                            "live %d refused %d due %d word %u\n",
                            side, i, w->is_reply ? "replies" : "requests", w->to.index, w->low,
                            w->posted, w->next, w->slot, w->attempt, w->live, w->refused,
                            wf_node_is_due(w), w->to.word);
}

/* No further deaths, stops or sends: all messages arrive in a bounded number of rounds. */
static void finish(struct bed *bed)
{
    int round;
    for (round = 0; round < 20000 && !all_delivered(bed); round++) {
        bed->now += 1000000;
        for (unsigned side = 0; side < 2; side++) {
            for (unsigned lane = 0; lane < BED_LANES; lane++)
                while (bed_frame(&bed->services[side], lane))
                    ;
            service_step(bed, side);
            for (unsigned i = 0; i < bed->limits.clients; i++) {
                struct bed_client *b = &bed->clients[side][i];
                b->stopped = false;
                if (!b->attached && b->service->mover)
                    bed_reattach(b);
                bed_resolve_all(b);
                (void)wf_node_client_poll(b->c, bed->now, 100);
            }
        }
    }
    if (!all_delivered(bed)) {
        report(bed);
        CHECK(!"all arrives");
    }
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < bed->limits.clients; i++) {
            const struct node_client *c = bed->clients[side][i].c;
            dups += c->dropped;
            CHECK(!c->own_bytes);
            CHECK(c->blocks.nfree == c->blocks.count);
            CHECK(c->reply_blocks.nfree == c->reply_blocks.count);
        }
}

static void schedule(uint64_t seed, unsigned long steps)
{
    struct bed *bed = calloc(1, sizeof *bed);
    CHECK(bed);
    bed->rand = seed;
    bed->on_request = on_request;
    bed->on_reply = on_reply;
    bed->limits = (struct bed_limits){.clients = 1 + bed_draw(bed, BED_SIDE),
                                      .lines = 8u << bed_draw(bed, 4),
                                      .rows = 8u << bed_draw(bed, 2),
                                      .waiters = 2u << bed_draw(bed, 4),
                                      .slots = 1 + bed_draw(bed, 6),
                                      .lane_room = 2 + bed_draw(bed, 40),
                                      .size = WF_NODE_RING_MIN};
    bed_open(bed);
    for (unsigned long i = 0; i < steps; i++)
        step(bed, true);
    finish(bed);
    bed_close(bed);
    free(bed);
}

int main(int argc, char **argv)
{
    unsigned long schedules = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    unsigned long steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 3000;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    for (unsigned long i = 0; i < schedules; i++) {
        if (argc > 4)
            fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + i));
        schedule(seed + i, steps);
    }
    printf("%lu schedules, %llu steps, %llu deaths of services, %llu replies, %llu messages came "
           "twice and were dropped\n",
           schedules, (unsigned long long)steps_done, (unsigned long long)deaths,
           (unsigned long long)replies, (unsigned long long)dups);
    return 0;
}
