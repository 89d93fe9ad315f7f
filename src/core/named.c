/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/named.h"

#include <stdlib.h>

#include "core/flow.h"
#include "core/path.h"
#include "core/remote.h"

#define PAUSE_MIN 16u
#define PAUSE_MAX 4096u

/* Raw keys that a peer handle keeps. A program that uses more keys at a time keeps their remotes
 * open. */
#define KEPT 16u

struct wf_named_cache {
    uint32_t next; /* place of the key that is replaced next */
    struct {
        uint64_t name;
        struct wf_key key; /* version 0: the place is free */
    } kept[KEPT];
};

/* ---- the keys of a peer handle ---- */

static struct wf_key *kept(const struct wf_remote *r)
{
    struct wf_flow *flow = r->pub.peer->flow;
    struct wf_named_cache *c = flow ? flow->named : NULL;
    for (unsigned i = 0; c && i < KEPT; i++)
        if (c->kept[i].key.version && c->kept[i].name == r->key.gen)
            return &c->kept[i].key;
    return NULL;
}

/* Without memory the key is not kept. */
static void keep(const struct wf_remote *r, const struct wf_key *key)
{
    struct wf_key *at = kept(r);
    struct wf_flow *flow = wf_flow_of(r->pub.peer);
    if (!at && flow && (flow->named || (flow->named = calloc(1, sizeof *flow->named)))) {
        unsigned i = flow->named->next++ % KEPT;
        flow->named->kept[i].name = r->key.gen;
        at = &flow->named->kept[i].key;
    }
    if (at)
        *at = *key;
}

static void drop(const struct wf_remote *r, const struct wf_key *key)
{
    struct wf_key *at = kept(r);
    if (at && !memcmp(at, key, sizeof *key)) /* else a newer one */
        at->version = 0;
}

/* ---- a remote ---- */

enum weft_status wf_named_open(struct wf_remote *r)
{
    const struct wf_key *key = kept(r);
    r->named = calloc(1, sizeof *r->named);
    if (!r->named)
        return WEFT_ENOMEM;
    r->named->pause = PAUSE_MIN;
    if (key) {
        r->named->key = *key;
        r->named->state = WF_NAMED_LEARNT;
    }
    return WEFT_OK;
}

void wf_named_close(struct wf_remote *r)
{
    free(r->named);
    r->named = NULL;
}

static void silence(struct wf_named *n)
{
    n->state = WF_NAMED_SILENT;
    n->left = n->pause;
    n->pause = WF_MIN(2 * n->pause, PAUSE_MAX);
}

void wf_named_forget(struct wf_remote *r)
{
    struct wf_named *n = r->named;
    if (n->state != WF_NAMED_KNOWN && n->state != WF_NAMED_LEARNT)
        return;
    drop(r, &n->key);
    wf_remote_unmap(r);
    wf_remote_no_ring(r);
    wf_remote_be_named(r);
    n->state = WF_NAMED_UNKNOWN;
}

void wf_named_renew(struct wf_remote *r)
{
    wf_named_forget(r);
    r->named->state = WF_NAMED_UNKNOWN;
    r->named->pause = PAUSE_MIN;
}

/* Can something be gained from the raw key? */
static bool is_useful(const struct wf_remote *r, const struct wf_key *k)
{
    const struct weft_peer *peer = r->pub.peer;
    if (wf_key_has_nic(k) && peer->caps & WF_CAP_NIC)
        return true;
    return wf_path_can_pull(peer) && !(k->flags & WF_KEY_OWNER) && k->access & WEFT_REMOTE_READ;
}

/* Use the raw key: all of it but slot and generation, by which messages would name the region. */
static void resolve(struct wf_remote *r)
{
    struct wf_named *n = r->named;
    struct weft_peer *peer = r->pub.peer;
    const struct wf_key *k = &n->key;
    struct weft_remote at = {.base = NULL};
    enum weft_status status;
    if (!is_useful(r, k)) {
        silence(n);
        return;
    }
    status = peer->transport->remote_map(wf_peer_tpeer(peer), k, &at, &r->cookie);
    if (status == WEFT_PENDING)
        return;
    if (status != WEFT_OK) {
        wf_named_forget(r);
        return;
    }
    r->pub.gen_word = at.gen_word;
    r->pub.gen = at.gen;
    r->key.offset = k->offset;
    r->key.first = k->first;
    /* Atomics by the NIC need a raw key (WEFT_MR_NIC_ATOMICS). */
    r->key.flags = k->flags & ~(uint32_t)WF_KEY_ATOMIC;
    r->key.nic_at = k->nic_at;
    memcpy(r->key.nic_key, k->nic_key, sizeof r->key.nic_key);
    n->state = WF_NAMED_KNOWN;
    n->pause = PAUSE_MIN;
    wf_remote_use_nic(r, k->access & WEFT_REMOTE_WRITE ? k->first + k->length : 0);
}

/* Across a network the generation word never changes. There a part of the key's region that was not
 * learnt shows that the key may have gone to another region. */
static bool is_beyond(const struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access)
{
    return len && r->pub.peer->caps & WF_CAP_NIC && !wf_named_covers(r, offset, len, access);
}

void wf_named_begin(struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access)
{
    struct wf_named *n = r->named;
    if (n->state == WF_NAMED_SILENT && !n->left--)
        n->state = WF_NAMED_UNKNOWN;
    if (n->state == WF_NAMED_LEARNT)
        resolve(r);
    if (n->state == WF_NAMED_KNOWN &&
        (__atomic_load_n(r->pub.gen_word, __ATOMIC_ACQUIRE) != r->pub.gen ||
         is_beyond(r, offset, len, access)))
        wf_named_forget(r);
}

bool wf_named_asks(const struct wf_remote *r, uint64_t len)
{
    return r->named->state == WF_NAMED_UNKNOWN && !wf_path_is_here(r) &&
           (wf_path_can_pull(r->pub.peer) || wf_path_can_nic(r->pub.peer, len));
}

void wf_named_asked(struct wf_remote *r)
{
    r->named->state = WF_NAMED_ASKED;
}

/* Copy the raw key before checking it: the sender may change [bytes]. */
static bool key_take(const struct wf_remote *r, const void *bytes, struct wf_key *key)
{
    struct wf_key copy;
    if (!bytes)
        return false;
    memcpy(&copy, bytes, sizeof copy);
    return wf_key_parse(&copy, sizeof copy, key) == WEFT_OK && key->slab == WF_KEY_PRIVATE &&
           key->auth == wf_auth_tag(key->gen, r->pub.peer->ep->auth);
}

void wf_named_answered(struct wf_remote *r, enum weft_status status, const void *bytes)
{
    struct wf_named *n = r->named;
    if (n->state != WF_NAMED_ASKED)
        return;
    if (status != WEFT_OK) {
        n->state = WF_NAMED_UNKNOWN;
    } else if (!key_take(r, bytes, &n->key)) {
        silence(n);
    } else {
        n->state = WF_NAMED_LEARNT;
        keep(r, &n->key);
        wf_ep_count(r->pub.peer->ep, WF_STAT_KEYS_LEARNT, 1);
    }
}

bool wf_named_covers(const struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access)
{
    const struct wf_key *k = &r->named->key;
    uint64_t at = offset - k->first;
    return r->named->state == WF_NAMED_KNOWN && offset >= k->first && len <= k->length &&
           at <= k->length - len && (k->access & access) == access;
}
