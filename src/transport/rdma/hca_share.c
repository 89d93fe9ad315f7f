/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/hca_share.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static bool is_name(const char name[WF_HCA_NAME])
{
    size_t len = strnlen(name, WF_HCA_NAME);
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)name[i]))
            return false;
    return len && len < WF_HCA_NAME;
}

const char *wf_hca_share_wrong(const struct wf_hca_share *share)
{
    static const uint8_t zeros[sizeof share->reserved];
    if (share->payload >= WF_HCA_PAYLOADS)
        return "its payload is not known";
    if (share->flags & ~(WF_HCA_SHARE_ON_DEMAND | WF_HCA_SHARE_DMABUF))
        return "it has flags that are not known";
    if (memcmp(share->reserved, zeros, sizeof zeros))
        return "its reserved bytes are not 0";
    return is_name(share->name) ? NULL : "its name is not a NIC's";
}

bool wf_hca_range_fits(uint64_t offset, uint64_t len, uint64_t at)
{
    return len && at <= UINT64_MAX - len && !((offset ^ at) & 4095);
}

enum weft_status wf_hca_adopt(const struct wf_hca_share *share, int fd,
                              struct wf_hca_registrar **out)
{
    const struct wf_hca_share_ops *ops =
        share->driver == WF_HCA_DRIVER_NULL ? &wf_hca_share_null : &wf_hca_share_uverbs;
    return ops->adopt(share, fd, out);
}

/* ---- the registrations of a process that has ended ---- */

/* Drops the registration that has [handle] if it lies within the range. */
static unsigned drop_if_within(struct wf_hca_registrar *r, uint32_t handle, uint64_t at,
                               uint64_t len)
{
    struct wf_hca_registration found;
    enum weft_status status = r->ops->find(r, handle, &found);
    if (status != WEFT_OK || found.at < at || found.len > len || found.at - at > len - found.len)
        return 0;
    status = r->ops->drop(r, handle);
    if (status != WEFT_OK)
        wf_warn("%s: %llu bytes of a process that ended cannot be freed (%s): they stay pinned "
                "until the processes that share the NIC have closed it",
                r->share.name, (unsigned long long)found.len, weft_status_text(status));
    return status == WEFT_OK;
}

/* The most handles that one list of the kernel can have: its length in bytes has 16 bits. */
#define LIST_ROOM (UINT16_MAX / sizeof(uint32_t))

/* Looks at the handles that the kernel lists. Returns false if these may not be all. */
static bool listed_drop(struct wf_hca_registrar *r, uint64_t at, uint64_t len, unsigned *dropped)
{
    uint32_t *handles = malloc(LIST_ROOM * sizeof *handles);
    int n = handles ? r->ops->list(r, handles, LIST_ROOM) : -1;
    bool all = n >= 0 && n < (int)LIST_ROOM;
    for (int i = 0; all && i < n; i++)
        *dropped += drop_if_within(r, handles[i], at, len);
    free(handles);
    return all;
}

bool wf_hca_drop_some(struct wf_hca_registrar *r, uint64_t at, uint64_t len, uint32_t *from,
                      uint32_t end, unsigned *dropped)
{
    if (!*from && listed_drop(r, at, len, dropped))
        return true;
    for (uint32_t i = 0; i < WF_HCA_LOOKS && *from < end; i++)
        *dropped += drop_if_within(r, (*from)++, at, len);
    return *from >= end;
}

unsigned wf_hca_drop_within(struct wf_hca_registrar *r, uint64_t at, uint64_t len, uint32_t end)
{
    uint32_t from = 0;
    unsigned dropped = 0;
    while (!wf_hca_drop_some(r, at, len, &from, end, &dropped))
        continue;
    return dropped;
}
