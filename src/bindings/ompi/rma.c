/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics. Their callbacks report that the effects are visible at the peer. They run
 * inside the call if it has done the access, as ob1 and osc rdma expect, but in progress if there
 * are threads, or if callbacks nest. */
#include <sched.h>
#include <string.h>

#include "rma.h"

#define NESTED 4 /* callbacks of accesses inside each other */
#define IDLE 100 /* turns of a flush without events until it yields: some microseconds */

typedef struct wbtl_access wbtl_access;
OBJ_CLASS_DECLARATION(wbtl_access);
OBJ_CLASS_INSTANCE(wbtl_access, opal_free_list_item_t, NULL, NULL);

static wbtl_access *access_of_item(struct wbtl_item *item)
{
    return (wbtl_access *)((char *)item - offsetof(wbtl_access, item));
}

/* ---- puts that all later operations follow (btl_weft_order=module) ---- */

static void put_count(wbtl_access *a)
{
    a->is_counted = true;
    wbtl_lock();
    a->item.peer->puts++;
    wbtl_unlock();
}

static void put_uncount(wbtl_access *a)
{
    wbtl_peer *peer = a->item.peer;
    a->is_counted = false;
    wbtl_lock();
    if (!--peer->puts)
        atomic_fetch_and(&peer->slow, ~(unsigned)WBTL_PUTS);
    wbtl_unlock();
}

/* A put with the order [own] is under way, unless another thread has seen its end. */
static void put_follow(wbtl_peer *peer, struct weft_order own)
{
    wbtl_lock();
    peer->last_put = own;
    if (peer->puts)
        atomic_fetch_or(&peer->slow, WBTL_PUTS);
    wbtl_unlock();
}

static enum weft_status put_in_order(wbtl_access *a, struct weft_remote *r, uint64_t offset,
                                     struct weft_order after)
{
    wbtl_peer *peer = a->item.peer;
    struct weft_order own;
    enum weft_status s;
    if (wbtl.vars.order != WBTL_ORDER_MODULE)
        return weft_order_put(r, offset, a->local, a->len, after, NULL, &a->op);
    put_count(a);
    s = weft_order_put(r, offset, a->local, a->len, after, &own, &a->op);
    if (s == WEFT_PENDING)
        put_follow(peer, own);
    else
        put_uncount(a);
    return s;
}

static void on_done(struct weft_op *op)
{
    wbtl_access *a = op->user;
    if (a->is_counted)
        put_uncount(a);
    if (a->is_waited)
        atomic_store_explicit(&a->is_over, true, memory_order_release); /* "over" */
    else
        wbtl_ended(&a->item, wbtl_error((enum weft_status)op->status));
}

static int access_init(opal_free_list_item_t *item, void *arg)
{
    wbtl_access *a = (wbtl_access *)item;
    (void)arg;
    memset(&a->op, 0, sizeof a->op);
    a->op.user = a;
    a->op.done = on_done;
    a->item.kind = WBTL_ACCESS;
    a->is_counted = a->is_waited = false;
    WBTL_LISTED(item);
    return OPAL_SUCCESS;
}

bool wbtl_accesses_init(opal_free_list_t *list)
{
    OBJ_CONSTRUCT(list, opal_free_list_t);
    return opal_free_list_init(list, sizeof(wbtl_access), 64, OBJ_CLASS(wbtl_access), 0, 0,
                               wbtl.vars.list_first, wbtl.vars.list_most, wbtl.vars.list_more, NULL,
                               0, NULL, access_init, NULL) == OPAL_SUCCESS;
}

/* ---- beginning ---- */

