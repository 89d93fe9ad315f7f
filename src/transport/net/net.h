/* SPDX-License-Identifier: BSD-3-Clause */
/* The exactly-once channels of the network transports: they deliver as a reliable NIC would, over
 * connections that break. tcp/ and rdma/ are their drivers (link.h).
 *
 *   proto.h     bytes of handshakes and frames, and their parsers
 *   connect/    the connection manager: listening, dialling, authenticating; one thread a context
 *   ep.c        contexts and endpoints; the parts of polling and arming that drivers share
 *   peer.c      handles of remote endpoints
 *   ops.c       functions of a transport's table: requests, replies, bulk, ordered requests, keys
 *   session.c   the association of two endpoints: its handles, its channels, its end
 *   events.c    events of the connection manager: connections and results of dials
 *   close.c     closing an endpoint: last messages, BYE
 *   fds.c       the sockets of links: epoll, fork, closing
 *   channel.c   an exactly-once stream of frames, which outlives its links
 *   send.c      from the core into a channel's ring, from there to its link
 *   recv.c      from a link to the core
 *   shuffle.c   WEFT_DEBUG=shuffle
 *
 * Sessions. A session is the association of two endpoints, one of them in this process. The first
 * message to a peer, or the first connection from it, makes the session. It lives until one of the
 * two endpoints closes (BYE) or is found dead. Then the peer's address is remembered, and later
 * connections from it are turned away. Generation and token distinguish an endpoint from an earlier
 * one of the same process id and number.
 *
 * Channels. A session has 1 to WEFT_TCP_LANES channels; a channel's index is its lane. A channel is
 * an ordered, exactly-once stream of frames in each direction. It has at most one link at a time,
 * and outlives its links. Sent frames stay in the channel's ring until the peer acknowledges them:
 * each frame carries the number of frames that its sender has received so far. A new link begins
 * with SYNC both ways; then each side drops the frames that the peer has and sends the rest again.
 * So a request runs once, however often its bytes cross the network, and a reply is a frame like
 * any other. A frame never moves to another channel. Only receiving ends a link: after a failed
 * send, the bytes that have arrived are still received.
 *
 * Which connection. The side with the greater address makes all connections. If the other side has
 * something to send first, its dial requests a connect-back (connect/manager.h): it authenticates
 * itself, and then the greater side's connection manager dials, even if that endpoint's owner does
 * not poll. So all connections of one lane and generation are made by the same side. And an
 * endpoint that has written everything to a socket may exit, since the peer gives a socket up only
 * after it has read to its end. Each connection has a generation, later than the last one that the
 * dialling side knew. A channel adopts a connection later than its present or last one, and closes
 * any other. Changing connections is always safe, because of SYNC. After a break the greater side
 * dials at once, the other side NET_LATER_MS later, if no connection has come by then.
 *
 * Room. A channel's ring has a part for requests and a part for replies. A request reserves its
 * reply's room in the responder's ring. The requester counts its reservations, so there is always
 * room for a reply. A reservation ends with the reply, or with the responder's report that there
 * will be none. That report is a running total, as acknowledgements are, so it may be lost or
 * repeated. A peer that reserves more than there is breaks the protocol (EPROTO). ACK frames take
 * no room in the ring: they are made when they are sent.
 *
 * Bulk. The payload of a bulk frame is not copied into the ring. Each time that some of it is sent
 * or received, the core is asked for its memory (bulk_hold), and lends it for the duration of that
 * call. When the memory is gone (its region closed, its operation ended), a request becomes VOID
 * and a reply one without payload. If part of the payload was sent already, the link is dropped
 * first.
 *
 * Loss. A broken connection is dialled again by the rules of connect/manager.h. When the dial is
 * given up, the session is dead: its links are closed, its frames dropped, its operations fail. A
 * network that drops everything silently is noticed by keepalive and TCP_USER_TIMEOUT within half
 * of WEFT_PEER_TIMEOUT. A path on which connections are made but large packets are dropped counts
 * as a loss, too (wf_net_chan_is_stuck).
 *
 * Order. Control requests without bulk take lane 0, so they stay in order. All other messages take
 * the channel with the least left to send.
 *
 * When bytes are sent. A message is sent at once, unless more than PROMPT were sent since the last
 * poll. Then a message that follows the last send within QUIET_NS waits for more, at most until
 * poll, arm, or BATCH bytes. So a stream of small messages shares system calls, and single messages
 * do not wait.
 *
 * Threads. Only the endpoint's owner uses its sessions, channels and links. The connection
 * manager's thread hands over connections by the endpoint's inbox, under its lock, and an eventfd.
 * The inbox of an endpoint that is not polled takes NET_ARRIVALS_MAX connections, or a quarter of
 * RLIMIT_NOFILE if that is less, since the program needs descriptors, too. (Connections whose
 * handshake is under way are taken beyond that.) Later connections are refused as BUSY, and the
 * peer dials again. */
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

