/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes that name an endpoint and a region to other processes.
 * docs/protocol.md "Addresses" and "Keys" describe them. */
#ifndef WF_TRANSPORT_ADDRESS_H
#define WF_TRANSPORT_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <weft/weft.h>

#define WF_ADDRESS_VERSION 1
#define WF_KEY_VERSION 1
#define WF_KEY_PRIVATE UINT64_MAX

/* A process as others on its node tell it apart. */
struct wf_process_id {
    uint64_t node;     /* boot id, folded */
    uint64_t netns;    /* inode of the network namespace */
    uint64_t pidns;    /* inode of the PID namespace */
    uint64_t start;    /* /proc/PID/stat field 22, clock ticks since boot */
    uint64_t token[2]; /* random per context; names its socket */
    uint32_t uid;
    uint32_t pid;
};

struct wf_address {
    uint8_t version;
    uint8_t size; /* of the whole */
    uint16_t ep;
    uint32_t ep_gen; /* ids are reused, generations are not */
    struct wf_process_id process;
};
_Static_assert(sizeof(struct wf_address) == 64, "wire structure");
_Static_assert(offsetof(struct wf_address, process) == 8, "wire structure");
_Static_assert(sizeof(struct wf_address) <= WEFT_ADDR_MAX, "public limit");

struct wf_key {
    uint8_t version;
    uint8_t access; /* WEFT_REMOTE_* */
    uint16_t size;  /* of the whole */
    uint32_t slot;  /* index of its generation word in the owner's state segment */
    uint64_t gen;
    uint64_t slab;   /* WF_KEY_PRIVATE: memory of weft_mr_register, which is not mapped */
    uint64_t offset; /* in the slab; PRIVATE: its address in the owner's process */
    uint64_t length;
    uint64_t token; /* token[0] of the owner: a key of another process is told */
};
_Static_assert(sizeof(struct wf_key) == 48, "wire structure");
_Static_assert(sizeof(struct wf_key) <= WEFT_KEY_MAX, "public limit");

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "wire structures are little-endian: add byte swapping to address.h, ring.h and packet.c"
#endif

/* The one parser of address bytes. Returns OK | EINVAL | EVERSION */
static inline enum weft_status wf_address_parse(const void *buf, size_t len, struct wf_address *out)
{
    struct wf_address a;
    if (!buf || len < 2)
        return WEFT_EINVAL;
    if (((const uint8_t *)buf)[0] != WF_ADDRESS_VERSION)
        return WEFT_EVERSION;
    if (len < sizeof a)
        return WEFT_EINVAL;
    memcpy(&a, buf, sizeof a);
    if (a.size != sizeof a || !a.process.pid || a.process.pid > INT32_MAX)
        return WEFT_EINVAL;
    *out = a;
    return WEFT_OK;
}

/* The one parser of key bytes. Returns OK | EINVAL | EVERSION */
static inline enum weft_status wf_key_parse(const void *buf, size_t len, struct wf_key *out)
{
    struct wf_key k;
    if (!buf || len < 2)
        return WEFT_EINVAL;
    if (((const uint8_t *)buf)[0] != WF_KEY_VERSION)
        return WEFT_EVERSION;
    if (len < sizeof k)
        return WEFT_EINVAL;
    memcpy(&k, buf, sizeof k);
    /* Generation words of wiped and never used slots are even. */
    if (k.size != sizeof k || !k.length || k.offset + k.length < k.length || !(k.gen & 1))
        return WEFT_EINVAL;
    *out = k;
    return WEFT_OK;
}

#endif
