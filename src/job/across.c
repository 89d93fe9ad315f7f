/* SPDX-License-Identifier: BSD-3-Clause */
#include "job/across.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "core/core.h"
#include "core/ctl.h"
#include "job/job.h"

#define STEP_ARGS 9
/* The largest number of polls in wf_across_poll_rest. Another node can have sent fewer messages
 * that this rank has not read yet: one for each round, and one for each report of trouble. */
#define LAST_POLLS 64
#define LOOK_MIN_NS 100000
#define LOOK_MAX_NS 10000000

/* ---- nodes and rounds ---- */

static unsigned node_after(const struct weft_job *job, uint64_t steps)
{
    return (unsigned)((job->nodes.me + steps) % job->nodes.count);
}

unsigned wf_across_send_node(const struct weft_job *job, unsigned k)
{
    return node_after(job, job->nodes.count - ((uint64_t)1 << k));
}

unsigned wf_across_recv_node(const struct weft_job *job, unsigned k)
{
    return node_after(job, (uint64_t)1 << k);
}

struct weft_peer *wf_across_leader(const struct weft_job *job, unsigned node)
{
    return job->peers[wf_nodes_leader(&job->nodes, node)];
}

/* In round [k] node [from] sends the bytes of several nodes. Returns how many ranks these nodes
 * have. */
static unsigned round_ranks(const struct weft_job *job, unsigned from, unsigned k)
{
    const struct wf_nodes *n = &job->nodes;
    unsigned step = 1u << k, rest = n->count - step, nodes = step < rest ? step : rest;
    unsigned end = from + nodes;
    if (end <= n->count)
        return n->first[end] - n->first[from];
    return n->size - n->first[from] + n->first[end - n->count];
}

bool wf_across_is_from(const struct weft_am *am, struct weft_peer *peer)
{
    const struct wf_token *token = am->token;
    struct wf_contact contact = {0};
    struct wf_address from, want;
    token->tep->transport->source(token, &from, &contact);
    peer->transport->address(wf_peer_tpeer(peer), &want);
    return !memcmp(&from, &want, sizeof want);
}

/* ---- bytes of ranks ---- */

/* Copy [n] bytes of the ranks' outboxes of collective [number]. An outbox, in the memory that the
 * ranks of a node share, holds the [len] bytes that one rank contributes. Position [at] counts
 * these bytes from the first rank of node [from] on, rank after rank. If [in] is NULL, copy from
 * the outboxes to [out]. Otherwise copy from [in] into the outboxes. */
static void copy_given(struct weft_job *job, uint64_t number, unsigned from, size_t len,
                       uint64_t at, unsigned char *out, const unsigned char *in, size_t n)
{
    const struct wf_nodes *nodes = &job->nodes;
    while (n) {
        uint64_t entry = nodes->first[from] + at / len;
        unsigned rank = nodes->order[entry % nodes->size];
        size_t offset = at % len, part = len - offset < n ? len - offset : n;
        unsigned char *box = wf_board_outbox(&job->board, rank, number & 1, len) + offset;
        if (in) {
            memcpy(box, in, part);
            in += part;
        } else {
            memcpy(out, box, part);
            out += part;
        }
        at += part;
        n -= part;
    }
}

/* ---- the leader's part ---- */

bool wf_across_is_flushed(struct weft_job *job, unsigned k)
{
    return wf_ctl_is_away(wf_across_leader(job, wf_across_send_node(job, k)),
                          &job->across->last[k]);
}

/* Has the kernel taken this rank's messages of all rounds? A leader checks this before it ends a
 * collective: the next call of Weft by the leader may come much later, and other nodes need the
 * messages meanwhile. */
static bool all_flushed(struct weft_job *job)
{
    for (unsigned k = 0; k < job->across->rounds; k++)
        if (!wf_across_is_flushed(job, k))
            return false;
    return true;
}

/* Send the messages of the current round of the collective, as many as there is room for.
 * Returns OK (all are sent) | AGAIN (no room: call again) | the status of the receiving peer */
