/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that lies about messages whose payload follows their offer, by Weft's own calls:
 * docs/protocol.md "Tagged messages".
 *
 * Fails when: a payload that no offer announced, of another length, or a second one is stored, ends
 * a receive or ends the connection; an offer that announces a payload is believed where none can
 * come; a receive whose payload is wrong or never comes does not end, or is reported as OK. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <weft/msg.h>

#include "core/bulk.h"
#include "core/ctl.h"
#include "core/msg.h"
#include "../kill/proc.h"
#include "bad.h"

enum { TAG = 5, LEN = 50000, ROOM = 60000 };

struct pair {
    struct weft_ctx *ctx;
    struct weft_ep *good, *liar;
    struct weft_peer *to_good;
    struct weft_op send, recv;
    unsigned char in[ROOM], out[ROOM];
    bool lent;   /* [send] was begun */
    uint64_t id; /* of its request, whose memory the lies send */
};

static void pair_open(struct pair *p, const char *transports)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "known to both sides of this test";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    memset(p, 0, sizeof *p);
    setenv("WEFT_TRANSPORTS", transports, 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    if (strcmp(transports, "loop") != 0)
        params.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&params, &p->ctx), WEFT_OK);
    if (params.flags)
        CHECK_STATUS(weft_ctx_set_key(p->ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(p->ctx, NULL, &p->good), WEFT_OK);
    CHECK_STATUS(weft_ep_open(p->ctx, NULL, &p->liar), WEFT_OK);
    CHECK_STATUS(weft_ep_address(p->good, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(p->liar, address, len, &p->to_good), WEFT_OK);
    memset(p->in, 0xee, ROOM);
    memset(p->out, 0x11, ROOM);
}

static void polls(struct pair *p)
{
    CHECK(weft_ep_poll(p->good) >= 0 && weft_ep_poll(p->liar) >= 0);
}

/* Until [op] is complete. */
static enum weft_status ends(struct pair *p, const struct weft_op *op)
{
    uint64_t limit = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (op->status == WEFT_PENDING) {
        polls(p);
        CHECK(proc_now_ns() < limit);
    }
    return (enum weft_status)op->status;
}

/* A message gets through: the connection lives, and what came before it is handled. */
static void still_works(struct pair *p)
{
    struct weft_op r = {0};
    unsigned char c = 0;
    enum weft_status s;
    CHECK(weft_msg_recv(p->good, NULL, TAG + 1, WEFT_TAG_FULL, &c, 1, &r) == WEFT_PENDING);
    while ((s = weft_msg_send(p->to_good, TAG + 1, "x", 1, NULL)) == WEFT_AGAIN)
        polls(p);
    CHECK_STATUS(s, WEFT_OK);
    CHECK_STATUS(ends(p, &r), WEFT_OK);
    CHECK(c == 'x');
    CHECK_STATUS(weft_peer_status(p->to_good), WEFT_OK);
}

/* Lend [ROOM] bytes of the liar to its lies: a message that the good side never receives. */
static void lend(struct pair *p)
{
    still_works(p);
    CHECK_STATUS(weft_msg_send(p->to_good, TAG + 2, p->out, ROOM, &p->send), WEFT_PENDING);
    p->lent = true;
    p->id = ((struct wf_req *)p->send.entry_)->id;
    still_works(p);
}

static void offer(struct pair *p, uint32_t id, uint32_t follows)
{
    const uint32_t what = follows ? follows * WF_WHAT_FOLLOWS : 0;
    const uint32_t args[WF_OFFER_ARGS] = {TAG, 0, 0, 0, what, LEN, 0, id};
    CHECK_STATUS(wf_ctl_request(p->to_good, WF_CTL_OFFER, args, WF_OFFER_ARGS, NULL, 0, 0),
                 WEFT_OK);
}

static void payload(struct pair *p, uint32_t id, unsigned nargs, uint32_t len)
{
    const uint32_t args[3] = {id, 0, 0};
    struct wf_order order = {.lane = WF_LANE_ORDERED};
    struct wf_bulk b = {.args = args, .nargs = (uint16_t)nargs, .handler = WF_CTL_PIECE};
    wf_bulk_of_req(&b, p->id, 0, len);
    CHECK_STATUS(p->to_good->transport->request_bulk(wf_peer_tpeer(p->to_good), &b, 1, &order),
                 WEFT_OK);
}

static void receive(struct pair *p)
{
    CHECK_STATUS(weft_msg_recv(p->good, NULL, TAG, WEFT_TAG_FULL, p->in, ROOM, &p->recv),
                 WEFT_PENDING);
}

/* The receive ends with an error: its bytes were asked for, and the liar has none. */
static void receive_fails(struct pair *p)
{
    CHECK(ends(p, &p->recv) < 0);
    still_works(p);
}

/* End what [lend] began, and close the liar. */
static void liar_close(struct pair *p)
{
    struct weft_op lent = {0};
    if (p->lent) {
        memset(p->in, 0xee, ROOM);
        CHECK(weft_msg_recv(p->good, NULL, TAG + 2, WEFT_TAG_FULL, p->in, ROOM, &lent) ==
              WEFT_PENDING);
        CHECK_STATUS(ends(p, &lent), WEFT_OK);
        CHECK_STATUS(ends(p, &p->send), WEFT_OK);
        CHECK(!memcmp(p->in, p->out, ROOM));
    }
    still_works(p);
    CHECK_STATUS(weft_peer_close(p->to_good), WEFT_OK);
    CHECK_STATUS(weft_ep_close(p->liar), WEFT_OK);
}

static void pair_close(struct pair *p)
{
    liar_close(p);
    CHECK_STATUS(weft_ep_close(p->good), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(p->ctx), WEFT_OK);
}

/* ---- the cases ---- */

static void no_offer(void)
{
    static struct pair p;
    pair_open(&p, "tcp");
    lend(&p);
    receive(&p);
    payload(&p, 77, 2, LEN);
    still_works(&p);
    CHECK(p.recv.status == WEFT_PENDING && p.in[0] == 0xee && bad_messages(p.ctx) == 0);
    CHECK_STATUS(weft_msg_cancel(p.good, &p.recv), WEFT_OK);
    pair_close(&p);
}

static void wrong_length(void)
{
    static struct pair p;
    for (uint32_t len = LEN - 1; len <= LEN + 1; len += 2) {
        pair_open(&p, "tcp");
        lend(&p);
        receive(&p);
        offer(&p, 77, 1);
        payload(&p, 77, 2, len);
        receive_fails(&p);
        CHECK(p.in[0] == 0xee);
        pair_close(&p);
    }
}

static void twice(void)
{
    static struct pair p;
    pair_open(&p, "tcp");
    lend(&p);
    receive(&p);
    offer(&p, 77, 1);
    payload(&p, 77, 2, LEN);
    payload(&p, 77, 2, LEN);
    CHECK_STATUS(ends(&p, &p.recv), WEFT_OK);
    CHECK(p.recv.len == LEN && p.in[LEN - 1] == 0x11 && p.in[LEN] == 0xee);
    memset(p.in, 0xee, LEN);
    still_works(&p);
    CHECK(p.in[0] == 0xee);
    pair_close(&p);
}

/* Two offers with one id, which no sender of Weft makes, and three payloads. */
static void one_id(void)
{
    static struct pair p;
    struct weft_op second = {0};
    static unsigned char in[ROOM];
    pair_open(&p, "tcp");
    lend(&p);
    receive(&p);
    CHECK_STATUS(weft_msg_recv(p.good, NULL, TAG, WEFT_TAG_FULL, in, ROOM, &second), WEFT_PENDING);
    offer(&p, 77, 1);
    offer(&p, 77, 1);
    for (int i = 0; i < 3; i++)
        payload(&p, 77, 2, LEN);
    CHECK_STATUS(ends(&p, &p.recv), WEFT_OK);
    CHECK_STATUS(ends(&p, &second), WEFT_OK);
    pair_close(&p);
}

static void kept(void)
{
    static struct pair p;
    pair_open(&p, "tcp");
    lend(&p);
    offer(&p, 77, 1);
    payload(&p, 77, 2, LEN);
    payload(&p, 77, 2, LEN);
    still_works(&p);
    receive(&p);
    receive_fails(&p);
    CHECK(p.in[0] == 0xee);
    pair_close(&p);
}

static void malformed(void)
{
    static struct pair p;
    pair_open(&p, "tcp");
    lend(&p);
    receive(&p);
    payload(&p, 77, 3, LEN);
    offer(&p, 77, 2);
    CHECK_STATUS(wf_ctl_request(p.to_good, WF_CTL_PIECE, (uint32_t[]){77, 0}, 2, "x", 1, 1),
                 WEFT_OK);
    still_works(&p);
    CHECK(bad_messages(p.ctx) == 3 && p.recv.status == WEFT_PENDING && p.in[0] == 0xee);
    CHECK_STATUS(weft_msg_cancel(p.good, &p.recv), WEFT_OK);
    pair_close(&p);
}

/* Where no payload can follow, the offer is refused. */
static void on_shm(void)
{
    static struct pair p;
    pair_open(&p, "shm");
    receive(&p);
    still_works(&p);
    offer(&p, 77, 1);
    still_works(&p);
    CHECK(bad_messages(p.ctx) == 1 && p.recv.status == WEFT_PENDING);
    CHECK_STATUS(weft_msg_cancel(p.good, &p.recv), WEFT_OK);
    pair_close(&p);
}

static void never_comes(void)
{
    static struct pair p;
    pair_open(&p, "tcp");
    lend(&p);
    receive(&p);
    offer(&p, 77, 1);
    still_works(&p);
    CHECK_STATUS(weft_msg_cancel(p.good, &p.recv), WEFT_EBUSY);
    liar_close(&p);
    for (uint64_t limit = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
         p.recv.status == WEFT_PENDING;) {
        CHECK(weft_ep_poll(p.good) >= 0);
        CHECK(proc_now_ns() < limit);
    }
    CHECK_STATUS(p.recv.status, WEFT_ECLOSED);
    CHECK_STATUS(weft_ep_close(p.good), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(p.ctx), WEFT_OK);
}

int main(void)
{
    return proc_case("no_offer", no_offer) | proc_case("wrong_length", wrong_length) |
           proc_case("twice", twice) | proc_case("one_id", one_id) | proc_case("kept", kept) |
           proc_case("malformed", malformed) | proc_case("on_shm", on_shm) |
           proc_case("never_comes", never_comes);
}
