/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of the program's whose object is closed. With WEFT_DEBUG=handles their memory is kept for
 * a while, wiped, so that a call with one is told from a call with an open one. */
#ifndef WF_BASE_HANDLE_H
#define WF_BASE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

/* What a closed object has in place of wf_fork_gen_begin's value. */
#define WF_FORK_GEN_CLOSED UINT64_MAX

/* At most so many are kept, of so many bytes together; then the oldest is freed. */
#define WF_HANDLES_KEPT 65536u
#define WF_HANDLES_BYTES ((size_t)64 << 20)

/* From now on: keep them. Once, before the first is freed. */
void wf_handles_keep(void);

/* Free the memory of a closed object. True: it is kept, all zero, and the caller writes what its
 * calls are to find. Any thread. */
bool wf_handle_free(void *object);

/* Why an object is of no use whose fork generation is not this process's: EINVAL (closed; logged) |
 * EFORKED */
enum weft_status wf_fork_gen_error(uint64_t fork_gen);

#endif
