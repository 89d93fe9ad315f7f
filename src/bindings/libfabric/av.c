/* SPDX-License-Identifier: BSD-3-Clause */
/* Address vectors. An entry is the address's 64 bytes and a place in a chain of its hash slot; a
 * fi_addr_t is its index, for maps and tables. Endpoints open peers when they first use an entry
 * (peers.c).
 *
 * Identity. The address that a message gives of its sender lacks the contact for other hosts, if it
 * came through shared memory. So addresses are compared by the fields that identify an endpoint:
 * its number and generation, and the token of its context (docs/protocol.md, "Addresses"). A name
 * has none of them: it is compared by its port and IP address, and found for a sender by the peer
 * that was opened by it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eq.h"
#include "name.h"
#include "op.h"

#define FORM 7                   /* of byte 1 of an address */
#define FORM_NAME 4              /* the bytes are a name */
#define CTX_BITS 8               /* of the contexts of a group of Weft's */
#define AV_MOST (UINT32_MAX - 2) /* entries; indices + 1 are 32 bits */

static bool is_name(const uint8_t a[WFI_ADDR_SIZE])
{
    return (a[1] & FORM) == FORM_NAME;
}

struct identity {
    uint64_t ep, token[2];
};

static struct identity identity_of(const uint8_t a[WFI_ADDR_SIZE])
{
    struct identity id;
    if (is_name(a)) {
        memcpy(&id.ep, a + 40, 8); /* the port */
        memcpy(id.token, a + 48, 16);
        return id;
    }
    memcpy(&id.ep, a, 8);
    id.ep &= ~UINT64_C(0xff00); /* the form of the contact */
    memcpy(id.token, a + 16, 16);
    return id;
}

static bool identity_equals(const struct identity *a, const struct identity *b)
{
    return a->ep == b->ep && a->token[0] == b->token[0] && a->token[1] == b->token[1];
}

static size_t identity_hash(const struct identity *id)
{
    uint64_t h = (id->token[0] ^ id->token[1] ^ id->ep) * 0xd6e8feb86659fd93u;
    return (h ^ h >> 32) * 0xd6e8feb86659fd93u >> 16;
}

static uint8_t *entry(const struct wfi_av *av, size_t i)
{
    return av->entries + i * av->size;
}

/* An address begins with its version, a sockaddr has its family in these bytes. */
static bool is_removed(const struct wfi_av *av, size_t i)
{
    return !entry(av, i)[0] && !entry(av, i)[1];
}

/* Are [a] an address or a name of this version, which Weft's own names have? */
static bool is_valid(const uint8_t a[WFI_ADDR_SIZE])
{
    static const uint8_t zero[16];
    const union wfi_sockaddr any = {.in = {AF_INET, htons(1), {htonl(INADDR_LOOPBACK)}, {0}}};
    uint8_t name[WFI_ADDR_SIZE];
    if (!wfi_sockaddr_name(&any, name) || a[0] != name[0])
        return false;
    return is_name(a) ? memcmp(a + 44, zero, 2) && memcmp(a + 48, zero, 16)
                      : memcmp(a + 16, zero, 16) && memcmp(a + 36, zero, 3);
}

/* Convert the bytes of an entry to those by which Weft opens a peer. Returns false if they are
 * none. */
static bool to_weft(const struct wfi_av *av, const uint8_t *from, uint8_t out[WFI_ADDR_SIZE])
{
    union wfi_sockaddr a;
    if (!wfi_format_is_own(av->format))
        return wfi_sockaddr_read(av->format, from, av->size, &a) && wfi_sockaddr_name(&a, out);
    memcpy(out, from, WFI_ADDR_SIZE);
    return true;
}

static struct identity identity_at(const struct wfi_av *av, size_t i)
{
    uint8_t a[WFI_ADDR_SIZE] = {0};
    if (wfi_format_is_own(av->format))
        return identity_of(entry(av, i));
    (void)to_weft(av, entry(av, i), a); /* it was when it was inserted */
    return identity_of(a);
}

/* ---- table ---- */

