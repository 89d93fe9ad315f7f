/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that a node service and its clients share, and how each checks the other's part. */
#include "unit/unit.h"

#include "base/log.h"
#include "unit/node_bed.h"

static unsigned received, replied;

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool has_memory = true; /* else no journal can be allocated */

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return has_memory ? __real_aligned_alloc(alignment, size) : NULL;
}

static void on_request(struct bed_client *b, const struct node_am *am)
{
    (void)am;
    b->got[0]++;
    received++;
}

static void on_reply(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    (void)am;
    replied++;
}

static struct bed *bed_new(unsigned clients, unsigned slots)
{
    struct bed *bed = calloc(1, sizeof *bed);
    assert_non_null(bed);
    bed->on_request = on_request;
    bed->on_reply = on_reply;
    bed->limits = (struct bed_limits){.clients = clients,
                                      .rows = 64,
                                      .waiters = 64,
                                      .slots = slots,
                                      .lane_room = 64,
                                      .size = WF_NODE_RING_MIN};
    wf_log_set_level((enum wf_log_level) - 1); /* each failure is logged */
    bed_open(bed);
    received = replied = 0;
    return bed;
}

static void bed_free(struct bed *bed)
{
    bed_close(bed);
    free(bed);
}

static enum weft_status send_to(struct bed_client *b, unsigned to, uint32_t len, uint32_t reply_max)
{
    static const uint8_t bytes[BED_AM_MAX];
    const struct wf_am_out out = wf_am_out(1, NULL, 0, bytes, len, reply_max);
    return wf_node_client_send(b->c, b->to[to], &out);
}

/* Returns how many frames were carried. */
static unsigned run(struct bed *bed, int rounds)
{
    unsigned frames = 0;
    while (rounds--) {
        bed->now += 1000000;
        for (unsigned side = 0; side < 2; side++) {
            for (unsigned i = 0; i < bed->limits.clients; i++)
                if (!bed->clients[side][i].stopped)
                    (void)wf_node_client_poll(bed->clients[side][i].c, bed->now, 100);
            (void)wf_node_mover_turn(bed->services[side].mover);
            for (unsigned lane = 0; lane < BED_LANES; lane++)
                while (bed_frame(&bed->services[side], lane))
                    frames++;
        }
    }
    return frames;
}

/* ---- sizes and blocks ---- */

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(wf_node_lines(256 << 10), 512);
    assert_int_equal(wf_node_submit_blocks_at(256 << 10), 16512 + 512 * 64);
    assert_int_equal(wf_node_payload_at(256 << 10), 16576 + 512 * 64);
    assert_true(wf_node_size_ok(256 << 10, 32768));
    assert_false(wf_node_size_ok(128 << 10, 32768)); /* two of the longest, and the longest reply */
    assert_true(wf_node_size_ok(128 << 10, 4096));
    assert_false(wf_node_size_ok((256 << 10) + 4096, 4096));
    assert_false(wf_node_size_ok(64 << 10, 512));
    assert_false(wf_node_size_ok(WF_NODE_RING_MAX * 2u, 512));
    assert_int_equal(wf_node_size(128 << 10, 32768), 256 << 10);
    assert_int_equal(wf_node_body(5, 0), 5);
    assert_int_equal(wf_node_body(5, 2), 16);
}

static void bodies(void **state)
{
    (void)state;
    assert_true(wf_node_body_ok(32, 0, 9, 4, 32, 0));
    assert_false(wf_node_body_ok(33, 0, 0, 4, 32, 0));
    assert_false(
        wf_node_body_ok(8, WF_NODE_BEGIN, 0, 4, 24, WF_NODE_SENDER)); /* an address needs a block */
    assert_true(wf_node_body_ok(64, WF_NODE_BESIDE, 3, 4, 32, 0));
    assert_false(wf_node_body_ok(65, WF_NODE_BESIDE, 3, 4, 32, 0));
    assert_false(wf_node_body_ok(0, WF_NODE_BESIDE, 4, 4, 32, 0));
    assert_false(wf_node_body_ok(64, WF_NODE_BESIDE, UINT32_MAX, 4, 32, 0));
}

/* Against a map of bytes. */
static void blocks(void **state)
{
    enum { COUNT = 203, HELD = 40 };
    struct wf_node_blocks b;
    uint8_t map[COUNT] = {0};
    uint32_t at[HELD], n[HELD] = {0}, used = 0;
    uint64_t rand = 7;
    (void)state;
    assert_true(wf_node_blocks_init(&b, COUNT));
    for (int i = 0; i < 20000; i++) {
        uint32_t k = (uint32_t)(wf_rand(&rand) >> 33) % HELD;
        if (n[k]) {
            memset(map + at[k], 0, n[k]);
            wf_node_blocks_give(&b, at[k], n[k]);
            used -= n[k];
            n[k] = 0;
        } else {
            uint32_t want = 1 + (uint32_t)(wf_rand(&rand) >> 33) % 70, free_run = 0, best = 0;
            for (uint32_t j = 0; j < COUNT; j++) {
                free_run = map[j] ? 0 : free_run + 1;
                best = WF_MAX(best, free_run);
            }
            at[k] = wf_node_blocks_take(&b, want);
            assert_int_equal(at[k] != WF_NODE_NO_BLOCK, best >= want);
            n[k] = at[k] == WF_NODE_NO_BLOCK ? 0 : want;
            for (uint32_t j = 0; j < n[k]; j++)
                assert_int_equal(map[at[k] + j]++, 0);
            used += n[k];
        }
        assert_int_equal(b.nfree, COUNT - used);
    }
    wf_node_blocks_fini(&b);
}

