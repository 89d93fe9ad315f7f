/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that clients register with the NIC of their node's service, and puts and gets by it, on
 * null NICs, which move no bytes:
 *
 *   nic_test WEFT_NODE [CASE]
 *   nic_test WEFT_NODE bytes DEVICE    on a device that moves bytes, also while services die
 *   nic_test WEFT_NODE breaks DEVICE   the same, while a client breaks the connection of all
 *   nic_test WEFT_NODE messages DEVICE   tagged messages that the NICs read, as "bytes"
 *
 * Each case's comment names what makes it fail. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/msg.h>

#include "base/clock.h"
#include "base/hook.h"
#include "near.h"
#include "transport/rdma/hca_share.h"

enum { PUTS = 512, LONG = 4 << 20, MOST = 64 };

/* A secret of this length is the key itself. */
static const uint8_t key[WF_NODE_KEY] = "nic_test", other_key[WF_NODE_KEY] = "nic_test 2";

/* ---- a driver that refuses ---- */

enum weft_status __real_wf_hca_adopt(const struct wf_hca_share *share, int fd,
                                     struct wf_hca_registrar **out);
enum weft_status __wrap_wf_hca_adopt(const struct wf_hca_share *share, int fd,
                                     struct wf_hca_registrar **out);

static _Atomic unsigned refusals; /* to come, of drops */
static unsigned drops;            /* in this process */
static const struct wf_hca_share_ops *driver;
static struct wf_hca_share_ops refuser;

static enum weft_status drop(struct wf_hca_registrar *r, uint32_t handle)
{
    drops++;
    if (!refusals)
        return driver->drop(r, handle);
    refusals--;
    return WEFT_ESYSTEM;
}

enum weft_status __wrap_wf_hca_adopt(const struct wf_hca_share *share, int fd,
                                     struct wf_hca_registrar **out)
{
    enum weft_status status = __real_wf_hca_adopt(share, fd, out);
    if (status != WEFT_OK)
        return status;
    driver = (*out)->ops;
    refuser = *driver;
    refuser.drop = drop;
    (*out)->ops = &refuser;
    return WEFT_OK;
}

/* ---- contexts ---- */

struct member {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct wf_key key; /* of the region */
};

static void key_read(struct weft_mr *mr, unsigned char bytes[WEFT_KEY_MAX], size_t *len,
                     struct wf_key *out)
{
    *len = WEFT_KEY_MAX;
    CHECK_STATUS(weft_mr_key(mr, bytes, len), WEFT_OK);
    CHECK_STATUS(wf_key_parse(bytes, *len, out), WEFT_OK);
}

static void member_open(struct member *m, const uint8_t of[WF_NODE_KEY])
{
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len;
    ctx.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&ctx, &m->ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(m->ctx, of, WF_NODE_KEY), WEFT_OK);
    CHECK_STATUS(weft_ep_open(m->ctx, NULL, &m->ep), WEFT_OK);
    CHECK_STATUS(weft_mem_alloc(m->ctx, LONG, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &m->mr),
                 WEFT_OK);
    key_read(m->mr, bytes, &len, &m->key);
}

struct counts {
    uint64_t direct, copied, read;
};

static void count(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct counts *c = arg;
    (void)doc;
    if (!strcmp(name, "NIC_DIRECT"))
        c->direct = value;
    if (!strcmp(name, "NIC_COPIED"))
        c->copied = value;
    if (!strcmp(name, "MSG_NIC"))
        c->read = value;
}

static struct counts counts_of(const struct member *m)
{
    struct counts c = {0, 0, 0};
    weft_stat_rows(m->ctx, count, &c);
    return c;
}

static void poll_both(struct member m[2])
{
    CHECK(weft_ep_poll(m[0].ep) >= 0 && weft_ep_poll(m[1].ep) >= 0);
}

/* ---- puts and gets ---- */

/* What goes by messages does not arrive: only the NIC ends operations here. So the first ones,
 * which have no queue pair yet, and those in the pauses after them, do not end. Returns true once
 * one has ended. */
static bool first_put(struct member m[2], struct weft_remote *r)
{
    static struct weft_op ops[PUTS];
    static uint8_t byte[8];
    for (unsigned i = 0; i < PUTS; i++) {
        uint64_t until = wf_now_ns() + 20000000;
        CHECK_STATUS(weft_put(r, 0, byte, sizeof byte, &ops[i]), WEFT_PENDING);
        while (ops[i].status == WEFT_PENDING && wf_now_ns() < until)
            poll_both(m);
        if (ops[i].status == WEFT_OK)
            return true;
        CHECK_STATUS(ops[i].status, WEFT_PENDING);
    }
    return false;
}

static void op_await(struct member m[2], const struct weft_op *op)
{
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (op->status == WEFT_PENDING && wf_now_ns() < until)
        poll_both(m);
    CHECK_STATUS(op->status, WEFT_OK);
}

/* Two handles of one endpoint. The get of the one goes on when the other is closed: its bytes come
 * (they are those of the memory for copies, since the NIC moves none). */
static void shared(struct member m[2], const unsigned char *addr, size_t len)
{
    static uint8_t bytes[2][64];
    struct weft_peer *peers[2];
    struct weft_remote *r[2];
    struct weft_op ops[2] = {0};
    unsigned char raw[WEFT_KEY_MAX];
    size_t raw_len;
    key_read(m[1].mr, raw, &raw_len, &m[1].key);
    memset(bytes, 0xaa, sizeof bytes);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(weft_peer_open(m[0].ep, addr, len, &peers[i]), WEFT_OK);
        CHECK_STATUS(weft_remote_open(peers[i], raw, raw_len, &r[i]), WEFT_OK);
    }
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(weft_get(r[i], 8, bytes[i], sizeof bytes[i], &ops[i]), WEFT_PENDING);
    CHECK_STATUS(weft_remote_close(r[0]), WEFT_OK);
    (void)weft_peer_close(peers[0]);
    CHECK_STATUS(ops[0].status, WEFT_ECANCELED);
    op_await(m, &ops[1]);
    CHECK(memchr(bytes[0], 0, sizeof bytes[0]) == NULL && bytes[1][0] != 0xaa);
}

