/* SPDX-License-Identifier: BSD-3-Clause */
/* The tests of `weft perf`: public calls and default settings only, with all checks. Each run walks
 * at least 1 MiB of distinct addresses (except with --cached), and then verifies all data that it
 * moved.
 *
 * Data are words: word i of run r is wf_perf_word(r, i), so a run cannot pass with data of an
 * earlier one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf.h"

#define PATIENCE_NS (60ull * 1000000000u) /* of waiting without progress before a test fails */
#define SLEEP_NS 100000000                /* between checks of the peer */
#define HUGE_PAGE ((size_t)2 << 20)
#define AM_ID 1u
#define AM_ECHO_ID 2u

/* ---- contents ---- */

/* splitmix64's finalizer: sums of such words differ for different sets. */
uint64_t wf_perf_word(uint64_t run, uint64_t i)
{
    uint64_t z = (run << 40) + i + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void wf_perf_fill(unsigned char *at, size_t len, uint64_t run)
{
    for (size_t i = 0; i < len / 8; i++) {
        uint64_t w = wf_perf_word(run, i);
        memcpy(at + 8 * i, &w, 8);
    }
}

/* The first [len] bytes, at most 8, as a word. Without a call of memcpy, which takes as long as a
 * short message. */
static inline uint64_t head_word(const unsigned char *at, size_t len)
{
    uint64_t w = 0;
    uint32_t low, high;
    if (len >= 8) {
        memcpy(&w, at, 8);
    } else if (len >= 4) { /* the two halves overlap */
        memcpy(&low, at, 4);
        memcpy(&high, at + len - 4, 4);
        w = low | (uint64_t)high << 8 * (len - 4);
    } else {
        for (size_t i = 0; i < len; i++)
            w |= (uint64_t)at[i] << 8 * i;
    }
    return w;
}

/* Sum of the words of a payload; a short last one is padded with zeroes. */
static inline uint64_t sum_of(const void *data, size_t len)
{
    const unsigned char *at = data;
    uint64_t sum = 0, w;
    if (len == 8) { /* the usual payload, where a loop costs a tenth of the message rate */
        memcpy(&w, at, 8);
        return w;
    }
    for (; len >= 8; len -= 8, at += 8) {
        memcpy(&w, at, 8);
        sum += w;
    }
    return len ? sum + head_word(at, len) : sum;
}

/* The part of a payload that am_sum counts: all words, or the first and the last 8 bytes. */
static inline uint64_t payload_sum(const struct wf_perf *p, const void *data, size_t len)
{
    const unsigned char *at = data;
    if (len <= 16 || !p->am_ends)
        return sum_of(data, len);
    return head_word(at, 8) + head_word(at + len - 8, 8);
}

int wf_perf_wrong(struct wf_perf *p, const char *what, uint64_t at)
{
    fflush(stdout);
    fprintf(stderr, "weft perf %s: rank %u: WRONG DATA: %s %llu is not what was sent\n",
            p->test->name, p->rank, what, (unsigned long long)at);
    return -1;
}

void wf_perf_lat_end(struct wf_perf *p, uint64_t iters, unsigned parts, struct wf_perf_result *r)
{
    r->elapsed_ns = (double)(wf_perf_now_ns() - p->samples->first_ns);
    r->mean_ns = r->elapsed_ns / (double)iters / parts;
    wf_perf_samples_end(p->samples, parts, &r->lat_ns, &r->p99_ns);
}

/* ---- memory ---- */

/* The last of [iters] operations, counted from 0, on slot [slot] of [slots]; slot < iters. */
uint64_t wf_perf_last_on(uint64_t iters, uint64_t slots, uint64_t slot)
{
    return slot + (iters - 1 - slot) / slots * slots;
}

int wf_perf_local_open(struct wf_perf *p, size_t len)
{
    size_t unit = len < WF_MACHINE_BIG ? 4096 : HUGE_PAGE, room = (len + unit - 1) / unit * unit;
    p->local = aligned_alloc(unit, room);
    if (!p->local)
        return wf_perf_fail(p, "memory for the data", WEFT_ENOMEM);
    if (unit == HUGE_PAGE)
        (void)madvise(p->local, room, MADV_HUGEPAGE); /* a hint, also used for the limit's source */
    memset(p->local, 0, len);
    p->local_len = len;
    return 0;
}

int wf_perf_region_open(struct wf_perf *p, size_t len)
{
    enum weft_status s;
    p->remotes = calloc(p->size, sizeof(struct weft_remote *));
    if (!p->remotes)
        return wf_perf_fail(p, "a table of regions", WEFT_ENOMEM);
    s = weft_job_mem_alloc(p->job, len, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &p->mr, p->remotes);
    if (s != WEFT_OK)
        return wf_perf_fail(p, "allocating memory that both reach", s);
    p->mine = weft_mr_base(p->mr);
    p->remote = p->remotes[p->size == 2 ? 1 - p->rank : p->rank];
    return 0;
}

int wf_perf_far(struct wf_perf *p)
{
    uint64_t far;
    if (p->far_known)
        return 0;
    if (wf_perf_region_open(p, 8))
        return -1;
    far = !p->remote->base;
    if (wf_perf_agree(p, &far) || wf_perf_sync(p))
        return -1;
    wf_perf_region_close(p);
    p->far = far;
    p->far_known = true;
    return 0;
}

void wf_perf_region_close(struct wf_perf *p)
{
    for (unsigned i = 0; i < p->size; i++)
        (void)weft_remote_close(p->remotes[i]);
    (void)weft_mr_close(p->mr);
    free(p->remotes);
    free(p->local);
    p->local = NULL;
}

/* ---- waiting ---- */

/* Fail if the other rank is lost or the wait has lasted too long. */
static int wait_check(struct wf_perf *p, struct wf_perf_wait *w)
{
    enum weft_status s = p->peer ? weft_peer_status(p->peer) : WEFT_OK;
    uint64_t now = wf_perf_now_ns();
    if (s != WEFT_OK)
        return wf_perf_fail(p, "the other rank is gone", s);
    if (w->since_ns == 0)
        w->since_ns = now;
    if (now - w->since_ns > PATIENCE_NS)
        return wf_perf_fail(p, "nothing came from the other rank for 60 s; is it stopped?",
                            WEFT_ETIMEDOUT);
    return 0;
}

__attribute__((noinline, cold)) int wf_perf_asleep(struct wf_perf *p, struct wf_perf_wait *w)
{
    int n;
    if (wait_check(p, w))
        return -1;
    n = weft_ep_wait(p->ep, SLEEP_NS);
    return n < 0 ? wf_perf_fail(p, "waiting", (enum weft_status)n) : 0;
}

/* Poll until [target] messages have arrived. */
static inline int am_wait(struct wf_perf *p, uint64_t target)
{
    struct wf_perf_wait w = {0, 0};
    while (p->am_count < target) {
        int n = weft_ep_poll(p->ep);
        if (n < 0)
            return wf_perf_fail(p, "polling", (enum weft_status)n);
        if (n == 0 && ++w.turns > p->spins && wf_perf_asleep(p, &w))
            return -1;
    }
    return 0;
}

/* ---- active messages ---- */

static void on_message(const struct weft_am *am)
{
    struct wf_perf *p = am->arg;
    p->am_count++;
    p->am_sum += payload_sum(p, am->data, am->len);
}

/* am_echo: reply to the sender. */
static void on_echo(const struct weft_am *am)
{
    struct wf_perf *p = am->arg;
    enum weft_status s = weft_am_reply(am, AM_ID, NULL, 0, am->data, am->len);
    on_message(am);
    if (s != WEFT_OK)
        wf_perf_fail(p, "replying", s);
}

static int am_open(struct wf_perf *p)
{
    enum weft_status s = weft_am_register(p->ep, AM_ID, on_message, p);
    if (s == WEFT_OK)
        s = weft_am_register(p->ep, AM_ECHO_ID, on_echo, p);
    if (s != WEFT_OK)
        return wf_perf_fail(p, "registering a handler", s);
    p->stride = (p->len + 7) / 8 * 8;
    p->slots = p->o->cached ? 1 : (WF_MACHINE_WALK + p->stride - 1) / p->stride;
    p->am_ends = p->o->cached;
    return wf_perf_local_open(p, p->slots * p->stride);
}

static void am_close(struct wf_perf *p)
{
    enum weft_status s = weft_am_register(p->ep, AM_ID, NULL, NULL);
    if (s == WEFT_OK)
        s = weft_am_register(p->ep, AM_ECHO_ID, NULL, NULL);
    if (s != WEFT_OK)
        wf_perf_fail(p, "removing the handler", s);
    free(p->local);
    p->local = NULL;
}

/* No room: poll, and yield the core if that does not help. */
__attribute__((noinline)) int wf_perf_again(struct wf_perf *p, struct wf_perf_wait *w)
{
    int n = weft_ep_poll(p->ep);
    if (n < 0)
        return wf_perf_fail(p, "polling", (enum weft_status)n);
    if (n > 0)
        w->turns = 0;
    if (++w->turns <= p->spins)
        return 0;
    if (w->turns % 1024 == 0 && wait_check(p, w))
        return -1;
    sched_yield();
    return 0;
}

static inline int am_send_to(struct wf_perf *p, unsigned handler, const unsigned char *data,
                             size_t reply_max)
{
    struct wf_perf_wait w = {0, 0};
    for (;;) {
        enum weft_status s = weft_am_request(p->peer, handler, NULL, 0, data, p->len, reply_max);
        if (__builtin_expect(s == WEFT_OK, 1))
            return 0;
        if (s != WEFT_AGAIN)
            return wf_perf_fail(p, "sending", s);
        if (wf_perf_again(p, &w))
            return -1;
    }
}

static inline int am_send(struct wf_perf *p, const unsigned char *data)
{
    return am_send_to(p, AM_ID, data, 0);
}

/* Rank [from] fills what it sends; the other one knows it all the same. */
static void am_start(struct wf_perf *p)
{
    wf_perf_fill(p->local, p->local_len, p->run);
    p->am_count = p->am_sum = 0;
}

/* Did exactly the messages 0 .. iters-1 arrive, each once and complete? */
static int am_verify(struct wf_perf *p, uint64_t iters)
{
    uint64_t sum = 0;
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++)
        sum += (wf_perf_last_on(iters, p->slots, slot) / p->slots + 1) *
               payload_sum(p, p->local + slot * p->stride, p->len);
    if (p->am_count != iters)
        return wf_perf_wrong(p, "the number of messages,", p->am_count);
    return sum == p->am_sum ? 0 : wf_perf_wrong(p, "the sum of all payloads,", p->am_sum);
}

