/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sockets. All are nonblocking and close-on-exec. Addresses are 16 bytes (ipaddr.h). */
#ifndef WF_TRANSPORT_STREAM_H
#define WF_TRANSPORT_STREAM_H

#include "transport/ipaddr.h"

/* For [reuse] of the two functions below. With WF_STREAM_REUSE a listener can be bound although
 * connections of an earlier listener at its port have not ended (SO_REUSEADDR, socket(7)), and a
 * connecting socket keeps no listener from its own local port. */
enum wf_stream_reuse { WF_STREAM_PLAIN, WF_STREAM_REUSE };

/* Listen on [ip] and [port]; 0: the kernel chooses the port. Returns the socket, or -1 with errno.
 */
int wf_stream_listen(const uint8_t ip[WF_NET_IP], uint16_t port, enum wf_stream_reuse reuse);
/* Returns the port to which [fd] is bound, or 0 if there is none. */
uint16_t wf_stream_port(int fd);

/* Accept a connection, and store the peer's address in [ip] and [port]. Returns the socket, or -1
 * with errno. */
int wf_stream_accept(int listener, uint8_t ip[WF_NET_IP], uint16_t *port);

/* Start to connect, without blocking. The kernel chooses the local address and port. Returns a
 * socket, which may still be connecting, or -1 with errno. */
int wf_stream_connect(const uint8_t ip[WF_NET_IP], uint16_t port, enum wf_stream_reuse reuse);
/* Call this once [fd] is writable. Returns 0 if the connect(2) of [fd] succeeded, otherwise its
 * errno. */
int wf_stream_connect_error(int fd);

#endif