static enum weft_status send_round(struct weft_job *job)
{
    struct wf_across *a = job->across;
    struct weft_peer *to = wf_across_leader(job, wf_across_send_node(job, a->round));
    uint64_t total = (uint64_t)round_ranks(job, job->nodes.me, a->round) * a->len;
    do {
        const uint32_t args[STEP_ARGS] = {WF_ACROSS_STEP,  a->round,       WF_LO(a->begun),
                                          WF_HI(a->begun), WF_LO(a->call), WF_HI(a->call),
                                          a->len,          WF_LO(a->at),   WF_HI(a->at)};
        uint64_t left = total - a->at;
        size_t n = left < job->ep->am_max ? (size_t)left : job->ep->am_max;
        enum weft_status s;
        if (n)
            copy_given(job, a->begun, job->nodes.me, a->len, a->at, a->scratch, NULL, n);
        s = wf_ctl_request(to, WF_CTL_JOB, args, STEP_ARGS, a->scratch, n, 0);
        if (s)
            return s;
        a->at += n;
    } while (a->at < total);
    a->sent = true;
    /* This call stores in a->last which message was the last of the round. */
    (void)wf_across_is_flushed(job, a->round);
    return WEFT_OK;
}

/* Log that rank [rank] makes the call [call] while this rank makes a different call. */
static void log_mismatch(const struct weft_job *job, unsigned rank, uint64_t call)
{
    char mine[WF_CALL_NAME], theirs[WF_CALL_NAME];
    if (job->broken == WEFT_EPROTO)
        return;
    wf_call_name(job->call, mine);
    wf_call_name(call, theirs);
    wf_error("rank %u is in %s, and rank %u in %s: all ranks must make the same calls in the same "
             "order",
             job->rank, mine, rank, theirs);
}

bool wf_across_other_call(const struct weft_job *job)
{
    const struct wf_across *a = job->across;
    unsigned half = job->barriers & 1;
    for (unsigned k = 0; a->leads && k < a->rounds; k++) {
        const struct wf_across_slot *slot = &a->slots[k][half];
        bool votes = a->voted[k][half] == job->barriers, steps = slot->number == job->barriers;
        if (job->notified ? !steps : !votes)
            continue;
        log_mismatch(job, wf_nodes_leader(&job->nodes, wf_across_recv_node(job, k)),
                     votes ? wf_call_of(WF_CALL_SPLIT, 0) : slot->call);
        return true;
    }
    return false;
}

/* Compare the call that was received in this round with this rank's call. Then begin the next
 * round. Returns OK | EPROTO (the calls differ) */
static enum weft_status take_round(struct weft_job *job, const struct wf_across_slot *slot)
{
    struct wf_across *a = job->across;
    if (slot->len != a->len || slot->call != a->call) {
        log_mismatch(job, wf_nodes_leader(&job->nodes, wf_across_recv_node(job, a->round)),
                     slot->call);
        job->broken = WEFT_EPROTO;
        return WEFT_EPROTO;
    }
    a->round++;
    a->sent = false;
    a->at = 0;
    return WEFT_OK;
}

static void begin(struct weft_job *job)
{
    struct wf_across *a = job->across;
    a->begun = job->barriers;
    a->call = job->call & WF_CALL_MISMATCH;
    a->round = 0;
    a->sent = false;
    a->at = 0;
    memset(a->last, 0, a->rounds * sizeof *a->last);
}

uint64_t *wf_across_calls(const struct weft_job *job)
{
    return job->board.arrivals + 1 + (job->barriers & 1);
}

static void release(struct weft_job *job)
{
    struct wf_across *a = job->across;
    a->done = a->begun;
    __atomic_store_n(job->board.released, a->done, __ATOMIC_RELEASE); /* "arrive" */
}

/* Advance the collective that is under way between the nodes, as far as possible without waiting.
 *   away  if true, end the collective only when the kernel has taken all messages
 * Returns OK (the collective has ended) | AGAIN | EPROTO | the status of the peer to which a
 * message could not be sent: the leader of another node */
static enum weft_status push(struct weft_job *job, bool away)
{
    struct wf_across *a = job->across;
    uint64_t all = job->barriers * job->board.n;
    if (a->done == job->barriers)
        return WEFT_OK;
    if (__atomic_load_n(job->board.arrivals, __ATOMIC_ACQUIRE) < all) /* "arrive" */
        return WEFT_AGAIN;
    if (__atomic_load_n(wf_across_calls(job), __ATOMIC_RELAXED) != job->call)
        return WEFT_EPROTO; /* the rank whose call differs logs the mismatch */
    if (a->begun < job->barriers)
        begin(job);
    while (a->round < a->rounds) {
        const struct wf_across_slot *slot = &a->slots[a->round][a->begun & 1];
        enum weft_status s = a->sent ? WEFT_OK : send_round(job);
        if (!s && !(slot->complete && slot->number == a->begun))
            s = wf_across_other_call(job) ? WEFT_EPROTO : WEFT_AGAIN;
        if (!s)
            s = take_round(job, slot);
        if (s)
            return s;
    }
    if (away && !all_flushed(job))
        return WEFT_AGAIN;
    release(job);
    return WEFT_OK;
}

