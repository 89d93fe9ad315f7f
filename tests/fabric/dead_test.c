/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that is killed: what is under way, receives that name it included, ends with an error in
 * time, and nothing returns -FI_EAGAIN for ever. So does the receive of a message of the peer that
 * was claimed before. The peer is a child that opens its side by itself.
 */
#include "sides.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME 64

static const struct how plain = {0};

enum { LONG_TAG = 50, LONG_LEN = 3 << 20 };

/* The child, and pipes to and from it. */
static pid_t child;
static int down[2], up[2];
static uint8_t name[NAME], mine[NAME];

/* In the child: open a side, and exchange names. */
static void child_meet(int from, int to)
{
    size_t len = NAME;
    side_open(&b, &plain);
    if (fi_getname(&b.ep->fid, mine, &len) || write(to, mine, NAME) != NAME ||
        read(from, name, NAME) != NAME || fi_av_insert(b.av, name, 1, &b.other, 0, NULL) != 1)
        _exit(1);
}

/* Fork a child that calls [run], and open side a, which knows the child's. */
static void child_begin(void (*run)(int from, int to))
{
    size_t len = NAME;
    assert_true(!pipe(down) && !pipe(up));
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        alarm(2 * WAIT_MS / 1000); /* if the test has failed */
        child_meet(down[0], up[1]);
        run(down[0], up[1]);
        _exit(0);
    }
    side_open(&a, &plain);
    assert_int_equal(read(up[0], name, NAME), NAME);
    assert_int_equal(fi_getname(&a.ep->fid, mine, &len), 0);
    assert_int_equal(write(down[1], mine, NAME), NAME);
    assert_int_equal(fi_av_insert(a.av, name, 1, &a.other, 0, NULL), 1);
}

static void child_kill(void)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (int i = 0; i < 2; i++) {
        close(down[i]);
        close(up[i]);
    }
}

