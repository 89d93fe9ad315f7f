/* SPDX-License-Identifier: BSD-3-Clause */
/* Trace and statistics: two outputs of lines. Each output has its own file, mask and list of ranks.
 *
 * An output is opened when its first line is written. If the file's name contains the rank ('%'),
 * lines are kept in memory until gasnetw_tools_started, or until the end of the process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TRACE, STATS };

/* The letters of the categories, in the order of gasnett_trace_getmask. The tools write lines only
 * of H, I, N and U. (U is in no mask, since its lines are always written.) The other letters are
 * kept for a client's mask. */
static const char categories[] = "GPRSWXBLAMICDNH";

struct output {
    const char *name;                /* GASNET_name{FILE,MASK,NODES} */
    _Atomic int on;                  /* -1: not known yet */
    _Atomic uint32_t mask;           /* bit: letter - 'A' */
    char letters[sizeof categories]; /* the mask; under lock */
    FILE *file;                      /* under lock; null: none, or kept */
    FILE *kept;                      /* under lock: writes to [text] */
    char *text;
    size_t len;
    bool ended; /* under lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct output outputs[2] = {{.name = "TRACE", .on = -1}, {.name = "STATS", .on = -1}};
static struct timespec epoch; /* under lock until an output is on */
static _Atomic int local = -1;

typedef void (*print_fn)(const char *format, ...);
static void (*stats_fn)(print_fn print); /* under lock */

static _Thread_local struct {
    const char *file;
    unsigned line;
    int frozen;
} srcline;

static uint32_t bit(char category)
{
    return category >= 'A' && category <= 'Z' ? UINT32_C(1) << (category - 'A') : 0;
}

static const char *var(const struct output *o, const char *what)
{
    char name[32];
    snprintf(name, sizeof name, "GASNET_%s%s", o->name, what);
    return gasnetw_tools_var(name);
}

bool gasnetw_tools_rank_listed(const char *list, int rank)
{
    if (!list || !strcmp(list, "*") || rank < 0)
        return true;
    while (*list) {
        char *end;
        long low = strtol(list, &end, 10), high = low;
        if (end == list)
            return false;
        if (*end == '-') {
            list = end + 1;
            high = strtol(list, &end, 10);
        }
        if (rank >= low && rank <= high)
            return true;
        list = end + strspn(end, ", ");
    }
    return false;
}

/* Holds lock. */
static void set_mask(struct output *o, const char *mask)
{
    uint32_t bits = 0;
    size_t n = 0;
    for (const char *c = categories; *c; c++) {
        if (!strchr(mask, *c))
            continue;
        bits |= bit(*c);
        o->letters[n++] = *c;
    }
    o->letters[n] = 0;
    o->mask = bits;
}

static void at_exit(void)
{
    gasnetw_trace_finish();
}

/* Holds lock. Reads the variables, once. */
static void know(struct output *o)
{
    static bool registered;
    const char *mask;
    if (o->on >= 0)
        return;
    mask = var(o, "MASK");
    set_mask(o, mask ? mask : categories);
    if (!epoch.tv_sec)
        clock_gettime(CLOCK_MONOTONIC, &epoch);
    if (var(o, "FILE") && !registered)
        registered = !atexit(at_exit);
    o->on = var(o, "FILE") && gasnetw_tools_rank_listed(var(o, "NODES"), gasnetw_tools_rank());
}

static int is_on(struct output *o)
{
    if (o->on < 0) {
        pthread_mutex_lock(&lock);
        know(o);
        pthread_mutex_unlock(&lock);
    }
    return o->on;
}

/* Returns the file name [pattern] with each '%' replaced by the rank, or by the process id if there
 * is no rank. */
static char *file_name(const char *pattern)
{
    char *name = NULL;
    size_t len;
    FILE *f = open_memstream(&name, &len);
    if (!f)
        gasnett_fatalerror_nopos("out of memory for a trace");
    for (; *pattern; pattern++) {
        if (*pattern != '%')
            fputc(*pattern, f);
        else if (gasnetw_tools_rank() >= 0)
            fprintf(f, "%d", gasnetw_tools_rank());
        else
            fprintf(f, "pid%d", (int)getpid());
    }
    if (fclose(f))
        gasnett_fatalerror_nopos("out of memory for a trace");
    return name;
}

static FILE *open_file(const struct output *o, const char *pattern)
{
    char *name;
    FILE *f;
    if (!strcmp(pattern, "stderr") || !strcmp(pattern, "-"))
        return stderr;
    if (!strcmp(pattern, "stdout"))
        return stdout;
    name = file_name(pattern);
    f = gasnetw_file_open(name, "ae"); /* append: ranks may share the file, also with
                                        * GASNET_STATSFILE */
    if (!f) {
        fprintf(stderr, "*** GASNET_%sFILE: %s: %s; it goes to stderr\n", o->name, name,
                strerror(errno));
        f = stderr;
    } else {
        setvbuf(f, NULL, _IOLBF, 0);
    }
    free(name);
    return f;
}

/* Returns the file to which a line goes, or NULL if this rank is not listed. The caller holds
 * [lock]. */
static FILE *sink(struct output *o, bool at_end)
{
    const char *pattern = var(o, "FILE");
    if (o->file || !pattern)
        return o->file;
    if (!at_end && gasnetw_tools_rank() < 0 && (strchr(pattern, '%') || var(o, "NODES"))) {
        if (!o->kept && !(o->kept = open_memstream(&o->text, &o->len)))
            gasnett_fatalerror_nopos("out of memory for a trace");
        return o->kept;
    }
    o->on = gasnetw_tools_rank_listed(var(o, "NODES"), gasnetw_tools_rank());
    if (o->on)
        o->file = open_file(o, pattern);
    if (o->kept) {
        fclose(o->kept);
        if (o->on)
            fwrite(o->text, 1, o->len, o->file);
        free(o->text);
        o->kept = NULL;
        o->text = NULL;
    }
    return o->file;
}

static void vline(int which, char category, const char *format, va_list ap)
{
    struct output *o = &outputs[which];
    struct timespec now;
    char rank[16] = "?";
    size_t len = strlen(format);
    FILE *f;
    if (!is_on(o) || (category != 'U' && !(o->mask & bit(category))))
        return;
    if (gasnetw_tools_rank() >= 0)
        snprintf(rank, sizeof rank, "%d", gasnetw_tools_rank());
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    f = o->ended ? NULL : sink(o, false);
    if (f) {
        fprintf(f, "%s(%lx) %.6fs> ", rank, (unsigned long)syscall(SYS_gettid),
                (double)(now.tv_sec - epoch.tv_sec) + (double)(now.tv_nsec - epoch.tv_nsec) / 1e9);
        if (srcline.file && (o->mask & bit('N')))
            fprintf(f, "[%s:%u] ", srcline.file, srcline.line);
        fprintf(f, "(%c) ", category);
        vfprintf(f, format, ap);
        if (len == 0 || format[len - 1] != '\n')
            fputc('\n', f);
    }
    pthread_mutex_unlock(&lock);
}

#define LINE(which, category)                                                                      \
    do {                                                                                           \
        va_list ap;                                                                                \
        va_start(ap, format);                                                                      \
        vline((which), (category), format, ap);                                                    \
        va_end(ap);                                                                                \
    } while (0)

void gasnetw_trace_line(char category, const char *format, ...)
{
    LINE(TRACE, category);
}
void gasnetw_trace_printf(const char *format, ...)
{
    LINE(TRACE, 'H');
}
void gasnetw_trace_printf_force(const char *format, ...)
{
    LINE(TRACE, 'U');
}
void gasnetw_stats_printf(const char *format, ...)
{
    LINE(STATS, 'H');
}
void gasnetw_stats_printf_force(const char *format, ...)
{
    LINE(STATS, 'U');
}

int gasnetw_trace_enabled(char category)
{
    return is_on(&outputs[TRACE]) && (category == 'U' || (outputs[TRACE].mask & bit(category)));
}

int gasnetw_stats_init(void (*fn)(void (*print)(const char *format, ...)))
{
    int on = is_on(&outputs[STATS]);
    pthread_mutex_lock(&lock);
    stats_fn = fn;
    pthread_mutex_unlock(&lock);
    return on && (outputs[STATS].mask & bit('H'));
}

const char *gasnetw_trace_getmask(int stats)
{
    struct output *o = &outputs[stats ? STATS : TRACE];
    (void)is_on(o);
    return o->letters;
}

void gasnetw_trace_setmask(int stats, const char *mask)
{
    struct output *o = &outputs[stats ? STATS : TRACE];
    char copy[128];
    snprintf(copy, sizeof copy, "%s", mask); /* may point to what getmask returned */
    pthread_mutex_lock(&lock);
    know(o);
    set_mask(o, copy);
    pthread_mutex_unlock(&lock);
}

int gasnetw_trace_local(int newval)
{
    if (newval >= 0)
        local = newval;
    else if (local < 0)
        local = gasnetw_tools_var_yes("GASNET_TRACELOCAL", true);
    return local;
}

void gasnetw_srcline_set(const char *file, unsigned line)
{
    if (srcline.frozen)
        return;
    srcline.file = file;
    srcline.line = line;
}

void gasnetw_srcline_get(const char **file, unsigned *line)
{
    *file = srcline.file;
    *line = srcline.line;
}

void gasnetw_srcline_freeze(int freeze)
{
    srcline.frozen += freeze ? 1 : srcline.frozen > 0 ? -1 : 0;
}

/* ---- end ---- */

void gasnetw_trace_flush(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++)
        if (outputs[i].kept)
            (void)sink(&outputs[i], false);
    pthread_mutex_unlock(&lock);
}

void gasnetw_trace_finish(void)
{
    void (*fn)(print_fn print);
    if (!gasnetw_tools_lock_at_end(&lock))
        return;
    fn = stats_fn;
    stats_fn = NULL;
    pthread_mutex_unlock(&lock);
    if (fn)
        fn(gasnetw_stats_printf);
    if (!gasnetw_tools_lock_at_end(&lock))
        return;
    for (int i = 0; i < 2; i++) {
        struct output *o = &outputs[i];
        if (o->kept)
            (void)sink(o, true);
        if (o->file && o->file != stderr && o->file != stdout)
            fclose(o->file);
        else if (o->file)
            fflush(o->file);
        o->file = NULL;
        o->ended = true;
    }
    pthread_mutex_unlock(&lock);
}