enum weft_status wf_across_poll_rest(struct weft_job *job)
{
    for (unsigned i = 0; i < LAST_POLLS && weft_ep_poll(job->ep) > 0; i++)
        ;
    return wf_job_check(job);
}

enum weft_status wf_across_fail(struct weft_job *job, enum weft_status s)
{
    enum weft_status why = WEFT_OK;
    if (s == WEFT_ECLOSED || s == WEFT_EPEER)
        why = wf_across_poll_rest(job);
    if (!job->broken)
        job->broken = why ? why : s;
    return wf_across_check(job, job->broken);
}

/* Advance the collective. If it fails, mark the job as broken and report the failure to the other
 * nodes. */
static enum weft_status drive(struct weft_job *job)
{
    enum weft_status s = push(job, true);
    return s < 0 ? wf_across_fail(job, s) : s;
}

static enum weft_status drive_until_done(struct weft_job *job, uint64_t deadline_ns)
{
    int64_t look_ns = LOOK_MIN_NS;
    for (;;) {
        enum weft_status s = drive(job);
        int events;
        if (s != WEFT_AGAIN)
            return s;
        s = wf_job_check(job);
        if (!s && deadline_ns && wf_now_ns() > deadline_ns)
            s = WEFT_ETIMEDOUT;
        if (s) /* the failure may have come after all ranks had arrived */
            return push(job, false) == WEFT_OK ? WEFT_OK : s;
        /* Unlock while waiting: other ranks may wait for a call that another thread of this process
         * makes. */
        (void)wf_job_held(job, WEFT_OK);
        events = weft_ep_wait(job->ep, look_ns);
        wf_job_hold(job);
        look_ns = events ? LOOK_MIN_NS : look_ns < LOOK_MAX_NS ? 2 * look_ns : look_ns;
    }
}

/* ---- of every rank ---- */

void wf_across_arrive(struct weft_job *job)
{
    (void)wf_job_show_call(job, wf_across_calls(job));
    /* Pair "arrive" (board.h). The increment is both an acquire and a release. So a rank that sees
     * the last arrival sees what all ranks did before they arrived. */
    __atomic_fetch_add(job->board.arrivals, 1, __ATOMIC_ACQ_REL);
}

enum weft_status wf_across_wait(struct weft_job *job, uint64_t deadline_ns)
{
    const struct wf_board *b = &job->board;
    enum weft_status s;
    if (!job->across->leads)
        return wf_job_await(job, b->released, job->barriers, deadline_ns);
    s = wf_job_await(job, b->arrivals, job->barriers * b->n, deadline_ns);
    return s ? s : drive_until_done(job, deadline_ns);
}

/* ---- receiving ---- */

/* [am] breaks the protocol, so end all collectives of the job with EPROTO. Only the first such
 * message is logged. */
static void reject(struct weft_job *job, const struct weft_am *am)
{
    if (job->broken == WEFT_EPROTO) {
        wf_ep_count(am->ep, WF_STAT_BAD_MESSAGES, 1);
        return;
    }
    wf_ctl_bad(am);
    job->broken = WEFT_EPROTO;
}

/* Returns the slot in which the messages of round [round] of collective [number] are collected.
 * Returns NULL if the message breaks the protocol. The first message of a round resets the slot. */
static struct wf_across_slot *slot_for(struct wf_across *a, unsigned round, uint64_t number,
                                       uint64_t call, uint32_t len)
{
    struct wf_across_slot *slot;
    if (number <= a->done || number > a->begun + 1 || len > WEFT_JOB_ALLGATHER_MAX)
        return NULL;
    slot = &a->slots[round][number & 1];
    if (slot->number != number)
        *slot = (struct wf_across_slot){.number = number, .call = call, .len = len};
    return slot->complete || slot->call != call || slot->len != len ? NULL : slot;
}

