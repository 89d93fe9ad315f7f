/* SPDX-License-Identifier: BSD-3-Clause */
/* register_mem, put, get, atomics and flush, each by itself, and from inside callbacks; accesses
 * past the end, of memory that was freed or unmapped, and to no rank; the own memory. Rank 0
 * accesses the memory of rank 1.
 *
 * usage: ompi_accesses [CHAIN [near | nic]]
 *   CHAIN  so many gets, each of which begins in the callback of the one before; 100,000 by default
 *   near   the ranks share memory: what ob1 registers for its own gets has no region
 *   nic    an RDMA device performs the accesses: it uses the pages that were registered
 */
#include "side.h"

#include <sys/mman.h>
#include <time.h>

/* LEN bytes are registered. Weft's region ends with the page, so more of it is within reach. */
enum {
    ROOM = 1 << 20,
    LEN = ROOM - 100,
    MANY = 1000,
    GO = MCA_BTL_TAG_USR + 1,
    REGIONS = 200,
    LONG = 40000
};

static unsigned ended, wanted;
static int last_status;
static struct side_place place; /* of the other rank's memory */

static bool all_have_ended(void)
{
    return ended >= wanted;
}

static void on_ended(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     void *local, mca_btl_base_registration_handle_t *local_handle, void *context,
                     void *data, int status)
{
    CHECK(btl == side.btl && peer == side.peer && !local_handle && context == &side &&
          data == &ended);
    (void)local;
    last_status = status;
    ended++;
}

/* Wait for one access, which the call has begun with [rc]. Returns its status. */
static int wait(int rc)
{
    CHECK(rc == OPAL_SUCCESS);
    wanted = 1;
    side_until(all_have_ended);
    CHECK(ended == 1);
    ended = 0;
    return last_status;
}

static int put(struct side_place *p, const void *from, uint64_t offset, size_t len)
{
    return side.btl->btl_put(side.btl, side.peer, (void *)(uintptr_t)from, p->address + offset,
                             NULL, side_handle(p), len, 0, MCA_BTL_NO_ORDER, on_ended, &side,
                             &ended);
}

static int get(struct side_place *p, void *to, uint64_t offset, size_t len)
{
    return side.btl->btl_get(side.btl, side.peer, to, p->address + offset, NULL, side_handle(p),
                             len, 0, MCA_BTL_NO_ORDER, on_ended, &side, &ended);
}

/* With ACCESS_ANY as for windows, with ACCESS_SOME as for messages. */
#define ACCESS_ANY MCA_BTL_REG_FLAG_ACCESS_ANY
#define ACCESS_SOME (MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_REMOTE_WRITE)
static uint32_t access_flags = ACCESS_ANY;
/* As ob1 registers the destination of its own get. */
#define OWN_GET (MCA_BTL_REG_FLAG_LOCAL_WRITE | MCA_BTL_REG_FLAG_REMOTE_WRITE)

/* Register [len] bytes at [memory], and swap handles with the other rank. */
static mca_btl_base_registration_handle_t *swap(void *memory, size_t len)
{
    return side_share(memory, len, access_flags, &place);
}

static void fill(unsigned char *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)(seed + i * 5 + (i >> 9));
}

static void lengths(void)
{
    const size_t len[] = {0, 1, 8, 100, 4096, 4097, 65536, LEN - 24};
    unsigned char *out = malloc(ROOM), *in = malloc(ROOM);
    CHECK(out && in);
    for (unsigned i = 0; i < sizeof len / sizeof *len; i++) {
        fill(out, len[i], i);
        memset(in, 0xee, ROOM);
        CHECK(wait(put(&place, out, 24, len[i])) == OPAL_SUCCESS);
        CHECK(wait(get(&place, in, 24, len[i])) == OPAL_SUCCESS);
        CHECK(!memcmp(in, out, len[i]) && in[len[i]] == 0xee);
    }
    free(out);
    free(in);
}

static void past_end(unsigned char *in)
{
    static unsigned char zero[64];
    CHECK(wait(put(&place, zero, LEN - 8, 9)) != OPAL_SUCCESS);
    CHECK(wait(put(&place, zero, LEN, 1)) != OPAL_SUCCESS);
    CHECK(wait(get(&place, in, (uint64_t)-1, 2)) != OPAL_SUCCESS);
    CHECK(wait(put(&place, zero, 8, SIZE_MAX - 4)) != OPAL_SUCCESS);
    CHECK(wait(get(&place, in, LEN - 8, 8)) == OPAL_SUCCESS);
}

