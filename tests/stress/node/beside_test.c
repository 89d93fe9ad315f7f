/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast two clients of a node's service go beside one that errs, and beside an honest one:
 * beside_test WEFT_NODE [MS]
 *
 * A sender asks a receiver, which checks each number and byte and answers. Beside them runs, for MS
 * at a time, in turn: another sender; a client that writes garbage into its ring, loses it, and
 * attaches anew; another sender; one that puts by the key of a closed region. Fails when: the two
 * go less than 0.8 times as fast beside one that errs as beside another sender, in the middle of
 * three turns; a message is lost, comes twice or out of order; or a put by such a key ends with
 * anything but EKEY. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "near.h"

enum { ASK, ANSWER, SENDERS = 64, PAYLOAD = 256, BURST = 16, TURNS = 3, REGION = 4096 };
enum kind { HONEST, GARBAGE, STALE, KINDS };

static const uint8_t key[WF_NODE_KEY] = "beside_test";
static int window_ms = 300;
static const double least = 0.8;

struct member {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    unsigned me, sent, answered;
    unsigned asked[SENDERS]; /* by sender */
};

/* ---- members ---- */

static void on_ask(const struct weft_am *am)
{
    struct member *m = am->arg;
    unsigned from = am->args[0];
    enum weft_status status;
    CHECK(from < SENDERS && am->args[1] == m->asked[from] && am->len == PAYLOAD);
    for (unsigned i = 0; i < PAYLOAD; i++)
        CHECK(((const uint8_t *)am->data)[i] == (uint8_t)(am->args[1] + i));
    m->asked[from]++;
    status = weft_am_reply(am, ANSWER, &am->args[1], 1, NULL, 0);
    CHECK(status == WEFT_OK);
}

static void on_answer(const struct weft_am *am)
{
    struct member *m = am->arg;
    CHECK(m->answered < m->sent);
    m->answered++;
}

/* Members live for all turns. */
static void limit_set(void)
{
    alarm(PROC_ALARM_S + (unsigned)(5 * TURNS * window_ms / 1000));
}

static void member_open(struct member *m, unsigned me)
{
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    limit_set();
    *m = (struct member){.me = me};
    ctx.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&ctx, &m->ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(m->ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(m->ctx, NULL, &m->ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, ASK, on_ask, m), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, ANSWER, on_answer, m), WEFT_OK);
}

