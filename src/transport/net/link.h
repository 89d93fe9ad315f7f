/* SPDX-License-Identifier: BSD-3-Clause */
/* The border between a channel and what carries its bytes.
 *
 *     channel (net/)                          driver (tcp/, rdma/)
 *       struct net_link_ops  ------------>      one link: a socket, a queue pair
 *       struct net_driver    ------------>      all links of an endpoint
 *                            <------------    wf_net_chan_* and wf_net_session_* below
 *
 * A channel has one link or none. The link comes with an authenticated connection of the connection
 * manager, breaks, and is replaced by the next connection's; the channel's frames stay. A driver
 * embeds struct net_link at the start of its own link and knows nothing of a channel, a session or
 * an endpoint but what this file hands out.
 *
 * Who frees a link: its driver, in close, linger or turn_away. The channel has forgotten the link
 * before it calls one of these. A channel outlives the poll in which it ended: epoll events and
 * callers further up the stack may still name it. After an upcall that can deliver (readable,
 * failed, end) a driver compares wf_net_chan_link with its own link before it touches that. */
#ifndef WF_TRANSPORT_NET_LINK_H
#define WF_TRANSPORT_NET_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <weft/weft.h>

#include "transport/address.h"
#include "transport/transport.h"

struct iovec;
struct net_chan;
struct net_ep;
struct net_link_ops;
struct net_path;
struct net_session;
struct wf_aead;
struct wf_net_conn;

struct net_link {
    const struct net_link_ops *ops;
    struct net_chan *chan;
    bool buffered;   /* constant: payload comes through the endpoint's buffer, not to its place */
    bool has_nic;    /* constant: its driver may give it NIC operations, too */
    bool is_full;    /* set by each sendv: it takes no more for now */
    bool has_unsent; /* it accepted bytes that it still has to send */
    bool is_last;    /* one of the two endpoints closes: what is kept in reserve may be used */
    bool synced;     /* the peer's SYNC came by it */
};

struct net_link_ops {
    /* The link is the channel's from now on: prepare it. When bytes may be sent, the link calls
     * wf_net_chan_up, perhaps at once. */
    void (*start)(struct net_link *link);

    /* As sendmsg(2), of [len] bytes in all. [lent]: the piece of [v] that the program lent and may
     * have unmapped, or null; if it has, EFAULT. Sets is_full and has_unsent. */
    ssize_t (*sendv)(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                     const void *lent);
    /* Send one short frame whole. False: not this way; use sendv. Null: never. */
    bool (*send_one)(struct net_link *link, const void *bytes, uint32_t len);

    /* As readv(2); one piece, unless the link is not buffered. */
    ssize_t (*recvv)(struct net_link *link, const struct iovec *v, unsigned n);
    /* In place of the next recvv: *n bytes where they arrived, at a multiple of WF_NET_ALIGN; valid
     * until consume or close. Null: use recvv. All three null: the link has no buffers. */
    uint8_t *(*peek)(const struct net_link *link, size_t *n);
    void (*consume)(struct net_link *link);
    bool (*has_bytes)(const struct net_link *link);
    /* Receive what the peer sent before this call, and no more than that. */
    void (*drain)(struct net_link *link);

    /* End this direction; the other one is still received. */
    void (*half_close)(struct net_link *link);
    /* Has the peer's kernel or NIC everything that was sent? Only an endpoint that closes asks. */
    bool (*flushed)(struct net_link *link);
    /* Poll until flushed, for at most [within_ns]; whether it is. Null: nothing to wait for. */
    bool (*settle)(struct net_link *link, uint64_t within_ns);
    /* Did the peer's kernel acknowledge no more than the handshake and SYNC? */
    bool (*is_stuck)(const struct net_link *link);
    /* Is nothing under way by it, and nothing to be received? Only a driver asks. */
    bool (*is_idle)(const struct net_link *link);
    /* Wake the sleeping owner when there is something to receive, and with [out] also when there is
     * room to send. False: the kernel has no memory. */
    bool (*watch)(struct net_link *link, bool out);

    /* The link's end, one of three; each frees it. */
    void (*close)(struct net_link *link);
    void (*linger)(struct net_link *link);    /* all was sent: the connection manager waits for the
                                               * peer to close its side */
    void (*turn_away)(struct net_link *link); /* send BYE, then linger */
};

