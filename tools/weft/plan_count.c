/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects, doorbell pages and bytes of each category and of each kind of connection. Pages are
 * counted by making one rank's contexts, domains and queue pairs in the driver's policy (uar.h). */
#include <stdlib.h>
#include <string.h>

#include "mem/staging.h"
#include "plan.h"
#include "transport/rdma/sharing.h"
#include "transport/rdma/sizes.h"

/* Table I of "Scalable Communication Endpoints for MPI+Threads Applications". */
#define PAPER_CONTEXT (256.0 * 1024)
#define PAPER_QP (80.0 * 1024)
#define PAPER_CQ (9.0 * 1024)
#define PAPER_PD 144.0
#define PAPER_MR 144.0

/* Beyond so many queue pairs of an endpoint, further ones take no further page in either mode. */
#define QPS_COUNTED 32u
#define CONTEXTS_MAX 4u /* of a NIC, in SPLIT: the keys that a region has */

/* ---- Weft's sizes, by the variables of this run ---- */

enum size {
    RECEIVES,
    SQ_DEPTH,
    DESCRIPTORS,
    POOL,
    PUT_COPY,
    GET_COPY,
    AM_MAX,
    NODE_RECEIVES,
    NODE_CONNECTIONS,
    SIZES
};

struct sizes {
    double of[SIZES];
};

static void on_config(void *arg, const char *name, const char *value, const char *dflt,
                      const char *doc)
{
    static const char *const names[SIZES] = {[RECEIVES] = "WEFT_RDMA_RECEIVES",
                                             [SQ_DEPTH] = "WEFT_RDMA_SQ_DEPTH",
                                             [DESCRIPTORS] = "WEFT_RDMA_DESCRIPTORS",
                                             [POOL] = "WEFT_RDMA_COPY_POOL",
                                             [PUT_COPY] = "WEFT_RDMA_PUT_COPY",
                                             [GET_COPY] = "WEFT_RDMA_GET_COPY",
                                             [AM_MAX] = "WEFT_AM_MAX",
                                             [NODE_RECEIVES] = "WEFT_NODE_RECEIVES",
                                             [NODE_CONNECTIONS] = "WEFT_NODE_CONNECTIONS"};
    struct sizes *s = arg;
    char *end;
    double v = strtod(value, &end);
    (void)dflt;
    (void)doc;
    v *= *end == 'K' ? 1024 : *end == 'M' ? 1048576 : *end == 'G' ? 1073741824 : 1;
    for (int i = 0; i < SIZES; i++)
        if (!strcmp(name, names[i]))
            s->of[i] = v;
}

static struct sizes sizes_now(void)
{
    struct sizes s = {{0}};
    weft_config_rows(on_config, &s);
    return s;
}

/* What a context of the NIC keeps registered for copies (mem/staging.h). */
static double context_bytes(const struct sizes *s)
{
    double most = WF_MAX(WF_MAX(s->of[PUT_COPY], s->of[GET_COPY]), s->of[AM_MAX] + 64);
    uint32_t bounce = (uint32_t)wf_align_up((size_t)most, 64);
    return (double)wf_staging_bytes((uint32_t)s->of[DESCRIPTORS], (uint32_t)s->of[POOL] / bounce,
                                    bounce);
}

/* An endpoint with [receives] receive buffers, without its queue pairs. */
static double endpoint_bytes(uint32_t receives)
{
    return (double)wf_rdma_rail_bytes(receives) +
           (double)wf_power_of_two(wf_rdma_cq_depth(receives)) * WF_CQE_BYTES +
           receives * (double)WF_WQE_BYTES;
}

static double row_bytes(const struct wf_plan *p, const struct wf_plan_row *row, double endpoints)
{
    const struct sizes s = sizes_now();
    if (p->o->paper)
        return (double)row->contexts * (PAPER_CONTEXT + PAPER_PD) +
               (double)p->endpoints * PAPER_MR + (double)row->qps * PAPER_QP +
               (double)row->cqs * PAPER_CQ;
    return (double)row->contexts * context_bytes(&s) +
           endpoints * endpoint_bytes((uint32_t)s.of[RECEIVES]) +
           (double)row->qps * s.of[SQ_DEPTH] * WF_WQE_BYTES;
}

/* ---- one rank ---- */

struct rank {
    struct wf_uar_nic nic;
    struct wf_uars uars[CONTEXTS_MAX];
    unsigned ncontexts;
    struct wf_uar_config config;
    enum weft_sharing category;
    unsigned queue_pairs;
    struct wf_uuar
        first[WF_PLAN_THREADS_MAX]; /* of each endpoint: the uUAR of its first queue pair */
    unsigned level;
    bool takes_uuar_lock;
    const char *impossible;
};

static unsigned domains_of(enum weft_sharing category, unsigned position)
{
    switch (category) {
    case WEFT_SHARING_TWO_X_DYNAMIC: return 4;
    case WEFT_SHARING_DYNAMIC: return 2;
    case WEFT_SHARING_SPLIT: return position < WF_SHARING_SIDE_BY_SIDE ? 2 : 4;
    case WEFT_SHARING_SHARED: return 1;
    default: return 0;
    }
}