/* A handle is closed while the end of its put, which the service has written, was not reported: no
 * memory is dropped, by which the NIC may be at work on other puts. */
static void done_before(struct member m[2], const unsigned char *addr, size_t len)
{
    static uint8_t byte[8];
    unsigned char raw[WEFT_KEY_MAX];
    size_t raw_len;
    unsigned before;
    key_read(m[1].mr, raw, &raw_len, &m[1].key);
    for (int i = 0; i < MOST; i++) { /* the event may be another one */
        uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
        struct weft_op op = {0};
        struct weft_peer *peer;
        struct weft_remote *r;
        CHECK_STATUS(weft_peer_open(m[0].ep, addr, len, &peer), WEFT_OK);
        CHECK_STATUS(weft_remote_open(peer, raw, raw_len, &r), WEFT_OK);
        CHECK_STATUS(weft_put(r, 8, byte, sizeof byte, &op), WEFT_PENDING);
        while (weft_ep_arm(m[0].ep) == WEFT_OK)
            CHECK(weft_ep_poll(m[1].ep) >= 0 && wf_now_ns() < until);
        before = drops;
        CHECK_STATUS(weft_remote_close(r), WEFT_OK);
        (void)weft_peer_close(peer);
        CHECK_STATUS(op.status, WEFT_ECANCELED);
        if (drops == before)
            return;
        poll_both(m);
    }
    CHECK(!"no end was written");
}

/* A service called [name], which lives as long as this process. */
static void service_start(const char *name, struct wf_node_link *link)
{
    struct wf_node_attach_params p = near_client(key);
    p.name = name;
    CHECK_STATUS(wf_node_attach(&p, link), WEFT_OK);
}

/* A client of the service that has died starts its successor. */
static void inherit(struct wf_node_attach_params *p, const struct wf_node_link *dead)
{
    p->held = dead->index + 1;
    p->last = dead->incarnation;
    p->line = dead->line;
    p->estate = dead->estate;
    p->nestate = dead->nestate;
}

/* Kill the service of *link, and start its successor, to which *link then leads. The client of the
 * dead service keeps what it has, with the command descriptor: so the dead one's queue pairs live
 * on. */
static void succeed(struct wf_node_link **link, struct wf_node_link *next, const char *name)
{
    struct wf_node_attach_params p = near_client(key);
    struct wf_node_link heir;
    const struct wf_node_link *dead = *link;
    p.name = name;
    inherit(&p, dead);
    CHECK(!kill(dead->pid, SIGKILL) && WIFSIGNALED(near_reap(dead->pid)));
    CHECK_STATUS(wf_node_attach(&p, &heir), WEFT_OK);
    service_start(name, next);
    wf_node_detach(&heir);
    *link = next;
}

/* Two contexts, each with a service of its own. They are not closed: messages under way do not
 * arrive. */
static void mover_main(int sock, void *arg)
{
    static struct wf_node_link links[2];
    static struct member m[2];
    static uint8_t bytes[LONG];
    unsigned char addr[WEFT_ADDR_MAX], raw[WEFT_KEY_MAX];
    size_t len = sizeof addr, raw_len;
    struct weft_peer *peer;
    struct weft_remote *r;
    struct weft_op op = {0};
    struct counts before, after;
    (void)sock;
    (void)arg;
    service_start("0", &links[0]);
    service_start("1", &links[1]);
    for (int i = 0; i < 2; i++)
        member_open(&m[i], key);
    CHECK(m[1].key.nic_key[0] && m[1].key.nic_key[WF_KEY_NICS - 1] && !m[1].key.nic_key[1]);
    CHECK(m[1].key.nic_at >> WF_NODE_WINDOW_BITS > WF_NODE_INDEXES);
    CHECK_STATUS(weft_ep_address(m[1].ep, addr, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(m[0].ep, addr, len, &peer), WEFT_OK);
    key_read(m[1].mr, raw, &raw_len, &m[1].key);
    CHECK_STATUS(weft_remote_open(peer, raw, raw_len, &r), WEFT_OK);
    CHECK(first_put(m, r));
    before = counts_of(&m[0]);
    CHECK_STATUS(weft_put(r, 8, bytes, 8, &op), WEFT_PENDING);
    op_await(m, &op);
    CHECK_STATUS(weft_get(r, 8, bytes, 8, &op), WEFT_PENDING);
    op_await(m, &op);
    after = counts_of(&m[0]);
    CHECK(after.copied - before.copied == 2 && after.direct == before.direct);
    CHECK_STATUS(weft_put(r, 0, bytes, LONG, &op), WEFT_PENDING);
    op_await(m, &op);
    CHECK_STATUS(weft_get(r, 0, bytes, LONG, &op), WEFT_PENDING);
    op_await(m, &op);
    before = counts_of(&m[0]);
    CHECK(after.copied == before.copied && before.direct - after.direct == 2);
    shared(m, addr, len);
    done_before(m, addr, len);
    _exit(0);
}

/* Fails when: the service's descriptor, domain or window does not come; memory is not registered
 * there; a put or get of it does not go by the service's NIC, and end; or ends without its bytes
 * when another handle of the peer is closed; or memory of one that has ended is dropped. */
static void moves(void)
{
    struct proc p;
    CHECK(!setenv("WEFT_NODE_NAME", "%n", 1));
    near_begin();
    p = proc_start(mover_main, NULL);
    proc_join(&p);
    near_end(key);
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8) + seed);
}

static void path_check(struct weft_peer *peer, unsigned operation, const struct weft_remote *r)
{
    struct weft_path path;
    CHECK_STATUS(weft_path_of(peer, operation, r, LONG, &path), WEFT_OK);
    CHECK(!strcmp(path.transport, "node") && !strcmp(path.protocol, "pieces"));
}

