/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints that were opened together. The group is at the second end's context. */
#include "contract.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>

enum { MSG = 1, ASK = 2, ANSWER = 3, MEMBERS = 3 };
#define FULL WEFT_TAG_FULL
#define LONG ((size_t)300000)

struct group {
    struct weft_ep *ep[MEMBERS];
    struct weft_peer *back[MEMBERS]; /* from the member to end 0 */
    struct weft_peer *peer[MEMBERS]; /* from end 0 to the member */
    unsigned char address[WEFT_ADDR_MAX];
    int got[MEMBERS]; /* by the member that got it */
    int from_group;   /* at end 0: messages whose source is the group */
    struct weft_am_later later[MEMBERS];
    int asked, answered[MEMBERS];
};

static void at_member(const struct weft_am *am)
{
    struct group *g = am->arg;
    for (int i = 0; i < MEMBERS; i++)
        g->got[i] += am->ep == g->ep[i] && am->args[0] == (uint32_t)i;
}

static void at_end(const struct weft_am *am)
{
    struct group *g = am->arg;
    unsigned char from[WEFT_ADDR_MAX];
    size_t len = sizeof from;
    EXPECT(weft_am_source(am, from, &len) == WEFT_OK);
    g->from_group += !memcmp(from, g->address, sizeof from);
}

static void at_end_asked(const struct weft_am *am)
{
    struct group *g = am->arg;
    EXPECT(weft_am_detach(am, &g->later[am->args[0]]) == WEFT_OK);
    g->asked++;
}

static void at_member_answered(const struct weft_am *am)
{
    struct group *g = am->arg;
    for (int i = 0; i < MEMBERS; i++)
        g->answered[i] += am->ep == g->ep[i] && am->args[0] == (uint32_t)i;
}

static void group_open(struct pair *p, struct group *g, bool peers)
{
    size_t len = sizeof g->address;
    *g = (struct group){.asked = 0};
    OK(weft_group_open(p->ctx[1], NULL, MEMBERS, g->ep));
    OK(weft_ep_address(g->ep[0], g->address, &len));
    OK(weft_am_register(p->ep[0], MSG, at_end, g));
    OK(weft_am_register(p->ep[0], ASK, at_end_asked, g));
    for (unsigned i = 0; i < MEMBERS; i++) {
        OK(weft_am_register(g->ep[i], MSG, at_member, g));
        OK(weft_am_register(g->ep[i], ANSWER, at_member_answered, g));
        g->back[i] = peer_to(g->ep[i], p->ep[0]);
        if (peers)
            OK(weft_peer_open_member(p->ep[0], g->address, len, i, &g->peer[i]));
    }
}

static bool group_poll(struct group *g)
{
    for (int i = 0; i < MEMBERS; i++)
        if (g->ep[i] && weft_ep_poll(g->ep[i]) < 0)
            return false;
    return true;
}
#define BOTH(p, g, cond) UNTIL(p, group_poll(g) && (cond))

static void member_close(struct pair *p, struct group *g, int i)
{
    if (g->peer[i])
        OK(weft_peer_close(g->peer[i]));
    OK(weft_peer_close(g->back[i]));
    pair_close_ep(p, 0, g->ep[i]);
    g->ep[i] = NULL;
}

static void group_close(struct pair *p, struct group *g)
{
    for (int i = 0; i < MEMBERS; i++)
        if (g->ep[i])
            member_close(p, g, i);
}

static enum weft_status both_end(struct pair *p, struct group *g, struct weft_op *op,
                                 enum weft_status status)
{
    if (status == WEFT_PENDING)
        BOTH(p, g, op->status != WEFT_PENDING);
    return status == WEFT_PENDING ? (enum weft_status)op->status : status;
}

static void send_word(struct pair *p, struct group *g, struct weft_peer *peer, uint32_t what)
{
    BOTH(p, g, weft_am_request(peer, MSG, &what, 1, NULL, 0, 0) == WEFT_OK);
}

