/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomics on elements of the kinds of weft/atomic.h, in this process's address space. */
#ifndef WF_MEM_ELEMENTS_H
#define WF_MEM_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <weft/atomic.h>

struct wf_region;

/* An operation on an array. The caller has checked it by wf_atomics_check. */
struct wf_atomics {
    unsigned operation; /* enum weft_do */
    unsigned kind;      /* enum weft_kind */
    size_t count;
    /* [count] elements each, of any alignment; NULL if wf_atomics_inputs returns that they are not
     * used */
    const void *operands, *compares;
};

/* Returns the bytes of an element, or 0 if there is no such kind. */
size_t wf_atomics_size(unsigned kind);
/* Returns how many arrays the operation uses: 0 (READ), 1 (operands) or 2 (also compares). */
unsigned wf_atomics_inputs(unsigned operation);
/* Returns OK | EINVAL (an unknown number) | ENOSYS (not defined for this kind) */
enum weft_status wf_atomics_check(unsigned operation, unsigned kind);
/* Called before the functions that change elements, when a context opens. Any thread that holds no
 * lock; repeated calls change nothing. */
void wf_atomics_begin(void);
/* Are elements of this kind changed under a lock of their owner's process? */
bool wf_atomics_are_locked(unsigned kind);

/* Change the elements from [at] on, which is aligned. Kinds that are locked are not allowed. Stores
 * the old values at [old], if it is not NULL. */
void wf_atomics_do(void *at, const struct wf_atomics *a, void *old);
/* The same in a region in use, from offset [at] on, for all kinds. Returns OK | EINVAL, EFAULT or
 * ENOSYS as wf_region_word; then nothing was changed */
enum weft_status wf_region_atomics(const struct wf_region *r, uint64_t at,
                                   const struct wf_atomics *a, void *old);

#endif
