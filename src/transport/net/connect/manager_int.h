/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the connection manager share.
 *
 *   manager.c      the thread, events, lingering, opening and closing
 *   accept.c  who comes: accepting, limits, the accepting side of the handshake
 *   dial.c      who is called: attempts, giving up, the calling side of the handshake
 *
 * One lock guards all; the thread holds it while it works and gives it up to sleep and to
 * run an event. Other threads add objects and mark them as dead; the thread alone frees
 * them, after the round whose epoll events may name them: while the lock is given up for an
 * event, lists only grow. Everything here but hang_up, take and say is for who holds it. */
#ifndef WF_TRANSPORT_NET_CONNECT_MANAGER_INT_H
#define WF_TRANSPORT_NET_CONNECT_MANAGER_INT_H

#include <pthread.h>

#include "transport/net/connect/manager.h"
#include "transport/net/connect/socket.h"

#define WF_MGR_MS ((uint64_t)1000000) /* nanoseconds */
#define WF_MGR_SECOND ((uint64_t)1000000000)
#define WF_MGR_NEVER UINT64_MAX

enum wf_mgr_kind { WF_MGR_KICK, WF_MGR_LISTEN, WF_MGR_PENDING, WF_MGR_DIAL, WF_MGR_LINGER };

/* The first member of everything that is in the epoll set. */
struct wf_mgr_watch {
    enum wf_mgr_kind kind;
    int fd; /* -1: none (yet, or any more) */
    bool dead;
    struct wf_list item;
    struct wf_mgr_watch *grave; /* the next of the dead */
    uint64_t deadline_ns;
};

/* Lines of one topic are logged at most once per second. */
enum wf_mgr_topic {
    WF_MGR_ON_KEY,
    WF_MGR_ON_VERSION,
    WF_MGR_ON_FLAGS,
    WF_MGR_ON_NOISE,
    WF_MGR_ON_FILES,
    WF_MGR_TOPICS
};

struct wf_mgr_quiet {
    uint64_t next_ns;
    unsigned muted;
};

struct wf_conn_mgr {
    struct wf_conn_mgr_params params;
    struct wf_process_id self;
    struct wf_contact contact;
    struct wf_listeners net; /* the thread's, once it runs */
    uint32_t flags;          /* of the greetings, from WEFT_TCP_ENCRYPT */
    uint64_t peer_ns, handshake_ns;
    struct wf_list fork_item;
    pthread_t thread;
    int epoll_fd;
    int passing_fd; /* of a connection that is being handed over; -1 none */
    struct wf_mgr_watch kick, listen[WF_CONTACT_IPS];

    pthread_mutex_t lock;
    pthread_cond_t idle; /* an event is over */
    struct wf_list pendings, dials, lingers WF_GUARDED_BY(lock);
    struct wf_mgr_watch *graves WF_GUARDED_BY(lock); /* dead, to be freed */
    unsigned npending WF_GUARDED_BY(lock);
    uint64_t last_dial WF_GUARDED_BY(lock);
    uint64_t next_ns WF_GUARDED_BY(lock); /* no deadline is before it */
    uint64_t rate_ns WF_GUARDED_BY(lock); /* when the pending connections so far are paid */
    uint64_t stop_ns WF_GUARDED_BY(lock); /* no longer than that when it closes */
    uint64_t deaf_ns WF_GUARDED_BY(lock); /* accepting again then; 0: accepting */
    struct wf_mgr_quiet quiet[WF_MGR_TOPICS] WF_GUARDED_BY(lock);
    uint8_t key[WF_NET_KEY] WF_GUARDED_BY(lock);
    bool has_key, key_is_new, stop WF_GUARDED_BY(lock);
    bool busy WF_GUARDED_BY(lock); /* an event of this endpoint is under way: */
    uint16_t busy_ep WF_GUARDED_BY(lock);
    uint32_t busy_gen WF_GUARDED_BY(lock);
};

/* ---- manager.c ---- */

void wf_mgr_deadline_set(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint64_t at_ns);
int wf_mgr_watch_add(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
void wf_mgr_watch_events(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w, uint32_t events);
/* The socket (-1: none) is the caller's from here on. */
int wf_mgr_watch_release(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Hang up, and let the thread free it. */
void wf_mgr_watch_end(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
void wf_mgr_close(int fd);

/* An event of this endpoint runs between the two, without the lock; forget waits until
 * it is over. */
void wf_mgr_event_begin(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);
void wf_mgr_event_end(struct wf_conn_mgr *mgr);

/* May a line of [topic] be logged now? [more], for its end, says how many were not since the
 * last one. */
#define WF_MGR_MORE 32
bool wf_mgr_may_log(struct wf_conn_mgr *mgr, enum wf_mgr_topic topic, char more[WF_MGR_MORE]);

/* Read until *have is [want]. 1: it is; 0: more must come; -1: no more will. */
int wf_mgr_recv(int fd, void *buf, size_t *have, size_t want);
/* False: it did not go out whole; then it never will. */
bool wf_mgr_send(int fd, const void *message, size_t len);

/* A connection whose other end proved itself, but for its socket and that end. */
struct wf_net_conn *wf_mgr_conn_new(struct wf_conn_mgr *mgr, const struct wf_net_hello *hello,
                                    const struct wf_net_challenge *challenge, bool dialled);
/* The endpoint takes [conn] over, or it is hung up on. Gives the lock up meanwhile. */
void wf_mgr_conn_deliver(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                         struct wf_net_conn *conn);

/* ---- accept.c ---- */

void wf_mgr_listen_event(struct wf_conn_mgr *mgr, const struct wf_mgr_watch *w);
/* Accept again, if the pause is over; else door->next_ns knows. */
void wf_mgr_listen_timer(struct wf_conn_mgr *mgr, uint64_t now);
void wf_mgr_pending_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
void wf_mgr_pending_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* The key is here: who waited for it goes on. */
void wf_mgr_pendings_go_on(struct wf_conn_mgr *mgr);
void wf_mgr_pendings_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);

/* ---- dial.c ---- */

void wf_mgr_dial_free(struct wf_mgr_watch *w); /* what it has; reap frees the rest */
void wf_mgr_dial_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
void wf_mgr_dial_expired(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w);
/* Who knocked is to be called, unless that is under way. */
void wf_mgr_dial_back(struct wf_conn_mgr *mgr, const struct wf_dial *call);
/* The connection that a connect-back was for is here. */
void wf_mgr_connect_back_end(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                             const struct wf_net_hello *hello);
/* Is the connection that a connect-back is for being made, and this side lacks what that takes? */
bool wf_mgr_dial_lacks(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen,
                       const struct wf_net_hello *hello);
void wf_mgr_dials_go_on(struct wf_conn_mgr *mgr);
void wf_mgr_dials_forget(struct wf_conn_mgr *mgr, uint16_t ep, uint32_t ep_gen);
void wf_mgr_kick(struct wf_conn_mgr *mgr); /* any thread; manager.c */

#endif
