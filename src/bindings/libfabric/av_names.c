/* SPDX-License-Identifier: BSD-3-Clause */
/* Insertion by node and service: fi_av_insertsvc and fi_av_insertsym. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "name.h"

#define SYM_MOST ((size_t)1 << 20) /* addresses of one call */
#define NODE_MAX 256
#define PORT_MAX 65535

/* Look up an address of the vector, [av->size] bytes at [out]; zeroes, which no insertion takes, if
 * there is none. */
static void find(const struct wfi_av *av, const char *node, const char *service, uint8_t *out)
{
    union wfi_sockaddr a;
    memset(out, 0, av->size);
    if (wfi_name_find(node, service, av->format, 0, &a)) {
        WFI_WARN(AV, "node \"%s\", service \"%s\" are not known\n", node ? node : "",
                 service ? service : "");
        return;
    }
    if (!wfi_format_is_own(av->format))
        memcpy(out, &a, av->size);
    else if (!wfi_sockaddr_name(&a, out))
        memset(out, 0, av->size);
}

int wfi_av_insertsvc(struct fid_av *fid, const char *node, const char *service, fi_addr_t *fi_addr,
                     uint64_t flags, void *context)
{
    struct wfi_av *av = wfi_av_of(fid);
    uint8_t bytes[WFI_ADDR_SIZE];
    if (!node && !service)
        return -FI_EINVAL;
    find(av, node, service, bytes);
    return wfi_av_insert(av, bytes, av->size, 1, fi_addr, flags, context);
}

/* Add [n] to an IP address, as a number of [len] bytes. */
static void ip_add(uint8_t *ip, size_t len, size_t n)
{
    while (len-- && n) {
        n += ip[len];
        ip[len] = (uint8_t)n;
        n >>= 8;
    }
}

/* Write the node [n] behind [node] to [out]: the next IP addresses, or names with the next numbers
 * at their ends, which keep their width. Returns false if [node] is neither. */
static bool node_after(const char *node, size_t n, char out[NODE_MAX])
{
    struct in6_addr ip;
    size_t digits = 0, len = strlen(node);
    if (len >= NODE_MAX - 24)
        return false;
    if (inet_pton(AF_INET, node, &ip) == 1) {
        ip_add((uint8_t *)&ip, 4, n);
        return inet_ntop(AF_INET, &ip, out, NODE_MAX) != NULL;
    }
    if (inet_pton(AF_INET6, node, &ip) == 1) {
        ip_add((uint8_t *)&ip, 16, n);
        return inet_ntop(AF_INET6, &ip, out, NODE_MAX) != NULL;
    }
    while (digits < len && digits < 18 && node[len - digits - 1] >= '0' &&
           node[len - digits - 1] <= '9')
        digits++;
    if (!digits) {
        (void)snprintf(out, NODE_MAX, "%s", node);
        return !n;
    }
    (void)snprintf(out, NODE_MAX, "%.*s%0*llu", (int)(len - digits), node, (int)digits,
                   strtoull(node + len - digits, NULL, 10) + n);
    return true;
}

static bool port_of(const char *service, size_t count, unsigned long *out)
{
    char *end;
    errno = 0;
    *out = strtoul(service, &end, 10);
    return end != service && !*end && !errno && *out && count && *out + count - 1 <= PORT_MAX;
}

int wfi_av_insertsym(struct fid_av *fid, const char *node, size_t nodecnt, const char *service,
                     size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context)
{
    struct wfi_av *av = wfi_av_of(fid);
    char name[NODE_MAX], port[24];
    unsigned long first;
    uint8_t *all;
    int rc;
    if (!node || !service || !nodecnt || nodecnt > SYM_MOST || svccnt > SYM_MOST / nodecnt ||
        !port_of(service, svccnt, &first) || !node_after(node, nodecnt - 1, name)) {
        WFI_WARN(AV, "fi_av_insertsym: it takes a port, as a number, and an IP address or a name "
                     "that ends with a number, and at most 1,048,576 addresses\n");
        return -FI_EINVAL;
    }
    all = malloc(nodecnt * svccnt * av->size);
    if (!all)
        return wfi_av_none_inserted(nodecnt * svccnt, fi_addr, NULL, -FI_ENOMEM);
    for (size_t i = 0; i < nodecnt; i++)
        for (size_t k = 0; k < svccnt; k++) {
            (void)node_after(node, i, name);
            (void)snprintf(port, sizeof port, "%lu", first + k);
            find(av, name, port, all + (i * svccnt + k) * av->size);
        }
    rc = wfi_av_insert(av, all, av->size, nodecnt * svccnt, fi_addr, flags, context);
    free(all);
    return rc;
}
