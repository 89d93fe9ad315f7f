/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving side of a ring whose lines are anything: wf_shm_rx_burst. The
 * segments are heap blocks of exactly their size, so that one byte too far is seen. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weft/msg.h>

#include "base/log.h"
#include "core/core.h"
#include "transport/shm/shm.h"

#define SLOTS 16
static const struct wf_shm_geometry geometry = {SLOTS, 4096, 512, 4};
static const uint8_t *payload_area; /* of this input */

static struct weft_ep *ep;
static struct shm_tep *tep;

/* Uses all that it was given, and replies as long as it may. */
static void on_message(const struct weft_am *am)
{
    static const uint8_t reply[512];
    const uint32_t args[16] = {0};
    FUZZ_CHECK(am->nargs <= 16 && am->len <= geometry.am_max && !((uintptr_t)am->data & 15));
    FUZZ_CHECK(am->reply_max <= geometry.am_max + 1 && !am->is_reply);
    fuzz_touch(am->data, am->len);
    if (am->len > WEFT_AM_READ_ONLY) { /* in the payload area, and the handler's to write */
        uintptr_t at = (uintptr_t)am->data - (uintptr_t)payload_area;
        FUZZ_CHECK(at < geometry.payload && at + am->len <= geometry.payload);
        memset((void *)(uintptr_t)am->data, 0x55, am->len);
    }
    fuzz_touch(am->args, 4u * am->nargs);
    if (am->can_reply && am->len % 3)
        FUZZ_CHECK(weft_am_reply(am, am->handler % WEFT_AM_USER_HANDLERS, args, am->nargs, reply,
                                 am->reply_max - 1) == WEFT_OK);
}

static void set_up(void)
{
    struct weft_ctx *ctx;
    setenv("WEFT_AM_MAX", "512", 1);
    FUZZ_CHECK(weft_ctx_open(NULL, &ctx) == WEFT_OK && weft_ep_open(ctx, NULL, &ep) == WEFT_OK);
    for (unsigned i = 0; i < WEFT_AM_USER_HANDLERS; i++)
        FUZZ_CHECK(weft_am_register(ep, i, on_message, NULL) == WEFT_OK);
    tep = SHM_OF(ep->tep[1], shm_tep);
    wf_log_set_level((enum wf_log_level) - 1); /* each refusal says so: not 20,000 times */
}

/* Receives, to which the bytes of lines may go. Each has a heap block of its size, which [done]
 * frees together with the op. */
enum { RECVS = 4 };
static struct weft_op *posted[RECVS]; /* NULL: it is over */

static void on_received(struct weft_op *op)
{
    for (int i = 0; i < RECVS; i++)
        if (posted[i] == op)
            posted[i] = NULL;
    free(op->user);
    free(op);
}

static void recvs_post(void)
{
    static const size_t lens[RECVS] = {40, 0, 8, 64};
    for (int i = 0; i < RECVS; i++) {
        struct weft_op *op = posted[i] = calloc(1, sizeof *op);
        FUZZ_CHECK(op);
        op->user = malloc(lens[i]);
        op->done = on_received;
        FUZZ_CHECK(weft_msg_recv(ep, NULL, 0, 0, op->user, lens[i], op) == WEFT_PENDING);
    }
}

/* End the receives that no message has matched, and take the messages that no receive has. A
 * receive of which a part has come ends with its connection. */