/* Two contexts of one service. */
static void own_main(int sock, void *arg)
{
    static struct wf_node_link link;
    static struct member m[2];
    static uint8_t from[LONG], to[LONG];
    struct weft_op send = {0}, receive = {0}, put = {0};
    unsigned char addr[WEFT_ADDR_MAX], raw[WEFT_KEY_MAX];
    size_t len = sizeof addr, raw_len;
    struct weft_peer *peer;
    struct weft_remote *r;
    (void)sock;
    (void)arg;
    service_start("0", &link);
    for (int i = 0; i < 2; i++)
        member_open(&m[i], key);
    CHECK_STATUS(weft_ep_address(m[1].ep, addr, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(m[0].ep, addr, len, &peer), WEFT_OK);
    key_read(m[1].mr, raw, &raw_len, &m[1].key);
    CHECK_STATUS(weft_remote_open(peer, raw, raw_len, &r), WEFT_OK);
    path_check(peer, WEFT_OP_MSG, NULL);
    path_check(peer, WEFT_OP_PUT, r);
    path_check(peer, WEFT_OP_GET, r);
    fill(from, LONG, 3);
    CHECK_STATUS(weft_msg_recv(m[1].ep, NULL, 1, UINT64_MAX, to, LONG, &receive), WEFT_PENDING);
    CHECK_STATUS(weft_msg_send(peer, 1, from, LONG, &send), WEFT_PENDING);
    op_await(m, &send);
    op_await(m, &receive);
    CHECK_STATUS(weft_put(r, 0, from, LONG, &put), WEFT_PENDING);
    op_await(m, &put);
    CHECK(!memcmp(from, to, LONG) && !memcmp(from, weft_mr_base(m[1].mr), LONG));
    CHECK(!counts_of(&m[0]).direct && !counts_of(&m[1]).read);
    _exit(0);
}

/* Fails when: weft_path_of reports that NICs move bytes between clients of one service, to which no
 * queue pair leads; or these do not come. */
static void own(void)
{
    struct proc p;
    CHECK(!setenv("WEFT_NODE_NAME", "0", 1));
    near_begin();
    p = proc_start(own_main, NULL);
    proc_join(&p);
    near_end(key);
}

/* ---- bytes ---- */

enum { MIDDLE = 1 << 20, ROUNDS = 4, BURST = 8, QUIET = 4 };

enum { LINKS = 2 + 4 * ROUNDS };

struct scene {
    struct wf_node_link all[LINKS]; /* of clients by hand, so that successors can be started */
    struct wf_node_link *links[2];  /* those of the services that live */
    unsigned nlinks;
    struct member m[2];
    struct weft_peer *peer;
    struct weft_remote *r;
    uint8_t *region; /* of m[1] */
    uint8_t from[MIDDLE], to[MIDDLE];
};

static void scene_open(struct scene *s)
{
    unsigned char addr[WEFT_ADDR_MAX], raw[WEFT_KEY_MAX];
    size_t len = sizeof addr;
    for (int i = 0; i < 2; i++) {
        s->links[i] = &s->all[s->nlinks++];
        service_start(i ? "1" : "0", s->links[i]);
    }
    for (int i = 0; i < 2; i++)
        member_open(&s->m[i], key);
    CHECK(s->m[1].key.nic_key[0]);
    s->region = weft_mr_base(s->m[1].mr);
    CHECK_STATUS(weft_ep_address(s->m[1].ep, addr, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(s->m[0].ep, addr, len, &s->peer), WEFT_OK);
    key_read(s->m[1].mr, raw, &len, &s->m[1].key);
    CHECK_STATUS(weft_remote_open(s->peer, raw, len, &s->r), WEFT_OK);
}

/* The region has another key after its service's death. */
static void key_renew(struct scene *s)
{
    unsigned char raw[WEFT_KEY_MAX];
    size_t len;
    CHECK_STATUS(weft_remote_close(s->r), WEFT_OK);
    key_read(s->m[1].mr, raw, &len, &s->m[1].key);
    CHECK(s->m[1].key.nic_key[0]);
    CHECK_STATUS(weft_remote_open(s->peer, raw, len, &s->r), WEFT_OK);
}

static void scene_close(struct scene *s)
{
    CHECK_STATUS(weft_remote_close(s->r), WEFT_OK);
    while (weft_peer_close(s->peer) == WEFT_EBUSY)
        poll_both(s->m);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(weft_mr_close(s->m[i].mr), WEFT_OK);
        CHECK_STATUS(weft_ep_close(s->m[i].ep), WEFT_OK);
        CHECK_STATUS(weft_ctx_close(s->m[i].ctx), WEFT_OK);
    }
    while (s->nlinks)
        wf_node_detach(&s->all[--s->nlinks]);
}

static void dies_now(struct scene *s, int side)
{
    if (side >= 0)
        succeed(&s->links[side], &s->all[s->nlinks++], side ? "1" : "0");
}

static void ops_await(struct scene *s, const struct weft_op *ops, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        op_await(s->m, &ops[i]);
}

/* All puts have ended, some of them by messages. A dead service, whose queue pairs live, writes
 * nothing more: what the owner of the region writes stays there while gets go to and fro. */
static void quiet_check(struct scene *s)
{
    struct weft_op op = {0};
    memset(s->region, 0x5a, MIDDLE);
    for (int i = 0; i < QUIET; i++) {
        CHECK_STATUS(weft_get(s->r, 0, s->to, MIDDLE, &op), WEFT_PENDING);
        op_await(s->m, &op);
        for (size_t k = 0; k < MIDDLE; k++)
            CHECK(s->to[k] == 0x5a && s->region[k] == 0x5a);
    }
    memcpy(s->region, s->from, MIDDLE);
}

static void on_device(void (*scenes)(int, void *))
{
    struct proc p;
    alarm(10 * PROC_ALARM_S);
    CHECK(!setenv("WEFT_NODE_NAME", "%n", 1) && !unsetenv("WEFT_DEBUG"));
    near_begin();
    p = proc_start(scenes, NULL);
    proc_join(&p);
    near_end(key);
}

/* Put and get all of [from]; if a service is to die, in pieces, and while they are under way. */
static void round_trip(struct scene *s, unsigned seed, int dies)
{
    struct weft_op ops[BURST] = {0};
    unsigned n = dies < 0 ? 1 : BURST, len = MIDDLE / n;
    fill(s->from, MIDDLE, seed);
    for (unsigned i = 0; i < n; i++)
        CHECK_STATUS(weft_put(s->r, i * len, s->from + i * len, len, &ops[i]), WEFT_PENDING);
    dies_now(s, dies);
    ops_await(s, ops, n);
    CHECK(!memcmp(s->region, s->from, MIDDLE));
    if (dies >= 0)
        quiet_check(s);
    memset(s->to, 0, MIDDLE);
    memset(ops, 0, sizeof ops);
    for (unsigned i = 0; i < n; i++)
        CHECK_STATUS(weft_get(s->r, i * len, s->to + i * len, len, &ops[i]), WEFT_PENDING);
    dies_now(s, dies);
    ops_await(s, ops, n);
    CHECK(!memcmp(s->to, s->from, MIDDLE) && !memcmp(s->region, s->from, MIDDLE));
}

/* Repeat until the NIC has done one. The first round trips may have no queue pair yet. */
static void by_nic(struct scene *s, unsigned *seed)
{
    struct counts before = counts_of(&s->m[0]);
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    do {
        CHECK(wf_now_ns() < until);
        round_trip(s, ++*seed, -1);
    } while (counts_of(&s->m[0]).direct == before.direct);
}

static void bytes_main(int sock, void *arg)
{
    static struct scene s;
    unsigned seed = 0;
    (void)sock;
    (void)arg;
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    alarm(10 * PROC_ALARM_S); /* processors may be emulated */
    scene_open(&s);
    by_nic(&s, &seed);
    for (int i = 0; i < ROUNDS; i++)
        round_trip(&s, ++seed, -1);
    dprintf(STDOUT_FILENO, "  %llu puts and gets of 1 MiB by the NIC\n",
            (unsigned long long)counts_of(&s.m[0]).direct);
    for (int i = 0; i < ROUNDS; i++) {
        round_trip(&s, ++seed, 0);
        by_nic(&s, &seed); /* of memory that is registered anew */
    }
    for (int i = 0; i < ROUNDS; i++) {
        round_trip(&s, ++seed, 1); /* the second time by messages */
        if (i % 2) {
            key_renew(&s);
            by_nic(&s, &seed);
        }
    }
    dprintf(STDOUT_FILENO, "  %d services killed, %llu puts and gets, or parts, by the NIC\n",
            4 * ROUNDS, (unsigned long long)counts_of(&s.m[0]).direct);
    scene_close(&s);
}

/* Fails when: a put or get by a service's NIC moves other bytes, or none; or one is lost, or
 * reported early, when a service dies. */
static void bytes(void)
{
    on_device(bytes_main);
}

/* ---- tagged messages ---- */

enum { PIECES = 8, PIECE = MIDDLE / PIECES, CANCELS = 24, TAG = 5 };

/* A message in PIECES messages from member 0 to member 1. If [posts], the receives are there first.
 */
struct exchange {
    struct weft_op sends[PIECES], receives[PIECES];
};

static void receives_begin(struct scene *s, struct exchange *e)
{
    memset(s->to, 0, MIDDLE);
    for (int i = 0; i < PIECES; i++)
        CHECK_STATUS(weft_msg_recv(s->m[1].ep, NULL, TAG + i, UINT64_MAX, s->to + i * PIECE, PIECE,
                                   &e->receives[i]),
                     WEFT_PENDING);
}

static void exchange(struct scene *s, unsigned seed, bool posts, int dies)
{
    struct exchange e = {0};
    fill(s->from, MIDDLE, seed);
    if (posts)
        receives_begin(s, &e);
    for (int i = 0; i < PIECES; i++)
        CHECK_STATUS(weft_msg_send(s->peer, TAG + i, s->from + i * PIECE, PIECE, &e.sends[i]),
                     WEFT_PENDING);
    for (unsigned i = 0; dies < 0 && !posts && i < 100; i++)
        poll_both(s->m);
    if (!posts)
        receives_begin(s, &e);
    for (unsigned i = 0; i < seed % 64; i++)
        poll_both(s->m);
    dies_now(s, dies);
    ops_await(s, e.sends, PIECES);
    ops_await(s, e.receives, PIECES);
    CHECK(!memcmp(s->to, s->from, MIDDLE));
}

/* Repeat until the NIC has read all messages of one exchange. */
static void all_read(struct scene *s, unsigned *seed)
{
    uint64_t before, until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    do {
        CHECK(wf_now_ns() < until);
        before = counts_of(&s->m[1]).read;
        ++*seed;
        exchange(s, *seed, *seed % 2, -1);
    } while (counts_of(&s->m[1]).read < before + PIECES);
}

/* Sends are cancelled while their messages are read, and their memory is written. A receive ends
 * with the message, or with ECANCELED. Returns how many ended so. */
static unsigned cancel_some(struct scene *s, unsigned *seed)
{
    unsigned cancelled = 0;
    for (unsigned n = 0; n < CANCELS; n++) {
        uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
        struct weft_op send = {0}, receive = {0};
        fill(s->from, MIDDLE, ++*seed);
        CHECK_STATUS(weft_msg_recv(s->m[1].ep, NULL, TAG, UINT64_MAX, s->to, MIDDLE, &receive),
                     WEFT_PENDING);
        CHECK_STATUS(weft_msg_send(s->peer, TAG, s->from, MIDDLE, &send), WEFT_PENDING);
        for (unsigned i = 0; i < 100 * (n + 1); i++)
            poll_both(s->m);
        CHECK_STATUS(weft_msg_cancel(s->m[0].ep, &send), WEFT_OK);
        memset(s->from, 0x5a, MIDDLE);
        if (send.status == WEFT_ECANCELED) /* for a receive that has not met the message */
            while (weft_msg_send(s->peer, TAG, s->from, 1, NULL) == WEFT_AGAIN)
                poll_both(s->m);
        while (receive.status == WEFT_PENDING && wf_now_ns() < until)
            poll_both(s->m);
        CHECK(receive.status == WEFT_OK || receive.status == WEFT_ECANCELED);
        cancelled += receive.status == WEFT_ECANCELED;
        if (receive.status == WEFT_OK && receive.len == MIDDLE) {
            fill(s->from, MIDDLE, *seed);
            CHECK(!memcmp(s->to, s->from, MIDDLE));
        }
        if (send.status == WEFT_ECANCELED && receive.len == MIDDLE) { /* the short one is left */
            struct weft_op last = {0};
            enum weft_status status =
                weft_msg_recv(s->m[1].ep, NULL, TAG, UINT64_MAX, s->to, MIDDLE, &last);
            if (status == WEFT_PENDING)
                op_await(s->m, &last);
            CHECK(last.status == WEFT_OK && last.len == 1);
        }
    }
    return cancelled;
}

/* A buffer is unmapped and mapped anew at the same place between two messages. */
static void remapped(struct scene *s, unsigned *seed)
{
    uint8_t *at = NULL;
    for (unsigned n = 0; n < ROUNDS; n++) {
        struct weft_op send = {0}, receive = {0};
        at = mmap(at, MIDDLE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, MIDDLE, ++*seed);
        CHECK_STATUS(weft_msg_recv(s->m[1].ep, NULL, TAG, UINT64_MAX, s->to, MIDDLE, &receive),
                     WEFT_PENDING);
        CHECK_STATUS(weft_msg_send(s->peer, TAG, at, MIDDLE, &send), WEFT_PENDING);
        op_await(s->m, &send);
        op_await(s->m, &receive);
        CHECK(!memcmp(s->to, at, MIDDLE));
        CHECK(!munmap(at, MIDDLE));
    }
}

/* The peer that a receive names is closed while its message is read: nobody writes to its buffer
 * from then on. */
static void receiver_closes(struct scene *s, unsigned *seed)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    CHECK_STATUS(weft_ep_address(s->m[0].ep, addr, &len), WEFT_OK);
    for (unsigned n = 0; n < ROUNDS; n++) {
        uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
        struct weft_op send = {0}, receive = {0};
        struct weft_peer *back;
        bool is_over;
        fill(s->from, MIDDLE, ++*seed);
        CHECK_STATUS(weft_peer_open(s->m[1].ep, addr, len, &back), WEFT_OK);
        CHECK_STATUS(weft_msg_recv(s->m[1].ep, back, TAG, UINT64_MAX, s->to, MIDDLE, &receive),
                     WEFT_PENDING);
        CHECK_STATUS(weft_msg_send(s->peer, TAG, s->from, MIDDLE, &send), WEFT_PENDING);
        for (unsigned i = 0; i < 200 * n; i++)
            poll_both(s->m);
        CHECK_STATUS(weft_peer_close(back), WEFT_OK);
        is_over = receive.status != WEFT_OK; /* ECLOSED, if it had met no message */
        CHECK(receive.status != WEFT_PENDING && (is_over || !memcmp(s->to, s->from, MIDDLE)));
        if (is_over)
            memset(s->to, 0x5a, MIDDLE);
        if (is_over && send.status == WEFT_PENDING)
            CHECK_STATUS(weft_msg_cancel(s->m[0].ep, &send), WEFT_OK); /* it may be kept */
        while (send.status == WEFT_PENDING && wf_now_ns() < until)
            poll_both(s->m);
        for (unsigned i = 0; i < 2000; i++)
            poll_both(s->m);
        for (size_t k = 0; is_over && k < MIDDLE; k++)
            CHECK(s->to[k] == 0x5a);
    }
}

