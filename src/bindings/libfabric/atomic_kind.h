/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WFI_ATOMIC_KIND_H
#define WFI_ATOMIC_KIND_H

#include "mr.h"

enum wfi_atomic_way { WFI_ATOMIC_WRITE, WFI_ATOMIC_FETCH, WFI_ATOMIC_COMPARE };

/* Returns the bytes of an element, 0 if there are no atomics on it. */
size_t wfi_atomic_size(enum fi_datatype t);
/* Returns the bytes that a message carries for each element, operand and comparand; 0 if there is
 * no such atomic. */
size_t wfi_atomic_unit(enum wfi_atomic_way way, enum fi_datatype t, enum fi_op op);
/* Returns the most elements of one call, 0 if there is no such atomic. [am_max] is weft_am_max. */
size_t wfi_atomic_most(enum wfi_atomic_way way, enum fi_datatype t, enum fi_op op, size_t am_max);

#endif
