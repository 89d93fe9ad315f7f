/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the connection manager share.
 *
 * The manager's lock guards all of the manager's state. The manager's thread holds the lock while
 * it works. It releases the lock to sleep, and to deliver an event. Other threads may add watches,
 * and may mark watches as dead. Only the manager's thread frees dead watches. It does so at the end
 * of a round, because the round's epoll events may still point to dead watches. So while the lock
 * is released for an event, lists only grow. Callers of the functions below hold the lock, except
 * where a comment states otherwise. The functions wf_mgr_wake, wf_mgr_recv and wf_mgr_send do not
 * need the lock. */
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

/* The first member of every object that the epoll set contains. */
struct wf_mgr_watch {
    enum wf_mgr_kind kind;
    int fd; /* -1 if none */
    bool dead;
    struct wf_list item;
    struct wf_mgr_watch *next_dead;
    uint64_t deadline_ns;
};

/* At most one line of each topic is logged per second. */
enum wf_mgr_topic {
    WF_MGR_LOG_KEY,
    WF_MGR_LOG_VERSION,
    WF_MGR_LOG_FLAGS,
    /* Connections that do not follow the handshake, and pending connections that were evicted. */
    WF_MGR_LOG_PROTOCOL,
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
    struct wf_listeners listeners; /* used only by the thread, once the thread runs */
    /* The flags of the handshake messages that this side sends; set from WEFT_TCP_ENCRYPT. */
    uint32_t flags;
    uint64_t peer_ns;      /* WEFT_PEER_TIMEOUT */
    uint64_t handshake_ns; /* WEFT_CONNECT_TIMEOUT */
    struct wf_fork_item fork_item;
    pthread_t thread;
    int epoll_fd;
    /* The socket of the connection for which [connected] is being called, or -1. */
    int passing_fd;
    struct wf_mgr_watch wake, listen[WF_CONTACT_IPS];

