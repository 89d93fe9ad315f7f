/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs of two processes that end at the first failure. */
#ifndef STRESS_MUST_H
#define STRESS_MUST_H

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/mr.h>
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

/* Open a context whose regions are allocated, for networks or not, and an endpoint. */
static inline void must_open(bool network, struct weft_ctx **ctx, struct weft_ep **ep)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_mr_domain domain = WEFT_MR_DOMAIN_INIT;
    domain.mode = WEFT_MR_ALLOCATED;
    params.mr = &domain;
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    MUST(weft_ctx_open(&params, ctx));
    if (network)
        MUST(weft_ctx_set_key(*ctx, "0123456789abcdef0123456789abcdef", WEFT_KEY_SIZE));
    MUST(weft_ep_open(*ctx, NULL, ep));
}

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
