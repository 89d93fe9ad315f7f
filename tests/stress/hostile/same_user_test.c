/* SPDX-License-Identifier: BSD-3-Clause */
/* The enemy: a process of the same user that speaks the protocol by hand and breaks it in every way
 * it can. Two good processes exchange verified contents all the time. After each attack they must
 * still do so, and must not hold more memory or descriptors than before.
 *
 * Fails when: a header field is used before it is checked (tried: no check of len); a segment can
 * shrink under its reader (tried: no check of its seals); a receiver can write to the forward
 * segment; an error path does not close a descriptor; a thread blocks on a descriptor that the
 * enemy sent, or is killed by a write to it; a list grows with every packet; the identity in a
 * HELLO is trusted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract/support.h"
#include "enemy.h"
#include "mem/mem.h"

#define ROUNDS 30 /* of good work after an attack */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define KIB_MORE (TEST_SANITIZED ? 1 << 20 : 8192) /* a sanitizer keeps freed memory back */
#define MANY 6000                                  /* if the limit on open files allows it */
#define FDS_MOST 4600 /* that the victim holds during any attack of one process */

static struct worker victim, friend;
static struct wf_address address; /* the victim's */
static struct wf_process_id self;
static unsigned fds_before;
static size_t kib_before;

static void begin(void)
{
    worker_start(&victim);
    worker_start(&friend);
    worker_pair(&victim, &friend);
    worker_check_pair(&victim, &friend, ROUNDS);
    address = enemy_address(&victim);
    self = enemy_id(&address);
    fds_before = worker_fds(&victim);
    kib_before = worker_kib(&victim);
}

/* A new identity each time: the victim may still be closing the last client. */
static int greet(void)
{
    self = enemy_id(&address);
    return enemy_greet(&address, &self);
}

/* The enemy has closed its descriptors: the victim must close its own ends, too. */
static void await_fds(unsigned at_most)
{
    uint64_t until = proc_now_ns() + (uint64_t)PROC_WAIT_MS * 1000000;
    while (worker_fds(&victim) > at_most) {
        if (proc_now_ns() > until)
            proc_fail(__FILE__, __LINE__, "the victim holds %u descriptors, before %u",
                      worker_fds(&victim), fds_before);
        worker_check_pair(&victim, &friend, 1);
    }
}

static void is_unharmed(void)
{
    worker_check_pair(&victim, &friend, ROUNDS);
    await_fds(fds_before);
    if (worker_kib(&victim) > kib_before + KIB_MORE)
        proc_fail(__FILE__, __LINE__, "the victim holds %zu KiB, before %zu", worker_kib(&victim),
                  kib_before);
}

static void end(void)
{
    is_unharmed();
    worker_quit_pair(&friend, &victim);
}

/* ---- descriptors that the enemy offers ---- */

/* One ring with one descriptor replaced by [fd]; the victim must refuse it. */
static void offer_bad(int which, int fd)
{
    int sock = greet(), own;
    struct enemy_ring r;
    enemy_ring_make(&r);
    own = r.fds[which];
    r.fds[which] = fd;
    CHECK_STATUS(enemy_ring_offer(&r, sock, &address, &self), WEFT_EPROTO);
    r.fds[which] = own;
    enemy_ring_free(&r);
    close(sock);
}

static void offer_memfds(int which, size_t size)
{
    static const int seals[] = {0, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SEAL,
                                F_SEAL_GROW | F_SEAL_SEAL};
    int fd;
    for (size_t i = 0; i < sizeof seals / sizeof seals[0]; i++) {
        fd = enemy_memfd(size, seals[i], NULL);
        offer_bad(which, fd);
        CHECK((seals[i] & F_SEAL_SHRINK) || !ftruncate(fd, 0)); /* too late to harm */
        close(fd);
    }
    fd = enemy_memfd(size - 4096, SEALS, NULL);
    offer_bad(which, fd);
    close(fd);
    fd = enemy_memfd(0, SEALS, NULL);
    offer_bad(which, fd);
    close(fd);
}

