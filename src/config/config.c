/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/handle.h"
#include "base/log.h"
#include "base/util.h"

extern char **environ;

enum kind { KIND_UINT, KIND_ASKED, KIND_SHARE, KIND_BOOL, KIND_ENUM, KIND_STRING };

struct param {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *dflt;   /* as typed */
    uint64_t min, max;  /* KIND_STRING: characters; KIND_ASKED: or the default's word */
    const char *values; /* KIND_ENUM: "a|b|c" */
    const char *doc;
};

#define FIELD(f) offsetof(struct wf_config, f)
static const struct param params[] = {
#define WF_PARAM_UINT(field, name, dflt, min, max, doc)                                            \
    {name, KIND_UINT, FIELD(field), #dflt, min, max, NULL, doc},
#define WF_PARAM_ASKED(field, name, min, max, doc)                                                 \
    {name, KIND_ASKED, FIELD(field), "asked", min, max, NULL, doc},
#define WF_PARAM_AUTO(field, name, min, max, doc)                                                  \
    {name, KIND_ASKED, FIELD(field), "auto", min, max, NULL, doc},
#define WF_PARAM_SHARE(field, name, dflt, doc)                                                     \
    {name, KIND_SHARE, FIELD(field), dflt, 0, 0, NULL, doc},
#define WF_PARAM_BOOL(field, name, dflt, doc)                                                      \
    {name, KIND_BOOL, FIELD(field), #dflt, 0, 1, NULL, doc},
#define WF_PARAM_ENUM(field, name, dflt, values, doc)                                              \
    {name, KIND_ENUM, FIELD(field), dflt, 0, 0, values, doc},
#define WF_PARAM_STRING(field, name, dflt, max, doc)                                               \
    {name, KIND_STRING, FIELD(field), dflt, 0, max, NULL, doc},
#include "config/params.def"
#undef WF_PARAM_UINT
#undef WF_PARAM_ASKED
#undef WF_PARAM_AUTO
#undef WF_PARAM_SHARE
#undef WF_PARAM_BOOL
#undef WF_PARAM_ENUM
#undef WF_PARAM_STRING
};

/* WEFT_ names that mean something elsewhere: to the tool, tests or bindings. */
static const char *const known_elsewhere[] = {"WEFT_TEST_", "WEFT_HOOK"};

static struct wf_config config;
static enum weft_status config_status;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

static int parse_uint(const char *text, uint64_t *out)
{
    static const char suffixes[] = "kmgt";
    const char *at;
    char *end;
    uint64_t v;
    unsigned shift = 0;
    if (!isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    v = strtoull(text, &end, 0);
    if (errno)
        return -1;
    if (*end && (at = strchr(suffixes, tolower((unsigned char)*end)))) {
        shift = 10 * (unsigned)(at - suffixes + 1);
        end++;
    }
    if (*end || (shift && v > UINT64_MAX >> shift))
        return -1;
    *out = v << shift;
    return 0;
}

/* Digits, with a point or without: whatever the locale. */
static double parse_decimal(const char *text, const char **end)
{
    double v = 0, place = 1;
    while (isdigit((unsigned char)*text))
        v = 10 * v + (*text++ - '0');
    if (*text == '.')
        while (isdigit((unsigned char)*++text))
            v += (*text - '0') * (place /= 10);
    *end = text;
    return v;
}

/* "5/8" or "0.8", above 0 and at most 1; else bytes. */
static int parse_share(const char *text, struct wf_share *out)
{
    struct wf_share share = {0, 0};
    const char *end;
    double part = parse_decimal(text, &end), whole = 1;
    if (*end == '/')
        whole = parse_decimal(end + 1, &end);
    else if (!strchr(text, '.')) {
        if (parse_uint(text, &share.bytes) || !share.bytes)
            return -1;
        *out = share;
        return 0;
    }
    if (*end || !(part > 0 && part <= whole))
        return -1;
    out->fraction = part / whole;
    out->bytes = 0;
    return 0;
}

static int parse_bool(const char *text, int *out)
{
    static const char *const names[2][4] = {{"0", "no", "off", "false"},
                                            {"1", "yes", "on", "true"}};
    for (int v = 0; v < 2; v++)
        for (size_t i = 0; i < 4; i++)
            if (!strcasecmp(text, names[v][i])) {
                *out = v;
                return 0;
            }
    return -1;
}

/* Index of [text] in "a|b|c", or -1. */
static int parse_enum(const char *values, const char *text)
{
    size_t len = strlen(text);
    int i = 0;
    for (const char *v = values; len; i++) {
        size_t n = strcspn(v, "|");
        if (n == len && !strncasecmp(v, text, n))
            return i;
        if (!v[n])
            break;
        v += n + 1;
    }
    return -1;
}

/* A copy, which lives as long as the process: the environment may change. */
static int parse_string(const struct param *p, const char *text, const char **out)
{
    char *copy = strlen(text) <= p->max ? strdup(text) : NULL;
    if (copy)
        *out = copy;
    return copy ? 0 : -1;
}

static int param_set(const struct param *p, struct wf_config *c, const char *text)
{
    void *field = (char *)c + p->offset;
    uint64_t v;
    int i;
    switch (p->kind) {
    case KIND_ASKED:
        if (!strcasecmp(text, p->dflt)) {
            *(uint64_t *)field = WF_ASKED;
            return 0;
        }
        __attribute__((fallthrough));
    case KIND_UINT:
        if (parse_uint(text, &v) || v < p->min || v > p->max)
            return -1;
        *(uint64_t *)field = v;
        return 0;
    case KIND_SHARE: return parse_share(text, field);
    case KIND_BOOL: return parse_bool(text, field);
    case KIND_ENUM:
        i = parse_enum(p->values, text);
        if (i >= 0)
            *(int *)field = i;
        return i < 0 ? -1 : 0;
    case KIND_STRING: return parse_string(p, text, field);
    }
    return -1;
}

static void param_complain(const struct param *p, const char *text)
{
    if (p->kind == KIND_UINT)
        wf_error("%s=%s: must be a number from %" PRIu64 " to %" PRIu64
                 " (K, M, G, T stand for 2^10, 2^20, 2^30, 2^40): %s",
                 p->name, text, p->min, p->max, p->doc);
    else if (p->kind == KIND_ASKED)
        wf_error("%s=%s: must be a number from %" PRIu64 " to %" PRIu64
                 " (K, M, G, T stand for 2^10, 2^20, 2^30, 2^40), or %s: %s",
                 p->name, text, p->min, p->max, p->dflt, p->doc);
    else if (p->kind == KIND_SHARE)
        wf_error(
            "%s=%s: must be a fraction above 0 and at most 1 (0.8, 5/8), or bytes (16G; K, M, G, "
            "T stand for 2^10, 2^20, 2^30, 2^40): %s",
            p->name, text, p->doc);
    else if (p->kind == KIND_STRING)
        wf_error("%s=%.64s: must be at most %" PRIu64 " characters: %s", p->name, text, p->max,
                 p->doc);
    else
        wf_error("%s=%s: must be one of %s: %s", p->name, text,
                 p->kind == KIND_BOOL ? "0|1|no|yes|off|on" : p->values, p->doc);
}

/* Edit distance, for "did you mean". Both at most 63 long; beyond that: far. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[64], la = (unsigned)strlen(a), lb = (unsigned)strlen(b);
    if (la > 63 || lb > 63)
        return 99;
    for (unsigned j = 0; j <= lb; j++)
        row[j] = j;
    for (unsigned i = 1; i <= la; i++) {
        unsigned diag = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= lb; j++) {
            unsigned up = row[j], sub = diag + (a[i - 1] != b[j - 1]);
            diag = up;
            row[j] = WF_MIN(WF_MIN(up, row[j - 1]) + 1, sub);
        }
    }
    return row[lb];
}

static void warn_unknown(const char *entry)
{
    const struct param *best = &params[0];
    char name[64];
    size_t n = strcspn(entry, "=");
    unsigned near = 99;
    for (size_t i = 0; i < WF_ARRAY_LEN(known_elsewhere); i++)
        if (!strncmp(entry, known_elsewhere[i], strlen(known_elsewhere[i])))
            return;
    snprintf(name, sizeof name, "%.*s", (int)WF_MIN(n, sizeof name - 1), entry);
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++) {
        unsigned d = distance(name, params[i].name);
        if (!d)
            return;
        if (d < near)
            near = d, best = &params[i];
    }
    wf_warn("%s is not a variable of Weft; the nearest is %s (weft info --config lists all)", name,
            best->name);
}

/* Values that depend on each other or on powers of two. */
static void round_values(struct wf_config *c)
{
    c->am_max = wf_align_up(c->am_max, 64);
    while (c->shm_slots & (c->shm_slots - 1))
        c->shm_slots += c->shm_slots & -c->shm_slots;
    c->shm_payload = WF_MAX(c->shm_payload, 4 * (c->am_max + 64));
    while (c->shm_payload & (c->shm_payload - 1))
        c->shm_payload += c->shm_payload & -c->shm_payload;
    c->slab = wf_align_up(c->slab, 65536);
}

static void set_defaults(void)
{
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++)
        if (params[i].kind == KIND_UINT && !strcmp(params[i].dflt, "UINT64_MAX"))
            *(uint64_t *)(void *)((char *)&config + params[i].offset) = UINT64_MAX;
        else if (params[i].kind == KIND_STRING)
            *(const char **)(void *)((char *)&config + params[i].offset) = params[i].dflt;
        else
            (void)param_set(&params[i], &config, params[i].dflt);
}

/* What libfabric calls some of them, for programs that were tuned there. They are not Weft's: what
 * cannot be read as a value is left alone, and the own name goes first. */
static const struct {
    const char *theirs, *ours;
} aliases[] = {{"FI_MR_CACHE_MAX_SIZE", "WEFT_MR_CACHE_SIZE"},
               {"FI_MR_CACHE_MAX_COUNT", "WEFT_MR_CACHE_COUNT"},
               {"FI_MR_CACHE_MERGE_REGIONS", "WEFT_MR_CACHE_MERGE"}};

static int set_by_name(const char *name, const char *text)
{
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++)
        if (!strcmp(params[i].name, name))
            return param_set(&params[i], &config, text);
    return -1;
}

static void alias_read(const char *theirs, const char *ours)
{
    const char *text = getenv(theirs);
    uint64_t v;
    if (!text || getenv(ours))
        return;
    if (!strcmp(ours, "WEFT_MR_CACHE_SIZE") && !parse_uint(text, &v)) {
        if (v == UINT64_MAX) /* there: no limit */
            text = "0";
        else if (!v && !getenv("WEFT_MR_CACHE_COUNT")) { /* there: no cache */
            (void)set_by_name("WEFT_MR_CACHE_COUNT", "0");
            return;
        }
    }
    if (set_by_name(ours, text))
        wf_warn("%s=%s is not taken for %s: no value of its kind", theirs, text, ours);
}

static void config_read(void)
{
    set_defaults();
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++) {
        const char *text = getenv(params[i].name);
        if (text && param_set(&params[i], &config, text)) {
            param_complain(&params[i], text);
            config_status = WEFT_EINVAL;
        }
    }
    round_values(&config);
    wf_log_set_level((enum wf_log_level)config.log);
    if (config.debug)
        wf_handles_keep();
    for (size_t i = 0; i < WF_ARRAY_LEN(aliases); i++)
        alias_read(aliases[i].theirs, aliases[i].ours);
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, "WEFT_", 5))
            warn_unknown(*e);
}

