/* SPDX-License-Identifier: BSD-3-Clause */
/* Names: IP addresses and ports, by which peers find endpoints (weft.h "names").
 *
 * A domain has one format of addresses. In Weft's own format (64 bytes) an entry of an address
 * vector is an address of weft_ep_address, or a name as weft_name_address makes it. In the formats
 * of sockets an entry is the sockaddr of a name.
 *
 * The source address of an answer of fi_getinfo is where an endpoint is to be opened. In Weft's own
 * format it is all 0 (anywhere, without a name), or a sockaddr behind a mark that no address has.
 */
#ifndef WFI_NAME_H
#define WFI_NAME_H

#include <netinet/in.h>

#include "binding.h"

union wfi_sockaddr {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* Does the provider take addresses of [format]? */
bool wfi_format_is_known(uint32_t format);
static inline bool wfi_format_is_own(uint32_t format)
{
    return format == WFI_ADDR_FORMAT;
}

/* Returns the bytes of a sockaddr of [family]; 0: of another family. */
size_t wfi_sockaddr_size(sa_family_t family);
/* Read a sockaddr of [format] (Weft's own: of any family) from [len] bytes. Returns false if they
 * are none. */
bool wfi_sockaddr_read(uint32_t format, const void *bytes, size_t len, union wfi_sockaddr *out);
/* Set [out] to any address and port of [format]. */
void wfi_sockaddr_any(uint32_t format, union wfi_sockaddr *out);
/* Is the IP address zeroes, all of the host's? */
bool wfi_sockaddr_is_wild(const union wfi_sockaddr *a);
/* Replace zeroes by an IP address of this host by which others reach it. */
void wfi_sockaddr_own(union wfi_sockaddr *a);
/* Write [a] as libfabric prints addresses (fi_sockaddr_in://1.2.3.4:5) to [text]. */
void wfi_sockaddr_text(const union wfi_sockaddr *a, char *text, size_t len);
/* Make the bytes of a name that peers open. Returns false if [a] names no single host and port. */
bool wfi_sockaddr_name(const union wfi_sockaddr *a, uint8_t out[WFI_ADDR_SIZE]);

/* Look up [node] and [service], one of which may be NULL; [node] may also be an address as
 * wfi_sockaddr_text writes it. Blocks as getaddrinfo(3) does.
 *   flags  FI_SOURCE (the result is of this host), FI_NUMERICHOST
 * Returns 0 or -FI_ENODATA (logged). */
int wfi_name_find(const char *node, const char *service, uint32_t format, uint64_t flags,
                  union wfi_sockaddr *out);

/* Write a place for an endpoint as a source address of Weft's own format, or read one. The latter
 * returns false if the bytes are no such place. */
void wfi_place_write(const union wfi_sockaddr *a, uint8_t out[WFI_ADDR_SIZE]);
bool wfi_place_read(const uint8_t bytes[WFI_ADDR_SIZE], union wfi_sockaddr *out);
/* Find out where an endpoint of [format] is to be opened, by a source address. Sets *named if it
 * gets a name. Returns 0 or -FI_EINVAL (logged). */
int wfi_place_of(uint32_t format, const void *addr, size_t len, union wfi_sockaddr *out,
                 bool *named);

/* ---- info.c's addresses: info_addr.c ---- */

int wfi_info_addresses(const char *node, const char *service, uint64_t flags,
                       const struct fi_info *hints, struct fi_info *info);

/* ---- address vectors: av.c, av_names.c ---- */

/* An insertion of [count] addresses has failed with [rc], a negative errno: nothing is inserted.
 * Fills in what the program gave for the results; both may be NULL. Returns [rc]. */
int wfi_av_none_inserted(size_t count, fi_addr_t *fi_addr, int *errors, int rc);
int wfi_av_insertsvc(struct fid_av *fid, const char *node, const char *service, fi_addr_t *fi_addr,
                     uint64_t flags, void *context);
int wfi_av_insertsym(struct fid_av *fid, const char *node, size_t nodecnt, const char *service,
                     size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context);

#endif
