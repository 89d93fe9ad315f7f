/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of gasnet_tools.h. Probes that end the process, or depend on variables read once,
 * run in processes of their own: this program with --probe. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <gasnet_tools.h>

#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bindings/gasnet/tools.h"

#if GASNETT_PAGESIZE != 4096 || GASNETT_MAX_THREADS < 1 || SIZEOF_INT != 4 ||                      \
    1 << GASNETT_PAGESHIFT != GASNETT_PAGESIZE
#error "constants of gasnet_tools.h are usable in #if"
#endif
#if PLATFORM_OS_CYGWIN || PLATFORM_OS_SOLARIS || PLATFORM_ARCH_32 == PLATFORM_ARCH_64 ||           \
    HAVE_SRAND_DETERMINISTIC || GASNETT_CONFIGURE_MISMATCH || !HAVE_MMAP
#error "another platform than this one"
#endif

GASNETT_IDENT(tools_test_ident, "$ToolsTest: weft $");
static const char *self;

/* ---- probes ---- */

enum { THREADS = 4, ROUNDS = 20000 };

GASNETT_NEVER_INLINE(named_frame, static void named_frame(void))
{
    gasnett_fatalerror("the number is %d", 17);
}

static void heap_overrun(void)
{
    char *p = gasnett_debug_malloc(13);
    p[13] = 'x';
    gasnett_debug_free(p);
}

static void heap_underrun(void)
{
    char *p = gasnett_debug_malloc(13);
    p[-1] ^= 1;
    gasnett_debug_memcheck_all();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

static void heap_twice(void)
{
    char *p = gasnett_debug_malloc(100);
    gasnett_debug_free(p);
    gasnett_debug_free(p);
}

static void lock_twice(void)
{
    gasnett_mutex_t m = GASNETT_MUTEX_INITIALIZER;
    gasnett_mutex_lock(&m);
    gasnett_mutex_lock(&m);
}

static void unlock_free(void)
{
    gasnett_mutex_t m = GASNETT_MUTEX_INITIALIZER;
    gasnett_mutex_unlock(&m);
}

static void fatal_with_rank(void)
{
    gasnetw_tools_rank_ = 5;
    named_frame();
}

static void vars(void)
{
    printf("yes %d %d\n", gasnett_getenv_yesno_withdefault("T_YES", 0),
           gasnett_getenv_yesno_withdefault("T_UNSET", 1));
    printf("int %" PRId64 " %" PRId64 "\n", gasnett_getenv_int_withdefault("T_INT", 7, 0),
           gasnett_getenv_int_withdefault("T_SIZE", 1 << 20, 1024));
    printf("dbl %g\n", gasnett_getenv_dbl_withdefault("T_DBL", 2.5));
    printf("str %s\n", gasnett_getenv_withdefault("T_STR", "none"));
    (void)gasnett_getenv_withdefault("T_STR", "none");
    printf("verbose %d\n", gasnett_verboseenv());
    fflush(stdout);
}

static void vars_of_rank_1(void)
{
    vars();
    gasnetw_tools_rank_ = 1;
    gasnetw_tools_started();
}

static void parse(void)
{
    printf("%" PRId64 "\n", gasnett_parse_int(getenv("T_TEXT"), 1024));
    fflush(stdout);
}

static void parse_plain(void)
{
    printf("%" PRId64 "\n", gasnett_parse_int(getenv("T_TEXT"), 0));
    fflush(stdout);
}

static void say_stats(void (*print)(const char *format, ...))
{
    print("told %d", 99);
}

static void trace(void)
{
    GASNETT_TRACE_PRINTF("early %d", 1); /* before the rank is known */
    gasnetw_tools_rank_ = 3;
    GASNETT_TRACE_SETSOURCELINE("some.c", 12);
    GASNETT_TRACE_PRINTF("text %s", "one");
    GASNETT_TRACE_FREEZESOURCELINE();
    GASNETT_TRACE_SETSOURCELINE("other.c", 13);
    GASNETT_TRACE_UNFREEZESOURCELINE();
    printf("enabled %d mask %s\n", GASNETT_TRACE_ENABLED, GASNETT_TRACE_GETMASK());
    GASNETT_TRACE_SETMASK("");
    printf("then %d\n", GASNETT_TRACE_ENABLED);
    fflush(stdout);
    GASNETT_TRACE_PRINTF("masked");
    GASNETT_TRACE_PRINTF_FORCE("forced\n");
    (void)GASNETT_STATS_INIT(say_stats);
}

static int my_backtrace(int fd)
{
    static const char text[] = "my own backtrace\n";
    return write(fd, text, sizeof text - 1) < 0;
}
gasnett_backtrace_type_t gasnett_backtrace_user = {"MINE", my_backtrace, 1};

static void kill_self(void)
{
    gasnett_killmyprocess(42);
}

static const struct {
    const char *name;
    void (*fn)(void);
} probes[] = {
    {"heap_overrun", heap_overrun},
    {"heap_underrun", heap_underrun},
    {"heap_twice", heap_twice},
    {"lock_twice", lock_twice},
    {"unlock_free", unlock_free},
    {"fatal", named_frame},
    {"fatal_with_rank", fatal_with_rank},
    {"vars", vars},
    {"vars_of_rank_1", vars_of_rank_1},
    {"parse", parse},
    {"parse_plain", parse_plain},
    {"trace", trace},
    {"kill", kill_self},
};

static int probe(const char *name)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    alarm(60); /* one that hangs fails its test */
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
        if (!strcmp(probes[i].name, name))
            probes[i].fn();
    return 0;
}

