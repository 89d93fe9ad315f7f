/* SPDX-License-Identifier: BSD-3-Clause */
/* Every way in which a program's memory changes: what the cache makes of it. Each row has memory
 * from which is transferred, changes it, and transfers again: what comes out is what is there. And
 * it says whether the memory is cached at all, and whether the change costs a registration. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/device.h"
#include "mem/cache/monitor.h"
#include "unit/unit.h"

#define PAGE 4096u
#define SIZE (8 * PAGE)
#define TIMES 100 /* that a row may be started anew */
#define PATIENCE_NS UINT64_C(10000000000)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static struct {
    struct device *device;
    struct line *line;
    struct wf_cache *cache;
    struct wf_cache_user *user;
    const char *why; /* there is no userfaultfd */
    uint64_t stamp;
    int fd; /* the file behind the row's memory */
    int shm;
    bool taken; /* another thread was given the place that the row unmapped */
} t;

static int open_all(void **state)
{
    struct wf_cache_params p = {.max_entries = 256};
    (void)state;
    if (!(t.device = device_open(256))) {
        print_message("no io_uring: %s\n", strerror(errno));
        return 0;
    }
    p.monitor = wf_monitor_userfaultfd(&t.why);
    if (!p.monitor) {
        print_message("no userfaultfd: %s; nothing is cached\n", t.why);
        p.monitor = &wf_monitor_none;
    }
    p.reg_ops = device_reg_ops(t.device);
    OK(wf_cache_open(&p, &t.cache));
    OK(wf_cache_user_open(t.cache, &t.user));
    assert_non_null(t.line = line_open(t.device));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    if (!t.device)
        return 0;
    wf_cache_user_close(t.user);
    wf_cache_close(t.cache);
    line_close(t.line);
    device_close(t.device);
    return 0;
}

static unsigned registrations(void)
{
    struct device_counts c;
    device_count(t.device, &c);
    return (unsigned)c.regs;
}

/* Something new in every page of [at, at + len), transferred as one. */
static bool is_fresh(unsigned char *at, size_t len)
{
    struct wf_cached use;
    bool same = true;
    OK(wf_cache_get(t.user, at, len, &use));
    for (size_t i = 0; i < len; i += PAGE) {
        uint64_t in = ++t.stamp * 0x9e3779b97f4a7c15u, out = 0;
        memcpy(at + i, &in, sizeof in);
        assert_true(line_send(t.line, use.handle, at + i, sizeof in, &out));
        same = same && in == out;
    }
    wf_cache_put(t.user, &use);
    return same;
}

/* ---- kinds of memory ---- */

