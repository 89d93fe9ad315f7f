/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's own limits: two processes, each on a core, with a memfd of their own. Shares no
 * code with Weft. Each limit is measured by the fastest loop we know, because a slow limit flatters
 * what is compared with it. perf_machine.c lists beside each loop what was tried.
 *
 * Both sides call the same function with the same numbers; side 0 measures.
 * Every wait ends when the other side is dead or WF_MACHINE_PATIENCE_NS passed:
 * the call returns -1 and the pair is broken from then on. */
#ifndef WEFT_PERF_MACHINE_H
#define WEFT_PERF_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "perf_stat.h"

#define WF_MACHINE_PATIENCE_NS (60ull * 1000000000u)
#define WF_MACHINE_WALK ((size_t)1 << 20)   /* the least distinct bytes that a copying loop walks */
#define WF_MACHINE_BIG ((size_t)64 << 10)   /* from here on a batch is one message, stamped */
#define WF_MACHINE_LOCAL ((size_t)16 << 10) /* local bytes of a batch; twice that fits L1 */

/* How copies walk: over [slots] slots of [stride] bytes, [batch] of them at a time
 * out of a local area that stays in the first cache. */
struct wf_machine_walk {
    size_t len, stride, slots, batch;
};

static inline struct wf_machine_walk wf_machine_walk_of(size_t len)
{
    struct wf_machine_walk k = {.len = len, .stride = (len + 7) / 8 * 8};
    size_t fit = WF_MACHINE_LOCAL / k.stride;
    k.batch = len >= WF_MACHINE_BIG || fit == 0 ? 1 : fit < 512 ? fit : 512;
    k.slots = (WF_MACHINE_WALK / k.stride + k.batch - 1) / k.batch * k.batch;
    if (k.slots == 0)
        k.slots = 1;
    return k;
}

struct wf_machine {
    int side; /* 0 measures, 1 answers */
    int broken;
    unsigned char *mem; /* shared by both sides */
    size_t mem_len;
    size_t copy_max; /* longest message wf_machine_copy can copy */
    int peer_pidfd;  /* -1: the peer's death is not noticed, only the patience ends a wait */
    uint64_t round;  /* of the pair's barrier */
    uint64_t ring_at;
    struct wf_perf_samples *samples;
    unsigned char *src;   /* private, copied from, in huge pages where there are any */
    unsigned char *plain; /* the same in ordinary pages, as malloc gives */
};

/* Create the memfd for messages up to [copy_max] bytes; -1 with errno set. */
int wf_machine_memfd(size_t copy_max);

/* Become one side of memfd [fd], which the caller keeps. [peer]: the other
 * process, 0 if it is not known yet (wf_machine_peer). 0, or -1 with errno set. */
int wf_machine_init(struct wf_machine *m, int side, int fd, size_t copy_max, pid_t peer);
int wf_machine_peer(struct wf_machine *m, pid_t peer);
void wf_machine_fini(struct wf_machine *m);

/* Bind this process to one core; 0 or -1. */
int wf_machine_bind(int cpu);

/* Wait for the other side. 0, or -1: it is gone. */
int wf_machine_sync(struct wf_machine *m);

/* Half a ping-pong through two cache lines, one for each direction; the best of
 * the ways known, [iters] of each. */
int wf_machine_line_lat(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns);
/* Half a ping-pong through one line that both sides write. */
int wf_machine_bounce_lat(struct wf_machine *m, uint64_t iters, double *median_ns);
/* Million 64-byte lines a second through a ring of [ring_lines], a power of two from 4 to
 * WF_MACHINE_LINES. */
#define WF_MACHINE_LINES 65536u
int wf_machine_line_rate(struct wf_machine *m, uint32_t ring_lines, uint64_t lines, double *mps);
/* ns for one copy of [len] bytes into the shared memory. Side 0 only works. */
int wf_machine_copy(struct wf_machine *m, size_t len, uint64_t iters, double *ns);
/* ns for one load and store of a word, the same way: a lower bound for any copy of variable length.
 */
int wf_machine_store(struct wf_machine *m, uint64_t iters, double *ns);
/* ns for one locked add that fetches a word of the shared memory, the same way. */
int wf_machine_add(struct wf_machine *m, uint64_t iters, double *ns);
/* GB/s of process_vm_writev in messages of [len] bytes, between ordinary or huge
 * pages; *gbs is 0 when the kernel refuses. */
int wf_machine_kernel_copy(struct wf_machine *m, size_t len, uint64_t iters, bool huge, pid_t peer,
                           double *gbs);

#endif
