/* SPDX-License-Identifier: BSD-3-Clause */
/* wf_node_packet_parse. The first byte says how many descriptors came along. */
#include "fuzz.h"

#include "base/log.h"
#include "node/packet.h"

static void fill(struct wf_node_packet *p)
{
    switch (p->type) {
    case WF_NODE_HELLO:
        p->u.hello = (struct wf_node_hello){
            .role = WF_NODE_ATTACH, .held = 3, .last = 77, .line = 7, .self = {.pid = 1}};
        break;
    case WF_NODE_PROOF: p->u.proof.parameters.connections = 4; break;
    case WF_NODE_WELCOME: p->u.welcome = (struct wf_node_welcome){4095, 1, 1, 0, {7, 1}}; break;
    case WF_NODE_REFUSAL: p->u.refused.reason = WF_NODE_REFUSED_BUSY; break;
    case WF_NODE_RING:
        p->u.ring = (struct wf_node_ring){{.version = WF_ADDRESS_VERSION,
                                           .size = sizeof(struct wf_address),
                                           .process = {.pid = 1}},
                                          {.count = 1, .node = 1, .rdma = 7},
                                          262144,
                                          4096};
        break;
    case WF_NODE_RING_NO: p->u.ring_no.status = -9; break;
    case WF_NODE_UNRING:
    case WF_NODE_UNRING_OK: p->u.unring = (struct wf_node_unring){3, 0, 9}; break;
    case WF_NODE_NODE: p->u.node.contact = (struct wf_contact){.port = 4711, .count = 1}; break;
    case WF_NODE_NODE_OK: p->u.node_ok.word = WF_NODE_WORDS - 1; break;
    case WF_NODE_LOG:
        p->u.log = (struct wf_node_line){WF_LOG_ERROR, "what is wrong, and why"};
        break;
    case WF_NODE_ROW: p->u.row = (struct wf_node_row){WF_NODE_NO_INDEX, 1, 1000}; break;
    case WF_NODE_RESOURCE:
        p->u.resource = (struct wf_node_resource){396, 24 << 20, "queue pairs"};
        break;
    case WF_NODE_SLAB: p->u.slab = (struct wf_node_slab){7, 2 << 20, 1, 0}; break;
    case WF_NODE_UNSLAB: p->u.slab.id = 7; break;
    default: break;
    }
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    static const uint8_t fds[WF_NODE_TYPES] = {
        [WF_NODE_WELCOME] = 3, [WF_NODE_RING] = 2, [WF_NODE_RING_OK] = 1, [WF_NODE_SLAB] = 1};
    struct wf_node_packet p;
    if (i + 1 >= WF_NODE_TYPES || room <= sizeof p)
        return 0;
    wf_node_packet_init(&p, (enum wf_node_type)(i + 1));
    fill(&p);
    buf[0] = fds[p.type] + 1;
    memcpy(buf + 1, &p, sizeof p);
    return 1 + sizeof p;
}

static void check_body(const struct wf_node_packet *p)
{
    switch (p->type) {
    case WF_NODE_HELLO:
        FUZZ_CHECK(p->u.hello.held <= 4096 && (int32_t)p->u.hello.self.pid > 0);
        FUZZ_CHECK(p->u.hello.role >= 1 && p->u.hello.role < WF_NODE_ROLES);
        break;
    case WF_NODE_WELCOME: FUZZ_CHECK(p->u.welcome.index < 4096); break;
    case WF_NODE_REFUSAL: FUZZ_CHECK(p->u.refused.reason < WF_NODE_REASONS); break;
    case WF_NODE_RING:
        FUZZ_CHECK(wf_address_is_valid(&p->u.ring.from));
        FUZZ_CHECK(p->u.ring.bytes >= WF_NODE_RING_MIN && p->u.ring.bytes <= WF_NODE_RING_MAX);
        FUZZ_CHECK(p->u.ring.am_max <= 32704);
        break;
    case WF_NODE_NODE: FUZZ_CHECK(wf_contact_is_valid(&p->u.node.contact)); break;
    case WF_NODE_NODE_OK: FUZZ_CHECK(p->u.node_ok.word != WF_NODE_NO_WORD); break;
    case WF_NODE_LOG: FUZZ_CHECK(strlen(p->u.log.text) < sizeof p->u.log.text); break;
    case WF_NODE_ROW: FUZZ_CHECK((int32_t)p->u.row.pid > 0); break;
    case WF_NODE_RESOURCE:
        FUZZ_CHECK(strlen(p->u.resource.name) < sizeof p->u.resource.name);
        break;
    case WF_NODE_SLAB:
        FUZZ_CHECK(p->u.slab.size && p->u.slab.size <= SIZE_MAX / 2 && p->u.slab.read_only <= 1);
        FUZZ_CHECK(p->u.slab.id || p->u.slab.size == sizeof(struct wf_node_regions));
        break;
    case WF_NODE_UNSLAB: FUZZ_CHECK(p->u.slab.id); break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_node_packet p;
    enum weft_status status;
    int nfds = size ? (data[0] & 7) - 1 : 0; /* WF_SEQPACKET_LOST too */
    memset(&p, 0x5a, sizeof p);
    status = size ? wf_node_packet_parse(data + 1, size - 1, nfds, &p) : WEFT_EPROTO;
    FUZZ_CHECK(status == WEFT_OK || status == WEFT_EPROTO || status == WEFT_EVERSION);
    if (status == WEFT_EVERSION)
        FUZZ_CHECK(p.magic == WF_NODE_MAGIC && p.version != WF_NODE_VERSION &&
                   p.flags == 0x5a5a5a5a);
    if (status != WEFT_OK)
        return 0;
    FUZZ_CHECK(size == 1 + sizeof p && !memcmp(&p, data + 1, sizeof p));
    FUZZ_CHECK(p.type && p.type < WF_NODE_TYPES && nfds <= WF_NODE_FDS);
    check_body(&p);
    return 0;
}
