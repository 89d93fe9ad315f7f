/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that sends to many nodes at once, and a service that takes only so many questions at a
 * time: ask_test WEFT_NODE
 *
 * The test is the service. Each case's comment says what makes it fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "mem/shared.h"
#include "near.h"
#include "node/name.h"

enum { NODES = 200, FIRST_PORT = 2000 };

static const uint8_t key[WF_NODE_KEY] = "ask_test";

/* ---- the service ---- */

/* What a service sends that it may not. */
/* TWICE: each NODE_OK comes twice, and then for no question at all */
enum lie { NONE, TWICE, STATUS, OTHER_ANSWER, SECOND_BELL, LIES };

struct service {
    int sock, page_fd;
    enum weft_status refuses; /* every NODE, or the first, so; OK: as node_take */
    bool once;
    enum lie lie;
    uint32_t held[WF_NODE_ASKS];
    unsigned nheld, times[NODES], answered, asked;
};

static void answer(struct service *s, unsigned type, uint32_t cookie, const int *fds, int nfds)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, (enum wf_node_type)type);
    p.cookie = cookie;
    CHECK(!wf_node_packet_send(s->sock, &p, fds, nfds));
}

static void packet_send(int sock, const struct wf_node_packet *packet)
{
    struct pollfd p = {.fd = sock, .events = POLLOUT};
    while (wf_node_packet_send(sock, packet, NULL, 0)) {
        CHECK(errno == EAGAIN);
        CHECK(poll(&p, 1, PROC_WAIT_MS) == 1);
    }
}

static void node_answer(struct service *s, uint32_t cookie, uint32_t word, enum weft_status status)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_NODE_OK);
    p.cookie = cookie;
    p.u.node_ok.word = word;
    p.u.node_ok.status = (int32_t)status;
    packet_send(s->sock, &p);
    if (s->lie != TWICE)
        return;
    packet_send(s->sock, &p);
    p.cookie = 0;
    packet_send(s->sock, &p);
}

/* The first question about every third node is refused. */
static void node_take(struct service *s, const struct wf_node_packet *p)
{
    unsigned i = p->u.node.contact.port - FIRST_PORT;
    CHECK(i < NODES && s->nheld < WF_NODE_ASKS);
    s->asked++;
    if (s->refuses || (!s->times[i]++ && i % 3 == 0)) {
        node_answer(s, p->cookie, 0, s->refuses ? s->refuses : WEFT_ELIMIT);
        s->refuses = s->once ? WEFT_OK : s->refuses;
        return;
    }
    s->held[s->nheld++] = p->cookie;
}

static void held_answer(struct service *s)
{
    while (s->nheld)
        node_answer(s, s->held[--s->nheld], ++s->answered, WEFT_OK);
}

static void bell_give(struct service *s, uint32_t cookie)
{
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    answer(s, WF_NODE_RING_OK, cookie, &pair[1], 1);
    close(pair[1]); /* this process keeps the other end until it ends */
}

static void ring_take(struct service *s, const struct wf_node_packet *p)
{
    struct wf_node_packet no;
    wf_node_packet_init(&no, WF_NODE_RING_NO);
    no.cookie = p->cookie;
    no.u.ring_no.status = -1000;
    if (s->lie == STATUS)
        CHECK(!wf_node_packet_send(s->sock, &no, NULL, 0));
    else if (s->lie == OTHER_ANSWER)
        answer(s, WF_NODE_UNRING_OK, p->cookie, NULL, 0);
    else
        bell_give(s, p->cookie);
}

static void unring_take(struct service *s, const struct wf_node_packet *p)
{
    if (s->lie == SECOND_BELL)
        bell_give(s, p->cookie);
}

static void client_accept(struct service *s, int fd)
{
    const int estate[] = {s->page_fd, s->page_fd, s->page_fd}; /* it has no successor */
    struct wf_node_packet p;
    s->sock = near_accept(fd, key);
    wf_node_packet_init(&p, WF_NODE_WELCOME);
    p.u.welcome.incarnation = p.u.welcome.line = 1;
    p.u.welcome.contact =
        (struct wf_contact){.port = 7, .count = 1, .ip = {{[10] = 0xff, 0xff, 127, 0, 0, 1}}};
    CHECK(!wf_node_packet_send(s->sock, &p, estate, 3));
}

