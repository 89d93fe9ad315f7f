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
#include <sys/stat.h>

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

/* The commands that take an option: the tests between ranks, and subcommands. */
#define OF(alone) (1u << (alone))
#define TESTS OF(0)
#define COMPARE OF(WF_PERF_COMPARE)
#define CURVE OF(WF_PERF_CURVE)
#define ALL (~0u)

enum option {
    SIZE,
    ITERS,
    TIME,
    PAIRS,
    PLOT,
    TRANSPORT,
    FROM,
    TO,
    PEERS,
    CSV,
    SVG,
    HOSTS,
    AGENT, /* up to here they take a value */
    CACHED,
    FRESH,
    JSON,
    STRICT,
    HELP,
    OPTIONS
};
#define VALUED CACHED

static const struct {
    const char *name;
    unsigned of;
} options[OPTIONS] = {
    [SIZE] = {"--size", TESTS},
    [ITERS] = {"--iters", TESTS | COMPARE | CURVE},
    [TIME] = {"--time", TESTS},
    [PAIRS] = {"--pairs", TESTS | COMPARE | CURVE},
    [PLOT] = {"--plot", TESTS | COMPARE},
    [TRANSPORT] = {"--transport", TESTS | COMPARE | CURVE},
    [FROM] = {"--from", CURVE},
    [TO] = {"--to", CURVE},
    [PEERS] = {"--peers", CURVE},
    [CSV] = {"--csv", CURVE},
    [SVG] = {"--svg", CURVE},
    [HOSTS] = {"--hosts", CURVE},
    [AGENT] = {"--agent", CURVE},
    [CACHED] = {"--cached", TESTS},
    [FRESH] = {"--fresh", TESTS},
    [JSON] = {"--json", ALL},
    [STRICT] = {"--strict", CURVE},
    [HELP] = {"--help", ALL},
};

static const char *const transport_names[] = {"shm", "tcp", "rdma", NULL};

/* Subcommands that are no tests between ranks. */
static const char *const alone[] = {[WF_PERF_LIMITS] = "limits",
                                    [WF_PERF_MEM] = "mem",
                                    [WF_PERF_REG] = "reg",
                                    [WF_PERF_COMPARE] = "compare",
                                    [WF_PERF_CURVE] = "curve"};

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

/* The bound of a curve. */
static int parse_bound(const char *name, const char *value, size_t *out,
                       struct wf_perf_complaint *c)
{
    uint64_t v;
    const char *end;
    if (parse_number(value, true, WF_PERF_SIZE_MAX, &v, &end) || *end || (v & (v - 1)))
        return complain(c, "%s %s: give bytes, a power of two from 1 to 1G, such as 64k", name,
                        value);
    *out = (size_t)v;
    return 0;
}

static int parse_peer(struct wf_perf_options *o, const char *name, struct wf_perf_complaint *c)
{
    const char *names[16] = {"none"};
    for (size_t i = 0; i < wf_rivals_count; i++) {
        names[i + 1] = wf_rivals[i].name;
        if (!strcmp(name, wf_rivals[i].name)) {
            o->peers |= 1u << i;
            return 0;
        }
    }
    return no_such(c, "library", name, names);
}

/* Names separated by commas, or "none". */
static int parse_peers(struct wf_perf_options *o, const char *value, struct wf_perf_complaint *c)
{
    char name[32];
    for (const char *at = value; strcmp(value, "none"); at++) {
        size_t n = strcspn(at, ",");
        if (!n)
            return complain(
                c, "--peers %s: give names with commas between, as ucx,openmpi, or none", value);
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (parse_peer(o, name, c))
            return -1;
        at += n;
        if (!*at)
            break;
    }
    return 0;
}

static int parse_svg(struct wf_perf_options *o, const char *value, struct wf_perf_complaint *c)
{
    size_t n = strlen(value);
    struct stat is;
    o->svg_folder = stat(value, &is) == 0 && S_ISDIR(is.st_mode);
    if (!o->svg_folder && (n < 5 || strcmp(value + n - 4, ".svg")))
        return complain(c, "--svg %s: give a file that ends in .svg, or a folder that exists",
                        value);
    o->svg = value;
    return 0;
}

