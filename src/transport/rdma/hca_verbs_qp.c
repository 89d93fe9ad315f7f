/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h over libibverbs: queue pairs, their states, and posting to their send queues. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "transport/rdma/hca_verbs.h"

/* ---- opening ---- */

void wf_verbs_qp_close(struct wf_hca_qp *base)
{
    struct verbs_qp *qp = VERBS(base, qp);
    wf_verbs_qp_uuar_close(qp);
    if (qp->qp && ibv_destroy_qp(qp->qp))
        wf_warn("%s: a queue pair cannot be freed: %m", base->hca->name);
    if (qp->qp)
        wf_hca_freed(base->hca, WF_HCA_QP, qp->bytes);
    free(qp);
}

/* Creates a queue pair. If the provider supports ibv_wr_post(3), sets *out_ex for that interface,
 * else sets *out_ex to NULL. Sets attr->cap to the sizes that the provider chose. Returns NULL with
 * errno after a failure. */
static struct ibv_qp *qp_create(const struct wf_hca *hca, struct ibv_pd *pd,
                                struct ibv_qp_init_attr *attr, struct ibv_qp_ex **out_ex)
{
    struct ibv_qp_init_attr_ex ex = {
        .send_cq = attr->send_cq,
        .recv_cq = attr->recv_cq,
        .srq = attr->srq,
        .cap = attr->cap,
        .qp_type = attr->qp_type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ};
    struct ibv_qp *qp;
    if (hca->caps.atomics)
        ex.send_ops_flags |=
            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    qp = ibv_create_qp_ex(pd->context, &ex);
    /* ibv_qp_to_qp_ex must not be called for queue pairs of ibv_create_qp. */
    *out_ex = NULL;
    if (!qp)
        return ibv_create_qp(pd, attr);
    attr->cap = ex.cap;
    *out_ex = ibv_qp_to_qp_ex(qp);
    return qp;
}

enum weft_status wf_verbs_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = VERBS(p->send_cq, cq)->cq,
        .recv_cq = VERBS(p->recv_cq, cq)->cq,
        .srq = p->srq ? VERBS(p->srq, srq)->srq : NULL,
        .cap = {.max_send_wr = p->sq_depth,
                .max_recv_wr = p->srq ? 0 : p->rq_depth,
                .max_send_sge = WF_HCA_SGES,
                .max_recv_sge = 1,
                .max_inline_data = WF_MIN(p->inline_max, p->pd->hca->caps.inline_max)},
        .qp_type = IBV_QPT_RC,
    };
    struct verbs_qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return WEFT_ENOMEM;
    qp->base.hca = p->pd->hca;
    qp->qp = qp_create(p->pd->hca, verbs_domain(p->pd, p->td), &attr, &qp->ex);
    if (!qp->qp) {
        enum weft_status status = wf_verbs_refusal();
        wf_verbs_qp_close(&qp->base);
        return status;
    }
    qp->base.number = qp->qp->qp_num;
    qp->base.inline_max = attr.cap.max_inline_data;
    qp->base.sq_depth = attr.cap.max_send_wr;
    qp->bytes = ((uint64_t)attr.cap.max_send_wr + attr.cap.max_recv_wr) * WF_WQE_BYTES;
    wf_hca_made(qp->base.hca, WF_HCA_QP, qp->bytes);
    wf_verbs_qp_uuar_open(qp, p);
    *out = &qp->base;
    return WEFT_OK;
}