/* What an endpoint is in the account: any address of its own. */
static const void *owner_of(const struct rank *r, unsigned endpoint)
{
    return &r->first[endpoint];
}

/* The domains of an endpoint, of which it uses the first. */
static enum weft_status domain_add(struct rank *r, struct wf_uars *u, unsigned endpoint,
                                   unsigned domains)
{
    enum weft_status s = WEFT_OK;
    struct wf_uuar unused;
    for (unsigned i = 0; i < domains && s == WEFT_OK; i++)
        s = wf_uars_td(u, i ? &unused : &r->first[endpoint]);
    if (s != WEFT_OK)
        return s;
    wf_uars_td_own(u, &r->first[endpoint], owner_of(r, endpoint));
    wf_uars_td_qp(u, &r->first[endpoint]);
    return WEFT_OK;
}

static enum weft_status endpoint_add(struct rank *r, unsigned endpoint)
{
    struct wf_uars *u = &r->uars[endpoint % r->ncontexts];
    unsigned domains = domains_of(r->category, endpoint / r->ncontexts);
    enum weft_status s = WEFT_OK;
    if (domains)
        return domain_add(r, u, endpoint, domains);
    for (unsigned i = 0; i < r->queue_pairs && s == WEFT_OK; i++) {
        struct wf_uuar uuar;
        s = wf_uars_qp(u, owner_of(r, endpoint), &uuar);
        if (!i)
            r->first[endpoint] = uuar;
        r->takes_uuar_lock |= s == WEFT_OK && uuar.kind == WF_UUAR_SHARED;
    }
    return s;
}

static bool is_over_limit(const struct rank *r, unsigned endpoints)
{
    bool whole = r->category == WEFT_SHARING_TWO_X_DYNAMIC || r->category == WEFT_SHARING_DYNAMIC ||
                 r->category == WEFT_SHARING_SPLIT;
    return r->config.mode == WF_UAR_CLASSIC && whole &&
           endpoints > (uint64_t)WF_UAR_INDEPENDENT * r->ncontexts;
}

static void rank_fill(struct rank *r, unsigned endpoints)
{
    enum weft_status s = WEFT_OK;
    if (is_over_limit(r, endpoints)) {
        r->impossible = "a context has at most 256 thread domains with pages of their own";
        return;
    }
    for (unsigned i = 0; i < r->ncontexts && s == WEFT_OK; i++)
        s = wf_uars_open(&r->uars[i], &r->nic, &r->config);
    for (unsigned i = 0; i < endpoints && s == WEFT_OK; i++)
        s = endpoint_add(r, i);
    if (s != WEFT_OK)
        r->impossible = "a context has at most 512 pages for thread domains";
    for (unsigned i = 0; i < endpoints && s == WEFT_OK; i++) {
        unsigned level = wf_uuar_level(&r->uars[i % r->ncontexts], &r->first[i], owner_of(r, i));
        r->level = level > r->level ? level : r->level;
    }
}

/* ---- a category ---- */

static struct wf_sharing_case case_of(const struct wf_plan *p)
{
    return (struct wf_sharing_case){.uars = wf_uar_config_env(p->o->mode),
                                    .endpoints = (uint32_t)p->o->threads,
                                    .queue_pairs = (uint32_t)(p->peers < 1000 ? p->peers : 1000),
                                    .contexts = CONTEXTS_MAX};
}

/* Counts one rank, or for EVERYWHERE one of its contexts, and multiplies. */
static void row_count(const struct wf_plan *p, struct wf_plan_row *row)
{
    static struct rank r;
    const struct wf_sharing_case c = case_of(p);
    bool everywhere = row->category == WEFT_SHARING_EVERYWHERE;
    bool one = row->category == WEFT_SHARING_THREADS;
    uint64_t times = everywhere ? p->endpoints : p->o->ranks;
    uint64_t endpoints = one ? p->o->ranks : p->endpoints;
    memset(&r, 0, sizeof r);
    wf_uar_nic_limit(&r.nic, WF_UAR_NIC_MAX);
    r.category = row->category;
    r.config = c.uars;
    r.ncontexts = everywhere ? 1 : wf_sharing_contexts(row->category, &c);
    r.queue_pairs = p->peers < QPS_COUNTED ? (unsigned)p->peers : QPS_COUNTED;
    rank_fill(&r, everywhere || one ? 1 : (unsigned)p->o->threads);
    row->impossible = r.impossible;
    row->level = one ? 4 : r.level;
    row->locks = domains_of(row->category, 0)
                     ? 0
                     : WEFT_LOCK_QP | WEFT_LOCK_CQ | (r.takes_uuar_lock ? WEFT_LOCK_UUAR : 0u) |
                           (one ? WEFT_LOCK_ENDPOINT : 0u);
    for (unsigned i = 0; i < r.ncontexts; i++) {
        const struct wf_uar_count n = wf_uars_count(&r.uars[i]);
        row->uars += n.pages * times;
        row->used += n.used * times;
        row->wasted += n.wasted * times;
        wf_uars_close(&r.uars[i]);
    }
    row->contexts = r.ncontexts * times;
    row->qps = endpoints * p->peers;
    row->cqs = endpoints;
    if (p->o->paper && row->category == WEFT_SHARING_TWO_X_DYNAMIC) { /* with its spares */
        row->qps *= 2;
        row->cqs *= 2;
    }
    row->bytes = row_bytes(p, row, (double)endpoints);
}

