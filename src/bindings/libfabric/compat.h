/* SPDX-License-Identifier: BSD-3-Clause */
/* What <rdma/fabric.h> has before libfabric 2. */
#ifndef WFI_COMPAT_H
#define WFI_COMPAT_H

#include <rdma/fabric.h>
#include <stddef.h>

#ifndef container_of
#define container_of(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))
#endif
#ifndef FI_PRIORITY
#define FI_PRIORITY (1ULL << 22)
#endif
#ifndef FI_PROV_SPECIFIC
#define FI_PROV_SPECIFIC (1U << 31)
#endif

#endif
