/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem/mem.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SLAB ((size_t)2 << 20)
#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

static int mem_setup(void **state)
{
    struct wf_mem *mem = malloc(sizeof *mem);
    *state = mem;
    return mem ? (int)wf_mem_init(mem, SLAB, 0) : -1;
}

static int mem_teardown(void **state)
{
    wf_mem_fini(*state);
    free(*state);
    return 0;
}

/* Fails when: two open regions share a byte, one is not zeroed or misaligned. */
static void test_isolation(void **state)
{
    enum { N = 500 };
    static struct wf_region r[N];
    for (uint64_t i = 0; i < N; i++) {
        size_t len = 1 + (size_t)(test_mix(i) % (i % 7 ? 30000 : 300));
        OK(wf_mem_region_open(*state, len, RW, &r[i]));
        assert_true(!((uintptr_t)r[i].base & (len >= 4096 ? 4095 : 63)));
        assert_true(r[i].offset + len <= r[i].slab->size);
        for (size_t k = 0; k < len; k++)
            assert_int_equal(r[i].base[k], 0);
        test_fill(r[i].base, len, i);
    }
    for (uint64_t i = 0; i < N; i++)
        assert_true(test_same(r[i].base, r[i].length, i));
    for (uint64_t i = 0; i < N; i += 2)
        wf_mem_region_close(*state, &r[i]);
    for (uint64_t i = 1; i < N; i += 2)
        assert_true(test_same(r[i].base, r[i].length, i));
    for (uint64_t i = 1; i < N; i += 2)
        wf_mem_region_close(*state, &r[i]);
}

/* Fails when: space of a closed region is used again, so that a local process's late copy
 * overwrites live memory. */
static void test_space_not_reused(void **state)
{
    uint64_t last_slab = 0;
    size_t end = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        struct wf_region r;
        size_t len = 1 + (size_t)(test_mix(i) % 9000);
        OK(wf_mem_region_open(*state, len, RW, &r));
        assert_true(r.slab->id > last_slab || (r.slab->id == last_slab && r.offset >= end));
        last_slab = r.slab->id;
        end = r.offset + len;
        wf_mem_region_close(*state, &r);
    }
    assert_true(last_slab > 5);
}

static int is_mapped(void *p)
{
    unsigned char vec;
    return !mincore(p, 4096, &vec);
}

/* Fails when: a slab outlives its last region, or goes before it. */
static void test_slab_goes_with_last_region(void **state)
{
    struct wf_region a, b, next, large;
    size_t size;
    int fd;
    OK(wf_mem_region_open(*state, SLAB / 2, RW, &a));
    OK(wf_mem_region_open(*state, SLAB / 4, RW, &b));
    OK(wf_mem_region_open(*state, SLAB / 2, RW, &next)); /* does not fit: a new slab */
    OK(wf_mem_region_open(*state, SLAB, RW, &large));    /* one of its own */
    assert_ptr_equal(a.slab, b.slab);
    assert_ptr_not_equal(a.slab, next.slab);
    assert_ptr_not_equal(large.slab, next.slab);
    void *base = a.base, *large_base = large.base;
    uint64_t id = a.slab->id, large_id = large.slab->id;
    wf_mem_region_close(*state, &a);
    assert_true(is_mapped(base));
    fd = wf_mem_slab_dup(*state, id, &size);
    assert_true(fd >= 0 && size == SLAB);
    close(fd);
    wf_mem_region_close(*state, &b);
    assert_false(is_mapped(base));
    assert_int_equal(wf_mem_slab_dup(*state, id, &size), -1);
    wf_mem_region_close(*state, &large);
    assert_false(is_mapped(large_base));
    assert_int_equal(wf_mem_slab_dup(*state, large_id, &size), -1);
    assert_true(is_mapped(next.base));
    wf_mem_region_close(*state, &next);
}

/* Fails when: an open region has the identity of an earlier one in its slot. */
static void test_generation(void **state)
{
    struct wf_mem *mem = *state;
    uint64_t last[4] = {0};
    for (int i = 0; i < 200; i++) {
        struct wf_region r[4];
        for (int k = 0; k < 4; k++) {
            OK(wf_mem_region_open(mem, 64, RW, &r[k]));
            assert_true(r[k].slot < 4 && (r[k].gen & 1) && r[k].gen > last[r[k].slot]);
            assert_int_equal(mem->state[r[k].slot], r[k].gen);
            last[r[k].slot] = r[k].gen;
        }
        for (int k = 0; k < 4; k++) {
            wf_mem_region_close(mem, &r[k]);
            assert_true(mem->state[r[k].slot] > r[k].gen && !(mem->state[r[k].slot] & 1));
        }
    }
}

