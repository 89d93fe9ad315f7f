/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes that name an endpoint and a region to other processes.
 * docs/protocol.md "Addresses" and "Keys" describe them. */
#ifndef WF_TRANSPORT_ADDRESS_H
#define WF_TRANSPORT_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <weft/weft.h>

#define WF_ADDRESS_VERSION 3
#define WF_KEY_VERSION 5
#define WF_KEY_PRIVATE UINT64_MAX

/* The identity of a process among those of its node. */
struct wf_process_id {
    uint64_t node;     /* boot id, folded */
    uint64_t netns;    /* inode of the network namespace */
    uint64_t pidns;    /* inode of the PID namespace */
    uint64_t start;    /* /proc/PID/stat field 22, clock ticks since boot */
    uint64_t token[2]; /* random per context; names its socket */
    uint32_t uid;
    uint32_t pid;
};

/* The identity of an endpoint; compared as bytes. */
struct wf_address {
    uint8_t version;
    uint8_t size; /* here: of this struct; in address bytes: of all of them */
    uint16_t ep;
    uint32_t ep_gen; /* ids are reused, generations are not */
    struct wf_process_id process;
};
_Static_assert(sizeof(struct wf_address) == 64, "wire structure");
_Static_assert(offsetof(struct wf_address, process) == 8, "wire structure");
/* The network contact of an endpoint's process. It follows the address in address bytes, unless
 * the process has none. */
#define WF_CONTACT_IPS 2
struct wf_contact {
    uint16_t port; /* TCP; 0: none */
    uint8_t count; /* of ip */
    uint8_t zero[3];
    uint16_t rdma;                  /* TCP port for RDMA; 0: none */
    uint8_t ip[WF_CONTACT_IPS][16]; /* IPv6, or IPv4 mapped into it; the best one first */
};
_Static_assert(sizeof(struct wf_contact) == 40, "wire structure");

#define WF_ADDRESS_BYTES (sizeof(struct wf_address) + sizeof(struct wf_contact))
_Static_assert(WF_ADDRESS_BYTES <= WEFT_ADDR_MAX, "public limit");

#define WF_KEY_NICS 4 /* of one owner */

struct wf_key {
    uint8_t version;
    uint8_t access; /* WEFT_REMOTE_* */
    uint16_t size;  /* of this struct */
    uint32_t slot;  /* index of its generation word in the owner's state segment */
    uint64_t gen;
    uint64_t slab;   /* WF_KEY_PRIVATE: the owner's own memory, which is not mapped */
    uint64_t offset; /* in the slab; PRIVATE: its address in the owner's process */
    uint64_t length;
    uint64_t token;  /* token[0] of the owner: detects another process's key */
    uint64_t first;  /* where peers address its first byte; 0 unless PRIVATE */
    uint32_t flags;  /* enum wf_key_flags; 0 unless PRIVATE */
    uint32_t auth;   /* wf_auth_tag of its authorization key */
    uint64_t nic_at; /* the NICs' address of its first byte; 0 where all of nic_key are */
    uint32_t nic_key[WF_KEY_NICS]; /* its remote key at each of the owner's NICs; 0: none */
    uint64_t check;                /* wf_key_check of all above */
};

/* A checksum over a key's bytes: a key that was damaged in transit must not name other memory of
 * its owner. (A process that maps a slab can read all of it, so no owner checks the range.) Each
 * step is a bijection of the word and of the sum: it always detects one wrong word, and several
 * but for 1 in 2^64. */
static inline uint64_t wf_key_check(const struct wf_key *k)
{
    uint64_t words[offsetof(struct wf_key, check) / 8], sum = 0x243f6a8885a308d3u; /* pi's */
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        sum = (sum ^ words[i]) * 0xd6e8feb86659fd93u;
        sum ^= sum >> 32;
    }
    return sum;
}

/* Does any NIC of its owner have a remote key for it? */
static inline int wf_key_has_nic(const struct wf_key *k)
{
    uint32_t any = 0;
    for (int i = 0; i < WF_KEY_NICS; i++)
        any |= k->nic_key[i];
    return any != 0;
}

