/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets that services without a NIC carry. Clients and services are those of node_bed.h;
 * clients of service 0 access regions of clients of service 1. The network is the test's: it moves
 * bytes of a part when the test chooses. */
#include "unit/unit.h"

#include <pthread.h>

#include "base/log.h"
#include "unit/node_bed.h"

enum { PART = 256 << 10, SLAB = 16 * PART, PAGE = 4096, PARTS = 512, OWNERS = 2, SLABS = 3 };
enum { TABLE, WRITABLE, READ_ONLY }; /* slabs of a client */
enum {
    SLOT = 3,
    FROM = 4096,
    LENGTH = SLAB - 2 * FROM,
    BOTH = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE
};
#define KEY UINT64_C(0x1122334455667788)
#define STARVED UINT64_C(100000000) /* ns: src/node/serve.c */

/* A client of service 1: the slabs that it gave. No two clients have a slab of one id. */
struct owner {
    struct node_slab slabs[SLABS];
    struct wf_node_regions *table;
    uint32_t index;
};

/* A PUT that service 0 has given to the network, or a GOT of service 1. */
struct part {
    uint32_t id, len, at; /* bytes before [at] were moved */
    unsigned lane, kind;
    uint32_t args[WF_NODE_PUT_ARGS];
    bool dropped; /* some of them were not stored */
};

static struct owner owners[OWNERS];
static struct part parts[PARTS];
static unsigned nparts;
static enum weft_status refusal; /* of the network, [refusals] times */
static unsigned refusals;
static uint16_t refused_word; /* of the last GOT that was refused */
static bool gone;             /* a page of the next GOT's bytes cannot be had */
static bool ends_early;       /* the other service ends parts before the network has taken them */
static unsigned moved;
static uint32_t last_id;
static enum weft_status last_status, by_id[PARTS];
static struct bed *bed;

/* ---- the network ---- */

static enum weft_status ended(uint32_t id, uint32_t how);

static enum weft_status on_part(struct bed_service *s, unsigned lane, unsigned kind,
                                const uint32_t *args, uint32_t id, uint32_t len)
{
    bool gets = kind == WF_NODE_FRAME_GOT;
    struct part *p = &parts[nparts];
    assert_true(s->side == gets && nparts < PARTS && len <= PART);
    assert_non_null((gets ? wf_node_served_at : wf_node_part_at)(s->mover, id, 0)); /* may send */
    if (gets && gone) {
        gone = false;
        wf_node_served_gone(s->mover, id);
        return WEFT_OK;
    }
    if (refusals) {
        refusals--;
        refused_word = s->mover->served[id % WF_NODE_SERVED].word;
        return refusal;
    }
    if (ends_early)
        OK(ended(id, WF_NODE_DONE));
    *p = (struct part){.id = id, .len = len, .lane = lane, .kind = kind};
    memcpy(p->args, args, gets ? WF_NODE_GOT_ARGS * sizeof *args : sizeof p->args);
    nparts++;
    return WEFT_OK;
}

static void part_remove(unsigned i)
{
    memmove(&parts[i], &parts[i + 1], (--nparts - i) * sizeof *parts);
}

/* Move at most [most] bytes. Returns whether the part is whole. */
static bool part_move(struct part *p, uint32_t most)
{
    uint32_t n = WF_MIN(most, p->len - p->at);
    struct node_mover *a = bed->services[0].mover, *b = bed->services[1].mover;
    bool gets = p->kind == WF_NODE_FRAME_GOT;
    const uint8_t *from =
        gets ? wf_node_served_at(b, p->id, p->at) : wf_node_part_at(a, p->id, p->at);
    uint8_t *to = gets ? wf_node_got_at(a, BED_WORD, p->args, WF_NODE_GOT_ARGS, p->len, p->at)
                       : wf_node_put_at(b, p->args, WF_NODE_PUT_ARGS, p->len, p->at);
    assert_non_null(from);
    p->dropped |= !to;
    if (to)
        memcpy(to, from, n);
    p->at += n;
    return p->at == p->len;
}

/* The part is whole: it is delivered. */
static void part_deliver(unsigned i)
{
    const struct part *p = &parts[i];
    if (p->kind == WF_NODE_FRAME_GOT)
        OK(wf_node_got_take(bed->services[0].mover, BED_WORD, p->args, WF_NODE_GOT_ARGS,
                            !p->dropped));
    else
        OK(wf_node_put_take(bed->services[1].mover, BED_WORD, p->args, WF_NODE_PUT_ARGS,
                            !p->dropped));
    part_remove(i);
}

static void carry(unsigned i)
{
    assert_true(i < nparts);
    while (!part_move(&parts[i], 100000))
        ;
    part_deliver(i);
}

/* The ENDED of another service. */
static enum weft_status ended(uint32_t id, uint32_t how)
{
    const uint32_t args[] = {id, how};
    return wf_node_frame_take(bed->services[0].mover, BED_WORD, WF_NODE_FRAME_ENDED, args, 2, NULL,
                              0);
}

static void frames(void)
{
    for (unsigned side = 0; side < 2; side++)
        for (unsigned lane = 0; lane < BED_LANES; lane++)
            while (bed_frame(&bed->services[side], lane))
                ;
}

/* ---- the bed ---- */

/* Memory between pages that nothing may touch. */
static void *guarded_new(size_t size)
{
    uint8_t *p = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && !mprotect(p + PAGE, size, PROT_READ | PROT_WRITE));
    return p + PAGE;
}

static void owner_open(unsigned i)
{
    struct owner *o = &owners[i];
    o->index = i + 5;
    for (unsigned k = 0; k < SLABS; k++) {
        size_t size = k ? (size_t)SLAB : sizeof *o->table;
        o->slabs[k] = (struct node_slab){.base = guarded_new(size),
                                         .size = size,
                                         .id = k ? 10 * i + k : 0,
                                         .index = (uint16_t)o->index,
                                         .read_only = k == READ_ONLY};
    }
    o->table = o->slabs[TABLE].base;
}

static void slabs_give(void)
{
    for (unsigned i = 0; i < OWNERS; i++)
        for (unsigned k = 0; k < SLABS; k++)
            wf_node_slab_add(bed->services[1].mover, &owners[i].slabs[k]);
}

static struct wf_node_region *region(unsigned owner, uint32_t slot)
{
    return &owners[owner].table->of[slot];
}

static void region_open(unsigned owner)
{
    *region(owner, SLOT) = (struct wf_node_region){.key = KEY,
                                                   .slab = owners[owner].slabs[WRITABLE].id,
                                                   .offset = FROM,
                                                   .length = LENGTH,
                                                   .access = BOTH};
}

static uint8_t *memory(unsigned owner)
{
    return (uint8_t *)owners[owner].slabs[WRITABLE].base + FROM;
}

static void on_moved(struct bed_client *b, uint32_t id, void *user, enum weft_status status)
{
    (void)b;
    (void)user;
    moved++;
    last_id = id;
    last_status = status;
    if (id < PARTS)
        by_id[id] = status;
}

static void on_message(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    (void)am;
}

static int begin(void **state)
{
    (void)state;
    bed = calloc(1, sizeof *bed);
    assert_non_null(bed);
    bed->on_request = bed->on_reply = on_message;
    bed->on_part = on_part;
    bed->on_moved = on_moved;
    bed->limits = (struct bed_limits){
        .clients = 2, .rows = 64, .waiters = 64, .slots = 8, .lane_room = 64, .size = 256 << 10};
    wf_log_set_level((enum wf_log_level) - 1); /* each failure is logged */
    nparts = refusals = moved = last_id = 0;
    gone = false;
    memset(by_id, 0, sizeof by_id);
    bed_open(bed);
    for (unsigned i = 0; i < OWNERS; i++) {
        owner_open(i);
        region_open(i);
    }
    slabs_give();
    return 0;
}

/* How many mappings of endpoints' submit segments there are. */
static unsigned mappings(void)
{
    char line[512];
    unsigned n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, "memfd:bed") != NULL;
    fclose(f);
    return n;
}

/* Fails when: a segment whose parts were under way stays mapped. */
static int end(void **state)
{
    (void)state;
    bed_close(bed);
    free(bed);
    for (unsigned i = 0; i < OWNERS; i++)
        for (unsigned k = 0; k < SLABS; k++)
            munmap((uint8_t *)owners[i].slabs[k].base - PAGE, owners[i].slabs[k].size + 2 * PAGE);
    assert_int_equal(mappings(), 0);
    return 0;
}

static struct bed_client *client(unsigned i)
{
    return &bed->clients[0][i];
}

static uint8_t *buffer(const struct bed_client *b, unsigned i)
{
    return (uint8_t *)b->submit + bed->limits.size + (size_t)i * WF_NODE_BUFFER;
}

static uint8_t *get_buffer(const struct bed_client *b, unsigned i)
{
    return (uint8_t *)b->event + bed->limits.size + (size_t)i * WF_NODE_BUFFER;
}

/* The client puts [len] bytes of its buffer [i] at [at] of the owner's region, or gets them. */
static enum weft_status move_at(struct bed_client *b, enum wf_node_move_kind kind, unsigned i,
                                unsigned owner, uint32_t at, uint32_t len, uint32_t id)
{
    const struct node_move_out out = {.kind = kind,
                                      .len = len,
                                      .at = {.local = i * WF_NODE_BUFFER,
                                             .remote = wf_node_region_at(SLOT) + at,
                                             .rkey = (uint32_t)KEY,
                                             .incarnation = (uint32_t)(KEY >> 32)},
                                      .index = (uint16_t)owners[owner].index,
                                      .id = id};
    return wf_node_client_move(b->c, b->to[owner], &out);
}

static enum weft_status put(struct bed_client *b, unsigned i, uint32_t len, uint32_t id)
{
    return move_at(b, WF_NODE_PUT, i, 0, i * PART, len, id);
}

