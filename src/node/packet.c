/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "node/packet.h"

#include <errno.h>
#include <sodium.h>

#include "base/log.h"
#include "base/status.h"
#include "base/util.h"
#include "config/config.h"
#include "transport/net/connect/auth.h"

_Static_assert(WF_NODE_KEY == WF_NET_KEY && WF_NODE_MAC == WF_NET_MAC,
               "the job's key and its MACs");

/* Descriptors and bytes of the body, by type. Some come with up to [more] descriptors more. */
static const struct {
    uint8_t fds, bytes, more;
} shapes[WF_NODE_TYPES] = {
    [WF_NODE_HELLO] = {0, sizeof(struct wf_node_hello)},
    [WF_NODE_CHALLENGE] = {0, sizeof(struct wf_node_challenge)},
    [WF_NODE_PROOF] = {0, sizeof(struct wf_node_proof)},
    [WF_NODE_WELCOME] = {3, sizeof(struct wf_node_welcome), WF_NODE_FDS - 3},
    [WF_NODE_REFUSAL] = {0, sizeof(struct wf_node_refused)},
    [WF_NODE_RING] = {2, sizeof(struct wf_node_ring)},
    [WF_NODE_RING_OK] = {1, 0},
    [WF_NODE_RING_NO] = {0, 4},
    [WF_NODE_UNRING] = {0, sizeof(struct wf_node_unring)},
    [WF_NODE_UNRING_OK] = {0, sizeof(struct wf_node_unring)},
    [WF_NODE_NODE] = {0, sizeof(struct wf_node_other)},
    [WF_NODE_NODE_OK] = {0, sizeof(struct wf_node_other_ok)},
    [WF_NODE_LOG] = {0, sizeof(struct wf_node_line)},
    [WF_NODE_ROW] = {0, sizeof(struct wf_node_row)},
    [WF_NODE_BYE] = {0, 0},
    [WF_NODE_SETTLED] = {0, 0},
    [WF_NODE_RESOURCE] = {0, sizeof(struct wf_node_resource)},
    [WF_NODE_SLAB] = {1, sizeof(struct wf_node_slab)},
    [WF_NODE_UNSLAB] = {0, sizeof(struct wf_node_slab)},
};

/* ---- bodies ---- */

static bool are_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return !any;
}

static bool hello_ok(const struct wf_node_hello *h)
{
    return h->role && h->role < WF_NODE_ROLES && h->held <= 1u << WF_NODE_INDEX_BITS_MAX &&
           !h->held == !h->last && !h->held == !h->line &&
           (h->role == WF_NODE_ATTACH || !h->held) && h->self.pid && h->self.pid <= INT32_MAX;
}

/* Values of another process: those that no version has are refused here, those that differ from
 * this process's by wf_node_parameters_differ. */
static bool parameters_ok(const struct wf_node_parameters *p)
{
    return are_zero((const uint8_t *)p->zero, sizeof p->zero);
}

static bool refused_ok(const struct wf_node_refused *r)
{
    return r->reason && r->reason < WF_NODE_REASONS && r->ends <= 1 &&
           parameters_ok(&r->parameters);
}

/* Is it how a service is called? */
static bool is_service(const struct wf_contact *c)
{
    return wf_contact_is_valid(c) && !c->node && !c->port != !c->rdma;
}

static bool ring_ok(const struct wf_node_ring *r)
{
    return wf_address_is_valid(&r->from) && r->bytes >= WF_NODE_RING_MIN &&
           r->bytes <= WF_NODE_RING_MAX && wf_contact_is_valid(&r->contact) && r->contact.node &&
           !(r->bytes & (r->bytes - 1)) && r->am_max >= 512 && r->am_max <= WF_NODE_AM_MAX &&
           !(r->am_max & 63);
}

/* Is [text], an array of [size], printable, and zero from its end on? */
static bool text_ok(const char *text, size_t size)
{
    size_t n = strnlen(text, size);
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return n < size && are_zero((const uint8_t *)text + n, size - n);
}

/* The name is printed as JSON as it is. */
static bool resource_ok(const struct wf_node_resource *r)
{
    return text_ok(r->name, sizeof r->name) && r->name[0] && !strpbrk(r->name, "\"\\");
}

static bool line_ok(const struct wf_node_line *l)
{
    return l->level <= WF_LOG_DEBUG && text_ok(l->text, sizeof l->text);
}

