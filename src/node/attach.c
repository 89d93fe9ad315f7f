/* SPDX-License-Identifier: BSD-3-Clause */
/* What clients send, up to the index that they are given. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/node.h"

void wf_node_turn_away(const struct node_desk *desk, int sock, enum wf_node_reason reason)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_REFUSAL);
    p.u.refused.reason = (uint32_t)reason;
    p.u.refused.parameters = desk->parameters;
    p.u.refused.ends = reason == WF_NODE_REFUSED_ENDING;
    (void)wf_node_packet_send(sock, &p, NULL, 0); /* it is closed next in any case */
}

static void refuse(struct node_desk *desk, struct desk_client *client, enum wf_node_reason reason)
{
    wf_node_turn_away(desk, client->sock, reason);
    wf_node_client_end(desk, client);
}

/* ---- indexes ---- */

/* An index that the client had from an earlier service is still its own while no other client has
 * it, and while the others may not know yet that it was gone. */
static bool index_claim(struct node_desk *desk, const struct desk_client *client, uint32_t *index)
{
    const struct wf_node_hello *hello = &client->hello.u.hello;
    uint32_t held = hello->held - 1;
    if (held >= node_indexes(desk) || desk->by_index[held] || hello->last == desk->incarnation ||
        hello->line != desk->line || wf_now_ns() >= desk->claims_until_ns ||
        !wf_node_heir_is(desk, held, client->pid))
        return false;
    *index = held;
    return true;
}

/* Round robin: an index that was given back is given again as late as can be, so that messages
 * under way for its last owner reach no other client. While the service is young, indexes that no
 * client had come first: a next successor may be given a page that shows only the one before. */
static bool index_find(struct node_desk *desk, uint32_t *index)
{
    uint32_t n = node_indexes(desk);
    for (uint32_t i = desk->work.young ? 0 : n; i < 2 * n; i++) {
        uint32_t at = (desk->next_index + i) & (n - 1);
        uint8_t heir = desk->work.heirs[at];
        if (desk->by_index[at] || heir == NODE_HEIR_AWAITED || (i < n && heir == NODE_HEIR_GONE))
            continue;
        desk->next_index = (at + 1) & (n - 1);
        *index = at;
        return true;
    }
    return false;
}

static void welcome(struct node_desk *desk, struct desk_client *client, uint32_t index)
{
    _Atomic uint32_t *pid = &desk->work.page->pids[index];
    uint32_t before = wf_load_relaxed(pid);
    struct wf_node_packet p;
    int fds[WF_NODE_FDS];
    unsigned nfds = desk->work.nestate;
    wf_node_packet_init(&p, WF_NODE_WELCOME);
    memcpy(fds, desk->work.estate, nfds * sizeof *fds);
    if (wf_node_window_give(desk, client, index)) {
        p.u.welcome.window = client->left->window;
        p.u.welcome.share = desk->share.of;
        fds[nfds++] = desk->share.fd;
    }
    p.u.welcome.index = index;
    p.u.welcome.incarnation = desk->incarnation;
    p.u.welcome.line = desk->line;
    p.u.welcome.contact = desk->work.contact;
    p.flags = desk->work.membarrier ? WF_NODE_MEMBARRIER : 0;
    client->serial = ++desk->next_serial;
    client->fence = !(client->hello.flags & WF_NODE_MEMBARRIER);
    wf_store_relaxed(pid, (uint32_t)client->pid); /* before the client knows its index */
    if (wf_node_packet_send(client->sock, &p, fds, (int)nfds)) {
        wf_store_relaxed(pid, before);
        wf_node_client_end(desk, client);
        return;
    }
    wf_node_work_heir(&desk->work, index,
                      client->hello.u.hello.held ? NODE_HEIR_AWAITED : NODE_HEIR_GONE);
    wf_node_heir_come(desk, index);
    wf_list_remove(&client->item);
    wf_list_append(&desk->attached, &client->item);
    desk->unproved_count--;
    desk->attached_count++;
    desk->idle_since_ns = 0;
    desk->by_index[index] = client;
    client->index = index;
    client->state = NODE_ATTACHED;
    client->since_ns = wf_now_ns();
}

