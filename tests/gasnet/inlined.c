/* SPDX-License-Identifier: BSD-3-Clause */
/* Are short puts and gets inlined where the segment is mapped, and only there? Compiled with
 * WEFT_COUNT_INLINE, this program counts its own inlined accesses.
 *
 * usage: inlined yes|no    whether the other nodes' segments are mapped */
#include <gasnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 100
#define FORMS 6 /* of puts, and of gets */

static uint64_t counted(unsigned what)
{
    return __atomic_load_n(&weft_inline_counts_[what], __ATOMIC_RELAXED);
}

/* Put the number [i] in each of the forms to [to], and get it back in each of them. */
static void access_all(gasnet_node_t to, char *place, uint64_t i)
{
    uint64_t back[FORMS];
    gasnet_put(to, place, &i, 8);
    gasnet_put_bulk(to, place + 8, &i, 8);
    gasnet_put_val(to, place + 16, i, 8);
    gasnet_put_nbi(to, place + 24, &i, 8);
    gasnet_wait_syncnb(gasnet_put_nb(to, place + 32, &i, 8));
    gasnet_wait_syncnb(gasnet_put_nb_bulk(to, place + 40, &i, 8));
    gasnet_wait_syncnbi_all();
    gasnet_get(&back[0], to, place, 8);
    gasnet_get_bulk(&back[1], to, place + 8, 8);
    back[2] = gasnet_get_val(to, place + 16, 8);
    gasnet_get_nbi(&back[3], to, place + 24, 8);
    gasnet_wait_syncnb(gasnet_get_nb(&back[4], to, place + 32, 8));
    gasnet_wait_syncnb(gasnet_get_nb_bulk(&back[5], to, place + 40, 8));
    gasnet_wait_syncnbi_all();
    for (unsigned f = 0; f < FORMS; f++)
        if (back[f] != i)
            gasnet_exit(11);
}

int main(int argc, char **argv)
{
    gasnet_seginfo_t segments[2];
    uint64_t nputs, ngets, want;
    if (gasnet_init(&argc, &argv) != GASNET_OK || argc != 2 || gasnet_nodes() != 2) {
        fprintf(stderr, "usage: weft run -n 2 -- inlined yes|no\n");
        return 2;
    }
    if (gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) != GASNET_OK ||
        gasnet_getSegmentInfo(segments, 2) != GASNET_OK)
        gasnet_exit(10);
    nputs = counted(0);
    ngets = counted(1);
    for (uint64_t i = 0; i < COUNT && !gasnet_mynode(); i++)
        access_all(1, segments[1].addr, i);
    nputs = counted(0) - nputs;
    ngets = counted(1) - ngets;
    want = gasnet_mynode() || strcmp(argv[1], "yes") ? 0 : COUNT * FORMS;
    if (nputs != want || ngets != want) {
        fprintf(stderr, "inlined %" PRIu64 " puts and %" PRIu64 " gets, not %" PRIu64 " of each\n",
                nputs, ngets, want);
        gasnet_exit(12);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (!gasnet_mynode())
        puts("ok");
    gasnet_exit(0);
}
