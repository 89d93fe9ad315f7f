/* SPDX-License-Identifier: BSD-3-Clause */
/* Communication domains, in the threading mode PAR. There are GASNET_DOMAIN_COUNT endpoints, each
 * with a lock of its own, so that threads which put and get do not wait for each other. A thread
 * gets its domain at its first operation. GASNET_GNI_PTHREADS_PER_DOMAIN consecutive threads get
 * the same domain. Only domain 0, the job's endpoint, carries active messages. Threads of other
 * domains poll the job's endpoint in one of GASNET_AM_DOMAIN_POLL_MASK + 1 polls. Accesses to
 * mapped segments need no endpoint. */
#include "domain.h"

#include <stdio.h>
#include <stdlib.h>

#define DOMAINS_MAX 64

struct domain {
    struct weft_ep *ep;
    struct weft_peer **peers;     /* [nodes] */
    struct weft_remote **remotes; /* [nodes]; null: no segment */
};

static struct domain domains[DOMAINS_MAX]; /* [0] is unused: that is the job's endpoint */
unsigned gasnetw_domains = 1;
static unsigned threads_per_domain = 1, poll_mask = 255;
static _Atomic unsigned threads;
static _Thread_local unsigned mine; /* 1 + this thread's domain; 0: none assigned */

static unsigned number(const char *name, unsigned dflt, unsigned least, unsigned most)
{
    double value = gasnetw_env_number(name, dflt);
    if (value >= least && value <= most)
        return (unsigned)value;
    value = value < least ? least : most;
    if (!gasnetw_job.mynode)
        fprintf(stderr, "WARNING: %s is adjusted to %u: %u to %u are possible\n", name,
                (unsigned)value, least, most);
    return (unsigned)value;
}

void gasnetw_domains_configure(void)
{
    unsigned mask, fitting = 1;
    if (gasnetw_binding.mode != MODE_PAR)
        return;
    gasnetw_domains = number("GASNET_DOMAIN_COUNT", 1, 1, DOMAINS_MAX);
    threads_per_domain = number("GASNET_GNI_PTHREADS_PER_DOMAIN", 1, 1, 1u << 20);
    mask = number("GASNET_AM_DOMAIN_POLL_MASK", 255, 0, 65535);
    while (fitting < mask + 1)
        fitting *= 2;
    poll_mask = fitting - 1; /* rounded up to a power of two, less one */
}

enum weft_status gasnetw_domains_open(const struct ep_address *addresses, gasnetw_open_fn open,
                                      const void *cards)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    enum weft_status s = WEFT_OK;
    params.flags = WEFT_EP_LOCKED;
    for (unsigned i = 1; !s && i < gasnetw_domains; i++) {
        struct domain *d = &domains[i];
        d->peers = calloc(gasnetw_job.nodes, sizeof *d->peers);
        d->remotes = calloc(gasnetw_job.nodes, sizeof *d->remotes);
        s = d->peers && d->remotes
                ? weft_ep_open(weft_job_ctx(gasnetw_binding.job), &params, &d->ep)
                : WEFT_ENOMEM;
        for (gasnet_node_t r = 0; !s && r < gasnetw_job.nodes; r++) {
            s = weft_peer_open(d->ep, addresses[r].bytes, addresses[r].len, &d->peers[r]);
            if (!s)
                s = open(d->peers[r], r, cards, &d->remotes[r]);
        }
    }
    return s;
}

__attribute__((noinline)) static unsigned assign(void)
{
    unsigned thread = atomic_fetch_add(&threads, 1);
    mine = 1 + thread / threads_per_domain % gasnetw_domains;
    return mine - 1;
}

static inline unsigned domain_of_thread(void)
{
    return WEFT_UNLIKELY(!mine) ? assign() : mine - 1;
}

struct weft_remote *gasnetw_domain_remote(struct weft_remote *remote, gasnet_node_t node)
{
    unsigned d = domain_of_thread();
    return d ? domains[d].remotes[node] : remote;
}

struct weft_ep *gasnetw_domain_ep(bool *is_first)
{
    static _Thread_local unsigned polls;
    unsigned d = domain_of_thread();
    *is_first = !d || (++polls & poll_mask) == 0;
    return d ? domains[d].ep : NULL;
}
