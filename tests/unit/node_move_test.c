/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets that the NIC of a node service executes. Clients and services are those of
 * node_bed.h. The NICs are the test's: they end an operation when the test chooses. */
#include "unit/unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "unit/node_bed.h"

enum { INCARNATION = 77, KEY = 5, MEMORY = 16384, PART = 256 << 10, OPS = 4096, SIDES = 2 };

/* What the NIC of a service has been given, and has not ended. */
struct nic_op {
    struct bed_service *s;
    uint32_t id, incarnation;
    struct wf_nic_op op;
};

static struct nic_op ops[OPS];
static unsigned nops, posted, refusals; /* refusals: to come, of AGAIN */
static unsigned moved, stopped;
static uint32_t last_id;
static enum weft_status last_status, first_status;
static struct bed *bed;

/* ---- the NICs ---- */

static enum weft_status on_move(struct bed_service *s, const struct wf_nic_op *op,
                                uint32_t incarnation, size_t *taken)
{
    if (incarnation != INCARNATION)
        return WEFT_EKEY;
    if (refusals) {
        refusals--;
        return WEFT_AGAIN;
    }
    assert_true(nops < OPS && op->len && op->len <= PART);
    assert_int_equal(op->keys[0], KEY);
    ops[nops++] = (struct nic_op){s, op->id, incarnation, *op};
    posted++;
    *taken = op->len;
    return WEFT_OK;
}

static void op_remove(unsigned i)
{
    memmove(&ops[i], &ops[i + 1], (--nops - i) * sizeof *ops);
}

/* The NIC ends its oldest part. */
static void end_one(enum weft_status status)
{
    struct nic_op first = ops[0];
    assert_true(nops);
    op_remove(0);
    wf_node_part_done(first.s->mover, first.id, status);
}

static void on_moved(struct bed_client *b, uint32_t id, void *user, enum weft_status status)
{
    (void)b;
    (void)user;
    if (!moved++)
        first_status = status;
    last_id = id;
    last_status = status;
}

static void on_stop(struct bed_client *b, void *user)
{
    (void)b;
    (void)user;
    stopped++;
}

static void on_message(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    (void)am;
}

/* ---- the bed ---- */

static unsigned clients = 2;

static int begin(void **state)
{
    (void)state;
    bed = calloc(1, sizeof *bed);
    assert_non_null(bed);
    bed->on_request = bed->on_reply = on_message;
    bed->on_move = on_move;
    bed->on_moved = on_moved;
    bed->on_stop = on_stop;
    bed->limits = (struct bed_limits){.clients = clients,
                                      .rows = 64,
                                      .waiters = 64,
                                      .slots = 8,
                                      .lane_room = 64,
                                      .size = 256 << 10};
    wf_log_set_level((enum wf_log_level) - 1); /* each failure is logged */
    nops = posted = refusals = moved = stopped = last_id = 0;
    bed_open(bed);
    return 0;
}

static int end(void **state)
{
    (void)state;
    bed_close(bed);
    free(bed);
    return 0;
}

static struct bed_client *client(unsigned i)
{
    return &bed->clients[0][i];
}

static uint64_t window_of(const struct bed_client *b)
{
    return (uint64_t)wf_node_window(b->index, 1) << WF_NODE_WINDOW_BITS;
}

static enum weft_status move_at(struct bed_client *b, enum wf_node_move_kind kind, uint64_t local,
                                uint32_t len, uint32_t id, uint32_t incarnation)
{
    const struct node_move_out out = {
        .kind = kind, .len = len, .at = {local, 4096, 9, KEY, incarnation, 0}, .id = id};
    return wf_node_client_move(b->c, b->to[0], &out);
}

static enum weft_status move_to(struct bed_client *b, unsigned to, uint32_t len, uint32_t id)
{
    const struct node_move_out out = {
        .len = len, .at = {window_of(b), 4096, 9, KEY, INCARNATION, 0}, .id = id};
    return wf_node_client_move(b->c, b->to[to], &out);
}

static enum weft_status move(struct bed_client *b, uint32_t len, uint32_t id)
{
    return move_at(b, WF_NODE_PUT, window_of(b), len, id, INCARNATION);
}

static void turn(void)
{
    bed->now += 1000000;
    (void)wf_node_mover_turn(bed->services[0].mover);
    for (unsigned i = 0; i < 2; i++)
        (void)wf_node_client_poll(client(i)->c, bed->now, 100);
}

/* Flows whose moves were LOST may move again. */
static void unpause(void)
{
    for (unsigned i = 0; i < 2; i++)
        client(i)->to[0]->losses = 0;
}