/* Two names with a comma between. */
static int parse_hosts(struct wf_perf_options *o, const char *value, struct wf_perf_complaint *c)
{
    size_t n = strcspn(value, ",");
    const char *second = value[n] ? value + n + 1 : "";
    if (!n || n >= sizeof o->host[0] || !*second || strchr(second, ',') ||
        strlen(second) >= sizeof o->host[1])
        return complain(c, "--hosts %s: give two names of hosts, such as alpha,beta", value);
    snprintf(o->host[0], sizeof o->host[0], "%.*s", (int)n, value);
    snprintf(o->host[1], sizeof o->host[1], "%s", second);
    return 0;
}

static int parse_count(struct wf_perf_options *o, enum option which, const char *value,
                       struct wf_perf_complaint *c)
{
    uint64_t v;
    const char *end;
    if (which == ITERS) {
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

static int parse_time(struct wf_perf_options *o, const char *value, struct wf_perf_complaint *c)
{
    uint64_t v;
    const char *end;
    if (parse_number(value, false, WF_PERF_TIME_MAX_MS, &v, &end) || *end)
        return complain(c, "--time %s: give milliseconds, from 1 to %u", value,
                        WF_PERF_TIME_MAX_MS);
    o->time_ms = (unsigned)v;
    return 0;
}

static int parse_valued(struct wf_perf_options *o, enum option which, const char *value,
                        struct wf_perf_complaint *c)
{
    if (!value || !*value)
        return complain(c, "%s needs a value", options[which].name);
    switch (which) {
    case SIZE: return parse_size(o, value, c);
    case TIME: return parse_time(o, value, c);
    case PLOT: return parse_plot(o, value, c);
    case TRANSPORT: return parse_transport(o, value, c);
    case FROM: return parse_bound("--from", value, &o->from, c);
    case TO: return parse_bound("--to", value, &o->to, c);
    case PEERS: return parse_peers(o, value, c);
    case CSV: o->csv = value; return 0;
    case SVG: return parse_svg(o, value, c);
    case HOSTS: return parse_hosts(o, value, c);
    case AGENT: o->agent = value; return 0;
    default: return parse_count(o, which, value, c);
    }
}

static int no_option(struct wf_perf_complaint *c, const char *arg)
{
    const char *names[OPTIONS + 1] = {NULL};
    for (unsigned i = 0; i < OPTIONS; i++)
        names[i] = options[i].name;
    return no_such(c, "option", arg, names);
}

/* --json=FILE writes to a file, where that is possible. */
static int parse_flag(struct wf_perf_options *o, enum option which, const char *value,
                      struct wf_perf_complaint *c)
{
    if (value && (which != JSON || !*value))
        return complain(c, "%s takes no value", options[which].name);
    o->json_file = value ? value : o->json_file;
    o->json |= which == JSON && !value;
    o->cached |= which == CACHED;
    o->fresh |= which == FRESH;
    o->strict |= which == STRICT;
    o->help |= which == HELP;
    return 0;
}

static int parse_option(struct wf_perf_options *o, char **argv, int *at,
                        struct wf_perf_complaint *c)
{
    const char *arg = argv[*at], *equals = strchr(arg, '='), *value = equals ? equals + 1 : NULL;
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    if (!strcmp(arg, "-h"))
        return parse_flag(o, HELP, NULL, c);
    for (unsigned i = 0; i < OPTIONS; i++) {
        if (strlen(options[i].name) != n || strncmp(arg, options[i].name, n))
            continue;
        o->given |= 1u << i;
        return i < VALUED ? parse_valued(o, (enum option)i, equals ? value : argv[++*at], c)
                          : parse_flag(o, (enum option)i, value, c);
    }
    return no_option(c, arg);
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

/* A subcommand: 0, or -1 if there is already something else. */
static int parse_alone(struct wf_perf_options *o, enum wf_perf_alone which,
                       struct wf_perf_complaint *c)
{
    if (o->alone == WF_PERF_CURVE || o->alone == which)
        return complain(c, "%s: name a test of weft perf, or none", alone[which]);
    if (o->ntests || o->alone)
        return complain(c, "%s runs by itself, without another test", alone[which]);
    o->alone = which;
    return 0;
}

static int parse_test(struct wf_perf_options *o, const char *name, struct wf_perf_complaint *c)
{
    const char *names[40] = {"limits", "mem", "reg", "compare", "curve", "threads"};
    if (o->alone == WF_PERF_COMPARE && !o->only)
        return parse_only(o, name, c);
    const struct wf_perf_test *found = NULL;
    for (int i = WF_PERF_LIMITS; i <= WF_PERF_CURVE; i++)
        if (!strcmp(name, alone[i]))
            return parse_alone(o, (enum wf_perf_alone)i, c);
    for (size_t i = 0; i < wf_perf_tests_count; i++) {
        names[i + WF_PERF_CURVE + 1] = wf_perf_tests[i].name;
        if (!strcmp(name, wf_perf_tests[i].name))
            found = &wf_perf_tests[i];
    }
    if (!found)
        return no_such(c, "test", name, names);
    if (o->alone && o->alone != WF_PERF_CURVE)
        return complain(c, "%s runs by itself, without another test", alone[o->alone]);
    if (o->ntests == WF_PERF_TESTS_MAX)
        return complain(c, "at most %d tests at a time", WF_PERF_TESTS_MAX);
    o->tests[o->ntests++] = found;
    return 0;
}

/* Has what runs the options that were given? */
static int finish_options(const struct wf_perf_options *o, struct wf_perf_complaint *c)
{
    for (unsigned i = 0; i < OPTIONS; i++) {
        if (!(o->given & 1u << i) || options[i].of & OF(o->alone))
            continue;
        if (options[i].of == CURVE)
            return complain(c, "%s is an option of weft perf curve", options[i].name);
        if (o->alone == WF_PERF_CURVE && i == SIZE)
            return complain(c, "curve takes --from and --to instead of --size");
        if (o->alone == WF_PERF_CURVE && i == PLOT)
            return complain(c, "curve takes --svg instead of --plot");
        if (OF(o->alone) & (COMPARE | CURVE))
            return complain(c, "%s takes no %s", alone[o->alone], options[i].name);
        return complain(c, "%s takes no option but --json", alone[o->alone]);
    }
    if (o->json_file && o->alone != WF_PERF_CURVE)
        return complain(c, "--json=%s: only curve writes to a file: leave the name out",
                        o->json_file);
    if (o->alone == WF_PERF_COMPARE && o->pairs && o->pairs < WF_PERF_COMPARE_PAIRS)
        return complain(c, "--pairs %u: compare needs at least %u", o->pairs,
                        WF_PERF_COMPARE_PAIRS);
    return 0;
}

static int finish_curve(struct wf_perf_options *o, struct wf_perf_complaint *c)
{
    o->all_peers = !(o->given & 1u << PEERS);
    o->from = o->from ? o->from : 1;
    o->to = o->to ? o->to : WF_PERF_CURVE_TO > o->from ? WF_PERF_CURVE_TO : o->from;
    if (o->to < o->from)
        return complain(c, "--from %zu --to %zu: the first must not be larger than the second",
                        o->from, o->to);
    if (o->host[0][0] && (!o->transport || !strcmp(o->transport, "shm")))
        return complain(c, "--hosts: hosts share no memory: give --transport tcp or rdma");
    if (o->agent && !o->host[0][0])
        return complain(c, "--agent %s: runs commands on hosts: give --hosts", o->agent);
    for (unsigned i = 0; i < o->ntests; i++) {
        const struct wf_perf_test *t = o->tests[i];
        if (!t->size || t->fixed)
            return complain(c, "%s has one size only: curve is for tests that have several",
                            t->name);
        if (o->to < t->size_min)
            return complain(c, "%s: sizes begin at %zu bytes: give --to at least that", t->name,
                            t->size_min);
    }
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

static int parse_finish(struct wf_perf_options *o, struct wf_perf_complaint *c)
{
    if (finish_options(o, c))
        return -1;
    if (o->alone)
        return o->alone == WF_PERF_CURVE ? finish_curve(o, c) : 0;
    if (!o->ntests)
        return complain(c, "which test? weft perf --help lists them");
    if (o->time_ms && o->iters)
        return complain(c, "--time and --iters both say how long a run is: give one of them");
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
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' ? parse_option(o, argv, &i, c) : parse_test(o, argv[i], c))
            return -1;
    return o->help ? 0 : parse_finish(o, c);
}
