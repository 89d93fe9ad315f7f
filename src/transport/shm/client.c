/* SPDX-License-Identifier: BSD-3-Clause */
/* The server side: the processes that connected to this process (clients). The caller of each
 * function holds ctx->lock. The service thread runs this code. An endpoint's owner may call
 * wf_shm_clients_read and wf_shm_client_send_left, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/fd.h"
#include "base/process.h"
#include "transport/shm/service.h"

/* How many ring connections one client may have: enough for 64 endpoints with the default of
 * WEFT_SHM_RINGS, 64. Each connection takes one descriptor and two mappings in this process. */
#define RINGS_MAX 4096u

/* How many connections one process may have to this context. Each context of that process opens
 * one. */
#define CLIENTS_MAX 1024u
#define REFUSALS_LOGGED 10u

static void client_open(struct shm_ctx *ctx, int sock, int pid)
{
    struct shm_client *client = calloc(1, sizeof *client);
    if (!client) {
        close(sock);
        return;
    }
    client->sock = (struct shm_watch){SHM_WATCH_CLIENT_SOCK, sock};
    client->pid = (struct shm_watch){SHM_WATCH_CLIENT_PID, -1};
    client->cred_pid = pid;
    wf_list_init(&client->rxs);
    wf_list_append(&ctx->clients, &client->item);
    if (wf_shm_watch_add(ctx, &client->sock, EPOLLIN))
        wf_shm_client_down(ctx, client, WEFT_ESYSTEM);
}

static unsigned clients_of(const struct shm_ctx *ctx, int pid)
{
    unsigned n = 0;
    wf_list_each(it, &ctx->clients) n +=
        wf_container_of(it, struct shm_client, item)->cred_pid == pid;
    return n;
}

/* Returns the pid of the process that connected, or -1 if the connection must be refused. The
 * kernel recorded this pid when the process called connect(2): SO_PEERCRED in unix(7). */
static UNDER_LOCK int client_pid(struct shm_ctx *ctx, int sock)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
        return -1;
    if (cred.uid == ctx->uid && clients_of(ctx, cred.pid) < CLIENTS_MAX)
        return cred.pid;
    if (ctx->refused_connections++ >= REFUSALS_LOGGED) /* only the first refusals are logged */
        return -1;
    if (cred.uid == ctx->uid)
        wf_warn("process %d has %u connections: no more", (int)cred.pid, CLIENTS_MAX);
    else
        wf_warn("process %d of user %u tried to connect; refused: Weft talks to its own user only",
                (int)cred.pid, (unsigned)cred.uid);
    return -1;
}

/* Log the error once. Later retries that fail do not log it again. */
static UNDER_LOCK void fd_limit_log(struct shm_ctx *ctx, const char *what)
{
    if (!ctx->fd_limit_logged)
        wf_error("%s: %m (raise the limit on open files, ulimit -n); will try again", what);
    ctx->fd_limit_logged = true;
}

/* Accept one connection. Returns false if none was waiting, or if none can be accepted now. */
bool wf_shm_client_accept(struct shm_ctx *ctx)
{
    int sock = wf_fd_high(accept4(ctx->listen.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)), pid;
    if (sock < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            fd_limit_log(ctx, "cannot accept a peer");
            (void)epoll_ctl(ctx->epoll_fd, EPOLL_CTL_DEL, ctx->listen.fd, NULL);
            ctx->listen_paused = true;
            wf_shm_tick(ctx);
        }
        return false;
    }
    ctx->fd_limit_logged = false;
    pid = client_pid(ctx, sock);
    if (pid < 0)
        close(sock); /* no byte was read from it */
    else
        client_open(ctx, sock, pid);
    return true;
}

/* Close the client. Each of the client's connections ends later, when the owner of the receiving
 * endpoint has delivered the messages that were sent on it. */
void wf_shm_client_down(struct shm_ctx *ctx, struct shm_client *client, enum weft_status why)
{
    client->closed = true;
    /* If the client still lives, BYE informs the client that this process closes the connection
     * and has not died. */
    wf_shm_bye_send(&client->sock);
    wf_shm_watch_close(ctx, &client->sock);
    wf_shm_watch_close(ctx, &client->pid);
    wf_list_each_safe(it, nx, &client->rxs)
    {
        struct shm_rx *rx = wf_container_of(it, struct shm_rx, client_item);
        wf_list_remove(it);
        wf_store_release(&rx->down, (int)why);
        wf_shm_notify(rx->tep);
    }
}

