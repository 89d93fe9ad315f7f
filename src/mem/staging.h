/* SPDX-License-Identifier: BSD-3-Clause */
/* The local side of a device's transfers: where the device reads or writes bytes of memory that the
 * program has not registered. wf_staging_rows has the ways; the size decides:
 *
 *   in the descriptor   short: copied beside the work request
 *   bounced             up to the cutover: copied through a buffer that stays registered
 *   registered          longer: in place, by the registration cache (cache/cache.h)
 *   in pieces           longer, and no more can be registered: one bounce buffer at a time
 *
 * Descriptors and bounce buffers share one registration. Both pools are lock-free (lifo.h). When
 * one is empty, the caller tries again later: completions of the device refill it. */
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
    struct wf_cache_params cache; /* its reg_ops are the device's */
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

/* One way, as weft explain prints it. Static storage. */
struct wf_staging_row {
    const char *name, *when, *why;
    unsigned copies;
};
extern const struct wf_staging_row wf_staging_rows[WF_STAGING_WAYS];

/* Descriptor of a transfer: where the device finds the bytes, and what wf_desc_done gives back. */
struct wf_desc {
    uint32_t number;
    uint8_t way;   /* enum wf_staging_way */
    bool copy_out; /* copy to [user] when the transfer is done */
    uint32_t bounce;
    void *addr;   /* for the device: [len] bytes */
    void *handle; /* of the registration that holds them */
    size_t len;
    void *user; /* the program's memory, to copy to */
    struct wf_cached use;
    _Alignas(64) uint8_t data[WF_DESC_DATA];
};

/* Registers the pools. If the device cannot register so much, they are halved, down to the minimum.
 * Returns OK | EINVAL | ENOMEM | ELIMIT (not even the minimum can be registered: logged) |
 * ESYSTEM */
enum weft_status wf_staging_open(const struct wf_staging_params *params, struct wf_staging **out);
/* No descriptor is taken, and all users are closed. */
void wf_staging_close(struct wf_staging *s);
struct wf_cache *wf_staging_cache(struct wf_staging *s);

/* The way that wf_staging_from and _to choose for [len] bytes while memory can be registered;
 * weft explain prints it. */
enum wf_staging_way wf_staging_way(const struct wf_staging *s, size_t len, bool is_given);

/* Take a descriptor. Null: all are taken. */
struct wf_desc *wf_desc_take(struct wf_staging *s);

/* Let the device read (from) or write (to) the first d->len bytes of [addr, addr + len): all of
 * them, but for WF_STAGING_PIECES. wf_staging_from copies at once, unless the memory is registered;
 * wf_desc_done copies what the device wrote.
 *   given  the program's registration of all of the memory, or null
 * After a failure [d] is given back as well (wf_desc_done), or the call is repeated.
 * Returns OK | AGAIN (no bounce buffer is free) | ENOMEM | EFORKED | the device's status */
enum weft_status wf_staging_from(struct wf_staging *s, struct wf_cache_user *user,
                                 struct wf_desc *d, const void *addr, size_t len, void *given);
enum weft_status wf_staging_to(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d,
                               void *addr, size_t len, void *given);

/* The device has finished the transfer: copy out, if [ok], and give back [d] and all that it
 * holds. Called by the thread that owns [user]. */
void wf_desc_done(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d, bool ok);

#endif
