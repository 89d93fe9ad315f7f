/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "config/config.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/handle.h"
#include "base/log.h"
#include "base/util.h"
#include "config/debug.h"

extern char **environ;

enum kind { KIND_NUMBER, KIND_SHARE, KIND_BOOL, KIND_ENUM, KIND_STRING };

struct param {
    const char *name;
    enum kind kind;
    enum wf_unit unit;
    size_t offset;
    const char *dflt;   /* as typed */
    uint64_t min, max;  /* limits of a number; KIND_STRING: limits of its length */
    const char *values; /* KIND_ENUM: "a|b|c" */
    const char *doc;
};

#define FIELD(f) offsetof(struct wf_config, f)
static const struct param params[] = {
#define WF_PARAM_NUMBER(field, name, unit, dflt, min, max, doc)                                    \
    {name, KIND_NUMBER, WF_UNIT_##unit, FIELD(field), dflt, min, max, NULL, doc},
#define WF_PARAM_SHARE(field, name, dflt, doc)                                                     \
    {name, KIND_SHARE, WF_UNIT_BYTES, FIELD(field), dflt, 0, 0, NULL, doc},
#define WF_PARAM_BOOL(field, name, dflt, doc)                                                      \
    {name, KIND_BOOL, WF_UNIT_NONE, FIELD(field), #dflt, 0, 1, NULL, doc},
#define WF_PARAM_ENUM(field, name, dflt, values, doc)                                              \
    {name, KIND_ENUM, WF_UNIT_NONE, FIELD(field), dflt, 0, 0, values, doc},
#define WF_PARAM_STRING(field, name, dflt, max, doc)                                               \
    {name, KIND_STRING, WF_UNIT_NONE, FIELD(field), dflt, 0, max, NULL, doc},
#include "config/params.def"
#undef WF_PARAM_NUMBER
#undef WF_PARAM_SHARE
#undef WF_PARAM_BOOL
#undef WF_PARAM_ENUM
#undef WF_PARAM_STRING
};

#ifndef WF_DEFAULTS
#define WF_DEFAULTS ""
#endif
const char *wf_config_built = WF_DEFAULTS;
static const char *built[WF_ARRAY_LEN(params)]; /* defaults of this build; NULL: params.def's */

/* Prefixes of variables that Weft's tool, tests or bindings read. No warning is logged for
 * variables with these prefixes. */
static const char *const known_elsewhere[] = {"WEFT_TEST_", "WEFT_HOOK"};

/* Variables of earlier versions, and the variables to use instead. */
static const struct {
    const char *name, *instead;
} renamed[] = {
#define WF_RENAMED(name, instead) {name, instead},
#include "config/renamed.def"
#undef WF_RENAMED
};

static struct wf_config config;
static enum weft_status config_status;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* Returns the word ("asked" or "auto") that may stand for a number of [p]; this word is also the
 * default. Returns NULL if the value of [p] is always a number. */
static const char *param_word(const struct param *p)
{
    return p->kind == KIND_NUMBER && (p->dflt[0] < '0' || p->dflt[0] > '9') ? p->dflt : NULL;
}

static int set_number(const struct param *p, uint64_t *field, const char *text)
{
    const char *word = param_word(p);
    uint64_t v = WF_ASKED;
    if (!word || strcasecmp(text, word) != 0)
        if (wf_value_number(text, p->unit, &v) || v < p->min || v > p->max)
            return -1;
    *field = v;
    return 0;
}

/* Store a copy of [text] that lives as long as the process, because the program may change the
 * environment. */
static int set_string(const struct param *p, const char **field, const char *text)
{
    char *copy = strlen(text) <= p->max ? strdup(text) : NULL;
    if (copy)
        *field = copy;
    return copy ? 0 : -1;
}

static int param_set(const struct param *p, struct wf_config *c, const char *text)
{
    void *field = (char *)c + p->offset;
    switch (p->kind) {
    case KIND_NUMBER: return set_number(p, field, text);
    case KIND_SHARE: return wf_value_share(text, field);
    case KIND_BOOL: return wf_value_bool(text, field);
    case KIND_ENUM: return wf_value_enum(p->values, text, field);
    case KIND_STRING: return set_string(p, field, text);
    }
    return -1;
}

#define SUFFIXES "K, M, G, T stand for 2^10, 2^20, 2^30, 2^40"
static const char *const suffixes[] = {[WF_UNIT_NONE] = " (" SUFFIXES ")",
                                       [WF_UNIT_BYTES] = " bytes (" SUFFIXES ")",
                                       [WF_UNIT_MS] =
                                           " milliseconds, or a time (500ms, 10s, 2m, 1h)"};

static void param_complain(const struct param *p, const char *text)
{
    const char *word = param_word(p);
    if (p->kind == KIND_NUMBER)
        wf_error("%s=%s: must be a number from %" PRIu64 " to %" PRIu64 "%s%s%s: %s", p->name, text,
                 p->min, p->max, suffixes[p->unit], word ? ", or " : "", word ? word : "", p->doc);
    else if (p->kind == KIND_SHARE)
        wf_error(
            "%s=%s: must be a fraction above 0 and at most 1 (0.8, 5/8), or bytes (16G; " SUFFIXES
            "): %s",
            p->name, text, p->doc);
    else if (p->kind == KIND_STRING)
        wf_error("%s=%.64s: must be at most %" PRIu64 " characters: %s", p->name, text, p->max,
                 p->doc);
    else
        wf_error("%s=%s: must be one of %s: %s", p->name, text,
                 p->kind == KIND_BOOL ? "0|1|no|yes|off|on" : p->values, p->doc);
}

/* Returns the edit distance of two names, for "did you mean". Returns 99 if a name has more than 63
 * characters. */
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

static int is_renamed(const char *entry)
{
    size_t n = strcspn(entry, "=");
    for (size_t i = 0; i < WF_ARRAY_LEN(renamed); i++)
        if (strlen(renamed[i].name) == n && !strncmp(entry, renamed[i].name, n)) {
            wf_error("%s is not read any more: use %s", renamed[i].name, renamed[i].instead);
            return 1;
        }
    return 0;
}

/* Raise values to the multiples or powers of two that the code needs. Raise shm_payload to its
 * minimum, which depends on am_max. */
static void round_values(struct wf_config *c)
{
    c->am_max = wf_align_up(c->am_max, 64);
    while (c->shm_slots & (c->shm_slots - 1))
        c->shm_slots += c->shm_slots & -c->shm_slots;
    c->shm_payload = WF_MAX(c->shm_payload, 4 * c->am_max);
    while (c->shm_payload & (c->shm_payload - 1))
        c->shm_payload += c->shm_payload & -c->shm_payload;
    while (c->node_ring & (c->node_ring - 1))
        c->node_ring += c->node_ring & -c->node_ring;
    c->slab = wf_align_up(c->slab, 65536);
}

/* Take the defaults that this build was given: words NAME=VALUE with spaces between them. Those of
 * a binding's variables are the binding's. */
static void set_built(void)
{
    char *words = strdup(wf_config_built), *rest = NULL;
    for (char *w = words ? strtok_r(words, " ", &rest) : NULL; w; w = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(w, '=');
        size_t i = 0;
        if (strncmp(w, "WEFT_", 5))
            continue;
        if (value)
            *value++ = '\0';
        while (i < WF_ARRAY_LEN(params) && strcmp(params[i].name, w) != 0)
            i++;
        if (!value || i == WF_ARRAY_LEN(params)) {
            wf_error("this build has a default for %s, which is not a variable of Weft: build it "
                     "with another value of the Meson option defaults",
                     w);
            config_status = WEFT_EINVAL;
        } else if (param_set(&params[i], &config, value)) {
            param_complain(&params[i], value);
            config_status = WEFT_EINVAL;
        } else {
            built[i] = strdup(value);
        }
    }
    free(words);
}

static void set_defaults(void)
{
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++)
        if (params[i].kind == KIND_STRING)
            *(const char **)(void *)((char *)&config + params[i].offset) = params[i].dflt;
        else
            (void)param_set(&params[i], &config, params[i].dflt);
    wf_debug_defaults(&config);
    set_built();
}

/* Variables of libfabric that set the same values as variables of Weft, for programs that were
 * tuned with libfabric. If Weft's own variable is set, libfabric's variable is ignored. A value
 * that cannot be parsed is ignored with a warning, because the variable is not Weft's. */
static const struct {
    const char *theirs, *ours;
} aliases[] = {{"FI_MR_CACHE_MAX_SIZE", "WEFT_MR_CACHE_SIZE"},
               {"FI_MR_CACHE_MAX_COUNT", "WEFT_MR_CACHE_COUNT"}};

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
    if (!strcmp(ours, "WEFT_MR_CACHE_SIZE") && !wf_value_number(text, WF_UNIT_BYTES, &v)) {
        if (v == UINT64_MAX) /* libfabric: no limit */
            text = "0";
        else if (!v && !getenv("WEFT_MR_CACHE_COUNT")) { /* libfabric: no cache */
            (void)set_by_name("WEFT_MR_CACHE_COUNT", "0");
            return;
        }
    }
    if (set_by_name(ours, text))
        wf_warn("%s=%s is not taken for %s: no value of its kind", theirs, text, ours);
}

