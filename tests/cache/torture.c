/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that map, unmap, move, grow, shrink, drop, fork, allocate and free, and transfer from the
 * same addresses, with two caches and a device that pins (device.h). Each transfer is of bytes
 * written just before; other bytes that come out were of pages that are not there any more.
 *
 *     cache_torture SEED EVENTS [forget | unasked]
 *
 * An event is one step of a thread: a change or a transfer. With "forget" the monitor reads changes
 * and does not log one in 16; with "unasked" nobody asks the kernel for changes under way: then a
 * stale byte must come out, or the test could not see one. Exit 77: there is nothing to test here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/util.h"
#include "cache/device.h"
#include "mem/cache/monitor.h"
#include "mem/cache/uffd.h"

#define PAGE 4096u
#define THREADS 4
#define CACHES 2
#define SLOTS 48 /* places that all threads map at */
#define PAGES 16 /* of a place, and at most of a buffer */
#define OWN 12   /* buffers of a thread */
#define HELD 4   /* uses that are put back later */
#define STUCK_S 60

enum step {
    SEND,
    RECEIVE,
    MAP,
    PLACE,
    ALLOCATE,
    RELEASE,
    CUT,
    MOVE,
    OVER,
    DROP,
    HAND,
    FORK,
    STEPS
};
static const char *const step_name[STEPS] = {"send",    "receive", "map",  "place",
                                             "malloc",  "release", "cut",  "mremap",
                                             "overmap", "drop",    "hand", "fork"};
/* In a thousand. */
static const unsigned weight[STEPS] = {400, 60, 70, 120, 90, 120, 40, 40, 20, 10, 29, 1};

struct buffer {
    unsigned char *at;
    size_t len;
    bool from_malloc;
};

struct held {
    struct wf_cached use;
    bool is_held;
};

struct worker {
    pthread_t thread;
    unsigned number;
    uint64_t rand;
    struct wf_cache *cache;
    struct wf_cache_user *user;
    struct line *line;
    struct buffer own[OWN];
    unsigned owned;
    struct held held[HELD];
    uint64_t stamp;
    uint64_t steps[STEPS], refused;
    _Atomic uint64_t done;
};

static struct {
    struct device *device;
    struct wf_monitor *monitor;
    struct wf_cache *cache[CACHES];
    unsigned char *arena;
    struct worker worker[THREADS];
    uint64_t events;
    bool unasked, until_stale;
    _Atomic uint64_t stale;
    _Atomic bool stop;
    pthread_mutex_t box_lock;
    struct buffer box[8];
    struct wf_uffd forgetful;
} t = {.box_lock = PTHREAD_MUTEX_INITIALIZER};

