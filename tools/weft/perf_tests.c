/* SPDX-License-Identifier: BSD-3-Clause */
/* The tests of `weft perf`: public calls and default settings only, every
 * check in. Each run walks at least 1 MiB of distinct addresses (--cached
 * apart), and verifies afterwards everything that it moved.
 *
 * What is moved is made of wf words: word i of run r is word_of(r, i), so no
 * run can pass with what an earlier one left. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define LINE 64u
#define PATIENCE_NS (60ull * 1000000000u) /* without any progress; then the test ends */
#define SLEEP_NS 100000000                /* one look at the peer per sleep */
#define AM_ID 1u
#define GET_BATCH 64u /* gets of less than a page between two stamps, which cost 10 ns each */

/* ---- contents ---- */

/* Mixes so that sums of words tell any two sets apart (splitmix64's finalizer). */
static uint64_t word_of(uint64_t run, uint64_t i)
{
    uint64_t z = (run << 40) + i + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill(unsigned char *at, size_t len, uint64_t run)
{
    for (size_t i = 0; i < len / 8; i++) {
        uint64_t w = word_of(run, i);
        memcpy(at + 8 * i, &w, 8);
    }
}

/* The first [len] bytes, at most 8, as a word. */
static uint64_t head_word(const unsigned char *at, size_t len)
{
    uint64_t w = 0;
    memcpy(&w, at, len < 8 ? len : 8);
    return w;
}

/* Sum of the words of a payload; a short last one counts as if zeroes followed. */
static inline uint64_t sum_of(const void *data, size_t len)
{
    const unsigned char *at = data;
    uint64_t sum = 0, w;
    for (; len >= 8; len -= 8, at += 8) {
        memcpy(&w, at, 8);
        sum += w;
    }
    return len ? sum + head_word(at, len) : sum;
}

static int wrong(struct wf_perf *p, const char *what, uint64_t at)
{
    fflush(stdout);
    fprintf(stderr, "weft perf %s: rank %u: WRONG DATA: %s %llu is not what was sent\n",
            p->test->name, p->rank, what, (unsigned long long)at);
    return -1;
}

/* ---- what is walked ---- */

static void walk_init(struct wf_perf *p, size_t align)
{
    p->stride = (p->len + align - 1) / align * align;
    p->slots = (WF_MACHINE_WALK + p->stride - 1) / p->stride;
    p->src_mask = p->len < WF_MACHINE_BIG ? 7 : 0;
    if (p->src_mask)
        p->slots |= 1; /* odd: each pass puts other data into a slot than the one before */
    if (p->o->cached)
        p->slots = 1;
}

/* The last of [iters] operations, counted from 0, on slot [slot] of [slots]; slot < iters. */
static uint64_t last_on(uint64_t iters, uint64_t slots, uint64_t slot)
{
    return slot + (iters - 1 - slot) / slots * slots;
}

static int local_open(struct wf_perf *p, size_t len)
{
    p->local_len = len;
    p->local = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    if (!p->local)
        return wf_perf_fail(p, "memory for the data", WEFT_ENOMEM);
    memset(p->local, 0, len);
    return 0;
}

static int region_open(struct wf_perf *p, size_t len)
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

static void region_close(struct wf_perf *p)
{
    for (unsigned i = 0; i < p->size; i++)
        (void)weft_remote_close(p->remotes[i]);
    (void)weft_mr_close(p->mr);
    free(p->remotes);
    free(p->local);
    p->local = NULL;
}

/* ---- waiting ---- */

struct wait {
    unsigned turns;
    uint64_t since_ns;
};

/* Is the other rank there, and did this wait last too long? */
static int wait_check(struct wf_perf *p, struct wait *w)
{
    enum weft_status s = weft_peer_status(p->peer);
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

static __attribute__((noinline, cold)) int wait_asleep(struct wf_perf *p, struct wait *w)
{
    int n;
    if (wait_check(p, w))
        return -1;
    n = weft_ep_wait(p->ep, SLEEP_NS);
    return n < 0 ? wf_perf_fail(p, "waiting", (enum weft_status)n) : 0;
}

/* Poll until [target] messages came. */
static inline int am_wait(struct wf_perf *p, uint64_t target)
{
    struct wait w = {0, 0};
    while (p->am_count < target) {
        int n = weft_ep_poll(p->ep);
        if (n < 0)
            return wf_perf_fail(p, "polling", (enum weft_status)n);
        if (n == 0 && ++w.turns > p->spins && wait_asleep(p, &w))
            return -1;
    }
    return 0;
}

/* ---- active messages ---- */

static void on_message(const struct weft_am *am)
{
    struct wf_perf *p = am->arg;
    p->am_count++;
    p->am_sum += sum_of(am->data, am->len);
}

static int am_open(struct wf_perf *p)
{
    enum weft_status s = weft_am_register(p->ep, AM_ID, on_message, p);
    if (s != WEFT_OK)
        return wf_perf_fail(p, "registering a handler", s);
    walk_init(p, 8);
    return local_open(p, p->slots * p->stride);
}

static void am_close(struct wf_perf *p)
{
    enum weft_status s = weft_am_register(p->ep, AM_ID, NULL, NULL);
    if (s != WEFT_OK)
        wf_perf_fail(p, "removing the handler", s);
    free(p->local);
    p->local = NULL;
}

/* No room: poll, and let the other rank have this core if that does not help. */
static __attribute__((noinline)) int am_again(struct wf_perf *p, struct wait *w)
{
    int n = weft_ep_poll(p->ep);
    if (n < 0)
        return wf_perf_fail(p, "polling", (enum weft_status)n);
    if (++w->turns <= p->spins)
        return 0;
    if (w->turns % 1024 == 0 && wait_check(p, w))
        return -1;
    sched_yield();
    return 0;
}

static inline int am_send(struct wf_perf *p, const unsigned char *data)
{
    struct wait w = {0, 0};
    for (;;) {
        enum weft_status s = weft_am_request(p->peer, AM_ID, NULL, 0, data, p->len, 0);
        if (__builtin_expect(s == WEFT_OK, 1))
            return 0;
        if (s != WEFT_AGAIN)
            return wf_perf_fail(p, "sending", s);
        if (am_again(p, &w))
            return -1;
    }
}

/* Rank [from] fills what it sends; the other one knows it all the same. */
static void am_start(struct wf_perf *p)
{
    fill(p->local, p->local_len, p->run);
    p->am_count = p->am_sum = 0;
}

/* Did exactly the messages 0 .. iters-1 come, each once and whole? */
static int am_verify(struct wf_perf *p, uint64_t iters)
{
    uint64_t sum = 0;
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++)
        sum += (last_on(iters, p->slots, slot) / p->slots + 1) *
               sum_of(p->local + slot * p->stride, p->len);
    if (p->am_count != iters)
        return wrong(p, "the number of messages,", p->am_count);
    return sum == p->am_sum ? 0 : wrong(p, "the sum of all payloads,", p->am_sum);
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
    r->elapsed_ns = (double)(wf_perf_now_ns() - p->samples->first_ns);
    wf_perf_samples_end(p->samples, 2, &r->lat_ns, &r->p99_ns);
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
    return am_wait(p, 1); /* rank 1 has them all */
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

/* ---- put, one after the other, each seen by the target ---- */

static int put_lat_open(struct wf_perf *p)
{
    walk_init(p, LINE);
    return local_open(p, p->stride) || region_open(p, p->slots * p->stride) ? -1 : 0;
}

/* The message of turn [turn]: its words are those of the run, but for the first
 * and the last, which say the turn. Made while the answer is awaited. */
static void put_lat_make(struct wf_perf *p, uint64_t turn)
{
    memcpy(p->local, &turn, 8);
    memcpy(p->local + p->len - 8, &turn, 8);
}

/* Poll the last word of a slot of this rank's region. */
static inline int put_lat_wait(struct wf_perf *p, const unsigned char *slot, uint64_t turn)
{
    const uint64_t *word = (const uint64_t *)(const void *)(slot + p->len - 8);
    enum weft_status s;
    for (unsigned turns = 0; turns < p->spins; turns++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == turn) /* pairs with the put's store */
            return 0;
        wf_perf_relax();
    }
    s = weft_word_wait(p->ep, word, turn, p->peer, (int64_t)PATIENCE_NS);
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "waiting for a put", s);
}