/* In the child: receive one message, send a long one, then do nothing. */
static void child_run(int from, int to)
{
    static char out[LONG_LEN];
    char got[8];
    (void)from;
    if (fi_trecv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, 1, 0, got))
        _exit(1);
    take(&b);
    RETRY(fi_tinject(b.ep, got, 8, b.other, 1));
    RETRY(fi_tsend(b.ep, out, LONG_LEN, NULL, b.other, LONG_TAG, out));
    for (int i = 0; i < 100000; i++)
        (void)fi_cq_read(b.cq, NULL, 0);
    if (write(to, name, 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static ssize_t long_receive(uint64_t flags, char *buf)
{
    struct iovec iov = {buf, LONG_LEN};
    struct fi_msg_tagged m = {
        .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = LONG_TAG, .context = buf};
    return fi_trecvmsg(a.ep, &m, flags | FI_COMPLETION);
}

/* Claim the child's long message. */
static void long_claim(char *buf)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t n = 0;
    while (n != 1) {
        RETRY(long_receive(FI_PEEK | FI_CLAIM, buf));
        while ((n = fi_cq_read(a.cq, &e, 1)) == -FI_EAGAIN && now_ms() < deadline)
            turn();
        assert_true(n == 1 || fi_cq_readerr(a.cq, &err, 0) == 1);
        assert_true(now_ms() < deadline);
    }
    assert_ptr_equal(e.op_context, buf);
}

static void killed_test(void **state)
{
    static char claimed[LONG_LEN];
    static char buf[1 << 20];
    struct fi_cq_err_entry e;
    uint64_t start, limit = over_network() ? 12000 : 1000;
    ssize_t rc;
    (void)state;
    child_begin(child_run);
    RETRY(fi_trecv(a.ep, buf, 8, NULL, a.other, 1, 0, &a));
    RETRY(fi_tinject(a.ep, "question", 8, a.other, 1));
    assert_ptr_equal(take(&a).op_context, &a);
    assert_int_equal(read(up[0], name, 1), 1);
    long_claim(claimed);
    /* A receive that names it, a read of its memory, and a send that no receive will match. */
    RETRY(fi_trecv(a.ep, buf, 8, NULL, a.other, 2, 0, &b));
    RETRY(fi_read(a.ep, buf, 8, NULL, a.other, 0, 1, &child));
    RETRY(fi_tsend(a.ep, buf, sizeof buf, NULL, a.other, 3, &e));
    child_kill();
    start = now_ms();
    for (int i = 0; i < 3; i++) {
        e = take_error(&a);
        assert_true(e.err == FI_ECONNRESET || e.err == FI_ESHUTDOWN);
        assert_true(e.op_context == &b || e.op_context == &child || e.op_context == &e);
    }
    assert_in_range(now_ms() - start, 0, limit + 500);
    RETRY(long_receive(FI_CLAIM, claimed));
    e = take_error(&a);
    assert_true(e.err == FI_ECONNRESET || e.err == FI_ESHUTDOWN);
    assert_ptr_equal(e.op_context, claimed);
    assert_int_equal(long_receive(FI_CLAIM | FI_DISCARD, claimed), -FI_EINVAL); /* it is gone */
    /* From here on calls fail. */
    while ((rc = fi_tinject(a.ep, "x", 1, a.other, 1)) == -FI_EAGAIN || !rc) {
        turn();
        assert_in_range(now_ms() - start, 0, limit + 5000);
    }
    assert_true(rc == -FI_ECONNRESET || rc == -FI_ESHUTDOWN);
    /* A receive from anybody goes on. */
    RETRY(fi_trecv(a.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 9, 0, &a));
    assert_int_equal(fi_av_insert(a.av, mine, 1, &a.self, 0, NULL), 1);
    RETRY(fi_tinject(a.ep, "self", 4, a.self, 9));
    assert_ptr_equal(take(&a).op_context, &a);
    side_close(&a);
}

/* ---- receives from anybody ---- */

enum { KEPT_TAG = 60, KEPT = 2 };

/* In the child: send long messages, then poll. */
static void child_send(int from, int to)
{
    static char out[LONG_LEN];
    (void)from;
    for (int i = 0; i < KEPT; i++)
        RETRY(fi_tsend(b.ep, out, LONG_LEN, NULL, b.other, KEPT_TAG + (uint64_t)i, out));
    if (write(to, name, 1) != 1)
        _exit(1);
    for (;;)
        (void)fi_cq_read(b.cq, NULL, 0);
}

/* Wait until a message with [tag] is kept here. */
static void kept_await(uint64_t tag)
{
    const struct fi_msg_tagged m = {.addr = FI_ADDR_UNSPEC, .tag = tag};
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry none = {0};
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t n = 0;
    while (n != 1) {
        RETRY(fi_trecvmsg(a.ep, &m, FI_PEEK | FI_COMPLETION));
        while ((n = fi_cq_read(a.cq, &e, 1)) == -FI_EAGAIN)
            assert_true(now_ms() < deadline);
        assert_true(n == 1 || fi_cq_readerr(a.cq, &none, 0) == 1);
        assert_true(now_ms() < deadline);
    }
}

/* Is the sender of the messages that are kept known to be lost? */
static bool is_lost(void)
{
    ssize_t rc = fi_tinject(a.ep, "x", 1, a.other, 1);
    assert_true(!rc || rc == -FI_EAGAIN || rc == -FI_ECONNRESET || rc == -FI_ESHUTDOWN);
    return rc && rc != -FI_EAGAIN;
}

/* Fails when: a receive from anybody that matches a message whose sender has died, before the loss
 * is noticed or after, fails in its call: then no entry comes, and a server ends by the death of a
 * client. */
static void kept_test(void **state)
{
    static char buf[LONG_LEN];
    ssize_t rc;
    (void)state;
    child_begin(child_send);
    assert_int_equal(read(up[0], name, 1), 1);
    for (int i = 0; i < KEPT; i++)
        kept_await(KEPT_TAG + (uint64_t)i);
    child_kill();
    for (int i = 0; i < KEPT; i++) {
        struct fi_cq_err_entry e;
        RETRY(fi_trecv(a.ep, buf, sizeof buf, NULL, FI_ADDR_UNSPEC, KEPT_TAG + (uint64_t)i, 0,
                       &buf[i]));
        e = take_error(&a);
        assert_true(e.err == FI_ECONNRESET || e.err == FI_ESHUTDOWN);
        assert_ptr_equal(e.op_context, &buf[i]);
        for (uint64_t deadline = now_ms() + WAIT_MS; !is_lost(); turn())
            assert_true(now_ms() < deadline);
    }
    /* A receive that names the sender fails, too. Across a network it does so in its call, since
     * the loss is known: then there is no entry. */
    rc = fi_trecv(a.ep, buf, 8, NULL, a.other, 2, 0, buf);
    assert_true((!rc && !over_network()) || rc == -FI_ECONNRESET || rc == -FI_ESHUTDOWN);
    if (!rc)
        assert_ptr_equal(take_error(&a).op_context, buf);
    assert_int_equal(fi_cq_read(a.cq, NULL, 0), -FI_EAGAIN);
    side_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_test),
        cmocka_unit_test(kept_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
