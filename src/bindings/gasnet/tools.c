/* SPDX-License-Identifier: BSD-3-Clause */
/* Fatal errors, backtraces, facts about the machine. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int gasnetw_tools_rank_ = -1;
char *(*gasnetw_tools_getenv_)(const char *name);

void gasnetw_tools_started(void)
{
    gasnetw_env_flush(false);
    gasnetw_trace_flush();
}

bool gasnetw_tools_lock_at_end(pthread_mutex_t *lock)
{
    /* pthread_mutex_timedlock(3) would measure the second by the time of day, which may be set
     * meanwhile. */
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int tries = 0; tries < 1000; tries++) {
        if (!pthread_mutex_trylock(lock))
            return true;
        nanosleep(&nap, NULL);
    }
    return false;
}

void gasnetw_tools_finish(void)
{
    gasnetw_env_flush(true);
    gasnetw_trace_finish();
}

/* ---- fatal errors ---- */

FILE *gasnetw_file_copy(int fd, const char *mode)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    FILE *f = copy < 0 ? NULL : fdopen(copy, mode);
    if (copy >= 0 && !f)
        close(copy);
    return f;
}

FILE *gasnetw_file_open(const char *path, const char *mode)
{
    FILE *low = fopen(path, mode), *f;
    if (!low || fileno(low) > STDERR_FILENO)
        return low;
    f = gasnetw_file_copy(fileno(low), mode);
    fclose(low);
    return f;
}

/* Write the text by one write(2) if possible, so that it stays together: the processes of a job
 * share their stderr. */
