/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a process whose first thread ended by pthread_exit lives, but the kernel
 * shows nothing of it under its pid: no namespaces, no descriptors, no memory. Its context did not
 * open, it refused rings, and its memory could not be read: accepted messages were lost.
 *
 * Argument: the transport. A second process sends to such a process, receives from it, gets from
 * it and puts to it, before and after it opened its context. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/mr.h>
#include <weft/msg.h>

#include "../stress/kill/proc.h"

#define SIZE ((size_t)1 << 20)
#define SECOND INT64_C(1000000000)
#define NAME 77

struct note {
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
};

struct self {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct note note;
    unsigned char *memory;
};

/* When does the first thread end? */
enum when { NEVER, BEFORE, AFTER };

static int sock_up;
static enum when when;
static pthread_t first;
static pthread_barrier_t opened;

static void self_open(struct self *s)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "first_thread_test";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_mr_domain domain = WEFT_MR_DOMAIN_INIT;
    struct weft_mr *mr;
    params.mr = &domain;
    *s = (struct self){.note.address_len = sizeof s->note.address,
                       .note.key_len = sizeof s->note.key,
                       .memory = aligned_alloc(4096, 2 * SIZE)};
    CHECK(s->memory);
    if (strcmp(getenv("WEFT_TRANSPORTS"), "loop,shm"))
        params.flags = WEFT_CTX_NETWORK;
    CHECK_STATUS(weft_ctx_open(&params, &s->ctx), WEFT_OK);
    if (params.flags)
        CHECK_STATUS(weft_ctx_set_key(s->ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s->ctx, NULL, &s->ep), WEFT_OK);
    CHECK_STATUS(weft_ep_address(s->ep, s->note.address, &s->note.address_len), WEFT_OK);
    memset(s->memory, 5, 2 * SIZE);
    CHECK_STATUS(weft_mr_register(s->ctx, s->memory, SIZE, WEFT_MEM_HOST,
                                  WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr),
                 WEFT_OK);
    CHECK_STATUS(weft_mr_key(mr, s->note.key, &s->note.key_len), WEFT_OK);
    /* Without WEFT_MR_ALLOCATED: its owner copies by the kernel, from and to itself. */
    {
        struct iovec iov = {s->memory + SIZE, SIZE};
        struct weft_mr_attr attr = {.iov = &iov,
                                    .iov_count = 1,
                                    .access = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE,
                                    .requested_key = NAME};
        CHECK_STATUS(weft_mr_regattr(s->ctx, &attr, 0, &mr), WEFT_OK);
    }
}

static void meet(struct self *s, int sock)
{
    struct note to;
    proc_say(sock, &s->note, sizeof s->note);
    CHECK(proc_hear(sock, &to, sizeof to) == sizeof to);
    s->note = to;
    CHECK_STATUS(weft_peer_open(s->ep, to.address, to.address_len, &s->peer), WEFT_OK);
}

static enum weft_status ended(struct self *s, enum weft_status status, struct weft_op *op)
{
    return status == WEFT_PENDING ? weft_op_wait(s->ep, op, 10 * SECOND) : status;
}

static void exchange(struct self *s, void *out, void *in, size_t len)
{
    struct weft_op o = {0}, i = {0};
    enum weft_status got = weft_msg_recv(s->ep, s->peer, 1, WEFT_TAG_FULL, in, len, &i);
    enum weft_status sent = weft_msg_send(s->peer, 1, out, len, &o);
    CHECK_STATUS(ended(s, got, &i), WEFT_OK);
    CHECK_STATUS(ended(s, sent, &o), WEFT_OK);
}

static void await_first(void)
{
    char path[64], line[256] = "", *at;
    uint64_t start = proc_now_ns();
    CHECK(!pthread_join(first, NULL));
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getpid());
    do {
        FILE *f = fopen(path, "re");
        CHECK(f && fgets(line, sizeof line, f));
        fclose(f);
        CHECK((at = strrchr(line, ')')));
        CHECK(proc_now_ns() - start < 10 * SECOND);
        sched_yield();
    } while (at[2] != 'Z');
}

