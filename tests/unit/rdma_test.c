/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA transport's choices, on NICs that move no bytes (hca_null.c). */
#define _GNU_SOURCE
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "config/config.h"
#include "mem/budget.h"
#include "mem/cache/cache.h"
#include "mem/dmabuf.h"
#include "mem/staging.h"
#include "mem/maps.h"
#include "transport/net/channel.h"
#include "transport/rdma/rail.h"
#include "transport/transport.h"

#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)
#define MIB ((size_t)1 << 20)

static const struct wf_hca_gid link_v1 = {{0xfe, 0x80, [15] = 1}, 0, WF_HCA_GID_ROCE_V1};
static const struct wf_hca_gid link_v2 = {{0xfe, 0x80, [15] = 1}, 1, WF_HCA_GID_ROCE_V2};
static const struct wf_hca_gid global = {{0x20, 0x01, [15] = 1}, 5, WF_HCA_GID_ROCE_V2};
static const struct wf_hca_gid mapped = {
    {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}, 7, WF_HCA_GID_ROCE_V2};

/* ---- addresses ---- */

/* Fails when: with an automatic GID a port does not take the best one when its table changes. */
static void test_best_gid_follows_the_table(void **state)
{
    const struct wf_hca hca = {.config = {.gid_index = -1}};
    const struct wf_hca_gid gids[] = {link_v1, link_v2, mapped, global};
    struct wf_hca_port port = {.number = 1};
    (void)state;
    wf_hca_port_set(&hca, &port, gids, 4, 1024);
    assert_true(port.has_gid && port.gid.index == 7);
    wf_hca_port_set(&hca, &port, gids, 2, 1024);
    assert_true(port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, -1, 1024); /* not readable: it stays */
    assert_true(port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, 0, 1024);
    assert_false(port.has_gid);
    wf_hca_port_set(&hca, &port, &gids[3], 1, 1024);
    assert_true(port.has_gid && port.gid.index == 5);
    assert_memory_equal(port.gid.raw, global.raw, 16);
}

/* Fails when: a configured GID index gives way to a better GID, or to any other while it is absent.
 */
static void test_named_gid_stays(void **state)
{
    const struct wf_hca hca = {.config = {.gid_index = 1}};
    const struct wf_hca_gid gids[] = {link_v1, mapped, link_v2};
    struct wf_hca_port port = {.number = 1};
    (void)state;
    wf_hca_port_set(&hca, &port, gids, 3, 1024);
    assert_true(port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, 2, 1024);
    assert_true(!port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, 3, 1024);
    assert_true(port.has_gid && port.gid.index == 1);
}

/* Fails when: the configuration raises the port's MTU, or does not lower it after an event. */
static void test_mtu_is_lowered_only(void **state)
{
    const struct wf_hca low = {.config = {.gid_index = -1, .mtu = 512}}, none = {.ops = NULL};
    struct wf_hca_port port = {.number = 1};
    (void)state;
    wf_hca_port_set(&low, &port, NULL, 0, 4096);
    assert_int_equal(port.mtu, 512);
    wf_hca_port_set(&low, &port, NULL, 0, 256);
    assert_int_equal(port.mtu, 256);
    wf_hca_port_set(&none, &port, NULL, 0, 4096);
    assert_int_equal(port.mtu, 4096);
}

static void test_gid_text(void **state)
{
    char text[WF_HCA_GID_TEXT];
    struct wf_hca_gid longest = {.index = 255, .type = WF_HCA_GID_INFINIBAND};
    (void)state;
    assert_string_equal(wf_hca_gid_text(&mapped, text), "7 ::ffff:10.0.0.1 (RoCE v2)");
    memset(longest.raw, 0xab, sizeof longest.raw);
    assert_string_equal(wf_hca_gid_text(&longest, text),
                        "255 abab:abab:abab:abab:abab:abab:abab:abab (InfiniBand)");
}

/* ---- on demand ---- */

enum { AUTO, ALWAYS, NEVER };

#define LIMIT "24m" /* of pinned memory */
#define FITS (4 * MIB)
#define DOES_NOT (64 * MIB)

static uint64_t used(void)
{
    return atomic_load(&wf_budget_own()->used);
}

static bool has_paging(void)
{
    return !strcmp(wf_config()->rdma_device, "null1");
}

/* Should [len] bytes be registered on demand? */
static bool is_to_be_on_demand(size_t len)
{
    int mode = wf_config()->rdma_on_demand;
    return has_paging() && (mode == ALWAYS || (mode == AUTO && len == DOES_NOT));
}

static void *map(size_t len, int protection)
{
    void *p = mmap(NULL, len, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* Fails when: a region is pinned that should be on demand, or not pinned though it can be; closing
 * it does not restore the budget; or two regions have the same address. */
static void test_regions_on_demand(void **state)
{
    static const size_t lens[] = {FITS, DOES_NOT, FITS};
    uint64_t last = 0, at;
    struct rdma_ctx *ctx;
    (void)state;
    OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &ctx));
    for (int i = 0; i < 3; i++) {
        bool on_demand = is_to_be_on_demand(lens[i]), there = on_demand || lens[i] == FITS;
        uint64_t before = used();
        void *memory = map(lens[i], PROT_READ | PROT_WRITE), *handle;
        const struct wf_nic_memory m = {memory, lens[i], NULL};
        uint32_t keys[WF_KEY_NICS];
        assert_int_equal(wf_rdma_region_open(ctx, &m, RW, &at, keys, &handle),
                         there ? WEFT_OK : WEFT_ELIMIT);
        assert_int_equal(used() - before, there && !on_demand ? lens[i] : 0);
        if (there) {
            assert_int_equal(((struct rdma_mrs *)handle)->of[0]->unpinned, on_demand);
            assert_true(at > last && keys[0] && !keys[1]);
            last = at;
            wf_rdma_region_close(ctx, handle);
        }
        assert_int_equal(used(), before);
        munmap(memory, lens[i]);
    }
    wf_rdma_ctx_close(ctx);
    assert_int_equal(used(), 0);
}

static void local_is(struct wf_cache_user *user, void *memory, size_t len, bool can_write)
{
    uint64_t before = used();
    bool on_demand = can_write && is_to_be_on_demand(len);
    struct wf_cached use;
    enum weft_status status = wf_cache_get(user, memory, len, &use);
    assert_int_equal(status, on_demand || len == FITS ? WEFT_OK : WEFT_ELIMIT);
    assert_int_equal(used() - before, status == WEFT_OK && !on_demand ? len : 0);
    if (status != WEFT_OK)
        return;
    assert_int_equal(((struct rdma_mrs *)use.handle)->of[0]->unpinned, on_demand);
    wf_cache_put(user, &use);
}

/* Fails when: WEFT_RDMA_ON_DEMAND does not decide how the program's memory is registered, or
 * read-only memory is registered on demand. */
static void test_local_on_demand(void **state)
{
    static const size_t lens[] = {FITS, DOES_NOT};
    struct rdma_ctx *ctx;
    struct wf_cache_user *user;
    (void)state;
    OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &ctx));
    OK(wf_cache_user_open(wf_staging_cache(ctx->local), &user));
    for (int i = 0; i < 2; i++) {
        void *both = map(lens[i], PROT_READ | PROT_WRITE), *read = map(lens[i], PROT_READ);
        local_is(user, both, lens[i], true);
        (void)wf_cache_shrink(wf_staging_cache(ctx->local), SIZE_MAX);
        local_is(user, read, lens[i], false);
        (void)wf_cache_shrink(wf_staging_cache(ctx->local), SIZE_MAX);
        munmap(both, lens[i]);
        munmap(read, lens[i]);
    }
    wf_cache_user_close(user);
    wf_rdma_ctx_close(ctx);
    assert_int_equal(used(), 0);
}

/* Fails when: registrations that the cache has given up, and not deregistered yet, make a region
 * fail or be on demand. */
static void test_region_where_cached_was(void **state)
{
    const size_t len = 16 * MIB; /* fits once, not twice */
    struct rdma_ctx *ctx;
    struct wf_cache_user *user;
    void *cached = map(len, PROT_READ | PROT_WRITE), *memory = map(len, PROT_READ | PROT_WRITE);
    const struct wf_nic_memory m = {memory, len, NULL};
    bool on_demand = has_paging() && wf_config()->rdma_on_demand == ALWAYS;
    (void)state;
    OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &ctx));
    OK(wf_cache_user_open(wf_staging_cache(ctx->local), &user));
    for (int i = 0; i < 50; i++) {
        uint32_t keys[WF_KEY_NICS];
        struct wf_cached use;
        void *handle;
        uint64_t at;
        OK(wf_cache_get(user, cached, len, &use));
        wf_cache_put(user, &use);
        wf_cache_invalidate(wf_staging_cache(ctx->local), cached, len);
        OK(wf_rdma_region_open(ctx, &m, RW, &at, keys, &handle));
        assert_int_equal(((struct rdma_mrs *)handle)->of[0]->unpinned, on_demand);
        wf_rdma_region_close(ctx, handle);
    }
    wf_cache_user_close(user);
    wf_rdma_ctx_close(ctx);
    assert_int_equal(used(), 0);
    munmap(cached, len);
    munmap(memory, len);
}

/* ---- rails ---- */

