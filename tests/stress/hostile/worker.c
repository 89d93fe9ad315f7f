/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "worker.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DATA 3000
#define IN_FLIGHT 4
#define TURN_NS 2000000

struct self {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct weft_peer *friend, *second;
    struct weft_remote *friend_mem, *second_mem;
    struct worker_offer friend_offer, second_offer;
    unsigned in_flight;
    bool working, resting;
    uint32_t seed;
    struct worker_status status;
};

static unsigned char pattern(uint32_t seed, size_t i)
{
    return (unsigned char)((seed + (uint32_t)i) * 0x9e3779b1u >> 24);
}

static void fill(unsigned char *at, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++)
        at[i] = pattern(seed, i);
}

static void verify(const unsigned char *at, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++)
        CHECK(at[i] == pattern(seed, i));
}

static bool is_friends(const struct self *s, const struct weft_am *am)
{
    unsigned char from[WEFT_ADDR_MAX];
    size_t len = sizeof from;
    CHECK_STATUS(weft_am_source(am, from, &len), WEFT_OK);
    return s->friend && len == s->friend_offer.address_len &&
           !memcmp(from, s->friend_offer.address, len);
}

/* Reads all there is and replies with as much as is allowed: what a sender
 * changes meanwhile is its own affair. */
static void stray_take(struct self *s, const struct weft_am *am)
{
    static unsigned char copy[65536];
    memcpy(copy, am->data, am->len);
    s->status.strays++;
    if (am->can_reply)
        CHECK_STATUS(weft_am_reply(am, WORKER_AM_ANSWER, NULL, 0, copy, am->reply_max - 1),
                     WEFT_OK);
}

static void on_work(const struct weft_am *am)
{
    static unsigned char reply[DATA];
    struct self *s = am->arg;
    uint32_t args[1];
    if (!is_friends(s, am)) {
        stray_take(s, am);
        return;
    }
    CHECK(am->nargs == 1 && am->len == DATA && am->reply_max == DATA + 1);
    verify(am->data, am->len, am->args[0]);
    args[0] = ~am->args[0];
    fill(reply, sizeof reply, args[0]);
    CHECK_STATUS(weft_am_reply(am, WORKER_AM_ANSWER, args, 1, reply, sizeof reply), WEFT_OK);
}

/* Answers of the second peer carry whatever it likes. */
static void on_answer(const struct weft_am *am)
{
    struct self *s = am->arg;
    if (am->nargs != 1 || am->len != DATA) {
        s->status.strays++;
        return;
    }
    verify(am->data, am->len, am->args[0]);
    s->in_flight--;
    s->status.work++;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct self *s = arg;
    (void)ep;
    if (peer == s->friend)
        s->status.friend_down = why;
    else
        s->status.second_down = why;
}

/* The friend's memory: the front of it, which is this process's alone. */
static void touch(struct self *s)
{
    static unsigned char out[DATA], in[DATA];
    fill(out, sizeof out, s->seed);
    CHECK_STATUS(weft_put(s->friend_mem, 0, out, sizeof out, NULL), WEFT_OK);
    CHECK_STATUS(weft_get(s->friend_mem, 0, in, sizeof in, NULL), WEFT_OK);
    CHECK(!memcmp(in, out, sizeof in));
}

static void work(struct self *s)
{
    static unsigned char data[DATA];
    enum weft_status status;
    if (!s->working || s->resting || s->in_flight == IN_FLIGHT)
        return;
    s->seed += 7919;
    fill(data, sizeof data, s->seed);
    status = weft_am_request(s->friend, WORKER_AM_WORK, &s->seed, 1, data, sizeof data, DATA + 1);
    if (status == WEFT_AGAIN)
        return;
    CHECK_STATUS(status, WEFT_OK);
    s->in_flight++;
    touch(s);
}

/* To the second peer: short, or beside, with and without replies; lengths that
 * no answer to the friend has. */
static void work_second(struct self *s)
{
    static unsigned char data[1000], in[64];
    uint64_t at;
    if (!s->second || s->resting)
        return;
    s->status.second =
        weft_am_request(s->second, WORKER_AM_WORK, NULL, 0, data,
                        s->status.work % 2 ? 20 : sizeof data, s->status.work % 3 ? 0 : 900);
    /* A worker's memory has a place for this that its friend does not compare. */
    at = s->second_mem && s->second_mem->length == WORKER_REGION ? WORKER_REGION - 64 : 0;
    if (s->second_mem && weft_put(s->second_mem, at, data, 64, NULL) == WEFT_OK)
        s->status.second_got = weft_get(s->second_mem, at, in, 64, NULL);
}

static void peer_drop(struct weft_peer **peer, struct weft_remote **mem)
{
    if (*mem)
        CHECK_STATUS(weft_remote_close(*mem), WEFT_OK);
    if (*peer)
        CHECK_STATUS(weft_peer_close(*peer), WEFT_OK);
    *mem = NULL;
    *peer = NULL;
}

static enum weft_status peer_make(struct self *s, const struct worker_offer *o,
                                  struct weft_peer **peer, struct weft_remote **mem)
{
    enum weft_status status = weft_peer_open(s->ep, o->address, o->address_len, peer);
    if (status == WEFT_OK && o->key_len)
        status = weft_remote_open(*peer, o->key, o->key_len, mem);
    return status;
}

