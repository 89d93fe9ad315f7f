/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of `weft perf`. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "perf_peers.h"
#include "tool.h"

static int complain(struct wf_perf_complaint *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int complain(struct wf_perf_complaint *c, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(c->text, sizeof c->text, format, ap);
    va_end(ap);
    return -1;
}

/* The first VALUED of them take a value. */
#define VALUED 5
static const char *const option_names[] = {
    "--size", "--iters", "--pairs", "--plot", "--transport", "--cached", "--json", "--help", NULL};
static const char *const transport_names[] = {"shm", "tcp", "rdma", NULL};

/* Subcommands that are no tests between ranks. */
static const char *const alone[] = {[WF_PERF_LIMITS] = "limits",
                                    [WF_PERF_MEM] = "mem",
                                    [WF_PERF_REG] = "reg",
                                    [WF_PERF_COMPARE] = "compare"};

static int no_such(struct wf_perf_complaint *c, const char *kind, const char *word,
                   const char *const *names)
{
    const char *near = wf_tool_nearest(word, names);
    if (near)
        return complain(c, "there is no %s \"%s\"; did you mean \"%s\"?", kind, word, near);
    return complain(c, "there is no %s \"%s\"; weft perf --help lists them", kind, word);
}

/* A positive number, followed by k, M or G if [scaled]; *end: the rest of the text. */
static int parse_number(const char *text, bool scaled, uint64_t max, uint64_t *out,
                        const char **end)
{
    static const char units[] = "kKmMgG";
    char *stop;
    unsigned long long v;
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    v = strtoull(text, &stop, 10);
    if (errno || v == 0)
        return -1;
    if (scaled && *stop && strchr(units, *stop)) {
        unsigned shift = 10 * (unsigned)((strchr(units, *stop) - units) / 2 + 1);
        if (v > max >> shift)
            return -1;
        v <<= shift;
        stop++;
    }
    if (v > max)
        return -1;
    *out = v;
    *end = stop;
    return 0;
}

static int parse_size(struct wf_perf_options *o, const char *text, struct wf_perf_complaint *c)
{
    uint64_t first, last;
    const char *end;
    if (parse_number(text, true, WF_PERF_SIZE_MAX, &first, &end))
        return complain(c, "--size %s: give bytes, 1 to 1G, or a sweep such as 8:1M", text);
    last = first;
    if (*end == ':' && parse_number(end + 1, true, WF_PERF_SIZE_MAX, &last, &end))
        return complain(c, "--size %s: give bytes, 1 to 1G, or a sweep such as 8:1M", text);
    if (*end || last < first)
        return complain(c, "--size %s: a sweep is N:M with N at most M, such as 8:1M", text);
    o->size_first = (size_t)first;
    o->size_last = (size_t)last;
    return 0;
}

static int parse_plot(struct wf_perf_options *o, const char *value, struct wf_perf_complaint *c)
{
    size_t n = strlen(value);
    if (n < 5 || strcmp(value + n - 4, ".svg"))
        return complain(c, "--plot %s: give the name of a file that ends in .svg", value);
    o->plot = value;
    return 0;
}

static int parse_transport(struct wf_perf_options *o, const char *value,
                           struct wf_perf_complaint *c)
{
    for (const char *const *name = transport_names; *name; name++)
        if (!strcmp(value, *name))
            o->transport = *name;
    return o->transport ? 0 : complain(c, "--transport %s: give shm, tcp or rdma", value);
}

static int parse_valued(struct wf_perf_options *o, const char *name, const char *value,
                        struct wf_perf_complaint *c)
{
    uint64_t v;
    const char *end;
    if (!value)
        return complain(c, "%s needs a value", name);
    if (!strcmp(name, "--size"))
        return parse_size(o, value, c);
    if (!strcmp(name, "--plot"))
        return parse_plot(o, value, c);
    if (!strcmp(name, "--transport"))
        return parse_transport(o, value, c);
    if (!strcmp(name, "--iters")) {
        if (parse_number(value, true, 1ull << 40, &v, &end) || *end)
            return complain(c, "--iters %s: give a number of operations, at least 1", value);
        o->iters = v;
        return 0;
    }
    if (parse_number(value, false, WF_PERF_PAIRS_MAX, &v, &end) || *end)
        return complain(c, "--pairs %s: give a number from 1 to %u", value, WF_PERF_PAIRS_MAX);
    o->pairs = (unsigned)v;
    return 0;
}

/* Returns 0 if [arg] is none of the options without a value. */
static int parse_flag(struct wf_perf_options *o, const char *arg)
{
    if (!strcmp(arg, "--json"))
        o->json = true;
    else if (!strcmp(arg, "--cached"))
        o->cached = true;
    else if (!strcmp(arg, "--help") || !strcmp(arg, "-h"))
        o->help = true;
    else
        return 0;
    return 1;
}

/* An option with a value, "--size 8" or "--size=8"; *at advances over the value. */
static int parse_option(struct wf_perf_options *o, char **argv, int *at,
                        struct wf_perf_complaint *c)
{
    const char *arg = argv[*at], *equals = strchr(arg, '=');
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    for (int i = 0; i < VALUED; i++) {
        const char *name = option_names[i];
        if (strlen(name) == n && !strncmp(arg, name, n))
            return parse_valued(o, name, equals ? equals + 1 : argv[++*at], c);
    }
    return no_such(c, "option", arg, option_names);
}

/* --only: compare with one library. */
static int parse_only(struct wf_perf_options *o, const char *name, struct wf_perf_complaint *c)
{
    const char *names[16] = {NULL};
    for (size_t i = 0; i < wf_rivals_count; i++) {
        names[i] = wf_rivals[i].name;
        if (!strcmp(name, names[i]))
            o->only = names[i];
    }
    return o->only ? 0 : no_such(c, "library", name, names);
}

static int parse_test(struct wf_perf_options *o, const char *name, struct wf_perf_complaint *c)
{
    const char *names[32] = {"limits", "mem", "reg", "compare"};
    if (o->alone == WF_PERF_COMPARE && !o->only)
        return parse_only(o, name, c);
    const struct wf_perf_test *found = NULL;
    for (int i = WF_PERF_LIMITS; i <= WF_PERF_COMPARE; i++)
        if (!strcmp(name, alone[i])) {
            if (o->ntests || o->alone)
                return complain(c, "%s runs by itself, without another test", name);
            o->alone = (enum wf_perf_alone)i;
            return 0;
        }
    for (size_t i = 0; i < wf_perf_tests_count; i++) {
        names[i + WF_PERF_COMPARE] = wf_perf_tests[i].name;
        if (!strcmp(name, wf_perf_tests[i].name))
            found = &wf_perf_tests[i];
    }
    if (!found)
        return no_such(c, "test", name, names);
    if (o->alone)
        return complain(c, "%s runs by itself, without another test", alone[o->alone]);
    if (o->ntests == WF_PERF_TESTS_MAX)
        return complain(c, "at most %d tests at a time", WF_PERF_TESTS_MAX);
    o->tests[o->ntests++] = found;
    return 0;
}

static int finish_alone(const struct wf_perf_options *o, struct wf_perf_complaint *c)
{
    bool compare = o->alone == WF_PERF_COMPARE;
    if (o->size_first || o->cached)
        return complain(c, "%s takes no --size and no --cached", alone[o->alone]);
    if (!compare && (o->pairs || o->plot || o->iters || o->transport))
        return complain(c, "%s takes no option but --json", alone[o->alone]);
    if (compare && o->pairs && o->pairs < WF_PERF_COMPARE_PAIRS)
        return complain(c, "--pairs %u: compare needs at least %u", o->pairs,
                        WF_PERF_COMPARE_PAIRS);
    return 0;
}

struct wf_perf_options wf_perf_choose(const struct wf_perf_options *all, unsigned i)
{
    struct wf_perf_options o = *all;
    o.test = all->tests[i];
    if (!o.size_first)
        o.size_first = o.size_last = o.test->size;
    return o;
}

/* Are the options possible with the test? */
static int suits(const struct wf_perf_options *o, const struct wf_perf_test *t,
                 struct wf_perf_complaint *c)
{
    if (!o->size_first)
        return 0;
    if (!t->size)
        return complain(c, "%s moves no data: leave --size out", t->name);
    if (t->fixed && (o->size_first != t->size || o->size_last != t->size))
        return complain(c, "%s is for %zu bytes: leave --size out", t->name, t->size);
    if (o->size_first < t->size_min || o->size_first % t->size_unit)
        return complain(c, "%s: the size must be at least %zu and a multiple of %zu", t->name,
                        t->size_min, t->size_unit);
    return 0;
}

static int parse_finish(const struct wf_perf_options *o, struct wf_perf_complaint *c)
{
    if (o->alone)
        return finish_alone(o, c);
    if (!o->ntests)
        return complain(c, "which test? weft perf --help lists them");
    if (o->plot && o->size_last == o->size_first)
        return complain(c, "--plot draws a sweep over sizes: give one, such as --size 8:1M");
    if (o->plot && o->ntests > 1)
        return complain(c, "--plot draws one test: \"%s\" is a second one", o->tests[1]->name);
    for (unsigned i = 0; i < o->ntests; i++)
        if (suits(o, o->tests[i], c))
            return -1;
    return 0;
}

int wf_perf_parse(int argc, char **argv, struct wf_perf_options *o, struct wf_perf_complaint *c)
{
    for (int i = 1; i < argc; i++) {
        if (parse_flag(o, argv[i]))
            continue;
        if (argv[i][0] == '-' ? parse_option(o, argv, &i, c) : parse_test(o, argv[i], c))
            return -1;
    }
    return o->help ? 0 : parse_finish(o, c);
}
