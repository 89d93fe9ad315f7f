/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's puts and gets by the NIC of its node's service, and memory that it lends to peers'
 * NICs. Services and clients are those of node_bed.h; the NIC is null0's, and moves nothing. */
#define _GNU_SOURCE
#include "unit/unit.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "config/config.h"
#include "mem/staging.h"
#include "transport/node/nic.h"
#include "transport/node/window.h"
#include "unit/node_bed.h"

static struct bed *bed;
static struct wf_hca *hca;
static struct wf_hca_pd *pd;
static struct wf_node_link service;
static struct via_ctx ctx;
static struct via_ep ep;
static struct via_peer peer;
static uint64_t counters[1000];
/* The part that was given to the NIC last, and its mover. */
static uint32_t part;
static struct node_mover *mover;
static unsigned done;
static enum weft_status status;
static enum wf_node_move_kind kind; /* of the move */

static enum weft_status on_move(struct bed_service *s, const struct wf_nic_op *op,
                                uint32_t incarnation, size_t *taken)
{
    (void)incarnation;
    part = op->id;
    mover = s->mover;
    *taken = op->len;
    return WEFT_OK;
}

static void on_moved(struct bed_client *b, uint32_t id, void *user, enum weft_status how)
{
    const struct node_move_use use = {.id = id, .user = user, .kind = (uint8_t)kind};
    (void)b;
    wf_via_nic_moved(&ep, &use, how);
}

static void on_stop(struct bed_client *b, void *user)
{
    const struct node_move_use use = {.user = user};
    (void)b;
    wf_via_nic_move_stop(&use);
}

static void on_message(struct bed_client *b, const struct node_am *am)
{
    (void)b;
    (void)am;
}

static void nic_op_done(void *owner, uint32_t id, enum weft_status how, uint64_t old)
{
    (void)owner;
    (void)id;
    (void)old;
    done++;
    status = how;
}

/* Addresses that are not used again, and those that are. */
static _Atomic unsigned kept, given;
static _Atomic uint64_t given_at[8192]; /* the latter */

void __real_wf_via_window_keep(struct via_window *w, enum via_kind kind, uint64_t at, uint64_t len);
void __wrap_wf_via_window_keep(struct via_window *w, enum via_kind kind, uint64_t at, uint64_t len);
void __real_wf_via_window_give(struct via_window *w, enum via_kind kind, uint64_t at);
void __wrap_wf_via_window_give(struct via_window *w, enum via_kind kind, uint64_t at);

void __wrap_wf_via_window_keep(struct via_window *w, enum via_kind of, uint64_t at, uint64_t len)
{
    kept++;
    __real_wf_via_window_keep(w, of, at, len);
}

void __wrap_wf_via_window_give(struct via_window *w, enum via_kind of, uint64_t at)
{
    atomic_store(&given_at[given % WF_ARRAY_LEN(given_at)], at);
    given++;
    __real_wf_via_window_give(w, of, at);
}

static const struct wf_tep_events events = {.nic_op_done = nic_op_done};

static int begin(void **state)
{
    const struct wf_hca_config config = {.gid_index = -1, .blueflame = true};
    int fd;
    (void)state;
    bed = calloc(1, sizeof *bed);
    assert_non_null(bed);
    bed->on_request = bed->on_reply = on_message;
    bed->on_move = on_move;
    bed->on_moved = on_moved;
    bed->on_stop = on_stop;
    bed->limits = (struct bed_limits){
        .clients = 1, .rows = 64, .waiters = 64, .slots = 8, .lane_room = 64, .size = 256 << 10};
    bed_open(bed);
    OK(wf_hca_null.open("null0", &config, &hca));
    OK(hca->ops->pd_open(hca, &pd));
    OK(hca->ops->share->describe(pd, &service.share, &fd));
    service.command_fd = wf_fd_dup(fd);
    service.incarnation = 77;
    service.window = wf_node_window(bed->clients[0][0].index, 1);
    ctx.nic = wf_via_nic_open(&service, true);
    assert_non_null(ctx.nic);
    ep.ctx = &ctx;
    ep.base.events = &events;
    ep.base.counters = counters;
    ep.client = bed->clients[0][0].c;
    wf_via_nic_ep_open(&ep);
    assert_non_null(ep.user);
    peer.base.tep = &ep.base;
    peer.flow = bed->clients[0][0].to[0];
    return 0;
}

static int end(void **state)
{
    (void)state;
    wf_via_nic_ep_close(&ep);
    wf_via_nic_close(ctx.nic);
    close(service.command_fd);
    hca->ops->pd_close(pd);
    hca->ops->close(hca);
    bed_close(bed);
    free(bed);
    return 0;
}

static const struct node_move_use *move_of(void)
{
    for (unsigned i = 0; i < WF_NODE_MOVES; i++)
        if (ep.client->moves[i].use)
            return &ep.client->moves[i];
    return NULL;
}

/* Fails when: a get, or the read of a message, whose bytes lie in the staging area, and are dropped
 * since all gets of its peer are stopped, is reported as OK; or the service does not learn which of
 * both it is. */