/* Answers wait until there are as many questions as may be, and one more would have come. */
static int hold_ms(const struct service *s)
{
    if (s->nheld == WF_NODE_ASKS)
        return 20;
    return s->nheld && s->nheld + s->answered == NODES ? 0 : -1;
}

/* What a service answers to NODE; or how it lies. */
struct refusal {
    enum weft_status with;
    bool once;
    enum lie lie;
};

/* Serve one client until it ends. Reports when each node has its answer; at the end, how often the
 * client has asked. */
static void service_main(int sock, void *arg)
{
    const struct refusal *refusal = arg;
    struct service s = {.refuses = refusal ? refusal->with : WEFT_OK,
                        .once = refusal && refusal->once,
                        .lie = refusal ? refusal->lie : NONE};
    struct pollfd p = {.events = POLLIN};
    struct wf_node_packet packet;
    void *page;
    int fd = near_bind(key);
    CHECK(!listen(fd, 8));
    s.page_fd = wf_shared_create("weft-node-page", sizeof(struct wf_node_page), 1, &page);
    CHECK(s.page_fd >= 0);
    proc_say(sock, "", 1);
    client_accept(&s, fd);
    p.fd = s.sock;
    for (;;) {
        if (poll(&p, 1, hold_ms(&s)) == 0) {
            held_answer(&s);
            if (s.answered == NODES)
                proc_say(sock, "", 1);
            continue;
        }
        switch (near_receive(s.sock, &packet)) {
        case WF_NODE_RING: ring_take(&s, &packet); break;
        case WF_NODE_UNRING: unring_take(&s, &packet); break;
        case WF_NODE_NODE: node_take(&s, &packet); break;
        default: /* the client has ended */ proc_say(sock, &s.asked, sizeof s.asked); return;
        }
    }
}

/* ---- the client ---- */

struct client {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    unsigned downs;
};

/* What a run reports. */
struct result {
    unsigned downs; /* peers that the client lost */
    uint64_t ns;    /* from its first message until it had lost all, or ended */
    unsigned asked; /* how often it asked the service */
};

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    CHECK_STATUS(why, WEFT_EPEER);
    ((struct client *)arg)->downs++;
}

/* Open an endpoint, and send one message to an endpoint of each of [nodes] nodes. */
static void client_open(struct client *c, unsigned nodes)
{
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep = WEFT_EP_PARAMS_INIT;
    struct wf_address_bytes bytes;
    size_t len = sizeof bytes;
    *c = (struct client){0};
    ctx.flags = WEFT_CTX_NETWORK;
    ep.peer_down = on_down;
    ep.arg = c;
    CHECK_STATUS(weft_ctx_open(&ctx, &c->ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(c->ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(c->ctx, &ep, &c->ep), WEFT_OK);
    CHECK_STATUS(weft_ep_address(c->ep, &bytes, &len), WEFT_OK);
    for (unsigned i = 0; i < nodes; i++) {
        struct weft_peer *peer;
        bytes.token[0]++;
        bytes.rdma = (uint16_t)(FIRST_PORT + i);
        CHECK_STATUS(weft_peer_open(c->ep, &bytes, sizeof bytes, &peer), WEFT_OK);
        CHECK_STATUS(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0), WEFT_OK);
    }
}

static void client_main(int sock, void *arg)
{
    struct client c;
    struct result r = {0};
    uint64_t begin = wf_now_ns(), until = begin + PROC_WAIT_MS * UINT64_C(1000000);
    struct pollfd p = {.fd = sock, .events = POLLIN};
    char byte;
    (void)arg;
    client_open(&c, NODES);
    while (poll(&p, 1, 0) == 0 && c.downs < NODES && wf_now_ns() < until)
        CHECK(weft_ep_wait(c.ep, 10000000) >= 0);
    r.ns = wf_now_ns() - begin;
    if (poll(&p, 1, 0) == 1) /* closing with a byte unread would discard the report below */
        CHECK(proc_hear(sock, &byte, 1) == 1);
    for (int i = 0; i < 10; i++)
        CHECK(weft_ep_poll(c.ep) >= 0);
    r.downs = c.downs;
    proc_say(sock, &r, sizeof r);
    _exit(0); /* its messages have nowhere to go */
}

/* One message, whose peer's service cannot be reached. The endpoint looks later than a failure is
 * taken as a service's state. */
static void late_main(int sock, void *arg)
{
    struct client c;
    struct result r = {0};
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    (void)arg;
    client_open(&c, 1);
    (void)poll(NULL, 0, 1200); /* time itself is what the case needs */
    while (!c.downs && wf_now_ns() < until)
        CHECK(weft_ep_wait(c.ep, 10000000) >= 0);
    r.downs = c.downs;
    proc_say(sock, &r, sizeof r);
    _exit(0);
}

static unsigned fds_here(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* The service lies when the endpoint opens, or closes. */
static void lied_main(int sock, void *arg)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct result r = {0};
    unsigned before;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    enum lie lie = *(enum lie *)arg;
    const char *text;
    CHECK_STATUS(weft_ctx_open(&params, &ctx), WEFT_OK); /* what a process opens once */
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    before = fds_here();
    near_stderr_begin();
    params.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&params, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), lie == SECOND_BELL ? WEFT_OK : WEFT_ESYSTEM);
    if (lie == SECOND_BELL)
        CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    text = near_stderr_end();
    if (!strstr(text, "does not keep to its packets"))
        proc_fail(__FILE__, __LINE__, "lie %d: %s", (int)lie, text);
    if (fds_here() != before)
        proc_fail(__FILE__, __LINE__, "lie %d: %u descriptors, not %u", (int)lie, fds_here(),
                  before);
    proc_say(sock, &r, sizeof r);
    _exit(0);
}

