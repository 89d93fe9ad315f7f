/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "job/job.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "core/core.h"

/* The launcher's time to hear that this rank leaves; libpmix itself waits 2 s.
 * After a failure nobody should wait long for the error. */
#define LEAVE_NS 5000000000u
#define LEAVE_FAILED_NS 300000000u

#define HOST 0 /* the rank that holds the board */

/* PMIx has one identity per process, so there is one job. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t open_pid; /* under open_lock: the process in which a job is open; 0 none */

/* ---- peers ---- */

static void on_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                         void *arg)
{
    struct weft_job *job = arg;
    int rank = weft_job_peer_rank(job, peer);
    /* Who left the job properly may end any way it likes. */
    if (rank >= 0 && !job->broken && !wf_board_left(&job->board, (unsigned)rank))
        job->broken = why;
    if (job->peer_down)
        job->peer_down(ep, peer, why, job->arg);
}

static int compare_address(const void *a, const void *b, void *arg)
{
    struct weft_peer **peers = arg;
    uintptr_t x = (uintptr_t)peers[*(const uint32_t *)a],
              y = (uintptr_t)peers[*(const uint32_t *)b];
    return (x > y) - (x < y);
}

static enum weft_status open_peers(struct weft_job *job, const struct wf_card *cards)
{
    enum weft_status s = WEFT_OK;
    job->peers = calloc(job->size, sizeof *job->peers);
    job->by_address = calloc(job->size, sizeof *job->by_address);
    if (!job->peers || !job->by_address)
        return WEFT_ENOMEM;
    for (uint32_t r = 0; !s && r < job->size; r++) {
        s = weft_peer_open(job->ep, cards[r].addr, cards[r].addr_len, &job->peers[r]);
        job->by_address[r] = r;
        if (s)
            wf_error("rank %u cannot reach rank %u: %s", job->rank, r, weft_status_text(s));
    }
    if (!s)
        qsort_r(job->by_address, job->size, sizeof *job->by_address, compare_address, job->peers);
    return s;
}

/* ---- the board ---- */

/* At least a slab's size: so it is a slab of its own, which its host drops
 * whole, without taking the pages from those who still map it (board.h). The
 * pages in use are few; huge ones would cost 2 MiB at once. */
static enum weft_status host_board(struct weft_job *job, struct wf_card *card)
{
    size_t len = wf_board_size(job->size), slab = (size_t)wf_config()->slab,
           room = sizeof card->key;
    enum weft_status s;
    len = len < slab ? slab : len;
    s = weft_mem_alloc(job->ctx, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &job->board_mr);
    if (s)
        return s;
    (void)madvise(weft_mr_base(job->board_mr), len, MADV_NOHUGEPAGE);
    s = weft_mr_key(job->board_mr, card->key, &room);
    card->key_len = (uint16_t)room;
    return s ? s : wf_board_open(&job->board, weft_mr_base(job->board_mr), job->rank, job->size, 1);
}

static enum weft_status open_board(struct weft_job *job, const struct wf_card *host,
                                   uint64_t deadline_ns)
{
    struct weft_remote *r;
    enum weft_status s;
    if (job->rank == HOST)
        return WEFT_OK;
    do
        s = weft_remote_open(job->peers[HOST], host->key, host->key_len, &job->board_remote);
    while (s == WEFT_ETIMEDOUT && !job->broken && wf_now_ns() < deadline_ns);
    if (s) {
        wf_error("rank %u cannot open the job's shared memory at rank %d: %s", job->rank, HOST,
                 weft_status_text(s));
        return s;
    }
    r = job->board_remote;
    if (!r->base)
        return WEFT_EUNREACH;
    if (r->length < wf_board_size(job->size))
        return WEFT_EPROTO;
    return wf_board_open(&job->board, r->base, job->rank, job->size, 0);
}

/* ---- cores ---- */

/* All the ranks' masks together are the cores the job has. A launcher's
 * binding shows one core to each rank, so the library is told how many ranks
 * share what this one may use. */