/* Bytes of a channel's ring for replies: part of the protocol. */
#define NET_REPLY_ROOM 65536u
#define NET_RX_SIZE 262144u /* an endpoint's receive buffer */
#define NET_ARRIVALS_MAX 1024u
#define NET_LATER_MS 100 /* delay of the smaller address's dial after a break */

WF_LOCK_CLASS(net_ctx_lock_class); /* struct net_ctx.lock */
WF_LOCK_CLASS(net_ep_lock_class);  /* struct net_ep.lock */

struct net_ctx {
    struct wf_tctx base;
    const struct net_driver *driver;
    struct wf_conn_mgr *mgr;
    struct wf_contact contact; /* constant */
    pthread_mutex_t lock;
    struct wf_list eps WF_UNDER(net_ctx_lock_class);
    int *fds WF_UNDER(net_ctx_lock_class); /* sockets of links: a forked child must close them */
    uint32_t nfds, fds_room WF_UNDER(net_ctx_lock_class);
    unsigned arrivals_max; /* constant: connections that wait for an endpoint's owner to poll */
};

static inline WF_ACQUIRES(net_ctx_lock_class) void net_ctx_lock(struct net_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
}

static inline WF_RELEASES(net_ctx_lock_class) void net_ctx_unlock(struct net_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

/* The address fields that all processes of a node have in common, kept once for all peers there. */
struct net_node {
    uint64_t node, netns, pidns;
    uint32_t uid;
    uint8_t count;
    uint8_t ip[WF_CONTACT_IPS][16];
};

struct net_token {
    struct wf_token base;
    struct net_chan *chan;
    uint32_t room; /* reply_max of the request */
};

/* An endpoint's closing, with all its time limits. */
struct net_closing {
    bool begun;
    uint32_t limit_ms;  /* for the peers to take the last messages */
    uint64_t until_ns;  /* when limit_ms ends */
    uint64_t settle_ns; /* time left to flush all links together */
};

struct net_ep {
    struct wf_tep base;
    struct net_ctx *ctx;
    const struct net_driver *driver;
    struct wf_address address;
    struct wf_list item; /* ctx->eps */
    int outer_fd;        /* the owner's epoll descriptor */
    int epoll_fd;        /* the sockets; -1: none yet */
    struct wf_list live; /* channels with a link */
    struct wf_list
        grave; /* ended channels, freed at the end of the poll: epoll events may name them */
    struct wf_list dirty; /* channels that the next poll flushes */
    unsigned lanes;       /* channels that this side makes in a session */
    unsigned nlive;
    unsigned idle; /* empty polls in a row */
    uint32_t polls;
    bool look;              /* the next poll looks at all links */
    bool undialled;         /* a dial failed for want of memory: each poll tries again */
    struct net_token token; /* of the message being delivered */
    struct net_closing closing;
    int events;  /* of this poll */
    uint8_t *rx; /* NET_RX_SIZE; null until the first link */
    struct wf_addr_table sessions;
    uint32_t ndead;
    uint64_t next_session; /* the number of the newest session */
    struct wf_list dead;   /* dead sessions, the oldest first */
    struct net_peer **peers;
    uint32_t npeers, peers_room;
    struct net_node *nodes;
    uint32_t nnodes, nodes_room;
    struct net_shuffle *shuffle; /* null: messages are delivered in order */
    /* Shared with the connection manager's thread. */
    pthread_mutex_t lock;
    _Atomic int inbox;                                   /* 1: arrivals or results is not empty */
    struct wf_list arrivals WF_UNDER(net_ep_lock_class); /* struct wf_net_conn */
    unsigned narrivals WF_UNDER(net_ep_lock_class);      /* length of arrivals */
    struct wf_list results WF_UNDER(net_ep_lock_class);  /* struct wf_dial_result */
    struct wf_addr_table
        gone WF_UNDER(net_ep_lock_class); /* dead sessions: their connections are turned
                                           * away by the connection manager's thread */
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
    struct net_session *session; /* null until the first message either way */
    uint64_t token[2], start;
    uint32_t pid, ep_gen, node, index; /* node in ep->nodes, index in ep->peers */
    uint16_t ep, port;
    int16_t status; /* of the session that ended */
};

struct net_session {
    struct wf_addr_entry known; /* in ep->sessions, by the peer's address */
    struct wf_addr_entry gone;  /* in ep->gone, once the session is dead */
    struct wf_list item;        /* ep->dead */
    struct net_ep *ep;
    struct wf_contact contact;
    void *conn;              /* the core's */
    enum weft_status status; /* not OK: how it ended */
    struct net_peer *handle; /* one of its open handles, or null */
    bool is_greater;         /* this side's address is the greater one */
    uint16_t bye;            /* lanes by which the peer sends BYE, a bit each; 0: it has not yet */
    uint64_t number, theirs; /* this side's number of the session, the peer's; 0: not known yet */
    uint64_t sent_ns;        /* when something was last sent */
    uint32_t burst, burst_poll; /* messages since poll number burst_poll */
    unsigned nchans;
    unsigned turn;                            /* takes ordered requests now, modulo nchans */
    struct net_chan *chans[WF_NET_LANES_MAX]; /* [nchans], null: never used */
};

/* A bulk frame in the ring. */
struct net_bulk {
    struct wf_bulk bulk; /* args: below; len 0: the frame has become VOID */
    bool lost;           /* the payload's memory is not mapped any more */
    uint32_t at;         /* its frame's offset in the ring */
    uint32_t args[WEFT_AM_MAX_ARGS];
};

/* Ring offsets count bytes and wrap at 2^32; the ring's size is a power of two. Frame
 * numbers count and wrap, too. */
struct net_chan {
    struct net_session *session;
    struct wf_list live, dirty;
    struct net_link *link; /* null: none */
    uint16_t index;        /* the lane */
    bool up;               /* the link may be written to */
    bool synced;           /* the peer's SYNC came by this link */
    bool open;        /* frames may be written: synced, or no frame was written to an earlier link,
                       * so the peer has received none */
    bool half_closed; /* nothing is sent any more: the peer's bytes are still received, then the
                       * link is dropped */
    bool faulted;     /* memory lent to one of its requests was unmapped: the session ends with the
                       * link */
    bool starved;     /* a message was refused for want of room */
    bool blocked;     /* the link takes no more now; it will report room */
    bool was_silent;  /* the last link ended because nothing was received for long */
    bool bye;         /* the peer sent BYE, and sends nothing more */
    bool was_stuck;   /* an earlier link ended in silence, with frame stuck_at unacknowledged */
    bool lost;        /* it never had a link and cannot have one: the session goes on without it */
    bool avoid;       /* its driver changes its link soon: new messages take other channels */
    uint32_t stuck_at;
    uint32_t gen;          /* of its present or last connection; 0: it never had one */
    uint64_t dial;         /* the number of a dial under way; 0: none */
    struct net_path *path; /* the driver's state of this channel; null: none */

    /* out */
    uint8_t *ring;
    uint32_t mask, request_room;
    uint32_t tail, at, sent, head; /* oldest frame kept; frame not yet wholly written; its next byte
                                    * to be written; end */
    uint32_t first, next;          /* number of the frame at tail; of the next frame */
    uint32_t written, reached;     /* frames wholly written to this link; to any link */
    uint32_t request_bytes, reply_bytes; /* in the ring */
    uint32_t reserved;                   /* bytes of the peer's ring, for replies */
    uint32_t returned;                   /* the peer's last total of reply room that it
                                          * did not use */
    struct net_bulk *bulks;              /* a ring of bulks_room, a power of two */
    uint32_t bulks_room, bulk_first, bulk_at, bulk_end; /* kept; next to be written; end */
    uint32_t bulk_sent;                                 /* bytes written of bulk_at's payload */
    uint8_t control[48];                                /* ACK or SYNC */
    uint32_t control_len, control_sent;

    /* in */
    uint32_t taken, acked;    /* counted frames received; acknowledged */
    uint32_t taken_bytes;     /* bytes received since the last acknowledgement */
    uint32_t unreplied;       /* bytes of reply room that was not used, in all */
    uint32_t unreplied_acked; /* [unreplied] as last reported */
    uint8_t *stash;           /* the beginning of a frame */
    uint32_t stash_len;
    struct {
        struct wf_net_frame frame; /* kind 0: none under way */
        uint32_t args[WEFT_AM_MAX_ARGS];
        uint32_t got, skip; /* bytes of payload received; of padding left */
        bool lost;          /* some payload was dropped: there was no memory for it */
    } bulk;
};

#define NET_OF(ptr, type) ((struct type *)(void *)(ptr))

static inline void wf_net_count(struct net_ep *ep, enum wf_stat stat, uint64_t n)
{
    uint64_t *c = &ep->base.counters[stat];
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* Ring offsets and frame numbers: how far [b] is past [a]. */
static inline uint32_t wf_net_past(uint32_t a, uint32_t b)
{
    return b - a;
}

/* ---- fds.c ---- */

/* The list of sockets that a forked child must close. note: the caller holds ctx->lock; false: no
 * memory. */
WF_REQUIRES(net_ctx_lock_class) bool wf_net_fd_note(struct net_ctx *ctx, int fd);
void wf_net_fd_forget(struct net_ctx *ctx, int fd);
/* The epoll descriptor of the endpoint's sockets, made once. False: errno. */
bool wf_net_epoll_make(struct net_ep *ep);

/* ---- ep.c ---- */

/* A context of [size] bytes that begin with struct net_ctx. As wf_transport.ctx_open. */
enum weft_status wf_net_ctx_open(const struct wf_transport *transport,
                                 const struct net_driver *driver,
                                 const struct wf_tctx_params *params, size_t size,
                                 struct net_ctx **out);
void wf_net_ctx_close(struct wf_tctx *tctx);
/* Has the process a key, or will it get one? Without one nobody can be authenticated. False:
 * *params->why. */
bool wf_net_has_key(const struct wf_tctx_params *params);
enum weft_status wf_net_set_key(struct wf_tctx *tctx, const uint8_t *key);
const struct wf_contact *wf_net_contact(struct wf_tctx *tctx);

/* An endpoint of [size] bytes that begin with struct net_ep. As wf_transport.ep_open. */
enum weft_status wf_net_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                size_t size, struct net_ep **out);
/* Send the last messages, end all sessions. Then wf_net_ep_free. */
void wf_net_ep_shut(struct net_ep *ep);
void wf_net_ep_free(struct net_ep *ep);
/* Process the inbox, and dials that failed for want of memory. */
void wf_net_poll_due(struct net_ep *ep);
/* Call [act] for each channel that epoll reports. */
void wf_net_ready_each(struct net_ep *ep, void (*act)(struct net_chan *chan));
enum weft_status wf_net_arm(struct wf_tep *tep);
void wf_net_disarm(struct wf_tep *tep);

void wf_net_flush_all(struct net_ep *ep);
void wf_net_grave_empty(struct net_ep *ep);
void wf_net_shuffle_deliver(struct net_ep *ep);

/* A driver's poll: begin, read links, end. */
static inline void wf_net_poll_begin(struct net_ep *ep)
{
    if (__builtin_expect(atomic_load_explicit(&ep->inbox, memory_order_acquire) | ep->undialled, 0))
        wf_net_poll_due(ep);
    if (!wf_list_empty(&ep->dirty))
        wf_net_flush_all(ep);
    ep->polls++;
}

static inline void wf_net_poll_end(struct net_ep *ep)
{
    if (__builtin_expect(ep->shuffle != NULL, 0))
        wf_net_shuffle_deliver(ep);
    if (!wf_list_empty(&ep->dirty))
        wf_net_flush_all(ep);
    if (!wf_list_empty(&ep->grave))
        wf_net_grave_empty(ep);
}

/* Instead of reading links and poll_end, when there is no link: the owner may sleep. */
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

/* Call [act] for every channel with a link, round-robin. */
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
struct wf_tpeer *wf_net_find(struct wf_tep *tep, const struct wf_address *address, uint32_t *at);
void wf_net_address(const struct wf_tpeer *tpeer, struct wf_address *out);
bool wf_net_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b);
/* Is [peer] a handle of the endpoint at [address]? */
bool wf_net_peer_is(const struct net_peer *peer, const struct wf_address *address);
void wf_net_peer_address(const struct net_peer *peer, struct wf_address *out,
                         struct wf_contact *contact);