static void recvs_end(void)
{
    struct weft_msg_info info;
    struct weft_msg *msg;
    for (int i = 0; i < RECVS; i++)
        if (posted[i]) {
            enum weft_status status = weft_msg_cancel(ep, posted[i]);
            FUZZ_CHECK(status == WEFT_OK || status == WEFT_EBUSY);
        }
    while (weft_msg_claim(ep, NULL, 0, 0, &info, &msg) == WEFT_OK) {
        struct weft_op op = {0};
        FUZZ_CHECK(weft_msg_take(ep, msg, NULL, 0, &op) <= 0);
    }
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    static const struct wf_shm_header headers[] = {
        {8, 0, 1, 0, WF_SHM_NO_PLACE, 0, 0},
        {48, 1, 1, 0, WF_SHM_NO_PLACE, 0, 0},
        {0, 49, 1, 12, WF_SHM_NO_PLACE, 0, 0},
        {512, 513, 2, 0, 3, WF_SHM_BESIDE, 56},
        {500, 513, 2, 16, 0, WF_SHM_BESIDE | WF_SHM_ARGS_NEXT, 0},
        {0, 0, 2, 16, 255, WF_SHM_BESIDE | WF_SHM_ARGS_NEXT, 63},
        {100, 0, 250, 3, 255, WF_SHM_BESIDE, 61},
        {32, 100, 3, 4, 1, 0, 0},
        {512, 0, 3, 0, 255, WF_SHM_BESIDE, 1u << 26},
        /* beyond the end of the payload area: by the payload, by arguments and payload */
        {512, 0, 2, 0, 255, WF_SHM_BESIDE, 60},
        {480, 0, 2, 16, 255, WF_SHM_BESIDE | WF_SHM_ARGS_NEXT, 56},
        /* tagged messages, and what looks like one */
        {8, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, 0, 0},
        {0, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, 0, 0},
        {40, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, 0, 0},
        {41, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, 0, 0},
        {8, 1, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, 0, 0},
        {8, 0, WF_AM_TAGGED, 2, 0, 0, 0},
        {41, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, WF_SHM_BESIDE, 5},
        {64, 1, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, WF_SHM_BESIDE, 62},
        {64, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, WF_SHM_BESIDE, 63},
        {65, 0, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, WF_SHM_BESIDE, 63}};
    if (i >= sizeof headers / sizeof headers[0] || room < 12 * SLOTS)
        return 0;
    for (unsigned k = 0; k < SLOTS; k++)
        memcpy(buf + 12 * k, &headers[(i + k / 4) % (sizeof headers / sizeof headers[0])], 12);
    return 12 * SLOTS;
}

/* Sixteen messages; what each header says comes from the input, in 12 bytes. */
static void lines_fill(struct wf_shm_fwd *fwd, struct fuzz_input *in)
{
    for (uint32_t pos = 0; pos < SLOTS; pos++) {
        struct wf_shm_line *line = &fwd->lines[pos];
        uint16_t len = 0, reply_max = 0;
        fuzz_take(in, &len, 2);
        fuzz_take(in, &reply_max, 2);
        fuzz_take(in, &line->handler, 8);
        memset(line->data, (int)pos, sizeof line->data);
        atomic_store(&line->ready, wf_shm_ready(pos, len, reply_max));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    size_t fwd_size = sizeof(struct wf_shm_fwd) + SLOTS * sizeof(struct wf_shm_line);
    size_t back_size = wf_shm_places_at(&geometry) + 4 * 512;
    struct shm_segs segs = {.refs = 2, .geometry = geometry}; /* never unmapped */
    struct wf_address from = {.version = WF_ADDRESS_VERSION};
    struct shm_rx *rx;
    int done = 0;
    if (!ep)
        set_up();
    segs.fwd = aligned_alloc(64, fwd_size);
    segs.back = aligned_alloc(64, back_size);
    memset(segs.fwd, 0, fwd_size);
    memset(segs.back, 0, back_size);
    payload_area = (const uint8_t *)segs.back + wf_shm_payload_at(&geometry);
    lines_fill(segs.fwd, &in);
    rx = wf_shm_rx_open(tep, &segs, &from, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), false);
    FUZZ_CHECK(rx);
    recvs_post();
    wf_ep_set_busy(ep, true); /* as in weft_ep_poll */
    for (int n = 1; n > 0; done += n)
        n = wf_shm_rx_ready(rx, rx->head)
                ? wf_shm_rx_burst(rx, wf_shm_rx_ready_word(rx, rx->head), 5)
                : 0;
    wf_ep_set_busy(ep, false);
    /* All of it was handled, or the connection was dropped at the first lie. */
    FUZZ_CHECK((done == SLOTS && !segs.back->closed) ||
               (done < SLOTS && segs.back->closed == WEFT_EPROTO && rx->down == WEFT_EPROTO));
    FUZZ_CHECK(segs.back->head == (uint32_t)done);
    recvs_end();
    wf_shm_rx_free(rx);
    for (int i = 0; i < RECVS; i++)
        FUZZ_CHECK(!posted[i]);
    free(segs.fwd);
    free(segs.back);
    return 0;
}
