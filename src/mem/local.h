/* SPDX-License-Identifier: BSD-3-Clause */
/* The local side of a device's transfers: where it may read or write bytes of memory that the
 * program has not registered. One table decides (wf_local_row), by size:
 *
 *   in the descriptor   short: copied beside the work request
 *   bounced             up to the cutover: copied through a buffer that is registered for good
 *   registered          longer: where they are, by the cache (cache.h)
 *   in pieces           longer, and no more can be registered: through bounce buffers, one at a
 * time
 *
 * Descriptors and bounce buffers are one registration. Both pools are lock-free (lifo.h); an empty
 * one says AGAIN: the device's completions give back. */
#ifndef WF_MEM_LOCAL_H
#define WF_MEM_LOCAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "mem/cache.h"
#include "mem/lifo.h"

struct wf_local;

struct wf_local_params {
    struct wf_cache_params cache; /* its registrar is the device */
    uint32_t descs;               /* at least WF_LOCAL_DESCS_MIN */
    uint32_t inline_max;          /* bytes in a descriptor, at most WF_DESC_DATA */
    uint32_t bounce_max;          /* the cutover: bytes of a bounce buffer; multiple of 64 */
    uint32_t pool_bytes;          /* of all bounce buffers */
};

#define WF_LOCAL_DESCS 512
#define WF_LOCAL_DESCS_MIN 32
#define WF_LOCAL_POOL 262144
#define WF_LOCAL_CUTOVER 4096
#define WF_DESC_DATA 128

enum wf_local_way {
    WF_LOCAL_GIVEN, /* the program registered it */
    WF_LOCAL_IN_DESC,
    WF_LOCAL_BOUNCED,
    WF_LOCAL_CACHED,
    WF_LOCAL_PIECES,
    WF_LOCAL_WAYS
};

/* Why; static storage. */
struct wf_local_row {
    const char *name, *when, *why;
    unsigned copies;
};
extern const struct wf_local_row wf_local_rows[WF_LOCAL_WAYS];

/* A transfer under way: where the device finds the bytes, and what is to be given back. */
struct wf_desc {
    uint32_t number;
    uint8_t way;   /* enum wf_local_way */
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
enum weft_status wf_local_open(const struct wf_local_params *params, struct wf_local **out);
/* No descriptor is taken, all users are closed. */
void wf_local_close(struct wf_local *l);
struct wf_cache *wf_local_cache(struct wf_local *l);

/* What wf_local_from and _to do with [len] bytes while registering works; the way that
 * weft explain prints. */
enum wf_local_way wf_local_way(const struct wf_local *l, size_t len, bool is_given);

/* Null: all are taken. */
struct wf_desc *wf_desc_take(struct wf_local *l);

/* Let the device read (from) or write (to) the first bytes of [addr, addr + len): d->len of them,
 * all but for WF_LOCAL_PIECES. From: copied at once, unless registered. To: copied by wf_desc_done.
 *   given  the program's registration of all of it, or null
 * On a failure it is to be given back all the same (wf_desc_done), or to be tried again.
 * Returns OK | AGAIN (no bounce buffer is free) | ENOMEM | EFORKED | what the registrar says */
enum weft_status wf_local_from(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d,
                               const void *addr, size_t len, void *given);
enum weft_status wf_local_to(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d,
                             void *addr, size_t len, void *given);

/* The device has done with it: copy out ([ok]) and give back what it took, and itself. By the
 * thread whose [user] it was. */
void wf_desc_done(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d, bool ok);

#endif