/* ---- atomics ---- */

static int fetch(uint64_t offset, int op, uint64_t operand, int flags, void *old)
{
    return side.btl->btl_atomic_fop(side.btl, side.peer, old, place.address + offset, NULL,
                                    side_handle(&place), (mca_btl_base_atomic_op_t)op, operand,
                                    flags, MCA_BTL_NO_ORDER, on_ended, &side, &ended);
}

static int change(uint64_t offset, int op, uint64_t operand, int flags)
{
    return side.btl->btl_atomic_op(side.btl, side.peer, place.address + offset, side_handle(&place),
                                   (mca_btl_base_atomic_op_t)op, operand, flags, MCA_BTL_NO_ORDER,
                                   on_ended, &side, &ended);
}

static int swap_if(uint64_t offset, uint64_t compare, uint64_t value, int flags, void *old)
{
    return side.btl->btl_atomic_cswap(side.btl, side.peer, old, place.address + offset, NULL,
                                      side_handle(&place), compare, value, flags, MCA_BTL_NO_ORDER,
                                      on_ended, &side, &ended);
}

static void atomics_64(void)
{
    static const struct {
        int op;
        uint64_t before, operand, after;
    } rows[] = {
        {MCA_BTL_ATOMIC_ADD, 5, UINT64_MAX, 4},
        {MCA_BTL_ATOMIC_AND, 0xff00ff00ff00ff00, 0x0ff00ff00ff00ff0, 0x0f000f000f000f00},
        {MCA_BTL_ATOMIC_OR, 1, UINT64_C(1) << 63, UINT64_C(1) << 63 | 1},
        {MCA_BTL_ATOMIC_XOR, 6, 3, 5},
        {MCA_BTL_ATOMIC_SWAP, 6, 3, 3},
        {MCA_BTL_ATOMIC_MIN, 6, UINT64_MAX, UINT64_MAX}, /* signed: -1 is less */
        {MCA_BTL_ATOMIC_MAX, UINT64_MAX, 6, 6},
    };
    uint64_t old, now;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(wait(put(&place, &rows[i].before, 16, 8)) == OPAL_SUCCESS);
        CHECK(wait(fetch(16, rows[i].op, rows[i].operand, 0, &old)) == OPAL_SUCCESS);
        CHECK(wait(get(&place, &now, 16, 8)) == OPAL_SUCCESS);
        CHECK(old == rows[i].before && now == rows[i].after);
        CHECK(wait(put(&place, &rows[i].before, 16, 8)) == OPAL_SUCCESS);
        CHECK(wait(change(16, rows[i].op, rows[i].operand, 0)) == OPAL_SUCCESS);
        CHECK(wait(get(&place, &now, 16, 8)) == OPAL_SUCCESS && now == rows[i].after);
    }
    CHECK(wait(swap_if(16, 7, 9, 0, &old)) == OPAL_SUCCESS && old == 6);
    CHECK(wait(swap_if(16, 6, 9, 0, &old)) == OPAL_SUCCESS && old == 6);
    CHECK(wait(get(&place, &now, 16, 8)) == OPAL_SUCCESS && now == 9);
}

/* The word beside must stay as it is, here and there. */
static void atomics_32(void)
{
    uint32_t words[2] = {5, 0xabcdef01}, now[2], old[2] = {0, 0x12345678};
    const int flags = MCA_BTL_ATOMIC_FLAG_32BIT;
    CHECK(wait(put(&place, words, 32, 8)) == OPAL_SUCCESS);
    CHECK(wait(fetch(32, MCA_BTL_ATOMIC_ADD, 0xffffffff, flags, old)) == OPAL_SUCCESS);
    CHECK(old[0] == 5 && old[1] == 0x12345678);
    CHECK(wait(fetch(32, MCA_BTL_ATOMIC_MIN, 0xffffffff, flags, old)) == OPAL_SUCCESS);
    CHECK(old[0] == 4);
    CHECK(wait(swap_if(32, 0xffffffff, 17, flags, old)) == OPAL_SUCCESS && old[0] == 0xffffffff);
    CHECK(wait(get(&place, now, 32, 8)) == OPAL_SUCCESS && now[0] == 17 && now[1] == words[1]);
}