/* What carries the channels of an endpoint. */
struct net_driver {
    /* A link of an authenticated connection; takes conn->fd, which is watched (see
     * wf_net_fd_watch). Null: errno, and conn->fd stays the caller's. */
    struct net_link *(*open)(struct net_chan *chan, const struct wf_net_conn *conn);
    /* Receive what came for any link. Looks at all links if ep->look, else as often as pays. */
    void (*progress)(struct net_ep *ep);
    /* Before the owner sleeps: have what only this driver knows of wake it. False: do not sleep.
     * Null: nothing. */
    bool (*arm)(struct net_ep *ep);
    /* How many generations further a channel's next connection is. Null: one. */
    uint32_t (*gen_step)(const struct net_chan *chan);
    /* May messages take other channels than the first? Null: yes. */
    bool (*may_spread)(struct net_session *session);
    /* The channel is freed, and its path with it. Null: it has none. */
    void (*chan_free)(struct net_chan *chan);
    /* The port of a contact by which this driver's endpoints are reached. */
    uint16_t *(*port)(struct wf_contact *contact);
};

/* ---- what a driver may know ---- */

struct net_view {
    const struct wf_address *peer;
    uint32_t gen;        /* of the channel's connection */
    uint32_t ring_bytes; /* most that the channel has unacknowledged */
    uint32_t close_ms;   /* not 0: this endpoint closes, and has so long */
    uint16_t index;      /* the lane */
    bool is_greater;     /* this side's address is: it dials */
    bool up;             /* wf_net_chan_up was called for the link */
    bool peer_closes;    /* the peer sent BYE on this channel */
    bool is_settled;     /* SYNC came, BYE did not, everything sent is acknowledged */
    bool is_lost;        /* the session goes on without this channel */
};
struct net_view wf_net_chan_view(const struct net_chan *chan);

/* ---- upcalls: by a link of [chan], on the owner's thread ---- */

/* Bytes may be sent. */
void wf_net_chan_up(struct net_chan *chan);
/* Something may be received: receive and deliver. */
void wf_net_chan_readable(struct net_chan *chan);
/* There is room to send again. */
void wf_net_chan_writable(struct net_chan *chan);
/* Receiving failed with [error], or came to the end of the stream (0). */
void wf_net_chan_failed(struct net_chan *chan, int error);
/* The link is of no use any more, or another connection is wanted: close it, and dial. */
void wf_net_chan_break(struct net_chan *chan, const char *why);
/* The session ends: EPEER (the peer gave it up) | EPROTO (logged). */
void wf_net_chan_end(struct net_chan *chan, enum weft_status why);
/* [link] takes the place of the channel's link, which the caller frees. */
void wf_net_chan_relink(struct net_chan *chan, struct net_link *link);

/* ---- what else a driver may do ---- */

struct net_link *wf_net_chan_link(const struct net_chan *chan); /* null: none */

/* A message or NIC operation was refused for want of room: writable makes the core try again. */
void wf_net_chan_starved(struct net_chan *chan);
/* New messages avoid the channel while there are others. */
void wf_net_chan_avoid(struct net_chan *chan, bool avoid);
bool wf_net_chan_is_avoided(const struct net_chan *chan);
/* Where the driver keeps its own of the channel. */
struct net_path **wf_net_chan_path(const struct net_chan *chan);
struct net_ep *wf_net_chan_ep(const struct net_chan *chan);

/* A socket that epoll reports as [chan]'s and that a forked child closes. False: errno. */
bool wf_net_fd_watch(struct net_chan *chan, int fd);
bool wf_net_fd_events(struct net_chan *chan, int fd, bool out);
/* Leave a socket on which all was sent to the connection manager; turn_away: send BYE first, as a
 * record of [aead], if that is not null. */
void wf_net_fd_linger(struct net_chan *chan, int fd);
void wf_net_fd_turn_away(struct net_chan *chan, int fd, struct wf_aead *aead);
/* Unwatch a socket and close it. */
void wf_net_fd_close(struct net_chan *chan, int fd);

/* The session of a peer's handle, made if need be. Null: *why. */
struct net_session *wf_net_peer_session(struct wf_tpeer *tpeer, enum weft_status *why);
/* Channel [index], or null. The first is made, and dialled, if need be; null: no memory. */
struct net_chan *wf_net_session_first(struct net_session *session);
struct net_chan *wf_net_session_at(const struct net_session *session, unsigned index);
unsigned wf_net_session_width(const struct net_session *session); /* indices are below it */
struct net_session *wf_net_chan_session(const struct net_chan *chan);
/* Dial all the channels that there may be. */
void wf_net_session_spread(struct net_session *session);

/* ---- the links of sockets (tcp/sock_link.c), which any driver may fall back to ---- */

/* A link of the socket [fd], which it takes, and which is watched; [conn]: with the keys of an
 * encrypted connection, or null. Null: no memory. */
struct net_link *wf_sock_link_open(struct net_chan *chan, int fd, const struct wf_net_conn *conn);

#endif