/* Only the service's own row has its parameters and limits. */
static bool row_ok(const struct wf_node_row *r)
{
    const uint8_t *rest = (const uint8_t *)&r->parameters;
    bool own = r->index == WF_NODE_NO_INDEX;
    if (!own && !are_zero(rest, sizeof *r - offsetof(struct wf_node_row, parameters)))
        return false;
    return (own || r->index < 1u << WF_NODE_INDEX_BITS_MAX) && r->pid && r->pid <= INT32_MAX &&
           parameters_ok(&r->parameters) && r->parameters.index_bits <= WF_NODE_INDEX_BITS_MAX;
}

/* The description of a domain is checked by its registrar. */
static bool welcome_ok(const struct wf_node_welcome *w)
{
    return w->index < 1u << WF_NODE_INDEX_BITS_MAX && w->incarnation && w->line &&
           w->window <= wf_node_window(WF_NODE_INDEXES - 1, WF_NODE_WINDOW_ROUNDS) &&
           (w->window || are_zero((const uint8_t *)&w->share, sizeof w->share)) &&
           is_service(&w->contact);
}

static bool slab_ok(const struct wf_node_slab *s)
{
    if (!s->id)
        return s->size == sizeof(struct wf_node_regions) && !s->read_only && !s->zero;
    return s->size && s->size <= SIZE_MAX / 2 && s->read_only <= 1 && !s->zero;
}

static bool body_ok(const struct wf_node_packet *p)
{
    switch (p->type) {
    case WF_NODE_HELLO: return hello_ok(&p->u.hello);
    case WF_NODE_PROOF: return parameters_ok(&p->u.proof.parameters);
    case WF_NODE_WELCOME: return welcome_ok(&p->u.welcome);
    case WF_NODE_REFUSAL: return refused_ok(&p->u.refused);
    case WF_NODE_RING: return ring_ok(&p->u.ring);
    case WF_NODE_RING_NO: return wf_status_is_failure(p->u.ring_no.status);
    case WF_NODE_UNRING:
    case WF_NODE_UNRING_OK: return !p->u.unring.zero;
    case WF_NODE_NODE: return is_service(&p->u.node.contact) && !p->u.node.zero;
    case WF_NODE_NODE_OK:
        return wf_status_is_failure(p->u.node_ok.status)
                   ? !p->u.node_ok.word
                   : !p->u.node_ok.status && p->u.node_ok.word != WF_NODE_NO_WORD;
    case WF_NODE_LOG: return line_ok(&p->u.log);
    case WF_NODE_ROW: return row_ok(&p->u.row);
    case WF_NODE_RESOURCE: return resource_ok(&p->u.resource);
    case WF_NODE_SLAB: return slab_ok(&p->u.slab);
    case WF_NODE_UNSLAB:
        return p->u.slab.id && !p->u.slab.size && !p->u.slab.read_only && !p->u.slab.zero;
    default: return true;
    }
}

/* ---- packets ---- */

void wf_node_packet_init(struct wf_node_packet *packet, enum wf_node_type type)
{
    memset(packet, 0, sizeof *packet);
    packet->magic = WF_NODE_MAGIC;
    packet->version = WF_NODE_VERSION;
    packet->type = (uint8_t)type;
    packet->size = sizeof *packet;
}

enum weft_status wf_node_packet_parse(const void *buf, size_t len, int nfds,
                                      struct wf_node_packet *out)
{
    struct wf_node_packet p = {0};
    if (len < offsetof(struct wf_node_packet, flags) || len > sizeof p)
        return WEFT_EPROTO;
    memcpy(&p, buf, len);
    if (p.magic != WF_NODE_MAGIC)
        return WEFT_EPROTO;
    if (p.version != WF_NODE_VERSION) {
        memcpy(out, &p, offsetof(struct wf_node_packet, flags));
        return WEFT_EVERSION;
    }
    if (len != sizeof p || p.size != sizeof p || !p.type || p.type >= WF_NODE_TYPES ||
        p.flags & ~(uint32_t)WF_NODE_MEMBARRIER)
        return WEFT_EPROTO;
    if ((nfds < shapes[p.type].fds || nfds > shapes[p.type].fds + shapes[p.type].more) &&
        (nfds != WF_SEQPACKET_LOST || !shapes[p.type].fds))
        return WEFT_EPROTO;
    if (!are_zero(p.u.room + shapes[p.type].bytes, sizeof p.u.room - shapes[p.type].bytes) ||
        !body_ok(&p))
        return WEFT_EPROTO;
    *out = p;
    return WEFT_OK;
}

int wf_node_packet_send(int sock, const struct wf_node_packet *packet, const int *fds, int nfds)
{
    return wf_seqpacket_send(sock, packet, sizeof *packet, fds, nfds);
}

