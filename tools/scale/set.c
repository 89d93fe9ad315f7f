/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the objects of a set of threads. For each rank: its contexts, then the objects of each
 * context: protection domains, completion queues, the left queue pairs of all threads, then the
 * right ones, each with its domain, and memory regions. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "category.h"
#include "set_connect.h"

#define TABLE_CONTEXT ((uint64_t)256 << 10) /* bytes of the paper's Table I */
#define TABLE_QP ((uint64_t)80 << 10)
#define TABLE_CQ ((uint64_t)9 << 10)
#define TABLE_PD ((uint64_t)144)
#define TABLE_MR ((uint64_t)144)

/* Each array has a place for each thread, or two; unused places are NULL. */
struct wf_objects {
    const struct wf_hca_ops *ops;
    const char *name;
    struct wf_hca **contexts;
    struct wf_hca_pd **pds;
    struct wf_hca_cq **cqs;
    struct wf_hca_td **tds; /* two for each thread */
    struct wf_hca_qp **qps; /* two for each thread */
    struct wf_hca_mr **mrs; /* three for each thread */
    char *memory;
    size_t memory_len;
    const char *step; /* the object that the call makes now */
};

/* The first thread of those that share with thread [i] is where the object is. */
static unsigned share_of(const struct wf_set *s, enum wf_way way, unsigned i)
{
    unsigned t = i % s->params.threads;
    return i - t % s->params.ways[way];
}

static bool is_first(const struct wf_set *s, enum wf_way way, unsigned i)
{
    return share_of(s, way, i) == i;
}

/* ---- memory ---- */

/* Bytes from one buffer to the next. */
static size_t stride_of(const struct wf_set_params *p)
{
    return p->aligned ? wf_align_up(p->region_len, 64) : p->region_len;
}

static bool memory_make(struct wf_set *s)
{
    struct wf_objects *o = s->objects;
    size_t size = stride_of(&s->params) * s->n * s->params.regions;
    o->memory_len = wf_align_up(WF_MAX(size, 1), 4096);
    o->memory = aligned_alloc(4096, o->memory_len);
    if (!o->memory)
        return false;
    memset(o->memory, 0, o->memory_len);
    for (unsigned i = 0; i < s->n; i++)
        for (unsigned r = 0; r < s->params.regions; r++)
            s->users[i].buf[r] =
                o->memory +
                stride_of(&s->params) * (share_of(s, WF_WAY_BUF, i) * s->params.regions + r);
    return true;
}

/* ---- making ---- */

static enum weft_status context_make(struct wf_set *s, unsigned i)
{
    struct wf_objects *o = s->objects;
    const struct wf_hca_config config = {.gid_index = -1, .blueflame = s->params.blueflame};
    o->step = "a context";
    return o->ops->open(o->name, &config, &o->contexts[i]);
}

static enum weft_status pd_make(struct wf_set *s, unsigned i)
{
    struct wf_objects *o = s->objects;
    o->step = "a protection domain";
    return o->ops->pd_open(o->contexts[share_of(s, WF_WAY_CTX, i)], &o->pds[i]);
}

/* On a NIC without thread domains the queues have locks, which the ledger shows. */
static enum weft_status td_make(struct wf_set *s, unsigned i, unsigned side)
{
    struct wf_objects *o = s->objects;
    o->step = "a thread domain";
    if (!o->contexts[share_of(s, WF_WAY_CTX, i)]->caps.td)
        return WEFT_OK;
    return o->ops->td_open(o->pds[share_of(s, WF_WAY_PD, i)], (enum wf_hca_td_level)s->params.td,
                           &s->users[i], &o->tds[2 * i + side]);
}

static enum weft_status cq_make(struct wf_set *s, unsigned i)
{
    struct wf_objects *o = s->objects;
    struct wf_hca_td *td = s->params.cq_domains ? o->tds[2 * i] : NULL;
    o->step = "a completion queue";
    return o->ops->cq_open(o->contexts[share_of(s, WF_WAY_CTX, i)], td, s->params.cq_depth, false,
                           &o->cqs[i]);
}

static enum weft_status qp_make(struct wf_set *s, unsigned i, unsigned side)
{
    struct wf_objects *o = s->objects;
    struct wf_hca_cq *cq = o->cqs[share_of(s, WF_WAY_CQ, i)];
    const struct wf_hca_qp_params params = {.pd = o->pds[share_of(s, WF_WAY_PD, i)],
                                            .td = o->tds[2 * i + side],
                                            .owner = &s->users[i],
                                            .send_cq = cq,
                                            .recv_cq = cq,
                                            .sq_depth = s->params.depth,
                                            .rq_depth = 1,
                                            .inline_max = s->params.inline_max};
    o->step = "a queue pair";
    return o->ops->qp_open(&params, &o->qps[2 * i + side]);
}

