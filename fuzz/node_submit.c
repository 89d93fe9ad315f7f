/* SPDX-License-Identifier: BSD-3-Clause */
/* A node service that reads anything: wf_node_mover_turn on a submit segment of a client, and
 * wf_node_frame_take on frames of another service. What the service forwards, the other service
 * must take. */
#include "fuzz.h"

#include "../tests/unit/node_bed.h"
#include "base/log.h"

enum { LINES = 16, ENTRY = 56, RECORD = 16 };

static void on_message(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    FUZZ_CHECK(am->nargs <= 16 && am->len <= BED_AM_MAX && !((uintptr_t)am->data & 15));
    fuzz_touch(am->data, am->len);
    fuzz_touch(am->args, 4u * am->nargs);
}

static uint32_t parts[WF_NODE_PARTS]; /* that the NIC has been given */
static unsigned nparts;

static enum weft_status on_move(struct bed_service *s, const struct wf_nic_op *op,
                                uint32_t incarnation, size_t *taken)
{
    uint64_t last = (uint64_t)(uintptr_t)op->local + op->len - 1;
    (void)s;
    FUZZ_CHECK(op->len && op->len <= 256 << 10 && op->remote <= UINT64_MAX - op->len);
    FUZZ_CHECK((uintptr_t)op->local >> WF_NODE_WINDOW_BITS == wf_node_window(5, 1));
    FUZZ_CHECK(last >> WF_NODE_WINDOW_BITS == wf_node_window(5, 1));
    if (incarnation & 1 || nparts == WF_NODE_PARTS)
        return incarnation & 2 ? WEFT_EKEY : WEFT_AGAIN;
    parts[nparts++] = op->id;
    *taken = op->len;
    return WEFT_OK;
}

static struct bed *bed_new(void)
{
    struct bed *bed = calloc(1, sizeof *bed);
    FUZZ_CHECK(bed);
    bed->on_request = bed->on_reply = on_message;
    bed->on_move = on_move;
    nparts = 0;
    bed->limits = (struct bed_limits){.clients = 1,
                                      .lines = LINES,
                                      .rows = 8,
                                      .waiters = 2,
                                      .slots = 4,
                                      .lane_room = 64,
                                      .size = WF_NODE_RING_MIN};
    wf_log_set_level((enum wf_log_level) - 1); /* each failure is logged */
    bed_open(bed);
    return bed;
}

/* An entry: length and reply_max (2 bytes each), 20 bytes of zeroes or data, then the entry from
 * its handler on. */
static void entry_fill(uint8_t *to, uint16_t len, uint16_t reply_max, struct wf_node_entry e)
{
    memcpy(to, &len, 2);
    memcpy(to + 2, &reply_max, 2);
    memcpy(to + 4, &e.handler, ENTRY - 4);
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    struct bed *bed;
    struct wf_node_record r[4] = {0};
    if (i >= 12 || room < 2 + 4 * RECORD + LINES * ENTRY + 4)
        return 0;
    bed = bed_new();
    memset(buf, 0, 2 + 4 * RECORD + LINES * ENTRY + 4);
    buf[0] = (uint8_t)(i & 1);
    for (unsigned k = 0; k < 4; k++) {
        r[k] = (struct wf_node_record){.word = BED_WORD,
                                       .index = 5,
                                       .ep = 40,
                                       .tag = bed->clients[0][0].to[0]->to.tag,
                                       .attempt = 1};
        memcpy(buf + 1 + k * RECORD, &r[k], RECORD);
        buf[1 + k * RECORD + 6] = 1; /* attempt, in place of the flags */
    }
    for (unsigned k = 0; k < LINES; k++) {
        struct wf_node_entry e = {.handler = 1,
                                  .nargs = (uint8_t)(k % 3),
                                  .place = (uint8_t)(i % 3 == 1 ? k : WF_NODE_NO_PLACE),
                                  .flags = (uint8_t)(k < 4 ? WF_NODE_BEGIN : 0),
                                  .number = k / 4,
                                  .slot = (uint16_t)(k % 4),
                                  .attempt = 1,
                                  .session = 1,
                                  .use = k + 1};
        if (i % 4 == 2)
            e.flags |= WF_NODE_BESIDE, e.where = 3 * k;
        if (i % 6 == 4)
            e.flags |= WF_NODE_REPLY, e.place = (uint8_t)k;
        if (i == 10)
            e = (struct wf_node_entry){
                .handler = (uint8_t)(k % 2),
                .place = (uint8_t)k,
                .flags = WF_NODE_MOVE,
                .where = BED_WORD,
                .number = 1 + 100000 * k,
                .session = 1,
                .use = k + 1,
                .move = {.local = (uint64_t)wf_node_window(5, 1) << WF_NODE_WINDOW_BITS,
                         .incarnation = k}};
        entry_fill(buf + 1 + 4 * RECORD + k * ENTRY,
                   (uint16_t)(e.flags & WF_NODE_MOVE ? 0
                              : i % 4 == 2           ? 100 * k
                                                     : 8),
                   (uint16_t)(i % 3 == 1 ? 1 + k : 0), e);
    }
    bed_close(bed);
    free(bed);
    return 1 + 4 * RECORD + LINES * ENTRY + 4;
}