static int last_status;

/* Returns the output of a probe with [env], e.g. "T_INT=7". */
static const char *output_of(const char *env, const char *name)
{
    static char text[65536];
    char command[4096];
    size_t n;
    FILE *f;
    snprintf(command, sizeof command, "exec env %s %s --probe %s 2>&1", env, self, name);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    last_status = pclose(f);
    return text;
}

static void prints(const char *env, const char *name, const char *want)
{
    const char *text = output_of(env, name);
    if (!strstr(text, want))
        fail_msg("%s with %s: no \"%s\" in:\n%s", name, env, want, text);
}

static void says_not(const char *env, const char *name, const char *unwanted)
{
    const char *text = output_of(env, name);
    if (strstr(text, unwanted))
        fail_msg("%s with %s: \"%s\" in:\n%s", name, env, unwanted, text);
}

static void aborts(const char *env, const char *name, const char *want)
{
    prints(env, name, want);
    assert_true(WIFSIGNALED(last_status) && WTERMSIG(last_status) == SIGABRT);
}

static void in_threads(void *(*fn)(void *arg), void *arg)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fn, arg), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- atomics ---- */

static gasnett_atomic_t a = gasnett_atomic_init(5);
static gasnett_atomic64_t a64 = gasnett_atomic64_init(UINT64_C(0x1ffffffff));
static gasnett_strongatomic_t strong = gasnett_strongatomic_init(0);

/* Fails when: an operation returns the old value for the new one, or wraps differently. */
static void test_atomic_values(void **state)
{
    double real = 1.0;
    (void)state;
    assert_int_equal(gasnett_atomic_read(&a, 0), 5);
    assert_int_equal(gasnett_atomic_add(&a, 3, 0), 8);
    assert_int_equal(gasnett_atomic_subtract(&a, 10, GASNETT_ATOMIC_MB_PRE),
                     GASNETT_ATOMIC_MAX - 1);
    assert_int_equal(gasnett_atomic_signed(gasnett_atomic_read(&a, GASNETT_ATOMIC_ACQ)), -2);
    gasnett_atomic_increment(&a, GASNETT_ATOMIC_REL);
    gasnett_atomic_increment(&a, 0);
    assert_int_equal(gasnett_atomic_read(&a, 0), 0);
    gasnett_atomic_decrement(&a, 0);
    assert_int_equal(gasnett_atomic_read(&a, 0), GASNETT_ATOMIC_MAX);
    gasnett_atomic_set(&a, 2, GASNETT_ATOMIC_REL);
    assert_false(gasnett_atomic_decrement_and_test(&a, GASNETT_ATOMIC_ACQ_IF_TRUE));
    assert_true(gasnett_atomic_decrement_and_test(&a, GASNETT_ATOMIC_ACQ_IF_TRUE));
    assert_false(gasnett_atomic_compare_and_swap(&a, 1, 7, GASNETT_ATOMIC_ACQ_IF_FALSE));
    assert_int_equal(gasnett_atomic_read(&a, 0), 0);
    assert_true(gasnett_atomic_compare_and_swap(&a, 0, 7, 0));
    assert_int_equal(gasnett_atomic_swap(&a, 9, 0), 7);
    assert_int_equal(gasnett_atomic_read(&a, 0), 9);
    assert_int_equal(GASNETT_ATOMIC_SIGNED_MIN, INT32_MIN);
    assert_int_equal(GASNETT_ATOMIC_SIGNED_MAX, INT32_MAX);

    assert_int_equal(gasnett_atomic64_add(&a64, 1, 0), UINT64_C(0x200000000));
    assert_int_equal(gasnett_atomic64_swap(&a64, 1, 0), UINT64_C(0x200000000));
    assert_true(gasnett_atomic64_decrement_and_test(&a64, GASNETT_ATOMIC_MB_POST));
    assert_int_equal(sizeof(gasnett_atomic64_t), 8);
    /* An object of the size may be worked on as one. */
    assert_true(gasnett_atomic64_read((gasnett_atomic64_t *)&real, 0) ==
                UINT64_C(0x3ff0000000000000));
}

static gasnett_atomic64_t box; /* gives back what was put in */
static gasnett_atomic64_t balance;

static void *hammer(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        uint32_t was;
        gasnett_atomic_increment(&a, 0);
        do
            was = gasnett_strongatomic_read(&strong, 0);
        while (!gasnett_strongatomic_compare_and_swap(&strong, was, was + 2, 0));
        gasnett_atomic64_add(&balance, i, 0);
        gasnett_atomic64_subtract(&balance, gasnett_atomic64_swap(&box, i, 0), 0);
    }
    return NULL;
}

