/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the door share.
 *
 *   door.c      the thread, events, lingering, opening and closing
 *   stranger.c  who comes: accepting, limits, the accepting side of the handshake
 *   call.c      who is called: attempts, giving up, the calling side of the handshake
 *
 * One lock guards all; the thread holds it while it works and gives it up to sleep and to
 * run an event. Other threads add objects and mark them as dead; the thread alone frees
 * them, after the round whose epoll events may name them: while the lock is given up for an
 * event, lists only grow. Everything here but hang_up, take and say is for who holds it. */
#ifndef WF_TRANSPORT_TCP_DOOR_INT_H
#define WF_TRANSPORT_TCP_DOOR_INT_H

#include <pthread.h>

#include "base/fork.h"
#include "transport/tcp/door.h"
#include "transport/tcp/net.h"

#define WF_DOOR_MS ((uint64_t)1000000) /* nanoseconds */
#define WF_DOOR_SECOND ((uint64_t)1000000000)
#define WF_DOOR_NEVER UINT64_MAX

enum wf_door_kind { WF_DOOR_KICK, WF_DOOR_LISTEN, WF_DOOR_STRANGER, WF_DOOR_CALL, WF_DOOR_LINGER };

/* The first member of everything that is in the epoll set. */
struct wf_door_watch {
    enum wf_door_kind kind;
    int fd; /* -1: none (yet, or any more) */
    bool dead;
    struct wf_list item;
    struct wf_door_watch *grave; /* the next of the dead */
    uint64_t deadline_ns;
};

/* Lines of one topic are logged at most once per second. */
enum wf_door_topic {
    WF_DOOR_ON_KEY,
    WF_DOOR_ON_VERSION,
    WF_DOOR_ON_FLAGS,
    WF_DOOR_ON_NOISE,
    WF_DOOR_ON_FILES,
    WF_DOOR_TOPICS
};

struct wf_door_quiet {
    uint64_t next_ns;
    unsigned muted;
};

struct wf_tcp_door {
    struct wf_tcp_door_params params;
    struct wf_process_id self;
    struct wf_contact contact;
    struct wf_tcp_net net; /* the thread's, once it runs */
    uint32_t flags;        /* of the greetings, from WEFT_TCP_ENCRYPT */
    uint64_t peer_ns, handshake_ns;
    struct wf_fork_item fork_item;
    pthread_t thread;
    int epoll_fd;
    int passing_fd; /* of a connection that is being handed over; -1 none */
    struct wf_door_watch kick, listen[WF_CONTACT_IPS];

    pthread_mutex_t lock;
    pthread_cond_t idle; /* an event is over */
    struct wf_list strangers, calls, lingers WF_GUARDED_BY(lock);
    struct wf_door_watch *graves WF_GUARDED_BY(lock); /* dead, to be freed */
    unsigned nstrangers WF_GUARDED_BY(lock);
    uint64_t last_call WF_GUARDED_BY(lock);
    uint64_t next_ns WF_GUARDED_BY(lock); /* no deadline is before it */
    uint64_t rate_ns WF_GUARDED_BY(lock); /* when the strangers so far are paid */
    uint64_t stop_ns WF_GUARDED_BY(lock); /* no longer than that when it closes */
    uint64_t deaf_ns WF_GUARDED_BY(lock); /* accepting again then; 0: accepting */
    struct wf_door_quiet quiet[WF_DOOR_TOPICS] WF_GUARDED_BY(lock);
    uint8_t key[WF_TCP_KEY] WF_GUARDED_BY(lock);
    bool has_key, key_is_new, stop WF_GUARDED_BY(lock);
    bool busy WF_GUARDED_BY(lock); /* an event of this endpoint is under way: */
    uint16_t busy_ep WF_GUARDED_BY(lock);
    uint32_t busy_gen WF_GUARDED_BY(lock);
};

/* ---- door.c ---- */

void wf_door_deadline_set(struct wf_tcp_door *door, struct wf_door_watch *w, uint64_t at_ns);
int wf_door_watch_add(struct wf_tcp_door *door, struct wf_door_watch *w, uint32_t events);
void wf_door_watch_events(struct wf_tcp_door *door, struct wf_door_watch *w, uint32_t events);
/* The socket (-1: none) is the caller's from here on. */
int wf_door_watch_release(struct wf_tcp_door *door, struct wf_door_watch *w);
/* Hang up, and let the thread free it. */
void wf_door_watch_end(struct wf_tcp_door *door, struct wf_door_watch *w);
void wf_door_hang_up(int fd);

/* An event of this endpoint runs between the two, without the lock; forget waits until
 * it is over. */
void wf_door_event_begin(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen);
void wf_door_event_end(struct wf_tcp_door *door);

/* May a line of [topic] be logged now? [more], for its end, says how many were not since the
 * last one. */
#define WF_DOOR_MORE 32
bool wf_door_is_loud(struct wf_tcp_door *door, enum wf_door_topic topic, char more[WF_DOOR_MORE]);

/* Read until *have is [want]. 1: it is; 0: more must come; -1: no more will. */
int wf_door_take(int fd, void *buf, size_t *have, size_t want);
/* False: it did not go out whole; then it never will. */
bool wf_door_say(int fd, const void *message, size_t len);

/* A connection whose other end proved itself, but for its socket and that end. */
struct wf_tcp_conn *wf_door_conn_new(struct wf_tcp_door *door, const struct wf_tcp_hello *hello,
                                     const struct wf_tcp_challenge *challenge, bool dialled);
/* The endpoint takes [conn] over, or it is hung up on. Gives the lock up meanwhile. */
void wf_door_conn_deliver(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen,
                          struct wf_tcp_conn *conn);

/* ---- stranger.c ---- */

void wf_door_listen_event(struct wf_tcp_door *door, const struct wf_door_watch *w);
/* Accept again, if the pause is over; else door->next_ns knows. */
void wf_door_listen_timer(struct wf_tcp_door *door, uint64_t now);
void wf_door_stranger_event(struct wf_tcp_door *door, struct wf_door_watch *w);
void wf_door_stranger_expired(struct wf_tcp_door *door, struct wf_door_watch *w);
/* The key is here: who waited for it goes on. */
void wf_door_strangers_go_on(struct wf_tcp_door *door);
void wf_door_strangers_forget(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen);

/* ---- call.c ---- */

void wf_door_call_free(struct wf_door_watch *w); /* what it has; reap frees the rest */
void wf_door_call_event(struct wf_tcp_door *door, struct wf_door_watch *w);
void wf_door_call_expired(struct wf_tcp_door *door, struct wf_door_watch *w);
/* Who knocked is to be called, unless that is under way. */
void wf_door_call_back(struct wf_tcp_door *door, const struct wf_tcp_call *call);
/* The connection that a knock was for is here. */
void wf_door_knock_end(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen,
                       const struct wf_tcp_hello *hello);
/* Is the connection that a knock is for being made, and this side lacks what that takes? */
bool wf_door_call_lacks(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen,
                        const struct wf_tcp_hello *hello);
void wf_door_calls_go_on(struct wf_tcp_door *door);
void wf_door_calls_forget(struct wf_tcp_door *door, uint16_t ep, uint32_t ep_gen);
void wf_door_kick(struct wf_tcp_door *door); /* any thread; door.c */

#endif
