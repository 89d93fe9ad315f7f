/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses of a client's window (layout.h), by which the service's NIC accesses its memory.
 *
 * They are handed out in chunks. A chunk of cached ranges is handed out again once all of them have
 * given their addresses back, but for its *holes*: addresses by which a peer may still read a
 * message that was taken back. One of regions never is: a peer may have the key of a closed region,
 * and NICs use keys again. */
#ifndef WF_TRANSPORT_NODE_WINDOW_H
#define WF_TRANSPORT_NODE_WINDOW_H

#include "transport/node/layout.h"

#define WF_VIA_CHUNK_BITS 37
#define WF_VIA_CHUNK (UINT64_C(1) << WF_VIA_CHUNK_BITS)
#define WF_VIA_CHUNKS (1u << (WF_NODE_WINDOW_BITS - WF_VIA_CHUNK_BITS))
#define WF_VIA_LEAF (UINT64_C(2) << 20) /* the most that one entry of a NIC's page table covers */

enum via_kind { VIA_CACHED, VIA_REGION, VIA_KINDS };

#define WF_VIA_HOLES 65536u

struct via_hole {
    uint64_t from, to; /* in the window */
};

struct via_window {
    uint32_t number; /* wf_node_window */
    uint32_t page;   /* the kernel's: a driver maps its pages, of 4 to 64 KiB */
    struct {
        uint32_t chunk; /* WF_VIA_CHUNKS: none */
        uint64_t next;  /* in it */
    } cursors[VIA_KINDS];
    uint32_t live[WF_VIA_CHUNKS]; /* what keeps each chunk from being handed out again */
    struct via_hole *holes;       /* of chunks of cached ranges, in their order */
    uint32_t nholes, hole_room;
};

/* Begin with window [number], all of whose addresses are free. [w] is zeroed, or has begun before.
 */
void wf_via_window_begin(struct via_window *w, uint32_t number);
/* Take addresses for [len] bytes, whose offset within a page, or within WF_VIA_LEAF if they are as
 * long, is that of [addr]. Returns 0 if there are none. */
uint64_t wf_via_window_take(struct via_window *w, enum via_kind kind, uint64_t addr, uint64_t len);
/* Addresses that were taken are used no more. */
void wf_via_window_give(struct via_window *w, enum via_kind kind, uint64_t at);
/* The same, and they are not handed out again. Without memory, or with WF_VIA_HOLES such ranges,
 * none of their chunk are. */
void wf_via_window_keep(struct via_window *w, enum via_kind kind, uint64_t at, uint64_t len);
void wf_via_window_end(struct via_window *w);

#endif