struct wanted {
    const char *device;
    unsigned most, nrails, ndevices;
    const char *rails[2];
};

static void rails_are(const struct wanted *want)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    const struct wf_config before = *c;
    struct rdma_ctx *ctx = NULL;
    enum weft_status status;
    c->rdma_device = want->device;
    c->rdma_rails = want->most;
    status = wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &ctx);
    assert_int_equal(status, want->nrails ? WEFT_OK : WEFT_EUNREACH);
    if (ctx) {
        assert_int_equal(ctx->nports, want->nrails);
        assert_int_equal(ctx->ndevices, want->ndevices);
        for (unsigned i = 0; i < want->nrails; i++) {
            assert_string_equal(ctx->ports[i].device->hca->name, want->rails[i]);
            assert_int_equal(ctx->ports[i].device->number, i);
        }
        wf_rdma_ctx_close(ctx);
    }
    *c = before;
    assert_int_equal(used(), 0);
}

/* Fails when: a named port is left out, one that is not named is used, the order differs, or a name
 * that no port has is ignored beside one that exists. */
static void test_rails_by_name(void **state)
{
    static const struct wanted all[] = {{"null0,null1", 1, 2, 2, {"null0", "null1"}},
                                        {"null1,null0", 2, 2, 2, {"null1", "null0"}},
                                        {"null1:1,null0:1", 2, 2, 2, {"null1", "null0"}},
                                        {"null0,null0", 2, 1, 1, {"null0"}},
                                        {"null1", 2, 1, 1, {"null1"}},
                                        {"null1:2,null0", 2, 1, 1, {"null0"}},
                                        {"null1:1,null1:2,null1", 4, 1, 1, {"null1"}},
                                        {"null1:2", 2, 0, 0, {NULL}},
                                        {"null0,null2", 2, 0, 0, {NULL}},
                                        {"null0,null1:3", 2, 0, 0, {NULL}},
                                        {"null", 2, 0, 0, {NULL}},
                                        {"null0:", 2, 0, 0, {NULL}},
                                        {"null0,,null1,", 2, 2, 2, {"null0", "null1"}}};
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(all); i++)
        rails_are(&all[i]);
}

static struct rdma_ctx *both_open(const struct wf_config *before)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)before;
    const char *device = c->rdma_device;
    struct rdma_ctx *ctx;
    c->rdma_device = "null1,null0"; /* the second has no on-demand paging and no dma-bufs */
    OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &ctx));
    c->rdma_device = device;
    return ctx;
}

/* Fails when: a region has a key of one device only though the budget allows both; it is not
 * reachable by the first device if the second cannot register it; or it takes the budget once for
 * both. */
static void test_regions_of_rails(void **state)
{
    static const size_t lens[] = {FITS, 11 * MIB}; /* the second fits once */
    struct rdma_ctx *ctx = both_open(wf_config());
    uint64_t before = used();
    uint32_t keys[WF_KEY_NICS];
    void *handle;
    (void)state;
    for (int i = 0; i < 2; i++) {
        void *memory = map(lens[i], PROT_READ | PROT_WRITE);
        const struct wf_nic_memory m = {memory, lens[i], NULL};
        bool always = wf_config()->rdma_on_demand == ALWAYS;
        uint64_t at, objects = ctx->devices[0].hca->ledger.objects[WF_HCA_MR];
        uint64_t others = ctx->devices[1].hca->ledger.objects[WF_HCA_MR];
        enum weft_status status = wf_rdma_region_open(ctx, &m, RW, &at, keys, &handle);
        bool one = i && !always;
        assert_int_equal(status, WEFT_OK);
        assert_int_equal(used() - before, one || always ? lens[i] : 2 * lens[i]);
        assert_true(keys[0] && one == !keys[1] && keys[0] != keys[1] && !keys[2] && !keys[3]);
        assert_int_equal(ctx->devices[1].hca->ledger.objects[WF_HCA_MR], others + !one);
        wf_rdma_region_close(ctx, handle);
        assert_int_equal(used(), before);
        assert_int_equal(ctx->devices[0].hca->ledger.objects[WF_HCA_MR], objects);
        munmap(memory, lens[i]);
    }
    wf_rdma_ctx_close(ctx);
    assert_int_equal(used(), 0);
}

/* Fails when: WEFT_RDMA_ORDER does not decide the order of the NICs' accesses to regions and to
 * cached memory, or decides it for Weft's own buffers. */
static void test_order(void **state)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    const struct wf_config before = *c;
    (void)state;
    for (int relaxed = 0; relaxed < 2; relaxed++) { /* in the order of params.def */
        void *memory = map(FITS, PROT_READ | PROT_WRITE), *handle;
        const struct wf_nic_memory m = {memory, FITS, NULL};
        const unsigned want = relaxed ? WF_HCA_RELAXED : 0;
        const struct rdma_mrs *mrs;
        struct wf_cache_user *user;
        struct wf_cached use;
        struct rdma_ctx *ctx;
        uint32_t keys[WF_KEY_NICS];
        uint64_t at;
        c->rdma_order = relaxed;
        ctx = both_open(c);
        OK(wf_rdma_region_open(ctx, &m, RW, &at, keys, &handle));
        mrs = handle;
        assert_int_equal(mrs->of[0]->access & WF_HCA_RELAXED, want);
        assert_int_equal(mrs->of[1]->access & WF_HCA_RELAXED, want);
        wf_rdma_region_close(ctx, handle);
        /* the second device cannot register on demand */
        assert_int_equal(wf_rdma_pins(ctx), wf_config()->rdma_on_demand == NEVER ? 2 : 1);
        OK(wf_cache_user_open(wf_staging_cache(ctx->local), &user));
        OK(wf_cache_get(user, memory, FITS, &use));
        mrs = use.handle;
        assert_int_equal(mrs->of[0]->access & WF_HCA_RELAXED, want);
        wf_cache_put(user, &use);
        wf_cache_user_close(user);
        assert_int_equal(ctx->kept->rails[0]->mr->access & WF_HCA_RELAXED, 0);
        munmap(memory, FITS);
        wf_rdma_ctx_close(ctx);
    }
    *c = before;
}

/* Fails when: two devices could do atomics on one region, or a device that is gone could. */
static void test_atomics_of_rails(void **state)
{
    struct rdma_ctx *ctx = both_open(wf_config());
    static uint64_t words[8];
    const struct wf_nic_memory m = {words, sizeof words, NULL};
    (void)state;
    for (unsigned gone = 0; gone < 3; gone++) {
        uint32_t keys[WF_KEY_NICS] = {0};
        uint64_t at;
        void *handle;
        enum weft_status status;
        if (gone)
            atomic_store(&ctx->devices[gone - 1].gone, true);
        status = wf_rdma_region_open(ctx, &m, RW | WF_ACCESS_ATOMIC, &at, keys, &handle);
        assert_int_equal(status, gone == 2 ? WEFT_EUNREACH : WEFT_OK);
        if (status != WEFT_OK)
            continue;
        assert_true(gone ? !keys[0] && keys[1] : keys[0] && !keys[1]);
        assert_int_equal(atomic_load(&ctx->devices[gone].atomic_regions), 1);
        wf_rdma_region_close(ctx, handle);
        assert_int_equal(atomic_load(&ctx->devices[gone].atomic_regions), 0);
    }
    wf_rdma_ctx_close(ctx);
}

/* Fails when: the program's memory is not registered with all devices, or stays registered with
 * one. */
static void test_local_of_rails(void **state)
{
    struct rdma_ctx *ctx = both_open(wf_config());
    uint64_t before = used();
    struct wf_cache_user *user;
    struct wf_cached use;
    (void)state;
    OK(wf_cache_user_open(wf_staging_cache(ctx->local), &user));
    for (int i = 0; i < 2; i++) {
        size_t len = i ? 11 * MIB : FITS;
        void *memory = map(len, PROT_READ | PROT_WRITE);
        enum weft_status status = wf_cache_get(user, memory, len, &use);
        assert_int_equal(status, i ? WEFT_ELIMIT : WEFT_OK);
        if (status == WEFT_OK) {
            const struct rdma_mrs *mrs = use.handle;
            assert_true(mrs->of[0] && mrs->of[1] && mrs->of[0]->hca != mrs->of[1]->hca);
            assert_int_equal(used() - before, 2 * len);
            wf_cache_put(user, &use);
        }
        (void)wf_cache_shrink(wf_staging_cache(ctx->local), SIZE_MAX);
        assert_int_equal(used(), before);
        munmap(memory, len);
    }
    wf_cache_user_close(user);
    wf_rdma_ctx_close(ctx);
    assert_int_equal(used(), 0);
}

/* A session's channels, whose peer sends nothing. */
static struct {
    struct net_ctx ctx;
    struct rdma_net_ep ep;
    struct net_session session;
    struct net_chan chans[2];
    int others[2];
    uint64_t counters[WF_STATS];
} l;

static struct qp_link *lane_open(unsigned index, uint32_t gen)
{
    struct net_chan *chan = &l.chans[index];
    struct wf_net_conn conn = {0};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    *chan = (struct net_chan){
        .session = &l.session, .index = (uint16_t)index, .gen = gen, .path = chan->path};
    l.others[index] = fds[1];
    l.session.chans[index] = chan;
    conn.fd = fds[0];
    chan->link = wf_qp_open(chan, &conn);
    assert_non_null(chan->link);
    return wf_qp_of(chan->link);
}

