/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface between a channel and the driver of its link.
 *
 *     channel (net/)                          driver (tcp/, rdma/)
 *       struct net_link_ops  ------------>      one link: a socket, a queue pair
 *       struct net_driver    ------------>      all links of an endpoint
 *                            <------------    wf_net_chan_* and wf_net_session_* below
 *
 * A channel has one link or none. The connection manager hands over an authenticated connection,
 * and the driver makes the link for that connection. When the link breaks, the link of the next
 * connection replaces it. The channel keeps its unacknowledged frames meanwhile. A driver embeds
 * struct net_link at the start of its own link struct. Besides this file, a driver may use struct
 * net_ep and the functions of net.h, and the inline functions at the end of channel.h.
 *
 * Each of the link's functions close, linger and turn_away frees the link. The channel clears its
 * pointer to the link before it calls one of these functions. A channel stays allocated until the
 * end of the poll in which it ended, since epoll events and callers further up the stack may still
 * point to it. An upcall is a call from the driver to the channel. An upcall that can deliver
 * messages (readable, failed, end) may free the link. So after such an upcall the driver compares
 * wf_net_chan_link with its link before it touches the link. */
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
    /* Constant. Payload is received into a buffer and then copied, not received in place. */
    bool buffered;
    /* Constant. The driver may use this link for NIC operations, too. */
    bool has_nic;
    /* Set by each sendv: the link accepts no more bytes for now. */
    bool is_full;
    /* The link has accepted bytes that it has not sent yet. */
    bool has_unsent;
    /* One of the two endpoints is closing. A queue pair's link may then use the credits that it has
     * kept in reserve. */
    bool is_last;
    /* SYNC, the peer's first frame on each link, has arrived by this link. */
    bool synced;
};

struct net_link_ops {
    /* Called when the link begins to belong to the channel. Prepares the link. As soon as bytes may
     * be sent, the link calls wf_net_chan_up, perhaps before start returns. */
    void (*start)(struct net_link *link);

    /* Like sendmsg(2) with the [n] elements of [v], [len] bytes in all. Bit i of [lent] is set if
     * v[i] is memory that the core lent for a transfer; such elements are among the first 64. Only
     * the kernel and wf_net_chan_lent_read may read it. Fails with EFAULT if some of it is not
     * there. Sets is_full and has_unsent. */
    ssize_t (*sendv)(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                     uint64_t lent);
    /* Send one short frame as a whole. Returns false if nothing was sent. This pointer is NULL if
     * the driver has no such function. In both cases the channel uses sendv. */
    bool (*send_one)(struct net_link *link, const void *bytes, uint32_t len);

    /* Like readv(2). If the link is buffered, [v] has one element. */
    ssize_t (*recvv)(struct net_link *link, const struct iovec *v, unsigned n);
    /* peek, consume and has_bytes serve to read without copying. peek returns the next *n bytes
     * that have arrived, in the link's own buffer, at a multiple of WF_NET_ALIGN. The bytes are
     * valid until consume or close. consume releases the bytes. has_bytes returns whether more
     * bytes have arrived. All three pointers are NULL if the link has no buffers of its own. */
    uint8_t *(*peek)(const struct net_link *link, size_t *n);
    void (*consume)(struct net_link *link);
    bool (*has_bytes)(const struct net_link *link);
    /* Process the bytes that have arrived by this link before the call. Bytes that arrive later may
     * stay unread. */
    void (*drain)(struct net_link *link);

    /* End the sending direction of the link. The link still receives what the peer sends. */
    void (*half_close)(struct net_link *link);
    /* Has the peer's kernel or NIC received everything that was sent? Called only while the
     * endpoint closes. */
    bool (*flushed)(struct net_link *link);
    /* Poll the link until it is flushed, for at most [within_ns]. Returns false if the link is not
     * flushed. This pointer is NULL if the driver's links need no such wait. */
    bool (*settle)(struct net_link *link, uint64_t within_ns);
    /* Has the peer's kernel acknowledged no more than the handshake and SYNC, the first frame? */
    bool (*is_stuck)(const struct net_link *link);
    /* Is there nothing to receive, and, on a queue pair's link, is nothing being sent? Only drivers
     * call this. */
    bool (*is_idle)(const struct net_link *link);
    /* Wake the sleeping owner when there is something to receive. If [out] is true, wake the owner
     * also when there is room to send. Returns false if the kernel has no memory. */
    bool (*watch)(struct net_link *link, bool out);

