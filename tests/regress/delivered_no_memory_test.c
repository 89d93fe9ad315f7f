/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a send with WEFT_OP_DELIVERED completed with OK although its message was lost,
 * because the receiver had no memory for the sender when the message came, but had some when the
 * sender asked.
 *
 * Fails when: such a send completes with OK, or never, without memory for the sender or for the
 * message; or the sender's next one does. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <weft/msg.h>

#include "core/msg_recv.h"
#include "core/sender.h"
#include "late.h"

/* The size of the allocations that fail in this thread, of which there are [failures] left. */
static _Thread_local size_t refused;
static unsigned failures;

extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool fails(size_t size)
{
    if (!refused || size != refused || !failures)
        return false;
    failures--;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(n * size) ? NULL : __real_calloc(n, size);
}

static enum weft_status send_delivered(struct weft_peer *peer, const void *buf, size_t len,
                                       struct weft_op *op)
{
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    *op = (struct weft_op){.flags = WEFT_OP_DELIVERED};
    return weft_msg_sendv(peer, 1, &one, 1, op);
}

/* The first allocation of [size] bytes fails after a message of [len] bytes was sent. */
static void starve(size_t size, size_t len)
{
    unsigned char address[WEFT_ADDR_MAX], *buf = calloc(1, len);
    size_t address_len = sizeof address;
    struct weft_ep *requester;
    struct weft_peer *peer;
    struct weft_op op;
    static struct side s;
    side_open(&s);
    CHECK_STATUS(weft_ep_address(s.ep, address, &address_len), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s.ctx, NULL, &requester), WEFT_OK);
    CHECK_STATUS(weft_peer_open(requester, address, address_len, &peer), WEFT_OK);
    failures = 1;
    refused = size;
    CHECK_STATUS(send_delivered(peer, buf, len, &op), WEFT_PENDING);
    UNTIL(s.ep, weft_ep_poll(requester) >= 0 && !failures);
    UNTIL(s.ep, weft_ep_poll(requester) >= 0 && op.status != WEFT_PENDING);
    CHECK_STATUS(op.status, WEFT_ENOMEM);
    refused = 0;
    if (len < 1000000) { /* else only the offer was refused */
        CHECK_STATUS(send_delivered(peer, buf, len, &op), WEFT_PENDING);
        UNTIL(s.ep, weft_ep_poll(requester) >= 0 && op.status != WEFT_PENDING);
        CHECK_STATUS(op.status, WEFT_ENOMEM);
    }
    free(buf);
}

static void delivered_no_sender(void)
{
    starve(sizeof(struct wf_sender), 8);
}

static void delivered_no_sender_parts(void)
{
    starve(sizeof(struct wf_sender), 20000);
}

static void delivered_no_sender_offer(void)
{
    starve(sizeof(struct wf_sender), 2000000);
}

static void delivered_no_message(void)
{
    starve(sizeof(struct weft_msg) + WF_KEPT_BRIEF, 8);
}

static void delivered_no_message_parts(void)
{
    starve(sizeof(struct weft_msg) + 20000, 20000);
}

static void delivered_no_message_offer(void)
{
    starve(sizeof(struct weft_msg) + WF_KEPT_BRIEF, 2000000);
}

int main(void)
{
    side_transport("shm");
    return proc_case("delivered_no_sender", delivered_no_sender) +
           proc_case("delivered_no_sender_parts", delivered_no_sender_parts) +
           proc_case("delivered_no_sender_offer", delivered_no_sender_offer) +
           proc_case("delivered_no_message", delivered_no_message) +
           proc_case("delivered_no_message_parts", delivered_no_message_parts) +
           proc_case("delivered_no_message_offer", delivered_no_message_offer);
}
