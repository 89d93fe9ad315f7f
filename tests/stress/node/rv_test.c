/* SPDX-License-Identifier: BSD-3-Clause */
/* weft/node.h with services that are processes, on null NICs: what happens when a service ends, and
 * what two processes or a forked child may do. The library starts the service that is beside it.
 *
 *   rv_test
 *   rv_test DEVICE    on a device that moves bytes: writes, also while services die */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/node.h>

#include "contract/support.h"
#include "stress/kill/proc.h"

#define LEN ((size_t)65536)
#define RW (WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE)

static const char key[] = "the key of the rv test";
static char *memory;

static struct weft_node_params params_of(void)
{
    struct weft_node_params p = WEFT_NODE_PARAMS_INIT;
    p.key = key;
    p.key_len = sizeof key;
    return p;
}

static struct weft_node *node_open(void)
{
    const struct weft_node_params p = params_of();
    struct weft_node *node;
    CHECK_STATUS(weft_node_open(&p, &node), WEFT_OK);
    return node;
}

static struct weft_node_info info_of(struct weft_node *node)
{
    struct weft_node_info info;
    CHECK_STATUS(weft_node_query(node, &info), WEFT_OK);
    return info;
}

static struct weft_node_mr mr_open(struct weft_node *node, size_t at, size_t len)
{
    struct weft_node_mr mr;
    CHECK_STATUS(weft_node_mr_open(node, memory + at, len, RW, &mr), WEFT_OK);
    CHECK(mr.lkey && mr.rkey && mr.at && mr.at != (uintptr_t)mr.addr);
    return mr;
}

/* The status of a service that has ended comes from another thread. */
static enum weft_status await_status(struct weft_node *node)
{
    uint64_t until = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    enum weft_status status;
    while ((status = (enum weft_status)info_of(node).status) == WEFT_OK) {
        CHECK(proc_now_ns() < until);
        (void)poll(NULL, 0, 1);
    }
    return status;
}

/* The service dies: registrations end, and another weft_node has another service. */
static void case_killed(void)
{
    struct weft_node *node = node_open(), *next;
    struct weft_node_mr mr = mr_open(node, 0, LEN), other;
    struct weft_node_cache_counts n;
    pid_t service = info_of(node).service;
    CHECK(!kill(service, SIGKILL));
    CHECK_STATUS(await_status(node), WEFT_EPEER);
    CHECK_STATUS(weft_node_mr_open(node, memory, LEN, RW, &other), WEFT_EPEER);
    next = node_open();
    CHECK(info_of(next).service != service);
    other = mr_open(next, 0, LEN);
    CHECK(other.at != mr.at || other.rkey != mr.rkey);
    CHECK_STATUS(weft_node_mr_close(node, &mr), WEFT_OK);
    CHECK_STATUS(weft_node_cache_count(node, &n), WEFT_OK);
    CHECK(n.used == 0 && n.count == 1);
    CHECK_STATUS(weft_node_close(node), WEFT_OK);
    CHECK_STATUS(weft_node_mr_close(next, &other), WEFT_OK);
    CHECK_STATUS(weft_node_close(next), WEFT_OK);
}

/* Two of one process: equal parameters, or EBUSY. */
static void case_parameters(void)
{
    struct weft_node *one = node_open(), *two = node_open(), *none = NULL;
    struct weft_node_params p = params_of();
    CHECK(info_of(one).service == info_of(two).service);
    CHECK(info_of(one).index != info_of(two).index);
    CHECK(!strncmp(info_of(one).device, "null0", 5));
    for (unsigned i = 0; i < 6; i++) {
        p = params_of();
        p.connections = (uint32_t[]){2, 17}[i % 2] * (i < 2);
        p.index_bits = (uint32_t[]){3, 13}[i % 2] * (i == 2 || i == 3);
        p.key_len -= i == 4 ? sizeof key - WEFT_SECRET_MIN + 1 : 0;
        p.reserved[7] = i == 5;
        CHECK_STATUS(weft_node_open(&p, &none), i == 0 || i == 2 ? WEFT_EBUSY : WEFT_EINVAL);
    }
    CHECK(!none);
    /* Another job, with parameters of its own, which its service gets. */
    p = params_of();
    p.key = "another key of the rv test";
    p.connections = 2;
    p.index_bits = 1;
    CHECK_STATUS(weft_node_open(&p, &none), WEFT_OK);
    CHECK(info_of(none).connections == 2 && info_of(none).index_bits == 1);
    CHECK(info_of(none).service != info_of(one).service);
    CHECK_STATUS(weft_node_close(none), WEFT_OK);
    CHECK_STATUS(weft_node_close(two), WEFT_OK);
    CHECK_STATUS(weft_node_close(one), WEFT_OK);
}

