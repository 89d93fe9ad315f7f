/* SPDX-License-Identifier: BSD-3-Clause */
/* The service of a node: a process that accepts clients of one job and user, the contexts of that
 * job's processes. One thread, the desk, accepts them, checks them, gives them indexes, maps their
 * rings, and notices their deaths. Another one (work.h) carries their messages.
 *
 * States of a client, by the last thing that happened:
 *
 * | state   | event                              | action                              | next     |
 * | ------- | ---------------------------------- | ----------------------------------- | -------- |
 * | -       | connects; another user             | close                               | -        |
 * | -       | connects                           | limit of WF_NODE_UNPROVED_MS begins | KNOWN    |
 * | KNOWN   | HELLO (attach)                     | CHALLENGE                           | ASKED    |
 * | KNOWN   | HELLO (list)                       | ROWs, as fast as it reads, then BYE | LISTS    |
 * | KNOWN   | HELLO (stop)                       | BYE; the service ends               | STOPS    |
 * | KNOWN   | HELLO of another version           | REFUSED VERSION                     | -        |
 * | ASKED   | PROOF, its MAC is wrong            | close                               | -        |
 * | ASKED   | PROOF; a reason against it         | REFUSED                             | -        |
 * | ASKED   | PROOF                              | index, WELCOME                      | ATTACHED |
 * | KNOWN, ASKED, LISTS | the limit is over      | close                               | -        |
 * | ATTACHED | RING                             | map it, hand it to the mover        | ATTACHED |
 * | ATTACHED | UNRING                           | take it back, UNRING_OK, unmap      | ATTACHED |
 * | ATTACHED | NODE                             | ask the mover, NODE_OK              | ATTACHED |
 * | ATTACHED | SETTLED                          | its index is awaited no more        | ATTACHED |
 * | ATTACHED | SLAB                             | map it, hand it to the mover        | ATTACHED |
 * | ATTACHED | UNSLAB                           | take it back, unmap it              | ATTACHED |
 * | ATTACHED | BYE, or its socket or process ended | rings and slabs go, its index is free | -   |
 * | any     | any other packet, or no packet     | LOG, close                          | -        |
 *
 * Successors. A service whose clients live leaves them its estate (packet.h), with which one of
 * them starts its successor. Until WEFT_PEER_TIMEOUT is over, clients of the service before may
 * claim their indexes, in HELLO. The page of that service shows which processes these are: the
 * successor awaits them, gives their indexes to no other process, and notices their deaths. The
 * mover refuses messages for endpoints that they have not attached yet (enum node_heir). A client
 * that has claimed its index is awaited until SETTLED: it may attach an endpoint only when that
 * endpoint's owner polls.
 *
 * Objects are freed after the events of a round, since later events of the round may point to them.
 */
#ifndef WF_NODE_NODE_H
#define WF_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/log.h"
#include "base/util.h"
#include "node/name.h"
#include "node/packet.h"
#include "node/work.h"

#define WF_NODE_UNPROVED 64                /* clients that have not proved themselves, at a time */
#define WF_NODE_UNPROVED_MS UINT64_C(5000) /* how long each of them may take */
#define WF_NODE_IDLE_MS UINT64_C(1000)     /* the service ends so long after its last client */
#define WF_NODE_TURN 32                    /* packets read from one client in a turn */
#define WF_NODE_CLOSE_MS 2000u             /* for other services, when the service ends */

enum desk_client_state { NODE_KNOWN, NODE_ASKED, NODE_LISTS, NODE_STOPS, NODE_ATTACHED };

struct desk_client {
    struct wf_list item; /* in desk->unproved, ->attached or ->ended */
    enum desk_client_state state;
    bool ended; /* closed; freed at the end of the round */
    int sock;
    int pidfd; /* readable when the process has ended */
    pid_t pid;
    uint64_t since_ns; /* of connecting, then of attaching */
    uint32_t index;    /* ATTACHED */
    uint64_t serial;   /* of this client among all */
    bool fence;        /* it cannot use membarrier(2) */
    struct wf_list rings;
    unsigned nrings, nasks;
    struct wf_list slabs; /* slabs.c */
    bool has_table;       /* it has given its region table */
    unsigned nslabs;
    uint64_t slab_bytes;
    struct node_left *left; /* what it leaves when it ends; NULL: it has no window */
    uint32_t next_row; /* LISTS: the next index to look at; WF_NODE_NO_INDEX: the service's row */
    unsigned next_resource; /* LISTS: how many RESOURCEs it has got */
    /* KNOWN and ASKED: what the proof has to cover. */
    struct wf_node_packet hello, challenge;
};

