/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's NIC proper: what happens behind its registers. Private to hca_model.c and
 * model_nic.c.
 *
 * A message goes through the engine of its queue pair (one at a time), then through what all queue
 * pairs share (one at a time), then through a rail of address translation and a read of memory
 * unless it is inline, to the peer and back. A completion follows if it is signaled. The NIC's
 * events are done in the order of their times, up to the clock of the thread that looks. */
#ifndef WEFT_SCALE_MODEL_NIC_H
#define WEFT_SCALE_MODEL_NIC_H

#include "hca_model.h"
#include "sim.h"
#include "transport/rdma/hca_sim.h"

struct model_message {
    double arrival; /* at the NIC */
    double service; /* ns of what all queue pairs share */
    uint64_t id, line;
    unsigned core;  /* 1 + core that posted */
    uint32_t ended; /* requests that its completion ends */
    bool is_signaled;
    bool has_payload; /* in memory, where the NIC reads it */
};

struct model_done {
    double time;
    uint64_t id;
    struct model_qp *qp;
    unsigned core;
    uint32_t ended;
};

struct model_cq {
    struct wf_hca_cq base;
    struct wf_vt_lock lock;
    struct model_done *ring; /* base.depth entries, by time */
    uint32_t head, tail;
    unsigned user;    /* 1 + thread that polls; 0: none yet */
    bool is_shared;   /* several threads poll */
    uint32_t pending; /* signaled requests whose completion is not polled yet */
};

struct model_qp {
    struct wf_sim_qp sim;
    struct model_cq *cq;
    struct wf_vt_lock lock;
    unsigned core;       /* 1 + core that used it last */
    uint32_t under_way;  /* posted, and not ended by a completion that was polled */
    uint32_t unsignaled; /* posted since the last signaled request */
    bool connected;
    /* the NIC's part */
    struct model_message *ring; /* sq_depth entries */
    uint32_t head, tail;
    double engine_free, last_done;
    double next; /* when its first message can leave the engine */
    unsigned at; /* 1 + place in the NIC's heap */
};

/* A UAR page, by its number of the NIC. */
struct model_page {
    unsigned core;              /* 1 + core that wrote last */
    double when;                /* then */
    double others;              /* when a core other than that one wrote last; -inf: never */
    double free_from;           /* for other cores, if two cores wait for each other */
    unsigned qps;               /* that write to it */
    struct wf_vt_lock locks[2]; /* of its registers */
};

struct model_nic {
    struct wf_params params;
    struct wf_uar_config uars;
    struct wf_uar_nic pages;
    bool is_open;
    struct model_page page[WF_UAR_NIC_PAGES];
    /* the queue pairs that have messages, a heap by [next] */
    struct model_qp **heap;
    unsigned nheap, room;
    double free_from;
    double rail_free[64];
    struct wf_model_counts counts;
};
extern struct model_nic model_nic;

/* A context. */
struct model_hca {
    struct wf_sim sim;
    double *written; /* when each of its pages was last written, in the order of wf_uuar.at */
    uint32_t room;
    uint32_t pages; /* that have queue pairs, at most */
};

static inline struct model_hca *model_hca_of(struct wf_hca *hca)
{
    return (struct model_hca *)(void *)hca;
}

static inline struct model_cq *model_cq_of(struct wf_hca_cq *cq)
{
    return (struct model_cq *)(void *)cq;
}

static inline struct model_qp *model_qp_of(struct wf_hca_qp *qp)
{
    return (struct model_qp *)(void *)qp;
}

static inline double model_cost(enum wf_param p)
{
    return model_nic.params.v[p];
}

/* Makes room in the heap for [n] queue pairs. */
bool model_heap_reserve(unsigned n);
/* Gives the NIC a message of the queue pair. */
void model_send(struct model_qp *qp, const struct model_message *m);
/* Does what the NIC does up to [now]. */
void model_advance(double now);
/* Does all that is left, without regard to clocks. */
void model_drain(void);

/* Operations of hca.h; model_post.c. */
unsigned model_post(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
int model_poll(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room);

#endif