static int am_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    const unsigned char *at, *end;
    am_start(p);
    at = p->local;
    end = at + p->slots * p->stride;
    if (wf_perf_sync(p))
        return -1;
    wf_perf_samples_start(p->samples);
    for (uint64_t i = 1; i <= iters; i++) {
        if (p->rank == 1 && am_wait(p, i))
            return -1;
        if (am_send(p, at))
            return -1;
        wf_perf_samples_add(p->samples);
        if (p->rank == 0 && am_wait(p, i))
            return -1;
        at = at + p->stride == end ? p->local : at + p->stride;
    }
    wf_perf_lat_end(p, iters, 2, r);
    return am_verify(p, iters);
}

/* Rank 1 replies from its handler with the data received. */
static int am_echo_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    const unsigned char *at, *end;
    am_start(p);
    at = p->local;
    end = at + p->slots * p->stride;
    if (wf_perf_sync(p))
        return -1;
    if (p->rank == 1)
        return am_wait(p, iters) ? -1 : am_verify(p, iters);
    wf_perf_samples_start(p->samples);
    for (uint64_t i = 1; i <= iters; i++) {
        if (am_send_to(p, AM_ECHO_ID, at, p->len + 1) || am_wait(p, i))
            return -1;
        wf_perf_samples_add(p->samples);
        at = at + p->stride == end ? p->local : at + p->stride;
    }
    wf_perf_lat_end(p, iters, 1, r);
    return am_verify(p, iters);
}

