/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_machine.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Offsets in the memfd; each part has pages of its own. */
#define AT_SYNC 0u         /* one line for each side's round, 4096 apart */
#define AT_HEAD 8192u      /* how far the ring's reader has read */
#define AT_PING 12288u     /* side 0 writes, side 1 polls */
#define AT_PONG 16384u     /* side 1 writes, side 0 polls */
#define AT_BOUNCE 20480u   /* both write */
#define AT_BUFFER 24576u   /* where side 1's private buffer is, for the kernel's copy */
#define AT_RING (2u << 20) /* 65,536 lines */
#define AT_COPY (6u << 20) /* the copies' destination */
#define PAGE_2M ((size_t)2 << 20)

/* Ring of 64-byte lines. Tried here (two Sapphire Rapids cores, million lines/s,
 * best of 7, by number of lines): 1,024 120, 4,096 200, 16,384 207, 65,536 222
 * (4 KiB pages: 187). A longer ring is in L3 when its lines are written again, and L3 answers
 * faster than the other core's L2. A line carries 8 bytes of data, as a small message does; writing
 * and reading all 56 halves the rate: WF_MACHINE_LINES. */
/* Lines fetched for writing ahead of the one being written; 4, 8, 16 and 32 are
 * within 3%, none costs 10 to 60%. */
#define RING_AHEAD 16u
/* The reader releases lines in batches of this many; 8 to 1,024 make no difference. */
#define RING_BATCH 64u

#define SPIN_TURNS 20000 /* polls, about 1 ms, between checks of the clock and the peer */

struct line {
    _Atomic uint64_t seq;
    uint64_t data[7];
};
_Static_assert(sizeof(struct line) == 64, "one line");

/* Fetch the line at [p] for writing: a hint, never faults. The compiler's builtin would be a read
 * prefetch unless it may assume PREFETCHW. */
static inline void fetch_for_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)p));
#elif defined(__aarch64__)
    __asm__ __volatile__("prfm pstl1keep, [%0]" : : "r"(p));
#else
    __builtin_prefetch(p, 1);
#endif
}

static inline _Atomic uint64_t *word_at(const struct wf_machine *m, size_t offset)
{
    return (_Atomic uint64_t *)(void *)(m->mem + offset);
}

/* Acquire pairs with the release of word_set on the other side. */
static inline uint64_t word_get(_Atomic uint64_t *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}

