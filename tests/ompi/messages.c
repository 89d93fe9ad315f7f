/* SPDX-License-Identifier: BSD-3-Clause */
/* alloc, prepare_src, free, send, sendi, register and dump, each by itself; callbacks that send and
 * make progress from inside; no room, no descriptors; a tag that nobody registered; messages by the
 * module that osc rdma uses. */
#include "side.h"

#include <opal/datatype/opal_convertor.h>
#include <opal/util/proc.h>

enum {
    DATA = MCA_BTL_TAG_USR + 1,
    ECHO = MCA_BTL_TAG_USR + 2,
    ECHOED = MCA_BTL_TAG_USR + 3,
    NOBODY = MCA_BTL_TAG_USR + 4,
    REFUSE = MCA_BTL_TAG_USR + 5,
    PIECES = 20, /* of a message that is not contiguous */
    HEADER = 24,
    ALL_BEFORE = 254, /* the order of all that was sent to the rank */
    BURST = 20000,
    ECHOES = 2000,
};

static unsigned char in[65536];
static size_t in_len;
static unsigned in_count, in_next, echoed;
static unsigned owed; /* echoes for which there was no descriptor */
static unsigned wanted;
static bool inside;

static bool all_are_here(void)
{
    return in_count >= wanted;
}

static bool all_are_sent(void)
{
    return side_sent >= wanted;
}

static bool all_are_echoed(void)
{
    while (owed && side_try_send(ECHOED, &owed, sizeof owed, MCA_BTL_NO_ORDER))
        owed--;
    return echoed >= wanted;
}

/* The other rank may still wait for echoes. */
static MPI_Request meeting;

static bool have_met(void)
{
    int met;
    MPI_Test(&meeting, &met, MPI_STATUS_IGNORE);
    return all_are_echoed() && !owed && met;
}

static void on_data(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    CHECK(btl == side.btl && tag == DATA && arg == &side && des->des_segment_count == 1);
    in_len = des->des_segments->seg_len;
    CHECK(in_len <= sizeof in);
    memcpy(in, des->des_segments->seg_addr.pval, in_len);
    in_count++;
}

static unsigned char *pattern(size_t len, unsigned seed)
{
    static unsigned char buf[65536];
    for (size_t i = 0; i < len; i++)
        buf[i] = (unsigned char)(seed + i * 13 + (i >> 8));
    return buf;
}

/* ---- one message ---- */

static void expect(size_t len, unsigned seed)
{
    side_until(all_are_here);
    CHECK(in_count == wanted && in_len == len && !memcmp(in, pattern(len, seed), len));
}

static void lengths(void)
{
    const size_t eager = side.btl->btl_eager_limit, pieces = side.btl->btl_max_send_size;
    const size_t less = eager < pieces ? eager : pieces, most = eager < pieces ? pieces : eager;
    const size_t len[] = {0, 1, 8, 48, 49, 512, 513, less, less + (less < most), most};
    CHECK(!side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, most + 1, 0));
    for (unsigned i = 0; i < sizeof len / sizeof *len; i++) {
        wanted = 1;
        side_send(DATA, pattern(len[i], i), len[i], MCA_BTL_NO_ORDER);
        CHECK(!side_sent); /* the callback runs later, outside of the send */
        expect(len[i], i);
        side_until(all_are_sent);
        in_count = 0; /* before the other rank sends more */
        side_meet();
        CHECK(side_sent == 1); /* once */
        side_sent = 0;
    }
}

/* A descriptor that is the test's own is sent again from its callback. */
static mca_btl_base_descriptor_t *mine;
static unsigned again;

static void on_again(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     struct mca_btl_base_descriptor_t *des, int status)
{
    CHECK(btl == side.btl && peer == side.peer && des == mine && status == OPAL_SUCCESS);
    if (++again < 3)
        CHECK(btl->btl_send(btl, peer, des, DATA) == OPAL_SUCCESS);
}

static bool is_sent_again(void)
{
    return again == 3;
}

