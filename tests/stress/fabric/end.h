/* SPDX-License-Identifier: BSD-3-Clause */
/* An endpoint of the provider in a process of its own, for tests of several processes. A failure of
 * a call ends the process with 1, and a message. */
#ifndef STRESS_FABRIC_END_H
#define STRESS_FABRIC_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define END_NAME 64  /* bytes of an address */
#define END_MR_KEY 7 /* of the region */

struct end_how {
    uint64_t caps;
    enum fi_threading threading;
    enum fi_progress progress;
    enum fi_cq_format format;
    enum fi_wait_obj wait_obj;
    bool counters;
    const char *node, *service; /* the endpoint's name; NULL: none, and addresses of END_NAME */
    void *region;               /* [region_len] bytes for all accesses of peers; NULL: none */
    size_t region_len;
};

enum { END_SENDS, END_RECVS, END_READS, END_WRITES, END_CNTRS };

struct end {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *cntr[END_CNTRS]; /* NULL without how.counters */
    struct fid_mr *mr;
    struct fid_ep *ep;
};

void end_open(struct end *e, const struct end_how *how);
void end_close(struct end *e);
void end_name(struct end *e, uint8_t name[END_NAME]);
/* Returns the entry for [name]. */
fi_addr_t end_insert(struct end *e, const void *name);

/* End the process with [what] and the text of the negative errno [rc], if it is one. */
void end_must(const char *what, long rc);
#define MUST(call) end_must(#call, (call))

#endif