static void chain(struct wfi_av *av, uint32_t i)
{
    struct identity id = identity_at(av, i);
    uint32_t *slot = &av->slots[identity_hash(&id) & (av->nslots - 1)];
    av->older[i] = *slot;
    *slot = i + 1;
}

static void unchain(struct wfi_av *av, uint32_t i)
{
    struct identity id = identity_at(av, i);
    uint32_t *at = &av->slots[identity_hash(&id) & (av->nslots - 1)];
    while (*at && *at != i + 1)
        at = &av->older[*at - 1];
    if (*at)
        *at = av->older[i];
}

/* Move the entries of a chain of earlier slots, [newest] first, to the slots of today in the order
 * in which they were inserted, which is not that of their indices. */
static void chain_move(struct wfi_av *av, uint32_t newest)
{
    uint32_t oldest = 0, next;
    for (; newest; newest = next) {
        next = av->older[newest - 1];
        av->older[newest - 1] = oldest;
        oldest = newest;
    }
    for (; oldest; oldest = next) {
        next = av->older[oldest - 1];
        chain(av, oldest - 1);
    }
}

/* Make room for [n] more entries. */
static bool reserve(struct wfi_av *av, size_t n)
{
    const size_t need = av->count + n, nslots = av->nslots;
    size_t room = av->room ? av->room : 64;
    void *entries, *older;
    uint32_t *slots, *old = av->slots;
    if (need > AV_MOST)
        return false;
    while (room < need)
        room *= 2;
    if (room != av->room) {
        if (!(entries = realloc(av->entries, room * av->size)))
            return false;
        av->entries = entries;
        if (!(older = realloc(av->older, room * sizeof *av->older)))
            return false;
        av->older = older;
        av->room = room;
    }
    if (nslots >= room)
        return true;
    if (!(slots = calloc(room, sizeof *slots)))
        return false;
    av->slots = slots;
    av->nslots = room;
    for (size_t i = 0; i < nslots; i++)
        chain_move(av, old[i]);
    free(old);
    return true;
}

/* Returns the lowest unused index. */
static uint32_t index_take(struct wfi_av *av)
{
    if (!av->removed)
        return (uint32_t)av->count++;
    while (!is_removed(av, av->lowest))
        av->lowest++;
    av->removed--;
    return (uint32_t)av->lowest++;
}

static fi_addr_t newest(struct wfi_av *av, const uint8_t a[WFI_ADDR_SIZE])
{
    struct identity id = identity_of(a);
    uint32_t i = av->nslots ? av->slots[identity_hash(&id) & (av->nslots - 1)] : 0;
    for (; i; i = av->older[i - 1]) {
        struct identity other = identity_at(av, i - 1);
        if (identity_equals(&id, &other))
            return i - 1;
    }
    return FI_ADDR_NOTAVAIL;
}

bool wfi_av_get(struct wfi_av *av, fi_addr_t addr, uint8_t out[WFI_ADDR_SIZE])
{
    bool found;
    wfi_lock(&av->lock);
    found = addr < av->count && !is_removed(av, addr) && to_weft(av, entry(av, addr), out);
    wfi_unlock(&av->lock);
    return found;
}

fi_addr_t wfi_av_of_peer(struct wfi_av *av, const struct weft_peer *peer)
{
    fi_addr_t addr = peer ? (uintptr_t)weft_peer_arg(peer) - 1 : FI_ADDR_NOTAVAIL;
    bool found;
    wfi_lock(&av->lock);
    found = addr < av->count && !is_removed(av, addr);
    wfi_unlock(&av->lock);
    return found ? addr : FI_ADDR_NOTAVAIL;
}

/* fi_av_remove closes an entry's peers, then removes the entry, then another may get its index. So
 * if the vector has not changed since before the peer was looked up, the index is that of the
 * peer's own entry. */
fi_addr_t wfi_av_of_sender(struct wfi_av *av, const struct weft_sender *sender)
{
    fi_addr_t addr;
    bool changed, found;
    do {
        uint64_t version = wfi_av_version(av);
        addr = (uintptr_t)weft_sender_peer_arg(sender) - 1;
        wfi_lock(&av->lock);
        changed = version != wfi_av_version(av);
        found = addr < av->count && !is_removed(av, addr);
        wfi_unlock(&av->lock);
    } while (found && changed);
    return found ? addr : FI_ADDR_NOTAVAIL;
}

