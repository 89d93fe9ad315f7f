/* SPDX-License-Identifier: BSD-3-Clause */
/* What libFuzzer is given beyond the harness. A sixteenth of what it tries begins with a seed:
 * it may have been started with nothing. */
#include "fuzz.h"

#define ROOM 4096

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerInitialize(int *argc, char ***argv);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t n = seed & 15 ? 0 : fuzz_seed(seed / 16 % 32, data, max_size);
    return LLVMFuzzerMutate(data, n ? n : size, max_size);
}

static int seed_write(const char *dir, unsigned i, const uint8_t *bytes, size_t n)
{
    char path[4096];
    FILE *f;
    int bad;
    snprintf(path, sizeof path, "%s/seed-%02u", dir, i);
    f = fopen(path, "wb");
    bad = !f || fwrite(bytes, 1, n, f) != n;
    if (f && fclose(f))
        bad = 1;
    if (bad)
        perror(path);
    return bad;
}

/* -seeds=DIR, alone: writes the seeds there. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static uint8_t buf[ROOM];
    if (*argc != 2 || strncmp((*argv)[1], "-seeds=", 7))
        return 0;
    for (unsigned i = 0;; i++) {
        size_t n = fuzz_seed(i, buf, ROOM);
        if (!n || seed_write((*argv)[1] + 7, i, buf, n))
            exit(n != 0);
    }
}
