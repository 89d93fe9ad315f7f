/* SPDX-License-Identifier: BSD-3-Clause */
/* A context's thread domains, two at a time.
 *
 * On mlx5, two domains that are taken one after the other share a UAR page (uar.h), unless a single
 * domain was freed before. So the pool takes domains in pairs under its lock, and frees them only
 * when the context closes. What a user gets of a pair depends on the level that it asks for:
 *
 *   WF_HCA_TD_SPACED   a page of its own, and another pair, whose page stays unused beside it
 *   WF_HCA_TD_PAGE     a page of its own: the second domain stays unused
 *   WF_HCA_TD_HALF     one domain of a pair; the other domain is for another user */
#ifndef WF_TRANSPORT_RDMA_TD_POOL_H
#define WF_TRANSPORT_RDMA_TD_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/rdma/hca.h"

/* The doorbell pages that all contexts of a process have; [limit] 0: no limit. Domains keep within
 * the limit, other objects only count. Any thread. */
struct wf_uar_budget {
    _Atomic uint32_t taken, limit;
};

struct wf_td_unit;
struct wf_uars;

/* How the pool takes a domain from the driver, and gives it back. */
struct wf_td_source {
    enum weft_status (*open)(void *arg, void **out);
    void (*close)(void *arg, void *td);
    void *arg;
    struct wf_hca *hca;         /* the context; its ledger counts the pages */
    const struct wf_uars *uars; /* the context's pages; the caller's lock guards them */
};

struct wf_td_pool {
    pthread_mutex_t lock;
    struct wf_td_source source;
    struct wf_uar_budget *budget; /* NULL: no limit */
    struct wf_td_unit *units;
    _Atomic uint32_t pages;    /* those that the pool has taken from the budget */
    uint32_t own;              /* the context's other pages, which the budget counts, too */
    unsigned independent;      /* users that have a page of their own */
    unsigned independent_most; /* limit for them; 0: none */
};

/* A domain that a user has. */
struct wf_td_lease {
    void *td;
    struct wf_td_unit *unit;
    uint8_t half;
};

void wf_td_pool_open(struct wf_td_pool *pool, const struct wf_td_source *source,
                     struct wf_uar_budget *budget, unsigned independent_most);
/* Closes all domains. No user has one. */
void wf_td_pool_close(struct wf_td_pool *pool);

/* Counts the pages that the context has now, in its ledger and in the budget. The budget counts
 * here those that are not for domains; the others are in it since the pool took them, before the
 * driver did. The caller holds the lock of source.uars. */
void wf_td_pool_count(struct wf_td_pool *pool);

/* Take and give back a domain. Any thread. take returns OK | ELIMIT (the budget,
 * [independent_most], or the driver's limit) | ENOMEM | what the source returned. */
enum weft_status wf_td_take(struct wf_td_pool *pool, enum wf_hca_td_level level,
                            struct wf_td_lease *out);
void wf_td_give(struct wf_td_pool *pool, const struct wf_td_lease *lease);

#endif
