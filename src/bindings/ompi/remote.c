/* SPDX-License-Identifier: BSD-3-Clause */
/* Remote regions that are ready for access: the last 64 of each peer. One thread at a time uses
 * them (wbtl.accessing). */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

struct wbtl_remote {
    struct weft_remote *remote;
    struct weft_op op; /* of opening it */
    uint32_t key_len;
    unsigned char key[WEFT_KEY_MAX];
};

struct wbtl_remotes {
    unsigned count, last, oldest;
    uint64_t hash[WBTL_REMOTES];
    struct wbtl_remote *at[WBTL_REMOTES];
};

static bool is_at(const struct wbtl_remotes *all, unsigned i,
                  const mca_btl_base_registration_handle_t *h)
{
    return all->hash[i] == h->hash && all->at[i]->key_len == h->key_len &&
           !memcmp(all->at[i]->key, h->key, h->key_len);
}

/* Returns the place of the region of [h], or all->count. */
static unsigned find(const struct wbtl_remotes *all, const mca_btl_base_registration_handle_t *h)
{
    unsigned i = all->last;
    if (i < all->count && is_at(all, i, h))
        return i;
    for (i = 0; i < all->count && !is_at(all, i, h); i++)
        ;
    return i;
}

/* Close the region at [r] and free it. Returns OK | AGAIN, ECONTEXT (nothing changed) */
static enum weft_status close_one(struct wbtl_remote *r)
{
    enum weft_status s = WEFT_OK;
    if (r->op.status == WEFT_PENDING)
        s = weft_remote_open_cancel(wbtl.ep, &r->op);
    /* Another thread's poll may have completed the opening before it could be cancelled. */
    if (s == WEFT_OK && r->op.status == WEFT_OK && r->remote)
        s = weft_remote_close(r->remote);
    if (s == WEFT_OK)
        free(r);
    return s;
}

/* Take region [i] out of the list. */
static void take_out(struct wbtl_remotes *all, unsigned i)
{
    all->count--;
    all->hash[i] = all->hash[all->count];
    all->at[i] = all->at[all->count];
}

/* Make room for a region: close the oldest if there are as many as may be. */
static enum weft_status room_make(struct wbtl_remotes *all)
{
    enum weft_status s = WEFT_OK;
    unsigned i = all->oldest % WBTL_REMOTES;
    if (all->count < WBTL_REMOTES)
        return WEFT_OK;
    s = close_one(all->at[i]);
    if (s == WEFT_OK) {
        take_out(all, i);
        all->oldest++;
    }
    return s;
}

/* Open the region of [h]; it is the last one on OK and PENDING. */
static enum weft_status open_one(wbtl_peer *peer, const mca_btl_base_registration_handle_t *h)
{
    struct wbtl_remotes *all = peer->remotes;
    enum weft_status s = room_make(all);
    struct wbtl_remote *r;
    if (s != WEFT_OK)
        return s;
    r = calloc(1, sizeof *r);
    if (!r)
        return WEFT_ENOMEM;
    r->key_len = h->key_len;
    memcpy(r->key, h->key, h->key_len);
    s = weft_remote_open_start(peer->weft, h->key, h->key_len, &r->remote, &r->op);
    if (s != WEFT_OK && s != WEFT_PENDING) {
        free(r);
        return s;
    }
    all->last = all->count++;
    all->at[all->last] = r;
    all->hash[all->last] = h->hash;
    return s;
}

enum weft_status wbtl_remote_find(wbtl_peer *peer, const mca_btl_base_registration_handle_t *h,
                                  struct weft_remote **out)
{
    struct wbtl_remotes *all = peer->remotes;
    enum weft_status s = WEFT_OK;
    unsigned i;
    if (!all && !(all = peer->remotes = calloc(1, sizeof *all)))
        return WEFT_ENOMEM;
    i = find(all, h);
    if (OPAL_UNLIKELY(i == all->count)) {
        s = open_one(peer, h);
        i = all->last;
    } else
        s = (enum weft_status)all->at[i]->op.status;
    all->last = i;
    if (OPAL_UNLIKELY(s == WEFT_PENDING))
        return WEFT_AGAIN;
    if (OPAL_UNLIKELY(s != WEFT_OK)) {
        wbtl_remote_forget(peer, h);
        return s;
    }
    *out = all->at[i]->remote;
    return WEFT_OK;
}

void wbtl_remote_forget(wbtl_peer *peer, const mca_btl_base_registration_handle_t *h)
{
    struct wbtl_remotes *all = peer->remotes;
    unsigned i = all ? find(all, h) : 0;
    if (all && i < all->count && close_one(all->at[i]) == WEFT_OK)
        take_out(all, i);
}

void wbtl_remotes_close(wbtl_peer *peer)
{
    struct wbtl_remotes *all = peer->remotes;
    enum weft_status s = WEFT_OK;
    if (!all)
        return;
    while (all->count && s == WEFT_OK) {
        for (int i = 0; (s = close_one(all->at[all->count - 1])) == WEFT_AGAIN && i < 1000; i++)
            (void)weft_ep_wait(wbtl.ep, 1000000);
        if (s == WEFT_OK)
            all->count--;
    }
    free(all);
    peer->remotes = NULL;
}
