/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes with immediate through two node services (src/node/writes.c), and the rings of their
 * clients (transport/node/rv_ring.c). The services and lanes are those of node_bed.h. The NICs are
 * the test's: they end an operation when the test chooses. */
#include "unit/unit.h"

#include "base/log.h"
#include "unit/node_bed.h"

#include "transport/node/rv_ring.h"

enum {
    INCARNATION = 77,
    KEY = 5,
    PART = 256 << 10,
    OPS = 4096,
    RINGS = 2, /* of each service */
    EVENTS = 8,
    FIRST = 8, /* index of the first ring's process; those of contexts are lower */
    SHIFT = 32 - 4,
    UNKNOWN = 15, /* an index that no process has */
};

struct nic_op {
    struct bed_service *s;
    uint32_t id;
    size_t len;
};

struct runtime {
    struct bed_service *service;
    struct wf_rv_ring ring;
    struct node_port *port;
    uint16_t index;
};

static struct nic_op ops[OPS];
static unsigned nops;
static struct bed *bed;
static struct runtime runtimes[2][RINGS];
static unsigned lane; /* of the next posts */

/* ---- the NICs ---- */

static enum weft_status on_move(struct bed_service *s, const struct wf_nic_op *op,
                                uint32_t incarnation, size_t *taken)
{
    if (incarnation != INCARNATION)
        return WEFT_EKEY;
    assert_true(nops < OPS && op->len && op->len <= PART && op->kind == WF_NIC_OP_PUT);
    assert_int_equal(op->keys[0], KEY);
    ops[nops++] = (struct nic_op){s, op->id, op->len};
    *taken = op->len;
    return WEFT_OK;
}

static void end_at(unsigned i, enum weft_status status)
{
    struct nic_op op = ops[i];
    assert_true(i < nops);
    memmove(&ops[i], &ops[i + 1], (--nops - i) * sizeof *ops);
    wf_node_part_done(op.s->mover, op.id, status);
}

static void end_all(enum weft_status status)
{
    while (nops)
        end_at(0, status);
}

static void on_message(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    (void)am;
}

/* ---- the bed ---- */

static void runtime_open(unsigned side, unsigned i)
{
    struct runtime *r = &runtimes[side][i];
    uint32_t size = wf_rv_ring_size(EVENTS);
    struct node_port_params params = {
        .size = size,
        .am_max = WF_NODE_AM_MAX,
        .index = (uint16_t)(FIRST + i),
        .window = wf_node_window(FIRST + i, 1),
        .address = {.version = WF_ADDRESS_VERSION,
                    .size = sizeof(struct wf_address),
                    .ep = 1,
                    .process = {.pid = 1 + i, .token = {1000 * (side + 1) + i}}},
        .contact = {.port = 7, .count = 1}};
    *r = (struct runtime){.service = &bed->services[side], .index = params.index};
    wf_rv_ring_init(&r->ring, wf_lines_new(size), wf_lines_new(size), size, EVENTS);
    assert_true(r->ring.submit && r->ring.event);
    r->ring.page = r->service->page;
    params.submit = r->ring.submit;
    params.event = r->ring.event;
    OK(wf_node_port_attach(r->service->mover, &params, &r->port));
    r->port->user = &bed->clients[side][0]; /* whose wakes count */
}

static void runtime_close(struct runtime *r)
{
    if (r->port)
        wf_node_port_detach(r->port);
    free(r->ring.submit);
    free(r->ring.event);
}

static int begin_with(unsigned lane_room)
{
    bed = calloc(1, sizeof *bed);
    assert_non_null(bed);
    bed->on_request = bed->on_reply = on_message;
    bed->on_move = on_move;
    bed->limits = (struct bed_limits){.clients = 1,
                                      .rows = 64,
                                      .waiters = 64,
                                      .slots = 8,
                                      .lane_room = lane_room,
                                      .size = 256 << 10};
    wf_log_set_level((enum wf_log_level) - 1); /* each failure is logged */
    nops = lane = 0;
    bed_open(bed);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < RINGS; i++)
            runtime_open(side, i);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    return begin_with(64);
}

static int begin_narrow(void **state)
{
    (void)state;
    return begin_with(1);
}

