/* SPDX-License-Identifier: BSD-3-Clause */
/* The desk: the thread that accepts clients and waits for their packets and ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "config/config.h"
#include "node/node.h"

#define ROUND 64 /* events of a round */
#define RETRY_MS                                                                                   \
    UINT64_C(100) /* until the next try to accept, after one for which no descriptor was left      \
                   */

static int spare_open(void)
{
    return wf_fd_high(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* A new service begins its round of indexes anywhere: clients of an earlier one may still hold the
 * indexes behind some other place, and claim them later than new clients come. */
static uint32_t first_index(const struct node_desk *desk)
{
    return desk->incarnation * 0x9e3779b9u >> (32 - desk->parameters.index_bits);
}

enum weft_status wf_node_desk_init(struct node_desk *desk, int listen_fd)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct epoll_event done = {.events = EPOLLIN, .data.ptr = &desk->work};
    enum weft_status status;
    int page_before;
    desk->listen_fd = listen_fd;
    desk->epoll_fd = desk->spare_fd = -1;
    wf_list_init(&desk->unproved);
    wf_list_init(&desk->attached);
    wf_list_init(&desk->ended);
    desk->born_ns = desk->idle_since_ns = wf_now_ns();
    desk->claims_until_ns = desk->born_ns + wf_config()->peer_timeout_ms * 1000000u;
    /* The client that started it gives up after this time; later ones start another. */
    desk->idle_limit_ns = wf_config()->connect_timeout_ms * 1000000u;
    desk->next_index = first_index(desk);
    desk->by_index = calloc(node_indexes(desk), sizeof *desk->by_index);
    if (!desk->by_index)
        return WEFT_ENOMEM;
    desk->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    desk->spare_fd = spare_open();
    if (desk->epoll_fd < 0 || desk->spare_fd < 0 ||
        epoll_ctl(desk->epoll_fd, EPOLL_CTL_ADD, listen_fd, &ev)) {
        status = WEFT_ESYSTEM;
        goto fini;
    }
    desk->work.parameters = desk->parameters;
    desk->work.incarnation = desk->incarnation;
    desk->work.line = desk->line;
    page_before = desk->work.estate[0];
    desk->work.key = desk->key;
    desk->work.scope = &desk->place;
    status = wf_node_work_open(&desk->work);
    if (status != WEFT_OK)
        goto fini;
    if (desk->work.young)
        wf_node_heirs_open(desk, page_before);
    wf_node_share_open(desk);
    if (!epoll_ctl(desk->epoll_fd, EPOLL_CTL_ADD, desk->work.done_fd, &done))
        return WEFT_OK;
    status = WEFT_ESYSTEM;
    wf_node_share_close(desk);
    wf_node_work_close(&desk->work, 1);
fini:
    desk->listen_fd = -1;
    wf_node_desk_fini(desk);
    return status;
}

void wf_node_desk_fini(struct node_desk *desk)
{
    int err = errno;
    if (desk->epoll_fd >= 0)
        close(desk->epoll_fd);
    if (desk->spare_fd >= 0)
        close(desk->spare_fd);
    free(desk->by_index);
    free(desk->heirs);
    desk->by_index = NULL;
    desk->epoll_fd = desk->spare_fd = -1;
    errno = err;
}

/* ---- accepting ---- */

static void listen_watch(struct node_desk *desk, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0};
    desk->paused = !on;
    (void)epoll_ctl(desk->epoll_fd, EPOLL_CTL_MOD, desk->listen_fd, &ev);
}

static bool is_own_user(int sock, struct ucred *creds)
{
    socklen_t len = sizeof *creds;
    return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, creds, &len) && creds->uid == geteuid();
}

static bool client_watch(struct node_desk *desk, struct desk_client *client)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = client};
    client->pidfd = wf_pidfd_open(client->pid);
    return client->pidfd >= 0 && !epoll_ctl(desk->epoll_fd, EPOLL_CTL_ADD, client->sock, &ev) &&
           !epoll_ctl(desk->epoll_fd, EPOLL_CTL_ADD, client->pidfd, &ev);
}

static void client_begin(struct node_desk *desk, int sock)
{
    struct desk_client *client = NULL;
    struct ucred creds;
    if (!is_own_user(sock, &creds)) {
        close(sock);
        return;
    }
    client = calloc(1, sizeof *client);
    if (client) {
        *client = (struct desk_client){
            .sock = sock, .pidfd = -1, .pid = creds.pid, .since_ns = wf_now_ns()};
        wf_list_init(&client->rings);
        wf_list_init(&client->slabs);
        wf_list_append(&desk->unproved, &client->item);
        desk->unproved_count++;
        if (client_watch(desk, client))
            return;
    }
    /* ESRCH: the client has ended already; else no descriptor or memory is left. */
    if (!client || errno != ESRCH)
        wf_node_turn_away(desk, sock, WF_NODE_REFUSED_LIMIT);
    if (client)
        wf_node_client_end(desk, client);
    else
        close(sock);
}

/* Accept one by the descriptor that was kept for this, and refuse it, so that it need not wait for
 * an answer. */
