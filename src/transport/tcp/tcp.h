/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport: behaves as a reliable NIC would, over sockets that break.
 *
 *   wire.h   what crosses a connection
 *   door.h   listening, dialling, authenticating: one thread per context
 *   pair.c   two endpoints that talk: its lanes, who holds it, how it ends
 *   lane.c   one exactly-once stream of frames, which outlives its sockets
 *   rx.c     from a socket to the core, tx.c from the core to a socket
 *   tcp.c    the transport's table of functions
 *
 * Pairs. A pair is two endpoints, one here and one elsewhere. It comes to be by the first
 * message to a peer, or by the first connection from one, and lives until one of
 * the two endpoints closes (BYE) or is found dead; then its address is remembered
 * as that of a dead one, and refused. Endpoints are told apart by generation and
 * token, so nothing of an old incarnation is ever taken for a new one's.
 *
 * Lanes. A pair has 1 to WEFT_TCP_LANES lanes. A lane is an ordered, exactly-once channel of
 * frames in each direction. It has at most one socket at a time; its state is
 * not the socket's. Sent frames stay in the lane's ring until the other side says
 * that it took them: each frame carries the count of frames taken so far. A new
 * socket begins with SYNC both ways, each side drops what the other has, and sends the
 * rest again. So a request is run once, however often its bytes cross the
 * network; and a reply is a frame like any, kept until it is acknowledged. A
 * frame never moves to another lane. Only reading ends a socket: after a failed
 * write what has come is still read. A socket may be made again over another path, since
 * a call tries all the addresses of the other side.
 *
 * (architecture.md thought of one sequence space across lanes, with a window of bits. With
 * a space per lane the guarantee is the same, nothing is ever out of order
 * within it, and a slow lane holds up no other.)
 *
 * Which socket. Connections are made by the side with the greater address alone. If the other one
 * wants to talk first, its call is a knock (door.h): it proves who it is and is called back, by
 * the door's thread, whatever the endpoint's owner is doing. So no two connections
 * of one lane and generation differ in who made them, and whoever has written everything to a
 * socket can leave: the other side gives a socket up only after it has read it to its end. Each has
 * a generation, one more than that of the last one the calling side knew, or some more; a lane
 * takes a later one than it has or had and closes any other. Changing sockets is always safe: that
 * is what SYNC is for. After a break the greater side dials at once, the other knocks 100 ms later,
 * if nothing has come by then.
 *
 * Room. A lane's ring has a part for requests and one for replies. A request reserves
 * its reply's room at the other side; who requests counts what it has reserved, so a
 * reply never finds the ring full. The reservation ends with the reply, or with
 * word that there will be none. That word, like acknowledgements, is a running total: it
 * may be lost or repeated. A peer that overdraws is thrown out (EPROTO).
 * ACK frames take no room in the ring: they are made when they are sent.
 *
 * Bulk. Payload of a bulk frame is not copied into the ring. The core is asked where it
 * is each time that some of it is to be written to the socket or read from it
 * (bulk_hold), for as long as the call takes. If it is nowhere any more (region closed,
 * operation over), a request becomes VOID and a reply one without payload; if part of it was sent
 * already, the socket is dropped first.
 *
 * Loss. A socket that breaks is dialled again by the rules of door.h; when the call
 * is given up, the pair is dead: its sockets are closed, its frames dropped, then its
 * operations fail. Unless the kernel says more, a silent cut is noticed by
 * keepalive and TCP_USER_TIMEOUT within half of WEFT_PEER_TIMEOUT. A path that lets connections be
 * made but nothing long through is a loss, too (wf_tcp_lane_is_stuck).
 *
 * Order. Requests to Weft's own handlers that are no bulk take lane 0, so they stay in order.
 * Everything else takes the lane with the least left to send.
 *
 * When bytes leave. A message is written at once, unless more than PROMPT have been written since
 * the last poll: then one that follows within QUIET_NS of the last write waits for more, at most
 * until poll, arm, or BATCH bytes. So a stream of small messages shares system
 * calls, and single ones wait for nothing.
 *
 * Threads. All but the door's is the endpoint's owner's. The door hands connections over by the
 * tep's inbox, under its lock, and an eventfd. Of an endpoint whose owner does not poll the inbox
 * takes TCP_ARRIVALS_MAX connections, or a quarter of RLIMIT_NOFILE where that is less (and those
 * whose handshake is under way then): the descriptors are the program's, too. Later ones are told
 * BUSY and come again. */
