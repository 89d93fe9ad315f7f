/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions of node services with each other: two services in one process, whose movers have no
 * clients, over TCP on loopback. */
#define _GNU_SOURCE
#include "unit/unit.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "node/work.h"
#include "transport/stream.h"

enum { LIMIT_MS = 20000, FAKE_PORT = 1, LANES = 2, PEER_MS = 2000 /* WEFT_PEER_TIMEOUT */ };

static const uint8_t key[WF_NODE_KEY] = "node_others_test";
static struct wf_node_scope scope;

/* ---- the ports ---- */

int __real_wf_stream_listen(const uint8_t ip[16], uint16_t port, enum wf_stream_reuse reuse);
int __wrap_wf_stream_listen(const uint8_t ip[16], uint16_t port, enum wf_stream_reuse reuse);

static uint16_t wanted_port; /* of the next service; 0: any */

int __wrap_wf_stream_listen(const uint8_t ip[16], uint16_t port, enum wf_stream_reuse reuse)
{
    (void)reuse; /* connections of the service that had the port may not have ended */
    return __real_wf_stream_listen(ip, port ? port : wanted_port, WF_STREAM_REUSE);
}

/* ---- memory ---- */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static _Atomic unsigned shortages; /* of memory for another service that are still to come */
static struct node_work *loser;    /* loses [lost] when it gets to know another service, or NULL */
static struct node_other *lost;

void *__wrap_calloc(size_t n, size_t size)
{
    bool is_short = size == sizeof(struct node_other) && shortages;
    shortages -= is_short;
    if (size == sizeof(struct node_other) && loser) {
        lost->down = loser->any_change = true;
        loser = NULL;
    }
    return is_short ? NULL : __real_calloc(n, size);
}

/* ---- death ---- */

struct net_ep;
void __real_wf_net_close(struct net_ep *ep);
void __wrap_wf_net_close(struct net_ep *ep);

static bool dies; /* a service that closes its endpoint sends nothing, as if it were killed */

void __wrap_wf_net_close(struct net_ep *ep)
{
    if (!dies)
        __real_wf_net_close(ep);
}

/* ---- messages that are given back ---- */

struct net_session;
void __real_wf_net_session_later(struct net_session *session);
void __wrap_wf_net_session_later(struct net_session *session);

static unsigned laters;

void __wrap_wf_net_session_later(struct net_session *session)
{
    laters++;
    __real_wf_net_session_later(session);
}

/* ---- frames ---- */

enum weft_status __real_wf_node_frame_take(struct node_mover *m, uint16_t word, unsigned kind,
                                           const uint32_t *args, unsigned nargs, const void *data,
                                           size_t len);
enum weft_status __wrap_wf_node_frame_take(struct node_mover *m, uint16_t word, unsigned kind,
                                           const uint32_t *args, unsigned nargs, const void *data,
                                           size_t len);

static unsigned late; /* frames that came while an earlier instance could still write */

enum weft_status __wrap_wf_node_frame_take(struct node_mover *m, uint16_t word, unsigned kind,
                                           const uint32_t *args, unsigned nargs, const void *data,
                                           size_t len)
{
    const struct node_work *w = m->ops->owner;
    const struct node_other *other = w->others[word];
    for (uint32_t i = 0; i < w->nothers; i++)
        late += w->others[i] && w->others[i]->down && w->others[i] != other;
    late += other->stale && other->stale_address.ep_gen > 65535; /* less: it was a guess */
    return __real_wf_node_frame_take(m, word, kind, args, nargs, data, len);
}

#ifdef WF_HAVE_VERBS
/* ---- RDMA ---- */

struct rdma_ep;
bool __real_wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);
bool __wrap_wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);

static bool rdma_fails; /* when an endpoint of an open context is opened */

bool __wrap_wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd)
{
    return !rdma_fails && __real_wf_rdma_sleep_on(ep, epoll_fd);
}
#endif

/* ---- services ---- */

static enum wf_node_lanes kind = WF_NODE_TCP; /* of the next service */

static uint64_t tag_of(void *owner, const struct wf_address *address)
{
    (void)owner;
    return address->process.token[0];
}

static void of_port(void *owner, struct node_port *port)
{
    (void)owner;
    (void)port;
}

