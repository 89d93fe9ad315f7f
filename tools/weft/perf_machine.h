/* SPDX-License-Identifier: BSD-3-Clause */
/* What the machine itself can do: two processes, one a core, over a memfd of
 * their own. Shares no code with Weft, and is the fastest loop we know for each
 * limit, because a slow limit flatters what is compared with it. What was tried
 * stands beside each loop in perf_machine.c.
 *
 * Both sides call the same function with the same numbers; side 0 measures.
 * Every wait ends when the other side is dead or WF_MACHINE_PATIENCE_NS passed:
 * the call returns -1 and the pair is broken from then on. */
#ifndef WEFT_PERF_MACHINE_H
#define WEFT_PERF_MACHINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "perf_stat.h"

#define WF_MACHINE_PATIENCE_NS (60ull * 1000000000u)
#define WF_MACHINE_WALK ((size_t)1 << 20) /* distinct bytes a copying loop walks at least */
#define WF_MACHINE_BIG ((size_t)64 << 10) /* from here on messages are stamped, not rotated */

struct wf_machine {
    int side; /* 0 measures, 1 answers */
    int broken;
    unsigned char *mem; /* shared by both sides */
    size_t mem_len;
    size_t copy_max; /* longest message wf_machine_copy can copy */
    int peer_pidfd;  /* -1: the peer's death is not seen, only the patience ends a wait */
    uint64_t round;  /* of the pair's own barrier */
    uint64_t ring_at;
    struct wf_perf_samples *samples;
    unsigned char *src; /* private, copied from */
};

/* Create the memfd for messages up to [copy_max] bytes; -1 with errno set. */
int wf_machine_memfd(size_t copy_max);

/* Take a side over memfd [fd], which stays the caller's. [peer]: the other
 * process, 0 if it is not known yet (wf_machine_peer). 0, or -1 with errno set. */
int wf_machine_init(struct wf_machine *m, int side, int fd, size_t copy_max, pid_t peer);
int wf_machine_peer(struct wf_machine *m, pid_t peer);
void wf_machine_fini(struct wf_machine *m);

/* Bind this process to one core; 0 or -1. */
int wf_machine_bind(int cpu);

/* Wait for the other side. 0, or -1: it is gone. */
int wf_machine_sync(struct wf_machine *m);

/* Half a ping-pong through two cache lines, one for each direction. */
int wf_machine_line_lat(struct wf_machine *m, uint64_t iters, double *median_ns, double *p99_ns);
/* Half a ping-pong through one line that both sides write. */
int wf_machine_bounce_lat(struct wf_machine *m, uint64_t iters, double *median_ns);
/* Million 64-byte lines a second through a ring. */
int wf_machine_line_rate(struct wf_machine *m, uint64_t lines, double *mps);
/* ns for one copy of [len] bytes into the shared memory. Side 0 only works. */
int wf_machine_copy(struct wf_machine *m, size_t len, uint64_t iters, double *ns);
/* GB/s of process_vm_writev in messages of [len] bytes; *gbs is 0 when the kernel refuses. */
int wf_machine_kernel_copy(struct wf_machine *m, size_t len, uint64_t iters, pid_t peer,
                           double *gbs);

/* A connected pair of loopback TCP sockets; 0, or -1 with errno set. */
int wf_machine_tcp_pair(int fds[2]);
int wf_machine_tcp_lat(struct wf_machine *m, int fd, uint64_t iters, double *median_ns);
int wf_machine_tcp_rate(struct wf_machine *m, int fd, size_t len, uint64_t iters, double *gbs);

#endif
