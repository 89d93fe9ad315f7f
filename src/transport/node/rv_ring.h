/* SPDX-License-Identifier: BSD-3-Clause */
/* The rings of a weft_node: writes that the node's service executes, and events of peers' writes.
 * It is an endpoint's memory (layout.h) without flows: entries are moves, and the service ends each
 * move by a word. One thread at a time calls these functions. */
#ifndef WF_TRANSPORT_NODE_RV_RING_H
#define WF_TRANSPORT_NODE_RV_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/node/layout.h"

struct wf_rv_ring {
    struct wf_node_submit *submit;
    struct wf_node_event *event;
    const struct wf_node_page *page;
    uint32_t size, lines, events;
    uint32_t tail;  /* entries posted */
    uint32_t taken; /* events taken */
    uint32_t last_use;
    uint32_t uses[WF_NODE_MOVES]; /* of the moves that are not complete; 0: the place is free */
    uint64_t busy;                /* places that are not free, as bits */
    unsigned next;                /* place at which the next look for a complete move begins */
    uint64_t service_seen;        /* the last epoch of the service's sleep word */
    bool fence;
    int bell; /* by which the service is woken, or -1 */
};

struct wf_rv_post {
    enum wf_node_move_kind kind;
    uint32_t word, session; /* the name of the peer's word, and the session by which it is to go */
    uint32_t len;
    unsigned lane;
    struct wf_node_move at;
};

/* An event of a peer's write. */
struct wf_rv_event {
    uint32_t word; /* the name of the word of the writer's service */
    uint32_t index, bytes, immediate;
};

/* Returns the size of the segments for [events] events that wait; 0 if there is none. */
uint32_t wf_rv_ring_size(uint32_t events);
/* Begin with two segments that are all 0. */
void wf_rv_ring_init(struct wf_rv_ring *ring, void *submit, void *event, uint32_t size,
                     uint32_t events);
/* Returns the move's place, or -1 if there is no room. */
int wf_rv_ring_post(struct wf_rv_ring *ring, const struct wf_rv_post *post);
/* Returns the place, one of those of [places], of a move that is complete, and makes it free; -1:
 * there is none. Complete moves are taken in turn, so that none waits for ever for others. [end]
 * becomes enum wf_node_move_end. A word that ends a move in no such way counts as LOST. */
int wf_rv_ring_ended(struct wf_rv_ring *ring, uint64_t places, unsigned *end);
/* The service has ended: take the place of a move that it did not complete; -1: there is none. */
int wf_rv_ring_abandon(struct wf_rv_ring *ring);
/* Take an event. Returns OK | AGAIN (there is none) | EPROTO */
enum weft_status wf_rv_ring_take(struct wf_rv_ring *ring, struct wf_rv_event *out);
/* The position behind the last event that is there. */
uint32_t wf_rv_ring_tail(const struct wf_rv_ring *ring);
/* Wake the service, if it sleeps. */
void wf_rv_ring_wake(struct wf_rv_ring *ring);

#endif