static void count_cores(struct weft_job *job, const struct wf_card *cards)
{
    unsigned char all[WF_CARD_MASK_MAX] = {0};
    unsigned mine, total;
    for (unsigned r = 0; r < job->size; r++)
        for (unsigned i = 0; i < cards[r].mask_len; i++)
            all[i] |= cards[r].mask[i];
    total = wf_card_mask_count(all, sizeof all);
    mine = wf_card_mask_count(cards[job->rank].mask, cards[job->rank].mask_len);
    job->crowded = job->local_size > total;
    if (total && mine)
        weft_ctx_set_local_ranks(job->ctx, (job->local_size * mine + total - 1) / total);
}

/* ---- open ---- */

static enum weft_status check_params(const struct weft_job_params *p)
{
    if (!p)
        return WEFT_OK;
    if (p->version >> 16 != WEFT_VERSION_MAJOR) {
        wf_error("weft_job_open: built for Weft %u, this is Weft %d", p->version >> 16,
                 WEFT_VERSION_MAJOR);
        return WEFT_EVERSION;
    }
    if (p->flags)
        return WEFT_EINVAL;
    for (size_t i = 0; i < sizeof p->reserved / sizeof p->reserved[0]; i++)
        if (p->reserved[i])
            return WEFT_EINVAL;
    return WEFT_OK;
}

/* Slurm's default is to give its tasks nothing to find each other by. */
static void look_for_srun(void)
{
    const char *tasks = wf_config_launcher("SLURM_STEP_NUM_TASKS");
    if (tasks && strcmp(tasks, "1") != 0)
        wf_warn("srun started %s tasks, but each of them is a job of its own: start them with "
                "srun --mpi=pmix",
                tasks);
}

static enum weft_status join(struct weft_job *job, uint64_t deadline_ns)
{
    enum weft_status s;
    job->size = job->local_size = 1;
    if (!wf_launch_present()) {
        look_for_srun();
        return WEFT_OK;
    }
    s = wf_launch_open(&job->launch, deadline_ns);
    if (s)
        return s;
    job->rank = job->launch.rank;
    job->size = job->launch.size;
    job->local_rank = job->launch.local_rank;
    job->local_size = job->launch.local_size;
    if (job->local_size == job->size)
        return WEFT_OK;
    wf_error("%u of the job's %u ranks are on this node; ranks on several nodes need a network "
             "transport, which this version of Weft does not have",
             job->local_size, job->size);
    return WEFT_EUNREACH;
}

static enum weft_status open_endpoint(struct weft_job *job, struct wf_card *card)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    size_t room = sizeof card->addr;
    enum weft_status s;
    params.peer_down = on_peer_down;
    params.arg = job;
    s = weft_ctx_open(NULL, &job->ctx);
    if (!s)
        s = weft_ep_open(job->ctx, &params, &job->ep);
    if (!s)
        s = weft_ep_address(job->ep, card->addr, &room);
    card->addr_len = (uint16_t)room;
    return s;
}

static enum weft_status meet_all(struct weft_job *job, const struct wf_card *mine,
                                 struct wf_card *cards, uint64_t deadline_ns)
{
    enum weft_status s = WEFT_OK;
    if (job->launch.mine)
        s = wf_launch_exchange(&job->launch, mine, cards, deadline_ns);
    else
        cards[0] = *mine;
    if (!s)
        s = open_peers(job, cards);
    if (!s)
        s = open_board(job, &cards[HOST], deadline_ns);
    if (s)
        return s;
    count_cores(job, cards);
    /* Nobody leaves before everyone has the board. */
    s = wf_job_meet(job, deadline_ns);
    if (!s)
        s = wf_job_tune(job, deadline_ns);
    if (s)
        wf_error("rank %u: the job could not be opened: %s", job->rank, weft_status_text(s));
    return s;
}