static enum weft_status get(struct bed_client *b, unsigned i, uint32_t len, uint32_t id)
{
    return move_at(b, WF_NODE_GET, i, 0, i * PART, len, id);
}

static void turn(void)
{
    bed->now += 1000000;
    for (unsigned side = 0; side < 2; side++)
        if (bed->services[side].mover)
            (void)wf_node_mover_turn(bed->services[side].mover);
    frames();
    for (unsigned i = 0; i < 2; i++) {
        if (client(i)->attached)
            (void)wf_node_client_poll(client(i)->c, bed->now, 100);
        client(i)->to[0]->losses = client(i)->to[1]->losses = 0; /* no pause */
    }
}

/* ---- regions of a client that lies ---- */

/* What the client has in its table, and what a peer asks for. */
struct ask {
    uint64_t key, slab, offset, length;
    uint32_t has; /* access */
    uint64_t named, at;
    uint32_t index, len, wants;
};

static struct ask ask_good(void)
{
    return (struct ask){
        KEY, 1, FROM, LENGTH, BOTH, KEY, wf_node_region_at(SLOT) + 8, 5, 1000, WEFT_REMOTE_WRITE};
}

/* Returns the end. Each byte that is handed out is in a slab of the client. */
static enum wf_node_move_end ask(const struct ask *a)
{
    const struct owner *o = &owners[a->index - 5];
    enum wf_node_move_end how = 0;
    bool inside = false;
    uint8_t *p;
    *region(0, SLOT) = (struct wf_node_region){
        .key = a->key, .slab = a->slab, .offset = a->offset, .length = a->length, .access = a->has};
    p = wf_node_region_find(bed->services[1].mover, a->index, a->named, a->at, a->len, a->wants,
                            &how);
    assert_int_equal(p != NULL, how == WF_NODE_DONE);
    for (unsigned k = WRITABLE; p && k < SLABS; k++) {
        const uint8_t *base = o->slabs[k].base;
        inside |= p >= base && p + a->len <= base + SLAB;
        assert_false(k == READ_ONLY && a->wants & WEFT_REMOTE_WRITE && p >= base &&
                     p < base + SLAB);
    }
    assert_int_equal(inside, p != NULL);
    if (how == WF_NODE_DONE && a->slab == 1)
        assert_ptr_equal(p, (uint8_t *)o->slabs[WRITABLE].base + a->offset +
                                (a->at & (WF_NODE_REGION_MOST - 1)));
    return how;
}

#define ASK(how, change)                                                                           \
    do {                                                                                           \
        struct ask a = ask_good();                                                                 \
        a.change;                                                                                  \
        if (ask(&a) != (how))                                                                      \
            fail_msg("line %d: another end than %s with %s", __LINE__, #how, #change);             \
    } while (0)
#define DONE(change) ASK(WF_NODE_DONE, change)
#define LOST(change) ASK(WF_NODE_MOVE_LOST, change)
#define REFUSED(change) ASK(WF_NODE_MOVE_REFUSED, change)

/* Fails when: a field of a region, or an address of a peer, is used without a check. */
static void test_regions(void **state)
{
    const uint64_t first = wf_node_region_at(SLOT);
    (void)state;
    DONE(at = first);
    DONE(len = 0);
    DONE(len = LENGTH - 8);
    REFUSED(len = LENGTH - 7);
    REFUSED(len = UINT32_MAX);
    DONE(at = first + LENGTH - 1000);
    REFUSED(at = first + LENGTH - 999);
    REFUSED(at = first + WF_NODE_REGION_MOST - 1);
    REFUSED(at = first - 1);
    REFUSED(at = first + WF_NODE_REGION_MOST); /* another slot */
    REFUSED(at = 0);
    REFUSED(at = WF_NODE_REGION_MOST - 1);
    REFUSED(at = wf_node_region_at(WF_NODE_REGIONS)); /* beyond the table */
    REFUSED(at = wf_node_region_at(WF_NODE_REGIONS + SLOT));
    REFUSED(at = UINT64_MAX);
    REFUSED(named = KEY + 1);
    REFUSED(named = (uint32_t)KEY);
    REFUSED(named = KEY & ~(uint64_t)UINT32_MAX);
    REFUSED(named = 0);
    REFUSED(named = a.key = 0); /* no region has this key */
    REFUSED(key = 0);
    REFUSED(has = WEFT_REMOTE_READ);
    REFUSED(has = 0);
    REFUSED(has = WEFT_REMOTE_WRITE; a.wants = BOTH);
    DONE(has = UINT32_MAX);
    DONE(has = a.wants = WEFT_REMOTE_READ);
    REFUSED(offset = SLAB - LENGTH + 1);
    DONE(offset = SLAB - LENGTH);
    REFUSED(offset = SLAB + 1);
    REFUSED(offset = UINT64_MAX - FROM + 1);
    REFUSED(offset = UINT64_MAX);
    REFUSED(length = SLAB - FROM + 1);
    REFUSED(length = UINT64_MAX);
    REFUSED(length = UINT64_MAX - FROM + 1); /* its end is 0 */
    REFUSED(length = 1007);
    DONE(length = 1008);
    LOST(slab = 3);          /* not given */
    LOST(slab = UINT64_MAX); /* not given */
    LOST(slab = 0);          /* the table */
    LOST(slab = 11);         /* another client's */
    REFUSED(slab = READ_ONLY);
    DONE(slab = READ_ONLY; a.wants = WEFT_REMOTE_READ);
    REFUSED(index = 6; a.named = KEY + 1);
    DONE(index = 6; a.slab = 11); /* the other client's own region, which is good */
}

/* Fails when: the last slot is refused, or slabs of a client that has left, or were taken back, are
 * found. */
static void test_slabs(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    enum wf_node_move_end how;
    uint64_t last = wf_node_region_at(WF_NODE_REGIONS - 1);
    struct owner *o = &owners[0];
    (void)state;
    region_open(0);
    *region(0, WF_NODE_REGIONS - 1) = *region(0, SLOT);
    assert_ptr_equal(wf_node_region_find(m, 5, KEY, last, LENGTH, BOTH, &how), memory(0));
    assert_null(wf_node_region_find(m, 7, KEY, last, 1, BOTH, &how)); /* it has given nothing */
    assert_int_equal(how, WF_NODE_MOVE_LOST);
    wf_node_slab_remove(m, &o->slabs[WRITABLE]); /* in the middle of the list */
    LOST(len = 1);
    REFUSED(slab = READ_ONLY);
    DONE(index = 6; a.slab = 11);
    wf_node_slab_remove(m, &o->slabs[READ_ONLY]);
    wf_node_slab_remove(m, &o->slabs[TABLE]);
    LOST(len = 1);
    wf_node_slab_add(m, &o->slabs[WRITABLE]);
    LOST(len = 1); /* without a table */
    assert_null(m->slabs[5]->next);
}

static _Atomic bool stop;

/* Regions with even keys are in the first half of the slab, those with odd keys in the other one.
 * No key comes twice. */
static void *reuse(void *arg)
{
    struct wf_node_region *r = arg;
    for (uint64_t i = 0; !wf_load_relaxed(&stop); i++) {
        wf_store_release(&r->key, 0);
        atomic_thread_fence(memory_order_release); /* as another region's opening is later */
        wf_store_relaxed(&r->offset, i % 2 ? SLAB / 2 : 0);
        wf_store_relaxed(&r->length, SLAB / 2);
        wf_store_release(&r->key, KEY + i);
    }
    return NULL;
}

/* Fails when: a region is used whose slot was given to another one meanwhile. */
static void test_reuse(void **state)
{
    const uint8_t *base = owners[0].slabs[WRITABLE].base;
    struct wf_node_region *r = region(0, SLOT);
    struct node_mover *m = bed->services[1].mover;
    unsigned found = 0, looked = 0, wrong = 0;
    pthread_t thread;
    (void)state;
    assert_false(KEY & 1);
    wf_store_relaxed(&stop, false);
    wf_store_relaxed(&r->key, 0);
    assert_int_equal(pthread_create(&thread, NULL, reuse, r), 0);
    for (; looked < 1000000 || found < 100; looked++) {
        uint64_t key = wf_load_relaxed(&r->key);
        enum wf_node_move_end how;
        const uint8_t *p =
            wf_node_region_find(m, 5, key, wf_node_region_at(SLOT), 1, WEFT_REMOTE_WRITE, &how);
        found += p != NULL;
        wrong += p && p != base + (key % 2 ? SLAB / 2 : 0);
    }
    wf_store_relaxed(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wrong, 0);
}

/* ---- frames of a service that lies ---- */

static void frame_args(uint32_t *args, uint32_t id, unsigned to, unsigned from)
{
    const uint64_t at = wf_node_region_at(SLOT);
    const uint32_t a[] = {id,           (uint32_t)KEY,        (uint32_t)(KEY >> 32),
                          (uint32_t)at, (uint32_t)(at >> 32), to | from << 16};
    memcpy(args, a, sizeof a);
}

static enum weft_status take(const uint32_t *args, bool stored)
{
    return wf_node_put_take(bed->services[1].mover, BED_WORD, args, WF_NODE_PUT_ARGS, stored);
}

/* The ENDED that service 1 has sent first by [lane] is for [id]. */
static void check_ended(unsigned lane, uint32_t id, enum wf_node_move_end how)
{
    const struct bed_frame *f = bed->services[1].out[lane].first;
    assert_non_null(f);
    assert_true(f->kind == WF_NODE_FRAME_ENDED && f->nargs == 2 && !f->len);
    assert_int_equal(f->args[0], id);
    assert_int_equal(f->args[1], how);
    assert_true(bed_frame(&bed->services[1], lane));
}

/* Fails when: an argument of PUT is not checked, or its end is wrong. */
static void test_put_frames(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    uint32_t args[8] = {0};
    (void)state;
    frame_args(args, 77, 5, 6);
    for (unsigned nargs = 0; nargs < 9; nargs++)
        if (nargs != WF_NODE_PUT_ARGS) {
            assert_null(wf_node_put_at(m, args, nargs, 8, 0));
            assert_int_equal(wf_node_put_take(m, BED_WORD, args, nargs, true), WEFT_EPROTO);
        }
    assert_int_equal(wf_node_put_take(m, BED_WORD + 1, args, WF_NODE_PUT_ARGS, true), WEFT_EPROTO);
    assert_int_equal(wf_node_put_take(m, UINT16_MAX, args, WF_NODE_PUT_ARGS, true), WEFT_EPROTO);
    for (unsigned i = 0; i < 4; i++) {
        static const uint32_t wrong[][2] = {{16, 5}, {5, 16}, {0xffff, 5}, {5, 0xffff}};
        frame_args(args, 77, wrong[i][0], wrong[i][1]);
        assert_null(wf_node_put_at(m, args, WF_NODE_PUT_ARGS, 8, 0));
        assert_int_equal(take(args, true), WEFT_EPROTO);
    }
    frame_args(args, 77, 5, 6);
    assert_int_equal(
        wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_PUT, args, WF_NODE_PUT_ARGS, NULL, 0),
        WEFT_EPROTO); /* without bytes */
    assert_int_equal(m->nowed, 0);
    assert_ptr_equal(wf_node_put_at(m, args, WF_NODE_PUT_ARGS, LENGTH, 5), memory(0) + 5);
    assert_null(wf_node_put_at(m, args, WF_NODE_PUT_ARGS, LENGTH + 1, 0));
    OK(take(args, true));
    args[0]++;
    OK(take(args, false)); /* a page of the region could not be had */
    args[0]++, args[1]++;
    OK(take(args, false));
    args[0]++;
    OK(take(args, true)); /* the region was closed after its bytes were stored */
    args[5] = 7 | 6 << 16;
    args[0]++;
    OK(take(args, false)); /* of a client that is not attached */
    (void)wf_node_mover_turn(m);
    check_ended(1, 77, WF_NODE_DONE);
    check_ended(1, 78, WF_NODE_MOVE_LOST);
    check_ended(1, 79, WF_NODE_MOVE_REFUSED);
    check_ended(1, 80, WF_NODE_MOVE_REFUSED);
    check_ended(1, 81, WF_NODE_MOVE_LOST);
    assert_int_equal(m->nowed, 0);
}

