/* SPDX-License-Identifier: BSD-3-Clause */
/* What an authenticated peer may send over a TCP channel: frames to the application's handlers and
 * to Weft's own, whatever they claim. An endpoint has an open region, a posted receive and
 * operations in flight, so that lies find something to hit.
 *
 * Input: a byte of what is in flight, a byte of how much arrives at a time, then the stream. */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>
#include <weft/atomic.h>
#include <weft/mr.h>
#include <weft/msg.h>

#include "base/log.h"
#include "base/process.h"
#include "core/ctl.h"
#include "core/remote.h"
#include "core/rma_wire.h"
#include "transport/net/channel.h"

#define REGION 8192
#define GUARD 0x5a
#define NAME 5
#define BIG 800 /* bytes: more than a message has, so not copied on the way */

/* What is in flight when the stream begins: bits of the first byte. */
enum {
    RECV = 1,
    GET = 2,
    PUT = 4,
    ADD = 8,
    BIG_GET = 16,
    BIG_RECV = 32,
    BIG_SEND = 64,
    BIG_PUT = 128
};

static struct weft_ctx *ctx;
static struct weft_mr *mr, *named; /* of the same memory; [named] has the key NAME */
static void *memory;

static void on_any(const struct weft_am *am)
{
    fuzz_touch(am->data, am->len);
    fuzz_touch(am->args, 4u * am->nargs);
    FUZZ_CHECK(!((uintptr_t)am->data & 15) && am->nargs <= WEFT_AM_MAX_ARGS);
    if (am->can_reply && am->nargs)
        (void)!weft_am_reply(am, 1, NULL, 0, am->data, WF_MIN(am->len, (size_t)am->reply_max - 1));
}

static int open_once(void)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    if (ctx)
        return 1;
    setenv("WEFT_TRANSPORTS", "loop,tcp", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    setenv("WEFT_AM_MAX", "512", 1);
    params.flags = WEFT_CTX_NETWORK; /* its key never comes: calls wait */
    FUZZ_CHECK(weft_ctx_open(&params, &ctx) == WEFT_OK);
    wf_log_set_level((enum wf_log_level) - 1); /* each lie would be logged */
    memory = malloc(REGION);                   /* a sanitizer knows its ends */
    return weft_mr_register(ctx, memory, REGION, WEFT_MEM_HOST,
                            WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr) == WEFT_OK &&
           weft_mr_reg(ctx, memory, REGION, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, 0, NAME, 0,
                       &named, NULL) == WEFT_OK;
}

/* ---- seeds ---- */

struct stream {
    uint8_t *at, *end;
};

static void put(struct stream *s, const void *bytes, size_t n)
{
    if (!n || (size_t)(s->end - s->at) < n)
        return;
    memcpy(s->at, bytes, n);
    s->at += n;
}

static void pad(struct stream *s, size_t n)
{
    static const uint8_t zero[16];
    put(s, zero, (16 - n % 16) % 16);
}

static void frame(struct stream *s, unsigned kind, unsigned handler, const uint32_t *args,
                  unsigned nargs, const void *data, uint32_t len, uint32_t room)
{
    struct wf_net_frame f = {.len = len,
                             .room = room,
                             .kind = (uint8_t)kind,
                             .nargs = (uint8_t)nargs,
                             .handler = (uint8_t)handler};
    put(s, &f, sizeof f);
    put(s, args, 4u * nargs);
    pad(s, 4u * nargs);
    put(s, data, len);
    pad(s, len);
}

