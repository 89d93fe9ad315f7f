/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/path.h"

#include "config/config.h"

#include "core/bulk.h"
#include "core/msg_parts.h"

bool wf_path_can_pull(const struct weft_peer *peer)
{
    return peer->caps & WF_CAP_PULL && !(peer->flow && peer->flow->no_pull);
}

enum wf_path wf_path_offered(const struct weft_peer *peer)
{
    if (wf_peer_can_bulk(peer))
        return WF_PATH_BULK;
    return wf_path_can_pull(peer) ? WF_PATH_PULL : WF_PATH_PIECES;
}

/* Without NICs, four processes copy each byte, and a message of up to am_max bytes takes one FETCH.
 * A read takes about as long as a FETCH and its answer, whatever the length, plus the registration
 * of both buffers, which are kept. So NICs pay from about WEFT_MSG_NIC on, if the buffers are used
 * again, and each read has a page or more. */
#define READ_MIN 4096

bool wf_path_msg_nic(const struct weft_peer *peer, uint64_t len, unsigned pieces)
{
    return peer->transport->nic_lend && wf_path_can_nic(peer, len) &&
           !(peer->caps & WF_CAP_NIC_LONG) && len >= wf_config()->msg_nic &&
           len / WF_MAX(pieces, 1u) >= READ_MIN;
}

enum wf_path wf_path_msg(const struct weft_peer *peer, size_t len)
{
    if (len <= peer->ep->eager_max || wf_msg_is_one(peer, len))
        return WF_PATH_WHOLE;
    if (!wf_path_can_pull(peer) && len <= peer->ep->parts_max)
        return WF_PATH_PARTS;
    if (wf_path_msg_nic(peer, len, 1))
        return WF_PATH_NIC;
    if (!wf_path_can_pull(peer))
        return wf_path_offered(peer);
    return wf_choice_is_parts(peer, len) ? WF_PATH_PARTS : WF_PATH_PULL;
}

enum wf_path wf_path_msg_take(struct weft_peer *peer, size_t len)
{
    enum wf_path path = wf_path_msg(peer, len);
    bool parts = path == WF_PATH_PARTS;
    if ((!parts && path != WF_PATH_PULL) || !wf_path_can_pull(peer) ||
        !wf_choice_is_turned(peer, len, parts))
        return path;
    return parts ? WF_PATH_PULL : WF_PATH_PARTS;
}

bool wf_path_is_here(const struct wf_remote *r)
{
    return r->key.token == r->pub.peer->ep->ctx->self.token[0];
}

enum wf_path wf_path_messages(const struct wf_remote *r, uint64_t len)
{
    const struct weft_peer *peer = r->pub.peer;
    bool bulk = wf_peer_can_bulk(peer) && len > peer->ep->am_max && wf_remote_can_bulk(r);
    return bulk ? WF_PATH_BULK : WF_PATH_PIECES;
}

/* May an access leave the owner's checks to its NIC, or to the generation? Yes for a raw key, whose
 * range and rights were checked. For a 64-bit key only if the learnt region contains the range. */
static bool is_covered(const struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access)
{
    return !r->named || wf_named_covers(r, offset, len, access);
}

bool wf_path_can_nic(const struct weft_peer *peer, uint64_t len)
{
    return peer->caps & WF_CAP_NIC && (!(peer->caps & WF_CAP_NIC_LONG) || len >= WF_NIC_LONG);
}

/* A service without a NIC takes each piece as a put or get of its own, which may be short. */
static bool can_split(const struct weft_peer *peer, unsigned pieces)
{
    return pieces <= 1 || !(peer->caps & WF_CAP_NIC_LONG);
}

bool wf_path_has_nic(const struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access)
{
    return wf_remote_has_nic(r) && is_covered(r, offset, len, access) &&
           wf_path_can_nic(r->pub.peer, len);
}

enum wf_path wf_path_put(const struct wf_remote *r, uint64_t offset, size_t len, unsigned pieces)
{
    const struct weft_peer *peer = r->pub.peer;
    if (wf_remote_mapped(r))
        return WF_PATH_INLINE;
    if (wf_path_is_here(r))
        return WF_PATH_HERE;
    if (wf_path_has_nic(r, offset, len, WEFT_REMOTE_WRITE) && can_split(peer, pieces))
        return WF_PATH_NIC;
    if (wf_peer_can_bulk(peer))
        return wf_path_messages(r, len);
    /* With PIECES, the owner copies the bytes from messages. With PULL, a message called TAKE makes
     * the owner copy them from this process. The owner copies once in both cases, so a TAKE saves
     * time only if it replaces several messages. */
    return len > peer->ep->am_max && pieces <= 1 && wf_path_can_pull(peer) ? WF_PATH_PULL
                                                                           : WF_PATH_PIECES;
}

