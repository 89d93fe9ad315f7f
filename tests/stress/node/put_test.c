/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets that the services of two nodes without NICs do themselves, of memory of
 * weft_mem_alloc, as the public interface shows it: a source on one node, its target on the other,
 * both nodes on this host. Each case's comment names what makes it fail. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "services.h"
#include "stress/kill/proc.h"

enum { SIZE = 4 << 20, WINDOW = 24, CHECK_IT = 1, CHECKED, SHORT_MS = 300, TRIES = 30 };

static const unsigned char key[WEFT_KEY_SIZE] = "the key of the put test";

struct card {
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
};

struct member {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr; /* a target's */
    struct weft_peer *peer;
    struct weft_remote *remote;
    struct card card;     /* a source's: of the region */
    unsigned char *bytes; /* and its SIZE bytes */
    unsigned checked;
    bool lost; /* the peer */
};

static unsigned char byte_of(unsigned seed, size_t at)
{
    return (unsigned char)(at * 31 + at / 4096 + seed * 7 + 1);
}

static void fill(unsigned char *to, size_t at, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        to[i] = byte_of(seed, at + i);
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    (void)why;
    ((struct member *)arg)->lost = true;
}

/* The puts before this message have ended: args are the first byte, their number, and the seed. */
static void on_check(const struct weft_am *am)
{
    struct member *m = am->arg;
    const unsigned char *bytes = weft_mr_base(m->mr);
    for (size_t i = am->args[0]; i < am->args[0] + am->args[1]; i++)
        if (bytes[i] != byte_of(am->args[2], i))
            proc_fail(__FILE__, __LINE__, "byte %zu is %u, not %u (seed %u)", i, bytes[i],
                      byte_of(am->args[2], i), am->args[2]);
    CHECK_STATUS(weft_am_reply(am, CHECKED, NULL, 0, NULL, 0), WEFT_OK);
}

static void on_checked(const struct weft_am *am)
{
    ((struct member *)am->arg)->checked++;
}

