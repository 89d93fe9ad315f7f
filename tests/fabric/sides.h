/* SPDX-License-Identifier: BSD-3-Clause */
/* Two endpoints, each with a domain of its own, for tests of the provider: one thread drives both.
 * WEFT_TRANSPORTS sets how they reach each other. All waits have a limit. */
#ifndef SIDES_H
#define SIDES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define API FI_VERSION(1, 17)
#define WAIT_MS 30000 /* also on the emulated processors of scripts/vm */

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;        /* of transmits and receives */
    struct fid_cntr *cntr[4]; /* of sends, receives, reads, writes; NULL: none */
    struct fid_ep *ep;
    fi_addr_t self, other;
};

/* How sides are opened. Zeroes: all capabilities, tagged format, everything reported. */
struct how {
    uint32_t version; /* of the interface; 0: API */
    uint64_t caps;
    uint64_t bind_flags;         /* FI_SELECTIVE_COMPLETION */
    uint64_t tx_flags, rx_flags; /* default flags of operations */
    uint64_t order;              /* msg_order of both */
    enum fi_threading threading;
    enum fi_progress progress;
    enum fi_av_type av_type;
    enum fi_cq_format format;
    enum fi_wait_obj wait_obj;
    enum fi_cq_wait_cond wait_cond;
    int mr_mode;
    uint32_t addr_format;
    int rx_ctx_bits;            /* of the address vector */
    const char *node, *service; /* where the endpoint is opened, with FI_SOURCE */
    bool counters;
    bool no_queue;  /* counters alone */
    bool strangers; /* neither knows the other's address */
};

extern struct side a, b; /* of the running test */

/* Set the threading model where how.threading is 0: "domain" or "completion" as the program's one
 * argument. Without it FI_THREAD_SAFE. */
void model_set(int argc, char **argv);

struct fi_info *hints_new(const struct how *how);
void side_open(struct side *s, const struct how *how);
void side_close(struct side *s);
/* Do the sides reach each other by TCP or RDMA alone? As WEFT_TRANSPORTS says. */
bool over_network(void);
/* Open a and b, which know each other. */
void open_both(const struct how *how);
/* Let sides that were opened one by one know each other. */
void sides_meet(void);
void close_both(void);

/* Poll both sides once, without taking entries. */
void turn(void);
/* Take one entry of [s]; fails the test if there is none in time, or an error. */
struct fi_cq_tagged_entry take(struct side *s);
struct fi_cq_tagged_entry take_from(struct side *s, fi_addr_t *source);
/* Take one error of [s]. */
struct fi_cq_err_entry take_error(struct side *s);
/* Fails the test if [s] gets an entry while both are polled for a while. */
void nothing(struct side *s);
/* Wait until counter [i] of [s] is [n]. */
void counted(struct side *s, int i, uint64_t n);
/* Call [call] until it does not return -FI_EAGAIN. */
#define RETRY(call)                                                                                \
    do {                                                                                           \
        ssize_t rc_;                                                                               \
        uint64_t end_ = now_ms() + WAIT_MS;                                                        \
        while ((rc_ = (call)) == -FI_EAGAIN && now_ms() < end_)                                    \
            turn();                                                                                \
        assert_int_equal(rc_, 0);                                                                  \
    } while (0)
uint64_t now_ms(void);
void fill(void *buf, size_t len, unsigned seed);
void check(const void *buf, size_t len, unsigned seed);

#endif
