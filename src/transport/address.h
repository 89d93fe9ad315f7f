/* SPDX-License-Identifier: BSD-3-Clause */
/* Address bytes, which name an endpoint to other processes, and key bytes, which name a region.
 * docs/protocol.md "Addresses" and "Keys" describe their format. */
#ifndef WF_TRANSPORT_ADDRESS_H
#define WF_TRANSPORT_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <weft/weft.h>

#define WF_ADDRESS_VERSION 6
#define WF_KEY_VERSION 5
#define WF_KEY_PRIVATE UINT64_MAX

/* Identifies a process, and the context in it. Two processes can share memory if [host] and [user]
 * are equal. */
struct wf_process_id {
    uint64_t host;     /* wf_host_id */
    uint64_t start;    /* start time: wf_process_start */
    uint64_t token[2]; /* random per context; the first half names its service socket */
    uint32_t user;     /* wf_user_id */
    uint32_t pid;
};
_Static_assert(sizeof(struct wf_process_id) == 40, "wire structure");

/* Identifies an endpoint. Two addresses are compared byte by byte. */
struct wf_address {
    uint8_t version;
    uint8_t size; /* of this struct */
    uint16_t ep;
    /* A new endpoint may get the number of a closed endpoint, but never its generation. The highest
     * bits are those of its group: see wf_address_members. */
    uint32_t ep_gen;
    struct wf_process_id process;
};
_Static_assert(sizeof(struct wf_address) == 48, "wire structure");
/* How other nodes connect to the process of an endpoint. A process that other nodes cannot reach
 * has no contact. The addresses are one IPv6 address, or up to two IPv4-mapped ones, the best
 * first: address bytes have room for no more. */
#define WF_CONTACT_IPS 2
#define WF_CONTACT_INDEXES 4096 /* the most clients of a node's service */
struct wf_contact {
    uint16_t port; /* TCP; 0: none */
    uint8_t count; /* number of addresses in ip */
    /* enum wf_node_lanes: the process is a client of its node's service, [rdma] is the service's
     * TCP port, and [index] the process's index there. Else 0, and so is [index]. */
    uint8_t node;
    uint16_t index;
    uint16_t rdma; /* TCP port for RDMA; 0: none */
    uint8_t ip[WF_CONTACT_IPS][16];
};
_Static_assert(sizeof(struct wf_contact) == 40, "wire structure");

/* By what a node's service is connected to others. Two services have sessions if both have the same
 * kind: the handshake of a queue pair begins on a socket, but other bytes follow there. */
enum wf_node_lanes {
    WF_NODE_TCP = 1,
    WF_NODE_RDMA, /* queue pairs */
};

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
    WF_KEY_READS = 8,    /* the owner counts reads: a process that copies by itself reports each */
    WF_KEY_FLAGS = 15,
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

