/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the interfaces and addresses of this host on which a process listens. Also tells which
 * addresses of other processes can be dialled. */
#ifndef WF_TRANSPORT_NET_CONNECT_IFADDR_H
#define WF_TRANSPORT_NET_CONNECT_IFADDR_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/address.h"
#include "transport/ipaddr.h"

struct wf_ifaddr {
    char name[IF_NAMESIZE];
    uint8_t ip[WF_NET_IP];
};

/* Addresses of one family, since a contact has room for no more: one IPv6 address, or up to
 * WF_CONTACT_IPS of IPv4. */
struct wf_ifaddr_set {
    struct wf_ifaddr at[WF_CONTACT_IPS]; /* the best one first */
    size_t count;
};

struct wf_ifaddr_choice {
    struct wf_ifaddr_set best;
    struct wf_ifaddr_set other; /* of the other family, if no address of [best] can be used */
    const char *why;            /* why these were chosen; a literal */
};

/* Choose addresses to listen on.
 *   If WEFT_TCP_INTERFACES is set: the addresses that it names, in its order.
 *   Otherwise, of the interfaces that are up and have a carrier: first the default route's source
 *   address, then addresses of other interfaces. A bridge is chosen only if there is no better
 *   address, and loopback only if there is no other address at all.
 * Link-local IPv6 addresses are never chosen, since such an address is useful only together with
 * the index of an interface.
 * Returns OK | EUNREACH (no usable interface) | EINVAL (WEFT_TCP_INTERFACES names no address of
 * this host) | ESYSTEM; on failure [note] has the reason */
enum weft_status wf_ifaddr_choose(struct wf_ifaddr_choice *out, char *note, size_t room);

/* Describe in [note], for a user, which addresses wf_ifaddr_choose would choose, and why. Returns
 * the number of addresses. If it returns 0, [note] has the reason. */
int wf_ifaddr_describe(char *note, size_t room);

/* Can this process dial [ip]? [same_host] tells whether the process at [ip] is on this host. A
 * loopback address can be dialled only if [same_host] is true. */
bool wf_ifaddr_can_dial(const uint8_t ip[WF_NET_IP], bool same_host);

#endif