static int qp_to_init(struct verbs_qp *qp, const struct wf_hca_port *port)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = port->number,
                               .qp_access_flags = verbs_qp_access(qp->base.hca)};
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int qp_to_receive(struct verbs_qp *qp, const struct wf_hca_port *port,
                         const struct wf_hca_end *to, const struct wf_hca_patience *patience)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = verbs_mtu_code(WF_MIN(port->mtu, to->mtu)),
                               .dest_qp_num = to->qp,
                               .rq_psn = to->psn & 0xffffff,
                               .max_dest_rd_atomic = qp->base.hca->caps.max_reads,
                               .min_rnr_timer = patience->rnr_timer,
                               .ah_attr = {.dlid = to->lid, .port_num = port->number}};
    /* Packets need a global route header on Ethernet. On InfiniBand they need it to reach another
     * subnet, or if the port requires it. */
    if (port->link == WF_HCA_ETHERNET || port->needs_gid ||
        memcmp(port->gid.raw, to->gid, 8) != 0) {
        attr.ah_attr.is_global = 1;
        memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof to->gid);
        attr.ah_attr.grh.sgid_index = port->gid.index;
        attr.ah_attr.grh.hop_limit = 64;
    }
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int qp_to_send(struct verbs_qp *qp, uint32_t psn, const struct wf_hca_end *to,
                      const struct wf_hca_patience *patience)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = patience->timeout,
                               .retry_cnt = patience->retries,
                               .rnr_retry = patience->rnr_retries,
                               .sq_psn = psn & 0xffffff,
                               .max_rd_atomic =
                                   (uint8_t)WF_MIN(qp->base.hca->caps.max_reads, to->reads)};
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

enum weft_status wf_verbs_qp_connect(struct wf_hca_qp *base, const struct wf_hca_port *port,
                                     uint32_t psn, const struct wf_hca_end *to,
                                     const struct wf_hca_patience *patience)
{
    struct verbs_qp *qp = VERBS(base, qp);
    int err = qp_to_init(qp, port);
    base->mtu = verbs_mtu_bytes(verbs_mtu_code(WF_MIN(port->mtu, to->mtu)));
    if (!err)
        err = qp_to_receive(qp, port, to, patience);
    if (!err)
        err = qp_to_send(qp, psn, to, patience);
    return err ? wf_verbs_status(err) : WEFT_OK;
}

static enum weft_status qp_state(struct wf_hca_qp *base, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int err = ibv_modify_qp(VERBS(base, qp)->qp, &attr, IBV_QP_STATE);
    return err ? wf_verbs_status(err) : WEFT_OK;
}

enum weft_status wf_verbs_qp_break(struct wf_hca_qp *qp)
{
    return qp_state(qp, IBV_QPS_ERR);
}

/* For a queue pair in the error state, some providers do not report the expected packet number, but
 * 0 or the number of the first packet. This function returns EUNREACH for 0. The caller itself must
 * recognize the number of the first packet. */
enum weft_status wf_verbs_qp_expects(struct wf_hca_qp *base, uint32_t *psn)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int err = ibv_query_qp(VERBS(base, qp)->qp, &attr, IBV_QP_RQ_PSN, &init);
    *psn = err ? 0 : attr.rq_psn & 0xffffff;
    return err || !*psn ? WEFT_EUNREACH : WEFT_OK;
}

enum weft_status wf_verbs_qp_reset(struct wf_hca_qp *qp)
{
    return qp_state(qp, IBV_QPS_RESET);
}

/* ---- posting ---- */

static enum ibv_wr_opcode opcode_of(enum wf_hca_op op)
{
    switch (op) {
    case WF_HCA_SEND: return IBV_WR_SEND;
    case WF_HCA_SEND_IMM: return IBV_WR_SEND_WITH_IMM;
    case WF_HCA_WRITE: return IBV_WR_RDMA_WRITE;
    case WF_HCA_WRITE_IMM: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case WF_HCA_READ: return IBV_WR_RDMA_READ;
    case WF_HCA_ADD: return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default: return IBV_WR_ATOMIC_CMP_AND_SWP;
    }
}

static unsigned send_flags(unsigned flags)
{
    return (flags & WF_HCA_SIGNALED ? IBV_SEND_SIGNALED : 0) |
           (flags & WF_HCA_INLINE ? IBV_SEND_INLINE : 0) |
           (flags & WF_HCA_FENCE ? IBV_SEND_FENCE : 0) |
           (flags & WF_HCA_SOLICITED ? IBV_SEND_SOLICITED : 0);
}

