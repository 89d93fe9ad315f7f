/* SPDX-License-Identifier: BSD-3-Clause */
/* The threading models: FI_THREAD_DOMAIN, COMPLETION and SAFE have the same results, also while
 * addresses are removed. */
#define _GNU_SOURCE
#include "sides.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const enum fi_threading models[] = {FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_SAFE};
enum { MODELS = sizeof models / sizeof *models };

static char out[8] = "weft", in[8];

/* ---- endpoints besides those of the sides ---- */

struct extra {
    struct fid_ep *ep;
    struct fid_cq *cq;
};

/* Open an endpoint in the domain of [s], with a queue of its own. */
static struct extra extra_open(struct side *s)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
    struct extra x;
    assert_int_equal(fi_cq_open(s->domain, &cq, &x.cq, NULL), 0);
    assert_int_equal(fi_endpoint(s->domain, s->info, &x.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(x.ep, &s->av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(x.ep, &x.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_enable(x.ep), 0);
    return x;
}

static void extra_close(struct extra *x)
{
    assert_int_equal(fi_close(&x->ep->fid), 0);
    assert_int_equal(fi_close(&x->cq->fid), 0);
}

static fi_addr_t insert(struct side *s, struct fid_ep *of)
{
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    assert_int_equal(fi_getname(&of->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(s->av, name, 1, &addr, 0, NULL), 1);
    return addr;
}

/* Send from [x] to [to]; polls b, too. */
static void send_to(struct extra *x, fi_addr_t to, uint64_t tag)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t rc;
    while ((rc = fi_tinjectdata(x->ep, out, sizeof out, tag, to, tag)) == -FI_EAGAIN &&
           now_ms() < deadline) {
        (void)fi_cq_read(x->cq, NULL, 0);
        turn();
    }
    assert_int_equal(rc, 0);
}

/* Take the message with [tag], for which a receive is posted, from [cq]. Returns its source. */
static fi_addr_t await(struct fid_cq *cq, struct extra *from, uint64_t tag)
{
    struct fi_cq_tagged_entry e = {0};
    fi_addr_t source = 0;
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t n;
    while ((n = fi_cq_readfrom(cq, &e, 1, &source)) == -FI_EAGAIN && now_ms() < deadline) {
        (void)fi_cq_read(from->cq, NULL, 0);
        turn();
    }
    assert_int_equal(n, 1);
    assert_int_equal(e.tag, tag);
    assert_int_equal(e.data, tag);
    assert_ptr_equal(e.op_context, in);
    return source;
}

static void post(struct fid_ep *ep, uint64_t tag)
{
    RETRY(fi_trecv(ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, tag, 0, in));
}

/* ---- removed addresses ---- */

/* An endpoint that another thread's fi_av_remove does not touch finds the next address of the same
 * index, and no other. */
static void remove_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = {.threading = models[i]};
        struct extra x, first, second;
        fi_addr_t at, again;
        open_both(&how);
        x = extra_open(&a);
        first = extra_open(&b);
        second = extra_open(&b);
        at = insert(&a, first.ep);
        send_to(&x, at, 1);
        post(first.ep, 1);
        await(first.cq, &x, 1);
        assert_int_equal(fi_av_remove(a.av, &at, 1, 0), 0);
        assert_int_equal(fi_tinject(x.ep, out, sizeof out, at, 1), -FI_EINVAL);
        again = insert(&a, second.ep);
        assert_int_equal(again, at);
        send_to(&x, again, 2);
        post(second.ep, 2);
        await(second.cq, &x, 2);
        extra_close(&x);
        extra_close(&first);
        extra_close(&second);
        close_both();
    }
}

static atomic_bool stop;

/* Inserts and removes addresses that endpoints of other threads have used. */
static void *change(void *arg)
{
    fi_addr_t *at = arg;
    uint8_t name[64];
    size_t len = sizeof name;
    if (fi_getname(&b.ep->fid, name, &len))
        return "fi_getname failed";
    while (!atomic_load(&stop)) {
        fi_addr_t now = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (now != FI_ADDR_NOTAVAIL) { /* the sender has used it */
            if (fi_av_remove(a.av, &now, 1, 0))
                return "fi_av_remove failed";
            __atomic_store_n(at, FI_ADDR_NOTAVAIL, __ATOMIC_RELEASE);
        }
    }
    return NULL;
}