static void resent(void)
{
    mine = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, 8,
                               MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    CHECK(mine);
    memcpy(mine->des_segments->seg_addr.pval, pattern(8, 7), 8);
    mine->des_cbfunc = on_again;
    CHECK(side.btl->btl_send(side.btl, side.peer, mine, DATA) == OPAL_SUCCESS);
    side_until(is_sent_again);
    wanted = 3;
    expect(8, 7);
    CHECK(side.btl->btl_free(side.btl, mine) == OPAL_SUCCESS);
    in_count = 0;
    side_meet();
}

/* ---- at once ---- */

/* Messages by sendi until one is refused: exactly those that were taken arrive. */
static void at_once(void)
{
    mca_btl_base_descriptor_t *des = NULL;
    unsigned taken = 0, theirs;
    unsigned char header[40];
    int rc = OPAL_SUCCESS;
    memcpy(header, pattern(sizeof header, 3), sizeof header);
    while (taken < BURST && rc == OPAL_SUCCESS) {
        rc = side.btl->btl_sendi(side.btl, side.peer, NULL, header, sizeof header, 0,
                                 MCA_BTL_NO_ORDER, 0, DATA, &des);
        taken += rc == OPAL_SUCCESS;
        CHECK(rc != OPAL_SUCCESS || !des);
    }
    CHECK(taken);
    if (rc != OPAL_SUCCESS) {
        CHECK(!des || des->des_segments->seg_len == sizeof header);
        if (des)
            CHECK(side.btl->btl_free(side.btl, des) == OPAL_SUCCESS);
        rc = side.btl->btl_sendi(side.btl, side.peer, NULL, header, sizeof header, 0,
                                 MCA_BTL_NO_ORDER, 0, DATA, NULL);
        taken += rc == OPAL_SUCCESS;
    }
    side_swap(&taken, &theirs, sizeof taken);
    wanted = theirs;
    expect(sizeof header, 3);
    in_count = 0;
    side_meet();
}

/* ---- more than there is room for ---- */

static void on_burst(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                     mca_btl_base_descriptor_t *des, void *arg)
{
    unsigned n;
    (void)btl, (void)tag, (void)arg;
    memcpy(&n, des->des_segments->seg_addr.pval, sizeof n);
    CHECK(n < BURST && des->des_segments->seg_len == 100);
    in_next += n; /* no order is promised */
    in_count++;
}

static void burst(void)
{
    unsigned char out[100] = {0};
    CHECK(side.btl->btl_register(side.btl, DATA, on_burst, &side) == OPAL_SUCCESS);
    side_meet();
    for (unsigned i = 0; i < BURST; i++) {
        memcpy(out, &i, sizeof i);
        side_send(DATA, out, sizeof out, MCA_BTL_NO_ORDER);
    }
    wanted = BURST;
    side_until(all_are_here);
    side_until(all_are_sent);
    side_meet();
    CHECK(in_count == BURST && side_sent == BURST && in_next == BURST / 2 * (BURST - 1));
    in_count = side_sent = 0;
    side_meet();
    CHECK(side.btl->btl_register(side.btl, DATA, on_data, &side) == OPAL_SUCCESS);
    side_meet();
}

/* ---- from inside ---- */

/* Echo from inside the callback, twice: by sendi, if that is possible, and by send. And make
 * progress: that handles nothing while a callback runs. */
static void on_echo(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    mca_btl_base_descriptor_t *none;
    unsigned n;
    (void)tag, (void)arg;
    CHECK(!inside);
    inside = true;
    memcpy(&n, des->des_segments->seg_addr.pval, sizeof n);
    opal_progress();
    if (btl->btl_sendi(btl, side.peer, NULL, &n, sizeof n, 0, MCA_BTL_NO_ORDER, 0, ECHOED, &none) !=
        OPAL_SUCCESS) {
        if (none)
            CHECK(btl->btl_free(btl, none) == OPAL_SUCCESS);
        owed += !side_try_send(ECHOED, &n, sizeof n, MCA_BTL_NO_ORDER);
    }
    inside = false;
}

static void on_echoed(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    CHECK(des->des_segments->seg_len == sizeof(unsigned));
    echoed++;
}

static void echoes(void)
{
    for (unsigned i = 0; i < ECHOES; i++) {
        side_send(ECHO, &i, sizeof i, MCA_BTL_NO_ORDER);
        wanted = i < 16 ? 0 : i - 16; /* so many are under way */
        side_until(all_are_echoed);
    }
    wanted = ECHOES;
    side_until(all_are_echoed);
    MPI_Ibarrier(MPI_COMM_WORLD, &meeting);
    side_until(have_met);
    CHECK(echoed == ECHOES);
    side_sent = 0;
}