static void segment_fill(struct bed_client *b, struct fuzz_input *in)
{
    uint32_t taken;
    for (unsigned k = 0; k < 4; k++) {
        struct wf_node_record *r = &b->submit->records[k];
        fuzz_take(in, r, RECORD);
        r->attempt = r->flags & 0xff;
        r->flags >>= 8;
    }
    for (uint32_t k = 0; k < LINES; k++) {
        struct wf_node_entry *e = &b->submit->entries[k];
        uint16_t len, reply_max;
        fuzz_take(in, &len, 2);
        fuzz_take(in, &reply_max, 2);
        fuzz_take(in, &e->handler, ENTRY - 4);
        e->ready = wf_shm_ready(k, len, reply_max);
    }
    taken = fuzz_u32(in);
    b->submit->taken = taken;
}

static void frames_take(struct bed *bed, struct fuzz_input *in)
{
    for (int i = 0; i < 16 && in->at < in->end; i++) {
        uint8_t head[4], *data;
        uint32_t args[16];
        fuzz_take(in, head, sizeof head);
        fuzz_take(in, args, sizeof args);
        data = malloc(head[3] + 1u);
        FUZZ_CHECK(data);
        fuzz_take(in, data, head[3]);
        (void)wf_node_frame_take(bed->services[0].mover, BED_WORD + (head[0] > 250), head[0] % 8,
                                 args, head[2] % 17, data, head[3]);
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    struct bed *bed = bed_new();
    struct bed_client *b = &bed->clients[0][0];
    uint8_t what;
    fuzz_take(&in, &what, 1);
    if (what & 1) {
        frames_take(bed, &in);
        (void)wf_node_client_poll(b->c, 1, 100);
    } else {
        segment_fill(b, &in);
    }
    for (int round = 0; round < 4; round++) {
        (void)wf_node_mover_turn(bed->services[0].mover);
        for (; nparts; nparts--)
            wf_node_part_done(bed->services[0].mover, parts[nparts - 1],
                              nparts % 5 ? WEFT_OK : WEFT_EUNREACH);
        for (unsigned lane = 0; lane < BED_LANES; lane++)
            while (bed_frame(&bed->services[0], lane))
                ;
        (void)wf_node_mover_turn(bed->services[1].mover);
        (void)wf_node_client_poll(bed->clients[1][0].c, 1, 100);
        for (unsigned lane = 0; lane < BED_LANES; lane++)
            while (bed_frame(&bed->services[1], lane))
                ;
    }
    FUZZ_CHECK(!bed->services[1].failed && !bed->clients[1][0].c->failed);
    FUZZ_CHECK(b->event->taken <= LINES);
    bed_close(bed);
    free(bed);
    return 0;
}