/* Fails when: an operation is not atomic. */
static void test_atomic_threads(void **state)
{
    (void)state;
    gasnett_atomic_set(&a, 0, 0);
    in_threads(hammer, NULL);
    assert_int_equal(gasnett_atomic_read(&a, 0), THREADS * ROUNDS);
    assert_int_equal(gasnett_strongatomic_read(&strong, 0), 2 * THREADS * ROUNDS);
    assert_int_equal(gasnett_atomic64_read(&balance, 0), gasnett_atomic64_read(&box, 0));
}

static int said_x, said_y, saw_x, saw_y; /* relaxed atomics */
static pthread_barrier_t gate;

static void *store_and_look(void *arg)
{
    bool is_x = arg != NULL;
    for (int i = 0; i < ROUNDS / 10; i++) {
        pthread_barrier_wait(&gate);
        __atomic_store_n(is_x ? &said_x : &said_y, 1, __ATOMIC_RELAXED);
        if (i & 1)
            gasnett_local_wmb();
        else
            gasnett_weak_mb();
        __atomic_store_n(is_x ? &saw_y : &saw_x,
                         __atomic_load_n(is_x ? &said_y : &said_x, __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
        gasnett_local_rmb();
        gasnett_weak_rmb();
        gasnett_weak_wmb();
        gasnett_local_mb();
        gasnett_compiler_fence();
        pthread_barrier_wait(&gate);
        if (is_x) {
            assert_true(saw_x || saw_y);
            said_x = said_y = saw_x = saw_y = 0;
        }
    }
    return NULL;
}

/* Fails when: a load passes a store before a full barrier (or a write barrier, which is one). */
static void test_fences(void **state)
{
    pthread_t other;
    (void)state;
    pthread_barrier_init(&gate, NULL, 2);
    assert_int_equal(pthread_create(&other, NULL, store_and_look, NULL), 0);
    store_and_look(&gate);
    pthread_join(other, NULL);
    pthread_barrier_destroy(&gate);
}

/* ---- time ---- */

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Fails when: ticks go back, or differ from CLOCK_MONOTONIC by more than 2%. */
static void test_ticks(void **state)
{
    gasnett_tick_t last = gasnett_ticks_now();
    (void)state;
    assert_true(gasnett_ticks_to_ns(0) == 0); /* learns the rate */
    for (int i = 0; i < 100000; i++) {
        gasnett_tick_t now = gasnett_ticks_now();
        assert_true(now >= last);
        last = now;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t outer = monotonic_ns(), inner, ns, us;
        gasnett_tick_t began = gasnett_ticks_now();
        inner = monotonic_ns();
        assert_int_equal(gasnett_nsleep(20000000), 0);
        inner = monotonic_ns() - inner;
        began = gasnett_ticks_now() - began;
        outer = monotonic_ns() - outer;
        ns = gasnett_ticks_to_ns(began);
        us = gasnett_ticks_to_us(began);
        assert_true(inner >= 20000000);
        assert_in_range(ns, inner - inner / 50, outer + outer / 50);
        assert_int_equal(us, ns / 1000);
    }
    assert_true(gasnett_tick_granularityus() > 0 && gasnett_tick_granularityus() < 100);
    assert_true(gasnett_tick_overheadus() > 0 && gasnett_tick_overheadus() < 100);
    assert_true(GASNETT_TICK_MIN < last && last < GASNETT_TICK_MAX);
}

/* Fails when: the result is not the time of day. */
static void test_time_of_day(void **state)
{
    uint64_t us = gasnett_gettimeofday_us();
    (void)state;
    assert_in_range(us / 1000000, (uint64_t)time(NULL) - 1, (uint64_t)time(NULL) + 1);
    assert_true(gasnetw_tick_granularity(1) >= 1);
}

/* ---- locks ---- */

static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
static gasnett_cond_t cond = GASNETT_COND_INITIALIZER;
static gasnett_rwlock_t rwlock = GASNETT_RWLOCK_INITIALIZER;
static int plain, arrived, pair[2];

static void *count_plain(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        gasnett_mutex_lock(&mutex);
        plain++;
        gasnett_mutex_unlock(&mutex);
    }
    gasnett_mutex_lock(&mutex);
    if (++arrived == THREADS)
        gasnett_cond_broadcast(&cond);
    while (arrived < THREADS)
        gasnett_cond_wait(&cond, &mutex);
    gasnett_mutex_assertlocked(&mutex);
    gasnett_mutex_unlock(&mutex);
    return NULL;
}

static void *try_mutex(void *arg)
{
    *(int *)arg = gasnett_mutex_trylock(&mutex);
    return NULL;
}

/* Fails when: the mutex does not exclude, a waiter is not woken, or misuse is not reported. */
static void test_mutex(void **state)
{
    int tried = 0;
    (void)state;
    in_threads(count_plain, NULL);
    assert_int_equal(plain, THREADS * ROUNDS);
    gasnett_mutex_assertunlocked(&mutex);
    assert_int_equal(gasnett_mutex_trylock(&mutex), 0);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, try_mutex, &tried), 0);
    pthread_join(other, NULL);
    assert_int_equal(tried, EBUSY);
    gasnett_mutex_unlock(&mutex);
    aborts("-u X", "lock_twice", "not recursive");
    aborts("-u X", "unlock_free", "gasnett_mutex_unlock: this thread does not hold it");
}

