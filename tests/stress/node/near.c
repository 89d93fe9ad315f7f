/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "near.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "mem/shared.h"

const char *near_program;

bool near_alone;
static uint32_t service_user; /* this process may become another user */

/* Services listen, and a new network namespace has no interface that is up. */
static void loopback_up(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &lo));
    lo.ifr_flags |= IFF_UP;
    CHECK(!ioctl(fd, SIOCSIFFLAGS, &lo));
    close(fd);
}

void near_begin(void)
{
    service_user = wf_user_id();
    near_alone = !unshare(CLONE_NEWNET);
    if (near_alone)
        loopback_up();
    CHECK(!setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1)); /* nothing listens beyond this host */
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
}

void near_stop(pid_t pid)
{
    siginfo_t info;
    CHECK(!kill(pid, SIGSTOP));
    CHECK(!waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED));
    CHECK(info.si_code == CLD_STOPPED);
}

int near_reap(pid_t pid)
{
    int pidfd = wf_pidfd_open(pid), status = -1;
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    CHECK(pidfd >= 0 && poll(&p, 1, PROC_WAIT_MS) == 1);
    close(pidfd);
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static socklen_t service_address(const uint8_t key[WF_NODE_KEY], struct sockaddr_un *sa)
{
    struct wf_node_scope place;
    char name[WF_NODE_SOCKET_ROOM];
    wf_node_scope_here(&place);
    place.user = service_user;
    wf_node_socket_name(key, &place, "near", name);
    return wf_node_sockaddr(name, sa);
}

void near_end(const uint8_t key[WF_NODE_KEY])
{
    struct sockaddr_un sa;
    socklen_t len = service_address(key, &sa);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), status;
    while (waitpid(-1, &status, 0) > 0) /* an alarm ends this process if a child does not end */
        CHECK(status == 0);
    CHECK(errno == ECHILD);
    CHECK(connect(fd, (struct sockaddr *)&sa, len) && errno == ECONNREFUSED);
    close(fd);
}

struct wf_node_attach_params near_client(const uint8_t key[WF_NODE_KEY])
{
    struct wf_node_attach_params p = {.key = key, .name = "near", .program = near_program};
    struct wf_node_scope place;
    wf_node_scope_here(&place);
    p.self = (struct wf_process_id){
        .host = place.host, .user = place.user, .pid = (uint32_t)getpid(), .token = {1, 2}};
    wf_node_parameters_here(&p.parameters);
    p.until_ns = wf_now_ns() + PROC_WAIT_MS * 1000000ull;
    return p;
}

void near_attach(const uint8_t key[WF_NODE_KEY], struct wf_node_link *link)
{
    struct wf_node_attach_params p = near_client(key);
    CHECK_STATUS(wf_node_attach(&p, link), WEFT_OK);
}

enum weft_status near_hear(struct wf_node_link *link)
{
    struct pollfd p[] = {{.fd = link->sock, .events = POLLIN},
                         {.fd = link->pidfd, .events = POLLIN}};
    CHECK(poll(p, 2, PROC_WAIT_MS) > 0);
    return wf_node_hear(link);
}

/* ---- without the library ---- */

int near_connect(const uint8_t key[WF_NODE_KEY])
{
    struct sockaddr_un sa;
    socklen_t len = service_address(key, &sa);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&sa, len));
    return fd;
}

int near_bind(const uint8_t key[WF_NODE_KEY])
{
    struct sockaddr_un sa;
    socklen_t len = service_address(key, &sa);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&sa, len));
    return fd;
}

unsigned near_receive(int sock, struct wf_node_packet *p)
{
    struct pollfd ready = {.fd = sock, .events = POLLIN};
    int fds[WF_NODE_FDS], nfds = 0;
    enum weft_status status;
    CHECK(poll(&ready, 1, PROC_WAIT_MS) == 1);
    status = wf_node_packet_recv(sock, p, fds, &nfds);
    if (status == WEFT_ECLOSED)
        return 0;
    CHECK_STATUS(status, WEFT_OK);
    return p->type;
}

int near_accept(int fd, const uint8_t key[WF_NODE_KEY])
{
    int sock = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    struct wf_node_packet hello, p;
    CHECK(sock >= 0 && near_receive(sock, &hello) == WF_NODE_HELLO);
    wf_node_packet_init(&p, WF_NODE_CHALLENGE);
    wf_node_challenge_sign(key, &hello, &p);
    CHECK(!wf_node_packet_send(sock, &p, NULL, 0));
    CHECK(near_receive(sock, &p) == WF_NODE_PROOF);
    return sock;
}

