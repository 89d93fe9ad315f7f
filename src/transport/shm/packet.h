/* SPDX-License-Identifier: BSD-3-Clause */
/* The packets that the service threads of two processes exchange. Each packet is one SOCK_SEQPACKET
 * message of fixed size, with descriptors by SCM_RIGHTS. The process that connected is the client,
 * and the other process is the server. Only the client sends requests. docs/protocol.md "Service
 * packets" describes each packet. */
#ifndef WF_SHM_PACKET_H
#define WF_SHM_PACKET_H

#include <stdint.h>
#include <sys/types.h>

#include "base/seqpacket.h"
#include "base/status.h"
#include "transport/address.h"
#include "transport/shm/ring.h"

#define WF_PACKET_MAGIC 0x54464557u /* "WEFT" */
#define WF_PACKET_VERSION 13
_Static_assert(
    WF_STATUSES == 34,
    "RING_NO and SLAB_NO carry the statuses of weft/status.def: count WF_PACKET_VERSION up");
#define WF_PACKET_FDS 3
_Static_assert(WF_PACKET_FDS <= WF_SEQPACKET_FDS, "room for descriptors");

enum wf_packet_type {
    WF_PACKET_HELLO = 1, /* from the client: identifies the client's process */
    /* From the server. fds: its state segment, which shows which regions and endpoints are open,
     * and the segment with its endpoints' doorbells. */
    WF_PACKET_WELCOME,
    /* From the client: opens a connection. fds: forward segment, back segment, the sender's event
     * descriptor. */
    WF_PACKET_RING,
    WF_PACKET_RING_OK, /* from the server; fd: the receiver's event descriptor */
    WF_PACKET_RING_NO, /* from the server: refuses the ring; ring_no.status is the reason */
    WF_PACKET_SLAB,    /* from the client: requests a slab */
    WF_PACKET_SLAB_OK, /* from the server; fd: the slab */
    WF_PACKET_SLAB_NO, /* from the server: no such slab, or no descriptor is left */
    /* From the client or the server: the process that sends BYE closes this connection, and has
     * not died. */
    WF_PACKET_BYE,
    /* From the server: one of its endpoints was closed. The state segment shows which endpoints are
     * open. */
    WF_PACKET_LEFT,
    WF_PACKET_TYPES
};

/* In [flags]: the process that sends the packet can call membarrier(2), and has registered, so that
 * the membarrier calls of other processes reach its threads. */
#define WF_PACKET_MEMBARRIER 1

/* Part of HELLO and WELCOME: who sends the packet, and what pull.c needs to read that process's
 * memory. */
struct wf_packet_greeting {
    struct wf_process_id id; /* WELCOME: unused */
    /* Address of a copy of id.token in the process that sends the packet. 0 if the memory of that
     * process cannot be read. */
    uint64_t mark;
    /* Id of a thread that lives as long as the context. 0 if mark is 0. */
    uint32_t tid;
    uint32_t zero;
};
_Static_assert(sizeof(struct wf_packet_greeting) == 56, "wire structure");

struct wf_packet {
    uint32_t magic;
    uint8_t version;
    uint8_t type;
    uint16_t size; /* of the whole packet */
    uint32_t flags;
    /* In RING, RING_OK and RING_NO: the number by which the client recognizes the connection. */
    uint32_t cookie;
    union {
        struct wf_process_id hello;
        struct wf_packet_greeting greeting;
        struct {
            struct wf_address from;
            uint32_t to_gen;
            uint16_t to_ep;
            uint16_t zero;
            struct wf_shm_geometry geometry;
        } ring;
        struct {
            uint32_t bell; /* the receiver's doorbell, below WF_SHM_BELLS */
            uint32_t bit;  /* the connection's bit in the doorbell, below WF_SHM_BELL_BITS */
        } ring_ok;
        struct {
            int32_t status;
        } ring_no;
        struct {
            uint64_t id;
            uint64_t size;
            int32_t status; /* SLAB_NO: a failure */
        } slab;
        uint8_t room[112];
    } u;
};
_Static_assert(sizeof(struct wf_packet) == 128, "wire structure");

/* Parse a packet of [len] bytes that came with [nfds] descriptors. This is the only parser of
 * packets. Returns 0 and fills *out. Returns -1 if the packet has another version, a field is out
 * of range, or its type needs another number of descriptors. */
int wf_packet_parse(const void *buf, size_t len, int nfds, struct wf_packet *out);

/* Send [packet] without blocking. Returns 0, or -1 with errno. */
int wf_packet_send(int sock, struct wf_packet *packet, enum wf_packet_type type, const int *fds,
                   int nfds);

/* Receive a packet without blocking.
 * Returns 1: *packet is set, and the caller owns the *nfds descriptors in [fds]. *nfds is
 * WF_PACKET_LOST if this process had too few free descriptors; those that it got are then
 * closed.
 * Returns 0 at the end of the connection.
 * Returns -1 with errno: EAGAIN if there is no packet, EPROTO if the message is not a valid
 * packet. */
#define WF_PACKET_LOST WF_SEQPACKET_LOST
int wf_packet_recv(int sock, struct wf_packet *packet, int fds[WF_PACKET_FDS], int *nfds);

#endif
