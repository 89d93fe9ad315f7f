/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher, seen from a rank: a PMIx client whose every wait is bounded.
 *
 * libpmix's calls block without a limit when the server is stopped, so each
 * runs on a thread of its own while the caller waits with a deadline. If the
 * deadline passes, the thread is left behind with all it uses (struct
 * wf_launch is then never freed) and the launcher counts as stuck for the rest
 * of this process. Signals are blocked on those threads and so on the
 * library's own.
 *
 * One per process: PMIx has one identity. */
#ifndef WF_JOB_LAUNCH_H
#define WF_JOB_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "job/card.h"

struct wf_launch {
    unsigned rank, size;
    bool one_node;   /* the launcher says that all ranks are on this node */
    bool has_secret; /* the launcher gave the job one: card.h */
    unsigned char secret[WF_SECRET];
    struct wf_launch_mine *mine;
};

/* Was this process started by a launcher that speaks PMIx? */
bool wf_launch_present(void);

/* Join. Returns OK | ETIMEDOUT | ESYSTEM | EPROTO | ENOMEM | EBUSY (stuck). */
enum weft_status wf_launch_open(struct wf_launch *launch, uint64_t deadline_ns);

/* Hand in [mine], wait for all the ranks and get theirs; [cards] has [size]
 * places.
 * Returns OK | EPEER (a member died or left) | ETIMEDOUT | ESYSTEM | EPROTO | EVERSION */
enum weft_status wf_launch_exchange(struct wf_launch *launch, const struct wf_card *mine,
                                    struct wf_card *cards, uint64_t deadline_ns);

/* Has the launcher said that [rank] failed? Any thread. */
bool wf_launch_failed(const struct wf_launch *launch, unsigned rank);
/* How often it has said so of any rank. One load. */
unsigned wf_launch_failures(const struct wf_launch *launch);

/* Leave: from now on an exit is a departure. Waits at most so long. */
void wf_launch_close(struct wf_launch *launch, uint64_t at_most_ns);

/* Ask the launcher to end the job; waits at most 2 s for it to hear. */
void wf_launch_abort(struct wf_launch *launch, int code, const char *why);

#endif
