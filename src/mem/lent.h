/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from and to memory that the program lent to Weft for a transfer. The program has promised
 * to keep this memory mapped, and may break this promise. */
#ifndef WF_MEM_LENT_H
#define WF_MEM_LENT_H

#include <stdbool.h>
#include <stddef.h>

/* Copy [n] bytes. The kernel makes the copy, because it reports a missing page as an error. With
 * memcpy, a missing page would end the process; memcpy is used only if the system forbids
 * process_vm_readv(2). [n] must be below 2 GiB, the most that the kernel copies in one call.
 *
 * Returns true, or false with errno EFAULT if some of the lent memory is not mapped. */
bool wf_lent_read(void *to, const void *lent, size_t n);
bool wf_lent_write(void *lent, const void *from, size_t n);

#endif
