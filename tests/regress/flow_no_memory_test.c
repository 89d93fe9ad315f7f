/* SPDX-License-Identifier: BSD-3-Clause */
/* flow_no_memory_test shm|tcp: a peer's flow is made by its first operation that needs one, so each
 * call that may be the first can find no memory for it.
 *
 * Fails when: without that memory such a call does not return ENOMEM, changes its op, leaves a
 * reference behind, or has an effect; a call that needs no flow makes one; a receive or a send that
 * another endpoint takes part in never ends; or the same call does not succeed when there is memory
 * again. */
#define _GNU_SOURCE
#include <weft/atomic.h>
#include <weft/frag.h>
#include <weft/msg.h>

#include "core/core.h"
#include "core/remote.h"
#include "late.h"

enum { LONG_LEN = 2000000, ROOM = 4096, UNTOUCHED = 77, TAG = 5 };
#define FULL WEFT_TAG_FULL

/* Allocations of a flow's size fail in this thread: a thread of Weft's accepts connections. */
static _Thread_local bool refuses;
static unsigned failures;

extern void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    if (!refuses || size != wf_align_up(sizeof(struct wf_flow), WF_CACHE_LINE))
        return __real_aligned_alloc(align, size);
    failures++;
    return NULL;
}

/* [a] starts operations, to [b]. Neither is another process: each has a context of its own. */
static struct side a, b;
static struct weft_peer *peer;
static struct weft_mr *mr;
static struct weft_remote *r, *opened;
static unsigned char out[LONG_LEN], in[LONG_LEN], key[WEFT_KEY_MAX];
static size_t key_len;
static unsigned ran; /* handlers of [b] */

static void on_message(const struct weft_am *am)
{
    (void)am;
    ran++;
}

static struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_peer *p;
    CHECK_STATUS(weft_ep_address(to, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(from, address, len, &p), WEFT_OK);
    return p;
}

static void sides_open(void)
{
    side_open(&a);
    side_open(&b);
    CHECK_STATUS(weft_am_register(b.ep, ASK + 5, on_message, NULL), WEFT_OK);
    peer = peer_to(a.ep, b.ep);
    memset(out, 3, sizeof out);
}

/* Both endpoints poll until nothing more is under way to [b]. */
static void settle(void)
{
    for (unsigned i = 0; i < 200; i++)
        CHECK(weft_ep_poll(a.ep) >= 0 && weft_ep_poll(b.ep) >= 0);
}

/* ---- calls that start an operation to a peer ---- */

static enum weft_status do_request(struct weft_op *op)
{
    enum weft_status status = weft_am_request(peer, ASK + 5, NULL, 0, out, 8, 0);
    return status == WEFT_OK ? weft_op_ok_(op) : status;
}

static enum weft_status do_send(struct weft_op *op)
{
    return weft_msg_send(peer, TAG, out, 8, op);
}

static enum weft_status do_inject(struct weft_op *op)
{
    enum weft_status status = weft_msg_send(peer, TAG, out, 8, NULL);
    return status == WEFT_OK ? weft_op_ok_(op) : status;
}

static enum weft_status do_sendv(struct weft_op *op)
{
    const struct iovec two[] = {{out, 8}, {out + 8, 8}};
    return weft_msg_sendv(peer, TAG, two, 2, op);
}

static enum weft_status do_offer(struct weft_op *op)
{
    return weft_msg_send(peer, TAG, out, LONG_LEN, op);
}

static enum weft_status do_post_send(struct weft_op *op)
{
    const struct weft_msg_head head = {.tag = TAG, .space = 1, .data = 9, .flags = WEFT_MSG_DATA};
    const struct iovec one = {out, 8};
    return weft_msg_post_send(peer, &head, &one, 1, op);
}

static enum weft_status do_put(struct weft_op *op)
{
    return weft_put(r, 0, out, ROOM, op);
}

