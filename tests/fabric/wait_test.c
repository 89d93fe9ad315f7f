/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting, threads and progress: fi_cq_sread, the descriptor of a queue, fi_cq_signal,
 * fi_cntr_wait, FI_PROGRESS_AUTO, FI_THREAD_SAFE. */
#define _GNU_SOURCE
#include "sides.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static char out[8] = "weft", in[8];
static atomic_bool stop;

/* b runs in a thread of its own: it replies to each message. */
static void *echo(void *arg)
{
    struct fi_cq_tagged_entry e;
    (void)arg;
    while (!atomic_load(&stop)) {
        char got[8];
        if (fi_trecv(b.ep, got, sizeof got, NULL, FI_ADDR_UNSPEC, 1, 0, got))
            return "fi_trecv failed";
        for (;;) {
            ssize_t n = fi_cq_sread(b.cq, &e, 1, NULL, 20);
            if (atomic_load(&stop))
                return NULL;
            if (n == 1)
                break;
            if (n != -FI_EAGAIN)
                return "fi_cq_sread failed";
        }
        while (fi_tinject(b.ep, got, e.len, b.other, 2) == -FI_EAGAIN)
            (void)fi_cq_read(b.cq, NULL, 0);
    }
    return NULL;
}

static void echoes(const struct how *how, int count)
{
    struct fi_cq_tagged_entry e;
    pthread_t thread;
    void *failed = NULL;
    open_both(how);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, echo, NULL), 0);
    for (int i = 0; i < count; i++) {
        ssize_t n;
        assert_int_equal(fi_trecv(a.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 2, 0, in), 0);
        while ((n = fi_tinject(a.ep, out, sizeof out, a.other, 1)) == -FI_EAGAIN)
            (void)fi_cq_read(a.cq, NULL, 0);
        assert_int_equal(n, 0);
        assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, WAIT_MS), 1);
        assert_ptr_equal(e.op_context, in);
        assert_memory_equal(in, out, sizeof in);
    }
    atomic_store(&stop, true);
    pthread_join(thread, &failed);
    assert_null(failed);
    close_both();
}

static void sread_test(void **state)
{
    static const enum fi_wait_obj objects[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD};
    static const enum fi_threading threads[] = {FI_THREAD_DOMAIN, FI_THREAD_SAFE};
    (void)state;
    for (unsigned w = 0; w < 3; w++)
        for (unsigned t = 0; t < 2; t++) {
            const struct how how = {.wait_obj = objects[w], .threading = threads[t]};
            echoes(&how, 200);
        }
}

static void timeout_test(void **state)
{
    const struct how how = {.wait_obj = FI_WAIT_UNSPEC};
    const struct how none = {0};
    struct fi_cq_tagged_entry e;
    uint64_t start;
    (void)state;
    open_both(&how);
    start = now_ms();
    assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, 60), -FI_EAGAIN);
    assert_in_range(now_ms() - start, 59, 5000);
    assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, 0), -FI_EAGAIN);
    close_both();
    open_both(&none);
    assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, 0), -FI_EINVAL);
    assert_int_equal(fi_cq_signal(a.cq), -FI_EINVAL);
    close_both();
}

static void *wait_long(void *arg)
{
    struct fi_cq_tagged_entry e;
    (void)arg;
    return (void *)(intptr_t)fi_cq_sread(a.cq, &e, 1, NULL, WAIT_MS);
}

static void signal_test(void **state)
{
    static const enum fi_wait_obj objects[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD};
    struct fi_cq_tagged_entry e;
    (void)state;
    for (unsigned w = 0; w < 3; w++) {
        const struct how how = {.wait_obj = objects[w]};
        pthread_t thread;
        void *result;
        uint64_t start = now_ms();
        open_both(&how);
        assert_int_equal(pthread_create(&thread, NULL, wait_long, NULL), 0);
        assert_int_equal(fi_cq_signal(a.cq), 0); /* the wait may begin later */
        pthread_join(thread, &result);
        assert_int_equal((intptr_t)result, -FI_EAGAIN);
        assert_in_range(now_ms() - start, 0, WAIT_MS - 1);
        /* One signal ends one wait. */
        assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, 1), -FI_EAGAIN);
        close_both();
    }
}

