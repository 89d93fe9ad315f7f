/* SPDX-License-Identifier: BSD-3-Clause */
/* The short calls of the libfabric provider, and the native calls below them, between two endpoints
 * of this process in turn. bench/fabric-calls counts their instructions, and needs the names of the
 * steps here.
 *
 *     FI_PROVIDER_PATH=DIR WEFT_TRANSPORTS=shm fabric_calls MESSAGES */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <string.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "common.h"

#define TAG 1
#define DATA 7

enum { OUT, IN, SIDES };

static struct fid_domain *domain[SIDES];
static struct fid_cq *cq[SIDES];
static struct fid_ep *ep[SIDES];
static struct fid_av *av[SIDES];
static struct weft_ep *wep[SIDES];
static struct weft_peer *peer;
static struct weft_op op;
static fi_addr_t to;
static uint64_t out = 1, in;

/* ---- the steps, each a function that callgrind can distinguish ---- */

#define STEP __attribute__((noinline)) static void

STEP native_post(void)
{
    CHECK(weft_msg_recv(wep[IN], NULL, TAG, WEFT_TAG_FULL, &in, 8, &op) == WEFT_PENDING);
}

STEP provider_post(void)
{
    CHECK(!fi_trecv(ep[IN], &in, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &in));
}

STEP native_send(void)
{
    CHECK(weft_msg_send(peer, TAG, &out, 8, NULL) == WEFT_OK);
}

STEP provider_send(void)
{
    CHECK(!fi_tinject(ep[OUT], &out, 8, to, TAG));
}

STEP native_send_data(void)
{
    const struct weft_msg_head head = {TAG, DATA, 0, WEFT_MSG_DATA};
    const struct iovec one = {&out, 8};
    CHECK(weft_msg_post_send(peer, &head, &one, 1, NULL) == WEFT_OK);
}

STEP provider_send_data(void)
{
    CHECK(!fi_tinjectdata(ep[OUT], &out, 8, DATA, to, TAG));
}

/* Steps that were the same would be one function: each checks what its message has. */
STEP native_take(void)
{
    CHECK(weft_ep_poll(wep[IN]) == 1 && op.status == WEFT_OK && !op.has_data);
}

STEP native_take_data(void)
{
    CHECK(weft_ep_poll(wep[IN]) == 1 && op.status == WEFT_OK && op.data == DATA);
}

STEP provider_take(void)
{
    struct fi_cq_data_entry e;
    CHECK(fi_cq_read(cq[IN], &e, 1) == 1 && !(e.flags & FI_REMOTE_CQ_DATA));
}

STEP provider_take_data(void)
{
    struct fi_cq_data_entry e;
    CHECK(fi_cq_read(cq[IN], &e, 1) == 1 && e.data == DATA);
}

/* ---- opening ---- */

static void provider_open(int side)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_DATA};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fid_fabric *fabric;
    CHECK(hints != NULL);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup("weft");
    CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
    CHECK(!fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK(!fi_domain(fabric, info, &domain[side], NULL));
    CHECK(!fi_av_open(domain[side], &av_attr, &av[side], NULL));
    CHECK(!fi_cq_open(domain[side], &cq_attr, &cq[side], NULL));
    CHECK(!fi_endpoint(domain[side], info, &ep[side], NULL));
    CHECK(!fi_ep_bind(ep[side], &av[side]->fid, 0));
    CHECK(!fi_ep_bind(ep[side], &cq[side]->fid, FI_TRANSMIT | FI_RECV));
    CHECK(!fi_enable(ep[side]));
}

static void native_open(int side)
{
    struct weft_ctx *ctx;
    CHECK(weft_ctx_open(NULL, &ctx) == WEFT_OK);
    CHECK(weft_ep_open(ctx, NULL, &wep[side]) == WEFT_OK);
}

static void meet(void)
{
    uint8_t name[WEFT_ADDR_MAX];
    size_t len = sizeof name;
    CHECK(!fi_getname(&ep[IN]->fid, name, &len));
    CHECK(fi_av_insert(av[OUT], name, 1, &to, 0, NULL) == 1);
    len = sizeof name;
    CHECK(weft_ep_address(wep[IN], name, &len) == WEFT_OK);
    CHECK(weft_peer_open(wep[OUT], name, len, &peer) == WEFT_OK);
}

/* The sides that send get room again. */
static void senders_poll(void)
{
    struct fi_cq_data_entry none;
    CHECK(fi_cq_read(cq[OUT], &none, 1) == -FI_EAGAIN);
    CHECK(weft_ep_poll(wep[OUT]) >= 0);
}

/* The first messages connect. */
static void connect_both(void)
{
    const uint64_t end = now_ns() + 10000000000u;
    struct fi_cq_data_entry e;
    native_post();
    provider_post();
    while (fi_tinject(ep[OUT], &out, 8, to, TAG) == -FI_EAGAIN && now_ns() < end)
        senders_poll();
    while (weft_msg_send(peer, TAG, &out, 8, NULL) == WEFT_AGAIN && now_ns() < end)
        senders_poll();
    while (fi_cq_read(cq[IN], &e, 1) != 1 && now_ns() < end)
        senders_poll();
    while (op.status == WEFT_PENDING && now_ns() < end) {
        CHECK(weft_ep_poll(wep[IN]) >= 0);
        senders_poll();
    }
    CHECK(now_ns() < end);
}

int main(int argc, char **argv)
{
    long messages = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (messages <= 0) {
        fprintf(stderr, "usage: fabric_calls MESSAGES\n");
        return 2;
    }
    for (int side = 0; side < SIDES; side++) {
        provider_open(side);
        native_open(side);
    }
    meet();
    connect_both();
    for (long i = 0; i < messages; i++) {
        native_post();
        native_send();
        native_take();
        native_post();
        native_send_data();
        native_take_data();
        provider_post();
        provider_send();
        provider_take();
        provider_post();
        provider_send_data();
        provider_take_data();
        senders_poll();
    }
    return 0;
}
