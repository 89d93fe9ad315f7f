/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of collectives.
 *
 * An image is a thread that takes part in collectives; a node may have several. For each collective
 * a node has one struct gasnetw_call. The first image of the node that makes the call creates the
 * structure. Each image adds its addresses and gets a handle of its own. The last image plans the
 * collective and starts it. No image waits in the call itself, so blocking and non-blocking calls
 * use the same structure. Each image counts its calls: calls with the same number belong together.
 */
#include "coll.h"

#include <stdlib.h>

struct gasnetw_coll {
    struct gasnetw_call *call; /* holds one of its refs */
    struct gasnetw_coll *also; /* handles of earlier calls with GASNET_COLL_AGGREGATE */
};

/* The handles of calls with GASNET_COLL_AGGREGATE since the last call without that flag. */
static _Thread_local struct gasnetw_coll *aggregate;

/* ---- flags ---- */

static void check_one(int flags, int mask, const char *what, const char *which)
{
    int given = flags & mask;
    if (!given || (given & (given - 1)))
        gasnetw_fatal("%s: flags 0x%x; give exactly one of %s", what, (unsigned)flags, which);
}

static void check_args(const struct gasnetw_args *a, const struct gasnetw_view *v)
{
    if (a->kind == COLL_BARRIER)
        return;
    check_one(a->flags, GASNET_COLL_IN_NOSYNC | GASNET_COLL_IN_MYSYNC | GASNET_COLL_IN_ALLSYNC,
              a->what, "GASNET_COLL_IN_NOSYNC, _IN_MYSYNC and _IN_ALLSYNC");
    check_one(a->flags, GASNET_COLL_OUT_NOSYNC | GASNET_COLL_OUT_MYSYNC | GASNET_COLL_OUT_ALLSYNC,
              a->what, "GASNET_COLL_OUT_NOSYNC, _OUT_MYSYNC and _OUT_ALLSYNC");
    check_one(a->flags, GASNET_COLL_SINGLE | GASNET_COLL_LOCAL, a->what,
              "GASNET_COLL_SINGLE and GASNET_COLL_LOCAL");
    if (a->kind == COLL_SCAN)
        check_one(a->flags, GASNET_COLL_INCLUSIVE_SCAN | GASNET_COLL_EXCLUSIVE_SCAN, a->what,
                  "GASNET_COLL_INCLUSIVE_SCAN and GASNET_COLL_EXCLUSIVE_SCAN");
    if (a->root >= v->members)
        gasnetw_fatal("%s: image %u; the team has %u", a->what, a->root, v->members);
}

/* ---- meeting; lock held ---- */

static struct gasnetw_call *call_new(const struct gasnetw_args *a, struct gasnetw_view *v,
                                     uint64_t seq)
{
    unsigned own = gasnetw_view_own(v);
    struct gasnetw_call *c = gasnetw_zalloc(1, sizeof *c + 2 * own * sizeof(void *));
    c->dst = (void **)(c + 1);
    c->src = (const void **)(c->dst + own);
    c->team = a->team;
    c->v = v;
    c->kind = a->kind;
    c->flags = a->flags;
    c->root = a->root;
    c->nbytes = a->nbytes;
    c->elems = a->elems;
    c->sched.fold = a->fold;
    c->seq = seq;
    c->refs = own;
    a->team->under_way++;
    return c;
}

/* Returns the structure of this image's next call: the one that other images of the node have
 * created, or else a new one. */
static struct gasnetw_call *meet(const struct gasnetw_args *a, struct gasnetw_view *v,
                                 unsigned self)
{
    const bool barrier = a->kind == COLL_BARRIER;
    const uint64_t seq = v->seq[barrier][self]++;
    struct gasnetw_call **at = &a->team->meeting, *c;
    for (; (c = *at); at = &c->next) {
        if (c->v != v || (c->kind == COLL_BARRIER) != barrier || c->seq != seq)
            continue;
        if (c->kind != a->kind || c->nbytes != a->nbytes || c->root != a->root)
            gasnetw_fatal("%s: another image of this node made a different call; all images of a "
                          "team make the same calls in the same order",
                          a->what);
        break;
    }
    if (!c)
        c = *at = call_new(a, v, seq);
    if (++c->arrived == gasnetw_view_own(v))
        *at = c->next;
    return c;
}

