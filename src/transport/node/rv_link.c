/* SPDX-License-Identifier: BSD-3-Clause */
/* weft/node.h: the rings, which the service gets once, and its answers. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "mem/shared.h"
#include "transport/node/rv.h"

#define MS UINT64_C(1000000)
#define LOOK_MS 50    /* between looks at the time that is left */
#define RETURN_MS 500 /* for the service to give the rings up */
#define ADDRESS_EP 1

/* ---- what the service answers ---- */

static WF_REQUIRES(rv_lock_class) void node_answer(struct weft_node *node,
                                                   const struct wf_node_packet *p)
{
    wf_list_each(it, &node->peers)
    {
        struct weft_node_peer *peer = wf_container_of(it, struct weft_node_peer, item);
        if (peer->cookie != p->cookie || peer->status != WEFT_PENDING)
            continue;
        peer->word = p->u.node_ok.word;
        peer->status = (enum weft_status)p->u.node_ok.status;
    }
}

static WF_REQUIRES(rv_lock_class) void ring_answer(struct weft_node *node,
                                                   const struct wf_node_packet *p, int *fds,
                                                   int nfds)
{
    if (p->type == WF_NODE_UNRING_OK) {
        node->ring_status = WEFT_OK;
    } else if (p->type == WF_NODE_RING_NO) {
        node->ring_status = (enum weft_status)p->u.ring_no.status;
    } else if (nfds == 1 && node->ring.bell < 0) {
        node->ring.bell = fds[0];
        fds[0] = -1;
        node->ring_status = WEFT_OK;
    } else {
        node->ring_status = WEFT_ELIMIT;
    }
}

bool wf_rv_answer(struct wf_node_link *link, const struct wf_node_packet *p, int *fds, int nfds)
{
    struct weft_node *node = link->owner;
    if (p->type != WF_NODE_RING_OK && p->type != WF_NODE_RING_NO && p->type != WF_NODE_UNRING_OK &&
        p->type != WF_NODE_NODE_OK)
        return false;
    rv_lock(node);
    if (p->type == WF_NODE_NODE_OK)
        node_answer(node, p);
    else
        ring_answer(node, p, fds, nfds);
    pthread_cond_broadcast(&node->answered);
    rv_unlock(node);
    return true;
}

void wf_rv_ended(struct weft_node *node)
{
    rv_lock(node);
    pthread_cond_broadcast(&node->answered);
    rv_unlock(node);
}

/* ---- rings ---- */

static struct wf_contact contact_of(const struct weft_node *node)
{
    struct wf_contact c = node->link.contact;
    c.port = 0;
    c.rdma = wf_node_port(&node->link.contact);
    c.node = (uint8_t)wf_node_lanes_of(&node->link.contact);
    c.index = (uint16_t)node->link.index;
    return c;
}

static struct wf_address address_of(const struct weft_node *node)
{
    return (struct wf_address){.version = WF_ADDRESS_VERSION,
                               .size = sizeof(struct wf_address),
                               .ep = ADDRESS_EP,
                               .ep_gen = node->link.incarnation & WF_NODE_GEN_MASK,
                               .process = node->self};
}

static void bell_in_child(struct wf_fork_item *item)
{
    struct weft_node *node = wf_container_of(item, struct weft_node, fork);
    if (node->ring.bell >= 0)
        close(node->ring.bell);
    node->ring.bell = -1;
}

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT, .child = bell_in_child};

/* Give the service the rings, and wait for its answer. */
static WF_UNCHECKED enum weft_status rings_give(struct weft_node *node, const int fds[2])
{
    uint64_t until = wf_now_ns() + wf_config()->connect_timeout_ms * MS;
    enum weft_status status = WEFT_OK;
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_RING);
    p.cookie = ++node->cookie;
    p.u.ring = (struct wf_node_ring){.from = address_of(node),
                                     .contact = contact_of(node),
                                     .bytes = node->ring.size,
                                     .am_max = WF_NODE_AM_MAX};
    node->ring_status = WEFT_PENDING;
    if (wf_node_packet_send(node->link.sock, &p, fds, 2))
        return WEFT_ESYSTEM;
    while (status == WEFT_OK && node->ring_status == WEFT_PENDING) {
        struct pollfd ready[] = {{.fd = node->link.sock, .events = POLLIN},
                                 {.fd = node->link.pidfd, .events = POLLIN}};
        if (wf_now_ns() >= until)
            return WEFT_ETIMEDOUT;
        if (poll(ready, 2, LOOK_MS) > 0)
            status = wf_node_hear(&node->link);
    }
    return status == WEFT_OK ? node->ring_status : status;
}

