/* SPDX-License-Identifier: BSD-3-Clause */
/* The split-phase barrier, in which all ranks must agree on a name.
 *
 * A rank that has notified may compute for any time before it waits. Meanwhile it must not delay
 * other ranks. So no rank forwards the arrival of another rank, unlike in the rounds of barrier.c.
 * Two ranks notify each other through one cache line in each direction. Three or more ranks count
 * their notices (arrivals) in one cache line.
 *
 * A vote is a word that combines what several ranks named. Its kinds, in rising order: nothing (all
 * were anonymous), a name, a mismatch. Two votes combine to the vote of the higher kind, and two
 * different names combine to a mismatch. A rank that sees all notices also sees the combined vote,
 * the verdict. So every rank gets the same verdict.
 *
 * Even and odd barriers use different words for votes. A rank can be one barrier ahead of a slower
 * rank that has not read its verdict yet. The faster rank cannot be two ahead: to pass the next
 * barrier it needs a notice from the slower rank, and the slower rank gives that notice only after
 * it has read the verdict.
 *
 * On several nodes a rank gives notice by its arrival on the board, the memory that its node shares
 * (wf_across_arrive). It votes in the words that three or more ranks use. The nodes exchange their
 * votes, and write the verdict to their boards (across_split.c). */
#include "base/atomic.h"
#include "core/core.h"
#include "job/job.h"

#define FLAGS (WEFT_BARRIER_ANONYMOUS | WEFT_BARRIER_MISMATCH | WEFT_BARRIER_DELIVER)
/* weft_job_barrier_try checks once in this many calls whether the barrier must end early. */
#define LOOK_EVERY 8
/* How often the first try after a notice loads the counter before it polls. Ranks that notify
 * together see each other's notices one transfer of a cache line later. A poll would keep a rank
 * from looking at that time. (Measured on two cores of an AMD EPYC with gasnet_barrier_notify and
 * _wait: 127 ns per barrier with these loads, 150 ns without.) */
#define FIRST_SPINS 64
/* weft_job_barrier_wait polls once in this many barriers, so a rank that never waits polls. */
#define POLL_EVERY 16

/* A vote: the name in bits 0 to 31, then the kind (NAMED, MISMATCH, or 0 for anonymous), then the
 * low 30 bits of the barrier's number. 30 bits are enough, since a word can only hold the number of
 * this barrier or of the barrier two before. */
#define NAMED ((uint64_t)1 << 32)
#define MISMATCH ((uint64_t)2 << 32)
#define KIND (NAMED | MISMATCH)
#define NUMBER_SHIFT 34
#define NUMBER_BITS_OFF 2 /* 32 minus the 30 bits of a number */
#define NUMBER(count) ((count) << NUMBER_SHIFT)

static uint64_t make_vote(uint64_t count, uint32_t name, unsigned flags)
{
    if (flags & WEFT_BARRIER_MISMATCH)
        return NUMBER(count) | MISMATCH;
    return flags & WEFT_BARRIER_ANONYMOUS ? NUMBER(count) : NUMBER(count) | NAMED | name;
}

bool wf_split_same(uint64_t a, uint64_t b)
{
    return a >> NUMBER_SHIFT == b >> NUMBER_SHIFT;
}

int wf_split_ahead(uint64_t a, uint64_t b)
{
    uint64_t difference = (a >> NUMBER_SHIFT) - (b >> NUMBER_SHIFT);
    return (int32_t)((uint32_t)difference << NUMBER_BITS_OFF) >> NUMBER_BITS_OFF;
}

bool wf_split_is_vote(uint64_t vote)
{
    return (vote & KIND) != KIND && ((vote & NAMED) || !(uint32_t)vote);
}

unsigned wf_split_half(uint64_t vote)
{
    return vote >> NUMBER_SHIFT & 1;
}

/* Combine the votes [a] and [b]; idempotent, commutative and associative. */
uint64_t wf_split_combine(uint64_t a, uint64_t b)
{
    if (a == b)
        return a;
    if (!(a & KIND) || !(b & KIND))
        return a | b;
    return (a >> NUMBER_SHIFT << NUMBER_SHIFT) | MISMATCH;
}

static bool is_pair(const struct wf_board *b)
{
    return b->n == 2;
}

/* Returns the counter of notices, the arrivals at split-phase barriers, that [rank] reads. The two
 * words after the counter hold votes. */
static uint64_t *notices(const struct wf_board *b, unsigned rank)
{
    return is_pair(b) ? wf_board_flag(b, rank, 0) + 2 : b->notices;
}

static uint64_t *vote_place(uint64_t *counter, uint64_t count)
{
    return counter + 1 + (count & 1);
}

static uint64_t all_notices(const struct weft_job *job)
{
    return is_pair(&job->board) ? job->split.count : job->split.count * job->board.n;
}