    pthread_mutex_t lock;
    pthread_cond_t event_ended;
    struct wf_list pendings, dials, lingers WF_UNDER(mgr_lock_class);
    /* Dead watches to free, linked by next_dead. */
    struct wf_mgr_watch *dead WF_UNDER(mgr_lock_class);
    unsigned npending WF_UNDER(mgr_lock_class);  /* not counting dead ones */
    uint64_t last_dial WF_UNDER(mgr_lock_class); /* number of the latest dial */
    uint64_t next_ns WF_UNDER(mgr_lock_class);   /* no deadline is earlier */
    uint64_t rate_ns WF_UNDER(mgr_lock_class);   /* the rate limit of accept.c */
    uint64_t stop_ns WF_UNDER(mgr_lock_class);   /* when closing ends at the latest */
    /* Accepting is paused until this time; 0 if it is not paused. */
    uint64_t accept_ns WF_UNDER(mgr_lock_class);
    struct wf_mgr_log_limit log_limit[WF_MGR_TOPICS] WF_UNDER(mgr_lock_class);
    uint8_t key[WF_NET_KEY] WF_UNDER(mgr_lock_class);
    bool has_key, key_is_new, stop WF_UNDER(mgr_lock_class);
    /* True while an event is being delivered to endpoint [event_ep] of generation
     * [event_ep_gen]. */
    bool in_event WF_UNDER(mgr_lock_class);
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
/* Returns 0, or -1 with errno. */
int wf_mgr_watch_add(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
void wf_mgr_watch_events(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
/* Remove the watch's socket from the epoll set, and return the socket, or -1 if there is none. The
 * caller then owns the socket. */
int wf_mgr_watch_release(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Close the socket, and mark the watch as dead. The manager's thread frees the watch later. */
UNDER_LOCK void wf_mgr_watch_end(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);

/* wf_mgr_event_begin releases the lock, so that an event of endpoint [ep] can be delivered.
 * wf_mgr_event_end takes the lock again. Between the two calls, wf_conn_mgr_forget for the same
 * endpoint waits. */
WF_RELEASES(mgr_lock_class)
void wf_mgr_event_begin(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);
WF_ACQUIRES(mgr_lock_class) void wf_mgr_event_end(struct wf_conn_mgr *mgr);

/* May a line of [topic] be logged now? If it may, [suffix] is set to what the caller appends to the
 * line: how many lines of this topic were suppressed since the last logged line. */
#define WF_MGR_SUFFIX 32
bool wf_mgr_may_log(struct wf_conn_mgr *mgr, enum wf_mgr_topic topic, char suffix[WF_MGR_SUFFIX]);

/* Receive from [fd] until [want] bytes have arrived. *have counts the bytes received so far.
 * Returns 1 if [want] bytes have arrived, 0 if the rest has not arrived yet, or -1 if the
 * connection failed or ended. */
int wf_mgr_recv(int fd, void *buf, size_t *have, size_t want);
/* Returns false if the socket did not accept the whole message. The caller then has to give up the
 * connection, since the rest of the message is not sent later. */
bool wf_mgr_send(int fd, const void *message, size_t len);

/* Allocate a connection whose other end has authenticated. The caller sets fd, peer, contact and
 * dial. Returns NULL if there is no memory. */
struct wf_net_conn *wf_mgr_conn_new(struct wf_conn_mgr *mgr, const struct wf_net_hello *hello,
                                    const struct wf_net_challenge *challenge, bool dialled);
/* Hand [conn] over to endpoint [ep] of generation [ep_gen]. If the manager's owner does not take
 * [conn], close and free [conn]. The lock is released during the call to the owner. */
UNDER_LOCK void wf_mgr_conn_deliver(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                    struct wf_net_conn *conn);

/* ---- linger.c ---- */

UNDER_LOCK void wf_mgr_linger_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Called while the manager closes. Ends each lingering socket whose data the peer's kernel has
 * acknowledged, and all lingering sockets once the time for closing is over. */
UNDER_LOCK void wf_mgr_lingers_closing(struct wf_conn_mgr *mgr);

/* ---- mgr_fork.c ---- */

/* Register and deregister the manager's functions that run at each fork of this process
 * (mgr_fork.c). The caller does not hold the lock. */
void wf_mgr_fork_join(struct wf_conn_mgr *mgr);
void wf_mgr_fork_leave(struct wf_conn_mgr *mgr);

/* ---- accept.c ---- */

UNDER_LOCK void wf_mgr_listen_event(struct wf_conn_mgr *mgr, const struct wf_mgr_watch *w);
/* If accepting was paused and the pause is over, accept again. If the pause goes on, lower
 * mgr->next_ns to the end of the pause. */
UNDER_LOCK void wf_mgr_listen_timer(struct wf_conn_mgr *mgr, uint64_t now);
UNDER_LOCK void wf_mgr_pending_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
UNDER_LOCK void wf_mgr_pending_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Called when the job's key was set. Sends CHALLENGE to the pending connections that wait for the
 * key. */
UNDER_LOCK void wf_mgr_pendings_resume(struct wf_conn_mgr *mgr);
UNDER_LOCK void wf_mgr_pendings_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* ---- dial.c ---- */

void wf_mgr_dial_free(struct wf_mgr_watch *w); /* frees the dial's result, not [w] */
UNDER_LOCK void wf_mgr_dial_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
UNDER_LOCK void wf_mgr_dial_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Called when a peer's connect-back, a request to be dialled, has come. Dials the peer, unless a
 * dial for that channel is in progress. */
UNDER_LOCK void wf_mgr_dial_back(struct wf_conn_mgr *mgr, const struct wf_dial *want);
/* Called when the connection that begins with [hello] has come. If a connect-back of this side
 * asked for this connection, ends the connect-back. */
UNDER_LOCK void wf_mgr_connect_back_end(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                        const struct wf_net_hello *hello);
/* Is a dial to the sender of [hello] waiting because this host lacks resources? */
bool wf_mgr_dial_lacks_resources(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                 const struct wf_net_hello *hello);
UNDER_LOCK void wf_mgr_dials_resume(struct wf_conn_mgr *mgr); /* the job's key was set */
UNDER_LOCK void wf_mgr_dials_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

#endif
