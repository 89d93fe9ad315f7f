/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 1 is killed while a thread of rank 0 begins a queued message to it. Another thread reports
 * the loss meanwhile; Weft refuses the message, so it goes back to the queue. It ends with an error
 * all the same. The program is exported to the libraries that it loads, so its weft_order_send is
 * in place of Weft's. mpirun has to leave rank 0 alive (--enable-recovery). */
#include "side.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>
#include <weft/frag.h>

enum { DATA = MCA_BTL_TAG_USR + 1, TURNS = 1000 };

static pid_t other;
static atomic_uint errors;
static unsigned ended;
static int last_status;
/* PASS: Weft sends. REFUSE: it refuses a message once, as if another thread were inside. LOSE: it
 * does so again, and the peer is lost before the call returns. */
static enum { PASS, REFUSE, LOSE } next;

static void on_error(struct mca_btl_base_module_t *btl, int32_t flags, struct opal_proc_t *proc,
                     char *info)
{
    CHECK(btl == side.btl && flags == MCA_BTL_ERROR_FLAGS_FATAL && proc && info);
    errors++;
}

static bool is_reported(void)
{
    return errors;
}

/* Both of the handles of the rank are lost by the end of this. */
static void *report(void *arg)
{
    side_until(is_reported);
    for (int i = 0; i < TURNS; i++)
        opal_progress();
    return arg;
}

static void lose(void)
{
    pthread_t thread;
    CHECK(!kill(other, SIGKILL));
    CHECK(!pthread_create(&thread, NULL, report, NULL));
    CHECK(!pthread_join(thread, NULL));
}

enum weft_status weft_order_send(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                 unsigned nargs, const struct iovec *iov, unsigned count,
                                 struct weft_order after, struct weft_order *own)
{
    static __typeof__(&weft_order_send) real;
    if (!real) {
        void *weft = dlopen("libweft.so.0", RTLD_NOW | RTLD_NOLOAD);
        *(void **)&real = weft ? dlsym(weft, "weft_order_send") : NULL;
        CHECK(real);
    }
    switch (next) {
    case PASS: return real(peer, handler, args, nargs, iov, count, after, own);
    case REFUSE: next = LOSE; return WEFT_AGAIN;
    case LOSE:
        next = PASS;
        lose();
        return WEFT_AGAIN;
    }
    return WEFT_EINVAL;
}

static void on_sent(struct mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *peer,
                    struct mca_btl_base_descriptor_t *des, int status)
{
    CHECK(btl == side.btl && peer == side.peer && des);
    last_status = status;
    ended++;
}

static bool has_ended(void)
{
    return ended;
}

static void send_one(void)
{
    mca_btl_base_descriptor_t *des = side.btl->btl_alloc(side.btl, side.peer, MCA_BTL_NO_ORDER, 8,
                                                         MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    CHECK(des);
    memset(des->des_segments->seg_addr.pval, 1, 8);
    des->des_cbfunc = on_sent;
    CHECK(side.btl->btl_send(side.btl, side.peer, des, DATA) == OPAL_SUCCESS);
}

int main(int argc, char **argv)
{
    pid_t pid;
    side.threads = MPI_THREAD_MULTIPLE;
    side_open(&argc, &argv);
    pid = getpid();
    side_swap(&pid, &other, sizeof pid);
    if (side.rank)
        for (;;)
            pause();
    CHECK(side.btl->btl_register_error(side.btl, on_error) == OPAL_SUCCESS);
    send_one(); /* connects */
    side_until(has_ended);
    CHECK(last_status == OPAL_SUCCESS);
    ended = 0;
    next = REFUSE;
    send_one();
    CHECK(next == LOSE && !ended);
    side_until(has_ended);
    CHECK(next == PASS && last_status != OPAL_SUCCESS && errors);
    if (printf("ok\n") < 0 || fflush(stdout))
        return 1;
    _exit(0); /* MPI_Finalize would wait for the other rank */
}