static void child(struct weft_node *node, const struct weft_node_mr *mr)
{
    struct weft_node_evicted gone;
    struct weft_node_info info;
    struct weft_node_mr other;
    CHECK_STATUS(weft_node_mr_open(node, memory, LEN, RW, &other), WEFT_EFORKED);
    CHECK_STATUS(weft_node_mr_close(node, mr), WEFT_EFORKED);
    CHECK_STATUS(weft_node_evict_amount(node, 1, 1, &gone), WEFT_EFORKED);
    CHECK_STATUS(weft_node_query(node, &info), WEFT_EFORKED);
    CHECK_STATUS(weft_node_close(node), WEFT_EFORKED);
    if (!TEST_FORKS_ARE_BARE)
        CHECK_STATUS(weft_node_close(node_open()), WEFT_OK);
    _exit(0);
}

static void case_forked(void)
{
    struct weft_node *node = node_open();
    struct weft_node_mr mr = mr_open(node, 0, LEN), again;
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid)
        child(node, &mr);
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    again = mr_open(node, 0, LEN);
    CHECK(again.is_hit && again.handle == mr.handle && again.at == mr.at);
    CHECK_STATUS(weft_node_mr_close(node, &mr), WEFT_OK);
    CHECK_STATUS(weft_node_mr_close(node, &again), WEFT_OK);
    CHECK_STATUS(weft_node_mr_close(node, &again), WEFT_EINVAL);
    CHECK_STATUS(weft_node_close(node), WEFT_OK);
}

/* The NIC's address of a byte is that of the registration, plus its offset there; no address of one
 * that has gone comes again. */
static void case_addresses(void)
{
    struct weft_node *node = node_open();
    struct weft_node_mr all = mr_open(node, 0, LEN), part = mr_open(node, 100, 1);
    struct weft_node_evicted gone;
    CHECK(part.is_hit && part.at == all.at + 100 && part.rkey == all.rkey);
    CHECK_STATUS(weft_node_mr_close(node, &part), WEFT_OK);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t before = all.at;
        CHECK_STATUS(weft_node_mr_close(node, &all), WEFT_OK);
        CHECK_STATUS(weft_node_evict(node, memory, LEN, RW, &gone), WEFT_OK);
        all = mr_open(node, 0, LEN);
        CHECK(!all.is_hit && all.at > before);
    }
    CHECK_STATUS(weft_node_mr_open(node, memory, LEN, 8, &part), WEFT_EINVAL);
    CHECK_STATUS(weft_node_close(node), WEFT_OK); /* registrations in use go, too */
}

/* ---- peers and writes, as far as they go without a NIC that moves bytes ---- */

static struct weft_node *ring_open(const char *name, uint32_t events)
{
    struct weft_node_params p = params_of();
    struct weft_node *node;
    p.name = name;
    p.events = events;
    CHECK_STATUS(weft_node_open(&p, &node), WEFT_OK);
    return node;
}

static size_t address_of(struct weft_node *node, unsigned char addr[WEFT_ADDR_MAX])
{
    size_t len = WEFT_ADDR_MAX;
    CHECK_STATUS(weft_node_address(node, addr, &len), WEFT_OK);
    return len;
}

