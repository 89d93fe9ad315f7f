/* SPDX-License-Identifier: BSD-3-Clause */
/* Two node services in one process, their clients, and the lanes between them: queues that the
 * test advances step by step. Every choice comes from one random number generator. */
#ifndef TEST_NODE_BED_H
#define TEST_NODE_BED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rand.h"
#include "mem/shared.h"
#include "node/mover.h"
#include "transport/node/engine.h"

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define BED_SIDE 3 /* most clients of a service */
#define BED_LANES 2
#define BED_WORD 2  /* of the other service, in both pages */
#define BED_STUCK 1 /* of a third one, which takes nothing */
#define BED_AM_MAX 4096

struct bed_frame {
    struct bed_frame *next;
    unsigned kind, nargs;
    uint32_t args[16];
    size_t len;
    uint8_t data[];
};

struct bed_lane {
    struct bed_frame *first, **last;
    unsigned count, room;
};

struct bed;
struct bed_service {
    struct bed *bed;
    unsigned side;
    struct node_mover *mover; /* NULL: dead */
    struct wf_node_page *page;
    struct bed_lane out[BED_LANES];
    struct node_mover_ops ops;
    unsigned failed, behind;
    unsigned own, stuck; /* frames to itself; refusals of the service that takes nothing */
};

struct bed_client {
    struct bed *bed;
    struct bed_service *service;
    struct node_client *c;
    struct node_port *port;
    struct wf_node_submit *submit;
    struct wf_node_submit *mapped; /* as its service has mapped it */
    int submit_fd;
    struct wf_node_event *event;
    struct wf_address address;
    uint16_t index;
    bool stopped, attached;
    bool releases; /* its flows, when they end */
    struct node_flow *to[BED_SIDE];
    struct node_flow *asked[2 * BED_SIDE + 2];
    unsigned nasked;
    /* what the test keeps: by the other side's client */
    uint32_t sent[BED_SIDE], got[BED_SIDE], wanted[BED_SIDE], answered[BED_SIDE];
    unsigned wakes, ended, gone;
    enum weft_status why;
};

struct bed_limits {
    unsigned clients;                     /* of each side */
    uint32_t lines, rows, waiters, slots; /* slots: of each client, 1..64 */
    unsigned lane_room;
    uint32_t size;
};

struct bed {
    uint64_t rand, now;
    struct bed_limits limits;
    struct bed_service services[2];
    struct bed_client clients[2][BED_SIDE];
    bool up;       /* both services have a session */
    bool is_short; /* lanes have no memory */
    void *old_pages[4096];
    unsigned nold;
    void (*on_request)(struct bed_client *to, const struct node_am *am);
    void (*on_reply)(struct bed_client *to, const struct node_am *am);
    /* NULL: the services have no NIC */
    enum weft_status (*on_move)(struct bed_service *s, const struct wf_nic_op *op,
                                uint32_t incarnation, size_t *taken);
    /* NULL: they do not send parts themselves. [id] is the part, or the buffer that serves it. */
    enum weft_status (*on_part)(struct bed_service *s, unsigned lane, unsigned kind,
                                const uint32_t *args, uint32_t id, uint32_t len);
    void (*on_moved)(struct bed_client *b, uint32_t id, void *user, enum weft_status status);
    void (*on_stop)(struct bed_client *b, void *user);
};

static inline uint32_t bed_draw(struct bed *bed, uint32_t n)
{
    return (uint32_t)(wf_rand(&bed->rand) >> 33) % n;
}

/* ---- the lanes ---- */

static enum weft_status bed_send(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                 const uint32_t *args, unsigned nargs, const void *data, size_t len)
{
    struct bed_service *s = owner;
    struct bed_lane *l = &s->out[lane];
    struct bed_frame *f;
    s->own += word == WF_NODE_OWN;
    s->stuck += word == BED_STUCK;
    if (word == BED_STUCK || word == WF_NODE_OWN)
        return word == BED_STUCK ? WEFT_AGAIN : WEFT_OK;
    CHECK(word == BED_WORD && lane < BED_LANES && nargs <= 16);
    if (s->bed->is_short)
        return WEFT_ENOMEM;
    if (l->count >= l->room || !s->bed->up)
        return WEFT_AGAIN;
    f = malloc(sizeof *f + len);
    CHECK(f);
    *f = (struct bed_frame){.kind = kind, .nargs = nargs, .len = len};
    memcpy(f->args, args, 4 * nargs);
    if (len)
        memcpy(f->data, data, len);
    *l->last = f;
    l->last = &f->next;
    l->count++;
    return WEFT_OK;
}

