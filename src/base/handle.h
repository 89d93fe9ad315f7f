/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of closed objects. With WEFT_DEBUG=handles their memory is wiped and kept for a while,
 * so that Weft detects calls with such a handle. */
#ifndef WF_BASE_HANDLE_H
#define WF_BASE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

/* The fork generation of a closed object. */
#define WF_FORK_GEN_CLOSED UINT64_MAX

/* Limits of the objects kept; beyond either the oldest is freed. */
#define WF_HANDLES_KEPT 65536u
#define WF_HANDLES_BYTES ((size_t)64 << 20)

/* Keep closed objects from now on. Called once, before the first is freed. */
void wf_handles_keep(void);

/* Free the memory of a closed object. True: it is kept, all zero, and the caller writes the
 * fields that later calls check. Any thread. */
bool wf_handle_free(void *object);

/* The status for an object whose fork generation is not this process's: EINVAL (closed; logged)
 * | EFORKED */
enum weft_status wf_fork_gen_error(uint64_t fork_gen);

#endif
