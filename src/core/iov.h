/* SPDX-License-Identifier: BSD-3-Clause */
/* The local memory of an operation: one or several buffers (struct iovec). A byte offset counts
 * through all buffers as if they were contiguous. */
#ifndef WF_CORE_IOV_H
#define WF_CORE_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_iov {
    /* [n] buffers: &one, or an allocated array, behind which there may be bytes (wf_iov_room) */
    const struct iovec *v;
    unsigned n;
    uint32_t note; /* free for the object that contains this; the functions here leave it alone */
    struct iovec one;
};

/* Check an array of buffers that the application passed, and store the sum of their lengths in
 * *len. Returns OK | EINVAL */
enum weft_status wf_iov_check(const struct iovec *iov, unsigned count, size_t *len);
/* Copy the array [iov] of [count] buffers, without their bytes. Returns OK | ENOMEM */
enum weft_status wf_iov_set(struct wf_iov *to, const struct iovec *iov, unsigned count);
static inline void wf_iov_one(struct wf_iov *to, const void *buf, size_t len)
{
    to->one = (struct iovec){(void *)(uintptr_t)buf, len};
    to->v = &to->one;
    to->n = 1;
}
/* Allocate [len] bytes that are freed together with the array of [to], which has at most one buffer
 * and keeps it. Returns NULL if there is no memory. */
void *wf_iov_room(struct wf_iov *to, size_t len);
/* Copy the [len] bytes of the [count] buffers of [iov]. The copy is freed together with the array
 * of [to]. Returns OK | ENOMEM */
enum weft_status wf_iov_copy(struct wf_iov *to, const struct iovec *iov, unsigned count,
                             size_t len);
void wf_iov_clear(struct wf_iov *iov);
/* Move the array of buffers. [from] is empty afterwards. */
void wf_iov_move(struct wf_iov *to, struct wf_iov *from);
/* Returns the address of byte [at]. Lowers *len to the number of bytes that are contiguous from
 * there on. */
void *wf_iov_span(const struct wf_iov *iov, uint64_t at, size_t *len);
void wf_iov_gather(void *dst, const struct wf_iov *iov, uint64_t at, size_t len);
void wf_iov_scatter(const struct wf_iov *iov, uint64_t at, const void *src, size_t len);

/* Size in bytes of ep->scratch, a buffer in which a payload is gathered. No process can set
 * WEFT_AM_MAX, the longest payload of its active messages, to more than this size. */
#define WF_SCRATCH 32704
struct weft_ep;
/* Allocate ep->scratch, if that was not done before. Returns OK | ENOMEM */
enum weft_status wf_scratch_need(struct weft_ep *ep);

#endif
