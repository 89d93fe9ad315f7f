/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting. If ranks outnumber processors, a rank that spins takes the processor from the rank for
 * which it waits. So a rank yields at once in this case. (One barrier of 16 ranks on 2 processors:
 * 12 us if the ranks yield at once, 35 us with 200 spins before each yield.) */
#define _GNU_SOURCE
#include "core/wait.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/late.h"
#include "config/config.h"
#include "core/core.h"

#define NAP_NS 50000
#define NAP_MAX_NS 5000000
#define SHARED_MAX_NS 1000000
/* longest sleep of a thread that a signal wakes; bounds the delay if the wake-up is lost */
#define WOKEN_MAX_NS 10000000
#define SPINS_PER_CLOCK 64
#define HANDLED_PER_CLOCK 16

/* ---- processes that compute on the same processors (late.h) ---- */

/* Make the wait sleep at its next turn: no more spins and yields. */
static void sleep_now(struct wf_backoff *b)
{
    b->spins = b->yields = b->turns = 0;
}

static void yield(struct wf_backoff *b)
{
    if (wf_late_yield(&b->ctx->late))
        sleep_now(b);
}

/* Spins in time are not counted: a yield in time shows more. */
static void spin(struct wf_backoff *b)
{
    uint64_t now;
    wf_relax();
    if (b->turns % SPINS_PER_CLOCK)
        return;
    now = wf_now_ns();
    if (b->seen_ns && now - b->seen_ns >= WF_LATE_NS &&
        wf_late_count(&b->ctx->late, now - b->seen_ns, now))
        sleep_now(b);
    b->seen_ns = now;
}

static void heed_late(struct wf_backoff *b)
{
    enum wf_late_state state = wf_late_state(&b->ctx->late, wf_now_ns());
    if (state == WF_LATE_HELD)
        sleep_now(b);
    else if (state == WF_LATE_TRIAL)
        b->spins = 0;
}

/* ---- the back-off of every wait ---- */

void wf_backoff_init(struct wf_backoff *b, const struct weft_ep *ep, int64_t timeout_ns)
{
    const struct wf_config *c = wf_config();
    struct weft_ctx *ctx = ep->ctx;
    unsigned ranks = atomic_load_explicit(&ctx->local_ranks, memory_order_relaxed);
    *b = (struct wf_backoff){
        .ctx = ctx, .spins = ranks > ctx->cores ? 0 : c->spin, .yields = c->yield};
    b->nap_ns = NAP_NS;
    b->nap_max_ns = WF_MIN((uint64_t)NAP_NS * WF_MAX(ranks / ctx->cores, 1u), NAP_MAX_NS);
    b->until_ns = timeout_ns < 0 ? UINT64_MAX : wf_now_ns() + (uint64_t)timeout_ns;
    if (__builtin_expect(atomic_load_explicit(&ctx->late.any, memory_order_relaxed), 0))
        heed_late(b);
}

bool wf_backoff_turn(struct wf_backoff *b)
{
    if (b->turns < b->spins)
        spin(b);
    else if (b->turns < b->spins + b->yields)
        yield(b);
    else
        return false;
    b->turns++;
    return true;
}

static bool is_over(const struct wf_backoff *b)
{
    return b->until_ns != UINT64_MAX && wf_now_ns() >= b->until_ns;
}

/* Reads the clock after SPINS_PER_CLOCK spins, and after each yield, because a yield may last a
 * time slice of another process. */
bool wf_backoff_is_over(struct wf_backoff *b)
{
    return (b->turns % SPINS_PER_CLOCK == SPINS_PER_CLOCK - 1 || b->turns >= b->spins) &&
           is_over(b);
}

bool wf_backoff_again(struct wf_backoff *b)
{
    b->turns = 0;
    b->seen_ns = 0;
    b->nap_ns = NAP_NS;
    return !(++b->handled % HANDLED_PER_CLOCK);
}

