/* SPDX-License-Identifier: BSD-3-Clause */
/* Variables, and the report of the variables that were read (GASNET_VERBOSEENV). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

char *gasnett_getenv(const char *keyname)
{
    return gasnetw_tools_getenv_ ? gasnetw_tools_getenv_(keyname) : getenv(keyname);
}

void gasnett_setenv(const char *key, const char *value)
{
    if (setenv(key, value, 1))
        gasnett_fatalerror_nopos("gasnett_setenv: %s: %s", key, strerror(errno));
}

void gasnett_unsetenv(const char *key)
{
    if (unsetenv(key))
        gasnett_fatalerror_nopos("gasnett_unsetenv: %s: %s", key, strerror(errno));
}

const char *gasnetw_tools_var(const char *name)
{
    const char *text = gasnett_getenv(name);
    return text && *text ? text : NULL;
}

/* 1, 0, or -1: neither. */
static int yes_or_no(const char *text)
{
    if (!strcasecmp(text, "y") || !strcasecmp(text, "yes") || !strcmp(text, "1"))
        return 1;
    if (!strcasecmp(text, "n") || !strcasecmp(text, "no") || !strcmp(text, "0"))
        return 0;
    return -1;
}

bool gasnetw_tools_var_yes(const char *name, bool dflt)
{
    const char *text = gasnetw_tools_var(name);
    int yes = text ? yes_or_no(text) : -1;
    return yes < 0 ? dflt : yes;
}

/* ---- reporting ---- */

/* The report of one variable, which was written or waits until the rank is known. Reports are never
 * freed, since there are few names. */
struct env_report {
    struct env_report *next;
    char *key, *line; /* line: null when it was written */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct env_report *first, **last = &first; /* under lock */

static bool wanted(void)
{
    const char *text = gasnetw_tools_var("GASNET_VERBOSEENV");
    return text && yes_or_no(text) != 0;
}

int gasnett_verboseenv(void)
{
    return gasnetw_tools_rank() <= 0 && wanted();
}

void gasnetw_env_flush(bool even_without_rank)
{
    int rank = gasnetw_tools_rank();
    if (rank < 0 && !even_without_rank)
        return;
    if (!gasnetw_tools_lock_at_end(&lock))
        return;
    for (struct env_report *s = first; s; s = s->next) {
        if (s->line && rank <= 0)
            fputs(s->line, stderr);
        free(s->line);
        s->line = NULL;
    }
    pthread_mutex_unlock(&lock);
}

static void at_exit(void)
{
    gasnetw_env_flush(true);
}

/* Takes [line]. */
static void add(const char *key, char *line)
{
    static bool registered; /* under lock */
    struct env_report *s;
    pthread_mutex_lock(&lock);
    for (s = first; s && strcmp(s->key, key); s = s->next)
        ;
    if (s) {
        free(line);
    } else {
        s = calloc(1, sizeof *s);
        if (!s || !(s->key = strdup(key)))
            gasnett_fatalerror_nopos("out of memory for the list of variables");
        s->line = line;
        *last = s;
        last = &s->next;
        if (!registered)
            registered = !atexit(at_exit);
    }
    pthread_mutex_unlock(&lock);
    gasnetw_env_flush(false);
}

void gasnett_envstr_display(const char *key, const char *val, int is_dflt)
{
    const char *shown = !val ? "*not set*" : *val ? val : "*empty*";
    char *line;
    gasnetw_trace_line('I', "ENV parameter: %s = %s%s", key, shown, is_dflt ? " (default)" : "");
    if (!gasnett_verboseenv())
        return;
    if (asprintf(&line, "ENV parameter: %s = %s%s\n", key, shown, is_dflt ? " (default)" : "") < 0)
        gasnett_fatalerror_nopos("out of memory for the list of variables");
    add(key, line);
}

void gasnett_envint_display(const char *key, int64_t val, int is_dflt, int is_mem_size)
{
    char text[64];
    gasnett_envstr_display(key, gasnett_format_number(val, text, sizeof text, is_mem_size),
                           is_dflt);
}

void gasnett_envdbl_display(const char *key, double val, int is_dflt)
{
    char text[64];
    snprintf(text, sizeof text, "%g", val);
    gasnett_envstr_display(key, text, is_dflt);
}

/* ---- reading ---- */

char *gasnett_getenv_withdefault(const char *keyname, const char *defaultval)
{
    char *text = gasnett_getenv(keyname);
    gasnett_envstr_display(keyname, text ? text : defaultval, !text);
    return text ? text : (char *)(uintptr_t)defaultval;
}

int gasnett_getenv_yesno_withdefault(const char *keyname, int defaultval)
{
    const char *text = gasnetw_tools_var(keyname);
    int yes = text ? yes_or_no(text) : !!defaultval;
    if (yes < 0)
        gasnett_fatalerror_nopos("%s=%s: must be Y, YES or 1, or N, NO or 0", keyname, text);
    gasnett_envstr_display(keyname, yes ? "YES" : "NO", !text);
    return yes;
}

int64_t gasnett_getenv_int_withdefault(const char *keyname, int64_t defaultval,
                                       uint64_t mem_size_multiplier)
{
    const char *text = gasnetw_tools_var(keyname);
    int64_t val = defaultval;
    const char *why = text ? gasnetw_parse(text, mem_size_multiplier, &val) : NULL;
    if (why)
        gasnett_fatalerror_nopos("%s=%s: %s", keyname, text, why);
    gasnett_envint_display(keyname, val, !text, mem_size_multiplier != 0);
    return val;
}

/* "1.5", "-1e4", "3/8". */
static bool parse_real(const char *text, double *val)
{
    char *end;
    double over = strtod(text, &end), under = 1;
    if (end == text)
        return false;
    if (*end == '/') {
        text = end + 1;
        under = strtod(text, &end);
        if (end == text || under == 0)
            return false;
    }
    *val = over / under;
    return !*end;
}

double gasnett_getenv_dbl_withdefault(const char *keyname, double defaultval)
{
    const char *text = gasnetw_tools_var(keyname);
    double val = defaultval;
    if (text && !parse_real(text, &val))
        gasnett_fatalerror_nopos("%s=%s: must be a number such as 1.5, -1e4 or 3/8", keyname, text);
    gasnett_envdbl_display(keyname, val, !text);
    return val;
}
