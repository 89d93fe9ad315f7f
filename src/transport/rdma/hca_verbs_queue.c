/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h over libibverbs: completion queues and receive queues. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "transport/rdma/hca_verbs.h"

#define POLL_BATCH 32

/* ---- completion queues ---- */

void wf_verbs_cq_close(struct wf_hca_cq *base)
{
    struct verbs_cq *cq = VERBS(base, cq);
    if (cq->cq && ibv_destroy_cq(cq->cq)) {
        wf_warn("%s: a completion queue cannot be freed: %m", base->hca->name);
        return; /* events of the queue name [cq] */
    }
    if (cq->channel)
        (void)ibv_destroy_comp_channel(cq->channel);
    if (cq->cq)
        wf_hca_freed(base->hca, WF_HCA_CQ, cq->bytes);
    free(cq);
}

/* What a completion reports (ibv_create_cq_ex(3)). */
#define WC_FIELDS (IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM)

/* Creates a queue of the thread domain that is polled without a lock. Some providers, such as hns,
 * want to know the domain; others refuse a queue with a domain. Returns NULL if the provider has no
 * such queues. */
static struct ibv_cq_ex *cq_create_alone(struct verbs_cq *owner, const struct wf_hca_td *td,
                                         uint32_t depth)
{
    struct ibv_context *context = VERBS(owner->base.hca, hca)->context;
    struct ibv_cq_init_attr_ex attr = {.cqe = depth,
                                       .cq_context = owner,
                                       .channel = owner->channel,
                                       .wc_flags = WC_FIELDS,
                                       .comp_mask =
                                           IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
                                       .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
                                       .parent_domain = VERBS(td, td)->domain};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    return cq ? cq : ibv_create_cq_ex(context, &attr);
}

/* Creates the completion queue of [owner]. Returns false with errno after a failure. */
static bool cq_create(struct verbs_cq *owner, const struct wf_hca_td *td, uint32_t depth)
{
    struct ibv_context *context = VERBS(owner->base.hca, hca)->context;
    owner->ex = td ? cq_create_alone(owner, td, depth) : NULL;
    owner->cq = owner->ex ? ibv_cq_ex_to_cq(owner->ex)
                          : ibv_create_cq(context, (int)depth, owner, owner->channel, 0);
    owner->base.locks = !owner->ex;
    if (td && !owner->ex)
        wf_info("%s: completion queues of one thread take locks all the same: the driver has no "
                "others",
                owner->base.hca->name);
    return owner->cq;
}

static struct ibv_comp_channel *channel_open(struct ibv_context *context)
{
    struct wf_fd_floor floor;
    struct ibv_comp_channel *channel;
    wf_fd_floor_hold(&floor);
    channel = ibv_create_comp_channel(context);
    wf_fd_floor_drop(&floor);
    return channel;
}

enum weft_status wf_verbs_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                  bool events, struct wf_hca_cq **out)
{
    struct verbs_cq *cq = calloc(1, sizeof *cq);
    struct ibv_context *context = VERBS(hca, hca)->context;
    enum weft_status status;
    if (!cq)
        return WEFT_ENOMEM;
    cq->base.hca = hca;
    cq->base.event_fd = -1;
    errno = 0;
    if (events) {
        cq->channel = channel_open(context);
        if (!cq->channel || fcntl(cq->channel->fd, F_SETFL, O_NONBLOCK))
            goto failed;
        cq->base.event_fd = cq->channel->fd;
    }
    if (!cq_create(cq, td, depth))
        goto failed;
    cq->base.depth = (uint32_t)cq->cq->cqe;
    cq->bytes = (uint64_t)cq->base.depth * WF_CQE_BYTES;
    wf_hca_made(hca, WF_HCA_CQ, cq->bytes);
    *out = &cq->base;
    return WEFT_OK;
failed:
    status = wf_verbs_refusal();
    wf_verbs_cq_close(&cq->base);
    return status;
}

static enum wf_hca_status wc_status(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS: return WF_HCA_OK;
    case IBV_WC_WR_FLUSH_ERR: return WF_HCA_FLUSHED;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return WF_HCA_UNREACHABLE;
    case IBV_WC_RNR_RETRY_EXC_ERR: return WF_HCA_NOT_READY;
    case IBV_WC_REM_ACCESS_ERR: return WF_HCA_REMOTE_ACCESS;
    /* IBV_WC_REM_OP_ERR is left to the default, WF_HCA_FAULT: part of such a request may have been
     * executed. */
    case IBV_WC_REM_INV_REQ_ERR: return WF_HCA_REMOTE_FAULT;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR: return WF_HCA_LOCAL_FAULT;
    default: return WF_HCA_FAULT;
    }
}

static void wc_take(const struct ibv_wc *from, struct wf_hca_wc *to)
{
    bool ok = from->status == IBV_WC_SUCCESS, received = ok && from->opcode & IBV_WC_RECV;
    *to = (struct wf_hca_wc){
        .id = from->wr_id,
        .qp = from->qp_num,
        .len = received ? from->byte_len : 0,
        .kind = received ? WF_HCA_WC_RECEIVED : WF_HCA_WC_SENT,
        .status = (uint8_t)wc_status(from->status),
        .has_imm = received && from->wc_flags & IBV_WC_WITH_IMM,
        .is_write = received && from->opcode == IBV_WC_RECV_RDMA_WITH_IMM,
    };
    if (to->has_imm)
        to->imm = be32toh(from->imm_data);
}

static int poll_locked(struct ibv_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    struct ibv_wc wc[POLL_BATCH];
    int n = ibv_poll_cq(cq, (int)WF_MIN(room, POLL_BATCH), wc);
    for (int i = 0; i < n; i++)
        wc_take(&wc[i], &out[i]);
    return n;
}

