/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf reg`: the cost of the registration cache (weft/cache.h). Hits with a registrar that
 * does nothing, and with Weft's own regions; misses with a device that pins memory, io_uring's
 * fixed buffers, compared with the time that the kernel alone takes for the same: registration,
 * UFFDIO_REGISTER, probe. All rows take turns, round by round. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <weft/cache.h>

#include "perf.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define ROUNDS 7
#define FEW 16u
#define MANY 10000u
#define STRIDE ((size_t)8192) /* between the starts of regions, each a page */
#define ORDER 65536u
#define PASS 32768u
#define HIT_NS 15e6 /* a round of one row */
#define MISSES 64u  /* in a round, 16 KiB each: any user may lock at least 1 MiB */
#define MISS_LEN ((size_t)16384)

enum { PROMISED, CONFIRMED, REGIONS, KINDS };

struct reg;

struct worker {
    pthread_t thread;
    struct reg *reg;
    struct weft_cache *cache;
    unsigned regions;
    int cpu;
    unsigned char key;
    double ns;
    enum weft_status status;
};

struct reg {
    bool json;
    struct weft_job *job;
    struct weft_cache *hits[KINDS], *misses;
    unsigned char *base;
    uint16_t order[2][ORDER]; /* of FEW, of MANY */
    pthread_barrier_t start;
    unsigned char *together, *apart; /* MISSES regions: in one mapping; each in one of its own */
    int ring, uffd;                  /* -1: not available */
    const char *why;                 /* the cache keeps nothing */
};

static int fail(const char *what, enum weft_status s)
{
    fprintf(stderr, "weft perf reg: %s: %s (%s)\n", what, weft_status_text(s), weft_status_name(s));
    return -1;
}

static int fail_system(const char *what)
{
    fprintf(stderr, "weft perf reg: %s: %s\n", what, strerror(errno));
    return -1;
}

/* ---- registrars ---- */

static enum weft_status nothing_reg(void *owner, void *addr, size_t len, void **handle)
{
    (void)owner, (void)len;
    *handle = addr;
    return WEFT_OK;
}

static void nothing_dereg(void *owner, void *handle)
{
    (void)owner, (void)handle;
}

/* The slot is the region's number: a table of free slots would add cost to the device. */
static int slot_set(const struct reg *r, const void *addr, size_t len, unsigned slot)
{
    struct iovec iov = {(void *)(uintptr_t)addr, len};
    uint64_t tag = 0;
    struct io_uring_rsrc_update2 update = {
        .offset = slot, .data = (uintptr_t)&iov, .tags = (uintptr_t)&tag, .nr = 1};
    return syscall(SYS_io_uring_register, r->ring, IORING_REGISTER_BUFFERS_UPDATE, &update,
                   sizeof update) == 1
               ? 0
               : -1;
}

static unsigned slot_of(const struct reg *r, const unsigned char *addr)
{
    if (addr >= r->together && addr < r->together + MISSES * MISS_LEN)
        return (unsigned)((size_t)(addr - r->together) / MISS_LEN);
    return (unsigned)((size_t)(addr - r->apart) / (MISS_LEN + STRIDE));
}

static enum weft_status ring_reg(void *owner, void *addr, size_t len, void **handle)
{
    *handle = addr;
    if (!slot_set(owner, addr, len, slot_of(owner, addr)))
        return WEFT_OK;
    return errno == ENOMEM ? WEFT_ELIMIT : WEFT_ESYSTEM;
}

static void ring_dereg(void *owner, void *handle)
{
    (void)slot_set(owner, NULL, 0, slot_of(owner, handle));
}

static int ring_open(void)
{
    struct io_uring_params params = {0};
    struct io_uring_rsrc_register table = {.nr = MISSES, .flags = IORING_RSRC_REGISTER_SPARSE};
    int fd = (int)syscall(SYS_io_uring_setup, 1, &params);
    if (fd >= 0 &&
        syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS2, &table, sizeof table) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- the kernel alone ---- */

static int uffd_open(void)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |
                                         UFFD_FEATURE_EVENT_REMOVE |
                                         UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* An uncontended lock and unlock: no hit can be faster. */
static double lock_ns(void)
{
    static _Alignas(64) unsigned lock;
    const unsigned n = 2000000;
    uint64_t begin = wf_perf_now_ns();
    for (unsigned i = 0; i < n; i++) {
        while (__atomic_exchange_n(&lock, 1u, __ATOMIC_ACQUIRE))
            ;
        __atomic_store_n(&lock, 0u, __ATOMIC_RELEASE);
    }
    return (double)(wf_perf_now_ns() - begin) / n;
}

static double probe_ns(const struct reg *r)
{
    const unsigned n = 20000;
    uint64_t begin = wf_perf_now_ns();
    for (unsigned i = 0; i < n; i++) {
        struct uffdio_zeropage nothing = {.mode = 0};
        (void)ioctl(r->uffd, UFFDIO_ZEROPAGE, &nothing);
    }
    return (double)(wf_perf_now_ns() - begin) / n;
}

/* The least that a miss needs of the kernel, while [watched] is watched. If [len] is one region's,
 * each region is a mapping of its own. */
static int bare_ns(const struct reg *r, unsigned char *at, size_t stride, unsigned char *watched,
                   size_t len, double *ns)
{
    uint64_t begin = wf_perf_now_ns();
    for (unsigned i = 0; i < MISSES; i++) {
        struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_WP};
        struct uffdio_zeropage nothing = {.mode = 0};
        reg.range.start = (uintptr_t)watched + (len == MISS_LEN ? i * stride : 0);
        reg.range.len = len;
        if (slot_set(r, at + i * stride, MISS_LEN, i) || ioctl(r->uffd, UFFDIO_REGISTER, &reg))
            return fail_system("registering memory");
        (void)ioctl(r->uffd, UFFDIO_ZEROPAGE, &nothing);
    }
    *ns = (double)(wf_perf_now_ns() - begin) / MISSES;
    for (unsigned i = 0; i < MISSES; i++)
        if (slot_set(r, NULL, 0, i))
            return fail_system("deregistering memory");
    return 0;
}

/* ---- hits ---- */

static enum weft_status pass(struct worker *w, struct weft_cache_user *user, uint64_t iters)
{
    const uint16_t *order = w->reg->order[w->regions == MANY];
    struct weft_cache_use use;
    for (uint64_t i = 0; i < iters; i++) {
        enum weft_status s =
            weft_cache_get(user, w->reg->base + order[i % ORDER] * STRIDE, 4096, &use);
        if (s != WEFT_OK)
            return s;
        if (w->cache == w->reg->hits[REGIONS])
            w->key ^= *((const struct weft_cached_region *)use.handle)->key;
        weft_cache_put(user, &use);
    }
    return WEFT_OK;
}

static void *hit_main(void *arg)
{
    struct worker *w = arg;
    struct weft_cache_user *user;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(w->cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    w->status = weft_cache_user_open(w->cache, &user);
    if (w->status == WEFT_OK) /* fills the cache, and the user's own table */
        w->status = pass(w, user, ORDER);
    pthread_barrier_wait(&w->reg->start);
    if (w->status == WEFT_OK) {
        uint64_t begin = wf_perf_now_ns(), done = 0;
        do {
            w->status = pass(w, user, PASS);
            done += PASS;
            w->ns = (double)(wf_perf_now_ns() - begin);
        } while (w->status == WEFT_OK && w->ns < HIT_NS);
        w->ns /= (double)done;
    }
    if (w->status == WEFT_OK)
        w->status = weft_cache_user_close(user);
    return NULL;
}

static int cpu_number(unsigned n)
{
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine))
        return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && !n--)
            return cpu;
    return -1;
}

/* Nanoseconds of one hit, in each of [threads]. */
static int hit_ns(struct reg *r, int kind, unsigned threads, unsigned regions, double *ns)
{
    struct worker w[2];
    pthread_barrier_init(&r->start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        w[i] = (struct worker){
            .reg = r, .cache = r->hits[kind], .regions = regions, .cpu = cpu_number(i)};
        if (pthread_create(&w[i].thread, NULL, hit_main, &w[i])) {
            perror("weft perf reg: starting a thread");
            exit(1); /* the other thread waits at the barrier */
        }
    }
    *ns = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        if (w[i].status != WEFT_OK)
            return fail("a registration from the cache", w[i].status);
        *ns += w[i].ns / threads;
    }
    pthread_barrier_destroy(&r->start);
    return 0;
}

/* ---- misses ---- */

static int miss_ns(const struct reg *r, unsigned char *at, size_t stride, double *ns)
{
    struct weft_cache_user *user;
    struct weft_cache_use use;
    enum weft_status s = weft_cache_user_open(r->misses, &user);
    uint64_t begin;
    if (s == WEFT_OK) /* its slots */
        s = weft_cache_get(user, at, 1, &use);
    if (s != WEFT_OK)
        return fail("a registration", s);
    weft_cache_put(user, &use);
    (void)weft_cache_shrink(r->misses, UINT64_MAX);
    begin = wf_perf_now_ns();
    for (unsigned i = 0; i < MISSES && s == WEFT_OK; i++) {
        s = weft_cache_get(user, at + i * stride, MISS_LEN, &use);
        if (s == WEFT_OK)
            weft_cache_put(user, &use);
    }
    *ns = (double)(wf_perf_now_ns() - begin) / MISSES;
    (void)weft_cache_shrink(r->misses, UINT64_MAX);
    if (s == WEFT_OK)
        s = weft_cache_user_close(user);
    return s == WEFT_OK ? 0 : fail("a registration", s);
}

/* ---- rows ---- */

enum row_kind { LOCK, HIT, MISS, MISS_APART, PROBE };

static const struct row {
    const char *what;
    enum row_kind kind;
    int confirmed;
    unsigned threads, regions;
    int base; /* the row to compare with; -1: none, or the kernel alone */
} rows[] = {
    {"lock", LOCK, PROMISED, 1, 0, -1},
    {"hit", HIT, PROMISED, 1, FEW, -1},
    {"hit", HIT, PROMISED, 2, FEW, 1},
    {"hit", HIT, PROMISED, 1, MANY, -1},
    {"hit", HIT, PROMISED, 2, MANY, 3},
    {"hit_confirmed", HIT, CONFIRMED, 1, FEW, -1},
    {"hit_confirmed", HIT, CONFIRMED, 2, FEW, 5},
    {"hit_confirmed", HIT, CONFIRMED, 1, MANY, -1},
    {"hit_confirmed", HIT, CONFIRMED, 2, MANY, 7},
    {"hit_region", HIT, REGIONS, 1, FEW, 5},
    {"hit_region", HIT, REGIONS, 1, MANY, 7},
    {"probe", PROBE, CONFIRMED, 1, 0, -1},
    {"miss", MISS, CONFIRMED, 1, MISSES, -1},
    {"miss_apart", MISS_APART, CONFIRMED, 1, MISSES, -1},
};
#define ROWS (sizeof rows / sizeof *rows)

struct figures {
    double ns[ROUNDS], bare[ROUNDS], ratio[ROUNDS];
};

static bool can_run(const struct reg *r, const struct row *row)
{
    if (row->kind == LOCK)
        return true;
    if (row->kind == HIT)
        return row->threads == 1 || cpu_number(1) >= 0;
    return r->uffd >= 0 && (row->kind == PROBE || r->ring >= 0);
}

static int row_round(struct reg *r, struct figures *f, size_t i, unsigned round)
{
    const struct row *row = &rows[i];
    double *ns = &f[i].ns[round], *bare = &f[i].bare[round], *ratio = &f[i].ratio[round];
    const size_t span = MISSES * MISS_LEN;
    switch (row->kind) {
    case LOCK: *ns = lock_ns(); return 0;
    case HIT:
        if (hit_ns(r, row->confirmed, row->threads, row->regions, ns))
            return -1;
        if (row->base >= 0) /* compares the rates of all threads */
            *ratio = row->threads * f[row->base].ns[round] / *ns;
        return 0;
    case PROBE: *ns = probe_ns(r); return 0;
    case MISS:
        if (bare_ns(r, r->together + span, MISS_LEN, r->together + span, span, bare) ||
            miss_ns(r, r->together, MISS_LEN, ns))
            return -1;
        break;
    case MISS_APART:
        if (bare_ns(r, r->apart + MISSES * (MISS_LEN + STRIDE), MISS_LEN + STRIDE,
                    r->apart + MISSES * (MISS_LEN + STRIDE), MISS_LEN, bare) ||
            miss_ns(r, r->apart, MISS_LEN + STRIDE, ns))
            return -1;
        break;
    }
    *ratio = *ns / *bare;
    return 0;
}

static void row_print(const struct reg *r, const struct row *row, struct figures *f)
{
    double ns = wf_perf_median(f->ns, ROUNDS), bare = wf_perf_median(f->bare, ROUNDS);
    double ratio = wf_perf_median(f->ratio, ROUNDS);
    bool is_rate = row->kind == HIT && row->threads > 1;
    bool is_region = row->kind == HIT && row->confirmed == REGIONS;
    if (r->json) {
        printf("{\"test\":\"reg\",\"what\":\"%s\",\"threads\":%u,\"regions\":%u,\"ns\":%.1f",
               row->what, row->threads, row->regions, ns);
        if (is_rate)
            printf(",\"rate_of_one\":%.2f", ratio);
        else if (is_region)
            printf(",\"of_hit_confirmed\":%.2f", 1 / ratio);
        else if (bare > 0)
            printf(",\"kernel_ns\":%.1f,\"of_kernel\":%.2f", bare, ratio);
        printf("}\n");
    } else {
        printf("%-14s %7u %8u %9.1f  ", row->what, row->threads, row->regions, ns);
        if (is_rate)
            printf("%.2f times the rate of one thread", ratio);
        else if (is_region)
            printf("%.2f times hit_confirmed, with the region's raw key", 1 / ratio);
        else if (bare > 0)
            printf("%.2f of what the kernel alone takes, %.0f ns: pinning, UFFDIO_REGISTER, probe",
                   ratio, bare);
        printf("\n");
    }
    fflush(stdout);
}

/* ---- all of it ---- */

static struct weft_cache *cache_open(struct weft_registrar registrar, uint32_t flags)
{
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    struct weft_cache *cache;
    enum weft_status s;
    params.registrar = registrar;
    params.flags = flags;
    params.max_count = 2 * MANY;
    s = weft_cache_open(&params, &cache);
    if (s == WEFT_OK)
        return cache;
    (void)fail("opening a cache", s);
    return NULL;
}

static struct weft_cache *regions_open(const struct reg *r)
{
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    struct weft_cache *cache;
    enum weft_status s;
    params.max_count = 2 * MANY;
    s = weft_cache_open_regions(weft_job_ctx(r->job), WEFT_REMOTE_READ, &params, &cache);
    if (s == WEFT_OK)
        return cache;
    (void)fail("opening a cache of regions", s);
    return NULL;
}

static unsigned char *map(size_t len)
{
    unsigned char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        (void)fail_system("memory");
        return NULL;
    }
    return p;
}

/* Two of each: for the cache, and for the kernel alone, which another descriptor watches. */
static int miss_memory(struct reg *r)
{
    const size_t span = MISSES * MISS_LEN;
    r->together = map(2 * span + STRIDE);
    r->apart = map(2 * MISSES * (MISS_LEN + STRIDE));
    if (!r->together || !r->apart)
        return -1;
    memset(r->together, 1, 2 * span);
    memset(r->apart, 1, 2 * MISSES * (MISS_LEN + STRIDE));
    for (unsigned i = 0; i < 2 * MISSES; i++)
        if (mprotect(r->apart + i * (MISS_LEN + STRIDE) + MISS_LEN, STRIDE, PROT_NONE))
            return fail_system("memory");
    /* Makes them two mappings. */
    return madvise(r->together + span, span, MADV_DONTDUMP) ? fail_system("memory") : 0;
}

static int open_all(struct reg *r)
{
    const struct weft_registrar nothing = {NULL, nothing_reg, nothing_dereg};
    const struct weft_registrar ring = {r, ring_reg, ring_dereg};
    enum weft_status s = weft_job_open(NULL, &r->job); /* as a process that uses the library */
    uint32_t seed = 1;
    if (s != WEFT_OK)
        return fail("joining the job", s);
    r->ring = ring_open();
    r->uffd = uffd_open();
    (void)weft_monitor_name(&r->why);
    for (unsigned i = 0; i < ORDER; i++) {
        seed = seed * 1664525u + 1013904223u;
        r->order[0][i] = (uint16_t)((seed >> 8) % FEW);
        r->order[1][i] = (uint16_t)((seed >> 8) % MANY);
    }
    r->base = map(MANY * STRIDE);
    r->hits[PROMISED] = cache_open(nothing, WEFT_CACHE_SINGLE);
    r->hits[CONFIRMED] = cache_open(nothing, 0);
    r->hits[REGIONS] = regions_open(r);
    r->misses = cache_open(ring, 0);
    return r->base && r->hits[PROMISED] && r->hits[CONFIRMED] && r->hits[REGIONS] && r->misses
               ? miss_memory(r)
               : -1;
}

static int close_all(struct reg *r)
{
    enum weft_status s = WEFT_OK;
    for (int i = 0; i < KINDS && s == WEFT_OK; i++)
        s = weft_cache_close(r->hits[i]);
    if (s == WEFT_OK)
        s = weft_cache_close(r->misses);
    if (s == WEFT_OK)
        s = weft_job_close(r->job);
    return s == WEFT_OK ? 0 : fail("closing", s);
}

static void say_what_misses(const struct reg *r)
{
    if (r->why)
        fprintf(stderr, "weft perf reg: nothing is kept, each use is a miss: %s\n", r->why);
    if (r->ring < 0)
        fprintf(stderr, "weft perf reg: no misses are measured: io_uring is denied or too old\n");
    if (cpu_number(1) < 0)
        fprintf(stderr, "weft perf reg: only one core: no rows of two threads\n");
}

int wf_perf_reg(bool json)
{
    static struct figures f[ROWS];
    static struct reg whole; /* static: caches that could not be closed still point to it */
    struct reg *r = &whole;
    r->json = json;
    if (open_all(r))
        return 1;
    say_what_misses(r);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < ROWS; i++)
            if (can_run(r, &rows[i]) && row_round(r, f, i, round))
                return 1;
    if (!json)
        printf("%-14s %7s %8s %9s\n", "what", "threads", "regions", "ns");
    for (size_t i = 0; i < ROWS; i++)
        if (can_run(r, &rows[i]))
            row_print(r, &rows[i], &f[i]);
    return close_all(r) ? 1 : 0;
}