static void member_open(struct member *m, const char *node)
{
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep = WEFT_EP_PARAMS_INIT;
    *m = (struct member){.checked = 0};
    CHECK(!setenv("WEFT_NODE_NAME", node, 1));
    ctx.flags = WEFT_CTX_NETWORK;
    ep.peer_down = on_down;
    ep.arg = m;
    CHECK_STATUS(weft_ctx_open(&ctx, &m->ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(m->ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(m->ctx, &ep, &m->ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, CHECK_IT, on_check, m), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, CHECKED, on_checked, m), WEFT_OK);
}

static void card_send(const struct member *m, int sock)
{
    struct card c = {.address_len = sizeof c.address, .key_len = sizeof c.key};
    CHECK_STATUS(weft_ep_address(m->ep, c.address, &c.address_len), WEFT_OK);
    CHECK_STATUS(weft_mr_key(m->mr, c.key, &c.key_len), WEFT_OK);
    proc_say(sock, &c, sizeof c);
}

static void region_open(struct member *m, size_t size, unsigned access)
{
    CHECK_STATUS(weft_mem_alloc(m->ctx, size, access, &m->mr), WEFT_OK);
}

static struct weft_remote *remote_open(struct member *m, const struct card *c)
{
    struct weft_remote *r;
    if (!m->peer)
        CHECK_STATUS(weft_peer_open(m->ep, c->address, c->address_len, &m->peer), WEFT_OK);
    CHECK_STATUS(weft_remote_open(m->peer, c->key, c->key_len, &r), WEFT_OK);
    return r;
}

/* Returns SIZE bytes of the source's. */
static unsigned char *source_open(struct member *m, int sock)
{
    member_open(m, "left");
    m->bytes = calloc(1, SIZE);
    CHECK(m->bytes);
    CHECK(proc_hear(sock, &m->card, sizeof m->card) == sizeof m->card);
    m->remote = remote_open(m, &m->card);
    return m->bytes;
}

static void source_close(struct member *m)
{
    CHECK_STATUS(weft_remote_close(m->remote), WEFT_OK);
    while (weft_peer_close(m->peer) == WEFT_EBUSY)
        CHECK(weft_ep_wait(m->ep, 10000000) >= 0);
    CHECK_STATUS(weft_ep_close(m->ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(m->ctx), WEFT_OK);
    free(m->bytes);
}

/* Poll until [op] has ended, for at most [ms]. Returns its status. */
static enum weft_status op_await(struct member *m, const struct weft_op *op, unsigned ms)
{
    uint64_t end = proc_now_ns() + ms * UINT64_C(1000000);
    while (op->status == WEFT_PENDING && proc_now_ns() < end)
        CHECK(weft_ep_wait(m->ep, 10000000) >= 0);
    return op->status;
}

static enum weft_status put(struct member *m, struct weft_remote *r, size_t at, const void *bytes,
                            size_t len)
{
    struct weft_op op = {0};
    enum weft_status status = weft_put(r, at, bytes, len, &op);
    return status == WEFT_PENDING ? op_await(m, &op, PROC_WAIT_MS) : status;
}

static enum weft_status get(struct member *m, struct weft_remote *r, size_t at, void *bytes,
                            size_t len)
{
    struct weft_op op = {0};
    enum weft_status status = weft_get(r, at, bytes, len, &op);
    return status == WEFT_PENDING ? op_await(m, &op, PROC_WAIT_MS) : status;
}

/* Let the target compare its bytes. Returns OK | EPEER */
static enum weft_status compare(struct member *m, size_t at, size_t len, unsigned seed)
{
    const uint32_t args[] = {(uint32_t)at, (uint32_t)len, seed};
    uint64_t end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    unsigned before = m->checked;
    enum weft_status status;
    while ((status = weft_am_request(m->peer, CHECK_IT, args, 3, NULL, 0, 1)) == WEFT_AGAIN)
        CHECK(weft_ep_wait(m->ep, 10000000) >= 0);
    CHECK(status == WEFT_OK || status == WEFT_EPEER);
    while (m->checked == before && !m->lost) {
        CHECK(proc_now_ns() < end);
        CHECK(weft_ep_wait(m->ep, 10000000) >= 0);
    }
    return m->lost ? WEFT_EPEER : WEFT_OK;
}

/* A target polls until the parent has sent something, which it returns. */
static char serve(struct member *m, int sock)
{
    char said;
    while (recv(sock, &said, 1, MSG_DONTWAIT) != 1)
        CHECK(weft_ep_wait(m->ep, 1000000) >= 0);
    return said;
}

static void target_close(struct member *m)
{
    if (m->mr)
        CHECK_STATUS(weft_mr_close(m->mr), WEFT_OK);
    CHECK_STATUS(weft_ep_close(m->ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(m->ctx), WEFT_OK);
}

static void target_run(int sock, const char *node, unsigned access)
{
    struct member m;
    member_open(&m, node);
    region_open(&m, SIZE, access);
    fill(weft_mr_base(m.mr), 0, SIZE, 77);
    card_send(&m, sock);
    CHECK(serve(&m, sock) == '!');
    target_close(&m);
}

/* [arg] is the node's name, or NULL. */
static void target_main(int sock, void *arg)
{
    target_run(sock, arg ? arg : "right", WEFT_REMOTE_READ | WEFT_REMOTE_WRITE);
}

static void readable_main(int sock, void *arg)
{
    (void)arg;
    target_run(sock, "right", WEFT_REMOTE_READ);
}

struct scene {
    struct proc target, source;
};

static void scene_begin(struct scene *s, void (*source)(int, void *), void (*target)(int, void *))
{
    struct card c;
    services_begin(false);
    s->target = proc_start(target, NULL);
    s->source = proc_start(source, NULL);
    CHECK(proc_hear(s->target.sock, &c, sizeof c) == sizeof c);
    proc_say(s->source.sock, &c, sizeof c);
}

static void scene_end(struct scene *s)
{
    proc_join(&s->source);
    proc_say(s->target.sock, "!", 1);
    proc_join(&s->target);
    services_end();
}

/* ---- the cases ---- */

/* Put all of SIZE bytes, in pieces of [len] that begin at [at], and let the target compare them.
 * Returns OK | EPEER */
static enum weft_status put_all(struct member *m, unsigned char *bytes, size_t at, size_t len,
                                unsigned seed)
{
    struct weft_op ops[WINDOW] = {{0}};
    enum weft_status worst = WEFT_OK;
    unsigned n = 0;
    size_t begin = at;
    fill(bytes, 0, SIZE, seed);
    for (; at + len <= SIZE; at += len, n = (n + 1) % WINDOW) {
        ops[n].status = op_await(m, &ops[n], PROC_WAIT_MS);
        worst = ops[n].status == WEFT_OK ? worst : ops[n].status;
        if (worst == WEFT_OK)
            ops[n].status = weft_put(m->remote, at, bytes + at, len, &ops[n]);
    }
    for (unsigned i = 0; i < WINDOW; i++)
        if (op_await(m, &ops[i], PROC_WAIT_MS) != WEFT_OK)
            worst = ops[i].status;
    if (worst == WEFT_OK)
        worst = compare(m, begin, at - begin, seed);
    CHECK(worst == WEFT_OK || worst == WEFT_EPEER);
    return worst;
}

/* Get what put_all has put. Returns OK | EPEER */
static enum weft_status get_all(struct member *m, size_t at, size_t len, unsigned seed)
{
    static unsigned char got[SIZE + 1];
    struct weft_op ops[WINDOW] = {{0}};
    enum weft_status worst = WEFT_OK;
    unsigned n = 0;
    size_t begin = at;
    memset(got, 0, sizeof got);
    for (; at + len <= SIZE; at += len, n = (n + 1) % WINDOW) {
        if (op_await(m, &ops[n], PROC_WAIT_MS) != WEFT_OK)
            worst = ops[n].status;
        if (worst == WEFT_OK)
            ops[n].status = weft_get(m->remote, at, got + at, len, &ops[n]);
    }
    for (unsigned i = 0; i < WINDOW; i++)
        if (op_await(m, &ops[i], PROC_WAIT_MS) != WEFT_OK)
            worst = ops[i].status;
    CHECK(worst == WEFT_OK || worst == WEFT_EPEER);
    for (size_t i = 0; worst == WEFT_OK && i <= SIZE; i++)
        CHECK(got[i] == (i >= begin && i < at ? byte_of(seed, i) : 0));
    return worst;
}

static void lengths_main(int sock, void *arg)
{
    static const size_t lens[] = {16383, 16384, 65536, 262143, 262144, 262145, 1 << 20, SIZE - 9};
    struct member m;
    unsigned char *bytes = source_open(&m, sock);
    unsigned seed = 0;
    (void)arg;
    for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++)
        for (size_t at = 0; at < 9; at = at * 2 + 1) {
            CHECK_STATUS(put_all(&m, bytes, at, lens[i], ++seed), WEFT_OK);
            if (at == i % 4)
                CHECK_STATUS(get_all(&m, at, lens[i], seed), WEFT_OK);
        }
    source_close(&m);
}

/* Fails when: bytes arrive in another place, are others, or come after a message that was sent when
 * the put had ended; or more puts or gets than there are buffers do not end. */
static void lengths(void)
{
    struct scene s;
    scene_begin(&s, lengths_main, target_main);
    scene_end(&s);
}

static void encrypted(void)
{
    CHECK(!setenv("WEFT_TCP_ENCRYPT", "1", 1));
    lengths();
}

/* Put (or get) while the target does not run, until the services do that. They cannot before they
 * are connected, and before the target's has mapped the memory: then the put goes by messages. */
static void services_learn(struct member *m, int sock, unsigned char *bytes, bool gets)
{
    for (unsigned i = 0;; i++) {
        struct weft_op op = {0};
        enum weft_status status;
        char said;
        proc_say(sock, "stop", 4);
        CHECK(proc_hear(sock, &said, 1) == 1);
        status = gets ? weft_get(m->remote, 0, bytes, 65536, &op)
                      : weft_put(m->remote, 0, bytes, 65536, &op);
        CHECK(i < TRIES && (status == WEFT_PENDING || status == WEFT_OK));
        if (op_await(m, &op, SHORT_MS) == WEFT_OK)
            return;
        proc_say(sock, "go", 2);
        CHECK_STATUS(op_await(m, &op, PROC_WAIT_MS), WEFT_OK);
    }
}

static void stopped_main(int sock, void *arg)
{
    static const size_t lens[] = {16384, 262145, SIZE};
    struct member m;
    unsigned char *bytes = source_open(&m, sock);
    (void)arg;
    fill(bytes, 0, SIZE, 1);
    services_learn(&m, sock, bytes, false);
    for (unsigned i = 0; i < 3; i++) {
        fill(bytes, 0, SIZE, i);
        CHECK_STATUS(put(&m, m.remote, 0, bytes, lens[i]), WEFT_OK);
        memset(bytes, 0, SIZE);
        CHECK_STATUS(get(&m, m.remote, i, bytes, lens[i] - i), WEFT_OK);
        for (size_t k = i; k < lens[i]; k++)
            CHECK(bytes[k - i] == byte_of(i, k));
    }
    proc_say(sock, "go", 2);
    CHECK_STATUS(compare(&m, 0, SIZE, 2), WEFT_OK);
    source_close(&m);
    proc_say(sock, "end", 3);
}

static void reading_main(int sock, void *arg)
{
    struct member m;
    unsigned char *bytes = source_open(&m, sock);
    (void)arg;
    services_learn(&m, sock, bytes, true);
    CHECK_STATUS(get(&m, m.remote, 1, bytes, SIZE - 1), WEFT_OK);
    for (size_t k = 1; k < SIZE; k++)
        CHECK(bytes[k - 1] == byte_of(77, k));
    proc_say(sock, "go", 2);
    CHECK_STATUS(put(&m, m.remote, 0, bytes, 65536), WEFT_EACCESS);
    CHECK_STATUS(get(&m, m.remote, 0, bytes, 65536), WEFT_OK);
    CHECK(bytes[0] == byte_of(77, 0));
    source_close(&m);
    proc_say(sock, "end", 3);
}

static void stops(void (*source)(int, void *), void (*target)(int, void *))
{
    struct scene s;
    char said[8];
    size_t n;
    scene_begin(&s, source, target);
    while ((n = proc_hear(s.source.sock, said, sizeof said)) != 3) {
        if (n == 4) {
            proc_stop(&s.target);
            proc_say(s.source.sock, "!", 1);
        } else {
            CHECK(n == 2);
            proc_continue(&s.target);
        }
    }
    scene_end(&s);
}

/* Fails when: a put to memory of a process that is stopped, or a get, does not end, or has other
 * bytes. */
static void stopped(void)
{
    stops(stopped_main, target_main);
}

/* Fails when: a get from memory that peers may only read, of a process that is stopped, does not
 * end. */
static void readable(void)
{
    stops(reading_main, readable_main);
}

/* Regions one after the other, in one slot of the target's table. */
static void regions_target(int sock, void *arg)
{
    struct member m;
    (void)arg;
    member_open(&m, "right");
    region_open(&m, SIZE, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE);
    card_send(&m, sock);
    while (serve(&m, sock) == '+') {
        struct weft_mr *old = m.mr;
        CHECK_STATUS(weft_mr_close(old), WEFT_OK);
        region_open(&m, SIZE, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE);
        fill(weft_mr_base(m.mr), 0, SIZE, 99);
        card_send(&m, sock);
    }
    target_close(&m);
}

static void regions_main(int sock, void *arg)
{
    struct member m;
    unsigned char *bytes = source_open(&m, sock);
    (void)arg;
    for (unsigned seed = 0; seed < 8; seed++) {
        struct weft_remote *old = m.remote;
        CHECK_STATUS(put_all(&m, bytes, 0, 65536, seed), WEFT_OK);
        proc_say(sock, "+", 1);
        CHECK(proc_hear(sock, &m.card, sizeof m.card) == sizeof m.card);
        m.remote = remote_open(&m, &m.card);
        CHECK_STATUS(put(&m, old, 0, bytes, 65536), WEFT_EKEY);
        CHECK_STATUS(put(&m, old, 100, bytes, SIZE - 100), WEFT_EKEY);
        CHECK_STATUS(get(&m, old, 0, bytes, 65536), WEFT_EKEY);
        CHECK_STATUS(get(&m, old, 100, bytes, SIZE - 100), WEFT_EKEY);
        CHECK_STATUS(get_all(&m, 0, 1 << 20, 99), WEFT_OK);
        CHECK_STATUS(compare(&m, 0, SIZE, 99), WEFT_OK);
        CHECK_STATUS(weft_remote_close(old), WEFT_OK);
    }
    source_close(&m);
    proc_say(sock, "end", 3);
}

/* Fails when: the key of a region that was closed still leads to memory, or another one's; or a
 * region opened after it cannot be reached. */
static void regions(void)
{
    struct scene s;
    struct card c;
    char said[8];
    scene_begin(&s, regions_main, regions_target);
    while (proc_hear(s.source.sock, said, sizeof said) == 1) {
        proc_say(s.target.sock, said, 1);
        CHECK(proc_hear(s.target.sock, &c, sizeof c) == sizeof c);
        proc_say(s.source.sock, &c, sizeof c);
    }
    scene_end(&s);
}

/* Puts and gets until the parent has sent something; a target that is gone ends them, which is
 * reported. */
static void stream_main(int sock, void *arg)
{
    struct member m;
    unsigned char *bytes = source_open(&m, sock);
    bool lost = false;
    char said;
    (void)arg;
    CHECK_STATUS(put_all(&m, bytes, 0, 262144, 0), WEFT_OK);
    proc_say(sock, "+", 1);
    for (unsigned seed = 1; recv(sock, &said, 1, MSG_DONTWAIT) != 1; seed++) {
        if (lost) {
            CHECK(weft_ep_wait(m.ep, 1000000) >= 0);
            continue;
        }
        lost = (seed % 2 ? put(&m, m.remote, seed % 9, bytes, 1 << 20)
                         : get(&m, m.remote, seed % 9, bytes, 1 << 20)) == WEFT_EPEER;
        if (!lost && seed % 4 == 0)
            lost = put_all(&m, bytes, seed % 9, 262144 - seed, seed) == WEFT_EPEER ||
                   get_all(&m, seed % 9, 262144 - seed, seed) == WEFT_EPEER;
        if (lost)
            proc_say(sock, "lost", 4);
    }
    CHECK(lost == (said == 'x'));
    source_close(&m);
}

enum { KILLS = 6 };

/* Fails when: bytes are lost or come later than the end of a put or get, or one does not end, while
 * services of either node are killed and have successors, to which the memory has to be given
 * again. */
static void service_killed(void)
{
    struct scene s;
    char said;
    scene_begin(&s, stream_main, target_main);
    CHECK(proc_hear(s.source.sock, &said, 1) == 1);
    for (unsigned i = 0; i < KILLS; i++) {
        pid_t services[2];
        services_await(services, 2);
        CHECK(!poll(NULL, 0, 20)); /* amid the stream, at no particular point */
        CHECK(!kill(services[i % 2], SIGKILL));
        while (services_runs(services[i % 2]))
            CHECK(!sched_yield());
    }
    proc_say(s.source.sock, "!", 1);
    scene_end(&s);
}

/* Fails when: a put or get of a process that was killed does not end with EPEER, or other clients
 * of the two services do not go on. */
static void target_killed(void)
{
    struct proc target, source;
    struct scene s;
    struct card c;
    char said, lost[8];
    scene_begin(&s, stream_main, target_main);
    target = proc_start(target_main, NULL);
    source = proc_start(stream_main, NULL);
    CHECK(proc_hear(target.sock, &c, sizeof c) == sizeof c);
    proc_say(source.sock, &c, sizeof c);
    CHECK(proc_hear(s.source.sock, &said, 1) == 1);
    CHECK(proc_hear(source.sock, &said, 1) == 1);
    CHECK(WIFSIGNALED(proc_kill(&target, SIGKILL)));
    CHECK(proc_hear(source.sock, lost, sizeof lost) == 4);
    proc_say(source.sock, "x", 1);
    proc_join(&source);
    proc_say(s.source.sock, "!", 1);
    scene_end(&s);
}

/* Fails when: the end of a source amid its puts leaves a service with memory that it does not
 * unmap, or stops the other source's puts. */
static void source_killed(void)
{
    struct scene s;
    struct proc more;
    struct card c;
    char said;
    scene_begin(&s, stream_main, target_main);
    CHECK(proc_hear(s.source.sock, &said, 1) == 1);
    for (unsigned i = 0; i < KILLS; i++) {
        struct proc target = proc_start(target_main, NULL);
        more = proc_start(stream_main, NULL);
        CHECK(proc_hear(target.sock, &c, sizeof c) == sizeof c);
        proc_say(more.sock, &c, sizeof c);
        CHECK(proc_hear(more.sock, &said, 1) == 1);
        CHECK(WIFSIGNALED(proc_kill(&more, SIGKILL)));
        proc_say(target.sock, "!", 1);
        proc_join(&target);
    }
    proc_say(s.source.sock, "!", 1);
    scene_end(&s);
}

enum { CLOSES = 24 };

/* Close the peer amid a get, whose memory is then not the library's any more. */
static void closing_main(int sock, void *arg)
{
    unsigned char *mem[CLOSES];
    struct member m;
    (void)arg;
    (void)source_open(&m, sock);
    for (unsigned i = 0; i < CLOSES; i++) {
        struct weft_op op = {0};
        mem[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mem[i] != MAP_FAILED);
        CHECK_STATUS(get(&m, m.remote, 0, mem[i], 65536), WEFT_OK);
        CHECK_STATUS(weft_get(m.remote, 0, mem[i], SIZE, &op), WEFT_PENDING);
        for (unsigned k = 0; k < i % 8 * 30; k++)
            CHECK(weft_ep_poll(m.ep) >= 0);
        CHECK_STATUS(weft_remote_close(m.remote), WEFT_OK);
        CHECK_STATUS(weft_peer_close(m.peer), WEFT_OK);
        CHECK(op.status == WEFT_ECANCELED || op.status == WEFT_OK);
        CHECK(!mprotect(mem[i], SIZE, PROT_NONE));
        m.peer = NULL;
        m.remote = remote_open(&m, &m.card);
    }
    source_close(&m);
    for (unsigned i = 0; i < CLOSES; i++)
        CHECK(!munmap(mem[i], SIZE));
}

/* Fails when: bytes of a get are copied to memory of a peer that was closed meanwhile. */
static void closing(void)
{
    struct scene s;
    scene_begin(&s, closing_main, target_main);
    scene_end(&s);
}

/* A second endpoint that gets [c]'s memory, with a peer and a remote of its own. */
static void second_open(struct member *second, const struct member *m, const struct card *c,
                        void *bytes)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    *second = (struct member){.ctx = m->ctx};
    params.arg = second;
    CHECK_STATUS(weft_ep_open(m->ctx, &params, &second->ep), WEFT_OK);
    second->remote = remote_open(second, c);
    for (unsigned i = 0; i < 8; i++)
        CHECK_STATUS(get(second, second->remote, 0, bytes, 65536), WEFT_OK);
}

/* Close it amid a get from a silent node, which has nothing to do for that. */
static void second_close(struct member *second, void *bytes)
{
    struct weft_op op = {0};
    uint64_t begin = proc_now_ns();
    CHECK_STATUS(weft_get(second->remote, 0, bytes, 65536, &op), WEFT_PENDING);
    CHECK_STATUS(weft_remote_close(second->remote), WEFT_OK);
    CHECK_STATUS(weft_peer_close(second->peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(second->ep), WEFT_OK);
    CHECK(op.status == WEFT_ECANCELED);
    CHECK(proc_now_ns() - begin < UINT64_C(2000000000)); /* WEFT_PEER_TIMEOUT is 3 s */
}

/* A second node's service is stopped while it has puts. */
static void silent_main(int sock, void *arg)
{
    struct weft_peer *right;
    struct weft_remote *r, *far;
    unsigned char *far_bytes = malloc(SIZE);
    struct weft_op op = {0}, get_op = {0};
    struct member m, second;
    unsigned char *bytes = source_open(&m, sock);
    struct card c;
    char said;
    (void)arg;
    CHECK(far_bytes);
    second_open(&second, &m, &m.card, far_bytes);
    CHECK(proc_hear(sock, &c, sizeof c) == sizeof c);
    CHECK_STATUS(weft_peer_open(m.ep, c.address, c.address_len, &right), WEFT_OK);
    CHECK_STATUS(weft_remote_open(right, c.key, c.key_len, &r), WEFT_OK);
    far = m.remote;
    for (unsigned i = 0; i < 8; i++) {
        CHECK_STATUS(put(&m, far, 0, bytes, 65536), WEFT_OK);
        CHECK_STATUS(put(&m, r, 0, bytes, 65536), WEFT_OK);
    }
    proc_say(sock, "stop", 4);
    CHECK(proc_hear(sock, &said, 1) == 1);
    second_close(&second, far_bytes);
    CHECK_STATUS(weft_put(far, 0, bytes, SIZE, &op), WEFT_PENDING);
    CHECK_STATUS(weft_get(far, 0, far_bytes, SIZE, &get_op), WEFT_PENDING);
    for (unsigned i = 0; i < 8; i++) {
        CHECK_STATUS(put(&m, r, 0, bytes, 262144), WEFT_OK);
        CHECK_STATUS(get(&m, r, 0, bytes, 262144), WEFT_OK);
        CHECK_STATUS(put(&m, r, 0, bytes, 8), WEFT_OK);
    }
    CHECK(op.status == WEFT_PENDING && get_op.status == WEFT_PENDING);
    proc_say(sock, "go", 2);
    CHECK_STATUS(op_await(&m, &op, PROC_WAIT_MS), WEFT_OK);
    CHECK_STATUS(op_await(&m, &get_op, PROC_WAIT_MS), WEFT_OK);
    CHECK(!memcmp(far_bytes, bytes, SIZE));
    free(far_bytes);
    CHECK_STATUS(weft_remote_close(r), WEFT_OK);
    CHECK_STATUS(weft_peer_close(right), WEFT_OK);
    source_close(&m);
}

/* Fails when: puts to a node whose service does not answer, or gets, keep those of other nodes
 * back, or an endpoint that closes. */
static void silent(void)
{
    struct proc far, right, source;
    pid_t services[2];
    struct card c;
    char said[8];
    services_begin(false);
    far = proc_start(target_main, "far");
    CHECK(proc_hear(far.sock, &c, sizeof c) == sizeof c);
    services_await(services, 1);
    right = proc_start(target_main, NULL);
    source = proc_start(silent_main, NULL);
    proc_say(source.sock, &c, sizeof c);
    CHECK(proc_hear(right.sock, &c, sizeof c) == sizeof c);
    proc_say(source.sock, &c, sizeof c);
    CHECK(proc_hear(source.sock, said, sizeof said) == 4);
    CHECK(!kill(services[0], SIGSTOP));
    proc_say(source.sock, "!", 1);
    CHECK(proc_hear(source.sock, said, sizeof said) == 2);
    CHECK(!kill(services[0], SIGCONT));
    proc_join(&source);
    proc_say(far.sock, "!", 1);
    proc_say(right.sock, "!", 1);
    proc_join(&far);
    proc_join(&right);
    services_end();
}

int main(void)
{
    int bad = 0;
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "3s", 1));
    bad += proc_case("lengths", lengths);
    bad += proc_case("encrypted", encrypted);
    bad += proc_case("stopped", stopped);
    bad += proc_case("stopped, read only", readable);
    bad += proc_case("regions", regions);
    bad += proc_case("a service is killed", service_killed);
    bad += proc_case("a target is killed", target_killed);
    bad += proc_case("a source is killed", source_killed);
    bad += proc_case("a peer is closed", closing);
    bad += proc_case("a node is silent", silent);
    return bad != 0;
}
