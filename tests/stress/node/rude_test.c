/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that lie to the node's service, and such as take its place: rude_test WEFT_NODE
 *
 * Each case's comment says what makes it fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "mem/shared.h"
#include "near.h"
#include "node/node.h"

#define NOBODY 65534
#define SHORT_NS 600000000u /* for an attempt that cannot succeed */

static const uint8_t key[WF_NODE_KEY] = "rude_test", other_key[WF_NODE_KEY] = "rude_test 2";

/* How many descriptors the process has. */
static unsigned fds_of(pid_t pid)
{
    unsigned count = 0;
    char path[64];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        count += !access(path, F_OK) || errno != ENOENT;
    }
    return count;
}

/* ---- clients ---- */

static void send_raw(int sock, const void *bytes, size_t len, int nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(32 * sizeof(int))];
    } control;
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (nfds) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memset(CMSG_DATA(&control.align), 0, (size_t)nfds * sizeof(int));
    }
    CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len);
}

/* Send it as a new client; the service must say what is wrong, and end the connection. */
static void is_failed(const void *bytes, size_t len, int nfds, const char *why)
{
    struct wf_node_packet p;
    int sock = near_connect(key);
    send_raw(sock, bytes, len, nfds);
    CHECK(near_receive(sock, &p) == WF_NODE_LOG);
    if (!strstr(p.u.log.text, why))
        proc_fail(__FILE__, __LINE__, "%s, not: %s", p.u.log.text, why);
    CHECK(near_receive(sock, &p) == 0);
    close(sock);
}

/* Fails when: the service believes bytes of another length, kind or process, or keeps descriptors
 * that came with them; or another client notices. */