/* Arguments that no call takes. */
static void case_refused(void)
{
    struct weft_node *node = ring_open("rv", 8), *bare = ring_open("rv", 0), *none = NULL;
    struct weft_node *there = ring_open("rv-there", 32768);
    struct weft_node_params p = params_of();
    struct weft_node_event_counts n;
    struct weft_node_post post = {0};
    struct weft_node_event_entry e;
    struct weft_node_peer *peer;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = 1;
    uint32_t count;
    CHECK_STATUS(weft_node_address(node, addr, &len), WEFT_EMSGSIZE);
    len = address_of(node, addr);
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &peer), WEFT_EINVAL); /* the own node */
    len = address_of(bare, addr);
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &peer), WEFT_EINVAL);
    len = address_of(there, addr);
    CHECK_STATUS(weft_node_peer_open(bare, addr, len, &peer), WEFT_EINVAL); /* it has no rings */
    CHECK_STATUS(weft_node_peer_open(node, addr, len - 1, &peer), WEFT_EINVAL);
    CHECK_STATUS(weft_node_event(bare, &e), WEFT_EINVAL);
    CHECK_STATUS(weft_node_event_stats(bare, &n), WEFT_EINVAL);
    CHECK_STATUS(weft_node_event(node, &e), WEFT_AGAIN);
    CHECK_STATUS(weft_node_event_stats(node, &n), WEFT_OK);
    CHECK(n.room == 8 && !n.head && !n.tail && !n.overflow && !n.sent);
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &peer), WEFT_OK);
    CHECK_STATUS(weft_node_write(peer, &post, NULL), WEFT_EINVAL); /* not connected */
    CHECK_STATUS(weft_node_connects(peer, info_of(node).connections, &count), WEFT_EINVAL);
    CHECK_STATUS(weft_node_peer_close(peer), WEFT_OK);
    addr[0]++;
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &peer), WEFT_EVERSION);
    p.events = 32769;
    CHECK_STATUS(weft_node_open(&p, &none), WEFT_EINVAL);
    CHECK_STATUS(weft_node_close(there), WEFT_OK);
    CHECK_STATUS(weft_node_close(bare), WEFT_OK);
    CHECK_STATUS(weft_node_close(node), WEFT_OK);
}

/* Two services between which no message comes (the NICs move no bytes): the peer is connecting,
 * then out of time; and one of which the own service dies. */
static void case_silent(void)
{
    struct weft_node *node = ring_open("rv", 8), *there = ring_open("rv-there", 8);
    struct weft_node_mr mr = mr_open(node, 0, LEN);
    struct weft_node_post post = {.mr = &mr, .addr = memory, .len = 100, .remote = 1, .id = 7};
    struct weft_node_peer_counts n;
    struct weft_node_event_entry e;
    struct weft_node_peer *peer, *second;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = address_of(there, addr);
    uint32_t count = 1;
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &peer), WEFT_OK);
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &second), WEFT_OK);
    CHECK_STATUS(weft_node_connect(peer), WEFT_OK);
    CHECK_STATUS(weft_node_connect(peer), WEFT_OK);
    CHECK_STATUS(weft_node_connects(peer, 0, &count), WEFT_OK);
    CHECK(!count);
    CHECK_STATUS(weft_node_write(peer, &post, NULL), WEFT_AGAIN);
    while (weft_node_connected(peer) == WEFT_PENDING) {
        CHECK_STATUS(weft_node_event(node, &e), WEFT_AGAIN);
        (void)poll(NULL, 0, 1);
    }
    CHECK_STATUS(weft_node_connected(peer), WEFT_ETIMEDOUT);
    CHECK_STATUS(weft_node_write(peer, &post, NULL), WEFT_ETIMEDOUT);
    CHECK_STATUS(weft_node_peer_stats(node, NULL, &n), WEFT_OK);
    CHECK(!n.posted && !n.connects && !n.under_way);
    CHECK_STATUS(weft_node_peer_close(peer), WEFT_OK); /* its question is still under way */
    CHECK_STATUS(weft_node_connect(second), WEFT_OK);
    CHECK(!kill(info_of(node).service, SIGKILL));
    while (weft_node_connected(second) == WEFT_PENDING)
        (void)poll(NULL, 0, 1);
    CHECK_STATUS(weft_node_connected(second), WEFT_EPEER);
    CHECK_STATUS(weft_node_event(node, &e), WEFT_EPEER);
    CHECK_STATUS(weft_node_peer_open(node, addr, len, &peer), WEFT_EPEER);
    CHECK_STATUS(weft_node_close(node), WEFT_OK); /* with the peer */
    CHECK_STATUS(weft_node_close(there), WEFT_OK);
}