#ifndef WF_TRANSPORT_TCP_TCP_H
#define WF_TRANSPORT_TCP_TCP_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/util.h"
#include "config/stats.h"
#include "transport/addr_table.h"
#include "transport/tcp/door.h"

/* Replies that a side keeps room for, per lane: part of the protocol. */
#define TCP_REPLY_ROOM 65536u
#define TCP_RX_SIZE 262144u /* an endpoint's receive buffer */
#define TCP_ARRIVALS_MAX 1024u

struct rdma_ctx;
struct rdma_ep;
struct tcp_tep;
struct tcp_lane;
struct iovec;

/* What moves a lane's bytes instead of its socket, if both sides want that (rdma/wire.h): found out
 * on each new socket (shake). Bytes come and go in order, and it breaks as a socket does. */
struct wf_wire;
#define WF_WIRE_CANNOT UINT64_MAX
#define WF_MOVE_SHORT 65536u /* bytes of a move that is not worth a second rail */
enum wf_wires_shake {
    WIRES_MORE,        /* the other side has not said all */
    WIRES_UP,          /* frames go by the wire */
    WIRES_PLAIN,       /* by the socket: the wire is of no use */
    WIRES_TURNED_AWAY, /* the other side has given this one up */
    WIRES_NONSENSE,
    WIRES_BROKE /* errno; 0: the end of the socket */
};
struct wf_wires {
    struct wf_wire *(*open)(struct tcp_lane *lane);  /* its socket is new. Null: errno */
    bool (*says_plain)(const struct wf_wire *w);     /* this side may write to the socket already */
    enum wf_wires_shake (*shake)(struct wf_wire *w); /* take what the socket has for it */
    /* As sendmsg; [lent]: of v's pieces the one that the program lent, or null. */
    ssize_t (*write)(struct wf_wire *w, const struct iovec *v, unsigned n, const void *lent);
    /* One short frame, and all that there is to write. False: write says why. */
    bool (*send)(struct wf_wire *w, const void *bytes, uint32_t len);
    ssize_t (*read)(struct wf_wire *w, uint8_t *to, size_t room); /* as recv */
    /* In place of the next read, what it would give or its beginning, where it is: *n bytes from a
     * multiple of WF_TCP_ALIGN on, until peeked or close. Null: read it. */
    uint8_t *(*peek)(const struct wf_wire *w, size_t *n);
    void (*peeked)(struct wf_wire *w);          /* they were taken */
    bool (*has_bytes)(const struct wf_wire *w); /* to be read */
    bool (*is_taken)(struct wf_wire *w);        /* the other end has all; asked by who closes */
    void (*settle)(struct wf_wire *w);          /* wait until then, for a short time */
    /* As a transport's move. OK | AGAIN | EUNREACH */
    enum weft_status (*move)(struct wf_wire *w, const struct wf_move *m, size_t *taken);
    uint64_t (*load)(const struct wf_wire *w, const struct wf_move *m); /* bytes of moves under way;
                                                                         * WF_WIRE_CANNOT take m */
    /* May what it has told of be told of, or read, by wires on other rails? If not, it will. */
    bool (*may_leave)(struct wf_wire *w);
    int (*better_rail)(const struct wf_wire *w); /* by which it would better be made again; -1 */
    bool (*is_idle)(const struct wf_wire *w);    /* it may be now */
    /* The other side has closed its ends of the wires that [lane] had: their moves can be told of
     * ([tell]), and they are forgotten. */
    void (*torn)(struct tcp_lane *lane, bool tell);
    int (*turn)(struct tcp_tep *t); /* take what came for any, and have its lane read */
    /* After so many turns all is read that had come before. */
    unsigned (*most_turns)(const struct tcp_tep *t);
    /* Between the turns of who closes: what woke does so no more, what is seldom is seen. */
    void (*look)(struct tcp_tep *t);
    void (*close)(struct wf_wire *w);
};