static void *read_pair(void *arg)
{
    int *wrong = arg;
    for (int i = 0; i < ROUNDS / 10; i++) {
        if (i % 8 == 0) {
            gasnett_rwlock_wrlock(&rwlock);
            gasnett_rwlock_assertwrlocked(&rwlock);
            pair[0]++;
            gasnett_sched_yield();
            pair[1]++;
        } else {
            gasnett_rwlock_rdlock(&rwlock);
            if (pair[0] != pair[1])
                __atomic_add_fetch(wrong, 1, __ATOMIC_RELAXED);
        }
        gasnett_rwlock_unlock(&rwlock);
    }
    return NULL;
}

static void *try_rwlock(void *arg)
{
    int *tried = arg;
    tried[0] = gasnett_rwlock_tryrdlock(&rwlock);
    if (!tried[0])
        gasnett_rwlock_unlock(&rwlock);
    tried[1] = gasnett_rwlock_trywrlock(&rwlock);
    return NULL;
}

/* Fails when: a reader sees a writer's half work, readers exclude each other, or a writer does not.
 */
static void test_rwlock(void **state)
{
    int wrong = 0, tried[2];
    pthread_t other;
    (void)state;
    in_threads(read_pair, &wrong);
    assert_int_equal(wrong, 0);
    assert_int_equal(pair[0], THREADS * ROUNDS / 80);
    gasnett_rwlock_rdlock(&rwlock);
    gasnett_rwlock_assertrdlocked(&rwlock);
    assert_int_equal(pthread_create(&other, NULL, try_rwlock, tried), 0);
    pthread_join(other, NULL);
    gasnett_rwlock_unlock(&rwlock);
    assert_int_equal(tried[0], 0);
    assert_int_equal(tried[1], EBUSY);
    gasnett_rwlock_wrlock(&rwlock);
    assert_int_equal(pthread_create(&other, NULL, try_rwlock, tried), 0);
    pthread_join(other, NULL);
    gasnett_rwlock_unlock(&rwlock);
    assert_int_equal(tried[0], EBUSY);
}

GASNETT_THREADKEY_DECLARE(test_key);
GASNETT_THREADKEY_DEFINE(test_key);

static void *use_key(void *arg)
{
    char here;
    if (gasnett_threadkey_get(test_key))
        return NULL;
    gasnett_threadkey_init(test_key);
    gasnett_threadkey_set_noinit(test_key, &here);
    gasnett_sched_yield();
    if (gasnett_threadkey_get_noinit(test_key) == &here)
        __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Fails when: threads share a key's value, or it is not null at first. */
static void test_threadkey(void **state)
{
    int right = 0;
    (void)state;
    gasnett_threadkey_set(test_key, &right);
    in_threads(use_key, &right);
    assert_int_equal(right, THREADS);
    assert_ptr_equal(gasnett_threadkey_get(test_key), &right);
}

/* ---- numbers and variables ---- */

/* Fails when: a suffix, base or default unit is misread, or text that is no number is taken. */
static void test_parse(void **state)
{
    static const struct {
        const char *text;
        uint64_t unit;
        int64_t val;
    } good[] = {
        {"17", 0, 17},
        {"-17", 0, -17},
        {" 42 ", 0, 42},
        {"0x1f", 0, 31},
        {"0XFFFFFFFFFFFFFFFF", 0, -1},
        {"9223372036854775807", 0, INT64_MAX},
        {"-9223372036854775808", 0, INT64_MIN},
        {"8", 1024, 8192},
        {"8", 1, 8},
        {"8B", 1024, 8},
        {"8k", 1, 8192},
        {"8 KB", 1 << 20, 8192},
        {"3MiB", 1, 3 << 20},
        {"2g", 1, INT64_C(2) << 30},
        {"1T", 1, INT64_C(1) << 40},
        {"1.5M", 1, 3 << 19},
        {".5k", 1, 512},
        {"-1k", 1, -1024},
        {"0x10K", 1, 16384},
    };
    static const char *const bad[] = {"",   "k",   "x",  "8kk", "8 8",   "1.5.2M",       "0x",
                                      ".",  "--8", "8x", "1e3", "8KiBs", "99999999999T", "9e99T",
                                      "1,5"};
    char env[64];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (gasnett_parse_int(good[i].text, good[i].unit) != good[i].val)
            fail_msg("\"%s\" (%d) is %lld", good[i].text, (int)good[i].unit,
                     (long long)gasnett_parse_int(good[i].text, good[i].unit));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(env, sizeof env, "T_TEXT='%s'", bad[i]);
        aborts(env, "parse", "*** FATAL ERROR: gasnett_parse_int: \"");
    }
    aborts("T_TEXT=8K", "parse_plain", "\"8K\" has a unit, but is no size");
    aborts("T_TEXT=1.5", "parse_plain", "\"1.5\" must be a whole number");
    aborts("T_TEXT=9223372036854775808", "parse_plain", "does not fit into 64 bits");
}