/* Take the addresses of this node's members from the lists in [a]. With GASNET_COLL_SINGLE the
 * lists have all members, otherwise only this node's. Every image passes the same lists. */
static void bring_lists(struct gasnetw_call *c, const struct gasnetw_args *a)
{
    const struct gasnetw_view *v = c->v;
    for (unsigned i = 0; i < gasnetw_view_own(v); i++) {
        unsigned slot = v->first[v->me] + i, at = i;
        if (a->flags & GASNET_COLL_SINGLE)
            at = v->place ? v->place[slot] : slot;
        if (a->dstlist)
            c->dst[i] = (char *)a->dstlist[at] + a->dst_offset;
        if (a->srclist)
            c->src[i] = (const char *)a->srclist[at] + a->src_offset;
    }
}

static void bring(struct gasnetw_call *c, const struct gasnetw_args *a, unsigned self)
{
    const struct gasnetw_view *v = c->v;
    if (a->lists) {
        bring_lists(c, a);
    } else {
        c->dst[self] = a->dst ? (char *)a->dst + a->dst_offset : NULL;
        c->src[self] = a->src ? (const char *)a->src + a->src_offset : NULL;
    }
    if ((a->flags & GASNET_COLL_SINGLE) || gasnetw_view_slot(v, a->root) == v->first[v->me] + self)
        c->root_addr = a->root_addr;
    if (a->kind == COLL_BARRIER)
        gasnetw_vote_add(&c->vote, a->vote);
}

/* ---- planning and starting; lock held ---- */

static void plan(struct gasnetw_call *c)
{
    static void (*const plans[COLL_KINDS])(struct gasnetw_call *) = {
        [COLL_BROADCAST] = gasnetw_plan_broadcast,
        [COLL_SCATTER] = gasnetw_plan_scatter,
        [COLL_GATHER] = gasnetw_plan_gather,
        [COLL_REDUCE] = gasnetw_plan_reduce,
        [COLL_GATHER_ALL] = gasnetw_plan_gather_all,
        [COLL_EXCHANGE] = gasnetw_plan_exchange,
        [COLL_SCAN] = gasnetw_plan_scan,
        [COLL_BARRIER] = gasnetw_plan_barrier,
    };
    if (c->flags & GASNET_COLL_IN_ALLSYNC && c->kind != COLL_BARRIER)
        gasnetw_plan_sync(c);
    plans[c->kind](c);
    if (c->flags & GASNET_COLL_OUT_ALLSYNC && c->kind != COLL_BARRIER) {
        gasnetw_sched_round(&c->sched);
        gasnetw_plan_sync(c);
    }
}

static void start(struct gasnetw_call *c)
{
    unsigned stream = c->v->stream * 2u + (c->kind == COLL_BARRIER);
    c->sched.tag = GASNETW_TAG(c->team->id, stream, c->seq);
    plan(c);
    gasnetw_sched_start(&c->sched);
}

static void unref(struct gasnetw_call *c)
{
    if (--c->refs)
        return;
    c->team->under_way--;
    gasnetw_sched_fini(&c->sched);
    free(c);
}