static void answer_drop(struct shm_client *client)
{
    client->answer_pending = client->tick_due = client->welcome_due = false;
    while (client->answer_nfds)
        close(client->answer_fds[--client->answer_nfds]);
}

void wf_shm_client_free(struct shm_ctx *ctx, struct shm_client *client)
{
    (void)ctx;
    wf_list_remove(&client->item);
    answer_drop(client);
    free(client);
}

/* Set the events that epoll reports for the client's socket. Epoll reports when the socket has room
 * for a packet, but not when the kernel has room for the packet's descriptors. If an answer fails
 * because of its descriptors (tick_due), it is sent again at the next tick, 100 ms later. Epoll
 * always reports that the other side closes. */
static void client_interest(struct shm_ctx *ctx, struct shm_client *client)
{
    struct epoll_event ev = {.data.ptr = &client->sock};
    ev.events = client->tick_due ? 0 : client->answer_pending ? EPOLLOUT : EPOLLIN;
    if (client->sock.fd >= 0 && epoll_ctl(ctx->epoll_fd, EPOLL_CTL_MOD, client->sock.fd, &ev))
        wf_error("epoll_ctl: %m");
}

/* Send client->answer. If the socket has no room, the answer stays pending, and no more packets are
 * read from the client. */
static UNDER_LOCK void answer_send(struct shm_ctx *ctx, struct shm_client *client)
{
    int failed = wf_packet_send(client->sock.fd, &client->answer, client->answer_type,
                                client->answer_fds, client->answer_nfds)
                     ? errno
                     : 0;
    client->tick_due = failed == ETOOMANYREFS || failed == ENOBUFS || failed == ENOMEM;
    client->answer_pending = client->tick_due || failed == EAGAIN;
    if (client->tick_due)
        wf_shm_tick(ctx);
    if (!client->answer_pending)
        answer_drop(client);
    client_interest(ctx, client);
}

/* Takes ownership of [fds]. */
static UNDER_LOCK void answer_begin(struct shm_ctx *ctx, struct shm_client *client,
                                    enum wf_packet_type type, const int *fds, int nfds,
                                    const struct wf_packet *p)
{
    client->answer = *p;
    client->answer_type = type;
    client->answer_nfds = nfds;
    for (int i = 0; i < nfds; i++)
        client->answer_fds[i] = fds[i];
    answer_send(ctx, client);
}

/* Handle HELLO. The pid in the packet must be the pid that the kernel reports. The pidfd opened
 * here reports the death of the process even if a child of the process keeps the socket open. */
static bool hello_handle(struct shm_ctx *ctx, struct shm_client *client, const struct wf_packet *p)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (client->hello_received ||
        getsockopt(client->sock.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
        (uint32_t)cred.pid != p->u.hello.pid)
        return false;
    client->id = p->u.hello;
    client->flags = p->flags;
    client->mark = p->u.greeting.mark;
    client->mark_tid = p->u.greeting.tid;
    client->hello_received = true;
    wf_shm_proc_set_mark(ctx, &client->id, client->mark, client->mark_tid);
    client->pid.fd = wf_pidfd_open((int)cred.pid);
    if (client->pid.fd < 0 && errno != ESRCH)
        wf_warn("cannot watch process %u: %m; only its socket will report its death",
                client->id.pid);
    /* If the start time is unknown or differs, the process has ended, and another process may have
     * its pid. The packets that the client sent are still handled. The end of its socket will
     * report its death. */
    if (client->pid.fd >= 0 &&
        !wf_process_is_start(wf_process_start((int)cred.pid), client->id.start)) {
        close(client->pid.fd);
        client->pid.fd = -1;
    }
    return client->pid.fd < 0 || !wf_shm_watch_add(ctx, &client->pid, EPOLLIN);
}

