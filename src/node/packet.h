/* SPDX-License-Identifier: BSD-3-Clause */
/* The packets between a node's service and its clients, over an abstract SOCK_SEQPACKET socket.
 * docs/protocol.md "The node's service" describes each packet.
 *
 * Attaching takes four packets, in this order:
 *
 *     client                           service
 *       HELLO (attach)           -->
 *                                <--   CHALLENGE (MAC), or REFUSED
 *       PROOF (MAC, parameters)  -->
 *                                <--   WELCOME, or REFUSED, or the end: the MAC is wrong
 *
 * Both MACs cover HELLO, and CHALLENGE up to its MAC; that of PROOF also covers the parameters. So
 * each side proves that it has the job's key, over a nonce that the other side drew. Each side
 * looks at SO_PEERCRED before it reads or writes a byte. */
#ifndef WF_NODE_PACKET_H
#define WF_NODE_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/seqpacket.h"
#include "base/status.h"
#include "transport/address.h"
#include "transport/node/layout.h"
#include "transport/rdma/hca_share.h"

#define WF_NODE_MAGIC 0x444e4657u /* "WFND" */
/* Of the packets; part of the socket's name, too. Counted up with each change of a packet, which a
 * new status is, too, and of the messages of clients (docs/protocol.md "Operations by message");
 * test_versions in node_packet_test.c compares the layouts. */
#define WF_NODE_VERSION 10
_Static_assert(
    WF_STATUSES == 34,
    "RING_NO and NODE_OK carry the statuses of weft/status.def: count WF_NODE_VERSION up");
/* Of the memory that client and service share. Counted up with each change of layout.h. */
#define WF_NODE_SHARED_VERSION 8
#define WF_NODE_KEY 32 /* bytes of the job's key */
#define WF_NODE_NONCE 32
#define WF_NODE_MAC 32
/* What a service leaves to a successor, in the care of its clients, which get it with WELCOME: its
 * page; the *hold*, a socket whose name shows that there may be such clients; and the sockets at
 * which other services call it. */
#define WF_NODE_ESTATE_SOCKETS 2
#define WF_NODE_ESTATE (WF_NODE_ESTATE_SOCKETS + WF_CONTACT_IPS)
#define WF_NODE_FDS (WF_NODE_ESTATE + 1) /* the most descriptors of a packet */
_Static_assert(WF_NODE_FDS <= WF_SEQPACKET_FDS, "room for descriptors");

#define WF_NODE_INDEX_BITS_MAX 12
#define WF_NODE_RINGS 64 /* endpoints of a client */
#define WF_NODE_ASKS 64  /* NODEs of a client that are not answered yet */
/* The row of a list that describes the service itself. */
#define WF_NODE_NO_INDEX UINT32_MAX

enum wf_node_type {
    WF_NODE_HELLO = 1, /* from the client: its role, and its process */
    WF_NODE_CHALLENGE, /* from the service */
    WF_NODE_PROOF,     /* from the client */
    /* From the service: the client is attached. fds: its estate; and the command descriptor of its
     * NIC, if there is a window. */
    WF_NODE_WELCOME,
    WF_NODE_REFUSAL, /* from the service: it closes this connection */
    /* From the client: opens the rings of an endpoint. fds: submit segment, event segment. */
    WF_NODE_RING,
    /* From the service. fd: the endpoint's end of a pair of stream sockets, the bell. Each side
     * wakes the other by a byte, which it sends with MSG_DONTWAIT. If the socket is full, the other
     * side has bytes to read. */
    WF_NODE_RING_OK,
    WF_NODE_RING_NO,   /* from the service: refuses the rings */
    WF_NODE_UNRING,    /* from the client: closes the rings of an endpoint */
    WF_NODE_UNRING_OK, /* from the service: it no longer reads or writes them */
    WF_NODE_NODE,      /* from the client: names another service */
    WF_NODE_NODE_OK,   /* from the service: the word of that service in its page, or a status */
    WF_NODE_LOG,       /* from the service: a line that the client logs */
    WF_NODE_ROW,       /* from the service: a line of its answer to a client that lists */
    WF_NODE_BYE,       /* from either: it closes this connection and has not died */
    /* From a client that held an index: it has given all rings that the service before had. */
    WF_NODE_SETTLED,
    WF_NODE_RESOURCE, /* from the service, after its own ROW: what it occupies of its NICs */
    /* From a client of a service without a NIC. fd: a slab in which regions of its table are, or,
     * with the id 0, the table, which comes first and once. There is no answer: the service
     * accesses no region whose slab it has no room for. */
    WF_NODE_SLAB,
    WF_NODE_UNSLAB, /* from the client: no region is in the slab any more */
    WF_NODE_TYPES
};