static atomic_uint alarms;

/* A wait that goes on is called off. */
static void on_alarm(int number)
{
    (void)number;
    if (atomic_fetch_add(&alarms, 1) > 2000)
        _exit(1);
}

/* Fails when: the handler of a signal does not end a wait without a limit. */
static void interrupted_test(void **state)
{
    static const enum fi_wait_obj objects[] = {FI_WAIT_UNSPEC, FI_WAIT_FD};
    const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, old;
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_entry event;
    struct fi_cq_tagged_entry e;
    struct fid_eq *eq;
    uint32_t type;
    (void)state;
    assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
    for (unsigned i = 0; i < 2; i++) {
        const struct how how = {.wait_obj = objects[i]};
        open_both(&how);
        assert_int_equal(fi_eq_open(a.fabric, &attr, &eq, NULL), 0);
        atomic_store(&alarms, 0);
        assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
        assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, -1), -FI_EINTR);
        assert_int_equal(fi_eq_sread(eq, &type, &event, sizeof event, -1, 0), -FI_EINTR);
        assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
        assert_int_equal(fi_close(&eq->fid), 0);
        close_both();
    }
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

static void threshold_test(void **state)
{
    const struct how how = {.wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD};
    struct fi_cq_tagged_entry e[4];
    ssize_t n;
    (void)state;
    open_both(&how);
    /* The condition is a number, not the address of one; without one it is 1. */
    assert_int_equal(fi_cq_sread(b.cq, e, 4, (void *)3, 5), -FI_EAGAIN);
    assert_int_equal(fi_cq_sread(b.cq, e, 4, NULL, 5), -FI_EAGAIN);
    for (int i = 0; i < 3; i++) {
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
        turn();
    }
    while ((n = fi_cq_sread(b.cq, e, 4, (void *)3, 5)) == -FI_EAGAIN)
        turn();
    assert_in_range(n, 1, 3);
    close_both();
}

/* A program that sleeps on the descriptor itself: fi_trywait, then poll. */
static void descriptor_test(void **state)
{
    static const enum fi_progress ways[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
    (void)state;
    for (unsigned w = 0; w < 2; w++) {
        const struct how how = {.wait_obj = FI_WAIT_FD, .progress = ways[w]};
        struct fi_cq_tagged_entry e;
        struct pollfd p = {.events = POLLIN};
        struct fid *fids[1];
        open_both(&how);
        fids[0] = &b.cq->fid;
        assert_int_equal(fi_control(&b.cq->fid, FI_GETWAIT, &p.fd), 0);
        for (int i = 0; i < 50; i++) {
            uint64_t deadline = now_ms() + WAIT_MS;
            ssize_t n;
            RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
            while ((n = fi_cq_read(b.cq, &e, 1)) == -FI_EAGAIN &&
                   fi_trywait(b.fabric, fids, 1) == -FI_EAGAIN)
                assert_true(now_ms() < deadline);
            assert_int_equal(n, -FI_EAGAIN);
            RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
            do { /* the sender's side may need polls; the receiver sleeps */
                (void)fi_cq_read(a.cq, NULL, 0);
                if (poll(&p, 1, 20) == 1)
                    n = fi_cq_read(b.cq, &e, 1);
                if (n == -FI_EAGAIN)
                    (void)fi_trywait(b.fabric, fids, 1);
                assert_true(now_ms() < deadline);
            } while (n == -FI_EAGAIN);
            assert_int_equal(n, 1);
        }
        close_both();
    }
}

/* ---- several that wait ---- */

struct waiter {
    pthread_t thread;
    atomic_int tid; /* 0: not running yet */
    int timeout;
    ssize_t result;
};

static void *waiter_run(void *arg)
{
    struct waiter *w = arg;
    struct fi_cq_tagged_entry e;
    atomic_store(&w->tid, gettid());
    w->result = fi_cq_sread(b.cq, &e, 1, NULL, w->timeout);
    return NULL;
}

static char state_of(int tid)
{
    char path[64], line[512] = "", *end;
    FILE *f;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    (void)fgets(line, sizeof line, f);
    (void)fclose(f);
    end = strrchr(line, ')');
    return end ? end[2] : 0;
}

/* Let a thread wait for an entry of b; returns when it sleeps. */
static void waiter_start(struct waiter *w, int timeout)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    *w = (struct waiter){.timeout = timeout};
    assert_int_equal(pthread_create(&w->thread, NULL, waiter_run, w), 0);
    while (!atomic_load(&w->tid) || state_of(atomic_load(&w->tid)) != 'S')
        assert_true(now_ms() < deadline);
}