/* Clients whose moves broke a queue pair may move again. */
static void forgive(void)
{
    struct node_mover *m = bed->services[0].mover;
    unpause();
    memset(m->blames, 0, m->nindexes * sizeof *m->blames);
}

static void exchange(int rounds)
{
    while (rounds--) {
        for (unsigned side = 0; side < SIDES; side++) {
            (void)wf_node_mover_turn(bed->services[side].mover);
            for (unsigned lane = 0; lane < BED_LANES; lane++)
                while (bed_frame(&bed->services[side], lane))
                    ;
        }
        for (unsigned side = 0; side < SIDES; side++)
            for (unsigned i = 0; i < 2; i++)
                if (bed->clients[side][i].attached)
                    (void)wf_node_client_poll(bed->clients[side][i].c, bed->now, 100);
    }
}

/* ---- the cases ---- */

static void test_one(void **state)
{
    (void)state;
    OK(move(client(0), 8, 11));
    assert_true(wf_node_has_moves(client(0)->c));
    turn();
    assert_int_equal(nops, 1);
    assert_int_equal(ops[0].op.kind, WF_NIC_OP_PUT);
    assert_int_equal(ops[0].op.len, 8);
    assert_int_equal(ops[0].op.lkey, 9);
    assert_int_equal(ops[0].op.remote, 4096);
    assert_int_equal((uintptr_t)ops[0].op.local, window_of(client(0)));
    assert_int_equal(moved, 0);
    end_one(WEFT_OK);
    assert_true(wf_node_client_pending(client(0)->c));
    turn();
    assert_int_equal(moved, 1);
    assert_int_equal(last_id, 11);
    assert_int_equal(last_status, WEFT_OK);
    assert_false(wf_node_has_moves(client(0)->c));
    OK(move_at(client(0), WF_NODE_GET, window_of(client(0)) + 64, 100, 12, INCARNATION));
    turn();
    assert_int_equal(ops[0].op.kind, WF_NIC_OP_GET);
    end_one(WEFT_OK);
    turn();
    assert_int_equal(last_id, 12);
    assert_int_equal(client(0)->wakes, 0);
}

/* A long move: parts that follow each other, at most 1 MiB of them under way. */
static void test_parts(void **state)
{
    uint64_t at = 0;
    (void)state;
    OK(move(client(0), 6 * PART + 5, 1));
    for (int i = 0; i < 10; i++)
        turn();
    assert_int_equal(nops, 4);
    for (unsigned n = 0; n < 7; n++) {
        assert_int_equal((uintptr_t)ops[0].op.local, window_of(client(0)) + at);
        assert_int_equal(ops[0].op.remote, 4096 + at);
        assert_int_equal(ops[0].op.len, n < 6 ? PART : 5);
        at += ops[0].op.len;
        assert_int_equal(moved, 0);
        end_one(WEFT_OK);
        turn();
    }
    assert_int_equal(moved, 1);
    assert_int_equal(last_status, WEFT_OK);
    assert_int_equal(posted, 7);
}

/* Between the reading of a short move and its posting, each other move has one part posted at most;
 * and it does not wait for the bytes under way. */
static void test_turns(void **state)
{
    unsigned before;
    (void)state;
    for (uint32_t i = 0; i < 8; i++)
        OK(move(client(0), 64 * PART, i));
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(nops, 4);
    OK(move(client(1), 8, 100));
    OK(move(client(0), 8, 101));
    end_one(WEFT_OK);
    before = posted;
    turn();
    assert_true(posted - before <= 3); /* a part, and the two short ones */
    for (unsigned id = 100; id < 102; id++) {
        unsigned i = 0;
        while (i < nops && ops[i].op.len != 8)
            i++;
        assert_true(i < nops);
        op_remove(i);
    }
}

/* Two endpoints that have always something to post, post the same, also if there is room for one
 * part at a time, and whatever the number of turns between. */
static void test_equal(void **state)
{
    uint64_t bytes[2] = {0};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        OK(move(client(0), 100 * PART, i));
        OK(move(client(1), 100 * PART, i));
    }
    for (int i = 0; i < 300; i++) {
        for (int turns = 0; turns <= i % 3; turns++)
            turn();
        for (unsigned left = i < 150 ? 0 : 3; nops > left;) {
            bytes[(uintptr_t)ops[0].op.local >> WF_NODE_WINDOW_BITS ==
                  wf_node_window(client(1)->index, 1)] += ops[0].op.len;
            end_one(WEFT_OK);
        }
    }
    assert_true(bytes[0] <= bytes[1] + 2 * PART && bytes[1] <= bytes[0] + 2 * PART);
    assert_true(bytes[0] >= 100 * PART);
}

