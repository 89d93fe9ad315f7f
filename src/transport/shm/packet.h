/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets between the service threads of two processes: one SOCK_SEQPACKET
 * message each, of one size, with descriptors by SCM_RIGHTS. The client is the process that
 * connected; only the client sends requests. docs/protocol.md "Service packets". */
#ifndef WF_SHM_PACKET_H
#define WF_SHM_PACKET_H

#include <stdint.h>
#include <sys/types.h>

#include "transport/address.h"
#include "transport/shm/ring.h"

#define WF_PACKET_MAGIC 0x54464557u /* "WEFT" */
#define WF_PACKET_VERSION 3
#define WF_PACKET_FDS 3

enum wf_packet_type {
    WF_PACKET_HELLO = 1, /* client: its identity */
    WF_PACKET_WELCOME,   /* server; fds: state segment, bell segment */
    WF_PACKET_RING,      /* client; fds: forward, back, the sender's event descriptor */
    WF_PACKET_RING_OK,   /* server; fd: the receiver's event descriptor */
    WF_PACKET_RING_NO,   /* server: no such endpoint, or no room */
    WF_PACKET_SLAB,      /* client: requests a slab */
    WF_PACKET_SLAB_OK,   /* server; fd: the slab */
    WF_PACKET_SLAB_NO,   /* server: no such slab, or out of descriptors */
    WF_PACKET_BYE,       /* either: the sender closes its context */
    WF_PACKET_LEFT,      /* server: an endpoint was closed; its word in the state segment is 0 */
    WF_PACKET_TYPES
};

#define WF_PACKET_MEMBARRIER                                                                       \
    1 /* flags: the sender is registered for, and can issue, membarrier                            \
       */

/* HELLO and WELCOME: the sender's identity, and how to read its memory (pull.c). */
struct wf_packet_greeting {
    struct wf_process_id id; /* WELCOME: unused */
    uint64_t mark;           /* address of a copy of id.token; 0: its memory cannot be read */
    uint32_t tid;            /* a thread that lives as long as the context; 0 if mark is 0 */
    uint32_t zero;
};
_Static_assert(sizeof(struct wf_packet_greeting) == 72, "wire structure");

struct wf_packet {
    uint32_t magic;
    uint8_t version;
    uint8_t type;
    uint16_t size; /* of the whole */
    uint32_t flags;
    uint32_t cookie; /* RING*: the client's number for the connection */
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
            uint32_t bell; /* below WF_SHM_BELLS: the receiver's */
            uint32_t bit;  /* below WF_SHM_BELL_BITS: the connection's */
        } ring_ok;
        struct {
            int32_t status;
        } ring_no;
        struct {
            uint64_t id;
            uint64_t size;
            int32_t status; /* SLAB_NO: below 0 */
        } slab;
        uint8_t room[112];
    } u;
};
_Static_assert(sizeof(struct wf_packet) == 128, "wire structure");

/* Parse [len] bytes with [nfds] descriptors into *out; the only parser of packets. Returns 0, or -1
 * if they are no packet of this version, a field is out of range, or the number of descriptors is
 * not that of the type. */
int wf_packet_parse(const void *buf, size_t len, int nfds, struct wf_packet *out);

/* Send without blocking. Returns 0 | -1 with errno. */
int wf_packet_send(int sock, struct wf_packet *packet, enum wf_packet_type type, const int *fds,
                   int nfds);

/* Receive without blocking. Returns 1 (packet and fds, which the caller now
 * owns; *nfds is WF_PACKET_LOST if this process had no room for them and none
 * was kept), 0 (end of file), -1 with errno (EAGAIN: none; EPROTO: not a packet). */
#define WF_PACKET_LOST (-1)
int wf_packet_recv(int sock, struct wf_packet *packet, int fds[WF_PACKET_FDS], int *nfds);

#endif