struct tcp_ctx {
    struct wf_tctx base;
    struct rdma_ctx *rdma; /* null: sockets carry the bytes */
    struct wf_tcp_door *door;
    struct wf_contact contact; /* constant */
    pthread_mutex_t lock;
    struct wf_list teps WF_GUARDED_BY(lock);
    int *fds WF_GUARDED_BY(lock); /* sockets that lanes have: a forked child must not keep them */
    uint32_t nfds, fds_room WF_GUARDED_BY(lock);
    unsigned arrivals_max; /* constant: that wait for an endpoint's owner to poll */
};

/* What the processes of a node have in common: kept once for all peers there. */
struct tcp_node {
    uint64_t node, netns, pidns;
    uint32_t uid;
    uint8_t count;
    uint8_t ip[WF_CONTACT_IPS][16];
};

struct tcp_token {
    struct wf_token base;
    struct tcp_lane *lane;
    uint32_t room; /* reply_max of the request */
};

struct tcp_tep {
    struct wf_tep base;
    struct tcp_ctx *ctx;
    struct wf_address address;
    struct wf_list item;          /* ctx->teps */
    int outer_fd;                 /* the owner's epoll descriptor */
    int epoll_fd;                 /* the sockets; -1: none yet */
    struct wf_list live;          /* lanes with a socket */
    struct wf_list grave;         /* lanes to be freed when poll is over: events may name them */
    struct wf_list dirty;         /* lanes with something to write that is not being waited for */
    const struct wf_wires *wires; /* null: sockets */
    unsigned lanes;               /* a pair has at most, if this side begins them */
    unsigned rails;               /* its wires go by */
    struct rdma_ep *rdma;
    unsigned nshaking; /* wires of which it is not known yet whether they are used */
    unsigned nplain;   /* lanes that could have a wire and use their socket */
    bool look;         /* a socket has something to say */
    unsigned nlive;
    unsigned idle; /* empty polls in a row */
    uint32_t polls;
    struct tcp_token token; /* of the message being delivered */
    bool closing;
    uint32_t close_ms;  /* it may take, since it closes */
    uint64_t settle_ns; /* all wires together may still wait, since it closes */
    bool undialled;     /* there was no memory to call some lane's other end: tried at each poll */
    int events;         /* of this poll */
    uint8_t *rx;        /* TCP_RX_SIZE; null until the first socket */
    struct wf_addr_table pairs;
    uint32_t ndead;
    uint64_t next_pair;  /* numbers of pairs */
    struct wf_list dead; /* pairs, the oldest first */
    struct tcp_peer **peers;
    uint32_t npeers, peers_room;
    struct tcp_node *nodes;
    uint32_t nnodes, nodes_room;
    /* From the door's thread. */
    pthread_mutex_t lock;
    _Atomic int inbox;                             /* something is in arrivals or verdicts */
    struct wf_list arrivals WF_GUARDED_BY(lock);   /* struct wf_tcp_conn */
    unsigned narrivals WF_GUARDED_BY(lock);        /* since they were taken last */
    struct wf_list verdicts WF_GUARDED_BY(lock);   /* struct wf_tcp_verdict */
    struct wf_addr_table gone WF_GUARDED_BY(lock); /* the dead pairs, for the door to turn away */
};

/* Which of the rails a lane's next connection is to go by. Its generation says so: who makes it
 * leaves some out (rdma/wire.h). */