static void lane_close(unsigned index)
{
    struct net_link *link = l.chans[index].link;
    l.chans[index].link = NULL;
    link->ops->close(link);
    close(l.others[index]);
    l.session.chans[index] = NULL;
}

static struct rdma_ctx *lanes_begin(void)
{
    struct rdma_ctx *ctx = both_open(wf_config());
    memset(&l, 0, sizeof l);
    pthread_mutex_init(&l.ctx.lock, NULL);
    l.ep.net.ctx = &l.ctx;
    l.ep.net.epoll_fd = -1;
    l.ep.net.base.counters = l.counters;
    OK(wf_rdma_ep_open(ctx, 0, &l.ep.rdma));
    l.session.ep = &l.ep.net;
    l.session.nchans = 2;
    return ctx;
}

static void lanes_end(struct rdma_ctx *ctx)
{
    wf_qp_chan_free(&l.chans[0]);
    wf_qp_chan_free(&l.chans[1]);
    wf_rdma_ep_close(l.ep.rdma);
    wf_rdma_ctx_close(ctx);
    pthread_mutex_destroy(&l.ctx.lock);
}

static void settle(struct qp_link *w)
{
    (void)w->base.ops->settle(&w->base, 2000000);
}

static void look(void)
{
    wf_rdma_disarm(l.ep.rdma);
    wf_rdma_look(l.ep.rdma);
}

static unsigned rail_at(unsigned index, uint32_t gen)
{
    const struct qp_link *w = lane_open(index, gen);
    unsigned rail = w->rail->number;
    lane_close(index);
    return rail;
}

/* Fails when: the two sides choose different rails; or a broken rail is chosen although another one
 * works. */
static void test_rail_of_a_connection(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w;
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        for (uint32_t gen = 1; gen < 5; gen++)
            assert_int_equal(rail_at(i, gen), (i + gen - 1) % 2);
    ctx->devices[1].hca->ports[0].active = false;
    assert_int_equal(rail_at(1, 1), 0);
    ctx->devices[1].hca->ports[0].active = true;
    atomic_store(&ctx->devices[0].gone, true);
    assert_int_equal(rail_at(0, 1), 1);
    atomic_store(&ctx->devices[1].gone, true);
    w = lane_open(0, 1);
    assert_null(w->qp);
    assert_non_null(w->plain_why);
    lane_close(0);
    lanes_end(ctx);
}

/* Fails when: queue pairs of two rails have the same name, by which the peer reports on them after
 * a failure. */
static void test_names_over_rails(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    const struct qp_link *a = lane_open(0, 1), *b = lane_open(1, 1);
    (void)state;
    assert_int_not_equal(a->rail->number, b->rail->number);
    assert_int_not_equal(wf_qp_link_name(a), wf_qp_link_name(b));
    lane_close(0);
    lane_close(1);
    lanes_end(ctx);
}

static struct qp_link *up(struct qp_link *w)
{
    w->base.chan->up = true;
    w->state = QP_UP;
    wf_qp_count_as(w, &l.ep.rdma->nup);
    return w;
}

/* Fails when: two channels stay on one rail though the other works; a channel moves to a broken
 * rail, moves while others' atomics may be in flight, or while another channel has no link; or the
 * first channel does not return to its own rail. */
static void test_better_rail(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *first = up(lane_open(0, 2)), *second = up(lane_open(1, 1));
    (void)state;
    assert_int_equal(first->rail->number, 1);
    assert_int_equal(second->rail->number, 1);
    assert_int_equal(wf_rdma_better_rail(first), 0);
    assert_int_equal(wf_rdma_better_rail(second), 0);
    atomic_store(&ctx->devices[1].atomic_regions, 1);
    assert_int_equal(wf_rdma_better_rail(second), -1);
    atomic_store(&ctx->devices[1].atomic_regions, 0);
    ctx->devices[0].hca->ports[0].active = false;
    assert_int_equal(wf_rdma_better_rail(first), -1);
    assert_int_equal(wf_rdma_better_rail(second), -1);
    ctx->devices[0].hca->ports[0].active = true;
    lane_close(1);
    second = up(lane_open(1, 2));
    assert_int_equal(second->rail->number, 0);
    assert_int_equal(wf_rdma_better_rail(second), -1);
    assert_int_equal(wf_rdma_better_rail(first), 0);
    lane_close(0);
    first = up(lane_open(0, 1));
    assert_int_equal(first->rail->number, 0);
    assert_int_equal(wf_rdma_better_rail(first), -1);
    assert_int_equal(wf_rdma_better_rail(second), 1);
    l.chans[0].link = NULL;
    assert_int_equal(wf_rdma_better_rail(second), -1);
    l.chans[0].link = &first->base;
    lane_close(0);
    lane_close(1);
    lanes_end(ctx);
}

static void move_ended(void *owner, uint32_t id, enum weft_status status, uint64_t old)
{
    (void)owner;
    (void)id;
    (void)old;
    assert_int_equal(status, WEFT_OK);
}

/* Fails when: completions of the first channel's NIC are reported, or data read, before a READ has
 * found the data in memory; or each check posts another READ. */
static void test_reads_before_reports(void **state)
{
    static const struct wf_hca_patience patience;
    static const struct wf_tep_events events = {.nic_op_done = move_ended};
    static const uint32_t keys[WF_KEY_NICS] = {1, 1};
    static uint64_t word;
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1));
    const struct wf_hca *hca = w->rail->device->hca;
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    const struct wf_nic_op put = {.local = &word, .len = 8, .keys = keys, .kind = WF_NIC_OP_PUT};
    size_t taken;
    (void)state;
    l.ep.net.base.events = &events;
    OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
    w->has_reads = true;
    assert_true(wf_qp_may_leave(w));
    OK(wf_qp_nic_op(w, &put, &taken));
    settle(w);
    assert_int_equal(w->posted, 1);
    assert_false(wf_qp_may_leave(w));
    assert_false(wf_qp_may_leave(w));
    assert_int_equal(w->posted, 2);
    settle(w);
    assert_true(wf_qp_may_leave(w));
    w->has_reads = false;
    OK(wf_qp_nic_op(w, &put, &taken));
    settle(w);
    assert_false(wf_qp_may_leave(w));
    assert_int_equal(w->posted, 3);
    lane_close(0);
    lanes_end(ctx);
}

/* Fails when: the cutover of puts is that of gets, or is not the variable's; a way is not counted;
 * the first of several requests does not end at a page boundary; or, when no more memory can be
 * registered, the NIC does nothing instead of a piece. */
static void test_ways_of_a_nic_op(void **state)
{
    static const struct {
        size_t len;
        enum wf_nic_op_kind kind;
        enum wf_stat way;
        size_t taken;
        uint64_t remote;
    } rows[] = {
        {64, WF_NIC_OP_PUT, WF_STAT_NIC_INLINE, 64},
        {65, WF_NIC_OP_PUT, WF_STAT_NIC_COPIED, 65}, /* in the descriptor */
        {64, WF_NIC_OP_GET, WF_STAT_NIC_COPIED, 64},
        {3000, WF_NIC_OP_PUT, WF_STAT_NIC_COPIED, 3000},
        {3001, WF_NIC_OP_PUT, WF_STAT_NIC_DIRECT, 3001},
        {2000, WF_NIC_OP_GET, WF_STAT_NIC_COPIED, 2000},
        {2001, WF_NIC_OP_GET, WF_STAT_NIC_DIRECT, 2001},
        /* all requests but the first begin at a page boundary of the peer's memory */
        {3 * MIB, WF_NIC_OP_PUT, WF_STAT_NIC_DIRECT, MIB - 100, 100},
        {3 * MIB - 5, WF_NIC_OP_GET, WF_STAT_NIC_DIRECT, MIB - 4095, 4096 + 4095},
        {2 * MIB, WF_NIC_OP_PUT, WF_STAT_NIC_DIRECT, MIB, 8192},
        {MIB, WF_NIC_OP_PUT, WF_STAT_NIC_DIRECT, MIB, 100},
        /* cannot be registered twice; a copy has WEFT_AM_MAX and 64 bytes */
        {11 * MIB, WF_NIC_OP_PUT, WF_STAT_NIC_COPIED, 4160},
        {11 * MIB, WF_NIC_OP_GET, WF_STAT_NIC_COPIED, 4160},
    };
    static const struct wf_hca_patience patience;
    static const struct wf_tep_events events = {.nic_op_done = move_ended};
    static const uint32_t keys[WF_KEY_NICS] = {1, 1};
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    const uint64_t put_copy = c->rdma_put_copy, get_copy = c->rdma_get_copy;
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    void *memory = map(11 * MIB, PROT_READ | PROT_WRITE);
    struct rdma_ctx *ctx;
    struct qp_link *w;
    (void)state;
    c->rdma_put_copy = 3000;
    c->rdma_get_copy = 2000;
    ctx = lanes_begin();
    w = up(lane_open(0, 1));
    l.ep.net.base.events = &events;
    OK(w->rail->device->hca->ops->qp_connect(w->qp, &w->rail->device->hca->ports[0], 0, &end,
                                             &patience));
    w->inline_max = 64;
    w->has_reads = true;
    for (size_t i = 0; i < WF_ARRAY_LEN(rows); i++) {
        const struct wf_nic_op m = {.local = memory,
                                    .len = rows[i].len,
                                    .keys = keys,
                                    .kind = (uint8_t)rows[i].kind,
                                    .remote = rows[i].remote};
        uint64_t before = l.counters[rows[i].way];
        size_t taken = 0;
        OK(wf_qp_nic_op(w, &m, &taken));
        assert_int_equal(taken, rows[i].taken);
        assert_int_equal(l.counters[rows[i].way], before + 1);
        settle(w);
    }
    lane_close(0);
    lanes_end(ctx);
    munmap(memory, 11 * MIB);
    c->rdma_put_copy = put_copy;
    c->rdma_get_copy = get_copy;
    assert_int_equal(used(), 0);
}

