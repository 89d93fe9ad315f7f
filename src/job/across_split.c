/* SPDX-License-Identifier: BSD-3-Clause */
/* The split-phase barrier of a job on several nodes (across.h, "Votes"). */
#include "base/atomic.h"
#include "base/clock.h"
#include "core/core.h"
#include "core/ctl.h"
#include "job/job.h"

#define VOTE_ARGS 7
#define PAUSE_MIN_NS 20000
#define PAUSE_MAX_NS 500000
/* The longest wait between two looks at the launcher and the board while this rank greets. A wait
 * ends early when something arrives. A short wait ends before it sleeps, so with short waits all
 * greeting ranks yield all the time, and processes of other sessions may hardly get a processor:
 * among them the node's service, which moves the greetings. (Linux 6.18 with
 * kernel.sched_autogroup_enabled, weft run -n 8 by two services on the 2 processors of a virtual
 * machine, AMD EPYC: all threads of both services were runnable for 9 s, and did not run.) */
#define GREET_PAUSE_MAX_NS 10000000
#define FINISH_NS 1000000000u

/* How long after the arrival of all ranks of a node its helper (the second rank) begins to act.
 * From then on the helper also sends the node's vote, and the helper of the receiving node is sent
 * a copy. A barrier over loopback takes 20 to 40 us, so helpers seldom act if leaders do. */
#define HELP_NS 20000

/* ---- copies: which were sent ---- */

/* Returns the value of the word wf_board_copies for this barrier. Bit i of [copies] is set if copy
 * i was sent. The bits above hold the barrier's number. */
static uint64_t copies_of(const struct weft_job *job, uint64_t copies)
{
    return job->split.count << WF_ACROSS_COPIES | copies;
}

/* The vote of this node in round [k] goes to several ranks of another node, one copy to each. Has
 * the transport of any rank of this node sent copy number [copy] in this barrier? */
static bool is_sent(const struct weft_job *job, unsigned k, unsigned copy)
{
    uint64_t word = __atomic_load_n(wf_board_copies(&job->board, k), __ATOMIC_ACQUIRE);
    return (word ^ copies_of(job, 0)) >> WF_ACROSS_COPIES == 0 && word >> copy & 1;
}

/* Record that copy number [copy] was sent in round [k]. No rank of this node writes the word for
 * another barrier meanwhile. All ranks have arrived at this barrier, so no rank still sends for an
 * earlier barrier. This rank has not arrived at the next barrier, so no rank sends for the next
 * barrier yet. */