/* The worst end of the parts. No more of them are posted. */
static void test_failures(void **state)
{
    (void)state;
    OK(move(client(0), 6 * PART, 1));
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(nops, 4);
    end_one(WEFT_OK);
    end_one(WEFT_EUNREACH);
    turn();
    end_one(WEFT_EKEY);
    assert_int_equal(moved, 0);
    end_one(WEFT_EUNREACH);
    turn();
    assert_int_equal(moved, 1);
    assert_int_equal(last_status, WEFT_EKEY);
    assert_int_equal(posted, 4);
    forgive();
    OK(move_at(client(0), WF_NODE_PUT, window_of(client(0)), 8, 2, INCARNATION - 1));
    turn();
    assert_int_equal(moved, 2);
    assert_int_equal(last_status, WEFT_EKEY);
    OK(move(client(0), 8, 3));
    turn();
    end_one(WEFT_ELIMIT);
    turn();
    assert_int_equal(last_status, WEFT_EUNREACH);
    assert_int_equal(bed->services[0].failed, 0);
}

/* A flow by which nothing was sent moves by the word of the messages from its destination. */
static void test_word(void **state)
{
    const struct wf_am_out none = {.handler = 1};
    struct bed_client *b = client(0), *from = &bed->clients[1][0];
    const uint32_t word = b->to[0]->to.word;
    (void)state;
    b->to[0]->to.word = WF_NODE_NO_WORD;
    assert_int_equal(wf_node_client_can_move(b->c, b->to[0]), WEFT_EUNREACH);
    OK(wf_node_client_send(from->c, from->to[0], &none));
    exchange(2);
    OK(wf_node_client_can_move(b->c, b->to[0]));
    assert_int_equal(b->to[0]->to.word, word);
    OK(move(b, 8, 1));
    turn();
    end_one(WEFT_OK);
    turn();
    assert_int_equal(last_status, WEFT_OK);
}

static void test_room(void **state)
{
    (void)state;
    refusals = 3;
    OK(move(client(0), 8, 1));
    for (int i = 0; i < 3; i++)
        turn();
    assert_int_equal(nops, 0);
    turn();
    assert_int_equal(nops, 1);
    end_one(WEFT_OK);
    turn();
    for (uint32_t i = 0; i < WF_NODE_MOVES / 2; i++)
        OK(move(client(0), 8, i));
    assert_int_equal(move(client(0), 8, 64), WEFT_AGAIN);
    for (int i = 0; i < 3; i++)
        turn();
    assert_int_equal(moved, 1);
    assert_int_equal(nops, WF_NODE_MOVES / 2);
    end_one(WEFT_OK);
    bed->now++;
    assert_true(wf_node_client_poll(client(0)->c, bed->now, 1) > 0);
    OK(move(client(0), 8, 64));
    OK(move_to(client(0), 1, 8, 65)); /* another flow has places left */
}

/* One session does not take all parts. */
static void test_share(void **state)
{
    (void)end(state);
    clients = 3;
    (void)begin(state);
    for (unsigned i = 0; i < clients; i++)
        for (uint32_t k = 0; k < 3 * WF_NODE_MOVES / 4; k++)
            OK(move_to(client(i), k >= WF_NODE_MOVES / 2, 8, k));
    for (int i = 0; i < 5; i++)
        (void)wf_node_mover_turn(bed->services[0].mover);
    assert_int_equal(nops, WF_NODE_PARTS / 2);
    for (unsigned n = 0; n < 9 * WF_NODE_MOVES / 4; n++) {
        end_one(WEFT_OK);
        (void)wf_node_mover_turn(bed->services[0].mover);
    }
    assert_int_equal(bed->services[0].mover->nparts, 0);
    assert_int_equal(bed->services[0].mover->sessions[BED_WORD]->nparts, 0);
    clients = 2;
}

/* Short moves that found no room go before long ones in the next turn, and in their order. */
static void test_short_first(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        OK(move(client(0), 2 * PART, i));
    OK(move(client(0), 8, 8));
    OK(move(client(0), 9, 9));
    refusals = 1;
    turn();
    assert_int_equal(nops, 0);
    turn();
    assert_int_equal(nops, 3);
    assert_int_equal(ops[0].op.len, 9);
    assert_int_equal(ops[1].op.len, 8);
    assert_int_equal(ops[2].op.len, PART);
}

/* A queue pair without room is asked once a turn, whatever the number of moves that wait for it,
 * and of their endpoints. */
static void test_asked_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WF_NODE_MOVES / 2; i++) {
        OK(move(client(0), i % 2 ? PART : 8, i));
        OK(move(client(1), i % 2 ? PART : 8, i));
    }
    refusals = 3;
    for (unsigned i = 3; i-- > 0;) {
        turn();
        assert_int_equal(refusals, i);
        assert_int_equal(nops, 0);
    }
    turn();
    assert_true(nops > WF_NODE_MOVES / 2);
}