    /* Each of the next three functions ends the link, and frees it. */
    void (*close)(struct net_link *link);
    /* Called when all bytes were sent. The connection manager then keeps the socket until the peer
     * closes its side. */
    void (*linger)(struct net_link *link);
    /* Send BYE, by which this side gives the session up, and then do as linger does. */
    void (*turn_away)(struct net_link *link);
};

/* A driver makes the links of an endpoint, and polls them. */
struct net_driver {
    /* Make the link of an authenticated connection. The link takes over conn->fd, which is in the
     * endpoint's epoll set already (wf_net_fd_watch). Returns NULL with errno on failure; conn->fd
     * then still belongs to the caller. */
    struct net_link *(*open)(struct net_chan *chan, const struct wf_net_conn *conn);
    /* Process the bytes that have arrived by any link of the endpoint. If ep->look is true, the
     * driver looks at all links, by reading them or by epoll. Otherwise the driver may skip some
     * links. */
    void (*progress)(struct net_ep *ep);
    /* Called before the owner sleeps. Makes the driver's own event sources wake the owner. Returns
     * false if the owner must not sleep. This pointer is NULL if the driver has no event sources of
     * its own. */
    bool (*arm)(struct net_ep *ep);
    /* Returns by how much the generation of the next connection of [chan] exceeds the generation of
     * its last connection. This pointer is NULL if the difference is always one. */
    uint32_t (*gen_step)(const struct net_chan *chan);
    /* May messages of the session take channels other than lane 0? If this pointer is NULL, they
     * may. */
    bool (*may_spread)(struct net_session *session);
    /* Called when the channel is being freed. Frees the driver's state of the channel. This pointer
     * is NULL if the driver has no such state. */
    void (*chan_free)(struct net_chan *chan);
    /* Returns the field of [contact] that stores the port of this driver's endpoints. */
    uint16_t *(*port)(struct wf_contact *contact);
};

/* ---- what a driver may read of a channel ---- */

struct net_view {
    const struct wf_address *peer;
    uint32_t gen; /* generation of the channel's connection */
    /* The most bytes of unacknowledged frames that the channel can hold. */
    uint32_t ring_bytes;
    /* If this endpoint is closing, how long closing may take. Otherwise 0. */
    uint32_t close_ms;
    uint16_t index; /* the lane */
    /* This side's address is greater than the peer's, so this side makes the connections. */
    bool is_greater;
    /* The present link has called wf_net_chan_up. */
    bool up;
    /* The peer has sent BYE on this channel, since the peer's endpoint closes. */
    bool peer_closes;
    /* SYNC, the peer's first frame on the link, has arrived, the channel is not ending, and the
     * peer has acknowledged all frames. */
    bool is_settled;
    /* This channel could not be opened. The session goes on without this channel. */
    bool is_lost;
};
struct net_view wf_net_chan_view(const struct net_chan *chan);

/* ---- upcalls: by a link of [chan], on the owner's thread ---- */

/* Called when the link can send for the first time. Sends SYNC, the first frame on each link. */
void wf_net_chan_up(struct net_chan *chan);
/* Called when bytes may have arrived by the link. Receives them, and delivers their messages. */
void wf_net_chan_readable(struct net_chan *chan);
/* Called when the link has room to send again. */
void wf_net_chan_writable(struct net_chan *chan);
/* Called when receiving by the link has failed with errno [error]. An [error] of 0 stands for the
 * end of the stream. */
void wf_net_chan_failed(struct net_chan *chan, int error);
/* Close the link, and dial. Called when the link is of no use any more, or when another connection
 * is wanted. [why] is for the log. */