static void offer_others(int which)
{
    int pipes[2], fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && !pipe2(pipes, O_CLOEXEC));
    offer_bad(which, fd);
    offer_bad(which, pipes[0]);
    offer_bad(which, pipes[1]);
    close(fd);
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    offer_bad(which, fd);
    close(fd);
    fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    offer_bad(which, fd);
    close(fd);
    fd = eventfd(0, EFD_CLOEXEC);
    offer_bad(which, fd);
    enemy_close_fds(&fd, 1);
    enemy_close_fds(pipes, 2);
}

static void offers(void)
{
    struct wf_shm_geometry g = ENEMY_GEOMETRY;
    int fd;
    begin();
    offer_memfds(0, wf_shm_fwd_size(&g));
    offer_memfds(1, wf_shm_back_size(&g));
    offer_others(0);
    offer_others(1);
    /* A back segment that the victim may not write. */
    fd = enemy_memfd(wf_shm_back_size(&g), SEALS | F_SEAL_WRITE, NULL);
    offer_bad(1, fd);
    close(fd);
    end();
}

/* The sender's event descriptor: the victim's threads write to it. */
static void offer_event(int fd)
{
    int sock = greet(), own;
    struct enemy_ring r;
    enum weft_status s;
    enemy_ring_make(&r);
    own = r.fds[2];
    r.fds[2] = fd;
    s = enemy_ring_offer(&r, sock, &address, &self);
    r.fds[2] = own;
    CHECK(s == WEFT_OK || s == WEFT_EPROTO);
    if (s == WEFT_OK) { /* break the protocol, so that the victim writes to it */
        atomic_store(&r.fwd->lines[0].ready, wf_shm_ready(0, 65535, 0));
        CHECK_STATUS(enemy_ring_await_closed(&r), WEFT_EPROTO);
    }
    worker_check_pair(&victim, &friend, ROUNDS);
    enemy_ring_free(&r);
    close(sock);
}

static void event_broken_pipe(void)
{
    int pipes[2];
    begin();
    CHECK(!pipe2(pipes, O_CLOEXEC));
    close(pipes[0]);
    offer_event(pipes[1]);
    close(pipes[1]);
    end();
}

static void event_full_pipe(void)
{
    static char zeros[65536];
    int pipes[2];
    begin();
    CHECK(!pipe2(pipes, O_CLOEXEC | O_NONBLOCK));
    while (write(pipes[1], zeros, sizeof zeros) > 0)
        ;
    CHECK(!fcntl(pipes[1], F_SETFL, 0)); /* now a write blocks */
    offer_event(pipes[1]);
    enemy_close_fds(pipes, 2);
    end();
}

/* ---- what the enemy writes ---- */

static void random_bytes(void *at, size_t len)
{
    unsigned char *p = at;
    for (size_t i = 0; i < len; i += 8) {
        uint64_t r = enemy_rand();
        memcpy(p + i, &r, len - i < 8 ? len - i : 8);
    }
}

/* Half of the headers are valid in the fields that are checked first, so that later checks are
 * reached. */
static void wild_header(struct enemy_ring *r, uint32_t pos)
{
    struct wf_shm_line *line = &r->fwd->lines[pos % r->geometry.slots];
    uint64_t kind = enemy_rand();
    uint32_t len = (uint32_t)enemy_rand(), reply_max = (uint32_t)enemy_rand();
    random_bytes(&line->handler, sizeof *line - sizeof line->ready);
    if (kind & 1)
        len %= r->geometry.am_max + 2;
    if (kind & 2)
        line->nargs %= 18;
    if (kind & 4)
        reply_max %= r->geometry.am_max + 3;
    if (kind & 8)
        line->place %= r->geometry.places + 1;
    if (kind & 16)
        line->where %= r->geometry.payload / WF_SHM_BLOCK + 2;
    if (kind & 32)
        line->flags = (uint8_t)(WF_SHM_BESIDE | (kind & 128 ? WF_SHM_ARGS_NEXT : 0));
    if (kind & 64)
        line->handler = WORKER_AM_WORK;
    atomic_store(&line->ready, wf_shm_ready(pos, len & 0xffff, reply_max & 0xffff));
}

