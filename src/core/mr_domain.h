/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings that apply to all regions of a context (weft_ctx_params.mr). */
#ifndef WF_CORE_MR_DOMAIN_H
#define WF_CORE_MR_DOMAIN_H

#include <stddef.h>
#include <stdint.h>
#include <weft/mr.h>

struct wf_mr_domain {
    uint32_t given; /* mode bits (enum weft_mr_mode) as the application passed them */
    /* [given], with the old bits BASIC, SCALABLE and LOCAL_OLD replaced by what they stand for */
    uint32_t mode;
    unsigned key_bits;
    uint64_t auth;      /* digest of the authorization key; 0 if there is no key */
    struct weft_eq *eq; /* null: registration is synchronous */
};

/* Check the settings that the application passed to weft_ctx_open, and store in *d what they mean.
 * [from] may be NULL. */
enum weft_status wf_mr_domain_check(const struct weft_mr_domain *from, struct wf_mr_domain *d);

/* Returns a 64-bit digest of an authorization key, or 0 if [size] is 0. Weft compares digests
 * instead of keys. The digest is not cryptographic. */
uint64_t wf_auth_digest(const void *key, size_t size);

#endif