static void test_stopped_staged(void **state)
{
    static uint8_t to[64];
    const uint32_t keys[WF_KEY_NICS] = {5, 77};
    struct wf_nic_op op = {.local = to,
                           .len = sizeof to,
                           .remote = 4096,
                           .keys = keys,
                           .id = 9,
                           .kind = WF_NIC_OP_GET};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool stopped = i % 2;
        struct wf_desc *desc;
        size_t taken;
        op.is_of_message = i / 2;
        OK(wf_via_nic_op(&peer.base, &op, &taken));
        assert_non_null(move_of());
        desc = move_of()->user;
        kind = move_of()->kind;
        assert_int_equal(kind, op.is_of_message ? WF_NODE_READ : WF_NODE_GET);
        bed->now += 1000000;
        (void)wf_node_mover_turn(bed->services[0].mover);
        assert_int_equal(done, i);
        memset(desc->addr, 0x5a, sizeof to); /* the NIC */
        wf_node_part_done(mover, part, WEFT_OK);
        if (stopped)
            wf_via_nic_stop(&peer.base);
        memset(to, 0, sizeof to);
        (void)wf_node_client_poll(ep.client, bed->now, 100);
        assert_int_equal(done, i + 1);
        assert_int_equal(status, stopped ? WEFT_EUNREACH : WEFT_OK);
        assert_int_equal(to[63], stopped ? 0 : 0x5a);
    }
}

/* Fails when: the keys of lent memory are not those of its service; a forked child that takes it
 * back crashes; or it counts as lent when it was taken back. */
static void test_lent(void **state)
{
    static uint8_t from[40000];
    const struct wf_nic_lent *lent;
    int code = -1;
    pid_t pid;
    (void)state;
    OK(wf_via_nic_lend(&peer.base, from, sizeof from, &lent));
    assert_int_equal(lent->keys[VIA_KEY_INCARNATION], 77);
    assert_true(lent->keys[VIA_KEY_RKEY]);
    pid = fork();
    if (!pid) {
        wf_via_nic_take_back(&peer.base, lent, false);
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &code, 0) == pid);
    assert_int_equal(code, 0);
    wf_via_nic_take_back(&peer.base, lent, false);
    assert_int_equal(atomic_load(wf_via_nic_lent(ctx.nic)), 0);
}

/* Fails when: the addresses of a registration that is dropped, since a get into it is stopped, are
 * used again while a peer may read a message there; or they are not when the peer has read it. */
static void test_lent_stopped(void **state)
{
    const size_t len = 3 << 20;
    uint8_t *bytes = /* of a mapping of its own, which the cache keeps */
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uint32_t keys[WF_KEY_NICS] = {5, 77};
    const struct wf_nic_op op = {.local = bytes + (1 << 20),
                                 .len = 1 << 20,
                                 .remote = 4096,
                                 .keys = keys,
                                 .kind = WF_NIC_OP_GET};
    const struct wf_nic_lent *lent, *again;
    (void)state;
    assert_true(bytes != MAP_FAILED);
    kind = WF_NODE_GET;
    for (unsigned is_read = 0; is_read < 2; is_read++) {
        unsigned kept_before = kept, given_before = given;
        size_t taken;
        OK(wf_via_nic_lend(&peer.base, bytes, len, &lent));
        if (is_read)
            wf_via_nic_take_back(&peer.base, lent, true);
        OK(wf_via_nic_op(&peer.base, &op, &taken));
        wf_via_nic_stop(&peer.base);
        assert_int_equal(kept - kept_before, !is_read);
        assert_int_equal(given - given_before, is_read);
        bed->now += 1000000;
        (void)wf_node_mover_turn(bed->services[0].mover);
        wf_node_part_done(mover, part, WEFT_EUNREACH);
        (void)wf_node_client_poll(ep.client, bed->now, 100);
        peer.flow->losses = 0;
        if (is_read)
            continue;
        OK(wf_via_nic_lend(&peer.base, bytes, len, &again));
        assert_true(again->at >= lent->at + len || again->at + len <= lent->at);
        wf_via_nic_take_back(&peer.base, again, true);
        wf_via_nic_take_back(&peer.base, lent, false); /* of the one that is dropped */
        assert_int_equal(kept - kept_before, 1);
    }
    assert_int_equal(munmap(bytes, len), 0);
}

enum { LENDS = 2000 };
static uint8_t *both;        /* that one thread lends while another one drops its registration */
static unsigned given_first; /* before that */
static _Atomic bool lends_over, failed;

static void *lender_main(void *arg)
{
    struct via_ep *own = arg;
    struct via_peer to = {.base.tep = &own->base};
    for (unsigned i = 0; (i < LENDS || given == given_first) && !failed; i++) {
        const struct wf_nic_lent *lent;
        uint64_t at;
        if (wf_via_nic_lend(&to.base, both, 1 << 20, &lent) != WEFT_OK) {
            failed = true;
            break;
        }
        at = lent->at;
        for (unsigned k = given; k; k--)
            failed |= atomic_load(&given_at[(k - 1) % WF_ARRAY_LEN(given_at)]) == at;
        wf_via_nic_take_back(&to.base, lent, i % 3);
    }
    lends_over = true;
    return NULL;
}

/* Fails when: the addresses of a registration that one thread drops are used again, though another
 * thread has lent a message there meanwhile. */
static void test_lent_dropped(void **state)
{
    struct via_ep own = {.ctx = &ctx, .base.counters = counters};
    pthread_t thread;
    (void)state;
    both = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(both != MAP_FAILED);
    wf_via_nic_ep_open(&own);
    assert_non_null(own.user);
    given_first = given;
    assert_int_equal(pthread_create(&thread, NULL, lender_main, &own), 0);
    while (!lends_over && given - given_first < WF_ARRAY_LEN(given_at)) {
        struct wf_cached use;
        OK(wf_cache_get(ep.user, both, 1 << 20, &use));
        wf_via_mr_stop(use.handle);
        wf_cache_put(ep.user, &use);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(failed);
    assert_true(given > given_first);
    wf_via_nic_ep_close(&own);
    assert_int_equal(munmap(both, 1 << 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped_staged), cmocka_unit_test(test_lent_stopped),
        cmocka_unit_test(test_lent_dropped), cmocka_unit_test(test_lent)};
    (void)wf_config_init();
    return cmocka_run_group_tests_name("via_nic", tests, begin, end);
}