static int put_lat_verify(struct wf_perf *p, uint64_t iters, uint64_t base)
{
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        put_lat_make(p, base + last_on(iters, p->slots, slot));
        if (memcmp(p->mine + slot * p->stride, p->local, p->len))
            return wrong(p, "the put in place", slot);
    }
    return 0;
}

static int put_lat_loop(struct wf_perf *p, uint64_t iters, uint64_t base)
{
    uint64_t offset = 0, end = p->slots * p->stride;
    put_lat_make(p, base);
    for (uint64_t turn = base; turn < base + iters; turn++) {
        enum weft_status s;
        if (p->rank == 1 && put_lat_wait(p, p->mine + offset, turn))
            return -1;
        s = weft_put(p->remote, offset, p->local, p->len, NULL);
        if (s != WEFT_OK)
            return wf_perf_fail(p, "put", s);
        wf_perf_samples_add(p->samples);
        put_lat_make(p, turn + 1);
        if (p->rank == 0 && put_lat_wait(p, p->mine + offset, turn))
            return -1;
        offset += p->stride;
        if (offset == end)
            offset = 0;
    }
    return 0;
}

static int put_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t base = p->run << 40; /* larger than any turn of an earlier run */
    fill(p->local, p->len, p->run);
    if (wf_perf_sync(p))
        return -1;
    wf_perf_samples_start(p->samples);
    if (put_lat_loop(p, iters, base))
        return -1;
    r->elapsed_ns = (double)(wf_perf_now_ns() - p->samples->first_ns);
    wf_perf_samples_end(p->samples, 2, &r->lat_ns, &r->p99_ns);
    if (wf_perf_sync(p))
        return -1;
    return put_lat_verify(p, iters, base);
}

