/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "job/job.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/params.h"
#include "config/config.h"
#include "core/core.h"
#include "core/msg.h"

/* The launcher's time to hear that this rank leaves; libpmix itself waits 2 s.
 * After a failure nobody should wait long for the error: the exit code of a job that fails is
 * with the launcher within min(120, 3 + 0.125 * nodes) s, whatever state the others are in, as
 * GASNet promises it. No step that a failed rank takes grows with the number of nodes,
 * and all together take less than 3 s: weft_job_abort 2 s (launch.c, ABORT_NS);
 * weft_job_close 0.1 s to tell other nodes (across.c, LEAVE_NS) and the times below. */
#define LEAVE_NS 5000000000u
#define SETTLE_NS 500000000u /* weft_job_close, for operations under way */
#define SETTLE_LOOK_NS 1000000
#define LEAVE_BROKEN_NS 2000000000u
#define LEAVE_FAILED_NS 300000000u
#define CLOSE_BROKEN_MS 300 /* endpoint, and then context, each for peers that are cut off */

/* PMIx has one identity per process, so there is one job. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t open_pid; /* under open_lock: the process in which a job is open; 0 none */

/* ---- what the application may not close ---- */

static void keep(struct weft_job *job, bool kept)
{
    if (job->ctx)
        job->ctx->of_job = kept;
    if (job->ep)
        job->ep->of_job = kept;
    for (unsigned r = 0; job->peers && r < job->size; r++)
        if (job->peers[r])
            job->peers[r]->of_job = kept;
}

/* ---- peers ---- */

bool wf_job_left(const struct weft_job *job, unsigned rank)
{
    const struct wf_nodes *n = &job->nodes;
    if (!n->of)
        return false;
    if (wf_nodes_is_mine(n, rank))
        return wf_board_left(&job->board, n->place[rank]);
    return job->across && job->across->left[n->of[rank]] && wf_nodes_leader(n, n->of[rank]) == rank;
}

/* Who left the job properly may end any way it likes. Of a rank on another node only its leader
 * knows whether it left, and says so; of that leader, those that it tells. */
static bool is_loss(const struct weft_job *job, unsigned rank)
{
    if (job->across && !wf_nodes_is_mine(&job->nodes, rank))
        return wf_across_needs(job, rank);
    return !wf_job_left(job, rank);
}

