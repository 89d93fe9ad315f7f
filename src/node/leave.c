/* SPDX-License-Identifier: BSD-3-Clause */
/* How clients leave the service, and how it leaves them. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/node.h"

/* A socket closed with unread bytes resets the peer, which may then lose bytes sent to it: unix(7).
 * So read them first. */
static void sock_close(int sock)
{
    char raw[sizeof(struct wf_node_packet)];
    for (int i = 0; i < WF_NODE_TURN && recv(sock, raw, sizeof raw, MSG_DONTWAIT) > 0; i++)
        ;        /* recv(2) without control data drops descriptors */
    close(sock); /* epoll(7): no other process has it, so its events end, too */
}

void wf_node_client_end(struct node_desk *desk, struct desk_client *client)
{
    if (client->ended)
        return;
    client->ended = true;
    if (client->pidfd >= 0)
        close(client->pidfd);
    sock_close(client->sock); /* its end, when all else that belonged to it is closed */
    wf_node_rings_end(desk, client);
    wf_node_slabs_end(desk, client);
    wf_node_window_leave(desk, client);
    if (client->state == NODE_ATTACHED) {
        desk->by_index[client->index] = NULL;
        wf_store_relaxed(&desk->work.page->pids[client->index], 0);
        wf_node_work_heir(&desk->work, client->index, NODE_HEIR_GONE);
        if (!--desk->attached_count)
            desk->idle_since_ns = wf_now_ns();
    } else {
        desk->unproved_count--;
    }
    wf_list_remove(&client->item);
    wf_list_append(&desk->ended, &client->item);
}

void wf_node_client_fail(struct node_desk *desk, struct desk_client *client, const char *fmt, ...)
{
    struct wf_node_packet p;
    va_list ap;
    wf_node_packet_init(&p, WF_NODE_LOG);
    p.u.log.level = WF_LOG_ERROR;
    va_start(ap, fmt);
    (void)vsnprintf(p.u.log.text, sizeof p.u.log.text, fmt, ap);
    va_end(ap);
    (void)wf_node_packet_send(client->sock, &p, NULL, 0);
    wf_node_client_end(desk, client);
}

void wf_node_reap(struct node_desk *desk)
{
    struct wf_list *item;
    while ((item = wf_list_pop(&desk->ended)))
        free(wf_container_of(item, struct desk_client, item));
}

static void clients_leave(struct node_desk *desk, struct wf_list *clients)
{
    struct wf_node_packet bye;
    wf_node_packet_init(&bye, WF_NODE_BYE);
    wf_list_each_safe(it, nx, clients)
    {
        struct desk_client *client = wf_container_of(it, struct desk_client, item);
        if (client->state == NODE_ATTACHED)
            (void)wf_node_packet_send(client->sock, &bye, NULL, 0);
        else if (client->state == NODE_KNOWN || client->state == NODE_ASKED)
            wf_node_turn_away(desk, client->sock, WF_NODE_REFUSED_ENDING);
        wf_node_client_end(desk, client);
    }
}

void wf_node_leave(struct node_desk *desk)
{
    /* Later connections are refused by the kernel, and start another service. */
    (void)shutdown(desk->listen_fd, SHUT_RD);
    while (wf_node_accept(desk))
        clients_leave(desk, &desk->unproved);
    clients_leave(desk, &desk->unproved);
    clients_leave(desk, &desk->attached);
    wf_node_reap(desk);
    close(desk->work.estate[1]); /* before the name is free: the next service may have it */
    close(desk->listen_fd);
    desk->listen_fd = -1;
}