/* A window in which a client that has ended may have registrations. Peers may write to its memory
 * until they know of its end, so these are kept until [until_ns]. */
struct node_left {
    struct wf_list item; /* in desk->share.left */
    uint32_t window;
    uint32_t next_handle; /* to look at */
    unsigned dropped;     /* registrations, until now */
    uint64_t until_ns;
};

/* share.c */
struct node_share {
    struct wf_hca_share of;
    int fd;                             /* the NIC's command descriptor; the network's */
    struct wf_hca_registrar *registrar; /* NULL: clients register nothing */
    uint8_t *rounds;                    /* windows that each index has had */
    struct wf_list left;                /* in the order of their ends */
};

/* A process that had an index of the service before. */
struct desk_heir {
    uint32_t index;
    pid_t pid;    /* 0: there is none */
    int pidfd;    /* or -1 */
    bool dropped; /* it is awaited no more */
};

struct node_desk {
    uint8_t key[WF_NODE_KEY];
    struct wf_node_parameters parameters;
    struct wf_node_scope place;
    char name[WF_NODE_SOCKET_ROOM];
    uint32_t incarnation, line;
    uint64_t born_ns;
    uint64_t claims_until_ns; /* until then clients of the service before may claim their indexes */
    uint64_t idle_since_ns;   /* 0: it has clients */
    uint64_t idle_limit_ns;   /* how long it stays without clients */
    int epoll_fd, listen_fd;
    int spare_fd;     /* closed to accept, and refuse, a client when no descriptor is left; or -1 */
    uint64_t drop_ns; /* when the next window of a client that has ended is to be looked at */
    uint64_t retry_ns; /* when to accept again; 0: now */
    bool paused;       /* connections are not looked at */
    bool stop;
    unsigned unproved_count, attached_count;
    struct wf_list unproved, attached, ended;
    struct desk_client **by_index; /* 1 << index_bits */
    struct desk_heir *heirs;       /* by index; NULL: there was no service before */
    unsigned heirs_awaited;
    uint64_t next_serial;
    unsigned jobs; /* that the mover has */
    struct node_work work;
    struct node_share share;
    uint32_t next_index; /* where the search for a free index begins */
    unsigned nslabs;     /* of all clients */
    uint64_t slab_bytes;
};

static inline uint32_t node_indexes(const struct node_desk *desk)
{
    return 1u << desk->parameters.index_bits;
}

/* desk.c */

/* Take over a listening socket. On failure the caller still owns it.
 * Returns  OK | ENOMEM | ESYSTEM (errno) */
enum weft_status wf_node_desk_init(struct node_desk *desk, int listen_fd);
/* Serve clients. Returns when the service is to end: all its sockets are closed then. */
void wf_node_desk_run(struct node_desk *desk);
void wf_node_desk_fini(struct node_desk *desk);
/* Accept a connection. Returns false if there is none, or if no descriptor is left. */
bool wf_node_accept(struct node_desk *desk);

/* attach.c */

/* Handle a packet of a client, or the fact that it sent none (as wf_node_packet_recv returns it).
 * Takes over its descriptors. */
void wf_node_client_packet(struct node_desk *desk, struct desk_client *client,
                           enum weft_status received, const struct wf_node_packet *packet,
                           const int *fds, int nfds);
/* Send the rows that [client] has still to get, as far as its socket has room. */
void wf_node_rows_send(struct node_desk *desk, struct desk_client *client);
/* Send REFUSED to a socket. */
void wf_node_turn_away(const struct node_desk *desk, int sock, enum wf_node_reason reason);

/* rings.c */

/* RING, UNRING and NODE. wf_node_ring_read takes over the descriptors. */
void wf_node_ring_read(struct node_desk *desk, struct desk_client *client,
                       const struct wf_node_packet *packet, const int *fds, int nfds);
