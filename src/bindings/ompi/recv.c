/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that arrive. Open MPI's callback gets the payload where it lies. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

int wbtl_register(mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                  mca_btl_base_module_recv_cb_fn_t fn, void *arg)
{
    (void)btl;
    if (tag >= MCA_BTL_TAG_MAX)
        return OPAL_ERR_BAD_PARAM;
    mca_btl_base_active_message_trigger[tag].cbdata = arg;
    mca_btl_base_active_message_trigger[tag].cbfunc = fn;
    return OPAL_SUCCESS;
}

void wbtl_incoming_init(struct wbtl_incoming *in)
{
    in->des.des_segments = &in->segment;
    in->des.des_segment_count = 1;
    in->des.des_cbfunc = NULL;
    in->des.des_flags = 0;
    in->des.order = MCA_BTL_NO_ORDER;
}

static inline void deliver(struct wbtl_incoming *in, mca_btl_base_tag_t tag, void *data, size_t len)
{
    const mca_btl_active_message_callback_t *to = &mca_btl_base_active_message_trigger[tag];
    in->segment.seg_addr.pval = data;
    in->segment.seg_len = len;
    to->cbfunc(&wbtl.super, tag, &in->des, to->cbdata);
}

/* A message without a tag, or with a tag that this process has not registered, is dropped. */
__attribute__((noinline)) static void drop(const struct weft_am *am)
{
    uint32_t tag = am->nargs == 1 && am->args[0] < MCA_BTL_TAG_MAX ? am->args[0] : MCA_BTL_TAG_MAX;
    if (wbtl.bad_tags[tag])
        return;
    wbtl.bad_tags[tag] = 1;
    opal_output(0,
                "btl weft: messages with the tag %u are dropped, because nothing in this process "
                "has registered the tag: all ranks need the same components of Open MPI",
                (unsigned)tag);
}

/* May the handler wait for progress? It runs on Weft's thread then, and holds the endpoint's lock:
 * no thread may wait for the end of an operation of that endpoint (wbtl_hold_begin). */
static bool may_wait(void)
{
    return wbtl.own_thread && atomic_load_explicit(&wbtl.holds, memory_order_relaxed) == 1 &&
           atomic_load_explicit(&wbtl.ports[0].poller, memory_order_relaxed) != wbtl_self();
}

static bool is_full(void)
{
    return atomic_load_explicit(&wbtl.copied, memory_order_relaxed) >= WBTL_COPIES;
}

bool wbtl_has_room(void)
{
    return !is_full() || atomic_load_explicit(&wbtl.overdue, memory_order_relaxed);
}

/* Wait until there is room for a copy. The caller holds the lock. */
static void room_wait(void)
{
    while (!wbtl_has_room() && may_wait())
        pthread_cond_wait(&wbtl.taken, &wbtl.lock);
}

/* A callback that has not returned keeps this thread from delivering copies. The callback may want
 * a lock of Open MPI's that this thread holds, or this thread runs the callback itself. If this
 * thread waits for the end of an operation, Weft has to receive: so a callback that lasts for long
 * suspends the bound. */
static void delivery_refused(void)
{
    if (!is_full())
        return;
    wbtl_lock();
    if (!wbtl.refused_ns)
        wbtl.refused_ns = wbtl_now_ns();
    else if (wbtl_now_ns() - wbtl.refused_ns > WBTL_OVERDUE_NS) {
        atomic_store_explicit(&wbtl.overdue, true, memory_order_relaxed);
        pthread_cond_broadcast(&wbtl.taken);
    }
    wbtl_unlock();
}

void wbtl_hold_begin(void)
{
    wbtl_lock();
    atomic_fetch_add(&wbtl.holds, 1);
    atomic_fetch_add(&wbtl.copies, 1);
    pthread_cond_broadcast(&wbtl.taken);
    wbtl_unlock();
}

void wbtl_hold_end(void)
{
    atomic_fetch_sub(&wbtl.holds, 1);
    atomic_fetch_sub(&wbtl.copies, 1);
}

__attribute__((noinline)) static void copy(const struct weft_am *am)
{
    struct wbtl_received *r;
    if (wbtl.abandoned)
        return;
    r = malloc(sizeof *r + am->len);
    if (!r) {
        atomic_store(&wbtl.message_lost, true);
        atomic_store(&wbtl.loss_due, true);
        return;
    }
    r->next = NULL;
    r->tag = (mca_btl_base_tag_t)am->args[0];
    r->len = am->len;
    memcpy(r->data, am->data, am->len);
    wbtl_lock();
    room_wait();
    atomic_fetch_add_explicit(&wbtl.copied, sizeof *r + r->len, memory_order_relaxed);
    if (atomic_load_explicit(&wbtl.received, memory_order_relaxed))
        wbtl.received_last->next = r;
    else {
        atomic_store_explicit(&wbtl.received, r, memory_order_relaxed);
        atomic_fetch_add(&wbtl.copies, 1);
    }
    wbtl.received_last = r;
    wbtl_unlock();
}

void wbtl_on_message(const struct weft_am *am)
{
    if (OPAL_UNLIKELY(am->nargs != 1 || am->args[0] >= MCA_BTL_TAG_MAX ||
                      !mca_btl_base_active_message_trigger[am->args[0]].cbfunc))
        drop(am);
    else if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.copies, memory_order_relaxed)))
        copy(am);
    else
        deliver(&wbtl.incoming, (mca_btl_base_tag_t)am->args[0], (void *)(uintptr_t)am->data,
                am->len);
}

/* Remove the first copy, [r]. */
static void received_remove(struct wbtl_received *r)
{
    wbtl_lock();
    atomic_store_explicit(&wbtl.received, r->next, memory_order_relaxed);
    if (!r->next)
        atomic_fetch_sub(&wbtl.copies, 1);
    atomic_fetch_sub_explicit(&wbtl.copied, sizeof *r + r->len, memory_order_relaxed);
    atomic_store_explicit(&wbtl.overdue, false, memory_order_relaxed);
    wbtl.refused_ns = 0;
    pthread_cond_signal(&wbtl.taken);
    wbtl_unlock();
    free(r);
}

void wbtl_received_free(void)
{
    struct wbtl_received *r;
    while ((r = atomic_load_explicit(&wbtl.received, memory_order_relaxed)))
        received_remove(r);
}

/* One at a time, so that messages with an order keep it: the list is not empty before the callback
 * of its last message has returned. ("delivering", acquire and release: what callbacks wrote.) */
int wbtl_received_deliver(void)
{
    static atomic_bool inside;
    struct wbtl_incoming in;
    struct wbtl_received *r;
    int n = 0;
    if (atomic_exchange_explicit(&inside, true, memory_order_acquire)) {
        delivery_refused();
        return 0;
    }
    wbtl_incoming_init(&in);
    for (; n < WBTL_ROUND; n++) {
        wbtl_lock();
        r = atomic_load_explicit(&wbtl.received, memory_order_relaxed);
        wbtl_unlock();
        if (!r)
            break;
        deliver(&in, r->tag, r->data, r->len);
        received_remove(r);
    }
    atomic_store_explicit(&inside, false, memory_order_release);
    return n;
}