static void format_is(int64_t val, int is_size, const char *want)
{
    char buf[64];
    assert_ptr_equal(gasnett_format_number(val, buf, sizeof buf, is_size), buf);
    assert_string_equal(buf, want);
}

/* Fails when: a unit is too large (digits are lost) or missing. */
static void test_format(void **state)
{
    (void)state;
    format_is(0, 1, "0 B");
    format_is(1023, 1, "1023 B");
    format_is(1024, 1, "1 KB");
    format_is(1025, 1, "1025 B");
    format_is(5000, 1, "5000 B");
    format_is(10239, 1, "10239 B");
    format_is(10241, 1, "10 KB");
    format_is(-(5 << 20), 1, "-5 MB");
    format_is(INT64_C(3) << 40, 1, "3 TB");
    format_is(1048576, 0, "1048576");
    format_is(-12, 0, "-12");
    format_is(INT64_C(1) << 50, 0, "0x4000000000000");
}

/* Fails when: a default wins over a variable, a text is misread, or an invalid one accepted. */
static void test_env(void **state)
{
    static const char *const yes[] = {"1", "y", "Y", "yes", "YES"};
    static const char *const no[] = {"0", "n", "N", "no", "NO"};
    (void)state;
    for (int i = 0; i < 5; i++) {
        gasnett_setenv("T_YN", yes[i]);
        assert_string_equal(gasnett_getenv("T_YN"), yes[i]);
        assert_int_equal(gasnett_getenv_yesno_withdefault("T_YN", 0), 1);
        gasnett_setenv("T_YN", no[i]);
        assert_int_equal(gasnett_getenv_yesno_withdefault("T_YN", 1), 0);
    }
    gasnett_unsetenv("T_YN");
    assert_null(gasnett_getenv("T_YN"));
    assert_int_equal(gasnett_getenv_yesno_withdefault("T_YN", 1), 1);
    prints("T_YES=y", "vars", "yes 1 1\n");
    prints("-u X", "vars", "yes 0 1\nint 7 1048576\ndbl 2.5\nstr none\nverbose 0\n");
    prints("T_INT=-0x10 T_SIZE=64", "vars", "int -16 65536\n");
    prints("T_DBL=3/8", "vars", "dbl 0.375\n");
    prints("T_DBL=-1e4", "vars", "dbl -10000\n");
    aborts("T_YES=maybe", "vars", "T_YES=maybe: must be Y, YES or 1, or N, NO or 0");
    aborts("T_INT=4x", "vars", "T_INT=4x: has something behind the number");
    aborts("T_DBL=1/0", "vars", "T_DBL=1/0: must be a number");
}

/* Fails when: a variable is not printed, printed twice, or printed by another rank than 0. */
static void test_verbose_env(void **state)
{
    const char *text, *at;
    (void)state;
    text = output_of("GASNET_VERBOSEENV=1 T_STR=x T_SIZE=2M", "vars");
    assert_non_null(strstr(text, "verbose 1\n"));
    assert_non_null(strstr(text, "ENV parameter: T_INT = 7 (default)\n"));
    assert_non_null(strstr(text, "ENV parameter: T_SIZE = 2 MB\n"));
    at = strstr(text, "ENV parameter: T_STR = x\n");
    assert_non_null(at);
    assert_null(strstr(at + 1, "ENV parameter: T_STR"));
    says_not("GASNET_VERBOSEENV=1", "vars_of_rank_1", "ENV parameter");
    says_not("-u X", "vars", "ENV parameter");
}

/* ---- bytes ---- */

/* Fails when: a count differs from a loop's, at any length and offset. */
static void test_count0s(void **state)
{
    unsigned char from[80], to[80];
    (void)state;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        size_t off = (size_t)rand() % 9, len = (size_t)rand() % (sizeof from - 9), zeros = 0;
        uint64_t word;
        uint32_t half;
        for (size_t k = 0; k < sizeof from; k++)
            from[k] = rand() % 3 ? 0 : (unsigned char)(rand() % 2 ? 0x80 : rand());
        for (size_t k = 0; k < len; k++)
            zeros += from[off + k] == 0;
        assert_int_equal(gasnett_count0s(from + off, len), zeros);
        memset(to, 0xee, sizeof to);
        assert_int_equal(gasnett_count0s_copy(to, from + off, len), zeros);
        assert_memory_equal(to, from + off, len);
        assert_int_equal(to[len], 0xee);
        memcpy(&word, from, 8);
        memcpy(&half, from, 4);
        assert_int_equal(gasnett_count0s_uint64_t(word), gasnett_count0s(from, 8));
        assert_int_equal(gasnett_count0s_uint32_t(half), gasnett_count0s(from, 4));
        assert_int_equal(gasnett_count0s_uintptr_t((uintptr_t)word), gasnett_count0s(from, 8));
    }
}

