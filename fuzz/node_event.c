/* SPDX-License-Identifier: BSD-3-Clause */
/* A client whose service writes anything to the event segment and the page: wf_node_client_poll.
 * The same bytes are then what a successor finds: wf_node_port_attach. */
#include "fuzz.h"

#include "../tests/unit/node_bed.h"
#include "base/log.h"

enum { LINES = 8, ENTRY = 64, SLOTS = 4, PLACES = 4 };

static void on_message(struct bed_client *b, const struct node_am *am)
{
    static const uint8_t bytes[BED_AM_MAX];
    FUZZ_CHECK(am->nargs <= 16 && am->len <= BED_AM_MAX && !((uintptr_t)am->data & 15));
    fuzz_touch(am->data, am->len);
    fuzz_touch(am->args, 4u * am->nargs);
    if (am->reply_max && am->len % 2) {
        const struct wf_am_out out = wf_am_out(1, am->args, am->nargs, bytes, am->reply_max - 1, 0);
        wf_node_client_reply(b->c, am, &out);
    }
}

static void on_reply(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    FUZZ_CHECK(am->nargs <= 16 && am->len <= 200 && am->flow);
    fuzz_touch(am->data, am->len);
    fuzz_touch(am->args, 4u * am->nargs);
}

static void on_moved(struct bed_client *b, uint32_t id, void *user, enum weft_status status)
{
    (void)b;
    (void)user;
    FUZZ_CHECK(id == 7 && (status == WEFT_OK || status == WEFT_EKEY || status == WEFT_EUNREACH));
}

static void on_stop(struct bed_client *b, void *user)
{
    (void)b;
    (void)user;
}

static struct bed *bed_new(void)
{
    static const struct node_move_out move = {.len = 8, .id = 7};
    static const uint8_t bytes[200];
    const struct wf_am_out out = wf_am_out(1, NULL, 0, bytes, 200, 201);
    struct bed *bed = calloc(1, sizeof *bed);
    FUZZ_CHECK(bed);
    bed->on_request = on_message;
    bed->on_reply = on_reply;
    bed->on_moved = on_moved;
    bed->on_stop = on_stop;
    bed->limits = (struct bed_limits){.clients = 1,
                                      .lines = LINES,
                                      .rows = 8,
                                      .waiters = 2,
                                      .slots = SLOTS,
                                      .lane_room = 64,
                                      .size = WF_NODE_RING_MIN};
    wf_log_set_level((enum wf_log_level) - 1); /* each failure is logged */
    bed_open(bed);
    for (int i = 0; i < 3; i++)
        FUZZ_CHECK(wf_node_client_send(bed->clients[0][0].c, bed->clients[0][0].to[0], &out) ==
                   WEFT_OK);
    FUZZ_CHECK(wf_node_client_move(bed->clients[0][0].c, bed->clients[0][0].to[0], &move) ==
               WEFT_OK);
    return bed;
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    const size_t size = 24 + SLOTS * 32 + PLACES * 128 + LINES * ENTRY + WF_NODE_SENDER;
    const struct wf_address a = {
        .version = WF_ADDRESS_VERSION, .size = sizeof a, .process = {.pid = 1}};
    const struct wf_contact none = {0};
    struct wf_node_entry e = {.place = WF_NODE_NO_PLACE, .slot = 5, .attempt = 40, .session = 2};
    if (i >= 10 || room < size)
        return 0;
    memset(buf, 0, size);
    buf[8] = (uint8_t)(i % 5 == 3 ? 2 : 1); /* the session and its state */
    buf[12] = (uint8_t)(i % 5 == 4 ? 3 : 1);
    buf[24] = (uint8_t)(i % 4);     /* acknowledged */
    buf[24 + 4] = 1;                /* in attempt 1 */
    buf[24 + 8] = (uint8_t)(i % 3); /* near */
    buf[24 + 10] = 1;
    buf[24 + 16] = (uint8_t)(i / 2); /* far */
    buf[24 + 18] = 1;
    for (unsigned k = 0; k < PLACES; k++) {
        uint64_t ready = wf_shm_ready(k + 1, 40 * k, 0);
        memcpy(buf + 24 + SLOTS * 32 + 128 * k, &ready, 8);
    }
    for (unsigned k = 0; k < LINES; k++) {
        uint8_t *to = buf + 24 + SLOTS * 32 + PLACES * 128 + ENTRY * k;
        e.ready = wf_shm_ready(k, 8, i & 1 ? 9 : 0);
        e.place = (uint8_t)(i & 1 ? k : WF_NODE_NO_PLACE);
        e.number = k;
        e.use = k + 1;
        e.flags = (uint8_t)(k ? 0 : WF_NODE_BEGIN | WF_NODE_BESIDE);
        e.event.tag = 7;
        memcpy(to, &e, sizeof e);
    }
    (void)wf_address_pack(&a, &none, buf + size - WF_NODE_SENDER);
    return size;
}

static void event_fill(struct bed_client *b, struct wf_node_page *page, struct fuzz_input *in)
{
    uint8_t *payload = (uint8_t *)b->event + wf_node_payload_at(b->bed->limits.size);
    fuzz_take(in, (void *)&b->event->taken, 8);
    fuzz_take(in, (void *)&page->words[BED_WORD], 8);
    fuzz_take(in, (void *)&b->event->bell.rung, 8);
    page->changes++;
    fuzz_take(in, b->event->slots, SLOTS * sizeof *b->event->slots);
    for (unsigned k = 0; k < PLACES; k++) { /* what the client has written stays its own */
        uint8_t bytes[128];
        fuzz_take(in, bytes, sizeof bytes);
        memcpy(&b->event->places[k], bytes, 16);
        memcpy(b->event->places[k].data, bytes + 32, WF_NODE_REPLY_DATA);
    }
    fuzz_take(in, b->event->entries, LINES * ENTRY);
    fuzz_take(in, payload, WF_NODE_SENDER);
    for (unsigned k = 0; k < SLOTS; k++)
        wf_shm_bell_ring(&b->event->bell, k);
    for (unsigned k = 0; k < PLACES; k++)
        wf_shm_bell_ring(&b->event->bell, WF_NODE_SLOTS + k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    struct bed *bed = bed_new();
    struct bed_client *b = &bed->clients[0][0];
    event_fill(b, bed->services[0].page, &in);
    for (int i = 0; i < 3; i++)
        (void)wf_node_client_poll(b->c, (uint64_t)i * 1000000, 3);
    FUZZ_CHECK(b->c->head <= LINES && b->submit->taken == b->c->head);
    FUZZ_CHECK(!b->c->failed || b->ended >= b->c->nflows); /* flows of replies are freed */
    bed_kill(bed, 0);
    bed_service_start(&bed->services[0], true);
    if (!b->c->failed) {
        const struct node_port_params params = {.submit = b->submit,
                                                .event = b->event,
                                                .size = bed->limits.size,
                                                .am_max = BED_AM_MAX,
                                                .lines = LINES,
                                                .index = b->index,
                                                .address = b->address,
                                                .contact = {.port = 7, .count = 1}};
        b->nasked = 0;
        wf_node_client_reattach(b->c, bed->services[0].page, false);
        if (wf_node_port_attach(bed->services[0].mover, &params, &b->port) == WEFT_OK) {
            b->port->user = b;
            b->attached = true;
            (void)wf_node_mover_turn(bed->services[0].mover);
        }
    }
    bed_close(bed);
    free(bed);
    return 0;
}