static UNDER_LOCK void hello_answer(struct shm_ctx *ctx, struct shm_client *client)
{
    struct wf_packet p = {.flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0,
                          .u.greeting = wf_shm_greeting(ctx)};
    int fds[2] = {wf_fd_dup(ctx->mem->state_fd), -1};
    if (fds[0] >= 0)
        fds[1] = wf_fd_dup(ctx->bells_fd);
    if (fds[1] >= 0) {
        ctx->fd_limit_logged = false;
        answer_begin(ctx, client, WF_PACKET_WELCOME, fds, 2, &p);
        return;
    }
    if (fds[0] >= 0)
        close(fds[0]);
    fd_limit_log(ctx, "cannot answer a peer");
    client->answer_pending = client->tick_due = client->welcome_due = true;
    client_interest(ctx, client);
    wf_shm_tick(ctx);
}

/* Called at each tick, 100 ms after something failed for lack of descriptors or room. Sends again
 * what could not be sent to [client]. */
void wf_shm_client_tick(struct shm_ctx *ctx, struct shm_client *client)
{
    if (client->left_due)
        wf_shm_client_send_left(ctx, client);
    if (!client->tick_due)
        return;
    client->tick_due = client->answer_pending = false;
    if (client->welcome_due) {
        client->welcome_due = false;
        hello_answer(ctx, client);
    } else {
        answer_send(ctx, client);
    }
    if (!client->answer_pending)
        wf_shm_client_event(ctx, client, SHM_WATCH_CLIENT_SOCK, 0);
}

/* Called when an endpoint of this process was closed. Sends LEFT. The client then checks the words
 * that show which endpoints are open. A client that has not received WELCOME yet checks these
 * words when WELCOME comes. */
void wf_shm_client_send_left(struct shm_ctx *ctx, struct shm_client *client)
{
    struct wf_packet p = {0};
    bool sent = !client->hello_received || client->closed ||
                !wf_packet_send(client->sock.fd, &p, WF_PACKET_LEFT, NULL, 0);
    /* If the client is lost, another event reports the loss. */
    client->left_due = !sent && errno != EPIPE && errno != ECONNRESET;
    if (client->left_due)
        wf_shm_tick(ctx);
}

/* Returns the most connections that may wait in an endpoint's list [accepted]. The endpoint's owner
 * takes them from the list when it polls. The number is limited because each connection holds a
 * descriptor, and the program needs descriptors, too. Connections of processes that have ended
 * count as well, because their messages are still delivered. */
static unsigned accepted_max(void)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    return (unsigned)WF_MIN(files.rlim_cur / 4 + 1, RINGS_MAX);
}

static unsigned rings_of(const struct shm_client *client)
{
    unsigned n = 0;
    wf_list_each(it, &client->rxs) n++;
    return n;
}

static enum weft_status ring_open(struct shm_ctx *ctx, struct shm_client *client,
                                  const struct wf_packet *p, const int fds[3], int *event_fd,
                                  struct wf_packet *out)
{
    struct shm_tep *tep = wf_shm_tep_find(ctx, p->u.ring.to_ep, p->u.ring.to_gen);
    bool fence = !(ctx->membarrier && (p->flags & WF_PACKET_MEMBARRIER));
    enum weft_status why = WEFT_ENOMEM;
    struct shm_segs *segs;
    struct shm_rx *rx;
    if (!tep)
        return WEFT_ECLOSED;
    if (memcmp(&p->u.ring.from.process, &client->id, sizeof client->id) ||
        !wf_shm_is_eventfd(fds[2]))
        return WEFT_EPROTO;
    if (rings_of(client) >= RINGS_MAX || tep->naccepted >= accepted_max())
        return WEFT_ELIMIT;
    *event_fd = wf_fd_dup(tep->base.event_fd);
    if (*event_fd < 0)
        return WEFT_ELIMIT;
    segs = wf_shm_segs_map(&p->u.ring.geometry, fds, &why);
    rx = segs ? wf_shm_rx_open(tep, segs, &p->u.ring.from, fds[2], fence) : NULL;
    if (!rx) {
        if (segs)
            wf_shm_segs_unref(segs);
        close(*event_fd);
        *event_fd = -1;
        return why == WEFT_OK ? WEFT_ENOMEM : why;
    }
    out->u.ring_ok.bell = tep->bell_index;
    out->u.ring_ok.bit = rx->bit;
    wf_list_append(&client->rxs, &rx->client_item);
    wf_list_append(&tep->accepted, &rx->item);
    tep->naccepted++;
    wf_shm_notify(tep);
    return WEFT_OK;
}

