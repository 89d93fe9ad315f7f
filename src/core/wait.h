/* SPDX-License-Identifier: BSD-3-Clause */
/* How each wait of the library backs off. A wait first spins, then yields the processor, then
 * sleeps.
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
 * Other processes may compute on the same processors. Late yields show it (late.h). Then the waits
 * of this context neither spin nor yield for a time, but sleep at once. The reason: the kernel
 * gives a processor to a sleeping process as soon as that process is woken, but not to a process
 * that has used up its time slice.
 *
 * Where nothing wakes a waiting thread, it sleeps in naps of NAP_NS. If ranks outnumber processors
 * by far, such naps would take all of the processors' time, because a nap costs about 5 us. So each
 * nap of a wait is twice as long as the nap before. The longest nap is NAP_NS times the number of
 * ranks per processor, and at most NAP_MAX_NS.
 *
 * Measured with bench/crowd.c, put and acknowledgement between one server and one client beside two
 * busy loops on two processors: 21 us. Waits that do not notice other processes took 4.1 ms. */
#ifndef WF_CORE_WAIT_H
#define WF_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_backoff {
    struct weft_ctx *ctx;
    uint64_t turns, spins, yields;
    uint64_t until_ns; /* UINT64_MAX: no limit */
    uint64_t seen_ns;  /* last reading of the clock while spinning; 0: not read yet */
    uint64_t nap_ns, nap_max_ns;
    unsigned handled; /* number of calls of wf_backoff_again */
};

/* Begin a wait on [ep]. A negative [timeout_ns] means no limit. */
void wf_backoff_init(struct wf_backoff *b, const struct weft_ep *ep, int64_t timeout_ns);

/* Spin or yield once. Returns false if it is time to sleep instead. */
bool wf_backoff_turn(struct wf_backoff *b);

/* Returns true if the timeout is over. Reads the clock only at some of the calls, because a reading
 * takes time. */
bool wf_backoff_is_over(struct wf_backoff *b);

/* Called after a poll that handled events. More events may follow soon, so the wait spins again.
 * Returns true once in HANDLED_PER_CLOCK calls. The caller then has to read the clock. */
bool wf_backoff_again(struct wf_backoff *b);

#endif