static void garbage(void)
{
    struct wf_node_packet hello, p;
    struct wf_node_link link;
    uint8_t bytes[512];
    unsigned before;
    near_begin();
    near_attach(key, &link);
    before = fds_of(link.pid);
    memset(bytes, 0x5a, sizeof bytes);
    hello = near_hello(WF_NODE_ATTACH);
    is_failed(bytes, 256, 0, "no packet");
    is_failed(bytes, 512, 0, "no packet");
    is_failed(bytes, 1, 0, "no packet");
    is_failed(&hello, 128, 0, "no packet");
    is_failed(&hello, 256, 1, "no packet");
    is_failed(&hello, 256, 2, "no packet");
    is_failed(&hello, 256, 20, "no packet");
    p = hello;
    p.u.hello.self.pid++;
    is_failed(&p, sizeof p, 0, "another process");
    p = hello;
    p.u.hello.self.host ^= 1;
    is_failed(&p, sizeof p, 0, "another process");
    wf_node_packet_init(&p, WF_NODE_PROOF);
    is_failed(&p, sizeof p, 0, "type 3");
    wf_node_packet_init(&p, WF_NODE_RING);
    p.u.ring = (struct wf_node_ring){.from = {.version = WF_ADDRESS_VERSION,
                                              .size = sizeof(struct wf_address),
                                              .process = hello.u.hello.self},
                                     .contact = {.count = 1, .node = 1, .rdma = 7},
                                     .bytes = WF_NODE_RING_MIN,
                                     .am_max = WF_NODE_AM_MAX};
    is_failed(&p, sizeof p, 2, "type 6");
    CHECK(fds_of(link.pid) == before && near_clients(key) == 1);
    CHECK_STATUS(wf_node_hear(&link), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* Fails when: an attached client can send what the service has no use for, or is not told why its
 * connection ended; or the client takes it for the service's death. */
static void attached_and_rude(void)
{
    struct wf_node_link link, other;
    struct wf_node_packet p;
    near_begin();
    near_attach(key, &link);
    near_attach(key, &other);
    p = near_hello(WF_NODE_ATTACH);
    CHECK(!wf_node_packet_send(link.sock, &p, NULL, 0));
    near_stderr_begin();
    while (near_hear(&link) == WEFT_OK) /* its first packet is the line for the log */
        continue;
    CHECK(strstr(near_stderr_end(), "the node's service: this process sent a packet of type 1"));
    CHECK_STATUS(near_hear(&link), WEFT_EPROTO);
    CHECK_STATUS(wf_node_hear(&other), WEFT_OK);
    CHECK(near_clients(key) == 1);
    wf_node_detach(&link);
    wf_node_detach(&other);
    near_end(key);
}

/* ---- rings ---- */

enum { WAKES = 3000 };

/* Write to the bell until it takes nothing more, as a byte or as the counter of an eventfd. */
static void bell_fill(int bell)
{
    const uint64_t most = UINT64_MAX - 1;
    int flags = fcntl(bell, F_GETFL);
    CHECK(flags >= 0 && !fcntl(bell, F_SETFL, flags | O_NONBLOCK));
    while (write(bell, &most, sizeof most) > 0)
        continue;
    CHECK(errno == EAGAIN && !fcntl(bell, F_SETFL, flags & ~O_NONBLOCK));
}

/* Post an entry that the service consumes and drops, as one that sleeps and reads no bell. */
static void entry_post(struct near_ring *r)
{
    struct wf_node_entry *e = &r->submit->entries[r->tail & (wf_node_lines(NEAR_RING) - 1)];
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * 1000000ull;
    e->place = WF_NODE_NO_PLACE;
    wf_store_relaxed(&r->submit->sleep_epoch, 2 * r->tail + 1);
    wf_store_release(&e->ready, wf_shm_ready(r->tail++, 0, 0));
    atomic_thread_fence(memory_order_seq_cst);
    if (wf_load_acquire(&r->page->sleep_epoch) & 1)
        (void)send(r->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (wf_load_acquire(&r->event->taken) != r->tail) {
        wf_relax();
        CHECK(wf_now_ns() < until);
    }
}

/* Fails when: a client that makes its end of the bell blocking and fills it, or reads nothing from
 * it, stops the service's traffic or its desk. */
static void deaf(void)
{
    struct wf_node_link link, other;
    struct near_ring rude, good;
    near_begin();
    near_attach(key, &link);
    rude = near_ring_give(key, &link);
    for (int i = 0; i < 3; i++) {
        bell_fill(rude.bell);
        near_attach(key, &other);
        good = near_ring_give(key, &other);
        entry_post(&good);
        wf_node_detach(&other);
        close(good.bell);
    }
    for (int i = 0; i < WAKES; i++)
        entry_post(&rude);
    near_attach(key, &other);
    good = near_ring_give(key, &other);
    for (int i = 0; i < 10; i++)
        entry_post(&good);
    CHECK(near_clients(key) == 2);
    wf_node_detach(&other);
    wf_node_detach(&link);
    near_end(key);
}

/* A client's half of attaching, by hand: up to the service's answer to PROOF. */
static int prove(const struct wf_node_packet *hello, const struct wf_node_packet *proof_before,
                 struct wf_node_packet *proof, const uint8_t with[WF_NODE_KEY])
{
    struct wf_node_packet challenge;
    int sock = near_connect(key);
    CHECK(!wf_node_packet_send(sock, hello, NULL, 0));
    CHECK(near_receive(sock, &challenge) == WF_NODE_CHALLENGE);
    CHECK(wf_node_challenge_verify(key, hello, &challenge));
    if (proof_before) {
        *proof = *proof_before;
    } else {
        wf_node_packet_init(proof, WF_NODE_PROOF);
        wf_node_parameters_here(&proof->u.proof.parameters);
        wf_node_proof_sign(with, hello, &challenge, proof);
    }
    CHECK(!wf_node_packet_send(sock, proof, NULL, 0));
    return sock;
}

/* Fails when: a proof is taken twice, or by another key, or for other parameters than it covers. */
static void replayed_proof(void)
{
    struct wf_node_packet hello, proof, again, p;
    struct wf_node_link link;
    int sock;
    near_begin();
    hello = near_hello(WF_NODE_ATTACH);
    near_attach(key, &link);
    sock = prove(&hello, NULL, &proof, key);
    CHECK(near_receive(sock, &p) == WF_NODE_WELCOME);
    close(sock);
    sock = prove(&hello, &proof, &again, key);
    CHECK(near_receive(sock, &p) == 0);
    close(sock);
    sock = prove(&hello, NULL, &again, other_key);
    CHECK(near_receive(sock, &p) == 0);
    close(sock);
    wf_node_detach(&link);
    near_end(key);
}

/* Fails when: clients that send nothing stay, or keep others out for longer than their limit, or
 * the service from ending. */
static void silent(void)
{
    struct wf_node_link link;
    struct wf_node_attach_params params;
    int socks[WF_NODE_UNPROVED + 8];
    struct wf_node_packet p, hello;
    uint64_t begin;
    double seconds;
    near_begin();
    hello = near_hello(WF_NODE_ATTACH);
    near_attach(key, &link);
    begin = wf_now_ns();
    for (int i = 0; i < WF_NODE_UNPROVED + 8; i++) {
        socks[i] = near_connect(key);
        if (i % 2)
            CHECK(!wf_node_packet_send(socks[i], &hello, NULL, 0));
    }
    params = near_client(key);
    params.until_ns += 10000000000u;
    wf_node_detach(&link);
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_OK); /* when the first ones' limit is over */
    seconds = (double)(wf_now_ns() - begin) / 1e9;
    if (seconds < 4.9 || seconds > 12)
        proc_fail(__FILE__, __LINE__, "attached after %.1f s", seconds);
    for (int i = 0; i < WF_NODE_UNPROVED; i++)
        while (near_receive(socks[i], &p))
            CHECK(i % 2 && p.type == WF_NODE_CHALLENGE);
    for (int i = 0; i < WF_NODE_UNPROVED + 8; i++)
        close(socks[i]);
    CHECK(near_clients(key) == 1);
    wf_node_detach(&link);
    near_end(key);
}

/* ---- another user ---- */

static void become_nobody(void)
{
    CHECK(!setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) &&
          !setresuid(NOBODY, NOBODY, NOBODY));
}

static void other_user_main(int sock, void *arg)
{
    struct wf_node_packet hello = near_hello(WF_NODE_LIST), p;
    int fd;
    (void)sock, (void)arg;
    become_nobody();
    for (unsigned role = WF_NODE_ATTACH; role < WF_NODE_ROLES; role++) {
        fd = near_connect(key);
        hello.u.hello.role = role;
        (void)wf_node_packet_send(fd, &hello, NULL, 0); /* it may be closed already */
        CHECK(near_receive(fd, &p) == 0);
        close(fd);
    }
    for (int i = 0; i < 1000; i++) {
        fd = near_connect(key);
        CHECK(near_receive(fd, &p) == 0);
        close(fd);
    }
}

/* Fails when: another user's process gets a byte of the service, or stops it. */
static void other_user(void)
{
    struct wf_node_link link;
    struct proc p;
    near_begin();
    near_attach(key, &link);
    p = proc_start(other_user_main, NULL);
    proc_join(&p);
    CHECK_STATUS(wf_node_hear(&link), WEFT_OK);
    CHECK(near_clients(key) == 1);
    wf_node_detach(&link);
    near_end(key);
}

static void squat_main(int sock, void *arg)
{
    char byte;
    int fd, client;
    (void)arg;
    become_nobody();
    fd = near_bind(key);
    CHECK(!listen(fd, 8));
    proc_say(sock, "", 1);
    client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK(client >= 0);
    CHECK(recv(client, &byte, 1, 0) == 0); /* nothing was sent to it */
}

/* Fails when: the client sends something to another user's process that has the name. */
static void squatted(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link link;
    struct proc p;
    const char *text;
    char byte;
    near_begin();
    p = proc_start(squat_main, NULL);
    CHECK(proc_hear(p.sock, &byte, 1) == 1);
    params = near_client(key);
    near_stderr_begin();
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_EACCESS);
    text = near_stderr_end();
    CHECK(strstr(text, "another user, 65534, has taken the name"));
    proc_join(&p);
    near_end(key);
}

