/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided communication of every rank with every rank, itself too: each kind of synchronization,
 * put, get and atomics. Rank 0 prints "ok".
 *
 * usage: ompi_each [dynamic]
 *   dynamic  with a dynamic window, too. Open MPI 4.1.4 waits for itself in an access to one of a
 *            rank on another node: it locks the list of regions twice
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cells of a window: three counters, sums, and a block for each rank. */
enum { FETCHED, SWAPPED, LOCKED, SUMS = 4, BLOCKS = 12, BLOCK = 600, TIMES = 20 };

static int rank, size;
static MPI_Win win;
static long *base;
static MPI_Aint origin[64]; /* displacement of each rank's cells */

static void must(int holds, const char *what, int target)
{
    if (!holds) {
        fprintf(stderr, "rank %d: %s, target %d\n", rank, what, target);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static MPI_Aint at(int target, int cell)
{
    return origin[target] + (MPI_Aint)(cell * (int)sizeof(long));
}

static MPI_Aint block(int target)
{
    return at(target, BLOCKS + rank * BLOCK);
}

static void fill(long *out, int target, int seed)
{
    for (int i = 0; i < BLOCK; i++)
        out[i] = seed * 1000000L + rank * 10000 + target * 1000 + i;
}

/* In the own window: what rank [from] has put with [seed]. */
static void check_blocks(int seed)
{
    for (int from = 0; from < size; from++)
        for (int i = 0; i < BLOCK; i++)
            must(base[BLOCKS + from * BLOCK + i] ==
                     seed * 1000000L + from * 10000 + rank * 1000 + i,
                 "wrong bytes in the window", from);
}

static void put_all(long *out, int seed)
{
    for (int t = 0; t < size; t++) {
        fill(out + t * BLOCK, t, seed);
        MPI_Put(out + t * BLOCK, BLOCK, MPI_LONG, t, block(t), BLOCK, MPI_LONG, win);
    }
}

static void fences(long *out, long *in)
{
    MPI_Win_fence(0, win);
    put_all(out, 1);
    MPI_Win_fence(0, win);
    check_blocks(1);
    for (int t = 0; t < size; t++)
        MPI_Get(in + t * BLOCK, BLOCK, MPI_LONG, t, block(t), BLOCK, MPI_LONG, win);
    MPI_Win_fence(0, win);
    must(!memcmp(in, out, (size_t)(size * BLOCK) * sizeof *in), "wrong bytes by fences", -1);
}

static void posts(long *out)
{
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Win_post(all, 0, win);
    MPI_Win_start(all, 0, win);
    put_all(out, 2);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    check_blocks(2);
    MPI_Group_free(&all);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Add 1 to a cell by compare and swap. */
static void swap_one(int t)
{
    long seen = 0, old, next;
    for (;; seen = old) {
        next = seen + 1;
        MPI_Compare_and_swap(&next, &seen, &old, MPI_LONG, t, at(t, SWAPPED), win);
        MPI_Win_flush(t, win);
        if (old == seen)
            return;
    }
}

static void atomics(int t)
{
    const long one = 1, values[4] = {1, rank, t, 1000};
    long old = -1, last = -1, sums[4];
    for (int i = 0; i < TIMES; i++, last = old) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, t, at(t, FETCHED), MPI_SUM, win);
        MPI_Accumulate(values, 4, MPI_LONG, t, at(t, SUMS), 4, MPI_LONG, MPI_SUM, win);
        MPI_Win_flush(t, win);
        must(old > last, "a counter went back", t);
        swap_one(t);
    }
    MPI_Get_accumulate(NULL, 0, MPI_LONG, sums, 4, MPI_LONG, t, at(t, SUMS), 4, MPI_LONG, MPI_NO_OP,
                       win);
    MPI_Win_flush(t, win);
    must(sums[0] >= TIMES && sums[3] == 1000 * sums[0] && sums[2] == t * sums[0], "wrong sums", t);
}

static void put_and_get(long *out, long *in, int t, int seed)
{
    fill(out, t, seed);
    MPI_Put(out, BLOCK, MPI_LONG, t, block(t), BLOCK, MPI_LONG, win);
    MPI_Win_flush(t, win);
    memset(in, 0, BLOCK * sizeof *in);
    MPI_Get(in, BLOCK, MPI_LONG, t, block(t), BLOCK, MPI_LONG, win);
    MPI_Win_flush(t, win);
    must(!memcmp(in, out, BLOCK * sizeof *in), "wrong bytes of the window", t);
}

static void locks(long *out, long *in)
{
    MPI_Win_lock_all(0, win);
    for (int t = 0; t < size; t++) {
        put_and_get(out, in, t, 3);
        atomics(t);
    }
    MPI_Win_flush_all(win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    check_blocks(3);
    must(base[FETCHED] == TIMES * size && base[SWAPPED] == TIMES * size, "lost additions", rank);
    must(base[SUMS] == TIMES * size && base[SUMS + 1] == TIMES * size * (size - 1) / 2, "lost sums",
         rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int t = 0; t < size; t++) {
        long value;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, win);
        put_and_get(out, in, t, 4);
        MPI_Get(&value, 1, MPI_LONG, t, at(t, LOCKED), 1, MPI_LONG, win);
        MPI_Win_flush(t, win);
        value++;
        MPI_Put(&value, 1, MPI_LONG, t, at(t, LOCKED), 1, MPI_LONG, win);
        MPI_Win_unlock(t, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check_blocks(4);
    must(base[LOCKED] == size, "an exclusive lock was shared", rank);
}

/* [flavour]: MPI_WIN_FLAVOR_. */
static void try(int flavour)
{
    const MPI_Aint len = (BLOCKS + size * BLOCK) * (MPI_Aint)sizeof *base;
    const size_t room = (size_t)(size * BLOCK) * sizeof *base;
    long *own = malloc((size_t)len), *out = malloc(2 * room), *in = out + size * BLOCK;
    MPI_Aint mine = 0;
    must(own && out, "no memory", rank);
    base = own;
    if (flavour == MPI_WIN_FLAVOR_ALLOCATE)
        MPI_Win_allocate(len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    else if (flavour == MPI_WIN_FLAVOR_CREATE)
        MPI_Win_create(own, len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    else {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_attach(win, own, len);
        MPI_Get_address(own, &mine);
    }
    memset(base, 0, (size_t)len);
    MPI_Allgather(&mine, 1, MPI_AINT, origin, 1, MPI_AINT, MPI_COMM_WORLD);
    fences(out, in);
    posts(out);
    locks(out, in);
    if (flavour == MPI_WIN_FLAVOR_DYNAMIC)
        MPI_Win_detach(win, own);
    MPI_Win_free(&win);
    free(out);
    free(own);
}

int main(int argc, char **argv)
{
    const int is_dynamic = argc > 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(size <= 64, "too many ranks", rank);
    try(MPI_WIN_FLAVOR_ALLOCATE);
    try(MPI_WIN_FLAVOR_CREATE);
    if (is_dynamic)
        try(MPI_WIN_FLAVOR_DYNAMIC);
    return (!rank && puts("ok") < 0) || MPI_Finalize();
}