/* Fails when: ENDEDs overtake each other, or take another lane than their PUTs; when more of them
 * are kept than there is room for; or when they go to the session after theirs. */
static void test_owed(void **state)
{
    struct bed_service *s = &bed->services[1];
    struct node_mover *m = s->mover;
    uint32_t args[WF_NODE_PUT_ARGS], first = 0, last = 0;
    (void)state;
    for (int round = 0; round < 5; round++) {
        s->out[0].room = s->out[1].room = 0;
        while (m->nowed < WF_NODE_PARTS) {
            frame_args(args, last, 5, 5 + last % 2);
            last++;
            OK(take(args, true));
        }
        frame_args(args, last, 5, 5);
        assert_int_equal(take(args, true), WEFT_EPROTO);
        (void)wf_node_mover_turn(m);
        assert_int_equal(m->nowed, WF_NODE_PARTS);
        s->out[0].room = s->out[1].room = 25;
        (void)wf_node_mover_turn(m);
        assert_int_equal(m->nowed, WF_NODE_PARTS - 50);
        for (int i = 0; i < 50; i++, first++)
            check_ended(first % 2, first, WF_NODE_DONE);
    }
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_UP));
    assert_int_equal(m->nowed, 0);
    frame_args(args, 1234, 5, 6);
    OK(take(args, true));
    (void)wf_node_mover_turn(m);
    check_ended(1, 1234, WF_NODE_DONE);
    assert_null(s->out[0].first);
    assert_null(s->out[1].first);
}

/* Fails when: an argument of ENDED is not checked, or it ends another part than its own. */
static void test_ended_frames(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    const uint32_t args[3] = {0, WF_NODE_DONE, 0};
    uint32_t id, used;
    (void)state;
    OK(put(client(0), 0, 8, 1));
    turn();
    id = parts[0].id;
    assert_true(!id && !parts[0].lane);
    for (unsigned nargs = 0; nargs < 4; nargs++)
        if (nargs != WF_NODE_ENDED_ARGS)
            assert_int_equal(
                wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_ENDED, args, nargs, NULL, 0),
                WEFT_EPROTO);
    assert_int_equal(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_ENDED, args, 2, "x", 1),
                     WEFT_EPROTO);
    assert_int_equal(ended(id, 0), WEFT_EPROTO);
    assert_int_equal(ended(id, WF_NODE_MOVE_ENDS), WEFT_EPROTO);
    assert_int_equal(ended(id, UINT32_MAX), WEFT_EPROTO);
    OK(ended(id + 1, WF_NODE_DONE)); /* none is under way by this number */
    OK(ended(id + WF_NODE_PARTS, WF_NODE_DONE));
    OK(ended(UINT32_MAX, WF_NODE_DONE));
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    OK(wf_node_frame_take(m, BED_STUCK, WF_NODE_FRAME_ENDED, args, 2, NULL, 0)); /* not its own */
    turn();
    assert_int_equal(moved, 0);
    assert_non_null(wf_node_part_at(m, id, 7));
    OK(ended(id, WF_NODE_DONE));
    OK(ended(id, WF_NODE_MOVE_REFUSED)); /* once more */
    turn();
    assert_true(moved == 1 && last_status == WEFT_OK);
    nparts = 0;
    for (used = 0; used < 2 * WF_NODE_PARTS; used++) { /* its place comes again */
        OK(put(client(0), 0, 8, 2));
        turn();
        OK(ended(id, WF_NODE_MOVE_REFUSED));
        carry(0);
        turn();
        assert_int_equal(last_status, WEFT_OK);
    }
    assert_int_equal(moved, 1 + used);
}

/* Fails when: a service ends a part that the network has not taken yet, and the part is counted as
 * one that was under way. */
static void test_ended_early(void **state)
{
    const struct node_mover *m = bed->services[0].mover;
    (void)state;
    ends_early = true;
    OK(put(client(0), 0, 8, 1));
    turn();
    ends_early = false;
    nparts = 0;
    turn();
    assert_true(moved == 1 && last_status == WEFT_EUNREACH);
    assert_true(!m->nparts && !m->sessions[BED_WORD]->nparts && !m->sessions[BED_WORD]->moving);
    OK(put(client(0), 0, 8, 2));
    turn();
    carry(0);
    turn();
    assert_true(moved == 2 && last_status == WEFT_OK);
}

/* ---- parts ---- */

/* Fails when: bytes, key, address or lane of a put are not those of its client. */
static void test_put(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct bed_client *b = client(1);
    const uint64_t remote = wf_node_region_at(SLOT) + 999;
    (void)state;
    for (unsigned i = 0; i < PART; i++)
        buffer(b, WF_NODE_BUFFERS - 1)[i] = (uint8_t)(i * 7 + i / 256);
    OK(move_at(b, WF_NODE_PUT, WF_NODE_BUFFERS - 1, 0, 999, PART, 11));
    turn();
    assert_true(nparts == 1 && parts[0].len == PART && parts[0].lane == (5 + 6) % BED_LANES);
    assert_int_equal(parts[0].args[1] | (uint64_t)parts[0].args[2] << 32, KEY);
    assert_int_equal(parts[0].args[3] | (uint64_t)parts[0].args[4] << 32, remote);
    assert_int_equal(parts[0].args[5], 5 | 6 << 16);
    assert_ptr_equal(wf_node_part_at(m, parts[0].id, 0),
                     (uint8_t *)b->mapped + bed->limits.size +
                         (size_t)(WF_NODE_BUFFERS - 1) * WF_NODE_BUFFER);
    assert_non_null(wf_node_part_at(m, parts[0].id, PART - 1));
    assert_null(wf_node_part_at(m, parts[0].id, PART));
    assert_null(wf_node_part_at(m, parts[0].id, UINT32_MAX));
    assert_null(wf_node_part_at(m, parts[0].id + 1, 0));
    carry(0);
    assert_int_equal(moved, 0);
    assert_memory_equal(memory(0) + 999, buffer(b, WF_NODE_BUFFERS - 1), PART);
    assert_int_equal(memory(0)[998] | memory(0)[999 + PART], 0);
    turn();
    assert_true(moved == 1 && last_id == 11 && last_status == WEFT_OK);
    assert_null(wf_node_part_at(m, 0, 0));
}

/* Fails when: ends are taken for those of other parts, or more than 512 KiB are under way. */
static void test_orders(void **state)
{
    static const enum weft_status statuses[] = {0, WEFT_OK, WEFT_EUNREACH, WEFT_EKEY};
    struct node_mover *m = bed->services[0].mover;
    enum weft_status want[PARTS];
    (void)state;
    for (uint32_t id = 0; id < 300;) {
        uint32_t from = id;
        for (unsigned i = 0; i < WF_NODE_BUFFERS; i++, id++)
            OK(put(client(id / 8 % 2), i, id % 16 ? 1 + id : PART, id));
        turn();
        assert_int_equal(nparts, WF_NODE_BUFFERS);
        for (unsigned i = 0; nparts; i++) {
            unsigned at = bed_draw(bed, nparts), how = 1 + bed_draw(bed, 3);
            uint32_t len = parts[at].len;
            want[len == PART ? from : len - 1] = statuses[how];
            OK(ended(parts[at].id, how));
            assert_null(wf_node_part_at(m, parts[at].id, 0));
            part_remove(at);
        }
        turn();
        assert_int_equal(moved, id);
        for (uint32_t k = from; k < id; k++)
            assert_int_equal(by_id[k], want[k]);
    }
    for (uint32_t i = 0; i < WF_NODE_BUFFERS; i++)
        OK(put(client(0), i, PART, i));
    for (int i = 0; i < 9; i++)
        turn();
    assert_int_equal(nparts, 2); /* 512 KiB */
    for (int i = 0; i < (int)WF_NODE_BUFFERS; i++) {
        carry(0);
        turn();
        turn();
    }
    assert_true(m->nparts == 0 && m->sessions[BED_WORD]->moving == 0);
    assert_int_equal(client(0)->port->buffers->parts, 0);
}

