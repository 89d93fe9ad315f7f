/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: each sweep closed the peers by which Weft answers the members of groups, since
 * only the record of the group counts what refers to it. So the next answer to the member opened
 * another peer, with another ring.
 *
 * Fails when: a sweep closes such a peer while its group is connected; or none does when the
 * group is connected no more. */
#define _GNU_SOURCE
#include <weft/msg.h>

#include "core/core.h"
#include "late.h"

enum { LONG_LEN = 2000000 };
#define FULL WEFT_TAG_FULL

static struct side s;
static unsigned char out[LONG_LEN], in[LONG_LEN];

/* [from] sends a message that [s], which has no peer to [from], has to answer. */
static void message(struct weft_ep *from, struct weft_peer *peer)
{
    struct weft_op sent = {0}, got = {0};
    CHECK_STATUS(weft_msg_recv(s.ep, NULL, 1, FULL, in, LONG_LEN, &got), WEFT_PENDING);
    CHECK_STATUS(weft_msg_send(peer, 1, out, LONG_LEN, &sent), WEFT_PENDING);
    UNTIL(s.ep, weft_ep_poll(from) >= 0 && got.status != WEFT_PENDING);
    UNTIL(s.ep, weft_ep_poll(from) >= 0 && sent.status != WEFT_PENDING);
    CHECK(got.status == WEFT_OK && sent.status == WEFT_OK);
}

static void sweep(void)
{
    wf_ep_set_due(s.ep, WF_EP_DUE_SWEEP);
    CHECK(weft_ep_poll(s.ep) >= 0);
    CHECK(!(wf_load_relaxed(&s.ep->due) & WF_EP_DUE_SWEEP));
}

static void members_stay(void)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_ep *members[2];
    struct weft_peer *peer;
    side_open(&s);
    CHECK_STATUS(weft_group_open(s.ctx, NULL, 2, members), WEFT_OK);
    CHECK_STATUS(weft_ep_address(s.ep, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(members[1], address, len, &peer), WEFT_OK);
    message(members[1], peer);
    CHECK(s.ep->senders.nreply_peers == 1);
    sweep();
    CHECK(s.ep->senders.nreply_peers == 1);
    message(members[1], peer);
    CHECK(s.ep->senders.nreply_peers == 1);
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK); /* the member stays: its peer is not lost */
    UNTIL(s.ep, !s.ep->senders.nreply_peers);
    CHECK(s.ep->senders.by_address.count == 1); /* the group, whose name the receive has */
}

int main(void)
{
    side_transport("shm");
    return proc_case("members_stay", members_stay);
}
