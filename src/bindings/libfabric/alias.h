/* SPDX-License-Identifier: BSD-3-Clause */
/* Aliases of endpoints: the same endpoint with other default flags. */
#ifndef WFI_ALIAS_H
#define WFI_ALIAS_H

#include "op.h"

struct wfi_alias {
    struct fid_ep fid;
    struct wfi_ep *ep;           /* which is closed after its aliases */
    uint64_t tx_flags, rx_flags; /* default flags of operations */
    bool receives;               /* a receive context of a scalable endpoint: scalable.c */
    struct fi_ops_cm cm;
};

/* Set the calls of [a], an alias of [ep]. */
void wfi_alias_init(struct wfi_alias *a, struct wfi_ep *ep);

/* Open an alias of [ep] as fi_ep_alias does, with the given flags where [arg] has no others. */
int wfi_alias_open(struct wfi_ep *ep, uint64_t tx_flags, uint64_t rx_flags, struct fi_alias *arg);
/* Are aliases of [ep] open? Logs that. */
bool wfi_alias_busy(struct wfi_ep *ep);
/* Returns the endpoint of [fid], an endpoint or an alias. */
struct wfi_ep *wfi_alias_target(struct fid *fid);

/* FI_GETOPSFLAG: set *flags, which says transmits or receives, to the default flags of these.
 * Returns 0 or -FI_EINVAL. */
int wfi_flags_get(uint64_t tx_flags, uint64_t rx_flags, uint64_t *flags);
/* FI_SETOPSFLAG at [ep]: set those of transmits or those of receives. Returns 0 or -FI_EINVAL. */
int wfi_flags_set(const struct wfi_ep *ep, uint64_t flags, uint64_t *tx_flags, uint64_t *rx_flags);

extern struct fi_ops_rma wfi_alias_rma_ops;
extern struct fi_ops_atomic wfi_alias_atomic_ops;

#endif
