/* SPDX-License-Identifier: BSD-3-Clause */
/* The two sides of weft-perf-libfabric: perf_fabric_open.c opens them, perf_fabric.c measures. */
#ifndef WF_PERF_FABRIC_H
#define WF_PERF_FABRIC_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOW 256          /* operations in flight; 64 to 512 make no difference */
#define PAGE ((size_t)4096) /* all programs that are compared have whole pages */
#define MANYS 2             /* buffers of FI_MULTI_RECV */
#define MANY_BYTES ((size_t)1 << 16)

struct pair;

struct kind {
    const char *name;
    void (*run)(struct pair *p);
    uint64_t caps;
    unsigned parts;            /* of which the time of an iteration is divided by */
    bool tagged, serves, data; /* serves: the side that listens only progresses */
    bool many;                 /* receives by FI_MULTI_RECV */
};

/* Where the other side's region is. */
struct place {
    uint64_t at, key;
};

struct pair {
    const struct kind *kind;
    bool sends, tagged;
    size_t size;
    uint64_t iters, window;
    int control;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_av *av;
    struct fid_cq *cq;
    fi_addr_t peer;
    unsigned char *out, *in;
    uint64_t posted, came;     /* receives, and their completions */
    uint64_t next_in;          /* the next receive's context; a division would count */
    uint64_t taken;            /* messages that the test has waited for */
    uint64_t started, left;    /* sends that complete, and their completions */
    struct fid_mr *regions[2]; /* of in and out; null without reads and writes */
    void *desc;                /* of out */
    struct place far;          /* as in, at the other side */
    uint64_t turn;
    uint64_t empty_reads;    /* of the completion queue */
    bool many_posted[MANYS]; /* the buffers, which are in [in] */
};

void need(const char *what, long result);
/* The connection of the two sides, over which they exchange what follows. Each ends the program if
 * it fails. */
int control_open(const char *port, bool calls, const char *address);
void exchange(const struct pair *p, const void *mine, void *theirs, size_t len);
/* Open an endpoint of [provider], and find the other side's. */
void fabric_open(struct pair *p, const char *provider);
void fabric_meet(struct pair *p);
/* Register the memory, and exchange where it is. */
void region_meet(struct pair *p);
void fabric_close(struct pair *p);

#endif