/* Write to everything that is shared, while the victim reads it. */
static void scribble(struct enemy_ring *r)
{
    struct wf_shm_geometry *g = &r->geometry;
    random_bytes(r->payload, g->payload);
    random_bytes(r->places, (size_t)g->places * g->am_max);
    random_bytes(r->back->replies, g->slots * sizeof r->back->replies[0]);
    atomic_store(&r->back->head, (uint32_t)enemy_rand());
    atomic_store(&r->back->sleep_epoch, enemy_rand());
    atomic_store(&r->fwd->sleep_epoch, enemy_rand());
    CHECK(!fallocate(r->fds[1], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                     (off_t)wf_shm_back_size(g)));
    CHECK(ftruncate(r->fds[1], 0) < 0 && ftruncate(r->fds[0], 0) < 0); /* its own seals */
}

static void ring_attack(int sock, int messages)
{
    struct enemy_ring r;
    enemy_ring_make(&r);
    CHECK_STATUS(enemy_ring_offer(&r, sock, &address, &self), WEFT_OK);
    for (int i = 0; i < messages; i++) {
        wild_header(&r, (uint32_t)i);
        enemy_ring_wake(&r);
    }
    scribble(&r);
    atomic_store(&r.fwd->closed, (uint32_t)enemy_rand());
    enemy_ring_wake(&r);
    enemy_ring_free(&r);
}

static void headers(void)
{
    int sock;
    begin();
    sock = greet();
    for (int i = 0; i < 300; i++)
        ring_attack(sock, 1 + (int)(enemy_rand() % 64));
    worker_check_pair(&victim, &friend, ROUNDS);
    close(sock);
    end();
}

/* One wrong field in an otherwise valid message: the victim drops the connection and reports it. */
static void header_fields(void)
{
    const struct wf_shm_geometry g = ENEMY_GEOMETRY;
    const struct {
        uint16_t len, reply_max;
        uint8_t nargs, place, flags;
        uint32_t where;
    } bad[] = {
        {49, 0, 0, 255, 0, 0},
        {40, 0, 3, 255, 0, 0},
        {4097, 0, 0, 255, WF_SHM_BESIDE, 0},
        {65535, 0, 0, 255, WF_SHM_BESIDE, 0},
        {0, 0, 17, 255, WF_SHM_BESIDE, 0},
        {0, 0, 255, 255, 0, 0},
        {100, 0, 0, 255, WF_SHM_BESIDE, g.payload / WF_SHM_BLOCK},
        {65, 0, 0, 255, WF_SHM_BESIDE, g.payload / WF_SHM_BLOCK - 1},
        {1, 0, 1, 255, WF_SHM_BESIDE, g.payload / WF_SHM_BLOCK},
        {0, 0, 13, 255, WF_SHM_BESIDE | WF_SHM_ARGS_NEXT, g.payload / WF_SHM_BLOCK},
        {0, 0, 13, 255, WF_SHM_BESIDE, 0},
        {0, 0, 1, 255, WF_SHM_ARGS_NEXT, 0},
        {100, 0, 0, 255, WF_SHM_BESIDE, UINT32_MAX},
        {0, 50, 0, 8, 0, 0},
        {0, 50, 0, 255, 0, 0},
        {0, 4098, 0, 0, 0, 0},
        {0, 65535, 0, 0, 0, 0},
    };
    int sock;
    begin();
    sock = greet();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct enemy_ring r;
        struct wf_shm_line *line;
        enemy_ring_make(&r);
        CHECK_STATUS(enemy_ring_offer(&r, sock, &address, &self), WEFT_OK);
        line = &r.fwd->lines[0];
        line->nargs = bad[i].nargs;
        line->place = bad[i].place;
        line->flags = bad[i].flags;
        line->where = bad[i].where;
        line->handler = WORKER_AM_WORK;
        atomic_store(&line->ready, wf_shm_ready(0, bad[i].len, bad[i].reply_max));
        CHECK_STATUS(enemy_ring_await_closed(&r), WEFT_EPROTO);
        enemy_ring_free(&r);
    }
    close(sock);
    end();
}