/* ---- in the service's place ---- */

enum pretence { NOT_LISTENING, CLOSES, SILENT, GARBAGE, OTHER_VERSION, OTHER_KEY, WRONG_TYPE };

static void answer_as(enum pretence kind, int client, const struct wf_node_packet *hello)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_CHALLENGE);
    if (kind == GARBAGE)
        memset(&p, 0x5a, sizeof p);
    if (kind == OTHER_VERSION)
        p.version++;
    wf_node_challenge_sign(kind == OTHER_KEY ? other_key : key, hello, &p);
    if (kind == WRONG_TYPE)
        wf_node_packet_init(&p, WF_NODE_BYE);
    CHECK(!wf_node_packet_send(client, &p, NULL, 0));
}

static void pretend_main(int sock, void *arg)
{
    enum pretence kind = *(enum pretence *)arg;
    struct wf_node_packet hello;
    int fd = near_bind(key), client;
    CHECK(kind == NOT_LISTENING || !listen(fd, 8));
    proc_say(sock, "", 1);
    for (;;) {
        client = kind == NOT_LISTENING ? pause() : accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        CHECK(client >= 0 && near_receive(client, &hello) == WF_NODE_HELLO);
        if (kind == CLOSES)
            close(client);
        else if (kind != SILENT)
            answer_as(kind, client, &hello);
    }
}

/* Fails when: a client believes a process of the same user that has the name and is no service, or
 * waits for it beyond its time. */