enum weft_status wf_config_init(void)
{
    pthread_once(&config_once, config_read);
    return config_status;
}

const struct wf_config *wf_config(void)
{
    pthread_once(&config_once, config_read);
    return &config;
}

const char *wf_config_launcher(const char *name)
{
    return getenv(name);
}

void weft_config_rows(weft_config_row_fn row, void *arg)
{
    const struct wf_config *c = wf_config();
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++) {
        const struct param *p = &params[i];
        const void *field = (const char *)c + p->offset;
        char value[64];
        if (p->kind == KIND_ASKED && *(const uint64_t *)field == WF_ASKED) {
            snprintf(value, sizeof value, "%s", p->dflt);
        } else if (p->kind == KIND_SHARE && ((const struct wf_share *)field)->fraction > 0) {
            snprintf(value, sizeof value, "%g", ((const struct wf_share *)field)->fraction);
        } else if (p->kind == KIND_SHARE) {
            snprintf(value, sizeof value, "%" PRIu64, ((const struct wf_share *)field)->bytes);
        } else if (p->kind == KIND_UINT || p->kind == KIND_ASKED) {
            snprintf(value, sizeof value, "%" PRIu64, *(const uint64_t *)field);
        } else if (p->kind == KIND_BOOL) {
            snprintf(value, sizeof value, "%d", *(const int *)field);
        } else if (p->kind == KIND_ENUM) {
            const char *v = p->values;
            for (int k = *(const int *)field; k > 0; k--)
                v += strcspn(v, "|") + 1;
            snprintf(value, sizeof value, "%.*s", (int)strcspn(v, "|"), v);
        }
        row(arg, p->name, p->kind == KIND_STRING ? *(const char *const *)field : value, p->dflt,
            p->doc);
    }
}