/* ---- the victim as a client ---- */

struct host {
    struct worker_offer offer;
    struct wf_process_id id;
    int listener, sock;
    unsigned char *state;
    int state_fd, bells_fd, slab_fd;
};

static void host_open(struct host *h)
{
    struct wf_address a = address;
    struct wf_key key = {.version = WF_KEY_VERSION,
                         .access = 3,
                         .size = sizeof key,
                         .gen = 1,
                         .slab = 1,
                         .length = 4096};
    void *state;
    *h = (struct host){.id = enemy_id(&address)};
    a.process = h->id;
    key.token = h->id.token[0];
    key.check = wf_key_check(&key);
    h->offer.address_len = wf_address_pack(&a, &(struct wf_contact){0}, h->offer.address);
    h->offer.key_len = sizeof key;
    memcpy(h->offer.key, &key, sizeof key);
    h->listener = enemy_listen(&h->id);
    h->state_fd = enemy_memfd(WF_MEM_STATE_SIZE, SEALS | 0x10, &state);
    h->state = state;
    h->state[0] = 1;
    ((uint64_t *)state)[WF_MEM_STATE_WORDS + a.ep] = a.ep_gen; /* it is open */
    h->bells_fd = enemy_memfd(WF_SHM_BELLS_SIZE, SEALS, NULL);
    h->slab_fd = enemy_memfd(65536, SEALS, NULL);
}

static void host_close(struct host *h)
{
    close(h->listener);
    if (h->sock >= 0)
        close(h->sock);
    close(h->state_fd);
    close(h->bells_fd);
    close(h->slab_fd);
    munmap(h->state, WF_MEM_STATE_SIZE);
}

static void reply_with(int sock, enum wf_packet_type type, struct wf_packet p, int fd)
{
    (void)wf_packet_send(sock, &p, type, &fd, fd >= 0); /* the victim may have closed it */
}

static void welcome(int sock, int state_fd, int bells_fd)
{
    struct wf_packet p = {0};
    (void)wf_packet_send(sock, &p, WF_PACKET_WELCOME, (int[]){state_fd, bells_fd}, 2);
}

/* Have the victim connect to the host. It answers once it is done with the host; victim_answer
 * waits for that. */
static struct proc send_victim(const struct worker_offer *offer)
{
    struct worker_order order = {.task = WORKER_SECOND, .offer = *offer};
    proc_say(victim.proc.sock, &order, sizeof order);
    return victim.proc;
}

static struct worker_status victim_answer(void)
{
    struct worker_status s;
    CHECK(proc_hear(victim.proc.sock, &s, sizeof s) == sizeof s);
    return s;
}

static void host_expect(struct host *h, enum wf_packet_type type, struct wf_packet *p, int *fds)
{
    int nfds;
    CHECK(enemy_hear(h->sock, p, fds, &nfds) && p->type == type);
}

/* Serve correctly until the victim sends its ring, whose back segment the enemy then can write. */
static void host_serve(struct host *h, struct wf_packet *ring, int fds[WF_PACKET_FDS])
{
    struct wf_packet p, ok = {.u.slab = {1, 65536}};
    (void)send_victim(&h->offer);
    h->sock = enemy_accept(h->listener);
    host_expect(h, WF_PACKET_HELLO, &p, fds);
    welcome(h->sock, h->state_fd, h->bells_fd);
    host_expect(h, WF_PACKET_SLAB, &p, fds);
    reply_with(h->sock, WF_PACKET_SLAB_OK, ok, h->slab_fd);
    CHECK_STATUS(victim_answer().second_remote, WEFT_OK);
    host_expect(h, WF_PACKET_RING, ring, fds);
}

/* The victim's segments are sealed against shrinking, growing and writing. */
static void check_sealed(const int fds[WF_PACKET_FDS])
{
    char byte = 1;
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED);
    CHECK(pwrite(fds[0], &byte, 1, 0) < 0);
    CHECK(fallocate(fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
    for (int i = 0; i < 2; i++) {
        CHECK(ftruncate(fds[i], 0) < 0 && ftruncate(fds[i], 1 << 24) < 0);
        CHECK(fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE) < 0);
    }
}

