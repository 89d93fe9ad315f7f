/* SPDX-License-Identifier: BSD-3-Clause */
/* The exactly-once channel of the network transports: it behaves as a reliable NIC would, over
 * connections that break. tcp/ and rdma/ are its drivers (link.h).
 *
 *   proto.h     bytes of handshakes and frames, and their parsers
 *   connect/    the connection manager: listening, dialling, authenticating; one thread a context
 *   ep.c        contexts and endpoints; the parts of polling and arming that drivers share
 *   peer.c      handles of remote endpoints
 *   ops.c       the transport's functions: requests, replies, bulk, ordered requests, keys
 *   session.c   two endpoints' association: its handles, its channels, its end
 *   events.c    what the connection manager hands over: connections and results of dials
 *   close.c     the end of an endpoint: last messages, BYE
 *   fds.c       the sockets of links: epoll, fork, their end
 *   channel.c   an exactly-once stream of frames, which outlives its links
 *   send.c      from the core into a channel's ring, from there to its link
 *   recv.c      from a link to the core
 *   shuffle.c   WEFT_DEBUG=shuffle
 *
 * Sessions. A session is the association of two endpoints, one of them here. The first message to a
 * peer makes it, or the first connection from one. It lives until one of the two endpoints closes
 * (BYE) or is found dead; then its address is remembered as that of a dead endpoint, whose
 * connections are turned away. Generation and token tell endpoints apart, so nothing of an old
 * incarnation is taken for the new one's.
 *
 * Channels. A session has 1 to WEFT_TCP_LANES channels; a channel's index is its lane. A channel is
 * an ordered, exactly-once stream of frames in each direction. It has at most one link at a time;
 * its state is not the link's. Sent frames stay in the channel's ring until the peer acknowledges
 * them: each frame carries the count of frames taken so far. A new link begins with SYNC both ways;
 * then each side drops what the other one has and sends the rest again. So a request runs once,
 * however often its bytes cross the network, and a reply is a frame like any other. A frame never
 * moves to another channel. Only receiving ends a link: after a failed send, what has come is still
 * received.
 *
 * Which connection. The side with the greater address makes all connections. If the other side has
 * something to send first, it dials to be called back (connect/manager.h): it authenticates itself,
 * and the greater side's connection manager dials, whatever that endpoint's owner does. So no two
 * connections of one lane and generation differ in their maker, and an endpoint that has written
 * everything to a socket may leave: the peer gives a socket up only after it has read it to its
 * end. Each connection has a generation, later than the last one that the dialling side knew. A
 * channel takes a later connection than it has or had and closes any other. Changing connections is
 * always safe, because of SYNC. After a break the greater side dials at once, the other one
 * NET_LATER_MS later, if no connection has come by then.
 *
 * Room. A channel's ring has a part for requests and a part for replies. A request reserves its
 * reply's room in the responder's ring; the requester counts what it has reserved, so a reply never
 * finds the ring full. The reservation ends with the reply, or with the responder's report that
 * there will be none. That report is a running total, as acknowledgements are: it may be lost or
 * repeated. A peer that overdraws breaks the protocol (EPROTO). ACK frames take no room in the
 * ring: they are made when they are sent.
 *
 * Bulk. The payload of a bulk frame is not copied into the ring. The core is asked where it is each
 * time that some of it is sent or received (bulk_hold), for the duration of that call. When it is
 * nowhere any more (its region closed, its operation ended), a request becomes VOID and a reply one
 * without payload; if part of it was sent already, the link is dropped first.
 *
 * Loss. A broken connection is dialled again by the rules of connect/manager.h. When the dial is
 * given up, the session is dead: its links are closed, its frames dropped, its operations fail.
 * Unless the kernel reports more, keepalive and TCP_USER_TIMEOUT notice a silent cut within half of
 * WEFT_PEER_TIMEOUT. A path that lets connections be made but nothing long through is a loss, too
 * (wf_net_chan_is_stuck).
 *
 * Order. Control requests that are no bulk take lane 0, so they stay in order. All others take the
 * channel with the least left to send.
 *
 * When bytes leave. A message is sent at once, unless more than PROMPT were sent since the last
 * poll: then one that follows the last send within QUIET_NS waits for more, at most until poll,
 * arm, or BATCH bytes. So a stream of small messages shares system calls, and single ones wait for
 * nothing.
 *
 * Threads. All is the endpoint's owner's, except that the connection manager's thread hands over
 * connections by the endpoint's inbox, under its lock, and an eventfd. The inbox of an endpoint
 * that is not polled takes NET_ARRIVALS_MAX connections, or a quarter of RLIMIT_NOFILE where that
 * is less (and those whose handshake is under way then): the descriptors are the program's, too.
 * Later connections are refused as BUSY and come again. */