void wf_net_chan_break(struct net_chan *chan, const char *why);
/* End the session. [why] is EPEER if the peer gave the session up. [why] is EPROTO if the peer
 * broke the protocol; the function then logs an error. */
void wf_net_chan_end(struct net_chan *chan, enum weft_status why);
/* Make [link] the channel's link. The caller frees the channel's previous link. */
void wf_net_chan_relink(struct net_chan *chan, struct net_link *link);

/* ---- other functions for drivers ---- */

/* Returns NULL if the channel has no link. */
struct net_link *wf_net_chan_link(const struct net_chan *chan);

/* Copy [n] bytes from or to memory that the core lent (bulk_hold). Both return false with errno
 * EFAULT if some of that memory is not there. */
bool wf_net_chan_lent_read(const struct net_chan *chan, void *to, const void *lent, size_t n);
bool wf_net_chan_lent_write(const struct net_chan *chan, void *lent, const void *from, size_t n);

/* Called when the driver refuses a NIC operation for want of room. The next wf_net_chan_writable
 * makes the core try again. */
void wf_net_chan_starved(struct net_chan *chan);
/* If [avoid] is true, new messages take other channels of the session, if there are any. */
void wf_net_chan_avoid(struct net_chan *chan, bool avoid);
bool wf_net_chan_is_avoided(const struct net_chan *chan);
/* Returns where the channel stores the pointer to the driver's state of this channel. */
struct net_path **wf_net_chan_path(const struct net_chan *chan);
struct net_ep *wf_net_chan_ep(const struct net_chan *chan);

/* wf_net_fd_watch adds a socket to the endpoint's epoll set, with [chan] as the socket's data.
 * wf_net_fd_events changes whether epoll also reports room to send. Both return false with errno on
 * failure. */
bool wf_net_fd_watch(struct net_chan *chan, int fd);
bool wf_net_fd_events(struct net_chan *chan, int fd, bool out);
/* Remove a socket from the endpoint's epoll set. It stays open. */
void wf_net_fd_ignore(struct net_chan *chan, int fd);
/* Hand a socket to the connection manager. All bytes were written to this socket.
 * wf_net_fd_turn_away also sends BYE, by which this side gives the session up. [aead] encrypts BYE;
 * it is NULL if the connection is not encrypted. */
void wf_net_fd_linger(struct net_chan *chan, int fd);
void wf_net_fd_turn_away(struct net_chan *chan, int fd, struct wf_aead *aead);
/* Remove a socket from the endpoint's epoll set, and close the socket. */
void wf_net_fd_close(struct net_chan *chan, int fd);

/* Returns the session with the peer of a handle. Makes the session if there is none. Returns NULL
 * with the reason in *why if the peer is down or there is no memory. */
struct net_session *wf_net_peer_session(struct wf_tpeer *tpeer, enum weft_status *why);
/* wf_net_session_first returns the channel of lane 0. It makes and dials the channel if there is
 * none, and returns NULL if there is no memory. wf_net_session_at returns the channel of lane
 * [index], or NULL if there is none. */
struct net_chan *wf_net_session_first(struct net_session *session);
struct net_chan *wf_net_session_at(const struct net_session *session, unsigned index);
/* Returns a number that is greater than each lane of the session. */
unsigned wf_net_session_width(const struct net_session *session);
struct net_session *wf_net_chan_session(const struct net_chan *chan);
/* Make all channels that the session may have, and dial them. */
void wf_net_session_spread(struct net_session *session);

/* ---- socket links (tcp/sock_link.c), to which any driver may fall back ---- */

/* Make a link that takes over the socket [fd], which is in the endpoint's epoll set already. If the
 * connection is encrypted, [conn] has its keys. Otherwise [conn] is NULL. Returns NULL if there is
 * no memory. */
struct net_link *wf_sock_link_open(struct net_chan *chan, int fd, const struct wf_net_conn *conn);

#endif
