/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf`: tagged messages between pages of ordinary memory, and atomics.
 *
 * Small messages: message i is sent from slot i + (passes so far) and received into slot i, so that
 * each pass leaves other data there than the one before. Big ones: each is sent from a few lines
 * further in one buffer, for the same reason. When one has arrived, a word in each piece of it is
 * compared; at the end the last ones are compared completely. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/msg.h>

#include "perf.h"

#define TAG UINT64_C(0x5745465450455246)
#define ANSWER_TAG (TAG + 1)
#define WINDOW 64u    /* receives posted ahead, sends in flight */
#define BIG_WINDOW 2u /* sends of big ones: the next one's offer has arrived when one is copied */
#define FAR_SENDS 4u  /* the same across a network: offers arrive in time */
#define FAR_RECVS 2u  /* one arrives while the next is requested; more fit caches worse */
#define SHIFTS 32u    /* starts of big messages in their buffer, LINE bytes apart */
#define LINE 64u
#define PAGE ((size_t)4096)
#define FEW_SAMPLES 8u           /* with fewer a median means little */
#define PIECE ((size_t)64 << 10) /* one word of each is compared */

struct wf_perf_msgs {
    unsigned char *in; /* received into */
    size_t in_len;
    bool eager; /* a send needs no op */
    bool big;
    unsigned sends, recvs; /* in flight */
    /* Where the next message is sent from, received into and awaited. Advanced message by message,
     * because a division costs a tenth of a small message. */
    const unsigned char *from;
    unsigned char *to;
    uint64_t from_left; /* messages until the pass ends */
    unsigned post_op, await_op;
    struct weft_op send[WINDOW], recv[WINDOW];
    uint64_t answer; /* of rank 1: all messages of a stream are here */
    struct weft_op answer_op;
};

/* ---- memory ---- */

static int msg_layout(struct wf_perf *p, struct wf_perf_msgs *m)
{
    m->big = p->len >= WF_MACHINE_BIG;
    p->stride = (p->len + 7) / 8 * 8;
    p->slots = p->o->cached ? 1 : (WF_MACHINE_WALK + p->stride - 1) / p->stride;
    m->sends = !m->big ? WINDOW : p->is_net ? FAR_SENDS : BIG_WINDOW;
    /* Each receive in flight has a slot. Big ones share one slot, as the limit's copies do: a
     * second one costs a sixth of the bandwidth here. Across a network the next receive must be
     * posted before the previous message has arrived. */
    if (m->big && p->is_net && p->slots < FAR_RECVS)
        p->slots = FAR_RECVS;
    /* With --cached all receives share a slot: each pass would leave the same data anyway. */
    m->recvs = m->big                               ? p->is_net ? FAR_RECVS : 1
               : p->o->cached || p->slots >= WINDOW ? WINDOW
                                                    : (unsigned)p->slots;
    p->local_len = m->big ? p->stride + SHIFTS * LINE : p->slots * p->stride;
    m->in_len = p->slots * p->stride;
    p->local = aligned_alloc(PAGE, (p->local_len + PAGE - 1) / PAGE * PAGE);
    m->in = aligned_alloc(PAGE, (m->in_len + PAGE - 1) / PAGE * PAGE);
    return p->local && m->in ? 0 : wf_perf_fail(p, "memory for the data", WEFT_ENOMEM);
}

int wf_perf_msg_open(struct wf_perf *p)
{
    p->msgs = calloc(1, sizeof *p->msgs);
    if (!p->msgs)
        return wf_perf_fail(p, "a table of operations", WEFT_ENOMEM);
    p->msgs->eager = p->len <= weft_msg_inject_max(p->ep);
    return msg_layout(p, p->msgs);
}

void wf_perf_msg_close(struct wf_perf *p)
{
    free(p->msgs->in);
    free(p->msgs);
    free(p->local);
    p->msgs = NULL;
    p->local = NULL;
}

static void msg_start(struct wf_perf *p)
{
    wf_perf_fill(p->local, p->local_len, p->run);
    memset(p->msgs->in, 0, p->msgs->in_len);
    p->msgs->from = p->local;
    p->msgs->from_left = p->slots;
    p->msgs->to = p->msgs->in;
    p->msgs->post_op = p->msgs->await_op = 0;
}

/* Where message [i], a big one, begins in its buffer. With --cached at its start, as UCX's program
 * has it: the kernel copies whole pages faster. */
static inline size_t big_start(const struct wf_perf *p, uint64_t i)
{
    return p->o->cached ? 0 : i % SHIFTS * LINE;
}

static const unsigned char *msg_source(const struct wf_perf *p, uint64_t i)
{
    if (p->msgs->big)
        return p->local + big_start(p, i);
    return p->local + (i + i / p->slots) % p->slots * p->stride;
}

static unsigned char *msg_place(const struct wf_perf *p, uint64_t i)
{
    return p->msgs->in + i % p->slots * p->stride;
}

/* Write a byte of each line of [len] bytes, without changing it. */
static void lines_write(const unsigned char *from, size_t len)
{
    for (size_t at = 0; at < len; at += LINE) {
        volatile unsigned char *byte = (volatile unsigned char *)(uintptr_t)(from + at);
        *byte = *byte;
    }
}

/* The source of message [i], for consecutive i. */
static inline const unsigned char *next_source(struct wf_perf *p, uint64_t i)
{
    struct wf_perf_msgs *m = p->msgs;
    const unsigned char *at = m->from, *end = p->local + p->slots * p->stride;
    if (p->o->fresh)
        lines_write(m->big ? msg_source(p, i) : at, p->len);
    if (m->big)
        return msg_source(p, i);
    m->from = at + p->stride == end ? p->local : at + p->stride;
    if (--m->from_left == 0) {
        m->from_left = p->slots;
        m->from = m->from + p->stride == end ? p->local : m->from + p->stride;
    }
    return at;
}

static inline unsigned char *next_place(struct wf_perf *p)
{
    struct wf_perf_msgs *m = p->msgs;
    unsigned char *at = m->to;
    m->to = at + p->stride == m->in + m->in_len ? m->in : at + p->stride;
    return at;
}

static inline struct weft_op *next_op(struct wf_perf_msgs *m, unsigned *at)
{
    struct weft_op *op = &m->recv[*at];
    *at = *at + 1 == m->recvs ? 0 : *at + 1;
    return op;
}

/* Is what lies where message [i] was received that message, all of it? */
static int msg_verify(struct wf_perf *p, uint64_t iters)
{
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        uint64_t last = wf_perf_last_on(iters, p->slots, slot);
        if (memcmp(msg_place(p, slot), msg_source(p, last), p->len))
            return wf_perf_wrong(p, "the message", last);
    }
    return 0;
}

/* ---- sending and receiving ---- */

static int op_see(struct wf_perf *p, const char *what, struct weft_op *op)
{
    struct wf_perf_wait w = {0, 0};
    while (op->status == WEFT_PENDING)
        if (wf_perf_again(p, &w))
            return -1;
    return op->status == WEFT_OK ? 0 : wf_perf_fail(p, what, (enum weft_status)op->status);
}

/* Start sending message [i], the next one; its buffer is lent while its op is pending. */
static inline int msg_send(struct wf_perf *p, uint64_t i)
{
    struct wf_perf_wait w = {0, 0};
    struct weft_op *op = p->msgs->eager ? NULL : &p->msgs->send[i % p->msgs->sends];
    const unsigned char *from = next_source(p, i);
    for (;;) {
        enum weft_status s = weft_msg_send(p->peer, TAG, from, p->len, op);
        if (__builtin_expect(s == WEFT_OK || s == WEFT_PENDING, 1))
            return 0;
        if (s != WEFT_AGAIN)
            return wf_perf_fail(p, "sending", s);
        if (wf_perf_again(p, &w))
            return -1;
    }
}

/* Post the next receive. */
static inline int msg_post(struct wf_perf *p)
{
    struct weft_op *op = next_op(p->msgs, &p->msgs->post_op);
    enum weft_status s =
        weft_msg_recv(p->ep, p->peer, TAG, WEFT_TAG_FULL, next_place(p), p->len, op);
    return s == WEFT_OK || s == WEFT_PENDING ? 0 : wf_perf_fail(p, "posting a receive", s);
}

/* Compare one word in each piece of a big message, and its last whole word. The expected words are
 * computed: reading an image of them would take longer than the end of the message. */
static int msg_glance(struct wf_perf *p, uint64_t i)
{
    const unsigned char *have = msg_place(p, i);
    uint64_t first = big_start(p, i) / 8, last = p->len / 8 - 1, w;
    bool same = true;
    for (uint64_t at = 0; at < last; at += PIECE / 8) {
        memcpy(&w, have + 8 * at, 8);
        same &= w == wf_perf_word(p->run, first + at);
    }
    memcpy(&w, have + 8 * last, 8);
    same &= w == wf_perf_word(p->run, first + last);
    return same ? 0 : wf_perf_wrong(p, "the message", i);
}

/* Wait for the end of a receive. */
static inline int recv_await(struct wf_perf *p, const struct weft_op *op)
{
    struct wf_perf_wait w = {0, 0};
    while (op->status == WEFT_PENDING) {
        int n = weft_ep_poll(p->ep);
        if (n < 0)
            return wf_perf_fail(p, "polling", (enum weft_status)n);
        if (n == 0 && ++w.turns > p->spins && wf_perf_asleep(p, &w))
            return -1;
    }
    return op->status == WEFT_OK ? 0 : wf_perf_fail(p, "receiving", (enum weft_status)op->status);
}

/* Wait for message [i], the next one. */
static inline int msg_await(struct wf_perf *p, uint64_t i)
{
    const struct weft_op *op = next_op(p->msgs, &p->msgs->await_op);
    if (recv_await(p, op))
        return -1;
    if (op->len != p->len)
        return wf_perf_wrong(p, "the length of message", i);
    return p->msgs->big ? msg_glance(p, i) : 0;
}

/* ---- latency ---- */

/* The next receive is posted after the send, while the answer is on its way. */
static int lat_loop(struct wf_perf *p, uint64_t iters)
{
    for (uint64_t i = 0; i < iters; i++) {
        struct weft_op *sent = &p->msgs->send[i % p->msgs->sends];
        if (p->rank == 1 && msg_await(p, i))
            return -1;
        if (msg_send(p, i))
            return -1;
        wf_perf_samples_add(p->samples);
        if (i + p->rank < iters && msg_post(p))
            return -1;
        if (p->rank == 0 && msg_await(p, i))
            return -1;
        if (!p->msgs->eager && op_see(p, "sending", sent))
            return -1;
    }
    return 0;
}

int wf_perf_msg_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    msg_start(p);
    if (p->rank == 1 && msg_post(p))
        return -1;
    if (wf_perf_sync(p))
        return -1;
    wf_perf_samples_start(p->samples);
    if (lat_loop(p, iters))
        return -1;
    wf_perf_lat_end(p, iters, 2, r);
    return msg_verify(p, iters);
}

/* ---- exchanges: both ranks send and receive at once ---- */

static int exchange(struct wf_perf *p, uint64_t i)
{
    if (msg_post(p) || msg_send(p, i))
        return -1;
    wf_perf_samples_add(p->samples);
    if (msg_await(p, i))
        return -1;
    return p->msgs->eager ? 0 : op_see(p, "sending", &p->msgs->send[i % p->msgs->sends]);
}

int wf_perf_msg_sendrecv_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    msg_start(p);
    if (wf_perf_sync(p))
        return -1;
    wf_perf_samples_start(p->samples);
    for (uint64_t i = 0; i < iters; i++)
        if (exchange(p, i))
            return -1;
    wf_perf_lat_end(p, iters, 1, r);
    return msg_verify(p, iters);
}

/* ---- streams: rank 0 sends, rank 1 keeps a window of receives posted ---- */

static int stream_out(struct wf_perf *p, uint64_t iters)
{
    const unsigned window = p->msgs->sends;
    for (uint64_t i = 0; i < iters; i++) {
        if (!p->msgs->eager && i >= window) {
            if (op_see(p, "sending", &p->msgs->send[i % window]))
                return -1;
            wf_perf_samples_add(p->samples);
        }
        if (msg_send(p, i))
            return -1;
    }
    for (unsigned i = 0; !p->msgs->eager && i < window && i < iters; i++)
        if (op_see(p, "sending", &p->msgs->send[i]))
            return -1;
    return recv_await(p, &p->msgs->answer_op);
}

static int answer_send(struct wf_perf *p)
{
    struct wf_perf_msgs *m = p->msgs;
    struct wf_perf_wait w = {0, 0};
    enum weft_status s;
    m->answer_op = (struct weft_op){0};
    while ((s = weft_msg_send(p->peer, ANSWER_TAG, &m->answer, sizeof m->answer, &m->answer_op)) ==
           WEFT_AGAIN)
        if (wf_perf_again(p, &w))
            return -1;
    if (s != WEFT_OK && s != WEFT_PENDING)
        return wf_perf_fail(p, "answering", s);
    return s == WEFT_OK ? 0 : op_see(p, "answering", &m->answer_op);
}

static int stream_in(struct wf_perf *p, uint64_t iters)
{
    const unsigned window = p->msgs->recvs;
    for (uint64_t i = 0; i < iters; i++) {
        if (msg_await(p, i))
            return -1;
        if (i + window < iters && msg_post(p))
            return -1;
    }
    return answer_send(p);
}

/* Rank 0 posts the receive of the answer, rank 1 those of the first messages. */
static int stream_post(struct wf_perf *p, uint64_t iters)
{
    enum weft_status s;
    if (p->rank == 0) {
        s = weft_msg_recv(p->ep, p->peer, ANSWER_TAG, WEFT_TAG_FULL, &p->msgs->answer,
                          sizeof p->msgs->answer, &p->msgs->answer_op);
        return s == WEFT_PENDING ? 0 : wf_perf_fail(p, "posting a receive", s);
    }
    for (uint64_t i = 0; i < p->msgs->recvs && i < iters; i++)
        if (msg_post(p))
            return -1;
    return 0;
}

/* Messages divided by the whole time, as the limit of a connection is measured. Big ones in shared
 * memory: from the median time between two completions, since their limit is a median of copies. */
static void stream_figures(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    double ns = r->elapsed_ns / (double)iters, p99;
    if (p->msgs->big && !p->is_net && p->samples->count >= FEW_SAMPLES)
        wf_perf_samples_end(p->samples, 1, &ns, &p99);
    r->rate_mps = 1e3 / ns;
    r->gbs = (double)p->len / ns;
}

int wf_perf_msg_stream_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t start;
    msg_start(p);
    if (stream_post(p, iters) || wf_perf_sync(p))
        return -1;
    start = wf_perf_now_ns();
    wf_perf_samples_start(p->samples);
    if (p->rank == 0 ? stream_out(p, iters) : stream_in(p, iters))
        return -1;
    r->elapsed_ns = (double)(wf_perf_now_ns() - start);
    if (p->rank == 0)
        stream_figures(p, iters, r);
    return p->rank ? msg_verify(p, iters) : 0;
}

/* ---- fetching adds on words of the peer's region, one after the other ---- */

#define ADD_BATCH 512u

int wf_perf_atomic_open(struct wf_perf *p)
{
    if (wf_perf_far(p))
        return -1;
    p->stride = 8;
    p->batch = p->far ? 1 : ADD_BATCH; /* not mapped: each is timed alone */
    p->slots = p->o->cached ? ADD_BATCH : WF_MACHINE_WALK / 8;
    p->added = calloc(p->slots, sizeof *p->added);
    if (!p->added)
        return wf_perf_fail(p, "a table of words", WEFT_ENOMEM);
    return wf_perf_region_open(p, p->slots * p->stride);
}

void wf_perf_atomic_close(struct wf_perf *p)
{
    free(p->added);
    p->added = NULL;
    wf_perf_region_close(p);
}

/* Add [v] to [n] words from [slot] on. *sum: of their old values. */
static int add_batch(struct wf_perf *p, uint64_t slot, uint64_t n, uint64_t v, uint64_t *sum)
{
    struct weft_op op = {.status = WEFT_OK};
    uint64_t old = 0, all = 0;
    for (uint64_t at = slot * 8; at < (slot + n) * 8; at += 8) {
        enum weft_status s = weft_atomic(p->remote, at, WEFT_ATOMIC_ADD, WEFT_U64, v, 0, &old, &op);
        if (s == WEFT_PENDING ? op_see(p, "atomic", &op) : s != WEFT_OK)
            return s == WEFT_PENDING ? -1 : wf_perf_fail(p, "atomic", s);
        all += old;
    }
    *sum = all;
    return 0;
}

static int add_stream(struct wf_perf *p, uint64_t iters)
{
    uint64_t slot = 0, start, sum = 0, want;
    for (uint64_t done = 0, n; done < iters; done += n) {
        uint64_t v = wf_perf_word(p->run, done);
        n = iters - done < p->batch ? iters - done : p->batch;
        start = wf_perf_stamp();
        if (add_batch(p, slot, n, v, &sum))
            return -1;
        wf_perf_samples_span(p->samples, wf_perf_stamp() - start);
        want = 0;
        for (uint64_t i = 0; i < n; i++) {
            want += p->added[slot + i];
            p->added[slot + i] += v;
        }
        if (sum != want)
            return wf_perf_wrong(p, "what the words held before operation", done);
        slot = slot + n == p->slots ? 0 : slot + n;
    }
    return 0;
}

/* Rank 1 reads its words after all adds and finds every sum. */
static int add_verify(struct wf_perf *p, uint64_t iters)
{
    uint64_t slot = 0, have;
    for (uint64_t done = 0, n; p->rank == 1 && done < iters; done += n) {
        uint64_t v = wf_perf_word(p->run, done);
        n = iters - done < p->batch ? iters - done : p->batch;
        for (uint64_t i = 0; i < n; i++)
            p->added[slot + i] += v;
        slot = slot + n == p->slots ? 0 : slot + n;
    }
    for (slot = 0; p->rank == 1 && slot < p->slots; slot++) {
        memcpy(&have, p->mine + slot * 8, 8);
        if (have != p->added[slot])
            return wf_perf_wrong(p, "the sum in word", slot);
    }
    return 0;
}

int wf_perf_atomic_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t batch = iters < p->batch ? iters : p->batch;
    if (wf_perf_sync(p))
        return -1;
    wf_perf_samples_start(p->samples);
    if (p->rank == 0 && add_stream(p, iters))
        return -1;
    if (p->rank == 0) {
        r->elapsed_ns = wf_perf_samples_ns(p->samples, p->samples->spent);
        wf_perf_samples_end(p->samples, (double)batch, &r->lat_ns, &r->p99_ns);
    }
    if (wf_perf_sync(p))
        return -1;
    return add_verify(p, iters);
}