static struct node_work *service_open(uint32_t incarnation, uint16_t port)
{
    struct node_work *w = calloc(1, sizeof *w);
    struct node_mover_params params = {.lanes = LANES, .index_bits = 4, .rows = 64, .waiters = 64};
    assert_non_null(w);
    w->parameters = (struct wf_node_parameters){
        .connections = LANES, .index_bits = 4, .am_max = WF_NODE_AM_MAX, .lanes = kind};
    w->incarnation = w->line = incarnation;
    w->key = key;
    w->scope = &scope;
    w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->page = wf_lines_new(sizeof *w->page);
    assert_non_null(w->page);
    w->ops = (struct node_mover_ops){.send = wf_node_other_send,
                                     .has_room = wf_node_other_has_room,
                                     .tag = tag_of,
                                     .wake = of_port,
                                     .failed = of_port,
                                     .behind = wf_node_other_behind,
                                     .owner = w};
    params.ops = &w->ops;
    params.page = w->page;
    OK(wf_node_mover_open(&params, &w->mover));
    wanted_port = port;
    OK(wf_node_others_open(w));
    wanted_port = 0;
    assert_true(!port || w->contact.port == port);
    return w;
}

static void service_close(struct node_work *w)
{
    wf_node_others_close(w, 1);
    wf_node_mover_close(w->mover);
    close(w->event_fd);
    close(w->epoll_fd);
    free(w->page);
    free(w);
}

/* Ask [w] for the service at [port], as a client does. Returns the name of its word. */
static enum weft_status ask(struct node_work *w, uint16_t port, uint32_t *name)
{
    struct wf_contact contact = w->contact;
    struct wf_address address;
    contact.port = port;
    wf_node_service_address(key, &scope, port, 1, &address);
    return wf_node_other_find(w, &address, &contact, name);
}

/* Send a frame without effect: the end of an unknown endpoint. */
static void send_some(struct node_work *w, uint32_t name)
{
    const uint32_t args[3] = {1, 0, WF_NODE_CLOSED};
    uint16_t word = (uint16_t)wf_node_word_index(name);
    enum weft_status status = WEFT_EPEER;
    if (w->others[word])
        status = wf_node_other_send(w, word, 0, WF_NODE_FRAME_END, args, 3, NULL, 0);
    assert_true(status == WEFT_OK || status == WEFT_AGAIN || status == WEFT_EPEER);
}

static unsigned state_of(const struct node_work *w, uint32_t name)
{
    return wf_node_session_state(w->page->words[wf_node_word_index(name)], name);
}

static uint32_t session_of(const struct node_work *w, uint32_t name)
{
    return (uint32_t)w->page->words[wf_node_word_index(name)];
}

/* Another known service: the one that connected, or NULL. */
static const struct node_other *known(const struct node_work *w)
{
    for (uint32_t i = 1; i < w->nothers; i++)
        if (w->others[i] && !w->others[i]->guessed && w->others[i]->greetings)
            return w->others[i];
    return NULL;
}

static unsigned others(const struct node_work *w)
{
    unsigned n = 0;
    for (uint32_t i = 1; i < w->nothers; i++)
        n += w->others[i] != NULL;
    return n;
}

#define UNTIL(a, b, cond)                                                                          \
    do {                                                                                           \
        uint64_t until = wf_now_ns() + LIMIT_MS * UINT64_C(1000000);                               \
        while (!(cond) && wf_now_ns() < until) {                                                   \
            (void)wf_node_others_poll(a);                                                          \
            if (b)                                                                                 \
                (void)wf_node_others_poll(b);                                                      \
        }                                                                                          \
        assert_true(cond);                                                                         \
    } while (0)

/* ---- tests ---- */

/* Fails when: a service asked for by port alone is not found, or one of two that connect at once
 * keeps two words for the other. */
static void test_found(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
        uint32_t to_b, to_a;
        OK(ask(a, b->contact.port, &to_b));
        if (both) {
            OK(ask(b, a->contact.port, &to_a));
            send_some(b, to_a);
        }
        send_some(a, to_b);
        /* frames to a guess are lost: a client starts anew when the session's number rises */
        UNTIL(a, b, (send_some(a, to_b), known(b)));
        OK(ask(b, a->contact.port, &to_a));
        UNTIL(a, b, (send_some(b, to_a), known(a)));
        assert_memory_equal(&known(a)->address, &b->address, sizeof b->address);
        assert_memory_equal(&known(b)->address, &a->address, sizeof a->address);
        assert_int_equal(others(a) + others(b), 2);
        assert_int_equal(state_of(a, to_b), WF_NODE_UP);
        service_close(a);
        service_close(b);
    }
}

