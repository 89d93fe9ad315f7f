/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/hca.h"

#include <stdatomic.h>

const char *wf_hca_status_text(enum wf_hca_status status)
{
    switch (status) {
    case WF_HCA_OK: return "done";
    case WF_HCA_FLUSHED: return "given up after an earlier failure";
    case WF_HCA_UNREACHABLE: return "not acknowledged";
    case WF_HCA_NOT_READY: return "the other side had no receive buffer";
    case WF_HCA_REMOTE_ACCESS: return "the other side's NIC refused the key or the range";
    case WF_HCA_REMOTE_FAULT: return "the other side's NIC refused it";
    case WF_HCA_LOCAL_FAULT: return "this side's NIC refused it";
    default: return "it failed";
    }
}

static void count(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t objects, uint64_t bytes)
{
    atomic_fetch_add_explicit(&hca->ledger.objects[kind], objects, memory_order_relaxed);
    atomic_fetch_add_explicit(&hca->ledger.bytes[kind], bytes, memory_order_relaxed);
}

void wf_hca_made(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes)
{
    count(hca, kind, 1, bytes);
}

void wf_hca_freed(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes)
{
    count(hca, kind, -(uint64_t)1, -bytes);
}
