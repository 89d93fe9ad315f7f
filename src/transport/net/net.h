/* SPDX-License-Identifier: BSD-3-Clause */
/* The channels of the network transports. A channel delivers each message exactly once, as a
 * reliable NIC would, over connections that may break. tcp/ and rdma/ are the drivers that carry
 * channels (link.h).
 *
 *   proto.h     bytes of handshakes and frames, and their parsers
 *   connect/    the connection manager: listening, dialling, authenticating; one thread per context
 *   ep.c        contexts and endpoints; the parts of polling and arming that drivers share
 *   peer.c      handles of remote endpoints
 *   ops.c       functions of a transport's table: requests, replies, bulk, ordered requests, keys
 *   explain.c   what messages to a peer wait for, for the log
 *   session.c   the association of two endpoints: its handles, its channels, its end
 *   events.c    events of the connection manager: connections and results of dials
 *   close.c     closing an endpoint: last messages, BYE
 *   fds.c       the sockets of links: epoll, fork, closing
 *   channel.c   an exactly-once stream of frames, which outlives its links
 *   ride.c      replies that wait for a request to leave with
 *   batch.c     what one write consists of
 *   send.c      from the core into a channel's ring, from there to its link
 *   recv.c      from a link to the core
 *   shuffle.c   WEFT_DEBUG=shuffle
 *
 * Sessions. A session is the association of two endpoints, one of them in this process. The first
 * message to a peer, or the first connection from a peer, makes the session. The session lives
 * until one of the two endpoints closes or is found dead. An endpoint that closes sends BYE, its
 * last frame. After the session, this endpoint remembers the peer's address and turns later
 * connections from the peer away. Generation and token distinguish an endpoint from an earlier
 * endpoint with the same process id and number.
 *
 * Channels. A session has 1 to WEFT_TCP_LANES channels. A channel's index is its lane. A channel is
 * an ordered, exactly-once stream of frames in each direction. It has at most one link at a time,
 * and outlives its links. Sent frames stay in the channel's ring until the peer acknowledges them.
 * Each frame acknowledges: it carries the number of frames that its sender has received so far. On
 * a new link each side first sends SYNC, which states how many frames that side has received. Then
 * each side drops the frames that the peer has received, and sends the rest again. So a request
 * runs once, even if its bytes cross the network several times. A reply is a frame like any other.
 * A frame never moves to another channel. A failed send does not end a link: this side first
 * receives the bytes that have arrived, and the link ends when receiving fails or reaches the end
 * of the stream.
 *
 * Which connection. The side with the greater address makes all connections. If the other side has
 * something to send and there is no connection, the other side dials to request a connect-back
 * (connect/manager.h). After the other side has authenticated itself, the greater side's connection
 * manager dials, even if the greater side's endpoint is not polled. So the same side makes all
 * connections of one lane and generation. An endpoint that has written everything to a socket may
 * exit, since the peer reads each socket to its end before the peer gives the socket up. Each
 * connection of a channel has a generation, which is greater than the last generation that the
 * dialling side knew. A channel adopts a connection with a greater generation than its present or
 * last connection, and closes any other connection. Changing connections is always safe, since SYNC
 * shows which frames to send again. After a break the greater side dials at once. The other side
 * dials NET_LATER_MS later, if no connection has come by then. If connections of a lane end soon
 * and bring nothing, one after the other, a growing pause precedes the next dial.
 *
 * Room. A channel's ring has a part for requests and a part for replies. A request reserves room
 * for its reply in the responder's ring. The requester counts the room that it has reserved, so
 * there is always room for a reply. A reservation ends with the reply, or with the responder's
 * report that no reply will come. Each report is a running total, so it may be lost or repeated. A
 * peer that reserves more room than there is breaks the protocol (EPROTO). ACK frames take no room
 * in the ring: they are made when they are sent.
 *
 * Bulk. The payload of a bulk frame is not copied into the ring. Each time a part of the payload is
 * sent or received, the channel asks the core for the payload's memory (bulk_hold). The core lends
 * the memory for the duration of the system call. The memory may be gone, because its region was
 * closed or its operation ended. Then a bulk request becomes a VOID frame, and a bulk reply becomes
 * a reply without payload. If a part of the payload was sent already, the link is closed first.
 *
 * Loss. A broken connection is dialled again (connect/manager.h). When the connection manager gives
 * the dial up, the session is dead: its links are closed, its frames are dropped, and its
 * operations fail. If a network silently drops everything, keepalive and TCP_USER_TIMEOUT notice
 * this within half of WEFT_PEER_TIMEOUT. If connections are made but large packets are dropped, the
 * peer counts as lost, too (wf_net_chan_is_stuck).
 *
 * Order. Control requests without bulk take lane 0, so they stay in order. Other messages without
 * bulk take lane 0, too, until its ring holds SMALL_BACKLOG bytes or it has unsent payload of a
 * bulk frame; then they take the channel whose ring holds the fewest bytes. A bulk frame takes the
 * channel with the fewest unacknowledged bulk frames. A get takes the channel on which the fewest
 * bytes of replies are due (WF_LANE_LEAST), so gets that wait for each other stay on lane 0. Two
 * exceptions: a bulk request behind the control requests (WF_LANE_ORDERED) takes lane 0, and a
 * request that must follow another message takes the channel that wf_net_session_pick_ordered
 * chooses.
 *
 * When bytes are sent. The first PROMPT messages after a poll are sent at once; within a stream of
 * more, only the first. A later message that follows the last send within QUIET_NS waits for more
 * messages. It waits at most until the next poll, until the owner is about to sleep (arm), or until
 * BATCH bytes are unsent. So a stream of small messages shares system calls, and a single message
 * does not wait. Requests for payload that follow many others gather, too (gather.c).
 *
 * Threads. Only the endpoint's owner uses the endpoint's sessions, channels and links. The
 * connection manager's thread puts connections into the endpoint's inbox, under the endpoint's
 * lock, and then writes to the owner's eventfd. While the endpoint is not polled, the inbox takes
 * at most NET_ARRIVALS_MAX connections, or a quarter of RLIMIT_NOFILE if that is less. (The program
 * needs descriptors, too.) Connections whose handshake is under way when the limit is reached are
 * taken in addition. Later connections are refused as BUSY, and the peer dials again. */
