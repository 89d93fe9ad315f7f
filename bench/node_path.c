/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of 8 bytes from a client through two node services to another client, in one process and
 * with a lane that only copies: what bench/node-path counts the instructions of.
 *
 *     node_path MESSAGES [puts | moves]
 *
 * puts: each is a put, a request with 7 arguments whose reply has 4 (docs/protocol.md, handlers 246
 * and 251). moves: each is a put that the NIC of the first service executes; the NIC does nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "node/mover.h"
#include "transport/node/engine.h"

enum { BATCH = 32, LANE = 64, WORD = 1, SIZE = 256 << 10, AM_MAX = 8192 };

struct frame {
    uint32_t kind, nargs, len;
    uint32_t args[16];
    uint8_t data[256];
};

struct side {
    struct node_mover *mover;
    struct node_client *client;
    struct node_port *port;
    struct wf_node_page *page;
    struct frame lane[LANE]; /* to the other side */
    uint32_t head, tail;
    struct node_mover_ops ops;
};

static struct side sides[2];
static uint64_t received, replied, moved;
static bool puts_only, moves_only;
static uint32_t parts[BATCH]; /* that the NIC was given */
static unsigned nparts;

/* Not a cost of the service: over TCP it would be the channel's. */
__attribute__((noinline)) enum weft_status lane_send(void *owner, uint16_t word, unsigned lane,
                                                     unsigned kind, const uint32_t *args,
                                                     unsigned nargs, const void *data, size_t len);
__attribute__((noinline)) enum weft_status lane_send(void *owner, uint16_t word, unsigned lane,
                                                     unsigned kind, const uint32_t *args,
                                                     unsigned nargs, const void *data, size_t len)
{
    struct side *s = owner;
    struct frame *f = &s->lane[s->tail % LANE];
    (void)word;
    (void)lane;
    if (s->tail - s->head == LANE || len > sizeof f->data)
        return WEFT_AGAIN;
    f->kind = kind;
    f->nargs = nargs;
    f->len = (uint32_t)len;
    memcpy(f->args, args, 4 * nargs);
    if (len)
        memcpy(f->data, data, len);
    s->tail++;
    return WEFT_OK;
}

static bool has_room(void *owner, uint16_t word, unsigned lane)
{
    (void)owner;
    (void)word;
    (void)lane;
    return true;
}

static uint64_t tag_of(void *owner, const struct wf_address *a)
{
    (void)owner;
    return a->process.token[0];
}

static void no_wake(void *owner, struct node_port *port)
{
    (void)owner;
    (void)port;
}

static void on_message(void *owner, const struct node_am *am)
{
    static const uint32_t args[4];
    const struct wf_am_out out = wf_am_out(2, args, 4, NULL, 0, 0);
    (void)owner;
    received += am->len == 8;
    if (puts_only)
        wf_node_client_reply(sides[1].client, am, &out);
}

static void on_reply(void *owner, const struct node_am *am)
{
    (void)owner;
    replied += am->nargs == 4;
}

static void on_end(void *owner, struct node_flow *flow, enum weft_status why)
{
    (void)owner;
    (void)flow;
    CHECK(why == WEFT_OK); /* a flow has ended */
}

static void on_gone(void *owner, struct node_sender *sender)
{
    (void)owner;
    (void)sender;
}

static void on_resolve(void *owner, struct node_flow *flow)
{
    (void)owner;
    (void)flow;
}

static void wake(void *owner)
{
    (void)owner;
}

/* Not a cost of the service: it would be the network's. */
__attribute__((noinline)) enum weft_status nic_take(void *owner, uint16_t word,
                                                    const struct wf_nic_op *op,
                                                    uint32_t incarnation, size_t *taken);
__attribute__((noinline)) enum weft_status nic_take(void *owner, uint16_t word,
                                                    const struct wf_nic_op *op,
                                                    uint32_t incarnation, size_t *taken)
{
    (void)owner;
    (void)word;
    (void)incarnation;
    if (nparts == BATCH)
        return WEFT_AGAIN;
    parts[nparts++] = op->id;
    *taken = op->len;
    return WEFT_OK;
}

static void on_moved(void *owner, struct node_flow *flow, const struct node_move_use *move,
                     enum weft_status status)
{
    (void)owner;
    (void)flow;
    (void)move;
    moved += status == WEFT_OK;
}

static void on_stop(void *owner, const struct node_move_use *move)
{
    (void)owner;
    (void)move;
}

static void side_open(struct side *s, uint64_t tag)
{
    static const struct node_client_ops client_ops = {on_message, on_reply, on_end,   on_gone,
                                                      on_resolve, wake,     on_moved, on_stop};
    struct node_mover_params mover = {.lanes = 4, .index_bits = 9, .rows = 65536, .waiters = 4096};
    struct node_client_params client = {.size = SIZE, .am_max = AM_MAX, .ops = &client_ops};
    struct node_port_params port = {
        .size = SIZE,
        .am_max = AM_MAX,
        .index = 3,
        .window = wf_node_window(3, 1),
        .contact = {.node = WF_NODE_TCP, .index = 3, .rdma = 1}, /* where HEED goes */
        .address = {.version = WF_ADDRESS_VERSION,
                    .size = sizeof(struct wf_address),
                    .process = {.pid = 1, .token = {tag}}}};
    s->ops =
        (struct node_mover_ops){lane_send, has_room, tag_of, no_wake, no_wake, NULL, s, nic_take};
    mover.ops = &s->ops;
    client.page = mover.page = s->page = wf_lines_new(sizeof *s->page);
    client.submit = port.submit = wf_lines_new(SIZE);
    client.event = port.event = wf_lines_new(SIZE);
    CHECK(s->page && port.submit && port.event);
    CHECK(wf_node_mover_open(&mover, &s->mover) == WEFT_OK);
    CHECK(wf_node_client_open(&client, &s->client) == WEFT_OK);
    CHECK(wf_node_port_attach(s->mover, &port, &s->port) == WEFT_OK);
    CHECK(wf_node_session_set(s->mover, WORD, WF_NODE_UP) == WEFT_OK);
}