/* ---- ops.c: functions of a transport's table ---- */

enum weft_status wf_net_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
enum weft_status wf_net_request_ordered(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                        const void *data, size_t len, size_t reply_max);
enum weft_status wf_net_request_after(struct wf_tpeer *tpeer, struct wf_order *order,
                                      unsigned handler, const uint32_t *args, unsigned nargs,
                                      const void *data, size_t len, size_t reply_max);
enum weft_status wf_net_request_bulk(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                     size_t reply_max, struct wf_order *order);
enum weft_status wf_net_reply(struct wf_token *token, const struct wf_am_out *out);
enum weft_status wf_net_reply_bulk(struct wf_token *token, const struct wf_bulk *bulk);
bool wf_net_is_away(struct wf_tpeer *tpeer, struct wf_order *order);
enum weft_status wf_net_heed(struct wf_tpeer *tpeer);
void wf_net_source(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);
enum weft_status wf_net_pull(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len);
enum weft_status wf_net_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie);
void wf_net_remote_unmap(struct wf_tpeer *tpeer, void *cookie);
enum weft_status wf_net_status(struct wf_tpeer *tpeer);
enum weft_status wf_net_failed(const struct wf_tpeer *tpeer);

/* What the tables of all transports over channels have in common. */
#define WF_NET_OPS                                                                                 \
    .tpeer_size = sizeof(struct net_peer), .set_key = wf_net_set_key, .contact = wf_net_contact,   \
    .peer_open = wf_net_peer_open, .peer_close = wf_net_peer_close, .request = wf_net_request,     \
    .request_ordered = wf_net_request_ordered, .request_after = wf_net_request_after,              \
    .request_bulk = wf_net_request_bulk, .reply = wf_net_reply, .reply_bulk = wf_net_reply_bulk,   \
    .source = wf_net_source, .is_away = wf_net_is_away, .arm = wf_net_arm,                         \
    .disarm = wf_net_disarm, .heed = wf_net_heed, .find = wf_net_find, .address = wf_net_address,  \
    .is_same = wf_net_is_same, .pull = wf_net_pull, .remote_map = wf_net_remote_map,               \
    .remote_unmap = wf_net_remote_unmap, .flush = wf_net_status, .status = wf_net_status,          \
    .failed = wf_net_failed