static void limit_log(struct shm_ctx *ctx, const struct shm_client *client,
                      const struct wf_packet *p)
{
    const struct shm_tep *tep = wf_shm_tep_find(ctx, p->u.ring.to_ep, p->u.ring.to_gen);
    if (rings_of(client) >= RINGS_MAX)
        wf_error("cannot take a connection of process %u: it has %u, which is the most",
                 client->id.pid, rings_of(client));
    else if (tep && tep->naccepted >= accepted_max())
        wf_error(
            "cannot take a connection of process %u: %u others wait for endpoint %u, whose "
            "owner does not poll (more may wait if the limit on open files is raised, ulimit -n)",
            client->id.pid, tep->naccepted, tep->address.ep);
    else
        wf_error("cannot take a connection of process %u: out of descriptors (raise the limit on "
                 "open files, ulimit -n)",
                 client->id.pid);
}

static UNDER_LOCK void ring_handle(struct shm_ctx *ctx, struct shm_client *client,
                                   const struct wf_packet *p, const int fds[3], int nfds)
{
    struct wf_packet out = {.cookie = p->cookie,
                            .flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0};
    int event_fd = -1;
    enum weft_status status =
        nfds == WF_PACKET_LOST ? WEFT_ELIMIT : ring_open(ctx, client, p, fds, &event_fd, &out);
    if (status == WEFT_ELIMIT)
        limit_log(ctx, client, p);
    for (int i = 0; i < nfds; i++)
        if (i < 2 || status != WEFT_OK)
            close(fds[i]);
    if (status != WEFT_OK) {
        if (status == WEFT_EPROTO)
            wf_error(
                "process %u offered a ring that is not safe to use (not sealed, or too short); "
                "refused",
                client->id.pid);
        out.u.ring_no.status = status;
    }
    answer_begin(ctx, client, status == WEFT_OK ? WF_PACKET_RING_OK : WF_PACKET_RING_NO, &event_fd,
                 event_fd >= 0, &out);
}

static UNDER_LOCK void slab_handle(struct shm_ctx *ctx, struct shm_client *client,
                                   const struct wf_packet *p)
{
    struct wf_packet out = {.u.slab.id = p->u.slab.id};
    size_t size = 0;
    int fd = wf_mem_slab_dup(ctx->mem, p->u.slab.id, &size);
    out.u.slab.size = size;
    out.u.slab.status = fd < 0 && errno == EMFILE ? WEFT_ELIMIT : WEFT_EKEY;
    answer_begin(ctx, client, fd < 0 ? WF_PACKET_SLAB_NO : WF_PACKET_SLAB_OK, &fd, fd >= 0, &out);
}

static UNDER_LOCK void request_handle(struct shm_ctx *ctx, struct shm_client *client,
                                      const struct wf_packet *p, const int fds[WF_PACKET_FDS],
                                      int nfds)
{
    if (!client->hello_received && p->type != WF_PACKET_HELLO)
        goto refuse;
    switch (p->type) {
    case WF_PACKET_HELLO:
        if (!hello_handle(ctx, client, p))
            goto refuse;
        hello_answer(ctx, client);
        return;
    case WF_PACKET_RING: ring_handle(ctx, client, p, fds, nfds); return;
    case WF_PACKET_SLAB: slab_handle(ctx, client, p); return;
    case WF_PACKET_BYE: client->bye_received = true; return;
    default: break; /* an answer: only servers send those */
    }
refuse:
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    wf_warn("a process sent a packet of type %d out of turn; its connection is closed", p->type);
    wf_shm_client_down(ctx, client, WEFT_EPROTO);
}

/* Read packets until none is left, [most] were read, or an answer cannot be sent. Returns OK in
 * these cases. Otherwise returns why the connection is over, and the caller must close the
 * client. */