static void on_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                         void *arg)
{
    struct weft_job *job = arg;
    int rank = weft_job_peer_rank(job, peer);
    if (rank >= 0 && why != WEFT_ECLOSED)
        job->lost = true;
    if (rank >= 0 && !job->broken && is_loss(job, (unsigned)rank)) {
        wf_info("rank %u: rank %d is lost: %s", job->rank, rank, weft_status_text(why));
        job->broken = why;
    }
    if (job->peer_down && !(rank >= 0 && why == WEFT_ECLOSED))
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

/* Every rank makes one, since which rank leads its node is only known from the cards: a memfd
 * of which nothing but the first line was touched, and which all but leaders close again.
 *
 * At least a slab's size: so it is a slab of its own, which its host drops
 * whole, without taking the pages from those who still map it (board.h). The
 * pages in use are few; huge ones would cost 2 MiB at once. */
static enum weft_status make_board(struct weft_job *job, struct wf_card *card)
{
    size_t len = wf_board_room(job->size), slab = (size_t)wf_config()->slab,
           room = sizeof card->key;
    enum weft_status s;
    len = len < slab ? slab : len;
    s = weft_mem_alloc(job->ctx, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &job->board_mr);
    if (s)
        return s;
    (void)madvise(weft_mr_base(job->board_mr), len, MADV_NOHUGEPAGE);
    s = weft_mr_key(job->board_mr, card->key, &room);
    card->key_len = (uint16_t)room;
    wf_board_make(weft_mr_base(job->board_mr), job->size);
    return s;
}

static enum weft_status use_board(struct weft_job *job, void *base)
{
    return wf_board_open(&job->board, base, job->local_rank, job->local_size, job->size);
}

static enum weft_status open_board(struct weft_job *job, const struct wf_card *cards,
                                   uint64_t deadline_ns)
{
    unsigned host = wf_nodes_leader(&job->nodes, job->nodes.me);
    const struct wf_card *card = &cards[host];
    struct weft_remote *r;
    enum weft_status s;
    if (job->rank == host)
        return use_board(job, weft_mr_base(job->board_mr));
    (void)weft_mr_close(job->board_mr);
    job->board_mr = NULL;
    do
        s = weft_remote_open(job->peers[host], card->key, card->key_len, &job->board_remote);
    while (s == WEFT_ETIMEDOUT && !job->broken && wf_now_ns() < deadline_ns);
    if (s) {
        wf_error("rank %u cannot open the job's shared memory at rank %u: %s", job->rank, host,
                 weft_status_text(s));
        return s;
    }
    r = job->board_remote;
    if (!r->base)
        return WEFT_EUNREACH;
    if (r->length < wf_board_size(job->local_size, job->size))
        return WEFT_EPROTO;
    return use_board(job, r->base);
}

/* ---- cores ---- */

/* The masks together of the ranks on this machine (one kernel, be they mates or not) are the
 * cores the job has here. A launcher's binding shows one core to each rank, so the library is
 * told how many ranks share what this one may use. */
static void count_cores(struct weft_job *job, const struct wf_card *cards,
                        const struct wf_member *members)
{
    unsigned char all[WF_CARD_MASK_MAX] = {0};
    unsigned mine, total, ranks = 0;
    for (unsigned r = 0; r < job->size; r++) {
        if (members[r].process.node != members[job->rank].process.node)
            continue;
        ranks++;
        for (unsigned i = 0; i < cards[r].mask_len; i++)
            all[i] |= cards[r].mask[i];
    }
    total = wf_card_mask_count(all, sizeof all);
    mine = wf_card_mask_count(cards[job->rank].mask, cards[job->rank].mask_len);
    job->crowded = ranks > total;
    job->meet = job->across ? WF_MEET_ACROSS : job->crowded ? WF_MEET_COUNT : WF_MEET_DISSEMINATE;
    if (total && mine)
        weft_ctx_set_local_ranks(job->ctx, (ranks * mine + total - 1) / total);
}

/* ---- nodes ---- */

static enum weft_status find_nodes(struct weft_job *job, const struct wf_member *members)
{
    enum weft_status s = wf_nodes_make(&job->nodes, members, job->size, job->rank);
    if (s)
        return s;
    job->local_rank = job->nodes.place[job->rank];
    job->local_size = wf_nodes_ranks(&job->nodes, job->nodes.me);
    wf_info("rank %u: %u ranks on %u nodes; %u share memory with this one", job->rank, job->size,
            job->nodes.count, job->local_size);
    return job->nodes.count > 1 ? wf_across_open(job) : WEFT_OK;
}

/* ---- open ---- */

static enum weft_status check_params(const struct weft_job_params *p)
{
    return p ? wf_params_check("WEFT_JOB_PARAMS", p->version, p->flags,
                               WEFT_EP_LOCKED | WEFT_EP_RMA_EVENT, p->reserved,
                               WF_ARRAY_LEN(p->reserved))
             : WEFT_OK;
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
    return WEFT_OK;
}

/* Ranks of one node that use shared memory do without a network: nothing listens, and no poll looks
 * for it. (Where a launcher's node is several to Weft, such as containers, WEFT_TRANSPORTS
 * without shm says so.) */
static bool needs_network(const struct weft_job *job)
{
    return job->launch.mine && !(job->launch.one_node && wf_ctx_wants(&wf_shm_transport));
}

static enum weft_status open_endpoint(struct weft_job *job, const struct weft_job_params *p,
                                      struct wf_card *card)
{
    struct weft_ctx_params ctx_params = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    size_t room = sizeof card->addr;
    enum weft_status s;
    params.peer_down = on_peer_down;
    params.arg = job;
    params.flags = p ? p->flags : 0;
    ctx_params.mr = p ? p->mr : NULL;
    ctx_params.flags = needs_network(job) ? WEFT_CTX_NETWORK : 0;
    s = weft_ctx_open(&ctx_params, &job->ctx);
    if (!s)
        s = weft_ep_open(job->ctx, &params, &job->ep);
    if (!s)
        s = weft_ep_address(job->ep, card->addr, &room);
    card->addr_len = (uint16_t)room;
    if (!s && wf_ctx_uses(job->ctx, &wf_shm_transport))
        card->flags = WF_CARD_SHARES | (wf_config()->shm_map ? WF_CARD_MAPS : 0);
    return s;
}

/* ---- the secret ---- */

static enum weft_status draw_secret(struct weft_job *job, struct wf_card *card)
{
    if (!needs_network(job) || job->launch.has_secret || job->rank)
        return WEFT_OK;
    if (getrandom(card->secret, WF_SECRET, 0) != WF_SECRET) {
        wf_error("getrandom: %m");
        return WEFT_ESYSTEM;
    }
    card->secret_len = WF_SECRET;
    return WEFT_OK;
}

/* A key that WEFT_KEY_FILE gave stays: whoever sets that means it. */
static enum weft_status set_secret(struct weft_job *job, const struct wf_card *cards)
{
    const unsigned char *secret = job->launch.has_secret ? job->launch.secret : cards[0].secret;
    enum weft_status s;
    _Static_assert(WF_SECRET == WEFT_KEY_SIZE, "it is the context's key");
    if (!needs_network(job))
        return WEFT_OK;
    if (!job->launch.has_secret && cards[0].secret_len != WF_SECRET) {
        wf_error("rank 0 drew no secret for ranks on several nodes, and the launcher gives none: "
                 "give all ranks the same WEFT_TRANSPORTS");
        return WEFT_EPROTO;
    }
    s = weft_ctx_set_key(job->ctx, secret, WF_SECRET);
    wf_info("rank %u: the job's key is from %s", job->rank,
            s == WEFT_EBUSY          ? "WEFT_KEY_FILE"
            : job->launch.has_secret ? "the launcher"
                                     : "rank 0");
    return s == WEFT_EBUSY ? WEFT_OK : s;
}

static void forget_secrets(struct wf_card *cards, unsigned n)
{
    for (unsigned r = 0; cards && r < n; r++)
        explicit_bzero(cards[r].secret, sizeof cards[r].secret);
}

/* ---- meeting ---- */

static enum weft_status exchange(struct weft_job *job, const struct wf_card *mine,
                                 struct wf_card *cards, uint64_t deadline_ns)
{
    if (job->launch.mine)
        return wf_launch_exchange(&job->launch, mine, cards, deadline_ns);
    cards[0] = *mine;
    return WEFT_OK;
}

static enum weft_status use_cards(struct weft_job *job, const struct wf_card *cards,
                                  struct wf_member *members, uint64_t deadline_ns)
{
    enum weft_status s = set_secret(job, cards);
    if (!s)
        s = wf_members_read(members, cards, job->size);
    if (!s)
        s = open_peers(job, cards);
    if (!s)
        s = find_nodes(job, members);
    if (!s)
        s = open_board(job, cards, deadline_ns);
    if (!s)
        count_cores(job, cards, members);
    return s;
}

static enum weft_status meet_all(struct weft_job *job, const struct wf_card *mine,
                                 struct wf_card *cards, uint64_t deadline_ns)
{
    struct wf_member *members = calloc(job->size, sizeof *members);
    enum weft_status s = members ? exchange(job, mine, cards, deadline_ns) : WEFT_ENOMEM;
    if (!s)
        s = use_cards(job, cards, members, deadline_ns);
    free(members);
    if (s)
        return s;
    /* Nobody leaves before everyone has the board. */
    wf_job_hold(job);
    s = wf_job_meet(job, WF_CALL_BARRIER, deadline_ns);
    if (!s)
        s = wf_job_tune(job, deadline_ns);
    (void)wf_job_held(job, s);
    if (s)
        wf_error("rank %u: the job could not be opened: %s", job->rank, weft_status_text(s));
    return s;
}

static enum weft_status open_parts(struct weft_job *job, const struct weft_job_params *params)
{
    uint64_t deadline_ns = wf_now_ns() + wf_config()->job_timeout_ms * 1000000u;
    struct wf_card *mine = calloc(1, sizeof *mine), *cards = NULL;
    enum weft_status s = mine ? join(job, deadline_ns) : WEFT_ENOMEM;
    if (!s && !(cards = calloc(job->size, sizeof *cards)))
        s = WEFT_ENOMEM;
    if (!s)
        s = open_endpoint(job, params, mine);
    if (job->ep) /* nobody polls it before its handlers are there */
        wf_job_hold(job);
    if (!s)
        s = make_board(job, mine);
    if (!s)
        s = draw_secret(job, mine);
    if (!s) {
        wf_card_set_mask(mine);
        s = meet_all(job, mine, cards, deadline_ns);
    }
    if (job->ep)
        (void)wf_job_held(job, s);
    forget_secrets(cards, job->size);
    forget_secrets(mine, 1);
    free(cards);
    free(mine);
    return s;
}

/* Say that this rank leaves. Who has notified has done its part of that barrier; who leads its
 * node, only once that has ended: its mates' part goes through it. */
static void depart(struct weft_job *job)
{
    uint64_t passed = job->passed;
    wf_job_hold(job);
    if (job->across && job->notified)
        wf_across_finish(job);
    if (job->notified && wf_across_is_through(job))
        passed = job->barriers;
    if (job->notified) /* to ranks that wait in another call, which this one never ends */
        (void)wf_job_show_call(job, job->board.waits);
    wf_board_depart(&job->board, passed, job->broken == WEFT_EPEER);
    if (job->across)
        wf_across_leave(job, passed);
    (void)wf_job_held(job, WEFT_OK);
}

/* Closes what is open, in the order in which it depends on each other. */
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
    if (job->ep) /* nobody polls it once its handlers are gone */
        wf_progress_leave(job->ep);
    wf_across_close(job);
    keep(job, false);
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
    wf_nodes_free(&job->nodes);
    explicit_bzero(&job->launch, sizeof job->launch);
    if (wf_handle_free(job))
        job->ep = &wf_closed_ep;
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
    s = open_parts(job, params);
    if (s == WEFT_ECLOSED || s == WEFT_EKEY) /* who leaves now gave up: after a death */
        s = WEFT_EPEER;
    if (s) {
        job->broken = s;
        close_parts(job, false);
        unclaim();
        return s;
    }
    keep(job, true);
    *out = job;
    return WEFT_OK;
}

