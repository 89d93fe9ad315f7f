/* SPDX-License-Identifier: BSD-3-Clause */
/* A process dies while operations to it and from it are under way. The memory of each operation is
 * protected as soon as the operation ends, inside its function [done].
 *
 * Fails when: an operation does not end, or its memory is read or written after its end (SIGSEGV).
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <weft/msg.h>

#include "late.h"

enum { OPS = 12, LONG_LEN = 3000000, PARTS_LEN = 100000, KILL_STEPS = 10 };
#define FULL WEFT_TAG_FULL

struct work {
    struct weft_op op;
    unsigned char *mem;
    size_t len;
    bool over;
};

static struct side s;
static struct work works[OPS];
static unsigned step; /* how long the other process lives */

/* The calls of both sides, so that each waits for the other in the middle. */
static size_t len_of(unsigned i)
{
    return i % 2 ? LONG_LEN : PARTS_LEN;
}

static void over(struct weft_op *op)
{
    struct work *w = op->user;
    CHECK(!w->over);
    w->over = true;
    CHECK(!mprotect(w->mem, w->len, PROT_NONE));
}

static struct work *work_new(unsigned i)
{
    struct work *w = &works[i];
    w->len = len_of(i);
    w->mem = mmap(NULL, w->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(w->mem != MAP_FAILED);
    w->op = (struct weft_op){.user = w, .done = over};
    return w;
}

static void begun(struct work *w, enum weft_status status)
{
    if (status != WEFT_PENDING)
        over(&w->op);
}

/* Send 4 messages, and receive 4. */
static void exchange(unsigned first)
{
    for (unsigned i = 0; i < 4; i++) {
        struct work *w = work_new(first + i);
        begun(w, weft_msg_send(s.peer, i, w->mem, w->len, &w->op));
    }
    for (unsigned i = 0; i < 4; i++) {
        struct work *w = work_new(first + 4 + i);
        begun(w, weft_msg_recv(s.ep, NULL, i, FULL, w->mem, w->len, &w->op));
    }
}

static void dies(int sock, void *arg)
{
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    struct weft_mr *mr;
    (void)arg;
    side_open(&s);
    CHECK_STATUS(weft_mem_alloc(s.ctx, LONG_LEN, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr),
                 WEFT_OK);
    CHECK_STATUS(weft_mr_key(mr, key, &len), WEFT_OK);
    side_hear(&s, sock);
    side_say(&s, sock);
    proc_say(sock, key, len);
    exchange(0);
    for (;;)
        CHECK(weft_ep_wait(s.ep, 1000000) >= 0);
}

static bool all_over(void)
{
    for (unsigned i = 0; i < OPS; i++)
        if (!works[i].over)
            return false;
    return true;
}

static void lives(void)
{
    struct proc other = proc_start(dies, NULL);
    unsigned char key[WEFT_KEY_MAX];
    struct weft_remote *r;
    enum weft_status status;
    size_t len;
    side_open(&s);
    side_say(&s, other.sock);
    side_hear(&s, other.sock);
    len = proc_hear(other.sock, key, sizeof key);
    UNTIL(s.ep, (status = weft_remote_open(s.peer, key, len, &r)) != WEFT_AGAIN);
    CHECK_STATUS(status, WEFT_OK);
    exchange(0);
    for (unsigned i = 8; i < OPS; i++) {
        struct work *w = work_new(i);
        begun(w, i < 10 ? weft_put(r, 0, w->mem, w->len, &w->op)
                        : weft_get(r, 0, w->mem, w->len, &w->op));
    }
    for (unsigned i = 0; i < step * step; i++)
        CHECK(weft_ep_wait(s.ep, 50000) >= 0);
    (void)proc_kill(&other, SIGKILL);
    for (unsigned i = 0; i < 4; i++) /* a receive that names no peer waits for other senders */
        if (!works[4 + i].over)
            UNTIL(s.ep, works[4 + i].over || weft_msg_cancel(s.ep, &works[4 + i].op) == WEFT_OK);
    UNTIL(s.ep, all_over());
    UNTIL(s.ep, s.down);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(weft_ep_poll(s.ep) >= 0);
    CHECK_STATUS(weft_remote_close(r), WEFT_OK);
    CHECK_STATUS(weft_peer_close(s.peer), WEFT_OK);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(s.ctx), WEFT_OK);
}

int main(int argc, char **argv)
{
    int bad = 0;
    side_transport(argc > 1 ? argv[1] : "shm");
    for (step = 0; step < KILL_STEPS; step++)
        bad += proc_case("ended_memory", lives);
    return bad;
}
