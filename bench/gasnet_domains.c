/* SPDX-License-Identifier: BSD-3-Clause */
/* What communication domains are worth to threads (PAR): two threads of node 0 put 8 bytes at a
 * time to node 1, whose segment is not mapped, while node 1 polls.
 *
 *     WEFT_TRANSPORTS=loop,tcp GASNET_DOMAIN_COUNT=2 weft run -n 2 -- gasnet_domains [SECONDS]
 *
 * prints one JSON object: the domains, and the puts of both threads together in a second. In shared
 * memory WEFT_DEBUG=nomap keeps segments from being mapped. */
#include <gasnet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"

#define THREADS 2
#define WINDOW 16 /* puts of a thread under way */

static gasnet_seginfo_t segments[2];
static double seconds = 1;
static _Atomic uint64_t done;
static pthread_barrier_t start;

static void *sender(void *which)
{
    char *place = (char *)segments[1].addr + 64 * (uintptr_t)which;
    uint64_t value = 1, n = 0, until;
    gasnet_handle_t handles[WINDOW];
    gasnet_put(1, place, &value, 8); /* connects */
    pthread_barrier_wait(&start);
    until = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < until) {
        for (unsigned i = 0; i < WINDOW; i++)
            handles[i] = gasnet_put_nb(1, place, &value, 8);
        gasnet_wait_syncnb_all(handles, WINDOW);
        n += WINDOW;
    }
    done += n;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    const char *domains;
    if (gasnet_init(&argc, &argv) != GASNET_OK || gasnet_nodes() != 2) {
        fprintf(stderr, "usage: weft run -n 2 -- gasnet_domains [SECONDS]\n");
        return 2;
    }
    if (argc > 1)
        seconds = atof(argv[1]);
    if (gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) != GASNET_OK ||
        gasnet_getSegmentInfo(segments, 2) != GASNET_OK)
        gasnet_exit(1);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (!gasnet_mynode()) {
        pthread_barrier_init(&start, NULL, THREADS);
        for (uintptr_t i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, sender, (void *)i))
                gasnet_exit(1);
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        domains = gasnet_getenv("GASNET_DOMAIN_COUNT");
        printf("{\"domains\":%s,\"puts_mps\":%.4f}\n", domains ? domains : "1",
               (double)done / seconds / 1e6);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS); /* node 1 polls in it meanwhile */
    gasnet_exit(0);
}