/* Read libfabric's FI_MR_CACHE_MERGE_REGIONS, which stands for the item "merge" of WEFT_DEBUG. The
 * variable can only switch merging on, and so cannot undo WEFT_DEBUG=merge. */
static void alias_read_merge(void)
{
    const char *text = getenv("FI_MR_CACHE_MERGE_REGIONS");
    int merge;
    if (!text)
        return;
    if (!wf_value_bool(text, &merge))
        config.mr_cache_merge |= (uint64_t)merge;
    else
        wf_warn("FI_MR_CACHE_MERGE_REGIONS=%s is not taken: no value of its kind", text);
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
    if (wf_debug_set(&config, config.debug) != WEFT_OK)
        config_status = WEFT_EINVAL;
    round_values(&config);
    wf_log_set_level((enum wf_log_level)config.log);
    if (config.handles)
        wf_handles_keep();
    for (size_t i = 0; i < WF_ARRAY_LEN(aliases); i++)
        alias_read(aliases[i].theirs, aliases[i].ours);
    alias_read_merge();
    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, "WEFT_", 5))
            continue;
        if (is_renamed(*e))
            config_status = WEFT_EINVAL;
        else
            warn_unknown(*e);
    }
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

/* Is this an entry of the environment that the node's service needs? Others may be a launcher's,
 * for one process only (PMIx), or the program's (LD_PRELOAD). */
