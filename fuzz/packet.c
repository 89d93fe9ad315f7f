/* SPDX-License-Identifier: BSD-3-Clause */
/* wf_packet_parse. The first byte says how many descriptors came along. */
#include "fuzz.h"

#include "transport/shm/packet.h"

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    static const uint8_t fds[WF_PACKET_TYPES] = {[WF_PACKET_WELCOME] = 2,
                                                 [WF_PACKET_RING] = 3,
                                                 [WF_PACKET_RING_OK] = 1,
                                                 [WF_PACKET_SLAB_OK] = 1};
    struct wf_packet p = {.magic = WF_PACKET_MAGIC,
                          .version = WF_PACKET_VERSION,
                          .type = (uint8_t)(i + 1),
                          .size = sizeof p};
    if (i + 1 >= WF_PACKET_TYPES || room <= sizeof p)
        return 0;
    p.u.greeting = (struct wf_packet_greeting){.id = {.pid = 1}, .mark = 4096, .tid = 1};
    if (p.type == WF_PACKET_RING) {
        p.u.ring.from = (struct wf_address){
            .version = WF_ADDRESS_VERSION, .size = sizeof p.u.ring.from, .process = {.pid = 1}};
        p.u.ring.geometry = (struct wf_shm_geometry){512, 65536, 4032, 16};
    }
    if (p.type == WF_PACKET_RING_NO)
        p.u.ring_no.status = -9;
    if (p.type == WF_PACKET_SLAB_OK)
        p.u.slab.size = 4096;
    if (p.type == WF_PACKET_SLAB_NO)
        p.u.slab.status = -3;
    buf[0] = fds[p.type] + 1;
    memcpy(buf + 1, &p, sizeof p);
    return 1 + sizeof p;
}

static void check_ring(const struct wf_packet *p)
{
    const struct wf_shm_geometry *g = &p->u.ring.geometry;
    size_t fwd = wf_shm_fwd_size(g), back = wf_shm_back_size(g);
    FUZZ_CHECK(wf_address_is_valid(&p->u.ring.from));
    FUZZ_CHECK(fwd > (size_t)g->slots * 64 && fwd < (size_t)1 << 30);
    FUZZ_CHECK(back > (size_t)g->slots * 128 + g->payload + (size_t)g->places * g->am_max);
    FUZZ_CHECK(back < (size_t)1 << 30 && g->places <= 64 && g->am_max <= UINT16_MAX);
}

static bool is_failure(int32_t status)
{
    return status < 0 && strcmp(weft_status_name((enum weft_status)status), "WEFT_?") != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_packet p;
    int nfds = size ? (data[0] & 7) - 1 : 0; /* WF_PACKET_LOST too */
    if (!size || wf_packet_parse(data + 1, size - 1, nfds, &p))
        return 0;
    FUZZ_CHECK(size == 1 + sizeof p && !memcmp(&p, data + 1, sizeof p));
    FUZZ_CHECK(p.type && p.type < WF_PACKET_TYPES && nfds <= WF_PACKET_FDS);
    if (p.type == WF_PACKET_RING)
        check_ring(&p);
    if (p.type == WF_PACKET_RING_NO)
        FUZZ_CHECK(is_failure(p.u.ring_no.status));
    if (p.type == WF_PACKET_SLAB_NO)
        FUZZ_CHECK(is_failure(p.u.slab.status));
    if (p.type == WF_PACKET_HELLO)
        FUZZ_CHECK((int32_t)p.u.hello.pid > 0);
    if (p.type == WF_PACKET_HELLO || p.type == WF_PACKET_WELCOME)
        FUZZ_CHECK(p.u.greeting.tid <= INT32_MAX && !p.u.greeting.tid == !p.u.greeting.mark);
    if (p.type == WF_PACKET_SLAB_OK)
        FUZZ_CHECK(p.u.slab.size && p.u.slab.size <= SIZE_MAX / 2);
    return 0;
}