static void messages_main(int sock, void *arg)
{
    static struct scene s;
    unsigned seed = 0, cancelled;
    (void)sock;
    (void)arg;
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    alarm(10 * PROC_ALARM_S); /* processors may be emulated */
    scene_open(&s);
    all_read(&s, &seed);
    remapped(&s, &seed);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        exchange(&s, ++seed, i % 2, i / 2 % 2);
        all_read(&s, &seed); /* also of memory that is registered anew */
    }
    cancelled = cancel_some(&s, &seed);
    receiver_closes(&s, &seed);
    all_read(&s, &seed);
    dprintf(STDOUT_FILENO, "  %d services killed, %u sends cancelled amid, %llu messages read\n",
            2 * ROUNDS, cancelled, (unsigned long long)counts_of(&s.m[1]).read);
    scene_close(&s);
}

/* Fails when: a message that a service's NIC reads has other bytes, or is lost when a service dies,
 * or its buffer is mapped anew; the NIC does not read again later; a receive of a cancelled send
 * ends with other bytes; or a NIC writes to the buffer of a receive that is over. */
static void messages(void)
{
    on_device(messages_main);
}

/* ---- connections that break ---- */

enum { WRONGS = 4, OTHERS = 64, SLOT = 16384 };

/* A client of service 0 whose key is wrong. Its puts end with an error or, after the service has
 * had enough of them, by messages. Commands: p put once; q end. */
