/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_CACHE_VERIFY: changes of memory that the kernel tells nobody of (docs/design/cache.md) stop
 * the process, with a message; and nothing stops where nothing is wrong. By the public interface.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/cache.h>

#include "cache/device.h"
#include "unit/unit.h"

#define SIZE ((size_t)16384)

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

static bool nothing(unsigned char *p)
{
    (void)p;
    return true;
}

/* With its event: registered anew, and right. In one call: between two of them the place would be
 * anybody's. */
static bool map_over(unsigned char *p)
{
    return mmap(p, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
           p;
}

static bool shm_over(unsigned char *p)
{
    int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
    bool ok = shmat(id, p, SHM_REMAP) == p;
    shmctl(id, IPC_RMID, NULL);
    return ok;
}

static bool guard(unsigned char *p)
{
    return !madvise(p + 4096, 4096, MADV_GUARD_INSTALL);
}

/* In a child: 0 nothing noticed, 77 not possible here; or it is stopped. */
static int verified(bool (*change)(unsigned char *p), bool ordinary)
{
    struct device *d;
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    struct weft_cache *c;
    struct weft_cache_user *u;
    struct weft_cache_use use;
    unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ordinary && (setgroups(0, NULL) || setgid(64999) || setuid(64999)))
        return 77;
    prctl(PR_SET_DUMPABLE, 1);
    if (!(d = device_open(16)) || strcmp(weft_monitor_name(NULL), "userfaultfd"))
        return 77;
    params.registrar.owner = d;
    params.registrar.reg = device_reg_ops(d).reg;
    params.registrar.dereg = device_reg_ops(d).dereg;
    params.flags = WEFT_CACHE_VERIFY;
    OK(weft_cache_open(&params, &c));
    OK(weft_cache_user_open(c, &u));
    for (int i = 0; i < 3; i++) {
        OK(weft_cache_get(u, p, SIZE, &use));
        weft_cache_put(u, &use);
    }
    if (!change(p))
        return 77;
    if (change != guard)
        memset(p, 1, SIZE);
    OK(weft_cache_get(u, p, SIZE, &use));
    weft_cache_put(u, &use);
    OK(weft_cache_user_close(u));
    OK(weft_cache_close(c));
    device_close(d);
    return 0;
}

static void run(const char *what, bool (*change)(unsigned char *p), bool ordinary, bool is_stale)
{
    char text[4096];
    ssize_t n;
    int fd[2], status;
    pid_t child;
    assert_int_equal(pipe(fd), 0);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(fd[1], 2);
        close(fd[0]);
        close(fd[1]);
        _exit(verified(change, ordinary));
    }
    close(fd[1]);
    n = read(fd[0], text, sizeof text - 1);
    close(fd[0]);
    text[n > 0 ? n : 0] = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("%s: not possible here\n", what);
        return;
    }
    print_message("%s%s: %s", what, ordinary ? ", ordinary user" : "", *text ? text : "well\n");
    assert_int_equal(!!strstr(text, "is stale: the page at "), is_stale);
    assert_int_equal(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, is_stale);
    assert_true(is_stale || status == 0);
}

static void test_verify(void **state)
{
    (void)state;
    for (int ordinary = 0; ordinary < 2; ordinary++) {
        run("nothing", nothing, ordinary, false);
        run("mmap over it", map_over, ordinary, false);
        run("shmat SHM_REMAP", shm_over, ordinary, true);
        run("MADV_GUARD_INSTALL", guard, ordinary, true);
    }
}

/* ---- told by the program ---- */

