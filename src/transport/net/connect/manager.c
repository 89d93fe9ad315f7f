/* SPDX-License-Identifier: BSD-3-Clause */
/* The manager's thread. It works in rounds. A round waits in epoll_wait, handles the events,
 * handles the deadlines that have passed, and frees the dead watches. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/manager_int.h"

#define ROUND 64 /* epoll events per round */
/* The length of a round while the manager closes. Each round checks whether the peers have
 * acknowledged the data of lingering sockets. */
#define CLOSING_MS 5

/* ---- watches ---- */

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

void wf_mgr_watch_end(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    wf_conn_close_fd(wf_mgr_watch_release(mgr, w));
    if (w->dead)
        return;
    w->dead = true;
    w->next_dead = mgr->dead;
    mgr->dead = w;
    if (w->kind == WF_MGR_PENDING)
        mgr->npending--;
}

static UNDER_LOCK void dead_free(struct wf_conn_mgr *mgr)
{
    while (mgr->dead) {
        struct wf_mgr_watch *w = mgr->dead;
        mgr->dead = w->next_dead;
        wf_list_remove(&w->item);
        if (w->kind == WF_MGR_DIAL)
            wf_mgr_dial_free(w);
        free(w); /* the watch is the first member of its object */
    }
}

static UNDER_LOCK void list_end(struct wf_conn_mgr *mgr, struct wf_list *list)
{
    wf_list_each(it, list) wf_mgr_watch_end(mgr, wf_container_of(it, struct wf_mgr_watch, item));
}