struct offender {
    unsigned char addr[WEFT_ADDR_MAX], raw[WEFT_KEY_MAX];
    size_t len, raw_len;
};

static void offender_main(int sock, void *arg)
{
    static uint8_t bytes[64];
    struct offender o;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    struct member m;
    struct weft_peer *peer;
    char word = 0;
    (void)arg;
    alarm(10 * PROC_ALARM_S); /* processors may be emulated */
    CHECK(!setenv("WEFT_NODE_NAME", "0", 1));
    CHECK(proc_hear(sock, &o, sizeof o) == sizeof o);
    member_open(&m, key);
    CHECK_STATUS(weft_peer_open(m.ep, o.addr, o.len, &peer), WEFT_OK);
    proc_say(sock, "r", 1);
    while (word != 'q') {
        struct weft_remote *r;
        struct weft_op op = {0};
        CHECK(weft_ep_poll(m.ep) >= 0);
        if (poll(&p, 1, 0) != 1)
            continue;
        CHECK(proc_hear(sock, &word, 1) == 1);
        if (word != 'p')
            continue;
        CHECK_STATUS(weft_remote_open(peer, o.raw, o.raw_len, &r), WEFT_OK);
        CHECK_STATUS(weft_put(r, LONG - sizeof bytes, bytes, sizeof bytes, &op), WEFT_PENDING);
        while (op.status == WEFT_PENDING)
            CHECK(weft_ep_poll(m.ep) >= 0);
        proc_say(sock, &op.status, sizeof op.status);
        CHECK_STATUS(weft_remote_close(r), WEFT_OK);
    }
    _exit(0);
}

/* Puts and gets of one member, each of a slot of its own, while another client's put of a wrong key
 * is under way, and member 0 closes a handle amid puts. Every one ends once, and has moved its
 * bytes. */
