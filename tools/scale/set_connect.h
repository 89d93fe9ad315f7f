/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects the queue pairs of a set. */
#ifndef WEFT_SCALE_SET_CONNECT_H
#define WEFT_SCALE_SET_CONNECT_H

#include "category.h"

/* Does the NIC move the messages' bytes? Simulated ones do not. */
bool wf_hca_moves(const struct wf_hca_ops *ops);

/* Gives each queue pair a peer: simulated NICs need none; on others, a queue pair of the same
 * process, on contexts that the ledger does not count. Sets wf_user.remote and rkey. */
enum weft_status wf_set_connect(struct wf_set *set);
void wf_set_disconnect(struct wf_set *set);

#endif