/* Fails when: a part that the network does not take is lost, or kept as if it were under way. */
static void test_room(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        refusal = i ? WEFT_ENOMEM : WEFT_AGAIN;
        refusals = 6;
        OK(put(client(0), 0, PART, 1));
        OK(put(client(0), 1, 8, 2));
        OK(put(client(0), 2, 9, 3));
        (void)wf_node_mover_turn(m);
        assert_int_equal(refusals, 3);
        assert_true(!nparts && !m->nparts && m->nqueued == 3 && !client(0)->port->buffers->parts);
        assert_null(wf_node_part_at(m, m->next_part - 1, 0));
        turn();
        turn();
        assert_int_equal(nparts, 3);
        assert_true(parts[0].len == 9 && parts[1].len == 8 && parts[2].len == PART);
        while (nparts)
            carry(0);
        turn();
        assert_true(moved == 3 * (i + 1) && last_status == WEFT_OK);
    }
    refusal = WEFT_EPEER; /* the session is about to end */
    refusals = 1;
    OK(put(client(0), 0, 8, 4));
    turn();
    assert_true(moved == 7 && last_id == 4 && last_status == WEFT_EUNREACH && !m->nparts);
}

/* Fails when: parts of a session that has ended are not LOST, or those of the next one are. */
static void test_cut(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    uint32_t old;
    (void)state;
    OK(put(client(0), 0, 8, 1));
    OK(put(client(1), 0, PART, 2));
    turn();
    assert_int_equal(nparts, 2);
    old = parts[0].id;
    nparts = 0;
    OK(put(client(0), 1, 8, 3)); /* read in the next session */
    bed_connect(bed);
    turn();
    assert_true(moved == 1 && last_id == 3 && last_status == WEFT_EUNREACH);
    assert_non_null(wf_node_part_at(m, old, 0)); /* the network may be at work on it */
    OK(put(client(0), 1, 8, 4));
    turn();
    assert_int_equal(nparts, 1);
    wf_node_parts_cut(m, BED_STUCK, 0);
    assert_non_null(wf_node_part_at(m, old, 0));
    wf_node_parts_cut(m, BED_WORD, m->sessions[BED_WORD]->number);
    assert_null(wf_node_part_at(m, old, 0));
    turn();
    assert_true(moved == 3 && by_id[1] == WEFT_EUNREACH && by_id[2] == WEFT_EUNREACH);
    OK(ended(old, WF_NODE_DONE));
    carry(0);
    turn();
    assert_true(moved == 4 && last_id == 4 && last_status == WEFT_OK);
    OK(put(client(0), 1, 8, 5));
    turn();
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_LOST));
    wf_node_parts_cut(m, BED_WORD, 0);
    turn();
    assert_true(moved == 5 && last_id == 5 && last_status == WEFT_EUNREACH);
    assert_true(!m->nparts && !m->sessions[BED_WORD]->moving && !m->sessions[BED_WORD]->nparts);
}

/* ---- segments of endpoints that leave ---- */

static bool is_mapped(const void *at)
{
    unsigned char page;
    return !mincore((void *)(uintptr_t)at, PAGE, &page);
}

/* Fails when: bytes of a part are missing after its endpoint has left, or stay mapped after its
 * end; or when that end is another endpoint's. */
static void test_detach(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    struct bed_client *b = client(0);
    const uint8_t *segment = (uint8_t *)b->mapped, *last = segment + bed_submit_bytes(bed) - PAGE;
    const struct wf_node_submit *next;
    (void)state;
    buffer(b, 0)[7] = 42;
    OK(put(b, 0, 8, 1));
    OK(put(b, 7, PART, 2));
    OK(put(b, 1, 8, 3)); /* not posted yet */
    refusal = WEFT_AGAIN;
    refusals = 0;
    turn();
    assert_int_equal(nparts, 3);
    OK(put(b, 2, 8, 4));
    refusals = 1;
    (void)wf_node_mover_turn(m);
    assert_int_equal(m->nqueued, 1);
    assert_true(wf_node_port_detach(b->port));
    assert_int_equal(m->nqueued, 0);
    bed_attach(b); /* in the place of the port that has left */
    next = b->mapped;
    assert_true(next != (const void *)segment);
    assert_int_equal(((const uint8_t *)wf_node_part_at(m, parts[1].id, 0))[7], 42);
    for (unsigned n = 3; n-- > 0;) {
        assert_true(is_mapped(segment) && is_mapped(last));
        carry(n == 2 ? 1 : 0);
        turn();
    }
    assert_int_equal(memory(0)[7], 42);
    assert_false(is_mapped(segment) || is_mapped(last));
    assert_true(is_mapped(next));
    assert_true(!moved && !m->nparts && !m->sessions[BED_WORD]->moving);
    wf_node_moves_abandon(b->c);
    b->c->tail = b->port->head; /* as a new endpoint */
    OK(put(b, 0, 8, 5));
    turn();
    carry(0);
    turn();
    assert_true(last_id == 5 && last_status == WEFT_OK);
    assert_false(wf_node_port_detach(b->port)); /* no part is under way */
    assert_true(is_mapped(next));
    b->attached = false;
    munmap(b->mapped, bed_submit_bytes(bed));
}

/* Fails when: the end of a session, or of the service, does not unmap them. */
static void test_detach_cut(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    const struct wf_node_submit *segments[2];
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        segments[i] = client(i)->mapped;
        OK(put(client(i), 0, 8, 1));
        OK(put(client(i), 1, 8, 2));
    }
    turn();
    assert_int_equal(nparts, 4);
    bed_detach(client(0));
    wf_node_parts_cut(m, BED_WORD, m->sessions[BED_WORD]->number);
    assert_true(is_mapped(segments[0]));
    wf_node_parts_cut(m, BED_WORD, 0);
    assert_false(is_mapped(segments[0]));
    assert_true(is_mapped(segments[1]));
    bed_attach(client(0));
    turn();
    OK(put(client(1), 0, 8, 3));
    OK(put(client(1), 1, 8, 4));
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, 6);
    bed_kill(bed, 0); /* the mover closes amid parts */
    assert_false(is_mapped(segments[1]));
}

/* ---- clients that lie ---- */

/* Fails when: a field of a put's entry is not checked. */
static void test_entries(void **state)
{
    enum { GOOD = 4, WRONG = 22 };
    const uint64_t most = WF_NODE_BUFFERS * WF_NODE_BUFFER;
    (void)state;
    for (unsigned i = 0; i < GOOD + WRONG; i++) {
        struct bed_client *b = client(0);
        struct wf_node_entry *e = &b->submit->entries[b->c->tail & (b->c->lines - 1)];
        OK(put(b, 1, 4096, 1));
        switch (i) {
        case 0: e->move.local = most - 4096; break;
        case 1: e->number = PART; break;
        case 2: e->slot = 15; break;
        case 3: e->move.remote = UINT64_MAX; break; /* the other service checks it */
        case 4: e->move.local = most - 4095; break;
        case 5: e->move.local = most; break;
        case 6: e->move.local = UINT64_MAX - 4095; break;
        case 7: e->move.local = UINT64_MAX; break;
        case 8: e->number = 0; break;
        case 9: e->number = PART + 1; break;
        case 10: e->number = UINT32_MAX; break;
        case 11: e->move.lkey = 1; break;
        case 12: e->move.immediate = 1; break;
        case 13: e->slot = 16; break;
        case 14: e->slot = UINT16_MAX; break;
        case 15: e->nargs = 1; break;
        case 16: e->handler = UINT8_MAX; break;
        case 17: e->handler = WF_NODE_WRITE; break;
        case 18: e->handler = WF_NODE_REACH; break;
        case 19: e->handler = WF_NODE_MOVE_KINDS; break;
        case 20: e->place = WF_NODE_MOVES; break;
        case 21: e->use = 0; break;
        case 22: e->attempt = 1; break;
        case 23: e->where = BED_WORD + 1; break;
        case 24: e->flags |= WF_NODE_BEGIN; break;
        case 25:
            OK(wf_node_session_set(bed->services[0].mover, WF_NODE_OWN, WF_NODE_UP));
            e->where = wf_node_word_of(bed->services[0].mover, WF_NODE_OWN);
            e->session = 1;
            break;
        default: break;
        }
        (void)wf_node_mover_turn(bed->services[0].mover);
        assert_int_equal(bed->services[0].failed, i >= GOOD);
        assert_int_equal(nparts, i < GOOD);
        assert_int_equal(b->event->status, i < GOOD ? 0 : WEFT_EPROTO);
        (void)end(NULL);
        (void)begin(NULL);
    }
}

/* ---- gets ---- */

/* A GET of the service of [word], for the first bytes of a region. */
static enum weft_status ask_by(uint16_t word, uint32_t id, uint32_t len)
{
    uint32_t args[WF_NODE_GET_ARGS];
    frame_args(args, id, 5, 6);
    args[6] = len;
    return wf_node_frame_take(bed->services[1].mover, word, WF_NODE_FRAME_GET, args,
                              WF_NODE_GET_ARGS, NULL, 0);
}

static enum weft_status ask_for(uint32_t id, uint32_t len)
{
    return ask_by(BED_WORD, id, len);
}

