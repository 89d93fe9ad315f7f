/* SPDX-License-Identifier: BSD-3-Clause */
/* The provider forgets senders that are gone, in each threading model, whatever their messages
 * ended with, and tries to do so seldom. The program is exported to the libraries that it loads, so
 * its calloc and weft_sender_forget are in place of theirs. */
#define _GNU_SOURCE
#include "sides.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const enum fi_threading models[] = {FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_SAFE};
enum { MODELS = sizeof models / sizeof *models };

static char out[8] = "weft", in[8];
static atomic_bool stop;

/* ---- calls of the provider's ---- */

struct weft_sender;
static atomic_uint tries;   /* calls of weft_sender_forget */
static atomic_uint starved; /* records of senders for which there was no memory */
static atomic_bool starve;
static void (*before_forget)(void); /* called once, in the next of these calls; NULL: nothing */

int weft_sender_forget(struct weft_sender *sender);
int weft_sender_forget(struct weft_sender *sender)
{
    static int (*real)(struct weft_sender *);
    void (*first)(void) = before_forget;
    if (!real) {
        void *weft = dlopen("libweft.so.0", RTLD_NOW | RTLD_NOLOAD);
        *(void **)&real = weft ? dlsym(weft, "weft_sender_forget") : NULL;
        assert_non_null(real);
    }
    before_forget = NULL;
    if (first)
        first();
    atomic_fetch_add(&tries, 1);
    return real(sender);
}

#ifndef SANITIZED
/* Of a record of a sender: struct wfi_sender. No other allocation of a message has its size. */
enum { RECORD = 32 };

void *__libc_calloc(size_t n, size_t size); /* of the C library */
void *calloc(size_t n, size_t size)
{
    if (n == 1 && size == RECORD && atomic_load(&starve)) {
        atomic_fetch_add(&starved, 1);
        return NULL;
    }
    return __libc_calloc(n, size);
}
#endif

/* ---- senders that come and go ---- */

struct visitor {
    struct fid_ep *ep;
    struct fid_cq *cq;
};

/* Open an endpoint in the domain of a, with a queue of its own. */
static struct visitor visitor_open(void)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
    struct visitor v;
    assert_int_equal(fi_cq_open(a.domain, &cq, &v.cq, NULL), 0);
    assert_int_equal(fi_endpoint(a.domain, a.info, &v.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(v.ep, &a.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(v.ep, &v.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_enable(v.ep), 0);
    return v;
}

static void visitor_close(struct visitor *v)
{
    assert_int_equal(fi_close(&v->ep->fid), 0);
    assert_int_equal(fi_close(&v->cq->fid), 0);
}

static fi_addr_t visitor_insert(struct visitor *v)
{
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    assert_int_equal(fi_getname(&v->ep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(b.av, name, 1, &addr, 0, NULL), 1);
    return addr;
}

static void visitor_send(struct visitor *v, uint64_t tag)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t rc;
    while ((rc = fi_tinject(v->ep, out, sizeof out, a.other, tag)) == -FI_EAGAIN &&
           now_ms() < deadline) {
        (void)fi_cq_read(v->cq, NULL, 0);
        turn();
    }
    assert_int_equal(rc, 0);
}

static void post(uint64_t tag, size_t len)
{
    RETRY(fi_trecv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, tag, 0, in));
}

/* Returns the source of the message with [tag]; or takes the error, if it is [cut]. */
static fi_addr_t await(struct visitor *v, uint64_t tag, bool cut)
{
    struct fi_cq_tagged_entry e = {0};
    struct fi_cq_err_entry err = {0};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t n;
    while ((n = fi_cq_readfrom(b.cq, &e, 1, &source)) == -FI_EAGAIN && now_ms() < deadline) {
        (void)fi_cq_read(v->cq, NULL, 0);
        turn();
    }
    assert_int_equal(n, cut ? -FI_EAVAIL : 1);
    if (cut) {
        assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
        assert_int_equal(err.err, FI_ETRUNC);
        assert_int_equal(err.tag, tag);
    } else {
        assert_int_equal(e.tag, tag);
    }
    return source;
}

/* More than a receiver keeps of those that are gone; and the bytes that it may keep of so many:
 * less than half of what Weft's and the provider's records take (some 350 bytes each). */
enum { CROWD = 400, CROWD_BYTES = CROWD * 150 };

static void *poll_b(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        (void)fi_cq_read(b.cq, NULL, 0);
    return NULL;
}

struct visits {
    bool known;  /* b has the visitor's address */
    bool cut;    /* the messages are longer than their receives */
    bool beside; /* another thread polls b */
    bool starve; /* there is no memory when the first of two messages comes */
};

/* Let an endpoint send a message to b, and close it. Every other message is unexpected. */
static void visit(uint64_t n, const struct visits *how)
{
    const size_t len = how->cut ? sizeof in / 2 : sizeof in;
    struct visitor v = visitor_open();
    fi_addr_t at = how->known ? visitor_insert(&v) : FI_ADDR_NOTAVAIL;
    if (n % 2 == 0)
        post(n, len);
    atomic_store(&starve, how->starve);
    visitor_send(&v, n);
    if (n % 2) {
        turn();
        turn();
        post(n, len);
    }
    assert_true(await(&v, n, how->cut) == at);
    atomic_store(&starve, false);
    if (how->starve) {
        post(n, len);
        visitor_send(&v, n);
        assert_true(await(&v, n, how->cut) == at);
    }
    visitor_close(&v);
    turn();
    if (how->known)
        assert_int_equal(fi_av_remove(b.av, &at, 1, 0), 0);
}

static void crowd(const struct how *sides, const struct visits *how)
{
    /* Across a network endpoints close slowly, and few are enough: what the provider keeps does not
     * depend on it. */
    unsigned visits = over_network() ? 4 : CROWD;
    pthread_t thread;
    size_t before = 0;
    open_both(sides);
    atomic_store(&stop, false);
    atomic_store(&starved, 0);
    if (how->beside)
        assert_int_equal(pthread_create(&thread, NULL, poll_b, NULL), 0);
    for (uint64_t n = 0; n < 2 * visits; n++) {
        if (n == visits)
            before = mallinfo2().uordblks;
        visit(n, how);
    }
    assert_true(mallinfo2().uordblks < before + CROWD_BYTES);
    if (how->starve)
        assert_int_equal(atomic_load(&starved), 2 * visits);
    atomic_store(&stop, true);
    if (how->beside)
        pthread_join(thread, NULL);
    close_both();
}

/* Fails when: records of senders that are gone are kept. */
static void crowd_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++)
        for (int known = 0; known < 2; known++) {
            const struct how sides = {.threading = models[i],
                                      .caps = FI_TAGGED | (known ? FI_SOURCE : 0)};
            const struct visits how = {.known = known, .beside = models[i] == FI_THREAD_SAFE};
            crowd(&sides, &how);
        }
}

