/* SPDX-License-Identifier: BSD-3-Clause */
/* A stopped process is slow, not dead, and once it continues, it can touch only memory that is not
 * used any more.
 *
 * What makes it fail: a death reported by a timeout (slow*); a message lost or doubled when a ring
 * is full for long (slow*); a region that is closed without changing its generation (late_*_closed:
 * tried), or whose space is handed out again while a mate still has it mapped (late_*: tried); a
 * put that looks at the generation only before the copy (late_*); a question to a stopped service
 * thread that waits for ever, or is not asked again (timeout). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void point(const char *label); /* points/weft/meson.build */
#include <weft/weft.h>

#include "proc.h"

#define STOPPED_NS UINT64_C(300000000)
#define ASK_NS INT64_C(10000000000)
#define TIMEOUT_MS 200

enum { AM_COUNT = 1, AM_ASK, AM_ANSWER, AM_QUIT };

/* Stop this process the first time it comes to this label. */
static const char *stop_at;

static void point(const char *label)
{
    if (!stop_at || strcmp(label, stop_at))
        return;
    stop_at = NULL;
    raise(SIGSTOP);
}

/* ---- a process that counts ---- */

struct counter {
    uint64_t count, sum;
    bool quit;
};

static void on_count(const struct weft_am *am)
{
    struct counter *c = am->arg;
    c->count++;
    c->sum += am->args[0];
    for (uint32_t i = 0; i < am->len; i++)
        CHECK(((const unsigned char *)am->data)[i] == (unsigned char)am->args[0]);
}

static void on_ask(const struct weft_am *am)
{
    const struct counter *c = am->arg;
    uint64_t both[2] = {c->count, c->sum};
    CHECK_STATUS(weft_am_reply(am, AM_ANSWER, NULL, 0, both, sizeof both), WEFT_OK);
}

static void on_quit(const struct weft_am *am)
{
    ((struct counter *)am->arg)->quit = true;
}

struct offer {
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
};

static void offer_make(struct offer *o, struct weft_ep *ep, struct weft_mr *mr)
{
    *o = (struct offer){.address_len = sizeof o->address, .key_len = sizeof o->key};
    CHECK_STATUS(weft_ep_address(ep, o->address, &o->address_len), WEFT_OK);
    if (mr)
        CHECK_STATUS(weft_mr_key(mr, o->key, &o->key_len), WEFT_OK);
}

static void counter_main(int sock, void *arg)
{
    struct counter c = {0};
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct offer o;
    (void)arg;
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    CHECK_STATUS(weft_mem_alloc(ctx, 4096, WEFT_REMOTE_READ, &mr), WEFT_OK);
    strcpy(weft_mr_base(mr), "here");
    CHECK_STATUS(weft_am_register(ep, AM_COUNT, on_count, &c), WEFT_OK);
    CHECK_STATUS(weft_am_register(ep, AM_ASK, on_ask, &c), WEFT_OK);
    CHECK_STATUS(weft_am_register(ep, AM_QUIT, on_quit, &c), WEFT_OK);
    offer_make(&o, ep, mr);
    proc_say(sock, &o, sizeof o);
    while (!c.quit)
        CHECK(weft_ep_wait(ep, -1) >= 0);
    CHECK_STATUS(weft_mr_close(mr), WEFT_OK);
    CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
}

/* ---- this process ---- */

static struct weft_ctx *ctx;
static struct weft_ep *ep;
static bool answered;
static uint64_t answer[2];

static void on_answer(const struct weft_am *am)
{
    memcpy(answer, am->data, sizeof answer);
    answered = true;
}

static void on_down(struct weft_ep *at, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)at, (void)peer, (void)arg;
    proc_fail(__FILE__, __LINE__, "peer_down: %s", weft_status_name(why));
}

static void own_open(void)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, &params, &ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(ep, AM_ANSWER, on_answer, NULL), WEFT_OK);
}

static void ask_once(struct weft_peer *peer)
{
    uint64_t until = proc_now_ns() + (uint64_t)ASK_NS;
    enum weft_status s;
    answered = false;
    while ((s = weft_am_request(peer, AM_ASK, NULL, 0, NULL, 0, sizeof answer + 1)) == WEFT_AGAIN) {
        CHECK(weft_ep_wait(ep, 1000000) >= 0);
        CHECK(proc_now_ns() < until);
    }
    CHECK_STATUS(s, WEFT_OK);
    while (!answered) {
        CHECK(weft_ep_wait(ep, ASK_NS) >= 0);
        CHECK(proc_now_ns() < until);
    }
}

/* Until [n] messages are counted: order is not promised, so an answer may have
 * been given ahead of messages that were sent before the question. */
static void ask(struct weft_peer *peer, uint64_t n)
{
    uint64_t until = proc_now_ns() + (uint64_t)ASK_NS;
    do
        ask_once(peer);
    while (answer[0] != n && proc_now_ns() < until);
}

