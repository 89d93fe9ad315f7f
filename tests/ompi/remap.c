/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that are freed, unmapped, replaced and mapped anew between messages, so that a kept
 * registration may name pages that the program does not have any more. Two ranks send to each other
 * by turns, 4 KiB to 4 MiB, and check what arrived. Rank 0 prints "ok".
 *
 * usage: ompi_remap ROUNDS SEED */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS = 8, STEP = 512, PAGE = 4096 };
enum { LEAST = 12, MOST = 22 }; /* powers of two of lengths */

/* A buffer, which may be used again for other messages. */
struct slot {
    unsigned char *memory;
    size_t room;
    int is_heap;
};

static struct slot slots[SLOTS];
static int rank;
static uint64_t shared_state, own_state; /* of random numbers */

static void must(int holds, const char *what, long at)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s, %ld\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned draw(uint64_t *state, unsigned below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state >> 33) % below;
}

static void *map(void *at, size_t len)
{
    void *p = mmap(at, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    must(p != MAP_FAILED, "no memory", (long)len);
    return p;
}

static void release(struct slot *s)
{
    if (s->is_heap)
        free(s->memory);
    else if (s->memory)
        munmap(s->memory, s->room);
    *s = (struct slot){0};
}

static void obtain(struct slot *s, size_t len)
{
    s->is_heap = draw(&own_state, 3) == 0;
    s->room = len;
    s->memory = s->is_heap ? malloc(len) : map(NULL, len);
    must(s->memory != NULL, "no memory", (long)len);
}

/* Change the pages of a mapped buffer, which keeps its address or moves. */
static void change(struct slot *s, size_t len)
{
    const size_t half = s->room / 2 / PAGE * PAGE;
    void *moved;
    switch (draw(&own_state, 4)) {
    case 0: (void)map(s->memory, s->room); break; /* new pages in place */
    case 1: madvise(s->memory + half, s->room - half, MADV_DONTNEED); break;
    case 2:
        moved = mremap(s->memory, s->room, len, MREMAP_MAYMOVE);
        if (moved != MAP_FAILED) { /* the kernel does not move several mappings at once */
            s->memory = moved;
            s->room = len;
        }
        break;
    case 3: (void)map(s->memory + half, s->room - half); break;
    }
}

/* Returns a buffer of [len] bytes: half of them are as they were after an earlier message. */
static unsigned char *buffer(size_t len)
{
    struct slot *s = &slots[draw(&own_state, SLOTS)];
    const unsigned what = draw(&own_state, 4);
    if (what == 0)
        release(s);
    else if (what == 1 && s->memory && !s->is_heap)
        change(s, len);
    if (s->room < len) {
        release(s);
        obtain(s, len);
    }
    return s->memory;
}

static uint64_t word_of(long round, size_t at)
{
    return ((uint64_t)round << 32 ^ at) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(unsigned char *p, size_t len, long round)
{
    for (size_t at = 0; at < len; at += STEP) {
        uint64_t w = word_of(round, at);
        memcpy(p + at, &w, sizeof w);
    }
}

static void check(const unsigned char *p, size_t len, long round)
{
    for (size_t at = 0; at < len; at += STEP) {
        uint64_t w = word_of(round, at);
        must(!memcmp(p + at, &w, sizeof w), "stale bytes", round);
    }
}

static void one_round(long round)
{
    const unsigned power = LEAST + draw(&shared_state, MOST - LEAST);
    const size_t len = ((size_t)1 << power) + PAGE * draw(&shared_state, 1u << (power - LEAST));
    unsigned char *p = buffer(len);
    if (rank == round % 2) {
        fill(p, len, round);
        MPI_Send(p, (int)len, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(p, (int)len, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(p, len, round);
    }
}

int main(int argc, char **argv)
{
    long rounds;
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(argc == 3 && size == 2, "usage, or not two ranks", argc);
    rounds = atol(argv[1]);
    shared_state = strtoull(argv[2], NULL, 10) * 2 + 1;
    own_state = shared_state * 3 + (uint64_t)rank + 1;
    for (long i = 0; i < rounds; i++)
        one_round(i);
    for (int i = 0; i < SLOTS; i++)
        release(&slots[i]);
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
