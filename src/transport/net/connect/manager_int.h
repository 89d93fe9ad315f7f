/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the connection manager share.
 *
 * One lock guards all of it. The thread holds the lock while it works, and releases it to sleep and
 * to deliver an event. Other threads add watches and mark them as dead. The thread alone frees dead
 * watches, at the end of a round, because the round's epoll events may still point to them. So
 * while the lock is released for an event, lists only grow. The caller of each function here holds
 * the lock, except for wf_mgr_wake, wf_mgr_recv and wf_mgr_send, which need none. */
#ifndef WF_TRANSPORT_NET_CONNECT_MANAGER_INT_H
#define WF_TRANSPORT_NET_CONNECT_MANAGER_INT_H

#include <pthread.h>

#include "base/fork.h"
#include "base/lock.h"
#include "transport/net/connect/manager.h"
#include "transport/net/connect/socket.h"

#define WF_MGR_MS ((uint64_t)1000000) /* nanoseconds */
#define WF_MGR_SECOND ((uint64_t)1000000000)
#define WF_MGR_NEVER UINT64_MAX

enum wf_mgr_kind { WF_MGR_WAKE, WF_MGR_LISTEN, WF_MGR_PENDING, WF_MGR_DIAL, WF_MGR_LINGER };

/* The first member of everything that is in the epoll set. */
struct wf_mgr_watch {
    enum wf_mgr_kind kind;
    int fd; /* -1: none */
    bool dead;
    struct wf_list item;
    struct wf_mgr_watch *next_dead;
    uint64_t deadline_ns;
};

/* At most one line of a topic is logged per second. */
enum wf_mgr_topic {
    WF_MGR_LOG_KEY,
    WF_MGR_LOG_VERSION,
    WF_MGR_LOG_FLAGS,
    WF_MGR_LOG_PROTOCOL, /* connections that do not follow the handshake, and evicted ones */
    WF_MGR_LOG_RESOURCES,
    WF_MGR_TOPICS
};

struct wf_mgr_log_limit {
    uint64_t next_ns;
    unsigned suppressed;
};

WF_LOCK_CLASS(mgr_lock_class); /* struct wf_conn_mgr.lock */

/* The caller holds the connection manager's lock. */
#define UNDER_LOCK WF_REQUIRES(mgr_lock_class)

struct wf_conn_mgr {
    struct wf_conn_mgr_params params;
    struct wf_process_id self;
    struct wf_contact contact;
    struct wf_listeners listeners; /* the thread's, once it runs */
    uint32_t flags;                /* of this side's greetings, from WEFT_TCP_ENCRYPT */
    uint64_t peer_ns;              /* WEFT_PEER_TIMEOUT */
    uint64_t handshake_ns;         /* WEFT_CONNECT_TIMEOUT */
    struct wf_fork_item fork_item;
    pthread_t thread;
    int epoll_fd;
    int passing_fd; /* of the connection that [connected] is being called for; -1: none */
    struct wf_mgr_watch wake, listen[WF_CONTACT_IPS];

    pthread_mutex_t lock;
    pthread_cond_t event_ended;
    struct wf_list pendings, dials, lingers WF_UNDER(mgr_lock_class);
    struct wf_mgr_watch *dead WF_UNDER(mgr_lock_class); /* to be freed, linked by next_dead */
    unsigned npending WF_UNDER(mgr_lock_class);         /* without dead ones */
    uint64_t last_dial WF_UNDER(mgr_lock_class);        /* number of the latest dial */
    uint64_t next_ns WF_UNDER(mgr_lock_class);          /* no deadline is earlier */
    uint64_t rate_ns WF_UNDER(mgr_lock_class);          /* rate limit, see accept.c */
    uint64_t stop_ns WF_UNDER(mgr_lock_class);          /* closing ends at the latest then */
    uint64_t accept_ns WF_UNDER(mgr_lock_class); /* accepting is paused until then; 0: it is not */
    struct wf_mgr_log_limit log_limit[WF_MGR_TOPICS] WF_UNDER(mgr_lock_class);
    uint8_t key[WF_NET_KEY] WF_UNDER(mgr_lock_class);
    bool has_key, key_is_new, stop WF_UNDER(mgr_lock_class);
    bool in_event WF_UNDER(mgr_lock_class); /* an event of this endpoint is being delivered: */
    uint16_t event_ep WF_UNDER(mgr_lock_class);
    uint32_t event_ep_gen WF_UNDER(mgr_lock_class);
};

