/* SPDX-License-Identifier: BSD-3-Clause */
/* libFuzzer begins with nothing; a quarter of what it tries begins with a seed. */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t n = seed & 3 ? 0 : fuzz_seed(seed / 4 % 16, data, max_size);
    return LLVMFuzzerMutate(data, n ? n : size, max_size);
}