static void record_sent(const struct weft_job *job, unsigned k, unsigned copy)
{
    uint64_t *word = wf_board_copies(&job->board, k), old = __atomic_load_n(word, __ATOMIC_RELAXED);
    uint64_t new;
    do
        new = ((old ^ copies_of(job, 0)) >> WF_ACROSS_COPIES ? copies_of(job, 0) : old) |
              (uint64_t)1 << copy;
    while (!__atomic_compare_exchange_n(word, &old, new, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* ---- sending ---- */

/* Returns how many ranks of the node that receives in round [k] are sent a vote. */
static unsigned copies_in(const struct weft_job *job, unsigned k)
{
    unsigned there = wf_nodes_ranks(&job->nodes, wf_across_send_node(job, k));
    return job->across->leaders_only ? 1 : WF_MIN(there, WF_ACROSS_COPIES);
}

static struct weft_peer *receiver(const struct weft_job *job, unsigned k, unsigned copy)
{
    const struct wf_nodes *n = &job->nodes;
    return job->peers[n->order[n->first[wf_across_send_node(job, k)] + copy]];
}

/* Send [vote] to the rank with index [copy] of the node that receives in round [k], unless a rank
 * of this node has sent it already. A copy counts as sent only when the transport has sent it,
 * since this rank's next call of Weft may come much later. Until then the other rank that sends for
 * this node sends the copy, too. Returns OK (sent, or its receiver has left the job) | AGAIN | the
 * status of the receiver */
static enum weft_status send_copy(struct weft_job *job, unsigned k, unsigned copy, uint64_t vote)
{
    const uint32_t args[VOTE_ARGS] = {
        WF_ACROSS_VOTE,       k,           job->rank,  WF_LO(job->barriers),
        WF_HI(job->barriers), WF_LO(vote), WF_HI(vote)};
    struct wf_across_copy *c = &job->across->copies[k][copy];
    struct weft_peer *to = receiver(job, k, copy);
    if (is_sent(job, k, copy))
        return WEFT_OK;
    if (c->number != job->split.count) {
        enum weft_status s = wf_ctl_request(to, WF_CTL_JOB, args, VOTE_ARGS, NULL, 0, 0);
        if (s && !(s < 0 && job->across->left[wf_across_send_node(job, k)]))
            return s;
        *c = (struct wf_across_copy){.number = job->split.count};
    }
    if (!wf_ctl_is_away(to, &c->last))
        return WEFT_AGAIN;
    record_sent(job, k, copy);
    return WEFT_OK;
}

/* May this rank send for its node? */
static bool may_send(const struct weft_job *job, bool help)
{
    return job->across->leads || (help && !job->across->leaders_only && job->local_rank == 1);
}

/* ---- the barrier ---- */

static bool is_released(const struct weft_job *job)
{
    return __atomic_load_n(job->board.released, __ATOMIC_ACQUIRE) >= job->barriers; /* "arrive" */
}

/* Returns the word of the board for the verdict, the combined vote of all ranks. Even and odd
 * collectives use different words: a rank of this node may read the verdict of one collective while
 * the next one ends. */
static uint64_t *verdict_place(const struct weft_job *job)
{
    return job->board.released + 1 + (job->barriers & 1);
}

uint64_t wf_across_verdict(const struct weft_job *job)
{
    return __atomic_load_n(verdict_place(job), __ATOMIC_RELAXED);
}

/* End the barrier on this node: store the verdict and release the node's ranks. Both the leader and
 * the helper may do this, since they store the same values. After this call no rank sends votes for
 * this node. The leaders of receiving nodes may be computing, so this call also sends the votes to
 * the helpers of these nodes, if there is room. */
static void release(struct weft_job *job, const uint64_t *votes, uint64_t verdict)
{
    __atomic_store_n(verdict_place(job), verdict, __ATOMIC_RELAXED);
    __atomic_store_n(job->board.released, job->barriers, __ATOMIC_RELEASE); /* "arrive" */
    for (unsigned k = 0; k < job->across->rounds; k++)
        for (unsigned copy = 1; copy < copies_in(job, k); copy++)
            (void)send_copy(job, k, copy, votes[k]);
}

/* Have all ranks of this node notified? If so, *help is set to true if this rank first saw that at
 * least HELP_NS ago, otherwise to false. */
static bool all_here(struct weft_job *job, bool *help)
{
    struct wf_across *a = job->across;
    uint64_t now;
    if (__atomic_load_n(job->board.arrivals, __ATOMIC_ACQUIRE) < job->barriers * job->board.n)
        return false; /* "arrive" */
    now = wf_now_ns();
    if (!a->all_here_ns)
        a->all_here_ns = now;
    *help = now - a->all_here_ns >= HELP_NS;
    return true;
}

/* Send [vote] in round [k] to the leader of the receiving node, and to its helper if [help] is
 * true. Returns OK (the leader's copy was sent) | AGAIN | the status of the leader */
static enum weft_status send_round(struct weft_job *job, unsigned k, uint64_t vote, bool help)
{
    enum weft_status s = send_copy(job, k, 0, vote);
    for (unsigned copy = 1; help && copy < copies_in(job, k); copy++)
        (void)send_copy(job, k, copy, vote);
    return s;
}

/* Advance the barrier as far as possible without waiting. The state of the barrier is on the board,
 * so the leader and the helper can advance it in turns.
 * Returns OK (the barrier has ended on this node) | AGAIN | EPROTO | the status of the leader of
 * another node */
static enum weft_status push(struct weft_job *job)
{
    struct wf_across *a = job->across;
    uint64_t votes[WF_ACROSS_ROUNDS_MAX], vote;
    enum weft_status sent = WEFT_OK;
    bool help;
    if (is_released(job))
        return WEFT_OK;
    if (!all_here(job, &help))
        return WEFT_AGAIN;
    if (__atomic_load_n(wf_across_calls(job), __ATOMIC_RELAXED) != job->call)
        return WEFT_EPROTO; /* the rank whose call differs logs the mismatch */
    if (!may_send(job, help))
        return WEFT_AGAIN;
    vote = wf_split_vote(job);
    for (unsigned k = 0; k < a->rounds; k++) {
        enum weft_status s = send_round(job, k, vote, help);
        uint64_t got;
        if (s < 0 && a->leads)
            return s;
        sent = s ? WEFT_AGAIN : sent;
        got = __atomic_load_n(wf_board_votes(&job->board, k) + (job->split.count & 1),
                              __ATOMIC_ACQUIRE); /* "arrive" */
        if (!wf_split_same(got, vote))
            return wf_across_other_call(job) ? WEFT_EPROTO : WEFT_AGAIN;
        votes[k] = vote;
        vote = wf_split_combine(vote, got);
    }
    if (!sent)
        release(job, votes, vote);
    return sent;
}

/* Record that this rank has passed the barrier. */
static enum weft_status pass(struct weft_job *job)
{
    job->across->done = job->barriers;
    return WEFT_OK;
}

void wf_across_split_begin(struct weft_job *job)
{
    struct wf_across *a = job->across;
    a->begun = job->barriers;
    a->all_here_ns = 0;
    wf_across_arrive(job);
    (void)push(job); /* wf_across_split_try returns a failure */
}

enum weft_status wf_across_split_try(struct weft_job *job)
{
    enum weft_status s = push(job);
    if (!s)
        return pass(job);
    (void)weft_ep_poll(job->ep);
    s = push(job);
    /* The leader of another node has closed its endpoint or died. If that leader had passed this
     * barrier before, its report that it leaves is among the messages that this rank has not read.
     * After that report push() does not fail because of the leader. */
    if ((s == WEFT_ECLOSED || s == WEFT_EPEER) && !wf_across_poll_rest(job))
        s = push(job);
    if (s)
        s = s < 0 ? wf_across_fail(job, s) : wf_job_check(job);
    if (is_released(job)) /* a failure may have come after all ranks had arrived */
        return pass(job);
    return s ? s : WEFT_AGAIN;
}

/* Wait at most [at_most_ns] for the event that this rank needs next. Until all ranks of this node
 * have arrived, that is the last arrival. Then it is any event of the endpoint for the leader, and
 * the release for other ranks. Returns true if the event came. */
static bool wait_once(struct weft_job *job, int64_t at_most_ns)
{
    const struct wf_board *b = &job->board;
    uint64_t all = job->barriers * b->n;
    if (__atomic_load_n(b->arrivals, __ATOMIC_RELAXED) < all)
        return !weft_word_wait(job->ep, b->arrivals, all, NULL, at_most_ns);
    if (!job->across->leads)
        return !weft_word_wait(job->ep, b->released, job->barriers, NULL, at_most_ns);
    return weft_ep_wait(job->ep, at_most_ns) > 0;
}

enum weft_status wf_across_split_wait(struct weft_job *job, uint64_t deadline_ns)
{
    int64_t pause_ns = PAUSE_MIN_NS;
    for (;;) {
        enum weft_status s = wf_across_split_try(job);
        bool came;
        if (s != WEFT_AGAIN)
            return s;
        if (deadline_ns && wf_now_ns() > deadline_ns)
            return WEFT_ETIMEDOUT;
        /* Unlock while waiting: other ranks may wait for a call that another thread of this process
         * makes. */
        (void)wf_job_held(job, WEFT_OK);
        came = wait_once(job, pause_ns);
        wf_job_hold(job);
        pause_ns = came ? PAUSE_MIN_NS : WF_MIN(2 * pause_ns, PAUSE_MAX_NS);
    }
}

void wf_across_split_finish(struct weft_job *job)
{
    if (job->across->leads && !job->broken)
        (void)wf_across_split_wait(job, wf_now_ns() + FINISH_NS);
}

bool wf_across_is_through(const struct weft_job *job)
{
    return !job->across || !job->across->leads || is_released(job);
}

/* ---- receiving ---- */

/* Store [vote] in [word]. Does nothing if [word] already holds [vote] or a vote of a later barrier:
 * copies of one vote come to several ranks of the node at any time, even after the barrier. Returns
 * false if [word] holds a different vote of the same barrier. */
static bool store_vote(uint64_t *word, uint64_t vote)
{
    uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
    do {
        if (wf_split_same(old, vote))
            return old == vote;
        if (wf_split_ahead(vote, old) < 0)
            return true;
    } while (!__atomic_compare_exchange_n(word, &old, vote, true, __ATOMIC_RELEASE, /* "arrive" */
                                          __ATOMIC_RELAXED));
    return true;
}

bool wf_across_on_vote(struct weft_job *job, const struct weft_am *am)
{
    struct wf_across *a = job->across;
    const struct wf_nodes *n = &job->nodes;
    uint32_t round, rank;
    uint64_t number, vote, half;
    if (am->nargs != VOTE_ARGS || am->len)
        return false;
    round = am->args[1];
    rank = am->args[2];
    number = wf_word64(am->args + 3);
    vote = wf_word64(am->args + 5);
    if (round >= a->rounds || rank >= n->size || n->place[rank] >= WF_ACROSS_COPIES ||
        n->of[rank] != wf_across_recv_node(job, round) || !wf_across_is_from(am, job->peers[rank]))
        return false;
    /* A sender in collective [number] shows that all ranks have begun [number] - 1 (across.h). */
    if (number > job->barriers + 1 || wf_split_ahead(vote, job->split.mine) > 1 ||
        !wf_split_is_vote(vote))
        return false;
    half = number & 1;
    if (number > a->voted[round][half])
        a->voted[round][half] = number;
    half = wf_split_half(vote);
    return wf_split_ahead(vote, job->split.mine) < -1 ||
           store_vote(wf_board_votes(&job->board, round) + half, vote);
}

/* ---- connections ---- */

/* Returns how many greetings were not taken yet. *rank is the receiver of the first of these. */
static unsigned greetings_left(const struct weft_job *job, unsigned *rank)
{
    const struct wf_nodes *n = &job->nodes;
    unsigned left = 0;
    for (unsigned k = 0; k < job->across->rounds; k++)
        for (unsigned copy = 0; copy < copies_in(job, k); copy++) {
            struct wf_order last = {0, 0};
            if (!wf_ctl_is_away(receiver(job, k, copy), &last) && !left++)
                *rank = n->order[n->first[wf_across_send_node(job, k)] + copy];
        }
    return left;
}

bool wf_across_greet(struct weft_job *job, uint64_t deadline_ns)
{
    const uint32_t kind = WF_ACROSS_GREETING;
    unsigned left = !(job->across->leaders_only || job->local_rank > 1), rank = job->rank;
    int64_t pause_ns = PAUSE_MIN_NS;
    for (unsigned k = 0; left && k < job->across->rounds; k++)
        for (unsigned copy = 0; copy < copies_in(job, k); copy++)
            (void)wf_ctl_request(receiver(job, k, copy), WF_CTL_JOB, &kind, 1, NULL, 0, 0);
    while (left && !wf_job_check(job)) {
        bool came;
        left = greetings_left(job, &rank);
        if (left && wf_now_ns() >= deadline_ns) {
            wf_job_greeting_overdue(job, rank, left - 1);
            return false;
        }
        (void)wf_job_held(job, WEFT_OK);
        came = left && weft_ep_wait(job->ep, pause_ns) > 0;
        wf_job_hold(job);
        pause_ns = came ? PAUSE_MIN_NS : WF_MIN(2 * pause_ns, GREET_PAUSE_MAX_NS);
    }
    return true;
}