struct wf_node_packet near_hello(enum wf_node_role role)
{
    static const uint8_t none[WF_NODE_KEY];
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_HELLO);
    p.u.hello.role = role;
    p.u.hello.self = near_client(none).self;
    return p;
}

struct near_ring near_ring_give(const uint8_t key[WF_NODE_KEY], struct wf_node_link *link)
{
    struct wf_node_packet p;
    struct near_ring r;
    void *submit, *event, *page;
    struct pollfd ready = {.fd = link->sock, .events = POLLIN};
    int fds[WF_NODE_FDS] = {
        wf_shared_create("weft-node-ring", wf_node_submit_bytes(NEAR_RING), 1, &submit),
        wf_shared_create("weft-node-ring", wf_node_event_bytes(NEAR_RING), 0, &event)};
    int nfds = 0;
    wf_node_packet_init(&p, WF_NODE_RING);
    p.cookie = 1;
    p.u.ring = (struct wf_node_ring){.from = {.version = WF_ADDRESS_VERSION,
                                              .size = sizeof(struct wf_address),
                                              .ep = 1,
                                              .ep_gen = 1,
                                              .process = near_client(key).self},
                                     .contact = link->contact,
                                     .bytes = NEAR_RING,
                                     .am_max = WF_NODE_AM_MAX};
    p.u.ring.contact.rdma = link->contact.port;
    p.u.ring.contact.port = 0;
    p.u.ring.contact.node = 1;
    p.u.ring.contact.index = (uint16_t)link->index;
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    CHECK(!wf_node_packet_send(link->sock, &p, fds, 2));
    close(fds[0]);
    close(fds[1]);
    CHECK(poll(&ready, 1, PROC_WAIT_MS) == 1);
    CHECK_STATUS(wf_node_packet_recv(link->sock, &p, fds, &nfds), WEFT_OK);
    CHECK(p.type == WF_NODE_RING_OK && nfds == 1);
    CHECK_STATUS(wf_shared_map(link->page_fd, sizeof(struct wf_node_page), 0, &page), WEFT_OK);
    r = (struct near_ring){submit, event, page, fds[0], 0};
    return r;
}

void near_ring_drop(struct near_ring *r)
{
    munmap(r->submit, wf_node_submit_bytes(NEAR_RING));
    munmap(r->event, wf_node_event_bytes(NEAR_RING));
    munmap(r->page, sizeof *r->page);
    close(r->bell);
}

unsigned near_clients(const uint8_t key[WF_NODE_KEY])
{
    struct wf_node_packet p = near_hello(WF_NODE_LIST);
    int sock = near_connect(key);
    unsigned clients = 0;
    CHECK(!wf_node_packet_send(sock, &p, NULL, 0));
    CHECK(near_receive(sock, &p) == WF_NODE_ROW && p.u.row.index == WF_NODE_NO_INDEX);
    while (near_receive(sock, &p) == WF_NODE_ROW || p.type == WF_NODE_RESOURCE)
        clients += p.type == WF_NODE_ROW;
    CHECK(p.type == WF_NODE_BYE);
    close(sock);
    return clients;
}

/* ---- forks ---- */

static pthread_t forker;
static int forks_pipe[2];
static int (*fork_child)(void);

static void *fork_main(void *arg)
{
    int status;
    pid_t pid = fork();
    if (!pid)
        _exit(fork_child());
    CHECK(pid > 0 && write(forks_pipe[1], "f", 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    return arg;
}

void near_fork_beside(int (*child)(void))
{
    enum { WAIT_MS = 100 }; /* a fork that waits for the calling thread cannot show it */
    struct pollfd p = {.events = POLLIN};
    CHECK(!pipe2(forks_pipe, O_CLOEXEC));
    p.fd = forks_pipe[0];
    fork_child = child;
    CHECK(!pthread_create(&forker, NULL, fork_main, NULL));
    (void)poll(&p, 1, WAIT_MS);
}

bool near_fork_join(void)
{
    return forker && !pthread_join(forker, NULL) && !close(forks_pipe[0]) && !close(forks_pipe[1]);
}

/* ---- standard error ---- */

static int saved = -1, collected = -1;

void near_stderr_begin(void)
{
    saved = dup(STDERR_FILENO);
    collected = memfd_create("stderr", MFD_CLOEXEC);
    CHECK(saved >= 0 && collected >= 0 && dup2(collected, STDERR_FILENO) == STDERR_FILENO);
    wf_log_note();
}

const char *near_stderr_end(void)
{
    static char text[8192];
    ssize_t n = pread(collected, text, sizeof text - 1, 0);
    CHECK(n >= 0 && dup2(saved, STDERR_FILENO) == STDERR_FILENO);
    text[n] = 0;
    close(saved);
    close(collected);
    wf_log_note();
    return text;
}
