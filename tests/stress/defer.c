/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads share an endpoint, and hold a lock of the program's while they send and in deferred
 * calls.
 *
 *     defer_test MESSAGES [self|pair] [nowait|locked] [poll|progress]
 *
 * Four threads send requests. The handler of a request defers a call, which sends the reply. self:
 * one endpoint that sends to itself; pair: two, each shared by all threads. nowait: the endpoints
 * are WEFT_EP_NOWAIT, and the handlers of replies take the lock, too; locked: they are
 * WEFT_EP_LOCKED, and handlers defer what needs the lock. progress: no thread of the program polls.
 *
 * Fails when: it hangs, until the alarm (a deferred call runs with the endpoint's mutex, a call
 * waits for a poller, a queued call is left, or nothing wakes a sleeper); a deferred call is lost,
 * runs twice, beside another one of its endpoint or out of order; a message is lost. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { REQUEST = 1, REPLY = 2 };
enum { THREADS = 4, SLOTS = 64, OWN_EVERY = 16, WAIT_NS = 1000000 };

#define CHECK(cond) ((cond) ? (void)0 : die(#cond, __LINE__))

/* A request under way, and its reply. */
struct slot {
    struct weft_deferred call, end;
    struct slot *next; /* free */
    int from;          /* the endpoint that sent the request */
    uint64_t turn;     /* at the other endpoint */
    bool again;        /* the reply found no room */
};

static struct end {
    struct weft_ep *ep;
    struct weft_peer *peer; /* the way to the other */
    uint64_t turns;         /* of its handlers */
    uint64_t next;          /* of its deferred calls */
    _Atomic bool running;   /* a deferred call */
} ends[2];
static int nends;
static bool nowait, polls;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Under [lock]. */
static struct slot slots[SLOTS], *free_slots;
static uint64_t to_send, sent, replied, own_deferred, own_ran;
static _Atomic uint64_t refused;
static _Atomic bool finished;

static _Noreturn void die(const char *what, int line)
{
    fprintf(stderr, "line %d: not true: %s\n", line, what);
    _exit(1);
}

static void on_alarm(int sig)
{
    char text[160];
    int n = snprintf(text, sizeof text, "signal %d: hangs: sent %llu, replied %llu of %llu\n", sig,
                     (unsigned long long)sent, (unsigned long long)replied,
                     (unsigned long long)to_send);
    if (n > 0 && write(2, text, (size_t)n) < 0)
        _exit(3);
    _exit(2);
}

static void begin(struct end *e)
{
    CHECK(!atomic_exchange(&e->running, true));
}

static void leave(struct end *e)
{
    CHECK(atomic_exchange(&e->running, false));
}

static struct end *end_of(const struct weft_ep *ep)
{
    return ep == ends[0].ep ? &ends[0] : &ends[1];
}

/* Under the lock. */
static void slot_free(struct slot *s)
{
    s->next = free_slots;
    free_slots = s;
    if (++replied == to_send)
        atomic_store(&finished, true);
    pthread_cond_broadcast(&changed);
}

/* Send the reply, at the endpoint that has got the request. */
static void reply(struct weft_deferred *call)
{
    struct slot *s = call->arg;
    struct end *e = end_of(call->ep);
    const uint32_t arg = (uint32_t)(s - slots);
    enum weft_status status;
    begin(e);
    CHECK(call->status == WEFT_OK);
    if (!s->again)
        CHECK(s->turn == e->next++);
    pthread_mutex_lock(&lock);
    status = weft_am_request(e->peer, REPLY, &arg, 1, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    CHECK(status == WEFT_OK || status == WEFT_AGAIN);
    leave(e);
    if (status == WEFT_OK) /* from here on [s] may be in use again */
        return;
    atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    s->again = true;
    CHECK(weft_ep_defer(e->ep, call) == WEFT_OK);
}

static void end_deferred(struct weft_deferred *call)
{
    begin(end_of(call->ep));
    pthread_mutex_lock(&lock);
    leave(end_of(call->ep));
    slot_free(call->arg);
    pthread_mutex_unlock(&lock);
}

static void on_request(const struct weft_am *am)
{
    struct end *e = am->arg;
    struct slot *s = &slots[am->args[0] % SLOTS];
    s->again = false;
    s->turn = e->turns++;
    CHECK(weft_ep_defer(am->ep, &s->call) == WEFT_OK);
}

static void on_reply(const struct weft_am *am)
{
    struct slot *s = &slots[am->args[0] % SLOTS];
    if (!nowait) {
        CHECK(weft_ep_defer(am->ep, &s->end) == WEFT_OK);
        return;
    }
    pthread_mutex_lock(&lock);
    slot_free(s);
    pthread_mutex_unlock(&lock);
}

static void own_call(struct weft_deferred *call)
{
    struct end *e = end_of(call->ep);
    begin(e);
    pthread_mutex_lock(&lock);
    own_ran++;
    leave(e);
    pthread_mutex_unlock(&lock);
}

/* Send one request, with the lock held around it. Returns false if there was nothing to send, or no
 * room. */
static bool send_one(int i)
{
    enum weft_status status = WEFT_AGAIN;
    struct slot *s;
    pthread_mutex_lock(&lock);
    s = sent < to_send ? free_slots : NULL;
    if (s) {
        const uint32_t arg = (uint32_t)(s - slots);
        free_slots = s->next; /* it may be answered before the call returns */
        s->from = i;
        status = weft_am_request(ends[i].peer, REQUEST, &arg, 1, NULL, 0, 0);
        CHECK(status == WEFT_OK || status == WEFT_AGAIN);
        if (status == WEFT_OK) {
            sent++;
        } else {
            s->next = free_slots;
            free_slots = s;
        }
    }
    pthread_mutex_unlock(&lock);
    if (s && status == WEFT_AGAIN)
        atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    return status == WEFT_OK;
}

static void defer_own(struct weft_deferred *call, int i)
{
    enum weft_status status;
    pthread_mutex_lock(&lock);
    status = weft_ep_defer(ends[i].ep, call);
    own_deferred += status == WEFT_OK;
    pthread_mutex_unlock(&lock);
    CHECK(status == WEFT_OK || status == WEFT_EBUSY);
}

/* Nothing to send: poll, or wait until a reply has come. */
static void idle(uint64_t r)
{
    if (polls) {
        struct weft_ep *ep = ends[(r >> 8) % (unsigned)nends].ep;
        CHECK((r & 15 ? weft_ep_poll(ep) : weft_ep_wait(ep, WAIT_NS)) >= 0);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&finished))
        (void)pthread_cond_timedwait(&changed, &lock, &until);
    pthread_mutex_unlock(&lock);
}

