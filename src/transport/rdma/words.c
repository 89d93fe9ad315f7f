/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/words.h"

#include <string.h>

#define MAGIC 0x34445257u      /* "WRD4" */
#define CALL_MAGIC 0x31435257u /* "WRC1" */

struct says {
    uint32_t magic;
    uint16_t kind;
    uint16_t size;
};

struct says_plain {
    struct says head;
    struct rdma_past past;
};

struct says_ends {
    struct says head;
    struct rdma_past past;
    uint8_t gid[16];
    uint32_t qp, psn;
    uint16_t lid, mtu;
    uint8_t reads, link;
    uint16_t cm_port;
    uint32_t window, name, cell_key;
    uint8_t device, zero[3];
    uint64_t cell_at;
    uint8_t cm_address[16];
    uint64_t ticket;
};

struct says_call {
    uint32_t magic, size, name, zero;
    uint64_t ticket;
};
_Static_assert(sizeof(struct says) == 8 && sizeof(struct says_plain) == 16 &&
                   sizeof(struct says_ends) == WORD_SIZE && sizeof(struct says_call) == CALL_SIZE,
               "wire structures");

static size_t size_of(unsigned kind)
{
    switch (kind) {
    case SAYS_ENDS: return sizeof(struct says_ends);
    case SAYS_READY: return sizeof(struct says);
    case SAYS_PLAIN: return sizeof(struct says_plain);
    default: return 0;
    }
}

size_t wf_rdma_word_write(const struct rdma_word *word, uint8_t *to)
{
    const struct wf_hca_end *end = &word->end;
    struct says_ends s = {
        .head = {MAGIC, word->kind, (uint16_t)size_of(word->kind)},
        .past = word->past,
        .qp = end->qp,
        .psn = end->psn,
        .lid = end->lid,
        .mtu = end->mtu,
        .reads = end->reads,
        .link = end->link,
        .device = word->device,
        .window = word->window,
        .name = word->name,
        .cell_key = word->cell_key,
        .cell_at = word->cell_at,
        .cm_port = word->cm_port,
        .ticket = word->ticket,
    };
    memcpy(s.gid, end->gid, sizeof s.gid);
    memcpy(s.cm_address, word->cm_address, sizeof s.cm_address);
    memcpy(to, &s, s.head.size); /* a shorter one is its beginning */
    return s.head.size;
}

size_t wf_rdma_word_size(const uint8_t *bytes, size_t have)
{
    struct says s;
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

/* All of it, or nothing. */
static bool is_cm(const struct says_ends *s)
{
    bool has_address = !is_zero(s->cm_address, sizeof s->cm_address);
    return s->cm_port ? has_address : !has_address && !s->ticket;
}

bool wf_rdma_word_read(const uint8_t *bytes, struct rdma_word *word)
{
    struct says_ends s = {.past.psn = PAST_NONE};
    struct says head;
    memcpy(&head, bytes, sizeof head);
    memcpy(&s, bytes, head.size);
    *word = (struct rdma_word){
        .kind = s.head.kind,
        .past = s.past,
        .end = {.qp = s.qp,
                .psn = s.psn,
                .lid = s.lid,
                .mtu = s.mtu,
                .reads = s.reads,
                .link = s.link},
        .device = s.device,
        .window = s.window,
        .name = s.name,
        .cell_key = s.cell_key,
        .cell_at = s.cell_at,
        .cm_port = s.cm_port,
        .ticket = s.ticket,
    };
    memcpy(word->end.gid, s.gid, sizeof s.gid);
    memcpy(word->cm_address, s.cm_address, sizeof s.cm_address);
    if (!is_psn(s.past.psn) && s.past.psn != PAST_NONE)
        return false;
    return s.head.kind != SAYS_ENDS ||
           (is_zero(s.zero, sizeof s.zero) && s.device < WF_KEY_NICS && s.window >= 2 &&
            s.window <= WORD_WINDOW && is_mtu(s.mtu) && is_psn(s.psn) && is_psn(s.qp) &&
            s.link <= WF_HCA_ETHERNET && is_cm(&s));
}

void wf_rdma_call_write(const struct rdma_call *call, uint8_t *to)
{
    struct says_call s = {
        .magic = CALL_MAGIC, .size = sizeof s, .name = call->name, .ticket = call->ticket};
    memcpy(to, &s, sizeof s);
}

bool wf_rdma_call_read(const uint8_t *bytes, size_t have, struct rdma_call *call)
{
    struct says_call s;
    if (have < sizeof s)
        return false;
    memcpy(&s, bytes, sizeof s);
    *call = (struct rdma_call){.name = s.name, .ticket = s.ticket};
    return s.magic == CALL_MAGIC && s.size == sizeof s && !s.zero &&
           is_zero(bytes + sizeof s, have - sizeof s);
}
