/* SPDX-License-Identifier: BSD-3-Clause */
/* Definitions for the files that implement hca.h over libibverbs. These files use reliable
 * connections, which every provider has.
 *
 *   hca_verbs.c        NICs and their ports, events, the table
 *   hca_verbs_td.c     protection and thread domains, doorbell registers
 *   hca_verbs_queue.c  completion queues, receive queues
 *   hca_verbs_qp.c     queue pairs, posting requests
 *   hca_verbs_mr.c     memory regions
 *   hca_uverbs.c       domains that several processes use (hca_share.h)
 *   hca_cm.c           the connection manager, over librdmacm */
#ifndef WF_TRANSPORT_RDMA_HCA_VERBS_H
#define WF_TRANSPORT_RDMA_HCA_VERBS_H

#include <infiniband/verbs.h>

#include "transport/rdma/hca.h"
#include "transport/rdma/sizes.h"
#include "transport/rdma/td_pool.h"
#include "transport/rdma/uar.h"

struct verbs_raw_td;

struct verbs_hca {
    struct wf_hca base;
    struct ibv_context *context;
    struct wf_td_pool pool;
    pthread_mutex_t lock; /* guards what follows */
    bool is_mlx5;         /* has doorbell registers, of which [uars] keeps account */
    bool mismatch_logged; /* the account and the driver differ */
    struct wf_uars uars;
    struct verbs_raw_td *raws;
};
/* A domain that the pool has. */
struct verbs_raw_td {
    struct verbs_raw_td *next;
    struct ibv_td *td;
    bool counted; /* in [uars]: */
    struct wf_uuar uuar;
    uint64_t reg; /* address of its register; 0 until the first queue pair */
};
struct verbs_pd {
    struct wf_hca_pd base;
    struct ibv_pd *pd;
};
struct verbs_td {
    struct wf_hca_td base;
    struct wf_td_lease lease;
    /* the parent domain: a protection domain whose objects belong to the thread domain */
    struct ibv_pd *domain;
};
struct verbs_cq {
    struct wf_hca_cq base;
    struct ibv_cq *cq;
    /* The queue [cq] as ibv_start_poll(3) needs it, which takes no lock. NULL if the queue is not
     * of a single thread, or its provider has no such queues. */
    struct ibv_cq_ex *ex;
    struct ibv_comp_channel *channel; /* NULL if the queue has no events */
    uint64_t bytes;
    bool broken; /* [ex]: a poll failed behind completions that it returned */
};
struct verbs_srq {
    struct wf_hca_srq base;
    struct ibv_srq *srq;
    uint64_t bytes;
};
struct verbs_qp {
    struct wf_hca_qp base;
    struct ibv_qp *qp;
    /* The queue pair [qp] as ibv_wr_post(3) needs it. NULL if the provider offers only
     * ibv_post_send(3). */
    struct ibv_qp_ex *ex;
    uint64_t bytes;
    const struct wf_hca_td *td;
    const void *owner;
    bool counted; /* in the NIC's account: */
    struct wf_uuar uuar;
    uint64_t reg; /* address of its register; 0: not known */
    bool can_blueflame;
};
struct verbs_mr {
    struct wf_hca_mr base;
    struct ibv_mr *mr;
};

#define VERBS(ptr, kind) ((struct verbs_##kind *)(void *)(ptr))

#define POST_BATCH 32 /* limit for the requests in one call of libibverbs */

/* ---- hca_verbs.c ---- */

/* Converts an errno value of libibverbs or of the kernel to a status. */
enum weft_status wf_verbs_status(int err);
/* Converts errno to a status after a call failed. Never returns OK, because a provider may fail
 * without setting errno. */
enum weft_status wf_verbs_refusal(void);

/* ---- the operations of hca.h ---- */