static void die(const char *what)
{
    fprintf(stderr, "torture: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned below(struct worker *w, unsigned n)
{
    return (unsigned)(wf_rand(&w->rand) % n);
}

/* ---- uses ---- */

static void put_one(struct worker *w, unsigned i)
{
    if (w->held[i].is_held)
        wf_cache_put(w->user, &w->held[i].use);
    w->held[i].is_held = false;
}

/* Some are put back at once, some stay for a while. */
static void put_later(struct worker *w, const struct wf_cached *use)
{
    unsigned i = below(w, HELD);
    if (below(w, 2)) {
        wf_cache_put(w->user, use);
        return;
    }
    put_one(w, i);
    w->held[i].use = *use;
    w->held[i].is_held = true;
}

static void fill(struct worker *w, unsigned char *at, size_t len)
{
    uint64_t stamp = 0;
    for (size_t i = 0; i < len; i++) {
        if (i % 8 == 0)
            stamp = (++w->stamp << 8 | w->number) * 0x9e3779b97f4a7c15u;
        at[i] = (unsigned char)(stamp >> i % 8 * 8);
    }
}

static bool transfer(struct worker *w, bool send)
{
    unsigned char copy[2 * PAGE];
    struct buffer *b;
    struct wf_cached use;
    enum weft_status status;
    size_t len, off, most;
    if (!w->owned)
        return false;
    b = &w->own[below(w, w->owned)];
    most = below(w, 4) ? 64 : PAGE;
    len = 1 + below(w, (unsigned)WF_MIN(b->len, most));
    off = below(w, (unsigned)(b->len - len + 1));
    fill(w, send ? b->at + off : copy, len);
    status = wf_cache_get(w->user, b->at + off, len, &use);
    if (status == WEFT_ELIMIT) {
        w->refused++;
        return true;
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "torture: %s\n", weft_status_text(status));
        exit(1);
    }
    if (send ? !line_send(w->line, use.handle, b->at + off, len, copy)
             : !line_receive(w->line, use.handle, b->at + off, len, copy))
        exit(1);
    if (memcmp(copy, b->at + off, len) && !t.stale++) {
        t.stop = t.until_stale;
        fprintf(stderr, "torture: %zu bytes at %p are stale, step %" PRIu64 " of thread %u\n", len,
                (void *)(b->at + off), (uint64_t)w->done, w->number);
    }
    put_later(w, &use);
    return true;
}

/* ---- changes ---- */

static bool own(struct worker *w, void *at, size_t len, bool from_malloc)
{
    if (at == MAP_FAILED || !at)
        return false;
    w->own[w->owned++] = (struct buffer){at, len, from_malloc};
    return true;
}

/* ThreadSanitizer knows nothing of mremap: who gets a place by it must be seen to come after who
 * gave it back, as the kernel sees to it. */
static _Atomic unsigned given_back;

static void gives_back(void)
{
    atomic_fetch_add_explicit(&given_back, 1, memory_order_release);
}

static void release(struct buffer *b)
{
    gives_back();
    if (b->from_malloc)
        free(b->at);
    else if (b->len && munmap(b->at, b->len))
        die("munmap");
}

static void *map(void *at, size_t len, int flags)
{
    return mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static bool acquire(struct worker *w, enum step how)
{
    size_t len = (1 + below(w, PAGES)) * PAGE, bytes = 1 + below(w, below(w, 8) ? 8192 : 300000);
    if (w->owned == OWN)
        return false;
    if (how == MAP)
        return own(w, map(NULL, len, 0), len, false);
    if (how == ALLOCATE)
        return own(w, malloc(bytes), bytes, true);
    /* Whoever gets a place has it: it may be free in the kernel's eyes a moment before the
     * thread that unmaps it goes on. */
    return own(w, map(t.arena + (size_t)below(w, SLOTS) * PAGES * PAGE, len, MAP_FIXED_NOREPLACE),
               len, false);
}

static bool disown(struct worker *w)
{
    struct buffer b;
    unsigned i;
    if (!w->owned)
        return false;
    i = below(w, w->owned);
    b = w->own[i];
    w->own[i] = w->own[--w->owned];
    release(&b);
    return true;
}

static struct buffer *mapped(struct worker *w)
{
    struct buffer *b = w->owned ? &w->own[below(w, w->owned)] : NULL;
    return b && !b->from_malloc ? b : NULL;
}

/* Some pages of it: their first, and their number in *n. */
static size_t some(struct worker *w, const struct buffer *b, size_t *n)
{
    size_t pages = b->len / PAGE, first = below(w, (unsigned)pages);
    *n = 1 + below(w, (unsigned)(pages - first));
    return first;
}

static bool cut(struct worker *w)
{
    struct buffer *b = mapped(w);
    size_t n, first, rest;
    if (!b || b->len < 2 * PAGE || w->owned == OWN)
        return false;
    first = some(w, b, &n);
    rest = b->len / PAGE - first - n;
    gives_back();
    if (munmap(b->at + first * PAGE, n * PAGE))
        die("munmap");
    if (rest)
        own(w, b->at + (first + n) * PAGE, rest * PAGE, false);
    b->len = first * PAGE;
    if (!b->len)
        *b = w->own[--w->owned];
    return true;
}

static bool move(struct worker *w)
{
    struct buffer *b = mapped(w);
    size_t len = (1 + below(w, PAGES)) * PAGE;
    void *at;
    if (!b)
        return false;
    gives_back();
    at = mremap(b->at, b->len, len, MREMAP_MAYMOVE);
    (void)atomic_load_explicit(&given_back, memory_order_acquire);
    if (at == MAP_FAILED && errno == EFAULT) /* of several mappings */
        return false;
    if (at == MAP_FAILED)
        die("mremap");
    *b = (struct buffer){at, len, false};
    return true;
}

static bool over(struct worker *w)
{
    struct buffer *b = mapped(w);
    size_t n, first;
    if (!b)
        return false;
    first = some(w, b, &n);
    if (map(b->at + first * PAGE, n * PAGE, MAP_FIXED) == MAP_FAILED)
        die("mmap");
    return true;
}

static bool drop(struct worker *w)
{
    struct buffer *b = mapped(w);
    size_t n, first;
    if (!b)
        return false;
    first = some(w, b, &n);
    if (madvise(b->at + first * PAGE, n * PAGE, below(w, 2) ? MADV_DONTNEED : MADV_FREE))
        die("madvise");
    return true;
}

/* To whoever wants it. */
static bool hand(struct worker *w)
{
    struct buffer *box = &t.box[below(w, WF_ARRAY_LEN(t.box))], was;
    unsigned i;
    if (!w->owned)
        return false;
    i = below(w, w->owned);
    pthread_mutex_lock(&t.box_lock);
    was = *box;
    *box = w->own[i];
    pthread_mutex_unlock(&t.box_lock);
    w->own[i] = was;
    if (!was.at)
        w->own[i] = w->own[--w->owned];
    return true;
}

static bool fork_one(struct worker *w)
{
    struct wf_cached use;
    int status;
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (!child) {
        for (unsigned i = 0; i < w->owned; i++)
            memset(w->own[i].at, 0xee, w->own[i].len);
        _exit(wf_cache_get(w->user, &use, sizeof use, &use) == WEFT_EFORKED ? 0 : 1);
    }
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR)
            die("waitpid");
    if (status) {
        fprintf(stderr, "torture: a child ended with %#x\n", (unsigned)status);
        exit(1);
    }
    return true;
}

/* ---- threads ---- */

static bool step_do(struct worker *w, enum step s)
{
    switch (s) {
    case SEND: return transfer(w, true);
    case RECEIVE: return transfer(w, false);
    case RELEASE: return disown(w);
    case CUT: return cut(w);
    case MOVE: return move(w);
    case OVER: return over(w);
    case DROP: return drop(w);
    case HAND: return hand(w);
    case FORK: return fork_one(w);
    default: return acquire(w, s);
    }
}

static enum step choose(struct worker *w)
{
    unsigned at = below(w, 1000), s = 0;
    while (at >= weight[s])
        at -= weight[s++];
    return (enum step)s;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    while (w->done < t.events / THREADS && !t.stop) {
        enum step s = choose(w);
        if (!step_do(w, s))
            continue;
        w->steps[s]++;
        w->done++;
    }
    for (unsigned i = 0; i < HELD; i++)
        put_one(w, i);
    for (unsigned i = 0; i < w->owned; i++)
        release(&w->own[i]);
    return NULL;
}

/* The monitor's thread, but for what it forgets. */
static void *forgetful(void *arg)
{
    struct wf_uffd *u = arg;
    unsigned turns = 0;
    for (;;) {
        struct pollfd p = {.fd = u->fd, .events = POLLIN};
        (void)poll(&p, 1, -1);
        if (++turns % 16) {
            wf_uffd_read(u);
        } else {
            char msg[512];
            (void)!read(u->fd, msg, sizeof msg);
        }
    }
    return NULL;
}

static const char *monitor_open(bool forgets)
{
    const char *why = NULL;
    pthread_t thread;
    if (!forgets) {
        t.monitor = wf_monitor_userfaultfd(&why);
        return why;
    }
    why = wf_uffd_open(&t.forgetful);
    if (why)
        return why;
    t.monitor = &t.forgetful.base;
    if (pthread_create(&thread, NULL, forgetful, &t.forgetful))
        die("thread");
    return NULL;
}

/* Far below where the kernel maps what may be anywhere. */
static void arena_choose(void)
{
    size_t size = (size_t)SLOTS * PAGES * PAGE;
    unsigned char *high = map(NULL, size, 0);
    if (high == MAP_FAILED)
        die("arena");
    t.arena = map(high - ((size_t)64 << 30), size, MAP_FIXED_NOREPLACE);
    if (t.arena == MAP_FAILED || munmap(t.arena, size) || munmap(high, size))
        die("arena");
}

static void workers_start(uint64_t seed)
{
    for (unsigned i = 0; i < CACHES; i++) {
        struct wf_cache_params p = {.reg_ops = device_reg_ops(t.device),
                                    .monitor = t.monitor,
                                    .max_entries = i ? 24 : 96,
                                    .max_bytes = i ? 0 : 400 * PAGE,
                                    .merge = i,
                                    .single = t.unasked};
        if (wf_cache_open(&p, &t.cache[i]) != WEFT_OK)
            die("cache");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        struct worker *w = &t.worker[i];
        w->number = i;
        w->cache = t.cache[i % CACHES];
        w->rand = seed * THREADS + i;
        if (wf_cache_user_open(w->cache, &w->user) != WEFT_OK || !(w->line = line_open(t.device)) ||
            pthread_create(&w->thread, NULL, work, w))
            die("thread");
    }
}

static uint64_t done_all(void)
{
    uint64_t done = 0;
    for (unsigned i = 0; i < THREADS; i++)
        done += t.worker[i].done;
    return done;
}

static bool joined_soon(pthread_t thread)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    return !pthread_timedjoin_np(thread, NULL, &until);
}