/* Fails when: the members have not one address, a peer leads to another member, one that there
 * cannot be is opened, or one that there is not is not lost. */
void test_group_members(void **state)
{
    struct pair *p = *state;
    struct group g;
    struct weft_peer *none;
    group_open(p, &g, true);
    for (unsigned i = 0; i < MEMBERS; i++) {
        unsigned char address[WEFT_ADDR_MAX];
        size_t len = sizeof address;
        OK(weft_ep_address(g.ep[i], address, &len));
        assert_memory_equal(address, g.address, sizeof address);
        send_word(p, &g, g.peer[i], i);
        send_word(p, &g, g.peer[i], i);
    }
    OK(weft_peer_open(p->ep[0], g.address, sizeof g.address, &none));
    send_word(p, &g, none, 0);
    BOTH(p, &g, g.got[0] == 3 && g.got[1] == 2 && g.got[2] == 2);
    OK(weft_peer_close(none));
    GIVES(WEFT_EINVAL, weft_peer_open_member(p->ep[0], g.address, sizeof g.address, 4, &none));
    OK(weft_peer_open_member(p->ep[0], g.address, sizeof g.address, 3, &none));
    BOTH(p, &g,
         weft_am_request(none, MSG, &(uint32_t){9}, 1, NULL, 0, 0) < 0 ||
             weft_peer_status(none) != WEFT_OK);
    OK(weft_peer_close(none));
    group_close(p, &g);
}

/* Fails when: a message of a member has another source or sender than the group's, a receive that
 * names the group takes it not, or what a long message needs (offers, fetches, parts) goes to
 * another member, with or without peers. */
static void sends(struct pair *p, bool peers)
{
    static const size_t lens[] = {8, 3000, 20000, LONG};
    static unsigned char out[MEMBERS][LONG], in[LONG];
    struct weft_op s[MEMBERS][4], r = {0};
    enum weft_status started[MEMBERS][4];
    struct weft_sender *sender = NULL;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct group g;
    group_open(p, &g, peers);
    memset(s, 0, sizeof s);
    for (int i = 0; i < MEMBERS; i++)
        test_fill(out[i], LONG, (uint64_t)i);
    for (int n = 0; n < 4; n++) /* the parts of all members arrive between each other */
        for (int i = 0; i < MEMBERS; i++)
            started[i][n] =
                weft_msg_send(g.back[i], (uint64_t)(4 * i + n), out[i], lens[n], &s[i][n]);
    for (int i = MEMBERS; i--;)
        for (int n = 0; n < 4; n++) {
            struct weft_peer *named = peers ? g.peer[(i + 1) % MEMBERS] : NULL;
            enum weft_status status =
                weft_msg_recv(p->ep[0], named, (uint64_t)(4 * i + n), FULL, in, sizeof in, &r);
            OK(both_end(p, &g, &r, status));
            assert_int_equal(r.len, lens[n]);
            assert_true(test_same(in, lens[n], (uint64_t)i));
            assert_true(!sender || r.sender == sender);
            sender = r.sender;
        }
    for (int i = 0; i < MEMBERS; i++)
        for (int n = 0; n < 4; n++)
            OK(both_end(p, &g, &s[i][n], started[i][n]));
    OK(weft_sender_address(sender, address, &len));
    assert_memory_equal(address, g.address, sizeof address);
    assert_true(!peers == !weft_sender_peer(sender));
    for (uint32_t i = 0; i < MEMBERS; i++)
        send_word(p, &g, g.back[i], i);
    BOTH(p, &g, g.from_group == MEMBERS);
    group_close(p, &g);
}

void test_group_sends(void **state)
{
    sends(*state, false);
    sends(*state, true);
}

