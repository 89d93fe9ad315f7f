/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses of an answer of fi_getinfo. */
#include <stdlib.h>
#include <string.h>

#include "name.h"

static int set(void **to, size_t *to_len, const void *from, size_t len)
{
    *to = malloc(len);
    if (!*to)
        return -FI_ENOMEM;
    memcpy(*to, from, len);
    *to_len = len;
    return 0;
}

static int refuse(const char *what, size_t len, uint32_t format)
{
    WFI_INFO(CORE,
             "not granted: hints->%s of %zu bytes with the format %u: a sockaddr of IPv4 or IPv6, "
             "or %d bytes from fi_getname or fi_getinfo\n",
             what, len, format, WFI_ADDR_SIZE);
    return -FI_ENODATA;
}

/* ---- source ---- */

static int set_source(struct fi_info *info, const union wfi_sockaddr *a)
{
    uint8_t place[WFI_ADDR_SIZE];
    if (!wfi_format_is_own(info->addr_format))
        return set(&info->src_addr, &info->src_addrlen, a, wfi_sockaddr_size(a->any.sa_family));
    wfi_place_write(a, place);
    return set(&info->src_addr, &info->src_addrlen, place, sizeof place);
}

/* The address of an endpoint is known when it is open: until then it is all 0. */
static int set_source_any(struct fi_info *info)
{
    static const uint8_t zero[WFI_ADDR_SIZE];
    union wfi_sockaddr a;
    if (wfi_format_is_own(info->addr_format))
        return set(&info->src_addr, &info->src_addrlen, zero, sizeof zero);
    wfi_sockaddr_any(info->addr_format, &a);
    return set_source(info, &a);
}

static int source_of(const struct fi_info *hints, struct fi_info *info)
{
    union wfi_sockaddr a;
    bool named;
    if (!hints || !hints->src_addr)
        return set_source_any(info);
    if (wfi_place_of(info->addr_format, hints->src_addr, hints->src_addrlen, &a, &named))
        return refuse("src_addr", hints->src_addrlen, info->addr_format);
    return named ? set_source(info, &a) : set_source_any(info);
}

/* ---- destination ---- */

static int set_dest(struct fi_info *info, const union wfi_sockaddr *a)
{
    uint8_t name[WFI_ADDR_SIZE];
    if (!wfi_format_is_own(info->addr_format))
        return set(&info->dest_addr, &info->dest_addrlen, a, wfi_sockaddr_size(a->any.sa_family));
    if (!wfi_sockaddr_name(a, name)) {
        WFI_INFO(CORE, "not granted: a destination without an IP address or port\n");
        return -FI_ENODATA;
    }
    return set(&info->dest_addr, &info->dest_addrlen, name, sizeof name);
}

static int dest_of(const struct fi_info *hints, struct fi_info *info)
{
    union wfi_sockaddr a;
    if (!hints || !hints->dest_addr)
        return 0;
    if (wfi_format_is_own(info->addr_format) && hints->dest_addrlen == WFI_ADDR_SIZE)
        return set(&info->dest_addr, &info->dest_addrlen, hints->dest_addr, WFI_ADDR_SIZE);
    return wfi_sockaddr_read(info->addr_format, hints->dest_addr, hints->dest_addrlen, &a)
               ? set_dest(info, &a)
               : refuse("dest_addr", hints->dest_addrlen, info->addr_format);
}

/* ---- both ---- */

int wfi_info_addresses(const char *node, const char *service, uint64_t flags,
                       const struct fi_info *hints, struct fi_info *info)
{
    const uint32_t format = hints ? hints->addr_format : FI_FORMAT_UNSPEC;
    const bool named = node || service, source = flags & FI_SOURCE;
    union wfi_sockaddr a;
    int rc = 0;
    info->addr_format = format == FI_FORMAT_UNSPEC ? WFI_ADDR_FORMAT : format;
    if (!wfi_format_is_known(info->addr_format)) {
        WFI_INFO(CORE, "not granted: address format %u\n", format);
        return -FI_ENODATA;
    }
    if (info->caps & FI_SOURCE_ERR && !wfi_format_is_own(info->addr_format)) {
        WFI_INFO(CORE, "not granted: FI_SOURCE_ERR with addresses of sockets, since the sockaddr "
                       "of an unknown sender is not known\n");
        return -FI_ENODATA;
    }
    if (named)
        rc = wfi_name_find(node, service, info->addr_format, flags, &a);
    if (!rc)
        rc = named && source ? set_source(info, &a)
             : source        ? set_source_any(info)
                             : source_of(hints, info);
    if (!rc)
        rc = named && !source ? set_dest(info, &a) : dest_of(hints, info);
    return rc;
}