static void wc_read(struct ibv_cq_ex *cq, struct wf_hca_wc *to)
{
    bool ok = cq->status == IBV_WC_SUCCESS;
    enum ibv_wc_opcode opcode = ok ? ibv_wc_read_opcode(cq) : IBV_WC_SEND;
    bool received = ok && opcode & IBV_WC_RECV;
    *to = (struct wf_hca_wc){
        .id = cq->wr_id,
        .qp = ibv_wc_read_qp_num(cq),
        .len = received ? ibv_wc_read_byte_len(cq) : 0,
        .kind = received ? WF_HCA_WC_RECEIVED : WF_HCA_WC_SENT,
        .status = (uint8_t)wc_status(cq->status),
        .has_imm = received && ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM,
        .is_write = received && opcode == IBV_WC_RECV_RDMA_WITH_IMM,
    };
    if (to->has_imm)
        to->imm = be32toh(ibv_wc_read_imm_data(cq));
}

/* Polls without a lock. Each ibv_start_poll(3) that succeeds needs one ibv_end_poll(3). */
static int poll_alone(struct verbs_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    struct ibv_poll_cq_attr attr = {0};
    unsigned n = 0;
    int err = cq->broken ? EIO : room ? ibv_start_poll(cq->ex, &attr) : ENOENT;
    if (err)
        return err == ENOENT ? 0 : -1;
    do
        wc_read(cq->ex, &out[n++]);
    while (n < room && !(err = ibv_next_poll(cq->ex)));
    ibv_end_poll(cq->ex);
    cq->broken = err && err != ENOENT; /* providers do not report it again */
    return (int)n;
}

int wf_verbs_poll(struct wf_hca_cq *base, struct wf_hca_wc *out, unsigned room)
{
    struct verbs_cq *cq = VERBS(base, cq);
    return cq->ex ? poll_alone(cq, out, room) : poll_locked(cq->cq, out, room);
}

enum weft_status wf_verbs_arm(struct wf_hca_cq *cq)
{
    int err = ibv_req_notify_cq(VERBS(cq, cq)->cq, 0);
    return err ? wf_verbs_status(err) : WEFT_OK;
}

void wf_verbs_disarm(struct wf_hca_cq *base)
{
    struct verbs_cq *cq = VERBS(base, cq);
    struct ibv_cq *of;
    void *context;
    unsigned n = 0;
    while (cq->channel && !ibv_get_cq_event(cq->channel, &of, &context))
        n++;
    if (n)
        ibv_ack_cq_events(cq->cq, n);
}

/* ---- receive queues ---- */

void wf_verbs_srq_close(struct wf_hca_srq *base)
{
    struct verbs_srq *srq = VERBS(base, srq);
    if (ibv_destroy_srq(srq->srq)) {
        wf_warn("%s: a shared receive queue cannot be freed: %m", base->hca->name);
        return; /* events of the queue name [srq] */
    }
    wf_hca_freed(base->hca, WF_HCA_SRQ, srq->bytes);
    free(srq);
}

enum weft_status wf_verbs_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                   struct wf_hca_srq **out)
{
    struct verbs_srq *srq = calloc(1, sizeof *srq);
    struct ibv_srq_init_attr attr = {.srq_context = srq, .attr = {.max_wr = depth, .max_sge = 1}};
    if (!srq)
        return WEFT_ENOMEM;
    srq->base.hca = pd->hca;
    srq->srq = ibv_create_srq(verbs_domain(pd, td), &attr);
    if (!srq->srq) {
        enum weft_status status = wf_verbs_refusal();
        free(srq);
        return status;
    }
    srq->base.depth = WF_MIN(depth, attr.attr.max_wr);
    srq->bytes = (uint64_t)attr.attr.max_wr * WF_WQE_BYTES;
    wf_hca_made(pd->hca, WF_HCA_SRQ, srq->bytes);
    *out = &srq->base;
    return WEFT_OK;
}

static void recv_make(const struct wf_hca_recv *from, struct ibv_recv_wr *wr, struct ibv_sge *sge,
                      bool last)
{
    *sge = (struct ibv_sge){(uintptr_t)from->sge.addr, from->sge.len, from->sge.lkey};
    *wr = (struct ibv_recv_wr){
        .wr_id = from->id, .next = last ? NULL : wr + 1, .sg_list = sge, .num_sge = 1};
}

/* Posts the list to [queue] by [post], which is srq_post_one or qp_post_one. Returns how many
 * buffers were posted. */
static unsigned recv_post(void *queue, const struct wf_hca_recv *list, unsigned n,
                          int (*post)(void *queue, struct ibv_recv_wr *wr,
                                      struct ibv_recv_wr **bad))
{
    unsigned done = 0;
    while (done < n) {
        struct ibv_recv_wr wr[POST_BATCH], *bad = NULL;
        struct ibv_sge sge[POST_BATCH];
        unsigned part = WF_MIN(n - done, POST_BATCH);
        for (unsigned i = 0; i < part; i++)
            recv_make(&list[done + i], &wr[i], &sge[i], i + 1 == part);
        if (post(queue, wr, &bad))
            return done + (bad ? (unsigned)(bad - wr) : 0);
        done += part;
    }
    return done;
}

static int srq_post_one(void *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return ibv_post_srq_recv(queue, wr, bad);
}

static int qp_post_one(void *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return ibv_post_recv(queue, wr, bad);
}

unsigned wf_verbs_post_srq(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n)
{
    return recv_post(VERBS(srq, srq)->srq, list, n, srq_post_one);
}

unsigned wf_verbs_post_recv(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n)
{
    return recv_post(VERBS(qp, qp)->qp, list, n, qp_post_one);
}