static enum weft_status open_parts(struct weft_job *job)
{
    uint64_t deadline_ns = wf_now_ns() + wf_config()->job_timeout_ms * 1000000u;
    struct wf_card *mine = calloc(1, sizeof *mine), *cards = NULL;
    enum weft_status s = mine ? join(job, deadline_ns) : WEFT_ENOMEM;
    if (!s && !(cards = calloc(job->size, sizeof *cards)))
        s = WEFT_ENOMEM;
    if (!s)
        s = open_endpoint(job, mine);
    if (!s && job->rank == HOST)
        s = host_board(job, mine);
    if (!s) {
        wf_card_set_mask(mine);
        s = meet_all(job, mine, cards, deadline_ns);
    }
    free(cards);
    free(mine);
    return s;
}

/* Closes what is open, in the order in which it depends on each other. */
static void close_parts(struct weft_job *job, uint64_t launcher_ns)
{
    if (job->board.base) /* who has notified has done its part of that barrier */
        wf_board_depart(&job->board, job->notified ? job->barriers : job->passed,
                        job->broken == WEFT_EPEER);
    if (job->board_remote)
        (void)weft_remote_close(job->board_remote);
    if (job->board_mr)
        (void)weft_mr_close(job->board_mr);
    job->board.base = NULL;
    for (unsigned r = 0; job->peers && r < job->size; r++)
        if (job->peers[r])
            (void)weft_peer_close(job->peers[r]);
    if (job->ep)
        (void)weft_ep_close(job->ep);
    if (job->ctx)
        (void)weft_ctx_close(job->ctx);
    wf_launch_close(&job->launch, launcher_ns);
    free(job->peers);
    free(job->by_address);
    free(job);
}

static enum weft_status claim(void)
{
    enum weft_status s = WEFT_OK;
    pthread_mutex_lock(&open_lock);
    if (open_pid)
        s = open_pid == getpid() ? WEFT_EBUSY : WEFT_EFORKED;
    else
        open_pid = getpid();
    pthread_mutex_unlock(&open_lock);
    return s;
}

static void unclaim(void)
{
    pthread_mutex_lock(&open_lock);
    open_pid = 0;
    pthread_mutex_unlock(&open_lock);
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
    s = open_parts(job);
    if (s == WEFT_ECLOSED || s == WEFT_EKEY) /* who leaves now gave up: after a death */
        s = WEFT_EPEER;
    if (s) {
        job->broken = s;
        close_parts(job, LEAVE_FAILED_NS);
        unclaim();
        return s;
    }
    *out = job;
    return WEFT_OK;
}

/* ---- close, abort ---- */

/* Is anything open on the job's context besides what the job itself opened? */
static bool is_in_use(const struct weft_job *job)
{
    struct weft_ctx *ctx = job->ctx;
    bool more;
    if (job->ep->peers != job->size || job->ep->remotes != (job->board_remote != NULL))
        return true;
    pthread_mutex_lock(&ctx->lock);
    more = ctx->regions != (job->board_mr != NULL) || ctx->eps.next != &job->ep->item ||
           ctx->eps.prev != &job->ep->item;
    pthread_mutex_unlock(&ctx->lock);
    return more;
}

enum weft_status weft_job_close(struct weft_job *job)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (!s && is_in_use(job))
        s = WEFT_EBUSY;
    if (s)
        return s;
    close_parts(job, LEAVE_NS);
    unclaim();
    return WEFT_OK;
}

void weft_job_abort(struct weft_job *job, int code, const char *why)
{
    why = why ? why : "";
    /* A forked child is not the rank: it ends itself alone. */
    if (job && open_pid == getpid() && job->launch.mine)
        wf_launch_abort(&job->launch, code, why);
    else
        wf_error("aborted with code %d: %s", code, why);
    _exit(code);
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

struct weft_peer *weft_job_peer(struct weft_job *job, unsigned rank)
{
    return job && rank < job->size ? job->peers[rank] : NULL;
}

int weft_job_peer_rank(const struct weft_job *job, const struct weft_peer *peer)
{
    size_t lo = 0, hi = job && job->peers ? job->size : 0;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        uint32_t rank = job->by_address[mid];
        if (job->peers[rank] == peer)
            return (int)rank;
        if ((uintptr_t)job->peers[rank] < (uintptr_t)peer)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}
