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
#include "transport/tcp/auth.h"
#include "transport/tcp/door_int.h"

#define ROUND 64     /* events per round */
#define CLOSING_MS 5 /* how often a closing door looks whether data were acknowledged */

/* ---- objects ---- */

void wf_door_deadline_set(struct wf_tcp_door *door, struct wf_door_watch *w, uint64_t at_ns)
{
    w->deadline_ns = at_ns;
    door->next_ns = WF_MIN(door->next_ns, at_ns);
}

int wf_door_watch_add(struct wf_tcp_door *door, struct wf_door_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    return epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, w->fd, &ev);
}

void wf_door_watch_events(struct wf_tcp_door *door, struct wf_door_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    if (epoll_ctl(door->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev))
        wf_error("epoll_ctl: %m");
}

int wf_door_watch_release(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    int fd = w->fd;
    if (fd >= 0)
        (void)epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    w->fd = -1;
    return fd;
}

/* A forked child may hold a copy, so that close alone would neither unwatch the socket nor
 * end it for the other side. */
void wf_door_hang_up(int fd)
{
    if (fd >= 0) {
        (void)shutdown(fd, SHUT_RDWR);
        close(fd);
    }
}

void wf_door_watch_end(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    wf_door_hang_up(wf_door_watch_release(door, w));
    if (w->dead)
        return;
    w->dead = true;
    w->grave = door->graves;
    door->graves = w;
    if (w->kind == WF_DOOR_STRANGER)
        door->nstrangers--;
}

static void reap(struct wf_tcp_door *door)
{
    while (door->graves) {
        struct wf_door_watch *w = door->graves;
        door->graves = w->grave;
        wf_list_remove(&w->item);
        if (w->kind == WF_DOOR_CALL)
            wf_door_call_free(w);
        free(w); /* the first member of each */
    }
}

static void list_end(struct wf_tcp_door *door, struct wf_list *list)
{
    wf_list_each(it, list) wf_door_watch_end(door, wf_container_of(it, struct wf_door_watch, item));
}