static int am_stream(struct wf_perf *p, uint64_t iters)
{
    const unsigned char *at = p->local, *end = at + p->slots * p->stride;
    for (uint64_t i = 0; i < iters; i++) {
        if (am_send(p, at))
            return -1;
        at = at + p->stride == end ? p->local : at + p->stride;
    }
    return am_wait(p, 1); /* rank 1 has received all */
}

static int am_rate_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t start;
    am_start(p);
    if (wf_perf_sync(p))
        return -1;
    start = wf_perf_now_ns();
    if (p->rank == 1)
        return am_wait(p, iters) || am_send(p, p->local) ? -1 : am_verify(p, iters);
    if (am_stream(p, iters))
        return -1;
    r->elapsed_ns = (double)(wf_perf_now_ns() - start);
    r->rate_mps = (double)iters * 1e3 / r->elapsed_ns;
    r->gbs = (double)iters * (double)p->len / r->elapsed_ns;
    return am_verify(p, 1);
}

/* ---- barrier ---- */

#define BARRIER_ROUNDS 100u

/* Complete all puts to rank [i]: a barrier does not order those that were not inlined. */
static int barrier_flush(struct wf_perf *p, unsigned i)
{
    struct weft_op op = {.status = WEFT_OK};
    struct wf_perf_wait w = {0, 0};
    enum weft_status s = weft_flush(weft_job_peer(p->job, i), &op);
    while (s == WEFT_PENDING) {
        if (wf_perf_again(p, &w))
            return -1;
        s = (enum weft_status)op.status;
    }
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "flush before a barrier", s);
}

