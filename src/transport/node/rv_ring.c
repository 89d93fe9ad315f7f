/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/node/rv_ring.h"

#include <sys/socket.h>

#include "base/log.h"
#include "transport/ring/sleep.h"

uint32_t wf_rv_ring_size(uint32_t events)
{
    uint32_t size = wf_node_size(WF_NODE_RING_MIN, WF_NODE_AM_MAX);
    while (size < WF_NODE_RING_MAX && wf_node_lines(size) < events)
        size *= 2;
    return wf_node_lines(size) >= events ? size : 0;
}

void wf_rv_ring_init(struct wf_rv_ring *ring, void *submit, void *event, uint32_t size,
                     uint32_t events)
{
    *ring = (struct wf_rv_ring){.submit = submit,
                                .event = event,
                                .size = size,
                                .lines = wf_node_lines(size),
                                .events = events,
                                .fence = true,
                                .bell = -1};
    wf_store_relaxed(&ring->submit->events, events);
}

void wf_rv_ring_wake(struct wf_rv_ring *ring)
{
    if (wf_sleep_must_wake(&ring->page->sleep_epoch, &ring->service_seen, ring->fence) &&
        ring->bell >= 0 && send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        wf_debug("the node's service was woken already, or has ended: %m");
}

int wf_rv_ring_post(struct wf_rv_ring *ring, const struct wf_rv_post *post)
{
    struct wf_node_entry *e = &ring->submit->entries[ring->tail & (ring->lines - 1)];
    int place = ~ring->busy ? __builtin_ctzll(~ring->busy) : -1;
    if (place < 0 || ring->tail - wf_load_acquire(&ring->event->taken) >= ring->lines)
        return -1;
    ring->last_use += 1 + (ring->last_use == UINT32_MAX); /* never 0 */
    ring->busy |= UINT64_C(1) << place;
    ring->uses[place] = ring->last_use;
    e->handler = (uint8_t)post->kind;
    e->nargs = (uint8_t)post->lane;
    e->place = (uint8_t)place;
    e->flags = WF_NODE_MOVE;
    e->where = post->word;
    e->number = post->len;
    e->slot = e->attempt = 0;
    e->session = post->session;
    e->use = ring->last_use;
    e->move = post->at;
    wf_store_release(&e->ready, wf_shm_ready(ring->tail++, 0, 0)); /* "entry" */
    wf_rv_ring_wake(ring);
    return place;
}

static int place_free(struct wf_rv_ring *ring, int place)
{
    ring->uses[place] = 0;
    ring->busy &= ~(UINT64_C(1) << place);
    return place;
}

int wf_rv_ring_ended(struct wf_rv_ring *ring, uint64_t places, unsigned *end)
{
    for (unsigned i = 0; i < WF_NODE_MOVES; i++) {
        unsigned place = (ring->next + i) % WF_NODE_MOVES;
        uint64_t word;
        if (!(ring->busy & places & UINT64_C(1) << place))
            continue;
        word = wf_load_acquire(&ring->event->slots[place].moved); /* "moved" */
        if ((uint32_t)word != ring->uses[place])
            continue;
        ring->next = place + 1;
        *end = (unsigned)(word >> 32);
        if (!*end || *end >= WF_NODE_MOVE_ENDS)
            *end = WF_NODE_MOVE_LOST;
        return place_free(ring, (int)place);
    }
    return -1;
}

int wf_rv_ring_abandon(struct wf_rv_ring *ring)
{
    return ring->busy ? place_free(ring, __builtin_ctzll(ring->busy)) : -1;
}

enum weft_status wf_rv_ring_take(struct wf_rv_ring *ring, struct wf_rv_event *out)
{
    const struct wf_node_entry *line = &ring->event->entries[ring->taken & (ring->lines - 1)];
    struct wf_node_entry e;
    if (!wf_shm_is_ready(wf_load_acquire(&line->ready), ring->taken)) /* "entry" */
        return WEFT_AGAIN;
    memcpy((uint8_t *)&e + 8, (const uint8_t *)line + 8, sizeof e - 8);
    if (e.flags != WF_NODE_WRITTEN || e.number > WF_NODE_MOVE_MAX || e.slot >= WF_NODE_INDEXES)
        return WEFT_EPROTO;
    *out = (struct wf_rv_event){e.session, e.slot, e.number, e.use};
    wf_store_release(&ring->submit->taken, ++ring->taken); /* "taken" */
    return WEFT_OK;
}

uint32_t wf_rv_ring_tail(const struct wf_rv_ring *ring)
{
    uint32_t tail = ring->taken;
    while (tail - ring->taken < ring->lines &&
           wf_shm_is_ready(wf_load_acquire(&ring->event->entries[tail & (ring->lines - 1)].ready),
                           tail))
        tail++;
    return tail;
}
