/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/region_key.h"

#include <stdlib.h>

#include "base/rand.h"

/* The table by_key has this many hash chains for sent keys, then as many for plain keys. A sent key
 * is a region's plain key XORed with the region's auth. */
#define KEY_CHAINS 4096u

static WF_MEM_UNDER_LOCK struct wf_region **chain_sent(struct wf_mem *mem, uint64_t sent)
{
    return &mem->by_key[wf_rand(&sent) % KEY_CHAINS];
}

static WF_MEM_UNDER_LOCK struct wf_region **chain_named(struct wf_mem *mem, uint64_t key)
{
    return &mem->by_key[KEY_CHAINS + wf_rand(&key) % KEY_CHAINS];
}

/* Returns true if a region has the plain key [key], or if a region has the sent key [key] XOR
 * [auth]. Two regions must not have the same sent key, because peers name a region by it. */
static WF_MEM_UNDER_LOCK bool key_is_taken(struct wf_mem *mem, uint64_t key, uint64_t auth)
{
    const struct wf_region *r = *chain_named(mem, key), *s = *chain_sent(mem, key ^ auth);
    while (r && r->key != key)
        r = r->next_name;
    while (s && (s->key ^ s->auth) != (key ^ auth))
        s = s->next_key;
    return r || s;
}

/* Choose a free key of at most [bits] bits. The search begins at a random number, so that a faulty
 * program is unlikely to name a region by accident. Returns false if no key is free. */
static WF_MEM_UNDER_LOCK bool key_choose(struct wf_mem *mem, unsigned bits, uint64_t auth,
                                         uint64_t *key)
{
    uint64_t mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
    uint64_t k = wf_rand(&mem->next_key);
    for (unsigned tries = 0; tries <= WF_MEM_STATE_WORDS; tries++, k++) {
        *key = k & mask;
        if (*key != WF_MEM_NO_KEY && !key_is_taken(mem, *key, auth))
            return true;
        if (tries >= mask)
            break;
    }
    return false;
}

enum weft_status wf_region_key_add(struct wf_mem *mem, struct wf_region *r, unsigned bits)
{
    struct wf_region **sent, **named;
    if (!mem->by_key) {
        mem->by_key = calloc((size_t)2 * KEY_CHAINS, sizeof(struct wf_region *));
        mem->next_key = (uint64_t)(uintptr_t)mem->by_key ^ (uint64_t)(uintptr_t)mem->state;
    }
    if (!mem->by_key)
        return WEFT_ENOMEM;
    if (r->key == WF_MEM_NO_KEY ? !key_choose(mem, bits, r->auth, &r->key)
                                : key_is_taken(mem, r->key, r->auth))
        return WEFT_ENOKEY;
    sent = chain_sent(mem, r->key ^ r->auth);
    named = chain_named(mem, r->key);
    r->next_key = *sent;
    *sent = r;
    r->next_name = *named;
    *named = r;
    return WEFT_OK;
}

void wf_region_key_remove(struct wf_mem *mem, struct wf_region *r)
{
    struct wf_region **at = chain_sent(mem, r->key ^ r->auth);
    while (*at != r)
        at = &(*at)->next_key;
    *at = r->next_key;
    for (at = chain_named(mem, r->key); *at != r;)
        at = &(*at)->next_name;
    *at = r->next_name;
}

struct wf_region *wf_region_key_find(struct wf_mem *mem, uint64_t sent)
{
    struct wf_region *r = mem->by_key ? *chain_sent(mem, sent) : NULL;
    while (r && (r->key ^ r->auth) != sent)
        r = r->next_key;
    return r;
}