/* ---- writes, on a device that moves bytes ---- */

enum { WRITES = 32 };

struct pair {
    struct weft_node *from, *to;
    struct weft_node_peer *peer;
    struct weft_node_mr source, target; /* halves of the memory */
};

static struct pair pair_open(void)
{
    struct pair p = {.from = ring_open("rv-from", 64), .to = ring_open("rv-to", 64)};
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = address_of(p.to, addr);
    uint64_t until = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    p.source = mr_open(p.from, 0, LEN / 2);
    p.target = mr_open(p.to, LEN / 2, LEN / 2);
    CHECK_STATUS(weft_node_peer_open(p.from, addr, len, &p.peer), WEFT_OK);
    CHECK_STATUS(weft_node_connect(p.peer), WEFT_OK);
    while (weft_node_connected(p.peer) == WEFT_PENDING)
        CHECK(proc_now_ns() < until);
    CHECK_STATUS(weft_node_connected(p.peer), WEFT_OK);
    return p;
}

static enum weft_status write_try(const struct pair *p, uint32_t number,
                                  struct weft_node_sent *sent)
{
    struct weft_node_info info = info_of(p->to);
    struct weft_node_post post = {.mr = &p->source,
                                  .addr = memory,
                                  .len = LEN / 2,
                                  .remote = p->target.at,
                                  .remote_key = p->target.rkey,
                                  .immediate = info.index << (32 - info.index_bits) | number,
                                  .id = number};
    return weft_node_write(p->peer, &post, sent);
}

static struct weft_node_sent write_half(const struct pair *p, uint32_t number)
{
    struct weft_node_sent sent;
    CHECK_STATUS(write_try(p, number, &sent), WEFT_OK);
    return sent;
}

static struct weft_node_event_entry await_event(struct weft_node *node)
{
    uint64_t until = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    struct weft_node_event_entry e;
    enum weft_status status;
    while ((status = weft_node_event(node, &e)) == WEFT_AGAIN)
        CHECK(proc_now_ns() < until);
    CHECK_STATUS(status, WEFT_OK);
    return e;
}

/* The bytes are there when the event is. */
static void case_written(void)
{
    struct pair p = pair_open();
    struct weft_node_peer_counts n;
    for (uint32_t i = 1; i <= WRITES; i++) {
        struct weft_node_event_entry e;
        struct weft_node_sent sent;
        memset(memory, (int)i, LEN / 2);
        sent = write_half(&p, i);
        CHECK(sent.count == 1 && sent.connection == (i - 1) % info_of(p.from).connections);
        e = await_event(p.to);
        CHECK(e.kind == WEFT_NODE_RECEIVED && (e.immediate & 0xffff) == i && e.bytes == LEN / 2);
        CHECK(e.index == info_of(p.from).index);
        CHECK(!memcmp(memory, memory + LEN / 2, LEN / 2));
        e = await_event(p.from);
        CHECK(e.kind == WEFT_NODE_SENT && e.id == i && e.peer == p.peer);
        CHECK_STATUS(e.status, WEFT_OK);
    }
    CHECK_STATUS(weft_node_peer_stats(p.from, p.peer, &n), WEFT_OK);
    CHECK(n.done == WRITES && !n.failed && n.bytes == WRITES * LEN / 2 && !n.under_way);
    write_half(&p, 1);
    CHECK_STATUS(weft_node_peer_close(p.peer), WEFT_EBUSY);
    CHECK_STATUS(weft_node_close(p.from), WEFT_OK); /* after the write */
    CHECK((await_event(p.to).immediate & 0xffff) == 1);
    CHECK_STATUS(weft_node_close(p.to), WEFT_OK);
}

