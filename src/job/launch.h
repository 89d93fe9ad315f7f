/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher, seen from a rank: a PMIx client whose waits are all bounded.
 *
 * Calls of libpmix block without a limit if the launcher's server is stopped. Therefore each call
 * runs on a new thread, while the caller waits with a deadline. If the deadline passes first, the
 * thread goes on and keeps all that it uses: struct wf_launch_mine is then never freed. The
 * launcher counts as stuck for the rest of this process. Signals are blocked on these threads. The
 * threads that libpmix starts inherit the blocked signals.
 *
 * A process has one launcher, because PMIx gives a process one identity. */
#ifndef WF_JOB_LAUNCH_H
#define WF_JOB_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "job/card.h"

struct wf_launch {
    unsigned rank, size;
    bool one_node;   /* according to the launcher, all ranks are on this node */
    bool has_secret; /* the launcher gave a secret (card.h) */
    unsigned char secret[WF_SECRET];
    struct wf_launch_mine *mine;
};

/* Was this process started by a launcher that speaks PMIx? */
bool wf_launch_present(void);

/* Connect to the launcher, and fill in [launch]. Returns OK | ETIMEDOUT | ESYSTEM | EPROTO | ENOMEM
 * | EBUSY (an earlier call is stuck) */
enum weft_status wf_launch_open(struct wf_launch *launch, uint64_t deadline_ns);

/* Give all ranks the secret in rank 0's [launch]. All ranks call it, before they exchange cards.
 * Returns as wf_launch_exchange. On OK, [secret] and has_secret are set. */
enum weft_status wf_launch_share_secret(struct wf_launch *launch, uint64_t deadline_ns);

/* Publish the card [mine], wait for all ranks, and get the cards of all ranks. [cards] has room for
 * [size] cards.
 * Returns OK | EPEER (a rank died or left) | ETIMEDOUT | ESYSTEM | EPROTO | EVERSION | ENOMEM */
enum weft_status wf_launch_exchange(struct wf_launch *launch, const struct wf_card *mine,
                                    struct wf_card *cards, uint64_t deadline_ns);

/* Has the launcher reported that [rank] failed? Any thread may ask. */
bool wf_launch_failed(const struct wf_launch *launch, unsigned rank);
/* Returns how many failures the launcher has reported; costs one load. */
unsigned wf_launch_failures(const struct wf_launch *launch);

/* Disconnect from the launcher. After that, the launcher does not treat the exit of this process as
 * a failure. Waits at most [at_most_ns]. */
void wf_launch_close(struct wf_launch *launch, uint64_t at_most_ns);

/* Ask the launcher to end all ranks of the job. Waits at most 2 s for the answer. */
void wf_launch_abort(struct wf_launch *launch, int code, const char *why);

#endif