static inline WF_ACQUIRES(mgr_lock_class) void mgr_lock(struct wf_conn_mgr *mgr)
{
    pthread_mutex_lock(&mgr->lock);
}

static inline WF_RELEASES(mgr_lock_class) void mgr_unlock(struct wf_conn_mgr *mgr)
{
    pthread_mutex_unlock(&mgr->lock);
}

/* ---- manager.c ---- */

void wf_mgr_wake(struct wf_conn_mgr *mgr);
UNDER_LOCK void wf_mgr_deadline_set(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w,
                                    uint64_t at_ns);
/* 0, or -1 with errno. */
int wf_mgr_watch_add(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
void wf_mgr_watch_events(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
/* Stop watching. The socket (-1: none) is the caller's from here on. */
int wf_mgr_watch_release(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Close the socket, and have the thread free the watch. */
UNDER_LOCK void wf_mgr_watch_end(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);

/* Release the lock to deliver an event of this endpoint, and take it again. Meanwhile
 * wf_conn_mgr_forget of that endpoint waits. */
WF_RELEASES(mgr_lock_class)
void wf_mgr_event_begin(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);
WF_ACQUIRES(mgr_lock_class) void wf_mgr_event_end(struct wf_conn_mgr *mgr);

/* May a line of [topic] be logged now? If so, [suffix] is for the line's end: it says how many
 * lines were suppressed since the last one. */
#define WF_MGR_SUFFIX 32
bool wf_mgr_may_log(struct wf_conn_mgr *mgr, enum wf_mgr_topic topic, char suffix[WF_MGR_SUFFIX]);

/* Read until *have is [want]. 1: it is; 0: the rest has not arrived; -1: it will not. */
int wf_mgr_recv(int fd, void *buf, size_t *have, size_t want);
/* False: the message was not sent whole, and cannot be completed. */
bool wf_mgr_send(int fd, const void *message, size_t len);

/* A connection whose other end is authenticated; the caller sets fd, peer, contact and dial. */
struct wf_net_conn *wf_mgr_conn_new(struct wf_conn_mgr *mgr, const struct wf_net_hello *hello,
                                    const struct wf_net_challenge *challenge, bool dialled);
/* Hand [conn] over to the endpoint; if the owner does not take it, close and free it. Releases the
 * lock meanwhile. */
UNDER_LOCK void wf_mgr_conn_deliver(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                    struct wf_net_conn *conn);

/* ---- linger.c ---- */

UNDER_LOCK void wf_mgr_linger_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* While the manager closes: end those that are finished, or all if it is late. */
UNDER_LOCK void wf_mgr_lingers_closing(struct wf_conn_mgr *mgr);

/* ---- mgr_fork.c ---- */

/* The manager takes part in forks between the two. Without the lock. */
void wf_mgr_fork_join(struct wf_conn_mgr *mgr);
void wf_mgr_fork_leave(struct wf_conn_mgr *mgr);

/* ---- accept.c ---- */

UNDER_LOCK void wf_mgr_listen_event(struct wf_conn_mgr *mgr, const struct wf_mgr_watch *w);
/* Accept again if the pause is over; else mgr->next_ns takes its end into account. */
UNDER_LOCK void wf_mgr_listen_timer(struct wf_conn_mgr *mgr, uint64_t now);
UNDER_LOCK void wf_mgr_pending_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
UNDER_LOCK void wf_mgr_pending_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* The key was set: challenge those that wait for it. */
UNDER_LOCK void wf_mgr_pendings_resume(struct wf_conn_mgr *mgr);
UNDER_LOCK void wf_mgr_pendings_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* ---- dial.c ---- */

void wf_mgr_dial_free(struct wf_mgr_watch *w); /* what it owns, but not the watch */
UNDER_LOCK void wf_mgr_dial_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
UNDER_LOCK void wf_mgr_dial_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Dial the sender of a connect-back, unless a dial of that channel is in progress. */
UNDER_LOCK void wf_mgr_dial_back(struct wf_conn_mgr *mgr, const struct wf_dial *want);
/* The connection of [hello] has come: end the connect-back that asked for it, if any. */
UNDER_LOCK void wf_mgr_connect_back_end(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                        const struct wf_net_hello *hello);
/* Does this host lack resources to dial the sender of [hello], and is that dial in progress? */
bool wf_mgr_dial_lacks_resources(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                 const struct wf_net_hello *hello);
UNDER_LOCK void wf_mgr_dials_resume(struct wf_conn_mgr *mgr); /* the key was set */
UNDER_LOCK void wf_mgr_dials_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

#endif