/* Fails when: a changed bit, or a further byte, does not change the sum. */
static void test_checksum(void **state)
{
    unsigned char data[41];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t len = 1; len < sizeof data; len++) {
        uint64_t sum = gasnett_checksum(data, len);
        for (size_t bit = 0; bit < 8 * len; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_true(gasnett_checksum(data, len) != sum);
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        assert_true(gasnett_checksum(data, len) == sum);
        assert_true(gasnett_checksum(data, len + 1) != sum);
    }
}

/* Fails when: a total or bound is wrong, or the text is longer than promised. */
static void test_lists(void **state)
{
    struct {
        void *addr;
        size_t len;
    } v[] = {{(void *)0x2000, 16}, {(void *)0x1000, 4}, {(void *)0x1800, 100}};
    void *addrs[] = {(void *)0x5000, (void *)0x4000};
    const size_t dst[] = {100, 5000}, src[] = {50, 1000}, count[] = {8, 3, 2};
    char buf[2048];
    gasnett_memveclist_stats_t ms;
    gasnett_addrlist_stats_t as;
    (void)state;
    assert_true(gasnett_format_memveclist_bufsz(3) <= sizeof buf);
    ms = gasnett_format_memveclist(buf, 3, v);
    assert_true(ms.minsz == 4 && ms.maxsz == 100 && ms.totalsz == 120);
    assert_ptr_equal(ms.minaddr, (void *)0x1000);
    assert_ptr_equal(ms.maxaddr, (void *)0x200f);
    assert_non_null(strstr(buf, "3 entries, totalsz=120, minsz=4, maxsz=100"));
    assert_true(strlen(buf) < gasnett_format_memveclist_bufsz(3));
    as = gasnett_format_addrlist(buf, 2, addrs, 0x10);
    assert_ptr_equal(as.minaddr, (void *)0x4000);
    assert_ptr_equal(as.maxaddr, (void *)0x500f);
    assert_non_null(strstr(buf, "list=[0x5000, 0x4000]"));
    assert_true(gasnett_format_putsgets_bufsz(2) <= sizeof buf);
    assert_int_equal(
        gasnett_format_putsgets(buf, NULL, 7, (void *)0x10, dst, (void *)0x20, src, count, 2), 48);
    assert_non_null(strstr(buf, "(48 data bytes) node=7 stridelevels=2 count=[8, 3, 2]"));
    assert_non_null(strstr(buf, "dstaddr=0x10 extent=5208 dststrides=[100, 5000]"));
    assert_non_null(strstr(buf, "srcaddr=0x20 extent=1108 srcstrides=[50, 1000]"));
    (void)gasnett_format_memveclist(buf, 0, NULL);
    assert_non_null(strstr(buf, "0 entries"));
}

/* ---- heap ---- */

static void *use_heap(void *arg)
{
    (void)arg;
    for (int i = 0; i < 500; i++) {
        char *p = gasnett_debug_malloc((size_t)i);
        gasnett_debug_memcheck_one();
        p = gasnett_debug_realloc(p, (size_t)i + 3);
        gasnett_debug_free(p);
    }
    return NULL;
}

/* Fails when: contents are lost, writes around a block are not detected, or counts are wrong. */
static void test_heap(void **state)
{
    gasnett_heapstats_t before, after;
    char *p, *zeros;
    (void)state;
    assert_int_equal(gasnett_getheapstats(&before), 0);
    p = gasnett_debug_strdup("some text");
    p = gasnett_debug_realloc(p, 10000);
    assert_string_equal(p, "some text");
    zeros = gasnett_debug_calloc(100, 3);
    assert_int_equal(gasnett_count0s(zeros, 300), 300);
    assert_int_equal((uintptr_t)zeros % 16, 0);
    gasnett_debug_memcheck(p);
    gasnett_debug_memcheck_all();
    gasnett_getheapstats(&after);
    assert_int_equal(after.live_objects - before.live_objects, 2);
    assert_int_equal(after.live_bytes - before.live_bytes, 10300);
    assert_true(after.overhead_bytes > before.overhead_bytes);
    assert_true(after.live_bytes_max >= after.live_bytes);
    gasnett_debug_free(p);
    gasnett_debug_free(zeros);
    gasnett_debug_free(NULL);
    p = gasnett_debug_strndup("abcdef", 3);
    assert_string_equal(p, "abc");
    gasnett_debug_free(p);
    in_threads(use_heap, NULL);
    gasnett_getheapstats(&after);
    assert_int_equal(after.live_objects, before.live_objects);
    assert_int_equal(after.allocated_objects, after.freed_objects + after.live_objects);
    aborts("-u X", "heap_overrun", "written behind the end of a block: 13 bytes at");
    aborts("-u X", "heap_overrun", "tools_test.c:");
    aborts("-u X", "heap_underrun", "what is in front");
#ifndef SANITIZED /* which finds it first */
    aborts("-u X", "heap_twice", "is no live block");
#endif
}

/* ---- fatal errors ---- */

/* Fails when: the message lacks the failure, its place or the rank; or a backtrace is of another
 * type. */
