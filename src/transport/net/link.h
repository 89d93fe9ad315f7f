/* SPDX-License-Identifier: BSD-3-Clause */
/* The border between channels and the drivers of their links.
 *
 *     channel (net/)                          driver (tcp/, rdma/)
 *       struct net_link_ops  ------------>      one link: a socket, a queue pair
 *       struct net_driver    ------------>      all links of an endpoint
 *                            <------------    wf_net_chan_* and wf_net_session_* below
 *
 * A channel has one link or none. The link comes with an authenticated connection of the connection
 * manager, breaks, and is replaced by the next connection's; the channel's frames stay. A driver
 * embeds struct net_link at the start of its own link and knows no more of a channel, a session or
 * an endpoint than this file offers.
 *
 * A link is freed by its driver, in close, linger or turn_away. The channel drops its pointer to
 * the link before it calls one of these. A channel outlives the poll in which it ended: epoll
 * events and callers further up the stack may still name it. An upcall that can deliver (readable,
 * failed, end) may free the driver's link: after one, a driver compares wf_net_chan_link with its
 * link before it touches that. */
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
    bool buffered;   /* constant: payload is copied from a buffer, not received in place */
    bool has_nic;    /* constant: its driver may give it NIC operations, too */
    bool is_full;    /* set by each sendv: the link takes no more for now */
    bool has_unsent; /* the link accepted bytes that it still has to send */
    bool is_last;    /* one of the two endpoints closes: the link may use what it has in reserve */
    bool synced;     /* the peer's SYNC came by this link */
};

struct net_link_ops {
    /* The link is the channel's from now on: prepare it. When bytes may be sent, the link calls
     * wf_net_chan_up, perhaps at once. */
    void (*start)(struct net_link *link);

    /* As sendmsg(2), of [len] bytes in all. [lent]: the base of the element of [v] that the program
     * lent, or null; EFAULT if the program has unmapped it. Sets is_full and has_unsent. */
    ssize_t (*sendv)(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                     const void *lent);
    /* Send one short frame whole. False: the frame was not sent; use sendv. Null: use sendv. */
    bool (*send_one)(struct net_link *link, const void *bytes, uint32_t len);

    /* As readv(2). A buffered link is given one element of [v]. */
    ssize_t (*recvv)(struct net_link *link, const struct iovec *v, unsigned n);
    /* Instead of recvv: the next *n bytes where they arrived, at a multiple of WF_NET_ALIGN. They
     * are valid until consume or close. Null: use recvv. A link without buffers of its own has none
     * of these three functions. */
    uint8_t *(*peek)(const struct net_link *link, size_t *n);
    void (*consume)(struct net_link *link);
    bool (*has_bytes)(const struct net_link *link);
    /* Receive what the peer sent before this call, and no more than that. */
    void (*drain)(struct net_link *link);

    /* End this side's direction; the peer's bytes are still received. */
    void (*half_close)(struct net_link *link);
    /* Has the peer's kernel or NIC everything that was sent? Called only while the endpoint
     * closes. */
    bool (*flushed)(struct net_link *link);
    /* Poll until flushed, for at most [within_ns]. False: it is not. Null: the link needs no
     * waiting. */
    bool (*settle)(struct net_link *link, uint64_t within_ns);
    /* Did the peer's kernel acknowledge no more than the handshake and SYNC? */
    bool (*is_stuck)(const struct net_link *link);
    /* Is nothing under way by the link, and nothing to be received? Called only by drivers. */
    bool (*is_idle)(const struct net_link *link);
    /* Wake the sleeping owner when there is something to receive, and with [out] also when there is
     * room to send. False: the kernel has no memory. */
    bool (*watch)(struct net_link *link, bool out);

    /* One of these three ends the link, and frees it. */
    void (*close)(struct net_link *link);
    void (*linger)(struct net_link *link);    /* all was sent: the connection manager waits for the
                                               * peer to close its side */
    void (*turn_away)(struct net_link *link); /* send BYE, then linger */
};