/* ---- what the service checks ---- */

static void e_len(struct wf_node_entry *e)
{
    e->ready = wf_shm_ready((uint32_t)e->ready - 1, BED_AM_MAX + 1, 0);
    e->flags |= WF_NODE_BESIDE;
}
static void e_inside(struct wf_node_entry *e)
{
    e->ready = wf_shm_ready((uint32_t)e->ready - 1, 33, 0);
}
static void e_reply_max(struct wf_node_entry *e)
{
    e->ready = wf_shm_ready((uint32_t)e->ready - 1, 8, BED_AM_MAX + 2);
    e->place = 0;
}
static void e_nargs(struct wf_node_entry *e)
{
    e->nargs = 17;
    e->flags |= WF_NODE_BESIDE;
}
static void e_slot(struct wf_node_entry *e)
{
    e->slot = WF_NODE_SLOTS;
}
static void e_flags(struct wf_node_entry *e)
{
    e->flags |= 16;
}
static void e_place(struct wf_node_entry *e)
{
    e->place = 3;
}
static void e_place_reply(struct wf_node_entry *e)
{
    e->ready = wf_shm_ready((uint32_t)e->ready - 1, 8, 9);
    e->place = WF_NODE_PLACES;
}
static void e_reply_wants(struct wf_node_entry *e)
{
    e->ready = wf_shm_ready((uint32_t)e->ready - 1, 8, 9);
    e->place = 0;
    e->flags |= WF_NODE_REPLY;
}
static void e_no_reply(struct wf_node_entry *e)
{
    e->flags |= WF_NODE_NO_REPLY;
}
static void e_block(struct wf_node_entry *e)
{
    e->flags |= WF_NODE_BESIDE;
    e->where = wf_node_submit_blocks(WF_NODE_RING_MIN);
}
static void r_index(struct wf_node_record *r)
{
    r->index = 16;
}
static void r_word(struct wf_node_record *r)
{
    r->word = BED_WORD + 1;
}
static void r_word_unused(struct wf_node_record *r)
{
    r->word = BED_WORD - 1;
}
static void r_flags(struct wf_node_record *r)
{
    r->flags = 1;
}

/* Client 0 breaks a rule: its endpoint ends, its program is notified, and client 1 is not affected.
 */
static void lie(void (*entry)(struct wf_node_entry *), void (*record)(struct wf_node_record *),
                uint32_t taken)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *liar = &bed->clients[0][0], *other = &bed->clients[0][1];
    OK(send_to(liar, 0, 8, 0));
    if (entry)
        entry(&liar->submit->entries[0]);
    if (record)
        record(&liar->submit->records[liar->to[0]->slot]);
    OK(send_to(other, 1, 8, 0));
    if (taken) {
        OK(send_to(&bed->clients[1][0], 0, 8, 0));
        (void)run(bed, 3);
        liar->submit->taken = taken;
        (void)wf_node_port_refresh(liar->port);
    }
    (void)run(bed, 4);
    assert_int_equal(bed->services[0].failed, 1);
    assert_int_equal(liar->event->status, WEFT_EPROTO);
    assert_int_equal(liar->why, WEFT_EPROTO);
    assert_int_equal(send_to(liar, 0, 8, 0), WEFT_EPROTO);
    assert_int_equal(wf_node_client_heed(liar->c, liar->to[1]), WEFT_EPROTO);
    assert_int_equal(wf_node_client_poll(liar->c, bed->now, 10), 0);
    assert_false(wf_node_client_pending(liar->c)); /* it rests */
    OK(send_to(other, 1, 8, 0));
    (void)run(bed, 4);
    assert_int_equal(bed->clients[1][1].got[0], 2);
    assert_int_equal(other->ended + bed->clients[1][1].ended, 0);
    bed_free(bed);
}

static void lies(void **state)
{
    static void (*const entries[])(struct wf_node_entry *) = {
        e_len,   e_inside,      e_reply_max,   e_nargs,    e_slot, e_flags,
        e_place, e_place_reply, e_reply_wants, e_no_reply, e_block};
    static void (*const records[])(struct wf_node_record *) = {r_index, r_word, r_word_unused,
                                                               r_flags};
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(entries); i++)
        lie(entries[i], NULL, 0);
    for (size_t i = 0; i < WF_ARRAY_LEN(records); i++)
        lie(NULL, records[i], 0);
    lie(NULL, NULL, 2);
    lie(NULL, NULL, UINT32_MAX);
}

/* ---- what the client checks ---- */

