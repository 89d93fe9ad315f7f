/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls from inside callbacks that ob1 and osc rdma make there: a message's callback adds a rank,
 * sends to it, and flushes; a send's callback makes progress. Rank 0 prints "ok". */
#include "side.h"

enum {
    GO = MCA_BTL_TAG_USR + 1,
    BACK = MCA_BTL_TAG_USR + 2,
    ROUNDS = 20,
    SENDS = 200,
};

static uint64_t words[ROUNDS], one = 1;
static struct side_place place;
static struct mca_btl_base_endpoint_t *added[ROUNDS];
static bool is_back[SENDS]; /* in no order */
static unsigned in_count, back_count, ended, sent, again, inner, depth;

static void on_ended(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                     void *local, mca_btl_base_registration_handle_t *h, void *context, void *data,
                     int status)
{
    (void)btl, (void)local, (void)h, (void)context, (void)data;
    CHECK(peer == added[ended] && status == OPAL_SUCCESS);
    ended++;
}

/* ---- a message's callback ---- */

static void send_back(struct mca_btl_base_endpoint_t *peer)
{
    mca_btl_base_descriptor_t *des =
        side.btl->btl_alloc(side.btl, peer, MCA_BTL_NO_ORDER, 8, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    CHECK(des);
    memcpy(des->des_segments->seg_addr.pval, &in_count, sizeof in_count);
    CHECK(side.btl->btl_send(side.btl, peer, des, BACK) == OPAL_SUCCESS);
}

/* A flush cannot wait inside Weft's handler. Where progress delivers a copy, it can. */
static void on_go(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                  mca_btl_base_descriptor_t *des, void *arg)
{
    struct mca_btl_base_endpoint_t *peer = side_add(btl, side.other);
    const unsigned n = in_count;
    int rc;
    (void)tag, (void)des, (void)arg;
    CHECK(n < ROUNDS && peer && peer != side.peer);
    added[n] = peer;
    send_back(peer);
    CHECK(btl->btl_put(btl, peer, &one, place.address + n * sizeof one, NULL, side_handle(&place),
                       sizeof one, 0, MCA_BTL_NO_ORDER, on_ended, NULL, NULL) == OPAL_SUCCESS);
    rc = btl->btl_flush(btl, n % 2 ? peer : NULL);
    CHECK(rc == OPAL_ERR_RESOURCE_BUSY ? ended == n : rc == OPAL_SUCCESS && ended == n + 1);
    in_count++;
}

static void on_back(struct mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                    mca_btl_base_descriptor_t *des, void *arg)
{
    unsigned n;
    (void)btl, (void)tag, (void)arg;
    memcpy(&n, des->des_segments->seg_addr.pval, sizeof n);
    CHECK(n < SENDS && !is_back[n]);
    is_back[n] = true;
    back_count++;
}

static bool is_here(void)
{
    return in_count == again && ended == again && back_count == again;
}

static void adds(void)
{
    for (again = 1; again <= ROUNDS; again++) {
        side_meet();
        side_send(GO, "go", 2, MCA_BTL_NO_ORDER);
        side_until(is_here);
    }
    CHECK(side.btl->btl_flush(side.btl, NULL) == OPAL_SUCCESS);
    side_meet();
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(words[i] == 1);
        side_remove(side.btl, side.other, added[i]);
    }
}

/* ---- a send's callback ---- */

/* A send that has ended is called back inside of opal_progress, once. */
static void on_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                    struct mca_btl_base_descriptor_t *des, int status)
{
    CHECK(btl == side.btl && peer == side.peer && des && status == OPAL_SUCCESS);
    sent++;
    inner += depth > 0;
    depth++;
    opal_progress();
    depth--;
}

static bool all_are_sent(void)
{
    return sent == SENDS && back_count == SENDS;
}

static void progress(void)
{
    back_count = 0;
    memset(is_back, 0, sizeof is_back);
    side_meet();
    for (unsigned i = 0; i < SENDS; i++) {
        mca_btl_base_descriptor_t *des = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER,
                                                             8, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
        CHECK(des);
        memcpy(des->des_segments->seg_addr.pval, &i, sizeof i);
        des->des_cbfunc = on_sent;
        CHECK(side.btl->btl_send(side.btl, side.peer, des, BACK) == OPAL_SUCCESS);
    }
    side_until(all_are_sent);
    CHECK(sent == SENDS && inner);
}

int main(int argc, char **argv)
{
    mca_btl_base_registration_handle_t *h;
    side_open(&argc, &argv);
    CHECK(side.btl->btl_register(side.btl, GO, on_go, NULL) == OPAL_SUCCESS);
    CHECK(side.btl->btl_register(side.btl, BACK, on_back, NULL) == OPAL_SUCCESS);
    h = side_share(words, sizeof words, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    adds();
    progress();
    side_meet();
    CHECK(side.btl->btl_deregister_mem(side.btl, h) == OPAL_SUCCESS);
    return side_close();
}
