/* SPDX-License-Identifier: BSD-3-Clause */
/* weft/node.h with a service that does not do its part. The test is the service, and the driver by
 * which memory is registered. Each case's comment names what makes it fail. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/node.h>

#include "base/clock.h"
#include "mem/shared.h"
#include "near.h"
#include "node/name.h"
#include "transport/node/layout.h"
#include "transport/rdma/hca_share.h"

#define LEN ((size_t)4096)
#define RW (WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE)

enum { WORD = 1, SESSION = 1, PORT = 7, MRS = 8 };

/* STUCK: writes never end. SILENT: nor is UNRING answered. LIES: a write is followed by a line in
 * the event ring that is no event. */
enum way { STUCK, SILENT, LIES };

static const uint8_t key[WF_NODE_KEY] = "rv_lie_test";

/* What the processes of a case share. */
static struct {
    _Atomic unsigned unrung; /* UNRINGs that the service has received */
    _Atomic bool over;       /* the service has seen the connection's end */
} * seen;

/* ---- the service ---- */

struct service {
    enum way way;
    int sock, page_fd, bell;
    struct wf_node_page *page;
    struct wf_node_submit *submit;
    struct wf_node_event *event;
    uint32_t lines, head;
};

static void answer(const struct service *s, enum wf_node_type type, const struct wf_node_packet *to,
                   const int *fds, int nfds)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, type);
    p.cookie = to->cookie;
    if (type == WF_NODE_NODE_OK)
        p.u.node_ok.word = wf_node_word_name(WORD, 0);
    if (type == WF_NODE_UNRING_OK)
        p.u.unring = to->u.unring;
    CHECK(!wf_node_packet_send(s->sock, &p, fds, nfds));
}

static void client_accept(struct service *s, int fd)
{
    const int estate[] = {s->page_fd, s->page_fd, s->page_fd, s->page_fd};
    struct wf_node_packet p;
    s->sock = near_accept(fd, key);
    wf_node_packet_init(&p, WF_NODE_WELCOME);
    p.u.welcome.incarnation = p.u.welcome.line = 1;
    p.u.welcome.window = wf_node_window(0, 1);
    p.u.welcome.contact =
        (struct wf_contact){.rdma = PORT, .count = 1, .ip = {{[10] = 0xff, 0xff, 127, 0, 0, 1}}};
    CHECK(!wf_node_packet_send(s->sock, &p, estate, 4)); /* the last is the command descriptor */
}

static void ring_take(struct service *s, const struct wf_node_packet *p, const int *fds)
{
    void *submit, *event;
    int ends[2];
    CHECK_STATUS(wf_shared_map(fds[0], wf_node_submit_bytes(p->u.ring.bytes), 0, &submit), WEFT_OK);
    CHECK_STATUS(wf_shared_map(fds[1], p->u.ring.bytes, 1, &event), WEFT_OK);
    close(fds[0]);
    close(fds[1]);
    s->submit = submit;
    s->event = event;
    s->lines = wf_node_lines(p->u.ring.bytes);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    s->bell = ends[0];
    answer(s, WF_NODE_RING_OK, p, &ends[1], 1);
    close(ends[1]);
}

/* Returns false when the client has left. */
static bool packet_take(struct service *s)
{
    struct wf_node_packet p;
    int fds[WF_NODE_FDS], nfds = 0;
    enum weft_status status = wf_node_packet_recv(s->sock, &p, fds, &nfds);
    if (status == WEFT_ECLOSED || p.type == WF_NODE_BYE)
        return false;
    CHECK_STATUS(status, WEFT_OK);
    if (p.type == WF_NODE_RING)
        ring_take(s, &p, fds);
    else if (p.type == WF_NODE_NODE)
        answer(s, WF_NODE_NODE_OK, &p, NULL, 0);
    if (p.type == WF_NODE_UNRING && s->way != SILENT)
        answer(s, WF_NODE_UNRING_OK, &p, NULL, 0);
    seen->unrung += p.type == WF_NODE_UNRING;
    return true;
}