gasnet_coll_handle_t gasnetw_coll_enter(const struct gasnetw_args *a)
{
    struct gasnetw_view *v =
        &a->team->view[a->flags & GASNET_COLL_NO_IMAGES ? VIEW_NODES : VIEW_IMAGES];
    unsigned self = gasnetw_view_self(v, a->what);
    check_args(a, v);
    gasnetw_coll_count(a->kind);
    struct gasnetw_coll *h = gasnetw_alloc(sizeof *h);
    gasnetw_sched_lock();
    struct gasnetw_call *c = meet(a, v, self);
    bring(c, a, self);
    if (c->arrived == gasnetw_view_own(v))
        start(c);
    gasnetw_sched_unlock();
    *h = (struct gasnetw_coll){.call = c};
    if (a->kind == COLL_BARRIER)
        return h;
    h->also = aggregate;
    aggregate = NULL;
    if (!(a->flags & GASNET_COLL_AGGREGATE))
        return h;
    aggregate = h;
    return GASNET_COLL_INVALID_HANDLE;
}

/* ---- handles ---- */

bool gasnetw_coll_done(gasnet_coll_handle_t handle)
{
    for (; handle; handle = handle->also)
        /* Acquire; pairs with the release in finish() of schedule.c. */
        if (!atomic_load_explicit(&handle->call->sched.done, memory_order_acquire))
            return false;
    return true;
}

void gasnetw_coll_wait_done(gasnet_coll_handle_t handle)
{
    for (; handle; handle = handle->also)
        gasnetw_sched_wait(&handle->call->sched.done);
}

static void release(gasnet_coll_handle_t handle)
{
    gasnetw_sched_lock();
    while (handle) {
        struct gasnetw_coll *h = handle;
        handle = h->also;
        unref(h->call);
        free(h);
    }
    gasnetw_sched_unlock();
}

struct gasnetw_vote gasnetw_coll_take_vote(gasnet_coll_handle_t handle)
{
    struct gasnetw_vote vote = handle->call->vote;
    release(handle);
    return vote;
}

static void wait_for(gasnet_coll_handle_t handle)
{
    if (!handle)
        return;
    gasnetw_coll_wait_done(handle);
    release(handle);
}

static bool take(gasnet_coll_handle_t *handle)
{
    if (!gasnetw_coll_done(*handle))
        return false;
    release(*handle);
    *handle = GASNET_COLL_INVALID_HANDLE;
    return true;
}

static void turn_once(const char *what)
{
    gasnetw_check(gasnetw_job.mynode, what);
    gasnetw_turn();
    gasnetw_sched_progress();
}

int gasnet_coll_try_sync(gasnet_coll_handle_t handle)
{
    return gasnet_coll_try_sync_all(&handle, 1);
}

void gasnet_coll_wait_sync(gasnet_coll_handle_t handle)
{
    gasnetw_check(gasnetw_job.mynode, "gasnet_coll_wait_sync");
    wait_for(handle);
}

int gasnet_coll_try_sync_all(gasnet_coll_handle_t *phandle, size_t numhandles)
{
    int result = GASNET_OK;
    turn_once("gasnet_coll_try_sync");
    for (size_t i = 0; i < numhandles; i++)
        if (phandle[i] && !take(&phandle[i]))
            result = GASNET_ERR_NOT_READY;
    return result;
}

int gasnet_coll_try_sync_some(gasnet_coll_handle_t *phandle, size_t numhandles)
{
    bool any = false, some = false;
    turn_once("gasnet_coll_try_sync_some");
    for (size_t i = 0; i < numhandles; i++) {
        if (!phandle[i])
            continue;
        any = true;
        some |= take(&phandle[i]);
    }
    return !any || some ? GASNET_OK : GASNET_ERR_NOT_READY;
}

void gasnet_coll_wait_sync_all(gasnet_coll_handle_t *phandle, size_t numhandles)
{
    gasnetw_check(gasnetw_job.mynode, "gasnet_coll_wait_sync_all");
    for (size_t i = 0; i < numhandles; i++) {
        wait_for(phandle[i]);
        phandle[i] = GASNET_COLL_INVALID_HANDLE;
    }
}

void gasnet_coll_wait_sync_some(gasnet_coll_handle_t *phandle, size_t numhandles)
{
    struct gasnetw_wait w = {0};
    while (gasnet_coll_try_sync_some(phandle, numhandles) != GASNET_OK)
        gasnetw_wait_turn(&w);
}