void wf_node_unring_read(struct node_desk *desk, struct desk_client *client,
                         const struct wf_node_packet *packet);
void wf_node_other_read(struct node_desk *desk, struct desk_client *client,
                        const struct wf_node_packet *packet);
/* The client has ended: take its rings back. */
void wf_node_rings_end(struct node_desk *desk, struct desk_client *client);
/* Handle the mover's results. */
void wf_node_jobs_take(struct node_desk *desk);

/* slabs.c */

/* SLAB and UNSLAB. wf_node_slab_read takes over the descriptors. */
void wf_node_slab_read(struct node_desk *desk, struct desk_client *client,
                       const struct wf_node_packet *packet, const int *fds, int nfds);
void wf_node_unslab_read(struct node_desk *desk, struct desk_client *client,
                         const struct wf_node_packet *packet);
/* The mover has done the job. */
void wf_node_slab_done(struct node_desk *desk, struct node_job *job);
/* The client has ended: take its slabs back. */
void wf_node_slabs_end(struct node_desk *desk, struct desk_client *client);

/* leave.c */

/* Close a client's connection. It is freed after the round. */
void wf_node_client_end(struct node_desk *desk, struct desk_client *client);
/* The same, after sending the reason, which the client's library logs. */
__attribute__((format(printf, 3, 4))) void
wf_node_client_fail(struct node_desk *desk, struct desk_client *client, const char *fmt, ...);
/* Free the clients of desk->ended. */
void wf_node_reap(struct node_desk *desk);
/* Refuse pending clients, send BYE to the others, and close all sockets, the listening one last. */
void wf_node_leave(struct node_desk *desk);

/* heirs.c */

/* Find the clients of the service before, by its page, which is [fd]: the function closes it. */
void wf_node_heirs_open(struct node_desk *desk, int fd);
/* May the process [pid] claim [index]? Not if another one, which lives, had it. */
bool wf_node_heir_is(const struct node_desk *desk, uint32_t index, pid_t pid);
/* A client has [index]: its process is watched as a client's from now on. */
void wf_node_heir_come(struct node_desk *desk, uint32_t index);
/* Handle the end of the process that [at] stands for. Returns false if [at] is no heir. */
bool wf_node_heir_event(struct node_desk *desk, void *at);
/* No heir may come any more. */
void wf_node_heirs_close(struct node_desk *desk);

/* share.c */

#ifdef WF_HAVE_VERBS
/* See whether clients can register memory with the network's NIC, once the network is open. */
void wf_node_share_open(struct node_desk *desk);
void wf_node_share_close(struct node_desk *desk);
/* Give a client that attaches a window, if there is one: client->left. */
bool wf_node_window_give(struct node_desk *desk, struct desk_client *client, uint32_t index);
/* The client has ended. */
void wf_node_window_leave(struct node_desk *desk, struct desk_client *client);
/* Drop some of what clients have left whose time is over. Returns when to go on. */
uint64_t wf_node_windows_drop(struct node_desk *desk, uint64_t now);
#else
static inline void wf_node_share_open(struct node_desk *desk)
{
    (void)desk;
}
static inline void wf_node_share_close(struct node_desk *desk)
{
    (void)desk;
}
static inline bool wf_node_window_give(struct node_desk *desk, struct desk_client *client,
                                       uint32_t index)
{
    (void)desk;
    (void)client;
    (void)index;
    return false;
}
static inline void wf_node_window_leave(struct node_desk *desk, struct desk_client *client)
{
    (void)desk;
    (void)client;
}
static inline uint64_t wf_node_windows_drop(struct node_desk *desk, uint64_t now)
{
    (void)desk;
    (void)now;
    return UINT64_MAX;
}
#endif

/* start.c */

/* What `weft node` does without an option: become the service of the key that can be read from
 * descriptor 0. Returns the exit code, in the process that called and in the service. */
int wf_node_start(void);

/* ask.c */

/* What `weft node --list` and `--stop` do. Return the exit code. */
int wf_node_list(bool json);
int wf_node_stop(const char *job);

#endif
