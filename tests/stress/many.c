/* SPDX-License-Identifier: BSD-3-Clause */
/* many_test [SENDERS] [ROUNDS]: one receiver with many connections, of which few are active: the
 * others go cold, and their messages must still arrive. */
#define _GNU_SOURCE
#include <pthread.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "unit/unit.h"
#include "core/core.h"
#include "transport/shm/shm.h"

enum { NOTE = 1, THREADS = 2 };

static uint32_t nsenders = 200, nrounds = 2000;

struct many {
    struct weft_ctx *ctx[3]; /* the receiver's, and two of senders */
    struct weft_ep *to, **from;
    struct weft_peer **peer;
    uint32_t *sent, *got;
    _Atomic uint32_t all_sent, all_got;
    _Atomic int stop;
    _Atomic int wrong, downs;
};

static void on_note(const struct weft_am *am)
{
    struct many *m = am->arg;
    uint32_t from = am->args[0];
    m->wrong += am->nargs != 2 || from >= nsenders || am->args[1] != m->got[from]++;
    atomic_fetch_add(&m->all_got, 1);
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    (void)why;
    ((struct many *)arg)->downs++;
}

static struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_peer *peer;
    OK(weft_ep_address(to, addr, &len));
    OK(weft_peer_open(from, addr, len, &peer));
    return peer;
}

static void note(struct many *m, uint32_t from)
{
    enum weft_status status;
    do
        status =
            weft_am_request(m->peer[from], NOTE, (uint32_t[]){from, m->sent[from]}, 2, NULL, 0, 0);
    while (status == WEFT_AGAIN && sched_yield() == 0);
    OK(status);
    m->sent[from]++;
    atomic_fetch_add(&m->all_sent, 1);
}

static void await_all(struct many *m)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (m->all_got < m->all_sent) {
        assert_true(weft_ep_poll(m->to) >= 0);
        assert_true(test_now_ns() < end);
    }
    for (uint32_t i = 0; i < nsenders; i++)
        assert_true(weft_ep_poll(m->from[i]) >= 0);
}

/* Until its receiver said where it can be woken: nothing of connecting comes later. */
static void await_wake_fd(struct many *m, uint32_t i)
{
    const struct shm_tx *tx = SHM_OF(wf_peer_tpeer(m->peer[i]), shm_peer)->tx;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (wf_load_acquire(&tx->wake_fd) < 0 && test_now_ns() < end)
        (void)weft_ep_wait(m->from[i], 1000000);
}

/* Every third sender is another endpoint of the receiver's context. */
static struct many *many_open(void)
{
    struct many *m = calloc(1, sizeof *m);
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    params.arg = m;
    m->from = calloc(nsenders, sizeof *m->from);
    m->peer = calloc(nsenders, sizeof *m->peer);
    m->sent = calloc(nsenders, sizeof *m->sent);
    m->got = calloc(nsenders, sizeof *m->got);
    for (int i = 0; i < 3; i++)
        OK(weft_ctx_open(NULL, &m->ctx[i]));
    OK(weft_ep_open(m->ctx[0], &params, &m->to));
    OK(weft_am_register(m->to, NOTE, on_note, m));
    for (uint32_t i = 0; i < nsenders; i++) {
        OK(weft_ep_open(m->ctx[i % 3], &params, &m->from[i]));
        m->peer[i] = peer_to(m->from[i], m->to);
        note(m, i);
    }
    await_all(m);
    for (uint32_t i = 0; i < nsenders; i++)
        await_wake_fd(m, i);
    return m;
}

static void sender_close(struct many *m, uint32_t i)
{
    OK(weft_peer_close(m->peer[i]));
    OK(weft_ep_close(m->from[i]));
    m->from[i] = NULL;
}

static void many_close(struct many *m)
{
    assert_int_equal(m->wrong, 0);
    assert_int_equal(m->downs, 0);
    for (uint32_t i = 0; i < nsenders; i++)
        if (m->from[i])
            sender_close(m, i);
    OK(weft_ep_close(m->to));
    for (int i = 0; i < 3; i++)
        OK(weft_ctx_close(m->ctx[i]));
    free(m->from);
    free(m->peer);
    free(m->sent);
    free(m->got);
    free(m);
}

static struct shm_tep *receiver(struct many *m)
{
    return SHM_OF(m->to->tep[1], shm_tep);
}

static int readable(struct weft_ep *ep, int timeout_ms)
{
    struct pollfd fd = {.fd = weft_ep_fd(ep), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void turns(struct many *m, int n)
{
    while (n--)
        assert_true(weft_ep_poll(m->to) >= 0);
}

/* Fails when: a silent connection is polled for ever, or an active one is forgotten. */
static void test_cools(void **state)
{
    struct many *m = many_open();
    struct shm_tep *t = receiver(m);
    (void)state;
    assert_int_equal(t->nrx, nsenders);
    for (int i = 0; i < 20000; i++) {
        if (i % 500 == 0)
            note(m, 7);
        turns(m, 1);
    }
    await_all(m);
    assert_int_equal(t->nrx, nsenders);
    assert_true(t->nrx_hot >= 1 && t->nrx_hot <= 5);
    assert_false(t->rx[0]->cold);
    many_close(m);
}

/* Armed, with nothing late from connecting under way. */
static void arm_quietly(struct many *m)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (weft_ep_arm(m->to) == WEFT_OK && !readable(m->to, 1))
            return;
        turns(m, 1);
    }
    fail_msg("it never comes to rest");
}

/* Fails when: what a cold one sends is not delivered, does not wake a sleeper, or
 * all stay hot because the receiver sleeps rather than polls. */