static void proof_read(struct node_desk *desk, struct desk_client *client,
                       const struct wf_node_packet *p)
{
    const struct wf_node_hello *hello = &client->hello.u.hello;
    uint32_t index, mine, theirs;
    if (!wf_node_proof_verify(desk->key, &client->hello, &client->challenge, p)) {
        wf_node_client_end(desk, client); /* without a reply to a peer that lacks the key */
        return;
    }
    if (desk->stop)
        refuse(desk, client, WF_NODE_REFUSED_ENDING);
    else if (wf_node_parameters_differ(&desk->parameters, &p->u.proof.parameters, &mine, &theirs))
        refuse(desk, client, WF_NODE_REFUSED_BUSY);
    else if (hello->held && !index_claim(desk, client, &index))
        refuse(desk, client, WF_NODE_REFUSED_INDEX);
    else if (!hello->held && !index_find(desk, &index))
        refuse(desk, client, WF_NODE_REFUSED_FULL);
    else
        welcome(desk, client, index);
}

/* ---- hello ---- */

/* Is the process in HELLO the one that the kernel names, in the place that the service's name
 * stands for? */
static bool self_ok(const struct node_desk *desk, const struct desk_client *client,
                    const struct wf_process_id *self)
{
    return self->pid == (uint32_t)client->pid && self->user == desk->place.user &&
           self->host == desk->place.host;
}

static void challenge_send(struct node_desk *desk, struct desk_client *client)
{
    wf_node_packet_init(&client->challenge, WF_NODE_CHALLENGE);
    wf_node_nonce(client->challenge.u.challenge.nonce);
    wf_node_challenge_sign(desk->key, &client->hello, &client->challenge);
    client->state = NODE_ASKED;
    if (wf_node_packet_send(client->sock, &client->challenge, NULL, 0))
        wf_node_client_end(desk, client);
}

static void hello_read(struct node_desk *desk, struct desk_client *client,
                       const struct wf_node_packet *p)
{
    struct wf_node_packet bye;
    switch (p->u.hello.role) {
    case WF_NODE_ATTACH:
        if (!self_ok(desk, client, &p->u.hello.self)) {
            wf_node_client_fail(desk, client,
                                "HELLO names another process than the one that sent it");
            return;
        }
        client->hello = *p;
        challenge_send(desk, client);
        return;
    case WF_NODE_LIST:
        client->state = NODE_LISTS;
        client->next_row = WF_NODE_NO_INDEX;
        wf_node_rows_send(desk, client);
        return;
    default: /* STOP: its socket ends with the service */
        client->state = NODE_STOPS;
        wf_node_packet_init(&bye, WF_NODE_BYE);
        (void)wf_node_packet_send(client->sock, &bye, NULL, 0);
        desk->stop = true;
    }
}

/* ---- listing ---- */

static struct wf_node_packet row_of(uint32_t index, pid_t pid, uint64_t since_ns)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_ROW);
    p.u.row.index = index;
    p.u.row.pid = (uint32_t)pid;
    p.u.row.age_ms = (wf_now_ns() - since_ns) / 1000000;
    return p;
}

/* The service's own row: what it has, and its limits. */
static struct wf_node_packet own_row(const struct node_desk *desk)
{
    struct wf_node_packet p = row_of(WF_NODE_NO_INDEX, getpid(), desk->born_ns);
    struct rlimit files = {0};
    p.u.row.parameters = desk->parameters;
    p.u.row.parameters.lanes = wf_node_lanes_of(&desk->work.contact);
    p.u.row.clients = desk->attached_count;
    wf_list_each(it, &desk->attached) p.u.row.endpoints +=
        wf_container_of(it, struct desk_client, item)->nrings;
    p.u.row.most_endpoints = WF_NODE_RINGS;
    p.u.row.most_services = WF_NODE_WORDS - 1; /* one word is its own */
    if (!getrlimit(RLIMIT_NOFILE, &files))
        p.u.row.most_descriptors = files.rlim_cur;
    return p;
}

struct resources {
    int sock;
    unsigned at;   /* number of the row that comes */
    unsigned next; /* of the first row that is to be sent */
    bool failed;
};

static void resource_send(void *arg, const char *name, uint64_t count, uint64_t bytes)
{
    struct resources *r = arg;
    struct wf_node_packet p;
    if (r->at++ != r->next || r->failed)
        return;
    wf_node_packet_init(&p, WF_NODE_RESOURCE);
    p.u.resource = (struct wf_node_resource){.count = count, .bytes = bytes};
    snprintf(p.u.resource.name, sizeof p.u.resource.name, "%s", name);
    if (wf_node_packet_send(r->sock, &p, NULL, 0))
        r->failed = true;
    else
        r->next++;
}

