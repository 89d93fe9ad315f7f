/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel's bytes by a socket, in the clear or as AEAD records. */
#ifndef WF_TRANSPORT_TCP_SOCK_LINK_H
#define WF_TRANSPORT_TCP_SOCK_LINK_H

#include "transport/net/connect/auth.h"
#include "transport/net/net.h"

struct sock_crypt;

struct sock_link {
    struct net_link base;
    int fd;
    bool watches_out;         /* epoll reports room to send, too */
    uint32_t received;        /* bytes, as they came from the socket; wraps */
    struct sock_crypt *crypt; /* null: in the clear */
};

/* The state of an encrypted connection, with the keys of [conn]. False: no memory. */
bool wf_sock_crypt_open(struct sock_link *s, const struct wf_net_conn *conn);
void wf_sock_crypt_close(struct sock_link *s);
/* As sendmsg(2), up to one record. Sets has_unsent: a record may leave in part. */
ssize_t wf_sock_crypt_sendv(struct sock_link *s, const struct iovec *v, unsigned n);
/* As recv(2). EBADMSG: a record was tampered with. */
ssize_t wf_sock_crypt_recv(struct sock_link *s, uint8_t *to, size_t room);
/* What seals this side's next record; null: in the clear. */
struct wf_aead *wf_sock_crypt_out(const struct sock_link *s);

#endif