/* Run a service and a client. */
static struct result both_run(void (*client_of)(int sock, void *arg), struct refusal *refusal,
                              bool answers)
{
    struct proc service, client;
    struct result r;
    char byte;
    near_begin();
    CHECK(!setenv("WEFT_NODE", "1", 1) && !setenv("WEFT_NODE_NAME", "near", 1) &&
          !setenv("WEFT_TRANSPORTS", "loop,node", 1));
    service = proc_start(service_main, refusal);
    CHECK(proc_hear(service.sock, &byte, 1) == 1);
    client = proc_start(client_of, refusal ? &refusal->lie : NULL);
    if (answers) {
        CHECK(proc_hear(service.sock, &byte, 1) == 1);
        proc_say(client.sock, "", 1);
    }
    CHECK(proc_hear(client.sock, &r, sizeof r) == sizeof r);
    proc_join(&client);
    CHECK(proc_hear(service.sock, &r.asked, sizeof r.asked) == sizeof r.asked);
    proc_join(&service);
    near_end(key);
    return r;
}

/* Fails when: a client asks for more than WF_NODE_ASKS nodes at a time, or the refusal of a service
 * that has no room for a moment costs peers; or the client counts an answer that is none. */
static void many_nodes(void)
{
    struct refusal refusal = {.lie = TWICE};
    CHECK(both_run(client_main, NULL, true).downs == 0);
    CHECK(both_run(client_main, &refusal, true).downs == 0);
}

/* Fails when: a service that never has room, or memory, makes its client give up before
 * WEFT_CONNECT_TIMEOUT or wait far beyond, or ask without a pause. With pauses of 10, 20, 40, 80
 * and 100 ms the client asks 13 times in a second. */
static void never(void)
{
    static const enum weft_status with[] = {WEFT_ELIMIT, WEFT_ENOMEM};
    CHECK(!setenv("WEFT_CONNECT_TIMEOUT", "1s", 1));
    for (int i = 0; i < 2; i++) {
        struct refusal refusal = {.with = with[i]};
        struct result r = both_run(client_main, &refusal, false);
        CHECK(r.downs == NODES);
        CHECK(r.ns >= 900000000u && r.ns < 3000000000u);
        CHECK(r.asked <= 20 * NODES);
    }
}

/* Fails when: an endpoint that looks late never learns that its peer's service could not be
 * reached, since the service is asked anew. */
static void late(void)
{
    struct refusal refusal = {.with = WEFT_EUNREACH, .once = true};
    CHECK(both_run(late_main, &refusal, false).downs == 1);
}

/* Fails when: a client uses a status of its service that is none, takes the answer to another
 * question for its own, or keeps a descriptor that came with it. */
static void lied_to(void)
{
    for (enum lie lie = STATUS; lie < LIES; lie++) {
        struct refusal refusal = {.lie = lie};
        (void)both_run(lied_main, &refusal, false);
    }
}

int main(int argc, char **argv)
{
    int failed = 0;
    CHECK(argc == 2);
    near_program = argv[1];
    failed += proc_case("many nodes", many_nodes);
    failed += proc_case("never", never);
    failed += proc_case("late", late);
    failed += proc_case("lied to", lied_to);
    return failed ? 1 : 0;
}