static void service_lies(unsigned what)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    struct wf_node_entry *e = &to->event->entries[0];
    uint16_t attempt;
    to->stopped = true;
    OK(send_to(from, 0, 8, 9));
    attempt = from->to[0]->attempt;
    (void)run(bed, 2);
    to->stopped = false;
    if (what == 0)
        from->event->slots[from->to[0]->slot].acked = 2 | (uint64_t)attempt << 32;
    else if (what == 1)
        e->number = 1;
    else if (what == 2)
        e->nargs = 17;
    else if (what == 3)
        e->flags = 0; /* no address, and of an unknown endpoint */
    else if (what == 4)
        e->where = WF_NODE_RING_MIN / 2 / WF_NODE_BLOCK;
    else if (what == 5)
        e->place = WF_NODE_PLACES;
    else if (what == 6)
        from->event->places[0].ready = wf_shm_ready(from->c->places[0].use, 9, 0);
    else if (what == 7)
        e->ready = wf_shm_ready(0, BED_AM_MAX + 1, 9);
    wf_shm_bell_ring(&from->event->bell, (uint32_t)from->to[0]->slot);
    wf_shm_bell_ring(&from->event->bell, WF_NODE_SLOTS);
    (void)wf_node_client_poll(from->c, 0, 10);
    (void)wf_node_client_poll(to->c, 0, 10);
    if (what == 1 || what == 3) /* the sender's lie, which the service does not check */
        assert_true(!to->c->failed && to->c->strange == 1);
    else
        assert_true(from->c->failed || to->c->failed);
    assert_int_equal(received, what == 0 || what == 6); /* a lie to the sender */
    bed_free(bed);
}

static void lies_of_services(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 8; what++)
        service_lies(what);
}

/* ---- frames ---- */

/* DATA of client [i] of side 0 to client 0 of side 1, which begins an attempt. */
static size_t frame_fill(struct bed *bed, unsigned i, uint32_t *a, uint8_t *data)
{
    const struct bed_client *from = &bed->clients[0][i], *to = &bed->clients[1][0];
    const uint64_t tag = bed_tag(NULL, &from->address);
    const struct wf_contact contact = {.port = 7, .count = 1};
    memset(data, 0, WF_NODE_SENDER + 8);
    wf_address_pack(&from->address, &contact, data);
    a[0] = to->index | (uint32_t)from->index << 12;
    a[1] = (uint32_t)bed_tag(NULL, &to->address);
    a[2] = (uint32_t)tag;
    a[3] = (uint32_t)(tag >> 32);
    a[4] = 0;
    a[5] = from->address.ep | 1u << 16;
    a[6] = 1;
    a[7] = WF_NODE_NO_PLACE | (uint32_t)WF_NODE_BEGIN << 8 | 8u << 16;
    return WF_NODE_SENDER + 8;
}

static enum weft_status frame_try(unsigned arg, uint32_t value, int nargs, int more, int byte)
{
    struct bed *bed = bed_new(1, 8);
    uint32_t a[10] = {0};
    uint8_t data[WF_NODE_SENDER + 64];
    size_t len = frame_fill(bed, 0, a, data);
    enum weft_status status;
    a[arg] ^= value;
    if (byte >= 0)
        data[byte] ^= 1;
    status = wf_node_frame_take(bed->services[1].mover, BED_WORD, WF_NODE_FRAME_DATA, a,
                                (unsigned)nargs, data, len + (size_t)more);
    (void)run(bed, 3);
    assert_int_equal(received, status == WEFT_OK && !value);
    bed_free(bed);
    return status;
}