static void spin_ms(uint64_t ms)
{
    for (uint64_t begin = wf_now_ns(); wf_now_ns() - begin < ms * 1000000;)
        ;
}

/* Fails when: a request without a completion is not checked by a signaled one; or idle time counts
 * as time without a response. */
static void test_watch(void **state)
{
    static const struct wf_hca_patience patience;
    static const uint8_t bytes[8];
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1));
    const struct wf_hca *hca = w->rail->device->hca;
    uint64_t timeout_ms = c->peer_timeout_ms;
    (void)state;
    OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
    w->inline_max = 64;
    w->allowed = 100;
    wf_rdma_look(l.ep.rdma);
    assert_true(wf_qp_send_one(&w->base, bytes, sizeof bytes));
    wf_rdma_look(l.ep.rdma); /* posts a signaled request, */
    wf_rdma_look(l.ep.rdma); /* takes its completion */
    assert_int_equal(w->done, w->posted);
    c->peer_timeout_ms = 1;
    wf_rdma_look(l.ep.rdma);
    spin_ms(2);
    assert_true(wf_qp_send_one(&w->base, bytes, sizeof bytes));
    wf_rdma_look(l.ep.rdma);
    assert_int_equal(w->state, QP_UP);
    c->peer_timeout_ms = timeout_ms;
    lane_close(0);
    lanes_end(ctx);
}

/* Counts [n] requests as posted whose completions never come. */
static void lose_one(struct qp_link *w, int n)
{
    w->posted += (uint32_t)n;
    w->signaled = w->posted;
    w->rail->under_way += (uint32_t)n;
}

static uint64_t settled_ns(struct qp_link *w)
{
    uint64_t begin = wf_now_ns();
    wf_net_chan_settle(w->base.chan);
    return wf_now_ns() - begin;
}

/* Fails when: closing waits for each unresponsive queue pair as long as for the first, has no time
 * for a second one, or does not check the last. */
static void test_settling(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1));
    (void)state;
    l.ep.net.closing.begun = true;
    lose_one(w, 1);
    for (int i = 0; !l.ep.net.closing.settle_ns;
         i++) { /* a busy machine may use all the time, but not always */
        assert_true(i < 20);
        l.ep.net.closing.settle_ns = 40000000;
        assert_in_range(settled_ns(w), 20000000, UINT64_MAX);
    }
    for (uint64_t before; (before = l.ep.net.closing.settle_ns);) {
        (void)settled_ns(w);
        assert_true(l.ep.net.closing.settle_ns <= before - before / 2);
    }
    assert_in_range(settled_ns(w), 100000, UINT64_MAX);
    lose_one(w, -1);
    l.ep.net.closing.settle_ns = 40000000;
    (void)settled_ns(w);
    assert_int_equal(l.ep.net.closing.settle_ns, 40000000);
    lane_close(0);
    lanes_end(ctx);
}

/* Returns how many tenths of a second, fewer than 200, a closing endpoint waits for a silent queue
 * pair. */
static unsigned patience(uint32_t close_ms)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1));
    unsigned n = 0;
    l.ep.net.closing.begun = true;
    l.ep.net.closing.limit_ms = close_ms;
    lose_one(w, 1);
    look();
    for (; w->state == QP_UP && n < 200; n++) {
        w->watched_ns -= 100000000;
        look();
    }
    lose_one(w, -1);
    lane_close(0);
    lanes_end(ctx);
    return n;
}

/* Fails when: a closing endpoint does not detect a silent queue pair, or too late to send its last
 * messages by TCP; or gives up one whose NIC retransmits. A busy machine may add a second. */
static void test_closing(void **state)
{
    (void)state;
    assert_int_equal(wf_config()->peer_timeout_ms, 10000);
    assert_in_range(patience(10000), 40, 50);
    assert_in_range(patience(300), 10, 20);
    assert_in_range(patience(3600000), 90, 100);
}

/* Fails when: the end of a queue pair makes its thread, which serves all peers, wait. */
static void test_ends_without_waiting(void **state)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    __typeof__(c->rdma_srq) srq = c->rdma_srq;
    struct rdma_ctx *ctx;
    uint64_t least = UINT64_MAX;
    (void)state;
    c->rdma_srq = 0;
    ctx = lanes_begin();
    for (int i = 0; i < 20; i++) { /* a busy machine may delay some, but not all */
        uint64_t begin;
        (void)up(lane_open(0, 1));
        begin = wf_now_ns();
        lane_close(0);
        least = WF_MIN(least, wf_now_ns() - begin);
        l.chans[0].path->failures = 0; /* as if it had carried something */
    }
    assert_in_range(least, 0, 1500000);
    lanes_end(ctx);
    c->rdma_srq = srq;
}

/* Fails when: the readable descriptor of a lost device keeps waking a sleeping endpoint. */
static void test_gone_device_wakes_nobody(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct wf_hca_cq *cq = l.ep.rdma->rails[0]->cq;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), event_fd = eventfd(1, EFD_CLOEXEC);
    struct epoll_event ev;
    (void)state;
    assert_int_equal(cq->event_fd, -1); /* this device has none */
    cq->event_fd = event_fd;
    assert_true(wf_rdma_sleep_on(l.ep.rdma, epoll_fd));
    assert_int_equal(epoll_wait(epoll_fd, &ev, 1, 0), 1);
    atomic_store(&ctx->devices[0].gone, true);
    wf_rdma_look(l.ep.rdma);
    assert_int_equal(epoll_wait(epoll_fd, &ev, 1, 0), 0);
    cq->event_fd = -1;
    lanes_end(ctx);
    close(event_fd);
    close(epoll_fd);
}

/* Fails when: messages of a peer that left, behind those of others, are not all read. */
static void test_most_turns(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    const struct qp_link *w = lane_open(0, 1);
    (void)state;
    assert_true(wf_config()->poll_burst * (wf_qp_most_turns(l.ep.rdma) - QP_LINE) >=
                w->rail->cq->depth);
    lane_close(0);
    lanes_end(ctx);
}

/* Fails when: receive buffers that a queue pair with its own queue did not return are lost while
 * another queue pair of the rail is open, or are free twice. */
static void test_buffers_come_back(void **state)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    __typeof__(c->rdma_srq) srq = c->rdma_srq;
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct rdma_ctx *ctx;
        struct qp_link *of[2];
        struct rdma_rail *r;
        c->rdma_srq = shared;
        ctx = lanes_begin();
        for (unsigned i = 0; i < 2; i++)
            of[i] = up(lane_open(i, i + 1));
        r = of[0]->rail;
        assert_true(r == of[1]->rail && !r->srq == !shared);
        for (unsigned i = 0; i < 6 && !shared; i++)
            wf_qp_receive_post(of[i % 2], r->free_receives[--r->nfree_receives]);
        lane_close(0);
        assert_int_equal(r->nfree_receives, shared ? 0 : r->receives - 3);
        lane_close(1);
        assert_int_equal(r->nfree_receives, shared ? 0 : r->receives);
        lanes_end(ctx);
    }
    c->rdma_srq = srq;
}

/* Fails when: a failed queue makes its device unusable for ever; the rail opens new queues while a
 * queue pair uses the old ones, loses receive buffers, or does not pause between two attempts. */
static void test_failed_queues_are_replaced(void **state)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    __typeof__(c->rdma_srq) srq = c->rdma_srq;
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct rdma_ctx *ctx;
        struct rdma_rail *r;
        c->rdma_srq = shared;
        ctx = lanes_begin();
        r = l.ep.rdma->rails[0];
        for (unsigned turn = 1; turn <= 3; turn++) {
            struct qp_link *first = up(lane_open(0, 2 * turn - 1));
            struct qp_link *second = up(lane_open(1, 2 * turn));
            assert_true(first->rail == r && second->rail == r);
            assert_non_null(first->qp);
            atomic_store(shared && turn % 2 ? &r->srq->failed : &r->cq->failed, true);
            look();
            assert_true(r->broken && first->state == QP_FAILED && second->state == QP_FAILED);
            lane_close(0);
            assert_true(r->broken);
            r->renew_ns = 0; /* as if time had passed */
            lane_close(1);
            /* as if the connections had carried something */
            l.chans[0].path->failures = l.chans[1].path->failures = 0;
            assert_false(r->broken || wf_rdma_has_failed(r));
            assert_int_equal(r->nfree_receives, shared ? 0 : r->receives);
            assert_int_equal(r->nfree_pieces, r->pieces);
        }
        atomic_store(&r->cq->failed, true);
        look();
        assert_true(r->broken && r->renew_ns > wf_now_ns());
        assert_ptr_not_equal(lane_open(0, 7)->rail, r);
        lane_close(0);
        r->renew_ns = 0;
        assert_ptr_equal(lane_open(0, 9)->rail, r); /* the link opens them if nothing did before */
        lane_close(0);
        lanes_end(ctx);
    }
    c->rdma_srq = srq;
}