/* ---- session.c ---- */

struct net_session *wf_net_session_find(struct net_ep *ep, const struct wf_address *to);
/* Has endpoint [from] of this process, whose owner calls, a session with [to]? */
bool wf_net_has_session(struct net_ctx *ctx, const struct wf_address *from,
                        const struct wf_address *to);
/* Null: no memory. */
struct net_session *wf_net_session_make(struct net_ep *ep, const struct wf_address *to,
                                        const struct wf_contact *contact);
void wf_net_session_free(struct net_session *session);
/* The peer is lost or has closed: end the session, and remember the peer's address. */
void wf_net_session_end(struct net_session *session, enum weft_status why);
/* The peer sent BYE on one of [lanes], and will send it on each of them. */
void wf_net_session_bye(struct net_session *session, uint32_t lanes);
/* Make [peer] a handle of [session]; detach it. */
void wf_net_session_hold(struct net_session *session, struct net_peer *peer);
void wf_net_session_let_go(struct net_peer *peer);
/* Choose a message's channel. Null: no memory. */
struct net_chan *wf_net_session_pick(struct net_session *session, bool ordered);
struct net_chan *wf_net_session_pick_bulk(struct net_session *session);
/* The channel of the message that [order] names, if the peer has not acknowledged that; else the
 * next in turn, or as pick_bulk if [bulk]. */