static void line_put(struct service *s)
{
    s->event->entries[0].flags = WF_NODE_END;
    wf_store_release(&s->event->entries[0].ready, wf_shm_ready(0, 0, 0));
}

/* A REACH is done at once, a write never. */
static void entries_take(struct service *s)
{
    while (s->submit) {
        const struct wf_node_entry *e = &s->submit->entries[s->head & (s->lines - 1)];
        if (!wf_shm_is_ready(wf_load_acquire(&e->ready), s->head))
            return;
        if (e->handler == WF_NODE_REACH)
            wf_store_release(&s->event->slots[e->place].moved,
                             e->use | (uint64_t)WF_NODE_DONE << 32);
        else if (s->way == LIES)
            line_put(s);
        wf_store_release(&s->event->taken, ++s->head);
    }
}

static void service_main(int sock, void *arg)
{
    struct service s = {.way = *(enum way *)arg};
    struct pollfd p = {.events = POLLIN};
    void *page;
    int fd = near_bind(key);
    CHECK(!listen(fd, 8));
    s.page_fd = wf_shared_create("weft-node-page", sizeof *s.page, 1, &page);
    CHECK(s.page_fd >= 0);
    s.page = page;
    s.page->words[WORD] = wf_node_session_word(SESSION, WF_NODE_UP, wf_node_word_name(WORD, 0));
    proc_say(sock, "", 1);
    client_accept(&s, fd);
    p.fd = s.sock;
    for (bool here = true; here;) {
        here = poll(&p, 1, 1) != 1 || packet_take(&s);
        entries_take(&s);
    }
    seen->over = true;
}

/* ---- the driver ---- */

enum weft_status __wrap_wf_hca_adopt(const struct wf_hca_share *share, int fd,
                                     struct wf_hca_registrar **out);

static uint64_t at_of[MRS]; /* by handle */
static unsigned nmrs, dropped, dropped_early;

static enum weft_status mr_reg(struct wf_hca_registrar *r, void *addr, size_t len, uint64_t at,
                               unsigned access, struct wf_hca_registration *out)
{
    (void)r;
    (void)addr;
    (void)access;
    CHECK(nmrs < MRS);
    at_of[nmrs] = at;
    *out = (struct wf_hca_registration){
        .handle = nmrs, .lkey = nmrs + 1, .rkey = nmrs + 1, .at = at, .len = len};
    nmrs++;
    return WEFT_OK;
}

static enum weft_status mr_find(struct wf_hca_registrar *r, uint32_t handle,
                                struct wf_hca_registration *out)
{
    (void)r;
    *out = (struct wf_hca_registration){.handle = handle, .at = at_of[handle]};
    return WEFT_OK;
}

static enum weft_status mr_drop(struct wf_hca_registrar *r, uint32_t handle)
{
    (void)r;
    (void)handle;
    dropped++;
    dropped_early += !seen->unrung;
    return WEFT_OK;
}

static void registrar_close(struct wf_hca_registrar *r)
{
    close(r->fd);
    free(r);
}

enum weft_status __wrap_wf_hca_adopt(const struct wf_hca_share *share, int fd,
                                     struct wf_hca_registrar **out)
{
    static const struct wf_hca_share_ops ops = {
        .reg = mr_reg, .find = mr_find, .drop = mr_drop, .close = registrar_close};
    *out = malloc(sizeof **out);
    CHECK(*out);
    **out = (struct wf_hca_registrar){.ops = &ops, .share = *share, .fd = fd};
    return WEFT_OK;
}

/* ---- the client ---- */

struct client {
    struct weft_node *node;
    struct weft_node_peer *peer;
    struct weft_node_mr mr;
};

static _Alignas(4096) uint8_t memory[LEN];

/* The address of a process of another node. */
static size_t address_of(struct weft_node *node, unsigned char addr[WEFT_ADDR_MAX])
{
    size_t len = WEFT_ADDR_MAX;
    CHECK_STATUS(weft_node_address(node, addr, &len), WEFT_OK);
    return len;
}