/* A service dies amid writes: each write has one event, none is repeated, and the peer has an event
 * of each that has succeeded, if the peer's own service lives. */
static void service_dies(bool own)
{
    struct pair p = pair_open();
    struct weft_node *dies = own ? p.from : p.to;
    uint8_t sent[WRITES + 1] = {0}, received[WRITES + 1] = {0};
    struct weft_node_event_entry e;
    uint32_t count;
    for (uint32_t i = 1; i <= WRITES && write_try(&p, i, NULL) == WEFT_OK; i++)
        if (i == WRITES / 2)
            CHECK(!kill(info_of(dies).service, SIGKILL));
    CHECK_STATUS(await_status(dies), WEFT_EPEER);
    for (struct weft_node_peer_counts n = {.under_way = 1};;) {
        CHECK_STATUS(weft_node_peer_stats(p.from, p.peer, &n), WEFT_OK);
        if (!n.under_way)
            break;
        e = await_event(p.from);
        CHECK(e.kind == WEFT_NODE_SENT && e.id <= WRITES && !sent[e.id]);
        sent[e.id] = e.status == WEFT_OK ? 1 : 2;
        CHECK(e.status == WEFT_OK || e.status == (own ? WEFT_EPEER : WEFT_EUNREACH) ||
              (!own && e.status == WEFT_EKEY));
    }
    while (weft_node_event(p.to, &e) == WEFT_OK)
        CHECK(!received[e.immediate & 0xffff]++);
    for (uint32_t i = 1; i <= WRITES; i++)
        CHECK(sent[i] != 1 || received[i]);
    while (weft_node_connected(p.peer) == WEFT_OK)
        (void)poll(NULL, 0, 1);
    CHECK_STATUS(weft_node_connected(p.peer), WEFT_EPEER);
    CHECK_STATUS(weft_node_connects(p.peer, 0, &count), WEFT_EPEER);
    CHECK_STATUS(weft_node_close(p.from), WEFT_OK);
    CHECK_STATUS(weft_node_close(p.to), WEFT_OK);
    p = pair_open(); /* anew */
    write_half(&p, 1);
    CHECK((await_event(p.to).immediate & 0xffff) == 1);
    CHECK_STATUS(await_event(p.from).status, WEFT_OK);
    CHECK_STATUS(weft_node_close(p.from), WEFT_OK);
    CHECK_STATUS(weft_node_close(p.to), WEFT_OK);
}

static void case_own_dies(void)
{
    service_dies(true);
}

static void case_other_dies(void)
{
    service_dies(false);
}

int main(int argc, char **argv)
{
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1));
    CHECK(!setenv("WEFT_NODE_NAME", "rv", 1) && !setenv("WEFT_DEBUG", "nullnic", 1) &&
          !setenv("WEFT_RDMA_DEVICE", "null0", 1) && !setenv("WEFT_CONNECT_TIMEOUT", "3s", 1));
    memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    if (argc == 2) {
        CHECK(!setenv("WEFT_RDMA_DEVICE", argv[1], 1) && !unsetenv("WEFT_DEBUG"));
        CHECK(!setenv("WEFT_CONNECT_TIMEOUT", "30s", 1)); /* processors may be emulated */
        return proc_case("written", case_written) | proc_case("own_dies", case_own_dies) |
               proc_case("other_dies", case_other_dies);
    }
    return proc_case("parameters", case_parameters) | proc_case("killed", case_killed) |
           proc_case("forked", case_forked) | proc_case("addresses", case_addresses) |
           proc_case("refused", case_refused) | proc_case("silent", case_silent);
}
