/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two sides of a wire tell each other on its socket (wire.h): as bytes, and parsed. */
#ifndef WF_TRANSPORT_RDMA_WORDS_H
#define WF_TRANSPORT_RDMA_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "transport/address.h"
#include "transport/rdma/hca.h"

enum rdma_says { SAYS_ENDS = 1, SAYS_READY = 2, SAYS_PLAIN = 3 };

#define PAST_NONE UINT32_MAX

/* How far a queue pair that was closed came. */
struct rdma_past {
    uint32_t name; /* of whose wire went to it: cell_name, wire.c */
    uint32_t psn;  /* of the packet that it would have taken next; PAST_NONE: nothing is told */
};

struct rdma_word {
    uint16_t kind; /* enum rdma_says */
    /* ENDS and PLAIN: */
    struct rdma_past past;
    /* ENDS: */
    struct wf_hca_end end;
    uint8_t device;    /* which of a region's remote keys are for it, < WF_KEY_NICS */
    uint32_t window;   /* buffers granted from the start, 2 .. WORD_WINDOW */
    uint32_t name;     /* to be said with each send */
    uint32_t cell_key; /* of its cell, */
    uint64_t cell_at;  /* its address */
    /* Where its connection manager listens. Port 0: it connects without one, and says no more. */
    uint16_t cm_port;
    uint8_t cm_address[16]; /* IPv6, or IPv4 mapped to it */
    uint64_t ticket;        /* to be shown there */
};

#define WORD_SIZE 96u    /* of the longest */
#define WORD_WINDOW 128u /* WIRE_LINE / 2 */

/* Into WORD_SIZE bytes; how many were written. */
size_t wf_rdma_word_write(const struct rdma_word *word, uint8_t *to);

/* The bytes of the word of which [have] are here: at least the first 8 tell. 0: it is no word. */
size_t wf_rdma_word_size(const uint8_t *bytes, size_t have);

/* Of wf_rdma_word_size bytes. False: it says what cannot be. */
bool wf_rdma_word_read(const uint8_t *bytes, struct rdma_word *word);

/* What a connection manager's request and its answer carry: whose they are for, as that side's ENDS
 * has told. */
struct rdma_call {
    uint32_t name;
    uint64_t ticket;
};

#define CALL_SIZE 24u

/* Into CALL_SIZE bytes. */
void wf_rdma_call_write(const struct rdma_call *call, uint8_t *to);

/* Of [have] bytes, of which zeros may follow it. False: it is none. */
bool wf_rdma_call_read(const uint8_t *bytes, size_t have, struct rdma_call *call);

#endif