/* What is shared from then on is not taken for what it was, although nothing was logged. */
static void test_told(void **state)
{
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    struct device *d = device_open(16);
    unsigned char *p =
        mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct weft_cache_counts counts;
    struct weft_cache_user *u;
    struct weft_cache_use use;
    struct weft_cache *c;
    (void)state;
    if (!d || strcmp(weft_monitor_name(NULL), "userfaultfd"))
        skip();
    params.registrar.owner = d;
    params.registrar.reg = device_reg_ops(d).reg;
    params.registrar.dereg = device_reg_ops(d).dereg;
    OK(weft_cache_open(&params, &c));
    OK(weft_cache_user_open(c, &u));
    for (int i = 0; i < 3; i++) { /* known as one mapping, watched as a whole */
        OK(weft_cache_get(u, p + (size_t)i * 8192, 1, &use));
        weft_cache_put(u, &use);
    }
    weft_mem_invalidate(p + 3 * SIZE, SIZE);
    assert_true(shm_over(p + 3 * SIZE));
    for (int i = 0; i < 2; i++) {
        OK(weft_cache_get(u, p + 3 * SIZE, SIZE, &use));
        weft_cache_put(u, &use);
    }
    weft_cache_count(c, &counts);
    assert_int_equal(counts.misses, 5);
    assert_int_equal(counts.alone, 2);
    assert_int_equal(counts.count, 3);
    OK(weft_cache_user_close(u));
    OK(weft_cache_close(c));
    device_close(d);
    munmap(p, 4 * SIZE);
}

/* ---- the doors ---- */

static enum weft_status reg(void *owner, void *addr, size_t len, void **handle)
{
    (void)owner;
    (void)len;
    *handle = addr;
    return WEFT_OK;
}

static void dereg(void *owner, void *handle)
{
    (void)owner;
    (void)handle;
}

static void test_doors(void **state)
{
    struct weft_cache_params p = WEFT_CACHE_PARAMS_INIT;
    struct weft_cache_counts counts;
    struct weft_cache *c = NULL;
    struct weft_cache_user *u, *v;
    struct weft_cache_use use, more;
    static char memory[3 * 4096];
    (void)state;
    assert_int_equal(weft_cache_open(&p, &c), WEFT_EINVAL); /* no registrar */
    p.registrar.reg = reg;
    p.registrar.dereg = dereg;
    assert_int_equal(weft_cache_open(NULL, &c), WEFT_EINVAL);
    assert_int_equal(weft_cache_open(&p, NULL), WEFT_EINVAL);
    p.flags = 8;
    assert_int_equal(weft_cache_open(&p, &c), WEFT_EINVAL);
    p.flags = 0;
    p.monitor = WEFT_MONITOR_NONE + 1;
    assert_int_equal(weft_cache_open(&p, &c), WEFT_EINVAL);
    p.monitor = WEFT_MONITOR_IMPORT;
    p.reserved[3] = 1;
    assert_int_equal(weft_cache_open(&p, &c), WEFT_EINVAL);
    p.reserved[3] = 0;
    p.version = (WEFT_VERSION_MAJOR + 1) << 16;
    assert_int_equal(weft_cache_open(&p, &c), WEFT_EVERSION);
    p.version = (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR;
    OK(weft_cache_open(&p, &c));
    assert_int_equal(weft_cache_user_open(NULL, &u), WEFT_EINVAL);
    OK(weft_cache_user_open(c, &u));
    OK(weft_cache_user_open(c, &v));
    assert_int_equal(weft_cache_close(c), WEFT_EBUSY);
    OK(weft_cache_get(u, memory, sizeof memory, &use));
    OK(weft_cache_get(v, memory + 100, 10, &more));
    assert_ptr_equal(use.handle, more.handle);
    assert_int_equal(weft_cache_get(v, memory, 0, &more), WEFT_EINVAL);
    assert_int_equal(weft_cache_user_close(u), WEFT_EBUSY);
    weft_cache_put(u, &use);
    OK(weft_cache_user_close(u));
    weft_cache_count(c, &counts);
    assert_int_equal(counts.hits, 1);
    assert_int_equal(counts.misses, 1);
    assert_int_equal(counts.count, 1);
    weft_mem_invalidate(memory, 0);
    weft_cache_count(c, &counts);
    assert_int_equal(counts.count, 1);
    weft_mem_invalidate(memory + 5000, 1);
    weft_cache_count(c, &counts);
    assert_int_equal(counts.count, 0);
    assert_int_equal(counts.leaving, 1);
    weft_cache_put(v, &more);
    OK(weft_cache_get(v, memory, 1, &more));
    weft_cache_put(v, &more);
    assert_int_equal(weft_cache_shrink(c, 1), 4096);
    OK(weft_cache_user_close(v));
    OK(weft_cache_close(c));
    assert_int_equal(weft_cache_close(NULL), WEFT_EINVAL);
    assert_int_equal(weft_cache_user_close(NULL), WEFT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verify), cmocka_unit_test(test_told),
                                       cmocka_unit_test(test_doors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