static struct timespec time_left(const struct wf_backoff *b, uint64_t at_most_ns)
{
    uint64_t now = wf_now_ns();
    uint64_t left = b->until_ns > now ? b->until_ns - now : 0;
    if (left > at_most_ns)
        left = at_most_ns;
    return (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
}

static void nap(struct wf_backoff *b)
{
    struct timespec t = time_left(b, b->nap_ns);
    b->nap_ns = WF_MIN(2 * b->nap_ns, b->nap_max_ns);
    nanosleep(&t, NULL);
}

/* Arm the endpoint, and sleep on its descriptor for at most [at_most_ns]. On a locked endpoint,
 * sleep for at most SHARED_MAX_NS: another thread may handle the event for which this thread waits,
 * and disarm the endpoint. */
static enum weft_status sleep_on_fd(struct weft_ep *ep, const struct wf_backoff *b,
                                    uint64_t at_most_ns)
{
    struct pollfd p = {.fd = ep->wait_fd, .events = POLLIN};
    bool endless = b->until_ns == UINT64_MAX && at_most_ns == UINT64_MAX && !wf_ep_is_locked(ep);
    struct timespec left =
        time_left(b, wf_ep_is_locked(ep) ? WF_MIN(at_most_ns, SHARED_MAX_NS) : at_most_ns);
    enum weft_status status = weft_ep_arm(ep);
    if (status != WEFT_OK)
        return status;
    if (ppoll(&p, 1, endless ? NULL : &left, NULL) < 0 && errno != EINTR)
        return WEFT_ESYSTEM;
    return WEFT_OK;
}

int weft_ep_wait(struct weft_ep *ep, int64_t timeout_ns)
{
    int events = weft_ep_poll(ep);
    struct wf_backoff b;
    if (events || !timeout_ns)
        return events;
    wf_backoff_init(&b, ep, timeout_ns);
    for (;;) {
        events = weft_ep_poll(ep);
        if (events)
            return events;
        if (wf_backoff_is_over(&b))
            return 0;
        if (!wf_backoff_turn(&b)) {
            enum weft_status status = sleep_on_fd(ep, &b, UINT64_MAX);
            if (status < 0)
                return status;
            events = weft_ep_poll(ep);
            if (events || is_over(&b))
                return events;
            /* If the endpoint could not be armed although the poll has found no event, a nap avoids
             * a busy loop of system calls. */
            if (status == WEFT_AGAIN)
                nap(&b);
        }
    }
}

/* ---- words ---- */

static bool word_holds(const struct weft_word *w)
{
    uint64_t mask = w->mask ? w->mask : UINT64_MAX;
    uint64_t is = __atomic_load_n(w->word, __ATOMIC_ACQUIRE) & mask; /* "signal" */
    if (w->test == WEFT_WORD_GE)
        return is >= w->value;
    return (is == w->value) == (w->test == WEFT_WORD_EQ);
}

static bool words_are_right(const struct weft_word *words, unsigned count)
{
    if (count && !words)
        return false;
    for (unsigned i = 0; i < count; i++)
        if (!words[i].word || ((uintptr_t)words[i].word & 7) || words[i].test > WEFT_WORD_NE)
            return false;
    return true;
}

static unsigned words_look(struct weft_word *words, unsigned count)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        n += words[i].holds = word_holds(&words[i]);
    return n;
}

int weft_words_test(struct weft_word *words, unsigned count)
{
    if (count > INT32_MAX || !words_are_right(words, count))
        return WEFT_EINVAL;
    return (int)words_look(words, count);
}

#define LOOKS_PER_POLL 32 /* looks at the words between two polls */
#define YIELDS_PER_POLL 4 /* few, because each yield may last a time slice */

struct words_wait {
    struct weft_ep *ep;
    struct weft_word *at;
    unsigned count, wanted;
    bool woken;
};

static inline bool words_hold(const struct words_wait *w)
{
    return words_look(w->at, w->count) >= w->wanted;
}

/* If signals wake the endpoint (WEFT_WORDS_WOKEN), sleep on its descriptor. Otherwise, or if the
 * endpoint cannot be armed, nap for a short time. */
static void words_sleep(const struct words_wait *w, struct wf_backoff *b)
{
    enum weft_status status = w->woken ? sleep_on_fd(w->ep, b, WOKEN_MAX_NS) : WEFT_ESYSTEM;
    if (status != WEFT_OK && (status != WEFT_AGAIN || weft_ep_poll(w->ep) <= 0))
        nap(b);
}

/* Look at the words until it is time to poll. Returns true if enough of them have the values that
 * the caller waits for. */
static bool words_come(const struct words_wait *w, struct wf_backoff *b)
{
    for (int i = 0; i < LOOKS_PER_POLL; i++) {
        if (words_hold(w))
            return true;
        if (!wf_backoff_turn(b)) {
            words_sleep(w, b);
            break;
        }
        if (b->turns > b->spins && i % YIELDS_PER_POLL == YIELDS_PER_POLL - 1)
            break;
    }
    return false;
}

static enum weft_status heed(struct weft_peer *peer)
{
    enum weft_status status = wf_ep_enter(peer->ep);
    return status == WEFT_OK ? wf_ep_left(peer->ep, wf_peer_heed(peer)) : status;
}

