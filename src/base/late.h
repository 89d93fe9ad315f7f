/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that compute on the processors of a context or node service, noticed by yields that
 * last long.
 *
 * A yield that lasts longer than LATE_NS is late. A process that computes keeps a processor for its
 * time slice, mostly 2 ms and more. A turn of ranks that wait, yield and sleep can last 0.6 ms.
 * On two processors beside two processes that compute, 20 to 50 of 100 yields are late. Beside
 * 15 ranks that wait, 1 or 2 of 1,000 are. So the share of late yields decides:
 *
 *   a late yield         adds LATE_ADDS to the score, which is at most LATE_MOST
 *   any other yield      takes 1 from the score
 *   a late yield that brings the score to LATE_ENOUGH begins a hold of HOLD_MIN_NS to HOLD_MAX_NS
 *
 * LATE_MOST lets one late yield begin the next hold if up to LATE_MOST + LATE_ADDS - LATE_ENOUGH
 * yields before it were in time.
 *
 *   state   when                                       waits
 *   none    at first                                   spin, yield, sleep
 *   held    during a hold                              sleep at once
 *   trial   HOLDS times the length of the hold after   yield, sleep
 *
 * In a trial the next hold is twice as long as the one before. Behind the trial the state is none.
 * Any thread calls these functions. Of two yields that threads count at the same time, the score
 * may miss one. */
#ifndef WF_BASE_LATE_H
#define WF_BASE_LATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wf_late {
    _Atomic bool any; /* state held or trial */
    _Atomic unsigned score;
    _Atomic uint64_t until_ns, hold_ns; /* end and length of the last hold */
};

enum wf_late_state {
    WF_LATE_NONE,
    WF_LATE_HELD,
    WF_LATE_TRIAL,
};

/* Longest time between two readings of the clock while a thread spins, and longest yield, that is
 * not late. */
#define WF_LATE_NS 1500000

/* Count a yield, or spins between two readings of the clock, of [took_ns], which ended at
 * [now_ns]. Returns true if a hold began or goes on. */
bool wf_late_count(struct wf_late *late, uint64_t took_ns, uint64_t now_ns);

/* Yield the processor, and count the yield. Returns as wf_late_count. */
bool wf_late_yield(struct wf_late *late);

enum wf_late_state wf_late_state(struct wf_late *late, uint64_t now_ns);

#endif
