/* SPDX-License-Identifier: BSD-3-Clause */
/* Links over sockets. A link sends its bytes in the clear or in AEAD records. */
#ifndef WF_TRANSPORT_TCP_SOCK_LINK_H
#define WF_TRANSPORT_TCP_SOCK_LINK_H

#include "transport/net/connect/auth.h"
#include "transport/net/net.h"

struct sock_crypt;

struct sock_link {
    struct net_link base;
    int fd;
    bool watches_out;         /* epoll also reports room to send */
    bool ignored;             /* it is not in the endpoint's epoll set */
    uint32_t received;        /* bytes received from the socket, modulo 2^32 */
    struct sock_crypt *crypt; /* NULL if not encrypted */
};

static inline int wf_sock_link_fd(const struct net_link *link)
{
    return ((const struct sock_link *)(const void *)link)->fd;
}

/* Remove the link's socket from the endpoint's epoll set, until net_link_ops.watch. */
void wf_sock_link_ignore(struct net_link *link);

/* Allocate s->crypt for an encrypted connection, and copy the keys from [conn]. Returns false if
 * there is no memory. */
bool wf_sock_crypt_open(struct sock_link *s, const struct wf_net_conn *conn);
void wf_sock_crypt_close(struct sock_link *s);
/* Like sendmsg(2), but encrypts and sends at most one record. Bit i of [lent] is set if v[i] is
 * memory that the core lent for a transfer. Fails with EFAULT if some of that memory is not there.
 * Sets s->base.has_unsent to whether a part of the record is still to be sent. */
ssize_t wf_sock_crypt_sendv(struct sock_link *s, const struct iovec *v, unsigned n, uint64_t lent);
/* Like recv(2): stores decrypted bytes. Fails with EBADMSG if a record was altered on the way. */
ssize_t wf_sock_crypt_recv(struct sock_link *s, uint8_t *to, size_t room);
/* Returns the state that encrypts this side's next record, or NULL if the connection is not
 * encrypted. */
struct wf_aead *wf_sock_crypt_out(const struct sock_link *s);

#endif
