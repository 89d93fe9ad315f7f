/* SPDX-License-Identifier: BSD-3-Clause */
/* The service thread, one per context. It answers other processes and detects their deaths, even
 * while the application computes and does not call Weft. It sleeps in epoll_wait. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/shm/service.h"

#define ROUND 32
/* Milliseconds until the next try after a failure for lack of descriptors or memory. */
#define RETRY_MS 100

/* Write the name of a context's service socket to [name]. It contains only the first half of the
 * context's token, because every user of the node can read the name in /proc/net/unix. The second
 * half must remain unknown: it proves to the TCP transport that a process was given the context's
 * address (net/connect/accept.c). If an endpoint has a name, any program may ask for the address.
 */
void wf_shm_socket_name(const uint64_t token[2], char name[static 64])
{
    name[0] = 0; /* abstract: unix(7) */
    snprintf(name + 1, 63, "weft-%016llx", (unsigned long long)token[0]);
}

int wf_shm_watch_add(struct shm_ctx *ctx, struct shm_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    return epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, w->fd, &ev);
}

void wf_shm_watch_close(struct shm_ctx *ctx, struct shm_watch *w)
{
    if (w->fd < 0)
        return;
    /* A forked child may hold a copy of the socket. Then close alone would neither stop the events
     * nor end the connection for the other side, so shut the socket down first. */
    if (w->kind == SHM_WATCH_LISTEN || w->kind == SHM_WATCH_PROC_SOCK ||
        w->kind == SHM_WATCH_CLIENT_SOCK)
        (void)shutdown(w->fd, SHUT_RDWR);
    (void)epoll_ctl(ctx->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    close(w->fd);
    w->fd = -1;
}

/* Stop the events of [w], but keep its descriptor open. */
void wf_shm_watch_stop(struct shm_ctx *ctx, const struct shm_watch *w)
{
    if (w->fd >= 0)
        (void)epoll_ctl(ctx->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
}

void wf_shm_kick(struct shm_ctx *ctx)
{
    uint64_t one = 1;
    if (write(ctx->kick.fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the service thread: %m");
}

void wf_shm_notify(struct shm_tep *tep)
{
    uint64_t one = 1;
    wf_store_release(&tep->inbox, 1);
    if (write(tep->base.event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake an endpoint: %m");
}

void wf_shm_notify_lost(struct shm_tep *tep)
{
    wf_store_release(&tep->peers_lost, 1); /* "down" */
    wf_shm_notify(tep);
}

void wf_shm_process_down(struct shm_ctx *ctx, const struct wf_process_id *id, enum weft_status why)
{
    /* The messages of the process are read first, because none may be delivered after the loss of
     * the process was reported. */
    wf_shm_clients_down(ctx, id, why);
    wf_list_each(m, &ctx->procs)
    {
        struct shm_proc *proc = wf_container_of(m, struct shm_proc, item);
        if (wf_shm_same(&proc->id, id))
            wf_shm_proc_down(ctx, proc, why);
    }
}

static void kick_read(struct shm_ctx *ctx)
{
    uint64_t n;
    if (read(ctx->kick.fd, &n, sizeof n) < 0 && errno != EAGAIN)
        wf_error("service thread: %m");
}

static UNDER_LOCK void watch_handle(struct shm_ctx *ctx, const struct epoll_event *ev)
{
    struct shm_watch *w = ev->data.ptr;
    if (w->fd < 0) /* an earlier event of this round closed the descriptor */
        return;
    switch (w->kind) {
    case SHM_WATCH_LISTEN: (void)wf_shm_client_accept(ctx); break;
    case SHM_WATCH_KICK: kick_read(ctx); break;
    case SHM_WATCH_PROC_SOCK:
        wf_shm_proc_event(ctx, wf_container_of(w, struct shm_proc, sock), w->kind);
        break;
    case SHM_WATCH_PROC_PID:
        wf_shm_proc_event(ctx, wf_container_of(w, struct shm_proc, pid), w->kind);
        break;
    case SHM_WATCH_CLIENT_SOCK:
        wf_shm_client_event(ctx, wf_container_of(w, struct shm_client, sock), w->kind, ev->events);
        break;
    case SHM_WATCH_CLIENT_PID:
        wf_shm_client_event(ctx, wf_container_of(w, struct shm_client, pid), w->kind, ev->events);
        break;
    }
}

/* Free the clients that are closed and the shm_procs that no peer refers to. The service thread
 * calls this function after each round, which is one return of epoll_wait. While the service thread
 * runs, no other function frees them, because events of the current round may point to them. */
static void objects_reap(struct shm_ctx *ctx)
{
    wf_list_each_safe(l, lnext, &ctx->clients)
    {
        struct shm_client *client = wf_container_of(l, struct shm_client, item);
        if (client->closed)
            wf_shm_client_free(ctx, client);
    }
    wf_list_each_safe(m, mnext, &ctx->unused_procs)
    {
        struct shm_proc *proc = wf_container_of(m, struct shm_proc, item);
        if (!proc->refs)
            wf_shm_proc_free(ctx, proc);
    }
}

/* Schedule a tick, RETRY_MS from now. At the tick, the service thread repeats what failed for lack
 * of descriptors or memory. No event reports that a retry can succeed, so a timer is needed. */
void wf_shm_tick(struct shm_ctx *ctx)
{
    if (ctx->tick_at_ns)
        return;
    ctx->tick_at_ns = wf_now_ns() + RETRY_MS * 1000000u;
    /* If an endpoint's owner calls this function, the service thread may be asleep without a
     * timeout. */
    wf_shm_kick(ctx);
}

static UNDER_LOCK void tick(struct shm_ctx *ctx)
{
    if (!ctx->tick_at_ns || wf_now_ns() < ctx->tick_at_ns)
        return;
    ctx->tick_at_ns = 0;
    if (ctx->listen_paused)
        ctx->listen_paused = wf_shm_watch_add(ctx, &ctx->listen, EPOLLIN) != 0;
    if (ctx->listen_paused)
        wf_shm_tick(ctx);
    wf_list_each_safe(it, nx, &ctx->clients)
    {
        struct shm_client *client = wf_container_of(it, struct shm_client, item);
        if ((client->tick_due || client->left_due) && !client->closed)
            wf_shm_client_tick(ctx, client);
    }
    wf_shm_procs_connect_due(ctx);
    if (ctx->endpoints_recheck_due)
        wf_shm_endpoints_recheck(ctx);
}

static void *service_main(void *arg)
{
    struct shm_ctx *ctx = arg;
    struct epoll_event events[ROUND];
    bool stop = false, ticking = false;
    shm_lock(ctx);
    ctx->tid = (uint32_t)gettid();
    pthread_cond_broadcast(&ctx->changed);
    shm_unlock(ctx);
    while (!stop) {
        int n = epoll_wait(ctx->epoll_fd, events, ROUND, ticking ? RETRY_MS : -1);
        WF_HOOK("service.woken");
        shm_lock(ctx);
        for (int i = 0; i < n; i++)
            watch_handle(ctx, &events[i]);
        tick(ctx);
        objects_reap(ctx);
        stop = ctx->stop;
        ticking = ctx->tick_at_ns != 0;
        shm_unlock(ctx);
    }
    return NULL;
}

static enum weft_status listen_open(struct shm_ctx *ctx)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char name[64];
    socklen_t len;
    ctx->listen.kind = SHM_WATCH_LISTEN;
    ctx->listen.fd = wf_fd_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (ctx->listen.fd < 0) {
        wf_error("cannot open a socket: %m%s",
                 errno == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
        return WEFT_ESYSTEM;
    }
    wf_shm_socket_name(ctx->self.token, name);
    memcpy(sa.sun_path, name, strlen(name + 1) + 1);
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name + 1));
    if (bind(ctx->listen.fd, (struct sockaddr *)&sa, len) || listen(ctx->listen.fd, SOMAXCONN)) {
        wf_error("cannot listen on an abstract socket: %m");
        return WEFT_ESYSTEM;
    }
    return WEFT_OK;
}

static enum weft_status service_thread_start(struct shm_ctx *ctx)
{
    size_t stack = 128 * 1024; /* bytes; the deepest call chain uses a few KiB, logging 1 KiB */
    int err = wf_thread_start(&ctx->thread, "weft-service", stack, service_main, ctx);
    if (err) {
        errno = err;
        wf_error("cannot start the service thread: %m");
        return WEFT_ESYSTEM;
    }
    shm_lock(ctx);
    while (!ctx->tid) /* the new thread sets tid first */
        pthread_cond_wait(&ctx->changed, &ctx->lock);
    shm_unlock(ctx);
    return WEFT_OK;
}

enum weft_status wf_shm_service_start(struct shm_ctx *ctx)
{
    enum weft_status status = WEFT_ESYSTEM;
    ctx->listen.fd = ctx->kick.fd = -1;
    ctx->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    if (ctx->epoll_fd < 0) {
        wf_error("epoll_create1: %m");
        return WEFT_ESYSTEM;
    }
    ctx->kick.kind = SHM_WATCH_KICK;
    ctx->kick.fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (ctx->kick.fd >= 0 && listen_open(ctx) == WEFT_OK &&
        !wf_shm_watch_add(ctx, &ctx->kick, EPOLLIN) &&
        !wf_shm_watch_add(ctx, &ctx->listen, EPOLLIN))
        status = service_thread_start(ctx);
    if (status != WEFT_OK) {
        wf_shm_watch_close(ctx, &ctx->listen);
        wf_shm_watch_close(ctx, &ctx->kick);
        close(ctx->epoll_fd);
    }
    return status;
}

/* Called before this process closes a socket. BYE informs the other process that this process
 * closes the connection and has not died. */
void wf_shm_bye_send(const struct shm_watch *sock)
{
    struct wf_packet bye = {0};
    if (sock->fd >= 0)
        (void)wf_packet_send(sock->fd, &bye, WF_PACKET_BYE, NULL, 0);
}

/* Inform all connected processes that this context closes. BYE is not enough: if a client does not
 * read its socket, the socket may have no room for BYE. So a word in the state segment is set,
 * too. */
static void bye_send_all(struct shm_ctx *ctx)
{
    wf_store_release(&ctx->mem->state[WF_MEM_STATE_LEFT], 1);
    wf_list_each(m, &ctx->procs) wf_shm_bye_send(&wf_container_of(m, struct shm_proc, item)->sock);
    wf_list_each(l, &ctx->clients)
        wf_shm_bye_send(&wf_container_of(l, struct shm_client, item)->sock);
}

void wf_shm_service_stop(struct shm_ctx *ctx)
{
    shm_lock(ctx);
    ctx->stop = true;
    shm_unlock(ctx);
    wf_shm_kick(ctx);
    pthread_join(ctx->thread, NULL);
    shm_lock(ctx);
    /* Accept the connections that are queued, so that their clients get BYE. Later connections are
     * refused. */
    (void)shutdown(ctx->listen.fd, SHUT_RD);
    for (int i = 0; i < SOMAXCONN && wf_shm_client_accept(ctx); i++)
        ;
    bye_send_all(ctx);
    wf_list_each_safe(l, lnext, &ctx->clients)
    {
        struct shm_client *client = wf_container_of(l, struct shm_client, item);
        wf_shm_client_down(ctx, client, WEFT_ECLOSED);
        wf_shm_client_free(ctx, client);
    }
    wf_list_each_safe(m, mnext, &ctx->procs)
        wf_shm_proc_free(ctx, wf_container_of(m, struct shm_proc, item));
    wf_list_each_safe(g, gnext, &ctx->unused_procs)
        wf_shm_proc_free(ctx, wf_container_of(g, struct shm_proc, item));
    wf_shm_watch_close(ctx, &ctx->listen);
    wf_shm_watch_close(ctx, &ctx->kick);
    close(ctx->epoll_fd);
    shm_unlock(ctx);
}