static ssize_t waiter_end(struct waiter *w)
{
    pthread_join(w->thread, NULL);
    return w->result;
}

static void post_receive(void)
{
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
}

/* Send from a to b; b's program does nothing. */
static void send_alone(void)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    while (fi_tinject(a.ep, out, 8, a.other, 1) == -FI_EAGAIN && now_ms() < deadline)
        (void)fi_cq_read(a.cq, NULL, 0);
    (void)fi_cq_read(a.cq, NULL, 0);
}

static void connect_first(void)
{
    post_receive();
    RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
    (void)take(&b);
}

/* A poll by another thread, which finds nothing, takes no event from a thread that sleeps. */
static void foreign_poll_test(void **state)
{
    const struct how how = {.wait_obj = FI_WAIT_FD, .threading = FI_THREAD_SAFE, .counters = true};
    struct fid *fids[1];
    struct pollfd p = {.events = POLLIN};
    struct waiter w;
    uint64_t start = now_ms();
    (void)state;
    open_both(&how);
    connect_first();
    waiter_start(&w, WAIT_MS);
    post_receive();
    for (int i = 0; i < 3; i++) {
        (void)fi_cq_read(b.cq, NULL, 0);
        (void)fi_cntr_read(b.cntr[1]);
    }
    send_alone();
    assert_int_equal(waiter_end(&w), 1);
    /* The same on the program's descriptor. */
    post_receive();
    fids[0] = &b.cq->fid;
    assert_int_equal(fi_control(&b.cq->fid, FI_GETWAIT, &p.fd), 0);
    while (fi_trywait(b.fabric, fids, 1) == -FI_EAGAIN)
        assert_true(now_ms() < start + WAIT_MS);
    (void)fi_cntr_read(b.cntr[1]);
    send_alone();
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    (void)take(&b);
    assert_in_range(now_ms() - start, 0, WAIT_MS - 1);
    close_both();
}

/* Two threads wait, two entries come: each thread gets one. */
static void two_waiters_test(void **state)
{
    static const enum fi_progress ways[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        const struct how how = {
            .wait_obj = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .progress = ways[k]};
        open_both(&how);
        connect_first();
        for (int i = 0; i < 100; i++) {
            struct waiter w[2];
            uint64_t start = now_ms();
            waiter_start(&w[0], WAIT_MS);
            waiter_start(&w[1], WAIT_MS);
            post_receive();
            post_receive();
            send_alone();
            send_alone();
            assert_int_equal(waiter_end(&w[0]), 1);
            assert_int_equal(waiter_end(&w[1]), 1);
            assert_in_range(now_ms() - start, 0, WAIT_MS - 1);
        }
        close_both();
    }
}