/* Fails when: a late reply goes to another member than the one that asked. */
void test_group_later(void **state)
{
    struct pair *p = *state;
    for (int peers = 0; peers < 2; peers++) {
        struct group g;
        group_open(p, &g, peers);
        for (uint32_t i = 0; i < MEMBERS; i++)
            BOTH(p, &g, weft_am_request(g.back[i], ASK, &i, 1, NULL, 0, 1) == WEFT_OK);
        BOTH(p, &g, g.asked == MEMBERS);
        for (uint32_t i = MEMBERS; i--;)
            BOTH(p, &g, weft_am_reply_later(&g.later[i], ANSWER, &i, 1, NULL, 0) == WEFT_OK);
        BOTH(p, &g, g.answered[0] == 1 && g.answered[1] == 1 && g.answered[2] == 1);
        group_close(p, &g);
    }
}

/* Fails when: the end of a member is the end of others, ends receives that others may serve, or a
 * receive does not end with the last one. */
void test_group_closed(void **state)
{
    struct pair *p = *state;
    struct group g;
    uint64_t out = 5, in = 0;
    struct weft_op r = {0};
    group_open(p, &g, true);
    for (uint32_t i = 0; i < MEMBERS; i++)
        send_word(p, &g, g.peer[i], i);
    BOTH(p, &g, g.got[0] == 1 && g.got[1] == 1 && g.got[2] == 1);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], g.peer[1], 1, FULL, &in, sizeof in, &r));
    OK(weft_peer_close(g.back[0]));
    pair_close_ep(p, 0, g.ep[0]);
    g.ep[0] = NULL;
    UNTIL(p, weft_peer_status(g.peer[0]) == WEFT_ECLOSED);
    OK(weft_peer_close(g.peer[0]));
    assert_int_equal(r.status, WEFT_PENDING);
    BOTH(p, &g, weft_msg_send(g.back[2], 1, &out, sizeof out, NULL) == WEFT_OK);
    OK(both_end(p, &g, &r, WEFT_PENDING));
    assert_int_equal(in, out);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], g.peer[1], 1, FULL, &in, sizeof in, &r));
    for (int i = 1; i < MEMBERS; i++) {
        OK(weft_peer_close(g.back[i]));
        pair_close_ep(p, 0, g.ep[i]);
        g.ep[i] = NULL;
    }
    GIVES(WEFT_ECLOSED, op_end(p, &r, WEFT_PENDING));
    for (int i = 1; i < MEMBERS; i++)
        OK(weft_peer_close(g.peer[i]));
}

enum { COPY_LEN = 8000000 };

static bool is_all(const unsigned char *at, size_t len, unsigned char byte)
{
    return at[0] == byte && !memcmp(at, at + 1, len - 1);
}

/* Begin to receive the message that member 1 has offered to end 0, and that is kept there. */
static enum weft_status receive_kept(struct pair *p, struct group *g, bool claims,
                                     unsigned char *in, struct weft_op *r)
{
    struct weft_msg_info info;
    struct weft_msg *msg;
    BOTH(p, g, weft_msg_probe(p->ep[0], g->peer[0], 1, FULL, &info) == WEFT_OK);
    if (!claims)
        return weft_msg_recv(p->ep[0], g->peer[0], 1, FULL, in, COPY_LEN, r);
    OK(weft_msg_claim(p->ep[0], g->peer[0], 1, FULL, &info, &msg));
    return weft_msg_take(p->ep[0], msg, in, COPY_LEN, r);
}

/* Fails when: a receive that names a peer of the group, and copies what a member without a peer has
 * offered, ends while another peer of the group is open, or is under way, or writes, when the last
 * one is closed. */