#ifndef WF_TRANSPORT_NET_NET_H
#define WF_TRANSPORT_NET_NET_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/lock.h"
#include "base/util.h"
#include "config/stats.h"
#include "transport/addr_table.h"
#include "transport/net/connect/manager.h"
#include "transport/net/link.h"

/* How many bytes of each channel's ring are set aside for replies. Requests cannot use these bytes.
 * Both sides of a channel have to use the same number, since a requester reserves room in the
 * responder's ring without asking. */
#define NET_REPLY_ROOM 65536u
#define NET_RX_SIZE 262144u /* an endpoint's receive buffer */
#define NET_ARRIVALS_MAX 1024u
/* After a break, the side with the smaller address dials this much later than the other side. */
#define NET_LATER_MS 100
/* The pause before the second dial in a row for a lane whose last connections came to nothing. It
 * doubles with each, up to NET_PAUSE_MAX_MS or a tenth of WEFT_PEER_TIMEOUT, as the pauses within a
 * dial do (manager.h). */
#define NET_PAUSE_MIN_MS 10u
#define NET_PAUSE_MAX_MS 500u

WF_LOCK_CLASS(net_ctx_lock_class); /* struct net_ctx.lock */
WF_LOCK_CLASS(net_ep_lock_class);  /* struct net_ep.lock */

struct net_ctx {
    struct wf_tctx base;
    const struct net_driver *driver;
    struct wf_conn_mgr *mgr;
    struct wf_contact contact; /* constant */
    pthread_mutex_t lock;
    struct wf_list eps WF_UNDER(net_ctx_lock_class);
    /* The sockets of links, which a forked child must close. */
    int *fds WF_UNDER(net_ctx_lock_class);
    uint32_t nfds, fds_room WF_UNDER(net_ctx_lock_class);
    /* Constant. The most connections that wait in an endpoint's inbox for the owner to poll. */
    unsigned arrivals_max;
};

static inline WF_ACQUIRES(net_ctx_lock_class) void net_ctx_lock(struct net_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
}

