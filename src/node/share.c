/* SPDX-License-Identifier: BSD-3-Clause */
/* The protection domain of this service's NIC, in which its clients register their memory. Only the
 * desk uses it: it finds and drops what a client that has ended has left. */
#include "node/node.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/rdma/hca_share.h"

#define HANDLES (1u << 20) /* more than a context has objects, if the kernel cannot list them */

/* Addresses in a window that no client gets. */
#define OWN_WINDOW wf_node_window(0, WF_NODE_WINDOW_ROUNDS + 1)

static uint64_t window_at(uint32_t window)
{
    return (uint64_t)window << WF_NODE_WINDOW_BITS;
}

/* Register, find and drop one page, since a driver may have requirements of its own. Returns OK, or
 * why clients cannot register. */
static enum weft_status way_try(struct wf_hca_registrar *r)
{
    static _Alignas(4096) uint8_t memory[4096];
    struct wf_hca_registration made, found;
    enum weft_status status = r->ops->reg(r, memory, sizeof memory, window_at(OWN_WINDOW),
                                          WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE, &made);
    if (status != WEFT_OK)
        return status;
    status = r->ops->find(r, made.handle, &found);
    if (status == WEFT_OK && found.at != made.at)
        status = WEFT_ESYSTEM;
    return wf_hca_drop_within(r, window_at(OWN_WINDOW), sizeof memory, HANDLES) == 1 ? status
                                                                                     : WEFT_ESYSTEM;
}

void wf_node_share_open(struct node_desk *desk)
{
    struct node_share *s = &desk->share;
    const struct wf_transport *t = desk->work.tctx->transport;
    enum weft_status status = WEFT_EUNREACH;
    int fd;
    wf_list_init(&s->left);
    if (!t->share || t->share(desk->work.tctx, &s->of, &s->fd) != WEFT_OK)
        return; /* TCP; or logged */
    s->rounds = calloc(node_indexes(desk), sizeof *s->rounds);
    fd = s->rounds ? wf_fd_dup(s->fd) : -1;
    if (fd >= 0 && (status = wf_hca_adopt(&s->of, fd, &s->registrar)) != WEFT_OK)
        close(fd);
    if (status == WEFT_OK)
        status = way_try(s->registrar);
    if (status == WEFT_OK)
        return;
    wf_info("clients cannot register memory with %s (%s): their puts and gets go by messages",
            s->of.name, weft_status_text(status));
    wf_node_share_close(desk);
}

void wf_node_share_close(struct node_desk *desk)
{
    struct node_share *s = &desk->share;
    struct wf_list *item;
    while (s->registrar && (item = wf_list_pop(&s->left)))
        free(wf_container_of(item, struct node_left, item));
    if (s->registrar)
        s->registrar->ops->close(s->registrar);
    s->registrar = NULL;
    free(s->rounds);
    s->rounds = NULL;
}

bool wf_node_window_give(struct node_desk *desk, struct desk_client *client, uint32_t index)
{
    struct node_share *s = &desk->share;
    if (!s->registrar || s->rounds[index] == WF_NODE_WINDOW_ROUNDS)
        return false;
    client->left = calloc(1, sizeof *client->left);
    if (!client->left)
        return false;
    client->left->window = wf_node_window(index, ++s->rounds[index]);
    return true;
}

void wf_node_window_leave(struct node_desk *desk, struct desk_client *client)
{
    struct node_left *left = client->left;
    client->left = NULL;
    if (!left)
        return;
    left->until_ns = wf_now_ns() + wf_config()->peer_timeout_ms * 1000000u;
    wf_list_append(&desk->share.left, &left->item);
}

uint64_t wf_node_windows_drop(struct node_desk *desk, uint64_t now)
{
    struct node_share *s = &desk->share;
    while (s->registrar && !wf_list_empty(&s->left)) {
        struct node_left *left = wf_container_of(s->left.next, struct node_left, item);
        unsigned n;
        if (now < left->until_ns)
            return left->until_ns;
        n = wf_hca_drop_within(s->registrar, window_at(left->window), window_at(1), HANDLES);
        if (n)
            wf_info("%u registrations of a client that has ended were dropped", n);
        wf_list_remove(&left->item);
        free(left);
    }
    return UINT64_MAX;
}