#ifndef WF_TRANSPORT_NET_NET_H
#define WF_TRANSPORT_NET_NET_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/util.h"
#include "config/stats.h"
#include "transport/addr_table.h"
#include "transport/net/connect/manager.h"
#include "transport/net/link.h"

/* Replies that a side keeps room for, per channel: part of the protocol. */
#define NET_REPLY_ROOM 65536u
#define NET_RX_SIZE 262144u /* an endpoint's receive buffer */
#define NET_ARRIVALS_MAX 1024u
#define NET_LATER_MS 100 /* the side with the smaller address dials so much later after a break */

struct net_ctx {
    struct wf_tctx base;
    const struct net_driver *driver;
    struct wf_conn_mgr *mgr;
    struct wf_contact contact; /* constant */
    pthread_mutex_t lock;
    struct wf_list eps WF_GUARDED_BY(lock);
    int *fds WF_GUARDED_BY(lock); /* sockets that links have: a forked child must not keep them */
    uint32_t nfds, fds_room WF_GUARDED_BY(lock);
    unsigned arrivals_max; /* constant: connections that wait for an endpoint's owner to poll */
};

/* What the processes of a node have in common: kept once for all peers there. */
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

/* The end of an endpoint: all limits of everything below it. */
struct net_closing {
    bool begun;
    uint32_t limit_ms;  /* for the peers to take the last messages */
    uint64_t until_ns;  /* the same, as a time */
    uint64_t settle_ns; /* left for all links together to be flushed in */
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
        grave; /* ended channels, freed when the poll is over: epoll events may name them */
    struct wf_list dirty; /* channels with something to send that no event is awaited for */
    unsigned lanes;       /* channels of a session, if this side begins them */
    unsigned nlive;
    unsigned idle; /* empty polls in a row */
    uint32_t polls;
    bool look;              /* the next poll looks at all links */
    bool undialled;         /* there was no memory to dial for some channel: tried at each poll */
    struct net_token token; /* of the message being delivered */
    struct net_closing closing;
    int events;  /* of this poll */
    uint8_t *rx; /* NET_RX_SIZE; null until the first link */
    struct wf_addr_table sessions;
    uint32_t ndead;
    uint64_t next_session; /* numbers of sessions */
    struct wf_list dead;   /* sessions, the oldest first */
    struct net_peer **peers;
    uint32_t npeers, peers_room;
    struct net_node *nodes;
    uint32_t nnodes, nodes_room;
    struct net_shuffle *shuffle; /* null: messages are delivered as they come */
    /* From the connection manager's thread. */
    pthread_mutex_t lock;
    _Atomic int inbox;                             /* something is in arrivals or results */
    struct wf_list arrivals WF_GUARDED_BY(lock);   /* struct wf_net_conn */
    unsigned narrivals WF_GUARDED_BY(lock);        /* since they were taken last */
    struct wf_list results WF_GUARDED_BY(lock);    /* struct wf_dial_result */
    struct wf_addr_table gone WF_GUARDED_BY(lock); /* dead sessions: their connections are turned
                                                    * away by the connection manager's thread */
};

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
    struct wf_addr_entry known; /* by the other endpoint's address */
    struct wf_addr_entry gone;  /* the same, once it is dead: ep->gone */
    struct wf_list item;        /* ep->dead */
    struct net_ep *ep;
    struct wf_contact contact;
    void *conn;              /* the core's */
    enum weft_status status; /* not OK: how it ended */
    struct net_peer *handle; /* one of those that are open, or null */
    bool is_greater;         /* this side's address is the greater one */
    uint16_t bye;            /* lanes by which the peer sends BYE, a bit each; 0: it did not yet */
    uint64_t number, theirs; /* of this session at either side; theirs 0: not known yet */
    uint64_t sent_ns;        /* when something was last sent */
    uint32_t burst, burst_poll; /* messages since poll number burst_poll */
    unsigned nchans;
    unsigned turn;                            /* of channels for ordered requests */
    struct net_chan *chans[WF_NET_LANES_MAX]; /* [nchans], null: never used */
};

/* A bulk frame in the ring. */
struct net_bulk {
    struct wf_bulk bulk; /* args: below; len 0: it has become VOID */
    bool lost;           /* its memory is not mapped any more */
    uint32_t at;         /* of its frame in the ring */
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
    bool open;        /* frames may be written: synced, or this is the first link that frames are
                       * written to, so the peer has taken none */
    bool half_closed; /* nothing is sent any more: what the peer sent is still received, then the
                       * link is dropped */
    bool faulted; /* memory of one of its requests was unmapped: the session ends with the link */
    bool starved; /* a message was refused for want of room */
    bool blocked; /* the link took no more: it reports when there is room */
    bool was_silent; /* the last link ended because nothing was received for long */
    bool bye;        /* the peer sends nothing more */
    bool was_stuck;  /* so did an earlier link, with frame stuck_at not acknowledged */
    bool lost;       /* it never had a link and cannot have one: the others go on without it */
    bool avoid;      /* its driver changes its link soon: new messages take other channels */
    uint32_t stuck_at;
    uint32_t gen;          /* of the connection it has, or had last; 0: never had one */
    uint64_t dial;         /* the number of a dial under way; 0: none */
    struct net_path *path; /* the driver's own of this channel; null: none */