/* Send what the network occupies, as far as [client] has not got it. Returns false with errno if
 * there is no room. */
static bool resources_send(const struct node_desk *desk, struct desk_client *client)
{
    struct wf_tctx *tctx = desk->work.tctx;
    struct resources r = {.sock = client->sock, .next = client->next_resource};
    if (tctx->transport->resources)
        tctx->transport->resources(tctx, resource_send, &r);
    client->next_resource = r.next;
    return !r.failed;
}

static bool row_next(const struct node_desk *desk, struct desk_client *client)
{
    const struct desk_client *of;
    struct wf_node_packet p;
    if (client->next_row == WF_NODE_NO_INDEX) {
        p = own_row(desk);
        if (wf_node_packet_send(client->sock, &p, NULL, 0))
            return false;
        client->next_row = 0;
        return true;
    }
    if (!client->next_row && !resources_send(desk, client))
        return false;
    of = desk->by_index[client->next_row];
    if (of) {
        p = row_of(of->index, of->pid, of->since_ns);
        if (wf_node_packet_send(client->sock, &p, NULL, 0))
            return false;
    }
    client->next_row++;
    return true;
}

static void rows_watch(struct node_desk *desk, struct desk_client *client)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.ptr = client};
    if (epoll_ctl(desk->epoll_fd, EPOLL_CTL_MOD, client->sock, &ev))
        wf_node_client_end(desk, client);
}

void wf_node_rows_send(struct node_desk *desk, struct desk_client *client)
{
    struct wf_node_packet bye;
    while (client->next_row == WF_NODE_NO_INDEX || client->next_row < node_indexes(desk))
        if (!row_next(desk, client))
            goto wait;
    wf_node_packet_init(&bye, WF_NODE_BYE);
    if (!wf_node_packet_send(client->sock, &bye, NULL, 0)) {
        wf_node_client_end(desk, client);
        return;
    }
wait:
    if (errno == EAGAIN)
        rows_watch(desk, client);
    else
        wf_node_client_end(desk, client);
}

/* ---- packets ---- */

void wf_node_client_packet(struct node_desk *desk, struct desk_client *client,
                           enum weft_status received, const struct wf_node_packet *packet,
                           const int *fds, int nfds)
{
    unsigned type = received == WEFT_OK ? packet->type : 0;
    if (type == WF_NODE_RING && client->state == NODE_ATTACHED) {
        wf_node_ring_read(desk, client, packet, fds, nfds);
        return;
    }
    if (type == WF_NODE_SLAB && client->state == NODE_ATTACHED) {
        wf_node_slab_read(desk, client, packet, fds, nfds);
        return;
    }
    if (type)
        wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
    if (received == WEFT_ECLOSED)
        wf_node_client_end(desk, client);
    else if (received == WEFT_EVERSION && client->state == NODE_KNOWN)
        refuse(desk, client, WF_NODE_REFUSED_VERSION);
    else if (!type)
        wf_node_client_fail(desk, client, "this process sent what is no packet of version %u",
                            WF_NODE_VERSION);
    else if (type == WF_NODE_BYE)
        wf_node_client_end(desk, client);
    else if (type == WF_NODE_HELLO && client->state == NODE_KNOWN)
        hello_read(desk, client, packet);
    else if (type == WF_NODE_PROOF && client->state == NODE_ASKED)
        proof_read(desk, client, packet);
    else if (type == WF_NODE_UNRING && client->state == NODE_ATTACHED)
        wf_node_unring_read(desk, client, packet);
    else if (type == WF_NODE_NODE && client->state == NODE_ATTACHED)
        wf_node_other_read(desk, client, packet);
    else if (type == WF_NODE_UNSLAB && client->state == NODE_ATTACHED)
        wf_node_unslab_read(desk, client, packet);
    else if (type == WF_NODE_SETTLED && client->state == NODE_ATTACHED)
        wf_node_work_heir(&desk->work, client->index, NODE_HEIR_GONE);
    else
        wf_node_client_fail(
            desk, client,
            "this process sent a packet of type %u, which the service does not take %s", type,
            client->state == NODE_ATTACHED ? "from a client" : "now");
}