static void frames(void **state)
{
    const uint32_t args[3] = {0};
    struct bed *bed;
    (void)state;
    OK(frame_try(0, 0, 8, 0, -1));
    OK(frame_try(1, 1, 8, 0, -1)); /* another endpoint: answered, not delivered */
    assert_int_equal(frame_try(0, 16 << 12, 8, 0, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(0, 16, 8, 0, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(2, 1, 8, 0, -1), WEFT_EPROTO);       /* not the tag of the address */
    assert_int_equal(frame_try(5, 1, 8, 0, -1), WEFT_EPROTO);       /* not its endpoint */
    assert_int_equal(frame_try(5, 1 << 16, 8, 0, -1), WEFT_EPROTO); /* attempt 0 */
    assert_int_equal(frame_try(6, 17 << 8, 8, 0, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(6, 9 << 16, 8, 0, -1), WEFT_EPROTO); /* a reply, but no use */
    assert_int_equal(frame_try(7, WF_NODE_BESIDE << 8, 8, 0, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(7, 64 << 8, 8, 0, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(7, 1 << 16, 8, 0, -1), WEFT_EPROTO); /* not the length */
    assert_int_equal(frame_try(0, 0, 8, 1, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(0, 0, 9, 0, -1), WEFT_EPROTO);
    assert_int_equal(frame_try(0, 0, 8, 0, 0), WEFT_EPROTO); /* no address */
    bed = bed_new(1, 8);
    assert_int_equal(wf_node_frame_take(bed->services[0].mover, BED_WORD, 99, args, 3, NULL, 0),
                     WEFT_EPROTO);
    assert_int_equal(wf_node_frame_take(bed->services[0].mover, BED_WORD, WF_NODE_FRAME_ANSWER,
                                        args, 2, NULL, 0),
                     WEFT_EPROTO);
    assert_int_equal(wf_node_frame_take(bed->services[0].mover, BED_WORD, WF_NODE_FRAME_ROOM_ALL,
                                        args, 2, NULL, 0),
                     WEFT_EPROTO);
    assert_int_equal(
        wf_node_frame_take(bed->services[0].mover, BED_WORD, WF_NODE_FRAME_END, args, 3, NULL, 0),
        WEFT_EPROTO);
    bed_free(bed);
}

/* ---- behaviour ---- */

/* A stopped receiver: its flows are refused, others continue, and once all refusals are known, the
 * services do no endless work. */
static void stopped(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    unsigned sent = 0;
    (void)state;
    to->stopped = true;
    for (int i = 0; i < 200; i++) {
        sent += send_to(from, 0, BED_AM_MAX - 1200, 0) == WEFT_OK;
        sent += send_to(&bed->clients[0][1], 0, BED_AM_MAX, 0) == WEFT_OK;
        (void)run(bed, 1);
    }
    assert_true(sent > 16 && sent < 200 && !received);
    (void)run(bed, 20);
    assert_true(run(bed, 100) < 3);
    for (int i = 0; i < 500; i++) {
        OK(send_to(from, 1, 1000, 0)); /* to the other one, which receives */
        (void)run(bed, 2);
    }
    assert_int_equal(bed->clients[1][1].got[0], 500);
    to->stopped = false;
    (void)run(bed, 50);
    assert_int_equal(to->got[0], sent);
    bed_free(bed);
}

/* The destination has ended: its flows end, and so does the service's record of its process. */
static void gone(void **state)
{
    (void)state;
    for (int dead = 0; dead < 2; dead++) {
        struct bed *bed = bed_new(dead ? 1 : 2, 8);
        struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
        if (!dead) { /* the process has another endpoint */
            bed->services[1].mover->by_index[to->index] = NULL;
            wf_node_port_find(bed->services[1].mover, 6, bed->clients[1][1].port->tag & UINT32_MAX)
                ->next_of_index = to->port;
            bed->services[1].mover->by_index[to->index] = bed->clients[1][1].port;
        }
        OK(send_to(from, 0, 8, 9));
        if (dead) {
            wf_node_port_detach(to->port);
            to->attached = false;
        } else {
            to->port->tag++; /* an endpoint of the same index, but another one */
        }
        (void)run(bed, 3);
        assert_int_equal(from->ended, 1);
        assert_int_equal(from->why, dead ? WEFT_EPEER : WEFT_ECLOSED);
        assert_int_equal(send_to(from, 0, 8, 0), from->why);
        assert_true(from->c->places_free == UINT64_MAX);
        if (!dead) {
            bed->clients[1][1].port->next_of_index = NULL;
            to->port->next_of_index = NULL;
            bed->services[1].mover->by_index[to->index] = to->port;
        }
        bed_free(bed);
    }
}

/* A client's service reports the client's end, as the mover's thread does. */
static void end_add(struct bed_client *b, enum wf_node_state state)
{
    struct node_end *end = calloc(1, sizeof *end);
    assert_non_null(end);
    *end = (struct node_end){.tag = b->port->tag, .state = state};
    b->service->page->left[b->index] = state == WF_NODE_CLOSED;
    wf_node_port_detach(b->port);
    b->attached = false;
    wf_node_end_add(b->service->mover, end);
}

/* The end of an endpoint is reported once, behind its messages, to an endpoint that received from
 * it (also one whose ring was full), and to one that only has a flow to it. */
static void ended(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    struct bed_client *heeds = &bed->clients[1][1], *idle = &bed->clients[0][1];
    unsigned sent = 0;
    (void)state;
    OK(wf_node_client_heed(heeds->c, heeds->to[0]));
    (void)run(bed, 3);
    assert_int_equal(received, 0); /* no handler sees it */
    to->stopped = true;
    while (send_to(from, 0, 8, 0) == WEFT_OK) {
        sent++;
        (void)run(bed, 2);
    }
    assert_int_equal(sent, to->c->lines + 1); /* the last one was refused */
    end_add(from, WF_NODE_CLOSED);
    from->stopped = true;
    (void)run(bed, 5);
    assert_int_equal(heeds->ended, 1);
    assert_int_equal(heeds->why, WEFT_ECLOSED);
    assert_int_equal(heeds->gone, 0);
    assert_int_equal(to->port->ends_due, 1);
    to->stopped = false;
    (void)run(bed, 20);
    assert_int_equal(to->got[0], sent - 1);
    assert_int_equal(to->gone, 1);
    assert_int_equal(to->port->ends_due, 0);
    assert_int_equal(idle->ended + idle->gone, 0);
    assert_int_equal(send_to(heeds, 0, 8, 0), WEFT_ECLOSED);
    bed_free(bed);
}

/* The service of [side] has died: its successor gets its clients. */
static void succeed(struct bed *bed, unsigned side)
{
    bed_kill(bed, side);
    bed_service_start(&bed->services[side], true);
    for (unsigned i = 0; i < bed->limits.clients; i++)
        bed_reattach(&bed->clients[side][i]);
    bed_connect(bed);
    for (unsigned i = 0; i < bed->limits.clients; i++)
        bed_resolve_all(&bed->clients[side][i]);
}

/* Service 1 dies, then its successor, to which no client has come. */
static void succeed_twice(struct bed *bed)
{
    for (unsigned deaths = 0; deaths < 2; deaths++) {
        bed_kill(bed, 1);
        bed_service_start(&bed->services[1], true);
    }
    wf_node_mover_settle(bed->services[1].mover);
    bed_connect(bed);
}

/* After the death of either service, the end of an endpoint is reported to one that had a flow to
 * it with nothing left to acknowledge; also if its service has let it go, and dies then (2). */
static void ended_after_death(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 3; how++) {
        struct bed *bed = bed_new(1, 8);
        struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
        OK(send_to(from, 0, 8, 0));
        (void)run(bed, 3);
        assert_int_equal(from->to[0]->low, from->to[0]->next);
        if (how < 2)
            succeed(bed, how);
        (void)run(bed, 5);
        end_add(to, WF_NODE_CLOSED);
        to->stopped = true;
        if (how == 2)
            succeed_twice(bed);
        (void)run(bed, 5);
        assert_int_equal(from->ended, 1);
        assert_int_equal(from->why, WEFT_ECLOSED);
        assert_false(from->to[0]->unacked); /* HEED is no message */
        assert_int_equal(to->got[0], 1);
        bed_free(bed);
    }
}

/* An endpoint closes though HEED waits for a client that has not come to a successor. */
static void closes_with_heed(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0];
    (void)state;
    OK(send_to(from, 0, 8, 0));
    (void)run(bed, 3);
    bed_kill(bed, 1);
    bed->clients[1][0].stopped = true;
    bed_service_start(&bed->services[1], true);
    bed_connect(bed);
    (void)run(bed, 5);
    assert_int_equal(from->to[0]->next - from->to[0]->low, 1);
    assert_false(wf_node_client_drain(from->c, bed->now));
    bed_free(bed);
}

/* The end of an endpoint that was killed with either service is reported to one that had only
 * received from it, when the session was new (0, 1) or known (4, 5), or has the message in its
 * ring.
 */
static void killed_with_service(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        unsigned side = i % 2;
        struct bed *bed = bed_new(1, 8);
        struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
        if (i / 2 == 2)
            (void)run(bed, 1);
        OK(send_to(from, 0, 8, 0));
        (void)wf_node_client_poll(from->c, bed->now, 100);
        to->stopped = i / 2 == 1;
        (void)run(bed, 3);
        assert_int_equal(to->got[0], !to->stopped);
        bed_kill(bed, side);
        from->stopped = true;
        if (side) {
            wf_node_port_detach(from->port);
            from->attached = false;
        }
        bed_service_start(&bed->services[side], true);
        if (side)
            bed_reattach(to);
        bed_connect(bed);
        to->stopped = false;
        (void)run(bed, 3);
        bed_resolve_all(to);
        wf_node_mover_settle(bed->services[side].mover);
        (void)run(bed, 9);
        assert_int_equal(to->got[0], 1);
        assert_int_equal(to->gone, 1);
        assert_int_equal(to->c->nsenders, 0);
        bed_free(bed);
    }
}

static void first_begins_session(struct bed_client *b, const struct node_am *am)
{
    on_request(b, am);
    if (received == 1)
        OK(wf_node_session_set(b->service->mover, BED_WORD, WF_NODE_UP));
}

/* The session may change while an endpoint takes messages: it sends HEED to a sender whose first
 * message came before that, and is taken afterwards. */
static void first_message_late(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *to = &bed->clients[1][0];
    (void)state;
    bed->on_request = first_begins_session;
    (void)run(bed, 1); /* [to] knows the session before */
    to->stopped = true;
    for (unsigned i = 0; i < 2; i++)
        OK(send_to(&bed->clients[0][i], 0, 8, 0));
    (void)run(bed, 1);
    to->stopped = false;
    (void)run(bed, 1);
    assert_int_equal(to->got[0], 2);
    (void)run(bed, 2);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(to->to[i]->next, 1);
    bed_free(bed);
}

/* A reply that a service has written, without ringing for it, before it died, arrives once. */
static void reply_without_bell(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0];
    (void)state;
    OK(send_to(from, 0, 8, 9));
    (void)wf_node_client_poll(from->c, bed->now, 100);
    from->stopped = true;
    (void)run(bed, 4);
    bed_bell_lose(from);
    succeed(bed, 0);
    from->stopped = false;
    (void)run(bed, 5);
    assert_true(from->c->places_free == UINT64_MAX); /* its handler did not reply */
    assert_int_equal(bed->clients[1][0].got[0], 1);
    bed_free(bed);
}

/* The successor of service 1, which remembers [waiters] flows, before its clients have come. */
static struct bed *bed_young(unsigned waiters)
{
    struct bed *bed = bed_new(2, 8);
    bed_kill(bed, 1);
    bed->clients[1][0].stopped = bed->clients[1][1].stopped = true;
    bed->limits.waiters = waiters;
    bed_service_start(&bed->services[1], true);
    return bed;
}

/* A successor answers that an endpoint is gone once its client is: before it is settled if it knows
 * that, and after that not before. */
static void heirs(void **state)
{
    static _Atomic uint8_t heirs[WF_NODE_INDEXES];
    struct bed *bed = bed_young(64);
    struct bed_client *from = &bed->clients[0][0];
    (void)state;
    bed->services[1].mover->heirs = heirs;
    heirs[bed->clients[1][0].index] = NODE_HEIR_AWAITED;
    bed_connect(bed);
    OK(send_to(from, 0, 8, 0));
    OK(send_to(from, 1, 8, 0));
    (void)run(bed, 5);
    assert_int_equal(from->ended, 0);
    heirs[bed->clients[1][1].index] = NODE_HEIR_GONE;
    (void)run(bed, 5);
    assert_int_equal(from->ended, 1);
    wf_node_mover_settle(bed->services[1].mover);
    (void)run(bed, 5);
    assert_int_equal(from->ended, 1);
    heirs[bed->clients[1][0].index] = NODE_HEIR_GONE;
    (void)run(bed, 5);
    assert_int_equal(from->ended, 2);
    assert_int_equal(from->why, WEFT_EPEER);
    bed_free(bed);
}

/* The same if more flows wait than the service remembers: here two, and it has one place. */
static void heirs_many(void **state)
{
    struct bed *bed = bed_young(1);
    struct bed_client *from = &bed->clients[0][0];
    (void)state;
    bed_connect(bed);
    for (unsigned to = 0; to < 2; to++)
        OK(send_to(from, to, 8, 0));
    (void)run(bed, 5);
    assert_int_equal(from->ended, 0);
    wf_node_mover_settle(bed->services[1].mover);
    (void)run(bed, 9);
    assert_int_equal(from->ended, 2);
    assert_int_equal(from->why, WEFT_EPEER);
    bed_free(bed);
}

/* A flow for which the service has no place left ends when its destination's heir has ended, though
 * another heir never comes: the flow to that one has the place. */
static void heirs_beyond(void **state)
{
    static _Atomic uint8_t heirs[WF_NODE_INDEXES];
    static _Atomic uint32_t gone;
    struct bed *bed = bed_young(1);
    struct node_mover *m = bed->services[1].mover;
    struct bed_client *from = &bed->clients[0][0];
    (void)state;
    m->heirs = heirs;
    m->heirs_gone = &gone;
    bed_connect(bed);
    for (unsigned to = 0; to < 2; to++) {
        heirs[bed->clients[1][to].index] = NODE_HEIR_AWAITED;
        OK(send_to(from, to, 8, 0));
        (void)run(bed, 5);
    }
    wf_node_mover_settle(m);
    (void)run(bed, 9);
    assert_int_equal(from->ended, 0);
    heirs[bed->clients[1][1].index] = NODE_HEIR_GONE;
    gone++;
    (void)run(bed, 9);
    assert_int_equal(from->ended, 1);
    assert_int_equal(from->to[1]->ended, WEFT_EPEER);
    assert_int_equal(from->to[0]->ended, WEFT_OK);
    bed_free(bed);
}

/* END waits for lanes that are full, and is delivered behind an earlier reply. */
static void ended_late(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    (void)state;
    OK(send_to(from, 0, 8, 9));
    (void)run(bed, 1); /* [to] has the request, and its reply is on the way */
    (void)run(bed, 1);
    bed->services[1].out[0].room = bed->services[1].out[1].room = 0;
    end_add(to, WF_NODE_DEAD);
    to->stopped = true;
    (void)run(bed, 3);
    assert_int_equal(from->ended, 0);
    bed->services[1].out[0].room = bed->services[1].out[1].room = 64;
    (void)run(bed, 3);
    assert_int_equal(from->ended, 1);
    assert_int_equal(from->why, WEFT_EPEER);
    assert_true(from->c->places_free == UINT64_MAX);
    bed_free(bed);
}

/* Frames that make a flow, a message, or an endpoint's end known leave once there is memory again,
 * and until then the client does not sleep. */
static void short_of_memory(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    (void)state;
    has_memory = false;
    OK(wf_node_client_heed(from->c, from->to[0]));
    assert_int_equal(send_to(from, 1, 8, 0), WEFT_AGAIN);
    assert_int_equal(run(bed, 3), 0);
    assert_true(wf_node_client_pending(from->c));
    has_memory = true;
    (void)run(bed, 3);
    assert_int_equal(from->to[0]->low, 1); /* acknowledged */
    OK(send_to(from, 1, 8, 0));
    (void)run(bed, 3);
    assert_int_equal(bed->clients[1][1].got[0], 1);
    bed->is_short = true;
    end_add(to, WF_NODE_DEAD);
    (void)run(bed, 3);
    assert_int_equal(from->ended, 0);
    bed->is_short = false;
    (void)run(bed, 3);
    assert_int_equal(from->ended, 1);
    bed_free(bed);
}

/* A stopped service's unsent ENDs do not delay other services' and are bounded: it is given up. */
static void ended_beside(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct node_mover *m = bed->services[1].mover;
    struct bed_client *from = &bed->clients[0][0];
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    OK(wf_node_client_heed(from->c, from->to[0]));
    OK(wf_node_client_heed(from->c, from->to[1]));
    (void)run(bed, 3);
    end_add(&bed->clients[1][0], WF_NODE_DEAD);
    (void)run(bed, 3);
    assert_int_equal(from->ended, 1);
    end_add(&bed->clients[1][1], WF_NODE_DEAD);
    (void)run(bed, 3);
    assert_int_equal(from->ended, 2);
    assert_int_equal(m->nends, 2); /* for the stopped one */
    for (uint32_t i = 0; i < WF_NODE_ENDS; i++) {
        struct node_end *end = calloc(1, sizeof *end);
        assert_non_null(end);
        *end = (struct node_end){.tag = i + 1, .state = WF_NODE_DEAD};
        assert_int_equal(bed->services[1].behind, i > WF_NODE_ENDS - 2);
        wf_node_end_add(m, end);
        assert_true(m->nends <= WF_NODE_ENDS);
        (void)run(bed, 1);
    }
    assert_int_equal(bed->services[1].behind, 1);
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_LOST)); /* as the mover's thread does */
    (void)run(bed, 3);
    assert_int_equal(m->nends, 0);
    bed_free(bed);
}

