/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/late.h"

#include <sched.h>

#include "base/clock.h"
#include "base/util.h"

#define LATE_ADDS 16
#define LATE_ENOUGH 48
#define LATE_MOST 128
#define HOLD_MIN_NS 4000000
#define HOLD_MAX_NS 500000000
#define HOLDS 4

static void hold(struct wf_late *late, uint64_t now_ns)
{
    uint64_t until = atomic_load_explicit(&late->until_ns, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&late->hold_ns, memory_order_relaxed);
    bool is_first = !ns || now_ns > until + HOLDS * ns;
    if (now_ns < until) /* other threads have noticed the same */
        return;
    ns = is_first ? HOLD_MIN_NS : WF_MIN(2 * ns, HOLD_MAX_NS);
    atomic_store_explicit(&late->hold_ns, ns, memory_order_relaxed);
    atomic_store_explicit(&late->until_ns, now_ns + ns, memory_order_relaxed);
    atomic_store_explicit(&late->any, true, memory_order_relaxed);
}

bool wf_late_count(struct wf_late *late, uint64_t took_ns, uint64_t now_ns)
{
    unsigned score = atomic_load_explicit(&late->score, memory_order_relaxed);
    if (took_ns < WF_LATE_NS) {
        if (score)
            atomic_store_explicit(&late->score, score - 1, memory_order_relaxed);
        return false;
    }
    score = WF_MIN(score + LATE_ADDS, LATE_MOST);
    atomic_store_explicit(&late->score, score, memory_order_relaxed);
    if (score < LATE_ENOUGH)
        return false;
    hold(late, now_ns);
    return true;
}

enum wf_late_state wf_late_state(struct wf_late *late, uint64_t now_ns)
{
    uint64_t until = atomic_load_explicit(&late->until_ns, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&late->hold_ns, memory_order_relaxed);
    if (now_ns < until)
        return WF_LATE_HELD;
    if (now_ns < until + HOLDS * ns)
        return WF_LATE_TRIAL;
    atomic_store_explicit(&late->any, false, memory_order_relaxed);
    return WF_LATE_NONE;
}

bool wf_late_yield(struct wf_late *late)
{
    uint64_t before = wf_now_ns(), after;
    sched_yield();
    after = wf_now_ns();
    return wf_late_count(late, after - before, after);
}
