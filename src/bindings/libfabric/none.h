/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of calls that refuse. */
#ifndef WFI_NONE_H
#define WFI_NONE_H

#include "binding.h"

extern struct fi_ops_msg wfi_msg_none;
extern struct fi_ops_tagged wfi_tagged_none;
extern struct fi_ops_rma wfi_rma_none;
extern struct fi_ops_atomic wfi_atomic_none;

#endif