/* ---- put and get in a stream ---- */

/* Small messages take turns in 8 local slots; a big one has a single slot to
 * put from, and as many as are walked to get into. */
static size_t local_slots(const struct wf_perf *p, bool get)
{
    return p->src_mask ? p->src_mask + 1 : get ? p->slots : 1;
}

static int stream_open(struct wf_perf *p, bool get)
{
    walk_init(p, 8);
    return local_open(p, local_slots(p, get) * p->stride) || region_open(p, p->slots * p->stride)
               ? -1
               : 0;
}

static int put_stream_open(struct wf_perf *p)
{
    return stream_open(p, false);
}

static int get_stream_open(struct wf_perf *p)
{
    return stream_open(p, true);
}

static uint64_t big_stamp(const struct wf_perf *p, uint64_t i)
{
    return word_of(p->run, ~i);
}

/* An operation without an op of its own started; only a refusal ends here. */
static int stream_retry(struct wf_perf *p, enum weft_status s, struct wait *w)
{
    return s == WEFT_AGAIN ? am_again(p, w) : wf_perf_fail(p, "put or get", s);
}

static int op_wait(struct wf_perf *p, struct weft_op *op, enum weft_status s)
{
    struct wait w = {0, 0};
    if (s != WEFT_PENDING)
        return s == WEFT_OK ? 0 : wf_perf_fail(p, "put or get", s);
    while (__atomic_load_n(&op->status, __ATOMIC_ACQUIRE) == WEFT_PENDING)
        if (am_again(p, &w))
            return -1;
    s = (enum weft_status)op->status;
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "put or get", s);
}

static int flush(struct wf_perf *p)
{
    struct weft_op op = {.status = WEFT_PENDING};
    return op_wait(p, &op, weft_flush(p->peer, &op));
}

static int put_stream(struct wf_perf *p, uint64_t iters)
{
    struct weft_remote *remote = p->remote;
    unsigned char *local = p->local;
    size_t len = p->len, stride = p->stride, mask = p->src_mask;
    uint64_t offset = 0, end = p->slots * stride;
    for (uint64_t i = 0; i < iters; i++) {
        struct wait w = {0, 0};
        enum weft_status s;
        if (!mask) {
            uint64_t stamp = big_stamp(p, i);
            memcpy(local, &stamp, 8);
        }
        while ((s = weft_put(remote, offset, local + (i & mask) * stride, len, NULL)) != WEFT_OK &&
               s != WEFT_PENDING)
            if (stream_retry(p, s, &w))
                return -1;
        offset += stride;
        if (offset == end)
            offset = 0;
    }
    return flush(p);
}