enum wf_path wf_path_get(const struct wf_remote *r, uint64_t offset, size_t len, unsigned pieces)
{
    if (wf_remote_mapped(r))
        return WF_PATH_INLINE;
    if (wf_path_is_here(r))
        return WF_PATH_HERE;
    if (wf_path_has_nic(r, offset, len, WEFT_REMOTE_READ) && can_split(r->pub.peer, pieces))
        return WF_PATH_NIC;
    if (wf_peer_can_bulk(r->pub.peer))
        return wf_path_messages(r, len);
    if (r->key.slab != WF_KEY_PRIVATE || r->key.flags & WF_KEY_OWNER ||
        !is_covered(r, offset, len, WEFT_REMOTE_READ))
        return WF_PATH_PIECES;
    return wf_path_can_pull(r->pub.peer) ? WF_PATH_PULL : WF_PATH_PIECES;
}

/* Returns true if the peer's NIC can do the atomic. */
static bool nic_does(const struct wf_remote *r, unsigned operation, size_t size)
{
    return wf_remote_has_nic(r) && size == 8 && r->nic_base % 8 == 0 &&
           (operation == WEFT_ATOMIC_ADD || operation == WEFT_ATOMIC_CAS);
}

enum wf_path wf_path_atomic(const struct wf_remote *r, unsigned operation, size_t size)
{
    if (r->key.flags & WF_KEY_ATOMIC)
        return nic_does(r, operation, size) ? WF_PATH_NIC : WF_PATH_NONE;
    return wf_remote_mapped(r) ? WF_PATH_INLINE : wf_path_is_here(r) ? WF_PATH_HERE : WF_PATH_WHOLE;
}

/* ---- weft_path_of ---- */

struct row {
    const char *protocol, *why;
    uint32_t copies;
};

static const struct row inlined = {
    "inline", "the region is mapped here: the caller's own code copies, no call, no message", 1};
static const struct row here = {
    "here", "the region is this process's own, not mapped a second time: one copy", 1};
static const struct row put_rows[] = {
    [WF_PATH_PULL] = {"pull",
                      "the region is its owner's private memory and this is longer than a "
                      "message: the owner copies it from here when it polls",
                      1},
    [WF_PATH_PIECES] = {"pieces",
                        "the region is not mapped here: messages carry it, its owner "
                        "stores it when it polls",
                        2},
    [WF_PATH_BULK] =
        {"bulk",
         "the peer is across the network and this is longer than a message: the "
         "transport takes it from here and gives it to the region when its owner polls",
         2},
    [WF_PATH_NIC] = {"rdma write",
                     "the NICs reach it: the one here reads it where it is, or, up to 4096 bytes, "
                     "from a copy, and the one there writes it, without its owner",
                     0}};
static const struct row service_write = {"service write",
                                         "the services of both nodes move it: this node's sends it "
                                         "from a copy, and the one there stores "
                                         "it in the region, without its owner",
                                         3};
static const struct row service_read = {"service read",
                                        "the services of both nodes move it: the one there copies "
                                        "it from the region, without its owner, and this node's "
                                        "receives it beside, from where it is copied here",
                                        4};
static const struct row get_rows[] = {
    [WF_PATH_PULL] = {"pull",
                      "the region is its owner's private memory: one copy by the kernel, "
                      "without the owner",
                      1},
    [WF_PATH_PIECES] = {"pieces",
                        "the region is not mapped here and may not be read from here: its "
                        "owner answers with messages when it polls",
                        2},
    [WF_PATH_BULK] = {"bulk",
                      "the peer is across the network and this is longer than a message: when "
                      "its owner polls the transport takes it from the region and gives it here",
                      2},
    [WF_PATH_NIC] = {"rdma read",
                     "the NICs reach it: the one there reads it without its owner, and the one "
                     "here writes it where it is to be, or, up to 4096 bytes, beside",
                     0}};
static const struct row atomic_rows[] = {
    [WF_PATH_WHOLE] = {"message", "the region is not mapped here: its owner does it when it polls",
                       1}};
static const struct row only_nic = {
    "rdma atomic",
    "the region's atomics are its owner's NIC's (WEFT_MR_NIC_ATOMICS): 64-bit additions and "
    "compare-and-swaps, without its owner; there are no others",
    1};