static void pretended(void)
{
    char versions[64];
    const struct {
        enum pretence kind;
        enum weft_status status;
        const char *why;
    } rows[] = {{NOT_LISTENING, WEFT_ETIMEDOUT, "does not listen"},
                {CLOSES, WEFT_ETIMEDOUT, "in time"},
                {SILENT, WEFT_ETIMEDOUT, "does not answer"},
                {GARBAGE, WEFT_EPROTO, "is none"},
                {OTHER_VERSION, WEFT_EVERSION, versions},
                {OTHER_KEY, WEFT_EACCESS, "another key"},
                {WRONG_TYPE, WEFT_EPROTO, "type 15"}};
    near_begin();
    snprintf(versions, sizeof versions, "has version %d, this library %d", WF_NODE_VERSION + 1,
             WF_NODE_VERSION);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum pretence kind = rows[i].kind;
        struct proc p = proc_start(pretend_main, &kind);
        struct wf_node_attach_params params = near_client(key);
        struct wf_node_link link;
        uint64_t begin = wf_now_ns();
        const char *text;
        char byte;
        CHECK(proc_hear(p.sock, &byte, 1) == 1);
        if (rows[i].status == WEFT_ETIMEDOUT && kind != NOT_LISTENING)
            params.until_ns = begin + SHORT_NS;
        near_stderr_begin();
        CHECK_STATUS(wf_node_attach(&params, &link), rows[i].status);
        text = near_stderr_end();
        if (!strstr(text, rows[i].why))
            proc_fail(__FILE__, __LINE__, "%s, not: %s", text, rows[i].why);
        CHECK(wf_now_ns() - begin < 6000000000u);
        (void)proc_kill(&p, SIGKILL);
    }
    near_end(key);
}

/* Fails when: a client of a service that is stopped waits beyond its time, or a service that goes
 * on minds that it left. */
static void stopped_service(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link link, other;
    near_begin();
    near_attach(key, &link);
    near_stop(link.pid);
    params = near_client(key);
    params.until_ns = wf_now_ns() + SHORT_NS;
    near_stderr_begin();
    CHECK_STATUS(wf_node_attach(&params, &other), WEFT_ETIMEDOUT);
    CHECK(strstr(near_stderr_end(), "is it stopped?"));
    CHECK(!kill(link.pid, SIGCONT));
    near_attach(key, &other);
    CHECK(other.pid == link.pid && near_clients(key) == 2);
    wf_node_detach(&other);
    wf_node_detach(&link);
    near_end(key);
}

/* Let the service open no more descriptors, or as many as before. */
static void descriptors_end(pid_t service, bool end)
{
    static struct rlimit before;
    struct rlimit now;
    char path[64];
    unsigned next = 0;
    do
        snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)service, next++);
    while (!faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW));
    if (end)
        CHECK(!prlimit(service, RLIMIT_NOFILE, NULL, &before));
    now = before;
    if (end)
        now.rlim_cur = next - 1;
    CHECK(!prlimit(service, RLIMIT_NOFILE, &now, NULL));
}

/* The service has read what the client has sent, and answers. */
static void client_goes_on(const struct wf_node_link *link)
{
    struct wf_node_packet p;
    unsigned type;
    wf_node_packet_init(&p, WF_NODE_UNRING);
    p.u.unring.ep = 9;
    p.u.unring.ep_gen = 1;
    CHECK(!wf_node_packet_send(link->sock, &p, NULL, 0));
    while ((type = near_receive(link->sock, &p)) == WF_NODE_LOG)
        continue;
    CHECK(type == WF_NODE_UNRING_OK);
}

/* Fails when: a service that has no descriptor for a client's memory ends the client, then or with
 * the next slab. */
static void slab_without_descriptor(void)
{
    struct wf_node_link link;
    struct wf_node_packet p;
    void *table, *slab;
    int fds[2] = {wf_shared_create("table", sizeof(struct wf_node_regions), 0, &table),
                  wf_shared_create("slab", 65536, 0, &slab)};
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    near_begin();
    near_attach(key, &link);
    descriptors_end(link.pid, true);
    wf_node_packet_init(&p, WF_NODE_SLAB);
    p.u.slab.size = sizeof(struct wf_node_regions);
    CHECK(!wf_node_packet_send(link.sock, &p, &fds[0], 1));
    client_goes_on(&link);
    descriptors_end(link.pid, false);
    p.u.slab = (struct wf_node_slab){.id = 7, .size = 65536};
    CHECK(!wf_node_packet_send(link.sock, &p, &fds[1], 1));
    client_goes_on(&link);
    wf_node_detach(&link);
    munmap(table, sizeof(struct wf_node_regions));
    munmap(slab, 65536);
    close(fds[0]);
    close(fds[1]);
    near_end(key);
}

int main(int argc, char **argv)
{
    int failed = 0;
    CHECK(argc == 2);
    near_program = argv[1];
    failed += proc_case("garbage", garbage);
    failed += proc_case("attached_and_rude", attached_and_rude);
    failed += proc_case("deaf", deaf);
    failed += proc_case("replayed_proof", replayed_proof);
    failed += proc_case("silent", silent);
    failed += proc_case("pretended", pretended);
    failed += proc_case("stopped_service", stopped_service);
    failed += proc_case("slab_without_descriptor", slab_without_descriptor);
    if (geteuid()) {
        puts("other_user, squatted: need root, to become another user");
    } else {
        failed += proc_case("other_user", other_user);
        failed += proc_case("squatted", squatted);
    }
    return failed ? 1 : 0;
}
