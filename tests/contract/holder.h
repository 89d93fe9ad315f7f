/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that polls an endpoint, and stays in a handler until it is released. */
#ifndef TEST_HOLDER_H
#define TEST_HOLDER_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "contract.h"

#define HOLDER_HANDLER 200
#define HOLDER_LIMIT_NS 20000000000u

struct holder {
    struct weft_ep *ep;
    pthread_t thread;
    _Atomic bool inside, go, left;
};

static inline void holder_handler(const struct weft_am *am)
{
    struct holder *h = am->arg;
    uint64_t end = test_now_ns() + HOLDER_LIMIT_NS;
    atomic_store(&h->inside, true);
    while (!atomic_load(&h->go) && test_now_ns() < end)
        sched_yield();
    EXPECT(atomic_load(&h->go)); /* else the test's thread waits for this one */
    atomic_store(&h->left, true);
}

static inline void *holder_main(void *arg)
{
    struct holder *h = arg;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (!atomic_load(&h->left) && test_now_ns() < end)
        (void)weft_ep_poll(h->ep);
    return NULL;
}

/* Returns when a thread is inside a handler of end [i]. Of two ends the caller polls the other. */
static inline void holder_enter(struct holder *h, struct pair *p, int i)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    *h = (struct holder){.ep = p->ep[i]};
    OK(weft_am_register(p->ep[i], HOLDER_HANDLER, holder_handler, h));
    OK(request_wait(p, other(p, i), HOLDER_HANDLER, NULL, 0, NULL, 0, 0));
    assert_int_equal(pthread_create(&h->thread, NULL, holder_main, h), 0);
    while (!atomic_load(&h->inside)) {
        if (p->setup->eps == 2)
            assert_true(weft_ep_poll(p->ep[!i]) >= 0);
        assert_true(test_now_ns() < end);
        sched_yield();
    }
}

/* Returns when the handler has returned, and the poll that ran it. */
static inline void holder_release(struct holder *h)
{
    atomic_store(&h->go, true);
    assert_int_equal(pthread_join(h->thread, NULL), 0);
}

#endif
