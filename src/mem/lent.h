/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from and to memory that the program lent, and may have unmapped against its promise. */
#ifndef WF_MEM_LENT_H
#define WF_MEM_LENT_H

#include <stdbool.h>
#include <stddef.h>

/* Copy [n] bytes by the kernel, which reports missing pages where a copy in user space would end
 * the process; by memcpy where the system forbids process_vm_readv(2). [n] is below 2 GiB, the most
 * that the kernel copies in one call.
 * Returns true, or false with errno EFAULT: some of the lent memory is not there */
bool wf_lent_read(void *to, const void *lent, size_t n);
bool wf_lent_write(void *lent, const void *from, size_t n);

#endif