static UNDER_LOCK enum weft_status client_read(struct shm_ctx *ctx, struct shm_client *client,
                                               int most)
{
    while (most-- && !client->closed && !client->answer_pending) {
        struct wf_packet p;
        int fds[WF_PACKET_FDS], nfds = 0;
        int got = wf_packet_recv(client->sock.fd, &p, fds, &nfds);
        if (got > 0) {
            request_handle(ctx, client, &p, fds, nfds);
            continue;
        }
        if (got < 0 && errno == EAGAIN)
            return WEFT_OK;
        /* If the other side closed its socket and left packets unread, recvmsg fails once with
         * ECONNRESET. Then it returns the packets that the other side sent. */
        if (got < 0 && (errno == ECONNRESET || errno == EINTR))
            continue;
        if (got < 0 && errno == EPROTO) {
            wf_warn("a process sent something that is no packet; its connection is closed");
            return WEFT_EPROTO;
        }
        return client->bye_received ? WEFT_ECLOSED : WEFT_EPEER;
    }
    return WEFT_OK;
}

/* Read the packets that process [id] has sent. The packets may be on connections of that process,
 * on connections that have not sent HELLO, or on connections that are not accepted yet. Returns
 * false if some packets cannot be read now; the service thread retries after 100 ms. */
bool wf_shm_clients_read(struct shm_ctx *ctx, const struct wf_process_id *id)
{
    bool all = true;
    for (int i = 0; i < SOMAXCONN && !ctx->listen_paused && wf_shm_client_accept(ctx); i++)
        ;
    wf_list_each_safe(it, nx, &ctx->clients)
    {
        struct shm_client *client = wf_container_of(it, struct shm_client, item);
        if (!client->closed && (!client->hello_received || wf_shm_same(&client->id, id)))
            client->read_status = client_read(ctx, client, WF_SHM_READ_REST);
        /* After a bad packet the client is closed at once. After an end of file the client stays,
         * because a later read finds the end again. */
        if (!client->closed && client->read_status == WEFT_EPROTO)
            wf_shm_client_down(ctx, client, WEFT_EPROTO);
        if (!client->closed && client->answer_pending &&
            (!client->hello_received || wf_shm_same(&client->id, id)))
            all = false;
    }
    return all && !ctx->listen_paused;
}

/* Process [id] is lost. Read the packets that it has sent, then close its clients. */
void wf_shm_clients_down(struct shm_ctx *ctx, const struct wf_process_id *id, enum weft_status why)
{
    wf_list_each(it, &ctx->clients)
    {
        struct shm_client *client = wf_container_of(it, struct shm_client, item);
        if (!client->closed && client->hello_received && wf_shm_same(&client->id, id))
            /* Nobody waits for the answer. While it is pending, client_read reads no packets. */
            answer_drop(client);
    }
    (void)wf_shm_clients_read(ctx, id);
    wf_list_each_safe(it, nx, &ctx->clients)
    {
        struct shm_client *client = wf_container_of(it, struct shm_client, item);
        if (client->closed)
            continue;
        if (client->hello_received && wf_shm_same(&client->id, id))
            wf_shm_client_down(ctx, client, why);
        else if (client->read_status != WEFT_OK)
            wf_shm_client_down(ctx, client, client->read_status);
    }
    wf_shm_kick(ctx); /* the service thread frees them */
}

void wf_shm_client_event(struct shm_ctx *ctx, struct shm_client *client, enum shm_watch_kind kind,
                         uint32_t events)
{
    bool gone = kind == SHM_WATCH_CLIENT_PID || (events & (EPOLLHUP | EPOLLERR));
    if (client->closed)
        return;
    if (client->answer_pending && (events & EPOLLOUT))
        answer_send(ctx, client);
    if (gone)
        /* Nobody waits for the answer. While it is pending, client_read reads no packets. */
        answer_drop(client);
    /* Packets that the client sent before it ended are still handled. */
    client->read_status = client_read(ctx, client, gone ? WF_SHM_READ_REST : WF_SHM_READ_SOME);
    if (client->closed)
        return;
    if (client->read_status == WEFT_OK && kind == SHM_WATCH_CLIENT_PID)
        client->read_status = client->bye_received ? WEFT_ECLOSED : WEFT_EPEER;
    if (client->read_status == WEFT_EPEER && client->hello_received)
        wf_shm_process_down(ctx, &client->id, client->read_status);
    else if (client->read_status != WEFT_OK)
        /* The client can send no more requests. The requests of this process to the client's
         * process use another socket, which stays open. */
        wf_shm_client_down(ctx, client, client->read_status);
}