static void test_fatal(void **state)
{
    (void)state;
    aborts("-u X", "fatal", "*** FATAL ERROR: in named_frame() at ");
    aborts("-u X", "fatal", ": the number is 17\n");
    aborts("-u X", "fatal_with_rank", "*** FATAL ERROR (rank 5): in named_frame()");
    prints("-u X", "fatal", "set GASNET_BACKTRACE=1");
    prints("GASNET_BACKTRACE=1", "fatal", "my own backtrace");
    prints("GASNET_BACKTRACE=1 GASNET_BACKTRACE_TYPE=NONE,mine", "fatal", "my own backtrace");
    prints("GASNET_BACKTRACE=1 GASNET_BACKTRACE_TYPE=EXECINFO", "fatal", "tools_test");
    says_not("GASNET_BACKTRACE=1 GASNET_BACKTRACE_TYPE=EXECINFO", "fatal", "my own backtrace");
    (void)output_of("-u X", "kill");
    assert_true(WIFEXITED(last_status) && WEXITSTATUS(last_status) == 42);
}

/* Fails when: GASNET_FREEZE_ON_ERROR does not keep the process. */
static void test_freeze(void **state)
{
    char command[4096], line[512] = "";
    int pid = 0;
    FILE *f;
    (void)state;
    snprintf(command, sizeof command, "exec env GASNET_FREEZE_ON_ERROR=1 %s --probe fatal 2>&1",
             self);
    f = popen(command, "r");
    assert_non_null(f);
    while (pid == 0 && fgets(line, sizeof line, f))
        (void)sscanf(line, "*** Process %d on ", &pid);
    assert_true(pid > 1);
    assert_non_null(strstr(line, "set gasnetw_tools_frozen = 0"));
    assert_int_equal(kill(pid, 0), 0);
    kill(pid, SIGKILL);
    last_status = pclose(f);
    assert_true(WIFSIGNALED(last_status) && WTERMSIG(last_status) == SIGKILL);
}

/* ---- trace ---- */

