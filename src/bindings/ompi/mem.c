/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory. Open MPI registers the buffers of each long message, so Weft keeps the
 * regions: the same memory has the same key as long as it does not change. Such memory may be
 * unmapped while its region is kept, so this process lets the kernel do the puts and look before
 * atomics. Memory for atomics is that of a window, and stays mapped until it is deregistered: it
 * has a region of its own, which this process accesses itself. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* Every access by this handle is past the end of its memory. */
static mca_btl_base_registration_handle_t no_region;

/* Open the cache at its first use: it starts threads. The caller holds mem_lock. */
static bool cache_open(void)
{
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    enum weft_status s;
    if (wbtl.cache_user)
        return true;
    if (wbtl.cache_failed)
        return false;
    params.monitor = WEFT_MONITOR_AUTO;
    s = weft_cache_open_regions(wbtl.ctx, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &params,
                                &wbtl.cache);
    if (s == WEFT_OK) {
        s = weft_cache_user_open(wbtl.cache, &wbtl.cache_user);
        if (s != WEFT_OK)
            (void)weft_cache_close(wbtl.cache);
    }
    wbtl.cache_failed = s != WEFT_OK;
    if (s != WEFT_OK)
        opal_output(0,
                    "btl weft: memory cannot be registered, long messages are sent in pieces: %s",
                    weft_status_text(s));
    return s == WEFT_OK;
}

static enum weft_status region_get(void *base, size_t size, struct weft_cache_use *use)
{
    enum weft_status s = WEFT_ENOTAVAIL;
    pthread_mutex_lock(&wbtl.mem_lock);
    if (cache_open())
        s = weft_cache_get(wbtl.cache_user, base, size, use);
    pthread_mutex_unlock(&wbtl.mem_lock);
    return s;
}

/* Register memory of a window. */
static bool window_register(mca_btl_base_registration_handle_t *h, void *base, size_t size)
{
    size_t len = sizeof h->key;
    enum weft_status s = weft_mr_register(wbtl.ctx, base, size, WEFT_MEM_HOST,
                                          WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &h->mr);
    if (s != WEFT_OK)
        return false;
    s = weft_mr_key(h->mr, h->key, &len);
    if (s != WEFT_OK) {
        (void)weft_mr_close(h->mr);
        return false;
    }
    h->base = (uintptr_t)base;
    h->key_len = (uint32_t)len;
    pthread_mutex_lock(&wbtl.mem_lock);
    h->next = wbtl.windows;
    h->prev = &wbtl.windows;
    if (h->next)
        h->next->prev = &h->next;
    wbtl.windows = h;
    pthread_mutex_unlock(&wbtl.mem_lock);
    return true;
}

/* The caller holds mem_lock. */
static void window_close(mca_btl_base_registration_handle_t *h)
{
    *h->prev = h->next;
    if (h->next)
        h->next->prev = h->prev;
    (void)weft_mr_close(h->mr);
    h->mr = NULL;
}

static bool kept_register(mca_btl_base_registration_handle_t *h, void *base, size_t size)
{
    const struct weft_cached_region *region;
    if (region_get(base, size, &h->use) != WEFT_OK)
        return false;
    region = h->use.handle;
    h->base = (uintptr_t)region->base;
    h->key_len = (uint32_t)region->key_len;
    memcpy(h->key, region->key, region->key_len);
    return true;
}

static uint64_t hash_of(const unsigned char key[WEFT_KEY_MAX])
{
    uint64_t hash = 0, word;
    for (size_t i = 0; i < WEFT_KEY_MAX; i += sizeof word) {
        memcpy(&word, key + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio, odd */
    }
    return hash;
}

/* Does ob1 register memory with [flags] as the destination of its own gets from [endpoint], which
 * is on this node? What a peer puts to has REMOTE_WRITE alone, and windows have REMOTE_READ as
 * well. ob1 sends the handle of such memory to a rank only if a get ends with
 * OPAL_ERR_NOT_AVAILABLE, which no get of this component does. The kernel copies to the memory
 * without a region, which would cost the monitor's probe for each message. */
static bool is_own_get(const mca_btl_base_module_t *btl, wbtl_peer *endpoint, uint32_t flags)
{
    return flags == (MCA_BTL_REG_FLAG_LOCAL_WRITE | MCA_BTL_REG_FLAG_REMOTE_WRITE) && endpoint &&
           endpoint != MCA_BTL_ENDPOINT_ANY &&
           !(wbtl_slow(wbtl_peer_of(btl, endpoint)) & (WBTL_FAR | WBTL_CLOSED));
}

mca_btl_base_registration_handle_t *wbtl_register_mem(mca_btl_base_module_t *btl,
                                                      wbtl_peer *endpoint, void *base, size_t size,
                                                      uint32_t flags)
{
    mca_btl_base_registration_handle_t *h;
    bool good;
    if (is_own_get(btl, endpoint, flags))
        return &no_region;
    h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->addr = (uintptr_t)base;
    h->len = size;
    if (!size) /* no region; every access is past its end */
        return h;
    good = flags & MCA_BTL_REG_FLAG_REMOTE_ATOMIC ? window_register(h, base, size)
                                                  : kept_register(h, base, size);
    if (!good) {
        free(h);
        return NULL;
    }
    h->hash = hash_of(h->key);
    return h;
}

int wbtl_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *h)
{
    (void)btl;
    if (h == &no_region)
        return OPAL_SUCCESS;
    if (h && h->len) {
        pthread_mutex_lock(&wbtl.mem_lock);
        if (h->mr)
            window_close(h);
        else if (h->use.handle && wbtl.cache_user) /* else the rank has left */
            weft_cache_put(wbtl.cache_user, &h->use);
        pthread_mutex_unlock(&wbtl.mem_lock);
    }
    free(h);
    return OPAL_SUCCESS;
}

/* With btl_base_verbose 10. */
static void counts_show(void)
{
    struct weft_cache_counts n;
    weft_cache_count(wbtl.cache, &n);
    opal_output_verbose(10, opal_btl_base_framework.framework_output,
                        "btl weft: %llu of %llu registrations were kept ones",
                        (unsigned long long)n.hits, (unsigned long long)(n.hits + n.misses));
}

void wbtl_mem_close(void)
{
    enum weft_status s = WEFT_OK;
    pthread_mutex_lock(&wbtl.mem_lock);
    while (wbtl.windows)
        window_close(wbtl.windows);
    pthread_mutex_unlock(&wbtl.mem_lock);
    if (wbtl.cache_user)
        counts_show();
    if (wbtl.cache_user)
        s = weft_cache_user_close(wbtl.cache_user);
    if (wbtl.cache_user && s == WEFT_OK)
        s = weft_cache_close(wbtl.cache);
    if (s == WEFT_EBUSY)
        opal_output_verbose(1, opal_btl_base_framework.framework_output,
                            "btl weft: memory is still registered when the rank leaves");
    wbtl.cache_user = NULL;
    wbtl.cache = NULL;
}