enum weft_status wf_node_packet_recv(int sock, struct wf_node_packet *packet, int fds[WF_NODE_FDS],
                                     int *nfds)
{
    struct wf_node_packet raw;
    ssize_t n = wf_seqpacket_recv(sock, &raw, sizeof raw, fds, WF_NODE_FDS, nfds);
    enum weft_status status;
    if (!n || (n < 0 && (errno == ECONNRESET || errno == EPIPE)))
        return WEFT_ECLOSED;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? WEFT_AGAIN : WEFT_EPROTO;
    status = wf_node_packet_parse(&raw, (size_t)n, *nfds, packet);
    if (status != WEFT_OK)
        wf_seqpacket_drop(fds, WF_NODE_FDS, *nfds);
    return status;
}

/* ---- parameters ---- */

static enum wf_node_lanes lanes_here(void)
{
#ifdef WF_HAVE_VERBS
    if (wf_config_wants("rdma"))
        return WF_NODE_RDMA;
#endif
    return WF_NODE_TCP;
}

void wf_node_parameters_here(struct wf_node_parameters *p)
{
    const struct wf_config *c = wf_config();
    *p = (struct wf_node_parameters){.connections = (uint32_t)c->node_connections,
                                     .index_bits = (uint32_t)c->node_index_bits,
                                     .am_max = WF_NODE_AM_MAX,
                                     .ring = (uint32_t)c->node_ring,
                                     .receives = (uint32_t)c->node_receives,
                                     .encrypt = (uint32_t)c->tcp_encrypt,
                                     .lanes = lanes_here(),
                                     .shared_version = WF_NODE_SHARED_VERSION};
}

const char *wf_node_parameters_differ(const struct wf_node_parameters *a,
                                      const struct wf_node_parameters *b, uint32_t *mine,
                                      uint32_t *theirs)
{
    static const char *const names[] = {
        "WEFT_NODE_CONNECTIONS",
        "WEFT_NODE_INDEX_BITS",
        "longest payload",
        "WEFT_NODE_RING",
        "WEFT_NODE_RECEIVES",
        "WEFT_TCP_ENCRYPT",
        "lanes to other nodes (1 TCP, 2 RDMA where there is a device: WEFT_TRANSPORTS)",
        "version of the memory shared with the service",
    };
    uint32_t x[sizeof *a / 4], y[sizeof *b / 4];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    for (size_t i = 0; i < WF_ARRAY_LEN(names); i++)
        if (x[i] != y[i]) {
            *mine = x[i];
            *theirs = y[i];
            return names[i];
        }
    return NULL;
}

/* ---- MACs ---- */

static const uint8_t label_challenge[WF_NET_LABEL] = "weft1 node chall";
static const uint8_t label_proof[WF_NET_LABEL] = "weft1 node proof";

#define MAC_AT (offsetof(struct wf_node_packet, u) + offsetof(struct wf_node_challenge, mac))

enum weft_status wf_node_mac_init(void)
{
    return wf_net_auth_init();
}

void wf_node_nonce(uint8_t nonce[WF_NODE_NONCE])
{
    randombytes_buf(nonce, WF_NODE_NONCE);
}

void wf_node_challenge_sign(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                            struct wf_node_packet *challenge)
{
    const struct wf_net_part parts[] = {{hello, sizeof *hello}, {challenge, MAC_AT}};
    wf_net_mac(key, label_challenge, parts, 2, challenge->u.challenge.mac);
}

bool wf_node_challenge_verify(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                              const struct wf_node_packet *challenge)
{
    const struct wf_net_part parts[] = {{hello, sizeof *hello}, {challenge, MAC_AT}};
    return wf_net_mac_verify(key, label_challenge, parts, 2, challenge->u.challenge.mac);
}

void wf_node_proof_sign(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                        const struct wf_node_packet *challenge, struct wf_node_packet *proof)
{
    const struct wf_net_part parts[] = {
        {hello, sizeof *hello},
        {challenge, MAC_AT},
        {&proof->u.proof.parameters, sizeof proof->u.proof.parameters}};
    wf_net_mac(key, label_proof, parts, 3, proof->u.proof.mac);
}

bool wf_node_proof_verify(const uint8_t key[WF_NODE_KEY], const struct wf_node_packet *hello,
                          const struct wf_node_packet *challenge,
                          const struct wf_node_packet *proof)
{
    const struct wf_net_part parts[] = {
        {hello, sizeof *hello},
        {challenge, MAC_AT},
        {&proof->u.proof.parameters, sizeof proof->u.proof.parameters}};
    return wf_net_mac_verify(key, label_proof, parts, 3, proof->u.proof.mac);
}