static void atomics_refused(void)
{
    uint64_t old;
    CHECK(fetch(17, MCA_BTL_ATOMIC_ADD, 1, 0, &old) == OPAL_ERR_NOT_AVAILABLE);
    CHECK(fetch(18, MCA_BTL_ATOMIC_ADD, 1, MCA_BTL_ATOMIC_FLAG_32BIT, &old) ==
          OPAL_ERR_NOT_AVAILABLE);
    CHECK(fetch(16, MCA_BTL_ATOMIC_LAND, 1, 0, &old) == OPAL_ERR_NOT_AVAILABLE);
    CHECK(fetch(16, MCA_BTL_ATOMIC_ADD, 1, MCA_BTL_ATOMIC_FLAG_FLOAT, &old) ==
          OPAL_ERR_NOT_AVAILABLE);
    CHECK(wait(fetch(LEN + 4, MCA_BTL_ATOMIC_ADD, 1, 0, &old)) != OPAL_SUCCESS);
}

/* ---- many ---- */

static void flushed(void)
{
    uint64_t sum;
    const uint64_t zero = 0;
    CHECK(wait(put(&place, &zero, 64, 8)) == OPAL_SUCCESS);
    for (int i = 0; i < MANY; i++)
        CHECK(change(64, MCA_BTL_ATOMIC_ADD, 3, 0) == OPAL_SUCCESS);
    CHECK(side.btl->btl_flush(side.btl, side.peer) == OPAL_SUCCESS);
    wanted = MANY;
    side_until(all_have_ended);
    CHECK(ended == MANY);
    ended = 0;
    CHECK(wait(get(&place, &sum, 64, 8)) == OPAL_SUCCESS && sum == 3 * MANY);
    CHECK(side.btl->btl_flush(side.btl, NULL) == OPAL_SUCCESS);
}

/* Each callback begins the next access: they may not nest without end. */
static unsigned chained, chain_len = 100000;
static uint64_t chain_word;

static void on_chained(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                       void *local, mca_btl_base_registration_handle_t *local_handle, void *context,
                       void *data, int status)
{
    CHECK(status == OPAL_SUCCESS);
    (void)context;
    if (++chained < chain_len)
        CHECK(btl->btl_get(btl, peer, local, place.address, local_handle, side_handle(&place), 8, 0,
                           MCA_BTL_NO_ORDER, on_chained, NULL, data) == OPAL_SUCCESS);
}

/* A wait is for a part of the chain: the deadline of waits finds a chain that stands still, however
 * long a round trip takes on a busy machine. */
enum { PART = 10000 };
static unsigned part_end;

static bool part_is_chained(void)
{
    return chained >= part_end;
}

static void chain(void)
{
    CHECK(side.btl->btl_get(side.btl, side.peer, &chain_word, place.address, NULL,
                            side_handle(&place), 8, 0, MCA_BTL_NO_ORDER, on_chained, NULL,
                            NULL) == OPAL_SUCCESS);
    for (part_end = 0; part_end < chain_len;) {
        part_end = chain_len - part_end < PART ? chain_len : part_end + PART;
        side_until(part_is_chained);
    }
    CHECK(chained == chain_len);
}

/* A flush ends, although each callback begins another access. */
static bool goes_on;
static unsigned on_way;

static void on_endless(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                       void *local, mca_btl_base_registration_handle_t *local_handle, void *context,
                       void *data, int status)
{
    CHECK(status == OPAL_SUCCESS);
    (void)context;
    on_way--;
    if (!goes_on)
        return;
    on_way++;
    CHECK(btl->btl_get(btl, peer, local, place.address, local_handle, side_handle(&place), 8, 0,
                       MCA_BTL_NO_ORDER, on_endless, NULL, data) == OPAL_SUCCESS);
}

static bool none_is_on_way(void)
{
    return !on_way;
}

static void endless(void)
{
    goes_on = true;
    on_way = 1;
    CHECK(side.btl->btl_get(side.btl, side.peer, &chain_word, place.address, NULL,
                            side_handle(&place), 8, 0, MCA_BTL_NO_ORDER, on_endless, NULL,
                            NULL) == OPAL_SUCCESS);
    for (int i = 0; i < 3; i++) {
        CHECK(side.btl->btl_flush(side.btl, side.peer) == OPAL_SUCCESS);
        CHECK(side.btl->btl_flush(side.btl, NULL) == OPAL_SUCCESS);
    }
    goes_on = false;
    side_until(none_is_on_way);
}

