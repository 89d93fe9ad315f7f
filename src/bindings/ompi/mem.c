/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory. Open MPI registers the buffer of each long message, so Weft keeps the regions:
 * the same memory has the same key as long as it does not change. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

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

static uint64_t hash_of(const unsigned char key[WEFT_KEY_MAX])
{
    uint64_t hash = 0, word;
    for (size_t i = 0; i < WEFT_KEY_MAX; i += sizeof word) {
        memcpy(&word, key + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio, odd */
    }
    return hash;
}

mca_btl_base_registration_handle_t *wbtl_register_mem(mca_btl_base_module_t *btl, wbtl_peer *peer,
                                                      void *base, size_t size, uint32_t flags)
{
    mca_btl_base_registration_handle_t *h = calloc(1, sizeof *h);
    const struct weft_cached_region *region;
    (void)btl, (void)peer, (void)flags;
    if (!h)
        return NULL;
    h->addr = (uintptr_t)base;
    h->len = size;
    if (!size) /* no region; every access is past its end */
        return h;
    if (region_get(base, size, &h->use) != WEFT_OK) {
        free(h);
        return NULL;
    }
    region = h->use.handle;
    h->base = (uintptr_t)region->base;
    h->key_len = (uint32_t)region->key_len;
    memcpy(h->key, region->key, region->key_len);
    h->hash = hash_of(h->key);
    return h;
}

int wbtl_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *h)
{
    (void)btl;
    if (h && h->len) {
        pthread_mutex_lock(&wbtl.mem_lock);
        if (wbtl.cache_user) /* else the rank has left */
            weft_cache_put(wbtl.cache_user, &h->use);
        pthread_mutex_unlock(&wbtl.mem_lock);
    }
    free(h);
    return OPAL_SUCCESS;
}

void wbtl_mem_close(void)
{
    enum weft_status s = WEFT_OK;
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
