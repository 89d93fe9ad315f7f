/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs of two processes that end at the first failure. */
#ifndef STRESS_MUST_H
#define STRESS_MUST_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#include "contract/support.h"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        enum weft_status s_ = (call);                                                              \
        if (s_ != WEFT_OK) {                                                                       \
            fprintf(stderr, "%s: %s\n", #call, weft_status_text(s_));                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void poll_or_end(struct weft_ep *ep, uint64_t until)
{
    int n = weft_ep_poll(ep);
    if (n < 0 || test_now_ns() > until) {
        fprintf(stderr, "%s\n", n < 0 ? weft_status_text((enum weft_status)n) : "hangs");
        exit(1);
    }
    if (!n)
        sched_yield();
}

#endif