    /* out */
    uint8_t *ring;
    uint32_t mask, request_room;
    uint32_t tail, at, sent, head; /* oldest frame kept; frame that is next to be written or partly
                                    * is; next byte of it to be written; end */
    uint32_t first, next;          /* number of the frame at tail; frames there have been */
    uint32_t written, reached;     /* frames wholly written to this link; to any */
    uint32_t request_bytes, reply_bytes; /* in the ring */
    uint32_t reserved;                   /* of the peer's ring, for replies */
    uint32_t returned;                   /* the peer's last total of places that it did
                                          * not reply to */
    struct net_bulk *bulks;              /* a ring of bulks_room, a power of two */
    uint32_t bulks_room, bulk_first, bulk_at, bulk_end; /* kept; next to be written; end */
    uint32_t bulk_sent;                                 /* payload of that one */
    uint8_t control[48];                                /* ACK or SYNC */
    uint32_t control_len, control_sent;

    /* in */
    uint32_t taken, acked;    /* counted frames received; as acknowledged last */
    uint32_t taken_bytes;     /* since then */
    uint32_t unreplied;       /* places of requests that were not replied to, in all */
    uint32_t unreplied_acked; /* as reported last */
    uint8_t *stash;           /* the beginning of a frame */
    uint32_t stash_len;
    struct {
        struct wf_net_frame frame; /* kind 0: none under way */
        uint32_t args[WEFT_AM_MAX_ARGS];
        uint32_t got, skip; /* bytes of payload; of padding left */
        bool lost;          /* some found no place */
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

/* Sockets that a forked child must close. note: the caller holds ctx->lock; false: no memory. */
bool wf_net_fd_note(struct net_ctx *ctx, int fd);
void wf_net_fd_forget(struct net_ctx *ctx, int fd);
/* The descriptor of all sockets, made once. False: errno. */
bool wf_net_epoll_make(struct net_ep *ep);

/* ---- ep.c ---- */

/* A context of [size] bytes that begin with struct net_ctx. As wf_transport.ctx_open. */
enum weft_status wf_net_ctx_open(const struct wf_transport *transport,
                                 const struct net_driver *driver,
                                 const struct wf_tctx_params *params, size_t size,
                                 struct net_ctx **out);
void wf_net_ctx_close(struct wf_tctx *tctx);
/* Will there be a key? Without one nothing can be authenticated. False: *params->why. */
bool wf_net_has_key(const struct wf_tctx_params *params);
enum weft_status wf_net_set_key(struct wf_tctx *tctx, const uint8_t *key);
const struct wf_contact *wf_net_contact(struct wf_tctx *tctx);

/* An endpoint of [size] bytes that begin with struct net_ep. As wf_transport.ep_open. */
enum weft_status wf_net_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                size_t size, struct net_ep **out);
/* Send the last messages, end all sessions. Then wf_net_ep_free. */
void wf_net_ep_shut(struct net_ep *ep);
void wf_net_ep_free(struct net_ep *ep);
/* The inbox, what waits to be sent, dials that are due. */
void wf_net_poll_due(struct net_ep *ep);
/* Call [act] for each channel that epoll reports. */
void wf_net_ready_each(struct net_ep *ep, void (*act)(struct net_chan *chan));
enum weft_status wf_net_arm(struct wf_tep *tep);
void wf_net_disarm(struct wf_tep *tep);

void wf_net_flush_all(struct net_ep *ep);
void wf_net_grave_empty(struct net_ep *ep);
void wf_net_shuffle_deliver(struct net_ep *ep);

/* A poll: begin, unless !nlive have the driver look, end. */
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

/* In their place when there is no link: nothing is to be looked at, and the owner may sleep. */
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

/* Call [act] for every channel with a link, the one after the last that was first first. */
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
/* Is it the one at [address]? */
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

/* ---- session.c ---- */

struct net_session *wf_net_session_find(struct net_ep *ep, const struct wf_address *to);
/* Does endpoint [from] of this process, whose owner asks, know [to] already? */
bool wf_net_has_session(struct net_ctx *ctx, const struct wf_address *from,
                        const struct wf_address *to);
/* Null: no memory. */
struct net_session *wf_net_session_make(struct net_ep *ep, const struct wf_address *to,
                                        const struct wf_contact *contact);
void wf_net_session_free(struct net_session *session);
/* The other endpoint is lost or has closed: all of the session ends, and its address is
 * remembered. */
void wf_net_session_end(struct net_session *session, enum weft_status why);
/* The peer sent BYE on one of [lanes]: it ends all of these so. */
void wf_net_session_bye(struct net_session *session, uint32_t lanes);
/* [peer] is a handle of [session] from now on; is none any more. */
void wf_net_session_hold(struct net_session *session, struct net_peer *peer);
void wf_net_session_let_go(struct net_peer *peer);
/* The channel that a message takes. Null: no memory. */
struct net_chan *wf_net_session_pick(struct net_session *session, bool ordered);
struct net_chan *wf_net_session_pick_bulk(struct net_session *session);
/* The channel of the message that [order] names, if the peer did not take that yet; else each in
 * turn, or as above if [bulk]. */
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
/* Take what the connection manager's thread left. */
void wf_net_inbox(struct net_ep *ep);
void wf_net_inbox_drop(struct net_ep *ep);
/* Dial again where there was no memory to. */
void wf_net_sessions_dial(struct net_ep *ep);

/* ---- close.c ---- */

/* Send BYE everywhere and wait, bounded, until the peers took it, or have it in their kernels. */
void wf_net_close(struct net_ep *ep);

/* ---- channel.c ---- */

/* Channel [index] of [session], made if need be; null: no memory. */
struct net_chan *wf_net_session_chan(struct net_session *session, unsigned index);
void wf_net_chan_free(struct net_chan *chan);
/* Dial, unless that is under way or there is a link. */
void wf_net_chan_dial(struct net_chan *chan, uint32_t delay_ms);
/* Use [conn] from now on, or close it; takes [conn] over. */
void wf_net_chan_adopt(struct net_chan *chan, struct wf_net_conn *conn);
/* The peer does not know this session: send BYE. */
void wf_net_chan_turn_away(struct net_chan *chan);
/* Wait, for a short time, until the link is flushed. */
void wf_net_chan_settle(struct net_chan *chan);
/* All is sent: leave the link's socket to the connection manager. */
void wf_net_chan_linger(struct net_chan *chan);
/* The link ended in silence: is it the second one to do so after the peer had begun to send on it,
 * and no frame was acknowledged in between? Then small packets pass and large ones do not, and
 * another connection would not help. */
bool wf_net_chan_is_stuck(struct net_chan *chan);
/* SYNC came. OK | EPROTO | EPEER (it is of another session) */
enum weft_status wf_net_chan_sync(struct net_chan *chan, const struct wf_net_frame *f,
                                  const struct wf_net_sync *sync);
/* The peer took frames up to number [ack]; will not reply to [returned] bytes of places. OK |
 * EPROTO */
enum weft_status wf_net_chan_acked(struct net_chan *chan, uint32_t ack);
enum weft_status wf_net_chan_returned(struct net_chan *chan, uint32_t returned);
/* There is room again: the core tries what was refused (poll counts an event). */
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
/* Put a frame in the ring; there is room. */
void wf_net_append(struct net_chan *chan, enum wf_net_kind kind, const struct wf_am_out *out,
                   uint32_t room);
/* The same of a bulk frame. OK | ENOMEM */
enum weft_status wf_net_append_bulk(struct net_chan *chan, enum wf_net_kind kind,
                                    const struct wf_bulk *bulk, uint32_t room);
void wf_net_append_bye(struct net_chan *chan, uint32_t lanes);
/* Send what the link takes. */
void wf_net_flush(struct net_chan *chan);
/* After an append: now, or later with more. */
void wf_net_flush_soon(struct net_chan *chan);
void wf_net_dirty(struct net_chan *chan);
/* The oldest frame is not needed any more. */
void wf_net_frame_drop(struct net_chan *chan);
/* Frames were received that are not acknowledged; so many that the peer needs to know. */
bool wf_net_ack_is_due(const struct net_chan *chan);
bool wf_net_ack_is_urgent(const struct net_chan *chan);
/* Is there anything that the link has not been given, or has not sent? */
bool wf_net_has_unsent(const struct net_chan *chan);

/* ---- recv.c ---- */

/* Does this error of a socket mean that nothing was received for long? */
static inline bool wf_net_is_silence(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH;
}
/* Hand a message to the core; [args] and [data] are lent. */
void wf_net_deliver(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                    const void *data, uint64_t long_len);

/* ---- shuffle.c ---- */

/* Keep the message for later? Then it was copied. */
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

/* A NIC operation, or [n] short puts to [tpeer], of which the core was not informed yet, ended: as
 * wf_tep_events' nic_op_done, put_done and put_lost. */
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