/* A wait that ends takes nothing from the program's descriptor, and a signal ends one sleep. */
static void descriptor_shared_test(void **state)
{
    const struct how how = {
        .wait_obj = FI_WAIT_FD, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_AUTO};
    struct fid *fids[1];
    struct pollfd p = {.events = POLLIN};
    uint64_t start = now_ms();
    struct waiter w;
    (void)state;
    open_both(&how);
    connect_first();
    fids[0] = &b.cq->fid;
    assert_int_equal(fi_control(&b.cq->fid, FI_GETWAIT, &p.fd), 0);
    waiter_start(&w, 300);
    while (fi_trywait(b.fabric, fids, 1) == -FI_EAGAIN)
        assert_true(now_ms() < start + WAIT_MS);
    assert_int_equal(waiter_end(&w), -FI_EAGAIN);
    post_receive();
    send_alone();
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    (void)take(&b);
    assert_int_equal(fi_cq_signal(b.cq), 0);
    assert_int_equal(fi_trywait(b.fabric, fids, 1), -FI_EAGAIN);
    while (fi_trywait(b.fabric, fids, 1) == -FI_EAGAIN)
        assert_true(now_ms() < start + WAIT_MS);
    assert_int_equal(fi_cq_signal(b.cq), 0);
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    assert_in_range(now_ms() - start, 0, WAIT_MS - 1);
    close_both();
}

/* With automatic progress the target's memory is accessed although its program does nothing. */
static void automatic_test(void **state)
{
    const struct how how = {
        .progress = FI_PROGRESS_AUTO, .wait_obj = FI_WAIT_UNSPEC, .counters = true};
    struct fi_cq_tagged_entry e;
    uint64_t word = 41, one = 1, old = 0;
    struct fid_mr *mr;
    (void)state;
    open_both(&how);
    assert_int_equal(
        fi_mr_reg(b.domain, &word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 3, 0, &mr, NULL), 0);
    assert_int_equal(
        fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, a.other, 0, 3, FI_UINT64, FI_SUM, &old),
        0);
    assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, WAIT_MS), 1);
    assert_true(old == 41 && __atomic_load_n(&word, __ATOMIC_ACQUIRE) == 42);
    /* A counter that another thread's progress raises. */
    assert_int_equal(fi_write(a.ep, &one, 8, NULL, a.other, 0, 3, &old), 0);
    assert_int_equal(fi_cntr_wait(a.cntr[3], 1, WAIT_MS), 0);
    assert_int_equal(fi_cq_sread(a.cq, &e, 1, NULL, WAIT_MS), 1);
    assert_int_equal(fi_close(&mr->fid), 0);
    close_both();
    echoes(&how, 200);
}

static void counter_wait_test(void **state)
{
    const struct how how = {.counters = true};
    uint64_t start;
    (void)state;
    open_both(&how);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    start = now_ms();
    assert_int_equal(fi_cntr_wait(b.cntr[1], 1, 50), -FI_ETIMEDOUT);
    assert_in_range(now_ms() - start, 49, 5000);
    RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
    turn();
    while (fi_cntr_wait(b.cntr[1], 1, 10) == -FI_ETIMEDOUT && now_ms() < start + WAIT_MS)
        turn();
    assert_int_equal(fi_cntr_read(b.cntr[1]), 1);
    assert_int_equal(fi_cntr_add(b.cntr[1], 5), 0);
    assert_int_equal(fi_cntr_wait(b.cntr[1], 6, 0), 0);
    assert_int_equal(fi_cntr_set(b.cntr[1], 2), 0);
    assert_int_equal(fi_cntr_read(b.cntr[1]), 2);
    assert_int_equal(fi_cntr_adderr(b.cntr[1], 1), 0);
    assert_int_equal(fi_cntr_readerr(b.cntr[1]), 1);
    assert_int_equal(fi_cntr_seterr(b.cntr[1], 9), 0);
    assert_int_equal(fi_cntr_readerr(b.cntr[1]), 9);
    close_both();
}

/* ---- endpoints that are opened and closed meanwhile ---- */

