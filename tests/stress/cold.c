/* SPDX-License-Identifier: BSD-3-Clause */
/* A message on a cold connection against everything that can happen meanwhile.
 * Built with the library's hooks, so that "meanwhile" is a chosen place:
 *
 *   within a send   the receiver arms, polls, or lets connections go cold
 *   within cooling  a message comes between "asleep" and the look
 *   a death         the sender is killed at each point of the send
 *
 * Fails when: a message that was published is neither delivered nor wakes. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/unit.h"
#include "base/hook.h"
#include "core/core.h"
#include "transport/shm/shm.h"

enum { NOTE = 1, SENDERS = 12 };

struct crowd {
    struct weft_ctx *ctx[2];
    struct weft_ep *to, *from[SENDERS];
    struct weft_peer *peer[SENDERS];
    int got, sent;
};

static struct crowd *now; /* the hook's */
static const char *at_label;
static void (*at_action)(struct crowd *);
static int at_times;

static int hook(const char *label)
{
    if (at_label && !strcmp(label, at_label)) {
        at_label = NULL; /* once, and not while it runs */
        at_times++;
        at_action(now);
    }
    return 0;
}

static void hook_at(const char *label, void (*action)(struct crowd *))
{
    at_action = action;
    at_times = 0;
    at_label = label;
}

static void on_note(const struct weft_am *am)
{
    ((struct crowd *)am->arg)->got++;
}

static void senders_open(struct crowd *c, const unsigned char *addr, size_t len)
{
    for (int i = 0; i < SENDERS; i++) {
        OK(weft_ep_open(c->ctx[1], NULL, &c->from[i]));
        OK(weft_peer_open(c->from[i], addr, len, &c->peer[i]));
        OK(weft_am_request(c->peer[i], NOTE, NULL, 0, NULL, 0, 0));
        c->sent++;
    }
}

static size_t receiver_open(struct crowd *c, unsigned char *addr)
{
    size_t len = WEFT_ADDR_MAX;
    OK(weft_ctx_open(NULL, &c->ctx[0]));
    OK(weft_ep_open(c->ctx[0], NULL, &c->to));
    OK(weft_am_register(c->to, NOTE, on_note, c));
    OK(weft_ep_address(c->to, addr, &len));
    return len;
}

static struct shm_tep *receiver(struct crowd *c)
{
    return SHM_OF(c->to->tep[1], shm_tep);
}

static int readable(struct crowd *c, int timeout_ms)
{
    struct pollfd fd = {.fd = weft_ep_fd(c->to), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void turns(struct crowd *c, int n)
{
    while (n--)
        assert_true(weft_ep_poll(c->to) >= 0);
}

/* Nothing late from connecting under way, and all connections cold. */
static void cool_all(struct crowd *c)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (c->got < SENDERS || receiver(c)->nrx_hot > 4) {
        if (weft_ep_arm(c->to) == WEFT_OK)
            (void)readable(c, 1);
        turns(c, 4 * 1024);
        assert_true(test_now_ns() < end);
    }
}

/* Until the receiver has sent the descriptor that wakes it. */
static void await_wake_fd(struct crowd *c, int i)
{
    const struct shm_tx *tx = SHM_OF(wf_peer_tpeer(c->peer[i]), shm_peer)->tx;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (wf_load_acquire(&tx->wake_fd) < 0 && test_now_ns() < end)
        (void)weft_ep_wait(c->from[i], 1000000);
}

static struct crowd *crowd_open(int contexts)
{
    struct crowd *c = calloc(1, sizeof *c);
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = receiver_open(c, addr);
    if (contexts == 2)
        OK(weft_ctx_open(NULL, &c->ctx[1]));
    else
        c->ctx[1] = c->ctx[0];
    senders_open(c, addr, len);
    for (int i = 0; i < SENDERS; i++)
        await_wake_fd(c, i);
    cool_all(c);
    c->got = c->sent = 0;
    now = c;
    return c;
}

static void crowd_close(struct crowd *c)
{
    for (int i = 0; i < SENDERS; i++) {
        OK(weft_peer_close(c->peer[i]));
        OK(weft_ep_close(c->from[i]));
    }
    OK(weft_ep_close(c->to));
    OK(weft_ctx_close(c->ctx[0]));
    if (c->ctx[1] != c->ctx[0])
        OK(weft_ctx_close(c->ctx[1]));
    free(c);
    now = NULL;
}

static int cold_now(struct crowd *c)
{
    for (int i = 0; i < SENDERS; i++) {
        struct shm_tep *t = receiver(c);
        struct shm_tx *tx = SHM_OF(wf_peer_tpeer(c->peer[i]), shm_peer)->tx;
        for (uint32_t k = t->nrx_hot; k < t->nrx; k++)
            if (t->rx[k]->bit == tx->bell_bit)
                return i;
    }
    return -1;
}

/* The announcements with which connecting ends may come late, and warm. */
static int cold_one(struct crowd *c)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    int i = cold_now(c);
    while (i < 0 && test_now_ns() < end) {
        c->got = SENDERS;
        cool_all(c);
        c->got = 0;
        i = cold_now(c);
    }
    if (i < 0)
        fail_msg("none is cold");
    return i;
}

