/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/packet.h"

#include <errno.h>

#include "base/seqpacket.h"

static const int8_t fds_of[WF_PACKET_TYPES] = {[WF_PACKET_WELCOME] = 2,
                                               [WF_PACKET_RING] = 3,
                                               [WF_PACKET_RING_OK] = 1,
                                               [WF_PACKET_SLAB_OK] = 1};

static int ring_ok(const struct wf_packet *p)
{
    return wf_address_is_valid(&p->u.ring.from) && wf_shm_geometry_ok(&p->u.ring.geometry);
}

static int greeting_ok(const struct wf_packet_greeting *g)
{
    return g->tid <= INT32_MAX && !g->tid == !g->mark && !g->zero;
}

int wf_packet_parse(const void *buf, size_t len, int nfds, struct wf_packet *out)
{
    struct wf_packet p;
    if (len != sizeof p)
        return -1;
    memcpy(&p, buf, sizeof p);
    if (p.magic != WF_PACKET_MAGIC || p.version != WF_PACKET_VERSION || p.size != sizeof p ||
        p.type == 0 || p.type >= WF_PACKET_TYPES)
        return -1;
    if (nfds != fds_of[p.type] && (nfds != WF_PACKET_LOST || !fds_of[p.type]))
        return -1;
    if (p.type == WF_PACKET_RING && !ring_ok(&p))
        return -1;
    if ((p.type == WF_PACKET_RING_NO && !wf_status_is_failure(p.u.ring_no.status)) ||
        (p.type == WF_PACKET_SLAB_NO && !wf_status_is_failure(p.u.slab.status)))
        return -1;
    if (p.type == WF_PACKET_RING_OK &&
        (p.u.ring_ok.bell >= WF_SHM_BELLS || p.u.ring_ok.bit >= WF_SHM_BELL_BITS))
        return -1;
    if (p.type == WF_PACKET_HELLO && (!p.u.hello.pid || p.u.hello.pid > INT32_MAX))
        return -1;
    if ((p.type == WF_PACKET_HELLO || p.type == WF_PACKET_WELCOME) && !greeting_ok(&p.u.greeting))
        return -1;
    if (p.type == WF_PACKET_SLAB_OK && (!p.u.slab.size || p.u.slab.size > SIZE_MAX / 2))
        return -1;
    *out = p;
    return 0;
}

int wf_packet_send(int sock, struct wf_packet *packet, enum wf_packet_type type, const int *fds,
                   int nfds)
{
    packet->magic = WF_PACKET_MAGIC;
    packet->version = WF_PACKET_VERSION;
    packet->type = (uint8_t)type;
    packet->size = sizeof *packet;
    return wf_seqpacket_send(sock, packet, sizeof *packet, fds, nfds);
}

int wf_packet_recv(int sock, struct wf_packet *packet, int fds[WF_PACKET_FDS], int *nfds)
{
    struct wf_packet raw;
    ssize_t n = wf_seqpacket_recv(sock, &raw, sizeof raw, fds, WF_PACKET_FDS, nfds);
    if (n <= 0)
        return (int)n;
    if (!wf_packet_parse(&raw, (size_t)n, *nfds, packet))
        return 1;
    wf_seqpacket_drop(fds, WF_PACKET_FDS, *nfds);
    errno = EPROTO;
    return -1;
}