static void test_cold_is_heard(void **state)
{
    struct many *m = many_open();
    uint64_t rand = test_seed();
    (void)state;
    turns(m, 20000);
    for (uint32_t i = 0; i < nrounds; i++) {
        uint32_t from = (uint32_t)(test_rand(&rand) % nsenders);
        int asleep = i % 20 == 0;
        if (asleep)
            arm_quietly(m);
        note(m, from);
        if (asleep)
            assert_true(readable(m->to, 5000));
        await_all(m);
        if (i % 7 == 0)
            turns(m, 1024);
    }
    for (int i = 0; i < 10; i++)
        arm_quietly(m);
    turns(m, 1);
    assert_true(receiver(m)->nrx_hot <= nsenders / 2);
    many_close(m);
}

/* Fails when: a cold connection that ends stays, or its end loses a message. */
static void test_cold_closes(void **state)
{
    struct many *m = many_open();
    (void)state;
    turns(m, 20000);
    for (uint32_t i = 0; i < nsenders; i += 2) {
        uint64_t end = test_now_ns() + TEST_LIMIT_NS;
        uint32_t before = receiver(m)->nrx;
        note(m, i);
        sender_close(m, i);
        while (receiver(m)->nrx == before) {
            turns(m, 1);
            assert_true(test_now_ns() < end);
        }
        assert_int_equal(m->got[i], 2);
    }
    many_close(m);
}

/* Fails when: a local process that clears the bell makes a polling receiver deaf. */
static void test_bell_cleared(void **state)
{
    struct many *m = many_open();
    struct shm_tep *t = receiver(m);
    (void)state;
    turns(m, 20000);
    for (uint32_t i = 0; i < nsenders; i += 5) {
        note(m, i);
        for (int w = 0; w < WF_SHM_BELL_WORDS; w++)
            atomic_store(&t->bell->bits[w], 0);
        atomic_store(&t->bell->rung, 0);
    }
    await_all(m);
    many_close(m);
}

/* Fails when: a bit set without a message costs more than a look. */
static void test_bell_tampered(void **state)
{
    struct many *m = many_open();
    struct shm_tep *t = receiver(m);
    uint64_t rand = test_seed();
    (void)state;
    turns(m, 20000);
    for (uint32_t i = 0; i < 300; i++) {
        for (int w = 0; w < WF_SHM_BELL_WORDS; w++)
            atomic_fetch_or(&t->bell->bits[w], test_rand(&rand) & test_rand(&rand));
        atomic_store(&t->bell->rung, test_rand(&rand));
        if (i % 3 == 0)
            note(m, (uint32_t)(test_rand(&rand) % nsenders));
        turns(m, (int)(test_rand(&rand) % 2000));
        atomic_store(&t->bell->rung, UINT64_MAX); /* else a bit that was set stays unseen */
        await_all(m);
    }
    many_close(m);
}

struct crowd {
    struct many *m;
    uint32_t first;
};

/* Sends from one of its endpoints, then waits until that was received. */
static void *crowd_main(void *arg)
{
    struct crowd *c = arg;
    uint64_t rand = test_mix(c->first);
    for (uint32_t i = 0; i < nrounds; i++) {
        uint32_t from = c->first + THREADS * (uint32_t)(test_rand(&rand) % (nsenders / THREADS));
        note(c->m, from);
        while (__atomic_load_n(&c->m->got[from], __ATOMIC_ACQUIRE) < c->m->sent[from])
            sched_yield();
        (void)weft_ep_poll(c->m->from[from]);
    }
    atomic_fetch_add(&c->m->stop, 1);
    return NULL;
}

static void on_note_shared(const struct weft_am *am)
{
    struct many *m = am->arg;
    uint32_t from = am->args[0], n = __atomic_load_n(&m->got[from], __ATOMIC_RELAXED);
    m->wrong += am->args[1] != n;
    __atomic_store_n(&m->got[from], n + 1, __ATOMIC_RELEASE);
    atomic_fetch_add(&m->all_got, 1);
}

/* Fails when: an announcement is lost. Then a sender and the receiver, which polls a while, cools,
 * and sleeps without limit, wait for each other (the alarm). */
static void test_sleep_without_limit(void **state)
{
    struct many *m = many_open();
    struct crowd crowd[THREADS];
    pthread_t threads[THREADS];
    uint64_t rand = test_seed();
    (void)state;
    OK(weft_am_register(m->to, NOTE, on_note_shared, m));
    turns(m, 20000);
    for (uint32_t i = 0; i < THREADS; i++) {
        crowd[i] = (struct crowd){m, i};
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &crowd[i]), 0);
    }
    while (m->all_got < nsenders + THREADS * nrounds) {
        uint64_t r = test_rand(&rand);
        turns(m, (int)(r % 3 ? r >> 8 & 31 : r >> 8 & 2047));
        if (m->all_got < nsenders + THREADS * nrounds)
            assert_true(weft_ep_wait(m->to, -1) >= 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    many_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cools),        cmocka_unit_test(test_cold_is_heard),
        cmocka_unit_test(test_cold_closes),  cmocka_unit_test(test_bell_tampered),
        cmocka_unit_test(test_bell_cleared), cmocka_unit_test(test_sleep_without_limit),
    };
    struct rlimit files;
    if (argc > 1)
        nsenders = (uint32_t)strtoul(argv[1], NULL, 0);
    if (argc > 2)
        nrounds = (uint32_t)strtoul(argv[2], NULL, 0);
    setenv("WEFT_SPIN", "0", 0);
    test_debug("yield=0");
    setenv("WEFT_SHM_SLOTS", "64", 0);
    if (!getrlimit(RLIMIT_NOFILE, &files)) { /* each sender costs five descriptors here */
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    alarm(240);
    return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