/* The mark of a region's authorization key in a raw key, which does not contain the digest. */
static inline uint32_t wf_auth_tag(uint64_t gen, uint64_t digest)
{
    uint64_t h = (gen ^ digest) * 0xd6e8feb86659fd93u;
    return digest ? (uint32_t)((h ^ h >> 32) * 0xd6e8feb86659fd93u >> 32) : 0;
}

enum wf_key_flags {
    WF_KEY_OWNER = 1,    /* only the owner's process accesses the memory */
    WF_KEY_UNBACKED = 2, /* pages may be missing: accessed in pieces */
    WF_KEY_ATOMIC = 4,   /* only the one NIC of nic_key does atomics on it */
    WF_KEY_FLAGS = 7,
};

/* Are the flags valid, and consistent with the other fields? */
static inline int wf_key_flags_are_valid(const struct wf_key *k)
{
    if (k->flags & ~(uint32_t)WF_KEY_FLAGS || (k->slab != WF_KEY_PRIVATE && k->flags))
        return 0;
    return !(k->flags & WF_KEY_ATOMIC) || wf_key_has_nic(k);
}
_Static_assert(sizeof(struct wf_key) == 96 && offsetof(struct wf_key, check) == 88,
               "wire structure");
_Static_assert(sizeof(struct wf_key) <= WEFT_KEY_MAX, "public limit");

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "wire structures are little-endian: add byte swapping to address.h, ring.h and packet.c"
#endif

static inline int wf_contact_is_some(const struct wf_contact *c)
{
    return c->port || c->rdma;
}

static inline int wf_contact_is_valid(const struct wf_contact *c)
{
    for (size_t i = 0; i < sizeof c->zero; i++)
        if (c->zero[i])
            return 0;
    return wf_contact_is_some(c) ? c->count >= 1 && c->count <= WF_CONTACT_IPS : !c->count;
}

/* The only parser of address bytes. Without a contact in them, *contact is all 0.
 * Returns OK | EINVAL | EVERSION */
static inline enum weft_status wf_address_parse(const void *buf, size_t len, struct wf_address *out,
                                                struct wf_contact *contact)
{
    struct wf_address a;
    struct wf_contact c = {0};
    if (!buf || len < 2)
        return WEFT_EINVAL;
    if (((const uint8_t *)buf)[0] != WF_ADDRESS_VERSION)
        return WEFT_EVERSION;
    if (len < sizeof a)
        return WEFT_EINVAL;
    memcpy(&a, buf, sizeof a);
    if ((a.size != sizeof a && a.size != WF_ADDRESS_BYTES) || len < a.size || !a.process.pid ||
        a.process.pid > INT32_MAX)
        return WEFT_EINVAL;
    if (a.size == WF_ADDRESS_BYTES)
        memcpy(&c, (const uint8_t *)buf + sizeof a, sizeof c);
    if (!wf_contact_is_valid(&c))
        return WEFT_EINVAL;
    a.size = sizeof a;
    *out = a;
    *contact = c;
    return WEFT_OK;
}

/* Write address bytes; returns how many, at most WF_ADDRESS_BYTES. */
static inline size_t wf_address_pack(const struct wf_address *a, const struct wf_contact *contact,
                                     uint8_t *bytes)
{
    size_t n = wf_contact_is_some(contact) ? WF_ADDRESS_BYTES : sizeof *a;
    memcpy(bytes, a, sizeof *a);
    memcpy(bytes + sizeof *a, contact, n - sizeof *a);
    bytes[1] = (uint8_t)n;
    return n;
}

/* The only parser of key bytes. Returns OK | EINVAL | EVERSION */
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
    if (k.size != sizeof k || k.check != wf_key_check(&k) || !k.length ||
        k.offset + k.length < k.length ||
        !(k.gen & 1) || /* generations of closed and unused slots are even */
        k.first + k.length < k.length || !wf_key_flags_are_valid(&k) ||
        (k.slab != WF_KEY_PRIVATE && k.first) || k.nic_at + k.length < k.length ||
        (k.nic_at && !wf_key_has_nic(&k)))
        return WEFT_EINVAL;
    *out = k;
    return WEFT_OK;
}

#endif