/* A GOT without bytes. */
static enum weft_status answer(uint32_t id, uint32_t how, uint32_t served)
{
    const uint32_t args[] = {id, how, served, 5 | 6 << 16};
    return wf_node_got_take(bed->services[0].mover, BED_WORD, args, WF_NODE_GOT_ARGS, false);
}

/* The GOT that service 1 has sent first by [lane], without bytes, is for [id]. */
static void check_got(unsigned lane, uint32_t id, enum wf_node_move_end how)
{
    const struct bed_frame *f = bed->services[1].out[lane].first;
    assert_non_null(f);
    assert_true(f->kind == WF_NODE_FRAME_GOT && f->nargs == WF_NODE_GOT_ARGS && !f->len);
    assert_true(f->args[0] == id && f->args[1] == how && !f->args[2]);
    assert_true(bed_frame(&bed->services[1], lane));
}

/* Fails when: bytes, key, address or lane of a get are not those of its client; or when the buffer
 * that served it is not free after that. */
static void test_get(void **state)
{
    struct node_mover *a = bed->services[0].mover, *b = bed->services[1].mover;
    const unsigned last = WF_NODE_BUFFERS - 1;
    struct bed_client *c = client(1);
    (void)state;
    for (unsigned i = 0; i < PART + 2; i++)
        memory(0)[998 + i] = (uint8_t)(i * 7 + i / 256);
    OK(move_at(c, WF_NODE_GET, last, 0, 999, PART, 11));
    (void)wf_node_mover_turn(a);
    assert_true(a->nparts == 1 && a->sessions[BED_WORD]->getting == PART && !nparts);
    frames();
    assert_int_equal(b->nowed, 1);
    (void)wf_node_mover_turn(b);
    assert_true(nparts == 1 && parts[0].kind == WF_NODE_FRAME_GOT && parts[0].len == PART);
    assert_true(parts[0].lane == (5 + 6) % BED_LANES && parts[0].args[0] == 0);
    assert_true(parts[0].args[1] == WF_NODE_DONE && parts[0].args[3] == (5 | 6 << 16));
    assert_true(!b->nowed && b->nserved == 1 && b->sessions[BED_WORD]->nserved == 1);
    region(0, SLOT)->key = 0; /* from here on, nothing of the owner is used */
    memset(memory(0) + 999, 0, PART);
    assert_non_null(wf_node_served_at(b, parts[0].id, PART - 1));
    assert_null(wf_node_served_at(b, parts[0].id, PART));
    assert_null(wf_node_served_at(b, parts[0].id + WF_NODE_SERVED, 0));
    assert_null(wf_node_served_at(b, parts[0].id + 1, 0));
    carry(0);
    assert_true(!a->nparts && !a->sessions[BED_WORD]->getting && !moved);
    for (unsigned i = 0; i < PART; i++)
        assert_int_equal(get_buffer(c, last)[i], (uint8_t)((i + 1) * 7 + (i + 1) / 256));
    (void)wf_node_mover_turn(a);
    assert_non_null(bed->services[0].out[(5 + 6) % BED_LANES].first); /* STORED, by GOT's lane */
    assert_int_equal(bed->services[0].out[(5 + 6) % BED_LANES].first->kind, WF_NODE_FRAME_STORED);
    turn();
    assert_true(moved == 1 && last_id == 11 && last_status == WEFT_OK);
    assert_true(!b->nserved && !b->sessions[BED_WORD]->nserved && !a->nowed);
    assert_null(wf_node_served_at(b, 0, 0));
    assert_int_equal(get_buffer(c, last - 1)[PART - 1], 0); /* the one before */
}

/* Fails when: a session has more than 512 KiB of gets under way, or these keep puts back, whose
 * bytes take the other direction. */
static void test_get_bound(void **state)
{
    struct node_mover *a = bed->services[0].mover, *b = bed->services[1].mover;
    const struct node_session *s = a->sessions[BED_WORD];
    (void)state;
    OK(get(client(0), 0, PART, 1));
    OK(get(client(0), 1, PART, 2));
    OK(get(client(1), 0, PART, 3));
    OK(put(client(0), 2, PART, 4));
    OK(put(client(1), 3, PART, 5));
    for (int i = 0; i < 4; i++)
        (void)wf_node_mover_turn(a);
    assert_true(s->getting == 2 * PART && s->moving == 2 * PART && a->nparts == 4);
    assert_true(nparts == 2 && parts[0].kind == WF_NODE_FRAME_PUT);
    while (nparts)
        carry(0);
    frames();
    (void)wf_node_mover_turn(b);
    while (nparts)
        carry(0);
    turn();
    for (int i = 0; i < 3; i++) {
        (void)wf_node_mover_turn(b);
        while (nparts)
            carry(0);
        turn();
    }
    assert_true(moved == 5 && !s->getting && !s->moving && !a->nparts && !b->nserved);
}

/* Fails when: an argument of GET is not checked, or the answer to a GET that cannot be served is
 * wrong. */
static void test_get_frames(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    uint32_t args[9] = {0};
    uint8_t *page = memory(0);
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        static const uint32_t wrong[][3] = {{16, 5, 8},      {5, 16, 8},        {0xffff, 5, 8},
                                            {5, 0xffff, 8},  {5, 6, 0},         {5, 6, PART + 1},
                                            {5, 6, 1 << 31}, {5, 6, UINT32_MAX}};
        frame_args(args, 1, wrong[i % 8][0], wrong[i % 8][1]);
        args[6] = wrong[i % 8][2];
        if (i >= 8) { /* the number of arguments */
            frame_args(args, 1, 5, 6);
            args[6] = 8;
        }
        if (i - 8 != WF_NODE_GET_ARGS)
            assert_int_equal(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_GET, args,
                                                i < 8 ? WF_NODE_GET_ARGS : i - 8, NULL, 0),
                             WEFT_EPROTO);
    }
    assert_int_equal(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_GET, args, 7, "x", 1),
                     WEFT_EPROTO);
    assert_int_equal(m->nowed, 0);
    region_open(0);
    OK(ask_for(1, 8));
    OK(ask_for(2, PART));
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, 2);
    region(0, SLOT)->access = WEFT_REMOTE_WRITE;
    OK(ask_for(3, 8));
    region(0, SLOT)->access = BOTH;
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, 3); /* the region counts that is open when it is served */
    region(0, SLOT)->access = WEFT_REMOTE_WRITE;
    OK(ask_for(4, 8));
    (void)wf_node_mover_turn(m);
    check_got(1, 4, WF_NODE_MOVE_REFUSED);
    region(0, SLOT)->access = BOTH;
    region(0, SLOT)->key++;
    OK(ask_for(5, 8));
    (void)wf_node_mover_turn(m);
    check_got(1, 5, WF_NODE_MOVE_REFUSED);
    region_open(0);
    region(0, SLOT)->length = 7;
    OK(ask_for(6, 8));
    (void)wf_node_mover_turn(m);
    check_got(1, 6, WF_NODE_MOVE_REFUSED);
    region_open(0);
    region(0, SLOT)->slab = 3; /* not given */
    OK(ask_for(7, 8));
    (void)wf_node_mover_turn(m);
    check_got(1, 7, WF_NODE_MOVE_LOST);
    region_open(0);
    assert_int_equal(mprotect(page, PAGE, PROT_NONE), 0); /* a page that cannot be had */
    OK(ask_for(8, 8));
    (void)wf_node_mover_turn(m);
    check_got(1, 8, WF_NODE_MOVE_LOST);
    bed->services[1].out[1].room = 0;
    OK(ask_for(9, 8));
    assert_int_equal(wf_node_mover_turn(m), 1); /* its buffer is for others */
    assert_int_equal(m->nowed, 1);
    bed->services[1].out[1].room = 64;
    (void)wf_node_mover_turn(m);
    check_got(1, 9, WF_NODE_MOVE_LOST);
    assert_int_equal(mprotect(page, PAGE, PROT_READ | PROT_WRITE), 0);
    assert_true(nparts == 3 && m->nserved == 3 && !m->nowed);
}

enum { OPEN = 0x55 }; /* each byte of a region that is open */

/* Closes the region, as a client does whose pages are freed then, and opens it with another key. */
static void *close_amid(void *arg)
{
    struct wf_node_region *r = arg;
    for (uint64_t i = 0; !wf_load_relaxed(&stop); i++) {
        wf_store_release(&r->key, 0);
        atomic_thread_fence(memory_order_seq_cst);
        for (uint32_t at = PART; at; at -= PAGE) /* a copy that is under way meets zeroes */
            memset(memory(0) + at - PAGE, 0, PAGE);
        for (unsigned k = 0; k < 1000; k++)
            wf_relax();
        memset(memory(0), OPEN, PART);
        wf_store_release(&r->key, KEY + i);
        for (unsigned k = 0; k < 2000; k++)
            wf_relax();
    }
    return NULL;
}

/* Fails when: a get of a region that was closed while its bytes were copied is DONE, or LOST. */
static void test_closed_amid(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    struct wf_node_region *r = region(0, SLOT);
    static uint8_t all[PART];
    unsigned done = 0, refused = 0, wrong = 0;
    pthread_t thread;
    (void)state;
    memset(all, OPEN, PART);
    wf_store_relaxed(&stop, false);
    wf_store_relaxed(&r->key, 0);
    assert_int_equal(pthread_create(&thread, NULL, close_amid, r), 0);
    while (!wrong && (done < 20 || refused < 20)) {
        uint32_t args[WF_NODE_GET_ARGS];
        uint64_t key = wf_load_relaxed(&r->key);
        frame_args(args, done, 5, 6);
        args[1] = (uint32_t)key;
        args[2] = (uint32_t)(key >> 32);
        args[6] = PART;
        OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_GET, args, WF_NODE_GET_ARGS, NULL, 0));
        (void)wf_node_mover_turn(m);
        if (nparts) {
            const uint32_t id = parts[0].id;
            done++;
            wrong += memcmp(wf_node_served_at(m, id, 0), all, PART) != 0;
            OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &id, 1, NULL, 0));
            part_remove(0);
        } else {
            refused++;
            wrong += bed->services[1].out[1].first->args[1] != WF_NODE_MOVE_REFUSED;
            assert_true(bed_frame(&bed->services[1], 1));
        }
    }
    wf_store_relaxed(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wrong, 0);
}