/* What the NIC reports next, in place of its own completions. */
static struct {
    struct wf_hca_ops ops;
    const struct wf_hca_ops *own;
    struct wf_hca_wc wc;
    bool is_there;
} scripted;

static int poll_scripted(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    (void)cq;
    (void)room;
    *out = scripted.wc;
    return scripted.is_there;
}

/* A receive of [r] completes with [wc]. */
static void completes(struct rdma_rail *r, struct wf_hca_wc wc)
{
    uint32_t b = r->free_receives[--r->nfree_receives];
    r->holders[b] = !r->srq; /* a queue pair has it */
    wc.id = QP_RECEIVED | b;
    wc.kind = WF_HCA_WC_RECEIVED;
    wc.len = 100;
    scripted.wc = wc;
    scripted.is_there = true;
    assert_int_equal(wf_qp_completions_take(r), 1);
    scripted.is_there = false;
}

/* Messages arrive by closed queue pairs, in all buffers but the first [missing]. */
static void come_round(struct rdma_rail *r, uint32_t missing)
{
    for (uint32_t b = missing; b < r->receives; b++) {
        scripted.wc = (struct wf_hca_wc){.id = QP_RECEIVED | b, .status = WF_HCA_FLUSHED};
        scripted.is_there = true;
        assert_int_equal(wf_qp_completions_take(r), 1);
        scripted.is_there = false;
        r->nfree_receives = 0; /* it is posted again */
    }
}

static void script_begin(const struct rdma_rail *r)
{
    scripted.own = r->device->hca->ops;
    scripted.ops = *scripted.own;
    scripted.ops.poll = poll_scripted;
    r->device->hca->ops = &scripted.ops;
}

/* Fails when: buffers of a shared receive queue that the NIC has kept are lost for as long as some
 * queue pair of the rail is open, or a rail that has its buffers is made anew. */
static void test_worn_rail(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(1, 2));
    struct rdma_rail *r = w->rail;
    uint32_t quarter = r->receives / 4;
    (void)state;
    script_begin(r);
    for (int lost = 0; lost < 2; lost++) {
        r->counts = false;
        r->doubtful = quarter; /* as if so many queue pairs had broken */
        for (unsigned turn = 0; turn < 5; turn++) {
            assert_false(r->worn);
            (void)up(lane_open(0, 1));
            lane_close(0);
            l.chans[0].path->failures = 0; /* as if it had carried something */
            come_round(r, lost ? quarter + 1 : 0);
        }
        assert_int_equal(r->worn, lost);
        assert_true(lost || r->doubtful < quarter); /* the count has settled the others */
    }
    assert_true(wf_rdma_is_worn(l.ep.rdma) && w->state == QP_UP);
    assert_ptr_not_equal(lane_open(0, 1)->rail, r); /* the other rail has its buffers */
    lane_close(0);
    lane_close(1);
    assert_false(r->worn || r->doubtful || r->nfree_receives);
    r->device->hca->ops = scripted.own;
    assert_ptr_equal(lane_open(0, 1)->rail, r);
    lane_close(0);
    lanes_end(ctx);
}

/* Returns whether a thread that goes to sleep now is woken for a look within [s] seconds. */
static bool looks_within(unsigned s)
{
    struct itimerspec left;
    assert_true(wf_rdma_arm(l.ep.rdma));
    assert_int_equal(timerfd_gettime(l.ep.rdma->timer_fd, &left), 0);
    wf_rdma_disarm(l.ep.rdma);
    return left.it_value.tv_sec < s || (left.it_value.tv_sec == s && !left.it_value.tv_nsec);
}

/* Fails when: many queue pairs that die wear a rail by which messages of others arrive; or a rail
 * of which the NIC has kept all buffers, so that nothing arrives by which they could be counted, is
 * not worn within two seconds. */
static void test_rail_without_buffers(void **state)
{
    const uint64_t second = 1000000000;
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(1, 2));
    struct rdma_rail *r = w->rail;
    (void)state;
    script_begin(r);
    r->doubtful = r->receives - 1; /* as if so many queue pairs had broken */
    for (unsigned turn = 0; turn < 5; turn++) {
        (void)up(lane_open(0, 1));
        lane_close(0);
        l.chans[0].path->failures = 0; /* as if it had carried something */
        assert_false(r->worn);
        assert_true(r->doubtful >= r->receives && r->quiet_ns);
        r->quiet_ns -= 3 * second; /* as if that much time had passed */
        come_round(r, r->receives - 1);
        look();
        assert_false(r->worn);
    }
    assert_true(looks_within(1));
    r->quiet_ns -= second;
    look();
    assert_true(r->worn);
    lane_close(1);
    assert_false(r->worn || r->doubtful || r->nfree_receives || r->quiet_ns);
    r->device->hca->ops = scripted.own;
    lanes_end(ctx);
}

/* Fails when: a channel connects again at the same pace for as long as its rail is worn, or keeps
 * the long pauses once it has a queue pair. */
static void test_pauses_of_a_worn_rail(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        l.ep.rdma->rails[i]->worn = true;
    for (unsigned turn = 0; turn < 8; turn++) {
        uint64_t want = WF_MIN(UINT64_C(500000000) << turn, UINT64_C(10000000000)), now, until;
        assert_null(lane_open(0, turn + 1)->qp);
        assert_true(l.chans[0].path->next_rail);
        now = wf_now_ns();
        wf_rdma_retry_plain(l.chans[0].path);
        until = l.chans[0].path->retry_ns;
        assert_true(until >= now + want && until <= wf_now_ns() + want);
        l.chans[0].path->next_rail = false; /* as when it connects again */
        lane_close(0);
    }
    for (unsigned i = 0; i < 2; i++)
        l.ep.rdma->rails[i]->worn = false;
    assert_non_null(lane_open(0, 9)->qp);
    assert_int_equal(l.chans[0].path->waits, 0);
    lane_close(0);
    lanes_end(ctx);
}

static void comes_in(struct rdma_rail *r, const struct qp_link *w, uint32_t number, bool is_write)
{
    uint32_t imm = wf_qp_imm(wf_qp_imm_name(wf_qp_link_name(w)), number);
    completes(r, (struct wf_hca_wc){
                     .qp = w->qp->number, .imm = imm, .has_imm = true, .is_write = is_write});
}

static void fails(struct rdma_rail *r, const struct qp_link *w, enum wf_hca_status why)
{
    completes(r, (struct wf_hca_wc){.qp = w->qp->number, .status = (uint8_t)why});
}

/* Completions that follow SENDs 254, 255 and 256. */
static void comes_last(struct rdma_rail *r, const struct qp_link *w, unsigned turn)
{
    switch (turn) {
    case 0: comes_in(r, w, 258, false); break; /* 257 is missing */
    case 1: comes_in(r, w, 258, true); break;  /* the same, and a grant comes */
    case 2: comes_in(r, w, 256, false); break; /* twice */
    case 3: fails(r, w, WF_HCA_REMOTE_FAULT); break;
    default: fails(r, w, WF_HCA_OK); /* no immediate */
    }
}

static void missing_send(unsigned turn)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1)), *other = up(lane_open(1, 2));
    struct rdma_rail *r = w->rail;
    uint32_t had = r->nfree_receives;
    uint8_t bytes[300];
    struct iovec v = {bytes, sizeof bytes};
    assert_ptr_equal(other->rail, r);
    script_begin(r);
    w->line_head = w->line_tail = 254;
    w->is_connected = true;
    for (uint32_t i = 254; i < 257; i++)
        comes_in(r, w, i, false);
    comes_in(r, w, 257, true);
    fails(r, w, WF_HCA_FLUSHED);
    assert_true(w->state == QP_UP && w->line_tail == 257);
    comes_last(r, w, turn);
    assert_true(w->state == QP_FAILED && other->state == QP_UP && !w->is_connected);
    comes_in(r, w, 259, false);
    assert_int_equal(w->line_tail, 257);
    assert_int_equal(r->nfree_receives, had - 4);        /* the grant's is posted again */
    assert_int_equal(wf_qp_recvv(&w->base, &v, 1), 300); /* bytes before the gap are read */
    assert_int_equal(wf_qp_recvv(&w->base, &v, 1), -1);
    r->device->hca->ops = scripted.own;
    lane_close(0);
    lane_close(1);
    lanes_end(ctx);
}

/* Fails when: bytes behind a lost SEND are read; those before it are not; a failed receive leaves
 * its link open, or any of these failures ends another link. */
static void test_missing_send(void **state)
{
    struct wf_config *c = (struct wf_config *)(uintptr_t)wf_config();
    __typeof__(c->rdma_srq) srq = c->rdma_srq;
    (void)state;
    c->rdma_srq = 0; /* so that receive buffers are free */
    for (unsigned turn = 0; turn < 5; turn++)
        missing_send(turn);
    c->rdma_srq = srq;
}

static uint32_t posted_imm[16];
static unsigned nposted;