/* ---- close, abort ---- */

/* Is anything open on the job's context besides what the job itself opened? */
static bool is_in_use(const struct weft_job *job)
{
    return job->ep->peers != job->size || job->ep->remotes != (job->board_remote != NULL) ||
           wf_ctx_has_more(job->ctx, job->ep, job->board_mr != NULL);
}

/* Let operations end that nobody can wait for: the word to a sender that its message was copied.
 * False: one is still under way, or a message was claimed and not received. */
static bool settle(struct weft_job *job)
{
    uint64_t until = wf_now_ns() + SETTLE_NS;
    for (;;) {
        bool busy, claimed;
        wf_job_hold(job);
        busy = wf_msg_busy(job->ep);
        claimed = job->ep->claimed;
        (void)wf_job_held(job, WEFT_OK);
        if (!busy || claimed || wf_now_ns() >= until)
            return !busy;
        (void)weft_ep_wait(job->ep, SETTLE_LOOK_NS);
    }
}

enum weft_status weft_job_close(struct weft_job *job)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (!s && (is_in_use(job) || !settle(job)))
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
    /* A forked child is not the rank: it ends itself alone. */
    if (job && open_pid == getpid() && job->launch.mine)
        wf_launch_abort(&job->launch, code, why);
    else
        wf_error("aborted with code %d: %s", code, why);
    _exit(code);
}

/* The endpoint's lock is kept: what other threads do there would use what the launcher's library
 * has just given back. */
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