static enum weft_status start(wbtl_access *a, struct weft_remote *r)
{
    const uint64_t offset = a->address - a->handle->base;
    struct weft_order after;
    enum weft_status s = wbtl_order_first(a->item.peer, a->after, &after);
    const bool is_plain = !after.v[0];
    if (s != WEFT_OK)
        return s;
    switch (a->what) {
    case WBTL_PUT:
        return is_plain && wbtl.vars.order != WBTL_ORDER_MODULE
                   ? weft_put(r, offset, a->local, a->len, &a->op)
                   : put_in_order(a, r, offset, after);
    case WBTL_GET:
        return is_plain ? weft_get(r, offset, a->local, a->len, &a->op)
                        : weft_order_get(r, offset, a->local, a->len, after, NULL, &a->op);
    case WBTL_ATOMIC: break;
    }
    if (!is_plain) /* atomics have no order: when the puts are complete */
        return WEFT_AGAIN;
    return weft_atomic(r, offset, a->atomic, a->type, a->operand, a->compare,
                       a->local ? &a->old : NULL, &a->op);
}

/* "accessing", acquire and release: the regions of peers as the last thread left them. */
enum weft_status wbtl_access_post(struct wbtl_item *item)
{
    wbtl_access *a = access_of_item(item);
    atomic_bool *accessing = &wbtl.ports[a->port].accessing;
    struct weft_remote *r;
    enum weft_status s;
    if (wbtl.threads && atomic_exchange_explicit(accessing, true, memory_order_acquire))
        return WEFT_AGAIN;
    s = wbtl_remote_find(item->peer, a->port, a->handle, &r);
    if (OPAL_LIKELY(s == WEFT_OK))
        s = start(a, r);
    if (OPAL_UNLIKELY(s == WEFT_EKEY))
        wbtl_remote_forget(item->peer, a->port, a->handle);
    if (wbtl.threads)
        atomic_store_explicit(accessing, false, memory_order_release);
    return s;
}

/* ---- what a flush waits for ---- */

/* Enter the present epoch beside other threads: the access is counted before the epoch can end. */
static unsigned epoch_enter_counted(struct wbtl_epochs *e)
{
    unsigned now = atomic_load(&e->now), then;
    for (;;) {
        then = now;
        atomic_fetch_add(&e->count[then & 1], 1);
        now = atomic_load(&e->now);
        if (now == then)
            return then & 1;
        atomic_fetch_sub(&e->count[then & 1], 1);
    }
}

