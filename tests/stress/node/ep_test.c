/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts and endpoints whose node has a service that another process started: ep_test WEFT_NODE
 *
 * Each case's comment says what makes it fail. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "core/core.h"
#include "near.h"
#include "node/node.h"
#include "transport/ipaddr.h"

static const uint8_t key[WF_NODE_KEY] = "ep_test";

static void begin_near(void)
{
    near_begin();
    CHECK(!setenv("WEFT_NODE", "1", 1) && !setenv("WEFT_NODE_NAME", "near", 1) &&
          !setenv("WEFT_TRANSPORTS", "loop,node", 1));
}

static struct weft_ctx *ctx_open(void)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    params.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&params, &ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(ctx, key, sizeof key), WEFT_OK);
    return ctx;
}

/* ---- a context's key ---- */

enum { SETTERS = 4, ROUNDS = 10 };

struct setter {
    pthread_t thread;
    struct weft_ctx *ctx;
    pthread_barrier_t *begin;
    enum weft_status status;
};

static void *setter_main(void *arg)
{
    struct setter *s = arg;
    pthread_barrier_wait(s->begin);
    s->status = weft_ctx_set_key(s->ctx, key, sizeof key);
    return NULL;
}

/* Fails when: two threads that set the key of one context both attach it, or an endpoint that a
 * third one opens meanwhile has the service's contact in its address, and no rings. */
static void key_race(void)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct wf_node_link link;
    begin_near();
    params.flags = WEFT_CTX_NETWORK;
    near_attach(key, &link);
    for (int round = 0; round < ROUNDS; round++) {
        struct setter s[SETTERS];
        struct wf_address_bytes address;
        size_t len = sizeof address;
        struct weft_ctx *ctx;
        struct weft_ep *ep;
        pthread_barrier_t begin;
        unsigned set = 0;
        CHECK_STATUS(weft_ctx_open(&params, &ctx), WEFT_OK);
        CHECK(!pthread_barrier_init(&begin, NULL, SETTERS + 1));
        for (int i = 0; i < SETTERS; i++) {
            s[i] = (struct setter){.ctx = ctx, .begin = &begin};
            CHECK(!pthread_create(&s[i].thread, NULL, setter_main, &s[i]));
        }
        pthread_barrier_wait(&begin);
        CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
        for (int i = 0; i < SETTERS; i++) {
            CHECK(!pthread_join(s[i].thread, NULL));
            CHECK(s[i].status == WEFT_OK || s[i].status == WEFT_EBUSY);
            set += s[i].status == WEFT_OK;
        }
        CHECK(set == 1);
        CHECK_STATUS(weft_ep_address(ep, &address, &len), WEFT_OK);
        CHECK(near_clients(key) == (address.form & WF_FORM_NODE ? 2 : 1));
        CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
        CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
        pthread_barrier_destroy(&begin);
        while (near_clients(key) != 1)
            continue;
    }
    wf_node_detach(&link);
    near_end(key);
}

/* Fails when: an endpoint that has its rings by the key which another thread is setting has an
 * address without its service. */
