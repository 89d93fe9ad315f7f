/* SPDX-License-Identifier: BSD-3-Clause */
/* Message rate: small writes, in lists of p, one completion for q. A thread posts what the depth of
 * its queue pair allows, polls once, and so on, until all its messages are complete. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "bench.h"

#define LIST_MOST 1024u

struct thread {
    _Alignas(64) struct wf_word done; /* completed messages, if others may poll them */
    double per_s, ns;
    bool failed;
};

struct run {
    const struct wf_rate_params *p;
    const struct wf_bench *bench;
    struct wf_sync sync;
    struct wf_set set;
    struct thread *threads;
    struct wf_word *remaining; /* for each shared queue pair: depth that is left */
    bool cq_shared, qp_shared;
    _Atomic bool failed; /* a thread has: the others would wait for completions that it took */
};

/* What a thread knows alone. */
struct local {
    struct run *run;
    const struct wf_user *user;
    struct thread *thread;
    uint64_t posted, done, total;
    struct wf_hca_wr *list;
    struct wf_hca_wc *wcs;
    unsigned room; /* completions of a poll */
};

/* ---- parameters ---- */

void wf_rate_params_of(struct wf_rate_params *out, unsigned threads)
{
    *out =
        (struct wf_rate_params){.p = 32, .q = 64, .is_inline = true, .bytes = 2, .messages = 8192};
    wf_set_params_of(&out->set, WF_CAT_NAIVE, 1, threads, 1);
    out->set.region_len = out->bytes;
}

const char *wf_rate_finish(struct wf_rate_params *p)
{
    uint32_t depth = p->set.depth;
    if (!p->p || p->p > depth)
        return "p must be from 1 to the depth";
    if (!p->q || p->q > depth)
        return "q must be from 1 to the depth";
    if (depth % p->p || depth % p->q || p->p > LIST_MOST)
        return "p and q must divide the depth";
    p->messages = (p->messages + depth - 1) / depth * depth;
    p->set.cq_depth = depth / p->q * p->set.ways[WF_WAY_CQ];
    p->set.regions = 1;
    p->set.region_len = p->bytes;
    p->set.unregistered = p->is_inline && p->set.ways[WF_WAY_MR] == 1;
    return wf_set_wrong(&p->set);
}

/* ---- the loop ---- */

static void fail(struct local *l)
{
    l->thread->failed = true;
    atomic_store_explicit(&l->run->failed, true, memory_order_relaxed);
}

static bool has_failed(const struct local *l)
{
    return atomic_load_explicit(&l->run->failed, memory_order_relaxed);
}

static uint64_t done_get(struct local *l)
{
    if (l->run->cq_shared)
        l->done = (uint64_t)wf_word_get(&l->run->sync, &l->thread->done);
    return l->done;
}

/* The last request of each q is signaled. */
static bool list_post(struct local *l)
{
    const struct wf_rate_params *p = l->run->p;
    struct wf_hca_qp *qp = l->user->qp[0];
    unsigned n = 0;
    for (unsigned i = 0; i < p->p; i++) {
        l->list[i].flags = p->is_inline ? WF_HCA_INLINE : 0;
        l->list[i].flags |= (l->posted + i + 1) % p->q ? 0 : WF_HCA_SIGNALED;
    }
    wf_sync_work(&l->run->sync, l->run->bench->params.v[WF_P_LOOP]);
    while (n < p->p) {
        unsigned posted = qp->hca->ops->post(qp, l->list + n, p->p - n);
        n += posted;
        if (!posted)
            return false;
    }
    l->posted += p->p;
    return true;
}

static void lists_post(struct local *l, uint64_t n)
{
    for (; n >= l->run->p->p && !has_failed(l); n -= l->run->p->p)
        if (!list_post(l))
            fail(l);
}

/* Takes as much of the shared depth as one completion gives back, or as a list needs. (The
 * published program gives back only if nothing was left, and so exceeds the depth where p > q.) */
static void shared_post(struct local *l)
{
    const struct wf_rate_params *p = l->run->p;
    struct wf_word *remaining = &l->run->remaining[l->user->qp_index[0] / 2];
    int64_t n = WF_MAX(p->p, p->q);
    if (l->posted == l->total)
        return;
    if (wf_word_add(&l->run->sync, remaining, -n) < n) {
        (void)wf_word_add(&l->run->sync, remaining, n);
        return;
    }
    lists_post(l, (uint64_t)n);
}

static void own_post(struct local *l)
{
    uint64_t free_depth = l->run->p->set.depth - (l->posted - l->done);
    lists_post(l, WF_MIN(free_depth, l->total - l->posted));
}