/* Accesses of no bytes do nothing, also to memory of no bytes. */
static void empty(void)
{
    uint64_t none = 7;
    mca_btl_base_registration_handle_t *h = swap(&none, 0);
    if (!side.rank) {
        CHECK(wait(put(&place, &none, 0, 0)) == OPAL_SUCCESS);
        CHECK(wait(get(&place, &none, 0, 0)) == OPAL_SUCCESS);
        CHECK(wait(put(&place, &none, 0, 1)) != OPAL_SUCCESS);
    }
    side_meet();
    CHECK(none == 7);
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
}

/* More regions than stay ready for access. */
static void regions(void)
{
    static unsigned char *memory[REGIONS];
    static mca_btl_base_registration_handle_t *handles[REGIONS];
    static struct side_place places[REGIONS];
    unsigned char byte;
    for (int i = 0; i < REGIONS; i++) {
        memory[i] = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory[i] != MAP_FAILED);
        access_flags = i % 2 ? ACCESS_SOME : ACCESS_ANY;
        handles[i] = swap(memory[i] + 4096, 4096);
        places[i] = place;
    }
    for (int round = 0; !side.rank && round < 3; round++)
        for (int i = 0; i < REGIONS; i++) {
            byte = (unsigned char)(i + round);
            CHECK(wait(put(&places[i], &byte, (uint64_t)i, 1)) == OPAL_SUCCESS);
            CHECK(wait(get(&places[i], &byte, (uint64_t)i, 1)) == OPAL_SUCCESS);
            CHECK(byte == (unsigned char)(i + round));
        }
    side_meet();
    for (int i = 0; i < REGIONS; i++) {
        CHECK(!side.rank || memory[i][4096 + i] == (unsigned char)(i + 2));
        CHECK(side.btl->btl_deregister_mem(side.btl, handles[i]) == OPAL_SUCCESS);
        munmap(memory[i], 12288);
    }
    side_meet();
}

/* ---- from inside ---- */

static uint64_t word, fetched;

static void on_go(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                  mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)des, (void)arg;
    CHECK(put(&place, &word, 128, 8) == OPAL_SUCCESS);
    CHECK(fetch(136, MCA_BTL_ATOMIC_ADD, 1, 0, &fetched) == OPAL_SUCCESS);
    CHECK(get(&place, &chain_word, 144, 8) == OPAL_SUCCESS);
}

static void from_inside(void)
{
    CHECK(side.btl->btl_register(side.btl, GO, on_go, NULL) == OPAL_SUCCESS);
    side_meet();
    if (side.rank)
        for (int i = 0; i < 100; i++)
            side_send(GO, "go", 2, MCA_BTL_NO_ORDER);
    else {
        wanted = 300;
        side_until(all_have_ended);
        CHECK(ended == 300 && last_status == OPAL_SUCCESS);
        ended = 0;
    }
    side_meet();
}

/* ---- freed memory ---- */

/* The access fails. The memory is shared: regions of such memory are closed when they are
 * deregistered. (Regions of other memory are closed soon after it was freed.) */
static void freed(void)
{
    unsigned char *memory =
        mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mca_btl_base_registration_handle_t *h = swap(memory, 65536);
    static unsigned char bytes[100];
    if (!side.rank)
        CHECK(wait(put(&place, bytes, 0, sizeof bytes)) == OPAL_SUCCESS);
    side_meet();
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    munmap(memory, 65536);
    side_meet();
    if (!side.rank) {
        CHECK(wait(put(&place, bytes, 0, sizeof bytes)) != OPAL_SUCCESS);
        CHECK(wait(get(&place, bytes, 0, sizeof bytes)) != OPAL_SUCCESS);
    }
    side_meet();
}