static inline WF_RELEASES(net_ctx_lock_class) void net_ctx_unlock(struct net_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

/* The address fields that all processes of a node have in common. They are stored once for all
 * peers of the node. */
struct net_node {
    uint64_t host;
    uint32_t user;
    uint8_t count;
    uint8_t ip[WF_CONTACT_IPS][16];
};

struct net_token {
    struct wf_token base;
    struct net_chan *chan;
    uint32_t room; /* reply_max of the request */
};

/* The time limits of an endpoint's closing. */
struct net_closing {
    bool begun;
    /* How long the endpoint waits until the peers have received the last messages. */
    uint32_t limit_ms;
    uint64_t until_ns; /* when limit_ms ends */
    /* How long all links together may still take to send everything. */
    uint64_t settle_ns;
};

struct net_ep {
    struct wf_tep base;
    struct net_ctx *ctx;
    const struct net_driver *driver;
    struct wf_address address;
    struct wf_list item; /* in ctx->eps */
    int outer_fd;        /* the owner's epoll descriptor */
    int epoll_fd;        /* has the links' sockets (but see [ignores]); -1 before the first */
    struct wf_list live; /* channels with a link */
    struct wf_list
        grave; /* ended channels, freed at the poll's end: epoll events may still point to them */
    struct wf_list dirty; /* the next poll flushes these channels */
    unsigned lanes;       /* how many channels this side makes in a session */
    uint32_t ring_max;    /* bytes; up to here, the rings of channels grow when they are full */
    unsigned nlive;
    unsigned idle; /* polls in a row that handled nothing */
    uint32_t polls;
    bool look; /* the next poll must read all links */
    /* tcp.c: reads that received something, up to a limit; and the sockets of some links may not be
     * in the epoll set. */
    uint32_t reads;
    bool ignores;
    /* A dial failed for want of memory. Each poll tries again. */
    bool undialled;
    struct net_token token; /* of the message that is being delivered */
    struct net_closing closing;
    int events;  /* handled in this poll */
    uint8_t *rx; /* NET_RX_SIZE bytes; NULL before the first link */
    struct wf_addr_table sessions;
    uint32_t ndead;
    uint64_t next_session; /* the number of the newest session */
    struct wf_list dead;   /* ended sessions, the oldest first */
    struct net_peer **peers;
    uint32_t npeers, peers_room;
    struct net_node *nodes;
    uint32_t nnodes, nodes_room;
    struct net_shuffle *shuffle; /* NULL without WEFT_DEBUG=shuffle */
    /* The connection manager's thread uses the following members, too. */
    pthread_mutex_t lock;
    _Atomic int inbox;                                   /* 1 if arrivals or results has items */
    struct wf_list arrivals WF_UNDER(net_ep_lock_class); /* of struct wf_net_conn */
    unsigned narrivals WF_UNDER(net_ep_lock_class);      /* length of arrivals */
    struct wf_list results WF_UNDER(net_ep_lock_class);  /* of struct wf_dial_result */
    /* The sessions that have ended, by the peer's address. If the peer of such a session connects,
     * the connection manager's thread turns the connection away. */
    struct wf_addr_table gone WF_UNDER(net_ep_lock_class);
};

static inline WF_ACQUIRES(net_ep_lock_class) void net_ep_lock(struct net_ep *ep)
{
    pthread_mutex_lock(&ep->lock);
}

static inline WF_RELEASES(net_ep_lock_class) void net_ep_unlock(struct net_ep *ep)
{
    pthread_mutex_unlock(&ep->lock);
}

/* A handle of a remote endpoint. */
struct net_peer {
    struct wf_tpeer base;
    struct net_session *session; /* NULL before the first message */
    uint64_t token[2], start;
    /* [node] is an index in ep->nodes. [index] is this peer's index in ep->peers. */
    uint32_t pid, ep_gen, node, index;
    uint16_t ep, port;
    int16_t status; /* how the session ended */
    bool unsent;    /* frames had not left then */
};

struct net_session {
    struct wf_addr_entry known; /* the entry in ep->sessions */
    /* The entry in ep->gone, once the session has ended. */
    struct wf_addr_entry gone;
    struct wf_list item; /* in ep->dead */
    struct net_ep *ep;
    struct wf_contact contact;
    void *conn;              /* the core's state of this session, or NULL */
    enum weft_status status; /* WEFT_OK, or how the session ended */
    struct net_peer *handle; /* an open handle of the peer, or NULL */
    bool is_greater;         /* this side has the greater address */
    bool refused; /* by the owner (struct wf_token): the read that is under way ends it */
    bool later;   /* the owner has no room for the message that was just delivered */
    bool expired; /* nor had it any for WEFT_PEER_TIMEOUT: the read that is under way ends it */
    bool unused;  /* it has ended, and no frame was taken or acknowledged before */
    /* The end is not remembered if the session is unused and no handle knows it. */
    bool passing;
    /* Since when the owner has had no room, and how many frames had been taken then. 0: it has. */
    uint64_t later_ns;
    uint32_t later_taken;
    /* A bit mask of the lanes by which the peer sends BYE, its last frame. 0 before the first
     * BYE. */
    uint16_t bye;
    /* The numbers that this side and the peer have given to the session. [theirs] is 0 before the
     * peer's first SYNC. */
    uint64_t number, theirs;
    uint64_t sent_ns; /* when something was last sent */
    /* How many messages were sent since poll number burst_poll, and how many of the first of them
     * are sent at once, though they follow each other closely. */
    uint32_t burst, burst_poll, prompt;
    uint64_t burst_ns; /* when a burst last had more than the first PROMPT messages */
    unsigned nchans;
    /* [turn] modulo [nchans] is the index of the channel that takes ordered requests now. */
    unsigned turn;
    /* The first [nchans] elements are valid. An element is NULL if its channel was never used. */
    struct net_chan *chans[WF_NET_LANES_MAX];
};

/* A bulk frame in the ring. */
struct net_bulk {
    /* bulk.args points to [args] below. bulk.len is 0 once the payload is gone. */
    struct wf_bulk bulk;
    /* The payload's memory is not mapped any more. */
    bool lost;
    uint32_t at; /* the frame's offset in the ring */
    uint32_t args[WEFT_AM_MAX_ARGS];
};

/* Replies that ride with the next request (ride.c): how many polls in a row a request must have
 * followed, at first and at most, and the most bytes of replies. */
#define NET_RIDES 16u
#define NET_RIDES_MAX 32768u
#define NET_RIDE_BYTES 1024u
#define NET_GAP_FIRST 64u /* gap.expected of a new channel: a header with arguments */

/* Ring offsets count bytes. Frame numbers count frames. Both wrap at 2^32. The ring's size is a
 * power of two. */
struct net_chan {
    struct net_session *session;
    struct wf_list live, dirty;
    struct net_link *link; /* or NULL */
    uint16_t index;        /* the lane */
    bool up;               /* the link can send */
    /* SYNC, the peer's first frame on each link, has arrived by this link. */
    bool synced;
    /* Frames may be written to the link. This is true if SYNC has arrived by this link, or if no
     * frame was written to an earlier link. In the second case the peer cannot have received any
     * frame. */
    bool open;
    /* This side sends nothing more by the link. It still receives, and closes the link once it has
     * received the last byte that the peer sent. */
    bool half_closed;
    /* The program unmapped memory that it had lent to a request of this channel. The session ends
     * together with the link. */
    bool faulted;
    /* A message of the core was refused for want of room. */
    bool starved;
    /* The link accepts no more bytes now. It reports when there is room again. */
    bool blocked;
    /* The last link ended because nothing was received for a long time (ETIMEDOUT,
     * EHOSTUNREACH). */
    bool was_silent;
    /* The peer has sent BYE, and sends nothing more on this channel. */
    bool bye;
    /* An earlier link ended because nothing was received for a long time. Frame number [stuck_at]
     * was not acknowledged then. */
    bool was_stuck;
    /* The channel never had a link, and cannot get one. The session goes on without this
     * channel. */
    bool lost;
    /* The driver will change the link soon. New messages take other channels. */
    bool avoid;
    uint32_t stuck_at;
    /* The generation of the present or last connection; 0 if there was none. */
    uint32_t gen;
    uint64_t dial;         /* number of the dial in progress, or 0 */
    struct net_path *path; /* the driver's state of this channel, or NULL */

    /* sending */
    uint8_t *ring;
    uint32_t mask, request_room;
    /* Offsets in the ring: [tail], the oldest frame that is kept; [at], the first frame that is not
     * wholly written to the link; [sent], the next byte to write to the link; [head], behind the
     * newest frame. */
    uint32_t tail, at, sent, head;
    /* The number of the frame at [tail], and the number of the next frame to be appended. */
    uint32_t first, next;
    /* Frame numbers. All frames before [written] are wholly written to this link, or acknowledged.
     * All frames before [reached] were wholly written to some link. */
    uint32_t written, reached;
    uint32_t request_bytes, reply_bytes; /* in the ring */
    /* Bytes of the peer's ring that this side's requests have reserved for replies. */
    uint32_t reserved;
    /* The reply room that this side's requests reserved and that the peer did not use, as the peer
     * last reported: a running total in bytes. */
    uint32_t returned;
    /* The bulk frames that are in [ring]. This array is used as a ring, too. It has bulks_room
     * elements, a power of two. */
    struct net_bulk *bulks;
    /* Positions in [bulks]: [bulk_first], the oldest bulk frame that is kept; [bulk_at], the next
     * bulk frame to write; [bulk_end], behind the newest bulk frame. */
    uint32_t bulks_room, bulk_first, bulk_at, bulk_end;
    /* Bytes written of the payload (and its padding) of the bulk frame at bulk_at. */
    uint32_t bulk_sent;
    /* Replies that ride with the next request: ride.c. The last polls that made a reply that may
     * wait, and one that may not; and the last poll whose replies were watched. */
    uint32_t replied, urgent, watched;
    uint16_t followed, needed;
    bool watching, holds;
    uint32_t rides;   /* replies that rode since some were last late */
    uint64_t held_ns; /* when [holds] became true */
    /* Requests for payload that gather: gather.c. How many of them were appended whose replies are
     * due, and how many of these wait for more; since when nothing has arrived meanwhile, and
     * [taken_bytes] then. */
    uint32_t asked, gathered, gather_bytes;
    uint64_t gather_ns;
    bool empty;          /* tcp.c: the last read received nothing */
    uint8_t control[48]; /* an ACK or SYNC frame */
    uint32_t control_len, control_sent;

    /* receiving */
    /* How many frames were received ([taken]), and how many of these were acknowledged to the peer
     * ([acked]), not counting ACK and SYNC. */
    uint32_t taken, acked;
    uint32_t taken_bytes; /* received since the last acknowledgement */
    /* Reply room that the peer's requests reserved and that no reply used: a running total in
     * bytes. */
    uint32_t unreplied;
    uint32_t unreplied_acked; /* the value of [unreplied] in this side's last report */
    /* The beginning of a frame whose rest has not arrived. */
    uint8_t *stash;
    uint32_t stash_len;
    struct {
        struct wf_net_frame frame; /* kind is 0 if no bulk frame is being received */
        uint32_t args[WEFT_AM_MAX_ARGS];
        /* Bytes of payload received, and bytes of padding still to come. */
        uint32_t got, skip;
        /* Some of the payload was dropped, because there was no memory for it. */
        bool lost;
    } bulk;
    /* The bytes between the last bulk frame and the next payload: recv.c. */
    struct {
        bool active;       /* a bulk frame is being received, or ended shortly before */
        uint32_t expected; /* the length of the gap; 0 if no payload is expected soon */
        uint32_t since;    /* bytes received in the gap */
        uint32_t from;     /* during a read: where the gap begins in the receive buffer */
    } gap;

    /* between links */
    /* When the present or last link began, how many frames had been taken and acknowledged then,
     * and how many links in a row came to nothing (redial_ms). */
    uint64_t begun_ns;
    uint32_t begun_at, barren;
};

#define NET_OF(ptr, type) ((struct type *)(void *)(ptr))

static inline void wf_net_count(struct net_ep *ep, enum wf_stat stat, uint64_t n)
{
    uint64_t *c = &ep->base.counters[stat];
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* Returns how far [b] is past [a], modulo 2^32. Both are ring offsets, or both are frame
 * numbers. */
static inline uint32_t wf_net_past(uint32_t a, uint32_t b)
{
    return b - a;
}

/* ---- fds.c ---- */

/* The list of sockets that a forked child must close. wf_net_fd_note adds a socket, and returns
 * false if there is no memory; the caller holds ctx->lock. wf_net_fd_forget removes a socket, and
 * takes this lock itself. */
WF_REQUIRES(net_ctx_lock_class) bool wf_net_fd_note(struct net_ctx *ctx, int fd);
void wf_net_fd_forget(struct net_ctx *ctx, int fd);
/* Make the epoll descriptor for the sockets of the endpoint's links, unless it exists. Returns
 * false with errno on failure. */
bool wf_net_epoll_make(struct net_ep *ep);

/* ---- ep.c ---- */

/* Open a context. The struct has [size] bytes, and begins with struct net_ctx. The contract is that
 * of wf_transport.ctx_open. */
enum weft_status wf_net_ctx_open(const struct wf_transport *transport,
                                 const struct net_driver *driver,
                                 const struct wf_tctx_params *params, size_t size,
                                 struct net_ctx **out);
void wf_net_ctx_close(struct wf_tctx *tctx);
/* Does the process have a key, or will it get one? Without a key no peer can be authenticated. If
 * the result is false, *params->why is set to the reason. */
bool wf_net_has_key(const struct wf_tctx_params *params);
enum weft_status wf_net_set_key(struct wf_tctx *tctx, const void *secret, size_t len);
const struct wf_contact *wf_net_contact(struct wf_tctx *tctx);

/* Open an endpoint. The struct has [size] bytes, and begins with struct net_ep. The contract is
 * that of wf_transport.ep_open. */
enum weft_status wf_net_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                size_t size, struct net_ep **out);
/* Send the last messages, and end all sessions. The caller then calls wf_net_ep_free. */
void wf_net_ep_shut(struct net_ep *ep);
void wf_net_ep_free(struct net_ep *ep);
/* Process the inbox, and repeat dials that failed for want of memory. */
void wf_net_poll_due(struct net_ep *ep);
/* Call [act] for each channel whose socket epoll reports as ready. */
void wf_net_ready_each(struct net_ep *ep, void (*act)(struct net_chan *chan));
enum weft_status wf_net_arm(struct wf_tep *tep);
void wf_net_disarm(struct wf_tep *tep);

void wf_net_flush_all(struct net_ep *ep);
/* The same, but requests for payload may go on gathering. */
void wf_net_flush_due(struct net_ep *ep);
/* The same for channels that have more to send than an acknowledgement. An acknowledgement alone
 * waits for the next poll, because the program may send a message before. */
void wf_net_flush_data(struct net_ep *ep);
void wf_net_grave_empty(struct net_ep *ep);
void wf_net_shuffle_deliver(struct net_ep *ep);

/* A driver's poll calls wf_net_poll_begin, then reads its links, and then calls wf_net_poll_end. */
static inline void wf_net_poll_begin(struct net_ep *ep)
{
    if (__builtin_expect(atomic_load_explicit(&ep->inbox, memory_order_acquire) | ep->undialled, 0))
        wf_net_poll_due(ep);
    if (!wf_list_empty(&ep->dirty))
        wf_net_flush_due(ep);
    ep->polls++;
}

static inline void wf_net_poll_end(struct net_ep *ep)
{
    if (__builtin_expect(ep->shuffle != NULL, 0))
        wf_net_shuffle_deliver(ep);
    if (!wf_list_empty(&ep->dirty))
        wf_net_flush_data(ep);
    if (!wf_list_empty(&ep->grave))
        wf_net_grave_empty(ep);
}

/* Called in place of wf_net_poll_end when the endpoint has no link. Nothing is left to read, so the
 * owner may sleep. */
static inline void wf_net_poll_without_links(struct net_ep *ep)
{
    ep->look = false;
    if (__builtin_expect(ep->shuffle != NULL, 0))
        wf_net_shuffle_deliver(ep);
}

static inline int wf_net_poll_events(struct net_ep *ep)
{
    int events = ep->events;
    ep->events = 0;
    return events;
}

/* Call [act] for each channel that has a link. A channel moves to the end of the list before [act]
 * is called for it, so the loop works even if [act] ends channels. */
static inline void wf_net_live_each(struct net_ep *ep, void (*act)(struct net_chan *chan))
{
    for (unsigned i = ep->nlive; i-- && !wf_list_empty(&ep->live);) {
        struct wf_list *it = ep->live.next;
        wf_list_remove(it);
        wf_list_append(&ep->live, it);
        act(wf_container_of(it, struct net_chan, live));
    }
}

/* ---- peer.c ---- */

enum weft_status wf_net_reach(struct wf_tctx *tctx, const struct wf_address *from,
                              const struct wf_address *to, const struct wf_contact *contact,
                              const char **why);
enum weft_status wf_net_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                  const struct wf_address *to, const struct wf_contact *contact);
void wf_net_peer_close(struct wf_tpeer *tpeer);
void wf_net_give_up(struct wf_tep *tep, const struct wf_address *to);
struct wf_tpeer *wf_net_find(struct wf_tep *tep, const struct wf_address *address,
                             struct wf_tpeer *after);