static int barrier_puts(struct wf_perf *p, const uint64_t *value)
{
    for (unsigned i = 0; i < p->size; i++) {
        struct wf_perf_wait w = {0, 0};
        enum weft_status s;
        while ((s = weft_put(p->remotes[i], 8 * p->rank, value, 8, NULL)) == WEFT_AGAIN)
            if (wf_perf_again(p, &w))
                return -1;
        if (s != WEFT_OK && s != WEFT_PENDING)
            return wf_perf_fail(p, "put before a barrier", s);
    }
    for (unsigned i = 0; i < p->size; i++)
        if (barrier_flush(p, i))
            return -1;
    return 0;
}

/* Every rank puts to every rank before a barrier, and finds all that after it. */
static int barrier_verify(struct wf_perf *p)
{
    for (uint64_t round = 1; round <= BARRIER_ROUNDS; round++) {
        if (barrier_puts(p, &round) || wf_perf_sync(p))
            return -1;
        for (unsigned i = 0; i < p->size; i++)
            if (head_word(p->mine + 8 * i, 8) != round)
                return wf_perf_wrong(p, "after the barrier, the word of rank", i);
        if (wf_perf_sync(p))
            return -1;
    }
    return 0;
}

static int barrier_open(struct wf_perf *p)
{
    return wf_perf_region_open(p, 8 * (size_t)p->size) || barrier_verify(p) ? -1 : 0;
}

static int barrier_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t start = wf_perf_now_ns();
    for (uint64_t i = 0; i < iters; i++) {
        enum weft_status s = weft_job_barrier(p->job);
        if (s != WEFT_OK)
            return wf_perf_fail(p, "barrier", s);
    }
    r->elapsed_ns = (double)(wf_perf_now_ns() - start);
    r->lat_ns = r->elapsed_ns / (double)iters;
    return 0;
}

/* ---- the table ---- */

