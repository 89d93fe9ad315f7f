/* SPDX-License-Identifier: BSD-3-Clause */
/* The rings of clients' endpoints: the desk checks and maps them, and hands them to the mover. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "mem/shared.h"
#include "node/node.h"

/* ---- answers ---- */

static void answer(struct node_desk *desk, struct desk_client *client, struct wf_node_packet *p,
                   uint32_t cookie, const int *fds, int nfds)
{
    p->cookie = cookie;
    if (wf_node_packet_send(client->sock, p, fds, nfds))
        wf_node_client_end(desk, client); /* it reads nothing, and has asked too much */
}

static void ring_no(struct node_desk *desk, struct desk_client *client, uint32_t cookie,
                    enum weft_status status)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_RING_NO);
    p.u.ring_no.status = (int32_t)status;
    answer(desk, client, &p, cookie, NULL, 0);
}

/* ---- opening ---- */

static void ring_free(struct desk_ring *ring)
{
    if (ring->params.submit)
        munmap(ring->params.submit, wf_node_submit_bytes(ring->params.size));
    if (ring->params.event)
        munmap(ring->params.event, wf_node_event_bytes(ring->params.size));
    if (ring->bell >= 0)
        close(ring->bell);
    if (ring->given >= 0)
        close(ring->given);
    free(ring->end);
    free(ring);
}

static void ring_ask(struct node_desk *desk, struct desk_ring *ring, enum node_job_kind kind)
{
    ring->job.kind = kind;
    ring->busy = true;
    desk->jobs++;
    wf_node_work_ask(&desk->work, &ring->job);
}

static struct desk_ring *ring_find(const struct desk_client *client, uint16_t ep, uint32_t gen)
{
    wf_list_each(it, &client->rings)
    {
        struct desk_ring *ring = wf_container_of(it, struct desk_ring, item);
        if (ring->params.address.ep == ep && ring->params.address.ep_gen == gen)
            return ring;
    }
    return NULL;
}

/* Returns the reason to refuse RING, as a sentence, or NULL if there is none. */
static const char *ring_wrong(const struct node_desk *desk, const struct desk_client *client,
                              const struct wf_node_ring *r)
{
    const struct wf_contact *c = &r->contact;
    if (memcmp(&r->from.process, &client->hello.u.hello.self, sizeof r->from.process) != 0)
        return "RING names another process";
    if (c->index != client->index || c->node != wf_node_lanes_of(&desk->work.contact) ||
        c->rdma != wf_node_port(&desk->work.contact))
        return "RING names another index or service";
    if (r->am_max != desk->parameters.am_max || !wf_node_size_ok(r->bytes, r->am_max))
        return "RING has sizes that the service does not take";
    if (ring_find(client, r->from.ep, r->from.ep_gen))
        return "RING comes twice for one endpoint";
    return NULL;
}

/* Each endpoint has a bell of its own, so that no client reaches what wakes another one. */
static bool bell_open(struct desk_ring *ring)
{
    int ends[2];
    bool opened = wf_fd_pair(ends);
    ring->bell = ends[0];
    ring->given = ends[1];
    return opened;
}

static enum weft_status ring_map(struct desk_ring *ring, const int *fds)
{
    void *submit = NULL, *event = NULL;
    enum weft_status status =
        wf_shared_map(fds[0], wf_node_submit_bytes(ring->params.size), 0, &submit);
    ring->params.submit = submit;
    if (status == WEFT_OK)
        status = wf_shared_map(fds[1], wf_node_event_bytes(ring->params.size), 1, &event);
    ring->params.event = event;
    return status;
}