/* A completion's id is the thread that posted. */
static void completion_count(struct local *l, const struct wf_hca_wc *wc)
{
    struct run *run = l->run;
    if (wc->status != WF_HCA_OK || wc->id >= run->set.n) {
        fail(l);
        return;
    }
    if (!run->cq_shared) {
        l->done += run->p->q;
        return;
    }
    (void)wf_word_add(&run->sync, &run->threads[wc->id].done, run->p->q);
    if (run->qp_shared)
        (void)wf_word_add(&run->sync, &run->remaining[l->user->qp_index[0] / 2], run->p->q);
}

static void poll_once(struct local *l)
{
    struct wf_hca_cq *cq = l->user->cq;
    int n = cq->hca->ops->poll(cq, l->wcs, l->room);
    for (int i = 0; i < n; i++)
        completion_count(l, &l->wcs[i]);
    if (n < 0)
        fail(l);
    if (!n)
        wf_sync_idle(&l->run->sync);
}

static void messages_send(struct local *l, uint64_t n)
{
    l->total = l->posted + n;
    while (done_get(l) < l->total && !has_failed(l)) {
        if (l->run->qp_shared)
            shared_post(l);
        else
            own_post(l);
        poll_once(l);
    }
}

static void list_fill(struct local *l)
{
    const struct wf_user *u = l->user;
    for (unsigned i = 0; i < l->run->p->p; i++)
        l->list[i] = (struct wf_hca_wr){
            .id = (uint64_t)(u - l->run->set.users),
            .op = WF_HCA_WRITE,
            .nsge = 1,
            .rkey = u->rkey[0],
            .remote = u->remote[0],
            .sge = {{u->buf[0], (uint32_t)l->run->p->bytes, u->mr[0] ? u->mr[0]->lkey : 0}}};
}

/* The warm-up is two depths. */
static void thread_run(void *arg, unsigned self)
{
    struct run *run = arg;
    unsigned room = run->p->set.depth / run->p->q;
    struct local l = {.run = run,
                      .user = &run->set.users[self],
                      .thread = &run->threads[self],
                      .list = calloc(run->p->p, sizeof *l.list),
                      .wcs = calloc(room, sizeof *l.wcs),
                      .room = room};
    double start;
    if (!l.list || !l.wcs) {
        fail(&l);
    } else {
        list_fill(&l);
        messages_send(&l, 2 * (uint64_t)run->p->set.depth);
        start = wf_sync_now_ns(&run->sync);
        messages_send(&l, run->p->messages);
        l.thread->ns = wf_sync_now_ns(&run->sync) - start;
        l.thread->per_s = (double)run->p->messages / l.thread->ns * 1e9;
    }
    free(l.list);
    free(l.wcs);
}

/* ---- a run ---- */

static bool run_make(struct run *run)
{
    run->threads = aligned_alloc(64, run->set.n * sizeof *run->threads);
    run->remaining = aligned_alloc(64, run->set.n * sizeof *run->remaining);
    if (!run->threads || !run->remaining)
        return false;
    memset(run->threads, 0, run->set.n * sizeof *run->threads);
    memset(run->remaining, 0, run->set.n * sizeof *run->remaining);
    for (unsigned i = 0; i < run->set.n; i++)
        run->remaining[i].value = run->p->set.depth;
    return wf_sync_run(&run->sync, run->set.n, thread_run, run);
}

static bool result_set(struct run *run, struct wf_result *out)
{
    for (unsigned i = 0; i < run->set.n; i++) {
        out->per_s += run->threads[i].per_s;
        out->ns = WF_MAX(out->ns, run->threads[i].ns);
        if (run->threads[i].failed) {
            snprintf(out->why, sizeof out->why, "thread %u could not post or poll", i);
            return false;
        }
    }
    return true;
}

bool wf_rate_run(const struct wf_bench *b, const struct wf_rate_params *p, struct wf_result *out)
{
    struct run run = {.p = p, .bench = b};
    bool ok = wf_bench_open(b, &p->set, &run.set, &run.sync, out);
    if (!ok)
        return false;
    run.cq_shared = p->set.ways[WF_WAY_CQ] > 1;
    run.qp_shared = p->set.ways[WF_WAY_QP] > 1;
    if (!p->check_only) {
        ok = run_make(&run);
        if (!ok)
            snprintf(out->why, sizeof out->why, "no memory, or no threads");
        else
            ok = result_set(&run, out);
        free(run.threads);
        free(run.remaining);
    }
    wf_bench_close(b, &run.set, out);
    return ok;
}