/* Wait until the victim reports the loss. Call [again], if not null, in each round. */
static enum weft_status await_second_down(void (*again)(void *), void *arg)
{
    uint64_t until = proc_now_ns() + (uint64_t)PROC_WAIT_MS * 1000000;
    struct worker_status s;
    do {
        if (again)
            again(arg);
        s = worker_order(&victim, WORKER_STATUS, NULL);
        CHECK(proc_now_ns() < until);
    } while (!s.second_down);
    return (enum weft_status)s.second_down;
}

/* How the back segment of the victim's own ring is attacked. Zeroes, or random replies that happen
 * to be valid, do not break the protocol: then the enemy closes the connection. */
enum way { BACK_HEAD, BACK_REPLIES, BACK_RANDOM_REPLIES, BACK_RANDOM, BACK_PUNCHED, BACK_WAYS };

static void replies_wrong(struct wf_shm_back *back, uint32_t slots, bool at_random)
{
    if (at_random)
        random_bytes(back->replies, slots * sizeof back->replies[0]);
    for (uint32_t s = 0; s < slots; s++) {
        uint32_t len = at_random ? (uint32_t)enemy_rand() & 0xffff : 65535;
        atomic_store(&back->replies[s].line.ready, wf_shm_ready(s, len, 0));
    }
}

struct spoil {
    enum way way;
    const struct wf_shm_geometry *g;
    struct wf_shm_back *back;
    int fd;
};

static void back_spoil(void *arg)
{
    const struct spoil *s = arg;
    const struct wf_shm_geometry *g = s->g;
    struct wf_shm_back *back = s->back;
    size_t size = wf_shm_back_size(g);
    switch (s->way) {
    case BACK_HEAD: atomic_store(&back->head, 0x40000000u); break;
    case BACK_REPLIES: replies_wrong(back, g->slots, false); break;
    case BACK_RANDOM_REPLIES:
        for (int i = 0; i < 200; i++) {
            replies_wrong(back, g->slots, true);
            atomic_store(&back->sleep_epoch, enemy_rand());
        }
        break;
    case BACK_RANDOM: random_bytes(back, size); break;
    default: CHECK(!fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size));
    }
}

static bool may_end(enum way way, enum weft_status down)
{
    if (way == BACK_PUNCHED)
        return down == WEFT_EPEER;
    if (way == BACK_RANDOM) /* also random: the closed word */
        return down == WEFT_EPROTO || down == WEFT_ECLOSED;
    return down == WEFT_EPROTO || (way == BACK_RANDOM_REPLIES && down == WEFT_EPEER);
}

static void back_attack(enum way way)
{
    struct wf_packet ring;
    struct host h;
    int fds[WF_PACKET_FDS];
    struct wf_shm_back *back;
    struct spoil spoil;
    enum weft_status down;
    size_t size;
    host_open(&h);
    host_serve(&h, &ring, fds);
    check_sealed(fds);
    size = wf_shm_back_size(&ring.u.ring.geometry);
    back = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    CHECK(back != MAP_FAILED);
    spoil = (struct spoil){way, &ring.u.ring.geometry, back, fds[1]};
    back_spoil(&spoil);
    if (way == BACK_RANDOM_REPLIES || way == BACK_PUNCHED) {
        worker_check_pair(&victim, &friend, ROUNDS);
        close(h.sock);
        h.sock = -1;
    }
    /* A new request invalidates the reply slot's old ready word. */
    down = await_second_down(way == BACK_REPLIES ? back_spoil : NULL, &spoil);
    if (!may_end(way, down))
        proc_fail(__FILE__, __LINE__, "way %d ended with %s", (int)way, weft_status_name(down));
    worker_check_pair(&victim, &friend, ROUNDS);
    munmap(back, size);
    enemy_close_fds(fds, 3);
    host_close(&h);
}

static void back_scribbled(void)
{
    begin();
    fds_before += 1; /* the pidfd of the last second peer stays with it */
    for (int way = 0; way < BACK_WAYS; way++)
        back_attack((enum way)way);
    end();
}

