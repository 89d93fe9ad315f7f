/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that another process can write is parsed by one function, and each
 * of those has a harness here. With clang they are libFuzzer programs; without,
 * replay.c feeds them changed copies of fuzz_seed and random bytes. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Input number [i] that gets far into the code. Returns its length, at most
 * [room]; 0: there is none of that number. */
size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room);

/* Must hold; libFuzzer keeps the input when it does not. */
#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A loop of the harness itself, from which libFuzzer has nothing to learn. */
#ifdef __clang__
#define FUZZ_UNTRACED __attribute__((no_sanitize("coverage")))
#else
#define FUZZ_UNTRACED
#endif

/* The input as a stream that ends in zeros. */
struct fuzz_input {
    const uint8_t *at, *end;
};

static inline void fuzz_take(struct fuzz_input *in, void *to, size_t n)
{
    size_t have = (size_t)(in->end - in->at) < n ? (size_t)(in->end - in->at) : n;
    memset(to, 0, n);
    if (have)
        memcpy(to, in->at, have);
    in->at += have;
}

static inline uint32_t fuzz_u32(struct fuzz_input *in)
{
    uint32_t v;
    fuzz_take(in, &v, sizeof v);
    return v;
}

/* Read every byte: a sanitizer sees when one is not there. */
FUZZ_UNTRACED static inline void fuzz_touch(const void *data, size_t n)
{
    const uint8_t *b = data;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + b[i];
    __asm__ volatile("" : : "r"(sum)); /* needed, as far as the compiler knows */
}

#endif