/* Fails when: a service on the port of an ended one is not found, or is taken for the ended one,
 * whose clients have to learn that their peers are lost; or its first frame breaks the connection.
 */
static void test_restarted(void **state)
{
    (void)state;
    for (int calls = 0; calls < 4; calls++) {
        struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
        uint16_t port = b->contact.port;
        uint32_t old, to_b, to_a;
        OK(ask(a, port, &old));
        UNTIL(a, b, (send_some(a, old), known(b)));
        OK(ask(b, a->contact.port, &to_a));
        UNTIL(a, b, (send_some(b, to_a), known(a)));
        service_close(b);
        if (calls > 1)
            a->ops.move = wf_node_other_move;
        late = laters = 0;
        b = service_open(70001, port);
        if (calls % 2) {
            OK(ask(b, a->contact.port, &to_a));
            UNTIL(a, b, (send_some(b, to_a), state_of(a, old) == WF_NODE_LOST));
        } else {
            UNTIL(a, b, state_of(a, old) == WF_NODE_LOST);
        }
        OK(ask(a, port, &to_b));
        assert_int_not_equal(to_b, old);
        UNTIL(a, b, (send_some(a, to_b), known(b)));
        OK(ask(b, a->contact.port, &to_a));
        UNTIL(a, b, (send_some(b, to_a), known(a)));
        assert_int_equal(known(a)->address.ep_gen, 70001);
        assert_int_equal(state_of(a, to_b), WF_NODE_UP);
        assert_int_equal(others(a), 1);
        assert_int_equal(calls < 2 ? 0 : late + laters, 0);
        service_close(a);
        service_close(b);
    }
}

/* What [a] answers a client that has a key of the service of [name], which has [incarnation]. */
static void expect_instance(struct node_work *a, uint32_t name, uint32_t incarnation)
{
    uint16_t word = (uint16_t)wf_node_word_index(name);
    OK(wf_node_other_instance(a, word, incarnation));
    assert_int_equal(wf_node_other_instance(a, word, incarnation - 1), WEFT_EKEY);
    assert_int_equal(wf_node_other_instance(a, word, incarnation + 1), WEFT_EUNREACH);
}

/* Fails when: a service that was killed is lost, though it has a successor on its port, which calls
 * or is called; or its clients' flows do not begin again, which the number of the session shows; or
 * frames of the successor are taken while the queue pairs of the killed one may write to memory, or
 * break the connection; or a key of the killed one is taken for one of its successor. */
static void test_successor(void **state)
{
    (void)state;
    for (int calls = 0; calls < 4; calls++) {
        struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
        uint16_t port = b->contact.port;
        uint32_t line = b->line, to_b, to_a, session;
        OK(ask(a, port, &to_b));
        UNTIL(a, b, (send_some(a, to_b), known(b)));
        OK(ask(b, a->contact.port, &to_a));
        UNTIL(a, b, (send_some(b, to_a), known(a)));
        session = session_of(a, to_b);
        expect_instance(a, to_b, 70000);
        dies = true;
        service_close(b);
        dies = false;
        if (calls > 1) /* it has queue pairs */
            a->ops.move = wf_node_other_move;
        late = laters = 0;
        b = service_open(70001, port);
        b->line = line;
        if (calls % 2)
            OK(ask(b, a->contact.port, &to_a));
        UNTIL(a, b,
              (send_some(a, to_b), calls % 2 ? send_some(b, to_a) : (void)0,
               known(b) && a->others[wf_node_word_index(to_b)]->address.ep_gen == 70001));
        OK(ask(b, a->contact.port, &to_a));
        UNTIL(a, b, (send_some(b, to_a), known(a)));
        assert_int_equal(state_of(a, to_b), WF_NODE_UP);
        assert_true(session_of(a, to_b) > session);
        expect_instance(a, to_b, 70001);
        OK(ask(a, port, &session));
        assert_int_equal(session, to_b);
        assert_int_equal(others(a), 1);
        assert_int_equal(calls < 2 ? 0 : late + laters, 0);
        service_close(a);
        service_close(b);
    }
}