fi_addr_t wfi_av_find(struct wfi_av *av, const uint8_t address[WFI_ADDR_SIZE], uint64_t *version)
{
    fi_addr_t addr;
    wfi_lock(&av->lock);
    addr = newest(av, address);
    *version = wfi_av_version(av);
    wfi_unlock(&av->lock);
    return addr;
}

/* The vector has changed. */
static void version_raise(struct wfi_av *av)
{
    __atomic_store_n(&av->version, av->version + 1, __ATOMIC_RELAXED);
}

/* ---- insertion ---- */

/* Copy one address, which is checked, to [out] of [av->size] bytes. Sets *size to its bytes. */
static bool read_one(const struct wfi_av *av, const uint8_t *a, uint8_t *out, size_t *size,
                     bool *named)
{
    uint8_t name[WFI_ADDR_SIZE];
    union wfi_sockaddr at;
    if (wfi_format_is_own(av->format)) {
        *size = WFI_ADDR_SIZE;
        memcpy(out, a, WFI_ADDR_SIZE);
        *named = is_name(a);
        return is_valid(a);
    }
    memcpy(&at, a, sizeof at.in); /* of both the shorter one */
    *named = true;
    *size = wfi_sockaddr_size(at.any.sa_family);
    if (!*size || !wfi_sockaddr_read(av->format, a, *size, &at)) {
        *size = av->format == FI_SOCKADDR_IN6 ? sizeof at.in6 : sizeof at.in;
        return false;
    }
    memcpy(out, &at, av->size);
    return wfi_sockaddr_name(&at, name);
}

/* Insert one address, and set *size to its bytes. Returns 0 or a positive errno. */
static int insert_one(struct wfi_av *av, const uint8_t *a, fi_addr_t *out, size_t *size)
{
    uint8_t bytes[WFI_ADDR_SIZE];
    bool named;
    uint32_t i;
    *out = FI_ADDR_NOTAVAIL;
    if (!read_one(av, a, bytes, size, &named)) {
        if (wfi_format_is_own(av->format))
            WFI_WARN(AV, "fi_av_insert: the bytes are no address of this version of Weft: insert "
                         "what fi_getname returned at the peer\n");
        else
            WFI_WARN(AV, "fi_av_insert: the bytes are no sockaddr of the vector's format with the "
                         "IP address of one host and a port\n");
        return FI_EINVAL;
    }
    i = index_take(av);
    memcpy(entry(av, i), bytes, av->size);
    chain(av, i);
    if (named)
        __atomic_store_n(&av->has_names, true, __ATOMIC_RELAXED);
    *out = i;
    return 0;
}

/* Make the report of an insertion to the event queue: an error for each address that cannot be
 * inserted, and the end. Returns 0 or a negative errno. */
static int report_make(struct wfi_av *av, struct wfi_report *report, const uint8_t *addr,
                       size_t stride, size_t count, void *context)
{
    int rc = wfi_report_init(report, av->eq, &av->fid.fid, context);
    if (rc)
        return rc;
    for (size_t i = 0; i < count && !rc; i++) {
        uint8_t bytes[WFI_ADDR_SIZE];
        size_t size;
        bool named;
        if (!read_one(av, addr, bytes, &size, &named))
            rc = wfi_report_error(report, i, FI_EINVAL);
        addr += stride ? stride : size;
    }
    if (rc)
        wfi_report_free(report);
    return rc;
}

int wfi_av_none_inserted(size_t count, fi_addr_t *fi_addr, int *errors, int rc)
{
    for (size_t i = 0; i < count; i++) {
        if (fi_addr)
            fi_addr[i] = FI_ADDR_NOTAVAIL;
        if (errors)
            errors[i] = -rc;
    }
    return rc;
}

static int flags_check(const struct wfi_av *av, uint64_t flags, const void *context)
{
    const bool later = av->flags & FI_EVENT;
    if (flags & ~(uint64_t)(FI_MORE | FI_SYNC_ERR) || (later && flags & FI_SYNC_ERR) ||
        (flags & FI_SYNC_ERR && !context))
        return -FI_EBADFLAGS;
    return later && !av->eq ? -FI_ENOEQ : 0;
}

