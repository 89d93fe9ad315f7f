/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

static const char suffixes[] = "KMGT";

/* Returns whether [text] may follow a number: [text] is empty, or it is "B" or "iB" and the number
 * counts bytes. */
static int is_bytes_end(const char *text, enum wf_unit unit)
{
    return !*text || (unit == WF_UNIT_BYTES && (!strcasecmp(text, "B") || !strcasecmp(text, "iB")));
}

static int parse_integer(const char *text, enum wf_unit unit, uint64_t *out)
{
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
    if (*end && (at = strchr(suffixes, toupper((unsigned char)*end)))) {
        shift = 10 * (unsigned)(at - suffixes + 1);
        end++;
    }
    if (!is_bytes_end(end, unit) || (shift && v > UINT64_MAX >> shift))
        return -1;
    *out = v << shift;
    return 0;
}

/* Parse digits, with or without a decimal point. The point is "." in all locales, but strtod uses
 * the point of the current locale. */
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

/* Parse a time. Returns -1 if [text] is not a whole number of milliseconds. */
static int parse_ms(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"min", 60e3}, {"h", 3600e3}};
    const char *end;
    double v = parse_decimal(text, &end);
    if (!*end && end > text)
        return strchr(text, '.') ? -1 : parse_integer(text, WF_UNIT_NONE, out);
    for (size_t i = 0; i < WF_ARRAY_LEN(units); i++)
        if (isdigit((unsigned char)text[0]) && !strcasecmp(end, units[i].name)) {
            double ms = v * units[i].ms, whole = (double)(uint64_t)WF_MIN(ms + 0.5, 1e18);
            if (ms > 1e18 || ms - whole > 1e-6 || whole - ms > 1e-6)
                return -1;
            *out = (uint64_t)whole;
            return 0;
        }
    return -1;
}

int wf_value_number(const char *text, enum wf_unit unit, uint64_t *out)
{
    return unit == WF_UNIT_MS ? parse_ms(text, out) : parse_integer(text, unit, out);
}

int wf_value_share(const char *text, struct wf_share *out)
{
    struct wf_share share = {0, 0};
    const char *end;
    double part = parse_decimal(text, &end), whole = 1;
    if (*end == '/')
        whole = parse_decimal(end + 1, &end);
    else if (!strchr(text, '.')) {
        if (parse_integer(text, WF_UNIT_BYTES, &share.bytes) || !share.bytes)
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

int wf_value_bool(const char *text, int *out)
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

int wf_value_enum(const char *values, const char *text, int *out)
{
    size_t len = strlen(text);
    int i = 0;
    for (const char *v = values; len; i++) {
        size_t n = strcspn(v, "|");
        if (n == len && !strncasecmp(v, text, n)) {
            *out = i;
            return 0;
        }
        if (!v[n])
            break;
        v += n + 1;
    }
    return -1;
}

void wf_value_print(char text[WF_VALUE_TEXT], uint64_t v, enum wf_unit unit)
{
    unsigned n = 0;
    if (unit == WF_UNIT_NONE || !v)
        snprintf(text, WF_VALUE_TEXT, "%" PRIu64, v);
    else if (unit == WF_UNIT_MS)
        snprintf(text, WF_VALUE_TEXT, "%" PRIu64 "%s", v % 1000 ? v : v / 1000,
                 v % 1000 ? "ms" : "s");
    else {
        for (; n < 4 && v % 1024 == 0; n++)
            v /= 1024;
        snprintf(text, WF_VALUE_TEXT, "%" PRIu64 "%c", v, n ? suffixes[n - 1] : 'B');
    }
}