static unsigned char *private_memory(size_t len, int access, void *at)
{
    void *p = mmap(at, len, access, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* All kinds of accesses to the memory at [place] fail, and change nothing here. */
static void all_fail(void)
{
    static unsigned char bytes[LONG];
    uint64_t old = 7;
    bytes[0] = bytes[LONG - 1] = 9;
    CHECK(wait(put(&place, bytes, 0, 8)) != OPAL_SUCCESS);
    CHECK(wait(put(&place, bytes, 8, LONG)) != OPAL_SUCCESS);
    CHECK(wait(get(&place, bytes, 0, 8)) != OPAL_SUCCESS);
    CHECK(wait(get(&place, bytes, 8, LONG)) != OPAL_SUCCESS);
    CHECK(wait(change(16, MCA_BTL_ATOMIC_ADD, 1, 0)) != OPAL_SUCCESS);
    CHECK(wait(fetch(16, MCA_BTL_ATOMIC_ADD, 1, 0, &old)) != OPAL_SUCCESS);
    CHECK(wait(swap_if(16, 0, 1, 0, &old)) != OPAL_SUCCESS);
    CHECK(bytes[0] == 9 && bytes[LONG - 1] == 9 && old == 7);
}

/* A device uses the pages of a region until the region is closed: soon after the memory was
 * unmapped. */
static void until_closed(void)
{
    static unsigned char byte;
    struct timespec now;
    time_t end;
    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now.tv_sec + 10;
    while (wait(put(&place, &byte, 0, 1)) == OPAL_SUCCESS) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        CHECK(now.tv_sec < end);
    }
}

/* The owner unmaps private memory whose region is kept, while it is registered or afterwards, and
 * survives the accesses. Its addresses stay reserved: nothing else is mapped there. Accesses by a
 * device to registered memory go to its old pages, so they succeed. */
static void unmapped(bool is_registered, bool by_nic)
{
    unsigned char *memory = private_memory(ROOM, PROT_READ | PROT_WRITE, NULL), byte = 1;
    mca_btl_base_registration_handle_t *h = swap(memory, ROOM);
    if (!side.rank)
        CHECK(wait(put(&place, &byte, 0, 1)) == OPAL_SUCCESS);
    side_meet();
    if (!is_registered)
        CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    (void)private_memory(ROOM, PROT_NONE, memory);
    side_meet();
    if (!side.rank && by_nic && is_registered)
        CHECK(wait(put(&place, &byte, 0, 1)) == OPAL_SUCCESS);
    else if (!side.rank) {
        if (by_nic)
            until_closed();
        all_fail();
    }
    side_meet();
    if (is_registered)
        CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    munmap(memory, ROOM);
}

/* ---- memory that ob1 registers for its own gets ---- */

static mca_btl_base_registration_handle_t *own_handle;

static void on_own(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                   void *local, mca_btl_base_registration_handle_t *local_handle, void *context,
                   void *data, int status)
{
    CHECK(local_handle == own_handle);
    on_ended(btl, peer, local, NULL, context, data, status);
}

/* Memory for the gets from any rank has a region: a put by its handle succeeds. */
static void gets_from_any(void)
{
    static unsigned char from[LONG], to[LONG];
    mca_btl_base_registration_handle_t *h =
        side.btl->btl_register_mem(side.btl, MCA_BTL_ENDPOINT_ANY, to, LONG, OWN_GET);
    struct side_place mine = {.address = (uintptr_t)to}, theirs;
    CHECK(h);
    memcpy(mine.handle, h, side.btl->btl_registration_handle_size);
    side_swap(&mine, &theirs, sizeof mine);
    fill(from, LONG, 11);
    CHECK(wait(put(&theirs, from, 0, LONG)) == OPAL_SUCCESS);
    side_meet();
    CHECK(!memcmp(to, from, LONG));
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
}

/* A get writes to such memory. If [near], it has no region: a put by its handle ends with an error,
 * and writes nothing. */
static void own_gets(bool near)
{
    static unsigned char from[LONG], to[LONG];
    struct side_place mine = {.address = (uintptr_t)to}, theirs;
    mca_btl_base_registration_handle_t *h;
    access_flags = ACCESS_SOME;
    h = swap(from, LONG);
    fill(from, LONG, 9);
    own_handle = side.btl->btl_register_mem(side.btl, side.peer, to, LONG, OWN_GET);
    CHECK(own_handle);
    memcpy(mine.handle, own_handle, side.btl->btl_registration_handle_size);
    side_swap(&mine, &theirs, sizeof mine);
    CHECK(wait(side.btl->btl_get(side.btl, side.peer, to, place.address, own_handle,
                                 side_handle(&place), LONG, 0, MCA_BTL_NO_ORDER, on_own, &side,
                                 &ended)) == OPAL_SUCCESS);
    CHECK(!memcmp(to, from, LONG));
    side_meet();
    if (near)
        CHECK(wait(put(&theirs, from + 1, 0, 8)) != OPAL_SUCCESS);
    side_meet();
    CHECK(!memcmp(to, from, LONG));
    CHECK(side.btl->btl_deregister_mem(side.btl, own_handle) == OPAL_SUCCESS);
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
}

/* ---- the module that osc rdma uses ---- */

/* All kinds of accesses by [btl] to the memory of [rank]. */
static void by_module(mca_btl_base_module_t *btl, int rank)
{
    const struct side saved = side;
    side.btl = btl;
    side.peer = side_add(btl, rank);
    CHECK(side.peer && side.peer != saved.peer);
    lengths();
    atomics_64();
    atomics_32();
    flushed();
    side_remove(btl, rank, side.peer);
    side = saved;
}

/* The second module does not send, and accesses the own rank, too. It shares a rank with the first
 * one: the first has the rank when the second does not any more. */
static void second(unsigned char *memory, const mca_btl_base_registration_handle_t *h)
{
    mca_btl_base_module_t *rma = side_module(1);
    const struct side_place theirs = place;
    CHECK(rma && !(rma->btl_flags & MCA_BTL_FLAGS_SEND) && !side_module(2));
    CHECK(rma->btl_latency < side.btl->btl_latency);
    CHECK(!side_add(side.btl, side.rank));
    by_module(rma, side.other);
    place.address = (uintptr_t)memory;
    memcpy(place.handle, h, rma->btl_registration_handle_size);
    by_module(rma, side.rank);
    place = theirs;
    CHECK(wait(put(&place, memory, 0, 8)) == OPAL_SUCCESS);
}

/* An access to no rank or without a handle is refused, and so is a message. */
static void none_by(mca_btl_base_module_t *btl)
{
    static unsigned char bytes[8];
    const struct side saved = side;
    mca_btl_base_descriptor_t *des;
    side.btl = btl;
    side.peer = NULL;
    CHECK(put(&place, bytes, 0, sizeof bytes) == OPAL_ERR_UNREACH);
    CHECK(get(&place, bytes, 0, sizeof bytes) == OPAL_ERR_UNREACH);
    CHECK(fetch(0, MCA_BTL_ATOMIC_ADD, 1, 0, bytes) == OPAL_ERR_UNREACH);
    CHECK(change(0, MCA_BTL_ATOMIC_ADD, 1, 0) == OPAL_ERR_UNREACH);
    CHECK(swap_if(0, 1, 2, 0, bytes) == OPAL_ERR_UNREACH);
    side.peer = saved.peer;
    CHECK(btl->btl_atomic_cswap(btl, side.peer, bytes, place.address, NULL, NULL, 1, 2, 0,
                                MCA_BTL_NO_ORDER, on_ended, &side, &ended) == OPAL_ERR_BAD_PARAM);
    des = btl->btl_alloc(btl, NULL, 7, sizeof bytes, 0);
    CHECK(des && btl->btl_send(btl, NULL, des, GO) == OPAL_ERR_UNREACH);
    CHECK(btl->btl_free(btl, des) == OPAL_SUCCESS);
    if (btl->btl_sendi)
        CHECK(btl->btl_sendi(btl, NULL, NULL, bytes, sizeof bytes, 0, MCA_BTL_NO_ORDER, 0, GO,
                             NULL) < 0);
    CHECK(!ended);
    side = saved;
}

int main(int argc, char **argv)
{
    unsigned char *memory;
    mca_btl_base_registration_handle_t *h;
    bool by_nic;
    side_open(&argc, &argv);
    if (argc > 1)
        chain_len = (unsigned)atoi(argv[1]);
    by_nic = argc > 2 && !strcmp(argv[2], "nic");
    memory = aligned_alloc(4096, ROOM + 4096);
    CHECK(memory);
    memset(memory, 0xaa, ROOM + 4096);
    h = swap(memory, LEN);
    if (!side.rank) {
        static unsigned char in[64];
        lengths();
        past_end(in);
        atomics_64();
        atomics_32();
        atomics_refused();
        flushed();
        second(memory, h);
        none_by(side.btl);
        none_by(side_module(1));
        chain();
        endless();
    }
    side_meet();
    for (int i = LEN; i < ROOM + 4096; i++)
        CHECK(memory[i] == 0xaa); /* nothing was written past the end */
    from_inside();
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    free(memory);
    empty();
    regions();
    access_flags = ACCESS_ANY;
    freed();
    access_flags = ACCESS_SOME;
    freed();
    unmapped(false, by_nic);
    unmapped(true, by_nic);
    own_gets(argc > 2 && !strcmp(argv[2], "near"));
    gets_from_any();
    return side_close();
}