struct net_chan *wf_net_session_pick_ordered(struct net_session *session,
                                             const struct wf_order *order, bool bulk);
/* Is a channel other than [chan] in use? */
bool wf_net_session_has_other(const struct net_session *session, const struct net_chan *chan);
void wf_net_session_linger(struct net_session *session);     /* all channels that sent everything */
void wf_net_session_chans_free(struct net_session *session); /* all channels */
static inline struct wf_tpeer *wf_net_session_peer(const struct net_session *session)
{
    return session->handle ? &session->handle->base : NULL;
}

/* ---- events.c ---- */

extern const struct wf_conn_mgr_events wf_net_mgr_events;
/* Process the inbox; free it unprocessed. */
void wf_net_inbox(struct net_ep *ep);
void wf_net_inbox_drop(struct net_ep *ep);
/* Repeat dials that failed for want of memory. */
void wf_net_sessions_dial(struct net_ep *ep);

/* ---- close.c ---- */

/* Send BYE to all peers. Wait, for a limited time, until they or their kernels have it. */
void wf_net_close(struct net_ep *ep);

/* ---- channel.c ---- */

/* Channel [index] of [session], made if need be. Null: no memory. */
struct net_chan *wf_net_session_chan(struct net_session *session, unsigned index);
void wf_net_chan_free(struct net_chan *chan);
/* Dial, unless that is under way or there is a link. */
void wf_net_chan_dial(struct net_chan *chan, uint32_t delay_ms);
/* Make a link of [conn], or close it if it is not later than the channel's. Takes [conn] over. */
void wf_net_chan_adopt(struct net_chan *chan, struct wf_net_conn *conn);
/* The peer does not know this session: send BYE. */
void wf_net_chan_turn_away(struct net_chan *chan);
/* Wait, for a short time, until the link is flushed. */
void wf_net_chan_settle(struct net_chan *chan);
/* Everything was sent: hand the link's socket to the connection manager. */
void wf_net_chan_linger(struct net_chan *chan);
/* The link ended in silence. Is it the second one after the peer's SYNC, without an acknowledged
 * frame in between? Then the path passes small packets but drops large ones, and another connection
 * would not help. */