/* Fails when: a sender is kept of which only messages came that failed. */
static void failed_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how sides = {.threading = models[i], .caps = FI_TAGGED};
        const struct visits how = {.cut = true};
        crowd(&sides, &how);
    }
}

#ifndef SANITIZED /* a sanitizer has a calloc of its own */
/* Fails when: a sender without a record, for which there was no memory, gets none with its next
 * message, because it is the sender of the last one. */
static void starved_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how sides = {.threading = models[i], .caps = FI_TAGGED};
        const struct visits how = {.starve = true};
        crowd(&sides, &how);
    }
}
#endif

/* Fails when: each removed address costs a try of all senders. */
static void tries_test(void **state)
{
    enum { SENDERS = 150 };
    static struct visitor v[SENDERS];
    static fi_addr_t at[SENDERS];
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how sides = {.threading = models[i], .caps = FI_TAGGED};
        open_both(&sides);
        for (unsigned n = 0; n < SENDERS; n++) {
            v[n] = visitor_open();
            at[n] = visitor_insert(&v[n]);
            post(n, sizeof in);
            visitor_send(&v[n], n);
            (void)await(&v[n], n, false);
        }
        atomic_store(&tries, 0);
        for (unsigned n = 0; n < SENDERS; n++)
            assert_int_equal(fi_av_remove(b.av, &at[n], 1, 0), 0);
        assert_in_range(atomic_load(&tries), models[i] == FI_THREAD_COMPLETION ? 0 : 1,
                        2 * SENDERS);
        for (unsigned n = 0; n < SENDERS; n++)
            visitor_close(&v[n]);
        close_both();
    }
}

/* The visitor that comes while the provider forgets another one. */
static struct visitor late;
enum { LATE_TAG = 9 };

static void *receive_late(void *arg)
{
    (void)arg;
    (void)await(&late, LATE_TAG, false);
    return NULL;
}

static void come_late(void)
{
    pthread_t thread;
    visitor_send(&late, LATE_TAG);
    assert_int_equal(pthread_create(&thread, NULL, receive_late, NULL), 0);
    pthread_join(thread, NULL);
}

/* Fails when: the record of a sender that comes while all earlier ones are forgotten is lost, so
 * that it is never forgotten. */
static void late_test(void **state)
{
    const struct how sides = {.threading = FI_THREAD_SAFE, .caps = FI_TAGGED};
    struct visitor early;
    fi_addr_t at[2];
    (void)state;
    open_both(&sides);
    early = visitor_open();
    late = visitor_open();
    at[0] = visitor_insert(&early);
    at[1] = visitor_insert(&late);
    post(1, sizeof in);
    visitor_send(&early, 1);
    (void)await(&early, 1, false);
    visitor_close(&early);
    turn();
    post(LATE_TAG, sizeof in);
    before_forget = come_late;
    assert_int_equal(fi_av_remove(b.av, &at[0], 1, 0), 0);
    assert_null(before_forget);
    visitor_close(&late);
    turn();
    atomic_store(&tries, 0);
    assert_int_equal(fi_av_remove(b.av, &at[1], 1, 0), 0);
    assert_in_range(atomic_load(&tries), 1, 2);
    close_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowd_test),   cmocka_unit_test(failed_test),
#ifndef SANITIZED
        cmocka_unit_test(starved_test),
#endif
        cmocka_unit_test(tries_test),   cmocka_unit_test(late_test),
    };
    const struct CMUnitTest few[] = {cmocka_unit_test(crowd_test)};
    return over_network() ? cmocka_run_group_tests(few, NULL, NULL)
                          : cmocka_run_group_tests(tests, NULL, NULL);
}
