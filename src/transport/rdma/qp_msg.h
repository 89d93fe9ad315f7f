/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two sides of a queue pair tell each other on its socket (qp_link.h): as bytes, and
 * parsed. */
#ifndef WF_TRANSPORT_RDMA_QP_MSG_H
#define WF_TRANSPORT_RDMA_QP_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "transport/address.h"
#include "transport/rdma/hca.h"

enum qp_msg_kind { QP_MSG_ENDS = 1, QP_MSG_READY = 2, QP_MSG_PLAIN = 3 };

#define PSN_NONE UINT32_MAX

/* How far a queue pair that was closed came. */
struct qp_acked {
    uint32_t name; /* of the link that the reporting side had: wf_qp_link_name */
    uint32_t psn;  /* of the packet that it would have taken next; PSN_NONE: nothing is told */
};

struct qp_msg {
    uint16_t kind; /* enum qp_msg_kind */
    /* ENDS and PLAIN: */
    struct qp_acked acked;
    /* ENDS: */
    struct wf_hca_end end;
    uint8_t device;      /* which of a region's remote keys are for it, < WF_KEY_NICS */
    uint32_t window;     /* buffers granted from the start, 2 .. QP_MSG_WINDOW */
    uint32_t name;       /* to be said with each send */
    uint32_t credit_key; /* of its credit word, */
    uint64_t credit_at;  /* its address */
    /* Where its connection manager listens. Port 0: it connects without one, and says no more. */
    uint16_t cm_port;
    uint8_t cm_address[16]; /* IPv6, or IPv4 mapped to it */
    uint64_t ticket;        /* to be shown there */
};

#define QP_MSG_SIZE 96u    /* of the longest */
#define QP_MSG_WINDOW 128u /* QP_LINE / 2 */

/* Into QP_MSG_SIZE bytes; how many were written. */
size_t wf_qp_msg_write(const struct qp_msg *word, uint8_t *to);

/* The bytes of the word of which [have] are here: at least the first 8 tell. 0: it is no word. */
size_t wf_qp_msg_size(const uint8_t *bytes, size_t have);

/* Of wf_qp_msg_size bytes. False: it says what cannot be. */
bool wf_qp_msg_read(const uint8_t *bytes, struct qp_msg *word);

/* What a connection manager's request and its answer carry: whose they are for, as that side's ENDS
 * has told. */
struct cm_data {
    uint32_t name;
    uint64_t ticket;
};

#define CM_DATA_SIZE 24u

/* Into CM_DATA_SIZE bytes. */
void wf_cm_data_write(const struct cm_data *call, uint8_t *to);

/* Of [have] bytes, of which zeros may follow it. False: it is none. */
bool wf_cm_data_read(const uint8_t *bytes, size_t have, struct cm_data *call);

#endif