/* In [flags]: the process that sends the packet has registered for membarrier(2). */
#define WF_NODE_MEMBARRIER 1

enum wf_node_role { WF_NODE_ATTACH = 1, WF_NODE_LIST, WF_NODE_STOP, WF_NODE_ROLES };

enum wf_node_reason {
    WF_NODE_REFUSED_VERSION = 1, /* the service has another version of these packets */
    WF_NODE_REFUSED_BUSY,        /* other parameters: those of the service are in the packet */
    WF_NODE_REFUSED_FULL,        /* every index has a client */
    WF_NODE_REFUSED_LIMIT,       /* no descriptor or memory is free now */
    WF_NODE_REFUSED_ENDING,      /* the service ends: wait for the end of the socket */
    WF_NODE_REFUSED_INDEX,       /* the index that the client held is not free */
    WF_NODE_REASONS
};

/* What all clients of a service have alike. */
struct wf_node_parameters {
    uint32_t connections; /* to each other service */
    uint32_t index_bits;  /* at most 1 << index_bits clients */
    uint32_t am_max;      /* WF_NODE_AM_MAX */
    uint32_t ring;        /* bytes of each segment of an endpoint */
    uint32_t receives;    /* buffers of the service */
    uint32_t encrypt;     /* 1: what crosses the network is encrypted */
    /* enum wf_node_lanes: RDMA if WEFT_TRANSPORTS names rdma. In a ROW: as they are. */
    uint32_t lanes;
    uint32_t shared_version; /* WF_NODE_SHARED_VERSION */
    uint32_t zero[4];
};
_Static_assert(sizeof(struct wf_node_parameters) == 48, "wire structure");

struct wf_node_hello {
    uint32_t role; /* enum wf_node_role */
    uint32_t held; /* index that the client had from an earlier service, plus 1; 0: none */
    uint32_t last; /* incarnation of that service */
    uint32_t line; /* and that of the first service of its line (struct wf_node_welcome) */
    uint8_t nonce[WF_NODE_NONCE];
    struct wf_process_id self;
};
_Static_assert(sizeof(struct wf_node_hello) == 88, "wire structure");

struct wf_node_challenge {
    uint8_t nonce[WF_NODE_NONCE];
    uint8_t mac[WF_NODE_MAC];
};

struct wf_node_proof {
    uint8_t mac[WF_NODE_MAC];
    struct wf_node_parameters parameters;
};
_Static_assert(sizeof(struct wf_node_proof) == 80, "wire structure");

struct wf_node_welcome {
    uint32_t index;
    uint32_t incarnation; /* of the service, never 0 */
    /* A service and its successors are a *line*, which is named by the incarnation of its first. */
    uint32_t line;
    uint32_t window; /* where the client registers memory (wf_node_window); 0: it cannot */
    struct wf_contact contact; /* of the service: see wf_node_port */
    struct wf_hca_share share; /* the domain; zero without a window */
};
_Static_assert(sizeof(struct wf_node_welcome) == 144, "wire structure");

/* Returns the port at which a service takes connections, by its contact: [rdma] if its lanes are
 * queue pairs, else [port]. The other one is 0. */
static inline uint16_t wf_node_port(const struct wf_contact *service)
{
    return service->rdma ? service->rdma : service->port;
}

static inline enum wf_node_lanes wf_node_lanes_of(const struct wf_contact *service)
{
    return service->rdma ? WF_NODE_RDMA : WF_NODE_TCP;
}

struct wf_node_refused {
    uint32_t reason; /* enum wf_node_reason */
    struct wf_node_parameters parameters;
    uint32_t ends; /* 1: the service ends by itself */
};
_Static_assert(sizeof(struct wf_node_refused) == 56, "wire structure");

struct wf_node_ring {
    struct wf_address from;
    struct wf_contact contact; /* as other nodes know it */
    uint32_t bytes;            /* of each segment */
    uint32_t am_max;
};
_Static_assert(sizeof(struct wf_node_ring) == 96, "wire structure");

struct wf_node_unring {
    uint16_t ep;
    uint16_t zero;
    uint32_t ep_gen;
};

struct wf_node_other {
    struct wf_contact contact;
    uint64_t host;
    uint32_t user;
    uint32_t zero;
};
_Static_assert(sizeof(struct wf_node_other) == 56, "wire structure");

struct wf_node_other_ok {
    uint32_t word;  /* its name (wf_node_word_name) */
    int32_t status; /* a failure of weft/status.def: there is no such word, and [word] is 0 */
};

struct wf_node_line {
    uint32_t level; /* enum wf_log_level */
    char text[200]; /* printable, ends with a NUL */
};