static void *wait_counter(void *arg)
{
    return fi_cntr_wait(a.cntr[1], 1, WAIT_MS) ? arg : NULL;
}

/* An endpoint is bound to a counter, and closed, while a thread waits for the counter. */
static void counter_rebound_test(void **state)
{
    const struct how how = {.counters = true};
    pthread_t thread;
    void *failed;
    (void)state;
    open_both(&how);
    assert_int_equal(pthread_create(&thread, NULL, wait_counter, in), 0);
    for (int i = 0; i < 50; i++) {
        struct fid_ep *more;
        assert_int_equal(fi_endpoint(a.domain, a.info, &more, NULL), 0);
        assert_int_equal(fi_ep_bind(more, &a.av->fid, 0), 0);
        assert_int_equal(fi_ep_bind(more, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
        assert_int_equal(fi_ep_bind(more, &a.cntr[1]->fid, FI_RECV), 0);
        assert_int_equal(fi_close(&more->fid), 0);
    }
    assert_int_equal(fi_cntr_add(a.cntr[1], 1), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    close_both();
}

/* Deferred calls of Weft's thread are under way when an endpoint closes: those of sends that wait
 * until they have left, and of accesses in several pieces. */
static void close_automatic_test(void **state)
{
    const struct how how = {.progress = FI_PROGRESS_AUTO};
    static uint8_t memory[4096];
    struct iovec iov = {out, 8};
    struct fi_rma_iov rma[2] = {{0, 4, 3}, {8, 4, 3}};
    struct fi_msg message = {.msg_iov = &iov, .iov_count = 1};
    struct fi_msg_rma access = {
        .msg_iov = &iov, .iov_count = 1, .rma_iov = rma, .rma_iov_count = 2};
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct fid_mr *mr;
        open_both(&how);
        assert_int_equal(
            fi_mr_reg(b.domain, memory, sizeof memory, FI_REMOTE_WRITE, 0, 3, 0, &mr, NULL), 0);
        message.addr = access.addr = a.other;
        for (int n = 0; n < 20; n++) {
            RETRY(fi_sendmsg(a.ep, &message, FI_TRANSMIT_COMPLETE));
            RETRY(fi_writemsg(a.ep, &access, FI_REMOTE_CQ_DATA));
        }
        side_close(&a);
        assert_int_equal(fi_close(&mr->fid), 0);
        side_close(&b);
    }
}

static void *inject_some(void *arg)
{
    for (int i = 0; i < 16; i++) {
        uint64_t deadline = now_ms() + WAIT_MS;
        ssize_t rc;
        while ((rc = fi_inject(a.ep, out, 8, a.other)) == -FI_EAGAIN && now_ms() < deadline)
            (void)fi_cq_read(a.cq, NULL, 0);
        if (rc)
            return arg;
    }
    return NULL;
}

/* A multi-receive buffer is filled while it is cancelled: it is returned once. */
static void cancel_many_test(void **state)
{
    const struct how how = {.progress = FI_PROGRESS_AUTO};
    static uint8_t room[128];
    struct iovec iov = {room, sizeof room};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in};
    (void)state;
    open_both(&how);
    for (int i = 0; i < 100; i++) {
        uint64_t deadline = now_ms() + WAIT_MS;
        struct fi_cq_tagged_entry e = {0};
        pthread_t thread;
        void *failed;
        ssize_t n;
        RETRY(fi_recvmsg(b.ep, &m, FI_MULTI_RECV));
        assert_int_equal(pthread_create(&thread, NULL, inject_some, in), 0);
        while (now_ms() < deadline && fi_cancel(&b.ep->fid, in) != -FI_ENOENT)
            ;
        while ((n = fi_cq_read(b.cq, &e, 1)) >= 0 || n == -FI_EAGAIN) {
            assert_true(now_ms() < deadline);
            if (n == 1 && e.flags & FI_MULTI_RECV)
                break;
        }
        if (n != 1)
            assert_int_equal(take_error(&b).err, FI_ECANCELED);
        pthread_join(thread, &failed);
        assert_null(failed);
        /* Take the messages that arrived later. */
        RETRY(fi_inject(a.ep, out, 4, a.other));
        do {
            RETRY(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, out));
            do
                e = take(&b);
            while (e.op_context != out); /* behind those in the buffer */
        } while (e.len != 4);
    }
    close_both();
}