static const struct row msg_rows[] = {
    [WF_PATH_WHOLE] = {"eager",
                       "not longer than WEFT_MSG_EAGER and the transport's longest message: copied "
                       "into a message, and out of it into the receive's buffer",
                       2},
    [WF_PATH_PARTS] = {"parts",
                       "longer than WEFT_AM_MAX, and not longer than WEFT_MSG_EAGER or measured to "
                       "be faster than one copy: copied into messages that follow each other, and "
                       "out of them into the receive's buffer",
                       2},
    [WF_PATH_PULL] = {"pull",
                      "longer than WEFT_MSG_EAGER, or measured to be faster than parts: the "
                      "receiver copies it once, from the sender's buffer",
                      1},
    [WF_PATH_PIECES] = {"pieces",
                        "longer than WEFT_MSG_EAGER, and the receiver may not read the "
                        "sender's memory: it fetches it by messages",
                        2},
    [WF_PATH_BULK] = {"bulk",
                      "longer than WEFT_MSG_EAGER: the transport sends it from the sender's buffer "
                      "into the receiver's; at once up to WEFT_MSG_PUSH, else when the receive "
                      "is there",
                      2},
    [WF_PATH_NIC] = {
        "rdma read",
        "longer than WEFT_MSG_EAGER, and not shorter than WEFT_MSG_NIC: the receiver's "
        "NIC reads it from the sender's buffer into the receiver's, both registered "
        "when first used; messages go on where that fails, or for several buffers",
        0}};
static const struct row am = {"eager", "copied into a message; its handler runs on it in place", 1};
static const struct row long_mapped = {
    "put, then message", "the region is mapped here: one copy into it, then a message", 1};

static const struct row *mapped_or(enum wf_path path, const struct row *rows)
{
    return path == WF_PATH_INLINE ? &inlined : path == WF_PATH_HERE ? &here : &rows[path];
}

static const struct row *put_row(const struct wf_remote *r, size_t len)
{
    enum wf_path path = wf_path_put(r, r->key.first, len, 1);
    if (path == WF_PATH_NIC && r->pub.peer->caps & WF_CAP_NIC_LONG)
        return &service_write;
    return mapped_or(path, put_rows);
}

static const struct row *get_row(const struct wf_remote *r, size_t len)
{
    enum wf_path path = wf_path_get(r, r->key.first, len, 1);
    if (path == WF_PATH_NIC && r->pub.peer->caps & WF_CAP_NIC_LONG)
        return &service_read;
    return mapped_or(path, get_rows);
}

/* Returns the row that describes an atomic, or NULL if no path can do the atomic. */
static const struct row *atomic_row(const struct wf_remote *r, size_t len)
{
    enum wf_path path = wf_path_atomic(r, WEFT_ATOMIC_ADD, len == 4 ? 4 : 8);
    if (path == WF_PATH_NONE)
        return NULL;
    return path == WF_PATH_NIC ? &only_nic : mapped_or(path, atomic_rows);
}

static const struct row *row_of(const struct weft_peer *peer, unsigned operation,
                                const struct wf_remote *r, size_t len)
{
    switch (operation) {
    case WEFT_OP_AM: return &am;
    case WEFT_OP_MSG: return &msg_rows[wf_path_msg(peer, len)];
    case WEFT_OP_PUT: return put_row(r, len);
    case WEFT_OP_GET: return get_row(r, len);
    case WEFT_OP_ATOMIC: return atomic_row(r, len);
    default: return wf_remote_mapped(r) ? &long_mapped : put_row(r, len);
    }
}

static bool is_copied_beside(const struct row *row, size_t len)
{
    const struct wf_config *c = wf_config();
    return (row == &put_rows[WF_PATH_NIC] && len <= c->rdma_put_copy) ||
           (row == &get_rows[WF_PATH_NIC] && len <= c->rdma_get_copy);
}

enum weft_status weft_path_of(struct weft_peer *peer, unsigned operation,
                              const struct weft_remote *r, size_t len, struct weft_path *out)
{
    bool needs_region = operation != WEFT_OP_AM && operation != WEFT_OP_MSG;
    struct wf_cost cost = {0, 0};
    enum weft_status status;
    const struct row *row;
    if (!peer || !out || operation > WEFT_OP_AM_LONG || (needs_region && (!r || r->peer != peer)))
        return WEFT_EINVAL;
    status = wf_ep_enter(peer->ep);
    if (status != WEFT_OK)
        return status;
    if (operation == WEFT_OP_AM && len > peer->ep->am_max)
        status = WEFT_EMSGSIZE;
    else if (needs_region && len > r->length)
        status = WEFT_ERANGE;
    else
        status = peer->status;
    if (status != WEFT_OK)
        return wf_ep_left(peer->ep, status);
    row = row_of(peer, operation, wf_remote_of(r), len);
    if (!row)
        return wf_ep_left(peer->ep, WEFT_ENOSYS);
    if (operation == WEFT_OP_MSG)
        cost = wf_choice_cost(peer, len);
    *out = (struct weft_path){.transport = peer->transport->name,
                              .protocol = row->protocol,
                              .why = row->why,
                              .copies = row->copies + is_copied_beside(row, len),
                              .inlined = row == &inlined && r->base,
                              .parts_ps = cost.parts,
                              .pull_ps = cost.pull};
    return wf_ep_left(peer->ep, WEFT_OK);
}