/* All memory is there before the first address is inserted: an insertion fails as a whole, with
 * nothing to report, or inserts and reports all addresses. */
int wfi_av_insert(struct wfi_av *av, const uint8_t *addr, size_t stride, size_t count,
                  fi_addr_t *fi_addr, uint64_t flags, void *context)
{
    const bool later = av->flags & FI_EVENT;
    int *errors = flags & FI_SYNC_ERR ? context : NULL, rc = flags_check(av, flags, context);
    struct wfi_report report;
    size_t good = 0;
    if (rc)
        return rc;
    if (wfi_is_parents(av->lock.forks))
        return -FI_EOPBADSTATE;
    if (count && !addr)
        return -FI_EINVAL;
    if (count > AV_MOST) /* before it is added to anything */
        return -FI_ENOMEM;
    wfi_lock(&av->lock);
    rc = !reserve(av, count) ? -FI_ENOMEM
         : later             ? report_make(av, &report, addr, stride, count, context)
                             : 0;
    if (rc) {
        wfi_unlock(&av->lock);
        return wfi_av_none_inserted(count, fi_addr, errors, rc);
    }
    for (size_t i = 0; i < count; i++) {
        fi_addr_t at;
        size_t size;
        int err = insert_one(av, addr, &at, &size);
        addr += stride ? stride : size;
        good += !err;
        if (fi_addr)
            fi_addr[i] = at;
        if (errors)
            errors[i] = err;
    }
    version_raise(av);
    wfi_unlock(&av->lock);
    if (!later)
        return (int)good;
    wfi_report_post(&report, FI_AV_COMPLETE, good);
    return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *fi_addr,
                     uint64_t flags, void *context)
{
    return wfi_av_insert(wfi_av_of(fid), addr, 0, count, fi_addr, flags, context);
}

/* [count] addresses were removed: their endpoints may have gone. An endpoint that another thread
 * owns finds that out by itself. */
static void senders_forget(struct wfi_av *av, size_t count)
{
    wfi_lock(&av->eps_lock);
    for (struct wfi_ep *ep = av->eps; ep; ep = ep->next_in_av)
        if (ep->locked || !av->domain->shared)
            wfi_senders_removed(ep, count);
    wfi_unlock(&av->eps_lock);
}

/* Remove the entry [addr]. Returns false if there is none. */
static bool remove_one(struct wfi_av *av, fi_addr_t addr)
{
    uint8_t bytes[WFI_ADDR_SIZE];
    if (!wfi_av_get(av, addr, bytes))
        return false;
    wfi_lock(&av->eps_lock);
    for (struct wfi_ep *ep = av->eps; ep; ep = ep->next_in_av)
        wfi_peer_remove(ep, addr);
    wfi_unlock(&av->eps_lock);
    wfi_lock(&av->lock);
    unchain(av, (uint32_t)addr);
    memset(entry(av, addr), 0, av->size);
    if (!av->removed++ || addr < av->lowest)
        av->lowest = addr;
    version_raise(av);
    wfi_unlock(&av->lock);
    return true;
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
    struct wfi_av *av = wfi_av_of(fid);
    size_t n = 0;
    if (flags)
        return -FI_EBADFLAGS;
    if (wfi_is_parents(av->lock.forks))
        return -FI_EOPBADSTATE;
    while (n < count && remove_one(av, fi_addr[n]))
        n++;
    senders_forget(av, n);
    return n == count ? 0 : -FI_EINVAL;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
    struct wfi_av *av = wfi_av_of(fid);
    uint8_t bytes[WFI_ADDR_SIZE];
    union wfi_sockaddr a;
    size_t size = av->size;
    bool found;
    if (wfi_is_parents(av->lock.forks))
        return -FI_EOPBADSTATE;
    wfi_lock(&av->lock);
    found = fi_addr < av->count && !is_removed(av, fi_addr);
    if (found)
        memcpy(bytes, entry(av, fi_addr), size);
    wfi_unlock(&av->lock);
    if (!found)
        return -FI_EINVAL;
    if (!wfi_format_is_own(av->format) && wfi_sockaddr_read(av->format, bytes, size, &a))
        size = wfi_sockaddr_size(a.any.sa_family);
    memcpy(addr, bytes, *addrlen < size ? *addrlen : size);
    *addrlen = size;
    return 0;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
    static const char start[] = "weft://";
    char text[sizeof start + 2 * WFI_ADDR_SIZE] = "";
    const uint8_t *a = addr;
    union wfi_sockaddr at;
    if (wfi_format_is_own(wfi_av_of(fid)->format)) {
        memcpy(text, start, sizeof start);
        for (size_t i = 0; i < WFI_ADDR_SIZE; i++)
            (void)snprintf(text + sizeof start - 1 + 2 * i, 3, "%02x", a[i]);
    } else {
        memcpy(&at, a, sizeof at.in);
        if (wfi_sockaddr_read(FI_SOCKADDR, a, wfi_sockaddr_size(at.any.sa_family), &at))
            wfi_sockaddr_text(&at, text, sizeof text);
    }
    if (buf && *len)
        (void)snprintf(buf, *len, "%s", text);
    *len = strlen(text) + 1;
    return buf;
}

