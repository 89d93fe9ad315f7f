/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/thread.h"

#include <limits.h>
#include <signal.h>

#include "base/util.h"

int wf_thread_start(pthread_t *thread, const char *name, size_t stack, void *(*body)(void *),
                    void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int error;
    sigfillset(&all);
    pthread_attr_init(&attr);
    if (stack)
        (void)pthread_attr_setstacksize(&attr, WF_MAX(stack, (size_t)PTHREAD_STACK_MIN));
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(thread, &attr, body, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (!error)
        (void)pthread_setname_np(*thread, name);
    return error;
}