static struct desk_ring *ring_new(const struct node_desk *desk, struct desk_client *client,
                                  const struct wf_node_packet *p)
{
    const struct wf_node_ring *r = &p->u.ring;
    struct desk_ring *ring = calloc(1, sizeof *ring);
    if (ring)
        ring->end = calloc(1, sizeof *ring->end);
    if (!ring || !ring->end) {
        free(ring);
        return NULL;
    }
    ring->client = client;
    ring->bell = ring->given = -1;
    ring->cookie = p->cookie;
    ring->params = (struct node_port_params){.size = r->bytes,
                                             .am_max = r->am_max,
                                             .index = (uint16_t)client->index,
                                             .window = client->left ? client->left->window : 0,
                                             .address = r->from,
                                             .contact = r->contact,
                                             .fence = client->fence || !desk->work.membarrier};
    ring->end->state = WF_NODE_DEAD;
    return ring;
}

void wf_node_ring_read(struct node_desk *desk, struct desk_client *client,
                       const struct wf_node_packet *packet, const int *fds, int nfds)
{
    const char *wrong;
    enum weft_status status;
    struct desk_ring *ring;
    if (nfds == WF_SEQPACKET_LOST || client->nrings == WF_NODE_RINGS) {
        wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
        ring_no(desk, client, packet->cookie, WEFT_ELIMIT);
        return;
    }
    wrong = ring_wrong(desk, client, &packet->u.ring);
    if (wrong) {
        wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
        wf_node_client_fail(desk, client, "%s", wrong);
        return;
    }
    ring = ring_new(desk, client, packet);
    status = ring ? ring_map(ring, fds) : WEFT_ENOMEM;
    close(fds[0]);
    close(fds[1]);
    if (!ring) {
        ring_no(desk, client, packet->cookie, status);
        return;
    }
    if (status == WEFT_OK && !bell_open(ring))
        status = WEFT_ELIMIT;
    if (status != WEFT_OK) {
        ring_free(ring);
        if (status == WEFT_EPROTO)
            wf_node_client_fail(desk, client, "RING has memory without the seals or the size");
        else
            ring_no(desk, client, packet->cookie, status);
        return;
    }
    wf_list_append(&client->rings, &ring->item);
    client->nrings++;
    ring_ask(desk, ring, NODE_JOB_ATTACH);
}

/* ---- closing ---- */

static void unring_ok(struct node_desk *desk, struct desk_client *client,
                      const struct wf_node_unring *of, uint32_t cookie)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_UNRING_OK);
    p.u.unring = *of;
    answer(desk, client, &p, cookie, NULL, 0);
}

static void ring_leave(struct node_desk *desk, struct desk_ring *ring)
{
    ring->leaves = true;
    if (!ring->busy)
        ring_ask(desk, ring, NODE_JOB_DETACH);
}

void wf_node_unring_read(struct node_desk *desk, struct desk_client *client,
                         const struct wf_node_packet *packet)
{
    const struct wf_node_unring *u = &packet->u.unring;
    struct desk_ring *ring = ring_find(client, u->ep, u->ep_gen);
    if (!ring) { /* its client gave RING up, and RING_NO or this packet was on the way */
        unring_ok(desk, client, u, packet->cookie);
        return;
    }
    if (ring->leaves) {
        wf_node_client_fail(desk, client, "UNRING comes twice for one endpoint");
        return;
    }
    ring->cookie = packet->cookie;
    ring->asked = true;
    ring->end->state = WF_NODE_CLOSED;
    ring_leave(desk, ring);
}

void wf_node_rings_end(struct node_desk *desk, struct desk_client *client)
{
    struct wf_list *item;
    while ((item = wf_list_pop(&client->rings))) {
        struct desk_ring *ring = wf_container_of(item, struct desk_ring, item);
        ring->client = NULL;
        if (!ring->leaves)
            ring_leave(desk, ring);
    }
    client->nrings = 0;
}

/* ---- other services ---- */