struct wf_node_row {
    uint32_t index; /* WF_NODE_NO_INDEX: the service itself */
    uint32_t pid;
    uint64_t age_ms; /* since the client attached, or the service started */
    /* In the service's own row only, else 0. */
    struct wf_node_parameters parameters;
    uint32_t clients, endpoints; /* that it has */
    uint32_t most_endpoints;     /* of a client; at most 1 << parameters.index_bits clients */
    uint32_t most_services;      /* other services that it can have sessions with */
    uint64_t most_descriptors;   /* its process's limit */
};
_Static_assert(sizeof(struct wf_node_row) == 88, "wire structure");

/* A row of weft_resource_rows of the service's network. */
struct wf_node_resource {
    uint64_t count, bytes;
    char name[64]; /* printable, ends with a NUL */
};
_Static_assert(sizeof(struct wf_node_resource) == 80, "wire structure");

struct wf_node_slab {
    uint64_t id; /* the client's; 0: its region table */
    uint64_t size;
    uint32_t read_only; /* 1: peers may only read it; it has F_SEAL_FUTURE_WRITE */
    uint32_t zero;
};
_Static_assert(sizeof(struct wf_node_slab) == 24, "wire structure");

struct wf_node_packet {
    uint32_t magic;
    uint8_t version;
    uint8_t type;
    uint16_t size; /* of the whole packet */
    uint32_t flags;
    uint32_t cookie; /* of the client's choice in RING, UNRING and NODE; the answer repeats it */
    union {
        struct wf_node_hello hello;
        struct wf_node_challenge challenge;
        struct wf_node_proof proof;
        struct wf_node_welcome welcome;
        struct wf_node_refused refused;
        struct wf_node_ring ring;
        struct {
            int32_t status; /* a failure of weft/status.def */
        } ring_no;
        struct wf_node_unring unring; /* and UNRING_OK */
        struct wf_node_other node;
        struct wf_node_other_ok node_ok;
        struct wf_node_line log;
        struct wf_node_row row;
        struct wf_node_resource resource;
        struct wf_node_slab slab; /* and UNSLAB: [id], else 0 */
        uint8_t room[240];
    } u;
};
_Static_assert(sizeof(struct wf_node_packet) == 256, "wire structure");
_Static_assert(offsetof(struct wf_node_packet, u) == 16, "wire structure");

/* Begin a packet: all 0 but for its head. */
void wf_node_packet_init(struct wf_node_packet *packet, enum wf_node_type type);

/* Parse a packet of [len] bytes that came with [nfds] descriptors. This is the only parser of these
 * packets.
 *
 * Returns  OK        *out is set, and each field of its type is in range; bytes that its type does
 *                    not use are 0. nfds is a number that its type may have, or WF_SEQPACKET_LOST
 *          EVERSION  of another version: only the first 8 bytes of *out are set
 *          EPROTO    any other bytes; *out is unchanged */
enum weft_status wf_node_packet_parse(const void *buf, size_t len, int nfds,
                                      struct wf_node_packet *out);

/* Send a packet without blocking. The descriptors stay the caller's. Returns 0, or -1 with errno.
 */
int wf_node_packet_send(int sock, const struct wf_node_packet *packet, const int *fds, int nfds);

/* Receive a packet without blocking.
 *
 * Returns  OK        *packet is set, and the caller owns the *nfds descriptors in [fds]; *nfds is
 *                    WF_SEQPACKET_LOST if this process had too few free descriptors
 *          AGAIN     there is none
 *          ECLOSED   the other side closed the connection, or has ended
 *          EVERSION  as wf_node_packet_parse
 *          EPROTO    no valid packet */
enum weft_status wf_node_packet_recv(int sock, struct wf_node_packet *packet, int fds[WF_NODE_FDS],
                                     int *nfds);

/* Fill in this process's parameters, from its configuration. */
void wf_node_parameters_here(struct wf_node_parameters *p);

/* Returns what the first parameter that differs is called, for a message, and sets *mine and
 * *theirs to the two values. Returns NULL if none differs. */
const char *wf_node_parameters_differ(const struct wf_node_parameters *a,
                                      const struct wf_node_parameters *b, uint32_t *mine,
                                      uint32_t *theirs);

/* Initialise the source of nonces and MACs. Returns OK | ESYSTEM (logged) */
enum weft_status wf_node_mac_init(void);
void wf_node_nonce(uint8_t nonce[WF_NODE_NONCE]);

/* Set or check the MAC of CHALLENGE or PROOF. All other bytes of the packets are set. */
void wf_node_challenge_sign(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                            struct wf_node_packet *challenge);
bool wf_node_challenge_verify(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                              const struct wf_node_packet *challenge);
void wf_node_proof_sign(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                        const struct wf_node_packet *challenge, struct wf_node_packet *proof);
bool wf_node_proof_verify(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                          const struct wf_node_packet *challenge,
                          const struct wf_node_packet *proof);

#endif
