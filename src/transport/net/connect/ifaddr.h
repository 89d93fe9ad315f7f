/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of this host's interfaces and addresses a process listens on, and which addresses of others
 * it can dial. */
#ifndef WF_TRANSPORT_NET_CONNECT_IFADDR_H
#define WF_TRANSPORT_NET_CONNECT_IFADDR_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/address.h"
#include "transport/net/connect/ipaddr.h"

struct wf_ifaddr {
    char name[IF_NAMESIZE];
    uint8_t ip[WF_NET_IP];
};

struct wf_ifaddr_choice {
    struct wf_ifaddr at[WF_CONTACT_IPS]; /* the best one first */
    size_t count;
    const char *why; /* a literal */
};

/* Choose the addresses to listen on. At most WF_CONTACT_IPS, since a contact holds no more:
 *   WEFT_TCP_INTERFACES is set: the addresses that it names, in its order;
 *   else of the interfaces that are up and have a carrier: the default route's source address, then
 *   addresses of other interfaces; bridges, then loopback, only if there is nothing else.
 * Link-local IPv6 addresses are never chosen: they mean nothing without an interface's index.
 * Returns OK | EUNREACH (no usable interface) | EINVAL (WEFT_TCP_INTERFACES names none) | ESYSTEM;
 *         on failure [note] has the reason */
enum weft_status wf_ifaddr_choose(struct wf_ifaddr_choice *out, char *note, size_t room);

/* Describe in [note], for a user, what wf_ifaddr_choose would choose, and why. Returns the number
 * of addresses; 0: [note] has the reason. */
int wf_ifaddr_describe(char *note, size_t room);

/* Can this process dial [ip] at all? Loopback only if it is this host's. */
bool wf_ifaddr_can_dial(const uint8_t ip[WF_NET_IP], bool same_host);

#endif
