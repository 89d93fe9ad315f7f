/* SPDX-License-Identifier: BSD-3-Clause */
/* Which interfaces and addresses, and sockets on them. An address is 16 bytes, IPv6 or IPv4
 * mapped into it, as in struct wf_contact. */
#ifndef WF_TRANSPORT_NET_CONNECT_IFADDR_H
#define WF_TRANSPORT_NET_CONNECT_IFADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/address.h"

#define WF_NET_IP 16

/* Where this process listens: a socket for each address of its contact, bound to that
 * address alone; one port for all. */
struct wf_listeners {
    struct wf_contact contact;
    int fd[WF_CONTACT_IPS]; /* contact.count of them; nonblocking, close-on-exec */
};

/* Choose addresses and listen. Others can call only what fits the contact, so that no more
 * than WF_CONTACT_IPS are chosen:
 *   WEFT_TCP_INTERFACES given: what it names, in its order;
 *   else of the interfaces that are up and running, the address that the default route
 *   uses, then other interfaces' addresses; bridges, then loopback, if there is nothing else.
 * Link-local IPv6 is never taken: it means nothing without an interface's number.
 * Returns OK | EUNREACH (no usable interface) | EINVAL (WEFT_TCP_INTERFACES names none) |
 * ESYSTEM; failures are logged */
enum weft_status wf_ifaddr_listen(struct wf_listeners *out);
void wf_ifaddr_close(struct wf_listeners *net);

/* What wf_ifaddr_listen would choose, and why, for people. Returns how many addresses; 0:
 * [note] says why there are none. */
int wf_ifaddr_describe(char *note, size_t room);

/* A connection from the queue of [listener]: nonblocking, close-on-exec. -1 with errno */
int wf_ifaddr_accept(int listener, uint8_t ip[WF_NET_IP], uint16_t *port);

/* Can [ip] be called from here at all? Loopback means this host, so that it is only of use
 * to call it there. */
bool wf_ifaddr_can_dial(const uint8_t ip[WF_NET_IP], bool same_host);

/* Begin to connect; never blocks, binds nothing. A socket, connected or not yet, or -1
 * with errno. */
int wf_ifaddr_dial(const uint8_t ip[WF_NET_IP], uint16_t port);
/* How connecting [fd] went, once it is writable: 0, or the errno. */
int wf_ifaddr_dialled(int fd);

/* Set a connection up for frames: no Nagle, and noticing within WEFT_PEER_TIMEOUT / 2
 * that the other end cannot be reached any more (below 5 s the kernel takes longer). */
void wf_ifaddr_tune(int fd);

/* "10.0.0.1:4711" or "[fd00::1]:4711" */
#define WF_NET_NAME 64
const char *wf_ifaddr_name(const uint8_t ip[WF_NET_IP], uint16_t port, char name[WF_NET_NAME]);

#endif
