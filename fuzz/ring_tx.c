/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side of a ring whose receiver writes anything: replies, the head,
 * the closed word. The back segment is a heap block of exactly its size. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "core/core.h"
#include "transport/shm/shm.h"

#define SLOTS 16
#define PLACES 4

static struct weft_peer *peer;
static struct shm_peer *shm_peer;
static struct shm_tx *tx;
static size_t back_size;
static unsigned delivered;

static void on_reply(const struct weft_am *am)
{
    FUZZ_CHECK(am->nargs <= 16 && am->len <= 512 && am->is_reply && !am->can_reply);
    fuzz_touch(am->data, am->len);
    fuzz_touch(am->args, 4u * am->nargs);
    delivered++;
}

static void set_up(void)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep[2];
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    setenv("WEFT_AM_MAX", "512", 1);
    setenv("WEFT_SHM_SLOTS", "16", 1);
    setenv("WEFT_DEBUG", "places=4", 1);
    FUZZ_CHECK(weft_ctx_open(NULL, &ctx) == WEFT_OK);
    for (int i = 0; i < 2; i++)
        FUZZ_CHECK(weft_ep_open(ctx, NULL, &ep[i]) == WEFT_OK);
    for (unsigned i = 0; i < WEFT_AM_USER_HANDLERS; i++)
        FUZZ_CHECK(weft_am_register(ep[0], i, on_reply, NULL) == WEFT_OK);
    FUZZ_CHECK(weft_ep_address(ep[1], addr, &len) == WEFT_OK &&
               weft_peer_open(ep[0], addr, len, &peer) == WEFT_OK &&
               weft_am_request(peer, 1, NULL, 0, NULL, 0, 0) == WEFT_OK);
    shm_peer = SHM_OF(wf_peer_tpeer(peer), shm_peer);
    tx = shm_peer->tx;
    back_size = wf_shm_places_at(&tx->segs->geometry) + PLACES * 512;
    wf_log_set_level((enum wf_log_level) - 1);
}

/* As new, with a back segment from the heap. */
static void reset(void)
{
    struct wf_shm_back *back = aligned_alloc(64, (back_size + 63) & ~(size_t)63);
    memset(back, 0, back_size);
    tx->back = tx->segs->back = back;
    tx->payload = (uint8_t *)back + wf_shm_payload_at(&tx->segs->geometry);
    tx->places = (uint8_t *)back + wf_shm_places_at(&tx->segs->geometry);
    tx->tail = tx->head_seen = tx->due_head = tx->due_tail = 0;
    tx->block_head = tx->block_tail = 0;
    tx->pay_head = tx->pay_tail = 0;
    tx->credit_end = SLOTS;
    tx->places_free = (1u << PLACES) - 1;
    tx->down = 0;
    shm_peer->down = 0;
    delivered = 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    /* reply_max asked for; then the reply's len, handler, nargs, flags */
    static const uint8_t cases[][6] = {{1, 0, 0, 0, 5, 0},
                                       {49, 0, 48, 0, 5, 0},
                                       {200, 0, 199, 0, 5, WF_SHM_IN_PLACE},
                                       {1, 2, 0, 2, 5, WF_SHM_IN_PLACE},
                                       {9, 0, 0, 0, 0, WF_SHM_NO_REPLY},
                                       {49, 0, 48, 0, 5, WF_SHM_ARGS_NEXT},
                                       {40, 0, 60, 0, 5, 0},
                                       {9, 0, 8, 0, 250, 0}};
    if (i >= sizeof cases / sizeof cases[0] || room < 16 * SLOTS + 8)
        return 0;
    memset(buf, 0, 8);
    for (unsigned k = 0; k < SLOTS; k++) {
        uint8_t *b = buf + 8 + 16 * k;
        const uint8_t *c = cases[(i + k / 5) % (sizeof cases / sizeof cases[0])];
        memset(b, 0, 16);
        memcpy(b, c, 2);         /* reply_max */
        memcpy(b + 2, c + 2, 2); /* len */
        b[4] = c[4];
        b[5] = c[5] & WF_SHM_ARGS_NEXT ? 16 : 2;
        b[7] = c[5];
    }
    return 8 + 16 * SLOTS;
}

/* The answer to request [pos], whatever it says. */
static void answer(uint32_t pos, struct fuzz_input *in)
{
    struct wf_shm_reply *r = &tx->back->replies[pos];
    uint16_t len;
    fuzz_take(in, &len, 2);
    fuzz_take(in, &r->line.handler, 8);
    atomic_store(&r->line.ready, wf_shm_ready(pos, len, (uint16_t)fuzz_u32(in)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    uint32_t head, closed, sent = 0, due = 0;
    enum weft_status status = WEFT_OK;
    if (!peer)
        set_up();
    reset();
    head = fuzz_u32(&in);
    closed = fuzz_u32(&in);
    for (uint32_t i = 0; i < SLOTS && status == WEFT_OK; i++) {
        uint16_t reply_max;
        fuzz_take(&in, &reply_max, 2);
        reply_max %= 514;
        status = weft_am_request(peer, 1, NULL, 0, data, i == 3 && size > 100 ? 100 : 0, reply_max);
        if (status == WEFT_OK) {
            answer(i, &in);
            sent++;
            due += reply_max != 0;
        }
    }
    FUZZ_CHECK(status == WEFT_OK || status == WEFT_AGAIN);
    (void)wf_shm_tx_poll(tx, 5);
    FUZZ_CHECK(delivered <= due);
    atomic_store(&tx->back->head, head);
    atomic_store(&tx->back->closed, (int32_t)closed);
    for (uint32_t i = 0; i < SLOTS; i++)
        status = weft_am_request(peer, 1, NULL, 0, NULL, 0, 0);
    /* A head that is not between what it was, 0, and the tail is a lie. */
    FUZZ_CHECK(head <= SLOTS || status == WEFT_EPROTO || (closed && status == WEFT_ECLOSED));
    FUZZ_CHECK(status == WEFT_OK || status == WEFT_AGAIN || status == WEFT_EPROTO ||
               status == WEFT_ECLOSED);
    (void)wf_shm_tx_poll(tx, SLOTS);
    FUZZ_CHECK(delivered <= due);
    free(tx->back);
    return 0;
}
