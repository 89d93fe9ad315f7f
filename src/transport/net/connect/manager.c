/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/manager_int.h"

#define ROUND 64     /* events per round */
#define CLOSING_MS 5 /* how often a closing door looks whether data were acknowledged */

/* ---- objects ---- */

void wf_mgr_deadline_set(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint64_t at_ns)
{
    w->deadline_ns = at_ns;
    mgr->next_ns = WF_MIN(mgr->next_ns, at_ns);
}

int wf_mgr_watch_add(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    return epoll_ctl(mgr->epoll_fd, EPOLL_CTL_ADD, w->fd, &ev);
}

void wf_mgr_watch_events(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    if (epoll_ctl(mgr->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev))
        wf_error("epoll_ctl: %m");
}

int wf_mgr_watch_release(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    int fd = w->fd;
    if (fd >= 0)
        (void)epoll_ctl(mgr->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    w->fd = -1;
    return fd;
}

/* A forked child may hold a copy, so that close alone would neither unwatch the socket nor
 * end it for the other side. */
void wf_mgr_close(int fd)
{
    if (fd >= 0) {
        (void)shutdown(fd, SHUT_RDWR);
        close(fd);
    }
}

void wf_mgr_watch_end(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    wf_mgr_close(wf_mgr_watch_release(mgr, w));
    if (w->dead)
        return;
    w->dead = true;
    w->grave = mgr->graves;
    mgr->graves = w;
    if (w->kind == WF_MGR_PENDING)
        mgr->npending--;
}

static void reap(struct wf_conn_mgr *mgr)
{
    while (mgr->graves) {
        struct wf_mgr_watch *w = mgr->graves;
        mgr->graves = w->grave;
        wf_list_remove(&w->item);
        if (w->kind == WF_MGR_DIAL)
            wf_mgr_dial_free(w);
        free(w); /* the first member of each */
    }
}

static void list_end(struct wf_conn_mgr *mgr, struct wf_list *list)
{
    wf_list_each(it, list) wf_mgr_watch_end(mgr, wf_container_of(it, struct wf_mgr_watch, item));
}

void wf_mgr_kick(struct wf_conn_mgr *mgr)
{
    uint64_t one = 1;
    if (write(mgr->kick.fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the door's thread: %m");
}

void wf_mgr_event_begin(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    mgr->busy = true;
    mgr->busy_ep = ep;
    mgr->busy_gen = ep_gen;
    pthread_mutex_unlock(&mgr->lock);
}

void wf_mgr_event_end(struct wf_conn_mgr *mgr)
{
    pthread_mutex_lock(&mgr->lock);
    mgr->busy = false;
    pthread_cond_broadcast(&mgr->idle);
}

bool wf_mgr_may_log(struct wf_conn_mgr *mgr, enum wf_mgr_topic topic, char more[WF_MGR_MORE])
{
    struct wf_mgr_quiet *q = &mgr->quiet[topic];
    uint64_t now = wf_now_ns();
    if (now < q->next_ns) {
        q->muted++;
        return false;
    }
    more[0] = 0;
    if (q->muted)
        snprintf(more, WF_MGR_MORE, " (%u more like this)", q->muted);
    *q = (struct wf_mgr_quiet){.next_ns = now + WF_MGR_SECOND};
    return true;
}

/* ---- bytes ---- */

int wf_mgr_recv(int fd, void *buf, size_t *have, size_t want)
{
    while (*have < want) {
        ssize_t n = recv(fd, (uint8_t *)buf + *have, want - *have, 0);
        if (n > 0)
            *have += (size_t)n;
        else if (!n || (errno != EINTR && errno != EAGAIN))
            return -1;
        else if (errno == EAGAIN)
            return 0;
    }
    return 1;
}

/* The handshake's messages fit an empty send buffer; what does not go at once never will. */
bool wf_mgr_send(int fd, const void *message, size_t len)
{
    return send(fd, message, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

/* ---- connections ---- */

struct wf_net_conn *wf_mgr_conn_new(struct wf_conn_mgr *mgr, const struct wf_net_hello *hello,
                                    const struct wf_net_challenge *challenge, bool dialled)
{
    struct wf_net_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    wf_list_init(&conn->item);
    conn->dialled = dialled;
    conn->encrypted = mgr->flags & WF_NET_ENCRYPT;
    conn->lane = hello->lane;
    conn->gen = hello->gen;
    if (conn->encrypted)
        wf_net_stream_keys(mgr->key, hello, challenge, dialled ? conn->key_out : conn->key_in,
                           dialled ? conn->key_in : conn->key_out);
    return conn;
}

void wf_mgr_conn_deliver(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                         struct wf_net_conn *conn)
{
    bool taken;
    wf_socket_tune(conn->fd);
    mgr->passing_fd = conn->fd;
    wf_mgr_event_begin(mgr, ep, ep_gen);
    taken = mgr->params.events->connected(mgr->params.owner, ep, ep_gen, conn);
    wf_mgr_event_end(mgr);
    mgr->passing_fd = -1;
    if (!taken) {
        wf_mgr_close(conn->fd);
        wf_net_conn_free(conn);
    }
}

void wf_conn_mgr_passed(struct wf_conn_mgr *mgr)
{
    mgr->passing_fd = -1;
}

void wf_net_conn_free(struct wf_net_conn *conn)
{
    sodium_memzero(conn, sizeof *conn);
    free(conn);
}

/* ---- lingering ---- */

static void linger_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    uint8_t waste[4096];
    for (int i = 0; i < ROUND; i++) {
        ssize_t n = recv(w->fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (!n || errno != EAGAIN)
            wf_mgr_watch_end(mgr, w);
        return;
    }
}

/* The connection manager closes: who has all that was sent, end included, needs it no more. tcp(7),
 * SIOCOUTQ. */
static void lingers_closing(struct wf_conn_mgr *mgr)
{
    bool late = wf_now_ns() >= mgr->stop_ns;
    wf_list_each(it, &mgr->lingers)
    {
        struct wf_mgr_watch *w = wf_container_of(it, struct wf_mgr_watch, item);
        int unacknowledged = 0;
        if (!w->dead && (late || ioctl(w->fd, SIOCOUTQ, &unacknowledged) || !unacknowledged))
            wf_mgr_watch_end(mgr, w);
    }
}

/* ---- the thread ---- */

static void kick_drain(const struct wf_conn_mgr *mgr)
{
    uint64_t n;
    if (read(mgr->kick.fd, &n, sizeof n) < 0 && errno != EAGAIN)
        wf_error("the door's thread: %m");
}

static void event_handle(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    if (w->dead || w->fd < 0) /* ended by an earlier event of this round */
        return;
    switch (w->kind) {
    case WF_MGR_KICK: kick_drain(mgr); break;
    case WF_MGR_LISTEN: wf_mgr_listen_event(mgr, w); break;
    case WF_MGR_PENDING: wf_mgr_pending_event(mgr, w); break;
    case WF_MGR_DIAL: wf_mgr_dial_event(mgr, w); break;
    case WF_MGR_LINGER: linger_event(mgr, w); break;
    }
}

static void expire(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    switch (w->kind) {
    case WF_MGR_PENDING: wf_mgr_pending_expired(mgr, w); break;
    case WF_MGR_DIAL: wf_mgr_dial_expired(mgr, w); break;
    default: wf_mgr_watch_end(mgr, w); break;
    }
}

/* Lists only grow while the lock is given up for an event: the dead leave them in reap. */
static void list_expire(struct wf_conn_mgr *mgr, struct wf_list *list, uint64_t now)
{
    wf_list_each(it, list)
    {
        struct wf_mgr_watch *w = wf_container_of(it, struct wf_mgr_watch, item);
        if (!w->dead && w->deadline_ns <= now)
            expire(mgr, w);
        if (!w->dead)
            mgr->next_ns = WF_MIN(mgr->next_ns, w->deadline_ns);
    }
}

static void timers(struct wf_conn_mgr *mgr)
{
    uint64_t now = wf_now_ns();
    if (now < mgr->next_ns)
        return;
    mgr->next_ns = WF_MGR_NEVER;
    wf_mgr_listen_timer(mgr, now);
    list_expire(mgr, &mgr->pendings, now);
    list_expire(mgr, &mgr->dials, now);
    list_expire(mgr, &mgr->lingers, now);
}

/* Nobody comes or is called any more; what lingers has its own deadlines. */
static void stopping(struct wf_conn_mgr *mgr)
{
    for (size_t i = 0; i < mgr->net.contact.count; i++)
        (void)wf_mgr_watch_release(mgr, &mgr->listen[i]);
    wf_socket_unlisten(&mgr->net);
    list_end(mgr, &mgr->pendings);
    list_end(mgr, &mgr->dials);
    lingers_closing(mgr);
}

static int sleep_ms(const struct wf_conn_mgr *mgr)
{
    uint64_t now = wf_now_ns(), ms;
    if (mgr->stop)
        return CLOSING_MS;
    if (mgr->next_ns == WF_MGR_NEVER)
        return -1;
    ms = mgr->next_ns > now ? (mgr->next_ns - now + WF_MGR_MS - 1) / WF_MGR_MS : 0;
    return (int)WF_MIN(ms, (uint64_t)INT_MAX);
}

static void *mgr_main(void *arg)
{
    struct wf_conn_mgr *mgr = arg;
    struct epoll_event events[ROUND];
    pthread_mutex_lock(&mgr->lock);
    while (!mgr->stop || !wf_list_empty(&mgr->lingers)) {
        int n, ms = sleep_ms(mgr);
        pthread_mutex_unlock(&mgr->lock);
        n = epoll_wait(mgr->epoll_fd, events, ROUND, ms);
        pthread_mutex_lock(&mgr->lock);
        for (int i = 0; i < n; i++)
            event_handle(mgr, events[i].data.ptr);
        if (mgr->key_is_new) {
            mgr->key_is_new = false;
            wf_mgr_pendings_go_on(mgr);
            wf_mgr_dials_go_on(mgr);
        }
        timers(mgr);
        if (mgr->stop)
            stopping(mgr);
        reap(mgr);
    }
    pthread_mutex_unlock(&mgr->lock);
    return NULL;
}

/* ---- fork ---- */

/* A child's copies of sockets would keep the parent's connections from ending with it. */
static struct wf_list fork_list = {&fork_list, &fork_list};
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void fork_prepare(void)
{
    pthread_mutex_lock(&fork_lock);
    wf_list_each(it, &fork_list)
    {
        struct wf_conn_mgr *mgr = wf_container_of(it, struct wf_conn_mgr, fork_item);
        pthread_mutex_lock(&mgr->lock);
        if (mgr->params.events->fork_begin)
            mgr->params.events->fork_begin(mgr->params.owner);
    }
}

static void fork_over(struct wf_conn_mgr *mgr, bool child)
{
    if (mgr->params.events->fork_end)
        mgr->params.events->fork_end(mgr->params.owner, child);
    pthread_mutex_unlock(&mgr->lock);
}

static void fork_parent(void)
{
    wf_list_each(it, &fork_list)
        fork_over(wf_container_of(it, struct wf_conn_mgr, fork_item), false);
    pthread_mutex_unlock(&fork_lock);
}

/* Close, but neither shutdown nor epoll_ctl: both would reach the parent. */
static void fork_list_drop(struct wf_list *list)
{
    wf_list_each(it, list)
    {
        struct wf_mgr_watch *w = wf_container_of(it, struct wf_mgr_watch, item);
        if (w->fd >= 0)
            close(w->fd);
        w->fd = -1;
    }
}

static void fork_child(void)
{
    wf_list_each(it, &fork_list)
    {
        struct wf_conn_mgr *mgr = wf_container_of(it, struct wf_conn_mgr, fork_item);
        for (size_t i = 0; i < mgr->net.contact.count; i++)
            close(mgr->net.fd[i]);
        fork_list_drop(&mgr->pendings);
        fork_list_drop(&mgr->dials);
        fork_list_drop(&mgr->lingers);
        if (mgr->passing_fd >= 0)
            close(mgr->passing_fd);
        close(mgr->epoll_fd);
        close(mgr->kick.fd);
        sodium_memzero(mgr->key, sizeof mgr->key);
        fork_over(mgr, true);
    }
    wf_list_init(&fork_list);
    pthread_mutex_unlock(&fork_lock);
}

static void fork_register(void)
{
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void fork_join(struct wf_conn_mgr *mgr)
{
    pthread_once(&fork_once, fork_register);
    pthread_mutex_lock(&fork_lock);
    wf_list_append(&fork_list, &mgr->fork_item);
    pthread_mutex_unlock(&fork_lock);
}

static void fork_leave(struct wf_conn_mgr *mgr)
{
    pthread_mutex_lock(&fork_lock);
    wf_list_remove(&mgr->fork_item);
    pthread_mutex_unlock(&fork_lock);
}

/* ---- opening and closing ---- */

static enum weft_status watches_open(struct wf_conn_mgr *mgr)
{
    mgr->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    mgr->kick = (struct wf_mgr_watch){.kind = WF_MGR_KICK};
    mgr->kick.fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (mgr->epoll_fd < 0 || mgr->kick.fd < 0 || wf_mgr_watch_add(mgr, &mgr->kick, EPOLLIN))
        goto fail;
    for (size_t i = 0; i < mgr->net.contact.count; i++) {
        mgr->listen[i] = (struct wf_mgr_watch){.kind = WF_MGR_LISTEN, .fd = mgr->net.fd[i]};
        if (wf_mgr_watch_add(mgr, &mgr->listen[i], EPOLLIN))
            goto fail;
    }
    return WEFT_OK;
fail:
    wf_error("cannot watch sockets: %m%s",
             errno == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
    return WEFT_ESYSTEM;
}

static enum weft_status thread_start(struct wf_conn_mgr *mgr)
{
    size_t stack = 128 * 1024; /* an epoll round and a log line need a few KiB; the core's
                                * events no more */
    int err = wf_thread_start(&mgr->thread, "weft-door", stack, mgr_main, mgr);
    if (err) {
        errno = err;
        wf_error("cannot start the door's thread: %m");
        return WEFT_ESYSTEM;
    }
    return WEFT_OK;
}

static void mgr_free(struct wf_conn_mgr *mgr)
{
    wf_socket_unlisten(&mgr->net);
    if (mgr->kick.fd >= 0)
        close(mgr->kick.fd);
    if (mgr->epoll_fd >= 0)
        close(mgr->epoll_fd);
    pthread_cond_destroy(&mgr->idle);
    pthread_mutex_destroy(&mgr->lock);
    sodium_memzero(mgr->key, sizeof mgr->key);
    free(mgr);
}

static struct wf_conn_mgr *mgr_new(const struct wf_conn_mgr_params *params)
{
    const struct wf_config *config = wf_config();
    struct wf_conn_mgr *mgr = calloc(1, sizeof *mgr);
    if (!mgr)
        return NULL;
    mgr->params = *params;
    mgr->self = *params->self;
    mgr->params.self = &mgr->self;
    mgr->flags = config->tcp_encrypt ? WF_NET_ENCRYPT : 0;
    mgr->peer_ns = config->peer_timeout_ms * WF_MGR_MS;
    mgr->handshake_ns = config->connect_timeout_ms * WF_MGR_MS;
    mgr->epoll_fd = mgr->kick.fd = mgr->passing_fd = -1;
    mgr->next_ns = WF_MGR_NEVER;
    wf_list_init(&mgr->pendings);
    wf_list_init(&mgr->dials);
    wf_list_init(&mgr->lingers);
    pthread_mutex_init(&mgr->lock, NULL);
    pthread_cond_init(&mgr->idle, NULL);
    return mgr;
}

enum weft_status wf_conn_mgr_open(const struct wf_conn_mgr_params *params, struct wf_conn_mgr **out)
{
    struct wf_conn_mgr *mgr;
    enum weft_status status = wf_net_auth_init();
    if (status != WEFT_OK)
        return status;
    mgr = mgr_new(params);
    if (!mgr)
        return WEFT_ENOMEM;
    fork_join(mgr);
    pthread_mutex_lock(&mgr->lock); /* no fork while there are descriptors that it would miss */
    status = wf_socket_listen(&mgr->net);
    mgr->contact = mgr->net.contact;
    if (status == WEFT_OK)
        status = watches_open(mgr);
    if (status == WEFT_OK)
        status = thread_start(mgr);
    pthread_mutex_unlock(&mgr->lock);
    if (status != WEFT_OK) {
        fork_leave(mgr);
        mgr_free(mgr);
        return status;
    }
    *out = mgr;
    return WEFT_OK;
}

void wf_conn_mgr_close(struct wf_conn_mgr *mgr, uint32_t within_ms)
{
    pthread_mutex_lock(&mgr->lock);
    mgr->stop = true;
    mgr->stop_ns = within_ms ? wf_now_ns() + within_ms * WF_MGR_MS : WF_MGR_NEVER;
    pthread_mutex_unlock(&mgr->lock);
    wf_mgr_kick(mgr);
    pthread_join(mgr->thread, NULL);
    fork_leave(mgr);
    list_end(mgr, &mgr->pendings);
    list_end(mgr, &mgr->dials);
    reap(mgr);
    mgr_free(mgr);
}

const struct wf_contact *wf_conn_mgr_contact(const struct wf_conn_mgr *mgr)
{
    return &mgr->contact;
}

/* ---- for other threads ---- */

enum weft_status wf_conn_mgr_set_key(struct wf_conn_mgr *mgr, const uint8_t key[WF_NET_KEY])
{
    enum weft_status status = WEFT_OK;
    pthread_mutex_lock(&mgr->lock);
    if (mgr->has_key) {
        status = sodium_memcmp(mgr->key, key, WF_NET_KEY) ? WEFT_EINVAL : WEFT_OK;
    } else {
        memcpy(mgr->key, key, WF_NET_KEY);
        mgr->has_key = mgr->key_is_new = true;
    }
    pthread_mutex_unlock(&mgr->lock);
    wf_mgr_kick(mgr);
    return status;
}

bool wf_conn_mgr_has_key(const struct wf_conn_mgr *mgr)
{
    struct wf_conn_mgr *d = (struct wf_conn_mgr *)(uintptr_t)mgr; /* for its lock */
    bool has;
    pthread_mutex_lock(&d->lock);
    has = d->has_key;
    pthread_mutex_unlock(&d->lock);
    return has;
}

void wf_conn_mgr_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    pthread_mutex_lock(&mgr->lock);
    while (mgr->busy && mgr->busy_ep == ep && mgr->busy_gen == ep_gen)
        pthread_cond_wait(&mgr->idle, &mgr->lock);
    wf_mgr_dials_forget(mgr, ep, ep_gen);
    wf_mgr_pendings_forget(mgr, ep, ep_gen);
    pthread_mutex_unlock(&mgr->lock);
    wf_mgr_kick(mgr);
}

void wf_conn_mgr_linger(struct wf_conn_mgr *mgr, int fd)
{
    struct wf_mgr_watch *w = calloc(1, sizeof *w);
    (void)shutdown(fd, SHUT_WR);
    if (!w) {
        close(fd);
        return;
    }
    w->kind = WF_MGR_LINGER;
    w->fd = fd;
    pthread_mutex_lock(&mgr->lock);
    wf_list_append(&mgr->lingers, &w->item);
    wf_mgr_deadline_set(mgr, w, wf_now_ns() + mgr->peer_ns);
    if (wf_mgr_watch_add(mgr, w, EPOLLIN))
        wf_mgr_watch_end(mgr, w);
    pthread_mutex_unlock(&mgr->lock);
    wf_mgr_kick(mgr);
}