static void accept_to_refuse(struct node_desk *desk)
{
    struct ucred creds;
    int sock;
    if (desk->spare_fd >= 0)
        close(desk->spare_fd);
    sock = wf_fd_high(accept4(desk->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (sock >= 0) {
        if (is_own_user(sock, &creds))
            wf_node_turn_away(desk, sock, WF_NODE_REFUSED_LIMIT);
        close(sock);
    } else
        desk->retry_ns = wf_now_ns() + RETRY_MS * 1000000u;
    desk->spare_fd = spare_open();
}

bool wf_node_accept(struct node_desk *desk)
{
    int sock = wf_fd_high(accept4(desk->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (sock >= 0) {
        client_begin(desk, sock);
        return true;
    }
    if (errno == ECONNABORTED || errno == EINTR)
        return true;
    if (errno != EAGAIN)
        accept_to_refuse(desk);
    return false;
}

/* ---- the round ---- */

static void client_event(struct node_desk *desk, struct desk_client *client, uint32_t events)
{
    struct wf_node_packet packet;
    int fds[WF_NODE_FDS], nfds = 0;
    if (client->ended) /* by an earlier event of this round */
        return;
    for (int i = 0; i < WF_NODE_TURN && !client->ended; i++) {
        enum weft_status status = wf_node_packet_recv(client->sock, &packet, fds, &nfds);
        if (status == WEFT_AGAIN)
            break;
        wf_node_client_packet(desk, client, status, &packet, fds, nfds);
    }
    if (!client->ended && (events & EPOLLOUT))
        wf_node_rows_send(desk, client);
    if (!client->ended && wf_pidfd_ended(client->pidfd))
        wf_node_client_end(desk, client);
}

static void events_handle(struct node_desk *desk, const struct epoll_event *events, int count)
{
    bool come = false;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == &desk->work)
            wf_node_jobs_take(desk);
        else if (events[i].data.ptr && !wf_node_heir_event(desk, events[i].data.ptr))
            client_event(desk, events[i].data.ptr, events[i].events);
        else
            come |= !events[i].data.ptr;
    }
    for (int i = 0; come && i < WF_NODE_TURN && desk->unproved_count < WF_NODE_UNPROVED; i++)
        if (!wf_node_accept(desk))
            break;
}

/* The unproved list is in the order of connecting, so its first one's limit is over first. */
static void limits_check(struct node_desk *desk, uint64_t now)
{
    while (!wf_list_empty(&desk->unproved)) {
        struct desk_client *client = wf_container_of(desk->unproved.next, struct desk_client, item);
        if (now < client->since_ns + WF_NODE_UNPROVED_MS * 1000000u)
            break;
        wf_node_client_end(desk, client);
    }
}

/* Unproved clients are bounded: the kernel keeps later ones waiting. */
static bool is_full(const struct node_desk *desk)
{
    return desk->unproved_count >= WF_NODE_UNPROVED || desk->retry_ns;
}

static bool is_over(const struct node_desk *desk, uint64_t now)
{
    return desk->stop || (desk->idle_since_ns && !desk->unproved_count &&
                          now >= desk->idle_since_ns + desk->idle_limit_ns);
}

/* Returns the milliseconds until the next limit, rounded up; -1: there is none. */
static int next_ms(const struct node_desk *desk, uint64_t now)
{
    uint64_t at = UINT64_MAX;
    if (!wf_list_empty(&desk->unproved))
        at = wf_container_of(desk->unproved.next, struct desk_client, item)->since_ns +
             WF_NODE_UNPROVED_MS * 1000000u;
    else if (desk->idle_since_ns)
        at = desk->idle_since_ns + desk->idle_limit_ns;
    if (desk->retry_ns)
        at = WF_MIN(at, desk->retry_ns);
    if (desk->work.young)
        at = WF_MIN(at, desk->claims_until_ns);
    at = WF_MIN(at, desk->drop_ns);
    if (at == UINT64_MAX)
        return -1;
    return at <= now ? 0 : (int)((at - now + 999999) / 1000000);
}

void wf_node_desk_run(struct node_desk *desk)
{
    struct epoll_event events[ROUND];
    uint64_t now = wf_now_ns();
    desk->drop_ns = UINT64_MAX;
    while (!is_over(desk, now)) {
        int n = epoll_wait(desk->epoll_fd, events, ROUND, next_ms(desk, now));
        events_handle(desk, events, n);
        now = wf_now_ns();
        limits_check(desk, now);
        if (desk->work.young && now >= desk->claims_until_ns)
            wf_node_heirs_close(desk);
        wf_node_reap(desk);
        desk->drop_ns = wf_node_windows_drop(desk, now);
        if (now >= desk->retry_ns)
            desk->retry_ns = 0;
        if (desk->paused != is_full(desk))
            listen_watch(desk, desk->paused);
    }
    wf_node_leave(desk);
    while (desk->jobs && epoll_wait(desk->epoll_fd, events, 1, WF_NODE_CLOSE_MS) == 1)
        wf_node_jobs_take(desk);
    wf_node_share_close(desk);
    wf_node_work_close(&desk->work, WF_NODE_CLOSE_MS);
}
