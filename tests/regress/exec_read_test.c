/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a process that calls exec keeps its pid, its start time and its pidfd, and
 * here a child of it keeps its sockets open, too. Others went on to read its memory from
 * outside, and a get, a receive or a put was OK with bytes of the new program. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/msg.h>

#include "../stress/kill/proc.h"

/* Both programs map their memory here, with other bytes in it. */
#define PLACE ((void *)UINT64_C(0x500000000000))
#define SIZE ((size_t)1 << 20)
#define OLD 0xab
#define NEW 0xcd
#define SECOND INT64_C(1000000000)

enum what { GET, MESSAGE, PUT };

struct note {
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
};

struct self {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct note note;
};

static unsigned char *map_place(int byte)
{
    void *p = mmap(PLACE, SIZE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(p == PLACE);
    memset(p, byte, SIZE);
    return p;
}

static void self_open(struct self *s)
{
    *s = (struct self){.note.address_len = sizeof s->note.address,
                       .note.key_len = sizeof s->note.key};
    CHECK_STATUS(weft_ctx_open(NULL, &s->ctx), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s->ctx, NULL, &s->ep), WEFT_OK);
    CHECK_STATUS(weft_ep_address(s->ep, s->note.address, &s->note.address_len), WEFT_OK);
}

static struct weft_peer *peer_of(struct self *s, const struct note *n)
{
    struct weft_peer *peer;
    CHECK_STATUS(weft_peer_open(s->ep, n->address, n->address_len, &peer), WEFT_OK);
    return peer;
}

static void offer_region(struct self *s, void *base)
{
    struct weft_mr *mr;
    CHECK_STATUS(weft_mr_register(s->ctx, base, SIZE, WEFT_MEM_HOST,
                                  WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr),
                 WEFT_OK);
    CHECK_STATUS(weft_mr_key(mr, s->note.key, &s->note.key_len), WEFT_OK);
}

static void send_byte(struct self *s, struct weft_peer *peer, uint64_t tag)
{
    struct weft_op op = {0};
    enum weft_status status = weft_msg_send(peer, tag, "", 1, &op);
    if (status == WEFT_PENDING)
        status = weft_op_wait(s->ep, &op, 10 * SECOND);
    CHECK_STATUS(status, WEFT_OK);
}

static void receive_byte(struct self *s, struct weft_peer *peer, uint64_t tag)
{
    struct weft_op op = {0};
    char byte;
    enum weft_status status = weft_msg_recv(s->ep, peer, tag, WEFT_TAG_FULL, &byte, 1, &op);
    if (status == WEFT_PENDING)
        status = weft_op_wait(s->ep, &op, 10 * SECOND);
    CHECK_STATUS(status, WEFT_OK);
}

/* Calls exec, with a child that inherits the sockets. The new program ends when the test
 * closes its socket; the child is the test's to end. */
static void turn(int sock)
{
    char fd[16];
    pid_t holder = fork();
    CHECK(holder >= 0);
    if (!holder) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* the new program keeps its parent's pid */
        for (;;)
            pause();
    }
    proc_say(sock, &holder, sizeof holder);
    CHECK((sock = dup(sock)) >= 0); /* stays open */
    snprintf(fd, sizeof fd, "%d", sock);
    execl("/proc/self/exe", "exec_read_test", fd, (char *)NULL);
}

static int new_program(int sock)
{
    char byte;
    alarm(PROC_ALARM_S);
    (void)map_place(NEW);
    proc_say(sock, "", 1);
    (void)recv(sock, &byte, 1, 0);
    return 0;
}

static void turning_main(int sock, void *arg)
{
    enum what what = *(enum what *)arg;
    unsigned char *place = map_place(OLD);
    struct weft_op op = {0};
    struct weft_remote *r;
    struct weft_peer *peer;
    struct self s;
    struct note to;
    self_open(&s);
    offer_region(&s, place);
    proc_say(sock, &s.note, sizeof s.note);
    CHECK(proc_hear(sock, &to, sizeof to) == sizeof to);
    peer = peer_of(&s, &to);
    send_byte(&s, peer, 1);
    receive_byte(&s, peer, 2);
    if (what == MESSAGE)
        CHECK_STATUS(weft_msg_send(peer, 3, place, SIZE, &op), WEFT_PENDING);
    if (what == PUT) {
        CHECK_STATUS(weft_remote_open(peer, to.key, to.key_len, &r), WEFT_OK);
        CHECK_STATUS(weft_put(r, 0, place, SIZE, &op), WEFT_PENDING);
    }
    send_byte(&s, peer, 4); /* behind what went before */
    turn(sock);
    proc_fail(__FILE__, __LINE__, "exec returned");
}

static size_t count_new(const unsigned char *bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < SIZE; i++)
        n += bytes[i] == NEW;
    return n;
}

static void read_case(enum what what)
{
    struct proc p = proc_start(turning_main, &what);
    unsigned char *mine = calloc(1, SIZE), byte;
    enum weft_status status;
    struct weft_op op = {0};
    struct weft_remote *r;
    struct weft_peer *peer;
    struct self s;
    struct note to;
    pid_t holder;
    CHECK(mine);
    self_open(&s);
    offer_region(&s, mine);
    CHECK(proc_hear(p.sock, &to, sizeof to) == sizeof to);
    proc_say(p.sock, &s.note, sizeof s.note);
    peer = peer_of(&s, &to);
    receive_byte(&s, peer, 1);
    CHECK_STATUS(weft_remote_open(peer, to.key, to.key_len, &r), WEFT_OK);
    CHECK_STATUS(weft_get(r, 0, mine, SIZE, &op), WEFT_OK);
    CHECK(mine[0] == OLD && mine[SIZE - 1] == OLD);
    send_byte(&s, peer, 2);
    CHECK(proc_hear(p.sock, &holder, sizeof holder) == sizeof holder);
    CHECK(proc_hear(p.sock, &byte, 1) == 1); /* the new program runs */
    memset(mine, 0, SIZE);
    if (what == GET)
        CHECK_STATUS(weft_get(r, 0, mine, SIZE, &op), WEFT_EPEER);
    receive_byte(&s, peer, 4);
    if (what == MESSAGE) {
        status = weft_msg_recv(s.ep, peer, 3, WEFT_TAG_FULL, mine, SIZE, &op);
        if (status == WEFT_PENDING)
            status = weft_op_wait(s.ep, &op, 10 * SECOND);
        CHECK_STATUS(status, WEFT_EPEER);
    }
    CHECK(!count_new(mine));
    CHECK(!kill(holder, SIGKILL));
    (void)proc_kill(&p, SIGKILL);
}

static void exec_get(void)
{
    read_case(GET);
}

static void exec_message(void)
{
    read_case(MESSAGE);
}

static void exec_put(void)
{
    read_case(PUT);
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc > 1)
        return new_program(atoi(argv[1]));
    if (setenv("WEFT_TRANSPORTS", "loop,shm", 1)) /* where others read memory from outside */
        return 2;
    failed += proc_case("exec_get", exec_get);
    failed += proc_case("exec_message", exec_message);
    failed += proc_case("exec_put", exec_put);
    return failed ? 1 : 0;
}