static WF_UNCHECKED enum weft_status rings_map(struct weft_node *node, uint32_t events, int fds[2])
{
    uint32_t size = wf_rv_ring_size(events);
    void *submit = NULL, *event = NULL, *page = NULL;
    enum weft_status status;
    fds[0] = wf_shared_create("weft-node-ring", wf_node_submit_bytes(size), 1, &submit);
    fds[1] = wf_shared_create("weft-node-ring", wf_node_event_bytes(size), 0, &event);
    status = wf_shared_map(node->link.page_fd, sizeof(struct wf_node_page), 0, &page);
    node->ring = (struct wf_rv_ring){.submit = submit, .event = event, .size = size, .bell = -1};
    if (fds[0] >= 0 && fds[1] >= 0 && status == WEFT_OK)
        wf_rv_ring_init(&node->ring, submit, event, size, events);
    else if (status == WEFT_OK)
        status = WEFT_ELIMIT;
    node->ring.page = page;
    return status;
}

WF_UNCHECKED enum weft_status wf_rv_rings_open(struct weft_node *node, uint32_t events)
{
    pthread_condattr_t attr;
    enum weft_status status;
    int fds[2];
    pthread_mutex_init(&node->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&node->answered, &attr);
    pthread_condattr_destroy(&attr);
    wf_list_init(&node->peers);
    node->ring.bell = -1;
    node->link.answer = wf_rv_answer;
    node->link.owner = node;
    wf_fork_join(&node->fork, &fork_ops);
    if (!events)
        return WEFT_OK;
    status = rings_map(node, events, fds);
    if (status == WEFT_OK)
        status = rings_give(node, fds);
    for (unsigned i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (status != WEFT_OK)
        wf_warn("weft_node_open: the node's service, process %d, takes no rings: %s",
                (int)node->link.pid, weft_status_text(status));
    return status;
}

static WF_REQUIRES(rv_lock_class) bool return_ask(struct weft_node *node)
{
    const struct wf_address address = address_of(node);
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_UNRING);
    p.cookie = ++node->cookie;
    p.u.unring = (struct wf_node_unring){.ep = address.ep, .ep_gen = address.ep_gen};
    return !wf_node_packet_send(node->link.sock, &p, NULL, 0);
}

void wf_rv_rings_return(struct weft_node *node)
{
    uint64_t until_ns = wf_now_ns() + RETURN_MS * MS;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    int err = 0;
    rv_lock(node);
    node->ring_status = WEFT_PENDING;
    if (!return_ask(node))
        err = ETIMEDOUT; /* it has read nothing for long, or has ended */
    while (!err && node->ring_status == WEFT_PENDING && rv_status(node) == WEFT_OK)
        err = pthread_cond_timedwait(&node->answered, &node->lock, &until);
    if (err && rv_status(node) == WEFT_OK)
        wf_warn("weft_node_close: the node's service, process %d, does not give up writes that are "
                "under way: is it stopped?",
                (int)node->link.pid);
    rv_unlock(node);
}

static void unmap(const void *at, size_t len)
{
    if (at)
        munmap((void *)(uintptr_t)at, len);
}

WF_UNCHECKED void wf_rv_rings_close(struct weft_node *node)
{
    struct wf_list *item;
    if (!node->fork.ops) /* they were not opened */
        return;
    while ((item = wf_list_pop(&node->peers)))
        free(wf_container_of(item, struct weft_node_peer, item));
    wf_fork_leave(&node->fork);
    bell_in_child(&node->fork);
    unmap(node->ring.submit, wf_node_submit_bytes(node->ring.size));
    unmap(node->ring.event, wf_node_event_bytes(node->ring.size));
    unmap(node->ring.page, sizeof *node->ring.page);
    pthread_cond_destroy(&node->answered);
    pthread_mutex_destroy(&node->lock);
}

/* ---- the address ---- */

enum weft_status weft_node_address(struct weft_node *node, void *addr, size_t *len)
{
    enum weft_status status = len ? wf_rv_check(node) : WEFT_EINVAL;
    uint8_t bytes[WF_ADDRESS_BYTES];
    struct wf_contact contact;
    struct wf_address address;
    if (status != WEFT_OK)
        return status;
    if (!addr || *len < sizeof bytes) {
        *len = sizeof bytes;
        return WEFT_EMSGSIZE;
    }
    contact = contact_of(node);
    address = address_of(node);
    *len = wf_address_pack(&address, &contact, bytes);
    memcpy(addr, bytes, sizeof bytes);
    return WEFT_OK;
}
