/* SPDX-License-Identifier: BSD-3-Clause */
/* Links of sockets, in the clear or with AEAD records. */
#ifndef WF_TRANSPORT_TCP_SOCK_LINK_H
#define WF_TRANSPORT_TCP_SOCK_LINK_H

#include "transport/net/connect/auth.h"
#include "transport/net/net.h"

struct sock_crypt;

struct sock_link {
    struct net_link base;
    int fd;
    bool watches_out;         /* epoll reports room to send, too */
    uint32_t received;        /* bytes received from the socket, modulo 2^32 */
    struct sock_crypt *crypt; /* null: in the clear */
};

/* Make s->crypt for an encrypted connection, with the keys of [conn]. False: no memory. */
bool wf_sock_crypt_open(struct sock_link *s, const struct wf_net_conn *conn);
void wf_sock_crypt_close(struct sock_link *s);
/* As sendmsg(2), for at most one record. Sets has_unsent if a part of the record is still to be
 * sent. */
ssize_t wf_sock_crypt_sendv(struct sock_link *s, const struct iovec *v, unsigned n);
/* As recv(2). EBADMSG: a record was tampered with. */
ssize_t wf_sock_crypt_recv(struct sock_link *s, uint8_t *to, size_t room);
/* The state that seals this side's next record; null: in the clear. */
struct wf_aead *wf_sock_crypt_out(const struct sock_link *s);

#endif