/* A client whose part broke a queue pair: its moves are not posted for a while, which doubles each
 * time, and those of others are. */
static void test_blame(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct node_blame *b = &m->blames[client(0)->index];
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        uint64_t begin = wf_now_ns(), pause = UINT64_C(1000000000) << (i < 6 ? i : 6);
        enum weft_status why = i % 2 ? WEFT_EINVAL : WEFT_EKEY;
        OK(move(client(0), 8, i));
        turn();
        assert_int_equal(nops, 1);
        end_one(why);
        turn();
        assert_int_equal(last_status, why == WEFT_EKEY ? WEFT_EKEY : WEFT_EUNREACH);
        unpause();
        assert_in_range(b->until_ns, begin + pause, wf_now_ns() + pause);
        OK(move(client(0), 8 * PART, 100));
        turn();
        assert_int_equal(nops, 0);
        assert_int_equal(last_id, 100);
        assert_int_equal(last_status, WEFT_EUNREACH);
        unpause();
        OK(move(client(1), 8, 101));
        turn();
        end_one(WEFT_OK);
        turn();
        assert_int_equal(last_status, WEFT_OK);
        b->until_ns = begin - 1;
    }
    OK(move(client(0), 8, 1));
    turn();
    end_one(WEFT_EUNREACH); /* another client's doing */
    turn();
    unpause();
    assert_true(b->until_ns < wf_now_ns());
    b->until_ns = UINT64_MAX; /* of the client that had the index before */
    b->window++;
    OK(move(client(0), 8, 1));
    turn();
    end_one(WEFT_OK);
    b->until_ns = 1; /* long ago: the first pause again */
    b->window--;
    OK(move(client(0), 8, 2));
    turn();
    end_one(WEFT_EKEY);
    assert_true(b->until_ns <= wf_now_ns() + 1000000000);
}

/* Get by the key of [window]. Returns whether the NIC was given the part, which then ends with
 * [status], as the move does. */
static bool get_one(struct bed_client *b, enum wf_node_move_kind kind, uint32_t window,
                    enum weft_status status)
{
    const struct node_move_out out = {
        .kind = kind,
        .len = 8,
        .at = {window_of(b), (uint64_t)window << WF_NODE_WINDOW_BITS, 9, KEY, INCARNATION, 0}};
    unsigned before = posted;
    OK(wf_node_client_move(b->c, b->to[0], &out));
    turn();
    if (posted > before) {
        assert_int_equal(ops[0].op.kind, WF_NIC_OP_GET);
        end_one(status);
        turn();
    }
    assert_int_equal(last_status, posted > before ? status : WEFT_EKEY);
    return posted > before;
}

/* The same, of a message. */
static bool read_one(struct bed_client *b, uint32_t window, enum weft_status status)
{
    return get_one(b, WF_NODE_READ, window, status);
}

/* Fails when: a client pauses because a sender has taken a message back; or it never pauses,
 * however many keys of messages are refused. */
static void test_spared(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct node_blame *b = &m->blames[client(0)->index];
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(read_one(client(0), 100 + i, WEFT_EKEY));
        assert_int_equal(b->until_ns, 0);
    }
    assert_in_range(b->spared_ns, wf_now_ns(), wf_now_ns() + 16 * UINT64_C(8000000000));
    OK(move(client(0), 8, 1));
    turn();
    end_one(WEFT_OK);
    b->spared_ns -= UINT64_C(8000000000); /* time goes on */
    assert_true(read_one(client(0), 200, WEFT_EKEY));
    assert_int_equal(b->until_ns, 0);
    assert_true(read_one(client(0), 201, WEFT_EKEY));
    assert_in_range(b->until_ns, wf_now_ns(), wf_now_ns() + 1000000000);
    assert_true(read_one(client(1), 202, WEFT_EKEY));
    assert_int_equal(m->blames[client(1)->index].until_ns, 0);
    forgive();
    OK(move_at(client(0), WF_NODE_READ, window_of(client(0)), 8, 1, INCARNATION));
    turn();
    end_one(WEFT_EINVAL); /* its own memory */
    assert_true(b->until_ns > wf_now_ns());
    forgive();
    assert_true(read_one(client(0), 203, WEFT_EKEY));
    b->window++; /* it was another client's */
    OK(move(client(0), 8, 1));
    turn();
    end_one(WEFT_OK);
    assert_true(b->spared_ns > wf_now_ns());
    b->window -= 2;
    assert_true(read_one(client(0), 204, WEFT_EKEY));
    assert_true(b->spared_ns <= wf_now_ns() + UINT64_C(8000000000));
}