/* ---- a message that has to be packed, and is refused ---- */

static unsigned refusals, packed_count;
static MPI_Datatype spread; /* PIECES words, every other one */

static void packer(opal_convertor_t *convertor, MPI_Datatype type, size_t count, const void *from)
{
    const opal_datatype_t *layout = (const opal_datatype_t *)(const void *)type;
    OBJ_CONSTRUCT(convertor, opal_convertor_t);
    CHECK(opal_convertor_copy_and_prepare_for_send(opal_proc_local_get()->proc_convertor, layout,
                                                   count, from, 0, convertor) == OPAL_SUCCESS);
}

/* Send by sendi. If that is refused, the convertor stands where it stood. */
static int packed(mca_btl_base_descriptor_t **des)
{
    uint32_t from[2 * PIECES], header = 77;
    opal_convertor_t convertor;
    int rc;
    for (uint32_t i = 0; i < 2 * PIECES; i++)
        from[i] = i;
    packer(&convertor, spread, 1, from);
    rc = side.btl->btl_sendi(side.btl, side.peer, &convertor, &header, sizeof header,
                             PIECES * sizeof *from, MCA_BTL_NO_ORDER, 0, DATA, des);
    CHECK(rc == OPAL_SUCCESS || !convertor.bConverted);
    packed_count += rc == OPAL_SUCCESS;
    OBJ_DESTRUCT(&convertor);
    return rc;
}

static void on_refuse(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t *des, void *arg)
{
    mca_btl_base_descriptor_t *kept;
    (void)tag, (void)des, (void)arg;
    if (packed(NULL) == OPAL_SUCCESS) { /* no handler runs: progress delivers a copy */
        refusals += 2;
        return;
    }
    refusals++;
    CHECK(packed(&kept) != OPAL_SUCCESS);
    CHECK(kept && kept->des_segments->seg_len == sizeof(uint32_t) * (PIECES + 1));
    CHECK(btl->btl_free(btl, kept) == OPAL_SUCCESS);
    refusals++;
}

static bool is_refused(void)
{
    return refusals == 2;
}

static bool is_packed(void)
{
    return packed(NULL) == OPAL_SUCCESS;
}

static void refused(void)
{
    uint32_t words[PIECES + 1];
    unsigned theirs;
    CHECK(side.btl->btl_register(side.btl, REFUSE, on_refuse, NULL) == OPAL_SUCCESS);
    side_meet();
    side_send(REFUSE, "x", 1, MCA_BTL_NO_ORDER);
    side_until(is_refused);
    side_meet();
    side_until(is_packed);
    side_swap(&packed_count, &theirs, sizeof theirs);
    wanted = theirs;
    side_until(all_are_here);
    CHECK(in_count == wanted && in_len == sizeof words);
    memcpy(words, in, sizeof words);
    CHECK(words[0] == 77);
    for (uint32_t i = 0; i < PIECES; i++)
        CHECK(words[1 + i] == 2 * i);
    wanted = 1;
    side_until(all_are_sent);
    in_count = side_sent = 0; /* before the other rank sends more */
    side_meet();
}

/* ---- prepared from a user's memory ---- */

static void on_prepared(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                        struct mca_btl_base_descriptor_t *des, int status)
{
    CHECK(btl == side.btl && peer == side.peer && des && status == OPAL_SUCCESS);
    side_sent++;
}

/* Send by [btl], whose endpoint of the other rank is [peer], a header and as much of the payload as
 * one message holds. Returns how much that is. */
