/* SPDX-License-Identifier: BSD-3-Clause */
/* The local side of a device's transfers: where it may read or write bytes of memory that the
 * program has not registered. One table decides (wf_staging_row), by size:
 *
 *   in the descriptor   short: copied beside the work request
 *   bounced             up to the cutover: copied through a buffer that is registered for good
 *   registered          longer: where they are, by the cache (cache/cache.h)
 *   in pieces           longer, and no more can be registered: through bounce buffers, one at a
 * time
 *
 * Descriptors and bounce buffers are one registration. Both pools are lock-free (lifo.h); an empty
 * one says AGAIN: the device's completions give back. */
#ifndef WF_MEM_STAGING_H
#define WF_MEM_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "mem/cache/cache.h"
#include "mem/lifo.h"

struct wf_staging;

struct wf_staging_params {
    struct wf_cache_params cache; /* its registrar is the device */
    uint32_t descs;               /* at least WF_STAGING_DESCS_MIN */
    uint32_t inline_max;          /* bytes in a descriptor, at most WF_DESC_DATA */
    uint32_t bounce_max;          /* the cutover: bytes of a bounce buffer; multiple of 64 */
    uint32_t pool_bytes;          /* of all bounce buffers */
};

#define WF_STAGING_DESCS 512
#define WF_STAGING_DESCS_MIN 32
#define WF_STAGING_POOL 262144
#define WF_STAGING_CUTOVER 4096
#define WF_DESC_DATA 128

enum wf_staging_way {
    WF_STAGING_GIVEN, /* the program registered it */
    WF_STAGING_IN_DESC,
    WF_STAGING_BOUNCED,
    WF_STAGING_CACHED,
    WF_STAGING_PIECES,
    WF_STAGING_WAYS
};

/* Why; static storage. */
struct wf_staging_row {
    const char *name, *when, *why;
    unsigned copies;
};
extern const struct wf_staging_row wf_staging_rows[WF_STAGING_WAYS];

/* A transfer under way: where the device finds the bytes, and what is to be given back. */
struct wf_desc {
    uint32_t number;
    uint8_t way;   /* enum wf_staging_way */
    bool copy_out; /* to [user] when it is done */
    uint32_t bounce;
    void *addr;   /* for the device: [len] bytes */
    void *handle; /* of the registration that holds them */
    size_t len;
    void *user; /* the program's memory, to copy to */
    struct wf_cached use;
    _Alignas(64) uint8_t data[WF_DESC_DATA];
};

/* Registers the pools; with less room than asked for they are halved, down to the least.
 * Returns OK | EINVAL | ENOMEM | ELIMIT (not even the least can be registered: logged) | ESYSTEM */
enum weft_status wf_staging_open(const struct wf_staging_params *params, struct wf_staging **out);
/* No descriptor is taken, all users are closed. */
void wf_staging_close(struct wf_staging *s);
struct wf_cache *wf_staging_cache(struct wf_staging *s);

/* What wf_staging_from and _to do with [len] bytes while registering works; the way that
 * weft explain prints. */
enum wf_staging_way wf_staging_way(const struct wf_staging *s, size_t len, bool is_given);

/* Null: all are taken. */
struct wf_desc *wf_desc_take(struct wf_staging *s);

/* Let the device read (from) or write (to) the first bytes of [addr, addr + len): d->len of them,
 * all but for WF_STAGING_PIECES. From: copied at once, unless registered. To: copied by
 * wf_desc_done. given  the program's registration of all of it, or null On a failure it is to be
 * given back all the same (wf_desc_done), or to be tried again. Returns OK | AGAIN (no bounce
 * buffer is free) | ENOMEM | EFORKED | what the registrar says */
enum weft_status wf_staging_from(struct wf_staging *s, struct wf_cache_user *user,
                                 struct wf_desc *d, const void *addr, size_t len, void *given);
enum weft_status wf_staging_to(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d,
                               void *addr, size_t len, void *given);

/* The device has done with it: copy out ([ok]) and give back what it took, and itself. By the
 * thread whose [user] it was. */
void wf_desc_done(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d, bool ok);

#endif
