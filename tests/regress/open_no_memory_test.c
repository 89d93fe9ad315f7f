/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a second handle of an endpoint that has sent messages needs memory in the record
 * of this sender. Without it weft_peer_open returned ENOMEM, and *out led to the peer that it had
 * freed.
 *
 * Fails when: weft_peer_open changes *out though it fails, or leaves a handle behind; or a receive
 * that names the first handle takes no message any more. */
#define _GNU_SOURCE
#include <weft/msg.h>

#include "core/core.h"
#include "late.h"

#define FULL WEFT_TAG_FULL

/* The next allocation of a set's slots fails. */
static bool refuses;

extern void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    if (!refuses || size != sizeof(struct weft_peer *))
        return __real_calloc(n, size);
    refuses = false;
    return NULL;
}

static struct side s;

/* A message of [from], by the handle [named] of the receiver. */
static void receive(struct weft_ep *from, struct weft_peer *peer, struct weft_peer *named)
{
    struct weft_op got = {0};
    uint64_t out = 5, in = 0;
    CHECK_STATUS(weft_msg_recv(s.ep, named, 1, FULL, &in, sizeof in, &got), WEFT_PENDING);
    CHECK_STATUS(weft_msg_send(peer, 1, &out, sizeof out, NULL), WEFT_OK);
    UNTIL(s.ep, weft_ep_poll(from) >= 0 && got.status != WEFT_PENDING);
    CHECK(got.status == WEFT_OK && in == out);
}

static void second_handle(void)
{
    unsigned char here[WEFT_ADDR_MAX], there[WEFT_ADDR_MAX];
    size_t len = sizeof here;
    struct weft_peer *to_here, *first, *second = NULL;
    struct weft_ep *from;
    side_open(&s);
    CHECK_STATUS(weft_ep_open(s.ctx, NULL, &from), WEFT_OK);
    CHECK_STATUS(weft_ep_address(s.ep, here, &len), WEFT_OK);
    CHECK_STATUS(weft_ep_address(from, there, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(from, here, len, &to_here), WEFT_OK);
    CHECK_STATUS(weft_peer_open(s.ep, there, len, &first), WEFT_OK);
    receive(from, to_here, first);
    refuses = true;
    CHECK_STATUS(weft_peer_open(s.ep, there, len, &second), WEFT_ENOMEM);
    CHECK(!refuses && !second && s.ep->peers == 1);
    receive(from, to_here, first);
    CHECK_STATUS(weft_peer_open(s.ep, there, len, &second), WEFT_OK);
    CHECK_STATUS(weft_peer_close(first), WEFT_OK);
    receive(from, to_here, second);
    CHECK_STATUS(weft_peer_close(second), WEFT_OK);
    CHECK_STATUS(weft_peer_close(to_here), WEFT_OK);
    CHECK_STATUS(weft_ep_close(from), WEFT_OK);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(s.ctx), WEFT_OK);
}

int main(void)
{
    side_transport("shm");
    return proc_case("second_handle", second_handle);
}
