/* SPDX-License-Identifier: BSD-3-Clause */
/* src/core/peer_slab.c against an array, also without memory. */
#include "unit.h"
#include "no_memory.h"

#include <string.h>

#include "base/asan.h"
#include "core/core.h"

enum { PEERS = 1000, TURNS = 50000, PART = 37, SIZE = sizeof(struct weft_peer) + PART };

static struct weft_peer *peers[PEERS];

static unsigned char stamp(unsigned i)
{
    return (unsigned char)(i % 255 + 1);
}

/* All of it is zero, but for the bits that the slab has in it. */
static void is_new(struct weft_peer *peer)
{
    const unsigned char *bytes = (const unsigned char *)peer;
    unsigned place = peer->place;
    assert_int_equal((uintptr_t)peer % _Alignof(struct weft_peer), 0);
    peer->place = 0;
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(bytes[i], 0);
    peer->place = place & 63;
}

/* [arg] holds the peer's number, and [tpeer] its stamp. */
static void peer_open(struct wf_peer_slab *slab, unsigned i)
{
    peers[i] = wf_peer_slab_new(slab);
    assert_non_null(peers[i]);
    is_new(peers[i]);
    weft_peer_set_arg(peers[i], &peers[i]);
    memset(peers[i]->tpeer, stamp(i), PART);
}

static void peer_close(struct wf_peer_slab *slab, unsigned i)
{
    assert_false(wf_peer_slab_free(slab, peers[i]));
    peers[i] = NULL;
}

/* The walk visits each peer once, and each peer holds the bytes that the test wrote to it. */
static void agrees(const struct wf_peer_slab *slab)
{
    struct weft_peer *peer = NULL;
    unsigned visited = 0, open_now = 0;
    for (; (peer = wf_peer_slab_next(slab, peer)); visited++) {
        struct weft_peer **at = weft_peer_arg(peer);
        unsigned i = (unsigned)(at - peers);
        assert_ptr_equal(*at, peer);
        for (unsigned k = 0; k < PART; k++)
            assert_int_equal(peer->tpeer[k], stamp(i));
    }
    for (unsigned i = 0; i < PEERS; i++)
        open_now += peers[i] != NULL;
    assert_int_equal(visited, open_now);
    assert_int_equal(slab->count, open_now);
}

static void all_close(struct wf_peer_slab *slab)
{
    for (unsigned i = 0; i < PEERS; i++)
        if (peers[i])
            peer_close(slab, i);
    assert_int_equal(slab->count, 0);
    assert_null(wf_peer_slab_next(slab, NULL));
    assert_ptr_equal(slab->chunks.next, slab->chunks.prev); /* one at most is kept */
    wf_peer_slab_fini(slab);
    assert_true(wf_list_empty(&slab->chunks) && wf_list_empty(&slab->roomy));
}

/* Fails when: two peers overlap, a new one is not empty, a walk misses one or visits one twice or a
 * closed one, or more than one chunk without peers is kept. */
static void model(void **state)
{
    struct wf_peer_slab slab;
    (void)state;
    wf_peer_slab_init(&slab, SIZE);
    assert_null(wf_peer_slab_next(&slab, NULL));
    for (unsigned turn = 0; turn < TURNS; turn++) {
        /* now more come, now more leave */
        unsigned i = (unsigned)(test_mix(turn) % PEERS), way = turn / (TURNS / 8) % 2;
        bool comes = test_mix(turn + TURNS) % 8 < (way ? 1 : 7);
        if (comes && !peers[i])
            peer_open(&slab, i);
        else if (!comes && peers[i])
            peer_close(&slab, i);
        if (turn % (TURNS / 50) == 0)
            agrees(&slab);
    }
    agrees(&slab);
    all_close(&slab);
}

/* Fails when: without memory a peer comes from nowhere, a free place is not used, or others
 * change. */
static void starved(void **state)
{
    struct wf_peer_slab slab;
    unsigned n = 0;
    (void)state;
    wf_peer_slab_init(&slab, SIZE);
    no_memory = true;
    assert_null(wf_peer_slab_new(&slab));
    no_memory = false;
    for (; n < 100; n++)
        peer_open(&slab, n);
    no_memory = true;
    while (!wf_list_empty(&slab.roomy))
        peer_open(&slab, n++);
    assert_null(wf_peer_slab_new(&slab));
    agrees(&slab);
#ifndef WF_ASAN /* else its chunk is freed */
    peer_close(&slab, 50);
    peer_open(&slab, 50);
    agrees(&slab);
#endif
    no_memory = false;
    all_close(&slab);
}

#ifndef WF_ASAN /* there each peer has a chunk of its own */
/* Fails when: a peer that comes and goes while all other chunks are full needs an allocation each
 * time, or the chunk that is kept is used before the other free places, or while it is full. */
static void comes_and_goes(void **state)
{
    struct wf_peer_slab slab;
    unsigned n = 0;
    (void)state;
    wf_peer_slab_init(&slab, SIZE);
    do
        peer_open(&slab, n++);
    while (!wf_list_empty(&slab.roomy));
    for (unsigned turn = 0; turn < 10; turn++) {
        peer_open(&slab, n);
        assert_int_equal(peers[n]->place, 0); /* of a chunk of its own */
        no_memory = true;
        peer_close(&slab, n);
    }
    peer_close(&slab, 1);
    peer_open(&slab, 1);
    assert_int_equal(peers[1]->place, 1);
    while (n < 8) /* as many as the full chunks have */
        peer_open(&slab, n++);
    assert_true(wf_list_empty(&slab.roomy));
    agrees(&slab);
    no_memory = false;
    all_close(&slab);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model),
        cmocka_unit_test(starved),
#ifndef WF_ASAN
        cmocka_unit_test(comes_and_goes),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