static void say(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

static _Noreturn void die(const char *file, int line, const char *func, const char *msg, va_list ap)
{
    /* This thread is dying. It may come here again, since the backtrace or trace may fail, too. */
    static _Thread_local bool dying;
    char text[4096], rank[32] = "";
    size_t n, room = sizeof text - 1;
    if (gasnetw_tools_rank() >= 0)
        snprintf(rank, sizeof rank, " (rank %d)", gasnetw_tools_rank());
    if (file)
        n = (size_t)snprintf(text, room, "*** FATAL ERROR%s: in %s() at %s:%d: ", rank, func, file,
                             line);
    else
        n = (size_t)snprintf(text, room, "*** FATAL ERROR%s: ", rank);
    if (n < room)
        n += (size_t)vsnprintf(text + n, room - n, msg, ap);
    if (n >= room)
        n = room - 1;
    if (text[n - 1] != '\n')
        text[n++] = '\n';
    if (!dying) {
        dying = true;
        fflush(stdout);
        say(text, n);
        gasnett_freezeForDebuggerErr();
        if (gasnett_print_backtrace_ifenabled)
            (void)gasnett_print_backtrace_ifenabled(STDERR_FILENO);
        gasnett_flush_streams();
    } else {
        say(text, n);
    }
    abort();
}

void gasnetw_fatal_at(const char *file, int line, const char *func, const char *msg, ...)
{
    va_list ap;
    va_start(ap, msg);
    die(file, line, func, msg, ap);
}

void gasnett_fatalerror_nopos(const char *msg, ...)
{
    va_list ap;
    va_start(ap, msg);
    die(NULL, 0, NULL, msg, ap);
}

void gasnett_killmyprocess(int exitcode)
{
    _exit(exitcode);
}

void gasnett_flush_streams(void)
{
    fflush(stdout);
    fflush(stderr);
    (void)!fsync(STDOUT_FILENO); /* fails if it is no file */
    (void)!fsync(STDERR_FILENO);
}

void gasnett_close_streams(void)
{
    fclose(stdin);
    fclose(stdout);
    fclose(stderr);
}

char *gasnetw_loc(const char *file, int line, const char *func)
{
    char *text;
    if (asprintf(&text, "%s:%d (%s)", file, line, func) < 0)
        gasnett_fatalerror_nopos("gasnett_current_loc: out of memory");
    return text;
}

void gasnett_freezeForDebuggerNow(volatile int *flag, const char *flagsymname)
{
    const struct timespec second = {.tv_sec = 1};
    fprintf(stderr, "*** Process %d on %s waits for a debugger: attach, set %s = 0 and continue\n",
            (int)getpid(), gasnett_gethostname(), flagsymname);
    fflush(stderr);
    *flag = 1;
    while (*flag)
        (void)nanosleep(&second, NULL);
}

volatile int gasnetw_tools_frozen;

void gasnett_freezeForDebuggerErr(void)
{
    if (gasnetw_tools_var_yes("GASNET_FREEZE_ON_ERROR", false))
        gasnett_freezeForDebuggerNow(&gasnetw_tools_frozen, "gasnetw_tools_frozen");
}

gasnett_sighandlerfn_t gasnett_reghandler(int sigtocatch, gasnett_sighandlerfn_t fp)
{
    struct sigaction act = {.sa_handler = fp, .sa_flags = SA_RESTART}, old;
    sigemptyset(&act.sa_mask);
    if (sigaction(sigtocatch, &act, &old))
        gasnett_fatalerror_nopos("gasnett_reghandler: signal %d (%s) cannot have a handler: %s",
                                 sigtocatch, strsignal(sigtocatch), strerror(errno));
    return old.sa_handler;
}

/* ---- backtraces ---- */

/* Weak: the client may define it. */
__attribute__((weak)) gasnett_backtrace_type_t gasnett_backtrace_user;

static int by_execinfo(int fd)
{
    void *frames[128];
    int n = backtrace(frames, 128);
    if (n <= 0)
        return 1;
    backtrace_symbols_fd(frames, n, fd);
    return 0;
}

static int by_user(int fd)
{
    return gasnett_backtrace_user.fnp ? gasnett_backtrace_user.fnp(fd) : 1;
}

static bool is_word(const char *name, const char *word, size_t len)
{
    return name && strlen(name) == len && !strncasecmp(name, word, len);
}

/* Print a backtrace by the methods in [list], such as "A,B", until one works. Returns 0 if one did.
 */
static int by_list(const char *list, int fd)
{
    while (*list) {
        size_t len = strcspn(list, ", ");
        if ((is_word(gasnett_backtrace_user.name, list, len) && !by_user(fd)) ||
            (is_word("EXECINFO", list, len) && !by_execinfo(fd)))
            return 0;
        list += len;
        list += strspn(list, ", ");
    }
    return 1;
}

void gasnett_backtrace_init(const char *exename)
{
    const char *list = gasnett_getenv_withdefault("GASNET_BACKTRACE_TYPE", "EXECINFO");
    void *frame;
    (void)exename; /* backtrace_symbols_fd(3) knows the program */
    for (; *list; list += strspn(list, ", ")) {
        size_t len = strcspn(list, ", ");
        if (!is_word("EXECINFO", list, len) && !is_word(gasnett_backtrace_user.name, list, len))
            fprintf(stderr,
                    "*** GASNET_BACKTRACE_TYPE: %.*s is no way of making backtraces here; "
                    "EXECINFO is%s%s\n",
                    (int)len, list, gasnett_backtrace_user.name ? ", and " : "",
                    gasnett_backtrace_user.name ? gasnett_backtrace_user.name : "");
        list += len;
    }
    (void)backtrace(&frame,
                    1); /* the first call loads a library: make it before the heap may be damaged */
}

int gasnett_print_backtrace(int fd)
{
    const char *list = gasnetw_tools_var("GASNET_BACKTRACE_TYPE");
    if (list)
        return by_list(list, fd);
    return by_user(fd) && by_execinfo(fd);
}

static int backtrace_if_enabled(int fd)
{
    static const char hint[] = "*** For a backtrace of fatal errors, set GASNET_BACKTRACE=1\n";
    if (gasnetw_tools_var_yes("GASNET_BACKTRACE", false))
        return gasnett_print_backtrace(fd);
    return write(fd, hint, sizeof hint - 1) < 0;
}

int (*gasnett_print_backtrace_ifenabled)(int fd) = backtrace_if_enabled;

/* ---- the machine ---- */

static char host[256];

static void ask_host(void)
{
    if (gethostname(host, sizeof host - 1))
        strcpy(host, "unknown");
}

const char *gasnett_gethostname(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_host);
    return host;
}