/* All endpoints of a service end at once, many more than one turn sends: no session is lost, and
 * each learns of all. */
static void ended_at_once(void **state)
{
    enum { MANY = WF_NODE_ENDS + 100 };
    struct bed *bed = bed_new(1, 8);
    struct bed_service *s = &bed->services[1];
    (void)state;
    OK(wf_node_session_set(s->mover, WF_NODE_OWN, WF_NODE_UP));
    s->out[0].room = s->out[1].room = MANY;
    for (uint32_t i = 0; i < MANY; i++) {
        struct node_end *end = calloc(1, sizeof *end);
        assert_non_null(end);
        *end = (struct node_end){.tag = i + 1, .state = WF_NODE_DEAD};
        wf_node_end_add(s->mover, end);
        assert_true(s->mover->nends <= WF_NODE_ENDS);
    }
    (void)wf_node_mover_turn(s->mover);
    assert_int_equal(s->behind, 0);
    assert_int_equal(s->own, MANY * BED_LANES);
    assert_int_equal(s->out[0].count + s->out[1].count, MANY * BED_LANES);
    assert_int_equal(s->mover->nends, 0);
    bed_free(bed);
}

/* A flow that waits for a stopped service's room delays no flow behind it. */
static void room_beside(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    struct node_mover *m = bed->services[1].mover;
    uint8_t data[WF_NODE_SENDER + 64];
    uint32_t a[10] = {0}, lines = to->c->lines;
    size_t len = frame_fill(bed, 1, a, data);
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    to->stopped = true;
    for (uint32_t i = 0; i < lines; i++) {
        OK(send_to(from, 0, 8, 0));
        (void)run(bed, 2);
    }
    OK(wf_node_frame_take(m, BED_STUCK, WF_NODE_FRAME_DATA, a, 8, data, len)); /* no room */
    OK(send_to(from, 0, 8, 0));                                                /* nor for it */
    (void)run(bed, 2);
    assert_int_not_equal(to->port->waiting, to->port->waiting_last);
    to->stopped = false;
    (void)run(bed, 20);
    assert_int_equal(to->got[0], lines + 1);
    assert_int_equal(to->port->waiting, to->port->waiting_last); /* the stopped one */
    bed_free(bed);
}

