/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/hca.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "transport/rdma/uar.h"

const char *wf_hca_status_text(enum wf_hca_status status)
{
    switch (status) {
    case WF_HCA_OK: return "done";
    case WF_HCA_FLUSHED: return "flushed after an earlier failure";
    case WF_HCA_UNREACHABLE: return "not acknowledged";
    case WF_HCA_NOT_READY: return "the peer had no receive buffer";
    case WF_HCA_REMOTE_ACCESS: return "the peer's NIC refused the key or the range";
    case WF_HCA_REMOTE_FAULT: return "the peer's NIC refused the request";
    case WF_HCA_LOCAL_FAULT: return "this side's NIC refused the request";
    default: return "another failure";
    }
}

/* ---- addresses ---- */

static bool is_link_local(const struct wf_hca_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static bool is_mapped_v4(const struct wf_hca_gid *gid)
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return !memcmp(gid->raw, prefix, sizeof prefix);
}

/* Returns the rank of a GID, which is greater if more peers can reach the GID. RoCE v1 ranks
 * lowest, since it cannot be routed. Within a type, the order from the greatest rank is IPv4,
 * global IPv6, link-local IPv6. */
static int gid_rank(const struct wf_hca_gid *gid)
{
    int rank = gid->type == WF_HCA_GID_ROCE_V1 ? 0 : 8;
    if (is_mapped_v4(gid))
        return rank + 3;
    return rank + (is_link_local(gid) ? 1 : 2);
}

/* Returns the position in [gids] of the GID to use, or -1 if there is none. [wanted] is the
 * required index in the port's GID table, or -1 if the GID with the highest rank is to be used. */
static int gid_choose(const struct wf_hca_gid *gids, int n, int wanted)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (wanted >= 0 ? gids[i].index == wanted
                        : best < 0 || gid_rank(&gids[i]) > gid_rank(&gids[best]))
            best = i;
    return best;
}

void wf_hca_port_set(const struct wf_hca *hca, struct wf_hca_port *port,
                     const struct wf_hca_gid *gids, int n, uint16_t mtu)
{
    int chosen = gid_choose(gids, n, hca->config.gid_index);
    if (n >= 0)
        port->has_gid = chosen >= 0;
    if (chosen >= 0)
        port->gid = gids[chosen];
    /* A port without a network interface reports no MTU. Keep the port's old MTU. */
    if (mtu < WF_HCA_MTU_LEAST)
        mtu = (uint16_t)WF_MAX(port->mtu, WF_HCA_MTU_LEAST);
    port->mtu = hca->config.mtu ? WF_MIN(mtu, hca->config.mtu) : mtu;
}

const char *wf_hca_gid_text(const struct wf_hca_gid *gid, char text[WF_HCA_GID_TEXT])
{
    static const char *const types[] = {[WF_HCA_GID_INFINIBAND] = "InfiniBand",
                                        [WF_HCA_GID_ROCE_V1] = "RoCE v1",
                                        [WF_HCA_GID_ROCE_V2] = "RoCE v2"};
    char address[INET6_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET6, gid->raw, address, sizeof address);
    snprintf(text, WF_HCA_GID_TEXT, "%u %s (%s)", gid->index, address, types[gid->type]);
    return text;
}

/* ---- the ledger ---- */

static void ledger_add(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t objects, uint64_t bytes)
{
    atomic_fetch_add_explicit(&hca->ledger.objects[kind], objects, memory_order_relaxed);
    atomic_fetch_add_explicit(&hca->ledger.bytes[kind], bytes, memory_order_relaxed);
}

void wf_hca_made(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes)
{
    ledger_add(hca, kind, 1, bytes);
}

void wf_hca_freed(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes)
{
    ledger_add(hca, kind, -(uint64_t)1, -bytes);
}

void wf_hca_uars_count(struct wf_hca *hca, const struct wf_uar_count *now)
{
    _Atomic uint64_t *objects = hca->ledger.objects;
    atomic_store_explicit(&objects[WF_HCA_UAR], now->pages, memory_order_relaxed);
    atomic_store_explicit(&objects[WF_HCA_UUAR], now->uuars, memory_order_relaxed);
    atomic_store_explicit(&objects[WF_HCA_UUAR_USED], now->used, memory_order_relaxed);
}
