/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two files of weft/node.h share: rv.c opens, registers, and watches the service;
 * rv_write.c has peers, writes and events.
 *
 * Lock: weft_node.lock guards the rings and the list of peers. The thread that waits for the
 * service takes it to hand over an answer, and to report the end. Under it, the locks of the
 * registrations are taken. */
#ifndef WF_TRANSPORT_NODE_RV_H
#define WF_TRANSPORT_NODE_RV_H

#include <pthread.h>
#include <weft/node.h>

#include "base/fork.h"
#include "base/lock.h"
#include "base/util.h"
#include "transport/node/attach.h"
#include "transport/node/rv_ring.h"

WF_LOCK_CLASS(rv_lock_class); /* struct weft_node.lock */

struct via_nic;
struct wf_rv_cache;

/* A write that is under way, or the question whether a peer's service is there. */
struct rv_write {
    struct weft_node_peer *peer;
    uint64_t id;
    uint32_t len, count;
    uint32_t connection;
    enum wf_node_move_kind kind;
    /* the use of the registration */
    uint64_t mr;
    const void *addr;
    unsigned access;
};

struct weft_node {
    uint64_t fork_gen;
    struct wf_node_link link; /* the thread's; [index] and [share] are constant */
    struct wf_process_id self;
    struct wf_node_parameters parameters;
    struct via_nic *nic;
    struct wf_rv_cache *cache;
    uint64_t cache_bytes;
    pthread_t thread;
    int stop_fd;         /* the thread is to end, */
    _Atomic bool broken; /* or the connection, since the service wrote a line that is no event */
    _Atomic int status;  /* not OK: the service has ended; stored when no NIC accesses anything */
    /* rv_link.c, rv_write.c: without events, there are no rings */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct wf_fork_item fork;
    struct wf_rv_ring ring;
    struct wf_list peers;
    struct rv_write writes[WF_NODE_MOVES];
    uint32_t cookie;
    enum weft_status ring_status; /* PENDING: RING, or UNRING, has no answer yet */
    struct weft_node_event_counts counts;
    bool received_first; /* the next look for an event begins with those of peers' writes */
};

/* rv_write.c has a table of these. */
enum rv_state { RV_NEW, RV_CONNECTING, RV_CONNECTED, RV_FAILED };

struct weft_node_peer {
    struct wf_list item; /* in node->peers */
    struct weft_node *node;
    struct wf_node_other service; /* the peer's */
    uint32_t incarnation;         /* of that service, by which the peer has its keys */
    uint32_t word;                /* its name; NO_WORD: not known yet */
    uint32_t cookie;              /* of NODE */
    enum weft_status status;      /* PENDING: NODE has no answer yet. FAILED: why */
    enum rv_state state;
    bool is_reaching; /* REACH is under way */
    uint32_t session;
    uint64_t until_ns; /* CONNECTING */
    uint32_t under_way;
    uint32_t turn; /* writes that were posted, or refused: they take connections in turn */
    struct weft_node_peer_counts counts;
};

static inline WF_ACQUIRES(rv_lock_class) void rv_lock(struct weft_node *node)
{
    pthread_mutex_lock(&node->lock);
}

static inline WF_RELEASES(rv_lock_class) void rv_unlock(struct weft_node *node)
{
    pthread_mutex_unlock(&node->lock);
}

static inline enum weft_status rv_status(const struct weft_node *node)
{
    return (enum weft_status)wf_load_acquire(&node->status);
}

/* ---- rv_link.c ---- */

/* The service has answered a packet: wf_node_link.answer. */
bool wf_rv_answer(struct wf_node_link *link, const struct wf_node_packet *packet, int *fds,
                  int nfds);
/* Open the rings, with room for [events] events, before the thread starts; none if [events] is 0.
 * Returns OK | ENOMEM | ELIMIT | ETIMEDOUT | as wf_node_hear */
enum weft_status wf_rv_rings_open(struct weft_node *node, uint32_t events);
/* Writes are under way that do not end, and their memory is to be deregistered: the service posts
 * nothing more of them, once it has answered. Waits for that, at most 500 ms. */
void wf_rv_rings_return(struct weft_node *node);
/* The service takes no more entries, and no NIC accesses anything: free the rings and the peers. */
void wf_rv_rings_close(struct weft_node *node);
/* The status has changed. */
void wf_rv_ended(struct weft_node *node);

/* ---- rv_write.c ---- */

/* Wait until no write is under way, at most WEFT_PEER_TIMEOUT. Returns false if one is. */
bool wf_rv_writes_await(struct weft_node *node);

/* ---- rv.c ---- */

/* The service does not keep to the rings: end the connection. The status changes later. */
void wf_rv_broken(struct weft_node *node);

/* Returns OK | EINVAL | EFORKED */
enum weft_status wf_rv_check(const struct weft_node *node);

#endif
