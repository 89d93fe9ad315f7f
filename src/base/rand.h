/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_BASE_RAND_H
#define WF_BASE_RAND_H

#include <stdint.h>

/* splitmix64, a fast random number generator. Not for secrets. */
static inline uint64_t wf_rand(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