/* Fails when: a key of messages that was refused breaks a queue pair for each of them; it is not
 * tried for a region, or another client, or later, or by a later session. */
static void test_refused_keys(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct node_session *s = m->sessions[BED_WORD];
    (void)state;
    assert_true(read_one(client(0), 100, WEFT_EKEY));
    assert_false(read_one(client(0), 100, WEFT_OK));
    assert_false(read_one(client(1), 100, WEFT_OK));
    assert_true(read_one(client(0), 101, WEFT_OK));
    assert_true(get_one(client(0), WF_NODE_GET, 100, WEFT_OK));
    for (uint32_t i = 0; i < WF_ARRAY_LEN(s->refused) - 1; i++)
        assert_true(read_one(client(1), 200 + i, WEFT_EKEY));
    assert_false(read_one(client(0), 100, WEFT_OK));
    for (unsigned i = 0; i < WF_ARRAY_LEN(s->refused); i++) {
        assert_in_range(s->refused[i].until_ns, wf_now_ns(), wf_now_ns() + 1000000000);
        s->refused[i].until_ns = 1;
    }
    assert_true(read_one(client(0), 100, WEFT_EKEY));
    assert_false(read_one(client(0), 100, WEFT_OK));
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_UP));
    turn();
    assert_true(read_one(client(0), 100, WEFT_OK));
}

/* A flow whose moves are LOST pauses, for longer each time, up to 64 s. A move that is done,
 * another session and a successor end that; other flows go on, and one pause begins for all moves
 * that were posted before it. */
static void test_pause(void **state)
{
    struct bed_client *b = client(0);
    struct node_flow *flow = b->to[0];
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t begin = wf_now_ns(), pause = WF_MIN(UINT64_C(1000000) << i, UINT64_C(64000000000));
        OK(move(b, 8, 1));
        OK(move(b, 8, 2));
        turn();
        end_one(WEFT_EUNREACH);
        turn();
        assert_in_range(flow->direct_ns, begin + pause, wf_now_ns() + pause);
        flow->direct_ns = 1; /* the pause is over before the other one ends */
        end_one(WEFT_EUNREACH);
        turn();
        assert_int_equal(flow->direct_ns, 1);
        flow->direct_ns = UINT64_MAX;
        assert_int_equal(move(b, 8, 3), WEFT_EUNREACH);
        OK(move_to(b, 1, 8, 4));
        turn();
        end_one(WEFT_OK);
        turn();
        assert_int_equal(last_status, WEFT_OK);
        assert_int_equal(flow->direct_ns, UINT64_MAX);
        flow->direct_ns = begin;
    }
    OK(move(b, 8, 5));
    turn();
    end_one(WEFT_EUNREACH);
    turn();
    OK(wf_node_session_set(bed->services[0].mover, BED_WORD, WF_NODE_UP));
    OK(move(b, 8, 6));
    turn();
    end_one(WEFT_EUNREACH);
    turn();
    assert_int_equal(flow->losses, 1);
    flow->direct_ns = 1;
    OK(move(b, 8, 7));
    turn();
    end_one(WEFT_OK);
    turn();
    assert_int_equal(flow->losses, 0);
}

/* There is no queue pair between clients of one service. */
static void test_own(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct node_flow *flow = client(0)->to[0];
    (void)state;
    OK(wf_node_session_set(m, WF_NODE_OWN, WF_NODE_UP));
    turn();
    flow->to.word = wf_node_word_of(m, WF_NODE_OWN);
    assert_int_equal(move(client(0), 8, 1), WEFT_EUNREACH);
    flow->to.word = BED_WORD;
    OK(move(client(0), 8, 1));
}

static void test_sessions(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct nic_op old;
    (void)state;
    OK(move(client(0), 8, 1)); /* read in the next session */
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_UP));
    turn();
    assert_int_equal(posted, 0);
    assert_int_equal(last_status, WEFT_EUNREACH);
    OK(move(client(0), 8 * PART, 2)); /* its session ends while parts are under way */
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(nops, 4);
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_UP));
    end_one(WEFT_OK);
    turn();
    assert_int_equal(moved, 1);
    old = ops[0];
    wf_node_parts_cut(m, BED_WORD, m->sessions[BED_WORD]->number);
    turn();
    assert_int_equal(moved, 2);
    assert_int_equal(last_status, WEFT_EUNREACH);
    assert_int_equal(m->sessions[BED_WORD]->moving, 0);
    nops = 0;
    for (uint32_t i = 0; i < 2 * WF_NODE_PARTS; i++) { /* its number comes again */
        OK(move(client(0), 8, 3));
        turn();
        wf_node_part_done(m, old.id, WEFT_EKEY);
        end_one(WEFT_OK);
        turn();
        assert_int_equal(last_status, WEFT_OK);
    }
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_AWAY));
    assert_int_equal(move(client(0), 8, 4), WEFT_EUNREACH);
}