static void others_go_on(struct scene *s, struct proc *offender, unsigned seed)
{
    static struct weft_op ops[OTHERS];
    enum weft_status wrong;
    struct weft_peer *peer;
    struct weft_remote *r;
    struct weft_op cut = {0};
    unsigned char addr[WEFT_ADDR_MAX], raw[WEFT_KEY_MAX];
    size_t len = sizeof addr, raw_len;
    struct pollfd p = {.fd = offender->sock, .events = POLLIN};
    fill(s->from, MIDDLE, seed);
    memset(s->region, 0, MIDDLE);
    memset(ops, 0, sizeof ops);
    CHECK_STATUS(weft_ep_address(s->m[1].ep, addr, &len), WEFT_OK);
    key_read(s->m[1].mr, raw, &raw_len, &s->m[1].key);
    CHECK_STATUS(weft_peer_open(s->m[0].ep, addr, len, &peer), WEFT_OK);
    CHECK_STATUS(weft_remote_open(peer, raw, raw_len, &r), WEFT_OK);
    proc_say(offender->sock, "p", 1);
    for (unsigned i = 0; i < OTHERS; i++) {
        CHECK_STATUS(weft_put(s->r, i * SLOT, s->from + i * SLOT, SLOT, &ops[i]), WEFT_PENDING);
        if (i == OTHERS / 2 && seed % 2) { /* to memory behind the slots */
            CHECK_STATUS(weft_put(r, MIDDLE, s->to, MIDDLE, &cut), WEFT_PENDING);
            CHECK_STATUS(weft_remote_close(r), WEFT_OK);
            (void)weft_peer_close(peer);
            CHECK_STATUS(cut.status, WEFT_ECANCELED);
        }
        poll_both(s->m);
    }
    ops_await(s, ops, OTHERS);
    CHECK(!memcmp(s->region, s->from, MIDDLE));
    while (poll(&p, 1, 0) != 1)
        poll_both(s->m);
    CHECK(proc_hear(offender->sock, &wrong, sizeof wrong) == sizeof wrong);
    CHECK(wrong == WEFT_EKEY || wrong == WEFT_OK); /* the owner's answer decides */
    if (!(seed % 2)) {
        CHECK_STATUS(weft_remote_close(r), WEFT_OK);
        (void)weft_peer_close(peer);
    }
}

static void breaks_main(int sock, void *arg)
{
    static struct scene s;
    struct offender o = {.len = sizeof o.addr};
    struct proc offender = proc_start(offender_main, NULL); /* before its name is read here */
    struct wf_key *wrong = &s.m[1].key;
    unsigned seed = 0;
    (void)sock;
    (void)arg;
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    alarm(10 * PROC_ALARM_S);
    scene_open(&s);
    by_nic(&s, &seed);
    CHECK_STATUS(weft_ep_address(s.m[1].ep, o.addr, &o.len), WEFT_OK);
    key_read(s.m[1].mr, o.raw, &o.raw_len, wrong);
    wrong->nic_key[0] ^= 0x5500;
    wrong->check = wf_key_check(wrong);
    memcpy(o.raw, wrong, WF_MIN(o.raw_len, sizeof *wrong));
    proc_say(offender.sock, &o, sizeof o);
    while (poll(&(struct pollfd){.fd = offender.sock, .events = POLLIN}, 1, 0) != 1)
        poll_both(s.m);
    (void)proc_hear(offender.sock, &(char){0}, 1);
    for (int i = 0; i < WRONGS; i++) {
        others_go_on(&s, &offender, ++seed);
        by_nic(&s, &seed);
    }
    proc_say(offender.sock, "q", 1);
    proc_join(&offender);
    scene_close(&s);
}

/* Fails when: operations of other clients are lost, or reported without their bytes, because a
 * client has a wrong key, or drops memory that the NIC reads; or the NIC does not go on after that.
 */
static void breaks(void)
{
    on_device(breaks_main);
}

/* ---- registrations ---- */

/* Registers a region once the driver has refused a drop, and then lets the drop pass. */
static void *register_meanwhile(void *arg)
{
    struct member *m = arg;
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (refusals == UINT32_MAX) {
        CHECK(wf_now_ns() < until);
        (void)sched_yield();
    }
    CHECK_STATUS(weft_mem_alloc(m->ctx, LONG, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &m->mr),
                 WEFT_OK);
    refusals = 0;
    return NULL;
}

/* The driver refuses to drop the region, until another thread has registered one in its place. */
static void region_exchange(struct member *m)
{
    struct weft_mr *old = m->mr;
    pthread_t thread;
    refusals = UINT32_MAX;
    CHECK(!pthread_create(&thread, NULL, register_meanwhile, m));
    CHECK_STATUS(weft_mr_close(old), WEFT_OK);
    CHECK(!pthread_join(thread, NULL));
}

/* Commands: k report the region's key; c close the region, which the driver refuses to drop at
 * first, and open another one; q end. */