static int put_verify(struct wf_perf *p, uint64_t iters)
{
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        uint64_t last = last_on(iters, p->slots, slot), stamp = big_stamp(p, last);
        if (!p->src_mask)
            memcpy(p->local, &stamp, 8);
        if (memcmp(p->mine + slot * p->stride, p->local + (last & p->src_mask) * p->stride, p->len))
            return wrong(p, "the put in place", slot);
    }
    return 0;
}

static void stream_figures(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    r->rate_mps = (double)iters * 1e3 / r->elapsed_ns;
    r->gbs = (double)iters * (double)p->len / r->elapsed_ns;
}

static int put_stream_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t start;
    fill(p->local, p->local_len, p->run); /* rank 1's is the image of what must come */
    if (wf_perf_sync(p))
        return -1;
    if (p->rank == 0) {
        start = wf_perf_now_ns();
        if (put_stream(p, iters))
            return -1;
        r->elapsed_ns = (double)(wf_perf_now_ns() - start);
        stream_figures(p, iters, r);
    }
    if (wf_perf_sync(p))
        return -1;
    return p->rank == 1 ? put_verify(p, iters) : 0;
}

/* Each get's first word is spoiled before and summed after it. */
static inline int get_one(struct wf_perf *p, uint64_t offset, unsigned char *to, struct weft_op *op,
                          uint64_t *sum)
{
    struct wait w = {0, 0};
    uint64_t word = 0;
    enum weft_status s;
    memcpy(to, &word, 8);
    while ((s = weft_get(p->remote, offset, to, p->len, op)) == WEFT_AGAIN)
        if (am_again(p, &w))
            return -1;
    if (__builtin_expect(s != WEFT_OK, 0) && op_wait(p, op, s))
        return -1;
    memcpy(&word, to, 8);
    *sum += word;
    return 0;
}

static int get_stream(struct wf_perf *p, uint64_t iters, uint64_t batch, uint64_t *sum)
{
    struct weft_op op = {0};
    uint64_t offset = 0, end = p->slots * p->stride, left = batch, total = 0;
    for (uint64_t i = 0; i < iters; i++) {
        uint64_t place = p->src_mask ? (i & p->src_mask) * p->stride : offset;
        if (get_one(p, offset, p->local + place, &op, &total))
            return -1;
        if (--left == 0) {
            wf_perf_samples_add(p->samples);
            left = batch;
        }
        offset += p->stride;
        if (offset == end)
            offset = 0;
    }
    *sum = total;
    return 0;
}

/* Is what lies in [to] slot [slot] of the region as rank 1 filled it? */
static int get_verify_slot(struct wf_perf *p, const unsigned char *to, uint64_t slot,
                           unsigned char *image)
{
    for (size_t i = 0; i < p->stride / 8; i++) {
        uint64_t w = word_of(p->run, slot * (p->stride / 8) + i);
        memcpy(image + 8 * i, &w, 8);
    }
    return memcmp(to, image, p->len) ? wrong(p, "the get from place", slot) : 0;
}

static int get_verify_places(struct wf_perf *p, uint64_t iters, unsigned char *image)
{
    uint64_t places = local_slots(p, true);
    for (uint64_t place = 0; place < places && place < iters; place++) {
        uint64_t slot = last_on(iters, places, place) % p->slots;
        if (get_verify_slot(p, p->local + place * p->stride, slot, image))
            return -1;
    }
    return 0;
}

static uint64_t get_expected_sum(const struct wf_perf *p, uint64_t iters)
{
    uint64_t sum = 0;
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        uint64_t w = word_of(p->run, slot * (p->stride / 8));
        uint64_t times = last_on(iters, p->slots, slot) / p->slots + 1;
        sum += times * head_word((const unsigned char *)&w, p->len);
    }
    return sum;
}

static int get_verify(struct wf_perf *p, uint64_t iters, uint64_t sum)
{
    unsigned char *image;
    int bad;
    if (sum != get_expected_sum(p, iters))
        return wrong(p, "the sum of all first words,", sum);
    image = malloc(p->stride);
    if (!image)
        return wf_perf_fail(p, "memory for verifying", WEFT_ENOMEM);
    bad = get_verify_places(p, iters, image);
    free(image);
    return bad;
}