/* Many flows that wait for a stopped service's room cost one attempt of each lane in a turn, and
 * delay no other flow. */
static void room_tries(void **state)
{
    enum { MANY = 50 };
    struct bed *bed = bed_new(2, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    struct bed_service *s = &bed->services[1];
    uint8_t data[WF_NODE_SENDER + 64];
    uint32_t a[10] = {0}, lines = to->c->lines;
    size_t len = frame_fill(bed, 1, a, data);
    (void)state;
    OK(wf_node_session_set(s->mover, BED_STUCK, WF_NODE_UP));
    to->stopped = true;
    for (uint32_t i = 0; i < lines; i++) {
        OK(send_to(from, 0, 8, 0));
        (void)run(bed, 2);
    }
    for (uint32_t slot = 0; slot < MANY; slot++, a[0] += 1u << 24)
        OK(wf_node_frame_take(s->mover, BED_STUCK, WF_NODE_FRAME_DATA, a, 8, data, len));
    OK(send_to(from, 0, 8, 0)); /* waits behind them */
    (void)run(bed, 2);
    s->stuck = 0;
    (void)wf_node_mover_turn(s->mover);
    assert_in_range(s->stuck, 1, BED_LANES); /* refusals */
    to->stopped = false;
    (void)run(bed, 20);
    assert_int_equal(to->got[0], lines + 1);
    s->stuck = 0;
    (void)wf_node_mover_turn(s->mover);
    assert_in_range(s->stuck, 1, BED_LANES);
    bed_free(bed);
}

/* A client attaches to a service that has forgotten which flows wait for it. All services that may
 * have such flows are notified of room; a lost service is not awaited. */
static void room_all(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct node_mover *m = bed->services[1].mover;
    struct bed_client *to = &bed->clients[1][0];
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_LOST));
    wf_node_port_detach(to->port);
    m->strays_lost[0] = UINT64_C(1) << BED_STUCK | UINT64_C(1) << BED_WORD;
    m->strays_lost_any = true;
    bed_attach(to);
    assert_true(to->port->room_all_any);
    assert_true(run(bed, 2) >= BED_LANES);
    assert_false(to->port->room_all_any);
    assert_int_equal(to->port->room_all[0], 0);
    bed_free(bed);
}