/* Fails when: a session has more buffers than are free, or more than its parts, or 512 KiB are
 * copied in a turn; or when what waits for a buffer is lost, or overtaken. */
static void test_served(void **state)
{
    struct bed_service *s = &bed->services[1];
    struct node_mover *m = s->mover;
    uint32_t next = 0, stored;
    (void)state;
    s->out[0].room = s->out[1].room = 1000;
    for (uint32_t id = 0; id < WF_NODE_PARTS; id++)
        OK(ask_for(id, id == 1 ? PART - 8 : id < 3 ? PART : 8));
    assert_int_equal(ask_for(999, 8), WEFT_EPROTO);
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, 2);
    for (int i = 0; i < 3; i++)
        (void)wf_node_mover_turn(m);
    assert_true(nparts == WF_NODE_SERVED / 2 && m->nserved == nparts);
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    m->sessions[BED_WORD]->nserved--; /* as if another session had one of them */
    m->sessions[BED_STUCK]->nserved++;
    m->served[5].word = BED_STUCK;
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, WF_NODE_SERVED / 2 + 1);
    stored = parts[5].id;
    OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &stored, 1, NULL, 0)); /* not its */
    assert_int_equal(m->nserved, WF_NODE_SERVED / 2 + 1);
    OK(wf_node_frame_take(m, BED_STUCK, WF_NODE_FRAME_STORED, &stored, 1, NULL, 0));
    OK(wf_node_frame_take(m, BED_STUCK, WF_NODE_FRAME_STORED, &stored, 1, NULL, 0)); /* once more */
    assert_int_equal(m->nserved, WF_NODE_SERVED / 2);
    assert_null(wf_node_served_at(m, stored, 0));
    for (next = 0; nparts || m->nowed; next++) {
        uint32_t id = parts[0].id;
        assert_int_equal(parts[0].args[0], next);
        if (next != 5)
            OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &id, 1, NULL, 0));
        part_remove(0);
        (void)wf_node_mover_turn(m);
        assert_true(nparts <= WF_NODE_SERVED / 2 + 1);
    }
    assert_true(next == WF_NODE_PARTS && !m->nserved && !m->nowed);
    for (uint32_t nargs = 0; nargs < 4; nargs++)
        if (nargs != WF_NODE_STORED_ARGS)
            assert_int_equal(
                wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &next, nargs, NULL, 0),
                WEFT_EPROTO);
    assert_int_equal(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &next, 1, "x", 1),
                     WEFT_EPROTO);
}

/* Fails when: GETs of a session without buffers wait for ever while other sessions keep all of
 * them, or are LOST while these are given back, or go on to be LOST when there are some again. */
static void test_starved(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    struct node_session *others;
    uint32_t stored;
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    others = m->sessions[BED_STUCK];
    assert_int_equal(wf_node_gets_wait_ms(m), -1);
    OK(ask_for(1, 8));
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, 1);
    m->nserved += WF_NODE_SERVED - 1; /* as if the other session had taken all, in time */
    others->nserved += WF_NODE_SERVED - 1;
    OK(ask_for(2, 8));
    m->served_ns -= STARVED;
    assert_int_equal(wf_node_mover_turn(m), 0);
    assert_int_equal(wf_node_gets_wait_ms(m), -1); /* its own STORED will give it one */
    stored = parts[0].id;
    OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &stored, 1, NULL, 0));
    m->nserved++;
    nparts = 0;
    OK(ask_for(3, 8));
    assert_int_equal(wf_node_mover_turn(m), 0); /* one was given back just now */
    assert_in_range(wf_node_gets_wait_ms(m), 1, 100);
    for (unsigned i = 0; i < 2; i++) { /* a lane that is full at times makes no difference */
        bed->services[1].out[1].room = 0;
        bed->services[1].out[1].count = 1;
        assert_int_equal(wf_node_mover_turn(m), 0);
        assert_int_equal(wf_node_gets_wait_ms(m), -1); /* an event reports the room */
        bed->services[1].out[1].room = 64;
        bed->services[1].out[1].count = 0;
        m->served_ns -= STARVED / 2 * i;
        assert_int_equal(wf_node_mover_turn(m), 0);
        assert_in_range(wf_node_gets_wait_ms(m), 1, 100);
    }
    m->served_ns -= STARVED;
    assert_int_equal(wf_node_gets_wait_ms(m), 0);
    assert_int_equal(wf_node_mover_turn(m), 2);
    check_got(1, 2, WF_NODE_MOVE_LOST);
    check_got(1, 3, WF_NODE_MOVE_LOST);
    assert_int_equal(wf_node_gets_wait_ms(m), -1);
    m->nserved -= 2;
    OK(ask_for(5, 8));
    assert_int_equal(wf_node_mover_turn(m), 1);
    assert_int_equal(nparts, 1);
    m->nserved += 2;
    stored = parts[0].id;
    OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_STORED, &stored, 1, NULL, 0));
    m->nserved = WF_NODE_SERVED;
    OK(ask_for(6, 8));
    assert_int_equal(wf_node_mover_turn(m), 0);
    assert_in_range(wf_node_gets_wait_ms(m), 1, 100);
    OK(wf_node_session_set(m, BED_WORD, WF_NODE_UP)); /* it waits no more, */
    OK(wf_node_owed_add(m, BED_STUCK, &(struct node_owed){.kind = WF_NODE_FRAME_STORED}));
    assert_int_equal(wf_node_gets_wait_ms(m), -1); /* whatever else does */
    wf_node_owed_cut(m, BED_STUCK);
    m->nserved = others->nserved = 0;
}

/* Fails when: of two sessions whose GETs wait, one has each buffer that is given back. */
static void test_served_in_turn(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    unsigned of[2] = {0};
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    m->nserved = WF_NODE_SERVED - 1; /* one is free */
    for (uint32_t id = 0; id < 8; id++) {
        OK(ask_by(BED_WORD, id, 8));
        OK(ask_by(BED_STUCK, id, 8));
    }
    for (unsigned i = 0; i < 8; i++) {
        uint32_t stored;
        uint16_t word;
        assert_int_equal(wf_node_mover_turn(m), 1);
        assert_int_equal(nparts, 1);
        stored = parts[0].id;
        word = m->served[stored % WF_NODE_SERVED].word;
        of[word == BED_STUCK]++;
        OK(wf_node_frame_take(m, word, WF_NODE_FRAME_STORED, &stored, 1, NULL, 0));
        nparts = 0;
    }
    assert_true(of[0] == 4 && of[1] == 4);
    m->nserved = 0;
}

/* Fails when: bytes are copied again and again for a lane that does not take them, without a bound
 * for each turn. */
static void test_served_in_vain(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    uint16_t before = 0;
    (void)state;
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t args[WF_NODE_GET_ARGS];
        frame_args(args, i, 5, 6 + i % 2);
        args[6] = PART;
        OK(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_GET, args, WF_NODE_GET_ARGS, NULL, 0));
        OK(wf_node_frame_take(m, BED_STUCK, WF_NODE_FRAME_GET, args, WF_NODE_GET_ARGS, NULL, 0));
    }
    refusal = WEFT_AGAIN;
    refusals = 100;
    for (unsigned i = 1; i < 5; i++) {
        (void)wf_node_mover_turn(m);
        assert_true(refusals == 100 - 2 * i && !m->nserved); /* 2 of 256 KiB, in turn */
        assert_true(i == 1 || refused_word != before);
        before = refused_word;
    }
    refusals = 0;
    (void)wf_node_mover_turn(m);
    assert_int_equal(nparts, 2);
}

/* Fails when: a GOT that the network does not take, or does not send, is lost. */
static void test_got_room(void **state)
{
    struct node_mover *m = bed->services[1].mover;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        refusal = i ? WEFT_ENOMEM : WEFT_AGAIN;
        refusals = 1;
        OK(get(client(0), 0, 4096, 1));
        turn();
        (void)wf_node_mover_turn(m);
        assert_true(!refusals && !nparts && !m->nserved && m->nowed == 1);
        (void)wf_node_mover_turn(m);
        assert_true(nparts == 1 && m->nserved == 1 && !m->nowed);
        carry(0);
        turn();
        assert_true(moved == i + 1 && last_status == WEFT_OK && !m->nserved);
    }
    bed->services[1].out[1].room = 1; /* a full lane: nothing is copied for it */
    region(0, SLOT)->key = 0;
    OK(ask_for(77, 8));
    (void)wf_node_mover_turn(m);
    region_open(0);
    OK(get(client(0), 0, 4096, 1));
    OK(get(client(1), 0, 4096, 1));
    (void)wf_node_mover_turn(bed->services[0].mover);
    assert_true(bed_frame(&bed->services[0], 1) && bed_frame(&bed->services[0], 0));
    (void)wf_node_mover_turn(m);
    assert_true(nparts == 1 && parts[0].lane == 0 && m->nowed == 1 && m->nserved == 1);
    carry(0);
    bed->services[1].out[1].room = 64;
    turn();
    turn();
    carry(0);
    turn();
    turn();
    assert_true(moved == 4 && last_status == WEFT_OK && !m->nserved);
    gone = true; /* in the call */
    OK(get(client(0), 0, 4096, 5));
    turn();
    turn();
    turn();
    assert_true(!gone && moved == 5 && last_id == 5 && last_status == WEFT_EUNREACH);
    assert_true(!m->nserved && !m->nowed && !nparts);
    OK(get(client(0), 0, 4096, 6));
    turn();
    turn();
    assert_true(nparts == 1 && m->nserved == 1);
    wf_node_served_gone(m, parts[0].id); /* later */
    wf_node_served_gone(m, parts[0].id);
    assert_true(m->nowed == 1 && !m->nserved);
    nparts = 0;
    turn();
    turn();
    assert_true(moved == 6 && last_id == 6 && last_status == WEFT_EUNREACH);
}