static enum weft_status mr_make(struct wf_set *s, unsigned i, unsigned region)
{
    struct wf_objects *o = s->objects;
    struct wf_user *u = &s->users[i];
    size_t len = stride_of(&s->params) * (s->params.ways[WF_WAY_MR] - 1) * s->params.regions +
                 s->params.region_len;
    o->step = "a memory region";
    return o->ops->mr_open(o->pds[share_of(s, WF_WAY_PD, i)], u->buf[region], len,
                           (uint64_t)(uintptr_t)u->buf[region], WF_HCA_LOCAL_WRITE,
                           &o->mrs[3 * i + region]);
}

/* Thread domains and queue pairs of one side. */
static enum weft_status side_make(struct wf_set *s, unsigned from, unsigned to, unsigned side)
{
    enum weft_status status = WEFT_OK;
    for (unsigned i = from; i < to && status == WEFT_OK; i++) {
        if (!is_first(s, WF_WAY_QP, i))
            continue;
        if (s->params.td != WF_TD_NONE)
            status = td_make(s, i, side);
        if (status == WEFT_OK && !side && is_first(s, WF_WAY_CQ, i))
            status = cq_make(s, i);
        if (status == WEFT_OK)
            status = qp_make(s, i, side);
    }
    return status;
}

static enum weft_status regions_make(struct wf_set *s, unsigned i)
{
    enum weft_status status = WEFT_OK;
    for (unsigned r = 0; r < s->params.regions && status == WEFT_OK; r++)
        if (is_first(s, WF_WAY_MR, i) && !s->params.unregistered)
            status = mr_make(s, i, r);
    return status;
}

/* A context, and the objects of its threads [from] to [to] - 1. */
static enum weft_status share_make(struct wf_set *s, unsigned from, unsigned to)
{
    enum weft_status status = context_make(s, from);
    for (unsigned i = from; i < to && status == WEFT_OK; i++)
        if (is_first(s, WF_WAY_PD, i))
            status = pd_make(s, i);
    for (unsigned side = 0; side < s->params.sides && status == WEFT_OK; side++)
        status = side_make(s, from, to, side);
    for (unsigned i = from; i < to && status == WEFT_OK; i++)
        status = regions_make(s, i);
    return status;
}

static unsigned share_end(const struct wf_set *s, unsigned from)
{
    unsigned to = from + 1;
    while (to < s->n && !is_first(s, WF_WAY_CTX, to))
        to++;
    return to;
}

static enum weft_status objects_make(struct wf_set *s)
{
    enum weft_status status = WEFT_OK;
    for (unsigned i = 0; i < s->n && status == WEFT_OK; i = share_end(s, i))
        status = share_make(s, i, share_end(s, i));
    return status;
}

static void users_set(struct wf_set *s)
{
    const struct wf_objects *o = s->objects;
    for (unsigned i = 0; i < s->n; i++) {
        struct wf_user *u = &s->users[i];
        u->hca = o->contexts[share_of(s, WF_WAY_CTX, i)];
        u->cq_index = share_of(s, WF_WAY_CQ, i);
        u->cq = o->cqs[u->cq_index];
        for (unsigned side = 0; side < s->params.sides; side++) {
            u->qp_index[side] = 2 * share_of(s, WF_WAY_QP, i) + side;
            u->qp[side] = o->qps[u->qp_index[side]];
        }
        for (unsigned r = 0; r < s->params.regions; r++)
            u->mr[r] = o->mrs[3 * share_of(s, WF_WAY_MR, i) + r];
    }
}

/* ---- the ledger ---- */

static unsigned locks_of(unsigned bits)
{
    return (unsigned)__builtin_popcount(bits);
}

static void ledger_add(struct wf_ledger *l, const struct wf_hca *hca)
{
    const _Atomic uint64_t *n = hca->ledger.objects;
    l->contexts++;
    l->pds += n[WF_HCA_PD];
    l->tds += n[WF_HCA_TD];
    l->mrs += n[WF_HCA_MR];
    l->qps += n[WF_HCA_QP];
    l->cqs += n[WF_HCA_CQ];
    l->uars += n[WF_HCA_UAR];
    l->uuars += n[WF_HCA_UUAR];
    l->used += n[WF_HCA_UUAR_USED];
}

/* What a user shares, and its locks. */
static void ledger_add_user(struct wf_set *s, const struct wf_user *u)
{
    struct wf_ledger *l = &s->ledger;
    struct wf_hca_place place = {.known = false};
    for (unsigned side = 0; side < s->params.sides; side++) {
        u->hca->ops->qp_place(u->qp[side], &place);
        l->level = WF_MAX(l->level, place.known ? place.level : 0);
        l->locks = WF_MAX(l->locks, locks_of(u->qp[side]->locks));
    }
    l->poll_locks = WF_MAX(l->poll_locks, (unsigned)u->cq->locks);
    if (s->params.ways[WF_WAY_QP] > 1)
        l->level = 4;
}

