/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/iov.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

enum weft_status wf_scratch_need(struct weft_ep *ep)
{
    if (!ep->scratch)
        ep->scratch = malloc(WF_SCRATCH);
    return ep->scratch ? WEFT_OK : WEFT_ENOMEM;
}

enum weft_status wf_iov_check(const struct iovec *iov, unsigned count, size_t *len)
{
    size_t total = 0;
    if (count > WEFT_IOV_MAX || (count && !iov))
        return WEFT_EINVAL;
    for (unsigned i = 0; i < count; i++) {
        if ((iov[i].iov_len && !iov[i].iov_base) || iov[i].iov_len > SIZE_MAX / 2 - total)
            return WEFT_EINVAL;
        total += iov[i].iov_len;
    }
    *len = total;
    return WEFT_OK;
}

enum weft_status wf_iov_set(struct wf_iov *to, const struct iovec *iov, unsigned count)
{
    struct iovec *v;
    if (count <= 1) {
        wf_iov_one(to, count ? iov->iov_base : NULL, count ? iov->iov_len : 0);
        return WEFT_OK;
    }
    v = malloc(count * sizeof *v);
    if (!v)
        return WEFT_ENOMEM;
    memcpy(v, iov, count * sizeof *v);
    to->v = v;
    to->n = count;
    return WEFT_OK;
}

struct room {
    _Alignas(16) struct iovec one;
    uint8_t bytes[];
};

static struct room *room_new(struct wf_iov *to, size_t len)
{
    struct room *room = malloc(sizeof *room + len);
    if (!room)
        return NULL;
    room->one = to->one;
    to->v = &room->one;
    return room;
}

void *wf_iov_room(struct wf_iov *to, size_t len)
{
    struct room *room = room_new(to, len);
    return room ? room->bytes : NULL;
}

enum weft_status wf_iov_copy(struct wf_iov *to, const struct iovec *iov, unsigned count, size_t len)
{
    const struct wf_iov from = {.v = iov, .n = count};
    struct room *room = room_new(to, len);
    if (!room)
        return WEFT_ENOMEM;
    room->one = (struct iovec){room->bytes, len};
    wf_iov_gather(room->bytes, &from, 0, len);
    to->n = 1;
    return WEFT_OK;
}

void wf_iov_clear(struct wf_iov *iov)
{
    if (iov->v != &iov->one)
        free((void *)(uintptr_t)iov->v);
    iov->v = &iov->one;
    iov->n = 0;
}

void wf_iov_move(struct wf_iov *to, struct wf_iov *from)
{
    to->one = from->one;
    to->n = from->n;
    to->v = from->v == &from->one ? &to->one : from->v;
    from->v = &from->one;
    from->n = 0;
}

void *wf_iov_span(const struct wf_iov *iov, uint64_t at, size_t *len)
{
    for (unsigned i = 0; i < iov->n; i++) {
        if (at < iov->v[i].iov_len) {
            if (*len > iov->v[i].iov_len - at)
                *len = iov->v[i].iov_len - at;
            return (uint8_t *)iov->v[i].iov_base + at;
        }
        at -= iov->v[i].iov_len;
    }
    *len = 0;
    return NULL;
}

void wf_iov_gather(void *dst, const struct wf_iov *iov, uint64_t at, size_t len)
{
    for (uint8_t *d = dst; len;) {
        size_t n = len;
        const void *from = wf_iov_span(iov, at, &n);
        memcpy(d, from, n);
        d += n;
        at += n;
        len -= n;
    }
}

void wf_iov_scatter(const struct wf_iov *iov, uint64_t at, const void *src, size_t len)
{
    for (const uint8_t *s = src; len;) {
        size_t n = len;
        void *to = wf_iov_span(iov, at, &n);
        memcpy(to, s, n);
        s += n;
        at += n;
        len -= n;
    }
}
