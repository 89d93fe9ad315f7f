/* SPDX-License-Identifier: BSD-3-Clause */
/* The fence of a side that goes to sleep. */
#define _GNU_SOURCE
#include "transport/ring/sleep.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool wf_sleep_register(void)
{
    /* membarrier(2): both calls fail if the kernel or a sandbox does not allow them. */
    return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) &&
           !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

bool wf_sleep_barrier(bool membarrier)
{
    atomic_thread_fence(memory_order_seq_cst);
    return !membarrier || !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}