/* Change generation words and slab during the victim's puts and gets. */
static void memory_scribbled(void)
{
    struct wf_packet ring;
    struct host h;
    int fds[WF_PACKET_FDS];
    begin();
    fds_before += 1;
    host_open(&h);
    host_serve(&h, &ring, fds);
    for (int i = 0; i < 50; i++) {
        random_bytes(h.state, 4096);
        CHECK(!fallocate(h.slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 65536));
        h.state[0] = 1;
        worker_check_pair(&victim, &friend, 1);
    }
    CHECK(ftruncate(h.slab_fd, 0) < 0 && ftruncate(h.state_fd, 0) < 0);
    enemy_close_fds(fds, 3);
    host_close(&h);
    CHECK_STATUS(await_second_down(NULL, NULL), WEFT_EPEER);
    end();
}

/* Wrong answers to the victim's requests. */
static void answer_attack(int way)
{
    struct wf_packet p, bad = {.u.slab = {1, 65536}};
    struct worker_status s;
    struct host h;
    int fds[WF_PACKET_FDS], fd;
    host_open(&h);
    (void)send_victim(&h.offer);
    h.sock = enemy_accept(h.listener);
    host_expect(&h, WF_PACKET_HELLO, &p, fds);
    switch (way) {
    case 0: /* a state segment that can shrink */
        fd = enemy_memfd(WF_MEM_STATE_SIZE, 0, NULL);
        welcome(h.sock, fd, h.bells_fd);
        CHECK(!ftruncate(fd, 0));
        close(fd);
        break;
    case 1: /* one that is too short */
        fd = enemy_memfd(4096, SEALS, NULL);
        welcome(h.sock, fd, h.bells_fd);
        close(fd);
        break;
    case 2: /* two welcomes */
        welcome(h.sock, h.state_fd, h.bells_fd);
        welcome(h.sock, h.state_fd, h.bells_fd);
        break;
    case 3: /* a request instead of an answer */ reply_with(h.sock, WF_PACKET_SLAB, bad, -1); break;
    case 7: /* bells that can shrink */
        fd = enemy_memfd(WF_SHM_BELLS_SIZE, 0, NULL);
        welcome(h.sock, h.state_fd, fd);
        CHECK(!ftruncate(fd, 0));
        close(fd);
        break;
    case 8: /* too few of them */
        fd = enemy_memfd(WF_SHM_BELLS_SIZE / 2, SEALS, NULL);
        welcome(h.sock, h.state_fd, fd);
        close(fd);
        break;
    case 4: /* garbage */ CHECK(send(h.sock, &p, 77, MSG_NOSIGNAL) == 77); break;
    default: /* a slab that can shrink, or is not of the size in the packet */
        welcome(h.sock, h.state_fd, h.bells_fd);
        fd = enemy_memfd(way == 5 ? 65536 : 4096, way == 5 ? 0 : SEALS, NULL);
        reply_with(h.sock, WF_PACKET_SLAB_OK, bad, fd);
        close(fd);
    }
    s = victim_answer();
    CHECK_STATUS(s.second_remote, WEFT_EPROTO);
    worker_check_pair(&victim, &friend, ROUNDS);
    host_close(&h);
}

static void answers(void)
{
    begin();
    fds_before += 2; /* the second peer that the victim keeps has a pidfd and may have a socket */
    for (int way = 0; way < 9; way++)
        answer_attack(way);
    end();
}

/* ---- packets ---- */

static void send_raw(int sock, const void *data, size_t len, const int *fds, int nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(16 * sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds) {
        struct cmsghdr *c = &control.align;
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
    }
    (void)sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT); /* the victim may have closed it */
}