const struct wf_perf_test wf_perf_tests[] = {
    {"am_lat", "active message one way, half a ping-pong", 2, WF_PERF_LINE_LAT, WF_PERF_TCP_LAT, 8,
     1, 1, 2000, am_open, am_lat_run, am_close},
    {"am_rate", "active messages one way, none waited for", 2, WF_PERF_LINE_RATE, WF_PERF_NO_RATE,
     8, 1, 1, 20000, am_open, am_rate_run, am_close},
    {"am_echo", "request and its reply, a whole round trip", 2, WF_PERF_NO_RATE, WF_PERF_TCP_RTT, 8,
     1, 1, 2000, am_open, am_echo_run, am_close},
    {"put_lat", "put until the target's poll sees it, half a ping-pong", 2, WF_PERF_LINE_LAT,
     WF_PERF_TCP_LAT, 8, 8, 8, 2000, wf_perf_put_lat_open, wf_perf_put_lat_run,
     wf_perf_region_close},
    {"put_rate", "puts, then one flush", 2, WF_PERF_COPY_RATE, WF_PERF_NO_RATE, 8, 1, 1, 20000,
     wf_perf_put_open, wf_perf_put_run, wf_perf_region_close},
    {"get_lat", "get until the data is here", 2, WF_PERF_COPY_LAT, WF_PERF_TCP_RTT, 8, 1, 1, 20000,
     wf_perf_get_lat_open, wf_perf_get_lat_run, wf_perf_region_close},
    {"get_rate", "gets one after the other", 2, WF_PERF_COPY_RATE, WF_PERF_NO_RATE, 8, 1, 1, 20000,
     wf_perf_get_open, wf_perf_get_rate_run, wf_perf_region_close},
    {"put_bw", "bandwidth of puts", 2, WF_PERF_COPY_GBS, WF_PERF_TCP_GBS, 1 << 20, 1, 1, 20,
     wf_perf_put_open, wf_perf_put_run, wf_perf_region_close},
    {"get_bw", "bandwidth of gets", 2, WF_PERF_COPY_GBS, WF_PERF_TCP_GBS, 1 << 20, 1, 1, 20,
     wf_perf_get_open, wf_perf_get_rate_run, wf_perf_region_close},
    {"msg_lat", "tagged message one way, half a ping-pong", 2, WF_PERF_LINE_LAT, WF_PERF_TCP_LAT, 8,
     1, 1, 2000, wf_perf_msg_open, wf_perf_msg_lat_run, wf_perf_msg_close},
    {"msg_rate", "tagged messages one way, receives posted ahead", 2, WF_PERF_LINE_RATE,
     WF_PERF_NO_RATE, 8, 1, 1, 20000, wf_perf_msg_open, wf_perf_msg_stream_run, wf_perf_msg_close},
    {"msg_bw", "bandwidth of tagged messages", 2, WF_PERF_KERNEL_GBS, WF_PERF_TCP_GBS, 1 << 20, 8,
     1, 20, wf_perf_msg_open, wf_perf_msg_stream_run, wf_perf_msg_close},
    {"msg_sendrecv", "tagged messages both ways at once, time of an exchange", 2, WF_PERF_NO_RATE,
     WF_PERF_NO_RATE, 8, 1, 1, 2000, wf_perf_msg_open, wf_perf_msg_sendrecv_run, wf_perf_msg_close},
    {"atomic_lat", "fetching add on a word of the peer's", 2, WF_PERF_ADD_LAT, WF_PERF_TCP_RTT, 8,
     8, 8, 20000, wf_perf_atomic_open, wf_perf_atomic_run, wf_perf_atomic_close, true},
    {"barrier", "mean of many barriers, any number of ranks", 0, WF_PERF_LINE_LAT, WF_PERF_TCP_LAT,
     0, 0, 1, 200, barrier_open, barrier_run, wf_perf_region_close},
};
const size_t wf_perf_tests_count = sizeof wf_perf_tests / sizeof *wf_perf_tests;
