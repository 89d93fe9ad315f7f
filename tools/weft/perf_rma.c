/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf`: puts and gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define LINE 64u
#define SHIFTS 32u /* starts of big far puts in their buffer, LINE bytes apart */
#define PAGE 4096u
#define FAR_BYTES                                                                                  \
    ((size_t)2 << 20) /* most bytes in flight, but two operations are always allowed */
#define FEW_PASSES 5  /* below that a median means little */
#define PUT_PATIENCE_NS 60000000000 /* a put that does not arrive ends the test */

/* Hide the value of [v] from the compiler: each operation then tests its length, as it does in
 * programs. The limit does the same. */
#define HIDE(v) __asm__ __volatile__("" : "+r"(v))

static int region_and_local(struct wf_perf *p, size_t local_slots)
{
    if (wf_perf_local_open(p, local_slots * p->stride))
        return -1;
    return wf_perf_region_open(p, p->slots * p->stride);
}

/* Wait for [op] after a call that returned [s]. */
static int op_wait(struct wf_perf *p, struct weft_op *op, enum weft_status s)
{
    struct wf_perf_wait w = {0, 0};
    while (s == WEFT_PENDING) {
        if (wf_perf_again(p, &w))
            return -1;
        s = (enum weft_status)__atomic_load_n(&op->status, __ATOMIC_ACQUIRE);
    }
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "put, get or flush", s);
}

/* The op for operation [i]; waits until the operation that used it before is complete. */
static inline struct weft_op *op_of(struct wf_perf *p, uint64_t i)
{
    struct weft_op *op = &p->ops[i % p->window];
    bool over = op->status == WEFT_OK || op_wait(p, op, (enum weft_status)op->status) == 0;
    return over ? op : NULL;
}

/* Wait until all operations are complete. */
static int ops_end(struct wf_perf *p)
{
    struct weft_op op = {.status = WEFT_OK};
    enum weft_status s = weft_flush(p->peer, &op);
    if (s != WEFT_OK && op_wait(p, &op, s))
        return -1;
    for (unsigned i = 0; i < p->window; i++)
        if (!op_of(p, i))
            return -1;
    return 0;
}

/* How many operations of this size are in flight: enough to keep a connection busy, few enough for
 * caches. */
static void window_init(struct wf_perf *p)
{
    size_t fit = FAR_BYTES / p->stride;
    p->window = !p->far ? 1 : fit < 2 ? 2 : fit < WF_PERF_WINDOW ? (unsigned)fit : WF_PERF_WINDOW;
    memset(p->ops, 0, sizeof p->ops);
}

/* ---- put, one after the other, each seen by the target ---- */

/* Puts of put_lat that are not complete: the one under way, and those whose answers ride with the
 * peer's next puts. Each has memory of its own, which the processor's first cache should hold. */
#define TURNS 4u

int wf_perf_put_lat_open(struct wf_perf *p)
{
    if (wf_perf_far(p))
        return -1;
    p->stride = (p->len + LINE - 1) / LINE * LINE;
    p->slots = p->o->cached ? 1 : (WF_MACHINE_WALK + p->stride - 1) / p->stride;
    window_init(p);
    p->window = p->window < TURNS ? p->window : TURNS;
    return region_and_local(p, p->window);
}

/* The message of turn [turn]: the run's words, except the first and last, which are the turn. Built
 * during the wait for the answer, in memory that no put in flight reads. */
static unsigned char *put_lat_make(struct wf_perf *p, uint64_t turn)
{
    unsigned char *at = p->local + turn % p->window * p->stride;
    memcpy(at, &turn, 8);
    memcpy(at + p->len - 8, &turn, 8);
    return at;
}

/* Without a mapping the bytes arrive only in polls. */
static int put_lat_wait_far(struct wf_perf *p, const uint64_t *word, uint64_t turn)
{
    for (unsigned turns = 0; turns < p->spins; turns++) {
        int n = weft_ep_poll(p->ep);
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == turn) /* pairs with the put's store */
            return 1;
        if (n < 0)
            return wf_perf_fail(p, "polling", (enum weft_status)n);
    }
    return 0;
}

/* Poll the last word of a slot of this rank's region. */
static inline int put_lat_wait(struct wf_perf *p, const unsigned char *slot, uint64_t turn)
{
    const uint64_t *word = (const uint64_t *)(const void *)(slot + p->len - 8);
    enum weft_status s;
    int seen = p->far ? put_lat_wait_far(p, word, turn) : 0;
    if (seen)
        return seen < 0 ? -1 : 0;
    for (unsigned turns = 0; !p->far && turns < p->spins; turns++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == turn) /* pairs with the put's store */
            return 0;
        wf_perf_relax();
    }
    s = weft_word_wait(p->ep, word, turn, p->peer, PUT_PATIENCE_NS);
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "waiting for a put", s);
}

static int put_lat_verify(struct wf_perf *p, uint64_t iters, uint64_t base)
{
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        uint64_t turn = base + wf_perf_last_on(iters, p->slots, slot);
        if (memcmp(p->mine + slot * p->stride, put_lat_make(p, turn), p->len))
            return wf_perf_wrong(p, "the put in place", slot);
    }
    return 0;
}

static int put_lat_loop(struct wf_perf *p, uint64_t iters, uint64_t base)
{
    uint64_t offset = 0, end = p->slots * p->stride;
    const unsigned char *from = put_lat_make(p, base);
    struct weft_op *op = op_of(p, base);
    for (uint64_t turn = base; turn < base + iters; turn++) {
        enum weft_status s;
        if (p->rank == 1 && put_lat_wait(p, p->mine + offset, turn))
            return -1;
        s = weft_put(p->remote, offset, from, p->len, op);
        if (s != WEFT_OK && s != WEFT_PENDING)
            return wf_perf_fail(p, "put", s);
        wf_perf_samples_add(p->samples);
        op = op_of(p, turn + 1);
        if (!op)
            return -1;
        from = put_lat_make(p, turn + 1);
        if (p->rank == 0 && put_lat_wait(p, p->mine + offset, turn))
            return -1;
        offset = offset + p->stride == end ? 0 : offset + p->stride;
    }
    return ops_end(p);
}

int wf_perf_put_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t base = p->run << 40; /* above all turns of earlier runs */
    for (unsigned i = 0; i < p->window; i++)
        wf_perf_fill(p->local + i * p->stride, p->len, p->run);
    if (wf_perf_sync(p))
        return -1;
    wf_perf_samples_start(p->samples);
    if (put_lat_loop(p, iters, base))
        return -1;
    wf_perf_lat_end(p, iters, 2, r);
    if (wf_perf_sync(p))
        return -1;
    return put_lat_verify(p, iters, base);
}

/* ---- streams ---- */

/* Puts in flight that are not mapped go to different places, since they are not ordered. */
static int walk_init(struct wf_perf *p)
{
    struct wf_machine_walk k = wf_machine_walk_of(p->len);
    if (wf_perf_far(p))
        return -1;
    p->stride = k.stride;
    p->batch = k.batch;
    if (p->far && p->batch > 1 && p->batch < WF_PERF_WINDOW) /* a flush, a round trip, ends each */
        p->batch = WF_PERF_WINDOW;
    p->slots = p->o->cached || k.slots < p->batch ? p->batch : k.slots;
    window_init(p);
    return 0;
}

/* The figures that follow from the time of one operation. */
static void figures(struct wf_perf *p, double op_ns, struct wf_perf_result *r)
{
    r->rate_mps = 1e3 / op_ns;
    r->gbs = (double)p->len / op_ns;
}

/* ---- put: batches of local slots; each pass begins one local slot further, so that it writes
 * other data than the pass before. A big message is stamped. ---- */

int wf_perf_put_open(struct wf_perf *p)
{
    if (walk_init(p))
        return -1;
    if (p->batch == 1 && p->slots < p->window)
        p->slots = p->window;
    if (p->far && p->batch == 1)
        return wf_perf_local_open(p, p->len + SHIFTS * LINE) ||
                       wf_perf_region_open(p, p->slots * p->stride)
                   ? -1
                   : 0;
    return region_and_local(p, p->batch == 1 ? 1 : 2 * p->batch);
}

/* The source of put [i]. Big ones that are not mapped are not stamped, since several may be in
 * flight: each begins a few lines further than the one before. */
static unsigned char *put_source(const struct wf_perf *p, uint64_t i)
{
    uint64_t slot = i % p->slots, pass = i / p->slots;
    if (p->batch > 1)
        return p->local + (slot % p->batch + pass % p->batch) * p->stride;
    return p->local + (p->far ? (slot + pass) % SHIFTS * LINE : 0);
}

static uint64_t put_stamp(const struct wf_perf *p, uint64_t i)
{
    return wf_perf_word(p->run, ~i);
}

/* Put up to [stop]; returns the offset of the first put that was not complete at once. Loops like
 * this one hold six values and call nothing else: spilling registers around slow paths costs as
 * much as the operation measured. */
static __attribute__((noinline)) uint64_t put_batch(struct weft_remote *remote, uint64_t offset,
                                                    uint64_t stop, const unsigned char *from,
                                                    size_t len, size_t stride)
{
    for (; offset != stop; offset += stride, from += stride) {
        HIDE(len);
        if (weft_put(remote, offset, from, len, NULL) != WEFT_OK)
            break;
    }
    return offset;
}

/* Complete a put that was not complete at once. */
static int put_slow(struct wf_perf *p, uint64_t offset, const unsigned char *from)
{
    struct wf_perf_wait w = {0, 0};
    enum weft_status s;
    while ((s = weft_put(p->remote, offset, from, p->len, NULL)) == WEFT_AGAIN)
        if (wf_perf_again(p, &w))
            return -1;
    return s == WEFT_OK || s == WEFT_PENDING ? 0 : wf_perf_fail(p, "put", s);
}

static int put_all(struct wf_perf *p, uint64_t slot, uint64_t n, const unsigned char *from)
{
    uint64_t start = slot * p->stride, offset = start, stop = start + n * p->stride;
    for (;;) {
        offset = put_batch(p->remote, offset, stop, from + (offset - start), p->len, p->stride);
        if (offset == stop)
            return 0;
        if (put_slow(p, offset, from + (offset - start)))
            return -1;
        offset += p->stride;
    }
}

static int put_stream(struct wf_perf *p, uint64_t iters)
{
    uint64_t slot = 0, pass = 0;
    for (uint64_t done = 0, n; done < iters; done += n) {
        n = iters - done < p->batch ? iters - done : p->batch;
        if (p->batch == 1 && p->len >= 8) {
            uint64_t stamp = put_stamp(p, done);
            memcpy(p->local, &stamp, 8);
        }
        if (put_all(p, slot, n, p->local + pass % p->batch * p->stride))
            return -1;
        slot += n;
        if (slot == p->slots) {
            slot = 0;
            pass++;
            wf_perf_samples_add(p->samples);
        }
    }
    return 0;
}

/* ---- the same where regions are not mapped ---- */

static int put_started(struct wf_perf *p, uint64_t offset, const unsigned char *from,
                       struct weft_op *op)
{
    struct wf_perf_wait w = {0, 0};
    for (;;) {
        enum weft_status s = weft_put(p->remote, offset, from, p->len, op);
        if (s == WEFT_OK || s == WEFT_PENDING)
            return 0;
        if (s != WEFT_AGAIN)
            return wf_perf_fail(p, "put", s);
        if (wf_perf_again(p, &w))
            return -1;
    }
}

/* Small ones have no op: the flush at the end of each pass completes them. */
static int put_far(struct wf_perf *p, uint64_t i)
{
    struct weft_op *op = p->batch > 1 ? NULL : op_of(p, i);
    if (p->batch == 1 && !op)
        return -1;
    return put_started(p, i % p->slots * p->stride, put_source(p, i), op);
}

static int put_far_timed(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t start = wf_perf_now_ns();
    for (uint64_t i = 0; i < iters; i++)
        if (put_far(p, i) || (p->batch > 1 && (i + 1) % p->slots == 0 && ops_end(p)))
            return -1;
    if (ops_end(p))
        return -1;
    r->elapsed_ns = (double)(wf_perf_now_ns() - start);
    figures(p, r->elapsed_ns / (double)iters, r);
    return 0;
}

/* The puts, then one flush. The time of a put is that of the median pass, as in the limit, plus its
 * share of the flush; with few passes it is the average. */
static int put_timed(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    struct weft_op op = {.status = WEFT_PENDING};
    uint64_t start = wf_perf_now_ns(), puts_end;
    double op_ns, p99;
    wf_perf_samples_start(p->samples);
    if (put_stream(p, iters))
        return -1;
    puts_end = wf_perf_now_ns();
    if (op_wait(p, &op, weft_flush(p->peer, &op)))
        return -1;
    r->elapsed_ns = (double)(wf_perf_now_ns() - start);
    if (p->samples->count < FEW_PASSES) {
        figures(p, r->elapsed_ns / (double)iters, r);
        return 0;
    }
    wf_perf_samples_end(p->samples, (double)p->slots, &op_ns, &p99);
    figures(p, op_ns + (r->elapsed_ns - (double)(puts_end - start)) / (double)iters, r);
    return 0;
}

static int put_verify(struct wf_perf *p, uint64_t iters)
{
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        uint64_t last = wf_perf_last_on(iters, p->slots, slot), stamp = put_stamp(p, last);
        if (!p->far && p->batch == 1 && p->len >= 8)
            memcpy(p->local, &stamp, 8);
        if (memcmp(p->mine + slot * p->stride, put_source(p, last), p->len))
            return wf_perf_wrong(p, "the put in place", slot);
    }
    return 0;
}

int wf_perf_put_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    wf_perf_fill(p->local, p->local_len, p->run); /* rank 1's is the image of what has to arrive */
    if (wf_perf_sync(p))
        return -1;
    if (p->rank == 0 && (p->far ? put_far_timed : put_timed)(p, iters, r))
        return -1;
    if (wf_perf_sync(p))
        return -1;
    return p->rank == 1 ? put_verify(p, iters) : 0;
}

/* ---- get: a batch is overwritten, then timed, then verified completely ---- */

int wf_perf_get_open(struct wf_perf *p)
{
    if (walk_init(p))
        return -1;
    return region_and_local(p, p->batch == 1 ? p->window : p->batch);
}

/* Without a mapping each is timed alone. */
int wf_perf_get_lat_open(struct wf_perf *p)
{
    if (walk_init(p))
        return -1;
    if (p->far)
        p->batch = p->window = 1;
    return region_and_local(p, p->batch);
}

/* As put_batch. */
static __attribute__((noinline)) uint64_t get_batch(struct weft_remote *remote, uint64_t offset,
                                                    uint64_t stop, unsigned char *to, size_t len,
                                                    size_t stride)
{
    for (; offset != stop; offset += stride, to += stride) {
        HIDE(len);
        if (weft_get(remote, offset, to, len, NULL) != WEFT_OK)
            break;
    }
    return offset;
}

/* Complete a get that was not complete at once. */
static int get_slow(struct wf_perf *p, uint64_t offset, unsigned char *to)
{
    struct wf_perf_wait w = {0, 0};
    struct weft_op op = {.status = WEFT_PENDING};
    enum weft_status s;
    while ((s = weft_get(p->remote, offset, to, p->len, &op)) == WEFT_AGAIN)
        if (wf_perf_again(p, &w))
            return -1;
    return op_wait(p, &op, s);
}

static int get_started(struct wf_perf *p, uint64_t offset, unsigned char *to, struct weft_op *op)
{
    struct wf_perf_wait w = {0, 0};
    for (;;) {
        enum weft_status s = weft_get(p->remote, offset, to, p->len, op);
        if (s == WEFT_OK || s == WEFT_PENDING)
            return 0;
        if (s != WEFT_AGAIN)
            return wf_perf_fail(p, "get", s);
        if (wf_perf_again(p, &w))
            return -1;
    }
}

/* Start all, then flush once. */
static int get_all_far(struct wf_perf *p, uint64_t slot, uint64_t n)
{
    if (p->window == 1)
        return get_slow(p, slot * p->stride, p->local);
    for (uint64_t i = 0; i < n; i++)
        if (get_started(p, (slot + i) * p->stride, p->local + i * p->stride, NULL))
            return -1;
    return ops_end(p);
}

static int get_all(struct wf_perf *p, uint64_t slot, uint64_t n)
{
    uint64_t start = slot * p->stride, offset = start, stop = start + n * p->stride;
    if (p->far)
        return get_all_far(p, slot, n);
    for (;;) {
        offset = get_batch(p->remote, offset, stop, p->local + (offset - start), p->len, p->stride);
        if (offset == stop)
            return 0;
        if (get_slow(p, offset, p->local + (offset - start)))
            return -1;
        offset += p->stride;
    }
}

/* A big message is overwritten and compared at one word of each page: more would take longer than
 * the get. */
static size_t check_step(const struct wf_perf *p)
{
    return p->len >= WF_MACHINE_BIG ? PAGE : 8;
}

static void spoil(struct wf_perf *p, unsigned char *at)
{
    for (size_t i = 0; i + 8 <= p->len; i += PAGE)
        memset(at + i, 0, 8);
}

static void get_spoil(struct wf_perf *p, uint64_t n)
{
    if (check_step(p) == 8)
        memset(p->local, 0, n * p->stride);
    else
        spoil(p, p->local);
}

/* Compare a message with what rank 1 filled in, at one word in [each] bytes. */
static int get_check(struct wf_perf *p, const unsigned char *at, uint64_t slot, size_t each)
{
    for (size_t i = 0; i < p->len; i += each) {
        uint64_t w = wf_perf_word(p->run, (slot * p->stride + i) / 8), have;
        if (p->len - i >= 8) {
            memcpy(&have, at + i, 8);
            if (have != w)
                return wf_perf_wrong(p, "the get from place", slot);
        } else if (memcmp(at + i, &w, p->len - i)) {
            return wf_perf_wrong(p, "the get from place", slot);
        }
    }
    return 0;
}

static int get_piece(struct wf_perf *p, uint64_t slot, uint64_t n)
{
    uint64_t start;
    get_spoil(p, n);
    start = wf_perf_stamp();
    if (get_all(p, slot, n))
        return -1;
    wf_perf_samples_span(p->samples, wf_perf_stamp() - start);
    for (uint64_t i = 0; i < n; i++)
        if (get_check(p, p->local + i * p->stride, slot + i, check_step(p)))
            return -1;
    return 0;
}

static int get_stream(struct wf_perf *p, uint64_t iters)
{
    uint64_t slot = 0;
    for (uint64_t done = 0, n; done < iters; done += n) {
        n = iters - done < p->batch ? iters - done : p->batch;
        if (get_piece(p, slot, n))
            return -1;
        if (done + n == iters && get_check(p, p->local, slot, 8)) /* the last one completely */
            return -1;
        slot = slot + n == p->slots ? 0 : slot + n;
    }
    return 0;
}

/* Long ones that are not mapped: always a few in flight. The checks are in the measured time, so
 * they compare one word of each page, but for the last gets. */
static int get_far_stream(struct wf_perf *p, uint64_t iters)
{
    for (uint64_t i = 0; i < iters + p->window; i++) {
        unsigned char *to = p->local + i % p->window * p->stride;
        struct weft_op *op = op_of(p, i);
        bool last = i >= iters; /* no further get follows */
        if (!op ||
            (i >= p->window && get_check(p, to, (i - p->window) % p->slots, last ? 8 : PAGE)))
            return -1;
        if (last)
            continue;
        spoil(p, to);
        if (get_started(p, i % p->slots * p->stride, to, op))
            return -1;
    }
    return 0;
}

static int get_timed(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t start = wf_perf_now_ns();
    bool stream = p->far && p->batch == 1 && p->window > 1;
    wf_perf_samples_start(p->samples);
    if (stream ? get_far_stream(p, iters) : get_stream(p, iters))
        return -1;
    r->elapsed_ns = stream ? (double)(wf_perf_now_ns() - start)
                           : wf_perf_samples_ns(p->samples, p->samples->spent);
    return 0;
}

static int get_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    if (p->rank == 1)
        wf_perf_fill(p->mine, p->slots * p->stride, p->run);
    if (wf_perf_sync(p) || (p->rank == 0 && get_timed(p, iters, r)))
        return -1;
    return wf_perf_sync(p);
}

/* Median and 99th percentile of batches: the clock takes longer than a get. */
int wf_perf_get_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t batch = iters < p->batch ? iters : p->batch;
    if (get_run(p, iters, r))
        return -1;
    if (p->rank == 0)
        wf_perf_samples_end(p->samples, (double)batch, &r->lat_ns, &r->p99_ns);
    return 0;
}

int wf_perf_get_rate_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    if (p->far ? get_run(p, iters, r) : wf_perf_get_lat_run(p, iters, r))
        return -1;
    if (p->rank == 0)
        figures(p, p->far ? r->elapsed_ns / (double)iters : r->lat_ns, r);
    r->lat_ns = r->p99_ns = 0;
    return 0;
}