static void client_main(int sock, void *arg)
{
    struct member m;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len;
    char word = 0;
    (void)arg;
    member_open(&m, other_key);
    proc_say(sock, &m.key, sizeof m.key);
    while (word != 'q') {
        CHECK(weft_ep_poll(m.ep) >= 0);
        if (poll(&p, 1, 0) != 1)
            continue;
        CHECK(proc_hear(sock, &word, 1) == 1);
        if (word == 'k') {
            key_read(m.mr, bytes, &len, &m.key);
            proc_say(sock, &m.key, sizeof m.key);
        }
        if (word == 'c') {
            region_exchange(&m);
            proc_say(sock, "c", 1);
        }
    }
    CHECK_STATUS(weft_mr_close(m.mr), WEFT_OK);
    CHECK_STATUS(weft_ep_close(m.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(m.ctx), WEFT_OK);
}

static struct proc client_start(struct wf_key *of)
{
    struct proc p = proc_start(client_main, NULL);
    CHECK(proc_hear(p.sock, of, sizeof *of) == sizeof *of);
    CHECK(of->nic_key[0] && of->nic_at);
    return p;
}

static struct wf_key client_key(struct proc *p)
{
    struct wf_key of;
    proc_say(p->sock, "k", 1);
    CHECK(proc_hear(p->sock, &of, sizeof of) == sizeof of);
    return of;
}

/* A client by hand, which sees all registrations of the service's domain. If it was one of [dead],
 * it starts the successor of that service. */
static struct wf_hca_registrar *watch(struct wf_node_link *link, const struct wf_node_link *dead)
{
    struct wf_node_attach_params p = near_client(other_key);
    struct wf_hca_registrar *r;
    if (dead)
        inherit(&p, dead);
    CHECK_STATUS(wf_node_attach(&p, link), WEFT_OK);
    CHECK(link->window && link->command_fd >= 0);
    CHECK_STATUS(wf_hca_adopt(&link->share, link->command_fd, &r), WEFT_OK);
    link->command_fd = -1;
    return r;
}

/* Kill the service of [link], and watch its successor. */
static struct wf_hca_registrar *watch_next(struct wf_node_link *next, struct wf_node_link *link)
{
    struct wf_hca_registrar *r;
    CHECK(!kill(link->pid, SIGKILL) && WIFSIGNALED(near_reap(link->pid)));
    r = watch(next, link);
    wf_node_detach(link);
    return r;
}

/* How many there are in the window of [at]. */
static unsigned registered(struct wf_hca_registrar *r, uint64_t at)
{
    uint32_t handles[MOST];
    int all = r->ops->list(r, handles, MOST);
    unsigned n = 0;
    CHECK(all >= 0 && all < MOST);
    for (int i = 0; i < all; i++) {
        struct wf_hca_registration found;
        n += r->ops->find(r, handles[i], &found) == WEFT_OK &&
             found.at >> WF_NODE_WINDOW_BITS == at >> WF_NODE_WINDOW_BITS;
    }
    return n;
}

static void await_none(struct wf_hca_registrar *r, uint64_t at)
{
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (registered(r, at)) {
        (void)near_clients(other_key); /* takes the service's turn: no sleep is needed */
        CHECK(wf_now_ns() < until);
    }
}

/* Fails when: what a killed client has registered stays, or goes before its peers can know of its
 * end; what a client leaves that closes; or two clients have one window. */
static void left(void)
{
    struct wf_key of, second;
    struct wf_node_link link;
    struct wf_hca_registrar *r;
    struct proc p, q;
    uint64_t begin;
    near_begin();
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "500ms", 1));
    r = watch(&link, NULL);
    p = client_start(&of);
    q = client_start(&second);
    CHECK(of.nic_at >> WF_NODE_WINDOW_BITS != second.nic_at >> WF_NODE_WINDOW_BITS);
    CHECK(registered(r, of.nic_at) == 2 && registered(r, second.nic_at) == 2);
    CHECK(!registered(r, (uint64_t)link.window << WF_NODE_WINDOW_BITS));
    begin = wf_now_ns();
    (void)proc_kill(&p, SIGKILL);
    CHECK(registered(r, of.nic_at) == 2);
    await_none(r, of.nic_at);
    CHECK(wf_now_ns() - begin >= 500000000);
    CHECK(registered(r, second.nic_at) == 2);
    proc_say(q.sock, "q", 1);
    proc_join(&q);
    CHECK(!registered(r, second.nic_at));
    r->ops->close(r);
    wf_node_detach(&link);
    near_end(other_key);
}

/* A client whose service is killed and has a successor. The test sees the registrations of both. */
struct succession {
    struct wf_key of, later; /* the client's, with the service and with its successor */
    struct wf_node_link link, next;
    struct wf_hca_registrar *r, *now;
    struct proc p;
};

/* The driver refuses the client's first [refused] drops. */
static void succession_begin(struct succession *s, unsigned refused)
{
    near_begin();
    s->r = watch(&s->link, NULL);
    refusals = refused;
    s->p = client_start(&s->of);
    refusals = 0;
    CHECK(registered(s->r, s->of.nic_at) == 2);
}

static void succession_next(struct succession *s, bool dropped)
{
    s->now = watch_next(&s->next, &s->link);
    if (dropped)
        await_none(s->r, s->of.nic_at);
    do /* the client may know of no service yet, and registers nothing */
        s->later = client_key(&s->p);
    while (!s->later.nic_key[0]);
}

static void succession_end(struct succession *s, bool dropped)
{
    proc_say(s->p.sock, "q", 1);
    proc_join(&s->p);
    CHECK(!dropped || !registered(s->now, s->later.nic_at));
    s->r->ops->close(s->r);
    s->now->ops->close(s->now);
    wf_node_detach(&s->next);
    near_end(other_key);
}

/* Fails when: a client keeps what it had registered with a service that has died, or the command
 * descriptor; it does not register with the successor; or a key does not name its service. */
static void fence(void)
{
    struct succession s;
    succession_begin(&s, 0);
    succession_next(&s, true);
    CHECK(registered(s.now, s.later.nic_at) >= 1 && !registered(s.r, s.of.nic_at));
    CHECK(s.later.nic_key[WF_KEY_NICS - 1] != s.of.nic_key[WF_KEY_NICS - 1]);
    succession_end(&s, true);
}

/* Fails when: a client does not try again to drop what the driver refuses to drop; or waits for
 * that without end, or while its other threads cannot register. */
static void refused(void)
{
    for (int always = 0; always < 2; always++) {
        struct succession s;
        succession_begin(&s, always ? UINT32_MAX : 3);
        succession_next(&s, !always);
        CHECK(registered(s.r, s.of.nic_at) == (always ? 2 : 0));
        if (!always) {
            unsigned before = registered(s.now, s.later.nic_at);
            char word;
            proc_say(s.p.sock, "c", 1);
            CHECK(proc_hear(s.p.sock, &word, 1) == 1);
            CHECK(registered(s.now, s.later.nic_at) == before);
        }
        succession_end(&s, !always);
    }
}

/* ---- a key that comes late ---- */

struct opener {
    struct weft_ctx *ctx;
    _Atomic unsigned opened, stop;
};