static bool bed_has_room(void *owner, uint16_t word, unsigned lane)
{
    const struct bed_lane *l = &((struct bed_service *)owner)->out[lane];
    (void)word;
    return l->count <= l->room / 2;
}

static uint64_t bed_tag(void *owner, const struct wf_address *a)
{
    uint64_t seed = a->process.token[0];
    (void)owner;
    return wf_rand(&seed);
}

static void bed_wake_client(void *owner, struct node_port *port)
{
    (void)owner;
    ((struct bed_client *)port->user)->wakes++;
}

static void bed_failed(void *owner, struct node_port *port)
{
    (void)port;
    ((struct bed_service *)owner)->failed++;
}

static void bed_behind(void *owner, uint16_t word)
{
    CHECK(word == BED_STUCK);
    ((struct bed_service *)owner)->behind++;
}

static inline void bed_lane_drop(struct bed_lane *l)
{
    while (l->first) {
        struct bed_frame *f = l->first;
        l->first = f->next;
        free(f);
    }
    l->last = &l->first;
    l->count = 0;
}

/* The other service takes the oldest frame of a lane. Returns false if there is none. */
static inline bool bed_frame(struct bed_service *from, unsigned lane)
{
    struct bed_service *to = &from->bed->services[!from->side];
    struct bed_lane *l = &from->out[lane];
    struct bed_frame *f = l->first;
    void *exact;
    if (!f || !to->mover)
        return false;
    l->first = f->next;
    if (!l->first)
        l->last = &l->first;
    l->count--;
    exact = malloc(f->len + !f->len); /* a byte too far is seen */
    memcpy(exact, f->data, f->len);
    CHECK(wf_node_frame_take(to->mover, BED_WORD, f->kind, f->args, f->nargs, exact, f->len) ==
          WEFT_OK);
    free(exact);
    free(f);
    return true;
}

/* ---- clients ---- */

static void bed_deliver(void *owner, const struct node_am *am)
{
    struct bed_client *b = owner;
    b->bed->on_request(b, am);
}

static void bed_replied(void *owner, const struct node_am *am)
{
    struct bed_client *b = owner;
    b->bed->on_reply(b, am);
}

static void bed_ended(void *owner, struct node_flow *flow, enum weft_status why)
{
    struct bed_client *b = owner;
    b->ended++;
    b->why = why;
    if (b->releases && !flow->is_reply)
        wf_node_flow_release(b->c, flow);
}

static void bed_gone(void *owner, struct node_sender *sender)
{
    struct bed_client *b = owner;
    (void)sender;
    b->gone++;
}

static void bed_resolve(void *owner, struct node_flow *flow)
{
    struct bed_client *b = owner;
    CHECK(b->nasked < WF_ARRAY_LEN(b->asked));
    b->asked[b->nasked++] = flow;
}

static void bed_wake(void *owner)
{
    (void)owner;
}

static void bed_moved(void *owner, struct node_flow *flow, const struct node_move_use *move,
                      enum weft_status status)
{
    struct bed_client *b = owner;
    (void)flow;
    b->bed->on_moved(b, move->id, move->user, status);
}

static void bed_stop(void *owner, const struct node_move_use *move)
{
    struct bed_client *b = owner;
    b->bed->on_stop(b, move->user);
}

static enum weft_status bed_move(void *owner, uint16_t word, const struct wf_nic_op *op,
                                 uint32_t incarnation, size_t *taken)
{
    struct bed_service *s = owner;
    CHECK(word == BED_WORD && op->is_lent);
    return s->bed->on_move(s, op, incarnation, taken);
}

static enum weft_status bed_send_part(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                      const uint32_t *args, unsigned nargs, uint32_t id,
                                      uint32_t len)
{
    struct bed_service *s = owner;
    CHECK(lane < BED_LANES && len);
    if (kind == WF_NODE_FRAME_PUT)
        CHECK(word == BED_WORD && nargs == WF_NODE_PUT_ARGS && args[0] == id);
    else
        CHECK(kind == WF_NODE_FRAME_GOT && nargs == WF_NODE_GOT_ARGS && args[2] == id);
    return s->bed->on_part(s, lane, kind, args, id, len);
}

