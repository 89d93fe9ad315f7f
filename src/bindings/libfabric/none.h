/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that refuse, and tables of them. */
#ifndef WFI_NONE_H
#define WFI_NONE_H

#include "binding.h"

extern struct fi_ops_msg wfi_msg_none;
extern struct fi_ops_tagged wfi_tagged_none;
extern struct fi_ops_rma wfi_rma_none;
extern struct fi_ops_atomic wfi_atomic_none;

/* Of objects that have no operations or options of their own. */
ssize_t wfi_no_cancel(fid_t fid, void *context);
int wfi_no_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen);
int wfi_no_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen);
ssize_t wfi_no_size_left(struct fid_ep *ep);

#endif