static char *contents(const char *name)
{
    static char text[8192];
    FILE *f = fopen(name, "r");
    size_t n;
    if (!f)
        fail_msg("%s: %s", name, strerror(errno));
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

/* Fails when: a line is missing, masked without effect, misplaced, or in another rank's file. */
static void test_trace(void **state)
{
    char dir[] = "/tmp/weft-tools-test-XXXXXX", env[512], name[128];
    const char *text;
    int rank, line;
    unsigned long thread;
    double when = -1;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(env, sizeof env, "GASNET_TRACEFILE=%s/t-%% GASNET_STATSFILE=%s/s-%%", dir, dir);
    text = output_of(env, "trace");
    assert_non_null(strstr(text, "enabled 1 mask GPRSWXBLAMICDNH\nthen 0\n"));
    snprintf(name, sizeof name, "%s/t-3", dir);
    text = contents(name);
    assert_true(!strncmp(text, "?(", 2)); /* printed before there was a rank */
    text = strstr(text, "early 1\n");
    assert_non_null(text);
    text += 8;
    assert_int_equal(
        sscanf(text, "%d(%lx) %lfs> [some.c:%d] (H) text one", &rank, &thread, &when, &line), 4);
    assert_true(rank == 3 && line == 12 && when >= 0 && when < 60);
    assert_null(strstr(text, "masked"));
    text = strstr(text, "(U) forced\n");
    assert_non_null(text);
    assert_string_equal(text, "(U) forced\n"); /* frozen: other.c is not there; the last line */
    remove(name);
    snprintf(name, sizeof name, "%s/s-3", dir);
    assert_non_null(strstr(contents(name), "(H) told 99\n"));
    remove(name);

    snprintf(env, sizeof env, "GASNET_TRACEFILE=%s/t-%% GASNET_TRACENODES=0-2,4", dir);
    (void)output_of(env, "trace");
    assert_int_equal(rmdir(dir), 0); /* nothing was written */

    prints("GASNET_TRACEFILE=stderr GASNET_TRACEMASK=HN", "trace", "enabled 1 mask NH\n");
    prints("GASNET_TRACEFILE=stderr GASNET_TRACEMASK=G", "trace", "enabled 0 mask G\n");
    says_not("GASNET_TRACEFILE=stderr GASNET_TRACEMASK=H", "trace", "some.c");
    prints("-u GASNET_TRACEFILE", "trace", "enabled 0 ");
    prints("GASNET_TRACEFILE=/no/such/file", "trace", "/no/such/file: No such file or directory");
}

/* Fails when: a thread's source line is another's, or freezing does not hold it. */
static void test_source_line(void **state)
{
    const char *file;
    unsigned line;
    (void)state;
    GASNETT_TRACE_SETSOURCELINE("a.upc", 7);
    GASNETT_TRACE_FREEZESOURCELINE();
    GASNETT_TRACE_SETSOURCELINE("b.upc", 8);
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    assert_string_equal(file, "a.upc");
    assert_int_equal(line, 7);
    GASNETT_TRACE_UNFREEZESOURCELINE();
    GASNETT_TRACE_SETSOURCELINE("b.upc", 8);
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    assert_int_equal(line, 8);
    GASNETT_TRACE_SET_TRACELOCAL(0);
    assert_int_equal(GASNETT_TRACE_GET_TRACELOCAL(), 0);
    GASNETT_TRACE_SET_TRACELOCAL(5);
    assert_int_equal(GASNETT_TRACE_GET_TRACELOCAL(), 1);
    GASNETT_STATS_SETMASK("HZG?");
    assert_string_equal(GASNETT_STATS_GETMASK(), "GH");
    GASNETT_STATS_SETMASK(GASNETT_STATS_GETMASK());
    assert_string_equal(GASNETT_STATS_GETMASK(), "GH");
}

/* ---- the machine ---- */

static volatile sig_atomic_t got_signal;

static void on_signal(int sig)
{
    got_signal = sig;
}

/* Fails when: the results differ from the system's. */
static void test_machine(void **state)
{
    char name[256] = "", *loc;
    unsigned char *page;
    struct rlimit limit;
    (void)state;
    gethostname(name, sizeof name - 1);
    assert_string_equal(gasnett_gethostname(), name);
    assert_int_equal(gasnett_cpu_count(), sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(gasnett_getPhysMemSz(1) > 1 << 20);
    assert_int_equal(gasnett_getPhysMemSz(0) % 4096, 0);
    assert_int_equal(gasnett_isLittleEndian(), *(const char *)&(int){1});
    page = gasnett_mmap(3 * GASNETT_PAGESIZE);
    assert_true(page != MAP_FAILED);
    assert_int_equal((uintptr_t)page % GASNETT_PAGESIZE, 0);
    assert_int_equal(gasnett_count0s(page, 3 * GASNETT_PAGESIZE), 3 * GASNETT_PAGESIZE);
    assert_int_equal(munmap(page, 3 * GASNETT_PAGESIZE), 0);
    assert_true(gasnett_maximize_rlimits());
    assert_int_equal(getrlimit(RLIMIT_STACK, &limit), 0);
    assert_true(limit.rlim_cur == limit.rlim_max);
    assert_true(gasnett_reghandler(SIGUSR1, on_signal) == SIG_DFL);
    raise(SIGUSR1);
    assert_int_equal(got_signal, SIGUSR1);
    assert_true(gasnett_reghandler(SIGUSR1, SIG_DFL) == on_signal);
    loc = gasnett_current_loc;
    assert_non_null(strstr(loc, " (test_machine)"));
    free(loc);
    gasnett_flush_streams();
    assert_string_equal(gasnett_release_version_str(), "1.32.0");
    assert_non_null(strstr(GASNETT_CONFIG_STRING, ",PAR,timers_native,"));
    assert_non_null(strstr(GASNETT_SYSTEM_TUPLE, "-linux-"));
    assert_true(strlen(tools_test_ident) > 0 && strlen(PLATFORM_COMPILER_VERSION_STR) > 0);
    assert_true(strlen(_STRINGIFY(PLATFORM_COMPILER_FAMILYNAME)) >= 3);
    if_pf(gasnett_performance_warning_str() == NULL) fail();
}

static void *bind_thread(void *arg)
{
    int n = (int)sysconf(_SC_NPROCESSORS_CONF), where = sched_getcpu();
    *(int *)arg = gasnett_set_affinity(where + n) == 0 && sched_getcpu() == where;
    return NULL;
}

/* Fails when: a thread is bound to another processor, or the count is not wrapped around. */
static void test_affinity(void **state)
{
    int ok = 0;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, bind_thread, &ok), 0);
    pthread_join(thread, NULL);
    assert_true(ok);
}

/* Fails when: the tools find errors in their own memory or a segment, or change it. */
static void test_diagnostics(void **state)
{
    static unsigned char segment[4096];
    struct {
        void *addr;
        uintptr_t size;
    } table[2] = {{NULL, 0}, {segment, sizeof segment}};
    (void)state;
    memset(segment, 0x5a, sizeof segment);
    gasnetw_tools_rank_ = 1;
    assert_int_equal(gasnett_run_diagnostics(50, THREADS, NULL, table), 0);
    assert_int_equal(gasnett_run_diagnostics(10, 1, "EZ", NULL), 0);
    gasnetw_tools_rank_ = -1;
    for (size_t i = 0; i < sizeof segment; i++)
        assert_int_equal(segment[i], 0x5a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_atomic_values), cmocka_unit_test(test_atomic_threads),
        cmocka_unit_test(test_fences),        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_time_of_day),   cmocka_unit_test(test_mutex),
        cmocka_unit_test(test_rwlock),        cmocka_unit_test(test_threadkey),
        cmocka_unit_test(test_parse),         cmocka_unit_test(test_format),
        cmocka_unit_test(test_env),           cmocka_unit_test(test_verbose_env),
        cmocka_unit_test(test_count0s),       cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_lists),         cmocka_unit_test(test_heap),
        cmocka_unit_test(test_fatal),         cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_trace),         cmocka_unit_test(test_source_line),
        cmocka_unit_test(test_machine),       cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_diagnostics)};
    self = argv[0];
    if (argc > 2 && !strcmp(argv[1], "--probe"))
        return probe(argv[2]);
    return cmocka_run_group_tests_name("gasnet-tools", tests, NULL, NULL);
}