/* A driver: it makes and polls the links of an endpoint. */
struct net_driver {
    /* Make the link of an authenticated connection. It takes over conn->fd, which is watched
     * already (wf_net_fd_watch). Null: errno, and conn->fd stays the caller's. */
    struct net_link *(*open)(struct net_chan *chan, const struct wf_net_conn *conn);
    /* Receive what came for any link. With ep->look all links must be read; without, the driver
     * may skip some. */
    void (*progress)(struct net_ep *ep);
    /* Before the owner sleeps: make the driver's own event sources wake it. False: do not sleep.
     * Null: it has none. */
    bool (*arm)(struct net_ep *ep);
    /* By how much the generation of a channel's next connection is greater. Null: by one. */
    uint32_t (*gen_step)(const struct net_chan *chan);
    /* May messages take channels other than lane 0? Null: yes. */
    bool (*may_spread)(struct net_session *session);
    /* The channel is freed: free its path. Null: the driver has no paths. */
    void (*chan_free)(struct net_chan *chan);
    /* The field of a contact that has the port of this driver's endpoints. */
    uint16_t *(*port)(struct wf_contact *contact);
};

/* ---- what a driver may read of a channel ---- */

struct net_view {
    const struct wf_address *peer;
    uint32_t gen;        /* generation of the channel's connection */
    uint32_t ring_bytes; /* the most bytes that the channel holds unacknowledged */
    uint32_t close_ms;   /* not 0: this endpoint closes, within so long */
    uint16_t index;      /* the lane */
    bool is_greater;     /* this side's address is the greater one: it dials */
    bool up;             /* wf_net_chan_up was called for the link */
    bool peer_closes;    /* the peer sent BYE on this channel */
    bool is_settled;     /* SYNC has come, BYE has not, and all frames are acknowledged */
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
/* Receiving failed with [error]; 0: the end of the stream. */
void wf_net_chan_failed(struct net_chan *chan, int error);
/* The link is of no use any more, or another connection is wanted: close it, and dial. */
void wf_net_chan_break(struct net_chan *chan, const char *why);
/* End the session: EPEER (the peer gave it up) | EPROTO (logged). */
void wf_net_chan_end(struct net_chan *chan, enum weft_status why);
/* Replace the channel's link by [link]; the caller frees the old one. */
void wf_net_chan_relink(struct net_chan *chan, struct net_link *link);

/* ---- other functions for drivers ---- */

struct net_link *wf_net_chan_link(const struct net_chan *chan); /* null: none */

/* A NIC operation was refused for want of room: wf_net_chan_writable makes the core try again. */
void wf_net_chan_starved(struct net_chan *chan);
/* Have new messages take other channels, if there are any. */
void wf_net_chan_avoid(struct net_chan *chan, bool avoid);
bool wf_net_chan_is_avoided(const struct net_chan *chan);
/* The pointer to the driver's state of the channel. */
struct net_path **wf_net_chan_path(const struct net_chan *chan);
struct net_ep *wf_net_chan_ep(const struct net_chan *chan);

/* Add a socket to the endpoint's epoll set, with [chan] as its data; change whether epoll reports
 * room to send, too. False: errno. */
bool wf_net_fd_watch(struct net_chan *chan, int fd);
bool wf_net_fd_events(struct net_chan *chan, int fd, bool out);
/* Hand a socket on which everything was sent to the connection manager. turn_away: it sends BYE
 * first, as a record of [aead] unless that is null. */
void wf_net_fd_linger(struct net_chan *chan, int fd);
void wf_net_fd_turn_away(struct net_chan *chan, int fd, struct wf_aead *aead);
/* Remove a socket from the epoll set and close it. */
void wf_net_fd_close(struct net_chan *chan, int fd);

/* The session of a peer's handle, made if need be. Null: *why. */
struct net_session *wf_net_peer_session(struct wf_tpeer *tpeer, enum weft_status *why);
/* Lane 0's channel, made and dialled if need be (null: no memory); channel [index], or null. */
struct net_chan *wf_net_session_first(struct net_session *session);
struct net_chan *wf_net_session_at(const struct net_session *session, unsigned index);
unsigned wf_net_session_width(const struct net_session *session); /* indices are below it */
struct net_session *wf_net_chan_session(const struct net_chan *chan);
/* Make and dial all channels that the session may have. */
void wf_net_session_spread(struct net_session *session);

/* ---- socket links (tcp/sock_link.c), to which any driver may fall back ---- */

/* A link that takes over the socket [fd], which is watched already. [conn]: has the keys of an
 * encrypted connection; null: in the clear. Null: no memory. */
struct net_link *wf_sock_link_open(struct net_chan *chan, int fd, const struct wf_net_conn *conn);

#endif
