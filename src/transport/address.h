/* SPDX-License-Identifier: BSD-3-Clause */
/* Address bytes, which name an endpoint to other processes, and key bytes, which name a region.
 * docs/protocol.md "Addresses" and "Keys" describe their format. */
#ifndef WF_TRANSPORT_ADDRESS_H
#define WF_TRANSPORT_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <weft/weft.h>

#define WF_ADDRESS_VERSION 4
#define WF_KEY_VERSION 5
#define WF_KEY_PRIVATE UINT64_MAX

/* Identifies a process, and the context in it, on its node. */
struct wf_process_id {
    uint64_t node;     /* boot id, hashed to 64 bits */
    uint64_t netns;    /* inode of the network namespace */
    uint64_t pidns;    /* inode of the PID namespace */
    uint64_t start;    /* start time: wf_process_start */
    uint64_t token[2]; /* random per context; the first half names its service socket */
    uint32_t uid;
    uint32_t pid;
};

/* Identifies an endpoint. Two addresses are compared byte by byte. */
struct wf_address {
    uint8_t version;
    /* Here, the size of this struct. In address bytes, the number of all address bytes. */
    uint8_t size;
    uint16_t ep;
    /* A new endpoint may get the number of a closed endpoint, but never its generation. */
    uint32_t ep_gen;
    struct wf_process_id process;
};
_Static_assert(sizeof(struct wf_address) == 64, "wire structure");
_Static_assert(offsetof(struct wf_address, process) == 8, "wire structure");
/* How other nodes connect to the process of an endpoint. In address bytes the contact follows the
 * address. A process that other nodes cannot reach has no contact. */
#define WF_CONTACT_IPS 2
#define WF_CONTACT_INDEXES 4096 /* the most clients of a node's service */
struct wf_contact {
    uint16_t port; /* TCP; 0: none */
    uint8_t count; /* number of addresses in ip */
    /* 1: the process is a client of its node's service, [rdma] is the service's TCP port, and
     * [index] the process's index there. Else 0, and so is [index]. */
    uint8_t node;
    uint16_t index;
    uint16_t rdma;                  /* TCP port for RDMA; 0: none */
    uint8_t ip[WF_CONTACT_IPS][16]; /* IPv6 or IPv4-mapped addresses, the best first */
};
_Static_assert(sizeof(struct wf_contact) == 40, "wire structure");

#define WF_ADDRESS_BYTES (sizeof(struct wf_address) + sizeof(struct wf_contact))
_Static_assert(WF_ADDRESS_BYTES <= WEFT_ADDR_MAX, "public limit");

#define WF_KEY_NICS 4 /* of one owner */

struct wf_key {
    uint8_t version;
    uint8_t access; /* WEFT_REMOTE_* */
    uint16_t size;  /* of this struct */
    uint32_t slot;  /* index of the region's generation word in the owner's state segment */
    uint64_t gen;
    /* The slab that holds the region. WF_KEY_PRIVATE if the region is the owner's private memory,
     * which other processes cannot map. */
    uint64_t slab;
    uint64_t offset; /* offset in the slab; if PRIVATE, the address in the owner's process */
    uint64_t length;
    /* The first half of the owner's token. If a peer's token differs, the peer is not the owner,
     * and the key is refused. */
    uint64_t token;
    /* The offset that a put or get uses for the first byte: 0, or the byte's virtual address if the
     * region was opened with WEFT_MR_VIRT_ADDR. 0 unless the slab is PRIVATE. */
    uint64_t first;
    uint32_t flags; /* enum wf_key_flags; 0 unless PRIVATE */
    uint32_t auth;  /* wf_auth_tag of the region's authorization key */
    /* The address by which the owner's NICs access the first byte. 0 if all of nic_key are 0. */
    uint64_t nic_at;
    /* The region's remote key (rkey) at each NIC of the owner. 0 if that NIC has no remote key for
     * the region. */
    uint32_t nic_key[WF_KEY_NICS];
    uint64_t check; /* wf_key_check of the fields above */
};

/* A checksum over the bytes of a key. It detects a key that was damaged in transit. Without it, a
 * damaged key could name other memory of the same owner: a local process maps the whole slab, so
 * the owner cannot check its accesses.
 * Each step is a bijection of the word and of the sum. So one wrong word is always detected, and
 * several wrong words are missed with a probability of 1 in 2^64. */
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

/* Does any NIC of the region's owner have a remote key for the region? */
static inline int wf_key_has_nic(const struct wf_key *k)
{
    uint32_t any = 0;
    for (int i = 0; i < WF_KEY_NICS; i++)
        any |= k->nic_key[i];
    return any != 0;
}

/* Returns the 32 bits by which a raw key identifies the region's authorization key: a hash of the
 * region's generation and of the authorization key's digest. The digest itself is not in the raw
 * key. Returns 0 if [digest] is 0, which means that there is no authorization key. */
static inline uint32_t wf_auth_tag(uint64_t gen, uint64_t digest)
{
    uint64_t h = (gen ^ digest) * 0xd6e8feb86659fd93u;
    return digest ? (uint32_t)((h ^ h >> 32) * 0xd6e8feb86659fd93u >> 32) : 0;
}

enum wf_key_flags {
    WF_KEY_OWNER = 1,    /* only threads of the owner's process access the memory */
    WF_KEY_UNBACKED = 2, /* pages may be missing: accesses are split into pieces */
    WF_KEY_ATOMIC = 4,   /* only one NIC performs atomics on the region: that of its nic_keys */
    WF_KEY_FLAGS = 7,
};

/* Are all flags known, and do they fit the key's slab and nic_key? */
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

/* The TCP port at which the process takes connections for RDMA; 0: none. */
static inline uint16_t wf_contact_rdma(const struct wf_contact *c)
{
    return c->node ? 0 : c->rdma;
}

static inline int wf_contact_is_some(const struct wf_contact *c)
{
    return c->port || c->rdma;
}

static inline int wf_contact_is_valid(const struct wf_contact *c)
{
    if (c->node > 1 || c->index >= (c->node ? WF_CONTACT_INDEXES : 1) || (c->node && !c->rdma))
        return 0;
    return wf_contact_is_some(c) ? c->count >= 1 && c->count <= WF_CONTACT_IPS : !c->count;
}

/* The only parser of address bytes. If the bytes contain no contact, *contact becomes all 0.
 * Returns OK, EINVAL or EVERSION. */
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

/* Write the address bytes to [bytes], which has room for WF_ADDRESS_BYTES. Returns their length. */
static inline size_t wf_address_pack(const struct wf_address *a, const struct wf_contact *contact,
                                     uint8_t *bytes)
{
    size_t n = wf_contact_is_some(contact) ? WF_ADDRESS_BYTES : sizeof *a;
    memcpy(bytes, a, sizeof *a);
    memcpy(bytes + sizeof *a, contact, n - sizeof *a);
    bytes[1] = (uint8_t)n;
    return n;
}

/* The only parser of key bytes. Returns OK, EINVAL or EVERSION. */
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
        !(k.gen & 1) || /* slots that are closed or unused have even generations */
        k.first + k.length < k.length || !wf_key_flags_are_valid(&k) ||
        (k.slab != WF_KEY_PRIVATE && k.first) || k.nic_at + k.length < k.length ||
        (k.nic_at && !wf_key_has_nic(&k)))
        return WEFT_EINVAL;
    *out = k;
    return WEFT_OK;
}

#endif
