/* SPDX-License-Identifier: BSD-3-Clause */
/* What a context says of all its regions (weft_ctx_params.mr). */
#ifndef WF_CORE_MR_DOMAIN_H
#define WF_CORE_MR_DOMAIN_H

#include <stddef.h>
#include <stdint.h>
#include <weft/mr.h>

struct wf_mr_domain {
    uint32_t given; /* enum weft_mr_mode, as it was given */
    uint32_t mode;  /* what that means: without BASIC, SCALABLE and LOCAL_OLD */
    unsigned key_bits;
    uint64_t auth;      /* digest of the authorization key; 0: none */
    struct weft_eq *eq; /* null: registration is synchronous */
};

/* Check a context's parameters; *d: what they mean. */
enum weft_status wf_mr_domain_check(const struct weft_mr_domain *from, struct wf_mr_domain *d);

/* A digest by which two authorization keys differ; not a cryptographic one. 0: no key. */
uint64_t wf_auth_digest(const void *key, size_t size);

#endif
