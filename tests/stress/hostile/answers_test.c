/* SPDX-License-Identifier: BSD-3-Clause */
/* A third endpoint that answers a send which is not its own: docs/protocol.md "Messages". It knows
 * the number of the send's request, which a peer may guess.
 *
 * Fails when: the send ends, or gives its bytes away; an answer to a send whose peer is a name that
 * was not found yet makes a sender for this name, to which its peer still points when it has been
 * found and closed. */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <netinet/in.h>
#include <weft/msg.h>

#include "contract/support.h"
#include "core/core.h"
#include "core/ctl.h"
#include "core/msg.h"
#include "core/req.h"
#include "bad.h"

enum { TAG = 7 };
#define FULL WEFT_TAG_FULL

static struct weft_ctx *ctx;
static struct weft_ep *good, *liar;
static struct weft_peer *to_good; /* the liar's */
static uint64_t out = 0x5ec2e7, in;

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t end_ = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);                          \
        while (!(cond)) {                                                                          \
            CHECK(weft_ep_poll(good) >= 0 && weft_ep_poll(liar) >= 0);                             \
            if (proc_now_ns() > end_)                                                              \
                proc_fail(__FILE__, __LINE__, "never came true: %s", #cond);                       \
        }                                                                                          \
    } while (0)

static void ends_open(void)
{
    CHECK_STATUS(weft_ctx_open(NULL, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &good), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &liar), WEFT_OK);
    to_good = peer_to(liar, good);
}

/* The number of the request of [op]. */
static uint64_t number_of(const struct weft_op *op)
{
    return ((const struct wf_req *)op->entry_)->id;
}

/* The liar reports the end of the send [op], and asks for its bytes. Returns when the endpoint has
 * answered, which it does in the order in which it has got them. */
static void lie(const struct weft_op *op)
{
    const uint64_t id = number_of(op);
    const uint32_t done[WF_OFFER_END_ARGS] = {WF_LO(id), WF_HI(id), WEFT_OK};
    const uint32_t fetch[WF_FETCH_ARGS] = {WF_LO(id), WF_HI(id), 77, 0, 0, sizeof out};
    struct weft_op mark = {.flags = WEFT_OP_DELIVERED};
    const struct iovec nothing = {NULL, 0};
    const uint64_t before = stat_of(ctx, "COPIED_BYTES");
    CHECK_STATUS(wf_ctl_request(to_good, WF_CTL_DONE, done, WF_OFFER_END_ARGS, NULL, 0, 0),
                 WEFT_OK);
    CHECK_STATUS(
        wf_ctl_request(to_good, WF_CTL_FETCH, fetch, WF_FETCH_ARGS, NULL, 0, sizeof out + 1),
        WEFT_OK);
    if (weft_msg_sendv(to_good, TAG, &nothing, 1, &mark) == WEFT_PENDING)
        UNTIL(mark.status != WEFT_PENDING);
    CHECK(op->status == WEFT_PENDING && stat_of(ctx, "COPIED_BYTES") == before);
}

static void offer(struct weft_peer *peer, struct weft_op *op)
{
    const struct iovec one = {&out, sizeof out};
    op->flags = WEFT_OP_MATCHED;
    CHECK_STATUS(weft_msg_sendv(peer, TAG, &one, 1, op), WEFT_PENDING);
}

static void received(struct weft_ep *ep, struct weft_op *sent)
{
    struct weft_op got = {0};
    in = 0;
    CHECK(weft_msg_recv(ep, NULL, TAG, FULL, &in, sizeof in, &got) >= 0);
    UNTIL(weft_ep_poll(ep) >= 0 && got.status != WEFT_PENDING && sent->status != WEFT_PENDING);
    CHECK(got.status == WEFT_OK && sent->status == WEFT_OK && in == out);
}

/* The send's peer is known, and has the offer. */
static void foreign(void)
{
    struct weft_op op = {0};
    struct weft_msg_info info;
    struct weft_ep *third;
    struct weft_peer *peer;
    ends_open();
    CHECK_STATUS(weft_ep_open(ctx, NULL, &third), WEFT_OK);
    peer = peer_to(good, third);
    offer(peer, &op);
    UNTIL(weft_ep_poll(third) >= 0 && weft_msg_probe(third, NULL, TAG, FULL, &info) == WEFT_OK);
    lie(&op);
    received(third, &op);
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
}

/* The send's peer is a name that no endpoint has yet. */
static void unresolved(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(test_own_ip())};
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof name;
    struct weft_op op = {0};
    struct weft_peer *peer;
    struct weft_ep *server;
    ends_open();
    params.name = (const struct sockaddr *)(const void *)&name;
    params.name_size = sizeof name;
    CHECK_STATUS(weft_ep_open(ctx, &params, &server), WEFT_OK); /* finds a free port */
    CHECK_STATUS(weft_ep_name(server, (struct sockaddr *)(void *)&name, &len), WEFT_OK);
    CHECK_STATUS(weft_ep_close(server), WEFT_OK);
    len = sizeof address;
    CHECK_STATUS(weft_name_address(params.name, sizeof name, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(good, address, len, &peer), WEFT_OK);
    offer(peer, &op);
    lie(&op);
    CHECK(!peer->sender);
    CHECK_STATUS(weft_ep_open(ctx, &params, &server), WEFT_OK);
    received(server, &op);
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(server), WEFT_OK);
    CHECK_STATUS(weft_peer_close(to_good), WEFT_OK);
    CHECK_STATUS(weft_ep_close(liar), WEFT_OK);
    CHECK_STATUS(weft_ep_close(good), WEFT_OK);
}

int main(void)
{
    return proc_case("foreign", foreign) + proc_case("unresolved", unresolved);
}