int gasnett_cpu_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 0;
}

uint64_t gasnett_getPhysMemSz(int failureIsFatal)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0)
        return (uint64_t)pages * (uint64_t)size;
    if (failureIsFatal)
        gasnett_fatalerror_nopos("gasnett_getPhysMemSz: the system does not say how much memory "
                                 "it has (sysconf(3), _SC_PHYS_PAGES)");
    return 0;
}

int gasnett_set_affinity(int rank)
{
    long n = sysconf(_SC_NPROCESSORS_CONF);
    size_t cpu, size;
    cpu_set_t *set;
    int failed;
    if (n <= 0)
        return 1;
    cpu = (size_t)(rank % n + (rank % n < 0 ? n : 0));
    set = CPU_ALLOC((size_t)n);
    if (!set)
        return 1;
    size = CPU_ALLOC_SIZE((size_t)n);
    CPU_ZERO_S(size, set);
    CPU_SET_S(cpu, size, set);
    failed = sched_setaffinity(0, size, set) != 0;
    CPU_FREE(set);
    return failed;
}

void gasnett_sched_yield(void)
{
    sched_yield();
}

int gasnett_isLittleEndian(void)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}

int gasnett_maximize_rlimit(int res, const char *lim_desc)
{
    char name[128];
    struct rlimit limit;
    snprintf(name, sizeof name, "GASNET_MAXIMIZE_%s", lim_desc);
    if (!gasnett_getenv_yesno_withdefault(name, 1))
        return 1;
    if (getrlimit((__rlimit_resource_t)res, &limit))
        return 0;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)res, &limit) == 0;
}

int gasnett_maximize_rlimits(void)
{
    static const struct {
        int res;
        const char *name;
    } all[] = {
        {RLIMIT_CPU, "RLIMIT_CPU"},     {RLIMIT_DATA, "RLIMIT_DATA"},
        {RLIMIT_STACK, "RLIMIT_STACK"}, {RLIMIT_RSS, "RLIMIT_RSS"},
        {RLIMIT_AS, "RLIMIT_AS"},       {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"},
    };
    int ok = 1;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ok &= gasnett_maximize_rlimit(all[i].res, all[i].name);
    return ok;
}

void *gasnett_mmap(uintptr_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
}

const char *gasnett_performance_warning_str(void)
{
    static char text[256];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)gasnetw_ticks_now(); /* chooses the clock */
    pthread_mutex_lock(&lock);
    text[0] = 0;
#ifndef __OPTIMIZE__
    strcat(text, "        The library was compiled without optimisation\n");
#endif
#if defined(__x86_64__)
    if (__atomic_load_n(&gasnetw_tick_source, __ATOMIC_RELAXED) != 1)
        strcat(text, "        Timers use clock_gettime(): no TSC that can be relied on\n");
#endif
    pthread_mutex_unlock(&lock);
    return text;
}

const char *gasnett_release_version_str(void)
{
    return _STRINGIFY(GASNETT_RELEASE_VERSION_MAJOR) "." _STRINGIFY(
        GASNETT_RELEASE_VERSION_MINOR) "." _STRINGIFY(GASNETT_RELEASE_VERSION_PATCH);
}

uint64_t gasnett_release_version(void)
{
    return GASNETT_RELEASE_VERSION_MAJOR * 1000000u + GASNETT_RELEASE_VERSION_MINOR * 1000u +
           GASNETT_RELEASE_VERSION_PATCH;
}
