/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from and to memory that may be missing: memory that the program lent to Weft for a
 * transfer, and has promised to keep mapped, and memory of other processes. */
#ifndef WF_MEM_LENT_H
#define WF_MEM_LENT_H

#include <stdbool.h>
#include <stddef.h>

enum wf_pages {
    WF_PAGES_MISSING, /* some cannot be read, or cannot be written */
    WF_PAGES_THERE,
    WF_PAGES_UNKNOWN, /* before Linux 5.14 */
};

/* Give the [n] bytes at [at] their pages, to be read, or written if [writes] is true. Another
 * thread may unmap them at any time. */
enum wf_pages wf_pages_populate(const void *at, size_t n, bool writes);

/* Copy [n] bytes. The kernel makes the copy, because it reports a missing page as an error. With
 * memcpy, a missing page would end the process; memcpy is used only if the system forbids
 * process_vm_readv(2), after a look at the pages. [n] must be below 2 GiB, the most that the kernel
 * copies in one call.
 *
 * Returns true, or false with errno EFAULT if some of the lent memory is not mapped. */
bool wf_lent_read(void *to, const void *lent, size_t n);
bool wf_lent_write(void *lent, const void *from, size_t n);

/* The same for memory of another process, of which this process has a mapping. The other process,
 * or the system, can make a page of it impossible at any time, and memcpy would raise SIGBUS. So
 * there is no memcpy: if the kernel does not make the copy, for any reason, the result is false
 * with errno EFAULT. */
bool wf_foreign_read(void *to, const void *foreign, size_t n);
bool wf_foreign_write(void *foreign, const void *from, size_t n);
/* Does the system allow these two? If the result is false, errno says why not. */
bool wf_foreign_is_allowed(void);

#endif