enum wf_rail_wish { WF_RAIL_SAME, WF_RAIL_NEXT, WF_RAIL_TO /* + which */ };

/* A handle of a remote endpoint. */
struct tcp_peer {
    struct wf_tpeer base;
    struct tcp_pair *pair; /* null until the first message either way */
    uint64_t token[2], start;
    uint32_t pid, ep_gen, node, index; /* node in tep->nodes, index in tep->peers */
    uint16_t ep, port;
    int16_t status; /* of the pair that was */
};

struct tcp_pair {
    struct wf_addr_entry known; /* by the other endpoint's address */
    struct wf_addr_entry gone;  /* the same, once it is dead: tep->gone */
    struct wf_list item;        /* tep->dead */
    struct tcp_tep *tep;
    struct wf_contact contact;
    void *conn;                 /* the core's */
    enum weft_status status;    /* not OK: how it ended */
    struct tcp_peer *handle;    /* one of those that are open, or null */
    bool is_greater;            /* this side's address is the greater one */
    uint16_t bye;               /* lanes by which its endpoint says so, a bit each */
    uint64_t number, theirs;    /* of this pair at either side; theirs 0: not known yet */
    uint64_t sent_ns;           /* when something was last written */
    uint32_t burst, burst_poll; /* messages since poll number burst_poll */
    unsigned nlanes;
    unsigned turn;                            /* lanes of fragments */
    struct tcp_lane *lanes[WF_TCP_LANES_MAX]; /* [nlanes], null: never used */
};

/* A bulk frame in the ring. */
struct tcp_bulk {
    struct wf_bulk bulk; /* args: below; len 0: it has become VOID */
    bool lost;           /* its memory is not mapped any more */
    uint32_t at;         /* of its frame in the ring */
    uint32_t args[WEFT_AM_MAX_ARGS];
};

/* Ring offsets count bytes and wrap at 2^32; the ring's size is a power of two. Frame
 * numbers count and wrap, too. */
struct tcp_lane {
    struct tcp_pair *pair;
    struct wf_list live, dirty;
    int fd; /* -1: none */
    uint16_t index;
    bool synced;  /* the other side's SYNC has come on this socket */
    bool open;    /* frames may be written to it: synced, or it is the first that frames are
                   * written to, so the other side has taken none */
    bool deaf;    /* it takes no more: what it still has is read, then it is dropped */
    bool faulted; /* memory of one of its requests was unmapped: the pair ends with the socket */
    bool starved; /* a message was refused for want of room */
    bool blocked; /* the socket took no more: EPOLLOUT says when */
    bool watches_out; /* EPOLLOUT is asked for */
    bool was_silent;  /* the last socket ended because nothing was heard for long */
    bool bye;         /* the other side sends nothing more */
    bool was_stuck;   /* so did an earlier one, with frame stuck_at not acknowledged */
    bool lost;        /* it was never had and cannot be: the others go on without it */
    uint32_t stuck_at;
    uint32_t gen;          /* of the socket it has, or had last; 0: never had one */
    uint64_t call;         /* dialling; 0: not */
    struct tcp_seal *seal; /* null: in the clear */
    struct wf_wire *wire;  /* null: the socket carries what comes */
    struct wf_wire *torn;  /* those before it whose moves are to be told of */
    bool up;               /* bytes may be written */
    bool plain;            /* to the socket, though wires are usual */
    uint8_t wire_failures; /* in a row, of wires that carried nothing */
    uint8_t rewires;       /* times that it went back from its socket to a wire */
    uint8_t returns;       /* times that its wire was made again on a better rail */
    bool leaves;           /* its wire, for a better rail, when it is quiet: gets nothing new */
    uint8_t rail_wish;     /* enum wf_rail_wish: of its next connection */
    bool next_rail;        /* plain, but other rails were not tried yet */
    uint64_t rewire_ns; /* plain: when a wire is tried again; else when one astray is made again */

    /* Of the last wire that anything came by (rdma/wire.c). */
    uint32_t past_name, past_psn; /* one more; 0: none */