/* Lose a service as if it had answered, and then taken nothing for long. */
static void word_free(struct node_work *a, uint32_t name)
{
    uint16_t word = (uint16_t)wf_node_word_index(name);
    a->others[word]->guessed = false;
    wf_node_other_behind(a, word);
}

/* Fails when: a frame of a service is taken while another one of its node, at another port, is lost
 * and may still write to memory: a program there may have gone from the one to the other. */
static void test_other_port(void **state)
{
    struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0), *c;
    uint32_t to_b, to_a;
    (void)state;
    a->ops.move = wf_node_other_move; /* there are queue pairs */
    OK(ask(a, b->contact.port, &to_b));
    UNTIL(a, b, (send_some(a, to_b), known(b)));
    OK(ask(b, a->contact.port, &to_a));
    UNTIL(a, b, (send_some(b, to_a), known(a)));
    late = 0;
    lost = a->others[wf_node_word_index(to_b)];
    c = service_open(70001, 0);
    OK(ask(c, a->contact.port, &to_a));
    loser = a;
    UNTIL(a, c, (send_some(c, to_a), state_of(a, to_b) == WF_NODE_LOST && known(a)));
    assert_ptr_equal(loser, NULL);
    assert_int_equal(known(a)->address.ep_gen, 70001);
    assert_int_equal(late, 0);
    service_close(a);
    service_close(b);
    service_close(c);
}

/* Fails when: the words of lost services are not freed, or a new one has an old name. */
static void test_words(void **state)
{
    struct node_work *a = service_open(1000, 0);
    uint32_t name, last = 0;
    (void)state;
    for (uint32_t i = 0; i < WF_NODE_WORDS + 100; i++) {
        OK(ask(a, (uint16_t)(FAKE_PORT + i), &name));
        assert_int_not_equal(name, last);
        assert_int_equal(state_of(a, name), WF_NODE_UP);
        word_free(a, name);
        (void)wf_node_others_poll(a);
        assert_int_equal(state_of(a, name), WF_NODE_LOST);
        last = name;
    }
    assert_int_equal(others(a), 0);
    service_close(a);
}

/* [from] sends to the service of word [name], which is [to], for [ms]. */
static void send_for(struct node_work *from, uint32_t name, struct node_work *to, uint64_t ms)
{
    uint64_t until = wf_now_ns() + ms * UINT64_C(1000000);
    while (wf_now_ns() < until) {
        send_some(from, name);
        (void)wf_node_others_poll(from);
        (void)wf_node_others_poll(to);
    }
}

/* Let [a] know as many services as it has words. Returns the name of one of them. */
static uint32_t words_take(struct node_work *a)
{
    uint32_t name = 0;
    for (uint32_t i = 1; i < WF_NODE_WORDS; i++)
        OK(ask(a, (uint16_t)(FAKE_PORT + i), &name));
    return name;
}

/* Fails when: a service that connects while all words are taken is refused at once, or not admitted
 * soon after a word is free; or an earlier service loses its word. */
static void test_no_word(void **state)
{
    struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
    uint32_t name = words_take(a), to_a;
    uint64_t begin;
    (void)state;
    assert_int_equal(ask(a, b->contact.port, &to_a), WEFT_ELIMIT);
    OK(ask(b, a->contact.port, &to_a));
    send_for(b, to_a, a, PEER_MS / 2);
    assert_int_equal(state_of(b, to_a), WF_NODE_UP);
    assert_int_equal(others(a), WF_NODE_WORDS - 1);
    word_free(a, name);
    begin = wf_now_ns();
    UNTIL(a, b, (send_some(b, to_a), known(a)));
    assert_true(wf_now_ns() - begin < PEER_MS / 2 * UINT64_C(1000000));
    assert_int_equal(state_of(b, to_a), WF_NODE_UP);
    assert_int_equal(others(a), WF_NODE_WORDS - 1);
    service_close(a);
    service_close(b);
}

/* Fails when: a service that gets no word waits for ever; or it loses the other one for ever, and
 * is refused when words are free again. */
static void test_no_word_for_long(void **state)
{
    struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
    uint32_t name = words_take(a), old, to_a;
    (void)state;
    for (int again = 0; again < 2; again++) {
        OK(ask(b, a->contact.port, &old));
        UNTIL(a, b, (send_some(b, old), state_of(b, old) == WF_NODE_LOST));
        assert_int_equal(others(a), WF_NODE_WORDS - 1);
    }
    word_free(a, name);
    OK(ask(b, a->contact.port, &to_a));
    UNTIL(a, b, (send_some(b, to_a), known(a)));
    assert_int_equal(state_of(b, to_a), WF_NODE_UP);
    service_close(a);
    service_close(b);
}

