/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sockets of the connection manager. All are nonblocking and close-on-exec. */
#ifndef WF_TRANSPORT_NET_CONNECT_SOCKET_H
#define WF_TRANSPORT_NET_CONNECT_SOCKET_H

#include <weft/weft.h>

#include "transport/address.h"
#include "transport/ipaddr.h"

/* The sockets on which this process listens. There is one for each address of the contact, bound to
 * that address alone. All have the same port. */
struct wf_listeners {
    struct wf_contact contact;
    int fd[WF_CONTACT_IPS]; /* contact.count of them */
    bool shared;            /* other processes may have them, too: they are not shut down */
};

/* Listen on the addresses that wf_ifaddr_choose chooses. Failures are logged.
 * Returns OK | EUNREACH (no usable interface) | EINVAL (WEFT_TCP_INTERFACES names no address of
 * this host) | ESYSTEM */
enum weft_status wf_socket_listen(struct wf_listeners *out);
/* Listen by copies of [count] sockets that listen already, at one port.
 * Returns OK | ESYSTEM (errno; EINVAL: they are no such sockets) */
enum weft_status wf_socket_adopt(const int *fds, unsigned count, struct wf_listeners *out);
void wf_socket_unlisten(struct wf_listeners *listeners);

/* Prepare a connected socket for frames. The kernel sends small writes without Nagle's delay. The
 * kernel reports within WEFT_PEER_TIMEOUT / 2 that the peer cannot be reached any more. The report
 * takes longer if WEFT_PEER_TIMEOUT is below 5 s. */
void wf_socket_tune(int fd);

#endif
