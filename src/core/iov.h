/* SPDX-License-Identifier: BSD-3-Clause */
/* Local memory of an operation: one buffer or several (struct iovec), addressed as one range of
 * bytes. */
#ifndef WF_CORE_IOV_H
#define WF_CORE_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_iov {
    const struct iovec *v; /* [n]; &one, or allocated */
    unsigned n;
    struct iovec one;
};

/* Check an array that a caller passed; its bytes in *len. OK | EINVAL */
enum weft_status wf_iov_check(const struct iovec *iov, unsigned count, size_t *len);
/* Copy the array. OK | ENOMEM */
enum weft_status wf_iov_set(struct wf_iov *to, const struct iovec *iov, unsigned count);
static inline void wf_iov_one(struct wf_iov *to, const void *buf, size_t len)
{
    to->one = (struct iovec){(void *)(uintptr_t)buf, len};
    to->v = &to->one;
    to->n = 1;
}
void wf_iov_clear(struct wf_iov *iov);
/* [from] is empty afterwards. */
void wf_iov_move(struct wf_iov *to, struct wf_iov *from);
/* The address of byte [at]; *len is lowered to the bytes that are contiguous there. */
void *wf_iov_span(const struct wf_iov *iov, uint64_t at, size_t *len);
void wf_iov_gather(void *dst, const struct wf_iov *iov, uint64_t at, size_t len);
void wf_iov_scatter(const struct wf_iov *iov, uint64_t at, const void *src, size_t len);

/* ep->scratch, to gather a payload in: the longest that any process may send (WEFT_AM_MAX). */
#define WF_SCRATCH 32704
struct weft_ep;
/* Allocate ep->scratch if it is not there. OK | ENOMEM */
enum weft_status wf_scratch_need(struct weft_ep *ep);

#endif