static unsigned post_noted(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    (void)qp;
    for (unsigned i = 0; i < n; i++) {
        assert_true(nposted < WF_ARRAY_LEN(posted_imm));
        posted_imm[nposted++] = list[i].imm;
    }
    return n;
}

/* Fails when: SENDs are not numbered in the order of posting, or the immediate's layout differs
 * from docs/protocol.md. */
static void test_sends_are_numbered(void **state)
{
    static const uint8_t bytes[3 * QP_BUFFER];
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1));
    struct iovec v = {(void *)(uintptr_t)bytes, 2 * QP_BUFFER + 1};
    (void)state;
    w->post = post_noted;
    w->qp->mtu = 1024;
    w->inline_max = 64;
    w->allowed = 300;
    w->sends = 254;
    w->their_imm = wf_qp_imm_name(0xfffe3ffdu);
    nposted = 0;
    assert_true(wf_qp_send_one(&w->base, bytes, 8));
    assert_int_equal(wf_qp_sendv(&w->base, &v, 1, v.iov_len, 0), v.iov_len);
    w->taken = w->granted; /* all was used: a grant is due */
    wf_qp_grant(w);
    assert_true(wf_qp_send_one(&w->base, bytes, 8));
    assert_int_equal(nposted, 6);
    for (unsigned i = 0; i < nposted; i++)
        assert_int_equal(posted_imm[i],
                         (uint32_t)((254 + i - (i == 5)) & 0xff) << 24 | 0x3feu << 14 | 0x3ffdu);
    lane_close(0);
    lanes_end(ctx);
}

/* Fails when: a completion is processed behind one that an overflow of the queue lost. */
static void test_nothing_after_a_loss(void **state)
{
    static const struct wf_hca_patience patience;
    static const uint8_t bytes[8];
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = up(lane_open(0, 1));
    struct rdma_rail *r = w->rail;
    const struct wf_hca *hca = r->device->hca;
    (void)state;
    OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
    w->inline_max = 64;
    w->allowed = 100;
    w->closing = true; /* each request reports its completion */
    assert_true(wf_qp_send_one(&w->base, bytes, sizeof bytes));
    atomic_store(&r->cq->failed, true);
    /* a whole queue may have been there before the loss */
    r->unchecked = r->cq->depth - 1;
    assert_int_equal(wf_qp_completions_take(r), 1);
    assert_true(w->done == 1 && w->state == QP_UP);
    assert_true(wf_qp_send_one(&w->base, bytes, sizeof bytes));
    assert_int_equal(wf_qp_completions_take(r), -1);
    assert_true(w->done == 1 && w->state == QP_FAILED);
    lane_close(0);
    lanes_end(ctx);
}

static struct {
    unsigned moved, unreached, puts, lost;
} reports;

static void move_done(void *owner, uint32_t id, enum weft_status status, uint64_t old)
{
    (void)owner;
    (void)id;
    (void)old;
    reports.moved++;
    reports.unreached += status == WEFT_EUNREACH;
}

static void puts_done(void *owner, struct wf_tpeer *tpeer, uint32_t n)
{
    (void)owner;
    (void)tpeer;
    reports.puts += n;
}

static void puts_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused)
{
    (void)owner;
    (void)tpeer;
    assert_false(refused);
    reports.lost += n;
}

/* Begins a put of 8 bytes, as the core does. */
static bool short_put(struct wf_tpeer *tpeer, struct wf_put_window *w)
{
    static const uint64_t word;
    if (w->room <= 0 && !wf_rdma_put_open(tpeer, w, 64, sizeof word))
        return false;
    assert_true(w->room > 0 && w->len_max >= sizeof word);
    w->room--;
    return w->put(w, 0, &word, sizeof word, 1) == WEFT_PENDING;
}

/* The link breaks, and the peer reports none of the requests in flight. */
static void lane_break(struct qp_link *w)
{
    const struct rdma_rail *r = w->rail;
    settle(w);
    assert_int_equal(w->state, QP_FAILED);
    lane_close(0);
    wf_qp_broken_free(l.chans[0].path, true);
    assert_int_equal(r->under_way, 0);
}

/* Fails when: on a channel with READs behind long puts a request is reported as done that failed,
 * or that followed a failed one: the oldest in flight, if it, or the last request of its slot, was
 * a READ with none before it. */
static void test_reports_after_break(void **state)
{
    static const struct wf_hca_patience patience;
    static const struct wf_tep_events events = {
        .nic_op_done = move_done, .put_done = puts_done, .put_lost = puts_lost};
    static const uint32_t keys[WF_KEY_NICS] = {1, 1};
    static uint8_t bytes[QP_OP_SHORT + 1];
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    const struct wf_nic_op put = {
        .local = bytes, .len = sizeof bytes, .keys = keys, .kind = WF_NIC_OP_PUT};
    const struct wf_nic_op little = {.local = bytes, .len = 8, .keys = keys, .kind = WF_NIC_OP_PUT};
    struct rdma_ctx *ctx = lanes_begin();
    struct net_peer peer = {.session = &l.session};
    struct wf_put_window window = {.room = 0};
    size_t taken;
    (void)state;
    l.ep.net.base.events = &events;
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        struct qp_link *w = lane_open(0, 1);
        const struct wf_hca *hca = w->rail->device->hca;
        memset(&reports, 0, sizeof reports);
        OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
        w->has_reads = true;
        w->state = w->puts = QP_UP;
        for (uint32_t i = 0; i < w->depth; i++) { /* each slot has had both kinds */
            OK(wf_qp_nic_op(w, i == w->depth / 2 || is_asked ? &little : &put, &taken));
            settle(w);
        }
        assert_int_equal(reports.moved, w->depth);
        assert_int_equal(wf_qp_may_leave(w), !is_asked);
        settle(w);
        if (is_asked) {
            OK(wf_qp_nic_op(w, &little, &taken));
            settle(w);
        }
        reports.moved = 0;
        OK(hca->ops->qp_break(w->qp));
        if (is_asked) { /* a READ, and a put behind it */
            assert_false(wf_qp_may_leave(w));
            OK(wf_qp_nic_op(w, &put, &taken));
        }
        assert_true(short_put(&peer.base, &window));
        lane_break(w);
        assert_int_equal(reports.moved, is_asked);
        assert_int_equal(reports.unreached, is_asked);
        assert_int_equal(reports.puts, 0);
        assert_int_equal(reports.lost, 1);
    }
    lanes_end(ctx);
}

static struct {
    unsigned taken, done, lost;
} during;

static void put_again(void *owner, struct wf_tpeer *tpeer, uint32_t n)
{
    struct wf_put_window another;
    (void)owner;
    during.done += n;
    during.taken += wf_rdma_put_open(tpeer, &another, 1, 8);
}

static void put_lost_during(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused)
{
    (void)owner;
    (void)tpeer;
    (void)refused;
    during.lost += n;
}

static void they_send(const struct qp_msg *msg)
{
    uint8_t bytes[QP_MSG_SIZE];
    size_t n = wf_qp_msg_write(msg, bytes);
    assert_int_equal(write(l.others[0], bytes, n), n);
}

/* Prepares the channel for a link. */
static void chan_prepare(struct net_chan *chan)
{
    static uint64_t counters[512];
    static uint8_t ring[4096];
    l.ep.net.base.counters = counters;
    chan->ring = ring;
    chan->mask = sizeof ring - 1;
    wf_list_init(&l.ep.net.dirty);
    wf_list_init(&l.ep.net.live);
    wf_list_init(&chan->live);
    wf_list_init(&chan->dirty);
}

/* Fails when: the new link takes short puts while those of the broken one are still reported. The
 * core ends puts in their order, so a lost put would end as done. */
static void test_put_during_report(void **state)
{
    static const struct wf_hca_patience patience;
    static const struct wf_tep_events events = {.put_done = put_again, .put_lost = put_lost_during};
    struct wf_put_window window = {.room = 0};
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    struct rdma_ctx *ctx = lanes_begin();
    struct net_peer peer = {.session = &l.session};
    struct qp_link *w = up(lane_open(0, 1));
    const struct wf_hca *hca = w->rail->device->hca;
    struct qp_msg ends = {
        .kind = QP_MSG_ENDS, .end = {.qp = 1, .mtu = 1024, .reads = 3}, .window = QP_WINDOW};
    (void)state;
    memset(&during, 0, sizeof during);
    l.ep.net.base.events = &events;
    OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
    w->puts = QP_UP;
    OK(hca->ops->qp_break(w->qp));
    for (int i = 0; i < 2; i++)
        assert_true(short_put(&peer.base, &window));
    ends.acked = (struct qp_acked){wf_qp_link_name(w), (w->psn_done + 1) & PSN_MASK};
    lane_close(0);
    w = lane_open(0, 3);
    chan_prepare(&l.chans[0]);
    ends.end.link = w->port.link;
    l.chans[0].link->ops->start(l.chans[0].link);
    they_send(&ends);
    they_send(&(struct qp_msg){.kind = QP_MSG_READY, .acked.psn = PSN_NONE});
    wf_qp_look(&l.chans[0]);
    assert_int_equal(w->puts, QP_UP);
    assert_int_equal(during.done, 1);
    assert_int_equal(during.lost, 1);
    assert_int_equal(during.taken, 0);
    lane_close(0);
    lanes_end(ctx);
}

