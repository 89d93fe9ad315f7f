/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 1 is killed while rank 0 sends to it, puts, gets, and changes its memory. Each operation
 * under way ends with an error, once; the error callback is called once for each of the two handles
 * of the rank; sends are taken until then, and refused afterwards. mpirun has to leave rank 0 alive
 * (--enable-recovery).
 *
 * usage: ompi_lost [denied] [threads]
 *   denied   rank 0 cannot get without rank 1, so gets are under way, too
 *   threads  accesses are begun by several threads, which use several endpoints of
 *            btl_weft_endpoints */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "side.h"

enum {
    DATA = MCA_BTL_TAG_USR + 1,
    SENDS = 3000,
    ACCESSES = 100,
    TURNS = 1000,
    LONG = 30000,
    THREADS = 4
};

static struct side_place place;
static uint64_t memory[LONG / 8], old;
static unsigned errors;
enum { SEND, PUT, GET, CHANGE, KINDS };
static struct kind {
    unsigned begun, ended, failed;
} kinds[KINDS];

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
    kinds[SEND].ended++;
    kinds[SEND].failed += status != OPAL_SUCCESS;
}

static void on_accessed(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                        void *local, mca_btl_base_registration_handle_t *h, void *context,
                        void *data, int status)
{
    struct kind *kind = context;
    CHECK(btl == side.btl && peer == side.peer && !h && data == local);
    kind->ended++;
    kind->failed += status != OPAL_SUCCESS;
}

static bool all_have_ended(void)
{
    bool is = true;
    for (int i = 0; i < KINDS; i++)
        is = is && kinds[i].ended == kinds[i].begun;
    return is;
}

static void send_one(void)
{
    mca_btl_base_descriptor_t *des = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, 400,
                                                         MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    CHECK(des);
    memset(des->des_segments->seg_addr.pval, 1, 400);
    des->des_cbfunc = on_sent;
    CHECK(side.btl->btl_send(side.btl, side.peer, des, DATA) == OPAL_SUCCESS);
    kinds[SEND].begun++;
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

static void access_one(int i)
{
    static unsigned char from[LONG], to[LONG];
    const size_t len = i % 10 ? 8 : LONG;
    mca_btl_base_module_t *btl = side.btl;
    mca_btl_base_registration_handle_t *h = side_handle(&place);
    CHECK(btl->btl_put(btl, side.peer, from, place.address, NULL, h, len, 0, MCA_BTL_NO_ORDER,
                       on_accessed, &kinds[PUT], from) == OPAL_SUCCESS);
    CHECK(btl->btl_get(btl, side.peer, to, place.address, NULL, h, len, 0, MCA_BTL_NO_ORDER,
                       on_accessed, &kinds[GET], to) == OPAL_SUCCESS);
    CHECK(btl->btl_atomic_fop(btl, side.peer, &old, place.address, NULL, h, MCA_BTL_ATOMIC_ADD, 1,
                              0, MCA_BTL_NO_ORDER, on_accessed, &kinds[CHANGE],
                              &old) == OPAL_SUCCESS);
    for (int kind = PUT; kind < KINDS; kind++)
        kinds[kind].begun++;
}

static void *accesses(void *arg)
{
    for (int i = 0; i < ACCESSES; i++)
        access_one(i);
    return arg;
}

/* By one thread after the other. */
static void accesses_by_threads(void)
{
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) {
        CHECK(!pthread_create(&thread, NULL, accesses, NULL));
        CHECK(!pthread_join(thread, NULL));
    }
}

/* Rank 1 has to take part in operations of [kind], so each that was under way has failed. */
static void check(const struct kind *kind, unsigned begun, unsigned failed)
{
    CHECK(kind->begun == begun && kind->ended == begun && kind->failed >= failed);
}

static void lose(pid_t other, bool is_denied)
{
    const unsigned begun = side.threads ? THREADS * ACCESSES : ACCESSES;
    if (side.threads)
        accesses_by_threads();
    else
        (void)accesses(NULL);
    for (int i = 0; i < TURNS; i++)
        opal_progress(); /* Weft has some of them, and refuses the next */
    for (int i = 0; i < SENDS; i++)
        send_one();
    opal_progress();
    CHECK(!kinds[PUT].ended && !kinds[CHANGE].ended && (!is_denied || !kinds[GET].ended));
    CHECK(kill(other, SIGKILL) == 0);
    side_until(is_reported);
    side_until(all_have_ended);
    check(&kinds[PUT], begun, begun);
    check(&kinds[GET], begun, is_denied ? begun : 0);
    check(&kinds[CHANGE], begun, begun);
}

int main(int argc, char **argv)
{
    mca_btl_base_descriptor_t *des;
    bool is_denied = false;
    pid_t pid, other;
    for (int i = 1; i < argc; i++) {
        is_denied |= !strcmp(argv[i], "denied");
        if (!strcmp(argv[i], "threads"))
            side.threads = MPI_THREAD_MULTIPLE;
    }
    side_open(&argc, &argv);
    (void)side_share(memory, sizeof memory, MCA_BTL_REG_FLAG_ACCESS_ANY, &place);
    pid = getpid();
    side_swap(&pid, &other, sizeof pid);
    side_go();
    if (side.rank)
        for (;;)
            pause(); /* it takes nothing */
    CHECK(side.btl->btl_register_error(side.btl, on_error) == OPAL_SUCCESS);
    lose(other, is_denied);
    CHECK(errors >= 1 && errors <= 2);
    CHECK(side.btl->btl_flush(side.btl, side.peer) == OPAL_SUCCESS);
    des = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, 8, 0);
    CHECK(des && side.btl->btl_send(side.btl, side.peer, des, DATA) == OPAL_ERR_UNREACH);
    CHECK(side.btl->btl_sendi(side.btl, side.peer, NULL, &pid, sizeof pid, 0, MCA_BTL_NO_ORDER, 0,
                              DATA, NULL) != OPAL_SUCCESS);
    for (int i = 0; i < 100; i++)
        opal_progress();
    CHECK(all_have_ended() && errors <= 2);
    if (printf("ok\n") < 0 || fflush(stdout))
        return 1;
    _exit(0); /* MPI_Finalize would wait for the other rank */
}
