/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/qp_msg.h"

#include <string.h>

#define MAGIC 0x35445257u         /* "WRD5" */
#define CM_DATA_MAGIC 0x31435257u /* "WRC1" */
#define FLAG_FIRST_NIC 1u

struct qp_msg_head {
    uint32_t magic;
    uint16_t kind;
    uint16_t size;
};

struct qp_msg_plain {
    struct qp_msg_head head;
    struct qp_acked acked;
};

struct qp_msg_ends {
    struct qp_msg_head head;
    struct qp_acked acked;
    uint8_t gid[16];
    uint32_t qp, psn;
    uint16_t lid, mtu;
    uint8_t reads, link;
    uint16_t cm_port;
    uint32_t window, name, credit_key;
    uint8_t device, flags, zero[2];
    uint64_t credit_at;
    uint8_t cm_address[16];
    uint64_t ticket;
};

struct cm_data_bytes {
    uint32_t magic, size, name, zero;
    uint64_t ticket;
};
_Static_assert(sizeof(struct qp_msg_head) == 8 && sizeof(struct qp_msg_plain) == 16 &&
                   sizeof(struct qp_msg_ends) == QP_MSG_SIZE &&
                   sizeof(struct cm_data_bytes) == CM_DATA_SIZE,
               "wire structures");

static size_t size_of(unsigned kind)
{
    switch (kind) {
    case QP_MSG_ENDS: return sizeof(struct qp_msg_ends);
    case QP_MSG_READY: return sizeof(struct qp_msg_head);
    case QP_MSG_PLAIN: return sizeof(struct qp_msg_plain);
    default: return 0;
    }
}

size_t wf_qp_msg_write(const struct qp_msg *word, uint8_t *to)
{
    const struct wf_hca_end *end = &word->end;
    struct qp_msg_ends s = {
        .head = {MAGIC, word->kind, (uint16_t)size_of(word->kind)},
        .acked = word->acked,
        .qp = end->qp,
        .psn = end->psn,
        .lid = end->lid,
        .mtu = end->mtu,
        .reads = end->reads,
        .link = end->link,
        .device = word->device,
        .flags = word->is_first_nic ? FLAG_FIRST_NIC : 0,
        .window = word->window,
        .name = word->name,
        .credit_key = word->credit_key,
        .credit_at = word->credit_at,
        .cm_port = word->cm_port,
        .ticket = word->ticket,
    };
    memcpy(s.gid, end->gid, sizeof s.gid);
    memcpy(s.cm_address, word->cm_address, sizeof s.cm_address);
    memcpy(to, &s, s.head.size); /* each shorter message is a prefix of ENDS */
    return s.head.size;
}

size_t wf_qp_msg_size(const uint8_t *bytes, size_t have)
{
    struct qp_msg_head s;
    if (have < sizeof s)
        return sizeof s;
    memcpy(&s, bytes, sizeof s);
    return s.magic == MAGIC && s.size == size_of(s.kind) ? s.size : 0;
}

static bool is_psn(uint32_t psn)
{
    return psn <= 0xffffff;
}

static bool is_mtu(unsigned mtu)
{
    return mtu >= 256 && mtu <= 4096 && !(mtu & (mtu - 1));
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    while (n && !bytes[n - 1])
        n--;
    return !n;
}

/* Returns whether the fields of the connection manager are valid: port and address are both set, or
 * port, address and ticket are all zero. */
static bool is_cm(const struct qp_msg_ends *s)
{
    bool has_address = !is_zero(s->cm_address, sizeof s->cm_address);
    return s->cm_port ? has_address : !has_address && !s->ticket;
}

bool wf_qp_msg_read(const uint8_t *bytes, struct qp_msg *word)
{
    struct qp_msg_ends s = {.acked.psn = PSN_NONE};
    struct qp_msg_head head;
    memcpy(&head, bytes, sizeof head);
    memcpy(&s, bytes, head.size);
    *word = (struct qp_msg){
        .kind = s.head.kind,
        .acked = s.acked,
        .end = {.qp = s.qp,
                .psn = s.psn,
                .lid = s.lid,
                .mtu = s.mtu,
                .reads = s.reads,
                .link = s.link},
        .device = s.device,
        .is_first_nic = s.flags & FLAG_FIRST_NIC,
        .window = s.window,
        .name = s.name,
        .credit_key = s.credit_key,
        .credit_at = s.credit_at,
        .cm_port = s.cm_port,
        .ticket = s.ticket,
    };
    memcpy(word->end.gid, s.gid, sizeof s.gid);
    memcpy(word->cm_address, s.cm_address, sizeof s.cm_address);
    if (!is_psn(s.acked.psn) && s.acked.psn != PSN_NONE)
        return false;
    return s.head.kind != QP_MSG_ENDS ||
           (is_zero(s.zero, sizeof s.zero) && s.flags <= FLAG_FIRST_NIC && s.device < WF_KEY_NICS &&
            s.device >= s.flags && s.window >= 2 && s.window <= QP_MSG_WINDOW && is_mtu(s.mtu) &&
            is_psn(s.psn) && is_psn(s.qp) && s.link <= WF_HCA_ETHERNET && is_cm(&s));
}

void wf_cm_data_write(const struct cm_data *call, uint8_t *to)
{
    struct cm_data_bytes s = {
        .magic = CM_DATA_MAGIC, .size = sizeof s, .name = call->name, .ticket = call->ticket};
    memcpy(to, &s, sizeof s);
}

bool wf_cm_data_read(const uint8_t *bytes, size_t have, struct cm_data *call)
{
    struct cm_data_bytes s;
    if (have < sizeof s)
        return false;
    memcpy(&s, bytes, sizeof s);
    *call = (struct cm_data){.name = s.name, .ticket = s.ticket};
    return s.magic == CM_DATA_MAGIC && s.size == sizeof s && !s.zero &&
           is_zero(bytes + sizeof s, have - sizeof s);
}