void wf_net_address(const struct wf_tpeer *tpeer, struct wf_address *out);
bool wf_net_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b);
/* Is [peer] a handle of the endpoint at [address]? */
bool wf_net_peer_is(const struct net_peer *peer, const struct wf_address *address);
void wf_net_peer_address(const struct net_peer *peer, struct wf_address *out,
                         struct wf_contact *contact);

/* ---- ops.c: functions of a transport's table ---- */

enum weft_status wf_net_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
enum weft_status wf_net_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max);
enum weft_status wf_net_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len);
enum weft_status wf_net_request_ordered(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                        const void *data, size_t len, size_t reply_max);
enum weft_status wf_net_request_after(struct wf_tpeer *tpeer, struct wf_order *order, unsigned what,
                                      const uint32_t *args, const void *data, size_t len,
                                      size_t reply_max);
enum weft_status wf_net_request_bulk(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                     size_t reply_max, struct wf_order *order);
enum weft_status wf_net_reply(struct wf_token *token, const struct wf_am_out *out);
enum weft_status wf_net_reply_bulk(struct wf_token *token, const struct wf_bulk *bulk);
bool wf_net_is_away(struct wf_tpeer *tpeer, struct wf_order *order);
bool wf_net_is_sent(struct wf_tpeer *tpeer);
void wf_net_explain(struct wf_tpeer *tpeer, char *out, size_t room); /* explain.c */
enum weft_status wf_net_heed(struct wf_tpeer *tpeer);
void wf_net_source(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);
enum weft_status wf_net_pull(struct wf_tpeer *tpeer, void *dst, const struct wf_pull_from *from,
                             size_t len);
