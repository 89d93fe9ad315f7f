/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting: spin while cores are idle, yield, then sleep. Where ranks outnumber
 * cores, spinning takes the core from the rank that is waited for: yield at
 * once (16 ranks on 2 cores, one barrier: 12 us yielding at once, 35 us with 200
 * spins before each yield). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "config/config.h"
#include "core/core.h"

#define NAP_MAX_NS 50000
#define SHARED_MAX_NS 1000000

struct backoff {
    uint64_t turns, spins, yields;
    uint64_t start_ns, until_ns; /* 0: not asked yet; until UINT64_MAX: no limit */
};

static void backoff_init(struct backoff *b, const struct weft_ep *ep, int64_t timeout_ns)
{
    const struct wf_config *c = wf_config();
    unsigned ranks = atomic_load_explicit(&ep->ctx->local_ranks, memory_order_relaxed);
    *b = (struct backoff){.spins = ranks > ep->ctx->cores ? 0 : c->spin, .yields = c->yield};
    b->until_ns = timeout_ns < 0 ? UINT64_MAX : wf_now_ns() + (uint64_t)timeout_ns;
}

/* Spin or yield once. False: it is time to sleep. */
static bool backoff_turn(struct backoff *b)
{
    if (b->turns < b->spins)
        wf_relax();
    else if (b->turns < b->spins + b->yields)
        sched_yield();
    else
        return false;
    b->turns++;
    return true;
}

static bool backoff_over(const struct backoff *b)
{
    return b->until_ns != UINT64_MAX && wf_now_ns() >= b->until_ns;
}

static struct timespec time_left(const struct backoff *b, uint64_t at_most_ns)
{
    uint64_t now = wf_now_ns();
    uint64_t left = b->until_ns > now ? b->until_ns - now : 0;
    if (left > at_most_ns)
        left = at_most_ns;
    return (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
}

static void nap(const struct backoff *b)
{
    struct timespec t = time_left(b, NAP_MAX_NS);
    nanosleep(&t, NULL);
}

/* Of a locked endpoint: another thread may handle what this one waits for, and
 * disarm it, so it looks again after SHARED_MAX_NS. */
static enum weft_status sleep_on_fd(struct weft_ep *ep, const struct backoff *b)
{
    struct pollfd p = {.fd = ep->wait_fd, .events = POLLIN};
    bool shared = ep->locked;
    struct timespec left = time_left(b, shared ? SHARED_MAX_NS : UINT64_MAX);
    enum weft_status status = weft_ep_arm(ep);
    if (status != WEFT_OK)
        return status;
    if (ppoll(&p, 1, b->until_ns == UINT64_MAX && !shared ? NULL : &left, NULL) < 0 &&
        errno != EINTR)
        return WEFT_ESYSTEM;
    return WEFT_OK;
}

int weft_ep_wait(struct weft_ep *ep, int64_t timeout_ns)
{
    int events = weft_ep_poll(ep);
    struct backoff b;
    if (events || !timeout_ns)
        return events;
    backoff_init(&b, ep, timeout_ns);
    for (;;) {
        events = weft_ep_poll(ep);
        if (events)
            return events;
        /* A yield may cost a slice of whoever computes: look at the clock after each. */
        if (((b.turns & 63) == 63 || b.turns > b.spins) && backoff_over(&b))
            return 0;
        if (!backoff_turn(&b)) {
            enum weft_status status = sleep_on_fd(ep, &b);
            if (status < 0)
                return status;
            events = weft_ep_poll(ep);
            if (events || backoff_over(&b))
                return events;
            if (status == WEFT_AGAIN) /* armed in vain: no busy loop of system calls */
                nap(&b);
        }
    }
}

static bool word_reached(const uint64_t *word, uint64_t at_least)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= at_least;
}

enum weft_status weft_word_wait(struct weft_ep *ep, const uint64_t *word, uint64_t at_least,
                                struct weft_peer *peer, int64_t timeout_ns)
{
    enum weft_status status = wf_ep_enter(ep);
    struct backoff b;
    if (status != WEFT_OK)
        return status;
    if (!word || ((uintptr_t)word & 7) || (peer && peer->ep != ep))
        return wf_ep_left(ep, WEFT_EINVAL);
    if (word_reached(word, at_least))
        return wf_ep_left(ep, WEFT_OK);
    if (peer)
        status = wf_peer_heed(peer);
    wf_ep_leave(ep);
    if (status != WEFT_OK)
        return status;
    backoff_init(&b, ep, timeout_ns);
    for (;;) {
        for (int i = 0; i < 32; i++) { /* the word is what comes; messages now and then */
            if (word_reached(word, at_least))
                return WEFT_OK;
            if (!backoff_turn(&b)) {
                nap(&b);
                break;
            }
            if (b.turns > b.spins && i % 4 == 3) /* yields: each may cost a slice */
                break;
        }
        (void)weft_ep_poll(ep);
        if (word_reached(word, at_least))
            return WEFT_OK;
        if (peer && weft_peer_status(peer) != WEFT_OK)
            return weft_peer_status(peer);
        if (backoff_over(&b))
            return WEFT_ETIMEDOUT;
    }
}

enum weft_status weft_op_wait(struct weft_ep *ep, struct weft_op *op, int64_t timeout_ns)
{
    enum weft_status status = op ? wf_ep_enter(ep) : WEFT_EINVAL;
    unsigned busy = 0;
    struct backoff b;
    if (status != WEFT_OK)
        return status;
    wf_ep_leave(ep);
    backoff_init(&b, ep, timeout_ns);
    for (;;) {
        int events;
        status = (enum weft_status)__atomic_load_n(&op->status, __ATOMIC_ACQUIRE);
        if (status != WEFT_PENDING) {
            if (ep->locked) { /* whoever ended it may still be in its done */
                pthread_mutex_lock(&ep->lock);
                pthread_mutex_unlock(&ep->lock);
            }
            return status;
        }
        events = weft_ep_poll(ep);
        if (events < 0)
            return (enum weft_status)events;
        if (events) {
            b.turns = 0;
            if (!(++busy & 15) && backoff_over(&b))
                return WEFT_PENDING;
            continue;
        }
        if (((b.turns & 63) == 63 || b.turns > b.spins) && backoff_over(&b))
            return WEFT_PENDING;
        if (!backoff_turn(&b)) {
            status = sleep_on_fd(ep, &b);
            if (status < 0)
                return status;
            if (status == WEFT_AGAIN)
                nap(&b);
        }
    }
}