    /* out */
    uint8_t *ring;
    uint32_t mask, request_room;
    uint32_t tail, at, sent, head; /* oldest frame kept; frame that is next to be written or partly
                                    * is; next byte of it to be written; end */
    uint32_t first, next;          /* number of the frame at tail; frames there have been */
    uint32_t written, reached;     /* frames wholly written to this socket; to any */
    uint32_t request_bytes, reply_bytes; /* in the ring */
    uint32_t reserved;                   /* of the other side's ring, for replies */
    uint32_t returned;                   /* as the other side told last: places not replied to */
    struct tcp_bulk *bulks;              /* a ring of bulks_mask + 1 */
    uint32_t bulks_mask, bulks_room, bulk_first, bulk_at, bulk_end; /* kept; next to be
                                                                     * written; end */
    uint32_t bulk_sent;                                             /* payload of that one */
    uint8_t control[48];
    uint32_t control_len, control_sent;

    /* in */
    uint32_t taken, told;    /* counted frames; as told last */
    uint32_t taken_bytes;    /* since then */
    uint32_t socket_bytes;   /* read from sockets, as they came; wraps */
    uint32_t unreplied;      /* places of requests that were not replied to, in all */
    uint32_t unreplied_told; /* as told last */
    uint8_t *stash;          /* the beginning of a frame */
    uint32_t stash_len;
    struct {
        struct wf_tcp_frame frame; /* kind 0: none under way */
        uint32_t args[WEFT_AM_MAX_ARGS];
        uint32_t got, skip; /* bytes of payload; of padding left */
        bool lost;          /* some found no place */
    } bulk;
};

#define TCP_OF(ptr, type) ((struct type *)(void *)(ptr))