/* Returns false if the message breaks the protocol. */
static bool on_step(struct weft_job *job, const struct weft_am *am)
{
    unsigned round = am->args[1];
    uint64_t number = wf_word64(am->args + 2), at = wf_word64(am->args + 7), total;
    struct wf_across_slot *slot = NULL;
    unsigned from;
    if (round < job->across->rounds &&
        wf_across_is_from(am, wf_across_leader(job, wf_across_recv_node(job, round))))
        slot = slot_for(job->across, round, number, wf_word64(am->args + 4), am->args[6]);
    if (!slot)
        return false;
    from = wf_across_recv_node(job, round);
    total = (uint64_t)round_ranks(job, from, round) * slot->len;
    if (at != slot->got || am->len > total - at || (total && !am->len))
        return false;
    if (am->len)
        copy_given(job, number, from, slot->len, at, NULL, am->data, am->len);
    slot->got += am->len;
    slot->complete = slot->got == total;
    return true;
}

static void on_message(const struct weft_am *am)
{
    struct weft_job *job = am->arg;
    uint32_t kind = am->nargs ? am->args[0] : 0;
    bool leads = job->across->leads, ok = false;
    if (kind == WF_ACROSS_VOTE)
        ok = wf_across_on_vote(job, am);
    else if (kind == WF_ACROSS_GREETING)
        ok = am->nargs == 1 && !am->len;
    else if (leads && kind == WF_ACROSS_STEP && am->nargs == STEP_ARGS)
        ok = on_step(job, am);
    else if (leads && kind == WF_ACROSS_TROUBLE)
        ok = wf_across_on_trouble(job, am);
    if (!ok)
        reject(job, am);
}

/* Ignore a copy of a vote: it may arrive after this rank has left the job. Ignore also a greeting:
 * it may arrive after this rank failed to open the job. */
static void on_late_message(const struct weft_am *am)
{
    if (!am->nargs || (am->args[0] != WF_ACROSS_VOTE && am->args[0] != WF_ACROSS_GREETING))
        wf_ctl_bad(am);
}

/* ---- open, close ---- */

/* Collect the nodes that this node sends to or receives from in any round, each node once. */
static void find_neighbours(const struct weft_job *job, struct wf_across *a)
{
    for (unsigned i = 0; i < 2 * a->rounds; i++) {
        unsigned node = i & 1 ? wf_across_send_node(job, i / 2) : wf_across_recv_node(job, i / 2),
                 seen = 0;
        while (seen < a->neighbour_count && a->neighbours[seen] != node)
            seen++;
        if (seen == a->neighbour_count)
            a->neighbours[a->neighbour_count++] = node;
    }
}

enum weft_status wf_across_open(struct weft_job *job)
{
    struct wf_across *a = calloc(1, sizeof *a);
    if (!a)
        return WEFT_ENOMEM;
    job->across = a;
    a->leaders_only = wf_config()->barrier;
    a->leads = wf_nodes_leader(&job->nodes, job->nodes.me) == job->rank;
    while (a->rounds < WF_ACROSS_ROUNDS_MAX - 1 && 1u << a->rounds < job->nodes.count)
        a->rounds++;
    a->slots = calloc(a->rounds, sizeof *a->slots);
    a->last = calloc(a->rounds, sizeof *a->last);
    a->voted = calloc(a->rounds, sizeof *a->voted);
    a->copies = calloc(a->rounds, sizeof *a->copies);
    a->scratch = malloc(job->ep->am_max);
    a->neighbours = calloc(2 * (size_t)a->rounds, sizeof *a->neighbours);
    a->unreported = calloc(2 * (size_t)a->rounds, sizeof *a->unreported);
    a->left = calloc(job->nodes.count, sizeof *a->left);
    if (!a->slots || !a->last || !a->voted || !a->copies || !a->scratch || !a->neighbours ||
        !a->unreported || !a->left)
        return WEFT_ENOMEM;
    find_neighbours(job, a);
    job->ep->handlers[WF_CTL_JOB] = (struct handler){on_message, job};
    return WEFT_OK;
}

void wf_across_close(struct weft_job *job)
{
    struct wf_across *a = job->across;
    if (!a)
        return;
    job->ep->handlers[WF_CTL_JOB] = (struct handler){on_late_message, NULL};
    free(a->slots);
    free(a->last);
    free(a->voted);
    free(a->copies);
    free(a->scratch);
    free(a->neighbours);
    free(a->unreported);
    free(a->left);
    free(a);
    job->across = NULL;
}