/* Is [ip] an IPv4 address, mapped into IPv6? */
static inline int wf_contact_ip4(const uint8_t ip[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return !memcmp(ip, mapped, sizeof mapped);
}

static inline int wf_contact_is_valid(const struct wf_contact *c)
{
    if (c->node > WF_NODE_RDMA || c->index >= (c->node ? WF_CONTACT_INDEXES : 1) ||
        (c->node && !c->rdma))
        return 0;
    if (!wf_contact_is_some(c))
        return !c->count;
    return c->count == 1 || (c->count == 2 && wf_contact_ip4(c->ip[0]) && wf_contact_ip4(c->ip[1]));
}

/* ---- address bytes ---- */

/* What [form] of address bytes says of their contact. The lower four bits; WF_FORM_NODE is one of
 * them. The upper four bits are the highest of the contact's index. */
enum wf_form {
    WF_FORM_NONE,      /* no contact */
    WF_FORM_IP6,       /* one IPv6 address */
    WF_FORM_IP4,       /* one IPv4 address */
    WF_FORM_IP4_TWICE, /* two IPv4 addresses */
    WF_FORM_NAME,      /* no address, but a name: struct wf_name */
    WF_FORM_RDMA = 4,  /* with WF_FORM_NODE: contact.node is WF_NODE_RDMA */
    WF_FORM_NODE = 8,  /* contact.node */
};

/* An address as other processes get it: struct wf_address and struct wf_contact, with no byte that
 * says nothing. */
struct wf_address_bytes {
    uint8_t version;
    uint8_t form;
    uint16_t ep;
    uint32_t ep_gen;
    uint8_t host[7];
    uint8_t index; /* the lower 8 bits of the contact's */
    uint64_t token[2];
    uint32_t user;
    uint8_t pid[3];
    uint8_t start[5];
    uint16_t port, rdma;
    uint8_t ip[16];
};
#define WF_ADDRESS_BYTES sizeof(struct wf_address_bytes)
_Static_assert(WF_ADDRESS_BYTES == 64 && WF_ADDRESS_BYTES <= WEFT_ADDR_MAX, "wire structure");

static inline unsigned wf_form_ips(unsigned form)
{
    unsigned ips = form & (form & WF_FORM_NODE ? 3 : 7);
    return ips == WF_FORM_IP4_TWICE ? 2 : ips != WF_FORM_NONE;
}

static inline unsigned wf_form_node(const struct wf_contact *c)
{
    return (c->node ? WF_FORM_NODE : 0u) | (c->node == WF_NODE_RDMA ? WF_FORM_RDMA : 0u);
}

/* Write the bytes of an address to [bytes], which has room for WF_ADDRESS_BYTES. Returns their
 * number: WF_ADDRESS_BYTES. */
static inline size_t wf_address_pack(const struct wf_address *a, const struct wf_contact *c,
                                     void *bytes)
{
    struct wf_address_bytes b = {.version = WF_ADDRESS_VERSION,
                                 .ep = a->ep,
                                 .ep_gen = a->ep_gen,
                                 .token = {a->process.token[0], a->process.token[1]},
                                 .user = a->process.user};
    memcpy(b.host, &a->process.host, sizeof b.host);
    memcpy(b.start, &a->process.start, sizeof b.start);
    memcpy(b.pid, &a->process.pid, sizeof b.pid);
    if (wf_contact_is_some(c)) {
        int ip4 = wf_contact_ip4(c->ip[0]);
        b.form = (uint8_t)(!ip4 ? WF_FORM_IP6 : c->count == 2 ? WF_FORM_IP4_TWICE : WF_FORM_IP4);
        b.form = (uint8_t)(b.form | wf_form_node(c) | (c->index >> 8) << 4);
        b.index = (uint8_t)c->index;
        b.port = c->port;
        b.rdma = c->rdma;
        for (unsigned i = 0; i < c->count; i++)
            memcpy(b.ip + 4 * i, ip4 ? c->ip[i] + 12 : c->ip[i], ip4 ? 4 : 16);
    }
    memcpy(bytes, &b, sizeof b);
    return sizeof b;
}

/* Set *c to the contact in [b]. Returns false if there can be no such contact. */
static inline int wf_contact_unpack(const struct wf_address_bytes *b, struct wf_contact *c)
{
    static const uint8_t zero[16];
    int is_client = b->form & WF_FORM_NODE;
    unsigned ips = b->form & (is_client ? 3 : 7);
    unsigned used = ips == WF_FORM_IP6 ? 16 : 4 * wf_form_ips(b->form);
    if (ips > WF_FORM_IP4_TWICE || memcmp(b->ip + used, zero, sizeof zero - used))
        return 0;
    *c = (struct wf_contact){.port = b->port,
                             .count = (uint8_t)wf_form_ips(b->form),
                             .node = (uint8_t)(!is_client               ? 0
                                               : b->form & WF_FORM_RDMA ? WF_NODE_RDMA
                                                                        : WF_NODE_TCP),
                             .index = (uint16_t)((b->form >> 4) << 8 | b->index),
                             .rdma = b->rdma};
    if (ips == WF_FORM_IP6) {
        memcpy(c->ip[0], b->ip, sizeof c->ip[0]);
        return !wf_contact_ip4(c->ip[0]) && wf_contact_is_valid(c);
    }
    for (unsigned i = 0; i < c->count; i++) {
        c->ip[i][10] = c->ip[i][11] = 0xff;
        memcpy(c->ip[i] + 12, b->ip + 4 * i, 4);
    }
    return wf_contact_is_valid(c);
}

/* ---- groups ---- */

/* A group of endpoints has 2^k numbers that follow each other, k at most WF_GROUP_BITS; the lowest
 * k bits of the first are 0. Its members have one generation, whose highest 4 bits are k. The
 * address of the group is that of its first member. An endpoint without a group is one of its own.
 */
#define WF_GROUP_BITS 8u
#define WF_GROUP_SHIFT 28u

/* How many numbers the group of [a] has. It may have fewer members. */
static inline unsigned wf_address_members(const struct wf_address *a)
{
    return 1u << (a->ep_gen >> WF_GROUP_SHIFT);
}

static inline struct wf_address wf_address_group(const struct wf_address *a)
{
    struct wf_address group = *a;
    group.ep = (uint16_t)(a->ep & ~(wf_address_members(a) - 1));
    return group;
}

static inline int wf_address_is_valid(const struct wf_address *a)
{
    return a->ep_gen >> WF_GROUP_SHIFT <= WF_GROUP_BITS && a->version == WF_ADDRESS_VERSION &&
           a->size == sizeof *a && a->process.pid && a->process.pid >> 24 == 0 &&
           a->process.host >> 56 == 0 && a->process.start >> 40 == 0;
}

/* The only parser of address bytes. If the bytes contain no contact, *contact becomes all 0.
 * Returns OK, EINVAL or EVERSION. */
static inline enum weft_status wf_address_parse(const void *buf, size_t len, struct wf_address *out,
                                                struct wf_contact *contact)
{
    struct wf_address_bytes b;
    struct wf_address a = {.version = WF_ADDRESS_VERSION, .size = sizeof a};
    struct wf_contact c;
    if (!buf || !len)
        return WEFT_EINVAL;
    if (((const uint8_t *)buf)[0] != WF_ADDRESS_VERSION)
        return WEFT_EVERSION;
    if (len < sizeof b)
        return WEFT_EINVAL;
    memcpy(&b, buf, sizeof b);
    if (!wf_contact_unpack(&b, &c))
        return WEFT_EINVAL;
    a.ep = b.ep;
    a.ep_gen = b.ep_gen;
    memcpy(&a.process.host, b.host, sizeof b.host);
    memcpy(&a.process.start, b.start, sizeof b.start);
    memcpy(&a.process.pid, b.pid, sizeof b.pid);
    memcpy(a.process.token, b.token, sizeof b.token);
    a.process.user = b.user;
    if (!wf_address_is_valid(&a))
        return WEFT_EINVAL;
    *out = a;
    *contact = c;
    return WEFT_OK;
}

/* ---- names ---- */

/* An IP address, as in struct wf_contact, and a TCP port: by them an endpoint is found of which
 * nothing else is known (transport/names). */
struct wf_name {
    uint8_t ip[16];
    uint16_t port;
};

/* Write the bytes of a name to [bytes], which has room for WF_ADDRESS_BYTES. */
static inline void wf_name_pack(const struct wf_name *name, void *bytes)
{
    struct wf_address_bytes b = {
        .version = WF_ADDRESS_VERSION, .form = WF_FORM_NAME, .port = name->port};
    memcpy(b.ip, name->ip, sizeof b.ip);
    memcpy(bytes, &b, sizeof b);
}

/* Are these the bytes of a name, and not those of an address? */
static inline int wf_name_is(const void *buf, size_t len)
{
    struct wf_address_bytes b;
    if (!buf || len < sizeof b)
        return 0;
    memcpy(&b, buf, sizeof b);
    return b.version == WF_ADDRESS_VERSION && b.form == WF_FORM_NAME;
}

/* The only parser of a name's bytes. Returns OK or EINVAL. */
static inline enum weft_status wf_name_parse(const void *buf, size_t len, struct wf_name *out)
{
    struct wf_address_bytes b, again;
    struct wf_name name;
    if (!wf_name_is(buf, len))
        return WEFT_EINVAL;
    memcpy(&b, buf, sizeof b);
    name.port = b.port;
    memcpy(name.ip, b.ip, sizeof name.ip);
    wf_name_pack(&name, &again);
    if (!name.port || memcmp(&b, &again, sizeof b))
        return WEFT_EINVAL;
    *out = name;
    return WEFT_OK;
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