/* A thread defers its own item at one endpoint only: this function, which runs at that endpoint,
 * uses the item. */
static void *run(void *arg)
{
    struct weft_deferred *own = arg;
    int at = (int)((uintptr_t)own->arg % (unsigned)nends);
    uint64_t rand = test_mix((uintptr_t)arg);
    while (!atomic_load(&finished)) {
        uint64_t r = test_rand(&rand);
        int i = (int)(r % (unsigned)nends);
        if (!(r >> 20 & (OWN_EVERY - 1)))
            defer_own(own, at);
        if (!send_one(i) || !(r >> 32 & 3))
            idle(r);
    }
    return NULL;
}

static void end_open(struct weft_ctx *ctx, struct end *e)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.flags = nowait ? WEFT_EP_NOWAIT : WEFT_EP_LOCKED;
    CHECK(weft_ep_open(ctx, &params, &e->ep) == WEFT_OK);
    for (unsigned h = REQUEST; h <= REPLY; h++) {
        enum weft_status status;
        do
            status = weft_am_register(e->ep, h, h == REQUEST ? on_request : on_reply, e);
        while (status == WEFT_AGAIN);
        CHECK(status == WEFT_OK);
    }
}

static void connect_to(struct end *e, const struct end *to)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    enum weft_status status;
    CHECK(weft_ep_address(to->ep, addr, &len) == WEFT_OK);
    do
        status = weft_peer_open(e->ep, addr, len, &e->peer);
    while (status == WEFT_AGAIN);
    CHECK(status == WEFT_OK);
}

static enum weft_status end_close(struct end *e)
{
    enum weft_status status = e->peer ? weft_peer_close(e->peer) : WEFT_OK;
    if (status == WEFT_OK) {
        e->peer = NULL;
        status = weft_ep_close(e->ep);
    }
    if (status == WEFT_EBUSY)
        CHECK(weft_ep_poll(e->ep) >= 0);
    return status == WEFT_EBUSY ? WEFT_AGAIN : status;
}

static void slots_init(void)
{
    for (int i = 0; i < SLOTS; i++) {
        slots[i].call = (struct weft_deferred){.fn = reply, .arg = &slots[i]};
        slots[i].end = (struct weft_deferred){.fn = end_deferred, .arg = &slots[i]};
        slots[i].next = free_slots;
        free_slots = &slots[i];
    }
}

static bool is(int argc, char **argv, const char *word)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], word))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    static struct weft_deferred own[THREADS];
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
    uint64_t begun = test_now_ns();
    pthread_t threads[THREADS];
    struct weft_ctx *ctx;
    to_send = (count + 1) / 2; /* and as many replies */
    nends = is(argc, argv, "self") ? 1 : 2;
    nowait = !is(argc, argv, "locked");
    polls = !is(argc, argv, "progress");
    if (!polls)
        setenv("WEFT_PROGRESS", "thread", 1);
    signal(SIGALRM, on_alarm);
    alarm(120 + (unsigned)(count / 2000));
    slots_init();
    CHECK(weft_ctx_open(NULL, &ctx) == WEFT_OK);
    for (int i = 0; i < nends; i++)
        end_open(ctx, &ends[i]);
    for (int i = 0; i < nends; i++)
        connect_to(&ends[i], &ends[nends - 1 - i]);
    for (int i = 0; i < THREADS; i++) {
        own[i].fn = own_call;
        own[i].arg = (void *)(uintptr_t)i;
        CHECK(!pthread_create(&threads[i], NULL, run, &own[i]));
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (bool all = false; !all; sched_yield()) { /* the threads' own calls */
        for (int i = 0; i < nends; i++)
            CHECK(weft_ep_poll(ends[i].ep) >= 0);
        pthread_mutex_lock(&lock);
        all = own_ran == own_deferred;
        pthread_mutex_unlock(&lock);
    }
    CHECK(sent == to_send && replied == to_send && own_ran);
    for (int i = 0; i < nends; i++) {
        enum weft_status status;
        while ((status = end_close(&ends[i])) == WEFT_AGAIN)
            ;
        CHECK(status == WEFT_OK);
    }
    CHECK(weft_ctx_close(ctx) == WEFT_OK);
    printf("# %llu messages, %llu calls that threads deferred, %llu calls refused, %llu ms\n",
           (unsigned long long)(2 * to_send), (unsigned long long)own_ran,
           (unsigned long long)atomic_load(&refused),
           (unsigned long long)((test_now_ns() - begun) / 1000000));
    return 0;
}