static void ledger_fill(struct wf_set *s)
{
    struct wf_ledger *l = &s->ledger;
    const struct wf_objects *o = s->objects;
    *l = (struct wf_ledger){.contexts = 0};
    for (unsigned i = 0; i < s->n; i++) {
        if (o->contexts[i])
            ledger_add(l, o->contexts[i]);
        ledger_add_user(s, &s->users[i]);
    }
    if (s->params.spares && s->params.td == WF_HCA_TD_SPACED) {
        l->cqs += l->cqs;
        l->qps += l->qps;
    }
    l->wasted = l->uuars - l->used;
    l->bytes = l->contexts * TABLE_CONTEXT + l->qps * TABLE_QP + l->cqs * TABLE_CQ +
               l->pds * TABLE_PD + l->mrs * TABLE_MR;
}

/* ---- opening and closing ---- */

static bool arrays_make(struct wf_set *s)
{
    struct wf_objects *o = s->objects;
    o->contexts = calloc(s->n, sizeof(void *));
    o->pds = calloc(s->n, sizeof(void *));
    o->cqs = calloc(s->n, sizeof(void *));
    o->tds = calloc(2 * (size_t)s->n, sizeof(void *));
    o->qps = calloc(2 * (size_t)s->n, sizeof(void *));
    o->mrs = calloc(3 * (size_t)s->n, sizeof(void *));
    s->users = calloc(s->n, sizeof *s->users);
    for (unsigned i = 0; s->users && i < s->n; i++) {
        s->users[i].rank = i / s->params.threads;
        s->users[i].thread = i % s->params.threads;
    }
    return o->contexts && o->pds && o->cqs && o->tds && o->qps && o->mrs && s->users;
}

static enum weft_status set_make(struct wf_set *s)
{
    enum weft_status status;
    s->objects->step = "memory";
    if (!arrays_make(s) || !memory_make(s))
        return WEFT_ENOMEM;
    status = objects_make(s);
    if (status != WEFT_OK)
        return status;
    users_set(s);
    ledger_fill(s);
    s->objects->step = "a connection";
    return wf_set_connect(s);
}

/* Returns the text of the limit that the objects have reached. */
static const char *limit_text(const struct wf_objects *o)
{
    if (!strcmp(o->step, "a thread domain"))
        return "no doorbell page is left for it (in classic mode a context has 512 for domains, "
               "and "
               "256 domains with a page of their own)";
    if (!strcmp(o->step, "a context") || !strcmp(o->step, "a queue pair"))
        return "the NIC's doorbell pages (UARs) are used up";
    return "a limit is reached";
}

static void failure_explain(const struct wf_objects *o, enum weft_status status, char *why,
                            size_t room)
{
    const char *cause = status == WEFT_ELIMIT     ? limit_text(o)
                        : status == WEFT_EUNREACH ? "there is no such NIC, or it cannot do that"
                        : status == WEFT_ENOMEM   ? "no memory"
                                                  : "an operation failed";
    snprintf(why, room, "%s: %s cannot be made: %s", o->name, o->step, cause);
}

enum weft_status wf_set_open(struct wf_set *set, const struct wf_hca_ops *ops, const char *name,
                             const struct wf_set_params *params, char *why, size_t room)
{
    const char *wrong = wf_set_wrong(params);
    enum weft_status status = WEFT_EINVAL;
    *set = (struct wf_set){.params = *params, .n = params->ranks * params->threads};
    if (wrong) {
        snprintf(why, room, "%s", wrong);
        return status;
    }
    set->objects = calloc(1, sizeof *set->objects);
    if (!set->objects)
        return WEFT_ENOMEM;
    set->objects->ops = ops;
    set->objects->name = name;
    status = set_make(set);
    if (status != WEFT_OK) {
        failure_explain(set->objects, status, why, room);
        wf_set_close(set);
    }
    return status;
}

#define CLOSE_ALL(array, count, close)                                                             \
    for (size_t at = 0; (array) && at < (count); at++)                                             \
        if ((array)[at])                                                                           \
            (close)((array)[at]);                                                                  \
    free(array)

void wf_set_close(struct wf_set *s)
{
    struct wf_objects *o = s->objects;
    if (!o)
        return;
    wf_set_disconnect(s);
    CLOSE_ALL(o->mrs, 3 * (size_t)s->n, o->ops->mr_close);
    CLOSE_ALL(o->qps, 2 * (size_t)s->n, o->ops->qp_close);
    CLOSE_ALL(o->cqs, s->n, o->ops->cq_close);
    CLOSE_ALL(o->tds, 2 * (size_t)s->n, o->ops->td_close);
    CLOSE_ALL(o->pds, s->n, o->ops->pd_close);
    CLOSE_ALL(o->contexts, s->n, o->ops->close);
    free(o->memory);
    free(s->users);
    free(o);
    *s = (struct wf_set){.n = 0};
}
