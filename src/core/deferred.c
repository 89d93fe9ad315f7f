/* SPDX-License-Identifier: BSD-3-Clause */
/* Deferred calls. Any thread may queue one, without the endpoint's lock: the queue is a stack,
 * [deferred], that is taken as a whole and then reversed. Bit WF_EP_DUE_DEFERRED of [due] is set
 * after each push, and cleared before the stack is taken. So the bit may be set while the stack is
 * empty, but while the stack is not empty the bit is set, or a push is about to set it.
 *
 * One thread at a time runs the deferred calls of an endpoint, which keeps their order. That thread
 * is in [deferrer], and does not hold the endpoint's lock: a function may wait for a lock of the
 * program, whose holder may wait for the endpoint's lock. A thread that finds another thread in
 * [deferrer] sets SKIPPED there, and does not wait. The running thread then runs one more round
 * before its poll returns.
 *
 * | deferrer | means | next |
 * | --- | --- | --- |
 * | 0 | no thread runs deferred calls | a poll: the thread; weft_ep_close: the thread, for good |
 * | thread | the thread runs a round | its end: 0; a poll of another thread: thread, SKIPPED |
 * | thread, SKIPPED | as above, and calls were left | after its round: thread; after ROUNDS: 0 | */
#define _GNU_SOURCE
#include "core/deferred.h"

#include <errno.h>
#include <unistd.h>

#include "base/log.h"

#define QUEUED 0x64656672u /* weft_deferred.state_ of an item that is queued; else 0 */
#define SKIPPED UINT64_C(1)
/* Rounds that one poll runs at most, if threads keep skipping. A bound is needed, since a function
 * may defer itself again in each round. */
#define ROUNDS 4

/* What [deferred] points to when the endpoint has closed. */
static struct weft_deferred closed_mark;

/* Make the endpoint's descriptor readable, if a thread sleeps on it, or may sleep: the progress
 * thread watches the descriptor even while the endpoint is not armed. A call from inside of poll
 * needs none of this, because that poll runs the item. */
