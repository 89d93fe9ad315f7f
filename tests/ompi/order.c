/* SPDX-License-Identifier: BSD-3-Clause */
/* Order: a message or access with the order of a descriptor follows it. Rank 0 sends, rank 1
 * checks. With btl_weft_order=module or all, what is sent after a put follows the put.
 *
 * usage: ompi_order tag|module|all COUNT [messages]
 *   messages  no access follows a message: handlers may copy the messages (WEFT_PROGRESS=thread),
 * so accesses do not follow callbacks; and over a slow network each takes a round trip */
#include "side.h"

enum {
    FIRST = MCA_BTL_TAG_USR + 1, /* a message that another follows */
    SECOND,                      /* the one that follows */
    READ,                        /* the handler stores its number in the word */
    BEFORE,                      /* its handler has to run before a put arrives */
    AFTER,                       /* its handler has to run after a put has arrived */
    HELD,                        /* by descriptors that are not freed */
    LAST,                        /* follows all HELD */
    FREED,                       /* has left after all messages before it */
    LONG = 8000,
    HOLD = 300,
    NUMBERS = 253,
    UNDER_WAY = 50,
};

static unsigned count;
static const char *mode;

static struct side_place place;
static uint64_t word; /* which the other rank accesses */

static unsigned begun, seconds, early;
static bool *seen;

static unsigned number_of(const mca_btl_base_descriptor_t *des)
{
    unsigned n;
    CHECK(des->des_segments->seg_len >= sizeof n);
    memcpy(&n, des->des_segments->seg_addr.pval, sizeof n);
    return n;
}

static mca_btl_base_descriptor_t *make(unsigned n, size_t len, uint8_t order, uint32_t flags,
                                       mca_btl_base_completion_fn_t fn)
{
    mca_btl_base_descriptor_t *des;
    while (!(des = side.btl->btl_alloc(side.btl, side.peer, order, len, flags)))
        opal_progress();
    memcpy(des->des_segments->seg_addr.pval, &n, sizeof n);
    des->des_cbfunc = fn;
    return des;
}

static void post(mca_btl_base_descriptor_t *des, mca_btl_base_tag_t tag)
{
    CHECK(side.btl->btl_send(side.btl, side.peer, des, tag) == OPAL_SUCCESS);
}

/* ---- a message after a message ---- */

static unsigned ended; /* seconds, gets or puts */

static bool few_are_under_way(void)
{
    return begun - ended < UNDER_WAY;
}

static bool all_have_ended(void)
{
    return ended == begun;
}

static bool all_are_here(void)
{
    return seconds == count;
}

static void on_second_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                           struct mca_btl_base_descriptor_t *des, int status)
{
    (void)btl, (void)peer, (void)des;
    CHECK(status == OPAL_SUCCESS);
    ended++;
}

static void on_first_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                          struct mca_btl_base_descriptor_t *des, int status)
{
    (void)btl, (void)peer;
    CHECK(status == OPAL_SUCCESS && des->order > 0 && des->order < MCA_BTL_NO_ORDER);
    post(make(number_of(des), sizeof(unsigned), des->order, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP,
              on_second_sent),
         SECOND);
}

static void on_first(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                     mca_btl_base_descriptor_t *des, void *arg)
{
    unsigned n = number_of(des);
    (void)btl, (void)tag, (void)arg;
    CHECK(n < count && !seen[n]);
    early += n && !seen[n - 1]; /* it has overtaken a free one */
    seen[n] = true;
}

static void on_second(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t *des, void *arg)
{
    unsigned n = number_of(des);
    (void)btl, (void)tag, (void)arg;
    CHECK(n < count && seen[n]);
    seconds++;
}

static void chains(void)
{
    if (!side.rank) {
        for (begun = 0; begun < count; begun++) {
            side_until(few_are_under_way);
            /* Short ones overtake long ones where there are several connections. */
            post(make(begun, begun % 4 ? sizeof begun : LONG, MCA_BTL_NO_ORDER,
                      MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, on_first_sent),
                 FIRST);
        }
        side_until(all_have_ended);
    } else {
        side_until(all_are_here);
        fprintf(stderr, "%u of %u free messages were overtaken\n", early, count);
    }
    side_meet();
    begun = ended = seconds = 0;
    memset(seen, 0, count * sizeof *seen);
}

/* ---- a get after a message, and a put after a message ---- */

static uint64_t *values; /* one for each get: they end in any order */

static void on_read(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    unsigned n = number_of(des);
    (void)btl, (void)tag, (void)arg;
    if (n + 1 > word)
        word = n + 1;
}

static void on_got(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                   void *local, mca_btl_base_registration_handle_t *handle, void *context,
                   void *data, int status)
{
    const unsigned n = (unsigned)(uintptr_t)data;
    (void)btl, (void)peer, (void)handle, (void)context;
    CHECK(status == OPAL_SUCCESS);
    CHECK(*(uint64_t *)local > n);
    ended++;
}

static void on_read_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                         struct mca_btl_base_descriptor_t *des, int status)
{
    const unsigned n = number_of(des);
    CHECK(status == OPAL_SUCCESS);
    CHECK(btl->btl_get(btl, peer, &values[n], place.address, NULL, side_handle(&place), 8, 0,
                       des->order, on_got, NULL, (void *)(uintptr_t)n) == OPAL_SUCCESS);
}