/* In FI_THREAD_COMPLETION, too, two threads use the address vector. */
static void remove_beside_test(void **state)
{
    (void)state;
    for (unsigned i = 1; i < MODELS; i++) {
        const struct how how = {.threading = models[i]};
        fi_addr_t used = FI_ADDR_NOTAVAIL;
        void *failed = NULL;
        pthread_t thread;
        struct extra x;
        open_both(&how);
        x = extra_open(&a);
        atomic_store(&stop, false);
        assert_int_equal(pthread_create(&thread, NULL, change, &used), 0);
        for (uint64_t n = 0; n < 200; n++) {
            fi_addr_t at = insert(&a, b.ep);
            post(b.ep, n);
            send_to(&x, at, n);
            await(b.cq, &x, n);
            __atomic_store_n(&used, at, __ATOMIC_RELEASE);
            for (uint64_t end = now_ms() + WAIT_MS;
                 __atomic_load_n(&used, __ATOMIC_ACQUIRE) != FI_ADDR_NOTAVAIL && now_ms() < end;)
                turn();
            assert_true(used == FI_ADDR_NOTAVAIL);
        }
        atomic_store(&stop, true);
        pthread_join(thread, &failed);
        assert_null(failed);
        extra_close(&x);
        close_both();
    }
}

/* ---- names ---- */

enum { USES = 300 }; /* of a name, each time as another entry's */

/* b sends a message to a. Returns its source at a. */
static fi_addr_t source_at_a(uint64_t tag)
{
    struct extra of_b = {b.ep, b.cq};
    post(a.ep, tag);
    send_to(&of_b, b.other, tag);
    return await(a.cq, &of_b, tag);
}

/* A name is the source of a message when the receiver has used it, and not any more when it was
 * removed, though its index may have another one then. */
static void name_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = {
            .threading = models[i], .addr_format = FI_SOCKADDR_IN, .node = "127.0.0.1"};
        struct extra of_a, second;
        fi_addr_t again;
        open_both(&how);
        of_a = (struct extra){a.ep, a.cq};
        second = extra_open(&b);
        assert_true(source_at_a(1) == FI_ADDR_NOTAVAIL);
        post(b.ep, 2);
        send_to(&of_a, a.other, 2);
        await(b.cq, &of_a, 2);
        assert_true(source_at_a(3) == a.other);
        assert_int_equal(fi_av_remove(a.av, &a.other, 1, 0), 0);
        again = insert(&a, second.ep);
        assert_true(again == a.other);
        assert_true(source_at_a(4) == FI_ADDR_NOTAVAIL);
        extra_close(&second);
        close_both();
    }
}

/* Uses the name of b, and removes it, over and over. */
static void *use_name(void *arg)
{
    const struct sockaddr_in *name = arg;
    for (int i = 0; i < USES; i++) {
        uint64_t deadline = now_ms() + WAIT_MS;
        fi_addr_t at;
        ssize_t rc;
        if (fi_av_insert(a.av, name, 1, &at, 0, NULL) != 1)
            return "fi_av_insert failed";
        while ((rc = fi_tinject(a.ep, out, sizeof out, at, 9)) == -FI_EAGAIN && now_ms() < deadline)
            (void)fi_cq_read(a.cq, NULL, 0);
        if (rc)
            return "fi_tinject failed";
        if (fi_av_remove(a.av, &at, 1, 0))
            return "fi_av_remove failed";
    }
    atomic_store(&stop, true);
    return NULL;
}

/* The call that receives a message looks its source up, while another thread removes the name, with
 * which the peer goes. Messages with tag 9 stay at b. */
static void name_beside_test(void **state)
{
    const struct how how = {
        .threading = FI_THREAD_SAFE, .addr_format = FI_SOCKADDR_IN, .node = "127.0.0.1"};
    struct sockaddr_in name;
    size_t len = sizeof name;
    void *failed = NULL;
    pthread_t thread;
    struct extra of_b;
    (void)state;
    open_both(&how);
    of_b = (struct extra){b.ep, b.cq};
    assert_int_equal(fi_getname(&b.ep->fid, &name, &len), 0);
    assert_int_equal(fi_av_remove(a.av, &a.other, 1, 0), 0);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, use_name, &name), 0);
    for (uint64_t n = 0; !atomic_load(&stop) && n < UINT64_C(1) << 40; n++) {
        fi_addr_t source;
        send_to(&of_b, b.other, n + 10);
        turn(); /* the message is there before its receive */
        turn();
        post(a.ep, n + 10);
        source = await(a.cq, &of_b, n + 10);
        assert_true(source == FI_ADDR_NOTAVAIL || source == a.other);
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    close_both();
}

/* ---- contexts of two threads ---- */

enum { SENT = 500 };

struct sender {
    struct fid_ep *tx;
    struct fid_cq *cq;
    fi_addr_t to;
};

static bool has_entry(struct fid_cq *cq, struct fi_cq_tagged_entry *e)
{
    return fi_cq_read(cq, e, 1) == 1;
}

