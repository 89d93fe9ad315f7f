/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/keymap.h"

#include <stdlib.h>
#include <weft/mr.h>

#include "base/log.h"
#include "base/rand.h"
#include "core/core.h"

#define INDEX_BITS 24
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define MARK (UINT64_C(1) << 63)

static WF_ACQUIRES(wf_keymap_lock_class) void keymap_lock(struct wf_keymap *m)
{
    pthread_mutex_lock(&m->lock);
}

static WF_RELEASES(wf_keymap_lock_class) void keymap_unlock(struct wf_keymap *m)
{
    pthread_mutex_unlock(&m->lock);
}

void wf_keymap_init(struct wf_keymap *m, uint64_t seed)
{
    *m = (struct wf_keymap){.random = seed};
    pthread_mutex_init(&m->lock, NULL);
}

WF_UNCHECKED void wf_keymap_fini(struct wf_keymap *m)
{
    free(m->items);
    pthread_mutex_destroy(&m->lock);
}

bool wf_keymap_busy(struct wf_keymap *m)
{
    bool busy;
    keymap_lock(m);
    busy = m->used;
    keymap_unlock(m);
    return busy;
}

static WF_REQUIRES(wf_keymap_lock_class) enum weft_status grow(struct wf_keymap *m)
{
    uint32_t room = m->room ? 2 * m->room : 64;
    struct wf_keymap_item *items;
    if (m->room > INDEX_MASK) {
        wf_error("%u keys are mapped: unmap some", m->used);
        return WEFT_ELIMIT;
    }
    items = realloc(m->items, room * sizeof *items);
    if (!items)
        return WEFT_ENOMEM;
    m->items = items;
    for (uint32_t i = room; i-- > m->room;) {
        items[i] = (struct wf_keymap_item){.next = m->free};
        m->free = i + 1;
    }
    m->room = room;
    return WEFT_OK;
}

static WF_REQUIRES(wf_keymap_lock_class) struct wf_keymap_item *item_of(struct wf_keymap *m,
                                                                        uint64_t key)
{
    uint32_t i = (uint32_t)key & INDEX_MASK;
    return key & MARK && i < m->room && m->items[i].mapped == key ? &m->items[i] : NULL;
}

bool wf_keymap_find(struct wf_keymap *m, uint64_t key, struct wf_keymap_item *out)
{
    const struct wf_keymap_item *item;
    keymap_lock(m);
    item = item_of(m, key);
    if (item)
        *out = *item;
    keymap_unlock(m);
    return item != NULL;
}

static enum weft_status map(struct wf_keymap *m, struct wf_keymap_item *item, uint64_t *key)
{
    enum weft_status status = WEFT_OK;
    uint32_t i;
    keymap_lock(m);
    if (!m->free)
        status = grow(m);
    if (status == WEFT_OK) {
        i = m->free - 1;
        m->free = m->items[i].next;
        do /* WEFT_KEY_NONE is no key */
            item->mapped = MARK | wf_rand(&m->random) << INDEX_BITS | i;
        while (item->mapped == WEFT_KEY_NONE);
        m->items[i] = *item;
        m->used++;
        *key = item->mapped;
    }
    keymap_unlock(m);
    return status;
}

enum weft_status weft_key_map(struct weft_ctx *ctx, uint64_t base_addr, const void *raw_key,
                              size_t size, uint64_t *key, uint64_t flags)
{
    enum weft_status status = wf_ctx_check(ctx);
    struct wf_keymap_item item = {.raw_len = (uint32_t)size};
    struct wf_key k;
    if (status != WEFT_OK)
        return status;
    if (flags)
        return WEFT_EBADFLAGS;
    if (!raw_key || !key)
        return WEFT_EINVAL;
    if (size == sizeof item.plain) {
        memcpy(&item.plain, raw_key, size);
        return item.plain == WEFT_KEY_NONE ? WEFT_EINVAL : map(&ctx->keymap, &item, key);
    }
    status = wf_key_parse(raw_key, size, &k);
    if (status != WEFT_OK)
        return status;
    if (k.first != base_addr)
        return WEFT_EINVAL;
    item.is_raw = true;
    item.raw_len = sizeof k;
    memcpy(item.raw, raw_key, sizeof k);
    return map(&ctx->keymap, &item, key);
}

enum weft_status weft_key_unmap(struct weft_ctx *ctx, uint64_t key)
{
    enum weft_status status = wf_ctx_check(ctx);
    struct wf_keymap_item *item;
    struct wf_keymap *m;
    if (status != WEFT_OK)
        return status;
    m = &ctx->keymap;
    keymap_lock(m);
    item = item_of(m, key);
    if (item) {
        *item = (struct wf_keymap_item){.next = m->free};
        m->free = (uint32_t)(item - m->items) + 1;
        m->used--;
    }
    keymap_unlock(m);
    return item ? WEFT_OK : WEFT_EINVAL;
}