static enum weft_status do_putv(struct weft_op *op)
{
    const struct iovec two[] = {{out, 8}, {out + 8, 8}};
    return weft_putv(r, 0, two, 2, op);
}

static enum weft_status do_get(struct weft_op *op)
{
    return weft_get(r, 0, in, ROOM, op);
}

static enum weft_status do_getv(struct weft_op *op)
{
    const struct iovec two[] = {{in, 8}, {in + 8, 8}};
    return weft_getv(r, 0, two, 2, op);
}

static enum weft_status do_atomic(struct weft_op *op)
{
    return weft_atomic(r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, (uint64_t *)(void *)in, op);
}

static enum weft_status do_atomics(struct weft_op *op)
{
    return weft_atomic_array(r, 0, WEFT_DO_SUM, WEFT_KIND_UINT32, 4, out, NULL, NULL, op);
}

static enum weft_status do_signal(struct weft_op *op)
{
    return weft_put_signal(r, 8, out, 100, r, 0, 1, WEFT_SIGNAL_ADD, op);
}

static enum weft_status do_wake(struct weft_op *op)
{
    return weft_put_signal(r, 8, out, 100, r, 0, 1, WEFT_SIGNAL_ADD | WEFT_SIGNAL_WAKE, op);
}

static enum weft_status do_long(struct weft_op *op)
{
    return weft_am_long(r, 0, out, ROOM, ASK + 5, NULL, 0, 0, op);
}

static enum weft_status do_order_send(struct weft_op *op)
{
    struct weft_order own;
    enum weft_status status =
        weft_order_send(peer, ASK + 5, NULL, 0, NULL, 0, weft_order_none(), &own);
    return status == WEFT_OK ? weft_op_ok_(op) : status;
}

static enum weft_status do_order_put(struct weft_op *op)
{
    struct weft_order own;
    return weft_order_put(r, 0, out, ROOM, weft_order_none(), &own, op);
}

static enum weft_status do_order_get(struct weft_op *op)
{
    struct weft_order own;
    return weft_order_get(r, 0, in, ROOM, weft_order_none(), &own, op);
}

static enum weft_status do_last_put(struct weft_op *op)
{
    return weft_order_put(r, 0, out, ROOM, weft_order_none(), NULL, op);
}

static enum weft_status do_last_get(struct weft_op *op)
{
    return weft_order_get(r, 0, in, ROOM, weft_order_none(), NULL, op);
}

static enum weft_status do_flush(struct weft_op *op)
{
    return weft_flush(peer, op);
}

static enum weft_status do_open(struct weft_op *op)
{
    return weft_remote_open_start(peer, key, key_len, &opened, op);
}

/* When does the call need a flow? */
enum need {
    NEVER,
    ALWAYS,
    UNMAPPED, /* if the region is not mapped here */
    ASKING,   /* if it is: the region's owner is asked for its descriptor */
};

static const struct call {
    const char *name;
    enum weft_status (*start)(struct weft_op *op);
    enum need need;
    unsigned handlers; /* run by it */
    size_t message;    /* bytes of the tagged message that it sends; 0: none */
    unsigned space;
} calls[] = {
    {"weft_am_request", do_request, NEVER, 1, 0, 0},
    {"weft_msg_send", do_send, ALWAYS, 0, 8, 0},
    {"weft_msg_send without op", do_inject, ALWAYS, 0, 8, 0},
    {"weft_msg_sendv", do_sendv, ALWAYS, 0, 16, 0},
    {"weft_msg_send of a long message", do_offer, ALWAYS, 0, LONG_LEN, 0},
    {"weft_msg_post_send", do_post_send, ALWAYS, 0, 8, 1},
    {"weft_put", do_put, UNMAPPED, 0, 0, 0},
    {"weft_putv", do_putv, UNMAPPED, 0, 0, 0},
    {"weft_get", do_get, UNMAPPED, 0, 0, 0},
    {"weft_getv", do_getv, UNMAPPED, 0, 0, 0},
    {"weft_atomic", do_atomic, UNMAPPED, 0, 0, 0},
    {"weft_atomic_array", do_atomics, UNMAPPED, 0, 0, 0},
    {"weft_put_signal", do_signal, UNMAPPED, 0, 0, 0},
    {"weft_put_signal with WEFT_SIGNAL_WAKE", do_wake, ALWAYS, 0, 0, 0},
    {"weft_am_long", do_long, ALWAYS, 1, 0, 0},
    {"weft_order_send", do_order_send, ALWAYS, 1, 0, 0},
    {"weft_order_put", do_order_put, ALWAYS, 0, 0, 0},
    {"weft_order_get", do_order_get, ALWAYS, 0, 0, 0},
    {"weft_order_put without own", do_last_put, UNMAPPED, 0, 0, 0},
    {"weft_order_get without own", do_last_get, UNMAPPED, 0, 0, 0},
    {"weft_flush", do_flush, NEVER, 0, 0, 0},
    {"weft_remote_open_start", do_open, ASKING, 0, 0, 0},
};