/* ---- connections ---- */

/* Bytes of a queue's entry and its buffer. */
#define RECEIVE (WF_WQE_BYTES + QP_BUFFER)

/* The kernel module rv, by its sources (Linux RFC of 2021): its depth for another node is 4,000
 * requests, which its connections share with 5% more, and 3 for itself; each queue pair has two
 * queues, and two completion queues of the same depth. Each process has one of 400 requests
 * besides, connected to itself. */
static double rv_bytes(double connections, double nodes, double processes)
{
    double depth = 1.05 * (double)(uint64_t)((4000 + connections - 1) / connections) + 3;
    return connections * nodes * depth * (2 * WF_WQE_BYTES + 2 * WF_CQE_BYTES) +
           processes * 400 * 2 * WF_WQE_BYTES;
}

/* Bytes of [qps] queue pairs of [kind], and of what the endpoints that have them take. */
static double link_bytes(const struct wf_plan *p, unsigned kind, double qps)
{
    const struct sizes s = sizes_now();
    bool is_node = kind == WF_PLAN_NODE;
    double receives = s.of[is_node ? NODE_RECEIVES : RECEIVES];
    double contexts = is_node ? 1 : (double)p->o->ranks;
    double endpoints = is_node ? 1 : (double)p->endpoints, bytes;
    if (p->o->paper)
        return qps * PAPER_QP;
    bytes = contexts * context_bytes(&s) + endpoints * endpoint_bytes((uint32_t)receives);
    if (kind == WF_PLAN_RC) /* receive queues of their own, no shared one */
        bytes += (qps * (QP_WINDOW + QP_GRANTS) - endpoints * receives) * RECEIVE;
    if (kind == WF_PLAN_RV)
        return bytes + (double)p->endpoints * s.of[SQ_DEPTH] * WF_WQE_BYTES +
               rv_bytes(s.of[NODE_CONNECTIONS], (double)p->o->nodes - 1, (double)p->o->ranks);
    return bytes + qps * s.of[SQ_DEPTH] * WF_WQE_BYTES;
}

static void links_count(struct wf_plan *p)
{
    const double c = sizes_now().of[NODE_CONNECTIONS], r = (double)p->o->ranks;
    double e = (double)p->endpoints, k = (double)p->peers, others = (double)p->o->nodes - 1;
    const struct wf_plan_link links[WF_PLAN_CONNECTIONS] = {
        [WF_PLAN_RC] = {"RC", "endpoints x peers, a receive queue each", e * k, 0},
        [WF_PLAN_SRQ] = {"RC + SRQ", "endpoints x peers", e * k, 0},
        [WF_PLAN_XRC] = {"XRC", "2 x endpoints x other nodes", 2 * e * others, 0},
        [WF_PLAN_UD] = {"UD", "endpoints", e, 0},
        [WF_PLAN_DC] = {"DC", "9 x endpoints: 8 initiators, 1 target", 9 * e, 0},
        [WF_PLAN_RV] = {"rv", "C x other nodes; processes; endpoints (UD)", c * others + r + e, 0},
        [WF_PLAN_NODE] = {"node", "C x other nodes, shared by all processes", c * others, 0}};
    for (unsigned i = 0; i < WF_PLAN_CONNECTIONS; i++) {
        p->links[i] = links[i];
        p->links[i].bytes = link_bytes(p, i, links[i].qps);
    }
}

void wf_plan_count(struct wf_plan *p)
{
    static const enum weft_sharing order[WF_PLAN_ROWS] = {
        WEFT_SHARING_EVERYWHERE, WEFT_SHARING_TWO_X_DYNAMIC, WEFT_SHARING_DYNAMIC,
        WEFT_SHARING_SHARED,     WEFT_SHARING_STATIC,        WEFT_SHARING_THREADS,
        WEFT_SHARING_SPLIT};
    p->endpoints = p->o->ranks * p->o->threads;
    p->peers = p->o->peers ? p->o->peers : (p->o->nodes - 1) * p->o->ranks;
    p->nrows = p->o->paper ? WF_PLAN_ROWS - 1 : WF_PLAN_ROWS;
    for (unsigned i = 0; i < p->nrows; i++) {
        p->rows[i] = (struct wf_plan_row){.category = order[i]};
        row_count(p, &p->rows[i]);
    }
    links_count(p);
}
