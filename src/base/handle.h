/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of closed objects. With WEFT_DEBUG=handles, the memory of a closed object is zeroed but
 * not freed for a while. If a call is given the handle of a closed object, it finds the object
 * marked as closed, and reports the error. */
#ifndef WF_BASE_HANDLE_H
#define WF_BASE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

/* The value that a closed object has as its fork generation. */
#define WF_FORK_GEN_CLOSED UINT64_MAX

/* The most closed objects that are kept, and the most bytes that these objects take together. When
 * either limit is reached, the oldest object is freed. */
#define WF_HANDLES_KEPT 65536u
#define WF_HANDLES_BYTES ((size_t)64 << 20)

/* Keep closed objects from now on. Called once, before the first object is freed. */
void wf_handles_keep(void);

/* Has wf_handles_keep been called? */
bool wf_handles_are_kept(void);

/* Free a closed object, or keep its memory. Returns true if the memory is kept: the memory is
 * then all zero, and the caller writes the fields that later calls check. Any thread may call. */
bool wf_handle_free(void *object);

/* Called when [fork_gen], the fork generation of an object, is not that of this process. Returns
 * the status for the call that used the object: EINVAL if the object is closed (logged), or EFORKED
 * if a parent process opened the object. */
enum weft_status wf_fork_gen_error(uint64_t fork_gen);

#endif