/* ---- runs of short puts ---- */

/* The requests under way, oldest first: the two windows' puts, and NIC operations by their ids. */
static struct {
    struct wf_put_window window[2];
    struct net_peer peer[2];
    uint32_t due[1024], head, tail; /* 0 or 1: a put; else an id */
    uint32_t certain;               /* the broken link: executed requests, the oldest */
    uint32_t broken; /* those from here on in [due] were posted to a broken queue pair */
    uint32_t done, lost, refused;
    const struct qp_link *link;
} runs;

static void runs_next(uint32_t what, bool done)
{
    assert_int_not_equal(runs.head, runs.tail);
    assert_true(!runs.link || !runs.link->window || wf_qp_in_flight(runs.link));
    assert_true(!done || runs.head < runs.broken);
    assert_int_equal(runs.due[runs.head++ % 1024], what);
    runs.done += done;
    runs.lost += !done;
    if (!done)
        assert_int_equal(runs.certain, 0);
    else if (runs.certain != UINT32_MAX)
        assert_true(runs.certain-- > 0);
}

static void runs_put_done(void *owner, struct wf_tpeer *tpeer, uint32_t n)
{
    (void)owner;
    while (n--)
        runs_next(tpeer == &runs.peer[1].base, true);
}

static void runs_put_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused)
{
    (void)owner;
    assert_int_equal(n, 1);
    runs.refused += refused;
    runs_next(tpeer == &runs.peer[1].base, false);
}

static void runs_op_done(void *owner, uint32_t id, enum weft_status status, uint64_t old)
{
    (void)owner;
    (void)old;
    assert_true(status == WEFT_OK || status == WEFT_EUNREACH);
    runs_next(id, status == WEFT_OK);
}

static unsigned refuse(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    (void)qp;
    (void)list;
    (void)n;
    return 0;
}

static void runs_check(const struct qp_link *w)
{
    uint32_t reserved = w->window ? w->run_end - w->posted : 0;
    assert_int_equal(w->rail->under_way, wf_qp_in_flight(w) + reserved);
    assert_true(!w->window || (w->state == QP_UP && wf_qp_in_flight(w) && wf_qp_is_told(w) &&
                               w->run_end - w->run >= w->posted - w->run));
    assert_true(wf_qp_in_flight(w) + reserved <= (reserved ? w->most : w->depth));
    for (int i = 0; i < 2; i++)
        assert_true(runs.window[i].room <= 0 ||
                    (w->window == &runs.window[i] && (uint32_t)runs.window[i].room <= reserved));
    if (w->state == QP_UP && runs.head != runs.tail &&
        runs.broken == UINT32_MAX) /* a later poll reports the rest */
        assert_true(wf_qp_is_told(w));
}

static void runs_step(struct qp_link *w)
{
    static const uint32_t keys[WF_KEY_NICS] = {1, 1};
    static uint64_t word;
    static uint32_t id = 2;
    struct wf_nic_op op = {.local = &word, .len = 8, .keys = keys, .kind = WF_NIC_OP_PUT};
    unsigned which = rand() % 16, i = which % 2;
    size_t taken;
    if (which < 10) { /* a few puts by one of the windows */
        for (int n = 1 + rand() % (which < 6 ? 3 : 40); n--;)
            if (short_put(&runs.peer[i].base, &runs.window[i]))
                runs.due[runs.tail++ % 1024] = i;
            else
                break;
    } else if (which == 10) {
        op.id = id = WF_MAX(id + 1, 2u);
        runs.due[runs.tail % 1024] = id;
        runs.tail += wf_qp_nic_op(w, &op, &taken) == WEFT_OK;
    } else if (which == 11) {
        wf_qp_ask(w);
    } else if (which == 12) {
        runs.window[i].room = 0; /* as the core may */
    } else {
        w->rail->burst = 1 + (uint32_t)rand() % 3;
        (void)(which == 13 ? wf_qp_rail_poll(w->rail) : wf_qp_completions_take(w->rail));
    }
    runs_check(w);
}

static void runs_end(struct qp_link *w, unsigned how)
{
    struct net_path *path = w->path;
    struct qp_acked acked = {.psn = PSN_NONE};
    if (how == 1 || how == 2)
        runs.broken = runs.tail;
    if (how == 1)
        OK(w->rail->device->hca->ops->qp_break(w->qp));
    if (how == 2)
        w->post = refuse;
    for (int i = 0; i < 4 && how; i++)
        if (w->state == QP_UP && short_put(&runs.peer[i % 2].base, &runs.window[i % 2]))
            runs.due[runs.tail++ % 1024] = i % 2;
    assert_true(how != 2 || w->state == QP_FAILED || wf_qp_in_flight(w) >= w->most);
    runs_check(w);
    for (int i = rand() % 4; i--;)
        (void)wf_qp_completions_take(w->rail);
    runs.link = NULL;
    lane_close(0);
    assert_true(runs.window[0].room <= 0 && runs.window[1].room <= 0);
    runs.certain = 0;
    if (path->broken && rand() % 2) {
        assert_ptr_equal(path->broken, w);
        runs.certain = (uint32_t)rand() % (w->posted - w->done + 1);
        runs.broken = UINT32_MAX;
        acked = (struct qp_acked){wf_qp_link_name(w), (w->psn_done + runs.certain) & PSN_MASK};
        for (uint32_t i = 0, n = runs.certain; i < n; i++) /* other requests are not reported */
            runs.certain -= !wf_qp_request_at(w, w->done + i)->put &&
                            !wf_qp_request_at(w, w->done + i)->is_nic_op;
    }
    wf_qp_broken_reached(path, &acked);
    wf_qp_broken_free(path, true);
    assert_int_equal(runs.head, runs.tail);
}

/* Fails when: a put is reported twice, never, out of order, to another peer, or as done although it
 * was not; a window offers room that its link or rail lacks, or after the link has failed; or the
 * count of requests in flight is too high. */
static void test_runs(void **state)
{
    static const struct wf_hca_patience patience;
    static const struct wf_tep_events events = {
        .nic_op_done = runs_op_done, .put_done = runs_put_done, .put_lost = runs_put_lost};
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    struct rdma_ctx *ctx = lanes_begin();
    (void)state;
    memset(&runs, 0, sizeof runs);
    srand(1);
    l.ep.net.base.events = &events;
    for (unsigned round = 0; round < 600; round++) {
        struct qp_link *w = lane_open(0, 1);
        const struct rdma_rail *r = w->rail;
        const struct wf_hca *hca = r->device->hca;
        w->path->failures = 0;
        OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
        w->has_reads = true;
        w->state = w->puts = QP_UP;
        w->posted = w->done = w->signaled = w->last_nic_op = round % 3 ? round : 0u - round;
        runs.certain = runs.broken = UINT32_MAX;
        runs.link = w;
        for (int i = 0; i < 2; i++)
            runs.peer[i].session = &l.session;
        for (int steps = 1 + rand() % 80; steps--;)
            runs_step(w);
        runs_end(w, round % 4);
        assert_int_equal(r->under_way, 0);
    }
    assert_true(runs.done > 100 && runs.lost > 100 && !runs.refused);
    lanes_end(ctx);
}

/* ---- short puts to many peers ---- */

enum { MANY = 200 };

static struct {
    struct net_chan chan;
    struct net_session session;
    struct net_peer peer;
    struct wf_put_window window;
    int other; /* the other end of the link's socket */
} many[MANY];

static struct qp_link *many_link(int i)
{
    return wf_qp_of(many[i].chan.link);
}

static void many_open(int i)
{
    static const struct wf_hca_patience patience;
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    struct wf_net_conn conn = {0};
    struct qp_link *w;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    many[i].other = fds[1];
    conn.fd = fds[0];
    many[i].session = (struct net_session){.ep = &l.ep.net, .nchans = 1};
    many[i].session.chans[0] = &many[i].chan;
    many[i].chan = (struct net_chan){.session = &many[i].session, .gen = 1};
    wf_list_init(&many[i].chan.dirty);
    many[i].chan.link = wf_qp_open(&many[i].chan, &conn);
    many[i].peer.session = &many[i].session;
    w = many_link(i);
    OK(w->rail->device->hca->ops->qp_connect(w->qp, &w->rail->device->hca->ports[0], 0, &end,
                                             &patience));
    w->state = w->puts = QP_UP;
    w->allowed = 1000;
}

static void many_close(int i)
{
    struct net_link *link = many[i].chan.link;
    struct net_path *path = many_link(i)->path;
    many[i].chan.link = NULL;
    link->ops->close(link);
    close(many[i].other);
    wf_qp_broken_free(path, true);
    wf_qp_chan_free(&many[i].chan);
}

static unsigned many_done;

static void many_put_done(void *owner, struct wf_tpeer *tpeer, uint32_t n)
{
    (void)owner;
    (void)tpeer;
    many_done += n;
}

/* Fails when: a put to each of many peers leaves no room for a message to each, although few
 * requests are under way. */