static const struct node_client_ops bed_client_ops = {
    bed_deliver, bed_replied, bed_ended, bed_gone, bed_resolve, bed_wake, bed_moved, bed_stop};

static inline void bed_resolve_all(struct bed_client *b)
{
    while (b->nasked)
        wf_node_flow_resolve(b->c, b->asked[--b->nasked], BED_WORD);
}

static inline uint32_t bed_submit_bytes(const struct bed *bed)
{
    return bed->on_part ? wf_node_submit_bytes(bed->limits.size) : bed->limits.size;
}

static inline void bed_submit_open(struct bed_client *b)
{
    uint32_t bytes = bed_submit_bytes(b->bed);
    void *p = NULL;
    if (b->bed->on_part)
        CHECK((b->submit_fd = wf_shared_create("bed", bytes, 0, &p)) >= 0);
    else
        CHECK(p = wf_lines_new(bytes));
    b->submit = p;
}

static inline void bed_submit_close(struct bed_client *b)
{
    if (!b->bed->on_part)
        free(b->submit);
    else if (b->submit)
        CHECK(!munmap(b->submit, bed_submit_bytes(b->bed)) && !close(b->submit_fd));
}

static inline void bed_event_open(struct bed_client *b)
{
    uint32_t bytes = wf_node_event_bytes(b->bed->limits.size);
    void *p = b->bed->on_part
                  ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : wf_lines_new(b->bed->limits.size);
    CHECK(p && p != MAP_FAILED);
    b->event = p;
}

static inline void bed_event_close(struct bed_client *b)
{
    if (!b->bed || !b->bed->on_part)
        free(b->event);
    else if (b->event)
        CHECK(!munmap(b->event, wf_node_event_bytes(b->bed->limits.size)));
}

/* A service that sends parts keeps the memory of some endpoints that have left: it has a mapping of
 * its own. */
static inline void bed_submit_map(struct bed_client *b)
{
    void *p = b->submit;
    if (b->bed->on_part)
        CHECK(wf_shared_map(b->submit_fd, bed_submit_bytes(b->bed), 0, &p) == WEFT_OK);
    b->mapped = p;
}

static inline void bed_detach(struct bed_client *b)
{
    bool kept = wf_node_port_detach(b->port);
    CHECK(!kept || b->bed->on_part);
    if (b->bed->on_part && !kept)
        CHECK(!munmap(b->mapped, bed_submit_bytes(b->bed)));
    b->attached = false;
}

static inline void bed_attach(struct bed_client *b)
{
    const struct bed_limits *l = &b->bed->limits;
    struct node_port_params params = {.event = b->event,
                                      .size = l->size,
                                      .am_max = BED_AM_MAX,
                                      .lines = l->lines,
                                      .index = b->index,
                                      .window = b->bed->on_move ? wf_node_window(b->index, 1) : 0,
                                      .address = b->address,
                                      .contact = {.port = 7, .count = 1}};
    bed_submit_map(b);
    params.submit = b->mapped;
    CHECK(wf_node_port_attach(b->service->mover, &params, &b->port) == WEFT_OK);
    b->port->user = b;
    b->attached = true;
}

static inline void bed_client_open(struct bed *bed, unsigned side, unsigned i)
{
    struct bed_client *b = &bed->clients[side][i];
    const struct bed_limits *l = &bed->limits;
    struct node_client_params params;
    b->bed = bed;
    b->service = &bed->services[side];
    b->index = (uint16_t)(i + 5);
    b->address = (struct wf_address){.version = WF_ADDRESS_VERSION,
                                     .size = sizeof b->address,
                                     .ep = (uint16_t)(i + 40),
                                     .process = {.pid = 1 + i, .token = {100 * side + i + 1}}};
    bed_submit_open(b);
    bed_event_open(b);
    params = (struct node_client_params){.submit = b->submit,
                                         .event = b->event,
                                         .page = b->service->page,
                                         .size = l->size,
                                         .am_max = BED_AM_MAX,
                                         .lines = l->lines,
                                         .ops = &bed_client_ops,
                                         .owner = b};
    CHECK(wf_node_client_open(&params, &b->c) == WEFT_OK);
    memset(b->c->slots_free, 0, sizeof b->c->slots_free);
    b->c->slots_free[0] = UINT64_MAX >> (64 - l->slots);
    bed_attach(b);
}

