/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a number for the calling thread: never 0, and even, because it is the address of the C
 * library's record of the thread. */
static inline uint64_t wf_thread_self(void)
{
    return (uint64_t)(uintptr_t)pthread_self();
}

/* Start an internal thread of Weft, named [name] (at most 15 bytes). [stack] is its stack size
 * in bytes; 0 is the default size. The thread blocks all signals, so that the kernel delivers
 * signals to the application's threads. Returns 0 or an errno value. */
int wf_thread_start(pthread_t *thread, const char *name, size_t stack, void *(*body)(void *),
                    void *arg);

#endif