/* Fails when: the limit is exceeded, or an object is unusable after it was reached. */
static void test_limit(void **state)
{
    struct wf_region *r = calloc(WF_MEM_STATE_WORDS, sizeof *r), more;
    for (size_t i = 0; i < WF_MEM_STATE_WORDS; i++)
        OK(wf_mem_region_open(*state, 64, RW, &r[i]));
    assert_int_equal(wf_mem_region_open(*state, 64, RW, &more), WEFT_ELIMIT);
    wf_mem_region_close(*state, &r[77]);
    OK(wf_mem_region_open(*state, 64, RW, &r[77]));
    assert_int_equal(wf_mem_region_open(*state, 64, RW, &more), WEFT_ELIMIT);
    for (size_t i = 0; i < WF_MEM_STATE_WORDS; i++)
        wf_mem_region_close(*state, &r[i]);
    free(r);
}

/* Fails when: closed regions keep their pages. */
static void test_pages_go(void **state)
{
    struct wf_region keep, r;
    long before, after;
    OK(wf_mem_region_open(*state, 64, RW, &keep));
    OK(wf_mem_region_open(*state, SLAB / 2, RW, &r));
    assert_ptr_equal(keep.slab, r.slab);
    memset(r.base, 1, r.length);
    before = test_status_kib("RssShmem");
    wf_mem_region_close(*state, &r);
    after = test_status_kib("RssShmem");
    assert_true(after <= before - 900);
    wf_mem_region_close(*state, &keep);
}

static void refused(long result, int want)
{
    assert_int_equal(result, -1);
    assert_true(errno == want || errno == EPERM);
}

