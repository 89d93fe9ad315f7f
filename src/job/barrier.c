/* SPDX-License-Identifier: BSD-3-Clause */
/* The barrier of a job on one node, and how its ranks wait. A barrier on several nodes: across.h.
 *
 * If every rank has a core, the ranks disseminate. In each round a rank makes one 8-byte store into
 * its partner's cache line and spins on a line of its own. Two ranks need one round, in which both
 * lines are transferred at the same time. No exchange through memory is shorter.
 *
 * If there are more ranks than cores, the ranks count their arrivals in one counter, and a waiting
 * rank yields its core. Dissemination would cost every rank a turn on a core in every round.
 * (Measured with 16 ranks on 2 cores: 12 us if waiting ranks yield at once, 35 us if they spin
 * first.) All ranks read the counter itself, so the last arrival releases all of them. */
#include <sched.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "job/job.h"

/* How often wait_spinning loads the word before it calls wait_long; takes about 20 us. */
#define SPINS 8192
/* How often wait_yielding yields before it calls wait_long; about 100 us if other processes run. */
#define YIELDS 256
#define YIELDS_PER_POLL 4
#define YIELDS_NS 500000
#define SPINS_PER_POLL 512
/* weft_job_barrier polls once in this many barriers, so a rank that never waits polls, too. */
#define BARRIERS_PER_POLL 16
#define LOOK_MIN_NS 100000
#define LOOK_MAX_NS 10000000

static inline bool is_there(const uint64_t *word, uint64_t at_least)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= at_least; /* "arrive" */
}

/* Break the job if the launcher reports the failure of a rank that had not left the job. Of the
 * ranks on other nodes, this rank considers only those with which it exchanges messages of
 * collectives. The failure of any other rank is found by the ranks on that rank's node. */
static void check_launcher(struct weft_job *job)
{
    unsigned now = wf_launch_failures(&job->launch);
    bool unsure = false;
    if (now == job->failures_seen)
        return;
    for (unsigned r = 0; r < job->size; r++) {
        bool mine = wf_nodes_is_mine(&job->nodes, r);
        if (!wf_launch_failed(&job->launch, r) || wf_job_left(job, r) ||
            (!mine && !wf_across_needs(job, r)))
            continue;
        if (mine || wf_across_is_dead(job))
            job->broken = WEFT_EPEER;
        else
            unsure = true;
    }
    if (unsure)
        return;
    job->failures_seen = now;
    if (job->across)
        job->across->far_failed_ns = 0; /* the next failure gets a full delay */
}

/* ---- do all make the same call? ---- */

/* Log that another rank of this node made the call [other], and this rank a different call of the
 * same number. If [other] has WF_CALL_MISMATCH instead of a call, log nothing: the rank that wrote
 * WF_CALL_MISMATCH has logged the difference. */
static void log_mismatch(const struct weft_job *job, uint64_t other)
{
    char mine[WF_CALL_NAME], theirs[WF_CALL_NAME];
    if (job->broken || wf_call_is_mismatch(other))
        return;
    wf_call_name(job->call, mine);
    wf_call_name(other, theirs);
    wf_error("rank %u is in %s, and another rank of its node in %s: all ranks must make the same "
             "calls in the same order",
             job->rank, mine, theirs);
}

enum weft_status wf_job_show_call(struct weft_job *job, uint64_t *place)
{
    uint64_t old, new = wf_call_add(place, job->call, &old);
    if (wf_call_number(new) != wf_call_number(job->call) || !wf_call_is_mismatch(new))
        return WEFT_OK;
    if (old != new)
        log_mismatch(job, old);
    return WEFT_EPROTO;
}

/* Called when all ranks have arrived, and this rank knows that their calls differ. Writes the
 * mismatch to the board, the memory that the node's ranks share, where waiting ranks read it
 * (wf_job_check). */
static enum weft_status mismatched(struct weft_job *job)
{
    uint64_t old;
    (void)wf_call_add(job->board.waits, job->call | WF_CALL_MISMATCH, &old);
    return WEFT_EPROTO;
}

/* Look for what ends the barrier under way early. Ranks in different kinds of calls wait for
 * different words in shared memory, and would wait forever. Therefore a rank that waits long
 * compares its call with the calls of other waiting ranks. */
enum weft_status wf_job_check(struct weft_job *job)
{
    enum weft_status s;
    check_launcher(job);
    s = job->broken ? job->broken : wf_job_show_call(job, job->board.waits);
    if (!s)
        s = wf_board_missing(&job->board, job->barriers);
    return job->across ? wf_across_check(job, s) : s;
}

/* Wait for [word] when a short wait was not enough, or when messages arrive. weft_word_wait polls
 * the endpoint and may sleep. Between waits, look whether the barrier must end early: at once, and
 * then at intervals that double up to about LOOK_MAX_NS. */
