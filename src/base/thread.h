/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Start a thread of Weft's own, named [name] (at most 15 bytes), with [stack] bytes of stack (0:
 * the default). It blocks all signals: they are for the application's threads. Returns 0 or an
 * errno value. */
int wf_thread_start(pthread_t *thread, const char *name, size_t stack, void *(*body)(void *),
                    void *arg);

#endif