/* All that a local process can try with a descriptor of read-only memory fails. */
static void read_only_holds(int fd, size_t size)
{
    void *p;
    char path[64];
    int again;
    assert_ptr_equal(mmap(NULL, size, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(errno, EPERM);
    p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    refused(mprotect(p, size, PROT_READ | PROT_WRITE), EACCES);
    refused(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EPERM);
    refused(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096), EOPNOTSUPP);
    refused(madvise(p, size, MADV_REMOVE), EACCES);
    refused(pwrite(fd, "x", 1, 0), EPERM);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC); /* the seal is the file's, not the descriptor's */
    if (again >= 0) {
        assert_ptr_equal(mmap(NULL, size, PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
        refused(ftruncate(again, 0), EPERM);
        close(again);
    }
    munmap(p, size);
}

static void size_holds(int fd, size_t size)
{
    int seals = fcntl(fd, F_GET_SEALS), must = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    assert_int_equal(seals & must, must);
    refused(ftruncate(fd, 0), EPERM);
    refused(ftruncate(fd, (off_t)size * 2), EPERM);
    refused(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
}

/* Fails when: a seal is missing. */
static void test_seals(void **state)
{
    struct wf_mem *mem = *state;
    struct wf_region r;
    size_t size;
    int fd;
    OK(wf_mem_region_open(mem, 64, RW, &r));
    fd = wf_mem_slab_dup(mem, r.slab->id, &size);
    assert_true(fd >= 0 && size == SLAB);
    size_holds(fd, size);
    close(fd);
    assert_true(fcntl(mem->state_fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE);
    size_holds(mem->state_fd, WF_MEM_STATE_SIZE);
    read_only_holds(mem->state_fd, WF_MEM_STATE_SIZE);
    mem->state[5] = 7; /* the owner's own mapping still writes */
    mem->state[5] = 0;
    wf_mem_region_close(mem, &r);
}

static void map_refused(int fd, size_t size)
{
    void *p = (void *)1;
    assert_true(fd >= 0);
    assert_int_equal(wf_shared_map(fd, size, 0, &p), WEFT_EPROTO);
    assert_ptr_equal(p, (void *)1);
    close(fd);
}

/* Fails when: a process maps memory that its owner could truncate. */
static void test_map_checks(void **state)
{
    void *p;
    int pipes[2], fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    (void)state;
    assert_int_equal(ftruncate(fd, 8192), 0);
    map_refused(dup(fd), 4096);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK), 0);
    map_refused(dup(fd), 4096); /* not F_SEAL_SEAL: no seal can be removed, but be strict */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
    map_refused(dup(fd), 8193);
    map_refused(dup(fd), 0);
    OK(wf_shared_map(fd, 8192, 1, &p));
    munmap(p, 8192);
    close(fd);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    map_refused(pipes[0], 4096);
    close(pipes[1]);
    map_refused(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 4096);
    map_refused(open("/dev/zero", O_RDWR | O_CLOEXEC), 4096);
}

/* Fails when: a process maps a memfd of huge pages, which its owner can make impossible. */
static void test_map_huge(void **state)
{
    const off_t size = 2 << 20;
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    (void)state;
    if (fd < 0 || ftruncate(fd, size)) /* no such pages here, or of another size */
        skip();
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    map_refused(fd, (size_t)size);
}

/* Fails when: a failed allocation leaves space claimed. */
static void test_too_large(void **state)
{
    struct wf_region r, first;
    int files = test_open_files();
    OK(wf_mem_region_open(*state, 64, RW, &first));
    assert_int_equal(wf_mem_region_open(*state, 0, RW, &r), WEFT_EINVAL);
    assert_int_equal(wf_mem_region_open(*state, SIZE_MAX, RW, &r), WEFT_ENOMEM);
    assert_int_equal(wf_mem_region_open(*state, SIZE_MAX / 2, RW, &r), WEFT_ENOMEM);
    OK(wf_mem_region_open(*state, 64, RW, &r));
    assert_int_equal(r.slot, 1);
    assert_int_equal(test_open_files(), files + 1);
    wf_mem_region_close(*state, &r);
    wf_mem_region_close(*state, &first);
}

/* A region of the caller's memory, enabled. */
static void private_open(struct wf_mem *mem, struct wf_region *r, void *base, size_t len,
                         unsigned access, unsigned flags)
{
    *r = (struct wf_region){.length = len,
                            .access = access,
                            .base = base,
                            .iov_count = 1,
                            .flags = flags,
                            .own_iov = {base, len}};
    r->iov = &r->own_iov;
    OK(wf_mem_region_add(mem, r, 64));
    OK(wf_mem_region_enable(mem, r));
}

/* Add 1 to the word of [size] bytes at [offset]. Returns the status, or PENDING if nothing was done
 * because the region needs more than the operation. */
static enum weft_status add_now(struct wf_mem *mem, const struct wf_region *r, uint64_t offset,
                                size_t size, uint64_t *old)
{
    const struct wf_want want = {
        .slot = r->slot, .access = RW, .gen = r->gen, .offset = offset, .len = size};
    struct wf_mem_atomic a = {
        .operation = WEFT_ATOMIC_ADD, .type = size == 8 ? WEFT_U64 : WEFT_U32, .operand = 1};
    enum weft_status status = WEFT_ESYSTEM;
    if (!wf_mem_atomic_now(mem, &want, &a, &status))
        return WEFT_PENDING;
    *old = a.old;
    return status;
}

/* Fails when: an atomic that the owner does at once goes to another word, is done although the
 * access is not allowed or the word not aligned, or is done at once in a region whose accesses are
 * counted or whose pages may be missing. */
static void test_atomic_now(void **state)
{
    static uint64_t words[4] = {0, 7};
    struct wf_region r;
    uint64_t old = 0;
    private_open(*state, &r, words, sizeof words, RW, 0);
    OK(add_now(*state, &r, 8, 8, &old));
    assert_true(old == 7 && words[1] == 8);
    OK(add_now(*state, &r, 8, 4, &old));
    assert_true(old == 8 && words[1] == 9 && !words[0] && !words[2]);
    assert_int_equal(add_now(*state, &r, 12, 8, &old), WEFT_EINVAL);
    assert_int_equal(add_now(*state, &r, 10, 4, &old), WEFT_EINVAL);
    assert_int_equal(add_now(*state, &r, sizeof words, 8, &old), WEFT_ERANGE);
    assert_int_equal(add_now(*state, &r, UINT64_MAX - 7, 8, &old), WEFT_ERANGE);
    OK(wf_mem_refresh_begin(*state, &r));
    assert_int_equal(add_now(*state, &r, 8, 8, &old), WEFT_EKEY);
    wf_mem_refresh_end(*state, &r, true);
    OK(add_now(*state, &r, 8, 8, &old));
    wf_mem_region_close(*state, &r);
    assert_int_equal(add_now(*state, &r, 8, 8, &old), WEFT_EKEY);
    private_open(*state, &r, words, sizeof words, WEFT_REMOTE_WRITE, 0);
    assert_int_equal(add_now(*state, &r, 8, 8, &old), WEFT_EACCESS);
    wf_mem_region_close(*state, &r);
    for (unsigned flag = WF_REGION_UNBACKED; flag <= WF_REGION_KEPT; flag <<= 1) {
        if (flag == WF_REGION_OF_EP)
            continue;
        private_open(*state, &r, words, sizeof words, RW, flag);
        assert_int_equal(add_now(*state, &r, 8, 8, &old), WEFT_PENDING);
        assert_int_equal(add_now(*state, &r, 32, 8, &old), WEFT_ERANGE);
        wf_mem_region_close(*state, &r);
    }
    assert_true(words[1] == 10 && !words[0] && !words[2] && !words[3]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, mem_setup, mem_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_isolation),
        T(test_space_not_reused),
        T(test_slab_goes_with_last_region),
        T(test_generation),
        T(test_limit),
        T(test_pages_go),
        T(test_seals),
        T(test_map_checks),
        T(test_map_huge),
        T(test_too_large),
        T(test_atomic_now),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