static void *second_thread(void *arg)
{
    unsigned char *buf = malloc(2 * SIZE);
    struct self s;
    CHECK(buf);
    if (when == BEFORE)
        await_first();
    self_open(&s);
    if (when == AFTER) {
        pthread_barrier_wait(&opened);
        await_first();
    }
    meet(&s, sock_up);
    memset(buf, 6, SIZE);
    exchange(&s, buf, buf + SIZE, 8);
    exchange(&s, buf, buf + SIZE, SIZE);
    CHECK(buf[SIZE] == 7 && buf[2 * SIZE - 1] == 7);
    for (;;)
        CHECK(weft_ep_wait(s.ep, 10 * SECOND) >= 0);
    return arg;
}

static void thread_main(int sock, void *arg)
{
    pthread_t second;
    sock_up = sock;
    when = *(enum when *)arg;
    first = pthread_self();
    CHECK(!pthread_barrier_init(&opened, NULL, 2));
    CHECK(!pthread_create(&second, NULL, second_thread, NULL));
    if (when == AFTER)
        pthread_barrier_wait(&opened);
    if (when != NEVER)
        pthread_exit(NULL);
    (void)pthread_join(second, NULL);
}

static void get_and_put(struct self *s, struct weft_remote *r, unsigned char *buf)
{
    struct weft_op op = {0};
    CHECK_STATUS(ended(s, weft_get(r, 0, buf, SIZE, &op), &op), WEFT_OK);
    CHECK(buf[0] == 5 && buf[SIZE - 1] == 5);
    memset(buf, 8, SIZE);
    memset(&op, 0, sizeof op);
    CHECK_STATUS(ended(s, weft_put(r, 0, buf, SIZE, &op), &op), WEFT_OK);
    memset(&op, 0, sizeof op);
    CHECK_STATUS(ended(s, weft_get(r, 0, buf, SIZE, &op), &op), WEFT_OK);
    CHECK(buf[0] == 8 && buf[SIZE - 1] == 8);
}

static void talk(enum when then)
{
    struct proc p = proc_start(thread_main, &then);
    unsigned char *buf = malloc(2 * SIZE);
    struct weft_remote *r;
    struct self s;
    CHECK(buf);
    self_open(&s);
    meet(&s, p.sock);
    memset(buf, 7, SIZE);
    exchange(&s, buf, buf + SIZE, 8);
    exchange(&s, buf, buf + SIZE, SIZE);
    CHECK(buf[SIZE] == 6 && buf[2 * SIZE - 1] == 6);
    CHECK_STATUS(weft_remote_open(s.peer, s.note.key, s.note.key_len, &r), WEFT_OK);
    get_and_put(&s, r, buf);
    CHECK_STATUS(weft_remote_open_key(s.peer, NAME, &r), WEFT_OK);
    get_and_put(&s, r, buf);
    CHECK_STATUS(weft_peer_status(s.peer), WEFT_OK);
    (void)proc_kill(&p, SIGKILL);
    for (uint64_t start = proc_now_ns(); weft_peer_status(s.peer) == WEFT_OK;) {
        CHECK(weft_ep_wait(s.ep, SECOND) >= 0);
        CHECK(proc_now_ns() - start < 10 * SECOND);
    }
    CHECK_STATUS(weft_peer_status(s.peer), WEFT_EPEER);
}

static void never(void)
{
    talk(NEVER);
}

static void before(void)
{
    talk(BEFORE);
}

static void after(void)
{
    talk(AFTER);
}

int main(int argc, char **argv)
{
    char transports[32];
    int failed = 0;
    snprintf(transports, sizeof transports, "loop,%s", argc > 1 ? argv[1] : "shm");
    if (setenv("WEFT_TRANSPORTS", transports, 1) || setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1))
        return 2;
    failed += proc_case("never", never);
    failed += proc_case("before", before);
    failed += proc_case("after", after);
    return failed ? 1 : 0;
}