/* Has [b] got the message of [c], and only that one? */
static void message_is_here(const struct call *c)
{
    const struct weft_msg_filter filter = {.tag = TAG, .mask = FULL, .space = c->space};
    const struct iovec one = {in, LONG_LEN};
    struct weft_op got = {0};
    struct weft_msg_info info;
    enum weft_status status = weft_msg_post_recv(b.ep, &filter, &one, 1, &got);
    CHECK(status >= WEFT_OK);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && got.status != WEFT_PENDING);
    CHECK(got.status == WEFT_OK && got.len == c->message && !memcmp(in, out, c->message));
    settle();
    CHECK_STATUS(weft_msg_find(b.ep, &filter, &info, NULL), WEFT_AGAIN);
}

/* The region as [b] sees it is as before, and no handler of [b] has run. */
static void nothing_happened(const struct call *c)
{
    static const unsigned char zeros[ROOM];
    const struct weft_msg_filter filter = {.tag = TAG, .mask = FULL, .space = c->space};
    struct weft_msg_info info;
    settle();
    CHECK(!ran && !memcmp(weft_mr_base(mr), zeros, ROOM));
    CHECK_STATUS(weft_msg_find(b.ep, &filter, &info, NULL), WEFT_AGAIN);
}

static void call_ends(const struct call *c, enum weft_status status, const struct weft_op *op)
{
    struct weft_op flushed = {0};
    if (c->message)
        message_is_here(c);
    if (status == WEFT_PENDING)
        UNTIL(a.ep, weft_ep_poll(b.ep) >= 0 && op->status != WEFT_PENDING);
    CHECK_STATUS(op->status, WEFT_OK);
    UNTIL(a.ep, weft_ep_poll(b.ep) >= 0 && ran == c->handlers);
    CHECK(weft_flush(peer, &flushed) >= WEFT_OK);
    UNTIL(a.ep, weft_ep_poll(b.ep) >= 0 && flushed.status != WEFT_PENDING);
    CHECK_STATUS(flushed.status, WEFT_OK);
}

static bool needs_flow(const struct call *c)
{
    return c->need == ALWAYS || c->need == (r->base ? ASKING : UNMAPPED);
}

static void call_try(const struct call *c, bool needs)
{
    struct weft_op op = {.status = UNTOUCHED};
    enum weft_status status;
    ran = failures = 0;
    opened = NULL;
    memset(weft_mr_base(mr), 0, ROOM);
    refuses = true;
    status = c->start(&op);
    refuses = false;
    printf("  %s: %s\n", c->name, weft_status_text(status));
    CHECK(failures == needs && !peer->flow);
    if (needs) {
        CHECK_STATUS(status, WEFT_ENOMEM);
        CHECK(op.status == UNTOUCHED && !opened && !a.ep->reqs.used);
        CHECK(c->need == ASKING || wf_remote_of(r)->refs == 1);
        nothing_happened(c);
        status = c->start(&op);
    }
    CHECK(status == WEFT_OK || status == WEFT_PENDING);
    call_ends(c, status, &op);
}