static int end(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < RINGS; i++)
            runtime_close(&runtimes[side][i]);
        assert_int_equal(bed->services[side].mover->nwrites_due, 0);
        assert_int_equal(bed->services[side].mover->nwrites_sent, 0);
    }
    bed_close(bed);
    free(bed);
    return 0;
}

static void turns(void)
{
    for (unsigned side = 0; side < 2; side++)
        while (wf_node_mover_turn(bed->services[side].mover) && nops < OPS)
            continue;
}

static bool frames(void)
{
    bool any = false;
    for (unsigned side = 0; side < 2; side++)
        for (unsigned l = 0; l < BED_LANES; l++)
            while (bed_frame(&bed->services[side], l))
                any = true;
    return any;
}

static void settle(void)
{
    do
        turns();
    while (frames());
}

static uint32_t session_of(const struct runtime *r)
{
    return (uint32_t)wf_load_acquire(&r->ring.page->words[BED_WORD]);
}

static int post_as(struct runtime *r, enum wf_node_move_kind kind, uint32_t len, uint32_t immediate)
{
    const struct wf_rv_post p = {
        .kind = kind,
        .word = wf_node_word_of(r->service->mover, BED_WORD),
        .session = session_of(r),
        .len = len,
        .lane = lane,
        .at = {.local = (uint64_t)wf_node_window(r->index, 1) << WF_NODE_WINDOW_BITS,
               .remote = 4096,
               .lkey = 9,
               .rkey = KEY,
               .incarnation = INCARNATION,
               .immediate = immediate}};
    return wf_rv_ring_post(&r->ring, &p);
}

static int post(struct runtime *r, uint32_t len, uint32_t immediate)
{
    return post_as(r, WF_NODE_WRITE, len, immediate);
}

/* Returns the end of a write, 0 if there is none. */
static unsigned ended(struct runtime *r)
{
    unsigned end = 0;
    return wf_rv_ring_ended(&r->ring, UINT64_MAX, &end) < 0 ? 0 : end;
}

static bool has_event(struct runtime *r, uint32_t bytes, uint32_t immediate)
{
    struct wf_rv_event e;
    enum weft_status status = wf_rv_ring_take(&r->ring, &e);
    if (status == WEFT_AGAIN)
        return false;
    OK(status);
    assert_int_equal(e.bytes, bytes);
    assert_int_equal(e.immediate, immediate);
    assert_int_equal(wf_node_word_index(e.word), BED_WORD);
    return true;
}

static uint32_t to(unsigned i, uint32_t own)
{
    return (uint32_t)(FIRST + i) << SHIFT | own;
}

#define A (&runtimes[0][0])
#define B (&runtimes[1][0])
#define B2 (&runtimes[1][1])

/* ---- the cases ---- */

/* The event comes after all bytes, and the sender's after the peer's. */
static void test_one(void **state)
{
    (void)state;
    assert_true(post(A, 3 * PART / 2, to(0, 1234)) >= 0);
    settle();
    assert_int_equal(nops, 2);
    end_at(1, WEFT_OK);
    settle();
    assert_false(has_event(B, 0, 0));
    end_at(0, WEFT_OK);
    assert_false(has_event(B, 0, 0));
    turns();
    assert_int_equal(ended(A), 0);
    assert_true(frames());
    assert_true(has_event(B, 3 * PART / 2, to(0, 1234)));
    assert_false(has_event(B, 0, 0));
    assert_int_equal(ended(A), 0);
    settle();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_int_equal(ended(A), 0);
    assert_false(A->ring.busy);
    assert_false(has_event(B2, 0, 0));
}

/* No bytes: nothing for the NIC. REACH is answered, without an event. */
static void test_empty(void **state)
{
    (void)state;
    assert_true(post(A, 0, to(1, 5)) >= 0);
    settle();
    assert_int_equal(nops, 0);
    assert_true(has_event(B2, 0, to(1, 5)));
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_true(post_as(A, WF_NODE_REACH, 0, 0) >= 0);
    settle();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_false(has_event(B, 0, 0) || has_event(B2, 0, 0));
    assert_int_equal(bed->services[1].mover->dropped, 0);
}

static enum weft_status instance_of(void *owner, uint16_t word, uint32_t incarnation)
{
    (void)owner;
    assert_int_equal(word, BED_WORD);
    return incarnation == INCARNATION ? WEFT_OK : WEFT_EKEY;
}

