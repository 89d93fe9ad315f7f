// SPDX-License-Identifier: BSD-3-Clause
// gasnet_tools.h in C++, alone: it compiles without warnings and works. Returns 0 if it does.
#define FORCE_GETTIMEOFDAY 1
#include <gasnet_tools.h>

#if !GASNETT_USING_GETTIMEOFDAY
#error "FORCE_GETTIMEOFDAY was not heeded"
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>

GASNETT_IDENT(tools_cxx_ident, "$ToolsCxx: weft $");
GASNETT_THREADKEY_DEFINE(cxx_key);

static gasnett_atomic_t counter = gasnett_atomic_init(1);
static gasnett_atomic64_t counter64 = gasnett_atomic64_init(1);
static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
static gasnett_cond_t cond = GASNETT_COND_INITIALIZER;
static gasnett_rwlock_t rwlock = GASNETT_RWLOCK_INITIALIZER;

GASNETT_EXTERNC int cxx_answer(void);
int cxx_answer(void)
{
    return 42;
}

GASNETT_INLINE(twice) int twice(int x)
{
    return 2 * x;
}

GASNETT_FORMAT_PRINTF(print, 1, 2, static void print(const char *format, ...));
static void print(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
}

static int failed(const char *what)
{
    print("%s: wrong in %s\n", what, GASNETT_CURRENT_FUNCTION);
    return 1;
}

int main()
{
    char text[32], *copy;
    const char *file;
    unsigned line;
    gasnett_heapstats_t stats;
    gasnett_tick_t ticks = gasnett_ticks_now();
    gasnett_atomic_val_t val = gasnett_atomic_add(&counter, 2, GASNETT_ATOMIC_REL);
    if_pf(gasnett_atomic_signed(val) != 3) return failed("add");
    if (!gasnett_atomic64_compare_and_swap(&counter64, 1, 5, GASNETT_ATOMIC_ACQ_IF_TRUE) ||
        gasnett_atomic64_swap(&counter64, 6, 0) != 5)
        return failed("swap");
    gasnett_local_wmb();
    gasnett_local_rmb();
    gasnett_local_mb();
    gasnett_mutex_lock(&mutex);
    gasnett_cond_signal(&cond);
    gasnett_mutex_unlock(&mutex);
    gasnett_rwlock_rdlock(&rwlock);
    gasnett_rwlock_unlock(&rwlock);
    gasnett_threadkey_set(cxx_key, text);
    if (gasnett_threadkey_get(cxx_key) != text)
        return failed("key");
    if (gasnett_parse_int("3K", 1) != 3072 ||
        std::strcmp(gasnett_format_number(3072, text, sizeof text, 1), "3 KB"))
        return failed("numbers");
    copy = gasnett_debug_strdup(GASNETT_CONFIG_STRING);
    if (!std::strstr(copy, "timers_gettimeofday"))
        return failed("config");
    gasnett_debug_memcheck_all();
    gasnett_debug_free(copy);
    if (gasnett_getheapstats(&stats) || stats.live_objects != 0)
        return failed("heap");
    GASNETT_TRACE_SETSOURCELINE(__FILE__, 7);
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    GASNETT_TRACE_PRINTF("line %u", line);
    if (line != 7 || gasnett_count0s_uint32_t(0x00120034) != 2 || twice(cxx_answer()) != 84)
        return failed("bytes");
    (void)gasnett_nsleep(2000000);
    ticks = gasnett_ticks_now() - ticks;
    if (gasnett_ticks_to_us(ticks) < 2000 || gasnett_ticks_to_us(ticks) > 10000000 ||
        gasnett_ticks_to_ns(ticks) != 1000 * ticks)
        return failed("time");
    if (cxx_answer() == 0) /* compiled, not called */
        gasnett_fatalerror("%d", cxx_answer());
    return gasnett_run_diagnostics(2, 2, "AB", NULL);
}
