/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 1 is killed while rank 0 sends to it, gets from it and changes its memory. Each operation
 * under way ends with an error, once; the error callback is called once for each of the two handles
 * of the rank; sends are taken until then, and refused afterwards. mpirun has to leave rank 0 alive
 * (--enable-recovery). */
#include <signal.h>
#include <unistd.h>

#include "side.h"

enum { DATA = MCA_BTL_TAG_USR + 1, SENDS = 3000 };

static struct side_place place;
static uint64_t word, old;
static unsigned errors, begun, ended, failed;

static void on_error(struct mca_btl_base_module_t *btl, int32_t flags, struct opal_proc_t *proc,
                     char *info)
{
    CHECK(btl == side.btl && flags == MCA_BTL_ERROR_FLAGS_FATAL && proc);
    CHECK(strstr(info, "cannot be reached any more"));
    errors++;
}

static void on_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                    struct mca_btl_base_descriptor_t *des, int status)
{
    (void)btl, (void)peer, (void)des;
    ended++;
    failed += status != OPAL_SUCCESS;
}

static void on_changed(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                       void *local, mca_btl_base_registration_handle_t *h, void *context,
                       void *data, int status)
{
    (void)btl, (void)peer, (void)local, (void)h, (void)context, (void)data;
    ended++;
    failed += status != OPAL_SUCCESS;
}

static bool all_have_ended(void)
{
    return ended == begun;
}

static void send_one(void)
{
    mca_btl_base_descriptor_t *des = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, 400,
                                                         MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    CHECK(des);
    memset(des->des_segments->seg_addr.pval, 1, 400);
    des->des_cbfunc = on_sent;
    CHECK(side.btl->btl_send(side.btl, side.peer, des, DATA) == OPAL_SUCCESS);
    begun++;
}

/* Sends until then: an error of one would end the job before the launcher has seen the end of the
 * rank. */
static bool is_reported(void)
{
    static double next;
    if (!errors && MPI_Wtime() > next) {
        send_one();
        next = MPI_Wtime() + 0.005;
    }
    return errors > 0;
}

static void flood(void)
{
    for (int i = 0; i < SENDS; i++)
        send_one();
    for (int i = 0; i < 100; i++, begun++)
        CHECK(side.btl->btl_atomic_fop(side.btl, side.peer, &old, place.address, NULL,
                                       side_handle(&place), MCA_BTL_ATOMIC_ADD, 1, 0,
                                       MCA_BTL_NO_ORDER, on_changed, NULL, NULL) == OPAL_SUCCESS);
}

int main(int argc, char **argv)
{
    mca_btl_base_descriptor_t *des;
    pid_t pid, other;
    side_open(&argc, &argv);
    (void)side_share(&word, sizeof word, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    pid = getpid();
    side_swap(&pid, &other, sizeof pid);
    if (side.rank)
        for (;;)
            pause(); /* it takes nothing */
    CHECK(side.btl->btl_register_error(side.btl, on_error) == OPAL_SUCCESS);
    flood();
    opal_progress();
    CHECK(kill(other, SIGKILL) == 0);
    side_until(is_reported);
    side_until(all_have_ended);
    CHECK(failed >= 100 && errors >= 1 && errors <= 2);
    CHECK(side.btl->btl_flush(side.btl, side.peer) == OPAL_SUCCESS);
    des = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, 8, 0);
    CHECK(des && side.btl->btl_send(side.btl, side.peer, des, DATA) == OPAL_ERR_UNREACH);
    CHECK(side.btl->btl_sendi(side.btl, side.peer, NULL, &pid, sizeof pid, 0, MCA_BTL_NO_ORDER, 0,
                              DATA, NULL) != OPAL_SUCCESS);
    for (int i = 0; i < 100; i++)
        opal_progress();
    CHECK(ended == begun && errors <= 2);
    if (printf("ok\n") < 0 || fflush(stdout))
        return 1;
    _exit(0); /* MPI_Finalize would wait for the other rank */
}