void wf_ep_wake(struct weft_ep *ep)
{
    uint64_t one = 1;
    if (wf_ep_is_locked(ep) && wf_load_relaxed(&ep->poller) == wf_thread_self())
        return;
    if (!(wf_ep_flags(ep) & WF_EP_ARMED) && !ep->ctx->progress.on)
        return;
    if (write(ep->event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake the thread that sleeps at endpoint %u: %m", ep->address.ep);
}

/* Mark [item] as queued. */
static enum weft_status claim(struct weft_deferred *item)
{
    uint32_t state = 0;
    if (__atomic_compare_exchange_n(&item->state_, &state, QUEUED, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return WEFT_OK;
    if (state == QUEUED)
        return WEFT_EBUSY;
    wf_error("weft_ep_defer: the struct weft_deferred was not zeroed before its first use");
    return WEFT_EINVAL;
}

static enum weft_status push(struct weft_ep *ep, struct weft_deferred *item)
{
    struct weft_deferred *top = wf_load_relaxed(&ep->deferred);
    do {
        if (top == &closed_mark)
            return WEFT_ECLOSED;
        item->next_ = top;
    } while (!atomic_compare_exchange_weak_explicit(&ep->deferred, &top, item, /* "deferred" */
                                                    memory_order_release, memory_order_relaxed));
    return WEFT_OK;
}

enum weft_status weft_ep_defer(struct weft_ep *ep, struct weft_deferred *item)
{
    enum weft_status status;
    if (!ep || !item)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    if (!item->fn)
        return WEFT_EINVAL;
    status = claim(item);
    if (status != WEFT_OK)
        return status;
    if (wf_ep_defers_here(ep) && ep->deferred_now == item)
        ep->deferred_again = true;
    atomic_fetch_add_explicit(&ep->deferring, 1, memory_order_relaxed);
    status = push(ep, item);
    /* After a push, [item] may have run, and its memory may be gone. */
    if (status != WEFT_OK)
        __atomic_store_n(&item->state_, 0, __ATOMIC_RELAXED);
    else if (!(atomic_fetch_or_explicit(&ep->due, WF_EP_DUE_DEFERRED, memory_order_acq_rel) &
               WF_EP_DUE_DEFERRED)) /* "deferred sleep" */
        wf_ep_wake(ep);
    atomic_fetch_sub_explicit(&ep->deferring, 1,
                              memory_order_release); /* wf_deferred_stop loads it */
    return status;
}

/* Put the items of a stack in the order in which they were queued. */
static struct weft_deferred *reverse(struct weft_deferred *top)
{
    struct weft_deferred *first = NULL;
    while (top) {
        struct weft_deferred *next = top->next_;
        top->next_ = first;
        first = top;
        top = next;
    }
    return first;
}

/* Call the functions of the items from [item] on. A function may free its item, or queue it again.
 * Returns how many did not queue it again. */
static int call_all(struct weft_ep *ep, struct weft_deferred *item, enum weft_status status)
{
    int n = 0;
    for (struct weft_deferred *next; item; item = next) {
        void (*fn)(struct weft_deferred * call) = item->fn;
        next = item->next_;
        ep->deferred_now = item;
        ep->deferred_again = false;
        item->ep = ep;
        item->status = status;
        __atomic_store_n(&item->state_, 0, __ATOMIC_RELEASE);
        /* another thread may queue the item from here on */
        fn(item);
        n += !ep->deferred_again;
        if (!wf_fork_gen_is(ep->fork_gen)) /* the function has forked, and this is the child */
            return n;
    }
    ep->deferred_now = NULL;
    return n;
}

/* Run the items that are queued now. Items that their functions queue stay for the next round. */
static int round_do(struct weft_ep *ep)
{
    (void)atomic_fetch_and_explicit(&ep->due, ~(uint32_t)WF_EP_DUE_DEFERRED, memory_order_acq_rel);
    return call_all(ep,
                    reverse(atomic_exchange_explicit(&ep->deferred, NULL, /* "deferred" */
                                                     memory_order_acquire)),
                    WEFT_OK);
}

/* Enter this thread in [deferrer]. Returns false if a thread is there already. Then that thread
 * gets the mark SKIPPED. */
static bool begin(struct weft_ep *ep, uint64_t self)
{
    uint64_t is = 0;
    while (!atomic_compare_exchange_weak_explicit(&ep->deferrer, &is, is ? is | SKIPPED : self,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
    return !is;
}

/* Leave [deferrer]. Returns false if calls were skipped: then this thread has to run one more
 * round. [last]: leave in any case. From a return of true on, [ep] may be gone. */
static bool end(struct weft_ep *ep, uint64_t self, bool last)
{
    uint64_t is = self;
    if (atomic_compare_exchange_strong_explicit(&ep->deferrer, &is, 0, memory_order_acq_rel,
                                                memory_order_relaxed))
        return true;
    wf_store_release(&ep->deferrer, last ? 0 : self);
    return last;
}

int wf_deferred_run(struct weft_ep *ep)
{
    const uint64_t self = wf_thread_self();
    const bool locked = wf_ep_is_locked(ep);
    int n = 0;
    if (!wf_fork_gen_is(ep->fork_gen) || !begin(ep, self)) /* a handler has forked */
        return 0;
    if (!locked)
        wf_ep_set_flags(ep, wf_ep_flags(ep) | WF_EP_DEFERS);
    for (int rounds = 1;; rounds++) {
        n += round_do(ep);
        if (!wf_fork_gen_is(ep->fork_gen))
            return n;
        if (rounds == ROUNDS && wf_load_relaxed(&ep->deferrer) & SKIPPED)
            wf_ep_wake(ep);
        if (!locked)
            wf_ep_set_flags(ep, wf_ep_flags(ep) & ~(uint32_t)WF_EP_DEFERS);
        if (end(ep, self, rounds == ROUNDS))
            return n;
    }
}

bool wf_deferred_is_elsewhere(struct weft_ep *ep)
{
    uint64_t by = atomic_load_explicit(&ep->deferrer, memory_order_acquire) & ~SKIPPED;
    return (by && by != wf_thread_self()) ||
           atomic_load_explicit(&ep->deferring, memory_order_acquire);
}

enum weft_status wf_deferred_stop(struct weft_ep *ep)
{
    const uint64_t self = wf_thread_self();
    if (!begin(ep, self))
        return WEFT_EBUSY;
    if (!atomic_load_explicit(&ep->deferring, memory_order_acquire)) /* weft_ep_defer subtracts */
        return WEFT_OK;
    (void)end(ep, self, true);
    return WEFT_EBUSY;
}

void wf_deferred_close(struct weft_ep *ep)
{
    struct weft_deferred *top = atomic_exchange_explicit(&ep->deferred, &closed_mark,
                                                         memory_order_acquire); /* "deferred" */
    wf_ep_set_busy(ep, true);
    (void)call_all(ep, reverse(top), WEFT_ECANCELED);
    wf_ep_set_busy(ep, false);
}