void wf_mgr_wake(struct wf_conn_mgr *mgr)
{
    uint64_t one = 1;
    if (write(mgr->wake.fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the connection manager: %m");
}

void wf_mgr_event_begin(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    mgr->in_event = true;
    mgr->event_ep = ep;
    mgr->event_ep_gen = ep_gen;
    mgr_unlock(mgr);
}

void wf_mgr_event_end(struct wf_conn_mgr *mgr)
{
    mgr_lock(mgr);
    mgr->in_event = false;
    pthread_cond_broadcast(&mgr->event_ended);
}

bool wf_mgr_may_log(struct wf_conn_mgr *mgr, enum wf_mgr_topic topic, char suffix[WF_MGR_SUFFIX])
{
    struct wf_mgr_log_limit *l = &mgr->log_limit[topic];
    uint64_t now = wf_now_ns();
    if (now < l->next_ns) {
        l->suppressed++;
        return false;
    }
    suffix[0] = 0;
    if (l->suppressed)
        snprintf(suffix, WF_MGR_SUFFIX, " (%u more like this)", l->suppressed);
    *l = (struct wf_mgr_log_limit){.next_ns = now + WF_MGR_SECOND};
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

/* Each message of the handshake fits into an empty send buffer. So a short send means that the
 * connection has failed. */
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
        wf_conn_close_fd(conn->fd);
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

/* ---- the thread ---- */

static void wake_drain(const struct wf_conn_mgr *mgr)
{
    uint64_t n;
    if (read(mgr->wake.fd, &n, sizeof n) < 0 && errno != EAGAIN)
        wf_error("the connection manager cannot read its eventfd: %m");
}

static UNDER_LOCK void event_handle(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    if (w->dead || w->fd < 0) /* an earlier event of this round ended [w] */
        return;
    switch (w->kind) {
    case WF_MGR_WAKE: wake_drain(mgr); break;
    case WF_MGR_LISTEN: wf_mgr_listen_event(mgr, w); break;
    case WF_MGR_PENDING: wf_mgr_pending_event(mgr, w); break;
    case WF_MGR_DIAL: wf_mgr_dial_event(mgr, w); break;
    case WF_MGR_LINGER: wf_mgr_linger_event(mgr, w); break;
    }
}

static UNDER_LOCK void expire(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    switch (w->kind) {
    case WF_MGR_PENDING: wf_mgr_pending_expired(mgr, w); break;
    case WF_MGR_DIAL: wf_mgr_dial_expired(mgr, w); break;
    default: wf_mgr_watch_end(mgr, w); break;
    }
}

/* expire may deliver an event, which releases the lock. The iteration stays valid, since other
 * threads only add to the list: dead_free alone removes items, and only this thread calls it. */
static UNDER_LOCK void list_expire(struct wf_conn_mgr *mgr, struct wf_list *list, uint64_t now)
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

static UNDER_LOCK void timers(struct wf_conn_mgr *mgr)
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

/* End the listeners, pending connections and dials. A lingering socket stays until the peer's
 * kernel has acknowledged its data, or until its deadline has passed. */
static UNDER_LOCK void stopping(struct wf_conn_mgr *mgr)
{
    for (size_t i = 0; i < mgr->listeners.contact.count; i++)
        (void)wf_mgr_watch_release(mgr, &mgr->listen[i]);
    wf_socket_unlisten(&mgr->listeners);
    list_end(mgr, &mgr->pendings);
    list_end(mgr, &mgr->dials);
    wf_mgr_lingers_closing(mgr);
}

static UNDER_LOCK int sleep_ms(const struct wf_conn_mgr *mgr)
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
    mgr_lock(mgr);
    while (!mgr->stop || !wf_list_empty(&mgr->lingers)) {
        int n, ms = sleep_ms(mgr);
        mgr_unlock(mgr);
        n = epoll_wait(mgr->epoll_fd, events, ROUND, ms);
        mgr_lock(mgr);
        for (int i = 0; i < n; i++)
            event_handle(mgr, events[i].data.ptr);
        if (mgr->key_is_new) {
            mgr->key_is_new = false;
            wf_mgr_pendings_resume(mgr);
            wf_mgr_dials_resume(mgr);
        }
        timers(mgr);
        if (mgr->stop)
            stopping(mgr);
        dead_free(mgr);
    }
    mgr_unlock(mgr);
    return NULL;
}

/* ---- opening and closing ---- */

static enum weft_status watches_open(struct wf_conn_mgr *mgr)
{
    mgr->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    mgr->wake = (struct wf_mgr_watch){.kind = WF_MGR_WAKE};
    mgr->wake.fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (mgr->epoll_fd < 0 || mgr->wake.fd < 0 || wf_mgr_watch_add(mgr, &mgr->wake, EPOLLIN))
        goto fail;
    for (size_t i = 0; i < mgr->listeners.contact.count; i++) {
        mgr->listen[i] = (struct wf_mgr_watch){.kind = WF_MGR_LISTEN, .fd = mgr->listeners.fd[i]};
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
    /* A round, a log line and the owner's events each need a few KiB of stack. */
    size_t stack = 128 * 1024;
    int err = wf_thread_start(&mgr->thread, "weft-connect", stack, mgr_main, mgr);
    if (err) {
        errno = err;
        wf_error("cannot start the connection manager's thread: %m");
        return WEFT_ESYSTEM;
    }
    return WEFT_OK;
}

static void mgr_free(struct wf_conn_mgr *mgr)
{
    wf_socket_unlisten(&mgr->listeners);
    if (mgr->wake.fd >= 0)
        close(mgr->wake.fd);
    if (mgr->epoll_fd >= 0)
        close(mgr->epoll_fd);
    pthread_cond_destroy(&mgr->event_ended);
    pthread_mutex_destroy(&mgr->lock);
    sodium_memzero(mgr->key, sizeof mgr->key);
    free(mgr);
}

static WF_UNCHECKED struct wf_conn_mgr *mgr_new(const struct wf_conn_mgr_params *params)
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
    mgr->epoll_fd = mgr->wake.fd = mgr->passing_fd = -1;
    mgr->next_ns = WF_MGR_NEVER;
    wf_list_init(&mgr->pendings);
    wf_list_init(&mgr->dials);
    wf_list_init(&mgr->lingers);
    pthread_mutex_init(&mgr->lock, NULL);
    pthread_cond_init(&mgr->event_ended, NULL);
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
    wf_mgr_fork_join(mgr);
    /* While the lock is held, no fork can happen. So a forked child finds each new descriptor
     * recorded. */
    mgr_lock(mgr);
    if (params->ninherited)
        status = wf_socket_adopt(params->inherited, params->ninherited, &mgr->listeners);
    else
        status = wf_socket_listen(&mgr->listeners);
    mgr->contact = mgr->listeners.contact;
    mgr->listeners.shared |= params->identify != NULL; /* which may give them away */
    if (status == WEFT_OK && params->identify)
        params->identify(params->identify_arg, &mgr->contact, mgr->listeners.fd, &mgr->self);
    if (status == WEFT_OK)
        status = watches_open(mgr);
    if (status == WEFT_OK)
        status = thread_start(mgr);
    mgr_unlock(mgr);
    if (status != WEFT_OK) {
        wf_mgr_fork_leave(mgr);
        mgr_free(mgr);
        return status;
    }
    *out = mgr;
    return WEFT_OK;
}

WF_UNCHECKED void wf_conn_mgr_close(struct wf_conn_mgr *mgr, uint32_t within_ms)
{
    mgr_lock(mgr);
    mgr->stop = true;
    mgr->stop_ns = within_ms ? wf_now_ns() + within_ms * WF_MGR_MS : WF_MGR_NEVER;
    mgr_unlock(mgr);
    wf_mgr_wake(mgr);
    pthread_join(mgr->thread, NULL);
    wf_mgr_fork_leave(mgr);
    list_end(mgr, &mgr->pendings);
    list_end(mgr, &mgr->dials);
    dead_free(mgr);
    mgr_free(mgr);
}

const struct wf_contact *wf_conn_mgr_contact(const struct wf_conn_mgr *mgr)
{
    return &mgr->contact;
}

/* ---- for other threads ---- */

enum weft_status wf_conn_mgr_set_key(struct wf_conn_mgr *mgr, const uint8_t key[WF_NET_KEY])
{
    bool had;
    mgr_lock(mgr);
    had = mgr->has_key;
    if (!had) {
        memcpy(mgr->key, key, WF_NET_KEY);
        mgr->has_key = mgr->key_is_new = true;
    }
    mgr_unlock(mgr);
    if (had)
        return WEFT_EBUSY;
    wf_mgr_wake(mgr);
    return WEFT_OK;
}

void wf_conn_mgr_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen)
{
    mgr_lock(mgr);
    while (mgr->in_event && mgr->event_ep == ep && mgr->event_ep_gen == ep_gen)
        pthread_cond_wait(&mgr->event_ended, &mgr->lock);
    wf_mgr_dials_forget(mgr, ep, ep_gen);
    wf_mgr_pendings_forget(mgr, ep, ep_gen);
    mgr_unlock(mgr);
    wf_mgr_wake(mgr);
}
