/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf`: puts and gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define LINE 64u
#define PAGE 4096u
#define FEW_PASSES 5                /* below that a median says little */
#define PUT_PATIENCE_NS 60000000000 /* a put that does not come ends the test */

/* The compiler forgets what it knows of [v]: each operation looks at its length,
 * as it does where the length comes from elsewhere. The limit does the same. */
#define HIDE(v) __asm__ __volatile__("" : "+r"(v))

static int region_and_local(struct wf_perf *p, size_t local_slots)
{
    if (wf_perf_local_open(p, local_slots * p->stride))
        return -1;
    return wf_perf_region_open(p, p->slots * p->stride);
}

/* ---- put, one after the other, each seen by the target ---- */

int wf_perf_put_lat_open(struct wf_perf *p)
{
    p->stride = (p->len + LINE - 1) / LINE * LINE;
    p->slots = p->o->cached ? 1 : (WF_MACHINE_WALK + p->stride - 1) / p->stride;
    return region_and_local(p, 1);
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
    s = weft_word_wait(p->ep, word, turn, p->peer, PUT_PATIENCE_NS);
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "waiting for a put", s);
}

static int put_lat_verify(struct wf_perf *p, uint64_t iters, uint64_t base)
{
    for (uint64_t slot = 0; slot < p->slots && slot < iters; slot++) {
        put_lat_make(p, base + wf_perf_last_on(iters, p->slots, slot));
        if (memcmp(p->mine + slot * p->stride, p->local, p->len))
            return wf_perf_wrong(p, "the put in place", slot);
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
        offset = offset + p->stride == end ? 0 : offset + p->stride;
    }
    return 0;
}

int wf_perf_put_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    uint64_t base = p->run << 40; /* larger than any turn of an earlier run */
    wf_perf_fill(p->local, p->len, p->run);
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

/* ---- streams ---- */

static void walk_init(struct wf_perf *p)
{
    struct wf_machine_walk k = wf_machine_walk_of(p->len);
    p->stride = k.stride;
    p->batch = k.batch;
    p->slots = p->o->cached ? k.batch : k.slots;
}

/* From the time of one operation. */
static void figures(struct wf_perf *p, double op_ns, struct wf_perf_result *r)
{
    r->rate_mps = 1e3 / op_ns;
    r->gbs = (double)p->len / op_ns;
}

/* See op through after a call that returned [s]. */
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

/* ---- put: batches of local slots; each pass begins one local slot further, so
 * no pass writes what the one before it wrote. A big message is stamped. ---- */

int wf_perf_put_open(struct wf_perf *p)
{
    walk_init(p);
    return region_and_local(p, p->batch == 1 ? 1 : 2 * p->batch);
}

static uint64_t put_stamp(const struct wf_perf *p, uint64_t i)
{
    return wf_perf_word(p->run, ~i);
}

/* The loops of streams hold six values and call nothing else: registers spilled
 * around slow paths cost as much as the operation measured. Put up to [stop];
 * returns the offset of the first put that was not done at once. */
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

/* Do a put that was not done at once. */
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

/* The puts, then one flush. The time of a put is that of the median pass, as in
 * the limit, and a share of the flush; of all of them if there are few passes. */
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
        uint64_t from = p->batch == 1 ? 0 : slot % p->batch + last / p->slots % p->batch;
        if (p->batch == 1 && p->len >= 8)
            memcpy(p->local, &stamp, 8);
        if (memcmp(p->mine + slot * p->stride, p->local + from * p->stride, p->len))
            return wf_perf_wrong(p, "the put in place", slot);
    }
    return 0;
}

int wf_perf_put_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    wf_perf_fill(p->local, p->local_len, p->run); /* rank 1's is the image of what must come */
    if (wf_perf_sync(p))
        return -1;
    if (p->rank == 0 && put_timed(p, iters, r))
        return -1;
    if (wf_perf_sync(p))
        return -1;
    return p->rank == 1 ? put_verify(p, iters) : 0;
}

/* ---- get: a batch is spoiled, timed, verified, all of it ---- */

int wf_perf_get_open(struct wf_perf *p)
{
    walk_init(p);
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

/* Do a get that was not done at once, to its end. */
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

static int get_all(struct wf_perf *p, uint64_t slot, uint64_t n)
{
    uint64_t start = slot * p->stride, offset = start, stop = start + n * p->stride;
    for (;;) {
        offset = get_batch(p->remote, offset, stop, p->local + (offset - start), p->len, p->stride);
        if (offset == stop)
            return 0;
        if (get_slow(p, offset, p->local + (offset - start)))
            return -1;
        offset += p->stride;
    }
}

/* A big message is spoiled and compared at one word of each page, or that
 * would take longer than the get. */
static size_t check_step(const struct wf_perf *p)
{
    return p->len >= WF_MACHINE_BIG ? PAGE : 8;
}

static void get_spoil(struct wf_perf *p, uint64_t n)
{
    size_t each = check_step(p);
    if (each == 8)
        memset(p->local, 0, n * p->stride);
    else
        for (size_t at = 0; at + 8 <= p->len; at += each)
            memset(p->local + at, 0, 8);
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
        if (done + n == iters && get_check(p, p->local, slot, 8)) /* a big one, all of it */
            return -1;
        slot = slot + n == p->slots ? 0 : slot + n;
    }
    return 0;
}

static int get_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r)
{
    if (p->rank == 1)
        wf_perf_fill(p->mine, p->slots * p->stride, p->run);
    if (wf_perf_sync(p))
        return -1;
    if (p->rank == 0) {
        wf_perf_samples_start(p->samples);
        if (get_stream(p, iters))
            return -1;
        r->elapsed_ns = wf_perf_samples_ns(p->samples, p->samples->spent);
    }
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
    if (wf_perf_get_lat_run(p, iters, r))
        return -1;
    if (p->rank == 0)
        figures(p, r->lat_ns, r);
    r->lat_ns = r->p99_ns = 0;
    return 0;
}