/* ---- the steps, each a function that callgrind can distinguish ---- */

#define STEP __attribute__((noinline)) void
STEP client_send(struct node_flow *flow);
STEP client_move(struct node_flow *flow);
STEP service_move(struct side *s);
STEP service_done(struct side *s);
STEP client_done(struct side *s);
STEP client_poll(struct side *s);
STEP receiver_poll(struct side *s);
STEP service_turn(struct side *s);
STEP service_take(struct side *from, struct side *to);
STEP receiver_turn(struct side *s);
STEP receiver_take(struct side *from, struct side *to);
STEP round_trip(struct node_flow *flow);

STEP client_send(struct node_flow *flow)
{
    static const uint64_t payload = 42;
    static const uint32_t args[7];
    const struct wf_am_out out = puts_only ? wf_am_out(1, args, 7, &payload, sizeof payload, 16)
                                           : wf_am_out(1, NULL, 0, &payload, sizeof payload, 0);
    for (int i = 0; i < BATCH; i++)
        CHECK(wf_node_client_send(sides[0].client, flow, &out) == WEFT_OK);
}

STEP client_move(struct node_flow *flow)
{
    const struct node_move_out out = {
        .kind = WF_NODE_PUT,
        .len = 8,
        .at = {.local = (uint64_t)wf_node_window(3, 1) << WF_NODE_WINDOW_BITS}};
    for (int i = 0; i < BATCH; i++)
        CHECK(wf_node_client_move(sides[0].client, flow, &out) == WEFT_OK);
}

STEP service_move(struct side *s)
{
    (void)wf_node_mover_turn(s->mover);
}

STEP service_done(struct side *s)
{
    for (; nparts; nparts--)
        wf_node_part_done(s->mover, parts[nparts - 1], WEFT_OK);
}

STEP client_done(struct side *s)
{
    (void)wf_node_client_poll(s->client, 0, BATCH);
}

STEP client_poll(struct side *s)
{
    (void)wf_node_client_poll(s->client, 0, BATCH);
}

STEP receiver_poll(struct side *s)
{
    (void)wf_node_client_poll(s->client, 0, BATCH);
}

static void frames_take(struct side *from, struct side *to)
{
    for (; from->head != from->tail; from->head++) {
        const struct frame *f = &from->lane[from->head % LANE];
        CHECK(wf_node_frame_take(to->mover, WORD, f->kind, f->args, f->nargs, f->data, f->len) ==
              WEFT_OK);
    }
}

STEP service_turn(struct side *s)
{
    (void)wf_node_mover_turn(s->mover);
}

STEP service_take(struct side *from, struct side *to)
{
    frames_take(from, to);
}

STEP receiver_turn(struct side *s)
{
    (void)wf_node_mover_turn(s->mover);
}

STEP receiver_take(struct side *from, struct side *to)
{
    frames_take(from, to);
}

static inline __attribute__((always_inline)) void steps(struct node_flow *flow)
{
    if (moves_only) {
        client_move(flow);
        service_move(&sides[0]);
        service_done(&sides[0]);
        client_done(&sides[0]);
        return;
    }
    client_send(flow);
    service_turn(&sides[0]);
    receiver_take(&sides[0], &sides[1]);
    receiver_turn(&sides[1]);
    receiver_poll(&sides[1]);
    if (puts_only)
        receiver_turn(&sides[1]); /* replies */
    service_take(&sides[1], &sides[0]);
    if (puts_only)
        service_turn(&sides[0]); /* their acknowledgements */
    client_poll(&sides[0]);
    if (puts_only) {
        receiver_take(&sides[0], &sides[1]);
        receiver_poll(&sides[1]);
    }
}

STEP round_trip(struct node_flow *flow)
{
    steps(flow);
}

int main(int argc, char **argv)
{
    const struct node_target to = {.tag = 8, .index = 3, .ep = 0, .word = WORD};
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) / BATCH : 1000;
    struct node_flow *flow;
    puts_only = argc > 2 && !strcmp(argv[2], "puts");
    moves_only = argc > 2 && !strcmp(argv[2], "moves");
    side_open(&sides[0], 7);
    side_open(&sides[1], 8);
    flow = wf_node_flow_find(sides[0].client, &to, false);
    CHECK(flow != NULL);
    steps(flow); /* the first one begins the flow, which allocates */
    for (unsigned long i = 0; i < rounds; i++)
        round_trip(flow);
    if (moves_only) {
        CHECK(moved == BATCH * (rounds + 1));
        return 0;
    }
    CHECK(received == BATCH * (rounds + 1) && replied == (puts_only ? received : 0));
    return 0;
}