/* A successor of the peer's service answers REACH. */
static void test_successor(void **state)
{
    (void)state;
    bed->services[0].ops.instance = instance_of;
    assert_true(post_as(A, WF_NODE_REACH, 0, 0) >= 0);
    settle();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_true(post_as(A, WF_NODE_REACH, 0, 0) >= 0);
    A->ring.submit->entries[A->ring.tail - 1].move.incarnation = INCARNATION - 1;
    settle();
    assert_int_equal(ended(A), WF_NODE_MOVE_REFUSED);
}

/* A write whose bytes were not all moved is no event. */
static void test_failed(void **state)
{
    static const enum weft_status why[] = {WEFT_EUNREACH, WEFT_EKEY};
    static const unsigned ends[] = {WF_NODE_MOVE_LOST, WF_NODE_MOVE_REFUSED};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_true(post(A, 2 * PART, to(0, i)) >= 0);
        settle();
        assert_int_equal(nops, 2);
        end_at(0, why[i]);
        end_at(0, WEFT_OK);
        settle();
        assert_int_equal(ended(A), ends[i]);
        assert_false(has_event(B, 0, 0));
        memset(A->service->mover->blames, 0, 16 * sizeof *A->service->mover->blames);
    }
    assert_true(post(A, 100, to(0, 9)) >= 0);
    settle();
    end_all(WEFT_OK);
    settle();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_true(has_event(B, 100, to(0, 9)));
}

/* An index that no process has, or that of a context, which takes messages: counted, and no error.
 */
static void test_unknown(void **state)
{
    const uint32_t context = bed->clients[1][0].index;
    (void)state;
    assert_true(post(A, 0, (uint32_t)UNKNOWN << SHIFT) >= 0);
    assert_true(post(A, 0, context << SHIFT) >= 0);
    settle();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_int_equal(bed->services[1].mover->dropped, 2);
    assert_int_equal(bed->services[1].failed, 0);
}

/* A ring that is full drops, and takes again what comes after its process has taken some. */
static void test_full(void **state)
{
    enum { MORE = 5 };
    (void)state;
    for (uint32_t i = 0; i < EVENTS + MORE; i++) {
        assert_true(post(A, 0, to(0, i)) >= 0);
        settle();
    }
    for (unsigned i = 0; i < EVENTS + MORE; i++)
        assert_int_equal(ended(A), WF_NODE_DONE);
    assert_int_equal(wf_load_relaxed(&B->ring.event->overflow), MORE);
    assert_int_equal(wf_rv_ring_tail(&B->ring) - B->ring.taken, EVENTS);
    for (uint32_t i = 0; i < EVENTS; i++)
        assert_true(has_event(B, 0, to(0, i)));
    assert_false(has_event(B, 0, 0));
    for (uint32_t i = 0; i < 2 * B->ring.lines; i++) { /* round the ring */
        assert_true(post(A, 0, to(0, i)) >= 0);
        settle();
        assert_int_equal(ended(A), WF_NODE_DONE);
        assert_true(has_event(B, 0, to(0, i)));
    }
    assert_int_equal(wf_load_relaxed(&B->ring.event->overflow), MORE);
}

/* A lane that takes one frame at a time: all arrive, and those of the other end, too. */
static void test_narrow(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < EVENTS; i++) {
        assert_true(post(A, 0, to(0, 7)) >= 0);
        assert_true(post(B, 0, to(0, 7)) >= 0);
    }
    settle();
    for (uint32_t i = 0; i < EVENTS; i++) {
        assert_true(has_event(B, 0, to(0, 7)) && has_event(A, 0, to(0, 7)));
        assert_int_equal(ended(A), WF_NODE_DONE);
        assert_int_equal(ended(B), WF_NODE_DONE);
    }
}

/* No more than 64 at a time. */
static void test_places(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WF_NODE_MOVES; i++)
        assert_true(post(A, 0, (uint32_t)UNKNOWN << SHIFT) >= 0);
    assert_int_equal(post(A, 0, 0), -1);
    settle();
    assert_int_equal(post(A, 0, 0), -1);
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_true(post(A, 0, 0) >= 0);
}

/* A lane that takes one frame at a time takes those of the second process, too, though the first
 * one always has more: without a turn, the second would wait for ever. */