static enum weft_status armed;
static void arm(struct crowd *c)
{
    armed = weft_ep_arm(c->to);
}
static void poll_once(struct crowd *c)
{
    turns(c, 1);
}
static void poll_and_cool(struct crowd *c)
{
    turns(c, 5 * 1024);
}
static void cool_and_arm(struct crowd *c)
{
    turns(c, 5 * 1024);
    arm(c);
}
static void sleep_wake_sleep(struct crowd *c)
{
    arm(c);
    turns(c, 1);
    arm(c);
}

static void (*const actions[])(struct crowd *) = {arm, poll_once, poll_and_cool, cool_and_arm,
                                                  sleep_wake_sleep};
static const char *const labels[] = {"send.header", "send.data", "send.published", "send.rung"};

static void must_arrive(struct crowd *c, int want, const char *what)
{
    if (weft_ep_arm(c->to) == WEFT_OK && !readable(c, 5000))
        fail_msg("%s: neither AGAIN nor a wake", what);
    for (int i = 0; i < 3 && c->got < want; i++)
        turns(c, 1);
    if (c->got != want)
        fail_msg("%s: %d of %d delivered", what, c->got, want);
}

static void test_within_send(void **state)
{
    (void)state;
    for (int contexts = 1; contexts <= 2; contexts++)
        for (size_t l = 0; l < sizeof labels / sizeof labels[0]; l++)
            for (size_t a = 0; a < sizeof actions / sizeof actions[0]; a++) {
                struct crowd *c = crowd_open(contexts);
                int i = cold_one(c);
                armed = WEFT_AGAIN;
                hook_at(labels[l], actions[a]);
                OK(weft_am_request(c->peer[i], NOTE, NULL, 0, NULL, 0, 0));
                assert_int_equal(at_times, 1);
                if (armed == WEFT_OK && !readable(c, 5000))
                    fail_msg("%s, action %zu: armed, not woken", labels[l], a);
                if (!c->got)
                    must_arrive(c, 1, labels[l]);
                /* The next one, for which the sender may think it announced enough. */
                OK(weft_am_request(c->peer[i], NOTE, NULL, 0, NULL, 0, 0));
                must_arrive(c, 2, "the next");
                crowd_close(c);
            }
}

static void heat_all(struct crowd *c)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (int k = 0; k < SENDERS; k++)
        OK(weft_am_request(c->peer[k], NOTE, NULL, 0, NULL, 0, 0));
    while (c->got < SENDERS) {
        turns(c, 1);
        assert_true(test_now_ns() < end);
    }
    assert_int_equal(receiver(c)->nrx_hot, SENDERS);
    c->got = 0;
}

/* It is hot, and goes cold before its sender has looked at the sleep word: the
 * sender announces what was delivered long ago. */
static void test_within_hot_send(void **state)
{
    (void)state;
    for (int contexts = 1; contexts <= 2; contexts++)
        for (size_t l = 0; l < sizeof labels / sizeof labels[0] - 1; l++) {
            struct crowd *c = crowd_open(contexts);
            heat_all(c);
            hook_at(labels[l], poll_and_cool);
            OK(weft_am_request(c->peer[3], NOTE, NULL, 0, NULL, 0, 0));
            assert_int_equal(at_times, 1);
            if (!c->got) /* of two processes, it may not be known yet where to announce it */
                must_arrive(c, 1, labels[l]);
            OK(weft_am_request(c->peer[3], NOTE, NULL, 0, NULL, 0, 0));
            must_arrive(c, 2, "the next");
            crowd_close(c);
        }
}

static void send_from_hot(struct crowd *c)
{
    OK(weft_am_request(c->peer[c->sent], NOTE, NULL, 0, NULL, 0, 0));
}

