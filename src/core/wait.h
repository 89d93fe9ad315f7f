/* SPDX-License-Identifier: BSD-3-Clause */
/* How every wait of the library backs off: it spins while cores are idle, yields, then sleeps.
 *
 *     struct wf_backoff b;
 *     wf_backoff_init(&b, ep, timeout_ns);
 *     for (;;) {
 *         if (the condition holds)
 *             return;
 *         if (weft_ep_poll(ep) > 0)
 *             wf_backoff_again(&b);
 *         else if (wf_backoff_is_over(&b))
 *             return;
 *         else if (!wf_backoff_turn(&b))
 *             sleep;
 *     }
 *
 * Other processes that compute on the same cores are noticed by the time they take: a yield, or
 * some spins, that lasted longer than LATE_NS. Then the waits of this context neither spin nor
 * yield for a hold of HOLD_MIN_NS to HOLD_MAX_NS. The kernel gives a core to a sleeping process as
 * soon as it is woken, but not to one that has used up its time slice. After the hold they yield,
 * which shows whether yields are late still; if so, the next hold is twice as long. When no yield
 * was late for HOLDS holds, they spin again.
 *
 * Where nothing wakes, a sleep is a nap of NAP_NS. If ranks outnumber cores by far, such naps would
 * take all of the cores' time (a nap costs some 5 us). So each nap of a wait is twice as long as
 * the one before, up to NAP_NS for each rank per core, and NAP_MAX_NS at most. (Put and
 * acknowledgement, one server and one client beside two busy loops on two cores: 4.1 ms before, 21
 * us so; bench/crowd.c.)
 */
#ifndef WF_CORE_WAIT_H
#define WF_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_backoff {
    struct weft_ctx *ctx;
    uint64_t turns, spins, yields;
    uint64_t until_ns; /* UINT64_MAX: no limit */
    uint64_t seen_ns;  /* the clock, while it spins; 0: not read yet */
    uint64_t nap_ns, nap_max_ns;
    unsigned handled; /* of wf_backoff_again */
};

/* Negative [timeout_ns]: no limit. */
void wf_backoff_init(struct wf_backoff *b, const struct weft_ep *ep, int64_t timeout_ns);

/* Spin or yield once. False: it is time to sleep. */
bool wf_backoff_turn(struct wf_backoff *b);

/* Is the time over? Reads the clock as rarely as possible. */
bool wf_backoff_is_over(struct wf_backoff *b);

/* A poll handled something, so more may follow: spin again. True, every HANDLED_PER_CLOCK calls:
 * read the clock now. */
bool wf_backoff_again(struct wf_backoff *b);

#endif
