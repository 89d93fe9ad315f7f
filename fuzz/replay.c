/* SPDX-License-Identifier: BSD-3-Clause */
/* For compilers without libFuzzer. replay [RUNS [SEED]]: the seeds, then copies of
 * them with some bytes changed or the end cut off, then nothing but noise. */
#include "fuzz.h"

#define ROOM 4096

static uint64_t state;

static uint64_t rnd(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* From the heap, of exactly the size, so that a read past it is one. */
static void run(const uint8_t *buf, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, buf, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

int main(int argc, char **argv)
{
    unsigned long runs = argc > 1 ? strtoul(argv[1], NULL, 0) : 20000;
    static uint8_t buf[ROOM];
    unsigned seeds = 0;
    state = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    for (size_t n; (n = fuzz_seed(seeds, buf, ROOM)); seeds++)
        run(buf, n);
    for (unsigned long i = 0; i < runs; i++) {
        size_t len = i % 8 && seeds ? fuzz_seed((unsigned)(rnd() % seeds), buf, ROOM) : 0;
        if (!len) {
            len = rnd() % 512;
            for (size_t k = 0; k < len; k++)
                buf[k] = (uint8_t)rnd();
        }
        for (uint64_t changes = rnd() % 6; changes && len; changes--)
            buf[rnd() % len] = rnd() & 1 ? (uint8_t)rnd() : (uint8_t)(rnd() & 1 ? 0xff : 0);
        run(buf, rnd() % 16 ? len : rnd() % (len + 1));
    }
    printf("%u seeds, %lu runs\n", seeds, runs);
    return seeds == 0;
}
