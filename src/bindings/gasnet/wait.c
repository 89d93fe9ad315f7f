/* SPDX-License-Identifier: BSD-3-Clause */
#include "domain.h"
#include "binding.h"

/* After so many turns without an event, about 2 us, a wait calls weft_ep_wait, which yields and
 * sleeps. */
#define TURNS 64
/* The longest call of weft_ep_wait, in nanoseconds. During the call the thread does not notice what
 * arrives without a message, such as a store by another thread or by its handler. */
#define WAIT_NS 50000

__thread struct gasnetw_thread gasnetw_thread_ = {.budget = GASNETW_BUDGET - 1};
void (*_Atomic gasnetw_progress)(void);

inline void gasnetw_after_poll(void)
{
    void (*step)(void) = atomic_load_explicit(&gasnetw_progress, memory_order_relaxed);
    if (WEFT_UNLIKELY(atomic_load_explicit(&gasnetw_leaving, memory_order_relaxed)))
        gasnetw_heed_leaving();
    if (WEFT_UNLIKELY(atomic_load_explicit(&gasnetw_early, memory_order_relaxed)))
        gasnetw_early_run();
    if (WEFT_UNLIKELY(step != NULL))
        step();
    if (WEFT_UNLIKELY(gasnetw_binding.across))
        gasnetw_barrier_pass_on();
}

static int poll_ep(struct weft_ep *ep)
{
    int events = weft_ep_poll(ep);
    if (WEFT_UNLIKELY(events < 0))
        gasnetw_fatal("polling failed: %s", weft_status_text((enum weft_status)events));
    return events;
}

/* Poll the endpoint of this thread's domain, and in some calls also the job's endpoint. */
__attribute__((noinline)) static int poll_domains(void)
{
    bool first;
    struct weft_ep *ep = gasnetw_domain_ep(&first);
    int events = ep ? poll_ep(ep) : 0;
    return first ? events + poll_ep(gasnetw_binding.ep) : events;
}

int gasnetw_turn(void)
{
    int events = WEFT_UNLIKELY(gasnetw_domains > 1) ? poll_domains() : poll_ep(gasnetw_binding.ep);
    gasnetw_after_poll();
    return events;
}

void gasnetw_ask(void)
{
    const struct gasnetw_thread *t = &gasnetw_thread_;
    if (!t->busy && !t->held && gasnetw_binding.attached)
        (void)gasnetw_turn();
}

__attribute__((noinline, cold)) void gasnetw_budget_spent(void)
{
    gasnetw_thread_.budget = GASNETW_BUDGET - 1; /* spent when it is below 0 */
    gasnetw_ask();
}

/* Poll the job's endpoint, then wait at the endpoint of this thread's domain. Returns the number of
 * events. */
static int doze(void)
{
    struct weft_ep *ep = NULL;
    bool first;
    int events = 0;
    if (gasnetw_domains > 1)
        ep = gasnetw_domain_ep(&first);
    if (ep)
        events = poll_ep(gasnetw_binding.ep);
    if (!events)
        events = weft_ep_wait(ep ? ep : gasnetw_binding.ep, WAIT_NS);
    if (events < 0)
        gasnetw_fatal("polling failed: %s", weft_status_text((enum weft_status)events));
    gasnetw_after_poll();
    return events;
}

void gasnetw_wait_turn(struct gasnetw_wait *w)
{
    if (WEFT_UNLIKELY(gasnetw_in_handler()))
        gasnetw_fatal("a handler waits for other messages: it must not");
    if (gasnetw_turn()) {
        w->turns = 0;
        return;
    }
    if (w->turns < (gasnetw_binding.crowded ? 1 : TURNS))
        w->turns++;
    else if (doze())
        w->turns = 0;
}
