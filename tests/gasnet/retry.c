/* SPDX-License-Identifier: BSD-3-Clause */
/* An allocation of a segment that fails a number of times, as if the kernel released memory late
 * after an unmap: this program's own mmap fails on the last node. retry_test.py sets how often.
 *
 * usage: retry FAILURES RESULT    RESULT: what gasnet_attach returns on all nodes, ok or resource
 */
#define _GNU_SOURCE
#include <errno.h>
#include <gasnet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE ((size_t)64 << 20) /* of the segment; nothing else that is mapped is as long */

static _Atomic unsigned failures, failed;

/* The library's calls come here: the program's symbols come first. */
void *mmap(void *addr, size_t len, int protection, int flags, int fd, off_t offset)
{
    if (len >= SIZE && failed < failures) {
        failed++;
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, addr, len, protection, flags, fd, offset);
}

/* The segments are usable: each node writes to the first and last byte of the next one. */
static void check_segments(size_t size)
{
    gasnet_node_t me = gasnet_mynode(), nodes = gasnet_nodes(), to = (me + 1) % nodes;
    gasnet_seginfo_t *segments = calloc(nodes, sizeof *segments);
    unsigned char byte = (unsigned char)(me + 1),
                  from = (unsigned char)((me + nodes - 1) % nodes + 1);
    if (!segments || gasnet_getSegmentInfo(segments, (int)nodes) != GASNET_OK ||
        segments[me].size != size)
        gasnet_exit(11);
    gasnet_put(to, segments[to].addr, &byte, 1);
    gasnet_put(to, (char *)segments[to].addr + size - 1, &byte, 1);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (*(unsigned char *)segments[me].addr != from ||
        ((unsigned char *)segments[me].addr)[size - 1] != from)
        gasnet_exit(12);
}

int main(int argc, char **argv)
{
    size_t size = SIZE;
    bool ok;
    if (gasnet_init(&argc, &argv) != GASNET_OK || argc != 3) {
        fprintf(stderr, "usage: weft run -n N -- retry FAILURES ok|resource\n");
        return 2;
    }
    if (gasnet_mynode() == gasnet_nodes() - 1)
        failures = (unsigned)atoi(argv[1]);
    ok = !strcmp(argv[2], "ok");
    if (gasnet_attach(NULL, 0, size, 0) != (ok ? GASNET_OK : GASNET_ERR_RESOURCE))
        gasnet_exit(10);
    if (gasnet_mynode() == gasnet_nodes() - 1)
        printf("%u failed\n", failed);
    if (!ok) { /* a smaller one is possible */
        size = GASNET_PAGESIZE;
        if (gasnet_attach(NULL, 0, size, 0) != GASNET_OK)
            gasnet_exit(13);
    }
    check_segments(size);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
}
