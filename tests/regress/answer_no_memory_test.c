/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a send ignored the report that a receive had its bytes (DONE), and refused its
 * receiver the bytes (FETCH), while there was no memory for a sender: the send never completed. A
 * receiver that could not open the peer by which it answers a member of a group kept the memory of
 * the sender that it had made for that peer.
 *
 * Fails when: such a send does not complete with OK, or its receive does not; or the sender of the
 * member stays. */
#define _GNU_SOURCE
#include <limits.h>
#include <weft/msg.h>

#include "core/core.h"
#include "late.h"

enum { LONG_LEN = 2000000 };
#define FULL WEFT_TAG_FULL

/* The size of the allocations that fail in this thread; 0: none. */
static _Thread_local size_t refused;
static unsigned failures;

extern void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    if (!refused || n * size != refused)
        return __real_calloc(n, size);
    failures++;
    return NULL;
}

static struct side s;
static unsigned char out[LONG_LEN], in[LONG_LEN];

static struct weft_peer *peer_of(struct weft_ep *ep)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_peer *peer;
    CHECK_STATUS(weft_ep_address(s.ep, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(ep, address, len, &peer), WEFT_OK);
    return peer;
}

/* A message of [len] bytes is kept and then received: its answer is a request of the receiver's. At
 * the receiver its sender is known already. */
static void answered(size_t len, unsigned flags)
{
    struct weft_op sent = {.flags = (uint16_t)flags}, got = {0};
    const struct iovec one = {out, len};
    struct weft_msg_info info;
    struct weft_ep *ep;
    struct weft_peer *peer;
    uint64_t word;
    side_open(&s);
    CHECK_STATUS(weft_ep_open(s.ctx, NULL, &ep), WEFT_OK);
    peer = peer_of(ep);
    CHECK_STATUS(weft_msg_recv(s.ep, NULL, 2, FULL, &word, sizeof word, &got), WEFT_PENDING);
    CHECK_STATUS(weft_msg_send(peer, 2, out, sizeof word, NULL), WEFT_OK);
    UNTIL(s.ep, weft_ep_poll(ep) >= 0 && got.status != WEFT_PENDING);
    refused = sizeof(struct wf_sender);
    CHECK_STATUS(weft_msg_sendv(peer, 1, &one, 1, &sent), WEFT_PENDING);
    UNTIL(s.ep, weft_ep_poll(ep) >= 0 && weft_msg_probe(s.ep, NULL, 1, FULL, &info) == WEFT_OK);
    CHECK(weft_msg_recv(s.ep, NULL, 1, FULL, in, len, &got) >= WEFT_OK);
    UNTIL(s.ep, weft_ep_poll(ep) >= 0 && got.status != WEFT_PENDING);
    CHECK_STATUS(got.status, WEFT_OK);
    UNTIL(s.ep, weft_ep_poll(ep) >= 0 && sent.status != WEFT_PENDING);
    CHECK_STATUS(sent.status, WEFT_OK);
    CHECK(failures);
}

static void answer_no_sender(void)
{
    answered(LONG_LEN, 0);
}

static void answer_no_sender_matched(void)
{
    answered(8, WEFT_OP_MATCHED);
}

static void answer_no_member_peer(void)
{
    struct weft_op sent = {0}, got = {0};
    struct weft_ep *members[2];
    side_open(&s);
    CHECK_STATUS(weft_group_open(s.ctx, NULL, 2, members), WEFT_OK);
    CHECK_STATUS(weft_msg_recv(s.ep, NULL, 1, FULL, in, LONG_LEN, &got), WEFT_PENDING);
    CHECK_STATUS(weft_msg_send(peer_of(members[1]), 1, out, LONG_LEN, &sent), WEFT_PENDING);
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (wf_transports[i] == &wf_shm_transport)
            refused = wf_peer_slab_more(&s.ep->peers_by[i]);
    UNTIL(s.ep, weft_ep_poll(members[1]) >= 0 && failures);
    CHECK(s.ep->senders.by_address.count == 1);
}

int main(void)
{
    side_transport("shm");
    return proc_case("answer_no_sender", answer_no_sender) +
           proc_case("answer_no_sender_matched", answer_no_sender_matched) +
           proc_case("answer_no_member_peer", answer_no_member_peer);
}