static bool obey(struct self *s, int sock)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    struct worker_order order;
    if (poll(&p, 1, 0) < 1)
        return true;
    if (proc_hear(sock, &order, sizeof order) != sizeof order || order.task == WORKER_QUIT)
        return false;
    if (order.task == WORKER_FRIEND) {
        s->friend_offer = order.offer;
        CHECK_STATUS(peer_make(s, &order.offer, &s->friend, &s->friend_mem), WEFT_OK);
    } else if (order.task == WORKER_SECOND) {
        peer_drop(&s->second, &s->second_mem);
        s->second_offer = order.offer;
        s->status.second = s->status.second_down = 0;
        s->status.second_remote = peer_make(s, &order.offer, &s->second, &s->second_mem);
    }
    s->working |= order.task == WORKER_WORK;
    s->resting |= order.task == WORKER_REST;
    proc_say(sock, &s->status, sizeof s->status);
    return true;
}

static void self_open(struct self *s)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    params.arg = s;
    CHECK_STATUS(weft_ctx_open(NULL, &s->ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s->ctx, &params, &s->ep), WEFT_OK);
    weft_ctx_set_local_ranks(s->ctx, 64); /* never spin: the tests need the cores */
    CHECK_STATUS(
        weft_mem_alloc(s->ctx, WORKER_REGION, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &s->mr),
        WEFT_OK);
    CHECK_STATUS(weft_am_register(s->ep, WORKER_AM_WORK, on_work, s), WEFT_OK);
    CHECK_STATUS(weft_am_register(s->ep, WORKER_AM_ANSWER, on_answer, s), WEFT_OK);
}

static void self_close(struct self *s)
{
    peer_drop(&s->friend, &s->friend_mem);
    peer_drop(&s->second, &s->second_mem);
    CHECK_STATUS(weft_mr_close(s->mr), WEFT_OK);
    CHECK_STATUS(weft_ep_close(s->ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(s->ctx), WEFT_OK);
}

void worker_main(int sock, void *arg)
{
    struct worker_offer o = {.address_len = sizeof o.address, .key_len = sizeof o.key};
    struct self s = {.seed = (uint32_t)getpid()};
    (void)arg;
    self_open(&s);
    CHECK_STATUS(weft_ep_address(s.ep, o.address, &o.address_len), WEFT_OK);
    CHECK_STATUS(weft_mr_key(s.mr, o.key, &o.key_len), WEFT_OK);
    proc_say(sock, &o, sizeof o);
    while (obey(&s, sock)) {
        work(&s);
        work_second(&s);
        CHECK(weft_ep_wait(s.ep, TURN_NS) >= 0);
    }
    self_close(&s);
}

/* ---- the test's side ---- */

void worker_start(struct worker *w)
{
    w->proc = proc_start(worker_main, NULL);
    CHECK(proc_hear(w->proc.sock, &w->offer, sizeof w->offer) == sizeof w->offer);
}

struct worker_status worker_order(struct worker *w, enum worker_task task,
                                  const struct worker_offer *offer)
{
    struct worker_order order = {.task = task};
    struct worker_status status;
    if (offer)
        order.offer = *offer;
    proc_say(w->proc.sock, &order, sizeof order);
    CHECK(proc_hear(w->proc.sock, &status, sizeof status) == sizeof status);
    return status;
}

void worker_quit(struct worker *w)
{
    struct worker_order order = {.task = WORKER_QUIT};
    proc_say(w->proc.sock, &order, sizeof order);
    proc_join(&w->proc);
}

/* Neither is in the middle of something with the other. */
void worker_quit_pair(struct worker *a, struct worker *b)
{
    (void)worker_order(a, WORKER_REST, NULL);
    (void)worker_order(b, WORKER_REST, NULL);
    worker_quit(a);
    worker_quit(b);
}

void worker_pair(struct worker *a, struct worker *b)
{
    (void)worker_order(a, WORKER_FRIEND, &b->offer);
    (void)worker_order(b, WORKER_FRIEND, &a->offer);
    (void)worker_order(a, WORKER_WORK, NULL);
    (void)worker_order(b, WORKER_WORK, NULL);
}

void worker_check_pair(struct worker *a, struct worker *b, uint64_t rounds)
{
    uint64_t until = proc_now_ns() + (uint64_t)PROC_WAIT_MS * 1000000;
    struct worker_status x = worker_order(a, WORKER_STATUS, NULL), y, now;
    y = worker_order(b, WORKER_STATUS, NULL);
    for (int i = 0; i < 2; i++)
        do {
            now = worker_order(i ? b : a, WORKER_STATUS, NULL);
            CHECK_STATUS(now.friend_down, WEFT_OK);
            CHECK(proc_now_ns() < until);
        } while (now.work < (i ? y : x).work + rounds);
}

unsigned worker_fds(const struct worker *w)
{
    char path[64];
    unsigned n = 0;
    DIR *dir;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)w->proc.pid);
    CHECK((dir = opendir(path)) != NULL);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

size_t worker_kib(const struct worker *w)
{
    char path[64];
    unsigned long size, resident = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)w->proc.pid);
    CHECK((f = fopen(path, "re")) != NULL);
    CHECK(fscanf(f, "%lu %lu", &size, &resident) == 2);
    fclose(f);
    return resident * ((size_t)sysconf(_SC_PAGESIZE) / 1024);
}