/* Sends by a transmit context, and closes it. */
static void *send_many(void *arg)
{
    struct sender *s = arg;
    struct fi_cq_tagged_entry e;
    unsigned begun = 0, done = 0;
    for (uint64_t end = now_ms() + WAIT_MS; done < SENT && now_ms() < end;) {
        if (begun < SENT)
            begun += !fi_tsend(s->tx, out, sizeof out, NULL, s->to, 1, out);
        done += has_entry(s->cq, &e);
    }
    if (done < SENT)
        return "not all sends are complete";
    return fi_close(&s->tx->fid) ? "fi_close failed" : NULL;
}

/* Receive SENT messages with tag 1 at [ep], and as many with tag 2, which a sends to [to], at [rx].
 * A receive is posted at each. */
static void receive_many(struct extra *x, struct fid_ep *rx, fi_addr_t to)
{
    struct fi_cq_tagged_entry e;
    unsigned sent = 0, got[3] = {0};
    for (uint64_t end = now_ms() + WAIT_MS; got[1] + got[2] < 2 * SENT && now_ms() < end; turn()) {
        if (sent < SENT)
            sent += !fi_tinject(a.ep, out, sizeof out, to, 2);
        while (has_entry(x->cq, &e)) {
            assert_in_range(e.tag, 1, 2);
            if (++got[e.tag] < SENT)
                assert_int_equal(fi_trecv(e.tag == 1 ? x->ep : rx, in, sizeof in, NULL,
                                          FI_ADDR_UNSPEC, e.tag, 0, in),
                                 0);
        }
    }
    assert_int_equal(got[1], SENT);
    assert_int_equal(got[2], SENT);
}

/* The two contexts of one index have a queue and a thread each. An endpoint that had the one queue
 * before shares it with the receive context. */
static void contexts_test(void **state)
{
    (void)state;
    for (unsigned i = 1; i < MODELS; i++) {
        const struct how how = {.threading = models[i]};
        struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
        struct sender s;
        struct fid_ep *sep, *rx;
        void *failed = NULL;
        pthread_t thread;
        struct extra x;
        open_both(&how);
        x = extra_open(&b);
        post(x.ep, 1);
        s.to = insert(&b, x.ep);
        assert_int_equal(fi_cq_open(b.domain, &attr, &s.cq, NULL), 0);
        assert_int_equal(fi_scalable_ep(b.domain, b.info, &sep, NULL), 0);
        assert_int_equal(fi_scalable_ep_bind(sep, &b.av->fid, 0), 0);
        assert_int_equal(fi_tx_context(sep, 0, NULL, &s.tx, NULL), 0);
        assert_int_equal(fi_rx_context(sep, 0, NULL, &rx, NULL), 0);
        assert_int_equal(fi_ep_bind(s.tx, &s.cq->fid, FI_TRANSMIT), 0);
        assert_int_equal(fi_ep_bind(rx, &x.cq->fid, FI_RECV), 0);
        assert_int_equal(fi_enable(s.tx), 0);
        assert_int_equal(pthread_create(&thread, NULL, send_many, &s), 0);
        assert_int_equal(fi_enable(rx), 0);
        assert_int_equal(fi_trecv(rx, in, sizeof in, NULL, FI_ADDR_UNSPEC, 2, 0, in), 0);
        receive_many(&x, rx, insert(&a, sep));
        assert_int_equal(fi_close(&rx->fid), 0);
        pthread_join(thread, &failed);
        assert_null(failed);
        assert_int_equal(fi_close(&sep->fid), 0);
        assert_int_equal(fi_close(&s.cq->fid), 0);
        extra_close(&x);
        close_both();
    }
}

/* ---- entries ---- */

/* A queue grows while nothing locks it, and begins anew when it is empty: each entry comes once, in
 * order, in reads of any size. */
static void entries_test(void **state)
{
    enum { MANY = 1000 };
    static struct fi_cq_tagged_entry e[MANY];
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = {.threading = models[i]};
        uint64_t next = 0, deadline = now_ms() + WAIT_MS;
        size_t count = 1;
        open_both(&how);
        for (uintptr_t n = 0; n < MANY; n++)
            RETRY(fi_trecv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, n, 0, (void *)(n + 1)));
        for (uint64_t n = 0; n < MANY; n++)
            RETRY(fi_tinject(a.ep, NULL, 0, a.other, n));
        while (next < MANY && now_ms() < deadline) {
            ssize_t got = fi_cq_read(b.cq, e, count);
            assert_true(got > 0 || got == -FI_EAGAIN);
            for (ssize_t k = 0; k < got; k++, next++) {
                assert_int_equal(e[k].tag, next);
                assert_ptr_equal(e[k].op_context, (void *)(uintptr_t)(next + 1));
            }
            count = count * 2 % 509;
            turn();
        }
        assert_int_equal(next, MANY);
        nothing(&b);
        close_both();
    }
}