static void key_half_set(void)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct wf_address_bytes address;
    size_t len = sizeof address;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct wf_node_link link;
    begin_near();
    near_attach(key, &link);
    params.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&params, &ctx), WEFT_OK);
    for (int i = 0; i < WF_TRANSPORTS; i++) /* as far as that thread has come */
        if (wf_transports[i] == &wf_node_transport)
            CHECK_STATUS(wf_node_transport.set_key(ctx->tctx[i], key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    CHECK(near_clients(key) == 2);
    CHECK_STATUS(weft_ep_address(ep, &address, &len), WEFT_OK);
    CHECK(address.form & WF_FORM_NODE);
    CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* ---- rings that are refused ---- */

/* Fails when: the status of an endpoint for which the service has no room is none that weft_ep_open
 * has, or one more endpoint cannot be opened after another one was closed. */
static void too_many(void)
{
    struct wf_node_link link;
    struct weft_ep *eps[WF_NODE_RINGS], *more;
    struct weft_ctx *ctx;
    begin_near();
    near_attach(key, &link);
    ctx = ctx_open();
    for (int i = 0; i < WF_NODE_RINGS; i++)
        CHECK_STATUS(weft_ep_open(ctx, NULL, &eps[i]), WEFT_OK);
    near_stderr_begin();
    CHECK_STATUS(weft_ep_open(ctx, NULL, &more), WEFT_ELIMIT);
    CHECK(strstr(near_stderr_end(), "64 endpoints"));
    CHECK_STATUS(weft_ep_close(eps[0]), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &eps[0]), WEFT_OK);
    for (int i = 0; i < WF_NODE_RINGS; i++)
        CHECK_STATUS(weft_ep_close(eps[i]), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* Fails when: an endpoint of a context whose service is stopped, or has ended, opens, or with a
 * status that weft_ep_open does not have; or is waited for beyond WEFT_CONNECT_TIMEOUT. */
static void no_answer(void)
{
    static const struct {
        int signal;
        const char *why;
    } rows[] = {{SIGSTOP, "does not answer"}, {SIGKILL, "has ended"}};
    CHECK(!setenv("WEFT_CONNECT_TIMEOUT", "1s", 1) && !setenv("WEFT_PEER_TIMEOUT", "1s", 1));
    begin_near();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wf_node_link link;
        struct weft_ctx *ctx;
        struct weft_ep *ep;
        const char *text;
        uint64_t begin;
        near_attach(key, &link);
        ctx = ctx_open();
        if (rows[i].signal == SIGSTOP)
            near_stop(link.pid);
        else
            CHECK(!kill(link.pid, SIGKILL) && near_reap(link.pid) > 0);
        begin = wf_now_ns();
        near_stderr_begin();
        CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_ESYSTEM);
        text = near_stderr_end();
        if (!strstr(text, rows[i].why))
            proc_fail(__FILE__, __LINE__, "%s, not: %s", text, rows[i].why);
        CHECK(wf_now_ns() - begin < 4000000000u);
        CHECK(rows[i].signal == SIGKILL || !kill(link.pid, SIGCONT));
        CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
        wf_node_detach(&link);
        if (rows[i].signal == SIGSTOP)
            CHECK(near_reap(link.pid) == 0);
    }
    near_end(key);
}

/* Fails when: the rings of an endpoint that a stopped service did not take in time stay with it
 * once it goes on, and take the place of another endpoint's. */
static void late_rings(void)
{
    struct wf_node_link link;
    struct weft_ep *eps[WF_NODE_RINGS];
    struct weft_ctx *ctx;
    CHECK(!setenv("WEFT_CONNECT_TIMEOUT", "1s", 1));
    begin_near();
    near_attach(key, &link);
    ctx = ctx_open();
    near_stop(link.pid);
    near_stderr_begin();
    CHECK_STATUS(weft_ep_open(ctx, NULL, &eps[0]), WEFT_ESYSTEM);
    CHECK(strstr(near_stderr_end(), "does not answer"));
    CHECK(!kill(link.pid, SIGCONT));
    for (int i = 0; i < WF_NODE_RINGS; i++)
        CHECK_STATUS(weft_ep_open(ctx, NULL, &eps[i]), WEFT_OK);
    for (int i = 0; i < WF_NODE_RINGS; i++)
        CHECK_STATUS(weft_ep_close(eps[i]), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* ---- an endpoint that has failed ---- */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t));
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Wait for events that do not come. */
static void rest(struct weft_ep *ep)
{
    uint64_t cpu;
    while (weft_ep_wait(ep, 100000000) > 0) /* the end of the service is an event, or is not */
        continue;
    cpu = cpu_ns();
    CHECK(weft_ep_wait(ep, 500000000) == 0);
    cpu = cpu_ns() - cpu;
    if (cpu > 100000000)
        proc_fail(__FILE__, __LINE__, "%.0f ms of 500", (double)cpu / 1e6);
}

/* Fails when: an endpoint whose service has ended takes a processor while it waits: while a
 * successor is looked for, which cannot be started here, or when there is none. */
static void rests(void)
{
    struct wf_node_link link;
    struct weft_ctx *ctx;
    struct weft_ep *ep, *second;
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "1s", 1));
    begin_near();
    near_attach(key, &link);
    ctx = ctx_open();
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    CHECK(!kill(link.pid, SIGKILL));
    (void)near_reap(link.pid);
    rest(ep);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &second), WEFT_ESYSTEM); /* when there is none */
    rest(ep);
    CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* ---- what messages wait for ---- */

static void ignore(const struct weft_am *am)
{
    (void)am;
}

/* Poll until the peer's transport explains that its messages wait for [what]. */
static void expect_wait(struct weft_peer *peer, const char *what)
{
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    char text[256];
    do {
        CHECK(weft_ep_poll(peer->ep) >= 0);
        peer->transport->explain(wf_peer_tpeer(peer), text, sizeof text);
        if (wf_now_ns() > until)
            proc_fail(__FILE__, __LINE__, "%s, not: %s", text, what);
    } while (!strstr(text, what));
}

static void send_one(struct weft_peer *peer)
{
    CHECK_STATUS(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0), WEFT_OK);
}

/* Send a message while the peer's service, process [service], is stopped. */
static void send_stopped(struct weft_peer *peer, pid_t service, const char *what)
{
    near_stop(service);
    send_one(peer);
    expect_wait(peer, "messages to it are not in its ring: the node's service");
    expect_wait(peer, what);
    CHECK(!kill(service, SIGCONT));
    expect_wait(peer, "its ring has all messages to it");
}

