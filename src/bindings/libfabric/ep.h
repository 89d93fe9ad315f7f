/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: opening, binding, closing. */
#ifndef WFI_EP_H
#define WFI_EP_H

#include "name.h"

int wfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out,
                void *context);
int wfi_scalable_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out,
                      void *context);
int wfi_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **out,
                 void *context);

/* ---- parts of opening and closing ---- */

/* Allocate an endpoint with the attributes of [info], without Weft's endpoint: a member of [sep],
 * or of none (NULL). Returns 0 or a negative errno. */
int wfi_ep_new(struct wfi_domain *d, const struct fi_info *info, struct wfi_sep *sep, void *context,
               struct wfi_ep **out);
/* Let [ep] own [wep]. Returns 0 or a negative errno; then [wep] is not its own. */
int wfi_ep_attach(struct wfi_ep *ep, struct weft_ep *wep);
/* Free [ep], which owns no endpoint of Weft's (any more). */
void wfi_ep_free(struct wfi_ep *ep);
/* Close and free [ep]. Operations that are under way are cancelled, and not reported. Returns 0 or
 * a negative errno (logged): then it may be called again. */
int wfi_ep_end(struct wfi_ep *ep);
/* Open Weft's endpoints for [ep] and the others of its group, at [place], or without a name.
 *   count  0: one endpoint, which is no group
 *   out    [count] of them */
int wfi_weft_open(const struct wfi_ep *ep, const union wfi_sockaddr *place, unsigned count,
                  struct weft_ep **out);

extern struct fi_ops_ep wfi_ep_ops;
extern struct fi_ops_cm wfi_ep_cm_ops; /* ep_name.c */
int wfi_ep_control(struct fid *fid, int command, void *arg);
/* Copy the address of [ep], in its format, as fi_getname(3) does. Under wfi_sep.lock, if it is a
 * member. */
int wfi_ep_getname_held(struct wfi_ep *ep, void *addr, size_t *addrlen);

/* ---- scalable endpoints: scalable.c ---- */

/* A scalable endpoint is a group of Weft's. Each member is an endpoint of its own: its transmit
 * context is that endpoint (wfi_ep.fid), and its receive context an alias. It closes when both
 * have, or with the scalable endpoint. Two threads may have the two contexts: [lock], which is
 * taken before all others, guards [members]. */
struct wfi_sep {
    struct fid_ep fid;
    struct wfi_lock lock;
    struct wfi_domain *domain;
    struct wfi_eq *eq;                  /* as wfi_ep.eq */
    unsigned count, tx_count, rx_count; /* members: the larger one of both */
    bool bound;                         /* to an address vector */
    struct {
        struct wfi_ep *ep; /* NULL: it has closed */
        struct wfi_alias *rx;
        bool tx_open;
        struct wfi_eq *tx_eq, *rx_eq; /* as wfi_ep.eq, of each context */
    } members[WFI_CONTEXTS];
    /* The calls of transmit contexts, and those of receive contexts. */
    struct fi_ops_msg tx_msg, rx_msg;
    struct fi_ops_tagged tx_tagged, rx_tagged;
    struct fi_ops_cm cm;
};

/* ---- binding: ep_bind.c ---- */

int wfi_ep_bind(struct fid *fid, struct fid *bound, uint64_t flags);
/* The same, whether [ep] is enabled or not. */
int wfi_ep_bind_object(struct wfi_ep *ep, struct fid *bound, uint64_t flags);
/* Take [ep] from the lists of what polls it and of its address vector; may be called again. */
void wfi_ep_unlink(struct wfi_ep *ep);
void wfi_ep_unbind(struct wfi_ep *ep);
/* Is a counter bound to [ep]? */
bool wfi_ep_counts(const struct wfi_ep *ep);
int wfi_ep_enable(struct wfi_ep *ep);
/* Enable the receive context of [ep], a member of a scalable endpoint. */
int wfi_ep_enable_rx(struct wfi_ep *ep);
/* The default flags are others now. */
void wfi_ep_flags_changed(struct wfi_ep *ep);
int wfi_stx_use(struct wfi_ep *ep, struct fid *fid);
void wfi_stx_unuse(struct wfi_ep *ep);

#endif