/* Enter the present epoch. Returns its lowest bit. */
static unsigned epoch_enter(struct wbtl_epochs *e)
{
    unsigned at;
    if (wbtl.threads)
        return epoch_enter_counted(e);
    at = atomic_load_explicit(&e->now, memory_order_relaxed) & 1;
    atomic_store_explicit(&e->count[at],
                          atomic_load_explicit(&e->count[at], memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return at;
}

/* Release "flushed". */
static void epoch_leave(struct wbtl_epochs *e, unsigned at)
{
    if (wbtl.threads)
        atomic_fetch_sub_explicit(&e->count[at], 1, memory_order_release);
    else
        atomic_store_explicit(&e->count[at],
                              atomic_load_explicit(&e->count[at], memory_order_relaxed) - 1,
                              memory_order_relaxed);
}

static bool epoch_is_empty(const struct wbtl_epochs *e, unsigned epoch)
{
    return !atomic_load(&e->count[epoch & 1]); /* acquire "flushed" */
}

/* Have all accesses of [epoch] and of earlier epochs ended? Accesses that begin later are in the
 * next epoch as soon as the last epoch is empty. Epochs follow each other only so, and a thread may
 * find that others have begun several. */
static bool epoch_is_over(struct wbtl_epochs *e, unsigned epoch)
{
    unsigned now = atomic_load(&e->now); /* acquire "flushed" */
    if (now == epoch && epoch_is_empty(e, epoch + 1) &&
        atomic_compare_exchange_strong(&e->now, &now, epoch + 1))
        now = epoch + 1;
    return now - epoch > 1 || (now != epoch && epoch_is_empty(e, epoch));
}

/* Returns the accesses of [btl] to [peer], or to all peers. A flush of osc rdma's module does not
 * wait for the gets of ob1's, whose peers may be outside of MPI until the flush is over. */
static struct wbtl_epochs *accesses_of(const mca_btl_base_module_t *btl, wbtl_peer *peer)
{
    return &(peer ? peer->accesses : wbtl.accesses)[btl == &wbtl.rma];
}

static void access_count(wbtl_access *a)
{
    a->epoch = epoch_enter(accesses_of(a->btl, a->item.peer));
    a->all_epoch = epoch_enter(accesses_of(a->btl, NULL));
}

static void access_uncount(const wbtl_access *a)
{
    epoch_leave(accesses_of(a->btl, a->item.peer), a->epoch);
    epoch_leave(accesses_of(a->btl, NULL), a->all_epoch);
}

/* ---- the end ---- */

/* The callback may begin another access, with the same memory. */
void wbtl_access_done(struct wbtl_item *item)
{
    wbtl_access *a = access_of_item(item);
    wbtl_peer *peer = item->peer;
    const int status = item->status;
    void *local = a->local, *context = a->context, *data = a->data;
    mca_btl_base_registration_handle_t *handle = a->local_handle;
    mca_btl_base_rdma_completion_fn_t fn = a->fn;
    mca_btl_base_module_t *btl = a->btl;
    if (a->what == WBTL_ATOMIC && local && status == OPAL_SUCCESS)
        memcpy(local, &a->old, a->len); /* its low bytes */
    access_uncount(a);
    wbtl_list_return(&wbtl.access_list, &a->super);
    if (fn)
        fn(btl, wbtl_endpoint_of(btl, peer), local, handle, context, data, status);
}

static void ended_now(wbtl_access *a, int status)
{
    static unsigned nested;
    if (wbtl.threads || nested >= NESTED) {
        wbtl_ended(&a->item, status);
        return;
    }
    a->item.status = status;
    nested++;
    wbtl_access_done(&a->item);
    nested--;
}

static void give_up(wbtl_access *a)
{
    access_uncount(a);
    wbtl_list_return(&wbtl.access_list, &a->super);
}

/* Do [a] before the call returns. */
static int begin_waited(wbtl_peer *peer, wbtl_access *a)
{
    enum weft_status s = wbtl_access_wait(peer, a);
    if (s == WEFT_ECONTEXT) { /* not begun: Open MPI tries again later */
        give_up(a);
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    ended_now(a, wbtl_error(s));
    return OPAL_SUCCESS;
}

static int begin_slowly(wbtl_peer *peer, wbtl_access *a, enum weft_status s)
{
    int rc;
    memcpy(a->kept, a->handle, sizeof a->kept);
    a->handle = (const mca_btl_base_registration_handle_t *)(const void *)a->kept;
    rc = wbtl_begin_slowly(peer, &a->item, s);
    if (rc != OPAL_SUCCESS)
        give_up(a);
    return rc;
}

static int begin(wbtl_access *a)
{
    wbtl_peer *peer = a->item.peer;
    enum weft_status s = WEFT_OK;
    access_count(a);
    if (OPAL_UNLIKELY(a->handle->key_len > WEFT_KEY_MAX || a->handle->base > a->handle->addr ||
                      a->address < a->handle->addr || a->len > a->handle->len ||
                      a->address - a->handle->addr > a->handle->len - a->len)) {
        ended_now(a, OPAL_ERR_VALUE_OUT_OF_BOUNDS);
        return OPAL_SUCCESS;
    }
    if (OPAL_UNLIKELY(!a->len)) { /* the handle may have no key */
        ended_now(a, OPAL_SUCCESS);
        return OPAL_SUCCESS;
    }
    /* Orders are those of the first port's peers. */
    a->port = 0;
    if (wbtl.nports > 1 && wbtl.vars.order == WBTL_ORDER_TAG && !a->after.v[0])
        a->port = wbtl_port_of_thread();
    if (OPAL_UNLIKELY(a->what == WBTL_PUT && wbtl.vars.order == WBTL_ORDER_ALL))
        return begin_waited(peer, a);
    if (OPAL_LIKELY(!(wbtl_slow(peer) & ~WBTL_PASSES))) {
        s = wbtl_access_post(&a->item);
        if (s == WEFT_PENDING)
            return OPAL_SUCCESS;
        if (wbtl_is_short(peer, s)) { /* osc rdma reads no failure in the callback of a put */
            give_up(a);
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
        if (s == WEFT_OK || (!wbtl_is_later(s) && weft_peer_status(peer->weft) == WEFT_OK)) {
            ended_now(a, wbtl_error(s));
            return OPAL_SUCCESS;
        }
    }
    return begin_slowly(peer, a, s);
}

/* Returns an access with what all accesses have, or NULL: see not_taken. */
static wbtl_access *access_take(mca_btl_base_module_t *btl, wbtl_peer *endpoint, void *local,
                                uint64_t address, mca_btl_base_registration_handle_t *local_handle,
                                const mca_btl_base_registration_handle_t *handle, size_t len,
                                mca_btl_base_rdma_completion_fn_t fn, void *context, void *data)
{
    wbtl_access *a = NULL;
    if (OPAL_LIKELY(endpoint && handle))
        a = (wbtl_access *)wbtl_list_get(&wbtl.access_list);
    if (OPAL_UNLIKELY(!a))
        return NULL;
    a->btl = btl;
    a->item.peer = wbtl_peer_of(btl, endpoint);
    a->local = local;
    a->address = address;
    a->local_handle = local_handle;
    a->handle = handle;
    a->len = len;
    a->fn = fn;
    a->context = context;
    a->data = data;
    return a;
}

/* Returns Open MPI's status for an access that was not taken: no access was free, or osc rdma gave
 * no endpoint or no handle. It has no endpoint of a rank that the module does not reach, and no
 * handle of memory that this process maps: in such memory it does a compare and swap itself, once
 * the module has refused it. */
static int not_taken(const wbtl_peer *endpoint, const mca_btl_base_registration_handle_t *handle)
{
    if (!endpoint)
        return OPAL_ERR_UNREACH;
    return handle ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_ERR_BAD_PARAM;
}

static int begin_ordered(wbtl_access *a, enum wbtl_what what, int order)
{
    a->after = wbtl_order_of(a->item.peer, order);
    a->what = what;
    return begin(a);
}

int wbtl_put(mca_btl_base_module_t *btl, wbtl_peer *endpoint, void *local, uint64_t address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *handle, size_t len, int flags, int order,
             mca_btl_base_rdma_completion_fn_t fn, void *context, void *data)
{
    wbtl_access *a =
        access_take(btl, endpoint, local, address, local_handle, handle, len, fn, context, data);
    (void)flags;
    return a ? begin_ordered(a, WBTL_PUT, order) : not_taken(endpoint, handle);
}

int wbtl_get(mca_btl_base_module_t *btl, wbtl_peer *endpoint, void *local, uint64_t address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *handle, size_t len, int flags, int order,
             mca_btl_base_rdma_completion_fn_t fn, void *context, void *data)
{
    wbtl_access *a =
        access_take(btl, endpoint, local, address, local_handle, handle, len, fn, context, data);
    (void)flags;
    return a ? begin_ordered(a, WBTL_GET, order) : not_taken(endpoint, handle);
}

/* ---- atomics ---- */

/* Returns Weft's operation, or -1 if there is none. */
static int atomic_of(mca_btl_base_atomic_op_t op)
{
    switch (op) {
    case MCA_BTL_ATOMIC_ADD: return WEFT_ATOMIC_ADD;
    case MCA_BTL_ATOMIC_AND: return WEFT_ATOMIC_AND;
    case MCA_BTL_ATOMIC_OR: return WEFT_ATOMIC_OR;
    case MCA_BTL_ATOMIC_XOR: return WEFT_ATOMIC_XOR;
    case MCA_BTL_ATOMIC_SWAP: return WEFT_ATOMIC_SWAP;
    case MCA_BTL_ATOMIC_MIN: return WEFT_ATOMIC_MIN;
    case MCA_BTL_ATOMIC_MAX: return WEFT_ATOMIC_MAX;
    default: return -1;
    }
}

/* Words are of 64 bits, or of 32 by the flag, and signed, as Open MPI's own. */
static int atomic(wbtl_access *a, int op, uint64_t operand, uint64_t compare, int flags)
{
    const bool is_short = flags & MCA_BTL_ATOMIC_FLAG_32BIT;
    a->len = is_short ? 4 : 8;
    a->what = WBTL_ATOMIC;
    a->atomic = (unsigned)op;
    a->type = is_short ? WEFT_I32 : WEFT_I64;
    a->operand = operand;
    a->compare = compare;
    a->after = weft_order_none();
    return begin(a);
}

static bool is_possible(int op, uint64_t address, int flags)
{
    return op >= 0 && !(flags & MCA_BTL_ATOMIC_FLAG_FLOAT) &&
           !(address & (flags & MCA_BTL_ATOMIC_FLAG_32BIT ? 3 : 7));
}

int wbtl_atomic_fop(mca_btl_base_module_t *btl, wbtl_peer *endpoint, void *local, uint64_t address,
                    mca_btl_base_registration_handle_t *local_handle,
                    mca_btl_base_registration_handle_t *handle, mca_btl_base_atomic_op_t op,
                    uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t fn,
                    void *context, void *data)
{
    wbtl_access *a;
    (void)order;
    if (!is_possible(atomic_of(op), address, flags))
        return OPAL_ERR_NOT_AVAILABLE;
    a = access_take(btl, endpoint, local, address, local_handle, handle, 0, fn, context, data);
    return a ? atomic(a, atomic_of(op), operand, 0, flags) : not_taken(endpoint, handle);
}

int wbtl_atomic_op(mca_btl_base_module_t *btl, wbtl_peer *endpoint, uint64_t address,
                   mca_btl_base_registration_handle_t *handle, mca_btl_base_atomic_op_t op,
                   uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t fn,
                   void *context, void *data)
{
    return wbtl_atomic_fop(btl, endpoint, NULL, address, NULL, handle, op, operand, flags, order,
                           fn, context, data);
}

int wbtl_atomic_cswap(mca_btl_base_module_t *btl, wbtl_peer *endpoint, void *local,
                      uint64_t address, mca_btl_base_registration_handle_t *local_handle,
                      mca_btl_base_registration_handle_t *handle, uint64_t compare, uint64_t value,
                      int flags, int order, mca_btl_base_rdma_completion_fn_t fn, void *context,
                      void *data)
{
    wbtl_access *a;
    (void)order;
    if (!is_possible(WEFT_ATOMIC_CAS, address, flags))
        return OPAL_ERR_NOT_AVAILABLE;
    a = access_take(btl, endpoint, local, address, local_handle, handle, 0, fn, context, data);
    return a ? atomic(a, WEFT_ATOMIC_CAS, value, compare, flags) : not_taken(endpoint, handle);
}

/* ---- flush ---- */

/* Accesses end when their peer is lost, so this does. */
int wbtl_flush(mca_btl_base_module_t *btl, wbtl_peer *endpoint)
{
    wbtl_peer *peer = wbtl_peer_of(btl, endpoint);
    struct wbtl_epochs *e = accesses_of(btl, peer);
    const unsigned epoch = atomic_load_explicit(&e->now, memory_order_relaxed);
    unsigned idle = 0;
    while (!epoch_is_over(e, epoch)) {
        int n = wbtl_turn();
        if (n < 0)
            return OPAL_ERR_RESOURCE_BUSY; /* inside a handler */
        idle = n ? 0 : idle + 1;
        if (idle >= IDLE)
            sched_yield();
    }
    return OPAL_SUCCESS;
}