/* ---- several threads at one endpoint ---- */

enum { THREADS = 4, EACH = 500 };
static atomic_uint taken, seen[THREADS * EACH];

static void *send_some(void *arg)
{
    uintptr_t first = (uintptr_t)arg * EACH;
    uint64_t deadline = now_ms() + WAIT_MS;
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t value = (uint32_t)first + i;
        ssize_t rc;
        while ((rc = fi_tinject(a.ep, &value, sizeof value, a.other, 1)) == -FI_EAGAIN)
            (void)fi_cq_read(a.cq, NULL, 0);
        if (rc)
            return "fi_tinject failed";
    }
    while (atomic_load(&taken) < THREADS * EACH && now_ms() < deadline)
        (void)fi_cq_read(a.cq, NULL, 0); /* what was sent may need it */
    return NULL;
}

static void *receive_some(void *arg)
{
    static uint32_t room[THREADS][16];
    uint32_t *mine = room[(uintptr_t)arg];
    uint64_t deadline = now_ms() + WAIT_MS;
    for (int i = 0; i < 16; i++)
        if (fi_trecv(b.ep, &mine[i], 4, NULL, FI_ADDR_UNSPEC, 1, 0, &mine[i]))
            return "fi_trecv failed";
    while (atomic_load(&taken) < THREADS * EACH && now_ms() < deadline) {
        struct fi_cq_tagged_entry e;
        ssize_t n = fi_cq_read(b.cq, &e, 1);
        if (n == -FI_EAGAIN)
            continue;
        if (n != 1)
            return "fi_cq_read failed";
        atomic_fetch_add(&seen[*(uint32_t *)e.op_context], 1);
        atomic_fetch_add(&taken, 1);
        if (fi_trecv(b.ep, e.op_context, 4, NULL, FI_ADDR_UNSPEC, 1, 0, e.op_context))
            return "fi_trecv failed";
    }
    return NULL;
}

static void threads_test(void **state)
{
    static const enum fi_progress ways[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
    (void)state;
    for (unsigned w = 0; w < 2; w++) {
        const struct how how = {.threading = FI_THREAD_SAFE, .progress = ways[w]};
        pthread_t threads[2 * THREADS];
        open_both(&how);
        atomic_store(&taken, 0);
        memset((void *)seen, 0, sizeof seen);
        for (uintptr_t i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, send_some, (void *)i), 0);
            assert_int_equal(pthread_create(&threads[THREADS + i], NULL, receive_some, (void *)i),
                             0);
        }
        for (int i = 0; i < 2 * THREADS; i++) {
            void *failed;
            pthread_join(threads[i], &failed);
            assert_null(failed);
        }
        for (unsigned i = 0; i < THREADS * EACH; i++)
            assert_int_equal(atomic_load(&seen[i]), 1);
        close_both();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sread_test),           cmocka_unit_test(timeout_test),
        cmocka_unit_test(signal_test),          cmocka_unit_test(interrupted_test),
        cmocka_unit_test(threshold_test),       cmocka_unit_test(descriptor_test),
        cmocka_unit_test(automatic_test),       cmocka_unit_test(counter_wait_test),
        cmocka_unit_test(threads_test),         cmocka_unit_test(foreign_poll_test),
        cmocka_unit_test(two_waiters_test),     cmocka_unit_test(descriptor_shared_test),
        cmocka_unit_test(counter_rebound_test), cmocka_unit_test(close_automatic_test),
        cmocka_unit_test(cancel_many_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