void test_group_left(void **state)
{
    static unsigned char out[COPY_LEN], in[COPY_LEN];
    struct pair *p = *state;
    for (int i = 0; i < 8; i++) { /* the message is kept, claimed, or comes later */
        struct weft_op s = {0}, r = {0};
        enum weft_status started;
        struct group g;
        group_open(p, &g, false);
        OK(weft_peer_open_member(p->ep[0], g.address, sizeof g.address, 0, &g.peer[0]));
        OK(weft_peer_open_member(p->ep[0], g.address, sizeof g.address, 2, &g.peer[2]));
        if (i >= 2)
            GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], g.peer[0], 1, FULL, in, COPY_LEN, &r));
        started = weft_msg_send(g.back[1], 1, out, COPY_LEN, &s);
        GIVES(WEFT_PENDING, started);
        if (i < 2)
            GIVES(WEFT_PENDING, receive_kept(p, &g, i, in, &r));
        for (int polls = 2; polls < i; polls++)
            assert_true(pair_poll(p) >= 0 && group_poll(&g));
        OK(weft_peer_close(g.peer[2]));
        if (i < 2)
            assert_int_equal(r.status, WEFT_PENDING);
        OK(weft_peer_close(g.peer[0]));
        assert_int_not_equal(r.status, WEFT_PENDING);
        if (i < 2)
            assert_int_equal(r.status, WEFT_ECANCELED);
        g.peer[0] = g.peer[2] = NULL;
        memset(in, 0xdb, sizeof in);
        for (int polls = 0; polls < 100; polls++)
            assert_true(pair_poll(p) >= 0 && group_poll(&g));
        pair_quiet(p);
        assert_true(is_all(in, sizeof in, 0xdb));
        group_close(p, &g);
        assert_int_not_equal(s.status, WEFT_PENDING);
    }
}

/* Fails when: a group is not found by its name, or another member is. */
void test_group_named(void **state)
{
    struct pair *p = *state;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(test_own_ip())}};
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof name;
    struct weft_peer *none;
    struct group g = {.asked = 0};
    params.name = (const struct sockaddr *)(const void *)&name;
    params.name_size = sizeof name;
    OK(weft_group_open(p->ctx[1], &params, MEMBERS, g.ep));
    OK(weft_ep_name(g.ep[0], (struct sockaddr *)(void *)&name, &len));
    GIVES(WEFT_ENOTAVAIL, weft_ep_name(g.ep[1], (struct sockaddr *)(void *)&name, &len));
    len = sizeof bytes;
    OK(weft_name_address((const struct sockaddr *)(const void *)&name, sizeof name, bytes, &len));
    for (unsigned i = 0; i < MEMBERS; i++) {
        OK(weft_am_register(g.ep[i], MSG, at_member, &g));
        OK(weft_peer_open_member(p->ep[0], bytes, len, i, &g.peer[i]));
        send_word(p, &g, g.peer[i], i);
        g.back[i] = peer_to(g.ep[i], p->ep[0]);
    }
    BOTH(p, &g, g.got[0] == 1 && g.got[1] == 1 && g.got[2] == 1);
    GIVES(WEFT_EINVAL, weft_peer_open_member(p->ep[0], bytes, len, WEFT_GROUP_MAX, &none));
    OK(weft_peer_open_member(p->ep[0], bytes, len, 4, &none));
    GIVES(WEFT_AGAIN, weft_am_request(none, MSG, &(uint32_t){9}, 1, NULL, 0, 0));
    BOTH(p, &g, weft_peer_status(none) == WEFT_EUNREACH);
    OK(weft_peer_close(none));
    group_close(p, &g);
}

enum { FLOOD = 3, WORD = 9, FLOOD_LEN = 80 };

/* [member] sends messages without weft_op until one is refused. Returns how many were sent. */
static unsigned flood(struct group *g, int member)
{
    static const unsigned char out[FLOOD_LEN];
    unsigned n = 0;
    enum weft_status status;
    while ((status = weft_msg_send(g->back[member], FLOOD, out, FLOOD_LEN, NULL)) == WEFT_OK)
        n++;
    GIVES(WEFT_AGAIN, status);
    return n;
}

/* Fails when: what two members have sent in vain keeps the message with a weft_op of one of them,
 * which has no credit left, from a receive that waits for it. */
