/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening a job. A rank opens its endpoint, exchanges cards (addresses and other facts) with all
 * ranks through the launcher, opens a peer for each rank, and opens the memory that its node
 * shares. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "core/core.h"
#include "job/job.h"

/* ---- the board ---- */

/* Make a board: memory that the ranks of a node share. Every rank makes one, since only the
 * exchanged cards show which rank is the lowest of its node. All other ranks close their board
 * again. An unused board costs little: a memfd of which one line is touched.
 *
 * The board is at least as long as a slab (a memfd that smaller regions share), so that it gets a
 * slab of its own. Then the host can release the whole slab, while the pages stay mapped in other
 * ranks (board.h). Huge pages are turned off, because only a few pages are used, and one huge page
 * would take 2 MiB at the first touch. */
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

/* Count the cores of the job on this machine: the union of the affinity masks of all ranks on it.
 * Ranks that do not share memory count, too. If the launcher binds each rank to one core, the
 * context of a rank sees only that core. So tell the context how many ranks share this rank's
 * cores. */
static void count_cores(struct weft_job *job, const struct wf_card *cards)
{
    unsigned char all[WF_CARD_MASK_MAX] = {0};
    unsigned mine, total, ranks = 0;
    for (unsigned r = 0; r < job->size; r++) {
        if (cards[r].boot != cards[job->rank].boot)
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

/* ---- joining the launcher ---- */

/* Warn if Slurm started several tasks without PMIx, as it does by default. Such tasks cannot find
 * each other. */
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

/* Does this job need a network transport? Not if all ranks are on one node and use shared memory.
 * Then nothing listens, and polls look at no network. (Containers on one host may be one node for
 * the launcher, but several nodes for Weft. In that case the user sets WEFT_TRANSPORTS without
 * shm.) */
static bool needs_network(const struct weft_job *job)
{
    return job->launch.mine && !(job->launch.one_node && wf_ctx_wants(&wf_shm_transport));
}

/* ---- the secret ---- */

static enum weft_status set_key(struct weft_job *job, const unsigned char *secret, const char *from)
{
    enum weft_status s = weft_ctx_set_key(job->ctx, secret, WF_SECRET);
    _Static_assert(WF_SECRET == WEFT_KEY_SIZE, "it is the context's key");
    wf_info("rank %u: the job's key is from %s", job->rank,
            s == WEFT_EBUSY ? "WEFT_KEY_FILE" : from);
    return s == WEFT_EBUSY ? WEFT_OK : s; /* a key from WEFT_KEY_FILE has precedence */
}

/* Set the context's key before its endpoint opens, if the launcher gave a secret. The node's
 * service serves only endpoints that open with a key: for it the ranks share a secret now, by one
 * more exchange. Otherwise the secret comes with the card of rank 0, after the endpoint has opened
 * (set_secret). */
static enum weft_status set_early_secret(struct weft_job *job, uint64_t deadline_ns)
{
    const bool is_given = job->launch.has_secret;
    enum weft_status s = WEFT_OK;
    if (!needs_network(job)) {
        explicit_bzero(job->launch.secret, WF_SECRET);
        return WEFT_OK;
    }
    if (!is_given && wf_ctx_wants_service())
        s = wf_launch_share_secret(&job->launch, deadline_ns);
    if (s || !job->launch.has_secret)
        return s;
    s = set_key(job, job->launch.secret, is_given ? "the launcher" : "rank 0");
    explicit_bzero(job->launch.secret, WF_SECRET);
    return s;
}

static enum weft_status draw_secret(struct weft_job *job, struct wf_card *card)
{
    if (!needs_network(job) || job->launch.has_secret || job->rank)
        return WEFT_OK;
    card->secret_len = WF_SECRET;
    return wf_card_draw_secret(card->secret);
}

/* Set the context's key to the secret of rank 0's card, if the context has none yet. */
static enum weft_status set_secret(struct weft_job *job, const struct wf_card *cards)
{
    if (!needs_network(job) || job->launch.has_secret)
        return WEFT_OK;
    if (cards[0].secret_len != WF_SECRET) {
        wf_error(
            "the card of rank 0 has no secret for ranks on several nodes, and the launcher gives "
            "none: give all ranks the same WEFT_NODE and WEFT_TRANSPORTS");
        return WEFT_EPROTO;
    }
    return set_key(job, cards[0].secret, "rank 0");
}

static void forget_secrets(struct wf_card *cards, unsigned n)
{
    for (unsigned r = 0; cards && r < n; r++)
        explicit_bzero(cards[r].secret, sizeof cards[r].secret);
}

/* ---- the endpoint ---- */

static enum weft_status open_endpoint(struct weft_job *job, const struct weft_job_params *p,
                                      struct wf_card *card, uint64_t deadline_ns)
{
    struct weft_ctx_params ctx_params = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    size_t room = sizeof card->addr;
    enum weft_status s;
    params.peer_down = wf_job_peer_down;
    params.arg = job;
    params.flags = p ? p->flags : 0;
    ctx_params.mr = p ? p->mr : NULL;
    ctx_params.flags = needs_network(job) ? WEFT_CTX_NETWORK : 0;
    s = weft_ctx_open(&ctx_params, &job->ctx);
    if (!s)
        s = set_early_secret(job, deadline_ns);
    if (!s)
        s = weft_ep_open(job->ctx, &params, &job->ep);
    if (!s)
        s = weft_ep_address(job->ep, card->addr, &room);
    card->addr_len = (uint16_t)room;
    if (!s && wf_ctx_uses(job->ctx, &wf_shm_transport))
        card->flags = WF_CARD_SHARES | (wf_config()->shm_map ? WF_CARD_MAPS : 0);
    return s;
}

/* ---- exchanging cards, and meeting ---- */

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
        s = wf_job_open_peers(job, cards);
    if (!s)
        s = find_nodes(job, members);
    if (!s)
        s = open_board(job, cards, deadline_ns);
    if (!s)
        count_cores(job, cards);
    return s;
}

static enum weft_status meet_all(struct weft_job *job, const struct wf_card *mine,
                                 struct wf_card *cards, uint64_t deadline_ns)
{
    struct wf_member *members = calloc(job->size, sizeof *members);
    enum weft_status s = members ? exchange(job, mine, cards, deadline_ns) : WEFT_ENOMEM;
    bool greeted;
    if (!s)
        s = use_cards(job, cards, members, deadline_ns);
    free(members);
    if (s)
        return s;
    wf_job_hold(job);
    greeted = !job->across || wf_across_greet(job, deadline_ns);
    /* Meet once, so that no rank can leave the job before all ranks have opened the board. */
    s = wf_job_meet(job, WF_CALL_BARRIER, deadline_ns);
    if (!s)
        s = wf_job_tune(job, deadline_ns);
    if (s == WEFT_ETIMEDOUT && greeted)
        wf_job_meeting_overdue(job);
    (void)wf_job_held(job, s);
    if (s)
        wf_error("rank %u: the job could not be opened: %s", job->rank, weft_status_text(s));
    return s;
}

enum weft_status wf_job_open_parts(struct weft_job *job, const struct weft_job_params *params)
{
    uint64_t deadline_ns = wf_now_ns() + wf_config()->job_timeout_ms * 1000000u;
    struct wf_card *mine = calloc(1, sizeof *mine), *cards = NULL;
    enum weft_status s = mine ? join(job, deadline_ns) : WEFT_ENOMEM;
    if (!s && !(cards = calloc(job->size, sizeof *cards)))
        s = WEFT_ENOMEM;
    if (!s)
        s = open_endpoint(job, params, mine, deadline_ns);
    /* Lock the endpoint, so that no progress thread polls it before its handlers are registered. */
    if (job->ep)
        wf_job_hold(job);
    if (!s)
        s = make_board(job, mine);
    if (!s)
        s = draw_secret(job, mine);
    if (!s) {
        wf_card_set_mask(mine);
        mine->boot = wf_boot_id();
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