static void region_words(uint32_t words[5])
{
    uint8_t bytes[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    struct wf_key key;
    FUZZ_CHECK(open_once() && weft_mr_key(mr, bytes, &len) == WEFT_OK);
    FUZZ_CHECK(wf_key_parse(bytes, len, &key) == WEFT_OK);
    words[0] = key.slot;
    words[1] = WF_LO(key.gen);
    words[2] = WF_HI(key.gen);
    words[3] = words[4] = 0;
}

static void seed_request(struct stream *s, unsigned i, uint32_t a[16])
{
    static const uint8_t data[256] = "some bytes";
    switch (i) {
    case 0: frame(s, WF_NET_REQUEST, 1, a, 2, data, 40, 41); break;
    case 1: /* whole: a tag alone, and with space and data; then a message in two parts */
        frame(s, WF_NET_REQUEST, WF_CTL_MSG, a, 2, data, 100, 0);
        a[4] = WF_WHAT_DATA | 1, a[5] = 3;
        frame(s, WF_NET_REQUEST, WF_CTL_MSG, a, 5, data, 40, 0);
        a[4] |= WF_WHAT_PART, a[5] = 64, a[6] = 9;
        frame(s, WF_NET_REQUEST, WF_CTL_MSG, a, 7, data, 40, 0);
        a[0] = 9, a[1] = 40, a[2] = 0;
        frame(s, WF_NET_REQUEST, WF_CTL_MSG, a, 3, data, 24, 0);
        break;
    case 2:
        a[0] = 5, a[1] = 0, a[2] = 6, a[3] = 0, a[4] = WF_WHAT_DATA | 2, a[5] = 64, a[6] = 0;
        a[7] = 1, a[8] = 0, a[9] = 4096, a[10] = 0, a[11] = 1, a[12] = 0;
        frame(s, WF_NET_REQUEST, WF_CTL_OFFER, a, 13, (uint64_t[]){4096, 64}, 16, 1);
        break;
    case 3: /* a put and what a get of it would be */
        a[5] = 1, a[6] = 32;
        frame(s, WF_NET_REQUEST, WF_CTL_PUT, a, 7, data, 32, 1);
        break;
    case 4:
        a[5] = 1, a[6] = 200;
        frame(s, WF_NET_BULK_REQUEST, WF_CTL_PUT, a, 7, data, 200, 1);
        break;
    case 5:
        a[5] = 1, a[6] = 64;
        frame(s, WF_NET_REQUEST, WF_CTL_GET, a, 9, NULL, 0, 65);
        frame(s, WF_NET_REQUEST, WF_CTL_GET, a, 9, NULL, 0, 1);
        break;
    case 6: frame(s, WF_NET_REQUEST, WF_CTL_ATOMIC, a, 11, NULL, 0, 1); break;
    case 24: /* atomics on arrays: a compare-and-swap that fetches, a sum, a read */
        a[5] = 1, a[6] = WEFT_DO_CSWAP | WEFT_KIND_DOUBLE_COMPLEX << 8 | 1 << 16, a[7] = 2;
        frame(s, WF_NET_REQUEST, WF_CTL_ATOMIC, a, 8, data, 64, 33);
        a[6] = WEFT_DO_SUM | WEFT_KIND_INT16 << 8, a[7] = 5;
        frame(s, WF_NET_REQUEST, WF_CTL_ATOMIC, a, 8, data, 10, 1);
        frame(s, WF_NET_BULK_REQUEST, WF_CTL_ATOMIC, a, 8, data, 10, 1); /* without data */
        a[6] = WEFT_DO_READ | WEFT_KIND_UINT64 << 8 | 1 << 16, a[7] = 8;
        frame(s, WF_NET_REQUEST, WF_CTL_ATOMIC, a, 8, NULL, 0, 65);
        break;
    case 7: frame(s, WF_NET_BYE, 0, (uint32_t[]){1}, 1, NULL, 0, 0); break;
    case 8: frame(s, WF_NET_ACK, 0, NULL, 0, NULL, 0, 0); break;
    case 21: /* by a 64-bit key, and with a question for the raw key */
        a[0] = WF_MEM_BY_KEY, a[1] = NAME, a[2] = 0, a[5] = 1, a[6] = 32 | WF_PIECE_ASKS;
        frame(s, WF_NET_REQUEST, WF_CTL_PUT, a, 7, data, 32, WF_ASKED_BYTES + 1);
        frame(s, WF_NET_REQUEST, WF_CTL_GET, a, 9, NULL, 0, 33 + WF_ASKED_BYTES);
        break;
    default:
        a[0] = 1;
        frame(s, WF_NET_REQUEST, WF_CTL_FRAG, a, 3, data, 16, 0);
        frame(s, WF_NET_VOID, 0, NULL, 0, NULL, 0, 0);
    }
}

/* Of what is in flight; the only operation is entry 0. Returns what that is. */
static uint8_t seed_reply(struct stream *s, unsigned i)
{
    static uint8_t data[BIG] = "some bytes";
    uint32_t a[5] = {0, 0, 0, 0, i == 10 ? GUARD : BIG};
    size_t key = WEFT_KEY_MAX;
    const uint32_t offer[13] = {5, 0, 0, 0, i > 18 ? WF_WHAT_FOLLOWS : 0, BIG, 0, 1, 0};
    const uint32_t fetch[6] = {0, 0, 1, 0, 0, BIG};
    a[2] = i == 17 || i == 18; /* beyond its end by so much */
    switch (i) {
    case 10: frame(s, WF_NET_REPLY, WF_CTL_GOT, a, 5, data, GUARD, GUARD + 1); return GET;
    case 22: /* with the raw key that was asked for */
        a[4] = GUARD | WF_PIECE_ASKS;
        FUZZ_CHECK(weft_mr_key(named, data + GUARD, &key) == WEFT_OK);
        frame(s, WF_NET_REPLY, WF_CTL_GOT, a, 5, data, GUARD + WF_ASKED_BYTES, GUARD + 1);
        return GET;
    case 23:
        a[2] = WF_ANSWER_ASKED;
        FUZZ_CHECK(weft_mr_key(named, data, &key) == WEFT_OK);
        frame(s, WF_NET_REPLY, WF_CTL_ANSWER, a, 4, data, WF_ASKED_BYTES, 1);
        return PUT;
    case 11: frame(s, WF_NET_REPLY, WF_CTL_ANSWER, a, 4, NULL, 0, 1); return PUT;
    case 12: frame(s, WF_NET_REPLY, WF_CTL_ANSWER, a, 4, NULL, 0, 1); return ADD;
    case 13:
    case 17: frame(s, WF_NET_BULK_REPLY, WF_CTL_GOT, a, 5, data, BIG, 1); return BIG_GET;
    case 14:
    case 18:
        frame(s, WF_NET_REQUEST, WF_CTL_OFFER, offer, 13, (uint64_t[]){4096, BIG}, 16, 1);
        frame(s, WF_NET_BULK_REPLY, WF_CTL_PIECE, a, 4, data, BIG, 1);
        return BIG_RECV;
    case 15:
        frame(s, WF_NET_REQUEST, WF_CTL_FETCH, fetch, 6, NULL, 0, 1);
        frame(s, WF_NET_REQUEST, WF_CTL_DONE, a, 3, NULL, 0, 0);
        return BIG_SEND;
    case 19: /* an offer whose payload follows, to a receive and to none */
        frame(s, WF_NET_REQUEST, WF_CTL_OFFER, offer, 13, (uint64_t[]){4096, BIG}, 16, 0);
        frame(s, WF_NET_BULK_REQUEST, WF_CTL_PIECE, offer + 7, 2, data, BIG, 1);
        frame(s, WF_NET_REQUEST, WF_CTL_OFFER, offer, 13, (uint64_t[]){4096, BIG}, 16, 0);
        frame(s, WF_NET_BULK_REQUEST, WF_CTL_PIECE, offer + 7, 2, data, BIG, 1);
        return BIG_RECV;
    case 20: /* a piece that nobody asked for, then the payload */
        frame(s, WF_NET_REQUEST, WF_CTL_OFFER, offer, 13, (uint64_t[]){4096, BIG}, 16, 0);
        frame(s, WF_NET_BULK_REPLY, WF_CTL_PIECE, a, 4, data, BIG, 1);
        frame(s, WF_NET_BULK_REQUEST, WF_CTL_PIECE, offer + 7, 2, data, BIG, 1);
        return BIG_RECV;
    default: frame(s, WF_NET_REPLY, WF_CTL_ANSWER, a, 4, NULL, 0, 1); return BIG_PUT;
    }
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    const struct wf_net_sync sync = {.session = 7};
    struct stream s = {buf, buf + room};
    uint32_t a[16] = {0};
    if (i > 24 || room < 3 * BIG)
        return 0;
    region_words(a);
    /* Small pieces where an answer to the first frame comes before the second. */
    put(&s, (uint8_t[]){i & 1 ? RECV : 0, i < 10 ? 255 : 4}, 2);
    frame(&s, WF_NET_SYNC, 0, NULL, 0, &sync, sizeof sync, 0);
    if (i < 10 || i == 21 || i == 24)
        seed_request(&s, i, a);
    else
        buf[0] = seed_reply(&s, i);
    return (size_t)(s.at - buf);
}

/* ---- the run ---- */

struct scene {
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *remote;
    struct net_ep *t;
    struct weft_op recv, get, put, add, big_op[4];
    uint8_t got[3][GUARD * 2];
    uint8_t *big[4]; /* heap blocks of exactly their size */
    uint64_t old;
    int far; /* the peer's end of the socket */
};

static void peer_make(struct scene *s)
{
    struct wf_address a = {.version = WF_ADDRESS_VERSION,
                           .size = sizeof a,
                           .ep = 1,
                           .process = {.host = wf_host_id(), .pid = 7}}; /* loopback reaches it */
    struct wf_contact c = {.port = 9, .count = 1, .ip = {{[10] = 0xff, 0xff, 127, 0, 0, 1}}};
    struct wf_net_conn *conn = calloc(1, sizeof *conn);
    uint8_t bytes[WF_ADDRESS_BYTES];
    int fds[2];
    FUZZ_CHECK(conn && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    FUZZ_CHECK(weft_peer_open(s->ep, bytes, wf_address_pack(&a, &c, bytes), &s->peer) == WEFT_OK);
    FUZZ_CHECK(weft_remote_open_key(s->peer, NAME, &s->remote) == WEFT_OK);
    wf_named_asked(wf_remote_of(s->remote)); /* an answer may bring the raw key */
    conn->fd = fds[0];
    conn->gen = 1;
    conn->peer = a;
    wf_list_init(&conn->item);
    s->far = fds[1];
    wf_net_chan_adopt(wf_net_session_chan(wf_net_session_make(s->t, &a, &c), 0), conn);
}

static void big_begin(struct scene *s, unsigned choices)
{
    for (int i = 0; i < 4; i++) {
        s->big[i] = choices & (unsigned)BIG_GET << i ? calloc(1, BIG) : NULL;
        FUZZ_CHECK(s->big[i] || !(choices & (unsigned)BIG_GET << i));
    }
    if (choices & BIG_GET)
        (void)!weft_get(s->remote, 0, s->big[0], BIG, &s->big_op[0]);
    if (choices & BIG_RECV)
        (void)!weft_msg_recv(s->ep, NULL, 0, 0, s->big[1], BIG, &s->big_op[1]);
    if (choices & BIG_SEND)
        (void)!weft_msg_send(s->peer, 1, s->big[2], BIG, &s->big_op[2]);
    if (choices & BIG_PUT)
        (void)!weft_put(s->remote, 0, s->big[3], BIG, &s->big_op[3]);
}

static void scene_open(struct scene *s, unsigned choices)
{
    FUZZ_CHECK(weft_ep_open(ctx, NULL, &s->ep) == WEFT_OK);
    FUZZ_CHECK(weft_am_register(s->ep, 1, on_any, NULL) == WEFT_OK);
    s->t = NET_OF(s->ep->tep[WF_TRANSPORTS - 1], net_ep);
    peer_make(s);
    memset(s->got, GUARD, sizeof s->got);
    if (choices & RECV)
        (void)!weft_msg_recv(s->ep, NULL, 0, 0, s->got[0], GUARD, &s->recv);
    if (choices & GET)
        (void)!weft_get(s->remote, 0, s->got[1], GUARD, &s->get);
    if (choices & PUT)
        (void)!weft_put(s->remote, 0, s->got[2], GUARD, &s->put);
    if (choices & ADD)
        (void)!weft_atomic(s->remote, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &s->old, &s->add);
    big_begin(s, choices);
}

static void waste_read(int fd)
{
    uint8_t waste[4096];
    while (recv(fd, waste, sizeof waste, MSG_DONTWAIT) > 0)
        ;
}

static void scene_close(struct scene *s)
{
    close(s->far);
    for (int i = 0; i < 3; i++) /* no further than the buffers that were lent */
        FUZZ_CHECK(s->got[i][GUARD] == GUARD && s->got[i][GUARD * 2 - 1] == GUARD);
    if (weft_peer_status(s->peer) == WEFT_OK) {
        struct wf_address a;
        struct net_session *session;
        wf_tcp_transport.address(wf_peer_tpeer(s->peer), &a);
        session = wf_net_session_find(s->t, &a);
        if (session)
            wf_net_session_end(session, WEFT_EPEER);
    }
    (void)weft_ep_poll(s->ep);
    FUZZ_CHECK(weft_remote_close(s->remote) == WEFT_OK);
    FUZZ_CHECK(weft_peer_close(s->peer) == WEFT_OK);
    (void)weft_ep_poll(s->ep);
    FUZZ_CHECK(weft_ep_close(s->ep) == WEFT_OK);
    for (int i = 0; i < 4; i++)
        free(s->big[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct scene s;
    size_t at = 2, step;
    if (size < 2 || !open_once())
        return 0;
    memset(&s, 0, sizeof s);
    scene_open(&s, data[0]);
    step = data[1] ? data[1] * 16u : 7;
    while (at < size && weft_peer_status(s.peer) == WEFT_OK) {
        size_t n = WF_MIN(step, size - at);
        if (send(s.far, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            break;
        at += n;
        FUZZ_CHECK(weft_ep_poll(s.ep) >= 0);
        waste_read(s.far);
    }
    scene_close(&s);
    return 0;
}