/* A peer like the one of [bytes], whose service has the port of [sock], which answers nothing. */
static struct weft_peer *mute_peer(struct weft_ep *ep, const void *bytes, size_t len, int sock)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t sa_len = sizeof sa;
    unsigned char forged[WEFT_ADDR_MAX];
    struct wf_address address;
    struct wf_contact contact;
    struct weft_peer *peer;
    CHECK(!bind(sock, (struct sockaddr *)&sa, sizeof sa) && !listen(sock, 8));
    CHECK(!getsockname(sock, (struct sockaddr *)&sa, &sa_len));
    CHECK_STATUS(wf_address_parse(bytes, len, &address, &contact), WEFT_OK);
    address.process.token[0]++;
    contact.rdma = ntohs(sa.sin_port);
    contact.count = 1;
    wf_ipaddr_from_v4(&sa.sin_addr, contact.ip[0]);
    len = wf_address_pack(&address, &contact, forged);
    CHECK_STATUS(weft_peer_open(ep, forged, len, &peer), WEFT_OK);
    return peer;
}

/* Fails when: the log's text about a peer's messages names another step than the one for which they
 * wait: the service is stopped, before and after it has named the peer's service; the peer's
 * service answers nothing; or they wait for nothing. */
static void explained(void)
{
    struct wf_node_link link;
    struct weft_ctx *ctx;
    struct weft_ep *ep, *other;
    struct weft_peer *peer, *mute;
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof bytes;
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "300ms", 1));
    begin_near();
    near_attach(key, &link);
    ctx = ctx_open();
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    CHECK_STATUS(weft_ep_open(ctx, NULL, &other), WEFT_OK);
    CHECK_STATUS(weft_am_register(other, 1, ignore, NULL), WEFT_OK);
    CHECK_STATUS(weft_ep_address(other, bytes, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(ep, bytes, len, &peer), WEFT_OK);
    expect_wait(peer, "nothing was sent to it");
    send_stopped(peer, link.pid, "has not named the service at");
    send_stopped(peer, link.pid, "has not read 1 entries");
    mute = mute_peer(ep, bytes, len, sock);
    send_one(mute);
    expect_wait(mute, "1 of 1 messages to it are not in its ring: the service at 127.0.0.1:");
    expect_wait(mute, ", and nothing has come from it");
    close(sock);
    expect_wait(mute, weft_status_text(WEFT_EPEER));
    CHECK_STATUS(weft_peer_close(mute), WEFT_OK);
    CHECK_STATUS(weft_peer_close(peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(other), WEFT_OK);
    CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* ---- forks ---- */

#ifdef WF_HOOKS
static unsigned sockets_before;
static _Atomic unsigned sockets_attached; /* 0: no fork is wanted */
static bool forked;

static unsigned sockets_here(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[32], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        count += readlink(path, to, sizeof to - 1) > 0 && !strncmp(to, "socket:", 7);
    }
    return count;
}

static int sockets_differ(void)
{
    return sockets_here() != sockets_before;
}

static int fork_at(const char *label)
{
    if (strcmp(label, "node.heard") != 0 || !sockets_attached || forked ||
        sockets_here() == sockets_attached)
        return 0;
    forked = true;
    near_fork_beside(sockets_differ);
    return 0;
}

/* Fails when: a child that another thread forks while an endpoint's bell comes keeps a copy of it.
 */
static void forked_bell(void)
{
    struct wf_node_link link;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    begin_near();
    sockets_before = sockets_here();
    weft_test_hook = fork_at; /* before there are other threads */
    near_attach(key, &link);
    ctx = ctx_open();
    sockets_attached = sockets_here();
    CHECK_STATUS(weft_ep_open(ctx, NULL, &ep), WEFT_OK);
    sockets_attached = 0;
    CHECK(near_fork_join());
    CHECK_STATUS(weft_ep_close(ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(ctx), WEFT_OK);
    weft_test_hook = NULL;
    wf_node_detach(&link);
    near_end(key);
}
#endif

int main(int argc, char **argv)
{
    int failed = 0;
    CHECK(argc == 2);
    near_program = argv[1];
    failed += proc_case("key_race", key_race);
    failed += proc_case("key_half_set", key_half_set);
    failed += proc_case("too_many", too_many);
    failed += proc_case("no_answer", no_answer);
    failed += proc_case("late_rings", late_rings);
    failed += proc_case("rests", rests);
    failed += proc_case("explained", explained);
#ifdef WF_HOOKS
    failed += proc_case("forked_bell", forked_bell);
#endif
    return failed ? 1 : 0;
}