/* The i-th message: every third is more than a line. */
static enum weft_status count_send(struct weft_peer *peer, uint32_t i)
{
    unsigned char data[1000];
    memset(data, (int)(unsigned char)i, sizeof data);
    return weft_am_request(peer, AM_COUNT, &i, 1, data, i % 3 ? i % 30 : sizeof data, 0);
}

/* Bounded by the test: for STOPPED_NS the peer must not be reported as lost. */
static uint32_t flood_stopped(struct weft_peer *peer, uint32_t n)
{
    uint64_t until = proc_now_ns() + STOPPED_NS;
    bool full = false;
    while (!full || proc_now_ns() < until) {
        enum weft_status s = count_send(peer, n);
        n += s == WEFT_OK;
        if (s != WEFT_OK) {
            CHECK_STATUS(s, WEFT_AGAIN);
            full = true;
            CHECK(weft_ep_wait(ep, 1000000) >= 0);
        }
        CHECK_STATUS(weft_peer_status(peer), WEFT_OK);
    }
    CHECK(n < 4000); /* of 2,048 slots */
    return n;
}

static void slow(void)
{
    struct proc p = proc_start(counter_main, NULL);
    struct weft_peer *peer;
    struct offer o;
    uint32_t n = 0;
    uint64_t sum = 0;
    own_open();
    CHECK(proc_hear(p.sock, &o, sizeof o) == sizeof o);
    CHECK_STATUS(weft_peer_open(ep, o.address, o.address_len, &peer), WEFT_OK);
    for (; n < 10; n++)
        CHECK_STATUS(count_send(peer, n), WEFT_OK);
    ask(peer, n);
    CHECK(answer[0] == n);
    for (int round = 0; round < 2; round++) {
        proc_stop(&p);
        n = flood_stopped(peer, n);
        proc_continue(&p);
        ask(peer, n);
        sum = (uint64_t)n * (n - 1) / 2;
        CHECK(answer[0] == n && answer[1] == sum);
    }
    CHECK_STATUS(weft_am_request(peer, AM_QUIT, NULL, 0, NULL, 0, 0), WEFT_OK);
    proc_join(&p);
}

/* A peer that is stopped before this process ever talked to it: connecting and
 * the first messages wait for it. */
static void slow_from_the_start(void)
{
    struct proc p = proc_start(counter_main, NULL);
    struct weft_peer *peer;
    struct offer o;
    uint32_t n;
    own_open();
    CHECK(proc_hear(p.sock, &o, sizeof o) == sizeof o);
    proc_stop(&p);
    CHECK_STATUS(weft_peer_open(ep, o.address, o.address_len, &peer), WEFT_OK);
    n = flood_stopped(peer, 0);
    proc_continue(&p);
    ask(peer, n);
    CHECK(answer[0] == n && answer[1] == (uint64_t)n * (n - 1) / 2);
    CHECK_STATUS(weft_am_request(peer, AM_QUIT, NULL, 0, NULL, 0, 0), WEFT_OK);
    proc_join(&p);
}

static void timeout(void)
{
    struct weft_remote *r;
    struct weft_peer *peer;
    struct proc p;
    struct offer o;
    char text[5] = "";
    enum weft_status status;
    uint64_t start, ms;
    setenv("WEFT_CONNECT_TIMEOUT", "200", 1);
    p = proc_start(counter_main, NULL);
    own_open();
    CHECK(proc_hear(p.sock, &o, sizeof o) == sizeof o);
    CHECK_STATUS(weft_peer_open(ep, o.address, o.address_len, &peer), WEFT_OK);
    proc_stop(&p);
    for (int i = 0; i < 2; i++) {
        start = proc_now_ns();
        CHECK_STATUS(weft_remote_open(peer, o.key, o.key_len, &r), WEFT_ETIMEDOUT);
        ms = (proc_now_ns() - start) / 1000000;
        CHECK(ms >= TIMEOUT_MS && ms < TIMEOUT_MS + 2000);
    }
    CHECK_STATUS(weft_peer_status(peer), WEFT_OK);
    proc_continue(&p);
    do /* TIMEOUT_MS may be short for it, too, once it goes on */
        status = weft_remote_open(peer, o.key, o.key_len, &r);
    while (status == WEFT_ETIMEDOUT && proc_now_ns() - start < (uint64_t)ASK_NS);
    CHECK_STATUS(status, WEFT_OK);
    CHECK_STATUS(weft_get(r, 0, text, sizeof text, NULL), WEFT_OK);
    CHECK(!strcmp(text, "here"));
    CHECK_STATUS(weft_remote_close(r), WEFT_OK);
    ask_once(peer);
    CHECK_STATUS(weft_am_request(peer, AM_QUIT, NULL, 0, NULL, 0, 0), WEFT_OK);
    proc_join(&p);
}

/* ---- a process that is stopped in the middle of a copy ---- */

struct late {
    const char *at;
    size_t len;
};