static void test_fair(void **state)
{
    unsigned mine = 0, others = 0;
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_true(post(&A[1], 0, to(0, 1)) >= 0);
    for (unsigned i = 0; i < 100; i++) {
        while (post(A, 0, (uint32_t)UNKNOWN << SHIFT) >= 0)
            continue;
        turns();
        (void)frames();
        turns();
        (void)frames();
        while (ended(A))
            mine++;
        while (ended(&A[1]))
            others++;
    }
    assert_true(mine > 50);
    assert_int_equal(others, 4);
    settle();
}

/* Each end is taken, also if the first place has another one at each look. */
static void test_turns(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WF_NODE_MOVES; i++)
        assert_true(post(A, 0, (uint32_t)UNKNOWN << SHIFT) >= 0);
    for (unsigned i = 0; i < WF_NODE_MOVES; i++) {
        uint64_t taken = A->ring.busy;
        settle();
        assert_int_equal(ended(A), WF_NODE_DONE);
        taken &= ~A->ring.busy;
        assert_int_equal(taken, UINT64_C(1) << i);
        assert_true(post(A, 0, (uint32_t)UNKNOWN << SHIFT) >= 0);
    }
}

/* The session ends: writes in each stage fail, and nothing of them comes later. */
static void test_session(void **state)
{
    struct node_mover *m = A->service->mover;
    (void)state;
    assert_true(post(A, 100, to(0, 1)) >= 0); /* its part is under way */
    assert_true(post(A, 0, to(0, 2)) >= 0);   /* WRITTEN was sent */
    assert_true(post(A, 0, to(0, 3)) >= 0);   /* it waits for the lane, which is full */
    turns();
    assert_int_equal(m->nwrites_due, 1);
    assert_int_equal(m->nwrites_sent, 1);
    assert_true(post(A, 100, to(0, 4)) >= 0); /* it is not posted */
    bed_connect(bed);
    wf_node_parts_cut(m, BED_WORD, m->sessions[BED_WORD]->number);
    nops = 0;
    settle();
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(ended(A), WF_NODE_MOVE_LOST);
    assert_int_equal(ended(A), 0);
    assert_false(has_event(B, 0, 0));
    assert_true(post(A, 0, to(0, 5)) >= 0);
    settle();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_true(has_event(B, 0, to(0, 5)));
}

static uint32_t seen; /* the session that the page shows when a write's end is there */

static void session_see(void *owner, struct node_port *port)
{
    (void)owner;
    if (port == A->port && !seen && ended(A))
        seen = session_of(A);
}

/* A process that has the failure of a write finds that the session has ended: its peer is over, so
 * it does not ask the receiver before it has connected anew. */
static void test_order(void **state)
{
    struct bed_service *s = &bed->services[0];
    uint32_t before = session_of(A);
    (void)state;
    assert_true(post(A, 0, to(0, 1)) >= 0);
    turns();
    s->ops.wake = session_see;
    seen = 0;
    wf_store_relaxed(&A->ring.submit->sleep_epoch, 101); /* it sleeps */
    OK(wf_node_session_set(s->mover, BED_WORD, WF_NODE_UP));
    assert_true(seen && seen != before);
    (void)frames();
}

/* A part that ends after the session, as done: its write has failed. */
static void test_late(void **state)
{
    (void)state;
    assert_true(post(A, 100, to(0, 1)) >= 0);
    turns();
    bed_connect(bed);
    end_all(WEFT_OK);
    settle();
    assert_int_equal(ended(A), WF_NODE_MOVE_LOST);
    assert_false(has_event(B, 0, 0));
}

/* A process ends with writes in each stage: its service forgets them. Of a receiver, too. */
static void test_detached(void **state)
{
    struct node_mover *m = A->service->mover;
    (void)state;
    assert_true(post(A, 100, to(0, 1)) >= 0);
    assert_true(post(A, 0, to(0, 2)) >= 0);
    assert_true(post(A, 0, to(0, 2)) >= 0);
    turns();
    wf_node_port_detach(A->port);
    A->port = NULL;
    assert_int_equal(m->nwrites_due, 0);
    assert_int_equal(m->nwrites_sent, 0);
    end_all(WEFT_OK);
    settle();
    assert_true(has_event(B, 0, to(0, 2)));
    assert_false(has_event(B, 0, 0));
    wf_node_port_detach(A[1].port);
    A[1].port = NULL;
    assert_true(post(B, 0, to(1, 7)) >= 0);
    settle();
    assert_int_equal(ended(B), WF_NODE_DONE);
    assert_int_equal(m->dropped, 1);
}

