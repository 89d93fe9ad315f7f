/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "job/job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/params.h"
#include "config/config.h"
#include "core/core.h"
#include "core/deferred.h"
#include "core/msg.h"

/* Time limits. GASNet promises that after a failure the launcher gets the job's exit code within
 * min(120, 3 + 0.125 * nodes) seconds, in whatever state the other ranks are. So no step that a
 * rank takes after a failure depends on the number of nodes, and all steps together take about 3 s
 * at most. weft_job_abort waits 2 s (launch.c, ABORT_NS). weft_job_close waits 0.1 s to report to
 * other nodes (trouble.c, LEAVE_NS), and then the times below. The LEAVE limits below bound the
 * disconnection from the launcher, for which libpmix itself waits 2 s. */
#define LEAVE_NS 5000000000u
#define SETTLE_NS 500000000u /* weft_job_close: longest wait for operations */
#define DRAIN_NS 100000000u  /* longest wait for operations that begin during the close */
#define SETTLE_LOOK_NS 1000000
#define LEAVE_BROKEN_NS 2000000000u
#define LEAVE_FAILED_NS 300000000u
/* Milliseconds that the endpoint and the context may each wait for unreachable peers while they
 * close. */
#define CLOSE_BROKEN_MS 300

/* A process can have one job open at a time, since PMIx gives a process one identity. So this is
 * the id of the process in which a job is open; 0 if none is. It is atomic, and no lock protects
 * it: in a forked child, a lock that another thread of the parent held would stay locked. */
static _Atomic pid_t open_pid;

/* ---- objects that only the job may close ---- */

/* A progress thread may poll the endpoint, and write other bits of the same word of a peer. */
static void set_owned(struct weft_job *job, bool owned)
{
    if (job->ctx)
        job->ctx->of_job = owned;
    if (!job->ep)
        return;
    wf_job_hold(job);
    job->ep->of_job = owned;
    for (unsigned r = 0; job->peers && r < job->size; r++)
        if (job->peers[r])
            job->peers[r]->of_job = owned;
    (void)wf_job_held(job, WEFT_OK);
}

/* ---- leaving and closing ---- */

/* Report to the other ranks that this rank leaves the job. If this rank has notified a split-phase
 * barrier that has not ended, the report counts that barrier as passed: the other ranks need no
 * more from this rank. A leader (the lowest rank of its node, if there are several nodes) forwards
 * the votes of its node. So a leader counts the barrier only if it has ended. */
static void depart(struct weft_job *job)
{
    uint64_t passed = job->passed;
    wf_job_hold(job);
    if (job->across && job->notified)
        wf_across_split_finish(job);
    if (job->notified && wf_across_is_through(job))
        passed = job->barriers;
    if (job->notified) /* so that ranks in a different call find the mismatch */
        (void)wf_job_show_call(job, job->board.waits);
    wf_board_depart(&job->board, passed, job->broken == WEFT_EPEER);
    if (job->across)
        wf_across_leave(job, passed);
    (void)wf_job_held(job, WEFT_OK);
}

/* Is an operation under way at the job's endpoint, or a deferred call of another thread?
 * wf_flow_busy also finds short puts, for which no request exists. */
static bool is_busy(const struct weft_job *job)
{
    bool busy = wf_msg_busy(job->ep) || wf_deferred_is_elsewhere(job->ep);
    for (unsigned r = 0; !busy && job->peers && r < job->size; r++)
        busy = job->peers[r] && wf_flow_busy(job->peers[r]);
    return busy;
}

/* Wait at most [at_most_ns] until no operation is under way at the job's endpoint. The application
 * cannot wait for some operations itself, such as the acknowledgement that tells a sender that its
 * message was copied. Returns false if an operation is still under way. Returns false at once if a
 * claimed message was not received, since only the application can receive it. */
static bool settle(struct weft_job *job, uint64_t at_most_ns)
{
    uint64_t until = wf_now_ns() + at_most_ns;
    for (;;) {
        bool busy, claimed;
        wf_job_hold(job);
        busy = is_busy(job);
        claimed = job->ep->claimed;
        (void)wf_job_held(job, WEFT_OK);
        if (!busy || claimed || wf_now_ns() >= until)
            return !busy;
        (void)weft_ep_wait(job->ep, SETTLE_LOOK_NS);
    }
}

/* Close the job's peers, endpoint and context. Operations under way end with ECANCELED. A detached
 * request without a reply, or a deferred call of another thread, keeps the endpoint and the context
 * open. */
static void close_endpoint(struct weft_job *job)
{
    enum weft_status status = WEFT_OK;
    for (unsigned r = 0; job->peers && r < job->size; r++)
        if (job->peers[r])
            (void)weft_peer_close(job->peers[r]);
    if (job->ep)
        status = weft_ep_close(job->ep);
    if (status == WEFT_OK && job->ctx)
        status = weft_ctx_close(job->ctx);
    if (status != WEFT_OK)
        wf_error("rank %u: what began while the job was left has not ended (%s): the job's "
                 "endpoint and context stay open until this process ends",
                 job->rank, weft_status_name(status));
}

/* Close all open parts of the job, each part before the parts that it depends on. depart() polls,
 * so operations may have begun since weft_job_close looked: a message may have matched a receive,
 * or a handler may have detached a request. They get DRAIN_NS to end. */
