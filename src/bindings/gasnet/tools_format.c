/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion of numbers to text and back, counts and sums of bytes, lists of transfers as text. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

char *gasnett_format_number(int64_t val, char *buf, size_t bufsz, int is_mem_size)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    uint64_t size = val < 0 ? 0 - (uint64_t)val : (uint64_t)val;
    const char *sign = val < 0 ? "-" : "";
    int unit = 4;
    if (size >= UINT64_C(1) << 50) {
        snprintf(buf, bufsz, "0x%" PRIx64, (uint64_t)val);
        return buf;
    }
    if (!is_mem_size) {
        snprintf(buf, bufsz, "%" PRId64, val);
        return buf;
    }
    while (unit > 0) {
        uint64_t one = UINT64_C(1) << (10 * unit);
        if (size >= 10 * one || (size >= one && size % one == 0))
            break;
        unit--;
    }
    snprintf(buf, bufsz, "%s%" PRIu64 " %s", sign, size >> (10 * unit), units[unit]);
    return buf;
}

/* Read a unit ("K", "KB", "KiB" or "B") and advance *p. Returns 0 if there is no unit. */
static uint64_t take_unit(const char **p)
{
    static const char letters[] = "bkmgt";
    const char *at = **p ? strchr(letters, tolower((unsigned char)**p)) : NULL;
    if (!at)
        return 0;
    (*p)++;
    if (at != letters) {
        if (**p == 'i' || **p == 'I')
            (*p)++;
        if (**p == 'b' || **p == 'B')
            (*p)++;
    }
    return UINT64_C(1) << (10 * (at - letters));
}

static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static const char too_big[] = "does not fit into 64 bits";

/* A number without a point, exactly. */
static const char *whole(const char *text, char **end, bool negative, uint64_t unit, int64_t *val)
{
    int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    uint64_t n;
    errno = 0;
    n = strtoull(text, end, base);
    /* Hexadecimal numbers are bit patterns, which may use the bit of the sign. */
    if (errno || __builtin_mul_overflow(n, unit, &n) ||
        (base == 10 && n > (uint64_t)INT64_MAX + negative))
        return too_big;
    *val = (int64_t)(negative ? 0 - n : n);
    return NULL;
}

const char *gasnetw_parse(const char *text, uint64_t mem_size_multiplier, int64_t *val)
{
    bool memory = mem_size_multiplier != 0, fraction, negative = false;
    const char *p = skip_space(text), *digits;
    uint64_t unit = 0;
    char *end;
    if (*p == '-' || *p == '+')
        negative = *p++ == '-';
    digits = p;
    if (!isdigit((unsigned char)*p) && *p != '.')
        return "is not a number";
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        p += 2;
        if (!isxdigit((unsigned char)*p))
            return "is not a number";
        p += strspn(p, "0123456789abcdefABCDEF"); /* in hexadecimal B is a digit, not a unit */
        fraction = false;
    } else {
        p += strspn(p, "0123456789");
        fraction = *p == '.';
        if (fraction)
            p += 1 + strspn(p + 1, "0123456789");
        if (fraction && p == digits + 1)
            return "is not a number";
    }
    p = skip_space(p);
    unit = take_unit(&p);
    if (unit && !memory)
        return "has a unit, but is no size";
    if (fraction && !memory)
        return "must be a whole number";
    if (*skip_space(p))
        return "has something behind the number";
    if (!memory)
        unit = 1;
    else if (!unit)
        unit = mem_size_multiplier;
    if (fraction) {
        double real = strtod(digits, &end) * (double)unit;
        if (real >= 0x1p63)
            return too_big;
        *val = (int64_t)(negative ? -real : real);
        return NULL;
    }
    return whole(digits, &end, negative, unit, val);
}

int64_t gasnett_parse_int(const char *str, uint64_t mem_size_multiplier)
{
    int64_t val = 0;
    const char *why = gasnetw_parse(str, mem_size_multiplier, &val);
    if (why)
        gasnett_fatalerror_nopos("gasnett_parse_int: \"%s\" %s", str, why);
    return val;
}

/* ---- bytes ---- */

/* Add [word] to a checksum. Each step is a bijection of the 64-bit state, so the change of one word
 * always changes the sum. The factor is 2^64 divided by the golden ratio, made odd. */
static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ (sum >> 32);
}

uint64_t gasnett_checksum(const void *p, size_t numbytes)
{
    const unsigned char *b = p;
    uint64_t sum = mix(0, numbytes), word;
    size_t left = numbytes;
    for (; left >= sizeof word; left -= sizeof word, b += sizeof word) {
        memcpy(&word, b, sizeof word);
        sum = mix(sum, word);
    }
    word = 0;
    if (left > 0)
        memcpy(&word, b, left);
    return mix(mix(sum, word), 0);
}

size_t gasnett_count0s(const void *p, size_t numbytes)
{
    const unsigned char *b = p;
    size_t n = 0;
    uint64_t word;
    for (; numbytes >= sizeof word; numbytes -= sizeof word, b += sizeof word) {
        memcpy(&word, b, sizeof word);
        n += (size_t)gasnett_count0s_uint64_t(word);
    }
    while (numbytes-- > 0)
        n += *b++ == 0;
    return n;
}