static void *open_regions(void *arg)
{
    struct opener *o = arg;
    while (!o->stop) {
        struct weft_mr *mr;
        CHECK_STATUS(weft_mem_alloc(o->ctx, SLOT, WEFT_REMOTE_WRITE, &mr), WEFT_OK);
        CHECK(weft_pinnable(o->ctx, 0, NULL));
        CHECK_STATUS(weft_mr_close(mr), WEFT_OK);
        o->opened++;
    }
    return NULL;
}

static void opener_main(int sock, void *arg)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct opener o = {0};
    unsigned char bytes[WEFT_KEY_MAX];
    struct wf_node_link link;
    struct wf_key of;
    struct weft_mr *mr;
    pthread_t thread;
    size_t len;
    (void)sock;
    (void)arg;
    near_attach(other_key, &link);
    params.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&params, &o.ctx), WEFT_OK);
    CHECK(!pthread_create(&thread, NULL, open_regions, &o));
    while (!o.opened)
        (void)sched_yield();
    CHECK_STATUS(weft_ctx_set_key(o.ctx, other_key, WF_NODE_KEY), WEFT_OK);
    o.stop = 1;
    CHECK(!pthread_join(thread, NULL));
    CHECK_STATUS(weft_mem_alloc(o.ctx, SLOT, WEFT_REMOTE_WRITE, &mr), WEFT_OK);
    key_read(mr, bytes, &len, &of);
    CHECK(of.nic_key[0]);
    CHECK_STATUS(weft_mr_close(mr), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(o.ctx), WEFT_OK);
    wf_node_detach(&link);
}

/* Fails when: a region that is opened after the key was set is not registered; or, with the thread
 * sanitizer, another thread that opens regions meanwhile reads what is being set. */
static void late_key(void)
{
    struct proc p;
    near_begin();
    p = proc_start(opener_main, NULL);
    proc_join(&p);
    near_end(other_key);
}

/* ---- fork ---- */

static unsigned descriptors_of_nics(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *d;
    unsigned n = 0;
    CHECK(dir);
    while ((d = readdir(dir))) {
        char path[300], to[300] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", d->d_name);
        n += readlink(path, to, sizeof to - 1) > 0 && strstr(to, "weft-null");
    }
    closedir(dir);
    return n;
}

/* A child that is forked while its parent attaches, in builds with hooks: by another thread when
 * the command descriptor has come, and then by the thread that attaches. Another one is forked when
 * a link with that descriptor is detached. */
static bool forked;
static pthread_t forker;
static int forks_pipe[2];

static void fork_once(void)
{
    int status;
    pid_t pid = fork();
    if (!pid)
        _exit((int)descriptors_of_nics());
    CHECK(pid > 0 && write(forks_pipe[1], "f", 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void *fork_beside(void *arg)
{
    (void)arg;
    fork_once();
    return NULL;
}

static int fork_at(const char *label)
{
    enum { WAIT_MS = 100 }; /* the fork waits for the thread that attaches, but cannot show it */
    struct pollfd p = {.fd = forks_pipe[0], .events = POLLIN};
    if (!strcmp(label, "node.received") && !forker && descriptors_of_nics() == 2) {
        CHECK(!pthread_create(&forker, NULL, fork_beside, NULL));
        (void)poll(&p, 1, WAIT_MS);
    }
    if (!forked && !strcmp(label, "node.welcome")) {
        forked = true;
        CHECK(!pthread_join(forker, NULL));
        fork_once();
    }
    if (!strcmp(label, "node.leaves"))
        fork_once();
    return 0;
}

static void fork_while_attaching(struct member *m)
{
#ifdef WF_HOOKS
    CHECK(!pipe2(forks_pipe, O_CLOEXEC));
    weft_test_hook = fork_at;
#endif
    member_open(m, other_key);
#ifdef WF_HOOKS
    weft_test_hook = NULL;
    CHECK(forked);
#else
    (void)fork_at;
#endif
}

static void forker_main(int sock, void *arg)
{
    struct wf_node_link link;
    struct member m;
    int status;
    pid_t pid;
    (void)sock;
    (void)arg;
    near_attach(other_key, &link);
    CHECK(descriptors_of_nics() == 1);
    fork_while_attaching(&m);
    CHECK(descriptors_of_nics() == 2);
    pid = fork();
    if (!pid)
        _exit((int)descriptors_of_nics());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
    CHECK(descriptors_of_nics() == 2);
    CHECK_STATUS(weft_mr_close(m.mr), WEFT_OK);
    CHECK_STATUS(weft_ep_close(m.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(m.ctx), WEFT_OK);
    CHECK(descriptors_of_nics() == 1);
#ifdef WF_HOOKS
    weft_test_hook = fork_at;
#endif
    wf_node_detach(&link);
#ifdef WF_HOOKS
    weft_test_hook = NULL;
    CHECK(!close(forks_pipe[0]) && !close(forks_pipe[1]));
#endif
    CHECK(!descriptors_of_nics());
}

/* Fails when: a forked child keeps the command descriptor, so that the NIC's context cannot end, or
 * a closed context does. */
static void forks(void)
{
    struct proc p;
    near_begin();
    p = proc_start(forker_main, NULL);
    proc_join(&p);
    near_end(other_key);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } cases[] = {{"moves", moves},     {"own", own},     {"left", left},   {"fence", fence},
                 {"refused", refused}, {"forks", forks}, {"key", late_key}};
    int failed = 0;
    CHECK(argc >= 2);
    near_program = argv[1];
    CHECK(!setenv("WEFT_TRANSPORTS", "loop,node,rdma", 1) && !setenv("WEFT_NODE", "1", 1) &&
          !setenv("WEFT_NODE_NAME", "near", 1) && !setenv("WEFT_DEBUG", "nullnic", 1) &&
          !setenv("WEFT_RDMA_DEVICE", "null0", 1));
    if (argc == 4) {
        bool is_bytes = !strcmp(argv[2], "bytes"), is_breaks = !strcmp(argv[2], "breaks");
        CHECK((is_bytes || is_breaks || !strcmp(argv[2], "messages")) &&
              !setenv("WEFT_RDMA_DEVICE", argv[3], 1));
        return proc_case(argv[2], is_bytes ? bytes : is_breaks ? breaks : messages);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc == 2 || !strcmp(argv[2], cases[i].name))
            failed |= proc_case(cases[i].name, cases[i].fn);
    return failed;
}
