/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages of a queue pair's handshake (qp_link.h): their bytes, and their parsers. */
#ifndef WF_TRANSPORT_RDMA_QP_MSG_H
#define WF_TRANSPORT_RDMA_QP_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/address.h"
#include "transport/rdma/hca.h"

enum qp_msg_kind { QP_MSG_ENDS = 1, QP_MSG_READY = 2, QP_MSG_PLAIN = 3 };

#define PSN_NONE UINT32_MAX

/* The part of a handshake message that reports on a closed queue pair: how many requests of the
 * message's receiver the NIC of the message's sender executed. */
struct qp_acked {
    uint32_t name; /* wf_qp_link_name of the receiver's link that used the queue pair */
    /* The number of the packet that the sender's NIC expected next. PSN_NONE if there is no
     * report. */
    uint32_t psn;
};

struct qp_msg {
    uint16_t kind; /* enum qp_msg_kind */
    /* Field of ENDS and PLAIN: */
    struct qp_acked acked;
    /* Fields of ENDS only: */
    struct wf_hca_end end;
    /* index of the sender's NIC in a region's array of remote keys, < WF_KEY_NICS */
    uint8_t device;
    /* that NIC is a further context of the sender's first one (WEFT_SHARING=split): each region
     * that has any remote key has one for it */
    bool is_first_nic;
    /* number of SENDs that the sender grants at first, 2 to QP_MSG_WINDOW */
    uint32_t window;
    /* name of the sender's link; the immediate of each SEND to that link contains this name */
    uint32_t name;
    uint32_t credit_key; /* remote key of the sender's credit word */
    uint64_t credit_at;  /* address of the sender's credit word */
    /* Where the sender's connection manager listens. If there is no manager, port, address and
     * ticket are 0. */
    uint16_t cm_port;
    uint8_t cm_address[16]; /* an IPv6 address, or an IPv4 address mapped to IPv6 */
    /* random number of the sender's link; a connect request to this link must carry the same number
     * (cm.h) */
    uint64_t ticket;
};

#define QP_MSG_SIZE 96u    /* size of ENDS, the longest message */
#define QP_MSG_WINDOW 128u /* QP_LINE / 2 */

/* Writes a message to a buffer of QP_MSG_SIZE bytes. Returns the message's size. */
size_t wf_qp_msg_write(const struct qp_msg *word, uint8_t *to);

/* Returns the size of the message that begins with [bytes]. If [have] is less than 8, the size of a
 * header, returns 8. Returns 0 if the header is invalid. */
size_t wf_qp_msg_size(const uint8_t *bytes, size_t have);

/* Parses a whole message, of wf_qp_msg_size bytes. Returns false if a field is invalid. */
bool wf_qp_msg_read(const uint8_t *bytes, struct qp_msg *word);

/* The private data of a connect request or response. It names the receiver's link by the name and
 * the ticket from that link's ENDS. */
struct cm_data {
    uint32_t name;
    uint64_t ticket;
};

#define CM_DATA_SIZE 24u

/* Writes CM_DATA_SIZE bytes to [to]. */
void wf_cm_data_write(const struct cm_data *call, uint8_t *to);

/* Parses [have] bytes, which may end with padding zeros. Returns false if the bytes are invalid. */
bool wf_cm_data_read(const uint8_t *bytes, size_t have, struct cm_data *call);

#endif
