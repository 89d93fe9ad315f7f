/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes of an endpoint's queues and buffers on one port. weft-plan(1) computes with them, too. */
#ifndef WF_TRANSPORT_RDMA_SIZES_H
#define WF_TRANSPORT_RDMA_SIZES_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define QP_BUFFER 8192u
/* receive buffers for a channel's whole ring: 128 KiB / QP_BUFFER + 1 */
#define QP_RESERVE 17u
#define QP_WINDOW (2 * QP_RESERVE) /* SENDs granted to a new peer at first */
/* Receive buffers for the peer's credit writes, in addition to the QP_WINDOW buffers for SENDs.
 * Used only if each queue pair has its own receive queue. */
#define QP_GRANTS 4u
#define QP_UNDER_WAY 2048u /* limit for [under_way] of a rail */
#define QP_LINKS 16384u    /* limit for the links on one rail */
#define QP_RESULTS QP_UNDER_WAY

/* Bytes of a queue's entry, as on common NICs. Providers do not report them. */
#define WF_WQE_BYTES 64u
#define WF_CQE_BYTES 64u

/* The credit words and the source words of a rail's links, 4 bytes each. */
static inline size_t wf_rdma_credits_bytes(uint32_t links)
{
    return wf_align_up(8 * (size_t)links, 4096);
}

/* Send buffers of a rail that has [receives] receive buffers. */
static inline uint32_t wf_rdma_pieces(uint32_t receives)
{
    return receives / 2;
}

/* The registered memory of a rail. */
static inline size_t wf_rdma_rail_bytes(uint32_t receives)
{
    return wf_rdma_credits_bytes(QP_LINKS) +
           ((size_t)receives + wf_rdma_pieces(receives)) * QP_BUFFER + QP_RESULTS * 8;
}

/* Entries of a rail's completion queue that the NIC is asked for. */
static inline uint32_t wf_rdma_cq_depth(uint32_t receives)
{
    return receives + QP_UNDER_WAY;
}

#endif