static size_t prepared(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                       MPI_Datatype type, size_t count, const void *from)
{
    mca_btl_base_descriptor_t *des;
    opal_convertor_t convertor;
    size_t size;
    packer(&convertor, type, count, from);
    opal_convertor_get_packed_size(&convertor, &size);
    des = btl->btl_prepare_src(btl, peer, &convertor, ALL_BEFORE, HEADER, &size,
                               MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    CHECK(des && des->des_segments->seg_len >= HEADER && size == convertor.bConverted);
    memset(des->des_segments->seg_addr.pval, 'h', HEADER);
    des->des_cbfunc = on_prepared;
    CHECK(btl->btl_send(btl, peer, des, DATA) == OPAL_SUCCESS);
    OBJ_DESTRUCT(&convertor);
    return size;
}

/* A message of a header and of [len] bytes from [want] is here. */
static void expect_prepared(size_t len, const void *want)
{
    wanted = 1;
    side_until(all_are_here);
    side_until(all_are_sent);
    CHECK(in_count == 1 && in_len == HEADER + len);
    for (int i = 0; i < HEADER; i++)
        CHECK(in[i] == 'h');
    CHECK(!memcmp(in + HEADER, want, len));
    in_count = side_sent = 0; /* before the other rank sends more */
    side_meet();
}

/* Contiguous, strided, of no bytes, and more than one message holds. */
static void prepare_all(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer)
{
    static unsigned char bytes[sizeof in * 2];
    const size_t most = btl->btl_eager_limit < btl->btl_max_send_size ? btl->btl_max_send_size
                                                                      : btl->btl_eager_limit;
    uint32_t from[2 * PIECES], want[PIECES];
    for (uint32_t i = 0; i < 2 * PIECES; i++)
        want[i / 2] = from[i] = i & ~1U;
    memcpy(bytes, pattern(sizeof in, 5), sizeof in);
    CHECK(prepared(btl, peer, MPI_CHAR, 3000, bytes) == 3000);
    expect_prepared(3000, bytes);
    CHECK(prepared(btl, peer, spread, 1, from) == sizeof want);
    expect_prepared(sizeof want, want);
    CHECK(prepared(btl, peer, MPI_CHAR, 0, bytes) == 0);
    expect_prepared(0, bytes);
    CHECK(prepared(btl, peer, MPI_CHAR, sizeof bytes, bytes) == most - HEADER);
    expect_prepared(most - HEADER, bytes);
}

/* The module that osc rdma uses sends as well, if it is asked to. */
static void by_second(void)
{
    mca_btl_base_module_t *rma = side_module(1);
    struct mca_btl_base_endpoint_t *peer = side_add(rma, side.other);
    mca_btl_base_descriptor_t *des;
    CHECK(peer && peer != side.peer);
    prepare_all(rma, peer);
    des = rma->btl_alloc(rma, peer, ALL_BEFORE, HEADER, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    CHECK(des && des->des_segments->seg_len == HEADER);
    memset(des->des_segments->seg_addr.pval, 'h', HEADER);
    des->des_cbfunc = on_prepared;
    CHECK(rma->btl_send(rma, peer, des, DATA) == OPAL_SUCCESS);
    expect_prepared(0, in);
    rma->btl_dump(rma, peer, 1);
    side.btl->btl_dump(side.btl, side.peer, 1);
    side_remove(rma, side.other, peer);
}

/* ---- bad input ---- */

static void unregistered(void)
{
    CHECK(side.btl->btl_register(side.btl, MCA_BTL_TAG_MAX, on_data, NULL) != OPAL_SUCCESS);
    for (int i = 0; i < 3; i++)
        side_send(NOBODY, "x", 1, MCA_BTL_NO_ORDER);
    side_send(DATA, pattern(9, 1), 9, MCA_BTL_NO_ORDER);
    wanted = 1;
    expect(9, 1);
    wanted = 4;
    side_until(all_are_sent);
    side_meet();
    in_count = side_sent = 0;
}

int main(int argc, char **argv)
{
    side_open(&argc, &argv);
    CHECK(side.btl->btl_register(side.btl, DATA, on_data, &side) == OPAL_SUCCESS);
    CHECK(side.btl->btl_register(side.btl, ECHO, on_echo, NULL) == OPAL_SUCCESS);
    CHECK(side.btl->btl_register(side.btl, ECHOED, on_echoed, NULL) == OPAL_SUCCESS);
    MPI_Type_vector(PIECES, 1, 2, MPI_UINT32_T, &spread);
    MPI_Type_commit(&spread);
    side_meet();
    lengths();
    resent();
    at_once();
    burst();
    echoes();
    refused();
    prepare_all(side.btl, side.peer);
    by_second();
    MPI_Type_free(&spread);
    unregistered();
    return side_close();
}
