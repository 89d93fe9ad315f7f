/* SPDX-License-Identifier: BSD-3-Clause */
/* The local side of a device's transfers: how the device reads or writes bytes of memory that the
 * program has not registered. wf_staging_rows lists the ways. The size of the transfer decides:
 *
 *   in the descriptor   short: copied into the descriptor of the transfer (struct wf_desc)
 *   bounced             up to the cutover: copied through a buffer that stays registered
 *   registered          longer: not copied; the registration cache registers the bytes
 *   in pieces           longer, but no more memory can be registered: copied through a bounce
 *                       buffer, one piece after the other
 *
 * Descriptors and bounce buffers share one registration. Their two pools are lock-free (lifo.h). If
 * a pool is empty, the caller tries again later: each completed transfer gives its descriptor and
 * its bounce buffer back. */
#ifndef WF_MEM_STAGING_H
#define WF_MEM_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "base/util.h"
#include "mem/cache/cache.h"
#include "mem/lifo.h"

struct wf_staging;

struct wf_staging_params {
    /* parameters of the registration cache; [reg_ops] are the device's functions */
    struct wf_cache_params cache;
    uint32_t descs; /* number of descriptors; at least WF_STAGING_DESCS_MIN */
    /* the largest transfer, in bytes, that is copied into its descriptor; at most WF_DESC_DATA */
    uint32_t inline_max;
    /* the cutovers: the largest transfers from memory and to memory that are copied */
    uint32_t from_max, to_max;
    uint32_t bounce_bytes; /* of one bounce buffer: a multiple of 64, no less than the cutovers */
    uint32_t pool_bytes;   /* of all bounce buffers */
};

#define WF_STAGING_DESCS_MIN 32
#define WF_DESC_DATA 128

enum wf_staging_way {
    WF_STAGING_GIVEN, /* the program has registered the memory */
    WF_STAGING_IN_DESC,
    WF_STAGING_BOUNCED,
    WF_STAGING_CACHED,
    WF_STAGING_PIECES,
    WF_STAGING_WAYS
};

/* One way to give memory to the device, as the tool `weft explain` prints it. The strings are
 * static. */
struct wf_staging_row {
    const char *name, *when, *why;
    unsigned copies;
};
extern const struct wf_staging_row wf_staging_rows[WF_STAGING_WAYS];

/* The descriptor of a transfer: where the device finds the bytes, and what wf_desc_done must give
 * back. */
struct wf_desc {
    uint32_t number;
    uint8_t way;   /* enum wf_staging_way */
    bool copy_out; /* copy the bytes to [user] when the device has written them */
    uint32_t bounce;
    void *addr;   /* where the device accesses the [len] bytes */
    void *handle; /* the registration that contains these bytes */
    size_t len;
    void *user; /* the program's memory, if the bytes are copied to it */
    struct wf_cached use;
    _Alignas(64) uint8_t data[WF_DESC_DATA];
};

/* Returns the bytes of [descs] descriptors and [bounces] buffers, which stay registered. */
static inline size_t wf_staging_bytes(uint32_t descs, uint32_t bounces, uint32_t bounce_bytes)
{
    return wf_align_up(descs * sizeof(struct wf_desc) + (size_t)bounces * bounce_bytes, 4096);
}

/* Does the device access a copy of the bytes? */
static inline bool wf_staging_is_copied(const struct wf_desc *d)
{
    return d->way != WF_STAGING_GIVEN && d->way != WF_STAGING_CACHED;
}

/* Allocate and register the pools of descriptors and bounce buffers. If the device cannot register
 * so much memory, the pools are halved and tried again, down to a minimum.
 *
 * Returns OK | EINVAL | ENOMEM | ELIMIT (the device cannot register even the minimum: logged) |
 * ESYSTEM */
enum weft_status wf_staging_open(const struct wf_staging_params *params, struct wf_staging **out);
/* Deregister and free everything. The caller has given all descriptors back and has closed all
 * users. */
void wf_staging_close(struct wf_staging *s);
struct wf_cache *wf_staging_cache(struct wf_staging *s);

/* Set the parameters of the pools and the cutovers from the variables WEFT_RDMA_*. Does not change
 * [cache]. */
void wf_staging_params_own(struct wf_staging_params *p, uint32_t am_max);

/* Returns the way that is chosen for [len] bytes if more memory can be registered: by
 * wf_staging_from if [is_from], otherwise by wf_staging_to. [is_given] means that the program has
 * registered the bytes. */
enum wf_staging_way wf_staging_way(const struct wf_staging *s, size_t len, bool is_from,
                                   bool is_given);

/* Take a free descriptor. Returns NULL if there is none. */
struct wf_desc *wf_desc_take(struct wf_staging *s);

/* Prepare a transfer in which the device reads (wf_staging_from) or writes (wf_staging_to) the
 * bytes at [addr, addr + len). On success d->len is the number of bytes that this transfer covers:
 * all [len] bytes, or at most one bounce buffer if the way is WF_STAGING_PIECES.
 *
 * If the way is a copy, wf_staging_from copies the bytes during the call. After wf_staging_to,
 * wf_desc_done copies the bytes that the device wrote.
 *   given  the program's registration of all of this memory, or NULL
 * After a failure the caller either repeats the call, or gives [d] back by wf_desc_done.
 * Returns OK | AGAIN (no bounce buffer is free) | ENOMEM | EFORKED | the device's status */
enum weft_status wf_staging_from(struct wf_staging *s, struct wf_cache_user *user,
                                 struct wf_desc *d, const void *addr, size_t len, void *given);
enum weft_status wf_staging_to(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d,
                               void *addr, size_t len, void *given);

/* Called when the device has finished the transfer of [d]. If the transfer succeeded ([ok]) and the
 * device wrote the bytes into the descriptor or a bounce buffer, copies them to the program's
 * memory. Gives back [d], and its bounce buffer or its registration. The caller is the thread that
 * owns [user]. */
void wf_desc_done(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d, bool ok);

#endif