static int is_for_service(const char *entry)
{
#ifdef WF_HOOKS
    if (strstr(entry, "SAN_OPTIONS=")) /* a test has to notice what a sanitizer finds there */
        return 1;
#endif
    return (!strncmp(entry, "WEFT_", 5) && strncmp(entry, "WEFT_NODE_NAME=", 15) != 0 &&
            strncmp(entry, "WEFT_KEY_FILE=", 14) != 0) || /* the service gets the key itself */
           !strncmp(entry, "LD_LIBRARY_PATH=", 16);
}

bool wf_config_wants(const char *name)
{
    const char *at = wf_config()->transports;
    size_t n = strlen(name);
    for (; *at; at += *at == ',') {
        if (!strncmp(at, name, n) && (!at[n] || at[n] == ','))
            return true;
        at += strcspn(at, ",");
    }
    return false;
}

char **wf_config_service_environment(const char *node_name)
{
    static const char name[] = "WEFT_NODE_NAME=";
    size_t count = 1, bytes = sizeof name + strlen(node_name);
    char **list, *text;
    for (char **e = environ; e && *e; e++)
        if (is_for_service(*e)) {
            count++;
            bytes += strlen(*e) + 1;
        }
    list = malloc((count + 1) * sizeof *list + bytes);
    if (!list)
        return NULL;
    text = (char *)(list + count + 1);
    list[0] = text;
    text += sprintf(text, "%s%s", name, node_name) + 1;
    count = 1;
    for (char **e = environ; e && *e; e++)
        if (is_for_service(*e)) {
            list[count++] = text;
            text = stpcpy(text, *e) + 1;
        }
    list[count] = NULL;
    return list;
}

/* Returns the value [field] of the variable [p] as text. The result is the buffer [text], or a
 * string that lives as long as the process. */
static const char *param_text(const struct param *p, const void *field, char text[WF_VALUE_TEXT])
{
    const struct wf_share *share = field;
    const char *v = p->values;
    switch (p->kind) {
    case KIND_NUMBER:
        if (param_word(p) && *(const uint64_t *)field == WF_ASKED)
            return p->dflt;
        wf_value_print(text, *(const uint64_t *)field, p->unit);
        return text;
    case KIND_SHARE:
        if (share->fraction > 0)
            snprintf(text, WF_VALUE_TEXT, "%g", share->fraction);
        else
            wf_value_print(text, share->bytes, p->unit);
        return text;
    case KIND_BOOL: return *(const int *)field ? "1" : "0";
    case KIND_ENUM:
        for (int k = *(const int *)field; k > 0; k--)
            v += strcspn(v, "|") + 1;
        snprintf(text, WF_VALUE_TEXT, "%.*s", (int)strcspn(v, "|"), v);
        return text;
    case KIND_STRING: break;
    }
    return *(const char *const *)field;
}

void weft_config_rows(weft_config_row_fn row, void *arg)
{
    const struct wf_config *c = wf_config();
    for (size_t i = 0; i < WF_ARRAY_LEN(params); i++) {
        const struct param *p = &params[i];
        char text[WF_VALUE_TEXT];
        row(arg, p->name, param_text(p, (const char *)c + p->offset, text),
            built[i] ? built[i] : p->dflt, p->doc);
    }
}
