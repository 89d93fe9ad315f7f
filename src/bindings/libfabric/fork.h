/* SPDX-License-Identifier: BSD-3-Clause */
/* Forked children: fork.c. */
#ifndef WFI_FORK_H
#define WFI_FORK_H

/* Count the forks between the process that loaded the provider and this one. */
void wfi_fork_watch(void);
/* Returns their number. An object that was opened at another number is a parent's. */
unsigned wfi_forks(void);

#endif