void wf_node_other_read(struct node_desk *desk, struct desk_client *client,
                        const struct wf_node_packet *packet)
{
    const struct wf_node_other *n = &packet->u.node;
    const struct wf_node_scope scope = {.host = n->host, .user = n->user};
    struct desk_other *other;
    struct wf_node_packet p;
    bool is_like = wf_node_lanes_of(&n->contact) == wf_node_lanes_of(&desk->work.contact);
    if (!is_like || client->nasks == WF_NODE_ASKS || !(other = calloc(1, sizeof *other))) {
        wf_node_packet_init(&p, WF_NODE_NODE_OK);
        p.u.node_ok.status = is_like ? WEFT_ELIMIT : WEFT_EUNREACH;
        answer(desk, client, &p, packet->cookie, NULL, 0);
        return;
    }
    other->job.kind = NODE_JOB_OTHER;
    other->client = client->index;
    other->serial = client->serial;
    other->cookie = packet->cookie;
    other->contact = n->contact;
    wf_node_service_address(desk->key, &scope, wf_node_port(&n->contact), 1, &other->address);
    client->nasks++;
    desk->jobs++;
    wf_node_work_ask(&desk->work, &other->job);
}

/* ---- what the mover has done ---- */

static void attached(struct node_desk *desk, struct desk_ring *ring)
{
    struct desk_client *client = ring->client;
    struct wf_node_packet p;
    if (ring->leaves) { /* meanwhile */
        ring_ask(desk, ring, NODE_JOB_DETACH);
    } else if (ring->status == WEFT_OK) {
        int given = ring->given;
        ring->given = -1;
        wf_node_packet_init(&p, WF_NODE_RING_OK);
        answer(desk, client, &p, ring->cookie, &given, 1);
        close(given);
    } else {
        uint32_t cookie = ring->cookie;
        enum weft_status status = ring->status == WEFT_EINVAL ? WEFT_EPROTO : ring->status;
        wf_list_remove(&ring->item);
        client->nrings--;
        ring_free(ring);
        ring_no(desk, client, cookie, status);
    }
}

static void detached(struct node_desk *desk, struct desk_ring *ring)
{
    struct desk_client *client = ring->client;
    const struct wf_node_unring of = {.ep = ring->params.address.ep,
                                      .ep_gen = ring->params.address.ep_gen};
    if (client) {
        wf_list_remove(&ring->item);
        client->nrings--;
    }
    if (client && ring->asked)
        unring_ok(desk, client, &of, ring->cookie);
    ring_free(ring);
}

static void other_found(struct node_desk *desk, struct desk_other *other)
{
    struct desk_client *client = desk->by_index[other->client];
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_NODE_OK);
    if (other->status == WEFT_OK)
        p.u.node_ok.word = other->word;
    else
        p.u.node_ok.status = (int32_t)other->status;
    if (client && client->serial == other->serial) {
        client->nasks--;
        answer(desk, client, &p, other->cookie, NULL, 0);
    }
    free(other);
}

static void job_take(struct node_desk *desk, struct node_job *job)
{
    struct desk_ring *ring = wf_container_of(job, struct desk_ring, job);
    desk->jobs--;
    switch (job->kind) {
    case NODE_JOB_ATTACH:
        ring->busy = false;
        attached(desk, ring);
        break;
    case NODE_JOB_DETACH: detached(desk, ring); break;
    case NODE_JOB_OTHER: other_found(desk, wf_container_of(job, struct desk_other, job)); break;
    case NODE_JOB_SLAB:
    case NODE_JOB_UNSLAB: wf_node_slab_done(desk, job); break;
    }
}

/* End the clients that the mover has found to break the protocol. */
static void bad_end(struct node_desk *desk)
{
    wf_list_each_safe(it, nx, &desk->attached)
    {
        struct desk_client *client = wf_container_of(it, struct desk_client, item);
        bool bad = false;
        wf_list_each(r, &client->rings) bad |= atomic_load_explicit(
            &wf_container_of(r, struct desk_ring, item)->bad, memory_order_acquire);
        if (bad)
            wf_node_client_fail(desk, client,
                                "this process broke the protocol of the shared rings");
    }
}

void wf_node_jobs_take(struct node_desk *desk)
{
    struct node_job *job;
    uint64_t count;
    if (read(desk->work.done_fd, &count, sizeof count) < 0)
        return;
    while ((job = wf_node_work_done(&desk->work)))
        job_take(desk, job);
    bad_end(desk);
}