/* Until they have ended; a run that stands still is stuck. */
static void workers_join(void)
{
    uint64_t last = 0, since = wf_now_ns();
    for (unsigned i = 0; i < THREADS; i++)
        while (!joined_soon(t.worker[i].thread)) {
            uint64_t now = done_all();
            if (now != last) {
                last = now;
                since = wf_now_ns();
            } else if (wf_now_ns() - since > STUCK_S * 1000000000u) {
                fprintf(stderr, "torture: nothing has moved for %d s\n", STUCK_S);
                abort();
            }
        }
}

static void caches_close(void)
{
    struct wf_cache_counts c, all = {0};
    struct device_counts d;
    for (unsigned i = 0; i < THREADS; i++) {
        wf_cache_user_close(t.worker[i].user);
        line_close(t.worker[i].line);
    }
    for (unsigned i = 0; i < CACHES; i++) {
        wf_cache_count(t.cache[i], &c);
        all.hits += c.hits;
        all.misses += c.misses;
        all.uncached += c.uncached;
        all.evictions += c.evictions;
        wf_cache_close(t.cache[i]);
    }
    device_count(t.device, &d);
    printf("hits %" PRIu64 ", misses %" PRIu64 " (of which %" PRIu64
           " not to be kept), evictions %" PRIu64 ", changes read %" PRIu64
           ", at most %u registered\n",
           all.hits, all.misses, all.uncached, all.evictions, (uint64_t)t.monitor->logged, d.most);
    if (d.now || d.regs != d.deregs) {
        fprintf(stderr, "torture: %u registrations are left\n", d.now);
        exit(1);
    }
}