/* Fails when: a service that briefly lacks memory for a connecting one refuses it, or drops its
 * frames. */
static void test_no_memory(void **state)
{
    struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
    uint32_t to_a;
    (void)state;
    OK(ask(b, a->contact.port, &to_a));
    shortages = 3;
    UNTIL(a, b, (send_some(b, to_a), known(a)));
    assert_int_equal(shortages, 0);
    assert_int_equal(state_of(b, to_a), WF_NODE_UP);
    assert_int_equal(state_of(a, wf_node_word_of(a->mover, 1)), WF_NODE_UP);
    service_close(a);
    service_close(b);
}

/* Fails when: a service without memory for another one is dialled without pauses. With pauses there
 * are about 10 dials a second. */
static void test_no_memory_for_long(void **state)
{
    enum { MANY = 10000, FEW = 40 };
    struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
    uint32_t to_a;
    (void)state;
    for (int greater = 0; greater < 2; greater++) { /* the side with the greater address dials */
        struct node_work *from = greater ? a : b, *to = greater ? b : a;
        OK(ask(from, to->contact.port, &to_a));
        shortages = MANY;
        send_for(from, to_a, to, PEER_MS / 2);
        assert_in_range(MANY - shortages, 2, FEW);
        shortages = 0;
        UNTIL(a, b, (send_some(from, to_a), known(to)));
        assert_int_equal(state_of(from, to_a), WF_NODE_UP);
        service_close(a);
        service_close(b);
        a = service_open(1000, 0);
        b = service_open(70000, 0);
    }
    service_close(a);
    service_close(b);
}

/* Fails when: a service that is called, and has not answered yet, is lost because many endpoints
 * end meanwhile. */
static void test_many_ends(void **state)
{
    struct node_work *a = service_open(1000, 0), *b = service_open(70000, 0);
    uint32_t to_a;
    (void)state;
    OK(ask(b, a->contact.port, &to_a));
    for (unsigned i = 0; i < 2 * WF_NODE_ENDS; i++) {
        struct node_end *end = malloc(sizeof *end);
        assert_non_null(end);
        *end = (struct node_end){.tag = i + 1, .state = WF_NODE_CLOSED};
        wf_node_end_add(b->mover, end);
        assert_in_range(b->mover->nends, 0, WF_NODE_ENDS);
    }
    UNTIL(b, a, (send_some(b, to_a), known(a)));
    assert_int_equal(state_of(b, to_a), WF_NODE_UP);
    service_close(a);
    service_close(b);
}

#ifdef WF_HAVE_VERBS
/* Fails when: a service that cannot open an endpoint of its RDMA devices does not start, or is not
 * reached by TCP. */
static void test_no_endpoint(void **state)
{
    struct node_work *a, *b;
    uint32_t to_a;
    (void)state;
    kind = WF_NODE_RDMA;
    a = service_open(1000, 0);
    assert_true(a->contact.rdma && !a->contact.port);
    service_close(a);
    rdma_fails = true;
    a = service_open(1000, 0);
    rdma_fails = false;
    kind = WF_NODE_TCP;
    assert_true(!a->contact.rdma && a->contact.port);
    b = service_open(70000, 0);
    OK(ask(b, a->contact.port, &to_a));
    UNTIL(a, b, (send_some(b, to_a), known(a)));
    service_close(a);
    service_close(b);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found),
                                       cmocka_unit_test(test_restarted),
                                       cmocka_unit_test(test_successor),
                                       cmocka_unit_test(test_other_port),
                                       cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_no_word),
                                       cmocka_unit_test(test_no_word_for_long),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_many_ends),
#ifdef WF_HAVE_VERBS
                                       cmocka_unit_test(test_no_endpoint),
#endif
                                       cmocka_unit_test(test_no_memory_for_long)};
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    setenv("WEFT_PEER_TIMEOUT", "2s", 1);
    setenv("WEFT_DEBUG", "nullnic", 1);
    if (wf_config_init() != WEFT_OK)
        return 1;
    wf_node_scope_here(&scope);
    wf_log_set_level((enum wf_log_level) - 1); /* each loss is logged */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
