/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that completes asynchronous registrations, one for each context that has some. */
#ifndef WF_CORE_REGISTRAR_H
#define WF_CORE_REGISTRAR_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/weft.h>

#include "base/util.h"

struct weft_mr;

struct wf_registrar {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct wf_list queue WF_GUARDED_BY(lock); /* struct weft_mr, item */
    bool running WF_GUARDED_BY(lock), stop WF_GUARDED_BY(lock);
};

void wf_registrar_init(struct wf_registrar *r);
/* Its queue is empty. */
void wf_registrar_close(struct wf_registrar *r);
/* Complete [mr] and report it. OK | ESYSTEM (no thread) */
enum weft_status wf_registrar_add(struct wf_registrar *r, struct weft_mr *mr);

#endif