static void packets_random(void)
{
    int fds[16], null;
    begin();
    CHECK((null = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
    for (int i = 0; i < 16; i++)
        fds[i] = null;
    for (int i = 0; i < 500; i++) {
        struct wf_packet p;
        int sock = enemy_rand() % 2 ? greet() : enemy_connect(&address);
        random_bytes(&p, sizeof p);
        p.magic = WF_PACKET_MAGIC;
        p.version = WF_PACKET_VERSION;
        p.size = sizeof p;
        p.type = (uint8_t)(enemy_rand() % 12);
        send_raw(sock, &p, enemy_rand() % 2 ? sizeof p : enemy_rand() % 128, fds,
                 (int)(enemy_rand() % 17));
        close(sock);
    }
    close(null);
    end();
}

/* A packet of no bytes that carries descriptors. */
static void packets_empty(void)
{
    int null, fds[6];
    begin();
    CHECK((null = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
    for (int i = 0; i < 6; i++)
        fds[i] = null;
    for (int i = 0; i < 50; i++) {
        int sock = greet();
        send_raw(sock, "", 0, fds, 6);
        close(sock);
    }
    close(null);
    end();
}

static void packets_wrong(void)
{
    struct wf_packet p = {.u.greeting.id = self};
    int sock;
    begin();
    for (int way = 0; way < 5; way++) {
        sock = way == 1 ? greet() : enemy_connect(&address);
        p = (struct wf_packet){.u.greeting.id = self};
        if (way == 2)
            p.u.hello.pid++;
        if (way == 3)
            p.u.hello.pid = 0;
        /* 0: before any hello; 1: a second hello; 2, 3: wrong pid; 4: half of one */
        if (way == 4)
            send_raw(sock, &p, 64, NULL, 0);
        else
            CHECK(!wf_packet_send(sock, &p, way ? WF_PACKET_HELLO : WF_PACKET_SLAB, NULL, 0));
        enemy_await_end(sock);
        worker_check_pair(&victim, &friend, 5);
    }
    end();
}

/* The enemy claims the friend's identity, which any process of this user can read, and closes. The
 * victim must not take that for the friend's end. */
static void stolen_name(void)
{
    struct wf_address a;
    struct wf_contact contact;
    int sock;
    begin();
    CHECK_STATUS(wf_address_parse(friend.offer.address, friend.offer.address_len, &a, &contact),
                 WEFT_OK);
    for (int i = 0; i < 2; i++) {
        struct wf_process_id id = a.process;
        struct wf_packet p = {0};
        int fds[WF_PACKET_FDS], nfds;
        id.pid = self.pid;
        p.u.hello = id;
        sock = enemy_connect(&address);
        CHECK(!wf_packet_send(sock, &p, WF_PACKET_HELLO, NULL, 0));
        if (enemy_hear(sock, &p, fds, &nfds)) /* it may be refused */
            enemy_close_fds(fds, nfds);
        if (i)
            send_raw(sock, "x", 1, NULL, 0);
        close(sock);
        worker_check_pair(&victim, &friend, ROUNDS);
    }
    end();
}

/* ---- too much ---- */

/* A newcomer can connect to the victim, and completes its work. */
static void newcomer_works(void)
{
    uint64_t start = proc_now_ns();
    struct worker w;
    setenv("WEFT_CONNECT_TIMEOUT", "8000", 1); /* thousands of connections may be ahead of it */
    worker_start(&w);
    setenv("WEFT_CONNECT_TIMEOUT", "2000", 1);
    (void)worker_order(&w, WORKER_SECOND, &victim.offer);
    worker_check_pair(&victim, &friend, 5);
    CHECK_STATUS(worker_order(&w, WORKER_STATUS, NULL).second_remote, WEFT_OK);
    CHECK(proc_now_ns() - start < UINT64_C(9000000000));
    worker_quit(&w);
}

static void connections_many(void)
{
    static int socks[MANY];
    struct rlimit files;
    int many = MANY;
    begin();
    CHECK(!getrlimit(RLIMIT_NOFILE, &files));
    if (files.rlim_cur < MANY + 100)
        many = (int)files.rlim_cur - 100;
    for (int i = 0; i < many; i++) {
        socks[i] = enemy_connect(&address);
        if (i % 10 == 0)
            send_raw(socks[i], "half", 4, NULL, 0);
    }
    worker_check_pair(&victim, &friend, ROUNDS);
    newcomer_works(); /* it connected last: by now all others were accepted */
    CHECK(worker_fds(&victim) < FDS_MOST);
    for (int i = 0; i < many; i++)
        close(socks[i]);
    end();
}

/* More connections than the victim can have open. It continues to work, and recovers. */
static void connections_past_the_limit(void)
{
    struct rlimit all, few;
    CHECK(!getrlimit(RLIMIT_NOFILE, &all));
    few = all;
    few.rlim_cur = 256;
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    begin();
    CHECK(!setrlimit(RLIMIT_NOFILE, &all));
    {
        static int socks[600];
        for (int i = 0; i < 600; i++)
            socks[i] = enemy_connect(&address);
        worker_check_pair(&victim, &friend, ROUNDS);
        for (int i = 0; i < 600; i++)
            close(socks[i]);
    }
    is_unharmed();
    newcomer_works();
    end();
}

static void never_reads(void)
{
    struct wf_packet p = {0};
    int socks[20];
    begin();
    for (int i = 0; i < 20; i++) {
        socks[i] = greet();
        for (int n = 0; n < 5000 && !wf_packet_send(socks[i], &p, WF_PACKET_SLAB, NULL, 0); n++)
            ;
    }
    worker_check_pair(&victim, &friend, ROUNDS);
    newcomer_works();
    for (int i = 0; i < 20; i++)
        close(socks[i]);
    end();
}

static void rings_many(void)
{
    struct enemy_ring r;
    int sock;
    begin();
    sock = greet();
    enemy_ring_make(&r);
    for (int i = 0; i < MANY; i++) {
        enum weft_status s = enemy_ring_offer(&r, sock, &address, &self);
        CHECK(s == WEFT_OK || s == WEFT_ELIMIT);
        if (s == WEFT_OK)
            close(r.victim_event);
        r.victim_event = -1;
    }
    worker_check_pair(&victim, &friend, ROUNDS);
    CHECK(worker_fds(&victim) < FDS_MOST);
    newcomer_works();
    enemy_ring_free(&r);
    close(sock);
    end();
}

/* Packets without an answer, as fast as two processes can send them. */
static void flood_main(int sock, void *arg)
{
    struct wf_process_id id = enemy_id(&address);
    struct wf_packet p = {0};
    int to = enemy_greet(&address, &id);
    (void)arg;
    proc_say(sock, "", 1);
    for (;;) /* until it is killed */
        if (wf_packet_send(to, &p, WF_PACKET_BYE, NULL, 0) && errno == EAGAIN) {
            struct timeval nap = {0, 10};
            (void)select(0, NULL, NULL, NULL, &nap);
        }
}

static void flooded(void)
{
    struct proc floods[2];
    char byte;
    begin();
    for (int i = 0; i < 2; i++) {
        floods[i] = proc_start(flood_main, NULL);
        CHECK(proc_hear(floods[i].sock, &byte, 1) == 1);
    }
    worker_check_pair(&victim, &friend, ROUNDS);
    newcomer_works();
    for (int i = 0; i < 2; i++)
        (void)proc_kill(&floods[i], SIGKILL);
    end();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } cases[] = {
        {"offers", offers},
        {"event_broken_pipe", event_broken_pipe},
        {"event_full_pipe", event_full_pipe},
        {"headers", headers},
        {"header_fields", header_fields},
        {"back_scribbled", back_scribbled},
        {"memory_scribbled", memory_scribbled},
        {"answers", answers},
        {"packets_random", packets_random},
        {"packets_empty", packets_empty},
        {"packets_wrong", packets_wrong},
        {"stolen_name", stolen_name},
        {"connections_many", connections_many},
        {"connections_past_the_limit", connections_past_the_limit},
        {"never_reads", never_reads},
        {"rings_many", rings_many},
        {"flooded", flooded},
    };
    struct rlimit files;
    int failed = 0;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    setenv("WEFT_CONNECT_TIMEOUT", "2000", 1);
    enemy_seed();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc < 2 || !strcmp(argv[1], cases[i].name))
            failed += proc_case(cases[i].name, cases[i].fn);
    return failed ? 1 : 0;
}
