/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher, seen from a rank: a PMIx client whose waits are all bounded.
 *
 * libpmix's calls block without a limit when the server is stopped. So each call runs on a thread
 * of its own, while the caller waits with a deadline. If the deadline passes, the thread stays,
 * with all it uses (struct wf_launch_mine is then never freed), and the launcher counts as stuck
 * for the rest of this process. Signals are blocked on these threads, and so on those that libpmix
 * starts.
 *
 * There is one per process: PMIx gives a process one identity. */
#ifndef WF_JOB_LAUNCH_H
#define WF_JOB_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "job/card.h"

struct wf_launch {
    unsigned rank, size;
    bool one_node;   /* according to the launcher all ranks are on this node */
    bool has_secret; /* the launcher gave one: card.h */
    unsigned char secret[WF_SECRET];
    struct wf_launch_mine *mine;
};

/* Was this process started by a launcher that speaks PMIx? */
bool wf_launch_present(void);

/* Join. Returns OK | ETIMEDOUT | ESYSTEM | EPROTO | ENOMEM | EBUSY (stuck). */
enum weft_status wf_launch_open(struct wf_launch *launch, uint64_t deadline_ns);

/* Publish [mine], wait for all ranks, and get their cards: [cards] has room for [size].
 * Returns OK | EPEER (a member died or left) | ETIMEDOUT | ESYSTEM | EPROTO | EVERSION */
enum weft_status wf_launch_exchange(struct wf_launch *launch, const struct wf_card *mine,
                                    struct wf_card *cards, uint64_t deadline_ns);

/* Has the launcher reported that [rank] failed? Any thread. */
bool wf_launch_failed(const struct wf_launch *launch, unsigned rank);
/* How many such reports there were. One load. */
unsigned wf_launch_failures(const struct wf_launch *launch);

/* Leave: an exit after this is no failure. Waits at most [at_most_ns]. */
void wf_launch_close(struct wf_launch *launch, uint64_t at_most_ns);

/* Ask the launcher to end the job; waits at most 2 s for its answer. */
void wf_launch_abort(struct wf_launch *launch, int code, const char *why);

#endif
