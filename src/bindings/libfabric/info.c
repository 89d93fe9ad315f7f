/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_getinfo: one fabric, one domain, reliable datagram endpoints. Nothing is granted that does not
 * hold: a hint that cannot be met gives -FI_ENODATA, and the log gives the reason. */
#include <stdlib.h>
#include <string.h>

#include "name.h"

/* ---- capabilities ---- */

/* Add the ways that [caps] imply: messages without FI_SEND and FI_RECV go both ways, accesses
 * without any of the four go in all. */
static uint64_t caps_with_ways(uint64_t caps)
{
    const uint64_t msg = FI_SEND | FI_RECV;
    const uint64_t rma = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (caps & (FI_MSG | FI_TAGGED) && !(caps & msg))
        caps |= msg;
    if (caps & (FI_RMA | FI_ATOMIC) && !(caps & rma))
        caps |= rma;
    return caps;
}

static bool caps_grant(const struct fi_info *hints, uint64_t *caps)
{
    uint64_t asked = hints ? hints->caps : 0;
    if (!asked)
        asked = WFI_CAPS_PRIMARY | WFI_CAPS_FREE | FI_SOURCE | FI_FENCE;
    if (asked & ~WFI_CAPS) {
        WFI_INFO(CORE, "not granted: capabilities %#llx (fi_weft(7) lists those that are)\n",
                 (unsigned long long)(asked & ~WFI_CAPS));
        return false;
    }
    if (asked & FI_RMA_EVENT &&
        !(caps_with_ways(asked) & (FI_REMOTE_READ | FI_REMOTE_WRITE) & WFI_CAPS_WAYS)) {
        WFI_INFO(CORE, "not granted: FI_RMA_EVENT without FI_REMOTE_READ and FI_REMOTE_WRITE\n");
        return false;
    }
    asked = caps_with_ways(asked) | FI_LOCAL_COMM | FI_REMOTE_COMM;
    if (asked & FI_MSG && asked & FI_RECV)
        asked |= FI_MULTI_RECV;
    *caps = asked;
    return true;
}

/* ---- fabric ---- */

static bool fabric_matches(const struct fi_info *hints)
{
    const struct fi_fabric_attr *f = hints ? hints->fabric_attr : NULL;
    return !f || !f->name || !strcmp(f->name, WFI_NAME);
}

static int set_attributes(uint32_t version, const struct fi_info *hints, struct fi_info *info)
{
    info->fabric_attr->name = strdup(WFI_NAME);
    info->fabric_attr->prov_version = wfi_provider.version;
    if (!info->fabric_attr->name)
        return -FI_ENOMEM;
    if (hints)
        info->handle = hints->handle;
    if (!fabric_matches(hints) || !caps_grant(hints, &info->caps) || !wfi_info_ep(hints, info) ||
        !wfi_info_tx(hints, info) || !wfi_info_rx(hints, info) ||
        !wfi_info_domain(version, hints, info))
        return -FI_ENODATA;
    return 0;
}

int wfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                const struct fi_info *hints, struct fi_info **out)
{
    struct fi_info *info = fi_allocinfo();
    int rc;
    if (!info)
        return -FI_ENOMEM;
    rc = set_attributes(version, hints, info);
    if (!rc && flags & FI_PROV_ATTR_ONLY)
        node = service = NULL;
    if (!rc)
        rc = wfi_info_addresses(node, service, flags, hints, info);
    if (rc) {
        fi_freeinfo(info);
        return rc;
    }
    *out = info;
    return 0;
}
