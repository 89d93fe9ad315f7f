/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/peer_slab.h"

#include <stdlib.h>

#include "base/asan.h"
#include "core/core.h"

/* A slab grows by as many peers as it has, within these bounds: an endpoint with few peers takes
 * little more than they do. */
#define FEWEST 4u
#define MOST 64u /* bits of struct chunk.used, and values of struct weft_peer.place */

struct chunk {
    struct wf_list item;  /* slab->chunks */
    struct wf_list roomy; /* slab->roomy, or in no list. A chunk without peers is its last item */
    uint64_t used;        /* a bit for each place */
    unsigned places;
    _Alignas(struct weft_peer) unsigned char peers[];
};

static bool is_full(const struct chunk *chunk)
{
    return chunk->used == UINT64_MAX >> (MOST - chunk->places);
}

static struct weft_peer *peer_at(const struct wf_peer_slab *slab, struct chunk *chunk,
                                 unsigned place)
{
    return (struct weft_peer *)(void *)(chunk->peers + (size_t)place * slab->size);
}

static struct chunk *chunk_of(const struct wf_peer_slab *slab, struct weft_peer *peer)
{
    unsigned char *first = (unsigned char *)peer - (size_t)peer->place * slab->size;
    return (struct chunk *)(void *)(first - offsetof(struct chunk, peers));
}

void wf_peer_slab_init(struct wf_peer_slab *slab, size_t size)
{
    wf_list_init(&slab->chunks);
    wf_list_init(&slab->roomy);
    slab->size = (uint32_t)wf_align_up(size, _Alignof(struct weft_peer));
    slab->count = 0;
}

/* Has each peer a chunk of its own, which is freed with it? */
static bool is_alone(void)
{
#ifdef WF_ASAN
    return true;
#else
    return wf_handles_are_kept();
#endif
}

static unsigned places_next(const struct wf_peer_slab *slab)
{
    return is_alone() ? 1 : WF_MIN(WF_MAX(slab->count, FEWEST), MOST);
}

size_t wf_peer_slab_more(const struct wf_peer_slab *slab)
{
    return sizeof(struct chunk) + (size_t)places_next(slab) * slab->size;
}

static struct chunk *chunk_new(struct wf_peer_slab *slab)
{
    struct chunk *chunk = calloc(1, wf_peer_slab_more(slab));
    if (!chunk)
        return NULL;
    chunk->places = places_next(slab);
    wf_list_append(&slab->chunks, &chunk->item);
    wf_list_append(&slab->roomy, &chunk->roomy);
    return chunk;
}

struct weft_peer *wf_peer_slab_new(struct wf_peer_slab *slab)
{
    struct chunk *chunk = wf_list_empty(&slab->roomy)
                              ? chunk_new(slab)
                              : wf_container_of(slab->roomy.next, struct chunk, roomy);
    struct weft_peer *peer;
    unsigned place;
    if (!chunk)
        return NULL;
    place = (unsigned)__builtin_ctzll(~chunk->used);
    chunk->used |= UINT64_C(1) << place;
    if (is_full(chunk))
        wf_list_remove(&chunk->roomy);
    slab->count++;
    peer = peer_at(slab, chunk, place);
    peer->place = place;
    return peer;
}

/* Returns true if the memory is kept, as wf_handle_free does. */
static bool chunk_free(struct chunk *chunk)
{
    wf_list_remove(&chunk->item);
    wf_list_remove(&chunk->roomy);
    return wf_handle_free(chunk);
}

/* Returns the chunk without peers that the slab keeps, or NULL. */
static struct chunk *spare_of(const struct wf_peer_slab *slab)
{
    struct chunk *last =
        wf_list_empty(&slab->roomy) ? NULL : wf_container_of(slab->roomy.prev, struct chunk, roomy);
    return last && !last->used ? last : NULL;
}

/* [chunk] has lost its last peer. The slab keeps one such chunk: without it, a program that opens
 * and closes one peer while all other chunks are full would allocate a chunk each time. Returns
 * what wf_peer_slab_free returns. */
static bool emptied(struct wf_peer_slab *slab, struct chunk *chunk)
{
    const struct chunk *spare = spare_of(slab);
    if (is_alone() || (spare && spare != chunk))
        return chunk_free(chunk);
    wf_list_remove(&chunk->roomy);
    wf_list_append(&slab->roomy, &chunk->roomy);
    return false;
}

bool wf_peer_slab_free(struct wf_peer_slab *slab, struct weft_peer *peer)
{
    struct chunk *chunk = chunk_of(slab, peer);
    chunk->used &= ~(UINT64_C(1) << peer->place);
    slab->count--;
    memset(peer, 0, slab->size);
    if (!chunk->used)
        return emptied(slab, chunk);
    if (wf_list_empty(&chunk->roomy))
        wf_list_prepend(&slab->roomy, &chunk->roomy);
    return false;
}

void wf_peer_slab_fini(struct wf_peer_slab *slab)
{
    struct chunk *spare = spare_of(slab);
    if (spare)
        (void)chunk_free(spare);
}

struct weft_peer *wf_peer_slab_next(const struct wf_peer_slab *slab, struct weft_peer *after)
{
    struct chunk *chunk = after ? chunk_of(slab, after) : NULL;
    /* shifted twice: [place] may be the last bit */
    uint64_t left = after ? chunk->used >> after->place >> 1 << after->place << 1 : 0;
    const struct wf_list *it = after ? &chunk->item : &slab->chunks;
    while (!left && (it = it->next) != &slab->chunks) {
        chunk = wf_container_of(it, struct chunk, item);
        left = chunk->used;
    }
    return left ? peer_at(slab, chunk, (unsigned)__builtin_ctzll(left)) : NULL;
}