static void gets(void)
{
    for (begun = 0; !side.rank && begun < count; begun++) {
        side_until(few_are_under_way);
        post(make(begun, sizeof begun, MCA_BTL_NO_ORDER, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP,
                  on_read_sent),
             READ);
    }
    side_until(all_have_ended);
    side_meet();
    begun = ended = 0;
    word = 0;
    side_meet();
}

static void on_before(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    CHECK(word <= number_of(des));
}

static void on_put(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                   void *local, mca_btl_base_registration_handle_t *h, void *context, void *data,
                   int status)
{
    (void)btl, (void)peer, (void)local, (void)h, (void)context, (void)data;
    CHECK(status == OPAL_SUCCESS);
    ended++;
}

static void on_before_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                           struct mca_btl_base_descriptor_t *des, int status)
{
    CHECK(status == OPAL_SUCCESS);
    values[0] = number_of(des) + 1;
    CHECK(btl->btl_put(btl, peer, values, place.address, NULL, side_handle(&place), 8, 0,
                       des->order, on_put, NULL, NULL) == OPAL_SUCCESS);
}

/* One after the other: the put of one may not come before the message of the next. */
static void puts_after(void)
{
    for (begun = 0; !side.rank && begun < count / 4;) {
        post(make(begun++, sizeof begun, MCA_BTL_NO_ORDER, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP,
                  on_before_sent),
             BEFORE);
        side_until(all_have_ended);
    }
    side_meet();
    begun = ended = 0;
    word = 0;
    side_meet();
}

/* ---- a message after a put (module, all) ---- */

static void on_after(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                     mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    CHECK(word >= number_of(des) + 1);
    seconds++;
}

static void after_puts(void)
{
    unsigned n = 0;
    for (begun = 0; !side.rank && begun < count; n++) {
        side_until(few_are_under_way);
        values[n] = n + 1;
        begun++;
        CHECK(side.btl->btl_put(side.btl, side.peer, &values[n], place.address, NULL,
                                side_handle(&place), 8, 0, MCA_BTL_NO_ORDER, on_put, NULL,
                                NULL) == OPAL_SUCCESS);
        if (n % 2 || side.btl->btl_sendi(side.btl, side.peer, NULL, &n, sizeof n, 0,
                                         MCA_BTL_NO_ORDER, 0, AFTER, NULL) != OPAL_SUCCESS)
            side_send(AFTER, &n, sizeof n, MCA_BTL_NO_ORDER);
    }
    side_until(all_have_ended);
    if (side.rank)
        side_until(all_are_here);
    begun = ended = seconds = 0;
    side_meet();
}

/* ---- numbers run out ---- */

static unsigned held;

static void on_freed(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                     mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)des, (void)arg;
}

/* A message holds its number until it has left, which may be after its receiver has it. */
static void numbers_come_back(void)
{
    begun++;
    post(make(0, sizeof begun, MCA_BTL_NO_ORDER, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, on_second_sent),
         FREED);
    side_until(all_have_ended);
}

static void on_held(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    CHECK(number_of(des) < HOLD + 1);
    held++;
}

static void on_last(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    (void)btl, (void)tag, (void)arg;
    /* Those with numbers may still be under way, except the one that the last but one follows. */
    CHECK(number_of(des) == HOLD + 1 && held >= HOLD - NUMBERS + 2);
    seconds++;
}

static bool last_is_here(void)
{
    return seconds == 1;
}

static void run_out(void)
{
    mca_btl_base_descriptor_t *des[HOLD + 1];
    if (!side.rank)
        numbers_come_back();
    for (unsigned i = 0; !side.rank && i <= HOLD; i++) {
        /* The last one follows another as well. */
        des[i] = make(i, sizeof i, i == HOLD ? des[4]->order : MCA_BTL_NO_ORDER, 0, on_second_sent);
        begun++;
        post(des[i], HELD);
        side_until(all_have_ended);
        CHECK(i < NUMBERS ? des[i]->order >= 1 && des[i]->order <= NUMBERS : des[i]->order == 254);
        for (unsigned k = 0; k < i && i < NUMBERS; k++)
            CHECK(des[k]->order != des[i]->order);
    }
    if (!side.rank) {
        begun++;
        post(make(HOLD + 1, sizeof begun, 254, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, on_second_sent),
             LAST);
        side_until(all_have_ended);
        for (unsigned i = 0; i <= HOLD; i++)
            CHECK(side.btl->btl_free(side.btl, des[i]) == OPAL_SUCCESS);
    } else
        side_until(last_is_here);
    side_meet();
    begun = ended = seconds = 0;
}

int main(int argc, char **argv)
{
    static const mca_btl_base_module_recv_cb_fn_t fn[] = {on_first, on_second, on_read, on_before,
                                                          on_after, on_held,   on_last, on_freed};
    mca_btl_base_registration_handle_t *h;
    side_open(&argc, &argv);
    CHECK(argc > 2);
    mode = argv[1];
    count = (unsigned)atoi(argv[2]);
    CHECK(count);
    seen = calloc(count, sizeof *seen);
    values = calloc(count, sizeof *values);
    CHECK(seen && values);
    for (int i = 0; i < 8; i++)
        CHECK(side.btl->btl_register(side.btl, (mca_btl_base_tag_t)(FIRST + i), fn[i], NULL) ==
              OPAL_SUCCESS);
    h = side_share(&word, sizeof word, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    chains();
    if (argc == 3) {
        gets();
        puts_after();
    }
    if (strcmp(mode, "tag"))
        after_puts();
    run_out();
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    free(seen);
    free(values);
    return side_close();
}
