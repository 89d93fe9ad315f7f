/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "enemy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "base/rand.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static uint64_t rand_state;

void enemy_seed(void)
{
    const char *text = getenv("WEFT_TEST_SEED");
    rand_state = text ? strtoull(text, NULL, 0) : proc_now_ns();
    printf("WEFT_TEST_SEED=%llu\n", (unsigned long long)rand_state);
}

uint64_t enemy_rand(void)
{
    return wf_rand(&rand_state);
}

struct wf_process_id enemy_id(const struct wf_address *victim)
{
    struct wf_process_id id = victim->process;
    id.pid = (uint32_t)getpid();
    id.start = wf_process_start((int)getpid());
    CHECK(getrandom(id.token, sizeof id.token, 0) == sizeof id.token);
    return id;
}

struct wf_address enemy_address(const struct worker *victim)
{
    struct wf_address a;
    struct wf_contact contact;
    CHECK_STATUS(wf_address_parse(victim->offer.address, victim->offer.address_len, &a, &contact),
                 WEFT_OK);
    return a;
}

/* docs/protocol.md "Service packets": an abstract name made of half of the token. */
static socklen_t name_of(const struct wf_process_id *id, struct sockaddr_un *sa)
{
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(sa->sun_path + 1, sizeof sa->sun_path - 1, "weft-%016llx",
                                        (unsigned long long)id->token[0]));
}

int enemy_connect(const struct wf_address *victim)
{
    struct sockaddr_un sa;
    socklen_t len = name_of(&victim->process, &sa);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(sock >= 0);
    CHECK(!connect(sock, (struct sockaddr *)&sa, len)); /* blocks while the backlog is full */
    return sock;
}

int enemy_listen(const struct wf_process_id *self)
{
    struct sockaddr_un sa;
    socklen_t len = name_of(self, &sa);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(sock >= 0 && !bind(sock, (struct sockaddr *)&sa, len) && !listen(sock, 16));
    return sock;
}

int enemy_accept(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    int sock;
    CHECK(poll(&p, 1, PROC_WAIT_MS) == 1);
    sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(sock >= 0);
    return sock;
}

bool enemy_hear(int sock, struct wf_packet *p, int fds[WF_PACKET_FDS], int *nfds)
{
    struct pollfd poller = {.fd = sock, .events = POLLIN};
    int got;
    *nfds = 0;
    CHECK(poll(&poller, 1, PROC_WAIT_MS) == 1);
    got = wf_packet_recv(sock, p, fds, nfds);
    CHECK(got >= 0 || errno == ECONNRESET);
    return got > 0;
}

void enemy_close_fds(const int *fds, int nfds)
{
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
}

void enemy_await_end(int sock)
{
    struct wf_packet p;
    int fds[WF_PACKET_FDS], nfds;
    while (enemy_hear(sock, &p, fds, &nfds))
        enemy_close_fds(fds, nfds);
    close(sock);
}

int enemy_greet(const struct wf_address *victim, const struct wf_process_id *self)
{
    struct wf_packet p = {.u.greeting.id = *self};
    int fds[WF_PACKET_FDS], nfds, sock = enemy_connect(victim);
    CHECK(!wf_packet_send(sock, &p, WF_PACKET_HELLO, NULL, 0));
    CHECK(enemy_hear(sock, &p, fds, &nfds) && p.type == WF_PACKET_WELCOME && nfds == 2);
    enemy_close_fds(fds, nfds);
    return sock;
}

int enemy_memfd(size_t size, int seals, void **base)
{
    int fd = memfd_create("enemy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
    if (base) {
        *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(*base != MAP_FAILED);
    }
    CHECK(!seals || !fcntl(fd, F_ADD_SEALS, seals));
    return fd;
}

void enemy_ring_make(struct enemy_ring *r)
{
    struct wf_shm_geometry g = ENEMY_GEOMETRY;
    void *fwd, *back;
    *r = (struct enemy_ring){.geometry = g, .victim_event = -1};
    r->fds[0] = enemy_memfd(wf_shm_fwd_size(&g), SEALS | F_SEAL_FUTURE_WRITE, &fwd);
    r->fds[1] = enemy_memfd(wf_shm_back_size(&g), SEALS, &back);
    r->fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(r->fds[2] >= 0);
    r->fwd = fwd;
    r->back = back;
    r->payload = (uint8_t *)r->back + wf_shm_payload_at(&g);
    r->places = (uint8_t *)r->back + wf_shm_places_at(&g);
}

enum weft_status enemy_ring_offer(struct enemy_ring *r, int sock, const struct wf_address *victim,
                                  const struct wf_process_id *self)
{
    struct wf_packet p = {.cookie = 1};
    int fds[WF_PACKET_FDS], nfds;
    p.u.ring.from = *victim;
    p.u.ring.from.process = *self;
    p.u.ring.to_ep = victim->ep;
    p.u.ring.to_gen = victim->ep_gen;
    p.u.ring.geometry = r->geometry;
    CHECK(!wf_packet_send(sock, &p, WF_PACKET_RING, r->fds, 3));
    CHECK(enemy_hear(sock, &p, fds, &nfds));
    if (p.type == WF_PACKET_RING_NO)
        return (enum weft_status)p.u.ring_no.status;
    CHECK(p.type == WF_PACKET_RING_OK && nfds == 1);
    r->victim_event = fds[0];
    return WEFT_OK;
}

void enemy_ring_free(struct enemy_ring *r)
{
    munmap(r->fwd, wf_shm_fwd_size(&r->geometry));
    munmap(r->back, wf_shm_back_size(&r->geometry));
    enemy_close_fds(r->fds, 3);
    if (r->victim_event >= 0)
        close(r->victim_event);
}

void enemy_ring_wake(struct enemy_ring *r)
{
    uint64_t one = 1;
    CHECK(write(r->victim_event, &one, sizeof one) == sizeof one || errno == EAGAIN);
}

enum weft_status enemy_ring_await_closed(struct enemy_ring *r)
{
    uint64_t until = proc_now_ns() + (uint64_t)PROC_WAIT_MS * 1000000;
    struct pollfd p = {.fd = r->fds[2], .events = POLLIN};
    int32_t closed;
    uint64_t n;
    /* The victim's event descriptor reports it, and a wake may be a reply's. */
    while (!(closed = atomic_load(&r->back->closed))) {
        CHECK(proc_now_ns() < until);
        enemy_ring_wake(r);
        (void)poll(&p, 1, 100);
        (void)!read(r->fds[2], &n, sizeof n);
    }
    return (enum weft_status)closed;
}