static int get_run(struct wf_perf *p, uint64_t iters, uint64_t batch, struct wf_perf_result *r)
{
    uint64_t sum;
    if (p->rank == 1)
        fill(p->mine, p->slots * p->stride, p->run);
    else
        memset(p->local, 0, p->local_len);
    if (wf_perf_sync(p))
        return -1;
    if (p->rank == 1)
        return wf_perf_sync(p);
    wf_perf_samples_start(p->samples);
    if (get_stream(p, iters, batch, &sum))
        return -1;
    r->elapsed_ns = (double)(wf_perf_now_ns() - p->samples->first_ns);
    if (wf_perf_sync(p))
        return -1;
    return get_verify(p, iters, sum);
}

static int get_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t batch = p->len < 4096 ? GET_BATCH : 1;
    if (batch > iters)
        batch = iters;
    if (get_run(p, iters, batch, r))
        return -1;
    if (p->rank == 0)
        wf_perf_samples_end(p->samples, (double)batch, &r->lat_ns, &r->p99_ns);
    return 0;
}

static int get_stream_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    if (get_run(p, iters, iters, r))
        return -1;
    if (p->rank == 0)
        stream_figures(p, iters, r);
    return 0;
}

/* ---- barrier ---- */

#define BARRIER_ROUNDS 100u

/* What every rank puts to every rank before a barrier is there after it. */
static int barrier_verify(struct wf_perf *p)
{
    for (uint64_t round = 1; round <= BARRIER_ROUNDS; round++) {
        for (unsigned i = 0; i < p->size; i++) {
            enum weft_status s = weft_put(p->remotes[i], 8 * p->rank, &round, 8, NULL);
            if (s != WEFT_OK)
                return wf_perf_fail(p, "put before a barrier", s);
        }
        if (wf_perf_sync(p))
            return -1;
        for (unsigned i = 0; i < p->size; i++)
            if (head_word(p->mine + 8 * i, 8) != round)
                return wrong(p, "after the barrier, the word of rank", i);
        if (wf_perf_sync(p))
            return -1;
    }
    return 0;
}

static int barrier_open(struct wf_perf *p)
{
    return region_open(p, 8 * (size_t)p->size) || barrier_verify(p) ? -1 : 0;
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
    {"am_lat", "active message one way, half a ping-pong", 2, WF_PERF_LINE_LAT, 8, 1, 1, 2000,
     am_open, am_lat_run, am_close},
    {"am_rate", "active messages one way, none waited for", 2, WF_PERF_LINE_RATE, 8, 1, 1, 20000,
     am_open, am_rate_run, am_close},
    {"put_lat", "put until the target's poll sees it, half a ping-pong", 2, WF_PERF_LINE_LAT, 8, 8,
     8, 2000, put_lat_open, put_lat_run, region_close},
    {"put_rate", "puts, then one flush", 2, WF_PERF_COPY_RATE, 8, 1, 1, 20000, put_stream_open,
     put_stream_run, region_close},
    {"get_lat", "get until the data is here", 2, WF_PERF_COPY_LAT, 8, 1, 1, 20000, get_stream_open,
     get_lat_run, region_close},
    {"get_rate", "gets one after the other", 2, WF_PERF_COPY_RATE, 8, 1, 1, 20000, get_stream_open,
     get_stream_run, region_close},
    {"put_bw", "bandwidth of puts", 2, WF_PERF_COPY_GBS, 1 << 20, 1, 1, 20, put_stream_open,
     put_stream_run, region_close},
    {"get_bw", "bandwidth of gets", 2, WF_PERF_COPY_GBS, 1 << 20, 1, 1, 20, get_stream_open,
     get_stream_run, region_close},
    {"barrier", "mean of many barriers, any number of ranks", 0, WF_PERF_LINE_LAT, 0, 0, 1, 200,
     barrier_open, barrier_run, region_close},
};
const size_t wf_perf_tests_count = sizeof wf_perf_tests / sizeof *wf_perf_tests;
