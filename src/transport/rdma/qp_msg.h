/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages of a queue pair's handshake (qp_link.h): bytes and parsers. */
#ifndef WF_TRANSPORT_RDMA_QP_MSG_H
#define WF_TRANSPORT_RDMA_QP_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "transport/address.h"
#include "transport/rdma/hca.h"

enum qp_msg_kind { QP_MSG_ENDS = 1, QP_MSG_READY = 2, QP_MSG_PLAIN = 3 };

#define PSN_NONE UINT32_MAX

/* A report on a closed queue pair: how far the peer's requests came. */
struct qp_acked {
    uint32_t name; /* of the receiver's link: wf_qp_link_name */
    uint32_t psn;  /* of the packet that the sender expected next; PSN_NONE: no report */
};

struct qp_msg {
    uint16_t kind; /* enum qp_msg_kind */
    /* ENDS and PLAIN: */
    struct qp_acked acked;
    /* ENDS: */
    struct wf_hca_end end;
    uint8_t device;      /* index of the sender's NIC in a region's remote keys, < WF_KEY_NICS */
    uint32_t window;     /* SENDs granted from the start, 2 .. QP_MSG_WINDOW */
    uint32_t name;       /* of the sender's link: the immediate of each SEND to it */
    uint32_t credit_key; /* remote key of its credit word */
    uint64_t credit_at;  /* address of its credit word */
    /* Where the sender's connection manager listens. Port 0: it has none, and address and ticket
     * are 0. */
    uint16_t cm_port;
    uint8_t cm_address[16]; /* IPv6, or IPv4 mapped to it */
    uint64_t ticket;        /* for the connect request (cm.h) */
};

#define QP_MSG_SIZE 96u    /* of the longest */
#define QP_MSG_WINDOW 128u /* QP_LINE / 2 */

/* Write a message to a buffer of QP_MSG_SIZE bytes. Returns its size. */
size_t wf_qp_msg_write(const struct qp_msg *word, uint8_t *to);

/* The size of the message of which [have] bytes are here; 8 while its head is not here. 0: these
 * bytes are no message. */
size_t wf_qp_msg_size(const uint8_t *bytes, size_t have);

/* Parse a message of wf_qp_msg_size bytes. False: a field is invalid. */
bool wf_qp_msg_read(const uint8_t *bytes, struct qp_msg *word);

/* Private data of a connect request and its response: the link that it is for, as in the ENDS of
 * that link's side. */
struct cm_data {
    uint32_t name;
    uint64_t ticket;
};

#define CM_DATA_SIZE 24u

/* Write CM_DATA_SIZE bytes. */
void wf_cm_data_write(const struct cm_data *call, uint8_t *to);

/* Parse [have] bytes; zeros may follow the data. False: they are invalid. */
bool wf_cm_data_read(const uint8_t *bytes, size_t have, struct cm_data *call);

#endif
