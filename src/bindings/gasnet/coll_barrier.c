/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers of teams. Dissemination combines the votes of all members. A vote is nothing, a name or
 * a mismatch, in rising order. The higher vote wins, and two different names combine to a mismatch.
 */
#include "coll.h"

enum { VOTE_NOTHING, VOTE_NAME, VOTE_MISMATCH };

void gasnetw_vote_add(struct gasnetw_vote *to, struct gasnetw_vote vote)
{
    if (to->state == VOTE_NAME && vote.state == VOTE_NAME && to->id != vote.id)
        to->state = VOTE_MISMATCH;
    else if (vote.state > to->state)
        *to = vote;
}

/* ---- steps ---- */

/* In a round, send votes[2 * round] and receive votes[2 * round + 1]. */
static void step_vote(struct gasnetw_sched *s, size_t round)
{
    struct gasnetw_vote *votes = s->plan;
    votes[2 * round] = ((struct gasnetw_call *)s)->vote;
}

static void step_combine(struct gasnetw_sched *s, size_t round)
{
    const struct gasnetw_vote *votes = s->plan;
    struct gasnetw_vote vote = votes[2 * round + 1];
    if (vote.state < VOTE_NOTHING || vote.state > VOTE_MISMATCH)
        vote.state = VOTE_MISMATCH;
    gasnetw_vote_add(&((struct gasnetw_call *)s)->vote, vote);
}

void gasnetw_plan_barrier(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    struct gasnetw_vote *votes = gasnetw_sched_scratch(&c->sched, 2 * 32 * sizeof *votes);
    const unsigned P = v->nodes;
    c->sched.plan = votes;
    for (unsigned d = 1, r = 0; d < P; d <<= 1, r++) {
        gasnetw_sched_call(&c->sched, step_vote, r);
        gasnetw_sched_send(&c->sched, v->node[(v->me + d) % P], &votes[2 * r], sizeof *votes);
        gasnetw_sched_recv(&c->sched, v->node[(v->me + P - d) % P], &votes[2 * r + 1],
                           sizeof *votes);
        gasnetw_sched_round(&c->sched);
        gasnetw_sched_call(&c->sched, step_combine, r);
    }
}

void gasnetw_plan_sync(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    char *token = gasnetw_sched_scratch(&c->sched, 2);
    token[0] = 0;
    for (unsigned d = 1; d < v->nodes; d <<= 1) {
        gasnetw_sched_send(&c->sched, v->node[(v->me + d) % v->nodes], &token[0], 1);
        gasnetw_sched_recv(&c->sched, v->node[(v->me + v->nodes - d) % v->nodes], &token[1], 1);
        gasnetw_sched_round(&c->sched);
    }
}

/* ---- the calls ---- */

/* Does a barrier of [team] use gasnet_barrier_notify? A barrier of all nodes does, except if
 * several images of a node take part. */
static bool is_global(gasnet_team_handle_t team, int flags)
{
    return team == gasnetw_team_all &&
           !((flags & GASNET_BARRIERFLAG_IMAGES) && team->view[VIEW_IMAGES].most > 1);
}

static struct gasnetw_barrier *place(gasnet_team_handle_t team, int flags, const char *what)
{
    struct gasnetw_view *v =
        &team->view[flags & GASNET_BARRIERFLAG_IMAGES ? VIEW_IMAGES : VIEW_NODES];
    return &v->barrier[gasnetw_view_self(v, what)];
}

static void check(gasnet_team_handle_t team, int flags, const char *what)
{
    const int known =
        GASNET_BARRIERFLAG_UNNAMED | GASNET_BARRIERFLAG_MISMATCH | GASNET_BARRIERFLAG_IMAGES;
    gasnetw_check(gasnetw_job.mynode, what);
    gasnetw_coll_check_team(team, what);
    if (flags & ~known)
        gasnetw_fatal("%s: flags 0x%x; known are the GASNET_BARRIERFLAG_ ones", what,
                      (unsigned)flags);
}

static struct gasnetw_vote vote_of(int id, int flags)
{
    if (flags & GASNET_BARRIERFLAG_MISMATCH)
        return (struct gasnetw_vote){VOTE_MISMATCH, 0};
    if (flags & GASNET_BARRIERFLAG_ANONYMOUS)
        return (struct gasnetw_vote){VOTE_NOTHING, 0};
    return (struct gasnetw_vote){VOTE_NAME, id};
}

void gasnet_coll_barrier_notify(gasnet_team_handle_t team, int id, int flags)
{
    const char *what = "gasnet_coll_barrier_notify";
    check(team, flags, what);
    if (is_global(team, flags)) {
        gasnet_barrier_notify(id, flags & ~GASNET_BARRIERFLAG_IMAGES);
        return;
    }
    struct gasnetw_barrier *b = place(team, flags, what);
    if (b->handle)
        gasnetw_fatal("%s: called twice; call gasnet_coll_barrier_wait or _try between", what);
    b->id = id;
    b->flags = flags;
    b->handle = gasnetw_coll_enter(&(struct gasnetw_args){
        .what = what,
        .kind = COLL_BARRIER,
        .team = team,
        .flags = flags & GASNET_BARRIERFLAG_IMAGES ? 0 : GASNET_COLL_NO_IMAGES,
        .vote = vote_of(id, flags)});
}

/* End the barrier [b], which may then be notified again. Returns the result as gasnet_barrier_wait
 * does. */
static int conclude(struct gasnetw_barrier *b, int id, int flags)
{
    struct gasnetw_vote vote = gasnetw_coll_take_vote(b->handle);
    b->handle = NULL;
    gasnetw_vote_add(&vote, vote_of(id, flags));
    return vote.state == VOTE_MISMATCH ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK;
}

static struct gasnetw_barrier *notified(gasnet_team_handle_t team, int flags, const char *what)
{
    struct gasnetw_barrier *b = place(team, flags, what);
    if (!b->handle)
        gasnetw_fatal("%s: call gasnet_coll_barrier_notify of this team before", what);
    return b;
}

int gasnet_coll_barrier_wait(gasnet_team_handle_t team, int id, int flags)
{
    const char *what = "gasnet_coll_barrier_wait";
    check(team, flags, what);
    if (is_global(team, flags))
        return gasnet_barrier_wait(id, flags & ~GASNET_BARRIERFLAG_IMAGES);
    struct gasnetw_barrier *b = notified(team, flags, what);
    gasnetw_coll_wait_done(b->handle);
    return conclude(b, id, flags);
}

int gasnet_coll_barrier_try(gasnet_team_handle_t team, int id, int flags)
{
    const char *what = "gasnet_coll_barrier_try";
    check(team, flags, what);
    if (is_global(team, flags))
        return gasnet_barrier_try(id, flags & ~GASNET_BARRIERFLAG_IMAGES);
    struct gasnetw_barrier *b = notified(team, flags, what);
    gasnetw_turn();
    gasnetw_sched_progress();
    return gasnetw_coll_done(b->handle) ? conclude(b, id, flags) : GASNET_ERR_NOT_READY;
}

int gasnet_coll_barrier(gasnet_team_handle_t team, int id, int flags)
{
    gasnet_coll_barrier_notify(team, id, flags);
    return gasnet_coll_barrier_wait(team, id, flags);
}