size_t gasnett_count0s_copy(void *dst, const void *src, size_t numbytes)
{
    const unsigned char *from = src;
    unsigned char *to = dst;
    size_t n = 0;
    uint64_t word;
    for (; numbytes >= sizeof word; numbytes -= sizeof word) {
        memcpy(&word, from, sizeof word);
        memcpy(to, &word, sizeof word);
        n += (size_t)gasnett_count0s_uint64_t(word);
        from += sizeof word;
        to += sizeof word;
    }
    while (numbytes-- > 0)
        n += (*to++ = *from++) == 0;
    return n;
}

/* ---- lists ---- */

/* The longest text of one number or address, with separators. */
#define ITEM 64u
/* The longest text of a line besides its numbers and addresses. */
#define LINE 256u

struct text {
    char *at;
    size_t room;
};

static void GASNETW_TOOLS_PRINTF(2, 3) put(struct text *t, const char *format, ...)
{
    va_list ap;
    int n;
    va_start(ap, format);
    n = vsnprintf(t->at, t->room, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= t->room)
        gasnett_fatalerror_nopos("text of a list is longer than its _bufsz said");
    t->at += n;
    t->room -= (size_t)n;
}

struct memvec { /* gasnet_memvec_t */
    void *addr;
    size_t len;
};

static void widen(void **low, void **high, void *addr, size_t len, bool is_first)
{
    char *end = (char *)addr + (len ? len - 1 : 0);
    if (is_first || (uintptr_t)addr < (uintptr_t)*low)
        *low = addr;
    if (is_first || (uintptr_t)end > (uintptr_t)*high)
        *high = end;
}

size_t gasnett_format_memveclist_bufsz(size_t count)
{
    return LINE + count * ITEM;
}

gasnett_memveclist_stats_t gasnett_format_memveclist(char *buf, size_t count, const void *list)
{
    const struct memvec *v = list;
    struct text t = {buf, gasnett_format_memveclist_bufsz(count)};
    gasnett_memveclist_stats_t stats = {0};
    for (size_t i = 0; i < count; i++) {
        stats.totalsz += v[i].len;
        if (i == 0 || v[i].len < stats.minsz)
            stats.minsz = v[i].len;
        if (v[i].len > stats.maxsz)
            stats.maxsz = v[i].len;
        widen(&stats.minaddr, &stats.maxaddr, v[i].addr, v[i].len, i == 0);
    }
    put(&t, "%zu entries, totalsz=%" PRIuPTR ", minsz=%zu, maxsz=%zu, bounds=[%p,%p], list=[",
        count, stats.totalsz, stats.minsz, stats.maxsz, stats.minaddr, stats.maxaddr);
    for (size_t i = 0; i < count; i++)
        put(&t, "%s{%p,%zu}", i ? ", " : "", v[i].addr, v[i].len);
    put(&t, "]");
    return stats;
}

size_t gasnett_format_addrlist_bufsz(size_t count)
{
    return LINE + count * ITEM;
}

gasnett_addrlist_stats_t gasnett_format_addrlist(char *buf, size_t count, void *const *list,
                                                 size_t len)
{
    struct text t = {buf, gasnett_format_addrlist_bufsz(count)};
    gasnett_addrlist_stats_t stats = {0};
    for (size_t i = 0; i < count; i++)
        widen(&stats.minaddr, &stats.maxaddr, list[i], len, i == 0);
    put(&t, "%zu entries, totalsz=%zu, bounds=[%p,%p], each len=%zu, list=[", count, count * len,
        stats.minaddr, stats.maxaddr, len);
    for (size_t i = 0; i < count; i++)
        put(&t, "%s%p", i ? ", " : "", list[i]);
    put(&t, "]");
    return stats;
}

static void put_sizes(struct text *t, const char *name, const size_t *sizes, size_t n)
{
    put(t, " %s=[", name);
    for (size_t i = 0; i < n; i++)
        put(t, "%s%zu", i ? ", " : "", sizes[i]);
    put(t, "]");
}

/* Returns the number of bytes from the first byte of a strided region to the last. */
static size_t extent(const size_t *strides, const size_t *count, size_t levels)
{
    size_t bytes = count[0];
    for (size_t i = 0; i < levels; i++)
        bytes += (count[i + 1] - 1) * strides[i];
    return bytes;
}

size_t gasnett_format_putsgets_bufsz(size_t stridelevels)
{
    return 2 * LINE + (3 * stridelevels + 1) * ITEM;
}

size_t gasnett_format_putsgets(char *buf, void *pstats, uint32_t node, void *dstaddr,
                               const size_t dststrides[], void *srcaddr, const size_t srcstrides[],
                               const size_t count[], size_t stridelevels)
{
    struct text t = {buf, gasnett_format_putsgets_bufsz(stridelevels)};
    size_t total = 1, dstlen = 0, srclen = 0;
    (void)pstats;
    for (size_t i = 0; i <= stridelevels; i++)
        total *= count[i];
    if (total > 0) {
        dstlen = extent(dststrides, count, stridelevels);
        srclen = extent(srcstrides, count, stridelevels);
    }
    put(&t, "(%zu data bytes) node=%u stridelevels=%zu", total, node, stridelevels);
    put_sizes(&t, "count", count, stridelevels + 1);
    put(&t, "\ndst: dstaddr=%p extent=%zu", dstaddr, dstlen);
    put_sizes(&t, "dststrides", dststrides, stridelevels);
    put(&t, "\nsrc: srcaddr=%p extent=%zu", srcaddr, srclen);
    put_sizes(&t, "srcstrides", srcstrides, stridelevels);
    return total;
}