/* The service ends: the rings show what it has completed, and what not. */
static void test_abandoned(void **state)
{
    (void)state;
    assert_true(post(A, 0, to(0, 1)) >= 0);
    settle();
    assert_true(post(A, 100, to(0, 2)) >= 0);
    turns();
    assert_int_equal(ended(A), WF_NODE_DONE);
    assert_int_equal(ended(A), 0);
    assert_true(wf_rv_ring_abandon(&A->ring) >= 0);
    assert_int_equal(wf_rv_ring_abandon(&A->ring), -1);
    end_all(WEFT_OK);
}

/* Entries that the service does not take. */
static void test_entries(void **state)
{
    enum { WRONG = 10 };
    (void)state;
    for (unsigned i = 0; i < WRONG; i++) {
        struct wf_node_entry *e = &A->ring.submit->entries[A->ring.tail & (A->ring.lines - 1)];
        assert_true(post(A, 4096, to(0, 1)) >= 0);
        switch (i) {
        case 0: e->move.local -= 1; break;
        case 1: e->number = WF_NODE_MOVE_MAX + 1; break;
        case 2: e->handler = WF_NODE_MOVE_KINDS; break;
        case 3: e->handler = WF_NODE_REACH; break; /* with bytes */
        case 4: e->handler = WF_NODE_PUT; break;   /* with an immediate */
        case 5: e->where = wf_node_word_name(WF_NODE_OWN, 0); break;
        case 6: e->where = BED_WORD + 1; break;
        case 7: e->move.remote = UINT64_MAX - 4095; break;
        case 8: e->nargs = BED_LANES; break;
        case 9: e->slot = 1; break;
        default: break;
        }
        turns();
        assert_int_equal(bed->services[0].failed, 1);
        assert_int_equal(nops, 0);
        (void)end(NULL);
        (void)begin(NULL);
    }
}

/* Frames that break the protocol. */
static void test_frames(void **state)
{
    static const struct {
        unsigned kind, nargs;
        uint32_t args[5];
        size_t len;
    } wrong[] = {
        {WF_NODE_FRAME_WRITTEN, 3, {0, 1, 0}, 0},
        {WF_NODE_FRAME_WRITTEN, 4, {0, 1, 0, 0}, 1},
        {WF_NODE_FRAME_WRITTEN, 4, {BED_LANES, 1, 0, 0}, 0},
        {WF_NODE_FRAME_WRITTEN, 4, {16 << 8, 1, 0, 0}, 0},
        {WF_NODE_FRAME_WRITTEN, 4, {1 << 21, 1, 0, 0}, 0},
        {WF_NODE_FRAME_WRITTEN, 4, {1 << 20, 1, 1, 0}, 0},
        {WF_NODE_FRAME_WRITTEN, 4, {0, 1, 0, WF_NODE_MOVE_MAX + 1}, 0},
        {WF_NODE_FRAME_TAKEN, 1, {0}, 0},
        {WF_NODE_FRAME_TAKEN, 2, {BED_LANES, 0}, 0},
        {WF_NODE_FRAME_TAKEN, 2, {0, 1}, 0}, /* of a WRITTEN that was not sent */
        {WF_NODE_FRAME_TAKEN, 2, {0, 0}, 1},
    };
    (void)state;
    for (unsigned i = 0; i < WF_ARRAY_LEN(wrong); i++)
        assert_int_equal(wf_node_frame_take(A->service->mover, BED_WORD, wrong[i].kind,
                                            wrong[i].args, wrong[i].nargs, "", wrong[i].len),
                         WEFT_EPROTO);
}

/* An event that the service cannot have put. */
static void test_lie(void **state)
{
    struct wf_rv_event e;
    struct wf_node_entry *line = &B->ring.event->entries[0];
    (void)state;
    line->flags = WF_NODE_END;
    wf_store_release(&line->ready, wf_shm_ready(0, 0, 0));
    assert_int_equal(wf_rv_ring_take(&B->ring, &e), WEFT_EPROTO);
}

/* ---- random schedules ---- */