static void send_make(const struct wf_hca_wr *from, struct ibv_send_wr *wr, struct ibv_sge *sge,
                      bool last)
{
    for (unsigned i = 0; i < from->nsge; i++)
        sge[i] =
            (struct ibv_sge){(uintptr_t)from->sge[i].addr, from->sge[i].len, from->sge[i].lkey};
    *wr = (struct ibv_send_wr){.wr_id = from->id,
                               .next = last ? NULL : wr + 1,
                               .sg_list = sge,
                               .num_sge = from->nsge,
                               .opcode = opcode_of(from->op),
                               .send_flags = send_flags(from->flags),
                               .imm_data = htobe32(from->imm)};
    if (from->op >= WF_HCA_ADD) {
        wr->wr.atomic.remote_addr = from->remote;
        wr->wr.atomic.rkey = from->rkey;
        wr->wr.atomic.compare_add = from->op == WF_HCA_ADD ? from->operand : from->compare;
        wr->wr.atomic.swap = from->operand;
    } else {
        wr->wr.rdma.remote_addr = from->remote;
        wr->wr.rdma.rkey = from->rkey;
    }
}

/* Returns how many requests were posted. */
static unsigned post_send(struct ibv_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    unsigned done = 0;
    while (done < n) {
        struct ibv_send_wr wr[POST_BATCH], *bad = NULL;
        struct ibv_sge sge[POST_BATCH][WF_HCA_SGES];
        unsigned part = WF_MIN(n - done, POST_BATCH);
        for (unsigned i = 0; i < part; i++)
            send_make(&list[done + i], &wr[i], sge[i], i + 1 == part);
        if (ibv_post_send(qp, wr, &bad))
            return done + (bad ? (unsigned)(bad - wr) : 0);
        done += part;
    }
    return done;
}

static void begin_in_place(struct ibv_qp_ex *qp, const struct wf_hca_wr *wr)
{
    qp->wr_id = wr->id;
    qp->wr_flags = send_flags(wr->flags); /* includes IBV_SEND_INLINE, which rdma_rxe needs */
    switch (wr->op) {
    case WF_HCA_SEND: ibv_wr_send(qp); break;
    case WF_HCA_SEND_IMM: ibv_wr_send_imm(qp, htobe32(wr->imm)); break;
    case WF_HCA_WRITE: ibv_wr_rdma_write(qp, wr->rkey, wr->remote); break;
    case WF_HCA_WRITE_IMM: ibv_wr_rdma_write_imm(qp, wr->rkey, wr->remote, htobe32(wr->imm)); break;
    case WF_HCA_READ: ibv_wr_rdma_read(qp, wr->rkey, wr->remote); break;
    case WF_HCA_ADD: ibv_wr_atomic_fetch_add(qp, wr->rkey, wr->remote, wr->operand); break;
    default: ibv_wr_atomic_cmp_swp(qp, wr->rkey, wr->remote, wr->compare, wr->operand);
    }
}

/* Sets the request's memory: the bytes to send, or where the result of a READ or an atomic is
 * stored. */
static void bytes_in_place(struct ibv_qp_ex *qp, const struct wf_hca_wr *wr)
{
    const struct wf_hca_sge *s = wr->sge;
    struct ibv_data_buf bufs[WF_HCA_SGES];
    struct ibv_sge sge[WF_HCA_SGES];
    bool in_request = wr->flags & WF_HCA_INLINE;
    if (wr->nsge == 1) {
        if (in_request)
            ibv_wr_set_inline_data(qp, s->addr, s->len);
        else
            ibv_wr_set_sge(qp, s->lkey, (uintptr_t)s->addr, s->len);
        return;
    }
    for (unsigned i = 0; i < wr->nsge; i++) {
        bufs[i] = (struct ibv_data_buf){s[i].addr, s[i].len};
        sge[i] = (struct ibv_sge){(uintptr_t)s[i].addr, s[i].len, s[i].lkey};
    }
    if (in_request)
        ibv_wr_set_inline_data_list(qp, wr->nsge, bufs);
    else
        ibv_wr_set_sge_list(qp, wr->nsge, sge);
}

/* ibv_wr_post(3) posts all requests, or none of them. */
static unsigned post_in_place(struct ibv_qp_ex *qp, const struct wf_hca_wr *list, unsigned n)
{
    ibv_wr_start(qp);
    for (unsigned i = 0; i < n; i++) {
        begin_in_place(qp, &list[i]);
        bytes_in_place(qp, &list[i]);
    }
    return ibv_wr_complete(qp) ? 0 : n;
}

unsigned wf_verbs_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n)
{
    const struct verbs_qp *qp = VERBS(base, qp);
    return qp->ex ? post_in_place(qp->ex, list, n) : post_send(qp->qp, list, n);
}
