/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions, and queries about atomics on them. */
#ifndef WFI_MR_H
#define WFI_MR_H

#include "binding.h"

extern struct fi_ops_mr wfi_mr_ops;

int wfi_mr_map_raw(struct wfi_domain *d, struct fi_mr_map_raw *map);
int wfi_mr_unmap_key(struct wfi_domain *d, uint64_t key);
int wfi_atomic_query(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
                     struct fi_atomic_attr *attr, uint64_t flags);

#endif