static enum weft_status late_call(const struct late *l, struct weft_remote *r, unsigned char *buf)
{
    stop_at = l->at;
    if (!strcmp(l->at, "get.copy"))
        return weft_get(r, 0, buf, l->len, NULL);
    if (!strcmp(l->at, "put.copy"))
        return weft_put(r, 0, buf, l->len, NULL);
    return weft_put_signal(r, 0, buf, 0, r, 0, 0x1111111111111111, WEFT_SIGNAL_SET, NULL);
}

static void late_main(int sock, void *arg)
{
    const struct late *l = arg;
    unsigned char *buf = malloc(l->len);
    struct weft_remote *r;
    struct weft_peer *peer;
    struct offer o;
    int32_t status;
    CHECK(buf != NULL);
    memset(buf, 0x11, l->len);
    own_open();
    CHECK(proc_hear(sock, &o, sizeof o) == sizeof o);
    CHECK_STATUS(weft_peer_open(ep, o.address, o.address_len, &peer), WEFT_OK);
    CHECK_STATUS(weft_remote_open(peer, o.key, o.key_len, &r), WEFT_OK);
    status = late_call(l, r, buf);
    proc_say(sock, &status, sizeof status);
    status = weft_put(r, 0, buf, 1, NULL); /* and every later one */
    proc_say(sock, &status, sizeof status);
    CHECK_STATUS(weft_remote_close(r), WEFT_OK);
}

#define REUSES 8

static void fill(void *at, size_t len, size_t *count)
{
    memset(at, 0x5a, len);
    *count += len;
}

static void verify(const void *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        CHECK(((const unsigned char *)at)[i] == 0x5a);
}

/* New regions, and plain memory where the old one was if its pages are gone. */
static void late_case(const char *at, size_t len, int reuses)
{
    struct late l = {at, len};
    struct proc p = proc_start(late_main, &l);
    struct weft_mr *mr, *more[REUSES];
    struct offer o;
    size_t filled = 0;
    int32_t status;
    void *old, *plain;
    own_open();
    CHECK_STATUS(weft_mem_alloc(ctx, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr), WEFT_OK);
    old = weft_mr_base(mr);
    offer_make(&o, ep, mr);
    proc_say(p.sock, &o, sizeof o);
    proc_await_stop(&p); /* by itself, between the check and the copy */
    CHECK_STATUS(weft_mr_close(mr), WEFT_OK);
    plain = mmap(old, len, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(plain != MAP_FAILED || errno == EEXIST ||
          errno == EINVAL); /* EINVAL: not a page's start */
    if (plain != MAP_FAILED)
        fill(plain, len, &filled);
    for (int i = 0; i < reuses; i++) {
        CHECK_STATUS(weft_mem_alloc(ctx, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &more[i]),
                     WEFT_OK);
        fill(weft_mr_base(more[i]), len, &filled);
    }
    proc_continue(&p);
    for (int i = 0; i < 2; i++) {
        CHECK(proc_hear(p.sock, &status, sizeof status) == sizeof status);
        CHECK_STATUS(status, WEFT_EKEY);
    }
    if (plain != MAP_FAILED)
        verify(plain, len);
    for (int i = 0; i < reuses; i++)
        verify(weft_mr_base(more[i]), len);
    CHECK(filled >= (size_t)reuses * len);
    proc_join(&p);
}

/* _closed: nothing new takes the region's place in the table of generations. */
#define LATE(name, at)                                                                             \
    static void late_##name##_closed(void)                                                         \
    {                                                                                              \
        late_case(at, 3 * 4096, 0);                                                                \
    }                                                                                              \
    static void late_##name##_small(void)                                                          \
    {                                                                                              \
        late_case(at, 128, REUSES);                                                                \
    }                                                                                              \
    static void late_##name##_pages(void)                                                          \
    {                                                                                              \
        late_case(at, 3 * 4096, REUSES);                                                           \
    }                                                                                              \
    static void late_##name##_slab(void)                                                           \
    {                                                                                              \
        late_case(at, 3 << 20, REUSES);                                                            \
    }
LATE(put, "put.copy")
LATE(get, "get.copy")
LATE(signal, "signal.store")

int main(void)
{
    int failed = 0;
    failed += proc_case("slow", slow);
    failed += proc_case("slow_from_the_start", slow_from_the_start);
    failed += proc_case("timeout", timeout);
    failed += proc_case("late_put_closed", late_put_closed);
    failed += proc_case("late_put_small", late_put_small);
    failed += proc_case("late_put_pages", late_put_pages);
    failed += proc_case("late_put_slab", late_put_slab);
    failed += proc_case("late_get_closed", late_get_closed);
    failed += proc_case("late_get_small", late_get_small);
    failed += proc_case("late_get_pages", late_get_pages);
    failed += proc_case("late_get_slab", late_get_slab);
    failed += proc_case("late_signal_closed", late_signal_closed);
    failed += proc_case("late_signal_small", late_signal_small);
    failed += proc_case("late_signal_pages", late_signal_pages);
    failed += proc_case("late_signal_slab", late_signal_slab);
    return failed ? 1 : 0;
}