enum { ROUNDS = 20, STEPS = 4000, IDS = STEPS };

static uint8_t got[IDS], over[IDS]; /* of each write: events at the peer; its end */
static uint32_t id_at[2][WF_NODE_MOVES];
static uint32_t nids;

static void post_some(struct runtime *r, unsigned side)
{
    uint32_t len = bed_draw(bed, 3) ? bed_draw(bed, 2 * PART) : 0;
    int place;
    lane = bed_draw(bed, BED_LANES);
    place = nids < IDS ? post(r, len, to(0, nids)) : -1;
    if (place >= 0)
        id_at[side][place] = nids++;
}

static void events_look(struct runtime *r)
{
    struct wf_rv_event e;
    while (wf_rv_ring_take(&r->ring, &e) == WEFT_OK) {
        uint32_t id = e.immediate & ((1u << SHIFT) - 1);
        assert_true(id < nids && !got[id]++);
        assert_int_not_equal(over[id], WF_NODE_DONE); /* the peer's event is first */
    }
}

static void ends_look(struct runtime *r, unsigned side)
{
    unsigned end;
    int place;
    while ((place = wf_rv_ring_ended(&r->ring, UINT64_MAX, &end)) >= 0) {
        assert_false(over[id_at[side][place]]);
        over[id_at[side][place]] = (uint8_t)end;
    }
}

static void look(void)
{
    events_look(A);
    events_look(B);
    ends_look(A, 0);
    ends_look(B, 1);
}

static void step(void)
{
    unsigned side = bed_draw(bed, 2), what = bed_draw(bed, 100);
    struct runtime *r = &runtimes[side][0];
    if (what < 30)
        post_some(r, side);
    else if (what < 50)
        (void)wf_node_mover_turn(r->service->mover);
    else if (what < 70)
        (void)bed_frame(r->service, bed_draw(bed, BED_LANES));
    else if (what < 90 && nops)
        end_at(bed_draw(bed, nops), bed_draw(bed, 20) ? WEFT_OK : WEFT_EUNREACH);
    else if (what >= 90)
        look();
}

/* Each write ends once. One that is done was one event, if its receiver had room; one that has
 * failed may have been one event if the session has ended, and was none otherwise. */
static void test_random(void **state)
{
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned lost = 0, done = 0;
        bool cuts = round % 2;
        bed->rand = round + 1;
        memset(got, 0, sizeof got);
        memset(over, 0, sizeof over);
        nids = 0;
        for (unsigned i = 0; i < STEPS; i++) {
            step();
            if (!cuts || i % 1000 != 999)
                continue;
            bed_connect(bed);
            for (unsigned side = 0; side < 2; side++)
                wf_node_parts_cut(bed->services[side].mover, BED_WORD,
                                  bed->services[side].mover->sessions[BED_WORD]->number);
            nops = 0;
        }
        do {
            end_all(WEFT_OK);
            settle();
        } while (nops);
        look();
        for (uint32_t i = 0; i < nids; i++) {
            assert_true(over[i]);
            done += over[i] == WF_NODE_DONE;
            lost += over[i] == WF_NODE_DONE && !got[i];
            assert_false(!cuts && over[i] != WF_NODE_DONE && got[i]);
        }
        assert_true(done > nids / 4);
        assert_int_equal(lost, wf_load_relaxed(&A->ring.event->overflow) +
                                   wf_load_relaxed(&B->ring.event->overflow));
        (void)end(NULL);
        (void)begin_with(2 + round % 3);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_one),       TEST(test_empty),
        TEST(test_failed),    TEST(test_unknown),
        TEST(test_full),      cmocka_unit_test_setup_teardown(test_narrow, begin_narrow, end),
        TEST(test_places),    cmocka_unit_test_setup_teardown(test_session, begin_narrow, end),
        TEST(test_order),     TEST(test_successor),
        TEST(test_turns),     cmocka_unit_test_setup_teardown(test_fair, begin_narrow, end),
        TEST(test_late),      cmocka_unit_test_setup_teardown(test_detached, begin_narrow, end),
        TEST(test_abandoned), TEST(test_entries),
        TEST(test_frames),    TEST(test_lie),
        TEST(test_random),
    };
    return cmocka_run_group_tests_name("node_write", tests, NULL, NULL);
}