/* ---- the calls ---- */

gasnet_coll_handle_t gasnetw_coll_start(const struct gasnetw_args *a)
{
    gasnetw_coll_check(a->team, a->what);
    return gasnetw_coll_enter(a);
}

void gasnetw_coll_run(const struct gasnetw_args *a)
{
    if (a->flags & GASNET_COLL_AGGREGATE)
        gasnetw_fatal("%s: GASNET_COLL_AGGREGATE is for the calls that do not block (_nb)",
                      a->what);
    wait_for(gasnetw_coll_start(a));
}

/* Define the blocking and the non-blocking form of a call. ARGS are the parameters, (type name,
 * ...). The other arguments initialise members of struct gasnetw_args. */
#define CALL(name, KIND, ARGS, ...)                                                                \
    gasnet_coll_handle_t gasnet_coll_##name##_nb ARGS                                              \
    {                                                                                              \
        return gasnetw_coll_start(&(struct gasnetw_args){.what = "gasnet_coll_" #name "_nb",       \
                                                         .kind = KIND,                             \
                                                         .team = team,                             \
                                                         .flags = flags,                           \
                                                         .nbytes = nbytes,                         \
                                                         __VA_ARGS__});                            \
    }                                                                                              \
    void gasnet_coll_##name ARGS                                                                   \
    {                                                                                              \
        gasnetw_coll_run(&(struct gasnetw_args){.what = "gasnet_coll_" #name,                      \
                                                .kind = KIND,                                      \
                                                .team = team,                                      \
                                                .flags = flags,                                    \
                                                .nbytes = nbytes,                                  \
                                                __VA_ARGS__});                                     \
    }

CALL(broadcast, COLL_BROADCAST,
     (gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage, void *src, size_t nbytes,
      int flags),
     .dst = dst, .root = srcimage, .root_addr = src)
CALL(broadcastM, COLL_BROADCAST,
     (gasnet_team_handle_t team, void *const dstlist[], gasnet_image_t srcimage, void *src,
      size_t nbytes, int flags),
     .lists = true, .dstlist = dstlist, .root = srcimage, .root_addr = src)
CALL(scatter, COLL_SCATTER,
     (gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage, void *src, size_t nbytes,
      int flags),
     .dst = dst, .root = srcimage, .root_addr = src)
CALL(scatterM, COLL_SCATTER,
     (gasnet_team_handle_t team, void *const dstlist[], gasnet_image_t srcimage, void *src,
      size_t nbytes, int flags),
     .lists = true, .dstlist = dstlist, .root = srcimage, .root_addr = src)
CALL(gather, COLL_GATHER,
     (gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst, void *src, size_t nbytes,
      int flags),
     .src = src, .root = dstimage, .root_addr = dst)
CALL(gatherM, COLL_GATHER,
     (gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst, void *const srclist[],
      size_t nbytes, int flags),
     .lists = true, .srclist = srclist, .root = dstimage, .root_addr = dst)
CALL(gather_all, COLL_GATHER_ALL,
     (gasnet_team_handle_t team, void *dst, void *src, size_t nbytes, int flags), .dst = dst,
     .src = src)
CALL(gather_allM, COLL_GATHER_ALL,
     (gasnet_team_handle_t team, void *const dstlist[], void *const srclist[], size_t nbytes,
      int flags),
     .lists = true, .dstlist = dstlist, .srclist = srclist)
CALL(exchange, COLL_EXCHANGE,
     (gasnet_team_handle_t team, void *dst, void *src, size_t nbytes, int flags), .dst = dst,
     .src = src)
CALL(exchangeM, COLL_EXCHANGE,
     (gasnet_team_handle_t team, void *const dstlist[], void *const srclist[], size_t nbytes,
      int flags),
     .lists = true, .dstlist = dstlist, .srclist = srclist)