bool wf_net_chan_is_stuck(struct net_chan *chan);
/* Process SYNC. OK | EPROTO | EPEER (it is of another session) */
enum weft_status wf_net_chan_sync(struct net_chan *chan, const struct wf_net_frame *f,
                                  const struct wf_net_sync *sync);
/* The peer has received all frames before number [ack]; leaves [returned] bytes of reply room
 * unused in all. OK | EPROTO */
enum weft_status wf_net_chan_acked(struct net_chan *chan, uint32_t ack);
enum weft_status wf_net_chan_returned(struct net_chan *chan, uint32_t returned);
/* There is room again: the core retries refused messages (poll counts an event). */
void wf_net_chan_fed(struct net_chan *chan);

/* ---- send.c ---- */

/* Bytes of a frame in the ring. */
uint32_t wf_net_ring_size_of(const struct wf_net_frame *f);
static inline struct wf_net_frame *wf_net_frame_at(const struct net_chan *chan, uint32_t at)
{
    return (struct wf_net_frame *)(void *)(chan->ring + (at & chan->mask));
}
/* Is there room in the ring for a frame of [bytes]? */
bool wf_net_has_room(const struct net_chan *chan, uint32_t bytes, bool is_reply);
/* Put a frame in the ring. The caller has checked that there is room. */
void wf_net_append(struct net_chan *chan, enum wf_net_kind kind, const struct wf_am_out *out,
                   uint32_t room);