static unsigned char *anonymous(void)
{
    unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static unsigned char *shared(void)
{
    unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static unsigned char *of_memfd(int flags)
{
    unsigned char *p;
    t.fd = memfd_create("changes", MFD_CLOEXEC);
    assert_true(t.fd >= 0);
    assert_int_equal(ftruncate(t.fd, SIZE), 0);
    p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, t.fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static unsigned char *shared_file(void)
{
    return of_memfd(MAP_SHARED);
}

static unsigned char *private_file(void)
{
    return of_memfd(MAP_PRIVATE);
}

static unsigned char *sysv(void)
{
    unsigned char *p;
    t.shm = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
    assert_true(t.shm >= 0);
    p = shmat(t.shm, NULL, 0);
    assert_int_equal(shmctl(t.shm, IPC_RMID, NULL), 0);
    return p == (void *)-1 ? NULL : p; // NOLINT
}

/* Two huge pages if the kernel has any to give; what is transferred is in the middle. */
static unsigned char *huge(void)
{
    size_t two = (size_t)2 << 20;
    unsigned char *p =
        mmap(NULL, 3 * two, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p = (void *)(((uintptr_t)p + two - 1) & ~(two - 1)); // NOLINT
    (void)madvise(p, 2 * two, MADV_HUGEPAGE);
    memset(p, 1, 2 * two);
    return p + two - SIZE / 2;
}

static unsigned char *of_brk(void)
{
    uintptr_t end = (uintptr_t)sbrk(0);
    size_t pad = (PAGE - end % PAGE) % PAGE;
    unsigned char *p = sbrk((intptr_t)(pad + SIZE));
    return p == (void *)-1 ? NULL : p + pad; // NOLINT
}

static unsigned char *stack_page;

static unsigned char *of_stack(void)
{
    return stack_page;
}

/* ---- changes ---- */

static void nothing(unsigned char *p)
{
    (void)p;
}

/* [p, p + len), unmapped just now, is memory again; unless the kernel gave the place to another
 * thread's mmap in between (the monitor's, whose allocator grows): then the row starts anew. */
static void map_again(unsigned char *p, size_t len)
{
    void *q = mmap(p, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (q == MAP_FAILED && errno == EEXIST)
        t.taken = true;
    else
        assert_ptr_equal(q, p);
}

static void unmap_map(unsigned char *p)
{
    assert_int_equal(munmap(p, SIZE), 0);
    map_again(p, SIZE);
}

static void unmap_map_one(unsigned char *p)
{
    assert_int_equal(munmap(p + PAGE, PAGE), 0);
    map_again(p + PAGE, PAGE);
}

static void map_over(unsigned char *p)
{
    assert_ptr_equal(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     p + PAGE);
}

static void file_over(unsigned char *p)
{
    int fd = memfd_create("over", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_ptr_equal(mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0), p);
    close(fd);
}

static void swap_by_mremap(unsigned char *p)
{
    unsigned char *other = anonymous(), *there;
    assert_non_null(other);
    memset(other, 2, SIZE);
    there = mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, other + 0);
    assert_ptr_equal(there, other);
    assert_true(is_fresh(other, SIZE)); /* the moved pages at their new place */
    map_again(p, SIZE);
}

static void move_pages_away(unsigned char *p)
{
    unsigned char *q = mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    assert_true(q != MAP_FAILED);
    assert_true(is_fresh(q, SIZE));
    munmap(q, SIZE);
}

static void shrink_and_grow(unsigned char *p)
{
    assert_ptr_equal(mremap(p, SIZE, SIZE / 2, 0), p);
    if (mremap(p, SIZE / 2, SIZE, 0) != p)
        map_again(p + SIZE / 2, SIZE / 2);
}

static void advise(unsigned char *p, int advice)
{
    if (madvise(p, SIZE, advice))
        print_message("madvise %d: %s\n", advice, strerror(errno));
}

static void dontneed(unsigned char *p)
{
    advise(p, MADV_DONTNEED);
}

static void dontneed_locked(unsigned char *p)
{
    advise(p, MADV_DONTNEED_LOCKED);
}

static void free_lazily(unsigned char *p)
{
    advise(p, MADV_FREE);
}

static void remove_pages(unsigned char *p)
{
    advise(p, MADV_REMOVE);
}

static void page_out(unsigned char *p)
{
    advise(p, MADV_PAGEOUT);
}

static void merge_same(unsigned char *p)
{
    advise(p, MADV_MERGEABLE);
}

static void collapse(unsigned char *p)
{
    advise(p - ((uintptr_t)p & (((size_t)2 << 20) - 1)), MADV_COLLAPSE);
}

static void split_huge(unsigned char *p)
{
    assert_int_equal(madvise(p + SIZE / 2, PAGE, MADV_DONTNEED), 0);
}

static void unmap_in_huge(unsigned char *p)
{
    unmap_map_one(p);
}

static void protect(unsigned char *p)
{
    assert_int_equal(mprotect(p, SIZE, PROT_NONE), 0);
    assert_int_equal(mprotect(p, SIZE, PROT_READ | PROT_WRITE), 0);
}

static void lock_unlock(unsigned char *p)
{
    if (!mlock(p, SIZE))
        munlock(p, SIZE);
}

static void punch(unsigned char *p)
{
    (void)p;
    assert_int_equal(fallocate(t.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE), 0);
}

static void truncate_file(unsigned char *p)
{
    (void)p;
    assert_int_equal(ftruncate(t.fd, 0), 0);
    assert_int_equal(ftruncate(t.fd, SIZE), 0);
}

static void detach(unsigned char *p)
{
    int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
    void *q;
    assert_int_equal(shmdt(p), 0);
    q = shmat(id, p, 0);
    t.taken = q == (void *)-1 && errno == EINVAL; // NOLINT
    assert_true(t.taken || q == p);
    shmctl(id, IPC_RMID, NULL);
}

static void brk_down_up(unsigned char *p)
{
    if ((unsigned char *)sbrk(0) != p + SIZE) /* an allocator's in between */
        return;
    assert_true(sbrk(-(intptr_t)SIZE) != (void *)-1); // NOLINT
    assert_ptr_equal(sbrk(SIZE), p);
}

/* The child has copies of what is pinned, at once; both write. */
static void fork_and_write(unsigned char *p)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct wf_cached use;
        memset(p, 7, SIZE);
        _exit(wf_cache_get(t.user, p, SIZE, &use) == WEFT_EFORKED ? 0 : 1);
    }
    memset(p, 8, SIZE);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void fork_and_unmap(unsigned char *p)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(munmap(p, SIZE) ? 1 : 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void vfork_and_exec(unsigned char *p)
{
    char *argv[] = {"true", NULL};
    int status;
    pid_t child = vfork();
    (void)p;
    if (!child) {
        execvp("true", argv);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- the table ---- */

enum expect {
    KEPT,    /* cached, and still afterwards */
    ANEW,    /* cached, and registered once more */
    DROPPED, /* cached, and not any more from then on */
    EXCLUDED /* never cached */
};

static const char *const expect_name[] = {"cached, stays so", "cached, registered anew",
                                          "cached, not any more afterwards", "never cached"};

struct row {
    const char *what;
    unsigned char *(*memory)(void);
    void (*change)(unsigned char *p);
    enum expect expect;
};

static const struct row rows[] = {
    {"anonymous memory: nothing", anonymous, nothing, KEPT},
    {"munmap, mmap there again", anonymous, unmap_map, ANEW},
    {"munmap of one page of it", anonymous, unmap_map_one, ANEW},
    {"mmap MAP_FIXED over one page", anonymous, map_over, ANEW},
    {"a file mapped over one page", anonymous, file_over, DROPPED},
    {"mremap elsewhere, over other memory", anonymous, swap_by_mremap, ANEW},
    {"mremap MREMAP_DONTUNMAP", anonymous, move_pages_away, ANEW},
    {"mremap smaller and larger", anonymous, shrink_and_grow, ANEW},
    {"MADV_DONTNEED", anonymous, dontneed, DROPPED},
    {"MADV_DONTNEED_LOCKED", anonymous, dontneed_locked, DROPPED},
    {"MADV_FREE", anonymous, free_lazily, DROPPED},
    {"MADV_PAGEOUT", anonymous, page_out, KEPT},
    {"MADV_MERGEABLE", anonymous, merge_same, KEPT},
    {"mprotect", anonymous, protect, KEPT},
    {"mlock", anonymous, lock_unlock, KEPT},
    {"fork, both write", anonymous, fork_and_write, KEPT},
    {"fork, the child unmaps", anonymous, fork_and_unmap, KEPT},
    {"vfork and exec", anonymous, vfork_and_exec, KEPT},
    {"brk lower and higher", of_brk, brk_down_up, ANEW},
    {"the stack", of_stack, nothing, KEPT},
    {"huge pages: nothing", huge, nothing, KEPT},
    {"huge pages: one small page dropped", huge, split_huge, DROPPED},
    {"huge pages: one small page unmapped", huge, unmap_in_huge, ANEW},
    {"huge pages: MADV_COLLAPSE", huge, collapse, KEPT},
    {"shared anonymous memory: MADV_REMOVE", shared, remove_pages, EXCLUDED},
    {"shared anonymous memory: MADV_DONTNEED", shared, dontneed, EXCLUDED},
    {"a shared file: fallocate punches a hole", shared_file, punch, EXCLUDED},
    {"a shared file: truncated", shared_file, truncate_file, EXCLUDED},
    {"a private file: punched", private_file, punch, EXCLUDED},
    {"a private file: truncated", private_file, truncate_file, EXCLUDED},
    {"System V: shmdt and shmat", sysv, detach, EXCLUDED},
};

/* Within [ns]: while a change is under way, this row's or the last one's, which on a busy machine
 * may be long, the cache keeps nothing. */
static bool is_kept(unsigned char *p, uint64_t ns)
{
    uint64_t end = wf_now_ns() + ns;
    unsigned before;
    do {
        before = registrations();
        assert_true(is_fresh(p, SIZE));
    } while (registrations() != before && wf_now_ns() < end);
    return registrations() == before;
}

/* False if the row's place was taken while it was changed, which says nothing of the cache. */
static bool row_seen(const struct row *r)
{
    unsigned before;
    enum expect seen;
    unsigned char *p = r->memory();
    assert_non_null(p);
    memset(p, 1, SIZE);
    t.fd = r->memory == shared_file || r->memory == private_file ? t.fd : -1;
    assert_true(is_fresh(p, SIZE));
    seen = is_kept(p, t.why || r->expect == EXCLUDED ? 0 : PATIENCE_NS) ? KEPT : EXCLUDED;
    t.taken = false;
    r->change(p);
    if (t.taken)
        return false;
    before = registrations();
    assert_true(is_fresh(p, SIZE));
    if (seen == KEPT && registrations() != before)
        seen = is_kept(p, r->expect == DROPPED ? 0 : PATIENCE_NS) ? ANEW : DROPPED;
    assert_true(is_fresh(p, SIZE));
    print_message("%-44s %s\n", r->what, expect_name[seen]);
    if (!t.why && seen != r->expect) {
        print_message("  expected: %s\n", expect_name[r->expect]);
        fail();
    }
    assert_true(!t.why || seen == EXCLUDED);
    if (t.fd >= 0)
        close(t.fd);
    return true;
}

static void row_run(const struct row *r)
{
    for (int i = 0; i < TIMES; i++)
        if (row_seen(r))
            return;
    print_message("%s: its place was taken %d times\n", r->what, TIMES);
    fail();
}

static void test_all(void **state)
{
    unsigned char stack[SIZE + PAGE];
    struct device_counts c;
    (void)state;
    if (!t.device)
        skip();
    stack_page = stack + (PAGE - (uintptr_t)stack % PAGE) % PAGE;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        row_run(&rows[i]);
    stack_page = NULL;
    wf_cache_shrink(t.cache, UINT64_MAX);
    device_count(t.device, &c);
    assert_int_equal(c.now, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
