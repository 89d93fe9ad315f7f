/* SPDX-License-Identifier: BSD-3-Clause */
/* A forked child inherits copies of all sockets. As long as the child holds these copies, the
 * parent's death ends no connection. So the child closes the copies. The manager's lock is held
 * during the fork, so each descriptor that the child inherits is recorded, and the child can close
 * it. */
#define _GNU_SOURCE
#include <sodium.h>
#include <unistd.h>

#include "transport/net/connect/manager_int.h"

static struct wf_conn_mgr *mgr_of(struct wf_fork_item *item)
{
    return wf_container_of(item, struct wf_conn_mgr, fork_item);
}

static WF_UNCHECKED void mgr_fork_prepare(struct wf_fork_item *item)
{
    struct wf_conn_mgr *mgr = mgr_of(item);
    mgr_lock(mgr);
    if (mgr->params.events->fork_begin)
        mgr->params.events->fork_begin(mgr->params.owner);
}

static WF_UNCHECKED void mgr_fork_end(struct wf_conn_mgr *mgr, bool child)
{
    if (mgr->params.events->fork_end)
        mgr->params.events->fork_end(mgr->params.owner, child);
    mgr_unlock(mgr);
}

static void mgr_fork_parent(struct wf_fork_item *item)
{
    mgr_fork_end(mgr_of(item), false);
}

/* Close the child's copies with close(2) only: shutdown and epoll_ctl would affect the parent. */
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

static void mgr_fork_child(struct wf_fork_item *item)
{
    struct wf_conn_mgr *mgr = mgr_of(item);
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

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT,
                                            .prepare = mgr_fork_prepare,
                                            .parent = mgr_fork_parent,
                                            .child = mgr_fork_child};

void wf_mgr_fork_join(struct wf_conn_mgr *mgr)
{
    wf_fork_join(&mgr->fork_item, &fork_ops);
}

void wf_mgr_fork_leave(struct wf_conn_mgr *mgr)
{
    wf_fork_leave(&mgr->fork_item);
}