/* The same for a bulk frame. OK | ENOMEM */
enum weft_status wf_net_append_bulk(struct net_chan *chan, enum wf_net_kind kind,
                                    const struct wf_bulk *bulk, uint32_t room);
void wf_net_append_bye(struct net_chan *chan, uint32_t lanes);
/* Send as much as the link takes. */
void wf_net_flush(struct net_chan *chan);
/* After an append: send now, or later with more messages. */
void wf_net_flush_soon(struct net_chan *chan);
void wf_net_dirty(struct net_chan *chan);
/* Remove the oldest frame from the ring. */
void wf_net_frame_drop(struct net_chan *chan);
/* Are received frames unacknowledged? So many that an ACK should be sent now? */
bool wf_net_ack_is_due(const struct net_chan *chan);
bool wf_net_ack_is_urgent(const struct net_chan *chan);
/* Are there bytes that the link has not accepted, or not sent? */
bool wf_net_has_unsent(const struct net_chan *chan);

/* ---- recv.c ---- */

/* Does this error of a socket mean that nothing was received for long? */
static inline bool wf_net_is_silence(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH;
}
/* Hand a message to the core; [args] and [data] are valid during the call. */
void wf_net_deliver(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                    const void *data, uint64_t long_len);

/* ---- shuffle.c ---- */

/* Copy the message to deliver it later? False: deliver it now. */
bool wf_net_shuffle_keep(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                         const void *data);
/* Deliver all messages of [session] that are kept. */
void wf_net_shuffle_end(struct net_session *session);
bool wf_net_shuffle_is_empty(const struct net_ep *ep);
bool wf_net_shuffle_open(struct net_ep *ep); /* false: no memory */
void wf_net_shuffle_close(struct net_ep *ep);

/* ---- for drivers: what link.h offers on hot paths ---- */

/* The link of lane 0, or null. */
static inline struct net_link *wf_net_peer_link(const struct wf_tpeer *tpeer)
{
    const struct net_session *session = ((const struct net_peer *)(const void *)tpeer)->session;
    const struct net_chan *chan = session ? session->chans[0] : NULL;
    return chan ? chan->link : NULL;
}

/* Report to the core that a NIC operation ended, or the [n] oldest short puts to [tpeer]: as
 * nic_op_done, put_done and put_lost of wf_tep_events. */
static inline void wf_net_chan_nic_op_done(const struct net_chan *chan, uint32_t id,
                                           enum weft_status status, uint64_t old)
{
    struct net_ep *ep = chan->session->ep;
    ep->events++;
    ep->base.events->nic_op_done(ep->base.owner, id, status, old);
}

static inline void wf_net_chan_puts_done(const struct net_chan *chan, struct wf_tpeer *tpeer,
                                         uint32_t n)
{
    struct net_ep *ep = chan->session->ep;
    ep->events += (int)n;
    ep->base.events->put_done(ep->base.owner, tpeer, n);
}

static inline void wf_net_chan_puts_lost(const struct net_chan *chan, struct wf_tpeer *tpeer,
                                         bool refused)
{
    const struct net_ep *ep = chan->session->ep;
    ep->base.events->put_lost(ep->base.owner, tpeer, 1, refused);
}

#endif