static inline void word_set(_Atomic uint64_t *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

/* ---- waiting, bounded ---- */

struct wait {
    unsigned turns;
    uint64_t since_ns;
};

static int peer_is_dead(const struct wf_machine *m)
{
    struct pollfd p = {.fd = m->peer_pidfd, .events = POLLIN};
    return m->peer_pidfd >= 0 && poll(&p, 1, 0) > 0;
}

/* The slow path of a wait. 1: the wait is to end. */
static __attribute__((noinline, cold)) int wait_look(struct wf_machine *m, struct wait *w)
{
    uint64_t now = wf_perf_now_ns();
    w->turns = 0;
    if (w->since_ns == 0)
        w->since_ns = now;
    if (m->broken || peer_is_dead(m) || now - w->since_ns > WF_MACHINE_PATIENCE_NS) {
        m->broken = 1;
        return 1;
    }
    sched_yield(); /* the other side may need this core */
    return 0;
}

#define WAIT_LOST(m, w, every) (++(w)->turns >= (every) && wait_look((m), (w)))

int wf_machine_sync(struct wf_machine *m)
{
    struct wait w = {0, 0};
    if (m->broken)
        return -1;
    word_set(word_at(m, AT_SYNC + 4096u * (unsigned)m->side), ++m->round);
    while (word_get(word_at(m, AT_SYNC + 4096u * (unsigned)!m->side)) < m->round) {
        wf_perf_relax();
        if (WAIT_LOST(m, &w, 200)) /* yields early: side 1 waits here while side 0 copies */
            return -1;
    }
    return 0;
}

/* ---- set-up ---- */

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Bytes for an odd number of slots that cover the walk, or for one message. */
static size_t copy_room(size_t copy_max)
{
    size_t walk = WF_MACHINE_WALK + 2 * WF_MACHINE_BIG;
    return round_up(copy_max > walk ? copy_max : walk, PAGE_2M);
}

int wf_machine_memfd(size_t copy_max)
{
    int fd = memfd_create("weft-perf-machine", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)(AT_COPY + copy_room(copy_max))) < 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* Map [fd], or private memory if it is -1, at a multiple of 2 MiB, as huge pages need. */
static unsigned char *map_aligned(int fd, size_t len)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    unsigned char *room =
        mmap(NULL, len + PAGE_2M, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *at, *end;
    if (room == MAP_FAILED)
        return NULL;
    end = room + len + PAGE_2M;
    at = (unsigned char *)round_up((uintptr_t)room, PAGE_2M);
    if (at > room)
        munmap(room, (size_t)(at - room));
    if (end > at + len)
        munmap(at + len, (size_t)(end - at) - len);
    if (mmap(at, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) != MAP_FAILED)
        return at;
    munmap(at, len);
    return NULL;
}

/* Map and touch, with pages of one kind. The advice is a hint. */
static unsigned char *map_touched(int fd, size_t len, int advice)
{
    unsigned char *p = map_aligned(fd, len);
    if (!p)
        return NULL;
    (void)madvise(p, len, advice);
    if (madvise(p, len, MADV_POPULATE_WRITE) < 0 && errno == ENOMEM) {
        munmap(p, len);
        return NULL;
    }
    return p;
}

int wf_machine_init(struct wf_machine *m, int side, int fd, size_t copy_max, pid_t peer)
{
    memset(m, 0, sizeof *m);
    m->side = side;
    m->peer_pidfd = -1;
    m->mem_len = AT_COPY + copy_room(copy_max);
    m->copy_max = copy_max;
    /* Huge pages give the ring 220 instead of 187 million/s, copies 28.7 instead of
     * 26.0 GB/s, and the kernel's copies 27 instead of 16. */
    m->mem = map_touched(fd, m->mem_len, MADV_HUGEPAGE);
    m->src = map_touched(-1, copy_room(copy_max), MADV_HUGEPAGE);
    m->plain = map_touched(-1, copy_room(copy_max), MADV_NOHUGEPAGE);
    m->samples = malloc(sizeof *m->samples);
    if (!m->mem || !m->src || !m->plain || !m->samples)
        return -1;
    memset(m->src, 0x5a, copy_room(copy_max));
    memset(m->plain, 0x5a, copy_room(copy_max));
    return peer ? wf_machine_peer(m, peer) : 0;
}

int wf_machine_peer(struct wf_machine *m, pid_t peer)
{
    m->peer_pidfd = (int)syscall(SYS_pidfd_open, peer, 0);
    return m->peer_pidfd < 0 ? -1 : 0;
}

void wf_machine_fini(struct wf_machine *m)
{
    if (m->mem)
        munmap(m->mem, m->mem_len);
    if (m->src)
        munmap(m->src, copy_room(m->copy_max));
    if (m->plain)
        munmap(m->plain, copy_room(m->copy_max));
    if (m->peer_pidfd >= 0)
        close(m->peer_pidfd);
    free(m->samples);
    memset(m, 0, sizeof *m);
    m->peer_pidfd = -1;
    m->broken = 1;
}

int wf_machine_bind(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

/* ---- lines ---- */

/* Ways to hand a line over; the fastest one varies over time. */
enum line_way {
    LINE_PAUSE = 1, /* a pause between two polls */
    LINE_FETCH = 2, /* fetch the line to be written next while polling */
    LINE_WALK = 4,  /* a new line each time, over 1 MiB */
};

static inline __attribute__((always_inline)) int line_wait(struct wf_machine *m,
                                                           _Atomic uint64_t *in, uint64_t v,
                                                           const _Atomic uint64_t *next,
                                                           unsigned way)
{
    struct wait w = {0, 0};
    while (word_get(in) != v) {
        if (way & LINE_FETCH)
            fetch_for_write((const void *)next);
        if (way & LINE_PAUSE)
            wf_perf_relax();
        if (WAIT_LOST(m, &w, SPIN_TURNS))
            return -1;
    }
    return 0;
}

/* The line of turn [i] that side [side] writes. The walk borrows the ring, whose
 * sequence words never reach the values used here. */
static inline _Atomic uint64_t *line_of(const struct wf_machine *m, int side, uint64_t i,
                                        unsigned way)
{
    if (way & LINE_WALK)
        return word_at(m, AT_RING + (unsigned)side * WF_MACHINE_WALK + i * 64 % WF_MACHINE_WALK);
    return word_at(m, side ? AT_PONG : AT_PING);
}

static inline __attribute__((always_inline)) int
line_way(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns, unsigned way)
{
    int side = m->side;
    uint64_t base;
    if (wf_machine_sync(m))
        return -1;
    base = m->round << 32; /* values never seen before; rounds are the same on both sides */
    wf_perf_samples_start(m->samples);
    for (uint64_t i = 1; i <= iters; i++) {
        if (side && line_wait(m, line_of(m, 0, i, way), base + i, line_of(m, 1, i, way), way))
            return -1;
        word_set(line_of(m, side, i, way), base + i);
        wf_perf_samples_add(m->samples);
        if (!side && line_wait(m, line_of(m, 1, i, way), base + i, line_of(m, 0, i + 1, way), way))
            return -1;
    }
    wf_perf_samples_end(m->samples, 2, median_ns, p99_ns);
    return wf_machine_sync(m);
}

static int line_pause(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns)
{
    return line_way(m, iters, median_ns, p99_ns, LINE_PAUSE);
}

static int line_fetch(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns)
{
    return line_way(m, iters, median_ns, p99_ns, LINE_FETCH);
}

static int line_walk(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns)
{
    return line_way(m, iters, median_ns, p99_ns, LINE_FETCH | LINE_WALK);
}

/* Two lines, because a message and its answer are in two places unless both processes may write
 * both. The best of three ways counts, since each is the fastest at times. Tried here in turn, ns
 * one way, medians of 15 in five processes: pause 156 to 226, fetch 154 to 214, walk and fetch 169
 * to 177. Slower: walk and pause 183 to 195, walk 192 to 203, plain polling 157 to 234. Not better
 * than plain polling: waiting 50 to 300 ns before the first poll, cldemote after the store. Twice
 * as slow: MOVDIR64B. */
int wf_machine_line_lat(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns)
{
    int (*const ways[])(struct wf_machine *, uint64_t, double *,
                        double *) = {line_pause, line_fetch, line_walk};
    *median_ns = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double median, p99;
        if (ways[i](m, iters, &median, &p99))
            return -1;
        if (*median_ns == 0 || median < *median_ns) {
            *median_ns = median;
            *p99_ns = p99;
        }
    }
    return 0;
}

static inline int bounce_wait(struct wf_machine *m, _Atomic uint64_t *line, uint64_t v)
{
    struct wait w = {0, 0};
    while (word_get(line) != v) {
        wf_perf_relax();
        if (WAIT_LOST(m, &w, SPIN_TURNS))
            return -1;
    }
    return 0;
}

/* The poll already moves the line to this core, so the next store invalidates nothing: 65 to 105 ns
 * here, where two lines take 135 to 200. */
int wf_machine_bounce_lat(struct wf_machine *m, uint64_t iters, double *median_ns)
{
    _Atomic uint64_t *line = word_at(m, AT_BOUNCE);
    uint64_t base;
    double p99;
    if (wf_machine_sync(m))
        return -1;
    base = m->round << 32;
    wf_perf_samples_start(m->samples);
    for (uint64_t i = 1; i <= iters; i++) {
        if (m->side && bounce_wait(m, line, base + 2 * i))
            return -1;
        word_set(line, base + 2 * i + (uint64_t)m->side);
        wf_perf_samples_add(m->samples);
        if (!m->side && bounce_wait(m, line, base + 2 * i + 1))
            return -1;
    }
    wf_perf_samples_end(m->samples, 2, median_ns, &p99);
    return wf_machine_sync(m);
}

static int ring_write(struct wf_machine *m, uint32_t ring_lines, uint64_t first, uint64_t end)
{
    struct line *ring = (struct line *)(void *)(m->mem + AT_RING);
    const uint32_t mask = ring_lines - 1;
    uint64_t limit = first + ring_lines;
    for (uint64_t i = first; i < end; i++) {
        struct wait w = {0, 0};
        struct line *l = &ring[i & mask];
        while (i >= limit) {
            limit = word_get(word_at(m, AT_HEAD)) + ring_lines;
            if (i >= limit && WAIT_LOST(m, &w, SPIN_TURNS))
                return -1;
        }
        if (i + RING_AHEAD < limit) /* the reader still needs the other lines */
            fetch_for_write(&ring[(i + RING_AHEAD) & mask]);
        l->data[0] = i;
        word_set(&l->seq, i + 1);
    }
    return 0;
}

static int ring_read(struct wf_machine *m, uint32_t ring_lines, uint64_t first, uint64_t end)
{
    struct line *ring = (struct line *)(void *)(m->mem + AT_RING);
    const uint32_t mask = ring_lines - 1,
                   batch = ring_lines < 4 * RING_BATCH ? ring_lines / 4 : RING_BATCH;
    uint64_t sum = 0;
    for (uint64_t i = first; i < end; i++) {
        struct wait w = {0, 0};
        struct line *l = &ring[i & mask];
        while (word_get(&l->seq) != i + 1)
            if (WAIT_LOST(m, &w, SPIN_TURNS))
                return -1;
        sum += l->data[0] ^ i; /* 0 unless the line arrived without its data */
        if (i % batch == batch - 1)
            word_set(word_at(m, AT_HEAD), i + 1);
    }
    word_set(word_at(m, AT_HEAD), end);
    m->broken |= sum != 0;
    return m->broken ? -1 : 0;
}

int wf_machine_line_rate(struct wf_machine *m, uint32_t ring_lines, uint64_t lines, double *mps)
{
    uint64_t first = m->ring_at, start;
    m->ring_at += lines;
    if (wf_machine_sync(m))
        return -1;
    start = wf_perf_now_ns();
    if (m->side ? ring_read(m, ring_lines, first, first + lines)
                : ring_write(m, ring_lines, first, first + lines))
        return -1;
    if (wf_machine_sync(m)) /* the last line was read */
        return -1;
    *mps = (double)lines * 1e3 / (double)(wf_perf_now_ns() - start);
    return 0;
}

/* ---- copies ---- */

typedef void (*copy_batch_fn)(unsigned char *dst, unsigned char *stop, const unsigned char *src,
                              size_t len, size_t stride);

/* Copies whose length is known only at run time, as a put's is. Tried here, at 8 B, ns: libc's
 * memcpy 3 to 5, rep movsb 8 to 10. At 1 MiB, GB/s: libc's memcpy 34.9, rep movsb 33.7, loops of
 * AVX-512 32.1, of AVX2 32.3, with lines fetched for writing 34.6, non-temporal 16.0. */
static __attribute__((noinline)) void copy_batch(unsigned char *dst, unsigned char *stop,
                                                 const unsigned char *src, size_t len,
                                                 size_t stride)
{
    for (; dst != stop; dst += stride, src += stride) {
        __asm__ __volatile__("" : "+r"(len)); /* hides the length from the compiler */
        memcpy(dst, src, len);
    }
}

/* The minimum: a load and a store each, of a length known to the compiler. */
static __attribute__((noinline)) void word_batch(unsigned char *dst, unsigned char *stop,
                                                 const unsigned char *src, size_t len,
                                                 size_t stride)
{
    (void)len;
    for (; dst != stop; dst += stride, src += stride) {
        uint64_t w;
        memcpy(&w, src, sizeof w);
        __asm__ __volatile__("" : "+r"(w)); /* prevents vectorization */
        memcpy(dst, &w, sizeof w);
    }
}

/* The minimum of an atomic: a locked add of a word that keeps the old value. */
static __attribute__((noinline)) void add_batch(unsigned char *dst, unsigned char *stop,
                                                const unsigned char *src, size_t len, size_t stride)
{
    uint64_t sum = 0;
    (void)src, (void)len;
    for (; dst != stop; dst += stride)
        sum += __atomic_fetch_add((uint64_t *)(void *)dst, 1, __ATOMIC_ACQ_REL);
    __asm__ __volatile__("" : : "r"(sum));
}

/* One pass over the walk. As in the tests, the data differ from pass to pass. */
static void copy_pass(struct wf_machine *m, const struct wf_machine_walk *k, uint64_t pass,
                      copy_batch_fn batch)
{
    size_t bytes = k->batch * k->stride;
    const unsigned char *src = m->src + pass % k->batch * k->stride;
    unsigned char *dst = m->mem + AT_COPY, *end = dst + k->slots * k->stride;
    for (; dst != end; dst += bytes) {
        if (k->batch == 1)
            memcpy(m->src, &pass, sizeof pass);
        batch(dst, dst + bytes, src, k->len, k->stride);
    }
}

/* The median of passes, so that a pass disturbed by another program does not count. */
static int copy_time(struct wf_machine *m, size_t len, uint64_t iters, copy_batch_fn batch,
                     double *ns)
{
    struct wf_machine_walk k = wf_machine_walk_of(len);
    double p99;
    if (wf_machine_sync(m))
        return -1;
    if (m->side == 0) {
        uint64_t passes = iters / k.slots + 5;
        copy_pass(m, &k, 0, batch); /* each page touched */
        wf_perf_samples_start(m->samples);
        for (uint64_t pass = 1; pass <= passes; pass++) {
            copy_pass(m, &k, pass, batch);
            wf_perf_samples_add(m->samples);
        }
        wf_perf_samples_end(m->samples, (double)k.slots, ns, &p99);
    }
    return wf_machine_sync(m);
}

int wf_machine_copy(struct wf_machine *m, size_t len, uint64_t iters, double *ns)
{
    return len == 0 || len > m->copy_max ? -1 : copy_time(m, len, iters, copy_batch, ns);
}

int wf_machine_store(struct wf_machine *m, uint64_t iters, double *ns)
{
    return copy_time(m, sizeof(uint64_t), iters, word_batch, ns);
}

int wf_machine_add(struct wf_machine *m, uint64_t iters, double *ns)
{
    return copy_time(m, sizeof(uint64_t), iters, add_batch, ns);
}

static int kernel_copy_loop(struct wf_machine *m, unsigned char *src, size_t len, uint64_t iters,
                            pid_t peer)
{
    unsigned char *there = (unsigned char *)(uintptr_t)word_get(word_at(m, AT_BUFFER));
    struct iovec from = {src, len}, to = {there, len};
    for (uint64_t i = 0; i < iters; i++) {
        memcpy(src, &i, sizeof i);
        if (process_vm_writev(peer, &from, 1, &to, 1, 0) != (ssize_t)len)
            return -1;
        wf_perf_samples_add(m->samples);
    }
    return 0;
}

int wf_machine_kernel_copy(struct wf_machine *m, size_t len, uint64_t iters, bool huge, pid_t peer,
                           double *gbs)
{
    unsigned char *buffer = huge ? m->src : m->plain;
    double ns, p99;
    if (len < sizeof iters || len > copy_room(m->copy_max))
        return -1;
    if (m->side)
        word_set(word_at(m, AT_BUFFER), (uint64_t)(uintptr_t)buffer);
    if (wf_machine_sync(m))
        return -1;
    if (m->side == 0) {
        *gbs = 0;
        wf_perf_samples_start(m->samples);
        if (kernel_copy_loop(m, buffer, len, iters, peer) == 0) {
            wf_perf_samples_end(m->samples, 1, &ns, &p99);
            *gbs = (double)len / ns;
        }
    }
    return wf_machine_sync(m);
}
