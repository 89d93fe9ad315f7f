/* SPDX-License-Identifier: BSD-3-Clause */
/* Internet addresses as 16 bytes, as in struct wf_contact. The 16 bytes are an IPv6 address, or an
 * IPv4 address mapped into IPv6 (RFC 4291). */
#ifndef WF_TRANSPORT_IPADDR_H
#define WF_TRANSPORT_IPADDR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define WF_NET_IP 16

union wf_sockaddr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

bool wf_ipaddr_is_v4(const uint8_t ip[WF_NET_IP]);
bool wf_ipaddr_is_loopback(const uint8_t ip[WF_NET_IP]);
bool wf_ipaddr_is_link_local(const uint8_t ip[WF_NET_IP]); /* of IPv6 */

bool wf_ipaddr_is_any(const uint8_t ip[WF_NET_IP]); /* 0.0.0.0 or :: */
/* Can [ip] be the address of one host? False for the zero address, for multicast and broadcast, and
 * for link-local addresses of IPv6, which mean nothing without an interface. */
bool wf_ipaddr_is_host(const uint8_t ip[WF_NET_IP]);

/* Convert the 4 bytes of an IPv4 address to 16 bytes. */
void wf_ipaddr_from_v4(const void *bytes, uint8_t ip[WF_NET_IP]);

/* Convert [sa] to 16 bytes and a port. Returns false if [sa] is NULL or not an internet address. */
bool wf_ipaddr_from_sockaddr(const struct sockaddr *sa, uint8_t ip[WF_NET_IP], uint16_t *port);
/* Convert [ip] and [port] to a socket address in *out. Returns the length of this socket
 * address. */
socklen_t wf_ipaddr_to_sockaddr(const uint8_t ip[WF_NET_IP], uint16_t port, union wf_sockaddr *out);

/* Write the address as "10.0.0.1" or "fd00::1". Returns [text]. */
const char *wf_ipaddr_print(const uint8_t ip[WF_NET_IP], char text[INET6_ADDRSTRLEN]);

/* Write address and port as "10.0.0.1:4711" or "[fd00::1]:4711". Returns [text]. */
#define WF_NET_NAME 64
const char *wf_ipaddr_print_port(const uint8_t ip[WF_NET_IP], uint16_t port,
                                 char text[WF_NET_NAME]);

#endif