/* Each call with a peer of its own, by which nothing was done before. */
static void calls_start(void)
{
    bool needs;
    sides_open();
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
    CHECK_STATUS(weft_am_register(a.ep, ASK + 5, on_message, NULL), WEFT_OK);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        key_len = sizeof key;
        peer = peer_to(a.ep, b.ep);
        ran = 0; /* the connection is made now: it may have an object of a flow's size */
        UNTIL(a.ep, weft_am_request(peer, ASK + 5, NULL, 0, NULL, 0, 0) == WEFT_OK);
        UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && ran);
        CHECK_STATUS(weft_mem_alloc(b.ctx, ROOM, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr),
                     WEFT_OK);
        CHECK_STATUS(weft_mr_key(mr, key, &key_len), WEFT_OK);
        CHECK_STATUS(weft_remote_open(peer, key, key_len, &r), WEFT_OK);
        needs = needs_flow(&calls[i]);
        if (calls[i].need == ASKING) /* a slab that is mapped already is not asked for */
            CHECK_STATUS(weft_remote_close(r), WEFT_OK);
        call_try(&calls[i], needs);
        CHECK_STATUS(weft_remote_close(calls[i].need == ASKING ? opened : r), WEFT_OK);
        CHECK_STATUS(weft_mr_close(mr), WEFT_OK);
        CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
    }
    CHECK_STATUS(weft_ep_close(a.ep), WEFT_OK);
}

/* ---- calls and polls that answer a peer ---- */

static bool probe(unsigned tag)
{
    struct weft_msg_info info;
    return weft_msg_probe(b.ep, NULL, tag, FULL, &info) == WEFT_OK;
}

/* [a] sends [b], which has no peer to [a], a message that stays in place. */
static void offer(struct weft_op *sent)
{
    *sent = (struct weft_op){0};
    CHECK_STATUS(weft_msg_send(peer, TAG, out, LONG_LEN, sent), WEFT_PENDING);
}

static void offer_keep(struct weft_op *sent)
{
    offer(sent);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && probe(TAG));
}

static void offer_taken(const struct weft_op *sent, const struct weft_op *got)
{
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && sent->status != WEFT_PENDING);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && got->status != WEFT_PENDING);
    CHECK_STATUS(sent->status, WEFT_OK);
    CHECK(got->status == WEFT_OK && got->len == LONG_LEN && !memcmp(in, out, LONG_LEN));
}

/* A receive names a peer: neither it nor a probe makes the peer's flow. */
static void receive_by_name(void)
{
    struct weft_op got = {0};
    struct weft_msg_info info;
    struct weft_peer *from;
    sides_open();
    from = peer_to(b.ep, a.ep);
    refuses = true;
    CHECK_STATUS(weft_msg_probe(b.ep, from, TAG, FULL, &info), WEFT_AGAIN);
    CHECK_STATUS(weft_msg_recv(b.ep, from, TAG, FULL, in, 8, &got), WEFT_PENDING);
    refuses = false;
    CHECK(!failures && !from->flow);
    CHECK_STATUS(weft_msg_send(peer, TAG, out, 8, NULL), WEFT_OK);
    refuses = true; /* [a] has its flow */
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && got.status != WEFT_PENDING);
    CHECK(got.status == WEFT_OK && !failures && !from->flow);
}

/* A receive is posted: it ends, and so does the send. The next message comes. */
static void receive_posted(void)
{
    struct weft_op sent, got = {0};
    sides_open();
    CHECK_STATUS(weft_msg_recv(b.ep, NULL, TAG, FULL, in, LONG_LEN, &got), WEFT_PENDING);
    offer(&sent);
    refuses = true;
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && got.status != WEFT_PENDING);
    refuses = false;
    CHECK_STATUS(got.status, WEFT_ENOMEM);
    CHECK(failures == 1);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && sent.status != WEFT_PENDING);
    CHECK_STATUS(sent.status, WEFT_ENOMEM);
    CHECK_STATUS(weft_msg_recv(b.ep, NULL, TAG, FULL, in, LONG_LEN, &got), WEFT_PENDING);
    offer(&sent);
    offer_taken(&sent, &got);
}

