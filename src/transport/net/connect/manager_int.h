/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the connection manager share.
 *
 * The manager's lock guards all of the manager's state. The manager's thread holds the lock while
 * it works. It releases the lock to sleep, and to deliver an event. Other threads may add watches,
 * and may mark watches as dead. Only the manager's thread frees dead watches. It does so at the end
 * of a round, because the round's epoll events may still point to dead watches. So while the lock
 * is released for an event, lists only grow. Callers of the functions below hold the lock; only
 * wf_mgr_wake, wf_mgr_recv and wf_mgr_send do not need it. */
#ifndef WF_TRANSPORT_NET_CONNECT_MANAGER_INT_H
#define WF_TRANSPORT_NET_CONNECT_MANAGER_INT_H

#include <pthread.h>

#include "base/fork.h"
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
    struct wf_list pendings, dials, lingers WF_GUARDED_BY(lock);
    /* Dead watches to free, linked by next_dead. */
    struct wf_mgr_watch *dead WF_GUARDED_BY(lock);
    unsigned npending WF_GUARDED_BY(lock);  /* not counting dead ones */
    uint64_t last_dial WF_GUARDED_BY(lock); /* number of the latest dial */
    uint64_t next_ns WF_GUARDED_BY(lock);   /* no deadline is earlier */
    uint64_t rate_ns WF_GUARDED_BY(lock);   /* the rate limit of accept.c */
    uint64_t stop_ns WF_GUARDED_BY(lock);   /* when closing ends at the latest */
    /* Accepting is paused until this time; 0 if it is not paused. */
    uint64_t accept_ns WF_GUARDED_BY(lock);
    struct wf_mgr_log_limit log_limit[WF_MGR_TOPICS] WF_GUARDED_BY(lock);
    uint8_t key[WF_NET_KEY] WF_GUARDED_BY(lock);
    bool has_key, key_is_new, stop WF_GUARDED_BY(lock);
    /* True while an event is being delivered to endpoint [event_ep] of generation
     * [event_ep_gen]. */
    bool in_event WF_GUARDED_BY(lock);
    uint16_t event_ep WF_GUARDED_BY(lock);
    uint32_t event_ep_gen WF_GUARDED_BY(lock);
};

/* ---- manager.c ---- */

void wf_mgr_wake(struct wf_conn_mgr *mgr);
void wf_mgr_deadline_set(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint64_t at_ns);
/* Returns 0, or -1 with errno. */
int wf_mgr_watch_add(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
void wf_mgr_watch_events(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
/* Remove the watch's socket from the epoll set, and return the socket, or -1 if there is none. The
 * caller then owns the socket. */
int wf_mgr_watch_release(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Close the socket, and mark the watch as dead. The manager's thread frees the watch later. */
void wf_mgr_watch_end(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);

/* wf_mgr_event_begin releases the lock, so that an event of endpoint [ep] can be delivered.
 * wf_mgr_event_end takes the lock again. Between the two calls, wf_conn_mgr_forget for the same
 * endpoint waits. */
void wf_mgr_event_begin(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);
void wf_mgr_event_end(struct wf_conn_mgr *mgr);

/* May a line of [topic] be logged now? If it may, [suffix] is set to what the caller appends to the
 * line: how many lines of this topic were suppressed since the previous one. */
#define WF_MGR_SUFFIX 32
bool wf_mgr_may_log(struct wf_conn_mgr *mgr, enum wf_mgr_topic topic, char suffix[WF_MGR_SUFFIX]);

/* Receive from [fd] until *have, the number of bytes received so far, is [want]. Returns 1 if
 * [want] bytes have arrived, 0 if the rest has not arrived yet, or -1 if the connection failed or
 * ended. */
int wf_mgr_recv(int fd, void *buf, size_t *have, size_t want);
/* Returns false if the socket did not accept the whole message. The caller then has to give up the
 * connection, since the rest of the message is not sent later. */
bool wf_mgr_send(int fd, const void *message, size_t len);

/* Allocate a connection whose other end has authenticated. The caller sets fd, peer, contact and
 * dial. Returns NULL if there is no memory. */
struct wf_net_conn *wf_mgr_conn_new(struct wf_conn_mgr *mgr, const struct wf_net_hello *hello,
                                    const struct wf_net_challenge *challenge, bool dialled);
/* Hand [conn] over to endpoint [ep] of generation [ep_gen]. If the manager's owner does not take
 * [conn], close and free it. The lock is released during the call to the owner. */
void wf_mgr_conn_deliver(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                         struct wf_net_conn *conn);

/* ---- linger.c ---- */

void wf_mgr_linger_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Called while the manager closes. Ends each lingering socket whose data the peer's kernel has
 * acknowledged, and all lingering sockets once the time for closing is over. */
void wf_mgr_lingers_closing(struct wf_conn_mgr *mgr);

/* ---- mgr_fork.c ---- */

/* Begin and end the manager's part in forks of this process. The caller does not hold the lock. */
void wf_mgr_fork_join(struct wf_conn_mgr *mgr);
void wf_mgr_fork_leave(struct wf_conn_mgr *mgr);

/* ---- accept.c ---- */

void wf_mgr_listen_event(struct wf_conn_mgr *mgr, const struct wf_mgr_watch *w);
/* If accepting was paused and the pause is over, accept again. If the pause goes on, lower
 * mgr->next_ns to the end of the pause. */
void wf_mgr_listen_timer(struct wf_conn_mgr *mgr, uint64_t now);
void wf_mgr_pending_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
void wf_mgr_pending_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* The job's key was set: send CHALLENGE to the pending connections that wait for the key. */
void wf_mgr_pendings_resume(struct wf_conn_mgr *mgr);
void wf_mgr_pendings_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* ---- dial.c ---- */

void wf_mgr_dial_free(struct wf_mgr_watch *w); /* frees the dial's result, not [w] */
void wf_mgr_dial_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
void wf_mgr_dial_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* A peer's connect-back, a request to be dialled, has come. Dial the peer, unless a dial for that
 * channel is in progress. */
void wf_mgr_dial_back(struct wf_conn_mgr *mgr, const struct wf_dial *want);
/* The connection that begins with [hello] has come. If a connect-back of this side asked for this
 * connection, end the connect-back. */
void wf_mgr_connect_back_end(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                             const struct wf_net_hello *hello);
/* Is a dial to the sender of [hello] in progress that waits because this host lacks resources? */
bool wf_mgr_dial_lacks_resources(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                                 const struct wf_net_hello *hello);
void wf_mgr_dials_resume(struct wf_conn_mgr *mgr); /* the job's key was set */
void wf_mgr_dials_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

#endif