enum weft_status wf_net_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie);
void wf_net_remote_unmap(struct wf_tpeer *tpeer, void *cookie);
enum weft_status wf_net_status(struct wf_tpeer *tpeer);
enum weft_status wf_net_failed(const struct wf_tpeer *tpeer);

/* The entries that the function tables of all transports over channels have in common. */
#define WF_NET_OPS                                                                                 \
    .tpeer_size = sizeof(struct net_peer), .set_key = wf_net_set_key, .contact = wf_net_contact,   \
    .peer_open = wf_net_peer_open, .peer_close = wf_net_peer_close, .give_up = wf_net_give_up,     \
    .request = wf_net_request, .requestv = wf_net_requestv,                                        \
    .request_ordered = wf_net_request_ordered, .tagged = wf_net_tagged,                            \
    .request_after = wf_net_request_after, .request_bulk = wf_net_request_bulk,                    \
    .reply = wf_net_reply, .reply_bulk = wf_net_reply_bulk, .source = wf_net_source,               \
    .is_away = wf_net_is_away, .is_sent = wf_net_is_sent, .explain = wf_net_explain,               \
    .arm = wf_net_arm, .disarm = wf_net_disarm, .heed = wf_net_heed, .find = wf_net_find,          \
    .address = wf_net_address, .is_same = wf_net_is_same, .pull = wf_net_pull,                     \
    .remote_map = wf_net_remote_map, .remote_unmap = wf_net_remote_unmap, .flush = wf_net_status,  \
    .status = wf_net_status, .failed = wf_net_failed

#endif