/* Fails when: an argument of GOT is not checked; or it ends, or stores into, another part than its
 * own. */
static void test_got_frames(void **state)
{
    struct node_mover *m = bed->services[0].mover;
    uint32_t args[6] = {0, WF_NODE_DONE, 7, 5 | 5 << 16};
    (void)state;
    OK(get(client(0), 3, 5000, 1));
    OK(put(client(0), 4, 5000, 2));
    (void)wf_node_mover_turn(m);
    nparts = 0;
    bed->services[0].out[0].room = bed->services[0].out[1].room = 0;
    for (unsigned nargs = 0; nargs < 6; nargs++)
        if (nargs != WF_NODE_GOT_ARGS) {
            assert_null(wf_node_got_at(m, BED_WORD, args, nargs, 5000, 0));
            assert_int_equal(wf_node_got_take(m, BED_WORD, args, nargs, true), WEFT_EPROTO);
        }
    assert_int_equal(wf_node_got_take(m, BED_WORD + 1, args, 4, true), WEFT_EPROTO);
    assert_int_equal(wf_node_got_take(m, UINT16_MAX, args, 4, true), WEFT_EPROTO);
    assert_int_equal(wf_node_frame_take(m, BED_WORD, WF_NODE_FRAME_GOT, args, 4, "x", 1),
                     WEFT_EPROTO);
    assert_int_equal(answer(0, 0, 0), WEFT_EPROTO);
    assert_int_equal(answer(0, WF_NODE_MOVE_ENDS, 0), WEFT_EPROTO);
    assert_int_equal(answer(0, WF_NODE_MOVE_LOST, 1), WEFT_EPROTO); /* it names a buffer */
    args[1] = WF_NODE_MOVE_LOST;
    args[2] = 0;
    assert_int_equal(wf_node_got_take(m, BED_WORD, args, 4, true), WEFT_EPROTO); /* with bytes */
    assert_null(wf_node_got_at(m, BED_WORD, args, 4, 5000, 0));
    args[1] = WF_NODE_DONE;
    for (unsigned i = 0; i < 2; i++) {
        args[3] = i ? 16 | 5 << 16 : 5 | 16 << 16;
        assert_int_equal(wf_node_got_take(m, BED_WORD, args, 4, true), WEFT_EPROTO);
    }
    args[3] = 5 | 5 << 16;
    assert_true(m->nparts == 2 && !m->nowed);
    assert_ptr_equal(wf_node_got_at(m, BED_WORD, args, 4, 5000, 9), get_buffer(client(0), 3) + 9);
    assert_null(wf_node_got_at(m, BED_WORD, args, 4, 4999, 0));
    assert_null(wf_node_got_at(m, BED_WORD, args, 4, 5001, 0));
    OK(wf_node_session_set(m, BED_STUCK, WF_NODE_UP));
    assert_null(wf_node_got_at(m, BED_STUCK, args, 4, 5000, 0)); /* not its own */
    OK(wf_node_got_take(m, BED_STUCK, args, 4, true));
    args[0] = 1; /* the put's */
    assert_null(wf_node_got_at(m, BED_WORD, args, 4, 5000, 0));
    OK(wf_node_got_take(m, BED_WORD, args, 4, true));
    args[0] = WF_NODE_PARTS; /* none is under way by this number */
    assert_null(wf_node_got_at(m, BED_WORD, args, 4, 5000, 0));
    OK(wf_node_got_take(m, BED_WORD, args, 4, true));
    assert_null(wf_node_part_at(m, 0, 0));
    OK(ended(0, WF_NODE_DONE)); /* of a get */
    assert_int_equal(m->nparts, 2);
    while (m->sessions[BED_WORD]->nowed < WF_NODE_SERVED)
        OK(wf_node_got_take(m, BED_WORD, args, 4, true));
    assert_int_equal(wf_node_got_take(m, BED_WORD, args, 4, true), WEFT_EPROTO); /* too many */
    OK(answer(0, WF_NODE_MOVE_REFUSED, 0));
    turn();
    assert_true(moved == 1 && last_id == 1 && last_status == WEFT_EKEY);
    OK(ended(1, WF_NODE_DONE));
    bed->services[0].out[0].room = bed->services[0].out[1].room = 64;
    OK(get(client(0), 3, 5000, 3));
    (void)wf_node_mover_turn(m);
    assert_int_equal(m->sessions[BED_WORD]->nowed, 0);
    args[0] = m->next_part - 1;
    args[0] = args[0] % WF_NODE_PARTS;
    OK(wf_node_got_take(m, BED_WORD, args, 4, false)); /* its bytes were dropped */
    turn();
    assert_true(moved == 3 && by_id[2] == WEFT_OK && by_id[3] == WEFT_EUNREACH);
}

/* Fails when: gets of a session that has ended are not LOST, keep buffers, or store bytes. */
static void test_get_cut(void **state)
{
    struct node_mover *a = bed->services[0].mover, *b = bed->services[1].mover;
    struct part old[2];
    (void)state;
    OK(get(client(0), 0, 8, 1));
    OK(get(client(1), 1, PART, 2));
    turn();
    (void)wf_node_mover_turn(b);
    OK(get(client(0), 2, 8, 3));
    (void)wf_node_client_poll(client(0)->c, bed->now, 100);
    (void)wf_node_mover_turn(a);
    frames(); /* it waits at the owner's service */
    assert_true(nparts == 2 && b->nserved == 2 && b->nowed == 1);
    memcpy(old, parts, sizeof old);
    nparts = 0;
    bed_connect(bed);
    assert_true(!b->nserved && !b->nowed && !b->sessions[BED_WORD]->nserved);
    assert_null(wf_node_served_at(b, old[0].id, 0));
    assert_null(wf_node_got_at(a, BED_WORD, old[0].args, WF_NODE_GOT_ARGS, 8, 0));
    wf_node_served_gone(b, old[0].id);
    assert_int_equal(b->nowed, 0);
    assert_int_equal(a->nparts, 3);
    OK(wf_node_got_take(a, BED_WORD, old[0].args, WF_NODE_GOT_ARGS, true));
    assert_int_equal(a->nparts, 3);
    assert_int_equal(a->sessions[BED_WORD]->nstored, 1);
    wf_node_owed_cut(a, BED_WORD);
    assert_true(!a->nowed && !a->sessions[BED_WORD]->nstored);
    wf_node_parts_cut(a, BED_WORD, a->sessions[BED_WORD]->number);
    turn();
    assert_true(moved == 3 && by_id[1] == WEFT_EUNREACH && by_id[2] == WEFT_EUNREACH &&
                by_id[3] == WEFT_EUNREACH);
    OK(get(client(0), 0, 8, 4));
    turn();
    (void)wf_node_mover_turn(b);
    carry(0);
    turn();
    assert_true(moved == 4 && last_id == 4 && last_status == WEFT_OK && !b->nserved);
}

/* Fails when: bytes are stored in the segment of an endpoint that has left, or its get keeps a
 * buffer, or its submit segment. */
static void test_get_detach(void **state)
{
    struct node_mover *a = bed->services[0].mover, *b = bed->services[1].mover;
    (void)state;
    memset(memory(0), 0x77, PART);
    OK(get(client(0), 0, PART, 1));
    turn();
    (void)wf_node_mover_turn(b);
    assert_int_equal(nparts, 1);
    assert_false(part_move(&parts[0], 1000));
    bed_detach(client(0));
    assert_false(client(0)->attached);
    assert_null(wf_node_got_at(a, BED_WORD, parts[0].args, WF_NODE_GOT_ARGS, PART, 1000));
    carry(0);
    assert_true(get_buffer(client(0), 0)[999] == 0x77 && !get_buffer(client(0), 0)[1000]);
    turn();
    assert_true(!a->nparts && !a->sessions[BED_WORD]->getting && !b->nserved && !a->nowed);
    assert_int_equal(mappings(), 7); /* those of four clients, but for one of a service */
}

static enum weft_status on_move(struct bed_service *s, const struct wf_nic_op *op,
                                uint32_t incarnation, size_t *taken)
{
    (void)s;
    (void)incarnation;
    parts[nparts++].id = op->id;
    *taken = op->len;
    return WEFT_OK;
}

/* Fails when: a peer ends parts of a NIC, or a service with a NIC takes PUT. */
static void test_nic(void **state)
{
    const struct node_move_out out = {
        .len = 8, .at = {(uint64_t)wf_node_window(5, 1) << WF_NODE_WINDOW_BITS, 1, 1, 1, 1, 0}};
    uint32_t args[WF_NODE_PUT_ARGS];
    (void)state;
    bed_close(bed);
    memset(bed->clients, 0, sizeof bed->clients);
    memset(bed->services, 0, sizeof bed->services);
    bed->on_part = NULL;
    bed->on_move = on_move;
    bed_open(bed);
    OK(wf_node_client_move(client(0)->c, client(0)->to[0], &out));
    turn();
    assert_int_equal(nparts, 1);
    OK(ended(parts[0].id, WF_NODE_DONE));
    turn();
    assert_int_equal(moved, 0);
    assert_null(wf_node_part_at(bed->services[0].mover, parts[0].id, 0));
    frame_args(args, 1, 5, 5);
    assert_int_equal(take(args, true), WEFT_EPROTO);
    assert_int_equal(ask_for(1, 1), WEFT_EPROTO);
    assert_int_equal(answer(parts[0].id, WF_NODE_MOVE_LOST, 0), WEFT_EPROTO);
    assert_null(wf_node_got_at(bed->services[0].mover, BED_WORD, args, WF_NODE_GOT_ARGS, 8, 0));
    wf_node_part_done(bed->services[0].mover, parts[0].id, WEFT_OK);
    turn();
    assert_int_equal(moved, 1);
}