static void member_close(struct member *m)
{
    if (m->peer)
        CHECK_STATUS(weft_peer_close(m->peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(m->ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(m->ctx), WEFT_OK);
}

/* The parent's next word, or 0 if it has said nothing. */
static char word_of(int sock)
{
    char word = 0;
    return recv(sock, &word, 1, MSG_DONTWAIT) == 1 ? word : 0;
}

/* Reports its address. Words: k open a region, and report its key; c close it; q end. */
static void receiver_main(int sock, void *arg)
{
    uint8_t bytes[WEFT_ADDR_MAX], region[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    struct weft_mr *mr = NULL;
    struct member m;
    char word;
    (void)arg;
    member_open(&m, 0);
    CHECK_STATUS(weft_ep_address(m.ep, bytes, &len), WEFT_OK);
    proc_say(sock, bytes, len);
    while ((word = word_of(sock)) != 'q') {
        if (word == 'k') {
            len = sizeof region;
            CHECK_STATUS(weft_mem_alloc(m.ctx, REGION, WEFT_REMOTE_WRITE, &mr), WEFT_OK);
            CHECK_STATUS(weft_mr_key(mr, region, &len), WEFT_OK);
            proc_say(sock, region, len);
        } else if (word == 'c') {
            CHECK_STATUS(weft_mr_close(mr), WEFT_OK);
            proc_say(sock, "c", 1);
        }
        for (int i = 0; i < 100; i++)
            CHECK(weft_ep_poll(m.ep) >= 0);
    }
    member_close(&m);
}

static void peer_of(struct member *m, int sock)
{
    uint8_t bytes[WEFT_ADDR_MAX];
    size_t len = proc_hear(sock, bytes, sizeof bytes);
    CHECK_STATUS(weft_peer_open(m->ep, bytes, len, &m->peer), WEFT_OK);
}

static void ask_some(struct member *m)
{
    uint8_t data[PAYLOAD];
    for (int i = 0; i < BURST; i++) {
        const uint32_t args[2] = {m->me, m->sent};
        enum weft_status status;
        for (unsigned k = 0; k < PAYLOAD; k++)
            data[k] = (uint8_t)(m->sent + k);
        status = weft_am_request(m->peer, ASK, args, 2, data, PAYLOAD, 8);
        if (status == WEFT_AGAIN)
            break;
        CHECK_STATUS(status, WEFT_OK);
        m->sent++;
    }
    CHECK(weft_ep_poll(m->ep) >= 0);
}

/* Words: n report how many were answered; q end. */
static void sender_main(int sock, void *arg)
{
    uint64_t until;
    struct member m;
    char word;
    member_open(&m, *(unsigned *)arg);
    peer_of(&m, sock);
    while (!m.answered)
        ask_some(&m);
    proc_say(sock, "b", 1);
    while ((word = word_of(sock)) != 'q') {
        if (word == 'n')
            proc_say(sock, &m.answered, sizeof m.answered);
        ask_some(&m);
    }
    until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (m.answered < m.sent && wf_now_ns() < until)
        CHECK(weft_ep_wait(m.ep, 10000000) >= 0);
    CHECK(m.answered == m.sent);
    proc_say(sock, &m.answered, sizeof m.answered);
    member_close(&m);
}

/* ---- those that err ---- */

/* Write entries until the service ends the endpoint: plausible ones, of each of which a word is
 * random. */
static void garbage_write(struct near_ring *r, uint64_t *rand)
{
    uint32_t lines = wf_node_lines(NEAR_RING);
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (!wf_load_acquire(&r->event->status)) {
        struct wf_node_entry *e = &r->submit->entries[r->tail & (lines - 1)];
        uint64_t x = wf_rand(rand);
        uint32_t words[14] = {0};
        words[0] = WF_NODE_NO_PLACE << 16;
        words[x % 14] = (uint32_t)(x >> 32);
        memcpy((uint8_t *)e + 8, words, sizeof words);
        wf_store_release(&e->ready, wf_shm_ready(r->tail++, x >> 8 & 31, x >> 16 & 1));
        (void)send(r->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (r->tail - wf_load_acquire(&r->event->taken) >= lines / 2 &&
               !wf_load_acquire(&r->event->status)) {
            CHECK(wf_now_ns() < until);
            wf_relax();
        }
    }
}

/* Reports how often the service has ended its endpoint. */
static void garbage_main(int sock, void *arg)
{
    uint64_t rand = *(unsigned *)arg;
    unsigned times = 0;
    bool said = false;
    limit_set();
    while (word_of(sock) != 'q') {
        struct wf_node_link link;
        struct near_ring ring;
        near_attach(key, &link);
        ring = near_ring_give(key, &link);
        if (!said)
            proc_say(sock, "b", 1);
        said = true;
        garbage_write(&ring, &rand);
        times++;
        wf_node_detach(&link);
        near_ring_drop(&ring);
    }
    proc_say(sock, &times, sizeof times);
}

/* Reports how many of its puts have failed, after the parent has given it a key and then said that
 * the region is closed. */
static void stale_main(int sock, void *arg)
{
    uint8_t region[WEFT_KEY_MAX], data[PAYLOAD] = {0};
    struct weft_remote *remote;
    struct member m;
    unsigned failed = 0;
    size_t len;
    char word;
    member_open(&m, *(unsigned *)arg);
    peer_of(&m, sock);
    len = proc_hear(sock, region, sizeof region);
    CHECK_STATUS(weft_remote_open(m.peer, region, len, &remote), WEFT_OK);
    proc_say(sock, "o", 1);
    CHECK(proc_hear(sock, &word, 1) == 1);
    while (word_of(sock) != 'q') {
        struct weft_op op = {0};
        enum weft_status status;
        do
            status = weft_op_finish(m.ep, weft_put(remote, 0, data, sizeof data, &op), &op,
                                    PROC_WAIT_MS * INT64_C(1000000));
        while (status == WEFT_AGAIN);
        CHECK_STATUS(status, WEFT_EKEY);
        if (!failed++)
            proc_say(sock, "b", 1);
    }
    proc_say(sock, &failed, sizeof failed);
    CHECK_STATUS(weft_remote_close(remote), WEFT_OK);
    member_close(&m);
}

/* ---- the turns ---- */

struct scene {
    struct proc receiver, sender;
    uint8_t address[WEFT_ADDR_MAX];
    size_t len;
    unsigned next; /* number of the next sender */
};

static unsigned number_of(struct proc *p, const char *word)
{
    unsigned n;
    proc_say(p->sock, word, 1);
    CHECK(proc_hear(p->sock, &n, sizeof n) == sizeof n);
    return n;
}

static void stale_prepare(struct scene *s, struct proc *p)
{
    uint8_t region[WEFT_KEY_MAX];
    size_t len;
    char byte;
    proc_say(s->receiver.sock, "k", 1);
    len = proc_hear(s->receiver.sock, region, sizeof region);
    proc_say(p->sock, region, len);
    CHECK(proc_hear(p->sock, &byte, 1) == 1 && byte == 'o');
    proc_say(s->receiver.sock, "c", 1);
    CHECK(proc_hear(s->receiver.sock, &byte, 1) == 1);
    proc_say(p->sock, "c", 1);
}

/* Returns the answers of a second beside one of [kind], and in *did what that one did. */
static double rate_beside(struct scene *s, enum kind kind, unsigned *did)
{
    static void (*const mains[])(int sock, void *arg) = {sender_main, garbage_main, stale_main};
    struct proc p = proc_start(mains[kind], &s->next);
    unsigned before, after;
    uint64_t begin, ns;
    char byte;
    s->next++;
    if (kind != GARBAGE)
        proc_say(p.sock, s->address, s->len);
    if (kind == STALE)
        stale_prepare(s, &p);
    CHECK(proc_hear(p.sock, &byte, 1) == 1 && byte == 'b');
    before = number_of(&s->sender, "n");
    begin = wf_now_ns();
    CHECK(!usleep((useconds_t)window_ms * 1000)); /* the window in which the sender is measured */
    after = number_of(&s->sender, "n");
    ns = wf_now_ns() - begin;
    *did += number_of(&p, "q");
    proc_join(&p);
    return (after - before) / ((double)ns / 1e9);
}

static int up(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge(const char *what, double *ratios, unsigned did)
{
    qsort(ratios, TURNS, sizeof *ratios, up);
    printf(
        "measured beside %s: %.2f (%.2f to %.2f) of the rate beside a sender; it did so %u times\n",
        what, ratios[TURNS / 2], ratios[0], ratios[TURNS - 1], did);
    fflush(stdout);
    CHECK(ratios[TURNS / 2] >= least);
}

static void beside(void)
{
    double ratios[KINDS][TURNS];
    unsigned did[KINDS] = {0}, me = 1;
    struct wf_node_link link;
    struct scene s = {.next = 2};
    char byte;
    limit_set();
    near_begin();
    CHECK(!setenv("WEFT_NODE", "1", 1) && !setenv("WEFT_NODE_NAME", "near", 1) &&
          !setenv("WEFT_TRANSPORTS", "loop,node", 1));
    near_attach(key, &link);
    s.receiver = proc_start(receiver_main, NULL);
    s.len = proc_hear(s.receiver.sock, s.address, sizeof s.address);
    s.sender = proc_start(sender_main, &me);
    proc_say(s.sender.sock, s.address, s.len);
    CHECK(proc_hear(s.sender.sock, &byte, 1) == 1);
    for (int turn = 0; turn < TURNS; turn++)
        for (enum kind kind = GARBAGE; kind < KINDS; kind++) {
            double honest = rate_beside(&s, HONEST, &did[HONEST]);
            ratios[kind][turn] = rate_beside(&s, kind, &did[kind]) / honest;
        }
    (void)number_of(&s.sender, "q");
    proc_join(&s.sender);
    proc_say(s.receiver.sock, "q", 1);
    proc_join(&s.receiver);
    CHECK_STATUS(wf_node_hear(&link), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
    judge("a client that writes garbage", ratios[GARBAGE], did[GARBAGE]);
    judge("puts by a closed region's key", ratios[STALE], did[STALE]);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || argc == 3);
    near_program = argv[1];
    if (argc == 3)
        window_ms = atoi(argv[2]);
    return proc_case("beside", beside);
}
