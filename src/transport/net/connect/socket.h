/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sockets of the connection manager: nonblocking, close-on-exec. */
#ifndef WF_TRANSPORT_NET_CONNECT_SOCKET_H
#define WF_TRANSPORT_NET_CONNECT_SOCKET_H

#include <weft/weft.h>

#include "transport/address.h"
#include "transport/net/connect/ipaddr.h"

/* Where this process listens: one socket for each address of the contact, bound to that address
 * alone; all have the same port. */
struct wf_listeners {
    struct wf_contact contact;
    int fd[WF_CONTACT_IPS]; /* contact.count of them */
};

/* Listen on the addresses that wf_ifaddr_choose chooses.
 * Returns OK | EUNREACH | EINVAL | ESYSTEM, as there; failures are logged */
enum weft_status wf_socket_listen(struct wf_listeners *out);
void wf_socket_unlisten(struct wf_listeners *listeners);

/* Accept a connection, and its peer's address. Returns the socket, or -1 with errno. */
int wf_socket_accept(int listener, uint8_t ip[WF_NET_IP], uint16_t *port);

/* Start to connect. Never blocks, binds nothing. Returns a socket, connected or not yet, or -1 with
 * errno. */
int wf_socket_connect(const uint8_t ip[WF_NET_IP], uint16_t port);
/* Once [fd] is writable: how its connect ended. 0, or the errno. */
int wf_socket_connect_error(int fd);

/* Prepare a connection for frames: no Nagle delay; and notice within WEFT_PEER_TIMEOUT / 2 that the
 * peer cannot be reached any more (below 5 s the kernel takes longer). */
void wf_socket_tune(int fd);

#endif
