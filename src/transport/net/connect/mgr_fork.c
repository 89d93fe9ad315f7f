/* SPDX-License-Identifier: BSD-3-Clause */
/* A forked child inherits copies of all sockets. While the child holds them, the parent's death
 * ends no connection. So the child closes them; and the manager's lock is held across the fork, so
 * that every descriptor that exists then is recorded. */
#define _GNU_SOURCE
#include <sodium.h>
#include <unistd.h>

#include "transport/net/connect/manager_int.h"

static struct wf_list managers = {&managers, &managers};
static pthread_mutex_t managers_lock = PTHREAD_MUTEX_INITIALIZER; /* before any manager's lock */
static pthread_once_t atfork_once = PTHREAD_ONCE_INIT;

static void mgr_fork_prepare(void)
{
    pthread_mutex_lock(&managers_lock);
    wf_list_each(it, &managers)
    {
        struct wf_conn_mgr *mgr = wf_container_of(it, struct wf_conn_mgr, fork_item);
        pthread_mutex_lock(&mgr->lock);
        if (mgr->params.events->fork_begin)
            mgr->params.events->fork_begin(mgr->params.owner);
    }
}

static void mgr_fork_end(struct wf_conn_mgr *mgr, bool child)
{
    if (mgr->params.events->fork_end)
        mgr->params.events->fork_end(mgr->params.owner, child);
    pthread_mutex_unlock(&mgr->lock);
}

static void mgr_fork_parent(void)
{
    wf_list_each(it, &managers)
        mgr_fork_end(wf_container_of(it, struct wf_conn_mgr, fork_item), false);
    pthread_mutex_unlock(&managers_lock);
}

/* With close(2) only: shutdown and epoll_ctl would affect the parent. */
static void fds_close(struct wf_list *watches)
{
    wf_list_each(it, watches)
    {
        struct wf_mgr_watch *w = wf_container_of(it, struct wf_mgr_watch, item);
        if (w->fd >= 0)
            close(w->fd);
        w->fd = -1;
    }
}

static void mgr_fork_child(void)
{
    wf_list_each(it, &managers)
    {
        struct wf_conn_mgr *mgr = wf_container_of(it, struct wf_conn_mgr, fork_item);
        for (size_t i = 0; i < mgr->listeners.contact.count; i++)
            close(mgr->listeners.fd[i]);
        fds_close(&mgr->pendings);
        fds_close(&mgr->dials);
        fds_close(&mgr->lingers);
        if (mgr->passing_fd >= 0)
            close(mgr->passing_fd);
        close(mgr->epoll_fd);
        close(mgr->wake.fd);
        sodium_memzero(mgr->key, sizeof mgr->key);
        mgr_fork_end(mgr, true);
    }
    wf_list_init(&managers);
    pthread_mutex_unlock(&managers_lock);
}

static void atfork_register(void)
{
    (void)pthread_atfork(mgr_fork_prepare, mgr_fork_parent, mgr_fork_child);
}

void wf_mgr_fork_join(struct wf_conn_mgr *mgr)
{
    pthread_once(&atfork_once, atfork_register);
    pthread_mutex_lock(&managers_lock);
    wf_list_append(&managers, &mgr->fork_item);
    pthread_mutex_unlock(&managers_lock);
}

void wf_mgr_fork_leave(struct wf_conn_mgr *mgr)
{
    pthread_mutex_lock(&managers_lock);
    wf_list_remove(&mgr->fork_item);
    pthread_mutex_unlock(&managers_lock);
}
