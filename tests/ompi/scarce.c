/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses while Weft takes few operations at a time (WEFT_DEBUG=ops=64): each is done, or refused
 * by its call. None ends with an error, which osc rdma would not look at. */
#include "side.h"

enum { WORDS = 2000, ROUNDS = 4 };

static struct side_place place; /* of the other rank's words */
static unsigned begun, ended, refused;

static void on_ended(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     void *local, mca_btl_base_registration_handle_t *local_handle, void *context,
                     void *data, int status)
{
    (void)btl, (void)peer, (void)local, (void)local_handle, (void)context, (void)data;
    CHECK(status == OPAL_SUCCESS);
    ended++;
}

static bool all_have_ended(void)
{
    return ended == begun;
}

/* Put the word [value] as number [at]. If the call refuses it, make progress, and try again. */
static void put(uint64_t *from, unsigned at, uint64_t value)
{
    int rc;
    *from = value;
    begun++;
    while ((rc = side.btl->btl_put(side.btl, side.peer, from, place.address + 8 * at, NULL,
                                   side_handle(&place), 8, 0, MCA_BTL_NO_ORDER, on_ended, NULL,
                                   NULL)) == OPAL_ERR_OUT_OF_RESOURCE) {
        refused++;
        opal_progress();
    }
    CHECK(rc == OPAL_SUCCESS);
}

int main(int argc, char **argv)
{
    static uint64_t words[WORDS], from[WORDS];
    mca_btl_base_registration_handle_t *h;
    side_open(&argc, &argv);
    h = side_share(words, sizeof words, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    if (!side.rank) {
        put(from, 0, 0);
        side_until(all_have_ended); /* the region is open: the next puts are not queued */
        for (unsigned round = 1; round <= ROUNDS; round++) {
            for (unsigned i = 0; i < WORDS; i++)
                put(&from[i], i, round * WORDS + i);
            CHECK(side.btl->btl_flush(side.btl, NULL) == OPAL_SUCCESS && all_have_ended());
        }
        CHECK(refused); /* else the limit was not reached */
    }
    side_meet();
    for (unsigned i = 0; i < WORDS && side.rank; i++)
        CHECK(words[i] == ROUNDS * WORDS + i);
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    return side_close();
}
