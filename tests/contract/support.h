/* SPDX-License-Identifier: BSD-3-Clause */
/* What every test here needs: a clock for deadlines, random numbers with a seed
 * that can be given again, contents that tell where they came from. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A sanitizer keeps freed memory back: what is resident says nothing of leaks
 * then, and its own leak check does. clang 14 has no macro for it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* ThreadSanitizer ends a child of a process with threads that starts threads of its own. */
#if defined(__SANITIZE_THREAD__)
#define TEST_FORKS_ARE_BARE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_FORKS_ARE_BARE 1
#endif
#endif
#ifndef TEST_FORKS_ARE_BARE
#define TEST_FORKS_ARE_BARE 0
#endif

#define TEST_LIMIT_NS 60000000000u /* longer than this is a hang, also under valgrind */

/* Have [items] of WEFT_DEBUG, before those of the environment, which may say otherwise. */
static inline void test_debug(const char *items)
{
    const char *more = getenv("WEFT_DEBUG");
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s", items, more ? "," : "", more ? more : "");
    if (setenv("WEFT_DEBUG", text, 1))
        abort();
}

static inline uint64_t test_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A hash of [x]; the finalizer of splitmix64. */
static inline uint64_t test_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t test_rand(uint64_t *state)
{
    return test_mix((*state)++);
}

/* WEFT_TEST_SEED, or the clock; printed, so that a failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *given = getenv("WEFT_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : test_now_ns();
    printf("# WEFT_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* [len] bytes that depend on [id] and on their place. */
static inline void test_fill(void *buf, size_t len, uint64_t id)
{
    unsigned char *b = buf;
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) {
        if (!(i & 7))
            word = test_mix(id * 8209 + i);
        b[i] = (unsigned char)(word >> (8 * (i & 7)));
    }
}

/* Are these the bytes that test_fill made? */
static inline int test_same(const void *buf, size_t len, uint64_t id)
{
    const unsigned char *b = buf;
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) {
        if (!(i & 7))
            word = test_mix(id * 8209 + i);
        if (b[i] != (unsigned char)(word >> (8 * (i & 7))))
            return 0;
    }
    return 1;
}

/* A field of /proc/self/status in KiB, e.g. "VmRSS"; 0 if there is none. */
static inline long test_status_kib(const char *field)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)))
            kib = strtol(line + strlen(field) + 1, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

/* An address of the loopback interface, in the host's byte order, that no other test uses at this
 * time. A port there stays free when its listener closes: connections of other programs begin at
 * 127.0.0.1. */
static inline uint32_t test_own_ip(void)
{
    uint32_t pid = (uint32_t)getpid();
    return 127u << 24 | (64 + (pid >> 16 & 63)) << 16 | (pid & 0xffff);
}

#endif