static void vote_together(uint64_t *place, uint64_t mine, uint64_t count)
{
    uint64_t old = __atomic_load_n(place, __ATOMIC_RELAXED), new;
    do
        new = wf_split_same(old, NUMBER(count)) ? wf_split_combine(old, mine) : mine;
    while (
        !__atomic_compare_exchange_n(place, &old, new, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

static void post_notice(struct weft_job *job)
{
    const struct wf_board *b = &job->board;
    const struct wf_split *split = &job->split;
    uint64_t *counter = notices(b, is_pair(b) ? !b->me : b->me);
    uint64_t *place = vote_place(counter, split->count);
    if (job->across) {
        vote_together(vote_place(b->notices, split->count), split->mine, split->count);
        wf_across_split_begin(job);
    } else if (is_pair(b)) {
        __atomic_store_n(place, split->mine, __ATOMIC_RELAXED);
        __atomic_store_n(counter, split->count, __ATOMIC_RELEASE); /* "arrive" */
    } else if (b->n > 2) {
        vote_together(place, split->mine, split->count);
        __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL); /* "arrive": publishes earlier votes */
    }
}

enum weft_status weft_job_barrier_notify(struct weft_job *job, uint32_t name, unsigned flags)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (!s && (flags & ~(unsigned)FLAGS))
        s = WEFT_EINVAL;
    if (!s && job->notified)
        s = WEFT_EBUSY;
    if (!s)
        s = job->broken;
    if (!s && (flags & WEFT_BARRIER_DELIVER) && !wf_ep_is_settled(job->ep))
        s = WEFT_AGAIN;
    if (s)
        return s;
    wf_job_hold(job);
    job->barriers++;
    job->call = job->barriers << WF_CALL_BITS | wf_call_of(WF_CALL_SPLIT, 0);
    job->split.count++;
    job->split.name = name;
    job->split.flags = flags;
    job->split.agreed = 0;
    job->tries = 0;
    job->split.mine = make_vote(job->split.count, name, flags);
    job->notified = true;
    post_notice(job);
    return wf_job_held(job, WEFT_OK);
}

static enum weft_status check_notified(const struct weft_job *job, uint32_t name, unsigned flags)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (s || (flags & ~(unsigned)FLAGS))
        return s ? s : WEFT_EINVAL;
    if (!job->notified)
        return job->broken ? job->broken : WEFT_EINVAL;
    return name == job->split.name && flags == job->split.flags ? WEFT_OK : WEFT_EINVAL;
}

uint64_t wf_split_vote(const struct weft_job *job)
{
    const struct wf_split *split = &job->split;
    if (!job->notified)
        return 0;
    return __atomic_load_n(vote_place(job->board.notices, split->count), __ATOMIC_RELAXED);
}

static bool all_notified(const struct weft_job *job)
{
    const struct wf_board *b = &job->board;
    return b->n < 2 ||
           __atomic_load_n(notices(b, b->me), __ATOMIC_ACQUIRE) >= all_notices(job); /* "arrive" */
}

static uint64_t verdict(const struct weft_job *job)
{
    const struct wf_board *b = &job->board;
    uint64_t mine = job->split.mine;
    if (job->across)
        return wf_across_verdict(job);
    if (b->n < 2)
        return mine;
    return wf_split_combine(
        mine, __atomic_load_n(vote_place(notices(b, b->me), job->split.count), __ATOMIC_RELAXED));
}

/* End the barrier: all ranks have notified. */
static enum weft_status conclude(struct weft_job *job)
{
    uint64_t vote = verdict(job);
    if ((job->split.flags & WEFT_BARRIER_DELIVER) && WEFT_UNLIKELY(wf_ep_has_arrived(job->ep)))
        (void)wf_ep_drain(job->ep);
    job->split.agreed = vote;
    job->notified = false;
    job->passed = job->barriers;
    return (vote & MISMATCH) ? WEFT_EMISMATCH : WEFT_OK;
}

static enum weft_status end_early(struct weft_job *job, enum weft_status why)
{
    job->notified = false;
    return wf_job_give_up(job, why);
}

static enum weft_status try_across(struct weft_job *job)
{
    enum weft_status s = wf_across_split_try(job);
    if (s == WEFT_AGAIN)
        return s;
    return s ? end_early(job, s) : conclude(job);
}

static bool all_notified_soon(const struct weft_job *job)
{
    bool all = all_notified(job);
    if (!job->tries && !job->crowded)
        for (unsigned i = 0; !all && i < FIRST_SPINS; i++)
            all = all_notified(job);
    return all;
}

static enum weft_status try_once(struct weft_job *job)
{
    enum weft_status s;
    if (job->across)
        return try_across(job);
    if (all_notified_soon(job))
        return conclude(job);
    (void)weft_ep_poll(job->ep);
    if (job->tries++ % LOOK_EVERY)
        return WEFT_AGAIN;
    s = wf_job_check(job);
    if (all_notified(job)) /* the failure may have come after all notices */
        return conclude(job);
    return s ? end_early(job, s) : WEFT_AGAIN;
}

enum weft_status weft_job_barrier_try(struct weft_job *job, uint32_t name, unsigned flags)
{
    enum weft_status s = check_notified(job, name, flags);
    if (s)
        return s;
    wf_job_hold(job);
    return wf_job_held(job, try_once(job));
}

enum weft_status weft_job_barrier_wait(struct weft_job *job, uint32_t name, unsigned flags)
{
    enum weft_status s = check_notified(job, name, flags);
    if (s)
        return s;
    if (job->barriers % POLL_EVERY == 0)
        (void)weft_ep_poll(job->ep);
    wf_job_hold(job);
    if (job->across)
        s = wf_across_split_wait(job, 0);
    else if (!all_notified(job))
        s = wf_job_await(job, notices(&job->board, job->board.me), all_notices(job), 0);
    return wf_job_held(job, s ? end_early(job, s) : conclude(job));
}

enum weft_status weft_job_barrier_name(const struct weft_job *job, uint32_t *name)
{
    enum weft_status s = job && name ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (s)
        return s;
    if ((job->split.agreed & KIND) != NAMED)
        return WEFT_ENOTAVAIL;
    *name = (uint32_t)job->split.agreed;
    return WEFT_OK;
}