/* The end of an endpoint is reported to one whose flow to it had nothing to begin again when ROOM
 * ALL came. */
static void ended_after_room_all(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct node_mover *m = bed->services[1].mover;
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    (void)state;
    (void)run(bed, 1); /* [to] knows the session, so it sends no HEED */
    OK(send_to(from, 0, 8, 0));
    (void)run(bed, 3);
    m->strays_lost[0] = UINT64_C(1) << BED_WORD;
    m->strays_lost_any = true;
    assert_true(run(bed, 2) >= BED_LANES);
    end_add(to, WF_NODE_DEAD);
    to->stopped = true;
    (void)run(bed, 3);
    assert_int_equal(from->ended, 1);
    assert_int_equal(from->why, WEFT_EPEER);
    bed_free(bed);
}

/* The loss of a service ends the flows to it, and its senders, behind the messages that had
 * arrived. */
static void lost(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    (void)state;
    OK(send_to(to, 0, 8, 0));
    from->stopped = true;
    (void)run(bed, 2);
    OK(send_to(from, 0, 8, 9));
    OK(wf_node_session_set(bed->services[0].mover, BED_WORD, WF_NODE_LOST));
    (void)wf_node_client_poll(from->c, 0, 0);
    assert_int_equal(from->ended + from->gone, 0);
    (void)wf_node_client_poll(from->c, 0, 1);
    assert_int_equal(from->got[0], 1);
    assert_int_equal(from->why, WEFT_EPEER);
    assert_int_equal(from->gone, 1);
    bed_free(bed);
}

