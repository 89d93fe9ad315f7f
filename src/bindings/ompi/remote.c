/* SPDX-License-Identifier: BSD-3-Clause */
/* Remote regions that are ready for access: the last 64 of each peer and port. One thread at a time
 * uses those of a port (port.accessing). */
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

/* Are the two keys of WEFT_KEY_MAX bytes equal? Behind its end a key is zero. */
static inline bool is_equal(const unsigned char *a, const unsigned char *b)
{
    uint64_t differ = 0, x, y;
    for (unsigned i = 0; i < WEFT_KEY_MAX; i += sizeof x) {
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        differ |= x ^ y;
    }
    return !differ;
}
_Static_assert(WEFT_KEY_MAX % sizeof(uint64_t) == 0, "whole words");

static bool is_at(const struct wbtl_remotes *all, unsigned i,
                  const mca_btl_base_registration_handle_t *h)
{
    return all->hash[i] == h->hash && all->at[i]->key_len == h->key_len &&
           is_equal(all->at[i]->key, h->key);
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
static enum weft_status close_one(struct wbtl_remote *r, unsigned at)
{
    enum weft_status s = WEFT_OK;
    if (r->op.status == WEFT_PENDING)
        s = weft_remote_open_cancel(wbtl.ports[at].ep, &r->op);
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
static enum weft_status room_make(struct wbtl_remotes *all, unsigned at)
{
    enum weft_status s = WEFT_OK;
    unsigned i = all->oldest % WBTL_REMOTES;
    if (all->count < WBTL_REMOTES)
        return WEFT_OK;
    s = close_one(all->at[i], at);
    if (s == WEFT_OK) {
        take_out(all, i);
        all->oldest++;
    }
    return s;
}

/* Open the region of [h]; it is the last one on OK and PENDING. */
static enum weft_status open_one(wbtl_peer *peer, unsigned at,
                                 const mca_btl_base_registration_handle_t *h)
{
    struct wbtl_remotes *all = peer->ways[at].remotes;
    enum weft_status s = room_make(all, at);
    struct wbtl_remote *r;
    if (s != WEFT_OK)
        return s;
    r = calloc(1, sizeof *r);
    if (!r)
        return WEFT_ENOMEM;
    r->key_len = h->key_len;
    memcpy(r->key, h->key, h->key_len);
    s = weft_remote_open_start(peer->ways[at].weft, h->key, h->key_len, &r->remote, &r->op);
    if (s != WEFT_OK && s != WEFT_PENDING) {
        free(r);
        return s;
    }
    all->last = all->count++;
    all->at[all->last] = r;
    all->hash[all->last] = h->hash;
    return s;
}

/* Make way number [at] of [peer] ready. */
static enum weft_status way_open(wbtl_peer *peer, unsigned at)
{
    struct wbtl_way *way = &peer->ways[at];
    enum weft_status s = WEFT_OK;
    if (!way->weft) {
        s = weft_peer_open(wbtl.ports[at].ep, peer->address, sizeof peer->address, &way->weft);
        if (s == WEFT_OK)
            weft_peer_set_arg(way->weft, peer);
    }
    if (s == WEFT_OK && !way->remotes && !(way->remotes = calloc(1, sizeof *way->remotes)))
        s = WEFT_ENOMEM;
    return s;
}

enum weft_status wbtl_remote_find(wbtl_peer *peer, unsigned at,
                                  const mca_btl_base_registration_handle_t *h,
                                  struct weft_remote **out)
{
    struct wbtl_remotes *all = peer->ways[at].remotes;
    enum weft_status s = WEFT_OK;
    unsigned i;
    if (OPAL_UNLIKELY(!all)) {
        s = way_open(peer, at);
        if (s != WEFT_OK)
            return s;
        all = peer->ways[at].remotes;
    }
    i = find(all, h);
    if (OPAL_UNLIKELY(i == all->count)) {
        s = open_one(peer, at, h);
        i = all->last;
    } else
        s = (enum weft_status)all->at[i]->op.status;
    all->last = i;
    if (OPAL_UNLIKELY(s == WEFT_PENDING))
        return WEFT_AGAIN;
    if (OPAL_UNLIKELY(s != WEFT_OK)) {
        wbtl_remote_forget(peer, at, h);
        return s;
    }
    *out = all->at[i]->remote;
    return WEFT_OK;
}

void wbtl_remote_forget(wbtl_peer *peer, unsigned at, const mca_btl_base_registration_handle_t *h)
{
    struct wbtl_remotes *all = peer->ways[at].remotes;
    unsigned i = all ? find(all, h) : 0;
    if (all && i < all->count && close_one(all->at[i], at) == WEFT_OK)
        take_out(all, i);
}

static void way_remotes_close(struct wbtl_way *way, unsigned at)
{
    struct wbtl_remotes *all = way->remotes;
    const int64_t start = wbtl_now_ns();
    enum weft_status s = WEFT_OK;
    if (!all)
        return;
    while (all->count && s == WEFT_OK) {
        while ((s = close_one(all->at[all->count - 1], at)) == WEFT_AGAIN &&
               wbtl_close_wait(wbtl.ports[at].ep, start))
            ;
        if (s == WEFT_OK)
            all->count--;
    }
    free(all);
    way->remotes = NULL;
}

void wbtl_remotes_close(wbtl_peer *peer)
{
    for (unsigned i = 0; i < wbtl.nports; i++)
        way_remotes_close(&peer->ways[i], i);
}