/* The message is kept: it stays. */
static void receive_kept(void)
{
    struct weft_op sent, got = {.status = UNTOUCHED};
    sides_open();
    offer_keep(&sent);
    refuses = true;
    CHECK_STATUS(weft_msg_recv(b.ep, NULL, TAG, FULL, in, LONG_LEN, &got), WEFT_ENOMEM);
    refuses = false;
    CHECK(failures == 1 && got.status == UNTOUCHED && !b.ep->reqs.used);
    CHECK(sent.status == WEFT_PENDING && probe(TAG));
    CHECK(weft_msg_recv(b.ep, NULL, TAG, FULL, in, LONG_LEN, &got) >= WEFT_OK);
    offer_taken(&sent, &got);
}

static struct weft_msg *claim(void)
{
    struct weft_msg_info info;
    struct weft_msg *msg;
    CHECK_STATUS(weft_msg_claim(b.ep, NULL, TAG, FULL, &info, &msg), WEFT_OK);
    return msg;
}

static void take_claimed(void)
{
    struct weft_op sent, got = {.status = UNTOUCHED};
    struct weft_msg *msg;
    sides_open();
    offer_keep(&sent);
    msg = claim();
    refuses = true;
    CHECK_STATUS(weft_msg_take(b.ep, msg, in, LONG_LEN, &got), WEFT_ENOMEM);
    CHECK(got.status == UNTOUCHED && b.ep->claimed == 1);
    CHECK_STATUS(weft_msg_drop(b.ep, msg), WEFT_ENOMEM);
    refuses = false;
    CHECK(failures == 2 && b.ep->claimed == 1 && !b.ep->reqs.used);
    CHECK_STATUS(sent.status, WEFT_PENDING);
    CHECK(weft_msg_take(b.ep, msg, in, LONG_LEN, &got) >= WEFT_OK);
    offer_taken(&sent, &got);
    offer_keep(&sent);
    CHECK_STATUS(weft_msg_drop(b.ep, claim()), WEFT_OK);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && sent.status != WEFT_PENDING);
    CHECK_STATUS(sent.status, WEFT_OK);
}

/* The same call replies when there is memory. */
static void reply_later(void)
{
    sides_open();
    a.peer = peer;
    side_ask(&a, 1, 9);
    side_ask(&a, 2, 9);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && b.nkept == 2);
    refuses = true;
    CHECK_STATUS(weft_am_reply_later(&b.kept[0], ANSWER, NULL, 0, out, 8), WEFT_ENOMEM);
    CHECK_STATUS(weft_am_drop(&b.kept[1]), WEFT_ENOMEM);
    refuses = false;
    CHECK(failures == 2 && !a.answers && b.ep->late_due == 2);
    CHECK_STATUS(weft_am_reply_later(&b.kept[0], ANSWER, NULL, 0, out, 8), WEFT_OK);
    CHECK_STATUS(weft_am_drop(&b.kept[1]), WEFT_OK);
    UNTIL(b.ep, weft_ep_poll(a.ep) >= 0 && a.answers == 1 && a.refusals == 1);
    CHECK(a.len == 8 && !b.ep->late_due);
}

int main(int argc, char **argv)
{
    side_transport(argc > 1 ? argv[1] : "shm");
    return proc_case("calls_start", calls_start) + proc_case("receive_by_name", receive_by_name) +
           proc_case("receive_posted", receive_posted) + proc_case("receive_kept", receive_kept) +
           proc_case("take_claimed", take_claimed) + proc_case("reply_later", reply_later);
}