/* The endpoint goes while parts are under way; the place of its port is taken by another one. Its
 * client is paused once for all parts that break queue pairs. */
static void test_detach(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct node_blame *b = &m->blames[client(0)->index];
    (void)state;
    OK(move(client(0), 8 * PART, 1));
    OK(move(client(0), 8 * PART, 2));
    for (int i = 0; i < 5; i++)
        turn();
    wf_node_port_detach(client(0)->port);
    bed_attach(client(0));
    assert_int_equal(m->nqueued, 0);
    end_one(WEFT_EKEY);
    assert_true(b->until_ns > wf_now_ns());
    end_one(WEFT_EINVAL);
    assert_int_equal(b->times, 1);
    while (nops)
        end_one(WEFT_OK);
    turn();
    assert_int_equal(moved, 0);
    assert_int_equal(m->sessions[BED_WORD]->moving, 0);
    wf_node_moves_abandon(client(0)->c);
    assert_int_equal(moved, 2);
}

/* A dead service has ended one move, is at work on another one, and has not read a third. */
static void test_death(void **state)
{
    struct bed_client *b = client(0);
    (void)state;
    OK(move(b, 8, 1));
    OK(move(b, 8, 2));
    (void)wf_node_mover_turn(bed->services[0].mover);
    OK(move(b, 8, 3));
    end_one(WEFT_OK);
    bed_bell_lose(b);
    bed_kill(bed, 0);
    nops = 0;
    bed_service_start(&bed->services[0], true);
    bed_connect(bed);
    bed_reattach(b);
    assert_int_equal(moved, 3);
    assert_int_equal(first_status, WEFT_OK);
    assert_int_equal(last_status, WEFT_EUNREACH);
    assert_int_equal(stopped, 0);
    assert_false(wf_node_has_moves(b->c));
    bed_resolve_all(b);
    wf_node_flow_resolve(b->c, b->to[0], BED_WORD);
    OK(move(b, 8, 4));
    turn();
    end_one(WEFT_OK);
    turn();
    assert_int_equal(last_id, 4);
    assert_int_equal(last_status, WEFT_OK);
    bed_reattach(client(1));
}

/* The peer's end is reported behind the moves to it. */
static void test_end(void **state)
{
    struct bed_client *b = client(0), *peer = &bed->clients[1][0];
    struct node_end *last = calloc(1, sizeof *last);
    const struct wf_am_out none = {0};
    (void)state;
    assert_non_null(last);
    OK(wf_node_client_send(b->c, b->to[0], &none));
    exchange(3);
    OK(move_at(b, WF_NODE_GET, window_of(b), 100, 1, INCARNATION));
    *last = (struct node_end){.tag = peer->port->tag, .state = WF_NODE_DEAD};
    wf_node_port_detach(peer->port);
    peer->attached = false;
    wf_node_end_add(bed->services[1].mover, last);
    exchange(5);
    assert_int_equal(b->ended, 0);
    assert_true(b->to[0]->ending);
    assert_false(wf_node_client_pending(b->c));
    assert_int_equal(move(b, 8, 2), WEFT_EUNREACH);
    end_one(WEFT_OK);
    assert_true(wf_node_client_pending(b->c));
    exchange(1);
    assert_int_equal(moved, 1);
    assert_int_equal(b->ended, 1);
    assert_int_equal(b->why, WEFT_EPEER);
    assert_int_equal(move(b, 8, 3), WEFT_EPEER);
}

/* The service ends an endpoint. What it has done is reported as done, and no memory of it is
 * dropped. */
static void test_done_before(void **state)
{
    struct bed_client *b = client(0);
    (void)state;
    for (uint32_t id = 1; id < 3; id++)
        OK(move(b, 8, id));
    (void)wf_node_mover_turn(bed->services[0].mover);
    end_one(WEFT_OK);
    assert_true(wf_node_move_is_over(b->c, 1) && !wf_node_move_is_over(b->c, 0));
    wf_node_port_fail(b->port, "of the test");
    (void)wf_node_client_poll(b->c, bed->now, 100);
    assert_int_equal(stopped, 1);
    assert_int_equal(moved, 2);
    assert_int_equal(first_status, WEFT_OK);
    assert_int_equal(last_status, WEFT_EUNREACH);
}

