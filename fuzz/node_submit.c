/* SPDX-License-Identifier: BSD-3-Clause */
/* A node service that reads anything: wf_node_mover_turn on a submit segment of a client, and
 * wf_node_frame_take on frames of another service. What the service forwards, the other service
 * must take. Bits of the first byte: 1, there are frames; 2, the service has no NIC: it does parts
 * of the client's puts and gets itself, and those of others in regions of the client's table. */
#include "fuzz.h"

#include "../tests/unit/node_bed.h"
#include "base/log.h"

enum {
    LINES = 16,
    ENTRY = 56,
    RECORD = 16,
    PUTS = 4,
    REGION = 40,
    SLOT = 3,
    SLAB = 65536,
    KINDS = 5 /* of frames of services without a NIC */
};

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

/* The network reads all bytes of the part, now or later. */
static enum weft_status on_part(struct bed_service *s, unsigned lane, unsigned kind,
                                const uint32_t *args, uint32_t id, uint32_t len)
{
    const struct bed_client *b = &s->bed->clients[0][0];
    const uint8_t *buffers = (uint8_t *)b->mapped + s->bed->limits.size;
    const uint8_t *bytes;
    if (kind == WF_NODE_FRAME_GOT) {
        FUZZ_CHECK(!s->side && lane < BED_LANES && (args[3] & 0xffff) == 5 && args[3] >> 16 < 16);
        bytes = wf_node_served_at(s->mover, id, 0);
        FUZZ_CHECK(bytes && wf_node_served_at(s->mover, id, len - 1) &&
                   !wf_node_served_at(s->mover, id, len));
        fuzz_touch(bytes, len);
        return args[0] & 1 ? WEFT_AGAIN : WEFT_OK;
    }
    bytes = wf_node_part_at(s->mover, id, 0);
    FUZZ_CHECK(!s->side && lane < BED_LANES && args[5] >> 16 == 5 && (args[5] & 0xffff) < 16);
    FUZZ_CHECK(bytes >= buffers && bytes - buffers + len <= WF_NODE_BUFFERS * WF_NODE_BUFFER);
    FUZZ_CHECK(wf_node_part_at(s->mover, id, len - 1) && !wf_node_part_at(s->mover, id, len));
    if (args[1] & 1 || nparts == WF_NODE_PARTS)
        return args[1] & 2 ? WEFT_ENOMEM : WEFT_AGAIN;
    parts[nparts++] = id;
    return WEFT_OK;
}

static struct wf_node_regions table;
static uint8_t memory[SLAB], read_only[SLAB];
static struct node_slab slabs[] = {{.base = &table, .size = sizeof table, .index = 5},
                                   {.base = memory, .size = SLAB, .id = 1, .index = 5},
                                   {.base = read_only, .size = SLAB, .id = 2, .index = 5},
                                   {.base = &table, .size = SLAB, .id = 3, .index = 6}};

