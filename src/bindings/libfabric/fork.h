/* SPDX-License-Identifier: BSD-3-Clause */
/* Forked children: fork.c. */
#ifndef WFI_FORK_H
#define WFI_FORK_H

#include <stdatomic.h>
#include <stdbool.h>

/* Count the forks between the process that loaded the provider and this one. */
void wfi_fork_watch(void);
extern atomic_uint wfi_forks_counted;
/* Returns their number. An object that was opened at another number is a parent's. */
static inline unsigned wfi_forks(void)
{
    return atomic_load_explicit(&wfi_forks_counted, memory_order_relaxed);
}

static inline bool wfi_is_parents(unsigned forks)
{
    return forks != wfi_forks();
}

#endif