/* The service breaks the protocol: its NIC is stopped before anything is reported. */
static void test_lies(void **state)
{
    struct bed_client *b = client(0);
    (void)state;
    OK(move(b, 8, 1));
    OK(move(b, 8, 2));
    b->event->slots[0].moved = b->c->moves[0].use | UINT64_C(4) << 32;
    wf_shm_bell_ring(&b->event->bell, WF_NODE_SLOTS + WF_NODE_PLACES);
    (void)wf_node_client_poll(b->c, bed->now, 100);
    assert_int_equal(b->c->failed, WEFT_EPROTO);
    assert_int_equal(stopped, 2);
    assert_int_equal(moved, 2);
    assert_int_equal(last_status, WEFT_EUNREACH);
    assert_true(b->ended >= 1);
}

/* Entries that the service does not take. */
static void test_entries(void **state)
{
    enum { WRONG = 16 };
    (void)state;
    for (unsigned i = 0; i < WRONG; i++) {
        struct bed_client *b = client(0);
        struct wf_node_entry *e = &b->submit->entries[b->c->tail & (b->c->lines - 1)];
        OK(move(b, 4096, 1));
        switch (i) {
        case 0: e->move.local -= 1; break;
        case 1: e->move.local += (UINT64_C(1) << WF_NODE_WINDOW_BITS) - 4095; break;
        case 2: e->move.local = 0; break;
        case 3: e->move.remote = UINT64_MAX - 4095; break;
        case 4: e->number = 0; break;
        case 5: e->number = WF_NODE_MOVE_MAX + 1; break;
        case 6: e->handler = WF_NODE_MOVE_KINDS; break;
        case 7: e->place = WF_NODE_MOVES; break;
        case 8: e->use = 0; break;
        case 9: e->flags |= WF_NODE_BEGIN; break;
        case 10: e->nargs = 1; break;
        case 11: e->where = BED_WORD + 1; break;
        case 12: e->slot = 1; break;
        case 13: e->attempt = 1; break;
        case 14: e->move.immediate = 1; break;
        case 15: e->ready = wf_shm_ready(b->c->tail - 1, 1, 0); break;
        default: break;
        }
        (void)wf_node_mover_turn(bed->services[0].mover);
        assert_int_equal(bed->services[0].failed, i + 1);
        assert_int_equal(posted, 0);
        (void)end(NULL);
        (void)begin(NULL);
        bed->services[0].failed = i + 1;
    }
    /* a place whose move is not complete */
    OK(move(client(0), 8, 1));
    turn();
    client(0)->c->moves_free = UINT64_MAX;
    OK(move(client(0), 8, 2));
    (void)wf_node_mover_turn(bed->services[0].mover);
    assert_int_equal(bed->services[0].failed, WRONG + 1);
}

/* A client without a window. */
static void test_without(void **state)
{
    (void)state;
    client(0)->port->window = 0;
    OK(move(client(0), 8, 1));
    (void)wf_node_mover_turn(bed->services[0].mover);
    assert_int_equal(bed->services[0].failed, 1);
}

/* ---- random schedules ---- */

enum { IDS = 20000 };
static uint8_t reports[IDS]; /* of each move */
static uint32_t nids;

static void on_moved_once(struct bed_client *b, uint32_t id, void *user, enum weft_status status)
{
    (void)b;
    (void)user;
    assert_true(id < nids && !reports[id]);
    assert_true(status == WEFT_OK || status == WEFT_EKEY || status == WEFT_EUNREACH);
    reports[id] = 1;
}

static void ops_drop(void)
{
    while (nops)
        op_remove(0);
}

static void move_random(struct bed_client *b)
{
    static const uint32_t lens[] = {1, 8, 4096, 4097, PART, PART + 1, 5 * PART, 40 * PART};
    uint32_t len = lens[bed_draw(bed, 8)];
    static const enum wf_node_move_kind kinds[] = {WF_NODE_PUT, WF_NODE_GET, WF_NODE_READ};
    enum wf_node_move_kind kind = kinds[bed_draw(bed, 3)];
    if (nids < IDS && move_at(b, kind, window_of(b) + bed_draw(bed, 10000), len, nids,
                              INCARNATION - !bed_draw(bed, 20)) == WEFT_OK)
        nids++;
}

/* The service dies, or loses the other one; clients attach to a successor at some later time. */
static void fault(struct bed_service *s)
{
    if (!s->mover) {
        bed_service_start(s, true);
        bed_connect(bed);
    } else if (bed_draw(bed, 2)) {
        bed_kill(bed, 0);
        ops_drop();
    } else {
        OK(wf_node_session_set(s->mover, BED_WORD, WF_NODE_UP));
        if (bed_draw(bed, 2)) {
            wf_node_parts_cut(s->mover, BED_WORD, 0);
            ops_drop();
        }
    }
}