/* The flows of an ended endpoint end, both ways; those to others stay. */
static void flows_freed(void **state)
{
    struct bed *bed = bed_new(2, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    (void)state;
    from->releases = true;
    OK(send_to(from, 0, 8, 9));
    OK(send_to(from, 1, 8, 9));
    OK(send_to(to, 0, 8, 9)); /* [from] replies */
    (void)run(bed, 4);
    assert_int_equal(from->c->nflows, 3);
    end_add(to, WF_NODE_CLOSED);
    (void)run(bed, 4);
    assert_int_equal(from->ended, 1 + 1); /* of requests, of replies */
    assert_int_equal(from->gone, 1);
    assert_int_equal(from->c->nflows, 1);
    assert_null(wf_node_flow_lookup(from->c, bed_tag(NULL, &to->address)));
    OK(send_to(from, 1, 8, 9));
    (void)run(bed, 4);
    assert_int_equal(bed->clients[1][1].got[0], 2);
    bed_free(bed);
}

/* A client did not poll while its peers' service was lost and another service got the word: it
 * loses these peers, and sends nothing to the other service under their name. */
static void word_again(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    struct node_mover *m = bed->services[0].mover;
    const uint32_t name = wf_node_word_name(BED_WORD, 1);
    (void)state;
    OK(send_to(to, 0, 8, 0));
    OK(send_to(from, 0, 8, 0));
    (void)run(bed, 3);
    assert_int_equal(received, 2);
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_LOST));
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_UP));
    assert_int_equal(wf_node_word_of(m, BED_WORD), name);
    OK(send_to(from, 0, 8, 0)); /* the service drops it: its session is over */
    (void)wf_node_mover_turn(m);
    assert_null(bed->services[0].out[0].first);
    assert_null(bed->services[0].out[1].first);
    (void)run(bed, 3);
    assert_int_equal(from->why, WEFT_EPEER);
    assert_int_equal(from->gone, 1);
    assert_int_equal(received, 2);
    bed_free(bed);
}

/* A sender whose messages came by another word is not ended with the service that a flow to it was
 * for. */
static void sender_by_other_word(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *from = &bed->clients[0][0], *to = &bed->clients[1][0];
    struct node_mover *m = bed->services[0].mover;
    struct node_sender *s;
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    OK(send_to(to, 0, 8, 0));
    OK(send_to(from, 0, 8, 0));
    (void)run(bed, 3);
    s = wf_node_sender_find(from->c, from->to[0]->to.tag);
    assert_non_null(s);
    s->word = wf_node_word_of(m, BED_STUCK);
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_LOST));
    to->stopped = true;
    (void)run(bed, 2);
    assert_int_equal(from->why, WEFT_EPEER);
    assert_int_equal(from->gone, 0);
    bed_free(bed);
}

/* A sleeping client is woken once for each sleep. */
static void wakes(void **state)
{
    struct bed *bed = bed_new(1, 8);
    struct bed_client *to = &bed->clients[1][0];
    (void)state;
    to->stopped = true;
    to->submit->sleep_epoch = 1;
    OK(send_to(&bed->clients[0][0], 0, 8, 0));
    OK(send_to(&bed->clients[0][0], 0, 8, 0));
    (void)run(bed, 2);
    assert_int_equal(to->wakes, 1);
    assert_true(wf_node_client_pending(to->c));
    bed_free(bed);
}

/* More flows than slots: each gets its turn. */
static void few_slots(void **state)
{
    struct bed *bed = bed_new(3, 1);
    (void)state;
    for (int i = 0; i < 100; i++) {
        for (unsigned k = 0; k < 3; k++)
            (void)send_to(&bed->clients[0][0], (k + (unsigned)i) % 3, 100, 101);
        (void)run(bed, 4);
    }
    assert_true(received > 90);
    for (unsigned k = 0; k < 3; k++)
        assert_true(bed->clients[1][k].got[0] > 20);
    bed_free(bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes),
                                       cmocka_unit_test(bodies),
                                       cmocka_unit_test(blocks),
                                       cmocka_unit_test(lies),
                                       cmocka_unit_test(frames),
                                       cmocka_unit_test(lies_of_services),
                                       cmocka_unit_test(stopped),
                                       cmocka_unit_test(gone),
                                       cmocka_unit_test(lost),
                                       cmocka_unit_test(ended),
                                       cmocka_unit_test(ended_after_death),
                                       cmocka_unit_test(reply_without_bell),
                                       cmocka_unit_test(heirs),
                                       cmocka_unit_test(closes_with_heed),
                                       cmocka_unit_test(killed_with_service),
                                       cmocka_unit_test(first_message_late),
                                       cmocka_unit_test(heirs_many),
                                       cmocka_unit_test(heirs_beyond),
                                       cmocka_unit_test(ended_late),
                                       cmocka_unit_test(ended_beside),
                                       cmocka_unit_test(ended_at_once),
                                       cmocka_unit_test(short_of_memory),
                                       cmocka_unit_test(flows_freed),
                                       cmocka_unit_test(room_beside),
                                       cmocka_unit_test(room_tries),
                                       cmocka_unit_test(room_all),
                                       cmocka_unit_test(ended_after_room_all),
                                       cmocka_unit_test(word_again),
                                       cmocka_unit_test(sender_by_other_word),
                                       cmocka_unit_test(wakes),
                                       cmocka_unit_test(few_slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