static struct bed *bed_new(bool has_nic)
{
    struct bed *bed = calloc(1, sizeof *bed);
    FUZZ_CHECK(bed);
    bed->on_request = bed->on_reply = on_message;
    bed->on_move = has_nic ? on_move : NULL;
    bed->on_part = has_nic ? NULL : on_part;
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
    slabs[2].read_only = true;
    for (unsigned i = 0; !has_nic && i < 4; i++)
        wf_node_slab_add(bed->services[0].mover, &slabs[i]);
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

static uint8_t *frame_fill(uint8_t *at, unsigned kind, const uint32_t *args, unsigned nargs)
{
    at[0] = (uint8_t)(kind - 8);
    at[1] = 8;
    at[2] = (uint8_t)nargs;
    memcpy(at + 4, args, nargs * sizeof *args);
    return at + 4 + 16 * sizeof *args;
}

/* A region, puts and gets of the client, and a frame of each kind. */
static size_t seed_puts(unsigned i, uint8_t *buf)
{
    const uint64_t region[] = {0x3344, 1 + i % 2, 4096, SLAB - 4096, 3};
    const uint32_t get[] = {2 * i, 0x3344, 0, 8 * i, (SLOT + 1) << 12, 5 | 5 << 16, 100 * i + 1};
    const uint32_t got[] = {i, 1 + i % 3, i % 3 ? 0 : 9, 5 | 5 << 16};
    const uint32_t stored[] = {i % 2};
    const uint32_t put[] = {7, 0x3344, 0, 8 * i, (SLOT + 1) << 12, 5 | 5 << 16};
    const uint32_t ended[] = {i, 1 + i % 3};
    uint8_t *at = buf;
    *at++ = 3;
    memcpy(at, region, REGION);
    at += REGION;
    for (uint32_t k = 0; k < PUTS; k++, at += ENTRY)
        entry_fill(at, 0, 0,
                   (struct wf_node_entry){.handler = (uint8_t)(k + i) % 2,
                                          .place = (uint8_t)k,
                                          .flags = WF_NODE_MOVE,
                                          .where = BED_WORD,
                                          .number = 1 + 80000 * k,
                                          .slot = 5,
                                          .session = 1,
                                          .use = k + 1,
                                          .move = {.local = k * WF_NODE_BUFFER, .rkey = k & i}});
    at = frame_fill(at, WF_NODE_FRAME_PUT, put, 6);
    at = frame_fill(at, WF_NODE_FRAME_ENDED, ended, 2);
    at = frame_fill(at, WF_NODE_FRAME_GET, get, WF_NODE_GET_ARGS);
    at = frame_fill(at, WF_NODE_FRAME_GOT, got, WF_NODE_GOT_ARGS);
    at = frame_fill(at, WF_NODE_FRAME_STORED, stored, WF_NODE_STORED_ARGS);
    return (size_t)(at - buf);
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    struct bed *bed;
    struct wf_node_record r[4] = {0};
    if (i >= 12 && i < 16 && room >= 1 + REGION + PUTS * ENTRY + KINDS * 68) {
        memset(buf, 0, 1 + REGION + PUTS * ENTRY + KINDS * 68);
        return seed_puts(i - 12, buf);
    }
    if (i >= 12 || room < 2 + 4 * RECORD + LINES * ENTRY + 4)
        return 0;
    bed = bed_new(true);
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

static void entries_fill(struct bed_client *b, struct fuzz_input *in, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        struct wf_node_entry *e = &b->submit->entries[k];
        uint16_t len, reply_max;
        fuzz_take(in, &len, 2);
        fuzz_take(in, &reply_max, 2);
        fuzz_take(in, &e->handler, ENTRY - 4);
        e->ready = wf_shm_ready(k, len, reply_max);
    }
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
    entries_fill(b, in, LINES);
    taken = fuzz_u32(in);
    b->submit->taken = taken;
}

/* The bytes of the PUT are stored, then it is delivered. */
static void put_take(struct bed *bed, uint16_t word, const uint32_t *args, unsigned nargs,
                     uint32_t len)
{
    struct node_mover *m = bed->services[0].mover;
    uint8_t *p = wf_node_put_at(m, args, nargs, len, len / 2);
    if (p) {
        FUZZ_CHECK(p >= memory && p + len - len / 2 <= memory + SLAB);
        memset(p, 1, len - len / 2);
    }
    (void)wf_node_put_take(m, word, args, nargs, p);
}

/* Those of a GOT likewise, in a buffer of the client's. */
static void got_take(struct bed *bed, uint16_t word, const uint32_t *args, unsigned nargs,
                     uint32_t len)
{
    struct node_mover *m = bed->services[0].mover;
    uint8_t *buffers = (uint8_t *)bed->clients[0][0].event + bed->limits.size;
    uint8_t *p = word == BED_WORD ? wf_node_got_at(m, word, args, nargs, len, len / 2) : NULL;
    if (p) {
        FUZZ_CHECK(p >= buffers &&
                   p + len - len / 2 <= buffers + (size_t)WF_NODE_BUFFERS * WF_NODE_BUFFER);
        memset(p, 1, len - len / 2);
    }
    (void)wf_node_got_take(m, word, args, nargs, p);
}

/* The client's first puts, then the rest of the input. */
static void puts_fill(struct bed_client *b, struct fuzz_input *in)
{
    uint64_t r[REGION / 8];
    fuzz_take(in, r, REGION);
    table.of[SLOT] = (struct wf_node_region){
        .key = r[0], .slab = r[1], .offset = r[2], .length = r[3], .access = (uint32_t)r[4]};
    entries_fill(b, in, PUTS);
    (void)wf_node_mover_turn(b->service->mover);
}

static void frames_take(struct bed *bed, struct fuzz_input *in)
{
    for (int i = 0; i < 16 && in->at < in->end; i++) {
        uint8_t head[4], *data;
        uint32_t args[16];
        uint16_t word;
        unsigned kind;
        fuzz_take(in, head, sizeof head);
        fuzz_take(in, args, sizeof args);
        data = malloc(head[3] + 1u);
        FUZZ_CHECK(data);
        fuzz_take(in, data, head[3]);
        word = BED_WORD + (head[0] > 250);
        kind = head[1] == 8 ? 8 + head[0] % 8 : head[0] % 8;
        if (kind == WF_NODE_FRAME_WRITTEN &&
            args[0] % 256 < BED_LANES) /* it is answered by TAKEN */
            bed->services[1].mover->sessions[BED_WORD]->lanes[args[0] % 256].written = args[1];
        if (kind == WF_NODE_FRAME_PUT)
            put_take(bed, word, args, head[2] % 17, head[3] * 512u);
        else if (kind == WF_NODE_FRAME_GOT)
            got_take(bed, word, args, head[2] % 17, head[3] * 512u + 1);
        else
            (void)wf_node_frame_take(bed->services[0].mover, word, kind, args, head[2] % 17, data,
                                     head[3]);
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    bool has_nic = !size || !(data[0] & 2);
    struct bed *bed = bed_new(has_nic);
    struct bed_client *b = &bed->clients[0][0];
    uint8_t what;
    fuzz_take(&in, &what, 1);
    if (!has_nic)
        puts_fill(b, &in);
    if (what & 1) {
        frames_take(bed, &in);
        (void)wf_node_client_poll(b->c, 1, 100);
    } else if (has_nic) {
        segment_fill(b, &in);
    }
    if (what & 4)
        bed_detach(b); /* its parts go on */
    for (int round = 0; round < 4; round++) {
        (void)wf_node_mover_turn(bed->services[0].mover);
        for (; nparts; nparts--) {
            const void *bytes = wf_node_part_at(bed->services[0].mover, parts[nparts - 1], 0);
            fuzz_touch(bytes, bytes != NULL);
            wf_node_part_done(bed->services[0].mover, parts[nparts - 1],
                              nparts % 5 ? WEFT_OK : WEFT_EUNREACH);
        }
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