static enum weft_status wait_long(struct weft_job *job, const uint64_t *word, uint64_t at_least,
                                  uint64_t deadline_ns)
{
    int64_t look_ns = LOOK_MIN_NS;
    for (;;) {
        enum weft_status s = wf_job_check(job);
        if (s) /* the failure may have come after all ranks had arrived */
            return is_there(word, at_least) ? WEFT_OK : s;
        if (deadline_ns && wf_now_ns() > deadline_ns)
            return WEFT_ETIMEDOUT;
        /* Unlock while waiting: other ranks may wait for a call that another thread of this process
         * makes. */
        (void)wf_job_held(job, WEFT_OK);
        s = weft_word_wait(job->ep, word, at_least, NULL, look_ns);
        wf_job_hold(job);
        if (s != WEFT_ETIMEDOUT)
            return s;
        if (look_ns < LOOK_MAX_NS)
            look_ns *= 2;
    }
}

/* wait_spinning and wait_yielding are inlined: a call would lengthen each rank's turn on a core by
 * 40 ns (measured with 16 ranks on 2 cores: 18.1 us per barrier with calls, 17.5 us without).
 *
 * Both functions poll so rarely that polls do not slow a barrier down. If a poll handled an event,
 * more events may follow. Then wait_long takes over, which polls all the time and also finds
 * failures. */
WEFT_INLINE enum weft_status wait_spinning(struct weft_job *job, const uint64_t *word,
                                           uint64_t at_least, uint64_t deadline_ns)
{
    for (unsigned i = 1; i <= SPINS; i++) {
        if (is_there(word, at_least))
            return WEFT_OK;
        if (i % SPINS_PER_POLL == 0 && weft_ep_poll(job->ep))
            break;
    }
    return wait_long(job, word, at_least, deadline_ns);
}

WEFT_INLINE enum weft_status wait_yielding(struct weft_job *job, const uint64_t *word,
                                           uint64_t at_least, uint64_t deadline_ns)
{
    uint64_t start = wf_now_ns();
    for (unsigned i = 1; i <= YIELDS; i++) {
        if (is_there(word, at_least))
            return WEFT_OK;
        sched_yield();
        if (i % YIELDS_PER_POLL)
            continue;
        /* If a yield runs a process that computes, that process keeps the core for its whole time
         * slice: milliseconds. So stop yielding when that has happened. */
        if (weft_ep_poll(job->ep) || job->broken || wf_now_ns() - start > YIELDS_NS)
            break;
    }
    return wait_long(job, word, at_least, deadline_ns);
}

enum weft_status wf_job_await(struct weft_job *job, const uint64_t *word, uint64_t at_least,
                              uint64_t deadline_ns)
{
    return job->crowded ? wait_yielding(job, word, at_least, deadline_ns)
                        : wait_spinning(job, word, at_least, deadline_ns);
}

/* In each round a rank stores its call in the flag of another rank. It stores a mismatch instead if
 * it received a different call in an earlier round. So each round forwards what the rank received
 * in earlier rounds. After the last round every rank knows whether all calls were equal, and all
 * ranks end with the same status. */
static enum weft_status disseminate(struct weft_job *job, uint64_t deadline_ns)
{
    const struct wf_board *b = &job->board;
    const unsigned half = (unsigned)job->barriers & 1;
    uint64_t call = job->call;
    enum weft_status s = WEFT_OK;
    for (unsigned k = 0, to = b->me; !s && k < b->rounds; k++) {
        const uint64_t *mine = wf_board_flag(b, b->me, k) + half;
        uint64_t got;
        to = b->me + (1u << k);
        to -= to >= b->n ? b->n : 0;
        __atomic_store_n(wf_board_flag(b, to, k) + half, call, __ATOMIC_RELEASE); /* "arrive" */
        s = wait_spinning(job, mine, job->barriers << WF_CALL_BITS, deadline_ns);
        got = __atomic_load_n(mine, __ATOMIC_RELAXED);
        if (WEFT_UNLIKELY(!s && got != call)) {
            log_mismatch(job, got);
            call |= WF_CALL_MISMATCH;
        }
    }
    return WEFT_UNLIKELY(!s && call != job->call) ? mismatched(job) : s;
}

static enum weft_status count(struct weft_job *job, uint64_t deadline_ns)
{
    const struct wf_board *b = &job->board;
    uint64_t all =
        /* The counter b->arrivals does not count split-phase barriers, which use b->notices. */

        (job->barriers - job->split.count) * b->n;
    uint64_t *calls = b->arrivals + 1 + (job->barriers & 1), before;
    enum weft_status s = WEFT_OK;
    (void)wf_job_show_call(job, calls);
    /* Pair "arrive" (board.h). The increment is both an acquire and a release. So a rank that sees
     * the last arrival sees what all ranks did before they arrived. */
    before = __atomic_fetch_add(b->arrivals, 1, __ATOMIC_ACQ_REL);
    if (before + 1 < all)
        s = wait_yielding(job, b->arrivals, all, deadline_ns);
    if (s || __atomic_load_n(calls, __ATOMIC_RELAXED) == job->call)
        return s;
    return mismatched(job);
}

