/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses from inside a callback, where none of them begins at once, until the module has no
 * descriptor for another one (btl_weft_free_list_max). Each kind is refused then. Those that were
 * taken are done, once, and later ones are taken again. Rank 0 accesses the memory of rank 1. */
#include "side.h"

enum { GO = MCA_BTL_TAG_USR + 1, ROUNDS = 100, WORDS = 65536, KINDS = 5 };

static uint64_t words[WORDS], out[WORDS], in[WORDS];
static struct side_place place;
static unsigned char count[WORDS]; /* of the callbacks */
static unsigned begun, ended, rounds;
static bool is_short; /* an access was refused in each round */

static void on_ended(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     void *local, mca_btl_base_registration_handle_t *h, void *context, void *data,
                     int status)
{
    (void)local, (void)h, (void)data;
    CHECK(btl == side.btl && peer == side.peer && status == OPAL_SUCCESS);
    ++*(unsigned char *)context;
    ended++;
}

/* Begin an access of [kind] to word [at]: all but the get add 1 to it, which is 0. */
static int begin(unsigned kind, unsigned at)
{
    const uint64_t address = place.address + at * sizeof *words;
    mca_btl_base_registration_handle_t *h = side_handle(&place);
    mca_btl_base_module_t *btl = side.btl;
    CHECK(at < WORDS && !count[at]);
    out[at] = 1;
    switch (kind) {
    case 0:
        return btl->btl_put(btl, side.peer, &out[at], address, NULL, h, 8, 0, MCA_BTL_NO_ORDER,
                            on_ended, &count[at], NULL);
    case 1:
        return btl->btl_get(btl, side.peer, &in[at], address, NULL, h, 8, 0, MCA_BTL_NO_ORDER,
                            on_ended, &count[at], NULL);
    case 2:
        return btl->btl_atomic_op(btl, side.peer, address, h, MCA_BTL_ATOMIC_ADD, 1, 0,
                                  MCA_BTL_NO_ORDER, on_ended, &count[at], NULL);
    case 3:
        return btl->btl_atomic_fop(btl, side.peer, &in[at], address, NULL, h, MCA_BTL_ATOMIC_ADD, 1,
                                   0, MCA_BTL_NO_ORDER, on_ended, &count[at], NULL);
    default:
        return btl->btl_atomic_cswap(btl, side.peer, &in[at], address, NULL, h, 0, 1, 0,
                                     MCA_BTL_NO_ORDER, on_ended, &count[at], NULL);
    }
}

static void on_go(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                  mca_btl_base_descriptor_t *des, void *arg)
{
    int rc = OPAL_SUCCESS;
    (void)btl, (void)tag, (void)des, (void)arg;
    while (begun < WORDS && (rc = begin(begun % KINDS, begun)) == OPAL_SUCCESS)
        begun++;
    is_short = rc == OPAL_ERR_OUT_OF_RESOURCE;
    for (unsigned kind = 0; is_short && kind < KINDS; kind++)
        is_short = begin(kind, begun) == OPAL_ERR_OUT_OF_RESOURCE;
    rounds++;
}

static bool all_have_ended(void)
{
    return rounds && ended == begun;
}

int main(int argc, char **argv)
{
    mca_btl_base_registration_handle_t *h;
    unsigned last = 0;
    side_open(&argc, &argv);
    CHECK(side.btl->btl_register(side.btl, GO, on_go, NULL) == OPAL_SUCCESS);
    h = side_share(words, sizeof words, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    for (int i = 0; i < ROUNDS; i++) {
        rounds = 0; /* the message may come before side_meet returns */
        side_meet();
        if (side.rank)
            side_send(GO, "go", 2, MCA_BTL_NO_ORDER);
        else {
            side_until(all_have_ended);
            CHECK(is_short && begun > last);
            last = begun;
        }
    }
    for (unsigned i = 0; i < begun; i++)
        CHECK(count[i] == 1);
    side_meet();
    side_swap(&begun, &last, sizeof begun);
    for (unsigned i = 0; side.rank && i < WORDS; i++)
        CHECK(words[i] == (i < last && i % KINDS != 1));
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    return side_close();
}