/* Take [count] entries of receives from b, of which the first has the tag [next], one by one: each
 * read finds some, since a poll comes before it. */
static void take_in_order(uint64_t next, unsigned count)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    struct fi_cq_tagged_entry e;
    while (count && now_ms() < deadline) {
        assert_true(fi_cq_read(b.cq, &e, 0) <= 0); /* polls */
        if (fi_cq_read(b.cq, &e, 1) == 1) {
            assert_int_equal(e.tag, next++);
            count--;
        }
        (void)fi_cq_read(a.cq, &e, 1);
    }
    assert_int_equal(count, 0);
}

/* A queue that always holds some entries moves them to the beginning of its memory, which has room
 * for 256: each entry comes once, in order. */
static void moves_test(void **state)
{
    enum { ROUNDS = 20, EACH = 90, KEEP = 5 };
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = {.threading = models[i]};
        uint64_t sent = 0, next = 0;
        open_both(&how);
        for (unsigned r = 0; r < ROUNDS; r++) {
            for (unsigned n = 0; n < EACH; n++, sent++) {
                RETRY(fi_trecv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, sent, 0, in));
                RETRY(fi_tinject(a.ep, NULL, 0, a.other, sent));
            }
            take_in_order(next, EACH - KEEP);
            next += EACH - KEEP;
        }
        take_in_order(next, ROUNDS * KEEP);
        nothing(&b);
        close_both();
    }
}

/* ---- regions ---- */

#ifndef SANITIZED          /* a sanitizer has allocations of its own */
enum { FIRST_SLOTS = 64 }; /* of the table of regions, until it grows */

static _Thread_local bool
    grows; /* this thread is to let the other one write when the table grows */
static sem_t growing, written;
static unsigned grown; /* how often the other thread has written meanwhile */

static void deadline_in(struct timespec *at, time_t seconds)
{
    assert_int_equal(clock_gettime(CLOCK_REALTIME, at), 0);
    at->tv_sec += seconds;
}

/* In place of the C library's, also for the provider. */
void *__libc_calloc(size_t n, size_t size);
void *calloc(size_t n, size_t size)
{
    if (grows && n == 2 * FIRST_SLOTS && size == sizeof(void *)) {
        struct timespec until;
        grows = false;
        deadline_in(&until, 10);
        (void)sem_post(&growing);
        grown += !sem_timedwait(&written, &until);
    }
    return __libc_calloc(n, size);
}

static void write_to(uint64_t key)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t rc;
    while ((rc = fi_inject_write(a.ep, out, sizeof out, a.other, 0, key)) == -FI_EAGAIN &&
           now_ms() < deadline)
        sched_yield();
    assert_int_equal(rc, 0);
}

/* Writes to the region that was opened last, which the endpoint finds at once. */
static void *write_meanwhile(void *arg)
{
    struct timespec until;
    deadline_in(&until, 20);
    if (!sem_timedwait(&growing, &until))
        write_to(FIRST_SLOTS);
    (void)sem_post(&written);
    return arg;
}

/* Fails when: a thread that finds its region waits while another thread allocates a larger table
 * of regions. */
static void grow_test(void **state)
{
    const struct how how = {.threading = FI_THREAD_SAFE};
    struct fid_mr *mr[FIRST_SLOTS + 1];
    pthread_t thread;
    (void)state;
    open_both(&how);
    assert_int_equal(sem_init(&growing, 0, 0), 0);
    assert_int_equal(sem_init(&written, 0, 0), 0);
    for (uint64_t i = 0; i <= FIRST_SLOTS; i++)
        assert_int_equal(
            fi_mr_reg(b.domain, in, sizeof in, FI_REMOTE_WRITE, 0, i + 1, 0, &mr[i], NULL), 0);
    for (uint64_t i = 0; i < FIRST_SLOTS; i++)
        RETRY(fi_inject_write(a.ep, out, sizeof out, a.other, 0, i + 1));
    assert_int_equal(pthread_create(&thread, NULL, write_meanwhile, NULL), 0);
    grows = true;
    write_to(FIRST_SLOTS + 1);
    grows = false;
    pthread_join(thread, NULL);
    assert_int_equal(grown, 1);
    for (unsigned i = 0; i <= FIRST_SLOTS; i++)
        assert_int_equal(fi_close(&mr[i]->fid), 0);
    close_both();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remove_test),   cmocka_unit_test(remove_beside_test),
        cmocka_unit_test(name_test),     cmocka_unit_test(name_beside_test),
        cmocka_unit_test(contexts_test), cmocka_unit_test(entries_test),
        cmocka_unit_test(moves_test),
#ifndef SANITIZED
        cmocka_unit_test(grow_test),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