/* hca_verbs_td.c */
void wf_verbs_domains_open(struct verbs_hca *h);
void wf_verbs_domains_close(struct verbs_hca *h);
/* A thread domain was opened and closed: the driver keeps its page for the next one. */
void wf_verbs_probed(struct verbs_hca *h);
enum weft_status wf_verbs_pd_open(struct wf_hca *hca, struct wf_hca_pd **out);
void wf_verbs_pd_close(struct wf_hca_pd *pd);
enum weft_status wf_verbs_td_open(struct wf_hca_pd *pd, enum wf_hca_td_level level,
                                  const void *owner, struct wf_hca_td **out);
void wf_verbs_td_close(struct wf_hca_td *td);
/* Find out where a new queue pair is, and which locks it has; take it out of the account. */
void wf_verbs_qp_uuar_open(struct verbs_qp *qp, const struct wf_hca_qp_params *params);
void wf_verbs_qp_uuar_close(struct verbs_qp *qp);
void wf_verbs_qp_place(struct wf_hca_qp *qp, struct wf_hca_place *out);

/* hca_verbs_queue.c */
enum weft_status wf_verbs_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                  bool events, struct wf_hca_cq **out);
void wf_verbs_cq_close(struct wf_hca_cq *base);
int wf_verbs_poll(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room);
enum weft_status wf_verbs_arm(struct wf_hca_cq *cq);
void wf_verbs_disarm(struct wf_hca_cq *base);
enum weft_status wf_verbs_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                   struct wf_hca_srq **out);
void wf_verbs_srq_close(struct wf_hca_srq *base);
unsigned wf_verbs_post_srq(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n);
unsigned wf_verbs_post_recv(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n);

/* hca_verbs_qp.c */
enum weft_status wf_verbs_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out);
void wf_verbs_qp_close(struct wf_hca_qp *base);
enum weft_status wf_verbs_qp_connect(struct wf_hca_qp *base, const struct wf_hca_port *port,
                                     uint32_t psn, const struct wf_hca_end *to,
                                     const struct wf_hca_patience *patience);
enum weft_status wf_verbs_qp_break(struct wf_hca_qp *qp);
enum weft_status wf_verbs_qp_expects(struct wf_hca_qp *base, uint32_t *psn);
enum weft_status wf_verbs_qp_reset(struct wf_hca_qp *qp);
unsigned wf_verbs_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n);

/* hca_verbs_mr.c */
/* Converts enum wf_hca_access to the flags of ibv_reg_mr(3). */
int wf_verbs_access(unsigned access);
enum weft_status wf_verbs_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                  unsigned access, struct wf_hca_mr **out);
enum weft_status wf_verbs_mr_open_dmabuf(struct wf_hca_pd *pd, int fd, uint64_t offset, size_t len,
                                         uint64_t at, unsigned access, struct wf_hca_mr **out);
void wf_verbs_mr_close(struct wf_hca_mr *mr);

/* ---- for several of these files ---- */

/* Returns the protection domain for objects of [pd]. If [td] is not NULL, returns the parent domain
 * of [td], so that the objects have no locks. */
static inline struct ibv_pd *verbs_domain(const struct wf_hca_pd *pd, const struct wf_hca_td *td)
{
    return td ? VERBS(td, td)->domain : VERBS(pd, pd)->pd;
}

static inline uint16_t verbs_mtu_bytes(enum ibv_mtu mtu)
{
    return (uint16_t)(128u << mtu); /* IBV_MTU_256 is 1 */
}

/* Returns the code of the smallest MTU that is at least [bytes]. */
static inline enum ibv_mtu verbs_mtu_code(uint16_t bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (mtu < IBV_MTU_4096 && verbs_mtu_bytes(mtu) < bytes)
        mtu++;
    return mtu;
}

/* Returns what peers may do through a queue pair. The access of a memory region limits peers
 * further. */
static inline unsigned verbs_qp_access(const struct wf_hca *hca)
{
    return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
           (hca->caps.atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

#endif