/* ---- random schedules ---- */

enum { STEPS = 12000, SCHEDULES = 8, PUTS = STEPS };

/* What a buffer of a client holds, while its put is under way. */
static struct shipment {
    uint32_t id, len;
    uint64_t key;
    unsigned owner;
    bool gets;
} shipments[2][WF_NODE_BUFFERS]; /* len 0: free */
static uint32_t nids, ends_of[4];
static uint8_t reports[PUTS];
static uint64_t keys[OWNERS];
static unsigned opened;

static uint32_t place_of(unsigned who, unsigned i)
{
    return (who * WF_NODE_BUFFERS + i) * (PART / 2);
}

static void pattern(uint8_t *to, uint32_t id, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        to[i] = (uint8_t)(id * 13 + i);
}

/* A put that is done is in the owner's memory, and a get in its buffer. One is refused if its
 * region was closed. */
static void on_shipped(struct bed_client *b, uint32_t id, void *user, enum weft_status status)
{
    static uint8_t want[PART / 2];
    unsigned who = b == client(1), i = (unsigned)(uintptr_t)user;
    struct shipment *s = &shipments[who][i];
    assert_true(s->len && s->id == id && !reports[id]);
    reports[id] = 1;
    pattern(want, id, s->len);
    if (status == WEFT_OK)
        assert_memory_equal(s->gets ? get_buffer(b, i) : memory(s->owner) + place_of(who, i), want,
                            s->len);
    else if (status == WEFT_EKEY)
        assert_true(s->key != keys[s->owner]);
    else
        assert_int_equal(status, WEFT_EUNREACH);
    ends_of[status == WEFT_OK ? 1 : status == WEFT_EKEY ? 2 : 3]++;
    s->len = 0;
}

static void region_draw(unsigned owner)
{
    struct wf_node_region *r = region(owner, SLOT);
    r->key = 0;
    if (bed_draw(bed, 2))
        r->key = keys[owner] = KEY + ++opened;
    else
        keys[owner] = 0;
}

static void ship(unsigned who)
{
    static const uint32_t lens[] = {1, 8, 100, 4096, 4097, 16384, PART / 2 - 2 * FROM};
    struct bed_client *b = client(who);
    unsigned i = bed_draw(bed, WF_NODE_BUFFERS), owner = bed_draw(bed, OWNERS);
    uint32_t len = lens[bed_draw(bed, bed_draw(bed, 8) ? 5 : 7)];
    struct shipment *s = &shipments[who][i];
    bool gets = bed_draw(bed, 2);
    struct node_move_out out = {.kind = gets ? WF_NODE_GET : WF_NODE_PUT,
                                .len = len,
                                .at = {.local = i * WF_NODE_BUFFER,
                                       .remote = wf_node_region_at(SLOT) + place_of(who, i),
                                       .rkey = (uint32_t)keys[owner],
                                       .incarnation = (uint32_t)(keys[owner] >> 32)},
                                .index = (uint16_t)owners[owner].index,
                                .id = nids,
                                .user = (void *)(uintptr_t)i};
    if (s->len || !b->attached || nids == PUTS || !keys[owner] ||
        wf_node_client_can_move(b->c, b->to[owner]) != WEFT_OK)
        return;
    pattern(gets ? memory(owner) + place_of(who, i) : buffer(b, i), nids, len);
    *s = (struct shipment){nids++, len, keys[owner], owner, gets};
    OK(wf_node_client_move(b->c, b->to[owner], &out));
}

/* The network moves bytes of the oldest part of a lane. */
static void lane_move(unsigned lane)
{
    unsigned i = 0;
    while (i < nparts && parts[i].lane != lane)
        i++;
    if (i == nparts || !part_move(&parts[i], 1 + bed_draw(bed, 2) * PART + bed_draw(bed, 5000)))
        return;
    part_deliver(i);
}

static void client_back(unsigned who)
{
    struct bed_client *b = client(who);
    if (b->attached)
        return;
    bed_reattach(b);
    bed_resolve_all(b);
    for (unsigned k = 0; k < OWNERS; k++)
        wf_node_flow_resolve(b->c, b->to[k], BED_WORD);
}

/* The session ends, or with it a service. An endpoint that has left comes back to a successor. */
static void fault(void)
{
    unsigned side = bed_draw(bed, 3);
    if (side < 2) {
        bed_kill(bed, side);
        bed_service_start(&bed->services[side], true);
    }
    if (side == 1)
        slabs_give();
    nparts = 0;
    bed_connect(bed);
    if (side)
        wf_node_parts_cut(bed->services[0].mover, BED_WORD, 0);
    for (unsigned who = 0; who < 2 && !side; who++)
        client_back(who);
}

static void step(unsigned what)
{
    unsigned who = bed_draw(bed, 2);
    if (what < 300)
        ship(who);
    else if (what < 450)
        (void)wf_node_mover_turn(bed->services[what % 2].mover);
    else if (what < 700)
        lane_move(what % BED_LANES);
    else if (what < 800)
        (void)bed_frame(&bed->services[what / 2 % 2], what % BED_LANES);
    else if (what < 940 && client(who)->attached)
        (void)wf_node_client_poll(client(who)->c, bed->now, 100);
    else if (what < 950)
        region_draw(who);
    else if (what < 970)
        refusals = bed_draw(bed, 4), refusal = what % 2 ? WEFT_AGAIN : WEFT_ENOMEM;
    else if (what < 972)
        gone = true;
    else if (what < 990)
        turn();
    else if (what == 990 && client(who)->attached)
        bed_detach(client(who)); /* its parts go on */
    else if (what > 996)
        fault();
}

/* Fails when: a put or get ends twice or never; when it is DONE before its bytes are there, or
 * REFUSED by a region that is open; or when anything of a service that was killed is left. */
static void test_schedules(void **state)
{
    (void)state;
    memset(ends_of, 0, sizeof ends_of);
    for (unsigned seed = 0; seed < SCHEDULES; seed++) {
        const struct node_mover *m;
        (void)end(NULL);
        (void)begin(NULL);
        bed->rand = seed;
        bed->on_moved = on_shipped;
        memset(reports, 0, sizeof reports);
        keys[0] = keys[1] = KEY;
        nids = opened = 0;
        for (unsigned i = 0; i < STEPS / SCHEDULES * 4; i++) {
            step(bed_draw(bed, 1000));
            client(0)->to[0]->losses = client(0)->to[1]->losses = 0;
            client(1)->to[0]->losses = client(1)->to[1]->losses = 0;
        }
        client_back(0);
        client_back(1);
        refusals = 0;
        gone = false;
        for (unsigned i = 0; i < 1000; i++) {
            turn();
            if (nparts)
                carry(0);
        }
        m = bed->services[0].mover;
        for (uint32_t id = 0; id < nids; id++)
            assert_true(reports[id]);
        assert_true(!m->nparts && !m->nqueued && !bed->services[1].mover->nowed);
        assert_int_equal(m->sessions[BED_WORD]->getting, 0);
        assert_true(!m->nowed && !bed->services[1].mover->nserved);
        assert_int_equal(mappings(), 6 + bed->clients[1][0].attached + bed->clients[1][1].attached);
    }
    assert_true(ends_of[1] > 1000 && ends_of[2] > 10 && ends_of[3] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_regions, begin, end),
        cmocka_unit_test_setup_teardown(test_slabs, begin, end),
        cmocka_unit_test_setup_teardown(test_reuse, begin, end),
        cmocka_unit_test_setup_teardown(test_put_frames, begin, end),
        cmocka_unit_test_setup_teardown(test_owed, begin, end),
        cmocka_unit_test_setup_teardown(test_ended_frames, begin, end),
        cmocka_unit_test_setup_teardown(test_ended_early, begin, end),
        cmocka_unit_test_setup_teardown(test_put, begin, end),
        cmocka_unit_test_setup_teardown(test_orders, begin, end),
        cmocka_unit_test_setup_teardown(test_room, begin, end),
        cmocka_unit_test_setup_teardown(test_cut, begin, end),
        cmocka_unit_test_setup_teardown(test_detach, begin, end),
        cmocka_unit_test_setup_teardown(test_detach_cut, begin, end),
        cmocka_unit_test_setup_teardown(test_entries, begin, end),
        cmocka_unit_test_setup_teardown(test_get, begin, end),
        cmocka_unit_test_setup_teardown(test_get_bound, begin, end),
        cmocka_unit_test_setup_teardown(test_get_frames, begin, end),
        cmocka_unit_test_setup_teardown(test_closed_amid, begin, end),
        cmocka_unit_test_setup_teardown(test_served, begin, end),
        cmocka_unit_test_setup_teardown(test_starved, begin, end),
        cmocka_unit_test_setup_teardown(test_served_in_turn, begin, end),
        cmocka_unit_test_setup_teardown(test_served_in_vain, begin, end),
        cmocka_unit_test_setup_teardown(test_got_room, begin, end),
        cmocka_unit_test_setup_teardown(test_got_frames, begin, end),
        cmocka_unit_test_setup_teardown(test_get_cut, begin, end),
        cmocka_unit_test_setup_teardown(test_get_detach, begin, end),
        cmocka_unit_test_setup_teardown(test_nic, begin, end),
        cmocka_unit_test_setup_teardown(test_schedules, begin, end),
    };
    return cmocka_run_group_tests_name("node_put", tests, NULL, NULL);
}