static void client_open(struct client *c)
{
    struct weft_node_params p = WEFT_NODE_PARAMS_INIT;
    struct weft_node_post post = {.mr = &c->mr, .addr = memory, .len = LEN, .remote = 1, .id = 9};
    unsigned char addr[WEFT_ADDR_MAX];
    p.key = key;
    p.key_len = sizeof key;
    p.name = "near";
    p.events = 8;
    CHECK_STATUS(weft_node_open(&p, &c->node), WEFT_OK);
    CHECK_STATUS(weft_node_peer_open(c->node, addr, address_of(c->node, addr), &c->peer), WEFT_OK);
    CHECK_STATUS(weft_node_connect(c->peer), WEFT_OK);
    while (weft_node_connected(c->peer) == WEFT_PENDING)
        (void)poll(NULL, 0, 1);
    CHECK_STATUS(weft_node_connected(c->peer), WEFT_OK);
    CHECK_STATUS(weft_node_mr_open(c->node, memory, LEN, RW, &c->mr), WEFT_OK);
    CHECK_STATUS(weft_node_write(c->peer, &post, NULL), WEFT_OK);
}

static void stuck_main(int sock, void *arg)
{
    const enum way way = *(enum way *)arg;
    uint64_t begin;
    struct client c;
    const char *text;
    client_open(&c);
    near_stderr_begin();
    begin = wf_now_ns();
    CHECK_STATUS(weft_node_close(c.node), WEFT_OK);
    CHECK(wf_now_ns() - begin < UINT64_C(5000000000));
    text = near_stderr_end();
    CHECK(!strstr(text, "does not give up writes") == (way == STUCK));
    CHECK(dropped == 1 && !dropped_early);
    (void)sock;
    _exit(0);
}

static void lied_main(int sock, void *arg)
{
    const uint64_t until = wf_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    struct weft_node_event_entry e;
    struct weft_node_info info;
    struct weft_node_mr mr;
    enum weft_status status;
    struct client c;
    (void)sock;
    (void)arg;
    client_open(&c);
    while ((status = weft_node_event(c.node, &e)) == WEFT_AGAIN)
        (void)poll(NULL, 0, 1);
    CHECK_STATUS(status, WEFT_OK);
    CHECK(e.kind == WEFT_NODE_SENT && e.id == 9);
    CHECK_STATUS(e.status, WEFT_EPEER);
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(weft_node_event(c.node, &e), WEFT_EPROTO);
    CHECK_STATUS(weft_node_query(c.node, &info), WEFT_OK);
    CHECK_STATUS(info.status, WEFT_EPROTO);
    CHECK_STATUS(weft_node_connected(c.peer), WEFT_EPROTO);
    CHECK_STATUS(weft_node_mr_open(c.node, memory, LEN, RW, &mr), WEFT_EPROTO);
    CHECK(dropped == 1);
    while (!seen->over) { /* it is not to go on with writes whose memory was dropped */
        CHECK(wf_now_ns() < until);
        (void)poll(NULL, 0, 1);
    }
    CHECK_STATUS(weft_node_close(c.node), WEFT_OK);
    _exit(0);
}

static void both_run(enum way way, void (*client_of)(int sock, void *arg))
{
    struct proc service, client;
    char byte;
    near_begin();
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    service = proc_start(service_main, &way);
    CHECK(proc_hear(service.sock, &byte, 1) == 1);
    client = proc_start(client_of, &way);
    proc_join(&client);
    proc_join(&service);
    near_end(key);
}

/* Fails when: weft_node_close deregisters the memory of a write that the service may still post,
 * since that one is not asked to give up the rings first. */
static void stuck(void)
{
    both_run(STUCK, stuck_main);
}

/* Fails when: weft_node_close waits without a bound for a service that does not answer. */
static void silent(void)
{
    both_run(SILENT, stuck_main);
}

/* Fails when: after a line that is no event, each call reports EPROTO, but the service is still
 * taken for one that serves, and NICs access the memory. */
static void lied_to(void)
{
    both_run(LIES, lied_main);
}

int main(void)
{
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "100ms", 1));
    return proc_case("stuck", stuck) | proc_case("silent", silent) | proc_case("lied to", lied_to);
}
