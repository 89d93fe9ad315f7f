/* SPDX-License-Identifier: BSD-3-Clause */
/* The categories of sharing a NIC among threads, and the objects that each needs, made by hca.h's
 * operations. A thread has one queue pair (rate, global array), or one for its left and one for its
 * right neighbor (stencil). */
#ifndef WEFT_SCALE_CATEGORY_H
#define WEFT_SCALE_CATEGORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "transport/rdma/hca.h"
#include "transport/rdma/uar.h"

enum wf_category {
    WF_CAT_EVERYWHERE,
    WF_CAT_NAIVE,
    WF_CAT_2XDYNAMIC,
    WF_CAT_SPLIT,
    WF_CAT_DYNAMIC,
    WF_CAT_SHARED,
    WF_CAT_STATIC,
    WF_CAT_THREADS,
    WF_CATEGORIES
};

#define WF_SPLIT_WAYS 8u /* threads of a context in the category "split" */

/* What threads can share. [n]-way: n threads of a rank have one. */
enum wf_way { WF_WAY_BUF, WF_WAY_CTX, WF_WAY_PD, WF_WAY_MR, WF_WAY_CQ, WF_WAY_QP, WF_WAYS };

const char *wf_category_name(enum wf_category c);  /* as it is typed */
const char *wf_category_title(enum wf_category c); /* as the paper has it */
/* Returns the category of that name, or WF_CATEGORIES. */
enum wf_category wf_category_find(const char *name);
const char *wf_way_name(enum wf_way w);

enum { WF_TD_NONE = -1 };

/* What a set of threads needs. */
struct wf_set_params {
    unsigned ranks, threads; /* threads of each rank */
    unsigned sides;          /* queue pairs of a thread: 1 or 2 */
    int td;                  /* enum wf_hca_td_level, or WF_TD_NONE */
    unsigned ways[WF_WAYS];  /* each divides [threads] */
    uint32_t depth, cq_depth;
    uint32_t inline_max;
    unsigned regions;  /* memory regions and buffers of a thread */
    size_t region_len; /* bytes */
    bool unregistered; /* buffers only: all requests are inline */
    size_t peer_len;   /* bytes of the peer's memory; 0: a region for each of [regions] */
    bool aligned;      /* false: buffers lie next to each other */
    bool blueflame;
    bool cq_domains; /* the completion queue of a domain has no lock either */
    bool shares_qps; /* threads count in shared words, as they must if they share queue pairs */
    bool spares;     /* the paper's 2xDynamic: the ledger counts a spare QP and CQ each */
};

/* Sets everything but depths and regions. */
void wf_set_params_of(struct wf_set_params *out, enum wf_category c, unsigned ranks,
                      unsigned threads, unsigned sides);
/* Returns NULL, or the error in the parameters. */
const char *wf_set_wrong(const struct wf_set_params *p);

/* What one thread uses. */
struct wf_user {
    unsigned rank, thread; /* thread: of the rank */
    struct wf_hca *hca;
    struct wf_hca_cq *cq;
    struct wf_hca_qp *qp[2];
    unsigned qp_index[2], cq_index; /* of the set */
    struct wf_hca_mr *mr[3];
    void *buf[3];
    /* where requests point to: the peer's memory for [mr] */
    uint64_t remote[3];
    uint32_t rkey[3];
};

struct wf_ledger {
    uint64_t contexts, pds, tds, mrs, qps, cqs;
    uint64_t uars, uuars, used, wasted;
    uint64_t bytes;      /* by the paper's Table I */
    unsigned locks;      /* that a message takes when it is posted, at most */
    unsigned poll_locks; /* that a poll takes */
    unsigned level;      /* the greatest of all queue pairs; 4: a queue pair is shared */
};

struct wf_objects;
struct wf_peers;

struct wf_set {
    struct wf_set_params params;
    unsigned n; /* ranks * threads */
    struct wf_user *users;
    struct wf_objects *objects;
    struct wf_peers *peers; /* set_connect.c; NULL: the NIC moves no bytes */
    void *peer_memory;      /* peer_len bytes that requests reach; NULL: as above */
    struct wf_ledger ledger;
};

/* Makes the objects on the NIC [name]. Returns OK | EINVAL | what an operation returned; then [why]
 * names the operation. */
enum weft_status wf_set_open(struct wf_set *set, const struct wf_hca_ops *ops, const char *name,
                             const struct wf_set_params *params, char *why, size_t room);
void wf_set_close(struct wf_set *set);

void wf_ledger_print(const struct wf_ledger *l, FILE *to);

#endif