static inline void wf_tcp_count(struct tcp_tep *t, enum wf_stat stat, uint64_t n)
{
    uint64_t *c = &t->base.counters[stat];
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* Ring distance and frame numbers: how far [b] is past [a]. */
static inline uint32_t wf_tcp_past(uint32_t a, uint32_t b)
{
    return b - a;
}

/* ---- lane.c ---- */

/* Sockets that a forked child must close. note: the caller holds ctx->lock; false: no memory. */
bool wf_tcp_fd_note(struct tcp_ctx *ctx, int fd);
void wf_tcp_fd_forget(struct tcp_ctx *ctx, int fd);
/* Lane [index] of [pair], made if need be; null: no memory. */
struct tcp_lane *wf_tcp_lane(struct tcp_pair *pair, unsigned index);
void wf_tcp_lane_free(struct tcp_lane *lane);
/* Dial unless it is being dialled or has a socket. */
void wf_tcp_lane_dial(struct tcp_lane *lane, uint32_t delay_ms);
#define TCP_LATER_MS 100 /* the side with the smaller address dials so much later after a break */
/* Use [conn]'s socket from now on, or close it; takes [conn] over. */
void wf_tcp_lane_adopt(struct tcp_lane *lane, struct wf_tcp_conn *conn);
/* This side and the other do not know the same pair: tell it so. */
void wf_tcp_lane_turn_away(struct tcp_lane *lane);
/* The endpoint's own descriptor of sockets, once. False: errno */
bool wf_tcp_epoll_make(struct tcp_tep *t);
/* It is known whether its new socket or a wire carries what comes. */
void wf_tcp_lane_shaken(struct tcp_lane *lane, bool plain);
/* A wire carries its bytes, or will. */
static inline bool wf_tcp_is_wired(const struct tcp_lane *lane)
{
    return lane->wire && !lane->plain;
}
static inline bool wf_tcp_is_shaking(const struct tcp_lane *lane)
{
    return lane->wire && (!lane->up || lane->plain);
}
/* All is written: leave the socket to the door. */
void wf_tcp_lane_linger(struct tcp_lane *lane);
/* The socket is of no use any more. Dials again if the pair lives. */
void wf_tcp_lane_break(struct tcp_lane *lane, const char *why);
/* Does this error of a socket say that nothing was heard for long? */
static inline bool wf_tcp_is_silence(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH;
}
/* Its socket ended in silence: is this the second one that did, though the other side had begun to
 * talk on it, and no frame was acknowledged in between? Then small packets pass and large
 * ones do not, and another socket would not help. */
bool wf_tcp_lane_is_stuck(struct tcp_lane *lane);
/* SYNC came. OK | EPROTO */
enum weft_status wf_tcp_lane_sync(struct tcp_lane *lane, const struct wf_tcp_frame *f,
                                  const struct wf_tcp_sync *sync);
/* There is room that there was not: who was refused some is to be told (poll counts an event). */
void wf_tcp_lane_fed(struct tcp_lane *lane);
/* The other side took frames up to number [ack], and will not reply to [returned] bytes' worth.
 * OK | EPROTO */
enum weft_status wf_tcp_lane_acked(struct tcp_lane *lane, uint32_t ack);
enum weft_status wf_tcp_lane_returned(struct tcp_lane *lane, uint32_t returned);

/* ---- seal.c: sockets of lanes that encrypt ---- */

struct iovec;
struct wf_tcp_sealer;
bool wf_tcp_seal_open(struct tcp_lane *lane, const struct wf_tcp_conn *conn);
void wf_tcp_seal_close(struct tcp_lane *lane);
/* As sendmsg and recv. What was accepted may be sent in part: then has_unsent. */
ssize_t wf_tcp_seal_write(struct tcp_lane *lane, const struct iovec *v, unsigned count);
ssize_t wf_tcp_seal_read(struct tcp_lane *lane, uint8_t *to, size_t room);
bool wf_tcp_seal_has_unsent(const struct tcp_lane *lane);
struct wf_tcp_sealer *wf_tcp_seal_out(const struct tcp_lane *lane); /* null: in the clear */

/* ---- tx.c ---- */

/* Bytes of a frame in the ring. */
uint32_t wf_tcp_ring_size_of(const struct wf_tcp_frame *f);
static inline struct wf_tcp_frame *wf_tcp_frame_at(const struct tcp_lane *lane, uint32_t at)
{
    return (struct wf_tcp_frame *)(void *)(lane->ring + (at & lane->mask));
}
/* Is there room in the ring for a frame of [bytes]? */
bool wf_tcp_has_room(const struct tcp_lane *lane, uint32_t bytes, bool is_reply);
/* Put a frame in the ring; there is room. */
void wf_tcp_append(struct tcp_lane *lane, enum wf_tcp_kind kind, const struct wf_am_out *out,
                   uint32_t room);
/* The same of a bulk frame. OK | ENOMEM */
enum weft_status wf_tcp_append_bulk(struct tcp_lane *lane, enum wf_tcp_kind kind,
                                    const struct wf_bulk *bulk, uint32_t room);
void wf_tcp_append_bye(struct tcp_lane *lane, uint32_t lanes);
/* Write what the socket takes. The lane may have lost its socket afterwards. */
void wf_tcp_flush(struct tcp_lane *lane);
/* After an append: now, or later with more. */
void wf_tcp_flush_soon(struct tcp_lane *lane);
void wf_tcp_dirty(struct tcp_lane *lane);
/* The oldest frame is not needed any more. */
void wf_tcp_frame_drop(struct tcp_lane *lane);
/* Something was taken that the other side was not told of; so much that it needs to know. */
bool wf_tcp_ack_is_due(const struct tcp_lane *lane);
bool wf_tcp_ack_is_urgent(const struct tcp_lane *lane);
/* Is there anything that the socket has not been given? */
bool wf_tcp_has_unsent(const struct tcp_lane *lane);
void wf_tcp_flush_all(struct tcp_tep *t);

/* ---- rx.c ---- */

/* Read once and deliver. The lane may be gone afterwards, and its pair. */
void wf_tcp_read(struct tcp_lane *lane);
/* The same of a lane's socket where wires are usual. */
void wf_tcp_socket_look(struct tcp_lane *lane);
/* Look at the socket of each lane that has one. */
void wf_tcp_sockets_look(struct tcp_tep *t);

/* ---- pair.c ---- */

struct tcp_pair *wf_tcp_pair_find(struct tcp_tep *t, const struct wf_address *to);
/* Does endpoint [from] of this process, whose owner calls, know [to] already? */
bool wf_tcp_has_pair(struct tcp_ctx *ctx, const struct wf_address *from,
                     const struct wf_address *to);
/* Null: no memory. */
struct tcp_pair *wf_tcp_pair_make(struct tcp_tep *t, const struct wf_address *to,
                                  const struct wf_contact *contact);
/* Its other end is lost or has closed: everything of it ends, and its address is
 * remembered. */
void wf_tcp_pair_end(struct tcp_pair *pair, enum weft_status why);
/* The other side says BYE on one of its lanes. */
void wf_tcp_pair_bye(struct tcp_pair *pair, uint32_t lanes);
/* A handle of [pair], or null. */
static inline struct wf_tpeer *wf_tcp_pair_peer(const struct tcp_pair *pair)
{
    return pair->handle ? &pair->handle->base : NULL;
}
/* [peer] is a handle of [pair] from now on; is none any more. */
void wf_tcp_pair_hold(struct tcp_pair *pair, struct tcp_peer *peer);
void wf_tcp_pair_let_go(struct tcp_peer *peer);
/* Have all the lanes there may be; those that are not there are called. */
void wf_tcp_pair_lanes_open(struct tcp_pair *pair);
/* May lanes other than the first tell of what that has moved? */
bool wf_tcp_pair_may_spread(const struct tcp_pair *pair);
/* The lane that a message takes. Null: no memory. */
struct tcp_lane *wf_tcp_pair_lane(struct tcp_pair *pair, bool ordered);
struct tcp_lane *wf_tcp_pair_bulk_lane(struct tcp_pair *pair);
/* That of what [order] names, if the other side did not take it yet; else each in turn, or
 * as above if [bulk]. */
struct tcp_lane *wf_tcp_pair_ordered_lane(struct tcp_pair *pair, const struct wf_order *order,
                                          bool bulk);
/* Tell whoever is behind [fd] that this side has given it up; takes [fd] over, which is forgotten.
 * Null: in the clear. */
void wf_tcp_turn_away(struct tcp_ctx *ctx, int fd, struct wf_tcp_sealer *sealer);
/* A connection from the inbox that is not used. Also its memory. */
void wf_tcp_conn_close(struct tcp_tep *t, struct wf_tcp_conn *conn);
void wf_tcp_grave_empty(struct tcp_tep *t);
/* Call again where there was no memory for it. */
void wf_tcp_pairs_dial(struct tcp_tep *t);
/* What the door's thread left. */
void wf_tcp_inbox(struct tcp_tep *t);
void wf_tcp_pairs_free(struct tcp_tep *t);
/* Say BYE everywhere and wait, bounded, until it was taken, or is with the kernel of a peer that
 * does not poll. */
void wf_tcp_pairs_bye(struct tcp_tep *t);

extern const struct wf_tcp_door_events wf_tcp_door_calls;

/* ---- tcp.c ---- */

/* Every lane with a socket, the one after the last that was first first. */
void wf_tcp_read_each(struct tcp_tep *t);
/* [out]: also for when there is room to write. False: the kernel has no memory. */
bool wf_tcp_lane_watch(struct tcp_lane *lane, bool out);

/* Is it the one at [address]? */
bool wf_tcp_peer_is(const struct tcp_peer *peer, const struct wf_address *address);
/* Which peer is it? */
void wf_tcp_peer_address(const struct tcp_peer *peer, struct wf_address *out,
                         struct wf_contact *contact);

#endif