static void report(void)
{
    uint64_t refused = 0;
    for (unsigned s = 0; s < STEPS; s++) {
        uint64_t n = 0;
        for (unsigned i = 0; i < THREADS; i++)
            n += t.worker[i].steps[s];
        printf("%s %" PRIu64 "%s", step_name[s], n, s + 1 < STEPS ? ", " : "\n");
    }
    for (unsigned i = 0; i < THREADS; i++)
        refused += t.worker[i].refused;
    printf("events %" PRIu64 ", transfers without a registration %" PRIu64 ", stale %" PRIu64 "\n",
           done_all(), refused, (uint64_t)t.stale);
}

int main(int argc, char **argv)
{
    bool forgets = argc > 3 && !strcmp(argv[3], "forget");
    const char *why;
    t.unasked = argc > 3 && !strcmp(argv[3], "unasked");
    t.until_stale = forgets || t.unasked;
    if (argc < 3 || argc > 4 || (argc == 4 && !forgets && !t.unasked)) {
        fprintf(stderr, "usage: cache_torture SEED EVENTS [forget | unasked]\n");
        return 2;
    }
    t.events = strtoull(argv[2], NULL, 10);
    if ((why = monitor_open(forgets))) {
        printf("no userfaultfd: %s\n", why);
        return 77;
    }
    if (!(t.device = device_open(128))) {
        printf("no io_uring: %s\n", strerror(errno));
        return 77;
    }
    arena_choose();
    workers_start(strtoull(argv[1], NULL, 10));
    workers_join();
    caches_close();
    device_close(t.device);
    report();
    return t.until_stale ? !t.stale : t.stale != 0;
}
