/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of a node's service: of its socket, of itself among services, of its incarnations; and the
 * tags of endpoints. All but incarnations are hashes under the job's key, so another job's
 * processes cannot compute them. */
#ifndef WF_NODE_NAME_H
#define WF_NODE_NAME_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "node/packet.h"

/* Room for WEFT_NODE_NAME, which has at most 63 characters. */
#define WF_NODE_NAME_ROOM 64
#define WF_NODE_SOCKET "weft-node-"
/* Room for the name of a socket: WF_NODE_SOCKET, 16 hexadecimal digits, a NUL. The hold's has
 * "-held" behind them. */
#define WF_NODE_SOCKET_ROOM 32

/* The bits of an incarnation that are in the address of its service. */
#define WF_NODE_GEN_MASK ((1u << WF_GROUP_SHIFT) - 1)

/* Where processes have to be alike to share a service. */
struct wf_node_scope {
    uint64_t host;   /* wf_host_id */
    uint64_t timens; /* incarnations count this namespace's clock */
    uint32_t user;   /* wf_user_id */
    uint32_t zero;
};

/* Where the calling thread is. */
void wf_node_scope_here(struct wf_node_scope *place);

/* Copy WEFT_NODE_NAME to [out] with each "%n" replaced by [n], the number of the context in its
 * process. Returns 0, or -1 if the result is too long. */
int wf_node_name_expand(const char *name, unsigned n, char out[WF_NODE_NAME_ROOM]);

/* Write the name of the service's abstract socket. [name] is WEFT_NODE_NAME, expanded. */
void wf_node_socket_name(const uint8_t key[WF_NODE_KEY], const struct wf_node_scope *place,
                         const char *name, char out[WF_NODE_SOCKET_ROOM]);
/* Write the name of the hold (packet.h) of the service whose socket is [socket]. */
void wf_node_hold_name(const char *socket, char out[WF_NODE_SOCKET_ROOM]);
/* Make the address of the abstract socket [name]. Returns its length. */
socklen_t wf_node_sockaddr(const char *name, struct sockaddr_un *sa);

/* Write the address by which other services call the service that listens at TCP port [port]. All
 * but the generation, which is the incarnation modulo 2^28, is the same for its successor. The
 * process id is 1, for all services. */
void wf_node_service_address(const uint8_t key[WF_NODE_KEY], const struct wf_node_scope *place,
                             uint16_t port, uint32_t incarnation, struct wf_address *out);

/* Read the job's key from a file. Returns as wf_net_key_read. */
enum weft_status wf_node_key_read(const char *path, uint8_t key[WF_NODE_KEY]);

/* Make the job's key of a secret, as wf_net_key_derive. */
void wf_node_key_derive(const void *secret, size_t len, uint8_t key[WF_NODE_KEY]);

/* Can this host dial one of the addresses of [contact]? [same]: it is this host's own. */
bool wf_node_can_dial(const struct wf_contact *contact, bool same);

/* Returns the tag of an endpoint, by which services name its incarnation. */
uint64_t wf_node_tag(const uint8_t key[WF_NODE_KEY], const struct wf_address *endpoint);

/* Returns a number for a service that has bound its name and begins to serve: CLOCK_BOOTTIME in
 * steps of 1/64 s, modulo 2^32, never 0. It waits for the clock's next step, at most 1/64 s (twice,
 * where the number would be 0). So the numbers of services of one name grow. */
uint32_t wf_node_incarnation(void);

#endif
