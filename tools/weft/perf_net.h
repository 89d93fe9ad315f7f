/* SPDX-License-Identifier: BSD-3-Clause */
/* The limits of one TCP connection between two processes: each measured by the fastest loop we
 * know. Shares no code with Weft. The two processes share no memory: they may be on one machine, in
 * two network namespaces, or on two machines.
 *
 * Both sides call the same function with the same numbers; side 0 measures.
 * Every wait ends when the other side is gone or WF_MACHINE_PATIENCE_NS passed:
 * the call returns -1 and the pair is broken from then on. */
#ifndef WEFT_PERF_NET_H
#define WEFT_PERF_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf_stat.h"

struct wf_net {
    int side; /* 0 measures, 1 answers */
    int fd;   /* connected; -1: none */
    bool broken;
    size_t len_max;
    unsigned char *buf; /* len_max bytes, in huge pages where there are any */
    struct wf_perf_samples *samples;
};

/* IPv6 addresses, or IPv4 ones mapped into them; a port is in host byte order. */
#define WF_NET_IP 16u
extern const uint8_t wf_net_loopback[WF_NET_IP];

/* Listen at [ip], on any port, returned in *port. A descriptor for wf_net_accept, or -1 with errno
 * set. */
int wf_net_listen(const uint8_t ip[WF_NET_IP], uint16_t *port);
/* Accept one connection within 10 s; closes [listener]. */
int wf_net_accept(int listener);
/* Connect to [ip] within 10 s. A descriptor, or -1 with errno set. */
int wf_net_connect(const uint8_t ip[WF_NET_IP], uint16_t port);
/* A connected pair on the loopback interface; 0, or -1 with errno set. */
int wf_net_pair(int fds[2]);

/* Become one side of connection [fd], which this object owns from now on, for messages of up to
 * [len_max] bytes. 0, or -1 with errno set. */
int wf_net_init(struct wf_net *n, int side, int fd, size_t len_max);
void wf_net_fini(struct wf_net *n);

/* A message of [there] bytes answered by one of [back] bytes, [iters] times;
 * the median time of both. */
int wf_net_round(struct wf_net *n, size_t there, size_t back, uint64_t iters, double *median_ns);
/* GB/s of consecutive messages of [len] bytes. */
int wf_net_stream(struct wf_net *n, size_t len, uint64_t iters, double *gbs);

#endif