static int av_close(struct fid *fid)
{
    struct wfi_av *av = container_of(fid, struct wfi_av, fid.fid);
    if (atomic_load(&av->users)) {
        WFI_WARN(AV, "fi_close: %u endpoints use the address vector: close them first\n",
                 atomic_load(&av->users));
        return -FI_EBUSY;
    }
    wfi_eq_release(&av->eq);
    atomic_fetch_sub(&av->domain->users, 1);
    wfi_lock_fini(&av->eps_lock);
    wfi_lock_fini(&av->lock);
    free(av->entries);
    free(av->older);
    free(av->slots);
    free(av);
    return 0;
}

static int av_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_av *av = container_of(fid, struct wfi_av, fid.fid);
    if (flags)
        return -FI_EBADFLAGS;
    if (bound->fclass != FI_CLASS_EQ)
        return -FI_EINVAL;
    return wfi_eq_hold(&av->eq, bound, av->domain->fabric);
}

static struct fi_ops av_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = av_close,
    .bind = av_bind,
    .control = wfi_no_control,
    .ops_open = wfi_no_ops_open,
};

static struct fi_ops_av av_ops = {
    .size = sizeof(struct fi_ops_av),
    .insert = av_insert,
    .insertsvc = wfi_av_insertsvc,
    .insertsym = wfi_av_insertsym,
    .remove = av_remove,
    .lookup = av_lookup,
    .straddr = av_straddr,
};

int wfi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out,
                void *context)
{
    struct wfi_domain *d = wfi_domain_of(domain);
    struct wfi_av *av;
    if (!attr || attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > CTX_BITS)
        return -FI_EINVAL;
    if (attr->name || attr->flags & ~(uint64_t)(FI_EVENT | FI_SYMMETRIC)) {
        WFI_WARN(AV, "fi_av_open: vectors that processes share, and flags other than FI_EVENT, "
                     "are not supported\n");
        return -FI_ENOSYS;
    }
    if (wfi_domain_refuses(d))
        return -FI_EOPBADSTATE;
    av = calloc(1, sizeof *av);
    if (!av)
        return -FI_ENOMEM;
    wfi_lock_init(&av->lock, d->shared);
    wfi_lock_init(&av->eps_lock, d->shared);
    av->domain = d;
    av->flags = attr->flags;
    av->ctx_bits = (unsigned)attr->rx_ctx_bits;
    av->format = d->addr_format;
    av->size = wfi_format_is_own(av->format) ? WFI_ADDR_SIZE : sizeof(struct sockaddr_in6);
    av->version = 1;
    if (attr->type == FI_AV_UNSPEC)
        attr->type = FI_AV_TABLE;
    av->fid.fid.fclass = FI_CLASS_AV;
    av->fid.fid.context = context;
    av->fid.fid.ops = &av_fid_ops;
    av->fid.ops = &av_ops;
    atomic_fetch_add(&d->users, 1);
    *out = &av->fid;
    return 0;
}
