/* SPDX-License-Identifier: BSD-3-Clause */
/* fork(2) while another thread of the program is inside of the provider: the child does not have
 * that thread, nor what ends its calls. Every call of the child returns, and is refused. */
#include "sides.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 150 };

static char in[8], big[1 << 20];
static uint8_t name[64]; /* of b */
static atomic_bool stop;
static atomic_uint rounds; /* of the other thread */

/* ---- the other thread ---- */

static void drain(void)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    while (fi_cq_read(a.cq, &e, 1) == -FI_EAVAIL)
        (void)fi_cq_readerr(a.cq, &err, 0);
}

/* Calls that take each of the provider's locks. */
static void *busy(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        fi_addr_t at = FI_ADDR_NOTAVAIL;
        for (int i = 0; i < 8; i++) {
            if (fi_trecv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in))
                return "fi_trecv failed";
            (void)fi_cancel(&a.ep->fid, in);
            drain();
        }
        if (fi_av_insert(a.av, name, 1, &at, 0, NULL) != 1 || fi_av_remove(a.av, &at, 1, 0))
            return "the address vector failed";
        (void)fi_cntr_read(a.cntr[1]);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

/* ---- the child ---- */

static struct fid_ep *raw; /* an endpoint of the parent's that is not enabled */

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        long rc_ = (long)(call);                                                                   \
        if (rc_ != -FI_EOPBADSTATE) {                                                              \
            (void)fprintf(stderr, "%s returned %ld\n", #call, rc_);                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int queues_refuse(void)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    struct fid *fids[] = {&a.cq->fid};
    fi_addr_t source;
    REFUSED(fi_cq_read(a.cq, &e, 1));
    REFUSED(fi_cq_readfrom(a.cq, &e, 1, &source));
    REFUSED(fi_cq_readerr(a.cq, &err, 0));
    REFUSED(fi_cq_sread(a.cq, &e, 1, NULL, -1));
    REFUSED(fi_cq_signal(a.cq));
    REFUSED(fi_trywait(a.fabric, fids, 1));
    REFUSED(fi_cntr_wait(a.cntr[1], 1000000, -1));
    return 0;
}

static int endpoint_refuses(void)
{
    REFUSED(fi_trecv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    REFUSED(fi_tsend(a.ep, big, sizeof big, NULL, a.other, 1, big));
    REFUSED(fi_tinject(a.ep, in, sizeof in, a.other, 1));
    REFUSED(fi_tinject(a.ep, in, sizeof in, a.self, 1)); /* whose peer is not open */
    REFUSED(fi_read(a.ep, in, sizeof in, NULL, a.other, 0, 1, in));
    return fi_cancel(&a.ep->fid, &stop) != -FI_ENOENT;
}

static int objects_refuse(void)
{
    struct fi_cq_attr cq_attr = {0};
    struct fi_cntr_attr cntr_attr = {0};
    struct fi_av_attr av_attr = {0};
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_stx *stx;
    fi_addr_t at;
    uint8_t bytes[64];
    size_t len = sizeof bytes;
    REFUSED(fi_av_insert(a.av, name, 1, &at, 0, NULL));
    REFUSED(fi_av_remove(a.av, &a.other, 1, 0));
    REFUSED(fi_av_lookup(a.av, a.other, bytes, &len));
    REFUSED(fi_cq_open(a.domain, &cq_attr, &cq, NULL));
    REFUSED(fi_cntr_open(a.domain, &cntr_attr, &cntr, NULL));
    REFUSED(fi_av_open(a.domain, &av_attr, &av, NULL));
    REFUSED(fi_endpoint(a.domain, a.info, &ep, NULL));
    REFUSED(fi_stx_context(a.domain, NULL, &stx, NULL));
    REFUSED(fi_ep_bind(raw, &a.av->fid, 0));
    REFUSED(fi_enable(raw));
    REFUSED(fi_close(&a.ep->fid));
    return 0;
}

static int child(void)
{
    alarm(WAIT_MS / 1000);
    return queues_refuse() || endpoint_refuses() || objects_refuse();
}

/* Fails when: a child waits for a thread that it does not have, a call of it succeeds or returns
 * another error; or the parent's endpoints do not work any more. */
static void beside_test(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct how how = {.threading = FI_THREAD_SAFE,
                                .progress = i ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL,
                                .wait_obj = FI_WAIT_FD,
                                .counters = true};
        size_t len = sizeof name;
        void *failed = NULL;
        pthread_t thread;
        open_both(&how);
        assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
        RETRY(fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 2, 0, in));
        RETRY(fi_tinject(a.ep, "before", 6, a.other, 2));
        (void)take(&b);
        assert_int_equal(fi_endpoint(a.domain, a.info, &raw, NULL), 0);
        atomic_store(&stop, false);
        assert_int_equal(pthread_create(&thread, NULL, busy, NULL), 0);
        for (int n = 0; n < FORKS; n++) {
            unsigned before = atomic_load(&rounds);
            int result = 1;
            pid_t pid = fork();
            assert_true(pid >= 0);
            if (!pid)
                _exit(child());
            assert_int_equal(waitpid(pid, &result, 0), pid);
            assert_int_equal(result, 0);
            for (uint64_t end = now_ms() + WAIT_MS; atomic_load(&rounds) == before;)
                assert_true(now_ms() < end);
        }
        atomic_store(&stop, true);
        pthread_join(thread, &failed);
        assert_null(failed);
        assert_int_equal(fi_close(&raw->fid), 0);
        drain();
        RETRY(fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 3, 0, in));
        RETRY(fi_tinject(a.ep, "after", 5, a.other, 3));
        (void)take(&b);
        close_both();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(beside_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