static void test_many_peers(void **state)
{
    static const struct wf_tep_events events = {.put_done = many_put_done};
    struct rdma_ctx *ctx = lanes_begin();
    struct rdma_rail *r;
    (void)state;
    many_done = 0;
    memset(&many, 0, sizeof many);
    wf_list_init(&l.ep.net.dirty);
    l.ep.net.base.events = &events;
    for (int i = 0; i < MANY; i++)
        many_open(i);
    r = many_link(0)->rail;
    for (int i = 0; i < MANY; i++)
        assert_true(short_put(&many[i].peer.base, &many[i].window));
    assert_true(r->under_way < QP_UNDER_WAY / 2);
    for (int i = 0; i < MANY; i++)
        assert_true(wf_qp_send_one(many[i].chan.link, "message", 8));
    while (wf_qp_rail_poll(r) > 0)
        ;
    for (int i = 0; i < MANY; i++)
        many_close(i);
    assert_int_equal(many_done, MANY);
    assert_int_equal(r->under_way, 0);
    lanes_end(ctx);
}

static struct wf_hca_wc runs_wc;

static int runs_poll(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    int n = runs_wc.qp ? 1 : 0;
    (void)cq;
    (void)room;
    *out = runs_wc;
    runs_wc.qp = 0;
    return n;
}

/* Fails when: after the peer's NIC refuses a put in a run, another one counts as refused, or
 * earlier puts are not done. */
static void test_refused_within_a_run(void **state)
{
    static const struct wf_hca_patience patience;
    static const struct wf_tep_events events = {
        .nic_op_done = runs_op_done, .put_done = runs_put_done, .put_lost = runs_put_lost};
    const struct wf_hca_end end = {.qp = 1, .mtu = 1024};
    struct rdma_ctx *ctx = lanes_begin();
    struct qp_link *w = lane_open(0, 1);
    struct net_path *path = w->path;
    struct wf_hca *hca = w->rail->device->hca;
    const struct wf_hca_ops *ops = hca->ops;
    struct wf_hca_ops mine = *ops;
    (void)state;
    memset(&runs, 0, sizeof runs);
    runs.certain = runs.broken = UINT32_MAX;
    l.ep.net.base.events = &events;
    OK(hca->ops->qp_connect(w->qp, &hca->ports[0], 0, &end, &patience));
    w->state = w->puts = QP_UP;
    runs.peer[0].session = &l.session;
    for (runs.tail = 0; runs.tail < 9; runs.tail++)
        assert_true(short_put(&runs.peer[0].base, &runs.window[0]));
    mine.poll = runs_poll;
    hca->ops = &mine;
    runs_wc = (struct wf_hca_wc){
        .id = w->id_base | 5, .qp = w->qp->number, .status = WF_HCA_REMOTE_ACCESS};
    assert_int_equal(wf_qp_completions_take(w->rail), 1);
    assert_true(w->state == QP_FAILED && w->is_refused && w->refused == 5);
    assert_int_equal(runs.done, 5);
    lane_close(0);
    hca->ops = ops;
    runs.certain = 0;
    wf_qp_broken_free(path, true);
    assert_int_equal(runs.lost, 4);
    assert_int_equal(runs.refused, 1);
    lanes_end(ctx);
}

/* Fails when: a side that sent PLAIN first does not receive the peer's first message, or does not
 * pass the channel to the socket then. */
static void test_plain_first(void **state)
{
    struct rdma_ctx *ctx = lanes_begin();
    struct net_chan *chan = &l.chans[0];
    struct net_link *before;
    struct {
        struct wf_net_frame frame;
        struct wf_net_sync sync;
    } sync = {{.kind = WF_NET_SYNC, .len = sizeof sync.sync}, {.session = 9}};
    uint8_t bytes[512];
    (void)state;
    l.ep.net.closing = (struct net_closing){.begun = true, .limit_ms = 1000};
    (void)lane_open(0, 1);
    chan_prepare(chan);
    l.ep.net.rx = aligned_alloc(64, NET_RX_SIZE);
    l.ep.net.nlive = 1;
    wf_list_append(&l.ep.net.live, &chan->live);
    before = chan->link;
    before->is_last = true;
    before->ops->start(before);
    assert_true(chan->up);
    assert_int_equal(l.ep.rdma->nshaking, 1);
    they_send(&(struct qp_msg){.kind = QP_MSG_ENDS,
                               .acked.psn = PSN_NONE,
                               .end = {.qp = 1, .mtu = 1024, .reads = 3},
                               .window = QP_WINDOW});
    wf_qp_look(chan);
    assert_ptr_not_equal(chan->link, before);
    assert_null(wf_qp_link_of(chan));
    assert_int_equal(l.ep.rdma->nshaking, 0);
    assert_true(chan->link->is_last);
    assert_int_equal(write(l.others[0], &sync, sizeof sync), sizeof sync);
    wf_qp_look(chan);
    assert_true(chan->synced);
    assert_true(recv(l.others[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0);
    wf_list_remove(&chan->live);
    wf_list_remove(&chan->dirty);
    lane_close(0);
    free(l.ep.net.rx);
    lanes_end(ctx);
}

/* ---- dma-bufs ---- */

/* Fails when: a NIC that registers dma-bufs does not use one, another NIC pins it, or a file is not
 * registered like any mapped memory. */
static void test_ways_of_a_dmabuf(void **state)
{
    struct wf_dmabuf d;
    struct rdma_ctx *ctx;
    int fd = memfd_create("weft-test-dmabuf", MFD_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && !ftruncate(fd, (off_t)FITS));
    OK(wf_dmabuf_open(fd, 4096 + 8, MIB, true, &d));
    assert_false(d.is_real);
    OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &ctx));
    for (int is_real = 0; is_real < 2; is_real++) {
        const struct wf_nic_memory m = {d.base, d.len, &d};
        bool there = has_paging() || !is_real; /* the device with the one has the other */
        uint64_t before = used(), at = 0;
        enum weft_status status;
        uint32_t keys[WF_KEY_NICS];
        void *handle;
        d.is_real = is_real;
        status = wf_rdma_region_open(ctx, &m, RW, &at, keys, &handle);
        assert_int_equal(status, there ? WEFT_OK : WEFT_EUNREACH);
        assert_int_equal(at % 4096, 8);
        assert_int_equal(used() - before, there && !has_paging() ? MIB : 0);
        if (there)
            wf_rdma_region_close(ctx, handle);
        assert_int_equal(used(), before);
    }
    wf_rdma_ctx_close(ctx);
    wf_dmabuf_close(&d);
    close(fd);
}

/* Fails when: a hole, or memory that may not be written, is not detected. */
static void test_what_can_be_written(void **state)
{
    uint8_t *p = map(4 * 4096, PROT_READ | PROT_WRITE);
    uintptr_t at = (uintptr_t)p;
    (void)state;
    assert_true(wf_maps_can_write(at, at + 4 * 4096));
    assert_int_equal(mprotect(p + 4096, 4096, PROT_READ), 0);
    assert_false(wf_maps_can_write(at, at + 4 * 4096));
    assert_true(wf_maps_can_write(at, at + 4096));
    assert_true(wf_maps_can_write(at + 2 * 4096, at + 4 * 4096));
    assert_int_equal(munmap(p + 4096, 4096), 0);
    assert_false(wf_maps_can_write(at, at + 4 * 4096));
    munmap(p, 4 * 4096);
}

/* The environment decides: meson.build has the variants. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_gid_follows_the_table),
        cmocka_unit_test(test_named_gid_stays),
        cmocka_unit_test(test_mtu_is_lowered_only),
        cmocka_unit_test(test_gid_text),
        cmocka_unit_test(test_regions_on_demand),
        cmocka_unit_test(test_local_on_demand),
        cmocka_unit_test(test_region_where_cached_was),
        cmocka_unit_test(test_rails_by_name),
        cmocka_unit_test(test_regions_of_rails),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_rail_of_a_connection),
        cmocka_unit_test(test_names_over_rails),
        cmocka_unit_test(test_better_rail),
        cmocka_unit_test(test_reads_before_reports),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_settling),
        cmocka_unit_test(test_closing),
        cmocka_unit_test(test_ends_without_waiting),
        cmocka_unit_test(test_gone_device_wakes_nobody),
        cmocka_unit_test(test_most_turns),
        cmocka_unit_test(test_buffers_come_back),
        cmocka_unit_test(test_worn_rail),
        cmocka_unit_test(test_rail_without_buffers),
        cmocka_unit_test(test_pauses_of_a_worn_rail),
        cmocka_unit_test(test_failed_queues_are_replaced),
        cmocka_unit_test(test_missing_send),
        cmocka_unit_test(test_sends_are_numbered),
        cmocka_unit_test(test_nothing_after_a_loss),
        cmocka_unit_test(test_reports_after_break),
        cmocka_unit_test(test_put_during_report),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_many_peers),
        cmocka_unit_test(test_refused_within_a_run),
        cmocka_unit_test(test_plain_first),
        cmocka_unit_test(test_atomics_of_rails),
        cmocka_unit_test(test_local_of_rails),
        cmocka_unit_test(test_ways_of_a_nic_op),
        cmocka_unit_test(test_what_can_be_written),
        cmocka_unit_test(test_ways_of_a_dmabuf),
    };
    test_debug("nullnic");
    setenv("WEFT_RDMA_DEVICE", "null1", 0);
    setenv("WEFT_TRANSPORTS", "loop,rdma", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    setenv("WEFT_RDMA_RECEIVES", "64", 1);
    setenv("WEFT_PINNED", LIMIT, 1);
    assert_int_equal(wf_config_init(), WEFT_OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