static enum weft_status words_await(const struct words_wait *w, struct weft_peer *peer,
                                    int64_t timeout_ns)
{
    struct wf_backoff b;
    bool heeded = !peer;
    int events = 0;
    wf_backoff_init(&b, w->ep, timeout_ns);
    for (;;) {
        if (!heeded) { /* AGAIN: another thread is inside, so try again after a poll */
            enum weft_status status = heed(peer);
            if (status < 0)
                return status;
            heeded = status == WEFT_OK;
        }
        if (events <= 0 && words_come(w, &b))
            return WEFT_OK;
        events = weft_ep_poll(w->ep);
        if (words_hold(w))
            return WEFT_OK;
        if (events == WEFT_EFORKED) /* a handler has forked, and this is the child */
            return WEFT_EFORKED;
        if (events > 0 && !wf_backoff_again(&b))
            continue;
        if (peer && weft_peer_status(peer) != WEFT_OK)
            return weft_peer_status(peer);
        if (is_over(&b))
            return WEFT_ETIMEDOUT;
    }
}

enum weft_status weft_words_wait(struct weft_ep *ep, struct weft_word *words, unsigned count,
                                 unsigned flags, struct weft_peer *peer, int64_t timeout_ns)
{
    struct words_wait w = {ep, words, count, flags & WEFT_WORDS_ALL ? count : 1,
                           flags & WEFT_WORDS_WOKEN};
    enum weft_status status = wf_ep_check(ep);
    if (status != WEFT_OK)
        return status;
    if (!count || flags & ~(unsigned)(WEFT_WORDS_ALL | WEFT_WORDS_WOKEN) ||
        !words_are_right(words, count) || (peer && peer->ep != ep))
        return WEFT_EINVAL;
    return words_hold(&w) ? WEFT_OK : words_await(&w, peer, timeout_ns);
}

enum weft_status weft_word_wait(struct weft_ep *ep, const uint64_t *word, uint64_t at_least,
                                struct weft_peer *peer, int64_t timeout_ns)
{
    struct weft_word one = {.word = word, .value = at_least};
    return weft_words_wait(ep, &one, 1, 0, peer, timeout_ns);
}

/* Another thread may have completed an op and still be in its function [done]. Wait until that
 * thread releases the lock. Returns false if no call at [ep] waits (WEFT_EP_NOWAIT), and the thread
 * has not released it. */
static bool done_has_returned(struct weft_ep *ep)
{
    if (!wf_ep_is_locked(ep))
        return true;
    if (wf_ep_lock_call(ep) != WEFT_OK)
        return false;
    wf_ep_leave(ep);
    return true;
}

enum weft_status weft_op_wait(struct weft_ep *ep, struct weft_op *op, int64_t timeout_ns)
{
    enum weft_status status = op ? wf_ep_check(ep) : WEFT_EINVAL;
    struct wf_backoff b;
    if (status != WEFT_OK)
        return status;
    wf_backoff_init(&b, ep, timeout_ns);
    for (;;) {
        int events;
        status = (enum weft_status)__atomic_load_n(&op->status, __ATOMIC_ACQUIRE);
        if (status != WEFT_PENDING && done_has_returned(ep))
            return status;
        events = weft_ep_poll(ep);
        if (events < 0)
            return (enum weft_status)events;
        if (events) {
            if (wf_backoff_again(&b) && is_over(&b))
                return WEFT_PENDING;
            continue;
        }
        if (wf_backoff_is_over(&b))
            return WEFT_PENDING;
        if (!wf_backoff_turn(&b)) {
            status = sleep_on_fd(ep, &b, UINT64_MAX);
            if (status < 0)
                return status;
            if (status == WEFT_AGAIN)
                nap(&b);
        }
    }
}

enum weft_status weft_op_finish(struct weft_ep *ep, enum weft_status status, struct weft_op *op,
                                int64_t timeout_ns)
{
    int events;
    if (status == WEFT_PENDING)
        return weft_op_wait(ep, op, timeout_ns);
    if (status != WEFT_AGAIN)
        return status;
    /* On a locked endpoint, another thread may handle the event that makes room, and this thread
     * would not see the event. So this thread must not sleep for long. */
    if (ep && wf_ep_is_locked(ep)) {
        int64_t most_ns = wf_ep_tries(ep) ? NAP_NS : SHARED_MAX_NS; /* no event follows a refusal */
        timeout_ns = timeout_ns < 0 ? most_ns : WF_MIN(timeout_ns, most_ns);
    }
    events = weft_ep_wait(ep, timeout_ns);
    return events < 0 ? (enum weft_status)events : WEFT_AGAIN;
}