/* The successor's page: requests to its predecessor are repeated. */
static inline void bed_reattach(struct bed_client *b)
{
    b->nasked = 0;
    wf_node_client_reattach(b->c, b->service->page, false);
    bed_attach(b);
}

/* ---- services ---- */

static inline void bed_service_start(struct bed_service *s, bool young)
{
    struct node_mover_params params = {.ops = &s->ops,
                                       .lanes = BED_LANES,
                                       .index_bits = 4,
                                       .rows = s->bed->limits.rows,
                                       .waiters = s->bed->limits.waiters,
                                       .before = s->page,
                                       .young = young};
    if (s->page) {
        CHECK(s->bed->nold < WF_ARRAY_LEN(s->bed->old_pages));
        s->bed->old_pages[s->bed->nold++] = s->page;
    }
    params.page = s->page = wf_lines_new(sizeof *s->page);
    CHECK(s->page && wf_node_mover_open(&params, &s->mover) == WEFT_OK);
}

static inline void bed_connect(struct bed *bed)
{
    for (unsigned side = 0; side < 2; side++)
        for (unsigned lane = 0; lane < BED_LANES; lane++)
            bed_lane_drop(&bed->services[side].out[lane]);
    bed->up = true;
    for (unsigned side = 0; side < 2; side++)
        CHECK(wf_node_session_set(bed->services[side].mover, BED_WORD, WF_NODE_UP) == WEFT_OK);
}

static inline void bed_open(struct bed *bed)
{
    for (unsigned side = 0; side < 2; side++) {
        struct bed_service *s = &bed->services[side];
        s->bed = bed;
        s->side = side;
        s->ops = (struct node_mover_ops){bed_send,   bed_has_room, bed_tag, bed_wake_client,
                                         bed_failed, bed_behind,   s};
        if (bed->on_move)
            s->ops.move = bed_move;
        if (bed->on_part)
            s->ops.send_part = bed_send_part;
        for (unsigned lane = 0; lane < BED_LANES; lane++) {
            s->out[lane].room = bed->limits.lane_room;
            s->out[lane].last = &s->out[lane].first;
        }
        bed_service_start(s, false);
        for (unsigned i = 0; i < bed->limits.clients; i++)
            bed_client_open(bed, side, i);
    }
    bed_connect(bed);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < bed->limits.clients; i++)
            for (unsigned k = 0; k < bed->limits.clients; k++) {
                const struct bed_client *to = &bed->clients[!side][k];
                const struct node_target target = {bed_tag(NULL, &to->address), to->index,
                                                   to->address.ep, BED_WORD};
                struct bed_client *b = &bed->clients[side][i];
                CHECK(b->to[k] = wf_node_flow_find(b->c, &target, false));
            }
}

/* It has not rung its bell for what it has written since the client looked. */
static inline void bed_bell_lose(struct bed_client *b)
{
    for (unsigned w = 0; w < WF_SHM_BELL_WORDS; w++)
        b->event->bell.bits[w] = 0;
    b->event->bell.rung = 0;
}

/* The service dies at this instruction: its mover's memory and all frames in flight to it are lost.
 */
static inline void bed_kill(struct bed *bed, unsigned side)
{
    struct bed_service *s = &bed->services[side];
    for (unsigned i = 0; i < bed->limits.clients; i++) {
        struct bed_client *b = &bed->clients[side][i];
        if (b->attached)
            bed_detach(b);
        if (bed_draw(bed, 2))
            bed_bell_lose(b);
    }
    wf_node_mover_close(s->mover);
    s->mover = NULL;
    bed->up = false;
    for (unsigned lane = 0; lane < BED_LANES; lane++)
        bed_lane_drop(&bed->services[!side].out[lane]);
}

static inline void bed_close(struct bed *bed)
{
    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < bed->limits.clients; i++) {
            struct bed_client *b = &bed->clients[side][i];
            if (b->attached)
                bed_detach(b);
            if (b->c)
                wf_node_client_close(b->c);
            if (b->bed)
                bed_submit_close(b);
            bed_event_close(b);
        }
        if (bed->services[side].mover)
            wf_node_mover_close(bed->services[side].mover);
        for (unsigned lane = 0; lane < BED_LANES; lane++)
            bed_lane_drop(&bed->services[side].out[lane]);
        free(bed->services[side].page);
    }
    while (bed->nold)
        free(bed->old_pages[--bed->nold]);
}

#endif