static void close_parts(struct weft_job *job, bool opened)
{
    uint64_t launcher_ns = opened ? LEAVE_NS : LEAVE_FAILED_NS;
    if (job->board.base)
        depart(job);
    if (job->broken || job->lost) {
        if (job->ctx)
            wf_ctx_close_within(job->ctx, CLOSE_BROKEN_MS);
        if (opened)
            launcher_ns = LEAVE_BROKEN_NS;
    }
    /* The progress thread must not poll the endpoint from here on, since the job's handlers are
     * removed below. */
    if (job->ep)
        wf_progress_leave(job->ep);
    if (job->ep)
        (void)settle(job, DRAIN_NS);
    wf_across_close(job);
    set_owned(job, false);
    if (job->board_remote)
        (void)weft_remote_close(job->board_remote);
    if (job->board_mr)
        (void)weft_mr_close(job->board_mr);
    job->board.base = NULL;
    close_endpoint(job);
    wf_launch_close(&job->launch, launcher_ns);
    free(job->peers);
    free(job->by_address);
    wf_nodes_free(&job->nodes);
    explicit_bzero(&job->launch, sizeof job->launch);
    if (wf_handle_free(job))
        job->ep = &wf_closed_ep;
}

/* ---- open ---- */

static enum weft_status check_params(const struct weft_job_params *p)
{
    return p ? wf_params_check("WEFT_JOB_PARAMS", p->version, p->flags,
                               WEFT_EP_LOCKED | WEFT_EP_RMA_EVENT, p->reserved,
                               WF_ARRAY_LEN(p->reserved))
             : WEFT_OK;
}

static enum weft_status claim(void)
{
    const pid_t self = getpid();
    pid_t open = 0;
    if (atomic_compare_exchange_strong_explicit(&open_pid, &open, self, memory_order_acquire,
                                                memory_order_relaxed)) /* "job open" */
        return WEFT_OK;
    return open == self ? WEFT_EBUSY : WEFT_EFORKED;
}

static void unclaim(void)
{
    atomic_store_explicit(&open_pid, 0, memory_order_release); /* "job open" */
}

enum weft_status weft_job_open(const struct weft_job_params *params, struct weft_job **out)
{
    struct weft_job *job;
    enum weft_status s = out ? check_params(params) : WEFT_EINVAL;
    if (!s)
        s = wf_config_init();
    if (!s)
        s = claim();
    if (s)
        return s;
    job = calloc(1, sizeof *job);
    if (!job) {
        unclaim();
        return WEFT_ENOMEM;
    }
    if (params) {
        job->peer_down = params->peer_down;
        job->arg = params->arg;
    }
    s = wf_job_open_parts(job, params);
    /* ECLOSED and EKEY mean that another rank left before the job was open everywhere. A rank
     * leaves that early only if it gave up because a rank had died. So report EPEER, a death. */
    if (s == WEFT_ECLOSED || s == WEFT_EKEY)
        s = WEFT_EPEER;
    if (s) {
        job->broken = s;
        close_parts(job, false);
        unclaim();
        return s;
    }
    set_owned(job, true);
    *out = job;
    return WEFT_OK;
}

/* ---- close, abort ---- */

/* Is anything open on the job's context that the job itself did not open? */
static bool is_in_use(const struct weft_job *job)
{
    return job->ep->peers != job->size || job->ep->remotes != (job->board_remote != NULL) ||
           wf_ctx_has_more(job->ctx, job->ep, job->board_mr != NULL);
}

enum weft_status weft_job_close(struct weft_job *job)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (!s && (is_in_use(job) || !settle(job, SETTLE_NS)))
        s = WEFT_EBUSY;
    if (s)
        return s;
    close_parts(job, true);
    unclaim();
    return WEFT_OK;
}

void weft_job_abort(struct weft_job *job, int code, const char *why)
{
    why = why ? why : "";
    /* A forked child is not a rank of the job. It ends only itself. */
    if (job && wf_load_relaxed(&open_pid) == getpid() && job->launch.mine)
        wf_launch_abort(&job->launch, code, why);
    else
        wf_error("aborted with code %d: %s", code, why);
    _exit(code);
}

/* The endpoint stays locked after the return if it has a lock. Calls of other threads then block,
 * instead of using what libpmix has released. */
enum weft_status weft_job_leave(struct weft_job *job)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (s)
        return s;
    depart(job);
    wf_job_hold(job);
    wf_launch_close(&job->launch, job->broken || job->lost ? LEAVE_BROKEN_NS : LEAVE_NS);
    return WEFT_OK;
}

/* ---- facts ---- */

unsigned weft_job_rank(const struct weft_job *job)
{
    return job ? job->rank : 0;
}

unsigned weft_job_size(const struct weft_job *job)
{
    return job ? job->size : 0;
}

unsigned weft_job_local_size(const struct weft_job *job)
{
    return job ? job->local_size : 0;
}

unsigned weft_job_local_rank(const struct weft_job *job)
{
    return job ? job->local_rank : 0;
}

struct weft_ctx *weft_job_ctx(const struct weft_job *job)
{
    return job ? job->ctx : NULL;
}

struct weft_ep *weft_job_ep(const struct weft_job *job)
{
    return job ? job->ep : NULL;
}
