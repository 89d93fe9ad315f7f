/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets between the service threads of two processes: one SOCK_SEQPACKET
 * message each, of one size, with descriptors by SCM_RIGHTS. The client is the
 * process that connected; it alone asks. docs/protocol.md "Service packets". */
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
    WF_PACKET_HELLO = 1, /* client: who it is */
    WF_PACKET_WELCOME,   /* server: fds: state segment, bell segment */
    WF_PACKET_RING,      /* client: fds: forward, back, the sender's event descriptor */
    WF_PACKET_RING_OK,   /* server: fd: the receiver's event descriptor */
    WF_PACKET_RING_NO,   /* server: no such endpoint, or no room */
    WF_PACKET_SLAB,      /* client: asks for a slab */
    WF_PACKET_SLAB_OK,   /* server: fd: the slab */
    WF_PACKET_SLAB_NO,   /* server: closed */
    WF_PACKET_BYE,       /* either: this process closes its context, in order */
    WF_PACKET_LEFT,      /* server: an endpoint was closed; its word in the state segment is 0 */
    WF_PACKET_TYPES
};

#define WF_PACKET_MEMBARRIER                                                                       \
    1 /* flags: this process is registered for, and can issue, membarrier */

/* HELLO and WELCOME: who sends it, and how its memory is read from outside (pull.c). */
struct wf_packet_greeting {
    struct wf_process_id id; /* WELCOME: unused */
    uint64_t mark;           /* where in its memory id.token lies; 0: it cannot be read */
    uint32_t tid;            /* of a thread that lives as long as the context; 0 if mark is */
    uint32_t zero;
};
_Static_assert(sizeof(struct wf_packet_greeting) == 72, "wire structure");

struct wf_packet {
    uint32_t magic;
    uint8_t version;
    uint8_t type;
    uint16_t size; /* of the whole */
    uint32_t flags;
    uint32_t cookie; /* RING*: the client's number of the connection */
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

/* Check [len] bytes with [nfds] descriptors; the one parser of packets. Copies
 * them to *out. Returns 0, or -1 if it is no packet of this version, or a field
 * is out of range, or the descriptors are not those of its type. */
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