static enum weft_status meet_across(struct weft_job *job, uint64_t deadline_ns)
{
    wf_across_arrive(job);
    return wf_across_wait(job, deadline_ns);
}

enum weft_status wf_job_give_up(struct weft_job *job, enum weft_status why)
{
    if (why == WEFT_EFORKED) /* this is a child, and the rank lives on */
        return why;
    if (!job->broken)
        job->broken = why;
    if (job->across)
        (void)wf_across_check(job, job->broken);
    return why;
}

/* Inlined into weft_job_barrier: all instructions between two arrivals lengthen a barrier. */
WEFT_INLINE enum weft_status meet(struct weft_job *job, uint32_t call, uint64_t deadline_ns)
{
    enum weft_status s;
    if (WEFT_UNLIKELY(job->broken))
        return wf_job_give_up(job, job->broken);
    job->barriers++;
    job->call = job->barriers << WF_CALL_BITS | call;
    if (job->meet == WF_MEET_DISSEMINATE)
        s = disseminate(job, deadline_ns);
    else if (job->meet == WF_MEET_COUNT)
        s = count(job, deadline_ns);
    else
        s = meet_across(job, deadline_ns);
    if (WEFT_UNLIKELY(s))
        return wf_job_give_up(job, s);
    job->passed = job->barriers;
    return WEFT_OK;
}

enum weft_status wf_job_meet(struct weft_job *job, uint32_t call, uint64_t deadline_ns)
{
    return meet(job, call, deadline_ns);
}

/* ---- which lines ---- */

/* Two cores take 130 to 220 ns to exchange a cache line. The time depends on the line's address:
 * the address selects the slice of the last-level cache that holds the line, and slices are at
 * different distances. (Measured on two cores of a Sapphire Rapids: through pairs of lines of one
 * page an exchange takes either 150 or 220 ns.) Therefore the ranks time each set of flags when the
 * job opens, about 10 us per set, and then use the fastest set. */
#define TUNE_TIMES (16 * sizeof(uint32_t)) /* bytes; one time per set */
#define TUNE_BATCHES 6
#define TUNE_BATCH 8

/* Set *best to the time of the fastest batch of TUNE_BATCH barriers, in nanoseconds. */
static enum weft_status try_set(struct weft_job *job, uint64_t deadline_ns, uint32_t *best)
{
    enum weft_status s = WEFT_OK;
    *best = UINT32_MAX;
    for (unsigned batch = 0; !s && batch < TUNE_BATCHES; batch++) {
        uint64_t start = wf_now_ns(), took;
        for (unsigned i = 0; !s && i < TUNE_BATCH; i++)
            s = wf_job_meet(job, WF_CALL_BARRIER, deadline_ns);
        took = wf_now_ns() - start;
        if (took < *best)
            *best = (uint32_t)took;
    }
    return s;
}

/* Returns the set of flags with which the slowest rank took the least time. All ranks compare the
 * same times, so all of them choose the same set. */
static unsigned choose_set(const struct wf_board *b)
{
    uint32_t least = UINT32_MAX;
    unsigned chosen = 0;
    for (unsigned set = 0; set < b->sets; set++) {
        uint32_t worst = 0;
        for (unsigned r = 0; r < b->n; r++) {
            uint32_t took =
                ((const uint32_t *)(const void *)wf_board_outbox(b, r, 0, TUNE_TIMES))[set];
            worst = took > worst ? took : worst;
        }
        if (worst < least) {
            least = worst;
            chosen = set;
        }
    }
    return chosen;
}

enum weft_status wf_job_tune(struct weft_job *job, uint64_t deadline_ns)
{
    struct wf_board *b = &job->board;
    uint32_t *mine = (uint32_t *)(void *)wf_board_outbox(b, b->me, 0, TUNE_TIMES);
    enum weft_status s = WEFT_OK;
    if (job->meet != WF_MEET_DISSEMINATE || b->n < 2)
        return WEFT_OK;
    for (unsigned set = 0; !s && set < b->sets; set++) {
        wf_board_use(b, set);
        s = try_set(job, deadline_ns, &mine[set]);
    }
    if (!s)
        s = wf_job_meet(job, WF_CALL_BARRIER, deadline_ns);
    if (!s)
        wf_board_use(b, choose_set(b));
    /* Meet once more. Other ranks may still read the times, which the next gather overwrites. */
    return s ? s : wf_job_meet(job, WF_CALL_BARRIER, deadline_ns);
}

enum weft_status weft_job_barrier(struct weft_job *job)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (!s && WEFT_UNLIKELY(job->notified)) /* a split-phase barrier is under way */
        s = WEFT_EINVAL;
    if (WEFT_UNLIKELY(s))
        return s;
    if (job->barriers % BARRIERS_PER_POLL == 0) {
        (void)weft_ep_poll(job->ep);
        s = wf_ep_check(job->ep); /* a handler may have forked, and the child is no rank */
        if (WEFT_UNLIKELY(s))
            return s;
    }
    wf_job_hold(job);
    return wf_job_held(job, meet(job, WF_CALL_BARRIER, 0));
}