/* All are hot; one sends when all are about to go cold, or were told so. */
static void test_within_cooling(void **state)
{
    static const char *const at[] = {"cool.idle", "cool.said"};
    (void)state;
    for (int n = 0; n < 2 * 2 * SENDERS; n++) {
        struct crowd *c = crowd_open(1 + n % 2);
        int i = n / 4;
        heat_all(c);
        c->sent = i;
        hook_at(at[n / 2 % 2], send_from_hot);
        turns(c, 6 * 1024);
        assert_int_equal(at_times, 1);
        assert_int_equal(c->got, 1);
        OK(weft_am_request(c->peer[i], NOTE, NULL, 0, NULL, 0, 0));
        must_arrive(c, 2, "the next");
        crowd_close(c);
    }
}

/* Arming that finds one message leaves those that it did not look at hot. */
static void test_armed_in_vain(void **state)
{
    struct crowd *c = crowd_open(1);
    (void)state;
    heat_all(c);
    turns(c, 1024);
    for (int k = 0; k < SENDERS; k++)
        OK(weft_am_request(c->peer[k], NOTE, NULL, 0, NULL, 0, 0));
    assert_int_equal(weft_ep_arm(c->to), WEFT_AGAIN);
    turns(c, 3);
    assert_int_equal(c->got, SENDERS);
    crowd_close(c);
}

/* Its end is announced, too. */
static void test_closed_is_heard(void **state)
{
    struct crowd *c = crowd_open(1);
    int i = cold_one(c);
    (void)state;
    turns(c, 1024 - (int)(receiver(c)->turn & 1023)); /* the next sweep is far */
    OK(weft_peer_close(c->peer[i]));
    turns(c, 3);
    assert_int_equal(receiver(c)->nrx, SENDERS - 1);
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    OK(weft_ep_address(c->to, addr, &len));
    OK(weft_peer_open(c->from[i], addr, len, &c->peer[i]));
    crowd_close(c);
}

/* ---- deaths ---- */

struct ticket {
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len;
};

static void die(struct crowd *c)
{
    (void)c;
    (void)raise(SIGKILL);
}

static void child_main(const char *label, int from)
{
    struct crowd *c = calloc(1, sizeof *c);
    struct ticket t;
    char byte;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    if (read(from, &t, sizeof t) != sizeof t || weft_ctx_open(NULL, &c->ctx[1]) != WEFT_OK)
        _exit(1);
    senders_open(c, t.addr, t.len);
    if (read(from, &byte, 1) != 1)
        _exit(1);
    now = c;
    for (int i = 0; i < SENDERS; i++)
        await_wake_fd(c, i);
    hook_at(label, die);
    for (int i = 0; i < SENDERS; i++) /* a few may have stayed hot: they announce nothing */
        (void)!weft_am_request(c->peer[i], NOTE, NULL, 0, NULL, 0, 0);
    _exit(2);
}

static void test_death(void **state)
{
    (void)state;
    for (size_t l = 0; l < sizeof labels / sizeof labels[0]; l++) {
        struct crowd *c = calloc(1, sizeof *c);
        uint64_t end = test_now_ns() + TEST_LIMIT_NS;
        struct ticket t = {.len = 0};
        int pipefd[2], status;
        pid_t pid;
        assert_int_equal(pipe(pipefd), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid)
            child_main(labels[l], pipefd[0]);
        t.len = receiver_open(c, t.addr);
        assert_int_equal(write(pipefd[1], &t, sizeof t), sizeof t);
        cool_all(c);
        c->got = 0;
        while (weft_ep_arm(c->to) != WEFT_OK) { /* the service thread's last word of connecting */
            assert_true(weft_ep_poll(c->to) >= 0);
            assert_true(test_now_ns() < end);
        }
        assert_int_equal(write(pipefd[1], "", 1), 1);
        assert_true(readable(c, 5000)); /* of the message or the death */
        while (receiver(c)->nrx) {
            assert_true(weft_ep_wait(c->to, 1000000) >= 0);
            assert_true(test_now_ns() < end);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WIFSIGNALED(status) ? 0 : WEXITSTATUS(status), 0);
        /* Published, announced or not; only the last label may need more than one. */
        assert_true(l < 2 ? c->got == 0 : l == 2 ? c->got == 1 : c->got >= 1);
        OK(weft_ep_close(c->to));
        OK(weft_ctx_close(c->ctx[0]));
        close(pipefd[0]);
        close(pipefd[1]);
        free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_send),     cmocka_unit_test(test_within_hot_send),
        cmocka_unit_test(test_within_cooling),  cmocka_unit_test(test_armed_in_vain),
        cmocka_unit_test(test_closed_is_heard), cmocka_unit_test(test_death)};
    setenv("WEFT_SPIN", "0", 0);
    test_debug("yield=0");
    alarm(120);
    weft_test_hook = hook;
    return cmocka_run_group_tests_name("cold", tests, NULL, NULL);
}