void wf_door_kick(struct wf_tcp_door *door)
{
    uint64_t one = 1;
    if (write(door->kick.fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the door's thread: %m");
}

void wf_door_event_begin(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen)
{
    door->busy = true;
    door->busy_ep = ep;
    door->busy_gen = ep_gen;
    pthread_mutex_unlock(&door->lock);
}

void wf_door_event_end(struct wf_tcp_door *door)
{
    pthread_mutex_lock(&door->lock);
    door->busy = false;
    pthread_cond_broadcast(&door->idle);
}

bool wf_door_is_loud(struct wf_tcp_door *door, enum wf_door_topic topic, char more[WF_DOOR_MORE])
{
    struct wf_door_quiet *q = &door->quiet[topic];
    uint64_t now = wf_now_ns();
    if (now < q->next_ns) {
        q->muted++;
        return false;
    }
    more[0] = 0;
    if (q->muted)
        snprintf(more, WF_DOOR_MORE, " (%u more like this)", q->muted);
    *q = (struct wf_door_quiet){.next_ns = now + WF_DOOR_SECOND};
    return true;
}

/* ---- bytes ---- */

int wf_door_take(int fd, void *buf, size_t *have, size_t want)
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
bool wf_door_say(int fd, const void *message, size_t len)
{
    return send(fd, message, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

/* ---- connections ---- */

struct wf_tcp_conn *wf_door_conn_new(struct wf_tcp_door *door, const struct wf_tcp_hello *hello,
                                     const struct wf_tcp_challenge *challenge, bool dialled)
{
    struct wf_tcp_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    wf_list_init(&conn->item);
    conn->dialled = dialled;
    conn->encrypted = door->flags & WF_TCP_ENCRYPT;
    conn->lane = hello->lane;
    conn->gen = hello->gen;
    if (conn->encrypted)
        wf_tcp_stream_keys(door->key, hello, challenge, dialled ? conn->key_out : conn->key_in,
                           dialled ? conn->key_in : conn->key_out);
    return conn;
}

void wf_door_conn_deliver(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen,
                          struct wf_tcp_conn *conn)
{
    bool taken;
    wf_tcp_net_tune(conn->fd);
    door->passing_fd = conn->fd;
    wf_door_event_begin(door, ep, ep_gen);
    taken = door->params.events->connected(door->params.owner, ep, ep_gen, conn);
    wf_door_event_end(door);
    door->passing_fd = -1;
    if (!taken) {
        wf_door_hang_up(conn->fd);
        wf_tcp_conn_free(conn);
    }
}

void wf_tcp_door_passed(struct wf_tcp_door *door)
{
    door->passing_fd = -1;
}

void wf_tcp_conn_free(struct wf_tcp_conn *conn)
{
    sodium_memzero(conn, sizeof *conn);
    free(conn);
}

/* ---- lingering ---- */

static void linger_event(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    uint8_t waste[4096];
    for (int i = 0; i < ROUND; i++) {
        ssize_t n = recv(w->fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (!n || errno != EAGAIN)
            wf_door_watch_end(door, w);
        return;
    }
}

/* The door closes: who has all that was sent, end included, needs it no more. tcp(7), SIOCOUTQ. */
static void lingers_closing(struct wf_tcp_door *door)
{
    bool late = wf_now_ns() >= door->stop_ns;
    wf_list_each(it, &door->lingers)
    {
        struct wf_door_watch *w = wf_container_of(it, struct wf_door_watch, item);
        int unacknowledged = 0;
        if (!w->dead && (late || ioctl(w->fd, SIOCOUTQ, &unacknowledged) || !unacknowledged))
            wf_door_watch_end(door, w);
    }
}

/* ---- the thread ---- */

static void kick_drain(const struct wf_tcp_door *door)
{
    uint64_t n;
    if (read(door->kick.fd, &n, sizeof n) < 0 && errno != EAGAIN)
        wf_error("the door's thread: %m");
}

static void event_handle(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    if (w->dead || w->fd < 0) /* ended by an earlier event of this round */
        return;
    switch (w->kind) {
    case WF_DOOR_KICK: kick_drain(door); break;
    case WF_DOOR_LISTEN: wf_door_listen_event(door, w); break;
    case WF_DOOR_STRANGER: wf_door_stranger_event(door, w); break;
    case WF_DOOR_CALL: wf_door_call_event(door, w); break;
    case WF_DOOR_LINGER: linger_event(door, w); break;
    }
}

static void expire(struct wf_tcp_door *door, struct wf_door_watch *w)
{
    switch (w->kind) {
    case WF_DOOR_STRANGER: wf_door_stranger_expired(door, w); break;
    case WF_DOOR_CALL: wf_door_call_expired(door, w); break;
    default: wf_door_watch_end(door, w); break;
    }
}

/* Lists only grow while the lock is given up for an event: the dead leave them in reap. */
static void list_expire(struct wf_tcp_door *door, struct wf_list *list, uint64_t now)
{
    wf_list_each(it, list)
    {
        struct wf_door_watch *w = wf_container_of(it, struct wf_door_watch, item);
        if (!w->dead && w->deadline_ns <= now)
            expire(door, w);
        if (!w->dead)
            door->next_ns = WF_MIN(door->next_ns, w->deadline_ns);
    }
}

static void timers(struct wf_tcp_door *door)
{
    uint64_t now = wf_now_ns();
    if (now < door->next_ns)
        return;
    door->next_ns = WF_DOOR_NEVER;
    wf_door_listen_timer(door, now);
    list_expire(door, &door->strangers, now);
    list_expire(door, &door->calls, now);
    list_expire(door, &door->lingers, now);
}

/* Nobody comes or is called any more; what lingers has its own deadlines. */
static void stopping(struct wf_tcp_door *door)
{
    for (size_t i = 0; i < door->net.contact.count; i++)
        (void)wf_door_watch_release(door, &door->listen[i]);
    wf_tcp_net_close(&door->net);
    list_end(door, &door->strangers);
    list_end(door, &door->calls);
    lingers_closing(door);
}

static int sleep_ms(const struct wf_tcp_door *door)
{
    uint64_t now = wf_now_ns(), ms;
    if (door->stop)
        return CLOSING_MS;
    if (door->next_ns == WF_DOOR_NEVER)
        return -1;
    ms = door->next_ns > now ? (door->next_ns - now + WF_DOOR_MS - 1) / WF_DOOR_MS : 0;
    return (int)WF_MIN(ms, (uint64_t)INT_MAX);
}

static void *door_main(void *arg)
{
    struct wf_tcp_door *door = arg;
    struct epoll_event events[ROUND];
    pthread_mutex_lock(&door->lock);
    while (!door->stop || !wf_list_empty(&door->lingers)) {
        int n, ms = sleep_ms(door);
        pthread_mutex_unlock(&door->lock);
        n = epoll_wait(door->epoll_fd, events, ROUND, ms);
        pthread_mutex_lock(&door->lock);
        for (int i = 0; i < n; i++)
            event_handle(door, events[i].data.ptr);
        if (door->key_is_new) {
            door->key_is_new = false;
            wf_door_strangers_go_on(door);
            wf_door_calls_go_on(door);
        }
        timers(door);
        if (door->stop)
            stopping(door);
        reap(door);
    }
    pthread_mutex_unlock(&door->lock);
    return NULL;
}

/* ---- fork ---- */

static struct wf_tcp_door *door_of_fork(struct wf_fork_item *item)
{
    return wf_container_of(item, struct wf_tcp_door, fork_item);
}

static void fork_prepare(struct wf_fork_item *item)
{
    struct wf_tcp_door *door = door_of_fork(item);
    pthread_mutex_lock(&door->lock);
    if (door->params.events->fork_begin)
        door->params.events->fork_begin(door->params.owner);
}

static void fork_over(struct wf_tcp_door *door, bool child)
{
    if (door->params.events->fork_end)
        door->params.events->fork_end(door->params.owner, child);
    pthread_mutex_unlock(&door->lock);
}

static void fork_parent(struct wf_fork_item *item)
{
    fork_over(door_of_fork(item), false);
}

/* Close, but neither shutdown nor epoll_ctl: both would reach the parent. */
static void fork_list_drop(struct wf_list *list)
{
    wf_list_each(it, list)
    {
        struct wf_door_watch *w = wf_container_of(it, struct wf_door_watch, item);
        if (w->fd >= 0)
            close(w->fd);
        w->fd = -1;
    }
}

/* A child's copies of sockets would keep the parent's connections from ending with it. */
static void fork_child(struct wf_fork_item *item)
{
    struct wf_tcp_door *door = door_of_fork(item);
    for (size_t i = 0; i < door->net.contact.count; i++)
        close(door->net.fd[i]);
    fork_list_drop(&door->strangers);
    fork_list_drop(&door->calls);
    fork_list_drop(&door->lingers);
    if (door->passing_fd >= 0)
        close(door->passing_fd);
    close(door->epoll_fd);
    close(door->kick.fd);
    sodium_memzero(door->key, sizeof door->key);
    fork_over(door, true);
}

static const struct wf_fork_ops door_fork_ops = {.level = WF_FORK_TRANSPORT,
                                                 .prepare = fork_prepare,
                                                 .parent = fork_parent,
                                                 .child = fork_child};

/* ---- opening and closing ---- */

static enum weft_status watches_open(struct wf_tcp_door *door)
{
    door->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    door->kick = (struct wf_door_watch){.kind = WF_DOOR_KICK};
    door->kick.fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (door->epoll_fd < 0 || door->kick.fd < 0 || wf_door_watch_add(door, &door->kick, EPOLLIN))
        goto fail;
    for (size_t i = 0; i < door->net.contact.count; i++) {
        door->listen[i] = (struct wf_door_watch){.kind = WF_DOOR_LISTEN, .fd = door->net.fd[i]};
        if (wf_door_watch_add(door, &door->listen[i], EPOLLIN))
            goto fail;
    }
    return WEFT_OK;
fail:
    wf_error("cannot watch sockets: %m%s",
             errno == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
    return WEFT_ESYSTEM;
}

static enum weft_status thread_start(struct wf_tcp_door *door)
{
    size_t stack = 128 * 1024; /* an epoll round and a log line need a few KiB; the core's
                                * events no more */
    int err = wf_thread_start(&door->thread, "weft-door", stack, door_main, door);
    if (err) {
        errno = err;
        wf_error("cannot start the door's thread: %m");
        return WEFT_ESYSTEM;
    }
    return WEFT_OK;
}

static void door_free(struct wf_tcp_door *door)
{
    wf_tcp_net_close(&door->net);
    if (door->kick.fd >= 0)
        close(door->kick.fd);
    if (door->epoll_fd >= 0)
        close(door->epoll_fd);
    pthread_cond_destroy(&door->idle);
    pthread_mutex_destroy(&door->lock);
    sodium_memzero(door->key, sizeof door->key);
    free(door);
}

static struct wf_tcp_door *door_new(const struct wf_tcp_door_params *params)
{
    const struct wf_config *config = wf_config();
    struct wf_tcp_door *door = calloc(1, sizeof *door);
    if (!door)
        return NULL;
    door->params = *params;
    door->self = *params->self;
    door->params.self = &door->self;
    door->flags = config->tcp_encrypt ? WF_TCP_ENCRYPT : 0;
    door->peer_ns = config->peer_timeout_ms * WF_DOOR_MS;
    door->handshake_ns = config->connect_timeout_ms * WF_DOOR_MS;
    door->epoll_fd = door->kick.fd = door->passing_fd = -1;
    door->next_ns = WF_DOOR_NEVER;
    wf_list_init(&door->strangers);
    wf_list_init(&door->calls);
    wf_list_init(&door->lingers);
    pthread_mutex_init(&door->lock, NULL);
    pthread_cond_init(&door->idle, NULL);
    return door;
}

enum weft_status wf_tcp_door_open(const struct wf_tcp_door_params *params, struct wf_tcp_door **out)
{
    struct wf_tcp_door *door;
    enum weft_status status = wf_tcp_auth_init();
    if (status != WEFT_OK)
        return status;
    door = door_new(params);
    if (!door)
        return WEFT_ENOMEM;
    wf_fork_join(&door->fork_item, &door_fork_ops);
    pthread_mutex_lock(&door->lock); /* no fork while there are descriptors that it would miss */
    status = wf_tcp_net_listen(&door->net);
    door->contact = door->net.contact;
    if (status == WEFT_OK)
        status = watches_open(door);
    if (status == WEFT_OK)
        status = thread_start(door);
    pthread_mutex_unlock(&door->lock);
    if (status != WEFT_OK) {
        wf_fork_leave(&door->fork_item);
        door_free(door);
        return status;
    }
    *out = door;
    return WEFT_OK;
}

void wf_tcp_door_close(struct wf_tcp_door *door, uint32_t within_ms)
{
    pthread_mutex_lock(&door->lock);
    door->stop = true;
    door->stop_ns = within_ms ? wf_now_ns() + within_ms * WF_DOOR_MS : WF_DOOR_NEVER;
    pthread_mutex_unlock(&door->lock);
    wf_door_kick(door);
    pthread_join(door->thread, NULL);
    wf_fork_leave(&door->fork_item);
    list_end(door, &door->strangers);
    list_end(door, &door->calls);
    reap(door);
    door_free(door);
}

const struct wf_contact *wf_tcp_door_contact(const struct wf_tcp_door *door)
{
    return &door->contact;
}

/* ---- for other threads ---- */

enum weft_status wf_tcp_door_set_key(struct wf_tcp_door *door, const uint8_t key[WF_TCP_KEY])
{
    enum weft_status status = WEFT_OK;
    pthread_mutex_lock(&door->lock);
    if (door->has_key) {
        status = sodium_memcmp(door->key, key, WF_TCP_KEY) ? WEFT_EINVAL : WEFT_OK;
    } else {
        memcpy(door->key, key, WF_TCP_KEY);
        door->has_key = door->key_is_new = true;
    }
    pthread_mutex_unlock(&door->lock);
    wf_door_kick(door);
    return status;
}

bool wf_tcp_door_has_key(const struct wf_tcp_door *door)
{
    struct wf_tcp_door *d = (struct wf_tcp_door *)(uintptr_t)door; /* for its lock */
    bool has;
    pthread_mutex_lock(&d->lock);
    has = d->has_key;
    pthread_mutex_unlock(&d->lock);
    return has;
}

void wf_tcp_door_forget(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen)
{
    pthread_mutex_lock(&door->lock);
    while (door->busy && door->busy_ep == ep && door->busy_gen == ep_gen)
        pthread_cond_wait(&door->idle, &door->lock);
    wf_door_calls_forget(door, ep, ep_gen);
    wf_door_strangers_forget(door, ep, ep_gen);
    pthread_mutex_unlock(&door->lock);
    wf_door_kick(door);
}

void wf_tcp_door_linger(struct wf_tcp_door *door, int fd)
{
    struct wf_door_watch *w = calloc(1, sizeof *w);
    (void)shutdown(fd, SHUT_WR);
    if (!w) {
        close(fd);
        return;
    }
    w->kind = WF_DOOR_LINGER;
    w->fd = fd;
    pthread_mutex_lock(&door->lock);
    wf_list_append(&door->lingers, &w->item);
    wf_door_deadline_set(door, w, wf_now_ns() + door->peer_ns);
    if (wf_door_watch_add(door, w, EPOLLIN))
        wf_door_watch_end(door, w);
    pthread_mutex_unlock(&door->lock);
    wf_door_kick(door);
}