static void step(unsigned what)
{
    static const enum weft_status ends[] = {WEFT_OK, WEFT_OK, WEFT_OK, WEFT_EUNREACH, WEFT_EKEY};
    struct bed_service *s = &bed->services[0];
    struct bed_client *b = client(bed_draw(bed, 2));
    if (what < 30)
        move_random(b);
    else if (what < 55 && s->mover)
        (void)wf_node_mover_turn(s->mover);
    else if (what < 80 && nops)
        end_one(ends[bed_draw(bed, what % 8 ? 3 : 5)]);
    else if (what < 82 && s->mover)
        forgive();
    else if (what < 97)
        (void)wf_node_client_poll(b->c, bed->now, 100);
    else if (what < 98)
        refusals = bed_draw(bed, 4);
    else if (what < 100 && !bed_draw(bed, 10))
        fault(s);
    if (!b->attached && s->mover && !bed_draw(bed, 4)) {
        bed_reattach(b);
        bed_resolve_all(b);
        wf_node_flow_resolve(b->c, b->to[0], BED_WORD);
    }
}

static bool any_moves(void)
{
    return wf_node_has_moves(client(0)->c) || wf_node_has_moves(client(1)->c);
}

static void settle(void)
{
    if (!bed->services[0].mover)
        fault(&bed->services[0]);
    step(100); /* no more than attach a client */
    (void)wf_node_mover_turn(bed->services[0].mover);
    while (nops)
        end_one(WEFT_OK);
    for (unsigned k = 0; k < 2; k++)
        (void)wf_node_client_poll(client(k)->c, bed->now, 100);
}

/* Fails when: a move ends twice or not at all, whichever service dies or loses a session when. */
static void test_random(void **state)
{
    uint64_t done = 0;
    (void)state;
    bed->on_moved = on_moved_once;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        bed->rand = seed;
        nids = 0;
        memset(reports, 0, sizeof reports);
        for (int i = 0; i < 20000; i++)
            step(bed_draw(bed, 100));
        refusals = 0;
        for (int i = 0; i < 20000 && any_moves(); i++)
            settle();
        assert_false(bed->services[0].failed);
        for (uint32_t i = 0; i < nids; i++)
            assert_int_equal(reports[i], 1);
        done += nids;
    }
    assert_true(done > 10000);
}

/* Fails when: a flow without a word takes that of a service which is lost, whose senders have not
 * ended here yet: then nothing would end it. */
static void test_lost_word(void **state)
{
    struct bed_client *b = client(0), *from = &bed->clients[1][0];
    const struct wf_am_out none = {0}, fetch = wf_am_out(1, NULL, 0, NULL, 0, 0);
    struct node_flow *flow = b->to[0];
    (void)state;
    flow->to.word = WF_NODE_NO_WORD; /* as wf_via_flow makes it */
    for (int i = 0; i < 8; i++)
        OK(wf_node_client_send(from->c, from->to[0], &none));
    (void)wf_node_client_poll(from->c, bed->now, 100);
    for (int i = 0; i < 10; i++)
        for (unsigned side = 0; side < SIDES; side++) {
            (void)wf_node_mover_turn(bed->services[side].mover);
            for (unsigned lane = 0; lane < BED_LANES; lane++)
                while (bed_frame(&bed->services[side], lane))
                    ;
        }
    OK(wf_node_session_set(bed->services[0].mover, BED_WORD, WF_NODE_LOST));
    (void)wf_node_client_poll(b->c, bed->now, 2); /* two messages, say an OFFER; others follow */
    assert_non_null(wf_node_sender_find(b->c, flow->to.tag));
    assert_int_equal(wf_node_client_can_move(b->c, flow), WEFT_EUNREACH);
    OK(wf_node_client_send(b->c, flow, &fetch));
    for (int i = 0; i < 100; i++) {
        bed->now += 10000000000u;
        (void)wf_node_client_poll(b->c, bed->now, 100);
    }
    assert_null(wf_node_sender_find(b->c, flow->to.tag)); /* it has ended */
    assert_true(flow->ended || flow->ending || b->nasked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
        CASE(test_lost_word),    CASE(test_one),         CASE(test_parts),       CASE(test_turns),
        CASE(test_equal),        CASE(test_failures),    CASE(test_word),        CASE(test_room),
        CASE(test_sessions),     CASE(test_share),       CASE(test_detach),      CASE(test_death),
        CASE(test_end),          CASE(test_lies),        CASE(test_entries),     CASE(test_without),
        CASE(test_random),       CASE(test_short_first), CASE(test_blame),       CASE(test_own),
        CASE(test_asked_once),   CASE(test_pause),       CASE(test_done_before), CASE(test_spared),
        CASE(test_refused_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