static void flood_unreceived(struct pair *p, struct group *g)
{
    uint64_t out = 5, in = 0, end = test_now_ns() + TEST_LIMIT_NS;
    struct weft_op s = {0}, r = {0};
    enum weft_status sent;
    for (unsigned vain = 0; vain < 200; vain++) { /* no credit has come for some time */
        if (flood(g, 0) + flood(g, 1))
            vain = 0;
        pair_poll(p);
        assert_true(group_poll(g));
        assert_true(test_now_ns() < end);
    }
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, WORD, FULL, &in, sizeof in, &r));
    sent = weft_msg_send(g->back[1], WORD, &out, sizeof out, &s);
    OK(both_end(p, g, &s, sent));
    OK(both_end(p, g, &r, WEFT_PENDING));
    assert_int_equal(in, out);
}

/* Fails when: a member that sends as much as it may, all the time, keeps the messages without
 * weft_op of another member, which has no credit left, from being sent for ever. */
static void flood_beside(struct pair *p, struct group *g)
{
    enum { WORDS = 4 };
    static unsigned char in[FLOOD_LEN];
    uint64_t end = test_now_ns() + TEST_LIMIT_NS, words = 0, got = 0;
    while (got < WORDS) {
        struct weft_op r = {0};
        struct weft_msg_info info;
        (void)flood(g, 0);
        if (words < WORDS && weft_msg_send(g->back[1], WORD, &words, sizeof words, NULL) == WEFT_OK)
            words++;
        pair_poll(p);
        assert_true(group_poll(g));
        assert_true(test_now_ns() < end);
        if (weft_msg_probe(p->ep[0], NULL, 0, 0, &info) != WEFT_OK)
            continue;
        OK(both_end(p, g, &r, weft_msg_recv(p->ep[0], NULL, 0, 0, in, sizeof in, &r)));
        if (r.tag != WORD)
            continue;
        assert_memory_equal(in, &got, sizeof got);
        got++;
    }
}

void test_group_flood(void **state)
{
    struct pair *p = *state;
    struct group g;
    group_open(p, &g, true);
    flood_unreceived(p, &g);
    flood_beside(p, &g);
    group_close(p, &g);
}

/* Open a group of 3 whose name another endpoint has: the first member, which gets the name, is
 * opened last. */
static void name_in_use(struct pair *p)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(test_own_ip())}};
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_ep *named, *none[MEMBERS] = {NULL};
    size_t len = sizeof name;
    params.name = (const struct sockaddr *)(const void *)&name;
    params.name_size = sizeof name;
    OK(weft_ep_open(p->ctx[1], &params, &named));
    OK(weft_ep_name(named, (struct sockaddr *)(void *)&name, &len));
    GIVES(WEFT_EBUSY, weft_group_open(p->ctx[1], &params, MEMBERS, none));
    for (int i = 0; i < MEMBERS; i++)
        assert_null(none[i]);
    OK(weft_ep_close(named));
}

/* Fails when: a group of no or too many endpoints is opened, one of the most is not, numbers are
 * given twice, or a failure leaves endpoints open: then the context does not close. */
void test_group_misuse(void **state)
{
    struct pair *p = *state;
    static struct weft_ep *eps[WEFT_GROUP_MAX + 1];
    struct weft_ep *one, *two[2];
    unsigned char a[WEFT_ADDR_MAX], b[WEFT_ADDR_MAX];
    size_t len = sizeof a;
    GIVES(WEFT_EINVAL, weft_group_open(p->ctx[1], NULL, 0, eps));
    GIVES(WEFT_EINVAL, weft_group_open(p->ctx[1], NULL, WEFT_GROUP_MAX + 1, eps));
    GIVES(WEFT_EINVAL, weft_group_open(p->ctx[1], NULL, 1, NULL));
    name_in_use(p);
    OK(weft_group_open(p->ctx[1], NULL, 1, &one));
    OK(weft_ep_address(one, a, &len));
    OK(weft_group_open(p->ctx[1], NULL, 2, two));
    OK(weft_ep_address(two[1], b, &len));
    assert_memory_not_equal(a, b, sizeof a);
    OK(weft_ep_close(one));
    OK(weft_ep_close(two[1]));
    OK(weft_ep_close(two[0]));
}
